//! What a program asks before it has a device: the driver's start and version, errors by name, functions by name and version.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::OnceLock;

use towline_backend::cuda::*;
use towline_client::raw::Out;
use towline_wire::cuda::{ProcMissing, proc_symbol};

use crate::driver::{Driver, DriverCalls};

/// The names of errors as C strings, made once.
fn name(error: CUresult) -> Option<&'static CStr> {
    static NAMES: OnceLock<HashMap<CUresult, CString>> = OnceLock::new();
    let names = NAMES.get_or_init(|| {
        let name = |error| Some((error, CString::new(status_name(error)?).ok()?));
        (0..=CUDA_ERROR_UNKNOWN).filter_map(name).collect()
    });
    names.get(&error).map(CString::as_c_str)
}

/// Tells a text. As natively, what is unknown is NULL.
fn tell_text(target: &Out<*const c_char>, text: Option<&'static CStr>) -> Result<(), CUresult> {
    target.set(text.map_or(std::ptr::null(), CStr::as_ptr));
    match text {
        Some(_) if target.wanted() => Ok(()),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

/// The address of the function that `symbol` means to a program, and how the search went.
fn find(
    driver_version: i32,
    symbol: &str,
    version: i32,
    flags: cuuint64_t,
) -> (Option<*const c_void>, CUdriverProcAddressQueryResult) {
    let per_thread = flags & u64::from(CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
    // A server's driver has no function of a later version, whatever the program knows.
    match proc_symbol(symbol, version.min(driver_version), per_thread) {
        Ok(found) => (
            crate::export::address(found.name),
            CU_GET_PROC_ADDRESS_SUCCESS,
        ),
        Err(ProcMissing::Version) => (None, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT),
        Err(ProcMissing::Name) => (None, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND),
    }
}

impl Driver {
    fn version(&self) -> Result<i32, CUresult> {
        self.started().map(|started| started.version)
    }
}

impl DriverCalls for Driver {
    fn cuInit(&self, Flags: u32) -> Result<(), CUresult> {
        if Flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        self.initialise()
    }

    fn cuDriverGetVersion(&self) -> Result<i32, CUresult> {
        self.version()
    }

    fn cuGetErrorString(&self, error: CUresult, pStr: Out<*const c_char>) -> Result<(), CUresult> {
        tell_text(&pStr, status_text(error))
    }

    fn cuGetErrorName(&self, error: CUresult, pStr: Out<*const c_char>) -> Result<(), CUresult> {
        tell_text(&pStr, name(error))
    }

    fn cuGetProcAddress(
        &self,
        symbol: &[u8],
        cudaVersion: i32,
        flags: cuuint64_t,
    ) -> Result<*mut c_void, CUresult> {
        DriverCalls::cuGetProcAddress_v2(self, symbol, cudaVersion, flags, Out::none())
    }

    fn cuGetProcAddress_v2(
        &self,
        symbol: &[u8],
        cudaVersion: i32,
        flags: cuuint64_t,
        symbolStatus: Out<CUdriverProcAddressQueryResult>,
    ) -> Result<*mut c_void, CUresult> {
        if flags >= 4 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let version = self.version().unwrap_or(i32::MAX);
        let name = String::from_utf8_lossy(symbol);
        // The runtime asks for this by the name of its first version, and means the one with a status.
        let wanted = match (&*name, cudaVersion) {
            ("cuGetProcAddress_v2", _) => "cuGetProcAddress",
            (name, _) => name,
        };
        let (address, outcome) = find(version, wanted, cudaVersion, flags);
        symbolStatus.set(outcome);
        if address.is_none() {
            log::debug!("cuGetProcAddress: no {name} for version {cudaVersion}");
        }
        // Success without an address: the status alone says that there is none (seen with driver 580.159).
        Ok(address.unwrap_or(std::ptr::null()).cast_mut())
    }

    fn cuGetExportTable(
        &self,
        ppExportTable: Out<*const c_void>,
        pExportTableId: &CUuuid,
    ) -> Result<(), CUresult> {
        let id = pExportTableId.bytes.map(|byte| byte as u8);
        let table = crate::tables::find(self, &id);
        // Success with nothing written would have the caller jump anywhere.
        ppExportTable.set(table.unwrap_or(std::ptr::null()));
        match table {
            Some(_) if ppExportTable.wanted() => Ok(()),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(symbol: &str) -> Option<*const c_void> {
        crate::export::address(symbol)
    }

    #[test]
    fn a_function_is_found_by_version_and_kind_of_default_stream() {
        let newest = |name, version, flags| find(13_000, name, version, flags);
        assert_eq!(
            newest("cuMemAlloc", 12_000, 0),
            (address("cuMemAlloc_v2"), CU_GET_PROC_ADDRESS_SUCCESS)
        );
        assert_eq!(
            newest("cuLaunchKernel", 12_000, 2),
            (address("cuLaunchKernel_ptsz"), CU_GET_PROC_ADDRESS_SUCCESS)
        );
        assert_eq!(
            newest("cuLaunchKernel", 12_000, 1),
            (address("cuLaunchKernel"), CU_GET_PROC_ADDRESS_SUCCESS)
        );
    }

    #[test]
    fn a_function_later_than_the_servers_driver_is_not_found() {
        let missing = (None, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
        assert_eq!(find(11_040, "cuLibraryLoadData", 13_000, 0), missing);
        assert_eq!(find(13_000, "cuLibraryLoadData", 11_040, 0), missing);
        let unknown = (None, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
        assert_eq!(find(13_000, "cuNobodyHasThis", 13_000, 0), unknown);
    }

    #[test]
    fn what_is_not_found_is_null_and_says_why() {
        let driver = Driver::default();
        let (mut found, mut why) = (std::ptr::dangling_mut::<c_void>(), 0);
        // SAFETY: all pointers are to locals.
        let status = unsafe {
            CudaApi::cuGetProcAddress_v2(
                &driver,
                c"cuNobodyHasThis".as_ptr(),
                &raw mut found,
                12_000,
                0,
                &raw mut why,
            )
        };
        assert_eq!(status, CUDA_SUCCESS);
        assert!(found.is_null());
        assert_eq!(why, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    }

    #[test]
    fn errors_have_names_and_texts_and_unknown_ones_are_null() {
        let driver = Driver::default();
        let mut text = std::ptr::null();
        // SAFETY: `text` is a local.
        let status =
            unsafe { CudaApi::cuGetErrorName(&driver, CUDA_ERROR_NO_DEVICE, &raw mut text) };
        assert_eq!(status, CUDA_SUCCESS);
        // SAFETY: the driver wrote a string of its own.
        assert_eq!(unsafe { CStr::from_ptr(text) }, c"CUDA_ERROR_NO_DEVICE");
        assert!(
            (0..=CUDA_ERROR_UNKNOWN)
                .all(|error| name(error).is_some() == status_text(error).is_some())
        );
        assert_eq!(
            status_text(CUDA_ERROR_INVALID_VALUE),
            Some(c"invalid argument")
        );
        // SAFETY: as above.
        let status = unsafe { CudaApi::cuGetErrorString(&driver, 77_777, &raw mut text) };
        assert_eq!((status, text.is_null()), (CUDA_ERROR_INVALID_VALUE, true));
    }
}
