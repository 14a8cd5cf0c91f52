//! Memory that communicators know.

extern "C" {
    /// Allocates device memory that communicators may register.
    #[call]
    fn ncclMemAlloc(ptr: *mut *mut c_void, size: usize) -> ncclResult_t;

    /// Frees such memory.
    #[call]
    fn ncclMemFree(ptr: *mut c_void) -> ncclResult_t;

    /// Makes a buffer known to a communicator.
    #[call]
    fn ncclCommRegister(
        comm: ncclComm_t,
        buff: *mut c_void,
        size: usize,
        handle: *mut *mut c_void,
    ) -> ncclResult_t;

    /// Has a communicator forget a buffer.
    #[call]
    fn ncclCommDeregister(comm: ncclComm_t, handle: *mut c_void) -> ncclResult_t;

    /// Makes a window of memory known to all ranks.
    #[call]
    fn ncclCommWindowRegister(
        comm: ncclComm_t,
        buff: *mut c_void,
        size: usize,
        win: *mut ncclWindow_t,
        winFlags: c_int,
    ) -> ncclResult_t;

    /// Ends a window.
    #[call]
    fn ncclCommWindowDeregister(comm: ncclComm_t, win: ncclWindow_t) -> ncclResult_t;

    /// Tells where the memory of a window lies.
    #[call(refused)]
    fn ncclWinGetUserPtr(
        comm: ncclComm_t,
        win: ncclWindow_t,
        outUserPtr: *mut *mut c_void,
    ) -> ncclResult_t;
}
