//! Memory of the device and pinned memory of the host, and what is known about an address.

extern "C" {
    /// `cuMemGetInfo_v2` as it was before CUDA 3.2, with 32-bit sizes and addresses.
    #[call(id = 0x0401, local, since = "2.0")]
    fn cuMemGetInfo(#[out(place)] free: *mut u32, #[out(place)] total: *mut u32) -> CUresult;

    /// Tells free and total memory of the current device.
    #[call(id = 0x0402, sync, manual, since = "3.2")]
    fn cuMemGetInfo_v2(
        #[out(place, cleared)] free: *mut usize,
        #[out(place, cleared)] total: *mut usize,
    ) -> CUresult;

    /// `cuMemAlloc_v2` as it was before CUDA 3.2, with 32-bit sizes and addresses.
    #[call(id = 0x0403, local, since = "2.0")]
    fn cuMemAlloc(#[out] dptr: *mut CUdeviceptr_v1, bytesize: u32) -> CUresult;

    /// Allocates device memory.
    #[call(id = 0x0404, local, manual(client), since = "3.2")]
    fn cuMemAlloc_v2(#[out(place, cleared)] dptr: *mut CUdeviceptr, bytesize: usize) -> CUresult;

    /// `cuMemAllocPitch_v2` as it was before CUDA 3.2, with 32-bit sizes and addresses.
    #[call(id = 0x0405, local, since = "2.0")]
    fn cuMemAllocPitch(
        #[out] dptr: *mut CUdeviceptr_v1,
        #[out] pPitch: *mut u32,
        WidthInBytes: u32,
        Height: u32,
        ElementSizeBytes: u32,
    ) -> CUresult;

    /// Allocates rows of device memory at a pitch that suits the device.
    #[call(id = 0x0406, local, manual(client), since = "3.2")]
    fn cuMemAllocPitch_v2(
        #[out(place, cleared)] dptr: *mut CUdeviceptr,
        #[out(place, cleared)] pPitch: *mut usize,
        WidthInBytes: usize,
        Height: usize,
        ElementSizeBytes: u32,
    ) -> CUresult;

    /// `cuMemFree_v2` as it was before CUDA 3.2, with 32-bit sizes and addresses.
    #[call(id = 0x0407, local, since = "2.0")]
    fn cuMemFree(dptr: CUdeviceptr_v1) -> CUresult;

    /// Frees device memory, once what uses it is done.
    #[call(id = 0x0408, local, manual(client), since = "3.2")]
    fn cuMemFree_v2(dptr: CUdeviceptr) -> CUresult;

    /// `cuMemGetAddressRange_v2` as it was before CUDA 3.2, with 32-bit sizes and addresses.
    #[call(id = 0x0409, local, since = "2.0")]
    fn cuMemGetAddressRange(
        #[out(nullable)] pbase: *mut CUdeviceptr_v1,
        #[out(nullable)] psize: *mut u32,
        dptr: CUdeviceptr_v1,
    ) -> CUresult;

    /// Tells the allocation that an address lies in.
    #[call(id = 0x040a, local, since = "3.2")]
    fn cuMemGetAddressRange_v2(
        #[out(nullable, cleared)] pbase: *mut CUdeviceptr,
        #[out(nullable, cleared)] psize: *mut usize,
        dptr: CUdeviceptr,
    ) -> CUresult;

    /// Allocates memory that host and device both reach.
    #[call(id = 0x040b, local, since = "6.0")]
    fn cuMemAllocManaged(
        #[out(cleared)] dptr: *mut CUdeviceptr,
        bytesize: usize,
        flags: u32,
    ) -> CUresult;

    /// `cuMemAllocHost_v2` as it was before CUDA 3.2, with 32-bit sizes and addresses.
    #[call(id = 0x040c, local, since = "2.0")]
    fn cuMemAllocHost(#[out] pp: *mut *mut c_void, bytesize: u32) -> CUresult;

    /// Allocates pinned host memory.
    #[call(id = 0x040d, local, manual(client), since = "3.2")]
    fn cuMemAllocHost_v2(#[out(place, cleared)] pp: *mut *mut c_void, bytesize: usize) -> CUresult;

    /// Allocates pinned host memory, with flags.
    #[call(id = 0x040e, local, manual(client), since = "2.2")]
    fn cuMemHostAlloc(
        #[out(place, cleared)] pp: *mut *mut c_void,
        bytesize: usize,
        Flags: u32,
    ) -> CUresult;

    /// Frees pinned host memory.
    #[call(id = 0x040f, local, manual(client), since = "2.0")]
    fn cuMemFreeHost(#[local] p: *mut c_void) -> CUresult;

    /// `cuMemHostGetDevicePointer_v2` as it was before CUDA 3.2, with 32-bit sizes and addresses.
    #[call(id = 0x0410, local, since = "2.2")]
    fn cuMemHostGetDevicePointer(
        #[out] pdptr: *mut CUdeviceptr_v1,
        #[local] p: *mut c_void,
        Flags: u32,
    ) -> CUresult;

    /// Tells where the device sees pinned host memory; for registered memory that is elsewhere than the host does.
    #[call(id = 0x0411, local, since = "3.2")]
    fn cuMemHostGetDevicePointer_v2(
        #[out(place, cleared)] pdptr: *mut CUdeviceptr,
        #[local] p: *mut c_void,
        Flags: u32,
    ) -> CUresult;

    /// Tells the flags that pinned host memory was allocated with.
    #[call(id = 0x0412, local, since = "2.3")]
    fn cuMemHostGetFlags(#[out] pFlags: *mut u32, #[local] p: *mut c_void) -> CUresult;

    /// Pins memory that the application has allocated: for copies, not for kernels.
    #[call(
        id = 0x0413,
        local,
        manual(client),
        since = "6.5",
        alias = "cuMemHostRegister@4.0"
    )]
    fn cuMemHostRegister_v2(#[local] p: *mut c_void, bytesize: usize, Flags: u32) -> CUresult;

    /// Ends that.
    #[call(id = 0x0414, local, manual(client), since = "4.0")]
    fn cuMemHostUnregister(#[local] p: *mut c_void) -> CUresult;

    /// Tells one attribute of an address.
    #[call(id = 0x0415, local, since = "4.0")]
    fn cuPointerGetAttribute(
        #[local] data: *mut c_void,
        attribute: CUpointer_attribute,
        ptr: CUdeviceptr,
    ) -> CUresult;

    /// Tells several attributes of an address.
    #[call(id = 0x0416, local, since = "7.0")]
    fn cuPointerGetAttributes(
        numAttributes: u32,
        #[input(len = numAttributes)] attributes: *mut CUpointer_attribute,
        #[input(len = numAttributes)] data: *mut *mut c_void,
        ptr: CUdeviceptr,
    ) -> CUresult;

    /// Sets an attribute of an address.
    #[call(id = 0x0417, local, since = "6.0")]
    fn cuPointerSetAttribute(
        #[input(bytes = 4)] value: *const c_void,
        attribute: CUpointer_attribute,
        ptr: CUdeviceptr,
    ) -> CUresult;

    /// Tells the driver how managed memory will be used: CUDA 8's form, by device.
    #[call(id = 0x0418, local, since = "8.0")]
    fn cuMemAdvise(
        devPtr: CUdeviceptr,
        count: usize,
        advice: CUmem_advise,
        device: CUdevice,
    ) -> CUresult;

    /// Tells the driver how managed memory will be used.
    #[call(id = 0x0419, local, since = "12.2")]
    fn cuMemAdvise_v2(
        devPtr: CUdeviceptr,
        count: usize,
        advice: CUmem_advise,
        location: CUmemLocation,
    ) -> CUresult;

    /// Moves managed memory ahead of its use: CUDA 8's form, by device.
    #[call(
        id = 0x041a,
        local,
        since = "8.0",
        per_thread = "cuMemPrefetchAsync_ptsz@8.0"
    )]
    fn cuMemPrefetchAsync(
        devPtr: CUdeviceptr,
        count: usize,
        dstDevice: CUdevice,
        hStream: CUstream,
    ) -> CUresult;

    /// Moves managed memory ahead of its use.
    #[call(
        id = 0x041b,
        local,
        since = "12.2",
        per_thread = "cuMemPrefetchAsync_v2_ptsz@12.2"
    )]
    fn cuMemPrefetchAsync_v2(
        devPtr: CUdeviceptr,
        count: usize,
        location: CUmemLocation,
        flags: u32,
        hStream: CUstream,
    ) -> CUresult;

    /// Moves several ranges of managed memory.
    #[call(
        id = 0x041c,
        local,
        since = "13.0",
        per_thread = "cuMemPrefetchBatchAsync_ptsz@13.0"
    )]
    fn cuMemPrefetchBatchAsync(
        #[input(len = count)] dptrs: *mut CUdeviceptr,
        #[input(len = count)] sizes: *mut usize,
        count: usize,
        #[input(len = numPrefetchLocs)] prefetchLocs: *mut CUmemLocation,
        #[input(len = numPrefetchLocs)] prefetchLocIdxs: *mut usize,
        numPrefetchLocs: usize,
        flags: u64,
        hStream: CUstream,
    ) -> CUresult;

    /// Declares the contents of several ranges of managed memory void.
    #[call(
        id = 0x041d,
        local,
        since = "13.0",
        per_thread = "cuMemDiscardBatchAsync_ptsz@13.0"
    )]
    fn cuMemDiscardBatchAsync(
        #[input(len = count)] dptrs: *mut CUdeviceptr,
        #[input(len = count)] sizes: *mut usize,
        count: usize,
        flags: u64,
        hStream: CUstream,
    ) -> CUresult;

    /// Does both.
    #[call(
        id = 0x041e,
        local,
        since = "13.0",
        per_thread = "cuMemDiscardAndPrefetchBatchAsync_ptsz@13.0"
    )]
    fn cuMemDiscardAndPrefetchBatchAsync(
        #[input(len = count)] dptrs: *mut CUdeviceptr,
        #[input(len = count)] sizes: *mut usize,
        count: usize,
        #[input(len = numPrefetchLocs)] prefetchLocs: *mut CUmemLocation,
        #[input(len = numPrefetchLocs)] prefetchLocIdxs: *mut usize,
        numPrefetchLocs: usize,
        flags: u64,
        hStream: CUstream,
    ) -> CUresult;

    /// Tells one attribute of a range of managed memory.
    #[call(id = 0x041f, local, since = "8.0")]
    fn cuMemRangeGetAttribute(
        #[out(bytes = dataSize, nullable)] data: *mut c_void,
        dataSize: usize,
        attribute: CUmem_range_attribute,
        devPtr: CUdeviceptr,
        count: usize,
    ) -> CUresult;

    /// Tells several attributes of a range of managed memory.
    #[call(id = 0x0420, local, since = "8.0")]
    fn cuMemRangeGetAttributes(
        #[input(len = numAttributes)] data: *mut *mut c_void,
        #[input(len = numAttributes)] dataSizes: *mut usize,
        #[input(len = numAttributes)] attributes: *mut CUmem_range_attribute,
        numAttributes: usize,
        devPtr: CUdeviceptr,
        count: usize,
    ) -> CUresult;

    /// Tells where the pages of a range lie.
    #[call(id = 0x0421, unsupported, since = "13.4")]
    fn cuMemGetLocationInfo(
        ptr: CUdeviceptr,
        size: usize,
        summaryGranularity: usize,
        samplingGranularity: usize,
        #[out] location_out: *mut CUmemLocation,
    ) -> CUresult;

    /// Decompresses several ranges on the device.
    #[call(
        id = 0x0422,
        unsupported,
        since = "12.6",
        per_thread = "cuMemBatchDecompressAsync_ptsz@12.6"
    )]
    fn cuMemBatchDecompressAsync(
        #[input(len = count)] paramsArray: *mut CUmemDecompressParams,
        count: usize,
        flags: u32,
        #[out] errorIndex: *mut usize,
        stream: CUstream,
    ) -> CUresult;
}
