//! What is at the other end of a link.

use towline_backend::nvml as wire;
use towline_backend::nvml::*;

use crate::library::{Library, NvlinkCalls, tell};
use crate::place::long_and_short;

impl NvlinkCalls for Library {
    unsafe fn nvmlDeviceGetNvLinkRemotePciInfo_v2(
        &self,
        device: nvmlDevice_t,
        link: u32,
        pci: *mut nvmlPciInfo_t,
    ) -> nvmlReturn_t {
        let request = wire::DeviceGetNvLinkRemotePciInfoV2 {
            device: wire::DeviceHandle::from_raw(device),
            link,
        };
        let told = self.session_for(request.device.0).and_then(|asking| {
            let body = asking.call(&request)?;
            let reply = wire::DeviceGetNvLinkRemotePciInfoV2Reply::decode(&body);
            let reply = reply.map_err(|_| asking.malformed())?;
            let mut pci = reply.pci.ok_or(NVML_ERROR_UNKNOWN)?.to_raw();
            // Where the devices of that server are, as programs here see them.
            pci.domain = self.device(device, |device| Ok(device.domain.into()))?;
            (pci.busId, pci.busIdLegacy) = long_and_short(pci.domain, pci.bus, pci.device);
            Ok(pci)
        });
        // SAFETY: the caller's contract.
        unsafe { tell(pci, told) }
    }
}
