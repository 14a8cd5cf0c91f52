//! Addresses and physical memory apart, as the program maps them.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use towline_backend::cuda::*;

use super::{SoftCuda, fresh};
use crate::memory::mapped::{GRANULARITY, MapError, Physical};

fn is_whole(bytes: u64) -> bool {
    bytes > 0 && bytes.is_multiple_of(GRANULARITY)
}

fn done(known: bool) -> Result<(), CUresult> {
    match known {
        true => Ok(()),
        false => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

impl SoftCuda {
    /// The device of a location.
    pub(super) fn located(&self, kind: CUmemLocationType, id: i32) -> Result<u32, CUresult> {
        match kind {
            CU_MEM_LOCATION_TYPE_DEVICE => self.check_device(id),
            CU_MEM_LOCATION_TYPE_INVALID => Err(CUDA_ERROR_INVALID_VALUE),
            _ => Err(CUDA_ERROR_NOT_SUPPORTED),
        }
    }

    pub(super) fn reserve(
        &self,
        bytes: u64,
        alignment: u64,
        hint: u64,
        flags: u64,
    ) -> Result<u64, CUresult> {
        let fits = alignment == 0 || alignment.is_power_of_two();
        if !is_whole(bytes) || !fits || flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let alignment = alignment.max(GRANULARITY);
        let quiet = || self.streams.is_quiet();
        let found = self.arena.reserve_addresses(bytes, alignment, hint, &quiet);
        found.ok_or(CUDA_ERROR_OUT_OF_MEMORY)
    }

    pub(super) fn free_addresses(&self, address: u64, bytes: u64) -> Result<(), CUresult> {
        let quiet = || self.streams.is_quiet();
        done(self.arena.free_addresses(address, bytes, &quiet))
    }

    pub(super) fn create_physical(
        &self,
        bytes: u64,
        prop: &CUmemAllocationProp,
        flags: u64,
    ) -> Result<u64, CUresult> {
        if prop.r#type != CU_MEM_ALLOCATION_TYPE_PINNED || flags != 0 || !is_whole(bytes) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if prop.requestedHandleTypes & !CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR != 0 {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        let device = self.located(prop.location.r#type, prop.location.number())?;
        let room = self
            .options
            .memory_bytes
            .saturating_sub(self.allocated_bytes(device));
        let made = self.arena.make_physical(bytes, device, room);
        let made = made.ok_or(CUDA_ERROR_OUT_OF_MEMORY)?.map_err(|error| {
            log::error!("could not make device memory of {bytes} bytes: {error}");
            CUDA_ERROR_OUT_OF_MEMORY
        })?;
        Ok(self.name_physical(made))
    }

    fn name_physical(&self, memory: Arc<Physical>) -> u64 {
        let number = fresh() as u64;
        self.lock().physical.insert(number, memory);
        number
    }

    fn physical(&self, number: u64) -> Result<Arc<Physical>, CUresult> {
        let found = self.lock().physical.get(&number).cloned();
        found.ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    /// What is mapped stays until it is taken off its addresses.
    pub(super) fn release_physical(&self, number: u64) -> Result<(), CUresult> {
        let released = self.lock().physical.remove(&number);
        released.map(drop).ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    pub(super) fn map(
        &self,
        address: u64,
        bytes: u64,
        offset: u64,
        memory: u64,
        flags: u64,
    ) -> Result<(), CUresult> {
        let memory = self.physical(memory)?;
        let whole = [address, bytes, offset];
        if flags != 0 || !whole.iter().all(|one| one.is_multiple_of(GRANULARITY)) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let mapped = self.arena.map(address, bytes, offset, &memory);
        mapped.map_err(|error| match error {
            MapError::Unfit => CUDA_ERROR_INVALID_VALUE,
            MapError::System => CUDA_ERROR_OUT_OF_MEMORY,
        })
    }

    pub(super) fn unmap(&self, address: u64, bytes: u64) -> Result<(), CUresult> {
        done(self.arena.unmap(address, bytes))
    }

    pub(super) fn set_access(
        &self,
        address: u64,
        bytes: u64,
        wanted: &[CUmemAccessDesc],
    ) -> Result<(), CUresult> {
        for one in wanted {
            let device = self.located(one.location.r#type, one.location.number())?;
            let may = match one.flags {
                CU_MEM_ACCESS_FLAGS_PROT_NONE => false,
                CU_MEM_ACCESS_FLAGS_PROT_READWRITE => true,
                CU_MEM_ACCESS_FLAGS_PROT_READ => {
                    log::error!("memory that may only be read, which software devices do not have");
                    return Err(CUDA_ERROR_NOT_SUPPORTED);
                }
                _ => return Err(CUDA_ERROR_INVALID_VALUE),
            };
            done(self.arena.allow(address, bytes, device, may))?;
        }
        Ok(())
    }

    pub(super) fn access(&self, address: u64, device: u32) -> Result<u64, CUresult> {
        let may = self.arena.is_allowed(address, device);
        may.map(|may| match may {
            true => CU_MEM_ACCESS_FLAGS_PROT_READWRITE.into(),
            false => CU_MEM_ACCESS_FLAGS_PROT_NONE.into(),
        })
        .ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    /// A descriptor that another process can import the memory by.
    pub(super) fn export_physical(
        &self,
        memory: u64,
        kind: CUmemAllocationHandleType,
        flags: u64,
    ) -> Result<OwnedFd, CUresult> {
        let memory = self.physical(memory)?;
        if kind != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let file = memory.file().try_clone_to_owned();
        file.map_err(|error| {
            log::error!("could not export device memory: {error}");
            CUDA_ERROR_OPERATING_SYSTEM
        })
    }

    pub(super) fn import_physical(
        &self,
        file: BorrowedFd<'_>,
        kind: CUmemAllocationHandleType,
    ) -> Result<u64, CUresult> {
        if kind != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        let device = self.context()?.device as u32;
        let memory = Physical::import(file, device).map_err(|error| {
            log::error!("a descriptor is no device memory: {error}");
            CUDA_ERROR_INVALID_VALUE
        })?;
        Ok(self.name_physical(memory))
    }
}

/// The number in a location.
pub(super) trait Number {
    fn number(&self) -> i32;
}

#[allow(unsafe_code, reason = "the number lies in a union")]
impl Number for CUmemLocation {
    fn number(&self) -> i32 {
        // SAFETY: every bit pattern is a number.
        unsafe { self.either.id }
    }
}

/// The methods of the contract: an `impl` cannot be in two files.
macro_rules! virtual_memory_calls {
    () => {
        unsafe fn cuMemAddressReserve(
            &self,
            address: *mut CUdeviceptr,
            size: usize,
            alignment: usize,
            hint: CUdeviceptr,
            flags: u64,
        ) -> CUresult {
            answer(
                address,
                self.reserve(size as u64, alignment as u64, hint, flags),
            )
        }
        unsafe fn cuMemAddressFree(&self, address: CUdeviceptr, size: usize) -> CUresult {
            status(self.free_addresses(address, size as u64))
        }
        unsafe fn cuMemCreate(
            &self,
            handle: *mut CUmemGenericAllocationHandle,
            size: usize,
            prop: *const CUmemAllocationProp,
            flags: u64,
        ) -> CUresult {
            // SAFETY: the contract of the call.
            let Some(prop) = (unsafe { prop.as_ref() }) else {
                return CUDA_ERROR_INVALID_VALUE;
            };
            answer(handle, self.create_physical(size as u64, prop, flags))
        }
        unsafe fn cuMemRelease(&self, handle: CUmemGenericAllocationHandle) -> CUresult {
            status(self.release_physical(handle))
        }
        unsafe fn cuMemMap(
            &self,
            address: CUdeviceptr,
            size: usize,
            offset: usize,
            handle: CUmemGenericAllocationHandle,
            flags: u64,
        ) -> CUresult {
            status(self.map(address, size as u64, offset as u64, handle, flags))
        }
        unsafe fn cuMemUnmap(&self, address: CUdeviceptr, size: usize) -> CUresult {
            status(self.unmap(address, size as u64))
        }
        unsafe fn cuMemSetAccess(
            &self,
            address: CUdeviceptr,
            size: usize,
            access: *const CUmemAccessDesc,
            count: usize,
        ) -> CUresult {
            if access.is_null() || count == 0 {
                return CUDA_ERROR_INVALID_VALUE;
            }
            // SAFETY: the contract of the call: as many as it says.
            let access = unsafe { std::slice::from_raw_parts(access, count) };
            status(self.set_access(address, size as u64, access))
        }
        unsafe fn cuMemGetAccess(
            &self,
            flags: *mut u64,
            location: *const CUmemLocation,
            address: CUdeviceptr,
        ) -> CUresult {
            // SAFETY: the contract of the call.
            let Some(location) = (unsafe { location.as_ref() }) else {
                return CUDA_ERROR_INVALID_VALUE;
            };
            let device = self.located(location.r#type, location.number());
            answer(
                flags,
                device.and_then(|device| self.access(address, device)),
            )
        }
        unsafe fn cuMemExportToShareableHandle(
            &self,
            place: *mut c_void,
            handle: CUmemGenericAllocationHandle,
            kind: CUmemAllocationHandleType,
            flags: u64,
        ) -> CUresult {
            let file = self.export_physical(handle, kind, flags);
            answer(place.cast::<RawFd>(), file.map(IntoRawFd::into_raw_fd))
        }
        unsafe fn cuMemImportFromShareableHandle(
            &self,
            handle: *mut CUmemGenericAllocationHandle,
            file: *mut c_void,
            kind: CUmemAllocationHandleType,
        ) -> CUresult {
            let Ok(file) = RawFd::try_from(file.addr()) else {
                return CUDA_ERROR_INVALID_VALUE;
            };
            // SAFETY: the contract of the call: an open descriptor, which stays the caller's.
            let file = unsafe { BorrowedFd::borrow_raw(file) };
            answer(handle, self.import_physical(file, kind))
        }
    };
}
pub(super) use virtual_memory_calls;
