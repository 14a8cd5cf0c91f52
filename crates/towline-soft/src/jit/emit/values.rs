//! Registers and predicates as values of the machine: how they are read and written, for one lane and for four.

use cranelift_codegen::ir::condcodes::FloatCC;
use cranelift_codegen::ir::immediates::{Ieee32, Ieee64};
use cranelift_codegen::ir::{self, InstBuilder, MemFlags, Value, types};
use cranelift_frontend::Variable;
use towline_ptx::ir::Constant;
use towline_ptx::ir::op::{Flag, Pred, Reg, Source};

use super::{Emitter, Kind, class_type};
use crate::jit::head::offset;
use crate::jit::live::Class;
use crate::jit::shapes::{QUAD, Shape};

/// Which lanes a value is wanted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::jit) enum Form {
    /// One lane: that of the loop, or this one of the four that the loop takes.
    One(usize),
    /// All four of them, in a vector.
    Four,
}

/// Four values of this type.
pub(in crate::jit) fn vector_of(ty: ir::Type) -> ir::Type {
    match ty {
        types::F32 => types::F32X4,
        _ => types::I32X4,
    }
}

impl Emitter<'_, '_> {
    /// How the four lanes that the loop takes differ in a register, or a predicate by its number behind those.
    fn shape(&self, number: u32) -> Shape {
        self.shapes.register(number)
    }

    fn register(&mut self, number: u32) -> Variable {
        let ty = class_type(self.classes[number as usize]);
        let place = &mut self.registers[number as usize];
        *place.get_or_insert_with(|| self.b.declare_var(ty))
    }

    fn predicate(&mut self, number: u32) -> Variable {
        let place = &mut self.predicates[number as usize];
        *place.get_or_insert_with(|| self.b.declare_var(types::I8))
    }

    /// Where one lane keeps a register or a predicate, or four for which it is no vector.
    pub(super) fn variable(&mut self, number: u32) -> (Variable, ir::Type) {
        match number.checked_sub(self.flat.registers) {
            None => (
                self.register(number),
                class_type(self.classes[number as usize]),
            ),
            Some(pred) => (self.predicate(pred), types::I8),
        }
    }

    /// Where four lanes keep what differs in 32 bits, or a predicate: all ones or zeros then.
    pub(super) fn vector(&mut self, number: u32) -> (Variable, ir::Type) {
        let class = self.classes.get(number as usize);
        let ty = vector_of(class.map_or(types::I32, |class| class_type(*class)));
        let (b, vectors) = (&mut self.b, &mut self.vectors);
        let variable = vectors.entry(number);
        (*variable.or_insert_with(|| b.declare_var(ty)), ty)
    }

    /// Where each of four lanes keeps what differs in 64 bits, or one after another puts together what is to be a vector.
    pub(super) fn singles(&mut self, number: u32) -> ([Variable; QUAD], ir::Type) {
        let class = self.classes.get(number as usize);
        let ty = class.map_or(types::I8, |class| class_type(*class));
        let (b, singles) = (&mut self.b, &mut self.singles);
        let variables = singles.entry(number);
        let variables = variables.or_insert_with(|| [(); QUAD].map(|()| b.declare_var(ty)));
        (*variables, ty)
    }

    /// Whether four lanes have a vector for what differs.
    pub(in crate::jit) fn is_vector(&self, number: u32) -> bool {
        let class = self.classes.get(number as usize);
        !matches!(class, Some(Class::I64 | Class::F64))
    }

    /// The same value in all lanes that are wanted.
    pub(in crate::jit) fn spread(&mut self, value: Value) -> Value {
        match self.form {
            Form::One(_) => value,
            Form::Four => {
                let ty = self.b.func.dfg.value_type(value);
                self.b.ins().splat(vector_of(ty), value)
            }
        }
    }

    pub(in crate::jit) fn number_f32(&mut self, number: f32) -> Value {
        let value = self.b.ins().f32const(number);
        self.spread(value)
    }

    /// The type that values have in the lanes that are wanted.
    pub(in crate::jit) fn formed(&self, ty: ir::Type) -> ir::Type {
        match self.form {
            Form::One(_) => ty,
            Form::Four => vector_of(ty),
        }
    }

    /// The lane that code is for, or the first of the four.
    pub(in crate::jit) fn part(&self) -> usize {
        match self.form {
            Form::One(part) => part,
            Form::Four => 0,
        }
    }

