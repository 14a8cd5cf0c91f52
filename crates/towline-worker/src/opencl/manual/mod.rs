//! The halves that are written by hand, by group: methods of [`Session`](crate::opencl::session::Session) named like the calls that they
//! carry out. The dispatcher names each of them, so a missing one does not compile.
#![allow(
    non_snake_case,
    reason = "methods are named exactly like the calls, so that one search finds every half"
)]

mod context;
mod event;
mod gate;
mod image;
pub(crate) mod include;
mod kernel;
mod memory;
mod peer;
mod place;
mod program;
mod queue;
pub(crate) mod ring;
mod svm;
mod transfer;

pub(crate) use kernel::Expected;
