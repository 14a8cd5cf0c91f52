//! From steps to machine code: control flow, and how registers travel.
//!
//! The code of a kernel is one function. It takes the threads of a warp that can go on, one after another, and runs each until it ends,
//! or comes to where it must wait: there it writes what is still needed to the thread's frame, and the number of the place to its
//! state. Called again, it goes on from that place.

use std::collections::{HashMap, HashSet};

use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::immediates::{Ieee32, Ieee64};
use cranelift_codegen::ir::{
    self, AbiParam, Block, FuncRef, InstBuilder, JumpTableData, MemFlags, Value, types,
};
use cranelift_frontend::{FunctionBuilder, Switch, Variable};
use towline_ptx::ir::Constant;
use towline_ptx::ir::op::{Barrier, Flag, Op, Pred, Reg, Source, Together};

use super::flat::{Action, Flat, Step};
use super::head::{Uniform, offset, uniform};
use super::live::{Class, Liveness, classes, successors};
use super::{DONE, EXCHANGE, FUEL, POLL_COST, ROUND_COST, Refusal};

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
}

/// A memory access that looks for its address in a slot, or that a helper carries out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Site {
    pub(crate) step: u32,
    pub(crate) bytes: u32,
    pub(crate) write: bool,
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
    /// Words of a thread's frame.
    pub(crate) frame_words: usize,
    /// Some access looks at memory that others may change.
    pub(crate) polls: bool,
}

pub(super) struct Emitter<'a, 'b> {
    pub(super) b: &'a mut FunctionBuilder<'b>,
    pub(super) flat: &'a Flat,
    classes: Vec<Class>,
    live: Liveness,
    registers: Vec<Option<Variable>>,
    predicates: Vec<Option<Variable>>,
    fuel: Variable,
    blocks: HashMap<u32, Block>,
    slots: HashMap<u32, i32>,
    /// Resumption: number of the stop and its block.
    resumes: Vec<(u32, Block)>,
    turns: HashMap<u32, Block>,
    pub(super) helpers: Helpers,
    pub(super) outline: Outline,
    pub(super) head: Value,
    pub(super) lane: Value,
    pub(super) frame: Value,
    pub(super) argument_base: Value,
    pub(super) local_base: Value,
    next_thread: Block,
    /// Threads may stop before their end.
    stops: bool,
    pub(super) faulted: Block,
    pub(super) has_fma: bool,
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
        let stops = matches!(
            step.action,
            Action::Op(Op::Barrier { .. } | Op::Together { .. } | Op::Nanosleep { .. })
        );
        if next != [at + 1] || stops {
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
        let live = Liveness::new(flat, &leaders);
        let fixed = fixed(flat);
        let entry = b.create_block();
        b.append_block_params_for_function_params(entry);
        b.switch_to_block(entry);
        let (head, mask) = (b.block_params(entry)[0], b.block_params(entry)[1]);
        let (next_thread, run_thread) = (b.create_block(), b.create_block());
        let (finished, faulted) = (b.create_block(), b.create_block());
        let mask_left = b.append_block_param(next_thread, types::I32);
        b.ins().jump(next_thread, &[mask.into()]);
        b.switch_to_block(next_thread);
        b.ins().brif(mask_left, run_thread, &[], finished, &[]);
        b.switch_to_block(finished);
        let zero = b.ins().iconst(types::I32, 0);
        b.ins().return_(&[zero]);
        b.switch_to_block(faulted);
        let one = b.ins().iconst(types::I32, 1);
        b.ins().return_(&[one]);
        b.set_cold_block(faulted);
        b.switch_to_block(run_thread);
        let lane32 = b.ins().ctz(mask_left);
        let lane = b.ins().uextend(types::I64, lane32);
        let less = b.ins().iadd_imm(mask_left, -1);
        let rest = b.ins().band(mask_left, less);
        let fuel = b.declare_var(types::I32);
        let full = b.ins().iconst(types::I32, FUEL);
        b.def_var(fuel, full);
        let blocks = leaders.iter().map(|at| (*at, b.create_block())).collect();
        let dispatch = b.create_block();
        b.append_block_param(dispatch, types::I32);
        // What every thread starts from: where it is in its turn is not known yet, so these are loads.
        let mut emitter = Self {
            registers: vec![None; flat.registers as usize],
            predicates: vec![None; flat.predicates as usize],
            b,
            flat,
            classes,
            live,
            fuel,
            blocks,
            slots: HashMap::new(),
            resumes: Vec::new(),
            turns: HashMap::new(),
            helpers,
            outline: Outline::default(),
            head,
            lane,
            frame: lane,
            argument_base: lane,
            local_base: lane,
            next_thread: dispatch,
            stops: true,
            faulted,
            has_fma,
            at: 0,
            fixed,
            read,
        };
        emitter.thread(&leaders, rest, dispatch, next_thread)?;
        emitter.b.seal_all_blocks();
        Ok(emitter.outline)
    }

