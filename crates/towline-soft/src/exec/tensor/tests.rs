//! Sums against others that are computed from the definition, in numbers of 64 bits.

use towline_ptx::ir::matrix::{Fragment, Role, Shape};
use towline_ptx::ir::op::Rounding;

use super::*;

fn product(shape: &str, factor: Element, sum: Element) -> Product {
    let shape = Shape::from_name(shape).expect("a shape");
    let fragment = |role, element| Fragment {
        role,
        shape,
        element,
        quads: None,
        wmma: false,
    };
    Product {
        a: fragment(Role::A, factor),
        b: fragment(Role::B, factor),
        c: fragment(Role::C, sum),
        d: fragment(Role::C, sum),
        saturate: false,
        rounding: Rounding::Nearest,
        bits: BitProduct::And,
    }
}

/// Random bits, the same each time.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        self.0 >> 32
    }

    /// A number of one of several magnitudes; now and then zero, subnormal, infinite or NaN.
    fn number(&mut self, element: Element) -> u64 {
        let (exponent, fraction) = match element {
            Element::F16 => (5, 10),
            Element::Bf16 => (8, 7),
            _ => (8, 23),
        };
        let ones = (1 << exponent) - 1;
        let pick = self.next() % 64;
        let field = match pick {
            0 | 1 => 0,
            2 if self.next().is_multiple_of(16) => ones,
            3..=20 => self.next() % ones,
            _ => (ones / 2) - 6 + self.next() % 12,
        };
        let rest = match pick {
            0 => 0,
            _ => self.next() & ((1 << fraction) - 1),
        };
        (self.next() & 1) << (exponent + fraction) | field << fraction | rest
    }
}

/// The value of bits, by the standard's own formula.
fn value(element: Element, bits: u64) -> f64 {
    match element {
        Element::F16 => {
            let (field, fraction) = ((bits >> 10 & 31) as i32, (bits & 1023) as f64);
            let magnitude = match field {
                0 => fraction * 2_f64.powi(-24),
                31 if fraction == 0.0 => f64::INFINITY,
                31 => f64::NAN,
                field => (1024.0 + fraction) * 2_f64.powi(field - 25),
            };
            if bits >> 15 & 1 != 0 {
                -magnitude
            } else {
                magnitude
            }
        }
        Element::Bf16 => f64::from(f32::from_bits((bits as u32) << 16)),
        Element::Tf32 => f64::from(f32::from_bits(bits as u32 & !0x1fff)),
        _ => f64::from(f32::from_bits(bits as u32)),
    }
}

/// The exponent of a number in its format, in which small numbers have the least one.
fn exponent(element: Element, value: f64) -> i32 {
    let least = if element == Element::F16 { -14 } else { -126 };
    ((value.to_bits() >> 52 & 0x7ff) as i32 - 1023).max(least)
}

fn half_nearest(value: f64) -> u64 {
    let all = (0..0x7c00_u64).map(|bits| (bits, super::F16.value(bits)));
    let magnitude = value.abs();
    if magnitude >= 65520.0 {
        return if value < 0.0 { 0xfc00 } else { 0x7c00 };
    }
    let nearest = all.min_by(|(a, x), (b, y)| {
        let by_distance = (x - magnitude).abs().total_cmp(&(y - magnitude).abs());
        by_distance.then((a & 1).cmp(&(b & 1)))
    });
    match nearest {
        Some((bits, _)) if bits != 0 && value < 0.0 => bits | 0x8000,
        found => found.map_or(0, |(bits, _)| bits),
    }
}

