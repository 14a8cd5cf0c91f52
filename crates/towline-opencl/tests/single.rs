//! One provider: what the platform answers by itself, and what a session is asked for.

#[macro_use]
mod support;

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::Arc;

use support::{ADD, Cl, POCL, providers};
use towline_backend::opencl::*;
use towline_client::opencl::Remote;
use towline_opencl::Provider;

/// A context on a session, and the session.
fn on_session() -> (Cl, Arc<Remote>) {
    let session = support::session();
    (Cl::over(Provider::of_session(&session)), session)
}

fn device_value<T: Copy + Default>(cl: &Cl, name: cl_device_info) -> T {
    let mut value = T::default();
    ok!(
        cl,
        clGetDeviceInfo(
            cl.devices[0],
            name,
            size_of::<T>(),
            (&raw mut value).cast(),
            null_mut()
        )
    );
    value
}

fn device_text(cl: &Cl, name: cl_device_info) -> String {
    let mut text = vec![0_u8; 8192];
    let mut size = 0;
    ok!(
        cl,
        clGetDeviceInfo(
            cl.devices[0],
            name,
            text.len(),
            text.as_mut_ptr().cast(),
            &raw mut size
        )
    );
    String::from_utf8_lossy(&text[..size - 1]).into_owned()
}

#[test]
fn a_kernel_adds_to_what_was_written() {
    let cl = Cl::new(&[POCL]);
    let queue = cl.queue(0);
    let buffer = cl.buffer(16);
    let kernel = cl.kernel(cl.program(ADD), "add");
    cl.write(queue, buffer, &[1, 2, 3, 4]);
    cl.arg(kernel, 0, buffer);
    cl.arg(kernel, 1, 10_u32);
    cl.launch(queue, kernel, 4);
    assert_eq!(cl.read(queue, buffer, 4), [11, 12, 13, 14]);
}

#[test]
fn what_cannot_work_from_here_is_masked() {
    let cl = Cl::new(&[POCL]);
    let capabilities: cl_ulong = device_value(&cl, CL_DEVICE_EXECUTION_CAPABILITIES);
    let svm: cl_ulong = device_value(&cl, CL_DEVICE_SVM_CAPABILITIES);
    let extensions = device_text(&cl, CL_DEVICE_EXTENSIONS);
    assert_eq!(capabilities, CL_EXEC_KERNEL);
    assert_eq!(svm & !CL_DEVICE_SVM_COARSE_GRAIN_BUFFER, 0);
    assert!(extensions.contains("cl_khr_fp64"), "{extensions}");
    assert!(!extensions.contains("cl_pocl_"), "{extensions}");
}

#[test]
fn handles_in_answers_are_the_platforms_own() {
    let cl = Cl::new(&[POCL]);
    let mut platform = null_mut();
    ok!(cl, clGetPlatformIDs(1, &raw mut platform, null_mut()));
    let queue = cl.queue(0);
    let mut context: cl_context = null_mut();
    ok!(
        cl,
        clGetCommandQueueInfo(
            queue,
            CL_QUEUE_CONTEXT,
            size_of::<cl_context>(),
            (&raw mut context).cast(),
            null_mut()
        )
    );
    assert_eq!(
        device_value::<usize>(&cl, CL_DEVICE_PLATFORM),
        platform.addr()
    );
    assert_eq!(context, cl.context);
}

#[test]
fn a_context_repeats_its_properties_and_refuses_unknown_ones() {
    let cl = Cl::new(&[POCL]);
    let mut platform = null_mut();
    ok!(cl, clGetPlatformIDs(1, &raw mut platform, null_mut()));
    let named = platform.expose_provenance() as cl_context_properties;
    let create = |properties: &[cl_context_properties]| {
        make!(
            cl,
            clCreateContext(
                properties.as_ptr(),
                1,
                cl.devices.as_ptr(),
                None,
                null_mut()
            )
        )
    };
    let given = [CL_CONTEXT_PLATFORM, named, 0];
    let context = create(&given).expect("a context");
    let mut echoed = [1; 3];
    let mut size = 0;
    ok!(
        cl,
        clGetContextInfo(
            context,
            CL_CONTEXT_PROPERTIES,
            size_of_val(&echoed),
            echoed.as_mut_ptr().cast(),
            &raw mut size
        )
    );
    assert_eq!((echoed, size), (given, 24));
    assert_eq!(create(&[0x7777, 1, 0]), Err(CL_INVALID_PROPERTY));
    assert_eq!(
        create(&[CL_CONTEXT_PLATFORM, named + 8, 0]),
        Err(CL_INVALID_PLATFORM)
    );
}

