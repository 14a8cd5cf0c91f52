//! Memory that host and device both use: managed memory, and pinned memory that kernels reach, unless a server of this host shares it.
//!
//! It lies on the device and in this process at the same addresses. Where the host has written, that goes to the device before the
//! device is given work; from then on the host's pages are protected, and come back from the device, in blocks, when the application
//! touches them. So both see each other's writes at the points where CUDA says that they do on devices without concurrent managed
//! access, and nothing moves that nobody uses. A kernel that runs sees no later write of the host's, nor the host a running kernel's.
//!
//! Memory that the application has registered has a [`twin`] at another address.

mod calls;
mod fault;
mod region;
mod twin;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use towline_backend::cuda as wire;
use towline_backend::cuda::*;
use towline_client::cuda::Session;

use crate::driver::{Acting, Driver, actor, lock};
use region::{Access, Region, Span};

pub(crate) use calls::{Hints, Prefetch, batch, check_batch, location, ranges};
#[cfg(test)]
pub(crate) use region::map_private;
pub(crate) use region::{Hold, hold, let_go};
pub(crate) use twin::Twins;

/// What is protected and fetched at once, at least.
const BLOCK: usize = 64 << 10;
/// Most bytes that are fetched at once where the application reads on and on.
const AHEAD: usize = 16 << 20;
/// Sizes and addresses are rounded to what physical memory is.
const ROUND: usize = 2 << 20;
/// Where mirrors begin: nothing else of a process lies there, and drivers give these addresses out where they are asked for.
const FIRST: u64 = 0x4100_0000_0000;
/// Bytes of a page, at most: what is protected begins and ends at such.
const PAGE: usize = 4096;
/// How often another address is tried.
const ATTEMPTS: usize = 64;

/// The newest contents of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holder {
    /// The device has them; the host may not look.
    Device,
    /// Both have them.
    Both,
    /// The host has them.
    Host,
}

/// Whose work may use memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attached {
    /// Any stream's.
    All,
    /// The host's alone.
    Host,
    /// This stream's alone.
    Stream(u64),
}

/// Blocks of a mirror.
struct Blocks {
    holders: Vec<Holder>,
    /// Those that the host may look at.
    here: BTreeSet<usize>,
    attached: Attached,
    /// The block behind those that were fetched last, and how many those were.
    next: (usize, usize),
}

/// Memory on both sides.
pub(crate) struct Mirror {
    region: Region,
    /// Where the device has it: at the addresses of the view, but for pages of the application's own.
    device: u64,
    session: Arc<Session>,
    context: u64,
    lane: Arc<PushLane>,
    /// The number of the device's memory; 0 where it is a variable's.
    memory: u64,
    blocks: Mutex<Blocks>,
}

/// How a context's mirrors get to the device: over a stream of their own, which others wait for.
struct PushLane {
    stream: u64,
    event: u64,
    state: Mutex<Pushed>,
}

#[derive(Default)]
struct Pushed {
    /// How often something was sent.
    count: u64,
    /// What each stream has waited for.
    waited: HashMap<u64, u64>,
}

/// The mirrors of the process.
#[derive(Default)]
pub(crate) struct Mirrors {
    any: AtomicBool,
    /// Whether registered memory has twins.
    twins: AtomicBool,
    all: Mutex<BTreeMap<u64, Arc<Mirror>>>,
    lanes: Mutex<HashMap<u64, Arc<PushLane>>>,
    /// How far addresses have been given out.
    given: AtomicU64,
    hints: Mutex<HashMap<u64, Hints>>,
}

impl Mirrors {
    /// An address that this process has not used for such memory, with so much room.
    fn next_address(&self, room: u64) -> u64 {
        FIRST + self.given.fetch_add(reserved(room), Ordering::Relaxed)
    }

    /// How much has been given out from the first address on.
    fn given(&self) -> u64 {
        self.given.load(Ordering::Relaxed)
    }
}

/// Addresses that memory of so many bytes takes on the server: the driver (580.159) heeds a wish for 1 GiB, and not one for 2 MiB.
fn reserved(size: u64) -> u64 {
    size.saturating_add(1)
        .checked_next_multiple_of(1 << 30)
        .unwrap_or(u64::MAX)
}

