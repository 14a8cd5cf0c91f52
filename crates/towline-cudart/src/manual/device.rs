//! Devices: how many, which one a thread uses, and peers.

use std::ffi::c_void;

use towline_backend::cuda::*;

use crate::runtime::{Outcome, Runtime, status};
use crate::types::*;
use crate::{call, get, put};

/// Flags that say how a context waits and maps memory; the others are not for the runtime's programs.
const FLAGS: u32 = 0x1f;

/// A driver's status, where a driver that does not support the call is right as well.
fn unless_unsupported(said: CUresult) -> Outcome {
    match said {
        CUDA_ERROR_NOT_SUPPORTED => Ok(()),
        said => crate::runtime::check(said),
    }
}

impl Runtime {
    /// One number about a device.
    pub(crate) fn attribute(&self, ordinal: i32, attribute: CUdevice_attribute) -> Outcome<i32> {
        let device = self.device(ordinal)?;
        let driver = self.start()?;
        let mut value = 0;
        call!(driver.cuDeviceGetAttribute(&raw mut value, attribute, device));
        Ok(value)
    }

    pub unsafe fn cudaGetDeviceCount(&self, count: *mut i32) -> cudaError_t {
        status(|| {
            match self.device_count() {
                Ok(found) => put!(count, found),
                Err(error) => {
                    put!(count, 0);
                    return Err(error);
                }
            }
            Ok(())
        })
    }

    pub unsafe fn cudaGetDevice(&self, device: *mut i32) -> cudaError_t {
        status(|| {
            put!(device, self.thread_device()?);
            Ok(())
        })
    }

    pub unsafe fn cudaSetDevice(&self, device: i32) -> cudaError_t {
        status(|| {
            self.choose(device)?;
            self.make_current(device)
        })
    }

    pub unsafe fn cudaInitDevice(&self, device: i32, deviceFlags: u32, flags: u32) -> cudaError_t {
        /// `flags` says that `deviceFlags` are meant.
        const FLAGS_ARE_VALID: u32 = 1;
        status(|| {
            if flags & !FLAGS_ARE_VALID != 0 || deviceFlags & !FLAGS != 0 {
                return Err(cudaErrorInvalidValue);
            }
            if flags & FLAGS_ARE_VALID != 0 {
                self.set_flags(device, deviceFlags)?;
            }
            self.primary(device)?;
            Ok(())
        })
    }

    pub unsafe fn cudaSetDeviceFlags(&self, flags: u32) -> cudaError_t {
        status(|| {
            let ordinal = self.thread_device()?;
            if flags & !FLAGS != 0 {
                return Err(cudaErrorInvalidValue);
            }
            self.set_flags(ordinal, flags)?;
            self.enter().map(drop)
        })
    }

    pub unsafe fn cudaGetDeviceFlags(&self, flags: *mut u32) -> cudaError_t {
        status(|| {
            let ordinal = self.thread_device()?;
            let device = self.device(ordinal)?;
            let driver = self.start()?;
            let (mut context, mut found, mut active) = (std::ptr::null_mut(), 0, 0);
            call!(driver.cuCtxGetCurrent(&raw mut context));
            if context.is_null() {
                call!(driver.cuDevicePrimaryCtxGetState(device, &raw mut found, &raw mut active));
            } else {
                call!(driver.cuCtxGetFlags(&raw mut found));
                active = 1;
            }
            // The runtime's contexts can always map memory.
            let maps = active != 0 || !self.was_reset(ordinal)?;
            put!(flags, found | if maps { CU_CTX_MAP_HOST } else { 0 });
            Ok(())
        })
    }

    /// The first device of the list that there is becomes the thread's: all can be used here.
    pub unsafe fn cudaSetValidDevices(&self, device_arr: *mut i32, len: i32) -> cudaError_t {
        status(|| {
            let count = self.device_count()?;
            if len < 0 || len > count {
                return Err(cudaErrorInvalidValue);
            }
            if len == 0 {
                return self.choose(0);
            }
            for at in 0..len as usize {
                let device = get!(device_arr.wrapping_add(at));
                if !(0..count).contains(&device) {
                    return Err(cudaErrorInvalidDevice);
                }
            }
            self.choose(get!(device_arr))
        })
    }

