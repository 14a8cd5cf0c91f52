//! Virtual GPUs.

extern "C" {
    /// Tells the host virtual GPU mode of a device.
    #[call(id = 0x0D01, unsupported)]
    fn nvmlDeviceGetHostVgpuMode(
        device: nvmlDevice_t,
        #[local] pHostVgpuMode: *mut nvmlHostVgpuMode_t,
    ) -> nvmlReturn_t;

    /// Tells the virtual GPU heterogeneous mode of a device.
    #[call(id = 0x0D02, unsupported)]
    fn nvmlDeviceGetVgpuHeterogeneousMode(
        device: nvmlDevice_t,
        #[local] pHeterogeneousMode: *mut nvmlVgpuHeterogeneousMode_v1_t,
    ) -> nvmlReturn_t;

    /// Sets the virtual GPU heterogeneous mode of a device.
    #[call(id = 0x0D03, denied)]
    fn nvmlDeviceSetVgpuHeterogeneousMode(
        device: nvmlDevice_t,
        #[local] pHeterogeneousMode: *const nvmlVgpuHeterogeneousMode_v1_t,
    ) -> nvmlReturn_t;

    /// Tells the placement id of a virtual GPU.
    #[call(id = 0x0D04, unsupported)]
    fn nvmlVgpuInstanceGetPlacementId(
        vgpuInstance: nvmlVgpuInstance_t,
        #[local] pPlacement: *mut nvmlVgpuPlacementId_v1_t,
    ) -> nvmlReturn_t;

    /// Tells the virtual GPU type supported placements of a device.
    #[call(id = 0x0D05, unsupported)]
    fn nvmlDeviceGetVgpuTypeSupportedPlacements(
        device: nvmlDevice_t,
        vgpuTypeId: nvmlVgpuTypeId_t,
        #[local] pPlacementList: *mut nvmlVgpuPlacementList_v2_t,
    ) -> nvmlReturn_t;

    /// Tells the virtual GPU type creatable placements of a device.
    #[call(id = 0x0D06, unsupported)]
    fn nvmlDeviceGetVgpuTypeCreatablePlacements(
        device: nvmlDevice_t,
        vgpuTypeId: nvmlVgpuTypeId_t,
        #[local] pPlacementList: *mut nvmlVgpuPlacementList_v2_t,
    ) -> nvmlReturn_t;

    /// Tells the GSP heap size of a type of virtual GPU.
    #[call(id = 0x0D07, unsupported)]
    fn nvmlVgpuTypeGetGspHeapSize(
        vgpuTypeId: nvmlVgpuTypeId_t,
        #[local] gspHeapSize: *mut u64,
    ) -> nvmlReturn_t;

    /// Tells the frame buffer reservation of a type of virtual GPU.
    #[call(id = 0x0D08, unsupported)]
    fn nvmlVgpuTypeGetFbReservation(
        vgpuTypeId: nvmlVgpuTypeId_t,
        #[local] fbReservation: *mut u64,
    ) -> nvmlReturn_t;

    /// Tells the runtime state size of a virtual GPU.
    #[call(id = 0x0D09, unsupported)]
    fn nvmlVgpuInstanceGetRuntimeStateSize(
        vgpuInstance: nvmlVgpuInstance_t,
        #[local] pState: *mut nvmlVgpuRuntimeState_v1_t,
    ) -> nvmlReturn_t;

    /// Sets the virtual GPU capabilities of a device.
    #[call(id = 0x0D0A, denied)]
    fn nvmlDeviceSetVgpuCapabilities(
        device: nvmlDevice_t,
        capability: nvmlDeviceVgpuCapability_t,
        state: nvmlEnableState_t,
    ) -> nvmlReturn_t;

    /// Tells the grid licensable features of a device.
    #[call(
        id = 0x0D0B,
        unsupported,
        alias = "nvmlDeviceGetGridLicensableFeatures",
        alias = "nvmlDeviceGetGridLicensableFeatures_v2",
        alias = "nvmlDeviceGetGridLicensableFeatures_v3"
    )]
    fn nvmlDeviceGetGridLicensableFeatures_v4(
        device: nvmlDevice_t,
        #[local] pGridLicensableFeatures: *mut nvmlGridLicensableFeatures_t,
    ) -> nvmlReturn_t;

    /// Tells the virtual GPU driver capabilities of a system.
    #[call(id = 0x0D0C, unsupported)]
    fn nvmlGetVgpuDriverCapabilities(
        capability: nvmlVgpuDriverCapability_t,
        #[local] capResult: *mut u32,
    ) -> nvmlReturn_t;

    /// Tells the virtual GPU capabilities of a device.
    #[call(id = 0x0D0D, unsupported)]
    fn nvmlDeviceGetVgpuCapabilities(
        device: nvmlDevice_t,
        capability: nvmlDeviceVgpuCapability_t,
        #[local] capResult: *mut u32,
    ) -> nvmlReturn_t;

    /// Tells the supported virtual GPUs of a device.
    #[call(id = 0x0D0E, unsupported)]
    fn nvmlDeviceGetSupportedVgpus(
        device: nvmlDevice_t,
        #[local] vgpuCount: *mut u32,
        #[local] vgpuTypeIds: *mut nvmlVgpuTypeId_t,
    ) -> nvmlReturn_t;

    /// Tells the creatable virtual GPUs of a device.
    #[call(id = 0x0D0F, unsupported)]
    fn nvmlDeviceGetCreatableVgpus(
        device: nvmlDevice_t,
        #[local] vgpuCount: *mut u32,
        #[local] vgpuTypeIds: *mut nvmlVgpuTypeId_t,
    ) -> nvmlReturn_t;

    /// Tells the class of a type of virtual GPU.
    #[call(id = 0x0D10, unsupported)]
    fn nvmlVgpuTypeGetClass(
        vgpuTypeId: nvmlVgpuTypeId_t,
        #[local] vgpuTypeClass: *mut c_char,
        #[local] size: *mut u32,
    ) -> nvmlReturn_t;

    /// Tells the name of a type of virtual GPU.
    #[call(id = 0x0D11, unsupported)]
    fn nvmlVgpuTypeGetName(
        vgpuTypeId: nvmlVgpuTypeId_t,
        #[local] vgpuTypeName: *mut c_char,
        #[local] size: *mut u32,
    ) -> nvmlReturn_t;

    /// Tells the GPU instance profile id of a type of virtual GPU.
    #[call(id = 0x0D12, unsupported)]
    fn nvmlVgpuTypeGetGpuInstanceProfileId(
        vgpuTypeId: nvmlVgpuTypeId_t,
        #[local] gpuInstanceProfileId: *mut u32,
    ) -> nvmlReturn_t;

    /// Tells the device id of a type of virtual GPU.
    #[call(id = 0x0D13, unsupported)]
    fn nvmlVgpuTypeGetDeviceID(
        vgpuTypeId: nvmlVgpuTypeId_t,
        #[local] deviceID: *mut u64,
        #[local] subsystemID: *mut u64,
    ) -> nvmlReturn_t;

    /// Tells the framebuffer size of a type of virtual GPU.
    #[call(id = 0x0D14, unsupported)]
    fn nvmlVgpuTypeGetFramebufferSize(
        vgpuTypeId: nvmlVgpuTypeId_t,
        #[local] fbSize: *mut u64,
    ) -> nvmlReturn_t;

    /// Tells the number of display heads of a type of virtual GPU.
    #[call(id = 0x0D15, unsupported)]
    fn nvmlVgpuTypeGetNumDisplayHeads(
        vgpuTypeId: nvmlVgpuTypeId_t,
        #[local] numDisplayHeads: *mut u32,
    ) -> nvmlReturn_t;

    /// Tells the resolution of a type of virtual GPU.
    #[call(id = 0x0D16, unsupported)]
    fn nvmlVgpuTypeGetResolution(
        vgpuTypeId: nvmlVgpuTypeId_t,
        displayIndex: u32,
        #[local] xdim: *mut u32,
        #[local] ydim: *mut u32,
    ) -> nvmlReturn_t;

    /// Tells the license of a type of virtual GPU.
    #[call(id = 0x0D17, unsupported)]
    fn nvmlVgpuTypeGetLicense(
        vgpuTypeId: nvmlVgpuTypeId_t,
        #[local] vgpuTypeLicenseString: *mut c_char,
        size: u32,
    ) -> nvmlReturn_t;

    /// Tells the frame rate limit of a type of virtual GPU.
    #[call(id = 0x0D18, unsupported)]
    fn nvmlVgpuTypeGetFrameRateLimit(
        vgpuTypeId: nvmlVgpuTypeId_t,
        #[local] frameRateLimit: *mut u32,
    ) -> nvmlReturn_t;

    /// Tells the highest instances of a type of virtual GPU.
    #[call(id = 0x0D19, unsupported)]
    fn nvmlVgpuTypeGetMaxInstances(
        device: nvmlDevice_t,
        vgpuTypeId: nvmlVgpuTypeId_t,
        #[local] vgpuInstanceCount: *mut u32,
    ) -> nvmlReturn_t;

    /// Tells the highest instances per VM of a type of virtual GPU.
    #[call(id = 0x0D1A, unsupported)]
    fn nvmlVgpuTypeGetMaxInstancesPerVm(
        vgpuTypeId: nvmlVgpuTypeId_t,
        #[local] vgpuInstanceCountPerVm: *mut u32,
    ) -> nvmlReturn_t;

    /// Tells the BAR1 facts of a type of virtual GPU.
    #[call(id = 0x0D1B, unsupported)]
    fn nvmlVgpuTypeGetBAR1Info(
        vgpuTypeId: nvmlVgpuTypeId_t,
        #[local] bar1Info: *mut nvmlVgpuTypeBar1Info_v1_t,
    ) -> nvmlReturn_t;

    /// Tells the active virtual GPUs of a device.
    #[call(id = 0x0D1C, unsupported)]
    fn nvmlDeviceGetActiveVgpus(
        device: nvmlDevice_t,
        #[local] vgpuCount: *mut u32,
        #[local] vgpuInstances: *mut nvmlVgpuInstance_t,
    ) -> nvmlReturn_t;

    /// Tells the VM id of a virtual GPU.
    #[call(id = 0x0D1D, unsupported)]
    fn nvmlVgpuInstanceGetVmID(
        vgpuInstance: nvmlVgpuInstance_t,
        #[local] vmId: *mut c_char,
        size: u32,
        #[local] vmIdType: *mut nvmlVgpuVmIdType_t,
    ) -> nvmlReturn_t;

    /// Tells the UUID of a virtual GPU.
    #[call(id = 0x0D1E, unsupported)]
    fn nvmlVgpuInstanceGetUUID(
        vgpuInstance: nvmlVgpuInstance_t,
        #[local] uuid: *mut c_char,
        size: u32,
    ) -> nvmlReturn_t;

    /// Tells the VM driver version of a virtual GPU.
    #[call(id = 0x0D1F, unsupported)]
    fn nvmlVgpuInstanceGetVmDriverVersion(
        vgpuInstance: nvmlVgpuInstance_t,
        #[local] version: *mut c_char,
        length: u32,
    ) -> nvmlReturn_t;

    /// Tells the frame buffer usage of a virtual GPU.
    #[call(id = 0x0D20, unsupported)]
    fn nvmlVgpuInstanceGetFbUsage(
        vgpuInstance: nvmlVgpuInstance_t,
        #[local] fbUsage: *mut u64,
    ) -> nvmlReturn_t;

    /// Tells the license status of a virtual GPU.
    #[call(id = 0x0D21, unsupported)]
    fn nvmlVgpuInstanceGetLicenseStatus(
        vgpuInstance: nvmlVgpuInstance_t,
        #[local] licensed: *mut u32,
    ) -> nvmlReturn_t;

    /// Tells the type of a virtual GPU.
    #[call(id = 0x0D22, unsupported)]
    fn nvmlVgpuInstanceGetType(
        vgpuInstance: nvmlVgpuInstance_t,
        #[local] vgpuTypeId: *mut nvmlVgpuTypeId_t,
    ) -> nvmlReturn_t;

    /// Tells the frame rate limit of a virtual GPU.
    #[call(id = 0x0D23, unsupported)]
    fn nvmlVgpuInstanceGetFrameRateLimit(
        vgpuInstance: nvmlVgpuInstance_t,
        #[local] frameRateLimit: *mut u32,
    ) -> nvmlReturn_t;

    /// Tells the ECC mode of a virtual GPU.
    #[call(id = 0x0D24, unsupported)]
    fn nvmlVgpuInstanceGetEccMode(
        vgpuInstance: nvmlVgpuInstance_t,
        #[local] eccMode: *mut nvmlEnableState_t,
    ) -> nvmlReturn_t;

    /// Tells the encoder capacity of a virtual GPU.
    #[call(id = 0x0D25, unsupported)]
    fn nvmlVgpuInstanceGetEncoderCapacity(
        vgpuInstance: nvmlVgpuInstance_t,
        #[local] encoderCapacity: *mut u32,
    ) -> nvmlReturn_t;

    /// Sets the encoder capacity of a virtual GPU.
    #[call(id = 0x0D26, denied)]
    fn nvmlVgpuInstanceSetEncoderCapacity(
        vgpuInstance: nvmlVgpuInstance_t,
        encoderCapacity: u32,
    ) -> nvmlReturn_t;

    /// Tells the encoder figures of a virtual GPU.
    #[call(id = 0x0D27, unsupported)]
    fn nvmlVgpuInstanceGetEncoderStats(
        vgpuInstance: nvmlVgpuInstance_t,
        #[local] sessionCount: *mut u32,
        #[local] averageFps: *mut u32,
        #[local] averageLatency: *mut u32,
    ) -> nvmlReturn_t;

    /// Tells the encoder sessions of a virtual GPU.
    #[call(id = 0x0D28, unsupported)]
    fn nvmlVgpuInstanceGetEncoderSessions(
        vgpuInstance: nvmlVgpuInstance_t,
        #[local] sessionCount: *mut u32,
        #[local] sessionInfo: *mut nvmlEncoderSessionInfo_t,
    ) -> nvmlReturn_t;

    /// Tells the frame capture figures of a virtual GPU.
    #[call(id = 0x0D29, unsupported)]
    fn nvmlVgpuInstanceGetFBCStats(
        vgpuInstance: nvmlVgpuInstance_t,
        #[local] fbcStats: *mut nvmlFBCStats_t,
    ) -> nvmlReturn_t;

    /// Tells the frame capture sessions of a virtual GPU.
    #[call(id = 0x0D2A, unsupported)]
    fn nvmlVgpuInstanceGetFBCSessions(
        vgpuInstance: nvmlVgpuInstance_t,
        #[local] sessionCount: *mut u32,
        #[local] sessionInfo: *mut nvmlFBCSessionInfo_t,
    ) -> nvmlReturn_t;

    /// Tells the GPU instance id of a virtual GPU.
    #[call(id = 0x0D2B, unsupported)]
    fn nvmlVgpuInstanceGetGpuInstanceId(
        vgpuInstance: nvmlVgpuInstance_t,
        #[local] gpuInstanceId: *mut u32,
    ) -> nvmlReturn_t;

    /// Tells the GPU PCI id of a virtual GPU.
    #[call(id = 0x0D2C, unsupported)]
    fn nvmlVgpuInstanceGetGpuPciId(
        vgpuInstance: nvmlVgpuInstance_t,
        #[local] vgpuPciId: *mut c_char,
        #[local] length: *mut u32,
    ) -> nvmlReturn_t;

    /// Tells the capabilities of a type of virtual GPU.
    #[call(id = 0x0D2D, unsupported)]
    fn nvmlVgpuTypeGetCapabilities(
        vgpuTypeId: nvmlVgpuTypeId_t,
        capability: nvmlVgpuCapability_t,
        #[local] capResult: *mut u32,
    ) -> nvmlReturn_t;

    /// Tells the mediated device UUID of a virtual GPU.
    #[call(id = 0x0D2E, unsupported)]
    fn nvmlVgpuInstanceGetMdevUUID(
        vgpuInstance: nvmlVgpuInstance_t,
        #[local] mdevUuid: *mut c_char,
        size: u32,
    ) -> nvmlReturn_t;

    /// Tells the metadata of a virtual GPU.
    #[call(id = 0x0D2F, unsupported)]
    fn nvmlVgpuInstanceGetMetadata(
        vgpuInstance: nvmlVgpuInstance_t,
        #[local] vgpuMetadata: *mut nvmlVgpuMetadata_t,
        #[local] bufferSize: *mut u32,
    ) -> nvmlReturn_t;

    /// Tells the virtual GPU metadata of a device.
    #[call(id = 0x0D30, unsupported)]
    fn nvmlDeviceGetVgpuMetadata(
        device: nvmlDevice_t,
        #[local] pgpuMetadata: *mut nvmlVgpuPgpuMetadata_t,
        #[local] bufferSize: *mut u32,
    ) -> nvmlReturn_t;

    /// Tells the virtual GPU compatibility of a system.
    #[call(id = 0x0D31, unsupported)]
    fn nvmlGetVgpuCompatibility(
        #[local] vgpuMetadata: *mut nvmlVgpuMetadata_t,
        #[local] pgpuMetadata: *mut nvmlVgpuPgpuMetadata_t,
        #[local] compatibilityInfo: *mut nvmlVgpuPgpuCompatibility_t,
    ) -> nvmlReturn_t;

    /// Tells the pgpu metadata string of a device.
    #[call(id = 0x0D32, unsupported)]
    fn nvmlDeviceGetPgpuMetadataString(
        device: nvmlDevice_t,
        #[local] pgpuMetadata: *mut c_char,
        #[local] bufferSize: *mut u32,
    ) -> nvmlReturn_t;

    /// Tells the virtual GPU scheduler log of a device.
    #[call(id = 0x0D33, unsupported)]
    fn nvmlDeviceGetVgpuSchedulerLog(
        device: nvmlDevice_t,
        #[local] pSchedulerLog: *mut nvmlVgpuSchedulerLog_t,
    ) -> nvmlReturn_t;

    /// Tells the virtual GPU scheduler state of a device.
    #[call(id = 0x0D34, unsupported)]
    fn nvmlDeviceGetVgpuSchedulerState(
        device: nvmlDevice_t,
        #[local] pSchedulerState: *mut nvmlVgpuSchedulerGetState_t,
    ) -> nvmlReturn_t;

    /// Tells the virtual GPU scheduler capabilities of a device.
    #[call(id = 0x0D35, unsupported)]
    fn nvmlDeviceGetVgpuSchedulerCapabilities(
        device: nvmlDevice_t,
        #[local] pCapabilities: *mut nvmlVgpuSchedulerCapabilities_t,
    ) -> nvmlReturn_t;

    /// Sets the virtual GPU scheduler state of a device.
    #[call(id = 0x0D36, denied)]
    fn nvmlDeviceSetVgpuSchedulerState(
        device: nvmlDevice_t,
        #[local] pSchedulerState: *mut nvmlVgpuSchedulerSetState_t,
    ) -> nvmlReturn_t;

    /// Tells the virtual GPU version of a system.
    #[call(id = 0x0D37, unsupported)]
    fn nvmlGetVgpuVersion(
        #[local] supported: *mut nvmlVgpuVersion_t,
        #[local] current: *mut nvmlVgpuVersion_t,
    ) -> nvmlReturn_t;

    /// Sets the virtual GPU version of a system.
    #[call(id = 0x0D38, denied)]
    fn nvmlSetVgpuVersion(#[local] vgpuVersion: *mut nvmlVgpuVersion_t) -> nvmlReturn_t;

    /// Tells the virtual GPU utilization of a device.
    #[call(id = 0x0D39, unsupported)]
    fn nvmlDeviceGetVgpuUtilization(
        device: nvmlDevice_t,
        lastSeenTimeStamp: u64,
        #[local] sampleValType: *mut nvmlValueType_t,
        #[local] vgpuInstanceSamplesCount: *mut u32,
        #[local] utilizationSamples: *mut nvmlVgpuInstanceUtilizationSample_t,
    ) -> nvmlReturn_t;

    /// Tells the virtual GPU instances utilization facts of a device.
    #[call(id = 0x0D3A, unsupported)]
    fn nvmlDeviceGetVgpuInstancesUtilizationInfo(
        device: nvmlDevice_t,
        #[local] vgpuUtilInfo: *mut nvmlVgpuInstancesUtilizationInfo_v1_t,
    ) -> nvmlReturn_t;

    /// Tells the virtual GPU process utilization of a device.
    #[call(id = 0x0D3B, unsupported)]
    fn nvmlDeviceGetVgpuProcessUtilization(
        device: nvmlDevice_t,
        lastSeenTimeStamp: u64,
        #[local] vgpuProcessSamplesCount: *mut u32,
        #[local] utilizationSamples: *mut nvmlVgpuProcessUtilizationSample_t,
    ) -> nvmlReturn_t;

    /// Tells the virtual GPU processes utilization facts of a device.
    #[call(id = 0x0D3C, unsupported)]
    fn nvmlDeviceGetVgpuProcessesUtilizationInfo(
        device: nvmlDevice_t,
        #[local] vgpuProcUtilInfo: *mut nvmlVgpuProcessesUtilizationInfo_v1_t,
    ) -> nvmlReturn_t;

    /// Tells the accounting mode of a virtual GPU.
    #[call(id = 0x0D3D, unsupported)]
    fn nvmlVgpuInstanceGetAccountingMode(
        vgpuInstance: nvmlVgpuInstance_t,
        #[local] mode: *mut nvmlEnableState_t,
    ) -> nvmlReturn_t;

    /// Tells the accounting process ids of a virtual GPU.
    #[call(id = 0x0D3E, unsupported)]
    fn nvmlVgpuInstanceGetAccountingPids(
        vgpuInstance: nvmlVgpuInstance_t,
        #[local] count: *mut u32,
        #[local] pids: *mut u32,
    ) -> nvmlReturn_t;

    /// Tells the accounting figures of a virtual GPU.
    #[call(id = 0x0D3F, unsupported)]
    fn nvmlVgpuInstanceGetAccountingStats(
        vgpuInstance: nvmlVgpuInstance_t,
        pid: u32,
        #[local] stats: *mut nvmlAccountingStats_t,
    ) -> nvmlReturn_t;

    /// Clears the accounting process ids of a virtual GPU.
    #[call(id = 0x0D40, denied)]
    fn nvmlVgpuInstanceClearAccountingPids(vgpuInstance: nvmlVgpuInstance_t) -> nvmlReturn_t;

    /// Tells the license facts of a virtual GPU.
    #[call(id = 0x0D41, unsupported, alias = "nvmlVgpuInstanceGetLicenseInfo")]
    fn nvmlVgpuInstanceGetLicenseInfo_v2(
        vgpuInstance: nvmlVgpuInstance_t,
        #[local] licenseInfo: *mut nvmlVgpuLicenseInfo_t,
    ) -> nvmlReturn_t;

    /// Tells the virtual GPU scheduler log of a device.
    #[call(id = 0x0D42, unsupported)]
    fn nvmlDeviceGetVgpuSchedulerLog_v2(
        device: nvmlDevice_t,
        #[local] vgpu_sched_log_info_v2: *mut nvmlVgpuSchedulerLogInfo_v2_t,
    ) -> nvmlReturn_t;

    /// Tells the virtual GPU scheduler state of a device.
    #[call(id = 0x0D43, unsupported)]
    fn nvmlDeviceGetVgpuSchedulerState_v2(
        device: nvmlDevice_t,
        #[local] vgpu_sched_state_info_v2: *mut nvmlVgpuSchedulerState_v2_t,
    ) -> nvmlReturn_t;

    /// Sets the virtual GPU scheduler state of a device.
    #[call(id = 0x0D44, denied)]
    fn nvmlDeviceSetVgpuSchedulerState_v2(
        device: nvmlDevice_t,
        #[local] sched_state_v2: *mut nvmlVgpuSchedulerState_v2_t,
    ) -> nvmlReturn_t;

    /// Vgpu force gsp unload, of a device.
    #[call(id = 0x0D45, denied)]
    fn nvmlDeviceVgpuForceGspUnload(device: nvmlDevice_t) -> nvmlReturn_t;

    /// Tells the active virtual GPUs of a GPU instance.
    #[call(id = 0x0D46, unsupported)]
    fn nvmlGpuInstanceGetActiveVgpus(
        gpuInstance: nvmlGpuInstance_t,
        #[local] vgpu_instance_info: *mut nvmlActiveVgpuInstanceInfo_t,
    ) -> nvmlReturn_t;

    /// Tells the creatable virtual GPUs of a GPU instance.
    #[call(id = 0x0D47, unsupported)]
    fn nvmlGpuInstanceGetCreatableVgpus(
        gpuInstance: nvmlGpuInstance_t,
        #[local] vgpus: *mut nvmlVgpuTypeIdInfo_t,
    ) -> nvmlReturn_t;

    /// Tells the virtual GPU heterogeneous mode of a GPU instance.
    #[call(id = 0x0D48, unsupported)]
    fn nvmlGpuInstanceGetVgpuHeterogeneousMode(
        gpuInstance: nvmlGpuInstance_t,
        #[local] vgpuHeterogeneousMode: *mut nvmlVgpuHeterogeneousMode_t,
    ) -> nvmlReturn_t;

    /// Tells the virtual GPU scheduler log of a GPU instance.
    #[call(id = 0x0D49, unsupported)]
    fn nvmlGpuInstanceGetVgpuSchedulerLog(
        gpuInstance: nvmlGpuInstance_t,
        #[local] vgpu_sched_log_info: *mut nvmlVgpuSchedulerLog_t,
    ) -> nvmlReturn_t;

    /// Tells the virtual GPU scheduler log of a GPU instance.
    #[call(id = 0x0D4A, unsupported)]
    fn nvmlGpuInstanceGetVgpuSchedulerLog_v2(
        gpuInstance: nvmlGpuInstance_t,
        #[local] vgpu_sched_log_info_v2: *mut nvmlVgpuSchedulerLogInfo_v2_t,
    ) -> nvmlReturn_t;

    /// Tells the virtual GPU scheduler state of a GPU instance.
    #[call(id = 0x0D4B, unsupported)]
    fn nvmlGpuInstanceGetVgpuSchedulerState(
        gpuInstance: nvmlGpuInstance_t,
        #[local] vgpu_sched_state_info: *mut nvmlVgpuSchedulerState_t,
    ) -> nvmlReturn_t;

    /// Tells the virtual GPU scheduler state of a GPU instance.
    #[call(id = 0x0D4C, unsupported)]
    fn nvmlGpuInstanceGetVgpuSchedulerState_v2(
        gpuInstance: nvmlGpuInstance_t,
        #[local] vgpu_sched_state_info_v2: *mut nvmlVgpuSchedulerState_v2_t,
    ) -> nvmlReturn_t;

    /// Tells the virtual GPU type creatable placements of a GPU instance.
    #[call(id = 0x0D4D, unsupported)]
    fn nvmlGpuInstanceGetVgpuTypeCreatablePlacements(
        gpuInstance: nvmlGpuInstance_t,
        #[local] vgpu_placements: *mut nvmlVgpuCreatablePlacementInfo_t,
    ) -> nvmlReturn_t;

    /// Sets the virtual GPU heterogeneous mode of a GPU instance.
    #[call(id = 0x0D4E, denied)]
    fn nvmlGpuInstanceSetVgpuHeterogeneousMode(
        gpuInstance: nvmlGpuInstance_t,
        #[local] vgpuHeterogeneousMode: *mut nvmlVgpuHeterogeneousMode_t,
    ) -> nvmlReturn_t;

    /// Sets the virtual GPU scheduler state of a GPU instance.
    #[call(id = 0x0D4F, denied)]
    fn nvmlGpuInstanceSetVgpuSchedulerState(
        gpuInstance: nvmlGpuInstance_t,
        #[local] sched_state: *mut nvmlVgpuSchedulerState_t,
    ) -> nvmlReturn_t;

    /// Sets the virtual GPU scheduler state of a GPU instance.
    #[call(id = 0x0D50, denied)]
    fn nvmlGpuInstanceSetVgpuSchedulerState_v2(
        gpuInstance: nvmlGpuInstance_t,
        #[local] sched_state_v2: *mut nvmlVgpuSchedulerState_v2_t,
    ) -> nvmlReturn_t;

    /// Tells the highest instances per GPU instance of a type of virtual GPU.
    #[call(id = 0x0D51, unsupported)]
    fn nvmlVgpuTypeGetMaxInstancesPerGpuInstance(
        #[local] max_instances: *mut nvmlVgpuTypeMaxInstance_t,
    ) -> nvmlReturn_t;
}
