//! Launches, and what is known about kernels.

use std::ffi::{c_char, c_void};

use towline_backend::cuda::*;

use crate::runtime::{Outcome, Runtime, status};
use crate::types::*;
use crate::{call, get, put};

impl Runtime {
    /// The driver, with a kernel as the function that it is on the current device.
    pub(crate) fn function(&self, func: *const c_void) -> Outcome<(&NativeCuda, CUfunction)> {
        let driver = self.enter()?;
        let kernel = self.code.kernel(driver, func.addr())?;
        let mut function = std::ptr::null_mut();
        call!(driver.cuKernelGetFunction(&raw mut function, kernel));
        Ok((driver, function))
    }

    /// The driver, with a kernel as launches take it: the driver finds the function of the stream's device.
    fn launched(&self, func: *const c_void) -> Outcome<(&NativeCuda, CUfunction)> {
        let driver = self.enter()?;
        let kernel = self.code.kernel(driver, func.addr())?;
        Ok((driver, kernel.cast()))
    }

    /// A launch's error. The runtime of CUDA 12 tells an impossible configuration of the program's own kernels apart, not of a library's; that
    /// of 13 does not (seen with NVIDIA's library over driver 580), and neither does the driver.
    fn refused(
        &self,
        func: *const c_void,
        error: cudaError_t,
        grid: dim3,
        block: dim3,
    ) -> cudaError_t {
        let is_told = self.major() < 13 && self.code.is_symbol(func.addr());
        if error != cudaErrorInvalidValue || !is_told {
            return error;
        }
        let limits = self.thread_device().and_then(|ordinal| {
            let mut limits = [0; 7];
            for (at, limit) in (CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK..).zip(&mut limits) {
                *limit = self.attribute(ordinal, at)?;
            }
            Ok(limits)
        });
        let Ok([threads, limits @ ..]) = limits else {
            return error;
        };
        let wanted = [block.x, block.y, block.z, grid.x, grid.y, grid.z];
        let is_beyond =
            |(wanted, limit): (u32, i32)| wanted == 0 || i64::from(wanted) > i64::from(limit);
        let of_block = [block.x, block.y, block.z].map(u64::from);
        let of_block = of_block.into_iter().fold(1, u64::saturating_mul);
        let is_large = of_block > u64::from(threads.unsigned_abs());
        if is_large || wanted.into_iter().zip(limits).any(is_beyond) {
            cudaErrorInvalidConfiguration
        } else {
            error
        }
    }

    pub unsafe fn cudaLaunchKernel(
        &self,
        func: *const c_void,
        gridDim: dim3,
        blockDim: dim3,
        args: *mut *mut c_void,
        sharedMem: usize,
        stream: cudaStream_t,
    ) -> cudaError_t {
        let launched = status(|| {
            let (driver, function) = self.launched(func)?;
            let shared = u32::try_from(sharedMem).map_err(|_| cudaErrorInvalidValue)?;
            let extra = std::ptr::null_mut();
            call!(driver.cuLaunchKernel(
                function, gridDim.x, gridDim.y, gridDim.z, blockDim.x, blockDim.y, blockDim.z,
                shared, stream, args, extra
            ));
            Ok(())
        });
        self.refused(func, launched, gridDim, blockDim)
    }

    pub unsafe fn cudaLaunchCooperativeKernel(
        &self,
        func: *const c_void,
        gridDim: dim3,
        blockDim: dim3,
        args: *mut *mut c_void,
        sharedMem: usize,
        stream: cudaStream_t,
    ) -> cudaError_t {
        let launched = status(|| {
            let (driver, function) = self.launched(func)?;
            let shared = u32::try_from(sharedMem).map_err(|_| cudaErrorInvalidValue)?;
            call!(driver.cuLaunchCooperativeKernel(
                function, gridDim.x, gridDim.y, gridDim.z, blockDim.x, blockDim.y, blockDim.z,
                shared, stream, args
            ));
            Ok(())
        });
        self.refused(func, launched, gridDim, blockDim)
    }

    pub unsafe fn cudaLaunchKernelExC(
        &self,
        config: *const cudaLaunchConfig_t,
        func: *const c_void,
        args: *mut *mut c_void,
    ) -> cudaError_t {
        let (mut grid, mut block) = (dim3 { x: 1, y: 1, z: 1 }, dim3 { x: 1, y: 1, z: 1 });
        let launched = status(|| {
            let config = get!(config);
            (grid, block) = (config.gridDim, config.blockDim);
            let (driver, function) = self.launched(func)?;
            let config = self.configuration(&config)?;
            call!(driver.cuLaunchKernelEx(&raw const config, function, args, std::ptr::null_mut()));
            Ok(())
        });
        self.refused(func, launched, grid, block)
    }

    /// A launch's configuration as the driver has it.
    pub(crate) fn configuration(&self, config: &cudaLaunchConfig_t) -> Outcome<CUlaunchConfig> {
        let shared = u32::try_from(config.dynamicSmemBytes);
        let stream = if crate::guard::own_default() {
            crate::guard::per_thread(config.stream)
        } else {
            config.stream
        };
        Ok(CUlaunchConfig {
            gridDimX: config.gridDim.x,
            gridDimY: config.gridDim.y,
            gridDimZ: config.gridDim.z,
            blockDimX: config.blockDim.x,
            blockDimY: config.blockDim.y,
            blockDimZ: config.blockDim.z,
            sharedMemBytes: shared.map_err(|_| cudaErrorInvalidValue)?,
            hStream: stream,
            attrs: config.attrs,
            numAttrs: config.numAttrs,
        })
    }

