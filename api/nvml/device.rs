//! Devices: their list, names and kind.

extern "C" {
    /// Number of devices.
    #[call(id = 0x0201, local, alias = "nvmlDeviceGetCount")]
    fn nvmlDeviceGetCount_v2(#[local] deviceCount: *mut u32) -> nvmlReturn_t;

    /// Tells the attributes of a device.
    #[call(id = 0x0202, fixed, alias = "nvmlDeviceGetAttributes")]
    fn nvmlDeviceGetAttributes_v2(
        device: nvmlDevice_t,
        #[out] attributes: *mut nvmlDeviceAttributes_t,
    ) -> nvmlReturn_t;

    /// The device of this number, in the order of PCI places.
    #[call(id = 0x0203, local, alias = "nvmlDeviceGetHandleByIndex")]
    fn nvmlDeviceGetHandleByIndex_v2(
        index: u32,
        #[local] device: *mut nvmlDevice_t,
    ) -> nvmlReturn_t;

    /// The device of this serial number.
    #[call(id = 0x0204, local)]
    fn nvmlDeviceGetHandleBySerial(
        #[local] serial: *const c_char,
        #[local] device: *mut nvmlDevice_t,
    ) -> nvmlReturn_t;

    /// The device of this UUID.
    #[call(id = 0x0205, local)]
    fn nvmlDeviceGetHandleByUUID(
        #[local] uuid: *const c_char,
        #[local] device: *mut nvmlDevice_t,
    ) -> nvmlReturn_t;

    /// Tells the name of a device.
    #[call(id = 0x0206, fixed)]
    fn nvmlDeviceGetName(
        device: nvmlDevice_t,
        #[out(bytes = length)] name: *mut c_char,
        length: u32,
    ) -> nvmlReturn_t;

    /// Tells the brand of a device.
    #[call(id = 0x0207, fixed)]
    fn nvmlDeviceGetBrand(
        device: nvmlDevice_t,
        #[out] r#type: *mut nvmlBrandType_t,
    ) -> nvmlReturn_t;

    /// The number of a device.
    #[call(id = 0x0208, local)]
    fn nvmlDeviceGetIndex(device: nvmlDevice_t, #[local] index: *mut u32) -> nvmlReturn_t;

    /// Tells the serial of a device.
    #[call(id = 0x0209, fixed)]
    fn nvmlDeviceGetSerial(
        device: nvmlDevice_t,
        #[out(bytes = length)] serial: *mut c_char,
        length: u32,
    ) -> nvmlReturn_t;

    /// Tells the module id of a device.
    #[call(id = 0x020A, fixed)]
    fn nvmlDeviceGetModuleId(device: nvmlDevice_t, #[out] moduleId: *mut u32) -> nvmlReturn_t;

    /// The UUID of a device, as the server has it.
    #[call(id = 0x020B, local)]
    fn nvmlDeviceGetUUID(
        device: nvmlDevice_t,
        #[local] uuid: *mut c_char,
        length: u32,
    ) -> nvmlReturn_t;

    /// Tells the minor number of a device.
    #[call(id = 0x020C, unsupported)]
    fn nvmlDeviceGetMinorNumber(
        device: nvmlDevice_t,
        #[local] minorNumber: *mut u32,
    ) -> nvmlReturn_t;

    /// Tells the board part number of a device.
    #[call(id = 0x020D, fixed)]
    fn nvmlDeviceGetBoardPartNumber(
        device: nvmlDevice_t,
        #[out(bytes = length)] partNumber: *mut c_char,
        length: u32,
    ) -> nvmlReturn_t;

    /// Tells the InfoROM version of a device.
    #[call(id = 0x020E, fixed)]
    fn nvmlDeviceGetInforomVersion(
        device: nvmlDevice_t,
        object: nvmlInforomObject_t,
        #[out(bytes = length)] version: *mut c_char,
        length: u32,
    ) -> nvmlReturn_t;

    /// Tells the InfoROM image version of a device.
    #[call(id = 0x020F, fixed)]
    fn nvmlDeviceGetInforomImageVersion(
        device: nvmlDevice_t,
        #[out(bytes = length)] version: *mut c_char,
        length: u32,
    ) -> nvmlReturn_t;

    /// Tells the InfoROM configuration checksum of a device.
    #[call(id = 0x0210)]
    fn nvmlDeviceGetInforomConfigurationChecksum(
        device: nvmlDevice_t,
        #[out] checksum: *mut u32,
    ) -> nvmlReturn_t;

    /// Tells the last black box flush time of a device.
    #[call(id = 0x0211, unsupported)]
    fn nvmlDeviceGetLastBBXFlushTime(
        device: nvmlDevice_t,
        #[local] timestamp: *mut u64,
        #[local] durationUs: *mut u64,
    ) -> nvmlReturn_t;

    /// Tells the display mode of a device.
    #[call(id = 0x0212)]
    fn nvmlDeviceGetDisplayMode(
        device: nvmlDevice_t,
        #[out] display: *mut nvmlEnableState_t,
    ) -> nvmlReturn_t;

    /// Tells the display active of a device.
    #[call(id = 0x0213)]
    fn nvmlDeviceGetDisplayActive(
        device: nvmlDevice_t,
        #[out] isActive: *mut nvmlEnableState_t,
    ) -> nvmlReturn_t;

    /// Tells the persistence mode of a device.
    #[call(id = 0x0214)]
    fn nvmlDeviceGetPersistenceMode(
        device: nvmlDevice_t,
        #[out] mode: *mut nvmlEnableState_t,
    ) -> nvmlReturn_t;

    /// Tells the GPU operation mode of a device.
    #[call(id = 0x0215)]
    fn nvmlDeviceGetGpuOperationMode(
        device: nvmlDevice_t,
        #[out] current: *mut nvmlGpuOperationMode_t,
        #[out] pending: *mut nvmlGpuOperationMode_t,
    ) -> nvmlReturn_t;

    /// Tells the compute mode of a device.
    #[call(id = 0x0216)]
    fn nvmlDeviceGetComputeMode(
        device: nvmlDevice_t,
        #[out] mode: *mut nvmlComputeMode_t,
    ) -> nvmlReturn_t;

    /// Tells the CUDA compute capability of a device.
    #[call(id = 0x0217, fixed)]
    fn nvmlDeviceGetCudaComputeCapability(
        device: nvmlDevice_t,
        #[out] major: *mut i32,
        #[out] minor: *mut i32,
    ) -> nvmlReturn_t;

    /// Tells the board id of a device.
    #[call(id = 0x0218, fixed)]
    fn nvmlDeviceGetBoardId(device: nvmlDevice_t, #[out] boardId: *mut u32) -> nvmlReturn_t;

    /// Tells the multi GPU board of a device.
    #[call(id = 0x0219, fixed)]
    fn nvmlDeviceGetMultiGpuBoard(
        device: nvmlDevice_t,
        #[out] multiGpuBool: *mut u32,
    ) -> nvmlReturn_t;

    /// Tells the driver model of a device.
    #[call(id = 0x021A, unsupported, alias = "nvmlDeviceGetDriverModel")]
    fn nvmlDeviceGetDriverModel_v2(
        device: nvmlDevice_t,
        #[local] current: *mut nvmlDriverModel_t,
        #[local] pending: *mut nvmlDriverModel_t,
    ) -> nvmlReturn_t;

    /// Tells the VBIOS version of a device.
    #[call(id = 0x021B, fixed)]
    fn nvmlDeviceGetVbiosVersion(
        device: nvmlDevice_t,
        #[out(bytes = length)] version: *mut c_char,
        length: u32,
    ) -> nvmlReturn_t;

    /// Tells the bridge chip facts of a device.
    #[call(id = 0x021C, unsupported)]
    fn nvmlDeviceGetBridgeChipInfo(
        device: nvmlDevice_t,
        #[local] bridgeHierarchy: *mut nvmlBridgeChipHierarchy_t,
    ) -> nvmlReturn_t;

    /// Tells the API restriction of a device.
    #[call(id = 0x021D)]
    fn nvmlDeviceGetAPIRestriction(
        device: nvmlDevice_t,
        apiType: nvmlRestrictedAPI_t,
        #[out] isRestricted: *mut nvmlEnableState_t,
    ) -> nvmlReturn_t;

    /// Tells the number of GPU cores of a device.
    #[call(id = 0x021E, fixed)]
    fn nvmlDeviceGetNumGpuCores(device: nvmlDevice_t, #[out] numCores: *mut u32) -> nvmlReturn_t;

    /// Tells the memory bus width of a device.
    #[call(id = 0x021F, fixed)]
    fn nvmlDeviceGetMemoryBusWidth(device: nvmlDevice_t, #[out] busWidth: *mut u32)
    -> nvmlReturn_t;

    /// Tells the GSP firmware version of a device.
    #[call(id = 0x0220, fixed)]
    fn nvmlDeviceGetGspFirmwareVersion(
        device: nvmlDevice_t,
        #[out(bytes = 64)] version: *mut c_char,
    ) -> nvmlReturn_t;

    /// Tells the GSP firmware mode of a device.
    #[call(id = 0x0221, fixed)]
    fn nvmlDeviceGetGspFirmwareMode(
        device: nvmlDevice_t,
        #[out] isEnabled: *mut u32,
        #[out] defaultMode: *mut u32,
    ) -> nvmlReturn_t;

    /// Tells the architecture of a device.
    #[call(id = 0x0222, fixed)]
    fn nvmlDeviceGetArchitecture(
        device: nvmlDevice_t,
        #[out] arch: *mut nvmlDeviceArchitecture_t,
    ) -> nvmlReturn_t;

    /// Tells the platform facts of a device.
    #[call(id = 0x0223, fixed)]
    fn nvmlDeviceGetPlatformInfo(
        device: nvmlDevice_t,
        #[inout] platformInfo: *mut nvmlPlatformInfo_v2_t,
    ) -> nvmlReturn_t;

    /// Tells the virtualization mode of a device.
    #[call(id = 0x0224, fixed)]
    fn nvmlDeviceGetVirtualizationMode(
        device: nvmlDevice_t,
        #[out] pVirtualMode: *mut nvmlGpuVirtualizationMode_t,
    ) -> nvmlReturn_t;

    /// Tells the capabilities of a device.
    #[call(id = 0x0225, fixed)]
    fn nvmlDeviceGetCapabilities(
        device: nvmlDevice_t,
        #[inout] caps: *mut nvmlDeviceCapabilities_v1_t,
    ) -> nvmlReturn_t;

    /// Tells the addressing mode of a device.
    #[call(id = 0x0226, unsupported)]
    fn nvmlDeviceGetAddressingMode(
        device: nvmlDevice_t,
        #[local] mode: *mut nvmlDeviceAddressingMode_t,
    ) -> nvmlReturn_t;

    /// Tells the black box time data of a device.
    #[call(id = 0x0227, unsupported)]
    fn nvmlDeviceGetBBXTimeData_v1(
        device: nvmlDevice_t,
        #[local] timeData: *mut nvmlBBXTimeData_v1_t,
    ) -> nvmlReturn_t;

    /// Tells the handle by uuidv of a device.
    #[call(id = 0x0228, unsupported)]
    fn nvmlDeviceGetHandleByUUIDV(
        #[local] uuid: *const nvmlUUID_t,
        #[local] device: *mut nvmlDevice_t,
    ) -> nvmlReturn_t;

    /// Tells the hostname of a device.
    #[call(id = 0x0229, unsupported)]
    fn nvmlDeviceGetHostname_v1(
        device: nvmlDevice_t,
        #[local] hostname: *mut nvmlHostname_v1_t,
    ) -> nvmlReturn_t;

    /// Tells the PDI of a device.
    #[call(id = 0x022A, unsupported)]
    fn nvmlDeviceGetPdi(device: nvmlDevice_t, #[local] pdi: *mut nvmlPdi_t) -> nvmlReturn_t;
}
