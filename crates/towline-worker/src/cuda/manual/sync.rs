//! Events, and waits of the client's.

use std::sync::Arc;
use std::time::Instant;

use smallvec::SmallVec;
use towline_backend::cuda as wire;
use towline_backend::cuda::*;
use towline_wire::error::ProtocolError;

use crate::code::Coded;
use crate::cuda::beacon::{Claim, Latest};
use crate::cuda::context::Context;
use crate::cuda::session::{Glance, Session};
use crate::cuda::shared::Shared;
use crate::cuda::streams::{Depth, Places, Target};
use crate::decode::broken;
use crate::lane;
use crate::link::Raw;

/// Words of an operation on a value in memory: the API's union.
const OPERATION_WORDS: usize = 6;

/// Attributes of streams that a client may set.
const STREAM_ATTRIBUTES: [CUstreamAttrID; 4] = [
    CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW,
    CU_LAUNCH_ATTRIBUTE_PRIORITY,
    CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP,
    CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN,
];

/// Most streams of a context that a look asks one by one.
const STREAMS: usize = 16;

/// Other streams that a wait is for.
type Others = SmallVec<[(Raw, Arc<Depth>); 8]>;

/// What is waited for.
#[derive(Clone, Copy)]
enum Awaited {
    Stream,
    /// All streams of the context.
    Context,
}

impl Awaited {
    /// Waits by the driver, which has more to do then than to wait. The context must be current.
    fn wait(self, shared: &Shared, target: &Target) -> CUresult {
        let (status, stream) = match self {
            Self::Stream => {
                // SAFETY: the stream is live: the client waits before it destroys it.
                let status = unsafe { shared.api.cuStreamSynchronize(target.stream()) };
                (status, Some(target.key))
            }
            // SAFETY: no pointers.
            Self::Context => (unsafe { shared.api.cuCtxSynchronize() }, None),
        };
        shared.pools_have_shrunk(stream);
        status
    }
}

/// A look at whether streams have done all they have, for the client that waits for them. The lane carries out nothing else meanwhile,
/// so they get nothing more to do.
struct Looking {
    shared: Arc<Shared>,
    number: u64,
    /// The first of them.
    target: Target,
    /// Those behind it.
    others: Others,
    awaited: Awaited,
    started: Instant,
    /// Whether the device may be asked to signal: it is no default stream that holds up others.
    signals: bool,
    /// What the context signals when the first stream is there.
    signal: Option<u32>,
    /// The first stream is there.
    first: bool,
}

impl Looking {
    /// `busy` says that the stream has just been given something, so that it is not there yet.
    fn start(mut self, busy: bool) -> Option<Glance> {
        if self.target.context.enter(&*self.shared.api) != CUDA_SUCCESS {
            return None;
        }
        if busy {
            self.ask_for_signal();
        }
        Some(Box::new(move || self.is_over()))
    }

    fn ask_for_signal(&mut self) {
        let context = &self.target.context;
        if self.signals && lane::looks_on() {
            self.signal = context.signal.ask(&*self.shared.api, context, &self.target);
            self.signals = self.signal.is_some();
            if self.signals {
                self.shared.enqueued(&self.target);
            }
        }
    }

    fn query(&self, stream: Raw) -> CUresult {
        // SAFETY: the stream is live: what destroys one, or its context, ends the look first.
        unsafe { self.shared.api.cuStreamQuery(stream.0.cast()) }
    }

    /// Whether the streams are there; if so, the client has been told.
    fn is_over(&mut self) -> bool {
        let mut status = CUDA_SUCCESS;
        match self.signal {
            _ if self.first => {}
            // After a fault the signal never comes: the driver is asked when the lane has looked for long enough.
            Some(number) => {
                if !self.target.context.signal.came(number) {
                    return false;
                }
            }
            None => {
                status = self.query(self.target.native);
                // A backend that cannot be asked is waited for, which is no business of the lane's.
                if matches!(status, CUDA_ERROR_NOT_READY | CUDA_ERROR_NOT_SUPPORTED) {
                    self.ask_for_signal();
                    return false;
                }
            }
        }
        self.first = true;
        if status == CUDA_SUCCESS {
            self.target.depth.emptied();
        }
        while status == CUDA_SUCCESS
            && let Some((next, depth)) = self.others.last()
        {
            status = self.query(*next);
            if matches!(status, CUDA_ERROR_NOT_READY | CUDA_ERROR_NOT_SUPPORTED) {
                return false;
            }
            if status == CUDA_SUCCESS {
                depth.emptied();
            }
            self.others.pop();
        }
        let shared = &self.shared;
        if status != CUDA_SUCCESS || shared.printing.expected() || shared.has_freed_to_pools() {
            // Does not wait any more; what kernels have printed comes with it, and pools shrink.
            status = self.awaited.wait(shared, &self.target);
        }
        shared.usage.waited(self.started.elapsed());
        shared.settle_before_answer();
        shared.answer(self.number, status, &[]);
        shared.flush();
        shared.streams.job_over();
        true
    }
}

