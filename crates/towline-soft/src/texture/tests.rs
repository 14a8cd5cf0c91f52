//! Textures against the formulas of the Programming Guide, written down straight.

use std::sync::Arc;

use towline_ptx::ir::op::{Reg, Source};
use towline_ptx::ir::texture::{Detail, Geometry};
use towline_ptx::ptx::Type;

use super::format::Kind;
use super::*;
use crate::memory::Purpose;

/// Numbers that look random.
pub(crate) struct Noise(pub(crate) u64);

impl Noise {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) ^ self.0 >> 50
    }

    /// Between two bounds.
    pub(crate) fn within(&mut self, least: f32, most: f32) -> f32 {
        let part = (self.next() % (1 << 22)) as f32 / (1 << 22) as f32;
        least + (most - least) * part
    }
}

/// Texels along a side for a coordinate, and their weights.
fn taps(edge: Edge, normalized: bool, linear: bool, x: f32, n: i64) -> Vec<(Option<i64>, f64)> {
    let x = f64::from(x);
    let edge = match edge {
        Edge::Wrap | Edge::Mirror if !normalized => Edge::Clamp,
        edge => edge,
    };
    let scaled = match (normalized, edge) {
        (false, _) => x,
        (true, Edge::Wrap) => (x - x.floor()) * n as f64,
        (true, Edge::Mirror) => {
            let odd = x.floor() as i64 % 2 != 0;
            let part = x - x.floor();
            (if odd { 1.0 - part } else { part }) * n as f64
        }
        (true, _) => x * n as f64,
    };
    let inside = |i: i64| match edge {
        Edge::Border => (0..n).contains(&i).then_some(i),
        Edge::Wrap => Some((i + n) % n),
        _ => Some(i.clamp(0, n - 1)),
    };
    if !linear {
        return vec![(inside(scaled.floor() as i64), 1.0)];
    }
    let (i, part) = {
        let x = scaled - 0.5;
        (x.floor() as i64, x - x.floor())
    };
    let part = (part * 256.0).round() / 256.0;
    vec![(inside(i), 1.0 - part), (inside(i + 1), part)]
}

/// A texture read by the book. `texel` gives channels at whole numbers.
pub(crate) fn by_the_book(
    sampler: &Sampler,
    sides: &[u32],
    at: &[f32],
    texel: &dyn Fn([i64; 3]) -> [f64; 4],
) -> [f64; 4] {
    let mut sum = [0.0; 4];
    let all: Vec<_> = sides
        .iter()
        .zip(at)
        .zip(sampler.edges)
        .map(|((side, x), edge)| taps(edge, sampler.normalized, sampler.linear, *x, (*side).into()))
        .collect();
    let one = vec![(Some(0), 1.0)];
    let side = |number: usize| all.get(number).unwrap_or(&one);
    for (x, a) in side(0) {
        for (y, b) in side(1) {
            for (z, c) in side(2) {
                let found = match (x, y, z) {
                    (Some(x), Some(y), Some(z)) => texel([*x, *y, *z]),
                    _ => sampler.border.map(f64::from),
                };
                for (sum, one) in sum.iter_mut().zip(found) {
                    *sum += a * b * c * one;
                }
            }
        }
    }
    sum
}

fn sample(geometry: Geometry, detail: Detail, inputs: usize) -> Access {
    Access {
        op: TextureOp::Sample {
            geometry,
            detail,
            floats: true,
            ty: Type::F32,
            offset: false,
        },
        d: (0..4).map(|number| Some(Reg(number))).collect(),
        p: None,
        handle: Source::Constant(0),
        sampler: None,
        inputs: (0..inputs as u32).map(Source::Constant).collect(),
    }
}

/// A texture of one level, and its contents.
fn of_noise(arena: &Arena, shape: Shape, sides: [u32; 3], format: Format) -> (Texture, Vec<u8>) {
    let pitch = u64::from(sides[0]) * format.element();
    let slice = pitch * u64::from(sides[1]);
    let len = slice * u64::from(sides[2]);
    let address = arena.allocate(len, 0, Purpose::Array).expect("room");
    let mut noise = Noise(len);
    let bytes: Vec<u8> = match (format.kind, format.bytes) {
        (Kind::Float, 4) => (0..len / 4)
            .flat_map(|_| noise.within(-2.0, 2.0).to_le_bytes())
            .collect(),
        _ => (0..len).map(|_| noise.next() as u8).collect(),
    };
    assert!(
        arena
            .range(address, len)
            .expect("it")
            .write(address, &bytes)
    );
    let level = Level {
        address,
        sides,
        pitch,
        slice,
    };
    let texture = Texture {
        levels: vec![level],
        shape,
        format,
        as_integers: false,
        srgb: false,
        sampler: Sampler::default(),
    };
    (texture, bytes)
}