    /// Devices are alike in what programs ask for with this old call; the first that has the wished capability is answered.
    pub unsafe fn cudaChooseDevice(&self, device: *mut i32, prop: *const c_void) -> cudaError_t {
        status(|| {
            if prop.is_null() {
                return Err(cudaErrorInvalidValue);
            }
            let wanted = super::properties::capability(self.major(), prop);
            let count = self.device_count()?;
            let mut chosen = 0;
            for ordinal in 0..count {
                let major =
                    self.attribute(ordinal, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
                let minor =
                    self.attribute(ordinal, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
                if (major, minor) >= wanted {
                    chosen = ordinal;
                    break;
                }
            }
            put!(device, chosen);
            Ok(())
        })
    }

    pub unsafe fn cudaSetDoubleForDevice(&self, d: *mut f64) -> cudaError_t {
        let _ = d;
        cudaSuccess
    }

    pub unsafe fn cudaSetDoubleForHost(&self, d: *mut f64) -> cudaError_t {
        let _ = d;
        cudaSuccess
    }

    /// Without a profiler there is nothing to start, which is no error.
    pub unsafe fn cudaProfilerStart(&self) -> cudaError_t {
        status(|| {
            let driver = self.enter()?;
            // SAFETY: no parameters.
            unless_unsupported(unsafe { driver.cuProfilerStart() })
        })
    }

    pub unsafe fn cudaProfilerStop(&self) -> cudaError_t {
        status(|| {
            let driver = self.enter()?;
            // SAFETY: no parameters.
            unless_unsupported(unsafe { driver.cuProfilerStop() })
        })
    }

    /// A program may ask this without any driver.
    pub unsafe fn cudaDriverGetVersion(&self, driverVersion: *mut i32) -> cudaError_t {
        status(|| {
            put!(driverVersion, self.driver_version());
            Ok(())
        })
    }

    pub unsafe fn cudaRuntimeGetVersion(&self, runtimeVersion: *mut i32) -> cudaError_t {
        status(|| {
            put!(runtimeVersion, self.version());
            Ok(())
        })
    }

    pub unsafe fn cudaDeviceGetTexture1DLinearMaxWidth(
        &self,
        maxWidthInElements: *mut usize,
        fmtDesc: *const cudaChannelFormatDesc,
        device: i32,
    ) -> cudaError_t {
        status(|| {
            let (format, channels) = crate::describe::format(&get!(fmtDesc))?;
            let device = self.device(device)?;
            let driver = self.start()?;
            call!(driver.cuDeviceGetTexture1DLinearMaxWidth(
                maxWidthInElements,
                format,
                channels,
                device
            ));
            Ok(())
        })
    }

    pub unsafe fn cudaDeviceCanAccessPeer(
        &self,
        canAccessPeer: *mut i32,
        device: i32,
        peerDevice: i32,
    ) -> cudaError_t {
        status(|| {
            let driver = self.start()?;
            let mut can = 0;
            // Devices are looked at before where the answer goes (seen with NVIDIA's library over driver 580.159).
            call!(driver.cuDeviceCanAccessPeer(&raw mut can, device, peerDevice));
            put!(canAccessPeer, can);
            Ok(())
        })
    }

    pub unsafe fn cudaDeviceEnablePeerAccess(&self, peerDevice: i32, flags: u32) -> cudaError_t {
        status(|| {
            let driver = self.enter()?;
            let peer = self.primary(peerDevice)?;
            if flags != 0 {
                return Err(cudaErrorInvalidValue);
            }
            if peerDevice == self.thread_device()? {
                return Err(cudaErrorPeerAccessUnsupported);
            }
            call!(driver.cuCtxEnablePeerAccess(peer, flags));
            Ok(())
        })
    }

    pub unsafe fn cudaDeviceDisablePeerAccess(&self, peerDevice: i32) -> cudaError_t {
        status(|| {
            let driver = self.enter()?;
            let peer = self.primary(peerDevice)?;
            call!(driver.cuCtxDisablePeerAccess(peer));
            Ok(())
        })
    }

    pub unsafe fn cudaGraphConditionalHandleCreate(
        &self,
        pHandle_out: *mut cudaGraphConditionalHandle,
        graph: cudaGraph_t,
        defaultLaunchValue: u32,
        flags: u32,
    ) -> cudaError_t {
        status(|| {
            let driver = self.start()?;
            let mut context = std::ptr::null_mut();
            call!(driver.cuCtxGetCurrent(&raw mut context));
            call!(driver.cuGraphConditionalHandleCreate(
                pHandle_out,
                graph,
                context,
                defaultLaunchValue,
                flags
            ));
            Ok(())
        })
    }

    pub unsafe fn cudaGraphConditionalHandleCreate_v2(
        &self,
        pHandle_out: *mut cudaGraphConditionalHandle,
        graph: cudaGraph_t,
        ctx: cudaExecutionContext_t,
        defaultLaunchValue: u32,
        flags: u32,
    ) -> cudaError_t {
        if !ctx.is_null() {
            return self.refuse("cudaGraphConditionalHandleCreate_v2 with an execution context");
        }
        // SAFETY: the caller's contract.
        unsafe {
            self.cudaGraphConditionalHandleCreate(pHandle_out, graph, defaultLaunchValue, flags)
        }
    }

    /// The current context, for calls of the driver that want it named.
    pub(crate) fn context(&self) -> Outcome<(&NativeCuda, CUcontext)> {
        let driver = self.enter()?;
        let mut context = std::ptr::null_mut();
        call!(driver.cuCtxGetCurrent(&raw mut context));
        Ok((driver, context))
    }
}
