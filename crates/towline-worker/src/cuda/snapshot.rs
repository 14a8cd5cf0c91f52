//! What a driver says of its devices. Some of it only a context knows: one device of each kind gets one for that. Making and ending one
//! takes a driver some hundred milliseconds, in which other processes wait: those that a session is to find are kept.

use std::ffi::CStr;
use std::time::{Duration, Instant};

use towline_backend::cuda::snapshot::{Device, Snapshot};
use towline_backend::cuda::*;

use super::ahead::is_shared;

/// How long a context waits for memory: processes that have just ended may have some for a moment.
const PATIENCE: Duration = Duration::from_secs(2);
/// Statuses of a driver that cannot make a context now, and may later; a driver without any memory says one of the first two. Programs
/// are told of the device even so, and get the status when they ask for a context, as natively.
const NOT_NOW: [CUresult; 3] = [
    CUDA_ERROR_OUT_OF_MEMORY,
    CUDA_ERROR_UNKNOWN,
    CUDA_ERROR_DEVICE_UNAVAILABLE,
];
/// Priorities of streams where no context could be asked: those of all devices since compute capability 3.5 (seen with driver 580.159).
const PRIORITIES: (i32, i32) = (0, -5);
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
        let is_alike =
            |known: &&Device| kind(known) == kind(&described) && !known.limits.is_empty();
        if let Some(alike) = known.find(is_alike) {
            described.limits = alike.limits.clone();
            described.priorities = alike.priorities;
        } else if !ask_context(api, device, PATIENCE, &mut described)? {
            described.priorities = PRIORITIES;
        } else if devices.len() < contexts && is_shared(api, device) {
            held.push(device);
        } else {
            // SAFETY: the reference that the question took.
            unsafe { api.cuDevicePrimaryCtxRelease_v2(device) };
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

/// Asks the primary context, and leaves a reference to it; false where there can be none now.
fn ask_context(
    api: &dyn CudaApi,
    device: CUdevice,
    patience: Duration,
    described: &mut Device,
) -> Result<bool, CudaOpenError> {
    let call = "cuDevicePrimaryCtxRetain";
    let mut context: CUcontext = std::ptr::null_mut();
    let status = once_possible(patience, || {
        // SAFETY: as in `take`, and so in all below.
        unsafe { api.cuDevicePrimaryCtxRetain(&raw mut context, device) }
    });
    if NOT_NOW.contains(&status) {
        let name = status_name(status).unwrap_or("an unknown error");
        log::warn!(
            "device {device} has no context now, and is offered without: {call} says {name}"
        );
        return Ok(false);
    }
    check(call, status)?;
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
    Ok(true)
}

/// Runs `ask` until the driver can do it, for so long at most.
fn once_possible(patience: Duration, mut ask: impl FnMut() -> CUresult) -> CUresult {
    let since = Instant::now();
    loop {
        let status = ask();
        if !NOT_NOW.contains(&status) || since.elapsed() >= patience {
            return status;
        }
        log::debug!("the device has no context now; trying again");
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
        for first in NOT_NOW {
            let mut answers = [first, CUDA_SUCCESS].into_iter();
            let status = once_possible(PATIENCE, || answers.next().expect("two answers"));
            assert_eq!(status, CUDA_SUCCESS);
        }
        let mut asked = 0;
        let status = once_possible(Duration::ZERO, || {
            asked += 1;
            CUDA_ERROR_OUT_OF_MEMORY
        });
        assert_eq!((status, asked), (CUDA_ERROR_OUT_OF_MEMORY, 1));
    }

    #[test]
    fn device_without_memory_is_offered() {
        let null = NullCuda::new(2);
        null.refuse_contexts(CUDA_ERROR_UNKNOWN);
        let taken = take(&null, false, &|ordinal, _| ordinal == 0, 1).unwrap();
        assert_eq!((taken.devices, taken.held), (vec![0], vec![]));
        let described = &taken.snapshot.devices[0];
        assert!(described.limits.is_empty() && !described.attributes.is_empty());
        assert_eq!(described.priorities, PRIORITIES);
        null.refuse_contexts(CUDA_ERROR_ECC_UNCORRECTABLE);
        assert!(take(&null, false, &|_, _| true, 1).is_err());
    }

    #[test]
    fn other_failures_are_final() {
        let status = once_possible(PATIENCE, || CUDA_ERROR_NO_DEVICE);
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
