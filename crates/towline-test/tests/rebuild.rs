//! A session made again on another server: when it may be, what it leaves behind, what happens when the other server fails.

use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::time::{Duration, Instant};

use towline_backend::opencl::*;
use towline_client::opencl::{RebuildError, Remote};
use towline_test::pair::Pair;

const PATIENCE: Duration = Duration::from_secs(20);
/// For sessions that will not become idle.
const NO_PATIENCE: Duration = Duration::from_millis(50);

/// Calls the session and expects success.
macro_rules! ok {
    ($cl:expr, $call:ident ( $($argument:expr),* $(,)? )) => {{
        // SAFETY: tests pass live handles and pointers to their own data.
        let status = unsafe { $cl.$call($($argument),*) };
        assert_eq!(status, CL_SUCCESS, "{}", stringify!($call));
    }};
}

/// Calls a function of the session that creates an object.
macro_rules! make {
    ($cl:expr, $call:ident ( $($argument:expr),* $(,)? )) => {{
        let mut status = 1;
        // SAFETY: tests pass live handles and pointers to their own data.
        let made = unsafe { $cl.$call($($argument,)* &raw mut status) };
        assert_eq!(status, CL_SUCCESS, "{}", stringify!($call));
        made
    }};
}

/// A session with one context, queue, buffer and kernel on a server of so many host-memory devices.
struct Server {
    null: Arc<NullOpenCl>,
    pair: Pair,
}

struct Program {
    device: cl_device_id,
    context: cl_context,
    queue: cl_command_queue,
    buffer: cl_mem,
    kernel: cl_kernel,
}

fn server(devices: usize) -> Server {
    let null = Arc::new(NullOpenCl::new(devices));
    let pair = Pair::new(Arc::clone(&null) as Arc<dyn OpenClApi>);
    Server { null, pair }
}

fn program(cl: &Remote, device: usize) -> Program {
    let device = cl.platforms()[0].1[device];
    let context = make!(
        cl,
        clCreateContext(null(), 1, &raw const device, None, null_mut())
    );
    let queue = make!(cl, clCreateCommandQueue(context, device, 0));
    let buffer = make!(
        cl,
        clCreateBuffer(context, CL_MEM_READ_WRITE, 16, null_mut())
    );
    let program = make!(
        cl,
        clCreateProgramWithBuiltInKernels(
            context,
            1,
            &raw const device,
            c"add_one;scale;spin_until".as_ptr()
        )
    );
    let kernel = make!(cl, clCreateKernel(program, c"add_one".as_ptr()));
    ok!(cl, clSetKernelArg(kernel, 0, 8, (&raw const buffer).cast()));
    Program {
        device,
        context,
        queue,
        buffer,
        kernel,
    }
}

impl Program {
    fn launch(&self, cl: &Remote, kernel: cl_kernel, waits: &[cl_event]) {
        let count = 4_usize;
        let list = if waits.is_empty() {
            null()
        } else {
            waits.as_ptr()
        };
        ok!(
            cl,
            clEnqueueNDRangeKernel(
                self.queue,
                kernel,
                1,
                null(),
                &raw const count,
                null(),
                waits.len() as cl_uint,
                list,
                null_mut()
            )
        );
    }

    fn write(&self, cl: &Remote, values: [u32; 4]) {
        let source = values.as_ptr().cast();
        ok!(
            cl,
            clEnqueueWriteBuffer(
                self.queue,
                self.buffer,
                CL_TRUE,
                0,
                16,
                source,
                0,
                null(),
                null_mut()
            )
        );
    }

    fn read(&self, cl: &Remote) -> [u32; 4] {
        let mut values = [0_u32; 4];
        let target = values.as_mut_ptr().cast();
        ok!(
            cl,
            clEnqueueReadBuffer(
                self.queue,
                self.buffer,
                CL_TRUE,
                0,
                16,
                target,
                0,
                null(),
                null_mut()
            )
        );
        values
    }
}

/// Waits until nothing is left at a device: releases come from other threads.
fn left_at(null: &NullOpenCl) -> u64 {
    let start = Instant::now();
    while null.live_objects() > 0 && start.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(2));
    }
    null.live_objects()
}

