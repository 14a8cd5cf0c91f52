//! Copies and fills.
//!
//! A call that waits is the driver's own that waits; with a default stream per thread, whose driver functions have names of their own,
//! it is the asynchronous one on that stream and a wait for it. Most calls come in these two forms, and `api/cudart/copy.rs` says which
//! method answers both.

use std::ffi::c_void;

use towline_backend::cuda::*;

use super::memory::address;
use crate::describe::{End, Piece, element_bytes};
use crate::guard::{own_default, per_thread};
use crate::runtime::{Outcome, Runtime, status};
use crate::types::*;
use crate::{call, get};

pub(crate) use self::When::{In, Now};

/// When a copy or fill is done.
#[derive(Clone, Copy)]
pub(crate) enum When {
    /// Before the call returns.
    Now,
    /// In order of a stream.
    In(cudaStream_t),
}

const ORIGIN: cudaPos = cudaPos { x: 0, y: 0, z: 0 };

/// One row of a copy that has no others.
fn row(width: usize) -> cudaExtent {
    cudaExtent {
        width,
        height: 1,
        depth: 1,
    }
}

/// Rows of bytes.
pub(crate) fn rows(width: usize, height: usize) -> cudaExtent {
    cudaExtent {
        width,
        height,
        depth: 1,
    }
}

/// A place in a row and a column.
pub(crate) fn at(x: usize, y: usize) -> cudaPos {
    cudaPos { x, y, z: 0 }
}

/// Memory in rows. One row needs no pitch; the driver would take none of several for the tightest.
fn pitched((pointer, pitch): (*const c_void, usize), extent: cudaExtent) -> Outcome<End> {
    if pitch == 0 && extent.width > 0 && extent.height > 1 {
        return Err(cudaErrorInvalidPitchValue);
    }
    Ok(End::Memory(pointer, pitch, 0))
}

impl Runtime {
    /// Does something in a stream, and waits if the call does.
    fn ordered(
        &self,
        when: When,
        now: impl FnOnce(&NativeCuda) -> CUresult,
        posted: impl FnOnce(&NativeCuda, CUstream) -> CUresult,
    ) -> Outcome {
        let driver = self.enter()?;
        match when {
            In(stream) => crate::runtime::check(posted(driver, stream)),
            Now if own_default() => {
                let stream = per_thread(std::ptr::null_mut());
                crate::runtime::check(posted(driver, stream))?;
                call!(driver.cuStreamSynchronize(stream));
                Ok(())
            }
            Now => crate::runtime::check(now(driver)),
        }
    }

    pub(crate) fn copy(
        &self,
        dst: *mut c_void,
        src: *const c_void,
        count: usize,
        kind: cudaMemcpyKind,
        when: When,
    ) -> Outcome {
        if count == 0 {
            return self.enter().map(drop);
        }
        let (to, from) = (address(dst), address(src));
        // SAFETY (all of them): the application's contract: `count` bytes of `src` are readable, those of `dst` writable, and they stay
        // so until the stream has come past the copy.
        match kind {
            cudaMemcpyHostToDevice => self.ordered(
                when,
                // SAFETY: as above.
                |driver| unsafe { driver.cuMemcpyHtoD_v2(to, src, count) },
                // SAFETY: as above.
                |driver, stream| unsafe { driver.cuMemcpyHtoDAsync_v2(to, src, count, stream) },
            ),
            cudaMemcpyDeviceToHost => self.ordered(
                when,
                // SAFETY: as above.
                |driver| unsafe { driver.cuMemcpyDtoH_v2(dst, from, count) },
                // SAFETY: as above.
                |driver, stream| unsafe { driver.cuMemcpyDtoHAsync_v2(dst, from, count, stream) },
            ),
            cudaMemcpyDeviceToDevice => self.ordered(
                when,
                // SAFETY: as above.
                |driver| unsafe { driver.cuMemcpyDtoD_v2(to, from, count) },
                // SAFETY: as above.
                |driver, stream| unsafe { driver.cuMemcpyDtoDAsync_v2(to, from, count, stream) },
            ),
            cudaMemcpyDefault | cudaMemcpyHostToHost => self.ordered(
                when,
                // SAFETY: as above.
                |driver| unsafe { driver.cuMemcpy(to, from, count) },
                // SAFETY: as above.
                |driver, stream| unsafe { driver.cuMemcpyAsync(to, from, count, stream) },
            ),
            _ => Err(cudaErrorInvalidMemcpyDirection),
        }
    }

