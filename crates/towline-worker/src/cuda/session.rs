//! The lane thread's own state: the table of handles, and the helpers that the generated dispatcher stands on.

use std::collections::{HashMap, HashSet};
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use towline_backend::cuda as wire;
use towline_backend::cuda::*;
use towline_session::{Entry, Numbers, Table};
use towline_wire::error::{CloseCode, DecodeError, ProtocolError};

use super::ahead::Ahead;
use super::context::Context;
use super::manual::{Link, Linker, VirtualMemory};
use super::recent::Recent;
use super::residents::{self, Residents};
use super::shared::{Arrivals, Shared, lock};
use super::streams::{Overruns, Place, Places, Target};
use crate::code::CodeCharge;
use crate::decode::broken;
use crate::lane::Serve;
use crate::link::Raw;
use crate::turns::Admission;
use crate::waiters::Job;

/// How long the end of a session waits for kernels; a worker process ends with what still runs.
const PATIENCE: Duration = Duration::from_secs(2);

/// A stream that was given something less long ago than this has most likely not done it: a launch takes longer.
const BUSY: Duration = Duration::from_micros(10);

/// Looks whether a wait is over; if so, the client has been told.
pub(crate) type Glance = Box<dyn FnMut() -> bool + Send>;

/// One client's session, driven by the lane thread.
pub(crate) struct Session {
    pub(crate) api: Arc<dyn CudaApi>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) table: Table<Raw>,
    /// The driver's numbers of the devices that the client knows.
    pub(crate) devices: Vec<CUdevice>,
    pub(crate) contexts: HashMap<u64, Arc<Context>>,
    /// The client's number of each device's primary context, which is the same for as long as the session.
    pub(crate) primaries: HashMap<CUdevice, u64>,
    pub(crate) ahead: Ahead,
    /// The context that messages act in.
    pub(crate) acting: Option<Arc<Context>>,
    pub(crate) streams: Numbers<Target>,
    /// What was launched lately.
    pub(crate) recent: Recent,
    /// Where the latest recording of an event is parked, by the event's number.
    pub(crate) recorded: HashMap<u64, Place>,
    /// Modules that belong to libraries, by number.
    pub(crate) borrowed: HashSet<u64>,
    /// Pools that the session has created, by number.
    pub(crate) pools: HashSet<u64>,
    pub(crate) virtual_memory: VirtualMemory,
    pub(crate) residents: Residents,
    /// Links of device code, by the client's numbers.
    pub(crate) links: HashMap<u64, Arc<Link>>,
    pub(crate) linker: Linker,
    /// What the client's latest request waits for, until the lane's thread or another takes it up.
    pub(crate) waiting: Option<Job>,
    /// Looks whether that has come, and answers if so.
    pub(crate) glance: Option<Glance>,
    /// The client has sent something else just before this request.
    pub(crate) busy: bool,
    pub(crate) goodbye: bool,
}

impl Session {
    pub(crate) fn new(shared: Arc<Shared>, devices: Vec<CUdevice>, ahead: Ahead) -> Self {
        Self {
            api: Arc::clone(&shared.api),
            shared,
            table: Table::default(),
            devices,
            contexts: HashMap::new(),
            primaries: HashMap::new(),
            ahead,
            acting: None,
            streams: Numbers::default(),
            recent: Recent::default(),
            recorded: HashMap::new(),
            borrowed: HashSet::new(),
            pools: HashSet::new(),
            virtual_memory: VirtualMemory::default(),
            residents: Residents::default(),
            links: HashMap::new(),
            linker: Linker::default(),
            waiting: None,
            glance: None,
            busy: false,
            goodbye: false,
        }
    }

    /// The native object of a handle; `Err` inside when its creation failed, or when it is no handle where there must be one.
    #[inline]
    pub(crate) fn native(
        &self,
        id: u64,
        tag: u8,
    ) -> Result<Result<*mut c_void, CUresult>, ProtocolError> {
        if tag == wire::StreamHandle::TAG && id <= CU_STREAM_LEGACY {
            return Ok(Ok(std::ptr::without_provenance_mut(id as usize)));
        }
        if id == 0 {
            return Ok(match tag {
                wire::ContextHandle::TAG | wire::MemoryPoolHandle::TAG => Ok(std::ptr::null_mut()),
                _ => Err(CUDA_ERROR_INVALID_HANDLE),
            });
        }
        let entry = match self.table.entry(id, tag) {
            // A kernel may stand for the function that it is in the current context.
            Err(_) if tag == wire::FunctionHandle::TAG => {
                self.table.entry(id, wire::KernelHandle::TAG)
            }
            entry => entry,
        };
        match entry {
            Ok(Entry::Live(raw)) => Ok(Ok(raw.0)),
            Ok(Entry::Failed(status)) => Ok(Err(status)),
            // Some calls pass on what the application has given them.
            Err(_) => Ok(Err(CUDA_ERROR_INVALID_HANDLE)),
        }
    }

