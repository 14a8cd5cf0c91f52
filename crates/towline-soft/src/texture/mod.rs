//! Textures and surfaces: what kernels read and write through handles, and how.
//!
//! The driver enters objects in [`Bindings`] under the handles that programs pass to kernels; variables of a module that stand for one
//! (`.texref`, `.surfref`, `.samplerref`) are entered under their addresses. A launch sees what was there when it was made, and what has come
//! since. Both tiers carry accesses out with a [`Unit`], one thread's at a time.
//!
//! - [`mod@format`]: elements as numbers, and back.
//! - [`sample`]: coordinates, filters, levels, cubes; the formulas of the CUDA C++ Programming Guide, "Texture Fetching".
//! - [`surface`]: loads, stores, reductions.

pub(crate) mod format;
mod sample;
mod surface;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use towline_ptx::ir::texture::{Access, Query, TextureOp};

use crate::driver::lock;
use crate::exec::access::{near, outside};
use crate::fault::FaultKind;
use crate::memory::{Arena, Span};
use format::Format;
use towline_ptx::ir::Space;

/// Address modes: rules for coordinates beyond the edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Edge {
    Wrap,
    #[default]
    Clamp,
    Mirror,
    Border,
}

/// How a texture is read.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Sampler {
    /// By side.
    pub(crate) edges: [Edge; 3],
    pub(crate) linear: bool,
    /// Levels are blended.
    pub(crate) blends: bool,
    pub(crate) normalized: bool,
    pub(crate) seamless: bool,
    pub(crate) anisotropy: u32,
    pub(crate) bias: f32,
    /// The levels that are read, at least and at most.
    pub(crate) levels: [f32; 2],
    pub(crate) border: [f32; 4],
}

/// The shape of the elements under an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Memory: elements in a row, nothing beyond them.
    Memory,
    /// An array, or rows of memory: so many sides.
    Sides(u8),
    /// Layers of so many sides.
    Layers(u8),
    /// Faces of a cube, or of several.
    Cube,
}

/// Elements: of a texture's level, or of a surface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Level {
    pub(crate) address: u64,
    /// Elements of a row, rows of a slice, slices or layers; at least one of each.
    pub(crate) sides: [u32; 3],
    /// Bytes from row to row and from slice to slice.
    pub(crate) pitch: u64,
    pub(crate) slice: u64,
}

/// A texture.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Texture {
    /// From the largest on.
    pub(crate) levels: Vec<Level>,
    pub(crate) shape: Shape,
    pub(crate) format: Format,
    /// Integers are read as such, not as numbers up to 1.
    pub(crate) as_integers: bool,
    pub(crate) srgb: bool,
    pub(crate) sampler: Sampler,
}

/// A surface.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Surface {
    pub(crate) level: Level,
    pub(crate) shape: Shape,
    pub(crate) format: Format,
}

/// The object of a handle.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Object {
    Sampler(Sampler),
    Surface(Surface),
    Texture(Texture),
}

type Objects = HashMap<u64, Arc<Object>>;

/// Objects by handle.
#[derive(Debug, Default)]
pub(crate) struct Bindings(Mutex<Arc<Objects>>);

impl Bindings {
    pub(crate) fn insert(&self, handle: u64, object: Object) {
        Arc::make_mut(&mut lock(&self.0)).insert(handle, Arc::new(object));
    }

    pub(crate) fn remove(&self, handle: u64) {
        Arc::make_mut(&mut lock(&self.0)).remove(&handle);
    }

    fn get(&self, handle: u64) -> Option<Arc<Object>> {
        lock(&self.0).get(&handle).cloned()
    }
}

/// Objects that a launch sees.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    at_launch: Arc<Objects>,
    now: Arc<Bindings>,
}

impl Seen {
    pub(crate) fn new(bindings: &Arc<Bindings>) -> Self {
        Self {
            at_launch: Arc::clone(&lock(&bindings.0)),
            now: Arc::clone(bindings),
        }
    }

    fn find(&self, handle: u64) -> Option<Arc<Object>> {
        let known = self.at_launch.get(&handle).cloned();
        known.or_else(|| self.now.get(handle))
    }
}

/// Parts of memory that are remembered; a power of two.
const REMEMBERED: usize = 4;

/// The texture unit of a block: it carries accesses out.
#[derive(Debug)]
pub(crate) struct Unit<'a> {
    arena: &'a Arena,
    seen: &'a Seen,
    /// The objects that were used last.
    last: Option<(u64, Arc<Object>)>,
    last_sampler: Option<(u64, Arc<Object>)>,
    spans: [Option<Span<'a>>; REMEMBERED],
}

/// Results of an access, as many as its instruction has room for.
pub(crate) type Parts = [u64; 4];

impl<'a> Unit<'a> {
    pub(crate) fn new(arena: &'a Arena, seen: &'a Seen) -> Self {
        Self {
            arena,
            seen,
            last: None,
            last_sampler: None,
            spans: [None; REMEMBERED],
        }
    }

    /// Forgets memory when allocations have come or gone.
    pub(crate) fn look_again(&mut self) {
        self.spans = [None; REMEMBERED];
    }

