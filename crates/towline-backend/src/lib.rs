//! Backends: what a worker (or, for local devices, the client) runs API calls on.
//!
//! Every layer of the data path speaks one generated contract per API, [`opencl::OpenClApi`], [`cuda::CudaApi`] or [`nvml::NvmlApi`]: the vendor's library
//! behind it, a session with a server behind it, or the platform that spreads over several of either.

#![warn(missing_docs)]

pub mod cuda;
pub mod nccl;
pub mod nvml;
pub mod opencl;

/// The symbol by which our own client libraries are told from a vendor's: a server that loaded one would be a client of itself.
pub const OWN_LIBRARY_SYMBOL: &str = "towline_library";
