//! How a data lane introduces itself.
//!
//! The supervisor reads exactly [`AttachPreamble::BYTES`] and hands the connection to the worker, so the client may send
//! frames right behind the preamble.

use std::fmt;

use subtle::ConstantTimeEq;

use super::codec::{ControlError, Reader, Writer, redacted};
use super::{frame, limits};

/// First bytes of a lane: "TWLA".
const ATTACH_MAGIC: [u8; 4] = *b"TWLA";
/// The version of a lane's first connection, and of those that take its place.
const ATTACH_VERSIONS: [u16; 2] = [1, 2];
/// First bytes of another server's connection: "TWLP".
pub(super) const PEER_MAGIC: [u8; 4] = *b"TWLP";

/// Length of a [`Ticket`].
pub const TICKET_BYTES: usize = 32;

/// The secret that lets a connection join a session. Random, given out once: in a `Welcome`, then good for its lanes, or for
/// one peer lane, then good for that alone.
#[derive(Clone, Eq)]
pub struct Ticket([u8; TICKET_BYTES]);

impl Ticket {
    /// A ticket from 32 random bytes.
    pub fn from_random(bytes: [u8; TICKET_BYTES]) -> Self {
        Self(bytes)
    }

    pub(super) fn bytes(&self) -> &[u8; TICKET_BYTES] {
        &self.0
    }
}

/// Takes the same time wherever the tickets differ, so that one cannot be guessed byte by byte.
impl PartialEq for Ticket {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        redacted(f, "Ticket")
    }
}

/// What a new connection is, by its first four bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ConnectionKind {
    /// It starts with a control message.
    Control,
    /// It starts with an [`AttachPreamble`].
    Lane,
    /// Another server, which begins the handshake of a peer lane.
    Peer,
}

impl ConnectionKind {
    /// How many bytes tell the kinds apart.
    pub const BYTES: usize = 4;

    /// The kind of a connection that starts with `bytes`.
    pub fn of(bytes: &[u8; Self::BYTES]) -> Result<Self, ControlError> {
        match *bytes {
            frame::CONTROL_MAGIC => Ok(Self::Control),
            ATTACH_MAGIC => Ok(Self::Lane),
            PEER_MAGIC => Ok(Self::Peer),
            _ => Err(ControlError::BadMagic),
        }
    }
}

/// The first bytes of every lane: which session it belongs to and which of its lanes it is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AttachPreamble {
    /// The ticket from the `Welcome`.
    pub ticket: Ticket,
    /// 0 is the command lane, 1.. are payload lanes.
    pub lane_index: u16,
    /// How many lanes the session will have in all. The same in every preamble of a session.
    pub lane_count: u16,
    /// The connection takes the place of one that was cut.
    pub again: bool,
}

impl AttachPreamble {
    /// Size on the wire.
    pub const BYTES: usize = 4 + 2 + TICKET_BYTES + 2 + 2;

    /// The bytes to send first on a lane.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut writer = Writer::default();
        writer.raw(&ATTACH_MAGIC);
        writer.u16(ATTACH_VERSIONS[usize::from(self.again)]);
        writer.raw(self.ticket.bytes());
        writer.u16(self.lane_index);
        writer.u16(self.lane_count);
        writer
            .into_bytes()
            .try_into()
            .expect("the fields add up to BYTES")
    }

    /// Parses and checks what a lane sent first. The ticket itself is the caller's to check.
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Result<Self, ControlError> {
        let mut reader = Reader::new(bytes);
        if reader.array::<4>("lane magic")? != ATTACH_MAGIC {
            return Err(ControlError::BadMagic);
        }
        let version = reader.u16("lane version")?;
        if !ATTACH_VERSIONS.contains(&version) {
            return Err(ControlError::InvalidValue {
                field: "lane version",
                value: version.into(),
            });
        }
        let ticket = Ticket(reader.array("ticket")?);
        let lane_index = reader.u16("lane index")?;
        let lane_count = reader.u16("lane count")?;
        if !(1..=limits::LANES).contains(&lane_count) {
            return Err(ControlError::InvalidValue {
                field: "lane count",
                value: lane_count.into(),
            });
        }
        if lane_index >= lane_count {
            return Err(ControlError::InvalidValue {
                field: "lane index",
                value: lane_index.into(),
            });
        }
        reader.finish()?;
        Ok(Self {
            ticket,
            lane_index,
            lane_count,
            again: version == ATTACH_VERSIONS[1],
        })
    }
}
