//! Copies to the device that have returned: whatever is next, on any stream, finds the data there.
#![allow(
    clippy::multiple_unsafe_ops_per_block,
    reason = "calls of the C interface stand side by side"
)]

#[macro_use]
mod support;

use std::ffi::c_void;
use std::ptr::null_mut;
use std::time::Duration;

use support::{GRANULARITY, Machine, pattern};
use towline_backend::cuda::*;

on_every_device! {
    a_copy_that_has_returned_is_there_for_streams_that_keep_no_order
    a_rectangle_that_has_returned_is_there_for_streams_that_keep_no_order
    wait_behind_copies_of_taken_bytes_is_free
    mapping_ends_behind_its_returned_copies
}

/// What travels with the request, and what does not.
const SIZES: [usize; 2] = [64, 300_000];
const ROUNDS: u64 = 40;

fn write(machine: &Machine, address: CUdeviceptr, bytes: &[u8]) {
    let from = bytes.as_ptr().cast();
    // SAFETY: the bytes are readable.
    let written = unsafe { machine.driver.cuMemcpyHtoD_v2(address, from, bytes.len()) };
    assert_eq!(written, CUDA_SUCCESS);
}

/// What a stream finds there.
fn found(machine: &Machine, address: CUdeviceptr, size: usize, stream: CUstream) -> Vec<u8> {
    let mut bytes = vec![0; size];
    let to = bytes.as_mut_ptr().cast();
    // SAFETY: the room is writable, and read once the stream has been there.
    let read = unsafe {
        let read = machine
            .driver
            .cuMemcpyDtoHAsync_v2(to, address, size, stream);
        read | machine.driver.cuStreamSynchronize(stream)
    };
    assert_eq!(read, CUDA_SUCCESS);
    bytes
}

fn a_copy_that_has_returned_is_there_for_streams_that_keep_no_order(machine: Machine) {
    for size in SIZES {
        let memory = machine.filled(&pattern(size, 0));
        let early = machine.stream();
        for round in 1..ROUNDS {
            let bytes = pattern(size, round);
            let (_, waits) = machine.costs(|_| write(&machine, memory, &bytes));
            // What does not travel with the request waits for its own bytes to leave.
            assert_eq!(
                waits,
                u64::from(size > SIZES[0]),
                "nobody waits for the device"
            );
            // One that was there before the copy, and one that was not.
            let stream = match round % 4 {
                0 => machine.stream(),
                _ => early,
            };
            assert!(
                found(&machine, memory, size, stream) == bytes,
                "{size} bytes, round {round}"
            );
        }
    }
    machine.end();
}

fn a_rectangle_that_has_returned_is_there_for_streams_that_keep_no_order(machine: Machine) {
    let (width, height) = (500, 300);
    let memory = machine.filled(&pattern(width * height, 0));
    let stream = machine.stream();
    for round in 1..ROUNDS {
        let bytes = pattern(width * height, round);
        let copy = CUDA_MEMCPY2D {
            srcXInBytes: 0,
            srcY: 0,
            srcMemoryType: CU_MEMORYTYPE_HOST,
            srcHost: bytes.as_ptr().cast(),
            srcDevice: 0,
            srcArray: null_mut(),
            srcPitch: width,
            dstXInBytes: 0,
            dstY: 0,
            dstMemoryType: CU_MEMORYTYPE_DEVICE,
            dstHost: null_mut(),
            dstDevice: memory,
            dstArray: null_mut(),
            dstPitch: width,
            WidthInBytes: width,
            Height: height,
        };
        // SAFETY: the source holds the rectangle.
        let copied = unsafe { machine.driver.cuMemcpy2D_v2(&raw const copy) };
        assert_eq!(copied, CUDA_SUCCESS);
        let there = found(&machine, memory, width * height, stream);
        assert!(there == bytes, "round {round}");
    }
    machine.end();
}

/// Copies to a device whose calls have returned are there for another device's context.
fn copies_are_there_for_another_context(machine: &Machine) {
    for size in SIZES {
        machine.enter(0);
        let memory = machine.filled(&pattern(size, 0));
        machine.enter(1);
        let streams = [null_mut(), machine.stream()];
        for round in 1..ROUNDS {
            let bytes = pattern(size, round);
            machine.enter(0);
            let (_, waits) = machine.costs(|_| write(machine, memory, &bytes));
            assert_eq!(waits, u64::from(size > SIZES[0]), "for its own bytes");
            machine.enter(1);
            let stream = streams[(round % 2) as usize];
            let there = found(machine, memory, size, stream);
            assert!(there == bytes, "{size} bytes, round {round}");
        }
    }
}

#[test]
fn returned_copy_is_there_for_another_device() {
    let machine = Machine::with(&[2]);
    copies_are_there_for_another_context(&machine);
    machine.end();
}

