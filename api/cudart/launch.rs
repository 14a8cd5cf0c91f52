//! Kernels: their launch, and what is known about them.

extern "C" {
    /// Launches a kernel.
    #[call(ptsz)]
    fn cudaLaunchKernel(
        func: *const c_void,
        gridDim: dim3,
        blockDim: dim3,
        args: *mut *mut c_void,
        sharedMem: usize,
        stream: cudaStream_t,
    ) -> cudaError_t;

    /// Launches a kernel whose blocks can wait for each other.
    #[call(ptsz)]
    fn cudaLaunchCooperativeKernel(
        func: *const c_void,
        gridDim: dim3,
        blockDim: dim3,
        args: *mut *mut c_void,
        sharedMem: usize,
        stream: cudaStream_t,
    ) -> cudaError_t;

    /// Launches a kernel on several devices that wait for each other.
    #[call(refused, only = 12)]
    fn cudaLaunchCooperativeKernelMultiDevice(
        launchParamsList: *mut cudaLaunchParams,
        numDevices: u32,
        flags: u32,
    ) -> cudaError_t;

    /// Launches a kernel with attributes.
    #[call(ptsz)]
    fn cudaLaunchKernelExC(
        config: *const cudaLaunchConfig_t,
        func: *const c_void,
        args: *mut *mut c_void,
    ) -> cudaError_t;

    /// Tells what a kernel needs.
    #[call]
    fn cudaFuncGetAttributes(attr: *mut cudaFuncAttributes, func: *const c_void) -> cudaError_t;

    /// Sets an attribute of a kernel.
    #[call]
    fn cudaFuncSetAttribute(
        func: *const c_void,
        attr: cudaFuncAttribute,
        value: i32,
    ) -> cudaError_t;

    /// Says how a kernel wants cache and shared memory divided.
    #[call(driver = "cuFuncSetCacheConfig")]
    fn cudaFuncSetCacheConfig(
        #[kernel] func: *const c_void,
        cacheConfig: cudaFuncCache,
    ) -> cudaError_t;

    /// Sets the width of banks of shared memory for a kernel.
    #[call(driver = "cuFuncSetSharedMemConfig")]
    fn cudaFuncSetSharedMemConfig(
        #[kernel] func: *const c_void,
        config: cudaSharedMemConfig,
    ) -> cudaError_t;

    /// Tells a kernel's name.
    #[call(driver = "cuFuncGetName")]
    fn cudaFuncGetName(name: *mut *const c_char, #[kernel] func: *const c_void) -> cudaError_t;

    /// Tells offset and size of a kernel's parameter.
    #[call]
    fn cudaFuncGetParamInfo(
        func: *const c_void,
        paramIndex: usize,
        paramOffset: *mut usize,
        paramSize: *mut usize,
    ) -> cudaError_t;

    /// Tells how many parameters a kernel has.
    #[call(driver = "cuFuncGetParamCount", only = 13)]
    fn cudaFuncGetParamCount(#[kernel] func: *const c_void, paramCount: *mut usize) -> cudaError_t;

    /// Tells the driver's handle of a kernel on the current device.
    #[call]
    fn cudaGetFuncBySymbol(
        functionPtr: *mut cudaFunction_t,
        symbolPtr: *const c_void,
    ) -> cudaError_t;

    /// Tells the driver's handle of a kernel for all devices.
    #[call]
    fn cudaGetKernel(kernelPtr: *mut cudaKernel_t, entryFuncAddr: *const c_void) -> cudaError_t;

    /// Sets an attribute of a kernel on one device.
    #[call]
    fn cudaKernelSetAttributeForDevice(
        kernel: cudaKernel_t,
        attr: cudaFuncAttribute,
        value: i32,
        device: i32,
    ) -> cudaError_t;

    /// Tells how many blocks of a kernel run at once on a multiprocessor.
    #[call(driver = "cuOccupancyMaxActiveBlocksPerMultiprocessor")]
    fn cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        numBlocks: *mut i32,
        #[kernel] func: *const c_void,
        blockSize: i32,
        dynamicSMemSize: usize,
    ) -> cudaError_t;

    /// Tells how many blocks of a kernel run at once on a multiprocessor, with flags.
    #[call(driver = "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags")]
    fn cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        numBlocks: *mut i32,
        #[kernel] func: *const c_void,
        blockSize: i32,
        dynamicSMemSize: usize,
        flags: u32,
    ) -> cudaError_t;

    /// Tells how much shared memory blocks may have so that so many run at once.
    #[call(driver = "cuOccupancyAvailableDynamicSMemPerBlock")]
    fn cudaOccupancyAvailableDynamicSMemPerBlock(
        dynamicSmemSize: *mut usize,
        #[kernel] func: *const c_void,
        numBlocks: i32,
        blockSize: i32,
    ) -> cudaError_t;

    /// Tells the largest cluster that can be launched.
    #[call]
    fn cudaOccupancyMaxPotentialClusterSize(
        clusterSize: *mut i32,
        func: *const c_void,
        launchConfig: *const cudaLaunchConfig_t,
    ) -> cudaError_t;

    /// Tells how many clusters run at once.
    #[call]
    fn cudaOccupancyMaxActiveClusters(
        numClusters: *mut i32,
        func: *const c_void,
        launchConfig: *const cudaLaunchConfig_t,
    ) -> cudaError_t;
}
