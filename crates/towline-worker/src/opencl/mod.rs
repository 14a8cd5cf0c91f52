//! A session of OpenCL.
//!
//! Work that may wait is enqueued on the lane's thread and finished by a completion: the vendor's callback, or on GPUs, whose callbacks come
//! late, a thread that waits.

mod completion;
mod dispatch;
mod engine;
mod manual;
mod may_print;
mod peer;
mod queues_at_work;
mod session;
mod shared;
mod snapshot;

pub use engine::OpenClEngine;
pub use snapshot::OpenClOpenError;
