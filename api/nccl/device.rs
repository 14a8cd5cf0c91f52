//! Communication by kernels of the program, which needs memory that devices of one machine share.

extern "C" {
    /// Makes the device's side of a communicator.
    #[call(refused)]
    fn ncclDevCommCreate(
        comm: ncclComm_t,
        reqs: *const c_void,
        outDevComm: *mut c_void,
    ) -> ncclResult_t;

    /// Destroys the device's side of a communicator.
    #[call(refused)]
    fn ncclDevCommDestroy(comm: ncclComm_t, devComm: *const c_void) -> ncclResult_t;

    /// Tells the address at which one write reaches a window on all near devices.
    #[call(refused)]
    fn ncclGetLsaMultimemDevicePointer(
        window: ncclWindow_t,
        offset: usize,
        outPtr: *mut *mut c_void,
    ) -> ncclResult_t;

    /// Tells the address at which one write reaches a window on several devices.
    #[call(refused)]
    fn ncclGetMultimemDevicePointer(
        window: ncclWindow_t,
        offset: usize,
        multimem: ncclMultimemHandle_t,
        outPtr: *mut *mut c_void,
    ) -> ncclResult_t;

    /// Tells the address of a near rank's window.
    #[call(refused)]
    fn ncclGetLsaDevicePointer(
        window: ncclWindow_t,
        offset: usize,
        lsaRank: i32,
        outPtr: *mut *mut c_void,
    ) -> ncclResult_t;

    /// Tells the address of another rank's window.
    #[call(refused)]
    fn ncclGetPeerDevicePointer(
        window: ncclWindow_t,
        offset: usize,
        peer: i32,
        outPtr: *mut *mut c_void,
    ) -> ncclResult_t;

    /// Tells the endpoint at which one write reaches a window on several devices.
    #[call(refused)]
    fn ncclGetMultimemDeviceLeInfo(
        window: ncclWindow_t,
        offset: usize,
        leId: *mut u32,
        leOffset: *mut usize,
    ) -> ncclResult_t;

    /// Tells the endpoint of a window at a rank of a team.
    #[call(refused)]
    fn ncclGetCftDeviceLeInfo(
        window: ncclWindow_t,
        offset: usize,
        peerCft: i32,
        cftTeam: ncclTeam_t,
        leId: *mut u32,
        leOffset: *mut usize,
    ) -> ncclResult_t;

    /// Tells the endpoint of another rank's window.
    #[call(refused)]
    fn ncclGetPeerDeviceLeInfo(
        window: ncclWindow_t,
        offset: usize,
        peerWorld: i32,
        leId: *mut u32,
        leOffset: *mut usize,
    ) -> ncclResult_t;

    /// Gives the team of all ranks.
    #[call(refused = NO_TEAM)]
    fn ncclTeamWorld(comm: ncclComm_t) -> ncclTeam_t;

    /// Gives the team of ranks that share memory.
    #[call(refused = NO_TEAM)]
    fn ncclTeamLsa(comm: ncclComm_t) -> ncclTeam_t;

    /// Gives the team of ranks that reach each other by endpoints.
    #[call(refused = NO_TEAM)]
    fn ncclTeamCft(comm: ncclComm_t, mode: ncclCftTeamMode_t) -> ncclTeam_t;

    /// Gives the team of ranks that one write to an endpoint reaches.
    #[call(refused = NO_TEAM)]
    fn ncclTeamCftMultimem(comm: ncclComm_t) -> ncclTeam_t;

    /// Gives the team of ranks with the same place in their machines.
    #[call(refused = NO_TEAM)]
    fn ncclTeamRail(comm: ncclComm_t) -> ncclTeam_t;

    /// Tells the rank among all of a rank of a team.
    #[call(refused = -1)]
    fn ncclTeamRankToWorld(comm: ncclComm_t, team: ncclTeam_t, rank: i32) -> i32;

    /// Tells the rank among those that share memory of a rank of a team.
    #[call(refused = -1)]
    fn ncclTeamRankToLsa(comm: ncclComm_t, team: ncclTeam_t, rank: i32) -> i32;

    /// States the needs of barriers among ranks that share memory.
    #[call(refused)]
    fn ncclLsaBarrierCreateRequirement(
        team: ncclTeam_t,
        nBarriers: i32,
        outHandle: *mut c_void,
        outReq: *mut c_void,
    ) -> ncclResult_t;

    /// States the needs of barriers over the network.
    #[call(refused)]
    fn ncclGinBarrierCreateRequirement(
        comm: ncclComm_t,
        team: ncclTeam_t,
        nBarriers: i32,
        outHandle: *mut c_void,
        outReq: *mut c_void,
    ) -> ncclResult_t;

    /// States the needs of a buffer for data that leaves.
    #[call(refused)]
    fn ncclGinOutboxCreateRequirement(
        nBlocks: i32,
        size_log2: i32,
        outHandle: *mut c_void,
        outReq: *mut c_void,
    ) -> ncclResult_t;

    /// States the needs of a buffer for data that arrives from every rank.
    #[call(refused)]
    fn ncclGinInboxA2ACreateRequirement(
        peers: ncclTeam_t,
        nBlocks: i32,
        size_log2: i32,
        outHandle: *mut c_void,
        outReq: *mut c_void,
    ) -> ncclResult_t;

    /// Computes the slots that an exchange of small elements needs.
    #[call(refused = 0)]
    fn ncclLLA2ACalcSlots(maxElts: i32, maxEltSize: i32) -> i32;

    /// States the needs of an exchange of small elements.
    #[call(refused)]
    fn ncclLLA2ACreateRequirement(
        nBlocks: i32,
        nSlots: i32,
        outHandle: *mut c_void,
        outReq: *mut c_void,
    ) -> ncclResult_t;
}
