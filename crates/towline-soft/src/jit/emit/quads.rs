//! Four lanes at once: the loop of a region that takes lanes by fours, as long as these go the same way.
//!
//! What is the same for all four, or grows by the same from each to the next, is computed once (`shapes`); 32 bits that differ go into a
//! vector, and what has no code for vectors is done for one lane after the other. Where the four part they leave their registers in
//! their frames, each with the number of the place where it goes on, and the region's other loop takes them one by one from there.

use std::collections::HashSet;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{Block, InstBuilder, MemFlags, Value, types};
use towline_ptx::ir::op::{Binary, Compare, Flag, Op, Source, Ternary, Unary};
use towline_ptx::ptx::Type;

use super::stops::word_of;
use super::{Emitter, Form, Kind, Row, Stop, Wait};
use crate::jit::flat::{Action, opposite};
use crate::jit::head::offset;
use crate::jit::live::{Set, blocks, stops};
use crate::jit::operands::{Operand, operands};
use crate::jit::shapes::{QUAD, Shape, widened};
use crate::jit::{DONE, EXCHANGE, Refusal, arith, convert};

/// Most registers that a region stores, all places taken together where lanes may part: that much code it is worth.
const PARTING_LIMIT: u32 = 600;
/// Most steps of such a region.
const STEPS_LIMIT: u32 = 2000;
/// Most steps that are carried out for some of four lanes without their parting.
const SHORT: usize = 4;

/// Whether an operation only computes.
fn is_arithmetic(op: &Op) -> bool {
    matches!(
        op,
        Op::Binary { .. } | Op::Convert { .. } | Op::Ternary { .. } | Op::Unary { .. }
    )
}

/// Whether an operation says how lanes go on.
fn directs(op: &Op) -> bool {
    matches!(
        op,
        Op::Barrier { .. }
            | Op::Branch { .. }
            | Op::BranchIndexed { .. }
            | Op::Exit
            | Op::Nanosleep { .. }
            | Op::Return
            | Op::Together { .. }
            | Op::Trap { .. }
    )
}

/// Where lanes go on that have parted.
#[derive(Debug, Clone, Copy)]
enum Way {
    End,
    To(u32),
}

impl Emitter<'_, '_> {
    /// Whether a region is to have a loop that takes four lanes at a time.
    pub(super) fn takes_four(&mut self, leaders: &[u32], inside: &HashSet<u32>) -> bool {
        if self.whole || !self.has_vectors {
            return false;
        }
        let flat = self.flat;
        let (mut steps, mut cost, mut parting) = (0, 0, 0);
        for (start, end) in blocks(flat, leaders) {
            if !inside.contains(&start) {
                continue;
            }
            for at in start..end {
                let step = &flat.steps[at as usize];
                let differs = step
                    .guard
                    .is_some_and(|guard| !self.shapes.flag(guard).is_same());
                steps += 1;
                let Action::Op(op) = &step.action else {
                    cost += QUAD as u32;
                    continue;
                };
                if self.shapes.widening.contains(&at) {
                    parting += self.kept.stored_before(at).len();
                }
                match op {
                    Op::Branch { .. } | Op::Exit | Op::Return if differs => {
                        parting += self.kept.stored_before(at + 1).len();
                        cost += 1;
                    }
                    Op::BranchIndexed { index, .. }
                        if differs || !self.shapes.source(flat, *index).is_same() =>
                    {
                        return false;
                    }
                    Op::BranchIndexed { .. } | Op::Trap { .. } if differs => return false,
                    _ if differs && stops(step) => return false,
                    _ if differs => cost += QUAD as u32 + 1,
                    op if self.goes_apart(at, op) => cost += QUAD as u32,
                    _ => cost += 1,
                }
            }
        }
        // What mostly is done for each lane by itself gains nothing.
        steps <= STEPS_LIMIT && parting <= PARTING_LIMIT && cost * 2 <= steps * 5
    }

    fn goes_apart(&self, at: u32, op: &Op) -> bool {
        !directs(op)
            && self.shapes.result(at).stride().is_none()
            && !self.has_vector_code(op)
            && self.across(op).is_none()
    }

    /// A step for four lanes, of which the guard holds for all.
    pub(super) fn step_of_four(&mut self, op: &Op) -> Result<bool, Refusal> {
        if directs(op) || matches!(op, Op::ActiveMask { .. } | Op::Call(_)) {
            return self.step(op);
        }
        if self.shapes.result(self.at).stride().is_some() {
            if self.shapes.widening.contains(&self.at) {
                self.part_on_overflow(op);
            }
            self.plain(op)?;
        } else if let Some(stride) = self.across(op) {
            self.access_across(op, stride)?;
        } else if self.has_vector_code(op) {
            self.form = Form::Four;
            let done = self.plain(op);
            self.form = Form::One(0);
            done?;
        } else {
            self.apart(op, None)?;
        }
        Ok(false)
    }

