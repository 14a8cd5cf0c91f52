//! S-class units.

extern "C" {
    /// Number of S-class units; none.
    #[call(id = 0x0E01, local)]
    fn nvmlUnitGetCount(#[local] unitCount: *mut u32) -> nvmlReturn_t;

    /// Tells the handle by index of a unit.
    #[call(id = 0x0E02, unsupported)]
    fn nvmlUnitGetHandleByIndex(index: u32, #[local] unit: *mut nvmlUnit_t) -> nvmlReturn_t;

    /// Tells the unit facts of a unit.
    #[call(id = 0x0E03, unsupported)]
    fn nvmlUnitGetUnitInfo(unit: nvmlUnit_t, #[local] info: *mut nvmlUnitInfo_t) -> nvmlReturn_t;

    /// Tells the LED state of a unit.
    #[call(id = 0x0E04, unsupported)]
    fn nvmlUnitGetLedState(unit: nvmlUnit_t, #[local] state: *mut nvmlLedState_t) -> nvmlReturn_t;

    /// Tells the PSU facts of a unit.
    #[call(id = 0x0E05, unsupported)]
    fn nvmlUnitGetPsuInfo(unit: nvmlUnit_t, #[local] psu: *mut nvmlPSUInfo_t) -> nvmlReturn_t;

    /// Tells the temperature of a unit.
    #[call(id = 0x0E06, unsupported)]
    fn nvmlUnitGetTemperature(
        unit: nvmlUnit_t,
        r#type: u32,
        #[local] temp: *mut u32,
    ) -> nvmlReturn_t;

    /// Tells the fan speed facts of a unit.
    #[call(id = 0x0E07, unsupported)]
    fn nvmlUnitGetFanSpeedInfo(
        unit: nvmlUnit_t,
        #[local] fanSpeeds: *mut nvmlUnitFanSpeeds_t,
    ) -> nvmlReturn_t;

    /// Tells the devices of a unit.
    #[call(id = 0x0E08, unsupported)]
    fn nvmlUnitGetDevices(
        unit: nvmlUnit_t,
        #[local] deviceCount: *mut u32,
        #[local] devices: *mut nvmlDevice_t,
    ) -> nvmlReturn_t;

    /// Sets the LED state of a unit.
    #[call(id = 0x0E09, denied)]
    fn nvmlUnitSetLedState(unit: nvmlUnit_t, color: nvmlLedColor_t) -> nvmlReturn_t;
}