/// One element of a product as the module's text defines it.
fn reference(product: &Product, a: &[u64], b: &[u64], c: u64) -> u64 {
    let (factor, sum) = (product.a.element, product.c.element);
    let pairs = a
        .iter()
        .zip(b)
        .map(|(a, b)| (value(factor, *a), value(factor, *b)));
    let pairs: Vec<_> = pairs.collect();
    let c = value(sum, c);
    let plain = pairs.iter().fold(c, |sum, (a, b)| sum + a * b);
    let to_half = product.d.element == Element::F16;
    if plain.is_nan() {
        return if to_half { 0x7fff } else { 0x7fff_ffff };
    }
    if plain.is_infinite() {
        return match to_half {
            true => {
                if plain < 0.0 {
                    0xfc00
                } else {
                    0x7c00
                }
            }
            false => (plain as f32).to_bits().into(),
        };
    }
    let mut terms = vec![(c, if c == 0.0 { -126 } else { exponent(sum, c) })];
    terms.extend(pairs.iter().map(|(a, b)| match a * b == 0.0 {
        true => (0.0, -126),
        false => (a * b, exponent(factor, *a) + exponent(factor, *b)),
    }));
    let most = terms
        .iter()
        .map(|(_, exponent)| *exponent)
        .max()
        .unwrap_or(0);
    let cut = |value: f64| (value * 2_f64.powi(25 - most)).trunc();
    let total: f64 = terms.iter().map(|(value, _)| cut(*value)).sum();
    let exact = total * 2_f64.powi(most - 25);
    if to_half {
        return half_nearest(exact);
    }
    if exact.abs() >= 2_f64.powi(128) {
        return if exact < 0.0 {
            0xff80_0000
        } else {
            0x7f80_0000
        };
    }
    let mut bits = (exact as f32).to_bits();
    if f64::from(f32::from_bits(bits)).abs() > exact.abs() {
        bits -= 1;
    }
    u64::from(if bits << 1 == 0 { 0 } else { bits })
}

#[test]
fn sums_of_floats_are_those_of_the_definition() {
    let mut noise = Noise(7);
    for (shape, factor, sum) in [
        ("m16n8k16", Element::F16, Element::F32),
        ("m16n8k8", Element::F16, Element::F16),
        ("m16n8k16", Element::F16, Element::F16),
        ("m16n8k16", Element::Bf16, Element::F32),
        ("m16n8k8", Element::Bf16, Element::F32),
        ("m16n8k8", Element::Tf32, Element::F32),
        ("m16n8k4", Element::Tf32, Element::F32),
    ] {
        let product = product(shape, factor, sum);
        let Shape { m, n, k } = product.a.shape;
        let [m, n, k] = [m, n, k].map(|extent| extent as usize);
        for round in 0..4 {
            let mut of = |count, element| -> Vec<u64> {
                (0..count).map(|_| noise.number(element)).collect()
            };
            let (a, b, c) = (of(m * k, factor), of(n * k, factor), of(m * n, sum));
            let mut d = c.clone();
            multiply(&product, &a, &b, &mut d);
            for (number, found) in d.iter().enumerate() {
                let (row, column) = (number / n, number % n);
                let (a, b) = (&a[row * k..][..k], &b[column * k..][..k]);
                let expected = reference(&product, a, b, c[number]);
                assert_eq!(
                    *found, expected,
                    "{shape} {factor:?} {sum:?} {round}: {a:x?} {b:x?} {:x}",
                    c[number]
                );
            }
        }
    }
}

/// The sum of a few products of 16 bits.
fn sum_of(pairs: &[(f32, f32)], c: f32) -> f32 {
    let product = product("m16n8k16", Element::Bf16, Element::F32);
    let half = |value: f32| u64::from(value.to_bits() >> 16);
    let mut a = vec![0; 256];
    let mut b = vec![0; 128];
    for (index, (x, y)) in pairs.iter().enumerate() {
        (a[index], b[index]) = (half(*x), half(*y));
    }
    let mut d = vec![u64::from(c.to_bits()); 128];
    multiply(&product, &a, &b, &mut d);
    f32::from_bits(d[0] as u32)
}

#[test]
fn bits_behind_the_25th_are_cut_off_first() {
    let tiny = |exponent: i32| (2_f32.powi(exponent), 1.0);
    // Alone neither would be seen in the result; two of the 24th place are, and four of the 25th, but none of the 26th.
    assert_eq!(sum_of(&[tiny(-24)], 1.0), 1.0);
    assert_eq!(sum_of(&[tiny(-24); 2], 1.0), 1.0 + 2_f32.powi(-23));
    assert_eq!(sum_of(&[tiny(-25); 4], 1.0), 1.0 + 2_f32.powi(-23));
    assert_eq!(sum_of(&[tiny(-26); 15], 1.0), 1.0);
    // Results are cut off, too: this one is nearer to 1.
    assert_eq!(
        sum_of(&[(-2_f32.powi(-25), 1.0)], 1.0),
        1.0 - 2_f32.powi(-24)
    );
}

