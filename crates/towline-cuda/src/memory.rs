//! Device memory and host memory: where ranges lie and whose they are.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_void;
use std::sync::atomic::Ordering;

use towline_backend::cuda as wire;
use towline_backend::cuda::*;
use towline_client::pinned;
use towline_client::raw::{Out, OutList, Vouched};

use crate::context::Context;
use crate::driver::{Acting, Driver, MemoryCalls, lock, read, write};
use crate::kept::capacity_for;
use crate::mirror::{Prefetch, batch, check_batch, location, ranges};

/// Rows of pitched memory begin at multiples of this, as the driver's do.
const PITCH: usize = 512;

/// Drivers give out memory in pieces of this size, the rest of which copies may touch.
const PIECE: u64 = 2 << 20;

/// A range of memory that the driver knows.
#[derive(Debug, Clone)]
pub(crate) struct Range {
    pub(crate) size: usize,
    pub(crate) context: u64,
    pub(crate) device: CUdevice,
    pub(crate) id: u64,
    pub(crate) kind: Kind,
    /// It was allocated by itself, not from a pool: other processes can open it.
    pub(crate) alone: bool,
    /// It is of a pool.
    pub(crate) of_pool: bool,
    /// The pool's number; 0 for the default one of its device.
    pub(crate) pool: u64,
    /// A node of a graph allocates it.
    pub(crate) of_graph: bool,
    /// The application wants its copies to be done when they return, as ours of this kind are anyway.
    pub(crate) synchronous: bool,
}

/// What a range is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Device,
    /// Physical memory of this number, mapped at addresses that the application has reserved.
    Mapped(u64),
    /// Memory of another process.
    Opened,
    /// Memory that host and device both use.
    Managed,
    /// What the device has of memory that the application has registered.
    Twin,
    /// Host memory of ours, with the flags that it was asked for with.
    Allocated(u32),
    /// Host memory of the application's, which counts as pinned.
    Registered(u32),
}

impl Kind {
    pub(crate) fn is_device(self) -> bool {
        matches!(
            self,
            Self::Device | Self::Mapped(_) | Self::Opened | Self::Managed | Self::Twin
        )
    }
}

impl Range {
    pub(crate) fn device(context: &Context, size: usize, id: u64) -> Self {
        Self {
            size,
            context: context.number,
            device: context.device,
            id,
            kind: Kind::Device,
            alone: false,
            of_pool: false,
            pool: 0,
            of_graph: false,
            synchronous: false,
        }
    }
}

/// The ranges of the process, by where they begin. Device addresses and host addresses are told apart by what begins there.
///
/// Beside them: where memory begins that was registered in a context that has ended, which the application may still unregister.
#[derive(Debug, Default)]
pub(crate) struct Ranges(BTreeMap<u64, Range>, BTreeSet<u64>);

impl Ranges {
    /// Adds a range. Device memory that was known here has ended: that of graphs and pools may end unnoticed.
    pub(crate) fn insert(&mut self, start: u64, range: Range) {
        if range.kind == Kind::Device {
            let ended = |known: &Range| known.kind == Kind::Device;
            let around = self.find(start).filter(|(_, known)| ended(known));
            let around = around.map(|(at, _)| at);
            let inside = self.within(start, range.size as u64).into_iter();
            let inside = inside.filter(|(_, known)| ended(known));
            for at in inside.map(|(at, _)| at).chain(around) {
                self.0.remove(&at);
            }
        }
        self.0.insert(start, range);
    }

    /// The range that an address lies in.
    pub(crate) fn find(&self, address: u64) -> Option<(u64, &Range)> {
        let (start, range) = self.0.range(..=address).next_back()?;
        (address - start < range.size as u64).then_some((*start, range))
    }

    /// Forgets device memory that begins here; what there was.
    pub(crate) fn take_device(&mut self, start: u64) -> Option<Range> {
        let found = self.0.get(&start);
        found.filter(|range| range.kind == Kind::Device)?;
        self.0.remove(&start)
    }

    /// As [`Self::take_device`], for memory that is freed: a graph that allocates it will have it there again.
    pub(crate) fn take_freed(&mut self, start: u64) -> Option<Range> {
        match self.0.get(&start) {
            Some(range) if range.of_graph && range.kind == Kind::Device => Some(range.clone()),
            _ => self.take_device(start),
        }
    }

    /// Forgets the memory of a context, and what was registered in it; host memory of ours stays, since the application may still look at it.
    pub(crate) fn drop_context(&mut self, context: u64) {
        let registered = self.registered_in(context);
        self.1
            .extend(registered.into_iter().map(|(start, _)| start));
        let stays = |kind| matches!(kind, Kind::Allocated(_) | Kind::Mapped(_));
        self.0
            .retain(|_, range| range.context != context || stays(range.kind));
    }

    /// Memory that was registered in a context: where it begins, and its size.
    pub(crate) fn registered_in(&self, context: u64) -> Vec<(u64, usize)> {
        let own = self.0.iter().filter(|(_, range)| {
            range.context == context && matches!(range.kind, Kind::Registered(_))
        });
        own.map(|(start, range)| (*start, range.size)).collect()
    }

