//! The NVML half of the protocol: types and constants, requests, replies and their codec, generated from `api/nvml/`. They travel as
//! questions and answers on a control connection ([`crate::control::NvmlQuestions`]).

#![allow(
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    clippy::unnecessary_cast,
    clippy::doc_markdown,
    clippy::too_long_first_doc_paragraph
)]

pub mod snapshot;

pub use crate::codec::{Decoder, List, Message, Request, Scalar};
use crate::codec::{put_blob, put_flag};
pub use crate::error::DecodeError;

include!(concat!(env!("OUT_DIR"), "/nvml_types.rs"));
include!(concat!(env!("OUT_DIR"), "/nvml_messages.rs"));

impl DeviceHandle {
    /// The number of the device on its server, counted from 0. The upper half of a handle is the client's own affair.
    pub fn number(self) -> Option<usize> {
        let low = usize::try_from(self.0 & u64::from(u32::MAX)).ok()?;
        low.checked_sub(1)
    }

    /// The handle of a server's device by its number, with what the client calls the server.
    pub fn of(server: u16, number: u32) -> Self {
        Self((u64::from(server) << 32) | (u64::from(number) + 1))
    }

    /// What the client calls the server.
    pub fn server(self) -> u64 {
        self.0 >> 32
    }
}

#[cfg(test)]
use crate::sample;
#[cfg(test)]
mod tests;
