//! What a supervisor and its worker say to each other over the channel between them.
//!
//! One message per datagram, as JSON: few and small, and readable in a trace. The supervisor trusts the worker no more
//! than a client, because a client may have taken it over: what it says is bounded and only ever shown or counted.

use std::fmt;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use towline_sys::SysError;
use towline_sys::channel::{self, Channel};
use towline_sys::jail::JailRequest;
use towline_wire::control::LaneKey;
use towline_worker::{Bond, DIGEST_BYTES, TOKEN_BYTES, Taken};

use crate::supervisor::Quota;

/// What a worker is told.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) enum ToWorker {
    /// First message: get ready.
    Start {
        /// How to jail itself; `None` with `--no-jail`.
        jail: Option<JailRequest>,
        /// Its own folder, where the jail has no better one.
        home: PathBuf,
    },
    /// A client has come. The folder of its tenant's compiled kernels comes with the message, where there is one.
    Assign {
        /// Whose session it is and what it may use.
        parameters: SessionParameters,
        /// The key that its lanes must prove to know; `None` where they are not encrypted.
        lane_key: Option<Secret>,
        /// Whether its device memory is reserved by [`FromWorker::ReserveMemory`] before it is allocated.
        reserves_memory: bool,
        /// On so many devices it may have to wait for turns.
        scheduled_devices: usize,
        /// Whether it may be told to [give way](Self::GiveWay).
        swaps: bool,
    },
    /// A lane of the client; its descriptor comes with the message.
    Lane {
        /// 0 is the command lane.
        index: u16,
        /// How many there will be.
        count: u16,
        /// It takes the place of one that was cut.
        again: bool,
        /// Which transport the descriptor belongs to.
        scheme: String,
    },
    /// A connection to the worker of another server; its descriptor comes with the message.
    Peer {
        /// The client's number for it.
        lane: u64,
        /// Whether this server has opened it.
        connects: bool,
        /// The key that both ends must prove to know; `None` where it is not encrypted.
        key: Option<Secret>,
        /// Which transport the descriptor belongs to.
        scheme: String,
    },
    /// Answer with [`FromWorker::Statistics`].
    ReportStatistics {
        /// Comes back in the answer.
        request: u64,
    },
    /// Answer with [`FromWorker::Answers`].
    Ask {
        /// Comes back in the answer.
        request: u64,
        /// A frame of the control protocol: the questions.
        questions: Vec<u8>,
    },
    /// What was offered can be taken under this token; without one it cannot be offered.
    Offered {
        /// Of the request.
        request: u64,
        /// The token.
        token: Option<[u8; TOKEN_BYTES]>,
    },
    /// What was offered under a token, its kind and description; its descriptor comes with the message.
    Taken {
        /// Of the request.
        request: u64,
        /// `None` where nothing is offered.
        offer: Option<(u8, Vec<u8>)>,
        /// To give it back with; 0 where that is not asked for.
        number: u32,
    },
    /// The device code of a digest, in the file that comes with the message; without one it is not known.
    Image {
        /// Of the request.
        request: u64,
    },
    /// Result of a reservation of device memory.
    MemoryReserved {
        /// Of the request.
        request: u64,
        /// Bytes that the session may allocate besides.
        granted: u64,
        /// Bytes that it could reserve besides.
        left: u64,
    },
    /// Whether a session has given way.
    RoomMade {
        /// Of the request.
        request: u64,
        /// Its memory is free.
        made: bool,
    },
    /// Another session lacks memory: keep yours on the host, until the session goes on. Answer with [`FromWorker::GaveWay`].
    GiveWay {
        /// Comes back in the answer.
        request: u64,
        /// Most bytes of host memory for that.
        most: u64,
        /// Only if the session has nothing to do.
        idle: bool,
    },
    /// The session's rights on a device change.
    Turn {
        /// Among the session's.
        device: u32,
        /// Of [`towline_worker::Turn`].
        turn: u8,
        /// Of the turn.
        number: u64,
    },
    /// Another session of a bond is gone.
    Lost {
        /// The bond.
        bond: Bond,
    },
    /// The session is over: let go of everything and exit.
    End,
}

