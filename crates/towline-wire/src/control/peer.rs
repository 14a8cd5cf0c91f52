//! How a server introduces itself to another for a peer lane: a connection between two workers that their supervisors make.
//!
//! ```text
//! connecting server                     accepting server
//!   PeerHello{ticket's name, nonce} ──►
//!                                   ◄──  PeerChallenge{nonce, HMAC}
//!   HMAC                            ──►
//!                                   ◄──  PEER_ACCEPTED          or the end of the connection
//! ```
//!
//! Every part has a fixed size, so that neither supervisor reads a byte that belongs to a worker. The accepting server has given
//! the ticket to a client, and the client to the connecting server; here only its name is sent, and both sides prove that they know
//! it. With a credential of their own they prove that they know that too. What both know then gives the workers the [`LaneKey`] of the
//! lane's own TLS, if the hello says that there is one.

use std::fmt;

use sha2::{Digest, Sha256};

use super::attach::{PEER_MAGIC, Ticket};
use super::codec::{ControlError, Reader, Writer};
use super::lane::LaneKey;
use super::message::{NONCE_BYTES, Nonce, PROOF_BYTES};
use super::token::{Role, Token};

const PEER_VERSION: u16 = 2;
const HEAD_BYTES: usize = 4 + 2 + 2;
/// What the accepting server sends last: the connection is the workers' from the next byte on.
pub const PEER_ACCEPTED: [u8; 1] = [1];
/// Size of the first message.
pub const PEER_HELLO_BYTES: usize = HEAD_BYTES + 32 + NONCE_BYTES;
/// Size of the second.
pub const PEER_CHALLENGE_BYTES: usize = HEAD_BYTES + NONCE_BYTES + PROOF_BYTES;

type Hash = [u8; 32];

/// What a ticket is called where it must not be seen: its SHA-256.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct TicketName(Hash);

impl TicketName {
    /// The name of a ticket.
    pub fn of(ticket: &Ticket) -> Self {
        Self(Sha256::digest(ticket.bytes()).into())
    }

    /// The name that a server's first message holds, and whether the lane is to be encrypted.
    pub fn in_hello(hello: &[u8; PEER_HELLO_BYTES]) -> Result<(Self, bool), ControlError> {
        let mut reader = Reader::new(hello);
        let encrypted = read_head(&mut reader)?;
        Ok((Self(reader.array("ticket's name")?), encrypted))
    }
}

/// The other server does not know what it must.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PeerError {
    /// It sent something else than a peer does.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// Its proof is wrong.
    #[error(
        "the other server does not prove that it knows the ticket and the token; do both use the same --peer-token-file?"
    )]
    NotAuthentic,
}

/// The server that connects.
pub struct PeerConnector {
    key: Token,
    ticket: Hash,
    hello: Hash,
}

impl PeerConnector {
    /// Begins: the second value is sent first. `nonce` must be fresh random bytes; `encrypted` says whether the workers speak TLS.
    pub fn start(
        ticket: &Ticket,
        token: Option<&Token>,
        nonce: Nonce,
        encrypted: bool,
    ) -> (Self, [u8; PEER_HELLO_BYTES]) {
        let name = TicketName::of(ticket);
        let mut writer = head(encrypted);
        writer.raw(&name.0);
        writer.raw(&nonce);
        let hello: [u8; PEER_HELLO_BYTES] = fixed(writer);
        let connector = Self {
            key: key(ticket, token),
            ticket: name.0,
            hello: hash(&hello),
        };
        (connector, hello)
    }

