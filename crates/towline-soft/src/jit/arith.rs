//! Instructions that compute: the common ones as machine code, the others by a helper that carries out the interpreter's.

use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{InstBuilder, MemFlags, Value, types};
use towline_ptx::ir::Space;
use towline_ptx::ir::op::{Binary, Compare, Flag, Logic, Mode, Op, Reg, Source, Ternary, Unary};
use towline_ptx::ptx::Type;

use super::emit::{Emitter, Form, Kind};
use super::head::offset;
use super::{HELPER_COST, Refusal};
use crate::image::{LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW};

pub(super) fn kind_of(ty: Type) -> Kind {
    if ty.bits() == 64 {
        Kind::I64
    } else {
        Kind::I32
    }
}

/// Rounding and nothing else: what hosts do.
pub(super) fn is_simple(mode: Mode) -> bool {
    mode == Mode {
        flush: mode.flush,
        saturate: mode.saturate,
        ..Mode::default()
    }
}

impl Emitter<'_, '_> {
    /// An operation that goes on to the next.
    pub(super) fn plain(&mut self, op: &Op) -> Result<(), Refusal> {
        match op {
            Op::Mov { d, a } => {
                let kind = self.moved_as(*d);
                let lazy = self.class(*d) == super::live::Class::Lazy;
                let value = match lazy {
                    true => self.get(*a, kind),
                    false => self.get_exact(*a, kind),
                };
                self.set(*d, value, kind);
            }
            Op::Select { d, a, b, p } => {
                let kind = self.moved_as(*d);
                let flag = self.flag(*p);
                let (a, b) = (self.get_exact(*a, kind), self.get_exact(*b, kind));
                let value = self.choose(flag, a, b);
                self.set(*d, value, kind);
            }
            Op::Binary {
                op: which,
                ty,
                mode,
                d,
                a,
                b,
            } => {
                if !self.binary(*which, *ty, *mode, *d, *a, *b) {
                    self.evaluate(op)?;
                }
            }
            Op::Ternary {
                op: which,
                ty,
                mode,
                d,
                a,
                b,
                c,
            } => {
                if !self.ternary(*which, *ty, *mode, *d, [*a, *b, *c]) {
                    self.evaluate(op)?;
                }
            }
            Op::Unary {
                op: which,
                ty,
                mode,
                d,
                a,
            } => {
                if !self.unary(*which, *ty, *mode, *d, *a) {
                    self.evaluate(op)?;
                }
            }
            Op::Convert {
                to,
                from,
                mode,
                d,
                a,
            } => {
                if !self.convert(*to, *from, *mode, *d, *a) {
                    self.evaluate(op)?;
                }
            }
            Op::SetPredicate {
                compare,
                combine,
                ty,
                flush,
                p,
                q,
                a,
                b,
            } => {
                let holds = match self.compare(*compare, *ty, *flush, *a, *b) {
                    Some(holds) => holds,
                    None => self.compared([*a, *b]),
                };
                let not = self.opposite(holds);
                let (with, opposite) = match combine {
                    None => (holds, not),
                    Some((logic, flag)) => {
                        let flag = self.flag(*flag);
                        (
                            self.logic(*logic, holds, flag),
                            self.logic(*logic, not, flag),
                        )
                    }
                };
                if let Some(p) = p {
                    self.set_flag(*p, with);
                }
                if let Some(q) = q {
                    self.set_flag(*q, opposite);
                }
            }
            Op::PredMov { d, a } => {
                let value = self.flag(*a);
                self.set_flag(*d, value);
            }
            Op::PredLogic { op, d, a, b } => {
                let (a, b) = (self.flag(*a), self.flag(*b));
                let value = self.logic(*op, a, b);
                self.set_flag(*d, value);
            }
            Op::Nop => {}
            Op::Fence { .. } => {
                self.b.ins().fence();
            }
            Op::Special { d, which } => self.special(*d, *which),
            Op::LocalAddress { d, offset } => {
                let value = self.b.ins().iconst(types::I32, i64::from(*offset));
                self.set(*d, value, Kind::I32);
            }
            Op::Generic {
                to_generic,
                space,
                d,
                a,
            } => {
                let start = match space {
                    Space::Shared => SHARED_WINDOW,
                    Space::Local => LOCAL_WINDOW,
                    Space::Param => PARAM_WINDOW,
                    _ => 0,
                } as i64;
                let a = self.get(*a, Kind::I64);
                let value = self
                    .b
                    .ins()
                    .iadd_imm(a, if *to_generic { start } else { -start });
                self.set(*d, value, Kind::I64);
            }
            Op::Pack { bits, d, parts } => self.pack(*bits, *d, parts),
            Op::Unpack { bits, d, a } => self.unpack(*bits, d, *a),
            Op::Load { .. }
            | Op::LoadVector { .. }
            | Op::Store { .. }
            | Op::StoreVector { .. }
            | Op::Atomic { .. } => self.memory(op)?,
            Op::Texture(access) => self.texture(access),
            op => self.evaluate(op)?,
        }
        Ok(())
    }

