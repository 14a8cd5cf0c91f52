//! The C ABI: one function per API call, the loader's dispatch table, and the three symbols that a loader looks for.
//!
//! Nothing unwinds into the application, and a child after fork, whose connections and threads stayed with its parent, gets a clear
//! error instead of waiting for them.

use std::ffi::{CStr, c_char, c_void};
use std::panic::AssertUnwindSafe;

use towline_backend::opencl::*;
use towline_client::timeline;

use crate::callback;
use crate::platform::Platform;

/// What a call answers that could not run at all.
const OUT_OF_HOST_MEMORY: cl_int = CL_OUT_OF_HOST_MEMORY;

/// A dispatch table: addresses of functions.
#[repr(transparent)]
pub(crate) struct Dispatch<const LEN: usize>([*const c_void; LEN]);

// SAFETY: the table is immutable and its addresses are those of functions.
unsafe impl<const LEN: usize> Sync for Dispatch<LEN> {}

/// The word that every object begins with.
pub(crate) fn dispatch_table() -> *mut c_void {
    DISPATCH.0.as_ptr().cast_mut().cast()
}

/// Runs a call on the process's platform: panics and forked children end in the call's own failure.
fn guard<R>(
    name: &'static str,
    failure: R,
    errcode: *mut cl_int,
    call: impl FnOnce(&'static Platform) -> R,
) -> R {
    let _call = timeline::call(name);
    if !callback::forked() {
        match std::panic::catch_unwind(AssertUnwindSafe(|| call(crate::platform::process()))) {
            Ok(result) => return result,
            Err(_) => log::error!("{name} failed inside Towline; please report it"),
        }
    } else {
        callback::tell_forked();
    }
    if !errcode.is_null() {
        // SAFETY: the caller's contract: the status is writable when it is not NULL.
        unsafe { errcode.write(OUT_OF_HOST_MEMORY) };
    }
    failure
}

/// What stands in the table where a function of the loader's time is not declared here.
#[allow(dead_code, reason = "unused while every entry is declared")]
extern "C" fn not_supported() -> cl_int {
    CL_INVALID_OPERATION
}

include!(concat!(env!("OUT_DIR"), "/opencl_stub.rs"));

/// Functions by name, for loaders and applications.
pub(crate) fn lookup(name: Option<&CStr>) -> *mut c_void {
    name.and_then(|name| name.to_str().ok())
        .and_then(address)
        .unwrap_or(std::ptr::null())
        .cast_mut()
}

/// The symbols of the shared library; everything else is found through them.
mod exported {
    use super::*;

    /// Finds a function by name.
    ///
    /// # Safety
    /// The contract of the C function.
    #[unsafe(no_mangle)]
    pub(super) unsafe extern "C" fn clGetExtensionFunctionAddress(
        func_name: *const c_char,
    ) -> *mut c_void {
        // SAFETY: the caller's contract, passed on.
        unsafe { super::clGetExtensionFunctionAddress(func_name) }
    }

    /// Lists the platforms of this library.
    ///
    /// # Safety
    /// The contract of the C function.
    #[unsafe(no_mangle)]
    pub(super) unsafe extern "C" fn clIcdGetPlatformIDsKHR(
        num_entries: cl_uint,
        platforms: *mut cl_platform_id,
        num_platforms: *mut cl_uint,
    ) -> cl_int {
        // SAFETY: the caller's contract, passed on.
        unsafe { super::clIcdGetPlatformIDsKHR(num_entries, platforms, num_platforms) }
    }

    /// Describes a platform.
    ///
    /// # Safety
    /// The contract of the C function.
    #[unsafe(no_mangle)]
    pub(super) unsafe extern "C" fn clGetPlatformInfo(
        platform: cl_platform_id,
        param_name: cl_platform_info,
        param_value_size: usize,
        param_value: *mut c_void,
        param_value_size_ret: *mut usize,
    ) -> cl_int {
        // SAFETY: the caller's contract, passed on.
        unsafe {
            super::clGetPlatformInfo(
                platform,
                param_name,
                param_value_size,
                param_value,
                param_value_size_ret,
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_entry_of_the_dispatch_table_is_null() {
        assert!(DISPATCH.0.iter().all(|entry| !entry.is_null()));
    }

    #[test]
    fn loaders_find_what_they_ask_for_by_name() {
        assert!(!lookup(Some(c"clIcdGetPlatformIDsKHR")).is_null());
        assert!(!lookup(Some(c"clGetPlatformInfo")).is_null());
        assert!(!lookup(Some(c"clCreateProgramWithILKHR")).is_null());
        assert!(lookup(Some(c"clNoSuchFunction")).is_null());
        assert!(lookup(None).is_null());
    }

    #[cfg(unix)]
    #[test]
    fn a_child_after_fork_gets_an_error_at_once() {
        let mut count = 0;
        // SAFETY: only the count is written.
        let before = unsafe { clGetPlatformIDs(0, std::ptr::null_mut(), &raw mut count) };
        // SAFETY: the child makes one call that takes no lock, and leaves without running anything else.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: only the count is written.
            let status = unsafe { clGetPlatformIDs(0, std::ptr::null_mut(), &raw mut count) };
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(status != CL_OUT_OF_HOST_MEMORY)) };
        }
        let mut ended = 0;
        // SAFETY: the child is ours, and the status a local.
        let waited = unsafe { libc::waitpid(child, &raw mut ended, 0) };
        assert_eq!((before, count), (CL_SUCCESS, 1));
        assert_eq!((waited, ended), (child, 0));
    }

    #[test]
    fn a_panic_becomes_the_failure_of_the_call() {
        let mut status = 0;
        let result = guard("test", -1, &raw mut status, |_| {
            std::panic::resume_unwind(Box::new("inside"))
        });
        assert_eq!((result, status), (-1, CL_OUT_OF_HOST_MEMORY));
    }
}
