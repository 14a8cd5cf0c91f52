//! Devices of one server and of several: what they can do with each other's memory, and copies between them.

mod support;

use std::ptr::null_mut;

use support::{Machine, blank, pattern};
use towline_backend::cuda::*;

#[test]
fn devices_of_a_server_reach_each_other_as_its_driver_says_and_others_do_not() {
    let machine = Machine::with(&[2, 1]);
    let reach = |from, to| {
        let mut answer = 7;
        // SAFETY: the answer is a local.
        let (status, waits) = machine
            .costs(|driver| unsafe { driver.cuDeviceCanAccessPeer(&raw mut answer, from, to) });
        assert_eq!(status, CUDA_SUCCESS);
        (answer, waits)
    };
    assert_eq!(reach(0, 1), (1, 1));
    assert_eq!(reach(0, 1), (1, 0));
    assert_eq!(reach(1, 1), (0, 0));
    assert_eq!(reach(0, 2), (0, 0));
    let attribute = |which, from, to| {
        let mut answer = 7;
        // SAFETY: the answer is a local.
        let status = unsafe {
            machine
                .driver
                .cuDeviceGetP2PAttribute(&raw mut answer, which, from, to)
        };
        (status, answer)
    };
    let rank = CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK;
    assert_eq!(attribute(rank, 0, 1), (CUDA_SUCCESS, 10));
    assert_eq!(attribute(rank, 1, 0), (CUDA_SUCCESS, 1));
    assert_eq!(
        attribute(CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 2),
        (CUDA_SUCCESS, 0)
    );
    assert_eq!(attribute(rank, 0, 0), (CUDA_ERROR_INVALID_DEVICE, 7));
    assert_eq!(attribute(5, 0, 1), (CUDA_ERROR_INVALID_VALUE, 7));
    assert_eq!(attribute(99, 0, 1), (CUDA_ERROR_INVALID_VALUE, 7));
    machine.leave();
}

#[test]
fn access_to_a_peer_is_enabled_once_and_ends_once() {
    let machine = Machine::with(&[2, 1]);
    let enable = |context, flags| {
        // SAFETY: the context lives.
        machine.costs(|driver| unsafe {
            driver.cuCtxEnablePeerAccess(machine.contexts[context], flags)
        })
    };
    assert_eq!(enable(1, 1), (CUDA_ERROR_INVALID_VALUE, 0));
    assert_eq!(enable(0, 0), (CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, 0));
    assert_eq!(enable(2, 0), (CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, 0));
    assert_eq!(enable(1, 0), (CUDA_SUCCESS, 1));
    assert_eq!(enable(1, 0), (CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, 0));
    let disable = || {
        // SAFETY: the context lives.
        machine.costs(|driver| unsafe { driver.cuCtxDisablePeerAccess(machine.contexts[1]) })
    };
    assert_eq!(disable(), (CUDA_SUCCESS, 1));
    assert_eq!(disable(), (CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, 0));
    machine.leave();
}

/// Copies between the memories of two devices, and compares.
fn between(machine: &Machine, from: usize, to: usize, size: usize, stream: Option<CUstream>) {
    machine.enter(from);
    let content = pattern(size, 1);
    let source = machine.filled(&content);
    machine.enter(to);
    let target = machine.filled(&vec![0; size]);
    machine.enter(0);
    let (here, there) = (machine.contexts[from], machine.contexts[to]);
    let copied = match stream {
        // SAFETY: no host memory.
        None => unsafe {
            machine
                .driver
                .cuMemcpyPeer(target, there, source, here, size)
        },
        // SAFETY: as above.
        Some(stream) => unsafe {
            machine
                .driver
                .cuMemcpyPeerAsync(target, there, source, here, size, stream)
        },
    };
    assert_eq!(copied, CUDA_SUCCESS);
    machine.synchronise();
    machine.enter(to);
    assert!(machine.bytes(target, size) == content, "copied otherwise");
    machine.enter(0);
}

#[test]
fn memory_is_copied_between_devices_of_a_server() {
    let machine = Machine::with(&[2]);
    between(&machine, 0, 1, 300_000, None);
    between(&machine, 1, 0, 5, Some(machine.stream()));
    machine.leave();
}

#[test]
fn memory_is_copied_between_servers() {
    let machine = Machine::with(&[1, 1, 1]);
    // More than is under way at once.
    between(&machine, 0, 1, (17 << 20) + 3, None);
    between(&machine, 1, 0, 70_000, Some(machine.stream()));
    // The stream's server has neither side.
    between(&machine, 1, 2, 9, Some(machine.stream()));
    machine.leave();
}

