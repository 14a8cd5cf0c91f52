//! One function for each way in which the runtime's are answered. What is generated for it is compared with
//! `tests/golden/cudart/<name>.rs`.

extern "C" {
    /// Passed on to the driver, under a symbol for each kind of default stream.
    #[call(driver = "cuPassed", ptsz)]
    fn cudaPassed(count: usize, stream: cudaStream_t) -> cudaError_t;

    /// Passed on without a current context.
    #[call(bare = "cuBare", unrecorded)]
    fn cudaBare(value: *mut i32) -> cudaError_t;

    /// Passed on with the driver's function of a kernel.
    #[call(driver = "cuKernel", only = 13)]
    fn cudaKernel(count: *mut usize, #[kernel] func: *const c_void) -> cudaError_t;

    /// Passed on unless there is nothing to do.
    #[call(driver = "cuUnlessNull", symbol_12 = "cudaUnlessNull_v2")]
    fn cudaUnlessNull(#[unless_null] ptr: *mut c_void) -> cudaError_t;

    /// Answered by a method that several functions share.
    #[call(by = self.copy(dst, src, count, In(stream)), ptsz)]
    fn cudaShared(
        dst: *mut c_void,
        src: *const c_void,
        count: usize,
        stream: cudaStream_t,
    ) -> cudaError_t;

    /// Answered by a method of its own, and no status.
    #[call]
    fn cudaManual(error: cudaError_t) -> *const c_char;

    /// Refused.
    #[call(refused, only = 12)]
    fn cudaRefused(flags: u32) -> cudaError_t;
}
