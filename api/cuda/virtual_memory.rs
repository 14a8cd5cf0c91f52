//! Addresses and physical memory apart: reserve, create, map, grant.

extern "C" {
    /// Reserves a range of addresses.
    #[call(id = 0x0601, local, manual(client), since = "10.2")]
    fn cuMemAddressReserve(
        #[out] ptr: *mut CUdeviceptr,
        size: usize,
        alignment: usize,
        addr: CUdeviceptr,
        flags: u64,
    ) -> CUresult;

    /// Gives reserved addresses back.
    #[call(id = 0x0602, local, manual(client), since = "10.2")]
    fn cuMemAddressFree(ptr: CUdeviceptr, size: usize) -> CUresult;

    /// Creates physical memory.
    #[call(id = 0x0603, local, manual(client), since = "10.2")]
    fn cuMemCreate(
        #[out] handle: *mut CUmemGenericAllocationHandle,
        size: usize,
        #[input] prop: *const CUmemAllocationProp,
        flags: u64,
    ) -> CUresult;

    /// Drops a reference to physical memory.
    #[call(id = 0x0604, local, manual(client), since = "10.2")]
    fn cuMemRelease(handle: CUmemGenericAllocationHandle) -> CUresult;

    /// Maps physical memory at reserved addresses.
    #[call(id = 0x0605, local, manual(client), since = "10.2")]
    fn cuMemMap(
        ptr: CUdeviceptr,
        size: usize,
        offset: usize,
        handle: CUmemGenericAllocationHandle,
        flags: u64,
    ) -> CUresult;

    /// Maps physical memory into sparse arrays.
    #[call(
        id = 0x0606,
        unsupported,
        since = "11.1",
        per_thread = "cuMemMapArrayAsync_ptsz@11.1"
    )]
    fn cuMemMapArrayAsync(
        #[input(len = count)] mapInfoList: *mut CUarrayMapInfo,
        count: u32,
        hStream: CUstream,
    ) -> CUresult;

    /// Takes physical memory off addresses.
    #[call(id = 0x0607, local, manual(client), since = "10.2")]
    fn cuMemUnmap(ptr: CUdeviceptr, size: usize) -> CUresult;

    /// Says which devices may use mapped addresses.
    #[call(id = 0x0608, local, manual(client), since = "10.2")]
    fn cuMemSetAccess(
        ptr: CUdeviceptr,
        size: usize,
        #[input(len = count)] desc: *const CUmemAccessDesc,
        count: usize,
    ) -> CUresult;

    /// Tells how a device may use an address.
    #[call(id = 0x0609, local, manual(client), since = "10.2")]
    fn cuMemGetAccess(
        #[out] flags: *mut u64,
        #[input] location: *const CUmemLocation,
        ptr: CUdeviceptr,
    ) -> CUresult;

    /// Exports physical memory to another process.
    #[call(id = 0x060a, local, since = "10.2")]
    fn cuMemExportToShareableHandle(
        #[out(bytes = 4)] shareableHandle: *mut c_void,
        handle: CUmemGenericAllocationHandle,
        handleType: CUmemAllocationHandleType,
        flags: u64,
    ) -> CUresult;

    /// Imports physical memory of another process.
    #[call(id = 0x060b, local, since = "10.2")]
    fn cuMemImportFromShareableHandle(
        #[out] handle: *mut CUmemGenericAllocationHandle,
        #[local] osHandle: *mut c_void,
        shHandleType: CUmemAllocationHandleType,
    ) -> CUresult;

    /// Tells to what sizes physical memory is rounded.
    #[call(id = 0x060c, local, since = "10.2")]
    fn cuMemGetAllocationGranularity(
        #[out] granularity: *mut usize,
        #[input] prop: *const CUmemAllocationProp,
        option: CUmemAllocationGranularity_flags,
    ) -> CUresult;

    /// Tells how physical memory was created.
    #[call(id = 0x060d, local, since = "10.2")]
    fn cuMemGetAllocationPropertiesFromHandle(
        #[out] prop: *mut CUmemAllocationProp,
        handle: CUmemGenericAllocationHandle,
    ) -> CUresult;

    /// Finds the physical memory behind an address.
    #[call(id = 0x060e, local, since = "11.0")]
    fn cuMemRetainAllocationHandle(
        #[out] handle: *mut CUmemGenericAllocationHandle,
        #[local] addr: *mut c_void,
    ) -> CUresult;

    /// Exports a range of addresses as a descriptor.
    #[call(id = 0x060f, unsupported, since = "11.7")]
    fn cuMemGetHandleForAddressRange(
        #[local] handle: *mut c_void,
        dptr: CUdeviceptr,
        size: usize,
        handleType: CUmemRangeHandleType,
        flags: u64,
    ) -> CUresult;
}
