//! Control messages, cut anywhere.

use towline_wire::control::{
    self, AttachPreamble, CheckpointSession, ControlError, Hello, KillSession, Message, MessageBuffer, MigrateSession, NONCE_BYTES, PeerConnect,
    PeerConnected, PeerOffer, PeerTicket, Purpose, Reject, RejectCode, ResumeSession, SUPPORTED_VERSIONS, ServerDrains, SessionCheckpointed, SessionEnded, SessionKilled, SessionMigrated, SessionResumed, SessionStatus,
    Status, TenantStatus, Ticket, limits,
};

use crate::Seed;
use crate::memory::{bounded, proportional};

/// A message has one encoding, a stream gives the same frames however it is cut, a buffer that failed stays failed.
pub fn target(bytes: &[u8]) {
    control::fuzz(bytes);
    if let Ok(message) = bounded(proportional(bytes), || Message::decode(bytes)) {
        assert_eq!(message.encode(), bytes);
        assert!(!message.name().is_empty());
    }
    let whole = frames(bytes, bytes.len().max(1));
    assert_eq!(whole, frames(bytes, 1));
    assert_eq!(whole, frames(bytes, 5));
}

fn frames(bytes: &[u8], cut: usize) -> (Vec<Vec<u8>>, Option<ControlError>) {
    let limit = limits::CLIENT_MESSAGE_BYTES;
    let mut buffer = MessageBuffer::new(limit);
    let mut frames = Vec::new();
    for piece in bytes.chunks(cut) {
        buffer.push(piece);
        loop {
            assert!(buffer.missing_bytes() <= limit + 12, "asks for more than a message");
            match buffer.next_frame() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => {
                    assert_eq!(buffer.next_frame(), Err(error.clone()));
                    return (frames, Some(error));
                }
            }
        }
    }
    (frames, None)
}

/// Messages of both sides, and a lane's preamble.
pub fn seeds() -> Vec<Seed> {
    let hello = Hello::new(Purpose::Session, "program", 42, "host", [7; NONCE_BYTES]);
    let reject = Reject {
        code: RejectCode::from(1),
        text: "no".into(),
        versions: SUPPORTED_VERSIONS,
    };
    let status = Status {
        uptime_ms: 9,
        sessions: vec![SessionStatus {
            program: "program".into(),
            tenant: "anna".into(),
            ..SessionStatus::default()
        }],
        tenants: vec![TenantStatus {
            name: "anna".into(),
            ..TenantStatus::default()
        }],
        ..Status::default()
    };
    let ended = SessionEnded {
        reason: "signal 11".into(),
    };
    let kill = KillSession { session_id: 3 };
    let killed = SessionKilled {
        outcome: Err("no such session".into()),
    };
    let preamble = AttachPreamble {
        ticket: Ticket::from_random([3; 32]),
        lane_index: 1,
        lane_count: 4,
        again: false,
    };
    let again = AttachPreamble {
        again: true,
        ..preamble.clone()
    };
    let (lane, address, ticket) = (7, String::from("tcp://gpu2:7140"), Ticket::from_random([3; 32]));
    let offer = PeerOffer { lane, address: address.clone() };
    let resume = ResumeSession { session_id: 3, ticket: ticket.clone() };
    let resumed = SessionResumed {
        outcome: Err("its grace time is over".into()),
    };
    let migrate = MigrateSession { session_id: 3, to: address.clone() };
    let migrated = SessionMigrated {
        session_id: 3,
        outcome: Err("it has pipes".into()),
    };
    let checkpoint = CheckpointSession { session_id: 3, folder: "/home/anna/held".into() };
    let checkpointed = SessionCheckpointed { session_id: 3, outcome: Ok(()) };
    let drains = ServerDrains { outcome: Ok(()) };
    let given = PeerTicket { lane, ticket: Ok(ticket.clone()) };
    let connect = PeerConnect { lane, address, ticket };
    let connected = PeerConnected { lane, outcome: Err("it is not listed".into()) };
    let two = [Message::StatusRequest.encode(), Message::DevicesRequest.encode()].concat();
    vec![
        Seed::new("hello-of-job", Message::Hello(hello.clone().of_tenant("anna").of_job("train")).encode()),
        Seed::new("hello", Message::Hello(hello).encode()),
        Seed::new("reject", Message::Reject(reject).encode()),
        Seed::new("status", Message::Status(status).encode()),
        Seed::new("ended", Message::SessionEnded(ended).encode()),
        Seed::new("kill", Message::KillSession(kill).encode()),
        Seed::new("killed", Message::SessionKilled(killed).encode()),
        Seed::new("resume", Message::ResumeSession(resume).encode()),
        Seed::new("resumed", Message::SessionResumed(resumed).encode()),
        Seed::new("migrate", Message::MigrateSession(migrate).encode()),
        Seed::new("migrated", Message::SessionMigrated(migrated).encode()),
        Seed::new("checkpoint", Message::CheckpointSession(checkpoint).encode()),
        Seed::new("checkpointed", Message::SessionCheckpointed(checkpointed).encode()),
        Seed::new("drain", Message::DrainServer.encode()),
        Seed::new("drains", Message::ServerDrains(drains).encode()),
        Seed::new("peer-offer", Message::PeerOffer(offer).encode()),
        Seed::new("peer-ticket", Message::PeerTicket(given).encode()),
        Seed::new("peer-connect", Message::PeerConnect(connect).encode()),
        Seed::new("peer-connected", Message::PeerConnected(connected).encode()),
        Seed::new("requests", two),
        Seed::new("preamble", preamble.encode()),
        Seed::new("preamble-again", again.encode()),
    ]
}
