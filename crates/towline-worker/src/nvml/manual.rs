//! Calls whose answers are as long as there is room, and lists of values.

#![allow(non_snake_case, reason = "methods are named like their messages")]

use towline_backend::nvml as wire;
use towline_backend::nvml::*;
use towline_wire::error::ProtocolError;

use super::session::{Session, room};

/// The status for an answer of a list. One without room is a good answer, since its caller asked for the length.
fn listed(status: nvmlReturn_t, asked: u32) -> nvmlReturn_t {
    match status {
        NVML_ERROR_INSUFFICIENT_SIZE if asked == 0 => NVML_SUCCESS,
        status => status,
    }
}

/// NULL for no room.
fn place<T>(list: &mut [T]) -> *mut T {
    if list.is_empty() {
        std::ptr::null_mut()
    } else {
        list.as_mut_ptr()
    }
}

impl Session {
    pub(super) fn nvmlMemoryClocks(
        &mut self,
        number: u64,
        request: wire::MemoryClocks,
    ) -> Result<(), ProtocolError> {
        let mut clocks = room::<u32>(request.room.into())?;
        let mut count = request.room;
        let status = self.device(request.device).map_or_else(
            |status| status,
            // SAFETY: a device of the library, and a list of so many places.
            |device| unsafe {
                self.api.nvmlDeviceGetSupportedMemoryClocks(
                    device,
                    &raw mut count,
                    place(&mut clocks),
                )
            },
        );
        let told = clocks.get(..count as usize).unwrap_or(&clocks);
        let reply = wire::MemoryClocksReply {
            count: count.into(),
            clocks: Some(List::Values(told)),
        };
        self.reply(number, listed(status, request.room), &reply);
        Ok(())
    }

    pub(super) fn nvmlGraphicsClocks(
        &mut self,
        number: u64,
        request: wire::GraphicsClocks,
    ) -> Result<(), ProtocolError> {
        let mut clocks = room::<u32>(request.room.into())?;
        let mut count = request.room;
        let status = self.device(request.device).map_or_else(
            |status| status,
            // SAFETY: as above.
            |device| unsafe {
                self.api.nvmlDeviceGetSupportedGraphicsClocks(
                    device,
                    request.memoryClockMHz,
                    &raw mut count,
                    place(&mut clocks),
                )
            },
        );
        let told = clocks.get(..count as usize).unwrap_or(&clocks);
        let reply = wire::GraphicsClocksReply {
            count: count.into(),
            clocks: Some(List::Values(told)),
        };
        self.reply(number, listed(status, request.room), &reply);
        Ok(())
    }

    pub(super) fn nvmlFieldValues(
        &mut self,
        number: u64,
        request: wire::FieldValues<'_>,
    ) -> Result<(), ProtocolError> {
        room::<[u64; 5]>(request.count.into())?;
        let asked = request.fields.iter().zip(request.scopes.iter());
        let mut values: Vec<nvmlFieldValue_t> = asked
            .map(|(fieldId, scopeId)| nvmlFieldValue_t {
                fieldId,
                scopeId,
                timestamp: 0,
                latencyUsec: 0,
                valueType: 0,
                nvmlReturn: NVML_ERROR_UNKNOWN,
                value: nvmlValue_t { ullVal: 0 },
            })
            .collect();
        let count = i32::try_from(values.len()).unwrap_or(0);
        let status = match self.device(request.device) {
            // SAFETY: a device of the library, and so many values.
            Ok(device) => unsafe {
                self.api
                    .nvmlDeviceGetFieldValues(device, count, values.as_mut_ptr())
            },
            Err(status) => status,
        };
        let of = |field: &dyn Fn(&nvmlFieldValue_t) -> i64| -> Vec<i64> {
            values.iter().map(field).collect()
        };
        let (timestamps, latencies) =
            (of(&|value| value.timestamp), of(&|value| value.latencyUsec));
        let types: Vec<u32> = values.iter().map(|value| value.valueType).collect();
        let statuses: Vec<i32> = values.iter().map(|value| value.nvmlReturn).collect();
        let bits = values.iter().map(|value| {
            // SAFETY: every number fits these bits, which were all set.
            unsafe { value.value.ullVal }
        });
        let bits: Vec<u64> = bits.collect();
        let reply = wire::FieldValuesReply {
            timestamps: Some(List::Values(&timestamps)),
            latencies: Some(List::Values(&latencies)),
            types: Some(List::Values(&types)),
            statuses: Some(List::Values(&statuses)),
            values: Some(List::Values(&bits)),
        };
        self.reply(number, status, &reply);
        Ok(())
    }

    pub(super) fn nvmlSamples(
        &mut self,
        number: u64,
        request: wire::Samples,
    ) -> Result<(), ProtocolError> {
        room::<[u64; 2]>(request.room.into())?;
        let none = nvmlSample_t {
            timeStamp: 0,
            sampleValue: nvmlValue_t { ullVal: 0 },
        };
        let mut samples = vec![none; request.room as usize];
        let (mut count, mut valueType) = (request.room, 0);
        let status = match self.device(request.device) {
            // SAFETY: a device of the library, and a list of so many places.
            Ok(device) => unsafe {
                self.api.nvmlDeviceGetSamples(
                    device,
                    request.samplingType,
                    request.lastSeenTimeStamp,
                    &raw mut valueType,
                    &raw mut count,
                    place(&mut samples),
                )
            },
            Err(status) => status,
        };
        samples.truncate(count as usize);
        let timestamps: Vec<u64> = samples.iter().map(|sample| sample.timeStamp).collect();
        let bits = samples.iter().map(|sample| {
            // SAFETY: every number fits these bits, which were all set.
            unsafe { sample.sampleValue.ullVal }
        });
        let bits: Vec<u64> = bits.collect();
        let reply = wire::SamplesReply {
            valueType: Some(valueType),
            count: count.into(),
            timestamps: Some(List::Values(&timestamps)),
            values: Some(List::Values(&bits)),
        };
        self.reply(number, listed(status, request.room), &reply);
        Ok(())
    }

    /// By the process ids that the driver knows: the supervisor tells whose sessions they are.
    pub(super) fn nvmlProcesses(
        &mut self,
        number: u64,
        request: wire::Processes,
    ) -> Result<(), ProtocolError> {
        room::<[u64; 5]>(request.room.into())?;
        let none = nvmlProcessInfo_v2_t {
            pid: 0,
            usedGpuMemory: 0,
            gpuInstanceId: 0,
            computeInstanceId: 0,
        };
        let mut infos = vec![none; request.room as usize];
        let mut count = request.room;
        let status = match self.device(request.device) {
            // SAFETY: as above.
            Ok(device) => unsafe {
                self.api.nvmlDeviceGetComputeRunningProcesses_v3(
                    device,
                    &raw mut count,
                    place(&mut infos),
                )
            },
            Err(status) => status,
        };
        infos.truncate(count as usize);
        let pids: Vec<u32> = infos.iter().map(|info| info.pid).collect();
        let bytes: Vec<u64> = infos.iter().map(|info| info.usedGpuMemory).collect();
        let reply = wire::ProcessesReply {
            count: count.into(),
            pids: Some(List::Values(&pids)),
            bytes: Some(List::Values(&bytes)),
        };
        self.reply(number, listed(status, request.room), &reply);
        Ok(())
    }
}
