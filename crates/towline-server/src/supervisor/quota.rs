//! How much of the server one session may have, and all clients together.

use std::time::Duration;

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
    /// Open files.
    pub descriptors: u64,
}

/// The limits of what clients take of the server besides sessions.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ServerLimits {
    /// Connections that ask for status, devices or what NVML tells, at once. Programs keep the last kind open while they ask.
    pub queries: usize,
    /// How long such a connection may ask nothing.
    pub query_silence: Duration,
    /// How long a client may take to open the lanes of its session: it does so at once, but its machine may be busy.
    pub lanes: Duration,
    /// How long a session over TCP outlives a cut of its connections; zero: not at all.
    pub grace: Duration,
    /// The most that a session offers to others at once. PyTorch shares up to 1,000 events of a process, and some memory.
    pub session_offers: usize,
    /// Lines of a worker in the log in ten seconds: a crash with all its frames, and a compiler's complaints, come through.
    pub log_lines: u32,
    /// Images of device code in memory.
    pub images: usize,
    /// In percent of a device's time, of tenants without a share of their own; `None`: a part of what others' shares leave.
    pub default_share: Option<u8>,
    /// Host memory for what sessions had on devices and have given up for others; 0: they keep it.
    pub swap_bytes: u64,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            queries: 256,
            query_silence: Duration::from_secs(60),
            lanes: Duration::from_secs(20),
            grace: Duration::ZERO,
            session_offers: 2048,
            log_lines: 200,
            images: 4096,
            default_share: None,
            swap_bytes: 0,
        }
    }
}
