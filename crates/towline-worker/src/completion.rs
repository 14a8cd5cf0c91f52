//! Completions: from the vendor's event callbacks to pushes.

use std::ffi::c_void;
use std::sync::Arc;

use towline_backend::opencl::*;
use towline_wire::push::Push;

use crate::shared::{Raw, Shared};

/// Calls `then` with the event's final status, on whatever thread the vendor calls back. `then` must not wait.
///
/// Gives the status back when the vendor refuses the callback; `then` has not run then.
pub(crate) fn when_complete(
    api: &dyn OpenClApi,
    event: cl_event,
    then: impl FnOnce(i32) + Send + 'static,
) -> Result<(), cl_int> {
    let boxed: Box<Box<dyn FnOnce(i32) + Send>> = Box::new(Box::new(then));
    let data = Box::into_raw(boxed);
    // SAFETY: the event is live; the callback takes `data` exactly once, when the event is complete.
    let status = unsafe {
        api.clSetEventCallback(event, CL_COMPLETE as cl_int, Some(completed), data.cast())
    };
    if status != CL_SUCCESS {
        // SAFETY: a refused registration never calls back, so the box is still ours.
        drop(unsafe { Box::from_raw(data) });
        return Err(status);
    }
    Ok(())
}

unsafe extern "C" fn completed(_event: cl_event, status: cl_int, data: *mut c_void) {
    // SAFETY: `data` is the box that `when_complete` registered, and the vendor calls back once.
    let then = unsafe { Box::from_raw(data.cast::<Box<dyn FnOnce(i32) + Send>>()) };
    if std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| then(status))).is_err() {
        log::error!("a completion panicked");
        std::process::abort();
    }
}

impl Shared {
    /// Tells the client when `native` is complete; `id` is its number there.
    pub(crate) fn report_event(self: &Arc<Self>, id: u64, native: cl_event) {
        let shared = Arc::clone(self);
        let told = when_complete(&*self.api, native, move |status| {
            // Nothing of this status is in the future any more.
            shared.event_done(id, status.min(CL_COMPLETE as i32));
        });
        if let Err(status) = told {
            self.event_done(id, status);
        }
    }

    /// Tells the client that an event reached its last state.
    pub(crate) fn event_done(&self, id: u64, status: i32) {
        let text = self.printing.take();
        if !text.is_empty() {
            self.post(&Push::Text { bytes: &text });
        }
        let after = self.completed_reads();
        self.push(&Push::Event {
            event: id,
            status,
            after: List::Values(&after),
            times: None,
        });
    }

    /// Drops a reference to a native event.
    pub(crate) fn release_event(&self, event: Raw) {
        // SAFETY: whoever calls this owns the reference.
        unsafe { self.api.clReleaseEvent(event.0.cast()) };
    }
}
