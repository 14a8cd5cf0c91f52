//! A device made of host memory and threads: OpenCL for tests, fuzzing and hostility tests, where no vendor runtime is wanted.
//!
//! It has no compiler; its built-in kernels compute a little (`add_one`, `scale`), wait (`spin_until`), talk (`print`) and crash
//! (`abort`). What it implements it implements as the specification has it, argument errors included; queues are threads, so
//! asynchrony is real. Handles are never reused, so a stale one is answered with its kind's error, and [`NullOpenCl::calls`] and
//! [`NullOpenCl::live_objects`] let a test see what was called and that nothing is left behind.

mod calls;
mod info;
mod kernels;
mod memory;
mod registry;

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use registry::Shared;

/// The host-memory device; see the module.
pub struct NullOpenCl {
    shared: Arc<Shared>,
    platform: usize,
    devices: Vec<usize>,
    calls: Mutex<HashMap<&'static str, u64>>,
    unified: bool,
}

impl NullOpenCl {
    /// A platform with this many devices.
    pub fn new(devices: usize) -> Self {
        let shared = Arc::new(Shared::new());
        Self {
            platform: shared.registry.mint(),
            devices: (0..devices).map(|_| shared.registry.mint()).collect(),
            shared,
            calls: Mutex::default(),
            unified: true,
        }
    }

    /// Devices that say their memory is not the host's, so that transfers take the way of discrete GPUs. As with NVIDIA's driver
    /// (580.159), a command that waits holds up what comes after it even in a queue without order.
    pub fn discrete(devices: usize) -> Self {
        let mut null = Self::new(devices);
        null.unified = false;
        null
    }

    /// How often the call of this name came.
    pub fn calls(&self, name: &str) -> u64 {
        let calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.get(name).copied().unwrap_or(0)
    }

    /// Objects that live: named by the application, or kept by another one or by a command that has not ended.
    pub fn live_objects(&self) -> u64 {
        self.shared.scheduler.live.load(Ordering::Relaxed)
    }

    /// Handles that the application has not released.
    pub fn live_handles(&self) -> usize {
        self.shared.registry.len()
    }

    /// Bytes of all live buffers that brought no memory of their own.
    pub fn allocated_bytes(&self) -> usize {
        self.shared.allocated.load(Ordering::Relaxed)
    }

    fn count(&self, name: &'static str) {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        *calls.entry(name).or_insert(0) += 1;
    }
}

impl Drop for NullOpenCl {
    fn drop(&mut self) {
        self.shared.scheduler.close();
    }
}

#[cfg(test)]
mod tests;
