//! Logic, shifts, and counting of bits.

use super::{Decoded, Decoder};
use crate::ir::eval::Value;
use crate::ir::fit::Fit;
use crate::ir::op::{Binary, Compare, Flag, Logic, Op, Permute, Source, Ternary, Unary};
use crate::ptx::Type;

const B32: &[Type] = &[Type::B32];
const WORDS: &[Type] = &[Type::B32, Type::B64];
const INTEGERS: &[Type] = &[Type::U32, Type::S32, Type::U64, Type::S64];
const UNTYPED: &[Type] = &[Type::B16, Type::B32, Type::B64];

impl<'a> Decoder<'a, '_, '_, '_> {
    /// `None` where the opcode is none of these.
    pub(super) fn bits(&mut self, opcode: &str) -> Option<Decoded> {
        Some(match opcode {
            "and" => self.logic(Binary::And, Logic::And),
            "or" => self.logic(Binary::Or, Logic::Or),
            "xor" => self.logic(Binary::Xor, Logic::Xor),
            "not" => self.not(),
            "cnot" => self.unary(Unary::Cnot, UNTYPED),
            "shl" => self.shift(Binary::Shl, UNTYPED),
            "shr" => {
                let known = [UNTYPED, INTEGERS, &[Type::U16, Type::S16]].concat();
                self.shift(Binary::Shr, &known)
            }
            "shf" => self.shf(),
            "popc" => self.unary(Unary::Popc, WORDS),
            "clz" => self.unary(Unary::Clz, WORDS),
            "brev" => self.unary(Unary::Brev, WORDS),
            "bfind" => {
                let op = match self.modifiers.flag("shiftamt") {
                    true => Unary::BfindShift,
                    false => Unary::Bfind,
                };
                self.unary(op, INTEGERS)
            }
            "bfe" => self.bfe(),
            "bfi" => self.bfi(),
            "bmsk" => {
                let op = self.wrapping(Binary::BmskClamp, Binary::BmskWrap);
                self.mask(op)
            }
            "szext" => {
                let op = self.wrapping(Binary::SzextClamp, Binary::SzextWrap);
                self.shift(op, &[Type::U32, Type::S32])
            }
            "fns" => self.ternary(Ternary::FindNthSet, B32),
            "lop3" => self.lop3(),
            "prmt" => self.prmt(),
            "dp4a" => self.dot(None),
            "dp2a" => {
                let high = self.modifiers.flag("hi");
                self.modifiers.flag("lo");
                self.dot(Some(high))
            }
            _ => return None,
        })
    }

    /// `bmsk`: a mask from a position and a width.
    fn mask(&mut self, op: Binary) -> Decoded {
        let ty = self.ty_of(B32)?;
        let [d, a, b] = self.operands()?;
        Ok(Op::Binary {
            op,
            ty,
            mode: Default::default(),
            d: self.builder.fitting_reg(d, ty, Fit::Count)?,
            a: self.builder.count(a)?,
            b: self.builder.count(b)?,
        })
    }

    fn wrapping(&mut self, clamp: Binary, wrap: Binary) -> Binary {
        self.modifiers
            .one_of(&[("clamp", clamp), ("wrap", wrap)])
            .unwrap_or(clamp)
    }

    /// `and`, `or`, `xor`, of numbers or predicates.
    fn logic(&mut self, op: Binary, on_predicates: Logic) -> Decoded {
        if !self.modifiers.flag("pred") {
            return self.binary(op, UNTYPED);
        }
        let [d, a, b] = self.operands()?;
        Ok(Op::PredLogic {
            op: on_predicates,
            d: self.builder.pred(d)?,
            a: self.builder.flag(a)?,
            b: self.builder.flag(b)?,
        })
    }

    fn not(&mut self) -> Decoded {
        if !self.modifiers.flag("pred") {
            return self.unary(Unary::Not, UNTYPED);
        }
        let [d, a] = self.operands()?;
        let d = self.builder.pred(d)?;
        let a = match self.builder.flag(a)? {
            Flag::Known(truth) => Flag::Known(!truth),
            Flag::Pred(pred) => Flag::Not(pred),
            Flag::Not(pred) => Flag::Pred(pred),
        };
        Ok(Op::PredMov { d, a })
    }

    /// Shifts, and what is like them: the distance always has 32 bits.
    fn shift(&mut self, op: Binary, known: &[Type]) -> Decoded {
        let ty = self.ty_of(known)?;
        let [d, a, b] = self.operands()?;
        Ok(Op::Binary {
            op,
            ty,
            mode: Default::default(),
            d: self.builder.reg(d, ty)?,
            a: self.builder.source(a, ty)?,
            b: self.builder.count(b)?,
        })
    }

    fn shf(&mut self) -> Decoded {
        let left = self.modifiers.one_of(&[("l", true), ("r", false)]);
        let wrap = self.modifiers.one_of(&[("wrap", true), ("clamp", false)]);
        match (left, wrap) {
            (Some(true), Some(wrap)) => self.funnel(Ternary::ShfLeft { wrap }),
            (Some(false), Some(wrap)) => self.funnel(Ternary::ShfRight { wrap }),
            _ => self.refuse("`shf` needs a direction and a mode"),
        }
    }

    fn funnel(&mut self, op: Ternary) -> Decoded {
        let ty = self.ty_of(B32)?;
        let [d, a, b, c] = self.operands()?;
        Ok(Op::Ternary {
            op,
            ty,
            mode: Default::default(),
            d: self.builder.reg(d, ty)?,
            a: self.builder.source(a, ty)?,
            b: self.builder.source(b, ty)?,
            c: self.builder.count(c)?,
        })
    }

    fn bfe(&mut self) -> Decoded {
        let ty = self.ty_of(INTEGERS)?;
        let [d, a, b, c] = self.operands()?;
        Ok(Op::Ternary {
            op: Ternary::Bfe,
            ty,
            mode: Default::default(),
            d: self.builder.reg(d, ty)?,
            a: self.builder.source(a, ty)?,
            b: self.builder.small_count(b)?,
            c: self.builder.small_count(c)?,
        })
    }

    fn bfi(&mut self) -> Decoded {
        let ty = self.ty_of(WORDS)?;
        let [d, a, b, c, e] = self.operands()?;
        Ok(Op::BitInsert {
            ty,
            d: self.builder.reg(d, ty)?,
            a: self.builder.source(a, ty)?,
            b: self.builder.source(b, ty)?,
            c: self.builder.small_count(c)?,
            e: self.builder.small_count(e)?,
        })
    }

    fn lop3(&mut self) -> Decoded {
        let logic = self
            .modifiers
            .one_of(&[("and", Logic::And), ("or", Logic::Or)]);
        let ty = self.ty_of(B32)?;
        let [d, a, b, c, table, with @ ..] = self.operands else {
            return self.refuse("`lop3` needs three values and a table");
        };
        let table = match self.builder.evaluate(table)? {
            Value::Int(value, _) => u8::try_from(value).ok(),
            _ => None,
        };
        let Some(table) = table else {
            return self.refuse("the table of `lop3` must be below 256");
        };
        let (value, predicate) = self.builder.pair(d);
        let d = match self.builder.maybe_reg(value, ty, Fit::Same)? {
            Some(d) => d,
            None => self.builder.scratch(),
        };
        let op = Op::Ternary {
            op: Ternary::Lop3(table),
            ty,
            mode: Default::default(),
            d,
            a: self.builder.source(a, ty)?,
            b: self.builder.source(b, ty)?,
            c: self.builder.source(c, ty)?,
        };
        match (logic, predicate, with) {
            (None, None, []) => Ok(op),
            // Whether the result is not zero, joined with another predicate.
            (Some(logic), Some(p), [with]) => {
                let p = self.builder.pred(p)?;
                let with = self.builder.flag(with)?;
                let zero = self.builder.bits(0);
                self.part(op)?;
                Ok(Op::SetPredicate {
                    compare: Compare::Ne,
                    combine: Some((logic, with)),
                    ty,
                    flush: false,
                    p: Some(p),
                    q: None,
                    a: Source::Reg(d),
                    b: zero,
                })
            }
            _ => self.refuse("`lop3` needs an operation and a predicate for each other"),
        }
    }

    fn prmt(&mut self) -> Decoded {
        let mode = self.modifiers.one_of(&[
            ("f4e", Permute::F4e),
            ("b4e", Permute::B4e),
            ("rc8", Permute::Rc8),
            ("ecl", Permute::Ecl),
            ("ecr", Permute::Ecr),
            ("rc16", Permute::Rc16),
        ]);
        self.ternary(Ternary::Prmt(mode.unwrap_or(Permute::Index)), B32)
    }

    /// `dp4a`, or the given half of `dp2a`.
    fn dot(&mut self, high: Option<bool>) -> Decoded {
        let a_type = self.ty_of(&[Type::U32, Type::S32])?;
        let b_type = self.ty_of(&[Type::U32, Type::S32])?;
        let signed = [a_type.is_signed(), b_type.is_signed()];
        let [d, a, b, c] = self.operands()?;
        let op = match high {
            None => Ternary::Dp4a { signed },
            Some(high) => Ternary::Dp2a { high, signed },
        };
        Ok(Op::Ternary {
            op,
            ty: a_type,
            mode: Default::default(),
            d: self.builder.reg(d, Type::S32)?,
            a: self.builder.source(a, a_type)?,
            b: self.builder.source(b, b_type)?,
            c: self.builder.source(c, Type::S32)?,
        })
    }
}
