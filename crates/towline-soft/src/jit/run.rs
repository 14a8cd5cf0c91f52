//! Blocks of threads that machine code runs: who goes on, who waits for whom.

mod exchange;
mod quads;

use std::sync::atomic::Ordering;
use std::time::Instant;

use towline_ptx::ir::Space;
use towline_ptx::ir::op::{Barrier, Op, Together};
use towline_ptx::ptx::Position;

use super::DONE;
use super::code::Compiled;
use super::emit::{Stop, Wait, entry_of, op_of};
use super::flat::Step;
use super::head::{EXCHANGED, Head, SIZES, Slot, UNIFORMS, Uniform};
use super::helpers::nowhere;
use super::shapes::QUAD;
use crate::exec::Launch;
use crate::exec::access::{outside, slice_mut};
use crate::exec::barrier::{BARRIERS, Meeting, NUMBERED, is_known};
use crate::exec::frame::{LANES, lanes_of};
use crate::exec::grid::{Pause, Work};
use crate::exec::together::{Brought, carry_out, matches};
use crate::fault::{Fault, FaultKind};
use crate::image::PARAM_WINDOW;
use crate::memory::Span;
use crate::texture::Unit;

/// Rounds of a block through its barriers before others have their turn.
const ROUNDS: u32 = 1000;

/// How often lanes of a warp meet, and go on, before other warps have their turn.
const MEETINGS: u32 = 16;

/// Of so many looks at whether the launch is over, one is at the clock.
const CLOCK_EVERY: u32 = 8;

/// A warp.
#[derive(Debug, Clone, Copy, Default)]
struct Warp {
    /// Lanes that have not ended.
    live: u32,
    /// Lanes that can go on.
    ready: u32,
    /// Lanes that wait for others of the warp.
    together: u32,
    /// Lanes that do not go together with those beside them.
    apart: u32,
    /// It has not run yet.
    is_new: bool,
}

/// A barrier, and who waits there.
#[derive(Debug, Default)]
struct Gate {
    meeting: Meeting,
    /// Lanes of each warp.
    waiting: Vec<u32>,
    /// Some of them want to know the verdict.
    asked: bool,
}

/// Bytes that a block takes.
pub(crate) fn block_bytes(launch: &Launch, code: &Compiled) -> usize {
    let flat = &code.flat;
    let threads = (launch.threads_per_block() as usize).next_multiple_of(LANES);
    let thread =
        code.outline.frame_words * 8 + (flat.parameter_bytes + flat.local_bytes) as usize + 64;
    let sites = code.outline.sites.len() * (size_of::<Slot>() + size_of::<Option<Span<'_>>>());
    threads * thread + sites + launch.shared_bytes as usize
}

/// A block. The head comes first: machine code is given its address.
#[repr(C)]
pub(crate) struct Threads<'a> {
    pub(super) head: Head,
    pub(super) launch: &'a Launch,
    pub(super) code: &'a Compiled,
    pub(super) unit: Unit<'a>,
    block: [u32; 3],
    warps: Vec<Warp>,
    gates: [Gate; BARRIERS],
    /// Barriers that somebody has come to.
    used: u32,
    states: Vec<u32>,
    frames: Vec<u64>,
    arguments: Vec<u8>,
    locals: Vec<u8>,
    shared: Vec<u8>,
    slots: Vec<Slot>,
    spans: Vec<Option<Span<'a>>>,
    constants: Vec<u64>,
    coordinates: Vec<[u16; 4]>,
    /// The launch's, with zeros for what it lacks: machine code reads all that the kernel declares.
    parameters: Vec<u8>,
    changes: u64,
    /// Lanes beside each other lie in one row of the block, so that they can go together.
    aligned: bool,
    /// The warp that runs.
    warp: usize,
    fault: Option<Box<Fault>>,
    rounds: u32,
    /// Counts the questions whether the launch is over.
    asked: u32,
}

