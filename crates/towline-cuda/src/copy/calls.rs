//! The calls themselves. What their structures describe is read in `structures`; the forms of before CUDA 3.2 are in `legacy`.

use std::ffi::c_void;

use towline_backend::cuda::*;

use super::Mode;
use super::batch::Failure;
use super::boxes::{BoxCopy, Memory};
use super::legacy::{self, legacy_calls};
use crate::driver::{CopyCalls, Driver, status};
use crate::thread::default_stream;

fn array(handle: CUarray) -> Memory {
    Memory::Array(handle.addr() as u64)
}

/// Tells which copy of a batch failed: the greatest number where none did, or none by itself (seen with driver 580.159).
///
/// # Safety
/// `index` is NULL or writable.
unsafe fn tell_failure(index: *mut usize, done: Result<(), Failure>) -> CUresult {
    let (which, status) = done.err().unwrap_or((None, CUDA_SUCCESS));
    // SAFETY: the caller's contract.
    unsafe { crate::raw::fill(index, 1, [which.unwrap_or(usize::MAX)].into_iter()) };
    status
}

impl CopyCalls for Driver {
    legacy_calls!();

    unsafe fn cuMemcpy(&self, dst: CUdeviceptr, src: CUdeviceptr, ByteCount: usize) -> CUresult {
        // SAFETY: the caller's contract.
        status(unsafe {
            self.anywhere(
                "cuMemcpy",
                dst,
                src,
                ByteCount,
                default_stream(),
                Mode::Sync,
            )
        })
    }

    unsafe fn cuMemcpyPeer(
        &self,
        dstDevice: CUdeviceptr,
        dstContext: CUcontext,
        srcDevice: CUdeviceptr,
        srcContext: CUcontext,
        ByteCount: usize,
    ) -> CUresult {
        let (to, from) = ((dstDevice, dstContext), (srcDevice, srcContext));
        let stream = default_stream();
        status(self.between_contexts(to, from, ByteCount, stream, true))
    }

    unsafe fn cuMemcpyHtoD_v2(
        &self,
        dstDevice: CUdeviceptr,
        srcHost: *const c_void,
        ByteCount: usize,
    ) -> CUresult {
        let (call, size, stream) = ("cuMemcpyHtoD", ByteCount, default_stream());
        // SAFETY: the caller's contract.
        status(unsafe { self.to_device(call, dstDevice, srcHost, size, stream, Mode::Sync) })
    }

    unsafe fn cuMemcpyDtoH_v2(
        &self,
        dstHost: *mut c_void,
        srcDevice: CUdeviceptr,
        ByteCount: usize,
    ) -> CUresult {
        let (call, size, stream) = ("cuMemcpyDtoH", ByteCount, default_stream());
        // SAFETY: the caller's contract.
        status(unsafe { self.to_host(call, dstHost, srcDevice, size, stream, Mode::Sync) })
    }

    unsafe fn cuMemcpyDtoD_v2(
        &self,
        dstDevice: CUdeviceptr,
        srcDevice: CUdeviceptr,
        ByteCount: usize,
    ) -> CUresult {
        status(self.on_device(dstDevice, srcDevice, ByteCount, default_stream()))
    }

    unsafe fn cuMemcpyDtoA_v2(
        &self,
        dstArray: CUarray,
        dstOffset: usize,
        srcDevice: CUdeviceptr,
        ByteCount: usize,
    ) -> CUresult {
        let (to, from) = ((array(dstArray), dstOffset), (Memory::Device(srcDevice), 0));
        let copy = BoxCopy::run(to, from, ByteCount);
        // SAFETY: the caller's contract.
        status(unsafe { self.copy_box("cuMemcpyDtoA", &copy, default_stream(), Mode::Sync) })
    }

    unsafe fn cuMemcpyAtoD_v2(
        &self,
        dstDevice: CUdeviceptr,
        srcArray: CUarray,
        srcOffset: usize,
        ByteCount: usize,
    ) -> CUresult {
        let (to, from) = ((Memory::Device(dstDevice), 0), (array(srcArray), srcOffset));
        let copy = BoxCopy::run(to, from, ByteCount);
        // SAFETY: the caller's contract.
        status(unsafe { self.copy_box("cuMemcpyAtoD", &copy, default_stream(), Mode::Sync) })
    }

