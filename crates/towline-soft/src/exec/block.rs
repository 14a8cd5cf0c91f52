//! A block: its warps in turn.

use std::sync::atomic::Ordering;

use towline_ptx::ir::Op;
use towline_ptx::ir::op::{Barrier, Source};
use towline_ptx::ptx::Position;

use super::Launch;
use super::access::Env;
use super::barrier::{BARRIERS, Meeting, NUMBERED, is_known};
use super::frame::Frame;
use super::grid::{Pause, Work};
use super::step::Lane;
use super::warp::{State, Stop, Warp};
use crate::fault::{Fault, FaultKind};

/// Instructions of a warp before the next has its turn.
const WARP_SHARE: u64 = 20_000;
/// Instructions of a block before others may have theirs.
const BLOCK_SHARE: u64 = 200_000;

/// See the module's text.
pub(super) struct Block<'a> {
    env: Env<'a>,
    warps: Vec<Warp>,
    barriers: [Meeting; BARRIERS],
}

impl<'a> Work<'a> for Block<'a> {
    type Shared = ();

    /// A block at the start of the kernel.
    fn start(launch: &'a Launch, (): &'a (), number: u64, _: Option<Box<Self>>) -> Box<Self> {
        let env = Env::new(launch, launch.block_at(number));
        let kernel = &launch.kernel;
        let function = kernel.image.program.function(kernel.entry());
        let frame_bytes = function.map_or(0, |function| function.frame_bytes);
        let threads = launch.threads_per_block();
        let warps = (0..threads.div_ceil(32)).filter_map(|warp| {
            let (code, _, _) = kernel.code(kernel.entry())?;
            let frame = Frame::new(kernel.entry(), code, frame_bytes);
            let lanes = (threads - warp * 32).min(32);
            Some(Warp::new(warp, lanes, frame, code.local_bytes))
        });
        let warps = warps.collect();
        Box::new(Self {
            env,
            warps,
            barriers: Default::default(),
        })
    }

    /// Goes on until it ends, has had its share, or only polls.
    fn run(&mut self) -> Result<Pause, Box<Fault>> {
        let mut share = BLOCK_SHARE;
        loop {
            self.env.look_again();
            let (mut going, mut polling, mut working) = (false, false, false);
            for number in 0..self.warps.len() {
                if self.warps[number].splits.is_empty() {
                    continue;
                }
                going = true;
                let mut fuel = WARP_SHARE;
                let stop = self.run_warp(number, &mut fuel)?;
                share = share.saturating_sub(WARP_SHARE - fuel);
                match stop {
                    Stop::Polling => polling = true,
                    Stop::Spent | Stop::Done => working = true,
                    Stop::Blocked | Stop::Barrier(_) => {}
                }
            }
            if !going {
                let executed = std::mem::take(&mut self.env.executed);
                self.env
                    .launch
                    .executed
                    .fetch_add(executed, Ordering::Relaxed);
                return Ok(Pause::Done);
            }
            // Those who have ended are not waited for.
            let released = self.release_all();
            if released || working || !polling && self.somebody_is_ready() {
                if share == 0 {
                    // Those who meet each time they have looked at what others may change never run out of patience by themselves.
                    return Ok(match std::mem::take(&mut self.env.polled) {
                        true => Pause::Polling,
                        false => Pause::Spent,
                    });
                }
            } else if polling {
                return Ok(Pause::Polling);
            } else {
                return Err(self.deadlock());
            }
        }
    }
}

impl Block<'_> {
    /// Runs a warp, through barriers that it does not wait at.
    fn run_warp(&mut self, number: usize, fuel: &mut u64) -> Result<Stop, Box<Fault>> {
        loop {
            let stop = self.warps[number].run(&mut self.env, fuel)?;
            let Stop::Barrier(split) = stop else {
                return Ok(stop);
            };
            self.arrive(number, split)?;
        }
    }

    /// A split of a warp has come to a barrier.
    fn arrive(&mut self, number: usize, split_number: usize) -> Result<(), Box<Fault>> {
        let warps = self.warps.len();
        let warp = &mut self.warps[number];
        let split = warp.splits[split_number];
        let function = warp.frame(split.frame).function;
        let code = self.env.launch.kernel.code(function);
        let found =
            code.and_then(|(_, code, constants)| Some((code.get(split.pc as usize)?, constants)));
        let Some((instruction, constants)) = found else {
            return Ok(());
        };
        let Op::Barrier { kind, id, threads } = &instruction.op else {
            return Ok(());
        };
        let mut value = |source: Source| warp.agree(split_number, source, constants);
        let id = value(*id) as u32 as usize;
        let threads = threads.map(&mut value);
        let barrier = self.barriers.get_mut(id).filter(|_| is_known(*kind, id));
        let Some(barrier) = barrier else {
            let kind = FaultKind::Resources(format!("barrier {id}, of {NUMBERED}"));
            let split = warp.splits[split_number];
            return Err(warp.fault((kind, Lane::First), split, instruction.at, &self.env));
        };
        if matches!(kind, Barrier::ClusterWait) {
            // Lanes that have arrived wait for the others; the rest were released before.
            let mask = warp.splits[split_number].mask;
            let waits = barrier.come(number, mask);
            if waits == 0 {
                warp.splits[split_number].pc += 1;
                return Ok(());
            }
            if waits != mask {
                let next = warp.splits[split_number].pc + 1;
                warp.part(split_number, mask & !waits, next);
            }
            warp.splits[split_number].state = State::Barrier(id);
            return Ok(());
        }
        barrier.arrive_split(warps, warp, split_number, *kind, threads);
        if matches!(kind, Barrier::Arrive | Barrier::ClusterArrive) {
            warp.splits[split_number].pc += 1;
        } else {
            warp.splits[split_number].state = State::Barrier(id);
        }
        self.barriers[id].release(id, &mut self.warps, &self.env);
        Ok(())
    }

    fn release_all(&mut self) -> bool {
        let mut released = false;
        for (id, barrier) in self.barriers.iter_mut().enumerate() {
            released |= barrier.release(id, &mut self.warps, &self.env);
        }
        released
    }

    fn somebody_is_ready(&self) -> bool {
        let mut splits = self.warps.iter().flat_map(|warp| &warp.splits);
        splits.any(|split| split.state == State::Ready)
    }

    /// What to say when nobody can go on.
    fn deadlock(&mut self) -> Box<Fault> {
        let env = &self.env;
        let mut waiting = self.warps.iter_mut().filter(|warp| !warp.splits.is_empty());
        let at = Position { line: 0, column: 0 };
        match waiting.next() {
            Some(warp) => {
                let split = warp.splits[0];
                let function = warp.frame(split.frame).function;
                let code = env.launch.kernel.code(function);
                let instruction = code.and_then(|(_, code, _)| code.get(split.pc as usize));
                let at = instruction.map_or(at, |instruction| instruction.at);
                warp.fault((FaultKind::Deadlock, Lane::First), split, at, env)
            }
            None => Box::new(Fault {
                kind: FaultKind::Deadlock,
                function: String::new(),
                at,
                block: env.block,
                thread: [0; 3],
            }),
        }
    }
}