    pub(super) fn logic(&mut self, logic: Logic, a: Value, b: Value) -> Value {
        match logic {
            Logic::And => self.b.ins().band(a, b),
            Logic::Or => self.b.ins().bor(a, b),
            Logic::Xor => self.b.ins().bxor(a, b),
        }
    }

    /// Has a helper compare.
    fn compared(&mut self, sources: [Source; 2]) -> Value {
        self.spend(HELPER_COST);
        let at = self.b.ins().iconst(types::I64, i64::from(self.at));
        let zero = self.b.ins().iconst(types::I64, 0);
        let [a, b] = sources.map(|source| self.get_exact(source, Kind::I64));
        let head = self.head;
        self.b
            .ins()
            .call(self.helpers.evaluate, &[head, at, a, b, zero, zero, zero]);
        self.b
            .ins()
            .load(types::I8, MemFlags::trusted(), head, offset!(answer))
    }

    /// Has a helper carry an operation out as the interpreter does.
    fn evaluate(&mut self, op: &Op) -> Result<(), Refusal> {
        let zero = self.b.ins().iconst(types::I64, 0);
        let mut inputs = [zero; 4];
        let mut flag = zero;
        let mut read = |this: &mut Self, sources: &[Source]| {
            for (input, source) in inputs.iter_mut().zip(sources) {
                *input = this.get_exact(*source, Kind::I64);
            }
        };
        let mut out = None;
        let mut out_flag = None;
        match op {
            Op::Binary { d, a, b, .. } | Op::ConvertPair { d, a, b, .. } => {
                read(self, &[*a, *b]);
                out = Some(*d);
            }
            Op::Ternary { d, a, b, c, .. } | Op::SelectSign { d, a, b, c, .. } => {
                read(self, &[*a, *b, *c]);
                out = Some(*d);
            }
            Op::BitInsert { d, a, b, c, e, .. } => {
                read(self, &[*a, *b, *c, *e]);
                out = Some(*d);
            }
            Op::Unary { d, a, .. } | Op::Convert { d, a, .. } => {
                read(self, &[*a]);
                out = Some(*d);
            }
            Op::Carry {
                reads,
                writes,
                carry,
                d,
                a,
                b,
                c,
                ..
            } => {
                read(self, &[*a, *b]);
                if let Some(c) = c {
                    inputs[2] = self.get_exact(*c, Kind::I64);
                }
                if *reads {
                    let carry = self.flag(Flag::Pred(*carry));
                    flag = self.b.ins().uextend(types::I64, carry);
                }
                out = Some(*d);
                out_flag = writes.then_some(*carry);
            }
            Op::Classify { d, a, .. } => {
                read(self, &[*a]);
                out_flag = Some(*d);
            }
            Op::InSpace { d, a, .. } => {
                read(self, &[*a]);
                out_flag = Some(*d);
            }
            Op::Set {
                combine, d, a, b, ..
            } => {
                read(self, &[*a, *b]);
                if let Some((_, with)) = combine {
                    let with = self.flag(*with);
                    flag = self.b.ins().uextend(types::I64, with);
                }
                out = Some(*d);
            }
            _ => return Err(Refusal::Instruction("an instruction without a translation")),
        }
        self.spend(HELPER_COST);
        let at = self.b.ins().iconst(types::I64, i64::from(self.at));
        let [a, b, c, e] = inputs;
        let call = self
            .b
            .ins()
            .call(self.helpers.evaluate, &[self.head, at, a, b, c, e, flag]);
        let value = self.b.inst_results(call)[0];
        if let Some(d) = out {
            self.set(d, value, Kind::I64);
        }
        if let Some(p) = out_flag {
            let head = self.head;
            let value = self
                .b
                .ins()
                .load(types::I8, MemFlags::trusted(), head, offset!(answer));
            self.set_flag(p, value);
        }
        Ok(())
    }

