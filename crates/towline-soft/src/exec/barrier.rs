//! Barriers of a block. They count threads, so lanes of a warp may come apart from each other; threads that have ended are not waited for.

use towline_ptx::ir::Op;
use towline_ptx::ir::op::{Barrier, Logic};

use super::access::Env;
use super::frame::LANES;
use super::together::answers;
use super::warp::{State, Warp};

/// Barriers that instructions name by number.
pub(crate) const NUMBERED: usize = 16;
/// Barriers of a block: those, and that of its cluster.
pub(crate) const BARRIERS: usize = NUMBERED + 1;

/// Whether a barrier has this number that an instruction of this kind may name.
pub(crate) fn is_known(kind: Barrier, id: usize) -> bool {
    match kind {
        Barrier::ClusterArrive | Barrier::ClusterWait => id < BARRIERS,
        _ => id < NUMBERED,
    }
}

/// One of them.
#[derive(Debug, Default, Clone)]
pub(crate) struct Meeting {
    /// Lanes of each warp that have come.
    arrived: Vec<u32>,
    /// How many threads must come; all that live when it is not said.
    threads: Option<u64>,
    /// What those said that have come.
    yes: u64,
    no: bool,
}

impl Meeting {
    /// Lanes of a warp come, and say yes or no where they are asked. A warp counts as a whole once all its lanes are there.
    pub(crate) fn arrive(
        &mut self,
        warps: usize,
        warp: usize,
        mask: u32,
        yes: Option<u32>,
        threads: Option<u64>,
    ) {
        self.arrived.resize(warps, 0);
        if let Some(place) = self.arrived.get_mut(warp) {
            *place |= mask;
        }
        self.threads = threads;
        if let Some(yes) = yes {
            self.yes += u64::from(yes.count_ones());
            self.no |= yes != mask;
        }
    }

    /// Of lanes of a warp those that have come.
    pub(crate) fn come(&self, warp: usize, mask: u32) -> u32 {
        self.arrived.get(warp).map_or(0, |arrived| arrived & mask)
    }

    /// Whether somebody has come, and nobody is missing of those that live.
    pub(crate) fn is_complete(&self, live: impl Iterator<Item = u32>) -> bool {
        if self.arrived.iter().all(|mask| *mask == 0) {
            return false;
        }
        let mut lanes = self.arrived.iter().zip(live);
        match self.threads {
            None => lanes.all(|(arrived, live)| live & !arrived == 0),
            Some(wanted) => {
                let come = lanes.map(|(arrived, live)| match live & !arrived {
                    _ if *arrived == 0 => 0,
                    0 => LANES as u64,
                    _ => u64::from(arrived.count_ones()),
                });
                come.sum::<u64>() >= wanted
            }
        }
    }

    /// Whether it holds for all, or any.
    pub(crate) fn holds(&self, op: Logic) -> bool {
        match op {
            Logic::And => !self.no,
            _ => self.yes > 0,
        }
    }

    /// For how many it holds.
    pub(crate) fn count(&self) -> u64 {
        self.yes
    }

    /// The next one at the same barrier.
    pub(crate) fn emptied(mut self) -> Self {
        self.arrived.fill(0);
        Self {
            arrived: self.arrived,
            ..Self::default()
        }
    }

    /// Lanes of a split come.
    pub(super) fn arrive_split(
        &mut self,
        warps: usize,
        warp: &mut Warp,
        number: usize,
        kind: Barrier,
        threads: Option<u64>,
    ) {
        let mask = warp.splits[number].mask;
        let yes = match kind {
            Barrier::Reduce { a, .. } | Barrier::Count { a, .. } => Some(answers(warp, number, a)),
            _ => None,
        };
        self.arrive(warps, warp.number as usize, mask, yes, threads);
    }

    /// Lets those who wait go on, when all have come.
    pub(super) fn release(&mut self, id: usize, warps: &mut [Warp], env: &Env<'_>) -> bool {
        if !self.is_complete(warps.iter().map(|warp| warp.live)) {
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
        *self = std::mem::take(self).emptied();
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
                let holds = if self.holds(op) { u32::MAX } else { 0 };
                frame.set_flag(d, split.mask, holds);
            }
            Barrier::Count { d, .. } => frame.set(d, split.mask, &[self.yes; LANES]),
            _ => {}
        }
    }
}
