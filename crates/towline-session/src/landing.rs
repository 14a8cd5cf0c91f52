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
    /// More bytes than the payload has left.
    #[error("{length} bytes come with {left} left to come")]
    Excess {
        /// Bytes of the chunk.
        length: u64,
        /// Bytes that the payload still misses.
        left: u64,
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
    /// Another lane is receiving these bytes.
    #[error("bytes {offset}..+{length} come twice at once")]
    Overlap {
        /// Where the chunk starts.
        offset: u64,
        /// Its length.
        length: u64,
    },
}

/// The receiver's view of a payload. Chunks come on several lanes at once and in any order.
#[derive(Debug)]
pub struct Landing {
    size: u64,
    /// Bytes neither received nor being received.
    unclaimed: u64,
    arriving: Vec<(u64, u64)>,
}

impl Landing {
    /// A payload of `size` bytes, none of which has come.
    pub fn new(size: u64) -> Self {
        Self {
            size,
            unclaimed: size,
            arriving: Vec::new(),
        }
    }

    /// Claims a chunk before its bytes are taken from the lane.
    pub fn claim(&mut self, offset: u64, length: u64) -> Result<(), LandingError> {
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
        if length > self.unclaimed {
            return Err(LandingError::Excess {
                length,
                left: self.unclaimed,
            });
        }
        if self
            .arriving
            .iter()
            .any(|(start, stop)| offset < *stop && *start < end)
        {
            return Err(LandingError::Overlap { offset, length });
        }
        self.unclaimed -= length;
        self.arriving.push((offset, end));
        Ok(())
    }

    /// A claimed chunk has arrived; tells whether the payload is complete.
    pub fn arrived(&mut self, offset: u64) -> bool {
        if let Some(at) = self.arriving.iter().position(|(start, _)| *start == offset) {
            self.arriving.swap_remove(at);
        }
        self.unclaimed == 0 && self.arriving.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_complete_when_all_chunks_arrived_in_any_order() {
        let mut landing = Landing::new(100);
        assert_eq!(landing.claim(60, 40), Ok(()));
        assert_eq!(landing.claim(0, 60), Ok(()));
        assert!(!landing.arrived(0));
        assert!(landing.arrived(60));
    }

    #[test]
    fn chunks_outside_twice_or_in_excess_are_refused() {
        let mut landing = Landing::new(100);
        assert!(matches!(
            landing.claim(90, 11),
            Err(LandingError::Outside { .. })
        ));
        assert!(matches!(
            landing.claim(u64::MAX, 2),
            Err(LandingError::Outside { .. })
        ));
        assert_eq!(landing.claim(0, 60), Ok(()));
        assert_eq!(landing.claim(0, 0), Err(LandingError::Empty { offset: 0 }));
        assert!(matches!(
            landing.claim(50, 20),
            Err(LandingError::Overlap { .. })
        ));
        assert!(!landing.arrived(0));
        assert!(matches!(
            landing.claim(0, 60),
            Err(LandingError::Excess { .. })
        ));
    }
}
