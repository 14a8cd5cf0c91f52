//! Accesses to textures and surfaces.

use super::{Decoded, Decoder};
use crate::ir::Error;
use crate::ir::fit::Fit;
use crate::ir::op::{Atomic, Op, Pred, Reg, Source};
use crate::ir::texture::{Access, Beyond, Detail, Geometry, Query, TextureOp};
use crate::ptx::Type;
use crate::ptx::ast::Expression;

/// The parts of a vector, or the one that stands alone.
fn parts<'e, 'a>(expression: &'e Expression<'a>) -> &'e [Expression<'a>] {
    match expression {
        Expression::Vector(parts) => parts,
        one => std::slice::from_ref(one),
    }
}

/// Registers of results, and the predicate beside them.
type Results = (Box<[Option<Reg>]>, Option<Pred>);

/// The operand in brackets: the texture or surface, its sampler, coordinates.
struct Place<'e, 'a> {
    handle: Source,
    sampler: Option<Source>,
    coordinates: &'e [Expression<'a>],
}

impl<'a, 'i> Decoder<'a, 'i, '_, '_> {
    fn geometry(&mut self) -> Result<Geometry, Error> {
        let found = self.modifiers.one_of(&[
            ("1d", Geometry::Line),
            ("2d", Geometry::Plane),
            ("3d", Geometry::Volume),
            ("a1d", Geometry::Lines),
            ("a2d", Geometry::Planes),
            ("cube", Geometry::Cube),
            ("acube", Geometry::Cubes),
        ]);
        match found {
            Some(geometry) => Ok(geometry),
            None if self.modifiers.flag("2dms") || self.modifiers.flag("a2dms") => {
                self.refuse("textures with several samples per texel are not supported")
            }
            None => self.refuse("a geometry must be named"),
        }
    }

    /// A handle in a register, or the variable that stands for a texture, surface or sampler.
    fn object(&mut self, expression: &Expression<'a>) -> Result<Source, Error> {
        let fit = match self.builder.is_register(expression) {
            true => Fit::Same,
            false => Fit::Base,
        };
        self.builder.fitting_source(expression, Type::U64, fit)
    }