impl<'a> Threads<'a> {
    fn new(launch: &'a Launch, code: &'a Compiled) -> Self {
        let threads = launch.threads_per_block() as usize;
        let warps = threads.div_ceil(LANES);
        let flat = &code.flat;
        let lanes = warps * LANES;
        let [argument_bytes, local_bytes] = flat.shares();
        let coordinates = (0..lanes as u32).map(|thread| {
            let [x, y, z] = launch.thread_at(thread);
            [x as u16, y as u16, z as u16, 0]
        });
        let constants = flat.constants.iter().zip(&flat.origins);
        let constants = constants.map(|(constant, origin)| match (constant, origin) {
            (towline_ptx::ir::Constant::Bits(bits), _) => *bits,
            (_, Some((id, number))) => {
                let found = launch.kernel.code(*id);
                found.map_or(0, |(_, _, values)| {
                    values.get(*number as usize).map_or(0, |value| value[0])
                })
            }
            _ => 0,
        });
        let mut uniform = [0; UNIFORMS];
        let sides = [
            (Uniform::ThreadsX, launch.block[0]),
            (Uniform::ThreadsY, launch.block[1]),
            (Uniform::ThreadsZ, launch.block[2]),
            (Uniform::GridX, launch.grid[0]),
            (Uniform::GridY, launch.grid[1]),
            (Uniform::GridZ, launch.grid[2]),
            (Uniform::DynamicShared, launch.dynamic_bytes),
            (Uniform::TotalShared, launch.shared_bytes),
        ];
        for (which, value) in sides {
            uniform[which as usize] = value.into();
        }
        uniform[Uniform::Grid as usize] = launch.number;
        uniform[Uniform::HostThreads as usize] = launch.host_threads as u64;
        uniform[Uniform::Warps as usize] = warps as u64;
        uniform[Uniform::WorkspaceHigh as usize] = launch.workspace >> 32;
        uniform[Uniform::WorkspaceLow as usize] = launch.workspace & 0xffff_ffff;
        let mut shared_counts = [0; SIZES];
        for (size, count) in shared_counts.iter_mut().enumerate() {
            *count = u64::from(launch.shared_bytes) >> size;
        }
        let mut parameters = launch.parameters.clone();
        parameters.resize(parameters.len().max(flat.kernel_bytes as usize), 0);
        let null = std::ptr::null_mut();
        Self {
            head: Head {
                parameters: parameters.as_ptr(),
                shared: null,
                slots: null.cast(),
                constants: null.cast(),
                threads: null.cast(),
                states: null.cast(),
                frames: null.cast(),
                arguments: null,
                locals: null,
                state: 0,
                left: 0,
                parted: 0,
                answer: 0,
                exchange: [0; EXCHANGED],
                uniform,
                shared_counts,
            },
            launch,
            code,
            unit: Unit::new(&launch.arena, &launch.textures),
            block: [0; 3],
            warps: vec![Warp::default(); warps],
            gates: std::array::from_fn(|_| Gate {
                waiting: vec![0; warps],
                ..Gate::default()
            }),
            used: 0,
            states: vec![0; lanes],
            frames: vec![0; lanes * code.outline.frame_words],
            arguments: vec![0; lanes * argument_bytes],
            locals: vec![0; lanes * local_bytes],
            shared: vec![0; launch.shared_bytes as usize],
            slots: vec![Slot::default(); code.outline.sites.len()],
            spans: vec![None; code.outline.sites.len()],
            constants: constants.collect(),
            coordinates: coordinates.collect(),
            parameters,
            changes: launch.arena.changes(),
            aligned: (launch.block[0] as usize).is_multiple_of(QUAD),
            warp: 0,
            fault: None,
            rounds: 0,
            asked: 0,
        }
    }

