//! The calls of tools. Those of the profiler succeed without one and do nothing, and none attaches to a client; the others are the
//! driver's log.

use std::ffi::{c_char, c_void};

use towline_backend::cuda::*;

use crate::driver::{Driver, ToolsCalls, status, tell};
use crate::messages;

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

    unsafe fn cuLogsRegisterCallback(
        &self,
        callbackFunc: CUlogsCallback,
        userData: *mut c_void,
        callback_out: *mut CUlogsCallbackHandle,
    ) -> CUresult {
        if callback_out.is_null() {
            return CUDA_ERROR_INVALID_VALUE;
        }
        // SAFETY: the caller's contract.
        unsafe { tell(callback_out, messages::register(callbackFunc, userData)) }
    }

    unsafe fn cuLogsUnregisterCallback(&self, callback: CUlogsCallbackHandle) -> CUresult {
        status(messages::unregister(callback))
    }

    unsafe fn cuLogsCurrent(&self, iterator_out: *mut CUlogIterator, flags: u32) -> CUresult {
        // SAFETY: the caller's contract.
        unsafe { tell(iterator_out, messages::current(flags)) }
    }

    unsafe fn cuLogsDumpToFile(
        &self,
        iterator: *mut CUlogIterator,
        pathToFile: *const c_char,
        flags: u32,
    ) -> CUresult {
        // SAFETY: the caller's contract.
        status(unsafe { messages::dump_to_file(iterator, pathToFile, flags) })
    }

    unsafe fn cuLogsDumpToMemory(
        &self,
        iterator: *mut CUlogIterator,
        buffer: *mut c_char,
        size: *mut usize,
        flags: u32,
    ) -> CUresult {
        // SAFETY: the caller's contract.
        status(unsafe { messages::dump_to_memory(iterator, buffer, size, flags) })
    }
}