    fn copy_box(&self, piece: &Piece, kind: cudaMemcpyKind, when: When) -> Outcome {
        let between_rows = piece.bytes && piece.memory().count() == 2;
        let copy = piece.described(kind)?;
        if copy.WidthInBytes == 0 || copy.Height == 0 || copy.Depth == 0 {
            return self.enter().map(drop);
        }
        let done = self.ordered(
            when,
            // SAFETY: the application's contract: both ends hold the box.
            |driver| unsafe { driver.cuMemcpy3D_v2(&raw const copy) },
            // SAFETY: as above, until the stream has come past the copy.
            |driver, stream| unsafe { driver.cuMemcpy3DAsync_v2(&raw const copy, stream) },
        );
        // The runtime tells a pitch that holds no row apart where the call says which side is the host's, once nothing else is wrong (seen
        // with NVIDIA's library over driver 580.159); the driver does not.
        let says = !between_rows && matches!(kind, cudaMemcpyHostToDevice | cudaMemcpyDeviceToHost);
        let mut memory = piece.memory();
        let is_narrow = says
            && memory.clone().all(|(pointer, _)| !pointer.is_null())
            && memory.any(|(_, pitch)| copy.WidthInBytes > pitch);
        match done {
            Err(cudaErrorInvalidValue) if is_narrow => Err(cudaErrorInvalidPitchValue),
            done => done,
        }
    }

    pub(crate) fn copy_box_of(&self, parms: *const cudaMemcpy3DParms, when: When) -> Outcome {
        let parms = get!(parms);
        self.copy_box(&self.piece(&parms)?, parms.kind, when)
    }

    /// An array as the end of a copy.
    pub(crate) fn array_end(&self, array: cudaArray_t) -> Outcome<End> {
        let driver = self.enter()?;
        let found = super::array::descriptor(driver, array)?;
        let element = element_bytes(found.Format, found.NumChannels)?;
        Ok(End::Array(array, element))
    }

    /// The end of a copy of a box, of which one of two members is meant.
    fn box_end(&self, array: cudaArray_t, memory: &cudaPitchedPtr) -> Outcome<End> {
        if array.is_null() {
            return Ok(End::Memory(memory.ptr, memory.pitch, memory.ysize));
        }
        if !memory.ptr.is_null() {
            return Err(cudaErrorInvalidValue);
        }
        self.array_end(array)
    }

    /// The box of a copy's parameters. Unlike with rows, memory is looked at before the stream (seen with NVIDIA's library over driver
    /// 580.159).
    pub(crate) fn piece(&self, parms: &cudaMemcpy3DParms) -> Outcome<Piece> {
        let piece = Piece {
            source: self.box_end(parms.srcArray, &parms.srcPtr)?,
            source_at: parms.srcPos,
            target: self.box_end(parms.dstArray, &parms.dstPtr)?,
            target_at: parms.dstPos,
            extent: parms.extent,
            bytes: false,
        };
        let copy = piece.described(parms.kind)?;
        if copy.Height > 0 && copy.Depth > 0 {
            if copy.WidthInBytes > 0 && piece.is_taller_than_slices() {
                return Err(cudaErrorInvalidPitchValue);
            }
            for (pointer, pitch) in piece.memory() {
                if copy.WidthInBytes > pitch && (copy.Height > 1 || copy.Depth > 1) {
                    return Err(cudaErrorInvalidPitchValue);
                }
                if copy.WidthInBytes > 0 && pointer.is_null() {
                    return Err(cudaErrorInvalidValue);
                }
            }
        }
        Ok(piece)
    }

