//! Memory and events that programs of one server share: what one writes the others read, and nobody opens what he was not told of.
#![allow(
    clippy::multiple_unsafe_ops_per_block,
    reason = "calls of the C interface stand side by side"
)]

mod support;

use std::ptr::null_mut;

use support::{Machine, pattern};
use towline_backend::cuda::*;

fn export(machine: &Machine, address: CUdeviceptr) -> (CUresult, CUipcMemHandle) {
    let mut handle = CUipcMemHandle { reserved: [0; 64] };
    // SAFETY: the handle is a local.
    let status = unsafe { machine.driver.cuIpcGetMemHandle(&raw mut handle, address) };
    (status, handle)
}

fn open(machine: &Machine, handle: CUipcMemHandle) -> Result<CUdeviceptr, CUresult> {
    let mut address = 0;
    let flags = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS;
    // SAFETY: the address is a local.
    let opened = unsafe {
        machine
            .driver
            .cuIpcOpenMemHandle_v2(&raw mut address, handle, flags)
    };
    match opened {
        CUDA_SUCCESS => Ok(address),
        status => Err(status),
    }
}

fn close(machine: &Machine, address: CUdeviceptr) -> CUresult {
    // SAFETY: no pointers.
    unsafe { machine.driver.cuIpcCloseMemHandle(address) }
}

fn free(machine: &Machine, address: CUdeviceptr) -> CUresult {
    // SAFETY: no pointers.
    unsafe { machine.driver.cuMemFree_v2(address) }
}

#[test]
fn what_one_program_writes_another_reads_and_each_step_waits_once() {
    let (machines, _) = Machine::neighbours(2);
    let [ours, theirs] = &machines[..] else {
        panic!("there are two");
    };
    ours.enter(0);
    let bytes = pattern(300_000, 1);
    let memory = ours.filled(&bytes);
    let ((status, handle), waits) = ours.costs(|_| export(ours, memory));
    assert_eq!((status, waits), (CUDA_SUCCESS, 1));
    let ((_, again), waits) = ours.costs(|_| export(ours, memory + 16));
    assert_eq!((again.reserved, waits), (handle.reserved, 0), "it is known");
    theirs.enter(0);
    let (opened, waits) = theirs.costs(|_| open(theirs, handle));
    let opened = opened.unwrap();
    assert_eq!(waits, 1);
    assert_eq!(theirs.bytes(opened, bytes.len()), bytes);
    let (twice, waits) = theirs.costs(|_| open(theirs, handle));
    assert_eq!((twice, waits), (Ok(opened), 0), "it is counted");
    // SAFETY: no pointers.
    let set = unsafe { theirs.driver.cuMemsetD8_v2(opened + 10, 0x11, 5) };
    assert_eq!(set, CUDA_SUCCESS);
    theirs.synchronise();
    assert_eq!(
        free(theirs, opened),
        CUDA_ERROR_INVALID_VALUE,
        "it is not its own"
    );
    let (closed, waits) = theirs.costs(|_| [close(theirs, opened), close(theirs, opened)]);
    assert_eq!((closed, waits), ([CUDA_SUCCESS; 2], 1));
    assert_eq!(close(theirs, opened), CUDA_ERROR_INVALID_VALUE);
    ours.enter(0);
    assert_eq!(ours.bytes(memory + 9, 7)[1..6], [0x11; 5]);
    assert_eq!(free(ours, memory), CUDA_SUCCESS);
    Machine::leave_all(machines);
}