    /// Makes it the block of this number, at the start of the kernel.
    fn begin(&mut self, number: u64) {
        let launch = self.launch;
        self.block = launch.block_at(number);
        for (which, side) in [Uniform::BlockX, Uniform::BlockY, Uniform::BlockZ]
            .into_iter()
            .zip(self.block)
        {
            self.head.uniform[which as usize] = side.into();
        }
        let mut threads = launch.threads_per_block();
        for warp in &mut self.warps {
            let live = match threads {
                32.. => u32::MAX,
                few => (1 << few) - 1,
            };
            threads = threads.saturating_sub(32);
            *warp = Warp {
                live,
                ready: live,
                together: 0,
                apart: if self.aligned { 0 } else { u32::MAX },
                is_new: true,
            };
        }
        let used = std::mem::take(&mut self.used);
        for id in lanes_of(used) {
            let gate = &mut self.gates[id];
            gate.meeting = std::mem::take(&mut gate.meeting).emptied();
            gate.waiting.fill(0);
            gate.asked = false;
        }
        self.states.fill(0);
        self.arguments.fill(0);
        self.locals.fill(0);
        self.shared.fill(0);
    }

    /// Forgets where accesses went when allocations have come or gone.
    fn look_again(&mut self) {
        let changes = self.launch.arena.changes();
        if changes != self.changes {
            self.changes = changes;
            self.unit.look_again();
            self.slots.fill(Slot::default());
            self.spans.fill(None);
        }
    }

    /// Runs the lanes of a warp that are ready, and sorts them by what they stopped for.
    fn run_warp(&mut self, number: usize, turned: &mut bool) -> Result<(), Box<Fault>> {
        let warp = self.warps[number];
        let code = self.code;
        self.warp = number;
        let lane = number * LANES;
        let words = code.outline.frame_words;
        let head = &mut self.head;
        head.uniform[Uniform::Warp as usize] = number as u64;
        head.parameters = self.parameters.as_ptr();
        head.shared = self.shared.as_mut_ptr();
        head.slots = self.slots.as_mut_ptr();
        head.constants = self.constants.as_ptr();
        head.threads = self.coordinates.as_ptr().wrapping_add(lane);
        head.states = self.states.as_mut_ptr().wrapping_add(lane);
        head.frames = self.frames.as_mut_ptr().wrapping_add(lane * words);
        let [argument_share, local_share] = code.flat.shares();
        head.arguments = self
            .arguments
            .as_mut_ptr()
            .wrapping_add(lane * argument_share);
        head.locals = self.locals.as_mut_ptr().wrapping_add(lane * local_share);
        // Where all lanes are, at the start or once they have met.
        let mut met = warp.is_new.then_some(0);
        self.warps[number].is_new = false;
        for _ in 0..MEETINGS {
            let mut rest = warp.ready;
            self.head.left = 0;
            while rest != 0 {
                let (state, group) = match met {
                    Some(state) => (state, rest),
                    None => self.alike(number, rest),
                };
                rest &= !group;
                self.run_lanes(number, state, group)?;
                if rest == 0 && std::mem::take(&mut self.head.parted) != 0 {
                    (met, rest) = (None, self.parted(number, warp.ready));
                }
            }
            if self.head.left == 0 && warp.ready == warp.live {
                let warp = &mut self.warps[number];
                (warp.live, warp.ready) = (0, 0);
                self.release_all();
                return Ok(());
            }
            if warp.ready == warp.live {
                met = self.meet_at_once(number);
            }
            if met.is_none() {
                self.sort_all(number, turned);
                return Ok(());
            }
            if self.is_over() {
                break;
            }
        }
        Ok(())
    }

