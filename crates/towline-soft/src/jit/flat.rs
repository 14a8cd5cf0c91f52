//! A kernel as one piece of code: what it calls is put in the place of the calls.
//!
//! Each copy of a function has registers of its own, and room of its own in the thread's parameter space. Local memory lies as the
//! interpreter would have it: a callee's behind its caller's.

use std::collections::HashMap;
use std::sync::Arc;

use towline_ptx::ir::op::{
    Argument, Call, Callee, Flag, Instruction, Op, Pred, Reg, Source, Together,
};
use towline_ptx::ir::{Body, Code, Constant, Function, FunctionId, ParameterPlace, Space};
use towline_ptx::ptx::{Position, Type};

use super::Refusal;
use super::operands::{Operand, operands};
use crate::image::Kernel;

/// Most instructions of a kernel with all that it calls.
const CODE_LIMIT: usize = 10_000;
/// Most functions of which each calls the next.
const DEPTH_LIMIT: usize = 64;
/// Most bytes of parameter space of a thread, and of its local memory.
const PARAMETERS_LIMIT: u32 = 64 << 10;
const LOCAL_LIMIT: u32 = 64 << 10;

/// What a step does.
#[derive(Debug, Clone)]
pub(super) enum Action {
    Op(Op),
    /// Registers and predicates from here on become zero: a function is entered.
    Clear {
        registers: (u32, u32),
        predicates: (u32, u32),
    },
    /// Bytes of the thread's parameter space, or of the kernel's parameters, are copied within it.
    Copy {
        kernel: bool,
        from: u32,
        to: u32,
        len: u32,
    },
}

/// One instruction.
#[derive(Debug, Clone)]
pub(super) struct Step {
    pub(super) guard: Option<Flag>,
    pub(super) action: Action,
    pub(super) at: Position,
    pub(super) function: FunctionId,
    /// Where the function's parameters lie in the thread's parameter space, and how many bytes they have.
    pub(super) parameters: (u32, u32),
    /// It is the kernel's own, whose parameters the launch has.
    pub(super) outermost: bool,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Flat {
    pub(super) steps: Vec<Step>,
    pub(super) constants: Vec<Constant>,
    pub(super) registers: u32,
    pub(super) predicates: u32,
    /// Bytes of a thread.
    pub(super) local_bytes: u32,
    pub(super) parameter_bytes: u32,
    /// Bytes of the kernel's own parameters.
    pub(super) kernel_bytes: u32,
    /// Targets of branches by tables.
    targets: usize,
    /// Where the kernel has the value of each constant, if it has.
    pub(super) origins: Vec<Option<(FunctionId, u32)>>,
    numbers: HashMap<Constant, u32>,
}

/// A function that is being copied.
struct Copy<'k> {
    id: FunctionId,
    function: &'k Function,
    code: &'k Code,
    /// Numbers of its first register and predicate.
    registers: u32,
    predicates: u32,
    /// Where its parameters and its local memory lie.
    parameters: u32,
    local: u32,
}

/// Puts a kernel together.
pub(super) fn flatten(kernel: &Kernel) -> Result<Flat, Refusal> {
    let mut flat = Flat::default();
    let id = kernel.entry();
    let mut callers = Vec::new();
    flat.copy(kernel, id, 0, &mut callers, |flat, copy, _| {
        flat.kernel_bytes = copy.function.parameter_bytes;
        Ok(())
    })?;
    Ok(flat)
}

impl Flat {
    /// Bytes between the parameter spaces of threads beside each other, and between their local memories.
    pub(super) fn shares(&self) -> [usize; 2] {
        [self.parameter_bytes, self.local_bytes].map(|bytes| bytes.next_multiple_of(16) as usize)
    }