/// Bytes of a run of blocks, in a mirror of so many bytes.
fn span(first: usize, count: usize, size: usize) -> Span {
    first * BLOCK..((first + count) * BLOCK).min(size)
}

/// Runs of consecutive numbers: the first, and how many.
fn runs(numbers: impl Iterator<Item = usize>) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((first, count)) if *first + *count == number => *count += 1,
            _ => runs.push((number, 1)),
        }
    }
    runs
}

impl Mirror {
    fn new(region: Region, acting: &Acting<'_>, lane: Arc<PushLane>, memory: u64) -> Self {
        let count = region.size().div_ceil(BLOCK);
        Self {
            device: region.view() as u64,
            region,
            session: Arc::clone(acting.session),
            context: acting.context.number,
            lane,
            memory,
            blocks: Mutex::new(Blocks {
                // Zeros on both sides.
                holders: vec![Holder::Both; count],
                here: (0..count).collect(),
                attached: Attached::All,
                next: (0, 1),
            }),
        }
    }

    /// Where the application sees it, and its bytes.
    pub(super) fn place(&self) -> (usize, usize) {
        (self.region.view(), self.region.size())
    }

    /// Lets the application use the page of an address, which it has touched and was not allowed to; `false` where its contents are
    /// lost.
    pub(super) fn serve(&self, address: usize) -> bool {
        let offset = address - self.region.view();
        let at = offset / BLOCK;
        let blocks = &mut *lock(&self.blocks);
        match blocks.holders.get(at) {
            None => return false,
            // Another thread was served meanwhile.
            Some(Holder::Host) => {}
            Some(Holder::Both) => {
                blocks.holders[at] = Holder::Host;
                let one = span(at, 1, self.region.size());
                self.region.protect(&one, Access::Write);
            }
            Some(Holder::Device) => {
                let before = match blocks.next {
                    (next, count) if next == at => (2 * count).min(AHEAD / BLOCK),
                    _ => 1,
                };
                let left = blocks.holders.len() - at;
                let is_there = |one: &Holder| *one == Holder::Device;
                let wanted = blocks.holders.iter().skip(at).take(before.min(left));
                let count = wanted.take_while(|one| is_there(one)).count();
                blocks.next = (at + count, count);
                return self.fetch(blocks, at, count).is_ok();
            }
        }
        true
    }

    /// Brings blocks from the device.
    fn fetch(&self, blocks: &mut Blocks, first: usize, count: usize) -> Result<(), CUresult> {
        let bytes = span(first, count, self.region.size());
        let address = self.device + bytes.start as u64;
        let (mut target, size) = (self.region.target(&bytes), bytes.len());
        let (actor, stream) = (actor(self.context), self.lane.stream);
        let call = "access to managed memory";
        // SAFETY: the target is writable for the span, and left alone: the view of these blocks is protected.
        let read = unsafe {
            self.session
                .read(actor, call, stream, address, target.start(), size, true)
        };
        read.inspect_err(|status| {
            log::error!("memory at {address:#x} cannot be had from the server: error {status}");
        })?;
        if !self.region.put(&bytes, &target) {
            return Err(CUDA_ERROR_OPERATING_SYSTEM);
        }
        self.region.protect(&bytes, Access::Read);
        for at in first..first + count {
            blocks.holders[at] = Holder::Both;
            blocks.here.insert(at);
        }
        Ok(())
    }

