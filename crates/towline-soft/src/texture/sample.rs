//! How textures are read at coordinates: edges, filters, levels, layers, cubes.
//!
//! Weights have eight bits behind the point, as the Programming Guide says of devices; sums are made in double precision and rounded
//! once. Coordinates are rounded to the nearest 256th of a texel before a filter takes its weights from them.

use std::sync::atomic::Ordering;

use towline_ptx::ir::texture::{Detail, Geometry, TextureOp};
use towline_ptx::ptx::Type;

use super::format::{from_srgb, half};
use super::{Edge, Level, Parts, Sampler, Shape, Texture, Unit};
use crate::exec::access::refused;
use crate::fault::FaultKind;

/// Parts of a texel that weights tell.
const WEIGHTS: f64 = 256.0;
/// No coordinate lies further away, so that sums of them do not overflow.
const FURTHEST: f64 = (1_u64 << 40) as f64;

/// The channels of a texel.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Texel {
    Numbers([f64; 4]),
    Words([u32; 4]),
}

/// A place in a level: texels along each side, and the slice of a layer or a face.
#[derive(Debug, Clone, Copy)]
struct Spot {
    /// Sides beside a layer or face.
    sides: usize,
    at: [f64; 3],
    slice: Option<u32>,
    /// The first slice of the cube that the slice is a face of.
    cube: Option<u32>,
    offset: [i64; 3],
}

/// A number of 32 bits as a coordinate of a place.
fn float(word: u64) -> f32 {
    f32::from_bits(word as u32)
}

/// The face that a direction goes through, and where on it from 0 to 1. Between faces the last side's counts, as on an H100.
fn face([x, y, z]: [f64; 3]) -> (u32, [f64; 2]) {
    let [wide, high, deep] = [x, y, z].map(f64::abs);
    let (face, m, s, t) = if deep >= high && deep >= wide {
        match z >= 0.0 {
            true => (4, deep, x, -y),
            false => (5, deep, -x, -y),
        }
    } else if high >= wide {
        match y >= 0.0 {
            true => (2, high, x, z),
            false => (3, high, x, -z),
        }
    } else {
        match x >= 0.0 {
            true => (0, wide, -z, -y),
            false => (1, wide, z, -y),
        }
    };
    let on = |side: f64| match m > 0.0 {
        true => (side / m + 1.0) / 2.0,
        false => 0.5,
    };
    (face, [on(s), on(t)])
}

/// The direction of a place on a face, whose sides go from -1 to 1.
fn direction(face: u32, [s, t]: [f64; 2]) -> [f64; 3] {
    match face {
        0 => [1.0, -t, -s],
        1 => [-1.0, -t, s],
        2 => [s, 1.0, t],
        3 => [s, -1.0, -t],
        4 => [s, -t, 1.0],
        _ => [-s, -t, -1.0],
    }
}

/// The texel of a number along a side, `None` beyond the border.
fn resolve(edge: Edge, at: i64, count: u32) -> Option<u32> {
    let count = i64::from(count);
    let at = match edge {
        Edge::Clamp => at.clamp(0, count - 1),
        Edge::Wrap => at.rem_euclid(count),
        Edge::Mirror => {
            let at = at.rem_euclid(2 * count);
            at.min(2 * count - 1 - at)
        }
        Edge::Border if (0..count).contains(&at) => at,
        Edge::Border => return None,
    };
    Some(at as u32)
}

/// The two texels around a place along a side: the first, and the second's weight.
fn around(at: f64) -> (i64, f64) {
    let parts = ((at - 0.5) * WEIGHTS + 0.5).floor();
    let first = (parts / WEIGHTS).floor();
    (first as i64, (parts - first * WEIGHTS) / WEIGHTS)
}

impl Texture {
    fn gives_numbers(&self) -> bool {
        let wide = self.format.bytes == 4;
        self.format.has_fractions() || !self.as_integers && !wide
    }

