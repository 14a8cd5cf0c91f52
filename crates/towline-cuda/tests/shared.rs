//! Pinned memory with a server on this host: its device copies from and to it by itself. What counts are bytes, waits, and what travels.

#[path = "support/mod.rs"]
mod support;

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use support::{Machine, blank, pattern};
use towline_backend::cuda::*;
use towline_cuda::Driver;

/// Nothing here takes longer, on a busy machine either.
const PATIENCE: Duration = Duration::from_secs(20);

/// Pinned memory of the application.
fn pinned(machine: &Machine, size: usize) -> *mut u8 {
    let mut start: *mut c_void = null_mut();
    // SAFETY: the place is a local.
    let made = unsafe { machine.driver.cuMemHostAlloc(&raw mut start, size, 0) };
    assert_eq!(made, CUDA_SUCCESS);
    start.cast()
}

fn unpin(machine: &Machine, start: *mut u8) -> CUresult {
    // SAFETY: the memory came from the driver.
    unsafe { machine.driver.cuMemFreeHost(start.cast()) }
}

fn fill(start: *mut u8, bytes: &[u8]) {
    // SAFETY: the tests allocate as much as they fill.
    unsafe { start.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
}

fn look(start: *mut u8, size: usize) -> Vec<u8> {
    // SAFETY: as above.
    unsafe { std::slice::from_raw_parts(start, size) }.to_vec()
}

fn write(driver: &Driver, to: CUdeviceptr, from: *mut u8, size: usize, stream: CUstream) {
    // SAFETY: the memory is pinned, and lives until the stream has been there.
    let posted = unsafe { driver.cuMemcpyHtoDAsync_v2(to, from.cast(), size, stream) };
    assert_eq!(posted, CUDA_SUCCESS);
}

fn read(driver: &Driver, to: *mut u8, from: CUdeviceptr, size: usize, stream: CUstream) {
    // SAFETY: as above.
    let posted = unsafe { driver.cuMemcpyDtoHAsync_v2(to.cast(), from, size, stream) };
    assert_eq!(posted, CUDA_SUCCESS);
}

fn wait(driver: &Driver, stream: CUstream) {
    // SAFETY: the stream is live.
    assert_eq!(unsafe { driver.cuStreamSynchronize(stream) }, CUDA_SUCCESS);
}

/// Bytes that went over the lanes, both ways.
fn travelled(machine: &Machine) -> u64 {
    let (sent, received) = machine.sessions[0].meter().bytes();
    sent + received
}

/// Stops a stream until the sender says so.
struct Gate(Sender<()>, Arc<Stand>);

struct Stand {
    opened: Mutex<Receiver<()>>,
    reached: AtomicBool,
}

impl Gate {
    fn new() -> Self {
        let (sender, receiver) = channel();
        let stand = Stand {
            opened: Mutex::new(receiver),
            reached: AtomicBool::new(false),
        };
        Self(sender, Arc::new(stand))
    }

    fn close(&self, machine: &Machine, stream: CUstream) {
        unsafe extern "C" fn stand(gate: *mut c_void) {
            // SAFETY: what was made of the gate for this call.
            let gate = unsafe { Arc::from_raw(gate.cast::<Stand>()) };
            gate.reached.store(true, Ordering::Relaxed);
            let opened = gate.opened.lock().unwrap().recv_timeout(PATIENCE);
            opened.expect("the test opens it");
        }
        // The function's own: a stream whose server has gone may come to it when the test is over, or never.
        let passed = Arc::into_raw(Arc::clone(&self.1)).cast_mut().cast();
        // SAFETY: the function takes what it is given.
        let posted = unsafe { machine.driver.cuLaunchHostFunc(stream, Some(stand), passed) };
        assert_eq!(posted, CUDA_SUCCESS);
    }

    /// Returns when a stream stands there.
    fn reached(&self, machine: &Machine) {
        let start = Instant::now();
        while !self.1.reached.load(Ordering::Relaxed) {
            assert!(start.elapsed() < PATIENCE, "no stream comes to the gate");
            // Whoever waits reads what the server says.
            wait(&machine.driver, machine.stream());
        }
    }

    fn open(&self) {
        self.0.send(()).unwrap();
    }
}

#[test]
fn a_pinned_copy_over_shm_sends_no_payload() {
    let machine = Machine::on_this_host(&[1]);
    let size = 8 << 20;
    let ((from, to), allocated) =
        machine.costs(|_| (pinned(&machine, size), pinned(&machine, size)));
    assert_eq!(allocated, 2, "the driver's verdict on each");
    let bytes = pattern(size, 1);
    fill(from, &bytes);
    let (device, stream) = (machine.allocate(size), machine.stream());
    let before = travelled(&machine);
    let ((), waits) = machine.costs(|driver| {
        write(driver, device, from, size, stream);
        read(driver, to, device, size, stream);
        wait(driver, stream);
    });
    assert_eq!(waits, 1);
    assert!(look(to, size) == bytes);
    assert!(travelled(&machine) - before < 4096);
    let (_, freed) = machine.costs(|_| (unpin(&machine, from), unpin(&machine, to)));
    assert_eq!(freed, 0);
    machine.leave();
}

#[test]
fn pinned_copies_of_every_size_bring_every_byte() {
    let machine = Machine::on_this_host(&[1]);
    let most = (4 << 20) + 4099;
    let (from, to) = (pinned(&machine, most), pinned(&machine, most));
    let (device, stream) = (machine.allocate(most), machine.stream());
    for (seed, size) in [
        1,
        2,
        63,
        4095,
        4096,
        4097,
        65535,
        65537,
        131_072,
        131_073,
        4 << 20,
        most - 1,
    ]
    .into_iter()
    .enumerate()
    {
        let bytes = pattern(size, seed as u64 + 1);
        let (source, target) = (from.wrapping_add(1), to.wrapping_add(most - size));
        fill(source, &bytes);
        fill(to, &pattern(most, 99));
        write(&machine.driver, device, source, size, stream);
        read(&machine.driver, target, device, size, stream);
        wait(&machine.driver, stream);
        assert!(look(target, size) == bytes, "{size} bytes");
        assert!(
            look(to, most - size) == pattern(most, 99)[..most - size],
            "{size} bytes"
        );
        // The calls that wait for themselves.
        let bytes = pattern(size, seed as u64 + 50);
        fill(source, &bytes);
        // SAFETY: the memory is pinned.
        let written = unsafe { machine.driver.cuMemcpyHtoD_v2(device, source.cast(), size) };
        fill(source, &pattern(size, 98));
        // SAFETY: as above.
        let got = unsafe { machine.driver.cuMemcpyDtoH_v2(target.cast(), device, size) };
        assert_eq!((written, got), (CUDA_SUCCESS, CUDA_SUCCESS));
        assert!(look(target, size) == bytes, "{size} bytes");
    }
    machine.leave();
}

#[test]
fn pinned_memory_is_read_and_written_when_the_stream_comes_to_it() {
    let machine = Machine::on_this_host(&[1]);
    let size = 300_000;
    let (from, to) = (pinned(&machine, size), pinned(&machine, size));
    let (device, stream) = (machine.allocate(size), machine.stream());
    let gate = Gate::new();
    fill(from, &pattern(size, 1));
    gate.close(&machine, stream);
    write(&machine.driver, device, from, size, stream);
    read(&machine.driver, to, device, size, stream);
    // The copies stand behind the gate: this is what they find.
    let bytes = pattern(size, 2);
    fill(from, &bytes);
    fill(to, &pattern(size, 3));
    gate.open();
    wait(&machine.driver, stream);
    assert!(look(to, size) == bytes);
    machine.leave();
}

#[test]
fn a_small_copy_that_waits_costs_no_wait_unless_the_device_still_writes_its_source() {
    let machine = Machine::on_this_host(&[1]);
    let host = pinned(&machine, 4096);
    let bytes = pattern(4096, 1);
    let source = machine.filled(&bytes);
    let (first, second) = (machine.allocate(4096), machine.allocate(4096));
    let copy = |driver: &Driver, to| {
        // SAFETY: the memory is pinned.
        let copied = unsafe { driver.cuMemcpyHtoD_v2(to, host.cast(), 4096) };
        assert_eq!(copied, CUDA_SUCCESS);
    };
    fill(host, &pattern(4096, 2));
    let ((), waits) = machine.costs(|driver| copy(driver, first));
    assert_eq!(waits, 0);
    // On the default stream, behind the gate: the copy out must find what this one brings.
    let ((), waits) = machine.costs(|driver| {
        read(driver, host, source, 4096, null_mut());
        copy(driver, second);
    });
    assert_eq!(waits, 1);
    assert_eq!(machine.bytes(first, 4096), pattern(4096, 2));
    assert_eq!(machine.bytes(second, 4096), bytes);
    machine.leave();
}

#[test]
fn a_box_is_read_from_pinned_memory_behind_what_the_device_writes_there() {
    let machine = Machine::on_this_host(&[1]);
    let size = 64 * 1024;
    let host = pinned(&machine, size);
    let bytes = pattern(size, 1);
    let source = machine.filled(&bytes);
    let (target, stream) = (machine.allocate(size), machine.stream());
    fill(host, &pattern(size, 2));
    read(&machine.driver, host, source, size, stream);
    let mut copy = blank();
    (copy.WidthInBytes, copy.Height, copy.Depth) = (256, 128, 1);
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = host.cast();
    (copy.srcPitch, copy.srcHeight) = (512, 128);
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = target;
    (copy.dstPitch, copy.dstHeight) = (256, 128);
    // SAFETY: the box lies within the memory.
    let posted = unsafe { machine.driver.cuMemcpy3DAsync_v2(&raw const copy, stream) };
    assert_eq!(posted, CUDA_SUCCESS);
    wait(&machine.driver, stream);
    let rows: Vec<u8> = bytes
        .chunks(512)
        .flat_map(|row| &row[..256])
        .copied()
        .collect();
    assert!(machine.bytes(target, rows.len()) == rows);
    machine.leave();
}

#[test]
fn memory_that_is_freed_while_a_copy_needs_it_stays_with_the_server() {
    let machine = Machine::on_this_host(&[1]);
    let size = 1 << 20;
    let host = pinned(&machine, size);
    let bytes = pattern(size, 1);
    fill(host, &bytes);
    let (device, stream) = (machine.allocate(size), machine.stream());
    let gate = Gate::new();
    gate.close(&machine, stream);
    write(&machine.driver, device, host, size, stream);
    assert_eq!(unpin(&machine, host), CUDA_SUCCESS);
    gate.open();
    wait(&machine.driver, stream);
    assert!(machine.bytes(device, size) == bytes);
    assert_eq!(unpin(&machine, host), CUDA_ERROR_INVALID_VALUE);
    machine.leave();
}

#[test]
fn a_server_that_goes_in_mid_copy_leaves_the_memory_and_an_error() {
    let machine = Machine::on_this_host(&[1]);
    let size = 1 << 20;
    let host = pinned(&machine, size);
    let bytes = pattern(size, 1);
    fill(host, &bytes);
    let (device, stream) = (machine.allocate(size), machine.stream());
    let gate = Gate::new();
    gate.close(&machine, stream);
    write(&machine.driver, device, host, size, stream);
    machine.sessions[0].close();
    // SAFETY: the stream was made.
    let waited = unsafe { machine.driver.cuStreamSynchronize(stream) };
    assert_eq!(waited, CUDA_ERROR_DEVICE_UNAVAILABLE);
    assert!(look(host, size) == bytes);
    assert_eq!(unpin(&machine, host), CUDA_SUCCESS);
    gate.open();
}

#[test]
fn functions_that_wait_when_their_server_goes_are_not_called() {
    unsafe extern "C" fn call(called: *mut c_void) {
        // SAFETY: what was made of it for this call.
        unsafe { Arc::from_raw(called.cast::<AtomicBool>()) }.store(true, Ordering::Relaxed);
    }
    let machine = Machine::on_this_host(&[1, 1]);
    let (gate, streams) = (Gate::new(), [machine.stream(), machine.stream()]);
    gate.close(&machine, streams[0]);
    gate.reached(&machine);
    let called = Arc::new(AtomicBool::new(false));
    let passed = Arc::into_raw(Arc::clone(&called)).cast_mut().cast();
    // SAFETY: the function takes what it is given.
    let posted = unsafe {
        machine
            .driver
            .cuLaunchHostFunc(streams[1], Some(call), passed)
    };
    assert_eq!(posted, CUDA_SUCCESS);
    // Time for the server to come to the function, and for this thread to read so while it waits. Without it nothing is tried.
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(5));
        wait(&machine.driver, machine.stream());
    }
    machine.sessions[0].close();
    gate.open();
    // One thread calls all functions, one after another, those of streams of another server too.
    machine.enter(1);
    let stream = machine.stream();
    let last = Gate::new();
    last.close(&machine, stream);
    last.open();
    wait(&machine.driver, stream);
    assert!(!called.load(Ordering::Relaxed));
}

