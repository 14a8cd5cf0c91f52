//! Command queues. Flushing is one-way; only finishing waits.

extern "C" {
    /// Creates a command queue on a device, with its properties as bits.
    #[call(id = 0x0401, async, since = "1.0", deprecated = "2.0")]
    fn clCreateCommandQueue(
        context: cl_context,
        device: cl_device_id,
        properties: cl_command_queue_properties,
        #[errcode] errcode_ret: *mut cl_int,
    ) -> cl_command_queue;

    /// Creates a command queue on a device, with its properties as a list.
    #[call(
        id = 0x0402,
        async,
        since = "2.0",
        extension = "cl_khr_create_command_queue",
        alias = "clCreateCommandQueueWithPropertiesKHR"
    )]
    fn clCreateCommandQueueWithProperties(
        context: cl_context,
        device: cl_device_id,
        #[input(list, nullable)] properties: *const cl_queue_properties,
        #[errcode] errcode_ret: *mut cl_int,
    ) -> cl_command_queue;

    /// Replaces the default queue to which kernels of a device enqueue.
    #[call(id = 0x0403, async, since = "2.1", manual(client))]
    fn clSetDefaultDeviceCommandQueue(
        context: cl_context,
        device: cl_device_id,
        command_queue: cl_command_queue,
    ) -> cl_int;

    /// Adds a reference to a command queue.
    #[call(id = 0x0404, local, since = "1.0")]
    fn clRetainCommandQueue(command_queue: cl_command_queue) -> cl_int;

    /// Drops a reference to a command queue, after a flush; the last one ends it.
    #[call(id = 0x0405, async, since = "1.0")]
    fn clReleaseCommandQueue(#[destroys] command_queue: cl_command_queue) -> cl_int;

    /// Describes a command queue.
    #[call(id = 0x0406, local, since = "1.0")]
    fn clGetCommandQueueInfo(
        command_queue: cl_command_queue,
        param_name: cl_command_queue_info,
        param_value_size: usize,
        #[out(bytes = param_value_size, nullable, actual = param_value_size_ret)]
        param_value: *mut c_void,
        #[out(size_of, nullable)] param_value_size_ret: *mut usize,
    ) -> cl_int;

    /// Changes the properties of a live queue: gone since OpenCL 1.1, refused as an invalid operation.
    #[call(id = 0x0407, unsupported, since = "1.0", deprecated = "1.1")]
    fn clSetCommandQueueProperty(
        command_queue: cl_command_queue,
        properties: cl_command_queue_properties,
        enable: cl_bool,
        #[local] old_properties: *mut cl_command_queue_properties,
    ) -> cl_int;

    /// Sends everything enqueued so far to the device.
    #[call(id = 0x0408, async, since = "1.0")]
    fn clFlush(command_queue: cl_command_queue) -> cl_int;

    /// Waits until every command of the queue is complete.
    #[call(id = 0x0409, local, manual(client), since = "1.0")]
    fn clFinish(command_queue: cl_command_queue) -> cl_int;
}
