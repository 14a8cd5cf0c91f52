//! From a bare host to a virtualized GPU node, and back.
//!
//! - [`inspect`]: reads what a host is into [`host::Host`]; changes nothing.
//!
//! Linux only. Everything is read and written below a [`root::Root`], so that tests run on recorded trees.
#![forbid(unsafe_code)]

pub mod address;
pub mod config;
pub mod host;
mod inspect;
mod paths;
mod picture;
pub mod root;

pub use address::PciAddress;
pub use host::Host;
pub use inspect::inspect;
pub use picture::picture;
pub use root::Root;
