//! Ends of sessions and their reasons.

use crate::worker::protocol::ErrorKind;

/// The reason of a worker's end that nobody asked for.
pub(super) struct Ending {
    /// For a person.
    pub(super) reason: String,
    pub(super) cause: Cause,
}

/// Causes of a session's end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Cause {
    /// Its client has written a checkpoint.
    Checkpoint,
    /// Its client, in order.
    Client,
    /// The worker process died.
    Crash,
    /// The engine, for another reason than those below.
    Error,
    /// It used more of the host's memory than it may.
    HostMemory,
    /// A kernel ran for longer than it may.
    KernelTime,
    /// A client of its tenant, or an admin, ended it on request.
    Killed,
    /// The connection to its client broke.
    Lost,
    /// It moved to another server.
    Moved,
    /// Its client broke the protocol.
    Protocol,
    /// Its tenant was revoked.
    Revoked,
    /// The server was about to stop.
    Stop,
}

impl Cause {
    /// All of them, in their order.
    pub(super) const ALL: [Self; 12] = [
        Self::Checkpoint,
        Self::Client,
        Self::Crash,
        Self::Error,
        Self::HostMemory,
        Self::KernelTime,
        Self::Killed,
        Self::Lost,
        Self::Moved,
        Self::Protocol,
        Self::Revoked,
        Self::Stop,
    ];

    /// Its name in metrics.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Checkpoint => "checkpoint",
            Self::Client => "client",
            Self::Crash => "crash",
            Self::Error => "error",
            Self::HostMemory => "host_memory",
            Self::KernelTime => "kernel_time",
            Self::Killed => "killed",
            Self::Lost => "lost",
            Self::Moved => "moved",
            Self::Protocol => "protocol",
            Self::Revoked => "revoked",
            Self::Stop => "stop",
        }
    }
}

impl From<ErrorKind> for Cause {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::KernelTime => Self::KernelTime,
            ErrorKind::Other => Self::Error,
            ErrorKind::Protocol => Self::Protocol,
        }
    }
}
