//! Addresses and physical memory apart, and who may use them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use towline_backend::cuda as wire;
use towline_backend::cuda::*;
use towline_wire::error::ProtocolError;

use crate::cuda::placed::Placed;
use crate::cuda::session::{Session, unknown};
use crate::cuda::shared::lock;
use crate::link::Charge;

/// Words of an access on the wire: kind of location, its number, flags.
const ACCESS_WORDS: usize = 3;
/// The flag of an allocation that a network adapter may reach.
const RDMA_FLAG: u32 = 1;
/// The flag of an allocation that may be exported.
const EXPORT_FLAG: u32 = 2;

/// Physical memory. That of another session is charged here, too.
struct Physical {
    memory: CUmemGenericAllocationHandle,
    bytes: u64,
    charge: Arc<Charge>,
}

/// Addresses with memory behind them, which stays as long as they do.
struct Mapped {
    bytes: u64,
    charge: Arc<Charge>,
}

/// Reserved addresses.
struct Reserved {
    bytes: u64,
    /// They are part of a span.
    span: Option<u64>,
}

/// Addresses and memory that the application manages by itself.
#[derive(Default)]
pub(crate) struct VirtualMemory {
    /// Physical memory, by the client's numbers.
    physical: HashMap<u64, Physical>,
    /// Reserved addresses, by the first.
    reserved: BTreeMap<u64, Reserved>,
    /// Addresses with memory behind them, by the first.
    mapped: BTreeMap<u64, Mapped>,
}

impl VirtualMemory {
    /// Physical memory by the client's number, and its bytes.
    pub(crate) fn physical(&self, number: u64) -> Option<(CUmemGenericAllocationHandle, u64)> {
        let physical = self.physical.get(&number)?;
        Some((physical.memory, physical.bytes))
    }

    /// Enters memory that another session has created.
    pub(crate) fn import(
        &mut self,
        number: u64,
        memory: CUmemGenericAllocationHandle,
        bytes: u64,
        charge: Charge,
    ) {
        let physical = Physical {
            memory,
            bytes,
            charge: Arc::new(charge),
        };
        self.physical.insert(number, physical);
    }

    /// Gives everything back; nothing uses it any more.
    pub(crate) fn release(&mut self, api: &dyn CudaApi, placed: &mut Placed) {
        for (address, mapped) in std::mem::take(&mut self.mapped) {
            // SAFETY: the addresses are the session's own.
            unsafe { api.cuMemUnmap(address, mapped.bytes as usize) };
        }
        for physical in std::mem::take(&mut self.physical).into_values() {
            // SAFETY: the reference is the session's own.
            unsafe { api.cuMemRelease(physical.memory) };
        }
        for (address, reserved) in std::mem::take(&mut self.reserved) {
            match reserved.span {
                Some(span) => placed.let_go(api, span),
                // SAFETY: the addresses are the session's own.
                None => drop(unsafe { api.cuMemAddressFree(address, reserved.bytes as usize) }),
            }
        }
    }
}

fn location(kind: CUmemLocationType, id: i32) -> CUmemLocation {
    CUmemLocation {
        r#type: kind,
        either: CUmemLocation_either { id },
    }
}

impl Session {
    /// A location as the driver has it: devices are numbered by the client.
    fn location(&self, kind: u32, number: i32) -> Result<CUmemLocation, CUresult> {
        match kind {
            CU_MEM_LOCATION_TYPE_DEVICE => Ok(location(kind, self.device(number)?)),
            _ => Err(CUDA_ERROR_NOT_SUPPORTED),
        }
    }