#[test]
fn returned_copy_is_there_for_another_server() {
    let machine = Machine::with(&[1, 1]);
    copies_are_there_for_another_context(&machine);
    machine.end();
}

#[test]
fn returned_copy_is_there_for_later_contexts() {
    let machine = Machine::with(&[2]);
    let (size, device) = (300_000, 1);
    // SAFETY: no pointers.
    let released = unsafe { machine.driver.cuDevicePrimaryCtxRelease_v2(device) };
    assert_eq!(released, CUDA_SUCCESS);
    for round in 1..ROUNDS {
        let memory = machine.filled(&pattern(size, 0));
        let bytes = pattern(size, round);
        write(&machine, memory, &bytes);
        let mut context = null_mut();
        // SAFETY: the context is a local.
        let there = unsafe {
            let made = machine.driver.cuCtxCreate_v2(&raw mut context, 0, device);
            assert_eq!(made, CUDA_SUCCESS);
            let there = found(&machine, memory, size, null_mut());
            assert_eq!(machine.driver.cuCtxDestroy_v2(context), CUDA_SUCCESS);
            there
        };
        assert!(there == bytes, "round {round}");
        machine.enter(0);
    }
    machine.end();
}

#[test]
fn stream_ends_behind_its_returned_copies() {
    let machine = Machine::new();
    let size = 300_000;
    let memory = machine.filled(&pattern(size, 0));
    let other = machine.stream();
    for round in 1..ROUNDS {
        let (bytes, stream) = (pattern(size, round), machine.stream());
        let from = bytes.as_ptr().cast();
        // SAFETY: the bytes are readable, and the stream is live.
        let ended = unsafe {
            let driver = &machine.driver;
            driver.cuMemcpyHtoDAsync_v2(memory, from, size, stream)
                | driver.cuStreamSynchronize(stream)
                | driver.cuStreamDestroy_v2(stream)
        };
        assert_eq!(ended, CUDA_SUCCESS);
        let there = found(&machine, memory, size, other);
        assert!(there == bytes, "round {round}");
    }
    machine.end();
}

fn wait_behind_copies_of_taken_bytes_is_free(machine: Machine) {
    let (driver, memory) = (&machine.driver, machine.filled(&[0; 64]));
    let (stream, other) = (machine.stream(), machine.stream());
    let copy = |bytes: &[u8], stream| {
        let from = bytes.as_ptr().cast();
        // SAFETY: the bytes are readable.
        let copied = unsafe { driver.cuMemcpyHtoDAsync_v2(memory, from, bytes.len(), stream) };
        assert_eq!(copied, CUDA_SUCCESS);
    };
    // SAFETY: the stream is live.
    let wait = |stream| assert_eq!(unsafe { driver.cuStreamSynchronize(stream) }, CUDA_SUCCESS);
    for round in 1..ROUNDS {
        let bytes = pattern(64, round);
        let ((), waits) = machine.costs(|_| {
            copy(&bytes[..32], stream);
            copy(&bytes, stream);
            wait(stream);
        });
        assert_eq!(waits, 0, "round {round}");
        // SAFETY: the stream is live.
        assert_eq!(unsafe { driver.cuStreamQuery(stream) }, CUDA_SUCCESS);
        assert!(found(&machine, memory, 64, other) == bytes, "round {round}");
    }
    // Other work is waited for, on this stream and on those that the default stream stands behind.
    // SAFETY: no host memory.
    let filled = unsafe { driver.cuMemsetD8Async(memory, 1, 8, stream) };
    assert_eq!(filled, CUDA_SUCCESS);
    let ((), waits) = machine.costs(|_| {
        copy(&[2; 8], stream);
        wait(stream);
    });
    assert_eq!(waits, 1);
    let mut blocking = null_mut();
    // SAFETY: the stream is a local.
    let made = unsafe { driver.cuStreamCreate(&raw mut blocking, CU_STREAM_DEFAULT) };
    assert_eq!(made, CUDA_SUCCESS);
    // SAFETY: no host memory.
    let filled = unsafe { driver.cuMemsetD8Async(memory, 1, 8, blocking) };
    assert_eq!(filled, CUDA_SUCCESS);
    let ((), waits) = machine.costs(|_| {
        copy(&[3; 8], null_mut());
        wait(null_mut());
    });
    assert_eq!(waits, 1);
    // SAFETY: no host memory.
    let filled = unsafe { driver.cuMemsetD8Async(memory, 1, 8, null_mut()) };
    assert_eq!(filled, CUDA_SUCCESS);
    let ((), waits) = machine.costs(|_| {
        copy(&[4; 8], blocking);
        wait(blocking);
    });
    assert_eq!(waits, 1);
    assert_eq!(machine.bytes(memory, 8), [4; 8]);
    // An event that was recorded there has passed when the wait is over.
    let (mut event, mut time) = (null_mut(), 0.0);
    // SAFETY: event and time are locals.
    let timed = unsafe {
        assert_eq!(driver.cuEventCreate(&raw mut event, 0), CUDA_SUCCESS);
        assert_eq!(driver.cuEventRecord(event, stream), CUDA_SUCCESS);
        copy(&[5; 8], stream);
        wait(stream);
        driver.cuEventElapsedTime_v2(&raw mut time, event, event)
    };
    assert_eq!(timed, CUDA_SUCCESS);
    machine.end();
}

