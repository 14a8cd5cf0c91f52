// ---- exported by libcuda.so.1

/// Refused with nothing.
///
/// # Safety
/// The contract of the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_ncclRefusedNothing() {
    guard("ncclRefusedNothing", (), || refuse("ncclRefusedNothing", ()))
}

// ---- exported by libnccl.so.2

jump!(ncclRefusedNothing, "towline_ncclRefusedNothing");
jump!(pncclRefusedNothing, "towline_ncclRefusedNothing");
