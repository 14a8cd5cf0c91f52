//! Device memory that the application has freed and that is kept for its next allocations: what an allocation costs is a wait for the
//! server and the driver's time, and programs that allocate in their loops do it every time round.
//!
//! A block is kept only when nothing of its context is under way, which is what a free waits for natively; within its context it is
//! given again as it is. What is kept is bounded, counts as free, and goes back when an allocation finds no memory.

use std::collections::{BTreeMap, HashMap};
use std::sync::OnceLock;

use towline_backend::cuda as wire;
use towline_backend::cuda::*;
use towline_client::environment;

use crate::driver::{Driver, lock};

/// Most bytes that are kept, unless the environment says otherwise.
const LIMIT: usize = 64 << 20;
/// Drivers map memory in pieces of this size; a larger allocation takes whole ones.
const PIECE: usize = 2 << 20;
/// A larger allocation has pieces of its own.
const OWN_PIECES: usize = 1 << 20;
/// Smaller allocations lie at multiples of this.
const GRAIN: usize = 512;

/// The blocks of a process.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// By context, capacity and address; with the device.
    free: BTreeMap<(u64, usize, u64), CUdevice>,
    /// The capacities of these blocks, by address.
    places: BTreeMap<u64, usize>,
    bytes: usize,
    /// What live allocations could hold, by address. Others' memory, as of pools, is not in here and never kept.
    capacities: HashMap<u64, usize>,
    limit: OnceLock<usize>,
}

/// A block that is given back to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) context: u64,
    pub(crate) address: u64,
}

/// What to ask the server for where an application asks for `size` bytes: as much as that takes up anyway.
pub(crate) fn capacity_for(size: usize) -> usize {
    let grain = if size <= OWN_PIECES { GRAIN } else { PIECE };
    size.checked_next_multiple_of(grain).unwrap_or(size)
}

impl Kept {
    /// A block for so many bytes, the smallest there is; none that would be left empty by more than half.
    pub(crate) fn take(&mut self, context: u64, size: usize) -> Option<u64> {
        let most = capacity_for(size).saturating_mul(2).saturating_add(GRAIN);
        let most = if size <= OWN_PIECES {
            most
        } else {
            most.saturating_add(PIECE)
        };
        let fitting = self
            .free
            .range((context, size, 0)..=(context, most, u64::MAX));
        let (_, capacity, address) = *fitting.map(|(key, _)| key).next()?;
        self.free.remove(&(context, capacity, address));
        self.places.remove(&address);
        self.bytes -= capacity;
        self.capacities.insert(address, capacity);
        Some(address)
    }

    /// Notes an allocation that the server has made.
    pub(crate) fn note(&mut self, address: u64, capacity: usize) {
        self.capacities.insert(address, capacity);
    }

    /// Whether a block of the server's would be kept if it were freed now.
    pub(crate) fn would_keep(&self, address: u64) -> bool {
        let capacity = self.capacities.get(&address);
        capacity.is_some_and(|capacity| self.bytes.saturating_add(*capacity) <= self.limit())
    }

    /// Keeps a block whose life has ended; whether there was room for it.
    pub(crate) fn keep(&mut self, context: u64, device: CUdevice, address: u64) -> bool {
        if !self.would_keep(address) {
            return false;
        }
        let Some(capacity) = self.capacities.remove(&address) else {
            return false;
        };
        self.free.insert((context, capacity, address), device);
        self.places.insert(address, capacity);
        self.bytes += capacity;
        true
    }

    /// Whether an address is in a block that is kept: to the application it is no memory.
    pub(crate) fn has(&self, address: u64) -> bool {
        let before = self.places.range(..=address).next_back();
        before.is_some_and(|(start, capacity)| address - start < *capacity as u64)
    }

    /// A block has been freed on the server, or is not to be kept.
    pub(crate) fn forget(&mut self, address: u64) {
        self.capacities.remove(&address);
    }

    /// Bytes that are kept of a device's memory.
    pub(crate) fn of_device(&self, device: CUdevice) -> usize {
        let there = self.free.iter().filter(|(_, of)| **of == device);
        there.map(|((_, capacity, _), _)| capacity).sum()
    }

    /// Takes out every block of a device.
    pub(crate) fn drain(&mut self, device: CUdevice) -> Vec<Block> {
        let mut taken = Vec::new();
        self.free.retain(|&(context, capacity, address), of| {
            if *of != device {
                return true;
            }
            self.bytes -= capacity;
            self.places.remove(&address);
            taken.push(Block { context, address });
            false
        });
        taken
    }

