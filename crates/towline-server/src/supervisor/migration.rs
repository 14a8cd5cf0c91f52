//! Sessions that leave for another server. The client moves its session, since it keeps what a session is made of; this server asks it to,
//! waits for the answer, and ends what the client has left.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use towline_transport::{Address, TransportError};
use towline_wire::control::{Message, MigrateSession, SHOWN_TEXT, limits, printable};

use super::control::KILL_LIMIT;
use super::session::Session;
use super::{Shared, lock};

/// Longest time that a client may take: the contents of the largest devices over a link of 1 Gbit/s.
const LIMIT: Duration = Duration::from_secs(30 * 60);

/// State of a session that may be asked to leave.
#[derive(Default)]
pub(super) struct Migration {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The address of the server that it is asked to go to.
    asked: Option<String>,
    /// Counts the answers.
    answers: u64,
    /// The last one.
    outcome: Option<Result<(), String>>,
    /// The session has ended.
    over: bool,
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

/// Has the client of a session move it, and returns when its place is free; in the error, why it is where it was.
pub(super) fn migrate(session: &Session, to: &str, shared: &Shared) -> Result<(), String> {
    check_address(to)?;
    let is_away = session.control.away().is_some();
    let ask = || session.migration.repeat(session);
    session.migration.ask(to, is_away, ask)?;
    // Its remains here are of no use to anyone.
    if !shared.sessions.wait_gone(session.id, KILL_LIMIT) {
        log::warn!(
            "session {}: it has moved, but its worker has not ended within {} s",
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
        to: &str,
        is_away: bool,
        send: impl FnOnce() -> Result<(), TransportError>,
    ) -> Result<(), String> {
        let mut state = lock(&self.state);
        // Before it is asked: it may answer before this thread goes on.
        let before = state.answers;
        if state.over {
            return Err("the session has ended".into());
        }
        match &state.asked {
            Some(other) if other == to => {}
            Some(other) => return Err(format!("the session is about to move to {other}")),
            None if is_away => {
                return Err("its client is cut off: try again when it is back".into());
            }
            None => {
                state.asked = Some(to.to_owned());
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
            let waited = self.changed.wait_timeout(state, left);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        match &state.outcome {
            Some(outcome) if state.answers > before => outcome.clone(),
            _ => Err("the session has ended before its client said whether it moved".into()),
        }
    }

    /// Asks the client, again after each cut of its connection.
    pub(super) fn repeat(&self, session: &Session) -> Result<(), TransportError> {
        let Some(to) = lock(&self.state).asked.clone() else {
            return Ok(());
        };
        let request = MigrateSession {
            session_id: session.id,
            to,
        };
        let message = Message::MigrateSession(request).encode();
        session.control.send(&message)
    }

    /// Takes the client's answer: the address of the server where the session is now, if it has moved. Nobody may have asked.
    pub(super) fn answered(&self, outcome: Result<(), String>) -> Result<Option<String>, ()> {
        let mut state = lock(&self.state);
        let to = state.asked.take().ok_or(())?;
        let outcome = outcome.map_err(|reason| printable(&reason, SHOWN_TEXT));
        let moved = outcome.is_ok().then_some(to);
        state.answers += 1;
        state.outcome = Some(outcome);
        drop(state);
        self.changed.notify_all();
        Ok(moved)
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

    #[test]
    fn answer_that_comes_at_once_is_heard() {
        let migration = Migration::default();
        for reason in ["it has pipes", "it has pipes still"] {
            let outcome = migration.ask("tcp://gpu2:7140", false, || {
                migration
                    .answered(Err(reason.into()))
                    .expect("it was asked");
                Ok(())
            });
            assert_eq!(outcome, Err(reason.into()));
        }
    }

    #[test]
    fn client_that_cannot_be_asked_is_asked_again() {
        let migration = Migration::default();
        let to = "tcp://gpu2:7140";
        let away = migration.ask(to, true, || unreachable!("it is cut off"));
        assert!(away.is_err_and(|reason| reason.contains("cut off")));
        let failed = migration.ask(to, false, || {
            let peer = "here".into();
            Err(TransportError::Closed { peer })
        });
        assert!(failed.is_err_and(|reason| reason.contains("cannot be asked")));
        let moved = migration.ask(to, false, || {
            assert_eq!(migration.answered(Ok(())), Ok(Some(to.into())));
            Ok(())
        });
        assert_eq!(moved, Ok(()));
    }
}