#[test]
fn every_server_of_this_host_copies_from_memory_that_one_of_them_shares() {
    let machine = Machine::on_this_host(&[1, 1]);
    let size = 500_000;
    let (from, to) = (pinned(&machine, size), pinned(&machine, size));
    let bytes = pattern(size, 1);
    fill(from, &bytes);
    machine.enter(1);
    let (device, stream) = (machine.allocate(size), machine.stream());
    write(&machine.driver, device, from, size, stream);
    read(&machine.driver, to, device, size, stream);
    wait(&machine.driver, stream);
    assert!(look(to, size) == bytes);
    machine.leave();
}

#[test]
fn much_memory_comes_and_goes_and_none_is_left_behind() {
    let machine = Machine::on_this_host(&[1]);
    let shared = || {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines()
            .filter(|line| line.contains("towline-pinned"))
            .count()
    };
    for round in 0..200 {
        let host = pinned(&machine, 4096 << (round % 4));
        assert_eq!(unpin(&machine, host), CUDA_SUCCESS);
    }
    machine.synchronise();
    // Client and worker are one process here; the worker lets go on a thread of its own.
    let until = Instant::now() + PATIENCE;
    while shared() > 8 {
        assert!(Instant::now() < until, "{} mappings are left", shared());
        std::thread::yield_now();
    }
    machine.leave();
}

