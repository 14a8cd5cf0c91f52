//! Where threads stop: what they leave in their frames, and what they find there when they go on.

use cranelift_codegen::ir::{self, InstBuilder, MemFlags, Value, types};
use cranelift_frontend::Variable;
use towline_ptx::ir::Constant;
use towline_ptx::ir::op::{Barrier, Flag, Op, Pred, Reg, Source, Together};

use super::{Emitter, Kind, Place, Stop, Wait, class_type, op_of};
use crate::exec::frame::LANES;
use crate::exec::together::{Sources, results, sources};
use crate::jit::EXCHANGE;
use crate::jit::flat::Action;
use crate::jit::live::stops;

/// What threads take away from where they stop: the first words of their frames.
fn outcome(op: &Op) -> (Option<Reg>, Option<Pred>) {
    match op {
        Op::Barrier { kind, .. } => match *kind {
            Barrier::Arrive | Barrier::Sync => (None, None),
            Barrier::Reduce { d, .. } => (None, Some(d)),
            Barrier::Count { d, .. } => (Some(d), None),
        },
        Op::Together { what, .. } => results(what),
        _ => (None, None),
    }
}

/// Where a word of a thread's frame lies. That of all lanes lies in one piece, for what passes between them.
fn word_offset(word: usize) -> i32 {
    (word * LANES * 8) as i32
}

impl Emitter<'_, '_> {
    /// Room for all that is ever kept: decided before code is made, from what lives where threads may stop.
    pub(super) fn frame_words(&mut self) -> usize {
        let flat = self.flat;
        let mut targets = Vec::new();
        for (at, step) in (0..).zip(&flat.steps) {
            match &step.action {
                _ if stops(step) => targets.push(at + 1),
                Action::Op(Op::Branch { target }) if *target <= at => targets.push(*target),
                Action::Op(Op::BranchIndexed { targets: all, .. }) => {
                    targets.extend(all.iter().filter(|target| **target <= at));
                }
                _ => {}
            }
        }
        self.stops = !targets.is_empty();
        for target in targets {
            for number in self.kept.room(target).iter() {
                let next = word_offset(EXCHANGE + self.slots.len());
                self.slots.entry(number).or_insert(next);
            }
        }
        EXCHANGE + self.slots.len()
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
        let wanted = self.kept.fetched(step + 1);
        if let Some(d) = d.filter(|d| wanted.has(d.0)) {
            let at = word_offset(0);
            let value = self
                .b
                .ins()
                .load(types::I32, MemFlags::trusted(), frame, at);
            self.set(d, value, Kind::I32);
        }
        if let Some(p) = p.filter(|p| wanted.has(registers + p.0)) {
            let at = word_offset(1);
            let value = self.b.ins().load(types::I8, MemFlags::trusted(), frame, at);
            self.set_flag(p, value);
        }
        match self.blocks.get(&(step + 1)) {
            Some(&next) => self.b.ins().jump(next, &[]),
            None => self.exit(),
        };
    }

