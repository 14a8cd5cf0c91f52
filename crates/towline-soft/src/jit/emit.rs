//! From steps to machine code: control flow, and how registers travel.
//!
//! The code of a kernel is one function. It takes the threads of a warp that go on from the same place, one after another, and runs each
//! until it ends, or comes to where it must wait: there it writes what is still needed to the thread's frame, and the number of the
//! place to its state. Called again, it goes on from that place.
//!
//! What can be reached from such a place without another stop is a *region*, with a loop over threads of its own, so that there is
//! nothing to decide for each thread. Regions share no code. Where that would make too much of it there is one region for all places.

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
use super::kept::Kept;
use super::live::{Class, blocks, classes, stops, successors};
use super::runs::{Run, runs};
use super::{DONE, EXCHANGE, FUEL, POLL_COST, ROUND_COST, Refusal};
use crate::exec::frame::LANES;
use crate::exec::together::{Sources, sources};

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

/// Steps that regions may have beyond twice those of the kernel.
const MORE_STEPS: usize = 200;
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
        if next != [at + 1] || stops(step) {
            found.extend(next);
            found.insert(at + 1);
        }
    }
    found.retain(|at| (*at as usize) < flat.steps.len());
    let mut found: Vec<_> = found.into_iter().collect();
    found.sort_unstable();
    found
}

/// First steps of the blocks of code that can be reached from one without a stop.
fn reached(flat: &Flat, leaders: &[u32], start: u32) -> HashSet<u32> {
    let mut found = HashSet::new();
    let mut open = vec![start];
    while let Some(start) = open.pop() {
        let Ok(index) = leaders.binary_search(&start) else {
            continue;
        };
        if !found.insert(start) {
            continue;
        }
        let end = leaders.get(index + 1).copied();
        let last = end.unwrap_or(flat.steps.len() as u32) - 1;
        let step = &flat.steps[last as usize];
        if step.guard.is_some() || !stops(step) {
            open.extend(successors(step, last));
        }
    }
    found
}

/// Whether some of these blocks of code can be reached from a later one of them.
fn loops(flat: &Flat, leaders: &[u32], inside: &HashSet<u32>) -> bool {
    let mut inside = blocks(flat, leaders)
        .into_iter()
        .filter(|(start, _)| inside.contains(start));
    inside.any(|(_, end)| {
        let last = end - 1;
        let next = flat
            .steps
            .get(last as usize)
            .map(|step| successors(step, last));
        next.into_iter().flatten().any(|next| next <= last)
    })
}

