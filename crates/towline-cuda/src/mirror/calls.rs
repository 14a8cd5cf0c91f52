//! Calls about managed memory, and pinned memory that kernels reach.

use std::collections::BTreeSet;
use std::ffi::c_void;
use std::sync::Arc;

use towline_backend::cuda as wire;
use towline_backend::cuda::*;
use towline_client::cuda::Actor;
use towline_client::pinned;
use towline_client::raw::HostPtr;

use super::region::{Access, Region, Span};
use super::{Attached, FIRST, Holder, Mirror, PAGE, ROUND};
use crate::driver::{Acting, Driver, lock, read, write};
use crate::memory::{Kind, Range};
use crate::pinned::may_be_reached;
use crate::virtual_memory::number_of;

/// Bytes up to which a copy to a device may be structures and tables with addresses for kernels.
const STRUCTURES: usize = 64 << 10;

/// What the application has said of a managed allocation, and is told again. Nothing follows from it here.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hints {
    read_mostly: bool,
    preferred: Option<Place>,
    accessed_by: BTreeSet<CUdevice>,
    prefetched: Option<Place>,
}

/// A location that this driver has: its type, and its number where the type has numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    kind: CUmemLocationType,
    id: i32,
}

impl Place {
    /// As CUDA 8 names it.
    fn device(self) -> CUdevice {
        match self.kind {
            CU_MEM_LOCATION_TYPE_DEVICE => self.id,
            _ => CU_DEVICE_CPU,
        }
    }
}

/// A range of managed memory, and where it is to be.
pub(crate) struct Prefetch {
    pub(crate) address: u64,
    pub(crate) size: usize,
    pub(crate) location: CUmemLocation,
}

/// A location as the calls of CUDA 8 name it.
pub(crate) fn location(device: CUdevice) -> CUmemLocation {
    let (kind, id) = match device {
        CU_DEVICE_CPU => (CU_MEM_LOCATION_TYPE_HOST, 0),
        device => (CU_MEM_LOCATION_TYPE_DEVICE, device),
    };
    CUmemLocation {
        r#type: kind,
        either: CUmemLocation_either { id },
    }
}

/// The ranges of a batch, each with the location of the run that it is in.
pub(crate) fn batch(
    addresses: &[u64],
    sizes: &[usize],
    locations: &[CUmemLocation],
    from: &[usize],
) -> Result<Vec<Prefetch>, CUresult> {
    let ranges = ranges(addresses, sizes)?;
    if !crate::copy::cover(from, ranges.len()) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let prefetches = ranges.into_iter().enumerate();
    let prefetches = prefetches.map(|(index, (address, size))| Prefetch {
        address,
        size,
        location: locations[from.partition_point(|first| *first <= index) - 1],
    });
    Ok(prefetches.collect())
}

/// The ranges of a batch, which has some.
pub(crate) fn ranges(addresses: &[u64], sizes: &[usize]) -> Result<Vec<(u64, usize)>, CUresult> {
    match addresses.is_empty() {
        true => Err(CUDA_ERROR_INVALID_VALUE),
        false => Ok(addresses
            .iter()
            .copied()
            .zip(sizes.iter().copied())
            .collect()),
    }
}