    /// What one lane has, or four have in common.
    pub(in crate::jit) fn for_one<T>(
        &mut self,
        part: usize,
        make: impl FnOnce(&mut Self) -> T,
    ) -> T {
        let form = std::mem::replace(&mut self.form, Form::One(part));
        let made = make(self);
        self.form = form;
        made
    }

    /// The same of a vector.
    pub(in crate::jit) fn for_four<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> T {
        let form = std::mem::replace(&mut self.form, Form::Four);
        let made = make(self);
        self.form = form;
        made
    }

    /// One of two, by what holds in each lane.
    pub(in crate::jit) fn choose(&mut self, holds: Value, a: Value, b: Value) -> Value {
        let (from, to) = (
            self.b.func.dfg.value_type(holds),
            self.b.func.dfg.value_type(a),
        );
        if !from.is_vector() {
            return self.b.ins().select(holds, a, b);
        }
        let mask = match from == to {
            true => holds,
            false => self.b.ins().bitcast(to, MemFlags::new(), holds),
        };
        self.b.ins().bitselect(mask, a, b)
    }

    /// What does not hold.
    pub(in crate::jit) fn opposite(&mut self, holds: Value) -> Value {
        match self.b.func.dfg.value_type(holds).is_vector() {
            true => self.b.ins().bnot(holds),
            false => self.b.ins().bxor_imm(holds, 1),
        }
    }

    /// What grows by so much from lane to lane, from the first lane's value.
    fn stepped(&mut self, first: Value, stride: i64) -> Value {
        let all = self.b.ins().splat(types::I32X4, first);
        if stride == 0 {
            return all;
        }
        let bytes = (0..QUAD as i64).flat_map(|lane| ((lane * stride) as i32).to_le_bytes());
        let constant = self.b.func.dfg.constants.insert(bytes.collect());
        let steps = self.b.ins().vconst(types::I32X4, constant);
        self.b.ins().iadd(all, steps)
    }

    /// One vector of four lanes' values.
    pub(in crate::jit) fn joined(&mut self, values: [Value; QUAD]) -> Value {
        let ty = self.b.func.dfg.value_type(values[0]);
        let mut all = self.b.ins().scalar_to_vector(vector_of(ty), values[0]);
        for (lane, value) in (0..).zip(values).skip(1) {
            all = self.b.ins().insertlane(all, value, lane);
        }
        all
    }

    /// The mask of a truth value that is the same in all lanes.
    fn mask_of(&mut self, holds: Value) -> Value {
        let wide = self.b.ins().uextend(types::I32, holds);
        let ones = self.b.ins().ineg(wide);
        self.b.ins().splat(types::I32X4, ones)
    }

    /// A truth value, 0 or 1; for four lanes all zeros or ones in each.
    pub(in crate::jit) fn flag(&mut self, flag: Flag) -> Value {
        let (number, not) = match flag {
            Flag::Known(truth) => {
                let holds = self.b.ins().iconst(types::I8, i64::from(truth));
                return match self.form {
                    Form::One(_) => holds,
                    Form::Four => self.mask_of(holds),
                };
            }
            Flag::Pred(Pred(number)) => (number, false),
            Flag::Not(Pred(number)) => (number, true),
        };
        let place = self.flat.registers + number;
        let differs = self.wide && !self.shape(place).is_same();
        let value = if differs {
            let (variable, _) = self.vector(place);
            let mask = self.b.use_var(variable);
            match self.form {
                Form::Four => mask,
                Form::One(part) => {
                    let ones = self.b.ins().extractlane(mask, part as u8);
                    let ones = self.b.ins().ireduce(types::I8, ones);
                    self.b.ins().band_imm(ones, 1)
                }
            }
        } else {
            let variable = self.predicate(number);
            let holds = self.b.use_var(variable);
            match self.form {
                Form::Four => self.mask_of(holds),
                Form::One(_) => holds,
            }
        };
        match not {
            true => self.opposite(value),
            false => value,
        }
    }

    pub(in crate::jit) fn set_flag(&mut self, d: Pred, value: Value) {
        let place = self.flat.registers + d.0;
        if !self.wide || self.shape(place).is_same() {
            let variable = self.predicate(d.0);
            return self.b.def_var(variable, value);
        }
        let (vector, _) = self.vector(place);
        match self.form {
            Form::Four => self.b.def_var(vector, value),
            Form::One(part) if self.gathers => {
                let (singles, _) = self.singles(place);
                self.b.def_var(singles[part], value);
            }
            Form::One(_) => {
                let mask = self.mask_of(value);
                self.b.def_var(vector, mask);
            }
        }
    }

