//! The generated dispatcher: one arm per call.

#![allow(
    clippy::unnecessary_cast,
    clippy::unnecessary_map_on_constructor,
    reason = "generated code is the same for every width of scalar"
)]

use towline_backend::opencl as wire;
use towline_backend::opencl::*;
use towline_wire::error::{CloseCode, ProtocolError};

use super::session::Session;
use crate::decode::{aligned, c_string};

include!(concat!(env!("OUT_DIR"), "/opencl_dispatch.rs"));

/// Largest answer that a query may ask room for: as much as a message may hold.
const ROOM: u64 = towline_wire::frame::MESSAGE_LIMIT as u64 / 2;

/// Room for an answer, checked before it is allocated.
fn room<T: Default + Clone>(count: u64) -> Result<Vec<T>, ProtocolError> {
    let bytes = count.saturating_mul(size_of::<T>() as u64);
    if bytes > ROOM {
        let detail = format!("a query asks room for {bytes} bytes, the limit is {ROOM}");
        return Err(ProtocolError::new(CloseCode::LimitExceeded, detail));
    }
    Ok(vec![T::default(); count as usize])
}

/// How much of an answer is there: what the vendor reports, and never more than there was room for.
fn reported(room: usize, actual: u64) -> usize {
    usize::try_from(actual).unwrap_or(room).min(room)
}

/// Queries whose answers are native pointers, or go through pointers: a client knows the objects by its own numbers, and must not
/// learn where things lie in the worker.
const WITHHELD: &[u32] = &[
    CL_DEVICE_PLATFORM,
    CL_DEVICE_PARENT_DEVICE,
    CL_PROGRAM_CONTEXT,
    CL_PROGRAM_DEVICES,
    CL_PROGRAM_BINARIES,
    CL_KERNEL_CONTEXT,
    CL_KERNEL_PROGRAM,
];

/// Whether the answer to this query does not travel.
fn withheld(query: u32) -> bool {
    WITHHELD.contains(&query)
}
