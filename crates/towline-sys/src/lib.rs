//! The few system calls that Towline wraps, so that everything above it can forbid `unsafe`.
//!
//! - [`process`]: start a worker so that it cannot outlive its supervisor, wait for it, kill it with all it started.
//! - [`channel`]: the message socket between supervisor and worker, which also carries descriptors.
//! - [`jail`]: what a worker does to itself before it takes bytes from a client.
//! - [`pin`]: connections that stay with one peer.
//! - [`shared_files`]: files in memory that several workers share.
//! - [`signals`]: termination signals as a blocking call.
//! - [`cpus`]: bind this process to CPUs and NUMA nodes.
//! - [`crash`]: what a process says when it crashes.
//!
//! Linux only. Nothing here knows OpenCL, CUDA or the wire.

#![deny(unsafe_code)]
#![warn(missing_docs)]

pub mod channel;
pub mod cpus;
pub mod crash;
pub mod jail;
pub mod pin;
pub mod process;
pub mod shared_files;
pub mod signals;
mod spawn;

use std::io;

/// A system call that failed, and what it was for.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action}")]
pub struct SysError {
    /// What was tried, to follow "cannot".
    pub action: String,
    /// What the kernel said.
    pub source: io::Error,
}

impl SysError {
    fn new(action: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self {
            action: action.into(),
            source: source.into(),
        }
    }
}

/// Names the purpose of a call in its error.
trait Context<T> {
    fn while_trying_to(self, action: impl Into<String>) -> Result<T, SysError>;
}

impl<T, E: Into<io::Error>> Context<T> for Result<T, E> {
    fn while_trying_to(self, action: impl Into<String>) -> Result<T, SysError> {
        self.map_err(|source| SysError::new(action, source))
    }
}
