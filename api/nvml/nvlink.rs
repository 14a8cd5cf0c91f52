//! NVLink.

extern "C" {
    /// Tells the NVLink state of a device.
    #[call(id = 0x0901)]
    fn nvmlDeviceGetNvLinkState(
        device: nvmlDevice_t,
        link: u32,
        #[out] isActive: *mut nvmlEnableState_t,
    ) -> nvmlReturn_t;

    /// Tells the NVLink version of a device.
    #[call(id = 0x0902, fixed)]
    fn nvmlDeviceGetNvLinkVersion(
        device: nvmlDevice_t,
        link: u32,
        #[out] version: *mut u32,
    ) -> nvmlReturn_t;

    /// Tells the NVLink capability of a device.
    #[call(id = 0x0903, fixed)]
    fn nvmlDeviceGetNvLinkCapability(
        device: nvmlDevice_t,
        link: u32,
        capability: nvmlNvLinkCapability_t,
        #[out] capResult: *mut u32,
    ) -> nvmlReturn_t;

    /// The PCI place at the other end of a link, in the domain of the server.
    #[call(id = 0x0904, manual(client))]
    fn nvmlDeviceGetNvLinkRemotePciInfo_v2(
        device: nvmlDevice_t,
        link: u32,
        #[out] pci: *mut nvmlPciInfo_t,
    ) -> nvmlReturn_t;

    /// Tells the NVLink error counter of a device.
    #[call(id = 0x0905)]
    fn nvmlDeviceGetNvLinkErrorCounter(
        device: nvmlDevice_t,
        link: u32,
        counter: nvmlNvLinkErrorCounter_t,
        #[out] counterValue: *mut u64,
    ) -> nvmlReturn_t;

    /// Tells the NVLink utilization control of a device.
    #[call(id = 0x0906, unsupported)]
    fn nvmlDeviceGetNvLinkUtilizationControl(
        device: nvmlDevice_t,
        link: u32,
        counter: u32,
        #[local] control: *mut nvmlNvLinkUtilizationControl_t,
    ) -> nvmlReturn_t;

    /// Tells the NVLink utilization counter of a device.
    #[call(id = 0x0907, unsupported)]
    fn nvmlDeviceGetNvLinkUtilizationCounter(
        device: nvmlDevice_t,
        link: u32,
        counter: u32,
        #[local] rxcounter: *mut u64,
        #[local] txcounter: *mut u64,
    ) -> nvmlReturn_t;

    /// Tells the NVLink remote device type of a device.
    #[call(id = 0x0908)]
    fn nvmlDeviceGetNvLinkRemoteDeviceType(
        device: nvmlDevice_t,
        link: u32,
        #[out] pNvLinkDeviceType: *mut nvmlIntNvLinkDeviceType_t,
    ) -> nvmlReturn_t;

    /// Tells the NVLink bandwidth mode of a system.
    #[call(id = 0x0909, unsupported)]
    fn nvmlSystemGetNvlinkBwMode(#[local] nvlinkBwMode: *mut u32) -> nvmlReturn_t;

    /// Tells the NVLink supported bandwidth modes of a device.
    #[call(id = 0x090A, unsupported)]
    fn nvmlDeviceGetNvlinkSupportedBwModes(
        device: nvmlDevice_t,
        #[local] supportedBwMode: *mut nvmlNvlinkSupportedBwModes_v1_t,
    ) -> nvmlReturn_t;

    /// Tells the NVLink bandwidth mode of a device.
    #[call(id = 0x090B, unsupported)]
    fn nvmlDeviceGetNvlinkBwMode(
        device: nvmlDevice_t,
        #[local] getBwMode: *mut nvmlNvlinkGetBwMode_v1_t,
    ) -> nvmlReturn_t;

    /// Tells the NVLink remote PCI facts of a device.
    #[call(id = 0x090C, unsupported)]
    fn nvmlDeviceGetNvLinkRemotePciInfo(
        device: nvmlDevice_t,
        link: u32,
        #[local] pci: *mut nvmlPciInfo_t,
    ) -> nvmlReturn_t;

    /// Tells the NVLink facts of a device.
    #[call(id = 0x090D, unsupported)]
    fn nvmlDeviceGetNvLinkInfo(
        device: nvmlDevice_t,
        #[local] info: *mut nvmlNvLinkInfo_t,
    ) -> nvmlReturn_t;

    /// Tells the NVLink telemetry samples of a device.
    #[call(id = 0x090E, unsupported)]
    fn nvmlDeviceGetNvLinkTelemetrySamples_v1(
        device: nvmlDevice_t,
        #[local] samples: *mut nvmlNvlinkTelemetrySamples_v1_t,
    ) -> nvmlReturn_t;
}
