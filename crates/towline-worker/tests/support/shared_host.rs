//! Memory that a client on the worker's host shares, and clients that share what they should not.

use std::os::fd::AsFd;

use towline_transport::shared_memory::SharedMemory;
use towline_transport::shm::ShmTransport;

use super::*;

const AREA: u64 = HANDLE_BASE | 0xa0;
const SIZE: usize = 1 << 20;

/// A session over shared memory, with a context and a stream.
fn neighbour() -> Client {
    let folder = tempfile::tempdir().expect("room for a socket");
    let address = format!("shm://{}/x", folder.path().display());
    let address = address.parse().expect("it is well formed");
    let null = Arc::new(NullCuda::new(1));
    let mut client = Client::over(Arc::clone(&null) as _, &ShmTransport::new(), &address);
    client.null = Some(null);
    client.post(&wire::PrimaryRetain {
        device: 0,
        flags: 0,
        context: CONTEXT,
    });
    client.post(&wire::Act {
        thread: 1,
        context: CONTEXT,
        capture_mode: 0,
    });
    client.post(&wire::StreamCreate {
        phStream: A,
        Flags: CU_STREAM_NON_BLOCKING,
    });
    client
}

fn announce(client: &Client, size: u64) -> u64 {
    client.post(&wire::ShareHost {
        area: AREA,
        size,
        address: 0,
    })
}

fn share(client: &Client) -> SharedMemory {
    let memory = SharedMemory::allocate("test", SIZE).expect("room for it");
    client
        .command
        .send_descriptor(memory.descriptor())
        .expect("the worker is there");
    let asked = announce(client, SIZE as u64);
    assert_eq!(client.status_of(asked), CUDA_SUCCESS);
    memory
}

fn write(offset: u64, size: u64) -> wire::WriteShared {
    wire::WriteShared {
        stream: A,
        address: 0x1000,
        area: AREA,
        offset,
        size,
        done: 0,
    }
}

#[test]
fn a_copy_that_is_to_be_told_is_told_when_its_memory_is_free() {
    let client = neighbour();
    let memory = share(&client);
    let address = client.allocate(SIZE as u64);
    // SAFETY: the memory has so many bytes.
    unsafe { memory.start().as_ptr().write_bytes(7, SIZE) };
    client.post(&wire::WriteShared {
        address,
        done: 41,
        ..write(0, SIZE as u64)
    });
    assert_eq!(client.event(41), CUDA_SUCCESS);
    assert_eq!(client.read(A, address, 64, 50), [7; 64]);
    // What the device refuses is told too.
    client.post(&wire::WriteShared {
        address: 0x10,
        done: 42,
        ..write(0, 8)
    });
    assert_ne!(client.event(42), CUDA_SUCCESS);
    client.post(&wire::UnshareHost { area: AREA });
    client.leave();
}

#[test]
fn kernels_reach_memory_at_the_clients_address_where_the_worker_has_nothing_there() {
    const FREE: u64 = 0x4765_0000_0000;
    let client = neighbour();
    let memory = SharedMemory::allocate("test", SIZE).expect("room for it");
    // The client of these tests is a thread of the worker's process.
    let taken = memory.start().as_ptr().expose_provenance() as u64;
    for (address, reached) in [
        (FREE, true),
        (FREE + 1, false),
        (taken, false),
        (u64::MAX - 4095, false),
        (0, false),
    ] {
        client
            .command
            .send_descriptor(memory.descriptor())
            .expect("the worker is there");
        let asked = client.post(&wire::ShareHost {
            area: AREA,
            size: SIZE as u64,
            address,
        });
        let (status, body) = client.reply_to(asked);
        assert_eq!(status, CUDA_SUCCESS, "{address:#x}");
        let reply = wire::ShareHostReply::decode(&body).expect("the worker's answer");
        let device = reply.device;
        assert_eq!(device, Some(if reached { address } else { 0 }));
        client.post(&wire::UnshareHost { area: AREA });
    }
    client.leave();
}

#[test]
fn memory_that_does_not_come_ends_the_session() {
    let client = neighbour();
    announce(&client, SIZE as u64);
    assert_eq!(client.closed(), Some(CloseCode::Malformed));
    client.leave();
}

#[test]
fn over_a_network_there_is_no_memory_to_share() {
    let client = Client::bare();
    announce(&client, SIZE as u64);
    assert_eq!(client.closed(), Some(CloseCode::Malformed));
    client.leave();
}

#[test]
fn memory_that_could_shrink_or_has_another_size_is_refused_and_the_session_goes_on() {
    let client = neighbour();
    let loose = tempfile::tempfile().expect("room for a file");
    loose.set_len(SIZE as u64).expect("room for a file");
    client
        .command
        .send_descriptor(loose.as_fd())
        .expect("the worker is there");
    let asked = announce(&client, SIZE as u64);
    assert_eq!(client.status_of(asked), CUDA_ERROR_INVALID_VALUE);
    let short = SharedMemory::allocate("test", 4096).expect("room for it");
    client
        .command
        .send_descriptor(short.descriptor())
        .expect("the worker is there");
    let asked = announce(&client, SIZE as u64);
    assert_eq!(client.status_of(asked), CUDA_ERROR_INVALID_VALUE);
    share(&client);
    client.leave();
}

#[test]
fn more_memory_than_the_machine_can_spare_is_refused() {
    let client = neighbour();
    let memory = SharedMemory::allocate("test", 4096).expect("room for it");
    client
        .command
        .send_descriptor(memory.descriptor())
        .expect("the worker is there");
    let asked = announce(&client, 1 << 60);
    assert_eq!(client.status_of(asked), CUDA_ERROR_OUT_OF_MEMORY);
    share(&client);
    client.leave();
}

#[test]
fn a_copy_beyond_the_memory_ends_the_session() {
    for (offset, size) in [
        (0, 0),
        (0, SIZE as u64 + 1),
        (u64::MAX, 2),
        (SIZE as u64, 1),
    ] {
        let client = neighbour();
        share(&client);
        client.post(&write(offset, size));
        assert_eq!(
            client.closed(),
            Some(CloseCode::Malformed),
            "{offset}, {size}"
        );
        client.leave();
    }
}

#[test]
fn memory_that_was_not_shared_or_twice_ends_the_session() {
    let client = neighbour();
    client.post(&write(0, 8));
    assert_eq!(client.closed(), Some(CloseCode::UnknownHandle));
    client.leave();
    let client = neighbour();
    client.post(&wire::UnshareHost { area: AREA });
    assert_eq!(client.closed(), Some(CloseCode::UnknownHandle));
    client.leave();
    let client = neighbour();
    let memory = share(&client);
    client
        .command
        .send_descriptor(memory.descriptor())
        .expect("the worker is there");
    announce(&client, SIZE as u64);
    assert_eq!(client.closed(), Some(CloseCode::DuplicateHandle));
    client.leave();
}
