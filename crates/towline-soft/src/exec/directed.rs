//! Arithmetic on numbers of 64 bits, rounded as asked: to nearest as the host does it, else from the exact result, in integers.

use towline_ptx::ir::op::Rounding;

/// A number that is not zero or not finite is `mantissa * 2^exponent`. The lowest bit also says that something smaller has been cut off.
#[derive(Clone, Copy)]
struct Exact {
    negative: bool,
    mantissa: u128,
    exponent: i32,
}

/// The least exponent of a number's last bit.
const LEAST: i32 = -1074;

impl Exact {
    /// A finite number.
    fn of(value: f64) -> Self {
        let bits = value.to_bits();
        let fraction = bits & ((1 << 52) - 1);
        let (mantissa, exponent) = match (bits >> 52 & 0x7ff) as i32 {
            0 => (fraction, LEAST),
            exponent => (fraction | 1 << 52, exponent - 1 + LEAST),
        };
        Self {
            negative: bits >> 63 != 0,
            mantissa: mantissa.into(),
            exponent,
        }
    }

    /// With so many bits below the highest that is set.
    fn with_bits(self, below: u32) -> Self {
        let top = 127 - self.mantissa.leading_zeros();
        let by = below as i32 - top as i32;
        Self {
            mantissa: match by {
                0.. => self.mantissa << by,
                _ => cut(self.mantissa, by.unsigned_abs()),
            },
            exponent: self.exponent - by,
            ..self
        }
    }

    fn times(self, other: Self) -> Self {
        Self {
            negative: self.negative != other.negative,
            mantissa: self.mantissa * other.mantissa,
            exponent: self.exponent + other.exponent,
        }
    }

    /// The sum of numbers of at most 106 bits.
    fn plus(self, other: Self) -> Self {
        if self.mantissa == 0 {
            return other;
        }
        if other.mantissa == 0 {
            return self;
        }
        // What is cut off is more than fifty bits below the last one of the result.
        let (a, b) = (self.with_bits(125), other.with_bits(125));
        let (large, small) = match (a.exponent, a.mantissa) >= (b.exponent, b.mantissa) {
            true => (a, b),
            false => (b, a),
        };
        let part = cut(small.mantissa, large.exponent.abs_diff(small.exponent));
        Self {
            mantissa: match large.negative == small.negative {
                true => large.mantissa + part,
                false => large.mantissa - part,
            },
            ..large
        }
    }

    fn rounded(self, rounding: Rounding) -> f64 {
        let sign = u64::from(self.negative) << 63;
        if self.mantissa == 0 {
            return f64::from_bits(sign);
        }
        let top = 127 - self.mantissa.leading_zeros() as i32;
        // What the last bit is worth.
        let unit = (self.exponent + top - 52).max(LEAST);
        let by = unit - self.exponent;
        let (kept, rest) = match by {
            ..=0 => (self.mantissa << by.unsigned_abs(), 0),
            1..=127 => (
                self.mantissa >> by,
                self.mantissa << (128 - by.unsigned_abs()),
            ),
            // Less than half of what is least.
            _ => (0, 1),
        };
        let half = 1_u128 << 127;
        let up = match rounding {
            Rounding::Nearest => rest > half || rest == half && kept & 1 != 0,
            Rounding::NearestAway => rest >= half,
            Rounding::Zero => false,
            Rounding::Down => rest != 0 && self.negative,
            Rounding::Up => rest != 0 && !self.negative,
        };
        let kept = kept as u64 + u64::from(up);
        // A carry out of the fraction moves on into the exponent by itself.
        let magnitude = match kept >> 52 {
            0 => kept,
            _ => ((unit - LEAST) as u64)
                .saturating_mul(1 << 52)
                .saturating_add(kept),
        };
        let infinity = f64::INFINITY.to_bits();
        let largest = match rounding {
            Rounding::Nearest | Rounding::NearestAway => false,
            Rounding::Zero => true,
            Rounding::Down => !self.negative,
            Rounding::Up => self.negative,
        };
        let magnitude = match magnitude >= infinity {
            true => infinity - u64::from(largest),
            false => magnitude,
        };
        f64::from_bits(sign | magnitude)
    }
}