    /// A texel from its bits. Channels that the format lacks are 0, and 1 for the last.
    fn texel(&self, raw: [u32; 4]) -> Texel {
        let has = |channel: usize| channel < usize::from(self.format.channels);
        match self.gives_numbers() {
            true => Texel::Numbers(std::array::from_fn(|channel| {
                match (has(channel), channel) {
                    (false, 3) => 1.0,
                    (false, _) => 0.0,
                    (true, 0..3) if self.srgb => from_srgb(self.format.number(raw[channel])),
                    (true, _) => self.format.number(raw[channel]),
                }
            })),
            false => Texel::Words(std::array::from_fn(|channel| {
                match (has(channel), channel) {
                    (false, 3) => 1,
                    (false, _) => 0,
                    (true, _) => self.format.word(raw[channel]),
                }
            })),
        }
    }

    /// The colour beyond the border, in the channels that the format has.
    fn border(&self, sampler: &Sampler) -> Texel {
        let channels = usize::from(self.format.channels);
        let mut border = [0.0, 0.0, 0.0, 1.0];
        border[..channels].copy_from_slice(&sampler.border[..channels]);
        match self.gives_numbers() {
            true => Texel::Numbers(border.map(f64::from)),
            false => Texel::Words(border.map(f32::to_bits)),
        }
    }

    fn nothing(&self) -> Texel {
        match self.gives_numbers() {
            true => Texel::Numbers([0.0; 4]),
            false => Texel::Words([0; 4]),
        }
    }

    /// The slice that a layer, or the first face of a layer's cube, is.
    fn layer(&self, geometry: Geometry, number: u64) -> u32 {
        let slices = self.levels.first().map_or(1, |level| level.sides[2]);
        let of_cubes = geometry == Geometry::Cubes;
        let layers = if of_cubes { slices / 6 } else { slices };
        let layer = (number as u32).min(layers.max(1) - 1);
        if of_cubes { layer * 6 } else { layer }
    }
}

/// A texel as an instruction gives it.
fn given(texel: Texel, ty: Type) -> Parts {
    let halves = |texel: Texel| match texel {
        Texel::Numbers(numbers) => numbers.map(|number| half(number as f32)),
        Texel::Words(words) => words.map(|word| u64::from(word & 0xffff)),
    };
    match ty {
        Type::F16 => halves(texel),
        Type::F16x2 => {
            let [a, b, c, d] = halves(texel);
            [a | b << 16, c | d << 16, 0, 0]
        }
        _ => match texel {
            Texel::Numbers(numbers) => numbers.map(|number| (number as f32).to_bits().into()),
            Texel::Words(words) => words.map(u64::from),
        },
    }
}

/// `(1 - part) a + part b`
fn blend(a: Texel, b: Texel, part: f64) -> Texel {
    match (a, b) {
        (Texel::Numbers(a), Texel::Numbers(b)) => Texel::Numbers(std::array::from_fn(|channel| {
            (1.0 - part) * a[channel] + part * b[channel]
        })),
        (a, _) => a,
    }
}

