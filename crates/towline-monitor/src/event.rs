//! Events: sets can be made and waited for, and nothing ever comes, as on a device that supports none.

use std::sync::atomic::Ordering;
use std::time::Duration;

use towline_backend::nvml::*;

use crate::library::{EventCalls, Library, lock, tell};

impl Library {
    fn event_set(&self, set: nvmlEventSet_t) -> Result<(), nvmlReturn_t> {
        self.ready()?;
        match lock(&self.event_sets).contains(&set.addr()) {
            true => Ok(()),
            false => Err(NVML_ERROR_INVALID_ARGUMENT),
        }
    }
}

impl EventCalls for Library {
    unsafe fn nvmlEventSetCreate(&self, set: *mut nvmlEventSet_t) -> nvmlReturn_t {
        if set.is_null() {
            return NVML_ERROR_INVALID_ARGUMENT;
        }
        let made = self.ready().map(|_| {
            // Aligned like a pointer.
            let number = self.next_event_set.fetch_add(1, Ordering::Relaxed) as usize + 1;
            let handle = number.wrapping_mul(16);
            lock(&self.event_sets).insert(handle);
            std::ptr::without_provenance_mut(handle)
        });
        // SAFETY: the caller's contract.
        unsafe { tell(set, made) }
    }

    unsafe fn nvmlDeviceRegisterEvents(
        &self,
        device: nvmlDevice_t,
        eventTypes: u64,
        set: nvmlEventSet_t,
    ) -> nvmlReturn_t {
        let known = self
            .event_set(set)
            .and_then(|()| self.device(device, |_| Ok(())));
        match (known, eventTypes) {
            (Err(status), _) => status,
            (Ok(()), 0) => NVML_SUCCESS,
            (Ok(()), _) => NVML_ERROR_NOT_SUPPORTED,
        }
    }

    unsafe fn nvmlDeviceGetSupportedEventTypes(
        &self,
        device: nvmlDevice_t,
        eventTypes: *mut u64,
    ) -> nvmlReturn_t {
        let told = self.device(device, |_| Ok(0));
        // SAFETY: the caller's contract.
        unsafe { tell(eventTypes, told) }
    }

    unsafe fn nvmlEventSetWait_v2(
        &self,
        set: nvmlEventSet_t,
        data: *mut nvmlEventData_t,
        timeoutms: u32,
    ) -> nvmlReturn_t {
        if let Err(status) = self.event_set(set) {
            return status;
        }
        if data.is_null() {
            return NVML_ERROR_INVALID_ARGUMENT;
        }
        std::thread::sleep(Duration::from_millis(timeoutms.into()));
        NVML_ERROR_TIMEOUT
    }

    unsafe fn nvmlEventSetFree(&self, set: nvmlEventSet_t) -> nvmlReturn_t {
        if let Err(status) = self.ready() {
            return status;
        }
        match lock(&self.event_sets).remove(&set.addr()) {
            true => NVML_SUCCESS,
            false => NVML_ERROR_INVALID_ARGUMENT,
        }
    }

    unsafe fn nvmlEventSetWait(
        &self,
        set: nvmlEventSet_t,
        data: *mut nvmlEventData_t,
        timeoutms: u32,
    ) -> nvmlReturn_t {
        // SAFETY: the caller's contract.
        unsafe { EventCalls::nvmlEventSetWait_v2(self, set, data, timeoutms) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_there_until_it_is_freed_and_nothing_comes() {
        let library = Library::over(Vec::new());
        let mut set = std::ptr::null_mut();
        // SAFETY: in this test every call gets a place for what it answers, or a set.
        let made = unsafe { EventCalls::nvmlEventSetCreate(&library, &raw mut set) };
        assert_eq!(made, NVML_SUCCESS);
        let mut data = nvmlEventData_t {
            device: std::ptr::null_mut(),
            eventType: 0,
            eventData: 0,
            gpuInstanceId: 0,
            computeInstanceId: 0,
        };
        let mut wait = || {
            // SAFETY: as above.
            unsafe { EventCalls::nvmlEventSetWait_v2(&library, set, &raw mut data, 1) }
        };
        assert_eq!(wait(), NVML_ERROR_TIMEOUT);
        // SAFETY: as above.
        let freed = unsafe { EventCalls::nvmlEventSetFree(&library, set) };
        assert_eq!(freed, NVML_SUCCESS);
        assert_eq!(wait(), NVML_ERROR_INVALID_ARGUMENT);
    }
}
