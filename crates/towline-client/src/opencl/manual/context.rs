//! Contexts.

use super::*;

#[allow(non_snake_case, clippy::too_many_arguments)]
impl ContextCalls for Remote {
    unsafe fn clCreateContext(
        &self,
        properties: *const cl_context_properties,
        num_devices: cl_uint,
        devices: *const cl_device_id,
        pfn_notify: Option<unsafe extern "C" fn(*const c_char, *const c_void, usize, *mut c_void)>,
        user_data: *mut c_void,
        errcode_ret: *mut cl_int,
    ) -> cl_context {
        let _ = (properties, user_data);
        // SAFETY: the caller's contract of the C function.
        let devices = unsafe { raw::slice(devices, num_devices as usize) }.unwrap_or_default();
        let devices: Vec<wire::DeviceHandle> = devices
            .iter()
            .map(|device| wire::DeviceHandle::from_raw(*device))
            .collect();
        let created = wire::ContextHandle(self.mint(wire::ContextHandle::TAG));
        // Platform properties name objects of this process; the worker's platform follows from the devices.
        let request = wire::CreateContext {
            properties: None,
            num_devices: devices.len() as u32,
            devices: wire::List::Values(&devices),
            notify: pfn_notify.is_some(),
            created,
        };
        let posted = self.post(&request);
        if posted.is_ok() {
            self.made(created.0, &request);
        }
        // SAFETY: the caller's contract of the C function.
        unsafe { self::created(posted.map(|()| created.to_raw()), errcode_ret) }
    }
}
