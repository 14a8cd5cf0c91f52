//! Where devices are. Each server is a PCI domain of its own, as in CUDA, so that no two devices have the same place.

use std::ffi::c_char;

use towline_backend::nvml as wire;
use towline_backend::nvml::*;

use crate::library::{Device, Library, PlaceCalls, tell, tell_list};

/// A place as text, with eight digits of the domain and with four.
pub(crate) fn long_and_short(domain: u32, bus: u32, device: u32) -> ([c_char; 32], [c_char; 16]) {
    let mut long = [0; 32];
    let text = format!("{domain:08X}:{bus:02X}:{device:02X}.0");
    for (place, byte) in long.iter_mut().zip(text.bytes()) {
        *place = byte as c_char;
    }
    let mut short = [0; 16];
    let text = format!("{domain:04X}:{bus:02X}:{device:02X}.0");
    // The last one stays NUL.
    for (place, byte) in short.iter_mut().take(15).zip(text.bytes()) {
        *place = byte as c_char;
    }
    (long, short)
}

/// Domain, bus and device of a place as text: with or without a domain of any length, and a function.
fn parse(text: &str) -> Option<[u32; 3]> {
    let number = |part: &str| u32::from_str_radix(part, 16).ok();
    let (place, function) = text.rsplit_once('.').unwrap_or((text, "0"));
    if number(function)? != 0 {
        return None;
    }
    let (rest, device) = place.rsplit_once(':')?;
    let (domain, bus) = rest.rsplit_once(':').unwrap_or(("0", rest));
    Some([number(domain)?, number(bus)?, number(device)?])
}

impl Device {
    fn place(&self) -> [u32; 3] {
        let [_, bus, device] = self.facts.place;
        [self.domain.into(), bus, device]
    }

    fn pci(&self) -> nvmlPciInfo_t {
        let [domain, bus, device] = self.place();
        let (busId, busIdLegacy) = long_and_short(domain, bus, device);
        let [pciDeviceId, pciSubSystemId] = self.facts.ids;
        nvmlPciInfo_t {
            busIdLegacy,
            domain,
            bus,
            device,
            pciDeviceId,
            pciSubSystemId,
            busId,
        }
    }
}

/// A bit for each of the first processors of this machine that the process may use, in as many words.
#[cfg(target_os = "linux")]
fn processors(words: usize) -> Vec<u64> {
    // SAFETY: a set of all zeros is an empty one.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is a local of its size.
    let told = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) };
    let may_use = |processor: usize| {
        // SAFETY: the set is whole.
        told == 0
            && processor < 8 * size_of_val(&set)
            && unsafe { libc::CPU_ISSET(processor, &set) }
    };
    let word = |at: usize| {
        (0..64).fold(0, |word, bit| {
            word | u64::from(may_use(64 * at + bit)) << bit
        })
    };
    (0..words).map(word).collect()
}

/// A bit for each of as many processors as the process may use at once.
#[cfg(not(target_os = "linux"))]
fn processors(words: usize) -> Vec<u64> {
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    let word = |at: usize| {
        (0..64).fold(0, |word, bit| {
            word | u64::from(64 * at + bit < count) << bit
        })
    };
    (0..words).map(word).collect()
}

impl Library {
    /// Tells which processors are near a device: its server is a network away from all.
    ///
    /// # Safety
    /// `set` is NULL or writable for `size` words.
    unsafe fn tell_processors(
        &self,
        device: nvmlDevice_t,
        size: u32,
        set: *mut u64,
    ) -> nvmlReturn_t {
        // A set for more processors than a system has.
        const MOST: u32 = 1 << 10;
        match self.device(device, |_| Ok(())) {
            Err(status) => status,
            Ok(()) if set.is_null() || size == 0 => NVML_ERROR_INVALID_ARGUMENT,
            Ok(()) => {
                let words = processors(size.min(MOST) as usize);
                // SAFETY: the caller's contract.
                unsafe { set.write_bytes(0, size as usize) };
                // SAFETY: as above; there are no more words than that.
                unsafe { set.copy_from_nonoverlapping(words.as_ptr(), words.len()) };
                NVML_SUCCESS
            }
        }
    }

