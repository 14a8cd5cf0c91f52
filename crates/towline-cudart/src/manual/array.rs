//! Arrays.

use towline_backend::cuda::*;

use crate::describe::{element, format};
use crate::runtime::{Outcome, Runtime, status};
use crate::types::*;
use crate::{call, get, put};

/// What an array is like.
pub(super) fn descriptor(
    driver: &NativeCuda,
    array: cudaArray_t,
) -> Outcome<CUDA_ARRAY3D_DESCRIPTOR> {
    let mut found = CUDA_ARRAY3D_DESCRIPTOR {
        Width: 0,
        Height: 0,
        Depth: 0,
        Format: 0,
        NumChannels: 0,
        Flags: 0,
    };
    call!(driver.cuArray3DGetDescriptor_v2(&raw mut found, array));
    Ok(found)
}

/// The driver's description of an array. Flags have the same numbers on both sides.
pub(super) fn described(
    desc: &cudaChannelFormatDesc,
    extent: cudaExtent,
    flags: u32,
) -> Outcome<CUDA_ARRAY3D_DESCRIPTOR> {
    let (format, channels) = format(desc)?;
    Ok(CUDA_ARRAY3D_DESCRIPTOR {
        Width: extent.width,
        Height: extent.height,
        Depth: extent.depth,
        Format: format,
        NumChannels: channels,
        Flags: flags,
    })
}

impl Runtime {
    pub unsafe fn cudaCreateChannelDesc(
        &self,
        x: i32,
        y: i32,
        z: i32,
        w: i32,
        f: cudaChannelFormatKind,
    ) -> cudaChannelFormatDesc {
        cudaChannelFormatDesc { x, y, z, w, f }
    }

    pub unsafe fn cudaMallocArray(
        &self,
        array: *mut cudaArray_t,
        desc: *const cudaChannelFormatDesc,
        width: usize,
        height: usize,
        flags: u32,
    ) -> cudaError_t {
        let extent = cudaExtent {
            width,
            height,
            depth: 0,
        };
        // SAFETY: the caller's contract.
        unsafe { self.cudaMalloc3DArray(array, desc, extent, flags) }
    }

    pub unsafe fn cudaMalloc3DArray(
        &self,
        array: *mut cudaArray_t,
        desc: *const cudaChannelFormatDesc,
        extent: cudaExtent,
        flags: u32,
    ) -> cudaError_t {
        status(|| {
            let desc = described(&get!(desc), extent, flags)?;
            let driver = self.enter()?;
            call!(driver.cuArray3DCreate_v2(array, &raw const desc));
            Ok(())
        })
    }

    pub unsafe fn cudaMallocMipmappedArray(
        &self,
        mipmappedArray: *mut cudaMipmappedArray_t,
        desc: *const cudaChannelFormatDesc,
        extent: cudaExtent,
        numLevels: u32,
        flags: u32,
    ) -> cudaError_t {
        status(|| {
            let desc = described(&get!(desc), extent, flags)?;
            let driver = self.enter()?;
            call!(driver.cuMipmappedArrayCreate(mipmappedArray, &raw const desc, numLevels));
            Ok(())
        })
    }

    pub unsafe fn cudaArrayGetInfo(
        &self,
        desc: *mut cudaChannelFormatDesc,
        extent: *mut cudaExtent,
        flags: *mut u32,
        array: cudaArray_t,
    ) -> cudaError_t {
        status(|| {
            let driver = self.enter()?;
            let found = descriptor(driver, array)?;
            if !desc.is_null() {
                put!(desc, element(found.Format, found.NumChannels)?);
            }
            if !extent.is_null() {
                put!(
                    extent,
                    cudaExtent {
                        width: found.Width,
                        height: found.Height,
                        depth: found.Depth,
                    }
                );
            }
            if !flags.is_null() {
                put!(flags, found.Flags);
            }
            Ok(())
        })
    }

    pub unsafe fn cudaGetChannelDesc(
        &self,
        desc: *mut cudaChannelFormatDesc,
        array: cudaArray_const_t,
    ) -> cudaError_t {
        status(|| {
            let driver = self.enter()?;
            let found = descriptor(driver, array)?;
            put!(desc, element(found.Format, found.NumChannels)?);
            Ok(())
        })
    }
}
