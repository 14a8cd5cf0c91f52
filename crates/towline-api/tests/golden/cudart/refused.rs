    /// Refused.
    ///
    /// # Safety
    /// The contract of the C function.
    pub unsafe fn cudaRefused(&self, flags: u32) -> cudaError_t {
        let _ = (flags,);
        self.refuse("cudaRefused")
    }

// ---- exported by version 12

/// Refused.
///
/// # Safety
/// The contract of the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaRefused(flags: u32) -> cudaError_t {
    guard(MAJOR, "cudaRefused", false, |runtime| {
        // SAFETY: the application's contract, passed on.
        unsafe { runtime.cudaRefused(flags) }
    })
}