/// Writes pageable memory and reads it back.
fn there_and_back(machine: &Machine, device: CUdeviceptr, bytes: &[u8], stream: CUstream) {
    let (size, mut back) = (bytes.len(), vec![0; bytes.len()]);
    let mut source = bytes.to_vec();
    // SAFETY: the bytes are readable.
    let written = unsafe {
        machine
            .driver
            .cuMemcpyHtoDAsync_v2(device, source.as_ptr().cast(), size, stream)
    };
    // Pageable memory may change as soon as the call returns.
    source.fill(0xee);
    // SAFETY: the room is writable.
    let read = unsafe {
        machine
            .driver
            .cuMemcpyDtoHAsync_v2(back.as_mut_ptr().cast(), device, size, stream)
    };
    assert_eq!((written, read), (CUDA_SUCCESS, CUDA_SUCCESS));
    assert!(back == bytes, "{size} bytes");
}

#[test]
fn pageable_copies_are_staged_once_and_send_no_payload() {
    let machine = Machine::on_this_host(&[1]);
    let size = 30 << 20;
    let (device, stream) = (machine.allocate(size), machine.stream());
    // Blocks come to be when they are first needed, each for a wait; there are 16 at most.
    let bytes = pattern(size, 1);
    let round = || {
        let before = travelled(&machine);
        let ((), waits) = machine.costs(|_| there_and_back(&machine, device, &bytes, stream));
        (waits, travelled(&machine) - before)
    };
    let settled = (0..17).map(|_| round()).find(|(waits, _)| *waits == 1);
    let (_, messages) = settled.expect("a round that needs no more blocks");
    assert!(messages < 16 << 10, "{messages} bytes went over the lanes");
    for (seed, size) in [
        65537,
        131_073,
        (4 << 20) - 1,
        4 << 20,
        (4 << 20) + 1,
        17_000_001,
    ]
    .into_iter()
    .enumerate()
    {
        there_and_back(&machine, device, &pattern(size, seed as u64 + 3), stream);
    }
    machine.leave();
}