    /// Carries an operation out for one lane after the other: for those for which the guard holds.
    pub(super) fn apart(&mut self, op: &Op, guard: Option<Flag>) -> Result<(), Refusal> {
        let mut op_now = op.clone();
        let registers = self.flat.registers;
        let mut outs = Vec::new();
        operands(&mut op_now, &mut |operand| match operand {
            Operand::Writes(reg, _) => outs.push(reg.0),
            Operand::WritesFlag(pred) => outs.push(registers + pred.0),
            _ => {}
        });
        outs.retain(|number| self.is_vector(*number));
        self.each_lane(&outs, guard.is_some(), |this| {
            let past = this.guard(guard);
            this.plain(op)?;
            if let Some(past) = past {
                this.b.ins().jump(past, &[]);
                this.b.switch_to_block(past);
            }
            Ok(())
        })
    }

    /// Makes code for each lane in turn, and vectors of what it leaves in these registers and predicates.
    pub(in crate::jit) fn each_lane(
        &mut self,
        outs: &[u32],
        keeps: bool,
        mut make: impl FnMut(&mut Self) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let registers = self.flat.registers;
        if keeps {
            // A lane for which the guard does not hold has what it had.
            for number in outs {
                let (singles, ty) = self.singles(*number);
                let (vector, _) = self.vector(*number);
                let all = self.b.use_var(vector);
                for (lane, single) in (0..).zip(singles) {
                    let value = self.b.ins().extractlane(all, lane);
                    let value = match ty {
                        types::I8 => {
                            let value = self.b.ins().ireduce(types::I8, value);
                            self.b.ins().band_imm(value, 1)
                        }
                        _ => value,
                    };
                    self.b.def_var(single, value);
                }
            }
        }
        let first = (self.lane, self.argument_base, self.local_base);
        let shares = self.flat.shares().map(|bytes| bytes as i64);
        self.gathers = true;
        for part in 0..QUAD {
            let more = part as i64;
            self.form = Form::One(part);
            self.lane = self.b.ins().iadd_imm(first.0, more);
            self.argument_base = self.b.ins().iadd_imm(first.1, more * shares[0]);
            self.local_base = self.b.ins().iadd_imm(first.2, more * shares[1]);
            make(self)?;
        }
        self.gathers = false;
        self.form = Form::One(0);
        (self.lane, self.argument_base, self.local_base) = first;
        for number in outs {
            let (singles, _) = self.singles(*number);
            let (vector, _) = self.vector(*number);
            let mut values = singles.map(|single| self.b.use_var(single));
            if *number >= registers {
                values = values.map(|value| self.b.ins().uextend(types::I32, value));
            }
            let mut all = self.joined(values);
            if *number >= registers {
                all = self.b.ins().ineg(all);
            }
            self.b.def_var(vector, all);
        }
        Ok(())
    }

    /// Whether an operation on 32 bits that differ has code for vectors.
    fn has_vector_code(&self, op: &Op) -> bool {
        let same = |source: &Source| self.shapes.source(self.flat, *source).is_same();
        let is_word = |ty: &Type| matches!(ty, Type::U32 | Type::S32 | Type::B32);
        let suits = match op {
            Op::Mov { .. } | Op::Select { .. } | Op::PredMov { .. } | Op::PredLogic { .. } => true,
            Op::SetPredicate { compare, ty, .. } => {
                *ty == Type::F32 || is_word(ty) && !matches!(compare, Compare::Num | Compare::Nan)
            }
            Op::Binary {
                op, ty, mode, b, ..
            } => match op {
                Binary::And | Binary::Or | Binary::Xor => true,
                Binary::Add | Binary::Sub | Binary::Mul | Binary::Max | Binary::Min
                    if is_word(ty) =>
                {
                    !mode.saturate && !mode.relu
                }
                Binary::Shl | Binary::Shr if is_word(ty) => same(b),
                Binary::Add
                | Binary::Sub
                | Binary::Mul
                | Binary::Div
                | Binary::DivApprox
                | Binary::Max
                | Binary::Min => *ty == Type::F32 && arith::is_simple(*mode),
                _ => false,
            },
            Op::Ternary { op, ty, mode, .. } => match op {
                Ternary::Fma => *ty == Type::F32 && arith::is_simple(*mode) && self.has_fma,
                Ternary::Mad => is_word(ty) && !mode.saturate,
                Ternary::Lop3(_) => true,
                _ => false,
            },
            Op::Unary { op, ty, mode, .. } => match op {
                Unary::Abs | Unary::Neg => matches!(ty, Type::F32 | Type::S32),
                Unary::Sqrt | Unary::Rcp | Unary::Rsqrt => {
                    *ty == Type::F32 && arith::is_simple(*mode)
                }
                Unary::Not => true,
                _ => false,
            },
            Op::Convert { to, from, mode, .. } => match (to, from) {
                (Type::F32, Type::F32) => convert::is_converted(*mode),
                (Type::F32, from) if is_word(from) => {
                    convert::is_converted(*mode) && convert::is_nearest(*mode)
                }
                (to, Type::F32) if is_word(to) => convert::is_converted(*mode),
                _ => false,
            },
            _ => false,
        };
        if !suits {
            return false;
        }
        // All that differs must be in vectors.
        let mut all = true;
        let mut op = op.clone();
        operands(&mut op, &mut |operand| match operand {
            Operand::Reads(Source::Reg(reg), _) => {
                all &= self.is_vector(reg.0) || self.shapes.register(reg.0).is_same();
            }
            Operand::Writes(reg, _) => all &= self.is_vector(reg.0),
            _ => {}
        });
        all
    }