    fn texture_place<'e>(
        &mut self,
        expression: &'e Expression<'a>,
    ) -> Result<Place<'e, 'a>, Error> {
        let Expression::Address(list) = expression else {
            return self.refuse(format!(
                "`{expression}` is no place in a texture or surface"
            ));
        };
        let (handle, sampler, coordinates) = match list.as_slice() {
            [handle] => (handle, None, &[][..]),
            [handle, coordinates] => (handle, None, parts(coordinates)),
            [handle, sampler, coordinates] => (handle, Some(sampler), parts(coordinates)),
            _ => {
                return self.refuse(format!(
                    "`{expression}` is no place in a texture or surface"
                ));
            }
        };
        Ok(Place {
            handle: self.object(handle)?,
            sampler: match sampler {
                Some(sampler) => Some(self.object(sampler)?),
                None => None,
            },
            coordinates,
        })
    }

    /// Coordinates, without what fills their vector up.
    fn coordinates(
        &mut self,
        given: &[Expression<'a>],
        geometry: Geometry,
        ty: Type,
    ) -> Result<Vec<Source>, Error> {
        let count = geometry.coordinates();
        // Three make a vector of four.
        let room = count.next_power_of_two();
        if given.len() != count && given.len() != room {
            return self.refuse(format!("{room} coordinates must stand here"));
        }
        let mut inputs = Vec::new();
        for (place, one) in given.iter().take(count).enumerate() {
            inputs.push(match place {
                0 if geometry.is_layered() => self.builder.count(one)?,
                // Any register of 32 bits will do.
                _ if self.builder.is_register(one) => self.builder.source(one, Type::B32)?,
                _ => self.builder.source(one, ty)?,
            });
        }
        Ok(inputs)
    }

    /// So many values of a vector, of which more may stand there.
    fn some_of(
        &mut self,
        expression: &Expression<'a>,
        count: usize,
        ty: Type,
    ) -> Result<Vec<Source>, Error> {
        let given = parts(expression);
        if given.len() != count && given.len() != count.next_power_of_two() {
            return self.refuse(format!("{count} values must stand here"));
        }
        let sources = given.iter().take(count);
        sources.map(|one| self.builder.source(one, ty)).collect()
    }

    /// Results, and the predicate that may stand beside them.
    fn texture_results(
        &mut self,
        expression: &Expression<'a>,
        ty: Type,
        count: usize,
    ) -> Result<Results, Error> {
        let (results, p) = self.builder.pair(expression);
        let p = match p {
            Some(p) => self.builder.maybe_pred(p)?,
            None => None,
        };
        let results = parts(results);
        if results.len() != count {
            return self.refuse(format!("{count} registers must stand here"));
        }
        let d: Result<_, _> = results
            .iter()
            .map(|one| self.builder.maybe_reg(one, ty, Fit::Wide))
            .collect();
        Ok((d?, p))
    }

    /// `.v4` of a type, or `.v2` of pairs.
    fn texel_type(&mut self) -> Result<(Type, usize), Error> {
        let count = self.modifiers.one_of(&[("v4", 4), ("v2", 2)]);
        let ty = self.modifiers.ty()?;
        match (ty, count) {
            (Type::F16x2, Some(2)) => Ok((ty, 2)),
            (Type::U32 | Type::S32 | Type::F32 | Type::F16, Some(4)) => Ok((ty, 4)),
            _ => self.refuse(format!("no texture gives such a vector of {ty}")),
        }
    }

    pub(super) fn tex(&mut self) -> Decoded {
        let detail = self.modifiers.one_of(&[
            ("base", Detail::Base),
            ("level", Detail::Level),
            ("grad", Detail::Gradient),
        ]);
        let detail = detail.unwrap_or(Detail::Base);
        let geometry = self.geometry()?;
        let (ty, count) = self.texel_type()?;
        let coordinate = self.modifiers.ty()?;
        let [d, place, rest @ ..] = self.operands else {
            return self.refuse("`tex` needs registers and a place in a texture");
        };
        let place = self.texture_place(place)?;
        let mut inputs = self.coordinates(place.coordinates, geometry, coordinate)?;
        let sides = geometry.sides();
        let rest = match (detail, rest) {
            (Detail::Base, rest) => rest,
            (Detail::Level, [level, rest @ ..]) => {
                inputs.push(self.builder.source(level, coordinate)?);
                rest
            }
            (Detail::Gradient, [x, y, rest @ ..]) => {
                for gradient in [x, y] {
                    if !matches!(gradient, Expression::Vector(_)) {
                        return self.refuse("gradients stand in braces");
                    }
                    inputs.extend(self.some_of(gradient, sides, Type::F32)?);
                }
                rest
            }
            _ => return self.refuse("`tex` needs a level or gradients"),
        };
        let offset = self.offset(rest, sides, &mut inputs)?;
        let (d, p) = self.texture_results(d, ty, count)?;
        let op = TextureOp::Sample {
            geometry,
            detail,
            floats: coordinate == Type::F32,
            ty,
            offset,
        };
        self.access(op, d, p, place, inputs)
    }

    /// Offsets of texels, which may stand at the end.
    fn offset(
        &mut self,
        rest: &[Expression<'a>],
        sides: usize,
        inputs: &mut Vec<Source>,
    ) -> Result<bool, Error> {
        match rest {
            [] => Ok(false),
            [offset] if matches!(offset, Expression::Vector(_)) || sides == 1 => {
                inputs.extend(self.some_of(offset, sides, Type::S32)?);
                Ok(true)
            }
            _ => self.refuse("comparison with depths is not supported"),
        }
    }

    pub(super) fn tld4(&mut self) -> Decoded {
        let component = self
            .modifiers
            .one_of(&[("r", 0), ("g", 1), ("b", 2), ("a", 3)]);
        let Some(component) = component else {
            return self.refuse("`tld4` needs a component");
        };
        let geometry = self.geometry()?;
        let (ty, count) = self.texel_type()?;
        let coordinate = self.modifiers.ty()?;
        let [d, place, rest @ ..] = self.operands else {
            return self.refuse("`tld4` needs registers and a place in a texture");
        };
        let place = self.texture_place(place)?;
        let mut inputs = self.coordinates(place.coordinates, geometry, coordinate)?;
        let offset = self.offset(rest, 2, &mut inputs)?;
        let (d, p) = self.texture_results(d, ty, count)?;
        let op = TextureOp::Gather {
            geometry,
            component,
            ty,
            offset,
        };
        self.access(op, d, p, place, inputs)
    }

    pub(super) fn texture_query(&mut self) -> Decoded {
        let level = self.modifiers.flag("level");
        let query = self.modifiers.one_of(&[
            ("addr_mode_0", Query::AddressMode(0)),
            ("addr_mode_1", Query::AddressMode(1)),
            ("addr_mode_2", Query::AddressMode(2)),
            ("array_size", Query::ArraySize),
            ("channel_data_type", Query::ChannelDataType),
            ("channel_order", Query::ChannelOrder),
            ("depth", Query::Depth),
            ("filter_mode", Query::FilterMode),
            ("force_unnormalized_coords", Query::ForceUnnormalizedCoords),
            ("height", Query::Height),
            ("memory_layout", Query::MemoryLayout),
            ("normalized_coords", Query::NormalizedCoords),
            ("num_mipmap_levels", Query::NumMipmapLevels),
            ("num_samples", Query::NumSamples),
            ("width", Query::Width),
        ]);
        let Some(query) = query else {
            return self.refuse("a property must be named");
        };
        let ty = self.modifiers.ty()?;
        let (d, place, rest) = match self.operands {
            [d, place, rest @ ..] => (d, place, rest),
            _ => return self.refuse("a query needs a register and an object"),
        };
        let place = self.texture_place(place)?;
        let inputs = match (level, rest) {
            (true, [level]) => vec![self.builder.count(level)?],
            (false, []) => Vec::new(),
            _ => return self.refuse("a query of a level needs the level, another none"),
        };
        let d = Box::new([Some(self.builder.reg(d, ty)?)]);
        self.access(TextureOp::Query { query, level }, d, None, place, inputs)
    }

    fn beyond(&mut self) -> Result<Beyond, Error> {
        let found = self.modifiers.one_of(&[
            ("trap", Beyond::Trap),
            ("clamp", Beyond::Clamp),
            ("zero", Beyond::Zero),
        ]);
        match found {
            Some(beyond) => Ok(beyond),
            None => self.refuse("`.trap`, `.clamp` or `.zero` must be there"),
        }
    }

    fn surface_vector(&mut self) -> usize {
        self.modifiers.one_of(&[("v2", 2), ("v4", 4)]).unwrap_or(1)
    }

    pub(super) fn suld(&mut self) -> Decoded {
        if !self.modifiers.flag("b") {
            return self.refuse("of `suld` only `suld.b` is supported");
        }
        let geometry = self.geometry()?;
        self.modifiers
            .skip(|name| matches!(name, "ca" | "cg" | "cs" | "cv"));
        let count = self.surface_vector();
        let ty = self.modifiers.ty()?;
        let beyond = self.beyond()?;
        let [d, place] = self.operands()?;
        let place = self.texture_place(place)?;
        let inputs = self.coordinates(place.coordinates, geometry, Type::S32)?;
        let (d, p) = self.texture_results(d, ty, count)?;
        let op = TextureOp::Load {
            geometry,
            ty,
            count: count as u8,
            beyond,
        };
        self.access(op, d, p, place, inputs)
    }

    pub(super) fn sust(&mut self) -> Decoded {
        let converts = self.modifiers.one_of(&[("b", false), ("p", true)]);
        let Some(converts) = converts else {
            return self.refuse("`sust` needs `.b` or `.p`");
        };
        let geometry = self.geometry()?;
        self.modifiers
            .skip(|name| matches!(name, "wb" | "cg" | "cs" | "wt"));
        let count = self.surface_vector();
        let ty = self.modifiers.ty()?;
        let beyond = self.beyond()?;
        let [place, a] = self.operands()?;
        let place = self.texture_place(place)?;
        let mut inputs = self.coordinates(place.coordinates, geometry, Type::S32)?;
        let values = parts(a);
        if values.len() != count {
            return self.refuse(format!("{count} values must stand here"));
        }
        for value in values {
            inputs.push(self.builder.fitting_source(value, ty, Fit::Wide)?);
        }
        let op = TextureOp::Store {
            geometry,
            ty,
            converts,
            beyond,
        };
        self.access(op, Box::new([]), None, place, inputs)
    }

    pub(super) fn sured(&mut self) -> Decoded {
        let converts = self.modifiers.one_of(&[("b", false), ("p", true)]);
        let op = self.modifiers.one_of(&[
            ("add", Atomic::Add),
            ("min", Atomic::Min),
            ("max", Atomic::Max),
            ("and", Atomic::And),
            ("or", Atomic::Or),
        ]);
        let (Some(converts), Some(op)) = (converts, op) else {
            return self.refuse("`sured` needs `.b` or `.p` and an operation");
        };
        let geometry = self.geometry()?;
        let ty = self.modifiers.ty()?;
        let beyond = self.beyond()?;
        let [place, a] = self.operands()?;
        let place = self.texture_place(place)?;
        let mut inputs = self.coordinates(place.coordinates, geometry, Type::S32)?;
        inputs.push(self.builder.source(a, ty)?);
        let op = TextureOp::Reduce {
            op,
            geometry,
            ty,
            converts,
            beyond,
        };
        self.access(op, Box::new([]), None, place, inputs)
    }

    fn access(
        &mut self,
        op: TextureOp,
        d: Box<[Option<Reg>]>,
        p: Option<Pred>,
        place: Place<'_, 'a>,
        inputs: Vec<Source>,
    ) -> Decoded {
        Ok(Op::Texture(Box::new(Access {
            op,
            d,
            p,
            handle: place.handle,
            sampler: place.sampler,
            inputs: inputs.into(),
        })))
    }
}
