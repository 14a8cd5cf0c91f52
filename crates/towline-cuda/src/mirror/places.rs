//! Addresses that mirrors and pinned memory have on both sides, given out going around: those that came back serve again, as late as
//! possible.

use std::collections::BTreeMap;

use super::{FIRST, reserved};

/// Bytes from the first address on: beyond lies what systems place by themselves.
const MOST: u64 = 0x7f00_0000_0000 - FIRST;

/// See the module's text. Addresses are counted from the first.
#[derive(Default)]
pub(super) struct Places {
    /// Ranges in use: where each begins, and its bytes.
    taken: BTreeMap<u64, u64>,
    next: u64,
}

impl Places {
    /// An address with so much room that is not in use.
    pub(super) fn take(&mut self, room: u64) -> Option<u64> {
        let size = reserved(room);
        let at = self.free(self.next, size).or_else(|| self.free(0, size))?;
        self.taken.insert(at, size);
        self.next = at + size;
        Some(FIRST + at)
    }

    /// The first place from here on where so many bytes are free.
    fn free(&self, from: u64, size: u64) -> Option<u64> {
        let before = self.taken.range(..=from).next_back();
        let mut at = before.map_or(from, |(start, length)| from.max(start + length));
        for (start, length) in self.taken.range(at..) {
            if start - at >= size {
                break;
            }
            at = start + length;
        }
        (size <= MOST.saturating_sub(at)).then_some(at)
    }

    /// Nothing is at an address any more that may have come from here.
    pub(super) fn give(&mut self, address: u64) {
        self.taken.remove(&address.wrapping_sub(FIRST));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn addresses_come_again_after_all_others() {
        let mut places = Places::default();
        let kept = places.take(3 * GIB).expect("all are free");
        assert_eq!(kept, FIRST);
        let mut before = kept + 4 * GIB;
        for _ in 0..2 * MOST / GIB {
            let place = places.take(1).expect("one is in use");
            let follows = match place < before {
                true => place == kept + 4 * GIB,
                false => place == before,
            };
            assert!(follows, "{place:#x} behind {before:#x}");
            before = place + GIB;
            places.give(place);
        }
        places.give(kept);
        assert_eq!(places.taken.len(), 0);
    }

    #[test]
    fn gaps_too_small_are_passed_over() {
        let mut places = Places::default();
        let all: Vec<u64> = std::iter::from_fn(|| places.take(1)).collect();
        assert_eq!(all.len() as u64, MOST / GIB);
        [3, 5, 6].iter().for_each(|at| places.give(all[*at]));
        assert_eq!(places.take(GIB), Some(all[5]));
        assert_eq!(places.take(GIB), None);
        assert_eq!(places.take(0), Some(all[3]));
        assert_eq!(places.take(u64::MAX), None);
    }
}
