//! Events: whether the last recording of each has passed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use towline_backend::cuda as wire;
use towline_backend::cuda::*;
use towline_client::raw::Out;

use crate::driver::{Acting, Driver, EventCalls, lock, read, room_beside, write};
use crate::graph::Content;

/// An event of the application.
pub(crate) struct Recorded {
    pub(crate) context: u64,
    last: Mutex<Option<Recording>>,
    /// It was recorded in a capture last.
    captured: AtomicBool,
    /// It may be shared with other processes.
    shareable: bool,
    /// Threads that wait for it sleep.
    sleeps: bool,
    /// It tells the time of its recording.
    timed: bool,
    /// It is shared, so others may record it: only the server knows whether it has passed, and what others are to see of it must be
    /// there when a call returns.
    shared: AtomicBool,
}

/// The last recording of an event.
#[derive(Clone, Copy)]
struct Recording {
    /// The server tells under this number when it has passed.
    mark: u64,
    stream: u64,
    /// How much was posted to the stream before.
    position: u64,
    /// It has passed: a wait has told so, which may be before the server tells under the number.
    passed: bool,
    /// Milliseconds between it and the recording that stands for it on the server that the session has moved to.
    before: f64,
}

impl Recording {
    /// The status that it ended with.
    fn ended(&self, acting: &Acting<'_>) -> Option<CUresult> {
        match self.passed {
            true => Some(CUDA_SUCCESS),
            false => acting.session.ended(self.mark),
        }
    }
}

impl Recorded {
    /// An event of the context, never recorded.
    fn new(acting: &Acting<'_>) -> Self {
        Self {
            context: acting.context.number,
            last: Mutex::new(None),
            captured: AtomicBool::new(false),
            shareable: false,
            sleeps: false,
            timed: false,
            shared: AtomicBool::new(false),
        }
    }

    /// Whether it was made to be shared with other processes.
    pub(crate) fn is_shareable(&self) -> bool {
        self.shareable
    }

    /// Whether other processes may record it.
    pub(crate) fn is_shared(&self) -> bool {
        self.shared.load(Ordering::Acquire)
    }

    /// Others have it from now on.
    pub(crate) fn share(&self) {
        self.shared.store(true, Ordering::Release);
    }

    /// Whether it was recorded in a capture last.
    pub(crate) fn meets_captures(&self) -> bool {
        self.captured.load(Ordering::Acquire)
    }

    /// Whether it tells the time of its recording.
    pub(crate) fn is_timed(&self) -> bool {
        self.timed
    }

    /// Whether launches may record it: one that tells no time, and that no other process has.
    pub(crate) fn is_of_launches(&self) -> bool {
        !self.timed && !self.shareable
    }

    /// The session has moved: what stands for the last recording there came so many milliseconds later.
    pub(crate) fn moved(&self, later: f64) {
        if let Some(recording) = &mut *lock(&self.last) {
            recording.before += later;
        }
    }

    fn before(&self) -> f64 {
        lock(&self.last).map_or(0.0, |recording| recording.before)
    }

    /// Whether it was ever recorded, or may have been by another process.
    pub(crate) fn is_recorded(&self) -> bool {
        self.meets_captures() || self.is_shared() || lock(&self.last).is_some()
    }

    /// What the server tells the end of the last recording under, where it has not ended.
    fn awaited(&self, acting: &Acting<'_>) -> Result<Option<u64>, CUresult> {
        let Some(recording) = *lock(&self.last) else {
            return Ok(None);
        };
        match recording.ended(acting) {
            None => Ok(Some(recording.mark)),
            Some(CUDA_SUCCESS) => {
                acting.note_done(recording.stream, recording.position);
                Ok(None)
            }
            Some(failed) => Err(failed),
        }
    }

    /// The last recording is behind so much on a stream, and has passed with `mark`.
    pub(crate) fn recorded_behind(
        &self,
        acting: &Acting<'_>,
        stream: u64,
        mark: u64,
        position: u64,
    ) {
        let recording = Recording {
            mark,
            stream,
            position,
            passed: false,
            before: 0.0,
        };
        if let Some(before) = lock(&self.last).replace(recording) {
            acting.session.forget(before.mark);
        }
    }
}

const KNOWN_FLAGS: u32 = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;

impl Driver {
    pub(crate) fn event(&self, event: CUevent) -> Result<Arc<Recorded>, CUresult> {
        self.ready()?;
        let found = read(&self.events).get(&(event.addr() as u64)).cloned();
        found.ok_or(CUDA_ERROR_INVALID_HANDLE)
    }

    fn create_event(&self, place: &Out<CUevent>, flags: u32) -> Result<(), CUresult> {
        let acting = self.session_for(0)?;
        if flags & !KNOWN_FLAGS != 0 || !place.wanted() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let shareable = flags & CU_EVENT_INTERPROCESS != 0;
        if shareable && flags & CU_EVENT_DISABLE_TIMING == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        room_beside(read(&self.events).len())?;
        let handle = wire::EventHandle(acting.mint(wire::EventHandle::TAG));
        acting.post(&wire::EventCreate {
            phEvent: handle,
            // How sessions share it is the server's affair, not the driver's.
            Flags: flags & !CU_EVENT_INTERPROCESS,
        })?;
        let event = Recorded {
            shareable,
            sleeps: flags & CU_EVENT_BLOCKING_SYNC != 0,
            timed: flags & CU_EVENT_DISABLE_TIMING == 0,
            ..Recorded::new(&acting)
        };
        place.set(self.enter_event(handle.0, event));
        Ok(())
    }

