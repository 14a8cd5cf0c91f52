    /// Passed on unless there is nothing to do.
    ///
    /// # Safety
    /// The contract of the C function.
    pub unsafe fn cudaUnlessNull(&self, ptr: * mut c_void) -> cudaError_t {
        let driver = match self.enter() {
            Ok(driver) => driver,
            Err(error) => return error,
        };
        if ptr.is_null() {
            return cudaSuccess;
        }
        // SAFETY: the application's contract, passed on; both sides' types have one layout.
        unsafe { driver.cuUnlessNull(ptr.pass()) }
    }

// ---- exported by version 13

/// Passed on unless there is nothing to do.
///
/// # Safety
/// The contract of the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaUnlessNull(ptr: * mut c_void) -> cudaError_t {
    guard(MAJOR, "cudaUnlessNull", false, |runtime| {
        // SAFETY: the application's contract, passed on.
        unsafe { runtime.cudaUnlessNull(ptr) }
    })
}

// ---- exported by version 12

/// Passed on unless there is nothing to do.
///
/// # Safety
/// The contract of the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaUnlessNull_v2(ptr: * mut c_void) -> cudaError_t {
    guard(MAJOR, "cudaUnlessNull_v2", false, |runtime| {
        // SAFETY: the application's contract, passed on.
        unsafe { runtime.cudaUnlessNull(ptr) }
    })
}
