    /// Passed on without a current context.
    ///
    /// # Safety
    /// The contract of the C function.
    pub unsafe fn cudaBare(&self, value: * mut i32) -> cudaError_t {
        let driver = match self.start() {
            Ok(driver) => driver,
            Err(error) => return error,
        };
        // SAFETY: the application's contract, passed on; both sides' types have one layout.
        unsafe { driver.cuBare(value.pass()) }
    }

// ---- exported by version 12 and 13

/// Passed on without a current context.
///
/// # Safety
/// The contract of the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaBare(value: * mut i32) -> cudaError_t {
    guard_unrecorded(MAJOR, "cudaBare", false, |runtime| {
        // SAFETY: the application's contract, passed on.
        unsafe { runtime.cudaBare(value) }
    })
}
