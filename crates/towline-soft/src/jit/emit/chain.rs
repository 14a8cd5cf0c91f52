//! From one region to the next without a return: shuffles of a whole warp whose lanes all have come by fours.
//!
//! Where a loop over fours has but one place to stop, a shuffle of which each lane's source is known when code is made, and all lanes of
//! the warp are there, what they have brought changes places in their frames, and the next region's loop begins. It goes forwards only:
//! a loop of the program comes back to the scheduler, so that other warps and blocks have their turn.

use std::collections::HashSet;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{Block, InstBuilder, MemFlags, Value, types};
use towline_ptx::ir::op::{Op, Together};

use super::regions::reached;
use super::stops::{LOOSE, word_offset};
use super::{Emitter, Place, entry_of, op_of};
use crate::exec::frame::LANES;
use crate::jit::MOVED;
use crate::jit::head::offset;
use crate::jit::live::{blocks, stops};
use crate::jit::shapes::QUAD;

/// Bytes of a vector, which has what four lanes have brought.
const VECTOR: usize = 16;

impl Emitter<'_, '_> {
    /// The shuffle that lanes of a region go on from without a return, if there is one.
    pub(super) fn next_in_chain(
        &mut self,
        place: Place,
        leaders: &[u32],
        inside: &HashSet<u32>,
    ) -> Option<u32> {
        let flat = self.flat;
        let all = blocks(flat, leaders).into_iter();
        let all = all.filter(|(start, _)| inside.contains(start));
        let mut found = all
            .flat_map(|(start, end)| start..end)
            .filter(|at| stops(&flat.steps[*at as usize]));
        let (first, more) = (found.next()?, found.next());
        let is_forward = match place {
            Place::Start => true,
            Place::Behind(step) => first > step,
        };
        if more.is_some() || !is_forward || !self.is_known_shuffle(first) {
            return None;
        }
        let next = reached(flat, leaders, first + 1);
        self.takes_four(leaders, &next).then_some(first)
    }

    /// Whether a step is a shuffle of all lanes of a warp of which all is known but the values.
    pub(super) fn is_known_shuffle(&self, at: u32) -> bool {
        let Some(step) = self.flat.steps.get(at as usize) else {
            return false;
        };
        let Some(Op::Together { mask, what }) = op_of(step) else {
            return false;
        };
        let Together::Shuffle { a, b, c, .. } = &**what else {
            return false;
        };
        let all = self
            .known(*mask)
            .is_some_and(|mask| mask as u32 == u32::MAX);
        let known = [b, c].map(|source| self.known(*source).is_some());
        all && step.guard.is_none() && known == [true; 2] && self.known(*a).is_none()
    }

    /// Where lanes begin that have come to a region behind a shuffle without a return.
    pub(super) fn chained(&mut self, step: u32) -> Block {
        let b = &mut self.b;
        *self.chained.entry(step).or_insert_with(|| b.create_block())
    }

    /// Not all lanes have come to the shuffle.
    pub(super) fn break_chain(&mut self) {
        if self.wide && self.chain.is_some() {
            let none = self.b.ins().iconst(types::I8, 0);
            self.b.def_var(self.all_met, none);
        }
    }

    /// Whether all lanes of the warp begin the loop.
    pub(super) fn begin_chain(&mut self, mask: Value) {
        if self.wide && self.chain.is_some() {
            let all = self
                .b
                .ins()
                .icmp_imm(IntCC::Equal, mask, i64::from(u32::MAX));
            self.b.def_var(self.all_met, all);
        }
    }

    /// The end of a loop: the next region's follows, if all lanes have come to its shuffle.
    pub(super) fn end_chain(&mut self, step: u32) {
        let all = self.b.use_var(self.all_met);
        let exchange = self.b.create_block();
        self.b.ins().brif(all, exchange, &[], self.finished, &[]);
        self.b.switch_to_block(exchange);
        let number = self.numbers[&step];
        let stop = self.outline.stops[number as usize - 1];
        let (head, flags) = (self.head, MemFlags::trusted());
        let frames = self.constant_load(types::I64, offset!(frames));
        if let Some(sources) = stop.sources {
            let brought: Vec<_> = (0..LANES / QUAD)
                .map(|quad| {
                    let at = word_offset(MOVED) + (quad * VECTOR) as i32;
                    self.b.ins().load(types::I8X16, LOOSE, frames, at)
                })
                .collect();
            let (lanes, _) = sources.lanes.as_chunks::<QUAD>();
            for (quad, lanes) in lanes.iter().enumerate() {
                let lanes = lanes.map(|lane| usize::from(lane) % LANES);
                let taken = self.picked(&brought, lanes);
                let at = word_offset(MOVED) + (quad * VECTOR) as i32;
                self.b.ins().store(LOOSE, taken, frames, at);
            }
            if stop.tells {
                for lane in 0..LANES {
                    let in_range = sources.in_range >> lane & 1;
                    let in_range = self.b.ins().iconst(types::I64, i64::from(in_range));
                    let at = word_offset(1) + lane as i32 * 8;
                    self.b.ins().store(flags, in_range, frames, at);
                }
            }
        }
        let state = i64::from(entry_of(number, true));
        let state = self.b.ins().iconst(types::I32, state);
        self.b.ins().store(flags, state, head, offset!(state));
        let none = self.b.ins().iconst(types::I32, 0);
        self.b.ins().store(flags, none, head, offset!(left));
        let next = self.chained(step);
        self.b.ins().jump(next, &[]);
    }

    /// A vector of what four lanes of any quads have brought.
    fn picked(&mut self, brought: &[Value], lanes: [usize; QUAD]) -> Value {
        let mut taken: Option<Value> = None;
        // One more quad at a time: bytes up to 15 are those taken so far, and those behind are the quad's.
        let mut order = [0_usize; QUAD];
        for (part, lane) in lanes.into_iter().enumerate() {
            let quad = lane / QUAD;
            if lanes[..part].iter().any(|lane| lane / QUAD == quad) {
                continue;
            }
            for (place, lane) in order.iter_mut().zip(lanes) {
                if lane / QUAD == quad {
                    *place = QUAD + lane % QUAD;
                }
            }
            let old = taken.unwrap_or(brought[quad]);
            let bytes = order
                .iter()
                .flat_map(|word| (0..4).map(move |byte| (word * 4 + byte) as u8));
            let bytes: Vec<u8> = bytes.collect();
            let mask = self.b.func.dfg.immediates.push(bytes.into());
            taken = Some(self.b.ins().shuffle(old, brought[quad], mask));
            // What is there stays where it is.
            for (place, word) in order.iter_mut().enumerate() {
                *word = place;
            }
        }
        taken.unwrap_or(brought[0])
    }
}
