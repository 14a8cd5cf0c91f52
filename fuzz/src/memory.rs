//! How much a decoder allocates: a peer that claims a length must not make us set memory aside for it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static ALLOCATED: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

fn count(bytes: usize) {
    // A thread that is ending has no counter any more, and nobody who reads it.
    let _ = ALLOCATED.try_with(|allocated| allocated.set(allocated.get() + bytes as u64));
}

// SAFETY: every call goes to the system's allocator unchanged; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's contract is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size.saturating_sub(layout.size()));
        // SAFETY: as above.
        unsafe { System.realloc(memory, layout, size) }
    }
}

/// Runs `decode` and asserts that this thread allocated at most `limit` bytes in it, freed ones included.
pub fn bounded<T>(limit: usize, decode: impl FnOnce() -> T) -> T {
    let before = ALLOCATED.get();
    let result = decode();
    let allocated = ALLOCATED.get() - before;
    assert!(
        allocated <= limit as u64,
        "{allocated} bytes were allocated, the limit is {limit}"
    );
    result
}

/// What decoding `input` may cost: a multiple of what has really arrived, and a little for errors' texts.
pub fn proportional(input: &[u8]) -> usize {
    4096 + 64 * input.len()
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;
    use std::panic::catch_unwind;

    use super::*;

    #[test]
    fn allocations_are_counted() {
        // What nobody looks at may be optimised away, with its allocation.
        let allocate = || black_box(vec![1_u8; 1000]);
        assert_eq!(bounded(1000, allocate).len(), 1000);
        let over = catch_unwind(|| bounded(999, allocate));
        assert!(over.is_err());
    }
}
