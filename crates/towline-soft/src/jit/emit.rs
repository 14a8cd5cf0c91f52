//! From steps to machine code: control flow, and how registers travel.
//!
//! The code of a kernel is one function. It takes the threads of a warp that go on from the same place, one after another, and runs each
//! until it ends, or comes to where it must wait: there it writes what is still needed to the thread's frame, and the number of the
//! place to its state. Called again, it goes on from that place.
//!
//! What can be reached from such a place without another stop is a *region*, with a loop over threads of its own, so that there is
//! nothing to decide for each thread. Regions share no code. Where that would make too much of it there is one region for all places.
//! Most regions have a second loop, which takes threads by fours ([`quads`]).

mod chain;
mod quads;
mod regions;
mod stops;
mod values;

use std::collections::{HashMap, HashSet};

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{
    self, AbiParam, Block, FuncRef, InstBuilder, JumpTableData, MemFlags, Value, types,
};
use cranelift_frontend::{FunctionBuilder, Switch, Variable};
use towline_ptx::ir::Constant;
use towline_ptx::ir::op::{Flag, Op, Source};

use regions::fits_apart;
pub(super) use values::{Form, vector_of};

use super::flat::{Action, Flat, Step};
use super::head::{Uniform, offset, uniform};
use super::kept::Kept;
use super::live::{Class, Liveness, classes, stops, successors};
use super::runs::{Run, runs};
use super::shapes::{QUAD, Shapes};
use super::{DONE, EXCHANGE, POLL_COST, ROUND_COST, Refusal, STEP_COST};
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
    /// Four lanes can go on together from here.
    pub(crate) four: bool,
    /// Lanes have parted and wait for nothing.
    pub(crate) parted: bool,
    /// The first of the words that lanes exchange has 32 bits.
    pub(crate) narrow: bool,
}

/// A row of the frames of a warp in which lanes that go together have the first one's value only.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    /// Its place, in words of a frame.
    pub(crate) word: usize,
    /// A lane's share are 64 bits, and not 32.
    pub(crate) is_wide: bool,
    /// What each lane has more than the one before it.
    pub(crate) stride: i64,
    /// So many lowest bits of the first one's value are zero.
    pub(crate) zeros: u32,
    /// All lanes have been given it where they have stopped.
    pub(crate) given: bool,
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
    /// Bytes of all that is checked with it.
    pub(crate) extent: u64,
    /// It stands for four lanes, of which each accesses so many bytes behind the one before.
    pub(crate) across: Option<i64>,
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
    pub(super) texture: FuncRef,
}

/// What comes out besides code.
#[derive(Debug, Default)]
pub(crate) struct Outline {
    pub(crate) stops: Vec<Stop>,
    /// By stop, what has to be told to lanes that go on from there by themselves.
    pub(crate) rows: Vec<Vec<Row>>,
    /// Four lanes can start together.
    pub(crate) four: bool,
    pub(crate) sites: Vec<Site>,
    /// Loads that are checked together, by the first of them.
    pub(crate) runs: HashMap<u32, Run>,
    /// Words of a thread's frame.
    pub(crate) frame_words: usize,
    /// Some access looks at memory that others may change.
    pub(crate) polls: bool,
}

impl Outline {
    /// Adds a stop; gives its number, which is the state of threads that wait there.
    fn stop(&mut self, stop: Stop, rows: Vec<Row>) -> u32 {
        self.stops.push(stop);
        self.rows.push(rows);
        self.stops.len() as u32
    }
}

/// What the code is entered with: a place that lanes go on from, one by one or by fours.
pub(super) fn entry_of(state: u32, four: bool) -> u32 {
    state << 1 | u32::from(four)
}