impl Session {
    /// Waits for `places`, then for the device with `wait`, and answers.
    fn synchronize(
        &mut self,
        number: u64,
        target: Target,
        places: Places,
        wait: impl FnOnce(&Shared) -> CUresult + Send + 'static,
    ) {
        self.wait(move |shared| {
            shared.streams.wait(&places);
            let status = match target.context.enter(&*shared.api) {
                CUDA_SUCCESS => shared.usage.waiting(|| wait(shared)),
                status => status,
            };
            shared.settle_before_answer();
            shared.answer(number, status, &[]);
        });
    }

    pub(crate) fn SynchronizeStream(
        &mut self,
        number: u64,
        request: wire::SynchronizeStream,
    ) -> Result<(), ProtocolError> {
        match self.target(request.stream)? {
            Err(status) => self.reply(number, status, &wire::SynchronizeStreamReply {}),
            Ok(target) => {
                let places = self.shared.streams.place(target.key);
                let signals = !target.is_default() || !self.has_blocking(&target.context);
                let others = SmallVec::new();
                self.look_or_wait(number, target, places, others, signals, Awaited::Stream);
            }
        }
        Ok(())
    }

    /// Whether streams of a context stand behind its default stream.
    fn has_blocking(&self, context: &Context) -> bool {
        let of = |target: &Target| target.context.id == context.id && target.blocking;
        self.streams.values().any(of)
    }

    /// Answers when these streams have done all they have, and what stands before that.
    fn look_or_wait(
        &mut self,
        number: u64,
        target: Target,
        places: Places,
        others: Others,
        signals: bool,
        awaited: Awaited,
    ) {
        let looks = places.is_empty() && others.len() < STREAMS;
        let glance = looks.then(|| {
            let looking = Looking {
                shared: Arc::clone(&self.shared),
                number,
                target: target.clone(),
                others,
                awaited,
                started: Instant::now(),
                signals,
                signal: None,
                first: false,
            };
            looking.start(self.busy)
        });
        let on = target.clone();
        let wait = move |shared: &Shared| awaited.wait(shared, &on);
        self.synchronize(number, target, places, wait);
        self.glance = glance.flatten();
    }

    pub(crate) fn SynchronizeContext(
        &mut self,
        number: u64,
        request: wire::SynchronizeContext,
    ) -> Result<(), ProtocolError> {
        let id = request.context.0;
        let context = match self.contexts.get(&id) {
            Some(context) => Some(Arc::clone(context)),
            None if id == 0 => self.acting.clone(),
            None => {
                let native = self.native(id, wire::ContextHandle::TAG)?;
                let status = native.err().unwrap_or(CUDA_ERROR_INVALID_CONTEXT);
                self.reply(number, status, &wire::SynchronizeContextReply {});
                return Ok(());
            }
        };
        let Some(context) = context else {
            let reply = wire::SynchronizeContextReply {};
            self.reply(number, CUDA_ERROR_INVALID_CONTEXT, &reply);
            return Ok(());
        };
        let places = self.shared.streams.all(Some(context.id));
        let signals = !self.has_blocking(&context);
        let of = |target: &&Target| target.context.id == context.id && target.depth.is_used();
        let others = self.streams.values().filter(of);
        let others = others.map(|other| (other.native, Arc::clone(&other.depth)));
        let others = others.take(STREAMS).collect();
        let target = Target::default_of(context, 0);
        self.look_or_wait(number, target, places, others, signals, Awaited::Context);
        Ok(())
    }

    pub(crate) fn SynchronizeEvent(
        &mut self,
        number: u64,
        request: wire::SynchronizeEvent,
    ) -> Result<(), ProtocolError> {
        let event = self.native(request.event.0, wire::EventHandle::TAG)?;
        let target = self.target(wire::StreamHandle(0))?;
        let (event, target) = match (event, target) {
            (Ok(event), Ok(target)) => (Raw(event), target),
            (Err(status), _) | (_, Err(status)) => {
                self.reply(number, status, &wire::SynchronizeEventReply {});
                return Ok(());
            }
        };
        if let Some(beacon) = self.shared.beacons.of(request.event.0) {
            match beacon.state() {
                Latest::Ours => {}
                Latest::Passed => {
                    self.reply(number, CUDA_SUCCESS, &wire::SynchronizeEventReply {});
                    return Ok(());
                }
                Latest::Theirs(recording) => {
                    self.wait(move |shared| {
                        let event = event;
                        let mut status = target.context.enter(&*shared.api);
                        beacon.wait(recording, || {
                            if status == CUDA_SUCCESS {
                                // A device that has failed fails this event too, whoever's turn it is.
                                // SAFETY: the event is live: the client waits before it destroys it.
                                let state = unsafe { shared.api.cuEventQuery(event.0.cast()) };
                                status = match state {
                                    CUDA_ERROR_NOT_READY => CUDA_SUCCESS,
                                    state => state,
                                };
                            }
                            status == CUDA_SUCCESS && !shared.ended()
                        });
                        shared.settle_before_answer();
                        shared.answer(number, status, &[]);
                    });
                    return Ok(());
                }
            }
        }
        let places: Places = self
            .recorded
            .get(&request.event.0)
            .copied()
            .into_iter()
            .collect();
        // SAFETY: the event is live: the client waits before it destroys it.
        self.synchronize(number, target, places, move |shared| unsafe {
            let event = event;
            shared.api.cuEventSynchronize(event.0.cast())
        });
        Ok(())
    }

