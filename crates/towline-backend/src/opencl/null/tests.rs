//! The host-memory device on its own: that it computes, waits, fails and cleans up as the contract has it.
#![allow(
    clippy::multiple_unsafe_ops_per_block,
    reason = "tests keep the contract for a whole sequence of calls, as one C program would"
)]

use std::ptr;
use std::time::{Duration, Instant};

use super::super::*;
use super::NullOpenCl;

/// A context with a queue, and the program of all built-in kernels.
struct Setup {
    cl: NullOpenCl,
    context: cl_context,
    device: cl_device_id,
    queue: cl_command_queue,
    program: cl_program,
}

impl Setup {
    fn new() -> Self {
        let cl = NullOpenCl::new(1);
        let mut device = ptr::null_mut();
        let mut code = CL_SUCCESS;
        // SAFETY: every pointer is to a live local.
        unsafe {
            assert_eq!(
                cl.clGetDeviceIDs(
                    ptr::null_mut(),
                    CL_DEVICE_TYPE_ALL,
                    1,
                    &raw mut device,
                    ptr::null_mut()
                ),
                CL_SUCCESS
            );
            let context = cl.clCreateContext(
                ptr::null(),
                1,
                &raw const device,
                None,
                ptr::null_mut(),
                &raw mut code,
            );
            assert_eq!(code, CL_SUCCESS);
            let queue = cl.clCreateCommandQueue(context, device, 0, &raw mut code);
            assert_eq!(code, CL_SUCCESS);
            let names = c"add_one;scale;spin_until;abort;print";
            let program = cl.clCreateProgramWithBuiltInKernels(
                context,
                1,
                &raw const device,
                names.as_ptr(),
                &raw mut code,
            );
            assert_eq!(code, CL_SUCCESS);
            Self {
                cl,
                context,
                device,
                queue,
                program,
            }
        }
    }

    fn second_queue(&self) -> cl_command_queue {
        // SAFETY: live handles; no error code is asked for.
        unsafe {
            self.cl
                .clCreateCommandQueue(self.context, self.device, 0, ptr::null_mut())
        }
    }

    fn buffer(&self, words: &mut [u32]) -> cl_mem {
        // SAFETY: the words are copied before the call returns.
        unsafe {
            self.cl.clCreateBuffer(
                self.context,
                CL_MEM_COPY_HOST_PTR,
                size_of_val(words),
                words.as_mut_ptr().cast(),
                ptr::null_mut(),
            )
        }
    }

    fn kernel(&self, name: &std::ffi::CStr, buffer: cl_mem) -> cl_kernel {
        // SAFETY: live handles, and a pointer to a local.
        unsafe {
            let kernel = self
                .cl
                .clCreateKernel(self.program, name.as_ptr(), ptr::null_mut());
            let set = self
                .cl
                .clSetKernelArg(kernel, 0, 8, (&raw const buffer).cast());
            assert_eq!(set, CL_SUCCESS);
            kernel
        }
    }

    fn launch(&self, kernel: cl_kernel, size: usize, waits: &[cl_event]) -> cl_event {
        let mut event = ptr::null_mut();
        let list = if waits.is_empty() {
            ptr::null()
        } else {
            waits.as_ptr()
        };
        // SAFETY: live handles, and pointers to locals.
        let status = unsafe {
            self.cl.clEnqueueNDRangeKernel(
                self.queue,
                kernel,
                1,
                ptr::null(),
                &raw const size,
                ptr::null(),
                waits.len() as u32,
                list,
                &raw mut event,
            )
        };
        assert_eq!(status, CL_SUCCESS);
        event
    }

    fn read(&self, buffer: cl_mem, words: &mut [u32]) -> cl_int {
        // SAFETY: a blocking read into a live slice.
        unsafe {
            self.cl.clEnqueueReadBuffer(
                self.queue,
                buffer,
                CL_TRUE,
                0,
                size_of_val(words),
                words.as_mut_ptr().cast(),
                0,
                ptr::null(),
                ptr::null_mut(),
            )
        }
    }

    fn status(&self, event: cl_event) -> cl_int {
        let mut status = 99;
        // SAFETY: a live handle, and room for the answer.
        unsafe {
            self.cl.clGetEventInfo(
                event,
                CL_EVENT_COMMAND_EXECUTION_STATUS,
                4,
                (&raw mut status).cast(),
                ptr::null_mut(),
            )
        };
        status
    }
}

#[test]
fn add_one_adds_one_to_each_word_of_the_range() {
    let setup = Setup::new();
    let buffer = setup.buffer(&mut [10, 20, 30]);
    setup.launch(setup.kernel(c"add_one", buffer), 2, &[]);
    let mut words = [0; 3];
    assert_eq!(setup.read(buffer, &mut words), CL_SUCCESS);
    assert_eq!(words, [11, 21, 30]);
}

