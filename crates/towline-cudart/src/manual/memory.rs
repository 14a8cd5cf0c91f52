//! Memory, and streams and events where the runtime has a form without flags.

use std::ffi::c_void;

use towline_backend::cuda::*;

use crate::runtime::{Outcome, Runtime, check, status};
use crate::types::*;
use crate::{call, get, put};

/// Kinds of memory as the runtime tells them.
const UNREGISTERED: cudaMemoryType = 0;
const HOST: cudaMemoryType = 1;
const DEVICE: cudaMemoryType = 2;
const MANAGED: cudaMemoryType = 3;

/// Bytes in the words that `cudaPointerAttributes` has more of in version 13.
const LATER_WORDS: usize = 8;

/// Rows of device memory, or why there are none.
struct Rows {
    ptr: *mut c_void,
    pitch: usize,
    outcome: Outcome,
}

/// An address of the device as C programs hold it.
pub(crate) fn pointer(address: CUdeviceptr) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

/// The driver's address of a pointer.
pub(crate) fn address(pointer: *const c_void) -> CUdeviceptr {
    pointer.addr() as CUdeviceptr
}

impl Runtime {
    pub unsafe fn cudaMalloc(&self, devPtr: *mut *mut c_void, size: usize) -> cudaError_t {
        status(|| {
            if devPtr.is_null() {
                return Err(cudaErrorInvalidValue);
            }
            let driver = self.enter()?;
            // A failed allocation leaves NULL, here and below (seen with NVIDIA's library over driver 580.159).
            put!(devPtr, std::ptr::null_mut());
            let mut allocated = 0;
            // Nothing is a size to the runtime, and none to the driver.
            if size != 0 {
                call!(driver.cuMemAlloc_v2(&raw mut allocated, size));
            }
            put!(devPtr, pointer(allocated));
            Ok(())
        })
    }

    pub unsafe fn cudaMallocAsync(
        &self,
        devPtr: *mut *mut c_void,
        size: usize,
        hStream: cudaStream_t,
    ) -> cudaError_t {
        status(|| {
            let driver = self.enter_for(hStream)?;
            if devPtr.is_null() {
                return Err(cudaErrorInvalidValue);
            }
            put!(devPtr, std::ptr::null_mut());
            let mut allocated = 0;
            call!(driver.cuMemAllocAsync(&raw mut allocated, size, hStream));
            put!(devPtr, pointer(allocated));
            Ok(())
        })
    }

    pub unsafe fn cudaMallocPitch(
        &self,
        devPtr: *mut *mut c_void,
        pitch: *mut usize,
        width: usize,
        height: usize,
    ) -> cudaError_t {
        status(|| {
            if devPtr.is_null() || pitch.is_null() {
                return Err(cudaErrorInvalidValue);
            }
            let made = self.pitched(width, height)?;
            put!(devPtr, made.ptr);
            put!(pitch, made.pitch);
            made.outcome
        })
    }

    pub unsafe fn cudaMalloc3D(
        &self,
        pitchedDevPtr: *mut cudaPitchedPtr,
        extent: cudaExtent,
    ) -> cudaError_t {
        status(|| {
            let mut told = get!(pitchedDevPtr);
            let rows = extent.height.checked_mul(extent.depth);
            let rows = rows.ok_or(cudaErrorMemoryAllocation)?;
            let made = self.pitched(extent.width, rows)?;
            (told.ptr, told.pitch) = (made.ptr, made.pitch);
            if made.outcome.is_ok() {
                (told.xsize, told.ysize) = (extent.width, extent.height);
            }
            put!(pitchedDevPtr, told);
            made.outcome
        })
    }

    /// Rows of memory and their pitch, which is told even where there is no room for them.
    fn pitched(&self, width: usize, rows: usize) -> Outcome<Rows> {
        /// The runtime does not know the elements; 16 bytes suit the largest.
        const ELEMENT: u32 = 16;
        let driver = self.enter()?;
        let (mut allocated, mut pitch, mut outcome) = (0, 0, Ok(()));
        if width != 0 && rows != 0 {
            let (address, told) = (&raw mut allocated, &raw mut pitch);
            // SAFETY: places to write to.
            let made = unsafe { driver.cuMemAllocPitch_v2(address, told, width, rows, ELEMENT) };
            outcome = check(made);
        }
        Ok(Rows {
            ptr: pointer(allocated),
            pitch,
            outcome,
        })
    }

    pub unsafe fn cudaMallocManaged(
        &self,
        devPtr: *mut *mut c_void,
        size: usize,
        flags: u32,
    ) -> cudaError_t {
        status(|| {
            if devPtr.is_null() {
                return Err(cudaErrorInvalidValue);
            }
            let driver = self.enter()?;
            put!(devPtr, std::ptr::null_mut());
            if size == 0 {
                return Ok(());
            }
            let mut allocated = 0;
            call!(driver.cuMemAllocManaged(&raw mut allocated, size, flags));
            put!(devPtr, pointer(allocated));
            Ok(())
        })
    }

