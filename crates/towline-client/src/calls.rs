//! Calls of an application, and the moments between them: a session moves while none is under way.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{
    Condvar, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError,
};
use std::time::{Duration, Instant};

/// Time for calls under way to end while new ones wait, at first; it doubles. A call may wait for another one that is not let in.
const FIRST_STOP: Duration = Duration::from_millis(50);
/// Time for calls in between.
const BREAK: Duration = Duration::from_millis(5);

thread_local! {
    /// Calls of this thread that are under way, one in the other.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Holds an application's calls back while a session moves.
#[derive(Debug, Default)]
pub struct Calls {
    /// Held for reading by every call, for writing while the session moves.
    under_way: RwLock<()>,
    closed: AtomicBool,
    lock: Mutex<()>,
    opened: Condvar,
}

/// A call that is under way.
#[derive(Debug)]
pub struct Call<'a> {
    _guard: RwLockReadGuard<'a, ()>,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

impl Calls {
    /// None is under way.
    pub const fn new() -> Self {
        Self {
            under_way: RwLock::new(()),
            closed: AtomicBool::new(false),
            lock: Mutex::new(()),
            opened: Condvar::new(),
        }
    }

    /// Begins a call. One inside another is let in: the lock is only ever tried for writing.
    #[inline]
    pub fn enter(&self) -> Call<'_> {
        if self.closed.load(Ordering::Relaxed) && DEPTH.get() == 0 {
            self.wait();
        }
        let _guard = self
            .under_way
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        DEPTH.set(DEPTH.get() + 1);
        Call { _guard }
    }

    #[cold]
    fn wait(&self) {
        let lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        let closed = |_: &mut ()| self.closed.load(Ordering::Relaxed);
        drop(self.opened.wait_while(lock, closed));
    }

    fn close(&self, closed: bool) {
        let lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.closed.store(closed, Ordering::Relaxed);
        drop(lock);
        self.opened.notify_all();
    }

    /// Waits for a moment without calls, and holds calls back until the result is dropped; `None` if `patience` does not see one.
    pub fn stop(&self, patience: Duration) -> Option<RwLockWriteGuard<'_, ()>> {
        let deadline = Instant::now() + patience;
        let mut stop = FIRST_STOP;
        loop {
            self.close(true);
            let alone = self.alone_until(deadline.min(Instant::now() + stop));
            // The holder of the lock holds back all that are let in.
            self.close(false);
            if alone.is_some() || Instant::now() >= deadline {
                return alone;
            }
            std::thread::sleep(BREAK);
            stop *= 2;
        }
    }

    fn alone_until(&self, deadline: Instant) -> Option<RwLockWriteGuard<'_, ()>> {
        loop {
            match self.under_way.try_write() {
                Ok(alone) => return Some(alone),
                Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) if Instant::now() >= deadline => return None,
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_micros(100)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    #[test]
    fn busy_callers_are_stopped() {
        let (calls, over, count) = (Calls::default(), AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        let _call = calls.enter();
                        let _inner = calls.enter();
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            while count.load(Ordering::Relaxed) < 100 {
                std::thread::yield_now();
            }
            let alone = calls.stop(Duration::from_secs(60)).expect("a moment");
            let before = count.load(Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(20));
            assert_eq!(count.load(Ordering::Relaxed), before);
            drop(alone);
            while count.load(Ordering::Relaxed) == before {
                std::thread::yield_now();
            }
            over.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn call_that_does_not_end_is_given_up() {
        let calls = Calls::default();
        std::thread::scope(|scope| {
            let _call = calls.enter();
            let stopped = scope.spawn(|| calls.stop(Duration::from_millis(120)).is_some());
            assert!(!stopped.join().expect("no panic"));
        });
        drop(calls.enter());
    }

    #[test]
    fn call_that_waits_for_a_later_one_ends() {
        let (calls, set) = (Calls::default(), AtomicBool::new(false));
        let entered = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _call = calls.enter();
                entered.store(true, Ordering::Relaxed);
                while !set.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                }
            });
            while !entered.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(10));
                let _call = calls.enter();
                set.store(true, Ordering::Relaxed);
            });
            assert!(calls.stop(Duration::from_secs(60)).is_some());
        });
    }
}
