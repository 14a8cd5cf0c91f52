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
    /// Its own default stream and the context's number, by the context's id: numbers are used again.
    pub(crate) own_streams: RefCell<HashMap<u64, OwnStream>>,
    /// It calls a function of the application that stands in a stream, which therefore must not wait for any.
    pub(crate) calls_host_function: Cell<bool>,
}

/// A thread's own default stream in a context.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OwnStream {
    pub(crate) context: u64,
    pub(crate) stream: u64,
}

static THREADS: AtomicU64 = AtomicU64::new(1);

thread_local! {
    /// NULL until the thread calls. Nothing ends it with the thread's other locals, because the runtime library calls the driver from
    /// destructors of the process, which run after those of the first thread.
    static THREAD: Cell<*const Thread> = const { Cell::new(std::ptr::null()) };
    static END: End = const { End };
}

/// Ends what belongs to a thread when the thread ends, except the process's first.
struct End;

impl Drop for End {
    fn drop(&mut self) {
        // By number: glibc has had the function only since 2.30.
        // SAFETY: the call has no requirements.
        let own = unsafe { libc::syscall(libc::SYS_gettid) };
        let first = own == libc::c_long::from(std::process::id());
        let thread = THREAD.replace(std::ptr::null());
        if first {
            THREAD.set(thread);
        } else if !thread.is_null() {
            // SAFETY: `make` made it for this thread, which has no other reference to it here and makes a new one should it call again.
            let thread = unsafe { Box::from_raw(thread.cast_mut()) };
            let streams = thread.own_streams.into_inner();
            if !streams.is_empty() {
                let _under_way = crate::moving::CALLS.enter();
                crate::driver::process().end_own_streams(streams);
            }
        }
    }
}

fn make() -> *const Thread {
    let thread = Box::into_raw(Box::new(Thread {
        number: THREADS.fetch_add(1, Ordering::Relaxed),
        contexts: RefCell::default(),
        capture_mode: Cell::new(0),
        own_default: Cell::new(false),
        own_streams: RefCell::default(),
        calls_host_function: Cell::new(false),
    }));
    THREAD.set(thread);
    // Where the thread's locals have ended already, what is made now lives as long as the process.
    let _ = END.try_with(|_| ());
    thread
}

/// The calling thread.
pub(crate) fn with<T>(use_it: impl FnOnce(&Thread) -> T) -> T {
    let mut thread = THREAD.get();
    if thread.is_null() {
        thread = make();
    }
    // SAFETY: it lives until the thread ends, and no call is under way then.
    use_it(unsafe { &*thread })
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

/// Calls a function of the application that stands in a stream.
pub(crate) fn in_host_function(function: impl FnOnce()) {
    with(|thread| thread.calls_host_function.set(true));
    function();
    with(|thread| thread.calls_host_function.set(false));
}

/// The stream of a call without one.
pub(crate) fn default_stream() -> CUstream {
    match with(|thread| thread.own_default.get()) {
        true => std::ptr::without_provenance_mut(2),
        false => std::ptr::null_mut(),
    }
}
