//! Calls, returns, and everything else that moves lanes.

use towline_ptx::ir::op::{Argument, Call, Callee, Flag, Instruction, Op, Pred, Reg, Source};
use towline_ptx::ir::{Body, Function, Parameter, ParameterPlace};

use super::access::{Env, number as to_number};
use super::frame::{Frame, LANES, Lanes, lanes_of};
use super::step::Lane;
use super::warp::{Step, Warp};
use super::{DEPTH_LIMIT, LOCAL_LIMIT};
use crate::fault::{Fault, FaultKind};

impl Warp {
    /// Carries out an instruction that may move lanes, for all lanes of a split.
    pub(super) fn control(
        &mut self,
        number: usize,
        instruction: &Instruction,
        constants: &[Lanes],
        env: &mut Env<'_>,
    ) -> Result<Step, Box<Fault>> {
        let split = self.splits[number];
        let outcome = match &instruction.op {
            Op::Barrier { .. } => return Ok(Step::Barrier(number)),
            Op::BranchIndexed { index, targets } => {
                let index = self.agree(number, *index, constants) as u32;
                match targets.get(index as usize) {
                    Some(target) => {
                        self.splits[number].pc = *target;
                        Ok(())
                    }
                    None => Err((FaultKind::Callee(index.into()), Lane::First)),
                }
            }
            Op::Call(call) => self.call(number, call, constants, env),
            Op::Exit => {
                self.exit(number);
                return self.meet_all(env).map(|()| Step::Again);
            }
            Op::Nanosleep { .. } => {
                self.splits[number].pc += 1;
                return Ok(Step::Polling);
            }
            Op::Return => {
                return self.come_back(number, env).map(|()| Step::Again);
            }
            Op::Together { mask, .. } => {
                let arrived = self.arrive_together(number, *mask, constants, env);
                return arrived.map(|()| Step::Again);
            }
            Op::Trap { breakpoint: true } => Err((FaultKind::Breakpoint, Lane::First)),
            _ => Err((FaultKind::Trap, Lane::First)),
        };
        match outcome {
            Ok(()) => Ok(Step::Again),
            Err(fault) => Err(self.fault(fault, split, instruction.at, env)),
        }
    }

    fn call(
        &mut self,
        number: usize,
        call: &Call,
        constants: &[Lanes],
        env: &mut Env<'_>,
    ) -> Result<(), (FaultKind, Lane)> {
        let kernel = &env.launch.kernel;
        let (id, address) = match call.callee {
            Callee::Function(id) => (Some(id), 0),
            Callee::Address(source) => {
                let address = self.agree(number, source, constants);
                (kernel.image.function_at(address), address)
            }
        };
        let nowhere = (FaultKind::Callee(address), Lane::First);
        let Some((id, function)) = id.and_then(|id| Some((id, kernel.image.program.function(id)?)))
        else {
            return Err(nowhere);
        };
        if matches!(function.body, Body::Declared) {
            self.built_in(number, &function.name, call, constants, env)?;
            self.splits[number].pc += 1;
            return Ok(());
        }
        let Some((code, _, _)) = kernel.code(id) else {
            return Err(nowhere);
        };
        let split = self.splits[number];
        let caller = self.frame(split.frame);
        let (depth, local_base) = (caller.depth + 1, caller.local_end.next_multiple_of(16));
        let local_end = local_base.saturating_add(code.local_bytes);
        let bytes = Frame::bytes(code, function.frame_bytes);
        if depth > DEPTH_LIMIT || local_end > LOCAL_LIMIT {
            return Err((FaultKind::Stack, Lane::First));
        }
        let locals = local_end as usize * LANES;
        if self.frame_bytes() + bytes + locals > env.launch.warp_share() {
            return Err((FaultKind::Stack, Lane::First));
        }
        let mut frame = Frame::new(id, code, function.frame_bytes);
        frame.parent = Some(split.frame);
        frame.call_at = split.pc;
        frame.depth = depth;
        frame.local_base = local_base;
        frame.local_end = local_end;
        frame.lanes = split.mask.count_ones();
        for lane in lanes_of(split.mask) {
            if let Some(local) = self.locals.get_mut(lane)
                && local.len() < local_end as usize
            {
                local.resize(local_end as usize, 0);
            }
        }
        let caller = self.frame(split.frame);
        for (argument, parameter) in call.arguments.iter().zip(&function.parameters) {
            pass(
                caller, constants, *argument, &mut frame, *parameter, split.mask, env,
            );
        }
        let place = self.frames.iter().position(Option::is_none);
        let place = match place {
            Some(place) => {
                self.frames[place] = Some(frame);
                place
            }
            None => {
                self.frames.push(Some(frame));
                self.frames.len() - 1
            }
        };
        let split = &mut self.splits[number];
        split.frame = place;
        split.pc = 0;
        Ok(())
    }

    /// Bytes of all frames of the warp.
    fn frame_bytes(&self) -> usize {
        self.frames.iter().flatten().map(Frame::len_bytes).sum()
    }

