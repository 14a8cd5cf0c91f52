// ---- exported by version 12 and 13

/// Answered by a method of its own, and no status.
///
/// # Safety
/// The contract of the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaManual(error: cudaError_t) -> * const c_char {
    guard_plain(MAJOR, "cudaManual", false, |runtime| {
        // SAFETY: the application's contract, passed on.
        unsafe { runtime.cudaManual(error) }
    })
}
