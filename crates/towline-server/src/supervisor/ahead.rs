//! How many workers wait for clients to come: learnt from clients that had to wait for a worker, and forgotten when nobody does.

use std::time::{Duration, Instant};

/// How long spare workers stay although nobody took them.
const PERIOD: Duration = Duration::from_secs(30);

/// Bounds of how many workers wait for clients to come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// From the start on.
    pub(super) initial: usize,
    /// Once a client has come, at least.
    pub(super) least: usize,
    /// At most, however many clients come at once.
    pub(super) most: usize,
}

/// See the module's text.
pub(super) struct Ahead {
    bounds: Bounds,
    wanted: usize,
    /// The fewest that were ready at once since `since`: so many were spare.
    fewest: usize,
    since: Option<Instant>,
}

impl Ahead {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            wanted: bounds.initial,
            fewest: 0,
            since: None,
        }
    }

    /// How many are to be ready.
    pub(super) fn wanted(&self) -> usize {
        self.wanted
    }

    /// A client has come and found a worker; so many are left.
    pub(super) fn found(&mut self, left: usize) {
        self.wanted = self.wanted.max(self.bounds.least);
        self.fewest = self.fewest.min(left);
    }

    /// A client has come and must wait: one more would have served it.
    pub(super) fn missed(&mut self) {
        self.wanted = (self.wanted + 1)
            .max(self.bounds.least)
            .min(self.bounds.most.max(self.bounds.least));
        self.fewest = 0;
    }

    /// No worker can be started: nobody waits for clients before one can.
    pub(super) fn forget(&mut self) {
        self.wanted = self.bounds.initial;
    }

    /// Lowers the number by what was spare for a whole period; `ready` are ready now. Gives when to look again, unless nothing is spare.
    pub(super) fn review(&mut self, ready: usize, now: Instant) -> Option<Instant> {
        let floor = self.bounds.initial.max(self.bounds.least.min(self.wanted));
        let due = self.since.is_some_and(|since| now >= since + PERIOD);
        if due {
            // One stays spare, for the next burst may be larger by one.
            let spare = self.fewest.saturating_sub(1);
            self.wanted = self.wanted.saturating_sub(spare).max(floor);
        }
        if self.wanted <= floor {
            self.since = None;
        } else if due || self.since.is_none() {
            (self.since, self.fewest) = (Some(now), ready);
        }
        self.since.map(|since| since + PERIOD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds {
        initial: 0,
        least: 1,
        most: 4,
    };

    #[test]
    fn clients_that_wait_raise_the_number_up_to_the_bound() {
        let mut ahead = Ahead::new(BOUNDS);
        assert_eq!(ahead.wanted(), 0);
        let wanted = [(); 5].map(|()| {
            ahead.missed();
            ahead.wanted()
        });
        assert_eq!(wanted, [1, 2, 3, 4, 4]);
    }

    #[test]
    fn what_was_spare_for_a_period_goes_down_to_the_least() {
        let mut ahead = Ahead::new(BOUNDS);
        (0..4).for_each(|_| ahead.missed());
        let mut now = Instant::now();
        let look_again = ahead.review(4, now).unwrap();
        assert_eq!(ahead.review(4, now + PERIOD / 2), Some(look_again));
        // Two are taken at once, and replaced.
        ahead.found(3);
        ahead.found(2);
        now = look_again;
        ahead.review(4, now);
        assert_eq!(ahead.wanted(), 3, "two were used and one is spare");
        // Now none is taken.
        now += PERIOD;
        assert_eq!(ahead.review(3, now), None);
        assert_eq!(ahead.wanted(), 1);
    }

    #[test]
    fn number_stays_while_all_are_used() {
        let mut ahead = Ahead::new(BOUNDS);
        (0..4).for_each(|_| ahead.missed());
        let mut now = Instant::now();
        for _ in 0..10 {
            now = ahead.review(4, now).unwrap();
            ahead.found(0);
        }
        assert_eq!(ahead.wanted(), 4);
    }
}
