// ---- the C ABI (export)

/// The default stream, which is the thread's own under another name, though no parameter names it.
///
/// # Safety
/// The contract of the C function.
#[allow(non_snake_case, clippy::too_many_arguments)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuPerThread(dst: CUdeviceptr, src: *const c_void, ByteCount: usize) -> CUresult {
    guard("cuPerThread", |driver| {
        // SAFETY: the application's contract, passed on.
        unsafe { CudaApi::cuPerThread(driver, dst, src, ByteCount) }
    })
}
/// The default stream, which is the thread's own under another name, though no parameter names it.
///
/// # Safety
/// The contract of the C function.
#[allow(non_snake_case, clippy::too_many_arguments)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuPerThread_ptds(dst: CUdeviceptr, src: *const c_void, ByteCount: usize) -> CUresult {
    guard_per_thread("cuPerThread_ptds", |driver| {
        // SAFETY: the application's contract, passed on.
        unsafe { CudaApi::cuPerThread(driver, dst, src, ByteCount) }
    })
}

// ---- its symbols (symbols)

    ProcSymbol { base: "cuPerThread", since: 2000, per_thread: false, name: "cuPerThread" },
    ProcSymbol { base: "cuPerThread", since: 7000, per_thread: true, name: "cuPerThread_ptds" },

// ---- the contract (backend)

    /// The default stream, which is the thread's own under another name, though no parameter names it.
    ///
    /// # Safety
    /// The contract of the C function: pointers are valid for what the call does with them, handles are live.
    unsafe fn cuPerThread(&self, dst: CUdeviceptr, src: *const c_void, ByteCount: usize) -> CUresult {
        let _ = (dst, src, ByteCount);
        NOT_SUPPORTED as CUresult
    }

// ---- the session's method to write (remote)

    /// The default stream, which is the thread's own under another name, though no parameter names it.
    fn cuPerThread(&self, dst: CUdeviceptr, src: crate::raw::HostPtr, ByteCount: usize) -> Result<(), CUresult>;

// ---- the session's half (remote)

    unsafe fn cuPerThread(&self, dst: CUdeviceptr, src: *const c_void, ByteCount: usize) -> CUresult {
        // SAFETY: the caller's contract: `src` is NULL or valid for what the call does with it.
        let src = unsafe { crate::raw::HostPtr::new(src) };
        let result = CallsCalls::cuPerThread(self, dst, src, ByteCount);
        match result {
            Ok(()) => {
                wire::CUDA_SUCCESS
            }
            Err(status) => status,
        }
    }

// ---- the vendors' half (backend)

    unsafe fn cuPerThread(&self, dst: CUdeviceptr, src: *const c_void, ByteCount: usize) -> CUresult {
        if let Some(vendor) = self.functions.cuPerThread {
            // SAFETY: the caller's contract is the contract of the vendor's function.
            return unsafe { vendor(dst, src, ByteCount) };
        }
        let _ = (dst, src, ByteCount);
        NOT_SUPPORTED as CUresult
    }
