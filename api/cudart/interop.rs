//! Memory, semaphores and pictures of other interfaces.

extern "C" {
    /// Takes memory of another interface.
    #[call]
    fn cudaImportExternalMemory(
        extMem_out: *mut cudaExternalMemory_t,
        memHandleDesc: *const cudaExternalMemoryHandleDesc,
    ) -> cudaError_t;

    /// Gives an address in foreign memory.
    #[call]
    fn cudaExternalMemoryGetMappedBuffer(
        devPtr: *mut *mut c_void,
        extMem: cudaExternalMemory_t,
        bufferDesc: *const cudaExternalMemoryBufferDesc,
    ) -> cudaError_t;

    /// Gives a mipmapped array in foreign memory.
    #[call]
    fn cudaExternalMemoryGetMappedMipmappedArray(
        mipmap: *mut cudaMipmappedArray_t,
        extMem: cudaExternalMemory_t,
        mipmapDesc: *const cudaExternalMemoryMipmappedArrayDesc,
    ) -> cudaError_t;

    /// Gives back memory of another interface.
    #[call(driver = "cuDestroyExternalMemory")]
    fn cudaDestroyExternalMemory(extMem: cudaExternalMemory_t) -> cudaError_t;

    /// Takes a semaphore of another interface.
    #[call]
    fn cudaImportExternalSemaphore(
        extSem_out: *mut cudaExternalSemaphore_t,
        semHandleDesc: *const cudaExternalSemaphoreHandleDesc,
    ) -> cudaError_t;

    /// Gives back a semaphore of another interface.
    #[call(driver = "cuDestroyExternalSemaphore")]
    fn cudaDestroyExternalSemaphore(extSem: cudaExternalSemaphore_t) -> cudaError_t;

    /// Signals foreign semaphores in stream order.
    #[call(
        driver = "cuSignalExternalSemaphoresAsync",
        symbol_12 = "cudaSignalExternalSemaphoresAsync_v2",
        ptsz
    )]
    fn cudaSignalExternalSemaphoresAsync(
        extSemArray: *const cudaExternalSemaphore_t,
        paramsArray: *const cudaExternalSemaphoreSignalParams,
        numExtSems: u32,
        stream: cudaStream_t,
    ) -> cudaError_t;

    /// Signals foreign semaphores in stream order, by the structure of CUDA 11.
    #[call(refused, only = 12, symbol = "cudaSignalExternalSemaphoresAsync", ptsz)]
    fn cudaSignalExternalSemaphoresAsync_v1(
        extSemArray: *const cudaExternalSemaphore_t,
        paramsArray: *const cudaExternalSemaphoreSignalParams_v1,
        numExtSems: u32,
        stream: cudaStream_t,
    ) -> cudaError_t;

    /// Has a stream wait for foreign semaphores.
    #[call(
        driver = "cuWaitExternalSemaphoresAsync",
        symbol_12 = "cudaWaitExternalSemaphoresAsync_v2",
        ptsz
    )]
    fn cudaWaitExternalSemaphoresAsync(
        extSemArray: *const cudaExternalSemaphore_t,
        paramsArray: *const cudaExternalSemaphoreWaitParams,
        numExtSems: u32,
        stream: cudaStream_t,
    ) -> cudaError_t;

    /// Has a stream wait for foreign semaphores, by the structure of CUDA 11.
    #[call(refused, only = 12, symbol = "cudaWaitExternalSemaphoresAsync", ptsz)]
    fn cudaWaitExternalSemaphoresAsync_v1(
        extSemArray: *const cudaExternalSemaphore_t,
        paramsArray: *const cudaExternalSemaphoreWaitParams_v1,
        numExtSems: u32,
        stream: cudaStream_t,
    ) -> cudaError_t;

    /// Makes pictures of another interface usable.
    #[call(driver = "cuGraphicsMapResources")]
    fn cudaGraphicsMapResources(
        count: i32,
        resources: *mut cudaGraphicsResource_t,
        stream: cudaStream_t,
    ) -> cudaError_t;

    /// Gives pictures back to another interface.
    #[call(driver = "cuGraphicsUnmapResources")]
    fn cudaGraphicsUnmapResources(
        count: i32,
        resources: *mut cudaGraphicsResource_t,
        stream: cudaStream_t,
    ) -> cudaError_t;

    /// Forgets a picture of another interface.
    #[call(driver = "cuGraphicsUnregisterResource")]
    fn cudaGraphicsUnregisterResource(resource: cudaGraphicsResource_t) -> cudaError_t;

    /// Says how a picture will be used.
    #[call(driver = "cuGraphicsResourceSetMapFlags_v2")]
    fn cudaGraphicsResourceSetMapFlags(resource: cudaGraphicsResource_t, flags: u32)
    -> cudaError_t;

    /// Gives the address of a mapped buffer.
    #[call(driver = "cuGraphicsResourceGetMappedPointer_v2")]
    fn cudaGraphicsResourceGetMappedPointer(
        devPtr: *mut *mut c_void,
        size: *mut usize,
        resource: cudaGraphicsResource_t,
    ) -> cudaError_t;

    /// Gives the mipmapped array of a mapped picture.
    #[call(driver = "cuGraphicsResourceGetMappedMipmappedArray")]
    fn cudaGraphicsResourceGetMappedMipmappedArray(
        mipmappedArray: *mut cudaMipmappedArray_t,
        resource: cudaGraphicsResource_t,
    ) -> cudaError_t;

    /// Gives the array of a mapped picture.
    #[call(driver = "cuGraphicsSubResourceGetMappedArray")]
    fn cudaGraphicsSubResourceGetMappedArray(
        array: *mut cudaArray_t,
        resource: cudaGraphicsResource_t,
        arrayIndex: u32,
        mipLevel: u32,
    ) -> cudaError_t;

    /// Lists the devices of an OpenGL context.
    #[call(refused)]
    fn cudaGLGetDevices(
        pCudaDeviceCount: *mut u32,
        pCudaDevices: *mut i32,
        cudaDeviceCount: u32,
        deviceList: u32,
    ) -> cudaError_t;

    /// Takes a buffer of OpenGL.
    #[call(refused)]
    fn cudaGraphicsGLRegisterBuffer(
        resource: *mut cudaGraphicsResource_t,
        buffer: u32,
        flags: u32,
    ) -> cudaError_t;

    /// Takes a picture of OpenGL.
    #[call(refused)]
    fn cudaGraphicsGLRegisterImage(
        resource: *mut cudaGraphicsResource_t,
        image: u32,
        target: u32,
        flags: u32,
    ) -> cudaError_t;

    /// Did nothing since CUDA 5.
    #[call(refused)]
    fn cudaGLSetGLDevice(device: i32) -> cudaError_t;

    /// Takes a buffer of OpenGL, in the way before CUDA 3.
    #[call(refused)]
    fn cudaGLRegisterBufferObject(bufObj: u32) -> cudaError_t;

    /// Makes a buffer usable, in the way before CUDA 3.
    #[call(refused)]
    fn cudaGLMapBufferObject(devPtr: *mut *mut c_void, bufObj: u32) -> cudaError_t;

    /// Makes a buffer usable in stream order, in the way before CUDA 3.
    #[call(refused)]
    fn cudaGLMapBufferObjectAsync(
        devPtr: *mut *mut c_void,
        bufObj: u32,
        stream: cudaStream_t,
    ) -> cudaError_t;

    /// Gives a buffer back to OpenGL, in the way before CUDA 3.
    #[call(refused)]
    fn cudaGLUnmapBufferObject(bufObj: u32) -> cudaError_t;

    /// Gives a buffer back to OpenGL in stream order, in the way before CUDA 3.
    #[call(refused)]
    fn cudaGLUnmapBufferObjectAsync(bufObj: u32, stream: cudaStream_t) -> cudaError_t;

    /// Forgets a buffer of OpenGL, in the way before CUDA 3.
    #[call(refused)]
    fn cudaGLUnregisterBufferObject(bufObj: u32) -> cudaError_t;

    /// Says how a buffer will be used, in the way before CUDA 3.
    #[call(refused)]
    fn cudaGLSetBufferObjectMapFlags(bufObj: u32, flags: u32) -> cudaError_t;

    /// Tells the device of a VDPAU device.
    #[call(refused)]
    fn cudaVDPAUGetDevice(
        device: *mut i32,
        vdpDevice: u32,
        vdpGetProcAddress: *mut c_void,
    ) -> cudaError_t;

    /// Makes a device one of VDPAU.
    #[call(refused)]
    fn cudaVDPAUSetVDPAUDevice(
        device: i32,
        vdpDevice: u32,
        vdpGetProcAddress: *mut c_void,
    ) -> cudaError_t;

    /// Takes a video surface of VDPAU.
    #[call(refused)]
    fn cudaGraphicsVDPAURegisterVideoSurface(
        resource: *mut cudaGraphicsResource_t,
        vdpSurface: u32,
        flags: u32,
    ) -> cudaError_t;

    /// Takes an output surface of VDPAU.
    #[call(refused)]
    fn cudaGraphicsVDPAURegisterOutputSurface(
        resource: *mut cudaGraphicsResource_t,
        vdpSurface: u32,
        flags: u32,
    ) -> cudaError_t;

    /// Takes a picture of EGL.
    #[call(refused)]
    fn cudaGraphicsEGLRegisterImage(
        pCudaResource: *mut cudaGraphicsResource_t,
        image: *mut c_void,
        flags: u32,
    ) -> cudaError_t;

    /// Gives the frame of a mapped picture.
    #[call(refused)]
    fn cudaGraphicsResourceGetMappedEglFrame(
        eglFrame: *mut c_void,
        resource: cudaGraphicsResource_t,
        index: u32,
        mipLevel: u32,
    ) -> cudaError_t;

    /// Takes frames from a stream of EGL.
    #[call(refused)]
    fn cudaEGLStreamConsumerConnect(conn: *mut c_void, eglStream: *mut c_void) -> cudaError_t;

    /// Takes frames from a stream of EGL, with flags.
    #[call(refused)]
    fn cudaEGLStreamConsumerConnectWithFlags(
        conn: *mut c_void,
        eglStream: *mut c_void,
        flags: u32,
    ) -> cudaError_t;

    /// Leaves a stream of EGL that frames were taken from.
    #[call(refused)]
    fn cudaEGLStreamConsumerDisconnect(conn: *mut c_void) -> cudaError_t;

    /// Takes the next frame.
    #[call(refused)]
    fn cudaEGLStreamConsumerAcquireFrame(
        conn: *mut c_void,
        pCudaResource: *mut cudaGraphicsResource_t,
        pStream: *mut cudaStream_t,
        timeout: u32,
    ) -> cudaError_t;

    /// Gives a frame back.
    #[call(refused)]
    fn cudaEGLStreamConsumerReleaseFrame(
        conn: *mut c_void,
        pCudaResource: cudaGraphicsResource_t,
        pStream: *mut cudaStream_t,
    ) -> cudaError_t;

    /// Gives frames to a stream of EGL.
    #[call(refused)]
    fn cudaEGLStreamProducerConnect(
        conn: *mut c_void,
        eglStream: *mut c_void,
        width: i32,
        height: i32,
    ) -> cudaError_t;

    /// Leaves a stream of EGL that frames were given to.
    #[call(refused)]
    fn cudaEGLStreamProducerDisconnect(conn: *mut c_void) -> cudaError_t;

    /// Gives a frame, which is passed by value: on x86-64 it is no argument in a register.
    #[call(refused)]
    fn cudaEGLStreamProducerPresentFrame(
        conn: *mut c_void,
        pStream: *mut cudaStream_t,
    ) -> cudaError_t;

    /// Takes a frame back.
    #[call(refused)]
    fn cudaEGLStreamProducerReturnFrame(
        conn: *mut c_void,
        eglframe: *mut c_void,
        pStream: *mut cudaStream_t,
    ) -> cudaError_t;

    /// Makes an event of a sync object of EGL.
    #[call(refused)]
    fn cudaEventCreateFromEGLSync(
        phEvent: *mut cudaEvent_t,
        eglSync: *mut c_void,
        flags: u32,
    ) -> cudaError_t;
}
