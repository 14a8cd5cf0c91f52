//! Commands that a session posts: how their failures come back, and what later commands may count on.

#[macro_use]
mod support;

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::sync::mpsc::{Sender, TryRecvError, channel};
use std::time::Duration;

use support::Cl;
use towline_backend::opencl::*;
use towline_opencl::Provider;
use towline_test::pair::Pair;

/// A session on the device in host memory.
struct OnNull {
    cl: Cl,
    pair: Pair,
}

impl OnNull {
    fn new() -> Self {
        let pair = Pair::new(Arc::new(NullOpenCl::new(1)));
        let cl = Cl::over(Provider::of_session(&pair.remote));
        Self { cl, pair }
    }

    /// A kernel that adds one to the elements of its only argument.
    fn add_one(&self) -> cl_kernel {
        let cl = &self.cl;
        let (count, names) = (cl.devices.len() as cl_uint, c"add_one".as_ptr());
        let program = make!(
            cl,
            clCreateProgramWithBuiltInKernels(cl.context, count, cl.devices.as_ptr(), names)
        );
        cl.kernel(program.expect("a program"), "add_one")
    }

    /// A buffer that the server has no memory for, which no call has said.
    fn unallocated(&self) -> cl_mem {
        let held = (0..4).map(|_| self.cl.buffer(64 << 20));
        held.last().expect("buffers that fill the device");
        self.cl.buffer(64 << 20)
    }

    fn user_event(&self) -> cl_event {
        make!(self.cl, clCreateUserEvent(self.cl.context)).expect("a user event")
    }

    fn set(&self, event: cl_event, status: cl_int) {
        ok!(self.cl, clSetUserEventStatus(event, status));
    }

    /// Holds back what comes after on an in-order queue.
    fn hold(&self, queue: cl_command_queue, event: cl_event) {
        ok!(
            self.cl,
            clEnqueueBarrierWithWaitList(queue, 1, &raw const event, null_mut())
        );
    }

    fn write(
        &self,
        queue: cl_command_queue,
        buffer: cl_mem,
        value: u32,
        waits: &[cl_event],
        event: *mut cl_event,
    ) -> cl_int {
        let (count, list) = match waits {
            [] => (0, null()),
            waits => (waits.len() as cl_uint, waits.as_ptr()),
        };
        status!(
            self.cl,
            clEnqueueWriteBuffer(
                queue,
                buffer,
                CL_TRUE,
                0,
                4,
                (&raw const value).cast(),
                count,
                list,
                event
            )
        )
    }

    fn map(
        &self,
        queue: cl_command_queue,
        buffer: cl_mem,
        blocking: cl_bool,
        flags: cl_map_flags,
    ) -> *mut u32 {
        make!(
            self.cl,
            clEnqueueMapBuffer(queue, buffer, blocking, flags, 0, 4, 0, null(), null_mut())
        )
        .expect("a map")
        .cast()
    }

    fn unmap(&self, queue: cl_command_queue, buffer: cl_mem, at: *mut u32) {
        ok!(
            self.cl,
            clEnqueueUnmapMemObject(queue, buffer, at.cast(), 0, null(), null_mut())
        );
    }

    fn fill(&self, queue: cl_command_queue, buffer: cl_mem, event: *mut cl_event) {
        let pattern = [7_u32];
        ok!(
            self.cl,
            clEnqueueFillBuffer(
                queue,
                buffer,
                pattern.as_ptr().cast(),
                4,
                0,
                16,
                0,
                null(),
                event
            )
        );
    }
}

#[test]
fn failed_posted_command_is_told_by_finish() {
    let on = OnNull::new();
    let cl = &on.cl;
    let (queue, other) = (cl.queue(0), cl.queue(0));
    let missing = on.unallocated();
    on.fill(queue, missing, null_mut());
    assert_eq!(status!(cl, clFinish(other)), CL_SUCCESS);
    assert_eq!(
        status!(cl, clFinish(queue)),
        CL_MEM_OBJECT_ALLOCATION_FAILURE
    );
    assert_eq!(status!(cl, clFinish(queue)), CL_SUCCESS);
}

#[test]
fn kernel_does_not_run_with_an_earlier_argument() {
    let on = OnNull::new();
    let cl = &on.cl;
    let queue = cl.queue(0);
    let kernel = on.add_one();
    let (first, second) = (
        cl.buffer_of(CL_MEM_COPY_HOST_PTR, &mut [1]),
        cl.buffer_of(CL_MEM_COPY_HOST_PTR, &mut [5]),
    );
    cl.arg(kernel, 0, first);
    cl.launch(queue, kernel, 1);
    cl.arg(kernel, 0, on.unallocated());
    cl.launch(queue, kernel, 1);
    assert_eq!(
        status!(cl, clFinish(queue)),
        CL_MEM_OBJECT_ALLOCATION_FAILURE
    );
    cl.arg(kernel, 0, second);
    cl.launch(queue, kernel, 1);
    assert_eq!(cl.read(queue, first, 1), [2]);
    assert_eq!(cl.read(queue, second, 1), [6]);
}