    pub(crate) fn copy_peer_box(&self, parms: *const cudaMemcpy3DPeerParms, when: When) -> Outcome {
        let parms = get!(parms);
        let piece = Piece {
            source: self.box_end(parms.srcArray, &parms.srcPtr)?,
            source_at: parms.srcPos,
            target: self.box_end(parms.dstArray, &parms.dstPtr)?,
            target_at: parms.dstPos,
            extent: parms.extent,
            bytes: false,
        };
        let copy = piece.described(cudaMemcpyDeviceToDevice)?;
        let copy = CUDA_MEMCPY3D_PEER {
            srcXInBytes: copy.srcXInBytes,
            srcY: copy.srcY,
            srcZ: copy.srcZ,
            srcLOD: 0,
            srcMemoryType: copy.srcMemoryType,
            srcHost: copy.srcHost,
            srcDevice: copy.srcDevice,
            srcArray: copy.srcArray,
            srcContext: self.primary(parms.srcDevice)?,
            srcPitch: copy.srcPitch,
            srcHeight: copy.srcHeight,
            dstXInBytes: copy.dstXInBytes,
            dstY: copy.dstY,
            dstZ: copy.dstZ,
            dstLOD: 0,
            dstMemoryType: copy.dstMemoryType,
            dstHost: copy.dstHost,
            dstDevice: copy.dstDevice,
            dstArray: copy.dstArray,
            dstContext: self.primary(parms.dstDevice)?,
            dstPitch: copy.dstPitch,
            dstHeight: copy.dstHeight,
            WidthInBytes: copy.WidthInBytes,
            Height: copy.Height,
            Depth: copy.Depth,
        };
        self.ordered(
            when,
            // SAFETY: the application's contract: both ends hold the box.
            |driver| unsafe { driver.cuMemcpy3DPeer(&raw const copy) },
            // SAFETY: as above, until the stream has come past the copy.
            |driver, stream| unsafe { driver.cuMemcpy3DPeerAsync(&raw const copy, stream) },
        )
    }

    /// Bytes of an array from a place on, which may reach over the ends of its rows.
    fn runs(&self, array: cudaArray_t, start: (usize, usize), count: usize) -> Outcome<Vec<Run>> {
        let driver = self.enter()?;
        let found = super::array::descriptor(driver, array)?;
        let element = element_bytes(found.Format, found.NumChannels)?;
        let width = found.Width.saturating_mul(element);
        let (mut x, mut y) = start;
        if x >= width {
            return Err(cudaErrorInvalidValue);
        }
        let mut left = count;
        let mut runs = Vec::new();
        while left > 0 {
            if y >= found.Height.max(1) {
                return Err(cudaErrorInvalidValue);
            }
            let len = left.min(width - x);
            runs.push((x, y, len));
            left -= len;
            (x, y) = (0, y + 1);
        }
        Ok(runs)
    }

    fn copy_runs(
        &self,
        array: cudaArray_t,
        start: (usize, usize),
        count: usize,
        mut copy: impl FnMut(End, cudaPos, usize, usize) -> Outcome,
    ) -> Outcome {
        let end = self.array_end(array)?;
        let mut done = 0;
        for (x, y, len) in self.runs(array, start, count)? {
            copy(end, at(x, y), done, len)?;
            done += len;
        }
        Ok(())
    }

    pub(crate) fn fill_array(
        &self,
        dst: cudaArray_t,
        start: (usize, usize),
        src: *const c_void,
        count: usize,
        kind: cudaMemcpyKind,
        when: When,
    ) -> Outcome {
        self.copy_runs(dst, start, count, |target, target_at, done, len| {
            let piece = Piece {
                source: End::Memory(src.wrapping_byte_add(done), len, 1),
                source_at: ORIGIN,
                target,
                target_at,
                extent: row(len),
                bytes: true,
            };
            self.copy_box(&piece, kind, when)
        })
    }

    pub(crate) fn out_of_array(
        &self,
        dst: *mut c_void,
        src: cudaArray_t,
        start: (usize, usize),
        count: usize,
        kind: cudaMemcpyKind,
        when: When,
    ) -> Outcome {
        self.copy_runs(src, start, count, |source, source_at, done, len| {
            let piece = Piece {
                source,
                source_at,
                target: End::Memory(dst.wrapping_byte_add(done), len, 1),
                target_at: ORIGIN,
                extent: row(len),
                bytes: true,
            };
            self.copy_box(&piece, kind, when)
        })
    }

