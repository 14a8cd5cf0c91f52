//! Clocks.

extern "C" {
    /// The frequency at which a clock runs now.
    #[call(id = 0x0401)]
    fn nvmlDeviceGetClockInfo(
        device: nvmlDevice_t,
        r#type: nvmlClockType_t,
        #[out] clock: *mut u32,
    ) -> nvmlReturn_t;

    /// The highest frequency of a clock.
    #[call(id = 0x0402, fixed)]
    fn nvmlDeviceGetMaxClockInfo(
        device: nvmlDevice_t,
        r#type: nvmlClockType_t,
        #[out] clock: *mut u32,
    ) -> nvmlReturn_t;

    /// Tells the GPC clock V/F offset of a device.
    #[call(id = 0x0403)]
    fn nvmlDeviceGetGpcClkVfOffset(device: nvmlDevice_t, #[out] offset: *mut i32) -> nvmlReturn_t;

    /// Tells the applications clock of a device.
    #[call(id = 0x0404)]
    fn nvmlDeviceGetApplicationsClock(
        device: nvmlDevice_t,
        clockType: nvmlClockType_t,
        #[out] clockMHz: *mut u32,
    ) -> nvmlReturn_t;

    /// Tells the default applications clock of a device.
    #[call(id = 0x0405, fixed)]
    fn nvmlDeviceGetDefaultApplicationsClock(
        device: nvmlDevice_t,
        clockType: nvmlClockType_t,
        #[out] clockMHz: *mut u32,
    ) -> nvmlReturn_t;

    /// A clock by kind: current, or as applications may have set it.
    #[call(id = 0x0406)]
    fn nvmlDeviceGetClock(
        device: nvmlDevice_t,
        clockType: nvmlClockType_t,
        clockId: nvmlClockId_t,
        #[out] clockMHz: *mut u32,
    ) -> nvmlReturn_t;

    /// Tells the highest customer boost clock of a device.
    #[call(id = 0x0407, fixed)]
    fn nvmlDeviceGetMaxCustomerBoostClock(
        device: nvmlDevice_t,
        clockType: nvmlClockType_t,
        #[out] clockMHz: *mut u32,
    ) -> nvmlReturn_t;

    /// Frequencies that the memory can run at.
    #[call(id = 0x0408, local)]
    fn nvmlDeviceGetSupportedMemoryClocks(
        device: nvmlDevice_t,
        #[local] count: *mut u32,
        #[local] clocksMHz: *mut u32,
    ) -> nvmlReturn_t;

    /// Frequencies that graphics can run at beside one of the memory.
    #[call(id = 0x0409, local)]
    fn nvmlDeviceGetSupportedGraphicsClocks(
        device: nvmlDevice_t,
        memoryClockMHz: u32,
        #[local] count: *mut u32,
        #[local] clocksMHz: *mut u32,
    ) -> nvmlReturn_t;

    /// Tells the auto boosted clocks enabled of a device.
    #[call(id = 0x040A)]
    fn nvmlDeviceGetAutoBoostedClocksEnabled(
        device: nvmlDevice_t,
        #[out] isEnabled: *mut nvmlEnableState_t,
        #[out] defaultIsEnabled: *mut nvmlEnableState_t,
    ) -> nvmlReturn_t;

    /// Tells the current clocks event reasons of a device.
    #[call(id = 0x040B)]
    fn nvmlDeviceGetCurrentClocksEventReasons(
        device: nvmlDevice_t,
        #[out] clocksEventReasons: *mut u64,
    ) -> nvmlReturn_t;

    /// Tells the current clocks throttle reasons of a device.
    #[call(id = 0x040C)]
    fn nvmlDeviceGetCurrentClocksThrottleReasons(
        device: nvmlDevice_t,
        #[out] clocksThrottleReasons: *mut u64,
    ) -> nvmlReturn_t;

    /// Tells the supported clocks event reasons of a device.
    #[call(id = 0x040D, fixed)]
    fn nvmlDeviceGetSupportedClocksEventReasons(
        device: nvmlDevice_t,
        #[out] supportedClocksEventReasons: *mut u64,
    ) -> nvmlReturn_t;

    /// Tells the supported clocks throttle reasons of a device.
    #[call(id = 0x040E, fixed)]
    fn nvmlDeviceGetSupportedClocksThrottleReasons(
        device: nvmlDevice_t,
        #[out] supportedClocksThrottleReasons: *mut u64,
    ) -> nvmlReturn_t;

    /// Tells the memory clock V/F offset of a device.
    #[call(id = 0x040F)]
    fn nvmlDeviceGetMemClkVfOffset(device: nvmlDevice_t, #[out] offset: *mut i32) -> nvmlReturn_t;

    /// The lowest and highest frequency of a clock in a performance state.
    #[call(id = 0x0410)]
    fn nvmlDeviceGetMinMaxClockOfPState(
        device: nvmlDevice_t,
        r#type: nvmlClockType_t,
        pstate: nvmlPstates_t,
        #[out] minClockMHz: *mut u32,
        #[out] maxClockMHz: *mut u32,
    ) -> nvmlReturn_t;

    /// The least and greatest offset of the GPC clock.
    #[call(id = 0x0411)]
    fn nvmlDeviceGetGpcClkMinMaxVfOffset(
        device: nvmlDevice_t,
        #[out] minOffset: *mut i32,
        #[out] maxOffset: *mut i32,
    ) -> nvmlReturn_t;

    /// The least and greatest offset of the memory clock.
    #[call(id = 0x0412)]
    fn nvmlDeviceGetMemClkMinMaxVfOffset(
        device: nvmlDevice_t,
        #[out] minOffset: *mut i32,
        #[out] maxOffset: *mut i32,
    ) -> nvmlReturn_t;

    /// Tells the clock offsets of a device.
    #[call(id = 0x0413)]
    fn nvmlDeviceGetClockOffsets(
        device: nvmlDevice_t,
        #[inout] info: *mut nvmlClockOffset_v1_t,
    ) -> nvmlReturn_t;

    /// Tells the current clock frequencies of a device.
    #[call(id = 0x0414)]
    fn nvmlDeviceGetCurrentClockFreqs(
        device: nvmlDevice_t,
        #[inout] currentClockFreqs: *mut nvmlDeviceCurrentClockFreqs_v1_t,
    ) -> nvmlReturn_t;

    /// Whether clocks adapt to the voltage.
    #[call(id = 0x0415)]
    fn nvmlDeviceGetAdaptiveClockInfoStatus(
        device: nvmlDevice_t,
        #[out] adaptiveClockStatus: *mut u32,
    ) -> nvmlReturn_t;

    /// Tells the clock mon status of a device.
    #[call(id = 0x0416, unsupported)]
    fn nvmlDeviceGetClkMonStatus(
        device: nvmlDevice_t,
        #[local] status: *mut nvmlClkMonStatus_status,
    ) -> nvmlReturn_t;
}
