//! Barriers of a block. They count threads, so lanes of a warp may come apart from each other; threads that have ended are not waited for.

use towline_ptx::ir::Op;
use towline_ptx::ir::op::{Barrier, Logic};

use super::access::Env;
use super::frame::LANES;
use super::together::answers;
use super::warp::{State, Warp};

/// Barriers of a block.
pub(super) const BARRIERS: usize = 16;

/// One of them.
#[derive(Debug, Default, Clone)]
pub(super) struct Meeting {
    /// Lanes of each warp that have come.
    arrived: Vec<u32>,
    /// How many threads must come; all that live when it is not said.
    threads: Option<u64>,
    /// What those said that have come.
    yes: u64,
    no: bool,
}

impl Meeting {
    /// Lanes of a warp come. A warp counts as a whole once all its lanes are there.
    pub(super) fn arrive(
        &mut self,
        warps: usize,
        warp: &mut Warp,
        number: usize,
        kind: Barrier,
        threads: Option<u64>,
    ) {
        self.arrived.resize(warps, 0);
        let mask = warp.splits[number].mask;
        if let Some(place) = self.arrived.get_mut(warp.number as usize) {
            *place |= mask;
        }
        self.threads = threads;
        if let Barrier::Reduce { a, .. } | Barrier::Count { a, .. } = kind {
            let yes = answers(warp, number, a);
            self.yes += u64::from(yes.count_ones());
            self.no |= yes != mask;
        }
    }

    fn is_complete(&self, warps: &[Warp]) -> bool {
        let mut lanes = self.arrived.iter().zip(warps);
        match self.threads {
            None => lanes.all(|(arrived, warp)| warp.live & !arrived == 0),
            Some(wanted) => {
                let come = lanes.map(|(arrived, warp)| match warp.live & !arrived {
                    _ if *arrived == 0 => 0,
                    0 => LANES as u64,
                    _ => u64::from(arrived.count_ones()),
                });
                come.sum::<u64>() >= wanted
            }
        }
    }

    /// Lets those who wait go on, when all have come.
    pub(super) fn release(&mut self, id: usize, warps: &mut [Warp], env: &Env<'_>) -> bool {
        let anybody = self.arrived.iter().any(|mask| *mask != 0);
        if !anybody || !self.is_complete(warps) {
            return false;
        }
        for warp in warps {
            for number in 0..warp.splits.len() {
                let split = warp.splits[number];
                if split.state != State::Barrier(id) {
                    continue;
                }
                self.tell(warp, number, env);
                let split = &mut warp.splits[number];
                split.pc += 1;
                split.state = State::Ready;
            }
        }
        *self = Self::default();
        true
    }

    /// Gives a split the verdict.
    fn tell(&self, warp: &mut Warp, number: usize, env: &Env<'_>) {
        let split = warp.splits[number];
        let frame = warp.frame(split.frame);
        let code = env.launch.kernel.code(frame.function);
        let instruction = code.and_then(|(_, code, _)| code.get(split.pc as usize));
        let Some(Op::Barrier { kind, .. }) = instruction.map(|one| &one.op) else {
            return;
        };
        match *kind {
            Barrier::Reduce { op, d, .. } => {
                let holds = match op {
                    Logic::And => !self.no,
                    _ => self.yes > 0,
                };
                frame.set_flag(d, split.mask, if holds { u32::MAX } else { 0 });
            }
            Barrier::Count { d, .. } => frame.set(d, split.mask, &[self.yes; LANES]),
            Barrier::Arrive | Barrier::Sync => {}
        }
    }
}
