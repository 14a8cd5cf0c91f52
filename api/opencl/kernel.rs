//! Kernels and their arguments. Arguments are kept by the client and travel with the launch.

extern "C" {
    /// Creates the kernel of the given name from a built program.
    #[call(id = 0x0901, async, since = "1.0", manual(client))]
    fn clCreateKernel(
        program: cl_program,
        #[input(cstr)] kernel_name: *const c_char,
        #[errcode] errcode_ret: *mut cl_int,
    ) -> cl_kernel;

    /// Creates all kernels of a built program.
    #[call(id = 0x0902, local, manual(client), since = "1.0")]
    fn clCreateKernelsInProgram(
        program: cl_program,
        num_kernels: cl_uint,
        #[out(len = num_kernels, creates, nullable, actual = num_kernels_ret)]
        kernels: *mut cl_kernel,
        #[out(size_of, nullable)] num_kernels_ret: *mut cl_uint,
    ) -> cl_int;

    /// Creates a copy of a kernel with its arguments as they are now.
    #[call(id = 0x0903, async, since = "2.1", manual(client))]
    fn clCloneKernel(source_kernel: cl_kernel, #[errcode] errcode_ret: *mut cl_int) -> cl_kernel;

    /// Adds a reference to a kernel.
    #[call(id = 0x0904, local, since = "1.0")]
    fn clRetainKernel(kernel: cl_kernel) -> cl_int;

    /// Drops a reference to a kernel; the last one ends it.
    #[call(id = 0x0905, async, since = "1.0", manual(client))]
    fn clReleaseKernel(#[destroys] kernel: cl_kernel) -> cl_int;

    /// Sets one argument: plain bytes, an object, or a size of local memory when there is no value.
    #[call(id = 0x0906, local, manual(client), since = "1.0")]
    fn clSetKernelArg(
        kernel: cl_kernel,
        arg_index: cl_uint,
        arg_size: usize,
        #[input(bytes = arg_size, nullable)] arg_value: *const c_void,
    ) -> cl_int;

    /// Sets one argument to a pointer into shared virtual memory.
    #[call(id = 0x0907, local, manual(client), since = "2.0")]
    fn clSetKernelArgSVMPointer(
        kernel: cl_kernel,
        arg_index: cl_uint,
        #[local] arg_value: *const c_void,
    ) -> cl_int;

    /// Tells what a kernel uses beside its arguments, such as pointers into shared virtual memory.
    #[call(id = 0x0908, local, manual(client), since = "2.0")]
    fn clSetKernelExecInfo(
        kernel: cl_kernel,
        param_name: cl_kernel_exec_info,
        param_value_size: usize,
        #[input(bytes = param_value_size)] param_value: *const c_void,
    ) -> cl_int;

    /// Describes a kernel.
    #[call(id = 0x0909, since = "1.0")]
    fn clGetKernelInfo(
        kernel: cl_kernel,
        param_name: cl_kernel_info,
        param_value_size: usize,
        #[out(bytes = param_value_size, nullable, actual = param_value_size_ret)]
        param_value: *mut c_void,
        #[out(size_of, nullable)] param_value_size_ret: *mut usize,
    ) -> cl_int;

    /// Describes one argument of a kernel.
    #[call(id = 0x090A, since = "1.2")]
    fn clGetKernelArgInfo(
        kernel: cl_kernel,
        arg_index: cl_uint,
        param_name: cl_kernel_arg_info,
        param_value_size: usize,
        #[out(bytes = param_value_size, nullable, actual = param_value_size_ret)]
        param_value: *mut c_void,
        #[out(size_of, nullable)] param_value_size_ret: *mut usize,
    ) -> cl_int;

    /// Describes how a kernel runs in work-groups on a device.
    #[call(id = 0x090B, since = "1.0")]
    fn clGetKernelWorkGroupInfo(
        kernel: cl_kernel,
        device: cl_device_id,
        param_name: cl_kernel_work_group_info,
        param_value_size: usize,
        #[out(bytes = param_value_size, nullable, actual = param_value_size_ret)]
        param_value: *mut c_void,
        #[out(size_of, nullable)] param_value_size_ret: *mut usize,
    ) -> cl_int;

    /// Describes how a kernel runs in sub-groups on a device.
    #[call(
        id = 0x090C,
        since = "2.1",
        extension = "cl_khr_subgroups",
        alias = "clGetKernelSubGroupInfoKHR"
    )]
    fn clGetKernelSubGroupInfo(
        kernel: cl_kernel,
        device: cl_device_id,
        param_name: cl_kernel_sub_group_info,
        input_value_size: usize,
        #[input(bytes = input_value_size, nullable)] input_value: *const c_void,
        param_value_size: usize,
        #[out(bytes = param_value_size, nullable, actual = param_value_size_ret)]
        param_value: *mut c_void,
        #[out(size_of, nullable)] param_value_size_ret: *mut usize,
    ) -> cl_int;

    /// Tells which work-group size a launch without one would get.
    #[call(
        id = 0x090D,
        extension = "cl_khr_suggested_local_work_size",
        alias = "clGetKernelSuggestedLocalWorkSize"
    )]
    fn clGetKernelSuggestedLocalWorkSizeKHR(
        command_queue: cl_command_queue,
        kernel: cl_kernel,
        work_dim: cl_uint,
        #[input(len = work_dim, nullable)] global_work_offset: *const usize,
        #[input(len = work_dim)] global_work_size: *const usize,
        #[out(len = work_dim)] suggested_local_work_size: *mut usize,
    ) -> cl_int;
}
