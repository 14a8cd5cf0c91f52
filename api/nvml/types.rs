//! Types of NVML: handles, enumerations as numbers, and the structures of calls that are answered. Structures of calls that are
//! refused are named only: nobody looks into them.

type nvmlReturn_t = i32;
type nvmlAffinityScope_t = u32;
type nvmlBrandType_t = u32;
type nvmlBusType_t = u32;
type nvmlClockId_t = u32;
type nvmlClockType_t = u32;
type nvmlComputeMode_t = u32;
type nvmlCoolerControl_t = u32;
type nvmlCoolerTarget_t = u32;
type nvmlDetachGpuState_t = u32;
type nvmlDeviceArchitecture_t = u32;
type nvmlDeviceVgpuCapability_t = u32;
type nvmlDriverModel_t = u32;
type nvmlEccCounterType_t = u32;
type nvmlEnableState_t = u32;
type nvmlEncoderType_t = u32;
type nvmlFanControlPolicy_t = u32;
type nvmlGpuFabricState_t = u8;
type nvmlGpuOperationMode_t = u32;
type nvmlGpuP2PCapsIndex_t = u32;
type nvmlGpuP2PStatus_t = u32;
type nvmlGpuTopologyLevel_t = u32;
type nvmlGpuVirtualizationMode_t = u32;
type nvmlHostVgpuMode_t = u32;
type nvmlInforomObject_t = u32;
type nvmlIntNvLinkDeviceType_t = u32;
type nvmlLedColor_t = u32;
type nvmlMemoryErrorType_t = u32;
type nvmlMemoryLocation_t = u32;
type nvmlNvLinkCapability_t = u32;
type nvmlNvLinkErrorCounter_t = u32;
type nvmlPageRetirementCause_t = u32;
type nvmlPcieLinkState_t = u32;
type nvmlPcieUtilCounter_t = u32;
type nvmlPerfPolicyType_t = u32;
type nvmlPowerSource_t = u32;
type nvmlPstates_t = u32;
type nvmlRestrictedAPI_t = u32;
type nvmlSamplingType_t = u32;
type nvmlTemperatureSensors_t = u32;
type nvmlTemperatureThresholds_t = u32;
type nvmlValueType_t = u32;
type nvmlVgpuCapability_t = u32;
type nvmlVgpuDriverCapability_t = u32;
type nvmlVgpuInstance_t = u32;
type nvmlVgpuTypeId_t = u32;
type nvmlVgpuVmIdType_t = u32;

extern "C" {
    #[handle(tag = 1)]
    type nvmlDevice_t;
    #[handle(tag = 2)]
    type nvmlComputeInstance_t;
    #[handle(tag = 3)]
    type nvmlEventSet_t;
    #[handle(tag = 4)]
    type nvmlGpmSample_t;
    #[handle(tag = 5)]
    type nvmlGpuInstance_t;
    #[handle(tag = 6)]
    type nvmlUnit_t;
}

pub struct nvmlBAR1Memory_t {
    pub bar1Total: u64,
    pub bar1Free: u64,
    pub bar1Used: u64,
}

pub struct nvmlC2cModeInfo_v1_t {
    pub isC2cEnabled: u32,
}

pub struct nvmlClockOffset_v1_t {
    pub version: u32,
    pub r#type: nvmlClockType_t,
    pub pstate: nvmlPstates_t,
    pub clockOffsetMHz: i32,
    pub minClockOffsetMHz: i32,
    pub maxClockOffsetMHz: i32,
}

pub struct nvmlConfComputeMemSizeInfo_t {
    pub protectedMemSizeKib: u64,
    pub unprotectedMemSizeKib: u64,
}

pub struct nvmlCoolerInfo_v1_t {
    pub version: u32,
    pub index: u32,
    pub signalType: nvmlCoolerControl_t,
    pub target: nvmlCoolerTarget_t,
}

pub struct nvmlDeviceAttributes_t {
    pub multiprocessorCount: u32,
    pub sharedCopyEngineCount: u32,
    pub sharedDecoderCount: u32,
    pub sharedEncoderCount: u32,
    pub sharedJpegCount: u32,
    pub sharedOfaCount: u32,
    pub gpuInstanceSliceCount: u32,
    pub computeInstanceSliceCount: u32,
    pub memorySizeMB: u64,
}

