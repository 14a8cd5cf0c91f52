//! Numbers in registers, and their rounding.

use towline_ptx::ir::op::Rounding;
use towline_ptx::ptx::Type;

/// A value as it lies in a register.
pub(super) trait Word: Copy {
    fn take(bits: u64) -> Self;
    fn put(self) -> u64;
}

macro_rules! words {
    ($($word:ty as $unsigned:ty),*) => {
        $(impl Word for $word {
            #[inline(always)]
            fn take(bits: u64) -> Self {
                bits as $word
            }
            #[inline(always)]
            fn put(self) -> u64 {
                self as $unsigned as u64
            }
        })*
    };
}

words! { u8 as u8, u16 as u16, u32 as u32, u64 as u64, i8 as u8, i16 as u16, i32 as u32, i64 as u64 }

impl Word for f32 {
    #[inline(always)]
    fn take(bits: u64) -> Self {
        f32::from_bits(bits as u32)
    }
    #[inline(always)]
    fn put(self) -> u64 {
        // Every operation gives the one NaN.
        if self.is_nan() {
            0x7fff_ffff
        } else {
            self.to_bits().into()
        }
    }
}

impl Word for f64 {
    #[inline(always)]
    fn take(bits: u64) -> Self {
        f64::from_bits(bits)
    }
    #[inline(always)]
    fn put(self) -> u64 {
        self.to_bits()
    }
}

/// Keeps the bits of a type, and repeats its sign above them.
#[inline(always)]
pub(crate) fn extend(bits: u64, ty: Type) -> u64 {
    match ty {
        Type::U8 | Type::B8 => bits as u8 as u64,
        Type::S8 => bits as u8 as i8 as i64 as u64,
        Type::U16 | Type::B16 | Type::F16 | Type::Bf16 => bits as u16 as u64,
        Type::S16 => bits as u16 as i16 as i64 as u64,
        Type::S32 => bits as u32 as i32 as i64 as u64,
        _ if ty.bits() == 32 => bits as u32 as u64,
        _ => bits,
    }
}

/// A binary floating-point format narrower than 64 bits.
#[derive(Clone, Copy)]
pub(super) struct Format {
    /// Bits of the fraction.
    fraction: u32,
    /// Bits of the exponent.
    exponent: u32,
}

pub(super) const F32: Format = Format {
    fraction: 23,
    exponent: 8,
};
pub(super) const F16: Format = Format {
    fraction: 10,
    exponent: 5,
};
pub(super) const BF16: Format = Format {
    fraction: 7,
    exponent: 8,
};

impl Format {
    /// The only NaN that operations give.
    fn nan(self) -> u64 {
        (1 << (self.fraction + self.exponent)) - 1
    }

    /// The least number with all digits.
    pub(super) fn least_normal(self) -> f64 {
        2_f64.powi(2 - (1 << (self.exponent - 1)))
    }

    fn infinity(self) -> u64 {
        ((1 << self.exponent) - 1) << self.fraction
    }

    /// The value of bits.
    pub(super) fn value(self, bits: u64) -> f64 {
        let sign = bits >> (self.fraction + self.exponent) & 1 != 0;
        let magnitude = bits & ((1 << (self.fraction + self.exponent)) - 1);
        let bias = (1_i32 << (self.exponent - 1)) - 1;
        let value = if magnitude > self.infinity() {
            f64::NAN
        } else if magnitude == self.infinity() {
            f64::INFINITY
        } else {
            let exponent = (magnitude >> self.fraction) as i32;
            let fraction = magnitude & ((1 << self.fraction) - 1);
            let (fraction, exponent) = match exponent {
                0 => (fraction, 1),
                _ => (fraction | 1 << self.fraction, exponent),
            };
            // Both factors are exact, and so is their product.
            fraction as f64 * 2_f64.powi(exponent - bias - self.fraction as i32)
        };
        if sign { -value } else { value }
    }