    pub unsafe fn cudaMallocHost(&self, ptr: *mut *mut c_void, size: usize) -> cudaError_t {
        // SAFETY: the caller's contract.
        unsafe { self.cudaHostAlloc(ptr, size, 0) }
    }

    pub unsafe fn cudaHostAlloc(
        &self,
        pHost: *mut *mut c_void,
        size: usize,
        flags: u32,
    ) -> cudaError_t {
        status(|| {
            let driver = self.enter()?;
            if pHost.is_null() {
                // Unlike a place for device memory, this one is the driver's to miss.
                if size != 0 {
                    call!(driver.cuMemHostAlloc(pHost, size, flags));
                }
                return Err(cudaErrorInvalidValue);
            }
            put!(pHost, std::ptr::null_mut());
            let mut allocated = std::ptr::null_mut();
            if size != 0 {
                call!(driver.cuMemHostAlloc(&raw mut allocated, size, flags));
            }
            put!(pHost, allocated);
            Ok(())
        })
    }

    pub unsafe fn cudaHostGetDevicePointer(
        &self,
        pDevice: *mut *mut c_void,
        pHost: *mut c_void,
        flags: u32,
    ) -> cudaError_t {
        status(|| {
            if pDevice.is_null() || pHost.is_null() {
                return Err(cudaErrorInvalidValue);
            }
            let driver = self.enter()?;
            call!(driver.cuMemHostGetDevicePointer_v2(pDevice.cast(), pHost, flags));
            Ok(())
        })
    }

    /// Starts no device, so that a thread without one is told no address of a device.
    pub unsafe fn cudaPointerGetAttributes(
        &self,
        attributes: *mut cudaPointerAttributes,
        ptr: *const c_void,
    ) -> cudaError_t {
        status(|| {
            let driver = self.start()?;
            let (mut kind, mut managed, mut ordinal) = (0_u32, 0_u32, -1_i32);
            let (mut device, mut host) = (0_u64, std::ptr::null_mut::<c_void>());
            let mut asked = [
                CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                CU_POINTER_ATTRIBUTE_IS_MANAGED,
                CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                CU_POINTER_ATTRIBUTE_HOST_POINTER,
            ];
            let mut places = [
                (&raw mut kind).cast::<c_void>(),
                (&raw mut managed).cast(),
                (&raw mut ordinal).cast(),
                (&raw mut device).cast(),
                (&raw mut host).cast(),
            ];
            // Of an address that nobody knows the driver tells zeros, which is what the runtime says of it as well.
            call!(driver.cuPointerGetAttributes(
                5,
                asked.as_mut_ptr(),
                places.as_mut_ptr(),
                address(ptr)
            ));
            let kind = match kind {
                _ if managed != 0 => MANAGED,
                CU_MEMORYTYPE_HOST => HOST,
                CU_MEMORYTYPE_DEVICE | CU_MEMORYTYPE_ARRAY | CU_MEMORYTYPE_UNIFIED => DEVICE,
                _ => UNREGISTERED,
            };
            let found = if kind == UNREGISTERED {
                cudaPointerAttributes {
                    kind,
                    device: -2,
                    devicePointer: std::ptr::null_mut(),
                    hostPointer: ptr.cast_mut(),
                }
            } else {
                cudaPointerAttributes {
                    kind,
                    device: ordinal,
                    devicePointer: pointer(device),
                    hostPointer: host,
                }
            };
            put!(attributes, found);
            if self.major() >= 13 {
                let later = attributes.wrapping_add(1).cast::<[u64; LATER_WORDS]>();
                put!(later, [0; LATER_WORDS]);
            }
            Ok(())
        })
    }

    pub unsafe fn cudaStreamCreate(&self, pStream: *mut cudaStream_t) -> cudaError_t {
        status(|| {
            let driver = self.enter()?;
            call!(driver.cuStreamCreate(pStream, 0));
            Ok(())
        })
    }

    /// Milliseconds between two events.
    pub(crate) fn elapsed(&self, ms: *mut f32, start: cudaEvent_t, end: cudaEvent_t) -> Outcome {
        if ms.is_null() {
            return Err(cudaErrorInvalidValue);
        }
        let driver = self.start()?;
        call!(driver.cuEventElapsedTime_v2(ms, start, end));
        Ok(())
    }

    pub unsafe fn cudaEventCreate(&self, event: *mut cudaEvent_t) -> cudaError_t {
        status(|| {
            let driver = self.enter()?;
            call!(driver.cuEventCreate(event, 0));
            Ok(())
        })
    }
}
