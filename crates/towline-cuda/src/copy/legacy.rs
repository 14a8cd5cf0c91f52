//! Structures of copies in other forms: those of before CUDA 3.2, with 32-bit sizes and addresses, and those that name contexts.

use towline_backend::cuda::*;
use towline_client::raw::Vouched;

pub(super) fn rectangle(copy: Vouched<'_, CUDA_MEMCPY2D_v1>) -> Vouched<'_, CUDA_MEMCPY2D> {
    let copy = CUDA_MEMCPY2D {
        srcXInBytes: copy.srcXInBytes as usize,
        srcY: copy.srcY as usize,
        srcMemoryType: copy.srcMemoryType,
        srcHost: copy.srcHost,
        srcDevice: copy.srcDevice.into(),
        srcArray: copy.srcArray,
        srcPitch: copy.srcPitch as usize,
        dstXInBytes: copy.dstXInBytes as usize,
        dstY: copy.dstY as usize,
        dstMemoryType: copy.dstMemoryType,
        dstHost: copy.dstHost,
        dstDevice: copy.dstDevice.into(),
        dstArray: copy.dstArray,
        dstPitch: copy.dstPitch as usize,
        WidthInBytes: copy.WidthInBytes as usize,
        Height: copy.Height as usize,
    };
    // SAFETY: the pointers are those that were vouched for.
    unsafe { Vouched::new(copy) }
}

pub(super) fn cuboid(copy: Vouched<'_, CUDA_MEMCPY3D_v1>) -> Vouched<'_, CUDA_MEMCPY3D> {
    let copy = CUDA_MEMCPY3D {
        srcXInBytes: copy.srcXInBytes as usize,
        srcY: copy.srcY as usize,
        srcZ: copy.srcZ as usize,
        srcLOD: copy.srcLOD as usize,
        srcMemoryType: copy.srcMemoryType,
        srcHost: copy.srcHost,
        srcDevice: copy.srcDevice.into(),
        srcArray: copy.srcArray,
        reserved0: copy.reserved0,
        srcPitch: copy.srcPitch as usize,
        srcHeight: copy.srcHeight as usize,
        dstXInBytes: copy.dstXInBytes as usize,
        dstY: copy.dstY as usize,
        dstZ: copy.dstZ as usize,
        dstLOD: copy.dstLOD as usize,
        dstMemoryType: copy.dstMemoryType,
        dstHost: copy.dstHost,
        dstDevice: copy.dstDevice.into(),
        dstArray: copy.dstArray,
        reserved1: copy.reserved1,
        dstPitch: copy.dstPitch as usize,
        dstHeight: copy.dstHeight as usize,
        WidthInBytes: copy.WidthInBytes as usize,
        Height: copy.Height as usize,
        Depth: copy.Depth as usize,
    };
    // SAFETY: the pointers are those that were vouched for.
    unsafe { Vouched::new(copy) }
}

pub(super) fn without_contexts(copy: &CUDA_MEMCPY3D_PEER) -> CUDA_MEMCPY3D {
    CUDA_MEMCPY3D {
        srcXInBytes: copy.srcXInBytes,
        srcY: copy.srcY,
        srcZ: copy.srcZ,
        srcLOD: copy.srcLOD,
        srcMemoryType: copy.srcMemoryType,
        srcHost: copy.srcHost,
        srcDevice: copy.srcDevice,
        srcArray: copy.srcArray,
        reserved0: std::ptr::null_mut(),
        srcPitch: copy.srcPitch,
        srcHeight: copy.srcHeight,
        dstXInBytes: copy.dstXInBytes,
        dstY: copy.dstY,
        dstZ: copy.dstZ,
        dstLOD: copy.dstLOD,
        dstMemoryType: copy.dstMemoryType,
        dstHost: copy.dstHost,
        dstDevice: copy.dstDevice,
        dstArray: copy.dstArray,
        reserved1: std::ptr::null_mut(),
        dstPitch: copy.dstPitch,
        dstHeight: copy.dstHeight,
        WidthInBytes: copy.WidthInBytes,
        Height: copy.Height,
        Depth: copy.Depth,
    }
}

/// The calls: an `impl` cannot lie in several files.
macro_rules! legacy_calls {
    () => {
        fn cuMemcpyHtoD(
            &self,
            dstDevice: CUdeviceptr_v1,
            srcHost: HostPtr,
            ByteCount: u32,
        ) -> Result<(), CUresult> {
            CopyCalls::cuMemcpyHtoD_v2(self, dstDevice.into(), srcHost, ByteCount as usize)
        }

        fn cuMemcpyDtoH(
            &self,
            dstHost: HostPtr,
            srcDevice: CUdeviceptr_v1,
            ByteCount: u32,
        ) -> Result<(), CUresult> {
            CopyCalls::cuMemcpyDtoH_v2(self, dstHost, srcDevice.into(), ByteCount as usize)
        }

        fn cuMemcpyDtoD(
            &self,
            dstDevice: CUdeviceptr_v1,
            srcDevice: CUdeviceptr_v1,
            ByteCount: u32,
        ) -> Result<(), CUresult> {
            CopyCalls::cuMemcpyDtoD_v2(self, dstDevice.into(), srcDevice.into(), ByteCount as usize)
        }

        fn cuMemcpyDtoA(
            &self,
            dstArray: CUarray,
            dstOffset: u32,
            srcDevice: CUdeviceptr_v1,
            ByteCount: u32,
        ) -> Result<(), CUresult> {
            CopyCalls::cuMemcpyDtoA_v2(
                self,
                dstArray,
                dstOffset as usize,
                srcDevice.into(),
                ByteCount as usize,
            )
        }

        fn cuMemcpyAtoD(
            &self,
            dstDevice: CUdeviceptr_v1,
            srcArray: CUarray,
            srcOffset: u32,
            ByteCount: u32,
        ) -> Result<(), CUresult> {
            CopyCalls::cuMemcpyAtoD_v2(
                self,
                dstDevice.into(),
                srcArray,
                srcOffset as usize,
                ByteCount as usize,
            )
        }

        fn cuMemcpyHtoA(
            &self,
            dstArray: CUarray,
            dstOffset: u32,
            srcHost: HostPtr,
            ByteCount: u32,
        ) -> Result<(), CUresult> {
            CopyCalls::cuMemcpyHtoA_v2(
                self,
                dstArray,
                dstOffset as usize,
                srcHost,
                ByteCount as usize,
            )
        }

        fn cuMemcpyAtoH(
            &self,
            dstHost: HostPtr,
            srcArray: CUarray,
            srcOffset: u32,
            ByteCount: u32,
        ) -> Result<(), CUresult> {
            CopyCalls::cuMemcpyAtoH_v2(
                self,
                dstHost,
                srcArray,
                srcOffset as usize,
                ByteCount as usize,
            )
        }

        fn cuMemcpyAtoA(
            &self,
            dstArray: CUarray,
            dstOffset: u32,
            srcArray: CUarray,
            srcOffset: u32,
            ByteCount: u32,
        ) -> Result<(), CUresult> {
            CopyCalls::cuMemcpyAtoA_v2(
                self,
                dstArray,
                dstOffset as usize,
                srcArray,
                srcOffset as usize,
                ByteCount as usize,
            )
        }

        fn cuMemcpy2D(&self, pCopy: Vouched<'_, CUDA_MEMCPY2D_v1>) -> Result<(), CUresult> {
            CopyCalls::cuMemcpy2D_v2(self, legacy::rectangle(pCopy))
        }

        fn cuMemcpy2DUnaligned(
            &self,
            pCopy: Vouched<'_, CUDA_MEMCPY2D_v1>,
        ) -> Result<(), CUresult> {
            CopyCalls::cuMemcpy2DUnaligned_v2(self, legacy::rectangle(pCopy))
        }

        fn cuMemcpy3D(&self, pCopy: Vouched<'_, CUDA_MEMCPY3D_v1>) -> Result<(), CUresult> {
            CopyCalls::cuMemcpy3D_v2(self, legacy::cuboid(pCopy))
        }

        fn cuMemcpyHtoDAsync(
            &self,
            dstDevice: CUdeviceptr_v1,
            srcHost: HostPtr,
            ByteCount: u32,
            hStream: CUstream,
        ) -> Result<(), CUresult> {
            CopyCalls::cuMemcpyHtoDAsync_v2(
                self,
                dstDevice.into(),
                srcHost,
                ByteCount as usize,
                hStream,
            )
        }

        fn cuMemcpyDtoHAsync(
            &self,
            dstHost: HostPtr,
            srcDevice: CUdeviceptr_v1,
            ByteCount: u32,
            hStream: CUstream,
        ) -> Result<(), CUresult> {
            CopyCalls::cuMemcpyDtoHAsync_v2(
                self,
                dstHost,
                srcDevice.into(),
                ByteCount as usize,
                hStream,
            )
        }

        fn cuMemcpyDtoDAsync(
            &self,
            dstDevice: CUdeviceptr_v1,
            srcDevice: CUdeviceptr_v1,
            ByteCount: u32,
            hStream: CUstream,
        ) -> Result<(), CUresult> {
            CopyCalls::cuMemcpyDtoDAsync_v2(
                self,
                dstDevice.into(),
                srcDevice.into(),
                ByteCount as usize,
                hStream,
            )
        }

        fn cuMemcpyHtoAAsync(
            &self,
            dstArray: CUarray,
            dstOffset: u32,
            srcHost: HostPtr,
            ByteCount: u32,
            hStream: CUstream,
        ) -> Result<(), CUresult> {
            CopyCalls::cuMemcpyHtoAAsync_v2(
                self,
                dstArray,
                dstOffset as usize,
                srcHost,
                ByteCount as usize,
                hStream,
            )
        }

        fn cuMemcpyAtoHAsync(
            &self,
            dstHost: HostPtr,
            srcArray: CUarray,
            srcOffset: u32,
            ByteCount: u32,
            hStream: CUstream,
        ) -> Result<(), CUresult> {
            CopyCalls::cuMemcpyAtoHAsync_v2(
                self,
                dstHost,
                srcArray,
                srcOffset as usize,
                ByteCount as usize,
                hStream,
            )
        }

        fn cuMemcpy2DAsync(
            &self,
            pCopy: Vouched<'_, CUDA_MEMCPY2D_v1>,
            hStream: CUstream,
        ) -> Result<(), CUresult> {
            CopyCalls::cuMemcpy2DAsync_v2(self, legacy::rectangle(pCopy), hStream)
        }

        fn cuMemcpy3DAsync(
            &self,
            pCopy: Vouched<'_, CUDA_MEMCPY3D_v1>,
            hStream: CUstream,
        ) -> Result<(), CUresult> {
            CopyCalls::cuMemcpy3DAsync_v2(self, legacy::cuboid(pCopy), hStream)
        }

        fn cuMemsetD8(&self, dstDevice: CUdeviceptr_v1, uc: u8, N: u32) -> Result<(), CUresult> {
            CopyCalls::cuMemsetD8_v2(self, dstDevice.into(), uc, N as usize)
        }

        fn cuMemsetD16(&self, dstDevice: CUdeviceptr_v1, us: u16, N: u32) -> Result<(), CUresult> {
            CopyCalls::cuMemsetD16_v2(self, dstDevice.into(), us, N as usize)
        }

        fn cuMemsetD32(&self, dstDevice: CUdeviceptr_v1, ui: u32, N: u32) -> Result<(), CUresult> {
            CopyCalls::cuMemsetD32_v2(self, dstDevice.into(), ui, N as usize)
        }

        fn cuMemsetD2D8(
            &self,
            dstDevice: CUdeviceptr_v1,
            dstPitch: u32,
            uc: u8,
            Width: u32,
            Height: u32,
        ) -> Result<(), CUresult> {
            CopyCalls::cuMemsetD2D8_v2(
                self,
                dstDevice.into(),
                dstPitch as usize,
                uc,
                Width as usize,
                Height as usize,
            )
        }

        fn cuMemsetD2D16(
            &self,
            dstDevice: CUdeviceptr_v1,
            dstPitch: u32,
            us: u16,
            Width: u32,
            Height: u32,
        ) -> Result<(), CUresult> {
            CopyCalls::cuMemsetD2D16_v2(
                self,
                dstDevice.into(),
                dstPitch as usize,
                us,
                Width as usize,
                Height as usize,
            )
        }

        fn cuMemsetD2D32(
            &self,
            dstDevice: CUdeviceptr_v1,
            dstPitch: u32,
            ui: u32,
            Width: u32,
            Height: u32,
        ) -> Result<(), CUresult> {
            CopyCalls::cuMemsetD2D32_v2(
                self,
                dstDevice.into(),
                dstPitch as usize,
                ui,
                Width as usize,
                Height as usize,
            )
        }
    };
}
pub(super) use legacy_calls;
