//! Products of matrices as tensor cores compute them.
//!
//! NVIDIA does not say how tensor cores round. This follows what others have measured:
//!
//! - M. Fasi, N. J. Higham, M. Mikaitis, S. Pranesh, "Numerical behavior of NVIDIA tensor cores", PeerJ Computer Science 7:e330 (2021),
//!   of V100, T4 and A100: products are exact; subnormal numbers count; terms are aligned to the largest exponent, and bits that
//!   do not fit are cut off; the sum is normalised once, at its end.
//! - P. Xie, Y. Wang, F. Yang, M. Yang, "MMA-Sim: Bit-Accurate Reference Model of Tensor Cores and Matrix Cores", arXiv:2511.10909
//!   (2025), and the model published with it, of the H100 among others: there all products of an element of the result and its summand
//!   make one such sum, with 25 bits behind the point. Results of 32 bits are cut off, those of 16 rounded to nearest.
//!
//! F. A. Khattak, M. Mikaitis, "Accurate Models of NVIDIA Tensor Cores", arXiv:2512.07004 (2025) has models of V100, A100, H100 and B200 to hold
//! this one against, which nobody has done yet.
//!
//! Before the sum, exponents are those of factors added, so a product may have two bits before the point. A zero takes no part. A NaN, an infinity times zero, and infinities of both signs give the one NaN; results that are too large are infinite. A sum that
//! is zero is positive. Numbers of 64 bits are added up one after another, each product and sum rounded once. Integers are exact: they wrap around, or
//! are held to their range at the end.
//!
//! `mma.m8n8k4` on half precision, which an H100 has for old programs only, adds four products one after another in 32 bits, each sum
//! rounded to nearest, and what is to be added last; found from what it leaves (`tests/gpu/goldens`), which this equals in 23 of 24 cases.
//! Other generations cut off elsewhere: their last bits differ.

use towline_ptx::ir::matrix::{BitProduct, Element, Product};
use towline_ptx::ir::op::{Mode, Ternary};
use towline_ptx::ptx::Type;

use super::float;

/// Bits behind the point that sums are aligned to.
const FRACTION: u32 = 25;
/// The exponent of a zero.
const NONE: i32 = -100_000;
/// Bits that `tf32` does not look at.
const TF32_IGNORED: u64 = 0x1fff;

/// A binary format: bits of the exponent and of the fraction.
#[derive(Debug, Clone, Copy)]
struct Format {
    exponent: u32,
    fraction: u32,
}

const F16: Format = Format {
    exponent: 5,
    fraction: 10,
};
const BF16: Format = Format {
    exponent: 8,
    fraction: 7,
};
const F32: Format = Format {
    exponent: 8,
    fraction: 23,
};

/// A number: `significand` over `2^fraction`, times `2^exponent`.
#[derive(Debug, Clone, Copy)]
struct Number {
    significand: i32,
    exponent: i32,
}

impl Format {
    fn bias(self) -> i32 {
        (1 << (self.exponent - 1)) - 1
    }

    /// Whether these bits are a NaN or an infinity.
    fn is_special(self, bits: u64) -> bool {
        let ones = (1 << self.exponent) - 1;
        bits >> self.fraction & ones == ones
    }

    fn split(self, bits: u64) -> Number {
        let field = (bits >> self.fraction & ((1 << self.exponent) - 1)) as i32;
        let fraction = (bits & ((1 << self.fraction) - 1)) as i32;
        let magnitude = match field {
            0 => fraction,
            _ => fraction | 1 << self.fraction,
        };
        let is_negative = bits >> (self.exponent + self.fraction) & 1 != 0;
        Number {
            significand: if is_negative { -magnitude } else { magnitude },
            exponent: match magnitude {
                0 => NONE,
                _ => field.max(1) - self.bias(),
            },
        }
    }

    fn value(self, bits: u64) -> f64 {
        let sign = match bits >> (self.exponent + self.fraction) & 1 {
            0 => 1.0,
            _ => -1.0,
        };
        if self.is_special(bits) {
            return match bits & ((1 << self.fraction) - 1) {
                0 => sign * f64::INFINITY,
                _ => f64::NAN,
            };
        }
        let Number {
            significand,
            exponent,
        } = self.split(bits);
        match significand {
            0 => sign * 0.0,
            _ => f64::from(significand) * 2_f64.powi(exponent - self.fraction as i32),
        }
    }
}

fn format(element: Element) -> Format {
    match element {
        Element::F16 => F16,
        Element::Bf16 => BF16,
        Element::Tf32 => Format {
            exponent: 8,
            fraction: 10,
        },
        _ => F32,
    }
}

/// The bits of a factor in its format.
fn factor(element: Element, bits: u64) -> u64 {
    match element {
        Element::Tf32 => (bits & !TF32_IGNORED) >> 13,
        _ => bits,
    }
}

