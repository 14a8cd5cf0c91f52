//! Groups: operations that start as one.

extern "C" {
    /// Begins a group.
    #[call]
    fn ncclGroupStart() -> ncclResult_t;

    /// Ends a group and starts its operations.
    #[call]
    fn ncclGroupEnd() -> ncclResult_t;

    /// Drops a group, and answers ncclInvalidUsage: its time is not estimated.
    #[call]
    fn ncclGroupSimulateEnd(simInfo: *mut ncclSimInfo_t) -> ncclResult_t;
}