    /// Gives these blocks to the device, sending what it has not; whether anything was sent.
    fn give(&self, blocks: &mut Blocks, within: std::ops::Range<usize>) -> Result<bool, CUresult> {
        let here: Vec<usize> = blocks.here.range(within).copied().collect();
        if here.is_empty() {
            return Ok(false);
        }
        fault::install();
        let size = self.region.size();
        for (first, count) in runs(here.iter().copied()) {
            // Before it is read: what another thread writes after this waits until it has been sent, and comes back with it.
            self.region.freeze(&span(first, count, size));
        }
        let dirty = here.iter().copied();
        let dirty = runs(dirty.filter(|at| blocks.holders.get(*at) == Some(&Holder::Host)));
        let (mut outcome, mut unsent) = (Ok(!dirty.is_empty()), HashSet::new());
        for (first, count) in dirty {
            let bytes = span(first, count, size);
            let address = self.device + bytes.start as u64;
            let (source, length) = (self.region.source(bytes.start), bytes.len());
            let (actor, stream) = (actor(self.context), self.lane.stream);
            let call = "managed memory";
            // SAFETY: what is frozen is readable as long as the region; it has left when this returns.
            let sent = unsafe {
                self.session
                    .write(actor, call, stream, address, source, length, true)
            };
            if let Err(status) = sent {
                outcome = Err(status);
                // The only copy of these bytes is still the host's.
                self.region.protect(&bytes, Access::Write);
                unsent.extend(first..first + count);
            }
        }
        let given: Vec<usize> = here.into_iter().filter(|at| !unsent.contains(at)).collect();
        for (first, count) in runs(given.iter().copied()) {
            self.region
                .protect(&span(first, count, size), Access::Nothing);
        }
        for at in given {
            blocks.holders[at] = Holder::Device;
            blocks.here.remove(&at);
        }
        outcome
    }

    /// Gives all of it back to the application for good, with what the device has. Fails where that cannot be had; what the application
    /// sees there is then what it had last.
    fn take_back(&self) -> Result<(), CUresult> {
        let blocks = &mut *lock(&self.blocks);
        let there = |(_, holder): &(usize, &Holder)| **holder == Holder::Device;
        let there = blocks.holders.iter().enumerate().filter(there);
        let most = AHEAD / BLOCK;
        let parts = runs(there.map(|(at, _)| at)).into_iter();
        let mut parts = parts.flat_map(|(first, count)| {
            let ends = first + count;
            let starts = (first..ends).step_by(most);
            starts.map(move |from| (from, most.min(ends - from)))
        });
        let fetched = parts.try_for_each(|(from, count)| self.fetch(blocks, from, count));
        blocks.holders.fill(Holder::Host);
        blocks.here.extend(0..blocks.holders.len());
        self.region.protect(&(0..self.region.size()), Access::Write);
        fetched
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        fault::remove(self.region.view());
    }
}

impl Driver {
    /// Whether an address is in memory that both sides have.
    #[inline]
    pub(crate) fn is_mirrored(&self, address: u64) -> bool {
        self.mirrors.any.load(Ordering::Acquire) && self.mirror(address).is_some()
    }

    /// Whether an address is in memory that kernels use at the address that the host has.
    #[inline]
    pub(crate) fn is_both(&self, address: u64) -> bool {
        self.is_mirrored(address) || self.is_reached(address)
    }

    fn mirror(&self, address: u64) -> Option<Arc<Mirror>> {
        let all = lock(&self.mirrors.all);
        let (start, mirror) = all.range(..=address).next_back()?;
        let inside = address - start < mirror.region.size() as u64;
        inside.then(|| Arc::clone(mirror))
    }

    /// Before work of a stream that may use any memory: what the host has written is on the device first.
    #[inline]
    pub(crate) fn before_work(
        &self,
        acting: &Acting<'_>,
        stream: wire::StreamHandle,
    ) -> Result<(), CUresult> {
        self.behind_written(acting, stream)?;
        self.give_twins(acting, stream)?;
        match self.mirrors.any.load(Ordering::Acquire) {
            true => self.give_all(acting, stream),
            false => Ok(()),
        }
    }

    /// As [`Self::before_work`], for work on these bytes alone.
    #[inline]
    pub(crate) fn before_use(
        &self,
        acting: &Acting<'_>,
        stream: wire::StreamHandle,
        address: u64,
        size: usize,
    ) -> Result<(), CUresult> {
        self.behind_written(acting, stream)?;
        if acting.context.twins.has_device(address) {
            return self.give_twins(acting, stream);
        }
        if !self.mirrors.any.load(Ordering::Acquire) {
            return Ok(());
        }
        let Some(mirror) = self.mirror(address) else {
            return Ok(());
        };
        let offset = (address - mirror.region.view() as u64) as usize;
        let end = offset.saturating_add(size).min(mirror.region.size());
        let within = offset / BLOCK..end.div_ceil(BLOCK).max(offset / BLOCK);
        let sent = mirror.give(&mut lock(&mirror.blocks), within)?;
        if sent {
            self.pushed(&mirror.session, mirror.context, &mirror.lane)?;
        }
        self.stand_behind(acting, stream, &mirror.lane)
    }

