//! Errors of the calling thread, and what errors are called.

use std::ffi::{CStr, c_char};

use crate::runtime::Runtime;
use crate::types::*;

fn described(error: cudaError_t) -> Option<&'static (cudaError_t, &'static CStr, &'static CStr)> {
    let at = ERRORS.binary_search_by_key(&error, |(number, ..)| *number);
    ERRORS.get(at.ok()?)
}

/// An error's name, for the log.
pub(crate) fn name(error: cudaError_t) -> &'static str {
    let name = described(error).and_then(|(_, name, _)| name.to_str().ok());
    name.unwrap_or("an unknown error")
}

impl Runtime {
    /// Forgets also an error after which a device is of no use, which other calls go on to tell (seen with NVIDIA's library over driver
    /// 580.159).
    pub unsafe fn cudaGetLastError(&self) -> cudaError_t {
        crate::guard::take_last()
    }

    pub unsafe fn cudaPeekAtLastError(&self) -> cudaError_t {
        crate::guard::last()
    }

    pub unsafe fn cudaGetErrorName(&self, error: cudaError_t) -> *const c_char {
        described(error)
            .map_or(c"unrecognized error code", |(_, name, _)| *name)
            .as_ptr()
    }

    pub unsafe fn cudaGetErrorString(&self, error: cudaError_t) -> *const c_char {
        described(error)
            .map_or(c"unrecognized error code", |(_, _, text)| *text)
            .as_ptr()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_can_be_searched() {
        assert!(ERRORS.is_sorted_by(|one, other| one.0 < other.0));
        assert_eq!(name(cudaErrorMemoryAllocation), "cudaErrorMemoryAllocation");
        assert_eq!(name(77_777), "an unknown error");
    }

    /// What the driver answers is passed on as it is.
    #[test]
    fn an_error_has_the_drivers_number() {
        use towline_backend::cuda::*;

        for (ours, drivers) in [
            (cudaErrorInvalidValue, CUDA_ERROR_INVALID_VALUE),
            (cudaErrorMemoryAllocation, CUDA_ERROR_OUT_OF_MEMORY),
            (
                cudaErrorNoKernelImageForDevice,
                CUDA_ERROR_NO_BINARY_FOR_GPU,
            ),
            (cudaErrorInvalidResourceHandle, CUDA_ERROR_INVALID_HANDLE),
            (cudaErrorNotReady, CUDA_ERROR_NOT_READY),
            (cudaErrorIllegalAddress, CUDA_ERROR_ILLEGAL_ADDRESS),
            (
                cudaErrorStreamCaptureWrongThread,
                CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
            ),
        ] {
            assert_eq!(ours, drivers);
        }
    }
}
