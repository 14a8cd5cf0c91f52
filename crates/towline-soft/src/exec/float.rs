//! Floating-point arithmetic, for `N` lanes at once: all of a warp, or one.
//!
//! Numbers of 32 and 64 bits are computed as the host does where rounding is to nearest; everything else goes through a wider value that is
//! rounded once (see [`super::number`]), or through the exact one (see [`super::directed`]). Approximate instructions are computed with 64 bits and rounded: closer than the ISA asks, and not
//! bit for bit what a GPU gives.

use towline_ptx::ir::op::{Atomic, Binary, Class, Compare, Mode, Rounding, Ternary, Unary};
use towline_ptx::ptx::Type;

use super::directed;
use super::integer::{map1, map2, map3};
use super::number::{self, BF16, F16, F32, Format, Word, flush, settle};

/// Rounds, and flushes and saturates as the modifiers say. What is below the normal numbers is flushed even where it would be rounded to
/// the least of them.
fn finish(value: f64, mode: Mode) -> f32 {
    if mode.flush && value.abs() < f64::from(f32::MIN_POSITIVE) {
        return finish_f32(0_f32.copysign(value as f32), mode);
    }
    let narrow = f32::from_bits(F32.round(value, mode.rounding) as u32);
    finish_f32(narrow, mode)
}

#[inline(always)]
fn finish_f32(value: f32, mode: Mode) -> f32 {
    let value = if mode.flush { flush(value) } else { value };
    if mode.saturate {
        // NaN becomes 0.
        if value > 0.0 { value.min(1.0) } else { 0.0 }
    } else if mode.relu && value <= 0.0 {
        0.0
    } else {
        value
    }
}

/// The same of what the host has rounded to nearest, where the exact value is needed at the edge only.
#[inline(always)]
fn finish_nearest(value: f32, exact: impl FnOnce() -> f64, mode: Mode) -> f32 {
    match mode.flush && value.abs() == f32::MIN_POSITIVE {
        true => finish(exact(), mode),
        false => finish_f32(value, mode),
    }
}

#[inline(always)]
fn enter(value: f32, mode: Mode) -> f32 {
    if mode.flush { flush(value) } else { value }
}

/// Whether the plain operation of the host is what is asked for.
fn is_plain(mode: Mode) -> bool {
    mode.rounding == Rounding::Nearest && !mode.flush && !mode.saturate && !mode.relu
}

fn extremum(op: Binary, a: f64, b: f64, mode: Mode) -> f64 {
    let (a, b) = match mode.magnitude {
        true => (a.abs(), b.abs()),
        false => (a, b),
    };
    match (a.is_nan(), b.is_nan()) {
        (true, _) | (_, true) if mode.nan => f64::NAN,
        (true, _) => b,
        (_, true) => a,
        // Of zeros the negative one is less.
        _ if a == b && op == Binary::Min => {
            if a.is_sign_negative() {
                a
            } else {
                b
            }
        }
        _ if a == b => {
            if a.is_sign_negative() {
                b
            } else {
                a
            }
        }
        _ if op == Binary::Min => a.min(b),
        _ => a.max(b),
    }
}

fn extremum_f32(op: Binary, a: f32, b: f32, mode: Mode) -> f32 {
    let (a, b) = (enter(a, mode), enter(b, mode));
    let chosen = extremum(op, a.into(), b.into(), mode) as f32;
    let chosen = match mode.xor_sign {
        true => chosen
            .abs()
            .copysign(f32::from_bits(a.to_bits() ^ b.to_bits())),
        false => chosen,
    };
    if mode.relu && chosen < 0.0 {
        0.0
    } else {
        chosen
    }
}

