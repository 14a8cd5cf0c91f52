//! `libnccl.so.2`: NCCL's functions by their symbols, each a jump to the driver library `libcuda.so.1`, which has the sessions and answers
//! them (`towline-cuda`, module `nccl`).
#![cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
#![allow(
    non_snake_case,
    unreachable_pub,
    missing_docs,
    reason = "programs reach these functions by their symbols, which are those of the C API"
)]

/// Tells this library from a vendor's (`towline_backend::OWN_LIBRARY_SYMBOL`).
#[unsafe(no_mangle)]
#[allow(
    non_upper_case_globals,
    reason = "reached by its symbol, named as symbols are"
)]
pub static towline_library: u8 = 1;

include!(concat!(env!("OUT_DIR"), "/nccl_jumps.rs"));
