//! Devices.

use super::*;

#[allow(non_snake_case, clippy::too_many_arguments)]
impl DeviceCalls for Remote {
    unsafe fn clGetDeviceIDs(
        &self,
        platform: cl_platform_id,
        device_type: cl_device_type,
        num_entries: cl_uint,
        devices: *mut cl_device_id,
        num_devices: *mut cl_uint,
    ) -> cl_int {
        self.get_device_ids(platform, device_type, num_entries, devices, num_devices)
    }

    unsafe fn clGetDeviceInfo(
        &self,
        device: cl_device_id,
        param_name: cl_device_info,
        param_value_size: usize,
        param_value: *mut c_void,
        param_value_size_ret: *mut usize,
    ) -> cl_int {
        self.get_device_info(
            device,
            param_name,
            param_value_size,
            param_value,
            param_value_size_ret,
        )
    }

    unsafe fn clCreateSubDevices(
        &self,
        in_device: cl_device_id,
        properties: *const cl_device_partition_property,
        num_devices: cl_uint,
        out_devices: *mut cl_device_id,
        num_devices_ret: *mut cl_uint,
    ) -> cl_int {
        // SAFETY: the caller's contract of the C function.
        let list = unsafe { zero_ended(properties) };
        self.create_sub_devices(in_device, &list, num_devices, out_devices, num_devices_ret)
    }

    unsafe fn clGetDeviceAndHostTimer(
        &self,
        device: cl_device_id,
        device_timestamp: *mut cl_ulong,
        host_timestamp: *mut cl_ulong,
    ) -> cl_int {
        match self.device_timers(device) {
            Ok(_) if device_timestamp.is_null() || host_timestamp.is_null() => CL_INVALID_VALUE,
            Ok((device_time, host_time)) => {
                // SAFETY: the caller's contract of the C function.
                unsafe { raw::fill(device_timestamp, 1, [device_time].into_iter()) };
                // SAFETY: as above.
                unsafe { raw::fill(host_timestamp, 1, [host_time].into_iter()) };
                CL_SUCCESS
            }
            Err(status) => status,
        }
    }

    unsafe fn clGetHostTimer(&self, device: cl_device_id, host_timestamp: *mut cl_ulong) -> cl_int {
        // The server's clock: the one that the other call reads beside the device's.
        match self.device_timers(device) {
            Ok(_) if host_timestamp.is_null() => CL_INVALID_VALUE,
            Ok((_, host_time)) => {
                // SAFETY: the caller's contract of the C function.
                unsafe { raw::fill(host_timestamp, 1, [host_time].into_iter()) };
                CL_SUCCESS
            }
            Err(status) => status,
        }
    }
}

/// A list that ends with a zero, without it.
///
/// # Safety
/// `list` is NULL or ends with a zero.
unsafe fn zero_ended(list: *const cl_device_partition_property) -> Vec<u64> {
    let mut values = Vec::new();
    while !list.is_null() {
        // SAFETY: the caller's contract: the list has not ended before this.
        let at = unsafe { list.add(values.len()) };
        // SAFETY: as above.
        match unsafe { at.read() } {
            // A partition by counts ends its counts with a zero of its own, then the list.
            0 if values.first() == Some(&(CL_DEVICE_PARTITION_BY_COUNTS as u64))
                && !values.ends_with(&[0]) =>
            {
                values.push(0)
            }
            0 => break,
            value => values.push(value as u64),
        }
    }
    values
}
