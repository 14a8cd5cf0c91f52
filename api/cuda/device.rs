//! Devices: what they are and can do. Answered by the client from the snapshot that the session starts with.

extern "C" {
    /// Turns an ordinal into a device.
    #[call(id = 0x0201, local, since = "2.0")]
    fn cuDeviceGet(#[out] device: *mut CUdevice, ordinal: i32) -> CUresult;

    /// Counts the devices.
    #[call(id = 0x0202, local, since = "2.0")]
    fn cuDeviceGetCount(#[out] count: *mut i32) -> CUresult;

    /// Names a device.
    #[call(id = 0x0203, local, since = "2.0")]
    fn cuDeviceGetName(
        #[out(bytes = len, place)] name: *mut c_char,
        len: i32,
        dev: CUdevice,
    ) -> CUresult;

    /// Tells a device's UUID.
    #[call(id = 0x0204, local, since = "9.2")]
    fn cuDeviceGetUuid(#[out] uuid: *mut CUuuid, dev: CUdevice) -> CUresult;

    /// Tells a device's UUID, or that of its partition.
    #[call(id = 0x0205, local, since = "11.4")]
    fn cuDeviceGetUuid_v2(#[out] uuid: *mut CUuuid, dev: CUdevice) -> CUresult;

    /// Tells a device's locally unique identifier, which only Windows has.
    #[call(id = 0x0206, local, since = "10.0")]
    fn cuDeviceGetLuid(
        #[local] luid: *mut c_char,
        #[out(place)] deviceNodeMask: *mut u32,
        dev: CUdevice,
    ) -> CUresult;

    /// `cuDeviceTotalMem_v2` as it was before CUDA 3.2, with 32-bit sizes and addresses.
    #[call(id = 0x0207, local, since = "2.0")]
    fn cuDeviceTotalMem(#[out] bytes: *mut u32, dev: CUdevice) -> CUresult;

    /// Tells how much memory a device has.
    #[call(id = 0x0208, local, since = "3.2")]
    fn cuDeviceTotalMem_v2(#[out] bytes: *mut usize, dev: CUdevice) -> CUresult;

    /// Tells how many elements a linear texture may have.
    #[call(id = 0x0209, local, since = "11.1")]
    fn cuDeviceGetTexture1DLinearMaxWidth(
        #[out] maxWidthInElements: *mut usize,
        format: CUarray_format,
        numChannels: u32,
        dev: CUdevice,
    ) -> CUresult;

    /// Tells one attribute of a device.
    #[call(id = 0x020a, local, since = "2.0")]
    fn cuDeviceGetAttribute(
        #[out] pi: *mut i32,
        attrib: CUdevice_attribute,
        dev: CUdevice,
    ) -> CUresult;

    /// Tells which atomic operations work between a device and its host.
    #[call(id = 0x020b, local, since = "13.0")]
    fn cuDeviceGetHostAtomicCapabilities(
        #[out(len = count, place)] capabilities: *mut u32,
        #[input(len = count, nullable)] operations: *const CUatomicOperation,
        count: u32,
        dev: CUdevice,
    ) -> CUresult;

    /// Fills in attributes for NvSciSync, which only embedded systems have.
    #[call(id = 0x020c, unsupported, since = "10.2")]
    fn cuDeviceGetNvSciSyncAttributes(
        #[local] nvSciSyncAttrList: *mut c_void,
        dev: CUdevice,
        flags: i32,
    ) -> CUresult;

    /// Tells the properties of a device, as CUDA 1 knew them.
    #[call(id = 0x020d, local, since = "2.0")]
    fn cuDeviceGetProperties(#[out] prop: *mut CUdevprop, dev: CUdevice) -> CUresult;

    /// Tells a device's compute capability.
    #[call(id = 0x020e, local, since = "2.0")]
    fn cuDeviceComputeCapability(
        #[out] major: *mut i32,
        #[out] minor: *mut i32,
        dev: CUdevice,
    ) -> CUresult;

    /// Finds a device by its PCI address.
    #[call(id = 0x020f, local, since = "4.1")]
    fn cuDeviceGetByPCIBusId(
        #[out] dev: *mut CUdevice,
        #[input(cstr)] pciBusId: *const c_char,
    ) -> CUresult;

    /// Tells a device's PCI address as text.
    #[call(id = 0x0210, local, since = "4.1")]
    fn cuDeviceGetPCIBusId(
        #[out(bytes = len, place)] pciBusId: *mut c_char,
        len: i32,
        dev: CUdevice,
    ) -> CUresult;

    /// Tells whether a device can reach another's memory.
    #[call(id = 0x0211, local, manual(client), since = "4.0")]
    fn cuDeviceCanAccessPeer(
        #[out] canAccessPeer: *mut i32,
        dev: CUdevice,
        peerDev: CUdevice,
    ) -> CUresult;

    /// Tells one attribute of the path between two devices.
    #[call(id = 0x0212, local, manual(client), since = "8.0")]
    fn cuDeviceGetP2PAttribute(
        #[out] value: *mut i32,
        attrib: CUdevice_P2PAttribute,
        srcDevice: CUdevice,
        dstDevice: CUdevice,
    ) -> CUresult;

    /// Tells which atomic operations work between two devices.
    #[call(id = 0x0213, local, since = "13.0")]
    fn cuDeviceGetP2PAtomicCapabilities(
        #[out(len = count, place)] capabilities: *mut u32,
        #[input(len = count, nullable)] operations: *const CUatomicOperation,
        count: u32,
        srcDevice: CUdevice,
        dstDevice: CUdevice,
    ) -> CUresult;

    /// Tells whether contexts of a device can be bound to part of it.
    #[call(id = 0x0214, local, since = "11.4")]
    fn cuDeviceGetExecAffinitySupport(
        #[out] pi: *mut i32,
        r#type: CUexecAffinityType,
        dev: CUdevice,
    ) -> CUresult;

    /// Tells how much memory a device holds for graphs.
    #[call(id = 0x0215, sync, manual, since = "11.4")]
    fn cuDeviceGetGraphMemAttribute(
        device: CUdevice,
        attr: CUgraphMem_attribute,
        #[out(bytes = 8)] value: *mut c_void,
    ) -> CUresult;

    /// Resets a high mark of the memory that a device holds for graphs.
    #[call(id = 0x0216, sync, manual, since = "11.4")]
    fn cuDeviceSetGraphMemAttribute(
        device: CUdevice,
        attr: CUgraphMem_attribute,
        #[input(bytes = 8)] value: *mut c_void,
    ) -> CUresult;

    /// Gives memory that graphs no longer use back to the system.
    #[call(id = 0x0217, async, manual, since = "11.4")]
    fn cuDeviceGraphMemTrim(device: CUdevice) -> CUresult;

    /// Calls the application back when memory runs short.
    #[call(id = 0x0218, unsupported, since = "12.4")]
    fn cuDeviceRegisterAsyncNotification(
        device: CUdevice,
        #[callback] callbackFunc: CUasyncCallback,
        #[user_data] userData: *mut c_void,
        #[out] callback: *mut CUasyncCallbackHandle,
    ) -> CUresult;

    /// Ends such calls.
    #[call(id = 0x0219, unsupported, since = "12.4")]
    fn cuDeviceUnregisterAsyncNotification(
        device: CUdevice,
        callback: CUasyncCallbackHandle,
    ) -> CUresult;

    /// Counts the fabric cliques of a device.
    #[call(id = 0x021a, unsupported, since = "13.4")]
    fn cuDeviceGetCliqueCount(#[out] count: *mut usize, dev: CUdevice) -> CUresult;

    /// Lists the fabric cliques of a device.
    #[call(id = 0x021b, unsupported, since = "13.4")]
    fn cuDeviceGetCliqueInfo(
        #[out] cliqueInfo: *mut CUcliqueInfo,
        #[inout] count: *mut usize,
        dev: CUdevice,
    ) -> CUresult;

    /// Tells which fabric cluster a device belongs to.
    #[call(id = 0x021c, unsupported, since = "13.4")]
    fn cuDeviceGetFabricClusterUuid(#[out] uuid: *mut CUuuid, dev: CUdevice) -> CUresult;

    /// Makes remote direct writes visible to the device.
    #[call(id = 0x021d, unsupported, since = "11.3")]
    fn cuFlushGPUDirectRDMAWrites(
        target: CUflushGPUDirectRDMAWritesTarget,
        scope: CUflushGPUDirectRDMAWritesScope,
    ) -> CUresult;
}
