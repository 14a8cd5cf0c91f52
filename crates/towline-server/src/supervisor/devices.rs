//! The devices of a server as its clients are told of them: those of their tenant, with no more memory and time than they may have.

use towline_wire::control::Purpose;
use towline_wire::cuda::CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT;
use towline_wire::cuda::snapshot::uuid_text;
use towline_wire::{cuda, nvml, snapshot as opencl};

use super::Shared;
use super::quota::Quota;
use super::tenant::Tenant;

/// The reason of a server that was started without CUDA. `towline slurm` knows these three too.
const NO_CUDA: &str = "this server gives no CUDA devices";
/// Of a worker's reason where no driver is installed, or ours in its place.
const NO_DRIVER: &str = "cannot load the CUDA driver library";
const OWN_LIBRARY: &str = "is Towline's own library";

/// Kinds of lists of devices.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Snapshots {
    Cuda,
    Nvml,
    OpenCl,
}

impl Snapshots {
    /// The list that the worker of a session gives.
    pub(super) fn of(purpose: Purpose) -> Self {
        match purpose {
            Purpose::CudaSession => Self::Cuda,
            Purpose::Nvml => Self::Nvml,
            _ => Self::OpenCl,
        }
    }

    pub(super) fn api(self) -> &'static str {
        match self {
            Self::Cuda => "CUDA",
            Self::Nvml => "NVML",
            Self::OpenCl => "OpenCL",
        }
    }
}

/// The devices for OpenCL of which a tenant is told; none where the server has none.
pub(super) fn of_opencl(shared: &Shared, tenant: &Tenant) -> Vec<u8> {
    match &shared.pool {
        Ok(pool) => chosen(Snapshots::OpenCl, &pool.snapshot(), tenant).1,
        Err(_) => opencl::Snapshot::default().encode(),
    }
}

/// The devices for CUDA of which a tenant is told; in the error, why there are none.
/// Not waited for where `is_over` says so.
pub(super) fn of_cuda(
    shared: &Shared,
    tenant: &Tenant,
    is_over: &dyn Fn() -> bool,
) -> Result<Vec<u8>, String> {
    let snapshot = all_of_cuda(shared, is_over)?;
    Ok(chosen(Snapshots::Cuda, &snapshot, tenant).1)
}

fn all_of_cuda(shared: &Shared, is_over: &dyn Fn() -> bool) -> Result<Vec<u8>, String> {
    match &shared.cuda_pool {
        Some(pool) => pool.look(&shared.draining, is_over),
        None => Err(NO_CUDA.into()),
    }
}

/// Numbers of a tenant's devices among those of a list, and the list of them alone. `None` where the tenant has all.
pub(super) fn chosen(
    kind: Snapshots,
    snapshot: &[u8],
    tenant: &Tenant,
) -> (Option<Vec<u32>>, Vec<u8>) {
    let words = tenant.devices();
    if words.is_empty() {
        return (None, snapshot.to_vec());
    }
    let (numbers, told) = keep(kind, snapshot, &words);
    (Some(numbers), told)
}

/// A list that cannot be read has no devices for anyone who has not all.
fn keep(kind: Snapshots, snapshot: &[u8], words: &[String]) -> (Vec<u32>, Vec<u8>) {
    let mut numbers = Vec::new();
    let is_named = |number, uuid: &str| words.iter().any(|word| names(word, number, uuid));
    let mut is_kept = |number: usize, uuid: &str| {
        let is_kept = is_named(number, uuid);
        if is_kept {
            numbers.push(number as u32);
        }
        is_kept
    };
    let told = match kind {
        Snapshots::Cuda => {
            let mut told = cuda::snapshot::Snapshot::decode(snapshot).unwrap_or_default();
            let mut number = 0..;
            told.devices.retain(|device| {
                is_kept(number.next().unwrap_or_default(), &uuid_text(&device.uuid))
            });
            told.encode()
        }
        Snapshots::Nvml => {
            let mut told = nvml::snapshot::Snapshot::decode(snapshot).unwrap_or_default();
            told.devices.retain(|device| {
                let uuid = String::from_utf8_lossy(&device.uuid);
                is_kept(device.number as usize, bare(&uuid))
            });
            told.encode()
        }
        Snapshots::OpenCl => {
            let mut told = opencl::Snapshot::decode(snapshot).unwrap_or_default();
            let uuid = |device: &opencl::Device| device.uuid().map(|uuid| uuid_text(&uuid));
            for (number, device) in told.devices.iter().enumerate() {
                is_kept(number, &uuid(device).unwrap_or_default());
            }
            told.keep(|number, _| numbers.contains(&(number as u32)));
            told.encode()
        }
    };
    (numbers, told)
}

