//! Objects of one server's devices in calls about another's: what works across servers, and what is refused before it leaves, for a
//! server ends a session that names what it does not know.

mod support;

use std::ffi::{CStr, c_void};
use std::ptr::{null, null_mut, without_provenance_mut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use support::{Machine, blank, pattern};
use towline_backend::cuda::*;

fn ok(status: CUresult) {
    assert_eq!(status, CUDA_SUCCESS);
}

/// Two servers with a device each, and an event and a stream of each device.
struct Pair {
    machine: Machine,
    streams: [CUstream; 2],
    events: [CUevent; 2],
}

impl Pair {
    fn new() -> Self {
        let machine = Machine::with(&[1, 1]);
        let objects = [0, 1].map(|device| {
            machine.enter(device);
            let mut event = null_mut();
            // SAFETY: the event is a local.
            ok(unsafe { machine.driver.cuEventCreate(&raw mut event, 0) });
            (machine.stream(), event)
        });
        machine.enter(0);
        Self {
            machine,
            streams: objects.map(|(stream, _)| stream),
            events: objects.map(|(_, event)| event),
        }
    }

    /// Memory of a device, while that of the first is the thread's.
    fn memory(&self, device: usize, bytes: &[u8]) -> u64 {
        self.machine.enter(device);
        let memory = self.machine.filled(bytes);
        self.machine.enter(0);
        memory
    }

    /// As [`Self::hold_on`], for the first device's stream.
    fn hold(&self) -> u64 {
        self.hold_on(self.streams[0])
    }

    /// Has a stream of the first device wait until a number is not 0; gives where the number is.
    fn hold_on(&self, stream: CUstream) -> u64 {
        let image: &CStr = c"towline null image\nkernel spin_until";
        let driver = &self.machine.driver;
        let gate = self.memory(0, &[0; 4]);
        let (mut module, mut function, mut address) = (null_mut(), null_mut(), gate);
        // SAFETY: the image and the name end with a NUL, and the rest are locals.
        ok(unsafe { driver.cuModuleLoadData(&raw mut module, image.as_ptr().cast()) });
        // SAFETY: as above.
        ok(unsafe {
            driver.cuModuleGetFunction(&raw mut function, module, c"spin_until".as_ptr())
        });
        let mut params = [(&raw mut address).cast()];
        let params = params.as_mut_ptr();
        // SAFETY: the parameter has the kernel's size.
        ok(unsafe {
            driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params, null_mut())
        });
        gate
    }

    /// Lets the stream go on.
    fn release(&self, gate: u64) {
        self.machine.enter(0);
        let other = self.machine.stream();
        // SAFETY: no host memory.
        ok(unsafe { self.machine.driver.cuMemsetD8Async(gate, 1, 4, other) });
    }

    fn query(&self, device: usize) -> CUresult {
        // SAFETY: the stream lives.
        unsafe { self.machine.driver.cuStreamQuery(self.streams[device]) }
    }
}

#[test]
fn a_stream_waits_for_an_event_of_another_server_and_the_program_does_not() {
    let pair = Pair::new();
    let target = pair.memory(1, &[0; 64]);
    let gate = pair.hold();
    let driver = &pair.machine.driver;
    // SAFETY: event and stream live; here and below.
    ok(unsafe { driver.cuEventRecord(pair.events[0], pair.streams[0]) });
    let (waits_for, cost) = pair.machine.costs(|driver| {
        // SAFETY: as above.
        unsafe { driver.cuStreamWaitEvent(pair.streams[1], pair.events[0], 0) }
    });
    assert_eq!((waits_for, cost), (CUDA_SUCCESS, 0));
    // SAFETY: no host memory.
    ok(unsafe { driver.cuMemsetD8Async(target, 7, 64, pair.streams[1]) });
    // SAFETY: as above.
    ok(unsafe { driver.cuEventRecord(pair.events[1], pair.streams[1]) });
    pair.machine.enter(1);
    assert_eq!(pair.machine.bytes(target, 64), [0; 64]);
    assert_eq!(pair.query(1), CUDA_ERROR_NOT_READY);
    // Recorded again on an idle stream it has passed, but the stream waits for the first recording.
    pair.machine.enter(0);
    let idle = pair.machine.stream();
    // SAFETY: as above.
    ok(unsafe { driver.cuEventRecord(pair.events[0], idle) });
    // SAFETY: as above.
    ok(unsafe { driver.cuStreamSynchronize(idle) });
    assert_eq!(pair.query(1), CUDA_ERROR_NOT_READY);
    pair.release(gate);
    // SAFETY: as above; the thread's context is the other server's.
    ok(unsafe { driver.cuEventSynchronize(pair.events[1]) });
    // SAFETY: as above.
    assert_eq!(unsafe { driver.cuEventQuery(pair.events[1]) }, CUDA_SUCCESS);
    pair.machine.enter(1);
    assert_eq!(pair.machine.bytes(target, 64), [7; 64]);
    pair.machine.leave();
}