    /// Keeps 16 bits of an integer, or its 32.
    fn set_integer(&mut self, d: Reg, ty: Type, value: Value) {
        let value = match ty.bits() {
            16 => self.b.ins().band_imm(value, 0xffff),
            _ => value,
        };
        self.set(d, value, kind_of(ty));
    }

    /// An integer of 16 bits as one of 32 with its sign, or of 32 or 64.
    fn integer(&mut self, source: Source, ty: Type) -> Value {
        let value = self.get(source, kind_of(ty));
        match ty {
            Type::S16 => {
                let value = self.b.ins().ireduce(types::I16, value);
                self.b.ins().sextend(types::I32, value)
            }
            Type::U16 | Type::B16 => self.b.ins().band_imm(value, 0xffff),
            _ => value,
        }
    }

    fn binary(&mut self, op: Binary, ty: Type, mode: Mode, d: Reg, a: Source, b: Source) -> bool {
        if let Binary::And | Binary::Or | Binary::Xor = op {
            let kind = match self.moved_as(d) {
                Kind::I32 | Kind::F32 => Kind::I32,
                _ => Kind::I64,
            };
            let (a, b) = (self.get_exact(a, kind), self.get_exact(b, kind));
            let value = match op {
                Binary::And => self.b.ins().band(a, b),
                Binary::Or => self.b.ins().bor(a, b),
                _ => self.b.ins().bxor(a, b),
            };
            self.set(d, value, kind);
            return true;
        }
        match ty {
            Type::F32 => self.binary_f32(op, mode, d, a, b),
            Type::F64 if mode == Mode::default() => self.binary_f64(op, d, a, b),
            Type::U16
            | Type::S16
            | Type::B16
            | Type::U32
            | Type::S32
            | Type::B32
            | Type::U64
            | Type::S64
            | Type::B64
                if !mode.saturate && !mode.relu =>
            {
                self.binary_integer(op, ty, d, a, b)
            }
            _ => false,
        }
    }

