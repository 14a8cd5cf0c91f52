//! Elements of arrays as numbers, and back.

use towline_backend::cuda::arrays::element_bytes;
use towline_backend::cuda::*;
use towline_ptx::ir::op::{Mode, Rounding};
use towline_ptx::ptx::Type;

use crate::exec::convert::convert;
use crate::exec::float;

/// Kinds of numbers that channels hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Float,
    Signed,
    /// Numbers from -1 to 1, as integers.
    SignedFraction,
    Unsigned,
    /// Numbers from 0 to 1, as integers.
    UnsignedFraction,
}

/// The format of elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Format {
    pub(crate) channels: u8,
    /// Bytes of a channel.
    pub(crate) bytes: u8,
    pub(crate) kind: Kind,
}

impl Format {
    /// The driver's format; `None` where no texture has it.
    pub(crate) fn new(format: CUarray_format, channels: u32) -> Option<Self> {
        let (kind, bytes) = match format {
            CU_AD_FORMAT_UNSIGNED_INT8 => (Kind::Unsigned, 1),
            CU_AD_FORMAT_UNSIGNED_INT16 => (Kind::Unsigned, 2),
            CU_AD_FORMAT_UNSIGNED_INT32 => (Kind::Unsigned, 4),
            CU_AD_FORMAT_SIGNED_INT8 => (Kind::Signed, 1),
            CU_AD_FORMAT_SIGNED_INT16 => (Kind::Signed, 2),
            CU_AD_FORMAT_SIGNED_INT32 => (Kind::Signed, 4),
            CU_AD_FORMAT_HALF => (Kind::Float, 2),
            CU_AD_FORMAT_FLOAT => (Kind::Float, 4),
            CU_AD_FORMAT_UNORM_INT8X1..=CU_AD_FORMAT_UNORM_INT8X4 => (Kind::UnsignedFraction, 1),
            CU_AD_FORMAT_UNORM_INT16X1..=CU_AD_FORMAT_UNORM_INT16X4 => (Kind::UnsignedFraction, 2),
            CU_AD_FORMAT_SNORM_INT8X1..=CU_AD_FORMAT_SNORM_INT8X4 => (Kind::SignedFraction, 1),
            CU_AD_FORMAT_SNORM_INT16X1..=CU_AD_FORMAT_SNORM_INT16X4 => (Kind::SignedFraction, 2),
            _ => return None,
        };
        element_bytes(format, channels)?;
        Some(Self {
            channels: channels as u8,
            bytes,
            kind,
        })
    }

    /// The format of a view, `None` for those of blocks.
    pub(crate) fn of_view(format: CUresourceViewFormat) -> Option<Self> {
        let at = format.checked_sub(CU_RES_VIEW_FORMAT_UINT_1X8)?;
        let (kind, bytes) = match at / 3 {
            0 => (Kind::Unsigned, 1),
            1 => (Kind::Signed, 1),
            2 => (Kind::Unsigned, 2),
            3 => (Kind::Signed, 2),
            4 => (Kind::Unsigned, 4),
            5 => (Kind::Signed, 4),
            6 => (Kind::Float, 2),
            7 => (Kind::Float, 4),
            _ => return None,
        };
        Some(Self {
            channels: 1 << (at % 3),
            bytes,
            kind,
        })
    }

    /// Bytes of an element.
    pub(crate) fn element(self) -> u64 {
        u64::from(self.channels) * u64::from(self.bytes)
    }

    /// Whether reads give fractions, whatever the texture says.
    pub(crate) fn has_fractions(self) -> bool {
        matches!(
            self.kind,
            Kind::Float | Kind::SignedFraction | Kind::UnsignedFraction
        )
    }

