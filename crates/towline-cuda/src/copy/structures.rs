//! Copies that structures describe.

use std::ffi::c_void;

use towline_backend::cuda::*;
use towline_client::raw::{HostPtr, Vouched};

use super::boxes::{BoxCopy, Memory, Side};
use super::{Mode, legacy};
use crate::driver::Driver;

impl Driver {
    pub(super) fn rectangle(
        &self,
        call: &'static str,
        copy: Vouched<'_, CUDA_MEMCPY2D>,
        stream: CUstream,
        mode: Mode,
    ) -> Result<(), CUresult> {
        self.enqueue_on(stream)?;
        // Nothing is copied wherever it is said to lie (seen with driver 580.159).
        if copy.WidthInBytes == 0 || copy.Height == 0 {
            return Ok(());
        }
        let (kind, host) = (copy.srcMemoryType, copy.srcHost);
        let from = Side {
            memory: self.memory_of(kind, host, copy.srcDevice, copy.srcArray)?,
            start: [copy.srcXInBytes, copy.srcY, 0],
            pitch: copy.srcPitch,
            height: 0,
        };
        let (kind, host) = (copy.dstMemoryType, copy.dstHost.cast_const());
        let to = Side {
            memory: self.memory_of(kind, host, copy.dstDevice, copy.dstArray)?,
            start: [copy.dstXInBytes, copy.dstY, 0],
            pitch: copy.dstPitch,
            height: 0,
        };
        let copy = BoxCopy {
            from,
            to,
            size: [copy.WidthInBytes, copy.Height, 1],
            contexts: None,
        };
        self.copy_box(call, &copy, stream, mode)
    }

    pub(super) fn cuboid(
        &self,
        call: &'static str,
        copy: Vouched<'_, CUDA_MEMCPY3D>,
        stream: CUstream,
        mode: Mode,
    ) -> Result<(), CUresult> {
        self.enqueue_on(stream)?;
        let copy = self.sides(&copy)?;
        self.copy_box(call, &copy, stream, mode)
    }

    pub(super) fn cuboid_between(
        &self,
        call: &'static str,
        copy: Vouched<'_, CUDA_MEMCPY3D_PEER>,
        stream: CUstream,
        mode: Mode,
    ) -> Result<(), CUresult> {
        self.enqueue_on(stream)?;
        let plain = legacy::without_contexts(&copy);
        let sides = BoxCopy {
            contexts: Some((copy.dstContext, copy.srcContext)),
            ..self.sides(&plain)?
        };
        self.copy_box(call, &sides, stream, mode)
    }

    fn sides(&self, copy: &CUDA_MEMCPY3D) -> Result<BoxCopy, CUresult> {
        if copy.srcLOD != 0 || copy.dstLOD != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let (kind, host) = (copy.srcMemoryType, copy.srcHost);
        let from = Side {
            memory: self.memory_of(kind, host, copy.srcDevice, copy.srcArray)?,
            start: [copy.srcXInBytes, copy.srcY, copy.srcZ],
            pitch: copy.srcPitch,
            height: copy.srcHeight,
        };
        let (kind, host) = (copy.dstMemoryType, copy.dstHost.cast_const());
        let to = Side {
            memory: self.memory_of(kind, host, copy.dstDevice, copy.dstArray)?,
            start: [copy.dstXInBytes, copy.dstY, copy.dstZ],
            pitch: copy.dstPitch,
            height: copy.dstHeight,
        };
        Ok(BoxCopy {
            from,
            to,
            size: [copy.WidthInBytes, copy.Height, copy.Depth],
            contexts: None,
        })
    }

    /// The memory of a side of a structure that is vouched for, as the API names it.
    fn memory_of(
        &self,
        kind: CUmemorytype,
        host: *const c_void,
        device: CUdeviceptr,
        array: CUarray,
    ) -> Result<Memory, CUresult> {
        Ok(match kind {
            // SAFETY: the structure is vouched for, and its kind says that this pointer counts.
            CU_MEMORYTYPE_HOST => Memory::Host(unsafe { HostPtr::new(host) }),
            CU_MEMORYTYPE_DEVICE => Memory::Device(device),
            CU_MEMORYTYPE_ARRAY if array.is_null() => return Err(CUDA_ERROR_INVALID_VALUE),
            CU_MEMORYTYPE_ARRAY => Memory::Array(array.addr() as u64),
            CU_MEMORYTYPE_UNIFIED => self.memory_at(device),
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        })
    }
}
