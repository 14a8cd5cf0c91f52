//! Large transfers through a worker whose device has memory of its own: pinned slots, windows, grants.

use std::sync::Arc;

use towline_backend::opencl::*;
use towline_client::opencl::Remote;
use towline_test::pair::Pair;

const NONE: *mut std::ffi::c_void = std::ptr::null_mut();

struct Session {
    pair: Pair,
    context: cl_context,
    queue: cl_command_queue,
    buffer: cl_mem,
}

/// A session on the host-memory device, which says that its memory is its own.
fn session(properties: cl_command_queue_properties, size: usize) -> Session {
    session_on(Arc::new(NullOpenCl::discrete(1)), properties, size)
}

fn session_on(
    api: Arc<dyn OpenClApi>,
    properties: cl_command_queue_properties,
    size: usize,
) -> Session {
    let pair = Pair::new(api);
    let cl = &*pair.remote;
    let device = cl.platforms()[0].1[0];
    let mut status = CL_SUCCESS;
    // SAFETY: one live device; every other pointer is NULL or a local.
    let context = unsafe {
        cl.clCreateContext(
            std::ptr::null(),
            1,
            &raw const device,
            None,
            NONE,
            &raw mut status,
        )
    };
    // SAFETY: the context was just made.
    let queue = unsafe { cl.clCreateCommandQueue(context, device, properties, &raw mut status) };
    let flags = CL_MEM_READ_WRITE as cl_mem_flags;
    // SAFETY: as above; no host pointer.
    let buffer = unsafe { cl.clCreateBuffer(context, flags, size, NONE, &raw mut status) };
    Session {
        pair,
        context,
        queue,
        buffer,
    }
}

fn write(cl: &Remote, session: &Session, blocking: u32, offset: usize, data: &[u8]) {
    let (queue, buffer, none) = (session.queue, session.buffer, std::ptr::null());
    let source = data.as_ptr().cast();
    // SAFETY: the data outlives the session's next finish.
    let status = unsafe {
        cl.clEnqueueWriteBuffer(
            queue,
            buffer,
            blocking,
            offset,
            data.len(),
            source,
            0,
            none,
            std::ptr::null_mut(),
        )
    };
    assert_eq!(status, CL_SUCCESS);
}

fn read(cl: &Remote, session: &Session, blocking: u32, offset: usize, data: &mut [u8]) {
    let (queue, buffer, none) = (session.queue, session.buffer, std::ptr::null());
    let target = data.as_mut_ptr().cast();
    // SAFETY: the data outlives the session's next finish.
    let status = unsafe {
        cl.clEnqueueReadBuffer(
            queue,
            buffer,
            blocking,
            offset,
            data.len(),
            target,
            0,
            none,
            std::ptr::null_mut(),
        )
    };
    assert_eq!(status, CL_SUCCESS);
}

fn finish(cl: &Remote, session: &Session) {
    // SAFETY: the queue is live.
    assert_eq!(unsafe { cl.clFinish(session.queue) }, CL_SUCCESS);
}

fn pattern(size: usize, seed: u32) -> Vec<u8> {
    (0..size as u32)
        .map(|at| (at.wrapping_mul(2_654_435_761).wrapping_add(seed) >> 13) as u8)
        .collect()
}

#[test]
fn more_windows_than_slots_arrive_in_order_both_ways() {
    let size = 40 << 20;
    let session = session(0, size);
    let cl = &*session.pair.remote;
    let data = pattern(size, 1);
    // Both together take more than the ring and the spare slots hold.
    let mut back = [vec![0; size], vec![0; size]];
    write(cl, &session, 1, 0, &data);
    for back in &mut back {
        read(cl, &session, 0, 0, back);
    }
    finish(cl, &session);
    assert!(back.iter().all(|back| *back == data));
}

#[test]
fn reads_and_writes_share_the_slots_without_mixing_their_bytes() {
    let size = 9 << 20;
    let session = session(0, size);
    let cl = &*session.pair.remote;
    let rounds: Vec<Vec<u8>> = (0..6).map(|round| pattern(size, round)).collect();
    let mut back = vec![vec![0; size]; rounds.len()];
    for (data, back) in rounds.iter().zip(&mut back) {
        write(cl, &session, 0, 0, data);
        read(cl, &session, 0, 0, back);
    }
    finish(cl, &session);
    assert!(back == rounds);
}

