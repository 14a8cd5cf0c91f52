//! Samples, and values by number.

use towline_backend::nvml as wire;
use towline_backend::nvml::*;

use crate::library::{Library, UtilizationCalls};

/// Samples that are asked for at most.
const SAMPLES: u32 = 1024;
/// Values that go into one question.
const VALUES: usize = 128;

impl UtilizationCalls for Library {
    unsafe fn nvmlDeviceGetSamples(
        &self,
        device: nvmlDevice_t,
        r#type: nvmlSamplingType_t,
        lastSeenTimeStamp: u64,
        sampleValType: *mut nvmlValueType_t,
        sampleCount: *mut u32,
        samples: *mut nvmlSample_t,
    ) -> nvmlReturn_t {
        if sampleValType.is_null() || sampleCount.is_null() {
            return NVML_ERROR_INVALID_ARGUMENT;
        }
        let room = match samples.is_null() {
            true => 0,
            // SAFETY: the caller's contract.
            false => unsafe { sampleCount.read() }.min(SAMPLES),
        };
        let request = wire::Samples {
            device: wire::DeviceHandle::from_raw(device),
            samplingType: r#type,
            lastSeenTimeStamp,
            room,
        };
        let asked = self.session_for(request.device.0).and_then(|asking| {
            let body = asking.call(&request)?;
            let malformed = || asking.malformed();
            let reply = wire::SamplesReply::decode(&body).map_err(|_| malformed())?;
            let times = reply.timestamps.ok_or_else(malformed)?.to_vec();
            let values = reply.values.ok_or_else(malformed)?.to_vec();
            Ok((reply.valueType.unwrap_or(0), reply.count, times, values))
        });
        let (kind, count, times, values) = match asked {
            Ok(told) => told,
            Err(status) => return status,
        };
        let told = times
            .into_iter()
            .zip(values)
            .map(|(timeStamp, ullVal)| nvmlSample_t {
                timeStamp,
                sampleValue: nvmlValue_t { ullVal },
            });
        // SAFETY: the caller's contract.
        unsafe { sampleValType.write(kind) };
        // SAFETY: as above.
        unsafe { sampleCount.write(u32::try_from(count).unwrap_or(u32::MAX)) };
        // SAFETY: as above: there is room for what the count said.
        unsafe { crate::raw::fill(samples, room as usize, told) };
        NVML_SUCCESS
    }

    unsafe fn nvmlDeviceGetFieldValues(
        &self,
        device: nvmlDevice_t,
        valuesCount: i32,
        values: *mut nvmlFieldValue_t,
    ) -> nvmlReturn_t {
        let Ok(count @ 1..) = usize::try_from(valuesCount) else {
            return NVML_ERROR_INVALID_ARGUMENT;
        };
        if values.is_null() {
            return NVML_ERROR_INVALID_ARGUMENT;
        }
        let mut done = 0;
        while done < count {
            let part = (count - done).min(VALUES);
            // SAFETY: the caller's contract: so many values; `done` is below `count`.
            let from = unsafe { values.add(done) };
            // SAFETY: as above.
            let status = unsafe { self.some_values(device, from, part) };
            if status != NVML_SUCCESS {
                return status;
            }
            done += part;
        }
        NVML_SUCCESS
    }
}

impl Library {
    /// Asks for as many values as one question holds.
    ///
    /// # Safety
    /// `values` is readable and writable for `count` elements.
    unsafe fn some_values(
        &self,
        device: nvmlDevice_t,
        values: *mut nvmlFieldValue_t,
        count: usize,
    ) -> nvmlReturn_t {
        // SAFETY: the caller's contract; nothing else looks at them meanwhile.
        let values = unsafe { std::slice::from_raw_parts_mut(values, count) };
        let fields: Vec<u32> = values.iter().map(|value| value.fieldId).collect();
        let scopes: Vec<u32> = values.iter().map(|value| value.scopeId).collect();
        let request = wire::FieldValues {
            device: wire::DeviceHandle::from_raw(device),
            count: count as u32,
            fields: List::Values(&fields),
            scopes: List::Values(&scopes),
        };
        let body = self
            .session_for(request.device.0)
            .and_then(|asking| asking.call(&request));
        let body = match body {
            Ok(body) => body,
            Err(status) => return status,
        };
        let Ok(wire::FieldValuesReply {
            timestamps: Some(timestamps),
            latencies: Some(latencies),
            types: Some(types),
            statuses: Some(statuses),
            values: Some(bits),
        }) = wire::FieldValuesReply::decode(&body)
        else {
            return NVML_ERROR_UNKNOWN;
        };
        let times = timestamps.iter().zip(latencies.iter());
        let told = times
            .zip(types.iter())
            .zip(statuses.iter().zip(bits.iter()));
        for (value, (((timestamp, latency), kind), (status, ullVal))) in values.iter_mut().zip(told)
        {
            value.timestamp = timestamp;
            value.latencyUsec = latency;
            value.valueType = kind;
            value.nvmlReturn = status;
            value.value = nvmlValue_t { ullVal };
        }
        NVML_SUCCESS
    }
}
