//! The device's side of a transfer: a run of bytes, or a box of an array or of memory with pitches, of which payload is the rows end to
//! end.

use towline_backend::cuda::*;

use super::pinned::LARGE;
use crate::link::Raw;

/// See the module's text.
#[derive(Clone, Copy)]
pub(crate) enum Region {
    Linear(CUdeviceptr),
    Box(Area),
}

/// A box: where it begins, how large it is, and in what. Sizes are not 0, and the number of bytes fits into 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Area {
    /// NULL where the box is in memory.
    array: Raw,
    address: CUdeviceptr,
    start: [usize; 3],
    size: [usize; 3],
    pitch: usize,
    height: usize,
}

/// Which way the bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    ToDevice,
    ToHost,
}

/// A part of a box that lies in one piece in the payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Piece {
    offset: u64,
    start: [usize; 3],
    size: [usize; 3],
}

impl Area {
    /// A box as a request has it: x in bytes, y, z, width in bytes, height, depth, pitch, height of a slice. `None` when it is none.
    pub(crate) fn new(array: Raw, address: CUdeviceptr, place: &[u64]) -> Option<Self> {
        let words: Vec<usize> = place.iter().map(|word| *word as usize).collect();
        let [x, y, z, width, height, depth, pitch, slice] = *words.as_slice() else {
            return None;
        };
        let area = Self {
            array,
            address,
            start: [x, y, z],
            size: [width, height, depth],
            pitch,
            height: slice,
        };
        let bytes = width.checked_mul(height)?.checked_mul(depth)?;
        // Ends must exist, so that no piece of it begins beyond the last number.
        let ends = [(x, width), (y, height), (z, depth)];
        let ends = ends
            .iter()
            .all(|(start, size)| start.checked_add(*size).is_some());
        (bytes > 0 && ends).then_some(area)
    }

    /// Bytes of its payload.
    pub(crate) fn bytes(&self) -> u64 {
        self.size.iter().map(|side| *side as u64).product()
    }

    /// What a part of the payload is of the box: slices, rows, and parts of rows.
    fn pieces(&self, offset: u64, length: usize) -> impl Iterator<Item = Piece> + use<> {
        let [width, height, depth] = self.size;
        let begin = self.start;
        let end = offset.saturating_add(length as u64).min(self.bytes());
        let (row, slice) = (width as u64, width as u64 * height as u64);
        let mut at = offset;
        std::iter::from_fn(move || {
            let left = end.checked_sub(at).filter(|left| *left > 0)?;
            let (z, x) = ((at / slice) as usize, (at % row) as usize);
            let y = (at % slice / row) as usize;
            let size = if x > 0 || left < row {
                [(width - x).min(left as usize), 1, 1]
            } else if y > 0 || left < slice {
                [width, (height - y).min((left / row) as usize), 1]
            } else {
                [width, height, (depth - z).min((left / slice) as usize)]
            };
            let piece = Piece {
                offset: at,
                start: [begin[0] + x, begin[1] + y, begin[2] + z],
                size,
            };
            at += size.iter().map(|side| *side as u64).product::<u64>();
            Some(piece)
        })
    }

    fn copy(&self, piece: Piece, memory: Raw, way: Way) -> CUDA_MEMCPY3D {
        let [x, y, z] = piece.start;
        let [width, height, depth] = piece.size;
        let kind = if self.array.0.is_null() {
            CU_MEMORYTYPE_DEVICE
        } else {
            CU_MEMORYTYPE_ARRAY
        };
        let mut copy = blank();
        (copy.WidthInBytes, copy.Height, copy.Depth) = (width, height, depth);
        match way {
            Way::ToDevice => {
                copy.srcMemoryType = CU_MEMORYTYPE_HOST;
                copy.srcHost = memory.0;
                (copy.srcPitch, copy.srcHeight) = (width, height);
                copy.dstMemoryType = kind;
                (copy.dstDevice, copy.dstArray) = (self.address, self.array.0.cast());
                (copy.dstPitch, copy.dstHeight) = (self.pitch, self.height);
                (copy.dstXInBytes, copy.dstY, copy.dstZ) = (x, y, z);
            }
            Way::ToHost => {
                copy.dstMemoryType = CU_MEMORYTYPE_HOST;
                copy.dstHost = memory.0;
                (copy.dstPitch, copy.dstHeight) = (width, height);
                copy.srcMemoryType = kind;
                (copy.srcDevice, copy.srcArray) = (self.address, self.array.0.cast());
                (copy.srcPitch, copy.srcHeight) = (self.pitch, self.height);
                (copy.srcXInBytes, copy.srcY, copy.srcZ) = (x, y, z);
            }
        }
        copy
    }
}

/// A copy of nothing from nowhere.
pub(crate) fn blank() -> CUDA_MEMCPY3D {
    CUDA_MEMCPY3D {
        srcXInBytes: 0,
        srcY: 0,
        srcZ: 0,
        srcLOD: 0,
        srcMemoryType: 0,
        srcHost: std::ptr::null(),
        srcDevice: 0,
        srcArray: std::ptr::null_mut(),
        reserved0: std::ptr::null_mut(),
        srcPitch: 0,
        srcHeight: 0,
        dstXInBytes: 0,
        dstY: 0,
        dstZ: 0,
        dstLOD: 0,
        dstMemoryType: 0,
        dstHost: std::ptr::null_mut(),
        dstDevice: 0,
        dstArray: std::ptr::null_mut(),
        reserved1: std::ptr::null_mut(),
        dstPitch: 0,
        dstHeight: 0,
        WidthInBytes: 0,
        Height: 0,
        Depth: 0,
    }
}

