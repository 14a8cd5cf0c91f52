//! Round trips are asserted numbers: what a session waits for, by API call, over a simulated link.

use std::ffi::CString;
use std::ptr::{null, null_mut};
use std::sync::{Arc, OnceLock};

use towline_backend::opencl::*;
use towline_client::opencl::Remote;
use towline_test::pair::Pair;

const SOURCE: &str = "
kernel void fill(global int *out, int a, int b, int c, int d, int e, global const int *in) {
    size_t at = get_global_id(0);
    out[at] = in[at] + a + b + c + d + e;
}";

/// PoCL, opened once: its first enumeration is not safe from several threads.
fn pocl() -> Arc<dyn OpenClApi> {
    static POCL: OnceLock<Arc<NativeOpenCl>> = OnceLock::new();
    let native = POCL.get_or_init(|| {
        let vendors = std::path::Path::new("/etc/OpenCL/vendors");
        let native = NativeOpenCl::from_vendors(vendors, &|library| !library.contains("pocl"));
        let native = native.expect("PoCL is installed: `scripts/setup test`");
        let platform = native.platforms().next().expect("a vendor has a platform");
        let (all, mut count) = (CL_DEVICE_TYPE_ALL as cl_device_type, 0);
        // SAFETY: contract of clGetDeviceIDs: the platform is the vendor's own, no room for devices is given, `count` is writable.
        let status = unsafe { native.clGetDeviceIDs(platform, all, 0, null_mut(), &mut count) };
        assert_eq!((status, count > 0), (CL_SUCCESS, true));
        Arc::new(native)
    });
    Arc::clone(native) as Arc<dyn OpenClApi>
}

/// A program's objects on one session: everything up to a kernel with all its arguments set. Each lives as long as the session.
struct Work<'a> {
    cl: &'a Remote,
    context: cl_context,
    queue: cl_command_queue,
    kernel: cl_kernel,
    input: cl_mem,
    output: cl_mem,
}

impl<'a> Work<'a> {
    fn new(cl: &'a Remote, count: usize) -> Self {
        let (_, devices) = cl.platforms().remove(0);
        let (device, mut status) = (devices[0], CL_SUCCESS);
        // SAFETY: contract of clCreateContext: `device` is readable for one element, `status` is writable.
        let context =
            unsafe { cl.clCreateContext(null(), 1, &device, None, null_mut(), &mut status) };
        assert_eq!(status, CL_SUCCESS);
        // SAFETY: contract of clCreateCommandQueue: both handles are of this session, `status` is writable.
        let queue = unsafe { cl.clCreateCommandQueue(context, device, 0, &mut status) };
        assert_eq!(status, CL_SUCCESS);
        let mut work = Self {
            cl,
            context,
            queue,
            kernel: build(cl, context),
            input: null_mut(),
            output: null_mut(),
        };
        work.input = work.buffer(count * size_of::<i32>());
        work.output = work.buffer(count * size_of::<i32>());
        work.set_arguments(1);
        work
    }

    fn buffer(&self, bytes: usize) -> cl_mem {
        let (flags, mut status) = (CL_MEM_READ_WRITE as cl_mem_flags, CL_SUCCESS);
        // SAFETY: contract of clCreateBuffer: the flags want no host memory, `status` is writable.
        let buffer = unsafe {
            self.cl
                .clCreateBuffer(self.context, flags, bytes, null_mut(), &mut status)
        };
        assert_eq!(status, CL_SUCCESS);
        buffer
    }

    fn release(&self, buffer: cl_mem) {
        // SAFETY: contract of clReleaseMemObject: the caller created the buffer and does not use it again.
        let status = unsafe { self.cl.clReleaseMemObject(buffer) };
        assert_eq!(status, CL_SUCCESS);
    }

    fn set_argument<T>(&self, index: cl_uint, value: &T) {
        let bytes = (&raw const *value).cast();
        // SAFETY: contract of clSetKernelArg: `value` is readable for its size.
        let status = unsafe {
            self.cl
                .clSetKernelArg(self.kernel, index, size_of::<T>(), bytes)
        };
        assert_eq!(status, CL_SUCCESS);
    }

    fn set_arguments(&self, value: i32) {
        self.set_argument(0, &self.output);
        for index in 1..6 {
            self.set_argument(index, &value);
        }
        self.set_argument(6, &self.input);
    }

    fn launch(&self, count: usize) {
        let (queue, kernel) = (self.queue, self.kernel);
        // SAFETY: contract of clEnqueueNDRangeKernel: one dimension, `count` is readable, the list of events is empty.
        let status = unsafe {
            self.cl.clEnqueueNDRangeKernel(
                queue,
                kernel,
                1,
                null(),
                &count,
                null(),
                0,
                null(),
                null_mut(),
            )
        };
        assert_eq!(status, CL_SUCCESS);
    }

    fn write(&self, data: &[i32]) {
        let (bytes, from) = (size_of_val(data), data.as_ptr().cast());
        let (queue, input) = (self.queue, self.input);
        // SAFETY: contract of clEnqueueWriteBuffer: `data` is readable for its size while this blocks.
        let status = unsafe {
            self.cl
                .clEnqueueWriteBuffer(queue, input, 1, 0, bytes, from, 0, null(), null_mut())
        };
        assert_eq!(status, CL_SUCCESS);
    }