unsafe extern "C" fn rest(_data: *mut c_void) {
    std::thread::sleep(Duration::from_millis(30));
}

/// How memory is taken away.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Taken {
    Unmapped,
    WithWorkBehind,
    Closed,
}

fn mapping_ends_behind_its_returned_copies(machine: Machine) {
    let (driver, other) = (&machine.driver, machine.filled(&[0; 64]));
    for taken in [Taken::Unmapped, Taken::WithWorkBehind, Taken::Closed] {
        for size in SIZES {
            let memory = machine.physical(CU_MEM_HANDLE_TYPE_NONE);
            let address = machine.mapped(memory);
            // SAFETY: the function takes nothing.
            let held = unsafe { driver.cuLaunchHostFunc(null_mut(), Some(rest), null_mut()) };
            assert_eq!(held, CUDA_SUCCESS);
            write(&machine, address, &pattern(size, 1));
            if taken == Taken::WithWorkBehind {
                // SAFETY: no host memory.
                let behind = unsafe { driver.cuMemsetD8Async(other, 1, 64, null_mut()) };
                assert_eq!(behind, CUDA_SUCCESS);
            }
            let ended = match taken {
                Taken::Closed => machine.set_access(address, CU_MEM_ACCESS_FLAGS_PROT_NONE),
                // SAFETY: as far as the application can see, nothing uses the memory.
                _ => unsafe { driver.cuMemUnmap(address, GRANULARITY) },
            };
            assert_eq!(ended, CUDA_SUCCESS);
            // SAFETY: no pointers.
            let waited = unsafe { driver.cuCtxSynchronize() };
            assert_eq!(waited, CUDA_SUCCESS, "{size} bytes, {taken:?}");
            if taken == Taken::Closed {
                // SAFETY: nothing uses the memory.
                let unmapped = unsafe { driver.cuMemUnmap(address, GRANULARITY) };
                assert_eq!(unmapped, CUDA_SUCCESS);
            }
            // SAFETY: nothing is mapped any more.
            let released = unsafe { driver.cuMemRelease(memory) };
            assert_eq!(released, CUDA_SUCCESS);
        }
    }
    machine.end();
}

#[test]
fn copies_wait_for_the_device_once_other_programs_have_the_memory() {
    let (machines, _) = Machine::neighbours(2);
    let [ours, theirs] = &machines[..] else {
        panic!("there are two");
    };
    ours.enter(0);
    let bytes = pattern(300_000, 1);
    let memory = ours.allocate(bytes.len());
    write(ours, memory, &bytes);
    let mut handle = CUipcMemHandle { reserved: [0; 64] };
    // SAFETY: the handle is a local.
    let (named, waits) =
        ours.costs(|driver| unsafe { driver.cuIpcGetMemHandle(&raw mut handle, memory) });
    assert_eq!(
        (named, waits),
        (CUDA_SUCCESS, 2),
        "for the copy, and for the handle"
    );
    theirs.enter(0);
    let mut opened = 0;
    // SAFETY: the address is a local.
    let open = unsafe {
        let flags = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS;
        theirs
            .driver
            .cuIpcOpenMemHandle_v2(&raw mut opened, handle, flags)
    };
    assert_eq!(open, CUDA_SUCCESS);
    assert!(theirs.bytes(opened, bytes.len()) == bytes);
    for round in 2..10 {
        let bytes = pattern(300_000, round);
        ours.enter(0);
        let (_, waits) = ours.costs(|_| write(ours, memory, &bytes));
        assert_eq!(waits, 2, "for the bytes, and for the device");
        theirs.enter(0);
        assert!(theirs.bytes(opened, bytes.len()) == bytes, "round {round}");
    }
    // SAFETY: no pointers.
    let closed = unsafe { theirs.driver.cuIpcCloseMemHandle(opened) };
    assert_eq!(closed, CUDA_SUCCESS);
    ours.enter(0);
    // SAFETY: no pointers.
    assert_eq!(unsafe { ours.driver.cuMemFree_v2(memory) }, CUDA_SUCCESS);
    Machine::leave_all(machines);
}
