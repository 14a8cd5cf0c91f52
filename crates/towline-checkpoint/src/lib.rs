//! Checkpoints of sessions: a folder with the contents of a session's devices, and the files by which a program that is held is told to go
//! on. A program's process writes and reads the folder ([`Writer`], [`Reader`]), `towline` the files ([`message`]).
//!
//! The folder belongs to one user alone ([`Folder::open`]). Contents are cut into chunks, each a file named by its digest, so that a
//! later checkpoint in the same folder writes only chunks that have changed. The manifest, which names them, is renamed into its place when
//! all of them are there: a folder holds one whole checkpoint or none at any time.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod fields;
mod folder;
mod key;
mod manifest;
pub mod message;
mod store;

use std::io;
use std::path::PathBuf;

pub use folder::Folder;
pub use key::Key;
pub use manifest::{CHUNK_BYTES, Device, Digest, Level, Manifest, PART_BYTES, Part, Place};
pub use store::{Reader, Writer};

/// The reason why a checkpoint cannot be written or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// A chunk is not as it was written.
    #[error("the checkpoint in {folder} is damaged: {what}")]
    Damaged {
        /// The folder.
        folder: PathBuf,
        /// The file, and its fault.
        what: String,
    },
    /// The folder is not one to write to.
    #[error("cannot use the folder {folder}: {why}")]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// Its fault, and a way to mend it.
        why: &'static str,
    },
    /// The system refuses.
    #[error("could not {action} in {folder}: {cause}")]
    System {
        /// The folder.
        folder: PathBuf,
        /// The action.
        action: &'static str,
        /// Its reason.
        cause: io::Error,
    },
}