    fn give_all(&self, acting: &Acting<'_>, stream: wire::StreamHandle) -> Result<(), CUresult> {
        let of_server: Vec<Arc<Mirror>> = {
            let all = lock(&self.mirrors.all);
            let same = all
                .values()
                .filter(|mirror| Arc::ptr_eq(&mirror.session, acting.session));
            same.cloned().collect()
        };
        let mut lanes: Vec<Arc<PushLane>> = Vec::new();
        for mirror in of_server {
            let blocks = &mut *lock(&mirror.blocks);
            match blocks.attached {
                Attached::Host => continue,
                Attached::Stream(own) if own != stream.0 => continue,
                _ => {}
            }
            if mirror.give(blocks, 0..usize::MAX)? {
                self.pushed(&mirror.session, mirror.context, &mirror.lane)?;
            }
            if !lanes.iter().any(|lane| Arc::ptr_eq(lane, &mirror.lane)) {
                lanes.push(Arc::clone(&mirror.lane));
            }
        }
        lanes
            .iter()
            .try_for_each(|lane| self.stand_behind(acting, stream, lane))
    }

    /// Notes that something was sent on a lane.
    fn pushed(&self, session: &Session, context: u64, lane: &PushLane) -> Result<(), CUresult> {
        let mut state = lock(&lane.state);
        let mark = session.mark();
        session.forget(mark);
        session.post(
            actor(context),
            &wire::EventRecord {
                event: wire::EventHandle(lane.event),
                stream: wire::StreamHandle(lane.stream),
                flags: 0,
                record: mark,
            },
        )?;
        state.count += 1;
        Ok(())
    }

    /// Has a stream wait for what was sent on a lane, once.
    fn stand_behind(
        &self,
        acting: &Acting<'_>,
        stream: wire::StreamHandle,
        lane: &PushLane,
    ) -> Result<(), CUresult> {
        let mut state = lock(&lane.state);
        let count = state.count;
        if state.waited.get(&stream.0).copied().unwrap_or(0) == count {
            return Ok(());
        }
        acting.post(&wire::StreamWaitEvent {
            hStream: stream,
            hEvent: wire::EventHandle(lane.event),
            Flags: 0,
        })?;
        state.waited.insert(stream.0, count);
        Ok(())
    }

    /// The lane of a context, made with its first mirror.
    fn push_lane(&self, acting: &Acting<'_>) -> Result<Arc<PushLane>, CUresult> {
        let mut lanes = lock(&self.mirrors.lanes);
        if let Some(lane) = lanes.get(&acting.context.number) {
            return Ok(Arc::clone(lane));
        }
        let lane = PushLane {
            stream: acting.mint(wire::StreamHandle::TAG),
            event: acting.mint(wire::EventHandle::TAG),
            state: Mutex::default(),
        };
        acting.post(&wire::StreamCreate {
            phStream: wire::StreamHandle(lane.stream),
            Flags: CU_STREAM_NON_BLOCKING,
        })?;
        acting.session.note_apart(lane.stream);
        acting.post(&wire::EventCreate {
            phEvent: wire::EventHandle(lane.event),
            Flags: CU_EVENT_DISABLE_TIMING,
        })?;
        let lane = Arc::new(lane);
        lanes.insert(acting.context.number, Arc::clone(&lane));
        Ok(lane)
    }

    /// Has a mirror served from now on.
    fn enter_mirror(&self, mirror: Mirror) -> Result<(), CUresult> {
        let mirror = Arc::new(mirror);
        if !fault::add(&mirror) {
            return Err(CUDA_ERROR_OPERATING_SYSTEM);
        }
        let address = mirror.region.view() as u64;
        lock(&self.mirrors.all).insert(address, mirror);
        self.mirrors.any.store(true, Ordering::Release);
        Ok(())
    }

