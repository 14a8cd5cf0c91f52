//! Contexts.

use std::ffi::CString;

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
        let _ = properties;
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
        if let Some(notify) = pfn_notify {
            let listener = Listener { notify, user_data };
            let tell = Box::new(move |text: &str| listener.tell(text));
            self.link().state().listeners.insert(created.0, tell);
        }
        let posted = self.post(&request);
        match posted {
            Ok(()) => self.made(created.0, &request),
            Err(_) => drop(self.link().state().listeners.remove(&created.0)),
        }
        // SAFETY: the caller's contract of the C function.
        unsafe { self::created(posted.map(|()| created.to_raw()), errcode_ret) }
    }
}

/// A C callback for errors in a context, with its data.
struct Listener {
    notify: unsafe extern "C" fn(*const c_char, *const c_void, usize, *mut c_void),
    user_data: *mut c_void,
}

// SAFETY: the API has callbacks called from any thread; the pointers are the registrant's and only passed on.
unsafe impl Send for Listener {}

impl Listener {
    fn tell(&self, text: &str) {
        let Ok(text) = CString::new(text) else {
            return;
        };
        // SAFETY: the registrant's own function, with its own data; the text lives until it returns.
        unsafe { (self.notify)(text.as_ptr(), std::ptr::null(), 0, self.user_data) };
    }
}