    /// Reads, either at once or, when not `blocking`, by the time the queue has finished.
    fn read(&self, blocking: bool, data: &mut [i32]) {
        let (bytes, to) = (size_of_val(data), data.as_mut_ptr().cast());
        let (queue, output) = (self.queue, self.output);
        // SAFETY: contract of clEnqueueReadBuffer: `data` is writable for its size, and callers that do not block finish before
        // they touch it.
        let status = unsafe {
            self.cl.clEnqueueReadBuffer(
                queue,
                output,
                blocking.into(),
                0,
                bytes,
                to,
                0,
                null(),
                null_mut(),
            )
        };
        assert_eq!(status, CL_SUCCESS);
    }

    fn finish(&self) {
        // SAFETY: contract of clFinish: the queue is of this session.
        let status = unsafe { self.cl.clFinish(self.queue) };
        assert_eq!(status, CL_SUCCESS);
    }
}

/// The kernel `fill`.
fn build(cl: &Remote, context: cl_context) -> cl_kernel {
    let text = CString::new(SOURCE).unwrap();
    let (mut strings, mut status) = ([text.as_ptr()], CL_SUCCESS);
    // SAFETY: contract of clCreateProgramWithSource: one string, which ends with NUL; `status` is writable.
    let program = unsafe {
        cl.clCreateProgramWithSource(context, 1, strings.as_mut_ptr(), null(), &mut status)
    };
    assert_eq!(status, CL_SUCCESS);
    // SAFETY: contract of clBuildProgram: no list of devices, no options, no callback.
    let status = unsafe { cl.clBuildProgram(program, 0, null(), null(), None, null_mut()) };
    assert_eq!(status, CL_SUCCESS);
    let mut status = CL_SUCCESS;
    // SAFETY: contract of clCreateKernel: the program is built, the name ends with NUL, `status` is writable.
    let kernel = unsafe { cl.clCreateKernel(program, c"fill".as_ptr(), &mut status) };
    assert_eq!(status, CL_SUCCESS);
    kernel
}

#[test]
fn start_to_first_result_costs_two_round_trips_on_the_lanes() {
    let pair = Pair::new(pocl());
    let cl = &*pair.remote;
    let work = Work::new(cl, 1024);
    let input: Vec<i32> = (0..1024).collect();
    let mut output = vec![0; 1024];
    work.write(&input);
    work.launch(1024);
    work.read(true, &mut output);
    assert!(
        output
            .iter()
            .zip(&input)
            .all(|(out, input)| *out == input + 5)
    );
    // Beside them the control connection costs one, two with a token: at most four of the five that are allowed.
    assert_eq!(
        waits(cl),
        [("clBuildProgram", 1), ("clEnqueueReadBuffer", 1)]
    );
}

#[test]
fn a_thousand_launches_with_seven_arguments_and_a_finish_cost_one_round_trip() {
    let pair = Pair::new(pocl());
    let cl = &*pair.remote;
    let work = Work::new(cl, 64);
    work.write(&[0; 64]);
    work.launch(64);
    let before = cl.meter().round_trips();
    for value in 0..1000 {
        work.set_arguments(value);
        work.launch(64);
    }
    work.finish();
    assert_eq!(cl.meter().round_trips() - before, 1, "{:?}", waits(cl));
    let mut output = [0; 64];
    work.read(true, &mut output);
    assert_eq!(output, [999 * 5; 64]);
}

#[test]
fn create_write_launch_blocking_read_release_costs_one_round_trip() {
    let pair = Pair::new(pocl());
    let cl = &*pair.remote;
    let mut work = Work::new(cl, 64);
    let before = cl.meter().round_trips();
    work.input = work.buffer(256);
    work.output = work.buffer(256);
    work.set_arguments(2);
    work.write(&[7; 64]);
    work.launch(64);
    let mut output = [0; 64];
    work.read(true, &mut output);
    work.release(work.input);
    work.release(work.output);
    assert_eq!(output, [17; 64]);
    assert_eq!(cl.meter().round_trips() - before, 1, "{:?}", waits(cl));
}

#[test]
fn megabytes_go_and_come_whole_on_the_payload_lanes() {
    let pair = Pair::new(pocl());
    let cl = &*pair.remote;
    let count = 5 << 18;
    let work = Work::new(cl, count);
    let input: Vec<i32> = (0..count as i32)
        .map(|value| value.wrapping_mul(2_654_435))
        .collect();
    let mut output = vec![0; count];
    for round in 0..5 {
        work.set_arguments(round);
        work.write(&input);
        work.launch(count);
        work.read(true, &mut output);
        assert!(
            output
                .iter()
                .zip(&input)
                .all(|(out, input)| *out == input.wrapping_add(5 * round)),
            "round {round}"
        );
    }
}

#[test]
fn data_of_a_non_blocking_read_is_there_when_finish_returns() {
    let pair = Pair::new(pocl());
    let cl = &*pair.remote;
    for count in [16, 4096, 1 << 20] {
        let work = Work::new(cl, count);
        work.write(&vec![1; count]);
        work.launch(count);
        let mut output = vec![0; count];
        work.read(false, &mut output);
        work.finish();
        assert_eq!(output, vec![6; count]);
    }
}

fn waits(cl: &Remote) -> Vec<(&'static str, u64)> {
    cl.meter()
        .waits()
        .into_iter()
        .map(|(call, waits)| (call, waits.count))
        .collect()
}
