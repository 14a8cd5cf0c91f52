//! Lanes that machine code takes by fours, and those that have parted.
//!
//! As long as four lanes that lie side by side have always taken the same way, only the first keeps in its frame what is the same for all,
//! or grows by the same from lane to lane. Before one of them goes on by itself, each is given its own.

use super::{LANES, Threads, lanes_of};
use crate::jit::emit::Row;
use crate::jit::shapes::QUAD;

/// The first lanes of all quads of a warp.
const FIRSTS: u32 = 0x1111_1111;
/// The lanes of the first.
const ALL: u32 = (1 << QUAD) - 1;

impl<'a> Threads<'a> {
    /// Of lanes of a warp that are to go on from one place, those that do so by fours.
    pub(super) fn by_fours(&mut self, number: usize, state: u32, group: u32) -> u32 {
        let outline = &self.code.outline;
        let can = match (state as usize).checked_sub(1) {
            None => outline.four,
            Some(stop) => outline.stops.get(stop).is_some_and(|stop| stop.four),
        };
        if !can || !self.aligned {
            return 0;
        }
        let pairs = group & group >> 1;
        let whole = (pairs & pairs >> 2 & FIRSTS) * ALL;
        let apart = self.warps[number].apart & whole;
        if apart != 0 {
            self.rejoin(number, state, apart);
        }
        whole & !self.warps[number].apart
    }

    /// Lanes that have parted and can go on at once.
    pub(super) fn parted(&self, number: usize, lanes: u32) -> u32 {
        let has = |lane: &usize| {
            let stop = self.stop_of(number, *lane);
            stop.is_some_and(|stop| stop.parted)
        };
        let parted = lanes_of(lanes).filter(has);
        parted.fold(0, |mask, lane| mask | 1 << lane)
    }

    /// Gives lanes of a warp that are to go on by themselves, and those that went together with them, what is theirs.
    #[inline]
    pub(super) fn go_apart(&mut self, number: usize, lanes: u32) {
        let new = lanes & !self.warps[number].apart;
        if new != 0 {
            self.part_quads(number, new);
        }
    }

    fn part_quads(&mut self, number: usize, lanes: u32) {
        for first in (0..LANES).step_by(QUAD) {
            if lanes >> first & ALL == 0 {
                continue;
            }
            self.warps[number].apart |= ALL << first;
            for part in 1..QUAD {
                let lane = first + part;
                for row in self.rows_of(number, lane).iter().filter(|row| !row.given) {
                    let start = self.value(number, row, first);
                    let more = row.stride.wrapping_mul(part as i64);
                    self.set_value(number, row, lane, start.wrapping_add_signed(more));
                }
            }
        }
    }

    /// Has quads go on together again that have come to one place, if what they hold allows it.
    fn rejoin(&mut self, number: usize, state: u32, lanes: u32) {
        let Some(stop) = (state as usize).checked_sub(1) else {
            return;
        };
        let rows = self.code.outline.rows.get(stop);
        for first in (0..LANES).step_by(QUAD) {
            let agrees = |row: &Row| {
                let start = self.value(number, row, first);
                let mut rest = 1..QUAD;
                start.trailing_zeros() >= row.zeros
                    && rest.all(|part| {
                        let more = row.stride.wrapping_mul(part as i64);
                        let expected = row.cut(start.wrapping_add_signed(more));
                        self.value(number, row, first + part) == expected
                    })
            };
            if lanes >> first & ALL == ALL && rows.is_some_and(|rows| rows.iter().all(agrees)) {
                self.warps[number].apart &= !(ALL << first);
            }
        }
    }

    /// What the first lane's frame holds for those that go with it, by where this one is.
    fn rows_of(&self, number: usize, lane: usize) -> &'a [Row] {
        let state = self.states.get(number * LANES + lane);
        let stop = state.map_or(0, |state| *state as usize).wrapping_sub(1);
        self.code.outline.rows.get(stop).map_or(&[], Vec::as_slice)
    }

    /// Which word has a lane's share of a row, and where in it.
    fn at(&self, number: usize, row: &Row, lane: usize) -> (usize, u32) {
        let start = (number * self.code.outline.frame_words + row.word) * LANES;
        match row.is_wide {
            true => (start + lane, 0),
            false => (start + lane / 2, (lane % 2) as u32 * 32),
        }
    }

    fn value(&self, number: usize, row: &Row, lane: usize) -> u64 {
        let (word, shift) = self.at(number, row, lane);
        let word = self.frames.get(word).copied().unwrap_or(0);
        row.cut(word >> shift)
    }

    fn set_value(&mut self, number: usize, row: &Row, lane: usize, value: u64) {
        let (word, shift) = self.at(number, row, lane);
        if let Some(word) = self.frames.get_mut(word) {
            *word = *word & !(row.cut(u64::MAX) << shift) | row.cut(value) << shift;
        }
    }
}

impl Row {
    /// Of 64 bits those that a lane's share has.
    fn cut(&self, value: u64) -> u64 {
        match self.is_wide {
            true => value,
            false => value & 0xffff_ffff,
        }
    }
}