    /// The bits of a value, rounded once.
    pub(super) fn round(self, value: f64, rounding: Rounding) -> u64 {
        let bits = value.to_bits();
        let sign = (bits >> 63) << (self.fraction + self.exponent);
        if value.is_nan() {
            return self.nan();
        }
        if value.is_infinite() {
            return sign | self.infinity();
        }
        let exponent = (bits >> 52 & 0x7ff) as i32;
        if exponent == 0 {
            // Zero, or far below everything that the format has: only its sign and that it is not zero count.
            let up = bits << 1 != 0 && away_from_zero(rounding, sign != 0);
            return sign | u64::from(up);
        }
        let fraction = bits & ((1 << 52) - 1) | 1 << 52;
        let bias = (1_i32 << (self.exponent - 1)) - 1;
        let wanted = exponent - 1023 + bias;
        // Bits that are cut off; subnormal results lose more of them.
        let cut = 52 - self.fraction + u32::try_from(1 - wanted).unwrap_or(0);
        let (kept, rest, half) = match cut {
            0..=62 => (
                fraction >> cut,
                fraction & ((1 << cut) - 1),
                1_u64 << (cut - 1),
            ),
            _ => (0, 1, 2),
        };
        let up = match rounding {
            Rounding::Nearest => rest > half || rest == half && kept & 1 != 0,
            Rounding::NearestAway => rest >= half,
            other => rest != 0 && away_from_zero(other, sign != 0),
        };
        let kept = kept + u64::from(up);
        // A carry out of the fraction moves on into the exponent by itself.
        let magnitude = match wanted {
            1.. => kept + ((wanted as u64 - 1) << self.fraction),
            _ => kept,
        };
        if magnitude >= self.infinity() {
            let largest = matches!(rounding, Rounding::Zero)
                || rounding == Rounding::Down && sign == 0
                || rounding == Rounding::Up && sign != 0;
            return sign | (self.infinity() - u64::from(largest));
        }
        sign | magnitude
    }
}

/// Whether what is cut off makes a magnitude larger under a directed rounding.
fn away_from_zero(rounding: Rounding, negative: bool) -> bool {
    match rounding {
        Rounding::Up => !negative,
        Rounding::Down => negative,
        _ => false,
    }
}

/// A value and what was lost when it was rounded, made into one whose last bit tells that something was lost: rounding that to fewer
/// bits is as good as rounding the exact value.
fn odd(value: f64, lost: f64) -> f64 {
    let bits = value.to_bits();
    if lost == 0.0 || lost.is_nan() || !value.is_finite() || bits & 1 != 0 {
        return value;
    }
    let outwards = (lost > 0.0) == (value > 0.0);
    f64::from_bits(if outwards { bits + 1 } else { bits - 1 })
}

/// What the rounded sum lacks.
fn sum_lost(a: f64, b: f64, sum: f64) -> f64 {
    let part = sum - a;
    (a - (sum - part)) + (b - part)
}

/// `a + b` for rounding to a narrower format.
pub(super) fn odd_sum(a: f64, b: f64) -> f64 {
    let sum = a + b;
    odd(sum, sum_lost(a, b, sum))
}

/// `a / b` for rounding to a narrower format.
pub(super) fn odd_quotient(a: f64, b: f64) -> f64 {
    let quotient = a / b;
    let lost = (-quotient).mul_add(b, a);
    odd(quotient, if b < 0.0 { -lost } else { lost })
}

/// The root for rounding to a narrower format.
pub(super) fn odd_root(a: f64) -> f64 {
    let root = a.sqrt();
    odd(root, (-root).mul_add(root, a))
}

/// A result of 64 bits: if it is no number, the first of these inputs that is none, made quiet, or else the one that invalid operations
/// give. Hosts differ here, and compilers pick whichever input comes handy.
#[inline(always)]
pub(super) fn settle<const I: usize>(value: f64, inputs: [f64; I]) -> f64 {
    if !value.is_nan() {
        return value;
    }
    let mut found = inputs.into_iter().filter(|input| input.is_nan());
    f64::from_bits(match found.next() {
        Some(input) => input.to_bits() | 1 << 51,
        None => 0xfff8 << 48,
    })
}

