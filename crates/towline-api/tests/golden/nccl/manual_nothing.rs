// ---- exported by libcuda.so.1

/// Written by hand, and no result.
///
/// # Safety
/// The contract of the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_ncclManualNothing() {
    guard("ncclManualNothing", (), || {
        // SAFETY: the application's contract, passed on.
        unsafe { crate::nccl::ncclManualNothing() }
    })
}

// ---- exported by libnccl.so.2

jump!(ncclManualNothing, "towline_ncclManualNothing");
jump!(pncclManualNothing, "towline_ncclManualNothing");
