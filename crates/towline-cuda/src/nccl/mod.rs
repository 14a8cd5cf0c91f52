//! NCCL in front of a program's own: its calls go to the servers that have the devices, where the vendor's library runs them.
//!
//! | Module | What it owns |
//! |---|---|
//! | `calls` | the functions, as the program calls them |
//! | `communicator` | what the program has of communicators that live on servers |
//! | `group` | calls that are sent as one |

mod calls;
mod communicator;
mod group;

use std::ffi::{c_char, c_int, c_void};

use towline_backend::cuda::{CUDA_ERROR_UNKNOWN, CUDA_SUCCESS, CUstream};
use towline_backend::nccl::result;

pub(crate) use communicator::Communicators;

#[allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    reason = "declared as a whole"
)]
mod types {
    use super::*;

    include!(concat!(env!("OUT_DIR"), "/nccl_types.rs"));
}

use types::*;

/// What a call answers that could not run at all.
trait Failed {
    const FAILED: Self;
}

impl Failed for ncclResult_t {
    const FAILED: Self = result::INTERNAL_ERROR;
}

impl Failed for *const c_char {
    const FAILED: Self = c"an error inside Towline".as_ptr();
}

impl Failed for () {
    const FAILED: Self = ();
}

/// Runs a call as those of the driver run: panics and forked children end in its own failure.
fn guard<T: Failed>(name: &'static str, call: impl FnOnce() -> T) -> T {
    let mut answer = None;
    crate::export::guard(name, |_| {
        answer = Some(call());
        match answer {
            Some(_) => CUDA_SUCCESS,
            None => CUDA_ERROR_UNKNOWN,
        }
    });
    answer.unwrap_or(T::FAILED)
}

/// Answers a call that no server can be asked for.
fn refuse() -> ncclResult_t {
    result::INVALID_USAGE
}

mod symbols {
    #![allow(
        unreachable_pub,
        clippy::let_unit_value,
        unused_unsafe,
        reason = "programs reach these functions by their symbols"
    )]

    use super::*;

    include!(concat!(env!("OUT_DIR"), "/nccl_exports.rs"));
}
