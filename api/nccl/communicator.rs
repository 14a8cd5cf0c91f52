//! Communicators: making them, asking about them, ending them.

extern "C" {
    /// Makes an identifier under which processes form a communicator.
    #[call]
    fn ncclGetUniqueId(uniqueId: *mut ncclUniqueId) -> ncclResult_t;

    /// Joins a communicator as one of its ranks.
    #[call]
    fn ncclCommInitRank(
        comm: *mut ncclComm_t,
        nranks: i32,
        commId: ncclUniqueId,
        rank: i32,
    ) -> ncclResult_t;

    /// Joins a communicator as one of its ranks, with a configuration.
    #[call]
    fn ncclCommInitRankConfig(
        comm: *mut ncclComm_t,
        nranks: i32,
        commId: ncclUniqueId,
        rank: i32,
        config: *mut ncclConfig_t,
    ) -> ncclResult_t;

    /// Joins a communicator that several identifiers name.
    #[call]
    fn ncclCommInitRankScalable(
        newcomm: *mut ncclComm_t,
        nranks: i32,
        myrank: i32,
        nId: i32,
        commIds: *mut ncclUniqueId,
        config: *mut ncclConfig_t,
    ) -> ncclResult_t;

    /// Makes a communicator of devices of this process, one rank for each.
    #[call]
    fn ncclCommInitAll(comm: *mut ncclComm_t, ndev: i32, devlist: *const i32) -> ncclResult_t;

    /// Makes a communicator of each colour from the ranks of another.
    #[call]
    fn ncclCommSplit(
        comm: ncclComm_t,
        color: i32,
        key: i32,
        newcomm: *mut ncclComm_t,
        config: *mut ncclConfig_t,
    ) -> ncclResult_t;

    /// Makes a communicator of all ranks of another but those listed.
    #[call]
    fn ncclCommShrink(
        comm: ncclComm_t,
        excludeRanksList: *mut i32,
        excludeRanksCount: i32,
        newcomm: *mut ncclComm_t,
        config: *mut ncclConfig_t,
        shrinkFlags: i32,
    ) -> ncclResult_t;

    /// Makes an identifier under which ranks join an existing communicator.
    #[call(refused)]
    fn ncclCommGetUniqueId(comm: ncclComm_t, uniqueId: *mut ncclUniqueId) -> ncclResult_t;

    /// Makes a communicator of the ranks of another and new ones.
    #[call(refused)]
    fn ncclCommGrow(
        comm: ncclComm_t,
        nRanks: i32,
        uniqueId: *const ncclUniqueId,
        rank: i32,
        newcomm: *mut ncclComm_t,
        config: *mut ncclConfig_t,
    ) -> ncclResult_t;

    /// Completes the operations of a communicator that is about to be destroyed.
    #[call]
    fn ncclCommFinalize(comm: ncclComm_t) -> ncclResult_t;

    /// Destroys a communicator.
    #[call]
    fn ncclCommDestroy(comm: ncclComm_t) -> ncclResult_t;

    /// Stops the operations of a communicator and destroys it.
    #[call]
    fn ncclCommAbort(comm: ncclComm_t) -> ncclResult_t;

    /// Stops the operations of a communicator, which stays for others to be made from it.
    #[call]
    fn ncclCommRevoke(comm: ncclComm_t, revokeFlags: i32) -> ncclResult_t;

    /// Frees the memory of a communicator until it is resumed.
    #[call]
    fn ncclCommSuspend(comm: ncclComm_t, flags: i32) -> ncclResult_t;

    /// Makes a suspended communicator usable again.
    #[call]
    fn ncclCommResume(comm: ncclComm_t) -> ncclResult_t;

    /// Tells whether an operation failed, or is in progress, since its call returned.
    #[call]
    fn ncclCommGetAsyncError(comm: ncclComm_t, asyncError: *mut ncclResult_t) -> ncclResult_t;

    /// Tells the number of ranks of a communicator.
    #[call]
    fn ncclCommCount(comm: ncclComm_t, count: *mut i32) -> ncclResult_t;

    /// Tells the device of a communicator.
    #[call]
    fn ncclCommCuDevice(comm: ncclComm_t, device: *mut i32) -> ncclResult_t;

    /// Tells the rank that a communicator is.
    #[call]
    fn ncclCommUserRank(comm: ncclComm_t, rank: *mut i32) -> ncclResult_t;

    /// Tells how much memory a communicator holds.
    #[call(refused)]
    fn ncclCommMemStats(comm: ncclComm_t, stat: ncclCommMemStat_t, value: *mut u64)
    -> ncclResult_t;

    /// Tells the abilities of a communicator for kernels that communicate.
    #[call(refused)]
    fn ncclCommQueryProperties(comm: ncclComm_t, props: *mut c_void) -> ncclResult_t;
}
