//! Executable graphs keep objects, attributes and parameters of the graphs that they are made of, or become like.

use std::ffi::{CStr, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use towline_backend::cuda::*;

use super::support::{Bench, ok};
use super::{NON_BLOCKING, bump, update};

/// An object whose end is counted, as the only reference of a graph.
fn hold(bench: &Bench, graph: CUgraph, ends: &AtomicU32) {
    let (driver, data) = (&bench.driver, std::ptr::from_ref(ends).cast_mut().cast());
    let mut object = null_mut();
    // SAFETY: the place is a local; the counter outlives the object.
    ok(unsafe { driver.cuUserObjectCreate(&raw mut object, data, Some(bump), 1, 1) });
    // SAFETY: has no pointers.
    ok(unsafe { driver.cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE) });
}

/// Counts the objects with this counter that have ended, once the thread that ends them has done what it has to.
fn ended(bench: &Bench, ends: &AtomicU32) -> u32 {
    let (stream, passed) = (bench.stream(NON_BLOCKING), AtomicU32::new(0));
    let data = std::ptr::from_ref(&passed).cast_mut().cast::<c_void>();
    // SAFETY: the counter outlives the function.
    ok(unsafe { bench.driver.cuLaunchHostFunc(stream, Some(bump), data) });
    ok(bench.synchronise(stream));
    ends.load(Ordering::SeqCst)
}