    /// Copies a function; its first instruction follows what `enter` adds.
    fn copy<'k>(
        &mut self,
        kernel: &'k Kernel,
        id: FunctionId,
        local: u32,
        callers: &mut Vec<FunctionId>,
        enter: impl FnOnce(&mut Self, &Copy<'k>, bool) -> Result<(), Refusal>,
    ) -> Result<Vec<usize>, Refusal> {
        let program = &kernel.image.program;
        let (Some(function), Some((code, _, _))) = (program.function(id), kernel.code(id)) else {
            return Err(Refusal::Call("a function that is nowhere".into()));
        };
        if callers.contains(&id) {
            return Err(Refusal::Call(format!("`{}` calls itself", function.name)));
        }
        if callers.len() > DEPTH_LIMIT {
            return Err(Refusal::Large);
        }
        let outermost = callers.is_empty();
        callers.push(id);
        let copy = Copy {
            id,
            function,
            code,
            registers: self.registers,
            predicates: self.predicates,
            parameters: self.parameter_bytes.next_multiple_of(16),
            local,
        };
        self.registers += code.registers;
        self.predicates += code.predicates;
        self.parameter_bytes = copy.parameters.saturating_add(function.frame_bytes);
        self.local_bytes = self.local_bytes.max(local.saturating_add(code.local_bytes));
        if self.parameter_bytes > PARAMETERS_LIMIT || self.local_bytes > LOCAL_LIMIT {
            return Err(Refusal::Large);
        }
        enter(self, &copy, outermost)?;
        let outcome = self.body(kernel, &copy, outermost, callers);
        callers.pop();
        outcome
    }

    /// Copies the instructions of a function; gives the branches that stand for its returns, whose target is still open.
    fn body(
        &mut self,
        kernel: &Kernel,
        copy: &Copy<'_>,
        outermost: bool,
        callers: &mut Vec<FunctionId>,
    ) -> Result<Vec<usize>, Refusal> {
        let mut places = Vec::with_capacity(copy.code.instructions.len());
        let (mut branches, mut returns) = (Vec::new(), Vec::new());
        for instruction in &copy.code.instructions {
            if let Op::BranchIndexed { targets, .. } = &instruction.op {
                self.targets += targets.len();
            }
            if self.steps.len() + self.targets >= CODE_LIMIT {
                return Err(Refusal::Large);
            }
            places.push(self.steps.len() as u32);
            match &instruction.op {
                Op::Call(call) => self.call(kernel, copy, instruction, call, outermost, callers)?,
                Op::Return if !outermost => {
                    returns.push(self.steps.len());
                    self.push(copy, outermost, instruction, Op::Branch { target: 0 });
                }
                op => {
                    if matches!(op, Op::Branch { .. } | Op::BranchIndexed { .. }) {
                        branches.push(self.steps.len());
                    }
                    self.push(copy, outermost, instruction, op.clone());
                }
            }
        }
        let place = |target: &u32| places.get(*target as usize).copied().unwrap_or(0);
        for branch in branches {
            match &mut self.steps[branch].action {
                Action::Op(Op::Branch { target }) => *target = place(target),
                Action::Op(Op::BranchIndexed { targets, .. }) => {
                    *targets = targets.iter().map(place).collect::<Arc<[u32]>>();
                }
                _ => {}
            }
        }
        Ok(returns)
    }

    fn push(&mut self, copy: &Copy<'_>, outermost: bool, from: &Instruction, mut op: Op) {
        self.rename(copy, &mut op);
        let mut guard = from.guard;
        if let Some(Flag::Pred(Pred(pred)) | Flag::Not(Pred(pred))) = &mut guard {
            *pred += copy.predicates;
        }
        let step = Step {
            guard,
            action: Action::Op(op),
            at: from.at,
            function: copy.id,
            parameters: (copy.parameters, copy.function.frame_bytes),
            outermost,
        };
        self.steps.push(step);
    }

    /// The numbers that a copy's registers and constants have here.
    fn rename(&mut self, copy: &Copy<'_>, op: &mut Op) {
        if let Op::LocalAddress { offset, .. } = op {
            *offset += copy.local;
        }
        if let Op::Together { what, .. } = op
            && let Together::Matrix { scratch, .. } = &mut **what
        {
            *scratch += copy.local;
        }
        // A carry that is only read is no operand that can be changed.
        if let Op::Carry {
            writes: false,
            carry: Pred(carry),
            ..
        } = op
        {
            *carry += copy.predicates;
        }
        operands(op, &mut |operand| match operand {
            Operand::Reads(source, _) => *source = self.source(copy, *source),
            Operand::Writes(Reg(reg), _) => *reg += copy.registers,
            Operand::WritesFlag(Pred(pred))
            | Operand::ReadsFlag(Flag::Pred(Pred(pred)) | Flag::Not(Pred(pred))) => {
                *pred += copy.predicates;
            }
            Operand::ReadsFlag(Flag::Known(_)) => {}
        });
    }

