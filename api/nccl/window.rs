//! Memory that is registered with a communicator.

extern "C" {
    /// Registers memory, so that collectives need not copy it.
    #[call]
    fn ncclCommRegister(
        comm: ncclComm_t,
        buff: *mut c_void,
        size: usize,
        handle: *mut *mut c_void,
    ) -> ncclResult_t;

    /// Ends a registration.
    #[call]
    fn ncclCommDeregister(comm: ncclComm_t, handle: *mut c_void) -> ncclResult_t;

    /// Makes memory of every rank a window that the others reach.
    #[call]
    fn ncclCommWindowRegister(
        comm: ncclComm_t,
        buff: *mut c_void,
        size: usize,
        win: *mut ncclWindow_t,
        winFlags: i32,
    ) -> ncclResult_t;

    /// Ends a window.
    #[call]
    fn ncclCommWindowDeregister(comm: ncclComm_t, win: ncclWindow_t) -> ncclResult_t;

    /// Tells the memory of a window.
    #[call(refused)]
    fn ncclWinGetUserPtr(
        comm: ncclComm_t,
        win: ncclWindow_t,
        outUserPtr: *mut *mut c_void,
    ) -> ncclResult_t;
}
