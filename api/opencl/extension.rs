//! Functions of extensions that are no part of the core in any version.
//!
//! Those marked `unsupported` need a window system, an operating system handle or another API on the client's own machine, or are
//! not carried yet. Their extensions are not advertised; the functions stand here because the loader's dispatch table has a place
//! for them or because programs ask for them by name.

extern "C" {
    /// Lists the platforms of this library for the loader.
    #[call(id = 0x0D01, local, extension = "cl_khr_icd")]
    fn clIcdGetPlatformIDsKHR(
        num_entries: cl_uint,
        #[out(len = num_entries, nullable, actual = num_platforms)] platforms: *mut cl_platform_id,
        #[out(size_of, nullable)] num_platforms: *mut cl_uint,
    ) -> cl_int;

    /// Stops all work of a context and makes it unusable.
    #[call(id = 0x0D02, async, extension = "cl_khr_terminate_context")]
    fn clTerminateContextKHR(context: cl_context) -> cl_int;

    /// Divides a device, as before OpenCL 1.2.
    #[call(id = 0x0D03, unsupported, extension = "cl_ext_device_fission")]
    fn clCreateSubDevicesEXT(
        in_device: cl_device_id,
        #[local] properties: *const cl_device_partition_property_ext,
        num_entries: cl_uint,
        #[local] out_devices: *mut cl_device_id,
        #[local] num_devices: *mut cl_uint,
    ) -> cl_int;

    /// Adds a reference to a part made by `clCreateSubDevicesEXT`.
    #[call(id = 0x0D04, unsupported, extension = "cl_ext_device_fission")]
    fn clRetainDeviceEXT(device: cl_device_id) -> cl_int;

    /// Drops a reference to a part made by `clCreateSubDevicesEXT`.
    #[call(id = 0x0D05, unsupported, extension = "cl_ext_device_fission")]
    fn clReleaseDeviceEXT(device: cl_device_id) -> cl_int;

    /// Lists the devices that can share with an OpenGL context.
    #[call(id = 0x0D06, unsupported, extension = "cl_khr_gl_sharing")]
    fn clGetGLContextInfoKHR(
        #[local] properties: *const cl_context_properties,
        param_name: cl_gl_context_info,
        param_value_size: usize,
        #[local] param_value: *mut c_void,
        #[local] param_value_size_ret: *mut usize,
    ) -> cl_int;

    /// Creates a buffer over an OpenGL buffer.
    #[call(id = 0x0D07, unsupported, extension = "cl_khr_gl_sharing")]
    fn clCreateFromGLBuffer(
        context: cl_context,
        flags: cl_mem_flags,
        bufobj: cl_GLuint,
        #[errcode] errcode_ret: *mut cl_int,
    ) -> cl_mem;

    /// Creates an image over an OpenGL texture.
    #[call(
        id = 0x0D08,
        unsupported,
        extension = "cl_khr_gl_sharing",
        since = "1.2"
    )]
    fn clCreateFromGLTexture(
        context: cl_context,
        flags: cl_mem_flags,
        target: cl_GLenum,
        miplevel: cl_GLint,
        texture: cl_GLuint,
        #[errcode] errcode_ret: *mut cl_int,
    ) -> cl_mem;

    /// Creates an image over a two-dimensional OpenGL texture.
    #[call(
        id = 0x0D09,
        unsupported,
        extension = "cl_khr_gl_sharing",
        deprecated = "1.2"
    )]
    fn clCreateFromGLTexture2D(
        context: cl_context,
        flags: cl_mem_flags,
        target: cl_GLenum,
        miplevel: cl_GLint,
        texture: cl_GLuint,
        #[errcode] errcode_ret: *mut cl_int,
    ) -> cl_mem;

    /// Creates an image over a three-dimensional OpenGL texture.
    #[call(
        id = 0x0D0A,
        unsupported,
        extension = "cl_khr_gl_sharing",
        deprecated = "1.2"
    )]
    fn clCreateFromGLTexture3D(
        context: cl_context,
        flags: cl_mem_flags,
        target: cl_GLenum,
        miplevel: cl_GLint,
        texture: cl_GLuint,
        #[errcode] errcode_ret: *mut cl_int,
    ) -> cl_mem;

    /// Creates an image over an OpenGL renderbuffer.
    #[call(id = 0x0D0B, unsupported, extension = "cl_khr_gl_sharing")]
    fn clCreateFromGLRenderbuffer(
        context: cl_context,
        flags: cl_mem_flags,
        renderbuffer: cl_GLuint,
        #[errcode] errcode_ret: *mut cl_int,
    ) -> cl_mem;

    /// Names the OpenGL object behind a memory object.
    #[call(id = 0x0D0C, unsupported, extension = "cl_khr_gl_sharing")]
    fn clGetGLObjectInfo(
        memobj: cl_mem,
        #[local] gl_object_type: *mut cl_gl_object_type,
        #[local] gl_object_name: *mut cl_GLuint,
    ) -> cl_int;

    /// Describes the OpenGL texture behind an image.
    #[call(id = 0x0D0D, unsupported, extension = "cl_khr_gl_sharing")]
    fn clGetGLTextureInfo(
        memobj: cl_mem,
        param_name: cl_gl_texture_info,
        param_value_size: usize,
        #[local] param_value: *mut c_void,
        #[local] param_value_size_ret: *mut usize,
    ) -> cl_int;

    /// Takes memory objects over from OpenGL.
    #[call(id = 0x0D0E, unsupported, extension = "cl_khr_gl_sharing")]
    fn clEnqueueAcquireGLObjects(
        command_queue: cl_command_queue,
        num_objects: cl_uint,
        #[local] mem_objects: *const cl_mem,
        num_events_in_wait_list: cl_uint,
        #[local] event_wait_list: *const cl_event,
        #[local] event: *mut cl_event,
    ) -> cl_int;

    /// Hands memory objects back to OpenGL.
    #[call(id = 0x0D0F, unsupported, extension = "cl_khr_gl_sharing")]
    fn clEnqueueReleaseGLObjects(
        command_queue: cl_command_queue,
        num_objects: cl_uint,
        #[local] mem_objects: *const cl_mem,
        num_events_in_wait_list: cl_uint,
        #[local] event_wait_list: *const cl_event,
        #[local] event: *mut cl_event,
    ) -> cl_int;

    /// Creates an event from an OpenGL fence.
    #[call(id = 0x0D10, unsupported, extension = "cl_khr_gl_event")]
    fn clCreateEventFromGLsyncKHR(
        context: cl_context,
        #[local] sync: *mut c_void,
        #[errcode] errcode_ret: *mut cl_int,
    ) -> cl_event;

    /// Creates an image over an EGL image.
    #[call(id = 0x0D11, unsupported, extension = "cl_khr_egl_image")]
    fn clCreateFromEGLImageKHR(
        context: cl_context,
        #[local] egldisplay: *mut c_void,
        #[local] eglimage: *mut c_void,
        flags: cl_mem_flags,
        #[local] properties: *const cl_egl_image_properties_khr,
        #[errcode] errcode_ret: *mut cl_int,
    ) -> cl_mem;

    /// Takes memory objects over from EGL.
    #[call(id = 0x0D12, unsupported, extension = "cl_khr_egl_image")]
    fn clEnqueueAcquireEGLObjectsKHR(
        command_queue: cl_command_queue,
        num_objects: cl_uint,
        #[local] mem_objects: *const cl_mem,
        num_events_in_wait_list: cl_uint,
        #[local] event_wait_list: *const cl_event,
        #[local] event: *mut cl_event,
    ) -> cl_int;

    /// Hands memory objects back to EGL.
    #[call(id = 0x0D13, unsupported, extension = "cl_khr_egl_image")]
    fn clEnqueueReleaseEGLObjectsKHR(
        command_queue: cl_command_queue,
        num_objects: cl_uint,
        #[local] mem_objects: *const cl_mem,
        num_events_in_wait_list: cl_uint,
        #[local] event_wait_list: *const cl_event,
        #[local] event: *mut cl_event,
    ) -> cl_int;

    /// Creates an event from an EGL fence.
    #[call(id = 0x0D14, unsupported, extension = "cl_khr_egl_event")]
    fn clCreateEventFromEGLSyncKHR(
        context: cl_context,
        #[local] sync: *mut c_void,
        #[local] display: *mut c_void,
        #[errcode] errcode_ret: *mut cl_int,
    ) -> cl_event;

    /// Lists the devices that can share with a Direct3D 10 device.
    #[call(id = 0x0D15, unsupported, extension = "cl_khr_d3d10_sharing")]
    fn clGetDeviceIDsFromD3D10KHR(
        platform: cl_platform_id,
        d3d_device_source: cl_d3d10_device_source_khr,
        #[local] d3d_object: *mut c_void,
        d3d_device_set: cl_d3d10_device_set_khr,
        num_entries: cl_uint,
        #[local] devices: *mut cl_device_id,
        #[local] num_devices: *mut cl_uint,
    ) -> cl_int;

    /// Creates a buffer over a Direct3D 10 buffer.
    #[call(id = 0x0D16, unsupported, extension = "cl_khr_d3d10_sharing")]
    fn clCreateFromD3D10BufferKHR(
        context: cl_context,
        flags: cl_mem_flags,
        #[local] resource: *mut c_void,
        #[errcode] errcode_ret: *mut cl_int,
    ) -> cl_mem;

    /// Creates an image over a two-dimensional Direct3D 10 texture.
    #[call(id = 0x0D17, unsupported, extension = "cl_khr_d3d10_sharing")]
    fn clCreateFromD3D10Texture2DKHR(
        context: cl_context,
        flags: cl_mem_flags,
        #[local] resource: *mut c_void,
        subresource: cl_uint,
        #[errcode] errcode_ret: *mut cl_int,
    ) -> cl_mem;

    /// Creates an image over a three-dimensional Direct3D 10 texture.
    #[call(id = 0x0D18, unsupported, extension = "cl_khr_d3d10_sharing")]
    fn clCreateFromD3D10Texture3DKHR(
        context: cl_context,
        flags: cl_mem_flags,
        #[local] resource: *mut c_void,
        subresource: cl_uint,
        #[errcode] errcode_ret: *mut cl_int,
    ) -> cl_mem;

    /// Takes memory objects over from Direct3D 10.
    #[call(id = 0x0D19, unsupported, extension = "cl_khr_d3d10_sharing")]
    fn clEnqueueAcquireD3D10ObjectsKHR(
        command_queue: cl_command_queue,
        num_objects: cl_uint,
        #[local] mem_objects: *const cl_mem,
        num_events_in_wait_list: cl_uint,
        #[local] event_wait_list: *const cl_event,
        #[local] event: *mut cl_event,
    ) -> cl_int;

    /// Hands memory objects back to Direct3D 10.
    #[call(id = 0x0D1A, unsupported, extension = "cl_khr_d3d10_sharing")]
    fn clEnqueueReleaseD3D10ObjectsKHR(
        command_queue: cl_command_queue,
        num_objects: cl_uint,
        #[local] mem_objects: *const cl_mem,
        num_events_in_wait_list: cl_uint,
        #[local] event_wait_list: *const cl_event,
        #[local] event: *mut cl_event,
    ) -> cl_int;

    /// Lists the devices that can share with a Direct3D 11 device.
    #[call(id = 0x0D1B, unsupported, extension = "cl_khr_d3d11_sharing")]
    fn clGetDeviceIDsFromD3D11KHR(
        platform: cl_platform_id,
        d3d_device_source: cl_d3d11_device_source_khr,
        #[local] d3d_object: *mut c_void,
        d3d_device_set: cl_d3d11_device_set_khr,
        num_entries: cl_uint,
        #[local] devices: *mut cl_device_id,
        #[local] num_devices: *mut cl_uint,
    ) -> cl_int;

    /// Creates a buffer over a Direct3D 11 buffer.
    #[call(id = 0x0D1C, unsupported, extension = "cl_khr_d3d11_sharing")]
    fn clCreateFromD3D11BufferKHR(
        context: cl_context,
        flags: cl_mem_flags,
        #[local] resource: *mut c_void,
        #[errcode] errcode_ret: *mut cl_int,
    ) -> cl_mem;

    /// Creates an image over a two-dimensional Direct3D 11 texture.
    #[call(id = 0x0D1D, unsupported, extension = "cl_khr_d3d11_sharing")]
    fn clCreateFromD3D11Texture2DKHR(
        context: cl_context,
        flags: cl_mem_flags,
        #[local] resource: *mut c_void,
        subresource: cl_uint,
        #[errcode] errcode_ret: *mut cl_int,
    ) -> cl_mem;

    /// Creates an image over a three-dimensional Direct3D 11 texture.
    #[call(id = 0x0D1E, unsupported, extension = "cl_khr_d3d11_sharing")]
    fn clCreateFromD3D11Texture3DKHR(
        context: cl_context,
        flags: cl_mem_flags,
        #[local] resource: *mut c_void,
        subresource: cl_uint,
        #[errcode] errcode_ret: *mut cl_int,
    ) -> cl_mem;

    /// Takes memory objects over from Direct3D 11.
    #[call(id = 0x0D1F, unsupported, extension = "cl_khr_d3d11_sharing")]
    fn clEnqueueAcquireD3D11ObjectsKHR(
        command_queue: cl_command_queue,
        num_objects: cl_uint,
        #[local] mem_objects: *const cl_mem,
        num_events_in_wait_list: cl_uint,
        #[local] event_wait_list: *const cl_event,
        #[local] event: *mut cl_event,
    ) -> cl_int;

    /// Hands memory objects back to Direct3D 11.
    #[call(id = 0x0D20, unsupported, extension = "cl_khr_d3d11_sharing")]
    fn clEnqueueReleaseD3D11ObjectsKHR(
        command_queue: cl_command_queue,
        num_objects: cl_uint,
        #[local] mem_objects: *const cl_mem,
        num_events_in_wait_list: cl_uint,
        #[local] event_wait_list: *const cl_event,
        #[local] event: *mut cl_event,
    ) -> cl_int;

    /// Lists the devices that can share with Direct3D 9 adapters.
    #[call(id = 0x0D21, unsupported, extension = "cl_khr_dx9_media_sharing")]
    fn clGetDeviceIDsFromDX9MediaAdapterKHR(
        platform: cl_platform_id,
        num_media_adapters: cl_uint,
        #[local] media_adapter_type: *mut cl_dx9_media_adapter_type_khr,
        #[local] media_adapters: *mut c_void,
        media_adapter_set: cl_dx9_media_adapter_set_khr,
        num_entries: cl_uint,
        #[local] devices: *mut cl_device_id,
        #[local] num_devices: *mut cl_uint,
    ) -> cl_int;

    /// Creates an image over a Direct3D 9 media surface.
    #[call(id = 0x0D22, unsupported, extension = "cl_khr_dx9_media_sharing")]
    fn clCreateFromDX9MediaSurfaceKHR(
        context: cl_context,
        flags: cl_mem_flags,
        adapter_type: cl_dx9_media_adapter_type_khr,
        #[local] surface_info: *mut c_void,
        plane: cl_uint,
        #[errcode] errcode_ret: *mut cl_int,
    ) -> cl_mem;

    /// Takes media surfaces over from Direct3D 9.
    #[call(id = 0x0D23, unsupported, extension = "cl_khr_dx9_media_sharing")]
    fn clEnqueueAcquireDX9MediaSurfacesKHR(
        command_queue: cl_command_queue,
        num_objects: cl_uint,
        #[local] mem_objects: *const cl_mem,
        num_events_in_wait_list: cl_uint,
        #[local] event_wait_list: *const cl_event,
        #[local] event: *mut cl_event,
    ) -> cl_int;

    /// Hands media surfaces back to Direct3D 9.
    #[call(id = 0x0D24, unsupported, extension = "cl_khr_dx9_media_sharing")]
    fn clEnqueueReleaseDX9MediaSurfacesKHR(
        command_queue: cl_command_queue,
        num_objects: cl_uint,
        #[local] mem_objects: *const cl_mem,
        num_events_in_wait_list: cl_uint,
        #[local] event_wait_list: *const cl_event,
        #[local] event: *mut cl_event,
    ) -> cl_int;

    /// Takes memory objects over from another API.
    #[call(id = 0x0D25, unsupported, extension = "cl_khr_external_memory")]
    fn clEnqueueAcquireExternalMemObjectsKHR(
        command_queue: cl_command_queue,
        num_mem_objects: cl_uint,
        #[local] mem_objects: *const cl_mem,
        num_events_in_wait_list: cl_uint,
        #[local] event_wait_list: *const cl_event,
        #[local] event: *mut cl_event,
    ) -> cl_int;

    /// Hands memory objects back to another API.
    #[call(id = 0x0D26, unsupported, extension = "cl_khr_external_memory")]
    fn clEnqueueReleaseExternalMemObjectsKHR(
        command_queue: cl_command_queue,
        num_mem_objects: cl_uint,
        #[local] mem_objects: *const cl_mem,
        num_events_in_wait_list: cl_uint,
        #[local] event_wait_list: *const cl_event,
        #[local] event: *mut cl_event,
    ) -> cl_int;

    /// Creates a semaphore.
    #[call(id = 0x0D27, unsupported, extension = "cl_khr_semaphore")]
    fn clCreateSemaphoreWithPropertiesKHR(
        context: cl_context,
        #[local] sema_props: *const cl_semaphore_properties_khr,
        #[errcode] errcode_ret: *mut cl_int,
    ) -> cl_semaphore_khr;

    /// Adds a reference to a semaphore.
    #[call(id = 0x0D28, unsupported, extension = "cl_khr_semaphore")]
    fn clRetainSemaphoreKHR(sema_object: cl_semaphore_khr) -> cl_int;

    /// Drops a reference to a semaphore.
    #[call(id = 0x0D29, unsupported, extension = "cl_khr_semaphore")]
    fn clReleaseSemaphoreKHR(sema_object: cl_semaphore_khr) -> cl_int;

    /// Describes a semaphore.
    #[call(id = 0x0D2A, unsupported, extension = "cl_khr_semaphore")]
    fn clGetSemaphoreInfoKHR(
        sema_object: cl_semaphore_khr,
        param_name: cl_semaphore_info_khr,
        param_value_size: usize,
        #[local] param_value: *mut c_void,
        #[local] param_value_size_ret: *mut usize,
    ) -> cl_int;

    /// Waits for semaphores in queue order.
    #[call(id = 0x0D2B, unsupported, extension = "cl_khr_semaphore")]
    fn clEnqueueWaitSemaphoresKHR(
        command_queue: cl_command_queue,
        num_sema_objects: cl_uint,
        #[local] sema_objects: *const cl_semaphore_khr,
        #[local] sema_payload_list: *const cl_semaphore_payload_khr,
        num_events_in_wait_list: cl_uint,
        #[local] event_wait_list: *const cl_event,
        #[local] event: *mut cl_event,
    ) -> cl_int;

    /// Signals semaphores in queue order.
    #[call(id = 0x0D2C, unsupported, extension = "cl_khr_semaphore")]
    fn clEnqueueSignalSemaphoresKHR(
        command_queue: cl_command_queue,
        num_sema_objects: cl_uint,
        #[local] sema_objects: *const cl_semaphore_khr,
        #[local] sema_payload_list: *const cl_semaphore_payload_khr,
        num_events_in_wait_list: cl_uint,
        #[local] event_wait_list: *const cl_event,
        #[local] event: *mut cl_event,
    ) -> cl_int;

    /// Exports a semaphore as a handle of the operating system.
    #[call(id = 0x0D2D, unsupported, extension = "cl_khr_external_semaphore")]
    fn clGetSemaphoreHandleForTypeKHR(
        sema_object: cl_semaphore_khr,
        device: cl_device_id,
        handle_type: cl_external_semaphore_handle_type_khr,
        handle_size: usize,
        #[local] handle_ptr: *mut c_void,
        #[local] handle_size_ret: *mut usize,
    ) -> cl_int;

    /// Replaces the sync descriptor behind a semaphore.
    #[call(
        id = 0x0D2E,
        unsupported,
        extension = "cl_khr_external_semaphore_sync_fd"
    )]
    fn clReImportSemaphoreSyncFdKHR(
        sema_object: cl_semaphore_khr,
        #[local] reimport_props: *mut cl_semaphore_reimport_properties_khr,
        fd: cl_int,
    ) -> cl_int;

    /// Creates an empty command buffer for a list of queues.
    #[call(id = 0x0D2F, unsupported, extension = "cl_khr_command_buffer")]
    fn clCreateCommandBufferKHR(
        num_queues: cl_uint,
        #[local] queues: *const cl_command_queue,
        #[local] properties: *const cl_command_buffer_properties_khr,
        #[errcode] errcode_ret: *mut cl_int,
    ) -> cl_command_buffer_khr;

    /// Ends recording, which makes a command buffer ready to be enqueued.
    #[call(id = 0x0D30, unsupported, extension = "cl_khr_command_buffer")]
    fn clFinalizeCommandBufferKHR(command_buffer: cl_command_buffer_khr) -> cl_int;

    /// Adds a reference to a command buffer.
    #[call(id = 0x0D31, unsupported, extension = "cl_khr_command_buffer")]
    fn clRetainCommandBufferKHR(command_buffer: cl_command_buffer_khr) -> cl_int;

    /// Drops a reference to a command buffer.
    #[call(id = 0x0D32, unsupported, extension = "cl_khr_command_buffer")]
    fn clReleaseCommandBufferKHR(command_buffer: cl_command_buffer_khr) -> cl_int;

    /// Describes a command buffer.
    #[call(id = 0x0D33, unsupported, extension = "cl_khr_command_buffer")]
    fn clGetCommandBufferInfoKHR(
        command_buffer: cl_command_buffer_khr,
        param_name: cl_command_buffer_info_khr,
        param_value_size: usize,
        #[local] param_value: *mut c_void,
        #[local] param_value_size_ret: *mut usize,
    ) -> cl_int;

    /// Enqueues all commands of a command buffer.
    #[call(id = 0x0D34, unsupported, extension = "cl_khr_command_buffer")]
    fn clEnqueueCommandBufferKHR(
        num_queues: cl_uint,
        #[local] queues: *mut cl_command_queue,
        command_buffer: cl_command_buffer_khr,
        num_events_in_wait_list: cl_uint,
        #[local] event_wait_list: *const cl_event,
        #[local] event: *mut cl_event,
    ) -> cl_int;

    /// Records a barrier.
    #[call(id = 0x0D35, unsupported, extension = "cl_khr_command_buffer")]
    fn clCommandBarrierWithWaitListKHR(
        command_buffer: cl_command_buffer_khr,
        command_queue: cl_command_queue,
        #[local] properties: *const cl_command_properties_khr,
        num_sync_points_in_wait_list: cl_uint,
        #[local] sync_point_wait_list: *const cl_sync_point_khr,
        #[local] sync_point: *mut cl_sync_point_khr,
        #[local] mutable_handle: *mut cl_mutable_command_khr,
    ) -> cl_int;

    /// Records a copy between buffers.
    #[call(id = 0x0D36, unsupported, extension = "cl_khr_command_buffer")]
    fn clCommandCopyBufferKHR(
        command_buffer: cl_command_buffer_khr,
        command_queue: cl_command_queue,
        #[local] properties: *const cl_command_properties_khr,
        src_buffer: cl_mem,
        dst_buffer: cl_mem,
        src_offset: usize,
        dst_offset: usize,
        size: usize,
        num_sync_points_in_wait_list: cl_uint,
        #[local] sync_point_wait_list: *const cl_sync_point_khr,
        #[local] sync_point: *mut cl_sync_point_khr,
        #[local] mutable_handle: *mut cl_mutable_command_khr,
    ) -> cl_int;

    /// Records a copy of a box between buffers.
    #[call(id = 0x0D37, unsupported, extension = "cl_khr_command_buffer")]
    fn clCommandCopyBufferRectKHR(
        command_buffer: cl_command_buffer_khr,
        command_queue: cl_command_queue,
        #[local] properties: *const cl_command_properties_khr,
        src_buffer: cl_mem,
        dst_buffer: cl_mem,
        #[local] src_origin: *const usize,
        #[local] dst_origin: *const usize,
        #[local] region: *const usize,
        src_row_pitch: usize,
        src_slice_pitch: usize,
        dst_row_pitch: usize,
        dst_slice_pitch: usize,
        num_sync_points_in_wait_list: cl_uint,
        #[local] sync_point_wait_list: *const cl_sync_point_khr,
        #[local] sync_point: *mut cl_sync_point_khr,
        #[local] mutable_handle: *mut cl_mutable_command_khr,
    ) -> cl_int;

    /// Records a copy from a buffer to an image.
    #[call(id = 0x0D38, unsupported, extension = "cl_khr_command_buffer")]
    fn clCommandCopyBufferToImageKHR(
        command_buffer: cl_command_buffer_khr,
        command_queue: cl_command_queue,
        #[local] properties: *const cl_command_properties_khr,
        src_buffer: cl_mem,
        dst_image: cl_mem,
        src_offset: usize,
        #[local] dst_origin: *const usize,
        #[local] region: *const usize,
        num_sync_points_in_wait_list: cl_uint,
        #[local] sync_point_wait_list: *const cl_sync_point_khr,
        #[local] sync_point: *mut cl_sync_point_khr,
        #[local] mutable_handle: *mut cl_mutable_command_khr,
    ) -> cl_int;

    /// Records a copy between images.
    #[call(id = 0x0D39, unsupported, extension = "cl_khr_command_buffer")]
    fn clCommandCopyImageKHR(
        command_buffer: cl_command_buffer_khr,
        command_queue: cl_command_queue,
        #[local] properties: *const cl_command_properties_khr,
        src_image: cl_mem,
        dst_image: cl_mem,
        #[local] src_origin: *const usize,
        #[local] dst_origin: *const usize,
        #[local] region: *const usize,
        num_sync_points_in_wait_list: cl_uint,
        #[local] sync_point_wait_list: *const cl_sync_point_khr,
        #[local] sync_point: *mut cl_sync_point_khr,
        #[local] mutable_handle: *mut cl_mutable_command_khr,
    ) -> cl_int;

    /// Records a copy from an image to a buffer.
    #[call(id = 0x0D3A, unsupported, extension = "cl_khr_command_buffer")]
    fn clCommandCopyImageToBufferKHR(
        command_buffer: cl_command_buffer_khr,
        command_queue: cl_command_queue,
        #[local] properties: *const cl_command_properties_khr,
        src_image: cl_mem,
        dst_buffer: cl_mem,
        #[local] src_origin: *const usize,
        #[local] region: *const usize,
        dst_offset: usize,
        num_sync_points_in_wait_list: cl_uint,
        #[local] sync_point_wait_list: *const cl_sync_point_khr,
        #[local] sync_point: *mut cl_sync_point_khr,
        #[local] mutable_handle: *mut cl_mutable_command_khr,
    ) -> cl_int;

    /// Records the filling of a buffer.
    #[call(id = 0x0D3B, unsupported, extension = "cl_khr_command_buffer")]
    fn clCommandFillBufferKHR(
        command_buffer: cl_command_buffer_khr,
        command_queue: cl_command_queue,
        #[local] properties: *const cl_command_properties_khr,
        buffer: cl_mem,
        #[local] pattern: *const c_void,
        pattern_size: usize,
        offset: usize,
        size: usize,
        num_sync_points_in_wait_list: cl_uint,
        #[local] sync_point_wait_list: *const cl_sync_point_khr,
        #[local] sync_point: *mut cl_sync_point_khr,
        #[local] mutable_handle: *mut cl_mutable_command_khr,
    ) -> cl_int;

    /// Records the filling of an image.
    #[call(id = 0x0D3C, unsupported, extension = "cl_khr_command_buffer")]
    fn clCommandFillImageKHR(
        command_buffer: cl_command_buffer_khr,
        command_queue: cl_command_queue,
        #[local] properties: *const cl_command_properties_khr,
        image: cl_mem,
        #[local] fill_color: *const c_void,
        #[local] origin: *const usize,
        #[local] region: *const usize,
        num_sync_points_in_wait_list: cl_uint,
        #[local] sync_point_wait_list: *const cl_sync_point_khr,
        #[local] sync_point: *mut cl_sync_point_khr,
        #[local] mutable_handle: *mut cl_mutable_command_khr,
    ) -> cl_int;

    /// Records the launch of a kernel.
    #[call(id = 0x0D3D, unsupported, extension = "cl_khr_command_buffer")]
    fn clCommandNDRangeKernelKHR(
        command_buffer: cl_command_buffer_khr,
        command_queue: cl_command_queue,
        #[local] properties: *const cl_command_properties_khr,
        kernel: cl_kernel,
        work_dim: cl_uint,
        #[local] global_work_offset: *const usize,
        #[local] global_work_size: *const usize,
        #[local] local_work_size: *const usize,
        num_sync_points_in_wait_list: cl_uint,
        #[local] sync_point_wait_list: *const cl_sync_point_khr,
        #[local] sync_point: *mut cl_sync_point_khr,
        #[local] mutable_handle: *mut cl_mutable_command_khr,
    ) -> cl_int;

    /// Records a copy of shared virtual memory.
    #[call(id = 0x0D3E, unsupported, extension = "cl_khr_command_buffer")]
    fn clCommandSVMMemcpyKHR(
        command_buffer: cl_command_buffer_khr,
        command_queue: cl_command_queue,
        #[local] properties: *const cl_command_properties_khr,
        #[local] dst_ptr: *mut c_void,
        #[local] src_ptr: *const c_void,
        size: usize,
        num_sync_points_in_wait_list: cl_uint,
        #[local] sync_point_wait_list: *const cl_sync_point_khr,
        #[local] sync_point: *mut cl_sync_point_khr,
        #[local] mutable_handle: *mut cl_mutable_command_khr,
    ) -> cl_int;

    /// Records the filling of shared virtual memory.
    #[call(id = 0x0D3F, unsupported, extension = "cl_khr_command_buffer")]
    fn clCommandSVMMemFillKHR(
        command_buffer: cl_command_buffer_khr,
        command_queue: cl_command_queue,
        #[local] properties: *const cl_command_properties_khr,
        #[local] svm_ptr: *mut c_void,
        #[local] pattern: *const c_void,
        pattern_size: usize,
        size: usize,
        num_sync_points_in_wait_list: cl_uint,
        #[local] sync_point_wait_list: *const cl_sync_point_khr,
        #[local] sync_point: *mut cl_sync_point_khr,
        #[local] mutable_handle: *mut cl_mutable_command_khr,
    ) -> cl_int;
}
