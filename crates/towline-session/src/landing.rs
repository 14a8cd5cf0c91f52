//! Accounting of one payload at its receiver: what may come, what has come, what is coming right now.

/// A chunk that was not asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LandingError {
    /// No bytes at all: chunks are told apart by where they start.
    #[error("a chunk without bytes comes at {offset}")]
    Empty {
        /// Where it would start.
        offset: u64,
    },
    /// Outside the payload.
    #[error("bytes {offset}..+{length} lie outside the payload of {size}")]
    Outside {
        /// Where the chunk starts.
        offset: u64,
        /// Its length.
        length: u64,
        /// The payload's size.
        size: u64,
    },
    /// Bytes that have come already, or that another lane is receiving.
    #[error("bytes {offset}..+{length} come twice")]
    Overlap {
        /// Where the chunk starts.
        offset: u64,
        /// Its length.
        length: u64,
    },
    /// More gaps between chunks than lanes and windows can explain.
    #[error("the chunks leave more than {SPAN_LIMIT} gaps")]
    Scattered,
}

/// Most separate spans of claimed bytes. An honest sender leaves one gap for each lane and open window; the limit keeps a hostile one
/// from growing the list.
const SPAN_LIMIT: usize = 4096;

/// The receiver's view of a payload. Chunks come on several lanes at once and in any order.
///
/// A payload counts as complete in one way only: [`Landing::arrived`] gives a [`Whole`] when the last of its bytes is in place. Whatever
/// ends a transfer as a success takes that proof.
///
/// ```
/// let mut landing = towline_session::Landing::new(8);
/// let (first, second) = (landing.claim(0, 3).unwrap(), landing.claim(3, 5).unwrap());
/// assert!(landing.arrived(second).is_none());
/// assert!(landing.arrived(first).is_some());
/// ```
#[derive(Debug)]
pub struct Landing {
    size: u64,
    /// Bytes that have not arrived.
    missing: u64,
    /// Start and end of what was claimed, in order, none touching the next.
    claimed: Vec<(u64, u64)>,
}

/// The right to receive some bytes of a payload, once. Dropped without [`Landing::arrived`] it leaves the payload incomplete for good.
#[derive(Debug)]
#[must_use = "a payload is never complete without the bytes of every claim"]
pub struct Claim {
    length: u64,
}

/// Proof that every byte of a payload is in place.
#[derive(Debug)]
pub struct Whole(());

impl Landing {
    /// A payload of `size` bytes, none of which has come.
    pub fn new(size: u64) -> Self {
        Self {
            size,
            missing: size,
            claimed: Vec::new(),
        }
    }

    /// Claims a chunk before its bytes are taken from the lane.
    pub fn claim(&mut self, offset: u64, length: u64) -> Result<Claim, LandingError> {
        if length == 0 {
            return Err(LandingError::Empty { offset });
        }
        let end = offset.checked_add(length).filter(|end| *end <= self.size);
        let Some(end) = end else {
            return Err(LandingError::Outside {
                offset,
                length,
                size: self.size,
            });
        };
        // The first span that ends at or behind the chunk's start, and the first that starts behind its end.
        let first = self.claimed.partition_point(|(_, stop)| *stop < offset);
        let behind = self.claimed.partition_point(|(start, _)| *start <= end);
        let spans = self.claimed.len();
        let touched = self.claimed.get_mut(first..behind).unwrap_or_default();
        if touched
            .iter()
            .any(|(start, stop)| offset < *stop && *start < end)
        {
            return Err(LandingError::Overlap { offset, length });
        }
        match touched {
            [] if spans >= SPAN_LIMIT => return Err(LandingError::Scattered),
            [] => self.claimed.insert(first, (offset, end)),
            [span] => *span = (span.0.min(offset), span.1.max(end)),
            [before, .., after] => {
                before.1 = after.1;
                self.claimed.drain(first + 1..behind);
            }
        }
        Ok(Claim { length })
    }

    /// The bytes of a claim of this payload are in place; with the last of them the payload is whole.
    pub fn arrived(&mut self, claim: Claim) -> Option<Whole> {
        self.missing = self.missing.saturating_sub(claim.length);
        (self.missing == 0).then_some(Whole(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_complete_when_all_chunks_arrived_in_any_order() {
        let mut landing = Landing::new(100);
        let last = landing.claim(60, 40).unwrap();
        let first = landing.claim(0, 60).unwrap();
        assert!(landing.arrived(first).is_none());
        assert!(landing.arrived(last).is_some());
    }

    #[test]
    fn chunks_outside_or_empty_are_refused() {
        let mut landing = Landing::new(100);
        let outside = |landed: Result<Claim, LandingError>| {
            assert!(matches!(landed, Err(LandingError::Outside { .. })));
        };
        outside(landing.claim(90, 11));
        outside(landing.claim(u64::MAX, 2));
        let empty = landing.claim(0, 0);
        assert!(matches!(empty, Err(LandingError::Empty { offset: 0 })));
    }

    #[test]
    fn bytes_come_once_even_after_they_arrived() {
        let mut landing = Landing::new(100);
        let refused = |landed: Result<Claim, LandingError>| {
            assert!(matches!(landed, Err(LandingError::Overlap { .. })));
        };
        let middle = landing.claim(20, 40).unwrap();
        refused(landing.claim(50, 20));
        assert!(landing.arrived(middle).is_none());
        refused(landing.claim(20, 40));
        refused(landing.claim(0, 100));
        refused(landing.claim(59, 1));
        let rest = [
            landing.claim(0, 20).unwrap(),
            landing.claim(60, 40).unwrap(),
        ];
        let [before, after] = rest;
        assert!(landing.arrived(after).is_none());
        assert!(landing.arrived(before).is_some());
    }

    #[test]
    fn a_claim_that_never_arrives_leaves_the_payload_incomplete() {
        let mut landing = Landing::new(100);
        drop(landing.claim(0, 50).unwrap());
        let rest = landing.claim(50, 50).unwrap();
        assert!(landing.arrived(rest).is_none());
        assert!(landing.claim(0, 50).is_err());
    }

    #[test]
    fn scattered_chunks_do_not_grow_the_list_without_end() {
        let mut landing = Landing::new(u64::MAX);
        for index in 0..SPAN_LIMIT as u64 {
            drop(landing.claim(2 * index, 1).unwrap());
        }
        let more = landing.claim(u64::MAX - 1, 1);
        assert!(matches!(more, Err(LandingError::Scattered)));
        // A chunk that closes a gap makes room.
        drop(landing.claim(1, 1).unwrap());
        drop(landing.claim(u64::MAX - 1, 1).unwrap());
    }
}
