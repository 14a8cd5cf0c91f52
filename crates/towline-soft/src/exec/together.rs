//! What the lanes of a warp do together: each lane that a member mask names has to come, to whichever place in the code, unless it has
//! ended.

use towline_ptx::ir::Op;
use towline_ptx::ir::matrix::Matrix;
use towline_ptx::ir::op::{Atomic, Flag, Pred, Reg, Shuffle, Source, Together, Vote};
use towline_ptx::ptx::Position;

use super::access::Env;
use super::frame::{LANES, Lanes, lanes_of};
use super::step::Lane;
use super::warp::{State, Warp};
use super::{integer, matrix};
use crate::fault::Fault;
use crate::memory::Arena;

/// What each lane brings.
#[derive(Default)]
pub(crate) struct Brought {
    pub(crate) a: Lanes,
    pub(crate) b: Lanes,
    pub(crate) c: Lanes,
    pub(crate) flags: u32,
}

/// What each lane takes away.
pub(crate) struct Taken {
    pub(crate) values: Lanes,
    pub(crate) flags: u32,
}

/// Whether two instructions are the same operation.
pub(crate) fn matches(one: &Together, other: &Together) -> bool {
    match (one, other) {
        (Together::Shuffle { kind: a, .. }, Together::Shuffle { kind: b, .. }) => a == b,
        (Together::Vote { kind: a, .. }, Together::Vote { kind: b, .. }) => a == b,
        (Together::Reduce { op: a, ty: x, .. }, Together::Reduce { op: b, ty: y, .. }) => {
            a == b && x == y
        }
        (
            Together::Match {
                all: a, bits: x, ..
            },
            Together::Match {
                all: b, bits: y, ..
            },
        ) => a == b && x == y,
        (Together::Matrix { .. }, Together::Matrix { .. }) => one == other,
        (a, b) => std::mem::discriminant(a) == std::mem::discriminant(b),
    }
}

