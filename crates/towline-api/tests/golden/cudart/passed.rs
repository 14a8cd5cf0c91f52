    /// Passed on to the driver, under a symbol for each kind of default stream.
    ///
    /// # Safety
    /// The contract of the C function.
    pub unsafe fn cudaPassed(&self, count: usize, stream: cudaStream_t) -> cudaError_t {
        let driver = match self.enter() {
            Ok(driver) => driver,
            Err(error) => return error,
        };
        // SAFETY: the application's contract, passed on; both sides' types have one layout.
        unsafe { driver.cuPassed(count.pass(), stream.pass()) }
    }

// ---- exported by version 12 and 13

/// Passed on to the driver, under a symbol for each kind of default stream.
///
/// # Safety
/// The contract of the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaPassed(count: usize, stream: cudaStream_t) -> cudaError_t {
    guard(MAJOR, "cudaPassed", false, |runtime| {
        // SAFETY: the application's contract, passed on.
        unsafe { runtime.cudaPassed(count, stream) }
    })
}

// ---- exported by version 12 and 13

/// Passed on to the driver, under a symbol for each kind of default stream.
///
/// # Safety
/// The contract of the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaPassed_ptsz(count: usize, stream: cudaStream_t) -> cudaError_t {
    guard(MAJOR, "cudaPassed_ptsz", true, |runtime| {
        // SAFETY: the application's contract, passed on.
        unsafe { runtime.cudaPassed(count, per_thread(stream)) }
    })
}
