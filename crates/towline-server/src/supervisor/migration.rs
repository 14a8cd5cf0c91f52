//! Sessions that leave for another server, or for a checkpoint. The client does it, since it keeps what a session is made of; this server asks
//! it to, waits for the answer, and ends what the client has left.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use towline_transport::{Address, TransportError};
use towline_wire::control::{
    CheckpointSession, Message, MigrateSession, SHOWN_TEXT, limits, printable,
};

use super::control::KILL_LIMIT;
use super::ending::{Cause, Ending};
use super::session::Session;
use super::{Shared, lock};

/// The pause between looks whether the wait for a client's answer is over.
const LOOK_PERIOD: Duration = Duration::from_secs(1);
/// Longest time that a client may take: the contents of the largest devices over a link of 1 Gbit/s.
const LIMIT: Duration = Duration::from_secs(30 * 60);

/// A wish that a session leaves.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Wish {
    /// For a folder on its client's machine.
    Checkpoint(String),
    /// For the server at an address.
    Move(String),
}

impl Wish {
    /// The folder or address, as it may be shown.
    fn target(&self) -> String {
        let (Self::Checkpoint(target) | Self::Move(target)) = self;
        printable(target, SHOWN_TEXT)
    }

    /// Fails with the reason why no session can fulfil it.
    pub(super) fn check(&self) -> Result<(), String> {
        match self {
            Self::Checkpoint(folder) => check_folder(folder),
            Self::Move(to) => check_address(to),
        }
    }

    /// The end of a session that has left so.
    fn ending(&self) -> Ending {
        let target = self.target();
        match self {
            Self::Checkpoint(_) => Ending {
                reason: format!("the session was checkpointed in {target}"),
                cause: Cause::Checkpoint,
            },
            Self::Move(_) => Ending {
                reason: format!("the session moved to {target}"),
                cause: Cause::Moved,
            },
        }
    }
}

impl std::fmt::Display for Wish {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let target = self.target();
        match self {
            Self::Checkpoint(_) => write!(to, "write a checkpoint into {target}"),
            Self::Move(_) => write!(to, "move to {target}"),
        }
    }
}

/// State of a session that may be asked to leave.
#[derive(Default)]
pub(super) struct Migration {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The wish that it is asked to fulfil.
    asked: Option<Wish>,
    /// Counts the answers.
    answers: u64,
    /// The last one.
    outcome: Option<Result<(), String>>,
    /// The session has ended.
    over: bool,
}

/// The reason why a text cannot be the path of a folder. The client looks whether it may write there.
fn check_folder(folder: &str) -> Result<(), String> {
    let is_path = folder.starts_with('/') && !folder.chars().any(char::is_control);
    match is_path && folder.len() <= limits::PATH_BYTES {
        true => Ok(()),
        false => Err(format!(
            "the folder is no absolute path of at most {} bytes",
            limits::PATH_BYTES
        )),
    }
}

/// The reason why an address cannot be that of a server.
pub(super) fn check_address(to: &str) -> Result<(), String> {
    if to.len() > limits::NAME_BYTES {
        return Err(format!(
            "the address of the other server is longer than {} bytes",
            limits::NAME_BYTES
        ));
    }
    let parsed: Result<Address, _> = to.parse();
    parsed.map(drop).map_err(|error| error.to_string())
}

/// Has the client of a session take it away, and returns when its place is free; in the error, why it is where it was. The wish is one that
/// [`check`](Wish::check) finds possible. Waits until `is_over` says that nobody wants to know.
pub(super) fn send_away(
    session: &Session,
    wish: &Wish,
    is_over: &dyn Fn() -> bool,
    shared: &Shared,
) -> Result<(), String> {
    let is_away = session.control.away().is_some();
    let ask = || session.migration.repeat(session);
    session.migration.ask(wish, is_away, is_over, ask)?;
    // Its remains here are of no use to anyone.
    if !shared.sessions.wait_gone(session.id, KILL_LIMIT) {
        log::warn!(
            "session {}: it has left, but its worker has not ended within {} s",
            session.id,
            KILL_LIMIT.as_secs()
        );
    }
    Ok(())
}