impl Warp {
    /// The operation that a split stands before, and its member mask.
    fn operation<'e>(
        &mut self,
        number: usize,
        env: &Env<'e>,
    ) -> Option<(&'e Together, u32, &'e [Lanes])> {
        let split = self.splits[number];
        let frame = self.frame(split.frame);
        let (_, code, constants) = env.launch.kernel.code(frame.function)?;
        let Op::Together { mask, what } = &code.get(split.pc as usize)?.op else {
            return None;
        };
        let members = frame.get(constants, *mask)[split.mask.trailing_zeros() as usize & 31];
        Some((what, members as u32, constants))
    }

    /// A split has come to such an operation: it waits, and if it is the last that was missing, all go on.
    pub(super) fn arrive_together(
        &mut self,
        number: usize,
        mask: Source,
        constants: &[Lanes],
        env: &mut Env<'_>,
    ) -> Result<(), Box<Fault>> {
        self.agree(number, mask, constants);
        self.splits[number].state = State::Together;
        self.meet(number, env)
    }

    /// Lets waiting lanes go on that wait for nobody any more. To be called when lanes have ended.
    pub(super) fn meet_all(&mut self, env: &mut Env<'_>) -> Result<(), Box<Fault>> {
        let mut number = 0;
        while number < self.splits.len() {
            if self.splits[number].state == State::Together {
                self.meet(number, env)?;
            }
            number += 1;
        }
        Ok(())
    }

    /// Carries out the operation that a split waits for, if every lane is there.
    fn meet(&mut self, number: usize, env: &mut Env<'_>) -> Result<(), Box<Fault>> {
        let Some((what, members, _)) = self.operation(number, env) else {
            return Ok(());
        };
        let mut group = Vec::new();
        let mut present = 0;
        for other in 0..self.splits.len() {
            if self.splits[other].state != State::Together {
                continue;
            }
            if let Some((theirs, their_members, _)) = self.operation(other, env)
                && their_members == members
                && matches(what, theirs)
            {
                present |= self.splits[other].mask;
                group.push(other);
            }
        }
        if members & self.live & !present != 0 {
            return Ok(());
        }
        if let Together::Matrix { what, scratch } = what {
            self.on_matrices(what, *scratch, present, &group, env)?;
        }
        let mut brought = Brought::default();
        for &other in &group {
            if let Some((theirs, _, constants)) = self.operation(other, env) {
                self.bring(other, theirs, constants, &mut brought);
            }
        }
        // Lanes outside of the mask have nothing to come for; what they get is undefined.
        let taken = carry_out(what, present, &brought);
        for other in group {
            if let Some((theirs, _, _)) = self.operation(other, env) {
                self.take_away(other, theirs, &taken);
            }
            let split = &mut self.splits[other];
            split.pc += 1;
            split.state = State::Ready;
        }
        Ok(())
    }

    /// Carries out an operation on matrices for splits that have met.
    fn on_matrices(
        &mut self,
        what: &Matrix,
        scratch: u32,
        present: u32,
        group: &[usize],
        env: &mut Env<'_>,
    ) -> Result<(), Box<Fault>> {
        let mut starts = [0; LANES];
        for &other in group {
            let split = self.splits[other];
            let start = self.frame(split.frame).local_base + scratch;
            for lane in lanes_of(split.mask) {
                starts[lane] = start as usize;
            }
        }
        let mut memory = LocalScratch {
            starts,
            locals: &mut self.locals,
            shared: &mut env.shared,
            arena: &env.launch.arena,
        };
        let done = matrix::carry_out(what, present, &mut memory);
        done.map_err(|(kind, lane)| {
            let has = |other: &&usize| self.splits[**other].mask >> lane & 1 != 0;
            let number = group.iter().find(has).or(group.first());
            let split = self.splits[number.copied().unwrap_or(0)];
            let function = self.frame(split.frame).function;
            let code = env.launch.kernel.code(function);
            let at = code.and_then(|(_, code, _)| code.get(split.pc as usize));
            let at = at.map_or(Position { line: 0, column: 0 }, |one| one.at);
            self.fault((kind, Lane::Number(lane)), split, at, env)
        })
    }

    fn bring(&mut self, number: usize, what: &Together, constants: &[Lanes], to: &mut Brought) {
        let split = self.splits[number];
        let frame = self.frame(split.frame);
        let copy = |source: Source, place: &mut Lanes| {
            let values = frame.get(constants, source);
            for lane in lanes_of(split.mask) {
                place[lane] = values[lane];
            }
        };
        match *what {
            Together::Match { a, .. } | Together::Reduce { a, .. } => copy(a, &mut to.a),
            Together::Shuffle { a, b, c, .. } => {
                copy(a, &mut to.a);
                copy(b, &mut to.b);
                copy(c, &mut to.c);
            }
            Together::Vote { a, .. } => to.flags |= frame.flag(a) & split.mask,
            Together::Elect { .. } | Together::Matrix { .. } | Together::Wait => {}
        }
    }

    fn take_away(&mut self, number: usize, what: &Together, taken: &Taken) {
        let split = self.splits[number];
        let frame = self.frame(split.frame);
        let (d, p) = results(what);
        if let Some(d) = d {
            frame.set(d, split.mask, &taken.values);
        }
        if let Some(p) = p {
            frame.set_flag(p, split.mask, taken.flags);
        }
    }
}

/// The scratch of lanes, in local memory.
struct LocalScratch<'w> {
    starts: [usize; LANES],
    locals: &'w mut [Vec<u8>],
    shared: &'w mut [u8],
    arena: &'w Arena,
}

impl matrix::Memory for LocalScratch<'_> {
    fn scratch(&mut self, lane: usize) -> Option<&mut matrix::Scratch> {
        let local = self.locals.get_mut(lane)?;
        local.get_mut(self.starts[lane]..)?.first_chunk_mut()
    }

    fn shared(&mut self) -> &mut [u8] {
        self.shared
    }

    fn arena(&self) -> &Arena {
        self.arena
    }
}

