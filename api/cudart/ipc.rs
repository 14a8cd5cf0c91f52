//! Memory and events that processes share.

extern "C" {
    /// Makes an event known to other processes.
    #[call(driver = "cuIpcGetEventHandle")]
    fn cudaIpcGetEventHandle(handle: *mut cudaIpcEventHandle_t, event: cudaEvent_t) -> cudaError_t;

    /// Takes an event of another process.
    #[call(driver = "cuIpcOpenEventHandle")]
    fn cudaIpcOpenEventHandle(event: *mut cudaEvent_t, handle: cudaIpcEventHandle_t)
    -> cudaError_t;

    /// Makes device memory known to other processes.
    #[call(driver = "cuIpcGetMemHandle")]
    fn cudaIpcGetMemHandle(handle: *mut cudaIpcMemHandle_t, devPtr: *mut c_void) -> cudaError_t;

    /// Takes device memory of another process.
    #[call(driver = "cuIpcOpenMemHandle_v2")]
    fn cudaIpcOpenMemHandle(
        devPtr: *mut *mut c_void,
        handle: cudaIpcMemHandle_t,
        flags: u32,
    ) -> cudaError_t;

    /// Gives back memory of another process.
    #[call(driver = "cuIpcCloseMemHandle")]
    fn cudaIpcCloseMemHandle(devPtr: *mut c_void) -> cudaError_t;
}
