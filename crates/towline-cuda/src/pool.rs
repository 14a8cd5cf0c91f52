//! Memory in stream order, and the pools that it comes from.

use std::collections::{HashMap, HashSet};
use std::ffi::c_void;

use towline_backend::cuda as wire;
use towline_backend::cuda::*;
use towline_client::raw::{Out, OutList, Vouched};

use crate::driver::{Acting, Driver, PoolCalls, actor, lock, write};
use crate::ipc::POOL;
use crate::memory::Range;
use crate::virtual_memory::device_of;

/// The pools that the application knows.
#[derive(Default)]
pub(crate) struct Pools {
    /// Each pool's device.
    devices: HashMap<u64, CUdevice>,
    defaults: HashMap<CUdevice, u64>,
    /// The pool that a device allocates from, where it is not the default one.
    current: HashMap<CUdevice, u64>,
    /// Those that other processes may open.
    exportable: HashSet<u64>,
}

impl Pools {
    pub(crate) fn forget(&mut self, pool: u64) {
        self.devices.remove(&pool);
        self.exportable.remove(&pool);
        self.current.retain(|_, current| *current != pool);
    }
}

/// The size of an attribute's value in bytes.
fn width(attribute: CUmemPool_attribute) -> usize {
    match attribute {
        CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
        | CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT
        | CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH
        | CU_MEMPOOL_ATTR_USED_MEM_CURRENT
        | CU_MEMPOOL_ATTR_USED_MEM_HIGH
        | CU_MEMPOOL_ATTR_MAX_POOL_SIZE => 8,
        _ => 4,
    }
}