    unsafe fn cuMemcpyHtoA_v2(
        &self,
        dstArray: CUarray,
        dstOffset: usize,
        srcHost: *const c_void,
        ByteCount: usize,
    ) -> CUresult {
        let (to, from) = (
            (array(dstArray), dstOffset),
            (Memory::Host(srcHost.cast_mut().cast()), 0),
        );
        let copy = BoxCopy::run(to, from, ByteCount);
        // SAFETY: the caller's contract.
        status(unsafe { self.copy_box("cuMemcpyHtoA", &copy, default_stream(), Mode::Sync) })
    }

    unsafe fn cuMemcpyAtoH_v2(
        &self,
        dstHost: *mut c_void,
        srcArray: CUarray,
        srcOffset: usize,
        ByteCount: usize,
    ) -> CUresult {
        let (to, from) = (
            (Memory::Host(dstHost.cast()), 0),
            (array(srcArray), srcOffset),
        );
        let copy = BoxCopy::run(to, from, ByteCount);
        // SAFETY: the caller's contract.
        status(unsafe { self.copy_box("cuMemcpyAtoH", &copy, default_stream(), Mode::Sync) })
    }

    unsafe fn cuMemcpyAtoA_v2(
        &self,
        dstArray: CUarray,
        dstOffset: usize,
        srcArray: CUarray,
        srcOffset: usize,
        ByteCount: usize,
    ) -> CUresult {
        let (to, from) = ((array(dstArray), dstOffset), (array(srcArray), srcOffset));
        let copy = BoxCopy::run(to, from, ByteCount);
        // SAFETY: the caller's contract.
        status(unsafe { self.copy_box("cuMemcpyAtoA", &copy, default_stream(), Mode::Sync) })
    }

    unsafe fn cuMemcpy2D_v2(&self, pCopy: *const CUDA_MEMCPY2D) -> CUresult {
        // SAFETY: the caller's contract.
        let copy = unsafe { pCopy.as_ref() };
        // SAFETY: the caller's contract.
        status(unsafe { self.rectangle("cuMemcpy2D", copy, default_stream(), Mode::Sync) })
    }

    unsafe fn cuMemcpy2DUnaligned_v2(&self, pCopy: *const CUDA_MEMCPY2D) -> CUresult {
        // SAFETY: the caller's contract.
        let copy = unsafe { pCopy.as_ref() };
        // SAFETY: the caller's contract.
        status(unsafe { self.rectangle("cuMemcpy2DUnaligned", copy, default_stream(), Mode::Sync) })
    }

    unsafe fn cuMemcpy3D_v2(&self, pCopy: *const CUDA_MEMCPY3D) -> CUresult {
        // SAFETY: the caller's contract.
        let copy = unsafe { pCopy.as_ref() };
        // SAFETY: the caller's contract.
        status(unsafe { self.cuboid("cuMemcpy3D", copy, default_stream(), Mode::Sync) })
    }

    unsafe fn cuMemcpy3DPeer(&self, pCopy: *const CUDA_MEMCPY3D_PEER) -> CUresult {
        // SAFETY: the caller's contract.
        let copy = unsafe { pCopy.as_ref() };
        // SAFETY: the caller's contract.
        status(unsafe { self.cuboid_between("cuMemcpy3DPeer", copy, default_stream(), Mode::Sync) })
    }

    unsafe fn cuMemcpyAsync(
        &self,
        dst: CUdeviceptr,
        src: CUdeviceptr,
        ByteCount: usize,
        hStream: CUstream,
    ) -> CUresult {
        // SAFETY: the caller's contract.
        status(unsafe { self.anywhere("cuMemcpyAsync", dst, src, ByteCount, hStream, Mode::Async) })
    }

    unsafe fn cuMemcpyPeerAsync(
        &self,
        dstDevice: CUdeviceptr,
        dstContext: CUcontext,
        srcDevice: CUdeviceptr,
        srcContext: CUcontext,
        ByteCount: usize,
        hStream: CUstream,
    ) -> CUresult {
        let (to, from) = ((dstDevice, dstContext), (srcDevice, srcContext));
        let stream = hStream;
        status(self.between_contexts(to, from, ByteCount, stream, false))
    }