/// Where a lane finds what it gets.
pub(crate) fn results(what: &Together) -> (Option<Reg>, Option<Pred>) {
    match *what {
        Together::Elect { d, p } | Together::Shuffle { d, p, .. } | Together::Vote { d, p, .. } => {
            (d, p)
        }
        Together::Match { d, p, .. } => (Some(d), p),
        Together::Reduce { d, .. } => (Some(d), None),
        Together::Matrix { .. } | Together::Wait => (None, None),
    }
}

/// Computes the outcome for the lanes that are there.
pub(crate) fn carry_out(what: &Together, present: u32, brought: &Brought) -> Taken {
    let mut taken = Taken {
        values: [0; LANES],
        flags: 0,
    };
    match what {
        Together::Elect { .. } => {
            let leader = present.trailing_zeros() & 31;
            taken.values = [leader.into(); LANES];
            taken.flags = 1 << leader;
        }
        Together::Match { all, bits, .. } => {
            let ones = if *bits == 64 {
                u64::MAX
            } else {
                (1 << bits) - 1
            };
            let value = |lane: usize| brought.a[lane] & ones;
            for lane in lanes_of(present) {
                let same = lanes_of(present).filter(|other| value(*other) == value(lane));
                let same = same.fold(0_u32, |mask, other| mask | 1 << other);
                if !all {
                    taken.values[lane] = same.into();
                } else if same == present {
                    taken.values[lane] = present.into();
                    taken.flags |= 1 << lane;
                }
            }
        }
        Together::Reduce { op, ty, .. } => {
            let mut lanes = lanes_of(present).map(|lane| brought.a[lane]);
            let first = lanes.next().unwrap_or(0);
            let all = lanes.fold(first, |sum, value| combined(*op, *ty, sum, value));
            taken.values = [all & 0xffff_ffff; LANES];
        }
        Together::Shuffle { kind, .. } => {
            // Whoever is not there does not look at what it gets, and to ask each lane takes longer.
            for (lane, value) in taken.values.iter_mut().enumerate() {
                let (b, c) = (brought.b[lane] as u32, brought.c[lane] as u32);
                let (source, in_range) = shuffled(*kind, lane as u32, b, c);
                *value = brought.a[source as usize & 31] & 0xffff_ffff;
                taken.flags |= u32::from(in_range) << lane;
            }
        }
        Together::Vote { kind, .. } => {
            let yes = brought.flags & present;
            let verdict = match kind {
                Vote::All => yes == present,
                Vote::Any => yes != 0,
                Vote::Uniform => yes == present || yes == 0,
                Vote::Ballot => false,
            };
            taken.values = [yes.into(); LANES];
            taken.flags = if verdict { u32::MAX } else { 0 };
        }
        // Its results lie in memory.
        Together::Matrix { .. } | Together::Wait => {}
    }
    taken
}

fn combined(op: Atomic, ty: towline_ptx::ptx::Type, a: u64, b: u64) -> u64 {
    integer::atomic(op, ty, a, b, 0).unwrap_or(0)
}

/// Where each lane reads in a shuffle, and whether that is in range.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sources {
    pub(crate) lanes: [u8; LANES],
    pub(crate) in_range: u32,
}

/// The same for all lanes where their distances and limits are.
pub(crate) fn sources(kind: Shuffle, b: u32, c: u32) -> Sources {
    let mut sources = Sources {
        lanes: [0; LANES],
        in_range: 0,
    };
    for (lane, place) in (0..).zip(&mut sources.lanes) {
        let (source, in_range) = shuffled(kind, lane, b, c);
        *place = source as u8;
        sources.in_range |= u32::from(in_range) << lane;
    }
    sources
}

