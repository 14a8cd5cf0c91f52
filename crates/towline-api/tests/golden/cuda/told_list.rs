// ---- the C ABI (export)

/// A list with its room behind a pointer, which tells the true length, a place that can be left out, and one that the half itself decides about.
///
/// # Safety
/// The contract of the C function.
#[allow(non_snake_case, clippy::too_many_arguments)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuToldList(nodes: *mut CUstream, count: *mut usize, first: *mut u64, last: *mut CUstream) -> CUresult {
    guard("cuToldList", |driver| {
        // SAFETY: the application's contract, passed on.
        unsafe { CudaApi::cuToldList(driver, nodes, count, first, last) }
    })
}

// ---- its symbols (symbols)

    ProcSymbol { base: "cuToldList", since: 2000, per_thread: false, name: "cuToldList" },

// ---- the contract (backend)

    /// A list with its room behind a pointer, which tells the true length, a place that can be left out, and one that the half itself decides about.
    ///
    /// # Safety
    /// The contract of the C function: pointers are valid for what the call does with them, handles are live.
    unsafe fn cuToldList(&self, nodes: *mut CUstream, count: *mut usize, first: *mut u64, last: *mut CUstream) -> CUresult {
        let _ = (nodes, count, first, last);
        NOT_SUPPORTED as CUresult
    }

// ---- the session's method to write (remote)

    /// A list with its room behind a pointer, which tells the true length, a place that can be left out, and one that the half itself decides about.
    fn cuToldList(&self, nodes: crate::raw::OutList<CUstream>, count: &mut usize, first: crate::raw::Out<u64>, last: crate::raw::Out<CUstream>) -> Result<(), CUresult>;

// ---- the session's half (remote)

    unsafe fn cuToldList(&self, nodes: *mut CUstream, count: *mut usize, first: *mut u64, last: *mut CUstream) -> CUresult {
        // SAFETY: the caller's contract: `count` is NULL or writable as far as the declaration says.
        let count = unsafe { count.as_mut() };
        // SAFETY: the caller's contract: `nodes` is NULL or writable as far as the declaration says.
        let nodes = unsafe { crate::raw::OutList::new(nodes, count.as_deref().map_or(0, |count| *count as usize)) };
        // SAFETY: the caller's contract: `first` is NULL or writable as far as the declaration says.
        let first = unsafe { crate::raw::Out::new(first) };
        // SAFETY: the caller's contract: `last` is NULL or writable as far as the declaration says.
        let last = unsafe { crate::raw::Out::new(last) };
        let Some(count) = count else { return self.ready().err().unwrap_or(wire::CUDA_ERROR_INVALID_VALUE); };
        let result = CallsCalls::cuToldList(self, nodes, count, first, last);
        match result {
            Ok(()) => {
                wire::CUDA_SUCCESS
            }
            Err(status) => status,
        }
    }

// ---- the vendors' half (backend)

    unsafe fn cuToldList(&self, nodes: *mut CUstream, count: *mut usize, first: *mut u64, last: *mut CUstream) -> CUresult {
        if let Some(vendor) = self.functions.cuToldList {
            // SAFETY: the caller's contract is the contract of the vendor's function.
            return unsafe { vendor(nodes, count, first, last) };
        }
        let _ = (nodes, count, first, last);
        NOT_SUPPORTED as CUresult
    }
