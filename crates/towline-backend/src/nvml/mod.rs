//! The NVML contract and its implementations.

#![allow(
    clippy::type_complexity,
    clippy::unnecessary_cast,
    clippy::doc_markdown,
    clippy::too_long_first_doc_paragraph,
    reason = "generated code is the same for every width of scalar"
)]

mod native;
mod null;

pub use native::{NativeNvml, NvmlError};
pub use null::NullNvml;
pub use towline_wire::nvml::*;

/// What a call answers that nobody implements.
const NOT_SUPPORTED: nvmlReturn_t = NVML_ERROR_NOT_SUPPORTED;
/// What a call answers that changes a device: no client may.
const NO_PERMISSION: nvmlReturn_t = NVML_ERROR_NO_PERMISSION;

include!(concat!(env!("OUT_DIR"), "/nvml_api.rs"));
