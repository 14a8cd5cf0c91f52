// ---- the C ABI (export)

/// Lists that share their length, of which one can be left out; the half learns the length from the other.
///
/// # Safety
/// The contract of the C function.
#[allow(non_snake_case, clippy::too_many_arguments)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGivenLists(phNode: *mut CUstream, nodes: *const CUstream, extents: *const CUextent, count: usize) -> CUresult {
    guard("cuGivenLists", |driver| {
        // SAFETY: the application's contract, passed on.
        unsafe { CudaApi::cuGivenLists(driver, phNode, nodes, extents, count) }
    })
}

// ---- its symbols (symbols)

    ProcSymbol { base: "cuGivenLists", since: 2000, per_thread: false, name: "cuGivenLists" },

// ---- the contract (backend)

    /// Lists that share their length, of which one can be left out; the half learns the length from the other.
    ///
    /// # Safety
    /// The contract of the C function: pointers are valid for what the call does with them, handles are live.
    unsafe fn cuGivenLists(&self, phNode: *mut CUstream, nodes: *const CUstream, extents: *const CUextent, count: usize) -> CUresult {
        let _ = (phNode, nodes, extents, count);
        NOT_SUPPORTED as CUresult
    }

// ---- the session's method to write (remote)

    /// Lists that share their length, of which one can be left out; the half learns the length from the other.
    fn cuGivenLists(&self, nodes: &[CUstream], extents: Option<&[CUextent]>) -> Result<CUstream, CUresult>;

// ---- the session's half (remote)

    unsafe fn cuGivenLists(&self, phNode: *mut CUstream, nodes: *const CUstream, extents: *const CUextent, count: usize) -> CUresult {
        if phNode.is_null() { return self.ready().err().unwrap_or(wire::CUDA_ERROR_INVALID_VALUE); }
        // SAFETY: the caller's contract: `nodes` is NULL or readable as far as the declaration says.
        let nodes = unsafe { crate::raw::slice(nodes, (count as usize)) };
        // SAFETY: the caller's contract: `extents` is NULL or readable as far as the declaration says.
        let extents = unsafe { crate::raw::slice(extents, (count as usize)) };
        let Some(nodes) = nodes else { return self.ready().err().unwrap_or(wire::CUDA_ERROR_INVALID_VALUE); };
        let result = CallsCalls::cuGivenLists(self, nodes, extents);
        match result {
            Ok(phNode_value) => {
                // SAFETY: the caller's contract: `phNode` is writable.
                unsafe { phNode.write(phNode_value) };
                wire::CUDA_SUCCESS
            }
            Err(status) => status,
        }
    }

// ---- the vendors' half (backend)

    unsafe fn cuGivenLists(&self, phNode: *mut CUstream, nodes: *const CUstream, extents: *const CUextent, count: usize) -> CUresult {
        if let Some(vendor) = self.functions.cuGivenLists {
            // SAFETY: the caller's contract is the contract of the vendor's function.
            return unsafe { vendor(phNode, nodes, extents, count) };
        }
        let _ = (phNode, nodes, extents, count);
        NOT_SUPPORTED as CUresult
    }