#[test]
fn a_kernel_that_spins_is_released_by_a_write_on_another_queue() {
    let setup = Setup::new();
    let flag = setup.buffer(&mut [0]);
    let event = setup.launch(setup.kernel(c"spin_until", flag), 1, &[]);
    let other = setup.second_queue();
    let one = 1_u32;
    // SAFETY: live handles, a blocking write of a local.
    let written = unsafe {
        setup.cl.clEnqueueWriteBuffer(
            other,
            flag,
            CL_TRUE,
            0,
            4,
            (&raw const one).cast(),
            0,
            ptr::null(),
            ptr::null_mut(),
        )
    };
    assert_eq!(written, CL_SUCCESS);
    // SAFETY: one live event.
    let waited = unsafe { setup.cl.clWaitForEvents(1, &raw const event) };
    assert_eq!((waited, setup.status(event)), (CL_SUCCESS, CL_COMPLETE));
}

#[test]
fn a_failed_user_event_fails_the_command_that_waits_for_it_and_spares_the_buffer() {
    let setup = Setup::new();
    let buffer = setup.buffer(&mut [7]);
    // SAFETY: live handles.
    let user = unsafe { setup.cl.clCreateUserEvent(setup.context, ptr::null_mut()) };
    let event = setup.launch(setup.kernel(c"add_one", buffer), 1, &[user]);
    assert!(setup.status(event) > CL_COMPLETE);
    // SAFETY: live handles.
    unsafe { setup.cl.clSetUserEventStatus(user, -5) };
    let mut words = [0];
    assert_eq!(setup.read(buffer, &mut words), CL_SUCCESS);
    assert_eq!(words, [7]);
    assert_eq!(
        setup.status(event),
        CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST
    );
}

#[test]
fn a_released_handle_is_an_error_and_stays_one_when_others_are_made() {
    let setup = Setup::new();
    let stale = setup.buffer(&mut [1]);
    // SAFETY: the last use that the contract allows, and one more that this device answers all the same.
    let released = unsafe {
        [
            setup.cl.clReleaseMemObject(stale),
            setup.cl.clReleaseMemObject(stale),
        ]
    };
    let _next = setup.buffer(&mut [2]);
    assert_eq!(released, [CL_SUCCESS, CL_INVALID_MEM_OBJECT]);
    assert_eq!(setup.read(stale, &mut [0]), CL_INVALID_MEM_OBJECT);
}

#[test]
fn a_handle_of_another_kind_is_an_error() {
    let setup = Setup::new();
    assert_eq!(
        setup.read(setup.context.cast(), &mut [0]),
        CL_INVALID_MEM_OBJECT
    );
}

#[test]
fn nothing_is_left_once_all_is_released() {
    let setup = Setup::new();
    let buffer = setup.buffer(&mut [1]);
    let kernel = setup.kernel(c"add_one", buffer);
    let event = setup.launch(kernel, 1, &[]);
    // SAFETY: the last uses of live handles, the context before what is in it.
    unsafe {
        setup.cl.clReleaseContext(setup.context);
        setup.cl.clReleaseProgram(setup.program);
        setup.cl.clReleaseMemObject(buffer);
        setup.cl.clReleaseKernel(kernel);
        setup.cl.clReleaseEvent(event);
        setup.cl.clReleaseCommandQueue(setup.queue);
    }
    // The queue's thread ends by itself once the kernel ran.
    let give_up = Instant::now() + Duration::from_secs(10);
    while setup.cl.live_objects() > 0 && Instant::now() < give_up {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(
        (
            setup.cl.live_objects(),
            setup.cl.live_handles(),
            setup.cl.allocated_bytes()
        ),
        (0, 0, 0)
    );
}

#[test]
fn more_memory_than_the_device_has_fails_the_allocation() {
    let setup = Setup::new();
    let size = 64 << 20;
    let codes: Vec<cl_int> = (0..5)
        .map(|_| {
            let mut code = 99;
            // SAFETY: a live handle and a local.
            unsafe {
                setup
                    .cl
                    .clCreateBuffer(setup.context, 0, size, ptr::null_mut(), &raw mut code)
            };
            code
        })
        .collect();
    assert_eq!(codes, [0, 0, 0, 0, CL_MEM_OBJECT_ALLOCATION_FAILURE]);
}

#[test]
fn calls_are_counted_by_name() {
    let setup = Setup::new();
    let buffer = setup.buffer(&mut [1]);
    setup.read(buffer, &mut [0]);
    setup.read(buffer, &mut [0]);
    assert_eq!(setup.cl.calls("clEnqueueReadBuffer"), 2);
    assert_eq!(setup.cl.calls("clEnqueueWriteBuffer"), 0);
}