    /// Checks the other side's proof and gives our own, which is sent next, and the key of the lane.
    pub fn answer(
        &self,
        challenge: &[u8; PEER_CHALLENGE_BYTES],
    ) -> Result<([u8; PROOF_BYTES], LaneKey), PeerError> {
        let mut reader = Reader::new(challenge);
        read_head(&mut reader)?;
        let _nonce: Nonce = reader.array("peer's nonce")?;
        let proof = reader.array("peer's proof")?;
        reader.finish()?;
        let asked = hash(&challenge[..PEER_CHALLENGE_BYTES - PROOF_BYTES]);
        if !self.key.verify(
            Role::PeerAccepts,
            &[&self.hello, &asked, &self.ticket],
            &proof,
        ) {
            return Err(PeerError::NotAuthentic);
        }
        let transcript = [&self.hello, &hash(challenge), &self.ticket];
        let proof = self.key.prove(Role::PeerConnects, &transcript);
        Ok((proof, lane_key(&self.key, &transcript)))
    }
}

impl fmt::Debug for PeerConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        super::codec::redacted(f, "PeerConnector")
    }
}

/// The server that gave the ticket.
pub struct PeerAcceptor {
    key: Token,
    transcript: [Hash; 3],
}

impl PeerAcceptor {
    /// Answers a first message that names `ticket`: the second value is sent next. `nonce` must be fresh random bytes.
    pub fn challenge(
        hello: &[u8; PEER_HELLO_BYTES],
        ticket: &Ticket,
        token: Option<&Token>,
        nonce: Nonce,
    ) -> (Self, [u8; PEER_CHALLENGE_BYTES]) {
        let key = key(ticket, token);
        let (hello, name) = (hash(hello), TicketName::of(ticket).0);
        let mut writer = head(false);
        writer.raw(&nonce);
        let mut challenge = writer.into_bytes();
        let proof = key.prove(Role::PeerAccepts, &[&hello, &hash(&challenge), &name]);
        challenge.extend_from_slice(&proof);
        let challenge: [u8; PEER_CHALLENGE_BYTES] =
            challenge.try_into().expect("the fields add up");
        let transcript = [hello, hash(&challenge), name];
        (Self { key, transcript }, challenge)
    }

    /// The key of the lane, if the other side proves what it must.
    pub fn check(&self, proof: &[u8; PROOF_BYTES]) -> Result<LaneKey, PeerError> {
        let transcript = self.transcript.each_ref();
        match self.key.verify(Role::PeerConnects, &transcript, proof) {
            true => Ok(lane_key(&self.key, &transcript)),
            false => Err(PeerError::NotAuthentic),
        }
    }
}

impl fmt::Debug for PeerAcceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        super::codec::redacted(f, "PeerAcceptor")
    }
}

/// Servers without a token prove that they know the ticket, at least.
fn key(ticket: &Ticket, token: Option<&Token>) -> Token {
    token
        .cloned()
        .unwrap_or_else(|| Token::of_secret(ticket.bytes()))
}

/// Nobody else can make it: the ticket is not sent, and each connection has other nonces.
fn lane_key(key: &Token, transcript: &[&Hash; 3]) -> LaneKey {
    LaneKey::from_bytes(key.prove(Role::PeerLane, transcript))
}

fn head(encrypted: bool) -> Writer {
    let mut writer = Writer::default();
    writer.raw(&PEER_MAGIC);
    writer.u16(PEER_VERSION);
    writer.u16(encrypted.into());
    writer
}

/// Whether the lane is to be encrypted.
fn read_head(reader: &mut Reader<'_>) -> Result<bool, ControlError> {
    if reader.array::<4>("peer magic")? != PEER_MAGIC {
        return Err(ControlError::BadMagic);
    }
    let invalid = |field, value: u16| ControlError::InvalidValue {
        field,
        value: value.into(),
    };
    match reader.u16("peer version")? {
        PEER_VERSION => {}
        value => return Err(invalid("peer version", value)),
    }
    match reader.u16("encryption")? {
        0 => Ok(false),
        1 => Ok(true),
        value => Err(invalid("encryption", value)),
    }
}

fn fixed<const N: usize>(writer: Writer) -> [u8; N] {
    writer.into_bytes().try_into().expect("the fields add up")
}