/// Whether a word of a tenant's entry means a device: its number, or the beginning of its UUID. A device without a UUID has a number only.
pub(super) fn names(word: &str, number: usize, uuid: &str) -> bool {
    match is_number(word) {
        true => word.parse() == Ok(number),
        false => !bare(word).is_empty() && uuid.starts_with(&bare(word).to_ascii_lowercase()),
    }
}

/// Up to three digits are a number, more the beginning of a UUID.
fn is_number(word: &str) -> bool {
    word.len() <= 3 && word.bytes().all(|byte| byte.is_ascii_digit())
}

/// A UUID without the kind of device before it.
fn bare(uuid: &str) -> &str {
    let prefixes = ["GPU-", "MIG-"];
    let found = prefixes.iter().find_map(|prefix| uuid.strip_prefix(prefix));
    found.unwrap_or(uuid)
}

/// Names of the devices of a list, the same for sessions of both APIs; `numbers` are theirs among all, where the list has not all. A device
/// without a UUID is known to one API only.
pub(super) fn scheduled(kind: Snapshots, snapshot: &[u8], numbers: Option<&[u32]>) -> Vec<String> {
    let uuids: Vec<Option<String>> = match kind {
        Snapshots::OpenCl => {
            let told = opencl::Snapshot::decode(snapshot).unwrap_or_default();
            let uuid = |device: &opencl::Device| device.uuid().map(|uuid| uuid_text(&uuid));
            told.devices.iter().map(uuid).collect()
        }
        _ => {
            let told = cuda::snapshot::Snapshot::decode(snapshot).unwrap_or_default();
            let uuids = told.devices.iter();
            uuids.map(|device| Some(uuid_text(&device.uuid))).collect()
        }
    };
    let number = |place: usize| numbers.and_then(|numbers| numbers.get(place)).copied();
    let named = uuids.into_iter().enumerate().map(|(place, uuid)| {
        let number = number(place).unwrap_or(place as u32);
        uuid.unwrap_or_else(|| format!("{} {number}", kind.api()))
    });
    named.collect()
}

/// A device that can be leased.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Leasable {
    pub(super) number: usize,
    /// Without a kind before it; empty where the device has none.
    pub(super) uuid: String,
    pub(super) bytes: u64,
}

impl Leasable {
    /// The name of the device in a tenant's entry.
    pub(super) fn name(&self) -> String {
        match self.uuid.is_empty() {
            true => self.number.to_string(),
            false => format!("GPU-{}", self.uuid),
        }
    }

    pub(super) fn is_named(&self, word: &str) -> bool {
        names(word, self.number, &self.uuid)
    }
}

/// Devices that can be leased: those for CUDA, which OpenCL and NVML know by the same UUIDs, or those for OpenCL where the server serves no
/// CUDA. In the error, why CUDA's are not known: a lease of GPUs must not become one of processors.
pub(super) fn leasable(shared: &Shared) -> Result<Vec<Leasable>, String> {
    match all_of_cuda(shared, &|| false) {
        Ok(snapshot) => leasable_for_cuda(&snapshot),
        Err(reason) => {
            let is_expected = shared.cuda_pool.is_some() && shared.config.cuda_is_expected;
            match is_expected || !serves_no_cuda(&reason) {
                true => Err(format!("the server's CUDA devices are not known: {reason}")),
                false => Ok(leasable_for_opencl(shared)),
            }
        }
    }
}

/// Whether CUDA's reason means that there will be no devices: CUDA is off, or no driver is installed. Any other failure may pass.
fn serves_no_cuda(reason: &str) -> bool {
    let mut reasons = [NO_CUDA, NO_DRIVER, OWN_LIBRARY].iter();
    reasons.any(|none| reason.contains(none))
}

fn leasable_for_cuda(snapshot: &[u8]) -> Result<Vec<Leasable>, String> {
    let cuda = cuda::snapshot::Snapshot::decode(snapshot);
    let cuda = cuda.map_err(|error| format!("the list of CUDA devices: {error}"))?;
    let device = |(number, device): (usize, &cuda::snapshot::Device)| Leasable {
        number,
        uuid: uuid_text(&device.uuid),
        bytes: device.total_bytes,
    };
    Ok(cuda.devices.iter().enumerate().map(device).collect())
}