/// NVIDIA's driver becomes slow where a thousand commands wait.
#[test]
fn many_transfers_at_once_are_few_commands() {
    const WRITES: u64 = 12;
    let size = 48 << 20;
    let device = Arc::new(NullOpenCl::discrete(1));
    let session = session_on(Arc::clone(&device) as Arc<dyn OpenClApi>, 0, size);
    let cl = &*session.pair.remote;
    let data = [pattern(size, 1), pattern(size, 2)];
    let mut back = [vec![0; size], vec![0; size]];
    let mut status = CL_SUCCESS;
    // SAFETY: the context is live.
    let held = unsafe { cl.clCreateUserEvent(session.context, &raw mut status) };
    // SAFETY: queue and event are live.
    let status = unsafe {
        cl.clEnqueueBarrierWithWaitList(session.queue, 1, &raw const held, std::ptr::null_mut())
    };
    assert_eq!(status, CL_SUCCESS);
    for round in 0..WRITES as usize {
        write(cl, &session, 0, 0, &data[round % 2]);
        if round + 2 >= WRITES as usize {
            read(cl, &session, 0, 0, &mut back[round % 2]);
        }
    }
    // SAFETY: the event is live.
    let status = unsafe { cl.clSetUserEventStatus(held, CL_COMPLETE) };
    assert_eq!(status, CL_SUCCESS);
    finish(cl, &session);
    assert!(back == data);
    let commands = device.calls("clEnqueueWriteBuffer");
    assert!(
        (WRITES..220).contains(&commands),
        "{commands} commands for {WRITES} writes of 48 MiB"
    );
    let commands = device.calls("clEnqueueReadBuffer");
    assert!(commands < 20, "{commands} commands for two such reads");
}

#[test]
fn a_queue_without_order_takes_large_transfers_too() {
    let size = 5 << 20;
    let session = session(
        CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE as cl_command_queue_properties,
        size,
    );
    let cl = &*session.pair.remote;
    let data = pattern(size, 3);
    let mut back = vec![0; size];
    write(cl, &session, 0, 0, &data);
    finish(cl, &session);
    read(cl, &session, 0, 0, &mut back);
    finish(cl, &session);
    assert!(back == data);
}

#[test]
fn parts_of_a_buffer_go_where_they_belong() {
    let session = session(0, 8 << 20);
    let cl = &*session.pair.remote;
    let (all, part) = (pattern(8 << 20, 4), pattern(3 << 20, 5));
    write(cl, &session, 1, 0, &all);
    write(cl, &session, 1, 12_345, &part);
    let mut back = vec![0; 8 << 20];
    read(cl, &session, 1, 0, &mut back);
    assert!(back[..12_345] == all[..12_345]);
    assert!(back[12_345..12_345 + part.len()] == part[..]);
    assert!(back[12_345 + part.len()..] == all[12_345 + part.len()..]);
}

/// A box of 1,000 by 2,100 by 3 bytes from (17, 5, 1) on in a buffer of 2,048 by 2,200 by 4.
const BOX: [usize; 3] = [1000, 2100, 3];
const AT: [usize; 3] = [17, 5, 1];
const PITCHES: [usize; 2] = [2048, 2048 * 2200];

fn write_box(cl: &Remote, session: &Session, data: &[u8]) {
    // SAFETY: the data is the box's, packed, and outlives the call.
    let status = unsafe {
        cl.clEnqueueWriteBufferRect(
            session.queue,
            session.buffer,
            1,
            AT.as_ptr(),
            [0; 3].as_ptr(),
            BOX.as_ptr(),
            PITCHES[0],
            PITCHES[1],
            0,
            0,
            data.as_ptr().cast(),
            0,
            std::ptr::null(),
            std::ptr::null_mut(),
        )
    };
    assert_eq!(status, CL_SUCCESS);
}

fn read_box(cl: &Remote, session: &Session, data: &mut [u8]) {
    // SAFETY: the data is the box's, packed, and outlives the call.
    let status = unsafe {
        cl.clEnqueueReadBufferRect(
            session.queue,
            session.buffer,
            1,
            AT.as_ptr(),
            [0; 3].as_ptr(),
            BOX.as_ptr(),
            PITCHES[0],
            PITCHES[1],
            0,
            0,
            data.as_mut_ptr().cast(),
            0,
            std::ptr::null(),
            std::ptr::null_mut(),
        )
    };
    assert_eq!(status, CL_SUCCESS);
}

