//! A client that keeps to no rule, against the engine with the host-memory device: each session ends with the code that the protocol
//! has for it or goes on, and leaves nothing behind.
//!
//! The random sessions are the same each time; `TOWLINE_FUZZ_SECONDS` makes them last, `TOWLINE_FUZZ_SEED` makes them others.

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use support::{Client, Random, Reached};
use towline_backend::opencl as wire;
use towline_backend::opencl::*;
use towline_session::{DEVICE_BASE, HANDLE_BASE};
use towline_transport::memory::MemoryTransport;
use towline_transport::{ConnectOptions, Connection, Transport};
use towline_wire::error::CloseCode;
use towline_wire::frame::{CHUNK_LIMIT, ChunkHeader, FrameHeader};
use towline_wire::peer::PeerFrame;

/// The one device of the snapshot.
const DEVICE: wire::DeviceHandle = wire::DeviceHandle(DEVICE_BASE | 1);
const CONTEXT: wire::ContextHandle = wire::ContextHandle(HANDLE_BASE | 1);
const QUEUE: wire::CommandQueueHandle = wire::CommandQueueHandle(HANDLE_BASE | 2);
const BUFFER: wire::MemHandle = wire::MemHandle(HANDLE_BASE | 3);
const GATE: wire::EventHandle = wire::EventHandle(HANDLE_BASE | 4);
const PROGRAM: wire::ProgramHandle = wire::ProgramHandle(HANDLE_BASE | 5);
const KERNEL: wire::KernelHandle = wire::KernelHandle(HANDLE_BASE | 6);

/// Size of the buffer that the sessions start with.
const BUFFER_BYTES: u64 = 1 << 20;

/// A session with a context, a queue, a buffer, a user event, and a kernel.
fn settled() -> Client {
    settle(Client::new())
}

fn settle(client: Client) -> Client {
    client.post(&wire::CreateContext {
        properties: None,
        num_devices: 1,
        devices: List::Values(&[DEVICE]),
        notify: false,
        created: CONTEXT,
    });
    client.post(&wire::CreateCommandQueue {
        context: CONTEXT,
        device: DEVICE,
        properties: 0,
        created: QUEUE,
    });
    client.post(&buffer(BUFFER, BUFFER_BYTES));
    client.post(&wire::CreateUserEvent {
        context: CONTEXT,
        created: GATE,
    });
    client.post(&wire::CreateProgramWithBuiltInKernels {
        context: CONTEXT,
        num_devices: 1,
        device_list: List::Values(&[DEVICE]),
        kernel_names: b"add_one;scale",
        created: PROGRAM,
    });
    client.post(&wire::CreateKernel {
        program: PROGRAM,
        kernel_name: b"scale",
        created: KERNEL,
    });
    client
}

fn buffer(created: wire::MemHandle, size: u64) -> wire::CreateBuffer<'static> {
    wire::CreateBuffer {
        context: CONTEXT,
        flags: CL_MEM_READ_WRITE,
        size,
        host_ptr: None,
        created,
    }
}

/// A linear place: origin and size.
fn linear(offset: u64, size: u64) -> [u64; 8] {
    [offset, 0, 0, size, 1, 1, 0, 0]
}

fn write_inline<'a>(place: &'a [u64; 8], data: &'a [u8]) -> wire::WriteInline<'a> {
    wire::WriteInline {
        command_queue: QUEUE,
        mem: BUFFER,
        shape: 0,
        place: List::Values(place),
        size: data.len() as u64,
        data,
        num_events_in_wait_list: 0,
        event_wait_list: None,
        event: None,
    }
}

fn write_bulk(place: &[u64; 8], size: u64, payload: u64) -> wire::WriteBulk<'_> {
    wire::WriteBulk {
        command_queue: QUEUE,
        mem: BUFFER,
        shape: 0,
        place: List::Values(place),
        size,
        payload,
        num_events_in_wait_list: 0,
        event_wait_list: None,
        event: None,
    }
}

#[test]
fn an_honest_session_goes_on_and_leaves_nothing() {
    let client = settled();
    client.post(&write_inline(&linear(0, 4), b"data"));
    client.post(&wire::Finish {
        command_queue: QUEUE,
    });
    assert_eq!(client.ping(), Reached::Answer);
    assert_eq!(client.failures(), []);
    client.leave();
}

#[test]
fn an_unknown_call_closes_the_session() {
    let client = settled();
    client.post_raw(0x7777, b"");
    assert_eq!(client.ping(), Reached::Closed(CloseCode::UnknownCall));
    client.leave();
}

#[test]
fn a_handle_of_another_kind_is_unknown() {
    let client = settled();
    client.post(&wire::ReleaseMemObject {
        memobj: wire::MemHandle(QUEUE.0),
    });
    assert_eq!(client.ping(), Reached::Closed(CloseCode::UnknownHandle));
    client.leave();
}

#[test]
fn a_released_handle_is_unknown() {
    let client = settled();
    client.post(&wire::ReleaseMemObject { memobj: BUFFER });
    client.post(&write_inline(&linear(0, 4), b"data"));
    assert_eq!(client.ping(), Reached::Closed(CloseCode::UnknownHandle));
    client.leave();
}

#[test]
fn a_handle_created_twice_closes_the_session() {
    let client = settled();
    client.post(&buffer(BUFFER, 16));
    assert_eq!(client.ping(), Reached::Closed(CloseCode::DuplicateHandle));
    client.leave();
}

