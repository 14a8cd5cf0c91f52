//! What changes a device: nobody may, from another machine.

extern "C" {
    /// Sets the CPU affinity of a device.
    #[call(id = 0x0B01, denied)]
    fn nvmlDeviceSetCpuAffinity(device: nvmlDevice_t) -> nvmlReturn_t;

    /// Clears the CPU affinity of a device.
    #[call(id = 0x0B02, denied)]
    fn nvmlDeviceClearCpuAffinity(device: nvmlDevice_t) -> nvmlReturn_t;

    /// Validate inforom, of a device.
    #[call(id = 0x0B03, denied)]
    fn nvmlDeviceValidateInforom(device: nvmlDevice_t) -> nvmlReturn_t;

    /// Sets the clock offsets of a device.
    #[call(id = 0x0B04, denied)]
    fn nvmlDeviceSetClockOffsets(
        device: nvmlDevice_t,
        #[local] info: *mut nvmlClockOffset_v1_t,
    ) -> nvmlReturn_t;

    /// Sets the DRAM encryption mode of a device.
    #[call(id = 0x0B05, denied)]
    fn nvmlDeviceSetDramEncryptionMode(
        device: nvmlDevice_t,
        #[local] dramEncryption: *const nvmlDramEncryptionInfo_v1_t,
    ) -> nvmlReturn_t;

    /// Sets the confidential compute unprotected memory size of a device.
    #[call(id = 0x0B06, denied)]
    fn nvmlDeviceSetConfComputeUnprotectedMemSize(
        device: nvmlDevice_t,
        sizeKiB: u64,
    ) -> nvmlReturn_t;

    /// Sets the confidential compute GPUs ready state of a system.
    #[call(id = 0x0B07, denied)]
    fn nvmlSystemSetConfComputeGpusReadyState(isAcceptingWork: u32) -> nvmlReturn_t;

    /// Sets the confidential compute key rotation threshold facts of a system.
    #[call(id = 0x0B08, denied)]
    fn nvmlSystemSetConfComputeKeyRotationThresholdInfo(
        #[local] pKeyRotationThrInfo: *mut nvmlConfComputeSetKeyRotationThresholdInfo_t,
    ) -> nvmlReturn_t;

    /// Sets the persistence mode of a device.
    #[call(id = 0x0B09, denied)]
    fn nvmlDeviceSetPersistenceMode(device: nvmlDevice_t, mode: nvmlEnableState_t) -> nvmlReturn_t;

    /// Sets the compute mode of a device.
    #[call(id = 0x0B0A, denied)]
    fn nvmlDeviceSetComputeMode(device: nvmlDevice_t, mode: nvmlComputeMode_t) -> nvmlReturn_t;

    /// Sets the ECC mode of a device.
    #[call(id = 0x0B0B, denied)]
    fn nvmlDeviceSetEccMode(device: nvmlDevice_t, ecc: nvmlEnableState_t) -> nvmlReturn_t;

    /// Clears the ECC error counts of a device.
    #[call(id = 0x0B0C, denied)]
    fn nvmlDeviceClearEccErrorCounts(
        device: nvmlDevice_t,
        counterType: nvmlEccCounterType_t,
    ) -> nvmlReturn_t;

    /// Sets the driver model of a device.
    #[call(id = 0x0B0D, denied)]
    fn nvmlDeviceSetDriverModel(
        device: nvmlDevice_t,
        driverModel: nvmlDriverModel_t,
        flags: u32,
    ) -> nvmlReturn_t;

    /// Sets the GPU locked clocks of a device.
    #[call(id = 0x0B0E, denied)]
    fn nvmlDeviceSetGpuLockedClocks(
        device: nvmlDevice_t,
        minGpuClockMHz: u32,
        maxGpuClockMHz: u32,
    ) -> nvmlReturn_t;

    /// Resets the GPU locked clocks of a device.
    #[call(id = 0x0B0F, denied)]
    fn nvmlDeviceResetGpuLockedClocks(device: nvmlDevice_t) -> nvmlReturn_t;

    /// Sets the memory locked clocks of a device.
    #[call(id = 0x0B10, denied)]
    fn nvmlDeviceSetMemoryLockedClocks(
        device: nvmlDevice_t,
        minMemClockMHz: u32,
        maxMemClockMHz: u32,
    ) -> nvmlReturn_t;

    /// Resets the memory locked clocks of a device.
    #[call(id = 0x0B11, denied)]
    fn nvmlDeviceResetMemoryLockedClocks(device: nvmlDevice_t) -> nvmlReturn_t;

    /// Sets the applications clocks of a device.
    #[call(id = 0x0B12, denied)]
    fn nvmlDeviceSetApplicationsClocks(
        device: nvmlDevice_t,
        memClockMHz: u32,
        graphicsClockMHz: u32,
    ) -> nvmlReturn_t;

    /// Resets the applications clocks of a device.
    #[call(id = 0x0B13, denied)]
    fn nvmlDeviceResetApplicationsClocks(device: nvmlDevice_t) -> nvmlReturn_t;

    /// Sets the auto boosted clocks enabled of a device.
    #[call(id = 0x0B14, denied)]
    fn nvmlDeviceSetAutoBoostedClocksEnabled(
        device: nvmlDevice_t,
        enabled: nvmlEnableState_t,
    ) -> nvmlReturn_t;

    /// Sets the default auto boosted clocks enabled of a device.
    #[call(id = 0x0B15, denied)]
    fn nvmlDeviceSetDefaultAutoBoostedClocksEnabled(
        device: nvmlDevice_t,
        enabled: nvmlEnableState_t,
        flags: u32,
    ) -> nvmlReturn_t;

    /// Sets the default fan speed of a device.
    #[call(id = 0x0B16, denied)]
    fn nvmlDeviceSetDefaultFanSpeed_v2(device: nvmlDevice_t, fan: u32) -> nvmlReturn_t;

    /// Sets the fan control policy of a device.
    #[call(id = 0x0B17, denied)]
    fn nvmlDeviceSetFanControlPolicy(
        device: nvmlDevice_t,
        fan: u32,
        policy: nvmlFanControlPolicy_t,
    ) -> nvmlReturn_t;

    /// Sets the temperature threshold of a device.
    #[call(id = 0x0B18, denied)]
    fn nvmlDeviceSetTemperatureThreshold(
        device: nvmlDevice_t,
        thresholdType: nvmlTemperatureThresholds_t,
        #[local] temp: *mut i32,
    ) -> nvmlReturn_t;

    /// Sets the power management limit of a device.
    #[call(id = 0x0B19, denied)]
    fn nvmlDeviceSetPowerManagementLimit(device: nvmlDevice_t, limit: u32) -> nvmlReturn_t;

    /// Sets the GPU operation mode of a device.
    #[call(id = 0x0B1A, denied)]
    fn nvmlDeviceSetGpuOperationMode(
        device: nvmlDevice_t,
        mode: nvmlGpuOperationMode_t,
    ) -> nvmlReturn_t;

    /// Sets the API restriction of a device.
    #[call(id = 0x0B1B, denied)]
    fn nvmlDeviceSetAPIRestriction(
        device: nvmlDevice_t,
        apiType: nvmlRestrictedAPI_t,
        isRestricted: nvmlEnableState_t,
    ) -> nvmlReturn_t;

    /// Sets the fan speed of a device.
    #[call(id = 0x0B1C, denied)]
    fn nvmlDeviceSetFanSpeed_v2(device: nvmlDevice_t, fan: u32, speed: u32) -> nvmlReturn_t;

    /// Sets the GPC clock V/F offset of a device.
    #[call(id = 0x0B1D, denied)]
    fn nvmlDeviceSetGpcClkVfOffset(device: nvmlDevice_t, offset: i32) -> nvmlReturn_t;

    /// Sets the memory clock V/F offset of a device.
    #[call(id = 0x0B1E, denied)]
    fn nvmlDeviceSetMemClkVfOffset(device: nvmlDevice_t, offset: i32) -> nvmlReturn_t;

    /// Sets the accounting mode of a device.
    #[call(id = 0x0B1F, denied)]
    fn nvmlDeviceSetAccountingMode(device: nvmlDevice_t, mode: nvmlEnableState_t) -> nvmlReturn_t;

    /// Clears the accounting process ids of a device.
    #[call(id = 0x0B20, denied)]
    fn nvmlDeviceClearAccountingPids(device: nvmlDevice_t) -> nvmlReturn_t;

    /// Sets the power management limit of a device.
    #[call(id = 0x0B21, denied)]
    fn nvmlDeviceSetPowerManagementLimit_v2(
        device: nvmlDevice_t,
        #[local] powerValue: *mut nvmlPowerValue_v2_t,
    ) -> nvmlReturn_t;

    /// Resets the NVLink error counters of a device.
    #[call(id = 0x0B22, denied)]
    fn nvmlDeviceResetNvLinkErrorCounters(device: nvmlDevice_t, link: u32) -> nvmlReturn_t;

    /// Sets the NVLink utilization control of a device.
    #[call(id = 0x0B23, denied)]
    fn nvmlDeviceSetNvLinkUtilizationControl(
        device: nvmlDevice_t,
        link: u32,
        counter: u32,
        #[local] control: *mut nvmlNvLinkUtilizationControl_t,
        reset: u32,
    ) -> nvmlReturn_t;

    /// Freeze nvlink utilization counter, of a device.
    #[call(id = 0x0B24, denied)]
    fn nvmlDeviceFreezeNvLinkUtilizationCounter(
        device: nvmlDevice_t,
        link: u32,
        counter: u32,
        freeze: nvmlEnableState_t,
    ) -> nvmlReturn_t;

    /// Resets the NVLink utilization counter of a device.
    #[call(id = 0x0B25, denied)]
    fn nvmlDeviceResetNvLinkUtilizationCounter(
        device: nvmlDevice_t,
        link: u32,
        counter: u32,
    ) -> nvmlReturn_t;

    /// Sets the NVLink device low power threshold of a device.
    #[call(id = 0x0B26, denied)]
    fn nvmlDeviceSetNvLinkDeviceLowPowerThreshold(
        device: nvmlDevice_t,
        #[local] info: *mut nvmlNvLinkPowerThres_t,
    ) -> nvmlReturn_t;

    /// Sets the NVLink bandwidth mode of a system.
    #[call(id = 0x0B27, denied)]
    fn nvmlSystemSetNvlinkBwMode(nvlinkBwMode: u32) -> nvmlReturn_t;

    /// Sets the NVLink bandwidth mode of a device.
    #[call(id = 0x0B28, denied)]
    fn nvmlDeviceSetNvlinkBwMode(
        device: nvmlDevice_t,
        #[local] setBwMode: *mut nvmlNvlinkSetBwMode_v1_t,
    ) -> nvmlReturn_t;

    /// Modify drain state, of a device.
    #[call(id = 0x0B29, denied)]
    fn nvmlDeviceModifyDrainState(
        #[local] pciInfo: *mut nvmlPciInfo_t,
        newState: nvmlEnableState_t,
    ) -> nvmlReturn_t;

    /// Remove gpu, of a device.
    #[call(id = 0x0B2A, denied)]
    fn nvmlDeviceRemoveGpu_v2(
        #[local] pciInfo: *mut nvmlPciInfo_t,
        gpuState: nvmlDetachGpuState_t,
        linkState: nvmlPcieLinkState_t,
    ) -> nvmlReturn_t;

    /// Discover gpus, of a device.
    #[call(id = 0x0B2B, denied)]
    fn nvmlDeviceDiscoverGpus(#[local] pciInfo: *mut nvmlPciInfo_t) -> nvmlReturn_t;

    /// Clears the field values of a device.
    #[call(id = 0x0B2C, denied)]
    fn nvmlDeviceClearFieldValues(
        device: nvmlDevice_t,
        valuesCount: i32,
        #[local] values: *mut nvmlFieldValue_t,
    ) -> nvmlReturn_t;

    /// Sets the virtualization mode of a device.
    #[call(id = 0x0B2D, denied)]
    fn nvmlDeviceSetVirtualizationMode(
        device: nvmlDevice_t,
        virtualMode: nvmlGpuVirtualizationMode_t,
    ) -> nvmlReturn_t;

    /// Sets the streaming enabled of a device.
    #[call(id = 0x0B2E, denied)]
    fn nvmlGpmSetStreamingEnabled(device: nvmlDevice_t, state: u32) -> nvmlReturn_t;

    /// Workload power profile set requested profiles, of a device.
    #[call(id = 0x0B2F, denied)]
    fn nvmlDeviceWorkloadPowerProfileSetRequestedProfiles(
        device: nvmlDevice_t,
        #[local] requestedProfiles: *mut nvmlWorkloadPowerProfileRequestedProfiles_v1_t,
    ) -> nvmlReturn_t;

    /// Workload power profile clear requested profiles, of a device.
    #[call(id = 0x0B30, denied)]
    fn nvmlDeviceWorkloadPowerProfileClearRequestedProfiles(
        device: nvmlDevice_t,
        #[local] requestedProfiles: *mut nvmlWorkloadPowerProfileRequestedProfiles_v1_t,
    ) -> nvmlReturn_t;

    /// Power smoothing activate preset profile, of a device.
    #[call(id = 0x0B31, denied)]
    fn nvmlDevicePowerSmoothingActivatePresetProfile(
        device: nvmlDevice_t,
        #[local] profile: *mut nvmlPowerSmoothingProfile_v1_t,
    ) -> nvmlReturn_t;

    /// Power smoothing update preset profile param, of a device.
    #[call(id = 0x0B32, denied)]
    fn nvmlDevicePowerSmoothingUpdatePresetProfileParam(
        device: nvmlDevice_t,
        #[local] profile: *mut nvmlPowerSmoothingProfile_v1_t,
    ) -> nvmlReturn_t;

    /// Power smoothing set state, of a device.
    #[call(id = 0x0B33, denied)]
    fn nvmlDevicePowerSmoothingSetState(
        device: nvmlDevice_t,
        #[local] state: *mut nvmlPowerSmoothingState_v1_t,
    ) -> nvmlReturn_t;

    /// Remove gpu, of a device.
    #[call(id = 0x0B34, denied)]
    fn nvmlDeviceRemoveGpu(#[local] pciInfo: *mut nvmlPciInfo_t) -> nvmlReturn_t;

    /// Read write prm, of a device.
    #[call(id = 0x0B35, denied)]
    fn nvmlDeviceReadWritePRM_v1(
        device: nvmlDevice_t,
        #[local] info: *mut nvmlPRMTLV_v1_t,
    ) -> nvmlReturn_t;

    /// Sets the adaptive TGP mode of a device.
    #[call(id = 0x0B36, denied)]
    fn nvmlDeviceSetAdaptiveTgpMode_v1(
        device: nvmlDevice_t,
        mode: nvmlEnableState_t,
    ) -> nvmlReturn_t;

    /// Sets the hostname of a device.
    #[call(id = 0x0B37, denied)]
    fn nvmlDeviceSetHostname_v1(
        device: nvmlDevice_t,
        #[local] hostname: *mut nvmlHostname_v1_t,
    ) -> nvmlReturn_t;

    /// Sets the memory limits of a device.
    #[call(id = 0x0B38, denied)]
    fn nvmlDeviceSetMemoryLimits_v1(
        device: nvmlDevice_t,
        #[local] limits: *mut nvmlSetMemoryLimits_v1_t,
    ) -> nvmlReturn_t;

    /// Sets the NVLink bandwidth mode async of a device.
    #[call(id = 0x0B39, denied)]
    fn nvmlDeviceSetNvlinkBwModeAsync_v1(
        device: nvmlDevice_t,
        #[local] setBwModeAsync: *mut nvmlNvlinkSetBwModeAsync_v1_t,
    ) -> nvmlReturn_t;

    /// Sets the power mizer mode of a device.
    #[call(id = 0x0B3A, denied)]
    fn nvmlDeviceSetPowerMizerMode_v1(
        device: nvmlDevice_t,
        #[local] info: *mut nvmlDevicePowerMizerModes_v1_t,
    ) -> nvmlReturn_t;

    /// Sets the RUSD settings of a device.
    #[call(id = 0x0B3B, denied)]
    fn nvmlDeviceSetRusdSettings_v1(
        device: nvmlDevice_t,
        #[local] settings: *mut nvmlRusdSettings_v1_t,
    ) -> nvmlReturn_t;

    /// Workload power profile update profiles, of a device.
    #[call(id = 0x0B3C, denied)]
    fn nvmlDeviceWorkloadPowerProfileUpdateProfiles_v1(
        device: nvmlDevice_t,
        #[local] updateProfiles: *mut nvmlWorkloadPowerProfileUpdateProfiles_v1_t,
    ) -> nvmlReturn_t;

    /// Tells the context count of a set of events.
    #[call(id = 0x0B3D, unsupported)]
    fn nvmlEventSetGetContextCount_v1(
        set: nvmlEventSet_t,
        #[local] params: *mut nvmlEventSetGetContextCount_v1_t,
    ) -> nvmlReturn_t;

    /// Tells the context data of a set of events.
    #[call(id = 0x0B3E, unsupported)]
    fn nvmlEventSetGetContextData_v1(
        set: nvmlEventSet_t,
        #[local] params: *mut nvmlEventSetGetContextData_v1_t,
    ) -> nvmlReturn_t;

    /// Tells the context facts of a set of events.
    #[call(id = 0x0B3F, unsupported)]
    fn nvmlEventSetGetContextInfo_v1(
        set: nvmlEventSet_t,
        #[local] params: *mut nvmlEventSetGetContextInfo_v1_t,
    ) -> nvmlReturn_t;

    /// Tells the GPU operational event context legacy xid of a set of events.
    #[call(id = 0x0B40, unsupported)]
    fn nvmlEventSetGetGpuOperationalEventContextLegacyXid_v1(
        set: nvmlEventSet_t,
        #[local] params: *mut nvmlEventSetGetGpuOperationalEventContextLegacyXid_v1_t,
    ) -> nvmlReturn_t;

    /// Registers the GPU operational events of a set of events.
    #[call(id = 0x0B41, unsupported)]
    fn nvmlEventSetRegisterGpuOperationalEvents_v1(
        set: nvmlEventSet_t,
        #[local] config: *const nvmlGpuOperationalEventConfig_v1_t,
    ) -> nvmlReturn_t;

    /// Wait, of a set of events.
    #[call(id = 0x0B42, unsupported)]
    fn nvmlEventSetWait_v3(
        set: nvmlEventSet_t,
        #[local] params: *mut nvmlEventSetWait_v3_t,
    ) -> nvmlReturn_t;
}