    /// Where what is to be widened overflows between the four lanes they part: each goes on by itself with this very step.
    fn part_on_overflow(&mut self, op: &Op) {
        let (sources, signed) = widened(op);
        for source in sources {
            let shape = self.shapes.source(self.flat, source);
            let span = match shape.stride() {
                None | Some(0) => continue,
                Some(stride) => stride * (QUAD as i64 - 1),
            };
            let first = self.get_exact(source, Kind::I32);
            // The first value that does not leave room for the others.
            let (condition, limit) = match (signed, span > 0) {
                (true, true) => (IntCC::SignedLessThanOrEqual, i64::from(i32::MAX) - span),
                (true, false) => (IntCC::SignedGreaterThanOrEqual, i64::from(i32::MIN) - span),
                (false, true) => (IntCC::UnsignedLessThanOrEqual, i64::from(u32::MAX) - span),
                (false, false) => (IntCC::UnsignedGreaterThanOrEqual, -span),
            };
            let limit = self.b.ins().iconst(types::I32, i64::from(limit as u32));
            let fits = self.b.ins().icmp(condition, first, limit);
            let (on, parted) = (self.b.create_block(), self.b.create_block());
            self.b.ins().brif(fits, on, &[], parted, &[]);
            self.b.switch_to_block(parted);
            self.b.set_cold_block(parted);
            let states = self.state_of(Way::To(self.at));
            self.leave_parted(&[self.at], states);
            self.b.switch_to_block(on);
        }
    }

    /// A branch that each lane decides for itself.
    pub(super) fn branch_of_four(
        &mut self,
        guard: Flag,
        target: u32,
        at: u32,
    ) -> Result<(), Refusal> {
        if self.is_short(target, at) {
            return self.skip(guard, target, at);
        }
        let fresh = target <= at && !self.turns.contains_key(&target);
        let block = self.target(target, at);
        let next = self.parts(guard, (block, Way::To(target)), at);
        if let Some(end) = next {
            self.b.switch_to_block(end);
            self.exit();
        }
        if fresh {
            self.turn(block, target);
        }
        Ok(())
    }

    /// Whether a branch goes past a few steps only, which leave nothing that four lanes keep as one value.
    fn is_short(&self, target: u32, at: u32) -> bool {
        let past = at + 1..target;
        if past.is_empty() || past.len() > SHORT || !self.blocks.contains_key(&target) {
            return false;
        }
        past.into_iter().all(|step| {
            let is_entered = step > at + 1 && self.blocks.contains_key(&step);
            let step = &self.flat.steps[step as usize];
            let Action::Op(op) = &step.action else {
                return false;
            };
            let is_plain = matches!(
                op,
                Op::Atomic { .. } | Op::Mov { .. } | Op::Store { .. } | Op::StoreVector { .. }
            ) || is_arithmetic(op);
            let mut differ = true;
            operands(&mut op.clone(), &mut |operand| match operand {
                Operand::Writes(reg, _) => {
                    differ &= self.shapes.register(reg.0).stride().is_none();
                }
                Operand::WritesFlag(_) => differ = false,
                _ => {}
            });
            !is_entered && step.guard.is_none() && is_plain && differ
        })
    }

    /// Such a branch: where the four do not agree, those steps are carried out for some of them, and they do not part.
    fn skip(&mut self, guard: Flag, target: u32, at: u32) -> Result<(), Refusal> {
        let mask = self.for_four(|this| this.flag(guard));
        let bits = self.b.ins().vhigh_bits(types::I32, mask);
        let (some, mixed) = (self.b.create_block(), self.b.create_block());
        let (past, next) = (self.blocks[&target], self.blocks[&(at + 1)]);
        self.b.ins().brif(bits, some, &[], next, &[]);
        self.b.switch_to_block(some);
        let all = self.b.ins().icmp_imm(IntCC::Equal, bits, (1 << QUAD) - 1);
        self.b.ins().brif(all, past, &[], mixed, &[]);
        self.b.switch_to_block(mixed);
        // Each access looks for itself whether it is allowed: the one before it may have been another lane's.
        let checked = std::mem::take(&mut self.checked);
        let run_at = self.run_at.clone();
        let flat = self.flat;
        for step in at + 1..target {
            self.at = step;
            if let Action::Op(op) = &flat.steps[step as usize].action {
                self.apart(op, Some(opposite(guard)))?;
            }
        }
        (self.checked, self.run_at) = (checked, run_at);
        self.at = at;
        self.b.ins().jump(past, &[]);
        Ok(())
    }