#[test]
fn a_handle_is_good_for_others_of_the_server_while_its_memory_is_there() {
    let (machines, _) = Machine::neighbours(2);
    let [ours, theirs] = &machines[..] else {
        panic!("there are two");
    };
    let stranger = Machine::new();
    ours.enter(0);
    let memory = ours.allocate(4096);
    let (_, handle) = export(ours, memory);
    assert_eq!(
        open(ours, handle),
        Err(CUDA_ERROR_INVALID_CONTEXT),
        "its own"
    );
    stranger.enter(0);
    assert_eq!(
        open(&stranger, handle),
        Err(CUDA_ERROR_INVALID_VALUE),
        "another server's"
    );
    theirs.enter(0);
    let mut guessed = handle;
    guessed.reserved[20] ^= 1;
    assert_eq!(open(theirs, guessed), Err(CUDA_ERROR_INVALID_VALUE));
    let none = CUipcMemHandle { reserved: [0; 64] };
    assert_eq!(open(theirs, none), Err(CUDA_ERROR_INVALID_VALUE));
    assert_eq!(export(theirs, 0x1234).0, CUDA_ERROR_INVALID_VALUE);
    ours.enter(0);
    assert_eq!(free(ours, memory), CUDA_SUCCESS);
    theirs.enter(0);
    assert_eq!(
        open(theirs, handle),
        Err(CUDA_ERROR_INVALID_VALUE),
        "it was freed"
    );
    stranger.leave();
    Machine::leave_all(machines);
}

#[test]
fn a_program_that_ends_leaves_nothing_open_and_nothing_to_open() {
    let (machines, offers) = Machine::neighbours(2);
    let [ours, theirs] = &machines[..] else {
        panic!("there are two");
    };
    ours.enter(0);
    let memory = ours.allocate(4096);
    let (_, handle) = export(ours, memory);
    theirs.enter(0);
    assert!(open(theirs, handle).is_ok());
    // It ends with the memory open; what the other offers is there as long as that lives.
    theirs.end();
    ours.end();
    offers.end(0);
    Machine::leave_all(machines);
}

fn shared_event(machine: &Machine) -> CUevent {
    let mut event = null_mut();
    let flags = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING;
    // SAFETY: the event is a local.
    let made = unsafe { machine.driver.cuEventCreate(&raw mut event, flags) };
    assert_eq!(made, CUDA_SUCCESS);
    event
}

#[test]
fn a_stream_waits_for_an_event_that_another_program_records() {
    let (machines, _) = Machine::neighbours(2);
    let [ours, theirs] = &machines[..] else {
        panic!("there are two");
    };
    // First, since both programs' work is one device's in this process: synchronising waits for the other's too.
    theirs.enter(0);
    let (their_stream, result) = (theirs.stream(), theirs.filled(&[0; 4]));
    ours.enter(0);
    let (event, stream) = (shared_event(ours), ours.stream());
    let flag = ours.filled(&[0; 8]);
    let mut handle = CUipcEventHandle { reserved: [0; 64] };
    // SAFETY: the handle is a local.
    let exported = unsafe { ours.driver.cuIpcGetEventHandle(&raw mut handle, event) };
    assert_eq!(exported, CUDA_SUCCESS);
    // SAFETY: no pointers.
    let posted = unsafe {
        let equal = CU_STREAM_WAIT_VALUE_EQ;
        let wait = ours.driver.cuStreamWaitValue32_v2(stream, flag, 1, equal);
        [wait, ours.driver.cuEventRecord(event, stream)]
    };
    assert_eq!(posted, [CUDA_SUCCESS; 2]);
    // Recorded before the other program asks.
    // SAFETY: no pointers.
    let state = unsafe { ours.driver.cuEventQuery(event) };
    assert_eq!(state, CUDA_ERROR_NOT_READY);

    theirs.enter(0);
    let mut opened = null_mut();
    // SAFETY: the event is a local.
    let status = unsafe { theirs.driver.cuIpcOpenEventHandle(&raw mut opened, handle) };
    assert_eq!(status, CUDA_SUCCESS);
    // SAFETY: no pointers.
    let waiting = unsafe {
        [
            theirs.driver.cuEventQuery(opened),
            theirs.driver.cuStreamWaitEvent(their_stream, opened, 0),
            theirs
                .driver
                .cuStreamWriteValue32_v2(their_stream, result, 5, 0),
        ]
    };
    let expected = [CUDA_ERROR_NOT_READY, CUDA_SUCCESS, CUDA_SUCCESS];
    assert_eq!(waiting, expected);
    assert_eq!(theirs.bytes(result, 4), [0; 4]);

    ours.enter(0);
    let writing = ours.stream();
    // SAFETY: no pointers.
    let released = unsafe { ours.driver.cuStreamWriteValue32_v2(writing, flag, 1, 0) };
    assert_eq!(released, CUDA_SUCCESS);
    theirs.enter(0);
    // SAFETY: no pointers.
    let ended = unsafe {
        [
            theirs.driver.cuEventSynchronize(opened),
            theirs.driver.cuStreamSynchronize(their_stream),
            theirs.driver.cuEventQuery(opened),
            theirs.driver.cuEventDestroy_v2(opened),
            theirs.driver.cuMemFree_v2(result),
        ]
    };
    assert_eq!(ended, [CUDA_SUCCESS; 5]);
    ours.enter(0);
    // SAFETY: no pointers.
    let ended = unsafe {
        [
            ours.driver.cuEventDestroy_v2(event),
            ours.driver.cuMemFree_v2(flag),
        ]
    };
    assert_eq!(ended, [CUDA_SUCCESS; 2]);
    Machine::leave_all(machines);
}

