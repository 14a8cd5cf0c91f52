//! Whose turn it is at a vendor that bears one thread at a time.
//!
//! The turn is the process's, not an object's: what such a vendor's threads trample on is the library's own state. A thread that
//! has the turn may take it again, since vendors call back from inside their calls.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use super::super::handles::Destructors;

static TURN: Mutex<()> = Mutex::new(());
/// The thread that has the turn; zero for none.
static HOLDER: AtomicUsize = AtomicUsize::new(0);
static ENDINGS: Mutex<Vec<Ending>> = Mutex::new(Vec::new());

/// The end of a vendor's object.
struct Ending {
    release: Box<dyn FnOnce() + Send>,
    /// What the application wants called after it.
    then: Destructors,
}

/// The turn, until it is dropped.
pub(super) struct Turn(Option<MutexGuard<'static, ()>>);

/// Waits for the turn: at the most for the call that somebody else is in, since nobody waits for anything during a turn.
pub(super) fn take() -> Turn {
    let here = this_thread();
    // Only this thread writes its own number, so the answer cannot change meanwhile.
    if HOLDER.load(Ordering::Relaxed) == here {
        return Turn(None);
    }
    let guard = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    HOLDER.store(here, Ordering::Relaxed);
    Turn(Some(guard))
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(guard) = self.0.take() {
            HOLDER.store(0, Ordering::Relaxed);
            drop(guard);
            settle();
        }
    }
}

/// Has an object released in a turn: in this call, or when the present turn is over. The caller does not wait.
pub(super) fn end(release: Box<dyn FnOnce() + Send>, then: Destructors) {
    endings().push(Ending { release, then });
    settle();
}

fn endings() -> MutexGuard<'static, Vec<Ending>> {
    ENDINGS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Carries out endings unless somebody has the turn, who will.
fn settle() {
    while !endings().is_empty() {
        let guard = match TURN.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        HOLDER.store(this_thread(), Ordering::Relaxed);
        let all = std::mem::take(&mut *endings());
        let then: Vec<Destructors> = all
            .into_iter()
            .map(|ending| {
                (ending.release)();
                ending.then
            })
            .collect();
        HOLDER.store(0, Ordering::Relaxed);
        drop(guard);
        // The application's functions may call anything.
        drop(then);
    }
}

/// A number that no other live thread has.
fn this_thread() -> usize {
    thread_local!(static HERE: u8 = const { 0 });
    HERE.with(|here| std::ptr::from_ref(here).addr())
}
