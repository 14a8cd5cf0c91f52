//! Errors of the calling thread.

extern "C" {
    /// Tells the thread's last error and forgets it.
    #[call(unrecorded)]
    fn cudaGetLastError() -> cudaError_t;

    /// Tells the thread's last error.
    #[call(unrecorded)]
    fn cudaPeekAtLastError() -> cudaError_t;

    /// The name of an error.
    #[call]
    fn cudaGetErrorName(error: cudaError_t) -> *const c_char;

    /// What an error means.
    #[call]
    fn cudaGetErrorString(error: cudaError_t) -> *const c_char;
}
