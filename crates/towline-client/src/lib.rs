//! The client's end of sessions: dialling servers, the ordered command lane, payload, completions; [`opencl::Remote`], the OpenCL
//! contract over one session; [`cuda::Session`], what a CUDA driver is made of; and [`nvml::Monitor`], what NVML tells of a server.
//!
//! Whatever can be answered here is answered here; everything else goes one way, and only what needs data back waits. Each wait is
//! counted by the API call that it was for ([`meter`]), so tests assert round trips and `--report` shows them.

#![warn(missing_docs)]

pub mod access;
pub mod calls;
pub mod collectives;
pub mod config;
pub mod cuda;
pub mod dial;
pub mod environment;
pub mod farewell;
#[cfg(unix)]
mod held;
mod link;
mod links;
mod memory;
pub mod meter;
mod moved;
pub mod nvml;
pub mod opencl;
mod payload;
pub mod peer;
pub use towline_transport::pinned;
mod private;
pub mod raw;
mod rejoin;
pub mod report;
mod state;
pub mod threads;
pub mod timeline;
pub mod tuning;
