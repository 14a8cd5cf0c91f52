//! Arithmetic on integers and floating-point numbers.

use super::{Decoded, Decoder};
use crate::ir::Error;
use crate::ir::fit::Fit;
use crate::ir::op::{Binary, Carried, Op, Rounding, Ternary, Unary};
use crate::ptx::Type;

/// Types that most arithmetic knows.
const NUMBERS: &[Type] = &[
    Type::U16,
    Type::U32,
    Type::U64,
    Type::S16,
    Type::S32,
    Type::S64,
    Type::F16,
    Type::F16x2,
    Type::Bf16,
    Type::Bf16x2,
    Type::F32,
    Type::F64,
];

impl Decoder<'_, '_, '_, '_> {
    /// `None` where the opcode is none of these.
    pub(super) fn arithmetic(&mut self, opcode: &str) -> Option<Decoded> {
        Some(match opcode {
            "add" => self.add(Carried::Add, false),
            "addc" => self.add(Carried::Add, true),
            "sub" => self.add(Carried::Sub, false),
            "subc" => self.add(Carried::Sub, true),
            "mul" => self.mul(),
            "mad" => self.mad(false),
            "madc" => self.mad(true),
            "mul24" => self.mul24(),
            "mad24" => self.mad24(),
            "fma" => self.fma(),
            "div" => self.div(),
            "rem" => self.binary(Binary::Rem, &NUMBERS[..6]),
            "min" => self.extremum(Binary::Min, Ternary::Min3),
            "max" => self.extremum(Binary::Max, Ternary::Max3),
            "copysign" => self.copysign(),
            "sad" => self.ternary(Ternary::Sad, &NUMBERS[..6]),
            "abs" => self.unary(Unary::Abs, &NUMBERS[3..]),
            "neg" => self.unary(Unary::Neg, &NUMBERS[3..]),
            "rcp" => self.root(Unary::Rcp),
            "sqrt" => self.root(Unary::Sqrt),
            "rsqrt" => self.root(Unary::Rsqrt),
            "sin" => self.approximate(Unary::Sin),
            "cos" => self.approximate(Unary::Cos),
            "lg2" => self.approximate(Unary::Lg2),
            "ex2" => self.approximate(Unary::Ex2),
            "tanh" => self.approximate(Unary::Tanh),
            _ => return None,
        })
    }

    /// The type, which must be one of these.
    pub(super) fn ty_of(&mut self, known: &[Type]) -> Result<Type, Error> {
        let ty = self.modifiers.ty()?;
        match known.contains(&ty) {
            true => Ok(ty),
            false => self.refuse(format!("an operation on {ty} that is not supported")),
        }
    }

    pub(super) fn unary(&mut self, op: Unary, known: &[Type]) -> Decoded {
        let mode = self.modifiers.mode();
        let ty = self.ty_of(known)?;
        let [d, a] = self.operands()?;
        Ok(Op::Unary {
            op,
            ty,
            mode,
            d: match op {
                Unary::Bfind | Unary::BfindShift | Unary::Clz | Unary::Popc => {
                    self.builder.fitting_reg(d, Type::U32, Fit::Count)?
                }
                _ => self.builder.reg(d, ty)?,
            },
            a: self.builder.source(a, ty)?,
        })
    }

    pub(super) fn binary(&mut self, op: Binary, known: &[Type]) -> Decoded {
        let mode = self.modifiers.mode();
        let ty = self.ty_of(known)?;
        let to = match op {
            Binary::MulWide => wide(ty),
            _ => ty,
        };
        let [d, a, b] = self.operands()?;
        Ok(Op::Binary {
            op,
            ty,
            mode,
            d: self.builder.reg(d, to)?,
            a: self.builder.source(a, ty)?,
            b: self.builder.source(b, ty)?,
        })
    }

    pub(super) fn ternary(&mut self, op: Ternary, known: &[Type]) -> Decoded {
        let mode = self.modifiers.mode();
        let ty = self.ty_of(known)?;
        let [d, a, b, c] = self.operands()?;
        Ok(Op::Ternary {
            op,
            ty,
            mode,
            d: self.builder.reg(d, ty)?,
            a: self.builder.source(a, ty)?,
            b: self.builder.source(b, ty)?,
            c: self.builder.source(c, ty)?,
        })
    }

    /// `add` and `sub`, with or without a carry.
    fn add(&mut self, op: Carried, reads: bool) -> Decoded {
        let writes = self.modifiers.flag("cc");
        if reads || writes {
            let ty = self.ty_of(&[Type::U32, Type::S32, Type::U64, Type::S64])?;
            let [d, a, b] = self.operands()?;
            return Ok(Op::Carry {
                op,
                ty,
                reads,
                writes,
                carry: self.builder.carry(),
                d: self.builder.reg(d, ty)?,
                a: self.builder.source(a, ty)?,
                b: self.builder.source(b, ty)?,
                c: None,
            });
        }
        let op = match op {
            Carried::Sub => Binary::Sub,
            _ => Binary::Add,
        };
        let known = [NUMBERS, &[Type::U16x2, Type::S16x2, Type::F32x2]].concat();
        self.binary(op, &known)
    }

