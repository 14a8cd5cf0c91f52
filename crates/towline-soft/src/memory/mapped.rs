//! Addresses and physical memory apart.
//!
//! Physical memory is a file without a name, sealed at its size, so that another process of this host can have it too. Addresses are
//! reserved outside of the arena's own range, where the caller wishes if that can be; memory is mapped there, and is what kernels and
//! copies may use once somebody was given access. Neighbours of one reservation are one allocation to them, as on a GPU.
//!
//! Addresses stay mapped, to nothing that anybody has, until no command runs: a span that a kernel holds meanwhile leads nowhere else.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::c_void;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create,
};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use super::{Allocation, Arena, Purpose};

/// What physical memory and addresses are rounded to, as on GPUs.
pub(crate) const GRANULARITY: u64 = 2 << 20;
/// Most bytes of addresses that are reserved at once: what a host has for a process, and room for the arena.
const ADDRESS_LIMIT: u64 = 1 << 46;

/// Why memory cannot be mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MapError {
    /// The addresses are not reserved or not free, or the memory is not that long.
    Unfit,
    /// The host cannot.
    System,
}

/// Bytes of physical memory by device.
type Held = Arc<Mutex<HashMap<u32, u64>>>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Physical memory. It lives as long as somebody names it, or it is mapped.
#[derive(Debug)]
pub(crate) struct Physical {
    file: OwnedFd,
    len: u64,
    device: u32,
    /// Whose count it is in; nobody's where another process made it.
    held: Option<Held>,
}

impl Drop for Physical {
    fn drop(&mut self) {
        if let Some(held) = &self.held
            && let Some(bytes) = lock(held).get_mut(&self.device)
        {
            *bytes = bytes.saturating_sub(self.len);
        }
    }
}

impl Physical {
    /// The file, for another process.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Memory that another process made.
    pub(crate) fn import(file: BorrowedFd<'_>, device: u32) -> std::io::Result<Arc<Self>> {
        let wrong = |what: &str| std::io::Error::new(std::io::ErrorKind::InvalidInput, what);
        let seals = fcntl_get_seals(file)?;
        // One that can shrink would end whoever reads it.
        if !seals.contains(SealFlags::SHRINK | SealFlags::GROW) {
            return Err(wrong("the file can change its size"));
        }
        let len = u64::try_from(fstat(file)?.st_size).unwrap_or(0);
        if len == 0 || !len.is_multiple_of(GRANULARITY) {
            return Err(wrong("the file has no size that device memory has"));
        }
        Ok(Arc::new(Self {
            file: file.try_clone_to_owned()?,
            len,
            device,
            held: None,
        }))
    }
}

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Areas {
    reserved: BTreeMap<u64, Area>,
    /// Start and length of addresses that were given back while commands ran.
    leaving: Vec<(u64, u64)>,
    held: Held,
}

#[derive(Debug)]
struct Area {
    len: u64,
    parts: BTreeMap<u64, Part>,
}

/// What is mapped at some of an area's addresses.
#[derive(Debug)]
struct Part {
    len: u64,
    memory: Arc<Physical>,
    /// Devices that may use it.
    users: BTreeSet<u32>,
}

fn pointer(address: u64) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

/// New memory that nothing stands for, at these addresses.
fn blank(start: u64, fixed: MapFlags, len: u64) -> Option<u64> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | fixed;
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: what is mapped over, if anything, is the caller's own.
    let memory = unsafe { mmap_anonymous(pointer(start), len as usize, access, flags) };
    Some(memory.ok()?.expose_provenance() as u64)
}

fn unmap(start: u64, len: u64) {
    // SAFETY: the mapping is ours, and nobody holds a span of it.
    let gone = unsafe { munmap(pointer(start), len as usize) };
    if let Err(error) = gone {
        log::warn!("could not give addresses back: {error}");
    }
}

impl Area {
    /// Whether these addresses lie in it, where it starts.
    fn holds(&self, start: u64, address: u64, len: u64) -> bool {
        let end = address.checked_add(len);
        address >= start && end.is_some_and(|end| end <= start + self.len)
    }

    /// Where the parts begin that cover exactly these addresses of it; `None` when none do.
    fn covered(&self, start: u64, len: u64) -> Option<Vec<u64>> {
        let (mut at, mut begins) = (start, Vec::new());
        while at < start + len {
            begins.push(at);
            at += self.parts.get(&at)?.len;
        }
        (at == start + len && len > 0).then_some(begins)
    }

