//! The calls themselves. Structures that describe them are read in `structures`; the forms of before CUDA 3.2 are in `legacy`.

use std::slice::from_ref;

use towline_backend::cuda::*;
use towline_client::raw::{HostPtr, Out, Vouched};

use super::Mode;
use super::batch::Failure;
use super::boxes::{BoxCopy, Memory};
use super::legacy::{self, legacy_calls};
use crate::driver::{CopyCalls, Driver};
use crate::thread::default_stream;

fn array(handle: CUarray) -> Memory {
    Memory::Array(handle.addr() as u64)
}

/// Tells which copy of a batch failed: the greatest number where none did, or none by itself (seen with driver 580.159).
fn tell_failure(index: &Out<usize>, done: Result<(), Failure>) -> Result<(), CUresult> {
    let which = done.err().and_then(|(which, _)| which);
    index.set(which.unwrap_or(usize::MAX));
    done.map_err(|(_, status)| status)
}

impl CopyCalls for Driver {
    legacy_calls!();

    fn cuMemcpy(
        &self,
        dst: CUdeviceptr,
        src: CUdeviceptr,
        ByteCount: usize,
    ) -> Result<(), CUresult> {
        self.anywhere(
            "cuMemcpy",
            dst,
            src,
            ByteCount,
            default_stream(),
            Mode::Sync,
        )
    }

    fn cuMemcpyPeer(
        &self,
        dstDevice: CUdeviceptr,
        dstContext: CUcontext,
        srcDevice: CUdeviceptr,
        srcContext: CUcontext,
        ByteCount: usize,
    ) -> Result<(), CUresult> {
        let (to, from) = ((dstDevice, dstContext), (srcDevice, srcContext));
        let stream = default_stream();
        self.between_contexts(to, from, ByteCount, stream, true)
    }

    fn cuMemcpyHtoD_v2(
        &self,
        dstDevice: CUdeviceptr,
        srcHost: HostPtr,
        ByteCount: usize,
    ) -> Result<(), CUresult> {
        let (call, size, stream) = ("cuMemcpyHtoD", ByteCount, default_stream());
        self.to_device(call, dstDevice, srcHost, size, stream, Mode::Sync)
    }

    fn cuMemcpyDtoH_v2(
        &self,
        dstHost: HostPtr,
        srcDevice: CUdeviceptr,
        ByteCount: usize,
    ) -> Result<(), CUresult> {
        let (call, size, stream) = ("cuMemcpyDtoH", ByteCount, default_stream());
        self.to_host(call, dstHost, srcDevice, size, stream, Mode::Sync)
    }

    fn cuMemcpyDtoD_v2(
        &self,
        dstDevice: CUdeviceptr,
        srcDevice: CUdeviceptr,
        ByteCount: usize,
    ) -> Result<(), CUresult> {
        let (call, size, stream) = ("cuMemcpyDtoD", ByteCount, default_stream());
        match self.are_hosts(&[dstDevice, srcDevice]) {
            true => self.anywhere(call, dstDevice, srcDevice, size, stream, Mode::Sync),
            false => {
                self.on_device(dstDevice, srcDevice, size, stream)?;
                self.settle_both(dstDevice, Some(srcDevice))
            }
        }
    }

    fn cuMemcpyDtoA_v2(
        &self,
        dstArray: CUarray,
        dstOffset: usize,
        srcDevice: CUdeviceptr,
        ByteCount: usize,
    ) -> Result<(), CUresult> {
        let (to, from) = ((array(dstArray), dstOffset), (Memory::Device(srcDevice), 0));
        let copy = BoxCopy::run(to, from, ByteCount);
        self.copy_box("cuMemcpyDtoA", &copy, default_stream(), Mode::Sync)
    }

    fn cuMemcpyAtoD_v2(
        &self,
        dstDevice: CUdeviceptr,
        srcArray: CUarray,
        srcOffset: usize,
        ByteCount: usize,
    ) -> Result<(), CUresult> {
        let (to, from) = ((Memory::Device(dstDevice), 0), (array(srcArray), srcOffset));
        let copy = BoxCopy::run(to, from, ByteCount);
        self.copy_box("cuMemcpyAtoD", &copy, default_stream(), Mode::Sync)
    }

    fn cuMemcpyHtoA_v2(
        &self,
        dstArray: CUarray,
        dstOffset: usize,
        srcHost: HostPtr,
        ByteCount: usize,
    ) -> Result<(), CUresult> {
        let (to, from) = ((array(dstArray), dstOffset), (Memory::Host(srcHost), 0));
        let copy = BoxCopy::run(to, from, ByteCount);
        self.copy_box("cuMemcpyHtoA", &copy, default_stream(), Mode::Sync)
    }

