//! The driver's descriptions of copies and of elements, from the runtime's.
//!
//! The runtime counts positions and widths of a copy in elements where an array takes part, and in bytes where none does; the driver
//! counts bytes always.

use std::ffi::c_void;

use towline_backend::cuda::*;

use crate::runtime::Outcome;
use crate::types::*;

/// One end of a copy.
#[derive(Clone, Copy)]
pub(crate) enum End {
    /// Memory: its address, pitch and rows per slice.
    Memory(*const c_void, usize, usize),
    /// An array, and the bytes of its elements.
    Array(CUarray, usize),
}

impl End {
    /// How many bytes the runtime's unit of width is.
    fn element(self) -> Option<usize> {
        match self {
            Self::Memory(..) => None,
            Self::Array(_, element) => Some(element),
        }
    }
}

/// The kinds of memory of a copy's source and target.
fn kinds(kind: cudaMemcpyKind) -> Outcome<(CUmemorytype, CUmemorytype)> {
    Ok(match kind {
        cudaMemcpyHostToHost => (CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_HOST),
        cudaMemcpyHostToDevice => (CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_DEVICE),
        cudaMemcpyDeviceToHost => (CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST),
        cudaMemcpyDeviceToDevice => (CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_DEVICE),
        cudaMemcpyDefault => (CU_MEMORYTYPE_UNIFIED, CU_MEMORYTYPE_UNIFIED),
        _ => return Err(cudaErrorInvalidMemcpyDirection),
    })
}

/// A box to copy: its two ends, where in them it lies, and how large it is.
#[derive(Clone, Copy)]
pub(crate) struct Piece {
    pub(crate) source: End,
    pub(crate) source_at: cudaPos,
    pub(crate) target: End,
    pub(crate) target_at: cudaPos,
    pub(crate) extent: cudaExtent,
    /// Whether widths are in bytes even where an array takes part, as in all calls but those for boxes.
    pub(crate) bytes: bool,
}

impl Piece {
    /// Addresses and pitches of the ends that are memory.
    pub(crate) fn memory(&self) -> impl Iterator<Item = (*const c_void, usize)> + Clone {
        let ends = [self.source, self.target].into_iter();
        ends.filter_map(|end| match end {
            End::Memory(pointer, pitch, _) => Some((pointer, pitch)),
            End::Array(..) => None,
        })
    }

    /// Whether there are several slices, and an end's hold fewer rows than the box. An end that says nothing of rows is the driver's to
    /// judge.
    pub(crate) fn is_taller_than_slices(&self) -> bool {
        let mut ends = [self.source, self.target].into_iter();
        let is_lower =
            |end| matches!(end, End::Memory(_, _, rows) if rows > 0 && self.extent.height > rows);
        self.extent.depth > 1 && ends.any(is_lower)
    }

    /// The copy as the driver describes it.
    pub(crate) fn described(&self, kind: cudaMemcpyKind) -> Outcome<CUDA_MEMCPY3D> {
        let (from, to) = kinds(kind)?;
        let elements = self.source.element().or(self.target.element());
        let unit = if self.bytes { 1 } else { elements.unwrap_or(1) };
        let scaled =
            |width: usize, unit: usize| width.checked_mul(unit).ok_or(cudaErrorInvalidValue);
        // In memory a position counts bytes, though the width counts elements.
        let of = |end: End| match end {
            End::Array(..) if !self.bytes => end.element().unwrap_or(1),
            _ => 1,
        };
        let (source_kind, source, source_array, source_pitch, source_rows) =
            parts(self.source, from);
        let (target_kind, target, target_array, target_pitch, target_rows) = parts(self.target, to);
        Ok(CUDA_MEMCPY3D {
            srcXInBytes: scaled(self.source_at.x, of(self.source))?,
            srcY: self.source_at.y,
            srcZ: self.source_at.z,
            srcLOD: 0,
            srcMemoryType: source_kind,
            srcHost: source,
            srcDevice: source.addr() as CUdeviceptr,
            srcArray: source_array,
            reserved0: std::ptr::null_mut(),
            srcPitch: source_pitch,
            srcHeight: source_rows,
            dstXInBytes: scaled(self.target_at.x, of(self.target))?,
            dstY: self.target_at.y,
            dstZ: self.target_at.z,
            dstLOD: 0,
            dstMemoryType: target_kind,
            dstHost: target.cast_mut(),
            dstDevice: target.addr() as CUdeviceptr,
            dstArray: target_array,
            reserved1: std::ptr::null_mut(),
            dstPitch: target_pitch,
            dstHeight: target_rows,
            WidthInBytes: scaled(self.extent.width, unit)?,
            Height: self.extent.height,
            Depth: self.extent.depth,
        })
    }
}

