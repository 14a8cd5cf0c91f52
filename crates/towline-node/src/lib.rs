//! From a bare host to a virtualized GPU node, and back.
//!
//! - [`inspect()`]: reads what a host is into [`host::Host`]; changes nothing.
//! - [`plan()`]: pure; from a host and a [`Request`] to a [`Plan`]: machines, steps, or why it cannot be done.
//! - [`apply()`], [`apply_plan`], [`undo`]: make the steps' changes to a [`world::World`] and take them back, by a journal.
//! - [`prove`]: what the machines cost, by benchmarks in turns.
//! - [`vm`]: what a plan means to libvirt, cloud-init, NCCL and OpenStack.
//!
//! Linux only. Everything is read and written below a [`root::Root`], so that tests run on recorded trees.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod act;
pub mod address;
pub mod apply;
pub mod config;
mod drive;
pub mod host;
mod inspect;
pub mod journal;
mod paths;
mod picture;
pub mod plan;
pub mod prove;
pub mod request;
pub mod root;
pub mod step;
pub mod vm;
pub mod world;

pub use address::PciAddress;
pub use apply::{apply, apply_plan, undo};
pub use host::Host;
pub use inspect::inspect;
pub use picture::picture;
pub use plan::{Plan, plan};
pub use request::Request;
pub use root::Root;