    /// An event of another process that this one has opened.
    pub(crate) fn shared_event(&self, acting: &Acting<'_>, number: u64) -> CUevent {
        let event = Recorded {
            shareable: true,
            shared: AtomicBool::new(true),
            ..Recorded::new(acting)
        };
        self.enter_event(number, event)
    }

    fn enter_event(&self, number: u64, event: Recorded) -> CUevent {
        write(&self.events).insert(number, Arc::new(event));
        wire::EventHandle(number).to_raw()
    }

    pub(crate) fn record(
        &self,
        event: CUevent,
        stream: CUstream,
        flags: u32,
    ) -> Result<(), CUresult> {
        let (acting, stream, captured) = self.enqueue_on(stream)?;
        let known = self.event(event)?;
        if flags > CU_EVENT_RECORD_EXTERNAL {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if captured.is_none() && flags & CU_EVENT_RECORD_EXTERNAL != 0 {
            return Err(CUDA_ERROR_ILLEGAL_STATE);
        }
        let context = self.context(known.context)?;
        if context.number != acting.context.number {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        }
        if let Some(captured) = captured {
            let number = event.addr() as u64;
            if flags & CU_EVENT_RECORD_EXTERNAL != 0 {
                return captured.add(Content::Record(self.event_number(event)?));
            }
            known.captured.store(true, Ordering::Release);
            captured.record(number);
            return Ok(());
        }
        if known.captured.swap(false, Ordering::AcqRel) {
            lock(&self.graphs)
                .captures
                .forget_event(event.addr() as u64);
        }
        // Under the event's lock, so that its mark is that of the recording posted last.
        let mut held = lock(&known.last);
        let mark = acting.session.mark_behind(acting.actor, stream.0)?;
        let posted = acting.post(&wire::EventRecord {
            event: wire::EventHandle::from_raw(event),
            stream,
            flags,
            record: mark,
        });
        if let Err(status) = posted {
            acting.session.forget(mark);
            return Err(status);
        }
        let recording = Recording {
            mark,
            stream: stream.0,
            position: acting.note_mark(stream, mark),
            passed: false,
            before: 0.0,
        };
        if let Some(before) = held.replace(recording) {
            acting.session.forget(before.mark);
        }
        drop(held);
        self.settle_shared(&acting, &known, event)
    }

    /// Waits until the server has taken in what was posted of an event that is shared: whoever else has it may be told of it by now.
    pub(crate) fn settle_shared(
        &self,
        acting: &Acting<'_>,
        known: &Recorded,
        event: CUevent,
    ) -> Result<(), CUresult> {
        if !known.is_shared() {
            return Ok(());
        }
        let event = wire::EventHandle::from_raw(event);
        match acting.call_for("cuEventRecord", &wire::EventState { event }) {
            Ok(_) | Err(CUDA_ERROR_NOT_READY) => Ok(()),
            Err(status) => Err(status),
        }
    }

    /// The time between the last recordings of two events.
    fn elapsed(&self, start: CUevent, end: CUevent) -> Result<f32, CUresult> {
        let (first, second) = (self.event(start)?, self.event(end)?);
        for (known, event) in [(&first, start), (&second, end)] {
            self.expect_uncaptured(known, event, false)?;
            if !known.is_recorded() || !known.timed {
                return Err(CUDA_ERROR_INVALID_HANDLE);
            }
        }
        let acting = self.acting_in(self.context(first.context)?)?;
        // No clock is that of two servers.
        if self.context(second.context)?.session != acting.context.session {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        }
        let body = acting.call(&wire::EventElapsedTimeV2 {
            hStart: wire::EventHandle::from_raw(start),
            hEnd: wire::EventHandle::from_raw(end),
        })?;
        let reply = wire::EventElapsedTimeV2Reply::decode(&body).map_err(|_| acting.malformed())?;
        let told = reply.pMilliseconds.ok_or_else(|| acting.malformed())?;
        Ok((f64::from(told) + (first.before() - second.before())) as f32)
    }

    pub(crate) fn expect_uncaptured(
        &self,
        known: &Recorded,
        event: CUevent,
        is_asked: bool,
    ) -> Result<(), CUresult> {
        match known.captured.load(Ordering::Acquire) {
            true => self.uncaptured_event(event.addr() as u64, is_asked),
            false => Ok(()),
        }
    }

    /// Whether the application may ask for an event.
    fn outside_of_captures(&self, known: &Recorded, event: CUevent) -> Result<(), CUresult> {
        self.expect_uncaptured(known, event, true)?;
        self.safe_in_captures()
    }

    /// Has a stream stand still until the last recording of an event of another server has passed, of which this process learns.
    pub(crate) fn await_elsewhere(
        &self,
        acting: &Acting<'_>,
        stream: wire::StreamHandle,
        known: &Recorded,
        event: wire::EventHandle,
    ) -> Result<(), CUresult> {
        if known.is_shared() {
            // Recordings of other processes are not told of: the calling thread asks, and waits.
            return self.wait_event(known, event);
        }
        let there = self.acting_in(self.context(known.context)?)?;
        let Some(mark) = known.awaited(&there)? else {
            return Ok(());
        };
        let session = Arc::downgrade(there.session);
        self.stand_still(acting, stream, move |go_on| {
            if let Some(session) = session.upgrade() {
                session.when_ended(mark, go_on);
            }
        })
    }

    /// Waits until the last recording of an event has passed.
    pub(crate) fn wait_event(
        &self,
        known: &Recorded,
        event: wire::EventHandle,
    ) -> Result<(), CUresult> {
        let mut acting = self.acting_in(self.context(known.context)?)?;
        acting.actor.sleeps |= known.sleeps;
        acting.show_kernels()?;
        if known.is_shared() {
            acting.call_for("cuEventSynchronize", &wire::SynchronizeEvent { event })?;
            acting.show_twins()?;
            return acting.healthy(wire::StreamHandle(0));
        }
        let Some(recording) = *lock(&known.last) else {
            return Ok(());
        };
        match recording.ended(&acting) {
            Some(CUDA_SUCCESS) => {
                acting.note_done(recording.stream, recording.position);
                acting.show_twins()?;
                return acting.healthy(wire::StreamHandle(recording.stream));
            }
            Some(failed) => return Err(failed),
            None => {}
        }
        let (call, request) = ("cuEventSynchronize", wire::SynchronizeEvent { event });
        acting
            .session
            .synchronise_mark(acting.actor, call, &request, recording.mark)?;
        acting.note_done(recording.stream, recording.position);
        acting.show_twins()?;
        if let Some(last) = lock(&known.last).as_mut()
            && last.mark == recording.mark
        {
            last.passed = true;
        }
        acting.healthy(wire::StreamHandle(recording.stream))
    }
}

impl EventCalls for Driver {
    fn cuEventCreate(&self, phEvent: Out<CUevent>, Flags: u32) -> Result<(), CUresult> {
        self.create_event(&phEvent, Flags)
    }

