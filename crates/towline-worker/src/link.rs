//! What the sessions of every API share: the way back to the client, payload under way, threads to wait on.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use towline_session::Outbox;
use towline_transport::Connection;
use towline_wire::codec::List;
use towline_wire::error::ProtocolError;
use towline_wire::push::Push;

use crate::bonds::Bonds;
use crate::code::Code;
use crate::device_time::DeviceTime;
use crate::lane::PeerLanes;
use crate::memory_budget::{MemoryBudget, Reservation};
use crate::payload::Payloads;
use crate::print::Printing;
use crate::swap::Swap;
use crate::turns::Turns;
use crate::waiters::Waiters;

/// Figures of a session, for `towline status`.
#[derive(Debug, Default)]
pub struct Counters {
    /// Device memory held now.
    pub device_memory_bytes: AtomicU64,
    /// The most that was held at once.
    pub device_memory_peak: AtomicU64,
    /// The most that may be held, over all devices; 0 where nothing limits it.
    pub device_memory_limit: AtomicU64,
    /// That is all that the devices have: the driver itself refuses more, apart from memory that may lie outside a device.
    pub limit_is_whole: AtomicBool,
    /// Device memory that the driver holds for the session beside that: measured, where there is a limit.
    pub unlisted_bytes: AtomicU64,
    /// The part of it that contexts take.
    pub context_bytes: AtomicU64,
    /// Bytes of device code held now.
    pub code_bytes: AtomicU64,
    /// The most that may be held; 0 where nothing limits it.
    pub code_limit: AtomicU64,
    /// How long one kernel or graph may run, set before the session begins; 0 where nothing limits it.
    pub kernel_time_ms: AtomicU64,
    /// Bytes from the client.
    pub received_bytes: AtomicU64,
    /// Bytes to the client.
    pub sent_bytes: AtomicU64,
    /// Requests carried out.
    pub calls: AtomicU64,
    /// Kernels and graphs that were launched.
    pub launches: AtomicU64,
    /// How long devices were busy for the session, added up over devices.
    pub device_time_us: AtomicU64,
    /// The session's turns on devices that others use too.
    pub turns: Turns,
    /// Its bonds with other sessions.
    pub bonds: Bonds,
    /// Whether and how it gives its device memory up for others.
    pub swap: Swap,
    /// The session's account of its tenant's memory, if that is counted.
    tenant: OnceLock<Reservation>,
}

/// Adds to a sum that may be so large at most, and gives it; `None` where it may not.
pub(crate) fn add_within(sum: &AtomicU64, more: u64, limit: u64) -> Option<u64> {
    let mut held = sum.load(Ordering::Relaxed);
    while let Some(new) = held.checked_add(more).filter(|new| *new <= limit) {
        match sum.compare_exchange_weak(held, new, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return Some(new),
            Err(now) => held = now,
        }
    }
    None
}

impl Counters {
    /// Most device memory that the session may hold.
    pub(crate) fn memory_limit(&self) -> u64 {
        match self.device_memory_limit.load(Ordering::Relaxed) {
            0 => u64::MAX,
            limit => limit,
        }
    }

    /// Has device memory come out of a tenant's, too. Before the session begins.
    pub fn share(&self, budget: Arc<dyn MemoryBudget>) {
        // Of two tenants the first counts; there is one.
        let _ = self.tenant.set(Reservation::new(budget));
    }

    /// Whether the session may have less than the devices have.
    pub(crate) fn is_memory_limited(&self) -> bool {
        self.has_limit_of_its_own() || self.tenant.get().is_some()
    }

    /// As [`Self::is_memory_limited`], whatever its tenant may have.
    pub(crate) fn has_limit_of_its_own(&self) -> bool {
        self.memory_limit() != u64::MAX && !self.limit_is_whole.load(Ordering::Relaxed)
    }