#[test]
fn blocking_write_with_an_event_is_complete() {
    let on = OnNull::new();
    let cl = &on.cl;
    let (queue, buffer) = (cl.queue(0), cl.buffer(4));
    let mut event = null_mut();
    assert_eq!(on.write(queue, buffer, 2, &[], &raw mut event), CL_SUCCESS);
    let status: cl_int = cl.event_info(event, CL_EVENT_COMMAND_EXECUTION_STATUS);
    assert_eq!(status, CL_COMPLETE);
}

#[test]
fn blocking_write_ends_commands_whose_events_show_it() {
    let on = OnNull::new();
    let cl = &on.cl;
    let (queue, buffer) = (cl.queue(0), cl.buffer(16));
    let gate = on.user_event();
    on.hold(queue, gate);
    let mut filled = null_mut();
    on.fill(queue, buffer, &raw mut filled);
    let (platform, gate) = (&cl.platform, gate.expose_provenance());
    std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            let gate = std::ptr::with_exposed_provenance_mut(gate);
            // SAFETY: the event lives until the session ends.
            unsafe { platform.clSetUserEventStatus(gate, CL_COMPLETE) };
        });
        assert_eq!(on.write(queue, buffer, 2, &[], null_mut()), CL_SUCCESS);
    });
    let status: cl_int = cl.event_info(filled, CL_EVENT_COMMAND_EXECUTION_STATUS);
    assert_eq!(status, CL_COMPLETE);
    // An event that has ended, or that nobody holds, holds nothing up.
    let before = on.pair.remote.meter().round_trips();
    assert_eq!(on.write(queue, buffer, 2, &[], null_mut()), CL_SUCCESS);
    on.fill(queue, buffer, &raw mut filled);
    ok!(cl, clReleaseEvent(filled));
    assert_eq!(on.write(queue, buffer, 2, &[], null_mut()), CL_SUCCESS);
    assert_eq!(on.pair.remote.meter().round_trips(), before);
}

#[test]
fn blocking_write_is_complete_before_a_user_event() {
    let on = OnNull::new();
    let cl = &on.cl;
    let (first, second, buffer) = (cl.queue(0), cl.queue(0), cl.buffer(4));
    let (gate, behind) = (on.user_event(), on.user_event());
    on.hold(second, behind);
    on.hold(first, gate);
    let (platform, at) = (&cl.platform, gate.expose_provenance());
    std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            let gate = std::ptr::with_exposed_provenance_mut(at);
            // SAFETY: the event lives until the session ends.
            unsafe { platform.clSetUserEventStatus(gate, CL_COMPLETE) };
        });
        assert_eq!(on.write(first, buffer, 2, &[], null_mut()), CL_SUCCESS);
        let status: cl_int = cl.event_info(gate, CL_EVENT_COMMAND_EXECUTION_STATUS);
        assert_eq!(status, CL_COMPLETE);
    });
    on.set(behind, CL_COMPLETE);
    assert_eq!(cl.read(second, buffer, 1), [2]);
}

#[test]
fn empty_copy_is_refused_by_its_call() {
    let on = OnNull::new();
    let cl = &on.cl;
    let (queue, from, to) = (cl.queue(0), cl.buffer(4), cl.buffer(4));
    let copied = status!(
        cl,
        clEnqueueCopyBuffer(queue, from, to, 0, 0, 0, 0, null(), null_mut())
    );
    assert_eq!(copied, CL_INVALID_VALUE);
    assert_eq!(status!(cl, clFinish(queue)), CL_SUCCESS);
}

#[test]
fn host_timer_of_a_session_goes_with_both() {
    let on = OnNull::new();
    let (mut device, mut host, mut later) = (0, 0, 0);
    let at = on.cl.devices[0];
    ok!(
        on.cl,
        clGetDeviceAndHostTimer(at, &raw mut device, &raw mut host)
    );
    ok!(on.cl, clGetHostTimer(at, &raw mut later));
    assert!(host > 0 && later >= host, "{host} {later}");
}

#[test]
fn blocking_transfers_behind_a_failed_event_fail() {
    let on = OnNull::new();
    let cl = &on.cl;
    let (queue, buffer) = (cl.queue(0), cl.buffer(4));
    let failed = on.user_event();
    on.set(failed, -5);
    let written = on.write(queue, buffer, 2, &[failed], null_mut());
    let mut value = 0_u32;
    let read = status!(
        cl,
        clEnqueueReadBuffer(
            queue,
            buffer,
            CL_TRUE,
            0,
            4,
            (&raw mut value).cast(),
            1,
            &raw const failed,
            null_mut()
        )
    );
    let expected = CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
    assert_eq!((written, read), (expected, expected));
}