#[test]
fn the_server_that_a_session_left_holds_nothing() {
    let (first, second) = (server(1), server(1));
    let remote = Arc::clone(&first.pair.remote);
    let objects = program(&remote, 0);
    objects.write(&remote, [1, 2, 3, 4]);
    objects.launch(&remote, objects.kernel, &[]);
    let there = Arc::clone(&second.null);
    remote
        .rebuild(second.pair.into_session(), PATIENCE)
        .expect("it moves");
    assert!(first.pair.join().is_ok());
    assert_eq!(left_at(&first.null), 0);
    objects.launch(&remote, objects.kernel, &[]);
    assert_eq!(objects.read(&remote), [3, 4, 5, 6]);
    assert!(there.live_objects() > 0);
    remote.close();
    assert_eq!(left_at(&there), 0);
}

#[test]
fn a_device_keeps_its_number_where_the_other_server_counts_otherwise() {
    let (first, second) = (server(2), server(3));
    let remote = Arc::clone(&first.pair.remote);
    let objects = [program(&remote, 0), program(&remote, 1)];
    objects[1].write(&remote, [1, 2, 3, 4]);
    remote
        .rebuild(second.pair.into_session(), PATIENCE)
        .expect("it moves");
    objects[1].launch(&remote, objects[1].kernel, &[]);
    assert_eq!(objects[1].read(&remote), [2, 3, 4, 5]);
    make!(
        remote,
        clCreateCommandQueue(objects[0].context, objects[0].device, 0)
    );
    ok!(remote, clFinish(objects[0].queue));
}

#[test]
fn a_server_with_fewer_devices_is_refused() {
    let (first, second) = (server(2), server(1));
    let remote = Arc::clone(&first.pair.remote);
    let objects = program(&remote, 0);
    let moved = remote.rebuild(second.pair.into_session(), PATIENCE);
    let text = moved.expect_err("a device is missing").to_string();
    assert!(text.contains("no device"), "{text}");
    objects.write(&remote, [1, 2, 3, 4]);
    objects.launch(&remote, objects.kernel, &[]);
    assert_eq!(objects.read(&remote), [2, 3, 4, 5]);
}

#[test]
fn a_session_with_commands_that_do_not_end_stays() {
    let (first, second, third) = (server(1), server(1), server(1));
    let remote = Arc::clone(&first.pair.remote);
    let objects = program(&remote, 0);
    objects.write(&remote, [1, 2, 3, 4]);
    let gate = make!(remote, clCreateUserEvent(objects.context));
    objects.launch(&remote, objects.kernel, &[gate]);
    let moved = remote.rebuild(second.pair.into_session(), NO_PATIENCE);
    assert!(matches!(moved, Err(RebuildError::Busy(_))), "{moved:?}");
    assert_eq!(left_at(&second.null), 0);
    ok!(remote, clSetUserEventStatus(gate, CL_COMPLETE));
    remote
        .rebuild(third.pair.into_session(), PATIENCE)
        .expect("it moves");
    assert_eq!(objects.read(&remote), [2, 3, 4, 5]);
}

#[test]
fn a_session_with_a_read_under_way_stays() {
    let (first, second, third) = (server(1), server(1), server(1));
    let remote = Arc::clone(&first.pair.remote);
    let objects = program(&remote, 0);
    objects.write(&remote, [1, 2, 3, 4]);
    let gate = make!(remote, clCreateUserEvent(objects.context));
    let mut values = [0_u32; 4];
    ok!(
        remote,
        clEnqueueReadBuffer(
            objects.queue,
            objects.buffer,
            CL_FALSE,
            0,
            16,
            values.as_mut_ptr().cast(),
            1,
            &raw const gate,
            null_mut()
        )
    );
    let moved = remote.rebuild(second.pair.into_session(), NO_PATIENCE);
    assert!(matches!(moved, Err(RebuildError::Busy(_))), "{moved:?}");
    ok!(remote, clSetUserEventStatus(gate, CL_COMPLETE));
    remote
        .rebuild(third.pair.into_session(), PATIENCE)
        .expect("it moves");
    assert_eq!(values, [1, 2, 3, 4]);
}

#[test]
fn commands_that_wait_for_later_calls_end_before_a_move() {
    let (first, second) = (server(1), server(1));
    let remote = Arc::clone(&first.pair.remote);
    let objects = program(&remote, 0);
    objects.write(&remote, [1, 2, 3, 4]);
    let gate = make!(remote, clCreateUserEvent(objects.context)).expose_provenance();
    let at = std::ptr::with_exposed_provenance_mut;
    objects.launch(&remote, objects.kernel, &[at(gate)]);
    std::thread::scope(|scope| {
        let opening = Arc::clone(&remote);
        scope.spawn(move || {
            // In the middle of the wait for the command.
            std::thread::sleep(Duration::from_millis(30));
            let gate = std::ptr::with_exposed_provenance_mut(gate);
            ok!(opening, clSetUserEventStatus(gate, CL_COMPLETE));
        });
        let began = Instant::now();
        remote
            .rebuild(second.pair.into_session(), PATIENCE)
            .expect("it moves");
        assert!(began.elapsed() < PATIENCE / 2);
    });
    assert_eq!(objects.read(&remote), [2, 3, 4, 5]);
}