    pub(crate) fn is_device(&self, address: u64) -> bool {
        self.find(address)
            .is_some_and(|(_, range)| range.kind.is_device())
    }

    /// Whether an address is in one allocation that so many bytes leave.
    pub(crate) fn is_left(&self, address: u64, size: u64) -> bool {
        self.find(address).is_some_and(|(start, range)| {
            let is_one = range.kind == Kind::Device && !range.of_pool && !range.of_graph;
            is_one && address.saturating_add(size) > start.saturating_add(range.size as u64)
        })
    }

    fn is_registered(&self, address: u64) -> bool {
        self.find(address)
            .is_some_and(|(_, range)| matches!(range.kind, Kind::Registered(_)))
    }

    /// The ranges that begin within these bytes.
    pub(crate) fn within(&self, start: u64, size: u64) -> Vec<(u64, Range)> {
        let inside = self.0.range(start..start.saturating_add(size));
        inside.map(|(at, range)| (*at, range.clone())).collect()
    }

    /// The range that the first of these bytes which are known lies in.
    pub(crate) fn first_of(&self, start: u64, size: usize) -> Option<&Range> {
        let holding = self.find(start).map(|(_, range)| range);
        let behind = || {
            self.0
                .range(start..start.saturating_add(size as u64))
                .next()
        };
        holding.or_else(|| behind().map(|(_, range)| range))
    }

    /// Whether anything of these bytes is known.
    pub(crate) fn overlaps(&self, start: u64, size: u64) -> bool {
        self.find(start).is_some() || !self.within(start, size).is_empty()
    }

    /// Whether so many bytes from an address on can be memory: that of one allocation (seen with driver 580.159); else that of a range and of
    /// those right behind it, up to the end of the drivers' pieces. What lies outside all ranges is the server's to judge.
    pub(crate) fn may_hold(&self, address: u64, size: u64) -> bool {
        let Some(wanted) = address.checked_add(size) else {
            return false;
        };
        let Some((start, range)) = self.find(address) else {
            return true;
        };
        let mut end = start.saturating_add(range.size as u64);
        if range.kind == Kind::Device && (range.alone || range.of_pool) {
            return wanted <= end;
        }
        while end < wanted {
            match self.0.get(&end).filter(|range| range.size > 0) {
                Some(behind) => end = end.saturating_add(behind.size as u64),
                None => {
                    return end
                        .checked_next_multiple_of(PIECE)
                        .is_some_and(|end| wanted <= end);
                }
            }
        }
        true
    }

    /// Whether memory lies here that lives, for certain: what graphs and pools have of it may have ended with them.
    pub(crate) fn is_taken(&self, start: u64, size: u64) -> bool {
        let lives = |range: &Range| range.alone || range.kind != Kind::Device;
        let around = self.find(start).is_some_and(|(_, range)| lives(range));
        around
            || self
                .within(start, size)
                .iter()
                .any(|(_, range)| lives(range))
    }

    /// Forgets what begins here.
    pub(crate) fn remove(&mut self, start: u64) {
        self.0.remove(&start);
    }

    /// Whether all of this host memory is pinned.
    pub(crate) fn is_pinned(&self, start: u64, size: usize) -> bool {
        self.find(start).is_some_and(|(begin, range)| {
            !range.kind.is_device()
                && (start - begin).saturating_add(size as u64) <= range.size as u64
        })
    }
}

impl Driver {
    fn allocate(&self, size: usize) -> Result<u64, CUresult> {
        let acting = self.session_for(0)?;
        self.allocate_as(&acting, size)
    }

    fn allocate_as(&self, acting: &Acting<'_>, size: usize) -> Result<u64, CUresult> {
        self.safe_in_captures()?;
        if size == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if let Some(broken) = acting.session.broken() {
            return Err(broken);
        }
        let context = &acting.context;
        let kept = lock(&self.kept_memory).take(context.number, size);
        let address = match kept {
            Some(address) => address,
            None => self.with_kept_released(context.device, || self.allocate_anew(acting, size))?,
        };
        let range = Range {
            alone: true,
            ..Range::device(context, size, self.new_id())
        };
        write(&self.memory).insert(address, range);
        Ok(address)
    }

    pub(crate) fn allocate_anew(&self, acting: &Acting<'_>, size: usize) -> Result<u64, CUresult> {
        let size = capacity_for(size);
        let request = wire::MemoryAlloc {
            size: size as u64,
            managed_flags: 0,
        };
        let ask = |_| {
            let body = acting.call_for("cuMemAlloc", &request)?;
            let reply = wire::MemoryAllocReply::decode(&body).map_err(|_| acting.malformed())?;
            reply.address.ok_or(CUDA_ERROR_UNKNOWN)
        };
        let address = self.place(acting.context.session, size, ask, |address| {
            acting.call_for("cuMemFree", &wire::MemoryFree { address })?;
            Ok(())
        })?;
        lock(&self.kept_memory).note(address, size);
        Ok(address)
    }

