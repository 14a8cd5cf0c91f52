//! Devices, their parts and their clocks.

extern "C" {
    /// Lists the devices of a platform that are of the given kinds.
    #[call(id = 0x0201, local, manual(client), since = "1.0")]
    fn clGetDeviceIDs(
        platform: cl_platform_id,
        device_type: cl_device_type,
        num_entries: cl_uint,
        #[out(len = num_entries, nullable, actual = num_devices)] devices: *mut cl_device_id,
        #[out(size_of, nullable)] num_devices: *mut cl_uint,
    ) -> cl_int;

    /// Describes a device.
    #[call(id = 0x0202, since = "1.0", manual(client))]
    fn clGetDeviceInfo(
        device: cl_device_id,
        param_name: cl_device_info,
        param_value_size: usize,
        #[out(bytes = param_value_size, nullable, actual = param_value_size_ret)]
        param_value: *mut c_void,
        #[out(size_of, nullable)] param_value_size_ret: *mut usize,
    ) -> cl_int;

    /// Divides a device; the list of properties is not made of pairs, so it is read by hand.
    #[call(id = 0x0203, local, manual(client), since = "1.2")]
    fn clCreateSubDevices(
        in_device: cl_device_id,
        #[local] properties: *const cl_device_partition_property,
        num_devices: cl_uint,
        #[out(len = num_devices, creates, nullable, actual = num_devices_ret)]
        out_devices: *mut cl_device_id,
        #[out(size_of, nullable)] num_devices_ret: *mut cl_uint,
    ) -> cl_int;

    /// Adds a reference to a part of a device; a whole device has none.
    #[call(id = 0x0204, local, since = "1.2")]
    fn clRetainDevice(device: cl_device_id) -> cl_int;

    /// Drops a reference to a part of a device; the last one ends it.
    #[call(id = 0x0205, async, since = "1.2")]
    fn clReleaseDevice(#[destroys] device: cl_device_id) -> cl_int;

    // NULL passes to the provider: one without such clocks refuses the call for that first.
    /// Reads the clocks of device and host at one moment.
    #[call(id = 0x0206, local, manual(client), forward, since = "2.1")]
    fn clGetDeviceAndHostTimer(
        device: cl_device_id,
        #[out(nullable)] device_timestamp: *mut cl_ulong,
        #[out(nullable)] host_timestamp: *mut cl_ulong,
    ) -> cl_int;

    /// Reads the host clock that belongs to a device.
    #[call(id = 0x0207, local, manual(client), forward, since = "2.1")]
    fn clGetHostTimer(
        device: cl_device_id,
        #[out(nullable)] host_timestamp: *mut cl_ulong,
    ) -> cl_int;
}
