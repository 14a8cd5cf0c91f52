//! What a worker does with a session: decodes requests in order, turns client-minted numbers into native objects, calls the backend,
//! and pushes replies, completions and data.
//!
//! The lane thread (see [`engine`]) never waits for a device: whatever may wait is started here and finished by a completion, on a
//! waiter thread or on the vendor's own. The crate knows neither sockets nor processes; `towline-server` starts it in a jailed
//! process, tests run it in their own.

mod broker;
mod code;
mod completion;
mod cuda;
mod decode;
mod device_time;
mod dispatch;
mod engine;
mod images;
mod lane;
mod link;
mod manual;
mod may_print;
mod memory_budget;
mod nvml;
mod payload;
mod peer;
mod print;
mod queues_at_work;
mod session;
mod shared;
mod snapshot;
mod waiters;
mod watchdog;

pub use broker::{Broker, NoBroker, OFFER_BYTES, Offer, Offers, TOKEN_BYTES, Taken, Token};
pub use cuda::{CudaEngine, CudaOpenError};
pub use engine::Engine;
pub use images::{DIGEST_BYTES, ImageDigest, Images, sealed as sealed_image};
pub use lane::{Limits, RunError, SideLane};
pub use link::Counters;
pub use memory_budget::{GRANULE, MemoryBudget, Reserved};
pub use nvml::{NvmlMonitor, NvmlOpenError};
pub use snapshot::SnapshotError;
