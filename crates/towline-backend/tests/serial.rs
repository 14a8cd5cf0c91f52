//! The adapter for serial vendors over one: Oclgrind, which computes only inside a call.

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use towline_backend::opencl::*;

/// Where Debian has it.
const OCLGRIND: &str = "/usr/lib/oclgrind/liboclgrind-rt-icd.so";
/// Longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(60);

const ADD: &str =
    "__kernel void add(__global uint *values, uint n) { values[get_global_id(0)] += n; }";

/// Calls the vendor and expects success.
macro_rules! ok {
    ($cl:expr, $call:ident ( $($argument:expr),* $(,)? )) => {{
        // SAFETY: tests pass live handles and pointers to their own data.
        let status = unsafe { $cl.api.$call($($argument),*) };
        assert_eq!(status, CL_SUCCESS, "{} answered {:?}", stringify!($call), status_name(status));
    }};
}

/// Creates an object and expects success.
macro_rules! make {
    ($cl:expr, $call:ident ( $($argument:expr),* $(,)? )) => {{
        let mut status = 1;
        // SAFETY: tests pass live handles and pointers to their own data.
        let made = unsafe { $cl.api.$call($($argument,)* &raw mut status) };
        assert_eq!(status, CL_SUCCESS, "{} answered {:?}", stringify!($call), status_name(status));
        made
    }};
}

/// A context on Oclgrind.
struct Cl {
    api: Arc<dyn OpenClApi>,
    device: cl_device_id,
    context: cl_context,
}

impl Cl {
    fn new() -> Self {
        let native = NativeOpenCl::from_libraries(&[OCLGRIND.into()])
            .unwrap_or_else(|error| panic!("{error}: the tests need this library"));
        let platform = native.platforms().next().expect("it has a platform");
        let mut cl = Self {
            api: SerialOpenCl::where_needed(native),
            device: null_mut(),
            context: null_mut(),
        };
        let all = CL_DEVICE_TYPE_ALL;
        ok!(
            cl,
            clGetDeviceIDs(platform, all, 1, &raw mut cl.device, null_mut())
        );
        let device = &raw const cl.device;
        cl.context = make!(cl, clCreateContext(null(), 1, device, None, null_mut()));
        cl
    }

    fn queue(&self) -> cl_command_queue {
        make!(self, clCreateCommandQueue(self.context, self.device, 0))
    }

    /// A buffer of four zeros.
    fn buffer(&self) -> cl_mem {
        let mut zeros = [0_u32; 4];
        let (flags, from) = (CL_MEM_COPY_HOST_PTR, zeros.as_mut_ptr().cast());
        make!(self, clCreateBuffer(self.context, flags, 16, from))
    }

    /// A kernel that adds `n` to the buffer's four values.
    fn adder(&self, buffer: cl_mem, n: u32) -> cl_kernel {
        let source = std::ffi::CString::new(ADD).expect("no NUL");
        let mut sources = [source.as_ptr()];
        let (context, sources) = (self.context, sources.as_mut_ptr());
        let program = make!(self, clCreateProgramWithSource(context, 1, sources, null()));
        ok!(
            self,
            clBuildProgram(program, 0, null(), null(), None, null_mut())
        );
        let kernel = make!(self, clCreateKernel(program, c"add".as_ptr()));
        ok!(self, clReleaseProgram(program));
        let value = (&raw const buffer).cast();
        ok!(self, clSetKernelArg(kernel, 0, size_of::<cl_mem>(), value));
        self.summand(kernel, n);
        kernel
    }

    fn summand(&self, kernel: cl_kernel, n: u32) {
        ok!(self, clSetKernelArg(kernel, 1, 4, (&raw const n).cast()));
    }

    /// Launches over the four values, behind an event.
    fn launch(&self, queue: cl_command_queue, kernel: cl_kernel, gate: cl_event) -> cl_event {
        let (mut event, count) = (null_mut(), 4_usize);
        ok!(
            self,
            clEnqueueNDRangeKernel(
                queue,
                kernel,
                1,
                null(),
                &raw const count,
                null(),
                1,
                &raw const gate,
                &raw mut event
            )
        );
        event
    }

    /// The four values, as soon as `queue` has come to it.
    fn read(&self, queue: cl_command_queue, buffer: cl_mem) -> [u32; 4] {
        let mut values = [u32::MAX; 4];
        let to = values.as_mut_ptr().cast::<c_void>();
        let none = (null(), null_mut());
        ok!(
            self,
            clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, 16, to, 0, none.0, none.1)
        );
        values
    }

    fn gate(&self) -> cl_event {
        make!(self, clCreateUserEvent(self.context))
    }

    fn open(&self, gate: cl_event) {
        ok!(self, clSetUserEventStatus(gate, CL_COMPLETE));
    }

    fn wait(&self, event: cl_event) {
        ok!(self, clWaitForEvents(1, &raw const event));
    }

    fn status(&self, event: cl_event) -> cl_int {
        let mut status = 1;
        let (name, value) = (CL_EVENT_COMMAND_EXECUTION_STATUS, (&raw mut status).cast());
        ok!(self, clGetEventInfo(event, name, 4, value, null_mut()));
        status
    }
}

#[test]
fn a_command_behind_a_user_event_blocks_neither_flush_nor_other_queues() {
    let cl = Cl::new();
    let (held, free) = (cl.queue(), cl.queue());
    let (there, here) = (cl.buffer(), cl.buffer());
    let (gate, open) = (cl.gate(), cl.gate());
    let done = cl.launch(held, cl.adder(there, 5), gate);
    ok!(cl, clFlush(held));
    cl.open(open);
    cl.launch(free, cl.adder(here, 7), open);
    assert_eq!(cl.read(free, here), [7; 4]);
    assert_eq!(cl.read(free, there), [0; 4]);
    assert_eq!(cl.status(done), CL_QUEUED);
    cl.open(gate);
    cl.wait(done);
    assert_eq!(cl.read(held, there), [5; 4]);
}

