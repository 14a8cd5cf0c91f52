//! Moves that a session's server wishes, for its administrator.

use std::sync::Weak;
use std::time::Duration;

use towline_transport::{Address, TransportError};

use super::*;
use crate::peer::Wish;

/// Longest time for a program's calls and commands to pause.
const PATIENCE: Duration = Duration::from_secs(60);

impl Remote {
    /// Has the session move to another server when its server wishes, `access` being how to be let in there.
    pub fn let_move(
        self: &Arc<Self>,
        access: impl Fn(&Address) -> Result<Access, DialError> + Send + Sync + 'static,
    ) {
        follow(Arc::downgrade(self), Arc::new(access));
    }
}

type Admission = Arc<dyn Fn(&Address) -> Result<Access, DialError> + Send + Sync>;

fn follow(session: Weak<Remote>, access: Admission) {
    let Some(control) = session
        .upgrade()
        .and_then(|session| session.control().cloned())
    else {
        return;
    };
    control.let_move(move |wish, left| {
        let Wish::Move(to) = wish else {
            return Err("a session of OpenCL has no checkpoints yet".into());
        };
        let to: Address = to
            .parse()
            .map_err(|error: TransportError| error.to_string())?;
        let Some(moved) = session.upgrade() else {
            return Err("the session has ended".into());
        };
        let access_there = access(&to).map_err(|error| error.to_string())?;
        let fresh = Remote::connect_as(&to, &access_there).map_err(|error| error.to_string())?;
        let leave = || {
            follow(Weak::clone(&session), Arc::clone(&access));
            left.leave()
        };
        let outcome = moved.rebuild_and(fresh, PATIENCE, leave);
        outcome.map_err(|error| error.to_string())
    });
}
