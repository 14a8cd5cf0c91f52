//! Buffers, sub-buffers, pipes, and what all memory objects share. Images have a file of their own.

extern "C" {
    /// Creates a buffer, from the bytes at `host_ptr` when there is one.
    #[call(id = 0x0501, async, since = "1.0", manual)]
    fn clCreateBuffer(
        context: cl_context,
        flags: cl_mem_flags,
        size: usize,
        #[input(bytes = size, nullable, bulk)] host_ptr: *mut c_void,
        #[errcode] errcode_ret: *mut cl_int,
    ) -> cl_mem;

    /// Creates a buffer with a list of properties.
    #[call(id = 0x0502, async, since = "3.0", manual)]
    fn clCreateBufferWithProperties(
        context: cl_context,
        #[input(list, nullable)] properties: *const cl_mem_properties,
        flags: cl_mem_flags,
        size: usize,
        #[input(bytes = size, nullable, bulk)] host_ptr: *mut c_void,
        #[errcode] errcode_ret: *mut cl_int,
    ) -> cl_mem;

    /// Creates a memory object over part of a buffer, given as a `cl_buffer_region`.
    #[call(id = 0x0503, async, since = "1.1")]
    fn clCreateSubBuffer(
        buffer: cl_mem,
        flags: cl_mem_flags,
        buffer_create_type: cl_buffer_create_type,
        #[input(bytes = 16)] buffer_create_info: *const c_void,
        #[errcode] errcode_ret: *mut cl_int,
    ) -> cl_mem;

    /// Creates a pipe that kernels use to pass packets on.
    #[call(id = 0x0504, async, since = "2.0")]
    fn clCreatePipe(
        context: cl_context,
        flags: cl_mem_flags,
        pipe_packet_size: cl_uint,
        pipe_max_packets: cl_uint,
        #[input(list, nullable)] properties: *const cl_pipe_properties,
        #[errcode] errcode_ret: *mut cl_int,
    ) -> cl_mem;

    /// Adds a reference to a memory object.
    #[call(id = 0x0505, local, since = "1.0")]
    fn clRetainMemObject(memobj: cl_mem) -> cl_int;

    /// Drops a reference to a memory object; the last one ends it, once no command uses it.
    #[call(id = 0x0506, async, since = "1.0", manual(client))]
    fn clReleaseMemObject(#[destroys] memobj: cl_mem) -> cl_int;

    /// Describes a memory object of any kind.
    #[call(id = 0x0507, local, since = "1.0")]
    fn clGetMemObjectInfo(
        memobj: cl_mem,
        param_name: cl_mem_info,
        param_value_size: usize,
        #[out(bytes = param_value_size, nullable, actual = param_value_size_ret)]
        param_value: *mut c_void,
        #[out(size_of, nullable)] param_value_size_ret: *mut usize,
    ) -> cl_int;

    /// Describes a pipe.
    #[call(id = 0x0508, local, since = "2.0")]
    fn clGetPipeInfo(
        pipe: cl_mem,
        param_name: cl_pipe_info,
        param_value_size: usize,
        #[out(bytes = param_value_size, nullable, actual = param_value_size_ret)]
        param_value: *mut c_void,
        #[out(size_of, nullable)] param_value_size_ret: *mut usize,
    ) -> cl_int;

    /// Has a function called when the memory object ends; several run in reverse order.
    #[call(id = 0x0509, local, since = "1.1")]
    fn clSetMemObjectDestructorCallback(
        memobj: cl_mem,
        #[callback] pfn_notify: Option<unsafe extern "C" fn(cl_mem, *mut c_void)>,
        #[user_data] user_data: *mut c_void,
    ) -> cl_int;
}
