//! Graphs that clients describe, launch and change.

use super::*;

#[test]
fn a_graph_whose_nodes_are_refused_says_which() {
    let client = Client::new();
    let (status, reply) = client.make_graph(70, &one_kernel(9, Vec::new()));
    assert_eq!(status, CUDA_ERROR_INVALID_VALUE);
    assert_eq!(reply.error_node, Some(9));
    // Nothing was made, so the number is free.
    let memory = client.allocate(4);
    let graph = one_kernel(9, params(memory, &[1]));
    assert_eq!(client.make_graph(70, &graph).0, CUDA_SUCCESS);
    client.run_graph(70, A, &[]);
    client.run_graph(70, B, &[]);
    assert_eq!(client.synchronize(A), CUDA_SUCCESS);
    assert_eq!(client.read(B, memory, 4, 1), 2_u32.to_le_bytes());
    client.post(&wire::GraphEnd { exec: 70 });
    assert_eq!(client.failures(), []);
    let freed = client.post(&wire::MemoryFree { address: memory });
    assert_eq!(client.status_of(freed), CUDA_SUCCESS);
    client.leave();
}

#[test]
fn a_change_is_behind_launches_that_are_parked() {
    let client = Client::new();
    let memory = client.allocate(8);
    client.write(A, memory, &[0; 8]);
    let graph = one_kernel(9, params(memory, &[1]));
    assert_eq!(client.make_graph(70, &graph).0, CUDA_SUCCESS);
    // The stream stands still, and the launch behind it.
    client.post(&wire::HostFunction {
        stream: A,
        function: 7,
        sync_mode: 0,
    });
    client.run_graph(70, A, &[]);
    let changes = one_kernel(9, params(memory + 4, &[1])).encode();
    let change = client.post(&wire::GraphChange {
        exec: 70,
        size: changes.len() as u64,
        changes: &changes,
    });
    assert_eq!(client.event(7), CUDA_SUCCESS);
    client.post(&wire::HostDone { function: 7 });
    assert_eq!(client.status_of(change), CUDA_SUCCESS);
    client.run_graph(70, A, &[]);
    let both = [1_u32, 1].map(u32::to_le_bytes).concat();
    assert_eq!(client.read(A, memory, 8, 1), both);
    client.leave();
}

#[test]
fn graphs_that_do_not_exist_or_do_twice_end_the_session() {
    let graph = described::Graph::default();
    let client = Client::new();
    client.run_graph(70, A, &[]);
    assert_eq!(client.closed(), Some(CloseCode::UnknownHandle));
    client.leave();

    let client = Client::new();
    assert_eq!(client.make_graph(70, &graph).0, CUDA_SUCCESS);
    client.run_graph(70, A, &[5, 6]);
    assert_eq!(
        client.closed(),
        Some(CloseCode::UnknownHandle),
        "no such node"
    );
    client.leave();

    let client = Client::new();
    assert_eq!(client.make_graph(70, &graph).0, CUDA_SUCCESS);
    let node = described::Node {
        number: 5,
        work: described::Work::Empty,
    };
    let changes = described::Graph {
        nodes: vec![node],
        edges: Vec::new(),
    };
    let changes = changes.encode();
    client.post(&wire::GraphAdjust {
        exec: 70,
        stream: DEFAULT,
        size: changes.len() as u64,
        changes: &changes,
    });
    assert_eq!(client.closed(), Some(CloseCode::UnknownHandle), "no launch");
    client.leave();

    let client = Client::new();
    assert_eq!(client.make_graph(70, &graph).0, CUDA_SUCCESS);
    client.post(&wire::GraphAnchor {
        graph: wire::GraphHandle(70),
    });
    assert_eq!(client.closed(), Some(CloseCode::DuplicateHandle));
    client.leave();

    let client = Client::new();
    client.post(&wire::GraphMake {
        graph: wire::GraphHandle(0),
        flags: 0,
        stream: DEFAULT,
        size: 3,
        description: &[1, 2, 3],
        exec: 70,
    });
    assert_eq!(client.closed(), Some(CloseCode::Malformed));
    client.leave();
}
