// ---- the C ABI (export)

/// Output that is zero where the call fails.
///
/// # Safety
/// The contract of the C function.
#[allow(non_snake_case, clippy::too_many_arguments)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCleared(dptr: *mut CUdeviceptr, bytesize: usize) -> CUresult {
    guard("cuCleared", |driver| {
        // SAFETY: the application's contract: NULL or writable.
        unsafe { clear(dptr) };
        // SAFETY: the application's contract, passed on.
        unsafe { CudaApi::cuCleared(driver, dptr, bytesize) }
    })
}

// ---- its symbols (symbols)

    ProcSymbol { base: "cuCleared", since: 2000, per_thread: false, name: "cuCleared" },

// ---- the contract (backend)

    /// Output that is zero where the call fails.
    ///
    /// # Safety
    /// The contract of the C function: pointers are valid for what the call does with them, handles are live.
    unsafe fn cuCleared(&self, dptr: *mut CUdeviceptr, bytesize: usize) -> CUresult {
        let _ = (dptr, bytesize);
        NOT_SUPPORTED as CUresult
    }

// ---- the session's method to write (remote)

    /// Output that is zero where the call fails.
    fn cuCleared(&self, bytesize: usize) -> Result<CUdeviceptr, CUresult>;

// ---- the session's half (remote)

    unsafe fn cuCleared(&self, dptr: *mut CUdeviceptr, bytesize: usize) -> CUresult {
        if dptr.is_null() { return self.ready().err().unwrap_or(wire::CUDA_ERROR_INVALID_VALUE); }
        let result = CallsCalls::cuCleared(self, bytesize);
        match result {
            Ok(dptr_value) => {
                // SAFETY: the caller's contract: `dptr` is writable.
                unsafe { dptr.write(dptr_value) };
                wire::CUDA_SUCCESS
            }
            Err(status) => status,
        }
    }

// ---- the vendors' half (backend)

    unsafe fn cuCleared(&self, dptr: *mut CUdeviceptr, bytesize: usize) -> CUresult {
        if let Some(vendor) = self.functions.cuCleared {
            // SAFETY: the caller's contract is the contract of the vendor's function.
            return unsafe { vendor(dptr, bytesize) };
        }
        let _ = (dptr, bytesize);
        NOT_SUPPORTED as CUresult
    }
