// ---- the C ABI (export)

/// What goes in and comes out again, and what cannot travel: composed by the client.
///
/// # Safety
/// The contract of the C function.
#[allow(non_snake_case, clippy::too_many_arguments)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuComposed(count: *mut usize, place: *const CUplace, fn_: CUhostFn, userData: *mut c_void) -> CUresult {
    guard("cuComposed", |driver| {
        // SAFETY: the application's contract, passed on.
        unsafe { CudaApi::cuComposed(driver, count, place, fn_, userData) }
    })
}

// ---- its symbols (symbols)

    ProcSymbol { base: "cuComposed", since: 2000, per_thread: false, name: "cuComposed" },

// ---- the contract (backend)

    /// What goes in and comes out again, and what cannot travel: composed by the client.
    ///
    /// # Safety
    /// The contract of the C function: pointers are valid for what the call does with them, handles are live.
    unsafe fn cuComposed(&self, count: *mut usize, place: *const CUplace, fn_: CUhostFn, userData: *mut c_void) -> CUresult {
        let _ = (count, place, fn_, userData);
        NOT_SUPPORTED as CUresult
    }

// ---- the session's method to write (remote)

    /// What goes in and comes out again, and what cannot travel: composed by the client.
    ///
    /// # Safety
    /// The contract of the C function, for the application's functions.
    unsafe fn cuComposed(&self, count: &mut usize, place: &CUplace, fn_: CUhostFn, userData: *mut c_void) -> Result<(), CUresult>;

// ---- the session's half (remote)

    unsafe fn cuComposed(&self, count: *mut usize, place: *const CUplace, fn_: CUhostFn, userData: *mut c_void) -> CUresult {
        // SAFETY: the caller's contract: `count` is NULL or writable as far as the declaration says.
        let count = unsafe { count.as_mut() };
        // SAFETY: the caller's contract: `place` is NULL or readable as far as the declaration says.
        let place = unsafe { place.as_ref() };
        let Some(count) = count else { return self.ready().err().unwrap_or(wire::CUDA_ERROR_INVALID_VALUE); };
        let Some(place) = place else { return self.ready().err().unwrap_or(wire::CUDA_ERROR_INVALID_VALUE); };
        // SAFETY: the caller's contract, passed on.
        let result = unsafe { CallsCalls::cuComposed(self, count, place, fn_, userData) };
        match result {
            Ok(()) => {
                wire::CUDA_SUCCESS
            }
            Err(status) => status,
        }
    }

// ---- the vendors' half (backend)

    unsafe fn cuComposed(&self, count: *mut usize, place: *const CUplace, fn_: CUhostFn, userData: *mut c_void) -> CUresult {
        if let Some(vendor) = self.functions.cuComposed {
            // SAFETY: the caller's contract is the contract of the vendor's function.
            return unsafe { vendor(count, place, fn_, userData) };
        }
        let _ = (count, place, fn_, userData);
        NOT_SUPPORTED as CUresult
    }
