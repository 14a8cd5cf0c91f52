//! What compiled code knows of the block that it runs: read and written from both sides, at fixed offsets.

use std::mem::offset_of;

use towline_ptx::ir::texture::INPUT_LIMIT;

/// Where a memory access last went, if it is to be found there again.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(super) struct Slot {
    /// First address.
    pub(super) base: u64,
    /// How many whole accesses fit.
    pub(super) count: u64,
    /// From addresses to those of the host.
    pub(super) shift: u64,
}

/// Values that are the same for all threads of a warp, by their place in [`Head::uniform`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub(super) enum Uniform {
    BlockX,
    BlockY,
    BlockZ,
    DynamicShared,
    Grid,
    GridX,
    GridY,
    GridZ,
    HostThreads,
    ThreadsX,
    ThreadsY,
    ThreadsZ,
    TotalShared,
    Warp,
    Warps,
    WorkspaceHigh,
    WorkspaceLow,
}

/// How many those are.
pub(super) const UNIFORMS: usize = Uniform::WorkspaceLow as usize + 1;

/// Sizes of accesses: 1, 2, 4 ... bytes.
pub(super) const SIZES: usize = 7;

/// Words of such an access: handles of the texture and a sampler, and inputs.
pub(super) const EXCHANGED: usize = 2 + INPUT_LIMIT;

/// See the module's text.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Head {
    pub(super) parameters: *const u8,
    pub(super) shared: *mut u8,
    pub(super) slots: *mut Slot,
    pub(super) constants: *const u64,
    /// Coordinates of the warp's threads in the block: x, y, z and nothing.
    pub(super) threads: *const [u16; 4],
    /// Where each of the warp's threads goes on.
    pub(super) states: *mut u32,
    pub(super) frames: *mut u64,
    /// Parameter space and local memory of the warp's threads.
    pub(super) arguments: *mut u8,
    pub(super) locals: *mut u8,
    /// The place that the warp's threads go on from, and whether by fours: see `entry_of`.
    pub(super) state: u32,
    /// Not 0 when some thread has stopped before its end, and when some have parted that went together.
    pub(super) left: u32,
    pub(super) parted: u32,
    /// What helpers answer.
    pub(super) answer: u64,
    /// Inputs of accesses to textures, and what these give.
    pub(super) exchange: [u64; EXCHANGED],
    pub(super) uniform: [u64; UNIFORMS],
    /// How many accesses of each size fit into shared memory.
    pub(super) shared_counts: [u64; SIZES],
}

/// A field's offset, as code needs it.
macro_rules! offset {
    ($field:ident) => {
        std::mem::offset_of!($crate::jit::head::Head, $field) as i32
    };
}
pub(super) use offset;

/// The offset of a uniform value.
pub(super) fn uniform(which: Uniform) -> i32 {
    (offset_of!(Head, uniform) + which as usize * 8) as i32
}

/// The offset of a word that accesses to textures exchange.
pub(super) fn exchange(place: usize) -> i32 {
    (offset_of!(Head, exchange) + place * 8) as i32
}

/// The offset of the count of accesses of a size.
pub(super) fn shared_count(bytes: u64) -> i32 {
    (offset_of!(Head, shared_counts) + bytes.trailing_zeros() as usize * 8) as i32
}
