//! Memory that kernels and the host share.
//!
//! An [`Arena`] reserves one range of addresses for all devices of a process and gives out parts of it. Addresses of the device are those
//! of the host, so pinned memory means the same to both. What a kernel may touch is what is allocated at that moment; a [`Span`] is one such
//! part, and every access through it is checked.
//!
//! Kernels race with each other and with copies as they please, so every access is atomic and unordered; that costs nothing on the machines
//! this runs on. Memory that was given back stays mapped: a stale span reads other contents, never somebody else's memory.
//!
//! Beside that range lies what the program maps by itself ([`mapped`]), at addresses of its choice.

pub(crate) mod mapped;

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use mapped::Areas;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Allocations start at multiples of this, as the driver's do.
pub(crate) const ALIGNMENT: u64 = 512;
/// Given-back memory of at least this size is returned to the system at once.
const RETURN_BYTES: u64 = 64 << 10;
const PAGE: u64 = 4096;
/// Where memory of devices lies: between these, where neither programs nor libraries, stacks and what `mmap` chooses do. Clients have
/// the same addresses, of several workers perhaps, so each worker takes some by chance.
const PLACES: std::ops::Range<u64> = 0x2000_0000_0000..0x4000_0000_0000;
/// Memory begins at multiples of this there.
const PLACE_ALIGNMENT: u64 = 1 << 30;
/// How often another place is tried.
const ATTEMPTS: usize = 16;

/// What an allocation is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Elements of an array.
    Array,
    /// The host asked for device memory.
    Device,
    /// A node of a graph allocates it whenever the graph comes there.
    Graph,
    /// A kernel asked for it.
    Heap,
    /// Variables of a module.
    Image,
    /// Managed variables of a module, which share their pages with nothing else.
    Managed,
    /// The host mapped it at addresses that it had reserved.
    Mapped,
    /// The host asked for memory of its own that devices see.
    Pinned,
    /// Memory of the host's, which it has devices see.
    Registered,
}

/// One allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Allocation {
    pub(crate) base: u64,
    pub(crate) len: u64,
    pub(crate) device: u32,
    pub(crate) purpose: Purpose,
}

impl Purpose {
    /// Allocations start and end at multiples of this.
    fn alignment(self) -> u64 {
        match self {
            Self::Managed => PAGE,
            _ => ALIGNMENT,
        }
    }
}

impl Allocation {
    /// Bytes that it takes.
    fn taken(&self) -> u64 {
        self.len.next_multiple_of(self.purpose.alignment())
    }
}

#[derive(Debug, Default)]
struct Ranges {
    live: BTreeMap<u64, Allocation>,
    /// What keeps its addresses, and may not be used at the moment.
    held: BTreeMap<u64, Allocation>,
    /// Start and length of what is free.
    free: BTreeMap<u64, u64>,
    /// What allocations of graphs take, by device.
    of_graphs: BTreeMap<u32, Marks>,
}

/// Bytes of something, and most that there were.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Mark {
    pub(crate) now: u64,
    pub(crate) high: u64,
}

/// What allocations of graphs take: what may be used at the moment, and all of them.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Marks {
    pub(crate) used: Mark,
    pub(crate) reserved: Mark,
}

impl Mark {
    fn add(&mut self, bytes: u64) {
        self.now += bytes;
        self.high = self.high.max(self.now);
    }

    fn sub(&mut self, bytes: u64) {
        self.now = self.now.saturating_sub(bytes);
    }
}

impl Ranges {
    /// The marks that an allocation counts for.
    fn marks(&mut self, allocation: &Allocation) -> Option<&mut Marks> {
        let counts = allocation.purpose == Purpose::Graph;
        counts.then(|| self.of_graphs.entry(allocation.device).or_default())
    }

    /// Takes room for an allocation, first fit.
    fn take(&mut self, len: u64, device: u32, purpose: Purpose) -> Option<Allocation> {
        let alignment = purpose.alignment();
        let taken = len.max(1).checked_next_multiple_of(alignment)?;
        let (start, before, room) = self.free.iter().find_map(|(&start, &room)| {
            let before = start.next_multiple_of(alignment) - start;
            let fits = before.checked_add(taken)? <= room;
            fits.then_some((start, before, room))
        })?;
        self.free.remove(&start);
        let base = start + before;
        for (from, len) in [(start, before), (base + taken, room - before - taken)] {
            if len > 0 {
                self.free.insert(from, len);
            }
        }
        Some(Allocation {
            base,
            len: len.max(1),
            device,
            purpose,
        })
    }

