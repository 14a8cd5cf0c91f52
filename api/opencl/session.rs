// Messages of the session itself: what the client composes API calls from. They are numbered like calls, and not exported.

extern "C" {
    /// Sets an argument of a kernel ahead of a launch; only arguments that changed travel.
    #[call(id = 0x0f01, internal, async, manual(server))]
    fn SetArg(
        kernel: cl_kernel,
        index: cl_uint,
        kind: cl_uint,
        size: u64,
        value_size: u64,
        #[input(bytes = value_size)] value: *const c_void,
    ) -> cl_int;

    /// Sets an argument and waits for the device's verdict: the first time that an index is set with this size and kind.
    #[call(id = 0x0f02, internal, sync, manual(server))]
    fn CheckArg(
        kernel: cl_kernel,
        index: cl_uint,
        kind: cl_uint,
        size: u64,
        value_size: u64,
        #[input(bytes = value_size)] value: *const c_void,
    ) -> cl_int;

    /// Creates a program from one source text.
    #[call(id = 0x0f03, internal, async, manual(server))]
    fn CreateProgramSource(
        context: cl_context,
        size: u64,
        #[input(bytes = size)] source: *const c_void,
        #[errcode] errcode_ret: *mut cl_int,
    ) -> cl_program;

    /// Creates a program from one binary per device, laid end to end.
    #[call(id = 0x0f04, internal, sync, manual(server))]
    fn CreateProgramBinary(
        context: cl_context,
        num_devices: cl_uint,
        #[input(len = num_devices)] devices: *const cl_device_id,
        #[input(len = num_devices)] sizes: *const u64,
        total: u64,
        #[input(bytes = total)] binaries: *const c_void,
        #[out(len = num_devices)] binary_status: *mut cl_int,
        #[errcode] errcode_ret: *mut cl_int,
    ) -> cl_program;

    /// Gives a program files that its next builds and compilations include.
    #[call(id = 0x0f0a, internal, async, manual(server))]
    fn IncludeFiles(
        program: cl_program,
        size: u64,
        #[input(bytes = size)] files: *const c_void,
    ) -> cl_int;

    /// Builds a program and answers with what is known of its kernels.
    #[call(id = 0x0f05, internal, sync, waits, manual(server))]
    fn Build(
        program: cl_program,
        num_devices: cl_uint,
        #[input(len = num_devices, nullable)] devices: *const cl_device_id,
        #[input(cstr, nullable)] options: *const c_char,
        room: u64,
        #[out(bytes = room)] facts: *mut c_void,
    ) -> cl_int;

    /// Compiles a program against headers; `names` holds the headers' include names, each ended by a NUL.
    #[call(id = 0x0f06, internal, sync, waits, manual(server))]
    fn Compile(
        program: cl_program,
        num_devices: cl_uint,
        #[input(len = num_devices, nullable)] devices: *const cl_device_id,
        #[input(cstr, nullable)] options: *const c_char,
        num_headers: cl_uint,
        #[input(len = num_headers, nullable)] headers: *const cl_program,
        names_size: u64,
        #[input(bytes = names_size)] names: *const c_void,
    ) -> cl_int;

    /// Links compiled programs into a new one and answers with what is known of its kernels.
    #[call(id = 0x0f07, internal, sync, waits, manual(server))]
    fn Link(
        context: cl_context,
        num_devices: cl_uint,
        #[input(len = num_devices, nullable)] devices: *const cl_device_id,
        #[input(cstr, nullable)] options: *const c_char,
        num_programs: cl_uint,
        #[input(len = num_programs, nullable)] programs: *const cl_program,
        room: u64,
        #[out(bytes = room)] facts: *mut c_void,
        #[errcode] errcode_ret: *mut cl_int,
    ) -> cl_program;

    /// The binaries of a program, one per device, laid end to end.
    #[call(id = 0x0f08, internal, sync, manual(server))]
    fn ProgramBinaries(
        program: cl_program,
        num_devices: cl_uint,
        #[out(len = num_devices)] sizes: *mut u64,
        room: u64,
        #[out(bytes = room)] binaries: *mut c_void,
    ) -> cl_int;

    /// What is known of the kernels of a program that was built.
    #[call(id = 0x0f09, internal, sync, manual(server))]
    fn ProgramFacts(
        program: cl_program,
        room: u64,
        #[out(bytes = room)] facts: *mut c_void,
    ) -> cl_int;

    /// Waits until everything enqueued before is done.
    #[call(id = 0x0f10, internal, sync, waits, manual(server))]
    fn Finish(command_queue: cl_command_queue) -> cl_int;

    /// Waits until the events are complete.
    #[call(id = 0x0f11, internal, sync, waits, manual(server))]
    fn Wait(num_events: cl_uint, #[input(len = num_events)] events: *const cl_event) -> cl_int;

    /// Writes data that travels with the request. `place`: origin x y z, region x y z, row pitch, slice pitch on the device.
    #[call(id = 0x0f12, internal, async, manual(server))]
    fn WriteInline(
        command_queue: cl_command_queue,
        mem: cl_mem,
        shape: cl_uint,
        #[input(len = 8)] place: *const u64,
        size: u64,
        #[input(bytes = size)] data: *const c_void,
        num_events_in_wait_list: cl_uint,
        #[input(len = num_events_in_wait_list, nullable)] event_wait_list: *const cl_event,
        #[out(creates, nullable)] event: *mut cl_event,
    ) -> cl_int;

    /// Writes payload that travels on the payload lanes once the server grants it.
    #[call(id = 0x0f13, internal, async, manual(server))]
    fn WriteBulk(
        command_queue: cl_command_queue,
        mem: cl_mem,
        shape: cl_uint,
        #[input(len = 8)] place: *const u64,
        size: u64,
        payload: u64,
        num_events_in_wait_list: cl_uint,
        #[input(len = num_events_in_wait_list, nullable)] event_wait_list: *const cl_event,
        #[out(creates, nullable)] event: *mut cl_event,
    ) -> cl_int;

    /// Reads; the data comes back under the payload's number: small data on the command lane, the rest on the payload lanes.
    #[call(id = 0x0f14, internal, async, manual(server))]
    fn Read(
        command_queue: cl_command_queue,
        mem: cl_mem,
        shape: cl_uint,
        #[input(len = 8)] place: *const u64,
        size: u64,
        payload: u64,
        urgent: cl_uint,
        num_events_in_wait_list: cl_uint,
        #[input(len = num_events_in_wait_list, nullable)] event_wait_list: *const cl_event,
        #[out(creates, nullable)] event: *mut cl_event,
    ) -> cl_int;

    /// Waits until the worker has a peer lane of this number.
    #[call(id = 0x0f15, internal, sync, waits, manual(server))]
    fn PeerOpen(lane: u64) -> cl_int;

    /// Sends part of a buffer to the worker at the other end of a peer lane, which takes it with PeerReceive.
    #[call(id = 0x0f16, internal, async, manual(server))]
    fn PeerSend(
        command_queue: cl_command_queue,
        mem: cl_mem,
        offset: u64,
        size: u64,
        lane: u64,
        payload: u64,
        num_events_in_wait_list: cl_uint,
        #[input(len = num_events_in_wait_list, nullable)] event_wait_list: *const cl_event,
        #[out(creates, nullable)] event: *mut cl_event,
    ) -> cl_int;

    /// Takes part of a buffer from the worker at the other end of a peer lane, which sends it with PeerSend.
    #[call(id = 0x0f17, internal, async, manual(server))]
    fn PeerReceive(
        command_queue: cl_command_queue,
        mem: cl_mem,
        offset: u64,
        size: u64,
        lane: u64,
        payload: u64,
        num_events_in_wait_list: cl_uint,
        #[input(len = num_events_in_wait_list, nullable)] event_wait_list: *const cl_event,
        #[out(creates, nullable)] event: *mut cl_event,
    ) -> cl_int;

    /// Partitions a device; the new devices get the numbers from `first` on.
    #[call(id = 0x0f20, internal, sync, manual(server))]
    fn PartitionDevice(
        in_device: cl_device_id,
        num_properties: cl_uint,
        #[input(len = num_properties)] properties: *const u64,
        first: u64,
        room: cl_uint,
        #[out(size_of)] count: *mut usize,
    ) -> cl_int;

    /// Reads a device's timer and the server's beside it.
    #[call(id = 0x0f21, internal, sync, manual(server))]
    fn DeviceTimers(
        device: cl_device_id,
        #[out] device_timestamp: *mut cl_ulong,
        #[out] host_timestamp: *mut cl_ulong,
    ) -> cl_int;

    /// Gives devices other numbers, before anything was made: a session that comes from another server keeps its own.
    #[call(id = 0x0f22, internal, async, manual(server))]
    fn NameDevices(
        num_devices: cl_uint,
        #[input(len = num_devices)] devices: *const cl_device_id,
        #[input(len = num_devices)] names: *const u64,
    ) -> cl_int;

    /// Allocates shared virtual memory; the client maps the same addresses.
    #[call(id = 0x0f30, internal, sync, manual(server))]
    fn SvmAlloc(
        context: cl_context,
        flags: cl_svm_mem_flags,
        size: u64,
        alignment: cl_uint,
        #[out] address: *mut u64,
    ) -> cl_int;

    /// Frees shared virtual memory.
    #[call(id = 0x0f31, internal, async, manual(server))]
    fn SvmFree(context: cl_context, address: u64) -> cl_int;

    /// Copies between two places in shared virtual memory.
    #[call(id = 0x0f32, internal, async, manual(server))]
    fn SvmCopy(
        command_queue: cl_command_queue,
        destination: u64,
        source: u64,
        size: u64,
        num_events_in_wait_list: cl_uint,
        #[input(len = num_events_in_wait_list, nullable)] event_wait_list: *const cl_event,
        #[out(creates, nullable)] event: *mut cl_event,
    ) -> cl_int;

    /// Fills shared virtual memory with a pattern.
    #[call(id = 0x0f33, internal, async, manual(server))]
    fn SvmFill(
        command_queue: cl_command_queue,
        destination: u64,
        pattern_size: u64,
        #[input(bytes = pattern_size)] pattern: *const c_void,
        size: u64,
        num_events_in_wait_list: cl_uint,
        #[input(len = num_events_in_wait_list, nullable)] event_wait_list: *const cl_event,
        #[out(creates, nullable)] event: *mut cl_event,
    ) -> cl_int;

    /// Passes execution hints of a kernel, such as the shared virtual memory that it reaches indirectly.
    #[call(id = 0x0f34, internal, sync, manual(server))]
    fn KernelExecInfo(
        kernel: cl_kernel,
        param_name: cl_uint,
        size: u64,
        #[input(bytes = size)] value: *const c_void,
    ) -> cl_int;

    /// Creates a buffer over shared virtual memory: both are one memory.
    #[call(id = 0x0f35, internal, async, manual(server))]
    fn SvmBuffer(
        context: cl_context,
        flags: cl_mem_flags,
        address: u64,
        size: u64,
        #[errcode] errcode_ret: *mut cl_int,
    ) -> cl_mem;

    /// Ends the session in good order.
    #[call(id = 0x0f40, internal, async, manual(server))]
    fn Goodbye(reason: cl_uint) -> cl_int;

    /// Answers at once; measures the round trip.
    #[call(id = 0x0f41, internal, sync, manual(server))]
    fn Ping(token: u64) -> cl_int;

    /// Says where the worker's time went: on the lane, and waiting for the device on behalf of this client, in nanoseconds.
    #[call(id = 0x0f42, internal, sync, manual(server))]
    fn Usage(token: u64, #[out] lane_ns: *mut u64, #[out] device_ns: *mut u64) -> cl_int;
}
