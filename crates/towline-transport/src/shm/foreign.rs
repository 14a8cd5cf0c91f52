//! Descriptors that a peer sent and nobody has a use for. Closing one may take as long as the peer likes: a socket lingers, and a file's own
//! system answers. So none is closed by a thread that others wait for, nor left for the system to close in the middle of a read.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::fs::fcntl_get_seals;

/// The most descriptors that the system lets one message bring.
pub(super) const MOST_AT_ONCE: usize = 253;
/// Threads that close descriptors at a time.
const MOST_THREADS: usize = 64;

/// Whether it is memory: closing that takes no time.
pub fn is_memory(file: &OwnedFd) -> bool {
    fcntl_get_seals(file).is_ok()
}

/// Closes a descriptor, on a thread of its own where that may take time.
pub fn put_away(file: OwnedFd) {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    if is_memory(&file) {
        return;
    }
    // Fails for what is no socket, and does not linger.
    let _ = rustix::net::sockopt::set_socket_linger(&file, None);
    if THREADS.fetch_add(1, Ordering::Relaxed) >= MOST_THREADS {
        THREADS.fetch_sub(1, Ordering::Relaxed);
        return;
    }
    let close = move || {
        drop(file);
        THREADS.fetch_sub(1, Ordering::Relaxed);
    };
    let thread = std::thread::Builder::new().name("towline-close".into());
    if thread.spawn(close).is_err() {
        THREADS.fetch_sub(1, Ordering::Relaxed);
    }
}