    /// Whether the launch is cancelled, or has no time left, by a look at the clock now and then.
    fn is_over(&mut self) -> bool {
        self.asked = self.asked.wrapping_add(1);
        let looks = self.asked.is_multiple_of(CLOCK_EVERY);
        let deadline = self.launch.deadline.filter(|_| looks);
        self.launch.cancelled.load(Ordering::Relaxed)
            || deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Runs lanes of a warp that go on from one place until each has stopped.
    fn run_lanes(&mut self, number: usize, state: u32, group: u32) -> Result<(), Box<Fault>> {
        let code = self.code;
        let four = self.by_fours(number, state, group);
        if four != 0 {
            self.head.state = entry_of(state, true);
            let this: *mut Self = self;
            code.run(this.cast(), four);
            if let Some(fault) = self.fault.take() {
                return Err(fault);
            }
        }
        let alone = group & !four;
        if alone != 0 {
            self.go_apart(number, alone);
            self.head.state = entry_of(state, false);
            let this: *mut Self = self;
            code.run(this.cast(), alone);
            if let Some(fault) = self.fault.take() {
                return Err(fault);
            }
        }
        Ok(())
    }

    /// The lanes of those given that have stopped where the first of them has.
    #[inline(always)]
    fn alike(&self, number: usize, lanes: u32) -> (u32, u32) {
        let start = number * LANES;
        let states = self.states.get(start..).and_then(<[u32]>::first_chunk);
        let states: &[u32; LANES] = states.unwrap_or(&[DONE; LANES]);
        let state = states[lanes.trailing_zeros() as usize & 31];
        let differs = |all, other: &u32| all | (*other ^ state);
        let group = match states.iter().fold(0, differs) {
            0 => lanes,
            _ => {
                let same = lanes_of(lanes).filter(|lane| states[*lane] == state);
                same.fold(0, |mask, lane| mask | 1 << lane)
            }
        };
        (state, group)
    }

    /// Sorts the lanes that have run by what they stopped for.
    fn sort_all(&mut self, number: usize, turned: &mut bool) {
        let live = self.warps[number].live;
        let mut rest = self.warps[number].ready;
        while rest != 0 {
            let (state, group) = self.alike(number, rest);
            rest &= !group;
            self.sort(number, state, group, turned);
        }
        if self.warps[number].live != live {
            self.release_all();
        }
        if self.warps[number].together != 0 {
            self.meet(number);
        }
    }

    /// Lanes of a warp have stopped at one place.
    fn sort(&mut self, number: usize, state: u32, group: u32, turned: &mut bool) {
        let code = self.code;
        let warp = &mut self.warps[number];
        if state == DONE {
            warp.ready &= !group;
            warp.live &= !group;
            return;
        }
        let Some(stop) = code.outline.stops.get(state as usize - 1) else {
            return;
        };
        match stop.wait {
            Wait::Turn => *turned = true,
            Wait::Together => {
                warp.ready &= !group;
                warp.together |= group;
            }
            Wait::All(id) => {
                warp.ready &= !group;
                self.arrive(number, id, group, None, None, true);
            }
            Wait::Barrier => {
                let step = code.flat.steps.get(stop.step as usize);
                let Some(Op::Barrier { kind, threads, .. }) = step.and_then(op_of) else {
                    return;
                };
                warp.ready &= !group;
                self.arrive_by_values(number, *kind, threads.is_some(), group);
            }
        }
    }

    /// Lanes come to barriers that registers name.
    fn arrive_by_values(&mut self, number: usize, kind: Barrier, counted: bool, group: u32) {
        if matches!(kind, Barrier::ClusterWait) {
            // Lanes that have arrived wait for the others; the rest were released before.
            let first = group.trailing_zeros() as usize & 31;
            let id = self.word(number, first, 0) as usize;
            let Some(gate) = self.gates.get_mut(id) else {
                return;
            };
            let waits = gate.meeting.come(number, group);
            gate.waiting[number] |= waits;
            self.warps[number].ready |= group & !waits;
            return;
        }
        let mut rest = group;
        while rest != 0 {
            let first = rest.trailing_zeros() as usize;
            let wanted = (self.word(number, first, 0), self.word(number, first, 1));
            let alike = lanes_of(rest).filter(|lane| {
                let id = self.word(number, *lane, 0);
                id == wanted.0 && (!counted || self.word(number, *lane, 1) == wanted.1)
            });
            let alike = alike.fold(0, |mask, lane| mask | 1 << lane);
            rest &= !alike;
            let asks = matches!(kind, Barrier::Reduce { .. } | Barrier::Count { .. });
            let yes = lanes_of(alike).filter(|lane| self.word(number, *lane, 2) != 0);
            let yes = asks.then(|| yes.fold(0, |mask, lane| mask | 1 << lane));
            let waits = !matches!(kind, Barrier::Arrive | Barrier::ClusterArrive);
            let threads = counted.then_some(wanted.1);
            if !is_known(kind, wanted.0 as u32 as usize) {
                return self.refuse_barrier(number, wanted.0 as u32, alike);
            }
            self.arrive(number, wanted.0 as u32, alike, yes, threads, waits);
            if !waits {
                self.warps[number].ready |= alike;
            }
        }
    }

    /// Lanes have named a barrier that there is not.
    fn refuse_barrier(&mut self, number: usize, id: u32, mask: u32) {
        let kind = FaultKind::Resources(format!("barrier {id}, of {NUMBERED}"));
        let lane = mask.trailing_zeros() as usize & 31;
        let step = self.step_of(number, lane);
        self.fault = Some(Box::new(self.blame(kind, step, lane)));
    }

    fn arrive(
        &mut self,
        number: usize,
        id: u32,
        mask: u32,
        yes: Option<u32>,
        threads: Option<u64>,
        waits: bool,
    ) {
        let warps = self.warps.len();
        let Some(gate) = self.gates.get_mut(id as usize) else {
            return self.refuse_barrier(number, id, mask);
        };
        self.used |= 1 << id;
        gate.meeting.arrive(warps, number, mask, yes, threads);
        if waits {
            gate.waiting[number] |= mask;
            gate.asked |= yes.is_some();
        }
        self.release(id as usize);
    }

    /// Where a lane of a warp has stopped.
    fn stop_of(&self, number: usize, lane: usize) -> Option<&'a Stop> {
        let state = self.states.get(number * LANES + lane)?;
        let stops = &self.code.outline.stops;
        stops.get((*state as usize).wrapping_sub(1))
    }

