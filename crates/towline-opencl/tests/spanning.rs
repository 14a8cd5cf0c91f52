//! One context over two providers: two of one kind in this process, two unlike ones, two sessions, and one of each.

#[macro_use]
mod support;

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use support::{ADD, Cl, OCLGRIND, POCL, providers};
use towline_backend::opencl::*;
use towline_opencl::Provider;

/// A provider over a session with a worker of its own.
fn session() -> Provider {
    Provider::of_session(&support::session()).remove(0)
}

fn two_of_one_kind() -> Cl {
    Cl::new(&[POCL, POCL])
}

fn two_unlike() -> Cl {
    Cl::new(&[POCL, OCLGRIND])
}

fn two_sessions() -> Cl {
    Cl::over(vec![session(), session()])
}

fn two_unlike_sessions() -> Cl {
    let sessions = [POCL, OCLGRIND].map(|name| {
        let mut providers = Provider::of_session(&support::session_on(name));
        providers.remove(0)
    });
    Cl::over(sessions.into())
}

fn session_and_local() -> Cl {
    let mut both = providers(&[POCL], true);
    both.push(session());
    Cl::over(both)
}

macro_rules! over {
    ($($providers:ident: $($test:ident),* ;)*) => {
        $(mod $providers {
            $(
                #[test]
                fn $test() {
                    super::$test(&super::$providers());
                }
            )*
        })*
    };
}

over! {
    two_of_one_kind: written_here_and_added_to_there, contents_of_creation_are_everywhere, contents_go_to_and_fro,
        parts_of_a_buffer_are_written_side_by_side, an_event_crosses, a_user_event_releases_both_sides,
        a_failed_user_event_fails_the_other_side, a_held_back_writer_is_waited_for_without_blocking,
        who_waits_for_a_command_does_not_wait_for_the_next,
        a_map_shows_what_the_other_side_wrote, an_unmap_is_seen_by_the_other_side,
        a_host_pointer_is_where_maps_lead, a_part_written_there_keeps_the_rest,
        a_copy_reads_what_the_other_side_wrote, callbacks_come_for_events_of_both_sides, an_image_crosses,
        what_is_only_read_stays_where_it_is, many_threads_share_one_context, a_copied_kernel_has_its_arguments_on_both_sides,
        out_of_order_queues_cross_too;
    two_unlike: written_here_and_added_to_there, contents_of_creation_are_everywhere, contents_go_to_and_fro,
        parts_of_a_buffer_are_written_side_by_side, an_event_crosses, a_user_event_releases_both_sides,
        a_failed_user_event_fails_the_other_side, a_held_back_writer_is_waited_for_without_blocking,
        who_waits_for_a_command_does_not_wait_for_the_next,
        a_map_shows_what_the_other_side_wrote, an_unmap_is_seen_by_the_other_side,
        a_host_pointer_is_where_maps_lead, a_part_written_there_keeps_the_rest,
        a_copy_reads_what_the_other_side_wrote, callbacks_come_for_events_of_both_sides, an_image_crosses,
        what_is_only_read_stays_where_it_is, many_threads_share_one_context, a_copied_kernel_has_its_arguments_on_both_sides,
        out_of_order_queues_cross_too;
    two_unlike_sessions: written_here_and_added_to_there, contents_of_creation_are_everywhere, contents_go_to_and_fro,
        parts_of_a_buffer_are_written_side_by_side, an_event_crosses, a_user_event_releases_both_sides,
        a_failed_user_event_fails_the_other_side, a_held_back_writer_is_waited_for_without_blocking,
        who_waits_for_a_command_does_not_wait_for_the_next,
        a_map_shows_what_the_other_side_wrote, an_unmap_is_seen_by_the_other_side,
        a_host_pointer_is_where_maps_lead, a_part_written_there_keeps_the_rest,
        a_copy_reads_what_the_other_side_wrote, callbacks_come_for_events_of_both_sides, an_image_crosses,
        what_is_only_read_stays_where_it_is, many_threads_share_one_context, a_copied_kernel_has_its_arguments_on_both_sides,
        out_of_order_queues_cross_too;
    two_sessions: written_here_and_added_to_there, contents_of_creation_are_everywhere, contents_go_to_and_fro,
        parts_of_a_buffer_are_written_side_by_side, an_event_crosses, a_user_event_releases_both_sides,
        a_failed_user_event_fails_the_other_side, a_writer_that_fails_fails_who_needs_its_contents,
        a_held_back_writer_is_waited_for_without_blocking, who_waits_for_a_command_does_not_wait_for_the_next,
        a_map_shows_what_the_other_side_wrote, an_unmap_is_seen_by_the_other_side,
        a_host_pointer_is_where_maps_lead, a_part_written_there_keeps_the_rest,
        a_copy_reads_what_the_other_side_wrote, callbacks_come_for_events_of_both_sides, an_image_crosses,
        what_is_only_read_stays_where_it_is, many_threads_share_one_context, a_copied_kernel_has_its_arguments_on_both_sides,
        out_of_order_queues_cross_too;
    session_and_local: written_here_and_added_to_there, contents_go_to_and_fro, an_event_crosses,
        a_user_event_releases_both_sides, a_held_back_writer_is_waited_for_without_blocking,
        many_threads_share_one_context;
}