    /// Enters what a creating call gave.
    pub(crate) fn born(
        &mut self,
        id: u64,
        tag: u8,
        native: *mut c_void,
        status: CUresult,
    ) -> Result<(), ProtocolError> {
        let entry = if status == CUDA_SUCCESS && !native.is_null() {
            Entry::Live(Raw(native))
        } else {
            Entry::Failed(failure(status))
        };
        if let Err(error) = self.table.insert(id, tag, entry) {
            if let Entry::Live(raw) = entry {
                self.release(tag, raw);
            }
            return Err(broken(error));
        }
        if Self::resides(tag) && matches!(entry, Entry::Live(_)) {
            self.settle_in(id, tag, None);
        }
        if tag == wire::StreamHandle::TAG
            && let Entry::Live(native) = entry
            && let Some(context) = &self.acting
        {
            let mut flags = 0;
            // SAFETY: the stream was just created; one place for its flags.
            unsafe { self.api.cuStreamGetFlags(native.0.cast(), &raw mut flags) };
            let blocking = flags & CU_STREAM_NON_BLOCKING == 0;
            let target = Target {
                key: id,
                id,
                native,
                context: Arc::clone(context),
                depth: Arc::default(),
                blocking,
            };
            self.shared.streams.add(&target);
            self.streams.insert(id, target);
        }
        Ok(())
    }

    /// The stream that a request names.
    pub(crate) fn target(
        &self,
        stream: wire::StreamHandle,
    ) -> Result<Result<Target, CUresult>, ProtocolError> {
        let id = stream.0;
        if id <= CU_STREAM_LEGACY {
            return Ok(match &self.acting {
                None => Err(CUDA_ERROR_INVALID_CONTEXT),
                Some(context) => Ok(Target::default_of(Arc::clone(context), id)),
            });
        }
        if let Some(target) = self.streams.get(&id) {
            target.depth.comes_into_use();
            return Ok(Ok(target.clone()));
        }
        let native = self.native(id, wire::StreamHandle::TAG)?;
        Ok(Err(native.err().unwrap_or(CUDA_ERROR_INVALID_CONTEXT)))
    }

    /// The driver's number of a device.
    pub(crate) fn device(&self, device: i32) -> Result<CUdevice, CUresult> {
        let found = usize::try_from(device)
            .ok()
            .and_then(|index| self.devices.get(index));
        found.copied().ok_or(CUDA_ERROR_INVALID_DEVICE)
    }

    /// Runs `op` now if nothing stands before it on the stream, and parks it otherwise. It gets its stream and gives the status, which
    /// is told when it is a failure.
    #[inline]
    pub(crate) fn issue(
        &mut self,
        number: u64,
        call: u16,
        target: &Target,
        after: Places,
        op: impl FnOnce(&Arc<Shared>, &Target) -> CUresult + Send + 'static,
    ) {
        if self.shared.is_clear(target, &after) {
            let status = self.run(target, op);
            self.shared.settle(number, call, target.id, status);
            return;
        }
        self.park(number, call, target, after, op);
    }

    /// As [`Self::issue`], for a launch; whether it is parked.
    pub(crate) fn issue_launch(
        &mut self,
        number: u64,
        call: u16,
        target: &Target,
        after: Places,
        op: impl FnOnce(&Arc<Shared>, &Target) -> CUresult + Send + 'static,
    ) -> bool {
        if self.shared.is_clear(target, &after) {
            let admission = self.shared.admit(target);
            if admission != Admission::Held {
                let status = self.run(target, op);
                let counts = admission == Admission::Counted;
                self.shared.launched(target, counts);
                self.shared.settle(number, call, target.id, status);
                return false;
            }
        }
        let go = move |shared: &Arc<Shared>, target: &Target| {
            let counts = shared.wait_for_turn(target);
            let status = op(shared, target);
            shared.launched(target, counts);
            status
        };
        self.park(number, call, target, after, go);
        true
    }

