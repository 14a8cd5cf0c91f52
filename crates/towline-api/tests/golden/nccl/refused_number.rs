// ---- exported by libcuda.so.1

/// Refused with a number.
///
/// # Safety
/// The contract of the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_ncclRefusedNumber(comm: ncclComm_t) -> i32 {
    let _ = comm;
    guard("ncclRefusedNumber", - 1, || refuse("ncclRefusedNumber", - 1))
}

// ---- exported by libnccl.so.2

jump!(ncclRefusedNumber, "towline_ncclRefusedNumber");
jump!(pncclRefusedNumber, "towline_ncclRefusedNumber");
