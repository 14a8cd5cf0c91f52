//! Memory accesses: a comparison with what is known to be allocated, and a helper where that does not hold.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{self, AtomicRmwOp, InstBuilder, MemFlags, Value, types};
use towline_ptx::ir::Space;
use towline_ptx::ir::op::{Address, Atomic, Op, Order, Reg, Source};
use towline_ptx::ptx::Type;

use super::emit::{Emitter, Form, Kind, Site, vector_of};
use super::head::{Slot, offset, shared_count};
use super::live::Class;
use super::operands;
use super::shapes::QUAD;
use super::{HELPER_COST, Refusal};

/// An access to memory.
#[derive(Debug, Clone, Copy)]
struct Access {
    space: Space,
    address: Address,
    /// Of all its parts, which must be aligned to that.
    bytes: u64,
    write: bool,
}

impl Emitter<'_, '_> {
    pub(super) fn memory(&mut self, op: &Op) -> Result<(), Refusal> {
        match op {
            Op::Load {
                space,
                ty,
                order,
                polls,
                d,
                address,
            } => self.load(*space, *ty, *order, *polls, &[Some(*d)], *address),
            Op::LoadVector {
                space,
                ty,
                order,
                polls,
                d,
                address,
            } => self.load(*space, *ty, *order, *polls, d, *address),
            Op::Store {
                space,
                ty,
                order,
                address,
                a,
            } => self.store(*space, *ty, *order, *address, &[*a]),
            Op::StoreVector {
                space,
                ty,
                order,
                address,
                a,
            } => self.store(*space, *ty, *order, *address, a),
            Op::Atomic {
                op,
                space,
                ty,
                d,
                address,
                a,
                b,
            } => {
                // Whoever does not look at the result waits for nothing.
                if d.is_some_and(|d| self.read.contains(&d.0)) {
                    self.polled();
                }
                self.atomic((*op, *space, *ty), *d, *address, *a, *b);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn load(
        &mut self,
        space: Space,
        ty: Type,
        order: Order,
        polls: bool,
        d: &[Option<Reg>],
        address: Address,
    ) -> Result<(), Refusal> {
        if polls {
            if matches!(space, Space::Shared | Space::Generic) {
                return Err(Refusal::InStep);
            }
            self.polled();
        }
        let width = ty.bytes();
        let access = Access {
            space,
            address,
            bytes: (width * d.len() as u64).next_power_of_two(),
            write: false,
        };
        let at = self.place(access);
        // What a kernel was launched with does not change.
        let flags = MemFlags::new().with_notrap();
        let flags = match self.parameter(access) {
            Some(_) => flags.with_readonly().with_can_move(),
            None => flags,
        };
        let ordered = polls || order != Order::Weak;
        for (index, d) in d.iter().enumerate() {
            let Some(d) = d else {
                continue;
            };
            let offset = (width * index as u64) as i32;
            self.load_one(*d, ty, ordered, flags, at, offset);
        }
        Ok(())
    }

    fn load_one(
        &mut self,
        d: Reg,
        ty: Type,
        ordered: bool,
        flags: MemFlags,
        at: Value,
        offset: i32,
    ) {
        let width = ty.bytes();
        let kind = self.moved_as(d);
        let host = match (width, kind) {
            (8, Kind::F64) if !ordered => Kind::F64,
            (8, _) => Kind::I64,
            (4, Kind::F32) if !ordered => Kind::F32,
            _ => Kind::I32,
        };
        let value = match (width, ordered) {
            (1, false) if ty.is_signed() => self.b.ins().sload8(types::I32, flags, at, offset),
            (1, false) => self.b.ins().uload8(types::I32, flags, at, offset),
            (2, false) if ty.is_signed() => self.b.ins().sload16(types::I32, flags, at, offset),
            (2, false) => self.b.ins().uload16(types::I32, flags, at, offset),
            (_, false) => self.b.ins().load(host.ty(), flags, at, offset),
            (width, true) => {
                let at = self.b.ins().iadd_imm(at, i64::from(offset));
                let plain = integer_of(width);
                let value = self.b.ins().atomic_load(plain, flags, at);
                match (width, ty.is_signed()) {
                    (1 | 2, true) => self.b.ins().sextend(types::I32, value),
                    (1 | 2, false) => self.b.ins().uextend(types::I32, value),
                    _ => value,
                }
            }
        };
        match host == Kind::I32 && ty.is_signed() {
            true => self.set_signed(d, value),
            false => self.set(d, value, host),
        }
    }

    fn store(
        &mut self,
        space: Space,
        ty: Type,
        order: Order,
        address: Address,
        sources: &[Source],
    ) -> Result<(), Refusal> {
        let width = ty.bytes();
        let at = self.place(Access {
            space,
            address,
            bytes: (width * sources.len() as u64).next_power_of_two(),
            write: true,
        });
        let flags = MemFlags::new().with_notrap();
        for (index, source) in sources.iter().enumerate() {
            let offset = (width * index as u64) as i32;
            self.store_one(*source, width, order != Order::Weak, flags, at, offset);
        }
        Ok(())
    }

    fn store_one(
        &mut self,
        source: Source,
        width: u64,
        ordered: bool,
        flags: MemFlags,
        at: Value,
        offset: i32,
    ) {
        let kind = match (width, source) {
            (8, Source::Reg(reg)) if !ordered && self.moved_as(reg) == Kind::F64 => Kind::F64,
            (8, _) => Kind::I64,
            (4, Source::Reg(reg)) if !ordered && self.moved_as(reg) == Kind::F32 => Kind::F32,
            _ => Kind::I32,
        };
        let value = self.get_exact(source, kind);
        match (width, ordered) {
            (1, false) => self.b.ins().istore8(flags, value, at, offset),
            (2, false) => self.b.ins().istore16(flags, value, at, offset),
            (_, false) => self.b.ins().store(flags, value, at, offset),
            (width, true) => {
                let at = self.b.ins().iadd_imm(at, i64::from(offset));
                let value = match width {
                    1 => self.b.ins().ireduce(types::I8, value),
                    2 => self.b.ins().ireduce(types::I16, value),
                    _ => value,
                };
                self.b.ins().atomic_store(flags, value, at)
            }
        };
    }

    /// How far apart four lanes access memory, if that is known and their accesses can be checked as one.
    pub(super) fn across(&self, op: &Op) -> Option<i64> {
        let (space, bytes, address) = match op {
            Op::Load {
                space,
                ty,
                order: Order::Weak,
                polls: false,
                address,
                ..
            }
            | Op::Store {
                space,
                ty,
                order: Order::Weak,
                address,
                ..
            } => (*space, ty.bytes(), address),
            Op::LoadVector {
                space,
                ty,
                order: Order::Weak,
                polls: false,
                d,
                address,
            } => (*space, ty.bytes() * d.len() as u64, address),
            Op::StoreVector {
                space,
                ty,
                order: Order::Weak,
                a,
                address,
            } => (*space, ty.bytes() * a.len() as u64, address),
            _ => return None,
        };
        let stride = self.shapes.source(self.flat, address.base).stride()?;
        // Addresses of 64 bits do not go on at 0 beyond 32 bits.
        let is_wide = match address.base {
            Source::Reg(reg) => self.class(reg) == Class::I64,
            Source::Constant(_) => false,
        };
        let whole = stride % bytes.next_power_of_two() as i64 == 0;
        match space {
            Space::Global | Space::Const => (is_wide && whole && stride != 0).then_some(stride),
            Space::Shared => (whole && stride != 0).then_some(stride),
            // At the same offset in the memory of each.
            Space::Local => (stride == 0).then_some(0),
            _ => None,
        }
    }

    /// Accesses of four lanes, with one check for all.
    pub(super) fn access_across(&mut self, op: &Op, stride: i64) -> Result<(), Refusal> {
        let [_, local] = self.flat.shares();
        let flags = MemFlags::new().with_notrap();
        let (space, ty, address) = match op {
            Op::Load {
                space, ty, address, ..
            }
            | Op::LoadVector {
                space, ty, address, ..
            }
            | Op::Store {
                space, ty, address, ..
            }
            | Op::StoreVector {
                space, ty, address, ..
            } => (*space, *ty, *address),
            _ => return Ok(()),
        };
        let (loaded, stored): (&[Option<Reg>], &[Source]) = match op {
            Op::Load { d, .. } => (&[Some(*d)], &[]),
            Op::LoadVector { d, .. } => (d, &[]),
            Op::Store { a, .. } => (&[], &[*a]),
            Op::StoreVector { a, .. } => (&[], a),
            _ => (&[], &[]),
        };
        let width = ty.bytes();
        let parts = loaded.len().max(stored.len()) as u64;
        self.across = Some(stride);
        let at = self.place(Access {
            space,
            address,
            bytes: (width * parts).next_power_of_two(),
            write: loaded.is_empty(),
        });
        self.across = None;
        let apart = match space {
            Space::Local => local as i64,
            _ => stride,
        };
        if width == 4 && apart == 4 {
            match (loaded, stored) {
                ([Some(d)], _) if self.is_vector(d.0) => {
                    let kind = self.moved_as(*d);
                    let value = self.b.ins().load(vector_of(kind.ty()), flags, at, 0);
                    self.for_four(|this| this.set(*d, value, kind));
                    return Ok(());
                }
                (_, [source]) if self.in_vectors(*source) => {
                    let kind = match source {
                        Source::Reg(reg) if self.moved_as(*reg) == Kind::F32 => Kind::F32,
                        _ => Kind::I32,
                    };
                    let value = self.for_four(|this| this.get_exact(*source, kind));
                    self.b.ins().store(flags, value, at, 0);
                    return Ok(());
                }
                _ => {}
            }
        }
        let outs: Vec<u32> = loaded.iter().flatten().map(|d| d.0).collect();
        let vectors: Vec<u32> = outs.into_iter().filter(|d| self.is_vector(*d)).collect();
        self.each_lane(&vectors, false, |this| {
            let Form::One(part) = this.form else {
                return Ok(());
            };
            let lane = (apart * part as i64) as i32;
            for (index, d) in (0..).zip(loaded) {
                if let Some(d) = d {
                    this.load_one(*d, ty, false, flags, at, lane + index * width as i32);
                }
            }
            for (index, source) in (0..).zip(stored) {
                this.store_one(
                    *source,
                    width,
                    false,
                    flags,
                    at,
                    lane + index * width as i32,
                );
            }
            Ok(())
        })
    }

    /// Whether a value of 32 bits can be read as a vector.
    pub(super) fn in_vectors(&self, source: Source) -> bool {
        match source {
            Source::Reg(reg) => self.is_vector(reg.0) || self.shapes.register(reg.0).is_same(),
            Source::Constant(_) => true,
        }
    }

    /// The host's address of an access: of the first lane's, where it is one of four.
    fn place(&mut self, access: Access) -> Value {
        let whose = match (self.across, self.form) {
            (None, Form::One(part)) => part,
            _ => QUAD,
        };
        if let Some((first, away)) = self.checked.get(&self.at)
            && let Some(start) = self.run_at.get(&(*first, whose))
        {
            return self.b.ins().iadd_imm(*start, *away);
        }
        let host = self.checked_place(access);
        if self.outline.runs.contains_key(&self.at) {
            self.run_at.insert((self.at, whose), host);
        }
        host
    }

    /// The lowest address of what is checked at once, from the first lane's first, and the bytes of it: of the run that starts here, or
    /// of this access, of one lane or four.
    fn reach(&self, access: Access) -> (i64, u64) {
        let run = self.outline.runs.get(&self.at);
        let (lowest, extent) = run.map_or((0, access.bytes), |run| (run.lowest, run.extent));
        let span = self.across.unwrap_or(0) * (QUAD as i64 - 1);
        (lowest + span.min(0), extent + span.unsigned_abs())
    }

    /// Where the kernel's own parameters are read, if it is known which.
    fn parameter(&self, access: Access) -> Option<i64> {
        let step = &self.flat.steps[self.at as usize];
        if access.space != Space::Param || access.write || !step.outermost {
            return None;
        }
        let base = self.known(access.address.base)?;
        let at = base.wrapping_add(access.address.offset as u64) & 0xffff_ffff;
        (at + access.bytes <= self.flat.kernel_bytes.into()).then_some(at as i64)
    }

    fn checked_place(&mut self, access: Access) -> Value {
        if let Some(at) = self.parameter(access) {
            let parameters = self.constant_load(types::I64, offset!(parameters));
            return self.b.ins().iadd_imm(parameters, at);
        }
        let step = &self.flat.steps[self.at as usize];
        match access.space {
            Space::Param => {
                let base = self.known(access.address.base);
                let at = base.map(|base| base.wrapping_add(access.address.offset as u64));
                let at = at.map(|at| at & 0xffff_ffff);
                let end = at.map(|at| at + access.bytes);
                let (start, len) = step.parameters;
                match (at, end) {
                    (Some(at), Some(end)) if end <= len.into() && at % access.bytes == 0 => {
                        let base = self.argument_base;
                        self.b.ins().iadd_imm(base, (u64::from(start) + at) as i64)
                    }
                    _ => {
                        let address = self.address(access.address);
                        self.asked(access, address)
                    }
                }
            }
            Space::Shared => {
                let base = self.constant_load(types::I64, offset!(shared));
                let count = self.constant_load(types::I64, shared_count(access.bytes));
                self.within(access, base, count)
            }
            Space::Local => {
                let count = u64::from(self.flat.local_bytes) / access.bytes;
                let count = self.b.ins().iconst(types::I64, count as i64);
                let base = self.local_base;
                self.within(access, base, count)
            }
            Space::Const | Space::Generic | Space::Global => self.remembered(access),
        }
    }

    fn address(&mut self, address: Address) -> Value {
        let base = self.get(address.base, Kind::I64);
        match address.offset {
            0 => base,
            offset => self.b.ins().iadd_imm(base, offset),
        }
    }

    /// Whole accesses below an offset, if it is aligned; otherwise a number beyond all counts.
    fn whole(&mut self, offset: Value, bytes: u64) -> Value {
        match bytes {
            1 => offset,
            bytes => self
                .b
                .ins()
                .rotr_imm(offset, i64::from(bytes.trailing_zeros())),
        }
    }

    /// An access at an offset of 32 bits in memory that lies in one piece.
    fn within(&mut self, access: Access, base: Value, count: Value) -> Value {
        let offset = self.get_exact(access.address.base, Kind::I32);
        let more = i64::from(access.address.offset as u32);
        let offset = match more {
            0 => offset,
            more => self.b.ins().iadd_imm(offset, more),
        };
        let (lowest, extent) = self.reach(access);
        let start = match lowest {
            0 => offset,
            lowest => self.b.ins().iadd_imm(offset, lowest),
        };
        let (offset, start) = (
            self.b.ins().uextend(types::I64, offset),
            self.b.ins().uextend(types::I64, start),
        );
        let whole = self.whole(start, access.bytes);
        // Of 32 bits, turned or not, this does not overflow.
        let last = match extent / access.bytes - 1 {
            0 => whole,
            more => self.b.ins().iadd_imm(whole, more as i64),
        };
        let inside = self.b.ins().icmp(IntCC::UnsignedLessThan, last, count);
        let (on, slow) = (self.b.create_block(), self.b.create_block());
        self.b.ins().brif(inside, on, &[], slow, &[]);
        self.b.switch_to_block(slow);
        self.b.set_cold_block(slow);
        self.asked(access, offset);
        self.b.ins().jump(on, &[]);
        self.b.switch_to_block(on);
        self.b.ins().iadd(base, offset)
    }

    /// An access where the last one from here went, if it did.
    fn remembered(&mut self, access: Access) -> Value {
        let address = self.address(access.address);
        let at = (self.outline.sites.len() * size_of::<Slot>()) as i32;
        let slots = self.constant_load(types::I64, offset!(slots));
        let flags = MemFlags::trusted();
        let base = self.b.ins().load(types::I64, flags, slots, at);
        let count = self.b.ins().load(types::I64, flags, slots, at + 8);
        let (lowest, _) = self.reach(access);
        let offset = self.b.ins().isub(address, base);
        let offset = match lowest {
            0 => offset,
            lowest => self.b.ins().iadd_imm(offset, lowest),
        };
        let whole = self.whole(offset, access.bytes);
        let inside = self.b.ins().icmp(IntCC::UnsignedLessThan, whole, count);
        let (fast, slow, on) = (
            self.b.create_block(),
            self.b.create_block(),
            self.b.create_block(),
        );
        if access.space != Space::Generic {
            // Global memory has the host's addresses.
            self.b.ins().brif(inside, on, &[], slow, &[]);
            self.b.switch_to_block(fast);
            self.b.ins().jump(on, &[]);
            self.b.switch_to_block(slow);
            self.b.set_cold_block(slow);
            self.asked(access, address);
            self.b.ins().jump(on, &[]);
            self.b.switch_to_block(on);
            return address;
        }
        let host = self.b.append_block_param(on, types::I64);
        self.b.ins().brif(inside, fast, &[], slow, &[]);
        self.b.switch_to_block(fast);
        let shift = self.b.ins().load(types::I64, flags, slots, at + 16);
        let near = self.b.ins().iadd(address, shift);
        self.b.ins().jump(on, &[near.into()]);
        self.b.switch_to_block(slow);
        self.b.set_cold_block(slow);
        let far = self.asked(access, address);
        self.b.ins().jump(on, &[far.into()]);
        self.b.switch_to_block(on);
        host
    }

    /// Asks a helper for the host's address: it remembers what it finds, or the thread has failed.
    fn asked(&mut self, access: Access, address: Value) -> Value {
        let site = self.outline.sites.len() as u32;
        let (_, extent) = self.reach(access);
        self.outline.sites.push(Site {
            step: self.at,
            bytes: access.bytes as u32,
            is_run: self.outline.runs.contains_key(&self.at),
            extent,
            across: self.across,
        });
        let (head, lane) = (self.head, self.lane);
        let site = self.b.ins().iconst(types::I64, i64::from(site));
        self.b
            .ins()
            .call(self.helpers.access, &[head, site, address, lane]);
        let host = self.answered();
        let on = self.b.create_block();
        let faulted = self.faulted;
        self.b.ins().brif(host, on, &[], faulted, &[]);
        self.b.switch_to_block(on);
        host
    }

    fn atomic(
        &mut self,
        (op, space, ty): (Atomic, Space, Type),
        d: Option<Reg>,
        address: Address,
        a: Source,
        b: Option<Source>,
    ) {
        let bytes = ty.bytes();
        let simple = operands::is_simple(op, ty);
        if !simple || !matches!(space, Space::Global | Space::Shared) {
            return self.atomic_by_helper(ty, d, address, a, b);
        }
        let kind = if bytes == 8 { Kind::I64 } else { Kind::I32 };
        let value = self.get_exact(a, kind);
        let other = b.map(|b| self.get_exact(b, kind));
        let at = self.place(Access {
            space,
            address,
            bytes,
            write: true,
        });
        let flags = MemFlags::trusted();
        let old = match (space, other) {
            (Space::Global, Some(new)) => self.b.ins().atomic_cas(flags, at, value, new),
            (Space::Global, None) => {
                self.b
                    .ins()
                    .atomic_rmw(kind.ty(), flags, host_op(op, ty), at, value)
            }
            _ => {
                // Only this thread of the host runs the block.
                let flags = MemFlags::new().with_notrap();
                let old = self.b.ins().load(kind.ty(), flags, at, 0);
                let new = match (op, other) {
                    (Atomic::Cas, Some(other)) => {
                        let same = self.b.ins().icmp(IntCC::Equal, old, value);
                        self.b.ins().select(same, other, old)
                    }
                    _ => self.combined(op, ty, old, value),
                };
                self.b.ins().store(flags, new, at, 0);
                old
            }
        };
        if let Some(d) = d {
            self.set(d, old, kind);
        }
    }

    fn combined(&mut self, op: Atomic, ty: Type, old: Value, value: Value) -> Value {
        match (op, ty.is_signed()) {
            (Atomic::Add, _) => self.b.ins().iadd(old, value),
            (Atomic::And, _) => self.b.ins().band(old, value),
            (Atomic::Or, _) => self.b.ins().bor(old, value),
            (Atomic::Xor, _) => self.b.ins().bxor(old, value),
            (Atomic::Max, true) => self.b.ins().smax(old, value),
            (Atomic::Max, false) => self.b.ins().umax(old, value),
            (Atomic::Min, true) => self.b.ins().smin(old, value),
            (Atomic::Min, false) => self.b.ins().umin(old, value),
            _ => value,
        }
    }

    fn atomic_by_helper(
        &mut self,
        ty: Type,
        d: Option<Reg>,
        address: Address,
        a: Source,
        b: Option<Source>,
    ) {
        self.spend(HELPER_COST);
        let address = self.address(address);
        let a = self.get_exact(a, Kind::I64);
        let b = match b {
            Some(b) => self.get_exact(b, Kind::I64),
            None => self.b.ins().iconst(types::I64, 0),
        };
        let site = self.outline.sites.len() as u32;
        self.outline.sites.push(Site {
            step: self.at,
            bytes: ty.bytes() as u32,
            is_run: false,
            extent: ty.bytes(),
            across: None,
        });
        let (head, lane) = (self.head, self.lane);
        let site = self.b.ins().iconst(types::I64, i64::from(site));
        let call = self
            .b
            .ins()
            .call(self.helpers.atomic, &[head, site, address, lane, a, b]);
        let done = self.b.inst_results(call)[0];
        let on = self.b.create_block();
        let faulted = self.faulted;
        self.b.ins().brif(done, on, &[], faulted, &[]);
        self.b.switch_to_block(on);
        if let Some(d) = d {
            let value = self
                .b
                .ins()
                .load(types::I64, MemFlags::trusted(), head, offset!(answer));
            self.set(d, value, Kind::I64);
        }
    }

    /// Copies arguments of a call.
    pub(super) fn copy(&mut self, kernel: bool, from: u32, to: u32, len: u32) {
        let parameters = self.constant_load(types::I64, offset!(parameters));
        let source = if kernel {
            parameters
        } else {
            self.argument_base
        };
        let target = self.argument_base;
        let flags = MemFlags::new().with_notrap();
        let mut at = 0;
        while at < len {
            let (ty, step) = match len - at {
                8.. => (types::I64, 8),
                4.. => (types::I32, 4),
                2.. => (types::I16, 2),
                _ => (types::I8, 1),
            };
            let value = self.b.ins().load(ty, flags, source, (from + at) as i32);
            self.b.ins().store(flags, value, target, (to + at) as i32);
            at += step;
        }
    }
}

fn integer_of(bytes: u64) -> ir::Type {
    match bytes {
        1 => types::I8,
        2 => types::I16,
        4 => types::I32,
        _ => types::I64,
    }
}

fn host_op(op: Atomic, ty: Type) -> AtomicRmwOp {
    match (op, ty.is_signed()) {
        (Atomic::Add, _) => AtomicRmwOp::Add,
        (Atomic::And, _) => AtomicRmwOp::And,
        (Atomic::Or, _) => AtomicRmwOp::Or,
        (Atomic::Xor, _) => AtomicRmwOp::Xor,
        (Atomic::Max, true) => AtomicRmwOp::Smax,
        (Atomic::Max, false) => AtomicRmwOp::Umax,
        (Atomic::Min, true) => AtomicRmwOp::Smin,
        (Atomic::Min, false) => AtomicRmwOp::Umin,
        _ => AtomicRmwOp::Xchg,
    }
}
