//! Communicators of the program's own kernels: none.

extern "C" {
    /// Makes a communicator for the program's own kernels.
    #[call(refused)]
    fn ncclDevCommCreate(
        comm: ncclComm_t,
        reqs: *const c_void,
        outDevComm: *mut c_void,
    ) -> ncclResult_t;

    /// Ends such a communicator.
    #[call(refused)]
    fn ncclDevCommDestroy(comm: ncclComm_t, devComm: *const c_void) -> ncclResult_t;

    /// Tells where a rank's window lies for the device.
    #[call(refused)]
    fn ncclGetLsaDevicePointer(
        window: ncclWindow_t,
        offset: usize,
        lsaRank: c_int,
        outPtr: *mut *mut c_void,
    ) -> ncclResult_t;

    /// Tells where all windows lie as one.
    #[call(refused)]
    fn ncclGetLsaMultimemDevicePointer(
        window: ncclWindow_t,
        offset: usize,
        outPtr: *mut *mut c_void,
    ) -> ncclResult_t;

    /// As `ncclGetLsaMultimemDevicePointer`, of a given handle.
    #[call(refused)]
    fn ncclGetMultimemDevicePointer(
        window: ncclWindow_t,
        offset: usize,
        multimem: *mut c_void,
        outPtr: *mut *mut c_void,
    ) -> ncclResult_t;

    /// Tells where a rank's window lies, by its number.
    #[call(refused)]
    fn ncclGetPeerDevicePointer(
        window: ncclWindow_t,
        offset: usize,
        peer: c_int,
        outPtr: *mut *mut c_void,
    ) -> ncclResult_t;

    /// Tells of an endpoint of a window.
    #[call(refused)]
    fn ncclGetCftDeviceLeInfo(
        window: ncclWindow_t,
        offset: usize,
        peerCft: c_int,
        cftTeam: u64,
        leId: *mut c_void,
    ) -> ncclResult_t;

    /// Tells of the endpoint of all windows.
    #[call(refused)]
    fn ncclGetMultimemDeviceLeInfo(
        window: ncclWindow_t,
        offset: usize,
        leId: *mut c_void,
        leOffset: *mut c_void,
    ) -> ncclResult_t;

    /// Tells of the endpoint of a rank's window.
    #[call(refused)]
    fn ncclGetPeerDeviceLeInfo(
        window: ncclWindow_t,
        offset: usize,
        peerWorld: c_int,
        leId: *mut c_void,
        leOffset: *mut c_void,
    ) -> ncclResult_t;

    /// Says what a barrier between near ranks needs.
    #[call(refused)]
    fn ncclLsaBarrierCreateRequirement(
        team: u64,
        nBarriers: c_int,
        outHandle: *mut c_void,
        outReq: *mut c_void,
    ) -> ncclResult_t;

    /// Says what a barrier over the network needs.
    #[call(refused)]
    fn ncclGinBarrierCreateRequirement(
        comm: ncclComm_t,
        team: u64,
        nBarriers: c_int,
        outHandle: *mut c_void,
        outReq: *mut c_void,
    ) -> ncclResult_t;

    /// Says what an inbox of kernels needs.
    #[call(refused)]
    fn ncclGinInboxA2ACreateRequirement(
        peers: u64,
        nBlocks: c_int,
        sizeLog2: c_int,
        outHandle: *mut c_void,
        outReq: *mut c_void,
    ) -> ncclResult_t;

    /// Says what an outbox of kernels needs.
    #[call(refused)]
    fn ncclGinOutboxCreateRequirement(
        nBlocks: c_int,
        sizeLog2: c_int,
        outHandle: *mut c_void,
        outReq: *mut c_void,
    ) -> ncclResult_t;

    /// Says what an exchange by kernels needs.
    #[call(refused)]
    fn ncclLLA2ACreateRequirement(
        nBlocks: c_int,
        nSlots: c_int,
        outHandle: *mut c_void,
        outReq: *mut c_void,
    ) -> ncclResult_t;

    /// Tells how many slots such an exchange needs: none, since there is none.
    #[call(refused)]
    fn ncclLLA2ACalcSlots(maxElts: c_int, maxEltSize: c_int) -> c_int;

    /// Tells the team of all ranks: none.
    #[call(refused)]
    fn ncclTeamWorld(comm: ncclComm_t) -> u128;

    /// Tells the team of ranks that reach the memory of each other: none.
    #[call(refused)]
    fn ncclTeamLsa(comm: ncclComm_t) -> u128;

    /// Tells the team of ranks of one rail: none.
    #[call(refused)]
    fn ncclTeamRail(comm: ncclComm_t) -> u128;

    /// Tells the team of ranks of one fabric: none.
    #[call(refused)]
    fn ncclTeamCft(comm: ncclComm_t) -> u128;

    /// Tells the team of ranks of one fabric that have memory as one: none.
    #[call(refused)]
    fn ncclTeamCftMultimem(comm: ncclComm_t) -> u128;

    /// Tells the number among all ranks of one of a team.
    #[call(refused)]
    fn ncclTeamRankToWorld(comm: ncclComm_t, team: u128, rank: c_int) -> c_int;

    /// Tells the number among near ranks of one of a team.
    #[call(refused)]
    fn ncclTeamRankToLsa(comm: ncclComm_t, team: u128, rank: c_int) -> c_int;
}
