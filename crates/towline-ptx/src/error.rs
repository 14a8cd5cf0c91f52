//! What can be wrong with an image.

use crate::ptx::SyntaxError;

/// Why bytes are no image, or not one that can be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another magic number than that of the structure.
    #[error("{what} starts with {found:#010x}")]
    BadMagic {
        /// The structure.
        what: &'static str,
        /// What its first four bytes are.
        found: u32,
    },
    /// A field with a value that the format does not have.
    #[error("{what} is {value}")]
    BadValue {
        /// Which field.
        what: &'static str,
        /// What it holds.
        value: u64,
    },
    /// A compressed payload that cannot be decompressed.
    #[error("{codec} payload: {reason}")]
    Compression {
        /// The method.
        codec: &'static str,
        /// What the decompressor says.
        reason: String,
    },
    /// A payload that is shorter or longer than its entry says.
    #[error("payload of {found} bytes, its entry says {said}")]
    LengthMismatch {
        /// What the entry says.
        said: u64,
        /// How long it is, or how long it is at least.
        found: u64,
    },
    /// PTX that breaks the grammar.
    #[error(transparent)]
    Syntax(#[from] SyntaxError),
    /// Longer than anything that makes sense.
    #[error("{what} of {len} is over the limit of {limit}")]
    TooLong {
        /// Which thing.
        what: &'static str,
        /// Its length.
        len: u64,
        /// The limit.
        limit: u64,
    },
    /// The bytes end before the structure does.
    #[error("{what} needs {wanted} bytes at {at}, the image has {len}")]
    Truncated {
        /// Which structure.
        what: &'static str,
        /// Where it starts.
        at: u64,
        /// How long it is.
        wanted: u64,
        /// How long the image is.
        len: u64,
    },
}