    fn step_of(&self, number: usize, lane: usize) -> u32 {
        self.stop_of(number, lane).map_or(0, |stop| stop.step)
    }

    /// Lets go on who waits for nobody any more. To be called when lanes have ended.
    fn release_all(&mut self) {
        for id in lanes_of(self.used) {
            self.release(id);
        }
    }

    /// Lets those go on who wait at a barrier, when all have come.
    fn release(&mut self, id: usize) {
        let live = self.warps.iter().map(|warp| warp.live);
        let gate = &mut self.gates[id];
        if !gate.meeting.is_complete(live) {
            return;
        }
        self.used &= !(1 << id);
        let meeting = std::mem::take(&mut gate.meeting);
        let asked = std::mem::take(&mut gate.asked);
        for number in 0..self.warps.len() {
            let lanes = std::mem::take(&mut self.gates[id].waiting[number]);
            self.warps[number].ready |= lanes;
            if !asked {
                continue;
            }
            for lane in lanes_of(lanes) {
                let step = self.step_of(number, lane) as usize;
                let op = self.code.flat.steps.get(step).and_then(op_of);
                match op {
                    Some(Op::Barrier {
                        kind: Barrier::Reduce { op, .. },
                        ..
                    }) => {
                        let holds = meeting.holds(*op);
                        self.set_word(number, lane, 1, holds.into());
                    }
                    Some(Op::Barrier {
                        kind: Barrier::Count { .. },
                        ..
                    }) => self.set_word(number, lane, 0, meeting.count()),
                    _ => {}
                }
            }
        }
        self.gates[id].meeting = meeting.emptied();
    }