    fn binary_integer(&mut self, op: Binary, ty: Type, d: Reg, a: Source, b: Source) -> bool {
        let bits = ty.bits();
        if let Binary::Shl | Binary::Shr = op {
            // Vectors are shifted by what is the same for all lanes.
            let by = self.for_one(self.part(), |this| this.get_exact(b, Kind::I32));
            let a = self.integer(a, ty);
            let inside = self
                .b
                .ins()
                .icmp_imm(IntCC::UnsignedLessThan, by, i64::from(bits));
            let value = match (op, ty.is_signed()) {
                (Binary::Shr, true) => {
                    let most = self.b.ins().iconst(types::I32, i64::from(bits) - 1);
                    let by = self.b.ins().select(inside, by, most);
                    self.b.ins().sshr(a, by)
                }
                (which, _) => {
                    let value = match which {
                        Binary::Shl => self.b.ins().ishl(a, by),
                        _ => self.b.ins().ushr(a, by),
                    };
                    let zero = self.zero(kind_of(ty).ty());
                    let zero = self.spread(zero);
                    self.b.ins().select(inside, value, zero)
                }
            };
            self.set_integer(d, ty, value);
            return true;
        }
        let signed = ty.is_signed();
        let (x, y) = (self.integer(a, ty), self.integer(b, ty));
        let value = match op {
            Binary::Add => self.b.ins().iadd(x, y),
            Binary::Sub => self.b.ins().isub(x, y),
            Binary::Mul => self.b.ins().imul(x, y),
            Binary::MulHi if bits == 16 => {
                let product = self.b.ins().imul(x, y);
                self.b.ins().ushr_imm(product, 16)
            }
            Binary::MulHi if signed => self.b.ins().smulhi(x, y),
            Binary::MulHi => self.b.ins().umulhi(x, y),
            Binary::MulWide if bits == 32 => {
                let extend = |this: &mut Self, value| match signed {
                    true => this.b.ins().sextend(types::I64, value),
                    false => this.b.ins().uextend(types::I64, value),
                };
                let (x, y) = (extend(self, x), extend(self, y));
                let value = self.b.ins().imul(x, y);
                self.set(d, value, Kind::I64);
                return true;
            }
            Binary::MulWide if bits == 16 => {
                let value = self.b.ins().imul(x, y);
                self.set(d, value, Kind::I32);
                return true;
            }
            Binary::Max if signed => self.b.ins().smax(x, y),
            Binary::Max => self.b.ins().umax(x, y),
            Binary::Min if signed => self.b.ins().smin(x, y),
            Binary::Min => self.b.ins().umin(x, y),
            Binary::Div | Binary::Rem => self.divide(op, signed, x, y),
            _ => return false,
        };
        self.set_integer(d, ty, value);
        true
    }

    /// A quotient or a remainder that never traps: division by 0 gives all ones.
    fn divide(&mut self, op: Binary, signed: bool, x: Value, y: Value) -> Value {
        let ty = self.b.func.dfg.value_type(y);
        let one = self.b.ins().iconst(ty, 1);
        let by_zero = self.b.ins().icmp_imm(IntCC::Equal, y, 0);
        let y = self.b.ins().select(by_zero, one, y);
        let ones = self.b.ins().iconst(types::I64, -1);
        let ones = match ty {
            types::I64 => ones,
            ty => self.b.ins().ireduce(ty, ones),
        };
        if !signed {
            return match op {
                Binary::Div => {
                    let value = self.b.ins().udiv(x, y);
                    self.b.ins().select(by_zero, ones, value)
                }
                _ => {
                    let value = self.b.ins().urem(x, y);
                    self.b.ins().select(by_zero, ones, value)
                }
            };
        }
        let negates = self.b.ins().icmp(IntCC::Equal, y, ones);
        let y = self.b.ins().select(negates, one, y);
        match op {
            Binary::Div => {
                let value = self.b.ins().sdiv(x, y);
                let negative = self.b.ins().ineg(x);
                let value = self.b.ins().select(negates, negative, value);
                self.b.ins().select(by_zero, ones, value)
            }
            _ => {
                let value = self.b.ins().srem(x, y);
                self.b.ins().select(by_zero, ones, value)
            }
        }
    }

