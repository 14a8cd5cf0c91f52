//! Reads and writes: small ones travel with their request or reply, the rest through windows on the payload lanes.
//!
//! A large transfer of a buffer maps the buffer and lets the bytes land in, or leave from, the mapping: on a device that shares host
//! memory nothing is copied at all. Devices with memory of their own use pinned slots instead (see `ring`). The queue keeps its order
//! without the lane waiting for anything: the map is enqueued now, its unmap waits for a user event that the last byte sets.

use std::sync::Arc;
use std::time::Instant;

use smallvec::{SmallVec, smallvec};
use towline_backend::opencl as wire;
use towline_backend::opencl::*;
use towline_wire::error::{CloseCode, ProtocolError};
use towline_wire::push::Push;

use super::gate::Gate;
use super::image::element_of;
use super::place::{Place, read, shape, wait_list, write};
use crate::opencl::completion::{Owed, call_back, carry_out, due};
use crate::opencl::session::{Kept, Session};
use crate::opencl::shared::{Raw, Staged, event_status};

/// Reads up to this size come back on the command lane.
const INLINE_READ: u64 = 128 << 10;
/// Largest transfer that is staged in memory of the worker's own: boxes and images, which the client cuts into slabs.
const SLAB_LIMIT: u64 = 32 << 20;
/// Inline writes held before the session is ended: several times the credit that clients keep to.
const KEPT_LIMIT: u64 = 64 << 20;
/// Inline writes held before the client is told how many have been given back.
const RETIRE_STEP: u64 = 1 << 20;

/// One transfer with its native objects.
pub(super) struct Transfer {
    pub(super) number: u64,
    pub(super) call: u16,
    pub(super) queue_id: u64,
    pub(super) queue: cl_command_queue,
    pub(super) mem: cl_mem,
    pub(super) place: Place,
    pub(super) waits: SmallVec<[cl_event; 8]>,
    pub(super) event: Option<wire::EventHandle>,
}

impl Session {
    pub(crate) fn WriteInline(
        &mut self,
        number: u64,
        request: wire::WriteInline<'_>,
    ) -> Result<(), ProtocolError> {
        let place = Place::new(request.shape, request.place, request.size)?;
        let waits = request.event_wait_list;
        let call = <wire::WriteInline<'_> as Request<'_>>::ID;
        let transfer = self.transfer(
            number,
            call,
            request.command_queue,
            request.mem,
            place,
            waits,
            request.event,
        )?;
        let Ok(transfer) = transfer else {
            return Ok(());
        };
        self.kept_bytes += request.size;
        if self.kept_bytes > KEPT_LIMIT {
            self.retire();
        }
        if self.kept_bytes > KEPT_LIMIT {
            let detail = format!("more than {KEPT_LIMIT} bytes of inline writes are under way");
            return Err(ProtocolError::new(CloseCode::LimitExceeded, detail));
        }
        let mut data: Box<[u8]> = request.data.into();
        let mut done: cl_event = std::ptr::null_mut();
        let waits = wait_list(&transfer.waits);
        // SAFETY: the data is kept until its command is complete.
        let status = unsafe {
            write(
                &*self.api,
                &transfer,
                &transfer.place,
                data.as_mut_ptr(),
                waits,
                &raw mut done,
            )
        };
        if !done.is_null() {
            if transfer.event.is_some() {
                // SAFETY: the event is live; one reference goes to the client's handle, one keeps the data.
                unsafe { self.api.clRetainEvent(done) };
            }
            self.kept.push_back(Kept {
                done: Raw(done.cast()),
                data,
            });
        } else {
            self.kept_bytes -= request.size;
        }
        self.born_event(transfer.event, done, status)?;
        self.settle_on(number, call, transfer.queue_id, status);
        Ok(())
    }

    pub(crate) fn WriteBulk(
        &mut self,
        number: u64,
        request: wire::WriteBulk<'_>,
    ) -> Result<(), ProtocolError> {
        let place = Place::new(request.shape, request.place, request.size)?;
        let waits = request.event_wait_list;
        let call = <wire::WriteBulk<'_> as Request<'_>>::ID;
        let transfer = self.transfer(
            number,
            call,
            request.command_queue,
            request.mem,
            place,
            waits,
            request.event,
        )?;
        let transfer = match transfer {
            Ok(transfer) => transfer,
            Err(status) => {
                self.ungranted(request.payload, status);
                return Ok(());
            }
        };
        if self.has_ring(&transfer) {
            self.write_ringed(&transfer, request.payload)
        } else if place.mappable() {
            self.write_mapped(&transfer, request.payload)
        } else {
            self.write_staged(&transfer, request.payload)
        }
    }