/// Whether all regions together have little more code than the kernel.
fn fits_apart(flat: &Flat, leaders: &[u32]) -> bool {
    let ends: HashMap<u32, u32> = blocks(flat, leaders).into_iter().collect();
    let len = |start: u32| {
        let reached = reached(flat, leaders, start);
        reached.iter().map(|start| ends[start] - start).sum::<u32>() as usize
    };
    let starts = (1..).zip(&flat.steps).filter(|(_, step)| stops(step));
    let starts = starts.map(|(behind, _)| behind).chain([0]);
    let mut left = flat.steps.len() * 2 + MORE_STEPS;
    for start in starts {
        match left.checked_sub(len(start)) {
            Some(less) => left = less,
            None => return false,
        }
    }
    true
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

    /// A region: a loop over the threads that go on from a place, or from where they had stopped for others to have their turn.
    fn region(
        &mut self,
        place: Place,
        mask: Value,
        leaders: &[u32],
        switch: &mut Switch,
    ) -> Result<(), Refusal> {
        let flat = self.flat;
        let enter = self.b.create_block();
        let (next_thread, turned) = (self.b.create_block(), self.b.create_block());
        let mask_left = self.b.append_block_param(next_thread, types::I32);
        let mask_now = self.b.append_block_param(turned, types::I32);
        self.b.switch_to_block(enter);
        self.b.ins().jump(next_thread, &[mask.into()]);
        self.b.switch_to_block(next_thread);
        let lane = self.b.ins().ctz(mask_left);
        self.lane = self.b.ins().uextend(types::I64, lane);
        let less = self.b.ins().iadd_imm(mask_left, -1);
        let rest = self.b.ins().band(mask_left, less);
        let full = self.b.ins().iconst(types::I32, FUEL);
        self.b.def_var(self.fuel, full);
        let base = self.constant_load(types::I64, offset!(arguments));
        self.argument_base = self.beside(base, flat.parameter_bytes.next_multiple_of(16).into());
        let base = self.constant_load(types::I64, offset!(locals));
        self.local_base = self.beside(base, flat.local_bytes.next_multiple_of(16).into());
        let base = self.constant_load(types::I64, offset!(frames));
        self.frame = self.beside(base, 8);
        // Where it begins is known when its code is there.
        let begin = self.b.create_block();
        self.b.ins().jump(begin, &[]);
        (self.stopped, self.faulted) = (self.b.create_block(), self.b.create_block());
        let state_now = self.b.append_block_param(self.stopped, types::I32);
        let start = match place {
            Place::Behind(step) => step + 1,
            Place::Start => 0,
        };
        let inside: HashSet<u32> = match self.whole {
            true => leaders.iter().copied().collect(),
            false => reached(flat, leaders, start),
        };
        self.blocks = inside
            .iter()
            .map(|at| (*at, self.b.create_block()))
            .collect();
        self.turns.clear();
        let first = self.b.create_block();
        self.b.switch_to_block(first);
        let number = match place {
            Place::Start => {
                self.clear((0, flat.registers), (0, flat.predicates));
                self.b.ins().jump(self.blocks[&0], &[]);
                0
            }
            Place::Behind(step) => {
                self.go_on(step);
                self.numbers[&step]
            }
        };
        for (start, end) in blocks(flat, leaders) {
            if let Some(block) = self.blocks.get(&start) {
                self.b.switch_to_block(*block);
                self.run(start, end)?;
            }
        }
        self.b.switch_to_block(self.stopped);
        if self.stops {
            let states = self.constant_load(types::I64, offset!(states));
            let at = self.beside(states, 4);
            self.b.ins().store(MemFlags::trusted(), state_now, at, 0);
        }
        self.b.ins().jump(turned, &[rest.into()]);
        // No other thread has its turn. What leaves a loop in its middle keeps the compiler from taking anything out of it; where
        // threads loop themselves that is better, as what is taken out then has no register in the inner loop.
        self.b.switch_to_block(self.faulted);
        self.b.set_cold_block(self.faulted);
        match loops(flat, leaders, &inside) {
            true => self.b.ins().return_(&[]),
            false => {
                let none = self.b.ins().iconst(types::I32, 0);
                self.b.ins().jump(turned, &[none.into()])
            }
        };
        self.b.switch_to_block(turned);
        let (again, finished) = (&[mask_now.into()], self.finished);
        self.b
            .ins()
            .brif(mask_now, next_thread, again, finished, &[]);
        self.b.switch_to_block(begin);
        switch.set_entry(number.into(), enter);
        let resumes = std::mem::take(&mut self.resumes);
        if resumes.is_empty() {
            self.b.ins().jump(first, &[]);
            return Ok(());
        }
        let elsewhere = self.b.create_block();
        if !self.whole {
            self.b.set_cold_block(elsewhere);
        }
        let state = self.state();
        let here = self
            .b
            .ins()
            .icmp_imm(IntCC::Equal, state, i64::from(number));
        self.b.ins().brif(here, first, &[], elsewhere, &[]);
        self.b.switch_to_block(elsewhere);
        let mut others = Switch::new();
        for (number, block) in resumes {
            others.set_entry(number.into(), block);
            switch.set_entry(number.into(), enter);
        }
        others.emit(self.b, state, self.faulted);
        Ok(())
    }

    /// The place that all threads go on from. It is read again for each, as registers are few.
    fn state(&mut self) -> Value {
        let (head, flags) = (self.head, MemFlags::trusted());
        self.b.ins().load(types::I32, flags, head, offset!(state))
    }

    /// Goes on behind a step where the thread has stopped.
    fn go_on(&mut self, step: u32) {
        let (d, p) = self
            .flat
            .steps
            .get(step as usize)
            .and_then(op_of)
            .map_or((None, None), outcome);
        let registers = self.flat.registers;
        let given = [d.map(|d| d.0), p.map(|p| registers + p.0)];
        self.fetch(step + 1, &given);
        let frame = self.frame;
        let wanted = self.kept.fetched(step + 1);
        if let Some(d) = d.filter(|d| wanted.has(d.0)) {
            let at = word_offset(0);
            let value = self
                .b
                .ins()
                .load(types::I32, MemFlags::trusted(), frame, at);
            self.set(d, value, Kind::I32);
        }
        if let Some(p) = p.filter(|p| wanted.has(registers + p.0)) {
            let at = word_offset(1);
            let value = self.b.ins().load(types::I8, MemFlags::trusted(), frame, at);
            self.set_flag(p, value);
        }
        match self.blocks.get(&(step + 1)) {
            Some(&next) => self.b.ins().jump(next, &[]),
            None => self.exit(),
        };
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
                _ if stops(step) => targets.push(at + 1),
                Action::Op(Op::Branch { target }) if *target <= at => targets.push(*target),
                Action::Op(Op::BranchIndexed { targets: all, .. }) => {
                    targets.extend(all.iter().filter(|target| **target <= at));
                }
                _ => {}
            }
        }
        self.stops = !targets.is_empty();
        for target in targets {
            for number in self.kept.room(target).iter() {
                let next = word_offset(EXCHANGE + self.slots.len());
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

    /// The thread stops at this step, and goes on behind it.
    fn stop(&mut self, wait: Wait) {
        let at = self.at;
        let next = self.outline.stops.len() as u32 + 1;
        let known = std::mem::take(&mut self.known_words);
        let number = *self.numbers.entry(at).or_insert(next);
        let is_new = number == next;
        let step = self.flat.steps.get(at as usize);
        let (d, p) = step.and_then(op_of).map_or((None, None), outcome);
        let registers = self.flat.registers;
        let given = [d.map(|d| d.0), p.map(|p| registers + p.0)];
        if is_new {
            let wanted = self.kept.fetched(at + 1);
            self.outline.stops.push(Stop {
                wait,
                step: at,
                known,
                tells: given[1].is_some_and(|p| wanted.has(p)),
                sources: self.sources(known),
            });
        }
        let stored = self.kept.stored(at);
        self.leave(
            number,
            stored.iter().filter(|one| !given.contains(&Some(*one))),
        );
        if !is_new {
            return;
        }
        if !self.whole {
            return self.places.push(Place::Behind(at));
        }
        let resume = self.b.create_block();
        self.resumes.push((number, resume));
        self.b.switch_to_block(resume);
        self.go_on(at);
    }

    /// Where lanes read in the shuffle of this step, if it is one and that is known.
    fn sources(&self, known: [Option<u64>; EXCHANGE]) -> Option<Sources> {
        let Op::Together { what, .. } = self.flat.steps.get(self.at as usize).and_then(op_of)?
        else {
            return None;
        };
        match (&**what, known) {
            (Together::Shuffle { kind, .. }, [None, Some(b), Some(c), _]) => {
                Some(sources(*kind, b as u32, c as u32))
            }
            _ => None,
        }
    }

    /// The thread stops for others to have their turn, on the way back to the start of a loop.
    fn stop_before(&mut self, target: u32) {
        let number = self.outline.stops.len() as u32 + 1;
        self.outline.stops.push(Stop {
            wait: Wait::Turn,
            step: self.at,
            known: [None; EXCHANGE],
            tells: false,
            sources: None,
        });
        let stored = self.kept.stored_before(target);
        self.leave(number, stored.iter());
        let resume = self.b.create_block();
        self.resumes.push((number, resume));
        self.b.switch_to_block(resume);
        self.b.set_cold_block(resume);
        self.fetch(target, &[]);
        self.b.ins().jump(self.blocks[&target], &[]);
    }

    /// Stores registers, and turns to the next thread.
    fn leave(&mut self, number: u32, stored: impl Iterator<Item = u32>) {
        let frame = self.frame;
        for one in stored {
            let (variable, _) = self.variable(one);
            let value = self.b.use_var(variable);
            let at = self.slots[&one];
            self.b.ins().store(MemFlags::trusted(), value, frame, at);
        }
        let state = self.b.ins().iconst(types::I32, i64::from(number));
        self.b.ins().jump(self.stopped, &[state.into()]);
    }

    /// Fetches registers for what begins with a step.
    fn fetch(&mut self, next: u32, given: &[Option<u32>]) {
        let frame = self.frame;
        for one in self.kept.fetched(next).iter() {
            if !given.contains(&Some(one)) {
                let at = self.slots[&one];
                let (variable, ty) = self.variable(one);
                let value = self.b.ins().load(ty, MemFlags::trusted(), frame, at);
                self.b.def_var(variable, value);
            }
        }
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

    /// Leaves a word for those that a thread meets.
    fn give(&mut self, word: usize, value: Value) {
        let frame = self.frame;
        self.b
            .ins()
            .store(MemFlags::trusted(), value, frame, word_offset(word));
    }

    fn give_source(&mut self, word: usize, source: Source) {
        self.known_words[word] = self.known(source);
        if self.known_words[word].is_some() {
            return;
        }
        let value = self.get(source, Kind::I64);
        self.give(word, value);
    }

    fn give_narrow(&mut self, word: usize, source: Source) {
        self.known_words[word] = self.known(source).map(|bits| bits & 0xffff_ffff);
        if self.known_words[word].is_some() {
            return;
        }
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
        if let Some(id) = known {
            return self.stop(Wait::All(id));
        }
        self.give_narrow(0, id);
        if let Some(threads) = threads {
            self.give_source(1, threads);
        }
        if let Barrier::Reduce { a, .. } | Barrier::Count { a, .. } = kind {
            self.give_flag(2, a);
        }
        self.stop(Wait::Barrier);
    }

    fn together(&mut self, mask: Source, what: &Together) {
        self.give_narrow(3, mask);
        match *what {
            Together::Match { bits, a, .. } if bits > 32 => self.give_source(0, a),
            Together::Match { a, .. } | Together::Reduce { a, .. } => self.give_narrow(0, a),
            Together::Shuffle { a, b, c, .. } => {
                self.give_narrow(0, a);
                self.give_narrow(1, b);
                self.give_narrow(2, c);
            }
            Together::Vote { a, .. } => self.give_flag(0, a),
            Together::Elect { .. } | Together::Wait => {}
        }
        self.stop(Wait::Together);
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

/// What threads take away from where they stop: the first words of their frames.
fn outcome(op: &Op) -> (Option<Reg>, Option<Pred>) {
    match op {
        Op::Barrier { kind, .. } => match *kind {
            Barrier::Arrive | Barrier::Sync => (None, None),
            Barrier::Reduce { d, .. } => (None, Some(d)),
            Barrier::Count { d, .. } => (Some(d), None),
        },
        Op::Together { what, .. } => match **what {
            Together::Elect { d, p }
            | Together::Shuffle { d, p, .. }
            | Together::Vote { d, p, .. } => (d, p),
            Together::Match { d, p, .. } => (Some(d), p),
            Together::Reduce { d, .. } => (Some(d), None),
            Together::Wait => (None, None),
        },
        _ => (None, None),
    }
}

/// Where a word of a thread's frame lies. That of all lanes lies in one piece, for what passes between them.
fn word_offset(word: usize) -> i32 {
    (word * LANES * 8) as i32
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