impl Driver {
    /// Allocates from a pool, or from the device's current one.
    fn allocate_from(
        &self,
        place: &Out<CUdeviceptr>,
        size: usize,
        pool: Option<CUmemoryPool>,
        stream: CUstream,
    ) -> Result<(), CUresult> {
        let (acting, stream, captured) = self.enqueue_on(stream)?;
        if captured.is_none() {
            self.safe_in_captures()?;
        }
        if !place.wanted() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let of_pool = pool.map(|pool| self.pool(pool)).transpose()?;
        if let Some(device) = of_pool
            && self.device(device)?.session != acting.context.session
        {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // Nothing is had without an address, and freed so (seen with driver 580.159).
        if size == 0 {
            place.set(0);
            return Ok(());
        }
        if let Some(captured) = captured {
            // A node allocates from a pool of the graph's own on the same device.
            let device = of_pool.unwrap_or(acting.context.device);
            let params = self.allocation_of(size, device);
            return captured.add_with(|graph, deps| {
                let (node, address) = self.add_allocation(graph, deps, &params, &[])?;
                place.set(address);
                Ok(node)
            });
        }
        let request = wire::PoolAlloc {
            stream,
            pool: wire::MemoryPoolHandle::from_raw(pool.unwrap_or(std::ptr::null_mut())),
            size: size as u64,
        };
        let ask = |_| {
            let body = acting.call_for("cuMemAllocAsync", &request)?;
            let reply = wire::PoolAllocReply::decode(&body).map_err(|_| acting.malformed())?;
            reply.address.ok_or(CUDA_ERROR_UNKNOWN)
        };
        let device = of_pool.unwrap_or(acting.context.device);
        let address = self.with_kept_released(device, || {
            self.place(acting.context.session, size, ask, |address| {
                acting.post(&wire::PoolFree { stream, address })
            })
        })?;
        let pool = match pool {
            Some(pool) => pool.addr() as u64,
            None => lock(&self.pools).current.get(&device).copied().unwrap_or(0),
        };
        let range = Range {
            of_pool: true,
            pool,
            ..Range::device(&acting.context, size, self.new_id())
        };
        write(&self.memory).insert(address, range);
        acting.touch(stream);
        place.set(address);
        Ok(())
    }

    /// The device of a pool.
    fn pool(&self, pool: CUmemoryPool) -> Result<CUdevice, CUresult> {
        self.ready()?;
        let known = lock(&self.pools)
            .devices
            .get(&(pool.addr() as u64))
            .copied();
        known.ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    pub(crate) fn default_pool(&self, number: CUdevice) -> Result<u64, CUresult> {
        let device = self.device(number)?;
        let mut pools = lock(&self.pools);
        if let Some(pool) = pools.defaults.get(&number) {
            return Ok(*pool);
        }
        let session = self.session(device.session)?;
        let pool = session.mint(wire::MemoryPoolHandle::TAG);
        session.post_plain(&wire::PoolOf {
            device: device.ordinal,
            current: 0,
            pool: wire::MemoryPoolHandle(pool),
        })?;
        pools.devices.insert(pool, number);
        pools.defaults.insert(number, pool);
        Ok(pool)
    }

    fn current_pool(&self, number: CUdevice) -> Result<u64, CUresult> {
        self.device(number)?;
        let current = lock(&self.pools).current.get(&number).copied();
        match current {
            Some(pool) => Ok(pool),
            None => self.default_pool(number),
        }
    }

    fn set_pool(&self, number: CUdevice, pool: CUmemoryPool) -> Result<(), CUresult> {
        let device = self.device(number)?;
        if self.pool(pool)? != number {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let handle = wire::MemoryPoolHandle::from_raw(pool);
        self.session(device.session)?
            .post_plain(&wire::DeviceSetMemPool {
                dev: device.ordinal,
                pool: handle,
            })?;
        lock(&self.pools).current.insert(number, handle.0);
        Ok(())
    }

    fn create_pool(&self, props: &CUmemPoolProps) -> Result<CUmemoryPool, CUresult> {
        if props.allocType != CU_MEM_ALLOCATION_TYPE_PINNED {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // What stands for a pool goes to other processes of this machine as a descriptor, and in no other way.
        let exportable = match props.handleTypes {
            CU_MEM_HANDLE_TYPE_NONE => false,
            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR => true,
            _ => return Err(CUDA_ERROR_NOT_SUPPORTED),
        };
        let number = device_of(&props.location)?;
        let device = self.device(number)?;
        let session = self.session(device.session)?;
        let pool = wire::MemoryPoolHandle(session.mint(wire::MemoryPoolHandle::TAG));
        session.post_plain(&wire::PoolCreate {
            device: device.ordinal,
            max_size: props.maxSize as u64,
            usage: props.usage.into(),
            exportable: exportable.into(),
            pool,
        })?;
        let pools = &mut lock(&self.pools);
        pools.devices.insert(pool.0, number);
        if exportable {
            pools.exportable.insert(pool.0);
        }
        Ok(pool.to_raw())
    }

    /// A file that stands for a pool.
    fn export_pool(
        &self,
        pool: CUmemoryPool,
        kind: CUmemAllocationHandleType,
        flags: u64,
    ) -> Result<i32, CUresult> {
        let number = self.pool(pool)?;
        let pool = wire::MemoryPoolHandle::from_raw(pool).0;
        let exportable = lock(&self.pools).exportable.contains(&pool);
        if kind != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || flags != 0 || !exportable {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let context = self.context_in_use(Some(self.device(number)?.session))?;
        self.export_file(&self.acting_in(context)?, POOL, pool)
    }

    fn import_pool(
        &self,
        file: i32,
        kind: CUmemAllocationHandleType,
        flags: u64,
    ) -> Result<CUmemoryPool, CUresult> {
        if kind != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let acting = self.session_for_any()?;
        let pool = wire::MemoryPoolHandle(acting.mint(wire::MemoryPoolHandle::TAG));
        let (_, ordinal) = self.import_file(&acting, POOL, file, pool.0)?;
        let session = acting.context.session;
        let mut devices = self.ready()?.devices().iter();
        let device =
            devices.position(|device| device.session == session && device.ordinal == ordinal);
        // A device that this process does not see: its memory is reached from those that it does see.
        let device = device.map_or(acting.context.device, |index| index as CUdevice);
        lock(&self.pools).devices.insert(pool.0, device);
        Ok(pool.to_raw())
    }

    /// A call that acts where a pool is.
    fn at_pool(&self, pool: CUmemoryPool) -> Result<Acting<'_>, CUresult> {
        let session = self.device(self.pool(pool)?)?.session;
        match self.current() {
            Ok(context) if context.session == session => self.acting_in(context),
            _ => self.acting_in(self.context_in_use(Some(session))?),
        }
    }

    /// What an attribute of a pool is: known here, or told by the server.
    fn pool_attribute(
        &self,
        pool: CUmemoryPool,
        attribute: CUmemPool_attribute,
    ) -> Result<u64, CUresult> {
        let number = self.pool(pool)?;
        match attribute {
            CU_MEMPOOL_ATTR_LOCATION_ID => return Ok(number as u64),
            CU_MEMPOOL_ATTR_LOCATION_TYPE => return Ok(CU_MEM_LOCATION_TYPE_DEVICE.into()),
            CU_MEMPOOL_ATTR_ALLOCATION_TYPE => return Ok(CU_MEM_ALLOCATION_TYPE_PINNED.into()),
            CU_MEMPOOL_ATTR_EXPORT_HANDLE_TYPES => {
                let pool = wire::MemoryPoolHandle::from_raw(pool).0;
                return Ok(match lock(&self.pools).exportable.contains(&pool) {
                    true => CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR.into(),
                    false => CU_MEM_HANDLE_TYPE_NONE.into(),
                });
            }
            _ => {}
        }
        let session = self.session(self.device(number)?.session)?;
        let request = wire::PoolGet {
            pool: wire::MemoryPoolHandle::from_raw(pool),
            attribute,
        };
        let body = session.call(actor(0), "cuMemPoolGetAttribute", &request)?;
        let reply = wire::PoolGetReply::decode(&body).map_err(|_| session.malformed())?;
        reply.value.ok_or_else(|| session.malformed())
    }

    /// The device that a pool is asked for by location and type.
    fn located(
        &self,
        location: &CUmemLocation,
        kind: CUmemAllocationType,
    ) -> Result<CUdevice, CUresult> {
        match kind {
            CU_MEM_ALLOCATION_TYPE_PINNED => device_of(location),
            CU_MEM_ALLOCATION_TYPE_MANAGED => Err(CUDA_ERROR_NOT_SUPPORTED),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }
}

fn raw(pool: u64) -> CUmemoryPool {
    wire::MemoryPoolHandle(pool).to_raw()
}

impl PoolCalls for Driver {
    fn cuMemAllocAsync(
        &self,
        dptr: Out<CUdeviceptr>,
        bytesize: usize,
        hStream: CUstream,
    ) -> Result<(), CUresult> {
        self.allocate_from(&dptr, bytesize, None, hStream)
    }

    fn cuMemAllocFromPoolAsync(
        &self,
        dptr: Out<CUdeviceptr>,
        bytesize: usize,
        pool: CUmemoryPool,
        hStream: CUstream,
    ) -> Result<(), CUresult> {
        self.allocate_from(&dptr, bytesize, Some(pool), hStream)
    }

    fn cuMemFreeAsync(&self, dptr: CUdeviceptr, hStream: CUstream) -> Result<(), CUresult> {
        self.enqueue_on(hStream)
            .and_then(|(acting, stream, captured)| {
                if let Some(captured) = captured {
                    return match dptr {
                        0 => Ok(()),
                        _ => captured.add_free(dptr, self.free_content(dptr)?),
                    };
                }
                self.safe_in_captures()?;
                if dptr == 0 {
                    return Ok(());
                }
                self.expect_allocated(dptr)?;
                let home = self.home(&acting, dptr);
                let known = write(&self.memory).take_freed(dptr);
                let known = known.ok_or(CUDA_ERROR_INVALID_VALUE)?;
                lock(&self.kept_memory).forget(dptr);
                lock(&self.graphs).left.remove(&dptr);
                self.unshare_memory(&known);
                let (acting, stream) = match self.apart(&acting, &[home])? {
                    false => (acting, stream),
                    // Another server's memory ends in that one's order, behind all that the stream has to do.
                    true => {
                        acting.synchronise(stream)?;
                        let there = self.acting_in(self.context(home)?)?;
                        (there, wire::StreamHandle(0))
                    }
                };
                acting.post(&wire::PoolFree {
                    stream,
                    address: dptr,
                })?;
                acting.touch(stream);
                Ok(())
            })
    }

    fn cuMemPoolCreate(
        &self,
        pool: Out<CUmemoryPool>,
        poolProps: Option<Vouched<'_, CUmemPoolProps>>,
    ) -> Result<(), CUresult> {
        self.safe_in_captures()?;
        let props = poolProps.filter(|_| pool.wanted());
        let props = props.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        pool.set(self.create_pool(&props)?);
        Ok(())
    }

    fn cuMemPoolDestroy(&self, pool: CUmemoryPool) -> Result<(), CUresult> {
        self.safe_in_captures()?;
        let handle = wire::MemoryPoolHandle::from_raw(pool);
        // A device's own lasts as long as the device.
        let is_default = |of: &u64| *of == handle.0;
        if lock(&self.pools).defaults.values().any(is_default) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        self.at_pool(pool)?
            .post(&wire::MemPoolDestroy { pool: handle })?;
        lock(&self.pools).forget(handle.0);
        self.unshare_pool(handle.0);
        Ok(())
    }

    fn cuMemPoolTrimTo(&self, pool: CUmemoryPool, minBytesToKeep: usize) -> Result<(), CUresult> {
        self.safe_in_captures()?;
        self.at_pool(pool)?
            .call(&wire::MemPoolTrimTo {
                pool: wire::MemoryPoolHandle::from_raw(pool),
                minBytesToKeep: minBytesToKeep as u64,
            })
            .map(|_| ())
    }

    fn cuMemPoolSetAttribute(
        &self,
        pool: CUmemoryPool,
        attr: CUmemPool_attribute,
        value: Vouched<'_, *mut c_void>,
    ) -> Result<(), CUresult> {
        self.safe_in_captures()?;
        if value.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: the caller's contract: as wide as the attribute.
        let given = unsafe { crate::raw::slice(value.cast::<u8>(), width(attr)) };
        let mut word = [0; 8];
        let bytes = word.iter_mut().zip(given.unwrap_or_default());
        bytes.for_each(|(to, from)| *to = *from);
        let value = u64::from_le_bytes(word);
        let settable = matches!(
            attr,
            CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES
                | CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC
                | CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES
                | CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
        );
        // The high marks can only be reset.
        let reset = matches!(
            attr,
            CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH | CU_MEMPOOL_ATTR_USED_MEM_HIGH
        ) && value == 0;
        if !settable && !reset {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        self.pool(pool).and_then(|number| {
            self.session(self.device(number)?.session)?
                .post_plain(&wire::PoolSet {
                    pool: wire::MemoryPoolHandle::from_raw(pool),
                    attribute: attr,
                    value,
                })
        })
    }

    fn cuMemPoolGetAttribute(
        &self,
        pool: CUmemoryPool,
        attr: CUmemPool_attribute,
        value: Vouched<'_, *mut c_void>,
    ) -> Result<(), CUresult> {
        self.safe_in_captures()?;
        if value.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let told = self.pool_attribute(pool, attr)?;
        // SAFETY: the caller's contract: as wide as the attribute.
        unsafe { OutList::new(value.cast::<u8>(), width(attr)) }.fill(told.to_le_bytes());
        Ok(())
    }

    fn cuMemPoolSetAccess(
        &self,
        pool: CUmemoryPool,
        map: Option<&[CUmemAccessDesc]>,
        _count: usize,
    ) -> Result<(), CUresult> {
        self.pool(pool).and_then(|number| {
            let index = self.device(number)?.session;
            let words = self.access_words(map.ok_or(CUDA_ERROR_INVALID_VALUE)?, index)?;
            let request = wire::SetAccess {
                pool: wire::MemoryPoolHandle::from_raw(pool),
                address: 0,
                size: 0,
                words: words.len() as u32,
                access: wire::List::Values(&words),
            };
            self.session(index)?
                .call(actor(0), "cuMemPoolSetAccess", &request)?;
            Ok(())
        })
    }

    fn cuMemPoolGetAccess(
        &self,
        memPool: CUmemoryPool,
        location: &CUmemLocation,
    ) -> Result<CUmemAccess_flags, CUresult> {
        self.pool(memPool)
            .and_then(|number| {
                let device = self.device(device_of(location)?)?;
                if device.session != self.device(number)?.session {
                    return Ok(CU_MEM_ACCESS_FLAGS_PROT_NONE.into());
                }
                let session = self.session(device.session)?;
                let request = wire::GetAccess {
                    pool: wire::MemoryPoolHandle::from_raw(memPool),
                    address: 0,
                    location: location.r#type,
                    number: device.ordinal,
                };
                let body = session.call(actor(0), "cuMemPoolGetAccess", &request)?;
                let reply = wire::GetAccessReply::decode(&body).map_err(|_| session.malformed())?;
                reply.flags.ok_or_else(|| session.malformed())
            })
            .map(|access| access as CUmemAccess_flags)
    }

    fn cuMemPoolExportToShareableHandle(
        &self,
        pool: CUmemoryPool,
        handleType: CUmemAllocationHandleType,
        flags: u64,
    ) -> Result<[u8; 4], CUresult> {
        let file = self.export_pool(pool, handleType, flags)?;
        Ok(file.to_ne_bytes())
    }

    fn cuMemPoolImportFromShareableHandle(
        &self,
        handle: Vouched<'_, *mut c_void>,
        handleType: CUmemAllocationHandleType,
        flags: u64,
    ) -> Result<CUmemoryPool, CUresult> {
        self.import_pool(handle.addr() as i32, handleType, flags)
    }

    fn cuMemPoolExportPointer(&self, ptr: CUdeviceptr) -> Result<CUmemPoolPtrExportData, CUresult> {
        let told = self.export_pointer(ptr);
        told.map(|reserved| CUmemPoolPtrExportData { reserved })
    }

    fn cuMemPoolImportPointer(
        &self,
        pool: CUmemoryPool,
        shareData: &CUmemPoolPtrExportData,
    ) -> Result<CUdeviceptr, CUresult> {
        let number = wire::MemoryPoolHandle::from_raw(pool).0;
        self.import_pointer(&self.at_pool(pool)?, number, &shareData.reserved)
    }

    fn cuMemGetDefaultMemPool(
        &self,
        location: &CUmemLocation,
        r#type: CUmemAllocationType,
    ) -> Result<CUmemoryPool, CUresult> {
        let device = self.located(location, r#type)?;
        self.default_pool(device).map(raw)
    }

    fn cuMemGetMemPool(
        &self,
        location: &CUmemLocation,
        r#type: CUmemAllocationType,
    ) -> Result<CUmemoryPool, CUresult> {
        let device = self.located(location, r#type)?;
        self.current_pool(device).map(raw)
    }

    fn cuMemSetMemPool(
        &self,
        location: &CUmemLocation,
        r#type: CUmemAllocationType,
        pool: CUmemoryPool,
    ) -> Result<(), CUresult> {
        self.set_pool(self.located(location, r#type)?, pool)
    }

    fn cuDeviceGetDefaultMemPool(&self, dev: CUdevice) -> Result<CUmemoryPool, CUresult> {
        self.default_pool(dev).map(raw)
    }

    fn cuDeviceGetMemPool(&self, dev: CUdevice) -> Result<CUmemoryPool, CUresult> {
        let pool = self.current_pool(dev).map(raw);
        // Unlike with most calls (seen with driver 580.159).
        pool.map_err(|status| match status {
            CUDA_ERROR_INVALID_DEVICE => CUDA_ERROR_INVALID_VALUE,
            status => status,
        })
    }

    fn cuDeviceSetMemPool(&self, dev: CUdevice, pool: CUmemoryPool) -> Result<(), CUresult> {
        self.set_pool(dev, pool)
    }
}
