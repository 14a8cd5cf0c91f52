//! Loads, stores and reductions of surfaces.

use std::sync::atomic::Ordering;

use towline_ptx::ir::op::Atomic;
use towline_ptx::ir::texture::{Beyond, Geometry, TextureOp};
use towline_ptx::ptx::Type;

use super::format::{Format, Kind};
use super::{Level, Parts, Surface, Unit};
use crate::exec::access::{check_aligned, refused};
use crate::exec::integer;
use crate::exec::number::extend;
use crate::fault::FaultKind;

/// The first byte of an access; `None` if it goes nowhere.
fn place(
    level: &Level,
    element: u64,
    (geometry, beyond): (Geometry, Beyond),
    inputs: &[u64],
    // Bytes of the access, and how many bytes the first side's unit has.
    (bytes, unit): (u64, u64),
) -> Result<Option<u64>, FaultKind> {
    let mut given = inputs.iter().map(|one| i64::from(*one as i32));
    let mut next = || given.next().unwrap_or(0);
    let layer = geometry.is_layered().then(&mut next);
    let x = next();
    let y = if geometry.sides() > 1 { next() } else { 0 };
    let z = match layer {
        Some(layer) => layer,
        None if geometry.sides() > 2 => next(),
        None => 0,
    };
    let [width, height, depth] = level.sides.map(i64::from);
    let row = width * element as i64;
    let at = x * unit as i64;
    let last = [row - bytes as i64, height - 1, depth - 1];
    let mut wanted = [at, y, z];
    let outside = wanted
        .iter()
        .zip(last)
        .any(|(one, last)| *one < 0 || *one > last);
    if outside {
        match beyond {
            Beyond::Zero => return Ok(None),
            Beyond::Clamp => {
                for (one, last) in wanted.iter_mut().zip(last) {
                    *one = (*one).min(last).max(0);
                }
            }
            Beyond::Trap => {
                return Err(FaultKind::Beyond {
                    at: [x, y, z],
                    sides: [row / unit as i64, height, depth],
                });
            }
        }
    }
    let [x, y, z] = wanted.map(|one| one as u64);
    if x + bytes > row as u64 {
        // The access is wider than the surface.
        return Ok(None);
    }
    let address = level.address + z * level.slice + y * level.pitch + x;
    check_aligned(x, bytes)?;
    Ok(Some(address))
}

impl Unit<'_> {
    pub(super) fn surface(
        &mut self,
        op: &TextureOp,
        surface: &Surface,
        inputs: &[u64],
    ) -> Result<Parts, FaultKind> {
        let (level, element) = (&surface.level, surface.format.element());
        let coordinates = op.coordinates();
        let (coordinates, values) = inputs.split_at(coordinates.min(inputs.len()));
        let mut parts = [0; 4];
        match *op {
            TextureOp::Load {
                geometry,
                ty,
                count,
                beyond,
            } => {
                let width = ty.bytes();
                let bytes = width * u64::from(count);
                let rule = (geometry, beyond);
                let Some(at) = place(level, element, rule, coordinates, (bytes, 1))? else {
                    return Ok(parts);
                };
                let span = self.span(at, bytes, false)?;
                for (part, place) in (0..).zip(parts.iter_mut().take(count.into())) {
                    let at = at + part * width;
                    let value = span.load(at, width, Ordering::Relaxed);
                    *place = value.map_err(|why| refused(why, at, width, false))?;
                }
            }
            TextureOp::Store {
                geometry,
                ty,
                converts: false,
                beyond,
            } => {
                let width = ty.bytes();
                let bytes = width * values.len() as u64;
                let rule = (geometry, beyond);
                let Some(at) = place(level, element, rule, coordinates, (bytes, 1))? else {
                    return Ok(parts);
                };
                self.store(at, width, values.iter().copied())?;
            }
            TextureOp::Store {
                geometry, beyond, ..
            } => {
                let rule = (geometry, beyond);
                let size = (element, element);
                let Some(at) = place(level, element, rule, coordinates, size)? else {
                    return Ok(parts);
                };
                let format = surface.format;
                // Channels that no value is for become zero.
                let values = values.iter().copied().chain(std::iter::repeat(0));
                let stored = values.map(|value| u64::from(format.stored(value as u32)));
                self.store(at, format.bytes.into(), stored.take(format.channels.into()))?;
            }
            TextureOp::Reduce {
                op,
                geometry,
                ty,
                converts,
                beyond,
            } => {
                let (ty, unit) = match converts {
                    true => (reduced(surface.format), element),
                    false => (ty, 1),
                };
                let width = ty.bytes();
                let rule = (geometry, beyond);
                let Some(at) = place(level, element, rule, coordinates, (width, unit))? else {
                    return Ok(parts);
                };
                let value = values.first().copied().unwrap_or(0);
                self.reduce(op, ty, at, value)?;
            }
            _ => {}
        }
        Ok(parts)
    }

    fn store(
        &mut self,
        at: u64,
        width: u64,
        values: impl Iterator<Item = u64>,
    ) -> Result<(), FaultKind> {
        for (part, value) in (0..).zip(values) {
            let at = at + part * width;
            let stored = self
                .span(at, width, true)?
                .store(at, width, value, Ordering::Relaxed);
            stored.map_err(|why| refused(why, at, width, true))?;
        }
        Ok(())
    }

    fn reduce(&mut self, op: Atomic, ty: Type, at: u64, value: u64) -> Result<(), FaultKind> {
        let width = ty.bytes();
        let value = extend(value, ty);
        let change = |old: u64| integer::atomic(op, ty, extend(old, ty), value, 0).unwrap_or(old);
        let done = self.span(at, width, true)?.update(at, width, change);
        done.map_err(|why| refused(why, at, width, true))?;
        Ok(())
    }
}

/// The type in which elements of a format are reduced.
fn reduced(format: Format) -> Type {
    match format.kind {
        Kind::Signed | Kind::SignedFraction => Type::S32,
        _ => Type::U32,
    }
}
