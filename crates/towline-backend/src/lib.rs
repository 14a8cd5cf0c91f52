//! Backends: what a worker (or, for local devices, the client) runs API calls on.
//!
//! Every layer of the data path speaks one generated contract per API, [`opencl::OpenClApi`] or [`cuda::CudaApi`]: the vendor's library
//! behind it, a session with a server behind it, or the platform that spreads over several of either.

pub mod cuda;
pub mod opencl;
