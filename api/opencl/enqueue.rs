//! Commands that compute, and commands that only wait.

extern "C" {
    /// Launches a kernel over a range of work-items.
    #[call(id = 0x0B12, async, since = "1.0", manual(client))]
    fn clEnqueueNDRangeKernel(
        command_queue: cl_command_queue,
        kernel: cl_kernel,
        work_dim: cl_uint,
        #[input(len = work_dim, nullable)] global_work_offset: *const usize,
        #[input(len = work_dim, nullable)] global_work_size: *const usize,
        #[input(len = work_dim, nullable)] local_work_size: *const usize,
        num_events_in_wait_list: cl_uint,
        #[input(len = num_events_in_wait_list, nullable)] event_wait_list: *const cl_event,
        #[out(creates, nullable)] event: *mut cl_event,
    ) -> cl_int;

    /// Launches a kernel with a single work-item.
    #[call(id = 0x0B13, async, since = "1.0", deprecated = "2.0", manual(client))]
    fn clEnqueueTask(
        command_queue: cl_command_queue,
        kernel: cl_kernel,
        num_events_in_wait_list: cl_uint,
        #[input(len = num_events_in_wait_list, nullable)] event_wait_list: *const cl_event,
        #[out(creates, nullable)] event: *mut cl_event,
    ) -> cl_int;

    /// Runs a function of the host as a command: no device here offers it.
    #[call(id = 0x0B14, local, since = "1.0")]
    fn clEnqueueNativeKernel(
        command_queue: cl_command_queue,
        #[callback] user_func: Option<unsafe extern "C" fn(*mut c_void)>,
        #[local] args: *mut c_void,
        cb_args: usize,
        num_mem_objects: cl_uint,
        #[input(len = num_mem_objects, nullable)] mem_list: *const cl_mem,
        #[local] args_mem_loc: *mut *const c_void,
        num_events_in_wait_list: cl_uint,
        #[input(len = num_events_in_wait_list, nullable)] event_wait_list: *const cl_event,
        #[out(creates, nullable)] event: *mut cl_event,
    ) -> cl_int;

    /// Marks the point where the given events, or all commands so far, are complete.
    #[call(id = 0x0B15, async, since = "1.2")]
    fn clEnqueueMarkerWithWaitList(
        command_queue: cl_command_queue,
        num_events_in_wait_list: cl_uint,
        #[input(len = num_events_in_wait_list, nullable)] event_wait_list: *const cl_event,
        #[out(creates, nullable)] event: *mut cl_event,
    ) -> cl_int;

    /// Holds later commands back until the given events, or all commands so far, are complete.
    #[call(id = 0x0B16, async, since = "1.2")]
    fn clEnqueueBarrierWithWaitList(
        command_queue: cl_command_queue,
        num_events_in_wait_list: cl_uint,
        #[input(len = num_events_in_wait_list, nullable)] event_wait_list: *const cl_event,
        #[out(creates, nullable)] event: *mut cl_event,
    ) -> cl_int;

    /// Marks the point where all commands so far are complete.
    #[call(id = 0x0B17, async, since = "1.0", deprecated = "1.2")]
    fn clEnqueueMarker(
        command_queue: cl_command_queue,
        #[out(creates)] event: *mut cl_event,
    ) -> cl_int;

    /// Holds later commands back until the given events are complete.
    #[call(id = 0x0B18, async, since = "1.0", deprecated = "1.2")]
    fn clEnqueueWaitForEvents(
        command_queue: cl_command_queue,
        num_events: cl_uint,
        #[input(len = num_events)] event_list: *const cl_event,
    ) -> cl_int;

    /// Holds later commands back until all commands so far are complete.
    #[call(id = 0x0B19, async, since = "1.0", deprecated = "1.2")]
    fn clEnqueueBarrier(command_queue: cl_command_queue) -> cl_int;
}
