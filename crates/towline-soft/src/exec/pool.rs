//! Threads of the host that launches share. They stay, since to start one takes longer than many a launch.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Most of them: a launch with more to do has what there are.
const MOST: usize = 256;

/// Something that several threads are to do at once, each all of it.
struct Job {
    work: Box<dyn Fn() + Send + Sync>,
    hands: Mutex<Hands>,
    left: Condvar,
}

/// Who takes part in a job.
#[derive(Default)]
struct Hands {
    wanted: usize,
    at_work: usize,
}

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<Arc<Job>>,
    threads: usize,
    idle: usize,
}

/// See the module's text.
#[derive(Default)]
struct Pool {
    waiting: Mutex<Waiting>,
    wake: Condvar,
}

static POOL: Pool = Pool {
    waiting: Mutex::new(Waiting {
        jobs: VecDeque::new(),
        threads: 0,
        idle: 0,
    }),
    wake: Condvar::new(),
};

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Leaves a job, however it ends.
struct Leave<'j>(&'j Job);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        lock(&self.0.hands).at_work -= 1;
        self.0.left.notify_all();
    }
}

/// Does something on this thread, and meanwhile on up to so many more. When it has come to its end here, nobody else begins with it, and
/// this returns once all have left it.
pub(super) fn share(more: usize, work: impl Fn() + Send + Sync + 'static) {
    if more == 0 {
        return work();
    }
    let job = Arc::new(Job {
        work: Box::new(work),
        hands: Mutex::new(Hands {
            wanted: more,
            at_work: 1,
        }),
        left: Condvar::new(),
    });
    POOL.offer(&job, more);
    {
        let _leave = Leave(&job);
        (job.work)();
    }
    let mut hands = lock(&job.hands);
    hands.wanted = 0;
    while hands.at_work > 0 {
        hands = job.left.wait(hands).unwrap_or_else(PoisonError::into_inner);
    }
    drop(hands);
    lock(&POOL.waiting)
        .jobs
        .retain(|other| !Arc::ptr_eq(other, &job));
}

impl Pool {
    /// Has idle threads take part, and new ones as far as there are too few.
    fn offer(&'static self, job: &Arc<Job>, more: usize) {
        let mut waiting = lock(&self.waiting);
        waiting.jobs.push_back(Arc::clone(job));
        let fresh = more
            .saturating_sub(waiting.idle)
            .min(MOST - waiting.threads.min(MOST));
        for _ in 0..fresh {
            let thread = std::thread::Builder::new().name("towline-blocks".into());
            if thread.spawn(move || self.serve()).is_err() {
                // Fewer take longer.
                break;
            }
            waiting.threads += 1;
        }
        drop(waiting);
        self.wake.notify_all();
    }

    /// What a thread does for ever.
    fn serve(&self) {
        let mut waiting = lock(&self.waiting);
        loop {
            match waiting.jobs.front().cloned() {
                None => {
                    waiting.idle += 1;
                    let woken = self.wake.wait(waiting);
                    waiting = woken.unwrap_or_else(PoisonError::into_inner);
                    waiting.idle -= 1;
                }
                Some(job) => {
                    let mut hands = lock(&job.hands);
                    let joins = hands.wanted > 0;
                    if joins {
                        hands.wanted -= 1;
                        hands.at_work += 1;
                    }
                    if hands.wanted == 0 {
                        waiting.jobs.pop_front();
                    }
                    drop(hands);
                    if joins {
                        drop(waiting);
                        {
                            let _leave = Leave(&job);
                            (job.work)();
                        }
                        waiting = lock(&self.waiting);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn all_that_take_part_have_left_when_it_is_over() {
        for more in 0..4 {
            let (begun, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            let counters = (Arc::clone(&begun), Arc::clone(&ended));
            share(more, move || {
                counters.0.fetch_add(1, Ordering::SeqCst);
                std::thread::yield_now();
                counters.1.fetch_add(1, Ordering::SeqCst);
            });
            let begun = begun.load(Ordering::SeqCst);
            assert_eq!(begun, ended.load(Ordering::SeqCst));
            assert!((1..=more + 1).contains(&begun), "{begun} of {more}");
        }
    }

    #[test]
    fn several_take_part_at_once() {
        // Nobody gets past before three are there.
        let there = Arc::new(std::sync::Barrier::new(3));
        share(2, move || {
            there.wait();
        });
    }
}