/// Waits until an object has ended.
fn expect_end(ends: &AtomicU32) {
    let patience = Instant::now() + Duration::from_secs(20);
    while ends.load(Ordering::SeqCst) == 0 && Instant::now() < patience {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(ends.load(Ordering::SeqCst), 1);
}

fn destroy_graph(bench: &Bench, graph: CUgraph) {
    // SAFETY: has no pointers.
    ok(unsafe { bench.driver.cuGraphDestroy(graph) });
}

fn destroy_exec(bench: &Bench, exec: CUgraphExec) {
    // SAFETY: has no pointers.
    ok(unsafe { bench.driver.cuGraphExecDestroy(exec) });
}

fn add_child(bench: &Bench, graph: CUgraph, inner: CUgraph) -> CUgraphNode {
    let (driver, mut node) = (&bench.driver, null_mut());
    // SAFETY: the place is a local, and there are no dependencies.
    ok(unsafe { driver.cuGraphAddChildGraphNode(&raw mut node, graph, &raw const node, 0, inner) });
    node
}

pub(super) fn clones_hold_objects_of_their_own(bench: &Bench) {
    let (ends, graph, mut clone) = (AtomicU32::new(0), bench.graph(), null_mut());
    hold(bench, graph, &ends);
    // SAFETY: the place is a local.
    ok(unsafe { bench.driver.cuGraphClone(&raw mut clone, graph) });
    destroy_graph(bench, graph);
    assert_eq!(ended(bench, &ends), 0);
    destroy_graph(bench, clone);
    assert_eq!(ended(bench, &ends), 1);
}

pub(super) fn child_graphs_hold_objects_of_their_own(bench: &Bench) {
    let (ends, inner, outer) = (AtomicU32::new(0), bench.graph(), bench.graph());
    hold(bench, inner, &ends);
    let node = add_child(bench, outer, inner);
    destroy_graph(bench, inner);
    assert_eq!(ended(bench, &ends), 0);
    let exec = bench.instantiate(outer);
    // SAFETY: has no pointers.
    ok(unsafe { bench.driver.cuGraphDestroyNode(node) });
    assert_eq!(ended(bench, &ends), 0);
    destroy_exec(bench, exec);
    assert_eq!(ended(bench, &ends), 1);
    destroy_graph(bench, outer);
}

pub(super) fn objects_outlive_launches_under_way(bench: &Bench) {
    let (ends, graph) = (AtomicU32::new(0), bench.graph());
    let (stream, other) = (bench.stream(NON_BLOCKING), bench.stream(NON_BLOCKING));
    let (driver, address) = (&bench.driver, bench.allocate(16));
    bench.write(address, &[0]);
    hold(bench, graph, &ends);
    bench.empty(graph, &[]);
    let exec = bench.instantiate(graph);
    // SAFETY: the memory is allocated.
    ok(unsafe { driver.cuStreamWaitValue32_v2(stream, address, 1, CU_STREAM_WAIT_VALUE_EQ) });
    bench.launch(exec, stream);
    bench.destroy(graph, exec);
    assert_eq!(ended(bench, &ends), 0);
    // SAFETY: as above.
    ok(unsafe { driver.cuStreamWriteValue32_v2(other, address, 1, 0) });
    ok(bench.synchronise(stream));
    expect_end(&ends);
}

pub(super) fn updates_replace_held_objects(bench: &Bench) {
    let [old, new, held] = [(); 3].map(|()| AtomicU32::new(0));
    let graphs = [bench.graph(), bench.graph(), bench.graph()];
    let [outer, like, child] = graphs;
    for (graph, ends) in graphs.into_iter().zip([&held, &new, &old]) {
        bench.empty(graph, &[]);
        hold(bench, graph, ends);
    }
    let node = add_child(bench, outer, child);
    let exec = bench.instantiate(outer);
    // SAFETY: has no pointers.
    ok(unsafe { bench.driver.cuGraphDestroyNode(node) });
    destroy_graph(bench, child);
    destroy_graph(bench, outer);
    // SAFETY: has no pointers.
    ok(unsafe {
        bench
            .driver
            .cuGraphExecChildGraphNodeSetParams(exec, node, like)
    });
    destroy_graph(bench, like);
    assert_eq!(
        [&held, &new, &old].map(|ends| ended(bench, ends)),
        [0, 0, 1]
    );
    destroy_exec(bench, exec);
    assert_eq!([&held, &new].map(|ends| ended(bench, ends)), [1, 1]);
}

pub(super) fn child_graphs_of_other_length_are_refused(bench: &Bench) {
    let (outer, [two, one, three]) = (bench.graph(), [bench.graph(), bench.graph(), bench.graph()]);
    for (graph, count) in [(two, 2), (one, 1), (three, 3)] {
        for _ in 0..count {
            bench.empty(graph, &[]);
        }
    }
    let node = add_child(bench, outer, two);
    bench.empty(outer, &[node]);
    let exec = bench.instantiate(outer);
    let set = |child| {
        // SAFETY: has no pointers.
        unsafe {
            bench
                .driver
                .cuGraphExecChildGraphNodeSetParams(exec, node, child)
        }
    };
    ok(set(two));
    let refused = [set(one), set(three)];
    assert_eq!(refused, [CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE; 2]);
    bench.destroy(outer, exec);
}

pub(super) fn updates_change_parameters_in_bodies(bench: &Bench) {
    let (stream, address) = (bench.stream(NON_BLOCKING), bench.allocate(16));
    let (driver, graph) = (&bench.driver, bench.graph());
    let (body, handle) = bench.while_node(graph);
    let first = bench.add_kernel(body, &[], bench.add_one, address + 4, [1, 0]);
    let halves = [handle as u32, (handle >> 32) as u32];
    bench.add_kernel(body, &[first], bench.count_down, address, halves);
    let exec = bench.instantiate(graph);
    assert_eq!(update(bench, exec, graph), (CUDA_SUCCESS, 0));
    ok(bench.kernel(bench.add_one, address + 8, [2, 0], |params| {
        // SAFETY: the parameters are as they must be.
        unsafe { driver.cuGraphKernelNodeSetParams_v2(first, params) }
    }));
    for rounds in [3, 5] {
        bench.write(address, &[rounds, 0, 0, 0]);
        assert_eq!(update(bench, exec, graph), (CUDA_SUCCESS, 0));
        bench.launch(exec, stream);
        ok(bench.synchronise(stream));
        assert_eq!(bench.read(address, 4), [0, 0, rounds, rounds]);
    }
    bench.empty(body, &[]);
    let refused = update(bench, exec, graph);
    assert_eq!(refused.0, CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    bench.destroy(graph, exec);
}

pub(super) fn graphs_for_kernels_to_launch_are_refused(bench: &Bench) {
    let (driver, graph, mut exec) = (&bench.driver, bench.graph(), null_mut());
    let flags = u64::from(CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH);
    // SAFETY: the place is a local.
    let made = unsafe { driver.cuGraphInstantiateWithFlags(&raw mut exec, graph, flags) };
    assert_eq!(made, CUDA_ERROR_NOT_SUPPORTED);
    destroy_graph(bench, graph);
}

pub(super) fn failed_capture_into_body_is_told(bench: &Bench) {
    let (driver, graph, stream) = (&bench.driver, bench.graph(), bench.stream(NON_BLOCKING));
    let (body, _) = bench.while_node(graph);
    let begin = || {
        // SAFETY: no dependencies are given.
        ok(unsafe { driver.cuStreamBeginCaptureToGraph(stream, body, null(), null(), 0, 0) });
    };
    begin();
    assert_eq!(
        bench.synchronise(stream),
        CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
    );
    assert_eq!(bench.end(stream).0, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    begin();
    // SAFETY: has no pointers.
    ok(unsafe { driver.cuStreamDestroy_v2(stream) });
    destroy_graph(bench, graph);
}

/// Sets an attribute of a launch.
fn set_attribute(bench: &Bench, node: CUgraphNode, id: CUlaunchAttributeID, value: u32) {
    let mut pad = [0; 64];
    for (byte, given) in pad.iter_mut().zip(value.to_le_bytes()) {
        *byte = given as _;
    }
    let value = CUlaunchAttributeValue { pad };
    // SAFETY: the value is a local.
    ok(unsafe {
        bench
            .driver
            .cuGraphKernelNodeSetAttribute(node, id, &raw const value)
    });
}

pub(super) fn changed_launches_keep_their_attributes(bench: &Bench) {
    let (graph, address) = (bench.graph(), bench.allocate(16));
    let node = bench.add_kernel(graph, &[], bench.add_one, address, [1, 0]);
    set_attribute(bench, node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, 1);
    let exec = bench.instantiate(graph);
    ok(bench.kernel(bench.add_one, address, [2, 0], |params| {
        let driver = &bench.driver;
        // SAFETY: the parameters are as they must be.
        unsafe { driver.cuGraphExecKernelNodeSetParams_v2(exec, node, params) }
    }));
    assert_eq!(update(bench, exec, graph), (CUDA_SUCCESS, 0));
    bench.destroy(graph, exec);
}

/// A kernel that tells whether its launch has a place where blocks meet.
const TOGETHER: &CStr = c".version 8.0\n.target sm_75\n.address_size 64\n\
.visible .entry together(.param .u64 data) { .reg .b64 d; .reg .b32 x, y; .reg .pred p; ld.param.u64 d, [data];\n\
 mov.u32 x, %envreg1; mov.u32 y, %envreg2; or.b32 x, x, y; setp.ne.u32 p, x, 0; selp.u32 x, 1, 0, p;\n\
 st.global.u32 [d], x; ret; }";

fn together(bench: &Bench) -> CUfunction {
    let (driver, mut module, mut function) = (&bench.driver, null_mut(), null_mut());
    // SAFETY: the image is text that ends; the place is a local.
    ok(unsafe { driver.cuModuleLoadData(&raw mut module, TOGETHER.as_ptr().cast()) });
    let name = c"together".as_ptr();
    // SAFETY: as above.
    ok(unsafe { driver.cuModuleGetFunction(&raw mut function, module, name) });
    function
}

#[test]
fn cooperative_launches_stay_so_when_changed() {
    let bench = Bench::on_soft();
    let (driver, function, graph) = (&bench.driver, together(&bench), bench.graph());
    let (stream, first, second) = (
        bench.stream(NON_BLOCKING),
        bench.allocate(4),
        bench.allocate(4),
    );
    let node = bench.add_kernel(graph, &[], function, first, [0, 0]);
    set_attribute(&bench, node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, 1);
    let exec = bench.instantiate(graph);
    bench.launch(exec, stream);
    ok(bench.kernel(function, second, [0, 0], |params| {
        // SAFETY: the parameters are as they must be.
        unsafe { driver.cuGraphExecKernelNodeSetParams_v2(exec, node, params) }
    }));
    bench.launch(exec, stream);
    ok(bench.synchronise(stream));
    assert_eq!([bench.read(first, 1), bench.read(second, 1)], [[1], [1]]);
    bench.destroy(graph, exec);
}

/// A graph with a condition lives on the server, and is what it was when it was made executable before.
#[test]
fn attributes_set_between_instantiations_take_effect() {
    let bench = Bench::on_soft();
    let (driver, function, graph) = (&bench.driver, together(&bench), bench.graph());
    let (stream, address, mut handle) = (bench.stream(NON_BLOCKING), bench.allocate(4), 0);
    let place = &raw mut handle;
    // SAFETY: the place is a local.
    ok(unsafe { driver.cuGraphConditionalHandleCreate(place, graph, null_mut(), 1, 1) });
    let node = bench.add_kernel(graph, &[], function, address, [0, 0]);
    for cooperative in [1, 0, 1] {
        set_attribute(&bench, node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, cooperative);
        let exec = bench.instantiate(graph);
        bench.launch(exec, stream);
        ok(bench.synchronise(stream));
        assert_eq!(bench.read(address, 1), [cooperative]);
        destroy_exec(&bench, exec);
    }
    destroy_graph(&bench, graph);
}

#[test]
fn nodes_copy_from_array_to_array() {
    let bench = Bench::on_soft();
    let (driver, graph, stream) = (&bench.driver, bench.graph(), bench.stream(NON_BLOCKING));
    let descriptor = CUDA_ARRAY_DESCRIPTOR {
        Width: 4,
        Height: 1,
        Format: CU_AD_FORMAT_UNSIGNED_INT32,
        NumChannels: 1,
    };
    let array = || {
        let mut array = null_mut();
        // SAFETY: both are locals.
        ok(unsafe { driver.cuArrayCreate_v2(&raw mut array, &raw const descriptor) });
        array
    };
    let (one, two, from, to) = (array(), array(), bench.allocate(16), bench.allocate(16));
    bench.write(from, &[1, 2, 3, 4]);
    let device = |address| (CU_MEMORYTYPE_DEVICE, address);
    let into = |array, mut copy: CUDA_MEMCPY3D| {
        (copy.dstMemoryType, copy.dstArray) = (CU_MEMORYTYPE_ARRAY, array);
        copy
    };
    let out_of = |array, mut copy: CUDA_MEMCPY3D| {
        (copy.srcMemoryType, copy.srcArray) = (CU_MEMORYTYPE_ARRAY, array);
        copy
    };
    let plain = bench.copy(device(from), device(to), 16);
    let first = bench.add_copy(graph, &[], &into(one, plain));
    let second = bench.add_copy(graph, &[first], &out_of(one, into(two, plain)));
    bench.add_copy(graph, &[second], &out_of(two, plain));
    let exec = bench.instantiate(graph);
    bench.launch(exec, stream);
    ok(bench.synchronise(stream));
    assert_eq!(bench.read(to, 4), [1, 2, 3, 4]);
    bench.destroy(graph, exec);
}

/// The statuses are a GPU's, with driver 580.159.
#[test]
fn captured_launches_are_refused_as_launches() {
    let bench = Bench::on_soft();
    let (driver, stream) = (&bench.driver, bench.stream(NON_BLOCKING));
    let function = together(&bench);
    let mut address = bench.allocate(4);
    let mut params: [*mut c_void; 1] = [(&raw mut address).cast()];
    let mut captured = |blocks: u32| {
        ok(bench.begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
        let params = params.as_mut_ptr();
        // SAFETY: the kernel has one parameter of this size.
        let status = unsafe {
            driver.cuLaunchCooperativeKernel(function, blocks, 1, 1, 32, 1, 1, 0, stream, params)
        };
        let (ended, graph) = bench.end(stream);
        if !graph.is_null() {
            destroy_graph(&bench, graph);
        }
        [status, ended]
    };
    assert_eq!(captured(1), [CUDA_SUCCESS; 2]);
    let refused = [
        CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
        CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
    ];
    assert_eq!(captured(1 << 20), refused);
    // Each configuration is asked about once.
    let waits = bench.waits();
    assert_eq!(captured(1 << 20), refused);
    assert_eq!(captured(1), [CUDA_SUCCESS; 2]);
    assert_eq!(bench.waits(), waits);
}

/// The statuses are a GPU's, with driver 580.159.
#[test]
fn required_clusters_are_their_functions() {
    let bench = Bench::on_null();
    let (driver, graph, address) = (&bench.driver, bench.graph(), bench.allocate(16));
    let node = bench.add_kernel(graph, &[], bench.add_one, address, [1, 0]);
    let told = |value: CUlaunchAttributeValue| {
        let mut told = value;
        let id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
        // SAFETY: the value is a local, for both.
        let set = unsafe { driver.cuGraphKernelNodeSetAttribute(node, id, &raw const value) };
        // SAFETY: as above.
        ok(unsafe { driver.cuGraphKernelNodeGetAttribute(node, id, &raw mut told) });
        // SAFETY: all bytes of the value are written.
        let sides = unsafe { told.clusterDim };
        (set, sides.x, sides.y, sides.z)
    };
    let mut wanted = CUlaunchAttributeValue { pad: [0; 64] };
    // SAFETY: all bytes of the value are written.
    let sides = unsafe { &mut wanted.clusterDim };
    (sides.x, sides.y, sides.z) = (1, 1, 1);
    assert_eq!(told(wanted), (CUDA_SUCCESS, 1, 1, 1));
    let width = CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH;
    // SAFETY: has no pointers but the function.
    ok(unsafe { driver.cuFuncSetAttribute(bench.add_one, width, 4) });
    assert_eq!(told(wanted), (CUDA_ERROR_INVALID_CLUSTER_SIZE, 4, 1, 1));
    destroy_graph(&bench, graph);
}

/// Launches `add_one` over a number with an event among the attributes.
fn launch_with(
    bench: &Bench,
    id: CUlaunchAttributeID,
    event: CUevent,
    stream: CUstream,
    mut address: u64,
) -> CUresult {
    let mut count = 1_u32;
    let mut params: [*mut c_void; 2] = [(&raw mut address).cast(), (&raw mut count).cast()];
    let mut value = CUlaunchAttributeValue { pad: [0; 64] };
    value.launchCompletionEvent = CUlaunchAttributeValue_launchCompletionEvent { event, flags: 0 };
    // SAFETY: an attribute of zeros is one.
    let mut attribute: CUlaunchAttribute = unsafe { std::mem::zeroed() };
    (attribute.id, attribute.value) = (id, value);
    let config = CUlaunchConfig {
        gridDimX: 1,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: 32,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: 0,
        hStream: stream,
        attrs: &raw mut attribute,
        numAttrs: 1,
    };
    let params = params.as_mut_ptr();
    // SAFETY: the kernel has two parameters of these sizes, and the configuration one attribute.
    unsafe {
        bench
            .driver
            .cuLaunchKernelEx(&raw const config, bench.add_one, params, null_mut())
    }
}

#[test]
fn events_of_launches_stand_behind_them() {
    let bench = Bench::on_soft();
    let (first, second) = (bench.stream(NON_BLOCKING), bench.stream(NON_BLOCKING));
    let (driver, address, mut event, mut timed) =
        (&bench.driver, bench.allocate(4), null_mut(), null_mut());
    // SAFETY: the places are locals.
    ok(unsafe { driver.cuEventCreate(&raw mut event, CU_EVENT_DISABLE_TIMING) });
    // SAFETY: as above.
    ok(unsafe { driver.cuEventCreate(&raw mut timed, 0) });
    for id in [
        CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT,
        CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT,
    ] {
        bench.write(address, &[0]);
        let refused = launch_with(&bench, id, timed, first, address);
        assert_eq!(refused, CUDA_ERROR_INVALID_VALUE);
        let both = || {
            ok(launch_with(&bench, id, event, first, address));
            ok(bench.wait_event(second, event));
            ok(bench.add_one(second, address, 1));
        };
        both();
        ok(bench.synchronise(second));
        assert_eq!(bench.read(address, 1), [2]);
        let graph = bench.captured(first, || {
            both();
            ok(bench.record(event, second));
            ok(bench.wait_event(first, event));
        });
        let exec = bench.instantiate(graph);
        bench.launch(exec, first);
        ok(bench.synchronise(first));
        assert_eq!(bench.read(address, 1), [4]);
        bench.destroy(graph, exec);
    }
}

/// The statuses are a GPU's, with driver 580.159.
#[test]
fn conditions_and_frees_are_of_one_node() {
    let bench = Bench::on_null();
    let (stream, looping, mut address) = (bench.stream(NON_BLOCKING), bench.graph(), 0);
    let (_, handle) = bench.while_node(looping);
    assert_eq!(bench.loop_of(looping, handle).0, CUDA_ERROR_INVALID_VALUE);
    let driver = &bench.driver;
    let graph = bench.captured(stream, || {
        // SAFETY: the place is a local.
        ok(unsafe { driver.cuMemAllocAsync(&raw mut address, 64, stream) });
        // SAFETY: has no pointers.
        ok(unsafe { driver.cuMemFreeAsync(address, stream) });
    });
    let mut node = null_mut();
    // SAFETY: the place is a local, and there are no dependencies.
    let again = unsafe { driver.cuGraphAddMemFreeNode(&raw mut node, graph, null(), 0, address) };
    assert_eq!(again, CUDA_ERROR_INVALID_VALUE);
    let exec = bench.instantiate(graph);
    bench.destroy(graph, exec);
    destroy_graph(&bench, looping);
}