fn parts(end: End, kind: CUmemorytype) -> (CUmemorytype, *const c_void, CUarray, usize, usize) {
    match end {
        End::Memory(pointer, pitch, rows) => (kind, pointer, std::ptr::null_mut(), pitch, rows),
        End::Array(array, _) => (CU_MEMORYTYPE_ARRAY, std::ptr::null(), array, 0, 0),
    }
}

/// Kinds of elements with a format of their own, in the runtime's order from `cudaChannelFormatKindUnsignedNormalized8X1` on, with how
/// many channels each has.
const FORMATS: [(CUarray_format, u32); 41] = [
    (CU_AD_FORMAT_UNORM_INT8X1, 1),
    (CU_AD_FORMAT_UNORM_INT8X2, 2),
    (CU_AD_FORMAT_UNORM_INT8X4, 4),
    (CU_AD_FORMAT_UNORM_INT16X1, 1),
    (CU_AD_FORMAT_UNORM_INT16X2, 2),
    (CU_AD_FORMAT_UNORM_INT16X4, 4),
    (CU_AD_FORMAT_SNORM_INT8X1, 1),
    (CU_AD_FORMAT_SNORM_INT8X2, 2),
    (CU_AD_FORMAT_SNORM_INT8X4, 4),
    (CU_AD_FORMAT_SNORM_INT16X1, 1),
    (CU_AD_FORMAT_SNORM_INT16X2, 2),
    (CU_AD_FORMAT_SNORM_INT16X4, 4),
    (CU_AD_FORMAT_BC1_UNORM, 4),
    (CU_AD_FORMAT_BC1_UNORM_SRGB, 4),
    (CU_AD_FORMAT_BC2_UNORM, 4),
    (CU_AD_FORMAT_BC2_UNORM_SRGB, 4),
    (CU_AD_FORMAT_BC3_UNORM, 4),
    (CU_AD_FORMAT_BC3_UNORM_SRGB, 4),
    (CU_AD_FORMAT_BC4_UNORM, 1),
    (CU_AD_FORMAT_BC4_SNORM, 1),
    (CU_AD_FORMAT_BC5_UNORM, 2),
    (CU_AD_FORMAT_BC5_SNORM, 2),
    (CU_AD_FORMAT_BC6H_UF16, 3),
    (CU_AD_FORMAT_BC6H_SF16, 3),
    (CU_AD_FORMAT_BC7_UNORM, 4),
    (CU_AD_FORMAT_BC7_UNORM_SRGB, 4),
    (CU_AD_FORMAT_UNORM_INT_101010_2, 4),
    (CU_AD_FORMAT_UINT8_PACKED_422, 4),
    (CU_AD_FORMAT_UINT8_PACKED_444, 4),
    (CU_AD_FORMAT_UINT8_SEMIPLANAR_420, 3),
    (CU_AD_FORMAT_UINT16_SEMIPLANAR_420, 3),
    (CU_AD_FORMAT_UINT8_SEMIPLANAR_422, 3),
    (CU_AD_FORMAT_UINT16_SEMIPLANAR_422, 3),
    (CU_AD_FORMAT_UINT8_SEMIPLANAR_444, 3),
    (CU_AD_FORMAT_UINT16_SEMIPLANAR_444, 3),
    (CU_AD_FORMAT_UINT8_PLANAR_420, 3),
    (CU_AD_FORMAT_UINT16_PLANAR_420, 3),
    (CU_AD_FORMAT_UINT8_PLANAR_422, 3),
    (CU_AD_FORMAT_UINT16_PLANAR_422, 3),
    (CU_AD_FORMAT_UINT8_PLANAR_444, 3),
    (CU_AD_FORMAT_UINT16_PLANAR_444, 3),
];
/// The first of them.
const FIRST_FORMAT: cudaChannelFormatKind = 5;