    /// Has room be free again, as one with what is free beside it.
    fn give(&mut self, mut start: u64, mut len: u64) {
        if let Some((&before, &room)) = self.free.range(..start).next_back()
            && before + room == start
        {
            self.free.remove(&before);
            start = before;
            len += room;
        }
        if let Some(room) = self.free.remove(&(start + len)) {
            len += room;
        }
        self.free.insert(start, len);
    }
}

/// New memory that nothing stands for yet: apart from what hosts use where that can be, anywhere where it cannot.
fn map_apart(len: u64) -> std::io::Result<u64> {
    let size = usize::try_from(len).map_err(|_| std::io::ErrorKind::OutOfMemory)?;
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    let access = ProtFlags::READ | ProtFlags::WRITE;
    let room = (PLACES.end - PLACES.start).saturating_sub(len) / PLACE_ALIGNMENT;
    for _ in 0..ATTEMPTS {
        if room == 0 {
            break;
        }
        // The keys of a new map are random, which is what is needed of it.
        let chance = RandomState::new().hash_one(len);
        let wanted = PLACES.start + chance % room * PLACE_ALIGNMENT;
        let place = std::ptr::with_exposed_provenance_mut(wanted as usize);
        let fixed = flags | MapFlags::FIXED_NOREPLACE;
        // SAFETY: nothing that is mapped is touched.
        let Ok(memory) = (unsafe { mmap_anonymous(place, size, access, fixed) }) else {
            continue;
        };
        let start = memory.expose_provenance() as u64;
        if start == wanted {
            return Ok(start);
        }
        // A system that knows no such wish has put it elsewhere.
        // SAFETY: the mapping was made just now, and nobody has it.
        let _ = unsafe { munmap(memory, size) };
    }
    // SAFETY: a new mapping at an address of the system's choice.
    let memory = unsafe { mmap_anonymous(std::ptr::null_mut(), size, access, flags) }?;
    Ok(memory.expose_provenance() as u64)
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Arena {
    base: u64,
    len: u64,
    ranges: RwLock<Ranges>,
    /// Taken before the ranges, where both are.
    areas: Mutex<Areas>,
    /// Counts what changes the ranges: who remembers a span looks again after that.
    changes: AtomicU64,
}

/// Why an access did not happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    Misaligned,
    Outside,
}

/// An allocation that can be accessed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span<'a> {
    _arena: &'a Arena,
    base: u64,
    end: u64,
}

impl Arena {
    /// Reserves so many bytes of addresses.
    pub(crate) fn reserve(len: u64) -> std::io::Result<Self> {
        let len = len.next_multiple_of(PAGE).max(PAGE);
        let base = map_apart(len)?;
        let ranges = Ranges {
            live: BTreeMap::new(),
            held: BTreeMap::new(),
            free: BTreeMap::from([(base, len)]),
            of_graphs: BTreeMap::new(),
        };
        Ok(Self {
            base,
            len,
            ranges: RwLock::new(ranges),
            areas: Mutex::default(),
            changes: AtomicU64::new(0),
        })
    }

