//! Operations between two ranks.

extern "C" {
    /// Sends an array to a rank that receives it.
    #[call]
    fn ncclSend(
        sendbuff: *const c_void,
        count: usize,
        datatype: ncclDataType_t,
        peer: i32,
        comm: ncclComm_t,
        stream: cudaStream_t,
    ) -> ncclResult_t;

    /// Receives an array that a rank sends.
    #[call]
    fn ncclRecv(
        recvbuff: *mut c_void,
        count: usize,
        datatype: ncclDataType_t,
        peer: i32,
        comm: ncclComm_t,
        stream: cudaStream_t,
    ) -> ncclResult_t;

    /// Writes into a window of another rank, then signals that rank.
    #[call(refused)]
    fn ncclPutSignal(
        localbuff: *const c_void,
        count: usize,
        datatype: ncclDataType_t,
        peer: i32,
        peerWin: ncclWindow_t,
        peerWinOffset: usize,
        sigIdx: i32,
        ctx: i32,
        flags: u32,
        comm: ncclComm_t,
        stream: cudaStream_t,
    ) -> ncclResult_t;

    /// Signals another rank.
    #[call(refused)]
    fn ncclSignal(
        peer: i32,
        sigIdx: i32,
        ctx: i32,
        flags: u32,
        comm: ncclComm_t,
        stream: cudaStream_t,
    ) -> ncclResult_t;

    /// Waits for signals of other ranks.
    #[call(refused)]
    fn ncclWaitSignal(
        nDesc: i32,
        signalDescs: *mut ncclWaitSignalDesc_t,
        comm: ncclComm_t,
        stream: cudaStream_t,
    ) -> ncclResult_t;
}