    /// Runs `op` with the stream's context current.
    #[inline]
    pub(crate) fn run(
        &self,
        target: &Target,
        op: impl FnOnce(&Arc<Shared>, &Target) -> CUresult,
    ) -> CUresult {
        match target.context.enter(&*self.api) {
            CUDA_SUCCESS => op(&self.shared, target),
            status => status,
        }
    }

    /// Parks `op` at the stream.
    pub(crate) fn park(
        &mut self,
        number: u64,
        call: u16,
        target: &Target,
        after: Places,
        op: impl FnOnce(&Arc<Shared>, &Target) -> CUresult + Send + 'static,
    ) {
        let on = target.clone();
        let run = move |shared: &Arc<Shared>| {
            let status = op(shared, &on);
            shared.settle(number, call, on.id, status);
        };
        self.shared.park(target, after, Box::new(run));
    }

    /// Tells the client of a posted request that failed.
    #[inline]
    pub(crate) fn settle(&mut self, number: u64, call: u16, status: CUresult) {
        self.shared.settle(number, call, 0, status);
    }

    /// Answers a request.
    pub(crate) fn reply<'a>(&mut self, number: u64, status: CUresult, body: &impl Message<'a>) {
        self.shared.reply(number, status, body);
    }

    /// Waits for the device for the client's sake, not on the lane.
    pub(crate) fn wait(&mut self, wait: impl FnOnce(&Arc<Shared>) + Send + 'static) {
        self.shared.streams.job();
        let shared = Arc::clone(&self.shared);
        let job: Job = Box::new(move || {
            wait(&shared);
            shared.flush();
            shared.streams.job_over();
        });
        // Whatever comes last in a frame is most likely what a blocked client waits for: it gets the thread that is awake.
        self.glance = None;
        if let Some(earlier) = self.waiting.replace(job) {
            self.shared.waiters.run(earlier);
        }
    }

    /// Gives a native object back once everything that is parked now has run: it may use the object. The session is charged for its code as
    /// long.
    pub(crate) fn release_later(
        &mut self,
        number: u64,
        call: u16,
        tag: u8,
        raw: Raw,
        code: Option<CodeCharge>,
    ) {
        let places = self.shared.streams.all(None);
        if places.is_empty() {
            let status = self.release(tag, raw);
            self.settle(number, call, status);
            return;
        }
        let api = Arc::clone(&self.api);
        let context = self.acting.clone();
        self.shared.start(move |shared| {
            shared.streams.wait(&places);
            if let Some(context) = context {
                context.enter(&*api);
            }
            let status = release(&*api, tag, raw);
            drop(code);
            shared.settle(number, call, 0, status);
            shared.flush();
        });
    }

    /// A call has ended the life of an object.
    pub(crate) fn destroy(&mut self, id: u64, tag: u8) -> Result<(), ProtocolError> {
        // There was none: the call has failed, and nothing else is to be done.
        let removed = self.table.remove(id, tag);
        if tag == wire::MemoryPoolHandle::TAG {
            if let Ok(Entry::Live(pool)) = removed {
                lock(&self.shared.pools_used).retain(|used| *used != pool);
            }
            self.pools.remove(&id);
            self.shared.withdraw_pool(id);
        }
        Ok(())
    }

    /// Gives a native object back.
    pub(crate) fn release(&self, tag: u8, raw: Raw) -> CUresult {
        release(&*self.api, tag, raw)
    }

    /// Takes in what other threads have made.
    fn take_arrivals(&mut self) -> Result<(), ProtocolError> {
        let Some(Arrivals { objects, imported }) = self.shared.arrivals() else {
            return Ok(());
        };
        for (id, tag, entry) in objects {
            if let Err(error) = self.table.insert(id, tag, entry) {
                return Err(broken(error));
            }
            if tag == wire::MemoryPoolHandle::TAG {
                self.pools.insert(id);
            }
        }
        for (number, memory, bytes, charge) in imported {
            self.virtual_memory.import(number, memory, bytes, charge);
        }
        Ok(())
    }

    /// Ends a context, once nothing of the session uses it.
    pub(crate) fn end_context(&mut self, number: u64, call: u16, context: Arc<Context>) {
        self.end_context_then(context, move |shared, status| {
            shared.settle(number, call, 0, status);
        });
    }

    /// As [`Self::end_context`]; `then` gets the driver's verdict.
    pub(crate) fn end_context_then(
        &mut self,
        context: Arc<Context>,
        then: impl FnOnce(&Arc<Shared>, CUresult) + Send + 'static,
    ) {
        let places = self.shared.streams.all(Some(context.id));
        // A new one under the same number must not meet what is left of this one.
        lock(&self.shared.ending).insert(context.id, Vec::new());
        if self
            .acting
            .as_ref()
            .is_some_and(|acting| acting.id == context.id)
        {
            self.acting = None;
        }
        self.recent.clear();
        let (charged, events) = self.forget_residents(context.id);
        self.end_links(Some(context.id));
        let mut streams = Vec::new();
        self.streams.retain(|id, target| {
            let stays = target.context.id != context.id;
            if !stays {
                streams.push(target.native);
                let _ = self.table.remove(*id, wire::StreamHandle::TAG);
            }
            stays
        });
        self.shared.start(move |shared| {
            // First: what they wait for may never come.
            let collectives = &shared.collectives;
            let bonds = &shared.counters.bonds;
            let mut ending = collectives.release(&shared.api, bonds, Some(context.id));
            ending.retain(|communicator| communicator.is_in(&context));
            shared.streams.wait(&places);
            if !shared.ended() {
                // Reads and writes under way end with the device's work.
                if context.enter(&*shared.api) == CUDA_SUCCESS {
                    // SAFETY: the context is current.
                    unsafe { shared.api.cuCtxSynchronize() };
                }
                // They hold the context.
                shared.settle_frees();
                let idle = || Arc::strong_count(&context) == 1 + ending.len();
                shared.streams.wait_until(idle);
            }
            shared.streams.forget(&context);
            shared.end_graphs(context.id);
            // The library waits for graphs that have its operations.
            collectives.join(&ending, PATIENCE);
            drop(ending);
            shared.release_opened_in(context.id);
            shared.release_beacons(Some(context.id));
            for stream in streams {
                // SAFETY: the stream is the context's, and nothing runs on it any more.
                unsafe { shared.api.cuStreamDestroy_v2(stream.0.cast()) };
            }
            if !events.is_empty() && context.enter(&*shared.api) == CUDA_SUCCESS {
                for event in events {
                    // SAFETY: the event is the context's, in no table any more, and nothing that runs uses it.
                    unsafe { shared.api.cuEventDestroy_v2(event.0.cast()) };
                }
            }
            shared.free_memory_of(&context);
            let status = context.end(&*shared.api);
            shared.counters.credit(charged);
            let contexts = &shared.counters.context_bytes;
            contexts.fetch_sub(context.bytes, Ordering::Relaxed);
            shared.credit_code_of(context.id);
            then(shared, status);
            let waiting = lock(&shared.ending).remove(&context.id);
            for number in waiting.into_iter().flatten() {
                shared.reply(number, CUDA_ERROR_NOT_READY, &wire::PrimaryRetainReply {});
            }
            shared.flush();
        });
    }
}