    fn read(&self) -> RwLockReadGuard<'_, Ranges> {
        self.ranges.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Ranges> {
        self.ranges.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the next allocation of this size goes.
    pub(crate) fn allocate(&self, len: u64, device: u32, purpose: Purpose) -> Option<u64> {
        let mut ranges = self.write();
        let allocation = ranges.take(len, device, purpose)?;
        ranges.live.insert(allocation.base, allocation);
        self.changes.fetch_add(1, Ordering::Release);
        Some(allocation.base)
    }

    /// Takes an allocation back that starts there, if it has this purpose.
    pub(crate) fn free(&self, base: u64, purpose: Purpose) -> Option<Allocation> {
        let mut ranges = self.write();
        let allocation = *ranges.live.get(&base)?;
        if allocation.purpose != purpose {
            return None;
        }
        ranges.live.remove(&base);
        self.changes.fetch_add(1, Ordering::Release);
        self.give_back(base, allocation.taken());
        ranges.give(base, allocation.taken());
        Some(allocation)
    }

    /// Has an allocation be shorter; what lies behind is free.
    pub(crate) fn cut(&self, base: u64, len: u64) {
        let mut ranges = self.write();
        let Some(allocation) = ranges.live.get_mut(&base) else {
            return;
        };
        let before = allocation.taken();
        allocation.len = len.clamp(1, allocation.len);
        let after = allocation.taken();
        self.changes.fetch_add(1, Ordering::Release);
        if after < before {
            self.give_back(base + after, before - after);
            ranges.give(base + after, before - after);
        }
    }

    /// Keeps addresses for an allocation that may not be used yet.
    pub(crate) fn hold(&self, len: u64, device: u32, purpose: Purpose) -> Option<u64> {
        let mut ranges = self.write();
        let allocation = ranges.take(len, device, purpose)?;
        ranges.held.insert(allocation.base, allocation);
        if let Some(marks) = ranges.marks(&allocation) {
            marks.reserved.add(allocation.taken());
        }
        Some(allocation.base)
    }

    /// Lets a held allocation be used; `false` when it is, or is none.
    pub(crate) fn wake(&self, base: u64) -> bool {
        let mut ranges = self.write();
        let Some(allocation) = ranges.held.remove(&base) else {
            return false;
        };
        ranges.live.insert(base, allocation);
        if let Some(marks) = ranges.marks(&allocation) {
            marks.used.add(allocation.taken());
        }
        self.changes.fetch_add(1, Ordering::Release);
        true
    }

    /// Has an allocation of this purpose be held again, without its contents; `false` when it cannot be used, or is none.
    pub(crate) fn rest(&self, base: u64, purpose: Purpose) -> bool {
        let mut ranges = self.write();
        let found = ranges.live.get(&base);
        let Some(allocation) = found.filter(|one| one.purpose == purpose).copied() else {
            return false;
        };
        ranges.live.remove(&base);
        self.changes.fetch_add(1, Ordering::Release);
        self.give_back(base, allocation.taken());
        ranges.held.insert(base, allocation);
        if let Some(marks) = ranges.marks(&allocation) {
            marks.used.sub(allocation.taken());
        }
        true
    }

    /// Gives up addresses that were kept, whether they may be used or not.
    pub(crate) fn let_go(&self, base: u64, purpose: Purpose) {
        self.rest(base, purpose);
        let mut ranges = self.write();
        if let Some(allocation) = ranges.held.remove(&base) {
            if let Some(marks) = ranges.marks(&allocation) {
                marks.reserved.sub(allocation.taken());
            }
            ranges.give(base, allocation.taken());
        }
    }

    /// What allocations of graphs take on a device.
    pub(crate) fn graph_marks(&self, device: u32) -> Marks {
        let found = self.read().of_graphs.get(&device).copied();
        found.unwrap_or_default()
    }

    /// Begins one of those marks anew.
    pub(crate) fn reset_graph_mark(&self, device: u32, of: impl FnOnce(&mut Marks) -> &mut Mark) {
        let mut ranges = self.write();
        let mark = of(ranges.of_graphs.entry(device).or_default());
        mark.high = mark.now;
    }

    /// Lets the system have the pages of a range, which read as zeros from then on.
    fn give_back(&self, start: u64, len: u64) {
        let first = start.next_multiple_of(PAGE);
        let end = (start + len) / PAGE * PAGE;
        if len < RETURN_BYTES || end <= first {
            return;
        }
        let memory = std::ptr::with_exposed_provenance_mut::<c_void>(first as usize);
        // SAFETY: the pages lie in the mapping, and belong to nobody. It only fails where the advice is not known.
        let _ = unsafe { madvise(memory, (end - first) as usize, Advice::LinuxDontNeed) };
    }

    /// Counts up whenever an allocation comes or goes.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Has kernels and copies see memory of the host's; `false` where they see some of it already.
    pub(crate) fn register(&self, base: u64, len: u64) -> bool {
        let mut ranges = self.write();
        let before = ranges.live.range(..base + len).next_back();
        if before.is_some_and(|(_, one)| one.base + one.len > base) {
            return false;
        }
        let allocation = Allocation {
            base,
            len,
            device: u32::MAX,
            purpose: Purpose::Registered,
        };
        ranges.live.insert(base, allocation);
        self.changes.fetch_add(1, Ordering::Release);
        true
    }

    /// Has them see it no more; `false` where none begins there. What runs at that moment may still be at it.
    pub(crate) fn unregister(&self, base: u64) -> bool {
        let mut ranges = self.write();
        let known = ranges.live.get(&base);
        if known.is_none_or(|one| one.purpose != Purpose::Registered) {
            return false;
        }
        ranges.live.remove(&base);
        self.changes.fetch_add(1, Ordering::Release);
        true
    }

    /// The allocation that holds this address.
    pub(crate) fn find(&self, address: u64) -> Option<Allocation> {
        let ranges = self.read();
        let (_, allocation) = ranges.live.range(..=address).next_back()?;
        (address - allocation.base < allocation.len).then_some(*allocation)
    }

    /// The nearest allocations below and above an address that nobody has: for messages.
    pub(crate) fn neighbours(&self, address: u64) -> (Option<Allocation>, Option<Allocation>) {
        let ranges = self.read();
        let below = ranges.live.range(..=address).next_back();
        let above = ranges.live.range(address..).next();
        (below.map(|(_, one)| *one), above.map(|(_, one)| *one))
    }

    /// The allocation that holds this address, to be accessed.
    pub(crate) fn span(&self, address: u64) -> Option<Span<'_>> {
        let allocation = self.find(address)?;
        Some(Span {
            _arena: self,
            base: allocation.base,
            end: allocation.base + allocation.len,
        })
    }

