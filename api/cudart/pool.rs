//! Memory in stream order, and its pools.

extern "C" {
    /// Allocates memory in stream order.
    #[call(ptsz)]
    fn cudaMallocAsync(devPtr: *mut *mut c_void, size: usize, hStream: cudaStream_t)
    -> cudaError_t;

    /// Frees memory in stream order.
    #[call(driver = "cuMemFreeAsync", ptsz)]
    fn cudaFreeAsync(devPtr: *mut c_void, hStream: cudaStream_t) -> cudaError_t;

    /// Allocates memory of a pool in stream order.
    #[call(driver = "cuMemAllocFromPoolAsync", ptsz)]
    fn cudaMallocFromPoolAsync(
        ptr: *mut *mut c_void,
        size: usize,
        memPool: cudaMemPool_t,
        stream: cudaStream_t,
    ) -> cudaError_t;

    /// Tells a device's default pool.
    #[call(bare = "cuDeviceGetDefaultMemPool")]
    fn cudaDeviceGetDefaultMemPool(memPool: *mut cudaMemPool_t, device: i32) -> cudaError_t;

    /// Tells a device's current pool.
    #[call(bare = "cuDeviceGetMemPool")]
    fn cudaDeviceGetMemPool(memPool: *mut cudaMemPool_t, device: i32) -> cudaError_t;

    /// Sets a device's current pool.
    #[call(bare = "cuDeviceSetMemPool")]
    fn cudaDeviceSetMemPool(device: i32, memPool: cudaMemPool_t) -> cudaError_t;

    /// Tells the default pool of a place.
    #[call(bare = "cuMemGetDefaultMemPool", only = 13)]
    fn cudaMemGetDefaultMemPool(
        memPool: *mut cudaMemPool_t,
        location: *mut cudaMemLocation,
        type_: cudaMemAllocationType,
    ) -> cudaError_t;

    /// Tells the current pool of a place.
    #[call(bare = "cuMemGetMemPool", only = 13)]
    fn cudaMemGetMemPool(
        memPool: *mut cudaMemPool_t,
        location: *mut cudaMemLocation,
        type_: cudaMemAllocationType,
    ) -> cudaError_t;

    /// Sets the current pool of a place.
    #[call(bare = "cuMemSetMemPool", only = 13)]
    fn cudaMemSetMemPool(
        location: *mut cudaMemLocation,
        type_: cudaMemAllocationType,
        memPool: cudaMemPool_t,
    ) -> cudaError_t;

    /// Makes a pool.
    #[call(bare = "cuMemPoolCreate")]
    fn cudaMemPoolCreate(
        memPool: *mut cudaMemPool_t,
        poolProps: *const cudaMemPoolProps,
    ) -> cudaError_t;

    /// Destroys a pool.
    #[call(bare = "cuMemPoolDestroy")]
    fn cudaMemPoolDestroy(memPool: cudaMemPool_t) -> cudaError_t;

    /// Gives back memory that a pool does not use.
    #[call(bare = "cuMemPoolTrimTo")]
    fn cudaMemPoolTrimTo(memPool: cudaMemPool_t, minBytesToKeep: usize) -> cudaError_t;

    /// Tells something about a pool.
    #[call(bare = "cuMemPoolGetAttribute")]
    fn cudaMemPoolGetAttribute(
        memPool: cudaMemPool_t,
        attr: cudaMemPoolAttr,
        value: *mut c_void,
    ) -> cudaError_t;

    /// Sets something of a pool.
    #[call(bare = "cuMemPoolSetAttribute")]
    fn cudaMemPoolSetAttribute(
        memPool: cudaMemPool_t,
        attr: cudaMemPoolAttr,
        value: *mut c_void,
    ) -> cudaError_t;

    /// Tells who may reach a pool's memory.
    #[call(bare = "cuMemPoolGetAccess")]
    fn cudaMemPoolGetAccess(
        flags: *mut cudaMemAccessFlags,
        memPool: cudaMemPool_t,
        location: *mut cudaMemLocation,
    ) -> cudaError_t;

    /// Says who may reach a pool's memory.
    #[call(bare = "cuMemPoolSetAccess")]
    fn cudaMemPoolSetAccess(
        memPool: cudaMemPool_t,
        descList: *const cudaMemAccessDesc,
        count: usize,
    ) -> cudaError_t;

    /// Makes a pool known to other processes.
    #[call(bare = "cuMemPoolExportToShareableHandle")]
    fn cudaMemPoolExportToShareableHandle(
        shareableHandle: *mut c_void,
        memPool: cudaMemPool_t,
        handleType: cudaMemAllocationHandleType,
        flags: u32,
    ) -> cudaError_t;

    /// Takes a pool of another process.
    #[call(bare = "cuMemPoolImportFromShareableHandle")]
    fn cudaMemPoolImportFromShareableHandle(
        memPool: *mut cudaMemPool_t,
        shareableHandle: *mut c_void,
        handleType: cudaMemAllocationHandleType,
        flags: u32,
    ) -> cudaError_t;

    /// Makes memory of a shared pool known to other processes.
    #[call(bare = "cuMemPoolExportPointer")]
    fn cudaMemPoolExportPointer(
        exportData: *mut cudaMemPoolPtrExportData,
        ptr: *mut c_void,
    ) -> cudaError_t;

    /// Takes memory of a pool of another process.
    #[call(bare = "cuMemPoolImportPointer")]
    fn cudaMemPoolImportPointer(
        ptr: *mut *mut c_void,
        memPool: cudaMemPool_t,
        exportData: *mut cudaMemPoolPtrExportData,
    ) -> cudaError_t;
}
