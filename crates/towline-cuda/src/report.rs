//! What `towline run --report` prints at exit: where the time of each session went. Goes to standard error.

use std::io::Write as _;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use towline_client::cuda::Session;
use towline_client::report::{self, Figures};

struct Watched {
    since: Instant,
    sessions: Vec<Arc<Session>>,
    /// A child after fork has its parent's sessions in memory, and nothing to report of them.
    process: u32,
}

static WATCHED: OnceLock<Watched> = OnceLock::new();

/// Reports on these sessions at exit, if the environment asks for it.
pub(crate) fn watch(sessions: &[Arc<Session>]) {
    if !report::wanted() || sessions.is_empty() {
        return;
    }
    let watched = Watched {
        since: Instant::now(),
        sessions: sessions.to_vec(),
        process: std::process::id(),
    };
    if WATCHED.set(watched).is_ok() {
        // SAFETY: the function takes nothing and the library stays mapped until the process ends.
        if unsafe { libc::atexit(print) } != 0 {
            log::warn!(
                "there will be no report: the C library takes no more functions for the exit"
            );
        }
    }
}

extern "C" fn print() {
    let own = |watched: &&Watched| watched.process == std::process::id();
    let Some(watched) = WATCHED.get().filter(own) else {
        return;
    };
    let text = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let total = watched.since.elapsed();
        let sessions = watched.sessions.iter();
        sessions
            .map(|session| {
                let lost = session.lost();
                Figures::of(session.server(), session.meter(), lost).render(total)
            })
            .collect::<String>()
    }));
    // Whoever closed standard error wants no report.
    let _ = std::io::stderr().write_all(text.unwrap_or_default().as_bytes());
}
