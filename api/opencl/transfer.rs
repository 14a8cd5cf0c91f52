//! Commands that move contents. What moves bytes between host and device is composed by the client, since its pointers outlive the call.

extern "C" {
    /// Copies part of a buffer to the host.
    #[call(id = 0x0B01, local, manual(client), since = "1.0")]
    fn clEnqueueReadBuffer(
        command_queue: cl_command_queue,
        buffer: cl_mem,
        blocking_read: cl_bool,
        offset: usize,
        size: usize,
        #[local] ptr: *mut c_void,
        num_events_in_wait_list: cl_uint,
        #[input(len = num_events_in_wait_list, nullable)] event_wait_list: *const cl_event,
        #[out(creates, nullable)] event: *mut cl_event,
    ) -> cl_int;

    /// Copies a box out of a buffer to a box in host memory.
    #[call(id = 0x0B02, local, manual(client), since = "1.1")]
    fn clEnqueueReadBufferRect(
        command_queue: cl_command_queue,
        buffer: cl_mem,
        blocking_read: cl_bool,
        #[input(len = 3)] buffer_origin: *const usize,
        #[input(len = 3)] host_origin: *const usize,
        #[input(len = 3)] region: *const usize,
        buffer_row_pitch: usize,
        buffer_slice_pitch: usize,
        host_row_pitch: usize,
        host_slice_pitch: usize,
        #[local] ptr: *mut c_void,
        num_events_in_wait_list: cl_uint,
        #[input(len = num_events_in_wait_list, nullable)] event_wait_list: *const cl_event,
        #[out(creates, nullable)] event: *mut cl_event,
    ) -> cl_int;

    /// Copies host memory to part of a buffer.
    #[call(id = 0x0B03, local, manual(client), since = "1.0")]
    fn clEnqueueWriteBuffer(
        command_queue: cl_command_queue,
        buffer: cl_mem,
        blocking_write: cl_bool,
        offset: usize,
        size: usize,
        #[local] ptr: *const c_void,
        num_events_in_wait_list: cl_uint,
        #[input(len = num_events_in_wait_list, nullable)] event_wait_list: *const cl_event,
        #[out(creates, nullable)] event: *mut cl_event,
    ) -> cl_int;

    /// Copies a box in host memory to a box in a buffer.
    #[call(id = 0x0B04, local, manual(client), since = "1.1")]
    fn clEnqueueWriteBufferRect(
        command_queue: cl_command_queue,
        buffer: cl_mem,
        blocking_write: cl_bool,
        #[input(len = 3)] buffer_origin: *const usize,
        #[input(len = 3)] host_origin: *const usize,
        #[input(len = 3)] region: *const usize,
        buffer_row_pitch: usize,
        buffer_slice_pitch: usize,
        host_row_pitch: usize,
        host_slice_pitch: usize,
        #[local] ptr: *const c_void,
        num_events_in_wait_list: cl_uint,
        #[input(len = num_events_in_wait_list, nullable)] event_wait_list: *const cl_event,
        #[out(creates, nullable)] event: *mut cl_event,
    ) -> cl_int;

    /// Repeats a pattern over part of a buffer.
    #[call(id = 0x0B05, async, since = "1.2")]
    fn clEnqueueFillBuffer(
        command_queue: cl_command_queue,
        buffer: cl_mem,
        #[input(bytes = pattern_size)] pattern: *const c_void,
        pattern_size: usize,
        offset: usize,
        size: usize,
        num_events_in_wait_list: cl_uint,
        #[input(len = num_events_in_wait_list, nullable)] event_wait_list: *const cl_event,
        #[out(creates, nullable)] event: *mut cl_event,
    ) -> cl_int;

    /// Copies part of a buffer to another place or buffer.
    #[call(id = 0x0B06, async, since = "1.0")]
    fn clEnqueueCopyBuffer(
        command_queue: cl_command_queue,
        src_buffer: cl_mem,
        dst_buffer: cl_mem,
        src_offset: usize,
        dst_offset: usize,
        size: usize,
        num_events_in_wait_list: cl_uint,
        #[input(len = num_events_in_wait_list, nullable)] event_wait_list: *const cl_event,
        #[out(creates, nullable)] event: *mut cl_event,
    ) -> cl_int;

    /// Copies a box in a buffer to another place or buffer.
    #[call(id = 0x0B07, async, since = "1.1")]
    fn clEnqueueCopyBufferRect(
        command_queue: cl_command_queue,
        src_buffer: cl_mem,
        dst_buffer: cl_mem,
        #[input(len = 3)] src_origin: *const usize,
        #[input(len = 3)] dst_origin: *const usize,
        #[input(len = 3)] region: *const usize,
        src_row_pitch: usize,
        src_slice_pitch: usize,
        dst_row_pitch: usize,
        dst_slice_pitch: usize,
        num_events_in_wait_list: cl_uint,
        #[input(len = num_events_in_wait_list, nullable)] event_wait_list: *const cl_event,
        #[out(creates, nullable)] event: *mut cl_event,
    ) -> cl_int;

    /// Copies part of an image to the host.
    #[call(id = 0x0B08, local, manual(client), since = "1.0")]
    fn clEnqueueReadImage(
        command_queue: cl_command_queue,
        image: cl_mem,
        blocking_read: cl_bool,
        #[input(len = 3)] origin: *const usize,
        #[input(len = 3)] region: *const usize,
        row_pitch: usize,
        slice_pitch: usize,
        #[local] ptr: *mut c_void,
        num_events_in_wait_list: cl_uint,
        #[input(len = num_events_in_wait_list, nullable)] event_wait_list: *const cl_event,
        #[out(creates, nullable)] event: *mut cl_event,
    ) -> cl_int;

    /// Copies host memory to part of an image.
    #[call(id = 0x0B09, local, manual(client), since = "1.0")]
    fn clEnqueueWriteImage(
        command_queue: cl_command_queue,
        image: cl_mem,
        blocking_write: cl_bool,
        #[input(len = 3)] origin: *const usize,
        #[input(len = 3)] region: *const usize,
        input_row_pitch: usize,
        input_slice_pitch: usize,
        #[local] ptr: *const c_void,
        num_events_in_wait_list: cl_uint,
        #[input(len = num_events_in_wait_list, nullable)] event_wait_list: *const cl_event,
        #[out(creates, nullable)] event: *mut cl_event,
    ) -> cl_int;

    /// Paints part of an image with one colour of four channels.
    #[call(id = 0x0B0A, async, since = "1.2")]
    fn clEnqueueFillImage(
        command_queue: cl_command_queue,
        image: cl_mem,
        #[input(bytes = 16)] fill_color: *const c_void,
        #[input(len = 3)] origin: *const usize,
        #[input(len = 3)] region: *const usize,
        num_events_in_wait_list: cl_uint,
        #[input(len = num_events_in_wait_list, nullable)] event_wait_list: *const cl_event,
        #[out(creates, nullable)] event: *mut cl_event,
    ) -> cl_int;

    /// Copies part of an image to another place or image.
    #[call(id = 0x0B0B, async, since = "1.0")]
    fn clEnqueueCopyImage(
        command_queue: cl_command_queue,
        src_image: cl_mem,
        dst_image: cl_mem,
        #[input(len = 3)] src_origin: *const usize,
        #[input(len = 3)] dst_origin: *const usize,
        #[input(len = 3)] region: *const usize,
        num_events_in_wait_list: cl_uint,
        #[input(len = num_events_in_wait_list, nullable)] event_wait_list: *const cl_event,
        #[out(creates, nullable)] event: *mut cl_event,
    ) -> cl_int;

    /// Copies part of an image to a buffer, without gaps.
    #[call(id = 0x0B0C, async, since = "1.0")]
    fn clEnqueueCopyImageToBuffer(
        command_queue: cl_command_queue,
        src_image: cl_mem,
        dst_buffer: cl_mem,
        #[input(len = 3)] src_origin: *const usize,
        #[input(len = 3)] region: *const usize,
        dst_offset: usize,
        num_events_in_wait_list: cl_uint,
        #[input(len = num_events_in_wait_list, nullable)] event_wait_list: *const cl_event,
        #[out(creates, nullable)] event: *mut cl_event,
    ) -> cl_int;

    /// Copies bytes of a buffer to part of an image.
    #[call(id = 0x0B0D, async, since = "1.0")]
    fn clEnqueueCopyBufferToImage(
        command_queue: cl_command_queue,
        src_buffer: cl_mem,
        dst_image: cl_mem,
        src_offset: usize,
        #[input(len = 3)] dst_origin: *const usize,
        #[input(len = 3)] region: *const usize,
        num_events_in_wait_list: cl_uint,
        #[input(len = num_events_in_wait_list, nullable)] event_wait_list: *const cl_event,
        #[out(creates, nullable)] event: *mut cl_event,
    ) -> cl_int;

    /// Makes part of a buffer accessible to the host.
    #[call(id = 0x0B0E, local, since = "1.0")]
    fn clEnqueueMapBuffer(
        command_queue: cl_command_queue,
        buffer: cl_mem,
        blocking_map: cl_bool,
        map_flags: cl_map_flags,
        offset: usize,
        size: usize,
        num_events_in_wait_list: cl_uint,
        #[input(len = num_events_in_wait_list, nullable)] event_wait_list: *const cl_event,
        #[out(creates, nullable)] event: *mut cl_event,
        #[errcode] errcode_ret: *mut cl_int,
    ) -> *mut c_void;

    /// Makes part of an image accessible to the host.
    #[call(id = 0x0B0F, local, since = "1.0")]
    fn clEnqueueMapImage(
        command_queue: cl_command_queue,
        image: cl_mem,
        blocking_map: cl_bool,
        map_flags: cl_map_flags,
        #[input(len = 3)] origin: *const usize,
        #[input(len = 3)] region: *const usize,
        #[out] image_row_pitch: *mut usize,
        #[out(nullable)] image_slice_pitch: *mut usize,
        num_events_in_wait_list: cl_uint,
        #[input(len = num_events_in_wait_list, nullable)] event_wait_list: *const cl_event,
        #[out(creates, nullable)] event: *mut cl_event,
        #[errcode] errcode_ret: *mut cl_int,
    ) -> *mut c_void;

    /// Ends a mapping; what the host wrote reaches the device.
    #[call(id = 0x0B10, local, since = "1.0")]
    fn clEnqueueUnmapMemObject(
        command_queue: cl_command_queue,
        memobj: cl_mem,
        #[local] mapped_ptr: *mut c_void,
        num_events_in_wait_list: cl_uint,
        #[input(len = num_events_in_wait_list, nullable)] event_wait_list: *const cl_event,
        #[out(creates, nullable)] event: *mut cl_event,
    ) -> cl_int;

    /// Moves memory objects to the queue's device ahead of their use.
    #[call(id = 0x0B11, async, since = "1.2")]
    fn clEnqueueMigrateMemObjects(
        command_queue: cl_command_queue,
        num_mem_objects: cl_uint,
        #[input(len = num_mem_objects)] mem_objects: *const cl_mem,
        flags: cl_mem_migration_flags,
        num_events_in_wait_list: cl_uint,
        #[input(len = num_events_in_wait_list, nullable)] event_wait_list: *const cl_event,
        #[out(creates, nullable)] event: *mut cl_event,
    ) -> cl_int;
}