/// The lane that a shuffle reads, and whether it is in range; otherwise its own. PTX ISA, "shfl.sync".
#[inline(always)]
fn shuffled(kind: Shuffle, lane: u32, b: u32, c: u32) -> (u32, bool) {
    let (distance, clamp, segment) = (b & 31, c & 31, c >> 8 & 31);
    let most = lane & segment | clamp & !segment;
    let least = lane & segment;
    let (source, in_range) = match kind {
        Shuffle::Up => {
            let source = lane.wrapping_sub(distance);
            (source, source as i32 >= most as i32)
        }
        Shuffle::Down => (lane + distance, lane + distance <= most),
        Shuffle::Bfly => (lane ^ distance, lane ^ distance <= most),
        Shuffle::Idx => {
            let source = least | distance & !segment;
            (source, source <= most)
        }
    };
    if in_range {
        (source, true)
    } else {
        (lane, false)
    }
}

/// The lanes for which a flag of a split holds.
pub(super) fn answers(warp: &mut Warp, number: usize, flag: Flag) -> u32 {
    let split = warp.splits[number];
    warp.frame(split.frame).flag(flag) & split.mask
}

#[cfg(test)]
mod tests {
    use super::*;
    use towline_ptx::ir::op::Reg;
    use towline_ptx::ptx::Type;

    #[test]
    fn shuffles_stay_in_their_segment() {
        // Segments of 8 lanes: clamp 7 or 0, mask 0x18.
        let whole = 0x1f;
        let eight = 0x1807;
        assert_eq!(shuffled(Shuffle::Down, 30, 1, whole), (31, true));
        assert_eq!(shuffled(Shuffle::Down, 31, 1, whole), (31, false));
        assert_eq!(shuffled(Shuffle::Down, 6, 2, eight), (6, false));
        assert_eq!(shuffled(Shuffle::Up, 9, 1, 0x1800), (8, true));
        assert_eq!(shuffled(Shuffle::Up, 8, 1, 0x1800), (8, false));
        assert_eq!(shuffled(Shuffle::Up, 0, 1, 0), (0, false));
        assert_eq!(shuffled(Shuffle::Bfly, 5, 16, whole), (21, true));
        assert_eq!(shuffled(Shuffle::Idx, 9, 3, 0x181f), (11, true));
        assert_eq!(shuffled(Shuffle::Idx, 3, 35, whole), (3, true));
    }

    fn outcome(what: &Together, present: u32, value: impl Fn(usize) -> u64, flags: u32) -> Taken {
        let brought = Brought {
            a: std::array::from_fn(value),
            b: [0; LANES],
            c: [0; LANES],
            flags,
        };
        carry_out(what, present, &brought)
    }

    #[test]
    fn votes_count_only_who_takes_part() {
        let vote = |kind| Together::Vote {
            kind,
            d: None,
            p: None,
            a: Flag::Known(true),
        };
        let none = |_| 0;
        assert_eq!(outcome(&vote(Vote::All), 0xf0, none, 0xff).flags, u32::MAX);
        assert_eq!(outcome(&vote(Vote::Any), 0xf0, none, 0x0f).flags, 0);
        assert_eq!(
            outcome(&vote(Vote::Uniform), 0xf0, none, 0x0f).flags,
            u32::MAX
        );
        assert_eq!(
            outcome(&vote(Vote::Ballot), 0xf0, none, 0x3c).values[0],
            0x30
        );
    }

    #[test]
    fn matches_and_sums_are_those_of_the_present() {
        let matching = |all| Together::Match {
            all,
            bits: 32,
            d: Reg(0),
            p: None,
            a: Source::Constant(0),
        };
        let any = outcome(
            &matching(false),
            0xff,
            |lane| (lane % 2) as u64 | 1 << 40,
            0,
        );
        assert_eq!((any.values[0], any.values[1]), (0x55, 0xaa));
        let all = outcome(&matching(true), 0xff, |lane| u64::from(lane == 40), 0);
        assert_eq!((all.values[3], all.flags), (0xff, 0xff));
        let differ = outcome(&matching(true), 0xff, |lane| lane as u64, 0);
        assert_eq!((differ.values[3], differ.flags), (0, 0));
        let sum = Together::Reduce {
            op: Atomic::Add,
            ty: Type::U32,
            d: Reg(0),
            a: Source::Constant(0),
        };
        assert_eq!(outcome(&sum, 0b1110, |lane| lane as u64, 0).values[9], 6);
    }
}