    pub(crate) fn PhysicalCreate(
        &mut self,
        number: u64,
        request: wire::PhysicalCreate,
    ) -> Result<(), ProtocolError> {
        if self.virtual_memory.physical.contains_key(&request.memory) {
            return Err(unknown("free number of memory", request.memory));
        }
        let mut memory: CUmemGenericAllocationHandle = 0;
        let charge = self.shared.charged(request.size);
        let status = match self.device(request.device) {
            Err(status) => status,
            Ok(_) if charge.is_none() => CUDA_ERROR_OUT_OF_MEMORY,
            Ok(device) => {
                let prop = CUmemAllocationProp {
                    r#type: CU_MEM_ALLOCATION_TYPE_PINNED,
                    requestedHandleTypes: if request.flags & EXPORT_FLAG == 0 {
                        0
                    } else {
                        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
                    },
                    location: location(CU_MEM_LOCATION_TYPE_DEVICE, device),
                    win32HandleMetaData: std::ptr::null_mut(),
                    allocFlags: CUmemAllocationProp_allocFlags {
                        compressionType: 0,
                        gpuDirectRDMACapable: u8::from(request.flags & RDMA_FLAG != 0),
                        usage: 0,
                        reserved: [0; 4],
                    },
                };
                let size = request.size as usize;
                // SAFETY: one place for the handle; the properties are a local.
                unsafe {
                    self.api
                        .cuMemCreate(&raw mut memory, size, &raw const prop, 0)
                }
            }
        };
        if let Some(charge) = charge.filter(|_| status == CUDA_SUCCESS) {
            let made = Physical {
                memory,
                bytes: request.size,
                charge: Arc::new(charge),
            };
            self.virtual_memory.physical.insert(request.memory, made);
        }
        self.reply(number, status, &wire::PhysicalCreateReply {});
        Ok(())
    }

    pub(crate) fn PhysicalRelease(
        &mut self,
        number: u64,
        request: wire::PhysicalRelease,
    ) -> Result<(), ProtocolError> {
        let call = <wire::PhysicalRelease as Request<'_>>::ID;
        let released = self.virtual_memory.physical.remove(&request.memory);
        let Some(released) = released else {
            return Err(unknown("memory", request.memory));
        };
        self.shared.withdraw_physical(request.memory);
        // SAFETY: the reference is the session's own. What is mapped stays until it is taken off its addresses.
        let status = unsafe { self.api.cuMemRelease(released.memory) };
        self.settle(number, call, status);
        Ok(())
    }

    pub(crate) fn AddressReserve(
        &mut self,
        number: u64,
        request: wire::AddressReserve,
    ) -> Result<(), ProtocolError> {
        let mut address: CUdeviceptr = 0;
        let (size, alignment) = (request.size as usize, request.alignment as usize);
        let span = (request.span, request.span_size);
        let within = request.hint.checked_sub(span.0).and_then(|before| {
            let end = before.checked_add(request.size)?;
            (end <= span.1).then_some(())
        });
        let status = match (span.1, within) {
            // SAFETY: one place for the address.
            (0, _) => unsafe {
                self.api
                    .cuMemAddressReserve(&raw mut address, size, alignment, request.hint, 0)
            },
            (_, None) => CUDA_ERROR_INVALID_VALUE,
            (_, Some(())) => {
                address = request.hint;
                let held = lock(&self.shared.placed).hold(&*self.api, span);
                held.err().unwrap_or(CUDA_SUCCESS)
            }
        };
        if status == CUDA_SUCCESS {
            let reserved = Reserved {
                bytes: request.size,
                span: (span.1 > 0).then_some(span.0),
            };
            self.virtual_memory.reserved.insert(address, reserved);
        }
        let reply = wire::AddressReserveReply {
            address: Some(address),
        };
        self.reply(number, status, &reply);
        Ok(())
    }

    pub(crate) fn AddressFree(
        &mut self,
        number: u64,
        request: wire::AddressFree,
    ) -> Result<(), ProtocolError> {
        let call = <wire::AddressFree as Request<'_>>::ID;
        let reserved = self.virtual_memory.reserved.get(&request.address);
        let status = match reserved.filter(|known| known.bytes == request.size) {
            Some(Reserved {
                span: Some(span), ..
            }) => {
                lock(&self.shared.placed).let_go(&*self.api, *span);
                CUDA_SUCCESS
            }
            Some(_) => {
                // SAFETY: the addresses are the session's own.
                unsafe {
                    self.api
                        .cuMemAddressFree(request.address, request.size as usize)
                }
            }
            None => CUDA_ERROR_INVALID_VALUE,
        };
        if status == CUDA_SUCCESS {
            self.virtual_memory.reserved.remove(&request.address);
        }
        self.settle(number, call, status);
        Ok(())
    }

