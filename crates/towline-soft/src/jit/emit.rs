//! From steps to machine code: control flow, and how registers travel.
//!
//! The code of a kernel is one function. It takes the threads of a warp that go on from the same place, one after another, and runs each
//! until it ends, or comes to where it must wait: there it writes what is still needed to the thread's frame, and the number of the
//! place to its state. Called again, it goes on from that place.
//!
//! What can be reached from such a place without another stop is a *region*, with a loop over threads of its own, so that there is
//! nothing to decide for each thread. Regions share no code. Where that would make too much of it there is one region for all places.

mod regions;
mod stops;

use std::collections::{HashMap, HashSet};

use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::immediates::{Ieee32, Ieee64};
use cranelift_codegen::ir::{
    self, AbiParam, Block, FuncRef, InstBuilder, JumpTableData, MemFlags, Value, types,
};
use cranelift_frontend::{FunctionBuilder, Switch, Variable};
use towline_ptx::ir::Constant;
use towline_ptx::ir::op::{Flag, Op, Pred, Reg, Source};

use regions::fits_apart;

use super::flat::{Action, Flat, Step};
use super::head::{Uniform, offset, uniform};
use super::kept::Kept;
use super::live::{Class, classes, stops, successors};
use super::runs::{Run, runs};
use super::{DONE, EXCHANGE, POLL_COST, ROUND_COST, Refusal};
use crate::exec::together::Sources;

/// How a value is wanted, or has come about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    I32,
    I64,
    /// Any NaN stands for the one that arithmetic gives.
    F32,
    F64,
}

impl Kind {
    pub(super) fn ty(self) -> ir::Type {
        match self {
            Kind::I32 => types::I32,
            Kind::I64 => types::I64,
            Kind::F32 => types::F32,
            Kind::F64 => types::F64,
        }
    }
}

fn class_type(class: Class) -> ir::Type {
    match class {
        Class::I32 => types::I32,
        Class::I64 => types::I64,
        Class::F32 | Class::Lazy => types::F32,
        Class::F64 => types::F64,
    }
}

/// Where threads wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// At a barrier that all threads come to, by its number; its step otherwise.
    All(u32),
    Barrier,
    Together,
    /// For nothing: others have their turn.
    Turn,
}

/// A place where a thread may stop, and go on later.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stop {
    pub(crate) wait: Wait,
    pub(crate) step: u32,
    /// Words that are the same for all who stop here, and that frames do not have therefore.
    pub(crate) known: [Option<u64>; EXCHANGE],
    /// The flag that lanes take away is looked at.
    pub(crate) tells: bool,
    /// For a shuffle of which the distance and the limits are known.
    pub(crate) sources: Option<Sources>,
}

/// Where a region starts.
#[derive(Debug, Clone, Copy)]
enum Place {
    Start,
    /// Behind a step where threads stop.
    Behind(u32),
}

/// A memory access that looks for its address in a slot, or that a helper carries out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Site {
    pub(crate) step: u32,
    pub(crate) bytes: u32,
    /// It stands for all loads of the run that starts with its step.
    pub(crate) is_run: bool,
}

/// What code refers to outside of itself.
pub(super) struct Helpers {
    /// Leaves its result as the head's answer, as does `evaluate_rarely`.
    pub(super) access: FuncRef,
    pub(super) atomic: FuncRef,
    pub(super) evaluate: FuncRef,
    pub(super) evaluate_rarely: FuncRef,
    pub(super) fail: FuncRef,
    pub(super) special: FuncRef,
}

/// What comes out besides code.
#[derive(Debug, Default)]
pub(crate) struct Outline {
    pub(crate) stops: Vec<Stop>,
    pub(crate) sites: Vec<Site>,
    /// Loads that are checked together, by the first of them.
    pub(crate) runs: HashMap<u32, Run>,
    /// Words of a thread's frame.
    pub(crate) frame_words: usize,
    /// Some access looks at memory that others may change.
    pub(crate) polls: bool,
}

