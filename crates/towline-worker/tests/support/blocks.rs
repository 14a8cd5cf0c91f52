//! Pinned memory that transfers go through, where more want it than may have it.

use super::*;

/// Streams whose first kernel waits, each with as many reads as the driver takes without waiting for it.
const STREAMS: u64 = 24;
const READS: u64 = 400;

#[test]
fn small_transfers_wait_for_blocks_of_their_stream() {
    let client = Client::new();
    let memory = client.allocate(1 << 10);
    let streams: Vec<_> = (0..STREAMS)
        .map(|index| wire::StreamHandle(HANDLE_BASE | (0x1000 + index)))
        .collect();
    client.write(A, memory + 4, &7_u32.to_le_bytes());
    assert_eq!(client.synchronize(A), CUDA_SUCCESS);
    let payload = |index: u64, read: u64| 1000 + 2 * (index * READS + read);
    for (index, stream) in (0..).zip(&streams) {
        client.post(&wire::StreamCreate {
            phStream: *stream,
            Flags: CU_STREAM_NON_BLOCKING,
        });
        client.launch(SPIN_UNTIL, *stream, &params(memory, &[]));
        (0..READS).for_each(|read| client.start_read(*stream, memory + 4, 4, payload(index, read)));
    }
    // No block is left: this one waits for its stream's own, and that of a stream without any does not.
    let place = [0, 0, 0, 4, 2, 1, 8, 2];
    client.post(&wire::WriteBox {
        stream: streams[STREAMS as usize - 1],
        array: wire::ArrayHandle(0),
        address: memory + 64,
        place: List::Values(&place),
        payload: 0,
        size: 8,
        data: Some(&[1, 2, 3, 4, 5, 6, 7, 8]),
    });
    assert_eq!(client.read(A, memory + 4, 4, 11), 7_u32.to_le_bytes());
    client.write(B, memory, &1_u32.to_le_bytes());
    for index in 0..STREAMS {
        for read in 0..READS {
            assert_eq!(client.data(payload(index, read), 4), 7_u32.to_le_bytes());
        }
    }
    let last = streams[STREAMS as usize - 1];
    let rows = [1, 2, 3, 4, 0, 0, 0, 0, 5, 6, 7, 8];
    assert_eq!(client.read(last, memory + 64, 12, 12), rows);
    assert_eq!(client.failures(), []);
    client.leave();
}