    fn ternary(
        &mut self,
        op: Ternary,
        ty: Type,
        mode: Mode,
        d: Reg,
        [a, b, c]: [Source; 3],
    ) -> bool {
        match (op, ty) {
            (Ternary::Fma, Type::F32) if is_simple(mode) && self.has_fma => {
                let sources = [a, b, c];
                let (a, b, c) = (
                    self.entered(a, mode),
                    self.entered(b, mode),
                    self.entered(c, mode),
                );
                let value = self.b.ins().fma(a, b, c);
                let value = match mode.flush {
                    true => self.edged(value, &sources),
                    false => value,
                };
                let value = self.finished(value, mode);
                self.set_computed(d, value);
            }
            (Ternary::Fma, Type::F64) if mode == Mode::default() && self.has_fma => {
                let [a, b, c] = [a, b, c].map(|source| self.get(source, Kind::F64));
                let value = self.b.ins().fma(a, b, c);
                self.set_settled(d, value, &[b, c, a]);
            }
            (Ternary::Mad, _) if !ty.is_float() && !mode.saturate && ty.bits() >= 16 => {
                let [a, b, c] = [a, b, c].map(|source| self.integer(source, ty));
                let product = self.b.ins().imul(a, b);
                let value = self.b.ins().iadd(product, c);
                self.set_integer(d, ty, value);
            }
            (Ternary::MadWide, Type::U32 | Type::S32) => {
                let extend = |this: &mut Self, source| {
                    let value = this.get_exact(source, Kind::I32);
                    match ty {
                        Type::S32 => this.b.ins().sextend(types::I64, value),
                        _ => this.b.ins().uextend(types::I64, value),
                    }
                };
                let (a, b) = (extend(self, a), extend(self, b));
                let c = self.get(c, Kind::I64);
                let product = self.b.ins().imul(a, b);
                let value = self.b.ins().iadd(product, c);
                self.set(d, value, Kind::I64);
            }
            (Ternary::Lop3(table), _) => {
                let inputs = [a, b, c].map(|source| self.get_exact(source, Kind::I32));
                let value = self.lop3(table, inputs);
                self.set(d, value, Kind::I32);
            }
            (Ternary::ShfLeft { wrap: true } | Ternary::ShfRight { wrap: true }, _) => {
                let [low, high, by] = [a, b, c].map(|source| self.get_exact(source, Kind::I32));
                let low = self.b.ins().uextend(types::I64, low);
                let high = self.b.ins().uextend(types::I64, high);
                let high = self.b.ins().ishl_imm(high, 32);
                let both = self.b.ins().bor(high, low);
                let by = self.b.ins().band_imm(by, 31);
                let value = match op {
                    Ternary::ShfLeft { .. } => {
                        let value = self.b.ins().ishl(both, by);
                        self.b.ins().ushr_imm(value, 32)
                    }
                    _ => self.b.ins().ushr(both, by),
                };
                let value = self.b.ins().ireduce(types::I32, value);
                self.set(d, value, Kind::I32);
            }
            _ => return false,
        }
        true
    }

    fn lop3(&mut self, table: u8, inputs: [Value; 3]) -> Value {
        let zero = self.b.ins().iconst(types::I32, 0);
        let mut value = self.spread(zero);
        for entry in (0..8).filter(|entry| table >> entry & 1 != 0) {
            let mut term = None;
            for (bit, input) in [4, 2, 1].into_iter().zip(inputs) {
                let input = match entry & bit {
                    0 => self.b.ins().bnot(input),
                    _ => input,
                };
                term = Some(match term {
                    None => input,
                    Some(term) => self.b.ins().band(term, input),
                });
            }
            if let Some(term) = term {
                value = self.b.ins().bor(value, term);
            }
        }
        value
    }

