// ---- the C ABI (export)

/// Text in, text out up to a length, and a value of so many bytes; two results.
///
/// # Safety
/// The contract of the C function.
#[allow(non_snake_case, clippy::too_many_arguments)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuTexts(path: *const c_char, name: *mut c_char, room: i32, value: *mut c_void, kind: *mut u32) -> CUresult {
    guard("cuTexts", |driver| {
        // SAFETY: the application's contract, passed on.
        unsafe { CudaApi::cuTexts(driver, path, name, room, value, kind) }
    })
}

// ---- its symbols (symbols)

    ProcSymbol { base: "cuTexts", since: 2000, per_thread: false, name: "cuTexts" },

// ---- the contract (backend)

    /// Text in, text out up to a length, and a value of so many bytes; two results.
    ///
    /// # Safety
    /// The contract of the C function: pointers are valid for what the call does with them, handles are live.
    unsafe fn cuTexts(&self, path: *const c_char, name: *mut c_char, room: i32, value: *mut c_void, kind: *mut u32) -> CUresult {
        let _ = (path, name, room, value, kind);
        NOT_SUPPORTED as CUresult
    }

// ---- the session's method to write (remote)

    /// Text in, text out up to a length, and a value of so many bytes; two results.
    fn cuTexts(&self, path: &[u8], name: crate::raw::OutList<u8>) -> Result<([u8; 8], u32), CUresult>;

// ---- the session's half (remote)

    unsafe fn cuTexts(&self, path: *const c_char, name: *mut c_char, room: i32, value: *mut c_void, kind: *mut u32) -> CUresult {
        if name.is_null() { return self.ready().err().unwrap_or(wire::CUDA_ERROR_INVALID_VALUE); }
        if value.is_null() { return self.ready().err().unwrap_or(wire::CUDA_ERROR_INVALID_VALUE); }
        if kind.is_null() { return self.ready().err().unwrap_or(wire::CUDA_ERROR_INVALID_VALUE); }
        // SAFETY: the caller's contract: `path` is NULL or a string.
        let path = unsafe { crate::raw::text(path) };
        // SAFETY: the caller's contract: `name` is NULL or writable as far as the declaration says.
        let name = unsafe { crate::raw::OutList::new(name.cast::<u8>(), usize::try_from(room).unwrap_or(0)) };
        let Some(path) = path else { return self.ready().err().unwrap_or(wire::CUDA_ERROR_INVALID_VALUE); };
        let result = CallsCalls::cuTexts(self, path, name);
        match result {
            Ok((value_value, kind_value)) => {
                // SAFETY: the caller's contract: `value` is writable.
                unsafe { value.cast::<[u8; 8]>().write(value_value) };
                // SAFETY: the caller's contract: `kind` is writable.
                unsafe { kind.write(kind_value) };
                wire::CUDA_SUCCESS
            }
            Err(status) => status,
        }
    }

// ---- the vendors' half (backend)

    unsafe fn cuTexts(&self, path: *const c_char, name: *mut c_char, room: i32, value: *mut c_void, kind: *mut u32) -> CUresult {
        if let Some(vendor) = self.functions.cuTexts {
            // SAFETY: the caller's contract is the contract of the vendor's function.
            return unsafe { vendor(path, name, room, value, kind) };
        }
        let _ = (path, name, room, value, kind);
        NOT_SUPPORTED as CUresult
    }