    /// What kernels see of it: runs of memory that somebody may use.
    fn runs(&self) -> Vec<Allocation> {
        let mut runs: Vec<Allocation> = Vec::new();
        for (start, part) in &self.parts {
            if part.users.is_empty() {
                continue;
            }
            match runs.last_mut() {
                Some(run) if run.base + run.len == *start => run.len += part.len,
                _ => runs.push(Allocation {
                    base: *start,
                    len: part.len,
                    device: part.memory.device,
                    purpose: Purpose::Mapped,
                }),
            }
        }
        runs
    }
}

impl Areas {
    /// The area that holds these addresses, and where it starts.
    fn find(&mut self, address: u64, len: u64) -> Option<(u64, &mut Area)> {
        let (start, area) = self.reserved.range_mut(..=address).next_back()?;
        area.holds(*start, address, len).then_some((*start, area))
    }

    fn bytes(&self) -> u64 {
        let reserved = self.reserved.values().map(|area| area.len);
        let leaving = self.leaving.iter().map(|(_, len)| *len);
        reserved.chain(leaving).sum()
    }

    /// Gives addresses back to the system that wait for that.
    fn settle(&mut self, is_quiet: &dyn Fn() -> bool) {
        if !self.leaving.is_empty() && is_quiet() {
            for (start, len) in self.leaving.drain(..) {
                unmap(start, len);
            }
        }
    }
}

impl Drop for Areas {
    fn drop(&mut self) {
        let reserved = std::mem::take(&mut self.reserved);
        let reserved = reserved.iter().map(|(start, area)| (*start, area.len));
        for (start, len) in reserved.chain(self.leaving.drain(..)) {
            unmap(start, len);
        }
    }
}

