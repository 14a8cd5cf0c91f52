//! Functions of the driver by name.

use std::ffi::{c_char, c_void};

use towline_backend::cuda::*;

use crate::guard::own_default;
use crate::runtime::{Outcome, Runtime, status};
use crate::types::*;
use crate::{call, put};

/// Forms of functions with the default stream that the flags say.
const LEGACY_STREAM: u64 = 1;
const PER_THREAD_STREAM: u64 = 2;

impl Runtime {
    pub unsafe fn cudaGetDriverEntryPointByVersion(
        &self,
        symbol: *const c_char,
        funcPtr: *mut *mut c_void,
        cudaVersion: u32,
        flags: u64,
        driverStatus: *mut cudaDriverEntryPointQueryResult,
    ) -> cudaError_t {
        status(|| {
            let version = i32::try_from(cudaVersion).map_err(|_| cudaErrorInvalidValue)?;
            self.entry_point(symbol, funcPtr, version, flags, driverStatus)
        })
    }

    pub(crate) fn entry_point(
        &self,
        symbol: *const c_char,
        funcPtr: *mut *mut c_void,
        version: i32,
        flags: u64,
        driverStatus: *mut cudaDriverEntryPointQueryResult,
    ) -> Outcome {
        if symbol.is_null() || funcPtr.is_null() {
            return Err(cudaErrorInvalidValue);
        }
        let driver = self.start()?;
        let flags = match flags {
            0 if own_default() => PER_THREAD_STREAM,
            0 => LEGACY_STREAM,
            flags => flags,
        };
        let (mut found, mut said) = (std::ptr::null_mut(), 0);
        call!(driver.cuGetProcAddress_v2(symbol, &raw mut found, version, flags, &raw mut said));
        put!(funcPtr, found);
        if !driverStatus.is_null() {
            put!(driverStatus, said);
        } else if found.is_null() {
            return Err(cudaErrorSymbolNotFound);
        }
        Ok(())
    }
}