fn numbers(parts: Parts) -> [f32; 4] {
    parts.map(|part| f32::from_bits(part as u32))
}

fn close(one: f32, other: f64) -> bool {
    (f64::from(one) - other).abs() <= 1e-5 * other.abs().max(1.0)
}

const FLOATS: Format = Format {
    channels: 2,
    bytes: 4,
    kind: Kind::Float,
};

#[test]
fn filters_and_edges_follow_the_formulas() {
    let arena = Arena::reserve(1 << 20).expect("memory");
    let cases = [
        (Geometry::Line, Shape::Sides(1), [13, 1, 1]),
        (Geometry::Plane, Shape::Sides(2), [13, 7, 1]),
        (Geometry::Volume, Shape::Sides(3), [9, 7, 5]),
        (Geometry::Lines, Shape::Layers(1), [13, 1, 4]),
        (Geometry::Planes, Shape::Layers(2), [13, 7, 4]),
    ];
    let edges = [Edge::Wrap, Edge::Clamp, Edge::Mirror, Edge::Border];
    for (geometry, shape, sides) in cases {
        let (texture, bytes) = of_noise(&arena, shape, sides, FLOATS);
        let value = |at: [i64; 3], channel: usize| {
            let [w, h, _] = sides.map(i64::from);
            let place = ((at[2] * h + at[1]) * w + at[0]) as usize * 8 + channel * 4;
            let bytes = bytes[place..place + 4].try_into().expect("four bytes");
            f64::from(f32::from_le_bytes(bytes))
        };
        let mut noise = Noise(9);
        for number in 0..128 {
            let pick = |shift: u32| edges[(number >> shift) % 4];
            let sampler = Sampler {
                edges: [pick(0), pick(2), pick(1)],
                linear: number & 16 != 0,
                normalized: number & 32 != 0,
                border: [3.0, -5.0, 7.0, 9.0],
                ..Sampler::default()
            };
            let used = geometry.sides();
            let mut inputs = Vec::new();
            let layer = noise.next() % 6;
            if geometry.is_layered() {
                inputs.push(layer);
            }
            let layer = (layer as i64).min(i64::from(sides[2]) - 1);
            let at: Vec<f32> = (0..used)
                .map(|side| match sampler.normalized {
                    true => noise.within(-2.3, 3.3),
                    false => noise.within(-4.0, sides[side] as f32 + 4.0),
                })
                .collect();
            inputs.extend(at.iter().map(|one| u64::from(one.to_bits())));
            let bindings = Arc::new(Bindings::default());
            bindings.insert(
                1,
                Object::Texture(Texture {
                    sampler: sampler.clone(),
                    ..texture.clone()
                }),
            );
            let seen = Seen::new(&bindings);
            let mut unit = Unit::new(&arena, &seen);
            let access = sample(geometry, Detail::Base, inputs.len());
            let found = unit.access(&access, 1, None, &inputs).expect("a texel");
            let texel = |at: [i64; 3]| {
                let at = match geometry.is_layered() {
                    true => [at[0], at[1], layer],
                    false => at,
                };
                [value(at, 0), value(at, 1), 0.0, 1.0]
            };
            // A border has the channels of the format.
            let book = Sampler {
                border: [3.0, -5.0, 0.0, 1.0],
                ..sampler.clone()
            };
            let expected = by_the_book(&book, &sides[..used], &at, &texel);
            let found = numbers(found);
            let same = found.iter().zip(expected).all(|(a, b)| close(*a, b));
            assert!(
                same,
                "{geometry:?} {at:?} {sampler:?}: {found:?}, not {expected:?}"
            );
        }
    }
}

/// The face and place of a direction, by the guide's table.
fn table([x, y, z]: [f32; 3]) -> (u32, f32, f32) {
    let (ax, ay, az) = (x.abs(), y.abs(), z.abs());
    let (face, m, s, t) = if ax >= ay && ax >= az {
        if x >= 0.0 {
            (0, x, -z, -y)
        } else {
            (1, -x, z, -y)
        }
    } else if ay >= az {
        if y >= 0.0 {
            (2, y, x, z)
        } else {
            (3, -y, x, -z)
        }
    } else if z >= 0.0 {
        (4, z, x, -y)
    } else {
        (5, -z, -x, -y)
    };
    (face, (s / m + 1.0) / 2.0, (t / m + 1.0) / 2.0)
}