impl Unit<'_> {
    pub(super) fn sample(
        &mut self,
        op: &TextureOp,
        texture: &Texture,
        sampler: &Sampler,
        inputs: &[u64],
    ) -> Result<Parts, FaultKind> {
        match *op {
            TextureOp::Sample {
                geometry,
                detail,
                floats,
                ty,
                offset,
            } => {
                let coordinates = geometry.coordinates();
                let sides = geometry.sides();
                let behind = inputs.get(coordinates..).unwrap_or_default();
                let offset = offsets(offset, sides, inputs);
                let texel = match floats {
                    true => {
                        let place = (geometry, inputs, offset);
                        self.filtered(texture, sampler, place, detail, behind)?
                    }
                    false => {
                        let level = match detail {
                            Detail::Level => behind.first().map_or(0, |level| *level as i32),
                            _ => 0,
                        };
                        self.fetched(texture, geometry, inputs, level, offset)?
                    }
                };
                Ok(given(texel, ty))
            }
            TextureOp::Gather {
                geometry,
                component,
                ty,
                offset,
            } => {
                let offset = offsets(offset, 2, inputs);
                let Some(level) = texture.levels.first() else {
                    return Ok([0; 4]);
                };
                let spot = spot(texture, sampler, level, geometry, inputs, offset);
                let (x, _) = around(spot.at[0]);
                let (y, _) = around(spot.at[1]);
                let mut parts = [0; 4];
                // Against the clock, from the lower left on.
                let corners = [(0, 1), (1, 1), (1, 0), (0, 0)];
                for (part, (right, down)) in parts.iter_mut().zip(corners) {
                    let at = [x + right, y + down, 0];
                    let texel = self.texel(texture, sampler, level, &spot, at)?;
                    *part = match texel {
                        Texel::Numbers(numbers) => (numbers[usize::from(component) & 3] as f32)
                            .to_bits()
                            .into(),
                        Texel::Words(words) => words[usize::from(component) & 3].into(),
                    };
                }
                let texel = match texture.gives_numbers() {
                    true => Texel::Numbers(parts.map(|part| float(part).into())),
                    false => Texel::Words(parts.map(|part| part as u32)),
                };
                Ok(given(texel, ty))
            }
            _ => Ok([0; 4]),
        }
    }

    /// The texel at whole numbers: nothing beyond the edges, and no filter.
    fn fetched(
        &mut self,
        texture: &Texture,
        geometry: Geometry,
        inputs: &[u64],
        level: i32,
        offset: [i64; 3],
    ) -> Result<Texel, FaultKind> {
        let number = usize::try_from(level).ok();
        let Some(level) = number.and_then(|number| texture.levels.get(number)) else {
            return Ok(texture.nothing());
        };
        let layered = usize::from(geometry.is_layered());
        let mut at = [0; 3];
        let given = inputs.iter().skip(layered).take(geometry.sides());
        for ((place, one), offset) in at.iter_mut().zip(given).zip(offset) {
            *place = i64::from(*one as i32) + offset;
        }
        if layered == 1 {
            at[2] = texture
                .layer(geometry, inputs.first().copied().unwrap_or(0))
                .into();
        }
        let inside = at
            .iter()
            .zip(level.sides)
            .all(|(one, side)| (0..i64::from(side)).contains(one));
        match inside {
            true => self.raw(texture, level, at.map(|one| one as u32)),
            false => Ok(texture.nothing()),
        }
    }

    /// The number of the level that a place is read at.
    fn filtered(
        &mut self,
        texture: &Texture,
        sampler: &Sampler,
        place: (Geometry, &[u64], [i64; 3]),
        detail: Detail,
        behind: &[u64],
    ) -> Result<Texel, FaultKind> {
        let (geometry, inputs, _) = place;
        let last = texture.levels.len().saturating_sub(1) as f32;
        let held = |level: f32| {
            // NaN stands for the first level.
            let [least, most] = sampler.levels;
            let level = if level.is_nan() { 0.0 } else { level };
            level.min(most).max(least).min(last).max(0.0)
        };
        match detail {
            Detail::Base => self.at_level(texture, sampler, place, held(0.0)),
            Detail::Level => {
                let level = behind.first().map_or(0.0, |level| float(*level));
                self.at_level(texture, sampler, place, held(level + sampler.bias))
            }
            Detail::Gradient => {
                let (lengths, along) = spread(texture, sampler, geometry, inputs, behind);
                let [most, least] = lengths;
                let probes = match least > 0.0 {
                    true => (most / least).ceil(),
                    false => f64::from(sampler.anisotropy),
                };
                let probes = probes.clamp(1.0, f64::from(sampler.anisotropy.clamp(1, 16)));
                let level = (most / probes).log2() as f32;
                let level = held(level + sampler.bias);
                let count = probes as u32;
                if count == 1 {
                    return self.at_level(texture, sampler, place, level);
                }
                let mut sum = [0.0; 4];
                for probe in 1..=count {
                    let part = f64::from(probe) / (probes + 1.0) - 0.5;
                    let mut moved = inputs.to_vec();
                    let first = usize::from(geometry.is_layered());
                    for (one, by) in moved.iter_mut().skip(first).zip(along) {
                        let at = f64::from(float(*one)) + part * by;
                        *one = (at as f32).to_bits().into();
                    }
                    let place = (geometry, &moved[..], place.2);
                    match self.at_level(texture, sampler, place, level)? {
                        Texel::Numbers(numbers) => {
                            for (sum, number) in sum.iter_mut().zip(numbers) {
                                *sum += number / probes;
                            }
                        }
                        words => return Ok(words),
                    }
                }
                Ok(Texel::Numbers(sum))
            }
        }
    }

    /// Reads at a level, or between two.
    fn at_level(
        &mut self,
        texture: &Texture,
        sampler: &Sampler,
        place: (Geometry, &[u64], [i64; 3]),
        level: f32,
    ) -> Result<Texel, FaultKind> {
        let last = texture.levels.len().saturating_sub(1);
        if !sampler.blends || !texture.gives_numbers() {
            let nearest = (level + 0.5).floor() as usize;
            return self.within(texture, sampler, place, nearest.min(last));
        }
        let parts = (f64::from(level) * WEIGHTS).round();
        let first = (parts / WEIGHTS).floor();
        let part = parts / WEIGHTS - first;
        let number = (first as usize).min(last);
        let lower = self.within(texture, sampler, place, number)?;
        if part == 0.0 || number == last {
            return Ok(lower);
        }
        let upper = self.within(texture, sampler, place, number + 1)?;
        Ok(blend(lower, upper, part))
    }

    /// Reads within a level.
    fn within(
        &mut self,
        texture: &Texture,
        sampler: &Sampler,
        (geometry, inputs, offset): (Geometry, &[u64], [i64; 3]),
        number: usize,
    ) -> Result<Texel, FaultKind> {
        let Some(level) = texture.levels.get(number) else {
            return Ok(texture.nothing());
        };
        let spot = spot(texture, sampler, level, geometry, inputs, offset);
        let filters = sampler.linear && texture.gives_numbers() && texture.shape != Shape::Memory;
        if !filters {
            let at = spot.at.map(|one| one.floor() as i64);
            return self.texel(texture, sampler, level, &spot, at);
        }
        let mut places = [(0_i64, 0.0_f64); 3];
        for (place, at) in places.iter_mut().zip(spot.at).take(spot.sides) {
            *place = around(at);
        }
        let mut sum = [0.0; 4];
        for corner in 0..1_u32 << spot.sides {
            let (mut at, mut weight) = ([0; 3], 1.0);
            for (side, (first, part)) in places.iter().enumerate().take(spot.sides) {
                let further = corner >> side & 1;
                at[side] = first + i64::from(further);
                weight *= if further == 1 { *part } else { 1.0 - part };
            }
            if weight == 0.0 {
                continue;
            }
            if let Texel::Numbers(numbers) = self.texel(texture, sampler, level, &spot, at)? {
                for (sum, number) in sum.iter_mut().zip(numbers) {
                    *sum += weight * number;
                }
            }
        }
        Ok(Texel::Numbers(sum))
    }

    /// The texel of these numbers, which may lie beyond the edges.
    fn texel(
        &mut self,
        texture: &Texture,
        sampler: &Sampler,
        level: &Level,
        spot: &Spot,
        at: [i64; 3],
    ) -> Result<Texel, FaultKind> {
        let mut at = at;
        for (one, offset) in at.iter_mut().zip(spot.offset) {
            *one += offset;
        }
        if texture.shape == Shape::Memory {
            let inside = (0..i64::from(level.sides[0])).contains(&at[0]);
            return match inside {
                true => self.raw(texture, level, [at[0] as u32, 0, 0]),
                false => Ok(texture.nothing()),
            };
        }
        if let (Some(first), Some(slice)) = (spot.cube, spot.slice)
            && sampler.seamless
        {
            return self.across_faces(texture, level, (first, slice - first), [at[0], at[1]]);
        }
        let mut found = [0; 3];
        for side in 0..spot.sides {
            let edge = match (spot.cube, sampler.edges[side]) {
                (Some(_), _) => Edge::Clamp,
                // These ask for normalized coordinates.
                (None, Edge::Wrap | Edge::Mirror) if !sampler.normalized => Edge::Clamp,
                (None, edge) => edge,
            };
            match resolve(edge, at[side], level.sides[side]) {
                Some(at) => found[side] = at,
                None => return Ok(texture.border(sampler)),
            }
        }
        if let Some(slice) = spot.slice {
            found[2] = slice;
        }
        self.raw(texture, level, found)
    }

    /// The texel of a face, or of the one beside it; at a corner of the cube, where there is none, the mean of the three there.
    fn across_faces(
        &mut self,
        texture: &Texture,
        level: &Level,
        (first, own): (u32, u32),
        at: [i64; 2],
    ) -> Result<Texel, FaultKind> {
        let count = i64::from(level.sides[0]);
        let is_out = |one: i64| !(0..count).contains(&one);
        let inside = at.map(|one| one.clamp(0, count - 1));
        match at.map(is_out) {
            [false, false] => {
                let [x, y] = at.map(|one| one as u32);
                self.raw(texture, level, [x, y, first + own])
            }
            [true, true] => {
                let mut sum = [0.0; 4];
                let beside = [inside, [at[0], inside[1]], [inside[0], at[1]]];
                for at in beside {
                    match self.across_faces(texture, level, (first, own), at)? {
                        Texel::Numbers(numbers) => {
                            for (sum, number) in sum.iter_mut().zip(numbers) {
                                *sum += number / 3.0;
                            }
                        }
                        words => return Ok(words),
                    }
                }
                Ok(Texel::Numbers(sum))
            }
            _ => {
                // One step beyond the edge is as far as filters go.
                let on = at.map(|one| (2 * one.clamp(-1, count) + 1) as f64 / count as f64 - 1.0);
                let (other, on) = face(direction(own, on));
                let [x, y] = on.map(|one| {
                    let at = (one * count as f64).floor() as i64;
                    at.clamp(0, count - 1) as u32
                });
                self.raw(texture, level, [x, y, first + other])
            }
        }
    }

    /// The texel of these numbers.
    fn raw(
        &mut self,
        texture: &Texture,
        level: &Level,
        [x, y, z]: [u32; 3],
    ) -> Result<Texel, FaultKind> {
        let format = texture.format;
        let (element, width) = (format.element(), u64::from(format.bytes));
        let row = level.address + u64::from(z) * level.slice + u64::from(y) * level.pitch;
        let at = row + u64::from(x) * element;
        let span = self.span(at, element, false)?;
        let mut raw = [0; 4];
        for (channel, place) in (0..u64::from(format.channels)).zip(&mut raw) {
            let at = at + channel * width;
            let value = span.load(at, width, Ordering::Relaxed);
            *place = value.map_err(|why| refused(why, at, width, false))? as u32;
        }
        Ok(texture.texel(raw))
    }
}

