//! What belongs to a thread of the application: its contexts, how strictly captures guard it, its own default stream.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use towline_backend::cuda::CUstream;

/// See the module's text.
pub(crate) struct Thread {
    /// Tells it from the process's other threads.
    pub(crate) number: u64,
    /// Contexts, the current one last; 0 stands for none.
    pub(crate) contexts: RefCell<Vec<u64>>,
    pub(crate) capture_mode: Cell<u32>,
    /// The call that runs was made by a name under which NULL is the thread's own stream.
    own_default: Cell<bool>,
    /// Its own default stream, by context.
    pub(crate) own_streams: RefCell<HashMap<u64, u64>>,
}

static THREADS: AtomicU64 = AtomicU64::new(1);

thread_local! {
    static THREAD: Thread = Thread {
        number: THREADS.fetch_add(1, Ordering::Relaxed),
        contexts: RefCell::default(),
        capture_mode: Cell::new(0),
        own_default: Cell::new(false),
        own_streams: RefCell::default(),
    };
}

/// The calling thread.
pub(crate) fn with<T>(use_it: impl FnOnce(&Thread) -> T) -> T {
    THREAD.with(use_it)
}

/// The current context, 0 for none.
pub(crate) fn current() -> u64 {
    with(|thread| thread.contexts.borrow().last().copied().unwrap_or(0))
}

/// Runs a call whose default stream is the thread's own.
pub(crate) fn with_own_default<R>(call: impl FnOnce() -> R) -> R {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            with(|thread| thread.own_default.set(self.0));
        }
    }
    let _restore = Restore(with(|thread| thread.own_default.replace(true)));
    call()
}

/// The stream of a call without one.
pub(crate) fn default_stream() -> CUstream {
    match with(|thread| thread.own_default.get()) {
        true => std::ptr::without_provenance_mut(2),
        false => std::ptr::null_mut(),
    }
}