    pub(in crate::jit) fn class(&self, reg: Reg) -> Class {
        self.classes[reg.0 as usize]
    }

    /// The bits of a constant, where they are known before the launch.
    pub(in crate::jit) fn known(&self, source: Source) -> Option<u64> {
        match source {
            Source::Constant(number) => match self.flat.constants.get(number as usize)? {
                Constant::Bits(bits) => Some(*bits),
                Constant::Address { .. } => None,
            },
            Source::Reg(reg) => self.fixed.get(&reg.0).copied(),
        }
    }

    /// The one NaN, for what arithmetic gave.
    pub(in crate::jit) fn canonical(&mut self, value: Value) -> Value {
        let unordered = self.b.ins().fcmp(FloatCC::Unordered, value, value);
        let nan = self.b.ins().f32const(Ieee32::with_bits(0x7fff_ffff));
        let nan = match self.b.func.dfg.value_type(value).is_vector() {
            true => self.b.ins().splat(types::F32X4, nan),
            false => nan,
        };
        self.choose(unordered, nan, value)
    }

    pub(in crate::jit) fn cast(&mut self, value: Value, from: Kind, to: Kind) -> Value {
        let flags = MemFlags::new();
        let ty = self.b.func.dfg.value_type(value);
        if ty.is_vector() {
            return match vector_of(to.ty()) == ty {
                true => value,
                false => self.b.ins().bitcast(vector_of(to.ty()), flags, value),
            };
        }
        let wide = |this: &mut Self, value| this.b.ins().uextend(types::I64, value);
        match (from, to) {
            (Kind::I32, Kind::I64) => wide(self, value),
            (Kind::I32, Kind::F32) => self.b.ins().bitcast(types::F32, flags, value),
            (Kind::I32, Kind::F64) => {
                let value = wide(self, value);
                self.b.ins().bitcast(types::F64, flags, value)
            }
            (Kind::I64, Kind::I32) => self.b.ins().ireduce(types::I32, value),
            (Kind::I64, Kind::F32) => {
                let value = self.b.ins().ireduce(types::I32, value);
                self.b.ins().bitcast(types::F32, flags, value)
            }
            (Kind::I64, Kind::F64) => self.b.ins().bitcast(types::F64, flags, value),
            (Kind::F32, Kind::I32) => self.b.ins().bitcast(types::I32, flags, value),
            (Kind::F32, Kind::I64) => {
                let value = self.b.ins().bitcast(types::I32, flags, value);
                wide(self, value)
            }
            (Kind::F32, Kind::F64) => {
                let value = self.cast(value, Kind::F32, Kind::I64);
                self.b.ins().bitcast(types::F64, flags, value)
            }
            (Kind::F64, Kind::I64) => self.b.ins().bitcast(types::I64, flags, value),
            (Kind::F64, Kind::I32) | (Kind::F64, Kind::F32) => {
                let value = self.b.ins().bitcast(types::I64, flags, value);
                self.cast(value, Kind::I64, to)
            }
            _ => value,
        }
    }

    /// A value to read, bit for bit, except that arithmetic on 32 bits may see any NaN.
    pub(in crate::jit) fn get(&mut self, source: Source, to: Kind) -> Value {
        self.read(source, to, to == Kind::F32)
    }

    /// A value to read, bit for bit.
    pub(in crate::jit) fn get_exact(&mut self, source: Source, to: Kind) -> Value {
        self.read(source, to, false)
    }

    fn read(&mut self, source: Source, to: Kind, any_nan: bool) -> Value {
        let number = match source {
            Source::Reg(reg) => return self.read_register(reg, to, any_nan),
            Source::Constant(number) => number,
        };
        let value = match self.known(source) {
            Some(bits) => match to {
                Kind::I32 => self.b.ins().iconst(types::I32, i64::from(bits as u32)),
                Kind::I64 => self.b.ins().iconst(types::I64, bits as i64),
                Kind::F32 => self.b.ins().f32const(Ieee32::with_bits(bits as u32)),
                Kind::F64 => self.b.ins().f64const(Ieee64::with_bits(bits)),
            },
            None => {
                // An address, which differs from one copy of the module to the next.
                let table = self.constant_load(types::I64, offset!(constants));
                let flags = MemFlags::trusted().with_readonly().with_can_move();
                let at = number as i32 * 8;
                let value = self.b.ins().load(types::I64, flags, table, at);
                self.cast(value, Kind::I64, to)
            }
        };
        self.spread(value)
    }