#[test]
fn other_queues_wait_for_a_blocking_write() {
    let on = OnNull::new();
    let cl = &on.cl;
    let (first, second) = (cl.queue(0), cl.queue(0));
    let buffer = cl.buffer_of(CL_MEM_COPY_HOST_PTR, &mut [1]);
    let before = on.pair.remote.meter().round_trips();
    assert_eq!(on.write(first, buffer, 2, &[], null_mut()), CL_SUCCESS);
    assert_eq!(on.pair.remote.meter().round_trips(), before);
    let (mut value, mut read) = (0_u32, null_mut());
    ok!(
        cl,
        clEnqueueReadBuffer(
            second,
            buffer,
            CL_FALSE,
            0,
            4,
            (&raw mut value).cast(),
            0,
            null(),
            &raw mut read
        )
    );
    ok!(cl, clWaitForEvents(1, &raw const read));
    assert_eq!(value, 2);
}

#[test]
fn queue_made_later_sees_an_earlier_blocking_write() {
    let on = OnNull::new();
    let cl = &on.cl;
    let first = cl.queue(0);
    let buffer = cl.buffer_of(CL_MEM_COPY_HOST_PTR, &mut [1]);
    assert_eq!(on.write(first, buffer, 2, &[], null_mut()), CL_SUCCESS);
    let second = cl.queue(0);
    assert_eq!(cl.read(second, buffer, 1), [2]);
    ok!(cl, clReleaseCommandQueue(first));
    assert_eq!(on.write(second, buffer, 3, &[], null_mut()), CL_SUCCESS);
    ok!(cl, clReleaseCommandQueue(second));
    let _open = on.user_event();
    assert_eq!(cl.read(cl.queue(0), buffer, 1), [3]);
}

#[test]
fn failed_read_is_told_once() {
    let on = OnNull::new();
    let cl = &on.cl;
    let queue = cl.queue(0);
    let missing = on.unallocated();
    let mut value = 0_u32;
    let read = status!(
        cl,
        clEnqueueReadBuffer(
            queue,
            missing,
            CL_TRUE,
            0,
            4,
            (&raw mut value).cast(),
            0,
            null(),
            null_mut()
        )
    );
    assert_eq!(read, CL_MEM_OBJECT_ALLOCATION_FAILURE);
    assert_eq!(status!(cl, clFinish(queue)), CL_SUCCESS);
}

/// Beyond what travels with a buffer's creation.
const LARGE: usize = (33 << 20) / size_of::<u32>();

#[test]
fn large_buffer_begins_with_its_contents() {
    let on = OnNull::new();
    let cl = &on.cl;
    let queue = cl.queue(0);
    let mut values: Vec<u32> = (0..LARGE as u32).collect();
    let right = values.clone();
    let buffer = cl.buffer_of(CL_MEM_COPY_HOST_PTR, &mut values);
    values.fill(0);
    assert!(cl.read(queue, buffer, LARGE) == right);
}

#[test]
fn large_buffer_reaches_both_of_two_sessions() {
    let pairs = [(); 2].map(|()| Pair::new(Arc::new(NullOpenCl::new(1))));
    let providers = pairs
        .iter()
        .flat_map(|pair| Provider::of_session(&pair.remote));
    let cl = Cl::over(providers.collect());
    let mut values: Vec<u32> = (0..LARGE as u32).collect();
    let buffer = cl.buffer_of(CL_MEM_USE_HOST_PTR, &mut values);
    for device in 0..2 {
        assert!(cl.read(cl.queue(device), buffer, LARGE) == values);
    }
}

#[test]
fn each_unmap_at_one_address_writes_back() {
    let on = OnNull::new();
    let cl = &on.cl;
    let queue = cl.queue(0);
    let buffer = cl.buffer_of(CL_MEM_COPY_HOST_PTR, &mut [1]);
    let maps = [CL_MAP_READ, CL_MAP_WRITE].map(|flags| on.map(queue, buffer, CL_TRUE, flags));
    assert_eq!(maps[0], maps[1]);
    for value in [2, 3] {
        // SAFETY: a region that is mapped for writing.
        unsafe { maps[0].write(value) };
        on.unmap(queue, buffer, maps[0]);
        assert_eq!(cl.read(queue, buffer, 1), [value]);
    }
}

extern "C" fn tell(_: cl_mem, told: *mut c_void) {
    // SAFETY: the test gives a box for exactly this call.
    let told = unsafe { Box::from_raw(told.cast::<Sender<()>>()) };
    told.send(()).expect("the test listens");
}

#[test]
fn memory_outlives_commands_that_use_it() {
    let on = OnNull::new();
    let cl = &on.cl;
    let queue = cl.queue(0);
    let buffer = cl.buffer_of(CL_MEM_COPY_HOST_PTR, &mut [1]);
    let (sender, ended) = channel::<()>();
    let told = Box::into_raw(Box::new(sender)).cast();
    ok!(
        cl,
        clSetMemObjectDestructorCallback(buffer, Some(tell), told)
    );
    let gate = on.user_event();
    on.hold(queue, gate);
    let mapped = on.map(queue, buffer, CL_FALSE, CL_MAP_READ);
    on.unmap(queue, buffer, mapped);
    ok!(cl, clReleaseMemObject(buffer));
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(ended.try_recv(), Err(TryRecvError::Empty));
    on.set(gate, CL_COMPLETE);
    ok!(cl, clFinish(queue));
    assert_eq!(ended.recv(), Ok(()));
}
