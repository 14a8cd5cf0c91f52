//! Programs. What carries text, binaries or callbacks is composed by the client from messages of the session.

extern "C" {
    /// Creates a program from source text in one or more pieces.
    #[call(id = 0x0801, local, manual(client), since = "1.0")]
    fn clCreateProgramWithSource(
        context: cl_context,
        count: cl_uint,
        #[local] strings: *mut *const c_char,
        #[input(len = count, nullable)] lengths: *const usize,
        #[errcode] errcode_ret: *mut cl_int,
    ) -> cl_program;

    /// Creates a program from one binary for each device.
    #[call(id = 0x0802, local, manual(client), since = "1.0")]
    fn clCreateProgramWithBinary(
        context: cl_context,
        num_devices: cl_uint,
        #[input(len = num_devices)] device_list: *const cl_device_id,
        #[input(len = num_devices)] lengths: *const usize,
        #[local] binaries: *mut *const u8,
        #[out(len = num_devices, nullable)] binary_status: *mut cl_int,
        #[errcode] errcode_ret: *mut cl_int,
    ) -> cl_program;

    /// Creates a program from kernels that the devices bring along, named in one list.
    #[call(id = 0x0803, async, since = "1.2", manual(client))]
    fn clCreateProgramWithBuiltInKernels(
        context: cl_context,
        num_devices: cl_uint,
        #[input(len = num_devices)] device_list: *const cl_device_id,
        #[input(cstr)] kernel_names: *const c_char,
        #[errcode] errcode_ret: *mut cl_int,
    ) -> cl_program;

    /// Creates a program from an intermediate language such as SPIR-V.
    #[call(
        id = 0x0804,
        async,
        since = "2.1",
        extension = "cl_khr_il_program",
        alias = "clCreateProgramWithILKHR",
        manual(client),
        manual(server)
    )]
    fn clCreateProgramWithIL(
        context: cl_context,
        #[input(bytes = length, bulk)] il: *const c_void,
        length: usize,
        #[errcode] errcode_ret: *mut cl_int,
    ) -> cl_program;

    /// Adds a reference to a program.
    #[call(id = 0x0805, local, since = "1.0")]
    fn clRetainProgram(program: cl_program) -> cl_int;

    /// Drops a reference to a program; the last one ends it, once no kernel uses it.
    #[call(id = 0x0806, async, since = "1.0", manual(client))]
    fn clReleaseProgram(#[destroys] program: cl_program) -> cl_int;

    /// Compiles and links a program for some of its devices.
    #[call(id = 0x0807, local, manual(client), since = "1.0")]
    fn clBuildProgram(
        program: cl_program,
        num_devices: cl_uint,
        #[input(len = num_devices, nullable)] device_list: *const cl_device_id,
        #[input(cstr, nullable)] options: *const c_char,
        #[callback] pfn_notify: Option<unsafe extern "C" fn(cl_program, *mut c_void)>,
        #[user_data] user_data: *mut c_void,
    ) -> cl_int;

    /// Compiles a program with the given headers, without linking.
    #[call(id = 0x0808, local, manual(client), since = "1.2")]
    fn clCompileProgram(
        program: cl_program,
        num_devices: cl_uint,
        #[input(len = num_devices, nullable)] device_list: *const cl_device_id,
        #[input(cstr, nullable)] options: *const c_char,
        num_input_headers: cl_uint,
        #[input(len = num_input_headers, nullable)] input_headers: *const cl_program,
        #[local] header_include_names: *mut *const c_char,
        #[callback] pfn_notify: Option<unsafe extern "C" fn(cl_program, *mut c_void)>,
        #[user_data] user_data: *mut c_void,
    ) -> cl_int;

    /// Links compiled programs into a new one.
    #[call(id = 0x0809, local, manual(client), since = "1.2")]
    fn clLinkProgram(
        context: cl_context,
        num_devices: cl_uint,
        #[input(len = num_devices, nullable)] device_list: *const cl_device_id,
        #[input(cstr, nullable)] options: *const c_char,
        num_input_programs: cl_uint,
        #[input(len = num_input_programs)] input_programs: *const cl_program,
        #[callback] pfn_notify: Option<unsafe extern "C" fn(cl_program, *mut c_void)>,
        #[user_data] user_data: *mut c_void,
        #[errcode] errcode_ret: *mut cl_int,
    ) -> cl_program;

    /// Hints that no more builds follow; does nothing.
    #[call(id = 0x080A, local, since = "1.0", deprecated = "1.2")]
    fn clUnloadCompiler() -> cl_int;

    /// Hints that no more builds follow on a platform; does nothing.
    #[call(id = 0x080B, local, since = "1.2")]
    fn clUnloadPlatformCompiler(platform: cl_platform_id) -> cl_int;

    /// Sets a specialization constant of an intermediate-language program for its next build.
    #[call(id = 0x080C, async, since = "2.2", manual(client))]
    fn clSetProgramSpecializationConstant(
        program: cl_program,
        spec_id: cl_uint,
        spec_size: usize,
        #[input(bytes = spec_size)] spec_value: *const c_void,
    ) -> cl_int;

    /// Has a function called when the program ends; several run in reverse order.
    #[call(id = 0x080D, local, since = "2.2", deprecated = "3.0")]
    fn clSetProgramReleaseCallback(
        program: cl_program,
        #[callback] pfn_notify: Option<unsafe extern "C" fn(cl_program, *mut c_void)>,
        #[user_data] user_data: *mut c_void,
    ) -> cl_int;

    /// Describes a program; its binaries are collected by the client through a message of the session.
    #[call(id = 0x080E, since = "1.0", manual(client))]
    fn clGetProgramInfo(
        program: cl_program,
        param_name: cl_program_info,
        param_value_size: usize,
        #[out(bytes = param_value_size, nullable, actual = param_value_size_ret)]
        param_value: *mut c_void,
        #[out(size_of, nullable)] param_value_size_ret: *mut usize,
    ) -> cl_int;

    /// Describes the last build of a program for a device.
    #[call(id = 0x080F, since = "1.0")]
    fn clGetProgramBuildInfo(
        program: cl_program,
        device: cl_device_id,
        param_name: cl_program_build_info,
        param_value_size: usize,
        #[out(bytes = param_value_size, nullable, actual = param_value_size_ret)]
        param_value: *mut c_void,
        #[out(size_of, nullable)] param_value_size_ret: *mut usize,
    ) -> cl_int;
}
