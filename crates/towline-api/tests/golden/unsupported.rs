// ---- the C ABI (stub)

/// Is refused.
///
/// # Safety
/// The contract of the C function.
#[allow(non_snake_case, clippy::too_many_arguments)]
pub(crate) unsafe extern "C" fn clUnsupported(context: cl_context, count: cl_uint) -> cl_int {
    guard("clUnsupported", OUT_OF_HOST_MEMORY, std::ptr::null_mut(), |library| {
        // SAFETY: the application's contract, passed on.
        unsafe { OpenClApi::clUnsupported(library, context, count) }
    })
}

// ---- the contract (backend)

    /// Is refused.
    ///
    /// # Safety
    /// The contract of the C function: pointers are valid for what the call does with them, handles are live.
    unsafe fn clUnsupported(&self, context: cl_context, count: cl_uint) -> cl_int {
        let _ = (context, count);
        NOT_SUPPORTED as cl_int
    }
