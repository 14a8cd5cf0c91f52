//! Platforms and access to extension functions: answered by the client, which is the platform.

extern "C" {
    /// Lists the platforms of this library: the one called Towline.
    #[call(id = 0x0101, local, manual(client), since = "1.0")]
    fn clGetPlatformIDs(
        num_entries: cl_uint,
        #[out(len = num_entries, nullable, actual = num_platforms)] platforms: *mut cl_platform_id,
        #[out(size_of, nullable)] num_platforms: *mut cl_uint,
    ) -> cl_int;

    /// Describes a platform.
    #[call(id = 0x0102, local, manual(client), since = "1.0")]
    fn clGetPlatformInfo(
        platform: cl_platform_id,
        param_name: cl_platform_info,
        param_value_size: usize,
        #[out(bytes = param_value_size, nullable, actual = param_value_size_ret)]
        param_value: *mut c_void,
        #[out(size_of, nullable)] param_value_size_ret: *mut usize,
    ) -> cl_int;

    /// Finds an extension function by name, whatever the platform.
    #[call(id = 0x0103, local, since = "1.0", deprecated = "1.2")]
    fn clGetExtensionFunctionAddress(#[input(cstr)] func_name: *const c_char) -> *mut c_void;

    /// Finds an extension function of one platform by name.
    #[call(id = 0x0104, local, since = "1.2")]
    fn clGetExtensionFunctionAddressForPlatform(
        platform: cl_platform_id,
        #[input(cstr)] func_name: *const c_char,
    ) -> *mut c_void;
}
