//! Conversions between types.

use towline_ptx::ir::op::{Mode, Rounding};
use towline_ptx::ptx::Type;

use super::number::{self, extend};
use super::{directed, float};

/// The value of an integer of a type.
fn integer(ty: Type, bits: u64) -> i128 {
    let bits = extend(bits, ty);
    match ty.is_signed() {
        true => i128::from(bits as i64),
        false => i128::from(bits),
    }
}

/// Least and greatest value of an integer type.
fn range(ty: Type) -> (i128, i128) {
    let bits = ty.bits();
    match ty.is_signed() {
        true => (-(1 << (bits - 1)), (1 << (bits - 1)) - 1),
        false => (0, (1 << bits) - 1),
    }
}

fn from_float(to: Type, from: Type, mode: Mode, value: f64) -> Option<u64> {
    if to.is_float() {
        let value = match mode.integral {
            true => number::settle(number::integral(value, mode.rounding), [value]),
            false => value,
        };
        return float::bits(to, value, mode);
    }
    if value.is_nan() {
        // PTX ISA, "cvt": 0 where neither side has 64 bits, else the highest bit.
        let wide = from == Type::F64 || to.bits() == 64;
        return Some(if wide {
            extend(1 << (to.bits() - 1), to)
        } else {
            0
        });
    }
    let value = number::integral(value, mode.rounding);
    let (least, greatest) = range(to);
    Some(extend((value as i128).clamp(least, greatest) as u64, to))
}

fn from_integer(to: Type, mode: Mode, value: i128) -> Option<u64> {
    if to == Type::F64 {
        return float::bits(to, directed::integer(value, mode.rounding), mode);
    }
    if to.is_float() {
        return float::bits(to, number::odd_integer(value), mode);
    }
    let (least, greatest) = range(to);
    let value = if mode.saturate {
        value.clamp(least, greatest)
    } else {
        value
    };
    Some(extend(value as u64, to))
}

/// Of what is no number, what keeps its bits when it is converted: to and from 64 bits, and from `bf16`. Elsewhere it becomes the one
/// that operations give.
fn not_a_number(to: Type, from: Type, mode: Mode, bits: u64) -> Option<u64> {
    // The bits of a fraction, and of all but the sign.
    let layout = |ty| match ty {
        Type::F64 => Some((52_u32, 63_u32)),
        Type::F32 => Some((23, 31)),
        Type::F16 => Some((10, 15)),
        Type::Bf16 => Some((7, 15)),
        _ => None,
    };
    let ((to_fraction, to_bits), (fraction, all)) = (layout(to)?, layout(from)?);
    let magnitude = bits & ((1 << all) - 1);
    let infinity = (1 << all) - (1 << fraction);
    if magnitude <= infinity || mode.saturate || mode.relu {
        return None;
    }
    let payload = magnitude - infinity;
    let is_wide = |ty| ty == Type::F64;
    match (to, from) {
        (Type::F32, Type::Bf16) => return Some((bits & 0xffff) << 16),
        // Flushing goes through arithmetic.
        (Type::F64, Type::F32) if mode.flush => return Some(0x7fff_ffff_e000_0000),
        _ if is_wide(to) == is_wide(from) => return None,
        _ => {}
    }
    let payload = match to_fraction >= fraction {
        true => payload << (to_fraction - fraction),
        false => payload >> (fraction - to_fraction),
    };
    let quiet = 1 << (to_fraction - 1);
    let sign = (bits >> all & 1) << to_bits;
    Some(sign | ((1 << to_bits) - (1 << to_fraction)) | quiet | payload)
}

/// A number of 32 bits with the lower 13 rounded away. As on GPUs, `.rna` keeps the upper bits of a NaN, and the other roundings give one NaN.
fn tf32(mode: Mode, bits: u32) -> u32 {
    const CUT: u32 = !0x1fff;
    let is_nan = bits << 1 > 0xff00_0000;
    match mode.rounding {
        Rounding::NearestAway if is_nan => bits & CUT,
        Rounding::NearestAway => bits.wrapping_add(0x1000) & CUT,
        _ if is_nan => i32::MAX.cast_unsigned() & CUT,
        _ if mode.relu && bits >> 31 != 0 => 0,
        Rounding::Nearest => (bits + 0xfff + (bits >> 13 & 1)) & CUT,
        _ => bits & CUT,
    }
}