#[test]
fn devices_take_names_that_are_free_and_lose_their_old_ones() {
    let name = |device: wire::DeviceHandle, name: u64| {
        let client = settled();
        client.post(&wire::NameDevices {
            num_devices: 1,
            devices: List::Values(&[device]),
            names: List::Values(&[name]),
        });
        let reached = client.ping();
        (client, reached)
    };
    let (client, reached) = name(DEVICE, BUFFER.0);
    assert_eq!(reached, Reached::Closed(CloseCode::DuplicateHandle));
    client.leave();
    let (client, reached) = name(wire::DeviceHandle(BUFFER.0), DEVICE.0 + 1);
    assert_eq!(reached, Reached::Closed(CloseCode::UnknownHandle));
    client.leave();
    let (client, reached) = name(DEVICE, DEVICE.0 + 1);
    assert_eq!(reached, Reached::Answer);
    client.post(&wire::ReleaseDevice { device: DEVICE });
    assert_eq!(client.ping(), Reached::Closed(CloseCode::UnknownHandle));
    client.leave();
}

#[test]
fn a_count_that_differs_from_its_list_is_malformed() {
    let client = settled();
    client.post(&wire::Wait {
        num_events: 1000,
        events: List::Values(&[GATE]),
    });
    assert_eq!(client.ping(), Reached::Closed(CloseCode::Malformed));
    client.leave();
}

#[test]
fn a_place_that_does_not_fit_its_size_is_malformed() {
    for place in [
        linear(0, 8),
        linear(u64::MAX - 1, 4),
        [0, 0, 0, u64::MAX, 2, 1, 0, 0],
    ] {
        let client = settled();
        client.post(&write_inline(&place, b"data"));
        assert_eq!(client.ping(), Reached::Closed(CloseCode::Malformed));
        client.leave();
    }
}

#[test]
fn a_place_outside_the_buffer_is_the_devices_to_refuse() {
    let client = settled();
    client.post(&write_inline(&linear(BUFFER_BYTES, 4), b"data"));
    client.post(&write_bulk(&linear(BUFFER_BYTES - 1, 2), 2, 9));
    assert_eq!(client.ping(), Reached::Answer);
    assert_eq!(client.failures(), [CL_INVALID_VALUE, CL_INVALID_VALUE]);
    client.leave();
}

#[test]
fn frames_out_of_sequence_close_the_session() {
    let client = settled();
    assert_eq!(client.ping(), Reached::Answer);
    client.send_raw(
        &FrameHeader {
            length: 0,
            sequence: 1000,
            acknowledged: 0,
        }
        .to_bytes(),
    );
    assert_eq!(client.end(), Reached::Closed(CloseCode::OutOfSequence));
    client.leave();
}

#[test]
fn a_frame_over_the_limit_closes_the_session_at_its_header() {
    let client = settled();
    assert_eq!(client.ping(), Reached::Answer);
    client.send_raw(
        &FrameHeader {
            length: u32::MAX,
            sequence: client.next_number(),
            acknowledged: 0,
        }
        .to_bytes(),
    );
    assert_eq!(client.end(), Reached::Closed(CloseCode::LimitExceeded));
    client.leave();
}

#[test]
fn half_a_message_then_silence_ends_with_the_connection() {
    let client = settled();
    assert_eq!(client.ping(), Reached::Answer);
    let header = FrameHeader {
        length: 4096,
        sequence: client.next_number(),
        acknowledged: 0,
    };
    client.send_raw(&header.to_bytes());
    client.send_raw(&[0xff, 0x0f, 0, 0, 1]);
    client.leave();
}

#[test]
fn an_answer_of_gigabytes_is_not_made_room_for() {
    let client = settled();
    client.post(&wire::GetDeviceInfo {
        device: DEVICE,
        param_name: CL_DEVICE_NAME,
        param_value_size: 1 << 40,
        want_param_value: true,
    });
    assert_eq!(client.ping(), Reached::Closed(CloseCode::LimitExceeded));
    client.leave();
}

#[test]
fn native_pointers_are_not_told() {
    for query in [CL_DEVICE_PLATFORM, CL_DEVICE_PARENT_DEVICE] {
        let client = settled();
        let request = client.post(&wire::GetDeviceInfo {
            device: DEVICE,
            param_name: query,
            param_value_size: 8,
            want_param_value: true,
        });
        assert_eq!(client.status_of(request), CL_INVALID_VALUE);
        client.leave();
    }
    for query in [CL_KERNEL_CONTEXT, CL_KERNEL_PROGRAM] {
        let client = settled();
        let request = client.post(&wire::GetKernelInfo {
            kernel: KERNEL,
            param_name: query,
            param_value_size: 8,
            want_param_value: true,
        });
        assert_eq!(client.status_of(request), CL_INVALID_VALUE);
        client.leave();
    }
    for query in [CL_PROGRAM_CONTEXT, CL_PROGRAM_DEVICES, CL_PROGRAM_BINARIES] {
        let client = settled();
        let request = client.post(&wire::GetProgramInfo {
            program: PROGRAM,
            param_name: query,
            param_value_size: 8,
            want_param_value: true,
        });
        assert_eq!(client.status_of(request), CL_INVALID_VALUE);
        client.leave();
    }
}

