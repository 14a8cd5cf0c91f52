//! Power, energy, temperature, fans, performance states.

extern "C" {
    /// Tells the fan speed of a device.
    #[call(id = 0x0501)]
    fn nvmlDeviceGetFanSpeed(device: nvmlDevice_t, #[out] speed: *mut u32) -> nvmlReturn_t;

    /// Tells the fan speed of a device.
    #[call(id = 0x0502)]
    fn nvmlDeviceGetFanSpeed_v2(
        device: nvmlDevice_t,
        fan: u32,
        #[out] speed: *mut u32,
    ) -> nvmlReturn_t;

    /// Tells the fan speed turns a minute of a device.
    #[call(id = 0x0503)]
    fn nvmlDeviceGetFanSpeedRPM(
        device: nvmlDevice_t,
        #[inout] fanSpeed: *mut nvmlFanSpeedInfo_v1_t,
    ) -> nvmlReturn_t;

    /// Tells the target fan speed of a device.
    #[call(id = 0x0504)]
    fn nvmlDeviceGetTargetFanSpeed(
        device: nvmlDevice_t,
        fan: u32,
        #[out] targetSpeed: *mut u32,
    ) -> nvmlReturn_t;

    /// The lowest and highest speed of the fans.
    #[call(id = 0x0505, fixed)]
    fn nvmlDeviceGetMinMaxFanSpeed(
        device: nvmlDevice_t,
        #[out] minSpeed: *mut u32,
        #[out] maxSpeed: *mut u32,
    ) -> nvmlReturn_t;

    /// Tells the fan control policy of a device.
    #[call(id = 0x0506)]
    fn nvmlDeviceGetFanControlPolicy_v2(
        device: nvmlDevice_t,
        fan: u32,
        #[out] policy: *mut nvmlFanControlPolicy_t,
    ) -> nvmlReturn_t;

    /// Tells the number of fans of a device.
    #[call(id = 0x0507, fixed)]
    fn nvmlDeviceGetNumFans(device: nvmlDevice_t, #[out] numFans: *mut u32) -> nvmlReturn_t;

    /// Temperature in degrees Celsius.
    #[call(id = 0x0508)]
    fn nvmlDeviceGetTemperature(
        device: nvmlDevice_t,
        sensorType: nvmlTemperatureSensors_t,
        #[out] temp: *mut u32,
    ) -> nvmlReturn_t;

    /// Tells the cooler facts of a device.
    #[call(id = 0x0509)]
    fn nvmlDeviceGetCoolerInfo(
        device: nvmlDevice_t,
        #[inout] coolerInfo: *mut nvmlCoolerInfo_v1_t,
    ) -> nvmlReturn_t;

    /// Tells the temperature v of a device.
    #[call(id = 0x050A)]
    fn nvmlDeviceGetTemperatureV(
        device: nvmlDevice_t,
        #[inout] temperature: *mut nvmlTemperature_v1_t,
    ) -> nvmlReturn_t;

    /// Tells the temperature threshold of a device.
    #[call(id = 0x050B)]
    fn nvmlDeviceGetTemperatureThreshold(
        device: nvmlDevice_t,
        thresholdType: nvmlTemperatureThresholds_t,
        #[out] temp: *mut u32,
    ) -> nvmlReturn_t;

    /// Tells the margin temperature of a device.
    #[call(id = 0x050C)]
    fn nvmlDeviceGetMarginTemperature(
        device: nvmlDevice_t,
        #[inout] marginTempInfo: *mut nvmlMarginTemperature_v1_t,
    ) -> nvmlReturn_t;

    /// Tells the thermal settings of a device.
    #[call(id = 0x050D, unsupported)]
    fn nvmlDeviceGetThermalSettings(
        device: nvmlDevice_t,
        sensorIndex: u32,
        #[local] pThermalSettings: *mut nvmlGpuThermalSettings_t,
    ) -> nvmlReturn_t;

    /// Tells the performance state of a device.
    #[call(id = 0x050E)]
    fn nvmlDeviceGetPerformanceState(
        device: nvmlDevice_t,
        #[out] pState: *mut nvmlPstates_t,
    ) -> nvmlReturn_t;

    /// Tells the power state of a device.
    #[call(id = 0x050F)]
    fn nvmlDeviceGetPowerState(
        device: nvmlDevice_t,
        #[out] pState: *mut nvmlPstates_t,
    ) -> nvmlReturn_t;

    /// Tells the dynamic performance states facts of a device.
    #[call(id = 0x0510, unsupported)]
    fn nvmlDeviceGetDynamicPstatesInfo(
        device: nvmlDevice_t,
        #[local] pDynamicPstatesInfo: *mut nvmlGpuDynamicPstatesInfo_t,
    ) -> nvmlReturn_t;

    /// Tells the supported performance states of a device.
    #[call(id = 0x0511, fixed)]
    fn nvmlDeviceGetSupportedPerformanceStates(
        device: nvmlDevice_t,
        #[out(bytes = size)] pstates: *mut nvmlPstates_t,
        size: u32,
    ) -> nvmlReturn_t;

    /// Tells the performance modes of a device.
    #[call(id = 0x0512)]
    fn nvmlDeviceGetPerformanceModes(
        device: nvmlDevice_t,
        #[inout] perfModes: *mut nvmlDevicePerfModes_v1_t,
    ) -> nvmlReturn_t;

    /// Tells the power management mode of a device.
    #[call(id = 0x0513)]
    fn nvmlDeviceGetPowerManagementMode(
        device: nvmlDevice_t,
        #[out] mode: *mut nvmlEnableState_t,
    ) -> nvmlReturn_t;

    /// Tells the power management limit of a device.
    #[call(id = 0x0514)]
    fn nvmlDeviceGetPowerManagementLimit(
        device: nvmlDevice_t,
        #[out] limit: *mut u32,
    ) -> nvmlReturn_t;

    /// Tells the power management limit constraints of a device.
    #[call(id = 0x0515, fixed)]
    fn nvmlDeviceGetPowerManagementLimitConstraints(
        device: nvmlDevice_t,
        #[out] minLimit: *mut u32,
        #[out] maxLimit: *mut u32,
    ) -> nvmlReturn_t;

    /// Tells the power management default limit of a device.
    #[call(id = 0x0516, fixed)]
    fn nvmlDeviceGetPowerManagementDefaultLimit(
        device: nvmlDevice_t,
        #[out] defaultLimit: *mut u32,
    ) -> nvmlReturn_t;

    /// Power in use, in mW.
    #[call(id = 0x0517)]
    fn nvmlDeviceGetPowerUsage(device: nvmlDevice_t, #[out] power: *mut u32) -> nvmlReturn_t;

    /// Energy used since the driver was loaded, in mJ.
    #[call(id = 0x0518)]
    fn nvmlDeviceGetTotalEnergyConsumption(
        device: nvmlDevice_t,
        #[out] energy: *mut u64,
    ) -> nvmlReturn_t;

    /// Tells the enforced power limit of a device.
    #[call(id = 0x0519)]
    fn nvmlDeviceGetEnforcedPowerLimit(
        device: nvmlDevice_t,
        #[out] limit: *mut u32,
    ) -> nvmlReturn_t;

    /// How long a policy has held clocks down.
    #[call(id = 0x051A)]
    fn nvmlDeviceGetViolationStatus(
        device: nvmlDevice_t,
        perfPolicyType: nvmlPerfPolicyType_t,
        #[out] violTime: *mut nvmlViolationTime_t,
    ) -> nvmlReturn_t;

    /// Tells the power source of a device.
    #[call(id = 0x051B)]
    fn nvmlDeviceGetPowerSource(
        device: nvmlDevice_t,
        #[out] powerSource: *mut nvmlPowerSource_t,
    ) -> nvmlReturn_t;

    /// Tells the adaptive TGP mode facts of a device.
    #[call(id = 0x051C, unsupported)]
    fn nvmlDeviceGetAdaptiveTgpModeInfo_v1(
        device: nvmlDevice_t,
        #[local] info: *mut nvmlAdaptiveTgpModeInfo_v1_t,
    ) -> nvmlReturn_t;

    /// Tells the power mizer mode of a device.
    #[call(id = 0x051D, unsupported)]
    fn nvmlDeviceGetPowerMizerMode_v1(
        device: nvmlDevice_t,
        #[local] info: *mut nvmlDevicePowerMizerModes_v1_t,
    ) -> nvmlReturn_t;
}
