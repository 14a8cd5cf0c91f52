//! Device memory that the sessions of a tenant share: a session reserves it before it allocates, in pieces of [`GRANULE`], and gives back
//! what it does not need any more.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Sessions reserve multiples of this, as long as there is enough: most allocations then ask for nothing.
pub const GRANULE: u64 = 1 << 20;

/// The device memory of a tenant, as one of its sessions reaches it.
pub trait MemoryBudget: fmt::Debug + Send + Sync {
    /// Reserves as much of `wanted` bytes as is left, or nothing where that is less than `least`. May wait.
    fn reserve(&self, wanted: u64, least: u64) -> Reserved;

    /// Gives back what was reserved.
    fn release(&self, bytes: u64);
}

/// The answer to a reservation.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Reserved {
    /// Bytes that are reserved now, too.
    pub granted: u64,
    /// Bytes that could be besides.
    pub left: u64,
}

/// A session's account of its tenant's memory.
#[derive(Debug)]
pub(crate) struct Reservation {
    budget: Arc<dyn MemoryBudget>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Allocated, or about to be.
    held: u64,
    /// At least as much.
    reserved: u64,
}

impl Reservation {
    pub(crate) fn new(budget: Arc<dyn MemoryBudget>) -> Self {
        Self {
            budget,
            state: Mutex::default(),
        }
    }

    /// Whether so many bytes more may be held, which they are then.
    pub(crate) fn charge(&self, bytes: u64) -> bool {
        let mut state = self.lock();
        let Some(held) = state.held.checked_add(bytes) else {
            return false;
        };
        if held > state.reserved {
            let least = held - state.reserved;
            let wanted = granules(held).saturating_sub(state.reserved).max(least);
            let granted = self.budget.reserve(wanted, least).granted;
            if granted < least {
                return false;
            }
            state.reserved = state.reserved.saturating_add(granted);
        }
        state.held = held;
        true
    }

    /// So many bytes are held no more.
    pub(crate) fn credit(&self, bytes: u64) {
        let mut state = self.lock();
        state.held -= bytes;
        let spare = state.reserved.saturating_sub(granules(state.held));
        if spare > 0 {
            state.reserved -= spare;
            self.budget.release(spare);
        }
    }

    /// Bytes that may be held besides.
    pub(crate) fn left(&self) -> u64 {
        let state = self.lock();
        let left = self.budget.reserve(0, 0).left;
        left.saturating_add(state.reserved - state.held)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn granules(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(GRANULE).unwrap_or(bytes)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// So many bytes for all, and how often it was asked.
    #[derive(Debug)]
    struct Tenant {
        left: AtomicU64,
        asked: AtomicU64,
    }

    impl MemoryBudget for Tenant {
        fn reserve(&self, wanted: u64, least: u64) -> Reserved {
            self.asked.fetch_add(1, Ordering::Relaxed);
            let left = self.left.load(Ordering::Relaxed);
            let granted = if left < least { 0 } else { left.min(wanted) };
            self.left.store(left - granted, Ordering::Relaxed);
            Reserved {
                granted,
                left: left - granted,
            }
        }

        fn release(&self, bytes: u64) {
            self.left.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    fn tenant(left: u64) -> Arc<Tenant> {
        Arc::new(Tenant {
            left: left.into(),
            asked: 0.into(),
        })
    }

    #[test]
    fn small_allocations_ask_once_for_a_granule() {
        let tenant = tenant(8 * GRANULE);
        let session = Reservation::new(Arc::clone(&tenant) as _);
        assert!((0..1000).all(|_| session.charge(512)));
        assert_eq!(tenant.asked.load(Ordering::Relaxed), 1);
        assert_eq!(tenant.left.load(Ordering::Relaxed), 7 * GRANULE);
        assert_eq!(session.left(), 8 * GRANULE - 512_000);
    }

    #[test]
    fn last_byte_is_given_and_no_more() {
        let tenant = tenant(GRANULE + 700);
        let session = Reservation::new(Arc::clone(&tenant) as _);
        assert!(session.charge(GRANULE + 500));
        assert!(!session.charge(201));
        assert!(session.charge(200));
        assert!(!session.charge(1));
        assert!(!session.charge(u64::MAX));
    }

    #[test]
    fn freed_memory_goes_to_other_sessions() {
        let tenant = tenant(4 * GRANULE);
        let one = Reservation::new(Arc::clone(&tenant) as _);
        let other = Reservation::new(Arc::clone(&tenant) as _);
        assert!(one.charge(3 * GRANULE));
        assert!(!other.charge(2 * GRANULE));
        one.credit(GRANULE);
        assert!(other.charge(2 * GRANULE));
        one.credit(2 * GRANULE);
        other.credit(2 * GRANULE);
        assert_eq!(tenant.left.load(Ordering::Relaxed), 4 * GRANULE);
    }
}
