//! The halves that are written by hand, by group: methods of [`Session`](super::session::Session) named like the calls that they carry
//! out. The dispatcher names each of them, so a missing one does not compile.
#![allow(
    non_snake_case,
    reason = "methods are named exactly like the calls, so that one search finds every half"
)]

mod array;
mod boxes;
mod collective;
mod context;
mod graph;
mod jit;
mod launch;
mod link;
mod memory;
mod module;
mod share;
mod sharing;
mod sync;
mod texture;
mod transfer;
mod virtual_memory;

pub(crate) use link::{Link, Linker};
pub(crate) use sharing::{Imported, Sharing, is_event};
pub(crate) use virtual_memory::VirtualMemory;
