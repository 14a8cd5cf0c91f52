//! Memory that host and device both use: managed memory, and pinned memory that kernels reach, unless a server of this host shares it.
//!
//! It lies on the device and in this process at the same addresses. Where the host has written, that goes to the device before the
//! device is given work; from then on the host's pages are protected, and come back from the device, in blocks, when the application
//! touches them. So both see each other's writes at the points where CUDA says that they do on devices without concurrent managed
//! access, and nothing moves that nobody uses. A kernel that runs sees later writes of the host's to pinned memory once that waits
//! or asks whether the kernel is done; the host sees none of a running kernel's.
//!
//! A block that the host fetches while the device works is *uncertain*: a kernel may change it yet. It goes back at the next wait, and the host
//! fetches it anew; of such a block only the bytes that the host has changed are sent, so that a kernel keeps what it writes beside them.
//!
//! A block that the host touches after each wait comes with the wait: [`ahead`].
//!
//! Memory that the application has registered has a [`twin`] at another address.

mod ahead;
mod calls;
mod fault;
mod places;
mod region;
mod twin;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use towline_backend::cuda as wire;
use towline_backend::cuda::*;
use towline_client::cuda::{Actor, Session, Source};
use towline_client::raw::HostPtr;

use crate::context::Context;
use crate::driver::{Acting, Driver, actor, lock, read};
use crate::memory::Kind;
use ahead::Ahead;
use places::Places;
use region::{Access, Region, Span};
use smallvec::SmallVec;

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
/// Bytes between the beginnings of allocations, at least.
const ALIGNMENT: usize = 512;
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

/// Contents of an uncertain block that the host has written to; `None` if it has not.
type Before = Option<Box<Written>>;

struct Written {
    /// Before the host wrote to it.
    before: Box<[u8]>,
    /// As the device was sent it last: at first as before.
    sent: Box<[u8]>,
}

/// Memory that both sides have, of all contexts of a session: the work of each may change it.
#[derive(Default)]
pub(crate) struct Mirrored {
    contexts: Mutex<Vec<Weak<Context>>>,
    pub(crate) twins: Twins,
    /// Some mirrors have uncertain blocks: to be asked without a lock.
    uncertain: AtomicBool,
    /// Threads that are about to give the device work, or to note that it has that.
    posting: AtomicUsize,
    /// Waits so far.
    waits: AtomicU64,
    /// Whether mirrors have blocks that are fetched with waits, and which do.
    any_ahead: AtomicBool,
    ahead: Mutex<Vec<Weak<Mirror>>>,
    all: Mutex<Vec<Weak<Mirror>>>,
}

/// As long as it lives, the device counts as busy.
pub(crate) struct Posting<'a>(&'a AtomicUsize);

impl Drop for Posting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

impl Mirrored {
    /// From before blocks are given to the device until the work that they are given for has been noted: a block that another thread
    /// fetches between is uncertain.
    #[inline]
    pub(crate) fn posting(&self) -> Posting<'_> {
        self.posting.fetch_add(1, Ordering::AcqRel);
        Posting(&self.posting)
    }

    /// A context of the session begins.
    pub(crate) fn add_context(&self, context: &Arc<Context>) {
        let mut contexts = lock(&self.contexts);
        contexts.retain(|known| known.strong_count() > 0);
        contexts.push(Arc::downgrade(context));
    }

    /// Whether a stream, or any, may have something to do.
    fn is_busy(&self, stream: Option<u64>) -> bool {
        // Asked first: who is no longer at it has noted the work.
        if self.posting.load(Ordering::Acquire) > 0 {
            return true;
        }
        let contexts = lock(&self.contexts);
        let mut contexts = contexts.iter().filter_map(Weak::upgrade);
        contexts.any(|context| context.is_busy(stream))
    }

    fn add(&self, mirror: &Arc<Mirror>) {
        let mut all = lock(&self.all);
        all.retain(|known| known.strong_count() > 0);
        all.push(Arc::downgrade(mirror));
    }

    /// Has a mirror's blocks fetched with waits.
    fn add_ahead(&self, mirror: &Arc<Mirror>) {
        let mirror = Arc::downgrade(mirror);
        let ahead = &mut *lock(&self.ahead);
        if !ahead.iter().any(|known| known.ptr_eq(&mirror)) {
            ahead.push(mirror);
        }
        self.any_ahead.store(true, Ordering::Release);
    }

    /// Behind a wait: fetches what the host touches behind each.
    fn fetch_ahead(&self, waits: u64) {
        // Without the list's lock, which is taken with a mirror's blocks held.
        let mut mirrors = std::mem::take(&mut *lock(&self.ahead));
        mirrors.retain(|mirror| {
            let mirror = mirror.upgrade();
            mirror.is_some_and(|mirror| mirror.fetch_ahead(waits))
        });
        let ahead = &mut *lock(&self.ahead);
        mirrors.retain(|mirror| !ahead.iter().any(|known| known.ptr_eq(mirror)));
        ahead.append(&mut mirrors);
        self.any_ahead.store(!ahead.is_empty(), Ordering::Release);
    }

    /// Waits so far, from 1 on: 0 is the number of none.
    fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed) + 1
    }

    fn all(&self) -> Vec<Arc<Mirror>> {
        lock(&self.all).iter().filter_map(Weak::upgrade).collect()
    }
}