/// Shifts to the right; the lowest bit says whether anything was lost.
fn cut(mantissa: u128, by: u32) -> u128 {
    match by {
        0 => mantissa,
        1..=127 => mantissa >> by | u128::from(mantissa << (128 - by) != 0),
        _ => u128::from(mantissa != 0),
    }
}

/// The sign of a sum that is zero: of zeros of one sign theirs, else it hangs on the rounding.
fn zero(a_negative: bool, b_negative: bool, rounding: Rounding) -> f64 {
    let negative = match a_negative == b_negative {
        true => a_negative,
        false => rounding == Rounding::Down,
    };
    if negative { -0.0 } else { 0.0 }
}

/// The sum of two exact numbers, where these may be zero.
fn total(a: Exact, b: Exact, rounding: Rounding) -> f64 {
    let sum = a.plus(b);
    match sum.mantissa {
        0 => zero(a.negative, b.negative, rounding),
        _ => sum.rounded(rounding),
    }
}

pub(super) fn add(a: f64, b: f64, rounding: Rounding) -> f64 {
    if rounding == Rounding::Nearest || !a.is_finite() || !b.is_finite() {
        return a + b;
    }
    total(Exact::of(a), Exact::of(b), rounding)
}

pub(super) fn mul(a: f64, b: f64, rounding: Rounding) -> f64 {
    if rounding == Rounding::Nearest || !a.is_finite() || !b.is_finite() {
        return a * b;
    }
    Exact::of(a).times(Exact::of(b)).rounded(rounding)
}

pub(super) fn fma(a: f64, b: f64, c: f64, rounding: Rounding) -> f64 {
    let finite = a.is_finite() && b.is_finite() && c.is_finite();
    if rounding == Rounding::Nearest || !finite {
        return a.mul_add(b, c);
    }
    total(Exact::of(a).times(Exact::of(b)), Exact::of(c), rounding)
}

fn quotient(a: f64, b: f64) -> Exact {
    let (a, b) = (Exact::of(a).with_bits(126), Exact::of(b).with_bits(52));
    let quotient = a.mantissa / b.mantissa;
    let rest = quotient * b.mantissa != a.mantissa;
    Exact {
        negative: a.negative != b.negative,
        mantissa: quotient | u128::from(rest),
        exponent: a.exponent - b.exponent,
    }
}

pub(super) fn div(a: f64, b: f64, rounding: Rounding) -> f64 {
    let special = !a.is_finite() || !b.is_finite() || a == 0.0 || b == 0.0;
    if rounding == Rounding::Nearest || special {
        return a / b;
    }
    quotient(a, b).rounded(rounding)
}

fn root(a: f64) -> Exact {
    let a = Exact::of(a).with_bits(124);
    // The exponent must be even.
    let odd = a.exponent & 1;
    let mantissa = a.mantissa << odd;
    let root = mantissa.isqrt();
    Exact {
        negative: false,
        mantissa: root << 1 | u128::from(root * root != mantissa),
        exponent: (a.exponent - odd) / 2 - 1,
    }
}

pub(super) fn sqrt(a: f64, rounding: Rounding) -> f64 {
    if rounding == Rounding::Nearest || !a.is_finite() || a <= 0.0 {
        return a.sqrt();
    }
    root(a).rounded(rounding)
}

