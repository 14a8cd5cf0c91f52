//! `libcudart.so.13`: the functions of CUDA 13's runtime, by its symbols and in its layouts. `towline-cudart` answers them.

#![allow(
    non_snake_case,
    unreachable_pub,
    clippy::too_many_arguments,
    reason = "programs reach these functions by their symbols, which are those of the C API"
)]

use towline_cudart::*;

/// The major version that this library is.
const MAJOR: u32 = 13;

/// Tells this library from a vendor's (`towline_backend::OWN_LIBRARY_SYMBOL`).
#[unsafe(no_mangle)]
#[allow(
    non_upper_case_globals,
    reason = "reached by its symbol, named as symbols are"
)]
pub static towline_library: u8 = 1;

include!(concat!(env!("OUT_DIR"), "/cudart_exports.rs"));
