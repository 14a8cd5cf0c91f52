//! Ends a session whose kernel, or graph, runs longer than its limit.
//!
//! A thread looks at the device's work eight times in the limit. Launches do nothing for it.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use towline_wire::error::CloseCode;
use towline_wire::push::Push;

use crate::lane::RunError;
use crate::link::Link;

/// How long a client may take to read that its session ends.
const LAST_WORD: Duration = Duration::from_secs(3);
/// How long the lane's thread may take to notice the end. A driver may hold it for as long as the kernel runs.
const LAST_BREATH: Duration = Duration::from_secs(5);

/// The thread; it ends when this is dropped.
pub(crate) struct Watchdog {
    _running: Sender<()>,
}

impl Watchdog {
    /// Has `overruns` called until it says that something runs for longer than `limit`. The client then hears `status`.
    pub(crate) fn start(
        link: &Arc<Link>,
        limit: Duration,
        status: i32,
        mut overruns: impl FnMut() -> bool + Send + 'static,
    ) -> std::io::Result<Self> {
        let (running, ended) = channel();
        let link = Arc::clone(link);
        let watch = move || {
            loop {
                match ended.recv_timeout(limit / 8) {
                    Err(RecvTimeoutError::Timeout) if overruns() => break,
                    Err(RecvTimeoutError::Timeout) => {}
                    _ => return,
                }
            }
            link.overrun(limit);
            tell(&link, limit, status);
            link.end();
            if ended.recv_timeout(LAST_BREATH) == Err(RecvTimeoutError::Timeout) {
                log::error!("the driver does not let go of a kernel that runs for too long");
                std::process::abort();
            }
        };
        std::thread::Builder::new()
            .name("towline-watch".into())
            .spawn(watch)?;
        Ok(Self { _running: running })
    }
}

/// Tells the client, unless it does not read.
fn tell(link: &Arc<Link>, limit: Duration, status: i32) {
    let (said, heard) = channel();
    let telling = Arc::clone(link);
    link.waiters.run(move || {
        telling.post(&Push::Failed {
            number: 0,
            call: 0,
            queue: 0,
            status,
        });
        // The supervisor says so as well, but not before this process is gone.
        telling.push(&Push::Close {
            code: CloseCode::ServerLimit as u16,
            text: RunError::Overrun(limit).to_string().as_bytes(),
        });
        let _ = said.send(());
    });
    let _ = heard.recv_timeout(LAST_WORD);
}
