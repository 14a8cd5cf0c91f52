//! Clients that would have more than their sessions may.

use std::sync::atomic::Ordering::Relaxed;

use towline_worker::{Offer, Taken, Token};

use super::*;

const MIB: u64 = 1 << 20;
const PHYSICAL: u32 = 2;

/// Sessions that share the latest offer.
#[derive(Default)]
struct Shelf(Mutex<Option<Offer>>);

impl Broker for Shelf {
    fn offer(&self, offer: Offer) -> Option<Token> {
        *lock(&self.0) = Some(offer);
        Some(Token([1; 32]))
    }

    fn take(&self, _token: Token) -> Option<Taken> {
        let offer = lock(&self.0);
        let offer = offer.as_ref()?;
        let descriptor = offer.descriptor.as_ref();
        let offer = Offer {
            kind: offer.kind,
            bytes: offer.bytes.clone(),
            descriptor: descriptor.map(|file| file.try_clone().expect("room for a descriptor")),
        };
        Some(Taken { offer, number: 0 })
    }

    fn give_back(&self, _token: Token, _number: u32) {}

    fn withdraw(&self, _token: Token) {}
}

impl Client {
    fn settled(&self) {
        let ping = self.post(&wire::Ping { token: 1 });
        assert_eq!(self.status_of(ping), CUDA_SUCCESS);
    }

    fn held(&self) -> u64 {
        self.counters.device_memory_bytes.load(Relaxed)
    }
}

/// A graph that takes so many bytes from the client.
fn one_copy(address: u64, bytes: u64) -> described::Graph {
    let side = |place| described::Operand {
        place,
        pitch: bytes,
        height: 1,
        ..described::Operand::default()
    };
    let work = described::Work::Copy(described::Copy {
        source: side(described::Place::Client),
        destination: side(described::Place::Device(address)),
        width: bytes,
        height: 1,
        depth: 1,
        context: 0,
    });
    described::Graph {
        nodes: vec![described::Node { number: 9, work }],
        edges: Vec::new(),
    }
}

