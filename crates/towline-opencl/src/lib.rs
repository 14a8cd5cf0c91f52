//! The OpenCL library that applications load: an ICD with one platform, "Towline", that holds the devices of all providers.
//!
//! A *provider* is a session with a server, or a vendor's library of this host. The platform validates arguments, owns every object
//! that the application sees, answers what it knows, and passes on the rest; a context may span providers.
//!
//! | Module | What it owns |
//! |---|---|
//! | [`stub`](self) | the C ABI and the dispatch table |
//! | `arena` | handles |
//! | `platform`, `device`, `context`, `queue`, `memory`, `image`, `sampler`, `program`, `kernel`, `event`, `svm` | the objects |
//! | `command`, `transfer`, `boxes` | enqueueing |
//! | `coherence` | copies of memory objects on several providers |
//! | `map` | mapping |
//! | `forward` | calls that are passed on as they are |
//! | `callback` | threads for callbacks and transfers |
//! | `providers` | where devices come from |
//! | `report` | where the time went |
//! | `system` | memory, exit and fork, of Unix and of Windows |
//!
//! Lock order: a kernel's arguments, then a memory object's coherence, then its creation; an event's links; everything else is held
//! alone.

#![warn(missing_docs)]
#![allow(
    non_snake_case,
    non_upper_case_globals,
    clippy::too_many_arguments,
    reason = "methods are named and shaped like the functions of the C API, constants named like its own"
)]

mod arena;
mod batch;
mod boxes;
mod callback;
mod coherence;
mod command;
mod context;
mod device;
mod event;
mod farewell;
mod fence;
mod forward;
mod image;
mod info;
mod kernel;
mod map;
mod memory;
mod platform;
mod program;
mod providers;
mod queue;
mod raw;
mod report;
mod sampler;
mod signature;
mod stub;
mod svm;
#[cfg_attr(unix, path = "system/unix.rs")]
#[cfg_attr(not(unix), path = "system/windows.rs")]
mod system;
mod timeline;
mod transfer;

pub use platform::Platform;
pub use providers::Provider;

/// The function of this name. For programs that are linked with this library instead of loading it.
pub fn exported(name: &str) -> Option<*const std::ffi::c_void> {
    stub::address(name)
}