#[test]
fn a_buffer_keeps_no_pointer_into_its_request() {
    let client = settled();
    client.post(&wire::CreateBuffer {
        context: CONTEXT,
        flags: CL_MEM_USE_HOST_PTR,
        size: 4,
        host_ptr: Some(b"data"),
        created: wire::MemHandle(HANDLE_BASE | 100),
    });
    assert_eq!(client.ping(), Reached::Answer);
    assert_eq!(client.failures(), [CL_INVALID_VALUE]);
    client.leave();
}

#[test]
fn memory_is_charged_until_the_vendor_gives_it_back() {
    use std::sync::atomic::Ordering::Relaxed;
    let client = settled();
    assert_eq!(client.ping(), Reached::Answer);
    let before = client.counters.device_memory_bytes.load(Relaxed);
    client
        .counters
        .device_memory_limit
        .store(before + (1 << 20), Relaxed);
    let [parent, part, other] = [100, 101, 102].map(|id| wire::MemHandle(HANDLE_BASE | id));
    client.post(&buffer(parent, 768 << 10));
    client.post(&wire::CreateSubBuffer {
        buffer: parent,
        flags: 0,
        buffer_create_type: CL_BUFFER_CREATE_TYPE_REGION,
        buffer_create_info: &[0_u64, 4096].map(u64::to_le_bytes).concat(),
        created: part,
    });
    assert_eq!(client.ping(), Reached::Answer);
    assert_eq!(client.failures(), []);
    // The part keeps the memory of the whole.
    client.post(&wire::ReleaseMemObject { memobj: parent });
    client.post(&buffer(other, 512 << 10));
    client.post(&buffer(wire::MemHandle(HANDLE_BASE | 103), u64::MAX));
    assert_eq!(client.ping(), Reached::Answer);
    assert_eq!(client.failures(), [CL_MEM_OBJECT_ALLOCATION_FAILURE; 2]);
    client.post(&wire::ReleaseMemObject { memobj: part });
    client.post(&buffer(wire::MemHandle(HANDLE_BASE | 104), 1 << 20));
    assert_eq!(client.ping(), Reached::Answer);
    assert_eq!(client.failures().len(), 2);
    client.leave();
}

#[test]
fn program_text_of_a_session_ends_at_its_limit() {
    use std::sync::atomic::Ordering::Relaxed;
    let client = settled();
    client.counters.code_limit.store(100, Relaxed);
    let [first, second, third] = [110, 111, 112].map(|id| wire::ProgramHandle(HANDLE_BASE | id));
    let program = |created| wire::CreateProgramSource {
        context: CONTEXT,
        size: 60,
        source: &[b' '; 60],
        created,
    };
    client.post(&program(first));
    client.post(&program(second));
    client.post(&wire::CreateProgramWithIL {
        context: CONTEXT,
        il: &[0; 44],
        length: 44,
        created: wire::ProgramHandle(HANDLE_BASE | 113),
    });
    assert_eq!(client.ping(), Reached::Answer);
    assert_eq!(client.failures(), [CL_OUT_OF_RESOURCES; 2]);
    client.post(&wire::ReleaseProgram { program: first });
    client.post(&program(third));
    assert_eq!(client.ping(), Reached::Answer);
    assert_eq!(client.failures().len(), 2);
    client.leave();
}

#[test]
fn memory_properties_are_refused() {
    let client = settled();
    client.post(&wire::CreateBufferWithProperties {
        context: CONTEXT,
        properties: Some(List::Values(&[0x2051, 0x1234])),
        flags: CL_MEM_READ_WRITE,
        size: 4,
        host_ptr: None,
        created: wire::MemHandle(HANDLE_BASE | 100),
    });
    assert_eq!(client.ping(), Reached::Answer);
    assert_eq!(client.failures(), [CL_INVALID_PROPERTY]);
    client.leave();
}

#[test]
fn bytes_are_not_taken_for_a_memory_object() {
    let client = settled();
    let bytes = 0xdead_beef_u64.to_le_bytes();
    client.post(&wire::SetArg {
        kernel: KERNEL,
        index: 0,
        kind: 0,
        size: 8,
        value_size: 8,
        value: &bytes,
    });
    assert_eq!(client.ping(), Reached::Answer);
    assert_eq!(client.failures(), [CL_INVALID_MEM_OBJECT]);
    client.leave();
}

#[test]
fn an_argument_that_is_no_object_is_refused_and_the_session_goes_on() {
    let client = settled();
    let unknown = (HANDLE_BASE | 0x777).to_le_bytes();
    for kind in [1, 2, 3, 5] {
        for value in [&[][..], &[1; 4], &[0xff; 8], &unknown, &[1; 16]] {
            client.post(&wire::SetArg {
                kernel: KERNEL,
                index: 0,
                kind,
                size: 8,
                value_size: value.len() as u64,
                value,
            });
        }
    }
    assert_eq!(client.ping(), Reached::Answer);
    assert_eq!(client.failures().len(), 20);
    client.leave();
}

