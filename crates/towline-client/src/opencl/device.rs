//! Platforms, devices, contexts: answered from the snapshot that came with the session.

use super::*;

/// Most sub-devices asked for at once, as many as a server makes.
const PARTITION_ROOM: cl_uint = 1024;

impl Remote {
    pub(super) fn get_platform_ids(
        &self,
        room: cl_uint,
        platforms: *mut cl_platform_id,
        count: *mut cl_uint,
    ) -> cl_int {
        let list = self.platforms();
        if (room == 0 && !platforms.is_null()) || (platforms.is_null() && count.is_null()) {
            return CL_INVALID_VALUE;
        }
        // SAFETY: the caller's contract of clGetPlatformIDs.
        unsafe {
            crate::raw::fill(
                platforms,
                room as usize,
                list.iter().map(|(platform, _)| *platform),
            )
        };
        // SAFETY: as above.
        unsafe { crate::raw::fill(count, 1, [list.len() as cl_uint].into_iter()) };
        CL_SUCCESS
    }

    pub(super) fn get_platform_info(
        &self,
        platform: cl_platform_id,
        query: cl_platform_info,
        size: usize,
        value: *mut c_void,
        actual: *mut usize,
    ) -> cl_int {
        let index = (platform.addr() as u64)
            .wrapping_sub(PLATFORM_BASE)
            .wrapping_sub(1);
        let known = usize::try_from(index)
            .ok()
            .and_then(|index| self.snapshot.platforms.get(index));
        let Some(answers) = known else {
            return CL_INVALID_PLATFORM;
        };
        match answers.get(query) {
            // SAFETY: the caller's contract of clGetPlatformInfo.
            Some(bytes) => unsafe { answer(bytes, size, value, actual) },
            None => CL_INVALID_VALUE,
        }
    }

    pub(super) fn get_device_ids(
        &self,
        platform: cl_platform_id,
        kind: cl_device_type,
        room: cl_uint,
        devices: *mut cl_device_id,
        count: *mut cl_uint,
    ) -> cl_int {
        let Some((_, all)) = self
            .platforms()
            .into_iter()
            .find(|(known, _)| *known == platform)
        else {
            return CL_INVALID_PLATFORM;
        };
        if (room == 0 && !devices.is_null()) || (devices.is_null() && count.is_null()) {
            return CL_INVALID_VALUE;
        }
        let wanted = kind as u64;
        let default = wanted & CL_DEVICE_TYPE_DEFAULT as u64 != 0;
        let matches = |device: &cl_device_id| {
            let known = self
                .snapshot
                .devices
                .iter()
                .find(|known| known.handle == device.addr() as u64);
            known
                .and_then(|known| known.answers.number(CL_DEVICE_TYPE))
                .is_some_and(|kind| kind & wanted != 0)
        };
        let mut list: Vec<cl_device_id> = all.iter().copied().filter(matches).collect();
        if list.is_empty() && default {
            list.extend(all.first());
        }
        if list.is_empty() {
            return CL_DEVICE_NOT_FOUND;
        }
        // SAFETY: the caller's contract of clGetDeviceIDs.
        unsafe { crate::raw::fill(devices, room as usize, list.iter().copied()) };
        // SAFETY: as above.
        unsafe { crate::raw::fill(count, 1, [list.len() as cl_uint].into_iter()) };
        CL_SUCCESS
    }

    pub(super) fn get_device_info(
        &self,
        device: cl_device_id,
        query: cl_device_info,
        size: usize,
        value: *mut c_void,
        actual: *mut usize,
    ) -> cl_int {
        let id = device.addr() as u64;
        if let Some(known) = self
            .snapshot
            .devices
            .iter()
            .find(|known| known.handle == id)
        {
            if query == CL_DEVICE_PLATFORM {
                let platform = (PLATFORM_BASE | u64::from(known.platform + 1)).to_ne_bytes();
                // SAFETY: the caller's contract of clGetDeviceInfo.
                return unsafe { answer(&platform, size, value, actual) };
            }
            return match known.answers.get(query) {
                // SAFETY: as above.
                Some(bytes) => unsafe { answer(bytes, size, value, actual) },
                None => CL_INVALID_VALUE,
            };
        }
        let known = lock(&self.answers).get(&(id, query)).cloned();
        let bytes = match known {
            Some(bytes) => bytes,
            None => {
                let request = wire::GetDeviceInfo {
                    device: wire::DeviceHandle(id),
                    param_name: query,
                    param_value_size: ANSWER_ROOM,
                    want_param_value: true,
                };
                let body = match self.call_for("clGetDeviceInfo", &request) {
                    Ok(body) => body,
                    Err(status) => return status,
                };
                let Ok(reply) = wire::GetDeviceInfoReply::decode(&body) else {
                    return self.malformed();
                };
                let bytes = reply.param_value.unwrap_or_default().to_vec();
                lock(&self.answers).insert((id, query), bytes.clone());
                bytes
            }
        };
        // SAFETY: the caller's contract of clGetDeviceInfo.
        unsafe { answer(&bytes, size, value, actual) }
    }

    pub(super) fn create_sub_devices(
        &self,
        device: cl_device_id,
        properties: &[u64],
        room: cl_uint,
        devices: *mut cl_device_id,
        count: *mut cl_uint,
    ) -> cl_int {
        let wanted = if devices.is_null() {
            0
        } else {
            room.min(PARTITION_ROOM)
        };
        let first = self.mint(wire::DeviceHandle::TAG);
        for _ in 1..wanted {
            // The server numbers the new devices from the first one on: those numbers are taken.
            self.mint(wire::DeviceHandle::TAG);
        }
        let request = wire::PartitionDevice {
            in_device: wire::DeviceHandle::from_raw(device),
            num_properties: properties.len() as u32,
            properties: wire::List::Values(properties),
            first,
            room: wanted,
        };
        let body = match self.call_for("clCreateSubDevices", &request) {
            Ok(body) => body,
            Err(status) => return status,
        };
        let Ok(reply) = wire::PartitionDeviceReply::decode(&body) else {
            return self.malformed();
        };
        let made = reply.count.min(u64::from(cl_uint::MAX));
        if wanted > 0 {
            if made > u64::from(wanted) {
                return self.malformed();
            }
            self.recipes.partitioned(first, made, &request);
        }
        let list = (0..made).map(|index| wire::DeviceHandle(first + index).to_raw());
        // SAFETY: the caller's contract of clCreateSubDevices.
        unsafe { crate::raw::fill(devices, wanted as usize, list) };
        // SAFETY: as above.
        unsafe { crate::raw::fill(count, 1, [made as cl_uint].into_iter()) };
        CL_SUCCESS
    }

    pub(super) fn device_timers(&self, device: cl_device_id) -> Result<(u64, u64), cl_int> {
        let request = wire::DeviceTimers {
            device: wire::DeviceHandle::from_raw(device),
        };
        let body = self.call_for("clGetDeviceAndHostTimer", &request)?;
        let reply = wire::DeviceTimersReply::decode(&body).map_err(|_| self.malformed())?;
        Ok((
            reply.device_timestamp.unwrap_or_default(),
            reply.host_timestamp.unwrap_or_default(),
        ))
    }
}

/// Room for an answer whose size is not known: larger than any that OpenCL defines.
const ANSWER_ROOM: u64 = 64 << 10;