/// Bits of the fraction, bias of the exponent and greatest number of the formats of 8 bits.
fn of_bytes(ty: Type) -> Option<(i32, i32, u64)> {
    match ty {
        Type::E4m3x2 => Some((3, 7, 0x7e)),
        Type::E5m2x2 => Some((2, 15, 0x7b)),
        _ => None,
    }
}

/// A number in 8 bits, to the nearest, held to the greatest. There is one NaN.
fn byte((fraction, bias, greatest): (i32, i32, u64), mode: Mode, value: f64) -> u64 {
    let negative = value.is_sign_negative();
    if value.is_nan() {
        return 0x7f;
    }
    if mode.relu && negative {
        return 0;
    }
    // Beyond the greatest of both formats.
    let magnitude = value.abs().min(65536.0);
    let exponent = ((magnitude.to_bits() >> 52) as i32 - 1023).max(1 - bias);
    let steps = (magnitude * 2_f64.powi(fraction - exponent)).round_ties_even() as u64;
    let code = (((exponent + bias - 1) as u64) << fraction) + steps;
    code.min(greatest) | u64::from(negative) << 7
}

/// A number of 8 bits in 16.
fn half(from: Type, mode: Mode, code: u64) -> Option<u64> {
    let (sign, magnitude) = (code >> 7 & 1, code & 0x7f);
    match from {
        Type::E4m3x2 if magnitude == 0x7f => return Some(0x7fff),
        Type::E5m2x2 if magnitude > 0x7c => return Some(0x7fff),
        _ if mode.relu && sign != 0 => return Some(0),
        Type::E5m2x2 => return Some(code << 8),
        _ => {}
    }
    // With the bias of 16 bits it would be 2^8 times smaller.
    let value = float::value(Type::F16, magnitude << 7, false)? * 256.0;
    Some(sign << 15 | float::bits(Type::F16, value, Mode::default())?)
}

/// `cvt` between pairs of numbers of 8 and of 16 bits.
fn convert_bytes(to: Type, from: Type, mode: Mode, bits: u64) -> Option<u64> {
    if from != Type::F16x2 {
        return Some(half(from, mode, bits >> 8 & 0xff)? << 16 | half(from, mode, bits & 0xff)?);
    }
    let value = |bits| float::value(Type::F16, bits & 0xffff, false);
    let (format, high, low) = (of_bytes(to)?, value(bits >> 16)?, value(bits)?);
    Some(byte(format, mode, high) << 8 | byte(format, mode, low))
}

/// `cvt` of all lanes.
pub(crate) fn convert<const N: usize>(
    to: Type,
    from: Type,
    mode: Mode,
    a: &[u64; N],
) -> Option<[u64; N]> {
    // What most conversions are.
    if !to.is_float() && !from.is_float() && !mode.saturate {
        return Some(std::array::from_fn(|lane| {
            extend(extend(a[lane], from), to)
        }));
    }
    if to == Type::Tf32 {
        return Some(a.map(|bits| tf32(mode, bits as u32).into()));
    }
    let mut out = [0; N];
    if of_bytes(to).or(of_bytes(from)).is_some() {
        for (place, &bits) in out.iter_mut().zip(a) {
            *place = convert_bytes(to, from, mode, bits)?;
        }
        return Some(out);
    }
    for (place, &bits) in out.iter_mut().zip(a) {
        *place = if let Some(none) = not_a_number(to, from, mode, bits) {
            none
        } else if from.is_float() {
            // What becomes a number of 16 bits is not flushed before.
            let narrows = matches!(to, Type::F16 | Type::Bf16);
            let flush = mode.flush && from == Type::F32 && !narrows;
            let value = float::value(from, bits, flush)?;
            from_float(to, from, mode, value)?
        } else {
            from_integer(to, mode, integer(from, bits))?
        };
    }
    Some(out)
}

/// `cvt` of two numbers into a pair.
pub(crate) fn convert_pair<const N: usize>(
    to: Type,
    from: Type,
    mode: Mode,
    a: &[u64; N],
    b: &[u64; N],
) -> Option<[u64; N]> {
    if let Some(format) = of_bytes(to) {
        let of = |bits| Some(byte(format, mode, float::value(from, bits, false)?));
        let mut out = [0; N];
        for (place, (&a, &b)) in out.iter_mut().zip(a.iter().zip(b)) {
            *place = of(a)? << 8 | of(b)?;
        }
        return Some(out);
    }
    let half = match to {
        Type::F16x2 => Type::F16,
        Type::Bf16x2 => Type::Bf16,
        _ => return None,
    };
    let high = convert(half, from, mode, a)?;
    let low = convert(half, from, mode, b)?;
    Some(std::array::from_fn(|lane| high[lane] << 16 | low[lane]))
}

