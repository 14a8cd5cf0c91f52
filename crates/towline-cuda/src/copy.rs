//! Copies and fills.

use std::ffi::c_void;

use towline_backend::cuda as wire;
use towline_backend::cuda::*;
use towline_client::cuda::{HostRows, Rows};

use crate::driver::{CopyCalls, Driver, read, status};
use crate::thread::default_stream;

/// How a call relates to its stream.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// The data is where it belongs when the call returns, as far as the application can see.
    Sync,
    Async,
}

impl Driver {
    /// # Safety
    /// `source` is readable for `size` bytes.
    unsafe fn to_device(
        &self,
        call: &'static str,
        address: u64,
        source: *const c_void,
        size: usize,
        stream: CUstream,
        mode: Mode,
    ) -> Result<(), CUresult> {
        if size == 0 {
            return self.current().map(|_| ());
        }
        if source.is_null() || address == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let (acting, stream) = self.on(stream)?;
        // Pageable memory may change as soon as the call returns, pinned memory only once the stream has been there.
        let captured =
            mode == Mode::Sync || !read(&self.memory).is_pinned(source.addr() as u64, size);
        // SAFETY: the caller's contract.
        unsafe {
            acting.session.write(
                acting.actor,
                call,
                stream.0,
                address,
                source.cast(),
                size,
                captured,
            )
        }?;
        acting.touch(stream);
        Ok(())
    }

    /// # Safety
    /// `target` is writable for `size` bytes.
    unsafe fn to_host(
        &self,
        call: &'static str,
        target: *mut c_void,
        address: u64,
        size: usize,
        stream: CUstream,
        mode: Mode,
    ) -> Result<(), CUresult> {
        if size == 0 {
            return self.current().map(|_| ());
        }
        if target.is_null() || address == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let (acting, stream) = self.on(stream)?;
        // As the driver: a copy into pageable memory returns when it is done.
        let wait = mode == Mode::Sync || !read(&self.memory).is_pinned(target.addr() as u64, size);
        let posted = acting.posted(stream);
        // SAFETY: the caller's contract.
        unsafe {
            acting.session.read(
                acting.actor,
                call,
                stream.0,
                address,
                target.cast(),
                size,
                wait,
            )
        }?;
        if wait {
            acting.note_done(stream.0, posted);
        } else {
            acting.touch(stream);
        }
        Ok(())
    }

    fn on_device(
        &self,
        target: u64,
        source: u64,
        size: usize,
        stream: CUstream,
    ) -> Result<(), CUresult> {
        if size == 0 {
            return self.current().map(|_| ());
        }
        if target == 0 || source == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let (acting, stream) = self.on(stream)?;
        acting.post(&wire::Copy {
            stream,
            destination: target,
            destination_context: wire::ContextHandle(0),
            source,
            source_context: wire::ContextHandle(0),
            size: size as u64,
        })?;
        acting.touch(stream);
        Ok(())
    }

    /// A copy whose direction the addresses tell.
    ///
    /// # Safety
    /// Both ranges are valid for `size` bytes, wherever they are.
    unsafe fn anywhere(
        &self,
        call: &'static str,
        target: u64,
        source: u64,
        size: usize,
        stream: CUstream,
        mode: Mode,
    ) -> Result<(), CUresult> {
        self.ready()?;
        let (to_device, from_device) = {
            let ranges = read(&self.memory);
            (ranges.is_device(target), ranges.is_device(source))
        };
        let target_host = std::ptr::with_exposed_provenance_mut::<c_void>(target as usize);
        let source_host = std::ptr::with_exposed_provenance::<c_void>(source as usize);
        match (to_device, from_device) {
            (true, true) => self.on_device(target, source, size, stream),
            // SAFETY: the caller's contract.
            (true, false) => unsafe {
                self.to_device(call, target, source_host, size, stream, mode)
            },
            // SAFETY: as above.
            (false, true) => unsafe { self.to_host(call, target_host, source, size, stream, mode) },
            (false, false) => {
                let (acting, handle) = self.on(stream)?;
                acting.synchronise(handle)?;
                // SAFETY: the caller's contract.
                unsafe { std::ptr::copy(source_host.cast::<u8>(), target_host.cast::<u8>(), size) };
                Ok(())
            }
        }
    }

