//! The OpenCL contract and its implementations.

#![allow(
    clippy::type_complexity,
    clippy::unnecessary_cast,
    clippy::too_long_first_doc_paragraph,
    reason = "generated code is the same for every width of scalar"
)]

mod contract;
mod handles;
mod image;
mod native;
mod null;
mod scheduler;
mod serial;

pub use image::element_bytes;
pub use native::{NativeError, NativeOpenCl};
pub use null::NullOpenCl;
pub use serial::SerialOpenCl;
pub use towline_wire::opencl::*;

/// What a call answers that nobody implements: `CL_INVALID_OPERATION`.
const NOT_SUPPORTED: i32 = CL_INVALID_OPERATION;

include!(concat!(env!("OUT_DIR"), "/opencl_api.rs"));
