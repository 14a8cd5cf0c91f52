//! Messages between a client and a server for calls whose answers are as long as there is room, or come from the supervisor.

extern "C" {
    /// Frequencies of the memory.
    #[call(id = 0x1001, internal, fixed, manual(server))]
    fn nvmlMemoryClocks(
        device: nvmlDevice_t,
        room: u32,
        #[out(size_of)] count: *mut u32,
        #[out(len = room, actual = count)] clocks: *mut u32,
    ) -> nvmlReturn_t;

    /// Frequencies of graphics beside one of the memory.
    #[call(id = 0x1002, internal, fixed, manual(server))]
    fn nvmlGraphicsClocks(
        device: nvmlDevice_t,
        memoryClockMHz: u32,
        room: u32,
        #[out(size_of)] count: *mut u32,
        #[out(len = room, actual = count)] clocks: *mut u32,
    ) -> nvmlReturn_t;

    /// Values by number: when each was taken, how long that took, its type, status and bits.
    #[call(id = 0x1003, internal, manual(server))]
    fn nvmlFieldValues(
        device: nvmlDevice_t,
        count: u32,
        #[input(len = count)] fields: *const u32,
        #[input(len = count)] scopes: *const u32,
        #[out(len = count)] timestamps: *mut i64,
        #[out(len = count)] latencies: *mut i64,
        #[out(len = count)] types: *mut u32,
        #[out(len = count)] statuses: *mut i32,
        #[out(len = count)] values: *mut u64,
    ) -> nvmlReturn_t;

    /// Recent samples: their type, times and bits. Room for none asks how many there may be.
    #[call(id = 0x1004, internal, manual(server))]
    fn nvmlSamples(
        device: nvmlDevice_t,
        samplingType: u32,
        lastSeenTimeStamp: u64,
        room: u32,
        #[out] valueType: *mut u32,
        #[out(size_of)] count: *mut u32,
        #[out(len = room, actual = count)] timestamps: *mut u64,
        #[out(len = room, actual = count)] values: *mut u64,
    ) -> nvmlReturn_t;

    /// Sessions of programs on the asking machine that hold memory of the device: their process ids there, and bytes. From the supervisor.
    #[call(id = 0x1005, internal, manual(server))]
    fn nvmlProcesses(
        device: nvmlDevice_t,
        room: u32,
        #[out(size_of)] count: *mut u32,
        #[out(len = room, actual = count)] pids: *mut u32,
        #[out(len = room, actual = count)] bytes: *mut u64,
    ) -> nvmlReturn_t;
}
