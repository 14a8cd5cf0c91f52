//! Which registers are needed where, and how each is kept.

use std::collections::HashMap;

use towline_ptx::ir::Constant;
use towline_ptx::ir::op::{Flag, Op, Pred, Reg, Source};
use towline_ptx::ptx::Type;

use super::flat::{Action, Flat, Step};
use super::operands::{Operand, Read, Written, operands};

/// How a register is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// The lower 32 bits are all that anybody reads, or all that is not zero.
    I32,
    I64,
    F32,
    /// A number of 32 bits that arithmetic gave: any NaN stands for the one that the interpreter has.
    Lazy,
    F64,
}

/// A set of registers and, behind them, predicates.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Set(Vec<u64>);

impl Set {
    pub(super) fn new(len: usize) -> Self {
        Self(vec![0; len.div_ceil(64)])
    }

    pub(super) fn insert(&mut self, number: u32) {
        if let Some(word) = self.0.get_mut(number as usize / 64) {
            *word |= 1 << (number % 64);
        }
    }

    pub(super) fn remove(&mut self, number: u32) {
        if let Some(word) = self.0.get_mut(number as usize / 64) {
            *word &= !(1 << (number % 64));
        }
    }

    pub(super) fn has(&self, number: u32) -> bool {
        let word = self.0.get(number as usize / 64);
        word.is_some_and(|word| word >> (number % 64) & 1 != 0)
    }

    pub(super) fn clear(&mut self) {
        self.0.fill(0);
    }

    pub(super) fn len(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// What two have in common.
    pub(super) fn both(&self, other: &Self) -> Self {
        let words = self.0.iter().zip(&other.0);
        Self(words.map(|(one, other)| one & other).collect())
    }

    /// Adds another's; says whether anything was new.
    pub(super) fn add(&mut self, other: &Self) -> bool {
        let mut new = false;
        for (word, more) in self.0.iter_mut().zip(&other.0) {
            new |= *more & !*word != 0;
            *word |= more;
        }
        new
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        (0_u32..).zip(&self.0).flat_map(|(index, word)| {
            let mut rest = *word;
            std::iter::from_fn(move || {
                let bit = (rest != 0).then(|| rest.trailing_zeros())?;
                rest &= rest - 1;
                Some(index * 64 + bit)
            })
        })
    }
}

/// Where control goes from a step.
pub(super) fn successors(step: &Step, at: u32) -> Vec<u32> {
    let guarded = step.guard.is_some();
    match &step.action {
        Action::Op(Op::Branch { target }) if guarded => vec![*target, at + 1],
        Action::Op(Op::Branch { target }) => vec![*target],
        Action::Op(Op::BranchIndexed { targets, .. }) => {
            let mut all = targets.to_vec();
            if guarded {
                all.push(at + 1);
            }
            all
        }
        Action::Op(Op::Exit | Op::Return | Op::Trap { .. }) if !guarded => Vec::new(),
        _ => vec![at + 1],
    }
}

/// First steps of blocks of code, and where these end.
pub(super) fn blocks(flat: &Flat, leaders: &[u32]) -> Vec<(u32, u32)> {
    let ends = leaders.iter().skip(1).copied();
    let ends = ends.chain([flat.steps.len() as u32]);
    leaders.iter().copied().zip(ends).collect()
}

/// What is needed at the start of each block of code; blocks are named by their first step.
pub(super) struct Liveness {
    sets: HashMap<u32, Set>,
}

impl Liveness {
    pub(super) fn new(flat: &mut Flat, leaders: &[u32]) -> Self {
        let len = (flat.registers + flat.predicates) as usize;
        let registers = flat.registers;
        let mut sets: HashMap<u32, Set> = leaders
            .iter()
            .map(|start| (*start, Set::new(len)))
            .collect();
        let blocks = blocks(flat, leaders);
        loop {
            let mut changed = false;
            for (start, end) in blocks.iter().rev() {
                let mut live = Set::new(len);
                for at in (*start..*end).rev() {
                    let step = &mut flat.steps[at as usize];
                    for next in successors(step, at) {
                        if (next != at + 1 || at + 1 == *end)
                            && let Some(set) = sets.get(&next)
                        {
                            live.add(set);
                        }
                    }
                    before(step, registers, &mut live);
                }
                if let Some(set) = sets.get_mut(start) {
                    changed |= set.add(&live);
                }
            }
            if !changed {
                return Self { sets };
            }
        }
    }