    /// The allocation that holds this whole range.
    pub(crate) fn range(&self, address: u64, len: u64) -> Option<Span<'_>> {
        let span = self.span(address)?;
        let end = address.checked_add(len)?;
        (end <= span.end).then_some(span)
    }

    /// Whether an allocation of this purpose begins here, used at the moment or not.
    pub(crate) fn is_kept(&self, base: u64, purpose: Purpose) -> bool {
        let ranges = self.read();
        let known = ranges.held.get(&base).or_else(|| ranges.live.get(&base));
        known.is_some_and(|one| one.purpose == purpose)
    }

    /// Whether this whole range is an allocation's, used at the moment or not.
    pub(crate) fn knows(&self, address: u64, len: u64) -> bool {
        let ranges = self.read();
        [&ranges.live, &ranges.held].iter().any(|all| {
            let found = all.range(..=address).next_back();
            found.is_some_and(|(base, one)| {
                let offset = address - base;
                offset.checked_add(len).is_some_and(|end| end <= one.len)
            })
        })
    }

    /// Bytes that are allocated on a device, by those for whom `counts` says yes.
    pub(crate) fn used(&self, device: u32, counts: impl Fn(Purpose) -> bool) -> u64 {
        let ranges = self.read();
        let all = ranges.live.values().chain(ranges.held.values());
        let of_device = all.filter(|one| one.device == device && counts(one.purpose));
        of_device.map(Allocation::taken).sum()
    }

    /// Allocations that live, or keep their addresses.
    pub(crate) fn live(&self) -> usize {
        let ranges = self.read();
        ranges.live.len() + ranges.held.len()
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let memory = std::ptr::with_exposed_provenance_mut::<c_void>(self.base as usize);
        // SAFETY: the mapping is ours, and no span outlives the arena.
        let _ = unsafe { munmap(memory, self.len as usize) };
    }
}

