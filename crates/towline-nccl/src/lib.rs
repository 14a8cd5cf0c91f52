//! `libnccl.so.2`: a jump for each function of NCCL to the one of Towline's `libcuda.so.1` that answers it.
//!
//! All state is the driver library's, which the loader brings with this one. A program that finds this library, preloaded by
//! `towline run`, does not look for NVIDIA's, whatever its own search path says: the loader compares the names that libraries have.

#![cfg(target_os = "linux")]
#![allow(
    non_snake_case,
    unreachable_pub,
    reason = "programs reach these functions by their symbols, which are those of the C API"
)]

/// Tells this library from a vendor's (`towline_backend::OWN_LIBRARY_SYMBOL`).
#[unsafe(no_mangle)]
#[allow(
    non_upper_case_globals,
    reason = "reached by its symbol, named as symbols are"
)]
pub static towline_library: u8 = 1;

#[macro_use]
mod jump;

include!(concat!(env!("OUT_DIR"), "/jumps.rs"));