#[test]
fn a_copy_between_servers_keeps_its_streams_order() {
    let machine = Machine::with(&[1, 1]);
    let source = machine.filled(&[1; 4096]);
    machine.enter(1);
    let target = machine.filled(&[0; 4096]);
    machine.enter(0);
    let stream = machine.stream();
    let (here, there) = (machine.contexts[0], machine.contexts[1]);
    let driver = &machine.driver;
    // SAFETY: no host memory, for this and the others.
    let before = unsafe { driver.cuMemsetD8Async(source, 2, 4096, stream) };
    // SAFETY: as above.
    let copied = machine.costs(|driver| unsafe {
        driver.cuMemcpyPeerAsync(target, there, source, here, 4096, stream)
    });
    // SAFETY: as above.
    let after = unsafe { driver.cuMemsetD8Async(source, 3, 4096, stream) };
    assert_eq!(
        (before, copied.0, after),
        (CUDA_SUCCESS, CUDA_SUCCESS, CUDA_SUCCESS)
    );
    // SAFETY: the stream lives.
    assert_eq!(unsafe { driver.cuStreamSynchronize(stream) }, CUDA_SUCCESS);
    machine.enter(1);
    assert_eq!(machine.bytes(target, 4096), [2; 4096]);
    machine.leave();
}

#[test]
fn a_box_is_copied_between_arrays_of_two_servers() {
    let machine = Machine::with(&[1, 1]);
    let descriptor = CUDA_ARRAY3D_DESCRIPTOR {
        Width: 100,
        Height: 30,
        Depth: 4,
        Format: CU_AD_FORMAT_UNSIGNED_INT32,
        NumChannels: 1,
        Flags: 0,
    };
    let arrays = [0, 1].map(|device| {
        machine.enter(device);
        let mut array = null_mut();
        // SAFETY: both are locals.
        let made = unsafe {
            machine
                .driver
                .cuArray3DCreate_v2(&raw mut array, &raw const descriptor)
        };
        assert_eq!(made, CUDA_SUCCESS);
        array
    });
    machine.enter(0);
    let content = pattern(400 * 30 * 4, 1);
    let mut copy = blank();
    (copy.srcMemoryType, copy.srcHost) = (CU_MEMORYTYPE_HOST, content.as_ptr().cast());
    (copy.dstMemoryType, copy.dstArray) = (CU_MEMORYTYPE_ARRAY, arrays[0]);
    (copy.WidthInBytes, copy.Height, copy.Depth) = (400, 30, 4);
    // SAFETY: the content is readable.
    let there = unsafe { machine.driver.cuMemcpy3D_v2(&raw const copy) };
    assert_eq!(there, CUDA_SUCCESS);
    let peers = CUDA_MEMCPY3D_PEER {
        srcXInBytes: 0,
        srcY: 0,
        srcZ: 0,
        srcLOD: 0,
        srcMemoryType: CU_MEMORYTYPE_ARRAY,
        srcHost: std::ptr::null(),
        srcDevice: 0,
        srcArray: arrays[0],
        srcContext: machine.contexts[0],
        srcPitch: 0,
        srcHeight: 0,
        dstXInBytes: 0,
        dstY: 0,
        dstZ: 0,
        dstLOD: 0,
        dstMemoryType: CU_MEMORYTYPE_ARRAY,
        dstHost: null_mut(),
        dstDevice: 0,
        dstArray: arrays[1],
        dstContext: machine.contexts[1],
        dstPitch: 0,
        dstHeight: 0,
        WidthInBytes: 400,
        Height: 30,
        Depth: 4,
    };
    // SAFETY: no host memory.
    let across = unsafe { machine.driver.cuMemcpy3DPeer(&raw const peers) };
    assert_eq!(across, CUDA_SUCCESS);
    // The second server's array is read while the first one's context is current, too.
    let mut back = vec![0_u8; content.len()];
    (copy.srcMemoryType, copy.srcArray) = (CU_MEMORYTYPE_ARRAY, arrays[1]);
    (copy.dstMemoryType, copy.dstHost) = (CU_MEMORYTYPE_HOST, back.as_mut_ptr().cast());
    // SAFETY: the room is writable.
    let read = unsafe { machine.driver.cuMemcpy3D_v2(&raw const copy) };
    assert_eq!(read, CUDA_SUCCESS);
    assert!(back == content);
    machine.leave();
}

#[test]
fn memory_of_another_server_is_written_filled_and_read_from_any_context() {
    let machine = Machine::with(&[1, 1]);
    machine.enter(1);
    let memory = machine.filled(&[0; 1000]);
    machine.enter(0);
    let content = pattern(500, 1);
    let from = content.as_ptr().cast();
    // SAFETY: the content is readable.
    let written = unsafe { machine.driver.cuMemcpyHtoD_v2(memory, from, 500) };
    // SAFETY: no host memory.
    let filled = unsafe { machine.driver.cuMemsetD8_v2(memory + 500, 9, 500) };
    assert_eq!([written, filled], [CUDA_SUCCESS; 2]);
    let there = machine.bytes(memory, 1000);
    assert!(there[..500] == content && there[500..] == [9; 500]);
    machine.leave();
}
