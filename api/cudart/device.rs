//! Devices: which there are, what they are like, which one a thread uses.

extern "C" {
    /// Tells how many devices there are.
    #[call]
    fn cudaGetDeviceCount(count: *mut i32) -> cudaError_t;

    /// Tells the calling thread's device.
    #[call]
    fn cudaGetDevice(device: *mut i32) -> cudaError_t;

    /// Makes a device the calling thread's.
    #[call]
    fn cudaSetDevice(device: i32) -> cudaError_t;

    /// Sets how the current device's context waits and maps memory.
    #[call]
    fn cudaSetDeviceFlags(flags: u32) -> cudaError_t;

    /// Tells how the current device's context waits and maps memory.
    #[call]
    fn cudaGetDeviceFlags(flags: *mut u32) -> cudaError_t;

    /// Lists devices to try in order of preference.
    #[call]
    fn cudaSetValidDevices(device_arr: *mut i32, len: i32) -> cudaError_t;

    /// Starts a device without making it the thread's.
    #[call]
    fn cudaInitDevice(device: i32, deviceFlags: u32, flags: u32) -> cudaError_t;

    /// Finds the device that suits wishes best.
    #[call]
    fn cudaChooseDevice(device: *mut i32, prop: *const cudaDeviceProp) -> cudaError_t;

    /// Tells what a device is like.
    #[call(by = self.tell_properties(prop, device), symbol_12 = "cudaGetDeviceProperties_v2")]
    fn cudaGetDeviceProperties(prop: *mut cudaDeviceProp, device: i32) -> cudaError_t;

    /// Tells what a device is like, in the shorter structure of CUDA 11.
    #[call(by = self.tell_properties_11(prop, device), only = 12, symbol = "cudaGetDeviceProperties")]
    fn cudaGetDeviceProperties_v1(prop: *mut cudaDeviceProp, device: i32) -> cudaError_t;

    /// Tells one number about a device.
    #[call(bare = "cuDeviceGetAttribute")]
    fn cudaDeviceGetAttribute(value: *mut i32, attr: cudaDeviceAttr, device: i32) -> cudaError_t;

    /// Finds a device by its place on the PCI bus.
    #[call(bare = "cuDeviceGetByPCIBusId")]
    fn cudaDeviceGetByPCIBusId(device: *mut i32, pciBusId: *const c_char) -> cudaError_t;

    /// Tells a device's place on the PCI bus.
    #[call(bare = "cuDeviceGetPCIBusId")]
    fn cudaDeviceGetPCIBusId(pciBusId: *mut c_char, len: i32, device: i32) -> cudaError_t;

    /// Destroys everything that the process has on the current device.
    #[call(by = self.reset())]
    fn cudaDeviceReset() -> cudaError_t;

    /// Waits until all work on the current device is done.
    #[call(driver = "cuCtxSynchronize")]
    fn cudaDeviceSynchronize() -> cudaError_t;

    /// Tells a limit of the current device.
    #[call(driver = "cuCtxGetLimit")]
    fn cudaDeviceGetLimit(pValue: *mut usize, limit: cudaLimit) -> cudaError_t;

    /// Sets a limit of the current device.
    #[call(driver = "cuCtxSetLimit")]
    fn cudaDeviceSetLimit(limit: cudaLimit, value: usize) -> cudaError_t;

    /// Tells how the device divides cache and shared memory.
    #[call(driver = "cuCtxGetCacheConfig")]
    fn cudaDeviceGetCacheConfig(pCacheConfig: *mut cudaFuncCache) -> cudaError_t;

    /// Says how the device should divide cache and shared memory.
    #[call(driver = "cuCtxSetCacheConfig")]
    fn cudaDeviceSetCacheConfig(cacheConfig: cudaFuncCache) -> cudaError_t;

    /// Tells the width of banks of shared memory.
    #[call(driver = "cuCtxGetSharedMemConfig")]
    fn cudaDeviceGetSharedMemConfig(pConfig: *mut cudaSharedMemConfig) -> cudaError_t;

    /// Sets the width of banks of shared memory.
    #[call(driver = "cuCtxSetSharedMemConfig")]
    fn cudaDeviceSetSharedMemConfig(config: cudaSharedMemConfig) -> cudaError_t;

    /// Tells the least and the greatest priority of a stream.
    #[call(driver = "cuCtxGetStreamPriorityRange")]
    fn cudaDeviceGetStreamPriorityRange(
        leastPriority: *mut i32,
        greatestPriority: *mut i32,
    ) -> cudaError_t;

    /// Makes persisting lines of the L2 cache ordinary again.
    #[call(driver = "cuCtxResetPersistingL2Cache")]
    fn cudaCtxResetPersistingL2Cache() -> cudaError_t;

    /// Tells how many elements a linear texture may have.
    #[call]
    fn cudaDeviceGetTexture1DLinearMaxWidth(
        maxWidthInElements: *mut usize,
        fmtDesc: *const cudaChannelFormatDesc,
        device: i32,
    ) -> cudaError_t;

    /// Makes writes of other devices visible.
    #[call(driver = "cuFlushGPUDirectRDMAWrites")]
    fn cudaDeviceFlushGPUDirectRDMAWrites(
        target: cudaFlushGPUDirectRDMAWritesTarget,
        scope: cudaFlushGPUDirectRDMAWritesScope,
    ) -> cudaError_t;

    /// Tells what the device's NvSciSync objects need.
    #[call(bare = "cuDeviceGetNvSciSyncAttributes")]
    fn cudaDeviceGetNvSciSyncAttributes(
        nvSciSyncAttrList: *mut c_void,
        device: i32,
        flags: i32,
    ) -> cudaError_t;

    /// Registers a function for notifications of a device.
    #[call(bare = "cuDeviceRegisterAsyncNotification")]
    fn cudaDeviceRegisterAsyncNotification(
        device: i32,
        callbackFunc: cudaAsyncCallback,
        userData: *mut c_void,
        callback: *mut cudaAsyncCallbackHandle_t,
    ) -> cudaError_t;

    /// Ends notifications of a device.
    #[call(bare = "cuDeviceUnregisterAsyncNotification")]
    fn cudaDeviceUnregisterAsyncNotification(
        device: i32,
        callback: cudaAsyncCallbackHandle_t,
    ) -> cudaError_t;

    /// Tells which atomic operations reach the host's memory.
    #[call(bare = "cuDeviceGetHostAtomicCapabilities", only = 13)]
    fn cudaDeviceGetHostAtomicCapabilities(
        capabilities: *mut u32,
        operations: *const cudaAtomicOperation,
        count: u32,
        device: i32,
    ) -> cudaError_t;

    /// Tells the version of CUDA that the driver supports; 0 without a driver.
    #[call]
    fn cudaDriverGetVersion(driverVersion: *mut i32) -> cudaError_t;

    /// Tells the version of this library.
    #[call]
    fn cudaRuntimeGetVersion(runtimeVersion: *mut i32) -> cudaError_t;

    /// As cudaDeviceReset, by its old name.
    #[call(by = self.reset(), only = 12)]
    fn cudaThreadExit() -> cudaError_t;

    /// As cudaDeviceSynchronize, by its old name.
    #[call(driver = "cuCtxSynchronize", only = 12)]
    fn cudaThreadSynchronize() -> cudaError_t;

    /// As cudaDeviceGetLimit, by its old name.
    #[call(driver = "cuCtxGetLimit", only = 12)]
    fn cudaThreadGetLimit(pValue: *mut usize, limit: cudaLimit) -> cudaError_t;

    /// As cudaDeviceSetLimit, by its old name.
    #[call(driver = "cuCtxSetLimit", only = 12)]
    fn cudaThreadSetLimit(limit: cudaLimit, value: usize) -> cudaError_t;

    /// As cudaDeviceGetCacheConfig, by its old name.
    #[call(driver = "cuCtxGetCacheConfig", only = 12)]
    fn cudaThreadGetCacheConfig(pCacheConfig: *mut cudaFuncCache) -> cudaError_t;

    /// As cudaDeviceSetCacheConfig, by its old name.
    #[call(driver = "cuCtxSetCacheConfig", only = 12)]
    fn cudaThreadSetCacheConfig(cacheConfig: cudaFuncCache) -> cudaError_t;

    /// Does nothing: every device has double precision.
    #[call(only = 12)]
    fn cudaSetDoubleForDevice(d: *mut f64) -> cudaError_t;

    /// Does nothing: every device has double precision.
    #[call(only = 12)]
    fn cudaSetDoubleForHost(d: *mut f64) -> cudaError_t;

    /// Starts profiling where a profiler is attached.
    #[call]
    fn cudaProfilerStart() -> cudaError_t;

    /// Stops profiling where a profiler is attached.
    #[call]
    fn cudaProfilerStop() -> cudaError_t;
}
