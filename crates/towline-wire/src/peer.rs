//! What two workers say to each other on a peer lane: grants one way, chunks the other, and how a transfer fails.
//!
//! Both may send and receive at once. Payload numbers count per direction, so a frame's kind tells whose transfer it means.

use crate::codec::Decoder;
use crate::error::DecodeError;
use crate::frame::CHUNK_LIMIT;

/// Bytes of every frame; a chunk's bytes come behind it.
pub const PEER_FRAME: usize = 40;

/// One frame: `kind u32, status i32, payload u64, offset u64, length u64, size u64`. What a kind does not use is zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerFrame {
    /// From the sender of a payload: bytes of it follow.
    Chunk {
        /// Which payload.
        payload: u64,
        /// Where in it.
        offset: u64,
        /// How many.
        length: u32,
    },
    /// From the receiver: these bytes have a place to go.
    Grant {
        /// Which payload.
        payload: u64,
        /// Where in it.
        offset: u64,
        /// How many.
        length: u64,
        /// Bytes of the whole payload, as its receiver has been told.
        size: u64,
    },
    /// From the sender: no more bytes will come. Its receiver answers with [`PeerFrame::Over`].
    NoData {
        /// Which payload.
        payload: u64,
        /// Why: a status of the API, negative.
        status: i32,
    },
    /// From the receiver: no more bytes are wanted. Its sender answers with [`PeerFrame::NoData`], unless it has sent that.
    Refuse {
        /// Which payload.
        payload: u64,
        /// Why: a status of the API, negative.
        status: i32,
    },
    /// From the receiver: the answer to [`PeerFrame::NoData`]; nothing more will come of this payload.
    Over {
        /// Which payload.
        payload: u64,
    },
}

impl PeerFrame {
    /// The frame's bytes.
    pub fn to_bytes(self) -> [u8; PEER_FRAME] {
        let (kind, status, words) = match self {
            Self::Chunk {
                payload,
                offset,
                length,
            } => (0_u32, 0, [payload, offset, length.into(), 0]),
            Self::Grant {
                payload,
                offset,
                length,
                size,
            } => (1, 0, [payload, offset, length, size]),
            Self::NoData { payload, status } => (2, status, [payload, 0, 0, 0]),
            Self::Refuse { payload, status } => (3, status, [payload, 0, 0, 0]),
            Self::Over { payload } => (4, 0, [payload, 0, 0, 0]),
        };
        let mut out = [0; PEER_FRAME];
        out[..4].copy_from_slice(&kind.to_le_bytes());
        out[4..8].copy_from_slice(&status.to_le_bytes());
        for (field, word) in out[8..].as_chunks_mut::<8>().0.iter_mut().zip(words) {
            field.copy_from_slice(&word.to_le_bytes());
        }
        out
    }

    /// Reads a frame and checks what can be checked without knowing its payload.
    pub fn from_bytes(bytes: &[u8; PEER_FRAME]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(bytes);
        let kind = decoder.scalar::<u32>()?;
        let status = decoder.scalar::<i32>()?;
        let [payload, offset, length, size] = [
            decoder.scalar::<u64>()?,
            decoder.scalar::<u64>()?,
            decoder.scalar::<u64>()?,
            decoder.scalar::<u64>()?,
        ];
        let bad = |what, value| Err(DecodeError::BadValue { what, value });
        let frame = match kind {
            0 if length > CHUNK_LIMIT as u64 => {
                return Err(DecodeError::TooLong {
                    what: "chunk",
                    len: length,
                    limit: CHUNK_LIMIT as u64,
                });
            }
            0 => Self::Chunk {
                payload,
                offset,
                length: length as u32,
            },
            1 if length == 0 || offset.checked_add(length).is_none_or(|end| end > size) => {
                return bad("length of a peer's grant", length);
            }
            1 => Self::Grant {
                payload,
                offset,
                length,
                size,
            },
            2 | 3 if status >= 0 => return bad("status of a peer", status as u64),
            2 => Self::NoData { payload, status },
            3 => Self::Refuse { payload, status },
            4 => Self::Over { payload },
            _ => return bad("kind of a peer's frame", kind.into()),
        };
        // One encoding each: what a kind does not use must be zero.
        match frame.to_bytes() == *bytes {
            true => Ok(frame),
            false => bad("unused field of a peer's frame", kind.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame() -> impl Strategy<Value = PeerFrame> {
        prop_oneof![
            (any::<u64>(), any::<u64>(), 0..=CHUNK_LIMIT as u32).prop_map(
                |(payload, offset, length)| PeerFrame::Chunk {
                    payload,
                    offset,
                    length
                }
            ),
            (any::<u64>(), 0..1_u64 << 62, 1..1_u64 << 62).prop_map(|(payload, offset, length)| {
                PeerFrame::Grant {
                    payload,
                    offset,
                    length,
                    size: offset + length,
                }
            }),
            (any::<u64>(), i32::MIN..0)
                .prop_map(|(payload, status)| PeerFrame::NoData { payload, status }),
            (any::<u64>(), i32::MIN..0)
                .prop_map(|(payload, status)| PeerFrame::Refuse { payload, status }),
            any::<u64>().prop_map(|payload| PeerFrame::Over { payload }),
        ]
    }

    proptest! {
        #[test]
        fn every_frame_comes_back(frame in frame()) {
            prop_assert_eq!(PeerFrame::from_bytes(&frame.to_bytes()), Ok(frame));
        }

        #[test]
        fn what_decodes_has_one_encoding(bytes in any::<[u8; PEER_FRAME]>(), kind in 0..6_u8) {
            let mut bytes = bytes;
            bytes[..4].copy_from_slice(&[kind, 0, 0, 0]);
            if let Ok(frame) = PeerFrame::from_bytes(&bytes) {
                prop_assert_eq!(frame.to_bytes(), bytes);
            }
        }
    }

    #[test]
    fn what_can_never_be_honest_is_refused() {
        let grant = |offset, length, size| {
            let frame = PeerFrame::Grant {
                payload: 1,
                offset,
                length,
                size,
            };
            PeerFrame::from_bytes(&frame.to_bytes())
        };
        assert!(grant(0, 0, 9).is_err());
        assert!(grant(8, 2, 9).is_err());
        assert!(grant(u64::MAX, 2, 9).is_err());
        let frame = PeerFrame::NoData {
            payload: 1,
            status: 0,
        };
        assert!(PeerFrame::from_bytes(&frame.to_bytes()).is_err());
        let frame = PeerFrame::Chunk {
            payload: 1,
            offset: 0,
            length: CHUNK_LIMIT as u32 + 1,
        };
        assert!(PeerFrame::from_bytes(&frame.to_bytes()).is_err());
    }
}