/// Refuses what a batch of hints must not have: flags, and the default stream by its old name.
pub(crate) fn check_batch(flags: u64, stream: CUstream) -> Result<(), CUresult> {
    match flags == 0 && stream.addr() > CU_STREAM_LEGACY as usize {
        true => Ok(()),
        false => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

impl Driver {
    /// Allocates managed memory.
    pub(crate) fn allocate_managed(&self, size: usize, flags: u32) -> Result<u64, CUresult> {
        let attached = match flags {
            CU_MEM_ATTACH_GLOBAL => Attached::All,
            CU_MEM_ATTACH_HOST => Attached::Host,
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        };
        if size == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let acting = self.session_for(0)?;
        self.safe_in_captures()?;
        let device = self.device(acting.context.device)?;
        if device.attribute(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY) == 0 {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        let number = acting.context.device;
        let address = self.with_kept_released(number, || self.make_mirror(&acting, size))?;
        if let Some(mirror) = self.mirror(address) {
            let blocks = &mut *lock(&mirror.blocks);
            (blocks.attached, blocks.unattached) = (attached, attached);
        }
        let range = Range {
            kind: Kind::Managed,
            ..Range::device(&acting.context, size, self.new_id())
        };
        write(&self.memory).insert(address, range);
        Ok(address)
    }

    /// Frees managed memory.
    pub(crate) fn free_managed(&self, address: u64) -> Result<(), CUresult> {
        if !self.is_own_mirror(address) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        write(&self.memory).remove(address);
        lock(&self.mirrors.hints).remove(&address);
        self.end_mirror(address)
    }

    /// Memory of the process for a pinned allocation, of zeros: where the device can have memory at the same addresses, if there is room.
    pub(crate) fn map_pinned(&self, size: usize) -> Option<*mut c_void> {
        let size = size.checked_next_multiple_of(PAGE)?;
        let room = size.checked_next_multiple_of(ROUND)? as u64;
        let put = |address| Ok(super::region::map_private(Some(address), size));
        let placed = self.mirrors.place(room, put).ok().flatten();
        // Copies do not care; kernels do not reach it there.
        let start = placed.or_else(|| super::region::map_private(None, size))?;
        pinned::declare(start.addr(), size);
        Some(start)
    }

    /// Ends such memory, and what the device has of it.
    pub(crate) fn unmap_pinned(&self, address: u64, size: usize) -> Result<(), CUresult> {
        pinned::withdraw(address as usize);
        if self.is_mirrored(address) {
            return self.end_mirror(address);
        }
        let size = size.checked_next_multiple_of(PAGE).unwrap_or(size);
        super::region::unmap(address as usize, size);
        self.mirrors.leave(address);
        Ok(())
    }

    /// Gives the device memory at the addresses of a pinned allocation, unless it has that itself.
    fn promote(&self, acting: &Acting<'_>, start: u64, size: usize) -> Result<(), CUresult> {
        if self.is_mirrored(start) || self.reach(acting, start, size)? {
            return Ok(());
        }
        let _promoting = lock(&self.mirrors.promoting);
        if self.is_mirrored(start) {
            return Ok(());
        }
        let device = self.device(acting.context.device)?;
        if device.attribute(CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY) == 0 {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        // What is on its way there lands in the pages that are about to be replaced; what leaves them would be stopped by their protection.
        pinned::withdraw(start as usize);
        self.settle_host(start, size)?;
        let size = size.checked_next_multiple_of(PAGE);
        let size = size.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let Some(memory) = self.back(acting, start, size.next_multiple_of(ROUND))? else {
            log::warn!(
                "pinned memory at {start:#x} cannot be used by kernels: the server has no free addresses there"
            );
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        };
        let placed = Region::beside(start as usize, size);
        let (region, file) = placed.ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        let lane = self.push_lane(acting)?;
        let mut mirror = Mirror::new(region, size, acting, lane, memory);
        mirror.is_pinned = true;
        let mirror = Arc::new(mirror);
        let is_there = {
            // Other threads that write there meanwhile wait for this.
            let blocks = &mut *lock(&mirror.blocks);
            blocks.holders.fill(Holder::Host);
            super::fault::add(&mirror) && mirror.region.move_in(&file)
        };
        if is_there {
            self.list_mirror(mirror);
            return Ok(());
        }
        super::fault::remove(&mirror);
        let _ = mirror.give_back(acting.actor);
        // The application's memory is where it was.
        std::mem::forget(mirror);
        Err(CUDA_ERROR_OPERATING_SYSTEM)
    }

    /// Where kernels find pinned memory, and what counts as such.
    pub(crate) fn device_pointer(&self, address: u64) -> Result<u64, CUresult> {
        let (start, range) = match read(&self.memory).find(address) {
            Some((start, range)) => (start, range.clone()),
            None => return Err(CUDA_ERROR_INVALID_VALUE),
        };
        match range.kind {
            Kind::Allocated(_) => {
                let acting = self.acting_in(self.context(range.context)?)?;
                self.promote(&acting, start, range.size)?;
                Ok(address)
            }
            Kind::Registered(_) => {
                let acting = self.acting_in(self.context(range.context)?)?;
                Ok(self.twin(&acting, start, range.size)? + (address - start))
            }
            // Managed and device memory have one already, and are refused (seen with driver 580.159).
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// Whether a number may be an address of pinned memory.
    #[inline]
    fn may_be_pinned(&self, number: u64) -> bool {
        number.wrapping_sub(FIRST) < self.mirrors.given() || may_be_reached(number)
    }

    /// Before a launch with these parameters: pinned memory that they name is on the device too, and an address of registered memory becomes
    /// that of what the device has of it. With CUDA kernels use such memory at the host's address.
    #[inline]
    pub(crate) fn before_launch(
        &self,
        acting: &Acting<'_>,
        parameters: &mut [u8],
    ) -> Result<(), CUresult> {
        for word in parameters.as_chunks_mut::<8>().0 {
            let number = u64::from_le_bytes(*word);
            if self.may_be_pinned(number) {
                self.promote_at(acting, number)?;
            } else if self.mirrors.registered.may_hold(number) {
                self.name_twin(acting, word)?;
            }
        }
        Ok(())
    }

    #[cold]
    fn name_twin(&self, acting: &Acting<'_>, word: &mut [u8; 8]) -> Result<(), CUresult> {
        let address = u64::from_le_bytes(*word);
        let known = read(&self.memory).find(address).and_then(|(_, range)| {
            matches!(range.kind, Kind::Registered(_)).then_some(range.context)
        });
        if let Some(context) = known
            && self.context(context)?.session == acting.context.session
        {
            *word = self.device_pointer(address)?.to_le_bytes();
        }
        Ok(())
    }

    /// Before bytes of the host are copied to a device, which may be structures that name pinned memory to kernels.
    pub(crate) fn before_pointers(
        &self,
        acting: &Acting<'_>,
        source: HostPtr,
        size: usize,
    ) -> Result<(), CUresult> {
        if size > STRUCTURES || self.mirrors.given() == 0 {
            return Ok(());
        }
        // SAFETY: the copy's own contract: so many bytes can be read.
        let bytes = unsafe { std::slice::from_raw_parts(source.start().cast_const(), size) };
        for word in bytes.as_chunks::<8>().0 {
            let number = u64::from_le_bytes(*word);
            if self.may_be_pinned(number) {
                self.promote_at(acting, number)?;
            }
        }
        Ok(())
    }

    /// Sees to it that pinned memory at an address is on the device too.
    pub(crate) fn promote_at(&self, acting: &Acting<'_>, address: u64) -> Result<(), CUresult> {
        let found = read(&self.memory)
            .find(address)
            .filter(|(_, range)| matches!(range.kind, Kind::Allocated(_)))
            .map(|(start, range)| (start, range.size));
        match found {
            Some((start, size)) => self.promote(acting, start, size),
            None => Ok(()),
        }
    }

    /// Shows the application a managed variable, which the server's driver has placed. Each page has one mirror, whatever variables lie
    /// there.
    pub(crate) fn show_variable(
        &self,
        acting: &Acting<'_>,
        address: u64,
        size: usize,
    ) -> Result<(), CUresult> {
        let refused = || {
            log::warn!(
                "the managed variable at {address:#x} cannot be used by the host: something else of this process lies there"
            );
            CUDA_ERROR_NOT_SUPPORTED
        };
        let mut from = address - address % PAGE as u64;
        let end = address.checked_add(size as u64);
        let end = end.and_then(|end| end.checked_next_multiple_of(PAGE as u64));
        let end = end.ok_or_else(refused)?;
        let mut there = self.mirrors_within(address, size.max(1));
        if there
            .iter()
            .any(|one| !Arc::ptr_eq(&one.session, acting.session))
        {
            return Err(refused());
        }
        there.reverse();
        for mirror in &there {
            let (start, length) = mirror.place();
            self.mirror_variables(acting, from, start as u64)
                .ok_or_else(refused)??;
            from = (start + length) as u64;
        }
        self.mirror_variables(acting, from, end)
            .ok_or_else(refused)??;
        let there = self.mirrors_within(address, size.max(1));
        there
            .iter()
            .try_for_each(|mirror| mirror.add_part(address, size))
    }

    /// Mirrors pages of which no part is known; `None` where this process has something else.
    fn mirror_variables(
        &self,
        acting: &Acting<'_>,
        from: u64,
        to: u64,
    ) -> Option<Result<(), CUresult>> {
        let Some(bytes) = to.checked_sub(from).filter(|bytes| *bytes > 0) else {
            return Some(Ok(()));
        };
        // Memory beside the variable may have been given to the application before.
        self.addresses
            .release(acting.context.session, from, bytes as usize);
        let region = Region::at(from, bytes as usize)?;
        Some(self.push_lane(acting).and_then(|lane| {
            let mirror = Mirror::new(region, 0, acting, lane, 0);
            {
                let blocks = &mut *lock(&mirror.blocks);
                blocks.holders.fill(Holder::Device);
                blocks.here.clear();
                blocks.parts.clear();
                mirror.region.protect(&(0..bytes as usize), Access::Nothing);
            }
            self.enter_mirror(mirror)
        }))
    }

    /// Ends what the application was shown of a variable; pages of which nothing else is known are gone.
    pub(crate) fn hide_variable(&self, address: u64, size: usize) {
        for mirror in self.mirrors_within(address, size.max(1)) {
            if mirror.memory == 0 && mirror.remove_part(address, size) {
                lock(&self.mirrors.all).remove(&(mirror.place().0 as u64));
            }
        }
    }

    /// The managed allocation that all of these bytes are of.
    fn managed(&self, address: u64, size: usize) -> Result<(u64, Range), CUresult> {
        self.ready()?;
        let ranges = read(&self.memory);
        let (start, range) = ranges.find(address).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let fits = (address - start).saturating_add(size as u64) <= range.size as u64;
        match range.kind == Kind::Managed && fits && size > 0 {
            true => Ok((start, range.clone())),
            false => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// Refuses locations that this driver has not. Its devices lack concurrent managed access, for which hints about them are natively
    /// refused; but programs that give hints seldom ask for it, and a hint that does nothing changes no result.
    fn place_of(&self, location: &CUmemLocation) -> Result<Place, CUresult> {
        let (kind, id) = (location.r#type, number_of(location));
        match kind {
            CU_MEM_LOCATION_TYPE_DEVICE => self.device(id).map(|_| Place { kind, id }),
            CU_MEM_LOCATION_TYPE_HOST_NUMA => Ok(Place { kind, id }),
            CU_MEM_LOCATION_TYPE_HOST | CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT => {
                Ok(Place { kind, id: 0 })
            }
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// As [`Self::place_of`], of a processor.
    fn processor(&self, location: &CUmemLocation) -> Result<CUdevice, CUresult> {
        match location.r#type {
            CU_MEM_LOCATION_TYPE_DEVICE | CU_MEM_LOCATION_TYPE_HOST => {
                self.place_of(location).map(Place::device)
            }
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    pub(crate) fn advise(
        &self,
        address: u64,
        size: usize,
        advice: CUmem_advise,
        location: &CUmemLocation,
    ) -> Result<(), CUresult> {
        let (start, _) = self.managed(address, size)?;
        let change: Box<dyn Fn(&mut Hints)> = match advice {
            CU_MEM_ADVISE_SET_READ_MOSTLY => Box::new(|hints| hints.read_mostly = true),
            CU_MEM_ADVISE_UNSET_READ_MOSTLY => Box::new(|hints| hints.read_mostly = false),
            CU_MEM_ADVISE_SET_PREFERRED_LOCATION => {
                let place = self.place_of(location)?;
                Box::new(move |hints| hints.preferred = Some(place))
            }
            CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION => Box::new(|hints| hints.preferred = None),
            CU_MEM_ADVISE_SET_ACCESSED_BY => {
                let processor = self.processor(location)?;
                Box::new(move |hints| {
                    hints.accessed_by.insert(processor);
                })
            }
            CU_MEM_ADVISE_UNSET_ACCESSED_BY => {
                let processor = self.processor(location)?;
                Box::new(move |hints| {
                    hints.accessed_by.remove(&processor);
                })
            }
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        };
        change(lock(&self.mirrors.hints).entry(start).or_default());
        Ok(())
    }

    pub(crate) fn prefetch(&self, ranges: &[Prefetch], stream: CUstream) -> Result<(), CUresult> {
        self.on_uncaptured(stream)?;
        // All of them, or none.
        let found = ranges.iter().map(|range| {
            let (start, _) = self.managed(range.address, range.size)?;
            Ok((start, self.place_of(&range.location)?))
        });
        let found: Vec<(u64, Place)> = found.collect::<Result<_, CUresult>>()?;
        let mut hints = lock(&self.mirrors.hints);
        for (start, place) in found {
            hints.entry(start).or_default().prefetched = Some(place);
        }
        Ok(())
    }

    /// Declares contents void, which may do nothing: then they stay.
    pub(crate) fn discard(
        &self,
        ranges: &[(u64, usize)],
        stream: CUstream,
    ) -> Result<(), CUresult> {
        self.on_uncaptured(stream)?;
        let mut ranges = ranges.iter();
        ranges.try_for_each(|(address, size)| self.managed(*address, *size).map(|_| ()))
    }

    pub(crate) fn attach(
        &self,
        stream: CUstream,
        address: u64,
        length: usize,
        flags: u32,
    ) -> Result<(), CUresult> {
        let (_, handle) = self.on_uncaptured(stream)?;
        self.safe_in_captures()?;
        let (start, range) = self.managed(address, length.max(1))?;
        if start != address || (length != 0 && length != range.size) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let attached = match flags {
            CU_MEM_ATTACH_GLOBAL => Attached::All,
            CU_MEM_ATTACH_HOST => Attached::Host,
            // The default streams by name are taken, NULL is not (seen with driver 580.159).
            CU_MEM_ATTACH_SINGLE if !stream.is_null() => Attached::Stream(handle.0),
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        };
        let mirror = self.mirror(address).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        lock(&mirror.blocks).attached = attached;
        Ok(())
    }

    /// An attribute of a managed range, as so many 32-bit numbers.
    pub(crate) fn range_attribute(
        &self,
        attribute: CUmem_range_attribute,
        bytes: usize,
        address: u64,
        size: usize,
    ) -> Result<Vec<i32>, CUresult> {
        let (start, _) = self.managed(address, size)?;
        let hints = lock(&self.mirrors.hints).get(&start).cloned();
        let hints = hints.unwrap_or_default();
        let device = |place: Option<Place>| place.map_or(CU_DEVICE_INVALID, Place::device);
        let kind = |place: Option<Place>| {
            place.map_or(CU_MEM_LOCATION_TYPE_INVALID, |place| place.kind) as i32
        };
        let id = |place: Option<Place>| place.map_or(0, |place| place.id);
        let one = match attribute {
            CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY => i32::from(hints.read_mostly),
            CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION => device(hints.preferred),
            CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION => device(hints.prefetched),
            CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE => kind(hints.preferred),
            CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE => kind(hints.prefetched),
            CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID => id(hints.preferred),
            CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID => id(hints.prefetched),
            CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY => {
                if bytes == 0 || !bytes.is_multiple_of(4) {
                    return Err(CUDA_ERROR_INVALID_VALUE);
                }
                let none = std::iter::repeat(CU_DEVICE_INVALID);
                let devices = hints.accessed_by.into_iter().chain(none);
                return Ok(devices.take(bytes / 4).collect());
            }
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        };
        match bytes {
            4 => Ok(vec![one]),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }
}

impl Mirror {
    /// The part that a variable has in these pages.
    fn part(&self, address: u64, size: usize) -> Span {
        let start = address.saturating_sub(self.region.view() as u64) as usize;
        let end = (address as usize + size).saturating_sub(self.region.view());
        start..end.min(self.region.size())
    }

    /// Has a variable transferred too.
    fn add_part(&self, address: u64, size: usize) -> Result<(), CUresult> {
        let part = self.part(address, size);
        let blocks = &mut *lock(&self.blocks);
        if !blocks.parts.contains(&part) {
            // The host fetches it with the others that it touches next.
            self.push(blocks, 0..usize::MAX)?;
            blocks.parts.push(part);
        }
        Ok(())
    }

    /// Has a variable left out of transfers from now on; whether it was the last one.
    fn remove_part(&self, address: u64, size: usize) -> bool {
        let part = self.part(address, size);
        let blocks = &mut *lock(&self.blocks);
        blocks.parts.retain(|known| *known != part);
        blocks.parts.is_empty()
    }

    /// Has the server take its memory back; nothing uses it any more.
    pub(super) fn give_back(&self, actor: Actor) -> Result<(), CUresult> {
        let address = self.region.view() as u64;
        if self.memory == 0 {
            // It is a variable's, which goes with its module.
            return Ok(());
        }
        let size = self.region.size().next_multiple_of(ROUND) as u64;
        let unmap = wire::PhysicalUnmap { address, size };
        self.session.call(actor, "cuMemFree", &unmap)?;
        let release = wire::PhysicalRelease {
            memory: self.memory,
        };
        self.session.post(actor, &release)?;
        let free = wire::AddressFree {
            address,
            size: super::reserved(size),
        };
        self.session.post(actor, &free)
    }
}
