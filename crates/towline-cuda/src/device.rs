//! Devices: one list over all servers, described from what each server told when its session began.

use std::ffi::{CStr, c_char, c_void};
use std::sync::{Mutex, OnceLock};

use towline_backend::cuda as wire;
use towline_backend::cuda::*;
use towline_client::cuda::Session;
use towline_wire::cuda::snapshot;

use crate::driver::{DeviceCalls, Driver, actor, status, tell};
use crate::policy::{self, Policy};

/// A device of a server.
pub(crate) struct Device {
    /// The server's session.
    pub(crate) session: u8,
    /// The server's place among those that the environment names: its PCI domain, as in NVML.
    pub(crate) domain: u16,
    /// Its number on the server.
    pub(crate) ordinal: i32,
    /// The server is on this host.
    here: bool,
    pub(crate) facts: snapshot::Device,
    /// The number of its primary context, whether that lives or not.
    pub(crate) primary: u64,
    pub(crate) references: Mutex<Primary>,
    /// How its multiprocessors are grouped, once a library has asked.
    pub(crate) grouping: OnceLock<[Vec<u8>; 2]>,
}

/// How a device's primary context is held.
#[derive(Default)]
pub(crate) struct Primary {
    pub(crate) references: u32,
    pub(crate) flags: u32,
}

impl Device {
    pub(crate) fn new(
        session: u8,
        domain: u16,
        ordinal: i32,
        facts: &snapshot::Device,
        link: &Session,
    ) -> Self {
        Self {
            session,
            domain,
            ordinal,
            here: link.shares_memory(),
            facts: facts.clone(),
            primary: link.mint(wire::ContextHandle::TAG),
            references: Mutex::default(),
            grouping: OnceLock::new(),
        }
    }

    /// The value of an attribute as this driver has it.
    pub(crate) fn attribute(&self, attribute: CUdevice_attribute) -> i32 {
        match policy::of(attribute) {
            // Both need memory at addresses of our choice.
            Policy::Pass
                if matches!(
                    attribute,
                    CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY | CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY
                ) =>
            {
                let has = |attribute| self.facts.attribute(attribute).unwrap_or(0) != 0;
                let placed = has(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
                i32::from(has(attribute) && placed)
            }
            Policy::Pass => self.facts.attribute(attribute).unwrap_or(0),
            Policy::Mask => 0,
            // Each server has a domain of its own, so that no two devices have the same place.
            Policy::Compute if attribute == CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID => {
                i32::from(self.domain)
            }
            Policy::Compute if attribute == CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES => {
                let known = self.facts.attribute(attribute).unwrap_or(0);
                known & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR as i32
            }
            Policy::Compute if attribute == CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID && self.here => {
                self.facts.attribute(attribute).unwrap_or(-1)
            }
            Policy::Compute => -1,
        }
    }

    /// Whether the server's driver knows an attribute. Later ones it refuses.
    fn knows(&self, attribute: CUdevice_attribute) -> bool {
        let known = self.facts.attributes.iter().map(|(known, _)| *known).max();
        attribute > 0 && known.is_some_and(|last| attribute <= last)
    }

    /// The PCI place of the device: domain, bus, device.
    pub(crate) fn place(&self) -> [i32; 3] {
        [
            CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID,
            CU_DEVICE_ATTRIBUTE_PCI_BUS_ID,
            CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID,
        ]
        .map(|attribute| self.attribute(attribute))
    }

    fn bus_id(&self) -> String {
        let [domain, bus, device] = self.place();
        format!("{domain:04x}:{bus:02x}:{device:02x}.0").to_uppercase()
    }
}

/// The devices that `CUDA_VISIBLE_DEVICES` shows, in its order: numbers, or UUIDs and unambiguous starts of them, up to the first that
/// is none. One that is named twice hides all.
pub(crate) fn visible(list: &str, uuids: &[[u8; 16]]) -> Vec<usize> {
    let mut chosen = Vec::new();
    for word in list.split(',').map(str::trim) {
        let Some(index) = named(word, uuids) else {
            break;
        };
        if chosen.contains(&index) {
            return Vec::new();
        }
        chosen.push(index);
    }
    chosen
}

fn named(word: &str, uuids: &[[u8; 16]]) -> Option<usize> {
    if let Some(start) = word.strip_prefix("GPU-") {
        let start = start.to_lowercase();
        let mut fit = uuids
            .iter()
            .enumerate()
            .filter(|(_, uuid)| uuid_text(uuid).starts_with(&start));
        let (index, _) = fit.next().filter(|_| !start.is_empty())?;
        return fit.next().is_none().then_some(index);
    }
    // As the driver reads numbers: digits at the front count.
    let digits = word
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(word.len());
    let index = word.get(..digits)?.parse().ok()?;
    (index < uuids.len()).then_some(index)
}

/// The UUID without the `GPU-` before it.
pub(crate) fn uuid_text(uuid: &[u8; 16]) -> String {
    let hex: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    [0..8, 8..12, 12..16, 16..20, 20..32]
        .map(|part| hex.get(part).unwrap_or_default())
        .join("-")
}

impl Driver {
    /// A device by its number.
    pub(crate) fn device(&self, device: CUdevice) -> Result<&Device, CUresult> {
        let devices = &self.ready()?.devices;
        let found = usize::try_from(device)
            .ok()
            .and_then(|index| devices.get(index));
        found.ok_or(CUDA_ERROR_INVALID_DEVICE)
    }
}

/// Writes text with its NUL, cut to what there is room for.
///
/// # Safety
/// `target` is NULL or writable for `room` bytes.
unsafe fn tell_text(target: *mut c_char, room: i32, text: &[u8]) -> CUresult {
    let Ok(room @ 1..) = usize::try_from(room) else {
        return CUDA_ERROR_INVALID_VALUE;
    };
    if target.is_null() {
        return CUDA_ERROR_INVALID_VALUE;
    }
    let text = text.get(..room - 1).unwrap_or(text);
    let bytes = text.iter().copied().chain([0]);
    // SAFETY: the caller's contract.
    unsafe { crate::raw::fill(target.cast::<u8>(), room, bytes) };
    CUDA_SUCCESS
}

impl DeviceCalls for Driver {
    unsafe fn cuDeviceGet(&self, device: *mut CUdevice, ordinal: i32) -> CUresult {
        // SAFETY: the caller's contract.
        unsafe { tell(device, self.device(ordinal).map(|_| ordinal)) }
    }

