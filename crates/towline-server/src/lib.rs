//! The server side of Towline: the supervisor, which clients reach, and the worker, which serves one of them.
//!
//! They are two processes. The supervisor accepts, authenticates, admits and cleans up, and never loads a vendor
//! driver; a worker loads one and is jailed. See `docs/internals.md` for the start of a session.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod supervisor;
pub mod worker;
