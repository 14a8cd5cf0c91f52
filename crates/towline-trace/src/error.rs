//! What can go wrong with a trace.

use std::path::{Path, PathBuf};

use thiserror::Error;

/// Why a trace could not be read or written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TraceError {
    /// A file is not what it should be.
    #[error("{} is damaged: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The system refused.
    #[error("could not {doing} {}: {cause}", path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// On which file.
        path: PathBuf,
        /// The system's answer.
        cause: std::io::Error,
    },
    /// No rank left anything.
    #[error("no rank left a trace in {}", path.display())]
    Nothing {
        /// Where they should be.
        path: PathBuf,
    },
}

impl TraceError {
    pub(crate) fn damaged(path: &Path, what: impl Into<String>) -> Self {
        Self::Damaged {
            path: path.to_owned(),
            what: what.into(),
        }
    }

    pub(crate) fn io(doing: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |cause| Self::Io { doing, path, cause }
    }
}
