//! Describes a backend's devices for clients.

use std::ffi::c_void;

use towline_backend::opencl::*;
use towline_session::DEVICE_BASE;
use towline_wire::snapshot::{Answers, Device, Snapshot};

use super::shared::Raw;

/// Why there is nothing to offer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenClOpenError {
    /// No device passed the selection.
    #[error(
        "no device to offer: {found} found, none selected (`towline serve --device` chooses among them)"
    )]
    NoDevice {
        /// Devices that the backend has.
        found: usize,
    },
    /// The backend does not list its platforms.
    #[error("the OpenCL runtime does not list its platforms ({0})")]
    Platforms(i32),
}

/// Platform queries whose answers travel.
const PLATFORM_QUERIES: &[u32] = &[
    CL_PLATFORM_PROFILE,
    CL_PLATFORM_VERSION,
    CL_PLATFORM_NAME,
    CL_PLATFORM_VENDOR,
    CL_PLATFORM_EXTENSIONS,
    CL_PLATFORM_HOST_TIMER_RESOLUTION,
    CL_PLATFORM_NUMERIC_VERSION,
    CL_PLATFORM_EXTENSIONS_WITH_VERSION,
];

/// Device queries are numbered without gaps worth naming; what a device does not know it refuses. Handles do not travel. The last two are
/// those of `cl_khr_spirv_queries` and of `cl_ext_float_atomics`.
const DEVICE_QUERIES: [std::ops::RangeInclusive<u32>; 5] = [
    0x1000..=0x107f,
    0x4000..=0x40ff,
    0x4100..=0x41ff,
    0x12b9..=0x12bb,
    0x4231..=0x4233,
];

/// Answers that are handles: the client knows their objects by other names.
const HANDLES: &[u32] = &[CL_DEVICE_PLATFORM, CL_DEVICE_PARENT_DEVICE];

/// Largest answer kept.
const ANSWER_LIMIT: usize = 1 << 20;

/// The selected devices, with the numbers that clients know them by.
pub(crate) fn take(
    api: &dyn OpenClApi,
    select: &dyn Fn(usize, &str) -> bool,
) -> Result<(Snapshot, Vec<(u64, Raw)>), OpenClOpenError> {
    let mut count = 0;
    // SAFETY: with no room given, only the count is written.
    let status = unsafe { api.clGetPlatformIDs(0, std::ptr::null_mut(), &raw mut count) };
    if status != CL_SUCCESS {
        return Err(OpenClOpenError::Platforms(status));
    }
    let mut platforms: Vec<cl_platform_id> = vec![std::ptr::null_mut(); count as usize];
    // SAFETY: room for `count` platforms.
    let status =
        unsafe { api.clGetPlatformIDs(count, platforms.as_mut_ptr(), std::ptr::null_mut()) };
    if status != CL_SUCCESS {
        return Err(OpenClOpenError::Platforms(status));
    }
    let mut snapshot = Snapshot::default();
    let mut natives = Vec::new();
    let mut found = 0;
    for platform in platforms {
        let mut chosen = Vec::new();
        for device in devices(api, platform) {
            let answers = device_answers(api, device);
            let name = answers.text(CL_DEVICE_NAME).unwrap_or_default();
            if select(found, &name) {
                chosen.push((device, answers));
            }
            found += 1;
        }
        if chosen.is_empty() {
            continue;
        }
        let index = snapshot.platforms.len() as u32;
        let answers = PLATFORM_QUERIES.iter().filter_map(|query| {
            // SAFETY: the platform is live.
            let answer = answer(|size, value, actual| unsafe {
                api.clGetPlatformInfo(platform, *query, size, value, actual)
            });
            Some((*query, answer?))
        });
        snapshot.platforms.push(Answers(answers.collect()));
        for (device, answers) in chosen {
            let handle = DEVICE_BASE | (natives.len() as u64 + 1);
            snapshot.devices.push(Device {
                handle,
                platform: index,
                answers,
            });
            natives.push((handle, Raw(device.cast())));
        }
    }
    if natives.is_empty() {
        Err(OpenClOpenError::NoDevice { found })
    } else {
        Ok((snapshot, natives))
    }
}

fn devices(api: &dyn OpenClApi, platform: cl_platform_id) -> Vec<cl_device_id> {
    let mut count = 0;
    let all = CL_DEVICE_TYPE_ALL as cl_device_type;
    // SAFETY: the platform is live; with no room given, only the count is written.
    let status =
        unsafe { api.clGetDeviceIDs(platform, all, 0, std::ptr::null_mut(), &raw mut count) };
    if status != CL_SUCCESS {
        return Vec::new();
    }
    let mut devices: Vec<cl_device_id> = vec![std::ptr::null_mut(); count as usize];
    // SAFETY: room for `count` devices.
    let status = unsafe {
        api.clGetDeviceIDs(
            platform,
            all,
            count,
            devices.as_mut_ptr(),
            std::ptr::null_mut(),
        )
    };
    if status == CL_SUCCESS {
        devices
    } else {
        Vec::new()
    }
}

fn device_answers(api: &dyn OpenClApi, device: cl_device_id) -> Answers {
    let queries = DEVICE_QUERIES
        .into_iter()
        .flatten()
        .filter(|query| !HANDLES.contains(query));
    let answers = queries.filter_map(|query| {
        // SAFETY: the device is live.
        let answer = answer(|size, value, actual| unsafe {
            api.clGetDeviceInfo(device, query, size, value, actual)
        });
        Some((query, answer?))
    });
    Answers(answers.collect())
}

/// Asks for the size, then for the answer.
fn answer(ask: impl Fn(usize, *mut c_void, *mut usize) -> cl_int) -> Option<Vec<u8>> {
    let mut size = 0;
    if ask(0, std::ptr::null_mut(), &raw mut size) != CL_SUCCESS || size > ANSWER_LIMIT {
        return None;
    }
    let mut value = vec![0; size];
    (ask(size, value.as_mut_ptr().cast(), std::ptr::null_mut()) == CL_SUCCESS).then_some(value)
}