    fn cuMemcpyAtoH_v2(
        &self,
        dstHost: HostPtr,
        srcArray: CUarray,
        srcOffset: usize,
        ByteCount: usize,
    ) -> Result<(), CUresult> {
        let (to, from) = ((Memory::Host(dstHost), 0), (array(srcArray), srcOffset));
        let copy = BoxCopy::run(to, from, ByteCount);
        self.copy_box("cuMemcpyAtoH", &copy, default_stream(), Mode::Sync)
    }

    fn cuMemcpyAtoA_v2(
        &self,
        dstArray: CUarray,
        dstOffset: usize,
        srcArray: CUarray,
        srcOffset: usize,
        ByteCount: usize,
    ) -> Result<(), CUresult> {
        let (to, from) = ((array(dstArray), dstOffset), (array(srcArray), srcOffset));
        let copy = BoxCopy::run(to, from, ByteCount);
        self.copy_box("cuMemcpyAtoA", &copy, default_stream(), Mode::Sync)
    }

    fn cuMemcpy2D_v2(&self, pCopy: Vouched<'_, CUDA_MEMCPY2D>) -> Result<(), CUresult> {
        self.rectangle("cuMemcpy2D", pCopy, default_stream(), Mode::Sync)
    }

    fn cuMemcpy2DUnaligned_v2(&self, pCopy: Vouched<'_, CUDA_MEMCPY2D>) -> Result<(), CUresult> {
        self.rectangle("cuMemcpy2DUnaligned", pCopy, default_stream(), Mode::Sync)
    }

    fn cuMemcpy3D_v2(&self, pCopy: Vouched<'_, CUDA_MEMCPY3D>) -> Result<(), CUresult> {
        self.cuboid("cuMemcpy3D", pCopy, default_stream(), Mode::Sync)
    }

    fn cuMemcpy3DPeer(&self, pCopy: Vouched<'_, CUDA_MEMCPY3D_PEER>) -> Result<(), CUresult> {
        self.cuboid_between("cuMemcpy3DPeer", pCopy, default_stream(), Mode::Sync)
    }

    fn cuMemcpyAsync(
        &self,
        dst: CUdeviceptr,
        src: CUdeviceptr,
        ByteCount: usize,
        hStream: CUstream,
    ) -> Result<(), CUresult> {
        self.anywhere("cuMemcpyAsync", dst, src, ByteCount, hStream, Mode::Async)
    }

    fn cuMemcpyPeerAsync(
        &self,
        dstDevice: CUdeviceptr,
        dstContext: CUcontext,
        srcDevice: CUdeviceptr,
        srcContext: CUcontext,
        ByteCount: usize,
        hStream: CUstream,
    ) -> Result<(), CUresult> {
        let (to, from) = ((dstDevice, dstContext), (srcDevice, srcContext));
        let stream = hStream;
        self.between_contexts(to, from, ByteCount, stream, false)
    }

    fn cuMemcpyHtoDAsync_v2(
        &self,
        dstDevice: CUdeviceptr,
        srcHost: HostPtr,
        ByteCount: usize,
        hStream: CUstream,
    ) -> Result<(), CUresult> {
        let (call, size, stream) = ("cuMemcpyHtoDAsync", ByteCount, hStream);
        self.to_device(call, dstDevice, srcHost, size, stream, Mode::Async)
    }

    fn cuMemcpyDtoHAsync_v2(
        &self,
        dstHost: HostPtr,
        srcDevice: CUdeviceptr,
        ByteCount: usize,
        hStream: CUstream,
    ) -> Result<(), CUresult> {
        let (call, size, stream) = ("cuMemcpyDtoHAsync", ByteCount, hStream);
        self.to_host(call, dstHost, srcDevice, size, stream, Mode::Async)
    }

    fn cuMemcpyDtoDAsync_v2(
        &self,
        dstDevice: CUdeviceptr,
        srcDevice: CUdeviceptr,
        ByteCount: usize,
        hStream: CUstream,
    ) -> Result<(), CUresult> {
        let (call, size, stream) = ("cuMemcpyDtoDAsync", ByteCount, hStream);
        match self.are_hosts(&[dstDevice, srcDevice]) {
            true => self.anywhere(call, dstDevice, srcDevice, size, stream, Mode::Async),
            false => self.on_device(dstDevice, srcDevice, size, stream),
        }
    }