/// Offsets, which are the last inputs.
fn offsets(given: bool, sides: usize, inputs: &[u64]) -> [i64; 3] {
    let mut offset = [0; 3];
    if given {
        let start = inputs.len().saturating_sub(sides);
        let last = inputs.iter().skip(start);
        for (place, one) in offset.iter_mut().zip(last) {
            // Four bits, and their sign.
            *place = i64::from(((*one as i32) << 28) >> 28);
        }
    }
    offset
}

/// The place of an access in a level.
fn spot(
    texture: &Texture,
    sampler: &Sampler,
    level: &Level,
    geometry: Geometry,
    inputs: &[u64],
    offset: [i64; 3],
) -> Spot {
    let held = |at: f64| match at.is_nan() {
        true => 0.0,
        false => at.clamp(-FURTHEST, FURTHEST),
    };
    let layered = usize::from(geometry.is_layered());
    let mut given = [0.0; 3];
    let words = inputs.iter().skip(layered).take(geometry.sides());
    for (place, word) in given.iter_mut().zip(words) {
        *place = held(float(*word).into());
    }
    let layer = (layered == 1).then(|| {
        let number = inputs.first().copied().unwrap_or(0);
        texture.layer(geometry, number)
    });
    if matches!(geometry, Geometry::Cube | Geometry::Cubes) {
        let (face, on) = face(given);
        let first = layer.unwrap_or(0);
        let [s, t] = on;
        let side = f64::from(level.sides[0]);
        return Spot {
            sides: 2,
            at: [s * side, t * side, 0.0],
            slice: Some((first + face).min(level.sides[2].max(1) - 1)),
            cube: Some(first),
            offset,
        };
    }
    let sides = geometry.sides();
    let mut at = given;
    if sampler.normalized && texture.shape != Shape::Memory {
        let each = at.iter_mut().zip(level.sides).zip(sampler.edges);
        for ((one, side), edge) in each.take(sides) {
            if edge == Edge::Mirror {
                // Before weights are taken from it, so that these are mirrored, too.
                let whole = one.floor();
                let part = *one - whole;
                *one = match whole % 2.0 == 0.0 {
                    true => part,
                    false if sampler.linear => 1.0 - part,
                    // The end of a texel that is turned around is the next one's beginning.
                    false => (1.0 - part).next_down(),
                };
            }
            *one *= f64::from(side);
        }
    }
    Spot {
        sides,
        at,
        slice: layer,
        cube: None,
        offset,
    }
}