#[test]
fn short_reads_of_pageable_memory_wait_once_and_come_through_a_block_when_there_were_some() {
    let machine = Machine::on_this_host(&[1]);
    let (device, stream) = (machine.allocate(1 << 20), machine.stream());
    let sizes = [16_385, 65_536, 100_001, 512 << 10];
    for (seed, size) in (0..24).zip(sizes.into_iter().cycle()) {
        let bytes = pattern(size, seed);
        // With their requests: no block is made for these.
        for (address, part) in (device..).step_by(4096).zip(bytes.chunks(4096)) {
            let (part, length) = (part.as_ptr().cast(), part.len());
            // SAFETY: the bytes are readable.
            let written = unsafe { machine.driver.cuMemcpyHtoD_v2(address, part, length) };
            assert_eq!(written, CUDA_SUCCESS);
        }
        machine.synchronise();
        let mut back = vec![0; size];
        let before = travelled(&machine);
        let (read, waits) = machine.costs(|driver| {
            // SAFETY: the room is writable.
            unsafe { driver.cuMemcpyDtoHAsync_v2(back.as_mut_ptr().cast(), device, size, stream) }
        });
        assert_eq!(read, CUDA_SUCCESS);
        assert!(back == bytes, "{size} bytes");
        // The first that is too long for the command lane has the block made.
        let expected = if seed == 3 { 2 } else { 1 };
        assert_eq!(waits, expected, "read {seed}, {size} bytes");
        let went = travelled(&machine) - before;
        assert!(seed < 8 || went < 1 << 10, "read {seed}: {went} bytes went");
    }
    machine.leave();
}