    /// The code of one thread, from where it is.
    fn thread(
        &mut self,
        leaders: &[u32],
        rest: Value,
        stopped: Block,
        next_thread: Block,
    ) -> Result<(), Refusal> {
        let flat = self.flat;
        let base = self.constant_load(types::I64, offset!(arguments));
        self.argument_base = self.beside(base, flat.parameter_bytes.next_multiple_of(16).into());
        let base = self.constant_load(types::I64, offset!(locals));
        self.local_base = self.beside(base, flat.local_bytes.next_multiple_of(16).into());
        let frames = self.constant_load(types::I64, offset!(frames));
        let words = self.frame_words();
        self.outline.frame_words = words;
        self.frame = self.beside(frames, words as u64 * 8);
        let start = self.b.create_block();
        if !self.stops {
            // Every thread runs from its start to its end.
            self.b.ins().jump(start, &[]);
            self.b.switch_to_block(start);
            self.clear((0, flat.registers), (0, flat.predicates));
            let first = self.blocks[&0];
            self.b.ins().jump(first, &[]);
            self.body(leaders)?;
            self.b.switch_to_block(stopped);
            self.b.ins().jump(next_thread, &[rest.into()]);
            return Ok(());
        }
        let states = self.constant_load(types::I64, offset!(states));
        let by = self.b.ins().ishl_imm(self.lane, 2);
        let state_at = self.b.ins().iadd(states, by);
        let resume = self.b.create_block();
        let state = self
            .b
            .ins()
            .load(types::I32, MemFlags::trusted(), state_at, 0);
        self.b.ins().brif(state, resume, &[], start, &[]);
        self.b.switch_to_block(start);
        self.clear((0, flat.registers), (0, flat.predicates));
        let first = self.blocks[&0];
        self.b.ins().jump(first, &[]);
        self.body(leaders)?;
        self.b.switch_to_block(stopped);
        let state_now = self.b.block_params(stopped)[0];
        self.b
            .ins()
            .store(MemFlags::trusted(), state_now, state_at, 0);
        self.b.ins().jump(next_thread, &[rest.into()]);
        self.b.switch_to_block(resume);
        let mut switch = Switch::new();
        for (number, block) in &self.resumes {
            switch.set_entry(u128::from(*number), *block);
        }
        let faulted = self.faulted;
        switch.emit(self.b, state, faulted);
        Ok(())
    }

    /// All blocks of code.
    fn body(&mut self, leaders: &[u32]) -> Result<(), Refusal> {
        for (index, at) in leaders.iter().enumerate() {
            let end = leaders.get(index + 1).copied();
            let end = end.unwrap_or(self.flat.steps.len() as u32);
            let block = self.blocks[at];
            self.b.switch_to_block(block);
            self.run(*at, end)?;
        }
        Ok(())
    }

    /// `base` plus the lane's share of so many bytes.
    fn beside(&mut self, base: Value, bytes: u64) -> Value {
        let by = self.b.ins().imul_imm(self.lane, bytes as i64);
        self.b.ins().iadd(base, by)
    }

