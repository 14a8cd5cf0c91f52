//! Conversions between numbers and integers of all widths.

use cranelift_codegen::ir::condcodes::FloatCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};
use towline_ptx::ir::op::{Mode, Reg, Rounding, Source};
use towline_ptx::ptx::Type;

use super::arith::kind_of;
use super::emit::{Emitter, Kind};

/// What conversions of numbers have machine code for.
pub(super) fn is_converted(mode: Mode) -> bool {
    let plain = Mode {
        integral: mode.integral,
        flush: mode.flush,
        rounding: mode.rounding,
        ..Mode::default()
    };
    mode == plain && mode.rounding != Rounding::NearestAway
}

pub(super) fn is_nearest(mode: Mode) -> bool {
    mode.rounding == Rounding::Nearest
}

impl Emitter<'_, '_> {
    pub(super) fn convert(&mut self, to: Type, from: Type, mode: Mode, d: Reg, a: Source) -> bool {
        let plain = Mode {
            integral: mode.integral,
            flush: mode.flush,
            rounding: mode.rounding,
            ..Mode::default()
        };
        if mode != plain {
            return false;
        }
        match (to.is_float(), from.is_float()) {
            (false, false) => self.convert_integer(to, from, d, a),
            (true, false) => {
                let wide = matches!(from, Type::U64 | Type::S64);
                if mode.rounding != Rounding::Nearest
                    || !matches!(from, Type::U32 | Type::S32) && !wide
                    || !matches!(to, Type::F32 | Type::F64)
                {
                    return false;
                }
                let value = self.get_exact(a, kind_of(from));
                let ty = if to == Type::F64 {
                    types::F64
                } else {
                    self.formed(types::F32)
                };
                let value = match from.is_signed() {
                    true => self.b.ins().fcvt_from_sint(ty, value),
                    false => self.b.ins().fcvt_from_uint(ty, value),
                };
                self.set(
                    d,
                    value,
                    if to == Type::F64 {
                        Kind::F64
                    } else {
                        Kind::F32
                    },
                );
                true
            }
            (false, true) => self.convert_to_integer(to, from, mode, d, a),
            (true, true) => self.convert_float(to, from, mode, d, a),
        }
    }

    fn convert_integer(&mut self, to: Type, from: Type, d: Reg, a: Source) -> bool {
        if to.bits() == 64 && from.bits() == 64 {
            let value = self.get_exact(a, Kind::I64);
            self.set(d, value, Kind::I64);
            return true;
        }
        // What the narrower type has of the value, then extended as the first and the second say.
        let value = match from.bits() {
            64 => self.get_exact(a, Kind::I64),
            _ => {
                let value = self.get_exact(a, Kind::I32);
                let value = self.cut(value, from);
                match (to.bits() == 64, from.is_signed()) {
                    (false, _) => value,
                    (true, true) => self.b.ins().sextend(types::I64, value),
                    (true, false) => self.b.ins().uextend(types::I64, value),
                }
            }
        };
        if to.bits() == 64 {
            self.set(d, value, Kind::I64);
            return true;
        }
        let value = match from.bits() {
            64 => self.b.ins().ireduce(types::I32, value),
            _ => value,
        };
        let value = self.cut(value, to);
        match to.is_signed() {
            true => self.set_signed(d, value),
            false => self.set(d, value, Kind::I32),
        }
        true
    }

    /// Of 32 bits those that a type has, with its sign.
    pub(super) fn cut(&mut self, value: Value, ty: Type) -> Value {
        let narrow = match ty.bits() {
            8 => types::I8,
            16 => types::I16,
            _ => return value,
        };
        let value = self.b.ins().ireduce(narrow, value);
        match ty.is_signed() {
            true => self.b.ins().sextend(types::I32, value),
            false => self.b.ins().uextend(types::I32, value),
        }
    }

    fn rounded(&mut self, value: Value, rounding: Rounding) -> Option<Value> {
        Some(match rounding {
            Rounding::Nearest => self.b.ins().nearest(value),
            Rounding::Zero => self.b.ins().trunc(value),
            Rounding::Down => self.b.ins().floor(value),
            Rounding::Up => self.b.ins().ceil(value),
            Rounding::NearestAway => return None,
        })
    }

    fn convert_to_integer(&mut self, to: Type, from: Type, mode: Mode, d: Reg, a: Source) -> bool {
        let kind = match from {
            Type::F32 => Kind::F32,
            Type::F64 => Kind::F64,
            _ => return false,
        };
        if !matches!(to, Type::U32 | Type::S32 | Type::U64 | Type::S64)
            || mode.rounding == Rounding::NearestAway
        {
            return false;
        }
        let value = match kind {
            Kind::F32 => self.entered(a, mode),
            _ => self.get(a, kind),
        };
        let whole = match mode.rounding {
            Rounding::Zero => Some(value),
            other => self.rounded(value, other),
        };
        let Some(whole) = whole else {
            return false;
        };
        let ty = kind_of(to).ty();
        let formed = self.formed(ty);
        let converted = match to.is_signed() {
            true => self.b.ins().fcvt_to_sint_sat(formed, whole),
            false => self.b.ins().fcvt_to_uint_sat(formed, whole),
        };
        // What is no number becomes 0, or with 64 bits on either side the highest bit.
        let converted = match from == Type::F64 || to.bits() == 64 {
            true => {
                let unordered = self.b.ins().fcmp(FloatCC::Unordered, value, value);
                let one = self.b.ins().iconst(ty, 1);
                let highest = self.b.ins().ishl_imm(one, i64::from(to.bits()) - 1);
                self.b.ins().select(unordered, highest, converted)
            }
            false => converted,
        };
        match to {
            Type::S32 => self.set_signed(d, converted),
            _ => self.set(d, converted, kind_of(to)),
        }
        true
    }

    fn convert_float(&mut self, to: Type, from: Type, mode: Mode, d: Reg, a: Source) -> bool {
        match (to, from) {
            (Type::F32, Type::F32) => {
                let value = self.entered(a, mode);
                let value = match mode.integral {
                    true => match self.rounded(value, mode.rounding) {
                        Some(value) => value,
                        None => return false,
                    },
                    false => value,
                };
                let value = match mode.flush {
                    true => self.flushed(value),
                    false => value,
                };
                self.set_computed(d, value);
            }
            (Type::F64, Type::F32) if !mode.integral => {
                // Which NaN it is shows in the result.
                let value = self.get_exact(a, Kind::F32);
                let value = match mode.flush {
                    true => {
                        let value = self.flushed(value);
                        self.canonical(value)
                    }
                    false => value,
                };
                let value = self.b.ins().fpromote(types::F64, value);
                self.set(d, value, Kind::F64);
            }
            (Type::F32, Type::F64) if !mode.integral && mode.rounding == Rounding::Nearest => {
                let wide = self.get(a, Kind::F64);
                let value = self.b.ins().fdemote(types::F32, wide);
                let value = match mode.flush {
                    true => {
                        // Before it is rounded.
                        let magnitude = self.b.ins().fabs(wide);
                        let least = self.b.ins().f64const(f64::from(f32::MIN_POSITIVE));
                        let tiny = self.b.ins().fcmp(FloatCC::LessThan, magnitude, least);
                        let zero = self.b.ins().f32const(0.0);
                        let zero = self.b.ins().fcopysign(zero, value);
                        self.b.ins().select(tiny, zero, value)
                    }
                    false => value,
                };
                self.set(d, value, Kind::F32);
            }
            _ => return false,
        }
        true
    }
}
