//! Graphs, over a worker on the host-memory device and on one in software: what is captured and built is carried out as it would be
//! natively.

mod changes;
mod refusals;
mod support;

use std::ffi::{CStr, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};

use changes::*;
use refusals::*;
use support::{Bench, ok};
use towline_backend::cuda::*;

const NON_BLOCKING: u32 = CU_STREAM_NON_BLOCKING;

/// Each rule is a test on every kind of device.
macro_rules! on_every_device {
    ($($rule:ident)*) => {
        mod null {
            $(#[test]
            fn $rule() {
                super::$rule(&super::Bench::on_null());
            })*
        }
        mod soft {
            $(#[test]
            fn $rule() {
                super::$rule(&super::Bench::on_soft());
            })*
        }
        // What is right, where the server's device is NVIDIA's: `tests/gpu/goldens.sh`.
        mod served {
            $(#[test]
            #[ignore = "TOWLINE_SERVERS names a server whose device the rules are asked of"]
            fn $rule() {
                super::$rule(&super::Bench::on_server());
            })*
        }
    };
}

on_every_device! {
    a_captured_sequence_runs_whenever_it_is_launched_and_only_making_it_waits
    host_memory_is_read_and_written_when_the_graph_runs
    bytes_that_a_graph_brings_to_the_host_are_there_before_it_sends_them
    functions_of_the_application_run_in_the_order_of_the_graph
    forks_by_events_join_or_the_capture_fails
    what_no_capture_allows_ends_its_worth_and_no_other_streams
    unsafe_calls_are_refused_as_the_modes_of_capture_and_thread_say
    a_capture_tells_its_graph_and_takes_other_dependencies
    graphs_in_graphs_are_copies_and_can_be_taken_apart
    a_graph_without_an_order_is_not_made_executable
    parameters_of_nodes_are_told_and_changed
    other_values_for_a_launch_are_told_and_come_in_order
    an_executable_graph_becomes_like_another_of_its_shape
    memory_that_a_graph_allocates_is_at_the_address_that_it_tells
    graph_memory_freed_elsewhere_comes_again
    graph_memory_freed_elsewhere_has_free_nodes
    memory_of_failed_capture_is_none
    told_parameters_outlive_setting_them
    graphs_need_a_context_where_they_do_on_a_gpu
    capture_into_body_ends_without_graph
    capture_goes_on_without_ended_stream
    a_conditional_body_runs_while_its_value_says_so
    calls_without_nodes_are_refused_in_any_capture
    capture_is_checked_before_other_parameters
    default_stream_is_refused_beside_blocking_capture
    only_relaxed_captures_bear_waits_for_other_streams
    questions_are_answered_until_a_capture_is_invalid
    captures_wait_for_events_of_their_own_only
    external_events_need_a_capture
    copy_between_contexts_ends_the_capture
    an_event_that_a_graph_records_orders_another_stream
    an_object_of_the_application_lives_as_long_as_graphs_hold_it
    clones_hold_objects_of_their_own
    child_graphs_hold_objects_of_their_own
    objects_outlive_launches_under_way
    updates_replace_held_objects
    changed_launches_keep_their_attributes
    child_graphs_of_other_length_are_refused
    failed_capture_into_body_is_told
    graphs_for_kernels_to_launch_are_refused
    updates_change_parameters_in_bodies
    a_drawing_names_every_node_and_edge
}

fn a_captured_sequence_runs_whenever_it_is_launched_and_only_making_it_waits(bench: &Bench) {
    let (stream, address) = (bench.stream(NON_BLOCKING), bench.allocate(64));
    let before = bench.waits();
    let graph = bench.captured(stream, || {
        // SAFETY: the memory is allocated.
        ok(unsafe { bench.driver.cuMemsetD32Async(address, 5, 4, stream) });
        ok(bench.add_one(stream, address, 4));
        ok(bench.add_one(stream, address, 2));
        // SAFETY: as above.
        ok(unsafe {
            bench
                .driver
                .cuMemcpyDtoDAsync_v2(address + 16, address, 16, stream)
        });
    });
    let kinds: Vec<_> = bench
        .nodes(graph)
        .into_iter()
        .map(|node| bench.kind(node))
        .collect();
    assert_eq!(
        kinds,
        [
            CU_GRAPH_NODE_TYPE_MEMSET,
            CU_GRAPH_NODE_TYPE_KERNEL,
            CU_GRAPH_NODE_TYPE_KERNEL,
            CU_GRAPH_NODE_TYPE_MEMCPY
        ]
    );
    assert_eq!(bench.waits() - before, 0, "capturing and asking are local");
    let exec = bench.instantiate(graph);
    assert_eq!(bench.waits() - before, 1, "the driver's verdict");
    // Nothing has run yet.
    assert_eq!(bench.read(address, 8), [0; 8]);
    let before = bench.waits();
    for _ in 0..3 {
        bench.launch(exec, stream);
    }
    bench.destroy(graph, exec);
    assert_eq!(bench.waits() - before, 0, "launches and ends are told");
    ok(bench.synchronise(stream));
    assert_eq!(bench.read(address, 8), [7, 7, 6, 6, 7, 7, 6, 6]);
}

fn host_memory_is_read_and_written_when_the_graph_runs(bench: &Bench) {
    let (stream, address) = (bench.stream(NON_BLOCKING), bench.allocate(1 << 20));
    for count in [4_usize, 200_000] {
        let size = count * 4;
        let mut source = vec![1_u32; count];
        let mut target = vec![0_u32; count];
        let from = source.as_mut_ptr();
        let graph = bench.captured(stream, || {
            // SAFETY: the memory lives as long as the graph.
            ok(unsafe {
                bench
                    .driver
                    .cuMemcpyHtoDAsync_v2(address, from.cast_const().cast(), size, stream)
            });
            ok(bench.add_one(stream, address, count as u32));
            let to = target.as_mut_ptr().cast();
            // SAFETY: as above.
            ok(unsafe { bench.driver.cuMemcpyDtoHAsync_v2(to, address, size, stream) });
        });
        assert_eq!(target, vec![0; count]);
        let exec = bench.instantiate(graph);
        for value in [10_u32, 20] {
            // SAFETY: no launch is under way.
            unsafe { std::slice::from_raw_parts_mut(from, count) }.fill(value);
            bench.launch(exec, stream);
            ok(bench.synchronise(stream));
            assert_eq!(target, vec![value + 1; count]);
        }
        bench.destroy(graph, exec);
    }
}