/// Factors of a sum.
struct Factors {
    format: Format,
    numbers: Vec<Number>,
    bits: Vec<u64>,
    /// Some are NaN or infinite.
    special: bool,
}

impl Factors {
    fn new(element: Element, elements: &[u64]) -> Self {
        let format = format(element);
        let bits: Vec<_> = elements.iter().map(|bits| factor(element, *bits)).collect();
        Self {
            format,
            numbers: bits.iter().map(|bits| format.split(*bits)).collect(),
            special: bits.iter().any(|bits| format.is_special(*bits)),
            bits,
        }
    }
}

/// How many products make one sum. What `wmma` multiplies of `tf32` at once an H100 has as two products of half the depth.
fn step(product: &Product) -> usize {
    match product.a.element {
        Element::Tf32 if product.a.wmma => 4,
        _ => product.a.shape.k as usize,
    }
}

/// The product of `a`, `m` rows of `k` elements, and `b`, `n` columns of `k`, added to `c`, `m` rows of `n`, which it becomes.
pub(super) fn multiply(product: &Product, a: &[u64], b: &[u64], c: &mut [u64]) {
    let depth = product.a.shape.k as usize;
    let columns = product.a.shape.n as usize;
    let each = |c: &mut [u64], sum: &mut dyn FnMut(usize, usize, u64) -> u64| {
        for (number, place) in c.iter_mut().enumerate() {
            let (row, column) = (number / columns, number % columns);
            *place = sum(row * depth, column * depth, *place);
        }
    };
    match product.a.element {
        Element::F64 => each(c, &mut |row, column, c| {
            let pairs = a[row..row + depth].iter().zip(&b[column..column + depth]);
            pairs.fold(c, |sum, (a, b)| fused(*a, *b, sum, product))
        }),
        Element::F16 if product.a.shape.k == 4 => each(c, &mut |row, column, c| {
            one_by_one(product, &a[row..row + depth], &b[column..column + depth], c)
        }),
        Element::F16 | Element::Bf16 | Element::Tf32 => {
            let (a, b) = (
                Factors::new(product.a.element, a),
                Factors::new(product.b.element, b),
            );
            let step = step(product);
            each(c, &mut |row, column, c| {
                (0..depth).step_by(step).fold(c, |c, at| {
                    let [row, column] = [row + at, column + at];
                    let of = [row..row + step, column..column + step];
                    float_sum(product, &a, &b, of, c)
                })
            });
        }
        Element::B1 => each(c, &mut |row, column, c| {
            let pairs = a[row..row + depth].iter().zip(&b[column..column + depth]);
            let ones: u64 = match product.bits {
                BitProduct::And => pairs.map(|(a, b)| a & b).sum(),
                BitProduct::Xor => pairs.map(|(a, b)| a ^ b).sum(),
            };
            u64::from((c as u32).wrapping_add(ones as u32))
        }),
        _ => {
            let [a, b] = [(product.a.element, a), (product.b.element, b)]
                .map(|(element, all)| all.iter().map(|bits| integer(element, *bits)).collect());
            let (a, b): (Vec<i64>, Vec<i64>) = (a, b);
            each(c, &mut |row, column, c| {
                let pairs = a[row..row + depth].iter().zip(&b[column..column + depth]);
                let products: i64 = pairs.map(|(a, b)| a * b).sum();
                let sum = i64::from(c as i32) + products;
                let sum = match product.saturate {
                    true => sum.clamp(i32::MIN.into(), i32::MAX.into()),
                    false => sum,
                };
                u64::from(sum as u32)
            });
        }
    }
}

fn integer(element: Element, bits: u64) -> i64 {
    match element {
        Element::S4 => (bits as i64) << 60 >> 60,
        Element::U4 => bits as i64 & 0xf,
        Element::S8 => i64::from(bits as i8),
        _ => i64::from(bits as u8),
    }
}

fn fused(a: u64, b: u64, c: u64, product: &Product) -> u64 {
    let mode = Mode {
        rounding: product.rounding,
        ..Mode::default()
    };
    let found = float::ternary(Ternary::Fma, Type::F64, mode, [&[a], &[b], &[c]]);
    found.map_or(0, |[sum]| sum)
}

/// One element of a product that is computed without tensor cores.
fn one_by_one(product: &Product, a: &[u64], b: &[u64], c: u64) -> u64 {
    let to_half = product.d.element == Element::F16;
    let single = |bits: &u64| F16.value(*bits) as f32;
    // Only halves show that nothing is added to the first product.
    let none = if to_half { -0_f32 } else { 0.0 };
    let pairs = a.iter().zip(b);
    let products = pairs.fold(none, |sum, (a, b)| single(a).mul_add(single(b), sum));
    let sum = products + format(product.c.element).value(c) as f32;
    match sum.is_nan() {
        _ if to_half => half_of(sum).into(),
        true => 0x7fff_ffff,
        false => sum.to_bits().into(),
    }
}