#[test]
fn memory_that_was_not_allocated_is_neither_read_nor_written() {
    let client = settled();
    let mut secret = *b"a secret of the worker, in the worker's memory";
    let address = secret.as_mut_ptr().expose_provenance() as u64;
    let place = linear(address, secret.len() as u64);
    client.post(&wire::WriteInline {
        shape: 3,
        ..write_inline(&place, &[0; 46])
    });
    client.post(&wire::Read {
        command_queue: QUEUE,
        mem: wire::MemHandle(0),
        shape: 3,
        place: List::Values(&place),
        size: secret.len() as u64,
        payload: 5,
        urgent: 0,
        num_events_in_wait_list: 0,
        event_wait_list: None,
        event: None,
    });
    let argument = client.post(&wire::CheckArg {
        kernel: KERNEL,
        index: 0,
        kind: 5,
        size: 8,
        value_size: 8,
        value: &address.to_le_bytes(),
    });
    assert_eq!(client.status_of(argument), CL_INVALID_ARG_VALUE);
    assert_eq!(client.failures(), [CL_INVALID_VALUE]);
    assert_eq!(client.unread(), [(5, CL_INVALID_VALUE)]);
    assert_eq!(&secret, b"a secret of the worker, in the worker's memory");
    client.leave();
}

#[test]
fn payload_that_nobody_granted_closes_the_session() {
    let client = settled();
    assert_eq!(client.ping(), Reached::Answer);
    client.send_chunk(0, 77, 0, &[1; 100]);
    assert_eq!(client.end(), Reached::Closed(CloseCode::UnexpectedPayload));
    client.leave();
}

#[test]
fn payload_outside_its_window_closes_the_session() {
    let size = 200 << 10;
    for (offset, length) in [(size - 10, 11), (size, 1), (u64::MAX, 1), (0, 0)] {
        let client = settled();
        client.post(&write_bulk(&linear(0, size), size, 7));
        assert_eq!(client.grant(7), (0, size));
        client.send_chunk(1, 7, offset, &vec![1; length]);
        assert_eq!(client.end(), Reached::Closed(CloseCode::UnexpectedPayload));
        client.leave();
    }
}

#[test]
fn payload_that_comes_twice_closes_the_session() {
    let size = 200 << 10;
    let client = settled();
    client.post(&write_bulk(&linear(0, size), size, 7));
    assert_eq!(client.grant(7), (0, size));
    client.send_chunk(0, 7, 0, &vec![1; size as usize - 1]);
    client.send_chunk(0, 7, 0, &[1; 2]);
    assert_eq!(client.end(), Reached::Closed(CloseCode::UnexpectedPayload));
    client.leave();
}

#[test]
fn a_chunk_over_the_limit_closes_the_session() {
    let client = settled();
    assert_eq!(client.ping(), Reached::Answer);
    let mut header = ChunkHeader {
        payload: 1,
        offset: 0,
        length: 0,
    }
    .to_bytes();
    header[16..20].copy_from_slice(&(CHUNK_LIMIT as u32 + 1).to_le_bytes());
    client.send_on_lane(0, &header);
    assert_eq!(client.end(), Reached::Closed(CloseCode::LimitExceeded));
    client.leave();
}

#[test]
fn a_payload_in_use_is_not_opened_again() {
    let size = 200 << 10;
    let client = settled();
    let place = [0, 0, 0, 1024, 200, 1, 1024, 0];
    for _ in 0..2 {
        client.post(&wire::WriteBulk {
            shape: 1,
            ..write_bulk(&place, size, 7)
        });
    }
    assert_eq!(client.end(), Reached::Closed(CloseCode::DuplicateHandle));
    client.leave();
}

#[test]
fn the_data_of_a_write_whose_command_failed_stays_until_its_window_closes() {
    let size = 200 << 10;
    let place = [0, 0, 0, 1024, 200, 1, 1024, 0];
    let client = settled();
    client.post(&wire::WriteBulk {
        shape: 1,
        num_events_in_wait_list: 1,
        event_wait_list: Some(List::Values(&[GATE])),
        ..write_bulk(&place, size, 7)
    });
    assert_eq!(client.grant(7), (0, size));
    client.post(&wire::SetUserEventStatus {
        event: GATE,
        execution_status: -5,
    });
    assert_eq!(client.ping(), Reached::Answer);
    client.send_chunk(0, 7, 0, &vec![1; size as usize]);
    assert_eq!(client.ping(), Reached::Answer);
    client.leave();
}

#[test]
fn a_read_that_the_device_refuses_does_not_fail_the_next_through_its_slot() {
    /// As much as spare slots hold.
    const LARGE: u64 = 64 << 20;
    /// As much as a ring holds.
    const ROUND: u64 = 16 << 20;
    const LARGE_BUFFER: wire::MemHandle = wire::MemHandle(HANDLE_BASE | 20);
    const DONE: wire::EventHandle = wire::EventHandle(HANDLE_BASE | 21);
    let client = settle(Client::on(NullOpenCl::discrete(1)));
    client.post(&buffer(LARGE_BUFFER, LARGE));
    let read = |mem, size, payload, gate: &[_], event| {
        client.post(&wire::Read {
            command_queue: QUEUE,
            mem,
            shape: 0,
            place: List::Values(&linear(0, size)),
            size,
            payload,
            urgent: 0,
            num_events_in_wait_list: gate.len() as u32,
            event_wait_list: (!gate.is_empty()).then_some(List::Values(gate)),
            event,
        })
    };
    // Keeps all spare slots.
    read(LARGE_BUFFER, LARGE, 1, &[GATE], None);
    read(BUFFER, LARGE, 2, &[], None);
    read(LARGE_BUFFER, ROUND, 3, &[], Some(DONE));
    client.post(&wire::SetUserEventStatus {
        event: GATE,
        execution_status: CL_COMPLETE,
    });
    let wait = client.post(&wire::Wait {
        num_events: 1,
        events: List::Values(&[DONE]),
    });
    assert_eq!(client.status_of(wait), CL_SUCCESS);
    assert_eq!(client.unread(), [(2, CL_INVALID_VALUE)]);
    client.leave();
}

