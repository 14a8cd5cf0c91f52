//! Threads that wait so that the lane need not: one per wait that is under way, kept for the next.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

type Job = Box<dyn FnOnce() + Send>;

/// Most threads. Each waiting client thread occupies one; jobs beyond that queue.
const LIMIT: usize = 256;
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
    idle: usize,
    threads: usize,
}

impl Waiters {
    /// Jobs that no thread has taken up yet.
    pub(crate) fn backlog(&self) -> usize {
        let state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.jobs.len()
    }

    /// Runs `job` on a thread that does nothing else meanwhile.
    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.jobs.push_back(Box::new(job));
        if state.idle >= state.jobs.len() {
            self.0.work.notify_one();
        } else if state.threads < LIMIT {
            state.threads += 1;
            drop(state);
            let inner = Arc::clone(&self.0);
            let started = std::thread::Builder::new()
                .name("towline-wait".into())
                .spawn(move || inner.serve());
            if let Err(error) = started {
                // The job stays queued for a thread that becomes idle.
                log::error!("cannot start a thread to wait on: {error}");
                self.0
                    .state
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .threads -= 1;
            }
        }
    }
}

impl Inner {
    fn serve(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                job();
                state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.idle += 1;
            let (next, timeout) = self
                .work
                .wait_timeout(state, IDLE)
                .unwrap_or_else(PoisonError::into_inner);
            state = next;
            state.idle -= 1;
            if timeout.timed_out() && state.jobs.is_empty() {
                state.threads -= 1;
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
    fn an_idle_thread_takes_the_next_job() {
        let waiters = Waiters::default();
        let (sender, receiver) = channel();
        for round in 0..100 {
            let sender = sender.clone();
            waiters.run(move || sender.send(round).expect("the test still listens"));
            assert_eq!(receiver.recv(), Ok(round));
            // The thread tells before it is idle.
            let state = || waiters.0.state.lock().expect("no job panicked");
            while state().idle == 0 {
                std::thread::yield_now();
            }
        }
        assert_eq!(waiters.0.state.lock().expect("no job panicked").threads, 1);
    }
}
