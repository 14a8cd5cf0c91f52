//! One call per shape of argument. Each has a golden file of its own; a new shape gets a new call.

extern "C" {
    /// Takes scalars and a handle by value.
    #[call(id = 0x0101)]
    fn clValue(context: cl_context, count: cl_uint, size: usize) -> cl_int;

    /// Is posted.
    #[call(id = 0x0102, async)]
    fn clPosted(context: cl_context, count: cl_uint) -> cl_int;

    /// Ends a handle's life.
    #[call(id = 0x0103, async)]
    fn clDestroys(#[destroys] buffer: cl_mem) -> cl_int;

    /// Creates a handle and returns it.
    #[call(id = 0x0104, async)]
    fn clCreated(context: cl_context, #[errcode] errcode_ret: *mut cl_int) -> cl_mem;

    /// Creates a handle behind a pointer, if the caller wants it.
    #[call(id = 0x0105, async)]
    fn clCreatedOut(buffer: cl_mem, #[out(creates, nullable)] event: *mut cl_event) -> cl_int;

    /// Reads one scalar.
    #[call(id = 0x0106)]
    fn clInputScalar(context: cl_context, #[input()] value: *const cl_uint) -> cl_int;

    /// Reads one structure, if there is one.
    #[call(id = 0x0107)]
    fn clInputStruct(context: cl_context, #[input(nullable)] region: *const cl_region) -> cl_int;

    /// Reads scalars, as many as another argument says.
    #[call(id = 0x0108)]
    fn clInputScalars(
        context: cl_context,
        count: cl_uint,
        #[input(len = count)] values: *const usize,
    ) -> cl_int;

    /// Reads handles, if there are any.
    #[call(id = 0x0109)]
    fn clInputHandles(
        context: cl_context,
        count: cl_uint,
        #[input(len = count, nullable)] events: *const cl_event,
    ) -> cl_int;

    /// Reads bytes.
    #[call(id = 0x010a)]
    fn clInputBytes(
        buffer: cl_mem,
        size: usize,
        #[input(bytes = size)] value: *const c_void,
    ) -> cl_int;

    /// Reads text.
    #[call(id = 0x010b)]
    fn clInputText(context: cl_context, #[input(cstr)] name: *const c_char) -> cl_int;

    /// Reads pairs up to a zero name, if there are any.
    #[call(id = 0x010c)]
    fn clInputList(context: cl_context, #[input(list, nullable)] properties: *const u64) -> cl_int;

    /// Answers with one scalar.
    #[call(id = 0x010d)]
    fn clOutScalar(context: cl_context, #[out()] value: *mut cl_uint) -> cl_int;

    /// Answers with structures, and says how many there are.
    #[call(id = 0x010e)]
    fn clOutStructs(
        context: cl_context,
        count: cl_uint,
        #[out(len = count, nullable, actual = count_ret)] regions: *mut cl_region,
        #[out(size_of, nullable)] count_ret: *mut cl_uint,
    ) -> cl_int;

    /// Answers a query: bytes, and how many there are.
    #[call(id = 0x010f)]
    fn clOutBytes(
        context: cl_context,
        param_name: cl_uint,
        param_value_size: usize,
        #[out(bytes = param_value_size, nullable, actual = param_value_size_ret)]
        param_value: *mut c_void,
        #[out(size_of, nullable)] param_value_size_ret: *mut usize,
    ) -> cl_int;

    /// Takes a callback, so that both halves are written by hand.
    #[call(id = 0x0110, manual)]
    fn clCallback(
        buffer: cl_mem,
        #[callback] notify: Option<unsafe extern "C" fn(cl_mem, *mut c_void)>,
        #[user_data] user_data: *mut c_void,
    ) -> cl_int;

    /// Is answered by the client.
    #[call(id = 0x0111, local)]
    fn clLocal(context: cl_context) -> cl_int;

    /// Is passed on by the platform as it is.
    #[call(id = 0x0112, forward)]
    fn clForward(context: cl_context, #[out()] value: *mut cl_uint) -> cl_int;

    /// Is refused.
    #[call(id = 0x0113, unsupported)]
    fn clUnsupported(context: cl_context, count: cl_uint) -> cl_int;

    /// Returns nothing.
    #[call(id = 0x0114)]
    fn clNothing(context: cl_context) -> c_void;

    /// Enqueues a command.
    #[call(id = 0x0115, local, manual(client))]
    fn clEnqueueCommand(
        command_queue: cl_command_queue,
        src_buffer: cl_mem,
        blocking_read: cl_bool,
        #[input(len = 3)] origin: *const usize,
        #[input(bytes = 16)] pattern: *const c_void,
        src_offset: usize,
        size: usize,
        #[local] ptr: *mut c_void,
        num_events_in_wait_list: cl_uint,
        #[input(len = num_events_in_wait_list, nullable)] event_wait_list: *const cl_event,
        #[out(creates, nullable)] event: *mut cl_event,
    ) -> cl_int;
}
