//! Memory of arrays, and where copies find it.

use std::sync::Arc;

use towline_backend::cuda::arrays::{ArrayDevice, Arrays};
use towline_backend::cuda::*;

use super::{SoftCuda, fresh, lock};
use crate::memory::{Arena, Purpose};

/// Memory of an array in the arena.
#[derive(Debug)]
pub struct ArrayMemory {
    arena: Arc<Arena>,
    /// The address of its elements; 0 without any.
    pub(super) address: u64,
    bytes: usize,
}

impl Drop for ArrayMemory {
    fn drop(&mut self) {
        self.arena.free(self.address, Purpose::Array);
    }
}

impl ArrayDevice for SoftCuda {
    type Memory = ArrayMemory;

    fn arrays<T>(&self, go: impl FnOnce(&mut Arrays<ArrayMemory>) -> T) -> T {
        go(&mut lock(&self.arrays))
    }

    fn array_context(&self) -> Result<usize, CUresult> {
        self.context().map(|context| context.handle)
    }

    fn array_memory(&self, bytes: usize) -> Result<ArrayMemory, CUresult> {
        let device = self.context()?.device as u32;
        let arena = Arc::clone(&self.arena);
        if bytes as u64 > self.free_bytes(device) {
            return Err(CUDA_ERROR_OUT_OF_MEMORY);
        }
        let address = match bytes {
            0 => 0,
            bytes => arena
                .allocate(bytes as u64, device, Purpose::Array)
                .ok_or(CUDA_ERROR_OUT_OF_MEMORY)?,
        };
        Ok(ArrayMemory {
            arena,
            address,
            bytes,
        })
    }

    fn fresh_handle(&self) -> usize {
        fresh()
    }

    fn wait_for_users(&self) {
        self.streams.wait_all(None);
    }

    fn bytes_of(memory: &ArrayMemory) -> usize {
        memory.bytes
    }
}