    fn cuEventDestroy_v2(&self, hEvent: CUevent) -> Result<(), CUresult> {
        self.event(hEvent).and_then(|known| {
            let acting = self.acting_in(self.context(known.context)?)?;
            let handle = wire::EventHandle::from_raw(hEvent);
            acting.post(&wire::EventDestroyV2 { hEvent: handle })?;
            if let Some(recording) = lock(&known.last).take() {
                acting.session.forget(recording.mark);
            }
            write(&self.events).remove(&handle.0);
            self.unshare_event(handle.0);
            if known.captured.load(Ordering::Acquire) {
                lock(&self.graphs).captures.forget_event(handle.0);
            }
            Ok(())
        })
    }

    fn cuEventRecord(&self, hEvent: CUevent, hStream: CUstream) -> Result<(), CUresult> {
        self.record(hEvent, hStream, 0)
    }

    fn cuEventRecordWithFlags(
        &self,
        hEvent: CUevent,
        hStream: CUstream,
        flags: u32,
    ) -> Result<(), CUresult> {
        self.record(hEvent, hStream, flags)
    }

    fn cuEventQuery(&self, hEvent: CUevent) -> Result<(), CUresult> {
        self.event(hEvent).and_then(|known| {
            self.outside_of_captures(&known, hEvent)?;
            let acting = self.acting_in(self.context(known.context)?)?;
            acting.show_kernels()?;
            if known.is_shared() {
                let event = wire::EventHandle::from_raw(hEvent);
                acting.call_for("cuEventQuery", &wire::EventState { event })?;
                acting.show_twins()?;
                return Ok(());
            }
            let Some(recording) = *lock(&known.last) else {
                return Ok(());
            };
            match recording.ended(&acting) {
                None => Err(CUDA_ERROR_NOT_READY),
                Some(CUDA_SUCCESS) => {
                    acting.note_done(recording.stream, recording.position);
                    acting.show_twins()?;
                    acting.healthy(wire::StreamHandle(recording.stream))
                }
                Some(failed) => Err(failed),
            }
        })
    }

    fn cuEventSynchronize(&self, hEvent: CUevent) -> Result<(), CUresult> {
        self.event(hEvent).and_then(|known| {
            self.outside_of_captures(&known, hEvent)?;
            self.wait_event(&known, wire::EventHandle::from_raw(hEvent))
        })
    }

    fn cuEventElapsedTime_v2(
        &self,
        pMilliseconds: Out<f32>,
        hStart: CUevent,
        hEnd: CUevent,
    ) -> Result<(), CUresult> {
        // The driver looks at the events first (seen with driver 580.159).
        let elapsed = self.elapsed(hStart, hEnd)?;
        pMilliseconds.set(elapsed);
        match pMilliseconds.wanted() {
            true => Ok(()),
            false => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }
}