#[test]
fn cubes_are_read_on_the_face_of_the_table() {
    let arena = Arena::reserve(1 << 20).expect("memory");
    let side = 8;
    let (texture, bytes) = of_noise(&arena, Shape::Cube, [side, side, 12], FLOATS);
    let mut noise = Noise(4);
    for number in 0..400 {
        let linear = number % 2 == 1;
        let sampler = Sampler {
            linear,
            normalized: true,
            ..Sampler::default()
        };
        let bindings = Arc::new(Bindings::default());
        let texture = Texture {
            sampler: sampler.clone(),
            ..texture.clone()
        };
        bindings.insert(1, Object::Texture(texture));
        let seen = Seen::new(&bindings);
        let mut unit = Unit::new(&arena, &seen);
        let way = [0; 3].map(|_| noise.within(-1.0, 1.0));
        let (face, s, t) = table(way);
        let cube = noise.next() % 3;
        let words = way.map(|one| u64::from(one.to_bits()));
        let inputs = [&[cube][..], &words].concat();
        let access = sample(Geometry::Cubes, Detail::Base, 4);
        let found = numbers(unit.access(&access, 1, None, &inputs).expect("a texel"));
        let slice = cube.min(1) as i64 * 6 + i64::from(face);
        let texel = |at: [i64; 3]| {
            let place = ((slice * 8 + at[1]) * 8 + at[0]) as usize * 8;
            let value = |at: usize| {
                f64::from(f32::from_le_bytes(
                    bytes[at..at + 4].try_into().expect("four"),
                ))
            };
            [value(place), value(place + 4), 0.0, 1.0]
        };
        let expected = by_the_book(&sampler, &[side, side], &[s, t], &texel);
        let close = |a: f32, b: f64| (f64::from(a) - b).abs() < 0.02;
        let same = found.iter().zip(expected).all(|(a, b)| close(*a, b));
        assert!(same, "{way:?} {face} {s} {t}: {found:?}, not {expected:?}");
    }
}

#[test]
fn seamless_cubes_blend_over_edges_and_corners() {
    let arena = Arena::reserve(1 << 20).expect("memory");
    let format = Format {
        channels: 1,
        ..FLOATS
    };
    let (mut texture, _) = of_noise(&arena, Shape::Cube, [4, 4, 6], format);
    // Every face has its number all over.
    for face in 0..6_u64 {
        let level = texture.levels[0];
        let bytes: Vec<u8> = (0..16).flat_map(|_| (face as f32).to_le_bytes()).collect();
        let at = level.address + face * level.slice;
        assert!(arena.range(at, 64).expect("it").write(at, &bytes));
    }
    texture.sampler = Sampler {
        linear: true,
        normalized: true,
        seamless: true,
        ..Sampler::default()
    };
    let bindings = Arc::new(Bindings::default());
    bindings.insert(1, Object::Texture(texture));
    let seen = Seen::new(&bindings);
    let mut unit = Unit::new(&arena, &seen);
    let mut read = |way: [f32; 3]| {
        let inputs = way.map(|one| u64::from(one.to_bits()));
        let access = sample(Geometry::Cube, Detail::Base, 3);
        numbers(unit.access(&access, 1, None, &inputs).expect("a texel"))[0]
    };
    assert_eq!(read([1.0, 0.1, 0.2]), 0.0);
    assert_eq!(read([0.2, 0.1, -1.0]), 5.0);
    // Half of +x and half of +y; half of -z and half of -x.
    assert_eq!(read([1.0, 1.0, 0.3]), 1.0);
    assert_eq!(read([-1.0, 0.3, -1.0]), 3.0);
    let corner = read([1.0, 1.0, 1.0]);
    assert!(
        (corner - 2.0).abs() < 1e-5,
        "{corner}: the mean of 0, 2 and 4"
    );
}