/// A kernel `add` with its buffer and summand.
fn adder(cl: &Cl, buffer: cl_mem, n: u32) -> cl_kernel {
    let kernel = cl.kernel(cl.program(ADD), "add");
    cl.arg(kernel, 0, buffer);
    cl.arg(kernel, 1, n);
    kernel
}

fn user_event(cl: &Cl) -> cl_event {
    make!(cl, clCreateUserEvent(cl.context)).expect("a user event")
}

/// Launches over four items behind events and answers the launch's event.
fn launch_after(
    cl: &Cl,
    queue: cl_command_queue,
    kernel: cl_kernel,
    waits: &[cl_event],
) -> cl_event {
    let (mut event, count) = (null_mut(), 4_usize);
    let list = if waits.is_empty() {
        null()
    } else {
        waits.as_ptr()
    };
    ok!(
        cl,
        clEnqueueNDRangeKernel(
            queue,
            kernel,
            1,
            null(),
            &raw const count,
            null(),
            waits.len() as cl_uint,
            list,
            &raw mut event
        )
    );
    event
}

fn written_here_and_added_to_there(cl: &Cl) {
    let (here, there) = (cl.queue(0), cl.queue(1));
    let buffer = cl.buffer(16);
    cl.write(here, buffer, &[1, 2, 3, 4]);
    cl.launch(there, adder(cl, buffer, 10), 4);
    assert_eq!(cl.read(here, buffer, 4), [11, 12, 13, 14]);
}

fn contents_of_creation_are_everywhere(cl: &Cl) {
    let (here, there) = (cl.queue(0), cl.queue(1));
    let buffer = cl.buffer_of(CL_MEM_COPY_HOST_PTR, &mut [5, 6, 7, 8]);
    assert_eq!(cl.read(there, buffer, 4), [5, 6, 7, 8]);
    assert_eq!(cl.read(here, buffer, 4), [5, 6, 7, 8]);
}

fn contents_go_to_and_fro(cl: &Cl) {
    let queues = [cl.queue(0), cl.queue(1)];
    let buffer = cl.buffer_of(CL_MEM_COPY_HOST_PTR, &mut [0, 100, 200, 300]);
    let kernel = adder(cl, buffer, 1);
    for turn in 0..40 {
        cl.launch(queues[turn % 2], kernel, 4);
    }
    assert_eq!(cl.read(queues[0], buffer, 4), [40, 140, 240, 340]);
}

fn parts_of_a_buffer_are_written_side_by_side(cl: &Cl) {
    let queues = [cl.queue(0), cl.queue(1)];
    let (half, items) = (4096, 1024);
    let buffer = cl.buffer_of(CL_MEM_COPY_HOST_PTR, &mut vec![7; 2 * items]);
    let kernel = cl.kernel(cl.program(ADD), "add");
    for (side, queue) in queues.into_iter().enumerate() {
        let region = cl_buffer_region {
            origin: side * half,
            size: half,
        };
        let part = make!(
            cl,
            clCreateSubBuffer(
                buffer,
                0,
                CL_BUFFER_CREATE_TYPE_REGION,
                (&raw const region).cast()
            )
        )
        .expect("a sub-buffer");
        cl.arg(kernel, 0, part);
        cl.arg(kernel, 1, 10 * (side as u32 + 1));
        cl.launch(queue, kernel, items);
        ok!(cl, clReleaseMemObject(part));
    }
    let values = cl.read(queues[0], buffer, 2 * items);
    assert!(values[..items].iter().all(|value| *value == 17));
    assert!(values[items..].iter().all(|value| *value == 27));
}

