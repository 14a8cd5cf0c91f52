//! Collectives, and the operators that they reduce with.

extern "C" {
    /// Reduces the ranks' arrays into the array of one.
    #[call]
    fn ncclReduce(
        sendbuff: *const c_void,
        recvbuff: *mut c_void,
        count: usize,
        datatype: ncclDataType_t,
        op: ncclRedOp_t,
        root: i32,
        comm: ncclComm_t,
        stream: cudaStream_t,
    ) -> ncclResult_t;

    /// Copies an array of one rank to all.
    #[call]
    fn ncclBroadcast(
        sendbuff: *const c_void,
        recvbuff: *mut c_void,
        count: usize,
        datatype: ncclDataType_t,
        root: i32,
        comm: ncclComm_t,
        stream: cudaStream_t,
    ) -> ncclResult_t;

    /// Copies an array of one rank to all, in place.
    #[call]
    fn ncclBcast(
        buff: *mut c_void,
        count: usize,
        datatype: ncclDataType_t,
        root: i32,
        comm: ncclComm_t,
        stream: cudaStream_t,
    ) -> ncclResult_t;

    /// Reduces the ranks' arrays, with the result at every rank.
    #[call]
    fn ncclAllReduce(
        sendbuff: *const c_void,
        recvbuff: *mut c_void,
        count: usize,
        datatype: ncclDataType_t,
        op: ncclRedOp_t,
        comm: ncclComm_t,
        stream: cudaStream_t,
    ) -> ncclResult_t;

    /// Reduces the ranks' arrays, with one block of the result at each rank.
    #[call]
    fn ncclReduceScatter(
        sendbuff: *const c_void,
        recvbuff: *mut c_void,
        recvcount: usize,
        datatype: ncclDataType_t,
        op: ncclRedOp_t,
        comm: ncclComm_t,
        stream: cudaStream_t,
    ) -> ncclResult_t;

    /// Collects a block of every rank, at every rank.
    #[call]
    fn ncclAllGather(
        sendbuff: *const c_void,
        recvbuff: *mut c_void,
        sendcount: usize,
        datatype: ncclDataType_t,
        comm: ncclComm_t,
        stream: cudaStream_t,
    ) -> ncclResult_t;

    /// Sends a block of each rank to each rank.
    #[call]
    fn ncclAlltoAll(
        sendbuff: *const c_void,
        recvbuff: *mut c_void,
        count: usize,
        datatype: ncclDataType_t,
        comm: ncclComm_t,
        stream: cudaStream_t,
    ) -> ncclResult_t;

    /// Collects a block of every rank at one.
    #[call]
    fn ncclGather(
        sendbuff: *const c_void,
        recvbuff: *mut c_void,
        count: usize,
        datatype: ncclDataType_t,
        root: i32,
        comm: ncclComm_t,
        stream: cudaStream_t,
    ) -> ncclResult_t;

    /// Sends a block of one rank to each.
    #[call]
    fn ncclScatter(
        sendbuff: *const c_void,
        recvbuff: *mut c_void,
        count: usize,
        datatype: ncclDataType_t,
        root: i32,
        comm: ncclComm_t,
        stream: cudaStream_t,
    ) -> ncclResult_t;

    /// Makes an operator that multiplies by a scalar before it sums.
    #[call]
    fn ncclRedOpCreatePreMulSum(
        op: *mut ncclRedOp_t,
        scalar: *mut c_void,
        datatype: ncclDataType_t,
        residence: ncclScalarResidence_t,
        comm: ncclComm_t,
    ) -> ncclResult_t;

    /// Destroys an operator that was made.
    #[call]
    fn ncclRedOpDestroy(op: ncclRedOp_t, comm: ncclComm_t) -> ncclResult_t;

    /// Reduces the ranks' arrays into the array of one, with a configuration.
    #[call(refused)]
    fn ncclReduceConfig(
        sendbuff: *const c_void,
        recvbuff: *mut c_void,
        count: usize,
        datatype: ncclDataType_t,
        op: ncclRedOp_t,
        root: i32,
        comm: ncclComm_t,
        stream: cudaStream_t,
        config: *const ncclCollConfig_t,
    ) -> ncclResult_t;

    /// Copies an array of one rank to all, with a configuration.
    #[call(refused)]
    fn ncclBroadcastConfig(
        sendbuff: *const c_void,
        recvbuff: *mut c_void,
        count: usize,
        datatype: ncclDataType_t,
        root: i32,
        comm: ncclComm_t,
        stream: cudaStream_t,
        config: *const ncclCollConfig_t,
    ) -> ncclResult_t;

    /// Reduces the ranks' arrays, with the result at every rank, with a configuration.
    #[call(refused)]
    fn ncclAllReduceConfig(
        sendbuff: *const c_void,
        recvbuff: *mut c_void,
        count: usize,
        datatype: ncclDataType_t,
        op: ncclRedOp_t,
        comm: ncclComm_t,
        stream: cudaStream_t,
        config: *const ncclCollConfig_t,
    ) -> ncclResult_t;

    /// Reduces the ranks' arrays, with one block of the result at each rank, with a configuration.
    #[call(refused)]
    fn ncclReduceScatterConfig(
        sendbuff: *const c_void,
        recvbuff: *mut c_void,
        recvcount: usize,
        datatype: ncclDataType_t,
        op: ncclRedOp_t,
        comm: ncclComm_t,
        stream: cudaStream_t,
        config: *const ncclCollConfig_t,
    ) -> ncclResult_t;

    /// Collects a block of every rank, at every rank, with a configuration.
    #[call(refused)]
    fn ncclAllGatherConfig(
        sendbuff: *const c_void,
        recvbuff: *mut c_void,
        sendcount: usize,
        datatype: ncclDataType_t,
        comm: ncclComm_t,
        stream: cudaStream_t,
        config: *const ncclCollConfig_t,
    ) -> ncclResult_t;

    /// Sends a block of each rank to each rank, with a configuration.
    #[call(refused)]
    fn ncclAlltoAllConfig(
        sendbuff: *const c_void,
        recvbuff: *mut c_void,
        count: usize,
        datatype: ncclDataType_t,
        comm: ncclComm_t,
        stream: cudaStream_t,
        config: *const ncclCollConfig_t,
    ) -> ncclResult_t;

    /// Collects a block of every rank at one, with a configuration.
    #[call(refused)]
    fn ncclGatherConfig(
        sendbuff: *const c_void,
        recvbuff: *mut c_void,
        count: usize,
        datatype: ncclDataType_t,
        root: i32,
        comm: ncclComm_t,
        stream: cudaStream_t,
        config: *const ncclCollConfig_t,
    ) -> ncclResult_t;

    /// Sends a block of one rank to each, with a configuration.
    #[call(refused)]
    fn ncclScatterConfig(
        sendbuff: *const c_void,
        recvbuff: *mut c_void,
        count: usize,
        datatype: ncclDataType_t,
        root: i32,
        comm: ncclComm_t,
        stream: cudaStream_t,
        config: *const ncclCollConfig_t,
    ) -> ncclResult_t;
}
