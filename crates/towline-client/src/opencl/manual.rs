//! The hand-written halves of API calls, by group: C pointers in, the methods of the other modules, C pointers out.

mod context;
mod device;
mod enqueue;
mod event;
mod image;
mod kernel;
mod memory;
mod platform;
mod program;
mod queue;
mod svm;
mod transfer;

use super::event::status_of;
use super::image::Image;
use super::recipe::Origin;
use super::transfer::{Command, Host, Place, shape};
use super::*;
use crate::raw;

/// Flags that name or ask for client memory; the platform layer gives them their meaning.
const HOST_FLAGS: cl_mem_flags =
    (CL_MEM_USE_HOST_PTR | CL_MEM_COPY_HOST_PTR | CL_MEM_ALLOC_HOST_PTR) as cl_mem_flags;

/// Gives a creating call's result and status.
///
/// # Safety
/// `errcode` is NULL or writable.
unsafe fn created<T>(result: Result<*mut T, cl_int>, errcode: *mut cl_int) -> *mut T {
    let (handle, status) = match result {
        Ok(handle) => (handle, CL_SUCCESS),
        Err(status) => (std::ptr::null_mut(), status),
    };
    // SAFETY: the caller's contract.
    unsafe { tell(errcode, status) };
    handle
}

/// Three sizes at a pointer.
///
/// # Safety
/// `at` is readable for three elements.
unsafe fn triple(at: *const usize) -> Option<[usize; 3]> {
    // SAFETY: the caller's contract.
    unsafe { raw::slice(at, 3) }
        .filter(|list| list.len() == 3)
        .map(|list| [list[0], list[1], list[2]])
}

/// Events at a pointer.
///
/// # Safety
/// `list` is NULL or readable for `count` events.
unsafe fn events<'a>(list: *const cl_event, count: cl_uint) -> &'a [cl_event] {
    // SAFETY: the caller's contract.
    unsafe { raw::slice(list, count as usize) }.unwrap_or_default()
}
