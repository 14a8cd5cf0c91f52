//! NCCL: the functions of `libnccl.so.2`, which [`exports`] exports as `towline_ncclX` and `towline-nccl` jumps to.
//!
//! The prefix keeps a program's own `libnccl.so.2` from finding its functions in this library. The functions written by hand have the C
//! signatures and stand in [`calls`]; [`communicator`] is what the program has of communicators that live on servers, [`group`] calls that are
//! sent as one, [`memory`] what they allocate.

mod calls;
mod communicator;
mod group;
mod memory;

pub(crate) use calls::*;
pub(crate) use communicator::Communicators;
pub(crate) use types::*;

use crate::export;

/// Types, constants and errors of `api/nccl/types.rs`.
mod types {
    #![allow(
        dead_code,
        non_camel_case_types,
        non_upper_case_globals,
        reason = "named as in the C API, whose types stand there whole"
    )]
    #![allow(
        unreachable_pub,
        reason = "functions that programs reach by their symbols have them"
    )]

    use std::ffi::{c_char, c_void};

    use towline_backend::cuda::{CUevent, CUstream};

    include!(concat!(env!("OUT_DIR"), "/nccl_types.rs"));
}

/// The exported functions.
mod exports {
    #![allow(
        unreachable_pub,
        unused_unsafe,
        reason = "programs reach these functions by their symbols; some have no contract"
    )]

    use std::ffi::{c_char, c_void};

    use super::*;

    include!(concat!(env!("OUT_DIR"), "/nccl_exports.rs"));
}

/// Runs an exported function as those of the driver run; `answer` is what it says if it could not.
fn guard<T>(name: &'static str, mut answer: T, call: impl Fn() -> T) -> T {
    run(name, &mut || answer = call());
    answer
}

/// One function for all symbols, as in [`export`].
#[inline(never)]
fn run(name: &'static str, call: &mut dyn FnMut()) {
    if export::guarded(name, call).is_ok() {
        log::trace!("{name}");
    }
}

/// Answers a function that is declared and not carried, and says so in the log.
fn refuse<T>(name: &'static str, answer: T) -> T {
    log::warn!(
        "{name} is not supported by Towline's NCCL; docs/coverage/nccl.md lists the functions that are"
    );
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panic_becomes_the_failure_of_the_call() {
        let result = guard("test", ncclInternalError, || {
            std::panic::resume_unwind(Box::new("inside"))
        });
        assert_eq!(result, ncclInternalError);
    }

    #[test]
    fn refused_functions_answer_invalid_usage() {
        // SAFETY: the function reads none of its arguments.
        let result = unsafe {
            exports::towline_ncclParamGet(
                std::ptr::null_mut(),
                std::ptr::null_mut(),
                0,
                std::ptr::null_mut(),
            )
        };
        assert_eq!(result, ncclInvalidUsage);
        // SAFETY: as above.
        let team = unsafe { exports::towline_ncclTeamWorld(std::ptr::null_mut()) };
        assert_eq!(team.nRanks, 0);
    }
}
