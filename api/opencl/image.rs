//! Images: creation and queries.
//!
//! The bytes behind the `host_ptr` of a new image depend on its format and shape, which the language cannot express: creation is
//! written by hand, and those bytes follow as a write to the image.

extern "C" {
    /// Creates an image of any shape.
    #[call(id = 0x0601, async, since = "1.2", manual)]
    fn clCreateImage(
        context: cl_context,
        flags: cl_mem_flags,
        #[input] image_format: *const cl_image_format,
        #[input] image_desc: *const cl_image_desc,
        #[local] host_ptr: *mut c_void,
        #[errcode] errcode_ret: *mut cl_int,
    ) -> cl_mem;

    /// Creates an image with a list of properties.
    #[call(id = 0x0602, async, since = "3.0", manual)]
    fn clCreateImageWithProperties(
        context: cl_context,
        #[input(list, nullable)] properties: *const cl_mem_properties,
        flags: cl_mem_flags,
        #[input] image_format: *const cl_image_format,
        #[input] image_desc: *const cl_image_desc,
        #[local] host_ptr: *mut c_void,
        #[errcode] errcode_ret: *mut cl_int,
    ) -> cl_mem;

    /// Creates a two-dimensional image.
    #[call(id = 0x0603, local, since = "1.0", deprecated = "1.2")]
    fn clCreateImage2D(
        context: cl_context,
        flags: cl_mem_flags,
        #[input] image_format: *const cl_image_format,
        image_width: usize,
        image_height: usize,
        image_row_pitch: usize,
        #[local] host_ptr: *mut c_void,
        #[errcode] errcode_ret: *mut cl_int,
    ) -> cl_mem;

    /// Creates a three-dimensional image.
    #[call(id = 0x0604, local, since = "1.0", deprecated = "1.2")]
    fn clCreateImage3D(
        context: cl_context,
        flags: cl_mem_flags,
        #[input] image_format: *const cl_image_format,
        image_width: usize,
        image_height: usize,
        image_depth: usize,
        image_row_pitch: usize,
        image_slice_pitch: usize,
        #[local] host_ptr: *mut c_void,
        #[errcode] errcode_ret: *mut cl_int,
    ) -> cl_mem;

    /// Lists the formats that a context offers for one kind of image.
    #[call(id = 0x0605, since = "1.0")]
    fn clGetSupportedImageFormats(
        context: cl_context,
        flags: cl_mem_flags,
        image_type: cl_mem_object_type,
        num_entries: cl_uint,
        #[out(len = num_entries, nullable, actual = num_image_formats)]
        image_formats: *mut cl_image_format,
        #[out(size_of, nullable)] num_image_formats: *mut cl_uint,
    ) -> cl_int;

    /// Describes what is particular to an image.
    #[call(id = 0x0606, local, since = "1.0")]
    fn clGetImageInfo(
        image: cl_mem,
        param_name: cl_image_info,
        param_value_size: usize,
        #[out(bytes = param_value_size, nullable, actual = param_value_size_ret)]
        param_value: *mut c_void,
        #[out(size_of, nullable)] param_value_size_ret: *mut usize,
    ) -> cl_int;
}