/// To an integral value.
pub(super) fn integral(value: f64, rounding: Rounding) -> f64 {
    match rounding {
        Rounding::Nearest => value.round_ties_even(),
        Rounding::NearestAway => value.round(),
        Rounding::Zero => value.trunc(),
        Rounding::Down => value.floor(),
        Rounding::Up => value.ceil(),
    }
}

/// An integer as the nearest value of 64 bits, with its last bit odd where something was lost, for narrower formats.
pub(super) fn odd_integer(value: i128) -> f64 {
    let nearest = value as f64;
    odd(nearest, (value - nearest as i128) as f64)
}

/// Subnormal numbers as zero.
#[inline(always)]
pub(super) fn flush(value: f32) -> f32 {
    if value.is_subnormal() {
        0_f32.copysign(value)
    } else {
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DIRECTED: [Rounding; 3] = [Rounding::Zero, Rounding::Down, Rounding::Up];

    fn single(value: f64, rounding: Rounding) -> f32 {
        f32::from_bits(F32.round(value, rounding) as u32)
    }

    #[test]
    fn halves_have_their_known_bits() {
        for (value, bits) in [
            (1.0, 0x3c00),
            (-2.0, 0xc000),
            (65504.0, 0x7bff),
            (65520.0, 0x7c00),
            (65519.9, 0x7bff),
            (6e-8, 0x0001),
            (2.9e-8, 0x0000),
            (0.333_333_33, 0x3555),
            (f64::NAN, 0x7fff),
            (f64::NEG_INFINITY, 0xfc00),
        ] {
            assert_eq!(F16.round(value, Rounding::Nearest), bits, "{value}");
        }
        assert_eq!(F16.round(1e9, Rounding::Zero), 0x7bff);
        assert_eq!(F16.round(1e-30, Rounding::Up), 0x0001);
        assert_eq!(F16.round(-1e-30, Rounding::Down), 0x8001);
        assert_eq!(BF16.round(1.0, Rounding::Nearest), 0x3f80);
        assert_eq!(F16.value(0x0001), 2_f64.powi(-24));
        assert_eq!(BF16.value(0x4049), 3.140625);
    }

    proptest! {
        #[test]
        fn rounding_to_single_is_the_machine_s(bits: u64) {
            let value = f64::from_bits(bits);
            prop_assume!(!value.is_nan());
            prop_assert_eq!(single(value, Rounding::Nearest), value as f32);
        }

        #[test]
        fn every_narrow_value_survives(bits: u16) {
            for format in [F16, BF16] {
                let value = format.value(bits.into());
                prop_assume!(!value.is_nan());
                for rounding in DIRECTED {
                    prop_assert_eq!(format.round(value, rounding), u64::from(bits));
                }
            }
        }

        #[test]
        fn fused_single_products_are_the_machine_s(a: f32, b: f32, c: f32) {
            let exact = odd_sum(f64::from(a) * f64::from(b), c.into());
            let machine = a.mul_add(b, c);
            prop_assert_eq!(single(exact, Rounding::Nearest).put(), machine.put());
        }

        #[test]
        fn integers_are_rounded_once(value: i64) {
            let exact = i128::from(value);
            let narrow = F32.value(F32.round(odd_integer(exact), Rounding::Nearest));
            prop_assert_eq!(narrow as f32, value as f32);
        }
    }

    #[test]
    fn known_results_are_directed() {
        assert_eq!(single(odd_quotient(1.0, 3.0), Rounding::Up), 0.333_333_34);
        assert_eq!(single(odd_quotient(1.0, 3.0), Rounding::Down), 0.333_333_3);
        assert_eq!(single(odd_root(2.0), Rounding::Up), 1.414_213_7);
    }
}