    /// Whether the session's own limit, which no other session has a part in, leaves so many bytes more.
    pub(crate) fn is_within_own_limit(&self, bytes: u64) -> bool {
        let held = self.device_memory_bytes.load(Ordering::Relaxed);
        let unlisted = self.unlisted_bytes.load(Ordering::Relaxed);
        let sum = held.saturating_add(unlisted).saturating_add(bytes);
        sum <= self.memory_limit()
    }

    /// Device memory that the session may have besides what it has. May wait.
    pub(crate) fn memory_left(&self) -> u64 {
        let held = self.device_memory_bytes.load(Ordering::Relaxed);
        let unlisted = self.unlisted_bytes.load(Ordering::Relaxed);
        let own = self
            .memory_limit()
            .saturating_sub(held.saturating_add(unlisted));
        let tenant = self.tenant.get().map_or(u64::MAX, Reservation::left);
        own.min(tenant)
    }

    /// Charges memory that is about to be allocated; whether the session may have it. What was charged is given back by
    /// [`credit`](Self::credit).
    pub(crate) fn charge(&self, bytes: u64) -> bool {
        let unlisted = self.unlisted_bytes.load(Ordering::Relaxed);
        let limit = self.memory_limit().saturating_sub(unlisted);
        let Some(held) = add_within(&self.device_memory_bytes, bytes, limit) else {
            return false;
        };
        if self
            .tenant
            .get()
            .is_some_and(|tenant| !tenant.charge(bytes))
        {
            self.device_memory_bytes.fetch_sub(bytes, Ordering::Relaxed);
            return false;
        }
        self.device_memory_peak.fetch_max(held, Ordering::Relaxed);
        true
    }

    /// Memory is held no more.
    pub(crate) fn credit(&self, bytes: u64) {
        self.device_memory_bytes.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(tenant) = self.tenant.get() {
            tenant.credit(bytes);
        }
    }
}

/// Memory that a session is charged for as long as this lives.
#[derive(Debug)]
pub(crate) struct Charge {
    counters: Arc<Counters>,
    bytes: u64,
}

impl Charge {
    /// Charges for memory that is about to be allocated, if the session may have it.
    pub(crate) fn new(counters: &Arc<Counters>, bytes: u64) -> Option<Self> {
        counters.charge(bytes).then(|| Self {
            counters: Arc::clone(counters),
            bytes,
        })
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.counters.credit(self.bytes);
    }
}

/// Where a worker's time goes, in nanoseconds.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    /// The lane thread at work.
    pub(crate) lane_ns: AtomicU64,
    /// Threads that wait for the device because the client waits.
    pub(crate) device_ns: AtomicU64,
}

impl Usage {
    /// Runs `wait` and counts its time as the device's.
    pub(crate) fn waiting<T>(&self, wait: impl FnOnce() -> T) -> T {
        let started = std::time::Instant::now();
        let result = wait();
        self.waited(started.elapsed());
        result
    }

    /// Counts time that was waited for the device.
    pub(crate) fn waited(&self, time: Duration) {
        let ns = time.as_nanos() as u64;
        self.device_ns.fetch_add(ns, Ordering::Relaxed);
    }
}

/// A native object as threads pass it around. Objects of both APIs may be used from any thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Raw(pub(crate) *mut c_void);

// SAFETY: calls of both APIs are thread-safe by specification, and nothing here dereferences the pointer.
unsafe impl Send for Raw {}
// SAFETY: as above.
unsafe impl Sync for Raw {}

/// Bytes of pushes that may wait for a flush: a client that asks without reading blocks its lane and not the worker's memory.
const OUTBOX_LIMIT: usize = 4 << 20;
/// Most memory of the worker's own that reads and staged writes of a session hold at once.
const STAGED_LIMIT: u64 = 1 << 30;

/// Memory that a transfer is staged in, counted against the session's limit.
pub(crate) struct Staged {
    memory: Box<[u8]>,
    total: Arc<AtomicU64>,
}

impl Staged {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.memory
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut u8 {
        self.memory.as_mut_ptr()
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        let length = self.memory.len() as u64;
        self.total.fetch_sub(length, Ordering::Relaxed);
    }
}

