//! The control protocol: what a client and a supervisor say to each other before, beside and after the data lanes.
//!
//! Every message is one length-prefixed frame ([`MessageBuffer`] cuts them out of a byte stream, [`Message`] gives them a
//! meaning). A control connection, encrypted or not, starts with a handshake ([`ClientHandshake`], [`ServerHandshake`]) that takes one round
//! trip without a token and two with one; afterwards the client may ask for [`Status`], [`Devices`] and, on a connection for NVML, [`NvmlQuestions`],
//! end a session by [`KillSession`] or give devices away by [`GiveLease`], and the server may report [`SessionEnded`]. A data lane starts with a fixed-size [`AttachPreamble`] instead and never carries a
//! control message; the first four bytes of a connection tell the two apart ([`ConnectionKind`]). So do they for a third
//! kind: another server, that connects its worker to one here ([`PeerConnector`], [`PeerAcceptor`]).
//!
//! Nothing here does I/O or reads a clock: bytes in, bytes out. Every decoder is total: it checks each length against
//! the named limits in [`limits`] before it allocates, and answers garbage with a [`ControlError`].

mod attach;
mod codec;
mod frame;
mod handshake;
mod lane;
mod lease;
mod message;
mod peer;
mod question;
mod reject;
mod tenant;
mod text;
mod time_share;
mod token;

#[cfg(test)]
mod tests;

pub use attach::{AttachPreamble, ConnectionKind, TICKET_BYTES, Ticket};
pub use codec::ControlError;
pub use frame::MessageBuffer;
pub use handshake::{
    Channel, ClientHandshake, ClientProgress, HandshakeError, ServerHandshake, ServerIdentity,
    ServerProgress,
};
pub use lane::{LaneEnd, LaneKey};
pub use lease::{EndLease, GiveLease, Lease, LeaseChanged, LeaseGiven, LeasedPart, RenewLease};
pub use message::{
    Challenge, CheckpointSession, CudaDevices, Devices, Enforcement, Hello, KillSession, LIMITS,
    LimitStatus, Message, MigrateSession, NONCE_BYTES, Nonce, PROOF_BYTES, PeerConnect,
    PeerConnected, PeerOffer, PeerTicket, Proof, Purpose, ResumeSession, ServerDrains, ServerLimit,
    SessionCheckpointed, SessionEnded, SessionGrant, SessionKilled, SessionLimits, SessionMigrated,
    SessionResumed, SessionStatus, Status, TenantStatus, VersionRange, Welcome,
};
pub use peer::{
    PEER_ACCEPTED, PEER_CHALLENGE_BYTES, PEER_HELLO_BYTES, PeerAcceptor, PeerConnector, PeerError,
    TicketName,
};
pub use question::{Answer, NvmlAnswers, NvmlQuestions, Question};
pub use reject::{Reject, RejectCode};
pub use tenant::Tenants;
pub use text::{SHOWN_NAME, SHOWN_TEXT, printable};
pub use time_share::{Priority, TimeShare, WHOLE_SHARE};
pub use token::{Exported, Token, TokenError};

/// The control protocol versions that this build speaks.
pub const SUPPORTED_VERSIONS: VersionRange = VersionRange { min: 2, max: 2 };

/// The labels under which TLS connections export what is used here (RFC 8446, section 7.5). The context is empty.
pub mod labels {
    /// Of a control connection: what the proofs of the token cover.
    pub const CONTROL: &str = "EXPORTER-towline-control";
    /// Of a control connection: the [`LaneKey`](super::LaneKey) of its session.
    pub const LANE_KEY: &str = "EXPORTER-towline-lane-key";
    /// Of a lane, or peer lane: what the proofs of its ends cover.
    pub const LANE: &str = "EXPORTER-towline-lane";
}