    fn read_register(&mut self, reg: Reg, to: Kind, any_nan: bool) -> Value {
        let (shape, kind) = match self.wide {
            true => (self.shape(reg.0), self.moved_as(reg)),
            false => (
                Shape::Steps {
                    stride: 0,
                    zeros: 0,
                },
                self.moved_as(reg),
            ),
        };
        let exact = self.class(reg) == Class::Lazy && !any_nan;
        match (shape.stride(), self.form) {
            (Some(stride), form) => {
                let variable = self.register(reg.0);
                let mut value = self.b.use_var(variable);
                if exact {
                    value = self.canonical(value);
                }
                match (form, stride) {
                    (Form::One(part), stride) => {
                        let more = stride * part as i64;
                        if more != 0 {
                            value = self.b.ins().iadd_imm(value, more);
                        }
                        self.cast(value, kind, to)
                    }
                    (Form::Four, 0) => {
                        let value = self.cast(value, kind, to);
                        self.spread(value)
                    }
                    (Form::Four, stride) => {
                        let value = self.cast(value, kind, Kind::I32);
                        let value = self.stepped(value, stride);
                        self.cast(value, Kind::I32, to)
                    }
                }
            }
            (None, Form::Four) => {
                let (variable, _) = self.vector(reg.0);
                let mut value = self.b.use_var(variable);
                if exact {
                    value = self.canonical(value);
                }
                self.cast(value, kind, to)
            }
            (None, Form::One(part)) if self.is_vector(reg.0) => {
                let (variable, _) = self.vector(reg.0);
                let value = self.b.use_var(variable);
                let mut value = self.b.ins().extractlane(value, part as u8);
                if exact {
                    value = self.canonical(value);
                }
                self.cast(value, kind, to)
            }
            (None, Form::One(part)) => {
                let (singles, _) = self.singles(reg.0);
                let value = self.b.use_var(singles[part]);
                self.cast(value, kind, to)
            }
        }
    }

    /// How a register that is only moved about is best read and written.
    pub(in crate::jit) fn moved_as(&self, reg: Reg) -> Kind {
        match self.class(reg) {
            Class::I32 => Kind::I32,
            Class::I64 => Kind::I64,
            Class::F32 | Class::Lazy => Kind::F32,
            Class::F64 => Kind::F64,
        }
    }

    /// Writes bits, with zeros above.
    pub(in crate::jit) fn set(&mut self, d: Reg, value: Value, kind: Kind) {
        let value = self.cast(value, kind, self.moved_as(d));
        if !self.wide || self.shape(d.0).stride().is_some() {
            let variable = self.register(d.0);
            return self.b.def_var(variable, value);
        }
        match self.form {
            Form::Four => {
                let (variable, _) = self.vector(d.0);
                self.b.def_var(variable, value);
            }
            Form::One(part) if self.gathers => {
                let (singles, _) = self.singles(d.0);
                self.b.def_var(singles[part], value);
            }
            // Other instructions give what differs more.
            Form::One(_) => self.set_stepped(d, value),
        }
    }

    /// Writes what all four lanes have been given at once.
    fn set_stepped(&mut self, d: Reg, value: Value) {
        let stride = self.shapes.result(self.at).stride().unwrap_or(0);
        if !self.is_vector(d.0) {
            let (singles, _) = self.singles(d.0);
            for (lane, single) in (0..).zip(singles) {
                let value = match stride * lane {
                    0 => value,
                    more => self.b.ins().iadd_imm(value, more),
                };
                self.b.def_var(single, value);
            }
            return;
        }
        let (variable, ty) = self.vector(d.0);
        let value = match ty {
            types::I32X4 => self.stepped(value, stride),
            ty => self.b.ins().splat(ty, value),
        };
        self.b.def_var(variable, value);
    }

    /// Writes an integer of 32 bits with its sign above.
    pub(in crate::jit) fn set_signed(&mut self, d: Reg, value: Value) {
        match self.moved_as(d) {
            Kind::I32 | Kind::F32 => self.set(d, value, Kind::I32),
            _ => {
                let value = self.b.ins().sextend(types::I64, value);
                self.set(d, value, Kind::I64);
            }
        }
    }

    /// Writes what arithmetic on 32 bits gave.
    pub(in crate::jit) fn set_computed(&mut self, d: Reg, value: Value) {
        let value = match self.class(d) {
            Class::Lazy => value,
            _ => self.canonical(value),
        };
        self.set(d, value, Kind::F32);
    }
}
