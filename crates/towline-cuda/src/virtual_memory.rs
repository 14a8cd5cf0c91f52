//! Addresses and physical memory apart: the application reserves the one, creates the other, and maps it.
//!
//! A reservation belongs to the server of the context that was in use when it was made; memory of another server's device cannot be
//! mapped there.

use std::collections::{BTreeMap, HashMap};
use std::ffi::c_void;

use towline_backend::cuda as wire;
use towline_backend::cuda::*;
use towline_client::cuda::Session;
use towline_client::raw::Vouched;

use crate::addresses::elsewhere;
use crate::driver::{Driver, VirtualMemoryCalls, lock, read, write};
use crate::ipc::PHYSICAL;
use crate::memory::{Kind, Range};

/// What physical memory is rounded to on every device so far, minimal and recommended.
pub(crate) const GRANULARITY: usize = 2 << 20;
/// Kind of the numbers of physical memory.
const MEMORY_TAG: u8 = 0xfd;
/// The flag of an allocation that a network adapter may reach.
const RDMA_FLAG: u32 = 1;
/// The flag of an allocation that may be exported.
const EXPORT_FLAG: u32 = 2;

/// What the application has reserved and created.
#[derive(Default)]
pub(crate) struct VirtualMemory {
    reserved: BTreeMap<u64, Reserved>,
    physical: HashMap<u64, Physical>,
}

#[derive(Clone, Copy)]
struct Reserved {
    size: usize,
    session: u8,
}

/// Physical memory that the application holds, or that is mapped.
#[derive(Clone, Copy)]
struct Physical {
    size: usize,
    device: CUdevice,
    session: u8,
    gpu_direct: u8,
    /// It was created to be exported, or imported.
    exportable: bool,
    references: u32,
    /// How often it is mapped: it is there as long.
    mapped: u32,
}

impl VirtualMemory {
    /// The reservation that all of these bytes lie in.
    fn reserved(&self, address: u64, size: usize) -> Option<Reserved> {
        let (start, reserved) = self.reserved.range(..=address).next_back()?;
        let end = (address - start).checked_add(size as u64)?;
        (end <= reserved.size as u64).then_some(*reserved)
    }
}

fn is_rounded(size: usize) -> bool {
    size > 0 && size.is_multiple_of(GRANULARITY)
}

/// The number of a location: of most kinds a device's.
pub(crate) fn number_of(location: &CUmemLocation) -> i32 {
    // SAFETY: every variant of the union is plain data.
    unsafe { location.either.id }
}

/// The device that a location names.
pub(crate) fn device_of(location: &CUmemLocation) -> Result<CUdevice, CUresult> {
    match location.r#type {
        CU_MEM_LOCATION_TYPE_DEVICE => Ok(number_of(location)),
        CU_MEM_LOCATION_TYPE_INVALID => Err(CUDA_ERROR_INVALID_VALUE),
        _ => Err(CUDA_ERROR_NOT_SUPPORTED),
    }
}

/// The device of physical memory that is asked for.
fn wanted(prop: &CUmemAllocationProp) -> Result<CUdevice, CUresult> {
    if prop.r#type != CU_MEM_ALLOCATION_TYPE_PINNED {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if prop.requestedHandleTypes & !CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR != 0 {
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    device_of(&prop.location)
}

impl Driver {
    /// Whether physical memory was made for others to open it, or came from one.
    pub(crate) fn is_exportable(&self, memory: u64) -> bool {
        let known = lock(&self.virtual_memory).physical.get(&memory).copied();
        known.is_some_and(|physical| physical.exportable)
    }

