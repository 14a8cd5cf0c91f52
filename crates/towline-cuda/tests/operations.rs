//! Values that streams wait for and write: what waits is the device's stream, never the session's lane.
#![allow(
    clippy::multiple_unsafe_ops_per_block,
    reason = "calls of the C interface stand side by side"
)]

#[macro_use]
mod support;

use std::ptr::null_mut;
use std::time::{Duration, Instant};

use support::Machine;
use towline_backend::cuda::*;

on_every_device! {
    a_stream_waits_for_a_value_that_another_writes_later
    operations_of_a_batch_are_in_order_also_in_a_graph
    operations_that_cannot_be_are_refused_at_the_call
}

fn number(machine: &Machine, address: CUdeviceptr) -> u32 {
    let bytes = machine.bytes(address, 4);
    u32::from_ne_bytes(bytes.try_into().unwrap())
}

fn synchronise(machine: &Machine, stream: CUstream) {
    // SAFETY: no pointers.
    let done = unsafe { machine.driver.cuStreamSynchronize(stream) };
    assert_eq!(done, CUDA_SUCCESS);
}

fn a_stream_waits_for_a_value_that_another_writes_later(machine: Machine) {
    let (flag, result) = (machine.filled(&[0; 16]), machine.filled(&[0; 4]));
    let (waiting, writing) = (machine.stream(), machine.stream());
    let (posted, waits) = machine.costs(|driver| {
        // SAFETY: no pointers.
        unsafe {
            let geq = CU_STREAM_WAIT_VALUE_GEQ;
            let first = driver.cuStreamWaitValue32_v2(waiting, flag, 7, geq);
            let wide = driver.cuStreamWaitValue64_v2(waiting, flag + 8, 1 << 40, 1);
            let then = driver.cuStreamWriteValue32_v2(waiting, result, 99, 0);
            [first, wide, then]
        }
    });
    assert_eq!((posted, waits), ([CUDA_SUCCESS; 3], 0));
    // The lane goes on: this is answered while the first stream stands still.
    assert_eq!(number(&machine, result), 0);
    let (posted, waits) = machine.costs(|driver| {
        // SAFETY: no pointers.
        unsafe {
            let wide = driver.cuStreamWriteValue64_v2(writing, flag + 8, 1 << 40, 0);
            [driver.cuStreamWriteValue32_v2(writing, flag, 8, 0), wide]
        }
    });
    assert_eq!((posted, waits), ([CUDA_SUCCESS; 2], 0));
    synchronise(&machine, waiting);
    assert_eq!(number(&machine, result), 99);
    for address in [flag, result] {
        // SAFETY: the memory was allocated above.
        unsafe { machine.driver.cuMemFree_v2(address) };
    }
    machine.leave();
}

fn operation(kind: u32, address: u64, value: u64, flags: u32) -> CUstreamBatchMemOpParams {
    CUstreamBatchMemOpParams {
        pad: [u64::from(kind), address, value, u64::from(flags), 0, 0],
    }
}

fn operations_of_a_batch_are_in_order_also_in_a_graph(machine: Machine) {
    let (flag, stream) = (machine.filled(&[0; 8]), machine.stream());
    let driver = &machine.driver;
    let mut batch = [
        operation(CU_STREAM_MEM_OP_WRITE_VALUE_32, flag, 3, 0),
        operation(
            CU_STREAM_MEM_OP_WAIT_VALUE_32,
            flag,
            3,
            CU_STREAM_WAIT_VALUE_EQ,
        ),
        operation(CU_STREAM_MEM_OP_WRITE_VALUE_32, flag + 4, 4, 0),
    ];
    // SAFETY: the batch is as long as said.
    let posted = unsafe { driver.cuStreamBatchMemOp_v2(stream, 3, batch.as_mut_ptr(), 0) };
    assert_eq!(posted, CUDA_SUCCESS);
    synchronise(&machine, stream);
    assert_eq!(machine.bytes(flag, 8), [3, 0, 0, 0, 4, 0, 0, 0]);

    let (mut graph, mut exec) = (null_mut(), null_mut());
    // SAFETY: handles are locals, and made before they are used.
    let captured = unsafe {
        let mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        [
            driver.cuStreamBeginCapture_v2(stream, mode),
            driver.cuStreamWriteValue32_v2(stream, flag, 12, 0),
            driver.cuStreamWaitValue32_v2(stream, flag, 8, CU_STREAM_WAIT_VALUE_AND),
            driver.cuStreamEndCapture(stream, &raw mut graph),
            driver.cuGraphInstantiateWithFlags(&raw mut exec, graph, 0),
        ]
    };
    assert_eq!(captured, [CUDA_SUCCESS; 5]);
    assert_eq!(number(&machine, flag), 3);
    // SAFETY: no pointers.
    assert_eq!(unsafe { driver.cuGraphLaunch(exec, stream) }, CUDA_SUCCESS);
    synchronise(&machine, stream);
    assert_eq!(number(&machine, flag), 12);
    // SAFETY: each was made above.
    unsafe {
        driver.cuGraphExecDestroy(exec);
        driver.cuGraphDestroy(graph);
        driver.cuMemFree_v2(flag);
    }
    machine.leave();
}