/// The place of an access, which the caller has checked.
fn place<T>(address: u64) -> *mut T {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

macro_rules! words {
    ($($word:ident $atomic:ident $load:ident $store:ident $exchange:ident;)*) => {
        impl Span<'_> {
            $(
                #[inline(always)]
                fn $load(&self, address: u64, order: Ordering) -> u64 {
                    // SAFETY: `check` found the address aligned and in the arena, which lives as long as the span; all accesses are atomic.
                    let word = unsafe { $atomic::from_ptr(place::<$word>(address)) };
                    word.load(order).into()
                }

                #[inline(always)]
                fn $store(&self, address: u64, value: u64, order: Ordering) {
                    // SAFETY: as for loads.
                    let word = unsafe { $atomic::from_ptr(place::<$word>(address)) };
                    word.store(value as $word, order);
                }

                #[inline(always)]
                fn $exchange(&self, address: u64, old: u64, new: u64) -> Result<u64, u64> {
                    // SAFETY: as for loads.
                    let word = unsafe { $atomic::from_ptr(place::<$word>(address)) };
                    let (old, new) = (old as $word, new as $word);
                    let outcome = word.compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst);
                    outcome.map(u64::from).map_err(u64::from)
                }
            )*
        }
    };
}

words! {
    u8 AtomicU8 load1 store1 exchange1;
    u16 AtomicU16 load2 store2 exchange2;
    u32 AtomicU32 load4 store4 exchange4;
    u64 AtomicU64 load8 store8 exchange8;
}

