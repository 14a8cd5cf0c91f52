//! The end of a process in order: its sessions say goodbye, so that servers need not wait for it to come back, as they wait for a client
//! whose link was cut. A process that is killed, or ends by `_exit`, says nothing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

/// The end of a process takes no longer for this.
const PATIENCE: Duration = Duration::from_millis(200);

static LEAVING: AtomicBool = AtomicBool::new(false);

/// Whether the process ends: servers cut what was said goodbye to, and no link is to come back.
pub(crate) fn is_leaving() -> bool {
    LEAVING.load(Ordering::Relaxed)
}

/// Has every session say goodbye at the end of the process. Nothing is waited for beyond a moment.
pub fn leave<T: Send + 'static>(sessions: Vec<T>, goodbye: fn(&T)) {
    if !sessions.is_empty() {
        LEAVING.store(true, Ordering::Relaxed);
        say(sessions, goodbye);
    }
}

/// In a thread of its own: others of this process may hold any lock for ever by now, and a link may be full.
fn say<T: Send + 'static>(sessions: Vec<T>, goodbye: fn(&T)) {
    let (sender, said) = channel();
    let saying = crate::threads::named("towline-leave").spawn(move || {
        sessions.iter().for_each(goodbye);
        // The other end is gone where nobody waits any more.
        let _ = sender.send(());
    });
    if saying.is_ok() {
        let _ = said.recv_timeout(PATIENCE);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Instant;

    use super::*;

    #[test]
    fn session_that_hangs_does_not_hold_up_the_end() {
        static SAID: AtomicUsize = AtomicUsize::new(0);
        let goodbye = |number: &u8| {
            SAID.fetch_add(1, Ordering::Relaxed);
            if *number == 1 {
                std::thread::sleep(Duration::from_secs(600));
            }
        };
        say(vec![0, 0], goodbye);
        assert_eq!(SAID.load(Ordering::Relaxed), 2);
        let since = Instant::now();
        say(vec![0, 1, 0], goodbye);
        assert!(since.elapsed() < Duration::from_secs(60));
    }
}