fn binary_f32<const N: usize>(
    op: Binary,
    mode: Mode,
    a: &[u64; N],
    b: &[u64; N],
) -> Option<[u64; N]> {
    let plain = is_plain(mode);
    let nearest = mode.rounding == Rounding::Nearest;
    let wide = |f: &dyn Fn(f64, f64) -> f64| {
        map2(a, b, |a: f32, b: f32| {
            finish(f(enter(a, mode).into(), enter(b, mode).into()), mode)
        })
    };
    let narrow = |f: fn(f32, f32) -> f32| {
        map2(a, b, |a: f32, b: f32| {
            finish_f32(f(enter(a, mode), enter(b, mode)), mode)
        })
    };
    let edged = |f: fn(f32, f32) -> f32, exact: fn(f64, f64) -> f64| {
        map2(a, b, |a: f32, b: f32| {
            let (a, b) = (enter(a, mode), enter(b, mode));
            finish_nearest(f(a, b), || exact(a.into(), b.into()), mode)
        })
    };
    Some(match op {
        Binary::Add if plain => map2(a, b, |a: f32, b: f32| a + b),
        Binary::Sub if plain => map2(a, b, |a: f32, b: f32| a - b),
        Binary::Mul if plain => map2(a, b, |a: f32, b: f32| a * b),
        Binary::Div if plain => map2(a, b, |a: f32, b: f32| a / b),
        Binary::Add if nearest => narrow(|a, b| a + b),
        Binary::Sub if nearest => narrow(|a, b| a - b),
        Binary::Mul if nearest => edged(|a, b| a * b, |a, b| a * b),
        Binary::Div if nearest => edged(|a, b| a / b, number::odd_quotient),
        Binary::Add => wide(&|a, b| signed_zero(number::odd_sum(a, b), a, b, mode)),
        Binary::Sub => wide(&|a, b| signed_zero(number::odd_sum(a, -b), a, -b, mode)),
        Binary::Mul => wide(&|a, b| a * b),
        Binary::Div => wide(&number::odd_quotient),
        Binary::DivApprox => map2(a, b, |a: f32, b: f32| {
            let (a, b) = (enter(a, mode), enter(b, mode));
            finish_f32(divided(a, b), mode)
        }),
        Binary::Max | Binary::Min => map2(a, b, |a: f32, b: f32| extremum_f32(op, a, b, mode)),
        // The first input has the sign.
        Binary::CopySign => map2(a, b, |a: u32, b: u32| a & 0x8000_0000 | b & 0x7fff_ffff),
        _ => return None,
    })
}

/// `div.approx`: the reciprocal of what is beyond 2^126 is lost.
fn divided(a: f32, b: f32) -> f32 {
    const FAR: f32 = f32::from_bits(253 << 23);
    match b.abs() > FAR && b.is_finite() {
        true => a * 0_f32.copysign(b),
        false => a / b,
    }
}

/// A sum that is exactly zero of numbers that are not is negative when rounding down.
fn signed_zero(sum: f64, a: f64, b: f64, mode: Mode) -> f64 {
    let cancels = sum == 0.0 && mode.rounding == Rounding::Down;
    if cancels && (a != 0.0 || a.is_sign_negative() || b.is_sign_negative()) {
        -0.0
    } else {
        sum
    }
}

fn binary_f64<const N: usize>(
    op: Binary,
    mode: Mode,
    a: &[u64; N],
    b: &[u64; N],
) -> Option<[u64; N]> {
    let rounding = mode.rounding;
    // Of two inputs that are no numbers the second counts.
    let arithmetic =
        |f: fn(f64, f64, Rounding) -> f64| map2(a, b, |a, b| settle(f(a, b, rounding), [b, a]));
    Some(match op {
        Binary::Add => arithmetic(directed::add),
        Binary::Sub => arithmetic(|a, b, rounding| directed::add(a, -b, rounding)),
        Binary::Mul => arithmetic(directed::mul),
        // A function on GPUs, which looks at the first before.
        Binary::Div => map2(a, b, |a, b| settle(directed::div(a, b, rounding), [a, b])),
        Binary::Max | Binary::Min => map2(a, b, |a: f64, b: f64| {
            settle(extremum(op, a, b, mode), [b, a])
        }),
        Binary::CopySign => map2(a, b, |a: u64, b: u64| a & 1 << 63 | b & !(1 << 63)),
        _ => return None,
    })
}

