//! Regions: what threads do from one place where they go on up to the next where they stop.

use std::collections::{HashMap, HashSet};

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, MemFlags, Value, types};
use cranelift_frontend::Switch;

use super::stops::LOOSE;
use super::{Emitter, Place, entry_of};
use crate::jit::flat::Flat;
use crate::jit::head::offset;
use crate::jit::live::{blocks, stops, successors};
use crate::jit::shapes::QUAD;
use crate::jit::{FUEL, Refusal};

/// Steps that regions may have beyond twice those of the kernel.
const MORE_STEPS: usize = 200;

/// First steps of the blocks of code that can be reached from one without a stop.
pub(super) fn reached(flat: &Flat, leaders: &[u32], start: u32) -> HashSet<u32> {
    let mut found = HashSet::new();
    let mut open = vec![start];
    while let Some(start) = open.pop() {
        let Ok(index) = leaders.binary_search(&start) else {
            continue;
        };
        if !found.insert(start) {
            continue;
        }
        let end = leaders.get(index + 1).copied();
        let last = end.unwrap_or(flat.steps.len() as u32) - 1;
        let step = &flat.steps[last as usize];
        if step.guard.is_some() || !stops(step) {
            open.extend(successors(step, last));
        }
    }
    found
}

/// Whether some of these blocks of code can be reached from a later one of them.
fn loops(flat: &Flat, leaders: &[u32], inside: &HashSet<u32>) -> bool {
    let mut inside = blocks(flat, leaders)
        .into_iter()
        .filter(|(start, _)| inside.contains(start));
    inside.any(|(_, end)| {
        let last = end - 1;
        let next = flat
            .steps
            .get(last as usize)
            .map(|step| successors(step, last));
        next.into_iter().flatten().any(|next| next <= last)
    })
}

/// Whether all regions together have little more code than the kernel.
pub(super) fn fits_apart(flat: &Flat, leaders: &[u32]) -> bool {
    let ends: HashMap<u32, u32> = blocks(flat, leaders).into_iter().collect();
    let len = |start: u32| {
        let reached = reached(flat, leaders, start);
        reached.iter().map(|start| ends[start] - start).sum::<u32>() as usize
    };
    let starts = (1..).zip(&flat.steps).filter(|(_, step)| stops(step));
    let starts = starts.map(|(behind, _)| behind).chain([0]);
    let mut left = flat.steps.len() * 2 + MORE_STEPS;
    for start in starts {
        match left.checked_sub(len(start)) {
            Some(less) => left = less,
            None => return false,
        }
    }
    true
}

impl Emitter<'_, '_> {
    /// A region: a loop over the threads that go on from a place, or from where they had stopped for others to have their turn; and
    /// one before it that takes them by fours.
    pub(super) fn region(
        &mut self,
        place: Place,
        mask: Value,
        leaders: &[u32],
        switch: &mut Switch,
    ) -> Result<(), Refusal> {
        let start = match place {
            Place::Behind(step) => step + 1,
            Place::Start => 0,
        };
        let inside: HashSet<u32> = match self.whole {
            true => leaders.iter().copied().collect(),
            false => reached(self.flat, leaders, start),
        };
        if self.takes_four(leaders, &inside) {
            match place {
                Place::Start => self.outline.four = true,
                Place::Behind(step) => {
                    let number = self.numbers[&step] as usize;
                    self.outline.stops[number - 1].four = true;
                }
            }
            self.wide = true;
            self.chain = self.next_in_chain(place, leaders, &inside);
            self.lanes_of_region(place, mask, leaders, &inside, switch)?;
            self.wide = false;
            self.chain = None;
        }
        self.lanes_of_region(place, mask, leaders, &inside, switch)
    }

