//! Arithmetic on numbers with a point, for one lane or for four in a vector.

use cranelift_codegen::ir::condcodes::FloatCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};
use towline_ptx::ir::op::{Binary, Mode, Reg, Source};

use super::arith::is_simple;
use super::emit::{Emitter, Form, Kind};

impl Emitter<'_, '_> {
    /// Zero, with the sign of a value.
    fn signed_zero(&mut self, value: Value) -> Value {
        match self.form {
            Form::One(_) => {
                let zero = self.b.ins().f32const(0.0);
                self.b.ins().fcopysign(zero, value)
            }
            Form::Four => {
                let sign = self.number_f32(-0.0);
                self.b.ins().band(value, sign)
            }
        }
    }

    /// Subnormal numbers as zero.
    pub(super) fn flushed(&mut self, value: Value) -> Value {
        let magnitude = self.b.ins().fabs(value);
        let least = self.number_f32(f32::MIN_POSITIVE);
        let tiny = self.b.ins().fcmp(FloatCC::LessThan, magnitude, least);
        let zero = self.signed_zero(value);
        self.choose(tiny, zero, value)
    }

    pub(super) fn entered(&mut self, source: Source, mode: Mode) -> Value {
        let value = self.get(source, Kind::F32);
        match mode.flush {
            true => self.flushed(value),
            false => value,
        }
    }

    /// Flushes and saturates a result.
    pub(super) fn finished(&mut self, value: Value, mode: Mode) -> Value {
        let value = match mode.flush {
            true => self.flushed(value),
            false => value,
        };
        if !mode.saturate {
            return value;
        }
        let (zero, one) = (self.number_f32(0.0), self.number_f32(1.0));
        let less = self.b.ins().fcmp(FloatCC::LessThan, value, one);
        let held = self.choose(less, value, one);
        let positive = self.b.ins().fcmp(FloatCC::GreaterThan, value, zero);
        self.choose(positive, held, zero)
    }

    pub(super) fn binary_f32(
        &mut self,
        op: Binary,
        mode: Mode,
        d: Reg,
        a: Source,
        b: Source,
    ) -> bool {
        if !is_simple(mode) {
            return false;
        }
        let rounds = matches!(op, Binary::Mul | Binary::Div);
        let arithmetic = rounds || matches!(op, Binary::Add | Binary::Sub | Binary::DivApprox);
        if !arithmetic && !matches!(op, Binary::Min | Binary::Max) {
            return false;
        }
        let sources = [a, b];
        let (a, b) = (self.entered(a, mode), self.entered(b, mode));
        let value = match op {
            Binary::Add => self.b.ins().fadd(a, b),
            Binary::Sub => self.b.ins().fsub(a, b),
            Binary::Mul => self.b.ins().fmul(a, b),
            Binary::Div => self.b.ins().fdiv(a, b),
            Binary::DivApprox => self.divided(a, b),
            _ => self.extremum(op, a, b),
        };
        let value = match rounds && mode.flush {
            true => self.edged(value, &sources),
            false => value,
        };
        let value = if arithmetic {
            self.finished(value, mode)
        } else {
            value
        };
        self.set_computed(d, value);
        true
    }

    /// `div.approx`: the reciprocal of what is beyond 2^126 is lost.
    fn divided(&mut self, a: Value, b: Value) -> Value {
        let value = self.b.ins().fdiv(a, b);
        let magnitude = self.b.ins().fabs(b);
        let far = self.number_f32(2_f32.powi(126));
        let is_far = self.b.ins().fcmp(FloatCC::GreaterThan, magnitude, far);
        let infinity = self.number_f32(f32::INFINITY);
        let is_finite = self.b.ins().fcmp(FloatCC::LessThan, magnitude, infinity);
        let is_lost = self.b.ins().band(is_far, is_finite);
        let zero = self.signed_zero(b);
        let lost = self.b.ins().fmul(a, zero);
        self.choose(is_lost, lost, value)
    }