pub struct nvmlDeviceCapabilities_v1_t {
    pub version: u32,
    pub capMask: u32,
}

pub struct nvmlDeviceCurrentClockFreqs_v1_t {
    pub version: u32,
    pub str: [c_char; 2048],
}

pub struct nvmlDevicePerfModes_v1_t {
    pub version: u32,
    pub str: [c_char; 2048],
}

pub struct nvmlDramEncryptionInfo_v1_t {
    pub version: u32,
    pub encryptionState: nvmlEnableState_t,
}

pub struct nvmlEccErrorCounts_t {
    pub l1Cache: u64,
    pub l2Cache: u64,
    pub deviceMemory: u64,
    pub registerFile: u64,
}

pub struct nvmlEccSramErrorStatus_v1_t {
    pub version: u32,
    pub aggregateUncParity: u64,
    pub aggregateUncSecDed: u64,
    pub aggregateCor: u64,
    pub volatileUncParity: u64,
    pub volatileUncSecDed: u64,
    pub volatileCor: u64,
    pub aggregateUncBucketL2: u64,
    pub aggregateUncBucketSm: u64,
    pub aggregateUncBucketPcie: u64,
    pub aggregateUncBucketMcu: u64,
    pub aggregateUncBucketOther: u64,
    pub bThresholdExceeded: u32,
}

pub struct nvmlEventData_t {
    pub device: nvmlDevice_t,
    pub eventType: u64,
    pub eventData: u64,
    pub gpuInstanceId: u32,
    pub computeInstanceId: u32,
}

pub struct nvmlFBCStats_t {
    pub sessionsCount: u32,
    pub averageFPS: u32,
    pub averageLatency: u32,
}

pub struct nvmlFanSpeedInfo_v1_t {
    pub version: u32,
    pub fan: u32,
    pub speed: u32,
}

pub struct nvmlFieldValue_t {
    pub fieldId: u32,
    pub scopeId: u32,
    pub timestamp: i64,
    pub latencyUsec: i64,
    pub valueType: nvmlValueType_t,
    pub nvmlReturn: nvmlReturn_t,
    pub value: nvmlValue_t,
}

pub struct nvmlGpuFabricInfo_t {
    pub clusterUuid: [u8; 16],
    pub status: nvmlReturn_t,
    pub cliqueId: u32,
    pub state: nvmlGpuFabricState_t,
}

pub struct nvmlGpuFabricInfo_v2_t {
    pub version: u32,
    pub clusterUuid: [u8; 16],
    pub status: nvmlReturn_t,
    pub cliqueId: u32,
    pub state: nvmlGpuFabricState_t,
    pub healthMask: u32,
}

pub struct nvmlMarginTemperature_v1_t {
    pub version: u32,
    pub marginTemperature: i32,
}

pub struct nvmlMemory_t {
    pub total: u64,
    pub free: u64,
    pub used: u64,
}

pub struct nvmlMemory_v2_t {
    pub version: u32,
    pub total: u64,
    pub reserved: u64,
    pub free: u64,
    pub used: u64,
}

pub struct nvmlPciInfoExt_v1_t {
    pub version: u32,
    pub domain: u32,
    pub bus: u32,
    pub device: u32,
    pub pciDeviceId: u32,
    pub pciSubSystemId: u32,
    pub baseClass: u32,
    pub subClass: u32,
    pub busId: [c_char; 32],
}

pub struct nvmlPciInfo_t {
    pub busIdLegacy: [c_char; 16],
    pub domain: u32,
    pub bus: u32,
    pub device: u32,
    pub pciDeviceId: u32,
    pub pciSubSystemId: u32,
    pub busId: [c_char; 32],
}

pub struct nvmlPlatformInfo_v2_t {
    pub version: u32,
    pub ibGuid: [u8; 16],
    pub chassisSerialNumber: [u8; 16],
    pub slotNumber: u8,
    pub trayIndex: u8,
    pub hostId: u8,
    pub peerType: u8,
    pub moduleId: u8,
}

