//! Waiting for queues and events, and the end of a session.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use towline_backend::opencl as wire;
use towline_backend::opencl::*;
use towline_wire::error::ProtocolError;

use crate::session::Session;
use crate::shared::{Raw, Shared};

impl Session {
    pub(crate) fn Finish(
        &mut self,
        number: u64,
        request: wire::Finish,
    ) -> Result<(), ProtocolError> {
        let queue = match self.native(request.command_queue.0, wire::CommandQueueHandle::TAG)? {
            Ok(queue) => Raw(queue),
            Err(status) => {
                self.reply(number, status, &wire::FinishReply {});
                return Ok(());
            }
        };
        // SAFETY: the queue is live; the reference keeps it so until the wait is over.
        unsafe { self.api.clRetainCommandQueue(queue.0.cast()) };
        let shared = Arc::clone(&self.shared);
        self.wait(move || {
            let queue = queue;
            // SAFETY: the reference above is ours.
            let status = shared
                .usage
                .waiting(|| unsafe { shared.api.clFinish(queue.0.cast()) });
            // SAFETY: as above; it ends here.
            unsafe { shared.api.clReleaseCommandQueue(queue.0.cast()) };
            waited(&shared, number, status);
        });
        Ok(())
    }

    pub(crate) fn Wait(
        &mut self,
        number: u64,
        request: wire::Wait<'_>,
    ) -> Result<(), ProtocolError> {
        let events = match self.natives(
            request.events.iter().map(|event| event.0),
            wire::EventHandle::TAG,
        )? {
            Ok(events) => events,
            Err(status) => {
                self.reply(number, status, &wire::WaitReply {});
                return Ok(());
            }
        };
        let events: Vec<Raw> = events
            .into_iter()
            .map(|event: cl_event| Raw(event.cast()))
            .collect();
        for event in &events {
            // SAFETY: the event is live; the reference keeps it so until the wait is over.
            unsafe { self.api.clRetainEvent(event.0.cast()) };
        }
        let shared = Arc::clone(&self.shared);
        self.wait(move || {
            // SAFETY: the references above are ours; `Raw` is a transparent view of the pointers' bits.
            let status = shared.usage.waiting(|| unsafe {
                shared
                    .api
                    .clWaitForEvents(events.len() as cl_uint, events.as_ptr().cast())
            });
            for event in events {
                shared.release_event(event);
            }
            waited(&shared, number, status);
        });
        Ok(())
    }

    pub(crate) fn Goodbye(
        &mut self,
        _number: u64,
        _request: wire::Goodbye,
    ) -> Result<(), ProtocolError> {
        self.goodbye = true;
        Ok(())
    }

    pub(crate) fn Usage(
        &mut self,
        number: u64,
        _request: wire::Usage,
    ) -> Result<(), ProtocolError> {
        let usage = &self.shared.usage;
        let reply = wire::UsageReply {
            lane_ns: Some(usage.lane_ns.load(Ordering::Relaxed)),
            device_ns: Some(usage.device_ns.load(Ordering::Relaxed)),
        };
        self.reply(number, CL_SUCCESS, &reply);
        Ok(())
    }

    pub(crate) fn Ping(&mut self, number: u64, _request: wire::Ping) -> Result<(), ProtocolError> {
        self.reply(number, CL_SUCCESS, &wire::PingReply {});
        Ok(())
    }
}

/// Answers a wait that is over.
fn waited(shared: &Shared, number: u64, status: i32) {
    shared.settle_before_answer();
    shared.answer(number, status, &[]);
    shared.flush();
}