fn hash(bytes: &[u8]) -> Hash {
    Sha256::digest(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::TICKET_BYTES;

    fn token(text: &str) -> Token {
        Token::from_bytes(text.as_bytes()).expect("long enough")
    }

    fn ticket(byte: u8) -> Ticket {
        Ticket::from_random([byte; TICKET_BYTES])
    }

    /// Whether the connecting server believes the accepting one, and if so the other way round.
    fn shake(ours: (&Ticket, Option<&Token>), theirs: (&Ticket, Option<&Token>)) -> (bool, bool) {
        let (connector, hello) = PeerConnector::start(ours.0, ours.1, [1; NONCE_BYTES], true);
        let (acceptor, challenge) =
            PeerAcceptor::challenge(&hello, theirs.0, theirs.1, [2; NONCE_BYTES]);
        match connector.answer(&challenge) {
            Ok((proof, key)) => (true, acceptor.check(&proof) == Ok(key)),
            Err(_) => (false, false),
        }
    }

    #[test]
    fn servers_that_know_ticket_and_token_believe_each_other() {
        let (secret, ticket) = (token("0123456789abcdef"), ticket(3));
        let side = (&ticket, Some(&secret));
        assert_eq!(shake(side, side), (true, true));
        assert_eq!(shake((&ticket, None), (&ticket, None)), (true, true));
    }

    #[test]
    fn another_token_none_or_another_ticket_is_not_believed() {
        let (first, second) = (token("0123456789abcdef"), token("fedcba9876543210"));
        let ticket = ticket(3);
        let other = self::ticket(4);
        let side = (&ticket, Some(&first));
        assert_eq!(shake(side, (&ticket, Some(&second))), (false, false));
        assert_eq!(shake(side, (&ticket, None)), (false, false));
        assert_eq!(shake((&ticket, None), side), (false, false));
        assert_eq!(shake(side, (&other, Some(&first))), (false, false));
    }

    #[test]
    fn a_proof_is_good_for_one_connection_and_one_direction() {
        let (secret, ticket) = (token("0123456789abcdef"), ticket(3));
        let (connector, hello) =
            PeerConnector::start(&ticket, Some(&secret), [1; NONCE_BYTES], true);
        let first = PeerAcceptor::challenge(&hello, &ticket, Some(&secret), [2; NONCE_BYTES]);
        let (second, _) = PeerAcceptor::challenge(&hello, &ticket, Some(&secret), [3; NONCE_BYTES]);
        let (proof, key) = connector.answer(&first.1).unwrap();
        assert_eq!(first.0.check(&proof), Ok(key));
        assert!(second.check(&proof).is_err());
        let reflected = first.1.last_chunk::<PROOF_BYTES>().unwrap();
        assert!(first.0.check(reflected).is_err());
    }

    #[test]
    fn a_changed_byte_is_never_believed() {
        let (secret, ticket) = (token("0123456789abcdef"), ticket(3));
        let (connector, hello) =
            PeerConnector::start(&ticket, Some(&secret), [1; NONCE_BYTES], true);
        let (_, challenge) =
            PeerAcceptor::challenge(&hello, &ticket, Some(&secret), [2; NONCE_BYTES]);
        for at in 0..challenge.len() {
            let mut changed = challenge;
            changed[at] ^= 1;
            assert!(connector.answer(&changed).is_err(), "byte {at}");
        }
    }

    #[test]
    fn the_ticket_itself_is_not_sent() {
        let ticket = ticket(3);
        let (_, hello) = PeerConnector::start(&ticket, None, [1; NONCE_BYTES], true);
        assert_eq!(
            TicketName::in_hello(&hello),
            Ok((TicketName::of(&ticket), true))
        );
        assert!(
            !hello
                .windows(TICKET_BYTES)
                .any(|part| part == ticket.bytes())
        );
        let mut other = hello;
        other[4] = 9;
        assert!(TicketName::in_hello(&other).is_err());
    }
}
