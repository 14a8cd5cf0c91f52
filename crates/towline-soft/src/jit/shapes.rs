//! What four lanes that lie side by side and go in step have in common: found out once for the kernel.
//!
//! As long as such lanes have always taken the same way, a register that is computed from launch-wide values is the same in all of them, and
//! one computed from the thread's number grows by the same from each to the next. Code for four lanes then keeps one value for all. That
//! says nothing of lanes that have come apart: whoever brings those together again must look.

use std::collections::HashSet;

use towline_ptx::ir::op::{
    Barrier, Binary, Flag, Op, Order, Pred, Reg, Source, Special, Ternary, Together,
};
use towline_ptx::ir::{Constant, Space};
use towline_ptx::ptx::Type;

use super::flat::{Action, Flat, Step};
use super::live::{Class, Set};
use super::operands::{Operand, operands};

/// Lanes that go together.
pub(super) const QUAD: usize = 4;

/// Most that a value may grow from lane to lane.
const STRIDE_LIMIT: i64 = 1 << 20;

/// How a value differs between the four.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Each has `stride` more than the one before, at the width of the register; so many lowest bits of the first are zero.
    Steps {
        stride: i64,
        zeros: u32,
    },
    Any,
}

const SAME: Shape = Shape::Steps {
    stride: 0,
    zeros: 0,
};
/// What is zero before it is written.
const ZERO: Shape = Shape::Steps {
    stride: 0,
    zeros: 32,
};

impl Shape {
    fn steps(stride: i64, zeros: u32) -> Self {
        match stride.abs() > STRIDE_LIMIT {
            true => Shape::Any,
            false => Shape::Steps {
                stride,
                zeros: zeros.min(32),
            },
        }
    }

    /// How much it grows from lane to lane, if it is known.
    pub(super) fn stride(self) -> Option<i64> {
        match self {
            Shape::Steps { stride, .. } => Some(stride),
            Shape::Any => None,
        }
    }

    pub(super) fn is_same(self) -> bool {
        self.stride() == Some(0)
    }

    /// What holds for either.
    fn join(self, other: Self) -> Self {
        match (self, other) {
            (
                Shape::Steps { stride, zeros },
                Shape::Steps {
                    stride: other,
                    zeros: fewer,
                },
            ) if stride == other => Self::steps(stride, zeros.min(fewer)),
            _ => Shape::Any,
        }
    }

    /// Whether all four are known to lie between the same two multiples of a power of two that is larger than what they span, so that the
    /// sum never overflows from one to the next.
    fn stays_below_a_power(self) -> bool {
        match self {
            Shape::Steps { stride, zeros } => stride >= 0 && (stride * 3) >> zeros == 0,
            Shape::Any => false,
        }
    }
}

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Shapes {
    registers: Vec<Option<Shape>>,
    predicates: Vec<Option<Shape>>,
    /// What each step's results are; for a step without results, whether it can be carried out once for all four.
    pub(super) results: Vec<Shape>,
    /// Steps that widen a value of which the four may lie on either side of an overflow.
    pub(super) widening: Vec<u32>,
}

impl Shapes {
    /// `unset` are registers and predicates that may be read before they are written.
    pub(super) fn new(flat: &mut Flat, classes: &[Class], unset: &Set) -> Self {
        let registers = flat.registers;
        let first = |number| unset.has(number).then_some(ZERO);
        let mut shapes = Self {
            registers: (0..registers).map(first).collect(),
            predicates: (registers..registers + flat.predicates)
                .map(first)
                .collect(),
            results: vec![SAME; flat.steps.len()],
            widening: Vec::new(),
        };
        let mut steps = std::mem::take(&mut flat.steps);
        let mut changed = true;
        while changed {
            changed = false;
            for (at, step) in steps.iter_mut().enumerate() {
                changed |= shapes.pass(flat, classes, at, step);
            }
        }
        for (at, step) in (0..).zip(&steps) {
            if let Action::Op(op) = &step.action
                && shapes.result(at).stride().is_some()
                && shapes.may_split(flat, op)
            {
                shapes.widening.push(at);
            }
        }
        flat.steps = steps;
        shapes
    }

    /// Steps at which four lanes may part: they widen, branch or end, each as it finds.
    pub(super) fn partings(&self, flat: &Flat) -> HashSet<u32> {
        let steps = (0..).zip(&flat.steps).filter(|(_, step)| {
            let differs = step.guard.is_some_and(|guard| !self.flag(guard).is_same());
            differs
                && matches!(
                    step.action,
                    Action::Op(Op::Branch { .. } | Op::Exit | Op::Return)
                )
        });
        let steps = steps.map(|(at, _)| at);
        steps.chain(self.widening.iter().copied()).collect()
    }