    fn mul(&mut self) -> Decoded {
        let op = self.modifiers.one_of(&[
            ("lo", Binary::Mul),
            ("hi", Binary::MulHi),
            ("wide", Binary::MulWide),
        ]);
        match op {
            Some(Binary::MulWide) => self.binary(
                Binary::MulWide,
                &[Type::U16, Type::U32, Type::S16, Type::S32],
            ),
            Some(op) => self.binary(op, &NUMBERS[..6]),
            None => self.binary(Binary::Mul, &[&NUMBERS[6..], &[Type::F32x2]].concat()),
        }
    }

    /// `mad`, which for floating point is `fma`.
    fn mad(&mut self, reads: bool) -> Decoded {
        let writes = self.modifiers.flag("cc");
        let half = self.modifiers.one_of(&[
            ("lo", Ternary::Mad),
            ("hi", Ternary::MadHi),
            ("wide", Ternary::MadWide),
        ]);
        if reads || writes {
            let op = match half {
                Some(Ternary::Mad) => Carried::MadLo,
                Some(Ternary::MadHi) => Carried::MadHi,
                _ => return self.refuse("`mad` with a carry needs `.lo` or `.hi`"),
            };
            let ty = self.ty_of(&[Type::U32, Type::S32, Type::U64, Type::S64])?;
            let [d, a, b, c] = self.operands()?;
            return Ok(Op::Carry {
                op,
                ty,
                reads,
                writes,
                carry: self.builder.carry(),
                d: self.builder.reg(d, ty)?,
                a: self.builder.source(a, ty)?,
                b: self.builder.source(b, ty)?,
                c: Some(self.builder.source(c, ty)?),
            });
        }
        match half {
            None => self.ternary(Ternary::Fma, &[Type::F32, Type::F64]),
            Some(Ternary::MadWide) => {
                let ty = self.ty_of(&[Type::U16, Type::U32, Type::S16, Type::S32])?;
                let wide = wide(ty);
                let [d, a, b, c] = self.operands()?;
                Ok(Op::Ternary {
                    op: Ternary::MadWide,
                    ty,
                    mode: Default::default(),
                    d: self.builder.reg(d, wide)?,
                    a: self.builder.source(a, ty)?,
                    b: self.builder.source(b, ty)?,
                    c: self.builder.source(c, wide)?,
                })
            }
            Some(op) => self.ternary(op, &NUMBERS[..6]),
        }
    }

    fn mul24(&mut self) -> Decoded {
        let op = self
            .modifiers
            .one_of(&[("lo", Binary::Mul24Lo), ("hi", Binary::Mul24Hi)]);
        match op {
            Some(op) => self.binary(op, &[Type::U32, Type::S32]),
            None => self.refuse("`mul24` needs `.lo` or `.hi`"),
        }
    }

    fn mad24(&mut self) -> Decoded {
        let op = self
            .modifiers
            .one_of(&[("lo", Ternary::Mad24Lo), ("hi", Ternary::Mad24Hi)]);
        match op {
            Some(op) => self.ternary(op, &[Type::U32, Type::S32]),
            None => self.refuse("`mad24` needs `.lo` or `.hi`"),
        }
    }

    fn fma(&mut self) -> Decoded {
        self.ternary(Ternary::Fma, &[&NUMBERS[6..], &[Type::F32x2]].concat())
    }

    fn div(&mut self) -> Decoded {
        if self.modifiers.flag("approx") {
            return self.binary(Binary::DivApprox, &[Type::F32]);
        }
        // Quotients are exact here, which is within what this allows.
        if self.modifiers.flag("full") {
            return self.binary(Binary::Div, &[Type::F32]);
        }
        self.binary(
            Binary::Div,
            &[&NUMBERS[..6], &[Type::F32, Type::F64]].concat(),
        )
    }

    /// `min` and `max` of two or three.
    fn extremum(&mut self, of_two: Binary, of_three: Ternary) -> Decoded {
        let known = [NUMBERS, &[Type::U16x2, Type::S16x2]].concat();
        match self.operands.len() {
            4 => self.ternary(of_three, &[Type::F32]),
            _ => self.binary(of_two, &known),
        }
    }

    fn copysign(&mut self) -> Decoded {
        // The sign comes first: `copysign d, a, b` has the sign of `a`.
        self.binary(Binary::CopySign, &[Type::F32, Type::F64])
    }

    /// `rcp`, `sqrt`, `rsqrt`: correctly rounded, or approximate.
    fn root(&mut self, op: Unary) -> Decoded {
        self.modifiers.flag("approx");
        let decoded = self.unary(op, &[Type::F32, Type::F64])?;
        match decoded {
            Op::Unary {
                mode,
                op: Unary::Rsqrt,
                ..
            } if mode.rounding != Rounding::Nearest => self.refuse("`rsqrt` is not rounded"),
            decoded => Ok(decoded),
        }
    }

    /// Operations that only have an approximate form.
    fn approximate(&mut self, op: Unary) -> Decoded {
        self.modifiers.flag("approx");
        let known: &[Type] = match op {
            Unary::Ex2 | Unary::Tanh => &NUMBERS[6..11],
            _ => &[Type::F32],
        };
        self.unary(op, known)
    }
}

/// Twice as many bits.
fn wide(ty: Type) -> Type {
    match ty {
        Type::U16 => Type::U32,
        Type::S16 => Type::S32,
        Type::U32 => Type::U64,
        _ => Type::S64,
    }
}
