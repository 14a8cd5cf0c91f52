//! Memory pools: allocation in stream order.

extern "C" {
    /// Allocates from the device's current pool, in stream order.
    #[call(
        id = 0x0701,
        local,
        manual(client),
        since = "11.2",
        per_thread = "cuMemAllocAsync_ptsz@11.2"
    )]
    fn cuMemAllocAsync(
        #[out(place, cleared)] dptr: *mut CUdeviceptr,
        bytesize: usize,
        hStream: CUstream,
    ) -> CUresult;

    /// Allocates from a pool, in stream order.
    #[call(
        id = 0x0702,
        local,
        manual(client),
        since = "11.2",
        per_thread = "cuMemAllocFromPoolAsync_ptsz@11.2"
    )]
    fn cuMemAllocFromPoolAsync(
        #[out(place, cleared)] dptr: *mut CUdeviceptr,
        bytesize: usize,
        pool: CUmemoryPool,
        hStream: CUstream,
    ) -> CUresult;

    /// Frees memory, in stream order.
    #[call(
        id = 0x0703,
        local,
        manual(client),
        since = "11.2",
        per_thread = "cuMemFreeAsync_ptsz@11.2"
    )]
    fn cuMemFreeAsync(dptr: CUdeviceptr, hStream: CUstream) -> CUresult;

    /// Creates a memory pool.
    #[call(id = 0x0704, local, manual(client), since = "11.2")]
    fn cuMemPoolCreate(
        #[out(place)] pool: *mut CUmemoryPool,
        #[input(nullable)] poolProps: *const CUmemPoolProps,
    ) -> CUresult;

    /// Ends a memory pool, once its memory is free.
    #[call(id = 0x0705, async, manual(client), since = "11.2")]
    fn cuMemPoolDestroy(#[destroys] pool: CUmemoryPool) -> CUresult;

    /// Gives unused memory of a pool back to the system.
    #[call(id = 0x0706, sync, manual(client), since = "11.2")]
    fn cuMemPoolTrimTo(pool: CUmemoryPool, minBytesToKeep: usize) -> CUresult;

    /// Sets an attribute of a pool.
    #[call(id = 0x0707, local, manual(client), since = "11.2")]
    fn cuMemPoolSetAttribute(
        pool: CUmemoryPool,
        attr: CUmemPool_attribute,
        #[local] value: *mut c_void,
    ) -> CUresult;

    /// Tells an attribute of a pool.
    #[call(id = 0x0708, local, manual(client), since = "11.2")]
    fn cuMemPoolGetAttribute(
        pool: CUmemoryPool,
        attr: CUmemPool_attribute,
        #[local] value: *mut c_void,
    ) -> CUresult;

    /// Says which devices may use a pool's memory.
    #[call(id = 0x0709, local, manual(client), since = "11.2")]
    fn cuMemPoolSetAccess(
        pool: CUmemoryPool,
        #[input(len = count, nullable)] map: *const CUmemAccessDesc,
        count: usize,
    ) -> CUresult;

    /// Tells how a device may use a pool's memory.
    #[call(id = 0x070a, local, manual(client), since = "11.2")]
    fn cuMemPoolGetAccess(
        #[out] flags: *mut CUmemAccess_flags,
        memPool: CUmemoryPool,
        #[input] location: *mut CUmemLocation,
    ) -> CUresult;

    /// Exports a pool to another process.
    #[call(id = 0x070b, local, since = "11.2")]
    fn cuMemPoolExportToShareableHandle(
        #[out(bytes = 4)] handle_out: *mut c_void,
        pool: CUmemoryPool,
        handleType: CUmemAllocationHandleType,
        flags: u64,
    ) -> CUresult;

    /// Imports a pool of another process.
    #[call(id = 0x070c, local, since = "11.2")]
    fn cuMemPoolImportFromShareableHandle(
        #[out] pool_out: *mut CUmemoryPool,
        #[local] handle: *mut c_void,
        handleType: CUmemAllocationHandleType,
        flags: u64,
    ) -> CUresult;

    /// Exports an allocation of a shared pool.
    #[call(id = 0x070d, local, since = "11.2")]
    fn cuMemPoolExportPointer(
        #[out] shareData_out: *mut CUmemPoolPtrExportData,
        ptr: CUdeviceptr,
    ) -> CUresult;

    /// Imports an allocation of a shared pool.
    #[call(id = 0x070e, local, since = "11.2")]
    fn cuMemPoolImportPointer(
        #[out] ptr_out: *mut CUdeviceptr,
        pool: CUmemoryPool,
        #[input] shareData: *mut CUmemPoolPtrExportData,
    ) -> CUresult;

    /// Tells the default pool of a location.
    #[call(id = 0x070f, local, manual(client), since = "13.0")]
    fn cuMemGetDefaultMemPool(
        #[out] pool_out: *mut CUmemoryPool,
        #[input] location: *mut CUmemLocation,
        r#type: CUmemAllocationType,
    ) -> CUresult;

    /// Tells the current pool of a location.
    #[call(id = 0x0710, local, manual(client), since = "13.0")]
    fn cuMemGetMemPool(
        #[out] pool: *mut CUmemoryPool,
        #[input] location: *mut CUmemLocation,
        r#type: CUmemAllocationType,
    ) -> CUresult;

    /// Sets the current pool of a location.
    #[call(id = 0x0711, local, manual(client), since = "13.0")]
    fn cuMemSetMemPool(
        #[input] location: *mut CUmemLocation,
        r#type: CUmemAllocationType,
        pool: CUmemoryPool,
    ) -> CUresult;

    /// Tells the default pool of a device.
    #[call(id = 0x0712, local, manual(client), since = "11.2")]
    fn cuDeviceGetDefaultMemPool(#[out] pool_out: *mut CUmemoryPool, dev: CUdevice) -> CUresult;

    /// Tells the current pool of a device.
    #[call(id = 0x0713, local, manual(client), since = "11.2")]
    fn cuDeviceGetMemPool(#[out] pool: *mut CUmemoryPool, dev: CUdevice) -> CUresult;

    /// Sets the current pool of a device.
    #[call(id = 0x0714, async, manual, since = "11.2")]
    fn cuDeviceSetMemPool(dev: CUdevice, pool: CUmemoryPool) -> CUresult;
}
