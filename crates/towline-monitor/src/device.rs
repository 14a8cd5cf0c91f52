//! Devices: one list over all servers, in the order in which they are named.

use std::ffi::{CStr, c_char};

use towline_backend::nvml::*;

use crate::library::{Device, DeviceCalls, Library, tell, tell_text};

impl Library {
    /// The handle of the first device that fits; none is "not found".
    pub(crate) fn find(
        &self,
        fits: impl FnMut(&&Device) -> bool,
    ) -> Result<nvmlDevice_t, nvmlReturn_t> {
        let servers = self.ready()?;
        let found = servers.devices.iter().find(fits);
        found
            .map(|device| device.handle.to_raw())
            .ok_or(NVML_ERROR_NOT_FOUND)
    }

    /// The handle of the first device that a text names.
    ///
    /// # Safety
    /// `text` is NULL or ends with a NUL; `device` is NULL or writable.
    pub(crate) unsafe fn find_by(
        &self,
        text: *const c_char,
        device: *mut nvmlDevice_t,
        fits: impl Fn(&Device, &str) -> bool,
    ) -> nvmlReturn_t {
        if text.is_null() {
            return NVML_ERROR_INVALID_ARGUMENT;
        }
        // SAFETY: the caller's contract.
        let wanted = unsafe { CStr::from_ptr(text) }.to_string_lossy();
        let found = self.find(|known| fits(known, &wanted));
        // SAFETY: the caller's contract.
        unsafe { tell(device, found) }
    }
}

impl DeviceCalls for Library {
    unsafe fn nvmlDeviceGetCount_v2(&self, count: *mut u32) -> nvmlReturn_t {
        let told = self.ready().map(|servers| servers.devices.len() as u32);
        // SAFETY: the caller's contract.
        unsafe { tell(count, told) }
    }

    unsafe fn nvmlDeviceGetHandleByIndex_v2(
        &self,
        index: u32,
        device: *mut nvmlDevice_t,
    ) -> nvmlReturn_t {
        let found = self.ready().and_then(|servers| {
            let known = servers.devices.get(index as usize);
            known
                .map(|device| device.handle.to_raw())
                .ok_or(NVML_ERROR_INVALID_ARGUMENT)
        });
        // SAFETY: the caller's contract.
        unsafe { tell(device, found) }
    }

    unsafe fn nvmlDeviceGetHandleBySerial(
        &self,
        serial: *const c_char,
        device: *mut nvmlDevice_t,
    ) -> nvmlReturn_t {
        let fits = |device: &Device, wanted: &str| {
            !wanted.is_empty() && device.facts.serial == wanted.as_bytes()
        };
        // SAFETY: the caller's contract.
        unsafe { self.find_by(serial, device, fits) }
    }

    unsafe fn nvmlDeviceGetHandleByUUID(
        &self,
        uuid: *const c_char,
        device: *mut nvmlDevice_t,
    ) -> nvmlReturn_t {
        let fits = |device: &Device, wanted: &str| {
            device.facts.uuid.eq_ignore_ascii_case(wanted.as_bytes())
        };
        // SAFETY: the caller's contract.
        unsafe { self.find_by(uuid, device, fits) }
    }

    unsafe fn nvmlDeviceGetIndex(&self, device: nvmlDevice_t, index: *mut u32) -> nvmlReturn_t {
        let told = self.ready().and_then(|servers| {
            let wanted = servers.device(device)?.handle;
            let known = servers.devices.iter();
            let at = known
                .map(|device| device.handle)
                .position(|at| at == wanted);
            at.map(|index| index as u32)
                .ok_or(NVML_ERROR_INVALID_ARGUMENT)
        });
        // SAFETY: the caller's contract.
        unsafe { tell(index, told) }
    }

    unsafe fn nvmlDeviceGetUUID(
        &self,
        device: nvmlDevice_t,
        uuid: *mut c_char,
        length: u32,
    ) -> nvmlReturn_t {
        let told = self.device(device, |device| Ok(device.facts.uuid.clone()));
        // SAFETY: the caller's contract.
        unsafe { tell_text(uuid, length, told) }
    }
}
