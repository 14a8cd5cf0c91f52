//! Clocks that devices can run at.

use towline_backend::nvml as wire;
use towline_backend::nvml::*;

use crate::library::{ClockCalls, Library, tell_list};

/// Frequencies of one kind that are asked for: more than any device has.
const ROOM: u32 = 1024;

impl ClockCalls for Library {
    unsafe fn nvmlDeviceGetSupportedMemoryClocks(
        &self,
        device: nvmlDevice_t,
        count: *mut u32,
        clocksMHz: *mut u32,
    ) -> nvmlReturn_t {
        let request = wire::MemoryClocks {
            device: wire::DeviceHandle::from_raw(device),
            room: ROOM,
        };
        let told = self.session_for(request.device.0).and_then(|asking| {
            let body = asking.call(&request)?;
            let reply = wire::MemoryClocksReply::decode(&body);
            let reply = reply.map_err(|_| asking.malformed())?;
            Ok(reply.clocks.map(|list| list.to_vec()).unwrap_or_default())
        });
        // SAFETY: the caller's contract.
        unsafe { tell_list(count, clocksMHz, told) }
    }

    unsafe fn nvmlDeviceGetSupportedGraphicsClocks(
        &self,
        device: nvmlDevice_t,
        memoryClockMHz: u32,
        count: *mut u32,
        clocksMHz: *mut u32,
    ) -> nvmlReturn_t {
        let request = wire::GraphicsClocks {
            device: wire::DeviceHandle::from_raw(device),
            memoryClockMHz,
            room: ROOM,
        };
        let told = self.session_for(request.device.0).and_then(|asking| {
            let body = asking.call(&request)?;
            let reply = wire::GraphicsClocksReply::decode(&body);
            let reply = reply.map_err(|_| asking.malformed())?;
            Ok(reply.clocks.map(|list| list.to_vec()).unwrap_or_default())
        });
        // SAFETY: the caller's contract.
        unsafe { tell_list(count, clocksMHz, told) }
    }
}