    /// A loop over lanes.
    fn lanes_of_region(
        &mut self,
        place: Place,
        mask: Value,
        leaders: &[u32],
        inside: &HashSet<u32>,
        switch: &mut Switch,
    ) -> Result<(), Refusal> {
        let flat = self.flat;
        let enter = self.b.create_block();
        let (next_thread, turned) = (self.b.create_block(), self.b.create_block());
        let mask_left = self.b.append_block_param(next_thread, types::I32);
        let mask_now = self.b.append_block_param(turned, types::I32);
        self.b.switch_to_block(enter);
        self.begin_chain(mask);
        self.b.ins().jump(next_thread, &[mask.into()]);
        if let Place::Behind(step) = place
            && self.wide
            && self.is_known_shuffle(step)
        {
            let chained = self.chained(step);
            self.b.switch_to_block(chained);
            let all = self.b.ins().iconst(types::I32, i64::from(u32::MAX));
            self.begin_chain(all);
            self.b.ins().jump(next_thread, &[all.into()]);
        }
        self.b.switch_to_block(next_thread);
        let lane = self.b.ins().ctz(mask_left);
        self.lane = self.b.ins().uextend(types::I64, lane);
        let rest = match self.wide {
            true => {
                let four = self.b.ins().iconst(types::I32, (1 << QUAD) - 1);
                let taken = self.b.ins().ishl(four, lane);
                self.b.ins().band_not(mask_left, taken)
            }
            false => {
                let less = self.b.ins().iadd_imm(mask_left, -1);
                self.b.ins().band(mask_left, less)
            }
        };
        let full = self.b.ins().iconst(types::I32, FUEL);
        self.b.def_var(self.fuel, full);
        let [argument_share, local_share] = flat.shares();
        let base = self.constant_load(types::I64, offset!(arguments));
        self.argument_base = self.beside(base, argument_share as u64);
        let base = self.constant_load(types::I64, offset!(locals));
        self.local_base = self.beside(base, local_share as u64);
        let base = self.constant_load(types::I64, offset!(frames));
        self.frame = self.beside(base, 8);
        self.narrow_frame = self.beside(base, 4);
        // Where it begins is known when its code is there.
        let begin = self.b.create_block();
        self.b.ins().jump(begin, &[]);
        (self.stopped, self.faulted) = (self.b.create_block(), self.b.create_block());
        let state = match self.wide {
            true => types::I32X4,
            false => types::I32,
        };
        let state_now = self.b.append_block_param(self.stopped, state);
        self.blocks = inside
            .iter()
            .map(|at| (*at, self.b.create_block()))
            .collect();
        self.turns.clear();
        self.run_at.clear();
        let first = self.b.create_block();
        self.b.switch_to_block(first);
        let number = match place {
            Place::Start => {
                self.clear((0, flat.registers), (0, flat.predicates));
                self.b.ins().jump(self.blocks[&0], &[]);
                0
            }
            Place::Behind(step) => {
                self.go_on(step);
                self.numbers[&step]
            }
        };
        for (start, end) in blocks(flat, leaders) {
            if let Some(block) = self.blocks.get(&start) {
                self.b.switch_to_block(*block);
                self.run(start, end)?;
            }
        }
        self.b.switch_to_block(self.stopped);
        if self.stops {
            let states = self.constant_load(types::I64, offset!(states));
            let at = self.beside(states, 4);
            self.b.ins().store(LOOSE, state_now, at, 0);
        }
        self.b.ins().jump(turned, &[rest.into()]);
        // No other thread has its turn. What leaves a loop in its middle keeps the compiler from taking anything out of it; where
        // threads loop themselves that is better, as what is taken out then has no register in the inner loop.
        self.b.switch_to_block(self.faulted);
        self.b.set_cold_block(self.faulted);
        match loops(flat, leaders, inside) {
            true => self.b.ins().return_(&[]),
            false => {
                self.break_chain();
                let none = self.b.ins().iconst(types::I32, 0);
                self.b.ins().jump(turned, &[none.into()])
            }
        };
        self.b.switch_to_block(turned);
        let again = &[mask_now.into()];
        match self.chain.filter(|_| self.wide) {
            None => {
                let finished = self.finished;
                self.b
                    .ins()
                    .brif(mask_now, next_thread, again, finished, &[]);
            }
            Some(step) => {
                let ended = self.b.create_block();
                self.b.ins().brif(mask_now, next_thread, again, ended, &[]);
                self.b.switch_to_block(ended);
                self.end_chain(step);
            }
        }
        if !self.wide {
            for (number, step) in std::mem::take(&mut self.alone) {
                let resume = self.b.create_block();
                self.resumes.push((number, resume));
                self.b.switch_to_block(resume);
                self.b.set_cold_block(resume);
                self.fetch(step, &[]);
                self.b.ins().jump(self.blocks[&step], &[]);
            }
        }
        self.b.switch_to_block(begin);
        let here = entry_of(number, self.wide);
        switch.set_entry(here.into(), enter);
        let resumes = std::mem::take(&mut self.resumes);
        if resumes.is_empty() {
            self.b.ins().jump(first, &[]);
            return Ok(());
        }
        let elsewhere = self.b.create_block();
        if !self.whole {
            self.b.set_cold_block(elsewhere);
        }
        let state = self.state();
        let here = self.b.ins().icmp_imm(IntCC::Equal, state, i64::from(here));
        self.b.ins().brif(here, first, &[], elsewhere, &[]);
        self.b.switch_to_block(elsewhere);
        let mut others = Switch::new();
        for (number, block) in resumes {
            let number = entry_of(number, self.wide);
            others.set_entry(number.into(), block);
            switch.set_entry(number.into(), enter);
        }
        others.emit(self.b, state, self.faulted);
        Ok(())
    }

    /// The place that all threads go on from. It is read again for each, as registers are few.
    pub(super) fn state(&mut self) -> Value {
        let (head, flags) = (self.head, MemFlags::trusted());
        self.b.ins().load(types::I32, flags, head, offset!(state))
    }
}
