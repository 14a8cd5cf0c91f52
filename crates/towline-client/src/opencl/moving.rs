//! Moves and checkpoints that a session's server wishes, for its administrator or user.

use std::sync::Weak;
use std::time::Duration;

use towline_transport::Address;

use super::*;
use crate::access::Admission;
use crate::peer::Wish;

/// Longest time for a program's calls and commands to pause.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

impl Remote {
    /// Has the session leave its server when that wishes, for another one or for a folder: `access` is how to be let in elsewhere, `is_alone`
    /// whether the program has no other session.
    pub fn let_move(
        self: &Arc<Self>,
        is_alone: bool,
        access: impl Fn(&Address) -> Result<Access, DialError> + Send + Sync + 'static,
    ) {
        follow(Arc::downgrade(self), is_alone, Arc::new(access));
    }
}

pub(super) fn follow(session: Weak<Remote>, is_alone: bool, access: Admission) {
    let Some(control) = session
        .upgrade()
        .and_then(|session| session.control().cloned())
    else {
        return;
    };
    control.let_move(move |wish, left| {
        let Some(moved) = session.upgrade() else {
            return Err("the session has ended".into());
        };
        let to = match wish {
            #[cfg(unix)]
            Wish::Checkpoint(folder) => {
                return moved.checkpoint(&folder, is_alone, &access, left);
            }
            #[cfg(not(unix))]
            Wish::Checkpoint(_) => return Err("this system has no checkpoints".into()),
            Wish::Move(to) => to.parse::<Address>(),
        };
        let to = to.map_err(|error| error.to_string())?;
        let access_there = access(&to).map_err(|error| error.to_string())?;
        let fresh = Remote::connect_as(&to, &access_there).map_err(|error| error.to_string())?;
        let leave = || {
            follow(Weak::clone(&session), is_alone, Arc::clone(&access));
            left.leave()
        };
        let outcome = moved.rebuild_and(fresh, PATIENCE, leave);
        outcome.map_err(|error| error.to_string())
    });
}
