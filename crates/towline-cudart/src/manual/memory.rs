//! Memory, and streams and events where the runtime has a form without flags.

use std::ffi::c_void;

use towline_backend::cuda::*;

use crate::runtime::{Outcome, Runtime, status};
use crate::types::*;
use crate::{call, put};

/// Kinds of memory as the runtime tells them.
const UNREGISTERED: cudaMemoryType = 0;
const HOST: cudaMemoryType = 1;
const DEVICE: cudaMemoryType = 2;
const MANAGED: cudaMemoryType = 3;

/// Bytes in the words that `cudaPointerAttributes` has more of in version 13.
const LATER_WORDS: usize = 8;

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
            let driver = self.enter()?;
            if devPtr.is_null() {
                return Err(cudaErrorInvalidValue);
            }
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
            let driver = self.enter()?;
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
            let (allocated, found) = self.pitched(width, height)?;
            put!(devPtr, allocated);
            put!(pitch, found);
            Ok(())
        })
    }

    pub unsafe fn cudaMalloc3D(
        &self,
        pitchedDevPtr: *mut cudaPitchedPtr,
        extent: cudaExtent,
    ) -> cudaError_t {
        status(|| {
            let rows = extent.height.checked_mul(extent.depth);
            let rows = rows.ok_or(cudaErrorMemoryAllocation)?;
            let (ptr, pitch) = self.pitched(extent.width, rows)?;
            put!(
                pitchedDevPtr,
                cudaPitchedPtr {
                    ptr,
                    pitch,
                    xsize: extent.width,
                    ysize: extent.height,
                }
            );
            Ok(())
        })
    }

    /// Rows of memory and their pitch.
    fn pitched(&self, width: usize, rows: usize) -> Outcome<(*mut c_void, usize)> {
        /// The runtime does not know the elements; 16 bytes suit the largest.
        const ELEMENT: u32 = 16;
        let driver = self.enter()?;
        let (mut allocated, mut pitch) = (0, 0);
        if width != 0 && rows != 0 {
            call!(driver.cuMemAllocPitch_v2(
                &raw mut allocated,
                &raw mut pitch,
                width,
                rows,
                ELEMENT
            ));
        }
        Ok((pointer(allocated), pitch))
    }

    pub unsafe fn cudaMallocManaged(
        &self,
        devPtr: *mut *mut c_void,
        size: usize,
        flags: u32,
    ) -> cudaError_t {
        status(|| {
            let driver = self.enter()?;
            if devPtr.is_null() {
                return Err(cudaErrorInvalidValue);
            }
            put!(devPtr, std::ptr::null_mut());
            if size == 0 {
                return Err(cudaErrorInvalidValue);
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

    pub unsafe fn cudaPointerGetAttributes(
        &self,
        attributes: *mut cudaPointerAttributes,
        ptr: *const c_void,
    ) -> cudaError_t {
        status(|| {
            let driver = self.enter()?;
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

    pub unsafe fn cudaEventCreate(&self, event: *mut cudaEvent_t) -> cudaError_t {
        status(|| {
            let driver = self.enter()?;
            call!(driver.cuEventCreate(event, 0));
            Ok(())
        })
    }
}