impl Region {
    /// Bytes of a window that begins at `next` of `size` bytes of payload: as many as a block has, of a box whole slices or rows if
    /// such fit, since each piece is a command of its own.
    pub(crate) fn window(&self, next: u64, size: u64) -> usize {
        let most = match self {
            Self::Linear(_) => LARGE,
            Self::Box(area) => {
                let [width, height, _] = area.size;
                let whole = |unit: usize| LARGE / unit * unit;
                let slice = width.saturating_mul(height);
                match (whole(slice), whole(width)) {
                    (0, 0) => LARGE,
                    (0, rows) => rows,
                    (slices, _) => slices,
                }
            }
        };
        size.saturating_sub(next).min(most as u64) as usize
    }

    /// Enqueues the copy of a part of the payload between the region and pinned memory. `enqueued` is called for each command.
    ///
    /// # Safety
    /// The memory has `length` bytes and is left alone until the copy is done; the stream and the array are live.
    pub(crate) unsafe fn copy(
        &self,
        api: &dyn CudaApi,
        stream: CUstream,
        way: Way,
        (offset, length): (u64, usize),
        memory: Raw,
        mut enqueued: impl FnMut(),
    ) -> CUresult {
        let area = match self {
            Self::Linear(address) => {
                let at = address.wrapping_add(offset);
                enqueued();
                return match way {
                    // SAFETY: the caller's contract; the driver judges the address.
                    Way::ToDevice => unsafe {
                        api.cuMemcpyHtoDAsync_v2(at, memory.0, length, stream)
                    },
                    // SAFETY: as above.
                    Way::ToHost => unsafe {
                        api.cuMemcpyDtoHAsync_v2(memory.0, at, length, stream)
                    },
                };
            }
            Self::Box(area) => area,
        };
        for piece in area.pieces(offset, length) {
            let part = memory.0.wrapping_byte_add((piece.offset - offset) as usize);
            let copy = area.copy(piece, Raw(part), way);
            enqueued();
            // SAFETY: the caller's contract; the driver judges what is the client's.
            let status = unsafe { api.cuMemcpy3DAsync_v2(&raw const copy, stream) };
            if status != CUDA_SUCCESS {
                return status;
            }
        }
        CUDA_SUCCESS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn area(size: [u64; 3]) -> Area {
        let [width, height, depth] = size;
        let place = [3, 5, 7, width, height, depth, 0, 0];
        Area::new(Raw(std::ptr::null_mut()), 0, &place).expect("it is a box")
    }

    fn cut(area: &Area, offset: u64, length: usize) -> Vec<([usize; 3], [usize; 3])> {
        let pieces = area.pieces(offset, length);
        pieces.map(|piece| (piece.start, piece.size)).collect()
    }

    #[test]
    fn a_part_of_a_box_is_cut_at_rows_and_slices() {
        let area = area([10, 4, 3]);
        assert_eq!(cut(&area, 0, 120), [([3, 5, 7], [10, 4, 3])]);
        assert_eq!(cut(&area, 40, 80), [([3, 5, 8], [10, 4, 2])]);
        assert_eq!(
            cut(&area, 26, 68),
            [
                ([9, 7, 7], [4, 1, 1]),
                ([3, 8, 7], [10, 1, 1]),
                ([3, 5, 8], [10, 4, 1]),
                ([3, 5, 9], [10, 1, 1]),
                ([3, 6, 9], [4, 1, 1]),
            ]
        );
        assert_eq!(cut(&area, 120, 8), []);
    }

    #[test]
    fn every_byte_of_a_box_is_in_one_window_and_one_piece() {
        for size in [
            [1, 1, 1],
            [7, 3, 5],
            [4 << 20, 2, 2],
            [(4 << 20) + 3, 3, 1],
            [3 << 20, 2, 3],
        ] {
            let area = area(size);
            let (region, total) = (Region::Box(area), area.bytes());
            let (mut next, mut bytes) = (0, 0);
            while next < total {
                let length = region.window(next, total);
                assert!((1..=LARGE).contains(&length));
                for piece in area.pieces(next, length) {
                    assert_eq!(piece.offset, bytes);
                    bytes += piece.size.iter().map(|side| *side as u64).product::<u64>();
                }
                next += length as u64;
                assert_eq!(bytes, next);
            }
            assert_eq!(bytes, total);
        }
    }

    #[test]
    fn what_is_no_box_is_refused() {
        let none = Raw(std::ptr::null_mut());
        let refused = |place: &[u64]| Area::new(none, 0, place).is_none();
        assert!(refused(&[0; 8]));
        assert!(refused(&[0, 0, 0, 1, 1]));
        assert!(refused(&[0, 0, 0, 1 << 40, 1 << 40, 1, 0, 0]));
        assert!(refused(&[u64::MAX, 0, 0, 1, 1, 1, 0, 0]));
    }
}