#[test]
fn levels_are_chosen_held_and_blended() {
    let arena = Arena::reserve(1 << 20).expect("memory");
    let format = Format {
        channels: 1,
        ..FLOATS
    };
    let levels: Vec<Level> = (0..4)
        .map(|number| {
            let side = 16 >> number;
            let (one, _) = of_noise(&arena, Shape::Sides(2), [side, side, 1], format);
            let level = one.levels[0];
            let bytes: Vec<u8> = (0..side * side)
                .flat_map(|_| (number as f32 * 10.0).to_le_bytes())
                .collect();
            let span = arena.range(level.address, bytes.len() as u64);
            assert!(span.expect("it").write(level.address, &bytes));
            level
        })
        .collect();
    let sampler = |blends, bias, bounds, anisotropy| Sampler {
        linear: true,
        normalized: true,
        blends,
        bias,
        anisotropy,
        levels: bounds,
        ..Sampler::default()
    };
    let read = |sampler: Sampler, detail, words: &[f32]| {
        let texture = Texture {
            levels: levels.clone(),
            shape: Shape::Sides(2),
            format,
            as_integers: false,
            srgb: false,
            sampler,
        };
        let bindings = Arc::new(Bindings::default());
        bindings.insert(1, Object::Texture(texture));
        let seen = Seen::new(&bindings);
        let mut unit = Unit::new(&arena, &seen);
        let inputs: Vec<u64> = words.iter().map(|one| u64::from(one.to_bits())).collect();
        let access = sample(Geometry::Plane, detail, inputs.len());
        numbers(unit.access(&access, 1, None, &inputs).expect("a texel"))[0]
    };
    let all = [0.0, 99.0];
    let level = |blends, bias, bounds, at: f32| {
        let sampler = sampler(blends, bias, bounds, 1);
        read(sampler, Detail::Level, &[0.5, 0.5, at])
    };
    assert_eq!(level(false, 0.0, all, 0.49), 0.0);
    assert_eq!(level(false, 0.0, all, 0.51), 10.0);
    assert_eq!(level(true, 0.0, all, 1.25), 12.5);
    assert_eq!(level(true, 0.5, all, 1.25), 17.5);
    assert_eq!(level(true, 0.0, all, 77.0), 30.0);
    assert_eq!(level(true, 0.0, all, -3.0), 0.0);
    assert_eq!(level(true, 0.0, [0.5, 1.5], 0.0), 5.0);
    assert_eq!(level(true, 0.0, [0.5, 1.5], 3.0), 15.0);
    let gradient = |anisotropy, steps: [f32; 4]| {
        let [a, b, c, d] = steps.map(|step| step / 16.0);
        let sampler = sampler(true, 0.0, all, anisotropy);
        read(sampler, Detail::Gradient, &[0.5, 0.5, a, b, c, d])
    };
    assert_eq!(gradient(1, [2.0, 0.0, 0.0, 1.0]), 10.0);
    assert_eq!(gradient(1, [0.0, 1.0, 4.0, 0.0]), 20.0);
    assert_eq!(gradient(1, [0.1, 0.0, 0.0, 0.1]), 0.0);
    // Two probes along the longer way.
    assert_eq!(gradient(2, [4.0, 0.0, 0.0, 2.0]), 10.0);
    let base = sampler(true, 0.0, [2.0, 9.0], 1);
    assert_eq!(read(base, Detail::Base, &[0.5, 0.5]), 20.0);
}

#[test]
fn channels_become_numbers_and_back_by_their_format() {
    let format = |kind, bytes| Format {
        channels: 1,
        bytes,
        kind,
    };
    for (kind, bytes, bits, expected) in [
        (Kind::Unsigned, 1, 255, 1.0),
        (Kind::Unsigned, 2, 0x8000, 32768.0 / 65535.0),
        (Kind::Signed, 1, 0x80, -1.0),
        (Kind::Signed, 1, 0x81, -1.0),
        (Kind::Signed, 2, 0x4000, 16384.0 / 32767.0),
        (Kind::UnsignedFraction, 1, 51, 0.2),
        (Kind::SignedFraction, 2, 0x8000, -1.0),
        (Kind::Float, 2, 0x3e00, 1.5),
        (Kind::Float, 4, 0x4020_0000, 2.5),
    ] {
        let number = format(kind, bytes).number(bits);
        assert!((number - expected).abs() < 1e-12, "{kind:?} {bits:#x}");
    }
    assert_eq!(format(Kind::Signed, 1).word(0xf0), 0xffff_fff0);
    assert_eq!(format(Kind::Unsigned, 1).word(0xf0), 0xf0);
    for (kind, bytes, word, expected) in [
        (Kind::Unsigned, 1, 300, 255),
        (Kind::Signed, 1, -200_i32 as u32, 0x80),
        (Kind::Signed, 2, -2_i32 as u32, 0xfffe),
        (Kind::UnsignedFraction, 1, 0.2_f32.to_bits(), 51),
        (Kind::UnsignedFraction, 1, f32::NAN.to_bits(), 0),
        (Kind::SignedFraction, 1, (-3.0_f32).to_bits(), 0x81),
        (Kind::Float, 2, 1.5_f32.to_bits(), 0x3e00),
        (Kind::Float, 4, 7, 7),
    ] {
        let stored = format(kind, bytes).stored(word);
        assert_eq!(stored, expected, "{kind:?} {word:#x}");
    }
}