#[test]
fn graphs_pin_no_more_than_a_session_may() {
    let client = Client::new();
    let memory = client.allocate(MIB);
    let (status, reply) = client.make_graph(70, &one_copy(memory, 4 << 30));
    assert_eq!(status, CUDA_ERROR_OUT_OF_MEMORY);
    assert_eq!(reply.error_node, Some(9));
    // Memory of copies that were changed comes back.
    let graph = one_copy(memory, 1 << 30);
    assert_eq!(client.make_graph(71, &graph).0, CUDA_SUCCESS);
    let changes = graph.encode();
    let end = Instant::now() + PATIENCE;
    for _ in 0..8 {
        let change = || {
            client.status_of(client.post(&wire::GraphChange {
                exec: 71,
                size: changes.len() as u64,
                changes: &changes,
            }))
        };
        while change() != CUDA_SUCCESS {
            assert!(Instant::now() < end, "it comes back soon");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    client.leave();
}

#[test]
fn physical_memory_is_charged_where_it_is_opened() {
    let counters = Arc::new(Counters::default());
    counters.device_memory_limit.store(4 * MIB, Relaxed);
    let address = "memory://cuda".parse().expect("it is well formed");
    let (null, transport) = (Arc::new(NullCuda::new(1)), MemoryTransport::new());
    let broker = Arc::new(Shelf::default());
    let client = Client::start(null, &transport, &address, counters, broker).settle(IMAGE);
    let created = client.post(&wire::PhysicalCreate {
        device: 0,
        size: 2 * MIB,
        flags: 2,
        memory: 1,
    });
    assert_eq!(client.status_of(created), CUDA_SUCCESS);
    let shared = client.post(&wire::Share {
        kind: PHYSICAL,
        number: 1,
    });
    assert_eq!(client.status_of(shared), CUDA_SUCCESS);
    let open = |number| {
        client.status_of(client.post(&wire::OpenShared {
            kind: PHYSICAL,
            token: &[1; 32],
            flags: 0,
            number,
        }))
    };
    assert_eq!(open(2), CUDA_SUCCESS);
    client.post(&wire::PhysicalRelease { memory: 1 });
    client.settled();
    assert_eq!(client.held(), 2 * MIB, "it is there still");
    assert_eq!(open(3), CUDA_SUCCESS);
    assert_eq!(open(4), CUDA_ERROR_OUT_OF_MEMORY);
    for memory in [2, 3] {
        client.post(&wire::PhysicalRelease { memory });
    }
    client.settled();
    assert_eq!(client.held(), 0);
    client.leave();
}

#[test]
fn second_number_of_a_primary_context_ends_the_session() {
    for is_released in [false, true] {
        let client = Client::new();
        if is_released {
            client.post(&wire::PrimaryRelease {
                device: 0,
                context: CONTEXT,
            });
        }
        client.post(&wire::PrimaryRetain {
            device: 0,
            flags: 0,
            context: wire::ContextHandle(CONTEXT.0 + 0x50),
        });
        assert_eq!(client.closed(), Some(CloseCode::DuplicateHandle));
        client.leave();
    }
}

#[test]
fn code_is_charged_by_its_length_and_kind() {
    let client = Client::new();
    let image = IMAGE.len() as u64;
    let held = || client.counters.code_bytes.load(Relaxed);
    assert_eq!(held(), image);
    // The end of a graph is none of a module with its number.
    let graph = described::Graph::default();
    assert_eq!(client.make_graph(MODULE.0, &graph).0, CUDA_SUCCESS);
    client.post(&wire::GraphEnd { exec: MODULE.0 });
    client.settled();
    assert_eq!(held(), image);
    // The image is as long as it is, whatever the client says.
    let second = wire::ModuleHandle(MODULE.0 + 100);
    let loaded = client.ask_load(second, IMAGE, 0, 0);
    assert_eq!(client.status_of(loaded), CUDA_SUCCESS);
    assert_eq!(held(), 2 * image);
    // A load that fails under a number in use would credit what is loaded.
    client.start_load(second, b"nothing", 0);
    assert_eq!(client.closed(), Some(CloseCode::DuplicateHandle));
    client.leave();
}

#[test]
fn pool_memory_is_charged_until_the_stream_has_freed_it() {
    let client = Client::new();
    let flag = client.allocate(4);
    client.write(DEFAULT, flag, &[0; 4]);
    assert_eq!(client.synchronize(DEFAULT), CUDA_SUCCESS);
    let limit = &client.counters.device_memory_limit;
    limit.store(4 * MIB, Relaxed);
    let allocate = |stream, size| {
        client.post(&wire::PoolAlloc {
            stream,
            pool: wire::MemoryPoolHandle(0),
            size,
        })
    };
    let (status, body) = client.reply_to(allocate(A, 3 * MIB));
    assert_eq!(status, CUDA_SUCCESS);
    let reply = wire::PoolAllocReply::decode(&body).expect("the reply decodes");
    client.launch(SPIN_UNTIL, A, &flag.to_le_bytes());
    client.post(&wire::PoolFree {
        stream: A,
        address: reply.address.expect("it was asked for"),
    });
    client.settled();
    assert!(client.held() > 3 * MIB, "the kernel may use it");
    let other = client.post(&wire::MemoryAlloc {
        size: 2 * MIB,
        managed_flags: 0,
    });
    assert_eq!(client.status_of(other), CUDA_ERROR_OUT_OF_MEMORY);
    // A pool waits for what is to come back.
    let waits = allocate(B, 2 * MIB);
    client.write(DEFAULT, flag, &1_u32.to_le_bytes());
    assert_eq!(client.status_of(waits), CUDA_SUCCESS);
    assert!(client.held() < 3 * MIB);
    assert_eq!(client.failures(), []);
    client.leave();
}

#[test]
fn events_of_launches_in_graphs_are_the_sessions() {
    let client = Client::new();
    let memory = client.allocate(4);
    let mut graph = one_kernel(9, params(memory, &[1]));
    let refused = [
        (
            CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT,
            CUDA_ERROR_INVALID_HANDLE,
        ),
        (
            CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE,
            CUDA_ERROR_NOT_SUPPORTED,
        ),
    ];
    for (id, status) in refused {
        if let described::Work::Kernel(kernel) = &mut graph.nodes[0].work {
            kernel.attributes = vec![u64::from(id), 0x7f00_0000_1000, 0, 0, 0, 0, 0, 0, 0];
        }
        let (told, reply) = client.make_graph(70, &graph);
        assert_eq!((told, reply.error_node), (status, Some(9)));
    }
    client.leave();
}