#[test]
fn stale_and_foreign_handles_are_refused_by_kind() {
    let cl = Cl::new(&[POCL]);
    let queue = cl.queue(0);
    let buffer = cl.buffer(16);
    ok!(cl, clReleaseMemObject(buffer));
    let mut elsewhere = [0_u64; 16];
    let foreign: *mut u64 = elsewhere.as_mut_ptr();
    assert_eq!(
        status!(cl, clRetainMemObject(buffer)),
        CL_INVALID_MEM_OBJECT
    );
    assert_eq!(
        status!(cl, clReleaseMemObject(queue.cast())),
        CL_INVALID_MEM_OBJECT
    );
    assert_eq!(
        status!(cl, clFinish(foreign.cast())),
        CL_INVALID_COMMAND_QUEUE
    );
    assert_eq!(status!(cl, clRetainKernel(null_mut())), CL_INVALID_KERNEL);
    assert_eq!(
        status!(cl, clRetainEvent(cl.context.cast())),
        CL_INVALID_EVENT
    );
}

#[test]
fn a_buffer_released_before_a_launch_is_refused_there() {
    let cl = Cl::new(&[POCL]);
    let queue = cl.queue(0);
    let kernel = cl.kernel(cl.program(ADD), "add");
    let launch = || {
        let count = 4_usize;
        status!(
            cl,
            clEnqueueNDRangeKernel(
                queue,
                kernel,
                1,
                null(),
                &raw const count,
                null(),
                0,
                null(),
                null_mut()
            )
        )
    };
    cl.arg(kernel, 1, 1_u32);
    for launches in [0, 1, 2] {
        let buffer = cl.buffer(16);
        cl.arg(kernel, 0, buffer);
        for _ in 0..launches {
            assert_eq!(launch(), CL_SUCCESS);
        }
        ok!(cl, clFinish(queue));
        ok!(cl, clReleaseMemObject(buffer));
        assert_eq!(launch(), CL_INVALID_KERNEL_ARGS);
        assert_eq!(launch(), CL_INVALID_KERNEL_ARGS);
    }
}

#[test]
fn maps_of_a_session_nest_and_send_back_what_was_mapped_for_writing() {
    let (cl, _) = on_session();
    let queue = cl.queue(0);
    let buffer = cl.buffer_of(CL_MEM_COPY_HOST_PTR, &mut [1, 2, 3, 4]);
    let map = |flags, offset, size| {
        make!(
            cl,
            clEnqueueMapBuffer(
                queue,
                buffer,
                CL_TRUE,
                flags,
                offset,
                size,
                0,
                null(),
                null_mut()
            )
        )
    };
    let whole: *mut c_void = map(CL_MAP_READ, 0, 16).expect("a map");
    let part = map(CL_MAP_WRITE, 8, 8).expect("a map inside the other");
    assert_eq!(part.addr(), whole.addr() + 8);
    assert_eq!(map(CL_MAP_WRITE, 12, 4), Err(CL_INVALID_OPERATION));
    // SAFETY: a mapped region of two values.
    unsafe { part.cast::<[u32; 2]>().write([30, 40]) };
    for pointer in [part, whole] {
        ok!(
            cl,
            clEnqueueUnmapMemObject(queue, buffer, pointer, 0, null(), null_mut())
        );
    }
    assert_eq!(cl.read(queue, buffer, 4), [1, 2, 30, 40]);
    assert_eq!(
        status!(
            cl,
            clEnqueueUnmapMemObject(queue, buffer, whole, 0, null(), null_mut())
        ),
        CL_INVALID_VALUE
    );
}

#[test]
fn only_what_needs_data_back_waits_for_a_session() {
    let (cl, session) = on_session();
    let program = cl.program(ADD);
    let before = session.meter().round_trips();
    let queue = cl.queue(0);
    let buffer = cl.buffer_of(CL_MEM_COPY_HOST_PTR, &mut [1, 2, 3, 4]);
    let kernel = cl.kernel(program, "add");
    let created = session.meter().round_trips();
    cl.arg(kernel, 0, buffer);
    for turn in 0..100_u32 {
        cl.arg(kernel, 1, turn % 2);
        cl.launch(queue, kernel, 4);
    }
    ok!(cl, clFlush(queue));
    let launched = session.meter().round_trips();
    let values = cl.read(queue, buffer, 4);
    let read = session.meter().round_trips();
    assert_eq!(values, [51, 52, 53, 54]);
    assert_eq!(created - before, 0, "creating objects of a built program");
    assert!(
        launched - created <= 2,
        "the verdict on each argument once, then nothing: {:?}",
        session.meter().waits()
    );
    assert_eq!(read - launched, 1, "reading");
}

