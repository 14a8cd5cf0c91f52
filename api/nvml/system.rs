//! The start of the library and what it says of the system.

extern "C" {
    /// Begins the use of the library; may be repeated, each with its end.
    #[call(id = 0x0101, local, alias = "nvmlInit")]
    fn nvmlInit_v2() -> nvmlReturn_t;

    /// As `nvmlInit_v2`, with a word on what may be missing.
    #[call(id = 0x0102, local)]
    fn nvmlInitWithFlags(flags: u32) -> nvmlReturn_t;

    /// Ends one use of the library.
    #[call(id = 0x0103, local)]
    fn nvmlShutdown() -> nvmlReturn_t;

    /// The version of the driver, of the oldest server.
    #[call(id = 0x0104, local)]
    fn nvmlSystemGetDriverVersion(#[local] version: *mut c_char, length: u32) -> nvmlReturn_t;

    /// The version of the library, of the oldest server.
    #[call(id = 0x0105, local)]
    fn nvmlSystemGetNVMLVersion(#[local] version: *mut c_char, length: u32) -> nvmlReturn_t;

    /// The CUDA version of the driver, of the oldest server.
    #[call(id = 0x0106, local)]
    fn nvmlSystemGetCudaDriverVersion(#[local] cudaDriverVersion: *mut i32) -> nvmlReturn_t;

    /// As `nvmlSystemGetCudaDriverVersion`; tells failures.
    #[call(id = 0x0107, local)]
    fn nvmlSystemGetCudaDriverVersion_v2(#[local] cudaDriverVersion: *mut i32) -> nvmlReturn_t;

    /// The name of a process of this machine.
    #[call(id = 0x0108, local)]
    fn nvmlSystemGetProcessName(pid: u32, #[local] name: *mut c_char, length: u32) -> nvmlReturn_t;

    /// Tells the HIC version of a system.
    #[call(id = 0x0109, unsupported)]
    fn nvmlSystemGetHicVersion(
        #[local] hwbcCount: *mut u32,
        #[local] hwbcEntries: *mut nvmlHwbcEntry_t,
    ) -> nvmlReturn_t;

    /// Tells the topology GPU set of a system.
    #[call(id = 0x010A, unsupported)]
    fn nvmlSystemGetTopologyGpuSet(
        cpuNumber: u32,
        #[local] count: *mut u32,
        #[local] deviceArray: *mut nvmlDevice_t,
    ) -> nvmlReturn_t;

    /// Tells the driver branch of a system.
    #[call(id = 0x010B, unsupported)]
    fn nvmlSystemGetDriverBranch(
        #[local] branchInfo: *mut nvmlSystemDriverBranchInfo_v1_t,
        length: u32,
    ) -> nvmlReturn_t;

    /// Tells the confidential compute capabilities of a system.
    #[call(id = 0x010C, unsupported)]
    fn nvmlSystemGetConfComputeCapabilities(
        #[local] capabilities: *mut nvmlConfComputeSystemCaps_t,
    ) -> nvmlReturn_t;

    /// Tells the confidential compute state of a system.
    #[call(id = 0x010D, unsupported)]
    fn nvmlSystemGetConfComputeState(
        #[local] state: *mut nvmlConfComputeSystemState_t,
    ) -> nvmlReturn_t;

    /// Tells the confidential compute GPUs ready state of a system.
    #[call(id = 0x010E, unsupported)]
    fn nvmlSystemGetConfComputeGpusReadyState(#[local] isAcceptingWork: *mut u32) -> nvmlReturn_t;

    /// Tells the confidential compute key rotation threshold facts of a system.
    #[call(id = 0x010F, unsupported)]
    fn nvmlSystemGetConfComputeKeyRotationThresholdInfo(
        #[local] pKeyRotationThrInfo: *mut nvmlConfComputeGetKeyRotationThresholdInfo_t,
    ) -> nvmlReturn_t;

    /// Tells the confidential compute settings of a system.
    #[call(id = 0x0110, unsupported)]
    fn nvmlSystemGetConfComputeSettings(
        #[local] settings: *mut nvmlSystemConfComputeSettings_v1_t,
    ) -> nvmlReturn_t;

    /// Number of devices that the driver leaves out; none is told.
    #[call(id = 0x0111, local)]
    fn nvmlGetExcludedDeviceCount(#[local] deviceCount: *mut u32) -> nvmlReturn_t;

    /// Tells the excluded device facts by index of a system.
    #[call(id = 0x0112, unsupported)]
    fn nvmlGetExcludedDeviceInfoByIndex(
        index: u32,
        #[local] info: *mut nvmlExcludedDeviceInfo_t,
    ) -> nvmlReturn_t;

    /// Tells the CPER of a system.
    #[call(id = 0x0113, unsupported)]
    fn nvmlSystemGetCPER_v1(#[local] cper: *mut nvmlGetCPER_v1_t) -> nvmlReturn_t;
}
