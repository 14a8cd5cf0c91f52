//! A warp: where its lanes are, and which of them go on.

use std::cell::Cell;

use towline_ptx::ir::Op;
use towline_ptx::ir::op::Source;
use towline_ptx::ptx::Position;

use super::access::Env;
use super::frame::{Frame, lanes_of};
use super::step::{self, Lane};
use crate::fault::{Fault, FaultKind};

/// Rounds of a loop that polls memory before others get their turn.
const POLLS: u32 = 16;
/// Rounds of any loop before lanes elsewhere in the code get theirs.
const ROUNDS: u32 = 50_000;

/// Lanes at one place.
#[derive(Debug, Clone, Copy)]
pub(super) struct Split {
    pub(super) pc: u32,
    pub(super) mask: u32,
    pub(super) frame: usize,
    pub(super) state: State,
    /// When it went on last.
    turn: u64,
}

/// What a split is about to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Ready,
    /// It waits at a barrier of the block.
    Barrier(usize),
    /// It waits for other lanes of the warp.
    Together,
}

/// Why a warp stops for now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// A split has come to a barrier.
    Barrier(usize),
    /// Every split waits.
    Blocked,
    Done,
    /// It has had its share.
    Spent,
    /// It polls memory.
    Polling,
}

/// What a split does next.
pub(super) enum Step {
    /// Whoever is to go on is picked anew.
    Again,
    Barrier(usize),
    Polling,
    Spent,
}

/// A fault of a lane.
pub(super) type LaneFault = (FaultKind, Lane);

/// See the module's text.
pub(super) struct Warp {
    pub(super) number: u32,
    /// Lanes that have not ended.
    pub(super) live: u32,
    pub(super) frames: Vec<Option<Frame>>,
    pub(super) splits: Vec<Split>,
    /// Local memory of each lane.
    pub(super) locals: Vec<Vec<u8>>,
    turns: u64,
    /// The split that has waited longest goes on next.
    rotate: bool,
}

/// The frame of a split, which is there as long as the split.
pub(super) fn frame_mut(frames: &mut [Option<Frame>], number: usize) -> &mut Frame {
    frames
        .get_mut(number)
        .and_then(Option::as_mut)
        .expect("a split's frame lives as long as its lanes")
}

impl Warp {
    /// A warp at the start of the kernel.
    pub(super) fn new(number: u32, lanes: u32, frame: Frame, local_bytes: u32) -> Self {
        let live = if lanes >= 32 {
            u32::MAX
        } else {
            (1 << lanes) - 1
        };
        let mut frame = frame;
        frame.lanes = live.count_ones();
        Self {
            number,
            live,
            frames: vec![Some(frame)],
            splits: vec![Split {
                pc: 0,
                mask: live,
                frame: 0,
                state: State::Ready,
                turn: 0,
            }],
            locals: vec![vec![0; local_bytes as usize]; lanes.min(32) as usize],
            turns: 0,
            rotate: false,
        }
    }

    pub(super) fn frame(&mut self, number: usize) -> &mut Frame {
        frame_mut(&mut self.frames, number)
    }

    /// Goes on until it has to stop.
    pub(super) fn run(&mut self, env: &mut Env<'_>, fuel: &mut u64) -> Result<Stop, Box<Fault>> {
        let mut polls = 0;
        loop {
            self.merge();
            let Some(number) = self.pick() else {
                return Ok(match self.splits.is_empty() {
                    true => Stop::Done,
                    false => Stop::Blocked,
                });
            };
            let (lanes, before) = (self.splits[number].mask.count_ones(), *fuel);
            let step = self.run_split(number, env, fuel)?;
            env.executed += (before - *fuel) * u64::from(lanes);
            match step {
                Step::Again => {}
                Step::Barrier(split) => return Ok(Stop::Barrier(split)),
                Step::Spent => return Ok(Stop::Spent),
                Step::Polling => {
                    self.rotate = true;
                    polls += 1;
                    let ready = self.splits.iter().filter(|one| one.state == State::Ready);
                    if polls >= ready.count() {
                        return Ok(Stop::Polling);
                    }
                }
            }
        }
    }

    /// Joins splits that are at the same place.
    fn merge(&mut self) {
        let mut first = 0;
        while first < self.splits.len() {
            let mut other = first + 1;
            while other < self.splits.len() {
                let (a, b) = (self.splits[first], self.splits[other]);
                let same = a.frame == b.frame && a.pc == b.pc;
                if same && a.state == State::Ready && b.state == State::Ready {
                    self.splits[first].mask |= b.mask;
                    self.splits.swap_remove(other);
                } else {
                    other += 1;
                }
            }
            first += 1;
        }
    }

    /// The split that goes on: of the deepest call the one that is furthest behind; now and then the one that has waited longest.
    fn pick(&mut self) -> Option<usize> {
        self.turns += 1;
        let frames = &self.frames;
        let ready = self.splits.iter().enumerate();
        let ready = ready.filter(|(_, split)| split.state == State::Ready);
        let number = match std::mem::take(&mut self.rotate) {
            true => ready.min_by_key(|(_, split)| split.turn),
            false => ready.min_by_key(|(_, split)| {
                let frame = frames.get(split.frame).and_then(Option::as_ref);
                (u32::MAX - frame.map_or(0, |frame| frame.depth), split.pc)
            }),
        };
        let number = number.map(|(number, _)| number)?;
        self.splits[number].turn = self.turns;
        Some(number)
    }

