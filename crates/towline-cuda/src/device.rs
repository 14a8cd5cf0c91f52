//! Devices: one list over all servers, described from what each server told when its session began.

use std::ffi::c_char;
use std::sync::{Mutex, OnceLock};

use towline_backend::cuda as wire;
use towline_backend::cuda::*;
use towline_client::cuda::Session;
use towline_client::raw::{Out, OutList, Vouched};
use towline_wire::cuda::snapshot::{self, uuid_text};

use crate::driver::{DeviceCalls, Driver, actor};
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
    /// Held while the primary context is retained, ends or is reset; taken before `references`, and a server may be waited for under it.
    pub(crate) holding: Mutex<()>,
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
            holding: Mutex::default(),
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

impl Driver {
    /// A device by its number.
    pub(crate) fn device(&self, device: CUdevice) -> Result<&Device, CUresult> {
        let devices = self.ready()?.devices();
        let found = usize::try_from(device)
            .ok()
            .and_then(|index| devices.get(index));
        found.ok_or(CUDA_ERROR_INVALID_DEVICE)
    }
}

/// Domain, bus, device and function of a PCI place as text, as the vendor's driver reads it (seen with 580.159): `d:b:d.f`, `d:b:d` or
/// `b:d.f`, hexadecimal numbers of any length, with spaces or `0x` before them; more may follow.
fn parse_bus_id(text: &str) -> Option<(Option<u32>, u32, u32, u32)> {
    let mut rest = text;
    let mut number = |before: &str| {
        let after = rest.strip_prefix(before)?.trim_ascii_start();
        let bare = after
            .strip_prefix("0x")
            .or_else(|| after.strip_prefix("0X"));
        let digits = bare.unwrap_or(after);
        let end = digits.find(|letter: char| !letter.is_ascii_hexdigit());
        let (digits, behind) = digits.split_at(end.unwrap_or(digits.len()));
        let number = u32::from_str_radix(digits, 16).ok()?;
        rest = behind;
        Some(number)
    };
    let (first, second) = (number("")?, number(":")?);
    match number(":") {
        Some(third) => Some((Some(first), second, third, number(".").unwrap_or(0))),
        None => Some((None, first, second, number(".")?)),
    }
}

/// Writes text with its NUL, cut to what there is room for.
fn tell_text(target: &OutList<u8>, text: &[u8]) -> Result<(), CUresult> {
    let Some(most) = target.room().checked_sub(1).filter(|_| target.wanted()) else {
        return Err(CUDA_ERROR_INVALID_VALUE);
    };
    let text = text.get(..most).unwrap_or(text);
    target.fill(text.iter().copied().chain([0]));
    Ok(())
}

impl DeviceCalls for Driver {
    fn cuDeviceGet(&self, ordinal: i32) -> Result<CUdevice, CUresult> {
        self.device(ordinal).map(|_| ordinal)
    }

    fn cuDeviceGetCount(&self) -> Result<i32, CUresult> {
        self.ready().map(|started| started.devices().len() as i32)
    }

    fn cuDeviceGetName(&self, name: OutList<u8>, dev: CUdevice) -> Result<(), CUresult> {
        tell_text(&name, &self.device(dev)?.facts.name)
    }

    fn cuDeviceGetUuid(&self, dev: CUdevice) -> Result<CUuuid, CUresult> {
        self.device(dev).map(|device| CUuuid {
            bytes: device.facts.uuid.map(|byte| byte as c_char),
        })
    }

    fn cuDeviceGetUuid_v2(&self, dev: CUdevice) -> Result<CUuuid, CUresult> {
        DeviceCalls::cuDeviceGetUuid(self, dev)
    }

    fn cuDeviceGetLuid(
        &self,
        _: Vouched<'_, *mut c_char>,
        _: Out<u32>,
        dev: CUdevice,
    ) -> Result<(), CUresult> {
        // Only Windows has such ids.
        self.device(dev).and(Err(CUDA_ERROR_NOT_SUPPORTED))
    }

    fn cuDeviceTotalMem_v2(&self, dev: CUdevice) -> Result<usize, CUresult> {
        self.device(dev)
            .map(|device| device.facts.total_bytes as usize)
    }

    fn cuDeviceGetTexture1DLinearMaxWidth(
        &self,
        _format: CUarray_format,
        _numChannels: u32,
        dev: CUdevice,
    ) -> Result<usize, CUresult> {
        self.device(dev).map(|device| {
            device.attribute(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH) as usize
        })
    }

    fn cuDeviceGetAttribute(
        &self,
        attrib: CUdevice_attribute,
        dev: CUdevice,
    ) -> Result<i32, CUresult> {
        self.device(dev)
            .and_then(|device| match device.knows(attrib) {
                true => Ok(device.attribute(attrib)),
                false => Err(CUDA_ERROR_INVALID_VALUE),
            })
    }

