//! The time that a simulated network goes by.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Which time a simulated network goes by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Time {
    /// Delays take as long as they say.
    #[default]
    Real,
    /// A receiver that waits for bytes in flight moves the network's clock on to their arrival, so delays cost no real time.
    ///
    /// The threads above the link block in locks of their own, so that a network cannot know when all of them are idle. Time therefore
    /// never moves on by itself while nothing is in flight: a wait with a time limit then takes that long in real time, or until the test
    /// says [`MemoryTransport::advance`](super::MemoryTransport::advance).
    Virtual,
}

/// Real time, and in virtual time the delays that were skipped.
#[derive(Debug, Default)]
pub(super) struct Clock {
    time: Time,
    skipped: Mutex<Duration>,
}

impl Clock {
    pub(super) fn new(time: Time) -> Self {
        Self {
            time,
            skipped: Mutex::default(),
        }
    }

    pub(super) fn now(&self) -> Instant {
        Instant::now() + *self.skipped()
    }

    /// Moves on to an instant, and says whether this clock can.
    pub(super) fn skip_to(&self, instant: Instant) -> bool {
        if self.time == Time::Real {
            return false;
        }
        let mut skipped = self.skipped();
        let left = instant.saturating_duration_since(Instant::now() + *skipped);
        *skipped += left;
        true
    }

    /// Moves on by so much, whatever kind of clock it is.
    pub(super) fn advance(&self, by: Duration) {
        *self.skipped() += by;
    }

    fn skipped(&self) -> MutexGuard<'_, Duration> {
        // One addition is all that is done under the lock.
        self.skipped.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