impl Migration {
    /// Asks the client by `send` where nobody has yet, unless it is cut off, and waits for its answer.
    fn ask(
        &self,
        wish: &Wish,
        is_away: bool,
        is_over: &dyn Fn() -> bool,
        send: impl FnOnce() -> Result<(), TransportError>,
    ) -> Result<(), String> {
        let mut state = lock(&self.state);
        // Before it is asked: it may answer before this thread goes on.
        let before = state.answers;
        if state.over {
            return Err("the session has ended".into());
        }
        match &state.asked {
            Some(other) if other == wish => {}
            Some(other) => return Err(format!("the session is about to {other}")),
            None if is_away => {
                return Err("its client is cut off: try again when it is back".into());
            }
            None => {
                state.asked = Some(wish.clone());
                drop(state);
                if let Err(error) = send() {
                    lock(&self.state).asked = None;
                    return Err(format!("its client cannot be asked: {error}"));
                }
                state = lock(&self.state);
            }
        }
        let deadline = Instant::now() + LIMIT;
        while state.answers == before && !state.over {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(format!(
                    "its client has not answered within {} min",
                    LIMIT.as_secs() / 60
                ));
            }
            let waited = self.changed.wait_timeout(state, left.min(LOOK_PERIOD));
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            if is_over() {
                return Err("the answer is not waited for any more".into());
            }
        }
        match &state.outcome {
            Some(outcome) if state.answers > before => outcome.clone(),
            _ => Err("the session has ended before its client said whether it left".into()),
        }
    }

    /// Asks the client, again after each cut of its connection.
    pub(super) fn repeat(&self, session: &Session) -> Result<(), TransportError> {
        let Some(wish) = lock(&self.state).asked.clone() else {
            return Ok(());
        };
        let session_id = session.id;
        let message = match wish {
            Wish::Checkpoint(folder) => {
                Message::CheckpointSession(CheckpointSession { session_id, folder })
            }
            Wish::Move(to) => Message::MigrateSession(MigrateSession { session_id, to }),
        };
        session.control.send_wish(message.encode())
    }

    /// Takes the client's answer to a move, or to a checkpoint: the session's end, if it has left. Nobody may have asked.
    pub(super) fn answered(
        &self,
        is_checkpoint: bool,
        outcome: Result<(), String>,
    ) -> Result<Option<Ending>, ()> {
        let mut state = lock(&self.state);
        let wish = state.asked.take().ok_or(())?;
        if matches!(wish, Wish::Checkpoint(_)) != is_checkpoint {
            return Err(());
        }
        let outcome = outcome.map_err(|reason| printable(&reason, SHOWN_TEXT));
        let ending = outcome.is_ok().then(|| wish.ending());
        state.answers += 1;
        state.outcome = Some(outcome);
        drop(state);
        self.changed.notify_all();
        Ok(ending)
    }

    /// The session has ended: nobody answers any more.
    pub(super) fn end(&self) {
        lock(&self.state).over = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to_gpu2() -> Wish {
        Wish::Move("tcp://gpu2:7140".into())
    }

    #[test]
    fn marks_of_direction_are_not_shown() {
        let wish = Wish::Checkpoint("/held/\u{202e}gpj".into());
        let shown = [wish.to_string(), wish.ending().reason];
        assert!(shown.iter().all(|text| !text.contains('\u{202e}')));
    }

    #[test]
    fn answer_that_comes_at_once_is_heard() {
        let migration = Migration::default();
        for reason in ["it has pipes", "it has pipes still"] {
            let outcome = migration.ask(&to_gpu2(), false, &|| false, || {
                let answered = migration.answered(false, Err(reason.into()));
                assert!(matches!(answered, Ok(None)), "it was asked");
                Ok(())
            });
            assert_eq!(outcome, Err(reason.into()));
        }
    }

    #[test]
    fn client_that_cannot_be_asked_is_asked_again() {
        let migration = Migration::default();
        let to = to_gpu2();
        let away = migration.ask(&to, true, &|| false, || unreachable!("it is cut off"));
        assert!(away.is_err_and(|reason| reason.contains("cut off")));
        let failed = migration.ask(&to, false, &|| false, || {
            let peer = "here".into();
            Err(TransportError::Closed { peer })
        });
        assert!(failed.is_err_and(|reason| reason.contains("cannot be asked")));
        let moved = migration.ask(&to, false, &|| false, || {
            let answered = migration.answered(false, Ok(()));
            let ending = answered.expect("it was asked").expect("it has left");
            assert_eq!(ending.reason, "the session moved to tcp://gpu2:7140");
            Ok(())
        });
        assert_eq!(moved, Ok(()));
    }

    #[test]
    fn asker_that_is_gone_waits_no_longer() {
        let migration = Migration::default();
        let outcome = migration.ask(&to_gpu2(), false, &|| true, || Ok(()));
        assert!(outcome.is_err_and(|reason| reason.contains("not waited for")));
        let ending = migration.answered(false, Ok(())).expect("it was asked");
        assert!(ending.is_some(), "its client leaves all the same");
    }

    #[test]
    fn answer_to_another_wish_is_refused() {
        let migration = Migration::default();
        let folder = Wish::Checkpoint("/held".into());
        lock(&migration.state).asked = Some(folder);
        assert!(migration.answered(false, Ok(())).is_err());
    }

    #[test]
    fn folder_is_an_absolute_path() {
        assert_eq!(check_folder("/home/anna/held"), Ok(()));
        let long = format!("/{}", "a".repeat(limits::PATH_BYTES));
        for folder in ["held", "", "/a\nb", &long] {
            assert!(check_folder(folder).is_err(), "{folder:?}");
        }
    }
}