#[test]
fn commands_that_wait_for_an_event_without_end_do_not_keep_a_session() {
    let client = settled();
    for _ in 0..10 {
        client.post(&wire::WriteInline {
            num_events_in_wait_list: 1,
            event_wait_list: Some(List::Values(&[GATE])),
            ..write_inline(&linear(0, 4), b"data")
        });
    }
    client.post(&wire::Finish {
        command_queue: QUEUE,
    });
    client.post(&wire::ReleaseEvent { event: GATE });
    assert_eq!(client.ping(), Reached::Answer);
    client.leave();
}

#[test]
fn inline_writes_are_held_up_to_a_limit() {
    let client = settled();
    let data = vec![1; 1 << 20];
    let place = linear(0, 1 << 20);
    for _ in 0..70 {
        client.post(&wire::WriteInline {
            num_events_in_wait_list: 1,
            event_wait_list: Some(List::Values(&[GATE])),
            ..write_inline(&place, &data)
        });
    }
    assert_eq!(client.ping(), Reached::Closed(CloseCode::LimitExceeded));
    client.leave();
}

#[test]
fn waits_are_queued_up_to_a_limit() {
    let client = settled();
    for _ in 0..6000 {
        client.post(&wire::Wait {
            num_events: 1,
            events: List::Values(&[GATE]),
        });
    }
    assert_eq!(client.end(), Reached::Closed(CloseCode::LimitExceeded));
    client.leave();
}

#[test]
fn waits_behind_a_command_without_end_are_queued_up_to_a_limit() {
    const HELD: wire::EventHandle = wire::EventHandle(HANDLE_BASE | 20);
    let held = || {
        let client = settled();
        client.post(&wire::WriteInline {
            num_events_in_wait_list: 1,
            event_wait_list: Some(List::Values(&[GATE])),
            event: Some(HELD),
            ..write_inline(&linear(0, 4), b"data")
        });
        client
    };
    let client = held();
    for _ in 0..6000 {
        client.post(&wire::Finish {
            command_queue: QUEUE,
        });
    }
    assert_eq!(client.end(), Reached::Closed(CloseCode::LimitExceeded));
    client.leave();
    let client = held();
    for _ in 0..6000 {
        client.post(&wire::Wait {
            num_events: 2,
            events: List::Values(&[HELD, HELD]),
        });
    }
    assert_eq!(client.end(), Reached::Closed(CloseCode::LimitExceeded));
    client.leave();
    // A few are answered once it has ended.
    let client = held();
    let waits: Vec<u64> = (0..100)
        .flat_map(|_| {
            let finish = client.post(&wire::Finish {
                command_queue: QUEUE,
            });
            let wait = client.post(&wire::Wait {
                num_events: 2,
                events: List::Values(&[HELD, HELD]),
            });
            [finish, wait]
        })
        .collect();
    client.post(&wire::SetUserEventStatus {
        event: GATE,
        execution_status: CL_COMPLETE,
    });
    for wait in waits {
        assert_eq!(client.status_of(wait), CL_SUCCESS);
    }
    client.leave();
}

#[test]
fn lanes_beyond_the_limit_are_turned_away() {
    let client = Client::with_lanes(1000);
    let open = client.open_lanes();
    assert_eq!(open, usize::from(towline_wire::control::limits::LANES));
    assert_eq!(client.ping(), Reached::Answer);
    client.leave();
}

/// Two sessions with a peer lane between them, number 1 at both; the lane's ends too.
fn peers() -> ([Client; 2], [Arc<dyn Connection>; 2]) {
    peers_on(NullOpenCl::new)
}

/// As [`peers`], on other devices.
fn peers_on(null: fn(usize) -> NullOpenCl) -> ([Client; 2], [Arc<dyn Connection>; 2]) {
    let ends = connections();
    let sessions = ends.clone().map(|end| {
        let client = settle(Client::with_peer(null(1), end));
        let open = client.post(&wire::PeerOpen { lane: 1 });
        assert_eq!(client.status_of(open), CL_SUCCESS);
        client
    });
    (sessions, ends)
}

/// Two ends of a connection.
fn connections() -> [Arc<dyn Connection>; 2] {
    let transport = MemoryTransport::new();
    let address = "memory://peers".parse().expect("it is well formed");
    let listener = transport.listen(&address).expect("the name is free");
    let one = transport
        .connect(&address, &ConnectOptions::default())
        .expect("the listener is there");
    [one, listener.accept().expect("somebody has connected")]
}

/// The event of a peer transfer.
const PASSED: wire::EventHandle = wire::EventHandle(HANDLE_BASE | 20);

fn peer_send(size: u64, lane: u64) -> wire::PeerSend<'static> {
    wire::PeerSend {
        command_queue: QUEUE,
        mem: BUFFER,
        offset: 0,
        size,
        lane,
        payload: 7,
        num_events_in_wait_list: 0,
        event_wait_list: None,
        event: Some(PASSED),
    }
}

