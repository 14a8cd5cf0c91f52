//! Messages of a device in software for the program, passed on as notices before whatever they explain.

use std::ffi::{c_char, c_void};
use std::sync::{Arc, Weak};

use towline_backend::cuda::*;
use towline_wire::push::Push;

use super::shared::Shared;

/// Has the driver's messages sent to the client. A driver that has none refuses, and nothing is lost.
pub(super) fn forward(shared: &Arc<Shared>) {
    let data = Box::into_raw(Box::new(Arc::downgrade(shared)));
    let mut registered: CUlogsCallbackHandle = std::ptr::null_mut();
    let api = &shared.api;
    // SAFETY: the data is what the function takes; one place for the handle.
    let status =
        unsafe { api.cuLogsRegisterCallback(Some(told), data.cast(), &raw mut registered) };
    if status != CUDA_SUCCESS {
        // SAFETY: the box was made above, and nobody else has it.
        drop(unsafe { Box::from_raw(data) });
    }
}

unsafe extern "C" fn told(
    data: *mut c_void,
    _level: CUlogLevel,
    message: *mut c_char,
    length: usize,
) {
    // SAFETY: `data` is the session that was registered and is never freed.
    let session = unsafe { &*data.cast::<Weak<Shared>>() };
    let Some(shared) = session.upgrade() else {
        return;
    };
    // SAFETY: the driver gives a text of this length.
    let text = unsafe { std::slice::from_raw_parts(message.cast::<u8>(), length) };
    shared.push(&Push::Notice { context: 0, text });
}