    pub(super) fn at(&self, start: u32) -> Set {
        self.sets.get(&start).cloned().unwrap_or_default()
    }
}

/// Whether threads always stop at a step.
pub(super) fn stops(step: &Step) -> bool {
    matches!(
        step.action,
        Action::Op(Op::Barrier { .. } | Op::Together { .. } | Op::Nanosleep { .. })
    )
}

/// What is needed before a step, from what is needed behind it.
pub(super) fn before(step: &mut Step, registers: u32, live: &mut Set) {
    let guarded = step.guard.is_some();
    match &mut step.action {
        Action::Op(op) => {
            if !guarded {
                operands(op, &mut |operand| match operand {
                    Operand::Writes(Reg(reg), _) => live.remove(*reg),
                    Operand::WritesFlag(Pred(pred)) => live.remove(registers + *pred),
                    _ => {}
                });
            }
            operands(op, &mut |operand| match operand {
                Operand::Reads(Source::Reg(Reg(reg)), _) => live.insert(*reg),
                Operand::ReadsFlag(flag) => read_flag(*flag, registers, live),
                _ => {}
            });
        }
        Action::Clear {
            registers: (first, end),
            predicates: (first_flag, end_flag),
        } => {
            (*first..*end).for_each(|reg| live.remove(reg));
            (*first_flag..*end_flag).for_each(|pred| live.remove(registers + pred));
        }
        Action::Copy { .. } => {}
    }
    if let Some(guard) = step.guard {
        read_flag(guard, registers, live);
    }
}

fn read_flag(flag: Flag, registers: u32, live: &mut Set) {
    if let Flag::Pred(Pred(pred)) | Flag::Not(Pred(pred)) = flag {
        live.insert(registers + pred);
    }
}

/// What is found out about a register.
#[derive(Debug, Clone, Copy)]
struct Known {
    /// Zeros above 32 bits, whatever is written.
    zeros: bool,
    /// Nobody reads above 32 bits.
    unread: bool,
    /// All that is written are numbers from arithmetic.
    computed: bool,
    /// For numbers, against integers.
    votes: i32,
}

/// Decides how registers are kept.
pub(super) fn classes(flat: &mut Flat) -> Vec<Class> {
    let first = Known {
        zeros: true,
        unread: true,
        computed: true,
        votes: 0,
    };
    let mut known = vec![first; flat.registers as usize];
    let mut steps = std::mem::take(&mut flat.steps);
    for step in &mut steps {
        if let Action::Op(op) = &mut step.action {
            vote(op, &mut known);
        }
    }
    loop {
        let mut changed = false;
        for step in &mut steps {
            if let Action::Op(op) = &mut step.action {
                changed |= narrow(op, &flat.constants, &mut known);
            }
        }
        if !changed {
            break;
        }
    }
    flat.steps = steps;
    known
        .into_iter()
        .map(|one| match (one.zeros || one.unread, one.votes > 0) {
            (true, true) if one.computed => Class::Lazy,
            (true, true) => Class::F32,
            (true, false) => Class::I32,
            (false, true) => Class::F64,
            (false, false) => Class::I64,
        })
        .collect()
}

fn vote(op: &mut Op, known: &mut [Known]) {
    operands(op, &mut |operand| {
        let (reg, vote) = match operand {
            Operand::Reads(Source::Reg(reg), read) => (
                *reg,
                match read {
                    Read::F32 | Read::F64 => 1,
                    Read::Narrow | Read::Wide => -1,
                    Read::AsWritten => 0,
                },
            ),
            Operand::Writes(reg, written) => (
                *reg,
                match written {
                    Written::F32 | Written::F64 => 2,
                    Written::AsRead => 0,
                    _ => -1,
                },
            ),
            _ => return,
        };
        if let Some(one) = known.get_mut(reg.0 as usize) {
            one.votes += vote;
        }
    });
}

/// Applies what an instruction says; whether that was news.
fn narrow(op: &mut Op, constants: &[Constant], known: &mut [Known]) -> bool {
    let (mut reads, mut written) = (Vec::new(), None);
    // Loads give bits, not what arithmetic gives; moves give what they read.
    let is_arithmetic = match op {
        // What is no number keeps its bits.
        Op::Convert { from, .. } => !matches!(from, Type::F64 | Type::Bf16),
        ref op => matches!(
            op,
            Op::Binary { .. } | Op::Ternary { .. } | Op::Unary { .. }
        ),
    };
    let is_move = matches!(op, Op::Mov { .. });
    let mut changed = false;
    let mut outs = Vec::new();
    operands(op, &mut |operand| match operand {
        Operand::Reads(source, read) => reads.push((*source, read)),
        Operand::Writes(reg, how) => outs.push((*reg, how)),
        _ => {}
    });
    let of = |source: &Source, known: &[Known]| match source {
        Source::Reg(reg) => known
            .get(reg.0 as usize)
            .map(|one| (one.zeros, one.computed)),
        Source::Constant(number) => {
            constants
                .get(*number as usize)
                .map(|constant| match constant {
                    Constant::Bits(bits) => (
                        *bits <= u64::from(u32::MAX),
                        !f32::from_bits(*bits as u32).is_nan(),
                    ),
                    Constant::Address { .. } => (false, false),
                })
        }
    };
    for (reg, how) in &outs {
        let inputs = reads.iter().filter(|(_, read)| *read == Read::AsWritten);
        let (zeros, computed) = match how {
            Written::Narrow => (true, false),
            Written::F32 => (true, is_arithmetic),
            Written::AsRead => {
                let mut all = (true, is_move);
                for (source, _) in inputs {
                    let (zeros, computed) = of(source, known).unwrap_or((false, false));
                    all = (all.0 && zeros, all.1 && computed);
                }
                all
            }
            _ => (false, false),
        };
        if let Some(one) = known.get_mut(reg.0 as usize) {
            changed |= one.zeros && !zeros || one.computed && !computed;
            one.zeros &= zeros;
            one.computed &= computed;
            written = Some(*one);
        }
    }
    for (source, read) in &reads {
        let Source::Reg(reg) = source else {
            continue;
        };
        let unread = match read {
            Read::Narrow | Read::F32 => true,
            Read::F64 | Read::Wide => false,
            Read::AsWritten => written.is_none_or(|one| one.unread),
        };
        if let Some(one) = known.get_mut(reg.0 as usize) {
            changed |= one.unread && !unread;
            one.unread &= unread;
        }
    }
    changed
}
