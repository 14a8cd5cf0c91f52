//! Where threads stop: what they leave in their frames, and what they find there when they go on.

use cranelift_codegen::ir::{InstBuilder, MemFlags, Value, types};
use towline_ptx::ir::Constant;
use towline_ptx::ir::op::{Barrier, Flag, Op, Pred, Reg, Source, Together};

use super::{Emitter, Kind, Place, Stop, Wait, op_of};
use crate::exec::frame::LANES;
use crate::exec::together::{Sources, results, sources};
use crate::jit::flat::Action;
use crate::jit::head::offset;
use crate::jit::live::stops;
use crate::jit::shapes::QUAD;
use crate::jit::{EXCHANGE, MOVED};

/// What threads take away from where they stop: the first words of their frames.
fn outcome(op: &Op) -> (Option<Reg>, Option<Pred>) {
    match op {
        Op::Barrier { kind, .. } => match *kind {
            Barrier::Arrive | Barrier::ClusterArrive | Barrier::ClusterWait | Barrier::Sync => {
                (None, None)
            }
            Barrier::Reduce { d, .. } => (None, Some(d)),
            Barrier::Count { d, .. } => (Some(d), None),
        },
        Op::Together { what, .. } => results(what),
        _ => (None, None),
    }
}

/// For vectors, which lie where numbers of 32 or 64 bits may.
pub(super) const LOOSE: MemFlags = MemFlags::new().with_notrap();

/// Whether the first word that lanes exchange has 32 bits there.
fn is_narrow(op: &Op) -> bool {
    matches!(op, Op::Together { what, .. } if matches!(**what, Together::Shuffle { .. }))
}

/// Where a word of a thread's frame lies. That of all lanes lies in one piece, for what passes between them.
pub(super) fn word_offset(word: usize) -> i32 {
    (word * LANES * 8) as i32
}

/// Which word lies there.
pub(super) fn word_of(offset: i32) -> usize {
    offset as usize / (LANES * 8)
}

impl Emitter<'_, '_> {
    /// Room in frames for what lives where threads may stop, whichever way they come there.
    pub(super) fn make_frames(&mut self) {
        let flat = self.flat;
        let mut targets = Vec::new();
        for (at, step) in (0..).zip(&flat.steps) {
            match &step.action {
                _ if stops(step) => targets.push(at + 1),
                Action::Op(Op::Branch { target }) if *target <= at => {
                    targets.push(*target);
                    self.lasts.insert(*target, at);
                }
                Action::Op(Op::BranchIndexed { targets: all, .. }) => {
                    for target in all.iter().filter(|target| **target <= at) {
                        targets.push(*target);
                        self.lasts.insert(*target, at);
                    }
                }
                _ => {}
            }
        }
        self.stops = !targets.is_empty();
        for target in targets {
            for number in self.kept.room(target).iter() {
                self.make_room(number);
            }
        }
    }

    /// Room for a register, or a predicate by its number behind those.
    pub(super) fn make_room(&mut self, number: u32) {
        let next = word_offset(EXCHANGE + self.slots.len());
        self.slots.entry(number).or_insert(next);
    }

    /// Goes on behind a step where the thread has stopped.
    pub(super) fn go_on(&mut self, step: u32) {
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
        let wanted = self.kept.fetched(step + 1, self.wide);
        // What four lanes have been given differs, unless the step's result says otherwise.
        let differs = self.wide && self.shapes.result(step).stride().is_none();
        self.at = step;
        let narrow = self.op_at(step).is_some_and(is_narrow);
        if let Some(d) = d.filter(|d| wanted.has(d.0)) {
            if differs {
                let value = match narrow {
                    true => {
                        let (frame, at) = (self.narrow_frame, word_offset(MOVED));
                        self.b.ins().load(types::I32X4, LOOSE, frame, at)
                    }
                    false => self.given_to_four(0),
                };
                self.for_four(|this| this.set(d, value, Kind::I32));
            } else {
                let (frame, at) = match narrow {
                    true => (self.narrow_frame, word_offset(MOVED)),
                    false => (frame, word_offset(0)),
                };
                let flags = MemFlags::trusted();
                let value = self.b.ins().load(types::I32, flags, frame, at);
                self.set(d, value, Kind::I32);
            }
        }
        if let Some(p) = p.filter(|p| wanted.has(registers + p.0)) {
            if differs {
                let value = self.given_to_four(1);
                let mask = self.b.ins().ineg(value);
                self.for_four(|this| this.set_flag(p, mask));
            } else {
                let at = word_offset(1);
                let value = self.b.ins().load(types::I8, MemFlags::trusted(), frame, at);
                self.set_flag(p, value);
            }
        }
        match self.blocks.get(&(step + 1)) {
            Some(&next) => self.b.ins().jump(next, &[]),
            None => self.exit(),
        };
    }