/// The format of a type of 16 bits, or of the halves of a pair.
fn narrow_format(ty: Type) -> Option<(Format, bool)> {
    match ty {
        Type::F16 => Some((F16, false)),
        Type::F16x2 => Some((F16, true)),
        Type::Bf16 => Some((BF16, false)),
        Type::Bf16x2 => Some((BF16, true)),
        _ => None,
    }
}

/// A value of 16 bits, rounded and finished.
fn finish_narrow(format: Format, value: f64, mode: Mode) -> u64 {
    let value = match () {
        () if mode.flush && value.abs() < format.least_normal() => 0_f64.copysign(value),
        () => value,
    };
    let value = match () {
        () if mode.saturate => {
            if value > 0.0 {
                value.min(1.0)
            } else {
                0.0
            }
        }
        () if mode.relu && value <= 0.0 => 0.0,
        () => value,
    };
    format.round(value, mode.rounding)
}

fn enter_narrow(format: Format, bits: u64, mode: Mode) -> f64 {
    let value = format.value(bits & 0xffff);
    match mode.flush && value.abs() < format.least_normal() {
        true => 0_f64.copysign(value),
        false => value,
    }
}

/// An operation on 16 bits, or on both halves.
fn narrow<const N: usize, const I: usize>(
    (format, pair): (Format, bool),
    mode: Mode,
    inputs: [&[u64; N]; I],
    f: impl Fn([f64; I]) -> f64,
) -> [u64; N] {
    let one = |lane: usize, shift: u32| {
        let values = inputs.map(|input| enter_narrow(format, input[lane] >> shift, mode));
        finish_narrow(format, f(values), mode)
    };
    std::array::from_fn(|lane| {
        let low = one(lane, 0);
        if pair { one(lane, 16) << 16 | low } else { low }
    })
}

/// Both halves of 64 bits.
fn halves<const N: usize>(value: &[u64; N]) -> [[u64; N]; 2] {
    [
        map1(value, |a: u64| a as u32),
        map1(value, |a: u64| a >> 32),
    ]
}

fn joined<const N: usize>(low: &[u64; N], high: &[u64; N]) -> [u64; N] {
    map2(low, high, |low: u32, high: u32| {
        u64::from(high) << 32 | u64::from(low)
    })
}

/// An operation with two inputs.
pub(crate) fn binary<const N: usize>(
    op: Binary,
    ty: Type,
    mode: Mode,
    a: &[u64; N],
    b: &[u64; N],
) -> Option<[u64; N]> {
    match ty {
        Type::F32 => binary_f32(op, mode, a, b),
        Type::F64 => binary_f64(op, mode, a, b),
        Type::F32x2 => {
            let ([al, ah], [bl, bh]) = (halves(a), halves(b));
            let low = binary_f32(op, mode, &al, &bl)?;
            Some(joined(&low, &binary_f32(op, mode, &ah, &bh)?))
        }
        _ => {
            let format = narrow_format(ty)?;
            let f: &dyn Fn([f64; 2]) -> f64 = match op {
                Binary::Add => &|[a, b]| number::odd_sum(a, b),
                Binary::Sub => &|[a, b]| number::odd_sum(a, -b),
                Binary::Mul => &|[a, b]| a * b,
                Binary::Max | Binary::Min => &|[a, b]| {
                    let chosen = extremum(op, a, b, mode);
                    match mode.xor_sign {
                        true if a.is_sign_negative() != b.is_sign_negative() => -chosen.abs(),
                        true => chosen.abs(),
                        false => chosen,
                    }
                },
                _ => return None,
            };
            Some(narrow(format, mode, [a, b], f))
        }
    }
}

fn fma_f32<const N: usize>(mode: Mode, a: &[u64; N], b: &[u64; N], c: &[u64; N]) -> [u64; N] {
    if is_plain(mode) {
        return map3(a, b, c, |a: f32, b: f32, c: f32| a.mul_add(b, c));
    }
    if mode.rounding == Rounding::Nearest {
        return map3(a, b, c, |a: f32, b: f32, c: f32| {
            let (a, b, c) = (enter(a, mode), enter(b, mode), enter(c, mode));
            let exact = || number::odd_sum(f64::from(a) * f64::from(b), c.into());
            finish_nearest(a.mul_add(b, c), exact, mode)
        });
    }
    map3(a, b, c, |a: f32, b: f32, c: f32| {
        let (a, b, c) = (enter(a, mode), enter(b, mode), enter(c, mode));
        let (product, c) = (f64::from(a) * f64::from(b), f64::from(c));
        let sum = number::odd_sum(product, c);
        finish(signed_zero(sum, product, c, mode), mode)
    })
}

