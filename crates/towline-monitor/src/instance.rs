//! Parts of devices: none is offered, whatever mode a device is in.

use towline_backend::nvml::*;

use crate::library::{InstanceCalls, Library, tell};

impl InstanceCalls for Library {
    unsafe fn nvmlDeviceIsMigDeviceHandle(
        &self,
        device: nvmlDevice_t,
        isMigDevice: *mut u32,
    ) -> nvmlReturn_t {
        let told = self.device(device, |_| Ok(0));
        // SAFETY: the caller's contract.
        unsafe { tell(isMigDevice, told) }
    }

    unsafe fn nvmlDeviceGetMaxMigDeviceCount(
        &self,
        device: nvmlDevice_t,
        count: *mut u32,
    ) -> nvmlReturn_t {
        let told = self.device(device, |_| Ok(0));
        // SAFETY: the caller's contract.
        unsafe { tell(count, told) }
    }

    unsafe fn nvmlDeviceGetMigDeviceHandleByIndex(
        &self,
        device: nvmlDevice_t,
        _index: u32,
        migDevice: *mut nvmlDevice_t,
    ) -> nvmlReturn_t {
        let told = self.device(device, |_| Err(NVML_ERROR_NOT_FOUND));
        // SAFETY: the caller's contract.
        unsafe { tell(migDevice, told) }
    }

    unsafe fn nvmlDeviceGetDeviceHandleFromMigDeviceHandle(
        &self,
        migDevice: nvmlDevice_t,
        device: *mut nvmlDevice_t,
    ) -> nvmlReturn_t {
        let told = self.device(migDevice, |_| Err(NVML_ERROR_NOT_FOUND));
        // SAFETY: the caller's contract.
        unsafe { tell(device, told) }
    }
}