fn an_event_crosses(cl: &Cl) {
    let (here, there) = (cl.queue(0), cl.queue(1));
    let first = cl.buffer_of(CL_MEM_COPY_HOST_PTR, &mut [1; 4]);
    let second = cl.buffer_of(CL_MEM_COPY_HOST_PTR, &mut [2; 4]);
    let done = launch_after(cl, here, adder(cl, first, 1), &[]);
    ok!(cl, clFlush(here));
    let after = launch_after(cl, there, adder(cl, second, 1), &[done]);
    ok!(cl, clWaitForEvents(2, [done, after].as_ptr()));
    let status: cl_int = cl.event_info(done, CL_EVENT_COMMAND_EXECUTION_STATUS);
    assert_eq!(status, CL_COMPLETE);
    assert_eq!(cl.read(there, second, 4), [3; 4]);
}

fn a_user_event_releases_both_sides(cl: &Cl) {
    let gate = user_event(cl);
    let buffers = [0, 1].map(|_| cl.buffer_of(CL_MEM_COPY_HOST_PTR, &mut [1; 4]));
    let queues = [cl.queue(0), cl.queue(1)];
    let events =
        [0, 1].map(|side| launch_after(cl, queues[side], adder(cl, buffers[side], 1), &[gate]));
    for queue in queues {
        ok!(cl, clFlush(queue));
    }
    let before =
        events.map(|event| cl.event_info::<cl_int>(event, CL_EVENT_COMMAND_EXECUTION_STATUS));
    ok!(cl, clSetUserEventStatus(gate, CL_COMPLETE));
    ok!(cl, clWaitForEvents(2, events.as_ptr()));
    assert!(
        before.iter().all(|status| *status > CL_COMPLETE),
        "{before:?}"
    );
    for side in 0..2 {
        assert_eq!(cl.read(queues[side], buffers[side], 4), [2; 4]);
    }
    assert_eq!(
        status!(cl, clSetUserEventStatus(gate, CL_COMPLETE)),
        CL_INVALID_OPERATION
    );
}

fn a_failed_user_event_fails_the_other_side(cl: &Cl) {
    let gate = user_event(cl);
    let queue = cl.queue(1);
    let buffer = cl.buffer_of(CL_MEM_COPY_HOST_PTR, &mut [1; 4]);
    let event = launch_after(cl, queue, adder(cl, buffer, 1), &[gate]);
    ok!(cl, clFlush(queue));
    ok!(cl, clSetUserEventStatus(gate, -5));
    assert_eq!(
        status!(cl, clWaitForEvents(1, &raw const event)),
        CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST
    );
}