/// An operation with three inputs.
pub(crate) fn ternary<const N: usize>(
    op: Ternary,
    ty: Type,
    mode: Mode,
    inputs: [&[u64; N]; 3],
) -> Option<[u64; N]> {
    let [a, b, c] = inputs;
    Some(match (op, ty) {
        (Ternary::Fma, Type::F32) => fma_f32(mode, a, b, c),
        (Ternary::Fma, Type::F64) => map3(a, b, c, |a: f64, b: f64, c: f64| {
            settle(directed::fma(a, b, c, mode.rounding), [b, c, a])
        }),
        (Ternary::Fma, Type::F32x2) => {
            let ([al, ah], [bl, bh], [cl, ch]) = (halves(a), halves(b), halves(c));
            joined(&fma_f32(mode, &al, &bl, &cl), &fma_f32(mode, &ah, &bh, &ch))
        }
        (Ternary::Fma, ty) => narrow(narrow_format(ty)?, mode, inputs, |[a, b, c]| {
            number::odd_sum(a * b, c)
        }),
        (Ternary::Min3 | Ternary::Max3, Type::F32) => {
            let two = if op == Ternary::Min3 {
                Binary::Min
            } else {
                Binary::Max
            };
            let first = binary_f32(two, mode, a, b)?;
            binary_f32(two, mode, &first, c)?
        }
        _ => return None,
    })
}

/// Operations on one number whose exact value 64 bits are close enough to.
fn function(op: Unary, x: f64) -> Option<f64> {
    Some(match op {
        Unary::Cos => x.cos(),
        Unary::Ex2 => x.exp2(),
        Unary::Lg2 => x.log2(),
        Unary::Rcp => number::odd_quotient(1.0, x),
        Unary::Rsqrt => 1.0 / x.sqrt(),
        Unary::Sin => x.sin(),
        Unary::Sqrt => number::odd_root(x),
        Unary::Tanh => x.tanh(),
        _ => return None,
    })
}

/// An operation with one input.
pub(crate) fn unary<const N: usize>(
    op: Unary,
    ty: Type,
    mode: Mode,
    a: &[u64; N],
) -> Option<[u64; N]> {
    Some(match (op, ty) {
        (Unary::Abs, Type::F32) => map1(a, |a: f32| enter(a, mode).abs()),
        (Unary::Neg, Type::F32) => map1(a, |a: f32| -enter(a, mode)),
        (Unary::Abs, Type::F64) => map1(a, |a: f64| settle_sign(a.abs(), a)),
        (Unary::Neg, Type::F64) => map1(a, |a: f64| settle_sign(-a, a)),
        (Unary::Abs, ty) => narrow(narrow_format(ty)?, mode, [a], |[a]| a.abs()),
        (Unary::Neg, ty) => narrow(narrow_format(ty)?, mode, [a], |[a]| -a),
        (Unary::Sqrt, Type::F32) if is_plain(mode) => map1(a, |a: f32| a.sqrt()),
        // Rounded twice, which is within 2^-22.9 as the PTX ISA has it, in half the time of 64 bits.
        (Unary::Rsqrt, Type::F32) => {
            map1(a, |a: f32| finish_f32(1.0 / enter(a, mode).sqrt(), mode))
        }
        (_, Type::F32) => {
            function(op, 1.0)?;
            map1(a, |a: f32| {
                let value = function(op, enter(a, mode).into()).unwrap_or(f64::NAN);
                finish(value, mode)
            })
        }
        (Unary::Sqrt, Type::F64) => map1(a, |a: f64| settle(directed::sqrt(a, mode.rounding), [a])),
        // The flushing forms look at the upper half only, and leave the lower one zero.
        (Unary::Rcp, Type::F64) if mode.flush => map1(a, |a: u64| gross(upper(a).recip())),
        (Unary::Rsqrt, Type::F64) if mode.flush => map1(a, |a: u64| gross(upper(a).sqrt().recip())),
        (Unary::Rcp, Type::F64) => map1(a, |a: f64| {
            settle(directed::div(1.0, a, mode.rounding), [a])
        }),
        (Unary::Rsqrt, Type::F64) => map1(a, |a: f64| settle(a.sqrt().recip(), [a])),
        (_, ty) => {
            function(op, 1.0)?;
            narrow(narrow_format(ty)?, mode, [a], |[x]| {
                function(op, x).unwrap_or(f64::NAN)
            })
        }
    })
}

