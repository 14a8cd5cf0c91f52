//! What a driver says of its devices. Some of it only a context knows: one device of each kind gets one for that. Making and ending one
//! takes a driver some hundred milliseconds, in which other processes wait: those that a session is to find are kept.

use std::ffi::CStr;
use std::time::{Duration, Instant};

use towline_backend::cuda::snapshot::{Device, Snapshot};
use towline_backend::cuda::*;

use super::ahead::is_shared;

/// How long a context waits for memory: other processes may have all of it for a moment, and without a worker a program has no devices for as
/// long as it lives.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two attempts.
const RETRY: Duration = Duration::from_millis(200);

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

/// Chosen devices.
pub(super) struct Taken {
    pub(super) snapshot: Snapshot,
    /// The driver's numbers of them.
    pub(super) devices: Vec<CUdevice>,
    /// Those of the first `contexts` whose primary context is held.
    pub(super) held: Vec<CUdevice>,
}

/// Describes the chosen devices.
pub(super) fn take(
    api: &dyn CudaApi,
    genuine: bool,
    select: &dyn Fn(usize, &str) -> bool,
    contexts: usize,
) -> Result<Taken, CudaOpenError> {
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
    let (mut devices, mut held) = (Vec::new(), Vec::new());
    for ordinal in 0..count {
        let mut device = 0;
        // SAFETY: as above.
        check("cuDeviceGet", unsafe {
            api.cuDeviceGet(&raw mut device, ordinal)
        })?;
        let mut described = describe(api, device)?;
        let name = String::from_utf8_lossy(&described.name);
        if !select(ordinal as usize, &name) {
            continue;
        }
        let kind = |device: &Device| (device.name.clone(), device.total_bytes);
        let mut known = snapshot.devices.iter();
        if let Some(alike) = known.find(|known| kind(known) == kind(&described)) {
            described.limits = alike.limits.clone();
            described.priorities = alike.priorities;
        } else {
            ask_context(api, device, &mut described)?;
            if devices.len() < contexts && is_shared(api, device) {
                held.push(device);
            } else {
                // SAFETY: the reference that the question took.
                unsafe { api.cuDevicePrimaryCtxRelease_v2(device) };
            }
        }
        snapshot.devices.push(described);
        devices.push(device);
    }
    if devices.is_empty() {
        return Err(CudaOpenError::NoDevice);
    }
    Ok(Taken {
        snapshot,
        devices,
        held,
    })
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
    Ok(described)
}

/// Asks the primary context, and leaves a reference to it.
fn ask_context(
    api: &dyn CudaApi,
    device: CUdevice,
    described: &mut Device,
) -> Result<(), CudaOpenError> {
    let mut context: CUcontext = std::ptr::null_mut();
    let status = once_there_is_memory(PATIENCE, || {
        // SAFETY: as in `take`, and so in all below.
        unsafe { api.cuDevicePrimaryCtxRetain(&raw mut context, device) }
    });
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
    Ok(())
}

/// Runs `ask` until it does not lack memory, for so long at most.
fn once_there_is_memory(patience: Duration, mut ask: impl FnMut() -> CUresult) -> CUresult {
    let since = Instant::now();
    loop {
        let status = ask();
        if status != CUDA_ERROR_OUT_OF_MEMORY || since.elapsed() >= patience {
            return status;
        }
        log::debug!("the device has no memory for a context; trying again");
        std::thread::sleep(RETRY.min(patience));
    }
}

#[cfg(test)]
mod tests {
    use towline_backend::cuda::NullCuda;

    use super::*;
    use crate::cuda::ahead::tests::references;

    #[test]
    fn full_device_is_asked_again() {
        let mut answers = [CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS].into_iter();
        let status = once_there_is_memory(PATIENCE, || answers.next().expect("two answers"));
        assert_eq!(status, CUDA_SUCCESS);
        let mut asked = 0;
        let status = once_there_is_memory(Duration::ZERO, || {
            asked += 1;
            CUDA_ERROR_OUT_OF_MEMORY
        });
        assert_eq!((status, asked), (CUDA_ERROR_OUT_OF_MEMORY, 1));
    }

    #[test]
    fn other_failures_are_final() {
        let status = once_there_is_memory(PATIENCE, || CUDA_ERROR_NO_DEVICE);
        assert_eq!(status, CUDA_ERROR_NO_DEVICE);
    }

    #[test]
    fn context_of_the_question_is_kept_for_the_session() {
        for (contexts, held, kept) in [(0, vec![], [0, 0]), (1, vec![0], [1, 0])] {
            let null = NullCuda::new(2);
            let taken = take(&null, false, &|_, _| true, contexts).unwrap();
            assert_eq!(taken.held, held);
            assert_eq!([0, 1].map(|device| references(&null, device)), kept);
            let [first, second] = &taken.snapshot.devices[..] else {
                panic!("two devices");
            };
            assert!(!first.limits.is_empty());
            assert_eq!(
                (&first.limits, first.priorities),
                (&second.limits, second.priorities)
            );
        }
    }
}