impl ToWorker {
    /// The answer to who takes something, and the descriptor that goes with it.
    pub(crate) fn taken(request: u64, taken: Option<Taken>) -> (Self, Option<OwnedFd>) {
        let number = taken.as_ref().map_or(0, |taken| taken.number);
        let (offer, descriptor) = match taken.map(|taken| taken.offer) {
            Some(offer) => (Some((offer.kind, offer.bytes)), offer.descriptor),
            None => (None, None),
        };
        let message = Self::Taken {
            request,
            offer,
            number,
        };
        (message, descriptor)
    }
}

/// What a worker says.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) enum FromWorker {
    /// It can take a session. The device snapshot follows in messages of raw bytes.
    Ready {
        /// Length of the snapshot.
        snapshot_bytes: usize,
        /// Parts of the jail that this system did not permit.
        jail_missing: Vec<String>,
        /// Whether the kernel counts its processes apart from others'.
        counts_processes: bool,
    },
    /// It cannot work, and exits.
    Failed {
        /// Why, for a person.
        reason: String,
    },
    /// What the session has used so far.
    Statistics {
        /// Of the request; 0 where nobody asked, for the session has ended.
        request: u64,
        /// The figures.
        statistics: Statistics,
    },
    /// To what was asked. A frame of the control protocol follows in messages of raw bytes.
    Answers {
        /// Of the request.
        request: u64,
        /// Length of the frame.
        frame_bytes: usize,
    },
    /// A lane of the client has proven that it is one.
    LaneOpened {
        /// 0 is the command lane.
        index: u16,
        /// How many there will be.
        count: u16,
    },
    /// It offers something to other sessions; a descriptor may come with the message.
    Offer {
        /// Comes back in the answer.
        request: u64,
        /// What it is.
        kind: u8,
        /// What another worker's driver needs to find it.
        bytes: Vec<u8>,
    },
    /// It asks for what is offered under a token.
    Take {
        /// Comes back in the answer.
        request: u64,
        /// The token.
        token: [u8; TOKEN_BYTES],
    },
    /// It does not use any more what it took.
    GiveBack {
        /// What it was taken by.
        token: [u8; TOKEN_BYTES],
        /// What it was taken with.
        number: u32,
    },
    /// It offers something no more.
    Withdraw {
        /// The token.
        token: [u8; TOKEN_BYTES],
    },
    /// It asks for device code.
    FindImage {
        /// Comes back in the answer.
        request: u64,
        /// What it is known by.
        digest: [u8; DIGEST_BYTES],
    },
    /// It has device code that others may bring too, in the file that comes with the message.
    KeepImage {
        /// What it is known by.
        digest: [u8; DIGEST_BYTES],
    },
    /// It asks for device memory of its tenant.
    ReserveMemory {
        /// Comes back in the answer.
        request: u64,
        /// As many bytes of these as there are,
        wanted: u64,
        /// but none if there are fewer than these.
        least: u64,
    },
    /// It asks for memory of sessions whose clients are cut off.
    MakeRoom {
        /// Comes back in the answer.
        request: u64,
        /// So many bytes.
        lacking: u64,
        /// Of sessions of its own tenant only.
        of_tenant: bool,
    },
    /// The session has given way, or not.
    GaveWay {
        /// Of the request.
        request: u64,
        /// Bytes that are free now; 0 where it has not.
        freed: u64,
        /// Why it has not.
        refusal: Option<String>,
    },
    /// The session has its memory again.
    SwappedIn,
    /// It gives back device memory that it had reserved.
    ReturnMemory {
        /// How much.
        bytes: u64,
    },
    /// The session has launches for a device.
    WantTurn {
        /// Among the session's.
        device: u32,
    },
    /// It hands a turn over.
    TurnOver {
        /// Among the session's.
        device: u32,
        /// Of the turn.
        number: u64,
    },
    /// The session is bound to others of its job.
    Bind {
        /// By this.
        bond: Bond,
    },
    /// It is bound no more.
    Part {
        /// By this.
        bond: Bond,
    },
    /// The engine has returned; the worker exits.
    Finished {
        /// What ended the session, when it was not its client.
        error: Option<String>,
        /// Of which kind that was.
        kind: ErrorKind,
    },
}

/// Kinds of errors that an engine returns.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) enum ErrorKind {
    /// A kernel ran for longer than it may.
    KernelTime,
    /// Any other.
    #[default]
    Other,
    /// The client broke the rules.
    Protocol,
}