    fn cuMemcpyHtoAAsync_v2(
        &self,
        dstArray: CUarray,
        dstOffset: usize,
        srcHost: HostPtr,
        ByteCount: usize,
        hStream: CUstream,
    ) -> Result<(), CUresult> {
        let (to, from) = ((array(dstArray), dstOffset), (Memory::Host(srcHost), 0));
        let copy = BoxCopy::run(to, from, ByteCount);
        self.copy_box("cuMemcpyHtoAAsync", &copy, hStream, Mode::Async)
    }

    fn cuMemcpyAtoHAsync_v2(
        &self,
        dstHost: HostPtr,
        srcArray: CUarray,
        srcOffset: usize,
        ByteCount: usize,
        hStream: CUstream,
    ) -> Result<(), CUresult> {
        let (to, from) = ((Memory::Host(dstHost), 0), (array(srcArray), srcOffset));
        let copy = BoxCopy::run(to, from, ByteCount);
        self.copy_box("cuMemcpyAtoHAsync", &copy, hStream, Mode::Async)
    }

    fn cuMemcpy2DAsync_v2(
        &self,
        pCopy: Vouched<'_, CUDA_MEMCPY2D>,
        hStream: CUstream,
    ) -> Result<(), CUresult> {
        self.rectangle("cuMemcpy2DAsync", pCopy, hStream, Mode::Async)
    }

    fn cuMemcpy3DAsync_v2(
        &self,
        pCopy: Vouched<'_, CUDA_MEMCPY3D>,
        hStream: CUstream,
    ) -> Result<(), CUresult> {
        self.cuboid("cuMemcpy3DAsync", pCopy, hStream, Mode::Async)
    }

    fn cuMemcpy3DPeerAsync(
        &self,
        pCopy: Vouched<'_, CUDA_MEMCPY3D_PEER>,
        hStream: CUstream,
    ) -> Result<(), CUresult> {
        self.cuboid_between("cuMemcpy3DPeerAsync", pCopy, hStream, Mode::Async)
    }

    fn cuMemcpyBatchAsync(
        &self,
        dsts: Option<&[CUdeviceptr]>,
        srcs: Option<&[CUdeviceptr]>,
        sizes: Option<&[usize]>,
        _count: usize,
        attrs: Option<&[CUmemcpyAttributes]>,
        attrsIdxs: Option<&[usize]>,
        _numAttrs: usize,
        failIdx: Out<usize>,
        hStream: CUstream,
    ) -> Result<(), CUresult> {
        if hStream.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // Before anything else (seen with driver 580.159).
        let valid = self.expect_valid_capture(hStream);
        let done = match (dsts, srcs, sizes, attrs, attrsIdxs) {
            _ if valid.is_err() => valid.map_err(|status| (None, status)),
            (Some(to), Some(from), Some(sizes), Some(attrs), Some(at)) => {
                let (copies, call) = ((to, from, sizes), "cuMemcpyBatchAsync");
                self.copy_batch(call, copies, (attrs, at), hStream)
            }
            _ => Err((None, CUDA_ERROR_INVALID_VALUE)),
        };
        tell_failure(&failIdx, done)
    }

    fn cuMemcpyBatchAsync_v2(
        &self,
        dsts: &[CUdeviceptr],
        srcs: &[CUdeviceptr],
        sizes: &[usize],
        attrs: &[CUmemcpyAttributes],
        attrsIdxs: &[usize],
        hStream: CUstream,
    ) -> Result<(), CUresult> {
        let (copies, attributes) = ((dsts, srcs, sizes), (attrs, attrsIdxs));
        let done = self.copy_batch("cuMemcpyBatchAsync", copies, attributes, hStream);
        done.map_err(|(_, status)| status)
    }

    fn cuMemcpy3DBatchAsync(
        &self,
        _numOps: usize,
        opList: Option<&[CUDA_MEMCPY3D_BATCH_OP]>,
        failIdx: Out<usize>,
        flags: u64,
        hStream: CUstream,
    ) -> Result<(), CUresult> {
        if hStream.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // No list is refused as an empty one is.
        let ops = opList.unwrap_or_default();
        let done = self.copy_boxes("cuMemcpy3DBatchAsync", ops, flags, hStream);
        tell_failure(&failIdx, done)
    }

    fn cuMemcpy3DBatchAsync_v2(
        &self,
        opList: &[CUDA_MEMCPY3D_BATCH_OP],
        flags: u64,
        hStream: CUstream,
    ) -> Result<(), CUresult> {
        let done = self.copy_boxes("cuMemcpy3DBatchAsync", opList, flags, hStream);
        done.map_err(|(_, status)| status)
    }