/// Format and number of channels of an element.
pub(crate) fn format(desc: &cudaChannelFormatDesc) -> Outcome<(CUarray_format, u32)> {
    let invalid = cudaErrorInvalidChannelDescriptor;
    if desc.f == cudaChannelFormatKindNV12 {
        return Ok((CU_AD_FORMAT_NV12, 3));
    }
    if let Some(at) = desc.f.checked_sub(FIRST_FORMAT) {
        let found = usize::try_from(at).ok().and_then(|at| FORMATS.get(at));
        return found.copied().ok_or(invalid);
    }
    let channels = match [desc.x, desc.y, desc.z, desc.w] {
        [_, 0, 0, 0] => 1,
        [x, y, 0, 0] if x == y => 2,
        [x, y, z, w] if x == y && x == z && x == w => 4,
        _ => return Err(invalid),
    };
    let format = match (desc.f, desc.x) {
        (cudaChannelFormatKindUnsigned, 8) => CU_AD_FORMAT_UNSIGNED_INT8,
        (cudaChannelFormatKindUnsigned, 16) => CU_AD_FORMAT_UNSIGNED_INT16,
        (cudaChannelFormatKindUnsigned, 32) => CU_AD_FORMAT_UNSIGNED_INT32,
        (cudaChannelFormatKindSigned, 8) => CU_AD_FORMAT_SIGNED_INT8,
        (cudaChannelFormatKindSigned, 16) => CU_AD_FORMAT_SIGNED_INT16,
        (cudaChannelFormatKindSigned, 32) => CU_AD_FORMAT_SIGNED_INT32,
        (cudaChannelFormatKindFloat, 16) => CU_AD_FORMAT_HALF,
        (cudaChannelFormatKindFloat, 32) => CU_AD_FORMAT_FLOAT,
        _ => return Err(invalid),
    };
    Ok((format, channels))
}

/// The element of a format and number of channels.
pub(crate) fn element(format: CUarray_format, channels: u32) -> Outcome<cudaChannelFormatDesc> {
    let (bits, f) = match format {
        CU_AD_FORMAT_UNSIGNED_INT8 => (8, cudaChannelFormatKindUnsigned),
        CU_AD_FORMAT_UNSIGNED_INT16 => (16, cudaChannelFormatKindUnsigned),
        CU_AD_FORMAT_UNSIGNED_INT32 => (32, cudaChannelFormatKindUnsigned),
        CU_AD_FORMAT_SIGNED_INT8 => (8, cudaChannelFormatKindSigned),
        CU_AD_FORMAT_SIGNED_INT16 => (16, cudaChannelFormatKindSigned),
        CU_AD_FORMAT_SIGNED_INT32 => (32, cudaChannelFormatKindSigned),
        CU_AD_FORMAT_HALF => (16, cudaChannelFormatKindFloat),
        CU_AD_FORMAT_FLOAT => (32, cudaChannelFormatKindFloat),
        CU_AD_FORMAT_NV12 => (8, cudaChannelFormatKindNV12),
        other => {
            let at = FORMATS.iter().position(|(format, _)| *format == other);
            let at = at.and_then(|at| u32::try_from(at).ok());
            let at = at.ok_or(cudaErrorInvalidChannelDescriptor)?;
            let bits = match at {
                3..6 | 9..12 | 22..24 | 30 | 32 | 34 | 36 | 38 | 40 => 16,
                26 => 10,
                _ => 8,
            };
            (bits, FIRST_FORMAT.saturating_add(at))
        }
    };
    let of = |channel| if channels > channel { bits } else { 0 };
    Ok(cudaChannelFormatDesc {
        x: of(0),
        y: of(1),
        z: of(2),
        w: if bits == 10 { 2 } else { of(3) },
        f,
    })
}

