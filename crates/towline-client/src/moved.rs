//! Common to moves and checkpoints of all APIs: the reasons why a session stays, and contents that go by in pieces.

use std::sync::mpsc::{channel, sync_channel};

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

type Done = Result<(), RebuildError>;

/// Reads pieces by their numbers, and writes each while the next is read.
pub(crate) fn in_turns(
    count: usize,
    read: &mut (dyn FnMut(usize, &mut Vec<u8>) -> Done + Send),
    write: &mut dyn FnMut(usize, &[u8]) -> Done,
) -> Done {
    let (sender, pieces) = sync_channel::<(usize, Vec<u8>)>(1);
    let (back, used) = channel::<Vec<u8>>();
    let read = move || {
        for at in 0..count {
            let mut piece = used.try_recv().unwrap_or_default();
            read(at, &mut piece)?;
            // Nobody takes it where writing has failed, which tells.
            if sender.send((at, piece)).is_err() {
                break;
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let reading = scope.spawn(read);
        let written = pieces.into_iter().try_for_each(|(at, piece)| {
            let written = write(at, &piece);
            let _ = back.send(piece);
            written
        });
        let read = reading
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        written.and(read)
    })
}
