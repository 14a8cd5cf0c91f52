//! Platforms.

use super::*;

#[allow(non_snake_case, clippy::too_many_arguments)]
impl PlatformCalls for Remote {
    unsafe fn clGetPlatformIDs(
        &self,
        num_entries: cl_uint,
        platforms: *mut cl_platform_id,
        num_platforms: *mut cl_uint,
    ) -> cl_int {
        self.get_platform_ids(num_entries, platforms, num_platforms)
    }

    unsafe fn clGetPlatformInfo(
        &self,
        platform: cl_platform_id,
        param_name: cl_platform_info,
        param_value_size: usize,
        param_value: *mut c_void,
        param_value_size_ret: *mut usize,
    ) -> cl_int {
        self.get_platform_info(
            platform,
            param_name,
            param_value_size,
            param_value,
            param_value_size_ret,
        )
    }
}