    pub(super) fn result(&self, at: u32) -> Shape {
        let shape = self.results.get(at as usize);
        shape.copied().unwrap_or(Shape::Any)
    }

    /// Of a register, by its number, or of a predicate, by its number behind those.
    pub(super) fn register(&self, number: u32) -> Shape {
        let shape = match (number as usize).checked_sub(self.registers.len()) {
            None => self.registers.get(number as usize),
            Some(pred) => self.predicates.get(pred),
        };
        // What nobody writes is zero.
        shape.copied().flatten().unwrap_or(ZERO)
    }

    pub(super) fn flag(&self, flag: Flag) -> Shape {
        match flag {
            Flag::Known(_) => SAME,
            Flag::Pred(Pred(pred)) | Flag::Not(Pred(pred)) => {
                self.register(self.registers.len() as u32 + pred)
            }
        }
    }

    pub(super) fn source(&self, flat: &Flat, source: Source) -> Shape {
        match source {
            Source::Reg(Reg(reg)) => self.register(reg),
            Source::Constant(number) => match flat.constants.get(number as usize) {
                Some(Constant::Bits(bits)) => Shape::steps(0, bits.trailing_zeros()),
                _ => SAME,
            },
        }
    }

    /// Applies a step; whether anything was new.
    fn pass(&mut self, flat: &Flat, classes: &[Class], at: usize, step: &mut Step) -> bool {
        let guard = step.guard;
        let op = match &mut step.action {
            Action::Op(op) => op,
            Action::Clear {
                registers,
                predicates,
            } => {
                let mut changed = false;
                for reg in registers.0..registers.1 {
                    changed |= join(self.registers.get_mut(reg as usize), ZERO);
                }
                for pred in predicates.0..predicates.1 {
                    changed |= join(self.predicates.get_mut(pred as usize), ZERO);
                }
                return changed;
            }
            Action::Copy { .. } => {
                self.results[at] = Shape::Any;
                return false;
            }
        };
        // What depends on what has no shape yet waits for it.
        let mut all = SAME;
        let mut open = false;
        operands(op, &mut |operand| match operand {
            Operand::Reads(Source::Reg(reg), _) => match self.registers.get(reg.0 as usize) {
                Some(Some(shape)) if shape.is_same() => {}
                Some(None) => open = true,
                _ => all = Shape::Any,
            },
            Operand::ReadsFlag(Flag::Pred(pred) | Flag::Not(pred)) => {
                match self.predicates.get(pred.0 as usize) {
                    Some(Some(shape)) if shape.is_same() => {}
                    Some(None) => open = true,
                    _ => all = Shape::Any,
                }
            }
            _ => {}
        });
        if open {
            return false;
        }
        let mut result = self.computed(flat, classes, op, step.outermost, all);
        if guard.is_some_and(|guard| !self.flag(guard).is_same()) {
            result = Shape::Any;
        }
        let mut outs = Vec::new();
        operands(op, &mut |operand| match operand {
            Operand::Writes(reg, _) => outs.push((reg.0, true)),
            Operand::WritesFlag(pred) => outs.push((pred.0, false)),
            _ => {}
        });
        if result.stride().is_some_and(|stride| stride != 0) {
            let is_wide = match &*op {
                Op::Mov {
                    a: Source::Reg(reg),
                    ..
                } => classes.get(reg.0 as usize) == Some(&Class::I64),
                op => is_wide(op),
            };
            let suits = |number: u32| match classes.get(number as usize) {
                Some(Class::I32) => true,
                // Beyond 32 bits a sum of 32 goes on with zero.
                Some(Class::I64) => is_wide,
                _ => false,
            };
            if !outs
                .iter()
                .all(|(number, is_reg)| *is_reg && suits(*number))
            {
                result = Shape::Any;
            }
        }
        self.results[at] = result;
        let mut changed = false;
        for (number, is_reg) in outs {
            changed |= match is_reg {
                true => join(self.registers.get_mut(number as usize), result),
                false => join(self.predicates.get_mut(number as usize), result),
            };
        }
        changed
    }