impl Arena {
    fn areas(&self) -> MutexGuard<'_, Areas> {
        lock(&self.areas)
    }

    /// Has kernels and copies see what an area holds now.
    fn show(&self, start: u64, area: &Area) {
        let mut ranges = self.write();
        let shown = ranges.live.range(start..start + area.len);
        let shown: Vec<u64> = shown.map(|(base, _)| *base).collect();
        for base in shown {
            ranges.live.remove(&base);
        }
        for run in area.runs() {
            ranges.live.insert(run.base, run);
        }
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// Bytes of physical memory that were made on a device and live.
    pub(crate) fn physical_bytes(&self, device: u32) -> u64 {
        let held = Arc::clone(&self.areas().held);
        let bytes = lock(&held).get(&device).copied();
        bytes.unwrap_or(0)
    }

    /// Makes physical memory, if the device has room for it.
    pub(crate) fn make_physical(
        &self,
        len: u64,
        device: u32,
        room: u64,
    ) -> Option<std::io::Result<Arc<Physical>>> {
        let held = Arc::clone(&self.areas().held);
        {
            // Counted first, so that two that come at once do not both find the last room.
            let mut all = lock(&held);
            let bytes = all.entry(device).or_default();
            let more = bytes.checked_add(len).filter(|more| *more <= room)?;
            *bytes = more;
        }
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let made = memfd_create("towline-device", flags).and_then(|file| {
            ftruncate(&file, len)?;
            fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
            Ok(file)
        });
        Some(match made {
            Ok(file) => Ok(Arc::new(Physical {
                file,
                len,
                device,
                held: Some(held),
            })),
            Err(error) => {
                if let Some(bytes) = lock(&held).get_mut(&device) {
                    *bytes -= len;
                }
                Err(error.into())
            }
        })
    }

    /// Reserves addresses: at `hint` where they are free, elsewhere if they are not.
    pub(crate) fn reserve_addresses(
        &self,
        len: u64,
        alignment: u64,
        hint: u64,
        is_quiet: &dyn Fn() -> bool,
    ) -> Option<u64> {
        let mut areas = self.areas();
        areas.settle(is_quiet);
        areas
            .bytes()
            .checked_add(len)
            .filter(|all| *all <= ADDRESS_LIMIT)?;
        let wished = (hint != 0 && hint.is_multiple_of(alignment))
            .then(|| blank(hint, MapFlags::FIXED_NOREPLACE, len))
            .flatten();
        let start = match wished {
            Some(start) if start == hint => start,
            wished => {
                // A system that knows no such wish has put it elsewhere.
                if let Some(start) = wished {
                    unmap(start, len);
                }
                let room = len.checked_add(alignment)?;
                let start = super::map_apart(room).ok()?;
                let aligned = start.next_multiple_of(alignment);
                for (from, to) in [(start, aligned), (aligned + len, start + room)] {
                    if to > from {
                        unmap(from, to - from);
                    }
                }
                aligned
            }
        };
        let parts = BTreeMap::new();
        areas.reserved.insert(start, Area { len, parts });
        Some(start)
    }

    /// Takes addresses back at which nothing is mapped; `false` when these are none.
    pub(crate) fn free_addresses(&self, start: u64, len: u64, is_quiet: &dyn Fn() -> bool) -> bool {
        let mut areas = self.areas();
        let empty = |area: &Area| area.len == len && area.parts.is_empty();
        if !areas.reserved.get(&start).is_some_and(empty) {
            return false;
        }
        areas.reserved.remove(&start);
        areas.leaving.push((start, len));
        areas.settle(is_quiet);
        true
    }

    /// Maps part of physical memory at reserved addresses. Nobody may use it there yet.
    pub(crate) fn map(
        &self,
        start: u64,
        len: u64,
        offset: u64,
        memory: &Arc<Physical>,
    ) -> Result<(), MapError> {
        let mut areas = self.areas();
        let (_, area) = areas.find(start, len).ok_or(MapError::Unfit)?;
        let before = area.parts.range(..start + len).next_back();
        let taken = before.is_some_and(|(at, part)| at + part.len > start);
        let fits = offset.checked_add(len).is_some_and(|end| end <= memory.len);
        if taken || !fits || len == 0 {
            return Err(MapError::Unfit);
        }
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::FIXED | MapFlags::NORESERVE;
        // SAFETY: the addresses are reserved, and nothing else is mapped there; the file keeps its size.
        let mapped = unsafe {
            mmap(
                pointer(start),
                len as usize,
                access,
                flags,
                &memory.file,
                offset,
            )
        };
        mapped.map_err(|error| {
            log::error!("could not map device memory: {error}");
            MapError::System
        })?;
        let part = Part {
            len,
            memory: Arc::clone(memory),
            users: BTreeSet::new(),
        };
        area.parts.insert(start, part);
        Ok(())
    }

    /// Takes memory off these addresses, which must be all of what was mapped there; `false` when they are not.
    pub(crate) fn unmap(&self, start: u64, len: u64) -> bool {
        let mut areas = self.areas();
        let Some((first, area)) = areas.find(start, len) else {
            return false;
        };
        let Some(parts) = area.covered(start, len) else {
            return false;
        };
        let mut gone = Vec::new();
        for at in parts {
            gone.extend(area.parts.remove(&at).map(|part| (at, part)));
        }
        self.show(first, area);
        for (at, part) in gone {
            // A span of this may still be in use: it leads to memory that nobody has.
            if blank(at, MapFlags::FIXED, part.len).is_none() {
                log::error!(
                    "could not take device memory off its addresses: the host has no more mappings"
                );
            }
        }
        true
    }

    /// Lets a device use what is mapped at these addresses, or no longer; `false` when they are not all mapped.
    pub(crate) fn allow(&self, start: u64, len: u64, device: u32, may: bool) -> bool {
        let mut areas = self.areas();
        let Some((first, area)) = areas.find(start, len) else {
            return false;
        };
        let Some(parts) = area.covered(start, len) else {
            return false;
        };
        for at in parts {
            if let Some(part) = area.parts.get_mut(&at) {
                match may {
                    true => part.users.insert(device),
                    false => part.users.remove(&device),
                };
            }
        }
        self.show(first, area);
        true
    }

    /// Whether a device may use what is mapped at this address; `None` where nothing is.
    pub(crate) fn is_allowed(&self, address: u64, device: u32) -> Option<bool> {
        let mut areas = self.areas();
        let (_, area) = areas.find(address, 1)?;
        let (start, part) = area.parts.range(..=address).next_back()?;
        (address - start < part.len).then(|| part.users.contains(&device))
    }
}
