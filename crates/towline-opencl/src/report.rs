//! What `towline run --report` prints at exit: where the time of each session went.
//!
//! Goes to standard error, so that a program's output stays its own. Local devices are called directly and not counted.

use std::io::Write as _;
use std::sync::mpsc::channel;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use towline_client::opencl::Remote;
use towline_client::report::{self, Figures};

use crate::{callback, system};

struct Watched {
    since: Instant,
    sessions: Vec<(Arc<Remote>, Option<Duration>)>,
}

static WATCHED: OnceLock<Watched> = OnceLock::new();

/// Reports on these sessions at exit, if the environment asks for it. Costs a round trip with each server then, to know what the
/// network alone takes.
pub(crate) fn watch(sessions: &[Arc<Remote>]) {
    if !report::wanted() || sessions.is_empty() {
        return;
    }
    let measured = |remote: &Arc<Remote>| (Arc::clone(remote), remote.round_trip());
    let watched = Watched {
        since: Instant::now(),
        sessions: sessions.iter().map(measured).collect(),
    };
    if WATCHED.set(watched).is_ok() && !system::at_exit(print) {
        log::warn!("there will be no report: no more functions are taken for the exit");
    }
}

extern "C" fn print() {
    let Some(watched) = WATCHED.get().filter(|_| !callback::forked()) else {
        return;
    };
    let text = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let total = watched.since.elapsed();
        let sessions = watched.sessions.iter();
        sessions
            .map(|(remote, round_trip)| {
                let figures = Figures {
                    round_trip: *round_trip,
                    device: device_time(remote),
                    ..Figures::of(remote.server(), remote.meter(), remote.lost())
                };
                figures.render(total)
            })
            .collect::<String>()
    }));
    // Whoever closed standard error wants no report.
    let _ = std::io::stderr().write_all(text.unwrap_or_default().as_bytes());
}

/// How long the end of a program may take for a server's answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// Asks the server for its device's share; `None` when it does not answer soon, since no program may hang on its way out.
fn device_time(remote: &Arc<Remote>) -> Option<Duration> {
    let (sender, answer) = channel();
    let asked = Arc::clone(remote);
    let asking = towline_client::threads::named("towline-report").spawn(move || {
        // Whoever gave up waiting has dropped the other end.
        let _ = sender.send(asked.usage().ok());
    });
    let (_lane, device) = asking.ok().and(answer.recv_timeout(PATIENCE).ok()?)?;
    Some(device)
}