    /// Carries an access of one thread out.
    pub(crate) fn access(
        &mut self,
        access: &Access,
        handle: u64,
        sampler: Option<u64>,
        inputs: &[u64],
    ) -> Result<Parts, FaultKind> {
        let object = found(&mut self.last, self.seen, handle)?;
        match (&access.op, &*object) {
            (TextureOp::Query { query, .. }, object) => {
                let level = inputs.first().map_or(0, |level| *level as usize);
                Ok([object.tell(*query, level).into(), 0, 0, 0])
            }
            (TextureOp::Sample { .. } | TextureOp::Gather { .. }, Object::Texture(texture)) => {
                match sampler {
                    None => self.sample(&access.op, texture, &texture.sampler, inputs),
                    Some(sampler) => {
                        let other = found(&mut self.last_sampler, self.seen, sampler)?;
                        match &*other {
                            Object::Texture(Texture { sampler, .. }) | Object::Sampler(sampler) => {
                                self.sample(&access.op, texture, sampler, inputs)
                            }
                            Object::Surface(_) => Err(FaultKind::Object(sampler, "sampler")),
                        }
                    }
                }
            }
            (
                TextureOp::Load { .. } | TextureOp::Store { .. } | TextureOp::Reduce { .. },
                Object::Surface(surface),
            ) => self.surface(&access.op, surface, inputs),
            (TextureOp::Sample { .. } | TextureOp::Gather { .. }, _) => {
                Err(FaultKind::Object(handle, "texture"))
            }
            _ => Err(FaultKind::Object(handle, "surface")),
        }
    }

    /// The memory of so many bytes.
    #[inline]
    fn span(&mut self, address: u64, bytes: u64, write: bool) -> Result<Span<'a>, FaultKind> {
        let known = self.spans.iter().flatten();
        let mut known = known.filter(|span| span.holds(address, bytes));
        if let Some(span) = known.next() {
            return Ok(*span);
        }
        match self.arena.range(address, bytes) {
            Some(span) => {
                self.spans.rotate_right(1);
                self.spans[0] = Some(span);
                Ok(span)
            }
            None => Err(match outside(Space::Global, address, bytes, write) {
                FaultKind::Address { .. } => FaultKind::Address {
                    space: Space::Global,
                    address,
                    bytes,
                    write,
                    near: near(self.arena.neighbours(address), address),
                },
                other => other,
            }),
        }
    }
}

fn found(
    last: &mut Option<(u64, Arc<Object>)>,
    seen: &Seen,
    handle: u64,
) -> Result<Arc<Object>, FaultKind> {
    if let Some((known, object)) = last
        && *known == handle
    {
        return Ok(Arc::clone(object));
    }
    let object = seen.find(handle);
    let object = object.ok_or(FaultKind::Object(handle, "texture or surface"))?;
    *last = Some((handle, Arc::clone(&object)));
    Ok(object)
}

impl Object {
    /// The answer to `txq` or `suq`. Types and orders of channels have the numbers of OpenCL, edges and filters those of the ISA's lists.
    fn tell(&self, query: Query, level: usize) -> u32 {
        let sampler = match self {
            Object::Texture(texture) => Some(&texture.sampler),
            Object::Sampler(sampler) => Some(sampler),
            Object::Surface(_) => None,
        };
        if let Some(sampler) = sampler {
            match query {
                Query::AddressMode(side) => {
                    let edge = sampler.edges.get(usize::from(side));
                    return match edge.copied().unwrap_or_default() {
                        Edge::Wrap => 0,
                        Edge::Mirror => 1,
                        Edge::Clamp => 3,
                        Edge::Border => 4,
                    };
                }
                Query::FilterMode => return sampler.linear.into(),
                Query::ForceUnnormalizedCoords => return (!sampler.normalized).into(),
                Query::NormalizedCoords => return sampler.normalized.into(),
                _ => {}
            }
        }
        let (one, shape, format, levels) = match self {
            Object::Texture(texture) => (
                texture.levels.get(level),
                texture.shape,
                texture.format,
                texture.levels.len(),
            ),
            Object::Surface(surface) => (Some(&surface.level), surface.shape, surface.format, 1),
            Object::Sampler(_) => return 0,
        };
        let [width, height, slices] = one.map_or([0; 3], |one| one.sides);
        let sides = match shape {
            Shape::Memory => 1,
            Shape::Cube => 2,
            Shape::Sides(sides) | Shape::Layers(sides) => sides,
        };
        match query {
            Query::Width => width,
            // That of a row is 1 (seen on an H100).
            Query::Height if sides > 1 || shape == Shape::Sides(1) => height,
            Query::Depth if sides > 2 => slices,
            Query::ArraySize => match shape {
                Shape::Layers(_) => slices,
                Shape::Cube => slices / 6,
                _ => 0,
            },
            Query::ChannelDataType => format.data_type(),
            Query::ChannelOrder => match format.channels {
                1 => 0x10b0,
                2 => 0x10b2,
                _ => 0x10b5,
            },
            Query::NumMipmapLevels => levels as u32,
            Query::NumSamples => 1,
            _ => 0,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
