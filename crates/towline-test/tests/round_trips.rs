//! Round trips are asserted numbers: what a session waits for, by API call, over a simulated link.

use std::ffi::CString;
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
        let status =
            unsafe { native.clGetDeviceIDs(platform, all, 0, std::ptr::null_mut(), &mut count) };
        assert_eq!((status, count > 0), (CL_SUCCESS, true));
        Arc::new(native)
    });
    Arc::clone(native) as Arc<dyn OpenClApi>
}

struct Work {
    context: cl_context,
    queue: cl_command_queue,
    kernel: cl_kernel,
    input: cl_mem,
    output: cl_mem,
}

/// Everything up to a kernel with all its arguments set.
fn prepare(cl: &Remote, count: usize) -> Work {
    let (_, devices) = cl.platforms().remove(0);
    let (device, mut status) = (devices[0], 0);
    let null = std::ptr::null_mut();
    unsafe {
        let context = cl.clCreateContext(std::ptr::null(), 1, &device, None, null, &mut status);
        let queue = cl.clCreateCommandQueue(context, device, 0, &mut status);
        let text = CString::new(SOURCE).unwrap();
        let mut strings = [text.as_ptr()];
        let program = cl.clCreateProgramWithSource(
            context,
            1,
            strings.as_mut_ptr(),
            std::ptr::null(),
            &mut status,
        );
        assert_eq!(
            cl.clBuildProgram(program, 0, std::ptr::null(), std::ptr::null(), None, null),
            CL_SUCCESS
        );
        let kernel = cl.clCreateKernel(program, c"fill".as_ptr(), &mut status);
        assert_eq!(status, CL_SUCCESS);
        let input = cl.clCreateBuffer(
            context,
            CL_MEM_READ_WRITE as cl_mem_flags,
            count * 4,
            null,
            &mut status,
        );
        let output = cl.clCreateBuffer(
            context,
            CL_MEM_READ_WRITE as cl_mem_flags,
            count * 4,
            null,
            &mut status,
        );
        let work = Work {
            context,
            queue,
            kernel,
            input,
            output,
        };
        set_arguments(cl, &work, 1);
        work
    }
}

fn set_arguments(cl: &Remote, work: &Work, value: i32) {
    unsafe {
        assert_eq!(
            cl.clSetKernelArg(work.kernel, 0, 8, (&raw const work.output).cast()),
            CL_SUCCESS
        );
        for index in 1..6 {
            assert_eq!(
                cl.clSetKernelArg(work.kernel, index, 4, (&raw const value).cast()),
                CL_SUCCESS
            );
        }
        assert_eq!(
            cl.clSetKernelArg(work.kernel, 6, 8, (&raw const work.input).cast()),
            CL_SUCCESS
        );
    }
}

fn launch(cl: &Remote, work: &Work, count: usize) {
    let none = std::ptr::null();
    let status = unsafe {
        cl.clEnqueueNDRangeKernel(
            work.queue,
            work.kernel,
            1,
            none,
            &count,
            none,
            0,
            std::ptr::null(),
            std::ptr::null_mut(),
        )
    };
    assert_eq!(status, CL_SUCCESS);
}

fn write(cl: &Remote, work: &Work, data: &[i32]) {
    let bytes = size_of_val(data);
    let (list, event) = (std::ptr::null(), std::ptr::null_mut());
    let status = unsafe {
        cl.clEnqueueWriteBuffer(
            work.queue,
            work.input,
            1,
            0,
            bytes,
            data.as_ptr().cast(),
            0,
            list,
            event,
        )
    };
    assert_eq!(status, CL_SUCCESS);
}

fn read(cl: &Remote, work: &Work, data: &mut [i32]) {
    let bytes = size_of_val(data);
    let (list, event) = (std::ptr::null(), std::ptr::null_mut());
    let status = unsafe {
        cl.clEnqueueReadBuffer(
            work.queue,
            work.output,
            1,
            0,
            bytes,
            data.as_mut_ptr().cast(),
            0,
            list,
            event,
        )
    };
    assert_eq!(status, CL_SUCCESS);
}

#[test]
fn start_to_first_result_costs_two_round_trips_on_the_lanes() {
    let pair = Pair::new(pocl());
    let cl = &*pair.remote;
    let work = prepare(cl, 1024);
    let input: Vec<i32> = (0..1024).collect();
    let mut output = vec![0; 1024];
    write(cl, &work, &input);
    launch(cl, &work, 1024);
    read(cl, &work, &mut output);
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
    let work = prepare(cl, 64);
    write(cl, &work, &[0; 64]);
    launch(cl, &work, 64);
    let before = cl.meter().round_trips();
    for value in 0..1000 {
        set_arguments(cl, &work, value);
        launch(cl, &work, 64);
    }
    assert_eq!(unsafe { cl.clFinish(work.queue) }, CL_SUCCESS);
    assert_eq!(cl.meter().round_trips() - before, 1, "{:?}", waits(cl));
    let mut output = [0; 64];
    read(cl, &work, &mut output);
    assert_eq!(output, [999 * 5; 64]);
}

#[test]
fn create_write_launch_blocking_read_release_costs_one_round_trip() {
    let pair = Pair::new(pocl());
    let cl = &*pair.remote;
    let mut work = prepare(cl, 64);
    let before = cl.meter().round_trips();
    let mut status = 0;
    let (flags, null) = (CL_MEM_READ_WRITE as cl_mem_flags, std::ptr::null_mut());
    work.input = unsafe { cl.clCreateBuffer(work.context, flags, 256, null, &mut status) };
    work.output = unsafe { cl.clCreateBuffer(work.context, flags, 256, null, &mut status) };
    set_arguments(cl, &work, 2);
    write(cl, &work, &[7; 64]);
    launch(cl, &work, 64);
    let mut output = [0; 64];
    read(cl, &work, &mut output);
    assert_eq!(unsafe { cl.clReleaseMemObject(work.input) }, CL_SUCCESS);
    assert_eq!(unsafe { cl.clReleaseMemObject(work.output) }, CL_SUCCESS);
    assert_eq!(output, [17; 64]);
    assert_eq!(cl.meter().round_trips() - before, 1, "{:?}", waits(cl));
}

#[test]
fn megabytes_go_and_come_whole_on_the_payload_lanes() {
    let pair = Pair::new(pocl());
    let cl = &*pair.remote;
    let count = 5 << 18;
    let work = prepare(cl, count);
    let input: Vec<i32> = (0..count as i32)
        .map(|value| value.wrapping_mul(2_654_435))
        .collect();
    let mut output = vec![0; count];
    for round in 0..5 {
        set_arguments(cl, &work, round);
        write(cl, &work, &input);
        launch(cl, &work, count);
        read(cl, &work, &mut output);
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
        let work = prepare(cl, count);
        write(cl, &work, &vec![1; count]);
        launch(cl, &work, count);
        let mut output = vec![0; count];
        let (list, event) = (std::ptr::null(), std::ptr::null_mut());
        let target = output.as_mut_ptr().cast();
        let status = unsafe {
            cl.clEnqueueReadBuffer(
                work.queue,
                work.output,
                0,
                0,
                count * 4,
                target,
                0,
                list,
                event,
            )
        };
        assert_eq!(status, CL_SUCCESS);
        assert_eq!(unsafe { cl.clFinish(work.queue) }, CL_SUCCESS);
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
