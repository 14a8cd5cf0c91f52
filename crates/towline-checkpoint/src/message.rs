//! The files by which `towline` speaks with a program that is held, or is to be. They need no connection and no process id, so they reach a
//! program that another tool has dumped and brought back, on this machine or another.
//!
//! - `invitation`: the user wants one checkpoint in this folder, encrypted if it holds the word `encrypt`. The program takes it away; without
//!   it no server can have anything written.
//! - `held.toml`: a program is held here ([`Held`]).
//! - `restore.toml`: it is to go on ([`Restore`]). The program takes it away.
//! - `restoring`: locked by who asks it to go on.
//! - `answer.toml`: whether it does ([`Answer`]).

use crate::fields::{Fields, quoted};
use crate::{CheckpointError, Folder};

/// Name of the invitation.
pub const INVITATION: &str = "invitation";
/// The word in it that asks for encryption.
const ENCRYPT: &[u8] = b"encrypt";
const HELD: &str = "held.toml";
const RESTORE: &str = "restore.toml";
const TAKEN: &str = "restore.taken";
const RESTORING: &str = "restoring";
const ANSWER: &str = "answer.toml";
/// Most bytes of such a file.
const LIMIT: usize = 64 << 10;

/// A program that is held.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Held {
    /// The program's name.
    pub program: String,
    /// Its process id when it was held.
    pub pid: u64,
    /// The server that it left.
    pub server: String,
}

/// A wish that the program goes on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Restore {
    /// Tells wishes apart.
    pub id: String,
    /// Addresses of servers, the first one that takes it is used; the one that it left where there are none.
    pub servers: Vec<String>,
}

/// The program's answer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Answer {
    /// Of the wish.
    pub id: String,
    /// The server that it is with; or the reason why it is still held.
    pub outcome: Result<String, String>,
}

impl Folder {
    /// Invites one checkpoint, encrypted or not; refused while a program is at the folder.
    pub fn invite(&self, is_encrypted: bool) -> Result<(), CheckpointError> {
        if !self.lock()? {
            return Err(CheckpointError::Folder {
                folder: self.path().to_owned(),
                why: "a program is at it",
            });
        }
        // For the program that the invitation is for.
        self.unlock()?;
        let wish = match is_encrypted {
            true => ENCRYPT,
            false => b"",
        };
        self.write(INVITATION, wish)
    }

    /// Whether the checkpoint that the user invites is to be encrypted; `None` where there is no invitation.
    pub fn invitation(&self) -> Result<Option<bool>, CheckpointError> {
        let wish = self.read(INVITATION, LIMIT)?;
        match wish.as_deref().map(<[u8]>::trim_ascii) {
            None => Ok(None),
            Some(b"") => Ok(Some(false)),
            Some(ENCRYPT) => Ok(Some(true)),
            Some(_) => {
                let what = "invitation holds another word than `encrypt`, or none";
                Err(self.damaged(what.into()))
            }
        }
    }

    /// The program that is held here, or was when it died.
    pub fn held(&self) -> Result<Option<Held>, CheckpointError> {
        self.message(HELD, |fields| {
            Some(Held {
                program: fields.text("program")?,
                pid: fields.number("pid")?,
                server: fields.text("server")?,
            })
        })
    }

    /// A program is held here from now on, with no wish or answer of earlier ones.
    pub fn hold(&self, held: &Held) -> Result<(), CheckpointError> {
        self.remove(RESTORE)?;
        self.remove(ANSWER)?;
        let Held {
            program,
            pid,
            server,
        } = held;
        let (program, server) = (quoted(program), quoted(server));
        self.tell(
            HELD,
            &format!("program = {program}\npid = {pid}\nserver = {server}\n"),
        )
    }

    /// The program is held no more.
    pub fn release(&self) -> Result<(), CheckpointError> {
        self.remove(HELD).map(drop)
    }

    /// Has this caller alone ask the program to go on, until the result is dropped; `None` where another does.
    pub fn restoring(&self) -> Result<Option<std::fs::File>, CheckpointError> {
        self.lock_file(RESTORING)
    }

    /// Asks the program to go on.
    pub fn ask(&self, wish: &Restore) -> Result<(), CheckpointError> {
        self.remove(ANSWER)?;
        let id = quoted(&wish.id);
        let servers: Vec<String> = wish.servers.iter().map(|server| quoted(server)).collect();
        let servers = servers.join(", ");
        self.tell(RESTORE, &format!("id = {id}\nservers = [{servers}]\n"))
    }

    /// Takes the wish back; false where the program has taken it.
    pub fn take_back(&self) -> Result<bool, CheckpointError> {
        self.remove(RESTORE)
    }