    fn cuMemcpyWithAttributesAsync(
        &self,
        dst: CUdeviceptr,
        src: CUdeviceptr,
        size: usize,
        attr: &CUmemcpyAttributes,
        hStream: CUstream,
    ) -> Result<(), CUresult> {
        let call = "cuMemcpyWithAttributesAsync";
        let attributes = (from_ref(attr), &[0][..]);
        let done = self.copy_batch(call, (&[dst], &[src], &[size]), attributes, hStream);
        done.map_err(|(_, status)| status)
    }

    fn cuMemcpy3DWithAttributesAsync(
        &self,
        op: &CUDA_MEMCPY3D_BATCH_OP,
        flags: u64,
        hStream: CUstream,
    ) -> Result<(), CUresult> {
        let call = "cuMemcpy3DWithAttributesAsync";
        let done = self.copy_boxes(call, from_ref(op), flags, hStream);
        done.map_err(|(_, status)| status)
    }

    fn cuMemsetD8_v2(&self, dstDevice: CUdeviceptr, uc: u8, N: usize) -> Result<(), CUresult> {
        self.fill_now(dstDevice, 0, uc.into(), 1, N, 1)
    }

    fn cuMemsetD16_v2(&self, dstDevice: CUdeviceptr, us: u16, N: usize) -> Result<(), CUresult> {
        self.fill_now(dstDevice, 0, us.into(), 2, N, 1)
    }

    fn cuMemsetD32_v2(&self, dstDevice: CUdeviceptr, ui: u32, N: usize) -> Result<(), CUresult> {
        self.fill_now(dstDevice, 0, ui, 4, N, 1)
    }

    fn cuMemsetD2D8_v2(
        &self,
        dstDevice: CUdeviceptr,
        dstPitch: usize,
        uc: u8,
        Width: usize,
        Height: usize,
    ) -> Result<(), CUresult> {
        self.fill_now(dstDevice, dstPitch, uc.into(), 1, Width, Height)
    }

    fn cuMemsetD2D16_v2(
        &self,
        dstDevice: CUdeviceptr,
        dstPitch: usize,
        us: u16,
        Width: usize,
        Height: usize,
    ) -> Result<(), CUresult> {
        self.fill_now(dstDevice, dstPitch, us.into(), 2, Width, Height)
    }

    fn cuMemsetD2D32_v2(
        &self,
        dstDevice: CUdeviceptr,
        dstPitch: usize,
        ui: u32,
        Width: usize,
        Height: usize,
    ) -> Result<(), CUresult> {
        self.fill_now(dstDevice, dstPitch, ui, 4, Width, Height)
    }

    fn cuMemsetD8Async(
        &self,
        dstDevice: CUdeviceptr,
        uc: u8,
        N: usize,
        hStream: CUstream,
    ) -> Result<(), CUresult> {
        self.fill(dstDevice, 0, uc.into(), 1, N, 1, hStream)
    }

    fn cuMemsetD16Async(
        &self,
        dstDevice: CUdeviceptr,
        us: u16,
        N: usize,
        hStream: CUstream,
    ) -> Result<(), CUresult> {
        self.fill(dstDevice, 0, us.into(), 2, N, 1, hStream)
    }

    fn cuMemsetD32Async(
        &self,
        dstDevice: CUdeviceptr,
        ui: u32,
        N: usize,
        hStream: CUstream,
    ) -> Result<(), CUresult> {
        self.fill(dstDevice, 0, ui, 4, N, 1, hStream)
    }

    fn cuMemsetD2D8Async(
        &self,
        dstDevice: CUdeviceptr,
        dstPitch: usize,
        uc: u8,
        Width: usize,
        Height: usize,
        hStream: CUstream,
    ) -> Result<(), CUresult> {
        self.fill(dstDevice, dstPitch, uc.into(), 1, Width, Height, hStream)
    }

    fn cuMemsetD2D16Async(
        &self,
        dstDevice: CUdeviceptr,
        dstPitch: usize,
        us: u16,
        Width: usize,
        Height: usize,
        hStream: CUstream,
    ) -> Result<(), CUresult> {
        self.fill(dstDevice, dstPitch, us.into(), 2, Width, Height, hStream)
    }

    fn cuMemsetD2D32Async(
        &self,
        dstDevice: CUdeviceptr,
        dstPitch: usize,
        ui: u32,
        Width: usize,
        Height: usize,
        hStream: CUstream,
    ) -> Result<(), CUresult> {
        self.fill(dstDevice, dstPitch, ui, 4, Width, Height, hStream)
    }
}
