//! What the threads of a warp do together.

use super::{Decoded, Decoder};
use crate::ir::fit::Fit;
use crate::ir::op::{Atomic, Op, Shuffle, Together, Vote};
use crate::ptx::Type;
use crate::ptx::ast::Expression;

impl<'a> Decoder<'a, '_, '_, '_> {
    pub(super) fn warp(&mut self, opcode: &str) -> Decoded {
        if opcode == "activemask" {
            self.modifiers.flag("b32");
            let [d] = self.operands()?;
            return Ok(Op::ActiveMask {
                d: self.builder.reg(d, Type::B32)?,
            });
        }
        if !self.modifiers.flag("sync") {
            return self.refuse(format!("`{opcode}` without `.sync` is not supported"));
        }
        match opcode {
            "elect" => self.elect(),
            "match" => self.matching(),
            "redux" => self.redux(),
            "shfl" => self.shfl(),
            _ => self.vote(),
        }
    }

    fn together(&mut self, what: Together, mask: &Expression<'a>) -> Decoded {
        Ok(Op::Together {
            mask: self.builder.count(mask)?,
            what: Box::new(what),
        })
    }

    fn elect(&mut self) -> Decoded {
        let [destination, mask] = self.operands()?;
        let (d, p) = self.builder.pair(destination);
        if p.is_none() {
            return self.refuse("`elect` gives a predicate too");
        }
        let what = Together::Elect {
            d: self.builder.maybe_reg(d, Type::B32, Fit::Count)?,
            p: match p {
                None => None,
                Some(p) => self.builder.maybe_pred(p)?,
            },
        };
        self.together(what, mask)
    }

    fn matching(&mut self) -> Decoded {
        let all = self.modifiers.one_of(&[("all", true), ("any", false)]);
        let ty = self.ty_of(&[Type::B32, Type::B64])?;
        let [destination, a, mask] = self.operands()?;
        let (d, p) = self.builder.pair(destination);
        let all = all == Some(true);
        if p.is_some() && !all {
            return self.refuse("`match.any` gives no predicate");
        }
        let what = Together::Match {
            all,
            bits: ty.bits() as u8,
            d: self.builder.fitting_reg(d, Type::B32, Fit::Count)?,
            p: match p {
                None => None,
                Some(p) => self.builder.maybe_pred(p)?,
            },
            a: self.builder.source(a, ty)?,
        };
        self.together(what, mask)
    }

    fn redux(&mut self) -> Decoded {
        let op = self.modifiers.one_of(&[
            ("add", Atomic::Add),
            ("and", Atomic::And),
            ("max", Atomic::Max),
            ("min", Atomic::Min),
            ("or", Atomic::Or),
            ("xor", Atomic::Xor),
        ]);
        let Some(op) = op else {
            return self.refuse("`redux` needs an operation");
        };
        let ty = self.ty_of(&[Type::B32, Type::U32, Type::S32])?;
        let [d, a, mask] = self.operands()?;
        let what = Together::Reduce {
            op,
            ty,
            d: self.builder.fitting_reg(d, ty, Fit::Count)?,
            a: self.builder.count(a)?,
        };
        self.together(what, mask)
    }

    fn shfl(&mut self) -> Decoded {
        let kind = self.modifiers.one_of(&[
            ("bfly", Shuffle::Bfly),
            ("down", Shuffle::Down),
            ("idx", Shuffle::Idx),
            ("up", Shuffle::Up),
        ]);
        let Some(kind) = kind else {
            return self.refuse("`shfl` needs a direction");
        };
        let ty = self.ty_of(&[Type::B32])?;
        let [destination, a, b, c, mask] = self.operands()?;
        let (d, p) = self.builder.pair(destination);
        let what = Together::Shuffle {
            kind,
            d: self.builder.maybe_reg(d, Type::B32, Fit::Same)?,
            p: match p {
                None => None,
                Some(p) => self.builder.maybe_pred(p)?,
            },
            a: self.builder.source(a, ty)?,
            b: self.builder.source(b, ty)?,
            c: self.builder.source(c, ty)?,
        };
        self.together(what, mask)
    }

    fn vote(&mut self) -> Decoded {
        let kind = self.modifiers.one_of(&[
            ("all", Vote::All),
            ("any", Vote::Any),
            ("ballot", Vote::Ballot),
            ("uni", Vote::Uniform),
        ]);
        let Some(kind) = kind else {
            return self.refuse("`vote` needs a question");
        };
        self.modifiers.flag("pred");
        self.modifiers.flag("b32");
        let [d, a, mask] = self.operands()?;
        let ballot = kind == Vote::Ballot;
        let what = Together::Vote {
            kind,
            d: match ballot {
                true => self.builder.maybe_reg(d, Type::B32, Fit::Same)?,
                false => None,
            },
            p: match ballot {
                true => None,
                false => self.builder.maybe_pred(d)?,
            },
            a: self.builder.flag(a)?,
        };
        self.together(what, mask)
    }
}
