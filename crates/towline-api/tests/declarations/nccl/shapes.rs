//! One function for each way in which NCCL's are answered. The code that is generated for it is compared with
//! `tests/golden/nccl/<name>.rs`.

/// no error
const ncclSuccess: ncclResult_t = 0;

extern "C" {
    /// Written by hand.
    #[call]
    fn ncclManual(count: usize, comm: ncclComm_t, stream: cudaStream_t) -> ncclResult_t;

    /// Written by hand, and text.
    #[call]
    fn ncclManualText(result: ncclResult_t) -> *const c_char;

    /// Written by hand, and no result.
    #[call]
    fn ncclManualNothing();

    /// Refused.
    #[call(refused)]
    fn ncclRefused(comm: ncclComm_t, flags: i32) -> ncclResult_t;

    /// Refused with a number.
    #[call(refused = -1)]
    fn ncclRefusedNumber(comm: ncclComm_t) -> i32;

    /// Refused with nothing.
    #[call(refused = ())]
    fn ncclRefusedNothing();
}
