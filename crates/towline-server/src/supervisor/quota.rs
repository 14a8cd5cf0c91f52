//! How much of the server one session may have.

use serde::{Deserialize, Serialize};

/// A limit of device memory: as much as the session's devices have.
pub const WHOLE_DEVICES: u64 = u64::MAX;

/// The limits of one session; 0 limits nothing.
///
/// A session gets its quota when it is granted, not when its worker is started: workers wait for clients of any tenant.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Quota {
    /// Device memory, over all devices; [`WHOLE_DEVICES`] until it is granted a session with devices.
    pub device_memory_bytes: u64,
    /// Memory of the host that the worker holds: staged and pinned memory, and what its driver keeps there.
    pub host_memory_bytes: u64,
    /// Temporary files, which lie in memory: caches of compiled kernels, and room for a linker.
    pub temporary_bytes: u64,
    /// Processes and threads.
    pub processes: u64,
    /// How long one kernel or graph may run.
    pub kernel_time_ms: u64,
    /// Device code: modules, programs, and graphs.
    pub code_bytes: u64,
    /// Time of the host's processors: 100 is one processor's.
    pub cpu_percent: u64,
}
