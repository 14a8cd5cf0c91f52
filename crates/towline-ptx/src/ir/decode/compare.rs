//! Comparisons, and what depends on them.

use super::{Decoded, Decoder};
use crate::ir::Error;
use crate::ir::op::{Class, Compare, Flag, Logic, Op, Source};
use crate::ptx::Type;
use crate::ptx::ast::Expression;

impl<'a> Decoder<'a, '_, '_, '_> {
    /// The comparison, and the logic that joins it with a predicate.
    fn comparison(&mut self) -> Result<(Compare, Option<Logic>), Error> {
        let compare = self.modifiers.one_of(&[
            ("eq", Compare::Eq),
            ("ne", Compare::Ne),
            ("lt", Compare::Lt),
            ("le", Compare::Le),
            ("gt", Compare::Gt),
            ("ge", Compare::Ge),
            ("lo", Compare::Lt),
            ("ls", Compare::Le),
            ("hi", Compare::Gt),
            ("hs", Compare::Ge),
            ("equ", Compare::Equ),
            ("neu", Compare::Neu),
            ("ltu", Compare::Ltu),
            ("leu", Compare::Leu),
            ("gtu", Compare::Gtu),
            ("geu", Compare::Geu),
            ("num", Compare::Num),
            ("nan", Compare::Nan),
        ]);
        let Some(compare) = compare else {
            return self.refuse("a comparison must be named");
        };
        let logic =
            self.modifiers
                .one_of(&[("and", Logic::And), ("or", Logic::Or), ("xor", Logic::Xor)]);
        Ok((compare, logic))
    }

    fn combined(
        &mut self,
        logic: Option<Logic>,
        rest: &[Expression<'a>],
    ) -> Result<Option<(Logic, Flag)>, Error> {
        match (logic, rest) {
            (None, []) => Ok(None),
            (Some(logic), [flag]) => Ok(Some((logic, self.builder.flag(flag)?))),
            _ => self.refuse("as many operands as the comparison needs must stand here"),
        }
    }

    pub(super) fn setp(&mut self) -> Decoded {
        let (compare, logic) = self.comparison()?;
        let flush = self.modifiers.flag("ftz");
        let ty = self.modifiers.ty()?;
        let [destination, a, b, rest @ ..] = self.operands else {
            return self.refuse("`setp` needs a predicate and two values");
        };
        let (p, q) = self.builder.pair(destination);
        if q.is_some() && matches!(ty, Type::F16 | Type::Bf16) {
            return self.refuse(format!("`setp` of {ty} has one predicate"));
        }
        let p = self.builder.maybe_pred(p)?;
        let q = match q {
            None => None,
            Some(q) => self.builder.maybe_pred(q)?,
        };
        let combine = self.combined(logic, rest)?;
        let a = self.builder.source(a, ty)?;
        let b = self.builder.source(b, ty)?;
        let Some(half) = half_of(ty) else {
            return Ok(Op::SetPredicate {
                compare,
                combine,
                ty,
                flush,
                p,
                q,
                a,
                b,
            });
        };
        // The halves' outcomes are known before either predicate changes: they may be among what is read.
        let uppers = [self.upper_half(a)?, self.upper_half(b)?];
        let [low, high] = [self.builder.scratch_flag(), self.builder.scratch_flag()];
        for (d, [a, b]) in [(low, [a, b]), (high, uppers)] {
            self.before(Op::SetPredicate {
                compare,
                combine,
                ty: half,
                flush,
                p: Some(d),
                q: None,
                a,
                b,
            })?;
        }
        self.keep_guard()?;
        let mut moves: Vec<_> = [(p, low), (q, high)]
            .into_iter()
            .filter_map(|(d, a)| {
                let a = Flag::Pred(a);
                d.map(|d| Op::PredMov { d, a })
            })
            .collect();
        let last = moves.pop().unwrap_or(Op::Nop);
        for op in moves {
            self.part(op)?;
        }
        Ok(last)
    }

    pub(super) fn set(&mut self) -> Decoded {
        let (compare, logic) = self.comparison()?;
        let flush = self.modifiers.flag("ftz");
        let to = self.modifiers.ty()?;
        let ty = self.modifiers.ty()?;
        let [d, a, b, rest @ ..] = self.operands else {
            return self.refuse("`set` needs a register and two values");
        };
        let known = match half_of(ty) {
            Some(_) => to == ty,
            None => matches!(
                to,
                Type::U16 | Type::S16 | Type::U32 | Type::S32 | Type::F16 | Type::Bf16 | Type::F32
            ),
        };
        if !known {
            return self.refuse(format!("`set` from {ty} to {to} is not supported"));
        }
        let combine = self.combined(logic, rest)?;
        let d = self.builder.reg(d, to)?;
        let a = self.builder.source(a, ty)?;
        let b = self.builder.source(b, ty)?;
        let one = |to, ty, d, [a, b]: [Source; 2]| Op::Set {
            compare,
            combine,
            to,
            ty,
            flush,
            d,
            a,
            b,
        };
        let Some(half) = half_of(ty) else {
            return Ok(one(to, ty, d, [a, b]));
        };
        let uppers = [self.upper_half(a)?, self.upper_half(b)?];
        let [low, high] = [self.builder.scratch(), self.builder.scratch()];
        self.before(one(half, half, low, [a, b]))?;
        self.before(one(half, half, high, uppers))?;
        Ok(Op::Pack {
            bits: 16,
            d,
            parts: Box::new([Source::Reg(low), Source::Reg(high)]),
        })
    }

    pub(super) fn selp(&mut self) -> Decoded {
        let ty = self.modifiers.ty()?;
        let [d, a, b, p] = self.operands()?;
        Ok(Op::Select {
            d: self.builder.reg(d, ty)?,
            a: self.builder.source(a, ty)?,
            b: self.builder.source(b, ty)?,
            p: self.builder.flag(p)?,
        })
    }

    pub(super) fn slct(&mut self) -> Decoded {
        let flush = self.modifiers.flag("ftz");
        let ty = self.modifiers.ty()?;
        let by = self.ty_of(&[Type::S32, Type::F32])?;
        let [d, a, b, c] = self.operands()?;
        Ok(Op::SelectSign {
            c_float: by == Type::F32,
            flush,
            d: self.builder.reg(d, ty)?,
            a: self.builder.source(a, ty)?,
            b: self.builder.source(b, ty)?,
            c: self.builder.source(c, by)?,
        })
    }

    pub(super) fn testp(&mut self) -> Decoded {
        let class = self.modifiers.one_of(&[
            ("finite", Class::Finite),
            ("infinite", Class::Infinite),
            ("normal", Class::Normal),
            ("notanumber", Class::NotANumber),
            ("number", Class::Number),
            ("subnormal", Class::Subnormal),
        ]);
        let Some(class) = class else {
            return self.refuse("`testp` needs a class of numbers");
        };
        let ty = self.ty_of(&[Type::F32, Type::F64])?;
        let [d, a] = self.operands()?;
        Ok(Op::Classify {
            class,
            ty,
            d: self.builder.pred(d)?,
            a: self.builder.source(a, ty)?,
        })
    }
}

/// The type of each half of a pair.
fn half_of(ty: Type) -> Option<Type> {
    match ty {
        Type::F16x2 => Some(Type::F16),
        Type::Bf16x2 => Some(Type::Bf16),
        _ => None,
    }
}
