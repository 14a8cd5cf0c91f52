//! Towline's wire protocol: frames and chunks, the codec, the messages generated from `api/`, the control protocol and the table of
//! error codes. No I/O, no clock, no `unsafe`: `docs/protocol.md` in code.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod codec;
pub mod control;
pub mod cuda;
pub mod error;
pub mod facts;
pub mod frame;
pub mod nvml;
pub mod opencl;
pub mod peer;
pub mod push;
#[cfg(test)]
mod sample;
pub mod snapshot;
