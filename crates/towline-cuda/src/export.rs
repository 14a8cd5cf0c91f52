//! The C ABI: one function per symbol of the driver.
//!
//! Nothing unwinds into the application, and a child after fork, whose connections and threads stayed with its parent, gets a clear
//! error instead of waiting for them.

use std::ffi::{c_char, c_void};
use std::panic::AssertUnwindSafe;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use towline_backend::cuda::*;
use towline_client::{farewell, timeline};

use crate::driver::{self, Driver};

/// What a call answers that could not run at all.
const FAILED: CUresult = CUDA_ERROR_UNKNOWN;

static FORKED: AtomicBool = AtomicBool::new(false);

/// Runs a call on the process's driver: panics and forked children end in the call's own failure.
pub(crate) fn guard(
    name: &'static str,
    mut call: impl FnMut(&'static Driver) -> CUresult,
) -> CUresult {
    run(name, &mut call)
}

/// As [`guard`]: one function for all symbols, since a copy for each is a third of a megabyte.
#[inline(never)]
fn run(name: &'static str, call: &mut dyn FnMut(&'static Driver) -> CUresult) -> CUresult {
    if crate::thread::with(|thread| thread.calls_host_function.get()) && !may_be_called(name) {
        return CUDA_ERROR_NOT_PERMITTED;
    }
    match guarded(name, || call(driver::process())) {
        Ok(status) => {
            if status != CUDA_SUCCESS && status != CUDA_ERROR_NOT_READY {
                log::debug!("{name}: {}", status_name(status).unwrap_or("?"));
            } else {
                log::trace!("{name}: {status}");
            }
            status
        }
        Err(Failure::Forked) => CUDA_ERROR_NOT_INITIALIZED,
        Err(Failure::Panicked) => FAILED,
    }
}

/// Whether a function that stands in a stream may call this: not even what asks for the thread's context or for a device's facts (seen with
/// driver 580.159).
fn may_be_called(name: &str) -> bool {
    // Tables of functions are the runtime library's own, under names that no call has.
    !name.starts_with("cu")
        || ["cuDriverGet", "cuGet", "cuInit", "cuLogs"]
            .iter()
            .any(|group| name.starts_with(group))
}

/// Whether a call goes by nothing that a fork breaks: it looks up a text.
fn is_of_no_device(name: &str) -> bool {
    matches!(name, "cuGetErrorName" | "cuGetErrorString")
}

/// Whether the process is a child of one that used the driver.
pub(crate) fn has_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// A reason why a call could not run, or not to its end. The user has been told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The process is a child of one that used the driver.
    Forked,
    /// The call failed inside.
    Panicked,
}

/// Runs an exported function of any API: it counts as a call under way, and panics end here.
pub(crate) fn guarded<T>(name: &'static str, call: impl FnOnce() -> T) -> Result<T, Failure> {
    if has_forked() {
        if is_of_no_device(name) {
            // Locks may have been held when the process forked: none is taken.
            return std::panic::catch_unwind(AssertUnwindSafe(call)).map_err(|_| Failure::Panicked);
        }
        tell_forked();
        return Err(Failure::Forked);
    }
    prepare();
    let _call = timeline::call(name);
    let _under_way = crate::moving::CALLS.enter();
    std::panic::catch_unwind(AssertUnwindSafe(call)).map_err(|_| {
        log::error!("{name} failed inside Towline; please report it");
        Failure::Panicked
    })
}

/// Zeroes what a call leaves zero where it fails, whatever is wrong.
///
/// # Safety
/// `place` is NULL or writable.
unsafe fn clear<T>(place: *mut T) {
    if !place.is_null() {
        // SAFETY: the caller's contract; what calls give out can be all zeros.
        unsafe { place.write_bytes(0, 1) };
    }
}

/// As [`guard`], for a call whose default stream is the thread's own and that has no parameter to say so.
fn guard_per_thread(name: &'static str, call: impl Fn(&'static Driver) -> CUresult) -> CUresult {
    guard(name, |driver| {
        crate::thread::with_own_default(|| call(driver))
    })
}

/// The stream that NULL means to a caller with a default stream per thread.
fn per_thread(stream: CUstream) -> CUstream {
    if stream.is_null() {
        std::ptr::without_provenance_mut(2)
    } else {
        stream
    }
}