    /// Whether the program has not taken the wish.
    pub fn is_asking(&self) -> bool {
        self.has(RESTORE)
    }

    /// Takes the wish, if there is one.
    pub fn take_wish(&self) -> Result<Option<Restore>, CheckpointError> {
        // A copy of this process may want it, too.
        if !self.rename(RESTORE, TAKEN)? {
            return Ok(None);
        }
        let wish = self.message(TAKEN, |fields| {
            Some(Restore {
                id: fields.text("id")?,
                servers: fields.texts("servers")?,
            })
        });
        self.remove(TAKEN)?;
        wish
    }

    /// Answers the wish.
    pub fn answer(&self, answer: &Answer) -> Result<(), CheckpointError> {
        let id = quoted(&answer.id);
        let (name, text) = match &answer.outcome {
            Ok(server) => ("server", server),
            Err(reason) => ("reason", reason),
        };
        self.tell(ANSWER, &format!("id = {id}\n{name} = {}\n", quoted(text)))
    }

    /// Takes the answer to a wish, if it is there.
    pub fn take_answer(&self, id: &str) -> Result<Option<Answer>, CheckpointError> {
        let answer = self.message(ANSWER, |fields| {
            let id = fields.text("id")?;
            let server = fields.text("server").map(Ok);
            let outcome = server.or_else(|| fields.text("reason").map(Err))?;
            Some(Answer { id, outcome })
        })?;
        let answer = answer.filter(|answer| answer.id == id);
        if answer.is_some() {
            self.remove(ANSWER)?;
        }
        Ok(answer)
    }

    fn tell(&self, name: &str, message: &str) -> Result<(), CheckpointError> {
        self.write(name, message.as_bytes())
    }

    fn message<M>(
        &self,
        name: &str,
        read: impl FnOnce(&mut Fields) -> Option<M>,
    ) -> Result<Option<M>, CheckpointError> {
        let Some(bytes) = self.read(name, LIMIT)? else {
            return Ok(None);
        };
        let fields = Fields::parse(&bytes);
        let message = fields.and_then(|mut fields| {
            let message = read(&mut fields)?;
            fields.are_all().then_some(message)
        });
        match message {
            Some(message) => Ok(Some(message)),
            None => Err(self.damaged(format!("{name} cannot be read"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wish_is_taken_once_and_answered() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::make(&place.path().join("held")).unwrap();
        let held = Held {
            program: "train".into(),
            pid: 7,
            server: "tcp://gpu1:7140".into(),
        };
        folder.hold(&held).unwrap();
        assert_eq!(folder.held().unwrap(), Some(held));
        assert_eq!(folder.take_wish().unwrap(), None);
        let alone = folder.restoring().unwrap();
        assert!(alone.is_some() && folder.restoring().unwrap().is_none());
        drop(alone);
        assert!(folder.restoring().unwrap().is_some());
        let wish = Restore {
            id: "1".into(),
            servers: vec!["gpu2".into()],
        };
        folder.ask(&wish).unwrap();
        assert!(folder.is_asking());
        assert_eq!(folder.take_wish().unwrap(), Some(wish));
        assert!(!folder.is_asking() && !folder.take_back().unwrap());
        let answer = Answer {
            id: "1".into(),
            outcome: Err("no memory".into()),
        };
        folder.answer(&answer).unwrap();
        assert_eq!(folder.take_answer("0").unwrap(), None);
        assert_eq!(folder.take_answer("1").unwrap(), Some(answer));
        assert_eq!(folder.take_answer("1").unwrap(), None);
        folder.release().unwrap();
        assert_eq!(folder.held().unwrap(), None);
    }

    #[test]
    fn folder_in_use_invites_nobody() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("held");
        let (folder, other) = (Folder::make(&path).unwrap(), Folder::open(&path).unwrap());
        assert!(other.lock().unwrap());
        assert!(folder.invite(false).is_err());
        assert_eq!(folder.invitation().unwrap(), None);
        drop(other);
        folder.invite(true).unwrap();
        assert_eq!(folder.invitation().unwrap(), Some(true));
        folder.write(INVITATION, b" encrypt\n").unwrap();
        assert_eq!(folder.invitation().unwrap(), Some(true));
        folder.write(INVITATION, b"decrypt").unwrap();
        assert!(folder.invitation().is_err());
        folder.invite(false).unwrap();
        assert_eq!(folder.invitation().unwrap(), Some(false));
        assert!(Folder::open(&path).unwrap().lock().unwrap());
    }

    #[test]
    fn wish_that_cannot_be_read_is_told_once() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::make(&place.path().join("held")).unwrap();
        folder.write(RESTORE, b"{").unwrap();
        assert!(folder.take_wish().is_err());
        assert_eq!(folder.take_wish().unwrap(), None);
    }
}