    pub(crate) fn Read(
        &mut self,
        number: u64,
        request: wire::Read<'_>,
    ) -> Result<(), ProtocolError> {
        let place = Place::new(request.shape, request.place, request.size)?;
        let waits = request.event_wait_list;
        let call = <wire::Read<'_> as Request<'_>>::ID;
        let transfer = self.transfer(
            number,
            call,
            request.command_queue,
            request.mem,
            place,
            waits,
            request.event,
        )?;
        let transfer = match transfer {
            Ok(transfer) => transfer,
            Err(status) => {
                self.ungranted(request.payload, status);
                return Ok(());
            }
        };
        let waits = request.urgent != 0 && self.watched(transfer.queue).is_some();
        if request.size <= INLINE_READ && waits && transfer.event.is_none() {
            self.read_waiting(transfer, request.payload)
        } else if request.size <= INLINE_READ {
            self.read_inline(&transfer, request.payload, request.urgent != 0)
        } else if self.has_ring(&transfer) {
            self.read_ringed(&transfer, request.payload)
        } else if place.mappable() {
            self.read_mapped(&transfer, request.payload)
        } else {
            self.read_staged(&transfer, request.payload)
        }
    }

    /// The native objects of a transfer; the status of one that had failed before, which has been told.
    #[allow(
        clippy::too_many_arguments,
        reason = "the fields that three requests share"
    )]
    pub(super) fn transfer(
        &mut self,
        number: u64,
        call: u16,
        queue: wire::CommandQueueHandle,
        mem: wire::MemHandle,
        place: Place,
        waits: Option<List<'_, wire::EventHandle>>,
        event: Option<wire::EventHandle>,
    ) -> Result<Result<Transfer, cl_int>, ProtocolError> {
        let list = waits
            .iter()
            .flat_map(|list| list.iter())
            .map(|event| event.0);
        let list = self.natives(list, wire::EventHandle::TAG)?;
        let mem = self.native(mem.0, wire::MemHandle::TAG)?;
        let native = self.native(queue.0, wire::CommandQueueHandle::TAG)?;
        match (native, mem, list) {
            (Err(status), _, _) | (_, Err(status), _) | (_, _, Err(status)) => {
                self.born_event(event, std::ptr::null_mut(), status)?;
                self.settle_on(number, call, queue.0, status);
                Ok(Err(status))
            }
            (Ok(_), Ok(mem), Ok(_)) if let Some(status) = self.misplaced(place, mem.cast()) => {
                self.born_event(event, std::ptr::null_mut(), status)?;
                self.settle_on(number, call, queue.0, status);
                Ok(Err(status))
            }
            (Ok(native), Ok(mem), Ok(waits)) => {
                let queue_id = queue.0;
                Ok(Ok(Transfer {
                    number,
                    call,
                    queue_id,
                    queue: native.cast(),
                    mem: mem.cast(),
                    place,
                    waits,
                    event,
                }))
            }
        }
    }

    /// Why the vendor must not see this place: it trusts that host memory is as large as the device's side says.
    fn misplaced(&self, place: Place, mem: cl_mem) -> Option<cl_int> {
        match place.shape {
            shape::SVM => {
                let owned = self.owns(place.origin[0] as u64, place.size as u64);
                (!owned).then_some(CL_INVALID_VALUE)
            }
            shape::IMAGE => {
                let element = match element_of(&*self.api, mem) {
                    Ok(element) => element,
                    Err(status) => return Some(status),
                };
                let packed = place
                    .region
                    .iter()
                    .try_fold(element, |size, side| size.checked_mul(*side));
                (packed != Some(place.size)).then_some(CL_INVALID_VALUE)
            }
            _ => None,
        }
    }

    /// Gives back data of inline writes whose commands are complete.
    pub(crate) fn retire(&mut self) {
        let mut bytes = 0;
        while let Some(oldest) = self.kept.front() {
            if event_status(&*self.api, oldest.done.0.cast()) > CL_COMPLETE {
                break;
            }
            self.shared.release_event(oldest.done);
            bytes += oldest.data.len() as u64;
            self.kept.pop_front();
        }
        self.kept_bytes -= bytes;
        self.retired.0 += bytes;
        if self.retired.0 - self.retired.1 >= RETIRE_STEP
            || (self.kept.is_empty() && self.retired.0 > self.retired.1)
        {
            self.retired.1 = self.retired.0;
            self.shared.post(&Push::Retired {
                bytes: self.retired.0,
            });
        }
    }

    /// A small read that its caller waits for, and that nothing else can name: the vendor's own blocking read on a thread that waits.
    /// No other command can be ordered behind it before it is over, except from threads of the client that have no order with it.
    fn read_waiting(&mut self, transfer: Transfer, payload: u64) -> Result<(), ProtocolError> {
        let Some(mut data) = self.shared.stage(transfer.place.size) else {
            return self.unreadable(&transfer, payload, CL_OUT_OF_HOST_MEMORY);
        };
        for event in &transfer.waits {
            // SAFETY: the event is live; the reference lasts until the read is over.
            unsafe { self.api.clRetainEvent(*event) };
        }
        // SAFETY: the queue is live; the reference lasts until the read is over. So does the next.
        unsafe { self.api.clRetainCommandQueue(transfer.queue) };
        if !transfer.mem.is_null() {
            // SAFETY: as above.
            unsafe { self.api.clRetainMemObject(transfer.mem) };
        }
        let (shared, transfer) = (Arc::clone(&self.shared), Movable(transfer));
        self.wait(move || {
            let Movable(transfer) = { transfer };
            let waits = wait_list(&transfer.waits);
            // SAFETY: the data outlives the call, which returns when it is in place.
            let status = shared.usage.waiting(|| unsafe {
                read(
                    &*shared.api,
                    &transfer,
                    &transfer.place,
                    true,
                    data.as_mut_ptr(),
                    waits,
                    std::ptr::null_mut(),
                )
            });
            for event in &transfer.waits {
                shared.release_event(Raw(event.cast()));
            }
            // SAFETY: the references above end here.
            unsafe { shared.api.clReleaseCommandQueue(transfer.queue) };
            if !transfer.mem.is_null() {
                // SAFETY: as above.
                unsafe { shared.api.clReleaseMemObject(transfer.mem) };
            }
            shared.settle_before_answer();
            match status {
                CL_SUCCESS => shared.push(&Push::Data {
                    payload,
                    bytes: data.bytes(),
                }),
                status => shared.push(&Push::NoData { payload, status }),
            }
        });
        Ok(())
    }

    /// Reads into memory that travels on the command lane.
    fn read_inline(
        &mut self,
        transfer: &Transfer,
        payload: u64,
        urgent: bool,
    ) -> Result<(), ProtocolError> {
        let Some(mut data) = self.shared.stage(transfer.place.size) else {
            return self.unreadable(transfer, payload, CL_OUT_OF_HOST_MEMORY);
        };
        let mut done: cl_event = std::ptr::null_mut();
        let waits = wait_list(&transfer.waits);
        // SAFETY: the data lives until the completion below has run.
        let status = unsafe {
            read(
                &*self.api,
                transfer,
                &transfer.place,
                false,
                data.as_mut_ptr(),
                waits,
                &raw mut done,
            )
        };
        if done.is_null() {
            return self.unreadable(transfer, payload, status);
        }
        let shared = Arc::clone(&self.shared);
        let event = Raw(done.cast());
        shared.read_started(payload, done);
        // The client's handle gets its own reference, and its completion is registered after the data's.
        if transfer.event.is_some() {
            // SAFETY: the event is live.
            unsafe { self.api.clRetainEvent(done) };
        }
        let began = Instant::now();
        let finish = move |status: i32| {
            if urgent {
                shared.usage.waited(began.elapsed());
                shared.settle_before_answer();
            }
            match status {
                0 => shared.push(&Push::Data {
                    payload,
                    bytes: data.bytes(),
                }),
                status => shared.push(&Push::NoData { payload, status }),
            }
            shared.read_sent(payload);
        };
        if urgent && self.watched(transfer.queue).is_some() {
            let shared = Arc::clone(&self.shared);
            self.wait(move || {
                let event = event;
                // SAFETY: the reference is this job's.
                unsafe { shared.api.clWaitForEvents(1, (&raw const event.0).cast()) };
                finish(event_status(&*shared.api, event.0.cast()).min(0));
                shared.release_event(event);
            });
        } else {
            // SAFETY: the queue is live. Completion callbacks come only for commands that were submitted.
            unsafe { self.api.clFlush(transfer.queue) };
            if urgent {
                self.finish_read(event, finish);
            } else {
                self.on_complete(transfer, event, finish);
            }
        }
        self.born_event(transfer.event, done, status)
    }

    /// Has the vendor's thread that ends a read send its data to the caller who waits for it, or a thread that waits.
    fn finish_read(&mut self, event: Raw, finish: impl FnOnce(i32) + Send + 'static) {
        let read = due(move |status| finish(status.min(CL_COMPLETE)));
        let told = call_back(&*self.api, event.0.cast(), &read).is_ok();
        if told && self.debts.has_room() {
            let events = smallvec![event];
            return self.debts.add(Owed::new(events, read));
        }
        let shared = Arc::clone(&self.shared);
        self.wait(move || {
            let event = event;
            // SAFETY: the reference is this job's.
            unsafe { shared.api.clWaitForEvents(1, (&raw const event.0).cast()) };
            carry_out(&read, event_status(&*shared.api, event.0.cast()));
            shared.release_event(event);
        });
    }

    /// Tells that a read was not enqueued.
    fn unreadable(
        &mut self,
        transfer: &Transfer,
        payload: u64,
        status: cl_int,
    ) -> Result<(), ProtocolError> {
        self.shared.post(&Push::NoData { payload, status });
        self.unwritable(transfer, status)
    }

    /// Tells the client that nothing of a write will be granted, or nothing of a read come: a call that blocks has its memory back.
    pub(super) fn ungranted(&self, payload: u64, status: cl_int) {
        self.shared.post(&Push::NoData { payload, status });
    }

    /// Tells that a transfer was not enqueued.
    pub(super) fn unwritable(
        &mut self,
        transfer: &Transfer,
        status: cl_int,
    ) -> Result<(), ProtocolError> {
        self.born_event(transfer.event, std::ptr::null_mut(), status)?;
        self.settle_on(transfer.number, transfer.call, transfer.queue_id, status);
        Ok(())
    }

    fn write_mapped(&mut self, transfer: &Transfer, payload: u64) -> Result<(), ProtocolError> {
        let flags = CL_MAP_WRITE_INVALIDATE_REGION as cl_map_flags;
        let (memory, mapped) = match self.map(transfer, flags)? {
            Ok(mapped) => mapped,
            Err(status) => {
                self.ungranted(payload, status);
                return Ok(());
            }
        };
        let gate = Gate::new(&self.shared, self.context(transfer.queue));
        let end = self.unmap(transfer, memory, &gate);
        let (shared, length) = (Arc::clone(&self.shared), transfer.place.size as u64);
        let open = move |status: i32| {
            if status < 0 {
                shared.push(&Push::NoData { payload, status });
                return gate.finish(false);
            }
            let done = Box::new(move |whole| gate.finish(whole));
            match shared.payloads.open(payload, 0, length, memory, done) {
                Ok(()) => shared.push(&Push::Grant {
                    payload,
                    offset: 0,
                    length,
                }),
                Err(error) => shared.close(&error),
            }
        };
        let begin = self.kept_event(mapped);
        self.on_complete(transfer, mapped, open);
        self.conclude(transfer, vec![begin, end])
    }

    fn read_mapped(&mut self, transfer: &Transfer, payload: u64) -> Result<(), ProtocolError> {
        let (memory, mapped) = match self.map(transfer, CL_MAP_READ as cl_map_flags)? {
            Ok(mapped) => mapped,
            Err(status) => {
                self.ungranted(payload, status);
                return Ok(());
            }
        };
        self.shared.read_started(payload, mapped.0.cast());
        let gate = Gate::new(&self.shared, self.context(transfer.queue));
        let end = self.unmap(transfer, memory, &gate);
        let (shared, length) = (Arc::clone(&self.shared), transfer.place.size as u64);
        let sent = move |whole: bool, status: i32| {
            shared.settle_before_answer();
            match status {
                0 => shared.post(&Push::Sent { payload }),
                status => shared.post(&Push::NoData { payload, status }),
            }
            shared.flush();
            shared.read_sent(payload);
            gate.finish(whole);
        };
        let shared = Arc::clone(&self.shared);
        let go = move |status: i32| match status {
            0 => {
                let done = Box::new(move |whole| sent(whole, 0));
                shared.payloads.send(payload, 0, length, memory, done);
            }
            status => sent(false, status),
        };
        let begin = self.kept_event(mapped);
        self.on_complete(transfer, mapped, go);
        self.conclude(transfer, vec![begin, end])
    }

    fn write_staged(&mut self, transfer: &Transfer, payload: u64) -> Result<(), ProtocolError> {
        let Some(mut data) = self.stage(transfer)? else {
            self.unwritable(transfer, CL_OUT_OF_HOST_MEMORY)?;
            self.ungranted(payload, CL_OUT_OF_HOST_MEMORY);
            return Ok(());
        };
        let context = self.context(transfer.queue);
        let gate = Gate::new(&self.shared, context);
        let mut waits = transfer.waits.clone();
        waits.push(gate.event());
        let mut done: cl_event = std::ptr::null_mut();
        let memory = Raw(data.as_mut_ptr().cast());
        // SAFETY: the data lives until its command is complete.
        let status = unsafe {
            write(
                &*self.api,
                transfer,
                &transfer.place,
                data.as_mut_ptr(),
                wait_list(&waits),
                &raw mut done,
            )
        };
        if done.is_null() {
            gate.finish(false);
            self.unwritable(transfer, status)?;
            self.ungranted(payload, status);
            return Ok(());
        }
        // The command may fail while the window is open, and end while others still wait: the last of both lets the data go.
        let data = Arc::new(data);
        let landing = Arc::clone(&data);
        // SAFETY: the event is live; this reference keeps the data.
        unsafe { self.api.clRetainEvent(done) };
        self.on_complete(transfer, Raw(done.cast()), move |_| drop(data));
        // SAFETY: the queue is live.
        unsafe { self.api.clFlush(transfer.queue) };
        let length = transfer.place.size as u64;
        let opened = self.shared.payloads.open(
            payload,
            0,
            length,
            memory,
            Box::new(move |whole| {
                gate.finish(whole);
                drop(landing);
            }),
        );
        if opened.is_err() {
            self.shared.release_event(Raw(done.cast()));
            return opened;
        }
        self.shared.post(&Push::Grant {
            payload,
            offset: 0,
            length,
        });
        self.conclude(transfer, vec![Raw(done.cast())])
    }

    fn read_staged(&mut self, transfer: &Transfer, payload: u64) -> Result<(), ProtocolError> {
        let Some(mut data) = self.stage(transfer)? else {
            return self.unreadable(transfer, payload, CL_OUT_OF_HOST_MEMORY);
        };
        let memory = Raw(data.as_mut_ptr().cast());
        let mut done: cl_event = std::ptr::null_mut();
        let waits = wait_list(&transfer.waits);
        // SAFETY: the data lives until it has been sent.
        let status = unsafe {
            read(
                &*self.api,
                transfer,
                &transfer.place,
                false,
                data.as_mut_ptr(),
                waits,
                &raw mut done,
            )
        };
        if done.is_null() {
            return self.unreadable(transfer, payload, status);
        }
        // SAFETY: the queue is live.
        unsafe { self.api.clFlush(transfer.queue) };
        let length = transfer.place.size as u64;
        // SAFETY: the event is live; this reference belongs to the read.
        unsafe { self.api.clRetainEvent(done) };
        let event = Raw(done.cast());
        self.shared.read_started(payload, done);
        let shared = Arc::clone(&self.shared);
        let finish = move |status: i32| {
            let sender = Arc::clone(&shared);
            let sent = move |_whole: bool| {
                drop(data);
                match status {
                    0 => shared.push(&Push::Sent { payload }),
                    status => shared.push(&Push::NoData { payload, status }),
                }
                shared.read_sent(payload);
            };
            match status {
                0 => sender
                    .payloads
                    .send(payload, 0, length, memory, Box::new(sent)),
                _ => sent(false),
            }
        };
        self.on_complete(transfer, event, finish);
        self.conclude(transfer, vec![Raw(done.cast())])
    }

    fn stage(&self, transfer: &Transfer) -> Result<Option<Staged>, ProtocolError> {
        let size = transfer.place.size;
        if size as u64 > SLAB_LIMIT {
            let detail =
                format!("a transfer of {size} bytes must be cut into slabs of {SLAB_LIMIT}");
            return Err(ProtocolError::new(CloseCode::LimitExceeded, detail));
        }
        Ok(self.shared.stage(size))
    }

    /// Maps the place; the status when that failed, which has been told.
    pub(super) fn map(
        &mut self,
        transfer: &Transfer,
        flags: cl_map_flags,
    ) -> Result<Result<(Raw, Raw), cl_int>, ProtocolError> {
        let (waits, list) = wait_list(&transfer.waits);
        let mut mapped: cl_event = std::ptr::null_mut();
        let mut status = CL_SUCCESS;
        // SAFETY: queue, buffer and events are live; the vendor checks offset and size.
        let memory = unsafe {
            self.api.clEnqueueMapBuffer(
                transfer.queue,
                transfer.mem,
                CL_FALSE as cl_bool,
                flags,
                transfer.place.origin[0],
                transfer.place.size,
                waits,
                list,
                &raw mut mapped,
                &raw mut status,
            )
        };
        if memory.is_null() || mapped.is_null() {
            if !memory.is_null() {
                self.unmap_now(transfer, Raw(memory));
            }
            let status = if status < 0 { status } else { CL_MAP_FAILURE };
            self.unwritable(transfer, status)?;
            return Ok(Err(status));
        }
        // SAFETY: the queue is live. Map events complete only once they are submitted.
        unsafe { self.api.clFlush(transfer.queue) };
        Ok(Ok((Raw(memory), Raw(mapped.cast()))))
    }

    fn unmap_now(&self, transfer: &Transfer, memory: Raw) {
        // SAFETY: the mapping was made by this transfer.
        unsafe {
            self.api.clEnqueueUnmapMemObject(
                transfer.queue,
                transfer.mem,
                memory.0,
                0,
                std::ptr::null(),
                std::ptr::null_mut(),
            )
        };
    }

    /// Unmaps behind the gate and gives the event of the unmap.
    pub(super) fn unmap(&self, transfer: &Transfer, memory: Raw, gate: &Gate) -> Raw {
        let (held, mut end): (cl_event, cl_event) = (gate.event(), std::ptr::null_mut());
        // SAFETY: the mapping was made by this transfer, the gate's event is live.
        let status = unsafe {
            self.api.clEnqueueUnmapMemObject(
                transfer.queue,
                transfer.mem,
                memory.0,
                1,
                &raw const held,
                &raw mut end,
            )
        };
        if status != CL_SUCCESS {
            log::error!(
                "cannot unmap a transfer's window: {}",
                wire::status_name(status).unwrap_or("?")
            );
            // Nothing would hold the mapping while bytes land in it.
            self.shared.end();
        }
        Raw(end.cast())
    }

    /// Runs `then` when `event` of the transfer's queue is complete, and gives the reference to the event back.
    pub(super) fn on_complete(
        &self,
        transfer: &Transfer,
        event: Raw,
        then: impl FnOnce(i32) + Send + 'static,
    ) {
        self.shared
            .when_done(self.watched(transfer.queue), event, then);
    }

    /// Gives the client's event what it stands for: the end of the last part, or of all parts on a queue without order.
    pub(super) fn conclude(
        &mut self,
        transfer: &Transfer,
        ends: Vec<Raw>,
    ) -> Result<(), ProtocolError> {
        let Some((last, others)) = ends.split_last() else {
            return Ok(());
        };
        let timed = self.queues.get(&transfer.queue.addr());
        let timed = timed.is_some_and(|queue| queue.profiles);
        for (index, end) in others.iter().enumerate() {
            match transfer.event {
                _ if end.0.is_null() => {}
                Some(event) if index == 0 && timed => {
                    self.first_parts.insert(event.0, *end);
                }
                _ => self.shared.release_event(*end),
            }
        }
        // SAFETY: the queue is live. The client waits for completion without another flush.
        unsafe { self.api.clFlush(transfer.queue) };
        if transfer.event.is_some() {
            return self.born_event(transfer.event, last.0.cast(), CL_OUT_OF_RESOURCES);
        }
        if !last.0.is_null() {
            self.shared.release_event(*last);
        }
        Ok(())
    }

    pub(super) fn context(&self, queue: cl_command_queue) -> Raw {
        self.queues
            .get(&queue.addr())
            .map_or(Raw(std::ptr::null_mut()), |known| known.context)
    }
}

/// A transfer on its way to another thread.
struct Movable(Transfer);

// SAFETY: OpenCL objects may be used from any thread; the transfer holds references to those that it names.
unsafe impl Send for Movable {}
