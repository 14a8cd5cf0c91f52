//! Copies from global to shared memory that a thread need not wait for (`cp.async`). Here they are over at once, as a copy of a device may be;
//! so those that wait for them have nothing to wait for.

use super::{Decoded, Decoder};
use crate::ir::op::{
    Address, Arrival, Atomic, Binary, Compare, Flag, Logic, Mode, Op, Order, Reg, Source,
};
use crate::ir::{Error, Space};
use crate::ptx::Type;

impl Decoder<'_, '_, '_, '_> {
    pub(super) fn cp(&mut self) -> Decoded {
        if !self.modifiers.flag("async") {
            return self.refuse("of `cp` only `cp.async` is supported");
        }
        if self.modifiers.flag("bulk") {
            return self.bulk();
        }
        if self.modifiers.has("mbarrier") {
            return self.copies_arrive();
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
            [ignore] if self.builder.is_predicate(ignore) => {
                let (d, p) = (self.builder.scratch(), self.builder.flag(ignore)?);
                let (a, b) = (self.builder.bits(0), self.builder.bits(bytes));
                self.before(Op::Select { d, a, b, p })?;
                Some(Source::Reg(d))
            }
            [size] => Some(self.builder.count(size)?),
            _ => return self.refuse("`cp.async` has other operands"),
        };
        match size.filter(|size| self.builder.known(*size) != Some(bytes)) {
            None => self.copy_whole(to, from, bytes),
            Some(size) => self.copy_start(to, from, bytes, size),
        }
    }

    /// `cp.async.bulk`: a multiple of 16 bytes between global and shared memory. A loop copies them, at once.
    fn bulk(&mut self) -> Decoded {
        if self.modifiers.flag("commit_group") {
            return self.alone(Op::Nop);
        }
        if self.modifiers.flag("wait_group") {
            self.modifiers.flag("read");
            let [count] = self.operands()?;
            let count = self.builder.source(count, Type::U32)?;
            return match self.builder.known(count) {
                Some(_) => Ok(Op::Nop),
                None => self.refuse("`cp.async.bulk.wait_group` needs a number"),
            };
        }
        for other in ["tensor", "multicast::cluster", "cp_mask"] {
            if self.modifiers.has(other) {
                return self.refuse(format!("`cp.async.bulk.{other}` is not supported"));
            }
        }
        if self.modifiers.flag("prefetch") {
            return self.bulk_prefetch();
        }
        let mut spaces = [Space::Generic; 2];
        for place in &mut spaces {
            *place = self.modifiers.space();
        }
        let counted = self.modifiers.flag("mbarrier::complete_tx::bytes");
        let grouped = self.modifiers.flag("bulk_group");
        let known = match spaces {
            [Space::Shared, Space::Global | Space::Shared] => counted && !grouped,
            [Space::Global, Space::Shared] => grouped && !counted,
            _ => false,
        };
        let operands = self.without_policy(3);
        let (to, from, size, barrier) = match operands {
            [to, from, size, barrier] if known && counted => (to, from, size, Some(barrier)),
            [to, from, size] if known && !counted => (to, from, size, None),
            _ => return self.refuse("there is no such `cp.async.bulk`"),
        };
        let addresses = [
            self.builder.address(to, spaces[0])?,
            self.builder.address(from, spaces[1])?,
        ];
        let bytes = self.builder.count(size)?;
        let done = match barrier {
            None => Op::Nop,
            Some(barrier) => {
                let space = Space::Shared;
                let address = self.builder.address(barrier, space)?;
                completed(space, address, bytes)
            }
        };
        self.copy_loop(spaces, addresses, bytes)?;
        Ok(done)
    }

    /// `cp.async.bulk.prefetch`, a hint.
    fn bulk_prefetch(&mut self) -> Decoded {
        let is_known = self.modifiers.flag("L2") && self.modifiers.space() == Space::Global;
        let operands = self.without_policy(2);
        let [from, size] = operands else {
            return self.refuse("`cp.async.bulk.prefetch` needs an address and a number of bytes");
        };
        if !is_known {
            return self.refuse("`cp.async.bulk.prefetch` is for L2 and global memory");
        }
        self.builder.address(from, Space::Global)?;
        self.builder.count(size)?;
        Ok(Op::Nop)
    }