pub(super) struct Emitter<'a, 'b> {
    pub(super) b: &'a mut FunctionBuilder<'b>,
    pub(super) flat: &'a Flat,
    classes: Vec<Class>,
    registers: Vec<Option<Variable>>,
    predicates: Vec<Option<Variable>>,
    fuel: Variable,
    blocks: HashMap<u32, Block>,
    slots: HashMap<u32, i32>,
    /// The numbers of stops, by the steps that threads stop at.
    numbers: HashMap<u32, u32>,
    /// Where threads begin or go on, each to be the start of a region.
    places: Vec<Place>,
    /// There is one region for all places.
    whole: bool,
    /// Other places that threads go on from in this region: number of the stop and its block.
    resumes: Vec<(u32, Block)>,
    turns: HashMap<u32, Block>,
    pub(super) helpers: Helpers,
    pub(super) outline: Outline,
    pub(super) head: Value,
    pub(super) lane: Value,
    pub(super) frame: Value,
    kept: Kept,
    /// Words that the next stop knows.
    known_words: [Option<u64>; EXCHANGE],
    pub(super) argument_base: Value,
    pub(super) local_base: Value,
    /// Where threads come that have stopped, with their state.
    stopped: Block,
    finished: Block,
    /// Threads may stop before their end.
    stops: bool,
    pub(super) faulted: Block,
    pub(super) has_fma: bool,
    /// For loads whose checks have been made: the first of their run, and how far they are from it.
    pub(super) checked: HashMap<u32, (u32, i64)>,
    /// Where the first of a run lies in the host's memory.
    pub(super) run_at: HashMap<u32, Value>,
    /// The step that is being translated.
    pub(super) at: u32,
    fixed: HashMap<u32, u64>,
    /// Registers that something reads.
    pub(super) read: HashSet<u32>,
}

/// Most registers of all blocks of code together.
const LIVE_LIMIT: u64 = 1 << 27;

/// Registers that some instruction reads.
fn read_registers(flat: &mut Flat) -> HashSet<u32> {
    let mut found = HashSet::new();
    for step in &mut flat.steps {
        if let Action::Op(op) = &mut step.action {
            super::operands::operands(op, &mut |operand| {
                if let super::operands::Operand::Reads(Source::Reg(reg), _) = operand {
                    found.insert(reg.0);
                }
            });
        }
    }
    found
}

/// First steps of blocks of code, in order.
fn leaders(flat: &Flat) -> Vec<u32> {
    let mut found = HashSet::from([0]);
    for (at, step) in (0..).zip(&flat.steps) {
        let next = successors(step, at);
        // Branches go to starts of blocks, if only to the next step.
        let branches = matches!(step.action, Action::Op(Op::Branch { .. }));
        if next != [at + 1] || stops(step) || branches {
            found.extend(next);
            found.insert(at + 1);
        }
    }
    found.retain(|at| (*at as usize) < flat.steps.len());
    let mut found: Vec<_> = found.into_iter().collect();
    found.sort_unstable();
    found
}

/// Registers that one instruction writes once for all: with what.
fn fixed(flat: &mut Flat) -> HashMap<u32, u64> {
    let mut writes: HashMap<u32, u32> = HashMap::new();
    let mut values = HashMap::new();
    for step in &mut flat.steps {
        let Action::Op(op) = &mut step.action else {
            continue;
        };
        if let (
            Op::Mov {
                d,
                a: Source::Constant(number),
            },
            None,
        ) = (&*op, step.guard)
            && let Some(Constant::Bits(bits)) = flat.constants.get(*number as usize)
        {
            values.insert(d.0, *bits);
        }
        super::operands::operands(op, &mut |operand| {
            if let super::operands::Operand::Writes(reg, _) = operand {
                *writes.entry(reg.0).or_default() += 1;
            }
        });
    }
    values.retain(|reg, _| writes.get(reg) == Some(&1));
    values
}

