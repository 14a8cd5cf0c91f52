//! Questions of the library to the system: Windows.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::c_void;
use std::ptr::NonNull;

const PAGE: usize = 4096;

/// Memory of zeros, of which pages are used once they are touched: that is how the system's heap serves large sizes.
pub(crate) fn map_zeros(size: usize) -> Option<NonNull<c_void>> {
    let layout = layout(size)?;
    // SAFETY: the layout's size is not zero.
    let base = unsafe { alloc_zeroed(layout) };
    NonNull::new(base.cast())
}

/// Gives back what [`map_zeros`] gave for this size.
///
/// # Safety
///
/// Nobody uses it any more.
pub(crate) unsafe fn unmap(base: NonNull<c_void>, size: usize) {
    if let Some(layout) = layout(size) {
        // SAFETY: the caller's contract.
        unsafe { dealloc(base.as_ptr().cast(), layout) };
    }
}

fn layout(size: usize) -> Option<Layout> {
    Layout::from_size_align(size.max(1), PAGE).ok()
}

/// Never: when a library learns of the end, the threads that its functions would wait for are gone.
pub(crate) fn at_exit(_function: extern "C" fn()) -> bool {
    false
}

/// There is no fork.
pub(crate) fn in_forked_child(_function: unsafe extern "C" fn()) -> bool {
    true
}

/// Writes to the standard error. The text may get lost.
pub(crate) fn write_error(text: &str) {
    eprint!("{text}");
}
