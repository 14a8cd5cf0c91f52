//! The CUDA half of the protocol: API types and constants, requests, replies and their codec, and the table of the driver's symbols, all
//! generated from `api/cuda/`.

#![allow(
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    clippy::unnecessary_cast,
    clippy::doc_markdown,
    clippy::too_long_first_doc_paragraph
)]

pub mod collective;
pub mod facts;
pub mod graph;
pub mod snapshot;
pub mod texture_reference;

pub use crate::codec::{Decoder, List, Message, Request, Scalar};
use crate::codec::{put_blob, put_flag};
pub use crate::error::DecodeError;

include!(concat!(env!("OUT_DIR"), "/cuda_types.rs"));
include!(concat!(env!("OUT_DIR"), "/cuda_messages.rs"));
include!(concat!(env!("OUT_DIR"), "/cuda_symbols.rs"));

/// Largest image that a worker takes: what PyTorch's largest library holds for one architecture, several times over.
pub const IMAGE_LIMIT: u64 = 1 << 30;

/// An exported symbol of the driver, and the name and version by which `cuGetProcAddress` gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcSymbol {
    /// The name to ask for: `cuMemAlloc`.
    pub base: &'static str,
    /// Version from which the name means this symbol: 3020 is CUDA 3.2.
    pub since: i32,
    /// Whether its default stream is the calling thread's own.
    pub per_thread: bool,
    /// The symbol: `cuMemAlloc_v2`.
    pub name: &'static str,
}

/// Why there is no symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcMissing {
    /// The driver has no function of this name.
    Name,
    /// It has one, of a later version.
    Version,
}

/// The symbol that a base name means to a program written for `version`. With `per_thread` the form whose default stream is the thread's
/// own, where there is one in that version.
pub fn proc_symbol(
    base: &str,
    version: i32,
    per_thread: bool,
) -> Result<&'static ProcSymbol, ProcMissing> {
    let first = PROC_SYMBOLS.partition_point(|symbol| symbol.base < base);
    let named = PROC_SYMBOLS.get(first..).unwrap_or_default();
    let named = named.iter().take_while(|symbol| symbol.base == base);
    if named.clone().next().is_none() {
        return Err(ProcMissing::Name);
    }
    // Symbols of a name stand in the order of their versions.
    let newest = |per_thread: bool| {
        let fits =
            |symbol: &&ProcSymbol| symbol.per_thread == per_thread && symbol.since <= version;
        named.clone().filter(fits).last()
    };
    let found = if per_thread { newest(true) } else { None };
    found.or_else(|| newest(false)).ok_or(ProcMissing::Version)
}

#[cfg(test)]
use crate::sample;
#[cfg(test)]
mod tests;