/// What is no number keeps its sign, and becomes quiet.
fn settle_sign(value: f64, input: f64) -> f64 {
    match input.is_nan() {
        true => settle(input, [input]),
        false => value,
    }
}

/// The upper half of a number.
fn upper(bits: u64) -> f64 {
    let value = f64::from_bits(bits & !0xffff_ffff);
    match value.is_subnormal() {
        true => 0_f64.copysign(value),
        false => value,
    }
}

fn gross(value: f64) -> u64 {
    match () {
        () if value.is_nan() => 0x7fff_ffff << 32,
        () if value.is_subnormal() => 0_f64.copysign(value).to_bits(),
        () => value.to_bits() & !0xffff_ffff,
    }
}

/// The value of bits of a type that numbers have.
pub(crate) fn value(ty: Type, bits: u64, flushes: bool) -> Option<f64> {
    Some(match ty {
        Type::F64 => f64::from_bits(bits),
        Type::F32 if flushes => flush(f32::take(bits)).into(),
        Type::F32 => f32::take(bits).into(),
        ty => {
            let (format, _) = narrow_format(ty)?;
            let mode = Mode {
                flush: flushes,
                ..Mode::default()
            };
            enter_narrow(format, bits, mode)
        }
    })
}

/// The bits of a value in a type, rounded once.
pub(super) fn bits(ty: Type, value: f64, mode: Mode) -> Option<u64> {
    Some(match ty {
        Type::F64 if mode.saturate => (if value > 0.0 { value.min(1.0) } else { 0.0 }).to_bits(),
        Type::F64 => value.to_bits(),
        Type::F32 => finish(value, mode).put(),
        ty => {
            let (format, _) = narrow_format(ty)?;
            // Conversions flush numbers of 32 bits only.
            finish_narrow(
                format,
                value,
                Mode {
                    flush: false,
                    ..mode
                },
            )
        }
    })
}

/// Whether a comparison of numbers holds.
pub(super) fn compare(compare: Compare, a: f64, b: f64) -> bool {
    let unordered = a.is_nan() || b.is_nan();
    match compare {
        Compare::Eq => a == b,
        Compare::Ne => a != b && !unordered,
        Compare::Lt => a < b,
        Compare::Le => a <= b,
        Compare::Gt => a > b,
        Compare::Ge => a >= b,
        Compare::Equ => a == b || unordered,
        Compare::Neu => a != b,
        Compare::Ltu => a < b || unordered,
        Compare::Leu => a <= b || unordered,
        Compare::Gtu => a > b || unordered,
        Compare::Geu => a >= b || unordered,
        Compare::Num => !unordered,
        Compare::Nan => unordered,
    }
}

/// Whether a number is of a class.
pub(crate) fn is_class(class: Class, ty: Type, bits: u64) -> bool {
    let (finite, infinite, normal, nan, subnormal) = match ty {
        Type::F32 => {
            let value = f32::take(bits);
            (
                value.is_finite(),
                value.is_infinite(),
                value.is_normal() || value == 0.0,
                value.is_nan(),
                value.is_subnormal(),
            )
        }
        _ => {
            let value = f64::take(bits);
            (
                value.is_finite(),
                value.is_infinite(),
                value.is_normal() || value == 0.0,
                value.is_nan(),
                value.is_subnormal(),
            )
        }
    };
    match class {
        Class::Finite => finite,
        Class::Infinite => infinite,
        Class::Normal => normal,
        Class::NotANumber => nan,
        Class::Number => !nan,
        Class::Subnormal => subnormal,
    }
}

