//! `libnvidia-ml.so.1`: a jump for each function of NVML to the one of Towline's `libcuda.so.1` that answers it.
//!
//! The driver library, which the loader brings with this one, holds the code that speaks with servers; a second copy would make packages
//! a tenth larger. It starts nothing before its functions are called. Other systems have no driver library yet: there, the functions
//! themselves are in this one.

#![allow(
    non_snake_case,
    unreachable_pub,
    reason = "programs reach these functions by their symbols, which are those of the C API"
)]

#[cfg(not(target_os = "linux"))]
use towline_monitor as _;

#[cfg(target_os = "linux")]
#[macro_use]
#[path = "../../towline-nccl/src/jump.rs"]
mod jump;

/// Tells this library from a vendor's (`towline_backend::OWN_LIBRARY_SYMBOL`).
#[unsafe(no_mangle)]
#[allow(
    non_upper_case_globals,
    reason = "reached by its symbol, named as symbols are"
)]
pub static towline_library: u8 = 1;

#[cfg(target_os = "linux")]
include!(concat!(env!("OUT_DIR"), "/jumps.rs"));