    /// Refuses memory of a graph that no launch has allocated (seen with driver 580.159).
    pub(crate) fn expect_allocated(&self, address: u64) -> Result<(), CUresult> {
        let of_graph = read(&self.memory)
            .find(address)
            .is_some_and(|(_, range)| range.of_graph);
        match !of_graph || lock(&self.graphs).left.contains(&address) {
            true => Ok(()),
            false => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    pub(crate) fn free(&self, address: u64) -> Result<(), CUresult> {
        self.ready()?;
        self.safe_in_captures()?;
        if address == 0 {
            return self.unbroken();
        }
        self.expect_allocated(address)?;
        let found = match read(&self.memory).find(address) {
            Some((start, range)) if start == address => (range.kind, range.context, range.device),
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        };
        let (context, device) = match found {
            (Kind::Managed, ..) => return self.free_managed(address),
            (Kind::Device, context, device) => (context, device),
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        };
        let acting = self.acting_in(self.context(context)?)?;
        // What other programs can open is given back, so that they cannot any more.
        let offered = self.is_offered(address);
        let would_keep = !offered
            && lock(&self.kept_memory).would_keep(address)
            && !self.others_are_busy(&acting.context);
        // A free waits for what is under way, and may tell what became of it.
        let told = match would_keep {
            true => acting.synchronise_all(),
            false => Ok(()),
        };
        if let Some(broken) = acting.session.broken() {
            return Err(broken);
        }
        // A wait tells of a failure.
        let _ = acting.show_kernels();
        // Forgotten before the server is asked: another thread may be given the same address at once.
        let known = write(&self.memory).take_freed(address);
        let known = known.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if would_keep && lock(&self.kept_memory).keep(context, device, address) {
            return told;
        }
        if let Err(status) = acting.call_for("cuMemFree", &wire::MemoryFree { address }) {
            write(&self.memory).insert(address, known);
            return Err(status);
        }
        lock(&self.kept_memory).forget(address);
        lock(&self.graphs).left.remove(&address);
        self.unshare_memory(&known);
        told
    }

    /// Whether other contexts of the server have work, which may use any memory. What is kept is waited for in its own context alone.
    fn others_are_busy(&self, context: &Context) -> bool {
        let is_other =
            |one: &Context| one.session == context.session && one.number != context.number;
        self.several_live.load(Ordering::Acquire)
            && read(&self.contexts)
                .values()
                .any(|one| is_other(one) && one.is_busy(None))
    }

    /// An address for a program that has 32 bits for it; memory beyond is given back.
    fn narrow(&self, made: Result<u64, CUresult>) -> Result<u32, CUresult> {
        let address = made?;
        u32::try_from(address).map_err(|_| {
            // That it cannot be had is all there is to say.
            let _ = self.free(address);
            CUDA_ERROR_OUT_OF_MEMORY
        })
    }

    /// Free and total memory of the current device.
    fn memory_sizes(&self) -> Result<(usize, usize), CUresult> {
        let acting = self.session_for(0)?;
        let body = acting.call(&wire::MemGetInfoV2 {})?;
        let reply = wire::MemGetInfoV2Reply::decode(&body).map_err(|_| acting.malformed())?;
        let kept = lock(&self.kept_memory).of_device(acting.context.device);
        Ok((
            (reply.free.unwrap_or(0) as usize).saturating_add(kept),
            reply.total.unwrap_or(0) as usize,
        ))
    }

    /// Allocates rows. Their pitch is told even where there is no room for them (seen with driver 580.159).
    fn allocate_rows(
        &self,
        [width, height]: [usize; 2],
        element: u32,
        tell_pitch: impl FnOnce(usize),
    ) -> Result<u64, CUresult> {
        self.current()?;
        if width == 0 || height == 0 || !matches!(element, 4 | 8 | 16) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let row = width.checked_next_multiple_of(PITCH);
        let row = row.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        tell_pitch(row);
        // More than there can be is refused where nothing is.
        self.allocate(row.checked_mul(height).unwrap_or(0))
    }

    fn allocate_host(
        &self,
        size: usize,
        flags: u32,
        is_wanted: bool,
    ) -> Result<*mut c_void, CUresult> {
        let context = self.current()?;
        self.safe_in_captures()?;
        self.unbroken()?;
        let known =
            CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
        if flags & !known != 0 || !is_wanted {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // Nothing is had without an address (seen with driver 580.159).
        if size == 0 {
            return Ok(std::ptr::null_mut());
        }
        // What kernels are to use is mirrored where they do not reach what the server shares.
        let for_kernels = flags & CU_MEMHOSTALLOC_DEVICEMAP != 0;
        let start = match self.share_host(&context, size, for_kernels)? {
            Some(start) => start.cast(),
            None => self.map_pinned(size).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?,
        };
        let range = Range {
            kind: Kind::Allocated(flags),
            ..Range::device(&context, size, self.new_id())
        };
        write(&self.memory).insert(start.expose_provenance() as u64, range);
        Ok(start)
    }

    fn free_host(&self, start: *mut c_void) -> Result<(), CUresult> {
        self.ready()?;
        self.safe_in_captures()?;
        let address = start.addr() as u64;
        if address == 0 {
            // As cuMemFree: CUDA's runtime passes NULL on.
            return self.unbroken();
        }
        let mut ranges = write(&self.memory);
        let size = match ranges.0.get(&address) {
            Some(Range {
                kind: Kind::Allocated(_),
                size,
                ..
            }) => *size,
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        };
        ranges.0.remove(&address);
        drop(ranges);
        self.settle_host(address, size)?;
        if !self.unshare_host(start.addr())? {
            self.unmap_pinned(address, size)?;
        }
        self.unbroken()
    }

    /// The fault of the current context's device, which calls that need no device answer too (seen with driver 580.159).
    fn unbroken(&self) -> Result<(), CUresult> {
        match self.session_for(0) {
            Ok(acting) => acting.session.fault().map_or(Ok(()), Err),
            // Nothing has failed where there is no context.
            Err(_) => Ok(()),
        }
    }

    /// Waits until nothing is on its way into host memory that goes out of use, nor out of it.
    pub(crate) fn settle_host(&self, start: u64, size: usize) -> Result<(), CUresult> {
        for session in &self.ready()?.sessions {
            // A session that is lost moves no more.
            if session.lost().is_none() {
                session.settle(start as usize, size)?;
            }
        }
        Ok(())
    }

    /// Whether a handle of the memory can be made that other programs open. Libraries ask this first, and take a refusal of the handle for
    /// an error: where servers have not shown yet whether they share memory, this one is asked for it.
    fn can_be_opened(&self, address: u64) -> Result<bool, CUresult> {
        let found = read(&self.memory)
            .find(address)
            .map(|(_, range)| range.clone());
        let range = found.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if !range.alone {
            return Ok(false);
        }
        let session = self.context(range.context)?.session;
        match self.sharing.is_known(session) {
            Some(shares) => Ok(shares),
            None => Ok(self.export_memory(address).is_ok()),
        }
    }

    /// The kinds of handles of the memory that can be had.
    fn handle_types(&self, address: u64) -> Result<CUmemAllocationHandleType, CUresult> {
        let kind = read(&self.memory)
            .find(address)
            .map(|(_, range)| range.kind);
        Ok(match kind.ok_or(CUDA_ERROR_INVALID_VALUE)? {
            Kind::Mapped(memory) if self.is_exportable(memory) => {
                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
            }
            _ => CU_MEM_HANDLE_TYPE_NONE,
        })
    }

    /// A number that tells something of a pointer; `None` where the attribute is not one of ours.
    fn pointer_attribute(
        &self,
        attribute: CUpointer_attribute,
        address: u64,
    ) -> Option<Result<Told, CUresult>> {
        match attribute {
            CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE => {
                return Some(self.can_be_opened(address).map(Told::Flag));
            }
            CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES => {
                let kinds = self.handle_types(address);
                return Some(kinds.map(|kinds| Told::Word(kinds.into())));
            }
            _ => {}
        }
        let ranges = read(&self.memory);
        let found = ranges.find(address);
        let known = |tell: &dyn Fn(u64, &Range) -> Result<Told, CUresult>| match found {
            Some((start, range)) => tell(start, range),
            None => Err(CUDA_ERROR_INVALID_VALUE),
        };
        Some(match attribute {
            // Memory of pools is of a device (seen with driver 580.159).
            CU_POINTER_ATTRIBUTE_CONTEXT => known(&|_, range| {
                let context = if range.of_pool { 0 } else { range.context };
                Ok(Told::Word(context))
            }),
            CU_POINTER_ATTRIBUTE_MEMORY_TYPE => known(&|_, range| {
                Ok(Told::Number(match range.kind {
                    Kind::Twin => CU_MEMORYTYPE_HOST,
                    kind if kind.is_device() => CU_MEMORYTYPE_DEVICE,
                    _ => CU_MEMORYTYPE_HOST,
                }))
            }),
            CU_POINTER_ATTRIBUTE_DEVICE_POINTER => known(&|_, range| match range.kind {
                // Pinned memory is where the host has it, once a kernel uses it.
                Kind::Allocated(_) => Ok(Told::Word(address)),
                Kind::Registered(_) => {
                    let there = self
                        .context(range.context)?
                        .mirrored
                        .twins
                        .device_side(address, 1)?;
                    there.map(Told::Word).ok_or(CUDA_ERROR_INVALID_VALUE)
                }
                kind if kind.is_device() => Ok(Told::Word(address)),
                _ => Err(CUDA_ERROR_INVALID_VALUE),
            }),
            CU_POINTER_ATTRIBUTE_HOST_POINTER => known(&|_, range| match range.kind {
                Kind::Managed => Ok(Told::Word(address)),
                Kind::Twin => {
                    let host = self.host_of_twin(range.context, address);
                    host.map(Told::Word).ok_or(CUDA_ERROR_INVALID_VALUE)
                }
                kind if kind.is_device() => Err(CUDA_ERROR_INVALID_VALUE),
                _ => Ok(Told::Word(address)),
            }),
            CU_POINTER_ATTRIBUTE_SYNC_MEMOPS => {
                known(&|_, range| Ok(Told::Flag(range.synchronous)))
            }
            CU_POINTER_ATTRIBUTE_IS_MANAGED => {
                known(&|_, range| Ok(Told::Flag(range.kind == Kind::Managed)))
            }
            CU_POINTER_ATTRIBUTE_BUFFER_ID | CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID => {
                known(&|_, range| Ok(Told::Word(range.id)))
            }
            CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => {
                known(&|_, range| Ok(Told::Number(range.device as u32)))
            }
            CU_POINTER_ATTRIBUTE_RANGE_START_ADDR | CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR => {
                known(&|start, _| Ok(Told::Word(start)))
            }
            CU_POINTER_ATTRIBUTE_RANGE_SIZE | CU_POINTER_ATTRIBUTE_MAPPING_SIZE => {
                known(&|_, range| Ok(Told::Word(range.size as u64)))
            }
            CU_POINTER_ATTRIBUTE_MAPPED => known(&|_, _| Ok(Told::Flag(true))),
            CU_POINTER_ATTRIBUTE_ACCESS_FLAGS => {
                known(&|_, _| Ok(Told::Number(CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE)))
            }
            CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE
            | CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE => known(&|_, _| Ok(Told::Flag(false))),
            CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE => known(&|_, range| {
                Ok(Told::Word(match (range.of_pool, range.pool) {
                    (false, _) => 0,
                    (true, 0) => self.default_pool(range.device)?,
                    (true, pool) => pool,
                }))
            }),
            _ => return None,
        })
    }
}

/// Whether this process has memory at all of these addresses.
fn is_mapped(start: usize, size: usize) -> bool {
    const PAGE: usize = 4096;
    let first = start - start % PAGE;
    let Some(end) = start.checked_add(size) else {
        return false;
    };
    // Of pages that are mapped, the call does nothing.
    // SAFETY: it changes no memory, and fails where there is none.
    let told = unsafe {
        libc::msync(
            std::ptr::without_provenance_mut(first),
            end - first,
            libc::MS_ASYNC,
        )
    };
    told == 0
}

/// Why an attribute of a pointer cannot be had.
fn unknown_attribute(attribute: CUpointer_attribute) -> CUresult {
    match attribute {
        // There is no peer-to-peer interface of the client's kernel to a server's device.
        CU_POINTER_ATTRIBUTE_P2P_TOKENS => CUDA_ERROR_NOT_SUPPORTED,
        _ => CUDA_ERROR_INVALID_VALUE,
    }
}

/// What is told of a pointer, in the width that the attribute has.
#[derive(Debug, Clone, Copy)]
enum Told {
    Flag(bool),
    Number(u32),
    Word(u64),
}

impl Told {
    fn bytes(self) -> impl Iterator<Item = u8> {
        let (word, width) = match self {
            // Flags are as wide as numbers (seen with driver 580.159).
            Self::Flag(flag) => (u64::from(flag), 4),
            Self::Number(number) => (u64::from(number), 4),
            Self::Word(word) => (word, 8),
        };
        word.to_le_bytes().into_iter().take(width)
    }
}

fn write_told(target: Vouched<'_, *mut c_void>, told: Told) {
    // SAFETY: the place is vouched for: it has room for what the attribute holds.
    unsafe { crate::raw::fill(target.cast(), size_of::<u64>(), told.bytes()) };
}

impl MemoryCalls for Driver {
    fn cuMemGetInfo_v2(&self, free: Out<usize>, total: Out<usize>) -> Result<(), CUresult> {
        let sizes = self.memory_sizes()?;
        free.set(sizes.0);
        total.set(sizes.1);
        Ok(())
    }

    fn cuMemGetInfo(&self, free: Out<u32>, total: Out<u32>) -> Result<(), CUresult> {
        let sizes = self.memory_sizes()?;
        let narrow = |value| u32::try_from(value).unwrap_or(u32::MAX);
        free.set(narrow(sizes.0));
        total.set(narrow(sizes.1));
        Ok(())
    }

    fn cuMemAlloc(&self, bytesize: u32) -> Result<CUdeviceptr_v1, CUresult> {
        self.narrow(self.allocate(bytesize as usize))
    }

    fn cuMemAllocPitch(
        &self,
        WidthInBytes: u32,
        Height: u32,
        ElementSizeBytes: u32,
    ) -> Result<(CUdeviceptr_v1, u32), CUresult> {
        let (size, mut pitch) = ([WidthInBytes as usize, Height as usize], 0);
        let made = self.allocate_rows(size, ElementSizeBytes, |row| pitch = row);
        let address = self.narrow(made)?;
        Ok((address, u32::try_from(pitch).unwrap_or(u32::MAX)))
    }

    fn cuMemFree(&self, dptr: CUdeviceptr_v1) -> Result<(), CUresult> {
        self.free(dptr.into())
    }

    fn cuMemGetAddressRange(
        &self,
        pbase: Out<CUdeviceptr_v1>,
        psize: Out<u32>,
        dptr: CUdeviceptr_v1,
    ) -> Result<(), CUresult> {
        self.current()?;
        let ranges = read(&self.memory);
        let (start, range) = ranges.find(dptr.into()).ok_or(CUDA_ERROR_NOT_FOUND)?;
        let (Ok(start), Ok(size)) = (u32::try_from(start), u32::try_from(range.size)) else {
            return Err(CUDA_ERROR_INVALID_VALUE);
        };
        pbase.set(start);
        psize.set(size);
        Ok(())
    }

    fn cuMemAllocHost(&self, bytesize: u32) -> Result<*mut c_void, CUresult> {
        self.allocate_host(bytesize as usize, 0, true)
    }

    fn cuMemHostGetDevicePointer(
        &self,
        p: Vouched<'_, *mut c_void>,
        Flags: u32,
    ) -> Result<CUdeviceptr_v1, CUresult> {
        self.current()?;
        if Flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let address = self.device_pointer(p.addr() as u64);
        address.and_then(|address| u32::try_from(address).map_err(|_| CUDA_ERROR_INVALID_VALUE))
    }

    fn cuMemAlloc_v2(&self, dptr: Out<CUdeviceptr>, bytesize: usize) -> Result<(), CUresult> {
        // Memory that nobody learns of is refused where memory of no size is.
        let size = if dptr.wanted() { bytesize } else { 0 };
        dptr.set(self.allocate(size)?);
        Ok(())
    }

    fn cuMemAllocPitch_v2(
        &self,
        dptr: Out<CUdeviceptr>,
        pPitch: Out<usize>,
        WidthInBytes: usize,
        Height: usize,
        ElementSizeBytes: u32,
    ) -> Result<(), CUresult> {
        let are_wanted = dptr.wanted() && pPitch.wanted();
        let width = if are_wanted { WidthInBytes } else { 0 };
        let tell_pitch = |row| pPitch.set(row);
        dptr.set(self.allocate_rows([width, Height], ElementSizeBytes, tell_pitch)?);
        Ok(())
    }

    fn cuMemAllocManaged(&self, bytesize: usize, flags: u32) -> Result<CUdeviceptr, CUresult> {
        self.allocate_managed(bytesize, flags)
    }

    fn cuMemAdvise(
        &self,
        devPtr: CUdeviceptr,
        count: usize,
        advice: CUmem_advise,
        device: CUdevice,
    ) -> Result<(), CUresult> {
        self.advise(devPtr, count, advice, &location(device))
    }

    fn cuMemAdvise_v2(
        &self,
        devPtr: CUdeviceptr,
        count: usize,
        advice: CUmem_advise,
        location: CUmemLocation,
    ) -> Result<(), CUresult> {
        self.advise(devPtr, count, advice, &location)
    }

    fn cuMemPrefetchAsync(
        &self,
        devPtr: CUdeviceptr,
        count: usize,
        dstDevice: CUdevice,
        hStream: CUstream,
    ) -> Result<(), CUresult> {
        let range = Prefetch {
            address: devPtr,
            size: count,
            location: location(dstDevice),
        };
        self.prefetch(&[range], hStream)
    }

    fn cuMemPrefetchAsync_v2(
        &self,
        devPtr: CUdeviceptr,
        count: usize,
        location: CUmemLocation,
        flags: u32,
        hStream: CUstream,
    ) -> Result<(), CUresult> {
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let range = Prefetch {
            address: devPtr,
            size: count,
            location,
        };
        self.prefetch(&[range], hStream)
    }

    fn cuMemPrefetchBatchAsync(
        &self,
        dptrs: &[CUdeviceptr],
        sizes: &[usize],
        prefetchLocs: &[CUmemLocation],
        prefetchLocIdxs: &[usize],
        flags: u64,
        hStream: CUstream,
    ) -> Result<(), CUresult> {
        check_batch(flags, hStream)?;
        let ranges = batch(dptrs, sizes, prefetchLocs, prefetchLocIdxs)?;
        self.prefetch(&ranges, hStream)
    }

    fn cuMemDiscardBatchAsync(
        &self,
        dptrs: &[CUdeviceptr],
        sizes: &[usize],
        flags: u64,
        hStream: CUstream,
    ) -> Result<(), CUresult> {
        check_batch(flags, hStream)?;
        self.discard(&ranges(dptrs, sizes)?, hStream)
    }

    fn cuMemDiscardAndPrefetchBatchAsync(
        &self,
        dptrs: &[CUdeviceptr],
        sizes: &[usize],
        prefetchLocs: &[CUmemLocation],
        prefetchLocIdxs: &[usize],
        flags: u64,
        hStream: CUstream,
    ) -> Result<(), CUresult> {
        // Discarded contents may stay.
        MemoryCalls::cuMemPrefetchBatchAsync(
            self,
            dptrs,
            sizes,
            prefetchLocs,
            prefetchLocIdxs,
            flags,
            hStream,
        )
    }

    fn cuMemRangeGetAttribute(
        &self,
        data: OutList<u8>,
        attribute: CUmem_range_attribute,
        devPtr: CUdeviceptr,
        count: usize,
    ) -> Result<(), CUresult> {
        let told = self.range_attribute(attribute, data.room(), devPtr, count)?;
        if !data.wanted() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        data.fill(told.into_iter().flat_map(i32::to_ne_bytes));
        Ok(())
    }

    fn cuMemRangeGetAttributes(
        &self,
        data: Vouched<'_, &[*mut c_void]>,
        dataSizes: &[usize],
        attributes: &[CUmem_range_attribute],
        devPtr: CUdeviceptr,
        count: usize,
    ) -> Result<(), CUresult> {
        if attributes.is_empty() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        for ((target, size), attribute) in data.elements().zip(dataSizes).zip(attributes) {
            // SAFETY: the places are vouched for: each is writable for its size.
            let place = unsafe { OutList::new(target.cast(), *size) };
            MemoryCalls::cuMemRangeGetAttribute(self, place, *attribute, devPtr, count)?;
        }
        Ok(())
    }

    fn cuPointerSetAttribute(
        &self,
        value: &[u8; 4],
        attribute: CUpointer_attribute,
        ptr: CUdeviceptr,
    ) -> Result<(), CUresult> {
        if attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        self.current()?;
        let mut ranges = write(&self.memory);
        let found = ranges.0.range_mut(..=ptr).next_back();
        match found {
            Some((start, range)) if ptr - start < range.size as u64 && range.kind.is_device() => {
                // A flag is as wide as a number.
                range.synchronous = *value != [0; 4];
                Ok(())
            }
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    fn cuMemFree_v2(&self, dptr: CUdeviceptr) -> Result<(), CUresult> {
        self.free(dptr)
    }

    fn cuMemGetAddressRange_v2(
        &self,
        pbase: Out<CUdeviceptr>,
        psize: Out<usize>,
        dptr: CUdeviceptr,
    ) -> Result<(), CUresult> {
        self.current()?;
        let ranges = read(&self.memory);
        let (start, range) = ranges.find(dptr).ok_or(CUDA_ERROR_NOT_FOUND)?;
        pbase.set(start);
        psize.set(range.size);
        Ok(())
    }

    fn cuMemAllocHost_v2(&self, pp: Out<*mut c_void>, bytesize: usize) -> Result<(), CUresult> {
        pp.set(self.allocate_host(bytesize, 0, pp.wanted())?);
        Ok(())
    }

    fn cuMemHostAlloc(
        &self,
        pp: Out<*mut c_void>,
        bytesize: usize,
        Flags: u32,
    ) -> Result<(), CUresult> {
        pp.set(self.allocate_host(bytesize, Flags, pp.wanted())?);
        Ok(())
    }

    fn cuMemFreeHost(&self, p: Vouched<'_, *mut c_void>) -> Result<(), CUresult> {
        self.free_host(*p)
    }

    fn cuMemHostGetDevicePointer_v2(
        &self,
        pdptr: Out<CUdeviceptr>,
        p: Vouched<'_, *mut c_void>,
        Flags: u32,
    ) -> Result<(), CUresult> {
        self.current()?;
        if Flags != 0 || !pdptr.wanted() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        pdptr.set(self.device_pointer(p.addr() as u64)?);
        Ok(())
    }

    fn cuMemHostGetFlags(&self, p: Vouched<'_, *mut c_void>) -> Result<u32, CUresult> {
        self.current()?;
        // Between several devices all memory is portable, and not told to be (seen with driver 580.159).
        let told = match self.ready()?.devices().len() {
            0 | 1 => u32::MAX,
            _ => !CU_MEMHOSTALLOC_PORTABLE,
        };
        let ranges = read(&self.memory);
        match ranges.find(p.addr() as u64).map(|(_, range)| range.kind) {
            // Addresses are unified: all devices see it.
            Some(Kind::Allocated(flags)) => Ok(flags & told | CU_MEMHOSTALLOC_DEVICEMAP),
            Some(Kind::Managed) => Ok(CU_MEMHOSTALLOC_DEVICEMAP),
            // Of how it was registered, what allocations know too.
            Some(Kind::Registered(flags)) => {
                Ok(flags & CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP)
            }
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    fn cuMemHostRegister_v2(
        &self,
        p: Vouched<'_, *mut c_void>,
        bytesize: usize,
        Flags: u32,
    ) -> Result<(), CUresult> {
        self.current().and_then(|context| {
            self.safe_in_captures()?;
            // Registers of other devices are none that a server reaches.
            let known = CU_MEMHOSTREGISTER_PORTABLE
                | CU_MEMHOSTREGISTER_DEVICEMAP
                | CU_MEMHOSTREGISTER_READ_ONLY;
            if p.is_null() || bytesize == 0 || Flags & !known != 0 {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            let start = p.addr() as u64;
            let mut ranges = write(&self.memory);
            match ranges.first_of(start, bytesize).map(|range| range.kind) {
                None => {}
                Some(Kind::Registered(_)) => {
                    return Err(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
                }
                // Memory that CUDA gave (seen with driver 580.159).
                Some(_) => return Err(CUDA_ERROR_INVALID_VALUE),
            }
            if !is_mapped(p.addr(), bytesize) {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            let range = Range {
                kind: Kind::Registered(Flags),
                ..Range::device(&context, bytesize, self.new_id())
            };
            ranges.1.remove(&start);
            ranges.insert(start, range);
            pinned::declare(p.addr(), bytesize);
            self.mirrors.registered.widen(start, bytesize);
            Ok(())
        })
    }

    fn cuMemHostUnregister(&self, p: Vouched<'_, *mut c_void>) -> Result<(), CUresult> {
        self.ready().and_then(|_| {
            self.safe_in_captures()?;
            let start = p.addr() as u64;
            if start == 0 {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            let known = read(&self.memory).0.get(&start).cloned();
            let (size, context) = match known {
                Some(range) if matches!(range.kind, Kind::Registered(_)) => {
                    (range.size, range.context)
                }
                _ if write(&self.memory).1.remove(&start) => return Ok(()),
                // Memory that CUDA knows and that is no registration's first byte.
                _ if read(&self.memory).find(start).is_some() => {
                    return Err(CUDA_ERROR_INVALID_VALUE);
                }
                _ => return Err(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED),
            };
            let ended = self.end_twin(context, start);
            write(&self.memory).remove(start);
            let settled = self.settle_host(start, size);
            pinned::withdraw(p.addr());
            settled.and(ended)
        })
    }

    fn cuPointerGetAttribute(
        &self,
        data: Vouched<'_, *mut c_void>,
        attribute: CUpointer_attribute,
        ptr: CUdeviceptr,
    ) -> Result<(), CUresult> {
        self.ready()?;
        if data.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let told = self.pointer_attribute(attribute, ptr);
        let told = told.ok_or_else(|| unknown_attribute(attribute))?;
        let (told, outcome) = match told {
            Ok(told) => (told, Ok(())),
            // A program that asks for this alone is going to use it; one that asks for all attributes looks at many pointers.
            Err(_)
                if attribute == CU_POINTER_ATTRIBUTE_DEVICE_POINTER
                    && read(&self.memory).is_registered(ptr) =>
            {
                self.current()?;
                (Told::Word(self.device_pointer(ptr)?), Ok(()))
            }
            // The host's address of memory that the host lacks is told as NULL besides (seen with driver 580.159).
            Err(status)
                if attribute == CU_POINTER_ATTRIBUTE_HOST_POINTER
                    && read(&self.memory).is_device(ptr) =>
            {
                (Told::Word(0), Err(status))
            }
            Err(status) => return Err(status),
        };
        write_told(data, told);
        outcome
    }

    fn cuPointerGetAttributes(
        &self,
        attributes: &[CUpointer_attribute],
        data: Vouched<'_, &[*mut c_void]>,
        ptr: CUdeviceptr,
    ) -> Result<(), CUresult> {
        let is_anywhere = self.current().is_ok();
        for (attribute, target) in attributes.iter().zip(data.elements()) {
            if target.is_null() {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            // A pointer that nobody knows is described by zeros here, where the other call refuses it.
            let told = match self.pointer_attribute(*attribute, ptr) {
                // Devices reach memory in a context (seen with driver 580.159).
                Some(Ok(_))
                    if !is_anywhere && *attribute == CU_POINTER_ATTRIBUTE_DEVICE_POINTER =>
                {
                    Told::Word(0)
                }
                Some(Ok(told)) => told,
                Some(Err(_)) => match *attribute {
                    // Kernels take it as a parameter.
                    CU_POINTER_ATTRIBUTE_DEVICE_POINTER
                        if is_anywhere && read(&self.memory).is_registered(ptr) =>
                    {
                        Told::Word(ptr)
                    }
                    CU_POINTER_ATTRIBUTE_MEMORY_TYPE => Told::Number(0),
                    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => Told::Number(u32::MAX - 1),
                    CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
                    | CU_POINTER_ATTRIBUTE_IS_MANAGED
                    | CU_POINTER_ATTRIBUTE_MAPPED
                    | CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE
                    | CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE
                    | CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE => Told::Flag(false),
                    CU_POINTER_ATTRIBUTE_ACCESS_FLAGS => {
                        Told::Number(CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE)
                    }
                    // As if it were the program's own memory.
                    CU_POINTER_ATTRIBUTE_HOST_POINTER if !read(&self.memory).is_device(ptr) => {
                        Told::Word(ptr)
                    }
                    _ => Told::Word(0),
                },
                None => return Err(unknown_attribute(*attribute)),
            };
            write_told(target, told);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(size: usize) -> Range {
        Range {
            size,
            context: 1,
            device: 0,
            id: 1,
            kind: Kind::Device,
            of_pool: false,
            pool: 0,
            of_graph: false,
            alone: false,
            synchronous: false,
        }
    }

    #[test]
    fn new_device_memory_replaces_ranges_it_covers() {
        let mut ranges = Ranges::default();
        ranges.insert(0x1000, device(0x200));
        ranges.insert(0x1800, device(0x100));
        ranges.insert(0x3000, device(0x100));
        ranges.insert(0x1100, device(0x1000));
        assert!(ranges.is_device(0x1a00));
        assert!(!ranges.is_device(0x1000));
        assert!(ranges.is_device(0x3000));
    }
}