/// Blocks of a mirror.
struct Blocks {
    holders: Vec<Holder>,
    /// Those that the host may look at.
    here: BTreeSet<usize>,
    /// Those of them that were fetched while the device worked.
    uncertain: BTreeMap<usize, Before>,
    /// Parts that may be transferred: all of it, but for pages of variables, between and around which the driver refuses bytes.
    parts: Vec<Span>,
    attached: Attached,
    /// Its attachment where no stream has it.
    unattached: Attached,
    /// Bytes were lost that host and device changed at the same time, of which the next wait tells.
    is_lost: bool,
    /// The block behind those that were fetched last, and how many those were.
    next: (usize, usize),
    ahead: Ahead,
}

/// Memory on both sides.
pub(crate) struct Mirror {
    region: Region,
    /// Where the device has it: at the addresses of the view, but for pages of the application's own.
    device: u64,
    session: Arc<Session>,
    context: u64,
    of: Arc<Mirrored>,
    lane: Arc<PushLane>,
    /// The number of the device's memory; 0 where it is a variable's.
    memory: u64,
    /// It is pinned memory, which host and kernels may natively use at once.
    is_pinned: bool,
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
    /// The count that each stream has waited for, by context and stream.
    waited: HashMap<(u64, u64), u64>,
}

/// The mirrors of the process.
#[derive(Default)]
pub(crate) struct Mirrors {
    any: AtomicBool,
    /// Whether registered memory has twins.
    twins: AtomicBool,
    /// Held by who gives the device pinned memory.
    promoting: Mutex<()>,
    all: Mutex<BTreeMap<u64, Arc<Mirror>>>,
    lanes: Mutex<HashMap<u64, Arc<PushLane>>>,
    sessions: Mutex<HashMap<u8, Arc<Mirrored>>>,
    places: Mutex<Places>,
    /// The end of all addresses that were ever given out, from the first on: to be asked without a lock.
    given: AtomicU64,
    hints: Mutex<HashMap<u64, Hints>>,
    pub(crate) registered: Bounds,
}

/// Bounds of all that was ever registered: to be asked without a lock.
pub(crate) struct Bounds {
    from: AtomicU64,
    to: AtomicU64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            from: AtomicU64::new(u64::MAX),
            to: AtomicU64::new(0),
        }
    }
}

impl Bounds {
    /// Takes in so many bytes more.
    pub(crate) fn widen(&self, start: u64, size: usize) {
        self.from.fetch_min(start, Ordering::Relaxed);
        self.to
            .fetch_max(start.saturating_add(size as u64), Ordering::Relaxed);
    }

    #[inline]
    fn may_hold(&self, address: u64) -> bool {
        address >= self.from.load(Ordering::Relaxed) && address < self.to.load(Ordering::Relaxed)
    }
}

impl Mirrors {
    /// The part that the contexts of a session share.
    pub(crate) fn of_session(&self, session: u8) -> Arc<Mirrored> {
        Arc::clone(lock(&self.sessions).entry(session).or_default())
    }

    /// A stream ends: it waits for nothing any more, and memory that was its alone is not any more.
    pub(crate) fn forget_stream(&self, stream: u64) {
        for lane in lock(&self.lanes).values() {
            lock(&lane.state).waited.retain(|(_, of), _| *of != stream);
        }
        if !self.any.load(Ordering::Acquire) {
            return;
        }
        let all: Vec<Arc<Mirror>> = lock(&self.all).values().cloned().collect();
        for mirror in all {
            let blocks = &mut *lock(&mirror.blocks);
            if blocks.attached == Attached::Stream(stream) {
                blocks.attached = blocks.unattached;
            }
        }
    }

