//! A session of the CUDA driver API.
//!
//! The lane thread never waits for the GPU. What has to stand behind something that only time or the client brings is **parked** at its
//! stream (see [`streams`]): behind a write whose payload is on the way, behind a function of the application's, or behind more launches
//! than the driver queues without waiting. A parked request runs on a thread of the stream's, in the stream's order, and requests of
//! streams that have nothing to do with it go on. It only ever waits for requests that came before it, so no two wait for each other;
//! and what the client must send for it, the lane is free to take.

mod ahead;
mod areas;
mod beacon;
mod broker;
mod collective;
mod context;
mod dispatch;
mod engine;
mod graph;
mod images;
mod manual;
mod may_print;
mod messages;
mod page;
mod pinned;
mod placed;
mod recent;
mod region;
mod residents;
mod session;
mod shared;
mod signal;
mod snapshot;
mod streams;
mod swap;

pub use broker::{Broker, NoBroker, OFFER_BYTES, Offer, Offers, TOKEN_BYTES, Taken, Token};
pub use collective::OpenLibrary;
pub use engine::{CudaEngine, CudaOpenError};
pub use images::{DIGEST_BYTES, ImageDigest, Images, sealed as sealed_image};