    /// What an operation gives. `all` is the same for all lanes if whatever it reads is.
    fn computed(
        &self,
        flat: &Flat,
        classes: &[Class],
        op: &Op,
        outermost: bool,
        all: Shape,
    ) -> Shape {
        let known = |source: &Source| match source {
            Source::Constant(number) => match flat.constants.get(*number as usize) {
                Some(Constant::Bits(bits)) => Some(*bits),
                _ => None,
            },
            Source::Reg(_) => None,
        };
        // A register that keeps 32 bits goes on with zero above, for whoever reads 64.
        let of = |source: &Source, bits: u32| {
            let shape = self.source(flat, *source);
            match (source, shape.is_same(), bits) {
                (Source::Reg(reg), false, 64)
                    if classes.get(reg.0 as usize) == Some(&Class::I32) =>
                {
                    Shape::Any
                }
                _ => shape,
            }
        };
        let found = match op {
            Op::Mov { a, .. } => self.source(flat, *a),
            Op::Binary {
                op, ty, mode, a, b, ..
            } if !ty.is_float() && ty.bits() >= 32 && !mode.saturate && !mode.relu => {
                let (x, y) = (of(a, ty.bits()), of(b, ty.bits()));
                match op {
                    Binary::Add => plus(x, y, 1),
                    Binary::Sub => plus(x, y, -1),
                    Binary::Mul => times((x, known(a)), (y, known(b)), *ty),
                    Binary::MulWide if ty.bits() == 32 => times(
                        (self.source(flat, *a), known(a)),
                        (self.source(flat, *b), known(b)),
                        *ty,
                    ),
                    Binary::Shl | Binary::Shr | Binary::And => part(*op, x, known(b), ty.bits()),
                    _ => all,
                }
            }
            Op::Ternary {
                op: op @ (Ternary::Mad | Ternary::MadWide),
                ty,
                mode,
                a,
                b,
                c,
                ..
            } if !ty.is_float() && ty.bits() >= 32 && !mode.saturate => {
                let bits = match op {
                    Ternary::Mad => ty.bits(),
                    _ => 32,
                };
                let product = times((of(a, bits), known(a)), (of(b, bits), known(b)), *ty);
                let more = match op {
                    Ternary::Mad => of(c, bits),
                    _ => of(c, 64),
                };
                plus(product, more, 1)
            }
            Op::Convert {
                to, from, mode, a, ..
            } if !to.is_float()
                && !from.is_float()
                && to.bits() >= 32
                && from.bits() >= 32
                && !mode.saturate =>
            {
                of(a, from.bits())
            }
            Op::Generic { a, .. } => of(a, 64),
            Op::Special { which, .. } => match which {
                // Launches of which this does not hold have no lanes that go together.
                Special::Tid(0) | Special::LaneId => Shape::steps(1, 2),
                Special::Ntid(0) => Shape::steps(0, 2),
                Special::Clock
                | Special::ClockHi
                | Special::Clock64
                | Special::GlobalTimer
                | Special::GlobalTimerHi
                | Special::GlobalTimerLo
                | Special::LaneMaskEq
                | Special::LaneMaskGe
                | Special::LaneMaskGt
                | Special::LaneMaskLe
                | Special::LaneMaskLt => Shape::Any,
                _ => SAME,
            },
            Op::Load {
                space,
                order: Order::Weak,
                polls: false,
                ..
            }
            | Op::LoadVector {
                space,
                order: Order::Weak,
                polls: false,
                ..
            }
            | Op::Store {
                space,
                order: Order::Weak,
                ..
            }
            | Op::StoreVector {
                space,
                order: Order::Weak,
                ..
            } => match space {
                Space::Global | Space::Const | Space::Shared => all,
                Space::Param if outermost && is_of_kernel(flat, op) => all,
                // Each thread has its own.
                _ => Shape::Any,
            },
            Op::Load { .. }
            | Op::LoadVector { .. }
            | Op::Store { .. }
            | Op::StoreVector { .. }
            | Op::ActiveMask { .. }
            | Op::Atomic { .. }
            | Op::Call(_)
            | Op::Texture(_) => Shape::Any,
            Op::Together { mask, what } => match &**what {
                Together::Vote { .. } | Together::Reduce { .. } => {
                    match self.source(flat, *mask).is_same() {
                        true => SAME,
                        false => Shape::Any,
                    }
                }
                _ => Shape::Any,
            },
            Op::Barrier { kind, .. } => match kind {
                Barrier::Arrive | Barrier::Sync => SAME,
                _ => Shape::Any,
            },
            _ => all,
        };
        match found {
            Shape::Any => match op {
                // What has no rule of its own is the same where all that it reads is.
                Op::Binary { .. } | Op::Ternary { .. } | Op::Convert { .. } => all,
                _ => Shape::Any,
            },
            found => found,
        }
    }

    /// Whether a step widens a value that may overflow between the four lanes.
    fn may_split(&self, flat: &Flat, op: &Op) -> bool {
        let may = |source: &Source| {
            let shape = self.source(flat, *source);
            !shape.is_same() && !shape.stays_below_a_power()
        };
        match op {
            Op::Binary {
                op: Binary::MulWide,
                a,
                b,
                ..
            } => may(a) || may(b),
            Op::Ternary {
                op: Ternary::MadWide,
                a,
                b,
                ..
            } => may(a) || may(b),
            Op::Convert { to, from, a, .. } => to.bits() == 64 && from.bits() == 32 && may(a),
            _ => false,
        }
    }
}