    /// The thread stops at this step, and goes on behind it.
    pub(super) fn stop(&mut self, wait: Wait) {
        let at = self.at;
        let known = std::mem::take(&mut self.known_words);
        let is_new = !self.numbers.contains_key(&at);
        let step = self.flat.steps.get(at as usize);
        let (d, p) = step.and_then(op_of).map_or((None, None), outcome);
        let registers = self.flat.registers;
        let given = [d.map(|d| d.0), p.map(|p| registers + p.0)];
        if is_new {
            let wanted = self.kept.fetched(at + 1, true);
            let stop = Stop {
                wait,
                step: at,
                known,
                tells: given[1].is_some_and(|p| wanted.has(p)),
                sources: self.sources(known),
                four: false,
                parted: false,
                narrow: step.and_then(op_of).is_some_and(is_narrow),
            };
            let words = given.into_iter().zip([0, 1]);
            let words = words.filter_map(|(number, word)| Some((number?, word)));
            let rows = self.rows(at + 1, &words.collect::<Vec<_>>());
            let number = self.outline.stop(stop, rows);
            self.numbers.insert(at, number);
        }
        let number = self.numbers[&at];
        let stored = self.kept.stored(at);
        self.keep(stored.iter().filter(|one| !given.contains(&Some(*one))));
        if self.chain != Some(at) {
            self.break_chain();
        }
        let states = self.all_states(number);
        self.leave(states);
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

    /// The operation of a step.
    fn op_at(&self, at: u32) -> Option<&Op> {
        self.flat.steps.get(at as usize).and_then(op_of)
    }

    /// Where lanes read in the shuffle of this step, if it is one and that is known.
    fn sources(&self, known: [Option<u64>; EXCHANGE]) -> Option<Sources> {
        let Op::Together { what, .. } = self.flat.steps.get(self.at as usize).and_then(op_of)?
        else {
            return None;
        };
        match (&**what, known) {
            (Together::Shuffle { kind, .. }, [None, Some(b), Some(c), ..]) => {
                Some(sources(*kind, b as u32, c as u32))
            }
            _ => None,
        }
    }

    /// The thread stops for others to have their turn, on the way back to the start of a loop.
    pub(super) fn stop_before(&mut self, target: u32) {
        let stop = Stop {
            wait: Wait::Turn,
            step: self.at,
            known: [None; EXCHANGE],
            tells: false,
            sources: None,
            four: self.wide,
            parted: false,
            narrow: false,
        };
        let rows = self.rows(target, &[]);
        let number = self.outline.stop(stop, rows);
        let stored = self.kept.stored_before(target);
        self.keep(stored.iter());
        self.break_chain();
        let states = self.all_states(number);
        self.leave(states);
        let resume = self.b.create_block();
        self.resumes.push((number, resume));
        self.b.switch_to_block(resume);
        self.b.set_cold_block(resume);
        self.fetch(target, &[]);
        self.b.ins().jump(self.blocks[&target], &[]);
    }

    /// The state of the lane, or of all four.
    pub(super) fn all_states(&mut self, number: u32) -> Value {
        let state = self.b.ins().iconst(types::I32, i64::from(number));
        match self.wide {
            true => self.b.ins().splat(types::I32X4, state),
            false => state,
        }
    }

    /// Stores registers. Of what is the same in four lanes, or grows by the same, the first has all that is to be known.
    pub(super) fn keep(&mut self, stored: impl Iterator<Item = u32>) {
        let flags = MemFlags::trusted();
        for one in stored {
            let (at, is_vector) = (self.slots[&one], self.is_vector(one));
            if self.wide && self.shapes.register(one).stride().is_none() {
                if is_vector {
                    let (variable, _) = self.vector(one);
                    let mut value = self.b.use_var(variable);
                    if one >= self.flat.registers {
                        value = self.b.ins().ineg(value);
                    }
                    let frame = self.narrow_frame;
                    self.b.ins().store(LOOSE, value, frame, at);
                } else {
                    let (singles, _) = self.singles(one);
                    for (lane, single) in (0..).zip(singles) {
                        let value = self.b.use_var(single);
                        let frame = self.frame;
                        self.b.ins().store(flags, value, frame, at + lane * 8);
                    }
                }
                continue;
            }
            let (variable, ty) = self.variable(one);
            let mut value = self.b.use_var(variable);
            if ty == types::I8 {
                value = self.b.ins().uextend(types::I32, value);
            }
            let frame = if is_vector {
                self.narrow_frame
            } else {
                self.frame
            };
            self.b.ins().store(flags, value, frame, at);
        }
    }

    /// Turns to the next thread.
    pub(super) fn leave(&mut self, states: Value) {
        let (head, one) = (self.head, self.b.ins().iconst(types::I32, 1));
        let flags = MemFlags::trusted();
        self.b.ins().store(flags, one, head, offset!(left));
        self.b.ins().jump(self.stopped, &[states.into()]);
    }

    /// Fetches registers for what begins with a step.
    pub(super) fn fetch(&mut self, next: u32, given: &[Option<u32>]) {
        let flags = MemFlags::trusted();
        for one in self.kept.fetched(next, self.wide).iter() {
            if given.contains(&Some(one)) {
                continue;
            }
            let (at, is_vector) = (self.slots[&one], self.is_vector(one));
            let frame = if is_vector {
                self.narrow_frame
            } else {
                self.frame
            };
            if !self.wide || self.shapes.register(one).stride().is_some() {
                let (variable, ty) = self.variable(one);
                let value = self.b.ins().load(ty, flags, frame, at);
                self.b.def_var(variable, value);
            } else if is_vector {
                let (variable, ty) = self.vector(one);
                let mut value = self.b.ins().load(ty, LOOSE, frame, at);
                if one >= self.flat.registers {
                    value = self.b.ins().ineg(value);
                }
                self.b.def_var(variable, value);
            } else {
                let (singles, ty) = self.singles(one);
                for (lane, single) in (0..).zip(singles) {
                    let value = self.b.ins().load(ty, flags, frame, at + lane * 8);
                    self.b.def_var(single, value);
                }
            }
        }
    }

    /// What four lanes find in a word of theirs, of which 32 bits count.
    fn given_to_four(&mut self, word: usize) -> Value {
        let (frame, flags) = (self.frame, MemFlags::trusted());
        let at = word_offset(word);
        let lanes = [0, 8, 16, 24];
        let values = lanes.map(|lane| self.b.ins().load(types::I32, flags, frame, at + lane));
        self.joined(values)
    }

    /// Leaves a word for those that a thread meets.
    fn give(&mut self, word: usize, mut value: impl FnMut(&mut Self) -> Value) {
        let (frame, flags) = (self.frame, MemFlags::trusted());
        let lanes = if self.wide { QUAD } else { 1 };
        for lane in 0..lanes {
            let value = self.for_one(lane, &mut value);
            let at = word_offset(word) + lane as i32 * 8;
            self.b.ins().store(flags, value, frame, at);
        }
    }

    fn give_source(&mut self, word: usize, source: Source) {
        self.known_words[word] = self.known(source);
        if self.known_words[word].is_some() {
            return;
        }
        self.give(word, |this| this.get(source, Kind::I64));
    }

    fn give_narrow(&mut self, word: usize, source: Source) {
        self.known_words[word] = self.known(source).map(|bits| bits & 0xffff_ffff);
        if self.known_words[word].is_some() {
            return;
        }
        self.give(word, |this| {
            let value = this.get(source, Kind::I32);
            this.b.ins().uextend(types::I64, value)
        });
    }

    /// Leaves what a shuffle moves, which is all of 32 bits.
    fn give_to_shuffle(&mut self, source: Source) {
        self.known_words[0] = self.known(source).map(|bits| bits & 0xffff_ffff);
        if self.known_words[0].is_some() {
            return;
        }
        let (frame, flags) = (self.narrow_frame, MemFlags::trusted());
        let at = word_offset(MOVED);
        if self.wide && self.in_vectors(source) {
            let value = self.for_four(|this| this.get_exact(source, Kind::I32));
            self.b.ins().store(LOOSE, value, frame, at);
            return;
        }
        let lanes = if self.wide { QUAD } else { 1 };
        for lane in 0..lanes {
            let value = self.for_one(lane, |this| this.get(source, Kind::I32));
            self.b
                .ins()
                .store(flags, value, frame, at + lane as i32 * 4);
        }
    }

    fn give_flag(&mut self, word: usize, flag: Flag) {
        self.give(word, |this| {
            let holds = this.flag(flag);
            this.b.ins().uextend(types::I64, holds)
        });
    }

    pub(super) fn barrier(&mut self, kind: Barrier, id: Source, threads: Option<Source>) {
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

    pub(super) fn together(&mut self, mask: Source, what: &Together) {
        self.give_narrow(3, mask);
        match *what {
            Together::Match { bits, a, .. } if bits > 32 => self.give_source(0, a),
            Together::Match { a, .. } | Together::Reduce { a, .. } => self.give_narrow(0, a),
            Together::Shuffle { a, b, c, .. } => {
                self.give_to_shuffle(a);
                self.give_narrow(1, b);
                self.give_narrow(2, c);
            }
            Together::Vote { a, .. } => self.give_flag(0, a),
            Together::Elect { .. } | Together::Matrix { .. } | Together::Wait => {}
        }
        self.stop(Wait::Together);
    }
}
