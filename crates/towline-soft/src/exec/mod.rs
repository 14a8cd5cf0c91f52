//! The interpreter: carries out a launch, warp by warp.
//!
//! The threads of a warp go through the code together as long as they are at the same place; a [`warp::Warp`] keeps one *split* for each
//! place where some of them are, and joins splits that meet. Which split goes on is its own decision (the lowest place first, so that those
//! behind catch up), but no program can tell: operations that a warp does together wait for exactly the lanes they name, barriers count
//! threads, and a split that polls memory lets others go on. So do warps within a block, and blocks within the grid.
//!
//! Blocks start in the order of their numbers, each on one thread of the host at a time.

pub(crate) mod access;
pub(crate) mod barrier;
mod block;
mod builtin;
mod call;
pub(crate) mod convert;
mod directed;
pub(crate) mod float;
pub(crate) mod frame;
pub(crate) mod grid;
pub(crate) mod integer;
pub(crate) mod matrix;
mod mbarrier;
pub(crate) mod number;
mod pool;
mod step;
mod tensor;
pub(crate) mod together;
mod warp;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Instant;

pub(crate) use grid::run;
pub(crate) use step::{compare_one, lies_in};

use crate::image::Kernel;
use crate::jit::Compiled;
use crate::memory::Arena;
use crate::texture::Seen;

/// Takes what kernels print.
pub(crate) type Print = Arc<dyn Fn(&[u8]) + Send + Sync>;

/// Most bytes of local memory of a thread.
pub(crate) const LOCAL_LIMIT: u32 = 512 << 10;
/// Most nested calls.
const DEPTH_LIMIT: u32 = 4096;
/// Most bytes of registers, parameters and local memory of a block.
const BLOCK_LIMIT: usize = 512 << 20;
/// The same of all blocks of a launch that have started and not ended, unless the operator says otherwise.
pub(crate) const LAUNCH_LIMIT: usize = 4 << 30;

/// One launch of a kernel.
pub(crate) struct Launch {
    pub(crate) kernel: Kernel,
    /// What it is compiled to, unless the interpreter is to run it.
    pub(crate) code: Option<Arc<Compiled>>,
    pub(crate) arena: Arc<Arena>,
    pub(crate) textures: Seen,
    pub(crate) device: u32,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    /// Of each block, what the launch adds included.
    pub(crate) shared_bytes: u32,
    pub(crate) dynamic_bytes: u32,
    pub(crate) parameters: Vec<u8>,
    /// Blocks that must be able to wait for each other.
    pub(crate) resident_blocks: u64,
    /// Memory that cooperative kernels count their blocks in; 0 without.
    pub(crate) workspace: u64,
    pub(crate) number: u64,
    /// Threads of the host that may be used.
    pub(crate) host_threads: usize,
    pub(crate) heap_bytes: u64,
    /// Most bytes of registers, parameters and local memory that its blocks may take at once.
    pub(crate) memory_limit: usize,
    pub(crate) started: Instant,
    pub(crate) deadline: Option<Instant>,
    /// Instructions of threads that the interpreter has carried out.
    pub(crate) executed: AtomicU64,
    /// The process ends, or the context does.
    pub(crate) cancelled: Arc<AtomicBool>,
    pub(crate) print: Print,
}

impl Launch {
    pub(crate) fn threads_per_block(&self) -> u32 {
        self.block.iter().product()
    }

    pub(crate) fn blocks(&self) -> u64 {
        self.grid.iter().map(|side| u64::from(*side)).product()
    }

    fn warps_per_block(&self) -> usize {
        self.threads_per_block().div_ceil(32).max(1) as usize
    }

    /// Bytes that a warp may take at its start for registers, parameters and local memory.
    fn warp_limit(&self) -> usize {
        BLOCK_LIMIT.min(self.memory_limit) / self.warps_per_block()
    }

    /// The same once its functions call others: its share where as many blocks have started as may have.
    fn warp_share(&self) -> usize {
        let at_once = self.resident_blocks.min(self.blocks()).max(1);
        let share = self.memory_limit / usize::try_from(at_once).unwrap_or(usize::MAX);
        BLOCK_LIMIT.min(share) / self.warps_per_block()
    }

    /// Bytes that a block takes at its start; `None` when that is more than it may.
    pub(crate) fn block_bytes(&self) -> Option<usize> {
        let entry = self.kernel.entry();
        let function = self.kernel.image.program.function(entry)?;
        let (code, _, _) = self.kernel.code(entry)?;
        let locals = code.local_bytes as usize * frame::LANES;
        let warp = frame::Frame::bytes(code, function.frame_bytes) + locals;
        let fits = warp <= self.warp_limit() && code.local_bytes <= LOCAL_LIMIT;
        fits.then(|| warp * self.warps_per_block() + self.shared_bytes as usize)
    }

    /// Blocks that may have started and not ended, for the memory that they take.
    pub(crate) fn most_resident(&self) -> u64 {
        let bytes = self.block_bytes().unwrap_or(self.memory_limit);
        (self.memory_limit / bytes.max(1)).max(1) as u64
    }

    /// The coordinates of a block.
    pub(crate) fn block_at(&self, number: u64) -> [u32; 3] {
        let [x, y, _] = self.grid.map(u64::from);
        [
            (number % x) as u32,
            (number / x % y) as u32,
            (number / x / y) as u32,
        ]
    }

    /// The coordinates of a thread in its block.
    pub(crate) fn thread_at(&self, number: u32) -> [u32; 3] {
        let [x, y, _] = self.block;
        [number % x, number / x % y, number / x / y]
    }
}

#[cfg(test)]
mod hostile;
#[cfg(test)]
mod tests;