fn peer_receive(size: u64, lane: u64) -> wire::PeerReceive<'static> {
    wire::PeerReceive {
        command_queue: QUEUE,
        mem: BUFFER,
        offset: 0,
        size,
        lane,
        payload: 7,
        num_events_in_wait_list: 0,
        event_wait_list: None,
        event: Some(PASSED),
    }
}

/// How a wait for the peer transfer ends.
fn passed(client: &Client) -> i32 {
    let wait = client.post(&wire::Wait {
        num_events: 1,
        events: List::Values(&[PASSED]),
    });
    client.status_of(wait)
}

/// Passes the buffer twice from one session to the other.
fn pass_twice(from: &Client, to: &Client) -> Vec<i32> {
    let mut statuses = Vec::new();
    for _ in 0..2 {
        to.post(&peer_receive(BUFFER_BYTES, 1));
        from.post(&peer_send(BUFFER_BYTES, 1));
        to.flush();
        statuses.extend([passed(from), passed(to)]);
        for client in [from, to] {
            client.post(&wire::ReleaseEvent { event: PASSED });
        }
    }
    statuses
}

#[test]
fn a_buffer_passes_between_two_sessions_and_the_lane_is_free_again() {
    let ([from, to], _ends) = peers();
    assert_eq!(pass_twice(&from, &to), [CL_SUCCESS; 4]);
    from.leave();
    to.leave();
}

#[test]
fn a_buffer_passes_between_devices_whose_events_are_waited_for() {
    let ([from, to], _ends) = peers_on(NullOpenCl::discrete);
    assert_eq!(pass_twice(&from, &to), [CL_SUCCESS; 4]);
    from.leave();
    to.leave();
}

#[test]
fn a_side_that_cannot_fails_the_other_and_both_sessions_go_on() {
    let ([from, to], _ends) = peers();
    // Larger than the buffer: the device refuses to map it.
    to.post(&peer_receive(BUFFER_BYTES, 1));
    to.flush();
    from.post(&peer_send(BUFFER_BYTES + 1, 1));
    assert!(passed(&from) < 0);
    assert!(passed(&to) < 0);
    for client in [&from, &to] {
        client.post(&wire::ReleaseEvent { event: PASSED });
    }
    // Another payload: the lane has not heard of the first one's end, it may be.
    to.post(&wire::PeerReceive {
        payload: 8,
        ..peer_receive(BUFFER_BYTES + 1, 1)
    });
    to.flush();
    from.post(&wire::PeerSend {
        payload: 8,
        ..peer_send(BUFFER_BYTES, 1)
    });
    assert!(passed(&from) < 0);
    assert!(passed(&to) < 0);
    assert_eq!(from.ping(), Reached::Answer);
    assert_eq!(to.ping(), Reached::Answer);
    from.leave();
    to.leave();
}

#[test]
fn what_a_failed_event_holds_back_fails_on_both_sides() {
    let ([from, to], _ends) = peers();
    to.post(&peer_receive(BUFFER_BYTES, 1));
    to.flush();
    from.post(&wire::PeerSend {
        num_events_in_wait_list: 1,
        event_wait_list: Some(List::Values(&[GATE])),
        ..peer_send(BUFFER_BYTES, 1)
    });
    from.post(&wire::SetUserEventStatus {
        event: GATE,
        execution_status: -7,
    });
    assert!(passed(&from) < 0);
    assert!(passed(&to) < 0);
    assert_eq!(to.ping(), Reached::Answer);
    from.leave();
    to.leave();
}

#[test]
fn a_lane_cut_under_a_transfer_fails_it_and_leaves_the_session() {
    let ([from, to], ends) = peers();
    to.post(&peer_receive(BUFFER_BYTES, 1));
    assert_eq!(to.ping(), Reached::Answer);
    ends[0].shutdown();
    assert!(passed(&to) < 0);
    from.post(&peer_send(BUFFER_BYTES, 1));
    assert!(passed(&from) < 0);
    // The mapping is over: the queue goes on.
    let finish = to.post(&wire::Finish {
        command_queue: QUEUE,
    });
    assert_eq!(to.status_of(finish), CL_SUCCESS);
    from.leave();
    to.leave();
}

#[test]
fn a_session_that_ends_under_a_transfer_fails_it_on_the_other_side() {
    let ([from, to], _ends) = peers();
    to.post(&peer_receive(BUFFER_BYTES, 1));
    from.post(&peer_send(BUFFER_BYTES, 1));
    assert_eq!(to.ping(), Reached::Answer);
    to.leave();
    // Whether the last byte had gone is chance; that it ends is not.
    passed(&from);
    assert_eq!(from.ping(), Reached::Answer);
    from.leave();
}

#[test]
fn a_peer_lane_that_is_not_there_fails_what_names_it() {
    let client = settled();
    client.post(&peer_send(8, 1));
    assert!(passed(&client) < 0);
    client.post(&wire::PeerReceive {
        event: None,
        ..peer_receive(8, u64::MAX)
    });
    assert_eq!(client.ping(), Reached::Answer);
    assert_eq!(client.failures(), [CL_DEVICE_NOT_AVAILABLE; 2]);
    client.leave();
}

