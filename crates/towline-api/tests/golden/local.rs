// ---- the C ABI (stub)

/// Is answered by the client.
///
/// # Safety
/// The contract of the C function.
#[allow(non_snake_case, clippy::too_many_arguments)]
pub(crate) unsafe extern "C" fn clLocal(context: cl_context) -> cl_int {
    guard("clLocal", OUT_OF_HOST_MEMORY, std::ptr::null_mut(), |library| {
        // SAFETY: the application's contract, passed on.
        unsafe { OpenClApi::clLocal(library, context) }
    })
}

// ---- the contract (backend)

    /// Is answered by the client.
    ///
    /// # Safety
    /// The contract of the C function: pointers are valid for what the call does with them, handles are live.
    unsafe fn clLocal(&self, context: cl_context) -> cl_int {
        let _ = (context,);
        NOT_SUPPORTED as cl_int
    }

// ---- the platform's method to write (stub)

    /// Is answered by the client.
    ///
    /// # Safety
    /// The contract of the C function, for what is still a pointer here.
    unsafe fn clLocal(&self, context: cl_context) -> Result<(), cl_int>;

// ---- the platform's glue (stub)

    unsafe fn clLocal(&self, context: cl_context) -> cl_int {
        // SAFETY: the caller's contract, passed on.
        let result = unsafe { CallsCalls::clLocal(self, context) };
        raw::status(result)
    }

// ---- the vendors' half (backend)

    unsafe fn clLocal(&self, context: cl_context) -> cl_int {
        if let Some(function) = self.vendor(context.cast()).functions.clLocal {
            // SAFETY: the caller's contract is the contract of the vendor's function.
            return unsafe { function(context) };
        }
        let _ = (context,);
        NOT_SUPPORTED as cl_int
    }
