//! Groups of calls.

extern "C" {
    /// Begins a group of calls that are enqueued together.
    #[call]
    fn ncclGroupStart() -> ncclResult_t;

    /// Enqueues the calls of a group.
    #[call]
    fn ncclGroupEnd() -> ncclResult_t;

    /// Estimates how long a group would take, and drops it.
    #[call]
    fn ncclGroupSimulateEnd(simInfo: *mut ncclSimInfo_t) -> ncclResult_t;
}