#[test]
fn an_event_of_a_session_is_asked_without_waiting() {
    let (cl, session) = on_session();
    let queue = cl.queue(0);
    let buffer = cl.buffer(16);
    let mut event = null_mut();
    ok!(
        cl,
        clEnqueueFillBuffer(
            queue,
            buffer,
            [7_u32].as_ptr().cast(),
            4,
            0,
            16,
            0,
            null(),
            &raw mut event
        )
    );
    ok!(cl, clWaitForEvents(1, &raw const event));
    let before = session.meter().round_trips();
    let status: cl_int = cl.event_info(event, CL_EVENT_COMMAND_EXECUTION_STATUS);
    let command: cl_command_type = cl.event_info(event, CL_EVENT_COMMAND_TYPE);
    assert_eq!((status, command), (CL_COMPLETE, CL_COMMAND_FILL_BUFFER));
    assert_eq!(session.meter().round_trips() - before, 0);
    assert_eq!(cl.read(queue, buffer, 4), [7; 4]);
}

unsafe extern "C" fn note(_mem: cl_mem, user_data: *mut c_void) {
    // SAFETY: the test gives a box for exactly this call.
    let note = unsafe { Box::from_raw(user_data.cast::<(u32, std::sync::mpsc::Sender<u32>)>()) };
    note.1.send(note.0).expect("the test listens");
}

#[test]
fn destructors_run_in_reverse_order_once_nothing_uses_the_object() {
    let cl = Cl::over(providers(&[POCL], false));
    let buffer = cl.buffer(16);
    let (sender, receiver) = std::sync::mpsc::channel::<u32>();
    for number in 1..=3_u32 {
        let user_data = Box::into_raw(Box::new((number, sender.clone())));
        ok!(
            cl,
            clSetMemObjectDestructorCallback(buffer, Some(note), user_data.cast())
        );
    }
    drop(sender);
    ok!(cl, clReleaseMemObject(buffer));
    assert_eq!(receiver.iter().collect::<Vec<_>>(), [3, 2, 1]);
}

