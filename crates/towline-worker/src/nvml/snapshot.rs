//! Starting NVML, and what it says of devices that never changes.

use std::ffi::CStr;

use towline_backend::nvml::snapshot::{Device, Snapshot};
use towline_backend::nvml::*;

use super::session::Native;

/// Why NVML cannot serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NvmlOpenError {
    /// It has no device, or none that was chosen.
    #[error("NVML has no device to offer")]
    NoDevice,
    /// It refused a call.
    #[error("NVML refused {call}: {}", status_name(*status).unwrap_or("an unknown error"))]
    Refused {
        /// Which call.
        call: &'static str,
        /// What it said.
        status: nvmlReturn_t,
    },
}

fn check(call: &'static str, status: nvmlReturn_t) -> Result<(), NvmlOpenError> {
    if status == NVML_SUCCESS {
        Ok(())
    } else {
        Err(NvmlOpenError::Refused { call, status })
    }
}

/// Text that a call writes with its NUL; empty where it refuses.
fn text(ask: impl FnOnce(*mut c_char, u32) -> nvmlReturn_t) -> Vec<u8> {
    let mut bytes = [0_u8; 128];
    if ask(bytes.as_mut_ptr().cast(), bytes.len() as u32) != NVML_SUCCESS {
        return Vec::new();
    }
    let text = CStr::from_bytes_until_nul(&bytes);
    text.map(|text| text.to_bytes().to_vec())
        .unwrap_or_default()
}

/// Starts the library; describes the chosen devices, and gives the library's tokens of them.
pub(super) fn take(
    api: &dyn NvmlApi,
    select: &dyn Fn(usize, &str, &str) -> bool,
) -> Result<(Snapshot, Vec<Native>), NvmlOpenError> {
    // SAFETY: in this function and the next every call gets places for what it answers, and devices that the library gave.
    check("nvmlInit", unsafe { api.nvmlInit_v2() })?;
    let mut snapshot = Snapshot {
        // SAFETY: as above.
        driver_version: text(|place, room| unsafe { api.nvmlSystemGetDriverVersion(place, room) }),
        // SAFETY: as above.
        nvml_version: text(|place, room| unsafe { api.nvmlSystemGetNVMLVersion(place, room) }),
        ..Snapshot::default()
    };
    // SAFETY: as above. A driver that does not say leaves the zero.
    let _ = unsafe { api.nvmlSystemGetCudaDriverVersion_v2(&raw mut snapshot.cuda_version) };
    let mut count = 0;
    // SAFETY: as above.
    check("nvmlDeviceGetCount", unsafe {
        api.nvmlDeviceGetCount_v2(&raw mut count)
    })?;
    let mut devices = Vec::new();
    for index in 0..count {
        let mut device: nvmlDevice_t = std::ptr::null_mut();
        // SAFETY: as above.
        let status = unsafe { api.nvmlDeviceGetHandleByIndex_v2(index, &raw mut device) };
        if status != NVML_SUCCESS {
            // A GPU that has fallen off the bus does not take the others with it.
            let name = status_name(status).unwrap_or("an unknown error");
            log::warn!("NVML does not give device {index}: {name}");
            continue;
        }
        let described = describe(api, device);
        let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (name, uuid) = (lossy(&described.name), lossy(&described.uuid));
        if select(index as usize, &name, &uuid) {
            snapshot.devices.push(Device {
                number: devices.len() as u32,
                ..described
            });
            devices.push(Native(device));
        }
    }
    if devices.is_empty() {
        return Err(NvmlOpenError::NoDevice);
    }
    Ok((snapshot, devices))
}

fn describe(api: &dyn NvmlApi, device: nvmlDevice_t) -> Device {
    let mut described = Device {
        // SAFETY: as in `take`, and so in all below.
        name: text(|place, room| unsafe { api.nvmlDeviceGetName(device, place, room) }),
        // SAFETY: as above.
        uuid: text(|place, room| unsafe { api.nvmlDeviceGetUUID(device, place, room) }),
        // SAFETY: as above.
        serial: text(|place, room| unsafe { api.nvmlDeviceGetSerial(device, place, room) }),
        ..Device::default()
    };
    let mut pci = nvmlPciInfo_t {
        busIdLegacy: [0; 16],
        domain: 0,
        bus: 0,
        device: 0,
        pciDeviceId: 0,
        pciSubSystemId: 0,
        busId: [0; 32],
    };
    // SAFETY: as above.
    if unsafe { api.nvmlDeviceGetPciInfo_v3(device, &raw mut pci) } == NVML_SUCCESS {
        described.place = [pci.domain, pci.bus, pci.device];
        described.ids = [pci.pciDeviceId, pci.pciSubSystemId];
    }
    let mut more = nvmlPciInfoExt_v1_t {
        version: size_of::<nvmlPciInfoExt_v1_t>() as u32 | 1 << 24,
        domain: 0,
        bus: 0,
        device: 0,
        pciDeviceId: 0,
        pciSubSystemId: 0,
        baseClass: 0,
        subClass: 0,
        busId: [0; 32],
    };
    // SAFETY: as above.
    if unsafe { api.nvmlDeviceGetPciInfoExt(device, &raw mut more) } == NVML_SUCCESS {
        described.class = [more.baseClass, more.subClass];
    }
    described
}