    /// How close two devices are.
    fn closeness(
        &self,
        one: nvmlDevice_t,
        other: nvmlDevice_t,
    ) -> Result<nvmlGpuTopologyLevel_t, nvmlReturn_t> {
        if !self.same_server(one, other)? {
            return Ok(NVML_TOPOLOGY_SYSTEM);
        }
        let request = wire::DeviceGetTopologyCommonAncestor {
            device1: wire::DeviceHandle::from_raw(one),
            device2: wire::DeviceHandle::from_raw(other),
        };
        let asking = self.session_for(request.device1.0)?;
        let body = asking.call(&request)?;
        let reply = wire::DeviceGetTopologyCommonAncestorReply::decode(&body);
        let reply = reply.map_err(|_| asking.malformed())?;
        reply.pathInfo.ok_or(NVML_ERROR_UNKNOWN)
    }

    fn same_server(&self, one: nvmlDevice_t, other: nvmlDevice_t) -> Result<bool, nvmlReturn_t> {
        let servers = self.ready()?;
        Ok(servers.device(one)?.domain == servers.device(other)?.domain)
    }

    /// Writes a place in the form of an older version: as much as its structure has.
    ///
    /// # Safety
    /// `pci` is NULL or writable for `size` bytes.
    unsafe fn tell_older_place(
        &self,
        device: nvmlDevice_t,
        pci: *mut nvmlPciInfo_t,
        size: usize,
    ) -> nvmlReturn_t {
        let told = match self.device(device, |device| Ok(device.pci())) {
            Ok(told) => told,
            Err(status) => return status,
        };
        if pci.is_null() {
            return NVML_ERROR_INVALID_ARGUMENT;
        }
        let from = std::ptr::from_ref(&told).cast::<u8>();
        // SAFETY: the caller's contract; a whole structure lies there, and `size` is less.
        unsafe {
            pci.cast::<u8>()
                .copy_from_nonoverlapping(from, size.min(size_of_val(&told)))
        };
        NVML_SUCCESS
    }
}

/// Bytes of a place in the first and second version of its structure, without what was reserved there.
const FIRST_PLACE: usize = std::mem::offset_of!(nvmlPciInfo_t, pciSubSystemId);
const SECOND_PLACE: usize = std::mem::offset_of!(nvmlPciInfo_t, busId);

impl PlaceCalls for Library {
    unsafe fn nvmlDeviceGetHandleByPciBusId_v2(
        &self,
        pciBusId: *const c_char,
        device: *mut nvmlDevice_t,
    ) -> nvmlReturn_t {
        let fits = |device: &Device, wanted: &str| parse(wanted) == Some(device.place());
        // SAFETY: the caller's contract.
        unsafe { self.find_by(pciBusId, device, fits) }
    }

    unsafe fn nvmlDeviceGetTopologyCommonAncestor(
        &self,
        device1: nvmlDevice_t,
        device2: nvmlDevice_t,
        pathInfo: *mut nvmlGpuTopologyLevel_t,
    ) -> nvmlReturn_t {
        // SAFETY: the caller's contract.
        unsafe { tell(pathInfo, self.closeness(device1, device2)) }
    }

    unsafe fn nvmlDeviceGetTopologyNearestGpus(
        &self,
        device: nvmlDevice_t,
        level: nvmlGpuTopologyLevel_t,
        count: *mut u32,
        deviceArray: *mut nvmlDevice_t,
    ) -> nvmlReturn_t {
        let near = self.ready().and_then(|servers| {
            let own = servers.device(device)?.handle;
            let others = servers.devices.iter().map(|known| known.handle);
            let mut near = Vec::new();
            for other in others.filter(|other| *other != own) {
                if self.closeness(device, other.to_raw())? == level {
                    near.push(other.to_raw());
                }
            }
            Ok(near)
        });
        match near {
            // Who gives no room asks how many there are.
            Ok(near) if deviceArray.is_null() => {
                // SAFETY: the caller's contract.
                unsafe { tell(count, Ok(near.len() as u32)) }
            }
            // SAFETY: the caller's contract.
            near => unsafe { tell_list(count, deviceArray, near) },
        }
    }