#[test]
fn an_event_of_another_server_that_has_passed_costs_nothing() {
    let pair = Pair::new();
    let driver = &pair.machine.driver;
    // SAFETY: event and stream live; here and below.
    ok(unsafe { driver.cuEventRecord(pair.events[0], pair.streams[0]) });
    // SAFETY: as above.
    ok(unsafe { driver.cuEventSynchronize(pair.events[0]) });
    for event in pair.events {
        let outcome = pair.machine.costs(|driver| {
            // SAFETY: as above; the second event was never recorded.
            unsafe { driver.cuStreamWaitEvent(pair.streams[1], event, 0) }
        });
        assert_eq!(outcome, (CUDA_SUCCESS, 0));
    }
    // SAFETY: as above.
    ok(unsafe { driver.cuStreamSynchronize(pair.streams[1]) });
    assert_eq!(pair.query(1), CUDA_SUCCESS);
    pair.machine.leave();
}

#[test]
fn a_server_that_is_lost_does_not_hold_up_a_stream_of_another() {
    let pair = Pair::new();
    let gate = pair.hold();
    let driver = &pair.machine.driver;
    // SAFETY: event and stream live; here and below.
    ok(unsafe { driver.cuEventRecord(pair.events[0], pair.streams[0]) });
    // SAFETY: as above.
    ok(unsafe { driver.cuStreamWaitEvent(pair.streams[1], pair.events[0], 0) });
    pair.release(gate);
    pair.machine.sessions[0].close();
    // The event may have passed before the session ended.
    // SAFETY: as above.
    let ended = unsafe { driver.cuStreamSynchronize(pair.streams[1]) };
    assert!([CUDA_SUCCESS, CUDA_ERROR_DEVICE_UNAVAILABLE].contains(&ended));
    // SAFETY: as above; what went wrong is told once.
    ok(unsafe { driver.cuStreamSynchronize(pair.streams[1]) });
    pair.machine.end();
}

#[test]
fn events_belong_to_their_server() {
    let pair = Pair::new();
    let driver = &pair.machine.driver;
    // SAFETY: events and streams live, and the time is a local; here and below.
    let crossed = unsafe { driver.cuEventRecord(pair.events[0], pair.streams[1]) };
    assert_eq!(crossed, CUDA_ERROR_INVALID_HANDLE);
    for device in [0, 1] {
        // SAFETY: as above.
        ok(unsafe { driver.cuEventRecord(pair.events[device], pair.streams[device]) });
        // SAFETY: as above.
        ok(unsafe { driver.cuEventSynchronize(pair.events[device]) });
        // What was waited for has passed, whatever the server has still to tell.
        // SAFETY: as above.
        ok(unsafe { driver.cuEventQuery(pair.events[device]) });
        // SAFETY: as above.
        ok(unsafe { driver.cuStreamSynchronize(pair.streams[device]) });
    }
    let elapsed = |start: usize, end: usize| {
        let mut time = -1.0;
        let (start, end) = (pair.events[start], pair.events[end]);
        // SAFETY: as above.
        pair.machine
            .costs(|driver| unsafe { driver.cuEventElapsedTime_v2(&raw mut time, start, end) })
    };
    assert_eq!(elapsed(0, 1), (CUDA_ERROR_INVALID_HANDLE, 0));
    assert_eq!(elapsed(1, 1), (CUDA_SUCCESS, 1));
    assert_eq!(elapsed(0, 0), (CUDA_SUCCESS, 1));
    pair.machine.leave();
}

