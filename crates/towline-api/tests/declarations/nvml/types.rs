//! What the shapes of NVML need.

type nvmlReturn_t = i32;

extern "C" {
    #[handle(tag = 1)]
    type nvmlDevice_t;
}

pub struct nvmlRoom_v1_t {
    pub version: u32,
    pub free: u64,
}

pub const NVML_SUCCESS: nvmlReturn_t = 0;
pub const NVML_ERROR_INVALID_ARGUMENT: nvmlReturn_t = 2;
pub const NVML_ERROR_ARGUMENT_VERSION_MISMATCH: nvmlReturn_t = 25;
