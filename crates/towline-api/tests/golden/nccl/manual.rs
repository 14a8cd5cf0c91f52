// ---- exported by libcuda.so.1

/// Written by hand.
///
/// # Safety
/// The contract of the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_ncclManual(count: usize, comm: ncclComm_t, stream: cudaStream_t) -> ncclResult_t {
    guard("ncclManual", ncclInternalError, || {
        // SAFETY: the application's contract, passed on.
        unsafe { crate::nccl::ncclManual(count, comm, stream) }
    })
}

// ---- exported by libnccl.so.2

jump!(ncclManual, "towline_ncclManual");
jump!(pncclManual, "towline_ncclManual");