impl<'a, 'b> Emitter<'a, 'b> {
    /// Translates a kernel.
    pub(super) fn emit(
        b: &'a mut FunctionBuilder<'b>,
        flat: &'a mut Flat,
        helpers: Helpers,
        has_fma: bool,
    ) -> Result<Outline, Refusal> {
        let leaders = leaders(flat);
        let registers = u64::from(flat.registers) + u64::from(flat.predicates);
        if registers * leaders.len() as u64 > LIVE_LIMIT {
            return Err(Refusal::Large);
        }
        let read = read_registers(flat);
        let classes = classes(flat);
        let kept = Kept::new(flat, &leaders);
        let runs = runs(flat, &leaders);
        let fixed = fixed(flat);
        let entry = b.create_block();
        b.append_block_params_for_function_params(entry);
        b.switch_to_block(entry);
        let (head, mask) = (b.block_params(entry)[0], b.block_params(entry)[1]);
        let (finished, regions) = (b.create_block(), b.create_block());
        b.ins().jump(regions, &[]);
        b.switch_to_block(finished);
        b.ins().return_(&[]);
        let fuel = b.declare_var(types::I32);
        let whole = !fits_apart(flat, &leaders);
        let mut emitter = Self {
            registers: vec![None; flat.registers as usize],
            predicates: vec![None; flat.predicates as usize],
            b,
            flat,
            classes,
            kept,
            fuel,
            blocks: HashMap::new(),
            slots: HashMap::new(),
            numbers: HashMap::new(),
            places: vec![Place::Start],
            whole,
            resumes: Vec::new(),
            turns: HashMap::new(),
            helpers,
            outline: Outline::default(),
            head,
            // Each region has its own of these.
            lane: head,
            frame: head,
            argument_base: head,
            local_base: head,
            stopped: finished,
            finished,
            known_words: [None; EXCHANGE],
            stops: true,
            faulted: finished,
            has_fma,
            checked: HashMap::new(),
            run_at: HashMap::new(),
            at: 0,
            fixed,
            read,
        };
        emitter.outline.frame_words = emitter.frame_words();
        for (first, run) in &runs {
            let rest = run.members.iter().skip(1);
            let rest = rest.map(|(step, away)| (*step, (*first, *away)));
            emitter.checked.extend(rest);
        }
        emitter.outline.runs = runs;
        let mut switch = Switch::new();
        let mut next = 0;
        while let Some(place) = emitter.places.get(next).copied() {
            next += 1;
            emitter.region(place, mask, &leaders, &mut switch)?;
        }
        emitter.b.switch_to_block(regions);
        let (state, wrong) = (emitter.state(), emitter.b.create_block());
        switch.emit(emitter.b, state, wrong);
        // There are no other states.
        emitter.faulted = finished;
        emitter.b.switch_to_block(wrong);
        emitter.b.set_cold_block(wrong);
        emitter.lane = emitter.b.ins().iconst(types::I64, 0);
        emitter.fail();
        emitter.b.seal_all_blocks();
        Ok(emitter.outline)
    }

    /// `base` plus the lane's share of so many bytes.
    fn beside(&mut self, base: Value, bytes: u64) -> Value {
        let by = self.b.ins().imul_imm(self.lane, bytes as i64);
        self.b.ins().iadd(base, by)
    }

    /// A value of the head that does not change while the code runs.
    pub(super) fn constant_load(&mut self, ty: ir::Type, at: i32) -> Value {
        let flags = MemFlags::trusted().with_readonly().with_can_move();
        self.b.ins().load(ty, flags, self.head, at)
    }

    pub(super) fn uniform(&mut self, which: Uniform) -> Value {
        self.constant_load(types::I64, uniform(which))
    }

