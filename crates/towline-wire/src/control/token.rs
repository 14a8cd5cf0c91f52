//! The shared secret of a server and its clients, and the proofs of knowing it.
//!
//! The token never crosses the wire. Each side proves it with HMAC-SHA256 over a role label and the hashes of all
//! messages so far, which hold both nonces: a proof is good for one handshake, one direction and exactly these versions
//! and names.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::codec::redacted;
use super::message::PROOF_BYTES;

/// 32 bytes that only the two ends of an encrypted connection know: what TLS exports under a label.
pub type Exported = [u8; 32];

/// Shorter tokens could be found by trying, given one recorded handshake.
const MIN_TOKEN_BYTES: usize = 16;
/// No honest token is longer; it guards against pointing `--token-file` at the wrong file.
const MAX_TOKEN_BYTES: usize = 4096;

/// A shared secret.
#[derive(Clone, Eq, PartialEq)]
pub struct Token(Vec<u8>);

/// Why bytes are no [`Token`].
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// It could be guessed.
    #[error(
        "the token has {len_bytes} bytes, fewer than {MIN_TOKEN_BYTES}; make one with `head -c 32 /dev/urandom | base64`"
    )]
    TooShort {
        /// Its length.
        len_bytes: usize,
    },
    /// It is no token.
    #[error(
        "the token has {len_bytes} bytes, more than {MAX_TOKEN_BYTES}; this is not a token file"
    )]
    TooLong {
        /// Its length.
        len_bytes: usize,
    },
}

impl Token {
    /// The most that a token file needs to be read.
    pub const MAX_BYTES: usize = MAX_TOKEN_BYTES;

    /// A token from the contents of a token file. White space around it is not part of it, so that editors do no harm.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, TokenError> {
        let token = bytes.trim_ascii();
        match token.len() {
            len_bytes if len_bytes < MIN_TOKEN_BYTES => Err(TokenError::TooShort { len_bytes }),
            len_bytes if len_bytes > MAX_TOKEN_BYTES => Err(TokenError::TooLong { len_bytes }),
            _ => Ok(Self(token.to_vec())),
        }
    }

    /// Compares with a text in a time that tells of lengths alone; true where it is the token.
    pub fn is(&self, text: &[u8]) -> bool {
        self.0.ct_eq(text).into()
    }

    /// The token of a lease that is asked for with this one: in hexadecimal, so that it can be written to a file. It never crosses the wire.
    pub fn of_lease(&self, name: &str, nonce: &[u8; 32]) -> Self {
        let name = Sha256::digest(name);
        let secret = self.prove(Role::Lease, &[&name.into(), nonce]);
        let digits = secret.iter().map(|byte| format!("{byte:02x}"));
        Self(digits.collect::<String>().into_bytes())
    }

    /// The text, for a file that its owner alone may read.
    pub fn to_text(&self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }

    /// Another secret in the place of a token: a ticket, or what a connection exports.
    pub(super) fn of_secret(secret: &[u8]) -> Self {
        Self(secret.to_vec())
    }

    /// What a server compares proofs of tenants with that it does not know, so that the answer takes as long as any.
    pub(super) fn of_nobody() -> Self {
        Self::of_secret(&[0; 64])
    }

    pub(super) fn prove(&self, role: Role, transcript: &[&[u8; 32]]) -> [u8; PROOF_BYTES] {
        self.mac(role, transcript).finalize().into_bytes().into()
    }

    /// Whether `proof` is right, in constant time.
    pub(super) fn verify(
        &self,
        role: Role,
        transcript: &[&[u8; 32]],
        proof: &[u8; PROOF_BYTES],
    ) -> bool {
        self.mac(role, transcript).verify_slice(proof).is_ok()
    }

    fn mac(&self, role: Role, transcript: &[&[u8; 32]]) -> Hmac<Sha256> {
        #[cfg(test)]
        MACS.set(MACS.get() + 1);
        let mut mac =
            Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        mac.update(role.label());
        for hash in transcript {
            mac.update(*hash);
        }
        mac
    }
}

#[cfg(test)]
thread_local! {
    static MACS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// How many proofs this thread has computed, its own and those that it compared.
#[cfg(test)]
pub(super) fn macs() -> u64 {
    MACS.get()
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        redacted(f, "Token")
    }
}

/// Who proves. Different labels keep one side's proof from being sent back as the other's.
#[derive(Clone, Copy, Debug)]
pub(super) enum Role {
    Client,
    LaneClient,
    LaneWorker,
    Lease,
    PeerAccepts,
    PeerConnects,
    PeerLane,
    PeerLaneAccepts,
    PeerLaneConnects,
    Server,
}

impl Role {
    fn label(self) -> &'static [u8] {
        match self {
            Self::Client => b"towline control 2 client proof",
            Self::LaneClient => b"towline lane 2 client proof",
            Self::LaneWorker => b"towline lane 2 worker proof",
            Self::Lease => b"towline lease 2 token",
            Self::PeerAccepts => b"towline peer 2 accept proof",
            Self::PeerConnects => b"towline peer 2 connect proof",
            Self::PeerLane => b"towline peer 2 lane key",
            Self::PeerLaneAccepts => b"towline peer lane 2 accept proof",
            Self::PeerLaneConnects => b"towline peer lane 2 connect proof",
            Self::Server => b"towline control 2 server proof",
        }
    }
}