    /// The thread stops at this step, and goes on behind it.
    pub(super) fn stop(&mut self, wait: Wait) {
        let at = self.at;
        let next = self.outline.stops.len() as u32 + 1;
        let known = std::mem::take(&mut self.known_words);
        let number = *self.numbers.entry(at).or_insert(next);
        let is_new = number == next;
        let step = self.flat.steps.get(at as usize);
        let (d, p) = step.and_then(op_of).map_or((None, None), outcome);
        let registers = self.flat.registers;
        let given = [d.map(|d| d.0), p.map(|p| registers + p.0)];
        if is_new {
            let wanted = self.kept.fetched(at + 1);
            self.outline.stops.push(Stop {
                wait,
                step: at,
                known,
                tells: given[1].is_some_and(|p| wanted.has(p)),
                sources: self.sources(known),
            });
        }
        let stored = self.kept.stored(at);
        self.leave(
            number,
            stored.iter().filter(|one| !given.contains(&Some(*one))),
        );
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

    /// Where lanes read in the shuffle of this step, if it is one and that is known.
    fn sources(&self, known: [Option<u64>; EXCHANGE]) -> Option<Sources> {
        let Op::Together { what, .. } = self.flat.steps.get(self.at as usize).and_then(op_of)?
        else {
            return None;
        };
        match (&**what, known) {
            (Together::Shuffle { kind, .. }, [None, Some(b), Some(c), _]) => {
                Some(sources(*kind, b as u32, c as u32))
            }
            _ => None,
        }
    }

    /// The thread stops for others to have their turn, on the way back to the start of a loop.
    pub(super) fn stop_before(&mut self, target: u32) {
        let number = self.outline.stops.len() as u32 + 1;
        self.outline.stops.push(Stop {
            wait: Wait::Turn,
            step: self.at,
            known: [None; EXCHANGE],
            tells: false,
            sources: None,
        });
        let stored = self.kept.stored_before(target);
        self.leave(number, stored.iter());
        let resume = self.b.create_block();
        self.resumes.push((number, resume));
        self.b.switch_to_block(resume);
        self.b.set_cold_block(resume);
        self.fetch(target, &[]);
        self.b.ins().jump(self.blocks[&target], &[]);
    }

    /// Stores registers, and turns to the next thread.
    fn leave(&mut self, number: u32, stored: impl Iterator<Item = u32>) {
        let frame = self.frame;
        for one in stored {
            let (variable, _) = self.variable(one);
            let value = self.b.use_var(variable);
            let at = self.slots[&one];
            self.b.ins().store(MemFlags::trusted(), value, frame, at);
        }
        let state = self.b.ins().iconst(types::I32, i64::from(number));
        self.b.ins().jump(self.stopped, &[state.into()]);
    }

    /// Fetches registers for what begins with a step.
    fn fetch(&mut self, next: u32, given: &[Option<u32>]) {
        let frame = self.frame;
        for one in self.kept.fetched(next).iter() {
            if !given.contains(&Some(one)) {
                let at = self.slots[&one];
                let (variable, ty) = self.variable(one);
                let value = self.b.ins().load(ty, MemFlags::trusted(), frame, at);
                self.b.def_var(variable, value);
            }
        }
    }

    fn variable(&mut self, number: u32) -> (Variable, ir::Type) {
        match number.checked_sub(self.flat.registers) {
            None => (
                self.register(number),
                class_type(self.classes[number as usize]),
            ),
            Some(pred) => (self.predicate(pred), types::I8),
        }
    }

    /// Leaves a word for those that a thread meets.
    fn give(&mut self, word: usize, value: Value) {
        let frame = self.frame;
        self.b
            .ins()
            .store(MemFlags::trusted(), value, frame, word_offset(word));
    }

    fn give_source(&mut self, word: usize, source: Source) {
        self.known_words[word] = self.known(source);
        if self.known_words[word].is_some() {
            return;
        }
        let value = self.get(source, Kind::I64);
        self.give(word, value);
    }

    fn give_narrow(&mut self, word: usize, source: Source) {
        self.known_words[word] = self.known(source).map(|bits| bits & 0xffff_ffff);
        if self.known_words[word].is_some() {
            return;
        }
        let value = self.get(source, Kind::I32);
        let value = self.b.ins().uextend(types::I64, value);
        self.give(word, value);
    }

    fn give_flag(&mut self, word: usize, flag: Flag) {
        let holds = self.flag(flag);
        let value = self.b.ins().uextend(types::I64, holds);
        self.give(word, value);
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
                self.give_narrow(0, a);
                self.give_narrow(1, b);
                self.give_narrow(2, c);
            }
            Together::Vote { a, .. } => self.give_flag(0, a),
            Together::Elect { .. } | Together::Wait => {}
        }
        self.stop(Wait::Together);
    }
}
