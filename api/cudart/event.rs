//! Events.

extern "C" {
    /// Makes an event.
    #[call]
    fn cudaEventCreate(event: *mut cudaEvent_t) -> cudaError_t;

    /// Makes an event with flags.
    #[call(driver = "cuEventCreate")]
    fn cudaEventCreateWithFlags(event: *mut cudaEvent_t, flags: u32) -> cudaError_t;

    /// Records an event in a stream.
    #[call(driver = "cuEventRecord", ptsz)]
    fn cudaEventRecord(event: cudaEvent_t, stream: cudaStream_t) -> cudaError_t;

    /// Records an event in a stream, with flags.
    #[call(driver = "cuEventRecordWithFlags", ptsz)]
    fn cudaEventRecordWithFlags(
        event: cudaEvent_t,
        stream: cudaStream_t,
        flags: u32,
    ) -> cudaError_t;

    /// Tells whether an event has happened.
    #[call(bare = "cuEventQuery")]
    fn cudaEventQuery(event: cudaEvent_t) -> cudaError_t;

    /// Waits for an event.
    #[call(driver = "cuEventSynchronize")]
    fn cudaEventSynchronize(event: cudaEvent_t) -> cudaError_t;

    /// Destroys an event.
    #[call(driver = "cuEventDestroy_v2")]
    fn cudaEventDestroy(event: cudaEvent_t) -> cudaError_t;

    /// Tells the milliseconds between two events.
    #[call(by = self.elapsed(ms, start, end), symbol_12 = "cudaEventElapsedTime_v2")]
    fn cudaEventElapsedTime(ms: *mut f32, start: cudaEvent_t, end: cudaEvent_t) -> cudaError_t;

    /// Tells the milliseconds between two events, by the older rule for recorded graphs.
    #[call(by = self.elapsed(ms, start, end), only = 12, symbol = "cudaEventElapsedTime")]
    fn cudaEventElapsedTime_v1(ms: *mut f32, start: cudaEvent_t, end: cudaEvent_t) -> cudaError_t;
}
