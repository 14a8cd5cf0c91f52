//! What a peer can do wrong, with the one code for each that closes a session.

use std::fmt;

/// Bytes that are no message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// A flag byte other than 0 or 1.
    #[error("flag byte is {0}, must be 0 or 1")]
    BadFlag(u8),
    /// Text that is not UTF-8.
    #[error("text is not UTF-8")]
    BadText,
    /// A value outside the set that the protocol names.
    #[error("{what} has no meaning for value {value}")]
    BadValue {
        /// Which field.
        what: &'static str,
        /// What it held.
        value: u64,
    },
    /// A count beside a list that has another length.
    #[error("{what} says {said}, the list has {found}")]
    LengthMismatch {
        /// The list.
        what: &'static str,
        /// What the count parameter says.
        said: u64,
        /// How long the list is.
        found: u64,
    },
    /// Longer than the protocol allows.
    #[error("{what} of {len} bytes is over the limit of {limit}")]
    TooLong {
        /// Which thing.
        what: &'static str,
        /// Its length.
        len: u64,
        /// The limit.
        limit: u64,
    },
    /// Bytes left after the last field.
    #[error("{0} bytes left after the last field")]
    Trailing(usize),
    /// Fewer bytes than a field needs.
    #[error("a field of {wanted} bytes starts with {left} left")]
    Truncated {
        /// Bytes that the field needs.
        wanted: usize,
        /// Bytes that are there.
        left: usize,
    },
}

/// Why a session was closed by the side that noticed. The numbers are the protocol's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[repr(u16)]
pub enum CloseCode {
    /// The peer said goodbye.
    Normal = 0,
    /// A message could not be decoded.
    Malformed = 1,
    /// A call id that this side does not know.
    UnknownCall = 2,
    /// A handle that was never created, or was released.
    UnknownHandle = 3,
    /// A frame out of sequence.
    OutOfSequence = 4,
    /// A named limit was passed.
    LimitExceeded = 5,
    /// A payload chunk outside what was announced or granted.
    UnexpectedPayload = 6,
    /// A handle was created twice.
    DuplicateHandle = 7,
    /// The worker failed for a reason of its own.
    Internal = 8,
    /// A connection of the session is gone, and with it what was on its way.
    LaneLost = 9,
    /// A limit that the server sets was passed.
    ServerLimit = 10,
}

impl CloseCode {
    /// The code of this number, when the protocol has one.
    pub fn from_number(number: u16) -> Option<Self> {
        Some(match number {
            0 => Self::Normal,
            1 => Self::Malformed,
            2 => Self::UnknownCall,
            3 => Self::UnknownHandle,
            4 => Self::OutOfSequence,
            5 => Self::LimitExceeded,
            6 => Self::UnexpectedPayload,
            7 => Self::DuplicateHandle,
            8 => Self::Internal,
            9 => Self::LaneLost,
            10 => Self::ServerLimit,
            _ => return None,
        })
    }
}

impl fmt::Display for CloseCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Normal => "the session ended",
            Self::Malformed => {
                "a message could not be decoded (are both sides of the same version?)"
            }
            Self::UnknownCall => {
                "a call that this side does not know (are both sides of the same version?)"
            }
            Self::UnknownHandle => "a handle that does not exist",
            Self::OutOfSequence => "a frame out of sequence",
            Self::LimitExceeded => "a limit of the protocol was exceeded",
            Self::UnexpectedPayload => "payload that nobody asked for",
            Self::DuplicateHandle => "a handle was created twice",
            Self::Internal => "the worker failed",
            Self::LaneLost => "a connection of the session was lost",
            Self::ServerLimit => "a limit of the server was exceeded",
        })
    }
}

/// The peer broke the rules: the session ends with this code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {detail}")]
pub struct ProtocolError {
    /// The code that goes to the peer.
    pub code: CloseCode,
    /// What was seen, for the log.
    pub detail: String,
}

impl ProtocolError {
    /// An error with its detail.
    pub fn new(code: CloseCode, detail: impl Into<String>) -> Self {
        Self {
            code,
            detail: detail.into(),
        }
    }
}

impl From<DecodeError> for ProtocolError {
    fn from(error: DecodeError) -> Self {
        let code = match error {
            DecodeError::TooLong { .. } => CloseCode::LimitExceeded,
            _ => CloseCode::Malformed,
        };
        Self::new(code, error.to_string())
    }
}
