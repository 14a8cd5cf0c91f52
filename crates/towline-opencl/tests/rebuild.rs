//! Sessions that move to another server in the middle of a program: its handles stay, and its results.

#[macro_use]
mod support;

use std::ffi::{CString, c_void};
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::time::Duration;

use support::{Cl, POCL, library};
use towline_backend::opencl::*;
use towline_client::opencl::Remote;
use towline_opencl::Provider;
use towline_test::pair::Pair;

const PATIENCE: Duration = Duration::from_secs(20);

/// A program whose parts see each other only through a header and a link.
const HEADER: &str = "uint twice(uint value);";
const TWICE: &str = "uint twice(uint value) { return value * FACTOR; }";
const LINKED: &str = "
    #include \"twice.h\"
    __kernel void double_all(__global uint *values) { values[get_global_id(0)] = twice(values[get_global_id(0)]); }
";
const KERNELS: &str = "
    __kernel void mix_in(__global uint *values, __global const uint *more, uint n, __local uint *room) {
        size_t at = get_global_id(0);
        room[get_local_id(0)] = more[at] * STEP;
        barrier(CLK_LOCAL_MEM_FENCE);
        values[at] += room[get_local_id(0)] + n;
    }
    __kernel void from_image(__global uint *values, read_only image2d_t image, sampler_t sampler) {
        size_t at = get_global_id(0);
        values[at] += read_imageui(image, sampler, (int2)(at % 8, at / 8)).x;
    }
    __kernel void to_image(write_only image2d_t image, uint n) {
        int at = get_global_id(0);
        write_imageui(image, (int2)(at % 8, at / 8), (uint4)(at * n, 1, 2, 3));
    }
";
const COUNT: usize = 32;

/// A new session on PoCL, which takes over when another moves to it.
fn fresh() -> Remote {
    Pair::new(library(POCL).0).into_session()
}

fn on_pocl() -> (Cl, Arc<Remote>) {
    let session = Arc::new(fresh());
    (Cl::over(Provider::of_session(&session)), session)
}

fn source(cl: &Cl, text: &str) -> cl_program {
    let text = CString::new(text).expect("no NUL");
    let mut strings = [text.as_ptr()];
    make!(
        cl,
        clCreateProgramWithSource(cl.context, 1, strings.as_mut_ptr(), null())
    )
    .expect("a program")
}

/// A program linked from two others, which end before it is used.
fn linked(cl: &Cl) -> cl_program {
    let (header, twice, user) = (source(cl, HEADER), source(cl, TWICE), source(cl, LINKED));
    let names = [c"twice.h".as_ptr()];
    for (program, options) in [(twice, c"-DFACTOR=2"), (user, c"")] {
        ok!(
            cl,
            clCompileProgram(
                program,
                0,
                null(),
                options.as_ptr(),
                1,
                &raw const header,
                names.as_ptr().cast_mut(),
                None,
                null_mut()
            )
        );
    }
    let inputs = [twice, user];
    let program = make!(
        cl,
        clLinkProgram(
            cl.context,
            0,
            null(),
            c"".as_ptr(),
            2,
            inputs.as_ptr(),
            None,
            null_mut()
        )
    )
    .expect("a linked program");
    for program in [header, twice, user] {
        ok!(cl, clReleaseProgram(program));
    }
    program
}

fn image(cl: &Cl) -> cl_mem {
    let format = cl_image_format {
        image_channel_order: CL_RGBA,
        image_channel_data_type: CL_UNSIGNED_INT32,
    };
    let desc = cl_image_desc {
        image_type: CL_MEM_OBJECT_IMAGE2D,
        image_width: 8,
        image_height: 4,
        image_depth: 0,
        image_array_size: 0,
        image_row_pitch: 0,
        image_slice_pitch: 0,
        num_mip_levels: 0,
        num_samples: 0,
        mem_object: null_mut(),
    };
    make!(
        cl,
        clCreateImage(
            cl.context,
            CL_MEM_READ_WRITE,
            &raw const format,
            &raw const desc,
            null_mut()
        )
    )
    .expect("an image")
}

fn times(cl: &Cl, event: cl_event) -> Vec<u64> {
    let names = [
        CL_PROFILING_COMMAND_QUEUED,
        CL_PROFILING_COMMAND_START,
        CL_PROFILING_COMMAND_END,
    ];
    let time = |name| {
        let mut value = 0_u64;
        let target: *mut c_void = (&raw mut value).cast();
        ok!(
            cl,
            clGetEventProfilingInfo(event, name, 8, target, null_mut())
        );
        value
    };
    names.into_iter().map(time).collect()
}

