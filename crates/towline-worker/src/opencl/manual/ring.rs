//! Transfers of devices with memory of their own: through pinned slots of their queue.
//!
//! Mapping a large buffer costs such a device an allocation of pinned memory each time; slots pay once. A transfer is cut into
//! windows, each is enqueued at once and uses a slot, so the device copies one window while the network moves others. Queues that
//! keep no order do without: their transfers map.
//!
//! A read takes **spare** slots if there are enough of them. Other reads, and writes, go around a **ring**: each window is enqueued
//! behind a user event, and a slot's memory is granted to a write, or overwritten by a read, only when every earlier use of it is
//! over. Spare slots are there because user events are dear: once a queue of NVIDIA's (driver 580.159, H200) has waited for one, each
//! launch costs 40 % more for a second or so.
//!
//! Windows are small, so that the device starts early and ends soon after the network. Where many of them wait already, neither
//! matters, but their number does: from about a thousand commands that wait, the same driver enqueues by spinning, and transfers
//! become six times slower. So what is added to a long queue goes in **large** windows, through slots of their own.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use towline_backend::opencl::*;
use towline_wire::error::ProtocolError;
use towline_wire::push::Push;

use super::gate::Gate;
use super::place::{read, wait_list, write};
use super::transfer::Transfer;
use crate::opencl::completion::Watched;
use crate::opencl::session::{Queue, Session};
use crate::opencl::shared::{Raw, Shared};

/// Slots of a ring. More let the network run further ahead of the device.
const SLOTS: usize = 8;
/// Bytes of a slot. Measured on an H200 over loopback: smaller slots cost more commands, larger ones start the device later.
const SLOT_BYTES: usize = 2 << 20;
/// Bytes of a slot for what stands behind many windows.
const LARGE_SLOT_BYTES: usize = 8 << 20;
/// As many windows of a queue may wait before large ones are taken: a write of 256 MiB is still cut small.
const MANY_WINDOWS: usize = 192;

/// Allocations, of a ring's size each, that spare slots may take.
const SPARE_RINGS: usize = 4;

/// Bytes of a ring of small slots, and of an allocation for spare slots.
const RING_BYTES: usize = SLOTS * SLOT_BYTES;
/// Most pinned memory of a session: hosts run out of it before they run out of memory. Spare slots take half at the most, so that
/// they leave rings to queues that come later. What goes beyond maps.
const PINNED_LIMIT: u64 = 1 << 30;

/// The slots of one queue.
pub(crate) struct Ring {
    small: Slots,
    /// Made when many windows wait for the first time; `Some(None)` where the vendor did not give the memory then.
    large: Option<Option<Slots>>,
    /// Windows of the queue that are not over.
    waiting: Arc<AtomicUsize>,
    spare: Arc<Mutex<Vec<Spare>>>,
    /// Allocations that spare slots have taken.
    spare_rings: usize,
}

/// Slots that are taken in turn.
struct Slots {
    slots: Vec<Arc<Slot>>,
    next: usize,
}

/// One window among those of its queue that are not over.
struct Waiting(Arc<AtomicUsize>);

impl Waiting {
    fn new(all: &Arc<AtomicUsize>) -> Self {
        all.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(all))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A slot that is used by one window at a time, and not queued for.
#[derive(Clone)]
struct Spare {
    _pinned: Arc<Pinned>,
    memory: Raw,
}

/// A spare slot in use; given back when it is dropped.
struct Lent {
    slot: Spare,
    to: Arc<Mutex<Vec<Spare>>>,
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut spare = self.to.lock().unwrap_or_else(PoisonError::into_inner);
        spare.push(self.slot.clone());
    }
}

/// Pinned memory, given back when the last transfer through it is over.
struct Pinned {
    shared: Arc<Shared>,
    queue: Raw,
    buffer: Raw,
    memory: Raw,
    _counted: Counted,
}

