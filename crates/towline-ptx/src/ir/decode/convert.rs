//! Moves and conversions.

use super::{Decoded, Decoder};
use crate::ir::fit::Fit;
use crate::ir::op::{Binary, Mode, Op, Rounding, Source, Space};
use crate::ptx::Type;
use crate::ptx::ast::Expression;

/// Pairs of numbers of fewer than 8 bits, which tensor cores take.
const TENSOR_PAIRS: [&str; 3] = ["e2m1x2", "e2m3x2", "e3m2x2"];

impl<'a> Decoder<'a, '_, '_, '_> {
    pub(super) fn mov(&mut self) -> Decoded {
        let [d, a] = self.operands()?;
        if self.modifiers.flag("pred") {
            return Ok(Op::PredMov {
                d: self.builder.pred(d)?,
                a: self.builder.flag(a)?,
            });
        }
        let ty = self.modifiers.ty()?;
        if ty == Type::B128 {
            return self.refuse("values of 128 bits are not supported");
        }
        self.builder.reads_addresses = !ty.is_float();
        let untyped = matches!(ty, Type::B16 | Type::B32 | Type::B64);
        match (d, a) {
            (_, Expression::Vector(_)) | (Expression::Vector(_), _) if !untyped => {
                self.refuse(format!("`mov` of {ty} has no parts"))
            }
            (_, Expression::Vector(parts)) => {
                let bits = self.part_bits(ty, parts.len())?;
                let part = part_type(bits);
                let parts: Result<Box<[_]>, _> = parts
                    .iter()
                    .map(|one| self.builder.source(one, part))
                    .collect();
                Ok(Op::Pack {
                    bits,
                    d: self.builder.reg(d, ty)?,
                    parts: parts?,
                })
            }
            (Expression::Vector(parts), _) => {
                let bits = self.part_bits(ty, parts.len())?;
                let part = part_type(bits);
                let parts: Result<Box<[_]>, _> = parts
                    .iter()
                    .map(|one| self.builder.maybe_reg(one, part, Fit::Same))
                    .collect();
                Ok(Op::Unpack {
                    bits,
                    d: parts?,
                    a: self.builder.source(a, ty)?,
                })
            }
            _ => Ok(Op::Mov {
                d: self.builder.reg(d, ty)?,
                a: self.builder.source(a, ty)?,
            }),
        }
    }

    fn part_bits(&self, ty: Type, parts: usize) -> Result<u8, crate::ir::Error> {
        match (ty.bits(), parts) {
            (bits @ 16..=64, 2 | 4) => Ok((bits as usize / parts) as u8),
            _ => self.refuse(format!("{ty} cannot be made of {parts} parts")),
        }
    }

    pub(super) fn cvt(&mut self) -> Decoded {
        let held = self.modifiers.flag("satfinite");
        if self.modifiers.flag("pack") {
            return self.pack();
        }
        let narrow = self
            .modifiers
            .one_of(&TENSOR_PAIRS.map(|name| (name, name)));
        if let Some(name) = narrow {
            return self.refuse(format!("`cvt` with `.{name}` is not supported"));
        }
        let mode = self.modifiers.mode();
        let to = self.modifiers.ty()?;
        let from = self.modifiers.ty()?;
        // Beyond the largest number it gives that, infinities too (seen on an H200).
        if held
            && matches!(
                to,
                Type::Tf32 | Type::F16 | Type::Bf16 | Type::F16x2 | Type::Bf16x2
            )
        {
            return self.refuse(format!("`cvt.satfinite{to}` is not supported"));
        }
        if to == Type::Tf32 {
            let [d, a] = self.operands()?;
            return Ok(Op::Convert {
                to,
                from,
                mode,
                d: self.builder.reg(d, to)?,
                a: self.builder.source(a, from)?,
            });
        }
        if [to, from]
            .iter()
            .any(|ty| matches!(ty, Type::E4m3x2 | Type::E5m2x2))
        {
            return self.pair_of_bytes(to, from, mode);
        }
        let pair = matches!(to, Type::F16x2 | Type::Bf16x2);
        let odd = |ty| {
            matches!(
                ty,
                Type::Tf32 | Type::F32x2 | Type::U16x2 | Type::S16x2 | Type::Pred | Type::B128
            )
        };
        if odd(to) || odd(from) || matches!(from, Type::F16x2 | Type::Bf16x2) {
            return self.refuse(format!("a conversion from {from} to {to} is not supported"));
        }
        if mode.rounding == Rounding::NearestAway {
            return self.refuse("`cvt.rna` is not supported");
        }
        if pair {
            if from != Type::F32 {
                return self.refuse(format!("a conversion from {from} to {to} is not supported"));
            }
            return self.pair_of(to, from, mode);
        }
        if mode.saturate && within(from, to) {
            return self.refuse(format!(
                "every {from} is in the range of {to}: nothing to `.sat`"
            ));
        }
        self.builder.reads_special = !to.is_float() && !from.is_float();
        let fit = match to == Type::Bf16 || from == Type::Bf16 {
            true => Fit::Same,
            false => Fit::Wide,
        };
        let [d, a] = self.operands()?;
        let d = self.builder.fitting_reg(d, to, fit)?;
        let a = self.builder.fitting_source(a, from, fit)?;
        if (to, from, mode) == (Type::F32, Type::F32, Mode::default()) {
            // As GPUs do it: what is no number stays as it is.
            return Ok(Op::Mov { d, a });
        }
        Ok(Op::Convert {
            to,
            from,
            mode,
            d,
            a,
        })
    }

    /// Two numbers become a pair.
    fn pair_of(&mut self, to: Type, from: Type, mode: Mode) -> Decoded {
        let [d, a, b] = self.operands()?;
        Ok(Op::ConvertPair {
            to,
            from,
            mode,
            d: self.builder.reg(d, to)?,
            a: self.builder.source(a, from)?,
            b: self.builder.source(b, from)?,
        })
    }

    /// A pair of numbers of 8 bits, from or to a pair of 16 bits, or from two numbers.
    fn pair_of_bytes(&mut self, to: Type, from: Type, mode: Mode) -> Decoded {
        if from == Type::F32 {
            return self.pair_of(to, from, mode);
        }
        let [d, a] = self.operands()?;
        Ok(Op::Convert {
            to,
            from,
            mode,
            d: self.builder.reg(d, to)?,
            a: self.builder.source(a, from)?,
        })
    }

    /// `cvt.pack`: two integers held to the range of smaller ones, side by side, for bytes beside half of a third.
    fn pack(&mut self) -> Decoded {
        let mode = self.modifiers.mode();
        let to = self.ty_of(&[Type::U16, Type::S16, Type::U8, Type::S8])?;
        let from = self.ty_of(&[Type::S32])?;
        if !mode.saturate {
            return self.refuse("`cvt.pack` needs `.sat`");
        }
        let [d, high, low, third @ ..] = self.operands else {
            return self.refuse("`cvt.pack` needs a register and two values");
        };
        let d = self.builder.reg(d, Type::B32)?;
        let mut parts = Vec::new();
        for value in [low, high] {
            let a = self.builder.source(value, from)?;
            let d = self.builder.scratch();
            self.before(Op::Convert {
                to,
                from,
                mode,
                d,
                a,
            })?;
            parts.push(Source::Reg(d));
        }
        match (to.bits(), third) {
            (16, []) => {}
            (8, [third]) => {
                self.ty_of(&[Type::B32])?;
                let third = self.builder.source(third, Type::B32)?;
                let upper = self.builder.scratch();
                let by = self.builder.bits(8);
                self.before(Op::Binary {
                    op: Binary::Shr,
                    ty: Type::U32,
                    mode: Mode::default(),
                    d: upper,
                    a: third,
                    b: by,
                })?;
                parts.extend([third, Source::Reg(upper)]);
            }
            _ => return self.refuse("`cvt.pack` needs a third value for bytes, and only for them"),
        }
        Ok(Op::Pack {
            bits: to.bits() as u8,
            d,
            parts: parts.into(),
        })
    }

    pub(super) fn cvta(&mut self) -> Decoded {
        let to_generic = !self.modifiers.flag("to");
        let space = self.modifiers.space();
        self.ty_of(&[Type::U32, Type::U64])?;
        if space == Space::Param && !self.builder.entry {
            return self.refuse("only parameters of kernels have generic addresses");
        }
        let [d, a] = self.operands()?;
        Ok(Op::Generic {
            to_generic,
            space,
            d: self.builder.reg(d, Type::U64)?,
            a: self.builder.source(a, Type::U64)?,
        })
    }

    pub(super) fn isspacep(&mut self) -> Decoded {
        let space = self.modifiers.space();
        let [d, a] = self.operands()?;
        Ok(Op::InSpace {
            space,
            d: self.builder.pred(d)?,
            // Addresses of 32 bits may stand here too.
            a: match self.builder.source(a, Type::U64) {
                Ok(a) => a,
                Err(_) => self.builder.count(a)?,
            },
        })
    }
}

/// Whether an integer type has all numbers of another.
fn within(from: Type, to: Type) -> bool {
    let integers = !from.is_float() && !to.is_float();
    let sign = i64::from(!from.is_signed() && to.is_signed());
    let fewer_signs = from.is_signed() && !to.is_signed();
    integers && !fewer_signs && i64::from(from.bits()) <= i64::from(to.bits()) - sign
}

fn part_type(bits: u8) -> Type {
    match bits {
        8 => Type::B8,
        16 => Type::B16,
        _ => Type::B32,
    }
}