pub(super) struct Emitter<'a, 'b> {
    pub(super) b: &'a mut FunctionBuilder<'b>,
    pub(super) flat: &'a Flat,
    classes: Vec<Class>,
    pub(super) shapes: Shapes,
    registers: Vec<Option<Variable>>,
    predicates: Vec<Option<Variable>>,
    /// What four lanes keep that is not the same for all, by register and, behind them, predicate: see `values`.
    vectors: HashMap<u32, Variable>,
    singles: HashMap<u32, [Variable; QUAD]>,
    /// The loop takes four lanes.
    wide: bool,
    pub(super) form: Form,
    /// What is written is put together of what lanes have one after the other.
    gathers: bool,
    /// The access is one of four lanes, so many bytes apart.
    pub(super) across: Option<i64>,
    /// Where lanes go on that have parted, by step, and those that have no code yet.
    parted: HashMap<u32, u32>,
    alone: Vec<(u32, u32)>,
    /// The shuffle that lanes of the region may go on from without a return, whether all have come there, and where those begin.
    chain: Option<u32>,
    all_met: Variable,
    chained: HashMap<u32, Block>,
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
    /// Of starts of loops, the last step that goes back there.
    lasts: HashMap<u32, u32>,
    pub(super) helpers: Helpers,
    pub(super) outline: Outline,
    pub(super) head: Value,
    pub(super) lane: Value,
    pub(super) frame: Value,
    /// The same for what has 32 bits.
    narrow_frame: Value,
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
    has_vectors: bool,
    /// For loads whose checks have been made: the first of their run, and how far they are from it.
    pub(super) checked: HashMap<u32, (u32, i64)>,
    /// Where the first of a run lies in the host's memory, for each lane that looked or, behind those, for four at once.
    pub(super) run_at: HashMap<(u32, usize), Value>,
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
        // Branches go to starts of blocks, if only to the next step; threads that do not end go on behind the end.
        let ends = matches!(
            step.action,
            Action::Op(Op::Branch { .. } | Op::Exit | Op::Return)
        );
        if next != [at + 1] || stops(step) || ends {
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
        has_vectors: bool,
    ) -> Result<Outline, Refusal> {
        let mut leaders = leaders(flat);
        let registers = u64::from(flat.registers) + u64::from(flat.predicates);
        if registers * leaders.len() as u64 > LIVE_LIMIT {
            return Err(Refusal::Large);
        }
        let read = read_registers(flat);
        let classes = classes(flat);
        let unset = Liveness::new(flat, &leaders).at(0);
        let shapes = Shapes::new(flat, &classes, &unset);
        // Lanes may part there.
        leaders.extend(&shapes.widening);
        leaders.sort_unstable();
        leaders.dedup();
        let kept = Kept::new(flat, &leaders, &shapes.partings(flat));
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
        let (fuel, all_met) = (b.declare_var(types::I32), b.declare_var(types::I8));
        let whole = !fits_apart(flat, &leaders);
        let mut emitter = Self {
            registers: vec![None; flat.registers as usize],
            predicates: vec![None; flat.predicates as usize],
            b,
            flat,
            classes,
            shapes,
            vectors: HashMap::new(),
            singles: HashMap::new(),
            wide: false,
            form: Form::One(0),
            gathers: false,
            across: None,
            parted: HashMap::new(),
            alone: Vec::new(),
            chain: None,
            all_met,
            chained: HashMap::new(),
            kept,
            fuel,
            blocks: HashMap::new(),
            slots: HashMap::new(),
            numbers: HashMap::new(),
            places: vec![Place::Start],
            whole,
            resumes: Vec::new(),
            turns: HashMap::new(),
            lasts: HashMap::new(),
            helpers,
            outline: Outline::default(),
            head,
            // Each region has its own of these.
            lane: head,
            frame: head,
            narrow_frame: head,
            argument_base: head,
            local_base: head,
            stopped: finished,
            finished,
            known_words: [None; EXCHANGE],
            stops: true,
            faulted: finished,
            has_fma,
            has_vectors,
            checked: HashMap::new(),
            run_at: HashMap::new(),
            at: 0,
            fixed,
            read,
        };
        emitter.make_frames();
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
        emitter.outline.frame_words = EXCHANGE + emitter.slots.len();
        emitter.b.switch_to_block(regions);
        let (state, wrong) = (emitter.state(), emitter.b.create_block());
        switch.emit(emitter.b, state, wrong);
        // There are no other states.
        emitter.faulted = finished;
        emitter.b.switch_to_block(wrong);
        emitter.b.set_cold_block(wrong);
        emitter.wide = false;
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
        let behind = self.flat.registers;
        let predicates = predicates.0 + behind..predicates.1 + behind;
        for number in (registers.0..registers.1).chain(predicates) {
            if !self.wide || self.shapes.register(number).stride().is_some() {
                let (variable, ty) = self.variable(number);
                let zero = self.zero(ty);
                self.b.def_var(variable, zero);
            } else if self.is_vector(number) {
                let (variable, ty) = self.vector(number);
                let zero = self.zero(ty.lane_type());
                let zeros = self.b.ins().splat(ty, zero);
                self.b.def_var(variable, zeros);
            } else {
                let (variables, ty) = self.singles(number);
                let zero = self.zero(ty);
                for variable in variables {
                    self.b.def_var(variable, zero);
                }
            }
        }
    }

    pub(super) fn zero(&mut self, ty: ir::Type) -> Value {
        match ty {
            types::F32 => self.b.ins().f32const(0.0),
            types::F64 => self.b.ins().f64const(0.0),
            ty => self.b.ins().iconst(ty, 0),
        }
    }

    /// Translates the steps of a block.
    fn run(&mut self, start: u32, end: u32) -> Result<(), Refusal> {
        let flat = self.flat;
        for at in start..end {
            self.at = at;
            let step = &flat.steps[at as usize];
            let differs = |guard: &Flag| self.wide && !self.shapes.flag(*guard).is_same();
            let apart = step.guard.filter(differs);
            match (&step.action, apart) {
                (Action::Op(Op::Branch { target }), Some(guard)) => {
                    return self.branch_of_four(guard, *target, at);
                }
                (Action::Op(Op::Branch { target }), None) => {
                    self.branch(step.guard, *target, at);
                    return Ok(());
                }
                (Action::Op(Op::Exit | Op::Return), Some(guard)) => {
                    self.exit_of_four(guard, at);
                    return Ok(());
                }
                _ => {}
            }
            let past = match apart {
                Some(_) => None,
                None => self.guard(step.guard),
            };
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
                    let copy = |this: &mut Self| this.copy(*kernel, *from, *to, *len);
                    match self.wide {
                        true => self.each_lane(&[], false, |this| {
                            copy(this);
                            Ok(())
                        })?,
                        false => copy(self),
                    }
                    false
                }
                Action::Op(op) if apart.is_some() => {
                    self.apart(op, apart)?;
                    false
                }
                Action::Op(op) if self.wide => self.step_of_four(op)?,
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
        self.break_chain();
        let done = self.all_states(DONE);
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
        let last = self.lasts.get(&target).copied().unwrap_or(target);
        let steps = i64::from(last.saturating_sub(target)) + 1;
        let less = self.spend(ROUND_COST.max(steps * STEP_COST));
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
        self.spend(POLL_COST);
    }

    /// Takes from the thread's fuel; gives what is left.
    pub(super) fn spend(&mut self, cost: i64) -> Value {
        let fuel = self.b.use_var(self.fuel);
        let less = self.b.ins().iadd_imm(fuel, -cost);
        self.b.def_var(self.fuel, less);
        less
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