    /// Room for all that is ever kept: decided before code is made, from what lives where threads may stop.
    fn frame_words(&mut self) -> usize {
        let flat = self.flat;
        let mut targets = Vec::new();
        for (at, step) in (0..).zip(&flat.steps) {
            match &step.action {
                Action::Op(Op::Barrier { .. } | Op::Together { .. } | Op::Nanosleep { .. }) => {
                    targets.push(at + 1);
                }
                Action::Op(Op::Branch { target }) if *target <= at => targets.push(*target),
                Action::Op(Op::BranchIndexed { targets: all, .. }) => {
                    targets.extend(all.iter().filter(|target| **target <= at));
                }
                _ => {}
            }
        }
        self.stops = !targets.is_empty();
        for target in targets {
            for number in self.live.at(target).collect::<Vec<_>>() {
                let next = (EXCHANGE + self.slots.len()) as i32 * 8;
                self.slots.entry(number).or_insert(next);
            }
        }
        EXCHANGE + self.slots.len()
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
                let next = self.at + 1;
                self.stop(Wait::Turn, next, &[], |_| {});
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
        let stopped = self.next_thread;
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
        self.stop(Wait::Turn, target, &[], |_| {});
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

    /// The thread stops here and goes on at `next`, after `take` has fetched what was exchanged.
    fn stop(&mut self, wait: Wait, next: u32, given: &[u32], take: impl FnOnce(&mut Self)) {
        let number = self.outline.stops.len() as u32 + 1;
        self.outline.stops.push(Stop {
            wait,
            step: self.at,
        });
        let kept: Vec<_> = self
            .live
            .at(next)
            .filter(|one| !given.contains(one))
            .collect();
        let frame = self.frame;
        for one in &kept {
            let value = self.kept(*one);
            let at = self.slots[one];
            self.b.ins().store(MemFlags::trusted(), value, frame, at);
        }
        let state = self.b.ins().iconst(types::I32, i64::from(number));
        let stopped = self.next_thread;
        self.b.ins().jump(stopped, &[state.into()]);
        let resume = self.b.create_block();
        self.resumes.push((number, resume));
        self.b.switch_to_block(resume);
        for one in kept {
            let at = self.slots[&one];
            let (variable, ty) = self.variable(one);
            let value = self.b.ins().load(ty, MemFlags::trusted(), frame, at);
            self.b.def_var(variable, value);
        }
        take(self);
        match self.blocks.get(&next) {
            Some(&next) => self.b.ins().jump(next, &[]),
            None => self.exit(),
        };
    }

    fn variable(&mut self, number: u32) -> (Variable, ir::Type) {
        match number.checked_sub(self.flat.registers) {
            None => (
                self.register(number),
                class_type(self.classes[number as usize]),
            ),
            Some(pred) => (self.predicate(pred), types::I8),
        }
    }

    fn kept(&mut self, number: u32) -> Value {
        let (variable, _) = self.variable(number);
        self.b.use_var(variable)
    }

    /// Leaves a word for those that a thread meets.
    fn give(&mut self, word: usize, value: Value) {
        let frame = self.frame;
        self.b
            .ins()
            .store(MemFlags::trusted(), value, frame, word as i32 * 8);
    }

    fn give_source(&mut self, word: usize, source: Source) {
        let value = self.get(source, Kind::I64);
        self.give(word, value);
    }

    fn give_narrow(&mut self, word: usize, source: Source) {
        let value = self.get(source, Kind::I32);
        let value = self.b.ins().uextend(types::I64, value);
        self.give(word, value);
    }

    fn give_flag(&mut self, word: usize, flag: Flag) {
        let holds = self.flag(flag);
        let value = self.b.ins().uextend(types::I64, holds);
        self.give(word, value);
    }

    fn barrier(&mut self, kind: Barrier, id: Source, threads: Option<Source>) {
        let known = match (kind, threads, id) {
            (Barrier::Sync, None, Source::Constant(number)) => {
                match self.flat.constants.get(number as usize) {
                    Some(Constant::Bits(id)) => Some(*id as u32),
                    _ => None,
                }
            }
            _ => None,
        };
        let next = self.at + 1;
        if let Some(id) = known {
            self.stop(Wait::All(id), next, &[], |_| {});
            return;
        }
        self.give_narrow(0, id);
        if let Some(threads) = threads {
            self.give_source(1, threads);
        }
        let (d, p) = match kind {
            Barrier::Arrive | Barrier::Sync => (None, None),
            Barrier::Reduce { d, a, .. } => {
                self.give_flag(2, a);
                (None, Some(d))
            }
            Barrier::Count { d, a } => {
                self.give_flag(2, a);
                (Some(d), None)
            }
        };
        self.meet(Wait::Barrier, d, p);
    }

    fn together(&mut self, mask: Source, what: &Together) {
        self.give_narrow(3, mask);
        let (d, p) = match *what {
            Together::Elect { d, p } => (d, p),
            Together::Match { bits, d, p, a, .. } => {
                match bits > 32 {
                    true => self.give_source(0, a),
                    false => self.give_narrow(0, a),
                }
                (Some(d), p)
            }
            Together::Reduce { d, a, .. } => {
                self.give_narrow(0, a);
                (Some(d), None)
            }
            Together::Shuffle { d, p, a, b, c, .. } => {
                self.give_narrow(0, a);
                self.give_narrow(1, b);
                self.give_narrow(2, c);
                (d, p)
            }
            Together::Vote { d, p, a, .. } => {
                self.give_flag(0, a);
                (d, p)
            }
            Together::Wait => (None, None),
        };
        self.meet(Wait::Together, d, p);
    }

    /// Stops until others have come, and takes the first two words of the frame as outcome.
    fn meet(&mut self, wait: Wait, d: Option<Reg>, p: Option<Pred>) {
        let registers = self.flat.registers;
        let given: Vec<u32> = d
            .map(|d| d.0)
            .into_iter()
            .chain(p.map(|p| registers + p.0))
            .collect();
        let next = self.at + 1;
        self.stop(wait, next, &given, |this| {
            let frame = this.frame;
            if let Some(d) = d {
                let value = this.b.ins().load(types::I32, MemFlags::trusted(), frame, 0);
                this.set(d, value, Kind::I32);
            }
            if let Some(p) = p {
                let value = this.b.ins().load(types::I8, MemFlags::trusted(), frame, 8);
                this.set_flag(p, value);
            }
        });
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
    signature.returns = vec![AbiParam::new(types::I32)];
    signature
}

/// A step's operation.
pub(super) fn op_of(step: &Step) -> Option<&Op> {
    match &step.action {
        Action::Op(op) => Some(op),
        _ => None,
    }
}