    /// The next place in the code where another split waits to be joined.
    fn meeting(&self, number: usize) -> u32 {
        let split = self.splits[number];
        let others = self.splits.iter().filter(|other| {
            other.frame == split.frame && other.pc > split.pc && other.state == State::Ready
        });
        others.map(|other| other.pc).min().unwrap_or(u32::MAX)
    }

    /// Adds lanes of a split at a place of their own.
    pub(super) fn part(&mut self, number: usize, mask: u32, pc: u32) {
        let split = self.splits[number];
        self.splits[number].mask &= !mask;
        self.splits.push(Split { pc, mask, ..split });
    }

    /// Makes a fault of the program out of a lane's.
    pub(super) fn fault(
        &mut self,
        (kind, lane): LaneFault,
        split: Split,
        at: Position,
        env: &Env<'_>,
    ) -> Box<Fault> {
        let lane = match lane {
            Lane::Number(lane) => lane as u32,
            Lane::First => split.mask.trailing_zeros(),
        };
        let function = self.frame(split.frame).function;
        let function = env.launch.kernel.image.program.function(function);
        Box::new(Fault {
            kind,
            function: function.map(|one| one.name.clone()).unwrap_or_default(),
            at,
            block: env.block,
            thread: env.launch.thread_at(self.number * 32 + lane),
        })
    }

    /// Carries out instructions of one split until something else than the next instruction is to follow.
    fn run_split(
        &mut self,
        number: usize,
        env: &mut Env<'_>,
        fuel: &mut u64,
    ) -> Result<Step, Box<Fault>> {
        let polled = Cell::new(false);
        let step = self.run_on(number, env, fuel, &polled);
        env.polled |= polled.get();
        step
    }

    fn run_on(
        &mut self,
        number: usize,
        env: &mut Env<'_>,
        fuel: &mut u64,
        polled: &Cell<bool>,
    ) -> Result<Step, Box<Fault>> {
        let launch = env.launch;
        let Split {
            mut pc,
            mask,
            frame: frame_number,
            ..
        } = self.splits[number];
        let meeting = self.meeting(number);
        let alone = self.splits.len() == 1;
        let function = self.frame(frame_number).function;
        let Some((_, code, constants)) = launch.kernel.code(function) else {
            let split = self.splits[number];
            let at = Position { line: 0, column: 0 };
            return Err(self.fault((FaultKind::Callee(0), Lane::First), split, at, env));
        };
        let (mut polls, mut rounds) = (0, 0);
        loop {
            let Some(instruction) = code.get(pc as usize) else {
                return Ok(Step::Again);
            };
            if *fuel == 0 {
                self.splits[number].pc = pc;
                return Ok(Step::Spent);
            }
            *fuel -= 1;
            let frame = frame_mut(&mut self.frames, frame_number);
            let active = match instruction.guard {
                None => mask,
                Some(flag) => mask & frame.flag(flag),
            };
            if active == 0 {
                pc += 1;
            } else if let Op::Branch { target } = instruction.op {
                if active != mask {
                    self.splits[number].pc = pc + 1;
                    self.part(number, active, target);
                    return Ok(Step::Again);
                }
                let back = target <= pc;
                pc = target;
                if back {
                    if polled.take() {
                        env.polled = true;
                        polls += 1;
                    }
                    rounds += 1;
                    self.splits[number].pc = pc;
                    if polls >= POLLS {
                        return Ok(Step::Polling);
                    }
                    if !alone {
                        // The meeting may lie elsewhere now.
                        if rounds >= ROUNDS {
                            self.rotate = true;
                            return Ok(Step::Again);
                        }
                        if self.meeting(number) != meeting {
                            return Ok(Step::Again);
                        }
                    }
                }
            } else if step::is_control(&instruction.op) {
                self.splits[number].pc = pc;
                if active != mask {
                    self.part(number, mask & !active, pc + 1);
                }
                return self.control(number, instruction, constants, env);
            } else {
                let context = step::Context {
                    constants,
                    warp: self.number,
                    mask: active,
                    pc,
                    polled,
                };
                if let Err(fault) =
                    step::execute(context, frame, &mut self.locals, env, &instruction.op)
                {
                    let split = Split {
                        mask: active,
                        ..self.splits[number]
                    };
                    return Err(self.fault(fault, split, instruction.at, env));
                }
                pc += 1;
            }
            if pc >= meeting {
                self.splits[number].pc = pc;
                return Ok(Step::Again);
            }
        }
    }

    /// Ends the lanes of a split.
    pub(super) fn exit(&mut self, number: usize) {
        let split = self.splits.swap_remove(number);
        self.live &= !split.mask;
        let mut next = Some(split.frame);
        while let Some(frame_number) = next {
            next = self.leave(frame_number, split.mask);
        }
    }

    /// Lanes leave a frame; gives its caller's.
    pub(super) fn leave(&mut self, number: usize, mask: u32) -> Option<usize> {
        let frame = self.frame(number);
        frame.lanes -= mask.count_ones();
        let parent = frame.parent;
        if frame.lanes == 0 {
            self.frames[number] = None;
        }
        parent
    }

    /// The value that the first lane of a split has, after lanes with another value have become a split of their own.
    pub(super) fn agree(&mut self, number: usize, source: Source, constants: &[[u64; 32]]) -> u64 {
        let split = self.splits[number];
        let values = *self.frame(split.frame).get(constants, source);
        let value = values[split.mask.trailing_zeros() as usize & 31];
        let others = lanes_of(split.mask).filter(|lane| values[*lane] != value);
        let others = others.fold(0, |mask, lane| mask | 1 << lane);
        if others != 0 {
            self.part(number, others, split.pc);
        }
        value
    }
}