#[test]
fn boxes_larger_than_a_slot_go_where_they_belong() {
    let size = PITCHES[1] * 4;
    let session = session(0, size);
    let cl = &*session.pair.remote;
    let (mut all, inside) = (pattern(size, 6), pattern(BOX.iter().product(), 7));
    write(cl, &session, 1, 0, &all);
    write_box(cl, &session, &inside);
    let mut box_back = vec![0; inside.len()];
    read_box(cl, &session, &mut box_back);
    assert!(box_back == inside);
    for (row, bytes) in inside.chunks(BOX[0]).enumerate() {
        let (z, y) = (AT[2] + row / BOX[1], AT[1] + row % BOX[1]);
        let start = z * PITCHES[1] + y * PITCHES[0] + AT[0];
        all[start..start + BOX[0]].copy_from_slice(bytes);
    }
    let mut back = vec![0; size];
    read(cl, &session, 1, 0, &mut back);
    assert!(back == all);
}

#[test]
fn a_session_that_ends_in_the_middle_of_a_transfer_leaves_nothing() {
    let null = Arc::new(NullOpenCl::discrete(1));
    let pair = Pair::new(Arc::clone(&null) as Arc<dyn OpenClApi>);
    let cl = &*pair.remote;
    let device = cl.platforms()[0].1[0];
    let mut status = CL_SUCCESS;
    // SAFETY: as in `session`.
    let context = unsafe {
        cl.clCreateContext(
            std::ptr::null(),
            1,
            &raw const device,
            None,
            NONE,
            &raw mut status,
        )
    };
    // SAFETY: as in `session`.
    let queue = unsafe { cl.clCreateCommandQueue(context, device, 0, &raw mut status) };
    // SAFETY: as in `session`.
    let buffer = unsafe {
        cl.clCreateBuffer(
            context,
            CL_MEM_READ_WRITE as cl_mem_flags,
            32 << 20,
            NONE,
            &raw mut status,
        )
    };
    let data = pattern(32 << 20, 6);
    let source = data.as_ptr().cast();
    // SAFETY: the data outlives the session.
    status = unsafe {
        cl.clEnqueueWriteBuffer(
            queue,
            buffer,
            0,
            0,
            data.len(),
            source,
            0,
            std::ptr::null(),
            std::ptr::null_mut(),
        )
    };
    assert_eq!(status, CL_SUCCESS);
    // The link is cut before all windows went over; how the worker names the end does not matter here.
    let _ = pair.finish();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while null.live_objects() > 0 && std::time::Instant::now() < deadline {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert_eq!(null.live_objects(), 0);
}

#[test]
fn a_blocking_write_that_the_vendor_refuses_returns_with_an_error() {
    let session = session(0, 1 << 20);
    let data = vec![1_u8; 1 << 20];
    let (queue, buffer, none) = (session.queue, session.buffer, std::ptr::null());
    // SAFETY: the data outlives the call, which blocks.
    let status = unsafe {
        session.pair.remote.clEnqueueWriteBuffer(
            queue,
            buffer,
            CL_TRUE,
            // Half of it lies behind the buffer, which only the device judges here.
            512 << 10,
            data.len(),
            data.as_ptr().cast(),
            0,
            none,
            std::ptr::null_mut(),
        )
    };
    assert!(status < 0);
}

#[test]
fn a_blocking_write_that_cannot_be_returns_with_an_error() {
    // More than the device allocates: the buffer is none, and only the server knows.
    let session = session(0, 65 << 20);
    let data = vec![1_u8; 1 << 20];
    let (queue, buffer, none) = (session.queue, session.buffer, std::ptr::null());
    // SAFETY: the data outlives the call, which blocks.
    let status = unsafe {
        session.pair.remote.clEnqueueWriteBuffer(
            queue,
            buffer,
            CL_TRUE,
            0,
            data.len(),
            data.as_ptr().cast(),
            0,
            none,
            std::ptr::null_mut(),
        )
    };
    assert_eq!(status, CL_INVALID_BUFFER_SIZE);
}