#[test]
fn events_that_are_not_made_to_be_shared_are_not() {
    let (machines, _) = Machine::neighbours(1);
    let machine = &machines[0];
    let mut event = null_mut();
    // SAFETY: the event is a local.
    let timed = unsafe {
        machine
            .driver
            .cuEventCreate(&raw mut event, CU_EVENT_INTERPROCESS)
    };
    assert_eq!(timed, CUDA_ERROR_INVALID_VALUE);
    // SAFETY: the event is a local.
    let plain = unsafe { machine.driver.cuEventCreate(&raw mut event, 0) };
    assert_eq!(plain, CUDA_SUCCESS);
    let mut handle = CUipcEventHandle { reserved: [0; 64] };
    // SAFETY: the handle is a local.
    let refused = unsafe { machine.driver.cuIpcGetEventHandle(&raw mut handle, event) };
    assert_eq!(refused, CUDA_ERROR_INVALID_HANDLE);
    Machine::leave_all(machines);
}

const GRANULARITY: usize = 2 << 20;

fn create(machine: &Machine, types: CUmemAllocationHandleType) -> CUmemGenericAllocationHandle {
    let mut handle = 0;
    let prop = CUmemAllocationProp {
        r#type: CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: types,
        location: CUmemLocation {
            r#type: CU_MEM_LOCATION_TYPE_DEVICE,
            either: CUmemLocation_either { id: 0 },
        },
        win32HandleMetaData: null_mut(),
        allocFlags: CUmemAllocationProp_allocFlags {
            compressionType: 0,
            gpuDirectRDMACapable: 0,
            usage: 0,
            reserved: [0; 4],
        },
    };
    // SAFETY: both are locals.
    let made = unsafe {
        let prop = &raw const prop;
        machine
            .driver
            .cuMemCreate(&raw mut handle, GRANULARITY, prop, 0)
    };
    assert_eq!(made, CUDA_SUCCESS);
    handle
}