    /// Something that `put` makes at an address with so much room, tried until it finds nothing else there.
    fn place<T>(
        &self,
        room: u64,
        mut put: impl FnMut(u64) -> Result<Option<T>, CUresult>,
    ) -> Result<Option<T>, CUresult> {
        let mut tried = SmallVec::<[u64; 4]>::new();
        let mut attempts = (0..ATTEMPTS).map_while(|_| {
            let address = lock(&self.places).take(room)?;
            self.given
                .fetch_max(address - FIRST + reserved(room), Ordering::Relaxed);
            tried.push(address);
            Some(put(address).transpose())
        });
        let placed = attempts.find_map(|made| made).transpose();
        // Nobody looks again where something else lies, unless that seems to be everywhere.
        if !matches!(placed, Ok(Some(_))) {
            tried.iter().for_each(|address| self.leave(*address));
        }
        placed
    }

    /// Nothing is at an address any more.
    fn leave(&self, address: u64) {
        lock(&self.places).give(address);
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

/// The common bytes of a span and these parts.
fn common<'a>(parts: &'a [Span], span: &'a Span) -> impl Iterator<Item = Span> + 'a {
    let cut = |part: &Span| part.start.max(span.start)..part.end.min(span.end);
    parts.iter().map(cut).filter(|part| !part.is_empty())
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
    /// Of the region, so many bytes are the application's.
    fn new(
        region: Region,
        bytes: usize,
        acting: &Acting<'_>,
        lane: Arc<PushLane>,
        memory: u64,
    ) -> Self {
        let size = region.size();
        let count = size.div_ceil(BLOCK);
        Self {
            device: region.view() as u64,
            region,
            session: Arc::clone(acting.session),
            context: acting.context.number,
            of: Arc::clone(&acting.context.mirrored),
            lane,
            memory,
            is_pinned: false,
            blocks: Mutex::new(Blocks {
                // Zeros on both sides.
                holders: vec![Holder::Both; count],
                here: (0..count).collect(),
                uncertain: BTreeMap::new(),
                parts: std::iter::once(0..bytes).collect(),
                attached: Attached::All,
                unattached: Attached::All,
                is_lost: false,
                next: (0, 1),
                ahead: Ahead::default(),
            }),
        }
    }

    /// Where the application sees it, and its bytes.
    pub(super) fn place(&self) -> (usize, usize) {
        (self.region.view(), self.region.size())
    }

    /// Lets the application use the page of an address, which it has touched and was not allowed to, by a write if `writes` says so;
    /// `false` where its contents are lost.
    pub(super) fn serve(self: &Arc<Self>, address: usize, writes: bool) -> bool {
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
                if let Some(written) = blocks.uncertain.get_mut(&at) {
                    let (before, sent) = (self.bytes(&one).into(), self.bytes(&one).into());
                    *written = Some(Box::new(Written { before, sent }));
                }
                blocks.ahead.write(at);
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
                if blocks.ahead.touch(at, self.of.waits()) {
                    self.of.add_ahead(self);
                }
                if writes && count == 1 {
                    blocks.ahead.write(at);
                    return self.fetch(blocks, at, count, Access::Write).is_ok();
                }
                return self.fetch(blocks, at, count, Access::Read).is_ok();
            }
        }
        true
    }

    /// Behind a wait: fetches what the host touches behind each; whether there is any such block.
    fn fetch_ahead(&self, waits: u64) -> bool {
        let blocks = &mut *lock(&self.blocks);
        // A kernel may change it yet.
        if !self.is_worked_on(blocks.attached) {
            let mut wanted = blocks.ahead.take(waits);
            wanted.retain(|(at, _)| blocks.holders.get(*at) == Some(&Holder::Device));
            for (write, access) in [(false, Access::Read), (true, Access::Write)] {
                let of = wanted.iter().filter(|(_, writes)| *writes == write);
                for (first, count) in runs(of.map(|(at, _)| *at)) {
                    // A touch asks again for a block that cannot be had now.
                    let _ = self.fetch(blocks, first, count, access);
                }
            }
        }
        blocks.ahead.any()
    }