    pub(crate) fn PhysicalMap(
        &mut self,
        number: u64,
        request: wire::PhysicalMap,
    ) -> Result<(), ProtocolError> {
        let call = <wire::PhysicalMap as Request<'_>>::ID;
        let memory = self.virtual_memory.physical.get(&request.memory);
        let physical = memory.ok_or_else(|| unknown("memory", request.memory))?;
        let (memory, charge) = (physical.memory, Arc::clone(&physical.charge));
        let (size, offset) = (request.size as usize, request.offset as usize);
        // SAFETY: the memory is the session's own; the driver judges the addresses.
        let status = unsafe { self.api.cuMemMap(request.address, size, offset, memory, 0) };
        if status == CUDA_SUCCESS {
            let mapped = Mapped {
                bytes: request.size,
                charge,
            };
            self.virtual_memory.mapped.insert(request.address, mapped);
        }
        self.settle(number, call, status);
        Ok(())
    }

    pub(crate) fn PhysicalUnmap(
        &mut self,
        number: u64,
        request: wire::PhysicalUnmap,
    ) -> Result<(), ProtocolError> {
        let (first, size) = (request.address, request.size);
        let range = first..first.saturating_add(size);
        let mapped = &mut self.virtual_memory.mapped;
        let inside: Vec<u64> = mapped.range(range).map(|(address, _)| *address).collect();
        let taken = inside.iter().filter_map(|address| mapped.remove(address));
        let charges: Vec<_> = taken.map(|mapped| mapped.charge).collect();
        let places = self.shared.streams.all(None);
        let context = self.acting.clone();
        self.wait(move |shared| {
            shared.streams.wait(&places);
            if let Some(context) = context {
                context.enter(&*shared.api);
            }
            // SAFETY: the driver judges the addresses; the client takes its own memory off them.
            let status = unsafe { shared.api.cuMemUnmap(first, size as usize) };
            match status {
                CUDA_SUCCESS => drop(charges),
                // It may be there still, and nobody knows any more what of it.
                _ => charges.into_iter().for_each(std::mem::forget),
            }
            shared.reply(number, status, &wire::PhysicalUnmapReply {});
        });
        Ok(())
    }

    pub(crate) fn SetAccess(
        &mut self,
        number: u64,
        request: wire::SetAccess<'_>,
    ) -> Result<(), ProtocolError> {
        let words: Vec<u64> = request.access.iter().collect();
        let (accesses, rest) = words.as_chunks::<ACCESS_WORDS>();
        let described: Result<Vec<_>, CUresult> = accesses
            .iter()
            .map(|[kind, id, flags]| {
                Ok(CUmemAccessDesc {
                    location: self.location(*kind as u32, *id as i32)?,
                    flags: *flags as CUmemAccess_flags,
                })
            })
            .collect();
        let pool = self.native(request.pool.0, wire::MemoryPoolHandle::TAG)?;
        let status = match (described, pool) {
            _ if !rest.is_empty() => CUDA_ERROR_INVALID_VALUE,
            (Err(status), _) | (_, Err(status)) => status,
            (Ok(list), Ok(pool)) if pool.is_null() => {
                let (address, size) = (request.address, request.size as usize);
                // SAFETY: as many descriptions as said; the driver judges the addresses.
                unsafe {
                    self.api
                        .cuMemSetAccess(address, size, list.as_ptr(), list.len())
                }
            }
            (Ok(list), Ok(pool)) => {
                // SAFETY: as many descriptions as said; the pool is live.
                unsafe {
                    self.api
                        .cuMemPoolSetAccess(pool.cast(), list.as_ptr(), list.len())
                }
            }
        };
        self.reply(number, status, &wire::SetAccessReply {});
        Ok(())
    }

    pub(crate) fn GetAccess(
        &mut self,
        number: u64,
        request: wire::GetAccess,
    ) -> Result<(), ProtocolError> {
        let mut flags = 0_u64;
        let location = self.location(request.location, request.number);
        let pool = self.native(request.pool.0, wire::MemoryPoolHandle::TAG)?;
        let status = match (location, pool) {
            (Err(status), _) | (_, Err(status)) => status,
            (Ok(location), Ok(pool)) if pool.is_null() => {
                // SAFETY: one place for the flags; the driver judges the address.
                unsafe {
                    self.api
                        .cuMemGetAccess(&raw mut flags, &raw const location, request.address)
                }
            }
            (Ok(mut location), Ok(pool)) => {
                let mut access: CUmemAccess_flags = 0;
                // SAFETY: one place for the flags; the pool is live.
                let status = unsafe {
                    self.api
                        .cuMemPoolGetAccess(&raw mut access, pool.cast(), &raw mut location)
                };
                flags = access.into();
                status
            }
        };
        let reply = wire::GetAccessReply { flags: Some(flags) };
        self.reply(number, status, &reply);
        Ok(())
    }

