//! What threads keep in their frames where they stop, and what they fetch from there when they go on.
//!
//! A register that has not been written since the thread last stopped lies in its frame already, and one that is not looked at before
//! the thread stops again may stay there.

use std::collections::{HashMap, HashSet};

use towline_ptx::ir::op::{Pred, Reg};

use super::flat::{Action, Flat, Step};
use super::live::{Liveness, Set, before, blocks, stops, successors};
use super::operands::{Operand, operands};

/// See the module's text. Places in the code are named by steps, registers by their numbers, with predicates behind them.
pub(super) struct Kept {
    live: Liveness,
    /// What frames may not hold as it is, at the start of each block of code.
    unsaved: HashMap<u32, Set>,
    /// What is stored at each stop.
    stored: HashMap<u32, Set>,
    /// What is looked at before the thread stops again, by block; and what lanes look at that go by fours, which leave more where they
    /// part.
    wanted: [HashMap<u32, Set>; 2],
}

impl Kept {
    /// `partings` are the steps at which four lanes may part.
    pub(super) fn new(flat: &mut Flat, leaders: &[u32], partings: &HashSet<u32>) -> Self {
        let len = (flat.registers + flat.predicates) as usize;
        let empty = || leaders.iter().map(|start| (*start, Set::new(len)));
        let mut kept = Self {
            live: Liveness::new(flat, leaders),
            unsaved: empty().collect(),
            stored: HashMap::new(),
            wanted: [empty().collect(), empty().collect()],
        };
        if let Some(first) = kept.unsaved.get_mut(&0) {
            (0..len as u32).for_each(|number| first.insert(number));
        }
        let registers = flat.registers;
        let written = flat.steps.iter_mut();
        let written: Vec<_> = written.map(|step| written_by(step, registers)).collect();
        let blocks = blocks(flat, leaders);
        while kept.find_unsaved(flat, &blocks, &written) {}
        while kept.find_wanted(flat, &blocks, 0, &HashSet::new()) {}
        while kept.find_wanted(flat, &blocks, 1, partings) {}
        kept
    }

    /// All that frames need room for where threads stop before a step.
    pub(super) fn room(&self, next: u32) -> Set {
        self.live.at(next)
    }

    /// What is stored when a thread stops at a step.
    pub(super) fn stored(&self, at: u32) -> Set {
        self.stored.get(&at).cloned().unwrap_or_default()
    }

    /// The same when it stops on its way to the start of a block.
    pub(super) fn stored_before(&self, target: u32) -> Set {
        let unsaved = self.unsaved.get(&target);
        unsaved.map_or_else(Set::default, |unsaved| self.live.at(target).both(unsaved))
    }

    /// What is fetched when a thread goes on with a step, or four do.
    pub(super) fn fetched(&self, next: u32, four: bool) -> Set {
        let wanted = self.wanted[usize::from(four)].get(&next);
        wanted.map_or_else(Set::default, |wanted| self.live.at(next).both(wanted))
    }

    /// Goes through the code once, forwards; says whether anything was new.
    fn find_unsaved(&mut self, flat: &Flat, blocks: &[(u32, u32)], written: &[Vec<u32>]) -> bool {
        let mut changed = false;
        for (start, end) in blocks {
            let mut unsaved = self.unsaved.get(start).cloned().unwrap_or_default();
            for at in *start..*end {
                let step = &flat.steps[at as usize];
                if stops(step) {
                    let stored = self.live.at(at + 1).both(&unsaved);
                    self.stored.insert(at, stored);
                    if step.guard.is_none() {
                        unsaved.clear();
                    }
                }
                for number in &written[at as usize] {
                    unsaved.insert(*number);
                }
                for next in successors(step, at) {
                    if (next != at + 1 || next == *end)
                        && let Some(set) = self.unsaved.get_mut(&next)
                    {
                        changed |= set.add(&unsaved);
                    }
                }
            }
        }
        changed
    }

    /// The same backwards.
    fn find_wanted(
        &mut self,
        flat: &mut Flat,
        blocks: &[(u32, u32)],
        which: usize,
        partings: &HashSet<u32>,
    ) -> bool {
        let (registers, mut changed) = (flat.registers, false);
        let len = (registers + flat.predicates) as usize;
        for (start, end) in blocks.iter().rev() {
            let mut wanted = Set::new(len);
            for at in (*start..*end).rev() {
                let step = &mut flat.steps[at as usize];
                for next in successors(step, at) {
                    if (next != at + 1 || next == *end)
                        && let Some(set) = self.wanted[which].get(&next)
                    {
                        wanted.add(set);
                    }
                    if next <= at || partings.contains(&at) {
                        wanted.add(&self.stored_before(next));
                    }
                }
                if stops(step) {
                    if step.guard.is_none() {
                        wanted.clear();
                    }
                    wanted.add(&self.stored(at));
                }
                before(step, registers, &mut wanted);
            }
            if partings.contains(start) {
                wanted.add(&self.stored_before(*start));
            }
            if let Some(set) = self.wanted[which].get_mut(start) {
                changed |= set.add(&wanted);
            }
        }
        changed
    }
}

/// Registers and predicates that a step writes.
fn written_by(step: &mut Step, registers: u32) -> Vec<u32> {
    let mut written = Vec::new();
    match &mut step.action {
        Action::Op(op) => operands(op, &mut |operand| match operand {
            Operand::Writes(Reg(reg), _) => written.push(*reg),
            Operand::WritesFlag(Pred(pred)) => written.push(registers + *pred),
            _ => {}
        }),
        Action::Clear {
            registers: (first, end),
            predicates: (first_flag, end_flag),
        } => {
            written.extend(*first..*end);
            written.extend((*first_flag..*end_flag).map(|pred| registers + pred));
        }
        Action::Copy { .. } => {}
    }
    written
}
