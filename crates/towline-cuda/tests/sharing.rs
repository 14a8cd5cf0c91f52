//! Memory and events that programs of one server share: what one writes the others read, and nobody opens what he was not told of.
#![allow(
    clippy::multiple_unsafe_ops_per_block,
    reason = "calls of the C interface stand side by side"
)]

mod support;

use std::ptr::null_mut;

use support::{GRANULARITY, Machine, pattern};
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

/// What libraries ask before they make a handle: UCX takes a refusal of the handle for an error.
#[test]
fn memory_says_truly_which_handles_of_it_can_be_had() {
    let (machines, _) = Machine::neighbours(1);
    let alone = Machine::on_soft();
    for (machine, shares) in [(&machines[0], true), (&alone, false)] {
        machine.enter(0);
        let memory = machine.allocate(4096);
        let tell = |attribute, address| {
            let mut told = 0xee_u64;
            // SAFETY: the place is as large as any attribute that is asked for.
            let status = unsafe {
                machine
                    .driver
                    .cuPointerGetAttribute((&raw mut told).cast(), attribute, address)
            };
            (status, told)
        };
        let legacy = |address| {
            let (status, told) = tell(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, address);
            (status, told & 0xff)
        };
        let (first, waits) = machine.costs(|_| legacy(memory));
        assert_eq!((first, waits), ((CUDA_SUCCESS, u64::from(shares)), 1));
        assert_eq!(export(machine, memory).0 == CUDA_SUCCESS, shares);
        let another = machine.allocate(4096);
        let (second, waits) = machine.costs(|_| legacy(another + 8));
        assert_eq!((second, waits), (first, 0), "it has shown");
        let kinds = CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES;
        assert_eq!(tell(kinds, memory), (CUDA_SUCCESS, 0));
        for asked in [
            CU_MEM_HANDLE_TYPE_NONE,
            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        ] {
            let (handle, size) = (machine.physical(asked), 2 << 20);
            let mut address = 0;
            // SAFETY: the place is a local.
            let mapped = unsafe {
                let driver = &machine.driver;
                driver.cuMemAddressReserve(&raw mut address, size, 0, 0, 0)
                    | driver.cuMemMap(address, size, 0, handle, 0)
            };
            assert_eq!(mapped, CUDA_SUCCESS);
            assert_eq!(tell(kinds, address), (CUDA_SUCCESS, asked.into()));
            assert_eq!(legacy(address), (CUDA_SUCCESS, 0));
            // SAFETY: no pointers.
            let gone = unsafe {
                let driver = &machine.driver;
                driver.cuMemUnmap(address, size)
                    | driver.cuMemAddressFree(address, size)
                    | driver.cuMemRelease(handle)
            };
            assert_eq!(gone, CUDA_SUCCESS);
        }
        assert_eq!(free(machine, memory) | free(machine, another), CUDA_SUCCESS);
    }
    Machine::leave_all(machines);
    alone.leave();
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

fn export_event(machine: &Machine, event: CUevent) -> CUipcEventHandle {
    let mut handle = CUipcEventHandle { reserved: [0; 64] };
    // SAFETY: the handle is a local.
    let exported = unsafe { machine.driver.cuIpcGetEventHandle(&raw mut handle, event) };
    assert_eq!(exported, CUDA_SUCCESS);
    handle
}

fn open_event(machine: &Machine, handle: CUipcEventHandle) -> CUevent {
    let mut event = null_mut();
    // SAFETY: the event is a local.
    let opened = unsafe { machine.driver.cuIpcOpenEventHandle(&raw mut event, handle) };
    assert_eq!(opened, CUDA_SUCCESS);
    event
}

/// Has a stream wait until the number at `flag` is 1, and records an event behind that.
fn record_behind(machine: &Machine, stream: CUstream, flag: CUdeviceptr, event: CUevent) {
    // SAFETY: no pointers.
    let posted = unsafe {
        let driver = &machine.driver;
        let wait = driver.cuStreamWaitValue32_v2(stream, flag, 1, CU_STREAM_WAIT_VALUE_EQ);
        [wait, driver.cuEventRecord(event, stream)]
    };
    assert_eq!(posted, [CUDA_SUCCESS; 2]);
}

fn query(machine: &Machine, event: CUevent) -> CUresult {
    // SAFETY: no pointers.
    unsafe { machine.driver.cuEventQuery(event) }
}

fn write_word(machine: &Machine, stream: CUstream, address: CUdeviceptr, value: u32) {
    // SAFETY: no pointers.
    let written = unsafe {
        machine
            .driver
            .cuStreamWriteValue32_v2(stream, address, value, 0)
    };
    assert_eq!(written, CUDA_SUCCESS);
}

fn end_event(machine: &Machine, event: CUevent) {
    // SAFETY: no pointers.
    let ended = unsafe { machine.driver.cuEventDestroy_v2(event) };
    assert_eq!(ended, CUDA_SUCCESS);
}

#[test]
fn an_event_costs_a_wait_per_use_once_it_is_shared_and_none_before() {
    let (machines, _) = Machine::neighbours(2);
    let [ours, theirs] = &machines[..] else {
        panic!("there are two");
    };
    ours.enter(0);
    let (event, stream) = (shared_event(ours), ours.stream());
    // SAFETY: no pointers.
    let use_it = |driver: &towline_cuda::Driver, event, stream| unsafe {
        [
            driver.cuEventRecord(event, stream),
            driver.cuStreamWaitEvent(stream, event, 0),
        ]
    };
    let (used, waits) = ours.costs(|driver| use_it(driver, event, stream));
    assert_eq!((used, waits), ([CUDA_SUCCESS; 2], 0));
    let (handle, waits) = ours.costs(|_| export_event(ours, event));
    assert_eq!(waits, 1);
    let (used, waits) = ours.costs(|driver| use_it(driver, event, stream));
    assert_eq!((used, waits), ([CUDA_SUCCESS; 2], 2));
    theirs.enter(0);
    let stream = theirs.stream();
    let (opened, waits) = theirs.costs(|_| open_event(theirs, handle));
    assert_eq!(waits, 1);
    let (used, waits) = theirs.costs(|driver| use_it(driver, opened, stream));
    assert_eq!((used, waits), ([CUDA_SUCCESS; 2], 2));
    end_event(theirs, opened);
    ours.enter(0);
    end_event(ours, event);
    Machine::leave_all(machines);
}

#[test]
fn a_program_waits_for_what_another_records_in_the_event_that_it_shares() {
    let (machines, _) = Machine::neighbours(2);
    let [ours, theirs] = &machines[..] else {
        panic!("there are two");
    };
    ours.enter(0);
    let (event, stream, result) = (shared_event(ours), ours.stream(), ours.filled(&[0; 4]));
    let handle = export_event(ours, event);
    assert_eq!(query(ours, event), CUDA_SUCCESS, "it was never recorded");
    theirs.enter(0);
    let flag = theirs.filled(&[0; 8]);
    let (slow, fast) = (theirs.stream(), theirs.stream());
    let opened = open_event(theirs, handle);
    record_behind(theirs, slow, flag, opened);
    ours.enter(0);
    assert_eq!(query(ours, event), CUDA_ERROR_NOT_READY);
    // SAFETY: no pointers.
    let waiting = unsafe { ours.driver.cuStreamWaitEvent(stream, event, 0) };
    assert_eq!(waiting, CUDA_SUCCESS);
    write_word(ours, stream, result, 5);
    theirs.enter(0);
    // A later recording that passes at once: the stream still waits for the one before.
    // SAFETY: no pointers.
    let recorded = unsafe { theirs.driver.cuEventRecord(opened, fast) };
    assert_eq!(recorded, CUDA_SUCCESS);
    // SAFETY: no pointers.
    let passed = unsafe { theirs.driver.cuEventSynchronize(opened) };
    assert_eq!(passed, CUDA_SUCCESS);
    ours.enter(0);
    // SAFETY: no pointers.
    let passed = unsafe { ours.driver.cuEventSynchronize(event) };
    assert_eq!(passed, CUDA_SUCCESS);
    assert_eq!(ours.bytes(result, 4), [0; 4]);
    theirs.enter(0);
    write_word(theirs, fast, flag, 1);
    ours.enter(0);
    // SAFETY: no pointers.
    let waited = unsafe { ours.driver.cuStreamSynchronize(stream) };
    assert_eq!(waited, CUDA_SUCCESS);
    assert_eq!(ours.bytes(result, 4), 5_u32.to_ne_bytes());
    end_event(ours, event);
    assert_eq!(free(ours, result), CUDA_SUCCESS);
    theirs.enter(0);
    end_event(theirs, opened);
    assert_eq!(free(theirs, flag), CUDA_SUCCESS);
    Machine::leave_all(machines);
}

#[test]
fn nobody_waits_for_an_event_of_a_program_that_has_died() {
    let (machines, offers) = Machine::neighbours(2);
    let [ours, theirs] = &machines[..] else {
        panic!("there are two");
    };
    theirs.enter(0);
    let stream = theirs.stream();
    ours.enter(0);
    let (event, never, flag) = (shared_event(ours), ours.stream(), ours.filled(&[0; 8]));
    record_behind(ours, never, flag, event);
    let handle = export_event(ours, event);
    theirs.enter(0);
    let opened = open_event(theirs, handle);
    assert_eq!(query(theirs, opened), CUDA_ERROR_NOT_READY);
    // SAFETY: no pointers.
    let waiting = unsafe { theirs.driver.cuStreamWaitEvent(stream, opened, 0) };
    assert_eq!(waiting, CUDA_SUCCESS);
    // As the supervisor does when a worker is gone.
    offers.end(0);
    // SAFETY: no pointers.
    let ended = unsafe {
        [
            theirs.driver.cuEventSynchronize(opened),
            theirs.driver.cuStreamSynchronize(stream),
        ]
    };
    assert_eq!(ended, [CUDA_SUCCESS; 2]);
    end_event(theirs, opened);
    ours.enter(0);
    let other = ours.stream();
    write_word(ours, other, flag, 1);
    ours.synchronise();
    end_event(ours, event);
    assert_eq!(free(ours, flag), CUDA_SUCCESS);
    Machine::leave_all(machines);
}

#[test]
fn nobody_waits_for_what_a_program_recorded_in_anothers_event_and_died() {
    let (machines, offers) = Machine::neighbours(3);
    let [ours, dead, theirs] = &machines[..] else {
        panic!("there are three");
    };
    ours.enter(0);
    let (event, stream) = (shared_event(ours), ours.stream());
    let handle = export_event(ours, event);
    theirs.enter(0);
    let (opened, their_stream) = (open_event(theirs, handle), theirs.stream());
    dead.enter(0);
    let (recorded, never, flag) = (
        open_event(dead, handle),
        dead.stream(),
        dead.filled(&[0; 8]),
    );
    record_behind(dead, never, flag, recorded);
    for (machine, event, stream) in [(theirs, opened, their_stream), (ours, event, stream)] {
        machine.enter(0);
        assert_eq!(query(machine, event), CUDA_ERROR_NOT_READY);
        // SAFETY: no pointers.
        let waiting = unsafe { machine.driver.cuStreamWaitEvent(stream, event, 0) };
        assert_eq!(waiting, CUDA_SUCCESS);
    }
    // One who waits for it does not need the event itself.
    end_event(ours, event);
    // As the supervisor does when a worker is gone.
    offers.end(1);
    theirs.enter(0);
    assert_eq!(query(theirs, opened), CUDA_SUCCESS);
    for (machine, stream) in [(theirs, their_stream), (ours, stream)] {
        machine.enter(0);
        // SAFETY: no pointers.
        let waited = unsafe { machine.driver.cuStreamSynchronize(stream) };
        assert_eq!(waited, CUDA_SUCCESS);
    }
    theirs.enter(0);
    // SAFETY: no pointers.
    let again = unsafe {
        [
            theirs.driver.cuEventRecord(opened, their_stream),
            theirs.driver.cuEventSynchronize(opened),
        ]
    };
    assert_eq!(again, [CUDA_SUCCESS; 2]);
    end_event(theirs, opened);
    dead.enter(0);
    let other = dead.stream();
    write_word(dead, other, flag, 1);
    dead.synchronise();
    end_event(dead, recorded);
    assert_eq!(free(dead, flag), CUDA_SUCCESS);
    Machine::leave_all(machines);
}

#[test]
fn the_death_of_an_events_owner_leaves_what_others_have_recorded() {
    let (machines, offers) = Machine::neighbours(3);
    let [ours, records, waits] = &machines[..] else {
        panic!("there are three");
    };
    ours.enter(0);
    let event = shared_event(ours);
    let handle = export_event(ours, event);
    waits.enter(0);
    let opened = open_event(waits, handle);
    records.enter(0);
    let (recorded, stream, flag) = (
        open_event(records, handle),
        records.stream(),
        records.filled(&[0; 8]),
    );
    record_behind(records, stream, flag, recorded);
    offers.end(0);
    waits.enter(0);
    assert_eq!(query(waits, opened), CUDA_ERROR_NOT_READY);
    records.enter(0);
    let other = records.stream();
    write_word(records, other, flag, 1);
    waits.enter(0);
    // SAFETY: no pointers.
    let passed = unsafe { waits.driver.cuEventSynchronize(opened) };
    assert_eq!(passed, CUDA_SUCCESS);
    end_event(waits, opened);
    records.enter(0);
    end_event(records, recorded);
    assert_eq!(free(records, flag), CUDA_SUCCESS);
    ours.enter(0);
    end_event(ours, event);
    Machine::leave_all(machines);
}

#[test]
fn a_thousand_events_are_shared_one_after_another_and_leave_nothing() {
    let (machines, _) = Machine::neighbours(2);
    let [ours, theirs] = &machines[..] else {
        panic!("there are two");
    };
    theirs.enter(0);
    let their_stream = theirs.stream();
    ours.enter(0);
    let stream = ours.stream();
    for _ in 0..1000 {
        ours.enter(0);
        let event = shared_event(ours);
        // SAFETY: no pointers.
        let recorded = unsafe { ours.driver.cuEventRecord(event, stream) };
        assert_eq!(recorded, CUDA_SUCCESS);
        let handle = export_event(ours, event);
        theirs.enter(0);
        let opened = open_event(theirs, handle);
        // SAFETY: no pointers.
        let waiting = unsafe { theirs.driver.cuStreamWaitEvent(their_stream, opened, 0) };
        assert_eq!(waiting, CUDA_SUCCESS);
        end_event(theirs, opened);
        ours.enter(0);
        end_event(ours, event);
    }
    Machine::leave_all(machines);
}

#[test]
fn a_graph_neither_records_nor_awaits_an_event_that_may_be_shared() {
    let (machines, _) = Machine::neighbours(1);
    let machine = &machines[0];
    let event = shared_event(machine);
    let (mut graph, mut node) = (null_mut(), null_mut());
    // SAFETY: graph and node are locals.
    let statuses = unsafe {
        let driver = &machine.driver;
        let none = std::ptr::null();
        [
            driver.cuGraphCreate(&raw mut graph, 0),
            driver.cuGraphAddEventRecordNode(&raw mut node, graph, none, 0, event),
            driver.cuGraphAddEventWaitNode(&raw mut node, graph, none, 0, event),
            driver.cuGraphDestroy(graph),
        ]
    };
    let refused = CUDA_ERROR_NOT_SUPPORTED;
    assert_eq!(statuses, [CUDA_SUCCESS, refused, refused, CUDA_SUCCESS]);
    end_event(machine, event);
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
    let handle = ours.physical(kind);
    let address = ours.mapped(handle);
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
    let there = theirs.mapped(imported);
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
    let handle = machine.physical(0);
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

fn pool(machine: &Machine, types: CUmemAllocationHandleType) -> Result<CUmemoryPool, CUresult> {
    let mut pool = null_mut();
    let props = CUmemPoolProps {
        allocType: CU_MEM_ALLOCATION_TYPE_PINNED,
        handleTypes: types,
        location: CUmemLocation {
            r#type: CU_MEM_LOCATION_TYPE_DEVICE,
            either: CUmemLocation_either { id: 0 },
        },
        win32SecurityAttributes: null_mut(),
        maxSize: 0,
        usage: 0,
        gpuDirectRDMACapable: 0,
        reserved: [0; 53],
    };
    // SAFETY: both are locals.
    match unsafe {
        machine
            .driver
            .cuMemPoolCreate(&raw mut pool, &raw const props)
    } {
        CUDA_SUCCESS => Ok(pool),
        status => Err(status),
    }
}

fn from_pool(machine: &Machine, pool: CUmemoryPool, size: usize, stream: CUstream) -> CUdeviceptr {
    let mut address = 0;
    // SAFETY: the address is a local.
    let made = unsafe {
        machine
            .driver
            .cuMemAllocFromPoolAsync(&raw mut address, size, pool, stream)
    };
    assert_eq!(made, CUDA_SUCCESS);
    address
}

fn export_pointer(
    machine: &Machine,
    address: CUdeviceptr,
) -> Result<CUmemPoolPtrExportData, CUresult> {
    let mut data = CUmemPoolPtrExportData { reserved: [0; 64] };
    // SAFETY: the data are a local.
    match unsafe {
        machine
            .driver
            .cuMemPoolExportPointer(&raw mut data, address)
    } {
        CUDA_SUCCESS => Ok(data),
        status => Err(status),
    }
}

fn import_pointer(
    machine: &Machine,
    pool: CUmemoryPool,
    data: &CUmemPoolPtrExportData,
) -> Result<CUdeviceptr, CUresult> {
    let (mut address, mut data) = (0, CUmemPoolPtrExportData { ..*data });
    // SAFETY: both are locals.
    let opened = unsafe {
        let (place, data) = (&raw mut address, &raw mut data);
        machine.driver.cuMemPoolImportPointer(place, pool, data)
    };
    match opened {
        CUDA_SUCCESS => Ok(address),
        status => Err(status),
    }
}

#[test]
fn a_pool_goes_to_another_program_as_a_file_and_its_memory_by_name() {
    let (machines, _) = Machine::neighbours(2);
    let [ours, theirs] = &machines[..] else {
        panic!("there are two");
    };
    let kind = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    ours.enter(0);
    let shared = pool(ours, kind).unwrap();
    let stream = ours.stream();
    let memory = from_pool(ours, shared, 4096, stream);
    // SAFETY: no pointers.
    let set = unsafe { ours.driver.cuMemsetD8Async(memory, 0x42, 4096, stream) };
    assert_eq!(set, CUDA_SUCCESS);
    ours.synchronise();
    let mut types = 0_u64;
    // SAFETY: the value is a local of the width that the attribute has.
    let told = unsafe {
        let which = CU_MEMPOOL_ATTR_EXPORT_HANDLE_TYPES;
        let place = (&raw mut types).cast();
        ours.driver.cuMemPoolGetAttribute(shared, which, place)
    };
    assert_eq!((told, types as u32), (CUDA_SUCCESS, kind));
    let mut file = -1_i32;
    // SAFETY: the descriptor is a local.
    let (exported, waits) = ours.costs(|driver| unsafe {
        driver.cuMemPoolExportToShareableHandle((&raw mut file).cast(), shared, kind, 0)
    });
    assert_eq!((exported, waits), (CUDA_SUCCESS, 1));
    let (data, waits) = ours.costs(|_| export_pointer(ours, memory).unwrap());
    assert_eq!(waits, 1);
    theirs.enter(0);
    let mut imported = null_mut();
    let descriptor = std::ptr::without_provenance_mut(file as usize);
    // SAFETY: the descriptor is open.
    let (status, waits) = theirs.costs(|driver| unsafe {
        driver.cuMemPoolImportFromShareableHandle(&raw mut imported, descriptor, kind, 0)
    });
    assert_eq!((status, waits), (CUDA_SUCCESS, 1));
    let (opened, waits) = theirs.costs(|_| import_pointer(theirs, imported, &data).unwrap());
    assert_eq!(waits, 1);
    assert_eq!(theirs.bytes(opened, 4096), [0x42; 4096]);
    // SAFETY: no pointers.
    let set = unsafe { theirs.driver.cuMemsetD8_v2(opened + 1, 7, 2) };
    assert_eq!(set, CUDA_SUCCESS);
    theirs.synchronise();
    let own = theirs.stream();
    let mut none = 0;
    // SAFETY: the address is a local.
    let refused = unsafe {
        let place = &raw mut none;
        theirs
            .driver
            .cuMemAllocFromPoolAsync(place, 64, imported, own)
    };
    assert_eq!(refused, CUDA_ERROR_INVALID_VALUE, "it only opens memory");
    // SAFETY: no pointers.
    let ended = unsafe {
        [
            theirs.driver.cuMemFreeAsync(opened, own),
            theirs.driver.cuStreamSynchronize(own),
            theirs.driver.cuMemPoolDestroy(imported),
        ]
    };
    assert_eq!(ended, [CUDA_SUCCESS; 3]);
    ours.enter(0);
    assert_eq!(ours.bytes(memory, 4), [0x42, 7, 7, 0x42]);
    // SAFETY: no pointers.
    let ended = unsafe {
        [
            ours.driver.cuMemFreeAsync(memory, stream),
            ours.driver.cuStreamSynchronize(stream),
            ours.driver.cuMemPoolDestroy(shared),
        ]
    };
    assert_eq!(ended, [CUDA_SUCCESS; 3]);
    settle(ours);
    theirs.enter(0);
    // SAFETY: the descriptor is open.
    let late = unsafe {
        let place = &raw mut imported;
        theirs
            .driver
            .cuMemPoolImportFromShareableHandle(place, descriptor, kind, 0)
    };
    assert_eq!(late, CUDA_ERROR_INVALID_VALUE, "it has ended");
    // SAFETY: it was opened for this test.
    unsafe { libc::close(file) };
    Machine::leave_all(machines);
}

#[test]
fn pools_and_memory_that_are_not_to_be_shared_are_not() {
    let (machines, _) = Machine::neighbours(2);
    let [ours, theirs] = &machines[..] else {
        panic!("there are two");
    };
    let kind = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    ours.enter(0);
    assert_eq!(
        pool(ours, CU_MEM_HANDLE_TYPE_FABRIC).err(),
        Some(CUDA_ERROR_NOT_SUPPORTED)
    );
    let (private, shared) = (pool(ours, 0).unwrap(), pool(ours, kind).unwrap());
    let stream = ours.stream();
    let inside = from_pool(ours, private, 64, stream);
    let offered = from_pool(ours, shared, 64, stream);
    let mut file = -1_i32;
    // SAFETY: the descriptor is a local.
    let refused = unsafe {
        let place = (&raw mut file).cast();
        let driver = &ours.driver;
        [
            driver.cuMemPoolExportToShareableHandle(place, private, kind, 0),
            driver.cuMemPoolExportToShareableHandle(place, shared, CU_MEM_HANDLE_TYPE_FABRIC, 0),
            driver.cuMemPoolExportToShareableHandle(place, shared, kind, 1),
        ]
    };
    assert_eq!(refused, [CUDA_ERROR_INVALID_VALUE; 3]);
    for address in [inside, offered + 8, 0x1234] {
        let told = export_pointer(ours, address).err();
        assert_eq!(told, Some(CUDA_ERROR_INVALID_VALUE), "{address:#x}");
    }
    let data = export_pointer(ours, offered).unwrap();
    theirs.enter(0);
    let own = pool(theirs, kind).unwrap();
    assert_eq!(
        import_pointer(theirs, own, &data),
        Err(CUDA_ERROR_INVALID_VALUE),
        "it is of another pool"
    );
    ours.enter(0);
    // SAFETY: no pointers.
    let ended = unsafe {
        [
            ours.driver.cuMemFreeAsync(inside, stream),
            ours.driver.cuMemFreeAsync(offered, stream),
            ours.driver.cuStreamSynchronize(stream),
            ours.driver.cuMemPoolDestroy(private),
            ours.driver.cuMemPoolDestroy(shared),
        ]
    };
    assert_eq!(ended, [CUDA_SUCCESS; 5]);
    theirs.enter(0);
    // SAFETY: no pointers.
    let ended = unsafe { theirs.driver.cuMemPoolDestroy(own) };
    assert_eq!(ended, CUDA_SUCCESS);
    Machine::leave_all(machines);
}
