//! Shared virtual memory: the client holds each allocation at the address that the server gave it.

extern "C" {
    /// Allocates memory that host and devices know by the same address.
    #[call(id = 0x0C01, local, manual(client), since = "2.0")]
    fn clSVMAlloc(
        context: cl_context,
        flags: cl_svm_mem_flags,
        size: usize,
        alignment: cl_uint,
    ) -> *mut c_void;

    /// Frees shared virtual memory at once.
    #[call(id = 0x0C02, local, manual(client), since = "2.0")]
    fn clSVMFree(context: cl_context, #[local] svm_pointer: *mut c_void);

    /// Frees shared virtual memory in queue order, by a function of the application if there is one.
    #[call(id = 0x0C03, local, since = "2.0")]
    fn clEnqueueSVMFree(
        command_queue: cl_command_queue,
        num_svm_pointers: cl_uint,
        #[local] svm_pointers: *mut *mut c_void,
        #[callback] pfn_free_func: Option<
            unsafe extern "C" fn(cl_command_queue, cl_uint, *mut *mut c_void, *mut c_void),
        >,
        #[user_data] user_data: *mut c_void,
        num_events_in_wait_list: cl_uint,
        #[input(len = num_events_in_wait_list, nullable)] event_wait_list: *const cl_event,
        #[out(creates, nullable)] event: *mut cl_event,
    ) -> cl_int;

    /// Copies memory where either side may be shared.
    #[call(id = 0x0C04, local, manual(client), since = "2.0")]
    fn clEnqueueSVMMemcpy(
        command_queue: cl_command_queue,
        blocking_copy: cl_bool,
        #[local] dst_ptr: *mut c_void,
        #[local] src_ptr: *const c_void,
        size: usize,
        num_events_in_wait_list: cl_uint,
        #[input(len = num_events_in_wait_list, nullable)] event_wait_list: *const cl_event,
        #[out(creates, nullable)] event: *mut cl_event,
    ) -> cl_int;

    /// Repeats a pattern over shared memory.
    #[call(id = 0x0C05, local, manual(client), since = "2.0")]
    fn clEnqueueSVMMemFill(
        command_queue: cl_command_queue,
        #[local] svm_ptr: *mut c_void,
        #[input(bytes = pattern_size)] pattern: *const c_void,
        pattern_size: usize,
        size: usize,
        num_events_in_wait_list: cl_uint,
        #[input(len = num_events_in_wait_list, nullable)] event_wait_list: *const cl_event,
        #[out(creates, nullable)] event: *mut cl_event,
    ) -> cl_int;

    /// Makes a shared region accessible to the host.
    #[call(id = 0x0C06, local, manual(client), since = "2.0")]
    fn clEnqueueSVMMap(
        command_queue: cl_command_queue,
        blocking_map: cl_bool,
        flags: cl_map_flags,
        #[local] svm_ptr: *mut c_void,
        size: usize,
        num_events_in_wait_list: cl_uint,
        #[input(len = num_events_in_wait_list, nullable)] event_wait_list: *const cl_event,
        #[out(creates, nullable)] event: *mut cl_event,
    ) -> cl_int;

    /// Ends host access to a shared region.
    #[call(id = 0x0C07, local, manual(client), since = "2.0")]
    fn clEnqueueSVMUnmap(
        command_queue: cl_command_queue,
        #[local] svm_ptr: *mut c_void,
        num_events_in_wait_list: cl_uint,
        #[input(len = num_events_in_wait_list, nullable)] event_wait_list: *const cl_event,
        #[out(creates, nullable)] event: *mut cl_event,
    ) -> cl_int;

    /// Moves shared regions to the queue's device ahead of their use.
    #[call(id = 0x0C08, local, since = "2.1")]
    fn clEnqueueSVMMigrateMem(
        command_queue: cl_command_queue,
        num_svm_pointers: cl_uint,
        #[local] svm_pointers: *mut *const c_void,
        #[input(len = num_svm_pointers, nullable)] sizes: *const usize,
        flags: cl_mem_migration_flags,
        num_events_in_wait_list: cl_uint,
        #[input(len = num_events_in_wait_list, nullable)] event_wait_list: *const cl_event,
        #[out(creates, nullable)] event: *mut cl_event,
    ) -> cl_int;
}
