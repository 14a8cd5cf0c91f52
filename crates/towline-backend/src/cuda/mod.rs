//! The CUDA contract and its implementations.

#![allow(
    clippy::type_complexity,
    clippy::unnecessary_cast,
    clippy::doc_markdown,
    clippy::too_long_first_doc_paragraph,
    reason = "generated code is the same for every width of scalar"
)]

pub mod arrays;
pub mod graphs;
mod native;
mod null;
pub mod references;

pub use native::{NativeCuda, NativeError};
pub use null::NullCuda;
pub use towline_wire::cuda::*;

/// What a call answers that nobody implements.
const NOT_SUPPORTED: i32 = CUDA_ERROR_NOT_SUPPORTED;

include!(concat!(env!("OUT_DIR"), "/cuda_api.rs"));
