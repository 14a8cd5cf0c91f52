//! Waiting for queues and events, and the end of a session.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use smallvec::{SmallVec, smallvec};
use towline_backend::opencl as wire;
use towline_backend::opencl::*;
use towline_wire::error::ProtocolError;

use crate::opencl::completion::{Owed, call_back, due, list_status};
use crate::opencl::session::Session;
use crate::opencl::shared::{Raw, Shared};

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
        if self.watched(queue.0.cast()).is_none() && self.finish_by_callback(number, queue) {
            return Ok(());
        }
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

    /// Has the vendor's thread that ends the last command of a queue answer; `false` where somebody has to wait for it.
    ///
    /// So no thread wakes up only to answer, nor one to take the lane over meanwhile.
    fn finish_by_callback(&mut self, number: u64, queue: Raw) -> bool {
        if !self.debts.has_room() {
            return false;
        }
        let mut marker: cl_event = std::ptr::null_mut();
        // SAFETY: the queue is live; the marker is a local.
        let marked = unsafe {
            self.api.clEnqueueMarkerWithWaitList(
                queue.0.cast(),
                0,
                std::ptr::null(),
                &raw mut marker,
            )
        };
        if marked != CL_SUCCESS {
            return false;
        }
        // SAFETY: as above.
        unsafe { self.api.clFlush(queue.0.cast()) };
        let (shared, began) = (Arc::clone(&self.shared), Instant::now());
        let due = due(move |_| {
            shared.usage.waited(began.elapsed());
            waited(&shared, number, CL_SUCCESS);
        });
        let answered = call_back(&*self.api, marker, &due).is_ok();
        if answered {
            let events = smallvec![Raw(marker.cast())];
            self.debts.add(Owed::new(events, due));
        } else {
            self.shared.release_event(Raw(marker.cast()));
        }
        answered
    }

    /// Has whoever tells the last of these events answer; `false` where somebody has to wait for them.
    fn wait_by_callback(&mut self, number: u64, events: &[(u64, cl_event)]) -> bool {
        if !self.debts.has_room() || self.queues.values().any(|known| known.discrete) {
            return false;
        }
        let (shared, began) = (Arc::clone(&self.shared), Instant::now());
        let due = due(move |status| {
            shared.usage.waited(began.elapsed());
            // Sent by whoever tells of the event.
            shared.answer_wait(number, list_status(status < 0));
        });
        if !self.shared.when_told(events, &due) {
            return false;
        }
        let mut owed = SmallVec::new();
        for (_, event) in events {
            // SAFETY: the event is live; the reference lasts until the answer has been given.
            unsafe { self.api.clRetainEvent(*event) };
            owed.push(Raw(event.cast()));
            // Commands end once they have been submitted, which who waits for them natively sees to.
            flush_queue_of(&*self.api, *event);
        }
        self.debts.add(Owed::new(owed, due));
        true
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
        let ids = request.events.iter().map(|event| event.0);
        let asked: SmallVec<[_; 4]> = ids.zip(events.iter().copied()).collect();
        if self.wait_by_callback(number, &asked) {
            return Ok(());
        }
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
    shared.answer_wait(number, status);
    shared.flush();
}

/// Submits the commands of an event's queue, if it is a command's.
fn flush_queue_of(api: &dyn OpenClApi, event: cl_event) {
    let mut queue: cl_command_queue = std::ptr::null_mut();
    let (room, place) = (size_of_val(&queue), (&raw mut queue).cast());
    let ignored = std::ptr::null_mut();
    // SAFETY: the event is live; the place has room for the answer.
    let told = unsafe { api.clGetEventInfo(event, CL_EVENT_COMMAND_QUEUE, room, place, ignored) };
    if told == CL_SUCCESS && !queue.is_null() {
        // SAFETY: the queue lives as long as the event.
        unsafe { api.clFlush(queue) };
    }
}