    /// A result that is flushed below the normal numbers. Where it is the least of them it may have been rounded up to that, which a
    /// helper finds.
    pub(super) fn edged(&mut self, value: Value, sources: &[Source]) -> Value {
        let (rare, on) = (self.b.create_block(), self.b.create_block());
        let ty = self.formed(types::F32);
        self.b.append_block_param(on, ty);
        let magnitude = self.b.ins().fabs(value);
        let least = self.number_f32(f32::MIN_POSITIVE);
        let is_least = self.b.ins().fcmp(FloatCC::Equal, magnitude, least);
        let some = match self.form {
            Form::One(_) => is_least,
            Form::Four => self.b.ins().vany_true(is_least),
        };
        self.b.ins().brif(some, rare, &[], on, &[value.into()]);
        self.b.switch_to_block(rare);
        self.b.set_cold_block(rare);
        let exact = match self.form {
            Form::One(part) => self.evaluated_rarely(part, sources),
            Form::Four => {
                let parts = [0, 1, 2, 3];
                let values = parts.map(|part| self.evaluated_rarely(part, sources));
                self.joined(values)
            }
        };
        self.b.ins().jump(on, &[exact.into()]);
        self.b.switch_to_block(on);
        self.b.block_params(on)[0]
    }

    /// What a helper makes of one lane's values.
    fn evaluated_rarely(&mut self, part: usize, sources: &[Source]) -> Value {
        let at = self.b.ins().iconst(types::I64, i64::from(self.at));
        let mut inputs = [self.b.ins().iconst(types::I64, 0); 5];
        for (input, source) in inputs.iter_mut().zip(sources) {
            *input = self.for_one(part, |this| this.get_exact(*source, Kind::I64));
        }
        let [a, b, c, e, flag] = inputs;
        let head = self.head;
        self.b
            .ins()
            .call(self.helpers.evaluate_rarely, &[head, at, a, b, c, e, flag]);
        let exact = self.answered();
        self.cast(exact, Kind::I64, Kind::F32)
    }

    /// The greater or the lesser, or the one that is a number.
    fn extremum(&mut self, op: Binary, a: Value, b: Value) -> Value {
        let value = match op {
            Binary::Min => self.b.ins().fmin(a, b),
            _ => self.b.ins().fmax(a, b),
        };
        let a_is_none = self.b.ins().fcmp(FloatCC::Unordered, a, a);
        let b_is_none = self.b.ins().fcmp(FloatCC::Unordered, b, b);
        let value = self.choose(b_is_none, a, value);
        self.choose(a_is_none, b, value)
    }

    /// A result of 64 bits; where it is no number, a helper finds which the interpreter has.
    pub(super) fn set_settled(&mut self, d: Reg, value: Value, inputs: &[Value]) {
        let (rare, on) = (self.b.create_block(), self.b.create_block());
        self.b.append_block_param(on, types::F64);
        let unordered = self.b.ins().fcmp(FloatCC::Unordered, value, value);
        self.b.ins().brif(unordered, rare, &[], on, &[value.into()]);
        self.b.switch_to_block(rare);
        self.b.set_cold_block(rare);
        // The first of these inputs that is no number, made quiet, or else what invalid operations give.
        let mut nan = self.b.ins().iconst(types::I64, (0xfff8_u64 << 48) as i64);
        for input in inputs.iter().rev() {
            let bits = self.cast(*input, Kind::F64, Kind::I64);
            let quiet = self.b.ins().bor_imm(bits, 1 << 51);
            let is_none = self.b.ins().fcmp(FloatCC::Unordered, *input, *input);
            nan = self.b.ins().select(is_none, quiet, nan);
        }
        let nan = self.cast(nan, Kind::I64, Kind::F64);
        self.b.ins().jump(on, &[nan.into()]);
        self.b.switch_to_block(on);
        let value = self.b.block_params(on)[0];
        self.set(d, value, Kind::F64);
    }

    pub(super) fn binary_f64(&mut self, op: Binary, d: Reg, a: Source, b: Source) -> bool {
        if !matches!(op, Binary::Add | Binary::Sub | Binary::Mul | Binary::Div) {
            return false;
        }
        let (a, b) = (self.get(a, Kind::F64), self.get(b, Kind::F64));
        let value = match op {
            Binary::Add => self.b.ins().fadd(a, b),
            Binary::Sub => self.b.ins().fsub(a, b),
            Binary::Mul => self.b.ins().fmul(a, b),
            _ => self.b.ins().fdiv(a, b),
        };
        let inputs = match op {
            Binary::Div => [a, b],
            _ => [b, a],
        };
        self.set_settled(d, value, &inputs);
        true
    }
}