    fn unary(&mut self, op: Unary, ty: Type, mode: Mode, d: Reg, a: Source) -> bool {
        match (op, ty) {
            (Unary::Abs | Unary::Neg, Type::F32) => {
                let value = self.entered(a, mode);
                let value = match op {
                    Unary::Abs => self.b.ins().fabs(value),
                    _ => self.b.ins().fneg(value),
                };
                self.set_computed(d, value);
            }
            (Unary::Abs | Unary::Neg, Type::F64) => {
                let a = self.get(a, Kind::F64);
                let value = match op {
                    Unary::Abs => self.b.ins().fabs(a),
                    _ => self.b.ins().fneg(a),
                };
                self.set_settled(d, value, &[a]);
            }
            (Unary::Sqrt, Type::F64) if mode == Mode::default() => {
                let a = self.get(a, Kind::F64);
                let value = self.b.ins().sqrt(a);
                self.set_settled(d, value, &[a]);
            }
            (Unary::Rcp, Type::F64) if mode == Mode::default() => {
                let a = self.get(a, Kind::F64);
                let one = self.b.ins().f64const(1.0);
                let value = self.b.ins().fdiv(one, a);
                self.set_settled(d, value, &[a]);
            }
            (Unary::Sqrt | Unary::Rcp | Unary::Rsqrt, Type::F32) if is_simple(mode) => {
                let value = self.entered(a, mode);
                let value = match op {
                    Unary::Sqrt => self.b.ins().sqrt(value),
                    Unary::Rcp => {
                        let one = self.number_f32(1.0);
                        self.b.ins().fdiv(one, value)
                    }
                    _ => {
                        let root = self.b.ins().sqrt(value);
                        let one = self.number_f32(1.0);
                        self.b.ins().fdiv(one, root)
                    }
                };
                let value = self.finished(value, mode);
                self.set_computed(d, value);
            }
            (Unary::Not, _) => {
                let kind = match self.moved_as(d) {
                    Kind::I32 | Kind::F32 => Kind::I32,
                    _ => Kind::I64,
                };
                let value = self.get_exact(a, kind);
                let value = self.b.ins().bnot(value);
                self.set(d, value, kind);
            }
            (Unary::Neg | Unary::Abs, Type::S16 | Type::S32 | Type::S64) => {
                let value = self.integer(a, ty);
                let value = match op {
                    Unary::Neg => self.b.ins().ineg(value),
                    _ => self.b.ins().iabs(value),
                };
                self.set_integer(d, ty, value);
            }
            (Unary::Popc | Unary::Clz | Unary::Brev, Type::B32 | Type::U32 | Type::S32)
            | (Unary::Popc | Unary::Clz | Unary::Brev, Type::B64 | Type::U64 | Type::S64) => {
                let kind = kind_of(ty);
                let value = self.get_exact(a, kind);
                let value = match op {
                    Unary::Popc => self.b.ins().popcnt(value),
                    Unary::Clz => self.b.ins().clz(value),
                    _ => self.b.ins().bitrev(value),
                };
                self.set(d, value, kind);
            }
            _ => return false,
        }
        true
    }