    fn cuDeviceGetProperties(&self, dev: CUdevice) -> Result<CUdevprop, CUresult> {
        self.device(dev).map(|device| {
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
        })
    }

    fn cuDeviceComputeCapability(&self, dev: CUdevice) -> Result<(i32, i32), CUresult> {
        let device = self.device(dev)?;
        Ok((
            device.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
            device.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
        ))
    }

    fn cuDeviceGetByPCIBusId(&self, pciBusId: &[u8]) -> Result<CUdevice, CUresult> {
        let started = self.ready()?;
        let wanted = std::str::from_utf8(pciBusId).ok().and_then(parse_bus_id);
        let (domain, bus, device, function) = wanted.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let fits = |one: &Device| {
            let domain = domain.unwrap_or(one.domain.into());
            parse_bus_id(&one.bus_id()) == Some((Some(domain), bus, device, function))
        };
        let index = started.devices().iter().position(fits);
        index
            .map(|index| index as CUdevice)
            .ok_or(CUDA_ERROR_INVALID_DEVICE)
    }

    fn cuDeviceGetPCIBusId(&self, pciBusId: OutList<u8>, dev: CUdevice) -> Result<(), CUresult> {
        let id = self.device(dev)?.bus_id();
        tell_text(&pciBusId, id.as_bytes())?;
        // Part of a place is told, and refused (seen with driver 580.159).
        match pciBusId.room() > id.len() {
            true => Ok(()),
            false => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    fn cuDeviceCanAccessPeer(&self, dev: CUdevice, peerDev: CUdevice) -> Result<i32, CUresult> {
        self.can_access(dev, peerDev)
    }

    fn cuDeviceGetP2PAttribute(
        &self,
        attrib: CUdevice_P2PAttribute,
        srcDevice: CUdevice,
        dstDevice: CUdevice,
    ) -> Result<i32, CUresult> {
        self.path_attribute(attrib, srcDevice, dstDevice)
    }

    fn cuDeviceTotalMem(&self, dev: CUdevice) -> Result<u32, CUresult> {
        let total = self.device(dev).map(|device| device.facts.total_bytes);
        total.map(|bytes| u32::try_from(bytes).unwrap_or(u32::MAX))
    }

    fn cuDeviceGetHostAtomicCapabilities(
        &self,
        capabilities: OutList<u32>,
        operations: Option<&[CUatomicOperation]>,
        dev: CUdevice,
    ) -> Result<(), CUresult> {
        self.device(dev)?;
        no_atomics(&capabilities, operations)
    }

    fn cuDeviceGetP2PAtomicCapabilities(
        &self,
        capabilities: OutList<u32>,
        operations: Option<&[CUatomicOperation]>,
        srcDevice: CUdevice,
        dstDevice: CUdevice,
    ) -> Result<(), CUresult> {
        let devices = self.device(srcDevice).and(self.device(dstDevice));
        if devices.is_err() || srcDevice == dstDevice {
            return Err(CUDA_ERROR_INVALID_DEVICE);
        }
        no_atomics(&capabilities, operations)
    }

    fn cuDeviceGetGraphMemAttribute(
        &self,
        device: CUdevice,
        attr: CUgraphMem_attribute,
    ) -> Result<[u8; 8], CUresult> {
        let known = self.device(device)?;
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
        bytes.ok_or_else(|| session.malformed())
    }

    fn cuDeviceSetGraphMemAttribute(
        &self,
        device: CUdevice,
        attr: CUgraphMem_attribute,
        value: &[u8; 8],
    ) -> Result<(), CUresult> {
        let known = self.device(device)?;
        let request = wire::DeviceSetGraphMemAttribute {
            device: known.ordinal,
            attr,
            value,
        };
        let call = "cuDeviceSetGraphMemAttribute";
        let session = self.session(known.session)?;
        session.call(actor(0), call, &request).map(|_| ())
    }

    fn cuDeviceGraphMemTrim(&self, device: CUdevice) -> Result<(), CUresult> {
        self.device(device).and_then(|known| {
            let request = wire::DeviceGraphMemTrim {
                device: known.ordinal,
            };
            self.session(known.session)?.post_plain(&request)
        })
    }

    fn cuDeviceGetExecAffinitySupport(
        &self,
        _type: CUexecAffinityType,
        dev: CUdevice,
    ) -> Result<i32, CUresult> {
        self.device(dev).map(|_| 0)
    }
}

/// Says of each operation that it has no form that works on another's memory.
fn no_atomics(
    capabilities: &OutList<u32>,
    operations: Option<&[CUatomicOperation]>,
) -> Result<(), CUresult> {
    let operations = operations.filter(|list| !list.is_empty() && capabilities.wanted());
    let operations = operations.ok_or(CUDA_ERROR_INVALID_VALUE)?;
    if operations.iter().any(|one| *one >= CU_ATOMIC_OPERATION_MAX) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    capabilities.fill(operations.iter().map(|_| 0));
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