    unsafe fn nvmlDeviceGetP2PStatus(
        &self,
        device1: nvmlDevice_t,
        device2: nvmlDevice_t,
        p2pIndex: nvmlGpuP2PCapsIndex_t,
        p2pStatus: *mut nvmlGpuP2PStatus_t,
    ) -> nvmlReturn_t {
        let both = self.same_server(device1, device2);
        let told = match (both, p2pIndex) {
            (Err(status), _) => Err(status),
            (Ok(_), NVML_P2P_CAPS_INDEX_UNKNOWN..) => Err(NVML_ERROR_INVALID_ARGUMENT),
            (Ok(_), _) => Ok(NVML_P2P_STATUS_NOT_SUPPORTED),
        };
        // SAFETY: the caller's contract.
        unsafe { tell(p2pStatus, told) }
    }

    unsafe fn nvmlDeviceGetCpuAffinity(
        &self,
        device: nvmlDevice_t,
        cpuSetSize: u32,
        cpuSet: *mut u64,
    ) -> nvmlReturn_t {
        // SAFETY: the caller's contract.
        unsafe { self.tell_processors(device, cpuSetSize, cpuSet) }
    }

    unsafe fn nvmlDeviceGetCpuAffinityWithinScope(
        &self,
        device: nvmlDevice_t,
        cpuSetSize: u32,
        cpuSet: *mut u64,
        scope: nvmlAffinityScope_t,
    ) -> nvmlReturn_t {
        if !matches!(scope, NVML_AFFINITY_SCOPE_NODE | NVML_AFFINITY_SCOPE_SOCKET) {
            return NVML_ERROR_INVALID_ARGUMENT;
        }
        // SAFETY: the caller's contract.
        unsafe { self.tell_processors(device, cpuSetSize, cpuSet) }
    }

    unsafe fn nvmlDeviceGetPciInfoExt(
        &self,
        device: nvmlDevice_t,
        pci: *mut nvmlPciInfoExt_v1_t,
    ) -> nvmlReturn_t {
        // SAFETY: the caller's contract: a structure that says its own size.
        let version = match unsafe { crate::raw::versioned(pci) } {
            None => return NVML_ERROR_INVALID_ARGUMENT,
            Some(None) => return NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
            Some(Some(asked)) => asked.version,
        };
        let told = self.device(device, |device| {
            let place = device.pci();
            let [baseClass, subClass] = device.facts.class;
            Ok(nvmlPciInfoExt_v1_t {
                version,
                domain: place.domain,
                bus: place.bus,
                device: place.device,
                pciDeviceId: place.pciDeviceId,
                pciSubSystemId: place.pciSubSystemId,
                baseClass,
                subClass,
                busId: place.busId,
            })
        });
        // SAFETY: the caller's contract.
        unsafe { tell(pci, told) }
    }

    unsafe fn nvmlDeviceGetPciInfo_v3(
        &self,
        device: nvmlDevice_t,
        pci: *mut nvmlPciInfo_t,
    ) -> nvmlReturn_t {
        let told = self.device(device, |device| Ok(device.pci()));
        // SAFETY: the caller's contract.
        unsafe { tell(pci, told) }
    }

    unsafe fn nvmlDeviceOnSameBoard(
        &self,
        device1: nvmlDevice_t,
        device2: nvmlDevice_t,
        onSameBoard: *mut i32,
    ) -> nvmlReturn_t {
        let told = self.same_server(device1, device2).and_then(|same| {
            if !same {
                return Ok(0);
            }
            let request = wire::DeviceOnSameBoard {
                device1: wire::DeviceHandle::from_raw(device1),
                device2: wire::DeviceHandle::from_raw(device2),
            };
            let asking = self.session_for(request.device1.0)?;
            let body = asking.call(&request)?;
            let reply = wire::DeviceOnSameBoardReply::decode(&body);
            let reply = reply.map_err(|_| asking.malformed())?;
            reply.onSameBoard.ok_or(NVML_ERROR_UNKNOWN)
        });
        // SAFETY: the caller's contract.
        unsafe { tell(onSameBoard, told) }
    }