fn a_writer_that_fails_fails_who_needs_its_contents(cl: &Cl) {
    let gate = user_event(cl);
    let (here, there) = (cl.queue(0), cl.queue(1));
    let buffer = cl.buffer_of(CL_MEM_COPY_HOST_PTR, &mut [1; 4]);
    let kernel = adder(cl, buffer, 1);
    let first = launch_after(cl, here, kernel, &[gate]);
    let second = launch_after(cl, there, kernel, &[]);
    ok!(cl, clFlush(here));
    ok!(cl, clFlush(there));
    ok!(cl, clSetUserEventStatus(gate, -5));
    let start = std::time::Instant::now();
    for event in [first, second] {
        let status = || cl.event_info::<cl_int>(event, CL_EVENT_COMMAND_EXECUTION_STATUS);
        while status() > CL_COMPLETE {
            assert!(
                start.elapsed() < Duration::from_secs(20),
                "an event has no end"
            );
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(status() < 0);
    }
}

fn a_held_back_writer_is_waited_for_without_blocking(cl: &Cl) {
    let gate = user_event(cl);
    let (here, there) = (cl.queue(0), cl.queue(1));
    let buffer = cl.buffer_of(CL_MEM_COPY_HOST_PTR, &mut [1; 4]);
    let kernel = adder(cl, buffer, 1);
    let first = launch_after(cl, here, kernel, &[gate]);
    // Its contents are not there yet; the call returns all the same.
    let second = launch_after(cl, there, kernel, &[]);
    let third = launch_after(cl, here, kernel, &[]);
    ok!(cl, clSetUserEventStatus(gate, CL_COMPLETE));
    ok!(cl, clWaitForEvents(3, [first, second, third].as_ptr()));
    assert_eq!(cl.read(there, buffer, 4), [4; 4]);
}

/// Launches over four items behind events, and wants no event.
fn launch_silently(cl: &Cl, queue: cl_command_queue, kernel: cl_kernel, waits: &[cl_event]) {
    let count = 4_usize;
    let list = if waits.is_empty() {
        null()
    } else {
        waits.as_ptr()
    };
    ok!(
        cl,
        clEnqueueNDRangeKernel(
            queue,
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

fn who_waits_for_a_command_does_not_wait_for_the_next(cl: &Cl) {
    let gate = user_event(cl);
    let (here, there) = (cl.queue(0), cl.queue(1));
    let buffer = cl.buffer_of(CL_MEM_COPY_HOST_PTR, &mut [1; 4]);
    let other = cl.buffer_of(CL_MEM_COPY_HOST_PTR, &mut [1; 4]);
    launch_silently(cl, here, adder(cl, buffer, 1), &[]);
    launch_silently(cl, here, adder(cl, other, 1), &[gate]);
    // The gate opens only when the buffer has been there.
    let seen = launch_after(cl, there, adder(cl, buffer, 5), &[]);
    ok!(cl, clWaitForEvents(1, &raw const seen));
    ok!(cl, clSetUserEventStatus(gate, CL_COMPLETE));
    assert_eq!(cl.read(there, buffer, 4), [7; 4]);
    assert_eq!(cl.read(there, other, 4), [2; 4]);
}

#[test]
fn a_launch_that_nobody_waits_for_costs_one_message() {
    let session = support::session();
    let cl = Cl::over(vec![
        Provider::of_session(&session).remove(0),
        self::session(),
    ]);
    let here = cl.queue(0);
    let kernel = adder(&cl, cl.buffer_of(CL_MEM_COPY_HOST_PTR, &mut [1; 4]), 1);
    // The second launch forgets how the contents came.
    launch_silently(&cl, here, kernel, &[]);
    ok!(cl, clFinish(here));
    launch_silently(&cl, here, kernel, &[]);
    ok!(cl, clFinish(here));
    let before = session.meter().requests();
    for _ in 0..100 {
        launch_silently(&cl, here, kernel, &[]);
    }
    ok!(cl, clFinish(here));
    // The events by which the contents came may be released meanwhile: two messages.
    let sent = session.meter().requests() - before;
    assert!((101..=103).contains(&sent), "{sent} messages");
}

fn map(cl: &Cl, queue: cl_command_queue, buffer: cl_mem, flags: cl_map_flags) -> *mut c_void {
    make!(
        cl,
        clEnqueueMapBuffer(queue, buffer, CL_TRUE, flags, 0, 16, 0, null(), null_mut())
    )
    .expect("a map")
}

fn unmap(cl: &Cl, queue: cl_command_queue, buffer: cl_mem, pointer: *mut c_void) {
    ok!(
        cl,
        clEnqueueUnmapMemObject(queue, buffer, pointer, 0, null(), null_mut())
    );
}

fn four(pointer: *mut c_void) -> [u32; 4] {
    // SAFETY: a mapped region of four values.
    unsafe { pointer.cast::<[u32; 4]>().read() }
}

fn a_map_shows_what_the_other_side_wrote(cl: &Cl) {
    let (here, there) = (cl.queue(0), cl.queue(1));
    let buffer = cl.buffer_of(CL_MEM_COPY_HOST_PTR, &mut [1; 4]);
    cl.launch(there, adder(cl, buffer, 8), 4);
    let pointer = map(cl, here, buffer, CL_MAP_READ);
    let seen = four(pointer);
    assert_eq!(cl.mem_info(buffer, CL_MEM_MAP_COUNT, 9_u32), 1);
    unmap(cl, here, buffer, pointer);
    assert_eq!(seen, [9; 4]);
    assert_eq!(cl.mem_info(buffer, CL_MEM_MAP_COUNT, 9_u32), 0);
}

fn an_unmap_is_seen_by_the_other_side(cl: &Cl) {
    let (here, there) = (cl.queue(0), cl.queue(1));
    let buffer = cl.buffer(16);
    let pointer = map(cl, here, buffer, CL_MAP_WRITE_INVALIDATE_REGION);
    // SAFETY: a mapped region of four values.
    unsafe { pointer.cast::<[u32; 4]>().write([3, 1, 4, 1]) };
    unmap(cl, here, buffer, pointer);
    cl.launch(there, adder(cl, buffer, 1), 4);
    assert_eq!(cl.read(there, buffer, 4), [4, 2, 5, 2]);
}

fn a_host_pointer_is_where_maps_lead(cl: &Cl) {
    let there = cl.queue(1);
    let mut values = [1_u32, 2, 3, 4];
    let place: *mut c_void = values.as_mut_ptr().cast();
    let buffer = make!(
        cl,
        clCreateBuffer(cl.context, CL_MEM_USE_HOST_PTR, 16, place)
    )
    .expect("a buffer");
    cl.launch(there, adder(cl, buffer, 1), 4);
    let pointer = map(cl, there, buffer, CL_MAP_READ);
    assert_eq!(pointer, place);
    assert_eq!(four(place), [2, 3, 4, 5]);
    unmap(cl, there, buffer, pointer);
    ok!(cl, clFinish(there));
    ok!(cl, clReleaseMemObject(buffer));
}

fn a_part_written_there_keeps_the_rest(cl: &Cl) {
    let (here, there) = (cl.queue(0), cl.queue(1));
    let buffer = cl.buffer(16);
    cl.write(here, buffer, &[1, 2, 3, 4]);
    cl.write(there, buffer, &[9, 8]);
    assert_eq!(cl.read(here, buffer, 4), [9, 8, 3, 4]);
}

fn a_copy_reads_what_the_other_side_wrote(cl: &Cl) {
    let (here, there) = (cl.queue(0), cl.queue(1));
    let (from, to) = (cl.buffer(16), cl.buffer(16));
    cl.write(here, from, &[1, 2, 3, 4]);
    ok!(
        cl,
        clEnqueueCopyBuffer(there, from, to, 0, 0, 16, 0, null(), null_mut())
    );
    assert_eq!(cl.read(here, to, 4), [1, 2, 3, 4]);
}

unsafe extern "C" fn tell(_event: cl_event, status: cl_int, user_data: *mut c_void) {
    // SAFETY: the test gives a box for exactly this call.
    let sender = unsafe { Box::from_raw(user_data.cast::<Sender<cl_int>>()) };
    sender.send(status).expect("the test listens");
}

fn callbacks_come_for_events_of_both_sides(cl: &Cl) {
    let (sender, receiver) = channel::<cl_int>();
    for side in 0..2 {
        let buffer = cl.buffer_of(CL_MEM_COPY_HOST_PTR, &mut [1; 4]);
        let queue = cl.queue(side);
        let event = launch_after(cl, queue, adder(cl, buffer, 1), &[]);
        let user_data = Box::into_raw(Box::new(sender.clone()));
        ok!(
            cl,
            clSetEventCallback(event, CL_COMPLETE, Some(tell), user_data.cast())
        );
        ok!(cl, clReleaseEvent(event));
        ok!(cl, clFlush(queue));
    }
    let limit = Duration::from_secs(20);
    let seen = [0, 1].map(|_| receiver.recv_timeout(limit).expect("a callback"));
    assert_eq!(seen, [CL_COMPLETE; 2]);
}

fn an_image_crosses(cl: &Cl) {
    let (here, there) = (cl.queue(0), cl.queue(1));
    let format = cl_image_format {
        image_channel_order: CL_RGBA,
        image_channel_data_type: CL_UNSIGNED_INT8,
    };
    let desc = cl_image_desc {
        image_type: CL_MEM_OBJECT_IMAGE2D,
        image_width: 4,
        image_height: 2,
        image_depth: 0,
        image_array_size: 0,
        image_row_pitch: 0,
        image_slice_pitch: 0,
        num_mip_levels: 0,
        num_samples: 0,
        mem_object: null_mut(),
    };
    let image = make!(
        cl,
        clCreateImage(
            cl.context,
            CL_MEM_READ_WRITE,
            &raw const format,
            &raw const desc,
            null_mut()
        )
    )
    .expect("an image");
    let (origin, region) = ([0_usize; 3], [4_usize, 2, 1]);
    let texels = [1_u32, 2, 3, 4, 5, 6, 7, 8];
    ok!(
        cl,
        clEnqueueWriteImage(
            here,
            image,
            CL_TRUE,
            origin.as_ptr(),
            region.as_ptr(),
            0,
            0,
            texels.as_ptr().cast(),
            0,
            null(),
            null_mut()
        )
    );
    let mut seen = [0_u32; 8];
    ok!(
        cl,
        clEnqueueReadImage(
            there,
            image,
            CL_TRUE,
            origin.as_ptr(),
            region.as_ptr(),
            0,
            0,
            seen.as_mut_ptr().cast(),
            0,
            null(),
            null_mut()
        )
    );
    assert_eq!(seen, texels);
}

/// A kernel on one side may not start, yet what it only reads can be used on the other side at once.
fn what_is_only_read_stays_where_it_is(cl: &Cl) {
    let gate = user_event(cl);
    let (here, there) = (cl.queue(0), cl.queue(1));
    let from = cl.buffer_of(CL_MEM_COPY_HOST_PTR, &mut [1, 2, 3, 4]);
    let targets = [cl.buffer(16), cl.buffer(16)];
    let kernel = cl.kernel(cl.program(ADD), "copy");
    cl.arg(kernel, 0, from);
    cl.arg(kernel, 1, targets[0]);
    let held = launch_after(cl, here, kernel, &[gate]);
    cl.arg(kernel, 1, targets[1]);
    cl.launch(there, kernel, 4);
    let seen = cl.read(there, targets[1], 4);
    ok!(cl, clSetUserEventStatus(gate, CL_COMPLETE));
    ok!(cl, clWaitForEvents(1, &raw const held));
    assert_eq!(seen, [1, 2, 3, 4]);
    assert_eq!(cl.read(there, targets[0], 4), [1, 2, 3, 4]);
}

fn many_threads_share_one_context(cl: &Cl) {
    let program = Raw(cl.program(ADD));
    let cl = &Everywhere(cl);
    std::thread::scope(|scope| {
        for thread in 0..4_u32 {
            scope.spawn(move || {
                let (program, cl) = (program, cl);
                let cl = cl.0;
                let queues = [cl.queue(0), cl.queue(1)];
                let buffer = cl.buffer_of(CL_MEM_COPY_HOST_PTR, &mut [thread; 64]);
                let kernel = cl.kernel(program.0, "add");
                cl.arg(kernel, 0, buffer);
                cl.arg(kernel, 1, 1_u32);
                for turn in 0..30 {
                    cl.launch(queues[(turn + thread as usize) % 2], kernel, 64);
                }
                assert_eq!(cl.read(queues[1], buffer, 64), [thread + 30; 64]);
                ok!(cl, clReleaseKernel(kernel));
                ok!(cl, clReleaseMemObject(buffer));
                for queue in queues {
                    ok!(cl, clReleaseCommandQueue(queue));
                }
            });
        }
    });
}

/// What tests take into other threads: OpenCL objects may be used from any.
#[derive(Clone, Copy)]
struct Raw(cl_program);
// SAFETY: as above.
unsafe impl Send for Raw {}
struct Everywhere<'a>(&'a Cl);
// SAFETY: as above.
unsafe impl Sync for Everywhere<'_> {}

fn a_copied_kernel_has_its_arguments_on_both_sides(cl: &Cl) {
    let queues = [cl.queue(0), cl.queue(1)];
    let buffer = cl.buffer_of(CL_MEM_COPY_HOST_PTR, &mut [1; 4]);
    let kernel = adder(cl, buffer, 5);
    let clone = make!(cl, clCloneKernel(kernel)).expect("a clone");
    cl.arg(kernel, 1, 100_u32);
    for queue in queues {
        cl.launch(queue, clone, 4);
    }
    assert_eq!(cl.read(queues[0], buffer, 4), [11; 4]);
}

fn out_of_order_queues_cross_too(cl: &Cl) {
    let queues = [0, 1].map(|side| {
        make!(
            cl,
            clCreateCommandQueue(
                cl.context,
                cl.devices[side],
                CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE
            )
        )
        .expect("a queue")
    });
    let buffer = cl.buffer_of(CL_MEM_COPY_HOST_PTR, &mut [0; 4]);
    let kernel = adder(cl, buffer, 1);
    let mut last: Vec<cl_event> = Vec::new();
    for turn in 0..20 {
        let event = launch_after(cl, queues[turn % 2], kernel, &last);
        ok!(cl, clFlush(queues[turn % 2]));
        last = vec![event];
    }
    ok!(cl, clWaitForEvents(1, last.as_ptr()));
    assert_eq!(cl.read(queues[0], buffer, 4), [20; 4]);
}