/// A number in 16 bits, to nearest, ties to even.
fn half_of(number: f32) -> u16 {
    let bits = u64::from(number.to_bits());
    let sign = (bits >> 16 & 0x8000) as u16;
    let Number {
        significand,
        exponent,
    } = F32.split(bits & !(1 << 31));
    match number.is_finite() {
        true => sign | rounded_half(significand.into(), exponent - F32.fraction as i32),
        false if number.is_nan() => 0x7fff,
        false => sign | 0x7c00,
    }
}

/// One element of the result.
fn float_sum(
    product: &Product,
    a: &Factors,
    b: &Factors,
    [row, column]: [std::ops::Range<usize>; 2],
    c: u64,
) -> u64 {
    let own = format(product.c.element);
    let to_half = product.d.element == Element::F16;
    if a.special || b.special || own.is_special(c) {
        let pairs = a.bits[row.clone()].iter().zip(&b.bits[column.clone()]);
        let products = pairs.map(|(x, y)| a.format.value(*x) * b.format.value(*y));
        // No sum of finite products is infinite in 64 bits.
        let sum = products.fold(own.value(c), |sum, product| sum + product);
        match (sum.is_finite(), sum.is_nan(), to_half) {
            (true, ..) => {}
            (_, true, true) => return 0x7fff,
            (_, true, false) => return 0x7fff_ffff,
            (.., true) => return if sum > 0.0 { 0x7c00 } else { 0xfc00 },
            (.., false) => return (sum as f32).to_bits().into(),
        }
    }
    let c = own.split(c);
    let (a, b, bits) = (&a.numbers[row], &b.numbers[column], 2 * a.format.fraction);
    let pairs = || a.iter().zip(b);
    // The exponent that a zero has in 32 bits is the least that counts.
    let least = c.exponent.max(1 - F32.bias());
    let most = pairs().fold(least, |most, (a, b)| most.max(a.exponent + b.exponent));
    let cut = |significand: i32, fraction: u32, exponent: i32| {
        let away = (most - exponent).min(31) as u32;
        let magnitude = significand.unsigned_abs() << (FRACTION - fraction) >> away;
        match significand < 0 {
            true => -i64::from(magnitude),
            false => i64::from(magnitude),
        }
    };
    let products = pairs().map(|(a, b)| {
        let exponent = a.exponent + b.exponent;
        cut(a.significand * b.significand, bits, exponent)
    });
    let sum = products.sum::<i64>() + cut(c.significand, own.fraction, c.exponent);
    let unit = most - FRACTION as i32;
    match to_half {
        true => rounded_half(sum, unit).into(),
        false => cut_single(sum, unit).into(),
    }
}

/// `sum * 2^unit` in 32 bits, towards zero; infinite if it is too large.
fn cut_single(sum: i64, unit: i32) -> u32 {
    let sign = if sum < 0 { 1 << 31 } else { 0 };
    let magnitude = sum.unsigned_abs();
    let bits = 64 - magnitude.leading_zeros() as i32;
    let exponent = (unit + bits - 1).max(1 - F32.bias());
    if exponent > F32.bias() {
        return sign | 0x7f80_0000;
    }
    // The last place of the result.
    let last = exponent - F32.fraction as i32;
    let found = match last - unit {
        left @ ..=0 => magnitude << -left,
        right => magnitude.checked_shr(right as u32).unwrap_or(0),
    } as u32;
    match found {
        0 => 0,
        found if found >> F32.fraction == 0 => sign | found,
        found => sign | ((exponent + F32.bias()) as u32) << F32.fraction | found & 0x7f_ffff,
    }
}

/// The same in 16 bits, to nearest, ties to even.
fn rounded_half(sum: i64, unit: i32) -> u16 {
    let sign = if sum < 0 { 1 << 15 } else { 0 };
    let magnitude = sum.unsigned_abs();
    let bits = 64 - magnitude.leading_zeros() as i32;
    let exponent = (unit + bits - 1).max(1 - F16.bias());
    if exponent > F16.bias() {
        return sign | 0x7c00;
    }
    let last = exponent - F16.fraction as i32;
    let found = match last - unit {
        left @ ..=0 => magnitude << -left,
        right @ 1..=63 => {
            let (whole, rest) = (magnitude >> right, magnitude & ((1 << right) - 1));
            let half = 1 << (right - 1);
            whole + u64::from(rest > half || rest == half && whole & 1 != 0)
        }
        _ => 0,
    };
    match found {
        0 => 0,
        // A carry goes into the exponent.
        found => {
            let above = (exponent + F16.bias() - 1) as u64;
            sign | ((above << F16.fraction) + found) as u16
        }
    }
}

#[cfg(test)]
mod tests;