    /// # Safety
    /// The contract of cuMemcpy2D.
    unsafe fn rows(
        &self,
        call: &'static str,
        copy: *const CUDA_MEMCPY2D,
        stream: CUstream,
        mode: Mode,
    ) -> Result<(), CUresult> {
        // SAFETY: the caller's contract.
        let copy = unsafe { copy.as_ref() }.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let (width, height) = (copy.WidthInBytes, copy.Height);
        let wanted = |pitch: usize| if pitch == 0 { width } else { pitch };
        let (from_pitch, to_pitch) = (wanted(copy.srcPitch), wanted(copy.dstPitch));
        if height > 1 && (from_pitch < width || to_pitch < width) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if width == 0 || height == 0 {
            return self.current().map(|_| ());
        }
        let (from_offset, to_offset) = (
            copy.srcY * from_pitch + copy.srcXInBytes,
            copy.dstY * to_pitch + copy.dstXInBytes,
        );
        let is_device = |kind, address| match kind {
            CU_MEMORYTYPE_DEVICE => Ok(true),
            CU_MEMORYTYPE_HOST => Ok(false),
            CU_MEMORYTYPE_UNIFIED => Ok(read(&self.memory).is_device(address)),
            _ => Err(CUDA_ERROR_NOT_SUPPORTED),
        };
        let from_device = is_device(copy.srcMemoryType, copy.srcDevice)?;
        let to_device = is_device(copy.dstMemoryType, copy.dstDevice)?;
        let host = |unified, pointer: *mut u8, address: u64| match unified {
            true => std::ptr::with_exposed_provenance_mut(address as usize),
            false => pointer,
        };
        let from_host = host(
            copy.srcMemoryType == CU_MEMORYTYPE_UNIFIED,
            copy.srcHost.cast_mut().cast(),
            copy.srcDevice,
        );
        let to_host = host(
            copy.dstMemoryType == CU_MEMORYTYPE_UNIFIED,
            copy.dstHost.cast(),
            copy.dstDevice,
        );
        let from_host = HostRows {
            start: from_host.wrapping_add(from_offset),
            pitch: from_pitch,
        };
        let to_host = HostRows {
            start: to_host.wrapping_add(to_offset),
            pitch: to_pitch,
        };
        let from = Rows {
            address: copy.srcDevice.wrapping_add(from_offset as u64),
            pitch: from_pitch,
        };
        let to = Rows {
            address: copy.dstDevice.wrapping_add(to_offset as u64),
            pitch: to_pitch,
        };
        let (acting, stream) = self.on(stream)?;
        let extent = |rows: HostRows| rows.pitch * (height - 1) + width;
        let pinned =
            |rows: HostRows| read(&self.memory).is_pinned(rows.start.addr() as u64, extent(rows));
        match (to_device, from_device) {
            (true, false) => {
                let captured = mode == Mode::Sync || !pinned(from_host);
                // SAFETY: the caller's contract.
                unsafe {
                    acting.session.write_rows(
                        acting.actor,
                        call,
                        stream.0,
                        to,
                        from_host,
                        (width, height),
                        captured,
                    )
                }?;
            }
            (false, true) => {
                let wait = mode == Mode::Sync || !pinned(to_host);
                // SAFETY: the caller's contract.
                unsafe {
                    acting.session.read_rows(
                        acting.actor,
                        call,
                        stream.0,
                        from,
                        to_host,
                        (width, height),
                        wait,
                    )
                }?;
            }
            (true, true) => {
                let word = |value: usize| value as u64;
                let place = [
                    0,
                    0,
                    0,
                    0,
                    word(from.pitch),
                    word(height),
                    0,
                    0,
                    0,
                    0,
                    word(to.pitch),
                    word(height),
                    word(width),
                    word(height),
                    1,
                ];
                acting.post(&wire::CopyBox {
                    stream,
                    destination_array: wire::ArrayHandle(0),
                    destination: to.address,
                    destination_context: wire::ContextHandle(0),
                    source_array: wire::ArrayHandle(0),
                    source: from.address,
                    source_context: wire::ContextHandle(0),
                    place: wire::List::Values(&place),
                })?;
            }
            (false, false) => {
                acting.synchronise(stream)?;
                for row in 0..height {
                    let source = from_host.start.wrapping_add(row * from_host.pitch);
                    let target = to_host.start.wrapping_add(row * to_host.pitch);
                    // SAFETY: the caller's contract.
                    unsafe { std::ptr::copy(source, target, width) };
                }
                return Ok(());
            }
        }
        acting.touch(stream);
        Ok(())
    }

    fn fill(
        &self,
        address: u64,
        pitch: usize,
        value: u32,
        element_size: u32,
        width: usize,
        height: usize,
        stream: CUstream,
    ) -> Result<(), CUresult> {
        if width == 0 || height == 0 {
            return self.current().map(|_| ());
        }
        if address == 0 || !address.is_multiple_of(u64::from(element_size)) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let (acting, stream) = self.on(stream)?;
        acting.post(&wire::Memset {
            stream,
            address,
            pitch: pitch as u64,
            value,
            element_size,
            width: width as u64,
            height: height as u64,
        })?;
        acting.touch(stream);
        Ok(())
    }
}