    pub unsafe fn cudaFuncGetAttributes(
        &self,
        attr: *mut cudaFuncAttributes,
        func: *const c_void,
    ) -> cudaError_t {
        status(|| {
            let (driver, function) = self.function(func)?;
            let number = |attribute| -> Outcome<i32> {
                let mut value = 0;
                call!(driver.cuFuncGetAttribute(&raw mut value, attribute, function));
                Ok(value)
            };
            // Older drivers do not know the later ones.
            let or_none = |attribute| number(attribute).unwrap_or(0);
            let bytes = |attribute| number(attribute).map(|value| value.unsigned_abs() as usize);
            let found = cudaFuncAttributes {
                sharedSizeBytes: bytes(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?,
                constSizeBytes: bytes(CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES)?,
                localSizeBytes: bytes(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
                maxThreadsPerBlock: number(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
                numRegs: number(CU_FUNC_ATTRIBUTE_NUM_REGS)?,
                ptxVersion: number(CU_FUNC_ATTRIBUTE_PTX_VERSION)?,
                binaryVersion: number(CU_FUNC_ATTRIBUTE_BINARY_VERSION)?,
                cacheModeCA: number(CU_FUNC_ATTRIBUTE_CACHE_MODE_CA)?,
                maxDynamicSharedSizeBytes: or_none(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES),
                preferredShmemCarveout: or_none(CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT),
                clusterDimMustBeSet: or_none(CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET),
                requiredClusterWidth: or_none(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH),
                requiredClusterHeight: or_none(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT),
                requiredClusterDepth: or_none(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH),
                clusterSchedulingPolicyPreference: or_none(
                    CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE,
                ),
                nonPortableClusterSizeAllowed: or_none(
                    CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED,
                ),
                reserved: [0; 16],
            };
            put!(attr, found);
            Ok(())
        })
    }

    pub unsafe fn cudaFuncSetAttribute(
        &self,
        func: *const c_void,
        attr: cudaFuncAttribute,
        value: i32,
    ) -> cudaError_t {
        status(|| {
            // The others tell what a kernel needs.
            let settable = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                ..=CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE;
            if !settable.contains(&attr) {
                return Err(cudaErrorInvalidValue);
            }
            let (driver, function) = self.function(func)?;
            call!(driver.cuFuncSetAttribute(function, attr, value));
            if !self.code.is_symbol(func.addr()) {
                // That a library's kernel is no symbol is an error inside of NVIDIA's library, which forgets it, and the last one with it.
                crate::guard::take_last();
            }
            Ok(())
        })
    }

    pub unsafe fn cudaFuncGetParamInfo(
        &self,
        func: *const c_void,
        paramIndex: usize,
        paramOffset: *mut usize,
        paramSize: *mut usize,
    ) -> cudaError_t {
        status(|| {
            let (driver, function) = self.function(func)?;
            call!(driver.cuFuncGetParamInfo(function, paramIndex, paramOffset, paramSize));
            // Its success makes the thread's last error forgotten (seen with NVIDIA's library over driver 580.159).
            crate::guard::take_last();
            Ok(())
        })
    }

    pub unsafe fn cudaGetFuncBySymbol(
        &self,
        functionPtr: *mut cudaFunction_t,
        symbolPtr: *const c_void,
    ) -> cudaError_t {
        status(|| {
            if !self.code.is_symbol(symbolPtr.addr()) {
                return Err(cudaErrorInvalidDeviceFunction);
            }
            let (_, function) = self.function(symbolPtr)?;
            put!(functionPtr, function);
            Ok(())
        })
    }

    pub unsafe fn cudaGetKernel(
        &self,
        kernelPtr: *mut cudaKernel_t,
        entryFuncAddr: *const c_void,
    ) -> cudaError_t {
        status(|| {
            let driver = self.enter()?;
            let kernel = self.code.kernel(driver, entryFuncAddr.addr())?;
            put!(kernelPtr, kernel);
            self.code.know(kernel);
            Ok(())
        })
    }

    pub unsafe fn cudaLibraryGetKernel(
        &self,
        pKernel: *mut cudaKernel_t,
        library: cudaLibrary_t,
        name: *const c_char,
    ) -> cudaError_t {
        status(|| {
            let driver = self.start()?;
            call!(driver.cuLibraryGetKernel(pKernel, library, name));
            self.code.know(get!(pKernel));
            Ok(())
        })
    }

    pub unsafe fn cudaLibraryEnumerateKernels(
        &self,
        kernels: *mut cudaKernel_t,
        numKernels: u32,
        lib: cudaLibrary_t,
    ) -> cudaError_t {
        status(|| {
            let driver = self.start()?;
            let mut there = 0;
            call!(driver.cuLibraryGetKernelCount(&raw mut there, lib));
            call!(driver.cuLibraryEnumerateKernels(kernels, numKernels, lib));
            for at in 0..numKernels.min(there) as usize {
                self.code.know(get!(kernels.wrapping_add(at)));
            }
            Ok(())
        })
    }

    pub unsafe fn cudaKernelSetAttributeForDevice(
        &self,
        kernel: cudaKernel_t,
        attr: cudaFuncAttribute,
        value: i32,
        device: i32,
    ) -> cudaError_t {
        status(|| {
            let device = self.device(device)?;
            let driver = self.start()?;
            call!(driver.cuKernelSetAttribute(drivers_attribute(attr), value, kernel, device));
            Ok(())
        })
    }
}

/// An attribute of a kernel by the driver's number: the runtime has none for updates from the device.
fn drivers_attribute(attribute: cudaFuncAttribute) -> CUfunction_attribute {
    match attribute {
        16 => CU_FUNC_ATTRIBUTE_SHARED_MEMORY_MODE,
        other => other,
    }
}