/// How far apart places of neighbours are, in texels of the first level: the greater and the lesser length, and the greater's direction in
/// coordinates.
fn spread(
    texture: &Texture,
    sampler: &Sampler,
    geometry: Geometry,
    inputs: &[u64],
    behind: &[u64],
) -> ([f64; 2], [f64; 3]) {
    let sides = geometry.sides();
    let scale = texture.levels.first().map_or([1; 3], |level| level.sides);
    let is_cube = matches!(geometry, Geometry::Cube | Geometry::Cubes);
    let gradient = |number: usize| -> [f64; 3] {
        let mut found = [0.0; 3];
        let given = behind.iter().skip(number * sides).take(sides);
        for (place, word) in found.iter_mut().zip(given) {
            *place = float(*word).into();
        }
        found
    };
    let both = [gradient(0), gradient(1)];
    let length = |by: [f64; 3]| -> f64 {
        if is_cube {
            // On the face that the direction goes through.
            let first = usize::from(geometry.is_layered());
            let mut at = [0.0; 3];
            for (place, word) in at.iter_mut().zip(inputs.iter().skip(first)) {
                *place = float(*word).into();
            }
            let most = at
                .iter()
                .fold(0.0_f64, |most, one: &f64| most.max(one.abs()));
            let (own, [s, t]) = face(at);
            let moved: [f64; 3] = std::array::from_fn(|side| at[side] + by[side] * 1e-3);
            let (_, [u, v]) = match face(moved) {
                (other, on) if other == own => (other, on),
                // Close to an edge the direction's length will do.
                _ => {
                    let sum = by.iter().map(|one| one * one).sum::<f64>().sqrt();
                    return sum / most.max(f64::MIN_POSITIVE) / 2.0 * f64::from(scale[0]);
                }
            };
            return (u - s).hypot(v - t) * 1e3 * f64::from(scale[0]);
        }
        let parts = by.iter().zip(scale).take(sides).map(|(one, side)| {
            let one = match sampler.normalized {
                true => one * f64::from(side),
                false => *one,
            };
            one * one
        });
        parts.sum::<f64>().sqrt()
    };
    let [x, y] = both.map(length);
    match x >= y {
        true => ([x, y], both[0]),
        false => ([y, x], both[1]),
    }
}
