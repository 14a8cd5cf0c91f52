//! Communicators.

extern "C" {
    /// Tells the version of the server's NCCL.
    #[call]
    fn ncclGetVersion(version: *mut c_int) -> ncclResult_t;

    /// Makes an id under which ranks find each other.
    #[call]
    fn ncclGetUniqueId(uniqueId: *mut ncclUniqueId) -> ncclResult_t;

    /// Joins a communicator as one of its ranks.
    #[call]
    fn ncclCommInitRank(
        comm: *mut ncclComm_t,
        nranks: c_int,
        commId: ncclUniqueId,
        rank: c_int,
    ) -> ncclResult_t;

    /// Joins a communicator, with a configuration.
    #[call]
    fn ncclCommInitRankConfig(
        comm: *mut ncclComm_t,
        nranks: c_int,
        commId: ncclUniqueId,
        rank: c_int,
        config: *mut ncclConfig_t,
    ) -> ncclResult_t;

    /// Joins a communicator whose ranks meet in several places.
    #[call]
    fn ncclCommInitRankScalable(
        newcomm: *mut ncclComm_t,
        nranks: c_int,
        myrank: c_int,
        nId: c_int,
        commIds: *mut ncclUniqueId,
        config: *mut ncclConfig_t,
    ) -> ncclResult_t;

    /// Makes a communicator between devices of one process.
    #[call]
    fn ncclCommInitAll(comm: *mut ncclComm_t, ndev: c_int, devlist: *const c_int) -> ncclResult_t;

    /// Makes a communicator of the ranks of one color.
    #[call]
    fn ncclCommSplit(
        comm: ncclComm_t,
        color: c_int,
        key: c_int,
        newcomm: *mut ncclComm_t,
        config: *mut ncclConfig_t,
    ) -> ncclResult_t;

    /// Makes a communicator without some of the ranks.
    #[call]
    fn ncclCommShrink(
        comm: ncclComm_t,
        excludeRanksList: *mut c_int,
        excludeRanksCount: c_int,
        newcomm: *mut ncclComm_t,
        config: *mut ncclConfig_t,
        shrinkFlags: c_int,
    ) -> ncclResult_t;

    /// Makes a communicator with further ranks.
    #[call(refused)]
    fn ncclCommGrow(
        comm: ncclComm_t,
        nRanks: c_int,
        uniqueId: *const ncclUniqueId,
        rank: c_int,
        newcomm: *mut ncclComm_t,
        config: *mut ncclConfig_t,
    ) -> ncclResult_t;

    /// Makes an id for ranks that are to join a communicator later.
    #[call(refused)]
    fn ncclCommGetUniqueId(comm: ncclComm_t, uniqueId: *mut ncclUniqueId) -> ncclResult_t;

    /// Completes what a communicator has under way, before its end.
    #[call]
    fn ncclCommFinalize(comm: ncclComm_t) -> ncclResult_t;

    /// Ends a communicator.
    #[call]
    fn ncclCommDestroy(comm: ncclComm_t) -> ncclResult_t;

    /// Ends a communicator at once, with what it has under way.
    #[call]
    fn ncclCommAbort(comm: ncclComm_t) -> ncclResult_t;

    /// Stops what a communicator has under way.
    #[call]
    fn ncclCommRevoke(comm: ncclComm_t, revokeFlags: c_int) -> ncclResult_t;

    /// Gives back memory of a communicator until it is resumed.
    #[call]
    fn ncclCommSuspend(comm: ncclComm_t, flags: c_int) -> ncclResult_t;

    /// Goes on with a suspended communicator.
    #[call]
    fn ncclCommResume(comm: ncclComm_t) -> ncclResult_t;

    /// Tells how much memory a communicator has.
    #[call(refused)]
    fn ncclCommMemStats(comm: ncclComm_t, stat: ncclCommMemStat_t, value: *mut u64)
    -> ncclResult_t;

    /// Tells whether a communicator works.
    #[call]
    fn ncclCommGetAsyncError(comm: ncclComm_t, asyncError: *mut ncclResult_t) -> ncclResult_t;

    /// Tells how many ranks there are.
    #[call]
    fn ncclCommCount(comm: ncclComm_t, count: *mut c_int) -> ncclResult_t;

    /// Tells the rank's device.
    #[call]
    fn ncclCommCuDevice(comm: ncclComm_t, device: *mut c_int) -> ncclResult_t;

    /// Tells which rank this is.
    #[call]
    fn ncclCommUserRank(comm: ncclComm_t, rank: *mut c_int) -> ncclResult_t;

    /// Tells properties of a communicator.
    #[call(refused)]
    fn ncclCommQueryProperties(comm: ncclComm_t, props: *mut c_void) -> ncclResult_t;

    /// Says in words what a result means.
    #[call]
    fn ncclGetErrorString(result: ncclResult_t) -> *const c_char;

    /// Says in words what went wrong last.
    #[call]
    fn ncclGetLastError(comm: ncclComm_t) -> *const c_char;

    /// Reads the settings of the log again: there is none here.
    #[call]
    fn ncclResetDebugInit();

    /// As `ncclResetDebugInit`.
    #[call]
    fn ncclResetDebugInitInternal();

    /// Sets how data between servers is encrypted.
    #[call(refused)]
    fn ncclSetEncryption(config: *const c_void) -> ncclResult_t;
}
