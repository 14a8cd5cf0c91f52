//! Events. Their progress is pushed by the server, so most questions are answered by the client.

extern "C" {
    /// Creates an event whose status the application sets.
    #[call(id = 0x0A01, async, since = "1.1", manual)]
    fn clCreateUserEvent(context: cl_context, #[errcode] errcode_ret: *mut cl_int) -> cl_event;

    /// Ends a user event: complete, or failed with a negative status.
    #[call(id = 0x0A02, async, since = "1.1", manual)]
    fn clSetUserEventStatus(event: cl_event, execution_status: cl_int) -> cl_int;

    /// Waits until all of the given events are complete.
    #[call(id = 0x0A03, local, manual(client), since = "1.0")]
    fn clWaitForEvents(
        num_events: cl_uint,
        #[input(len = num_events)] event_list: *const cl_event,
    ) -> cl_int;

    /// Describes an event.
    #[call(id = 0x0A04, local, manual(client), since = "1.0")]
    fn clGetEventInfo(
        event: cl_event,
        param_name: cl_event_info,
        param_value_size: usize,
        #[out(bytes = param_value_size, nullable, actual = param_value_size_ret)]
        param_value: *mut c_void,
        #[out(size_of, nullable)] param_value_size_ret: *mut usize,
    ) -> cl_int;

    /// Has a function called when the event reaches a status.
    #[call(id = 0x0A05, local, manual(client), since = "1.1")]
    fn clSetEventCallback(
        event: cl_event,
        command_exec_callback_type: cl_int,
        #[callback] pfn_notify: Option<unsafe extern "C" fn(cl_event, cl_int, *mut c_void)>,
        #[user_data] user_data: *mut c_void,
    ) -> cl_int;

    /// Tells when the device took up and finished the event's command.
    #[call(id = 0x0A06, since = "1.0", manual)]
    fn clGetEventProfilingInfo(
        event: cl_event,
        param_name: cl_profiling_info,
        param_value_size: usize,
        #[out(bytes = param_value_size, nullable, actual = param_value_size_ret)]
        param_value: *mut c_void,
        #[out(size_of, nullable)] param_value_size_ret: *mut usize,
    ) -> cl_int;

    /// Adds a reference to an event.
    #[call(id = 0x0A07, local, since = "1.0")]
    fn clRetainEvent(event: cl_event) -> cl_int;

    /// Drops a reference to an event; the last one ends it, once its command is complete.
    #[call(id = 0x0A08, async, since = "1.0", manual(client))]
    fn clReleaseEvent(#[destroys] event: cl_event) -> cl_int;
}
