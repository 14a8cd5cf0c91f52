// ---- exported by libcuda.so.1

/// Written by hand, and text.
///
/// # Safety
/// The contract of the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_ncclManualText(result: ncclResult_t) -> * const c_char {
    guard("ncclManualText", c"failed inside Towline".as_ptr(), || {
        // SAFETY: the application's contract, passed on.
        unsafe { crate::nccl::ncclManualText(result) }
    })
}

// ---- exported by libnccl.so.2

jump!(ncclManualText, "towline_ncclManualText");
jump!(pncclManualText, "towline_ncclManualText");
