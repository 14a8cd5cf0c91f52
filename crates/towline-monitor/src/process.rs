//! Processes on devices: those of this machine that have sessions. The server tells which; of others it tells nothing.

use towline_backend::nvml as wire;
use towline_backend::nvml::*;

use crate::library::{Library, ProcessCalls, tell_list};

/// Processes that are asked for.
const ROOM: u32 = 512;
/// What is said of a part of a device where there is none.
const NO_PART: u32 = u32::MAX;

impl Library {
    /// Process ids and bytes of device memory.
    fn processes(&self, device: nvmlDevice_t) -> Result<Vec<(u32, u64)>, nvmlReturn_t> {
        let request = wire::Processes {
            device: wire::DeviceHandle::from_raw(device),
            room: ROOM,
        };
        let asking = self.session_for(request.device.0)?;
        let body = asking.call(&request)?;
        let reply = wire::ProcessesReply::decode(&body).map_err(|_| asking.malformed())?;
        let pids = reply.pids.map(|list| list.to_vec()).unwrap_or_default();
        let bytes = reply.bytes.map(|list| list.to_vec()).unwrap_or_default();
        Ok(pids.into_iter().zip(bytes).collect())
    }

    /// That there are none, of a device that is there.
    fn no_processes<T>(&self, device: nvmlDevice_t) -> Result<Vec<T>, nvmlReturn_t> {
        self.device(device, |_| Ok(Vec::new()))
    }
}

impl ProcessCalls for Library {
    unsafe fn nvmlDeviceGetComputeRunningProcesses_v3(
        &self,
        device: nvmlDevice_t,
        infoCount: *mut u32,
        infos: *mut nvmlProcessInfo_v2_t,
    ) -> nvmlReturn_t {
        let told = self.processes(device).map(|processes| {
            let described =
                processes
                    .into_iter()
                    .map(|(pid, usedGpuMemory)| nvmlProcessInfo_v2_t {
                        pid,
                        usedGpuMemory,
                        gpuInstanceId: NO_PART,
                        computeInstanceId: NO_PART,
                    });
            described.collect()
        });
        // SAFETY: the caller's contract.
        unsafe { tell_list(infoCount, infos, told) }
    }

    unsafe fn nvmlDeviceGetGraphicsRunningProcesses_v3(
        &self,
        device: nvmlDevice_t,
        infoCount: *mut u32,
        infos: *mut nvmlProcessInfo_v2_t,
    ) -> nvmlReturn_t {
        // SAFETY: the caller's contract.
        unsafe { tell_list(infoCount, infos, self.no_processes(device)) }
    }

    unsafe fn nvmlDeviceGetMPSComputeRunningProcesses_v3(
        &self,
        device: nvmlDevice_t,
        infoCount: *mut u32,
        infos: *mut nvmlProcessInfo_v2_t,
    ) -> nvmlReturn_t {
        // SAFETY: the caller's contract.
        unsafe { tell_list(infoCount, infos, self.no_processes(device)) }
    }

    unsafe fn nvmlDeviceGetComputeRunningProcesses(
        &self,
        device: nvmlDevice_t,
        infoCount: *mut u32,
        infos: *mut nvmlProcessInfo_v1_t,
    ) -> nvmlReturn_t {
        let told = self.processes(device).map(|processes| {
            let described = processes
                .into_iter()
                .map(|(pid, usedGpuMemory)| nvmlProcessInfo_v1_t { pid, usedGpuMemory });
            described.collect()
        });
        // SAFETY: the caller's contract.
        unsafe { tell_list(infoCount, infos, told) }
    }

    unsafe fn nvmlDeviceGetGraphicsRunningProcesses(
        &self,
        device: nvmlDevice_t,
        infoCount: *mut u32,
        infos: *mut nvmlProcessInfo_v1_t,
    ) -> nvmlReturn_t {
        // SAFETY: the caller's contract.
        unsafe { tell_list(infoCount, infos, self.no_processes(device)) }
    }

    unsafe fn nvmlDeviceGetMPSComputeRunningProcesses(
        &self,
        device: nvmlDevice_t,
        infoCount: *mut u32,
        infos: *mut nvmlProcessInfo_v1_t,
    ) -> nvmlReturn_t {
        // SAFETY: the caller's contract.
        unsafe { tell_list(infoCount, infos, self.no_processes(device)) }
    }
}
