//! What all threads of a CUDA session share, and how completions become pushes.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use smallvec::SmallVec;
use towline_backend::cuda::*;
use towline_session::{Entry, Numbers};
use towline_wire::push::Push;

use super::areas::Areas;
use super::beacon::Beacons;
use super::broker::Broker;
use super::collective::Collectives;
use super::context::Context;
use super::graph::Graphs;
use super::manual::{Imported, Sharing};
use super::pinned::PinnedBytes;
use super::placed::Placed;
use super::streams::{Streams, Target};
use crate::link::{Link, Raw};

/// What is to be done once an event has passed.
type Then = Box<dyn FnOnce(&Arc<Shared>, CUresult) + Send>;

/// Where a function's parameters lie in the block that a launch passes.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    pub(crate) offsets: Box<[u32]>,
    /// Least bytes of a block.
    pub(crate) bytes: usize,
}

/// How far a read is.
#[derive(Debug, Clone, Copy)]
enum Reading {
    /// Not all of it has been enqueued.
    Parked,
    /// Its last copy is done when this event has passed.
    Enqueued(Raw),
    /// The device is done with it.
    Copied,
}

/// What threads other than the lane's have made.
#[derive(Default)]
pub(crate) struct Arrivals {
    /// Number, kind, object.
    pub(crate) objects: Vec<(u64, u8, Entry<Raw>)>,
    /// Physical memory of other sessions.
    pub(crate) imported: Vec<Imported>,
}

/// Completions of one stream, in its order.
#[derive(Default)]
struct Watch {
    jobs: VecDeque<(Arc<Context>, Raw, Then)>,
    running: bool,
}

/// In the place of all streams that have ended since pools got memory back in their order.
const ENDED: u64 = u64::MAX;

/// See the module's text.
pub(crate) struct Shared {
    pub(crate) api: Arc<dyn CudaApi>,
    pub(crate) link: Arc<Link>,
    pub(crate) streams: Streams,
    /// Reads of which the client does not have the data yet, by payload.
    reads: Mutex<BTreeMap<u64, Reading>>,
    /// Recordings of whose passing the client has not heard, by its numbers, with an event of ours behind each.
    records: Mutex<BTreeMap<u64, Raw>>,
    watches: Mutex<HashMap<u64, Watch>>,
    /// Functions of the application that streams stand behind, and whether they have returned.
    pub(crate) functions: Mutex<HashMap<u64, bool>>,
    /// What threads other than the lane's have made.
    arrivals: Mutex<Arrivals>,
    arrived: AtomicBool,
    /// Where the parameters of functions and kernels lie in their blocks, by the driver's address of each.
    layouts: RwLock<Numbers<Arc<Layout>>>,
    pub(crate) graphs: Mutex<Graphs>,
    pub(crate) pinned: Arc<PinnedBytes>,
    /// Memory that the client shares.
    pub(crate) areas: Mutex<Areas>,
    /// Memory at addresses that another server's driver chose.
    pub(crate) placed: Mutex<Placed>,
    /// Contexts whose end is under way, and the requests for a new primary one that wait for it.
    pub(crate) ending: Mutex<HashMap<u64, Vec<u64>>>,
    /// Device memory, by address.
    pub(crate) memory: Mutex<HashMap<u64, Held>>,
    /// Where the session offers and takes what sessions share.
    pub(crate) broker: Arc<dyn Broker>,
    pub(crate) sharing: Mutex<Sharing>,
    pub(crate) beacons: Beacons,
    /// Bytes of inline writes given back, and how many of them the client knows of.
    retired: Mutex<(u64, u64)>,
    faulted: AtomicBool,
    /// Streams in whose order pools have got memory back. The driver gives that to the system when it is waited for the next time.
    freed_on: Mutex<HashSet<u64>>,
    /// Whether there are any.
    freed_to_pools: AtomicBool,
    /// Pools that were allocated from, where there is a limit.
    pub(crate) pools_used: Mutex<Vec<Raw>>,
    /// Memory that pools get back, where there is a limit.
    pub(crate) frees: Mutex<Vec<Freed>>,
    /// Devices for which graphs allocate.
    pub(crate) graph_devices: Mutex<Vec<CUdevice>>,
    /// Communicators with other sessions.
    pub(crate) collectives: Collectives,
}

impl Deref for Shared {
    type Target = Link;

    fn deref(&self) -> &Link {
        &self.link
    }
}

