//! Threads of the library's own: one calls functions of the application, one moves data between providers.
//!
//! Providers report on threads of theirs, which must neither run an application's code nor wait; they hand over here. Both threads
//! start when first needed and last as long as the process.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::system;

type Job = Box<dyn FnOnce() + Send>;

/// A thread that does jobs in order.
pub(crate) struct Worker {
    name: &'static str,
    jobs: OnceLock<Option<Mutex<Sender<Job>>>>,
}

/// Calls the application's functions.
pub(crate) static CALLBACKS: Worker = Worker::new("towline-callback");
/// Moves data between providers.
pub(crate) static MOVES: Worker = Worker::new("towline-moves");

/// Set in a child after fork: the threads, and the providers' own, are gone.
static FORKED: AtomicBool = AtomicBool::new(false);

/// Whether this process is a child of one that used the library.
pub(crate) fn forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// Says once why calls fail in a child after fork; locks of the logger may have been held by threads that are gone.
pub(crate) fn tell_forked() {
    const TEXT: &str = "towline: OpenCL was used before fork, and its sessions stayed with the parent: calls in this child fail; \
         start the child with exec, or use OpenCL only after fork\n";
    static TOLD: AtomicBool = AtomicBool::new(false);
    if !TOLD.swap(true, Ordering::Relaxed) {
        system::write_error(TEXT);
    }
}

/// Arranges that a child after fork knows that it is one; once per process.
pub(crate) fn watch_fork() {
    extern "C" fn child() {
        FORKED.store(true, Ordering::Relaxed);
    }
    if !system::in_forked_child(child) {
        log::warn!("cannot watch for fork: a child that calls OpenCL may hang instead of failing");
    }
}

impl Worker {
    pub(crate) const fn new(name: &'static str) -> Self {
        Self {
            name,
            jobs: OnceLock::new(),
        }
    }

    /// Has the thread do the job after those before it.
    pub(crate) fn run(&'static self, job: impl FnOnce() + Send + 'static) {
        let jobs = self.jobs.get_or_init(|| {
            let (sender, receiver) = channel::<Job>();
            let started = towline_client::threads::named(self.name).spawn(move || {
                for job in receiver {
                    if std::panic::catch_unwind(AssertUnwindSafe(job)).is_err() {
                        log::error!("a callback panicked");
                    }
                }
            });
            match started {
                Ok(_) => Some(Mutex::new(sender)),
                Err(error) => {
                    log::error!("cannot start the thread {}: {error}", self.name);
                    None
                }
            }
        });
        let job: Job = Box::new(job);
        match jobs {
            Some(jobs) => {
                let sent = jobs
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .send(job);
                if sent.is_err() {
                    log::error!("the thread {} ended early", self.name);
                }
            }
            // Without a thread the job still has to happen: others wait for it.
            None => job(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_run_in_order_and_a_panic_stops_none_of_them() {
        let (sender, receiver) = channel();
        let second = sender.clone();
        CALLBACKS.run(move || sender.send(1).expect("the test listens"));
        CALLBACKS.run(|| std::panic::resume_unwind(Box::new("a bad callback")));
        CALLBACKS.run(move || second.send(2).expect("the test listens"));
        assert_eq!(receiver.iter().collect::<Vec<_>>(), [1, 2]);
    }
}