#[test]
fn what_a_stream_or_an_address_is_of_is_told_in_any_context() {
    let pair = Pair::new();
    let memory = pair.memory(1, &[0; 16]);
    let driver = &pair.machine.driver;
    for current in [0, 1] {
        pair.machine.enter(current);
        let (mut device, mut context, mut of) = (7, null_mut(), 7);
        let attribute = CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
        // SAFETY: all are locals, and the stream lives.
        ok(unsafe { driver.cuCtxGetDevice(&raw mut device) });
        // SAFETY: as above.
        ok(unsafe { driver.cuStreamGetCtx(pair.streams[1], &raw mut context) });
        // SAFETY: as above.
        ok(unsafe { driver.cuPointerGetAttribute((&raw mut of).cast(), attribute, memory) });
        assert_eq!((device, of), (current as CUdevice, 1));
        assert_eq!(context, pair.machine.contexts[1]);
        let mut reaches = 7;
        // SAFETY: as above.
        ok(unsafe { driver.cuDeviceCanAccessPeer(&raw mut reaches, 0, 1) });
        assert_eq!(reaches, 0);
    }
    pair.machine.leave();
}

#[test]
fn the_default_stream_is_one_under_both_names() {
    let pair = Pair::new();
    let driver = &pair.machine.driver;
    let names = [
        null_mut(),
        without_provenance_mut(CU_STREAM_LEGACY as usize),
    ];
    for name in names {
        let gate = pair.hold_on(name);
        for stream in names {
            // SAFETY: default streams live as long as the context.
            let asked = unsafe { driver.cuStreamQuery(stream) };
            assert_eq!(asked, CUDA_ERROR_NOT_READY);
        }
        pair.release(gate);
        // SAFETY: as above.
        ok(unsafe { driver.cuStreamSynchronize(name) });
        for stream in names {
            // SAFETY: as above.
            ok(unsafe { driver.cuStreamQuery(stream) });
        }
    }
    pair.machine.leave();
}

