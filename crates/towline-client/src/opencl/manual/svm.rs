//! Shared virtual memory.

use super::*;

#[allow(non_snake_case, clippy::too_many_arguments)]
impl SvmCalls for Remote {
    unsafe fn clSVMAlloc(
        &self,
        context: cl_context,
        flags: cl_svm_mem_flags,
        size: usize,
        alignment: cl_uint,
    ) -> *mut c_void {
        self.svm_alloc(context, flags, size, alignment)
    }

    unsafe fn clSVMFree(&self, context: cl_context, svm_pointer: *mut c_void) {
        self.svm_free(context, svm_pointer)
    }

    unsafe fn clEnqueueSVMMemcpy(
        &self,
        command_queue: cl_command_queue,
        blocking_copy: cl_bool,
        dst_ptr: *mut c_void,
        src_ptr: *const c_void,
        size: usize,
        num_events_in_wait_list: cl_uint,
        event_wait_list: *const cl_event,
        event: *mut cl_event,
    ) -> cl_int {
        // SAFETY: the caller's contract of the C function.
        let waits = unsafe { events(event_wait_list, num_events_in_wait_list) };
        let command = Command {
            call: "clEnqueueSVMMemcpy",
            queue: command_queue,
            mem: std::ptr::null_mut(),
            blocking: blocking_copy != 0,
            waits,
            event,
        };
        self.svm_copy(&command, dst_ptr, src_ptr, size)
    }

    unsafe fn clEnqueueSVMMemFill(
        &self,
        command_queue: cl_command_queue,
        svm_ptr: *mut c_void,
        pattern: *const c_void,
        pattern_size: usize,
        size: usize,
        num_events_in_wait_list: cl_uint,
        event_wait_list: *const cl_event,
        event: *mut cl_event,
    ) -> cl_int {
        // SAFETY: the caller's contract of the C function.
        let waits = unsafe { events(event_wait_list, num_events_in_wait_list) };
        let command = Command {
            call: "clEnqueueSVMMemFill",
            queue: command_queue,
            mem: std::ptr::null_mut(),
            blocking: false,
            waits,
            event,
        };
        // SAFETY: the caller's contract of the C function.
        let pattern = unsafe { raw::slice(pattern.cast::<u8>(), pattern_size) }.unwrap_or_default();
        self.svm_fill(&command, svm_ptr, pattern, size)
    }

    unsafe fn clEnqueueSVMMap(
        &self,
        command_queue: cl_command_queue,
        blocking_map: cl_bool,
        flags: cl_map_flags,
        svm_ptr: *mut c_void,
        size: usize,
        num_events_in_wait_list: cl_uint,
        event_wait_list: *const cl_event,
        event: *mut cl_event,
    ) -> cl_int {
        // SAFETY: the caller's contract of the C function.
        let waits = unsafe { events(event_wait_list, num_events_in_wait_list) };
        let command = Command {
            call: "clEnqueueSVMMap",
            queue: command_queue,
            mem: std::ptr::null_mut(),
            blocking: blocking_map != 0,
            waits,
            event,
        };
        self.svm_map(&command, flags, svm_ptr, size)
    }

    unsafe fn clEnqueueSVMUnmap(
        &self,
        command_queue: cl_command_queue,
        svm_ptr: *mut c_void,
        num_events_in_wait_list: cl_uint,
        event_wait_list: *const cl_event,
        event: *mut cl_event,
    ) -> cl_int {
        // SAFETY: the caller's contract of the C function.
        let waits = unsafe { events(event_wait_list, num_events_in_wait_list) };
        let command = Command {
            call: "clEnqueueSVMUnmap",
            queue: command_queue,
            mem: std::ptr::null_mut(),
            blocking: false,
            waits,
            event,
        };
        self.svm_unmap(&command, svm_ptr)
    }
}