    /// The words of accesses, for the server that they are told to.
    pub(crate) fn access_words(
        &self,
        list: &[CUmemAccessDesc],
        session: u8,
    ) -> Result<Vec<u64>, CUresult> {
        let mut words = Vec::with_capacity(3 * list.len());
        for access in list {
            let device = self.device(device_of(&access.location)?)?;
            if device.session != session {
                return Err(CUDA_ERROR_NOT_SUPPORTED);
            }
            let ordinal = device.ordinal as u32;
            words.extend([access.location.r#type, ordinal, access.flags].map(u64::from));
        }
        Ok(words)
    }

    pub(crate) fn reserve(
        &self,
        size: usize,
        alignment: usize,
        hint: u64,
    ) -> Result<u64, CUresult> {
        if !is_rounded(size) || (alignment != 0 && !alignment.is_power_of_two()) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let acting = self.session_for_any()?;
        let session = acting.context.session;
        let ask = |asked| {
            let hint = match asked {
                0 => hint,
                _ => elsewhere(alignment as u64),
            };
            let body = acting.call_for(
                "cuMemAddressReserve",
                &wire::AddressReserve {
                    size: size as u64,
                    alignment: alignment as u64,
                    hint,
                    span: 0,
                    span_size: 0,
                },
            )?;
            let reply = wire::AddressReserveReply::decode(&body).map_err(|_| acting.malformed())?;
            reply.address.ok_or_else(|| acting.malformed())
        };
        let address = self.place(session, size, ask, |address| {
            let size = size as u64;
            acting.post(&wire::AddressFree { address, size })
        })?;
        let reserved = Reserved { size, session };
        lock(&self.virtual_memory)
            .reserved
            .insert(address, reserved);
        Ok(address)
    }

    pub(crate) fn unreserve(&self, address: u64, size: usize) -> Result<(), CUresult> {
        self.ready()?;
        let mut known = lock(&self.virtual_memory);
        let session = match known.reserved.get(&address) {
            Some(reserved) if reserved.size == size => reserved.session,
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        };
        if read(&self.memory).overlaps(address, size as u64) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // Before the server gives them to somebody else.
        self.addresses.release(session, address, size);
        let size = size as u64;
        self.session(session)?
            .post_plain(&wire::AddressFree { address, size })?;
        known.reserved.remove(&address);
        Ok(())
    }

    fn create_physical(&self, size: usize, prop: &CUmemAllocationProp) -> Result<u64, CUresult> {
        let gpu_direct = prop.allocFlags.gpuDirectRDMACapable;
        let exportable = prop.requestedHandleTypes != 0;
        self.create_on(wanted(prop)?, size, exportable, gpu_direct)
    }

    /// Creates physical memory on a device.
    pub(crate) fn create_on(
        &self,
        number: CUdevice,
        size: usize,
        exportable: bool,
        gpu_direct: u8,
    ) -> Result<u64, CUresult> {
        let device = self.device(number)?;
        if !is_rounded(size) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let session = self.session(device.session)?;
        let memory = session.mint(MEMORY_TAG);
        let flag = |set: bool, flag: u32| if set { flag } else { 0 };
        let request = wire::PhysicalCreate {
            device: device.ordinal,
            size: size as u64,
            flags: flag(gpu_direct != 0, RDMA_FLAG) | flag(exportable, EXPORT_FLAG),
            memory,
        };
        self.with_kept_released(number, || {
            session.call(crate::driver::actor(0), "cuMemCreate", &request)
        })?;
        let made = Physical {
            size,
            device: number,
            session: device.session,
            gpu_direct,
            exportable,
            references: 1,
            mapped: 0,
        };
        lock(&self.virtual_memory).physical.insert(memory, made);
        Ok(memory)
    }

    pub(crate) fn let_go(&self, handle: u64) -> Result<(), CUresult> {
        self.ready()?;
        let mut known = lock(&self.virtual_memory);
        let physical = known.physical.get_mut(&handle);
        let physical = physical.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        physical.references = physical
            .references
            .checked_sub(1)
            .ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let left = *physical;
        self.end_unused(&mut known, handle, left)
    }

    /// Forgets memory that nobody holds and that is mapped nowhere.
    fn end_unused(
        &self,
        known: &mut VirtualMemory,
        handle: u64,
        physical: Physical,
    ) -> Result<(), CUresult> {
        if physical.references > 0 || physical.mapped > 0 {
            return Ok(());
        }
        known.physical.remove(&handle);
        self.unshare_physical(handle);
        self.session(physical.session)?
            .post_plain(&wire::PhysicalRelease { memory: handle })
    }

    pub(crate) fn map(
        &self,
        address: u64,
        size: usize,
        offset: usize,
        handle: u64,
    ) -> Result<(), CUresult> {
        self.ready()?;
        let mut known = lock(&self.virtual_memory);
        let reserved = known.reserved(address, size);
        let reserved = reserved.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let physical = known.physical.get_mut(&handle);
        let physical = physical.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let fits = physical.references > 0
            && reserved.session == physical.session
            && is_rounded(size)
            && size <= physical.size
            && offset == 0
            && address.is_multiple_of(GRANULARITY as u64);
        if !fits || read(&self.memory).overlaps(address, size as u64) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        self.session(physical.session)?
            .post_plain(&wire::PhysicalMap {
                address,
                size: size as u64,
                offset: 0,
                memory: handle,
            })?;
        physical.mapped += 1;
        self.note_mapped(physical.session);
        let range = Range {
            size,
            context: 0,
            device: physical.device,
            id: self.new_id(),
            kind: Kind::Mapped(handle),
            alone: false,
            of_pool: false,
            pool: 0,
            of_graph: false,
            synchronous: false,
        };
        write(&self.memory).insert(address, range);
        Ok(())
    }

    pub(crate) fn unmap(&self, address: u64, size: usize) -> Result<(), CUresult> {
        self.ready()?;
        let reserved = lock(&self.virtual_memory).reserved(address, size);
        let reserved = reserved.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        // Whole mappings, without a gap.
        let mut next = address;
        let mut handles = Vec::new();
        for (start, range) in read(&self.memory).within(address, size as u64) {
            match range.kind {
                Kind::Mapped(handle) if start == next => handles.push((start, handle)),
                _ => return Err(CUDA_ERROR_INVALID_VALUE),
            }
            next = start.saturating_add(range.size as u64);
        }
        if handles.is_empty() || next != address.saturating_add(size as u64) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        self.await_all_written(reserved.session)?;
        let request = wire::PhysicalUnmap {
            address,
            size: size as u64,
        };
        self.session(reserved.session)?
            .call(crate::driver::actor(0), "cuMemUnmap", &request)?;
        let mut known = lock(&self.virtual_memory);
        for (start, handle) in handles {
            write(&self.memory).remove(start);
            if let Some(physical) = known.physical.get_mut(&handle) {
                physical.mapped = physical.mapped.saturating_sub(1);
                let left = *physical;
                self.end_unused(&mut known, handle, left)?;
            }
        }
        Ok(())
    }

    fn export(&self, handle: u64, kind: CUmemAllocationHandleType) -> Result<i32, CUresult> {
        self.ready()?;
        let physical = lock(&self.virtual_memory).physical.get(&handle).copied();
        let physical = physical.filter(|physical| physical.references > 0);
        let physical = physical.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if kind != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || !physical.exportable {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let context = self.context_in_use(Some(physical.session))?;
        self.export_file(&self.acting_in(context)?, PHYSICAL, handle)
    }

    fn import(&self, file: i32, kind: CUmemAllocationHandleType) -> Result<u64, CUresult> {
        if kind != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        let acting = self.session_for_any()?;
        let memory = acting.mint(MEMORY_TAG);
        let (size, ordinal) = self.import_file(&acting, PHYSICAL, file, memory)?;
        let session = acting.context.session;
        let mut devices = self.ready()?.devices().iter();
        let is_it =
            |device: &crate::device::Device| device.session == session && device.ordinal == ordinal;
        // A device that this process does not see: its memory is mapped for those that it does see.
        let device = devices.position(is_it);
        let device = device.map_or(acting.context.device, |index| index as CUdevice);
        let made = Physical {
            size: size as usize,
            device,
            session,
            gpu_direct: 0,
            exportable: true,
            references: 1,
            mapped: 0,
        };
        lock(&self.virtual_memory).physical.insert(memory, made);
        Ok(memory)
    }

    pub(crate) fn set_access(
        &self,
        ptr: CUdeviceptr,
        size: usize,
        desc: &[CUmemAccessDesc],
    ) -> Result<(), CUresult> {
        let reserved = lock(&self.virtual_memory).reserved(ptr, size);
        let Reserved { session, .. } = reserved.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let words = self.access_words(desc, session)?;
        let takes = |one: &CUmemAccessDesc| one.flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        if desc.iter().any(takes) {
            self.await_all_written(session)?;
        }
        let request = wire::SetAccess {
            pool: wire::MemoryPoolHandle(0),
            address: ptr,
            size: size as u64,
            words: words.len() as u32,
            access: wire::List::Values(&words),
        };
        self.session(session)?
            .call(crate::driver::actor(0), "cuMemSetAccess", &request)?;
        Ok(())
    }

    pub(crate) fn session(&self, index: u8) -> Result<&std::sync::Arc<Session>, CUresult> {
        let sessions = &self.ready()?.sessions;
        sessions
            .get(usize::from(index))
            .ok_or(CUDA_ERROR_INVALID_DEVICE)
    }
}

impl VirtualMemoryCalls for Driver {
    fn cuMemAddressReserve(
        &self,
        size: usize,
        alignment: usize,
        addr: CUdeviceptr,
        flags: u64,
    ) -> Result<CUdeviceptr, CUresult> {
        match flags {
            0 => self.reserve(size, alignment, addr),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    fn cuMemAddressFree(&self, ptr: CUdeviceptr, size: usize) -> Result<(), CUresult> {
        self.unreserve(ptr, size)
    }

    fn cuMemCreate(
        &self,
        size: usize,
        prop: Vouched<'_, CUmemAllocationProp>,
        flags: u64,
    ) -> Result<CUmemGenericAllocationHandle, CUresult> {
        match flags {
            0 => self.create_physical(size, &prop),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    fn cuMemRelease(&self, handle: CUmemGenericAllocationHandle) -> Result<(), CUresult> {
        self.let_go(handle)
    }

    fn cuMemMap(
        &self,
        ptr: CUdeviceptr,
        size: usize,
        offset: usize,
        handle: CUmemGenericAllocationHandle,
        flags: u64,
    ) -> Result<(), CUresult> {
        match flags {
            0 => self.map(ptr, size, offset, handle),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    fn cuMemUnmap(&self, ptr: CUdeviceptr, size: usize) -> Result<(), CUresult> {
        self.unmap(ptr, size)
    }

    fn cuMemSetAccess(
        &self,
        ptr: CUdeviceptr,
        size: usize,
        desc: &[CUmemAccessDesc],
    ) -> Result<(), CUresult> {
        self.ready()?;
        self.set_access(ptr, size, desc)
    }

    fn cuMemGetAccess(&self, location: &CUmemLocation, ptr: CUdeviceptr) -> Result<u64, CUresult> {
        let device = self.device(device_of(location)?)?;
        let of = read(&self.memory).find(ptr).map(|(_, range)| range.device);
        if let Some(of) = of
            && self.device(of)?.session != device.session
        {
            return Ok(CU_MEM_ACCESS_FLAGS_PROT_NONE.into());
        }
        let request = wire::GetAccess {
            pool: wire::MemoryPoolHandle(0),
            address: ptr,
            location: location.r#type,
            number: device.ordinal,
        };
        let session = self.session(device.session)?;
        let body = session.call(crate::driver::actor(0), "cuMemGetAccess", &request)?;
        let reply = wire::GetAccessReply::decode(&body).map_err(|_| session.malformed())?;
        reply.flags.ok_or_else(|| session.malformed())
    }

    fn cuMemGetAllocationGranularity(
        &self,
        prop: Vouched<'_, CUmemAllocationProp>,
        option: CUmemAllocationGranularity_flags,
    ) -> Result<usize, CUresult> {
        match option {
            CU_MEM_ALLOC_GRANULARITY_MINIMUM | CU_MEM_ALLOC_GRANULARITY_RECOMMENDED => {
                match prop.location.r#type {
                    CU_MEM_LOCATION_TYPE_DEVICE => self.device(wanted(&prop)?).map(|_| GRANULARITY),
                    // There is none elsewhere, but NCCL asks before it tries, and any place is answered (seen with driver 580.159).
                    _ if prop.r#type == CU_MEM_ALLOCATION_TYPE_PINNED => {
                        self.ready().map(|_| GRANULARITY)
                    }
                    _ => Err(CUDA_ERROR_INVALID_VALUE),
                }
            }
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    fn cuMemGetAllocationPropertiesFromHandle(
        &self,
        handle: CUmemGenericAllocationHandle,
    ) -> Result<CUmemAllocationProp, CUresult> {
        self.ready()?;
        let known = lock(&self.virtual_memory).physical.get(&handle).copied();
        let physical = known.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        Ok(CUmemAllocationProp {
            r#type: CU_MEM_ALLOCATION_TYPE_PINNED,
            requestedHandleTypes: if physical.exportable {
                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
            } else {
                0
            },
            location: CUmemLocation {
                r#type: CU_MEM_LOCATION_TYPE_DEVICE,
                either: CUmemLocation_either {
                    id: physical.device,
                },
            },
            win32HandleMetaData: std::ptr::null_mut(),
            allocFlags: CUmemAllocationProp_allocFlags {
                compressionType: 0,
                gpuDirectRDMACapable: physical.gpu_direct,
                usage: 0,
                reserved: [0; 4],
            },
        })
    }

    fn cuMemExportToShareableHandle(
        &self,
        handle: CUmemGenericAllocationHandle,
        handleType: CUmemAllocationHandleType,
        flags: u64,
    ) -> Result<[u8; 4], CUresult> {
        match flags {
            0 => self.export(handle, handleType).map(i32::to_ne_bytes),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    fn cuMemImportFromShareableHandle(
        &self,
        osHandle: Vouched<'_, *mut c_void>,
        shHandleType: CUmemAllocationHandleType,
    ) -> Result<CUmemGenericAllocationHandle, CUresult> {
        self.import(osHandle.addr() as i32, shHandleType)
    }

    fn cuMemRetainAllocationHandle(
        &self,
        addr: Vouched<'_, *mut c_void>,
    ) -> Result<CUmemGenericAllocationHandle, CUresult> {
        self.ready()?;
        let mut known = lock(&self.virtual_memory);
        let ranges = read(&self.memory);
        let found = ranges.find(addr.addr() as u64);
        let Some(Kind::Mapped(memory)) = found.map(|(_, range)| range.kind) else {
            return Err(CUDA_ERROR_INVALID_VALUE);
        };
        let physical = known.physical.get_mut(&memory);
        physical.ok_or(CUDA_ERROR_INVALID_VALUE)?.references += 1;
        Ok(memory)
    }
}
