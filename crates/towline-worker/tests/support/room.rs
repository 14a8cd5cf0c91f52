//! Memory of sessions whose clients are cut off.

use std::sync::atomic::AtomicU64;

use towline_worker::{Broker, MemoryBudget, NoBroker, Offer, Reserved, Taken, Token};

use super::*;

const MIB: u64 = 1 << 20;

/// A tenant with so much memory left, and sessions that can give way, of 4 MiB each.
#[derive(Debug, Default)]
struct Tenant {
    left: AtomicU64,
    sessions: AtomicU64,
    asked: AtomicU64,
}

impl MemoryBudget for Tenant {
    fn reserve(&self, wanted: u64, least: u64) -> Reserved {
        let left = self.left.load(Ordering::Relaxed);
        let granted = if left < least { 0 } else { left.min(wanted) };
        let left = left - granted;
        self.left.store(left, Ordering::Relaxed);
        Reserved { granted, left }
    }

    fn release(&self, bytes: u64) {
        self.left.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Broker for Tenant {
    fn offer(&self, offer: Offer) -> Option<Token> {
        NoBroker.offer(offer)
    }

    fn take(&self, token: Token) -> Option<Taken> {
        NoBroker.take(token)
    }

    fn give_back(&self, _token: Token, _number: u32) {}

    fn withdraw(&self, _token: Token) {}

    fn make_room(&self, _lacking: u64, of_tenant: bool) -> bool {
        assert!(of_tenant, "the device has enough");
        self.asked.fetch_add(1, Ordering::Relaxed);
        let sessions = self.sessions.load(Ordering::Relaxed);
        if sessions > 0 {
            self.sessions.store(sessions - 1, Ordering::Relaxed);
            self.release(4 * MIB);
        }
        sessions > 0
    }
}

#[test]
fn memory_of_sessions_cut_off_is_asked_for() {
    let tenant = Arc::new(Tenant {
        left: AtomicU64::new(2 * MIB),
        sessions: AtomicU64::new(2),
        asked: AtomicU64::new(0),
    });
    let counters = Arc::new(Counters::default());
    counters.share(Arc::clone(&tenant) as _);
    let address = "memory://cuda".parse().expect("it is well formed");
    let (null, transport) = (Arc::new(NullCuda::new(1)), MemoryTransport::new());
    let broker = Arc::clone(&tenant) as _;
    let client = Client::start(null, &transport, &address, Arc::clone(&counters), broker);
    let client = client.settle(IMAGE);
    let alloc = |size| {
        client.status_of(client.post(&wire::MemoryAlloc {
            size,
            managed_flags: 0,
        }))
    };
    let asked = || tenant.asked.load(Ordering::Relaxed);
    assert_eq!((alloc(MIB), asked()), (CUDA_SUCCESS, 0));
    // One session is not enough, two are.
    assert_eq!((alloc(8 * MIB), asked()), (CUDA_SUCCESS, 2));
    assert_eq!((alloc(8 * MIB), asked()), (CUDA_ERROR_OUT_OF_MEMORY, 3));
    // Others would not help against the session's own limit.
    counters
        .device_memory_limit
        .store(10 * MIB, Ordering::Relaxed);
    assert_eq!((alloc(8 * MIB), asked()), (CUDA_ERROR_OUT_OF_MEMORY, 3));
    client.leave();
}