/// A computation with objects of every kind, interrupted in the middle: everything that is used after was made before.
fn computation(cl: &Cl, in_the_middle: impl FnOnce()) -> Vec<Vec<u32>> {
    let profiling = CL_QUEUE_PROFILING_ENABLE | CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE;
    let queue = cl.queue(0);
    let profiled = make!(
        cl,
        clCreateCommandQueue(cl.context, cl.devices[0], profiling)
    )
    .expect("a queue");
    let mut start: Vec<u32> = (0..COUNT as u32).collect();
    let values = cl.buffer_of(CL_MEM_COPY_HOST_PTR, &mut start);
    let secret = cl.buffer_of(CL_MEM_COPY_HOST_PTR | CL_MEM_HOST_NO_ACCESS, &mut start);
    let halves = cl_buffer_region {
        origin: 0,
        size: COUNT * 4 / 2,
    };
    let half = make!(
        cl,
        clCreateSubBuffer(
            values,
            0,
            CL_BUFFER_CREATE_TYPE_REGION,
            (&raw const halves).cast()
        )
    )
    .expect("a part of a buffer");
    let image = image(cl);
    let sampler = make!(
        cl,
        clCreateSampler(cl.context, CL_FALSE, CL_ADDRESS_CLAMP, CL_FILTER_NEAREST)
    )
    .expect("a sampler");
    let program = source(cl, KERNELS);
    ok!(
        cl,
        clBuildProgram(program, 0, null(), c"-DSTEP=3".as_ptr(), None, null_mut())
    );
    let mix = cl.kernel(program, "mix_in");
    cl.arg(mix, 0, values);
    cl.arg(mix, 1, secret);
    cl.arg(mix, 2, 7_u32);
    ok!(cl, clSetKernelArg(mix, 3, COUNT * 4, null()));
    let of_part = make!(cl, clCloneKernel(mix)).expect("a clone");
    cl.arg(of_part, 0, half);
    let doubling = cl.kernel(linked(cl), "double_all");
    cl.arg(doubling, 0, values);
    let (draw, look) = (
        cl.kernel(program, "to_image"),
        cl.kernel(program, "from_image"),
    );
    cl.arg(draw, 0, image);
    cl.arg(draw, 1, 5_u32);
    cl.arg(look, 0, values);
    cl.arg(look, 1, image);
    cl.arg(look, 2, sampler);
    let mut ended = null_mut();
    let count = COUNT;
    ok!(
        cl,
        clEnqueueNDRangeKernel(
            profiled,
            mix,
            1,
            null(),
            &raw const count,
            null(),
            0,
            null(),
            &raw mut ended
        )
    );
    ok!(cl, clWaitForEvents(1, &raw const ended));
    cl.launch(queue, draw, COUNT);
    cl.launch(queue, doubling, COUNT);
    // Set, and not launched with yet.
    cl.arg(of_part, 2, 1000_u32);
    let open = make!(cl, clCreateUserEvent(cl.context)).expect("a user event");
    let mut mapped_status = 0;
    // SAFETY: the queue and the buffer are live.
    let mapped = unsafe {
        cl.platform.clEnqueueMapBuffer(
            queue,
            values,
            CL_TRUE,
            CL_MAP_READ | CL_MAP_WRITE,
            0,
            8,
            0,
            null(),
            null_mut(),
            &raw mut mapped_status,
        )
    };
    assert_eq!(mapped_status, CL_SUCCESS);
    let before = times(cl, ended);

    in_the_middle();

    assert_eq!(times(cl, ended), before);
    assert_eq!(
        cl.event_info::<cl_int>(ended, CL_EVENT_COMMAND_EXECUTION_STATUS),
        CL_COMPLETE
    );
    // SAFETY: eight bytes are mapped for writing.
    unsafe { mapped.cast::<u32>().write(77) };
    ok!(
        cl,
        clEnqueueUnmapMemObject(queue, values, mapped, 0, null(), null_mut())
    );
    let waits = [ended, open];
    let part = COUNT / 2;
    ok!(
        cl,
        clEnqueueNDRangeKernel(
            queue,
            of_part,
            1,
            null(),
            &raw const part,
            null(),
            2,
            waits.as_ptr(),
            null_mut()
        )
    );
    ok!(cl, clSetUserEventStatus(open, CL_COMPLETE));
    cl.launch(queue, look, COUNT);
    cl.launch(queue, doubling, COUNT);
    cl.arg(mix, 2, 9_u32);
    cl.launch(queue, mix, COUNT);
    // An object made afterwards gets a number of its own.
    let copy = cl.buffer(COUNT * 4);
    ok!(
        cl,
        clEnqueueCopyBuffer(queue, secret, copy, 0, 0, COUNT * 4, 0, null(), null_mut())
    );
    vec![cl.read(queue, values, COUNT), cl.read(queue, copy, COUNT)]
}

#[test]
fn a_program_computes_the_same_when_its_session_moves_in_the_middle() {
    let (stays, _) = on_pocl();
    let expected = computation(&stays, || ());
    let (moves, session) = on_pocl();
    let result = computation(&moves, || {
        session.rebuild(fresh(), PATIENCE).expect("it moves")
    });
    assert_eq!(result, expected);
}

#[test]
fn a_session_moves_again_and_again() {
    let (stays, _) = on_pocl();
    let expected = computation(&stays, || ());
    let (moves, session) = on_pocl();
    let result = computation(&moves, || {
        for _ in 0..3 {
            session.rebuild(fresh(), PATIENCE).expect("it moves");
        }
    });
    assert_eq!(result, expected);
}

