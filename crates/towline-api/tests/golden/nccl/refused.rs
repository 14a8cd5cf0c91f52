// ---- exported by libcuda.so.1

/// Refused.
///
/// # Safety
/// The contract of the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_ncclRefused(comm: ncclComm_t, flags: i32) -> ncclResult_t {
    let _ = (comm, flags);
    guard("ncclRefused", ncclInvalidUsage, || refuse("ncclRefused", ncclInvalidUsage))
}

// ---- exported by libnccl.so.2

jump!(ncclRefused, "towline_ncclRefused");
jump!(pncclRefused, "towline_ncclRefused");
