//! Sessions that give their device memory up for others.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use towline_worker::{Offer, SwapRequest, Swapper, Taken, Token};

use super::*;

const MIB: u64 = 1 << 20;
const ANY: SwapRequest = SwapRequest {
    most: u64::MAX,
    idle: false,
};

/// Hears how often the session is back.
#[derive(Clone, Debug, Default)]
struct Heard(Arc<AtomicU64>);

impl Swapper for Heard {
    fn is_in(&self) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// Other programs on the device, which leave when they are asked.
struct Others {
    null: Arc<NullCuda>,
    held: Mutex<Vec<CUdeviceptr>>,
}

impl Others {
    fn take(&self, size: u64) {
        let mut address = 0;
        // SAFETY: one place for the address.
        let status = unsafe { self.null.cuMemAlloc_v2(&raw mut address, size as usize) };
        assert_eq!(status, CUDA_SUCCESS);
        lock(&self.held).push(address);
    }
}

impl Broker for Others {
    fn offer(&self, offer: Offer) -> Option<Token> {
        NoBroker.offer(offer)
    }

    fn take(&self, token: Token) -> Option<Taken> {
        NoBroker.take(token)
    }

    fn give_back(&self, _token: Token, _number: u32) {}

    fn withdraw(&self, _token: Token) {}