/// Waits until it is told to go on, or for seconds.
unsafe extern "C" fn linger(told: *mut c_void) {
    // SAFETY: it is the flag of the test, which outlives the stream's work.
    let told = unsafe { &*told.cast::<AtomicBool>() };
    let begun = Instant::now();
    while !told.load(Ordering::Acquire) && begun.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn copies_between_servers_pass_host_functions_that_wait() {
    let pair = Pair::new();
    let driver = &pair.machine.driver;
    let (source, target) = (pair.memory(0, &[3; 64]), pair.memory(1, &[0; 64]));
    let (other, told) = (pair.machine.stream(), AtomicBool::new(false));
    let flag = (&raw const told).cast_mut().cast();
    let [here, there] = [0, 1].map(|device| pair.machine.contexts[device]);
    let begun = Instant::now();
    // SAFETY: the flag outlives the stream's work, which is waited for.
    ok(unsafe { driver.cuLaunchHostFunc(pair.streams[0], Some(linger), flag) });
    // SAFETY: no host memory, and the contexts live.
    ok(unsafe { driver.cuMemcpyPeerAsync(target, there, source, here, 64, other) });
    // SAFETY: the stream lives; here and below.
    ok(unsafe { driver.cuStreamSynchronize(other) });
    assert!(begun.elapsed() < Duration::from_secs(4));
    told.store(true, Ordering::Release);
    // SAFETY: as above.
    ok(unsafe { driver.cuStreamSynchronize(pair.streams[0]) });
    assert_eq!(pair.machine.bytes(target, 64), [3; 64]);
    pair.machine.leave();
}

#[test]
fn memory_is_copied_between_servers_without_naming_contexts() {
    let pair = Pair::new();
    let content = pattern(70_000, 1);
    let source = pair.memory(0, &content);
    let [plain, unified, ordered] = [(); 3].map(|()| pair.memory(1, &vec![0; 70_000]));
    let driver = &pair.machine.driver;
    // SAFETY: no host memory; here and below.
    ok(unsafe { driver.cuMemcpyDtoD_v2(plain, source, 70_000) });
    // SAFETY: as above.
    ok(unsafe { driver.cuMemcpy(unified, source, 70_000) });
    // SAFETY: as above.
    ok(unsafe { driver.cuMemcpyDtoDAsync_v2(ordered, source, 70_000, pair.streams[0]) });
    // SAFETY: the stream lives.
    ok(unsafe { driver.cuStreamSynchronize(pair.streams[0]) });
    for target in [plain, unified, ordered] {
        assert!(pair.machine.bytes(target, 70_000) == content);
    }
    pair.machine.leave();
}

#[test]
fn a_graph_is_one_servers() {
    let pair = Pair::new();
    let (here, there) = (pair.memory(0, &[1; 64]), pair.memory(1, &[2; 64]));
    let driver = &pair.machine.driver;
    let fill = |dst, graph, context: usize| {
        let params = CUDA_MEMSET_NODE_PARAMS {
            dst,
            pitch: 0,
            value: 9,
            elementSize: 1,
            width: 64,
            height: 1,
        };
        let (mut node, context) = (null_mut(), pair.machine.contexts[context]);
        // SAFETY: the graph lives, and the rest are locals.
        unsafe {
            driver.cuGraphAddMemsetNode(&raw mut node, graph, null(), 0, &raw const params, context)
        }
    };
    let (mut graph, mut exec, mut node) = (null_mut(), null_mut(), null_mut());
    // SAFETY: all handles are locals; here and below.
    ok(unsafe { driver.cuGraphCreate(&raw mut graph, 0) });
    // Made while the first device was current, it is the second's once it has a node there.
    // SAFETY: as above.
    ok(unsafe { driver.cuGraphAddEmptyNode(&raw mut node, graph, null(), 0) });
    assert_eq!(fill(here, graph, 1), CUDA_ERROR_NOT_SUPPORTED);
    ok(fill(there, graph, 1));
    assert_eq!(fill(here, graph, 0), CUDA_ERROR_NOT_SUPPORTED);
    for event in [pair.events[0], pair.events[1]] {
        // SAFETY: as above.
        let added =
            unsafe { driver.cuGraphAddEventWaitNode(&raw mut node, graph, null(), 0, event) };
        let expected = match event == pair.events[1] {
            true => CUDA_SUCCESS,
            false => CUDA_ERROR_NOT_SUPPORTED,
        };
        assert_eq!(added, expected);
    }
    // SAFETY: as above.
    let replaced = unsafe { driver.cuGraphEventWaitNodeSetEvent(node, pair.events[0]) };
    assert_eq!(replaced, CUDA_ERROR_NOT_SUPPORTED);
    let mut copy = blank();
    (copy.srcMemoryType, copy.srcDevice) = (CU_MEMORYTYPE_DEVICE, here);
    (copy.dstMemoryType, copy.dstDevice) = (CU_MEMORYTYPE_DEVICE, there);
    (copy.WidthInBytes, copy.Height, copy.Depth) = (64, 1, 1);
    // SAFETY: as above.
    let across = unsafe {
        let context = pair.machine.contexts[1];
        driver.cuGraphAddMemcpyNode(&raw mut node, graph, null(), 0, &raw const copy, context)
    };
    assert_eq!(across, CUDA_ERROR_NOT_SUPPORTED);
    // SAFETY: as above.
    ok(unsafe { driver.cuGraphInstantiateWithFlags(&raw mut exec, graph, 0) });
    // SAFETY: as above.
    let elsewhere = unsafe { driver.cuGraphLaunch(exec, pair.streams[0]) };
    assert_eq!(elsewhere, CUDA_ERROR_INVALID_VALUE);
    // SAFETY: as above.
    let changed = unsafe { driver.cuGraphExecEventWaitNodeSetEvent(exec, node, pair.events[0]) };
    assert_ne!(changed, CUDA_SUCCESS);
    // SAFETY: as above.
    ok(unsafe { driver.cuGraphLaunch(exec, pair.streams[1]) });
    // SAFETY: the stream lives.
    ok(unsafe { driver.cuStreamSynchronize(pair.streams[1]) });
    assert_eq!(pair.machine.bytes(there, 64), [9; 64]);
    assert_eq!(pair.machine.bytes(here, 64), [1; 64]);
    pair.machine.leave();
}

#[test]
fn a_capture_does_not_go_on_on_another_server() {
    let pair = Pair::new();
    let driver = &pair.machine.driver;
    let [origin, other] = pair.streams;
    // SAFETY: event and streams live, and the graph is a local; here and below.
    ok(unsafe { driver.cuStreamBeginCapture_v2(origin, CU_STREAM_CAPTURE_MODE_RELAXED) });
    // SAFETY: as above.
    ok(unsafe { driver.cuEventRecord(pair.events[0], origin) });
    // SAFETY: as above.
    let forked = unsafe { driver.cuStreamWaitEvent(other, pair.events[0], 0) };
    assert_eq!(forked, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    let mut graph = null_mut();
    // SAFETY: as above.
    let ended = unsafe { driver.cuStreamEndCapture(origin, &raw mut graph) };
    assert_eq!(ended, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_eq!([0, 1].map(|device| pair.query(device)), [CUDA_SUCCESS; 2]);
    pair.machine.leave();
}

#[test]
fn a_pool_serves_the_streams_of_its_server_and_memory_is_freed_where_it_is() {
    let pair = Pair::new();
    let memory = pair.memory(1, &[0; 256]);
    let driver = &pair.machine.driver;
    let (mut pool, mut address, mut flags) = (null_mut(), 0, 7);
    // SAFETY: all are locals, and the streams live; here and below.
    ok(unsafe { driver.cuDeviceGetDefaultMemPool(&raw mut pool, 1) });
    let (far, waits) = pair.machine.costs(|driver| {
        // SAFETY: as above.
        unsafe { driver.cuMemAllocFromPoolAsync(&raw mut address, 256, pool, pair.streams[0]) }
    });
    assert_eq!((far, waits), (CUDA_ERROR_INVALID_VALUE, 0));
    let mut location = CUmemLocation {
        r#type: CU_MEM_LOCATION_TYPE_DEVICE,
        either: CUmemLocation_either { id: 0 },
    };
    // SAFETY: as above.
    ok(unsafe { driver.cuMemPoolGetAccess(&raw mut flags, pool, &raw mut location) });
    assert_eq!(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    // SAFETY: as above.
    ok(unsafe { driver.cuMemFreeAsync(memory, pair.streams[0]) });
    // SAFETY: as above.
    ok(unsafe { driver.cuStreamSynchronize(pair.streams[0]) });
    pair.machine.enter(1);
    // A device in host memory has no pools: the server that was asked to free says so.
    // SAFETY: no pointers.
    let freed = unsafe { driver.cuCtxSynchronize() };
    assert_eq!(freed, CUDA_ERROR_NOT_SUPPORTED);
    pair.machine.leave();
}

#[test]
fn pools_that_got_memory_back_have_the_driver_waited_for_which_shrinks_them() {
    let machine = Machine::new();
    let (stream, null) = (machine.stream(), &machine.nulls[0]);
    let held = null.allocated_bytes();
    for whole in [false, true] {
        let mut address = 0;
        // SAFETY: a place for the address.
        let given = unsafe { machine.driver.cuMemAllocAsync(&raw mut address, 64, stream) };
        // SAFETY: the memory is allocated.
        let freed = unsafe { machine.driver.cuMemFreeAsync(address, stream) };
        assert_eq!((given, freed), (CUDA_SUCCESS, CUDA_SUCCESS));
        // The stream has nothing to do any more, which a look at it tells.
        let mut looks = 0..1000;
        while null.allocated_bytes() > held && looks.next().is_some() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let before = null.waits();
        let waited = if whole {
            // SAFETY: no pointers.
            unsafe { machine.driver.cuCtxSynchronize() }
        } else {
            // SAFETY: the stream is live.
            unsafe { machine.driver.cuStreamSynchronize(stream) }
        };
        assert_eq!((waited, null.waits()), (CUDA_SUCCESS, before + 1));
    }
    machine.leave();
}