/// Whether a step loads what the kernel was launched with.
fn is_of_kernel(flat: &Flat, op: &Op) -> bool {
    let (address, bytes) = match op {
        Op::Load { ty, address, .. } => (address, ty.bytes()),
        Op::LoadVector { ty, address, d, .. } => (address, ty.bytes() * d.len() as u64),
        _ => return false,
    };
    let Source::Constant(number) = address.base else {
        return false;
    };
    match flat.constants.get(number as usize) {
        Some(Constant::Bits(base)) => {
            let at = base.wrapping_add(address.offset as u64) & 0xffff_ffff;
            at + bytes.next_power_of_two() <= flat.kernel_bytes.into()
        }
        _ => false,
    }
}

/// The values of 32 bits that a step widens, and whether they have signs.
pub(super) fn widened(op: &Op) -> (Vec<Source>, bool) {
    match op {
        Op::Binary { ty, a, b, .. } | Op::Ternary { ty, a, b, .. } => {
            (vec![*a, *b], ty.is_signed())
        }
        Op::Convert { from, a, .. } => (vec![*a], from.is_signed()),
        _ => (Vec::new(), false),
    }
}

/// Whether an operation gives 64 bits.
fn is_wide(op: &Op) -> bool {
    match op {
        Op::Binary { op, ty, .. } => ty.bits() == 64 || *op == Binary::MulWide,
        Op::Ternary { op, ty, .. } => ty.bits() == 64 || *op == Ternary::MadWide,
        Op::Convert { to, .. } => to.bits() == 64,
        Op::Generic { .. } => true,
        _ => false,
    }
}

fn join(place: Option<&mut Option<Shape>>, shape: Shape) -> bool {
    let Some(place) = place else {
        return false;
    };
    let joined = place.map_or(shape, |old| old.join(shape));
    let changed = *place != Some(joined);
    *place = Some(joined);
    changed
}

fn plus(a: Shape, b: Shape, sign: i64) -> Shape {
    match (a, b) {
        (
            Shape::Steps { stride, zeros },
            Shape::Steps {
                stride: other,
                zeros: fewer,
            },
        ) => Shape::steps(stride + sign * other, zeros.min(fewer)),
        _ => Shape::Any,
    }
}

/// A product: of a value that grows only with a number that is known.
fn times(a: (Shape, Option<u64>), b: (Shape, Option<u64>), ty: Type) -> Shape {
    let number = |bits: u64| match (ty.bits(), ty.is_signed()) {
        (32, true) => i64::from(bits as i32),
        (32, false) => i64::from(bits as u32),
        _ => bits as i64,
    };
    match (a, b) {
        (
            (Shape::Steps { stride, zeros }, known),
            (
                Shape::Steps {
                    stride: other,
                    zeros: more,
                },
                other_known,
            ),
        ) => {
            let by = match (stride, other, known, other_known) {
                (0, 0, ..) => Some(0),
                (_, 0, _, Some(bits)) => stride.checked_mul(number(bits)),
                (0, _, Some(bits), _) => other.checked_mul(number(bits)),
                _ => None,
            };
            by.map_or(Shape::Any, |by| match by.checked_abs() {
                Some(_) => Shape::steps(by, zeros.saturating_add(more)),
                None => Shape::Any,
            })
        }
        _ => Shape::Any,
    }
}

/// A shift by a number that is known, or bits that are cut out.
fn part(op: Binary, a: Shape, known: Option<u64>, bits: u32) -> Shape {
    let (Shape::Steps { stride, zeros }, Some(number)) = (a, known) else {
        return Shape::Any;
    };
    match op {
        Binary::Shl if number < 20 => Shape::steps(stride << number, zeros + number as u32),
        // What the four differ by is shifted out, or they are the same already.
        Binary::Shr if stride >= 0 && number < bits.into() => {
            let below = a.stays_below_a_power() && (stride * 3) >> number.min(32) == 0;
            match stride == 0 || below {
                true => SAME,
                false => Shape::Any,
            }
        }
        // The bits that they differ in all stay.
        Binary::And if stride > 0 && a.stays_below_a_power() => {
            let span = 64 - ((stride * 3) as u64).leading_zeros();
            let low = (1_u64 << span) - 1;
            match number & low == low {
                true => Shape::steps(stride, zeros.max(number.trailing_zeros())),
                false => Shape::Any,
            }
        }
        _ => Shape::Any,
    }
}
