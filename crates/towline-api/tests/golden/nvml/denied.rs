// ---- the C ABI (export)

/// Refused because no client may.
///
/// # Safety
/// The contract of the C function.
#[allow(non_snake_case, clippy::too_many_arguments)]
#[cfg_attr(target_os = "linux", unsafe(export_name = "towline_nvmlDenied"))]
#[cfg_attr(not(target_os = "linux"), unsafe(no_mangle))]
pub unsafe extern "C" fn nvmlDenied(device: nvmlDevice_t, limit: u32) -> nvmlReturn_t {
    guard("nvmlDenied", |driver| {
        // SAFETY: the application's contract, passed on.
        unsafe { NvmlApi::nvmlDenied(driver, device, limit) }
    })
}

// ---- the contract (backend)

    /// Refused because no client may.
    ///
    /// # Safety
    /// The contract of the C function: pointers are valid for what the call does with them, handles are live.
    unsafe fn nvmlDenied(&self, device: nvmlDevice_t, limit: u32) -> nvmlReturn_t {
        let _ = (device, limit);
        NO_PERMISSION as nvmlReturn_t
    }
