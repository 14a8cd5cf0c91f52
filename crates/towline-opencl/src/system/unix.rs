//! Questions of the library to the system: Linux and macOS.

use std::ffi::c_void;
use std::ptr::NonNull;

/// Address space of zeros, of which pages take memory once they are used.
pub(crate) fn map_zeros(size: usize) -> Option<NonNull<c_void>> {
    // SAFETY: a fresh private mapping at an address of the kernel's choice.
    let base = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            size,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    NonNull::new(base).filter(|_| base != libc::MAP_FAILED)
}

/// Gives back what [`map_zeros`] gave for this size.
///
/// # Safety
///
/// Nobody uses it any more.
pub(crate) unsafe fn unmap(base: NonNull<c_void>, size: usize) {
    // SAFETY: the caller's contract.
    unsafe { libc::munmap(base.as_ptr(), size) };
}

/// Has a function called when the process ends; false if it will not be.
pub(crate) fn at_exit(function: extern "C" fn()) -> bool {
    // SAFETY: the function takes nothing and the library stays mapped until the process ends.
    unsafe { libc::atexit(function) == 0 }
}

/// Has a function called in every child after fork, which may do no more than store to atomics; false if it will not be.
pub(crate) fn in_forked_child(function: unsafe extern "C" fn()) -> bool {
    // SAFETY: what such a function may do is allowed in a child after fork.
    unsafe { libc::pthread_atfork(None, None, Some(function)) == 0 }
}

/// Writes to the standard error without any lock. The text may get lost.
pub(crate) fn write_error(text: &str) {
    // SAFETY: the text is readable for its length.
    unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
}
