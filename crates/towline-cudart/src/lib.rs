//! The CUDA runtime API over the public driver API: what the libraries `libcudart.so.12` and `libcudart.so.13` are made of.
//!
//! It loads whatever `libcuda.so.1` the program would find, Towline's own or a vendor's, and uses its public functions alone: no export
//! table is asked for. Programs that nvcc links with `-cudart shared` load it.
//!
//! | Module | What it owns |
//! |---|---|
//! | [`guard`](mod@guard) | the way in: panics, the thread's last error, the thread's default stream |
//! | `runtime` | the driver, devices and their primary contexts, which of them a thread uses |
//! | `code` | device code that programs register: kernels and variables by their host shadows |
//! | `describe` | the driver's descriptions of copies and elements from the runtime's |
//! | `pass` | how a parameter goes on to the driver |
//! | `manual` | the calls that are not only passed on, by group |
//!
//! A call that is declared as passed on (`driver = ".."` in `api/cudart/`), or as answered by a method that several calls share
//! (`by = ..`), is generated; every other is a method of [`Runtime`] that is named like the C function. `towline-cudart12` and `towline-cudart13` export them.
//!
//! Lock order: the list of code, then one binary's library; a device's context. None is held while a function of the application runs.

#![allow(
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    clippy::too_many_arguments,
    clippy::missing_safety_doc,
    reason = "types and methods are named and shaped like those of the C API, whose contract is each method's"
)]

mod code;
mod describe;
mod guard;
mod manual;
mod pass;
mod runtime;

pub use guard::{guard, guard_plain, guard_unrecorded, per_thread};
pub use runtime::Runtime;
pub use types::*;

mod types {
    #![allow(
        dead_code,
        missing_docs,
        clippy::doc_markdown,
        reason = "declared as the API has them, used or not"
    )]

    pub use std::ffi::{c_char, c_void};

    use towline_backend::cuda::*;

    include!(concat!(env!("OUT_DIR"), "/cudart_types.rs"));
}

mod methods {
    use towline_backend::cuda::CudaApi;

    use crate::manual::copy::{In, Now, at, rows};
    use crate::manual::graph::line;
    use crate::pass::Pass;
    use crate::{Runtime, types::*};

    include!(concat!(env!("OUT_DIR"), "/cudart_methods.rs"));
}

/// Calls a function of the driver, and makes its status the caller's way out.
macro_rules! call {
    ($driver:ident . $function:ident ( $($argument:expr),* $(,)? )) => {{
        // SAFETY: the application's contract for the runtime's function, which covers the driver's; what is not the application's is
        // a local of the caller.
        let status = unsafe { $driver.$function($($argument),*) };
        $crate::runtime::check(status)?
    }};
}

/// Writes where the application said.
macro_rules! put {
    ($target:expr, $value:expr) => {{
        let (target, value) = ($target, $value);
        if target.is_null() {
            return Err($crate::cudaErrorInvalidValue);
        }
        // SAFETY: the application's contract: not NULL, and writable.
        unsafe { target.write(value) }
    }};
}

/// Reads what the application points to.
macro_rules! get {
    ($source:expr) => {{
        let source = $source;
        if source.is_null() {
            return Err($crate::cudaErrorInvalidValue);
        }
        // SAFETY: the application's contract: not NULL, and readable.
        unsafe { source.read() }
    }};
}

use {call, get, put};