    unsafe fn cuMemcpyHtoDAsync_v2(
        &self,
        dstDevice: CUdeviceptr,
        srcHost: *const c_void,
        ByteCount: usize,
        hStream: CUstream,
    ) -> CUresult {
        let (call, size, stream) = ("cuMemcpyHtoDAsync", ByteCount, hStream);
        // SAFETY: the caller's contract.
        status(unsafe { self.to_device(call, dstDevice, srcHost, size, stream, Mode::Async) })
    }

    unsafe fn cuMemcpyDtoHAsync_v2(
        &self,
        dstHost: *mut c_void,
        srcDevice: CUdeviceptr,
        ByteCount: usize,
        hStream: CUstream,
    ) -> CUresult {
        let (call, size, stream) = ("cuMemcpyDtoHAsync", ByteCount, hStream);
        // SAFETY: the caller's contract.
        status(unsafe { self.to_host(call, dstHost, srcDevice, size, stream, Mode::Async) })
    }

    unsafe fn cuMemcpyDtoDAsync_v2(
        &self,
        dstDevice: CUdeviceptr,
        srcDevice: CUdeviceptr,
        ByteCount: usize,
        hStream: CUstream,
    ) -> CUresult {
        status(self.on_device(dstDevice, srcDevice, ByteCount, hStream))
    }

    unsafe fn cuMemcpyHtoAAsync_v2(
        &self,
        dstArray: CUarray,
        dstOffset: usize,
        srcHost: *const c_void,
        ByteCount: usize,
        hStream: CUstream,
    ) -> CUresult {
        let (to, from) = (
            (array(dstArray), dstOffset),
            (Memory::Host(srcHost.cast_mut().cast()), 0),
        );
        let copy = BoxCopy::run(to, from, ByteCount);
        // SAFETY: the caller's contract.
        status(unsafe { self.copy_box("cuMemcpyHtoAAsync", &copy, hStream, Mode::Async) })
    }

    unsafe fn cuMemcpyAtoHAsync_v2(
        &self,
        dstHost: *mut c_void,
        srcArray: CUarray,
        srcOffset: usize,
        ByteCount: usize,
        hStream: CUstream,
    ) -> CUresult {
        let (to, from) = (
            (Memory::Host(dstHost.cast()), 0),
            (array(srcArray), srcOffset),
        );
        let copy = BoxCopy::run(to, from, ByteCount);
        // SAFETY: the caller's contract.
        status(unsafe { self.copy_box("cuMemcpyAtoHAsync", &copy, hStream, Mode::Async) })
    }

    unsafe fn cuMemcpy2DAsync_v2(
        &self,
        pCopy: *const CUDA_MEMCPY2D,
        hStream: CUstream,
    ) -> CUresult {
        // SAFETY: the caller's contract.
        let copy = unsafe { pCopy.as_ref() };
        // SAFETY: the caller's contract.
        status(unsafe { self.rectangle("cuMemcpy2DAsync", copy, hStream, Mode::Async) })
    }

    unsafe fn cuMemcpy3DAsync_v2(
        &self,
        pCopy: *const CUDA_MEMCPY3D,
        hStream: CUstream,
    ) -> CUresult {
        // SAFETY: the caller's contract.
        let copy = unsafe { pCopy.as_ref() };
        // SAFETY: the caller's contract.
        status(unsafe { self.cuboid("cuMemcpy3DAsync", copy, hStream, Mode::Async) })
    }

    unsafe fn cuMemcpy3DPeerAsync(
        &self,
        pCopy: *const CUDA_MEMCPY3D_PEER,
        hStream: CUstream,
    ) -> CUresult {
        // SAFETY: the caller's contract.
        let copy = unsafe { pCopy.as_ref() };
        // SAFETY: the caller's contract.
        status(unsafe { self.cuboid_between("cuMemcpy3DPeerAsync", copy, hStream, Mode::Async) })
    }