    /// OpenCL's number of the channels' type.
    pub(super) fn data_type(self) -> u32 {
        match (self.kind, self.bytes) {
            (Kind::SignedFraction, 1) => 0x10d0,
            (Kind::SignedFraction, _) => 0x10d1,
            (Kind::UnsignedFraction, 1) => 0x10d2,
            (Kind::UnsignedFraction, _) => 0x10d3,
            (Kind::Signed, 1) => 0x10d7,
            (Kind::Signed, 2) => 0x10d8,
            (Kind::Signed, _) => 0x10d9,
            (Kind::Unsigned, 1) => 0x10da,
            (Kind::Unsigned, 2) => 0x10db,
            (Kind::Unsigned, _) => 0x10dc,
            (Kind::Float, 2) => 0x10dd,
            (Kind::Float, _) => 0x10de,
        }
    }

    fn has_sign(self) -> bool {
        matches!(self.kind, Kind::Signed | Kind::SignedFraction)
    }

    /// The bits of a channel with the sign that the format gives them.
    fn signed(self, bits: u32) -> i32 {
        let unused = 32 - 8 * u32::from(self.bytes);
        ((bits << unused) as i32) >> unused
    }

    /// A channel as an integer of 32 bits.
    pub(super) fn word(self, bits: u32) -> u32 {
        match self.has_sign() {
            true => self.signed(bits) as u32,
            false => bits,
        }
    }

    /// A channel as a number: what has no fraction, as a part of the largest that it may be.
    pub(super) fn number(self, bits: u32) -> f64 {
        let most = |bits: u32| ((1_u64 << bits) - 1) as f64;
        let width = 8 * u32::from(self.bytes);
        match self.kind {
            Kind::Float if self.bytes == 2 => {
                float::value(Type::F16, bits.into(), false).unwrap_or(f64::NAN)
            }
            Kind::Float => f32::from_bits(bits).into(),
            Kind::Signed | Kind::SignedFraction => {
                (f64::from(self.signed(bits)) / most(width - 1)).max(-1.0)
            }
            Kind::Unsigned | Kind::UnsignedFraction => f64::from(bits) / most(width),
        }
    }

    /// The bits of a channel for a number or an integer of 32 bits, which are held to what the format has.
    pub(super) fn stored(self, word: u32) -> u32 {
        let width = 8 * u32::from(self.bytes);
        let most = ((1_u64 << width) - 1) as u32;
        let fraction = |least: f64, most: f64| {
            let value = f64::from(f32::from_bits(word));
            // NaN becomes zero.
            ((value.clamp(least, 1.0) * most).round_ties_even()) as i64 as u32
        };
        match self.kind {
            Kind::Float if self.bytes == 2 => shortened(word),
            Kind::Float => word,
            Kind::UnsignedFraction => fraction(0.0, f64::from(most)) & most,
            Kind::SignedFraction => fraction(-1.0, f64::from(most >> 1)) & most,
            Kind::Unsigned => word.min(most),
            Kind::Signed => {
                let half = i64::from(most >> 1);
                i64::from(word as i32).clamp(-half - 1, half) as u32 & most
            }
        }
    }
}

/// The bits of a half for those of a number, as surfaces store it: rounded towards zero, and a NaN keeps its first bits.
fn shortened(word: u32) -> u32 {
    if f32::from_bits(word).is_nan() {
        return (word >> 16 & 0x8000) | 0x7c00 | (word >> 13 & 0x3ff);
    }
    let mode = Mode {
        rounding: Rounding::Zero,
        ..Mode::default()
    };
    let half = convert(Type::F16, Type::F32, mode, &[word.into()]);
    half.map_or(0, |[half]| half as u32)
}

/// A half for a number.
pub(super) fn half(value: f32) -> u64 {
    let bits = value.to_bits().into();
    let half = convert(Type::F16, Type::F32, Mode::default(), &[bits]);
    half.map_or(0, |[half]| half)
}

/// A component of a colour as it is, from one of sRGB.
pub(super) fn from_srgb(value: f64) -> f64 {
    match value <= 0.04045 {
        true => value / 12.92,
        false => ((value + 0.055) / 1.055).powf(2.4),
    }
}
