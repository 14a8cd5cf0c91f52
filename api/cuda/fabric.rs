//! Multicast and fabrics: between the devices of one machine or rack, over links that a session does not have.

extern "C" {
    /// Creates a multicast object.
    #[call(id = 0x1201, unsupported, since = "12.1")]
    fn cuMulticastCreate(
        #[out] mcHandle: *mut CUmemGenericAllocationHandle,
        #[input] prop: *const CUmulticastObjectProp,
    ) -> CUresult;

    /// Adds a device to a multicast object.
    #[call(id = 0x1202, unsupported, since = "12.1")]
    fn cuMulticastAddDevice(mcHandle: CUmemGenericAllocationHandle, dev: CUdevice) -> CUresult;

    /// Binds physical memory to a multicast object, on the memory's device.
    #[call(id = 0x1203, unsupported, since = "12.1")]
    fn cuMulticastBindMem(
        mcHandle: CUmemGenericAllocationHandle,
        mcOffset: usize,
        memHandle: CUmemGenericAllocationHandle,
        memOffset: usize,
        size: usize,
        flags: u64,
    ) -> CUresult;

    /// Binds physical memory to a multicast object.
    #[call(id = 0x1204, unsupported, since = "13.1")]
    fn cuMulticastBindMem_v2(
        mcHandle: CUmemGenericAllocationHandle,
        dev: CUdevice,
        mcOffset: usize,
        memHandle: CUmemGenericAllocationHandle,
        memOffset: usize,
        size: usize,
        flags: u64,
    ) -> CUresult;

    /// Binds mapped memory to a multicast object, on the memory's device.
    #[call(id = 0x1205, unsupported, since = "12.1")]
    fn cuMulticastBindAddr(
        mcHandle: CUmemGenericAllocationHandle,
        mcOffset: usize,
        memptr: CUdeviceptr,
        size: usize,
        flags: u64,
    ) -> CUresult;

    /// Binds mapped memory to a multicast object.
    #[call(id = 0x1206, unsupported, since = "13.1")]
    fn cuMulticastBindAddr_v2(
        mcHandle: CUmemGenericAllocationHandle,
        dev: CUdevice,
        mcOffset: usize,
        memptr: CUdeviceptr,
        size: usize,
        flags: u64,
    ) -> CUresult;

    /// Ends such a binding.
    #[call(id = 0x1207, unsupported, since = "12.1")]
    fn cuMulticastUnbind(
        mcHandle: CUmemGenericAllocationHandle,
        dev: CUdevice,
        mcOffset: usize,
        size: usize,
    ) -> CUresult;

    /// Tells to what sizes multicast objects are rounded.
    #[call(id = 0x1208, unsupported, since = "12.1")]
    fn cuMulticastGetGranularity(
        #[out] granularity: *mut usize,
        #[input] prop: *const CUmulticastObjectProp,
        option: CUmulticastGranularity_flags,
    ) -> CUresult;

    /// Reserves numbers for logical endpoints.
    #[call(id = 0x1209, unsupported, since = "13.3")]
    fn cuLogicalEndpointIdReserve(
        #[out] baseLeId: *mut CUlogicalEndpointId,
        count: cuuint32_t,
    ) -> CUresult;

    /// Gives such numbers back.
    #[call(id = 0x120a, unsupported, since = "13.3")]
    fn cuLogicalEndpointIdRelease(baseLeId: CUlogicalEndpointId, count: cuuint32_t) -> CUresult;

    /// Creates a logical endpoint.
    #[call(id = 0x120b, unsupported, since = "13.3")]
    fn cuLogicalEndpointCreate(
        leId: CUlogicalEndpointId,
        #[input] prop: *const CUlogicalEndpointProp,
    ) -> CUresult;

    /// Ends a logical endpoint.
    #[call(id = 0x120c, unsupported, since = "13.3")]
    fn cuLogicalEndpointDestroy(leId: CUlogicalEndpointId) -> CUresult;

    /// Adds a device to a logical endpoint.
    #[call(id = 0x120d, unsupported, since = "13.3")]
    fn cuLogicalEndpointAddDevice(leId: CUlogicalEndpointId, dev: CUdevice) -> CUresult;

    /// Binds mapped memory to a logical endpoint.
    #[call(id = 0x120e, unsupported, since = "13.3")]
    fn cuLogicalEndpointBindAddr(
        leId: CUlogicalEndpointId,
        dev: CUdevice,
        offset: cuuint64_t,
        #[local] ptr: *mut c_void,
        size: cuuint64_t,
        flags: u64,
    ) -> CUresult;

    /// Binds physical memory to a logical endpoint.
    #[call(id = 0x120f, unsupported, since = "13.3")]
    fn cuLogicalEndpointBindMem(
        leId: CUlogicalEndpointId,
        dev: CUdevice,
        offset: cuuint64_t,
        memHandle: CUmemGenericAllocationHandle,
        memOffset: cuuint64_t,
        size: cuuint64_t,
        flags: u64,
    ) -> CUresult;

    /// Ends such a binding.
    #[call(id = 0x1210, unsupported, since = "13.3")]
    fn cuLogicalEndpointUnbind(
        leId: CUlogicalEndpointId,
        dev: CUdevice,
        offset: cuuint64_t,
        size: cuuint64_t,
    ) -> CUresult;

    /// Exports a logical endpoint.
    #[call(id = 0x1211, unsupported, since = "13.3")]
    fn cuLogicalEndpointExport(
        #[local] handle: *mut c_void,
        leId: CUlogicalEndpointId,
        handleType: CUlogicalEndpointIpcHandleType,
    ) -> CUresult;

    /// Imports a logical endpoint.
    #[call(id = 0x1212, unsupported, since = "13.3")]
    fn cuLogicalEndpointImport(
        leId: CUlogicalEndpointId,
        #[local] handle: *const c_void,
        handleType: CUlogicalEndpointIpcHandleType,
    ) -> CUresult;

    /// Tells the limits of logical endpoints.
    #[call(id = 0x1213, unsupported, since = "13.3")]
    fn cuLogicalEndpointGetLimits(
        #[out] bindAlignment: *mut cuuint64_t,
        #[out] maxSize: *mut cuuint64_t,
        #[input] prop: *const CUlogicalEndpointProp,
    ) -> CUresult;

    /// Tells whether logical endpoints are ready.
    #[call(id = 0x1214, unsupported, since = "13.3")]
    fn cuLogicalEndpointQuery(
        leId: CUlogicalEndpointId,
        count: cuuint32_t,
        #[out] queryStatus: *mut i32,
    ) -> CUresult;

    /// Copies between logical endpoints, in stream order.
    #[call(
        id = 0x1215,
        unsupported,
        since = "13.5",
        per_thread = "cuFabricCpyBatchAsync_ptsz@13.5"
    )]
    fn cuFabricCpyBatchAsync(
        numOps: usize,
        #[input(len = numOps)] opList: *mut CUDA_FABRIC_COPY_BATCH_OP,
        flags: u64,
        hStream: CUstream,
    ) -> CUresult;
}