#[test]
fn integers_wrap_or_are_held_to_their_range() {
    let mut one = product("m8n8k16", Element::S8, Element::S32);
    let (a, b) = (vec![0x80; 128], vec![0x80; 128]);
    let top = i32::MAX as u32 as u64;
    let mut wrapped = vec![top; 64];
    multiply(&one, &a, &b, &mut wrapped);
    assert_eq!(wrapped[5] as u32, (i32::MAX as u32).wrapping_add(16 << 14));
    one.saturate = true;
    let mut held = vec![top; 64];
    multiply(&one, &a, &b, &mut held);
    assert_eq!(held[5], top);
    one.b.element = Element::U8;
    let mut mixed = vec![0; 64];
    multiply(&one, &a, &b, &mut mixed);
    assert_eq!(mixed[5] as i32, -(16 << 14));
}

#[test]
fn parts_of_bytes_and_bits_are_multiplied_as_such() {
    let nibbles = product("m8n8k32", Element::S4, Element::S32);
    let mut d = vec![1; 64];
    multiply(&nibbles, &vec![0x9; 256], &vec![0x7; 256], &mut d);
    assert_eq!(d[9] as i32, 1 - 7 * 7 * 32);
    let mut bits = product("m8n8k128", Element::B1, Element::S32);
    let (a, b) = (vec![1; 1024], [1, 0, 0, 0].repeat(256));
    for (kind, expected) in [(BitProduct::And, 32), (BitProduct::Xor, 96)] {
        bits.bits = kind;
        let mut d = vec![0; 64];
        multiply(&bits, &a, &b, &mut d);
        assert_eq!(d[63], expected, "{kind:?}");
    }
}

#[test]
fn halves_of_old_programs_are_added_one_after_another() {
    let product = product("m8n8k4", Element::F16, Element::F32);
    let a = [0x6800_u64, 0x6800, 0x6800, 0x3c00].repeat(8);
    let b = [0x6800_u64, 0x6800, 0xe800, 0x3c00].repeat(8);
    let mut d = vec![0.375_f32.to_bits().into(); 64];
    multiply(&product, &a, &b, &mut d);
    // A tensor core cuts off what is behind the last place.
    assert_eq!(f32::from_bits(d[0] as u32), 4_194_305.5);
}

#[test]
fn products_of_tf32_of_wmma_are_two_sums() {
    let [one, large] = [1_f32, 33_554_432.0].map(|number| u64::from(number.to_bits()));
    let minus = one | 0x8000_0000;
    let of = |name: &str, wmma: bool, columns: usize| {
        let mut product = product(name, Element::Tf32, Element::F32);
        product.a.wmma = wmma;
        let a = [large, one, 0, 0, large, 0, 0, 0].repeat(16);
        let b = [one, one, 0, 0, minus, 0, 0, 0].repeat(columns);
        let mut d = vec![0; 16 * columns];
        multiply(&product, &a, &b, &mut d);
        f32::from_bits(d[0] as u32)
    };
    // The sum of the first half has no place for the one.
    assert_eq!(
        [of("m16n16k8", true, 16), of("m16n8k8", false, 8)],
        [0.0, 1.0]
    );
}

#[test]
fn numbers_of_64_bits_are_added_one_after_another() {
    let product = product("m8n8k4", Element::F64, Element::F64);
    let a: Vec<_> = [1.0, 1e16, -1e16, 1.0]
        .repeat(8)
        .into_iter()
        .map(f64::to_bits)
        .collect();
    let b = vec![1_f64.to_bits(); 32];
    let mut d = vec![0; 64];
    multiply(&product, &a, &b, &mut d);
    assert_eq!(f64::from_bits(d[0]), 1.0);
}
