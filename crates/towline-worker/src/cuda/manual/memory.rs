//! Device memory that the driver places.

use std::sync::atomic::Ordering;

use towline_backend::cuda as wire;
use towline_backend::cuda::*;
use towline_wire::error::ProtocolError;

use crate::cuda::session::Session;
use crate::cuda::shared::{Shared, lock};
use crate::cuda::streams::Places;

impl Shared {
    pub(super) fn memory_came(&self, address: u64, bytes: u64) {
        lock(&self.memory).insert(address, bytes);
        let held = &self.counters.device_memory_bytes;
        held.fetch_add(bytes, Ordering::Relaxed);
    }

    fn memory_went(&self, address: u64) {
        if let Some(bytes) = lock(&self.memory).remove(&address) {
            let held = &self.counters.device_memory_bytes;
            held.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

impl Session {
    pub(crate) fn MemoryAlloc(
        &mut self,
        number: u64,
        request: wire::MemoryAlloc,
    ) -> Result<(), ProtocolError> {
        let mut address: CUdeviceptr = 0;
        let (place, size) = (&raw mut address, request.size as usize);
        let status = if self.acting.is_none() {
            CUDA_ERROR_INVALID_CONTEXT
        } else if request.managed_flags == 0 {
            // SAFETY: one place for the address.
            unsafe { self.api.cuMemAlloc_v2(place, size) }
        } else {
            // SAFETY: as above.
            unsafe {
                self.api
                    .cuMemAllocManaged(place, size, request.managed_flags)
            }
        };
        if status == CUDA_SUCCESS {
            self.shared.memory_came(address, request.size);
        }
        let reply = wire::MemoryAllocReply {
            address: Some(address),
        };
        self.reply(number, status, &reply);
        Ok(())
    }

    pub(crate) fn MemoryFree(
        &mut self,
        number: u64,
        request: wire::MemoryFree,
    ) -> Result<(), ProtocolError> {
        self.shared.withdraw_memory(request.address);
        let places = self.shared.streams.all(None);
        let context = self.acting.clone();
        self.wait(move |shared| {
            shared.streams.wait(&places);
            let status = match context.map(|context| context.enter(&*shared.api)) {
                // SAFETY: the driver judges the address; the client may free its own memory whenever it likes.
                Some(CUDA_SUCCESS) => unsafe { shared.api.cuMemFree_v2(request.address) },
                Some(status) => status,
                None => CUDA_ERROR_INVALID_CONTEXT,
            };
            if status == CUDA_SUCCESS {
                shared.memory_went(request.address);
            }
            shared.reply(number, status, &wire::MemoryFreeReply {});
        });
        Ok(())
    }

    pub(crate) fn cuDeviceGetGraphMemAttribute(
        &mut self,
        number: u64,
        request: wire::DeviceGetGraphMemAttribute,
    ) -> Result<(), ProtocolError> {
        let mut value = 0_u64;
        let place = (&raw mut value).cast();
        let status = match self.device(request.device) {
            Err(status) => status,
            // SAFETY: room for 64 bits, which every attribute of this kind has.
            Ok(device) => unsafe {
                self.api
                    .cuDeviceGetGraphMemAttribute(device, request.attr, place)
            },
        };
        let reply = wire::DeviceGetGraphMemAttributeReply {
            value: Some(&value.to_le_bytes()),
        };
        self.reply(number, status, &reply);
        Ok(())
    }

    pub(crate) fn cuDeviceSetGraphMemAttribute(
        &mut self,
        number: u64,
        request: wire::DeviceSetGraphMemAttribute<'_>,
    ) -> Result<(), ProtocolError> {
        let mut value = [0; 8];
        for (to, from) in value.iter_mut().zip(request.value) {
            *to = *from;
        }
        let mut value = u64::from_le_bytes(value);
        let place = (&raw mut value).cast();
        let status = match self.device(request.device) {
            Err(status) => status,
            // SAFETY: 64 bits, which every attribute of this kind has.
            Ok(device) => unsafe {
                self.api
                    .cuDeviceSetGraphMemAttribute(device, request.attr, place)
            },
        };
        self.reply(number, status, &wire::DeviceSetGraphMemAttributeReply {});
        Ok(())
    }

    pub(crate) fn cuDeviceGraphMemTrim(
        &mut self,
        number: u64,
        request: wire::DeviceGraphMemTrim,
    ) -> Result<(), ProtocolError> {
        let call = <wire::DeviceGraphMemTrim as Request<'_>>::ID;
        let status = match self.device(request.device) {
            Err(status) => status,
            // SAFETY: no pointers.
            Ok(device) => unsafe { self.api.cuDeviceGraphMemTrim(device) },
        };
        self.settle(number, call, status);
        Ok(())
    }

    pub(crate) fn cuDeviceSetMemPool(
        &mut self,
        number: u64,
        request: wire::DeviceSetMemPool,
    ) -> Result<(), ProtocolError> {
        let call = <wire::DeviceSetMemPool as Request<'_>>::ID;
        let pool = self.native(request.pool.0, wire::MemoryPoolHandle::TAG)?;
        let status = match (self.device(request.dev), pool) {
            (Err(status), _) | (_, Err(status)) => status,
            // SAFETY: the pool is live.
            (Ok(device), Ok(pool)) => unsafe { self.api.cuDeviceSetMemPool(device, pool.cast()) },
        };
        self.settle(number, call, status);
        Ok(())
    }

    pub(crate) fn PoolAlloc(
        &mut self,
        number: u64,
        request: wire::PoolAlloc,
    ) -> Result<(), ProtocolError> {
        let target = self.target(request.stream)?;
        let pool = self.native(request.pool.0, wire::MemoryPoolHandle::TAG)?;
        let mut address: CUdeviceptr = 0;
        let (place, size) = (&raw mut address, request.size as usize);
        // Ahead of what is parked at the stream: nothing before this request can use the memory.
        let status = match (target, pool) {
            (Err(status), _) | (_, Err(status)) => status,
            (Ok(target), Ok(pool)) => self.run(&target, |shared, target| {
                if pool.is_null() {
                    // SAFETY: one place for the address, the stream is live.
                    unsafe { shared.api.cuMemAllocAsync(place, size, target.stream()) }
                } else {
                    // SAFETY: as above; the pool is live.
                    unsafe {
                        shared.api.cuMemAllocFromPoolAsync(
                            place,
                            size,
                            pool.cast(),
                            target.stream(),
                        )
                    }
                }
            }),
        };
        if status == CUDA_SUCCESS {
            self.shared.memory_came(address, request.size);
        }
        let reply = wire::PoolAllocReply {
            address: Some(address),
        };
        self.reply(number, status, &reply);
        Ok(())
    }

    pub(crate) fn PoolFree(
        &mut self,
        number: u64,
        request: wire::PoolFree,
    ) -> Result<(), ProtocolError> {
        let call = <wire::PoolFree as Request<'_>>::ID;
        let address = request.address;
        self.shared.withdraw_memory(address);
        match self.target(request.stream)? {
            Err(status) => self.shared.settle(number, call, request.stream.0, status),
            Ok(target) => {
                self.issue(
                    number,
                    call,
                    &target,
                    Places::new(),
                    move |shared, target| {
                        // SAFETY: the driver judges the address; the stream is live.
                        let status = unsafe { shared.api.cuMemFreeAsync(address, target.stream()) };
                        shared.enqueued(target);
                        if status == CUDA_SUCCESS {
                            shared.memory_went(address);
                            shared.freed_to_pool(target.key);
                        }
                        status
                    },
                );
            }
        }
        Ok(())
    }
}
