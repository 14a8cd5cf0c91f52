//! Utilisation and values by number.

extern "C" {
    /// Shares of the last period in which kernels ran and memory was used.
    #[call(id = 0x0701)]
    fn nvmlDeviceGetUtilizationRates(
        device: nvmlDevice_t,
        #[out] utilization: *mut nvmlUtilization_t,
    ) -> nvmlReturn_t;

    /// Tells the encoder utilization of a device.
    #[call(id = 0x0702)]
    fn nvmlDeviceGetEncoderUtilization(
        device: nvmlDevice_t,
        #[out] utilization: *mut u32,
        #[out] samplingPeriodUs: *mut u32,
    ) -> nvmlReturn_t;

    /// Tells the encoder capacity of a device.
    #[call(id = 0x0703)]
    fn nvmlDeviceGetEncoderCapacity(
        device: nvmlDevice_t,
        encoderQueryType: nvmlEncoderType_t,
        #[out] encoderCapacity: *mut u32,
    ) -> nvmlReturn_t;

    /// Tells the encoder figures of a device.
    #[call(id = 0x0704)]
    fn nvmlDeviceGetEncoderStats(
        device: nvmlDevice_t,
        #[out] sessionCount: *mut u32,
        #[out] averageFps: *mut u32,
        #[out] averageLatency: *mut u32,
    ) -> nvmlReturn_t;

    /// Tells the decoder utilization of a device.
    #[call(id = 0x0705)]
    fn nvmlDeviceGetDecoderUtilization(
        device: nvmlDevice_t,
        #[out] utilization: *mut u32,
        #[out] samplingPeriodUs: *mut u32,
    ) -> nvmlReturn_t;

    /// Tells the JPEG utilization of a device.
    #[call(id = 0x0706)]
    fn nvmlDeviceGetJpgUtilization(
        device: nvmlDevice_t,
        #[out] utilization: *mut u32,
        #[out] samplingPeriodUs: *mut u32,
    ) -> nvmlReturn_t;

    /// Tells the OFA utilization of a device.
    #[call(id = 0x0707)]
    fn nvmlDeviceGetOfaUtilization(
        device: nvmlDevice_t,
        #[out] utilization: *mut u32,
        #[out] samplingPeriodUs: *mut u32,
    ) -> nvmlReturn_t;

    /// Tells the frame capture figures of a device.
    #[call(id = 0x0708)]
    fn nvmlDeviceGetFBCStats(
        device: nvmlDevice_t,
        #[out] fbcStats: *mut nvmlFBCStats_t,
    ) -> nvmlReturn_t;

    /// Recent samples of utilisation, power or clocks.
    #[call(id = 0x0709, local)]
    fn nvmlDeviceGetSamples(
        device: nvmlDevice_t,
        r#type: nvmlSamplingType_t,
        lastSeenTimeStamp: u64,
        #[local] sampleValType: *mut nvmlValueType_t,
        #[local] sampleCount: *mut u32,
        #[local] samples: *mut nvmlSample_t,
    ) -> nvmlReturn_t;

    /// Many values at once, each by its number.
    #[call(id = 0x070A, local)]
    fn nvmlDeviceGetFieldValues(
        device: nvmlDevice_t,
        valuesCount: i32,
        #[local] values: *mut nvmlFieldValue_t,
    ) -> nvmlReturn_t;
}
