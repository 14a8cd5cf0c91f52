//! The worker: one process per session, started by the supervisor, that runs a client's calls on the device.

mod broker;
pub mod cuda;
mod door;
mod lanes;
pub mod nvml;
pub mod opencl;
pub mod process;
pub(crate) mod protocol;
