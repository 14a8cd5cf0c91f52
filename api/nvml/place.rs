//! Where devices are: PCI, links of the bus, what is near what.

extern "C" {
    /// The device at this PCI place.
    #[call(id = 0x0301, local, alias = "nvmlDeviceGetHandleByPciBusId")]
    fn nvmlDeviceGetHandleByPciBusId_v2(
        #[local] pciBusId: *const c_char,
        #[local] device: *mut nvmlDevice_t,
    ) -> nvmlReturn_t;

    /// Tells the C2C mode facts of a device.
    #[call(id = 0x0302)]
    fn nvmlDeviceGetC2cModeInfoV(
        device: nvmlDevice_t,
        #[out] c2cModeInfo: *mut nvmlC2cModeInfo_v1_t,
    ) -> nvmlReturn_t;

    /// Tells the memory affinity of a device.
    #[call(id = 0x0303, unsupported)]
    fn nvmlDeviceGetMemoryAffinity(
        device: nvmlDevice_t,
        nodeSetSize: u32,
        #[local] nodeSet: *mut u64,
        scope: nvmlAffinityScope_t,
    ) -> nvmlReturn_t;

    /// The processors near a device, which is near none: those that the process may use.
    #[call(id = 0x0304, local)]
    fn nvmlDeviceGetCpuAffinityWithinScope(
        device: nvmlDevice_t,
        cpuSetSize: u32,
        #[local] cpuSet: *mut u64,
        scope: nvmlAffinityScope_t,
    ) -> nvmlReturn_t;

    /// The processors near a device, which is near none: those that the process may use.
    #[call(id = 0x0305, local)]
    fn nvmlDeviceGetCpuAffinity(
        device: nvmlDevice_t,
        cpuSetSize: u32,
        #[local] cpuSet: *mut u64,
    ) -> nvmlReturn_t;

    /// Tells the NUMA node id of a device.
    #[call(id = 0x0306, unsupported)]
    fn nvmlDeviceGetNumaNodeId(device: nvmlDevice_t, #[local] node: *mut u32) -> nvmlReturn_t;

    /// How close two devices are; those of two servers are a network apart.
    #[call(id = 0x0307, manual(client))]
    fn nvmlDeviceGetTopologyCommonAncestor(
        device1: nvmlDevice_t,
        device2: nvmlDevice_t,
        #[out] pathInfo: *mut nvmlGpuTopologyLevel_t,
    ) -> nvmlReturn_t;

    /// The devices that are as close to this one.
    #[call(id = 0x0308, local)]
    fn nvmlDeviceGetTopologyNearestGpus(
        device: nvmlDevice_t,
        level: nvmlGpuTopologyLevel_t,
        #[local] count: *mut u32,
        #[local] deviceArray: *mut nvmlDevice_t,
    ) -> nvmlReturn_t;

    /// Whether a device reaches the memory of another; as CUDA says, it does not.
    #[call(id = 0x0309, local)]
    fn nvmlDeviceGetP2PStatus(
        device1: nvmlDevice_t,
        device2: nvmlDevice_t,
        p2pIndex: nvmlGpuP2PCapsIndex_t,
        #[local] p2pStatus: *mut nvmlGpuP2PStatus_t,
    ) -> nvmlReturn_t;

    /// The PCI place of a device and its class.
    #[call(id = 0x030A, local)]
    fn nvmlDeviceGetPciInfoExt(
        device: nvmlDevice_t,
        #[local] pci: *mut nvmlPciInfoExt_v1_t,
    ) -> nvmlReturn_t;

    /// The PCI place of a device; each server has a domain of its own.
    #[call(id = 0x030B, local)]
    fn nvmlDeviceGetPciInfo_v3(
        device: nvmlDevice_t,
        #[local] pci: *mut nvmlPciInfo_t,
    ) -> nvmlReturn_t;

    /// Tells the highest PCIe link generation of a device.
    #[call(id = 0x030C, fixed)]
    fn nvmlDeviceGetMaxPcieLinkGeneration(
        device: nvmlDevice_t,
        #[out] maxLinkGen: *mut u32,
    ) -> nvmlReturn_t;

    /// Tells the GPU highest PCIe link generation of a device.
    #[call(id = 0x030D, fixed)]
    fn nvmlDeviceGetGpuMaxPcieLinkGeneration(
        device: nvmlDevice_t,
        #[out] maxLinkGenDevice: *mut u32,
    ) -> nvmlReturn_t;

    /// Tells the highest PCIe link width of a device.
    #[call(id = 0x030E, fixed)]
    fn nvmlDeviceGetMaxPcieLinkWidth(
        device: nvmlDevice_t,
        #[out] maxLinkWidth: *mut u32,
    ) -> nvmlReturn_t;

    /// Tells the current PCIe link generation of a device.
    #[call(id = 0x030F)]
    fn nvmlDeviceGetCurrPcieLinkGeneration(
        device: nvmlDevice_t,
        #[out] currLinkGen: *mut u32,
    ) -> nvmlReturn_t;

    /// Tells the current PCIe link width of a device.
    #[call(id = 0x0310)]
    fn nvmlDeviceGetCurrPcieLinkWidth(
        device: nvmlDevice_t,
        #[out] currLinkWidth: *mut u32,
    ) -> nvmlReturn_t;

    /// Tells the PCIe throughput of a device.
    #[call(id = 0x0311)]
    fn nvmlDeviceGetPcieThroughput(
        device: nvmlDevice_t,
        counter: nvmlPcieUtilCounter_t,
        #[out] value: *mut u32,
    ) -> nvmlReturn_t;

    /// Tells the PCIe replay counter of a device.
    #[call(id = 0x0312)]
    fn nvmlDeviceGetPcieReplayCounter(device: nvmlDevice_t, #[out] value: *mut u32)
    -> nvmlReturn_t;

    /// Whether two devices are on one board.
    #[call(id = 0x0313, manual(client))]
    fn nvmlDeviceOnSameBoard(
        device1: nvmlDevice_t,
        device2: nvmlDevice_t,
        #[out] onSameBoard: *mut i32,
    ) -> nvmlReturn_t;

    /// Tells the IRQ number number of of a device.
    #[call(id = 0x0314, unsupported)]
    fn nvmlDeviceGetIrqNum(device: nvmlDevice_t, #[local] irqNum: *mut u32) -> nvmlReturn_t;

    /// Tells the PCIe link highest speed of a device.
    #[call(id = 0x0315, fixed)]
    fn nvmlDeviceGetPcieLinkMaxSpeed(
        device: nvmlDevice_t,
        #[out] maxSpeed: *mut u32,
    ) -> nvmlReturn_t;

    /// Tells the PCIe speed of a device.
    #[call(id = 0x0316)]
    fn nvmlDeviceGetPcieSpeed(device: nvmlDevice_t, #[out] pcieSpeed: *mut u32) -> nvmlReturn_t;

    /// Tells the bus type of a device.
    #[call(id = 0x0317, fixed)]
    fn nvmlDeviceGetBusType(
        device: nvmlDevice_t,
        #[out] r#type: *mut nvmlBusType_t,
    ) -> nvmlReturn_t;

    /// Whether the device is on a fabric; fabric handles are not passed on, so it is not.
    #[call(id = 0x0318, local)]
    fn nvmlDeviceGetGpuFabricInfo(
        device: nvmlDevice_t,
        #[local] gpuFabricInfo: *mut nvmlGpuFabricInfo_t,
    ) -> nvmlReturn_t;

    /// As `nvmlDeviceGetGpuFabricInfo`, in a structure that says its version.
    #[call(id = 0x0319, local)]
    fn nvmlDeviceGetGpuFabricInfoV(
        device: nvmlDevice_t,
        #[local] gpuFabricInfo: *mut nvmlGpuFabricInfo_v2_t,
    ) -> nvmlReturn_t;

    /// As `nvmlDeviceGetPciInfo_v2`, without the subsystem.
    #[call(id = 0x031A, local)]
    fn nvmlDeviceGetPciInfo(device: nvmlDevice_t, #[local] pci: *mut nvmlPciInfo_t)
    -> nvmlReturn_t;

    /// As `nvmlDeviceGetPciInfo_v3`, without the long form of the place.
    #[call(id = 0x031B, local)]
    fn nvmlDeviceGetPciInfo_v2(
        device: nvmlDevice_t,
        #[local] pci: *mut nvmlPciInfo_t,
    ) -> nvmlReturn_t;

    /// Tells the GPU fabric facts of a device.
    #[call(id = 0x031C, unsupported)]
    fn nvmlDeviceGetGpuFabricInfo_v4(
        device: nvmlDevice_t,
        #[local] gpuFabricInfo: *mut nvmlGpuFabricInfo_v4_t,
    ) -> nvmlReturn_t;
}