    fn source(&mut self, copy: &Copy<'_>, source: Source) -> Source {
        match source {
            Source::Reg(Reg(reg)) => Source::Reg(Reg(reg + copy.registers)),
            Source::Constant(number) => {
                let constant = copy.code.constants.get(number as usize);
                let constant = constant.copied().unwrap_or(Constant::Bits(0));
                self.constant(constant, Some((copy.id, number)))
            }
        }
    }

    fn constant(&mut self, constant: Constant, origin: Option<(FunctionId, u32)>) -> Source {
        let next = self.constants.len() as u32;
        let number = *self.numbers.entry(constant).or_insert(next);
        if number == next {
            self.constants.push(constant);
            self.origins.push(origin);
        }
        Source::Constant(number)
    }

    /// Copies the callee in the place of a call.
    fn call(
        &mut self,
        kernel: &Kernel,
        caller: &Copy<'_>,
        instruction: &Instruction,
        call: &Call,
        outermost: bool,
        callers: &mut Vec<FunctionId>,
    ) -> Result<(), Refusal> {
        let Callee::Function(id) = call.callee else {
            return Err(Refusal::Call("a call of what an address points to".into()));
        };
        let function = kernel.image.program.function(id);
        let Some(function) = function.filter(|one| matches!(one.body, Body::Code(_))) else {
            let name = function.map_or("", |function| &function.name);
            return Err(Refusal::Call(format!("a call of `{name}`")));
        };
        // Lanes that do not call go on behind it.
        let past = instruction.guard.map(|guard| {
            let past = self.steps.len();
            let branch = Instruction {
                guard: Some(opposite(guard)),
                op: Op::Branch { target: 0 },
                at: instruction.at,
            };
            self.push(caller, outermost, &branch, Op::Branch { target: 0 });
            past
        });
        let local = (caller.local + caller.code.local_bytes).next_multiple_of(16);
        let mut parameters = 0;
        let mut registers = (0, 0);
        let returns = self.copy(kernel, id, local, callers, |flat, callee, _| {
            parameters = callee.parameters;
            registers = (callee.registers, callee.predicates);
            let clear = Action::Clear {
                registers: (callee.registers, callee.registers + callee.code.registers),
                predicates: (
                    callee.predicates,
                    callee.predicates + callee.code.predicates,
                ),
            };
            flat.act(caller, outermost, instruction, clear);
            for (argument, parameter) in call.arguments.iter().zip(&callee.function.parameters) {
                let from = flat.place(caller, *argument, outermost);
                let to = placed(callee, parameter.place, parameter.len);
                flat.pass(caller, outermost, instruction, from, to);
            }
            Ok(())
        })?;
        let end = self.steps.len() as u32;
        for number in returns.into_iter().chain(past) {
            if let Action::Op(Op::Branch { target }) = &mut self.steps[number].action {
                *target = end;
            }
        }
        if past.is_some() && !call.returns.is_empty() {
            return Err(Refusal::Call("a guarded call with results".into()));
        }
        for (argument, result) in call.returns.iter().zip(&function.returns) {
            let from = match result.place {
                ParameterPlace::Memory(offset) => Place::Memory {
                    at: parameters + offset,
                    len: result.len,
                    kernel: false,
                },
                ParameterPlace::Register(Reg(reg)) => {
                    Place::Value(Source::Reg(Reg(reg + registers.0)))
                }
                ParameterPlace::Predicate(Pred(pred)) => {
                    Place::Flag(Flag::Pred(Pred(pred + registers.1)))
                }
            };
            let to = self.place(caller, *argument, false);
            self.pass(caller, outermost, instruction, from, to);
        }
        // Something for branches behind the call to go to.
        self.push(caller, outermost, &unguarded(instruction), Op::Nop);
        Ok(())
    }

