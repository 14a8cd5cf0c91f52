    /// Answered by a method that several functions share.
    ///
    /// # Safety
    /// The contract of the C function.
    pub unsafe fn cudaShared(&self, dst: * mut c_void, src: * const c_void, count: usize, stream: cudaStream_t) -> cudaError_t {
        crate::runtime::status(|| self.copy(dst, src, count, In(stream)))
    }

// ---- exported by version 12 and 13

/// Answered by a method that several functions share.
///
/// # Safety
/// The contract of the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaShared(dst: * mut c_void, src: * const c_void, count: usize, stream: cudaStream_t) -> cudaError_t {
    guard(MAJOR, "cudaShared", false, |runtime| {
        // SAFETY: the application's contract, passed on.
        unsafe { runtime.cudaShared(dst, src, count, stream) }
    })
}

// ---- exported by version 12 and 13

/// Answered by a method that several functions share.
///
/// # Safety
/// The contract of the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaShared_ptsz(dst: * mut c_void, src: * const c_void, count: usize, stream: cudaStream_t) -> cudaError_t {
    guard(MAJOR, "cudaShared_ptsz", true, |runtime| {
        // SAFETY: the application's contract, passed on.
        unsafe { runtime.cudaShared(dst, src, count, per_thread(stream)) }
    })
}