    pub(crate) fn EventRecord(
        &mut self,
        number: u64,
        request: wire::EventRecord,
    ) -> Result<(), ProtocolError> {
        let call = <wire::EventRecord as Request<'_>>::ID;
        let event = self.native(request.event.0, wire::EventHandle::TAG)?;
        let target = self.target(request.stream)?;
        let (event, target) = match (event, target) {
            (Ok(event), Ok(target)) => (Raw(event), target),
            (Err(status), _) | (_, Err(status)) => {
                self.shared.settle(number, call, request.stream.0, status);
                self.shared.tell(request.record, status);
                return Ok(());
            }
        };
        let wire::EventRecord { flags, record, .. } = request;
        let beacon = self.shared.beacons.of(request.event.0);
        let claim = beacon.map(|beacon| Claim::on(beacon, target.key));
        let claim = match claim.transpose() {
            Ok(claim) => claim,
            Err(status) => {
                self.shared.settle(number, call, request.stream.0, status);
                self.shared.tell(record, status);
                return Ok(());
            }
        };
        let go = move |shared: &Arc<Shared>, target: &Target| {
            let event = event;
            // SAFETY: event and stream are live: what ends them stands behind this.
            let mut status = unsafe {
                shared
                    .api
                    .cuEventRecordWithFlags(event.0.cast(), target.stream(), flags)
            };
            shared.enqueued(target);
            if let Some(claim) = claim
                && status == CUDA_SUCCESS
            {
                status = claim.tell(shared, target);
            }
            let marked = if status == CUDA_SUCCESS {
                shared.mark(target)
            } else {
                Err(status)
            };
            match marked {
                Err(status) => {
                    shared.tell(record, status);
                    status
                }
                Ok(mark) => {
                    shared.record_started(record, mark);
                    shared.when_done(target, mark, move |shared, status| {
                        shared.record_passed(record, status);
                    });
                    CUDA_SUCCESS
                }
            }
        };
        self.issue(number, call, &target, Places::new(), go);
        let parked = self.shared.streams.place(target.key);
        match parked.iter().find(|(key, _)| *key == target.key) {
            Some(place) => self.recorded.insert(request.event.0, *place),
            None => self.recorded.remove(&request.event.0),
        };
        Ok(())
    }

    pub(crate) fn cuStreamWaitEvent(
        &mut self,
        number: u64,
        request: wire::StreamWaitEvent,
    ) -> Result<(), ProtocolError> {
        let call = <wire::StreamWaitEvent as Request<'_>>::ID;
        let event = self.native(request.hEvent.0, wire::EventHandle::TAG)?;
        let target = self.target(request.hStream)?;
        let (event, target) = match (event, target) {
            (Ok(event), Ok(target)) => (Raw(event), target),
            (Err(status), _) | (_, Err(status)) => {
                self.shared.settle(number, call, request.hStream.0, status);
                return Ok(());
            }
        };
        let beacon = self.shared.beacons.of(request.hEvent.0);
        match beacon.as_ref().map(|beacon| beacon.state()) {
            None | Some(Latest::Ours) => {}
            Some(Latest::Passed) => return Ok(()),
            Some(Latest::Theirs(recording)) => {
                let go = move |shared: &Arc<Shared>, target: &Target| {
                    beacon.map_or(CUDA_SUCCESS, |beacon| {
                        beacon.hold(shared, target, recording)
                    })
                };
                self.issue(number, call, &target, Places::new(), go);
                return Ok(());
            }
        }
        let after = self.recorded.get(&request.hEvent.0).copied();
        let flags = request.Flags;
        let go = move |shared: &Arc<Shared>, target: &Target| {
            let event = event;
            shared.wait_comes(target);
            // SAFETY: event and stream are live: what ends them stands behind this.
            let status = unsafe {
                shared
                    .api
                    .cuStreamWaitEvent(target.stream(), event.0.cast(), flags)
            };
            shared.wait_enqueued(target);
            status
        };
        self.issue(number, call, &target, after.into_iter().collect(), go);
        Ok(())
    }