#[test]
fn a_launch_has_the_arguments_of_when_it_was_enqueued() {
    let cl = Cl::new();
    let (queue, buffer, gate) = (cl.queue(), cl.buffer(), cl.gate());
    let kernel = cl.adder(buffer, 1);
    cl.launch(queue, kernel, gate);
    cl.summand(kernel, 10);
    cl.launch(queue, kernel, gate);
    cl.summand(kernel, 100);
    cl.open(gate);
    assert_eq!(cl.read(queue, buffer), [11; 4]);
}

#[test]
fn what_a_command_uses_lives_until_it_has_run() {
    let cl = Cl::new();
    let (queue, buffer, gate) = (cl.queue(), cl.buffer(), cl.gate());
    let kernel = cl.adder(buffer, 3);
    cl.launch(queue, kernel, gate);
    let mut values = [0_u32; 4];
    let (mut done, to) = (null_mut(), values.as_mut_ptr().cast::<c_void>());
    let (none, event) = (null(), &raw mut done);
    ok!(
        cl,
        clEnqueueReadBuffer(queue, buffer, CL_FALSE, 0, 16, to, 0, none, event)
    );
    unsafe extern "C" fn drop_sender(_: cl_mem, sender: *mut c_void) {
        // SAFETY: the sender that the test registered, given away once.
        drop(unsafe { Box::from_raw(sender.cast::<Sender<()>>()) });
    }
    let (sender, destroyed) = channel::<()>();
    let sender = Box::into_raw(Box::new(sender)).cast();
    ok!(
        cl,
        clSetMemObjectDestructorCallback(buffer, Some(drop_sender), sender)
    );
    ok!(cl, clReleaseKernel(kernel));
    ok!(cl, clReleaseMemObject(buffer));
    ok!(cl, clReleaseCommandQueue(queue));
    assert!(destroyed.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty));
    cl.open(gate);
    cl.wait(done);
    assert_eq!(values, [3; 4]);
    assert_eq!(
        destroyed.recv_timeout(LIMIT),
        Err(RecvTimeoutError::Disconnected)
    );
}

#[test]
fn a_map_has_its_address_at_once_and_its_bytes_in_its_turn() {
    let cl = Cl::new();
    let (queue, buffer, gate) = (cl.queue(), cl.buffer(), cl.gate());
    cl.launch(queue, cl.adder(buffer, 2), gate);
    let (mut mapped, flags) = (null_mut(), CL_MAP_READ | CL_MAP_WRITE);
    let (none, event) = (null(), &raw mut mapped);
    let at = make!(
        cl,
        clEnqueueMapBuffer(queue, buffer, CL_FALSE, flags, 4, 8, 0, none, event)
    );
    assert_eq!(cl.status(mapped), CL_QUEUED);
    cl.open(gate);
    cl.wait(mapped);
    let part = at.cast::<[u32; 2]>();
    // SAFETY: the range is mapped.
    assert_eq!(unsafe { part.read() }, [2, 2]);
    // SAFETY: as above, for writing too.
    unsafe { part.write([8, 9]) };
    ok!(
        cl,
        clEnqueueUnmapMemObject(queue, buffer, at, 0, null(), null_mut())
    );
    assert_eq!(cl.read(queue, buffer), [2, 8, 9, 2]);
}

#[test]
fn a_failed_user_event_fails_what_waits_and_spares_the_buffer() {
    let cl = Cl::new();
    let (queue, buffer, gate) = (cl.queue(), cl.buffer(), cl.gate());
    let done = cl.launch(queue, cl.adder(buffer, 2), gate);
    ok!(cl, clSetUserEventStatus(gate, CL_OUT_OF_RESOURCES));
    assert_eq!(cl.read(queue, buffer), [0; 4]);
    assert_eq!(
        cl.status(done),
        CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST
    );
}

#[test]
fn what_the_vendor_refuses_is_the_status_of_the_event() {
    let cl = Cl::new();
    let (queue, buffer) = (cl.queue(), cl.buffer());
    let mut done = null_mut();
    // The ranges overlap.
    ok!(
        cl,
        clEnqueueCopyBuffer(queue, buffer, buffer, 0, 4, 8, 0, null(), &raw mut done)
    );
    ok!(cl, clFinish(queue));
    assert_eq!(cl.status(done), CL_MEM_COPY_OVERLAP);
}

#[test]
fn a_callback_that_comes_after_the_end_is_called() {
    unsafe extern "C" fn tell(_: cl_event, status: cl_int, told: *mut c_void) {
        // SAFETY: the sender that the test registered, which outlives the call.
        let told = unsafe { &*told.cast::<Sender<cl_int>>() };
        told.send(status).expect("the test waits");
    }
    let cl = Cl::new();
    let (queue, mut done) = (cl.queue(), null_mut());
    ok!(
        cl,
        clEnqueueMarkerWithWaitList(queue, 0, null(), &raw mut done)
    );
    cl.wait(done);
    let (told, tells) = channel::<cl_int>();
    let data = (&raw const told).cast_mut().cast();
    ok!(cl, clSetEventCallback(done, CL_COMPLETE, Some(tell), data));
    assert_eq!(tells.recv_timeout(LIMIT), Ok(CL_COMPLETE));
}