impl Span<'_> {
    /// Whether this range lies in it.
    #[inline(always)]
    pub(crate) fn holds(&self, address: u64, len: u64) -> bool {
        address >= self.base && address <= self.end && self.end - address >= len
    }

    /// Where it starts, and how many bytes it has.
    pub(crate) fn extent(&self) -> (u64, u64) {
        (self.base, self.end - self.base)
    }

    #[inline(always)]
    fn check(&self, address: u64, width: u64) -> Result<(), Refused> {
        if !self.holds(address, width) {
            return Err(Refused::Outside);
        }
        if address & (width - 1) != 0 {
            return Err(Refused::Misaligned);
        }
        Ok(())
    }

    /// Reads 1, 2, 4 or 8 bytes.
    #[inline(always)]
    pub(crate) fn load(&self, address: u64, width: u64, order: Ordering) -> Result<u64, Refused> {
        self.check(address, width)?;
        Ok(match width {
            1 => self.load1(address, order),
            2 => self.load2(address, order),
            4 => self.load4(address, order),
            _ => self.load8(address, order),
        })
    }

    /// Writes 1, 2, 4 or 8 bytes.
    #[inline(always)]
    pub(crate) fn store(
        &self,
        address: u64,
        width: u64,
        value: u64,
        order: Ordering,
    ) -> Result<(), Refused> {
        self.check(address, width)?;
        match width {
            1 => self.store1(address, value, order),
            2 => self.store2(address, value, order),
            4 => self.store4(address, value, order),
            _ => self.store8(address, value, order),
        }
        Ok(())
    }

    /// Puts `new` in the place of 2, 4 or 8 bytes and gives what was there.
    pub(crate) fn update(
        &self,
        address: u64,
        width: u64,
        new: impl Fn(u64) -> u64,
    ) -> Result<u64, Refused> {
        let mut old = self.load(address, width, Ordering::Relaxed)?;
        loop {
            let value = new(old);
            let outcome = match width {
                1 => self.exchange1(address, old, value),
                2 => self.exchange2(address, old, value),
                4 => self.exchange4(address, old, value),
                _ => self.exchange8(address, old, value),
            };
            match outcome {
                Ok(old) => return Ok(old),
                Err(now) => old = now,
            }
        }
    }

    /// Reads bytes; `false` when they do not lie in it.
    pub(crate) fn read(&self, address: u64, to: &mut [u8]) -> bool {
        if !self.holds(address, to.len() as u64) {
            return false;
        }
        let head = (address.next_multiple_of(8) - address).min(to.len() as u64) as usize;
        let (start, rest) = to.split_at_mut(head);
        let mut at = address;
        for byte in start {
            *byte = self.load1(at, Ordering::Relaxed) as u8;
            at += 1;
        }
        let (words, tail) = rest.as_chunks_mut::<8>();
        for word in words {
            *word = self.load8(at, Ordering::Relaxed).to_ne_bytes();
            at += 8;
        }
        for byte in tail {
            *byte = self.load1(at, Ordering::Relaxed) as u8;
            at += 1;
        }
        true
    }

    /// Writes bytes; `false` when there is no room for them.
    pub(crate) fn write(&self, address: u64, from: &[u8]) -> bool {
        if !self.holds(address, from.len() as u64) {
            return false;
        }
        let head = (address.next_multiple_of(8) - address).min(from.len() as u64) as usize;
        let (start, rest) = from.split_at(head);
        let mut at = address;
        for byte in start {
            self.store1(at, (*byte).into(), Ordering::Relaxed);
            at += 1;
        }
        let (words, tail) = rest.as_chunks::<8>();
        for word in words {
            self.store8(at, u64::from_ne_bytes(*word), Ordering::Relaxed);
            at += 8;
        }
        for byte in tail {
            self.store1(at, (*byte).into(), Ordering::Relaxed);
            at += 1;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_lies_where_hosts_have_nothing() {
        let arena = Arena::reserve(1 << 20).expect("memory");
        let allocated = arena.allocate(100, 0, Purpose::Device).expect("room");
        let piece = mapped::GRANULARITY;
        let reserved = arena.reserve_addresses(piece, piece, 0, &|| true);
        let reserved = reserved.expect("addresses");
        assert!(PLACES.contains(&allocated) && PLACES.contains(&reserved));
    }

    #[test]
    fn allocations_are_zero_and_apart_and_their_room_comes_back() {
        let arena = Arena::reserve(1 << 20).expect("memory");
        let first = arena.allocate(100, 0, Purpose::Device).expect("room");
        let second = arena.allocate(1 << 19, 0, Purpose::Device).expect("room");
        assert!(second - first >= 100 && second.is_multiple_of(ALIGNMENT));
        assert_eq!(arena.allocate(1 << 19, 0, Purpose::Device), None);
        let span = arena.range(second, 1 << 19).expect("a span");
        assert!(span.write(second + 3, &[7; 1000]));
        let mut bytes = [1; 1004];
        assert!(span.read(second + 1, &mut bytes));
        assert_eq!(bytes[..2], [0, 0]);
        assert_eq!(bytes[2..1002], [7; 1000]);
        assert_eq!(bytes[1002..], [0, 0]);
        assert!(span.write(second + 8192, &[7]));
        assert!(arena.free(second, Purpose::Heap).is_none());
        assert!(arena.free(first, Purpose::Device).is_some());
        assert!(arena.free(second, Purpose::Device).is_some());
        assert!(arena.free(second, Purpose::Device).is_none());
        let all = arena.allocate(1 << 20, 0, Purpose::Device).expect("room");
        let mut byte = [1];
        let span = arena.range(all, 1 << 20).expect("a span");
        assert!(span.read(second + 8192, &mut byte));
        assert_eq!(byte, [0], "given back to the system");
    }

    #[test]
    fn nothing_outside_of_an_allocation_can_be_accessed() {
        let arena = Arena::reserve(1 << 20).expect("memory");
        let base = arena.allocate(10, 0, Purpose::Device).expect("room");
        let span = arena.span(base + 9).expect("a span");
        let order = Ordering::Relaxed;
        assert_eq!(span.load(base + 8, 2, order), Ok(0));
        assert_eq!(span.load(base + 8, 4, order), Err(Refused::Outside));
        assert_eq!(span.load(base - 4, 4, order), Err(Refused::Outside));
        assert_eq!(span.load(u64::MAX, 4, order), Err(Refused::Outside));
        assert_eq!(span.load(base + 2, 4, order), Err(Refused::Misaligned));
        assert_eq!(span.store(base + 10, 1, 0, order), Err(Refused::Outside));
        assert!(arena.span(base + 10).is_none());
        assert!(arena.range(base, 11).is_none());
        assert!(arena.range(base, u64::MAX).is_none());
    }

    #[test]
    fn updates_of_many_threads_are_all_counted() {
        let arena = Arena::reserve(1 << 16).expect("memory");
        let base = arena.allocate(8, 0, Purpose::Device).expect("room");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let span = arena.span(base).expect("a span");
                    for _ in 0..1000 {
                        span.update(base + 4, 4, |old| old + 1).expect("aligned");
                    }
                });
            }
        });
        let span = arena.span(base).expect("a span");
        assert_eq!(span.load(base, 8, Ordering::Relaxed), Ok(4000 << 32));
    }
}