    fn together_of(&self, number: usize, lane: usize) -> Option<&'a Together> {
        let step = self.step_of(number, lane) as usize;
        match op_of(self.code.flat.steps.get(step)?)? {
            Op::Together { what, .. } => Some(what),
            _ => None,
        }
    }

    /// Carries out what lanes of a warp do together, where all are there.
    fn meet(&mut self, number: usize) {
        let mut rest = self.warps[number].together;
        while rest != 0 {
            let first = rest.trailing_zeros() as usize;
            let Some(what) = self.together_of(number, first) else {
                return;
            };
            let members = self.word(number, first, 3) as u32;
            let state = self.states[number * LANES + first];
            let alike = lanes_of(rest).filter(|lane| {
                let same = self.states[number * LANES + lane] == state;
                self.word(number, *lane, 3) as u32 == members
                    && (same
                        || self
                            .together_of(number, *lane)
                            .is_some_and(|other| matches(what, other)))
            });
            let present = alike.fold(0, |mask, lane| mask | 1 << lane);
            rest &= !present;
            if members & self.warps[number].live & !present != 0 {
                continue;
            }
            if let Together::Matrix { what, scratch } = what {
                self.on_matrices(number, self.step_of(number, first), what, *scratch, present);
            }
            let mut brought = Brought::default();
            let votes = matches!(what, Together::Vote { .. });
            for lane in lanes_of(present) {
                brought.a[lane] = self.word(number, lane, 0);
                if votes {
                    brought.flags |= u32::from(brought.a[lane] != 0) << lane;
                } else if matches!(what, Together::Shuffle { .. }) {
                    brought.b[lane] = self.word(number, lane, 1);
                    brought.c[lane] = self.word(number, lane, 2);
                }
            }
            let taken = carry_out(what, present, &brought);
            for lane in lanes_of(present) {
                self.set_word(number, lane, 0, taken.values[lane]);
                self.set_word(number, lane, 1, (taken.flags >> lane & 1).into());
            }
            let warp = &mut self.warps[number];
            warp.together &= !present;
            warp.ready |= present;
        }
    }

    fn blame(&self, kind: FaultKind, step: u32, lane: usize) -> Fault {
        let step: Option<&Step> = self.code.flat.steps.get(step as usize);
        let program = &self.launch.kernel.image.program;
        let function = step.and_then(|step| program.function(step.function));
        Fault {
            kind,
            function: function.map(|one| one.name.clone()).unwrap_or_default(),
            at: step.map_or(Position { line: 0, column: 0 }, |step| step.at),
            block: self.block,
            thread: self.launch.thread_at((self.warp * LANES + lane) as u32),
        }
    }

    /// A thread has failed: to be told when the code has come back.
    pub(super) fn fail(&mut self, kind: FaultKind, step: u32, lane: usize) {
        let fault = self.blame(kind, step, lane);
        self.fault.get_or_insert(Box::new(fault));
    }

    /// The span of an access to global memory.
    pub(super) fn global(
        &mut self,
        site: usize,
        address: u64,
        bytes: u64,
        write: bool,
    ) -> Result<Span<'a>, FaultKind> {
        if let Some(Some(span)) = self.spans.get(site)
            && span.holds(address, bytes)
        {
            return Ok(*span);
        }
        match self.launch.arena.range(address, bytes) {
            Some(span) => {
                if let Some(place) = self.spans.get_mut(site) {
                    *place = Some(span);
                }
                Ok(span)
            }
            None => Err(nowhere(self, address, bytes, write)),
        }
    }

    /// Has machine code find an access where it was found now, with all that are checked with it.
    pub(super) fn remember(&mut self, site: usize, bytes: u64, extent: u64) {
        if let Some(Some(span)) = self.spans.get(site) {
            let (base, len) = span.extent();
            if !base.is_multiple_of(bytes.max(1)) {
                // Alignment is told by the distance from the base.
                return;
            }
            let behind_first = len.checked_sub(extent);
            let count = behind_first.map_or(0, |rest| rest / bytes.max(1) + 1);
            self.set_slot(
                site,
                Slot {
                    base,
                    count,
                    shift: 0,
                },
            );
        }
    }

    pub(super) fn set_slot(&mut self, site: usize, slot: Slot) {
        if let Some(place) = self.slots.get_mut(site) {
            *place = slot;
        }
    }

    pub(super) fn shared_len(&self) -> u64 {
        self.launch.shared_bytes.into()
    }

    pub(super) fn shared_part(&mut self, at: u64, bytes: u64) -> Option<&mut [u8]> {
        slice_mut(&mut self.shared, at, bytes)
    }

    /// The host's address of a part of a space that is not global memory.
    pub(super) fn part(
        &mut self,
        step: &Step,
        lane: usize,
        (space, at): (Space, u64),
        bytes: u64,
        write: bool,
    ) -> Result<u64, FaultKind> {
        let lost = || outside(space, at, bytes, write);
        let thread = self.warp * LANES + lane;
        let lanes = self.states.len().max(1);
        let found = match space {
            Space::Shared => self.shared_part(at, bytes),
            Space::Local => {
                let share = self.locals.len() / lanes;
                let mine = self.locals.get_mut(thread * share..);
                let len = self.code.flat.local_bytes as usize;
                let mine = mine.and_then(|mine| mine.get_mut(..len));
                mine.and_then(|mine| slice_mut(mine, at, bytes))
            }
            Space::Param => {
                let kernel = &self.parameters;
                let generic = at.checked_sub(PARAM_WINDOW);
                let from = generic.unwrap_or(at);
                let is_kernel = generic.is_some() || step.outermost;
                let end = from.checked_add(bytes);
                if is_kernel && !write && end.is_some_and(|end| end <= kernel.len() as u64) {
                    return Ok((kernel.as_ptr() as usize as u64).wrapping_add(from));
                }
                let share = self.arguments.len() / lanes;
                let (start, len) = step.parameters;
                let mine = self.arguments.get_mut(thread * share..);
                let mine = mine.and_then(|mine| mine.get_mut(start as usize..));
                let mine = mine.and_then(|mine| mine.get_mut(..len as usize));
                mine.and_then(|mine| slice_mut(mine, at, bytes))
            }
            _ => None,
        };
        found
            .map(|bytes| bytes.as_mut_ptr() as usize as u64)
            .ok_or_else(lost)
    }
}