    /// The place of an argument of a caller: with the launch, if that is the kernel and `reads` its own parameters.
    fn place(&mut self, caller: &Copy<'_>, argument: Argument, reads: bool) -> Place {
        match argument {
            Argument::Memory { offset, len } => {
                let own = reads && offset + len <= caller.function.parameter_bytes;
                Place::Memory {
                    at: if own {
                        offset
                    } else {
                        caller.parameters + offset
                    },
                    len,
                    kernel: own,
                }
            }
            Argument::Value(source, _) => Place::Value(self.source(caller, source)),
            Argument::Flag(Flag::Pred(Pred(pred))) => {
                Place::Flag(Flag::Pred(Pred(pred + caller.predicates)))
            }
            Argument::Flag(Flag::Not(Pred(pred))) => {
                Place::Flag(Flag::Not(Pred(pred + caller.predicates)))
            }
            Argument::Flag(known) => Place::Flag(known),
        }
    }

    /// Brings a value from one place to another.
    fn pass(
        &mut self,
        caller: &Copy<'_>,
        outermost: bool,
        instruction: &Instruction,
        from: Place,
        to: Place,
    ) {
        let zero = self.constant(Constant::Bits(0), None);
        let address = |at: u32| towline_ptx::ir::op::Address {
            base: zero,
            offset: i64::from(at),
        };
        let mut is_of_kernel = false;
        let op = match (from, to) {
            (
                Place::Memory { at, len, kernel },
                Place::Memory {
                    at: to, len: room, ..
                },
            ) => {
                let len = len.min(room);
                let copy = Action::Copy {
                    kernel,
                    from: at,
                    to,
                    len,
                };
                self.act(caller, outermost, instruction, copy);
                return;
            }
            (Place::Value(a), Place::Value(Source::Reg(d))) => Op::Mov { d, a },
            (Place::Flag(a), Place::Flag(Flag::Pred(d))) => Op::PredMov { d, a },
            (Place::Value(a), Place::Memory { at, len, .. }) => Op::Store {
                space: Space::Param,
                ty: word(len),
                order: Default::default(),
                address: address(at),
                a,
            },
            (Place::Memory { at, len, kernel }, Place::Value(Source::Reg(d))) => {
                is_of_kernel = kernel;
                Op::Load {
                    space: Space::Param,
                    ty: word(len),
                    order: Default::default(),
                    polls: false,
                    d,
                    address: address(at),
                }
            }
            _ => return,
        };
        let step = Step {
            guard: None,
            action: Action::Op(op),
            at: instruction.at,
            function: caller.id,
            // Its addresses are those of the thread's whole parameter space.
            parameters: (0, u32::MAX),
            outermost: is_of_kernel,
        };
        self.steps.push(step);
    }

    fn act(
        &mut self,
        caller: &Copy<'_>,
        outermost: bool,
        instruction: &Instruction,
        action: Action,
    ) {
        let step = Step {
            guard: None,
            action,
            at: instruction.at,
            function: caller.id,
            parameters: (caller.parameters, caller.function.frame_bytes),
            outermost,
        };
        self.steps.push(step);
    }
}

/// Where an argument or a result lies, in the numbers of the whole.
#[derive(Debug, Clone, Copy)]
enum Place {
    Memory { at: u32, len: u32, kernel: bool },
    Value(Source),
    Flag(Flag),
}

fn placed(copy: &Copy<'_>, place: ParameterPlace, len: u32) -> Place {
    match place {
        ParameterPlace::Memory(offset) => Place::Memory {
            at: copy.parameters + offset,
            len,
            kernel: false,
        },
        ParameterPlace::Register(Reg(reg)) => Place::Value(Source::Reg(Reg(reg + copy.registers))),
        ParameterPlace::Predicate(Pred(pred)) => {
            Place::Flag(Flag::Pred(Pred(pred + copy.predicates)))
        }
    }
}

fn word(len: u32) -> Type {
    match len {
        1 => Type::B8,
        2 => Type::B16,
        4 => Type::B32,
        _ => Type::B64,
    }
}

pub(super) fn opposite(flag: Flag) -> Flag {
    match flag {
        Flag::Known(truth) => Flag::Known(!truth),
        Flag::Pred(pred) => Flag::Not(pred),
        Flag::Not(pred) => Flag::Pred(pred),
    }
}

fn unguarded(instruction: &Instruction) -> Instruction {
    Instruction {
        guard: None,
        ..instruction.clone()
    }
}