/// Upper bounds that the decoders enforce before they allocate. Each is far above what an honest peer sends.
pub mod limits {
    /// Longest message that a server accepts from a client: a `Hello` with every string at its limit fits.
    pub const CLIENT_MESSAGE_BYTES: usize = 4 * 1024;
    /// Longest message that a client accepts from a server: a `Welcome` with the largest snapshot fits.
    pub const SERVER_MESSAGE_BYTES: usize = SNAPSHOT_BYTES + 64 * 1024;
    /// Largest device snapshot: some 30 KiB per device, for more devices than one host holds.
    pub const SNAPSHOT_BYTES: usize = 4 * 1024 * 1024;
    /// Longest name (program, host, peer address, server).
    pub const NAME_BYTES: usize = 256;
    /// Longest human-readable explanation.
    pub const TEXT_BYTES: usize = 2 * 1024;
    /// Longest path of a folder.
    pub const PATH_BYTES: usize = 1024;
    /// Most sessions listed in one `Status`.
    pub const STATUS_SESSIONS: usize = 4096;
    /// Most tenants listed in one `Status`.
    pub const STATUS_TENANTS: usize = 1024;
    /// Most devices that one tenant is given by name.
    pub const TENANT_DEVICES: usize = 64;
    /// Longest name of such a device: so many fit what a server accepts.
    pub const DEVICE_NAME_BYTES: usize = 48;
    /// Most limits of a server listed in one `Status`.
    pub const STATUS_LIMITS: usize = 64;
    /// Longest name of a tenant.
    pub const TENANT_BYTES: usize = 64;
    /// Longest name of a job.
    pub const JOB_BYTES: usize = 64;
    /// Most lanes of one session, the command lane included.
    pub const LANES: u16 = 64;
    /// Most servers that one server lists as its peers.
    pub const PEERS: usize = 64;
    /// Most questions about devices in one message.
    pub const QUESTIONS: usize = 64;
    /// Longest body of a question: a message with one fits what a server accepts.
    pub const QUESTION_BYTES: usize = 3 * 1024;
    /// Longest body of an answer: a driver's longest list fits many times.
    pub const ANSWER_BYTES: usize = 64 * 1024;
}

/// Feeds arbitrary bytes to every decoder of this module. For the fuzz target: it must return, whatever it is given.
pub fn fuzz(bytes: &[u8]) {
    if let Ok(message) = Message::decode(bytes) {
        let encoded = message.encode();
        assert_eq!(
            Message::decode(&encoded).as_ref(),
            Ok(&message),
            "decode(encode(message)) must give the message back"
        );
    }
    if let Some(preamble) = bytes.first_chunk::<{ AttachPreamble::BYTES }>()
        && let Ok(decoded) = AttachPreamble::decode(preamble)
    {
        assert_eq!(&decoded.encode(), preamble, "a preamble has one encoding");
    }
    let ticket = Ticket::from_random([3; TICKET_BYTES]);
    if let Some(hello) = bytes.first_chunk::<PEER_HELLO_BYTES>() {
        let _ = TicketName::in_hello(hello);
    }
    if let Some(challenge) = bytes.first_chunk::<PEER_CHALLENGE_BYTES>() {
        let (connector, _) = PeerConnector::start(&ticket, None, [1; NONCE_BYTES], true);
        let _ = connector.answer(challenge);
    }
    let mut buffer = MessageBuffer::new(limits::CLIENT_MESSAGE_BYTES);
    for piece in bytes.chunks(7) {
        buffer.push(piece);
        while let Ok(Some(frame)) = buffer.next_frame() {
            // A frame that does not decode is an error for the caller, not for the buffer.
            let _ = Message::decode(&frame);
        }
    }
    let identity = ServerIdentity {
        name: "fuzz".into(),
        software: "fuzz".into(),
        key_lasts: false,
        collectives: false,
    };
    let token = Token::from_bytes(b"a token for the fuzzer").expect("long enough");
    let hello = Hello::new(Purpose::Session, "fuzz", 1, "host", [2; NONCE_BYTES]);
    for token in [None, Some(token)] {
        let tenants = std::sync::Arc::new(token.clone());
        let mut server =
            ServerHandshake::new(identity.clone(), tenants, [1; NONCE_BYTES], Channel::Clear);
        let _ = server.receive(bytes);
        let _ = server.receive(bytes);
        let (mut client, _) = ClientHandshake::start(hello.clone(), token, Channel::Clear);
        let _ = client.receive(bytes);
    }
}