#[test]
fn contents_of_a_new_image_reach_a_session_without_waiting() {
    let (cl, session) = on_session();
    let queue = cl.queue(0);
    let format = cl_image_format {
        image_channel_order: CL_RGBA,
        image_channel_data_type: CL_UNSIGNED_INT8,
    };
    let desc = cl_image_desc {
        image_type: CL_MEM_OBJECT_IMAGE2D,
        image_width: 2,
        image_height: 2,
        image_depth: 0,
        image_array_size: 0,
        image_row_pitch: 12,
        image_slice_pitch: 0,
        num_mip_levels: 0,
        num_samples: 0,
        mem_object: null_mut(),
    };
    // Rows have a gap of one texel.
    let mut texels = [1_u32, 2, 99, 3, 4, 99];
    let create = |texels: &mut [u32; 6]| {
        make!(
            cl,
            clCreateImage(
                cl.context,
                CL_MEM_COPY_HOST_PTR,
                &raw const format,
                &raw const desc,
                texels.as_mut_ptr().cast()
            )
        )
        .expect("an image")
    };
    // The formats are asked for once per context.
    create(&mut texels);
    let before = session.meter().round_trips();
    let image = create(&mut texels);
    texels = [0; 6];
    assert_eq!(session.meter().round_trips() - before, 0);
    let (origin, region) = ([0_usize; 3], [2_usize, 2, 1]);
    let mut seen = [0_u32; 4];
    ok!(
        cl,
        clEnqueueReadImage(
            queue,
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
    assert_eq!((seen, texels), ([1, 2, 3, 4], [0; 6]));
}

#[test]
fn times_of_a_commands_event_take_no_round_trip() {
    let (cl, session) = on_session();
    let profiling = CL_QUEUE_PROFILING_ENABLE;
    let queue = make!(
        cl,
        clCreateCommandQueue(cl.context, cl.devices[0], profiling)
    )
    .expect("a queue");
    let buffer = cl.buffer(16);
    let mut event = null_mut();
    let pattern = [7_u32];
    ok!(
        cl,
        clEnqueueFillBuffer(
            queue,
            buffer,
            pattern.as_ptr().cast(),
            4,
            0,
            16,
            0,
            null(),
            &raw mut event
        )
    );
    ok!(cl, clWaitForEvents(1, &raw const event));
    let before = session.meter().round_trips();
    let times = [
        CL_PROFILING_COMMAND_QUEUED,
        CL_PROFILING_COMMAND_SUBMIT,
        CL_PROFILING_COMMAND_START,
        CL_PROFILING_COMMAND_END,
    ]
    .map(|name| {
        let mut time = 0_u64;
        let target = (&raw mut time).cast();
        ok!(
            cl,
            clGetEventProfilingInfo(event, name, 8, target, null_mut())
        );
        time
    });
    assert!(times[0] > 0 && times.is_sorted(), "{times:?}");
    assert_eq!(session.meter().round_trips() - before, 0);
}

#[test]
fn source_comes_back_byte_by_byte() {
    let cl = Cl::new(&[POCL]);
    let source = b"// caf\xe9\n__kernel void k(void) {}\0";
    let mut strings = [source.as_ptr().cast()];
    let program = make!(
        cl,
        clCreateProgramWithSource(cl.context, 1, strings.as_mut_ptr(), null())
    )
    .expect("a program");
    let mut told = vec![0_u8; source.len()];
    let target = told.as_mut_ptr().cast();
    ok!(
        cl,
        clGetProgramInfo(program, CL_PROGRAM_SOURCE, told.len(), target, null_mut())
    );
    assert_eq!(told, source);
}

/// A program for the first device from the binary of another.
fn from_binary_of(cl: &Cl, program: cl_program) -> cl_program {
    let mut size = 0_usize;
    ok!(
        cl,
        clGetProgramInfo(
            program,
            CL_PROGRAM_BINARY_SIZES,
            size_of::<usize>(),
            (&raw mut size).cast(),
            null_mut()
        )
    );
    let mut binary = vec![0_u8; size];
    let mut target = binary.as_mut_ptr();
    ok!(
        cl,
        clGetProgramInfo(
            program,
            CL_PROGRAM_BINARIES,
            size_of::<*mut u8>(),
            (&raw mut target).cast(),
            null_mut()
        )
    );
    let mut binaries = [binary.as_ptr()];
    let made = make!(
        cl,
        clCreateProgramWithBinary(
            cl.context,
            1,
            cl.devices.as_ptr(),
            &raw const size,
            binaries.as_mut_ptr(),
            null_mut()
        )
    )
    .expect("a program");
    ok!(
        cl,
        clBuildProgram(made, 0, null(), null(), None, null_mut())
    );
    made
}

#[test]
fn wrong_group_size_of_a_binary_is_refused_at_launch() {
    let (cl, _session) = on_session();
    let source = "__kernel __attribute__((reqd_work_group_size(4, 1, 1))) void k(void) {}";
    let kernel = cl.kernel(from_binary_of(&cl, cl.program(source)), "k");
    let queue = cl.queue(0);
    let launched = [4_usize, 2].map(|local| {
        let global = 8_usize;
        status!(
            cl,
            clEnqueueNDRangeKernel(
                queue,
                kernel,
                1,
                null(),
                &raw const global,
                &raw const local,
                0,
                null(),
                null_mut()
            )
        )
    });
    // PoCL must not compile it while the process ends.
    ok!(cl, clFinish(queue));
    assert_eq!(launched, [CL_SUCCESS, CL_INVALID_WORK_GROUP_SIZE]);
}

#[test]
fn memory_of_a_session_is_not_the_hosts() {
    let (cl, _session) = on_session();
    let unified: cl_bool = device_value(&cl, CL_DEVICE_HOST_UNIFIED_MEMORY);
    assert_eq!(unified, CL_FALSE);
}

#[test]
fn image_of_a_buffer_takes_only_offered_formats() {
    let (cl, _session) = on_session();
    let format = cl_image_format {
        image_channel_order: CL_RG,
        image_channel_data_type: CL_FLOAT,
    };
    let desc = cl_image_desc {
        image_type: CL_MEM_OBJECT_IMAGE1D_BUFFER,
        image_width: 4,
        image_height: 0,
        image_depth: 0,
        image_array_size: 0,
        image_row_pitch: 0,
        image_slice_pitch: 0,
        num_mip_levels: 0,
        num_samples: 0,
        mem_object: cl.buffer(4096),
    };
    let made = make!(
        cl,
        clCreateImage(
            cl.context,
            CL_MEM_READ_WRITE,
            &raw const format,
            &raw const desc,
            null_mut()
        )
    );
    assert_eq!(made.err(), Some(CL_IMAGE_FORMAT_NOT_SUPPORTED));
}

#[test]
fn failed_link_answers_as_the_vendor_does() {
    let (cl, _session) = on_session();
    let source = c"void absent(void); __kernel void k(void) { absent(); }";
    let mut strings = [source.as_ptr()];
    let program = make!(
        cl,
        clCreateProgramWithSource(cl.context, 1, strings.as_mut_ptr(), null())
    )
    .expect("a program");
    ok!(
        cl,
        clCompileProgram(
            program,
            0,
            null(),
            null(),
            0,
            null(),
            null_mut(),
            None,
            null_mut()
        )
    );
    let mut status = CL_SUCCESS;
    // SAFETY: the program is live and the status is a local.
    let linked = unsafe {
        cl.platform.clLinkProgram(
            cl.context,
            0,
            null(),
            null(),
            1,
            &raw const program,
            None,
            null_mut(),
            &raw mut status,
        )
    };
    assert_eq!(status, CL_LINK_PROGRAM_FAILURE);
    // PoCL leaves no program behind.
    assert!(linked.is_null());
}