pub struct nvmlProcessInfo_v1_t {
    pub pid: u32,
    pub usedGpuMemory: u64,
}

pub struct nvmlProcessInfo_v2_t {
    pub pid: u32,
    pub usedGpuMemory: u64,
    pub gpuInstanceId: u32,
    pub computeInstanceId: u32,
}

pub struct nvmlRowRemapperHistogramValues_t {
    pub max: u32,
    pub high: u32,
    pub partial: u32,
    pub low: u32,
    pub none: u32,
}

pub struct nvmlSample_t {
    pub timeStamp: u64,
    pub sampleValue: nvmlValue_t,
}

pub struct nvmlTemperature_v1_t {
    pub version: u32,
    pub sensorType: nvmlTemperatureSensors_t,
    pub temperature: i32,
}

pub struct nvmlUtilization_t {
    pub gpu: u32,
    pub memory: u32,
}

pub union nvmlValue_t {
    pub dVal: f64,
    pub siVal: i32,
    pub uiVal: u32,
    pub ulVal: u64,
    pub ullVal: u64,
    pub sllVal: i64,
    pub usVal: u16,
}

pub struct nvmlViolationTime_t {
    pub referenceTime: u64,
    pub violationTime: u64,
}

pub struct nvmlAccountingStats_t {}
pub struct nvmlAccountingStats_v2_t {}
pub struct nvmlAdaptiveTgpModeInfo_v1_t {}
pub struct nvmlBBXTimeData_v1_t {}
pub struct nvmlBridgeChipHierarchy_t {}
pub struct nvmlClkMonStatus_status {}
pub struct nvmlComputeInstanceInfo_t {}
pub struct nvmlComputeInstancePlacement_t {}
pub struct nvmlComputeInstanceProfileInfo_t {}
pub struct nvmlComputeInstanceProfileInfo_v2_t {}
pub struct nvmlConfComputeGetKeyRotationThresholdInfo_t {}
pub struct nvmlConfComputeGpuAttestationReport_t {}
pub struct nvmlConfComputeGpuCertificate_t {}
pub struct nvmlConfComputeSetKeyRotationThresholdInfo_t {}
pub struct nvmlConfComputeSystemCaps_t {}
pub struct nvmlConfComputeSystemState_t {}
pub struct nvmlEncoderSessionInfo_t {}
pub struct nvmlExcludedDeviceInfo_t {}
pub struct nvmlFBCSessionInfo_t {}
pub struct nvmlGpmMetricsGet_t {}
pub struct nvmlGpmSupport_t {}
pub struct nvmlGpuDynamicPstatesInfo_t {}
pub struct nvmlGpuFabricInfo_v4_t {}
pub struct nvmlGpuInstanceInfo_t {}
pub struct nvmlGpuInstancePlacement_t {}
pub struct nvmlGpuInstanceProfileInfo_t {}
pub struct nvmlGpuInstanceProfileInfo_v2_t {}
pub struct nvmlGpuThermalSettings_t {}
pub struct nvmlGridLicensableFeatures_t {}
pub struct nvmlHostname_v1_t {}
pub struct nvmlHwbcEntry_t {}
pub struct nvmlLedState_t {}
pub struct nvmlNvLinkInfo_t {}
pub struct nvmlNvLinkPowerThres_t {}
pub struct nvmlNvLinkUtilizationControl_t {}
pub struct nvmlNvlinkGetBwMode_v1_t {}
pub struct nvmlNvlinkSetBwMode_v1_t {}
pub struct nvmlNvlinkSupportedBwModes_v1_t {}
pub struct nvmlPSUInfo_t {}
pub struct nvmlPdi_t {}
pub struct nvmlPowerSmoothingProfile_v1_t {}
pub struct nvmlPowerSmoothingState_v1_t {}
pub struct nvmlPowerValue_v2_t {}
pub struct nvmlProcessDetailList_v1_t {}
pub struct nvmlProcessUtilizationSample_t {}
pub struct nvmlProcessesUtilizationInfo_v1_t {}
pub struct nvmlRepairStatus_t {}
pub struct nvmlRusdSettings_v1_t {}
pub struct nvmlSystemConfComputeSettings_v1_t {}
pub struct nvmlSystemDriverBranchInfo_v1_t {}
pub struct nvmlUnitFanSpeeds_t {}
pub struct nvmlUnitInfo_t {}
pub struct nvmlVgpuHeterogeneousMode_t {}
pub struct nvmlVgpuHeterogeneousMode_v1_t {}
pub struct nvmlVgpuInstanceUtilizationSample_t {}
pub struct nvmlVgpuInstancesUtilizationInfo_v1_t {}
pub struct nvmlVgpuLicenseInfo_t {}
pub struct nvmlVgpuMetadata_t {}
pub struct nvmlVgpuPgpuCompatibility_t {}
pub struct nvmlVgpuPgpuMetadata_t {}
pub struct nvmlVgpuPlacementId_v1_t {}
pub struct nvmlVgpuPlacementList_v2_t {}
pub struct nvmlVgpuProcessUtilizationSample_t {}
pub struct nvmlVgpuProcessesUtilizationInfo_v1_t {}
pub struct nvmlVgpuRuntimeState_v1_t {}
pub struct nvmlVgpuSchedulerCapabilities_t {}
pub struct nvmlVgpuSchedulerGetState_t {}
pub struct nvmlVgpuSchedulerLog_t {}
pub struct nvmlVgpuSchedulerSetState_t {}
pub struct nvmlVgpuSchedulerState_t {}
pub struct nvmlVgpuSchedulerState_v2_t {}
pub struct nvmlVgpuTypeBar1Info_v1_t {}
pub struct nvmlVgpuVersion_t {}
pub struct nvmlWorkloadPowerProfileCurrentProfiles_v1_t {}
pub struct nvmlWorkloadPowerProfileProfilesInfo_v1_t {}
pub struct nvmlWorkloadPowerProfileRequestedProfiles_v1_t {}
pub struct nvmlWorkloadPowerProfileUpdateProfiles_v1_t {}
pub struct nvmlActiveVgpuInstanceInfo_t {}
pub struct nvmlDeviceAddressingMode_t {}
pub struct nvmlDevicePowerMizerModes_v1_t {}
pub struct nvmlEccBankRemapperStatus_v1_t {}
pub struct nvmlEccSramUniqueUncorrectedErrorCounts_t {}
pub struct nvmlEventSetGetContextCount_v1_t {}
pub struct nvmlEventSetGetContextData_v1_t {}
pub struct nvmlEventSetGetContextInfo_v1_t {}
pub struct nvmlEventSetGetGpuOperationalEventContextLegacyXid_v1_t {}
pub struct nvmlEventSetWait_v3_t {}
pub struct nvmlGetCPER_v1_t {}
pub struct nvmlGetMemoryLimits_v1_t {}
pub struct nvmlGpuOperationalEventConfig_v1_t {}
pub struct nvmlNvlinkSetBwModeAsync_v1_t {}
pub struct nvmlNvlinkTelemetrySamples_v1_t {}
pub struct nvmlPRMCounterList_v1_t {}
pub struct nvmlPRMTLV_v1_t {}
pub struct nvmlPerfMetricsSamples_v1_t {}
pub struct nvmlRemappedRowsInfo_v2_t {}
pub struct nvmlSetMemoryLimits_v1_t {}
pub struct nvmlSystemEventSetCreateRequest_t {}
pub struct nvmlSystemEventSetFreeRequest_t {}
pub struct nvmlSystemEventSetWaitRequest_t {}
pub struct nvmlSystemRegisterEventRequest_t {}
pub struct nvmlUUID_t {}
pub struct nvmlUnrepairableMemoryStatus_v1_t {}
pub struct nvmlVgpuCreatablePlacementInfo_t {}
pub struct nvmlVgpuSchedulerLogInfo_v2_t {}
pub struct nvmlVgpuTypeIdInfo_t {}
pub struct nvmlVgpuTypeMaxInstance_t {}