/// See the module's text.
pub(crate) struct Link {
    pub(crate) lane: Arc<dyn Connection>,
    pub(crate) outbox: Outbox,
    pub(crate) received: AtomicU64,
    pub(crate) waiters: Waiters,
    pub(crate) payloads: Payloads,
    /// `None` where the API has no messages about peer lanes.
    pub(crate) peers: Option<Arc<dyn PeerLanes>>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) usage: Usage,
    pub(crate) printing: Printing,
    staged: Arc<AtomicU64>,
    pub(crate) code: Code,
    pub(crate) device_time: DeviceTime,
    ended: AtomicBool,
    /// The limit that a kernel has exceeded.
    overrun: OnceLock<Duration>,
}

impl Link {
    pub(crate) fn new(
        lane: Arc<dyn Connection>,
        counters: Arc<Counters>,
        payloads: Payloads,
        peers: Option<Arc<dyn PeerLanes>>,
    ) -> Self {
        Self {
            lane,
            outbox: Outbox::new(),
            received: AtomicU64::new(0),
            waiters: Waiters::default(),
            payloads,
            peers,
            counters,
            usage: Usage::default(),
            printing: Printing::global(),
            staged: Arc::default(),
            code: Code::default(),
            device_time: DeviceTime::new(),
            ended: AtomicBool::new(false),
            overrun: OnceLock::new(),
        }
    }

    /// Queues a push; it goes out with the next flush.
    pub(crate) fn post(&self, push: &Push<'_>) {
        let (_, waiting) = self.outbox.post(push.id(), |out| push.encode(out));
        if waiting >= OUTBOX_LIMIT {
            self.flush();
        }
    }

    /// Sends a push now.
    pub(crate) fn push(&self, push: &Push<'_>) {
        self.post(push);
        self.flush();
    }

    /// Sends what is queued. A client that is gone is noticed by the lane's reader.
    pub(crate) fn flush(&self) {
        let sent = self.outbox.flush(
            || self.received.load(Ordering::Acquire),
            |bytes| {
                self.counters
                    .sent_bytes
                    .fetch_add(bytes.len() as u64, Ordering::Relaxed);
                self.lane.send(&[std::io::IoSlice::new(bytes)])
            },
        );
        if let Err(error) = sent
            && !self.ended()
        {
            log::debug!("cannot send to the client: {error}");
            self.lane.shutdown();
        }
    }

    /// Answers request `to` with an encoded body. `after` names the reads that the client must have before it lets the caller go on.
    pub(crate) fn answer(&self, to: u64, status: i32, after: &[u64], body: &[u8]) {
        self.post(&Push::Reply {
            to,
            status,
            after: List::Values(after),
            body,
        });
    }

    /// Ends the session because the client broke the rules.
    pub(crate) fn close(&self, error: &ProtocolError) {
        log::warn!("closing the session: {error}");
        self.push(&Push::Close {
            code: error.code as u16,
            text: error.detail.as_bytes(),
        });
        self.end();
    }

    /// Marks the session as over and wakes whoever reads or writes its lanes.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.counters.turns.end();
        self.lane.shutdown();
        self.payloads.shutdown();
        if let Some(peers) = &self.peers {
            peers.shutdown();
        }
    }

    /// A kernel runs for longer than it may.
    pub(crate) fn overrun(&self, limit: Duration) {
        let _ = self.overrun.set(limit);
    }

    /// The limit that a kernel has exceeded.
    pub(crate) fn overrun_limit(&self) -> Option<Duration> {
        self.overrun.get().copied()
    }

    /// Whether the session is over.
    pub(crate) fn ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Memory to stage a transfer in; `None` when the session holds too much already.
    pub(crate) fn stage(&self, size: usize) -> Option<Staged> {
        let length = size as u64;
        let before = self.staged.fetch_add(length, Ordering::Relaxed);
        if before.saturating_add(length) > STAGED_LIMIT {
            self.staged.fetch_sub(length, Ordering::Relaxed);
            return None;
        }
        Some(Staged {
            memory: vec![0; size].into(),
            total: Arc::clone(&self.staged),
        })
    }
}
