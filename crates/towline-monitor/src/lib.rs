//! The functions of NVML, with the devices of servers. The driver library exports them as `towline_nvmlX`; `libnvidia-ml.so.1`
//! (`towline-nvml`) is a jump to each. On systems without a driver library they have their own names.
//!
//! It takes no session and uses no device. What never changes comes with each server's welcome; the rest is asked on the same connection
//! and kept for a moment ([`towline_client::nvml`]). What would change a device is refused.
//!
//! | Module | What it owns |
//! |---|---|
//! | [`export`](self) | the C ABI: symbols, panics, forked children |
//! | `library` | servers, devices, whose a handle is |
//! | `system`, `device`, `place`, `clock`, `utilization`, `process`, `nvlink`, `event`, `instance` | the calls of each group that are not just passed on |
//! | `tables` | the undocumented table that nvidia-smi asks for |

#![warn(missing_docs)]
#![allow(
    non_snake_case,
    clippy::too_many_arguments,
    reason = "methods are named and shaped like the functions of the C API"
)]

mod clock;
mod device;
mod event;
mod export;
mod instance;
mod library;
mod nvlink;
mod place;
mod process;
mod system;
mod tables;
mod utilization;

use towline_client::raw;

pub use library::Library;
