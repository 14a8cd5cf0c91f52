//! Processes on devices.

extern "C" {
    /// The processes that compute on a device: those of this machine, through Towline.
    #[call(id = 0x0801, local, alias = "nvmlDeviceGetComputeRunningProcesses_v2")]
    fn nvmlDeviceGetComputeRunningProcesses_v3(
        device: nvmlDevice_t,
        #[local] infoCount: *mut u32,
        #[local] infos: *mut nvmlProcessInfo_v2_t,
    ) -> nvmlReturn_t;

    /// The processes that draw on a device; none.
    #[call(id = 0x0802, local, alias = "nvmlDeviceGetGraphicsRunningProcesses_v2")]
    fn nvmlDeviceGetGraphicsRunningProcesses_v3(
        device: nvmlDevice_t,
        #[local] infoCount: *mut u32,
        #[local] infos: *mut nvmlProcessInfo_v2_t,
    ) -> nvmlReturn_t;

    /// The processes that compute through MPS; none.
    #[call(
        id = 0x0803,
        local,
        alias = "nvmlDeviceGetMPSComputeRunningProcesses_v2"
    )]
    fn nvmlDeviceGetMPSComputeRunningProcesses_v3(
        device: nvmlDevice_t,
        #[local] infoCount: *mut u32,
        #[local] infos: *mut nvmlProcessInfo_v2_t,
    ) -> nvmlReturn_t;

    /// Tells the running process detail list of a device.
    #[call(id = 0x0804, unsupported)]
    fn nvmlDeviceGetRunningProcessDetailList(
        device: nvmlDevice_t,
        #[local] plist: *mut nvmlProcessDetailList_v1_t,
    ) -> nvmlReturn_t;

    /// Tells the process utilization of a device.
    #[call(id = 0x0805, unsupported)]
    fn nvmlDeviceGetProcessUtilization(
        device: nvmlDevice_t,
        #[local] utilization: *mut nvmlProcessUtilizationSample_t,
        #[local] processSamplesCount: *mut u32,
        lastSeenTimeStamp: u64,
    ) -> nvmlReturn_t;

    /// Tells the processes utilization facts of a device.
    #[call(id = 0x0806, unsupported)]
    fn nvmlDeviceGetProcessesUtilizationInfo(
        device: nvmlDevice_t,
        #[local] procesesUtilInfo: *mut nvmlProcessesUtilizationInfo_v1_t,
    ) -> nvmlReturn_t;

    /// As `nvmlDeviceGetComputeRunningProcesses_v3`, with smaller entries.
    #[call(id = 0x0807, local)]
    fn nvmlDeviceGetComputeRunningProcesses(
        device: nvmlDevice_t,
        #[local] infoCount: *mut u32,
        #[local] infos: *mut nvmlProcessInfo_v1_t,
    ) -> nvmlReturn_t;

    /// As `nvmlDeviceGetGraphicsRunningProcesses_v3`, with smaller entries.
    #[call(id = 0x0808, local)]
    fn nvmlDeviceGetGraphicsRunningProcesses(
        device: nvmlDevice_t,
        #[local] infoCount: *mut u32,
        #[local] infos: *mut nvmlProcessInfo_v1_t,
    ) -> nvmlReturn_t;

    /// As `nvmlDeviceGetMPSComputeRunningProcesses_v3`, with smaller entries.
    #[call(id = 0x0809, local)]
    fn nvmlDeviceGetMPSComputeRunningProcesses(
        device: nvmlDevice_t,
        #[local] infoCount: *mut u32,
        #[local] infos: *mut nvmlProcessInfo_v1_t,
    ) -> nvmlReturn_t;
}
