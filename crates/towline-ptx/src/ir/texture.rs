//! Accesses to textures and surfaces: `tex`, `tld4`, `txq`, `suld`, `sust`, `sured`, `suq`.

use super::op::{Atomic, Pred, Reg, Source};
use crate::ptx::Type;

/// How many coordinates an access has, and what they mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Geometry {
    /// `.1d`
    Line,
    /// `.2d`
    Plane,
    /// `.3d`
    Volume,
    /// `.a1d`
    Lines,
    /// `.a2d`
    Planes,
    /// `.cube`
    Cube,
    /// `.acube`
    Cubes,
}

impl Geometry {
    /// The first coordinate is the number of a layer.
    pub fn is_layered(self) -> bool {
        matches!(self, Geometry::Lines | Geometry::Planes | Geometry::Cubes)
    }

    /// Coordinates beside the layer's number.
    pub fn sides(self) -> usize {
        match self {
            Geometry::Line | Geometry::Lines => 1,
            Geometry::Plane | Geometry::Planes => 2,
            Geometry::Volume | Geometry::Cube | Geometry::Cubes => 3,
        }
    }

    /// All coordinates.
    pub fn coordinates(self) -> usize {
        self.sides() + usize::from(self.is_layered())
    }
}

/// Which mipmap level is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Detail {
    /// The first.
    Base,
    /// The one that an input says.
    Level,
    /// The one that suits gradients: two for each coordinate beside the layer's.
    Gradient,
}

/// Properties that `txq` and `suq` ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "named like the modifiers")]
pub enum Query {
    AddressMode(u8),
    ArraySize,
    ChannelDataType,
    ChannelOrder,
    Depth,
    FilterMode,
    ForceUnnormalizedCoords,
    Height,
    MemoryLayout,
    NormalizedCoords,
    NumMipmapLevels,
    NumSamples,
    Width,
}

/// Rules for accesses beyond a surface's edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Beyond {
    /// It goes to the nearest element.
    Clamp,
    /// It is a fault.
    Trap,
    /// Loads give zero, stores do nothing.
    Zero,
}

/// The operation of an access. Coordinates are the first inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextureOp {
    /// `tex`: behind the coordinates stand the level or the gradients, then offsets.
    Sample {
        /// The coordinates.
        geometry: Geometry,
        /// The level.
        detail: Detail,
        /// Coordinates, level and gradients are floating-point numbers; else integers.
        floats: bool,
        /// Results: `.f16` and `.f16x2` are halves of what the others are.
        ty: Type,
        /// Offsets of texels are the last inputs, one for each side.
        offset: bool,
    },
    /// `tld4`: one component of the four texels around a place.
    Gather {
        /// The coordinates.
        geometry: Geometry,
        /// Which component.
        component: u8,
        /// As of `tex`.
        ty: Type,
        /// As of `tex`.
        offset: bool,
    },
    /// `txq`, `suq`
    Query {
        /// The property.
        query: Query,
        /// The only input is a level.
        level: bool,
    },
    /// `suld.b`
    Load {
        /// The coordinates; the first side's counts bytes.
        geometry: Geometry,
        /// Type of each part.
        ty: Type,
        /// Parts.
        count: u8,
        /// Beyond the edge.
        beyond: Beyond,
    },
    /// `sust`: parts stand behind the coordinates.
    Store {
        /// The coordinates; the first side's counts bytes unless the store converts.
        geometry: Geometry,
        /// Type of each part.
        ty: Type,
        /// `.p`: numbers are converted to the surface's format.
        converts: bool,
        /// Beyond the edge.
        beyond: Beyond,
    },
    /// `sured`: the value stands behind the coordinates.
    Reduce {
        /// The operation.
        op: Atomic,
        /// As of `sust`.
        geometry: Geometry,
        /// Type of the value.
        ty: Type,
        /// `.p`: the surface's format says whether values have signs.
        converts: bool,
        /// Beyond the edge.
        beyond: Beyond,
    },
}

impl TextureOp {
    /// Bits of each input behind the coordinates.
    pub fn input_bits(&self) -> u32 {
        match self {
            TextureOp::Store { ty, .. } | TextureOp::Reduce { ty, .. } => ty.bits(),
            _ => 32,
        }
    }

    /// Bits of each result.
    pub fn result_bits(&self) -> u32 {
        match self {
            TextureOp::Sample { ty, .. }
            | TextureOp::Gather { ty, .. }
            | TextureOp::Load { ty, .. } => ty.bits(),
            _ => 32,
        }
    }

    /// Coordinates among the inputs.
    pub fn coordinates(&self) -> usize {
        match self {
            TextureOp::Query { .. } => 0,
            TextureOp::Sample { geometry, .. }
            | TextureOp::Gather { geometry, .. }
            | TextureOp::Load { geometry, .. }
            | TextureOp::Store { geometry, .. }
            | TextureOp::Reduce { geometry, .. } => geometry.coordinates(),
        }
    }
}

/// An access to a texture or a surface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// The operation.
    pub op: TextureOp,
    /// Results.
    pub d: Box<[Option<Reg>]>,
    /// Whether memory is behind what was read, which it always is here.
    pub p: Option<Pred>,
    /// The texture or surface: a handle, or the address of a variable that stands for one.
    pub handle: Source,
    /// The same of what says how a texture is read, where the texture itself does not.
    pub sampler: Option<Source>,
    /// Coordinates and what follows them.
    pub inputs: Box<[Source]>,
}

/// Most inputs of an access: coordinates of layers of cubes, gradients, offsets.
pub const INPUT_LIMIT: usize = 4 + 6 + 3;
