//! The platform and its devices.

use super::super::super::contract::*;
use super::super::super::*;
use super::super::info;
use super::super::registry::Context;
use super::give_list;

#[allow(non_snake_case, clippy::too_many_arguments)]
impl NullOpenCl {
    pub(super) unsafe fn clGetPlatformIDs(
        &self,
        num_entries: cl_uint,
        platforms: *mut cl_platform_id,
        num_platforms: *mut cl_uint,
    ) -> cl_int {
        if platforms.is_null() != (num_entries == 0)
            || (platforms.is_null() && num_platforms.is_null())
        {
            return CL_INVALID_VALUE;
        }
        // SAFETY: the caller's contract.
        unsafe {
            give_list(
                &[self.platform],
                num_entries as usize,
                platforms,
                num_platforms,
            )
        };
        CL_SUCCESS
    }

    pub(super) unsafe fn clGetPlatformInfo(
        &self,
        platform: cl_platform_id,
        param_name: cl_platform_info,
        param_value_size: usize,
        param_value: *mut c_void,
        param_value_size_ret: *mut usize,
    ) -> cl_int {
        let asked = Asked::new(param_value_size, param_value, param_value_size_ret);
        let answer = self
            .checked_platform(platform)
            .and_then(|()| info::platform(param_name));
        // SAFETY: the caller's contract.
        status(answer.and_then(|answer| unsafe { asked.answer(&answer) }))
    }

    pub(super) unsafe fn clGetDeviceIDs(
        &self,
        platform: cl_platform_id,
        device_type: cl_device_type,
        num_entries: cl_uint,
        devices: *mut cl_device_id,
        num_devices: *mut cl_uint,
    ) -> cl_int {
        status((|| {
            self.checked_platform(platform)?;
            let asks = !devices.is_null() || !num_devices.is_null();
            require(
                devices.is_null() == (num_entries == 0) && asks,
                CL_INVALID_VALUE,
            )?;
            let found = self.devices_of(device_type)?;
            // SAFETY: the caller's contract.
            unsafe { give_list(found, num_entries as usize, devices, num_devices) };
            Ok(())
        })())
    }

    pub(super) unsafe fn clGetDeviceInfo(
        &self,
        device: cl_device_id,
        param_name: cl_device_info,
        param_value_size: usize,
        param_value: *mut c_void,
        param_value_size_ret: *mut usize,
    ) -> cl_int {
        let asked = Asked::new(param_value_size, param_value, param_value_size_ret);
        let answer = self
            .device(device)
            .and_then(|index| info::device(param_name, index, self.platform, self.unified));
        // SAFETY: the caller's contract.
        status(answer.and_then(|answer| unsafe { asked.answer(&answer) }))
    }

    pub(super) unsafe fn clRetainDevice(&self, device: cl_device_id) -> cl_int {
        status(self.device(device).map(drop))
    }

    pub(super) unsafe fn clReleaseDevice(&self, device: cl_device_id) -> cl_int {
        status(self.device(device).map(drop))
    }

    pub(super) unsafe fn clGetDeviceAndHostTimer(
        &self,
        device: cl_device_id,
        device_timestamp: *mut cl_ulong,
        host_timestamp: *mut cl_ulong,
    ) -> cl_int {
        status((|| {
            self.device(device)?;
            let both = !device_timestamp.is_null() && !host_timestamp.is_null();
            require(both, CL_INVALID_VALUE)?;
            let now = self.shared.scheduler.now();
            // SAFETY: the caller's contract.
            unsafe { put(device_timestamp, now) };
            // SAFETY: as above.
            unsafe { put(host_timestamp, now) };
            Ok(())
        })())
    }

    pub(super) unsafe fn clGetHostTimer(
        &self,
        device: cl_device_id,
        host_timestamp: *mut cl_ulong,
    ) -> cl_int {
        status((|| {
            self.device(device)?;
            require(!host_timestamp.is_null(), CL_INVALID_VALUE)?;
            // SAFETY: the caller's contract.
            unsafe { put(host_timestamp, self.shared.scheduler.now()) };
            Ok(())
        })())
    }

    pub(super) unsafe fn clUnloadPlatformCompiler(&self, platform: cl_platform_id) -> cl_int {
        require(!platform.is_null(), CL_INVALID_PLATFORM)
            .and_then(|()| self.checked_platform(platform))
            .err()
            .unwrap_or(CL_SUCCESS)
    }

    pub(super) unsafe fn clGetSupportedImageFormats(
        &self,
        context: cl_context,
        _flags: cl_mem_flags,
        _image_type: cl_mem_object_type,
        num_entries: cl_uint,
        image_formats: *mut cl_image_format,
        num_image_formats: *mut cl_uint,
    ) -> cl_int {
        status(self.get::<Context, _>(context).and_then(|_| {
            let asks_for_none = num_entries == 0 && !image_formats.is_null();
            require(!asks_for_none, CL_INVALID_VALUE)?;
            // SAFETY: the caller's contract.
            unsafe { put(num_image_formats, 0) };
            Ok(())
        }))
    }
}