    /// Registers and predicates become zero.
    fn clear(&mut self, registers: (u32, u32), predicates: (u32, u32)) {
        for reg in registers.0..registers.1 {
            let ty = class_type(self.classes[reg as usize]);
            let zero = self.zero(ty);
            let variable = self.register(reg);
            self.b.def_var(variable, zero);
        }
        for pred in predicates.0..predicates.1 {
            let zero = self.b.ins().iconst(types::I8, 0);
            let variable = self.predicate(pred);
            self.b.def_var(variable, zero);
        }
    }

    pub(super) fn zero(&mut self, ty: ir::Type) -> Value {
        match ty {
            types::F32 => self.b.ins().f32const(0.0),
            types::F64 => self.b.ins().f64const(0.0),
            ty => self.b.ins().iconst(ty, 0),
        }
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

    /// Translates the steps of a block.
    fn run(&mut self, start: u32, end: u32) -> Result<(), Refusal> {
        let flat = self.flat;
        for at in start..end {
            self.at = at;
            let step = &flat.steps[at as usize];
            if let Action::Op(Op::Branch { target }) = step.action {
                self.branch(step.guard, target, at);
                return Ok(());
            }
            let past = self.guard(step.guard);
            let ended = match &step.action {
                Action::Clear {
                    registers,
                    predicates,
                } => {
                    self.clear(*registers, *predicates);
                    false
                }
                Action::Copy {
                    kernel,
                    from,
                    to,
                    len,
                } => {
                    self.copy(*kernel, *from, *to, *len);
                    false
                }
                Action::Op(op) => self.step(op)?,
            };
            if let Some(past) = past {
                if !ended {
                    self.b.ins().jump(past, &[]);
                }
                self.b.switch_to_block(past);
            }
            let falls = !ended || past.is_some();
            if at + 1 == end && falls {
                match self.blocks.get(&end) {
                    Some(&next) => self.b.ins().jump(next, &[]),
                    None => self.exit(),
                };
            } else if !falls {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Code for threads for which a guard holds follows; the block is where all go on.
    fn guard(&mut self, guard: Option<Flag>) -> Option<Block> {
        let flag = guard?;
        let holds = self.flag(flag);
        let (then, past) = (self.b.create_block(), self.b.create_block());
        self.b.ins().brif(holds, then, &[], past, &[]);
        self.b.switch_to_block(then);
        Some(past)
    }

    /// One operation; whether nothing follows it.
    fn step(&mut self, op: &Op) -> Result<bool, Refusal> {
        match op {
            Op::Barrier { kind, id, threads } => {
                self.barrier(*kind, *id, *threads);
                Ok(true)
            }
            Op::Together { mask, what } => {
                self.together(*mask, what);
                Ok(true)
            }
            Op::Nanosleep { .. } => {
                self.outline.polls = true;
                self.stop(Wait::Turn);
                Ok(true)
            }
            Op::BranchIndexed { index, targets } => {
                self.branch_indexed(*index, targets);
                Ok(true)
            }
            Op::Exit | Op::Return => {
                self.exit();
                Ok(true)
            }
            Op::Trap { .. } => {
                self.fail();
                Ok(true)
            }
            Op::ActiveMask { .. } => Err(Refusal::Instruction("activemask")),
            Op::Call(_) => Err(Refusal::Instruction("call")),
            op => self.plain(op).map(|()| false),
        }
    }

    fn exit(&mut self) -> ir::Inst {
        let done = self.b.ins().iconst(types::I32, i64::from(DONE));
        let stopped = self.stopped;
        self.b.ins().jump(stopped, &[done.into()])
    }

    /// The thread does what is always a fault.
    pub(super) fn fail(&mut self) {
        let (head, lane) = (self.head, self.lane);
        let at = self.b.ins().iconst(types::I64, i64::from(self.at));
        let fail = self.helpers.fail;
        self.b.ins().call(fail, &[head, at, lane]);
        let faulted = self.faulted;
        self.b.ins().jump(faulted, &[]);
    }

    /// Where a branch goes: backwards only with fuel.
    fn target(&mut self, target: u32, at: u32) -> Block {
        let block = self.blocks[&target];
        if target > at {
            return block;
        }
        let back = self.turns.get(&target).copied();
        back.unwrap_or_else(|| {
            let back = self.b.create_block();
            self.turns.insert(target, back);
            back
        })
    }

    fn branch(&mut self, guard: Option<Flag>, target: u32, at: u32) {
        let fresh = target <= at && !self.turns.contains_key(&target);
        let block = self.target(target, at);
        match guard {
            None => self.b.ins().jump(block, &[]),
            Some(flag) => {
                let holds = self.flag(flag);
                match self.blocks.get(&(at + 1)) {
                    Some(&next) => self.b.ins().brif(holds, block, &[], next, &[]),
                    None => {
                        let end = self.b.create_block();
                        self.b.ins().brif(holds, block, &[], end, &[]);
                        self.b.switch_to_block(end);
                        self.exit()
                    }
                }
            }
        };
        if fresh {
            self.turn(block, target);
        }
    }

    /// The way back to the start of a loop: now and then others have their turn.
    fn turn(&mut self, block: Block, target: u32) {
        self.b.switch_to_block(block);
        let fuel = self.b.use_var(self.fuel);
        let less = self.b.ins().iadd_imm(fuel, -ROUND_COST);
        self.b.def_var(self.fuel, less);
        let left = self.b.ins().icmp_imm(IntCC::SignedGreaterThan, less, 0);
        let (on, stop) = (self.blocks[&target], self.b.create_block());
        self.b.ins().brif(left, on, &[], stop, &[]);
        self.b.switch_to_block(stop);
        self.b.set_cold_block(stop);
        self.stop_before(target);
    }

    fn branch_indexed(&mut self, index: Source, targets: &[u32]) {
        let index = self.get(index, Kind::I32);
        let at = self.at;
        let mut fresh = Vec::new();
        let mut calls = Vec::new();
        for target in targets {
            if *target <= at && !self.turns.contains_key(target) {
                fresh.push(*target);
            }
            let block = self.target(*target, at);
            calls.push(self.b.func.dfg.block_call(block, &[]));
        }
        let wrong = self.b.create_block();
        let default = self.b.func.dfg.block_call(wrong, &[]);
        let table = self
            .b
            .create_jump_table(JumpTableData::new(default, &calls));
        self.b.ins().br_table(index, table);
        self.b.switch_to_block(wrong);
        self.b.set_cold_block(wrong);
        let wide = self.b.ins().uextend(types::I64, index);
        self.answer(wide);
        self.fail();
        for target in fresh {
            let block = self.turns[&target];
            self.turn(block, target);
        }
    }

    /// Leaves a value where helpers look for it.
    pub(super) fn answer(&mut self, value: Value) {
        let head = self.head;
        self.b
            .ins()
            .store(MemFlags::trusted(), value, head, offset!(answer));
    }

    /// What a helper left there.
    pub(super) fn answered(&mut self) -> Value {
        let head = self.head;
        self.b
            .ins()
            .load(types::I64, MemFlags::trusted(), head, offset!(answer))
    }

    /// An access that others may answer: loops of these have less patience.
    pub(super) fn polled(&mut self) {
        self.outline.polls = true;
        let fuel = self.b.use_var(self.fuel);
        let less = self.b.ins().iadd_imm(fuel, -POLL_COST);
        self.b.def_var(self.fuel, less);
    }

    /// A truth value, 0 or 1.
    pub(super) fn flag(&mut self, flag: Flag) -> Value {
        match flag {
            Flag::Known(truth) => self.b.ins().iconst(types::I8, i64::from(truth)),
            Flag::Pred(Pred(number)) => {
                let variable = self.predicate(number);
                self.b.use_var(variable)
            }
            Flag::Not(Pred(number)) => {
                let variable = self.predicate(number);
                let value = self.b.use_var(variable);
                self.b.ins().bxor_imm(value, 1)
            }
        }
    }

    pub(super) fn set_flag(&mut self, d: Pred, value: Value) {
        let variable = self.predicate(d.0);
        self.b.def_var(variable, value);
    }

    pub(super) fn class(&self, reg: Reg) -> Class {
        self.classes[reg.0 as usize]
    }

    /// The bits of a constant, where they are known before the launch.
    pub(super) fn known(&self, source: Source) -> Option<u64> {
        match source {
            Source::Constant(number) => match self.flat.constants.get(number as usize)? {
                Constant::Bits(bits) => Some(*bits),
                Constant::Address { .. } => None,
            },
            Source::Reg(reg) => self.fixed.get(&reg.0).copied(),
        }
    }

    /// The one NaN, for what arithmetic gave.
    pub(super) fn canonical(&mut self, value: Value) -> Value {
        let unordered = self.b.ins().fcmp(FloatCC::Unordered, value, value);
        let nan = self.b.ins().f32const(Ieee32::with_bits(0x7fff_ffff));
        self.b.ins().select(unordered, nan, value)
    }

    pub(super) fn cast(&mut self, value: Value, from: Kind, to: Kind) -> Value {
        let flags = MemFlags::new();
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
    pub(super) fn get(&mut self, source: Source, to: Kind) -> Value {
        self.read(source, to, to == Kind::F32)
    }

    /// A value to read, bit for bit.
    pub(super) fn get_exact(&mut self, source: Source, to: Kind) -> Value {
        self.read(source, to, false)
    }

    fn read(&mut self, source: Source, to: Kind, any_nan: bool) -> Value {
        let number = match source {
            Source::Reg(reg) => {
                let variable = self.register(reg.0);
                let value = self.b.use_var(variable);
                let from = match self.class(reg) {
                    Class::I32 => Kind::I32,
                    Class::I64 => Kind::I64,
                    Class::F64 => Kind::F64,
                    Class::F32 => Kind::F32,
                    Class::Lazy if any_nan => Kind::F32,
                    Class::Lazy => {
                        let value = self.canonical(value);
                        return self.cast(value, Kind::F32, to);
                    }
                };
                return self.cast(value, from, to);
            }
            Source::Constant(number) => number,
        };
        match self.known(source) {
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
        }
    }

    /// How a register that is only moved about is best read and written.
    pub(super) fn moved_as(&self, reg: Reg) -> Kind {
        match self.class(reg) {
            Class::I32 => Kind::I32,
            Class::I64 => Kind::I64,
            Class::F32 | Class::Lazy => Kind::F32,
            Class::F64 => Kind::F64,
        }
    }

    /// Writes bits, with zeros above.
    pub(super) fn set(&mut self, d: Reg, value: Value, kind: Kind) {
        let value = self.cast(value, kind, self.moved_as(d));
        let variable = self.register(d.0);
        self.b.def_var(variable, value);
    }

    /// Writes an integer of 32 bits with its sign above.
    pub(super) fn set_signed(&mut self, d: Reg, value: Value) {
        match self.moved_as(d) {
            Kind::I32 | Kind::F32 => self.set(d, value, Kind::I32),
            _ => {
                let value = self.b.ins().sextend(types::I64, value);
                self.set(d, value, Kind::I64);
            }
        }
    }

    /// Writes what arithmetic on 32 bits gave.
    pub(super) fn set_computed(&mut self, d: Reg, value: Value) {
        let value = match self.class(d) {
            Class::Lazy => value,
            _ => self.canonical(value),
        };
        self.set(d, value, Kind::F32);
    }
}

/// What compiled functions take and give.
pub(super) fn signature(call_conv: cranelift_codegen::isa::CallConv) -> ir::Signature {
    let mut signature = ir::Signature::new(call_conv);
    signature.params = vec![AbiParam::new(types::I64), AbiParam::new(types::I32)];
    signature
}

/// A step's operation.
pub(super) fn op_of(step: &Step) -> Option<&Op> {
    match &step.action {
        Action::Op(op) => Some(op),
        _ => None,
    }
}