    /// Whether the device has work that may change this memory, as far as is known.
    fn is_worked_on(&self, attached: Attached) -> bool {
        match attached {
            Attached::All => self.of.is_busy(None),
            Attached::Host => false,
            Attached::Stream(stream) => self.of.is_busy(Some(stream)),
        }
    }

    /// The host's bytes of a span that it cannot write.
    fn bytes(&self, span: &Span) -> &[u8] {
        // SAFETY: the source of a frozen span is readable as long as the region, and nobody writes there.
        unsafe { std::slice::from_raw_parts(self.region.source(span.start), span.len()) }
    }

    /// Brings blocks from the device, for this access; for reading alone where they are uncertain.
    fn fetch(
        &self,
        blocks: &mut Blocks,
        first: usize,
        count: usize,
        access: Access,
    ) -> Result<(), CUresult> {
        let uncertain = self.is_worked_on(blocks.attached);
        let (access, holder) = match access {
            Access::Write if !uncertain => (Access::Write, Holder::Host),
            _ => (Access::Read, Holder::Both),
        };
        let bytes = span(first, count, self.region.size());
        self.bring(&blocks.parts, &bytes, access)?;
        for at in first..first + count {
            blocks.holders[at] = holder;
            blocks.here.insert(at);
            if uncertain {
                blocks.uncertain.insert(at, None);
            }
        }
        if uncertain {
            self.of.uncertain.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Brings these parts of a span from the device, for this access of the host's.
    fn bring(&self, parts: &[Span], bytes: &Span, access: Access) -> Result<(), CUresult> {
        let mut target = self.region.target(bytes);
        let start = target.start();
        let parts: SmallVec<[Span; 2]> = common(parts, bytes).collect();
        let read = |(number, part): (usize, &Span)| {
            let place = start.wrapping_add(part.start - bytes.start);
            // SAFETY: the target is writable for the span, and left alone: the view of these blocks is protected.
            let place = unsafe { HostPtr::new(place) };
            // One round trip for all of them.
            let waits = number + 1 == parts.len();
            self.read(self.device + part.start as u64, place, part.len(), waits)
        };
        let read = parts.iter().enumerate().try_for_each(read);
        if parts.len() > 1 {
            let settled = self.session.settle(start.addr(), bytes.len());
            read.and(settled)?;
        } else {
            read?;
        }
        if !self.region.put(bytes, &target) {
            return Err(CUDA_ERROR_OPERATING_SYSTEM);
        }
        self.region.protect(bytes, access);
        Ok(())
    }

    /// Reads what the device has at an address; with `waits` it is there when this returns.
    fn read(
        &self,
        address: u64,
        target: HostPtr,
        size: usize,
        waits: bool,
    ) -> Result<(), CUresult> {
        let (actor, stream, session) = (actor(self.context), self.lane.stream, &self.session);
        let call = "access to managed memory";
        let read = session.read(actor, call, stream, address, target, size, waits);
        read.inspect_err(|status| {
            log::error!("memory at {address:#x} cannot be had from the server: error {status}");
        })
    }

    /// Sends what the host has of a span to the device.
    fn send(&self, bytes: &Span) -> Result<(), CUresult> {
        let address = self.device + bytes.start as u64;
        // SAFETY: what is frozen is readable as long as the region; it has left when this returns.
        let source = unsafe { HostPtr::new(self.region.source(bytes.start)) };
        let (actor, stream, session) = (actor(self.context), self.lane.stream, &self.session);
        let call = "managed memory";
        session.write(
            actor,
            call,
            stream,
            address,
            source,
            bytes.len(),
            Source::Fleeting,
        )
    }

    /// Sends what the host has changed of a frozen block.
    fn send_changes(&self, parts: &[Span], at: usize, before: &[u8]) -> Result<(), CUresult> {
        let block = span(at, 1, self.region.size());
        let runs = differences(before, self.bytes(&block));
        let runs = runs.into_iter();
        let mut runs = runs.map(|run| block.start + run.start..block.start + run.end);
        runs.try_for_each(|run| common(parts, &run).try_for_each(|part| self.send(&part)))
    }

    /// After a wait: uncertain blocks go back, so that the host fetches them anew. Fails where that loses what the device wrote, which is
    /// no error of the device's: the next wait succeeds.
    fn settle(&self) -> Result<(), CUresult> {
        let blocks = &mut *lock(&self.blocks);
        let uncertain: Vec<usize> = blocks.uncertain.keys().copied().collect();
        let written = blocks.uncertain.iter();
        let written = written.filter_map(|(at, before)| before.is_some().then_some(*at));
        let mut is_lost = std::mem::take(&mut blocks.is_lost);
        for (first, count) in runs(written) {
            is_lost |= self.has_conflicts(blocks, first, count)?;
        }
        for (first, count) in runs(uncertain.into_iter()) {
            self.push(blocks, first..first + count)?;
        }
        match is_lost {
            true => Err(CUDA_ERROR_ILLEGAL_ADDRESS),
            false => Ok(()),
        }
    }

    /// Before a wait: what the host has changed of uncertain blocks of pinned memory is on the device, since a running kernel may wait for it.
    /// The blocks stay as they are. Managed memory must not be used so, and a conflict there is found for certain behind the wait.
    fn show_changes(&self) -> Result<(), CUresult> {
        if !self.is_pinned {
            return Ok(());
        }
        let blocks = &mut *lock(&self.blocks);
        let size = self.region.size();
        let written = blocks.uncertain.iter();
        let changed = written.filter(|(at, written)| {
            let is_changed = |written: &Written| *written.sent != *self.bytes(&span(**at, 1, size));
            written.as_deref().is_some_and(is_changed)
        });
        let changed: Vec<usize> = changed.map(|(at, _)| *at).collect();
        for (first, count) in runs(changed.into_iter()) {
            // Frozen by this.
            let lost = self.has_conflicts(blocks, first, count)?;
            blocks.is_lost |= lost;
            let mut at = first..first + count;
            let shown = at.try_for_each(|at| self.show_block(blocks, at));
            let bytes = span(first, count, size);
            self.region.protect(&bytes, Access::Write);
            shown?;
        }
        Ok(())
    }

    /// Sends what the host has changed of a frozen block since it was sent last.
    fn show_block(&self, blocks: &mut Blocks, at: usize) -> Result<(), CUresult> {
        let Some(Some(written)) = blocks.uncertain.get_mut(&at) else {
            return Ok(());
        };
        self.send_changes(&blocks.parts, at, &written.sent)?;
        written.sent = self.bytes(&span(at, 1, self.region.size())).into();
        if self.is_pinned {
            // A change of the device's is no conflict then.
            written.before.copy_from_slice(&written.sent);
        }
        Ok(())
    }

    /// Tells of bytes that host and device have changed at the same time: one of the two is lost. The blocks are frozen then.
    fn has_conflicts(&self, blocks: &Blocks, first: usize, count: usize) -> Result<bool, CUresult> {
        let bytes = span(first, count, self.region.size());
        self.region.freeze(&bytes);
        let mut there = self.bytes(&bytes).to_vec();
        for part in common(&blocks.parts, &bytes) {
            let place = &mut there[part.start - bytes.start..part.end - bytes.start];
            let address = self.device + part.start as u64;
            // SAFETY: the place has the part's length.
            let target = unsafe { HostPtr::new(place.as_mut_ptr()) };
            let read = self.read(address, target, place.len(), true);
            read.inspect_err(|_| self.region.protect(&bytes, Access::Write))?;
        }
        let written = (first..first + count).filter_map(|at| blocks.uncertain.get(&at)?.as_deref());
        let written = written.flat_map(|one| one.before.iter().zip(&one.sent));
        let all = written.zip(self.bytes(&bytes)).zip(&there);
        let lost = all.filter(|(((before, sent), here), there)| {
            before != here && sent != there && here != there
        });
        let lost = lost.count();
        if lost > 0 {
            log::error!(
                "host and device changed {lost} bytes of managed memory at {:#x} at the same time, without concurrent managed access: what \
                 the device wrote there is lost, and the wait fails; wait for the device before the host touches what kernels use \
                 (cudaDevAttrConcurrentManagedAccess is 0)",
                self.region.view() + bytes.start
            );
        }
        Ok(lost > 0)
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
        let is_dirty = |at: &usize| blocks.holders.get(*at) == Some(&Holder::Host);
        let (uncertain, dirty): (Vec<usize>, Vec<usize>) = {
            let dirty = here.iter().copied().filter(is_dirty);
            dirty.partition(|at| blocks.uncertain.contains_key(at))
        };
        let any = !uncertain.is_empty() || !dirty.is_empty();
        let (mut outcome, mut unsent) = (Ok(any), HashSet::new());
        let mut sent = |(first, count), status: Result<(), CUresult>| {
            if let Err(status) = status {
                outcome = Err(status);
                // The only copy of these bytes is still the host's.
                self.region
                    .protect(&span(first, count, size), Access::Write);
                unsent.extend(first..first + count);
            }
        };
        for (first, count) in runs(dirty.into_iter()) {
            let bytes = span(first, count, size);
            let mut parts = common(&blocks.parts, &bytes);
            sent((first, count), parts.try_for_each(|part| self.send(&part)));
        }
        for at in uncertain {
            let written = blocks.uncertain.get(&at).and_then(Option::as_deref);
            let status = written.map_or(Ok(()), |written| {
                self.send_changes(&blocks.parts, at, &written.sent)
            });
            sent((at, 1), status);
        }
        let given: Vec<usize> = here.into_iter().filter(|at| !unsent.contains(at)).collect();
        for (first, count) in runs(given.iter().copied()) {
            self.region.close(&span(first, count, size));
        }
        let waits = self.of.waits();
        for at in given {
            blocks.ahead.give(at, waits);
            blocks.holders[at] = Holder::Device;
            blocks.here.remove(&at);
            blocks.uncertain.remove(&at);
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
        let mut fetch = |(from, count)| self.fetch(blocks, from, count, Access::Read);
        let fetched = parts.try_for_each(&mut fetch);
        blocks.holders.fill(Holder::Host);
        blocks.uncertain.clear();
        blocks.here.extend(0..blocks.holders.len());
        self.region.protect(&(0..self.region.size()), Access::Write);
        fetched
    }
}

impl Mirror {
    /// As [`Self::give`]; whatever stream stands behind the lane from then on has it.
    fn push(&self, blocks: &mut Blocks, within: std::ops::Range<usize>) -> Result<bool, CUresult> {
        let sent = self.give(blocks, within)?;
        if sent {
            // With the blocks held: another thread that finds nothing to give stands behind this.
            pushed(&self.session, self.context, &self.lane)?;
        }
        Ok(sent)
    }

    /// Waits for what was sent.
    fn await_pushed(&self) -> Result<(), CUresult> {
        let stream = self.lane.stream;
        let request = wire::SynchronizeStream {
            stream: wire::StreamHandle(stream),
        };
        let call = "managed memory";
        self.session
            .synchronise(actor(self.context), call, &request, Some(stream))
    }
}

/// Notes that something was sent on a lane.
fn pushed(session: &Session, context: u64, lane: &PushLane) -> Result<(), CUresult> {
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

/// Runs of bytes in which two slices of one length differ.
fn differences(before: &[u8], now: &[u8]) -> Vec<Span> {
    const STEP: usize = 32;
    let mut runs: Vec<Span> = Vec::new();
    let steps = before.chunks(STEP).zip(now.chunks(STEP)).enumerate();
    for (step, _) in steps.filter(|(_, (before, now))| before != now) {
        let end = (step * STEP + STEP).min(now.len());
        for at in (step * STEP..end).filter(|at| before[*at] != now[*at]) {
            match runs.last_mut() {
                Some(run) if run.end == at => run.end = at + 1,
                _ => runs.push(at..at + 1),
            }
        }
    }
    runs
}

impl Acting<'_> {
    /// After a wait: what the host has looked at while the device worked is fetched anew when it is touched next, and what it touches after
    /// each wait is fetched now.
    #[inline]
    pub(crate) fn settle_mirrors(&self) -> Result<(), CUresult> {
        let mirrored = &self.context.mirrored;
        mirrored.waits.fetch_add(1, Ordering::Relaxed);
        let settled = match mirrored.uncertain.load(Ordering::Acquire) {
            true => self.settle_uncertain(),
            false => Ok(()),
        };
        if mirrored.any_ahead.load(Ordering::Acquire) {
            mirrored.fetch_ahead(mirrored.waits());
        }
        settled
    }

    fn settle_uncertain(&self) -> Result<(), CUresult> {
        let mirrored = &self.context.mirrored;
        // First: what becomes uncertain meanwhile sets it again.
        mirrored.uncertain.store(false, Ordering::Release);
        let settled = mirrored.all().into_iter().map(|mirror| mirror.settle());
        settled.fold(Ok(()), Result::and)
    }

    /// Before a wait, or a question whether work is done: running kernels see what the host has written while they ran.
    #[inline]
    pub(crate) fn show_kernels(&self) -> Result<(), CUresult> {
        match self.context.mirrored.uncertain.load(Ordering::Acquire) {
            true => self.show_all(),
            false => Ok(()),
        }
    }

    fn show_all(&self) -> Result<(), CUresult> {
        let all = self.context.mirrored.all().into_iter();
        let shown = all.map(|mirror| mirror.show_changes());
        shown.fold(Ok(()), Result::and)
    }

    /// Behind a function of the application in a stream's order: what it has written is on the device before the stream goes on.
    pub(crate) fn give_mirrors(&self) -> Result<(), CUresult> {
        let mut sent: Vec<u64> = Vec::new();
        for mirror in self.context.mirrored.all() {
            let blocks = &mut *lock(&mirror.blocks);
            if blocks.attached != Attached::Host
                && mirror.push(blocks, 0..usize::MAX)?
                && !sent.contains(&mirror.lane.stream)
            {
                sent.push(mirror.lane.stream);
            }
        }
        self.context.mirrored.twins.give(self.session, &mut sent)?;
        sent.into_iter().try_for_each(|stream| {
            let request = wire::SynchronizeStream {
                stream: wire::StreamHandle(stream),
            };
            self.synchronise_for("cuLaunchHostFunc", &request, Some(stream))
        })
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        fault::remove(self);
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

    /// The mirrors of these bytes, of which there is one at least.
    fn mirrors_within(&self, address: u64, size: usize) -> SmallVec<[Arc<Mirror>; 1]> {
        let all = lock(&self.mirrors.all);
        let before = all.range(..address.saturating_add(size as u64)).rev();
        let ends = |mirror: &Mirror| (mirror.region.view() + mirror.region.size()) as u64;
        let reaching = before.take_while(|(_, mirror)| ends(mirror) > address);
        reaching.map(|(_, mirror)| Arc::clone(mirror)).collect()
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
        if acting.context.mirrored.twins.has_device(address) {
            return self.give_twins(acting, stream);
        }
        if !self.mirrors.any.load(Ordering::Acquire) {
            return Ok(());
        }
        for mirror in self.mirrors_within(address, size.max(1)) {
            let start = mirror.region.view() as u64;
            let (first, last) = (address.saturating_sub(start), address + size as u64 - start);
            let last = (last as usize).min(mirror.region.size());
            let blocks = first as usize / BLOCK..last.div_ceil(BLOCK);
            mirror.push(&mut lock(&mirror.blocks), blocks)?;
            match Arc::ptr_eq(&mirror.session, acting.session) {
                true => self.stand_behind(acting, stream, &mirror.lane)?,
                // Another server's streams cannot wait for it.
                false => mirror.await_pushed()?,
            }
        }
        Ok(())
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
            mirror.push(blocks, 0..usize::MAX)?;
            if !lanes.iter().any(|lane| Arc::ptr_eq(lane, &mirror.lane)) {
                lanes.push(Arc::clone(&mirror.lane));
            }
        }
        lanes
            .iter()
            .try_for_each(|lane| self.stand_behind(acting, stream, lane))
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
        let place = (acting.context.number, stream.0);
        if state.waited.get(&place).copied().unwrap_or(0) == count {
            return Ok(());
        }
        acting.post(&wire::StreamWaitEvent {
            hStream: stream,
            hEvent: wire::EventHandle(lane.event),
            Flags: 0,
        })?;
        state.waited.insert(place, count);
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
        self.list_mirror(mirror);
        Ok(())
    }

    /// Has a mirror known, whose faults are served.
    fn list_mirror(&self, mirror: Arc<Mirror>) {
        mirror.of.add(&mirror);
        let address = mirror.region.view() as u64;
        lock(&self.mirrors.all).insert(address, mirror);
        self.mirrors.any.store(true, Ordering::Release);
    }

    /// Memory of zeros on the device, at addresses that this process has free too, and here.
    fn make_mirror(&self, acting: &Acting<'_>, size: usize) -> Result<u64, CUresult> {
        let bytes = size;
        let size = bytes
            .checked_next_multiple_of(ROUND)
            .ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        // As far as the driver would align what is allocated next.
        let bytes = bytes.next_multiple_of(ALIGNMENT);
        let placed = self.mirrors.place(size as u64, |wanted| {
            let Some(region) = Region::at(wanted, size) else {
                return Ok(None);
            };
            let Some(memory) = self.back(acting, wanted, size)? else {
                return Ok(None);
            };
            Ok(Some((region, memory)))
        })?;
        let Some((region, memory)) = placed else {
            log::warn!(
                "managed memory needs addresses that are free in this process and on the server: none were found"
            );
            return Err(CUDA_ERROR_OUT_OF_MEMORY);
        };
        let address = region.view() as u64;
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
        pushed(acting.session, acting.context.number, &lane)?;
        self.enter_mirror(Mirror::new(region, bytes, acting, lane, memory))?;
        Ok(address)
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
            span: 0,
            span_size: 0,
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
        let access = self.access_of_all(&acting.context)?;
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

    /// Access for a context's device, and for those of its server that reach it.
    fn access_of_all(&self, context: &Context) -> Result<Vec<u64>, CUresult> {
        let mut access = Vec::new();
        for (number, device) in (0..).zip(self.ready()?.devices()) {
            let is_own = number == context.device;
            if is_own
                || device.session == context.session
                    && self.can_access(number, context.device)? != 0
            {
                access.extend([
                    u64::from(CU_MEM_LOCATION_TYPE_DEVICE),
                    device.ordinal as u64,
                    u64::from(CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
                ]);
            }
        }
        Ok(access)
    }

    /// Ends a mirror, once what uses it is done.
    pub(crate) fn end_mirror(&self, address: u64) -> Result<(), CUresult> {
        let mirror = lock(&self.mirrors.all).remove(&address);
        let mirror = mirror.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let context = self.context(mirror.context);
        let acting = context.and_then(|context| self.acting_in(context));
        let ended = acting.and_then(|acting| {
            // As the driver: what uses it is waited for, and the memory is free whatever became of that.
            let waited = acting.synchronise_all();
            // Data sent to it are on a stream that the application does not know.
            let sent = mirror.await_pushed();
            let given_back = mirror.give_back(acting.actor);
            waited.and(sent).and(given_back)
        });
        drop(mirror);
        self.mirrors.leave(address);
        ended
    }

    /// Whether an address begins memory that the application has allocated, and may free.
    pub(crate) fn is_own_mirror(&self, address: u64) -> bool {
        let all = lock(&self.mirrors.all);
        all.get(&address).is_some_and(|mirror| mirror.memory != 0)
    }

    /// The mirrors of a context end with it; the application may not look at them any more.
    pub(crate) fn drop_mirrors(&self, context: u64) {
        let mut ended = Vec::new();
        lock(&self.mirrors.all).retain(|address, mirror| {
            let stays = mirror.context != context;
            if !stays {
                ended.push((*address, Arc::clone(mirror)));
            }
            stays
        });
        {
            let lanes = &mut *lock(&self.mirrors.lanes);
            lanes.remove(&context);
            for lane in lanes.values() {
                lock(&lane.state).waited.retain(|(of, _), _| *of != context);
            }
        }
        for (address, mirror) in ended {
            // A session that is over has no memory.
            let _ = mirror.give_back(Actor::default());
            drop(mirror);
            // Pinned memory is the program's until that frees it.
            let memory = read(&self.memory);
            let found = memory.find(address).map(|(_, range)| range.kind);
            if !matches!(found, Some(Kind::Allocated(_))) {
                self.mirrors.leave(address);
            }
        }
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
    fn differences_are_runs_of_bytes() {
        let before = [0_u8; 100];
        let mut now = before;
        assert_eq!(differences(&before, &now), []);
        for at in [0, 1, 31, 32, 40, 99] {
            now[at] = 1;
        }
        assert_eq!(differences(&before, &now), [0..2, 31..33, 40..41, 99..100]);
    }

    #[test]
    fn parts_of_a_span_are_what_both_have() {
        let parts = [4..8, 20..30];
        let of = |span: Span| common(&parts, &span).collect::<Vec<_>>();
        assert_eq!(of(0..64), parts);
        assert_eq!(of(6..21), [6..8, 20..21]);
        assert_eq!(of(8..20), []);
    }

    #[test]
    fn the_last_block_ends_with_the_mirror() {
        assert_eq!(span(1, 2, BLOCK * 2 + 10), BLOCK..BLOCK * 2 + 10);
    }
}