fn operations_that_cannot_be_are_refused_at_the_call(machine: Machine) {
    let (flag, stream) = (machine.filled(&[0; 12]), machine.stream());
    let driver = &machine.driver;
    let mut one = operation(CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES, 0, 0, 0);
    let mut unknown = operation(77, flag, 0, 0);
    let many = std::ptr::dangling_mut();
    // SAFETY: batches are as long as said, or refused for their length.
    let refused = unsafe {
        [
            driver.cuStreamWriteValue32_v2(stream, 0x1000, 1, 0),
            driver.cuStreamWriteValue32_v2(stream, flag + 2, 1, 0),
            driver.cuStreamWriteValue32_v2(stream, flag + 12, 1, 0),
            driver.cuStreamWriteValue32_v2(stream, flag, 1, 2),
            driver.cuStreamWaitValue32_v2(stream, flag, 1, 4),
            driver.cuStreamWaitValue64_v2(stream, flag + 8, 1, 0),
            driver.cuStreamBatchMemOp_v2(stream, 1, &raw mut unknown, 0),
            driver.cuStreamBatchMemOp_v2(stream, 257, many, 0),
            driver.cuStreamBatchMemOp_v2(stream, 1, &raw mut one, 1),
            driver.cuStreamBatchMemOp_v2(stream, 1, null_mut(), 0),
        ]
    };
    assert_eq!(refused, [CUDA_ERROR_INVALID_VALUE; 10]);
    // SAFETY: as above.
    let unsupported = unsafe {
        let flush = CU_STREAM_WAIT_VALUE_FLUSH;
        [
            driver.cuStreamBatchMemOp_v2(stream, 1, &raw mut one, 0),
            driver.cuStreamWaitValue32_v2(stream, flag, 1, flush),
        ]
    };
    assert_eq!(unsupported, [CUDA_ERROR_NOT_SUPPORTED; 2]);
    synchronise(&machine, stream);
    assert_eq!(machine.bytes(flag, 12), [0; 12]);
    // SAFETY: the memory was allocated above.
    unsafe { driver.cuMemFree_v2(flag) };
    machine.leave();
}

fn attribute(machine: &Machine, stream: CUstream, which: CUstreamAttrID) -> (CUresult, u32) {
    let mut value = CUlaunchAttributeValue { pad: [0x7f; 64] };
    // SAFETY: the value is a local.
    let status = unsafe {
        machine
            .driver
            .cuStreamGetAttribute(stream, which, &raw mut value)
    };
    // SAFETY: every byte of it was written.
    (status, unsafe { value.memSyncDomain })
}

#[test]
fn attributes_of_streams_are_kept_copied_and_set_on_the_device_without_a_wait() {
    let machine = Machine::new();
    let (first, second) = (machine.stream(), machine.stream());
    let domain = CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN;
    let mut value = CUlaunchAttributeValue { pad: [0; 64] };
    value.memSyncDomain = CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE;
    let (set, waits) = machine.costs(|driver| {
        // SAFETY: the value is a whole one.
        unsafe {
            [
                driver.cuStreamSetAttribute(first, domain, &raw const value),
                driver.cuStreamCopyAttributes(second, first),
            ]
        }
    });
    assert_eq!((set, waits), ([CUDA_SUCCESS; 2], 0));
    assert_eq!(attribute(&machine, second, domain), (CUDA_SUCCESS, 1));
    let policy = CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY;
    assert_eq!(
        attribute(&machine, second, policy),
        (CUDA_SUCCESS, u32::MAX)
    );
    // What was posted before has been carried out once this has.
    let memory = machine.filled(&[0; 4]);
    assert_eq!(machine.nulls[0].stream_attributes().len(), 2);
    let cluster = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    assert_eq!(
        attribute(&machine, first, cluster).0,
        CUDA_ERROR_INVALID_VALUE
    );
    value.memSyncDomain = 2;
    // SAFETY: the value is a whole one.
    let refused = unsafe {
        machine
            .driver
            .cuStreamSetAttribute(first, domain, &raw const value)
    };
    assert_eq!(refused, CUDA_ERROR_INVALID_VALUE);
    // SAFETY: the memory was allocated above.
    unsafe { machine.driver.cuMemFree_v2(memory) };
    machine.leave();
}

#[test]
fn what_nobody_waits_for_arrives_however_far_requests_are_apart() {
    /// Nothing here takes longer, on a busy machine either.
    const PATIENCE: Duration = Duration::from_secs(20);
    const EVENTS: usize = 40;
    let machine = Machine::new();
    let arrived = |live: usize| {
        let deadline = Instant::now() + PATIENCE;
        while machine.nulls[0].live_objects() != live {
            assert!(Instant::now() < deadline, "a request has not left");
            std::thread::yield_now();
        }
    };
    let before = machine.nulls[0].live_objects();
    // Whoever sends looks, naps or sleeps, depending on that and on how many there are.
    for micros in [0, 4, 20, 45, 90, 150, 1_000] {
        let apart = || {
            let until = Instant::now() + Duration::from_micros(micros);
            while Instant::now() < until {
                std::hint::spin_loop();
            }
        };
        for events in [1, 2, 3, 5, EVENTS] {
            let mut made = [null_mut(); EVENTS];
            for event in &mut made[..events] {
                // SAFETY: one place for the event.
                let status = unsafe { machine.driver.cuEventCreate(event, 0) };
                assert_eq!(status, CUDA_SUCCESS);
                apart();
            }
            arrived(before + events);
            for event in &made[..events] {
                // SAFETY: the event is there, and destroyed once.
                let status = unsafe { machine.driver.cuEventDestroy_v2(*event) };
                assert_eq!(status, CUDA_SUCCESS);
                apart();
            }
            arrived(before);
        }
    }
}