    pub(crate) fn rows_to_array(
        &self,
        dst: cudaArray_t,
        start: cudaPos,
        src: (*const c_void, usize),
        extent: cudaExtent,
        kind: cudaMemcpyKind,
        when: When,
    ) -> Outcome {
        let piece = Piece {
            source: pitched(src, extent)?,
            source_at: ORIGIN,
            target: self.array_end(dst)?,
            target_at: start,
            extent,
            bytes: true,
        };
        self.copy_box(&piece, kind, when)
    }

    pub(crate) fn rows_from_array(
        &self,
        (dst, pitch): (*mut c_void, usize),
        src: cudaArray_t,
        start: cudaPos,
        extent: cudaExtent,
        kind: cudaMemcpyKind,
        when: When,
    ) -> Outcome {
        let piece = Piece {
            source: self.array_end(src)?,
            source_at: start,
            target: pitched((dst, pitch), extent)?,
            target_at: ORIGIN,
            extent,
            bytes: true,
        };
        self.copy_box(&piece, kind, when)
    }

    pub(crate) fn copy_rows(
        &self,
        (dst, pitch): (*mut c_void, usize),
        src: (*const c_void, usize),
        extent: cudaExtent,
        kind: cudaMemcpyKind,
        when: When,
    ) -> Outcome {
        if extent.width == 0 || extent.height == 0 {
            return self.enter().map(drop);
        }
        // One row needs no pitch. All this comes before the direction and the stream (seen with NVIDIA's library over driver 580.159).
        if extent.height > 1 && extent.width > pitch.min(src.1) {
            return Err(cudaErrorInvalidPitchValue);
        }
        let piece = Piece {
            source: End::Memory(src.0, src.1, 0),
            source_at: ORIGIN,
            target: End::Memory(dst, pitch, 0),
            target_at: ORIGIN,
            extent,
            bytes: true,
        };
        self.copy_box(&piece, kind, when)
    }

    pub(crate) fn fill(&self, to: *mut c_void, value: i32, count: usize, when: When) -> Outcome {
        let (to, byte) = (address(to), byte(value));
        if count == 0 {
            return self.enter().map(drop);
        }
        self.ordered(
            when,
            // SAFETY: the application's contract: `count` bytes are the device's and writable.
            |driver| unsafe { driver.cuMemsetD8_v2(to, byte, count) },
            // SAFETY: as above, until the stream has come past the fill.
            |driver, stream| unsafe { driver.cuMemsetD8Async(to, byte, count, stream) },
        )
    }

    pub(crate) fn fill_rows(
        &self,
        to: *mut c_void,
        pitch: usize,
        value: i32,
        (width, height): (usize, usize),
        when: When,
    ) -> Outcome {
        let (to, byte) = (address(to), byte(value));
        if width == 0 || height == 0 {
            return self.enter().map(drop);
        }
        self.ordered(
            when,
            // SAFETY: the application's contract: the rows are the device's and writable.
            |driver| unsafe { driver.cuMemsetD2D8_v2(to, pitch, byte, width, height) },
            // SAFETY: as above, until the stream has come past the fill.
            |driver, stream| unsafe {
                driver.cuMemsetD2D8Async(to, pitch, byte, width, height, stream)
            },
        )
    }

    pub(crate) fn fill_box(
        &self,
        to: cudaPitchedPtr,
        value: i32,
        extent: cudaExtent,
        when: When,
    ) -> Outcome {
        if extent.width == 0 || extent.height == 0 || extent.depth == 0 {
            return self.enter().map(drop);
        }
        // Slices, or rows, would lie in each other.
        let narrow = extent.width > to.pitch && (extent.height > 1 || extent.depth > 1);
        if narrow || extent.height > to.ysize {
            return Err(cudaErrorInvalidValue);
        }
        let slice = to
            .pitch
            .checked_mul(to.ysize)
            .ok_or(cudaErrorInvalidValue)?;
        for z in 0..extent.depth {
            let at = slice.checked_mul(z).ok_or(cudaErrorInvalidValue)?;
            let slice = to.ptr.wrapping_byte_add(at);
            self.fill_rows(slice, to.pitch, value, (extent.width, extent.height), when)?;
        }
        self.enter().map(drop)
    }

