//! User events that hold a command back until this side is ready.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use towline_backend::opencl as wire;
use towline_backend::opencl::*;

use crate::opencl::session::Queue;
use crate::opencl::shared::{Raw, Shared};

/// A user event that one transfer waits for.
pub(super) struct Gate {
    shared: Arc<Shared>,
    event: Raw,
    open: AtomicBool,
}

impl Gate {
    pub(super) fn new(shared: &Arc<Shared>, context: Raw) -> Self {
        let mut status = CL_SUCCESS;
        // SAFETY: the context is live: its queue is.
        let event = unsafe {
            shared
                .api
                .clCreateUserEvent(context.0.cast(), &raw mut status)
        };
        if event.is_null() {
            log::error!(
                "cannot create a user event: {}",
                wire::status_name(status).unwrap_or("?")
            );
            shared.end();
        }
        Self {
            shared: Arc::clone(shared),
            event: Raw(event.cast()),
            open: AtomicBool::new(false),
        }
    }

    /// Whether nothing has to wait for it any more.
    pub(super) fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    /// What the transfer waits for.
    pub(super) fn event(&self) -> cl_event {
        self.event.0.cast()
    }

    /// Lets the transfer go on, or fail.
    pub(super) fn finish(&self, whole: bool) {
        self.set(if whole {
            CL_COMPLETE
        } else {
            CL_OUT_OF_RESOURCES
        });
    }

    /// Lets the transfer go on, or fail with a status of its own.
    pub(super) fn set(&self, status: i32) {
        // SAFETY: the event is live until this gate is dropped; only this call sets its status.
        unsafe {
            self.shared
                .api
                .clSetUserEventStatus(self.event.0.cast(), status)
        };
        self.open.store(status == CL_COMPLETE, Ordering::Release);
    }
}

impl Shared {
    /// Holds later commands of a queue back until the session has its turn; false where the vendor cannot.
    pub(crate) fn hold_queue(self: &Arc<Self>, queue: &Queue) -> bool {
        let gate = Gate::new(self, queue.context);
        let (native, event) = (queue.native.0.cast(), gate.event());
        let none = std::ptr::null_mut();
        // SAFETY: the queue is live, and so is the event.
        let status = unsafe {
            self.api
                .clEnqueueBarrierWithWaitList(native, 1, &raw const event, none)
        };
        let holds = status == CL_SUCCESS;
        if holds {
            let turns = &self.counters.turns;
            turns.hold(queue.place, move || gate.finish(true));
        }
        holds
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        if !self.event.0.is_null() {
            self.shared.release_event(self.event);
        }
    }
}