/// An integer.
pub(super) fn integer(value: i128, rounding: Rounding) -> f64 {
    let exact = Exact {
        negative: value < 0,
        mantissa: value.unsigned_abs(),
        exponent: 0,
    };
    exact.rounded(rounding)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DIRECTED: [Rounding; 3] = [Rounding::Zero, Rounding::Down, Rounding::Up];

    /// Numbers of any magnitude, and often subnormal ones or those at the ends.
    fn numbers() -> impl Strategy<Value = f64> {
        prop_oneof![
            any::<u64>().prop_map(f64::from_bits),
            any::<u64>().prop_map(|bits| f64::from_bits(bits & !(0x7fe << 52))),
            (-40_i32..40, any::<u8>()).prop_map(|(power, more)| {
                (1.0 + f64::from(more) * f64::EPSILON) * 2_f64.powi(power)
            }),
            Just(0.0),
            Just(-0.0),
            Just(f64::MAX),
            Just(5e-324),
        ]
        .prop_filter("finite", |value| value.is_finite())
    }

    proptest! {
        #[test]
        fn exact_results_rounded_to_nearest_are_the_machine_s(
            a in numbers(), b in numbers(), c in numbers(), whole: i64,
        ) {
            let nearest = Rounding::Nearest;
            let [x, y, z] = [a, b, c].map(Exact::of);
            prop_assert_eq!(total(x, y, nearest).to_bits(), (a + b).to_bits());
            prop_assert_eq!(x.times(y).rounded(nearest).to_bits(), (a * b).to_bits());
            prop_assert_eq!(total(x.times(y), z, nearest).to_bits(), a.mul_add(b, c).to_bits());
            prop_assert_eq!(integer(whole.into(), nearest), whole as f64);
            if a != 0.0 && b != 0.0 {
                prop_assert_eq!(quotient(a, b).rounded(nearest).to_bits(), (a / b).to_bits());
                prop_assert_eq!(root(a.abs()).rounded(nearest), a.abs().sqrt());
            }
        }

        #[test]
        fn directed_results_enclose_the_nearest(a in numbers(), b in numbers(), c in numbers()) {
            let all: [(f64, [f64; 3]); 5] = [
                (a + b, DIRECTED.map(|rounding| add(a, b, rounding))),
                (a * b, DIRECTED.map(|rounding| mul(a, b, rounding))),
                (a / b, DIRECTED.map(|rounding| div(a, b, rounding))),
                (a.abs().sqrt(), DIRECTED.map(|rounding| sqrt(a.abs(), rounding))),
                (a.mul_add(b, c), DIRECTED.map(|rounding| fma(a, b, c, rounding))),
            ];
            for (nearest, [zero, down, up]) in all {
                if nearest.is_nan() {
                    continue;
                }
                prop_assert!(down <= nearest && nearest <= up);
                prop_assert!(down == up || down.next_up() == up, "{} {}", down, up);
                prop_assert_eq!(zero, if up > 0.0 { down } else { up });
            }
        }
    }

    #[test]
    fn what_is_lost_counts_however_small_it_is() {
        let tiny = 2_f64.powi(-60);
        assert_eq!(add(1.0, tiny, Rounding::Up), 1.0_f64.next_up());
        assert_eq!(add(1.0, -tiny, Rounding::Zero), 1.0_f64.next_down());
        assert_eq!(add(f64::MAX, f64::MAX, Rounding::Zero), f64::MAX);
        // As on an H200: products below everything that there is.
        let least = f64::from_bits(1);
        assert_eq!(mul(least, -least, Rounding::Down).to_bits(), 1 << 63 | 1);
        assert_eq!(mul(least, least, Rounding::Up), least);
        assert_eq!(
            fma(least, least, -1.0, Rounding::Zero),
            -(1.0_f64.next_down())
        );
        assert_eq!(div(least, 1.5, Rounding::Zero), 0.0);
        assert_eq!(add(0.0, -0.0, Rounding::Down).to_bits(), 1 << 63);
        assert_eq!(add(1.0, -1.0, Rounding::Down).to_bits(), 1 << 63);
        assert_eq!(
            integer((1 << 53) + 1, Rounding::Up),
            9_007_199_254_740_994.0
        );
    }
}