    /// An end that each lane decides for itself.
    pub(super) fn exit_of_four(&mut self, guard: Flag, at: u32) {
        let ended = self.b.create_block();
        let next = self.parts(guard, (ended, Way::End), at);
        for end in [Some(ended), next].into_iter().flatten() {
            self.b.switch_to_block(end);
            self.exit();
        }
    }

    /// All go one way or the other, or part. Gives the block of those who go past the last step.
    fn parts(&mut self, guard: Flag, (block, way): (Block, Way), at: u32) -> Option<Block> {
        let mask = self.for_four(|this| this.flag(guard));
        let bits = self.b.ins().vhigh_bits(types::I32, mask);
        let (past, end) = match self.blocks.get(&(at + 1)) {
            Some(&next) => (next, None),
            None => {
                let end = self.b.create_block();
                (end, Some(end))
            }
        };
        let (some, parted) = (self.b.create_block(), self.b.create_block());
        self.b.ins().brif(bits, some, &[], past, &[]);
        self.b.switch_to_block(some);
        let all = self.b.ins().icmp_imm(IntCC::Equal, bits, (1 << QUAD) - 1);
        self.b.ins().brif(all, block, &[], parted, &[]);
        self.b.switch_to_block(parted);
        self.b.set_cold_block(parted);
        let other = match end {
            None => Way::To(at + 1),
            Some(_) => Way::End,
        };
        let (taken, not) = (self.state_of(way), self.state_of(other));
        let states = self.b.ins().bitselect(mask, taken, not);
        let ways = [way, other].into_iter().filter_map(|way| match way {
            Way::To(step) => Some(step),
            Way::End => None,
        });
        let ways: Vec<_> = ways.collect();
        self.leave_parted(&ways, states);
        end
    }

    /// The state of lanes that go on by themselves.
    fn state_of(&mut self, way: Way) -> Value {
        let state = match way {
            Way::End => DONE,
            Way::To(step) => self.parted_at(step),
        };
        let state = self.b.ins().iconst(types::I32, i64::from(state));
        self.b.ins().splat(types::I32X4, state)
    }

    /// The number of the place where lanes go on by themselves with this step.
    fn parted_at(&mut self, step: u32) -> u32 {
        if let Some(number) = self.parted.get(&step) {
            return *number;
        }
        for number in self.kept.room(step).iter() {
            self.make_room(number);
        }
        self.stops = true;
        let stop = Stop {
            wait: Wait::Turn,
            step: self.at,
            known: [None; EXCHANGE],
            tells: false,
            sources: None,
            four: false,
            parted: true,
            narrow: false,
        };
        let rows = self.rows(step, &[]);
        let number = self.outline.stop(stop, rows);
        self.parted.insert(step, number);
        self.alone.push((number, step));
        number
    }

    fn leave_parted(&mut self, steps: &[u32], states: Value) {
        let mut stored = Set::new((self.flat.registers + self.flat.predicates) as usize);
        for step in steps {
            stored.add(&self.kept.stored_before(*step));
        }
        self.keep(stored.iter());
        self.break_chain();
        let (head, one) = (self.head, self.b.ins().iconst(types::I32, 1));
        let flags = MemFlags::trusted();
        self.b.ins().store(flags, one, head, offset!(parted));
        self.leave(states);
    }

    /// What the rows of a quad's frames hold that have the first lane's value only, of all that is needed before a step.
    pub(super) fn rows(&self, step: u32, given: &[(u32, u32)]) -> Vec<Row> {
        let room = self.kept.room(step);
        let given_here = |number: u32| given.iter().find(|(one, _)| *one == number);
        let rows = room.iter().filter_map(|number| {
            let Shape::Steps { stride, zeros } = self.shapes.register(number) else {
                return None;
            };
            let (word, is_wide) = match given_here(number) {
                Some((_, word)) => (*word as usize, true),
                None => (
                    word_of(self.slots.get(&number).copied()?),
                    !self.is_vector(number),
                ),
            };
            let is_flag = number >= self.flat.registers;
            Some(Row {
                word,
                is_wide,
                stride,
                zeros: if is_flag { 0 } else { zeros },
                given: given_here(number).is_some(),
            })
        });
        rows.collect()
    }
}
