//! Contexts. A context of the application may span servers; on each of them it is one context over the devices that are there.

extern "C" {
    /// Creates a context over the given devices; messages for its callback come back as notices.
    #[call(id = 0x0301, async, manual(client), manual(server), since = "1.0")]
    fn clCreateContext(
        #[input(list, nullable)] properties: *const cl_context_properties,
        num_devices: cl_uint,
        #[input(len = num_devices)] devices: *const cl_device_id,
        #[callback] pfn_notify: Option<
            unsafe extern "C" fn(*const c_char, *const c_void, usize, *mut c_void),
        >,
        #[user_data] user_data: *mut c_void,
        #[errcode] errcode_ret: *mut cl_int,
    ) -> cl_context;

    /// Creates a context over all devices of the given kinds.
    #[call(id = 0x0302, local, since = "1.0")]
    fn clCreateContextFromType(
        #[input(list, nullable)] properties: *const cl_context_properties,
        device_type: cl_device_type,
        #[callback] pfn_notify: Option<
            unsafe extern "C" fn(*const c_char, *const c_void, usize, *mut c_void),
        >,
        #[user_data] user_data: *mut c_void,
        #[errcode] errcode_ret: *mut cl_int,
    ) -> cl_context;

    /// Adds a reference to a context.
    #[call(id = 0x0303, local, since = "1.0")]
    fn clRetainContext(context: cl_context) -> cl_int;

    /// Drops a reference to a context; the last one ends it.
    #[call(id = 0x0304, async, since = "1.0")]
    fn clReleaseContext(#[destroys] context: cl_context) -> cl_int;

    /// Describes a context.
    #[call(id = 0x0305, local, since = "1.0")]
    fn clGetContextInfo(
        context: cl_context,
        param_name: cl_context_info,
        param_value_size: usize,
        #[out(bytes = param_value_size, nullable, actual = param_value_size_ret)]
        param_value: *mut c_void,
        #[out(size_of, nullable)] param_value_size_ret: *mut usize,
    ) -> cl_int;

    /// Has a function called when the context ends; several run in reverse order.
    #[call(id = 0x0306, local, since = "3.0")]
    fn clSetContextDestructorCallback(
        context: cl_context,
        #[callback] pfn_notify: Option<unsafe extern "C" fn(cl_context, *mut c_void)>,
        #[user_data] user_data: *mut c_void,
    ) -> cl_int;
}