fn mapped(machine: &Machine, handle: CUmemGenericAllocationHandle) -> CUdeviceptr {
    let mut address = 0;
    let access = CUmemAccessDesc {
        location: CUmemLocation {
            r#type: CU_MEM_LOCATION_TYPE_DEVICE,
            either: CUmemLocation_either { id: 0 },
        },
        flags: CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    // SAFETY: address and access are locals.
    let status = unsafe {
        let driver = &machine.driver;
        [
            driver.cuMemAddressReserve(&raw mut address, GRANULARITY, 0, 0, 0),
            driver.cuMemMap(address, GRANULARITY, 0, handle, 0),
            driver.cuMemSetAccess(address, GRANULARITY, &raw const access, 1),
        ]
    };
    assert_eq!(status, [CUDA_SUCCESS; 3]);
    address
}

fn unmap(machine: &Machine, address: CUdeviceptr, handle: CUmemGenericAllocationHandle) {
    // SAFETY: no pointers.
    let status = unsafe {
        let driver = &machine.driver;
        [
            driver.cuMemUnmap(address, GRANULARITY),
            driver.cuMemAddressFree(address, GRANULARITY),
            driver.cuMemRelease(handle),
        ]
    };
    assert_eq!(status, [CUDA_SUCCESS; 3]);
}

/// Waits until the server has carried out what was posted.
fn settle(machine: &Machine) {
    let (mut free, mut total) = (0, 0);
    // SAFETY: both are locals.
    let asked = unsafe {
        machine
            .driver
            .cuMemGetInfo_v2(&raw mut free, &raw mut total)
    };
    assert_eq!(asked, CUDA_SUCCESS);
}

#[test]
fn physical_memory_goes_to_another_program_as_a_file() {
    let (machines, _) = Machine::neighbours(2);
    let [ours, theirs] = &machines[..] else {
        panic!("there are two");
    };
    let kind = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    ours.enter(0);
    let handle = create(ours, kind);
    let address = mapped(ours, handle);
    // SAFETY: no pointers.
    unsafe { ours.driver.cuMemsetD8_v2(address, 0x42, 64) };
    ours.synchronise();
    let mut file = -1_i32;
    // SAFETY: the descriptor is a local.
    let (exported, waits) = ours.costs(|driver| unsafe {
        driver.cuMemExportToShareableHandle((&raw mut file).cast(), handle, kind, 0)
    });
    assert_eq!((exported, waits), (CUDA_SUCCESS, 1));
    theirs.enter(0);
    let mut imported = 0;
    let descriptor = std::ptr::without_provenance_mut(file as usize);
    // SAFETY: the descriptor is open.
    let (status, waits) = theirs.costs(|driver| unsafe {
        driver.cuMemImportFromShareableHandle(&raw mut imported, descriptor, kind)
    });
    assert_eq!((status, waits), (CUDA_SUCCESS, 1));
    let there = mapped(theirs, imported);
    assert_eq!(theirs.bytes(there, 64), [0x42; 64]);
    ours.enter(0);
    unmap(ours, address, handle);
    settle(ours);
    theirs.enter(0);
    // It lives as long as one of them has it.
    assert_eq!(theirs.bytes(there, 64), [0x42; 64]);
    unmap(theirs, there, imported);
    // SAFETY: the descriptor is open.
    let late = unsafe {
        theirs
            .driver
            .cuMemImportFromShareableHandle(&raw mut imported, descriptor, kind)
    };
    assert_eq!(late, CUDA_ERROR_INVALID_VALUE);
    // SAFETY: it was opened for this test.
    unsafe { libc::close(file) };
    Machine::leave_all(machines);
}

#[test]
fn files_that_stand_for_nothing_and_memory_that_is_not_to_be_exported_are_refused() {
    let (machines, _) = Machine::neighbours(1);
    let machine = &machines[0];
    let kind = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    let handle = create(machine, 0);
    let (mut file, mut imported) = (-1_i32, 0);
    // SAFETY: the descriptor is a local.
    let private = unsafe {
        let file = (&raw mut file).cast();
        machine
            .driver
            .cuMemExportToShareableHandle(file, handle, kind, 0)
    };
    assert_eq!(private, CUDA_ERROR_INVALID_VALUE);
    use std::os::fd::AsRawFd;
    let other = tempfile::tempfile().unwrap();
    std::io::Write::write_all(&mut &other, &[b't'; 200]).unwrap();
    for wrong in [other.as_raw_fd() as usize, 1 << 20, usize::MAX] {
        let descriptor = std::ptr::without_provenance_mut(wrong);
        // SAFETY: what is no descriptor is refused.
        let refused = unsafe {
            let driver = &machine.driver;
            driver.cuMemImportFromShareableHandle(&raw mut imported, descriptor, kind)
        };
        assert_eq!(refused, CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: no pointers.
    assert_eq!(unsafe { machine.driver.cuMemRelease(handle) }, CUDA_SUCCESS);
    Machine::leave_all(machines);
}