/// The bits of a truth value in a type: all ones for integers, one for numbers.
pub(crate) fn truth(to: Type, holds: bool) -> u64 {
    match to {
        _ if !holds => 0,
        Type::F32 => 1_f32.to_bits().into(),
        Type::F16 => 0x3c00,
        Type::Bf16 => 0x3f80,
        ty => extend(u64::MAX, ty) & (u64::MAX >> (64 - ty.bits())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(to: Type, from: Type, mode: Mode, bits: u64) -> u64 {
        convert(to, from, mode, &[bits; 32]).expect("a conversion")[5]
    }

    fn integral(rounding: Rounding) -> Mode {
        Mode {
            rounding,
            integral: true,
            ..Mode::default()
        }
    }

    #[test]
    fn integers_are_cut_and_extended() {
        let mode = Mode::default();
        assert_eq!(one(Type::S64, Type::S32, mode, 0xffff_ffff), u64::MAX);
        assert_eq!(one(Type::U64, Type::U32, mode, 0xffff_ffff), 0xffff_ffff);
        assert_eq!(one(Type::U64, Type::S8, mode, 0x80), 0xffff_ffff_ffff_ff80);
        assert_eq!(one(Type::U8, Type::U32, mode, 0x1234), 0x34);
        assert_eq!(one(Type::S16, Type::U32, mode, 0xffff) as u32, u32::MAX);
        let saturate = Mode {
            saturate: true,
            ..mode
        };
        assert_eq!(one(Type::U8, Type::S32, saturate, -5_i32 as u32 as u64), 0);
        assert_eq!(one(Type::S8, Type::S32, saturate, 300), 127);
    }

    #[test]
    fn numbers_become_integers_within_their_range() {
        let bits = |value: f32| u64::from(value.to_bits());
        let zero = integral(Rounding::Zero);
        assert_eq!(
            one(Type::S32, Type::F32, zero, bits(-2.9)) as u32 as i32,
            -2
        );
        assert_eq!(
            one(Type::S32, Type::F32, integral(Rounding::Down), bits(-2.1)) as u32 as i32,
            -3
        );
        assert_eq!(
            one(Type::S32, Type::F32, integral(Rounding::Nearest), bits(2.5)),
            2
        );
        assert_eq!(one(Type::U32, Type::F32, zero, bits(-1.0)), 0);
        assert_eq!(one(Type::S32, Type::F32, zero, bits(1e20)), i32::MAX as u64);
        assert_eq!(one(Type::S32, Type::F32, zero, bits(f32::NAN)), 0);
        assert_eq!(one(Type::S64, Type::F64, zero, f64::NAN.to_bits()), 1 << 63);
        assert_eq!(
            one(Type::F32, Type::F32, integral(Rounding::Up), bits(1.25)),
            bits(2.0)
        );
    }

    #[test]
    fn integers_become_numbers_rounded_as_asked() {
        let to = |rounding| {
            let mode = Mode {
                rounding,
                ..Mode::default()
            };
            f32::from_bits(one(Type::F32, Type::S32, mode, 16_777_217) as u32)
        };
        assert_eq!(to(Rounding::Nearest), 16_777_216.0);
        assert_eq!(to(Rounding::Up), 16_777_218.0);
        let mode = Mode::default();
        assert_eq!(
            f64::from_bits(one(Type::F64, Type::U64, mode, u64::MAX)),
            u64::MAX as f64
        );
        assert_eq!(one(Type::F16, Type::S32, mode, 100_000), 0x7c00);
        let saturate = Mode {
            saturate: true,
            ..mode
        };
        assert_eq!(one(Type::F64, Type::S32, saturate, 7), 1_f64.to_bits());
    }

    #[test]
    fn what_is_no_number_keeps_its_bits_to_and_from_64() {
        let mode = Mode::default();
        assert_eq!(
            one(Type::F64, Type::F16, mode, 0x7d23),
            0x7ffc_8c00_0000_0000
        );
        assert_eq!(
            one(Type::F32, Type::F64, mode, 0xfff0_1234_5678_9abc),
            0xffc0_91a2
        );
        assert_eq!(
            one(Type::F16, Type::F64, mode, 0x7ff0_1234_5678_9abc),
            0x7e04
        );
        assert_eq!(one(Type::F32, Type::Bf16, mode, 0x7f92), 0x7f92_0000);
        let flush = Mode {
            flush: true,
            ..mode
        };
        assert_eq!(
            one(Type::F64, Type::F32, flush, 0x7f81_2345),
            0x7fff_ffff_e000_0000
        );
        assert_eq!(one(Type::F32, Type::F16, mode, 0x7d23), 0x7fff_ffff);
    }

    #[test]
    fn what_becomes_a_number_of_16_bits_is_not_flushed_before() {
        let mode = Mode {
            rounding: Rounding::Down,
            flush: true,
            ..Mode::default()
        };
        assert_eq!(one(Type::F16, Type::F32, mode, 0x8000_0001), 0x8001);
        let whole = Mode {
            integral: true,
            ..mode
        };
        assert_eq!(one(Type::S16, Type::F32, whole, 0x8000_0001), 0);
        assert_eq!(
            one(Type::F32, Type::F64, mode, (-1e-40_f64).to_bits()),
            0x8000_0000
        );
    }

    #[test]
    fn numbers_of_different_widths_are_rounded_once() {
        let mode = Mode::default();
        // Twice rounded, through 32 bits, this would be a tie.
        let value = 1.0 + 2_f64.powi(-11) + 2_f64.powi(-40);
        assert_eq!(one(Type::F16, Type::F64, mode, value.to_bits()), 0x3c01);
        assert_eq!(
            one(Type::F64, Type::F32, mode, 1.5_f32.to_bits().into()),
            1.5_f64.to_bits()
        );
        let pair = convert_pair(
            Type::F16x2,
            Type::F32,
            mode,
            &[1_f32.to_bits().into(); 32],
            &[2_f32.to_bits().into(); 32],
        );
        assert_eq!(pair.expect("a pair")[0], 0x3c00_4000);
    }

    /// A sum of what GPUs give for all pairs of one half and all bytes.
    #[test]
    fn pairs_of_bytes_are_as_gpus_have_them() {
        let sum = |codes: &mut dyn Iterator<Item = u64>| {
            codes.fold(0_u32, |sum, code| {
                sum.wrapping_mul(31).wrapping_add(code as u32)
            })
        };
        let mut sums = Vec::new();
        for ty in [Type::E4m3x2, Type::E5m2x2] {
            for relu in [false, true] {
                let mode = Mode {
                    relu,
                    ..Mode::default()
                };
                let halves = (0..1 << 16).map(|half| 0x4000 << 16 | half);
                sums.push(sum(&mut halves.map(|bits| one(ty, Type::F16x2, mode, bits))));
                let mut bytes = (0..1 << 16).map(|bytes| one(Type::F16x2, ty, mode, bytes));
                sums.push(sum(&mut bytes));
            }
        }
        assert_eq!(
            sums,
            [
                0x9bf3_9000,
                0x7c24_fe00,
                0x95ac_9c9f,
                0xa4a_7e00,
                0x1361_c084,
                0xa7ec_3e00,
                0xae53_b4e1,
                0xdd2a_3e00
            ]
        );
    }

    #[test]
    fn numbers_of_32_bits_are_rounded_once_to_bytes() {
        let of = |ty, value: f32| {
            let lanes = [u64::from(value.to_bits()); 1];
            convert_pair(ty, Type::F32, Mode::default(), &lanes, &[0x3f80_0000]).expect("a pair")[0]
        };
        for (value, expected) in [
            (1.0625, 0x3838),
            (1.062_500_1, 0x3938),
            (-448.0, 0xfe38),
            (1e30, 0x7e38),
            (-0.000_976_562_5, 0x8038),
            (0.001, 0x0138),
            (f32::NEG_INFINITY, 0xfe38),
            (-f32::NAN, 0x7f38),
        ] {
            assert_eq!(of(Type::E4m3x2, value), expected, "{value}");
        }
        assert_eq!(of(Type::E5m2x2, 61440.0), 0x7b3c);
        assert_eq!(of(Type::E5m2x2, 1.0), 0x3c3c);
    }

    #[test]
    fn truth_has_a_value_in_each_type() {
        assert_eq!(truth(Type::U32, true), 0xffff_ffff);
        assert_eq!(truth(Type::F32, true), 0x3f80_0000);
        assert_eq!(truth(Type::S16, true), 0xffff);
        assert_eq!(truth(Type::S32, false), 0);
    }
}
