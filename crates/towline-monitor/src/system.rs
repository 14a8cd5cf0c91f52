//! The start of the library, and what it says of the system.

use std::ffi::c_char;

use towline_backend::nvml::*;

use crate::library::{Library, SystemCalls, UnitCalls, tell, tell_text};

impl SystemCalls for Library {
    unsafe fn nvmlInit_v2(&self) -> nvmlReturn_t {
        self.initialise(false)
    }

    unsafe fn nvmlInitWithFlags(&self, flags: u32) -> nvmlReturn_t {
        self.initialise(flags & NVML_INIT_FLAG_NO_GPUS != 0)
    }

    unsafe fn nvmlShutdown(&self) -> nvmlReturn_t {
        self.shut_down()
    }

    unsafe fn nvmlSystemGetDriverVersion(&self, version: *mut c_char, length: u32) -> nvmlReturn_t {
        let told = self.ready().map(|servers| servers.driver_version.clone());
        // SAFETY: the caller's contract.
        unsafe { tell_text(version, length, told) }
    }

    unsafe fn nvmlSystemGetNVMLVersion(&self, version: *mut c_char, length: u32) -> nvmlReturn_t {
        let told = self.ready().map(|servers| servers.nvml_version.clone());
        // SAFETY: the caller's contract.
        unsafe { tell_text(version, length, told) }
    }

    unsafe fn nvmlSystemGetCudaDriverVersion(&self, version: *mut i32) -> nvmlReturn_t {
        let told = self.ready().map(|servers| servers.cuda_version);
        // SAFETY: the caller's contract.
        unsafe { tell(version, told) }
    }

    unsafe fn nvmlSystemGetCudaDriverVersion_v2(&self, version: *mut i32) -> nvmlReturn_t {
        // SAFETY: the caller's contract.
        unsafe { SystemCalls::nvmlSystemGetCudaDriverVersion(self, version) }
    }

    unsafe fn nvmlSystemGetProcessName(
        &self,
        pid: u32,
        name: *mut c_char,
        length: u32,
    ) -> nvmlReturn_t {
        let told = self.ready().and_then(|_| process_name(pid));
        let told = told.map(|mut name| {
            // As the driver does, a name is cut to what there is room for.
            name.truncate((length as usize).saturating_sub(1));
            name
        });
        // SAFETY: the caller's contract.
        unsafe { tell_text(name, length, told) }
    }

    unsafe fn nvmlGetExcludedDeviceCount(&self, count: *mut u32) -> nvmlReturn_t {
        // SAFETY: the caller's contract.
        unsafe { tell(count, self.ready().map(|_| 0)) }
    }
}

/// What a process of this machine was started as.
fn process_name(pid: u32) -> Result<Vec<u8>, nvmlReturn_t> {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).map_err(|_| NVML_ERROR_NOT_FOUND)?;
    let program = line.split(|byte| *byte == 0).next().unwrap_or_default();
    if program.is_empty() {
        // A thread of the kernel, or one that is ending.
        return Err(NVML_ERROR_NOT_FOUND);
    }
    Ok(program.to_vec())
}

impl UnitCalls for Library {
    unsafe fn nvmlUnitGetCount(&self, count: *mut u32) -> nvmlReturn_t {
        // SAFETY: the caller's contract.
        unsafe { tell(count, self.ready().map(|_| 0)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_called_as_they_were_started() {
        let own = process_name(std::process::id()).unwrap();
        assert!(String::from_utf8_lossy(&own).contains("towline_monitor"));
        assert_eq!(process_name(u32::MAX), Err(NVML_ERROR_NOT_FOUND));
    }
}
