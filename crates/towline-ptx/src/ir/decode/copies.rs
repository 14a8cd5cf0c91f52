//! Copies from global to shared memory that a thread need not wait for (`cp.async`). Here they are over at once, as a copy of a device may be;
//! so those that wait for them have nothing to wait for.

use super::{Decoded, Decoder};
use crate::ir::Space;
use crate::ir::op::{Address, Compare, Flag, Logic, Op, Order, Source};
use crate::ptx::Type;

impl Decoder<'_, '_, '_, '_> {
    pub(super) fn cp(&mut self) -> Decoded {
        if !self.modifiers.flag("async") {
            return self.refuse("of `cp` only `cp.async` is supported");
        }
        for other in ["bulk", "mbarrier"] {
            if self.modifiers.flag(other) {
                return self.refuse(format!("`cp.async.{other}` is not supported"));
            }
        }
        if self.modifiers.flag("commit_group") || self.modifiers.flag("wait_all") {
            return self.alone(Op::Nop);
        }
        if self.modifiers.flag("wait_group") {
            let [count] = self.operands()?;
            let count = self.builder.source(count, Type::U32)?;
            return match self.builder.known(count) {
                Some(_) => Ok(Op::Nop),
                None => self.refuse("`cp.async.wait_group` needs a number"),
            };
        }
        let operands = self.without_policy(3);
        let [to, from, bytes, size @ ..] = operands else {
            return self.refuse("`cp.async` needs two addresses and a number of bytes");
        };
        let to_shared = self.modifiers.flag("shared") || self.modifiers.flag("shared::cta");
        let from_global = self.modifiers.flag("global");
        let cached = self.modifiers.one_of(&[("ca", true), ("cg", false)]);
        self.modifiers.skip(|name| name.starts_with("L2::"));
        let bytes = self.builder.source(bytes, Type::U32)?;
        let bytes = match (cached, self.builder.known(bytes)) {
            (Some(_), Some(16)) => 16,
            (Some(true), Some(bytes @ (4 | 8))) => bytes,
            _ => return self.refuse("`cp.async.ca` copies 4, 8 or 16 bytes, `cp.async.cg` 16"),
        };
        if !(to_shared && from_global) {
            return self.refuse("`cp.async` copies from global to shared memory");
        }
        let to = self.builder.address(to, Space::Shared)?;
        let from = self.builder.address(from, Space::Global)?;
        let size = match size {
            [] => None,
            [size] => Some(self.builder.count(size)?),
            _ => return self.refuse("`cp.async` has other operands"),
        };
        match size.filter(|size| self.builder.known(*size) != Some(bytes)) {
            None => self.copy_whole(to, from, bytes),
            Some(size) => self.copy_start(to, from, bytes, size),
        }
    }

    fn copy_whole(&mut self, to: Address, from: Address, bytes: u64) -> Decoded {
        let (ty, count) = match bytes {
            4 => (Type::B32, 1),
            bytes => (Type::B64, bytes / 8),
        };
        let (order, polls) = (Order::Weak, false);
        let registers: Vec<_> = (0..count).map(|_| self.builder.scratch()).collect();
        if let [d] = registers[..] {
            self.part(Op::Load {
                space: Space::Global,
                ty,
                order,
                polls,
                d,
                address: from,
            })?;
            return Ok(Op::Store {
                space: Space::Shared,
                ty,
                order,
                address: to,
                a: Source::Reg(d),
            });
        }
        self.part(Op::LoadVector {
            space: Space::Global,
            ty,
            order,
            polls,
            d: registers.iter().map(|d| Some(*d)).collect(),
            address: from,
        })?;
        Ok(Op::StoreVector {
            space: Space::Shared,
            ty,
            order,
            address: to,
            a: registers.into_iter().map(Source::Reg).collect(),
        })
    }

    /// Copies as many bytes as a register says, at most; zeros follow. Nothing beyond those is read.
    fn copy_start(&mut self, to: Address, from: Address, bytes: u64, size: Source) -> Decoded {
        let zero = self.builder.bits(0);
        let mut registers = Vec::new();
        for at in 0..bytes {
            let (d, p) = (self.builder.scratch(), self.builder.scratch_flag());
            let at_bits = self.builder.bits(at);
            self.before(Op::SetPredicate {
                compare: Compare::Gt,
                combine: self.guard.map(|guard| (Logic::And, guard)),
                ty: Type::U32,
                flush: false,
                p: Some(p),
                q: None,
                a: size,
                b: at_bits,
            })?;
            self.before(Op::Mov { d, a: zero })?;
            let load = Op::Load {
                space: Space::Global,
                ty: Type::U8,
                order: Order::Weak,
                polls: false,
                d,
                address: beyond(from, at),
            };
            self.builder.emit(Some(Flag::Pred(p)), load)?;
            registers.push(d);
        }
        let mut stores = registers.into_iter().zip(0..).map(|(a, at)| Op::Store {
            space: Space::Shared,
            ty: Type::U8,
            order: Order::Weak,
            address: beyond(to, at),
            a: Source::Reg(a),
        });
        let first = stores.next().expect("some bytes are copied");
        stores.try_for_each(|store| self.part(store))?;
        Ok(first)
    }
}

fn beyond(address: Address, bytes: u64) -> Address {
    Address {
        offset: address.offset.wrapping_add(bytes.cast_signed()),
        ..address
    }
}
