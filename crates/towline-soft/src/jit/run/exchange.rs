//! What lanes bring to where they meet, and what they take away: words of their frames.

use towline_ptx::ir::matrix::Matrix;
use towline_ptx::ir::op::{Op, Together};

use super::Threads;
use crate::exec::frame::{LANES, Lanes, lanes_of};
use crate::exec::matrix;
use crate::exec::together::{Brought, carry_out};
use crate::jit::emit::{Wait, op_of};
use crate::jit::{EXCHANGE, MOVED};
use crate::memory::Arena;

impl Threads<'_> {
    /// What mostly happens: all lanes that live stop for one thing that they do together, with the same members. They can all go on, as
    /// nobody is missing. Gives the state of all of them.
    pub(super) fn meet_at_once(&mut self, number: usize) -> Option<u32> {
        let code = self.code;
        let live = self.warps[number].live;
        let (state, group) = self.alike(number, live);
        let stop = code.outline.stops.get((state as usize).wrapping_sub(1))?;
        if group != live || stop.wait != Wait::Together {
            return None;
        }
        let Some(Op::Together { what, .. }) =
            code.flat.steps.get(stop.step as usize).and_then(op_of)
        else {
            return None;
        };
        if let Together::Matrix { what, scratch } = &**what {
            self.on_matrices(number, stop.step, what, *scratch, live);
            return Some(state);
        }
        let words = code.outline.frame_words;
        let start = number * LANES * words;
        let (rows, _) = self.frames[start..].as_chunks_mut::<LANES>();
        let rows = rows.first_chunk_mut::<EXCHANGE>()?;
        let row = |word: usize| match stop.known[word] {
            Some(known) => [known; LANES],
            None => rows[word],
        };
        if stop.known[3].is_none() {
            let members = rows[3];
            let first = members[live.trailing_zeros() as usize & 31];
            if lanes_of(live).any(|lane| members[lane] != first) {
                return None;
            }
        }
        let mut a = match stop.narrow && stop.known[0].is_none() {
            true => unpacked(&rows[MOVED]),
            false => row(0),
        };
        // Who has ended has brought nothing.
        if live != u32::MAX {
            for (lane, value) in a.iter_mut().enumerate() {
                *value &= 0_u64.wrapping_sub(u64::from(live >> lane & 1));
            }
        }
        if let Some(sources) = &stop.sources {
            let mut taken = [0; LANES];
            for (value, source) in taken.iter_mut().zip(sources.lanes) {
                *value = a[usize::from(source) % LANES];
            }
            pack(&mut rows[MOVED], &taken);
            if stop.tells {
                put_flags(&mut rows[1], sources.in_range);
            }
            return Some(state);
        }
        let mut brought = Brought {
            a,
            ..Brought::default()
        };
        match **what {
            Together::Vote { .. } => {
                let yes =
                    |flags, (lane, value): (usize, &u64)| flags | u32::from(*value != 0) << lane;
                brought.flags = brought.a.iter().enumerate().fold(0, yes);
            }
            Together::Shuffle { .. } => (brought.b, brought.c) = (row(1), row(2)),
            _ => {}
        }
        let taken = carry_out(what, live, &brought);
        match stop.narrow {
            true => pack(&mut rows[MOVED], &taken.values),
            false => rows[0] = taken.values,
        }
        if stop.tells {
            put_flags(&mut rows[1], taken.flags);
        }
        Some(state)
    }

    /// Carries out an operation on matrices for lanes that have met. A fault is told when the code has come back.
    pub(super) fn on_matrices(
        &mut self,
        number: usize,
        step: u32,
        what: &Matrix,
        scratch: u32,
        present: u32,
    ) {
        let [_, share] = self.code.flat.shares();
        let start = number * LANES * share;
        let mut memory = LocalScratch {
            share,
            scratch: scratch as usize,
            locals: self.locals.get_mut(start..).unwrap_or_default(),
            shared: &mut self.shared,
            arena: &self.launch.arena,
        };
        if let Err((kind, lane)) = matrix::carry_out(what, present, &mut memory) {
            self.warp = number;
            self.fail(kind, step, lane);
        }
    }

    /// A word that a lane brings to where it has stopped.
    pub(super) fn word(&self, number: usize, lane: usize, word: usize) -> u64 {
        let stop = self.stop_of(number, lane);
        if let Some(known) = stop.and_then(|stop| stop.known[word]) {
            return known;
        }
        let get = |word: usize, at: usize| {
            let start = (number * self.code.outline.frame_words + word) * LANES;
            self.frames.get(start + at).copied().unwrap_or(0)
        };
        match word == 0 && stop.is_some_and(|stop| stop.narrow) {
            true => get(MOVED, lane / 2) >> (lane % 2 * 32) & 0xffff_ffff,
            false => get(word, lane),
        }
    }

    /// A word that it takes away.
    pub(super) fn set_word(&mut self, number: usize, lane: usize, word: usize, value: u64) {
        let stop = self.stop_of(number, lane);
        let narrow = word == 0 && stop.is_some_and(|stop| stop.narrow);
        let word = if narrow { MOVED } else { word };
        let start = (number * self.code.outline.frame_words + word) * LANES;
        if narrow {
            if let Some(place) = self.frames.get_mut(start + lane / 2) {
                let shift = lane % 2 * 32;
                *place = *place & !(0xffff_ffff << shift) | (value & 0xffff_ffff) << shift;
            }
        } else if let Some(place) = self.frames.get_mut(start + lane) {
            *place = value;
        }
    }
}

/// The scratch of lanes of a warp, in local memory.
struct LocalScratch<'w> {
    /// Bytes of a lane's local memory, and where in it scratch lies.
    share: usize,
    scratch: usize,
    locals: &'w mut [u8],
    shared: &'w mut [u8],
    arena: &'w Arena,
}

impl matrix::Memory for LocalScratch<'_> {
    fn scratch(&mut self, lane: usize) -> Option<&mut matrix::Scratch> {
        let start = lane * self.share + self.scratch;
        self.locals.get_mut(start..)?.first_chunk_mut()
    }

    fn shared(&mut self) -> &mut [u8] {
        self.shared
    }

    fn arena(&self) -> &Arena {
        self.arena
    }
}

/// A row of 32 bits for each lane.
#[inline(always)]
fn unpacked(row: &Lanes) -> Lanes {
    std::array::from_fn(|lane| row[lane / 2] >> (lane % 2 * 32) & 0xffff_ffff)
}

#[inline(always)]
fn pack(row: &mut Lanes, values: &Lanes) {
    let (pairs, _) = values.as_chunks::<2>();
    for (word, [low, high]) in row.iter_mut().zip(pairs) {
        *word = *low & 0xffff_ffff | *high << 32;
    }
}

/// Gives each lane its flag.
#[inline(always)]
fn put_flags(row: &mut [u64; LANES], flags: u32) {
    for (lane, flag) in row.iter_mut().enumerate() {
        *flag = u64::from(flags >> lane & 1);
    }
}
