//! Events.

extern "C" {
    /// Makes a set of events.
    #[call(id = 0x0A01, local)]
    fn nvmlEventSetCreate(#[local] set: *mut nvmlEventSet_t) -> nvmlReturn_t;

    /// Adds events of a device to a set; no kind is supported.
    #[call(id = 0x0A02, local)]
    fn nvmlDeviceRegisterEvents(
        device: nvmlDevice_t,
        eventTypes: u64,
        set: nvmlEventSet_t,
    ) -> nvmlReturn_t;

    /// The kinds of events that a device tells; none.
    #[call(id = 0x0A03, local)]
    fn nvmlDeviceGetSupportedEventTypes(
        device: nvmlDevice_t,
        #[local] eventTypes: *mut u64,
    ) -> nvmlReturn_t;

    /// Waits for an event of the set; none ever comes.
    #[call(id = 0x0A04, local)]
    fn nvmlEventSetWait_v2(
        set: nvmlEventSet_t,
        #[local] data: *mut nvmlEventData_t,
        timeoutms: u32,
    ) -> nvmlReturn_t;

    /// Ends a set of events.
    #[call(id = 0x0A05, local)]
    fn nvmlEventSetFree(set: nvmlEventSet_t) -> nvmlReturn_t;

    /// As `nvmlEventSetWait_v2`, of an older version.
    #[call(id = 0x0A06, local)]
    fn nvmlEventSetWait(
        set: nvmlEventSet_t,
        #[local] data: *mut nvmlEventData_t,
        timeoutms: u32,
    ) -> nvmlReturn_t;

    /// Event set create, of a system.
    #[call(id = 0x0A07, unsupported)]
    fn nvmlSystemEventSetCreate(
        #[local] req: *mut nvmlSystemEventSetCreateRequest_t,
    ) -> nvmlReturn_t;

    /// Event set free, of a system.
    #[call(id = 0x0A08, unsupported)]
    fn nvmlSystemEventSetFree(#[local] req: *mut nvmlSystemEventSetFreeRequest_t) -> nvmlReturn_t;

    /// Event set wait, of a system.
    #[call(id = 0x0A09, unsupported)]
    fn nvmlSystemEventSetWait(#[local] req: *mut nvmlSystemEventSetWaitRequest_t) -> nvmlReturn_t;

    /// Registers the events of a system.
    #[call(id = 0x0A0A, unsupported)]
    fn nvmlSystemRegisterEvents(
        #[local] req: *mut nvmlSystemRegisterEventRequest_t,
    ) -> nvmlReturn_t;
}
