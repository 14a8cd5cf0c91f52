//! Pinned host memory that transfers go through: blocks of two sizes, allocated when first needed, kept for the next. A large block is
//! cut into small ones where they are wanted, and is whole again when all of them have come back.
//!
//! A stream waits for blocks of its own only, which come back in its order: two streams would wait for each other's otherwise, though a
//! kernel on one may wait for the copy on the other. So the limit of a context holds for streams that have blocks; one that has none gets
//! its first. All of it, and what graphs have, counts towards the session's limits.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use towline_backend::cuda::*;

use crate::link::{Raw, add_within};

/// Bytes of a small block: the largest read that comes back on the command lane.
pub(crate) const SMALL: usize = 128 << 10;
/// Bytes of a large block: a window of a transfer on the payload lanes.
pub(crate) const LARGE: usize = 4 << 20;
/// Most pinned memory of a context, but for the first block of a stream.
const LIMIT: usize = 1 << 30;
/// Most pinned memory of a session: for blocks, for graphs, and for the first blocks of streams. Blocks leave room for graphs, and both for
/// streams that would not go on otherwise.
const SESSION_LIMIT: u64 = 2 << 30;
pub(crate) const GRAPH_LIMIT: u64 = 3 << 30;
const FIRST_LIMIT: u64 = 4 << 30;
/// All small blocks of a large one.
const ALL: u32 = u32::MAX;
const _: () = assert!(LARGE / SMALL == ALL.count_ones() as usize);

/// Pinned memory of a session, in bytes.
#[derive(Debug, Default)]
pub(crate) struct PinnedBytes(AtomicU64);

impl PinnedBytes {
    /// Counts memory that is about to be pinned; `None` where that would be more than `limit` in all.
    pub(crate) fn take(self: &Arc<Self>, bytes: u64, limit: u64) -> Option<Counted> {
        add_within(&self.0, bytes, limit).map(|_| Counted(Arc::clone(self), bytes))
    }
}

/// Memory that counts as pinned for as long as this lives.
#[derive(Debug)]
pub(crate) struct Counted(Arc<PinnedBytes>, u64);

impl Drop for Counted {
    fn drop(&mut self) {
        let Self(all, bytes) = self;
        all.0.fetch_sub(*bytes, Ordering::Relaxed);
    }
}

/// See the module's text.
#[derive(Default)]
pub(crate) struct Pinned {
    state: Mutex<State>,
    all: Arc<PinnedBytes>,
}

#[derive(Default)]
struct State {
    slabs: Vec<Slab>,
    /// Those of which nothing is in use, and those of which some small blocks are, by their places in the list.
    whole: Vec<usize>,
    cut: Vec<usize>,
}

/// A piece from the driver, of [`LARGE`] bytes.
struct Slab {
    memory: Raw,
    /// A bit for each small block that is free.
    free: u32,
    _counted: Counted,
}

/// A block in use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Block {
    pub(crate) memory: Raw,
    slab: usize,
    /// The bits of its part of the slab.
    part: u32,
}

impl State {
    /// Whether there is no block left.
    fn is_empty(&self) -> bool {
        self.whole.is_empty() && self.cut.is_empty()
    }

    /// A free block, a small one from a slab that is cut already if possible.
    fn pop(&mut self, large: bool) -> Option<Block> {
        let cut = self.cut.last().filter(|_| !large);
        let index = cut.or(self.whole.last()).copied()?;
        let slab = self.slabs.get_mut(index)?;
        let before = slab.free;
        let part = match large {
            true => ALL,
            false => 1 << before.trailing_zeros(),
        };
        slab.free &= !part;
        let (memory, after) = (slab.memory, slab.free);
        if before == ALL {
            self.whole.pop();
        }
        match (before == ALL, after == 0) {
            (true, false) => self.cut.push(index),
            (false, true) => drop(self.cut.pop()),
            _ => {}
        }
        let offset = part.trailing_zeros() as usize * SMALL;
        Some(Block {
            memory: Raw(memory.0.wrapping_byte_add(offset)),
            slab: index,
            part,
        })
    }

    fn push(&mut self, block: Block) {
        let Some(slab) = self.slabs.get_mut(block.slab) else {
            return;
        };
        let before = slab.free;
        slab.free |= block.part;
        match (before == 0, slab.free == ALL) {
            (true, false) => self.cut.push(block.slab),
            (false, true) => self.cut.retain(|cut| *cut != block.slab),
            _ => {}
        }
        if slab.free == ALL {
            self.whole.push(block.slab);
        }
    }
}