    /// `createpolicy`: a value for hints to caches, which change nothing here, and so any.
    pub(super) fn policy(&mut self) -> Decoded {
        let form = self
            .modifiers
            .one_of(&[("range", 'r'), ("fractional", 'f'), ("cvt", 'c')]);
        self.modifiers.flag("global");
        self.modifiers
            .skip(|name| name == "L2" || name.starts_with("L2::evict_"));
        let ty = self.ty_of(&[Type::B64])?;
        let [d, operands @ ..] = self.operands else {
            return self.refuse("`createpolicy` needs a register");
        };
        match (form, operands) {
            (Some('r'), [address, primary, total]) => {
                self.builder.address(address, Space::Generic)?;
                self.builder.count(primary)?;
                self.builder.count(total)?;
            }
            (Some('f'), []) => {}
            (Some('f'), [fraction]) => {
                self.builder.source(fraction, Type::F32)?;
            }
            (Some('c'), [property]) => {
                self.builder.source(property, ty)?;
            }
            _ => return self.refuse("there is no such `createpolicy`"),
        }
        Ok(Op::Mov {
            d: self.builder.reg(d, ty)?,
            a: self.builder.bits(0),
        })
    }

    /// Copies 16 bytes at a time, from the first to the last.
    fn copy_loop(
        &mut self,
        spaces: [Space; 2],
        addresses: [Address; 2],
        bytes: Source,
    ) -> Result<(), Error> {
        let zero = self.builder.bits(0);
        let [at, low, high] = [(); 3].map(|()| self.builder.scratch());
        let more = self.builder.scratch_flag();
        let [start, end] = [(); 2].map(|()| self.builder.fresh_label());
        self.before(Op::Mov { d: at, a: zero })?;
        self.builder.place_label(start);
        self.before(Op::SetPredicate {
            compare: Compare::Lt,
            combine: self.guard.map(|guard| (Logic::And, guard)),
            ty: Type::U32,
            flush: false,
            p: Some(more),
            q: None,
            a: Source::Reg(at),
            b: bytes,
        })?;
        let leave = Op::Branch { target: end };
        self.builder.emit(Some(Flag::Not(more)), leave)?;
        let mut places = addresses;
        for place in &mut places {
            let d = self.builder.scratch();
            self.before(sum(d, place.base, Source::Reg(at)))?;
            place.base = Source::Reg(d);
        }
        let (ty, order) = (Type::B64, Order::Weak);
        self.before(Op::LoadVector {
            space: spaces[1],
            ty,
            order,
            polls: false,
            d: Box::new([Some(low), Some(high)]),
            address: places[1],
        })?;
        self.before(Op::StoreVector {
            space: spaces[0],
            ty,
            order,
            address: places[0],
            a: Box::new([Source::Reg(low), Source::Reg(high)]),
        })?;
        let step = self.builder.bits(16);
        self.before(sum(at, Source::Reg(at), step))?;
        self.before(Op::Branch { target: start })?;
        self.builder.place_label(end);
        Ok(())
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

fn sum(d: Reg, a: Source, b: Source) -> Op {
    Op::Binary {
        op: Binary::Add,
        ty: Type::U64,
        mode: Mode::default(),
        d,
        a,
        b,
    }
}

/// Bytes have come that a barrier in memory waits for.
fn completed(space: Space, address: Address, bytes: Source) -> Op {
    Op::Atomic {
        op: Atomic::Mbarrier(Arrival::Complete),
        space,
        ty: Type::B64,
        d: None,
        address,
        a: bytes,
        b: None,
    }
}

fn beyond(address: Address, bytes: u64) -> Address {
    Address {
        offset: address.offset.wrapping_add(bytes.cast_signed()),
        ..address
    }
}
