//! The driver library that CUDA applications load: `libcuda.so.1` with the devices of servers.
//!
//! The driver answers what it knows, checks what it can, and sends the rest one way; it waits only where the program needs data back.
//!
//! | Module | What it owns |
//! |---|---|
//! | [`export`](self) | the C ABI: symbols, panics, forked children |
//! | `driver` | sessions, devices, whose call it is |
//! | `thread` | what belongs to a thread: context stack, capture mode, its own default stream |
//! | `device`, `policy` | devices and which of their attributes hold over a network |
//! | `context`, `stream`, `event`, `memory`, `virtual_memory`, `copy`, `texture`, `pool`, `module`, `launch` | the calls of each group |
//! | `ipc` | memory and events shared with other processes |
//! | `written` | copies that have returned and may be on their way |
//! | `mirror` | managed memory, and pinned and registered memory that kernels reach |
//! | `operations`, `stream_attributes` | values that streams wait for and write, attributes of streams |
//! | `array`, `tensor`, `peer` | arrays, descriptions of tensors, what devices can do with each other's memory |
//! | `graph` | graphs, and streams that are captured into them |
//! | `image`, `jit`, `link` | device code, options of its compiler, links of it |
//! | `layout` | where parameters lie, by the image |
//! | `pack`, `old_launch`, `occupancy` | parameters of launches, launches as they once were, how much of a kernel runs at once |
//! | `entry`, `profiler` | errors by name, functions by name and version, the calls of tools |
//! | `messages` | the driver's log |
//! | `compiled` | the cache of NVIDIA's run-time compiler |
//! | `tables`, `handshake` | the undocumented tables that the runtime library asks for |
//!
//! Lock order: an executable graph's state, then `graphs` or what is `written`, then `streams`, `functions`, `memory` or a context's work.
//! Everything else is held alone, and but for the first, a session's twins, and the blocks of a mirror (then its lane), nothing while a server
//! is waited for. Twins come before blocks, the list of a session's contexts and a context's work, behind `memory`.

#![warn(missing_docs)]
#![allow(
    non_snake_case,
    non_camel_case_types,
    clippy::too_many_arguments,
    reason = "methods are named and shaped like the functions of the C API"
)]

mod addresses;
mod array;
mod collective;
mod compiled;
mod context;
mod copy;
mod device;
mod driver;
mod entry;
mod event;
mod export;
mod graph;
mod handshake;
mod image;
mod ipc;
mod jit;
mod kept;
mod launch;
mod layout;
mod library;
mod link;
mod memory;
mod messages;
mod mirror;
mod module;
mod moving;
mod nccl;
mod occupancy;
mod old_launch;
mod operations;
mod pack;
mod peer;
mod pinned;
mod policy;
mod pool;
mod profiler;
mod report;
mod stream;
mod stream_attributes;
mod tables;
mod tensor;
mod texture;
mod thread;
mod timeline;
mod virtual_memory;
mod written;

use towline_client::raw;
// Exports the functions that `libnvidia-ml.so.1` jumps to.
use towline_monitor as _;

pub use driver::Driver;

/// The exported function of this name. For programs that are linked with this library instead of loading it.
pub fn exported(symbol: &str) -> Option<*const std::ffi::c_void> {
    export::address(symbol)
}
