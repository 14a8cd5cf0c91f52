//! NVML of the device in host memory ([`crate::cuda::NullCuda`]): the same names, UUIDs, places and memory, and figures that tests
//! can tell apart. Power, clocks and temperature depend on the device's number; time moves the energy counter.

use std::ffi::{CStr, c_char};
use std::time::Instant;

use super::*;

/// Bytes of memory, as the CUDA device has them.
const MEMORY_BYTES: u64 = 8 << 30;
/// Power in use, in mW, of the first device; each further one needs a watt more.
const POWER_MW: u32 = 42_000;
/// Frequencies of the memory and of graphics.
const MEMORY_CLOCKS: [u32; 2] = [3201, 1593];
const GRAPHICS_CLOCKS: [u32; 3] = [1980, 1410, 345];

/// Devices that measure nothing.
pub struct NullNvml {
    devices: u32,
    started: Instant,
}

/// Writes an answer.
fn put<T>(place: *mut T, value: T) -> nvmlReturn_t {
    if place.is_null() {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    // SAFETY: the contract of every call here: places for answers are writable.
    unsafe { place.write(value) };
    NVML_SUCCESS
}

/// Writes text with its NUL, where there is room for all of it.
fn put_text(place: *mut c_char, room: u32, text: &CStr) -> nvmlReturn_t {
    let bytes = text.to_bytes_with_nul();
    if place.is_null() {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    if bytes.len() > room as usize {
        return NVML_ERROR_INSUFFICIENT_SIZE;
    }
    // SAFETY: the contract of every call here: places for text have the room that the caller says.
    unsafe { place.copy_from_nonoverlapping(bytes.as_ptr().cast(), bytes.len()) };
    NVML_SUCCESS
}

/// Writes a list, or only how long it is where there is no room for all of it.
fn put_list<T: Copy>(count: *mut u32, list: *mut T, values: &[T]) -> nvmlReturn_t {
    if count.is_null() {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    // SAFETY: the contract of every call here: counts are readable and writable.
    let room = unsafe { count.read() } as usize;
    put(count, values.len() as u32);
    if list.is_null() || room < values.len() {
        return NVML_ERROR_INSUFFICIENT_SIZE;
    }
    // SAFETY: as above: a list has the room that its count says.
    unsafe { list.copy_from_nonoverlapping(values.as_ptr(), values.len()) };
    NVML_SUCCESS
}

impl NullNvml {
    /// So many devices.
    pub fn new(devices: u32) -> Self {
        Self {
            devices,
            started: Instant::now(),
        }
    }

    fn number(&self, device: nvmlDevice_t) -> Result<u32, nvmlReturn_t> {
        let number = u32::try_from(device.addr())
            .unwrap_or(0)
            .checked_sub(1)
            .filter(|number| *number < self.devices);
        number.ok_or(NVML_ERROR_INVALID_ARGUMENT)
    }

    /// Answers a question about a device.
    fn tell<T>(
        &self,
        device: nvmlDevice_t,
        place: *mut T,
        value: impl FnOnce(u32) -> T,
    ) -> nvmlReturn_t {
        match self.number(device) {
            Ok(number) => put(place, value(number)),
            Err(status) => status,
        }
    }

    fn power(number: u32) -> u32 {
        POWER_MW + number * 1000
    }

    fn energy(&self, number: u32) -> u64 {
        let seconds = self.started.elapsed().as_secs_f64();
        (f64::from(Self::power(number)) * seconds) as u64
    }
}

#[allow(non_snake_case, clippy::too_many_arguments)]
impl NvmlApi for NullNvml {
    unsafe fn nvmlInit_v2(&self) -> nvmlReturn_t {
        NVML_SUCCESS
    }
    unsafe fn nvmlSystemGetDriverVersion(&self, version: *mut c_char, length: u32) -> nvmlReturn_t {
        put_text(version, length, c"0.0.0")
    }
    unsafe fn nvmlSystemGetNVMLVersion(&self, version: *mut c_char, length: u32) -> nvmlReturn_t {
        put_text(version, length, c"13.0.0")
    }
    unsafe fn nvmlSystemGetCudaDriverVersion_v2(&self, version: *mut i32) -> nvmlReturn_t {
        put(version, 13_000)
    }
    unsafe fn nvmlDeviceGetCount_v2(&self, count: *mut u32) -> nvmlReturn_t {
        put(count, self.devices)
    }
    unsafe fn nvmlDeviceGetHandleByIndex_v2(
        &self,
        index: u32,
        device: *mut nvmlDevice_t,
    ) -> nvmlReturn_t {
        if index >= self.devices {
            return NVML_ERROR_INVALID_ARGUMENT;
        }
        put(device, std::ptr::without_provenance_mut(index as usize + 1))
    }
    unsafe fn nvmlDeviceGetName(
        &self,
        device: nvmlDevice_t,
        name: *mut c_char,
        length: u32,
    ) -> nvmlReturn_t {
        match self.number(device) {
            Ok(_) => put_text(name, length, c"Towline null device"),
            Err(status) => status,
        }
    }
    unsafe fn nvmlDeviceGetUUID(
        &self,
        device: nvmlDevice_t,
        uuid: *mut c_char,
        length: u32,
    ) -> nvmlReturn_t {
        let text = match self.number(device) {
            Ok(number) => format!(
                "GPU-746f776c-696e-652d-6e75-6c6c2d6375{:02x}\0",
                b'0'.wrapping_add(number as u8)
            ),
            Err(status) => return status,
        };
        let text = CStr::from_bytes_until_nul(text.as_bytes()).unwrap_or_default();
        put_text(uuid, length, text)
    }
    unsafe fn nvmlDeviceGetPciInfo_v3(
        &self,
        device: nvmlDevice_t,
        pci: *mut nvmlPciInfo_t,
    ) -> nvmlReturn_t {
        // As the CUDA device: all zeros.
        self.tell(device, pci, |_| nvmlPciInfo_t {
            busIdLegacy: [0; 16],
            domain: 0,
            bus: 0,
            device: 0,
            pciDeviceId: 0,
            pciSubSystemId: 0,
            busId: [0; 32],
        })
    }
    unsafe fn nvmlDeviceGetBrand(
        &self,
        device: nvmlDevice_t,
        brand: *mut nvmlBrandType_t,
    ) -> nvmlReturn_t {
        self.tell(device, brand, |_| NVML_BRAND_NVIDIA)
    }
    unsafe fn nvmlDeviceGetCudaComputeCapability(
        &self,
        device: nvmlDevice_t,
        major: *mut i32,
        minor: *mut i32,
    ) -> nvmlReturn_t {
        match self.tell(device, major, |_| 9) {
            NVML_SUCCESS => put(minor, 0),
            status => status,
        }
    }
    unsafe fn nvmlDeviceGetMemoryInfo(
        &self,
        device: nvmlDevice_t,
        memory: *mut nvmlMemory_t,
    ) -> nvmlReturn_t {
        self.tell(device, memory, |_| nvmlMemory_t {
            total: MEMORY_BYTES,
            free: MEMORY_BYTES,
            used: 0,
        })
    }
    unsafe fn nvmlDeviceGetMemoryInfo_v2(
        &self,
        device: nvmlDevice_t,
        memory: *mut nvmlMemory_v2_t,
    ) -> nvmlReturn_t {
        if memory.is_null() {
            return NVML_ERROR_INVALID_ARGUMENT;
        }
        // SAFETY: the contract of the call: the structure says its version.
        let version = unsafe { (*memory).version };
        self.tell(device, memory, |_| nvmlMemory_v2_t {
            version,
            total: MEMORY_BYTES,
            reserved: 0,
            free: MEMORY_BYTES,
            used: 0,
        })
    }
    unsafe fn nvmlDeviceGetUtilizationRates(
        &self,
        device: nvmlDevice_t,
        utilization: *mut nvmlUtilization_t,
    ) -> nvmlReturn_t {
        self.tell(device, utilization, |number| nvmlUtilization_t {
            gpu: 7 + number,
            memory: 3,
        })
    }
    unsafe fn nvmlDeviceGetTemperature(
        &self,
        device: nvmlDevice_t,
        sensor: nvmlTemperatureSensors_t,
        temperature: *mut u32,
    ) -> nvmlReturn_t {
        match sensor {
            NVML_TEMPERATURE_GPU => self.tell(device, temperature, |number| 31 + number),
            _ => NVML_ERROR_INVALID_ARGUMENT,
        }
    }
    unsafe fn nvmlDeviceGetTemperatureV(
        &self,
        device: nvmlDevice_t,
        temperature: *mut nvmlTemperature_v1_t,
    ) -> nvmlReturn_t {
        if temperature.is_null() {
            return NVML_ERROR_INVALID_ARGUMENT;
        }
        // SAFETY: the contract of the call: the structure says its version and sensor.
        let asked = unsafe { temperature.read() };
        self.tell(device, temperature, |number| nvmlTemperature_v1_t {
            temperature: 31 + number as i32,
            ..asked
        })
    }
    unsafe fn nvmlDeviceGetPowerUsage(
        &self,
        device: nvmlDevice_t,
        power: *mut u32,
    ) -> nvmlReturn_t {
        self.tell(device, power, Self::power)
    }
    unsafe fn nvmlDeviceGetEnforcedPowerLimit(
        &self,
        device: nvmlDevice_t,
        limit: *mut u32,
    ) -> nvmlReturn_t {
        self.tell(device, limit, |_| 700_000)
    }
    unsafe fn nvmlDeviceGetTotalEnergyConsumption(
        &self,
        device: nvmlDevice_t,
        energy: *mut u64,
    ) -> nvmlReturn_t {
        self.tell(device, energy, |number| self.energy(number))
    }
    unsafe fn nvmlDeviceGetClockInfo(
        &self,
        device: nvmlDevice_t,
        clock: nvmlClockType_t,
        frequency: *mut u32,
    ) -> nvmlReturn_t {
        match clock {
            NVML_CLOCK_MEM => self.tell(device, frequency, |_| MEMORY_CLOCKS[0]),
            ..NVML_CLOCK_COUNT => self.tell(device, frequency, |_| GRAPHICS_CLOCKS[1]),
            _ => NVML_ERROR_INVALID_ARGUMENT,
        }
    }
    unsafe fn nvmlDeviceGetMaxClockInfo(
        &self,
        device: nvmlDevice_t,
        clock: nvmlClockType_t,
        frequency: *mut u32,
    ) -> nvmlReturn_t {
        match clock {
            NVML_CLOCK_MEM => self.tell(device, frequency, |_| MEMORY_CLOCKS[0]),
            ..NVML_CLOCK_COUNT => self.tell(device, frequency, |_| GRAPHICS_CLOCKS[0]),
            _ => NVML_ERROR_INVALID_ARGUMENT,
        }
    }
    unsafe fn nvmlDeviceGetSupportedMemoryClocks(
        &self,
        device: nvmlDevice_t,
        count: *mut u32,
        clocks: *mut u32,
    ) -> nvmlReturn_t {
        match self.number(device) {
            Ok(_) => put_list(count, clocks, &MEMORY_CLOCKS),
            Err(status) => status,
        }
    }
    unsafe fn nvmlDeviceGetSupportedGraphicsClocks(
        &self,
        device: nvmlDevice_t,
        memory: u32,
        count: *mut u32,
        clocks: *mut u32,
    ) -> nvmlReturn_t {
        match self.number(device) {
            Ok(_) if !MEMORY_CLOCKS.contains(&memory) => NVML_ERROR_NOT_FOUND,
            Ok(_) => put_list(count, clocks, &GRAPHICS_CLOCKS),
            Err(status) => status,
        }
    }
    unsafe fn nvmlDeviceGetPerformanceState(
        &self,
        device: nvmlDevice_t,
        state: *mut nvmlPstates_t,
    ) -> nvmlReturn_t {
        self.tell(device, state, |_| 0)
    }
    unsafe fn nvmlDeviceGetMigMode(
        &self,
        device: nvmlDevice_t,
        current: *mut u32,
        pending: *mut u32,
    ) -> nvmlReturn_t {
        match self.tell(device, current, |_| 0) {
            NVML_SUCCESS => put(pending, 0),
            status => status,
        }
    }
    unsafe fn nvmlDeviceGetComputeMode(
        &self,
        device: nvmlDevice_t,
        mode: *mut nvmlComputeMode_t,
    ) -> nvmlReturn_t {
        self.tell(device, mode, |_| 0)
    }
    unsafe fn nvmlDeviceGetComputeRunningProcesses_v3(
        &self,
        device: nvmlDevice_t,
        count: *mut u32,
        _infos: *mut nvmlProcessInfo_v2_t,
    ) -> nvmlReturn_t {
        // Who uses host memory is not this library's to know.
        self.tell(device, count, |_| 0)
    }
    unsafe fn nvmlDeviceGetFieldValues(
        &self,
        device: nvmlDevice_t,
        count: i32,
        values: *mut nvmlFieldValue_t,
    ) -> nvmlReturn_t {
        let number = match self.number(device) {
            Ok(number) => number,
            Err(status) => return status,
        };
        for index in 0..usize::try_from(count).unwrap_or(0) {
            let place = values.wrapping_add(index);
            // SAFETY: the contract of the call: so many values.
            let mut value = unsafe { place.read() };
            (value.timestamp, value.latencyUsec) = (0, 0);
            value.nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
            if value.fieldId == NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION {
                value.valueType = NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
                value.nvmlReturn = NVML_SUCCESS;
                value.value = nvmlValue_t {
                    ullVal: self.energy(number),
                };
            }
            // SAFETY: as above.
            unsafe { place.write(value) };
        }
        NVML_SUCCESS
    }
}
