//! What a driver says of its devices. Some of it only a context knows: each device gets one for that, and it ends with the question.

use std::ffi::CStr;

use towline_backend::cuda::snapshot::{Device, Snapshot};
use towline_backend::cuda::*;

/// Why a driver cannot serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CudaOpenError {
    /// It refused a call.
    #[error("the CUDA driver refused {call}: {}", status_name(*status).unwrap_or("an unknown error"))]
    Driver {
        /// Which call.
        call: &'static str,
        /// What it said.
        status: CUresult,
    },
    /// It has no device, or none that was chosen.
    #[error("the CUDA driver has no device to offer")]
    NoDevice,
}

fn check(call: &'static str, status: CUresult) -> Result<(), CudaOpenError> {
    if status == CUDA_SUCCESS {
        Ok(())
    } else {
        Err(CudaOpenError::Driver { call, status })
    }
}

/// Describes the chosen devices, and gives the driver's numbers of them.
pub(super) fn take(
    api: &dyn CudaApi,
    genuine: bool,
    select: &dyn Fn(usize, &str) -> bool,
) -> Result<(Snapshot, Vec<CUdevice>), CudaOpenError> {
    // SAFETY: in this function and the next every call gets places for what it answers, and devices that the driver gave.
    check("cuInit", unsafe { api.cuInit(0) })?;
    let mut snapshot = Snapshot {
        genuine,
        ..Snapshot::default()
    };
    // SAFETY: as above.
    let status = unsafe { api.cuDriverGetVersion(&raw mut snapshot.driver_version) };
    check("cuDriverGetVersion", status)?;
    let mut count = 0;
    // SAFETY: as above.
    check("cuDeviceGetCount", unsafe {
        api.cuDeviceGetCount(&raw mut count)
    })?;
    let mut devices = Vec::new();
    for ordinal in 0..count {
        let mut device = 0;
        // SAFETY: as above.
        check("cuDeviceGet", unsafe {
            api.cuDeviceGet(&raw mut device, ordinal)
        })?;
        let described = describe(api, device)?;
        let name = String::from_utf8_lossy(&described.name);
        if select(ordinal as usize, &name) {
            snapshot.devices.push(described);
            devices.push(device);
        }
    }
    if devices.is_empty() {
        return Err(CudaOpenError::NoDevice);
    }
    Ok((snapshot, devices))
}

fn describe(api: &dyn CudaApi, device: CUdevice) -> Result<Device, CudaOpenError> {
    let mut described = Device::default();
    let mut name = [0_u8; 256];
    // SAFETY: as in `take`, and so in all below.
    let status = unsafe { api.cuDeviceGetName(name.as_mut_ptr().cast(), 256, device) };
    check("cuDeviceGetName", status)?;
    let text = CStr::from_bytes_until_nul(&name);
    described.name = text
        .map(|text| text.to_bytes().to_vec())
        .unwrap_or_default();
    let uuid: *mut CUuuid = described.uuid.as_mut_ptr().cast();
    // SAFETY: 16 bytes without alignment; as above.
    check("cuDeviceGetUuid", unsafe {
        api.cuDeviceGetUuid_v2(uuid, device)
    })?;
    let mut bytes = 0;
    // SAFETY: as above.
    check("cuDeviceTotalMem", unsafe {
        api.cuDeviceTotalMem_v2(&raw mut bytes, device)
    })?;
    described.total_bytes = bytes as u64;
    for attribute in 1..CU_DEVICE_ATTRIBUTE_MAX {
        let mut value = 0;
        // SAFETY: as above.
        let status = unsafe { api.cuDeviceGetAttribute(&raw mut value, attribute, device) };
        if status == CUDA_SUCCESS {
            described.attributes.push((attribute, value));
        }
    }
    let mut context: CUcontext = std::ptr::null_mut();
    // SAFETY: as above.
    let status = unsafe { api.cuDevicePrimaryCtxRetain(&raw mut context, device) };
    check("cuDevicePrimaryCtxRetain", status)?;
    // SAFETY: as above.
    unsafe { api.cuCtxSetCurrent(context) };
    for limit in 0..CU_LIMIT_MAX {
        let mut value = 0_usize;
        // SAFETY: as above.
        if unsafe { api.cuCtxGetLimit(&raw mut value, limit) } == CUDA_SUCCESS {
            described.limits.push((limit, value as u64));
        }
    }
    let (least, greatest) = (
        &raw mut described.priorities.0,
        &raw mut described.priorities.1,
    );
    // SAFETY: as above.
    unsafe { api.cuCtxGetStreamPriorityRange(least, greatest) };
    // SAFETY: as above.
    unsafe { api.cuCtxSetCurrent(std::ptr::null_mut()) };
    // SAFETY: the reference taken above.
    unsafe { api.cuDevicePrimaryCtxRelease_v2(device) };
    Ok(described)
}
