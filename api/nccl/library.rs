//! The library itself, errors and memory.

extern "C" {
    /// Tells the version of the library as one number.
    #[call]
    fn ncclGetVersion(version: *mut i32) -> ncclResult_t;

    /// Describes a result in words.
    #[call]
    fn ncclGetErrorString(result: ncclResult_t) -> *const c_char;

    /// Describes the last failure in detail.
    #[call]
    fn ncclGetLastError(comm: ncclComm_t) -> *const c_char;

    /// Has the variables that choose what is logged read again.
    #[call]
    fn ncclResetDebugInit();

    /// Has the library's own copy of those variables read again.
    #[call(refused = ())]
    fn ncclResetDebugInitInternal();

    /// Allocates device memory that suits communication.
    #[call]
    fn ncclMemAlloc(ptr: *mut *mut c_void, size: usize) -> ncclResult_t;

    /// Frees memory that `ncclMemAlloc` allocated.
    #[call]
    fn ncclMemFree(ptr: *mut c_void) -> ncclResult_t;

    /// Has connections between processes encrypted with a key.
    #[call(refused)]
    fn ncclSetEncryption(config: *const ncclEncryptionConfig_t) -> ncclResult_t;
}
