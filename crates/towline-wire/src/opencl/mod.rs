//! The OpenCL half of the protocol: API types and constants, requests, replies and their codec, all generated from `api/opencl/`.

#![allow(
    non_camel_case_types,
    non_upper_case_globals,
    clippy::unnecessary_cast,
    clippy::too_long_first_doc_paragraph
)]

pub mod files;

pub use crate::codec::{Decoder, List, Message, Request, Scalar};
use crate::codec::{put_blob, put_flag};
pub use crate::error::DecodeError;

include!(concat!(env!("OUT_DIR"), "/opencl_types.rs"));
include!(concat!(env!("OUT_DIR"), "/opencl_messages.rs"));

#[cfg(test)]
use crate::sample;
#[cfg(test)]
mod tests;