/// Gives a native object back.
fn release(api: &dyn CudaApi, tag: u8, raw: Raw) -> CUresult {
    match tag {
        // SAFETY: the table owned the object, and it is in no table any more.
        wire::EventHandle::TAG => unsafe { api.cuEventDestroy_v2(raw.0.cast()) },
        // SAFETY: as above.
        wire::StreamHandle::TAG => unsafe { api.cuStreamDestroy_v2(raw.0.cast()) },
        // SAFETY: as above.
        wire::ModuleHandle::TAG => unsafe { api.cuModuleUnload(raw.0.cast()) },
        // SAFETY: as above.
        wire::LibraryHandle::TAG => unsafe { api.cuLibraryUnload(raw.0.cast()) },
        tag => residents::release(api, tag, raw),
    }
}

impl Serve for Session {
    const LAUNCHES: &'static [u16] = &[
        <wire::Launch<'static> as Request<'static>>::ID,
        <wire::LaunchFirst<'static> as Request<'static>>::ID,
        <wire::GraphRun<'static> as Request<'static>>::ID,
    ];

    fn dispatch(&mut self, number: u64, id: u16, body: &[u8]) -> Result<(), ProtocolError> {
        if self.shared.counters.swap.is_lost() {
            let detail = "the session's device memory did not come back from the host";
            return Err(ProtocolError::new(CloseCode::Internal, detail));
        }
        self.take_arrivals()?;
        if let Some(context) = &self.acting {
            context.enter(&*self.api);
        }
        let done = self.dispatch(number, id, body);
        self.busy = true;
        done
    }

    fn describe(id: u16, body: &[u8]) -> Result<String, DecodeError> {
        towline_wire::cuda::describe(id, body)
    }

    fn begin_of_frame(&mut self, rested: Duration) -> bool {
        self.busy = rested < BUSY;
        self.shared.counters.swap.enter()
    }

    fn take_wait(&mut self) -> Option<Job> {
        self.glance = None;
        self.waiting.take()
    }

    fn glance(&mut self) -> Option<bool> {
        let ended = self.glance.as_mut()?();
        if ended {
            self.take_wait();
            // It held its context, whose end may wait for that.
            self.shared.streams.wake();
        }
        Some(ended)
    }

    fn end_of_frame(&mut self) -> bool {
        self.shared.tell_retired();
        self.shared.counters.swap.leave();
        !self.goodbye
    }

    fn watch(&self, limit: Duration) -> (i32, Box<dyn FnMut() -> bool + Send>) {
        let shared = Arc::clone(&self.shared);
        let mut overruns = Overruns::watch(&shared, limit);
        let look = move || overruns.look(&shared);
        (CUDA_ERROR_LAUNCH_TIMEOUT, Box::new(look))
    }

    /// Gives everything back. For a worker process its end does the same; in-process tests look.
    fn release_all(&mut self) {
        self.shared.counters.swap.end();
        let (api, bonds) = (&self.shared.api, &self.shared.counters.bonds);
        let collectives = &self.shared.collectives;
        let ending = collectives.release(api, bonds, None);
        // A library may wait for graphs that have its operations, which end later.
        collectives.join(&ending, PATIENCE);
        drop(ending);
        self.shared.streams.end();
        if !self.shared.streams.join(PATIENCE) {
            log::debug!("kernels still run at the session's end");
            return;
        }
        self.recent.clear();
        // Made, and never taken in.
        let _ = self.take_arrivals();
        self.release_residents();
        self.end_links(None);
        self.shared.streams.join(PATIENCE);
        self.shared.settle_frees();
        self.shared.release_opened();
        self.shared.release_beacons(None);
        let contexts = std::mem::take(&mut self.contexts);
        for context in contexts.values() {
            context.enter(&*self.api);
            self.shared.end_graphs(context.id);
            self.streams.retain(|id, target| {
                if target.context.id == context.id {
                    let _ = self.table.remove(*id, wire::StreamHandle::TAG);
                    // SAFETY: the stream is live, and its context current.
                    unsafe { self.api.cuStreamDestroy_v2(target.stream()) };
                    return false;
                }
                true
            });
        }
        for tag in [
            wire::EventHandle::TAG,
            wire::ModuleHandle::TAG,
            wire::LibraryHandle::TAG,
        ] {
            for entry in self.table.drain(tag) {
                if let Entry::Live(raw) = entry {
                    self.release(tag, raw);
                }
            }
        }
        for (address, _) in std::mem::take(&mut *lock(&self.shared.memory)) {
            let mut placed = lock(&self.shared.placed);
            if placed.has(address) {
                placed.free(&*self.api, address);
            } else {
                // SAFETY: the memory is the session's, and nothing runs any more.
                unsafe { self.api.cuMemFree_v2(address) };
            }
        }
        for id in std::mem::take(&mut self.pools) {
            if let Ok(Entry::Live(pool)) = self.table.remove(id, wire::MemoryPoolHandle::TAG) {
                // SAFETY: the pool is the session's own.
                unsafe { self.api.cuMemPoolDestroy(pool.0.cast()) };
            }
        }
        self.virtual_memory
            .release(&*self.api, &mut lock(&self.shared.placed));
        for area in lock(&self.shared.areas).drain() {
            area.release(&*self.api);
        }
        for context in contexts.into_values() {
            self.shared.streams.forget(&context);
            context.end(&*self.api);
        }
    }
}

/// A status that says failure: a driver that gives NULL with success has none left.
pub(crate) fn failure(status: CUresult) -> CUresult {
    if status == CUDA_SUCCESS {
        CUDA_ERROR_OUT_OF_MEMORY
    } else {
        status
    }
}

/// A use of numbers that no honest client makes.
pub(crate) fn unknown(what: &str, id: u64) -> ProtocolError {
    ProtocolError::new(
        CloseCode::UnknownHandle,
        format!("there is no {what} {id:#x}"),
    )
}