/// Most completions of a stream that wait for each other to be sent.
const TOLD_AT_ONCE: usize = 64;
/// The client hears at the latest when so many bytes of inline writes have been given back.
const RETIRE_STEP: u64 = 256 << 10;

/// Whether a status says that the device failed: everything after it fails too.
pub(crate) fn is_fault(status: CUresult) -> bool {
    matches!(
        status,
        CUDA_ERROR_ECC_UNCORRECTABLE
            | CUDA_ERROR_NVLINK_UNCORRECTABLE
            | CUDA_ERROR_ILLEGAL_ADDRESS
            | CUDA_ERROR_LAUNCH_TIMEOUT
            | CUDA_ERROR_ASSERT
            | CUDA_ERROR_HARDWARE_STACK_ERROR
            | CUDA_ERROR_ILLEGAL_INSTRUCTION
            | CUDA_ERROR_MISALIGNED_ADDRESS
            | CUDA_ERROR_INVALID_ADDRESS_SPACE
            | CUDA_ERROR_INVALID_PC
            | CUDA_ERROR_LAUNCH_FAILED
    )
}

/// Device memory that a session holds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Held {
    pub(crate) bytes: u64,
    /// Bytes that the session is charged for it.
    pub(crate) charged: u64,
    /// The context that it ends with; 0 for memory of a pool.
    pub(crate) context: u64,
}

/// Memory that a pool gets back, which is charged until an event has passed.
pub(crate) struct Freed {
    pub(crate) context: Arc<Context>,
    pub(crate) event: Raw,
    pub(crate) charged: u64,
}

impl Shared {
    pub(crate) fn new(
        api: Arc<dyn CudaApi>,
        link: Arc<Link>,
        broker: Arc<dyn Broker>,
        collectives: Collectives,
    ) -> Self {
        Self {
            api,
            link,
            streams: Streams::default(),
            reads: Mutex::default(),
            records: Mutex::default(),
            watches: Mutex::default(),
            functions: Mutex::default(),
            graphs: Mutex::default(),
            pinned: Arc::default(),
            areas: Mutex::default(),
            placed: Mutex::default(),
            arrivals: Mutex::default(),
            arrived: AtomicBool::new(false),
            layouts: RwLock::default(),
            ending: Mutex::default(),
            memory: Mutex::default(),
            broker,
            sharing: Mutex::default(),
            beacons: Beacons::default(),
            retired: Mutex::default(),
            faulted: AtomicBool::new(false),
            freed_on: Mutex::default(),
            freed_to_pools: AtomicBool::new(false),
            pools_used: Mutex::default(),
            frees: Mutex::default(),
            graph_devices: Mutex::default(),
            collectives,
        }
    }

    /// A pool has got memory back in the order of a stream.
    pub(crate) fn freed_to_pool(&self, stream: u64) {
        lock(&self.freed_on).insert(stream);
        self.freed_to_pools.store(true, Ordering::Release);
    }

    /// A stream ends.
    pub(crate) fn stream_ends(&self, stream: u64) {
        let mut streams = lock(&self.freed_on);
        if streams.remove(&stream) {
            streams.insert(ENDED);
        }
    }

    /// Whether pools have got memory back that the driver may still hold.
    pub(crate) fn has_freed_to_pools(&self) -> bool {
        self.freed_to_pools.load(Ordering::Acquire)
    }

    /// The driver was waited for, for a stream or for all of them.
    pub(crate) fn pools_have_shrunk(&self, stream: Option<u64>) {
        if !self.has_freed_to_pools() {
            return;
        }
        self.settle_frees();
        let mut streams = lock(&self.freed_on);
        match stream {
            Some(stream) => streams.retain(|freed| ![stream, ENDED].contains(freed)),
            None => streams.clear(),
        }
        self.freed_to_pools
            .store(!streams.is_empty(), Ordering::Release);
    }

    /// Runs `job` on a thread of its own, which the session waits for at its end.
    pub(crate) fn start(self: &Arc<Self>, job: impl FnOnce(&Arc<Self>) + Send + 'static) {
        self.streams.job();
        let shared = Arc::clone(self);
        self.waiters.run(move || {
            job(&shared);
            shared.streams.job_over();
        });
    }