/// A part of the session's pinned memory.
struct Counted {
    shared: Arc<Shared>,
    bytes: u64,
}

impl Counted {
    /// Counts so many bytes, if no more than `limit` are pinned then.
    fn take(shared: &Arc<Shared>, bytes: usize, limit: u64) -> Option<Self> {
        let bytes = bytes as u64;
        let before = shared.pinned_bytes.fetch_add(bytes, Ordering::Relaxed);
        let counted = Self {
            shared: Arc::clone(shared),
            bytes,
        };
        // Dropping it gives the bytes back.
        (before.saturating_add(bytes) <= limit).then_some(counted)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.shared
            .pinned_bytes
            .fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// One slot and the uses that wait for it.
struct Slot {
    _pinned: Arc<Pinned>,
    memory: Raw,
    uses: Mutex<Uses>,
}

#[derive(Default)]
struct Uses {
    waiting: VecDeque<Use>,
    next: u64,
    /// Opens when the contents that the latest read left here have been sent.
    sent: Option<Arc<Gate>>,
}

struct Use {
    id: u64,
    over: bool,
    start: Option<Box<dyn FnOnce() + Send>>,
}

impl Slot {
    /// Adds a use; `start` runs when all uses before it are over.
    fn enter(&self, start: Option<Box<dyn FnOnce() + Send>>) -> u64 {
        let mut uses = self.uses();
        let id = uses.next;
        uses.next += 1;
        uses.waiting.push_back(Use {
            id,
            over: false,
            start,
        });
        Self::go_on(uses);
        id
    }

    /// Ends a use.
    fn leave(&self, id: u64) {
        let mut uses = self.uses();
        if let Some(ended) = uses.waiting.iter_mut().find(|other| other.id == id) {
            ended.over = true;
        }
        Self::go_on(uses);
    }

    /// Forgets ended uses at the front and starts the one that is first now.
    fn go_on(mut uses: MutexGuard<'_, Uses>) {
        while uses.waiting.front().is_some_and(|first| first.over) {
            uses.waiting.pop_front();
        }
        let start = uses
            .waiting
            .front_mut()
            .and_then(|first| first.start.take());
        drop(uses);
        if let Some(start) = start {
            start();
        }
    }

    fn uses(&self) -> MutexGuard<'_, Uses> {
        self.uses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slots {
    /// Pins memory for a queue's transfers; `None` where the vendor does not give it.
    fn new(shared: &Arc<Shared>, queue: &Queue, slot_bytes: usize) -> Option<Self> {
        let pinned = Arc::new(Pinned::new(
            shared,
            queue,
            SLOTS * slot_bytes,
            PINNED_LIMIT,
        )?);
        let slot = |index: usize| {
            let memory = Raw(pinned.memory.0.wrapping_byte_add(index * slot_bytes));
            Arc::new(Slot {
                _pinned: Arc::clone(&pinned),
                memory,
                uses: Mutex::default(),
            })
        };
        Some(Self {
            slots: (0..SLOTS).map(slot).collect(),
            next: 0,
        })
    }

    fn take(&mut self) -> Arc<Slot> {
        let slot = Arc::clone(&self.slots[self.next % SLOTS]);
        self.next += 1;
        slot
    }
}

impl Ring {
    /// Pins memory for a queue's transfers; `None` where the vendor does not give it.
    fn new(shared: &Arc<Shared>, queue: &Queue) -> Option<Self> {
        Some(Self {
            small: Slots::new(shared, queue, SLOT_BYTES)?,
            large: None,
            waiting: Arc::default(),
            spare: Arc::default(),
            spare_rings: 0,
        })
    }

    /// Whether so many small windows more would be too many.
    fn wants_large(&mut self, windows: usize, shared: &Arc<Shared>, queue: &Queue) -> bool {
        let waiting = self.waiting.load(Ordering::Relaxed);
        if windows < 2 || waiting + windows <= MANY_WINDOWS {
            return false;
        }
        self.large
            .get_or_insert_with(|| {
                let slots = Slots::new(shared, queue, LARGE_SLOT_BYTES);
                if slots.is_none() {
                    log::warn!("no pinned memory for many transfers at once: they will be slower");
                }
                slots
            })
            .is_some()
    }

    fn take(&mut self, large: bool) -> Arc<Slot> {
        match &mut self.large {
            Some(Some(slots)) if large => slots.take(),
            _ => self.small.take(),
        }
    }

    /// So many spare slots, if there are or may be made as many.
    fn borrow(&mut self, count: usize, shared: &Arc<Shared>, queue: &Queue) -> Vec<Lent> {
        if count > SPARE_RINGS * SLOTS {
            return Vec::new();
        }
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        while spare.len() < count && self.spare_rings < SPARE_RINGS {
            // Without memory the ring has to do, now and later.
            self.spare_rings += 1;
            if let Some(pinned) = Pinned::new(shared, queue, RING_BYTES, PINNED_LIMIT / 2) {
                let pinned = Arc::new(pinned);
                spare.extend((0..SLOTS).map(|index| Spare {
                    memory: Raw(pinned.memory.0.wrapping_byte_add(index * SLOT_BYTES)),
                    _pinned: Arc::clone(&pinned),
                }));
            }
        }
        let Some(left) = spare.len().checked_sub(count) else {
            return Vec::new();
        };
        let lend = |slot| Lent {
            slot,
            to: Arc::clone(&self.spare),
        };
        spare.drain(left..).map(lend).collect()
    }
}

impl Pinned {
    fn new(shared: &Arc<Shared>, known: &Queue, bytes: usize, limit: u64) -> Option<Self> {
        let counted = Counted::take(shared, bytes, limit)?;
        let api = &shared.api;
        let context = known.context.0.cast();
        let (flags, mut status) = (CL_MEM_ALLOC_HOST_PTR as cl_mem_flags, CL_SUCCESS);
        // A queue of its own: mapping here must not wait for the application's commands.
        // SAFETY: context and device are live as long as the application's queue, which is.
        let queue =
            unsafe { api.clCreateCommandQueue(context, known.device.0.cast(), 0, &raw mut status) };
        if queue.is_null() {
            return None;
        }
        // SAFETY: the context is live, no host pointer is given.
        let buffer = unsafe {
            api.clCreateBuffer(context, flags, bytes, std::ptr::null_mut(), &raw mut status)
        };
        let mut pinned = Self {
            shared: Arc::clone(shared),
            queue: Raw(queue.cast()),
            buffer: Raw(buffer.cast()),
            memory: Raw(std::ptr::null_mut()),
            _counted: counted,
        };
        if buffer.is_null() {
            return None;
        }
        // SAFETY: queue and buffer were just made; the map covers the buffer.
        pinned.memory = Raw(unsafe {
            api.clEnqueueMapBuffer(
                queue,
                buffer,
                CL_TRUE as cl_bool,
                (CL_MAP_READ | CL_MAP_WRITE) as cl_map_flags,
                0,
                bytes,
                0,
                std::ptr::null(),
                std::ptr::null_mut(),
                &raw mut status,
            )
        });
        (!pinned.memory.0.is_null()).then_some(pinned)
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let api = &self.shared.api;
        let (queue, buffer) = (self.queue.0.cast(), self.buffer.0.cast());
        if !self.memory.0.is_null() {
            let (none, event) = (std::ptr::null(), std::ptr::null_mut());
            // SAFETY: the mapping is this object's and used by nobody any more.
            unsafe { api.clEnqueueUnmapMemObject(queue, buffer, self.memory.0, 0, none, event) };
        }
        if !self.buffer.0.is_null() {
            // SAFETY: the reference is this object's.
            unsafe { api.clReleaseMemObject(buffer) };
        }
        // SAFETY: as above.
        unsafe { api.clReleaseCommandQueue(queue) };
    }
}

/// One window of a transfer: its place in the payload and the slot that it goes through.
struct Window {
    offset: usize,
    length: usize,
    memory: Raw,
    slot: Through,
    done: Raw,
    waiting: Waiting,
}

/// How a window has its slot.
enum Through {
    Spare(Lent),
    /// Behind earlier uses of it, with what the window, or the next use, waits for.
    Ring(Arc<Slot>, Arc<Gate>),
}

impl Session {
    /// Whether the transfer's queue has a ring, for what can be cut into windows; makes it at the first transfer.
    pub(super) fn has_ring(&mut self, transfer: &Transfer) -> bool {
        if transfer.place.row_bytes() > SLOT_BYTES {
            return false;
        }
        let Some(Watched {
            queue,
            in_order: true,
        }) = self.watched(transfer.queue)
        else {
            return false;
        };
        if !self.rings.contains_key(&queue) {
            let Some(known) = self.queues.get(&queue) else {
                return false;
            };
            let ring = Ring::new(&self.shared, known);
            if ring.is_none() {
                log::warn!("the vendor gives no pinned memory: transfers will be slower");
            }
            self.rings.insert(queue, ring);
        }
        matches!(self.rings.get(&queue), Some(Some(_)))
    }

    pub(super) fn write_ringed(
        &mut self,
        transfer: &Transfer,
        payload: u64,
    ) -> Result<(), ProtocolError> {
        let windows = match self.enqueue_windows(transfer, true)? {
            Ok(windows) => windows,
            Err(status) => {
                self.ungranted(payload, status);
                return Ok(());
            }
        };
        let ends = windows
            .iter()
            .map(|window| self.kept_event(window.done))
            .collect();
        for window in windows {
            let Window {
                offset,
                length,
                memory,
                slot,
                done,
                waiting,
            } = window;
            let Through::Ring(slot, gate) = slot else {
                unreachable!("writes go around the ring");
            };
            let shared = Arc::clone(&self.shared);
            let grant = move || {
                let (offset, length) = (offset as u64, length as u64);
                let opened = shared.payloads.open(
                    payload,
                    offset,
                    length,
                    memory,
                    Box::new(move |whole| gate.finish(whole)),
                );
                match opened {
                    Ok(()) => shared.push(&Push::Grant {
                        payload,
                        offset,
                        length,
                    }),
                    Err(error) => shared.close(&error),
                }
            };
            let id = slot.enter(Some(Box::new(grant)));
            let over = move |_| {
                drop(waiting);
                slot.leave(id);
            };
            self.shared
                .when_done(self.watched(transfer.queue), done, over);
        }
        self.conclude(transfer, ends)
    }

    pub(super) fn read_ringed(
        &mut self,
        transfer: &Transfer,
        payload: u64,
    ) -> Result<(), ProtocolError> {
        let windows = match self.enqueue_windows(transfer, false)? {
            Ok(windows) => windows,
            Err(status) => {
                self.ungranted(payload, status);
                return Ok(());
            }
        };
        let ends = windows
            .iter()
            .map(|window| self.kept_event(window.done))
            .collect();
        let Some(last) = windows.last() else {
            return Ok(());
        };
        self.shared.read_started(payload, last.done.0.cast());
        // Windows under way, and the first failure of any: one that failed leaves the payload incomplete.
        let progress = Arc::new((AtomicU64::new(windows.len() as u64), AtomicI32::new(0)));
        for window in windows {
            let Window {
                offset,
                length,
                memory,
                slot,
                done,
                waiting,
            } = window;
            let id = match &slot {
                Through::Ring(slot, _) => slot.enter(None),
                Through::Spare(_) => 0,
            };
            let (shared, progress) = (Arc::clone(&self.shared), Arc::clone(&progress));
            let sent = move |status: i32| {
                let (left, failure) = &*progress;
                let _ = failure.compare_exchange(0, status, Ordering::AcqRel, Ordering::Relaxed);
                match slot {
                    Through::Ring(slot, gate) => {
                        gate.finish(true);
                        slot.leave(id);
                    }
                    Through::Spare(lent) => drop(lent),
                }
                if left.fetch_sub(1, Ordering::AcqRel) == 1 {
                    shared.settle_before_answer();
                    match failure.load(Ordering::Acquire) {
                        0 => shared.post(&Push::Sent { payload }),
                        status => shared.post(&Push::NoData { payload, status }),
                    }
                    shared.flush();
                    shared.read_sent(payload);
                }
            };
            let sender = Arc::clone(&self.shared);
            let go = move |status: i32| {
                drop(waiting);
                match status {
                    0 => {
                        let (offset, length) = (offset as u64, length as u64);
                        let sent = Box::new(move |whole| {
                            sent(match whole {
                                true => 0,
                                false => CL_OUT_OF_RESOURCES,
                            });
                        });
                        sender.payloads.send(payload, offset, length, memory, sent);
                    }
                    status => sent(status),
                }
            };
            self.shared
                .when_done(self.watched(transfer.queue), done, go);
        }
        self.conclude(transfer, ends)
    }

    /// Enqueues all windows of a transfer; the status with which the vendor refused one, which has been told.
    fn enqueue_windows(
        &mut self,
        transfer: &Transfer,
        writing: bool,
    ) -> Result<Result<Vec<Window>, cl_int>, ProtocolError> {
        let context = self.context(transfer.queue);
        let known = self.queues.get(&transfer.queue.addr()).copied();
        let (Some(known), Some(Some(ring))) = (known, self.rings.get_mut(&transfer.queue.addr()))
        else {
            return Ok(Err(CL_OUT_OF_RESOURCES));
        };
        let Some(mut parts) = transfer.place.parts(SLOT_BYTES) else {
            return Ok(Err(CL_OUT_OF_RESOURCES));
        };
        let large = ring.wants_large(parts.len(), &self.shared, &known);
        if large {
            parts = transfer.place.parts(LARGE_SLOT_BYTES).unwrap_or(parts);
        }
        let mut windows: Vec<Window> = Vec::new();
        let mut spare = match writing || large {
            true => Vec::new(),
            false => ring.borrow(parts.len(), &self.shared, &known),
        };
        for (offset, place) in parts {
            let mut waits = match offset {
                0 => transfer.waits.clone(),
                _ => Default::default(),
            };
            let (memory, slot) = match spare.pop() {
                Some(lent) => (lent.slot.memory, Through::Spare(lent)),
                None => {
                    let slot = ring.take(large);
                    let gate = Arc::new(Gate::new(&self.shared, context));
                    let before = match writing {
                        true => Some(Arc::clone(&gate)),
                        false => slot.uses().sent.replace(Arc::clone(&gate)),
                    };
                    // Behind commands that are under way, NVIDIA's driver (580.159) may wait for ever for an event that is complete.
                    let before = before.filter(|gate| !gate.is_open());
                    waits.extend(before.iter().map(|gate| gate.event()));
                    (slot.memory, Through::Ring(slot, gate))
                }
            };
            let waits = wait_list(&waits);
            let mut done: cl_event = std::ptr::null_mut();
            let (api, data) = (&*self.api, memory.0.cast());
            let status = match writing {
                // SAFETY: the slot's memory lives as long as the slot, which the completion holds.
                true => unsafe { write(api, transfer, &place, data, waits, &raw mut done) },
                // SAFETY: as above.
                false => unsafe { read(api, transfer, &place, false, data, waits, &raw mut done) },
            };
            if done.is_null() {
                // A write's gate holds the write itself back, which must fail; a read's holds the slot's next use back, which must not.
                if let Through::Ring(_, gate) = &slot {
                    gate.finish(!writing);
                }
                for Window {
                    slot,
                    done,
                    waiting,
                    ..
                } in windows
                {
                    // The slot is the command's until that has ended.
                    let id = match &slot {
                        Through::Ring(slot, gate) => {
                            gate.finish(!writing);
                            slot.enter(None)
                        }
                        Through::Spare(_) => 0,
                    };
                    let ended = move |_| {
                        drop(waiting);
                        match slot {
                            Through::Ring(slot, _) => slot.leave(id),
                            Through::Spare(lent) => drop(lent),
                        }
                    };
                    self.shared
                        .when_done(self.watched(transfer.queue), done, ended);
                }
                self.unwritable(transfer, status)?;
                return Ok(Err(status));
            }
            windows.push(Window {
                offset,
                length: place.size,
                memory,
                slot,
                done: Raw(done.cast()),
                waiting: Waiting::new(&ring.waiting),
            });
        }
        // SAFETY: the queue is live. Completion comes only for commands that were submitted.
        unsafe { self.api.clFlush(transfer.queue) };
        Ok(Ok(windows))
    }

    /// Another reference to an event.
    pub(super) fn kept_event(&self, event: Raw) -> Raw {
        // SAFETY: the caller's event is live.
        unsafe { self.api.clRetainEvent(event.0.cast()) };
        event
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use towline_transport::memory::MemoryTransport;
    use towline_transport::{Address, ConnectOptions, Transport};

    use super::*;
    use crate::link::Link;
    use crate::payload::Payloads;

    fn shared() -> Arc<Shared> {
        let transport = MemoryTransport::new();
        let address: Address = "memory://ring".parse().expect("the address is well formed");
        let listener = transport.listen(&address).expect("the name is free");
        let lane = transport
            .connect(&address, &ConnectOptions::default())
            .expect("the listener is there");
        drop(listener);
        let api = Arc::new(NullOpenCl::new(1));
        Arc::new(Shared::new(
            api,
            Arc::new(Link::new(lane, Arc::default(), Payloads::new(1), None)),
            Arc::default(),
        ))
    }

    fn slot() -> Slot {
        let shared = shared();
        let none = Raw(std::ptr::null_mut());
        let pinned = Arc::new(Pinned {
            _counted: Counted::take(&shared, RING_BYTES, PINNED_LIMIT).expect("nothing is pinned"),
            shared,
            queue: none,
            buffer: none,
            memory: none,
        });
        Slot {
            _pinned: pinned,
            memory: none,
            uses: Mutex::default(),
        }
    }

    #[test]
    fn a_session_pins_memory_up_to_a_limit_and_gets_it_back() {
        let shared = shared();
        let pin = |limit| Counted::take(&shared, RING_BYTES, limit);
        let spare = std::iter::from_fn(|| pin(PINNED_LIMIT / 2)).collect::<Vec<_>>();
        assert_eq!((spare.len() * RING_BYTES) as u64, PINNED_LIMIT / 2);
        let rings = std::iter::from_fn(|| pin(PINNED_LIMIT)).collect::<Vec<_>>();
        assert_eq!((rings.len() * RING_BYTES) as u64, PINNED_LIMIT / 2);
        drop((spare, rings));
        assert_eq!(shared.pinned_bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_use_starts_when_all_before_it_are_over_in_any_order() {
        let (slot, (sender, receiver)) = (slot(), channel());
        let start = |name: &'static str| -> Option<Box<dyn FnOnce() + Send>> {
            let sender = sender.clone();
            Some(Box::new(move || {
                sender.send(name).expect("the test listens")
            }))
        };
        let first = slot.enter(start("first"));
        let second = slot.enter(None);
        let _third = slot.enter(start("third"));
        assert_eq!(receiver.try_iter().collect::<Vec<_>>(), ["first"]);
        slot.leave(second);
        assert_eq!(receiver.try_iter().count(), 0);
        slot.leave(first);
        assert_eq!(receiver.try_iter().collect::<Vec<_>>(), ["third"]);
    }
}