fn bytes_that_a_graph_brings_to_the_host_are_there_before_it_sends_them(bench: &Bench) {
    let (stream, address) = (bench.stream(NON_BLOCKING), bench.allocate(1 << 21));
    let count = 200_000_usize;
    let mut between = vec![0_u32; count];
    let place = between.as_mut_ptr();
    let half = address + (1 << 20);
    let graph = bench.captured(stream, || {
        ok(bench.add_one(stream, address, count as u32));
        // SAFETY: the memory lives as long as the graph.
        ok(unsafe {
            bench
                .driver
                .cuMemcpyDtoHAsync_v2(place.cast(), address, count * 4, stream)
        });
        // SAFETY: as above.
        ok(unsafe {
            bench
                .driver
                .cuMemcpyHtoDAsync_v2(half, place.cast_const().cast(), count * 4, stream)
        });
    });
    let exec = bench.instantiate(graph);
    for round in 1..=3 {
        bench.launch(exec, stream);
        ok(bench.synchronise(stream));
        assert_eq!(bench.read(half, count), vec![round; count]);
    }
    bench.destroy(graph, exec);
}

unsafe extern "C" fn bump(data: *mut c_void) {
    // SAFETY: the test gives a counter that outlives the graph.
    let counter = unsafe { &*data.cast::<AtomicU32>() };
    counter.fetch_add(1, Ordering::SeqCst);
}

fn functions_of_the_application_run_in_the_order_of_the_graph(bench: &Bench) {
    let (stream, address) = (bench.stream(NON_BLOCKING), bench.allocate(16));
    let counter = AtomicU32::new(41);
    let data = (&raw const counter).cast_mut().cast::<c_void>();
    let graph = bench.graph();
    let host = bench.add_host(graph, &[], bump, data);
    let location = counter.as_ptr().expose_provenance() as u64;
    let copy = bench.copy(
        (CU_MEMORYTYPE_HOST, location),
        (CU_MEMORYTYPE_DEVICE, address),
        4,
    );
    let up = bench.add_copy(graph, &[host], &copy);
    let kernel = bench.add_kernel(graph, &[up], bench.scale, address, [1, 10]);
    let copy = bench.copy(
        (CU_MEMORYTYPE_DEVICE, address),
        (CU_MEMORYTYPE_HOST, location),
        4,
    );
    let down = bench.add_copy(graph, &[kernel], &copy);
    bench.add_host(graph, &[down], bump, data);
    let exec = bench.instantiate(graph);
    bench.launch(exec, stream);
    ok(bench.synchronise(stream));
    // 41 + 1, sent, times 10, brought back, + 1.
    assert_eq!(counter.load(Ordering::SeqCst), 421);
    bench.launch(exec, stream);
    ok(bench.synchronise(stream));
    assert_eq!(counter.load(Ordering::SeqCst), 4221);
    bench.destroy(graph, exec);
}