fn leasable_for_opencl(shared: &Shared) -> Vec<Leasable> {
    let opencl = shared.pool.as_ref().ok();
    let opencl = opencl.and_then(|pool| opencl::Snapshot::decode(&pool.snapshot()).ok());
    let device = |(number, device): (usize, &opencl::Device)| Leasable {
        number,
        uuid: device
            .uuid()
            .map(|uuid| uuid_text(&uuid))
            .unwrap_or_default(),
        bytes: device.memory_bytes(),
    };
    let opencl = opencl.unwrap_or_default();
    opencl.devices.iter().enumerate().map(device).collect()
}

/// The devices as a session is told of them: with no more memory and time than it may have.
pub(super) fn limited(kind: Snapshots, snapshot: &[u8], quota: &Quota) -> Vec<u8> {
    let memory_limit = match quota.device_memory_bytes {
        0 => u64::MAX,
        bytes => bytes,
    };
    let limited = match kind {
        Snapshots::Cuda => {
            cuda::snapshot::Snapshot::decode(snapshot).map(|mut told| {
                for device in &mut told.devices {
                    device.total_bytes = device.total_bytes.min(memory_limit);
                    if quota.kernel_time_ms > 0 {
                        device.set_attribute(CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT, 1);
                    }
                }
                told.encode()
            })
        }
        .ok(),
        _ if memory_limit == u64::MAX => None,
        _ => opencl::Snapshot::decode(snapshot).ok().map(|mut told| {
            told.limit_memory(memory_limit);
            told.encode()
        }),
    };
    limited.unwrap_or_else(|| snapshot.to_vec())
}

/// Memory of all devices of a list; 0 where it is not known.
pub(super) fn memory(kind: Snapshots, snapshot: &[u8]) -> u64 {
    let bytes = match kind {
        Snapshots::Cuda => cuda::snapshot::Snapshot::decode(snapshot).map(|told| {
            let sizes = told.devices.iter().map(|device| device.total_bytes);
            sizes.fold(0, u64::saturating_add)
        }),
        _ => opencl::Snapshot::decode(snapshot).map(|told| told.memory_bytes()),
    };
    bytes.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "8f2c0000-0000-0000-0000-000000000001";

    #[test]
    fn words_mean_numbers_or_beginnings_of_uuids() {
        for word in [
            "1",
            "GPU-8f2c",
            "GPU-8F2C0000",
            "8f2c0000",
            UUID,
            "MIG-8f2c",
        ] {
            assert!(names(word, 1, UUID), "{word}");
        }
        for word in ["0", "11", "GPU-", "", "GPU-8f2d", "2c00", "8f2c0000-1"] {
            assert!(!names(word, 1, UUID), "{word}");
        }
        assert!(names("1", 1, "") && !names("GPU-8f2c", 1, ""));
    }

    #[test]
    fn failing_driver_is_no_lack_of_cuda() {
        let missing = towline_backend::cuda::NativeCuda::from_library("/nonexistent/libcuda.so");
        let missing = missing.err().expect("there is none").to_string();
        assert!(serves_no_cuda(&missing), "{missing}");
        assert!(serves_no_cuda(NO_CUDA));
        for passing in [
            "cuInit: CUDA_ERROR_UNKNOWN",
            "no worker was ready within 60 s",
            "",
        ] {
            assert!(!serves_no_cuda(passing), "{passing}");
        }
        assert!(leasable_for_cuda(b"garbage").is_err());
    }

    #[test]
    fn list_that_cannot_be_read_has_no_devices() {
        for kind in [Snapshots::Cuda, Snapshots::Nvml, Snapshots::OpenCl] {
            let (numbers, _) = keep(kind, b"garbage", &["0".to_owned()]);
            assert!(numbers.is_empty());
        }
    }

    #[test]
    fn kept_devices_are_told_alone() {
        let device = |first| cuda::snapshot::Device {
            uuid: [first; 16],
            ..Default::default()
        };
        let all = cuda::snapshot::Snapshot {
            devices: vec![device(0xa0), device(0xb0), device(0xc0)],
            ..Default::default()
        };
        let words = ["GPU-c0c0".to_owned(), "0".to_owned()];
        let (numbers, told) = keep(Snapshots::Cuda, &all.encode(), &words);
        let told = cuda::snapshot::Snapshot::decode(&told).unwrap();
        assert_eq!(numbers, [0, 2]);
        assert_eq!(told.devices, [device(0xa0), device(0xc0)]);
    }
}
