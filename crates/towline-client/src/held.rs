//! Sessions that leave their server for a folder ([`towline_checkpoint`]), and are made again from there: what all APIs share of it.
//!
//! A session comes to rest as for a move, and its contents go into the folder in place of another session. Then its server is left, and the
//! program's calls are held until a file in the folder says where to go on. All that time the process has no connection and no descriptor of
//! the session, so that another tool can dump it. A restore that fails leaves it held.

use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use towline_checkpoint::message::{Answer, Held, INVITATION, Restore};
use towline_checkpoint::{CheckpointError, Digest, Folder, Key, Manifest, Reader, Writer};
use towline_transport::{Address, is_trusted};
use towline_wire::control::{limits, printable};

use crate::access::{Access, Admission};
use crate::link::Link;
use crate::moved::RebuildError;
use crate::peer::Control;

/// Time between two looks whether the program is to go on.
const LOOK: Duration = Duration::from_millis(100);

/// Makes the session again with a server; in the error, the reason why it is still held.
type Resume<'a> = dyn FnMut(&Address, &Reader<'_>) -> Result<(), String> + 'a;

/// A folder that the user offers for a checkpoint.
#[derive(Debug)]
pub(crate) struct Offer {
    folder: Folder,
    key: Option<&'static Key>,
}

impl Offer {
    /// Takes the offer, which is for one checkpoint.
    pub(crate) fn take(&self) -> Result<(), RebuildError> {
        self.folder.remove(INVITATION)?;
        Ok(())
    }

    /// Begins the checkpoint.
    pub(crate) fn begin(self, manifest: Manifest) -> Result<Writer<'static>, RebuildError> {
        Ok(Writer::begin(self.folder, manifest, self.key)?)
    }
}

/// The checkpoint that a program is held for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Written {
    digest: Digest,
    key: Option<&'static Key>,
}

/// This process's key, which never leaves its memory.
fn key() -> Result<&'static Key, RebuildError> {
    static KEY: OnceLock<Option<Key>> = OnceLock::new();
    let key = KEY.get_or_init(Key::new).as_ref();
    key.ok_or(RebuildError::Unmovable(
        "there are no random numbers for a key",
    ))
}

/// The folder that a server names.
pub(crate) fn path(folder: &str) -> Result<&Path, String> {
    // It is logged.
    match printable(folder, limits::PATH_BYTES) == folder {
        true => Ok(Path::new(folder)),
        false => Err("the folder's path has characters that cannot be shown".into()),
    }
}

/// The folder, where the user wants one checkpoint in it, and nobody else is at it. A server that guesses learns nothing of what is where.
pub(crate) fn invited(path: &Path) -> Result<Offer, RebuildError> {
    let refuse = |why| CheckpointError::Folder {
        folder: path.to_owned(),
        why,
    };
    if !is_trusted() {
        return Err(RebuildError::Unmovable(
            "its program runs with more rights than its user",
        ));
    }
    let folder = Folder::open(path)
        .inspect_err(|error| log::warn!("no checkpoint: {error}"))
        .ok();
    let folder = folder.filter(|folder| folder.has(INVITATION));
    let folder = folder.ok_or_else(|| {
        refuse(
            "its user has not offered it; on the program's machine make it, for that user alone (install -d -m 700), and a file `invitation` in it",
        )
    })?;
    if folder.held()?.is_some() {
        return Err(
            refuse("a program is held for it; if that one has ended, remove held.toml").into(),
        );
    }
    let is_encrypted = folder.invitation()?.unwrap_or_default();
    let key = is_encrypted.then(key).transpose()?;
    match folder.lock()? {
        true => Ok(Offer { folder, key }),
        false => Err(refuse("another program is at it").into()),
    }
}

/// This program's name.
pub(crate) fn program() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// Ends a checkpoint that was begun at a time: from now on the program is held for it.
pub(crate) fn finish(
    writer: Writer<'static>,
    path: &Path,
    server: &str,
    began: Instant,
) -> Result<Written, RebuildError> {
    let (written, key) = (writer.written_bytes(), writer.key());
    let digest = writer.finish()?;
    Folder::open(path)?.hold(&Held {
        program: program(),
        pid: std::process::id().into(),
        server: server.into(),
    })?;
    log::info!(
        "a checkpoint of the session with {server} took {:.3} s; {written} bytes of it were new",
        began.elapsed().as_secs_f64(),
    );
    Ok(Written { digest, key })
}

