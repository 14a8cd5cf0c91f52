//! From a bare host to a virtualized GPU node, and back.
//!
//! - [`inspect`]: reads what a host is into [`host::Host`]; changes nothing.
//! - [`plan()`]: pure; from a host and a [`Request`] to a [`Plan`]: machines, steps, or why it cannot be done.
//!
//! Linux only. Everything is read and written below a [`root::Root`], so that tests run on recorded trees.
#![forbid(unsafe_code)]

pub mod address;
pub mod config;
pub mod host;
mod inspect;
mod paths;
mod picture;
pub mod plan;
pub mod request;
pub mod root;
pub mod step;

pub use address::PciAddress;
pub use host::Host;
pub use inspect::inspect;
pub use picture::picture;
pub use plan::{Plan, plan};
pub use request::Request;
pub use root::Root;