/// The bytes of an element.
pub(crate) fn element_bytes(format: CUarray_format, channels: u32) -> Outcome<usize> {
    let desc = element(format, channels)?;
    let bits = [desc.x, desc.y, desc.z, desc.w];
    let bits: i32 = bits.iter().copied().fold(0, i32::saturating_add);
    Ok(bits.unsigned_abs() as usize / 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn desc(x: i32, y: i32, z: i32, w: i32, f: u32) -> cudaChannelFormatDesc {
        cudaChannelFormatDesc { x, y, z, w, f }
    }

    #[test]
    fn an_element_is_the_same_there_and_back() {
        for given in [
            desc(32, 0, 0, 0, cudaChannelFormatKindFloat),
            desc(16, 16, 0, 0, cudaChannelFormatKindFloat),
            desc(8, 8, 8, 8, cudaChannelFormatKindUnsigned),
            desc(32, 32, 32, 32, cudaChannelFormatKindSigned),
            desc(16, 16, 16, 16, 10),
            desc(16, 16, 16, 0, 27),
            desc(10, 10, 10, 2, 31),
            desc(8, 8, 8, 8, 33),
            desc(8, 8, 8, 0, 34),
            desc(16, 16, 16, 0, 45),
        ] {
            let (format, channels) = format(&given).unwrap();
            let back = element(format, channels).unwrap();
            let parts = |one: &cudaChannelFormatDesc| [one.x, one.y, one.z, one.w, one.f as i32];
            assert_eq!(parts(&back), parts(&given));
        }
    }

    #[test]
    fn elements_that_no_array_has_are_refused() {
        for given in [
            desc(32, 32, 32, 0, cudaChannelFormatKindFloat),
            desc(32, 16, 0, 0, cudaChannelFormatKindFloat),
            desc(8, 0, 0, 0, cudaChannelFormatKindFloat),
            desc(8, 0, 0, 0, cudaChannelFormatKindNone),
            desc(8, 0, 0, 0, 46),
            desc(8, 0, 0, 0, 999),
        ] {
            assert_eq!(format(&given), Err(cudaErrorInvalidChannelDescriptor));
        }
    }

    fn box_of(height: usize, depth: usize, rows: (usize, usize)) -> Piece {
        let memory = std::ptr::without_provenance(64);
        let origin = cudaPos { x: 0, y: 0, z: 0 };
        Piece {
            source: End::Memory(memory, 64, rows.0),
            source_at: origin,
            target: End::Memory(memory, 64, rows.1),
            target_at: origin,
            extent: cudaExtent {
                width: 4,
                height,
                depth,
            },
            bytes: false,
        }
    }

    #[test]
    fn boxes_are_held_against_both_ends_slices() {
        for (height, depth, rows, expected) in [
            (4, 2, (4, 4), false),
            (5, 2, (4, 5), true),
            (5, 2, (5, 4), true),
            (5, 1, (4, 4), false),
            (5, 2, (0, 0), false),
        ] {
            let piece = box_of(height, depth, rows);
            assert_eq!(piece.is_taller_than_slices(), expected, "{height} {rows:?}");
        }
        let array = Piece {
            target: End::Array(std::ptr::without_provenance_mut(4), 1),
            ..box_of(5, 2, (5, 0))
        };
        assert!(!array.is_taller_than_slices());
    }

    #[test]
    fn a_box_with_an_array_counts_elements() {
        let array = std::ptr::without_provenance_mut(4);
        let memory = std::ptr::without_provenance(64);
        let at = |x| cudaPos { x, y: 1, z: 2 };
        let piece = Piece {
            source: End::Memory(memory, 100, 7),
            source_at: at(3),
            target: End::Array(array, 8),
            target_at: at(5),
            extent: cudaExtent {
                width: 6,
                height: 2,
                depth: 1,
            },
            bytes: false,
        };
        let copy = piece.described(cudaMemcpyHostToDevice).unwrap();
        assert_eq!((copy.srcXInBytes, copy.dstXInBytes), (3, 40));
        assert_eq!(
            (copy.WidthInBytes, copy.srcPitch, copy.srcHeight),
            (48, 100, 7)
        );
        assert_eq!(copy.srcMemoryType, CU_MEMORYTYPE_HOST);
        assert_eq!(copy.dstMemoryType, CU_MEMORYTYPE_ARRAY);
        let bytes = Piece {
            bytes: true,
            ..piece
        };
        let copy = bytes.described(cudaMemcpyDefault).unwrap();
        assert_eq!((copy.dstXInBytes, copy.WidthInBytes), (5, 6));
        assert_eq!(copy.srcMemoryType, CU_MEMORYTYPE_UNIFIED);
        assert_eq!(
            piece.described(9).err(),
            Some(cudaErrorInvalidMemcpyDirection)
        );
    }
}