/// Leaves the server, by `goodbye` where it does not hear so otherwise. Of the link nothing stays but what later calls may ask for.
pub(crate) fn leave(link: &Link, left: &Control, goodbye: impl FnOnce()) {
    let kept = {
        let mut state = link.state();
        let events = std::mem::take(&mut state.events);
        (events, std::mem::take(&mut state.failures))
    };
    if !left.leave() {
        goodbye();
        link.flush();
    }
    link.end("the session is held".into());
    link.clear();
    let mut state = link.state();
    (state.events, state.failures) = kept;
}

/// The credentials for a server that the user names, not another server: its key may be a new one.
pub(crate) fn admit(server: &Address, access: &Admission) -> Result<Access, String> {
    let access = access(server).map_err(|error| error.to_string())?;
    Ok(Access {
        only_known: false,
        ..access
    })
}

/// Returns when the session, which left the server `last`, is with a server again.
pub(crate) fn hold(path: &Path, written: Written, last: &str, resume: &mut Resume<'_>) {
    log::info!(
        "the session is held: its contents are in {}",
        path.display()
    );
    loop {
        std::thread::sleep(LOOK);
        // It may be on its way from another machine.
        let Ok(folder) = Folder::open(path) else {
            continue;
        };
        if !folder.is_asking() {
            continue;
        }
        // Before the wish is taken: `towline` sees by it that this process lives.
        let _ = folder.lock();
        let wish = match folder.take_wish() {
            Ok(Some(wish)) => wish,
            Ok(None) => continue,
            Err(error) => {
                log::error!("the session is still held: {error}");
                continue;
            }
        };
        let Restore { id, servers } = wish;
        let outcome = go_on(path, written, last, &servers, resume);
        match &outcome {
            Ok(server) => log::info!("the session goes on with {server}"),
            Err(reason) => log::error!("the session is still held: {reason}"),
        }
        let is_with_a_server = outcome.is_ok();
        let told = match is_with_a_server {
            true => folder.release(),
            false => Ok(()),
        };
        let told = told.and_then(|()| folder.answer(&Answer { id, outcome }));
        if let Err(error) = told {
            log::error!("{error}");
        }
        if is_with_a_server {
            return;
        }
    }
}

/// Makes the session again with the first of these servers that takes it: its address.
fn go_on(
    path: &Path,
    written: Written,
    last: &str,
    servers: &[String],
    resume: &mut Resume<'_>,
) -> Result<String, String> {
    let Written { digest, key } = written;
    let reader = Folder::open(path).and_then(|folder| Reader::open(folder, digest, key));
    let reader = reader.map_err(|error| error.to_string())?;
    // Nothing is begun anywhere before it is known to be whole.
    reader.verify().map_err(|error| error.to_string())?;
    let last = [last.to_owned()];
    let servers = match servers.is_empty() {
        true => &last,
        false => servers,
    };
    let mut reasons = Vec::new();
    for server in servers {
        let address: Result<Address, _> = server.parse();
        let resumed = match address {
            Ok(address) => resume(&address, &reader),
            Err(error) => Err(format!("{server}: {error}")),
        };
        match resumed {
            Ok(()) => return Ok(server.clone()),
            Err(reason) => reasons.push(reason),
        }
    }
    Err(reasons.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_without_invitation_are_refused_alike() {
        let above = tempfile::tempdir().expect("room for temporary files");
        let path = above.path().join("held");
        let refused = || invited(&path).expect_err("nobody offers it").to_string();
        let missing = refused();
        let folder = Folder::make(&path).expect("there is room");
        assert_eq!(refused(), missing);
        folder.invite(false).expect("it is ours");
        let held = Held {
            program: "train".into(),
            pid: 1,
            server: "tcp://gpu1:7140".into(),
        };
        folder.hold(&held).expect("it is ours");
        assert!(refused().contains("a program is held"));
        folder.release().expect("it is ours");
        let offered = invited(&path).expect("it is offered");
        assert!(refused().contains("another program"));
        drop(offered);
        assert!(invited(&path).is_ok());
    }
}
