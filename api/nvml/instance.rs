//! Parts of devices (MIG).

extern "C" {
    /// Sets the MIG mode of a device.
    #[call(id = 0x0C01, denied)]
    fn nvmlDeviceSetMigMode(
        device: nvmlDevice_t,
        mode: u32,
        #[local] activationStatus: *mut nvmlReturn_t,
    ) -> nvmlReturn_t;

    /// Tells the MIG mode of a device.
    #[call(id = 0x0C02)]
    fn nvmlDeviceGetMigMode(
        device: nvmlDevice_t,
        #[out] currentMode: *mut u32,
        #[out] pendingMode: *mut u32,
    ) -> nvmlReturn_t;

    /// Tells the GPU instance profile facts of a device.
    #[call(id = 0x0C03, unsupported)]
    fn nvmlDeviceGetGpuInstanceProfileInfo(
        device: nvmlDevice_t,
        profile: u32,
        #[local] info: *mut nvmlGpuInstanceProfileInfo_t,
    ) -> nvmlReturn_t;

    /// Tells the GPU instance profile facts of a device.
    #[call(id = 0x0C04, unsupported)]
    fn nvmlDeviceGetGpuInstanceProfileInfoV(
        device: nvmlDevice_t,
        profile: u32,
        #[local] info: *mut nvmlGpuInstanceProfileInfo_v2_t,
    ) -> nvmlReturn_t;

    /// Tells the GPU instance possible placements of a device.
    #[call(
        id = 0x0C05,
        unsupported,
        alias = "nvmlDeviceGetGpuInstancePossiblePlacements"
    )]
    fn nvmlDeviceGetGpuInstancePossiblePlacements_v2(
        device: nvmlDevice_t,
        profileId: u32,
        #[local] placements: *mut nvmlGpuInstancePlacement_t,
        #[local] count: *mut u32,
    ) -> nvmlReturn_t;

    /// Tells the GPU instance remaining capacity of a device.
    #[call(id = 0x0C06, unsupported)]
    fn nvmlDeviceGetGpuInstanceRemainingCapacity(
        device: nvmlDevice_t,
        profileId: u32,
        #[local] count: *mut u32,
    ) -> nvmlReturn_t;

    /// Makes the GPU instance of a device.
    #[call(id = 0x0C07, denied)]
    fn nvmlDeviceCreateGpuInstance(
        device: nvmlDevice_t,
        profileId: u32,
        #[local] gpuInstance: *mut nvmlGpuInstance_t,
    ) -> nvmlReturn_t;

    /// Makes the GPU instance with placement of a device.
    #[call(id = 0x0C08, denied)]
    fn nvmlDeviceCreateGpuInstanceWithPlacement(
        device: nvmlDevice_t,
        profileId: u32,
        #[local] placement: *const nvmlGpuInstancePlacement_t,
        #[local] gpuInstance: *mut nvmlGpuInstance_t,
    ) -> nvmlReturn_t;

    /// Ends a GPU instance.
    #[call(id = 0x0C09, denied)]
    fn nvmlGpuInstanceDestroy(gpuInstance: nvmlGpuInstance_t) -> nvmlReturn_t;

    /// Tells the GPU instances of a device.
    #[call(id = 0x0C0A, unsupported)]
    fn nvmlDeviceGetGpuInstances(
        device: nvmlDevice_t,
        profileId: u32,
        #[local] gpuInstances: *mut nvmlGpuInstance_t,
        #[local] count: *mut u32,
    ) -> nvmlReturn_t;

    /// Tells the GPU instance by id of a device.
    #[call(id = 0x0C0B, unsupported)]
    fn nvmlDeviceGetGpuInstanceById(
        device: nvmlDevice_t,
        id: u32,
        #[local] gpuInstance: *mut nvmlGpuInstance_t,
    ) -> nvmlReturn_t;

    /// Tells the facts of a GPU instance.
    #[call(id = 0x0C0C, unsupported)]
    fn nvmlGpuInstanceGetInfo(
        gpuInstance: nvmlGpuInstance_t,
        #[local] info: *mut nvmlGpuInstanceInfo_t,
    ) -> nvmlReturn_t;

    /// Tells the compute instance profile facts of a GPU instance.
    #[call(id = 0x0C0D, unsupported)]
    fn nvmlGpuInstanceGetComputeInstanceProfileInfo(
        gpuInstance: nvmlGpuInstance_t,
        profile: u32,
        engProfile: u32,
        #[local] info: *mut nvmlComputeInstanceProfileInfo_t,
    ) -> nvmlReturn_t;

    /// Tells the compute instance profile facts of a GPU instance.
    #[call(id = 0x0C0E, unsupported)]
    fn nvmlGpuInstanceGetComputeInstanceProfileInfoV(
        gpuInstance: nvmlGpuInstance_t,
        profile: u32,
        engProfile: u32,
        #[local] info: *mut nvmlComputeInstanceProfileInfo_v2_t,
    ) -> nvmlReturn_t;

    /// Tells the compute instance remaining capacity of a GPU instance.
    #[call(id = 0x0C0F, unsupported)]
    fn nvmlGpuInstanceGetComputeInstanceRemainingCapacity(
        gpuInstance: nvmlGpuInstance_t,
        profileId: u32,
        #[local] count: *mut u32,
    ) -> nvmlReturn_t;

    /// Tells the compute instance possible placements of a GPU instance.
    #[call(id = 0x0C10, unsupported)]
    fn nvmlGpuInstanceGetComputeInstancePossiblePlacements(
        gpuInstance: nvmlGpuInstance_t,
        profileId: u32,
        #[local] placements: *mut nvmlComputeInstancePlacement_t,
        #[local] count: *mut u32,
    ) -> nvmlReturn_t;

    /// Makes the compute instance of a GPU instance.
    #[call(id = 0x0C11, denied)]
    fn nvmlGpuInstanceCreateComputeInstance(
        gpuInstance: nvmlGpuInstance_t,
        profileId: u32,
        #[local] computeInstance: *mut nvmlComputeInstance_t,
    ) -> nvmlReturn_t;

    /// Makes the compute instance with placement of a GPU instance.
    #[call(id = 0x0C12, denied)]
    fn nvmlGpuInstanceCreateComputeInstanceWithPlacement(
        gpuInstance: nvmlGpuInstance_t,
        profileId: u32,
        #[local] placement: *const nvmlComputeInstancePlacement_t,
        #[local] computeInstance: *mut nvmlComputeInstance_t,
    ) -> nvmlReturn_t;

    /// Ends a compute instance.
    #[call(id = 0x0C13, denied)]
    fn nvmlComputeInstanceDestroy(computeInstance: nvmlComputeInstance_t) -> nvmlReturn_t;

    /// Tells the compute instances of a GPU instance.
    #[call(id = 0x0C14, unsupported)]
    fn nvmlGpuInstanceGetComputeInstances(
        gpuInstance: nvmlGpuInstance_t,
        profileId: u32,
        #[local] computeInstances: *mut nvmlComputeInstance_t,
        #[local] count: *mut u32,
    ) -> nvmlReturn_t;

    /// Tells the compute instance by id of a GPU instance.
    #[call(id = 0x0C15, unsupported)]
    fn nvmlGpuInstanceGetComputeInstanceById(
        gpuInstance: nvmlGpuInstance_t,
        id: u32,
        #[local] computeInstance: *mut nvmlComputeInstance_t,
    ) -> nvmlReturn_t;

    /// Tells the facts of a compute instance.
    #[call(id = 0x0C16, unsupported, alias = "nvmlComputeInstanceGetInfo")]
    fn nvmlComputeInstanceGetInfo_v2(
        computeInstance: nvmlComputeInstance_t,
        #[local] info: *mut nvmlComputeInstanceInfo_t,
    ) -> nvmlReturn_t;

    /// Whether a device is a part of another; none is.
    #[call(id = 0x0C17, local)]
    fn nvmlDeviceIsMigDeviceHandle(
        device: nvmlDevice_t,
        #[local] isMigDevice: *mut u32,
    ) -> nvmlReturn_t;

    /// Tells the GPU instance id of a device.
    #[call(id = 0x0C18, unsupported)]
    fn nvmlDeviceGetGpuInstanceId(device: nvmlDevice_t, #[local] id: *mut u32) -> nvmlReturn_t;

    /// Tells the compute instance id of a device.
    #[call(id = 0x0C19, unsupported)]
    fn nvmlDeviceGetComputeInstanceId(device: nvmlDevice_t, #[local] id: *mut u32) -> nvmlReturn_t;

    /// How many parts a device can have; parts are not offered.
    #[call(id = 0x0C1A, local)]
    fn nvmlDeviceGetMaxMigDeviceCount(
        device: nvmlDevice_t,
        #[local] count: *mut u32,
    ) -> nvmlReturn_t;

    /// A part of a device; there is none.
    #[call(id = 0x0C1B, local)]
    fn nvmlDeviceGetMigDeviceHandleByIndex(
        device: nvmlDevice_t,
        index: u32,
        #[local] migDevice: *mut nvmlDevice_t,
    ) -> nvmlReturn_t;

    /// The device that a part is of; there is no part.
    #[call(id = 0x0C1C, local)]
    fn nvmlDeviceGetDeviceHandleFromMigDeviceHandle(
        migDevice: nvmlDevice_t,
        #[local] device: *mut nvmlDevice_t,
    ) -> nvmlReturn_t;

    /// Mig sample get, of a device.
    #[call(id = 0x0C1D, unsupported)]
    fn nvmlGpmMigSampleGet(
        device: nvmlDevice_t,
        gpuInstanceId: u32,
        gpmSample: nvmlGpmSample_t,
    ) -> nvmlReturn_t;

    /// Tells the GPU instance profile facts by id v of a device.
    #[call(id = 0x0C1E, unsupported)]
    fn nvmlDeviceGetGpuInstanceProfileInfoByIdV(
        device: nvmlDevice_t,
        profileId: u32,
        #[local] info: *mut nvmlGpuInstanceProfileInfo_v2_t,
    ) -> nvmlReturn_t;
}
