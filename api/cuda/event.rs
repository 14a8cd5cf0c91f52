//! Events. Recording is one way; whether an event has passed is pushed by the server.

extern "C" {
    /// Creates an event.
    #[call(id = 0x0b01, async, manual(client), since = "2.0")]
    fn cuEventCreate(#[out(creates, place)] phEvent: *mut CUevent, Flags: u32) -> CUresult;

    /// Ends an event.
    #[call(
        id = 0x0b02,
        async,
        manual,
        since = "4.0",
        alias = "cuEventDestroy@2.0"
    )]
    fn cuEventDestroy_v2(#[destroys] hEvent: CUevent) -> CUresult;

    /// Records an event in a stream.
    #[call(
        id = 0x0b03,
        local,
        manual(client),
        since = "2.0",
        per_thread = "cuEventRecord_ptsz@7.0"
    )]
    fn cuEventRecord(hEvent: CUevent, hStream: CUstream) -> CUresult;

    /// Records an event in a stream, with flags.
    #[call(
        id = 0x0b04,
        local,
        manual(client),
        since = "11.1",
        per_thread = "cuEventRecordWithFlags_ptsz@11.1"
    )]
    fn cuEventRecordWithFlags(hEvent: CUevent, hStream: CUstream, flags: u32) -> CUresult;

    /// Tells whether an event has passed.
    #[call(id = 0x0b05, local, since = "2.0")]
    fn cuEventQuery(hEvent: CUevent) -> CUresult;

    /// Waits until an event has passed.
    #[call(id = 0x0b06, local, manual(client), since = "2.0")]
    fn cuEventSynchronize(hEvent: CUevent) -> CUresult;

    /// Tells the time between two events.
    #[call(
        id = 0x0b07,
        sync,
        manual(client),
        since = "12.8",
        alias = "cuEventElapsedTime@2.0"
    )]
    fn cuEventElapsedTime_v2(
        #[out(place)] pMilliseconds: *mut f32,
        hStart: CUevent,
        hEnd: CUevent,
    ) -> CUresult;
}
