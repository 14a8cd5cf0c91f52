// ---- the C ABI (export)

/// Structures with pointers inside, which the call's contract vouches for; one comes out again.
///
/// # Safety
/// The contract of the C function.
#[allow(non_snake_case, clippy::too_many_arguments)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuVouched(work: *const CUwork, made: *mut CUwork) -> CUresult {
    guard("cuVouched", |driver| {
        // SAFETY: the application's contract, passed on.
        unsafe { CudaApi::cuVouched(driver, work, made) }
    })
}

// ---- its symbols (symbols)

    ProcSymbol { base: "cuVouched", since: 2000, per_thread: false, name: "cuVouched" },

// ---- the contract (backend)

    /// Structures with pointers inside, which the call's contract vouches for; one comes out again.
    ///
    /// # Safety
    /// The contract of the C function: pointers are valid for what the call does with them, handles are live.
    unsafe fn cuVouched(&self, work: *const CUwork, made: *mut CUwork) -> CUresult {
        let _ = (work, made);
        NOT_SUPPORTED as CUresult
    }

// ---- the session's method to write (remote)

    /// Structures with pointers inside, which the call's contract vouches for; one comes out again.
    fn cuVouched(&self, work: crate::raw::Vouched<'_, CUwork>, made: crate::raw::InOut<'_, CUwork>) -> Result<(), CUresult>;

// ---- the session's half (remote)

    unsafe fn cuVouched(&self, work: *const CUwork, made: *mut CUwork) -> CUresult {
        // SAFETY: the caller's contract: `made` is NULL or readable and writable, and its pointers are valid for what the call does with them.
        let made = unsafe { crate::raw::InOut::new(made) };
        // SAFETY: the caller's contract: `work` is NULL or readable, and its pointers are valid for what the call does with them.
        let work = unsafe { crate::raw::Vouched::read(work) };
        let Some(work) = work else { return self.ready().err().unwrap_or(wire::CUDA_ERROR_INVALID_VALUE); };
        let Some(made) = made else { return self.ready().err().unwrap_or(wire::CUDA_ERROR_INVALID_VALUE); };
        let result = CallsCalls::cuVouched(self, work, made);
        match result {
            Ok(()) => {
                wire::CUDA_SUCCESS
            }
            Err(status) => status,
        }
    }

// ---- the vendors' half (backend)

    unsafe fn cuVouched(&self, work: *const CUwork, made: *mut CUwork) -> CUresult {
        if let Some(vendor) = self.functions.cuVouched {
            // SAFETY: the caller's contract is the contract of the vendor's function.
            return unsafe { vendor(work, made) };
        }
        let _ = (work, made);
        NOT_SUPPORTED as CUresult
    }
