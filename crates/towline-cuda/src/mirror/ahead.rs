//! Blocks that the host touches after each wait are fetched with the wait, so that no thread stands still for them.

use std::collections::BTreeMap;

/// Rounds in a row after which a block is fetched ahead. A round is work of the device, a wait, and the host's touch.
const PROVEN: u8 = 2;
/// Fetches ahead of a block before the host has to touch it by itself again: a block that is there tells of no touch.
const ROUNDS: u8 = 32;
/// Waits of a round, at most: programs wait for a stream, and for the device besides.
const WAITS: u64 = 2;
/// Most blocks of a mirror that are watched.
const WATCHED: usize = 16;

/// The latest rounds of a block.
#[derive(Default)]
struct Rounds {
    /// The number of the last wait before the device was given the block.
    given: u64,
    touched: u8,
    writes: bool,
    fetched: u8,
}

/// The rounds of blocks that the host has touched.
#[derive(Default)]
pub(super) struct Ahead(BTreeMap<usize, Rounds>);

impl Ahead {
    /// The device is given a block behind so many waits.
    pub(super) fn give(&mut self, at: usize, waits: u64) {
        if let Some(rounds) = self.0.get_mut(&at) {
            rounds.given = waits;
        }
    }

    /// The host touches a block of the device's; whether it is to be fetched ahead from now on.
    pub(super) fn touch(&mut self, at: usize, waits: u64) -> bool {
        if self.0.len() >= WATCHED && !self.0.contains_key(&at) {
            self.0.retain(|_, rounds| rounds.touched > 0);
            if self.0.len() >= WATCHED {
                return false;
            }
        }
        let rounds = self.0.entry(at).or_default();
        rounds.touched = match is_round(rounds.given, waits) {
            true => rounds.touched.saturating_add(1),
            false => 0,
        };
        rounds.touched >= PROVEN
    }

    /// The host writes to a block.
    pub(super) fn write(&mut self, at: usize) {
        if let Some(rounds) = self.0.get_mut(&at) {
            rounds.writes = true;
        }
    }

    /// Blocks to be fetched behind a wait, and whether the host is to write to them.
    pub(super) fn take(&mut self, waits: u64) -> Vec<(usize, bool)> {
        let mut wanted = Vec::new();
        for (at, rounds) in &mut self.0 {
            if rounds.touched < PROVEN || !is_round(rounds.given, waits) {
                continue;
            }
            if rounds.fetched < ROUNDS {
                rounds.fetched += 1;
                wanted.push((*at, rounds.writes));
            } else {
                rounds.touched = PROVEN - 1;
                rounds.fetched = 0;
                rounds.writes = false;
            }
        }
        wanted
    }

    /// Whether any block is to be fetched ahead.
    pub(super) fn any(&self) -> bool {
        self.0.values().any(|rounds| rounds.touched >= PROVEN)
    }
}

fn is_round(given: u64, waits: u64) -> bool {
    given != 0 && (1..=WAITS).contains(&waits.wrapping_sub(given))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A round in which the host touches a block by itself.
    fn round(ahead: &mut Ahead, waits: &mut u64) -> bool {
        ahead.give(7, *waits);
        *waits += 1;
        ahead.touch(7, *waits)
    }

    #[test]
    fn blocks_touched_round_after_round_are_fetched() {
        let (mut ahead, mut waits) = (Ahead::default(), 1);
        assert!(!ahead.touch(7, waits));
        assert!(!round(&mut ahead, &mut waits));
        assert!(ahead.take(waits).is_empty() && !ahead.any());
        assert!(round(&mut ahead, &mut waits));
        ahead.give(7, waits);
        assert_eq!(ahead.take(waits), [], "nothing was waited for");
        assert_eq!(ahead.take(waits + 1), [(7, false)]);
        assert_eq!(ahead.take(waits + 3), [], "it was given long ago");
    }

    #[test]
    fn written_blocks_are_fetched_for_writing() {
        let (mut ahead, mut waits) = (Ahead::default(), 1);
        ahead.touch(7, waits);
        ahead.write(7);
        round(&mut ahead, &mut waits);
        round(&mut ahead, &mut waits);
        ahead.give(7, waits);
        assert_eq!(ahead.take(waits + 1), [(7, true)]);
    }

    #[test]
    fn blocks_no_longer_touched_are_left() {
        let (mut ahead, mut waits) = (Ahead::default(), 1);
        ahead.touch(7, waits);
        round(&mut ahead, &mut waits);
        round(&mut ahead, &mut waits);
        let mut fetched = 0;
        for _ in 0..1000 {
            ahead.give(7, waits);
            waits += 1;
            fetched += ahead.take(waits).len();
        }
        assert_eq!(fetched, usize::from(ROUNDS));
        assert!(!ahead.any());
        // One touch shows that it is wanted again.
        assert!(round(&mut ahead, &mut waits));
    }

    #[test]
    fn blocks_touched_now_and_then_are_not_fetched() {
        let (mut ahead, mut waits) = (Ahead::default(), 1);
        for _ in 0..20 {
            ahead.give(7, waits);
            waits += 5;
            assert!(!ahead.touch(7, waits));
        }
    }

    #[test]
    fn few_blocks_are_watched() {
        let mut ahead = Ahead::default();
        for at in 0..1000 {
            ahead.touch(at, 1);
        }
        assert!(ahead.0.len() <= WATCHED);
    }
}