    /// Lanes return to their caller, or end.
    fn come_back(&mut self, number: usize, env: &mut Env<'_>) -> Result<(), Box<Fault>> {
        let split = self.splits[number];
        let Some(parent) = self.frame(split.frame).parent else {
            self.exit(number);
            return self.meet_all(env);
        };
        let kernel = &env.launch.kernel;
        let call_at = self.frame(split.frame).call_at;
        let callee_id = self.frame(split.frame).function;
        let caller_id = self.frame(parent).function;
        let callee: Option<&Function> = kernel.image.program.function(callee_id);
        let code = kernel.code(caller_id);
        let instruction = code.and_then(|(_, code, _)| code.get(call_at as usize));
        if let (Some(callee), Some(Op::Call(call))) = (callee, instruction.map(|one| &one.op)) {
            for (place, result) in call.returns.iter().zip(&callee.returns) {
                let values: Vec<_> = lanes_of(split.mask)
                    .map(|lane| (lane, result_of(self.frame(split.frame), *result, lane)))
                    .collect();
                give(self.frame(parent), *place, &values, split.mask);
            }
        }
        self.leave(split.frame, split.mask);
        let split = &mut self.splits[number];
        split.frame = parent;
        split.pc = call_at + 1;
        Ok(())
    }

    /// What each lane passes to a function of the device's own.
    pub(super) fn argument(
        &mut self,
        number: usize,
        call: &Call,
        index: usize,
        constants: &[Lanes],
    ) -> Lanes {
        let split = self.splits[number];
        let frame = self.frame(split.frame);
        let mut out = [0; LANES];
        match call.arguments.get(index) {
            Some(Argument::Memory { offset, len }) => {
                for lane in lanes_of(split.mask) {
                    let bytes = frame.parameter(lane, (*offset).into(), (*len).into());
                    out[lane] = to_number(bytes.unwrap_or_default());
                }
            }
            Some(Argument::Value(source, _)) => out = *frame.get(constants, *source),
            _ => {}
        }
        out
    }

    /// Gives the one result of a function of the device's own.
    pub(super) fn answer(&mut self, number: usize, call: &Call, values: &Lanes) {
        let split = self.splits[number];
        let values: Vec<_> = lanes_of(split.mask)
            .map(|lane| (lane, values[lane].to_le_bytes().to_vec()))
            .collect();
        if let Some(place) = call.returns.first() {
            give(self.frame(split.frame), *place, &values, split.mask);
        }
    }
}

/// Copies an argument into the callee's frame.
fn pass(
    caller: &Frame,
    constants: &[Lanes],
    argument: Argument,
    frame: &mut Frame,
    parameter: Parameter,
    mask: u32,
    env: &Env<'_>,
) {
    let bytes = |lane: usize| -> Vec<u8> {
        match argument {
            Argument::Memory { offset, len } => {
                let is_kernel = caller.parent.is_none();
                let (from, to) = (offset as usize, (offset + len) as usize);
                match env.launch.parameters.get(from..to) {
                    Some(bytes) if is_kernel => bytes.to_vec(),
                    _ => {
                        let bytes = caller.parameter(lane, offset.into(), len.into());
                        bytes.unwrap_or_default().to_vec()
                    }
                }
            }
            Argument::Value(source, _) => {
                caller.get(constants, source)[lane].to_le_bytes().to_vec()
            }
            Argument::Flag(flag) => vec![(caller.flag(flag) >> lane & 1) as u8],
        }
    };
    let values: Vec<_> = lanes_of(mask).map(|lane| (lane, bytes(lane))).collect();
    let place = match parameter.place {
        ParameterPlace::Memory(offset) => Argument::Memory {
            offset,
            len: parameter.len,
        },
        ParameterPlace::Register(reg) => Argument::Value(Source::Reg(reg), 8),
        ParameterPlace::Predicate(pred) => Argument::Flag(Flag::Pred(pred)),
    };
    give(frame, place, &values, mask);
}

/// The bytes of a lane's result.
fn result_of(frame: &Frame, result: Parameter, lane: usize) -> Vec<u8> {
    match result.place {
        ParameterPlace::Memory(offset) => {
            let bytes = frame.parameter(lane, offset.into(), result.len.into());
            bytes.unwrap_or_default().to_vec()
        }
        ParameterPlace::Register(reg) => frame.get(&[], Source::Reg(reg))[lane]
            .to_le_bytes()
            .to_vec(),
        ParameterPlace::Predicate(pred) => vec![(frame.flag(Flag::Pred(pred)) >> lane & 1) as u8],
    }
}

/// Puts bytes of each lane where an argument or result goes.
fn give(frame: &mut Frame, place: Argument, values: &[(usize, Vec<u8>)], mask: u32) {
    match place {
        Argument::Memory { offset, len } => {
            for (lane, bytes) in values {
                let len = u64::from(len).min(bytes.len() as u64);
                if let Some(to) = frame.parameter_mut(*lane, offset.into(), len) {
                    to.copy_from_slice(&bytes[..len as usize]);
                }
            }
        }
        Argument::Value(Source::Reg(Reg(reg)), _) => {
            let mut out = [0; LANES];
            for (lane, bytes) in values {
                out[*lane] = to_number(bytes.get(..8).unwrap_or(bytes));
            }
            frame.set(Reg(reg), mask, &out);
        }
        Argument::Flag(Flag::Pred(Pred(pred))) => {
            let holds = |(lane, bytes): &(usize, Vec<u8>)| {
                u32::from(bytes.first().is_some_and(|byte| *byte != 0)) << lane
            };
            let value = values.iter().map(holds).fold(0, |all, one| all | one);
            frame.set_flag(Pred(pred), mask, value);
        }
        // A result that goes nowhere.
        Argument::Value(Source::Constant(_), _) | Argument::Flag(_) => {}
    }
}