/// The key of lanes, which no log may show.
#[derive(Clone, Deserialize, Serialize)]
pub(crate) struct Secret([u8; 32]);

impl From<&LaneKey> for Secret {
    fn from(key: &LaneKey) -> Self {
        Self(key.to_bytes())
    }
}

impl From<Secret> for LaneKey {
    fn from(secret: Secret) -> Self {
        Self::from_bytes(secret.0)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// What a session may use and whose it is.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct SessionParameters {
    /// Number of the session on this server.
    pub session_id: u64,
    /// The client's program, as it calls itself.
    pub program: String,
    /// The client's address.
    pub peer: String,
    /// Most lanes.
    pub max_lanes: u16,
    /// Size of one buffer of the payload pool.
    pub chunk_bytes: u64,
    /// Number of buffers in the payload pool.
    pub chunk_count: u32,
    /// Numbers of the devices that it has. `None`: all.
    pub devices: Option<Vec<u32>>,
    /// How much it may have.
    pub quota: Quota,
    /// Its device memory is limited to what its devices have.
    pub whole_devices: bool,
    /// No control group limits its memory: the worker is to limit its own.
    pub limits_own_memory: bool,
    /// Its lanes outlive cuts.
    pub resumes: bool,
    /// Its part in collectives of its job; `None` where it has none.
    pub collectives: Option<CollectivesGrant>,
}

/// The needs of a session for collectives with the others of its job, whose workers its own reaches.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct CollectivesGrant {
    /// The library of collectives, by name or path.
    pub library: String,
}

/// What a session has used.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Statistics {
    /// Device memory held now.
    pub device_memory_bytes: u64,
    /// The most device memory that was held at once.
    pub device_memory_peak: u64,
    /// Bytes from the client.
    pub received_bytes: u64,
    /// Bytes to the client.
    pub sent_bytes: u64,
    /// API calls executed.
    pub calls: u64,
    /// Kernels and graphs launched.
    pub launches: u64,
    /// Bytes of device code held now.
    pub code_bytes: u64,
    /// How long its devices were busy, added up over devices.
    pub device_time_us: u64,
}

/// A message that could not be sent, received or understood.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProtocolError {
    #[error("not a message: {0}")]
    Malformed(serde_json::Error),
    #[error(transparent)]
    Sys(#[from] SysError),
}

pub(crate) fn encode(message: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(message).expect("these messages have only string keys")
}

pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ProtocolError> {
    serde_json::from_slice(bytes).map_err(ProtocolError::Malformed)
}

/// A text short enough for one message whatever it contains: JSON makes at most six bytes of one.
pub(crate) fn shorten(text: &str) -> String {
    text.chars()
        .take(channel::MESSAGE_BYTES / (6 * 4) / 2)
        .collect()
}

/// Sends what was announced: a snapshot, or answers.
pub(crate) fn send_pieces(channel: &Channel, bytes: &[u8]) -> Result<(), SysError> {
    bytes
        .chunks(channel::MESSAGE_BYTES)
        .try_for_each(|piece| channel.send(piece, None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_reason_fits_a_message() {
        let reason = shorten(&"\u{1}".repeat(1 << 20));
        assert!(encode(&FromWorker::Failed { reason }).len() <= channel::MESSAGE_BYTES);
        let reason = shorten(&"\u{10ffff}".repeat(1 << 20));
        assert!(encode(&FromWorker::Failed { reason }).len() <= channel::MESSAGE_BYTES);
    }

    #[test]
    fn longest_questions_fit_a_message() {
        let questions = vec![0xff; towline_wire::control::limits::CLIENT_MESSAGE_BYTES];
        let message = ToWorker::Ask {
            request: u64::MAX,
            questions,
        };
        assert!(encode(&message).len() <= channel::MESSAGE_BYTES);
    }

    #[test]
    fn garbage_is_an_error() {
        assert!(decode::<FromWorker>(b"\xff\0garbage").is_err());
        assert!(
            decode::<FromWorker>(
                br#"{"Ready":{"snapshot_bytes":-1,"jail_missing":[],"counts_processes":true}}"#
            )
            .is_err()
        );
    }
}