    /// Memory of zeros on the device, at addresses that this process has free too, and here.
    fn make_mirror(&self, acting: &Acting<'_>, size: usize) -> Result<u64, CUresult> {
        let size = size
            .checked_next_multiple_of(ROUND)
            .ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        for _ in 0..ATTEMPTS {
            let wanted = self.mirrors.next_address(size as u64);
            let Some(region) = Region::at(wanted, size) else {
                // Something else is there.
                self.mirrors.next_address(1 << 30);
                continue;
            };
            let address = region.view() as u64;
            let Some(memory) = self.back(acting, address, size)? else {
                continue;
            };
            let lane = self.push_lane(acting)?;
            acting.post(&wire::Memset {
                stream: wire::StreamHandle(lane.stream),
                address,
                pitch: 0,
                value: 0,
                element_size: 4,
                width: (size / 4) as u64,
                height: 1,
            })?;
            self.pushed(acting.session, acting.context.number, &lane)?;
            self.enter_mirror(Mirror::new(region, acting, lane, memory))?;
            return Ok(address);
        }
        log::warn!(
            "managed memory needs addresses that are free in this process and on the server: none were found"
        );
        Err(CUDA_ERROR_OUT_OF_MEMORY)
    }

    /// Puts memory of the context's device at these addresses: its number. `None` where they are in use on the server.
    fn back(
        &self,
        acting: &Acting<'_>,
        address: u64,
        size: usize,
    ) -> Result<Option<u64>, CUresult> {
        let call = "cuMemAllocManaged";
        let size = size as u64;
        let reserve = wire::AddressReserve {
            size: reserved(size),
            alignment: 0,
            hint: address,
        };
        let body = acting.call_for(call, &reserve)?;
        let reply = wire::AddressReserveReply::decode(&body).map_err(|_| acting.malformed())?;
        let there = reply.address.ok_or_else(|| acting.malformed())?;
        let unreserve = |at: u64| {
            acting.post(&wire::AddressFree {
                address: at,
                size: reserved(size),
            })
        };
        if there != address {
            unreserve(there)?;
            return Ok(None);
        }
        let memory = acting.mint(MEMORY_TAG);
        let create = wire::PhysicalCreate {
            device: acting.context.ordinal,
            size,
            flags: 0,
            memory,
        };
        if let Err(status) = acting.call_for(call, &create) {
            unreserve(address)?;
            return Err(status);
        }
        acting.post(&wire::PhysicalMap {
            address,
            size,
            offset: 0,
            memory,
        })?;
        let access = [
            CU_MEM_LOCATION_TYPE_DEVICE,
            acting.context.ordinal as u32,
            CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        ];
        let access = access.map(u64::from);
        acting.call_for(
            call,
            &wire::SetAccess {
                pool: wire::MemoryPoolHandle(0),
                address,
                size,
                words: access.len() as u32,
                access: wire::List::Values(&access),
            },
        )?;
        Ok(Some(memory))
    }

    /// Ends a mirror, once what uses it is done.
    pub(crate) fn end_mirror(&self, address: u64) -> Result<(), CUresult> {
        let mirror = lock(&self.mirrors.all).remove(&address);
        let mirror = mirror.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let acting = self.acting_in(self.context(mirror.context)?)?;
        // As the driver: what uses it is waited for.
        acting.synchronise_all()?;
        mirror.give_back(&acting)
    }

    /// The mirrors of a context end with it; the application may not look at them any more.
    pub(crate) fn drop_mirrors(&self, context: u64) {
        lock(&self.mirrors.all).retain(|_, mirror| mirror.context != context);
        lock(&self.mirrors.lanes).remove(&context);
    }
}

/// Kind of the numbers of physical memory.
const MEMORY_TAG: u8 = 0xfd;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_of_consecutive_numbers() {
        assert_eq!(
            runs([1, 2, 3, 7, 9, 10].into_iter()),
            [(1, 3), (7, 1), (9, 2)]
        );
        assert_eq!(runs(std::iter::empty()), []);
    }

    #[test]
    fn the_last_block_ends_with_the_mirror() {
        assert_eq!(span(1, 2, BLOCK * 2 + 10), BLOCK..BLOCK * 2 + 10);
    }
}
