//! How the two ends of an encrypted lane prove that they belong to one session.
//!
//! The ticket in front of a lane only routes it: it can be read. Inside the lane's TLS both ends prove that they know a key that no one
//! else has: of a client's lane what the control connection exports, of a peer lane what both supervisors made of their credential. The
//! proofs cover what the lane itself exports, so that nobody stands in the middle of it.

use std::fmt;

use super::codec::redacted;
use super::message::PROOF_BYTES;
use super::token::{Exported, Role, Token};

/// The secret that only the ends of a lane know.
#[derive(Clone, Eq, PartialEq)]
pub struct LaneKey([u8; 32]);

/// Which end of which kind of lane proves itself.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LaneEnd {
    /// The client, of one of its session's lanes.
    Client {
        /// 0 is the command lane.
        index: u16,
        /// How many lanes the session has.
        count: u16,
    },
    /// The worker, of the same.
    Worker {
        /// 0 is the command lane.
        index: u16,
        /// How many lanes the session has.
        count: u16,
    },
    /// The worker of the server that accepted a peer lane.
    PeerAccepts,
    /// The worker of the server that connected it.
    PeerConnects,
}

impl LaneKey {
    /// The key of these bytes.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Its bytes, to hand it to a worker.
    pub fn to_bytes(&self) -> [u8; 32] {
        self.0
    }

    /// The proof of an end, for a lane that exports `binding`.
    pub fn prove(&self, end: LaneEnd, binding: &Exported) -> [u8; PROOF_BYTES] {
        Token::of_secret(&self.0).prove(end.role(), &[binding, &end.place()])
    }

    /// Whether the other end's proof is right, in constant time.
    pub fn verify(&self, end: LaneEnd, binding: &Exported, proof: &[u8; PROOF_BYTES]) -> bool {
        Token::of_secret(&self.0).verify(end.role(), &[binding, &end.place()], proof)
    }
}

impl LaneEnd {
    /// The other end.
    pub fn other(self) -> Self {
        match self {
            Self::Client { index, count } => Self::Worker { index, count },
            Self::Worker { index, count } => Self::Client { index, count },
            Self::PeerAccepts => Self::PeerConnects,
            Self::PeerConnects => Self::PeerAccepts,
        }
    }

    /// Whether this end opened the connection, and so is the client of its TLS.
    pub fn connects(self) -> bool {
        matches!(self, Self::Client { .. } | Self::PeerConnects)
    }

    fn role(self) -> Role {
        match self {
            Self::Client { .. } => Role::LaneClient,
            Self::Worker { .. } => Role::LaneWorker,
            Self::PeerAccepts => Role::PeerLaneAccepts,
            Self::PeerConnects => Role::PeerLaneConnects,
        }
    }

    /// Index and count, as the preamble has them, and zeros.
    fn place(self) -> [u8; 32] {
        let mut place = [0; 32];
        if let Self::Client { index, count } | Self::Worker { index, count } = self {
            place[..2].copy_from_slice(&index.to_le_bytes());
            place[2..4].copy_from_slice(&count.to_le_bytes());
        }
        place
    }
}

impl fmt::Debug for LaneKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        redacted(f, "LaneKey")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_good_for_one_end_place_and_connection() {
        let key = LaneKey::from_bytes([1; 32]);
        let end = LaneEnd::Client { index: 1, count: 5 };
        let proof = key.prove(end, &[2; 32]);
        assert!(key.verify(end, &[2; 32], &proof));
        assert!(!key.verify(end, &[3; 32], &proof));
        assert!(!key.verify(end.other(), &[2; 32], &proof));
        assert!(!key.verify(LaneEnd::PeerConnects, &[2; 32], &proof));
        let elsewhere = LaneEnd::Client { index: 2, count: 5 };
        assert!(!key.verify(elsewhere, &[2; 32], &proof));
        assert!(!LaneKey::from_bytes([4; 32]).verify(end, &[2; 32], &proof));
    }
}