#[test]
fn times_of_many_events_move() {
    let (first, second) = (server(1), server(1));
    let remote = Arc::clone(&first.pair.remote);
    let objects = program(&remote, 0);
    let queue = make!(
        remote,
        clCreateCommandQueue(objects.context, objects.device, CL_QUEUE_PROFILING_ENABLE)
    );
    let mut events = vec![null_mut(); 1500];
    for event in &mut events {
        ok!(remote, clEnqueueMarkerWithWaitList(queue, 0, null(), event));
    }
    ok!(remote, clFinish(queue));
    remote
        .rebuild(second.pair.into_session(), PATIENCE)
        .expect("it moves");
    for event in events {
        let mut ended = 0_u64;
        let target = (&raw mut ended).cast();
        let name = CL_PROFILING_COMMAND_END;
        ok!(
            remote,
            clGetEventProfilingInfo(event, name, 8, target, null_mut())
        );
        assert_ne!(ended, 0);
    }
}

#[test]
fn a_session_whose_call_waits_stays() {
    let (first, second) = (server(1), server(1));
    let remote = Arc::clone(&first.pair.remote);
    let objects = program(&remote, 0);
    let gate = make!(remote, clCreateUserEvent(objects.context));
    objects.launch(&remote, objects.kernel, &[gate]);
    std::thread::scope(|scope| {
        let queue = objects.queue.addr();
        let waiting = Arc::clone(&remote);
        let before = remote.meter().requests();
        scope.spawn(move || {
            let queue: cl_command_queue = std::ptr::with_exposed_provenance_mut(queue);
            ok!(waiting, clFinish(queue));
        });
        // The wait is under way once its request has been counted.
        let start = Instant::now();
        while remote.meter().requests() == before && start.elapsed() < Duration::from_secs(2) {
            std::thread::yield_now();
        }
        let moved = remote.rebuild(second.pair.into_session(), NO_PATIENCE);
        assert!(matches!(moved, Err(RebuildError::Busy(_))), "{moved:?}");
        ok!(remote, clSetUserEventStatus(gate, CL_COMPLETE));
    });
}