impl<'a> Work<'a> for Threads<'a> {
    type Shared = Compiled;

    fn start(
        launch: &'a Launch,
        code: &'a Compiled,
        number: u64,
        spent: Option<Box<Self>>,
    ) -> Box<Self> {
        let mut block = spent.unwrap_or_else(|| Box::new(Self::new(launch, code)));
        block.begin(number);
        block
    }

    fn run(&mut self) -> Result<Pause, Box<Fault>> {
        loop {
            self.look_again();
            let (mut going, mut turned, mut worked) = (false, false, false);
            for number in 0..self.warps.len() {
                let before = self.warps[number];
                going |= before.live != 0;
                if before.ready == 0 {
                    continue;
                }
                let mut stopped = false;
                self.run_warp(number, &mut stopped)?;
                if let Some(fault) = self.fault.take() {
                    return Err(fault);
                }
                if self.is_over() {
                    return Ok(Pause::Spent);
                }
                turned |= stopped;
                // All that could go on and could not end or meet others polls.
                worked |= !(stopped && self.code.is_polling());
            }
            if !going {
                return Ok(Pause::Done);
            }
            if self.warps.iter().all(|warp| warp.live == 0) {
                return Ok(Pause::Done);
            }
            if self.warps.iter().all(|warp| warp.ready == 0) {
                return Err(self.deadlock());
            }
            self.rounds = self.rounds.wrapping_add(1);
            if turned && !worked {
                return Ok(Pause::Polling);
            }
            // Those who meet each time they have looked at what others may change never run out of patience by themselves.
            let is_long = self.rounds.is_multiple_of(ROUNDS);
            if is_long && self.code.is_polling() {
                return Ok(Pause::Polling);
            }
            if turned || is_long {
                return Ok(Pause::Spent);
            }
        }
    }
}

impl Threads<'_> {
    /// What to say when nobody can go on.
    fn deadlock(&mut self) -> Box<Fault> {
        let waiting = self.warps.iter().position(|warp| warp.live != 0);
        self.warp = waiting.unwrap_or(0);
        let live = self.warps.get(self.warp).map_or(0, |warp| warp.live);
        let lane = live.trailing_zeros() as usize & 31;
        let step = self.step_of(self.warp, lane);
        Box::new(self.blame(FaultKind::Deadlock, step, lane))
    }
}