    /// Answers request `to`. The body is there when the status is success.
    pub(crate) fn reply<'a>(&self, to: u64, status: CUresult, body: &impl Message<'a>) {
        let mut bytes = Vec::new();
        if status == CUDA_SUCCESS {
            body.encode(&mut bytes);
        }
        self.answer(to, status, &bytes);
    }

    /// Answers request `to` with an encoded body.
    pub(crate) fn answer(&self, to: u64, status: CUresult, body: &[u8]) {
        self.look(status);
        let after = self.completed_reads();
        self.link.answer(to, status, &after, body);
    }

    /// Tells the client of a posted request that failed.
    #[inline]
    pub(crate) fn settle(&self, number: u64, call: u16, stream: u64, status: CUresult) {
        if status == CUDA_SUCCESS {
            return;
        }
        self.look(status);
        log::debug!(
            "request {number} ({}) failed: {}",
            call_name(call).unwrap_or("?"),
            status_name(status).unwrap_or("?")
        );
        self.post(&Push::Failed {
            number,
            call,
            queue: stream,
            status,
        });
    }

    /// Tells the client once that the device has failed.
    pub(crate) fn look(&self, status: CUresult) {
        if is_fault(status) && !self.faulted.swap(true, Ordering::AcqRel) {
            if status == CUDA_ERROR_ASSERT {
                crate::print::tell_assertions(|push| self.post(push));
            }
            self.post(&Push::Failed {
                number: 0,
                call: 0,
                queue: 0,
                status,
            });
        }
    }

    /// Enqueues an event of ours on the stream, whose context must be current.
    pub(crate) fn mark(&self, target: &Target) -> Result<Raw, CUresult> {
        let event = target.context.take_event(&*self.api)?;
        // SAFETY: the event is ours, the stream is live.
        let status = unsafe { self.api.cuEventRecord(event.0.cast(), target.stream()) };
        if status == CUDA_SUCCESS {
            self.enqueued(target);
            return Ok(event);
        }
        target.context.give_event(event);
        Err(status)
    }

    /// Calls `then` once `event`, the latest of its stream, has passed, and gives it back. A thread waits for the events of a stream in
    /// their order.
    pub(crate) fn when_done(
        self: &Arc<Self>,
        target: &Target,
        event: Raw,
        then: impl FnOnce(&Arc<Self>, CUresult) + Send + 'static,
    ) {
        let key = target.key;
        let mut watches = lock(&self.watches);
        let watch = watches.entry(key).or_default();
        let context = Arc::clone(&target.context);
        watch.jobs.push_back((context, event, Box::new(then)));
        if std::mem::replace(&mut watch.running, true) {
            return;
        }
        drop(watches);
        self.start(move |shared| shared.watch(key));
    }

    /// Whether a thread waits for the stream's events, or has not yet sent what came of them.
    pub(crate) fn is_watched(&self, target: &Target) -> bool {
        lock(&self.watches).contains_key(&target.key)
    }

    fn watch(self: &Arc<Self>, key: u64) {
        let mut untold = 0;
        while let Some((context, event, then)) = self.next_watched(key, &mut untold) {
            context.enter(&*self.api);
            // SAFETY: the event is ours until it is given back.
            let mut status = unsafe { self.api.cuEventQuery(event.0.cast()) };
            if status == CUDA_ERROR_NOT_READY || untold >= TOLD_AT_ONCE {
                self.flush();
                untold = 0;
            }
            if status == CUDA_ERROR_NOT_READY {
                // SAFETY: as above.
                status = unsafe { self.api.cuEventSynchronize(event.0.cast()) };
            }
            self.look(status);
            then(self, status);
            untold += 1;
            context.give_event(event);
        }
    }

    fn next_watched(&self, key: u64, untold: &mut usize) -> Option<(Arc<Context>, Raw, Then)> {
        loop {
            let mut watches = lock(&self.watches);
            let next = watches.get_mut(&key)?.jobs.pop_front();
            if next.is_some() {
                return next;
            }
            if std::mem::take(untold) == 0 {
                watches.remove(&key);
                return None;
            }
            drop(watches);
            // More may come meanwhile.
            self.flush();
        }
    }

    /// A recording of an event that the client will hear of.
    pub(crate) fn record_started(&self, record: u64, event: Raw) {
        lock(&self.records).insert(record, event);
    }

    /// Tells the client that a recording has passed, unless it knows.
    pub(crate) fn record_passed(&self, record: u64, status: CUresult) {
        // Told with the lock held: whoever finds it gone may answer a wait that covers it.
        let mut records = lock(&self.records);
        if records.remove(&record).is_some() {
            self.tell(record, status);
        }
    }

    /// Tells the client how an event of its own numbering ended.
    pub(crate) fn tell(&self, number: u64, status: CUresult) {
        self.tell_printed();
        self.look(status);
        let after = self.completed_reads();
        self.post(&Push::Event {
            event: number,
            status,
            after: List::Values(&after),
            times: None,
        });
    }

    /// Tells what kernels have printed.
    pub(crate) fn tell_printed(&self) {
        self.printing.tell(|push| self.post(push));
    }

    /// What the client must see before a wait of its own ends: what kernels printed, and recordings that have passed.
    pub(crate) fn settle_before_answer(&self) {
        self.tell_printed();
        let mut records = lock(&self.records);
        let query = |event: &Raw| {
            // SAFETY: the event is ours and stays so while the recording is in the list.
            unsafe { self.api.cuEventQuery(event.0.cast()) }
        };
        let passed: Vec<_> = records
            .iter()
            .map(|(record, event)| (*record, query(event)))
            .filter(|(_, status)| *status != CUDA_ERROR_NOT_READY)
            .collect();
        for (record, status) in passed {
            records.remove(&record);
            self.tell(record, status);
        }
    }

    /// A read has come whose data the client waits for.
    pub(crate) fn read_started(&self, payload: u64) {
        lock(&self.reads).insert(payload, Reading::Parked);
    }

    /// The last copy of a read stands before `event` on its stream.
    pub(crate) fn read_enqueued(&self, payload: u64, event: Raw) {
        lock(&self.reads).insert(payload, Reading::Enqueued(event));
    }

    /// The device is done with a read, and its event may serve another.
    pub(crate) fn read_copied(&self, payload: u64) {
        lock(&self.reads).insert(payload, Reading::Copied);
    }

    /// The data of a read is on its way, or will not come.
    pub(crate) fn read_over(&self, payload: u64) {
        lock(&self.reads).remove(&payload);
    }

    /// Reads that are done on the device and not sent.
    fn completed_reads(&self) -> SmallVec<[u64; 4]> {
        let reads = lock(&self.reads);
        let done = |reading: &Reading| match reading {
            Reading::Parked => false,
            Reading::Copied => true,
            Reading::Enqueued(event) => {
                // SAFETY: the event is ours and stays so while the list has it.
                let status = unsafe { self.api.cuEventQuery(event.0.cast()) };
                status != CUDA_ERROR_NOT_READY
            }
        };
        let done = reads.iter().filter(|(_, reading)| done(reading));
        done.map(|(payload, _)| *payload).collect()
    }

    /// Where a function's parameters lie; `None` where it was not loaded with its facts.
    pub(crate) fn layout(&self, function: Raw) -> Option<Arc<Layout>> {
        let layouts = self.layouts.read().unwrap_or_else(PoisonError::into_inner);
        layouts.get(&(function.0.addr() as u64)).cloned()
    }

    pub(crate) fn note_layout(&self, function: Raw, layout: Arc<Layout>) {
        let mut layouts = self.layouts.write().unwrap_or_else(PoisonError::into_inner);
        layouts.insert(function.0.addr() as u64, layout);
    }

    /// An object for the lane's table.
    pub(crate) fn arrive(&self, id: u64, tag: u8, entry: Entry<Raw>) {
        lock(&self.arrivals).objects.push((id, tag, entry));
        self.arrived.store(true, Ordering::Release);
    }

    /// Physical memory of another session, for the lane.
    pub(crate) fn arrive_imported(&self, imported: Imported) {
        lock(&self.arrivals).imported.push(imported);
        self.arrived.store(true, Ordering::Release);
    }

    /// What has come since the last call, if anything has.
    #[inline]
    pub(crate) fn arrivals(&self) -> Option<Arrivals> {
        if !self.arrived.load(Ordering::Acquire) {
            return None;
        }
        let mut arrivals = lock(&self.arrivals);
        self.arrived.store(false, Ordering::Release);
        Some(std::mem::take(&mut *arrivals))
    }

    /// Data of inline writes is not held any more.
    pub(crate) fn retire(&self, bytes: u64) {
        lock(&self.retired).0 += bytes;
    }

    /// Tells of them; of less than a step only when the client waits for nothing else.
    pub(crate) fn tell_retired(&self) {
        let mut retired = lock(&self.retired);
        if retired.0 - retired.1 >= RETIRE_STEP || (retired.0 > retired.1 && self.outbox.is_empty())
        {
            retired.1 = retired.0;
            let bytes = retired.0;
            drop(retired);
            self.post(&Push::Retired { bytes });
        }
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