/// What an atomic operation on floating-point numbers leaves. Global memory has its own adders, which flush, and leave what is no number as
/// it is; in shared memory it is an addition and an exchange.
pub(crate) fn atomic(op: Atomic, ty: Type, is_global: bool, old: u64, a: u64) -> Option<u64> {
    if is_global && op == Atomic::Add && ty == Type::F64 {
        let none = [a, old].into_iter().find(|bits| f64::take(*bits).is_nan());
        if none.is_some() {
            return none;
        }
    }
    let mode = Mode {
        flush: is_global && op == Atomic::Add && ty == Type::F32,
        ..Mode::default()
    };
    let op = match op {
        Atomic::Add => Binary::Add,
        Atomic::Max => Binary::Max,
        Atomic::Min => Binary::Min,
        _ => return None,
    };
    let result = binary(op, ty, mode, &[a], &[old])?;
    Some(result[0])
}

#[cfg(test)]
mod tests {
    use super::super::frame::LANES;
    use super::*;

    fn two(op: Binary, ty: Type, mode: Mode, a: u64, b: u64) -> u64 {
        binary(op, ty, mode, &[a; LANES], &[b; LANES]).expect("an operation")[31]
    }

    fn singles(op: Binary, mode: Mode, a: f32, b: f32) -> f32 {
        f32::take(two(
            op,
            Type::F32,
            mode,
            a.to_bits().into(),
            b.to_bits().into(),
        ))
    }

    fn rounded(rounding: Rounding) -> Mode {
        Mode {
            rounding,
            ..Mode::default()
        }
    }

    const FLUSH: Mode = Mode {
        rounding: Rounding::Nearest,
        integral: false,
        flush: true,
        saturate: false,
        nan: false,
        xor_sign: false,
        relu: false,
        magnitude: false,
    };

    #[test]
    fn the_four_roundings_enclose_a_third() {
        let third = |rounding| singles(Binary::Div, rounded(rounding), 1.0, 3.0);
        assert_eq!(third(Rounding::Nearest), 1.0 / 3.0);
        assert_eq!(third(Rounding::Up), 1.0 / 3.0);
        assert_eq!(third(Rounding::Down), (1.0_f32 / 3.0).next_down());
        assert_eq!(third(Rounding::Zero), (1.0_f32 / 3.0).next_down());
        let up = singles(Binary::Add, rounded(Rounding::Up), 1.0, 1e-20);
        assert_eq!(up, 1.0_f32.next_up());
        assert!(singles(Binary::Sub, rounded(Rounding::Down), 1.0, 1.0).is_sign_negative());
    }

    #[test]
    fn nan_is_the_one_nan_and_min_and_max_avoid_it() {
        let nan = two(
            Binary::Mul,
            Type::F32,
            Mode::default(),
            f32::INFINITY.to_bits().into(),
            0,
        );
        assert_eq!(nan, 0x7fff_ffff);
        assert_eq!(singles(Binary::Min, Mode::default(), f32::NAN, 2.0), 2.0);
        assert_eq!(singles(Binary::Max, Mode::default(), 2.0, f32::NAN), 2.0);
        let strict = Mode {
            nan: true,
            ..Mode::default()
        };
        assert!(singles(Binary::Max, strict, 2.0, f32::NAN).is_nan());
        assert!(singles(Binary::Min, Mode::default(), 0.0, -0.0).is_sign_negative());
        assert!(singles(Binary::Max, Mode::default(), -0.0, 0.0).is_sign_positive());
    }

    #[test]
    fn flushing_and_saturation_are_what_they_say() {
        let tiny = f32::from_bits(1);
        assert_eq!(singles(Binary::Add, FLUSH, tiny, tiny), 0.0);
        assert!(singles(Binary::Add, Mode::default(), tiny, tiny) > 0.0);
        let saturate = Mode {
            saturate: true,
            ..Mode::default()
        };
        assert_eq!(singles(Binary::Add, saturate, 0.75, 0.75), 1.0);
        assert_eq!(singles(Binary::Add, saturate, -3.0, 1.0), 0.0);
        assert_eq!(singles(Binary::Mul, saturate, f32::NAN, 1.0), 0.0);
    }