    /// Forgets the blocks of a context, which have ended with it.
    pub(crate) fn drop_context(&mut self, context: u64) {
        let Self { bytes, places, .. } = self;
        self.free.retain(|&(of, capacity, address), _| {
            if of == context {
                *bytes -= capacity;
                places.remove(&address);
            }
            of != context
        });
    }

    fn limit(&self) -> usize {
        *self.limit.get_or_init(|| {
            let set = std::env::var(environment::KEPT_MEMORY).ok();
            set.map_or(LIMIT, |text| limit_of(&text))
        })
    }
}

/// The limit that the environment sets, in MiB.
fn limit_of(text: &str) -> usize {
    match text.trim().parse::<usize>() {
        Ok(mib) => mib.saturating_mul(1 << 20),
        Err(_) => {
            log::warn!(
                "{} is to be a number of MiB, not {text:?}; {} MiB are kept",
                environment::KEPT_MEMORY,
                LIMIT >> 20
            );
            LIMIT
        }
    }
}

impl Driver {
    /// Gives back what is kept of a device's memory; whether that was anything.
    pub(crate) fn release_kept(&self, device: CUdevice) -> bool {
        let blocks = lock(&self.kept_memory).drain(device);
        for block in &blocks {
            let acting = self.context(block.context);
            let Ok(acting) = acting.and_then(|context| self.acting_in(context)) else {
                continue;
            };
            let address = block.address;
            if let Err(status) = acting.call_for("cuMemFree", &wire::MemoryFree { address }) {
                log::debug!("memory that was kept could not be given back: {status}");
            }
        }
        !blocks.is_empty()
    }

    /// Tries again without what is kept of a device's memory where there was not enough.
    pub(crate) fn with_kept_released<T>(
        &self,
        device: CUdevice,
        allocate: impl Fn() -> Result<T, CUresult>,
    ) -> Result<T, CUresult> {
        match allocate() {
            Err(CUDA_ERROR_OUT_OF_MEMORY) if self.release_kept(device) => allocate(),
            outcome => outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(blocks: &[(u64, usize, u64)]) -> Kept {
        let mut kept = Kept::default();
        for (context, capacity, address) in blocks {
            kept.note(*address, *capacity);
            assert!(kept.keep(*context, 0, *address));
        }
        kept
    }

    #[test]
    fn the_smallest_block_that_fits_is_taken_of_ones_own_context() {
        let mut kept = kept(&[
            (1, 8 << 20, 0x100),
            (1, 4 << 20, 0x200),
            (2, 2 << 20, 0x300),
        ]);
        assert!(kept.has(0x100) && kept.has(0x2ff + (2 << 20)) && !kept.has(0xff));
        assert_eq!(kept.take(1, 2 << 20), Some(0x200));
        assert_eq!(kept.take(1, 3 << 20), Some(0x100));
        assert!(!kept.has(0x100) && kept.has(0x300));
        assert_eq!(kept.take(1, 1), None);
        assert_eq!(kept.of_device(0), 2 << 20);
    }

    #[test]
    fn a_block_far_too_large_is_left() {
        let mut kept = kept(&[(1, 32 << 20, 0x100)]);
        assert_eq!(kept.take(1, 2 << 20), None);
        assert_eq!(kept.take(1, 100), None);
        assert_eq!(kept.take(1, 31 << 20), Some(0x100));
    }

    #[test]
    fn no_more_is_kept_than_the_limit_and_nothing_that_was_not_allocated_here() {
        let mut kept = kept(&[(1, 60 << 20, 0x100)]);
        kept.note(0x200, 6 << 20);
        assert!(!kept.keep(1, 0, 0x200));
        assert!(!kept.keep(1, 0, 0x300));
        kept.drop_context(1);
        assert!(kept.keep(1, 0, 0x200));
        let block = Block {
            context: 1,
            address: 0x200,
        };
        assert_eq!(kept.drain(0), [block]);
        assert_eq!((kept.of_device(0), kept.bytes), (0, 0));
    }

    #[test]
    fn the_limit_is_in_mib() {
        assert_eq!(limit_of("0"), 0);
        assert_eq!(limit_of(" 3 "), 3 << 20);
        assert_eq!(limit_of("many"), LIMIT);
    }

    #[test]
    fn large_allocations_are_whole_pieces() {
        let capacities =
            [1, 513, 1 << 20, (1 << 20) + 1, (4 << 20) + 1, usize::MAX].map(capacity_for);
        assert_eq!(
            capacities,
            [512, 1024, 1 << 20, 2 << 20, 6 << 20, usize::MAX]
        );
    }
}
