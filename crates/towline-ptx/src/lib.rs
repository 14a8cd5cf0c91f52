//! What CUDA modules are made of, read without a driver.
//!
//! - [`image`]: what `cuModuleLoadData` was given, and how long it is.
//! - [`fatbin`]: the container that holds a program for several devices; which entry of it a device uses.
//! - [`cubin`]: the kernels, parameters and variables of machine code.
//! - [`ptx`]: the same of PTX text, and the statements of its functions.
//! - [`parameters`]: where the parameters of kernels lie, by either, and nothing else of them.
//! - [`ir`]: what those statements mean: typed operations on registers and memory, linked, for whoever executes or compiles them.
//!
//! Everything here takes bytes that somebody else made. Every decoder is total: it answers or says what is wrong and where, it
//! never panics, and what it allocates is in proportion to what it was given, up to a named limit. No I/O, no `unsafe`.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod arch;
mod bytes;
pub mod cubin;
mod elf;
mod error;
pub mod fatbin;
pub mod image;
pub mod ir;
pub mod parameters;
pub mod ptx;

pub use arch::{Arch, ComputeCapability, Variant};
pub use error::Error;
