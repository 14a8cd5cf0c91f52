//! What a worker does with a session: decodes requests in order, turns client-minted numbers into native objects, calls the backend,
//! and pushes replies, completions and data.
//!
//! The lane thread never waits for a device: whatever may wait is started here and finished by a completion, on a
//! waiter thread or on the vendor's own. The crate knows neither sockets nor processes; `towline-server` starts it in a jailed
//! process, tests run it in their own.

mod code;
mod cuda;
mod decode;
mod device_time;
mod lane;
mod link;
mod memory_budget;
mod nvml;
mod opencl;
mod payload;
mod print;
mod waiters;
mod watchdog;

pub use cuda::{
    Broker, CudaEngine, CudaOpenError, DIGEST_BYTES, ImageDigest, Images, NoBroker, OFFER_BYTES,
    Offer, Offers, TOKEN_BYTES, Taken, Token, sealed_image,
};
pub use lane::{Limits, RunError, SideLane};
pub use link::Counters;
pub use memory_budget::{GRANULE, MemoryBudget, Reserved};
pub use nvml::{NvmlMonitor, NvmlOpenError};
pub use opencl::{Engine, SnapshotError};