#[test]
fn calls_that_come_while_a_session_moves_find_it_moved() {
    let (first, second) = (server(1), server(1));
    let remote = Arc::clone(&first.pair.remote);
    let objects = program(&remote, 0);
    objects.write(&remote, [0; 4]);
    let stop = std::sync::atomic::AtomicBool::new(false);
    let launched = std::thread::scope(|scope| {
        let (queue, kernel) = (objects.queue.addr(), objects.kernel.addr());
        let (calling, stop) = (Arc::clone(&remote), &stop);
        let launching = scope.spawn(move || {
            let queue: cl_command_queue = std::ptr::with_exposed_provenance_mut(queue);
            let kernel: cl_kernel = std::ptr::with_exposed_provenance_mut(kernel);
            let (mut launched, one) = (0_u32, 4_usize);
            while !stop.load(std::sync::atomic::Ordering::Relaxed) && launched < 1_000_000 {
                let (none, list) = (null(), null());
                let event = null_mut();
                ok!(
                    calling,
                    clEnqueueNDRangeKernel(
                        queue,
                        kernel,
                        1,
                        none,
                        &raw const one,
                        none,
                        0,
                        list,
                        event
                    )
                );
                launched += 1;
                std::thread::yield_now();
            }
            launched
        });
        let mut session = Some(second.pair.into_session());
        // Busy while the other thread is inside a call: another session is tried with then.
        for _ in 0..10_000 {
            let fresh = session
                .take()
                .unwrap_or_else(|| server(1).pair.into_session());
            if remote.rebuild(fresh, PATIENCE).is_ok() {
                break;
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        launching.join().expect("the calls succeed")
    });
    assert!(first.pair.join().is_ok());
    assert_eq!(objects.read(&remote), [launched; 4]);
}

#[test]
fn a_server_that_dies_meanwhile_leaves_the_session_where_it_was() {
    let (first, second) = (server(1), server(1));
    let remote = Arc::clone(&first.pair.remote);
    let objects = program(&remote, 0);
    objects.write(&remote, [1, 2, 3, 4]);
    let lane = second.pair.monitors().remove(0);
    let fresh = second.pair.into_session();
    lane.cut();
    let moved = remote.rebuild(fresh, PATIENCE);
    assert!(matches!(moved, Err(RebuildError::Lost { .. })), "{moved:?}");
    objects.launch(&remote, objects.kernel, &[]);
    assert_eq!(objects.read(&remote), [2, 3, 4, 5]);
}

#[test]
fn a_session_that_was_used_takes_no_other_over() {
    let (first, second) = (server(1), server(1));
    program(&second.pair.remote, 0);
    let remote = Arc::clone(&first.pair.remote);
    let moved = remote.rebuild(second.pair.into_session(), PATIENCE);
    assert!(matches!(moved, Err(RebuildError::Used(_))), "{moved:?}");
}

#[test]
fn megabytes_move_in_pieces() {
    let (first, second) = (server(1), server(1));
    let remote = Arc::clone(&first.pair.remote);
    let objects = program(&remote, 0);
    // More than two of the pieces that the client holds at once, and not a whole number of them.
    let data: Vec<u8> = (0..(36 << 20) + 7)
        .map(|at: u32| ((at * 31) >> 3) as u8)
        .collect();
    let mut back = vec![0_u8; data.len()];
    let big = make!(
        remote,
        clCreateBuffer(objects.context, CL_MEM_READ_WRITE, data.len(), null_mut())
    );
    ok!(
        remote,
        clEnqueueWriteBuffer(
            objects.queue,
            big,
            CL_TRUE,
            0,
            data.len(),
            data.as_ptr().cast(),
            0,
            null(),
            null_mut()
        )
    );
    remote
        .rebuild(second.pair.into_session(), PATIENCE)
        .expect("it moves");
    ok!(
        remote,
        clEnqueueReadBuffer(
            objects.queue,
            big,
            CL_TRUE,
            0,
            back.len(),
            back.as_mut_ptr().cast(),
            0,
            null(),
            null_mut()
        )
    );
    assert!(back == data);
}

#[test]
fn callbacks_of_open_events_run_after_a_move() {
    extern "C" fn called(_: cl_event, status: cl_int, data: *mut std::ffi::c_void) {
        // SAFETY: the test's own flag, which outlives the session.
        let flag = unsafe { &*data.cast::<std::sync::atomic::AtomicI32>() };
        flag.store(status, std::sync::atomic::Ordering::SeqCst);
    }
    let (first, second) = (server(1), server(1));
    let remote = Arc::clone(&first.pair.remote);
    let objects = program(&remote, 0);
    let gate = make!(remote, clCreateUserEvent(objects.context));
    let flag = std::sync::atomic::AtomicI32::new(1);
    let data = (&raw const flag).cast_mut().cast();
    ok!(
        remote,
        clSetEventCallback(gate, CL_COMPLETE, Some(called), data)
    );
    remote
        .rebuild(second.pair.into_session(), PATIENCE)
        .expect("it moves");
    assert_eq!(flag.load(std::sync::atomic::Ordering::SeqCst), 1);
    ok!(remote, clSetUserEventStatus(gate, CL_COMPLETE));
    assert_eq!(flag.load(std::sync::atomic::Ordering::SeqCst), CL_COMPLETE);
}

/// What 10,000 objects may take in the client: buffers are the most common ones.
#[test]
fn ten_thousand_objects_are_kept_in_five_megabytes_and_none_in_nothing() {
    let first = server(1);
    let remote = Arc::clone(&first.pair.remote);
    let objects = program(&remote, 0);
    let empty = remote.kept_bytes();
    let made: Vec<(cl_mem, cl_kernel)> = (0..5_000)
        .map(|_| {
            let flags = CL_MEM_READ_WRITE;
            let buffer = make!(
                remote,
                clCreateBuffer(objects.context, flags, 64, null_mut())
            );
            (buffer, make!(remote, clCloneKernel(objects.kernel)))
        })
        .collect();
    let full = remote.kept_bytes() - empty;
    assert!(full > 10_000 * 40, "{full} bytes: what is counted?");
    assert!(full < 5 << 20, "{full} bytes");
    for (buffer, kernel) in made {
        ok!(remote, clReleaseMemObject(buffer));
        ok!(remote, clReleaseKernel(kernel));
    }
    // Tables keep their room: a program that had many objects has many again.
    let left = remote.kept_bytes() - empty;
    assert!(left < 10_000 * 48, "{left} bytes");
}
