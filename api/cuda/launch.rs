//! Launches and what fits on a device. Parameters are packed by the layout that the image's facts tell.

extern "C" {
    /// Launches a kernel.
    #[call(
        id = 0x0901,
        local,
        manual(client),
        since = "4.0",
        per_thread = "cuLaunchKernel_ptsz@7.0"
    )]
    fn cuLaunchKernel(
        f: CUfunction,
        gridDimX: u32,
        gridDimY: u32,
        gridDimZ: u32,
        blockDimX: u32,
        blockDimY: u32,
        blockDimZ: u32,
        sharedMemBytes: u32,
        hStream: CUstream,
        #[local] kernelParams: *mut *mut c_void,
        #[local] extra: *mut *mut c_void,
    ) -> CUresult;

    /// Launches a kernel with attributes.
    #[call(
        id = 0x0902,
        local,
        manual(client),
        since = "11.6",
        per_thread = "cuLaunchKernelEx_ptsz@11.6"
    )]
    fn cuLaunchKernelEx(
        #[input] config: *const CUlaunchConfig,
        f: CUfunction,
        #[local] kernelParams: *mut *mut c_void,
        #[local] extra: *mut *mut c_void,
    ) -> CUresult;

    /// Launches a kernel whose blocks all run at once.
    #[call(
        id = 0x0903,
        local,
        manual(client),
        since = "9.0",
        per_thread = "cuLaunchCooperativeKernel_ptsz@9.0"
    )]
    fn cuLaunchCooperativeKernel(
        f: CUfunction,
        gridDimX: u32,
        gridDimY: u32,
        gridDimZ: u32,
        blockDimX: u32,
        blockDimY: u32,
        blockDimZ: u32,
        sharedMemBytes: u32,
        hStream: CUstream,
        #[local] kernelParams: *mut *mut c_void,
    ) -> CUresult;

    /// Launches such kernels on several devices; CUDA 13 has it no more.
    #[call(id = 0x0904, unsupported, since = "9.0")]
    fn cuLaunchCooperativeKernelMultiDevice(
        #[input(len = numDevices)] launchParamsList: *mut CUDA_LAUNCH_PARAMS,
        numDevices: u32,
        flags: u32,
    ) -> CUresult;

    /// Calls a function of the application, in stream order.
    #[call(
        id = 0x0905,
        local,
        manual(client),
        since = "10.0",
        per_thread = "cuLaunchHostFunc_ptsz@10.0"
    )]
    fn cuLaunchHostFunc(
        hStream: CUstream,
        #[callback] r#fn: CUhostFn,
        #[user_data] userData: *mut c_void,
    ) -> CUresult;

    /// Calls a function of the application, in stream order, and says how the stream waits for it.
    #[call(
        id = 0x0906,
        local,
        since = "13.1",
        per_thread = "cuLaunchHostFunc_v2_ptsz@13.1"
    )]
    fn cuLaunchHostFunc_v2(
        hStream: CUstream,
        #[callback] r#fn: CUhostFn,
        #[user_data] userData: *mut c_void,
        syncMode: u32,
    ) -> CUresult;

    /// Sets the block size of the next old-style launch.
    #[call(id = 0x0907, local, since = "2.0")]
    fn cuFuncSetBlockShape(hfunc: CUfunction, x: i32, y: i32, z: i32) -> CUresult;

    /// Sets the dynamic shared memory of the next old-style launch.
    #[call(id = 0x0908, local, since = "2.0")]
    fn cuFuncSetSharedSize(hfunc: CUfunction, bytes: u32) -> CUresult;

    /// Sets the size of the parameters of the next old-style launch.
    #[call(id = 0x0909, local, since = "2.0")]
    fn cuParamSetSize(hfunc: CUfunction, numbytes: u32) -> CUresult;

    /// Sets an integer parameter of the next old-style launch.
    #[call(id = 0x090a, local, since = "2.0")]
    fn cuParamSeti(hfunc: CUfunction, offset: i32, value: u32) -> CUresult;

    /// Sets a floating-point parameter of the next old-style launch.
    #[call(id = 0x090b, local, since = "2.0")]
    fn cuParamSetf(hfunc: CUfunction, offset: i32, value: f32) -> CUresult;

    /// Sets any parameter of the next old-style launch.
    #[call(id = 0x090c, local, since = "2.0")]
    fn cuParamSetv(
        hfunc: CUfunction,
        offset: i32,
        #[input(bytes = numbytes)] ptr: *mut c_void,
        numbytes: u32,
    ) -> CUresult;

    /// Does nothing: textures are found by name.
    #[call(id = 0x090d, local, since = "2.0")]
    fn cuParamSetTexRef(hfunc: CUfunction, texunit: i32, hTexRef: CUtexref) -> CUresult;

    /// Launches one block, the old way.
    #[call(id = 0x090e, local, since = "2.0")]
    fn cuLaunch(f: CUfunction) -> CUresult;

    /// Launches a grid, the old way.
    #[call(id = 0x090f, local, since = "2.0")]
    fn cuLaunchGrid(f: CUfunction, grid_width: i32, grid_height: i32) -> CUresult;

    /// Launches a grid in stream order, the old way.
    #[call(id = 0x0910, local, since = "2.0")]
    fn cuLaunchGridAsync(
        f: CUfunction,
        grid_width: i32,
        grid_height: i32,
        hStream: CUstream,
    ) -> CUresult;

    /// Tells how many blocks run at once on a multiprocessor.
    #[call(id = 0x0911, local, manual(client), since = "6.5")]
    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
        #[out] numBlocks: *mut i32,
        func: CUfunction,
        blockSize: i32,
        dynamicSMemSize: usize,
    ) -> CUresult;

    /// Tells how many blocks run at once on a multiprocessor, with flags.
    #[call(id = 0x0912, local, manual(client), since = "7.0")]
    fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        #[out] numBlocks: *mut i32,
        func: CUfunction,
        blockSize: i32,
        dynamicSMemSize: usize,
        flags: u32,
    ) -> CUresult;

    /// Suggests a block size.
    #[call(id = 0x0913, local, manual(client), since = "6.5")]
    fn cuOccupancyMaxPotentialBlockSize(
        #[out] minGridSize: *mut i32,
        #[out] blockSize: *mut i32,
        func: CUfunction,
        #[callback] blockSizeToDynamicSMemSize: CUoccupancyB2DSize,
        dynamicSMemSize: usize,
        blockSizeLimit: i32,
    ) -> CUresult;

    /// Suggests a block size, with flags.
    #[call(id = 0x0914, local, manual(client), since = "7.0")]
    fn cuOccupancyMaxPotentialBlockSizeWithFlags(
        #[out] minGridSize: *mut i32,
        #[out] blockSize: *mut i32,
        func: CUfunction,
        #[callback] blockSizeToDynamicSMemSize: CUoccupancyB2DSize,
        dynamicSMemSize: usize,
        blockSizeLimit: i32,
        flags: u32,
    ) -> CUresult;

    /// Tells how much dynamic shared memory blocks of a size can have.
    #[call(id = 0x0915, local, manual(client), since = "10.2")]
    fn cuOccupancyAvailableDynamicSMemPerBlock(
        #[out] dynamicSmemSize: *mut usize,
        func: CUfunction,
        numBlocks: i32,
        blockSize: i32,
    ) -> CUresult;

    /// Tells the largest cluster that a launch can have.
    #[call(id = 0x0916, local, manual(client), since = "11.7")]
    fn cuOccupancyMaxPotentialClusterSize(
        #[out] clusterSize: *mut i32,
        func: CUfunction,
        #[input] config: *const CUlaunchConfig,
    ) -> CUresult;

    /// Tells how many clusters of a launch run at once.
    #[call(id = 0x0917, local, manual(client), since = "11.7")]
    fn cuOccupancyMaxActiveClusters(
        #[out] numClusters: *mut i32,
        func: CUfunction,
        #[input] config: *const CUlaunchConfig,
    ) -> CUresult;
}
