    /// Passed on with the driver's function of a kernel.
    ///
    /// # Safety
    /// The contract of the C function.
    pub unsafe fn cudaKernel(&self, count: * mut usize, func: * const c_void) -> cudaError_t {
        let driver = match self.start() {
            Ok(driver) => driver,
            Err(error) => return error,
        };
        let func = match self.function(func) {
            Ok((_, function)) => function,
            Err(error) => return error,
        };
        // SAFETY: the application's contract, passed on; both sides' types have one layout.
        unsafe { driver.cuKernel(count.pass(), func.pass()) }
    }

// ---- exported by version 13

/// Passed on with the driver's function of a kernel.
///
/// # Safety
/// The contract of the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaKernel(count: * mut usize, func: * const c_void) -> cudaError_t {
    guard(MAJOR, "cudaKernel", false, |runtime| {
        // SAFETY: the application's contract, passed on.
        unsafe { runtime.cudaKernel(count, func) }
    })
}