    #[test]
    fn products_are_fused() {
        let a = 1.0 + f64::EPSILON;
        let lanes = |value: f64| [value.to_bits(); LANES];
        let inputs = [&lanes(a), &lanes(a), &lanes(-1.0 - 2.0 * f64::EPSILON)];
        let fused =
            ternary(Ternary::Fma, Type::F64, Mode::default(), inputs).expect("an operation");
        assert_eq!(f64::take(fused[0]), f64::EPSILON * f64::EPSILON);
        // In 16 bits the square of 1 + 2^-10 would lose its last part.
        let one_up = [0x3c01; LANES];
        let inputs = [&one_up, &one_up, &[0xbc02; LANES]];
        let fused =
            ternary(Ternary::Fma, Type::F16, Mode::default(), inputs).expect("an operation");
        assert_eq!(F16.value(fused[0]), 2_f64.powi(-20));
    }

    #[test]
    fn pairs_are_two_numbers() {
        assert_eq!(
            two(
                Binary::Add,
                Type::F16x2,
                Mode::default(),
                0x3c00_4000,
                0x4000_3c00
            ),
            0x4200_4200
        );
        assert_eq!(
            two(
                Binary::Mul,
                Type::Bf16x2,
                Mode::default(),
                0x4000_3f80,
                0x4000_4040
            ),
            0x4080_4040
        );
    }

    #[test]
    fn functions_are_close_to_exact() {
        let one = |op, x: f32| {
            let lanes = unary(op, Type::F32, Mode::default(), &[x.to_bits().into(); LANES]);
            f32::take(lanes.expect("an operation")[3])
        };
        assert_eq!(one(Unary::Ex2, 3.0), 8.0);
        assert_eq!(one(Unary::Lg2, 8.0), 3.0);
        assert_eq!(one(Unary::Rsqrt, 4.0), 0.5);
        assert_eq!(one(Unary::Rcp, 0.0), f32::INFINITY);
        assert!((one(Unary::Sin, 1.0) - 0.841_471).abs() < 1e-6);
        assert!(one(Unary::Sqrt, -1.0).is_nan());
        assert_eq!(one(Unary::Neg, 0.0).to_bits(), 0x8000_0000);
        let gross =
            unary(Unary::Rcp, Type::F64, FLUSH, &[3_f64.to_bits(); LANES]).expect("an operation");
        assert_eq!(gross[0] & 0xffff_ffff, 0);
    }

    #[test]
    fn halves_are_flushed_below_what_is_normal_in_their_format() {
        let one = |ty, bits| {
            let lanes = unary(Unary::Ex2, ty, FLUSH, &[bits; LANES]);
            lanes.expect("an operation")[0]
        };
        // 2 to -20 and -126, and to -15: the last is subnormal in one format only.
        assert_eq!(one(Type::Bf16, 0xc1a0), 0x3580);
        assert_eq!(one(Type::Bf16, 0xc2fc), 0x0080);
        assert_eq!(one(Type::Bf16, 0xc2fe), 0);
        assert_eq!(one(Type::F16, 0xcb80), 0);
    }

    #[test]
    fn comparisons_know_what_is_unordered() {
        assert!(!compare(Compare::Ne, 1.0, f64::NAN));
        assert!(compare(Compare::Neu, 1.0, f64::NAN));
        assert!(compare(Compare::Ltu, f64::NAN, 1.0));
        assert!(compare(Compare::Nan, f64::NAN, 1.0));
        assert!(!compare(Compare::Num, f64::NAN, 1.0));
        assert!(compare(Compare::Eq, 0.0, -0.0));
        assert!(is_class(Class::Subnormal, Type::F32, 1));
        assert!(is_class(
            Class::Infinite,
            Type::F64,
            f64::INFINITY.to_bits()
        ));
    }
}