    pub(crate) fn cuEventDestroy_v2(
        &mut self,
        number: u64,
        request: wire::EventDestroyV2,
    ) -> Result<(), ProtocolError> {
        let call = <wire::EventDestroyV2 as Request<'_>>::ID;
        self.end_of_object(number, call, request.hEvent.0, wire::EventHandle::TAG)?;
        self.recorded.remove(&request.hEvent.0);
        self.shared.withdraw_event(request.hEvent.0);
        self.shared.retire_beacon(request.hEvent.0);
        Ok(())
    }

    /// Takes an object out of the table, and gives it back when nothing parked may use it.
    pub(crate) fn end_of_object(
        &mut self,
        number: u64,
        call: u16,
        id: u64,
        tag: u8,
    ) -> Result<(), ProtocolError> {
        self.residents.objects.remove(&id);
        let code = self.shared.take_code(Coded::Object(tag, id));
        match self.table.remove(id, tag).map_err(broken)? {
            towline_session::Entry::Live(raw) => self.release_later(number, call, tag, raw, code),
            towline_session::Entry::Failed(_) => {}
        }
        Ok(())
    }

    pub(crate) fn cuStreamDestroy_v2(
        &mut self,
        number: u64,
        request: wire::StreamDestroyV2,
    ) -> Result<(), ProtocolError> {
        let call = <wire::StreamDestroyV2 as Request<'_>>::ID;
        let id = request.hStream.0;
        self.table
            .remove(id, wire::StreamHandle::TAG)
            .map_err(broken)?;
        let Some(target) = self.streams.remove(&id) else {
            return Ok(());
        };
        // A wait for the whole context earlier in this frame, of another thread, would ask the driver about this stream.
        self.glance = None;
        let go = move |shared: &Arc<Shared>, target: &Target| {
            shared.streams.remove(target);
            shared.stream_ends(target.key);
            // SAFETY: the stream is live, and this is its last request. Its commands are carried out nevertheless.
            unsafe { shared.api.cuStreamDestroy_v2(target.stream()) }
        };
        self.issue(number, call, &target, Places::new(), go);
        Ok(())
    }

    pub(crate) fn StreamOperations(
        &mut self,
        number: u64,
        request: wire::StreamOperations<'_>,
    ) -> Result<(), ProtocolError> {
        let call = <wire::StreamOperations<'_> as Request<'_>>::ID;
        let words: Vec<u64> = request.operations.iter().collect();
        let flags = request.flags;
        let target = match self.target(request.stream)? {
            Ok(_) if !words.len().is_multiple_of(OPERATION_WORDS) || words.is_empty() => {
                Err(CUDA_ERROR_INVALID_VALUE)
            }
            target => target,
        };
        match target {
            Err(status) => self.shared.settle(number, call, request.stream.0, status),
            Ok(target) => {
                let go = move |shared: &Arc<Shared>, target: &Target| {
                    let mut words = words;
                    let count = (words.len() / OPERATION_WORDS) as u32;
                    let list = words.as_mut_ptr().cast();
                    shared.wait_comes(target);
                    // SAFETY: the stream is live; there are as many operations as said, and the driver judges their addresses. It
                    // enqueues them: the device waits, the caller does not.
                    let status = unsafe {
                        shared
                            .api
                            .cuStreamBatchMemOp_v2(target.stream(), count, list, flags)
                    };
                    shared.wait_enqueued(target);
                    status
                };
                self.issue(number, call, &target, Places::new(), go);
            }
        }
        Ok(())
    }

    pub(crate) fn StreamAttribute(
        &mut self,
        number: u64,
        request: wire::StreamAttribute<'_>,
    ) -> Result<(), ProtocolError> {
        let call = <wire::StreamAttribute<'_> as Request<'_>>::ID;
        let mut words = [0_u64; 8];
        for (word, bytes) in words.iter_mut().zip(request.value.as_chunks::<8>().0) {
            *word = u64::from_ne_bytes(*bytes);
        }
        let attribute = request.attribute;
        let target = match self.target(request.stream)? {
            // The others hold handles, or are no stream's.
            Ok(_) if !STREAM_ATTRIBUTES.contains(&attribute) => Err(CUDA_ERROR_INVALID_VALUE),
            target => target,
        };
        match target {
            Err(status) => self.shared.settle(number, call, request.stream.0, status),
            Ok(target) => {
                let go = move |shared: &Arc<Shared>, target: &Target| {
                    let value = words.as_ptr().cast();
                    // SAFETY: the stream is live; the words are a whole value.
                    unsafe {
                        shared
                            .api
                            .cuStreamSetAttribute(target.stream(), attribute, value)
                    }
                };
                self.issue(number, call, &target, Places::new(), go);
            }
        }
        Ok(())
    }
}