impl Pinned {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// That of a context, as a part of its session's.
    pub(crate) fn of(all: &Arc<PinnedBytes>) -> Self {
        Self {
            state: Mutex::default(),
            all: Arc::clone(all),
        }
    }

    /// A block of at least `size` bytes, which must be at most [`LARGE`]; whatever the context's limit, if it is the `first` of its stream
    /// or of its context's signal. The memory's context must be current.
    pub(crate) fn take(
        &self,
        api: &dyn CudaApi,
        size: usize,
        first: bool,
    ) -> Result<Block, CUresult> {
        let large = size > SMALL;
        let mut state = self.lock();
        if let Some(block) = state.pop(large) {
            return Ok(block);
        }
        if !first && state.slabs.len() >= LIMIT / LARGE {
            return Err(CUDA_ERROR_OUT_OF_MEMORY);
        }
        let limit = if first { FIRST_LIMIT } else { SESSION_LIMIT };
        let counted = self.all.take(LARGE as u64, limit);
        let counted = counted.ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        let mut slab = std::ptr::null_mut();
        // SAFETY: one place for the address.
        let status = unsafe { api.cuMemHostAlloc(&raw mut slab, LARGE, CU_MEMHOSTALLOC_PORTABLE) };
        if status != CUDA_SUCCESS {
            return Err(status);
        }
        let index = state.slabs.len();
        state.slabs.push(Slab {
            memory: Raw(slab),
            free: ALL,
            _counted: counted,
        });
        state.whole.push(index);
        state.pop(large).ok_or(CUDA_ERROR_OUT_OF_MEMORY)
    }

    /// Whether there is a small block.
    pub(crate) fn has_any(&self) -> bool {
        !self.lock().is_empty()
    }

    /// Nothing reads or writes the block any more. Whether it is the only one there is: somebody may wait for it.
    pub(crate) fn give(&self, block: Block) -> bool {
        let mut state = self.lock();
        let only = state.is_empty();
        state.push(block);
        only
    }

    /// Gives everything back to the driver.
    pub(crate) fn release(&self, api: &dyn CudaApi) {
        let state = std::mem::take(&mut *self.lock());
        for slab in state.slabs {
            // SAFETY: the memory came from the driver, and no block of it is in use.
            unsafe { api.cuMemFreeHost(slab.memory.0) };
        }
    }
}

#[cfg(test)]
mod tests {
    use towline_backend::cuda::NullCuda;

    use super::*;

    #[test]
    fn small_blocks_come_from_large_ones_and_back() {
        let api = NullCuda::new(1);
        let mut native = std::ptr::null_mut();
        // SAFETY: a place for the result.
        let retained = unsafe { api.cuDevicePrimaryCtxRetain(&raw mut native, 0) };
        assert_eq!(retained, CUDA_SUCCESS);
        // SAFETY: the context is live.
        assert_eq!(unsafe { api.cuCtxSetCurrent(native) }, CUDA_SUCCESS);
        let pinned = Pinned::default();
        let fill = |size: usize| -> Vec<Block> {
            let blocks = std::iter::from_fn(|| pinned.take(&api, size, false).ok());
            blocks.collect()
        };
        let mut taken = fill(LARGE);
        assert_eq!(taken.len(), LIMIT / LARGE);
        assert!(!pinned.has_any());
        // A stream without a block gets one whatever the limit.
        taken.push(pinned.take(&api, LARGE, true).expect("the host has more"));
        for size in [SMALL, LARGE, SMALL] {
            let mut only = taken.iter().map(|block| pinned.give(*block));
            assert!(only.next().expect("some were taken"));
            assert!(only.all(|only| !only));
            taken = fill(size);
            assert_eq!(taken.len(), (LIMIT / LARGE + 1) * (LARGE / size.max(SMALL)));
            let mut places: Vec<usize> = taken.iter().map(|block| block.memory.0.addr()).collect();
            places.sort_unstable();
            assert!(places.windows(2).all(|two| two[0] + size <= two[1]));
        }
        for block in taken {
            pinned.give(block);
        }
        pinned.release(&api);
        // SAFETY: as above.
        assert_eq!(unsafe { api.cuDevicePrimaryCtxRelease_v2(0) }, CUDA_SUCCESS);
    }
}