impl CopyCalls for Driver {
    unsafe fn cuMemcpy(&self, dst: CUdeviceptr, src: CUdeviceptr, ByteCount: usize) -> CUresult {
        let stream = default_stream();
        // SAFETY: the caller's contract.
        status(unsafe { self.anywhere("cuMemcpy", dst, src, ByteCount, stream, Mode::Sync) })
    }

    unsafe fn cuMemcpyAsync(
        &self,
        dst: CUdeviceptr,
        src: CUdeviceptr,
        ByteCount: usize,
        hStream: CUstream,
    ) -> CUresult {
        let call = "cuMemcpyAsync";
        // SAFETY: the caller's contract.
        status(unsafe { self.anywhere(call, dst, src, ByteCount, hStream, Mode::Async) })
    }

    unsafe fn cuMemcpyHtoD_v2(
        &self,
        dstDevice: CUdeviceptr,
        srcHost: *const c_void,
        ByteCount: usize,
    ) -> CUresult {
        let (call, stream) = ("cuMemcpyHtoD", default_stream());
        // SAFETY: the caller's contract.
        status(unsafe { self.to_device(call, dstDevice, srcHost, ByteCount, stream, Mode::Sync) })
    }

    unsafe fn cuMemcpyDtoH_v2(
        &self,
        dstHost: *mut c_void,
        srcDevice: CUdeviceptr,
        ByteCount: usize,
    ) -> CUresult {
        let (call, stream) = ("cuMemcpyDtoH", default_stream());
        // SAFETY: the caller's contract.
        status(unsafe { self.to_host(call, dstHost, srcDevice, ByteCount, stream, Mode::Sync) })
    }

    unsafe fn cuMemcpyDtoD_v2(
        &self,
        dstDevice: CUdeviceptr,
        srcDevice: CUdeviceptr,
        ByteCount: usize,
    ) -> CUresult {
        status(self.on_device(dstDevice, srcDevice, ByteCount, default_stream()))
    }

    unsafe fn cuMemcpyHtoDAsync_v2(
        &self,
        dstDevice: CUdeviceptr,
        srcHost: *const c_void,
        ByteCount: usize,
        hStream: CUstream,
    ) -> CUresult {
        let call = "cuMemcpyHtoDAsync";
        // SAFETY: the caller's contract.
        status(unsafe { self.to_device(call, dstDevice, srcHost, ByteCount, hStream, Mode::Async) })
    }

    unsafe fn cuMemcpyDtoHAsync_v2(
        &self,
        dstHost: *mut c_void,
        srcDevice: CUdeviceptr,
        ByteCount: usize,
        hStream: CUstream,
    ) -> CUresult {
        let call = "cuMemcpyDtoHAsync";
        // SAFETY: the caller's contract.
        status(unsafe { self.to_host(call, dstHost, srcDevice, ByteCount, hStream, Mode::Async) })
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

    unsafe fn cuMemcpy2D_v2(&self, pCopy: *const CUDA_MEMCPY2D) -> CUresult {
        // SAFETY: the caller's contract.
        status(unsafe { self.rows("cuMemcpy2D", pCopy, default_stream(), Mode::Sync) })
    }

    unsafe fn cuMemcpy2DUnaligned_v2(&self, pCopy: *const CUDA_MEMCPY2D) -> CUresult {
        // SAFETY: the caller's contract.
        status(unsafe { self.rows("cuMemcpy2DUnaligned", pCopy, default_stream(), Mode::Sync) })
    }

    unsafe fn cuMemcpy2DAsync_v2(
        &self,
        pCopy: *const CUDA_MEMCPY2D,
        hStream: CUstream,
    ) -> CUresult {
        // SAFETY: the caller's contract.
        status(unsafe { self.rows("cuMemcpy2DAsync", pCopy, hStream, Mode::Async) })
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
        let stream = default_stream();
        status(self.fill(dstDevice, dstPitch, uc.into(), 1, Width, Height, stream))
    }

    unsafe fn cuMemsetD2D16_v2(
        &self,
        dstDevice: CUdeviceptr,
        dstPitch: usize,
        us: u16,
        Width: usize,
        Height: usize,
    ) -> CUresult {
        let stream = default_stream();
        status(self.fill(dstDevice, dstPitch, us.into(), 2, Width, Height, stream))
    }

    unsafe fn cuMemsetD2D32_v2(
        &self,
        dstDevice: CUdeviceptr,
        dstPitch: usize,
        ui: u32,
        Width: usize,
        Height: usize,
    ) -> CUresult {
        let stream = default_stream();
        status(self.fill(dstDevice, dstPitch, ui, 4, Width, Height, stream))
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
