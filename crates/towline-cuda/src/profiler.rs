//! The profiler's calls: without a profiler they succeed and do nothing, and none attaches to a client.

use std::ffi::c_char;

use towline_backend::cuda::*;

use crate::driver::{Driver, ToolsCalls, status};

impl ToolsCalls for Driver {
    unsafe fn cuProfilerInitialize(
        &self,
        _configFile: *const c_char,
        _outputFile: *const c_char,
        _outputMode: CUoutput_mode,
    ) -> CUresult {
        // As every driver since CUDA 12.
        self.ready().err().unwrap_or(CUDA_ERROR_NOT_SUPPORTED)
    }

    unsafe fn cuProfilerStart(&self) -> CUresult {
        status(self.current().map(|_| ()))
    }

    unsafe fn cuProfilerStop(&self) -> CUresult {
        status(self.current().map(|_| ()))
    }
}