    fn make_room(&self, _lacking: u64, of_tenant: bool) -> bool {
        assert!(!of_tenant, "it is the device that lacks memory");
        let Some(address) = lock(&self.held).pop() else {
            return false;
        };
        // SAFETY: the memory is this program's, and nothing uses it.
        unsafe { self.null.cuMemFree_v2(address) == CUDA_SUCCESS }
    }
}

/// A session that may be swapped, on a device that others use too.
fn start() -> (Client, Arc<NullCuda>, Arc<Others>, Heard) {
    let (null, heard) = (Arc::new(NullCuda::new(1)), Heard::default());
    let others = Arc::new(Others {
        null: Arc::clone(&null),
        held: Mutex::default(),
    });
    let counters = Arc::new(Counters::default());
    counters.swap.enable(Box::new(heard.clone()));
    let address = "memory://cuda".parse().expect("it is well formed");
    let broker = Arc::clone(&others) as _;
    let (api, transport) = (Arc::clone(&null) as _, MemoryTransport::new());
    let client = Client::start(api, &transport, &address, counters, broker);
    (client.settle(IMAGE), null, others, heard)
}

fn held(client: &Client) -> u64 {
    client.counters.device_memory_bytes.load(Relaxed)
}

#[test]
fn swapped_session_finds_its_memory_where_it_was() {
    let (client, null, _, heard) = start();
    let small = client.allocate(4096);
    let large = [3 * MIB, 2 * MIB + 1].map(|size| (client.allocate(size), size));
    for (place, (address, size)) in large.into_iter().enumerate() {
        client.write_bulk(A, address, size, 10 + place as u64);
        client.fill(10 + place as u64, &pattern(size as usize, size));
    }
    client.write(A, small, &[7; 16]);
    assert_eq!(client.synchronize(A), CUDA_SUCCESS);
    let before = null.allocated_bytes();
    assert_eq!(client.give_way(ANY), Ok(8 * MIB));
    assert_eq!(before - null.allocated_bytes(), 8 << 20);
    assert_eq!((held(&client), heard.0.load(Relaxed)), (4096, 0));
    for (place, (address, size)) in large.into_iter().enumerate() {
        let back = client.read(A, address, size, 20 + place as u64);
        assert!(back == pattern(size as usize, size), "{size} bytes");
    }
    assert_eq!(client.read(A, small, 16, 30), [7; 16]);
    assert_eq!((held(&client), heard.0.load(Relaxed)), (8 * MIB + 4096, 1));
    assert_eq!(null.allocated_bytes(), before);
    client.leave();
}

#[test]
fn session_waits_for_others_until_it_has_room_again() {
    let (client, _, others, heard) = start();
    let memory = client.allocate(4 * MIB);
    client.write(A, memory, b"kept");
    assert_eq!(client.synchronize(A), CUDA_SUCCESS);
    client.give_way(ANY).expect("it is at rest");
    others.take(5 << 30);
    others.take((3 << 30) - MIB);
    assert_eq!(client.read(A, memory, 4, 10), b"kept");
    assert_eq!(heard.0.load(Relaxed), 1);
    assert_eq!(lock(&others.held).len(), 1, "one had to leave");
    client.leave();
}

#[test]
fn session_with_a_kernel_gives_way_once_that_has_ended() {
    let (client, null, ..) = start();
    let flag = client.allocate(2 * MIB);
    client.launch(SPIN_UNTIL, A, &params(flag, &[]));
    client.settled_by_ping();
    let idle = SwapRequest { idle: true, ..ANY };
    client.give_way(idle).expect_err("it works");
    // The kernel waits for the program's next call, which would wait for the session's turn: it stays.
    let held = null.allocated_bytes();
    client.write(B, flag, &1_u32.to_le_bytes());
    assert_eq!(client.synchronize(A), CUDA_SUCCESS);
    assert_eq!(null.allocated_bytes(), held);
    client.give_way(ANY).expect("it has ended");
    client.leave();
}

#[test]
fn memory_that_is_freed_meanwhile_is_credited_once() {
    let (client, ..) = start();
    let [flag, kept, freed] = [(); 3].map(|()| client.allocate(2 * MIB));
    client.launch(SPIN_UNTIL, A, &params(flag, &[]));
    // A runner waits for the kernel, and the one behind it frees.
    let free = client.post(&wire::MemoryFree { address: freed });
    client.write(B, flag, &1_u32.to_le_bytes());
    client.settled_by_ping();
    assert_eq!(client.give_way(ANY), Ok(4 * MIB));
    assert_eq!(held(&client), 0);
    assert_eq!(client.status_of(free), CUDA_SUCCESS);
    client.write(A, kept, b"kept");
    assert_eq!(client.read(A, kept, 4, 10), b"kept");
    assert_eq!(held(&client), 4 * MIB);
    client.leave();
}

#[test]
fn kernel_of_a_stream_that_was_destroyed_is_waited_for() {
    let (client, ..) = start();
    let memory = client.allocate(2 * MIB);
    client.write(B, memory, &0_u32.to_le_bytes());
    client.synchronize(B);
    client.launch(ADD_ONE, A, &params(memory, &[1]));
    client.post(&wire::StreamDestroyV2 { hStream: A });
    client.settled_by_ping();
    client.give_way(ANY).expect("it ends by itself");
    assert_eq!(client.read(B, memory, 4, 10), 1_u32.to_le_bytes());
    client.leave();
}

#[test]
fn session_stays_where_host_memory_is_not_enough() {
    let (client, null, ..) = start();
    let memory = client.allocate(4 * MIB);
    client.write(A, memory, b"here");
    let least = SwapRequest {
        most: 4 * MIB - 1,
        ..ANY
    };
    let held = null.allocated_bytes();
    client.give_way(least).expect_err("too little");
    assert_eq!(null.allocated_bytes(), held);
    assert_eq!(client.read(A, memory, 4, 10), b"here");
    client.leave();
}

#[test]
fn session_that_ends_while_it_is_swapped_out_leaves_nothing() {
    let (client, null, ..) = start();
    let before = null.live_objects();
    client.allocate(4 * MIB);
    client.settled_by_ping();
    client.give_way(ANY).expect("it is at rest");
    client.leave();
    assert_eq!(null.allocated_bytes(), 0);
    assert!(null.live_objects() <= before);
}

impl Client {
    fn give_way(&self, request: SwapRequest) -> Result<u64, String> {
        let mut given = None;
        self.counters
            .swap
            .give_way(request, |told| given = Some(told));
        given.expect("it is told")
    }

    fn settled_by_ping(&self) {
        let ping = self.post(&wire::Ping { token: 1 });
        assert_eq!(self.status_of(ping), CUDA_SUCCESS);
    }
}