fn forks_by_events_join_or_the_capture_fails(bench: &Bench) {
    let (one, two) = (bench.stream(NON_BLOCKING), bench.stream(NON_BLOCKING));
    let (fork, join, address) = (bench.event(), bench.event(), bench.allocate(16));
    let graph = bench.captured(one, || {
        ok(bench.add_one(one, address, 1));
        ok(bench.record(fork, one));
        ok(bench.wait_event(two, fork));
        assert_eq!(bench.state(two), (CUDA_SUCCESS, 1));
        ok(bench.add_one(two, address + 4, 1));
        ok(bench.add_one(one, address + 8, 1));
        ok(bench.record(join, two));
        ok(bench.wait_event(one, join));
        ok(bench.add_one(one, address, 3));
    });
    assert_eq!(bench.state(two), (CUDA_SUCCESS, 0));
    let mut count = 0;
    // SAFETY: the count is a local.
    ok(unsafe {
        bench
            .driver
            .cuGraphGetEdges(graph, null_mut(), null_mut(), &raw mut count)
    });
    assert_eq!(count, 4, "a diamond has four edges");
    let exec = bench.instantiate(graph);
    bench.launch(exec, one);
    ok(bench.synchronise(one));
    assert_eq!(bench.read(address, 3), [2, 2, 2]);
    bench.destroy(graph, exec);

    ok(bench.begin(one, CU_STREAM_CAPTURE_MODE_GLOBAL));
    ok(bench.record(fork, one));
    ok(bench.wait_event(two, fork));
    ok(bench.add_one(two, address, 1));
    assert_eq!(bench.end(two).0, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    let (status, graph) = bench.end(one);
    assert!(graph.is_null());
    assert_eq!(status, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

    ok(bench.begin(one, CU_STREAM_CAPTURE_MODE_GLOBAL));
    ok(bench.record(fork, one));
    ok(bench.wait_event(two, fork));
    ok(bench.add_one(two, address, 1));
    assert_eq!(
        bench.end(one),
        (CUDA_ERROR_STREAM_CAPTURE_UNJOINED, null_mut())
    );
    assert_eq!(bench.state(two), (CUDA_SUCCESS, 0));
}

fn what_no_capture_allows_ends_its_worth_and_no_other_streams(bench: &Bench) {
    let (one, two) = (bench.stream(NON_BLOCKING), bench.stream(NON_BLOCKING));
    let (blocking, address) = (bench.stream(0), bench.allocate(16));
    let (outside, inside) = (bench.event(), bench.event());
    ok(bench.record(outside, two));
    let attempts: [(&dyn Fn() -> CUresult, CUresult); 5] = [
        (
            &|| bench.synchronise(one),
            CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
        ),
        (
            // SAFETY: has no pointers.
            &|| unsafe { bench.driver.cuStreamQuery(one) },
            CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
        ),
        (
            // SAFETY: has no pointers.
            &|| unsafe { bench.driver.cuCtxSynchronize() },
            CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
        ),
        (
            &|| bench.wait_event(one, outside),
            CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
        ),
        (
            &|| {
                ok(bench.record(inside, one));
                // SAFETY: has no pointers.
                unsafe { bench.driver.cuEventQuery(inside) }
            },
            CUDA_ERROR_CAPTURED_EVENT,
        ),
    ];
    for (attempt, expected) in attempts {
        ok(bench.begin(one, CU_STREAM_CAPTURE_MODE_RELAXED));
        assert_eq!(attempt(), expected);
        assert_eq!(bench.state(one), (CUDA_SUCCESS, 2));
        let refused = bench.add_one(one, address, 1);
        assert_eq!(refused, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        ok(bench.add_one(two, address, 1));
        let ended = bench.end(one);
        assert_eq!(ended, (CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, null_mut()));
        assert_eq!(bench.state(one), (CUDA_SUCCESS, 0));
    }
    // A stream that keeps order with the default one: that must be left alone.
    ok(bench.begin(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
    assert_eq!(
        bench.state(null_mut()).0,
        CUDA_ERROR_STREAM_CAPTURE_IMPLICIT
    );
    assert_eq!(bench.state(blocking), (CUDA_SUCCESS, 1));
    let refused = bench.add_one(null_mut(), address, 1);
    assert_eq!(refused, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    assert_eq!(bench.end(blocking).0, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    // Two captures do not become one.
    ok(bench.begin(one, CU_STREAM_CAPTURE_MODE_RELAXED));
    ok(bench.begin(two, CU_STREAM_CAPTURE_MODE_RELAXED));
    ok(bench.record(inside, one));
    let merged = bench.wait_event(two, inside);
    assert_eq!(merged, CUDA_ERROR_STREAM_CAPTURE_MERGE);
    assert_eq!(bench.end(one).0, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_eq!(bench.end(two).0, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_eq!(bench.end(two).0, CUDA_ERROR_ILLEGAL_STATE);
    assert_eq!(
        bench.begin(null_mut(), 0),
        CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
    );
}

/// What a thread with a mode is told of an allocation, and whether the capture of `mode` survives it.
fn endangered(bench: &Bench, mode: u32, thread_mode: u32, elsewhere: bool) -> (CUresult, bool) {
    let stream = bench.stream(NON_BLOCKING);
    ok(bench.begin(stream, mode));
    let attempt = || {
        bench.enter();
        let (mut before, mut address) = (thread_mode, 0);
        // SAFETY: the mode is a local.
        ok(unsafe {
            bench
                .driver
                .cuThreadExchangeStreamCaptureMode(&raw mut before)
        });
        // SAFETY: the address is a local.
        let said = unsafe { bench.driver.cuMemAlloc_v2(&raw mut address, 64) };
        // SAFETY: as above.
        ok(unsafe {
            bench
                .driver
                .cuThreadExchangeStreamCaptureMode(&raw mut before)
        });
        said
    };
    let said = match elsewhere {
        true => std::thread::scope(|scope| scope.spawn(attempt).join().unwrap()),
        false => attempt(),
    };
    let (ended, _) = bench.end(stream);
    (said, ended == CUDA_SUCCESS)
}

fn unsafe_calls_are_refused_as_the_modes_of_capture_and_thread_say(bench: &Bench) {
    let (global, local, relaxed) = (0, 1, 2);
    let refused = (CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, false);
    let taken = (CUDA_SUCCESS, true);
    // In the thread that captures.
    assert_eq!(endangered(bench, global, global, false), refused);
    assert_eq!(endangered(bench, local, global, false), refused);
    assert_eq!(endangered(bench, relaxed, global, false), taken);
    assert_eq!(endangered(bench, global, local, false), refused);
    assert_eq!(endangered(bench, global, relaxed, false), taken);
    // In another.
    assert_eq!(endangered(bench, global, global, true), refused);
    assert_eq!(endangered(bench, local, global, true), taken);
    assert_eq!(endangered(bench, global, local, true), taken);
    assert_eq!(endangered(bench, global, relaxed, true), taken);
    let stream = bench.stream(NON_BLOCKING);
    ok(bench.begin(stream, local));
    let number = stream.expose_provenance();
    let ended = std::thread::scope(|scope| {
        let end = || {
            bench.enter();
            bench.end(std::ptr::with_exposed_provenance_mut(number)).0
        };
        scope.spawn(end).join().unwrap()
    });
    assert_eq!(ended, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    // It has ended nevertheless.
    assert_eq!(bench.end(stream).0, CUDA_ERROR_ILLEGAL_STATE);
}

fn a_capture_tells_its_graph_and_takes_other_dependencies(bench: &Bench) {
    let (stream, address) = (bench.stream(NON_BLOCKING), bench.allocate(16));
    let graph = bench.graph();
    let first = bench.add_kernel(graph, &[], bench.add_one, address, [1, 0]);
    let second = bench.add_kernel(graph, &[], bench.add_one, address + 4, [1, 0]);
    // SAFETY: one dependency.
    ok(unsafe {
        bench.driver.cuStreamBeginCaptureToGraph(
            stream,
            graph,
            &raw const first,
            null(),
            1,
            CU_STREAM_CAPTURE_MODE_RELAXED,
        )
    });
    let (mut state, mut id, mut told) = (0, 0, null_mut());
    let (mut nodes, mut edges, mut count) = (null(), null(), 0);
    // SAFETY: all are locals.
    ok(unsafe {
        bench.driver.cuStreamGetCaptureInfo_v3(
            stream,
            &raw mut state,
            &raw mut id,
            &raw mut told,
            &raw mut nodes,
            &raw mut edges,
            &raw mut count,
        )
    });
    assert_eq!((state, told, count), (1, graph, 1));
    assert_ne!(id, 0);
    // SAFETY: there is one.
    assert_eq!(unsafe { nodes.read() }, first);
    let mut more = [second];
    // SAFETY: one dependency.
    ok(unsafe {
        bench
            .driver
            .cuStreamUpdateCaptureDependencies(stream, more.as_mut_ptr(), 1, 0)
    });
    ok(bench.add_one(stream, address + 8, 1));
    let (status, ended) = bench.end(stream);
    assert_eq!((status, ended), (CUDA_SUCCESS, graph));
    let last = bench.nodes(graph)[2];
    let mut count = 9;
    let mut before = [null_mut(); 9];
    // SAFETY: there is room.
    ok(unsafe {
        bench
            .driver
            .cuGraphNodeGetDependencies(last, before.as_mut_ptr(), &raw mut count)
    });
    assert_eq!(
        (count, before[0], before[1], before[2]),
        (2, first, second, null_mut())
    );
}

fn graphs_in_graphs_are_copies_and_can_be_taken_apart(bench: &Bench) {
    let (stream, address) = (bench.stream(NON_BLOCKING), bench.allocate(16));
    bench.write(address, &[1, 0, 0, 0]);
    let inner = bench.graph();
    let one = bench.add_kernel(inner, &[], bench.add_one, address, [1, 0]);
    bench.add_kernel(inner, &[one], bench.scale, address, [1, 3]);
    let outer = bench.graph();
    let before = bench.add_kernel(outer, &[], bench.scale, address, [1, 5]);
    let mut child = null_mut();
    // SAFETY: one dependency.
    ok(unsafe {
        bench
            .driver
            .cuGraphAddChildGraphNode(&raw mut child, outer, &raw const before, 1, inner)
    });
    bench.add_kernel(outer, &[child], bench.add_one, address, [1, 0]);
    // What becomes of the inner graph is nothing to the copy.
    // SAFETY: has no pointers.
    ok(unsafe { bench.driver.cuGraphDestroy(inner) });
    let mut own = null_mut();
    // SAFETY: the place is a local.
    ok(unsafe {
        bench
            .driver
            .cuGraphChildGraphNodeGetGraph(child, &raw mut own)
    });
    assert_eq!(bench.nodes(own).len(), 2);
    // SAFETY: has no pointers.
    let refused = unsafe { bench.driver.cuGraphDestroy(own) };
    assert_eq!(refused, CUDA_ERROR_INVALID_VALUE, "it is the node's");
    let exec = bench.instantiate(outer);
    bench.launch(exec, stream);
    ok(bench.synchronise(stream));
    assert_eq!(bench.read(address, 1), [(5 + 1) * 3 + 1]);

    let mut clone = null_mut();
    // SAFETY: the place is a local.
    ok(unsafe { bench.driver.cuGraphClone(&raw mut clone, outer) });
    let mut found = null_mut();
    // SAFETY: the place is a local.
    ok(unsafe {
        bench
            .driver
            .cuGraphNodeFindInClone(&raw mut found, child, clone)
    });
    assert!(bench.nodes(clone).contains(&found));
    // SAFETY: has no pointers.
    ok(unsafe { bench.driver.cuGraphDestroyNode(found) });
    let mut find = |node, graph| {
        // SAFETY: the place is a local.
        let said = unsafe {
            bench
                .driver
                .cuGraphNodeFindInClone(&raw mut found, node, graph)
        };
        (said, found.is_null())
    };
    // The place is left alone for a node or graph that is none.
    let left = (CUDA_ERROR_INVALID_VALUE, false);
    assert_eq!(
        [find(null_mut(), clone), find(child, null_mut())],
        [left; 2]
    );
    assert_eq!(find(child, clone), (CUDA_ERROR_INVALID_VALUE, true));
    assert_eq!((bench.nodes(clone).len(), bench.nodes(outer).len()), (2, 3));
    bench.destroy(outer, exec);
}

fn a_graph_without_an_order_is_not_made_executable(bench: &Bench) {
    let graph = bench.graph();
    let (one, two) = (bench.empty(graph, &[]), bench.empty(graph, &[]));
    ok(bench.tie(graph, one, two));
    assert_eq!(bench.tie(graph, one, two), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(bench.tie(graph, one, one), CUDA_ERROR_INVALID_VALUE);
    ok(bench.tie(graph, two, one));
    let mut exec = null_mut();
    let mut params = CUDA_GRAPH_INSTANTIATE_PARAMS {
        flags: 0,
        hUploadStream: null_mut(),
        hErrNode_out: null_mut(),
        result_out: 9,
    };
    // SAFETY: both are locals.
    let refused = unsafe {
        bench
            .driver
            .cuGraphInstantiateWithParams(&raw mut exec, graph, &raw mut params)
    };
    assert_eq!(refused, CUDA_ERROR_INVALID_VALUE);
    assert_eq!(params.result_out, CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE);
    // SAFETY: one edge.
    ok(unsafe {
        bench
            .driver
            .cuGraphRemoveDependencies(graph, &raw const two, &raw const one, 1)
    });
    bench.instantiate(graph);
}

fn parameters_of_nodes_are_told_and_changed(bench: &Bench) {
    let (stream, address) = (bench.stream(NON_BLOCKING), bench.allocate(16));
    bench.write(address, &[1, 1, 1, 1]);
    let graph = bench.graph();
    let node = bench.add_kernel(graph, &[], bench.scale, address, [1, 7]);
    let read = || {
        let mut told = std::mem::MaybeUninit::<CUDA_KERNEL_NODE_PARAMS>::zeroed();
        let place = told.as_mut_ptr();
        // SAFETY: there is room.
        ok(unsafe { bench.driver.cuGraphKernelNodeGetParams_v2(node, place) });
        // SAFETY: it was written.
        let told = unsafe { told.assume_init() };
        let third = told.kernelParams.wrapping_add(2);
        // SAFETY: the kernel has three parameters.
        let factor = unsafe { third.read() }.cast::<u32>();
        // SAFETY: the third is a number.
        (told.func, told.blockDimX, unsafe { factor.read() })
    };
    assert_eq!(read(), (bench.scale, 32, 7));
    ok(bench.kernel(bench.scale, address, [2, 9], |params| {
        // SAFETY: the parameters are as they must be.
        unsafe { bench.driver.cuGraphKernelNodeSetParams_v2(node, params) }
    }));
    assert_eq!(read(), (bench.scale, 32, 9));
    let exec = bench.instantiate(graph);
    bench.launch(exec, stream);
    ok(bench.synchronise(stream));
    assert_eq!(bench.read(address, 3), [9, 9, 1]);
    // The executable graph has its own.
    ok(bench.kernel(bench.scale, address, [3, 2], |params| {
        // SAFETY: as above.
        unsafe {
            bench
                .driver
                .cuGraphExecKernelNodeSetParams_v2(exec, node, params)
        }
    }));
    assert_eq!(read(), (bench.scale, 32, 9));
    bench.launch(exec, stream);
    ok(bench.synchronise(stream));
    assert_eq!(bench.read(address, 3), [18, 18, 2]);
    // Off and on again.
    for (enabled, expected) in [(0, [18, 18, 2]), (1, [36, 36, 4])] {
        // SAFETY: has no pointers.
        ok(unsafe { bench.driver.cuGraphNodeSetEnabled(exec, node, enabled) });
        let mut told = 9;
        // SAFETY: the place is a local.
        ok(unsafe {
            bench
                .driver
                .cuGraphNodeGetEnabled(exec, node, &raw mut told)
        });
        assert_eq!(told, enabled);
        bench.launch(exec, stream);
        ok(bench.synchronise(stream));
        assert_eq!(bench.read(address, 3), expected);
    }
    bench.destroy(graph, exec);
}

/// Has a launch of an executable graph multiply `count` numbers by `factor`, with so many threads.
fn rescale(
    bench: &Bench,
    (exec, node): (CUgraphExec, CUgraphNode),
    address: u64,
    [count, factor]: [u32; 2],
    threads: u32,
) {
    ok(
        bench.kernel(bench.scale, address, [count, factor], |params| {
            // SAFETY: the parameters are as they must be.
            let mut params = unsafe { params.read() };
            params.blockDimX = threads;
            let driver = &bench.driver;
            // SAFETY: as above.
            unsafe { driver.cuGraphExecKernelNodeSetParams_v2(exec, node, &raw const params) }
        }),
    );
}

fn other_values_for_a_launch_are_told_and_come_in_order(bench: &Bench) {
    const NUMBERS: usize = 4 << 20;
    let (stream, other) = (bench.stream(NON_BLOCKING), bench.stream(NON_BLOCKING));
    let address = bench.allocate(NUMBERS * 4);
    bench.write(address, &[1, 1, 1]);
    let graph = bench.graph();
    let node = bench.add_kernel(graph, &[], bench.scale, address, [1, 1]);
    let exec = bench.instantiate(graph);
    bench.launch(exec, stream);
    let waits = bench.waits();
    for [count, factor] in [[3, 2], [2, 3], [1, 5]] {
        rescale(bench, (exec, node), address, [count, factor], 32);
        bench.launch(exec, stream);
    }
    assert_eq!(bench.waits() - waits, 0, "values are told");
    ok(bench.synchronise(stream));
    assert_eq!(bench.read(address, 3), [30, 6, 2]);
    let waits = bench.waits();
    rescale(bench, (exec, node), address, [1, 5], 16);
    assert_eq!(
        bench.waits() - waits,
        1,
        "the driver judges another number of threads"
    );
    // The launches wait for what is on its way to the device, and so do the changes between them.
    let mut ones: *mut c_void = null_mut();
    // SAFETY: the place is a local.
    ok(unsafe { bench.driver.cuMemHostAlloc(&raw mut ones, NUMBERS * 4, 0) });
    // SAFETY: there is room for so many, and nobody else knows of it.
    unsafe { std::slice::from_raw_parts_mut(ones.cast::<u32>(), NUMBERS) }.fill(1);
    let on_its_way = || {
        let driver = &bench.driver;
        // SAFETY: the numbers outlive the copy, for which this test waits.
        ok(unsafe { driver.cuMemcpyHtoDAsync_v2(address, ones, NUMBERS * 4, stream) });
    };
    let waits = bench.waits();
    on_its_way();
    bench.launch(exec, stream);
    for [count, factor] in [[3, 2], [2, 3]] {
        rescale(bench, (exec, node), address, [count, factor], 16);
        bench.launch(exec, stream);
    }
    assert_eq!(bench.waits() - waits, 0);
    ok(bench.synchronise(stream));
    assert_eq!(bench.read(address, 4), [30, 6, 2, 1]);
    // A launch on another stream, too, is as the last change has it, and those before are not.
    let elsewhere = bench.allocate(16);
    bench.write(elsewhere, &[1]);
    on_its_way();
    bench.launch(exec, stream);
    rescale(bench, (exec, node), elsewhere, [1, 7], 16);
    bench.launch(exec, other);
    ok(bench.synchronise(stream));
    ok(bench.synchronise(other));
    assert_eq!(bench.read(address, 3), [3, 3, 1]);
    assert_eq!(bench.read(elsewhere, 1), [7]);
    // So does a change after the streams are gone, for which there is no order then.
    for stream in [stream, other] {
        // SAFETY: nothing is on it.
        ok(unsafe { bench.driver.cuStreamDestroy_v2(stream) });
    }
    bench.write(address, &[1, 1]);
    rescale(bench, (exec, node), address, [2, 9], 16);
    let stream = bench.stream(NON_BLOCKING);
    bench.launch(exec, stream);
    ok(bench.synchronise(stream));
    assert_eq!(bench.read(address, 2), [9, 9]);
    // SAFETY: nothing uses it any more.
    ok(unsafe { bench.driver.cuMemFreeHost(ones) });
    bench.destroy(graph, exec);
}

fn update(bench: &Bench, exec: CUgraphExec, graph: CUgraph) -> (CUresult, u32) {
    let mut told = CUgraphExecUpdateResultInfo {
        result: 99,
        errorNode: null_mut(),
        errorFromNode: null_mut(),
    };
    // SAFETY: the place is a local.
    let said = unsafe {
        bench
            .driver
            .cuGraphExecUpdate_v2(exec, graph, &raw mut told)
    };
    (said, told.result)
}

fn an_executable_graph_becomes_like_another_of_its_shape(bench: &Bench) {
    let (stream, address) = (bench.stream(NON_BLOCKING), bench.allocate(1 << 20));
    let mut buffers = [vec![0_u32; 60_000], vec![0_u32; 60_000]];
    let mut capture = |which: usize, count: u32| {
        bench.captured(stream, || {
            ok(bench.add_one(stream, address, count));
            let place = buffers[which].as_mut_ptr().cast();
            // SAFETY: the buffers outlive the graphs.
            ok(unsafe {
                bench
                    .driver
                    .cuMemcpyDtoHAsync_v2(place, address, 240_000, stream)
            });
        })
    };
    let (first, second) = (capture(0, 1), capture(1, 60_000));
    let exec = bench.instantiate(first);
    bench.launch(exec, stream);
    let before = bench.waits();
    assert_eq!(update(bench, exec, second), (CUDA_SUCCESS, 0));
    assert_eq!(update(bench, exec, second), (CUDA_SUCCESS, 0));
    let of_nothing = update(bench, null_mut(), second);
    assert_eq!(of_nothing, (CUDA_ERROR_INVALID_VALUE, 99));
    assert_eq!(
        bench.waits() - before,
        0,
        "a value, and memory of the application"
    );
    bench.launch(exec, stream);
    ok(bench.synchronise(stream));
    assert_eq!((buffers[0][0], buffers[0][1]), (1, 0));
    assert_eq!((buffers[1][0], buffers[1][59_999]), (2, 1));
    let other = bench.captured(stream, || ok(bench.add_one(stream, address, 1)));
    assert_eq!(
        update(bench, exec, other),
        (
            CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
            CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED
        )
    );
    let other = bench.captured(stream, || {
        ok(bench.add_one(stream, address, 1));
        ok(bench.add_one(stream, address, 1));
    });
    assert_eq!(
        update(bench, exec, other),
        (
            CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
            CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED
        )
    );
}

fn memory_that_a_graph_allocates_is_at_the_address_that_it_tells(bench: &Bench) {
    let (stream, result) = (bench.stream(NON_BLOCKING), bench.allocate(16));
    let before = bench.held();
    let mut address = 0;
    let graph = bench.captured(stream, || {
        // SAFETY: the place is a local.
        ok(unsafe { bench.driver.cuMemAllocAsync(&raw mut address, 64, stream) });
        // SAFETY: the memory is allocated when this runs.
        ok(unsafe { bench.driver.cuMemsetD32Async(address, 3, 16, stream) });
        ok(bench.add_one(stream, address, 16));
        // SAFETY: as above.
        ok(unsafe {
            bench
                .driver
                .cuMemcpyDtoDAsync_v2(result, address, 16, stream)
        });
        // SAFETY: as above.
        ok(unsafe { bench.driver.cuMemFreeAsync(address, stream) });
    });
    let kinds: Vec<_> = bench
        .nodes(graph)
        .into_iter()
        .map(|node| bench.kind(node))
        .collect();
    assert_eq!(kinds[0], CU_GRAPH_NODE_TYPE_MEM_ALLOC);
    assert_eq!(kinds[4], CU_GRAPH_NODE_TYPE_MEM_FREE);
    let exec = bench.instantiate(graph);
    bench.launch(exec, stream);
    bench.launch(exec, stream);
    ok(bench.synchronise(stream));
    assert_eq!(bench.read(result, 4), [4; 4]);
    let last = bench.nodes(graph)[4];
    // SAFETY: has no pointers.
    let refused = unsafe { bench.driver.cuGraphDestroyNode(last) };
    assert_eq!(refused, CUDA_ERROR_NOT_SUPPORTED);
    // Made executable again after it has grown.
    // SAFETY: has no pointers.
    ok(unsafe { bench.driver.cuGraphExecDestroy(exec) });
    bench.add_kernel(graph, &[last], bench.add_one, result, [4, 0]);
    let exec = bench.instantiate(graph);
    bench.launch(exec, stream);
    ok(bench.synchronise(stream));
    assert_eq!(bench.read(result, 4), [5; 4]);
    bench.destroy(graph, exec);
    ok(bench.synchronise(stream));
    // The server ends the executable graph on a thread of its own. Of a GPU others may have given memory back too.
    let after = bench.held_at_last(before);
    assert!(after <= before, "{after} bytes held, {before} before");
}

fn memory_of_failed_capture_is_none(bench: &Bench) {
    let stream = bench.stream(NON_BLOCKING);
    let driver = &bench.driver;
    let (mut address, mut graph) = (0, std::ptr::null_mut());
    ok(bench.begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    // SAFETY: the place is a local.
    ok(unsafe { driver.cuMemAllocAsync(&raw mut address, 64, stream) });
    // SAFETY: the stream lives.
    let asked = unsafe { driver.cuStreamQuery(stream) };
    assert_eq!(asked, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    // SAFETY: the place is a local.
    let ended = unsafe { driver.cuStreamEndCapture(stream, &raw mut graph) };
    assert_eq!(ended, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    ok(bench.begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    // SAFETY: nothing is at the address.
    let freed = unsafe { driver.cuMemFreeAsync(address, stream) };
    assert_eq!(freed, CUDA_ERROR_INVALID_VALUE);
    // SAFETY: the place is a local.
    unsafe { driver.cuStreamEndCapture(stream, &raw mut graph) };
}

/// As `graphMemoryNodes` of NVIDIA's samples does it: between two launches of who allocates it, another graph comes to free it.
fn graph_memory_freed_elsewhere_has_free_nodes(bench: &Bench) {
    let stream = bench.stream(NON_BLOCKING);
    let driver = &bench.driver;
    let mut address = 0;
    let graph = bench.captured(stream, || {
        // SAFETY: the place is a local.
        ok(unsafe { driver.cuMemAllocAsync(&raw mut address, 64, stream) });
    });
    let exec = bench.instantiate(graph);
    bench.launch(exec, stream);
    // SAFETY: nothing uses the memory later.
    ok(unsafe { driver.cuMemFreeAsync(address, stream) });
    // SAFETY: as above.
    let again = unsafe { driver.cuMemFreeAsync(address, stream) };
    assert_eq!(again, CUDA_ERROR_INVALID_VALUE);
    let (mut freeing, mut node) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: the place is a local.
    ok(unsafe { driver.cuGraphCreate(&raw mut freeing, 0) });
    let none = std::ptr::null();
    // SAFETY: the place is a local, and there are no dependencies.
    ok(unsafe { driver.cuGraphAddMemFreeNode(&raw mut node, freeing, none, 0, address) });
    let free = bench.instantiate(freeing);
    for _ in 0..2 {
        bench.launch(exec, stream);
        bench.launch(free, stream);
    }
    ok(bench.synchronise(stream));
    bench.destroy(freeing, free);
    bench.destroy(graph, exec);
}

fn graph_memory_freed_elsewhere_comes_again(bench: &Bench) {
    let (stream, result) = (bench.stream(NON_BLOCKING), bench.allocate(16));
    let driver = &bench.driver;
    let mut address = 0;
    let graph = bench.captured(stream, || {
        // SAFETY: the place is a local.
        ok(unsafe { driver.cuMemAllocAsync(&raw mut address, 64, stream) });
        // SAFETY: the memory is allocated when this runs.
        ok(unsafe { driver.cuMemsetD32Async(address, 3, 16, stream) });
    });
    let exec = bench.instantiate(graph);
    let run = || {
        bench.launch(exec, stream);
        // SAFETY: has no pointers.
        let again = unsafe { driver.cuGraphLaunch(exec, stream) };
        assert_eq!(again, CUDA_ERROR_INVALID_VALUE);
        ok(bench.add_one(stream, address, 1));
        // SAFETY: both are allocated.
        ok(unsafe { driver.cuMemcpyDtoDAsync_v2(result, address, 16, stream) });
    };
    run();
    ok(bench.synchronise(stream));
    // SAFETY: nothing uses the memory later.
    ok(unsafe { driver.cuMemFree_v2(address) });
    run();
    // SAFETY: as above.
    ok(unsafe { driver.cuMemFreeAsync(address, stream) });
    run();
    let (other, mut node) = (bench.graph(), null_mut());
    // SAFETY: no dependencies are given.
    let freed = unsafe { driver.cuGraphAddMemFreeNode(&raw mut node, other, null(), 0, result) };
    assert_eq!(freed, CUDA_ERROR_INVALID_VALUE, "no graph's");
    // SAFETY: it is refused before the dependencies are read.
    let child = unsafe { driver.cuGraphAddChildGraphNode(&raw mut node, other, null(), 1, graph) };
    assert_eq!(child, CUDA_ERROR_NOT_SUPPORTED);
    // SAFETY: no dependencies are given.
    ok(unsafe { driver.cuGraphAddMemFreeNode(&raw mut node, other, null(), 0, address) });
    let freeing = bench.instantiate(other);
    bench.launch(freeing, stream);
    run();
    ok(bench.synchronise(stream));
    assert_eq!(bench.read(result, 2), [4, 3]);
    bench.destroy(other, freeing);
    bench.destroy(graph, exec);
}

/// The statuses are an H100's, with driver 580.159.
fn graphs_need_a_context_where_they_do_on_a_gpu(bench: &Bench) {
    let (driver, graph, address) = (&bench.driver, bench.graph(), bench.allocate(16));
    let (mut node, mut exec) = (null_mut(), null_mut());
    let fill = CUDA_MEMSET_NODE_PARAMS {
        dst: address,
        pitch: 0,
        value: 5,
        elementSize: 4,
        width: 4,
        height: 1,
    };
    // SAFETY: zeros are one.
    let params: CUDA_KERNEL_NODE_PARAMS = unsafe { std::mem::zeroed() };
    let (params, fill, none) = (&raw const params, &raw const fill, null_mut());
    // SAFETY: has no pointers.
    ok(unsafe { driver.cuCtxSetCurrent(null_mut()) });
    // SAFETY: the parameters are a local.
    let set = unsafe { driver.cuGraphKernelNodeSetParams_v2(null_mut(), params) };
    assert_eq!(set, CUDA_ERROR_INVALID_VALUE);
    // SAFETY: the place and the parameters are locals.
    ok(unsafe { driver.cuGraphAddMemsetNode(&raw mut node, graph, null(), 0, fill, none) });
    // SAFETY: the place is a local.
    let made = unsafe { driver.cuGraphInstantiateWithFlags(&raw mut exec, graph, 0) };
    assert_eq!(made, CUDA_ERROR_INVALID_CONTEXT);
    bench.enter();
    let (exec, stream) = (bench.instantiate(graph), bench.stream(NON_BLOCKING));
    bench.launch(exec, stream);
    ok(bench.synchronise(stream));
    assert_eq!(bench.read(address, 4), [5; 4]);
    bench.destroy(graph, exec);
}

fn told_parameters_outlive_setting_them(bench: &Bench) {
    let (stream, address) = (bench.stream(NON_BLOCKING), bench.allocate(16));
    let driver = &bench.driver;
    bench.write(address, &[1, 1]);
    let graph = bench.graph();
    let node = bench.add_kernel(graph, &[], bench.scale, address, [1, 7]);
    let mut told = std::mem::MaybeUninit::<CUDA_KERNEL_NODE_PARAMS>::zeroed();
    // SAFETY: there is room.
    ok(unsafe { driver.cuGraphKernelNodeGetParams_v2(node, told.as_mut_ptr()) });
    // SAFETY: it was written.
    let told = unsafe { told.assume_init() };
    let exec = bench.instantiate(graph);
    let third = told.kernelParams.wrapping_add(2);
    let mut factors = [2_u32, 3];
    for factor in &mut factors {
        // SAFETY: the kernel has three parameters.
        unsafe { third.write((&raw mut *factor).cast()) };
        // SAFETY: the parameters are the node's own but for one.
        ok(unsafe { driver.cuGraphKernelNodeSetParams_v2(node, &raw const told) });
        // SAFETY: as above.
        ok(unsafe { driver.cuGraphExecKernelNodeSetParams_v2(exec, node, &raw const told) });
        bench.launch(exec, stream);
        ok(bench.synchronise(stream));
    }
    assert_eq!(bench.read(address, 2), [6, 1]);
    bench.destroy(graph, exec);
}

fn capture_into_body_ends_without_graph(bench: &Bench) {
    let (stream, address) = (bench.stream(NON_BLOCKING), bench.allocate(16));
    let (driver, graph) = (&bench.driver, bench.graph());
    bench.write(address, &[5, 0]);
    let (body, handle) = bench.while_node(graph);
    // SAFETY: no dependencies are given.
    ok(unsafe { driver.cuStreamBeginCaptureToGraph(stream, body, null(), null(), 0, 0) });
    ok(bench.add_one(stream, address + 4, 1));
    let halves = [handle as u32, (handle >> 32) as u32];
    ok(bench.kernel(bench.count_down, address, halves, |params| {
        // SAFETY: the parameters are as they must be.
        let params = unsafe { params.read() };
        // SAFETY: as above.
        unsafe {
            driver.cuLaunchKernel(
                params.func,
                1,
                1,
                1,
                1,
                1,
                1,
                0,
                stream,
                params.kernelParams,
                null_mut(),
            )
        }
    }));
    // SAFETY: no graph is asked for.
    ok(unsafe { driver.cuStreamEndCapture(stream, null_mut()) });
    let exec = bench.instantiate(graph);
    bench.launch(exec, stream);
    ok(bench.synchronise(stream));
    assert_eq!(bench.read(address, 2), [0, 5]);
    bench.destroy(graph, exec);
}

fn capture_goes_on_without_ended_stream(bench: &Bench) {
    let (one, two) = (bench.stream(NON_BLOCKING), bench.stream(NON_BLOCKING));
    let (fork, join, address) = (bench.event(), bench.event(), bench.allocate(16));
    bench.write(address, &[1, 1]);
    let graph = bench.captured(one, || {
        ok(bench.record(fork, one));
        ok(bench.wait_event(two, fork));
        ok(bench.add_one(two, address, 1));
        ok(bench.record(join, two));
        ok(bench.wait_event(one, join));
        // SAFETY: has no pointers.
        ok(unsafe { bench.driver.cuStreamDestroy_v2(two) });
        ok(bench.add_one(one, address, 1));
    });
    let exec = bench.instantiate(graph);
    bench.launch(exec, one);
    ok(bench.synchronise(one));
    assert_eq!(bench.read(address, 2), [3, 1]);
    bench.destroy(graph, exec);
}

fn a_conditional_body_runs_while_its_value_says_so(bench: &Bench) {
    let (stream, address) = (bench.stream(NON_BLOCKING), bench.allocate(16));
    bench.write(address, &[5, 0]);
    let graph = bench.graph();
    let (body, handle) = bench.while_node(graph);
    let first = bench.add_kernel(body, &[], bench.add_one, address + 4, [1, 0]);
    let halves = [handle as u32, (handle >> 32) as u32];
    bench.add_kernel(body, &[first], bench.count_down, address, halves);
    let exec = bench.instantiate(graph);
    bench.launch(exec, stream);
    ok(bench.synchronise(stream));
    assert_eq!(bench.read(address, 2), [0, 5]);
    bench.destroy(graph, exec);
}

fn an_event_that_a_graph_records_orders_another_stream(bench: &Bench) {
    let (one, two) = (bench.stream(NON_BLOCKING), bench.stream(NON_BLOCKING));
    let (event, address) = (bench.event(), bench.allocate(16));
    let graph = bench.captured(one, || {
        ok(bench.add_one(one, address, 1));
        // SAFETY: has no pointers.
        ok(unsafe {
            bench
                .driver
                .cuEventRecordWithFlags(event, one, CU_EVENT_RECORD_EXTERNAL)
        });
    });
    assert_eq!(
        bench.kind(bench.nodes(graph)[1]),
        CU_GRAPH_NODE_TYPE_EVENT_RECORD
    );
    let exec = bench.instantiate(graph);
    bench.launch(exec, one);
    ok(bench.wait_event(two, event));
    // SAFETY: the memory is allocated.
    ok(unsafe {
        bench
            .driver
            .cuMemcpyDtoDAsync_v2(address + 4, address, 4, two)
    });
    ok(bench.synchronise(two));
    assert_eq!(bench.read(address, 2), [1, 1]);
    // SAFETY: has no pointers.
    ok(unsafe { bench.driver.cuEventSynchronize(event) });
    bench.destroy(graph, exec);
}

fn an_object_of_the_application_lives_as_long_as_graphs_hold_it(bench: &Bench) {
    let stream = bench.stream(NON_BLOCKING);
    let counter = AtomicU32::new(0);
    let data = (&raw const counter).cast_mut().cast::<c_void>();
    let mut object = null_mut();
    // SAFETY: the counter outlives the object.
    ok(unsafe {
        bench
            .driver
            .cuUserObjectCreate(&raw mut object, data, Some(bump), 1, 1)
    });
    let graph = bench.graph();
    bench.empty(graph, &[]);
    // The application's own reference becomes the graph's.
    // SAFETY: has no pointers.
    ok(unsafe {
        bench
            .driver
            .cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE)
    });
    let exec = bench.instantiate(graph);
    // SAFETY: has no pointers.
    ok(unsafe { bench.driver.cuGraphDestroy(graph) });
    assert_eq!(counter.load(Ordering::SeqCst), 0);
    // SAFETY: has no pointers.
    ok(unsafe { bench.driver.cuGraphExecDestroy(exec) });
    // The destructor runs on the thread of the host functions, before those that come later.
    let passed = AtomicU32::new(0);
    let data = (&raw const passed).cast_mut().cast::<c_void>();
    // SAFETY: the counter outlives the function.
    ok(unsafe { bench.driver.cuLaunchHostFunc(stream, Some(bump), data) });
    ok(bench.synchronise(stream));
    assert_eq!(passed.load(Ordering::SeqCst), 1);
    assert_eq!(counter.load(Ordering::SeqCst), 1);
}

fn a_drawing_names_every_node_and_edge(bench: &Bench) {
    let address = bench.allocate(16);
    let graph = bench.graph();
    let node = bench.add_kernel(graph, &[], bench.add_one, address, [1, 0]);
    bench.empty(graph, &[node]);
    let (process, thread) = (std::process::id(), std::thread::current().id());
    let path = std::env::temp_dir().join(format!("towline-graph-{process}-{thread:?}.dot"));
    let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    let drawn = |flags| {
        // SAFETY: the path ends.
        ok(unsafe {
            bench
                .driver
                .cuGraphDebugDotPrint(graph, name.as_ptr(), flags)
        });
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        text
    };
    let text = drawn(CU_GRAPH_DEBUG_DOT_FLAGS_KERNEL_NODE_PARAMS);
    let all = drawn(CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE);
    assert!(text.len() < all.len(), "{text} {all}");
    assert!(text.starts_with("digraph"), "{text}");
    assert!(text.contains("add_one") && text.contains("EMPTY"), "{text}");
    assert_eq!(text.matches("->").count(), 1, "{text}");
}

/// A kernel of NCCL between ranks, and one that it has for one rank.
const NCCL: &CStr = c".version 8.0\n.target sm_75\n.address_size 64\n\
.visible .entry _Z37ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorage() { ret; }\n\
.visible .entry oneRankReduce() { ret; }";

#[test]
fn kernels_of_nccl_between_ranks_are_refused_in_every_way_and_nothing_else_is() {
    let bench = Bench::on_soft();
    let driver = &bench.driver;
    let mut module = null_mut();
    // SAFETY: the image is text that ends; the module is a local.
    ok(unsafe { driver.cuModuleLoadData(&raw mut module, NCCL.as_ptr().cast()) });
    let find = |name: &CStr| {
        let mut function = null_mut();
        // SAFETY: the name ends; the function is a local.
        ok(unsafe { driver.cuModuleGetFunction(&raw mut function, module, name.as_ptr()) });
        function
    };
    let between = find(c"_Z37ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorage");
    let alone = find(c"oneRankReduce");
    // It is asked of all kernels when a communicator is made, of a single rank too.
    let (mut threads, asked) = (0, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    // SAFETY: one place for the value.
    ok(unsafe { driver.cuFuncGetAttribute(&raw mut threads, asked, between) });
    assert!(threads > 0);
    let stream = bench.stream(NON_BLOCKING);
    let launch = |function| {
        let none = null_mut();
        // SAFETY: the kernels have no parameters.
        unsafe { driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, none, none) }
    };
    for _ in 0..2 {
        assert_eq!(launch(between), CUDA_ERROR_NOT_SUPPORTED);
        ok(launch(alone));
    }
    let mut graph = null_mut();
    // SAFETY: no pointers.
    ok(unsafe { driver.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED) });
    assert_eq!(launch(between), CUDA_ERROR_NOT_SUPPORTED);
    ok(launch(alone));
    // SAFETY: the graph is a local.
    ok(unsafe { driver.cuStreamEndCapture(stream, &raw mut graph) });
    assert_eq!(bench.nodes(graph).len(), 1);
    let mut node = null_mut();
    let added = bench.kernel(between, 0, [0, 0], |params| {
        // SAFETY: the node is a local; a kernel without parameters reads none.
        unsafe { driver.cuGraphAddKernelNode_v2(&raw mut node, graph, null(), 0, params) }
    });
    assert_eq!(added, CUDA_ERROR_NOT_SUPPORTED);
    // SAFETY: no pointers.
    ok(unsafe { driver.cuGraphDestroy(graph) });
    ok(bench.synchronise(stream));
}