    fn compare(
        &mut self,
        compare: Compare,
        ty: Type,
        flush: bool,
        a: Source,
        b: Source,
    ) -> Option<Value> {
        if let Type::F32 | Type::F64 = ty {
            let mode = Mode {
                flush,
                ..Mode::default()
            };
            let (a, b) = match ty {
                Type::F32 => (self.entered(a, mode), self.entered(b, mode)),
                _ => (self.get(a, Kind::F64), self.get(b, Kind::F64)),
            };
            let condition = match compare {
                Compare::Eq => FloatCC::Equal,
                Compare::Ne => FloatCC::OrderedNotEqual,
                Compare::Lt => FloatCC::LessThan,
                Compare::Le => FloatCC::LessThanOrEqual,
                Compare::Gt => FloatCC::GreaterThan,
                Compare::Ge => FloatCC::GreaterThanOrEqual,
                Compare::Equ => FloatCC::UnorderedOrEqual,
                Compare::Neu => FloatCC::NotEqual,
                Compare::Ltu => FloatCC::UnorderedOrLessThan,
                Compare::Leu => FloatCC::UnorderedOrLessThanOrEqual,
                Compare::Gtu => FloatCC::UnorderedOrGreaterThan,
                Compare::Geu => FloatCC::UnorderedOrGreaterThanOrEqual,
                Compare::Num => FloatCC::Ordered,
                Compare::Nan => FloatCC::Unordered,
            };
            return Some(match (condition, self.form) {
                // Vectors lack these two.
                (FloatCC::OrderedNotEqual, Form::Four) => {
                    let ordered = self.b.ins().fcmp(FloatCC::Ordered, a, b);
                    let differ = self.b.ins().fcmp(FloatCC::NotEqual, a, b);
                    self.b.ins().band(ordered, differ)
                }
                (FloatCC::UnorderedOrEqual, Form::Four) => {
                    let unordered = self.b.ins().fcmp(FloatCC::Unordered, a, b);
                    let equal = self.b.ins().fcmp(FloatCC::Equal, a, b);
                    self.b.ins().bor(unordered, equal)
                }
                _ => self.b.ins().fcmp(condition, a, b),
            });
        }
        if ty.is_float() {
            return None;
        }
        let signed = ty.is_signed();
        let condition = match (compare, signed) {
            (Compare::Eq | Compare::Equ, _) => IntCC::Equal,
            (Compare::Ne | Compare::Neu, _) => IntCC::NotEqual,
            (Compare::Lt | Compare::Ltu, true) => IntCC::SignedLessThan,
            (Compare::Le | Compare::Leu, true) => IntCC::SignedLessThanOrEqual,
            (Compare::Gt | Compare::Gtu, true) => IntCC::SignedGreaterThan,
            (Compare::Ge | Compare::Geu, true) => IntCC::SignedGreaterThanOrEqual,
            (Compare::Lt | Compare::Ltu, false) => IntCC::UnsignedLessThan,
            (Compare::Le | Compare::Leu, false) => IntCC::UnsignedLessThanOrEqual,
            (Compare::Gt | Compare::Gtu, false) => IntCC::UnsignedGreaterThan,
            (Compare::Ge | Compare::Geu, false) => IntCC::UnsignedGreaterThanOrEqual,
            (Compare::Num | Compare::Nan, _) => return None,
        };
        let (a, b) = match ty.bits() {
            8 => {
                let a = self.get_exact(a, Kind::I32);
                let b = self.get_exact(b, Kind::I32);
                (self.cut(a, Type::U8), self.cut(b, Type::U8))
            }
            _ => (self.integer(a, ty), self.integer(b, ty)),
        };
        Some(self.b.ins().icmp(condition, a, b))
    }

    fn pack(&mut self, bits: u8, d: Reg, parts: &[Source]) {
        let mut all = self.b.ins().iconst(types::I64, 0);
        for (index, part) in parts.iter().enumerate() {
            let value = match bits {
                8 | 16 => {
                    let value = self.get_exact(*part, Kind::I32);
                    let value = self.b.ins().band_imm(value, (1 << bits) - 1);
                    self.b.ins().uextend(types::I64, value)
                }
                32 => {
                    let value = self.get_exact(*part, Kind::I32);
                    self.b.ins().uextend(types::I64, value)
                }
                _ => self.get_exact(*part, Kind::I64),
            };
            let value = match index {
                0 => value,
                _ => self.b.ins().ishl_imm(value, i64::from(bits) * index as i64),
            };
            all = self.b.ins().bor(all, value);
        }
        self.set(d, all, Kind::I64);
    }

    fn unpack(&mut self, bits: u8, d: &[Option<Reg>], a: Source) {
        let wide = usize::from(bits) * d.len() > 32;
        let kind = if wide { Kind::I64 } else { Kind::I32 };
        let a = self.get_exact(a, kind);
        for (index, d) in d.iter().enumerate() {
            let Some(d) = d else {
                continue;
            };
            let by = i64::from(bits) * index as i64;
            let value = match by {
                0 => a,
                by => self.b.ins().ushr_imm(a, by),
            };
            let ones = (1_u64 << bits) - 1;
            let value = self.b.ins().band_imm(value, ones as i64);
            self.set(*d, value, kind);
        }
    }
}