fn prepare() {
    static PREPARED: Once = Once::new();
    PREPARED.call_once(|| {
        let filter = env_logger::Env::new().filter_or("TOWLINE_LOG", "warn");
        // This library has a logger of its own: the application's is another copy of `log`, and ours is out of its way.
        let _ = env_logger::Builder::from_env(filter)
            .format_target(false)
            .try_init();
        extern "C" fn child() {
            FORKED.store(driver::forked(), Ordering::Relaxed);
        }
        crate::timeline::start();
        // SAFETY: the handler only stores to an atomic, which is sound in a child after fork.
        unsafe { libc::pthread_atfork(None, None, Some(child)) };
    });
}

/// Behind all that the program itself has for its end, which may still call us.
#[used]
#[unsafe(link_section = ".fini_array")]
static LEAVE: extern "C" fn() = leave;

/// The process's sessions say goodbye when it ends. A child after fork has its parent's in memory.
extern "C" fn leave() {
    if !FORKED.load(Ordering::Relaxed) {
        farewell::leave(driver::sessions(), |session| session.leave());
    }
}

/// Says once why calls fail in a child after fork; locks of the logger may have been held by threads that are gone.
fn tell_forked() {
    const TEXT: &str = "towline: CUDA was used before fork, and its sessions stayed with the parent: calls in this child fail; \
         start the child with exec, or use CUDA only after fork\n";
    static TOLD: AtomicBool = AtomicBool::new(false);
    if !TOLD.swap(true, Ordering::Relaxed) {
        // SAFETY: the text is readable for its length. Whether it arrives does not matter.
        unsafe { libc::write(libc::STDERR_FILENO, TEXT.as_ptr().cast(), TEXT.len()) };
    }
}

/// Tells this library from a vendor's (`towline_backend::OWN_LIBRARY_SYMBOL`).
#[unsafe(no_mangle)]
#[allow(
    non_upper_case_globals,
    unreachable_pub,
    reason = "servers reach it by its symbol, named as symbols are"
)]
pub static towline_library: u8 = 1;

mod symbols {
    #![allow(
        unreachable_pub,
        reason = "programs reach these functions by their symbols"
    )]

    use super::*;

    include!(concat!(env!("OUT_DIR"), "/cuda_export.rs"));
}

pub(crate) use symbols::address;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_symbol_that_can_be_asked_for_has_an_address() {
        assert!(
            PROC_SYMBOLS
                .iter()
                .all(|symbol| address(symbol.name).is_some())
        );
        assert!(address("cuNobodyHasThis").is_none());
    }

    #[test]
    fn a_panic_becomes_the_failure_of_the_call() {
        let status = guard("test", |_| std::panic::resume_unwind(Box::new("inside")));
        assert_eq!(status, FAILED);
    }

    #[test]
    fn functions_in_streams_call_nothing_that_waits() {
        let call = |name| guard(name, |_| CUDA_SUCCESS);
        crate::thread::in_host_function(|| {
            assert_eq!(call("cuStreamSynchronize"), CUDA_ERROR_NOT_PERMITTED);
            assert_eq!(call("cuCtxGetCurrent"), CUDA_ERROR_NOT_PERMITTED);
            assert_eq!(call("cuDeviceGetCount"), CUDA_ERROR_NOT_PERMITTED);
            assert_eq!(call("cuDriverGetVersion"), CUDA_SUCCESS);
            assert_eq!(call("cuGetErrorName"), CUDA_SUCCESS);
        });
        assert_eq!(call("cuStreamSynchronize"), CUDA_SUCCESS);
    }

    #[test]
    fn null_is_the_threads_own_stream_where_the_symbol_says_so() {
        assert_eq!(per_thread(std::ptr::null_mut()).addr(), 2);
        assert_eq!(per_thread(std::ptr::without_provenance_mut(7)).addr(), 7);
        assert!(crate::thread::default_stream().is_null());
        let inside = guard_per_thread("test", |_| crate::thread::default_stream().addr() as i32);
        assert_eq!(inside, 2);
        assert!(crate::thread::default_stream().is_null());
    }
}
