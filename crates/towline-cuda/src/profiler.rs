//! The calls of tools. Those of the profiler succeed without one and do nothing, and none attaches to a client; the others are the
//! driver's log.

use std::ffi::c_void;

use towline_backend::cuda::*;
use towline_client::raw::OutList;

use crate::driver::{Driver, ToolsCalls};
use crate::messages;

impl ToolsCalls for Driver {
    fn cuProfilerInitialize(
        &self,
        _configFile: Option<&[u8]>,
        _outputFile: Option<&[u8]>,
        _outputMode: CUoutput_mode,
    ) -> Result<(), CUresult> {
        // As every driver since CUDA 12.
        self.ready().and(Err(CUDA_ERROR_NOT_SUPPORTED))
    }

    fn cuProfilerStart(&self) -> Result<(), CUresult> {
        self.current().map(|_| ())
    }

    fn cuProfilerStop(&self) -> Result<(), CUresult> {
        self.current().map(|_| ())
    }

    unsafe fn cuLogsRegisterCallback(
        &self,
        callbackFunc: CUlogsCallback,
        userData: *mut c_void,
    ) -> Result<CUlogsCallbackHandle, CUresult> {
        messages::register(callbackFunc, userData)
    }

    fn cuLogsUnregisterCallback(&self, callback: CUlogsCallbackHandle) -> Result<(), CUresult> {
        messages::unregister(callback)
    }

    fn cuLogsCurrent(&self, flags: u32) -> Result<CUlogIterator, CUresult> {
        messages::current(flags)
    }

    fn cuLogsDumpToFile(
        &self,
        iterator: Option<&mut CUlogIterator>,
        pathToFile: &[u8],
        flags: u32,
    ) -> Result<(), CUresult> {
        messages::dump_to_file(iterator, pathToFile, flags)
    }

    fn cuLogsDumpToMemory(
        &self,
        iterator: Option<&mut CUlogIterator>,
        buffer: OutList<u8>,
        size: &mut usize,
        flags: u32,
    ) -> Result<(), CUresult> {
        messages::dump_to_memory(iterator, &buffer, size, flags)
    }
}