    unsafe fn cuMemcpyBatchAsync(
        &self,
        dsts: *mut CUdeviceptr,
        srcs: *mut CUdeviceptr,
        sizes: *mut usize,
        count: usize,
        attrs: *mut CUmemcpyAttributes,
        attrsIdxs: *mut usize,
        numAttrs: usize,
        failIdx: *mut usize,
        hStream: CUstream,
    ) -> CUresult {
        if hStream.is_null() {
            return CUDA_ERROR_INVALID_VALUE;
        }
        let (copies, attributes) = (
            (
                dsts.cast_const(),
                srcs.cast_const(),
                sizes.cast_const(),
                count,
            ),
            (attrs.cast_const(), attrsIdxs.cast_const(), numAttrs),
        );
        // SAFETY: the caller's contract.
        let done = unsafe { self.batch("cuMemcpyBatchAsync", copies, attributes, hStream) };
        // SAFETY: the caller's contract.
        unsafe { tell_failure(failIdx, done) }
    }

    unsafe fn cuMemcpyBatchAsync_v2(
        &self,
        dsts: *mut CUdeviceptr,
        srcs: *mut CUdeviceptr,
        sizes: *mut usize,
        count: usize,
        attrs: *mut CUmemcpyAttributes,
        attrsIdxs: *mut usize,
        numAttrs: usize,
        hStream: CUstream,
    ) -> CUresult {
        if hStream.is_null() {
            return CUDA_ERROR_INVALID_VALUE;
        }
        let (copies, attributes) = (
            (
                dsts.cast_const(),
                srcs.cast_const(),
                sizes.cast_const(),
                count,
            ),
            (attrs.cast_const(), attrsIdxs.cast_const(), numAttrs),
        );
        // SAFETY: the caller's contract.
        let done = unsafe { self.batch("cuMemcpyBatchAsync", copies, attributes, hStream) };
        // SAFETY: the caller's contract.
        unsafe { tell_failure(std::ptr::null_mut(), done) }
    }

    unsafe fn cuMemcpy3DBatchAsync(
        &self,
        numOps: usize,
        opList: *mut CUDA_MEMCPY3D_BATCH_OP,
        failIdx: *mut usize,
        flags: u64,
        hStream: CUstream,
    ) -> CUresult {
        if hStream.is_null() {
            return CUDA_ERROR_INVALID_VALUE;
        }
        // SAFETY: the caller's contract.
        let ops = unsafe { crate::raw::slice(opList.cast_const(), numOps) };
        // SAFETY: the caller's contract.
        let done = unsafe { self.boxes("cuMemcpy3DBatchAsync", ops, flags, hStream) };
        // SAFETY: the caller's contract.
        unsafe { tell_failure(failIdx, done) }
    }

    unsafe fn cuMemcpy3DBatchAsync_v2(
        &self,
        numOps: usize,
        opList: *mut CUDA_MEMCPY3D_BATCH_OP,
        flags: u64,
        hStream: CUstream,
    ) -> CUresult {
        if hStream.is_null() {
            return CUDA_ERROR_INVALID_VALUE;
        }
        // SAFETY: the caller's contract.
        let ops = unsafe { crate::raw::slice(opList.cast_const(), numOps) };
        // SAFETY: the caller's contract.
        let done = unsafe { self.boxes("cuMemcpy3DBatchAsync", ops, flags, hStream) };
        // SAFETY: the caller's contract.
        unsafe { tell_failure(std::ptr::null_mut(), done) }
    }

    unsafe fn cuMemcpyWithAttributesAsync(
        &self,
        dst: CUdeviceptr,
        src: CUdeviceptr,
        size: usize,
        attr: *mut CUmemcpyAttributes,
        hStream: CUstream,
    ) -> CUresult {
        let call = "cuMemcpyWithAttributesAsync";
        if hStream.is_null() {
            return CUDA_ERROR_INVALID_VALUE;
        }
        let copies = (&raw const dst, &raw const src, &raw const size, 1);
        let first = 0;
        // SAFETY: the caller's contract.
        let done = unsafe {
            self.batch(
                call,
                copies,
                (attr.cast_const(), &raw const first, 1),
                hStream,
            )
        };
        status(done.map_err(|(_, status)| status))
    }

