//! What the structures of copies describe.

use towline_backend::cuda::*;

use super::batch::{Attributes, Failure};
use super::boxes::{BoxCopy, Side};
use super::{Mode, legacy};
use crate::driver::Driver;

impl Driver {
    /// # Safety
    /// The contract of cuMemcpy2D.
    pub(super) unsafe fn rectangle(
        &self,
        call: &'static str,
        copy: Option<&CUDA_MEMCPY2D>,
        stream: CUstream,
        mode: Mode,
    ) -> Result<(), CUresult> {
        let copy = copy.ok_or(CUDA_ERROR_INVALID_VALUE)?;
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
        // SAFETY: the caller's contract.
        unsafe { self.copy_box(call, &copy, stream, mode) }
    }

    /// # Safety
    /// The contract of cuMemcpy3D.
    pub(super) unsafe fn cuboid(
        &self,
        call: &'static str,
        copy: Option<&CUDA_MEMCPY3D>,
        stream: CUstream,
        mode: Mode,
    ) -> Result<(), CUresult> {
        let copy = copy.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        self.enqueue_on(stream)?;
        let copy = self.sides(copy)?;
        // SAFETY: the caller's contract.
        unsafe { self.copy_box(call, &copy, stream, mode) }
    }

    /// # Safety
    /// The contract of cuMemcpy3DPeer.
    pub(super) unsafe fn cuboid_between(
        &self,
        call: &'static str,
        copy: Option<&CUDA_MEMCPY3D_PEER>,
        stream: CUstream,
        mode: Mode,
    ) -> Result<(), CUresult> {
        let copy = copy.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        self.enqueue_on(stream)?;
        let plain = legacy::without_contexts(copy);
        let sides = BoxCopy {
            contexts: Some((copy.dstContext, copy.srcContext)),
            ..self.sides(&plain)?
        };
        // SAFETY: the caller's contract.
        unsafe { self.copy_box(call, &sides, stream, mode) }
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

    /// # Safety
    /// The contract of cuMemcpyBatchAsync.
    pub(super) unsafe fn batch(
        &self,
        call: &'static str,
        (targets, sources, sizes, count): (
            *const CUdeviceptr,
            *const CUdeviceptr,
            *const usize,
            usize,
        ),
        (attributes, from, kinds): (*const CUmemcpyAttributes, *const usize, usize),
        stream: CUstream,
    ) -> Result<(), Failure> {
        let nobody = (None, CUDA_ERROR_INVALID_VALUE);
        if count == 0 || kinds == 0 || kinds > count {
            return Err(nobody);
        }
        // SAFETY: the caller's contract, for this and the others.
        let targets = unsafe { crate::raw::slice(targets, count) }.ok_or(nobody)?;
        // SAFETY: as above.
        let sources = unsafe { crate::raw::slice(sources, count) }.ok_or(nobody)?;
        // SAFETY: as above.
        let sizes = unsafe { crate::raw::slice(sizes, count) }.ok_or(nobody)?;
        // SAFETY: as above.
        let attributes = unsafe { crate::raw::slice(attributes, kinds) }.ok_or(nobody)?;
        // SAFETY: as above.
        let from = unsafe { crate::raw::slice(from, kinds) }.ok_or(nobody)?;
        let attributes = Attributes::new(attributes, from, count).ok_or(nobody)?;
        // SAFETY: the caller's contract.
        unsafe { self.copy_batch(call, (targets, sources, sizes), &attributes, stream) }
    }

    /// # Safety
    /// The contract of cuMemcpy3DBatchAsync.
    pub(super) unsafe fn boxes(
        &self,
        call: &'static str,
        ops: Option<&[CUDA_MEMCPY3D_BATCH_OP]>,
        flags: u64,
        stream: CUstream,
    ) -> Result<(), Failure> {
        let ops = ops.ok_or((None, CUDA_ERROR_INVALID_VALUE))?;
        // SAFETY: the caller's contract.
        unsafe { self.copy_boxes(call, ops, flags, stream) }
    }
}