#[test]
fn a_peer_transfer_of_nothing_or_beyond_all_memory_is_malformed() {
    for (offset, size) in [(0, 0), (u64::MAX, 2), (2, u64::MAX)] {
        let client = settled();
        client.post(&wire::PeerReceive {
            offset,
            ..peer_receive(size, 1)
        });
        assert_eq!(client.ping(), Reached::Closed(CloseCode::Malformed));
        client.leave();
    }
}

#[test]
fn a_peer_payload_in_use_closes_the_session() {
    let ([from, to], _ends) = peers();
    for _ in 0..2 {
        to.post(&wire::PeerReceive {
            event: None,
            ..peer_receive(8, 1)
        });
    }
    assert_eq!(to.ping(), Reached::Closed(CloseCode::DuplicateHandle));
    to.leave();
    from.leave();
}

#[test]
fn random_sessions_end_in_order_and_leave_nothing() {
    let number = |variable: &str| -> Option<u64> {
        let value = std::env::var(variable).ok()?;
        Some(value.parse().expect("it must be a number"))
    };
    let first = number("TOWLINE_FUZZ_SEED").unwrap_or(1);
    let end =
        number("TOWLINE_FUZZ_SECONDS").map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let mut ended = [0_u64; 9];
    for seed in first.. {
        let over = match end {
            Some(end) => Instant::now() >= end,
            None => seed - first >= 300,
        };
        if over {
            break;
        }
        if let Some(code) = random_session(seed) {
            ended[code as usize] += 1;
        }
    }
    println!("sessions closed, by code: {ended:?}");
    // The mix must reach the rules: a change that has every session end at its first message would test nothing.
    for code in [
        CloseCode::Malformed,
        CloseCode::UnknownHandle,
        CloseCode::UnexpectedPayload,
        CloseCode::DuplicateHandle,
    ] {
        assert!(ended[code as usize] > 0, "no session ended with {code:?}");
    }
}

/// A session of random requests, most of them well formed and about objects that exist.
fn random_session(seed: u64) -> Option<CloseCode> {
    let mut random = Random::new(seed);
    let [lane, peer] = connections();
    let client = settle(Client::with_peer(NullOpenCl::new(1), lane));
    let steps = random.below(150);
    for step in 0..steps {
        random_request(&client, &mut random, step);
        if random.below(10) == 0 {
            client.flush();
            random_chunk(&client, &mut random);
            random_peer(&*peer, &mut random);
        }
    }
    client.flush();
    let reached = match random.below(3) {
        0 => client.ping(),
        1 => {
            client.post(&wire::Goodbye { reason: 0 });
            client.flush();
            client.end()
        }
        _ => {
            client.send_raw(&[7; 11][..random.below(12) as usize]);
            Reached::Left
        }
    };
    client.leave();
    match reached {
        Reached::Closed(code) => Some(code),
        Reached::Answer | Reached::Left => None,
    }
}

/// Payload that was granted, or not.
fn random_chunk(client: &Client, random: &mut Random) {
    let lane = random.below(2) as usize;
    match (client.some_grant(), random.below(8)) {
        (_, 0) => client.send_chunk(lane, random.below(20), random.edge(), &[1; 10]),
        (Some((payload, offset, length)), _) => {
            let length = length.min(64 << 10);
            let part = 1 + random.below(length) as usize;
            client.send_chunk(lane, payload, offset, &vec![3; part]);
        }
        (None, _) => {}
    }
}

/// What another worker says, that is none.
fn random_peer(peer: &dyn Connection, random: &mut Random) {
    let (payload, offset) = (
        1 + random.below(4),
        random.below(3).saturating_mul(random.edge()),
    );
    let length = 1 + random.below(1000);
    let frame = match random.below(10) {
        0 => PeerFrame::Chunk {
            payload,
            offset,
            length: length as u32,
        },
        1..=5 => PeerFrame::Grant {
            payload,
            offset,
            length,
            size: offset.saturating_add(length),
        },
        6 => PeerFrame::NoData {
            payload,
            status: -5,
        },
        7 => PeerFrame::Refuse {
            payload,
            status: -6,
        },
        _ => PeerFrame::Over { payload },
    };
    // The lane may be over, and nobody reads what comes back.
    let _ = peer.try_send(&frame.to_bytes());
    let _ = peer.try_recv(&mut vec![0; 64 << 10]);
}

