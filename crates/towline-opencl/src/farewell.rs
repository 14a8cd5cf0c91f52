//! The sessions of this process say goodbye when it ends.

use std::sync::{Arc, OnceLock};

use towline_client::farewell;
use towline_client::opencl::Remote;

use crate::callback;

static SESSIONS: OnceLock<Vec<Arc<Remote>>> = OnceLock::new();

/// Has these sessions say goodbye at the end.
pub(crate) fn keep(sessions: &[Arc<Remote>]) {
    let kept = SESSIONS.set(sessions.to_vec()).is_ok();
    if cfg!(not(target_os = "linux")) && kept && !crate::system::at_exit(leave) {
        log::debug!("servers wait for this process to come back once it has ended");
    }
}

/// Behind all that the program itself has for its end, which may still call us.
#[cfg(target_os = "linux")]
#[used]
#[unsafe(link_section = ".fini_array")]
static LEAVE: extern "C" fn() = leave;

extern "C" fn leave() {
    // A child after fork has its parent's sessions in memory.
    if let Some(sessions) = SESSIONS.get().filter(|_| !callback::forked()) {
        farewell::leave(sessions.clone(), |session| session.leave());
    }
}
