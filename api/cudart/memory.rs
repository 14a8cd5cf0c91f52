//! Memory of the device, of the host, and managed memory.

extern "C" {
    /// Allocates device memory.
    #[call]
    fn cudaMalloc(devPtr: *mut *mut c_void, size: usize) -> cudaError_t;

    /// Allocates rows of device memory at a pitch that suits the device.
    #[call]
    fn cudaMallocPitch(
        devPtr: *mut *mut c_void,
        pitch: *mut usize,
        width: usize,
        height: usize,
    ) -> cudaError_t;

    /// Allocates a box of device memory at a pitch that suits the device.
    #[call]
    fn cudaMalloc3D(pitchedDevPtr: *mut cudaPitchedPtr, extent: cudaExtent) -> cudaError_t;

    /// Allocates pinned host memory.
    #[call]
    fn cudaMallocHost(ptr: *mut *mut c_void, size: usize) -> cudaError_t;

    /// Allocates memory that host and devices share.
    #[call]
    fn cudaMallocManaged(devPtr: *mut *mut c_void, size: usize, flags: u32) -> cudaError_t;

    /// Frees device memory.
    #[call(driver = "cuMemFree_v2")]
    fn cudaFree(devPtr: *mut c_void) -> cudaError_t;

    /// Frees pinned host memory.
    #[call(driver = "cuMemFreeHost")]
    fn cudaFreeHost(ptr: *mut c_void) -> cudaError_t;

    /// Allocates pinned host memory with flags.
    #[call]
    fn cudaHostAlloc(pHost: *mut *mut c_void, size: usize, flags: u32) -> cudaError_t;

    /// Pins memory that the program allocated.
    #[call(driver = "cuMemHostRegister_v2")]
    fn cudaHostRegister(ptr: *mut c_void, size: usize, flags: u32) -> cudaError_t;

    /// Takes back what cudaHostRegister did.
    #[call(driver = "cuMemHostUnregister")]
    fn cudaHostUnregister(ptr: *mut c_void) -> cudaError_t;

    /// Tells the device's address of pinned host memory.
    #[call]
    fn cudaHostGetDevicePointer(
        pDevice: *mut *mut c_void,
        pHost: *mut c_void,
        flags: u32,
    ) -> cudaError_t;

    /// Tells the flags of pinned host memory.
    #[call(driver = "cuMemHostGetFlags")]
    fn cudaHostGetFlags(pFlags: *mut u32, pHost: *mut c_void) -> cudaError_t;

    /// Tells free and total memory of the current device.
    #[call(driver = "cuMemGetInfo_v2")]
    fn cudaMemGetInfo(free: *mut usize, total: *mut usize) -> cudaError_t;

    /// Tells what an address belongs to.
    #[call]
    fn cudaPointerGetAttributes(
        attributes: *mut cudaPointerAttributes,
        ptr: *const c_void,
    ) -> cudaError_t;

    /// Says how managed memory will be used.
    #[call(driver = "cuMemAdvise_v2", symbol_12 = "cudaMemAdvise_v2")]
    fn cudaMemAdvise(
        devPtr: *const c_void,
        count: usize,
        advice: cudaMemoryAdvise,
        location: cudaMemLocation,
    ) -> cudaError_t;

    /// Says how managed memory will be used, by device number.
    #[call(driver = "cuMemAdvise", only = 12, symbol = "cudaMemAdvise")]
    fn cudaMemAdvise_v1(
        devPtr: *const c_void,
        count: usize,
        advice: cudaMemoryAdvise,
        device: i32,
    ) -> cudaError_t;

    /// Brings managed memory to a place.
    #[call(
        driver = "cuMemPrefetchAsync_v2",
        symbol_12 = "cudaMemPrefetchAsync_v2",
        ptsz
    )]
    fn cudaMemPrefetchAsync(
        devPtr: *const c_void,
        count: usize,
        location: cudaMemLocation,
        flags: u32,
        stream: cudaStream_t,
    ) -> cudaError_t;

    /// Brings managed memory to a device.
    #[call(
        driver = "cuMemPrefetchAsync",
        only = 12,
        symbol = "cudaMemPrefetchAsync",
        ptsz
    )]
    fn cudaMemPrefetchAsync_v1(
        devPtr: *const c_void,
        count: usize,
        dstDevice: i32,
        stream: cudaStream_t,
    ) -> cudaError_t;

    /// Brings several ranges of managed memory to places.
    #[call(driver = "cuMemPrefetchBatchAsync", only = 13, ptsz)]
    fn cudaMemPrefetchBatchAsync(
        dptrs: *mut *mut c_void,
        sizes: *mut usize,
        count: usize,
        prefetchLocs: *mut cudaMemLocation,
        prefetchLocIdxs: *mut usize,
        numPrefetchLocs: usize,
        flags: u64,
        stream: cudaStream_t,
    ) -> cudaError_t;

    /// Says that the contents of several ranges are not needed any more.
    #[call(driver = "cuMemDiscardBatchAsync", only = 13, ptsz)]
    fn cudaMemDiscardBatchAsync(
        dptrs: *mut *mut c_void,
        sizes: *mut usize,
        count: usize,
        flags: u64,
        stream: cudaStream_t,
    ) -> cudaError_t;

    /// Discards ranges and brings them to places.
    #[call(driver = "cuMemDiscardAndPrefetchBatchAsync", only = 13, ptsz)]
    fn cudaMemDiscardAndPrefetchBatchAsync(
        dptrs: *mut *mut c_void,
        sizes: *mut usize,
        count: usize,
        prefetchLocs: *mut cudaMemLocation,
        prefetchLocIdxs: *mut usize,
        numPrefetchLocs: usize,
        flags: u64,
        stream: cudaStream_t,
    ) -> cudaError_t;

    /// Tells something about a range of managed memory.
    #[call(driver = "cuMemRangeGetAttribute")]
    fn cudaMemRangeGetAttribute(
        data: *mut c_void,
        dataSize: usize,
        attribute: cudaMemRangeAttribute,
        devPtr: *const c_void,
        count: usize,
    ) -> cudaError_t;

    /// Tells several things about a range of managed memory.
    #[call(driver = "cuMemRangeGetAttributes")]
    fn cudaMemRangeGetAttributes(
        data: *mut *mut c_void,
        dataSizes: *mut usize,
        attributes: *mut cudaMemRangeAttribute,
        numAttributes: usize,
        devPtr: *const c_void,
        count: usize,
    ) -> cudaError_t;

    /// Tells where the pages of a range are.
    #[call(refused, only = 13)]
    fn cudaMemGetLocationInfo(
        devPtr: *mut c_void,
        size: usize,
        summaryGranularity: usize,
        samplingGranularity: usize,
        location_out: *mut cudaMemLocation,
    ) -> cudaError_t;
}