    pub(crate) fn PoolCreate(
        &mut self,
        number: u64,
        request: wire::PoolCreate,
    ) -> Result<(), ProtocolError> {
        let call = <wire::PoolCreate as Request<'_>>::ID;
        let mut pool: CUmemoryPool = std::ptr::null_mut();
        let status = match self.device(request.device) {
            Err(status) => status,
            Ok(device) => {
                let props = CUmemPoolProps {
                    allocType: CU_MEM_ALLOCATION_TYPE_PINNED,
                    handleTypes: match request.exportable {
                        0 => CU_MEM_HANDLE_TYPE_NONE,
                        _ => CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                    },
                    location: location(CU_MEM_LOCATION_TYPE_DEVICE, device),
                    win32SecurityAttributes: std::ptr::null_mut(),
                    maxSize: request.max_size as usize,
                    usage: request.usage as u16,
                    gpuDirectRDMACapable: 0,
                    reserved: [0; 53],
                };
                // SAFETY: one place for the pool; the properties are a local.
                unsafe { self.api.cuMemPoolCreate(&raw mut pool, &raw const props) }
            }
        };
        let id = request.pool.0;
        self.born(id, wire::MemoryPoolHandle::TAG, pool.cast(), status)?;
        self.pools.insert(id);
        self.settle(number, call, status);
        Ok(())
    }

    pub(crate) fn PoolOf(
        &mut self,
        number: u64,
        request: wire::PoolOf,
    ) -> Result<(), ProtocolError> {
        let call = <wire::PoolOf as Request<'_>>::ID;
        let mut pool: CUmemoryPool = std::ptr::null_mut();
        let status = match self.device(request.device) {
            Err(status) => status,
            // SAFETY: one place for the pool.
            Ok(device) if request.current != 0 => unsafe {
                self.api.cuDeviceGetMemPool(&raw mut pool, device)
            },
            // SAFETY: as above.
            Ok(device) => unsafe { self.api.cuDeviceGetDefaultMemPool(&raw mut pool, device) },
        };
        let id = request.pool.0;
        self.born(id, wire::MemoryPoolHandle::TAG, pool.cast(), status)?;
        self.settle(number, call, status);
        Ok(())
    }

    pub(crate) fn PoolSet(
        &mut self,
        number: u64,
        request: wire::PoolSet,
    ) -> Result<(), ProtocolError> {
        let call = <wire::PoolSet as Request<'_>>::ID;
        let status = match self.native(request.pool.0, wire::MemoryPoolHandle::TAG)? {
            Err(status) => status,
            Ok(pool) if pool.is_null() => CUDA_ERROR_INVALID_HANDLE,
            Ok(pool) => {
                // The driver reads 32 or 64 bits, as the attribute has them; numbers are little-endian.
                let mut value = request.value;
                // SAFETY: the pool is live, the value has room for either.
                unsafe {
                    self.api.cuMemPoolSetAttribute(
                        pool.cast(),
                        request.attribute,
                        (&raw mut value).cast(),
                    )
                }
            }
        };
        self.settle(number, call, status);
        Ok(())
    }

    pub(crate) fn PoolGet(
        &mut self,
        number: u64,
        request: wire::PoolGet,
    ) -> Result<(), ProtocolError> {
        let mut value = 0_u64;
        let status = match self.native(request.pool.0, wire::MemoryPoolHandle::TAG)? {
            Err(status) => status,
            Ok(pool) if pool.is_null() => CUDA_ERROR_INVALID_HANDLE,
            // SAFETY: the pool is live, the place has room for 32 or 64 bits.
            Ok(pool) => unsafe {
                self.api.cuMemPoolGetAttribute(
                    pool.cast(),
                    request.attribute,
                    (&raw mut value).cast(),
                )
            },
        };
        let reply = wire::PoolGetReply { value: Some(value) };
        self.reply(number, status, &reply);
        Ok(())
    }
}