#[test]
fn a_failed_build_fails_again_and_keeps_its_log() {
    let (cl, session) = on_pocl();
    let program = source(&cl, "__kernel void broken( {");
    let build = || {
        status!(
            cl,
            clBuildProgram(program, 0, null(), null(), None, null_mut())
        )
    };
    assert_eq!(build(), CL_BUILD_PROGRAM_FAILURE);
    session.rebuild(fresh(), PATIENCE).expect("it moves");
    let mut size = 0;
    ok!(
        cl,
        clGetProgramBuildInfo(
            program,
            cl.devices[0],
            CL_PROGRAM_BUILD_LOG,
            0,
            null_mut(),
            &raw mut size
        )
    );
    assert!(size > 1);
    assert_eq!(build(), CL_BUILD_PROGRAM_FAILURE);
}

#[test]
fn a_build_that_the_other_server_refuses_leaves_the_session_where_it_was() {
    // A header that is on the first server only: both are on this machine, so it goes in between. A macro names it: else it would
    // go along with the build.
    let folder = std::env::temp_dir().join(format!("towline-rebuild-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for the header");
    let header = folder.join("only_here.h");
    std::fs::write(&header, "#define AMOUNT 5\n").expect("the header");
    let (cl, session) = on_pocl();
    let text = "
        #define HEADER <only_here.h>
        #include HEADER
        __kernel void raise(__global uint *values) { values[get_global_id(0)] += AMOUNT; }
    ";
    let program = source(&cl, text);
    let options = CString::new(format!("-I{}", folder.display())).expect("no NUL");
    ok!(
        cl,
        clBuildProgram(program, 0, null(), options.as_ptr(), None, null_mut())
    );
    let (queue, buffer) = (cl.queue(0), cl.buffer(16));
    let kernel = cl.kernel(program, "raise");
    cl.arg(kernel, 0, buffer);
    cl.write(queue, buffer, &[1, 2, 3, 4]);
    std::fs::remove_dir_all(&folder).expect("the header goes");
    let moved = session.rebuild(fresh(), PATIENCE);
    let text = moved.expect_err("its build fails").to_string();
    assert!(
        text.contains("a build") && text.contains("CL_BUILD_PROGRAM_FAILURE"),
        "{text}"
    );
    cl.launch(queue, kernel, 4);
    assert_eq!(cl.read(queue, buffer, 4), [6, 7, 8, 9]);
}

#[test]
fn a_program_from_a_binary_moves() {
    let (cl, session) = on_pocl();
    let built = cl.program(support::ADD);
    let mut size = 0_usize;
    ok!(
        cl,
        clGetProgramInfo(
            built,
            CL_PROGRAM_BINARY_SIZES,
            size_of::<usize>(),
            (&raw mut size).cast(),
            null_mut()
        )
    );
    let mut binary = vec![0_u8; size];
    let mut pointer = binary.as_mut_ptr();
    ok!(
        cl,
        clGetProgramInfo(
            built,
            CL_PROGRAM_BINARIES,
            size_of::<*mut u8>(),
            (&raw mut pointer).cast(),
            null_mut()
        )
    );
    let mut parts = [binary.as_ptr()];
    let program = make!(
        cl,
        clCreateProgramWithBinary(
            cl.context,
            1,
            cl.devices.as_ptr(),
            &raw const size,
            parts.as_mut_ptr(),
            null_mut()
        )
    )
    .expect("a program");
    ok!(
        cl,
        clBuildProgram(program, 0, null(), null(), None, null_mut())
    );
    let kernel = cl.kernel(program, "add");
    let (queue, buffer) = (cl.queue(0), cl.buffer(16));
    cl.arg(kernel, 0, buffer);
    cl.arg(kernel, 1, 5_u32);
    cl.write(queue, buffer, &[1, 2, 3, 4]);
    session.rebuild(fresh(), PATIENCE).expect("it moves");
    cl.launch(queue, kernel, 4);
    assert_eq!(cl.read(queue, buffer, 4), [6, 7, 8, 9]);
}

#[test]
fn parts_of_a_device_move() {
    let (cl, session) = on_pocl();
    let list = [
        CL_DEVICE_PARTITION_EQUALLY as cl_device_partition_property,
        1,
        0,
    ];
    let mut parts = [null_mut(); 2];
    let mut count = 0;
    ok!(
        cl,
        clCreateSubDevices(
            cl.devices[0],
            list.as_ptr(),
            2,
            parts.as_mut_ptr(),
            &raw mut count
        )
    );
    let context = make!(
        cl,
        clCreateContext(null(), 1, parts.as_ptr(), None, null_mut())
    )
    .expect("a context");
    let queue = make!(cl, clCreateCommandQueue(context, parts[0], 0)).expect("a queue");
    let buffer = make!(
        cl,
        clCreateBuffer(context, CL_MEM_READ_WRITE, 16, null_mut())
    )
    .expect("a buffer");
    cl.write(queue, buffer, &[1, 2, 3, 4]);
    session.rebuild(fresh(), PATIENCE).expect("it moves");
    assert_eq!(cl.read(queue, buffer, 4), [1, 2, 3, 4]);
}