#[test]
fn a_staged_copy_that_the_device_refuses_fails_once() {
    let machine = Machine::on_this_host(&[1]);
    let mut bytes = pattern(20 << 20, 1);
    let nowhere = 0x1000;
    let sizes = [100_000; 12].into_iter().chain([1 << 20, 20 << 20]);
    for size in sizes {
        // SAFETY: the room is writable; the address is the device's to refuse.
        let read = unsafe {
            machine
                .driver
                .cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), nowhere, size)
        };
        assert_ne!(read, CUDA_SUCCESS, "{size} bytes");
        assert!(bytes == pattern(20 << 20, 1));
    }
    machine.leave();
}

#[test]
fn streams_that_stand_still_keep_all_blocks_and_no_other_from_going_on() {
    let machine = Machine::on_this_host(&[1]);
    let size = 20 << 20;
    let device = machine.allocate(size);
    let gates: Vec<(Gate, CUdeviceptr, usize)> = (0..4)
        .map(|_| {
            let (gate, stream) = (Gate::new(), machine.stream());
            gate.close(&machine, stream);
            (gate, machine.allocate(size), stream.expose_provenance())
        })
        .collect();
    let free = machine.stream();
    let (driver, context) = (&machine.driver, machine.contexts[0].expose_provenance());
    std::thread::scope(|scope| {
        for (_, target, stream) in &gates {
            let (target, stream) = (*target, *stream);
            scope.spawn(move || {
                let context = std::ptr::with_exposed_provenance_mut(context);
                // SAFETY: the context was made.
                let set = unsafe { driver.cuCtxSetCurrent(context) };
                assert_eq!(set, CUDA_SUCCESS);
                let bytes = pattern(size, target);
                let stream = std::ptr::with_exposed_provenance_mut(stream);
                // SAFETY: the bytes are readable.
                let written = unsafe {
                    driver.cuMemcpyHtoDAsync_v2(target, bytes.as_ptr().cast(), size, stream)
                };
                assert_eq!(written, CUDA_SUCCESS);
            });
        }
        // Both orders must work; this makes the one that is at issue likely.
        std::thread::sleep(Duration::from_millis(300));
        there_and_back(&machine, device, &pattern(size, 77), free);
        gates.iter().for_each(|(gate, ..)| gate.open());
    });
    machine.synchronise();
    for (_, target, _) in &gates {
        assert!(machine.bytes(*target, size) == pattern(size, *target));
    }
    machine.leave();
}

#[test]
fn elsewhere_pinned_memory_is_the_applications_alone_and_costs_no_wait() {
    let machine = Machine::new();
    let (host, waits) = machine.costs(|_| pinned(&machine, 1 << 20));
    assert_eq!(waits, 0);
    assert_eq!(unpin(&machine, host), CUDA_SUCCESS);
    machine.leave();
}

#[test]
fn more_requests_than_the_ring_holds_arrive_in_order_from_two_threads() {
    /// Bytes of each thread, which are written again and again.
    const BYTES: usize = 500;
    const ROUNDS: u8 = 90;
    /// What takes the device longer than a request takes the client.
    const LARGE: usize = 1 << 20;
    let machine = Machine::on_this_host(&[1]);
    let large = machine.allocate(LARGE);
    let starts = [machine.allocate(BYTES), machine.allocate(BYTES)];
    let streams = starts.map(|_| machine.stream());
    let ((), waits) = machine.costs(|driver| {
        std::thread::scope(|scope| {
            for (start, stream) in starts.into_iter().zip(streams) {
                let [context, stream] =
                    [machine.contexts[0], stream.cast()].map(|object| object.expose_provenance());
                scope.spawn(move || {
                    let [context, stream] =
                        [context, stream].map(std::ptr::with_exposed_provenance_mut::<c_void>);
                    // SAFETY: the context lives.
                    let entered = unsafe { driver.cuCtxSetCurrent(context.cast()) };
                    assert_eq!(entered, CUDA_SUCCESS);
                    let fill = |at: CUdeviceptr, value: u8, size: usize| {
                        // SAFETY: no host memory.
                        let posted =
                            unsafe { driver.cuMemsetD8Async(at, value, size, stream.cast()) };
                        assert_eq!(posted, CUDA_SUCCESS);
                    };
                    for round in 1..=ROUNDS {
                        fill(large, round, LARGE);
                        for at in 0..BYTES {
                            fill(start + at as u64, round.wrapping_add(at as u8), 1);
                        }
                    }
                });
            }
        });
    });
    assert_eq!(waits, 0);
    let expected: Vec<u8> = (0..BYTES).map(|at| ROUNDS.wrapping_add(at as u8)).collect();
    machine.synchronise();
    let (sent, _) = machine.sessions[0].meter().bytes();
    assert!(sent > 3 << 20, "{sent} bytes would fit the ring");
    for start in starts {
        assert!(machine.bytes(start, BYTES) == expected);
    }
}