    unsafe fn cuMemcpy3DWithAttributesAsync(
        &self,
        op: *mut CUDA_MEMCPY3D_BATCH_OP,
        flags: u64,
        hStream: CUstream,
    ) -> CUresult {
        let call = "cuMemcpy3DWithAttributesAsync";
        if hStream.is_null() {
            return CUDA_ERROR_INVALID_VALUE;
        }
        // SAFETY: the caller's contract.
        let ops = unsafe { crate::raw::slice(op.cast_const(), 1) };
        // SAFETY: the caller's contract.
        let done = unsafe { self.boxes(call, ops, flags, hStream) };
        status(done.map_err(|(_, status)| status))
    }

    unsafe fn cuMemsetD8_v2(&self, dstDevice: CUdeviceptr, uc: u8, N: usize) -> CUresult {
        status(self.fill(dstDevice, 0, uc.into(), 1, N, 1, default_stream()))
    }

    unsafe fn cuMemsetD16_v2(&self, dstDevice: CUdeviceptr, us: u16, N: usize) -> CUresult {
        status(self.fill(dstDevice, 0, us.into(), 2, N, 1, default_stream()))
    }

    unsafe fn cuMemsetD32_v2(&self, dstDevice: CUdeviceptr, ui: u32, N: usize) -> CUresult {
        status(self.fill(dstDevice, 0, ui, 4, N, 1, default_stream()))
    }

    unsafe fn cuMemsetD2D8_v2(
        &self,
        dstDevice: CUdeviceptr,
        dstPitch: usize,
        uc: u8,
        Width: usize,
        Height: usize,
    ) -> CUresult {
        status(self.fill(
            dstDevice,
            dstPitch,
            uc.into(),
            1,
            Width,
            Height,
            default_stream(),
        ))
    }

    unsafe fn cuMemsetD2D16_v2(
        &self,
        dstDevice: CUdeviceptr,
        dstPitch: usize,
        us: u16,
        Width: usize,
        Height: usize,
    ) -> CUresult {
        status(self.fill(
            dstDevice,
            dstPitch,
            us.into(),
            2,
            Width,
            Height,
            default_stream(),
        ))
    }

    unsafe fn cuMemsetD2D32_v2(
        &self,
        dstDevice: CUdeviceptr,
        dstPitch: usize,
        ui: u32,
        Width: usize,
        Height: usize,
    ) -> CUresult {
        status(self.fill(dstDevice, dstPitch, ui, 4, Width, Height, default_stream()))
    }

    unsafe fn cuMemsetD8Async(
        &self,
        dstDevice: CUdeviceptr,
        uc: u8,
        N: usize,
        hStream: CUstream,
    ) -> CUresult {
        status(self.fill(dstDevice, 0, uc.into(), 1, N, 1, hStream))
    }

    unsafe fn cuMemsetD16Async(
        &self,
        dstDevice: CUdeviceptr,
        us: u16,
        N: usize,
        hStream: CUstream,
    ) -> CUresult {
        status(self.fill(dstDevice, 0, us.into(), 2, N, 1, hStream))
    }

    unsafe fn cuMemsetD32Async(
        &self,
        dstDevice: CUdeviceptr,
        ui: u32,
        N: usize,
        hStream: CUstream,
    ) -> CUresult {
        status(self.fill(dstDevice, 0, ui, 4, N, 1, hStream))
    }

    unsafe fn cuMemsetD2D8Async(
        &self,
        dstDevice: CUdeviceptr,
        dstPitch: usize,
        uc: u8,
        Width: usize,
        Height: usize,
        hStream: CUstream,
    ) -> CUresult {
        status(self.fill(dstDevice, dstPitch, uc.into(), 1, Width, Height, hStream))
    }

    unsafe fn cuMemsetD2D16Async(
        &self,
        dstDevice: CUdeviceptr,
        dstPitch: usize,
        us: u16,
        Width: usize,
        Height: usize,
        hStream: CUstream,
    ) -> CUresult {
        status(self.fill(dstDevice, dstPitch, us.into(), 2, Width, Height, hStream))
    }

    unsafe fn cuMemsetD2D32Async(
        &self,
        dstDevice: CUdeviceptr,
        dstPitch: usize,
        ui: u32,
        Width: usize,
        Height: usize,
        hStream: CUstream,
    ) -> CUresult {
        status(self.fill(dstDevice, dstPitch, ui, 4, Width, Height, hStream))
    }
}