    pub(crate) fn copy_peer(
        &self,
        (dst, dstDevice): (*mut c_void, i32),
        (src, srcDevice): (*const c_void, i32),
        count: usize,
        when: When,
    ) -> Outcome {
        let (to, from) = (address(dst), address(src));
        if count == 0 {
            return self.enter().map(drop);
        }
        let (there, here) = (self.primary(dstDevice)?, self.primary(srcDevice)?);
        self.ordered(
            when,
            // SAFETY: the application's contract: `count` bytes of both are the devices'.
            |driver| unsafe { driver.cuMemcpyPeer(to, there, from, here, count) },
            // SAFETY: as above, until the stream has come past the copy.
            |driver, stream| unsafe {
                driver.cuMemcpyPeerAsync(to, there, from, here, count, stream)
            },
        )
    }

    pub unsafe fn cudaMemcpyArrayToArray(
        &self,
        dst: cudaArray_t,
        wOffsetDst: usize,
        hOffsetDst: usize,
        src: cudaArray_const_t,
        wOffsetSrc: usize,
        hOffsetSrc: usize,
        count: usize,
        kind: cudaMemcpyKind,
    ) -> cudaError_t {
        status(|| {
            let (source, target) = (self.array_end(src)?, self.array_end(dst)?);
            let from = self.runs(src, (wOffsetSrc, hOffsetSrc), count)?;
            let to = self.runs(dst, (wOffsetDst, hOffsetDst), count)?;
            for [(from_x, from_y, len), (to_x, to_y, _)] in in_both(&from, &to) {
                let piece = Piece {
                    source,
                    source_at: at(from_x, from_y),
                    target,
                    target_at: at(to_x, to_y),
                    extent: row(len),
                    bytes: true,
                };
                self.copy_box(&piece, kind, Now)?;
            }
            Ok(())
        })
    }

    pub unsafe fn cudaMemcpy2DArrayToArray(
        &self,
        dst: cudaArray_t,
        wOffsetDst: usize,
        hOffsetDst: usize,
        src: cudaArray_const_t,
        wOffsetSrc: usize,
        hOffsetSrc: usize,
        width: usize,
        height: usize,
        kind: cudaMemcpyKind,
    ) -> cudaError_t {
        status(|| {
            let piece = Piece {
                source: self.array_end(src)?,
                source_at: at(wOffsetSrc, hOffsetSrc),
                target: self.array_end(dst)?,
                target_at: at(wOffsetDst, hOffsetDst),
                extent: rows(width, height),
                bytes: true,
            };
            self.copy_box(&piece, kind, Now)
        })
    }
}

/// A run of bytes in a row of an array: its place, and how many.
type Run = (usize, usize, usize);

/// Runs of as many bytes in two arrays, in pieces that lie in a row of each: of one and the other.
fn in_both(from: &[Run], to: &[Run]) -> Vec<[Run; 2]> {
    let (mut from, mut to) = (from.iter().copied(), to.iter().copied());
    let (mut source, mut target) = (from.next(), to.next());
    let mut pieces = Vec::new();
    while let (Some((from_x, from_y, left)), Some((to_x, to_y, room))) = (source, target) {
        let len = left.min(room);
        pieces.push([(from_x, from_y, len), (to_x, to_y, len)]);
        source = match left > len {
            true => Some((from_x + len, from_y, left - len)),
            false => from.next(),
        };
        target = match room > len {
            true => Some((to_x + len, to_y, room - len)),
            false => to.next(),
        };
    }
    pieces
}

/// What memory is filled with: the value's lowest byte.
fn byte(value: i32) -> u8 {
    value.to_le_bytes()[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_cut_where_either_row_ends() {
        let from = [(4, 1, 6), (0, 2, 4)];
        let to = [(7, 0, 3), (0, 1, 5), (0, 2, 2)];
        let pieces = [
            [(4, 1, 3), (7, 0, 3)],
            [(7, 1, 3), (0, 1, 3)],
            [(0, 2, 2), (3, 1, 2)],
            [(2, 2, 2), (0, 2, 2)],
        ];
        assert_eq!(in_both(&from, &to), pieces);
    }
}
