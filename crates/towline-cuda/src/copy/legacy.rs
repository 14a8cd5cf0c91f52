//! Structures of copies in other forms: those of before CUDA 3.2, with 32-bit sizes and addresses, and those that name contexts.

use towline_backend::cuda::*;

pub(super) fn rectangle(copy: &CUDA_MEMCPY2D_v1) -> CUDA_MEMCPY2D {
    CUDA_MEMCPY2D {
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
    }
}

pub(super) fn cuboid(copy: &CUDA_MEMCPY3D_v1) -> CUDA_MEMCPY3D {
    CUDA_MEMCPY3D {
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
    }
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
        unsafe fn cuMemcpyHtoD(
            &self,
            dstDevice: CUdeviceptr_v1,
            srcHost: *const c_void,
            ByteCount: u32,
        ) -> CUresult {
            let (call, size, stream) = ("cuMemcpyHtoD", ByteCount as usize, default_stream());
            // SAFETY: the caller's contract.
            status(unsafe {
                self.to_device(call, dstDevice.into(), srcHost, size, stream, Mode::Sync)
            })
        }

        unsafe fn cuMemcpyDtoH(
            &self,
            dstHost: *mut c_void,
            srcDevice: CUdeviceptr_v1,
            ByteCount: u32,
        ) -> CUresult {
            let (call, size, stream) = ("cuMemcpyDtoH", ByteCount as usize, default_stream());
            // SAFETY: the caller's contract.
            status(unsafe {
                self.to_host(call, dstHost, srcDevice.into(), size, stream, Mode::Sync)
            })
        }

        unsafe fn cuMemcpyDtoD(
            &self,
            dstDevice: CUdeviceptr_v1,
            srcDevice: CUdeviceptr_v1,
            ByteCount: u32,
        ) -> CUresult {
            status(self.on_device(
                dstDevice.into(),
                srcDevice.into(),
                ByteCount as usize,
                default_stream(),
            ))
        }

        unsafe fn cuMemcpyDtoA(
            &self,
            dstArray: CUarray,
            dstOffset: u32,
            srcDevice: CUdeviceptr_v1,
            ByteCount: u32,
        ) -> CUresult {
            let (to, from) = (
                (array(dstArray), dstOffset as usize),
                (Memory::Device(srcDevice.into()), 0),
            );
            let copy = BoxCopy::run(to, from, ByteCount as usize);
            // SAFETY: the caller's contract.
            status(unsafe { self.copy_box("cuMemcpyDtoA", &copy, default_stream(), Mode::Sync) })
        }

        unsafe fn cuMemcpyAtoD(
            &self,
            dstDevice: CUdeviceptr_v1,
            srcArray: CUarray,
            srcOffset: u32,
            ByteCount: u32,
        ) -> CUresult {
            let (to, from) = (
                (Memory::Device(dstDevice.into()), 0),
                (array(srcArray), srcOffset as usize),
            );
            let copy = BoxCopy::run(to, from, ByteCount as usize);
            // SAFETY: the caller's contract.
            status(unsafe { self.copy_box("cuMemcpyAtoD", &copy, default_stream(), Mode::Sync) })
        }

        unsafe fn cuMemcpyHtoA(
            &self,
            dstArray: CUarray,
            dstOffset: u32,
            srcHost: *const c_void,
            ByteCount: u32,
        ) -> CUresult {
            let (to, from) = (
                (array(dstArray), dstOffset as usize),
                (Memory::Host(srcHost.cast_mut().cast()), 0),
            );
            let copy = BoxCopy::run(to, from, ByteCount as usize);
            // SAFETY: the caller's contract.
            status(unsafe { self.copy_box("cuMemcpyHtoA", &copy, default_stream(), Mode::Sync) })
        }

        unsafe fn cuMemcpyAtoH(
            &self,
            dstHost: *mut c_void,
            srcArray: CUarray,
            srcOffset: u32,
            ByteCount: u32,
        ) -> CUresult {
            let (to, from) = (
                (Memory::Host(dstHost.cast()), 0),
                (array(srcArray), srcOffset as usize),
            );
            let copy = BoxCopy::run(to, from, ByteCount as usize);
            // SAFETY: the caller's contract.
            status(unsafe { self.copy_box("cuMemcpyAtoH", &copy, default_stream(), Mode::Sync) })
        }

        unsafe fn cuMemcpyAtoA(
            &self,
            dstArray: CUarray,
            dstOffset: u32,
            srcArray: CUarray,
            srcOffset: u32,
            ByteCount: u32,
        ) -> CUresult {
            let (to, from) = (
                (array(dstArray), dstOffset as usize),
                (array(srcArray), srcOffset as usize),
            );
            let copy = BoxCopy::run(to, from, ByteCount as usize);
            // SAFETY: the caller's contract.
            status(unsafe { self.copy_box("cuMemcpyAtoA", &copy, default_stream(), Mode::Sync) })
        }

        unsafe fn cuMemcpy2D(&self, pCopy: *const CUDA_MEMCPY2D_v1) -> CUresult {
            // SAFETY: the caller's contract.
            let copy = unsafe { pCopy.as_ref() }.map(legacy::rectangle);
            // SAFETY: the caller's contract.
            status(unsafe {
                self.rectangle("cuMemcpy2D", copy.as_ref(), default_stream(), Mode::Sync)
            })
        }

        unsafe fn cuMemcpy2DUnaligned(&self, pCopy: *const CUDA_MEMCPY2D_v1) -> CUresult {
            // SAFETY: the caller's contract.
            let copy = unsafe { pCopy.as_ref() }.map(legacy::rectangle);
            // SAFETY: the caller's contract.
            status(unsafe {
                self.rectangle(
                    "cuMemcpy2DUnaligned",
                    copy.as_ref(),
                    default_stream(),
                    Mode::Sync,
                )
            })
        }

        unsafe fn cuMemcpy3D(&self, pCopy: *const CUDA_MEMCPY3D_v1) -> CUresult {
            // SAFETY: the caller's contract.
            let copy = unsafe { pCopy.as_ref() }.map(legacy::cuboid);
            // SAFETY: the caller's contract.
            status(unsafe {
                self.cuboid("cuMemcpy3D", copy.as_ref(), default_stream(), Mode::Sync)
            })
        }

        unsafe fn cuMemcpyHtoDAsync(
            &self,
            dstDevice: CUdeviceptr_v1,
            srcHost: *const c_void,
            ByteCount: u32,
            hStream: CUstream,
        ) -> CUresult {
            let (call, size, stream) = ("cuMemcpyHtoDAsync", ByteCount as usize, hStream);
            // SAFETY: the caller's contract.
            status(unsafe {
                self.to_device(call, dstDevice.into(), srcHost, size, stream, Mode::Async)
            })
        }

        unsafe fn cuMemcpyDtoHAsync(
            &self,
            dstHost: *mut c_void,
            srcDevice: CUdeviceptr_v1,
            ByteCount: u32,
            hStream: CUstream,
        ) -> CUresult {
            let (call, size, stream) = ("cuMemcpyDtoHAsync", ByteCount as usize, hStream);
            // SAFETY: the caller's contract.
            status(unsafe {
                self.to_host(call, dstHost, srcDevice.into(), size, stream, Mode::Async)
            })
        }

        unsafe fn cuMemcpyDtoDAsync(
            &self,
            dstDevice: CUdeviceptr_v1,
            srcDevice: CUdeviceptr_v1,
            ByteCount: u32,
            hStream: CUstream,
        ) -> CUresult {
            status(self.on_device(
                dstDevice.into(),
                srcDevice.into(),
                ByteCount as usize,
                hStream,
            ))
        }

        unsafe fn cuMemcpyHtoAAsync(
            &self,
            dstArray: CUarray,
            dstOffset: u32,
            srcHost: *const c_void,
            ByteCount: u32,
            hStream: CUstream,
        ) -> CUresult {
            let (to, from) = (
                (array(dstArray), dstOffset as usize),
                (Memory::Host(srcHost.cast_mut().cast()), 0),
            );
            let copy = BoxCopy::run(to, from, ByteCount as usize);
            // SAFETY: the caller's contract.
            status(unsafe { self.copy_box("cuMemcpyHtoAAsync", &copy, hStream, Mode::Async) })
        }

        unsafe fn cuMemcpyAtoHAsync(
            &self,
            dstHost: *mut c_void,
            srcArray: CUarray,
            srcOffset: u32,
            ByteCount: u32,
            hStream: CUstream,
        ) -> CUresult {
            let (to, from) = (
                (Memory::Host(dstHost.cast()), 0),
                (array(srcArray), srcOffset as usize),
            );
            let copy = BoxCopy::run(to, from, ByteCount as usize);
            // SAFETY: the caller's contract.
            status(unsafe { self.copy_box("cuMemcpyAtoHAsync", &copy, hStream, Mode::Async) })
        }

        unsafe fn cuMemcpy2DAsync(
            &self,
            pCopy: *const CUDA_MEMCPY2D_v1,
            hStream: CUstream,
        ) -> CUresult {
            // SAFETY: the caller's contract.
            let copy = unsafe { pCopy.as_ref() }.map(legacy::rectangle);
            // SAFETY: the caller's contract.
            status(unsafe {
                self.rectangle("cuMemcpy2DAsync", copy.as_ref(), hStream, Mode::Async)
            })
        }

        unsafe fn cuMemcpy3DAsync(
            &self,
            pCopy: *const CUDA_MEMCPY3D_v1,
            hStream: CUstream,
        ) -> CUresult {
            // SAFETY: the caller's contract.
            let copy = unsafe { pCopy.as_ref() }.map(legacy::cuboid);
            // SAFETY: the caller's contract.
            status(unsafe { self.cuboid("cuMemcpy3DAsync", copy.as_ref(), hStream, Mode::Async) })
        }

        unsafe fn cuMemsetD8(&self, dstDevice: CUdeviceptr_v1, uc: u8, N: u32) -> CUresult {
            status(self.fill(
                dstDevice.into(),
                0,
                uc.into(),
                1,
                N as usize,
                1,
                default_stream(),
            ))
        }

        unsafe fn cuMemsetD16(&self, dstDevice: CUdeviceptr_v1, us: u16, N: u32) -> CUresult {
            status(self.fill(
                dstDevice.into(),
                0,
                us.into(),
                2,
                N as usize,
                1,
                default_stream(),
            ))
        }

        unsafe fn cuMemsetD32(&self, dstDevice: CUdeviceptr_v1, ui: u32, N: u32) -> CUresult {
            status(self.fill(dstDevice.into(), 0, ui, 4, N as usize, 1, default_stream()))
        }

        unsafe fn cuMemsetD2D8(
            &self,
            dstDevice: CUdeviceptr_v1,
            dstPitch: u32,
            uc: u8,
            Width: u32,
            Height: u32,
        ) -> CUresult {
            status(self.fill(
                dstDevice.into(),
                dstPitch as usize,
                uc.into(),
                1,
                Width as usize,
                Height as usize,
                default_stream(),
            ))
        }

        unsafe fn cuMemsetD2D16(
            &self,
            dstDevice: CUdeviceptr_v1,
            dstPitch: u32,
            us: u16,
            Width: u32,
            Height: u32,
        ) -> CUresult {
            status(self.fill(
                dstDevice.into(),
                dstPitch as usize,
                us.into(),
                2,
                Width as usize,
                Height as usize,
                default_stream(),
            ))
        }

        unsafe fn cuMemsetD2D32(
            &self,
            dstDevice: CUdeviceptr_v1,
            dstPitch: u32,
            ui: u32,
            Width: u32,
            Height: u32,
        ) -> CUresult {
            status(self.fill(
                dstDevice.into(),
                dstPitch as usize,
                ui,
                4,
                Width as usize,
                Height as usize,
                default_stream(),
            ))
        }
    };
}
pub(super) use legacy_calls;