fn random_request(client: &Client, random: &mut Random, step: u64) {
    let id = |random: &mut Random, known: u64| match random.below(60) {
        0 => HANDLE_BASE | random.below(30),
        1 => 0,
        _ => known,
    };
    let mem = wire::MemHandle(id(random, BUFFER.0));
    let queue = wire::CommandQueueHandle(id(random, QUEUE.0));
    let fresh = HANDLE_BASE | (1000 + step - u64::from(random.below(10) == 0));
    let waits = [wire::EventHandle(id(random, GATE.0))];
    let waiting = random.below(4) == 0;
    let event_wait_list = waiting.then_some(List::Values(&waits[..]));
    let num_events_in_wait_list = match random.below(60) {
        0 => random.edge() as u32,
        _ => waiting.into(),
    };
    let event = (random.below(3) == 0).then_some(wire::EventHandle(fresh));
    let size = match random.below(6) {
        0 => random.edge(),
        1 => 1 + random.below(2 * BUFFER_BYTES),
        _ => 1 + random.below(1000),
    };
    let offset = match random.below(8) {
        0 => random.edge(),
        _ => random.below(1000),
    };
    let shape = match random.below(10) {
        0 => 1,
        1 => 2 + random.below(3) as u32,
        _ => 0,
    };
    let place = match shape {
        1 => [offset, 0, 0, size, 1, 1, 0, 0],
        _ => linear(offset, size),
    };
    let data = vec![step as u8; size.min(100 << 10) as usize];
    let payload = 1 + random.below(20);
    match random.below(26) {
        0 => client.post(&buffer(wire::MemHandle(fresh), size)),
        1 => client.post(&wire::CreateBuffer {
            flags: random.next(),
            size: data.len() as u64,
            host_ptr: Some(&data),
            ..buffer(wire::MemHandle(fresh), 0)
        }),
        2..=4 => client.post(&wire::WriteInline {
            command_queue: queue,
            mem,
            shape,
            size: data.len() as u64,
            num_events_in_wait_list,
            event_wait_list,
            event,
            ..write_inline(&linear(offset, data.len() as u64), &data)
        }),
        5..=8 => client.post(&wire::WriteBulk {
            command_queue: queue,
            mem,
            shape,
            num_events_in_wait_list,
            event_wait_list,
            event,
            ..write_bulk(&place, size, payload)
        }),
        9..=11 => client.post(&wire::Read {
            command_queue: queue,
            mem,
            shape,
            place: List::Values(&place),
            size,
            payload,
            urgent: random.below(2) as u32,
            num_events_in_wait_list,
            event_wait_list,
            event,
        }),
        12 => client.post(&wire::EnqueueFillBuffer {
            command_queue: queue,
            buffer: mem,
            pattern: &data[..data.len().min(random.below(20) as usize)],
            pattern_size: data.len().min(4) as u64,
            offset,
            size,
            num_events_in_wait_list,
            event_wait_list,
            event,
        }),
        13 => client.post(&wire::EnqueueCopyBuffer {
            command_queue: queue,
            src_buffer: mem,
            dst_buffer: BUFFER,
            src_offset: offset,
            dst_offset: random.edge(),
            size,
            num_events_in_wait_list,
            event_wait_list,
            event,
        }),
        14 => client.post(&wire::SetArg {
            kernel: KERNEL,
            index: random.below(3) as u32,
            kind: random.below(7) as u32,
            size: 8,
            value_size: 8,
            value: &[mem.0, random.edge()][random.below(2) as usize].to_le_bytes(),
        }),
        15 => client.post(&wire::EnqueueNDRangeKernel {
            command_queue: queue,
            kernel: wire::KernelHandle(id(random, KERNEL.0)),
            work_dim: 1,
            global_work_offset: None,
            global_work_size: Some(List::Values(&[size.min(1000)])),
            local_work_size: None,
            num_events_in_wait_list,
            event_wait_list,
            event,
        }),
        16 => client.post(&wire::Finish {
            command_queue: queue,
        }),
        17 => client.post(&wire::Wait {
            num_events: num_events_in_wait_list,
            events: List::Values(&waits[..usize::from(waiting)]),
        }),
        18 => client.post(&wire::SetUserEventStatus {
            event: waits[0],
            execution_status: random.below(3) as i32 - 2,
        }),
        19 => client.post(&wire::CreateSubBuffer {
            buffer: mem,
            flags: 0,
            buffer_create_type: CL_BUFFER_CREATE_TYPE_REGION,
            buffer_create_info: &[offset.to_le_bytes(), size.to_le_bytes()].concat(),
            created: wire::MemHandle(fresh),
        }),
        20 => client.post(&wire::GetDeviceInfo {
            device: DEVICE,
            param_name: 0x1000 + random.below(0x80) as u32,
            param_value_size: size.min(1 << 16),
            want_param_value: true,
        }),
        21 if step.is_multiple_of(2) => client.post(&wire::SvmFree {
            context: CONTEXT,
            address: random.edge(),
        }),
        21 => client.post(&wire::SvmBuffer {
            context: CONTEXT,
            flags: random.edge(),
            address: random.edge(),
            size,
            created: wire::MemHandle(HANDLE_BASE | (5000 + step)),
        }),
        22 => client.post(&wire::ReleaseMemObject {
            memobj: wire::MemHandle(HANDLE_BASE | (1000 + random.below(step + 1))),
        }),
        23 => client.post(&wire::PeerSend {
            command_queue: queue,
            mem,
            offset: offset % 100,
            payload: 1 + random.below(4),
            num_events_in_wait_list,
            event_wait_list,
            event,
            ..peer_send(size, 1 + random.below(20) / 19)
        }),
        24 => client.post(&wire::PeerReceive {
            command_queue: queue,
            mem,
            offset: offset % 100,
            payload: 1 + random.below(4),
            num_events_in_wait_list,
            event_wait_list,
            event,
            ..peer_receive(size, 1 + random.below(20) / 19)
        }),
        _ if random.below(20) == 0 => {
            let call = wire::CALL_IDS[random.below(wire::CALL_IDS.len() as u64) as usize];
            let body: Vec<u8> = (0..random.below(80)).map(|_| random.next() as u8).collect();
            client.post_raw(call, &body)
        }
        _ => client.post(&wire::Ping { token: step }),
    };
}