    unsafe fn nvmlDeviceGetGpuFabricInfo(
        &self,
        device: nvmlDevice_t,
        gpuFabricInfo: *mut nvmlGpuFabricInfo_t,
    ) -> nvmlReturn_t {
        let told = self.device(device, |_| {
            Ok(nvmlGpuFabricInfo_t {
                clusterUuid: [0; 16],
                status: NVML_SUCCESS,
                cliqueId: 0,
                state: NVML_GPU_FABRIC_STATE_NOT_SUPPORTED,
            })
        });
        // SAFETY: the caller's contract.
        unsafe { tell(gpuFabricInfo, told) }
    }

    unsafe fn nvmlDeviceGetGpuFabricInfoV(
        &self,
        device: nvmlDevice_t,
        gpuFabricInfo: *mut nvmlGpuFabricInfo_v2_t,
    ) -> nvmlReturn_t {
        if gpuFabricInfo.is_null() {
            return NVML_ERROR_INVALID_ARGUMENT;
        }
        if let Err(status) = self.device(device, |_| Ok(())) {
            return status;
        }
        // SAFETY: the caller's contract: a structure that says its own size.
        let version = unsafe { gpuFabricInfo.cast::<u32>().read() };
        let size = (version & 0x00ff_ffff) as usize;
        // The third version has one word more.
        if size != FABRIC && size != FABRIC + 4 {
            return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
        }
        let zeros = std::iter::repeat_n(0_u8, size);
        // SAFETY: as above; "not supported" and "nothing is wrong" are zeros.
        unsafe { crate::raw::fill(gpuFabricInfo.cast::<u8>(), size, zeros) };
        // SAFETY: as above.
        unsafe { gpuFabricInfo.cast::<u32>().write(version) };
        NVML_SUCCESS
    }

    unsafe fn nvmlDeviceGetPciInfo(
        &self,
        device: nvmlDevice_t,
        pci: *mut nvmlPciInfo_t,
    ) -> nvmlReturn_t {
        // SAFETY: the caller's contract, for the first version.
        unsafe { self.tell_older_place(device, pci, FIRST_PLACE) }
    }

    unsafe fn nvmlDeviceGetPciInfo_v2(
        &self,
        device: nvmlDevice_t,
        pci: *mut nvmlPciInfo_t,
    ) -> nvmlReturn_t {
        // SAFETY: the caller's contract, for the second version.
        unsafe { self.tell_older_place(device, pci, SECOND_PLACE) }
    }
}

/// Bytes of the second version of what is told of a fabric.
const FABRIC: usize = size_of::<nvmlGpuFabricInfo_v2_t>();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_written_as_the_driver_writes_them() {
        let (long, short) = long_and_short(1, 0x1b, 0);
        let text = |bytes: &[c_char]| -> String {
            let used = bytes.iter().take_while(|byte| **byte != 0);
            used.map(|byte| *byte as u8 as char).collect()
        };
        assert_eq!(text(&long), "00000001:1B:00.0");
        assert_eq!(text(&short), "0001:1B:00.0");
        // More than fits is cut, and still ends.
        assert_eq!(long_and_short(u32::MAX, 0xffff, 0xffff).1[15], 0);
    }

    #[test]
    fn places_are_read_in_each_form() {
        let place = Some([1, 0x1b, 0]);
        assert_eq!(parse("00000001:1B:00.0"), place);
        assert_eq!(parse("0001:1b:00.0"), place);
        assert_eq!(parse("1:1b:0"), place);
        assert_eq!(parse("1b:00.0"), Some([0, 0x1b, 0]));
        for wrong in ["", ":", "1b", "0001:1b:00.1", "0001:zz:00.0", "GPU-1"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
