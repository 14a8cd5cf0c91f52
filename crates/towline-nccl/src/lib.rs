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

/// The instruction that goes on at a function of another library.
#[cfg(target_arch = "x86_64")]
macro_rules! instruction {
    ($target:literal) => {
        concat!("jmp qword ptr [rip + ", $target, "@GOTPCREL]")
    };
}

/// The instruction that goes on at a function of another library.
#[cfg(target_arch = "aarch64")]
macro_rules! instruction {
    ($target:literal) => {
        concat!("b ", $target)
    };
}

macro_rules! jump {
    ($symbol:ident, $target:literal) => {
        /// Goes on in the driver library.
        ///
        /// # Safety
        /// The contract of the C function of this name.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $symbol() {
            core::arch::naked_asm!(instruction!($target))
        }
    };
}

include!(concat!(env!("OUT_DIR"), "/nccl_jumps.rs"));
