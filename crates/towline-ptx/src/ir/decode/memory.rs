//! Loads, stores, atomic operations and fences.

use super::{Decoded, Decoder};
use crate::ir::Error;
use crate::ir::fit::Fit;
use crate::ir::op::{Atomic, Op, Order, Space};
use crate::ptx::Type;
use crate::ptx::ast::Expression;

/// A hint for caches, which changes nothing that a program can see.
fn is_cache_hint(name: &str) -> bool {
    matches!(
        name,
        "ca" | "cg" | "cs" | "lu" | "cv" | "wb" | "wt" | "nc" | "level::eviction_priority"
    ) || name.starts_with("L1::")
        || name.starts_with("L2::")
}

impl<'a, 'i> Decoder<'a, 'i, '_, '_> {
    /// Elements of a vector access.
    fn vector(&mut self) -> usize {
        self.modifiers
            .one_of(&[("v2", 2), ("v4", 4), ("v8", 8)])
            .unwrap_or(1)
    }

    fn memory_type(&mut self) -> Result<Type, Error> {
        let ty = self.modifiers.ty()?;
        match ty {
            Type::B128 | Type::Pred => {
                self.refuse(format!("an access to memory of type {ty} is not supported"))
            }
            ty => Ok(ty),
        }
    }

    /// The operands without a cache policy at their end.
    pub(super) fn without_policy(&mut self, least: usize) -> &'i [Expression<'a>] {
        let hinted = self.modifiers.flag("L2::cache_hint");
        match self.operands {
            [operands @ .., _] if hinted && operands.len() >= least => operands,
            operands => operands,
        }
    }

    /// Vectors of 256 bits are of global memory alone.
    fn check_vector(&self, space: Space, ty: Type, count: usize) -> Result<(), Error> {
        match count as u64 * ty.bytes() {
            0..=16 => Ok(()),
            32 if matches!(space, Space::Global | Space::Generic) => Ok(()),
            _ => self.refuse(format!(
                "there are no vectors of {count} {ty} in {space} memory"
            )),
        }
    }

    pub(super) fn parts<'e>(
        &self,
        operand: &'e Expression<'a>,
        count: usize,
    ) -> Result<&'e [Expression<'a>], Error> {
        match operand {
            Expression::Vector(parts) if parts.len() == count => Ok(parts),
            _ => self.refuse(format!("{count} registers in braces must stand here")),
        }
    }

    pub(super) fn ld(&mut self) -> Decoded {
        let operands = self.without_policy(2);
        let (mut order, mut polls) = self.modifiers.order();
        let space = self.modifiers.space();
        // Fetched again each time: a look at what others may change.
        let changes = matches!(space, Space::Generic | Space::Global | Space::Shared);
        if self.modifiers.flag("cv") && changes && order == Order::Weak {
            (order, polls) = (Order::Relaxed, true);
        }
        self.modifiers.skip(is_cache_hint);
        let count = self.vector();
        let ty = self.memory_type()?;
        let [d, address] = operands else {
            return self.refuse("`ld` needs a register and an address");
        };
        let address = self.builder.address(address, space)?;
        if count == 1 {
            let d = match d {
                Expression::Vector(one) if one.len() == 1 => &one[0],
                other => other,
            };
            return Ok(Op::Load {
                space,
                ty,
                order,
                polls,
                d: self.builder.fitting_reg(d, ty, Fit::Wide)?,
                address,
            });
        }
        self.check_vector(space, ty, count)?;
        let parts = self.parts(d, count)?;
        let d: Result<Box<[_]>, _> = parts
            .iter()
            .map(|part| self.builder.maybe_reg(part, ty, Fit::WideElement))
            .collect();
        Ok(Op::LoadVector {
            space,
            ty,
            order,
            polls,
            d: d?,
            address,
        })
    }

    pub(super) fn st(&mut self) -> Decoded {
        let operands = self.without_policy(2);
        if self.modifiers.flag("async") {
            return self.refuse("`st.async` is not supported");
        }
        let (order, _) = self.modifiers.order();
        let space = self.modifiers.space();
        self.modifiers.skip(is_cache_hint);
        let count = self.vector();
        let ty = self.memory_type()?;
        let [address, a] = operands else {
            return self.refuse("`st` needs an address and a value");
        };
        let address = self.builder.address(address, space)?;
        if count == 1 {
            let a = match a {
                Expression::Vector(one) if one.len() == 1 => &one[0],
                other => other,
            };
            return Ok(Op::Store {
                space,
                ty,
                order,
                address,
                a: self.builder.fitting_source(a, ty, Fit::Wide)?,
            });
        }
        self.check_vector(space, ty, count)?;
        let parts = self.parts(a, count)?;
        let a: Result<Box<[_]>, _> = parts
            .iter()
            .map(|part| self.builder.fitting_source(part, ty, Fit::WideElement))
            .collect();
        Ok(Op::StoreVector {
            space,
            ty,
            order,
            address,
            a: a?,
        })
    }

    /// `atom`, or `red`, which has no result.
    pub(super) fn atom(&mut self, no_result: bool) -> Decoded {
        let operands = self.without_policy(2);
        if self.modifiers.flag("async") {
            return self.refuse("`red.async` is not supported");
        }
        self.modifiers.order();
        let space = self.modifiers.space();
        let op = self.modifiers.one_of(&[
            ("add", Atomic::Add),
            ("and", Atomic::And),
            ("cas", Atomic::Cas),
            ("dec", Atomic::Dec),
            ("exch", Atomic::Exch),
            ("inc", Atomic::Inc),
            ("max", Atomic::Max),
            ("min", Atomic::Min),
            ("or", Atomic::Or),
            ("xor", Atomic::Xor),
        ]);
        let Some(op) = op else {
            return self.refuse("an atomic operation must be named");
        };
        // Subnormal numbers are kept or not as the memory does it.
        self.modifiers.flag("noftz");
        if self.vector() != 1 {
            return self.refuse("atomic operations on vectors are not supported");
        }
        let ty = self.memory_type()?;
        self.check_atomic(op, ty)?;
        let (d, operands) = match operands {
            operands if no_result => (None, operands),
            [d, rest @ ..] => (self.builder.maybe_reg(d, ty, Fit::Same)?, rest),
            [] => return self.refuse("`atom` needs a destination"),
        };
        let (address, a, b) = match (op, operands) {
            (Atomic::Cas, [address, a, b]) => (address, a, Some(b)),
            (Atomic::Cas, _) => return self.refuse("`cas` needs two values"),
            (_, [address, a]) => (address, a, None),
            _ => return self.refuse("an atomic operation needs an address and a value"),
        };
        if matches!(space, Space::Const | Space::Local | Space::Param) {
            return self.refuse(format!("atomic operations do not work in {space} memory"));
        }
        Ok(Op::Atomic {
            op,
            space,
            ty,
            d,
            address: self.builder.address(address, space)?,
            a: self.builder.source(a, ty)?,
            b: match b {
                None => None,
                Some(b) => Some(self.builder.source(b, ty)?),
            },
        })
    }

    fn check_atomic(&self, op: Atomic, ty: Type) -> Result<(), Error> {
        let integer = matches!(
            ty,
            Type::B32 | Type::B64 | Type::U32 | Type::U64 | Type::S32 | Type::S64
        );
        let known = match op {
            Atomic::Add => integer || ty.is_float() && ty != Type::Tf32 && ty != Type::F32x2,
            Atomic::Max | Atomic::Min => {
                integer || matches!(ty, Type::F16 | Type::F16x2 | Type::Bf16 | Type::Bf16x2)
            }
            Atomic::Cas | Atomic::Exch => integer || ty == Type::B16,
            Atomic::Inc | Atomic::Dec => ty == Type::U32,
            Atomic::And | Atomic::Or | Atomic::Xor => integer,
            Atomic::Mbarrier(_) => false,
        };
        match known {
            true => Ok(()),
            false => self.refuse(format!("an atomic operation on {ty} that is not supported")),
        }
    }

    pub(super) fn fence(&mut self, opcode: &str) -> Decoded {
        if self.modifiers.flag("proxy") {
            // Here all accesses are of one kind, and copies are over at once.
            let known = self.modifiers.one_of(&[("alias", ()), ("async", ())]);
            if known.is_none() {
                return self.refuse(format!("this `{opcode}.proxy` is not supported"));
            }
            self.modifiers.space();
        }
        self.modifiers.flag("mbarrier_init");
        let weak = self.modifiers.flag("acq_rel");
        self.modifiers.skip(|name| {
            matches!(
                name,
                "sc" | "acquire" | "release" | "cta" | "cluster" | "gpu" | "gl" | "sys"
            )
        });
        self.alone(Op::Fence { strong: !weak })
    }
}
