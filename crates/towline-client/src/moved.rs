//! The reasons why a session does not move, or has no checkpoint.

/// Why a session stayed where it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RebuildError {
    /// The checkpoint cannot be written or used.
    #[cfg(unix)]
    #[error(transparent)]
    Checkpoint(#[from] towline_checkpoint::CheckpointError),
    /// Something is still going on.
    #[error("the session is not idle: {0}")]
    Busy(&'static str),
    /// The other server has no such device.
    #[error(
        "{server} has no device to stand for {device}: its {query} is {theirs}, and should be {ours}"
    )]
    Device {
        /// The other server.
        server: String,
        /// The device's name here.
        device: String,
        /// The question that they answer differently.
        query: &'static str,
        /// The answer here.
        ours: String,
        /// The answer of the device there that comes closest, or "no device".
        theirs: String,
    },
    /// A session has ended: this one or the new one.
    #[error("the session with {server} has ended: {reason}")]
    Lost {
        /// Its server.
        server: String,
        /// Why.
        reason: String,
    },
    /// A server refused something.
    #[error("{server} refused {what} ({status})")]
    Refused {
        /// The server.
        server: String,
        /// The thing that it was asked for.
        what: &'static str,
        /// Its answer, by name where it has one.
        status: String,
    },
    /// Addresses that the program knows are in use there.
    #[error("{server} has no memory at addresses that the program knows ({address:#x}): try again")]
    Taken {
        /// The other server.
        server: String,
        /// The first address.
        address: u64,
    },
    /// The device would see another value there, which the program may have stored.
    #[error("the session cannot move: {what} would be {theirs} there, and is {ours}")]
    Differs {
        /// The value.
        what: String,
        /// The value here.
        ours: String,
        /// The value there.
        theirs: String,
    },
    /// The program keeps the address of something that lies elsewhere there.
    #[error(
        "the session cannot move: its device memory holds {address:#x}, the address of a variable, which would lie elsewhere there"
    )]
    Stored {
        /// The address.
        address: u64,
    },
    /// It cannot be made again elsewhere.
    #[error("the session cannot move: {0}")]
    Unmovable(&'static str),
    /// The session given to take its place was used before.
    #[error("the session with {0} is not new")]
    Used(String),
}
