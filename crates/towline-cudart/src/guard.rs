//! The way in: nothing unwinds into the application, errors are remembered per thread, and calls whose default stream is the thread's
//! own say so to what they call.

use std::cell::Cell;
use std::panic::AssertUnwindSafe;
use std::sync::{Once, OnceLock};

use crate::runtime::Runtime;
use crate::types::*;

thread_local! {
    static LAST: Cell<cudaError_t> = const { Cell::new(cudaSuccess) };
    static OWN_DEFAULT: Cell<bool> = const { Cell::new(false) };
}

/// The process's runtime: one per library, of the major version that the library is.
fn runtime(major: u32) -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| Runtime::new(major))
}

fn prepare() {
    static PREPARED: Once = Once::new();
    PREPARED.call_once(|| {
        let filter = env_logger::Env::new().filter_or("TOWLINE_LOG", "warn");
        // This library has a logger of its own: the application's is another copy of `log`, and ours is out of its way.
        let _ = env_logger::Builder::from_env(filter)
            .format_target(false)
            .try_init();
    });
}

/// Puts the thread's default stream back, also when a call unwinds.
struct OwnDefault(bool);

impl OwnDefault {
    fn set(own: bool) -> Self {
        Self(OWN_DEFAULT.replace(own))
    }
}

impl Drop for OwnDefault {
    fn drop(&mut self) {
        OWN_DEFAULT.set(self.0);
    }
}

/// Whether the running call's default stream is the thread's own.
pub(crate) fn own_default() -> bool {
    OWN_DEFAULT.get()
}

/// The stream that NULL means to a caller with a default stream per thread.
pub fn per_thread(stream: cudaStream_t) -> cudaStream_t {
    if stream.is_null() {
        std::ptr::without_provenance_mut(2)
    } else {
        stream
    }
}

/// The thread's last error, which stays.
pub(crate) fn last() -> cudaError_t {
    LAST.get()
}

/// The thread's last error, which is forgotten.
pub(crate) fn take_last() -> cudaError_t {
    LAST.replace(cudaSuccess)
}

/// Runs a call and remembers its error. It runs twice where the first time finds the context of a device ended.
pub fn guard(
    major: u32,
    name: &'static str,
    own: bool,
    call: impl Fn(&'static Runtime) -> cudaError_t,
) -> cudaError_t {
    let mut status = guard_unrecorded(major, name, own, &call);
    // A device whose context has ended is started anew by the next call that needs one, which this one is.
    if status == cudaErrorContextIsDestroyed && runtime(major).forget_ended() {
        status = guard_unrecorded(major, name, own, &call);
    }
    match status {
        cudaSuccess => log::trace!("{name}"),
        // It says that work goes on, which is no error.
        cudaErrorNotReady => log::trace!("{name}: not ready"),
        error => {
            LAST.set(error);
            log::debug!("{name}: {}", crate::manual::error::name(error));
        }
    }
    status
}

/// Runs a call whose result is no error of its own.
pub fn guard_unrecorded(
    major: u32,
    name: &'static str,
    own: bool,
    call: impl FnOnce(&'static Runtime) -> cudaError_t,
) -> cudaError_t {
    caught(major, name, own, call).unwrap_or(cudaErrorUnknown)
}

/// Runs a call that returns something else than an error.
pub fn guard_plain<T: Plain>(
    major: u32,
    name: &'static str,
    own: bool,
    call: impl FnOnce(&'static Runtime) -> T,
) -> T {
    caught(major, name, own, call).unwrap_or(T::FAILED)
}

fn caught<T>(
    major: u32,
    name: &'static str,
    own: bool,
    call: impl FnOnce(&'static Runtime) -> T,
) -> Option<T> {
    prepare();
    let _own = OwnDefault::set(own);
    let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| call(runtime(major))));
    if outcome.is_err() {
        log::error!("{name} failed inside Towline; please report it");
    }
    outcome.ok()
}

/// What is returned in the place of a result.
pub trait Plain {
    /// The value that says that nothing came of the call.
    const FAILED: Self;
}

impl Plain for () {
    const FAILED: Self = ();
}

impl Plain for c_char {
    const FAILED: Self = 0;
}

impl Plain for u32 {
    const FAILED: Self = cudaErrorUnknown as u32;
}

impl<T> Plain for *const T {
    const FAILED: Self = std::ptr::null();
}

impl<T> Plain for *mut T {
    const FAILED: Self = std::ptr::null_mut();
}

impl Plain for cudaChannelFormatDesc {
    const FAILED: Self = Self {
        x: 0,
        y: 0,
        z: 0,
        w: 0,
        f: cudaChannelFormatKindNone,
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_remembered_until_they_are_asked_for() {
        let failed = guard(13, "test", false, |_| cudaErrorInvalidValue);
        assert_eq!(failed, cudaErrorInvalidValue);
        guard(13, "test", false, |_| cudaSuccess);
        assert_eq!(last(), cudaErrorInvalidValue);
        assert_eq!(take_last(), cudaErrorInvalidValue);
        assert_eq!(last(), cudaSuccess);
    }

    #[test]
    fn work_that_goes_on_is_no_error() {
        let waiting = || guard(13, "test", false, |_| cudaErrorNotReady);
        assert_eq!((waiting(), last()), (cudaErrorNotReady, cudaSuccess));
        guard(13, "test", false, |_| cudaErrorInvalidValue);
        assert_eq!(
            (waiting(), take_last()),
            (cudaErrorNotReady, cudaErrorInvalidValue)
        );
    }

    #[test]
    fn errors_belong_to_the_thread() {
        guard(13, "test", false, |_| cudaErrorInvalidValue);
        let other = std::thread::spawn(last).join().unwrap();
        assert_eq!((take_last(), other), (cudaErrorInvalidValue, cudaSuccess));
    }

    #[test]
    fn what_is_unrecorded_is_not_remembered() {
        guard_unrecorded(13, "test", false, |_| cudaErrorInvalidValue);
        assert_eq!(last(), cudaSuccess);
    }

    #[test]
    fn a_panic_becomes_the_failure_of_the_call() {
        let status = guard(13, "test", false, |_| {
            std::panic::resume_unwind(Box::new("inside"))
        });
        assert_eq!((status, take_last()), (cudaErrorUnknown, cudaErrorUnknown));
        let none: *const c_char = guard_plain(13, "test", false, |_| {
            std::panic::resume_unwind(Box::new("inside"))
        });
        assert!(none.is_null());
    }

    #[test]
    fn null_is_the_threads_own_stream_where_the_symbol_says_so() {
        assert_eq!(per_thread(std::ptr::null_mut()).addr(), 2);
        assert_eq!(per_thread(std::ptr::without_provenance_mut(7)).addr(), 7);
        let inside = guard_unrecorded(13, "test", true, |_| i32::from(own_default()));
        assert_eq!((inside, own_default()), (1, false));
    }
}