    unsafe fn cuDeviceGetCount(&self, count: *mut i32) -> CUresult {
        let devices = self.ready().map(|started| started.devices.len() as i32);
        // SAFETY: the caller's contract.
        unsafe { tell(count, devices) }
    }

    unsafe fn cuDeviceGetName(&self, name: *mut c_char, len: i32, dev: CUdevice) -> CUresult {
        match self.device(dev) {
            // SAFETY: the caller's contract.
            Ok(device) => unsafe { tell_text(name, len, &device.facts.name) },
            Err(status) => status,
        }
    }

    unsafe fn cuDeviceGetUuid(&self, uuid: *mut CUuuid, dev: CUdevice) -> CUresult {
        let bytes = self.device(dev).map(|device| CUuuid {
            bytes: device.facts.uuid.map(|byte| byte as c_char),
        });
        // SAFETY: the caller's contract.
        unsafe { tell(uuid, bytes) }
    }

    unsafe fn cuDeviceGetUuid_v2(&self, uuid: *mut CUuuid, dev: CUdevice) -> CUresult {
        // SAFETY: the caller's contract.
        unsafe { DeviceCalls::cuDeviceGetUuid(self, uuid, dev) }
    }

    unsafe fn cuDeviceGetLuid(&self, _: *mut c_char, _: *mut u32, dev: CUdevice) -> CUresult {
        // Only Windows has such ids.
        match self.device(dev) {
            Ok(_) => CUDA_ERROR_NOT_SUPPORTED,
            Err(status) => status,
        }
    }

    unsafe fn cuDeviceTotalMem_v2(&self, bytes: *mut usize, dev: CUdevice) -> CUresult {
        let total = self
            .device(dev)
            .map(|device| device.facts.total_bytes as usize);
        // SAFETY: the caller's contract.
        unsafe { tell(bytes, total) }
    }

    unsafe fn cuDeviceGetTexture1DLinearMaxWidth(
        &self,
        maxWidthInElements: *mut usize,
        _format: CUarray_format,
        _numChannels: u32,
        dev: CUdevice,
    ) -> CUresult {
        let width = self.device(dev).map(|device| {
            device.attribute(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH) as usize
        });
        // SAFETY: the caller's contract.
        unsafe { tell(maxWidthInElements, width) }
    }

    unsafe fn cuDeviceGetAttribute(
        &self,
        pi: *mut i32,
        attrib: CUdevice_attribute,
        dev: CUdevice,
    ) -> CUresult {
        let value = self
            .device(dev)
            .and_then(|device| match device.knows(attrib) {
                true => Ok(device.attribute(attrib)),
                false => Err(CUDA_ERROR_INVALID_VALUE),
            });
        // SAFETY: the caller's contract.
        unsafe { tell(pi, value) }
    }

