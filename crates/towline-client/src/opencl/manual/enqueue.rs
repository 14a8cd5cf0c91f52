//! Launches.

use super::*;

#[allow(non_snake_case, clippy::too_many_arguments)]
impl EnqueueCalls for Remote {
    unsafe fn clEnqueueNDRangeKernel(
        &self,
        command_queue: cl_command_queue,
        kernel: cl_kernel,
        work_dim: cl_uint,
        global_work_offset: *const usize,
        global_work_size: *const usize,
        local_work_size: *const usize,
        num_events_in_wait_list: cl_uint,
        event_wait_list: *const cl_event,
        event: *mut cl_event,
    ) -> cl_int {
        // SAFETY: the caller's contract: NULL or `work_dim` elements.
        let global_work_offset = unsafe { raw::slice(global_work_offset, work_dim as usize) };
        // SAFETY: the caller's contract: NULL or `work_dim` elements.
        let global_work_size = unsafe { raw::slice(global_work_size, work_dim as usize) };
        // SAFETY: the caller's contract: NULL or `work_dim` elements.
        let local_work_size = unsafe { raw::slice(local_work_size, work_dim as usize) };
        // SAFETY: the caller's contract of the C function.
        let waits = unsafe { events(event_wait_list, num_events_in_wait_list) };
        self.launch(
            command_queue,
            kernel,
            work_dim,
            global_work_offset,
            global_work_size,
            local_work_size,
            waits,
            event,
        )
    }

    unsafe fn clEnqueueTask(
        &self,
        command_queue: cl_command_queue,
        kernel: cl_kernel,
        num_events_in_wait_list: cl_uint,
        event_wait_list: *const cl_event,
        event: *mut cl_event,
    ) -> cl_int {
        // SAFETY: the caller's contract, passed on: a task is a range of one.
        unsafe {
            EnqueueCalls::clEnqueueNDRangeKernel(
                self,
                command_queue,
                kernel,
                1,
                std::ptr::null(),
                [1].as_ptr(),
                [1].as_ptr(),
                num_events_in_wait_list,
                event_wait_list,
                event,
            )
        }
    }
}
