//! Pinned host memory that transfers go through: blocks of two sizes, allocated when first needed, kept for the next.
//!
//! A stream waits for blocks of its own only, which come back in its order: two streams would wait for each other's otherwise, though a
//! kernel on one may wait for the copy on the other. So the limit holds for streams that have blocks; one that has none gets its first.

use std::sync::{Mutex, MutexGuard, PoisonError};

use towline_backend::cuda::*;

use crate::link::Raw;

/// Bytes of a small block: the largest read that comes back on the command lane.
pub(crate) const SMALL: usize = 128 << 10;
/// Bytes of a large block: a window of a transfer on the payload lanes.
pub(crate) const LARGE: usize = 4 << 20;
/// Most pinned memory of a context, but for the first block of a stream.
const LIMIT: usize = 1 << 30;

/// See the module's text.
#[derive(Default)]
pub(crate) struct Pinned(Mutex<State>);

#[derive(Default)]
struct State {
    small: Vec<Raw>,
    large: Vec<Raw>,
    /// What the driver gave, each of [`LARGE`] bytes.
    slabs: Vec<Raw>,
}

/// A block in use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Block {
    pub(crate) memory: Raw,
    large: bool,
}

impl Pinned {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A block of at least `size` bytes, which must be at most [`LARGE`]; whatever the limit, if it is the `first` of its stream. The
    /// memory's context must be current.
    pub(crate) fn take(
        &self,
        api: &dyn CudaApi,
        size: usize,
        first: bool,
    ) -> Result<Block, CUresult> {
        let large = size > SMALL;
        let mut state = self.lock();
        let free = if large {
            state.large.pop()
        } else {
            state.small.pop()
        };
        if let Some(memory) = free {
            return Ok(Block { memory, large });
        }
        if !first && state.slabs.len() >= LIMIT / LARGE {
            return Err(CUDA_ERROR_OUT_OF_MEMORY);
        }
        let mut slab = std::ptr::null_mut();
        // SAFETY: one place for the address.
        let status = unsafe { api.cuMemHostAlloc(&raw mut slab, LARGE, CU_MEMHOSTALLOC_PORTABLE) };
        if status != CUDA_SUCCESS {
            return Err(status);
        }
        state.slabs.push(Raw(slab));
        if large {
            let memory = Raw(slab);
            return Ok(Block { memory, large });
        }
        let parts = (1..LARGE / SMALL).map(|part| Raw(slab.wrapping_byte_add(part * SMALL)));
        state.small.extend(parts);
        let memory = Raw(slab);
        Ok(Block { memory, large })
    }

    /// Nothing reads or writes the block any more.
    pub(crate) fn give(&self, block: Block) {
        let mut state = self.lock();
        if block.large {
            state.large.push(block.memory);
        } else {
            state.small.push(block.memory);
        }
    }

    /// Gives everything back to the driver.
    pub(crate) fn release(&self, api: &dyn CudaApi) {
        let state = std::mem::take(&mut *self.lock());
        for slab in state.slabs {
            // SAFETY: the memory came from the driver, and no block of it is in use.
            unsafe { api.cuMemFreeHost(slab.0) };
        }
    }
}
