//! What is neither of the other groups: accounting, confidential computing, performance metrics, PRM.

extern "C" {
    /// Tells the encoder sessions of a device.
    #[call(id = 0x0F01, unsupported)]
    fn nvmlDeviceGetEncoderSessions(
        device: nvmlDevice_t,
        #[local] sessionCount: *mut u32,
        #[local] sessionInfos: *mut nvmlEncoderSessionInfo_t,
    ) -> nvmlReturn_t;

    /// Tells the frame capture sessions of a device.
    #[call(id = 0x0F02, unsupported)]
    fn nvmlDeviceGetFBCSessions(
        device: nvmlDevice_t,
        #[local] sessionCount: *mut u32,
        #[local] sessionInfo: *mut nvmlFBCSessionInfo_t,
    ) -> nvmlReturn_t;

    /// Tells the confidential compute memory size facts of a device.
    #[call(id = 0x0F03)]
    fn nvmlDeviceGetConfComputeMemSizeInfo(
        device: nvmlDevice_t,
        #[out] memInfo: *mut nvmlConfComputeMemSizeInfo_t,
    ) -> nvmlReturn_t;

    /// Tells the confidential compute protected memory usage of a device.
    #[call(id = 0x0F04)]
    fn nvmlDeviceGetConfComputeProtectedMemoryUsage(
        device: nvmlDevice_t,
        #[out] memory: *mut nvmlMemory_t,
    ) -> nvmlReturn_t;

    /// Tells the confidential compute GPU certificate of a device.
    #[call(id = 0x0F05, unsupported)]
    fn nvmlDeviceGetConfComputeGpuCertificate(
        device: nvmlDevice_t,
        #[local] gpuCert: *mut nvmlConfComputeGpuCertificate_t,
    ) -> nvmlReturn_t;

    /// Tells the confidential compute GPU attestation report of a device.
    #[call(id = 0x0F06, unsupported)]
    fn nvmlDeviceGetConfComputeGpuAttestationReport(
        device: nvmlDevice_t,
        #[local] gpuAtstReport: *mut nvmlConfComputeGpuAttestationReport_t,
    ) -> nvmlReturn_t;

    /// Tells the accounting mode of a device.
    #[call(id = 0x0F07)]
    fn nvmlDeviceGetAccountingMode(
        device: nvmlDevice_t,
        #[out] mode: *mut nvmlEnableState_t,
    ) -> nvmlReturn_t;

    /// Tells the accounting figures of a device.
    #[call(id = 0x0F08, unsupported)]
    fn nvmlDeviceGetAccountingStats(
        device: nvmlDevice_t,
        pid: u32,
        #[local] stats: *mut nvmlAccountingStats_t,
    ) -> nvmlReturn_t;

    /// Tells the accounting process ids of a device.
    #[call(id = 0x0F09, unsupported)]
    fn nvmlDeviceGetAccountingPids(
        device: nvmlDevice_t,
        #[local] count: *mut u32,
        #[local] pids: *mut u32,
    ) -> nvmlReturn_t;

    /// Tells the accounting buffer size of a device.
    #[call(id = 0x0F0A, unsupported)]
    fn nvmlDeviceGetAccountingBufferSize(
        device: nvmlDevice_t,
        #[local] bufferSize: *mut u32,
    ) -> nvmlReturn_t;

    /// Tells the drain state of a device.
    #[call(id = 0x0F0B, unsupported)]
    fn nvmlDeviceQueryDrainState(
        #[local] pciInfo: *mut nvmlPciInfo_t,
        #[local] currentState: *mut nvmlEnableState_t,
    ) -> nvmlReturn_t;

    /// Metrics get, of a device.
    #[call(id = 0x0F0C, unsupported)]
    fn nvmlGpmMetricsGet(#[local] metricsGet: *mut nvmlGpmMetricsGet_t) -> nvmlReturn_t;

    /// Sample free, of a device.
    #[call(id = 0x0F0D, unsupported)]
    fn nvmlGpmSampleFree(gpmSample: nvmlGpmSample_t) -> nvmlReturn_t;

    /// Sample alloc, of a device.
    #[call(id = 0x0F0E, unsupported)]
    fn nvmlGpmSampleAlloc(#[local] gpmSample: *mut nvmlGpmSample_t) -> nvmlReturn_t;

    /// Sample get, of a device.
    #[call(id = 0x0F0F, unsupported)]
    fn nvmlGpmSampleGet(device: nvmlDevice_t, gpmSample: nvmlGpmSample_t) -> nvmlReturn_t;

    /// Tells the device support of a device.
    #[call(id = 0x0F10, unsupported)]
    fn nvmlGpmQueryDeviceSupport(
        device: nvmlDevice_t,
        #[local] gpmSupport: *mut nvmlGpmSupport_t,
    ) -> nvmlReturn_t;

    /// Tells the if streaming enabled of a device.
    #[call(id = 0x0F11, unsupported)]
    fn nvmlGpmQueryIfStreamingEnabled(
        device: nvmlDevice_t,
        #[local] state: *mut u32,
    ) -> nvmlReturn_t;

    /// Workload power profile get profiles info, of a device.
    #[call(id = 0x0F12, unsupported)]
    fn nvmlDeviceWorkloadPowerProfileGetProfilesInfo(
        device: nvmlDevice_t,
        #[local] profilesInfo: *mut nvmlWorkloadPowerProfileProfilesInfo_v1_t,
    ) -> nvmlReturn_t;

    /// Workload power profile get current profiles, of a device.
    #[call(id = 0x0F13, unsupported)]
    fn nvmlDeviceWorkloadPowerProfileGetCurrentProfiles(
        device: nvmlDevice_t,
        #[local] currentProfiles: *mut nvmlWorkloadPowerProfileCurrentProfiles_v1_t,
    ) -> nvmlReturn_t;

    /// Tells the accounting figures of a device.
    #[call(id = 0x0F14, unsupported)]
    fn nvmlDeviceGetAccountingStats_v2(
        device: nvmlDevice_t,
        #[local] stats: *mut nvmlAccountingStats_v2_t,
    ) -> nvmlReturn_t;

    /// Perf metrics get samples, of a device.
    #[call(id = 0x0F15, unsupported)]
    fn nvmlDevicePerfMetricsGetSamples_v1(
        device: nvmlDevice_t,
        #[local] samples: *mut nvmlPerfMetricsSamples_v1_t,
    ) -> nvmlReturn_t;

    /// Read prm counters, of a device.
    #[call(id = 0x0F16, unsupported)]
    fn nvmlDeviceReadPRMCounters_v1(
        device: nvmlDevice_t,
        #[local] info: *mut nvmlPRMCounterList_v1_t,
    ) -> nvmlReturn_t;
}
