//! Threads that wait so that the lane need not: one per wait that is under way, kept for the next. The lane itself is one of their
//! jobs when its thread has something to wait for.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::Resource;

pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// Most threads. Each waiting client thread occupies one; jobs beyond that queue.
const LIMIT: usize = 256;
/// So many threads there may be however little memory the session may have.
const FEW: usize = 16;
/// Memory of a thread: its stack counts in full where the system limits what a process may write to.
const THREAD_BYTES: u64 = 2 << 20;
/// Threads take at most this part of such a limit.
const SHARE: u64 = 4;
/// How long an idle thread stays.
const IDLE: Duration = Duration::from_secs(10);

/// Starts jobs at once, each on a thread of its own.
#[derive(Clone, Default)]
pub(crate) struct Waiters(Arc<Inner>);

#[derive(Default)]
struct Inner {
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    /// Threads without a job, those included that have not come to look for one yet.
    free: usize,
    /// Free threads that are promised to seats.
    promised: usize,
}

/// A thread that is ready for a job.
pub(crate) struct Seat(Arc<Inner>);

impl Seat {
    /// Runs `job` before any other.
    pub(crate) fn run(self, job: impl FnOnce() + Send + 'static) {
        self.0.lock().jobs.push_front(Box::new(job));
        // The promise ends here, with a job in its place.
        drop(self);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.lock().promised -= 1;
        self.0.work.notify_one();
    }
}

impl Waiters {
    /// Jobs that no thread has taken up yet.
    pub(crate) fn backlog(&self) -> usize {
        self.0.lock().jobs.len()
    }

    /// Runs `job` on a thread that does nothing else meanwhile, as soon as there is one.
    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) {
        let mut state = self.0.lock();
        state.jobs.push_back(Box::new(job));
        // Without a new thread the job stays queued for one that becomes free.
        let mut state = self.grow(state);
        // None does where the system gives none: the only one there may be serves the lane.
        let own = (state.threads <= 1 && !state.enough()).then(|| state.jobs.pop_back());
        drop(state);
        match own.flatten() {
            Some(job) => job(),
            None => self.0.work.notify_one(),
        }
    }

    /// A thread for a job to come; `None` when every thread is taken.
    pub(crate) fn seat(&self) -> Option<Seat> {
        let mut state = self.0.lock();
        state.promised += 1;
        let mut state = self.grow(state);
        if state.enough() {
            return Some(Seat(Arc::clone(&self.0)));
        }
        state.promised -= 1;
        None
    }

    /// Starts a thread if more are wanted than are free, and may be.
    fn grow<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        if state.enough()
            || state.threads >= most(rustix::process::getrlimit(Resource::Data).current)
        {
            return state;
        }
        let inner = Arc::clone(&self.0);
        let started = std::thread::Builder::new()
            .name("towline-wait".into())
            .spawn(move || inner.serve());
        match started {
            Ok(_) => {
                state.threads += 1;
                state.free += 1;
            }
            Err(error) => log::error!("cannot start a thread to wait on: {error}"),
        }
        state
    }
}

/// Most threads where the process may write to so many bytes.
fn most(data: Option<u64>) -> usize {
    let threads = data.map_or(LIMIT as u64, |bytes| bytes / SHARE / THREAD_BYTES);
    (threads as usize).clamp(FEW, LIMIT)
}

impl State {
    fn enough(&self) -> bool {
        self.free >= self.jobs.len() + self.promised
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self) {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                state.free -= 1;
                drop(state);
                job();
                state = self.lock();
                state.free += 1;
                continue;
            }
            let (next, timeout) = self
                .work
                .wait_timeout(state, IDLE)
                .unwrap_or_else(PoisonError::into_inner);
            state = next;
            if timeout.timed_out() && state.free > state.jobs.len() + state.promised {
                state.threads -= 1;
                state.free -= 1;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn threads_leave_a_session_most_of_its_memory() {
        assert_eq!(most(None), LIMIT);
        assert_eq!(most(Some(256 << 20)), 32);
        assert_eq!([most(Some(1 << 20)), most(Some(1 << 40))], [FEW, LIMIT]);
    }

    #[test]
    fn jobs_that_wait_for_each_other_all_run() {
        let waiters = Waiters::default();
        let barrier = Arc::new(Barrier::new(9));
        for _ in 0..8 {
            let barrier = Arc::clone(&barrier);
            waiters.run(move || {
                barrier.wait();
            });
        }
        barrier.wait();
    }

    #[test]
    fn a_seat_is_had_until_every_thread_is_taken() {
        let waiters = Waiters::default();
        let (sender, receiver) = channel::<()>();
        let receiver = Arc::new(Mutex::new(receiver));
        for _ in 1..LIMIT {
            let receiver = Arc::clone(&receiver);
            // Ends when the sender is gone.
            waiters.run(move || {
                let _ = receiver.lock().expect("no job panicked").recv();
            });
        }
        let seat = waiters.seat().expect("one thread is left");
        assert!(waiters.seat().is_none());
        let (told, heard) = channel();
        seat.run(move || told.send(()).expect("the test listens"));
        assert_eq!(heard.recv(), Ok(()));
        drop(sender);
    }

    #[test]
    fn an_idle_thread_takes_the_next_job() {
        let waiters = Waiters::default();
        let (sender, receiver) = channel();
        for round in 0..100 {
            let sender = sender.clone();
            waiters.run(move || sender.send(round).expect("the test still listens"));
            assert_eq!(receiver.recv(), Ok(round));
            // The thread tells before it is idle.
            while waiters.0.lock().free == 0 {
                std::thread::yield_now();
            }
        }
        assert_eq!(waiters.0.lock().threads, 1);
    }
}