    unsafe fn cuDeviceGetProperties(&self, prop: *mut CUdevprop, dev: CUdevice) -> CUresult {
        let properties = self.device(dev).map(|device| {
            let of = |attribute| device.attribute(attribute);
            CUdevprop {
                maxThreadsPerBlock: of(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
                maxThreadsDim: [
                    of(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X),
                    of(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y),
                    of(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z),
                ],
                maxGridSize: [
                    of(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X),
                    of(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y),
                    of(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z),
                ],
                sharedMemPerBlock: of(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK),
                totalConstantMemory: of(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY),
                SIMDWidth: of(CU_DEVICE_ATTRIBUTE_WARP_SIZE),
                memPitch: of(CU_DEVICE_ATTRIBUTE_MAX_PITCH),
                regsPerBlock: of(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK),
                clockRate: of(CU_DEVICE_ATTRIBUTE_CLOCK_RATE),
                textureAlign: of(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT),
            }
        });
        // SAFETY: the caller's contract.
        unsafe { tell(prop, properties) }
    }

    unsafe fn cuDeviceComputeCapability(
        &self,
        major: *mut i32,
        minor: *mut i32,
        dev: CUdevice,
    ) -> CUresult {
        let of = |attribute| self.device(dev).map(|device| device.attribute(attribute));
        // SAFETY: the caller's contract.
        let told = unsafe { tell(major, of(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)) };
        if told != CUDA_SUCCESS {
            return told;
        }
        // SAFETY: the caller's contract.
        unsafe { tell(minor, of(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)) }
    }

    unsafe fn cuDeviceGetByPCIBusId(
        &self,
        dev: *mut CUdevice,
        pciBusId: *const c_char,
    ) -> CUresult {
        if pciBusId.is_null() {
            return CUDA_ERROR_INVALID_VALUE;
        }
        // SAFETY: the caller's contract: a NUL-terminated string.
        let wanted = unsafe { CStr::from_ptr(pciBusId) };
        let wanted = wanted.to_string_lossy().to_uppercase();
        let found = self.ready().and_then(|started| {
            let fits = |device: &Device| {
                let id = device.bus_id();
                let short = id.strip_suffix(".0").unwrap_or(&id);
                wanted == id || wanted == short || format!("{:04X}:{wanted}", device.domain) == id
            };
            let index = started.devices.iter().position(fits);
            index
                .map(|index| index as CUdevice)
                .ok_or(CUDA_ERROR_INVALID_DEVICE)
        });
        // SAFETY: the caller's contract.
        unsafe { tell(dev, found) }
    }

    unsafe fn cuDeviceGetPCIBusId(
        &self,
        pciBusId: *mut c_char,
        len: i32,
        dev: CUdevice,
    ) -> CUresult {
        match self.device(dev) {
            // SAFETY: the caller's contract.
            Ok(device) => unsafe { tell_text(pciBusId, len, device.bus_id().as_bytes()) },
            Err(status) => status,
        }
    }

    unsafe fn cuDeviceCanAccessPeer(
        &self,
        canAccessPeer: *mut i32,
        dev: CUdevice,
        peerDev: CUdevice,
    ) -> CUresult {
        // SAFETY: the caller's contract.
        unsafe { tell(canAccessPeer, self.can_access(dev, peerDev)) }
    }

    unsafe fn cuDeviceGetP2PAttribute(
        &self,
        value: *mut i32,
        attrib: CUdevice_P2PAttribute,
        srcDevice: CUdevice,
        dstDevice: CUdevice,
    ) -> CUresult {
        let told = self.path_attribute(attrib, srcDevice, dstDevice);
        // SAFETY: the caller's contract.
        unsafe { tell(value, told) }
    }

    unsafe fn cuDeviceTotalMem(&self, bytes: *mut u32, dev: CUdevice) -> CUresult {
        let total = self.device(dev).map(|device| device.facts.total_bytes);
        let total = total.map(|bytes| u32::try_from(bytes).unwrap_or(u32::MAX));
        // SAFETY: the caller's contract.
        unsafe { tell(bytes, total) }
    }

    unsafe fn cuDeviceGetHostAtomicCapabilities(
        &self,
        capabilities: *mut u32,
        operations: *const CUatomicOperation,
        count: u32,
        dev: CUdevice,
    ) -> CUresult {
        // SAFETY: the caller's contract, passed on.
        let told = unsafe { no_atomics(capabilities, operations, count) };
        status(self.device(dev).and(told))
    }

    unsafe fn cuDeviceGetP2PAtomicCapabilities(
        &self,
        capabilities: *mut u32,
        operations: *const CUatomicOperation,
        count: u32,
        srcDevice: CUdevice,
        dstDevice: CUdevice,
    ) -> CUresult {
        let devices = self.device(srcDevice).and(self.device(dstDevice));
        if devices.is_err() || srcDevice == dstDevice {
            return CUDA_ERROR_INVALID_DEVICE;
        }
        // SAFETY: the caller's contract, passed on.
        status(unsafe { no_atomics(capabilities, operations, count) })
    }

    unsafe fn cuDeviceGetGraphMemAttribute(
        &self,
        device: CUdevice,
        attr: CUgraphMem_attribute,
        value: *mut c_void,
    ) -> CUresult {
        let told = self.device(device).and_then(|known| {
            let session = self.session(known.session)?;
            let request = wire::DeviceGetGraphMemAttribute {
                device: known.ordinal,
                attr,
            };
            let call = "cuDeviceGetGraphMemAttribute";
            let body = session.call(actor(0), call, &request)?;
            let reply = wire::DeviceGetGraphMemAttributeReply::decode(&body);
            let reply = reply.map_err(|_| session.malformed())?;
            let bytes = reply.value.and_then(|value| value.try_into().ok());
            bytes
                .map(u64::from_le_bytes)
                .ok_or_else(|| session.malformed())
        });
        // SAFETY: the caller's contract: room for 64 bits.
        unsafe { tell(value.cast::<u64>(), told) }
    }

    unsafe fn cuDeviceSetGraphMemAttribute(
        &self,
        device: CUdevice,
        attr: CUgraphMem_attribute,
        value: *mut c_void,
    ) -> CUresult {
        if value.is_null() {
            return CUDA_ERROR_INVALID_VALUE;
        }
        // SAFETY: the caller's contract: 64 bits.
        let given = unsafe { value.cast::<u64>().read_unaligned() };
        status(self.device(device).and_then(|known| {
            let session = self.session(known.session)?;
            let request = wire::DeviceSetGraphMemAttribute {
                device: known.ordinal,
                attr,
                value: &given.to_le_bytes(),
            };
            let call = "cuDeviceSetGraphMemAttribute";
            session.call(actor(0), call, &request).map(|_| ())
        }))
    }

    unsafe fn cuDeviceGraphMemTrim(&self, device: CUdevice) -> CUresult {
        status(self.device(device).and_then(|known| {
            let request = wire::DeviceGraphMemTrim {
                device: known.ordinal,
            };
            self.session(known.session)?.post_plain(&request)
        }))
    }

    unsafe fn cuDeviceGetExecAffinitySupport(
        &self,
        pi: *mut i32,
        _type: CUexecAffinityType,
        dev: CUdevice,
    ) -> CUresult {
        // SAFETY: the caller's contract.
        unsafe { tell(pi, self.device(dev).map(|_| 0)) }
    }
}

/// Says of each operation that it has no form that works on another's memory.
///
/// # Safety
/// Both are as long as said.
unsafe fn no_atomics(
    capabilities: *mut u32,
    operations: *const CUatomicOperation,
    count: u32,
) -> Result<(), CUresult> {
    // SAFETY: the caller's contract.
    let operations = unsafe { crate::raw::slice(operations, count as usize) };
    let operations = operations.filter(|list| !list.is_empty() && !capabilities.is_null());
    let operations = operations.ok_or(CUDA_ERROR_INVALID_VALUE)?;
    if operations.iter().any(|one| *one >= CU_ATOMIC_OPERATION_MAX) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let none = operations.iter().map(|_| 0);
    // SAFETY: as above.
    unsafe { crate::raw::fill(capabilities, count as usize, none) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUIDS: [[u8; 16]; 3] = [[0x11; 16], [0x12; 16], [0xab; 16]];

    #[test]
    fn devices_are_shown_by_number_in_the_order_named() {
        assert_eq!(visible("2,0", &UUIDS), [2, 0]);
        assert_eq!(visible(" 1 ", &UUIDS), [1]);
        assert_eq!(visible("", &UUIDS), [0; 0]);
    }

    #[test]
    fn devices_are_shown_by_uuid_and_by_its_start_where_one_fits() {
        let whole = format!("GPU-{}", uuid_text(&UUIDS[2]));
        assert_eq!(visible(&whole, &UUIDS), [2]);
        assert_eq!(visible("GPU-12,GPU-AB", &UUIDS), [1, 2]);
        assert_eq!(visible("GPU-1", &UUIDS), [0; 0]);
        assert_eq!(visible("GPU-", &UUIDS), [0; 0]);
    }

    #[test]
    fn the_list_ends_at_the_first_device_that_is_not_there() {
        assert_eq!(visible("0,-1,1", &UUIDS), [0]);
        assert_eq!(visible("1,3,0", &UUIDS), [1]);
        assert_eq!(visible("NoDevFiles", &UUIDS), [0; 0]);
    }

    #[test]
    fn a_device_named_twice_hides_all() {
        assert_eq!(visible("0,1,0", &UUIDS), [0; 0]);
    }

    #[test]
    fn uuids_are_written_as_the_driver_writes_them() {
        let uuid = [
            0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a, 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd,
            0x9d, 0xf9,
        ];
        assert_eq!(uuid_text(&uuid), "6bd5fb6c-5bf4-e74a-8987-d93912fd9df9");
    }
}
