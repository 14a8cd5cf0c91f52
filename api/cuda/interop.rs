//! What reaches beyond the driver: other processes, whose sessions are on the same server; graphics and external memory, which need the
//! application's own machine, so they are refused.

extern "C" {
    /// Exports an event to another process.
    #[call(id = 0x0e01, local, since = "4.1")]
    fn cuIpcGetEventHandle(#[out] pHandle: *mut CUipcEventHandle, event: CUevent) -> CUresult;

    /// Imports an event of another process.
    #[call(id = 0x0e02, local, since = "4.1")]
    fn cuIpcOpenEventHandle(#[out] phEvent: *mut CUevent, handle: CUipcEventHandle) -> CUresult;

    /// Exports device memory to another process.
    #[call(id = 0x0e03, local, since = "4.1")]
    fn cuIpcGetMemHandle(#[out] pHandle: *mut CUipcMemHandle, dptr: CUdeviceptr) -> CUresult;

    /// Imports device memory of another process: CUDA 4's form.
    #[call(id = 0x0e04, local, since = "4.1")]
    fn cuIpcOpenMemHandle(
        #[out] pdptr: *mut CUdeviceptr,
        handle: CUipcMemHandle,
        Flags: u32,
    ) -> CUresult;

    /// Imports device memory of another process.
    #[call(id = 0x0e05, local, since = "11.0")]
    fn cuIpcOpenMemHandle_v2(
        #[out] pdptr: *mut CUdeviceptr,
        handle: CUipcMemHandle,
        Flags: u32,
    ) -> CUresult;

    /// Lets go of imported device memory.
    #[call(id = 0x0e06, local, since = "4.1")]
    fn cuIpcCloseMemHandle(dptr: CUdeviceptr) -> CUresult;

    /// Imports memory of a graphics interface.
    #[call(id = 0x0e07, unsupported, since = "10.0")]
    fn cuImportExternalMemory(
        #[out] extMem_out: *mut CUexternalMemory,
        #[input] memHandleDesc: *const CUDA_EXTERNAL_MEMORY_HANDLE_DESC,
    ) -> CUresult;

    /// Maps imported memory as a buffer.
    #[call(id = 0x0e08, unsupported, since = "10.0")]
    fn cuExternalMemoryGetMappedBuffer(
        #[out] devPtr: *mut CUdeviceptr,
        extMem: CUexternalMemory,
        #[input] bufferDesc: *const CUDA_EXTERNAL_MEMORY_BUFFER_DESC,
    ) -> CUresult;

    /// Maps imported memory as a mipmapped array.
    #[call(id = 0x0e09, unsupported, since = "10.0")]
    fn cuExternalMemoryGetMappedMipmappedArray(
        #[out] mipmap: *mut CUmipmappedArray,
        extMem: CUexternalMemory,
        #[input] mipmapDesc: *const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC,
    ) -> CUresult;

    /// Lets go of imported memory.
    #[call(id = 0x0e0a, unsupported, since = "10.0")]
    fn cuDestroyExternalMemory(#[destroys] extMem: CUexternalMemory) -> CUresult;

    /// Imports a semaphore of a graphics interface.
    #[call(id = 0x0e0b, unsupported, since = "10.0")]
    fn cuImportExternalSemaphore(
        #[out] extSem_out: *mut CUexternalSemaphore,
        #[input] semHandleDesc: *const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC,
    ) -> CUresult;

    /// Signals imported semaphores, in stream order.
    #[call(
        id = 0x0e0c,
        unsupported,
        since = "10.0",
        per_thread = "cuSignalExternalSemaphoresAsync_ptsz@10.0"
    )]
    fn cuSignalExternalSemaphoresAsync(
        #[input(len = numExtSems)] extSemArray: *const CUexternalSemaphore,
        #[input(len = numExtSems)] paramsArray: *const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS,
        numExtSems: u32,
        stream: CUstream,
    ) -> CUresult;

    /// Waits for imported semaphores, in stream order.
    #[call(
        id = 0x0e0d,
        unsupported,
        since = "10.0",
        per_thread = "cuWaitExternalSemaphoresAsync_ptsz@10.0"
    )]
    fn cuWaitExternalSemaphoresAsync(
        #[input(len = numExtSems)] extSemArray: *const CUexternalSemaphore,
        #[input(len = numExtSems)] paramsArray: *const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS,
        numExtSems: u32,
        stream: CUstream,
    ) -> CUresult;

    /// Lets go of an imported semaphore.
    #[call(id = 0x0e0e, unsupported, since = "10.0")]
    fn cuDestroyExternalSemaphore(#[destroys] extSem: CUexternalSemaphore) -> CUresult;

    /// Lets go of a graphics resource.
    #[call(id = 0x0e0f, unsupported, since = "3.0")]
    fn cuGraphicsUnregisterResource(resource: CUgraphicsResource) -> CUresult;

    /// Gives the array behind a mapped graphics resource.
    #[call(id = 0x0e10, unsupported, since = "3.0")]
    fn cuGraphicsSubResourceGetMappedArray(
        #[out] pArray: *mut CUarray,
        resource: CUgraphicsResource,
        arrayIndex: u32,
        mipLevel: u32,
    ) -> CUresult;

    /// Gives the mipmapped array behind a mapped graphics resource.
    #[call(id = 0x0e11, unsupported, since = "5.0")]
    fn cuGraphicsResourceGetMappedMipmappedArray(
        #[out] pMipmappedArray: *mut CUmipmappedArray,
        resource: CUgraphicsResource,
    ) -> CUresult;

    /// Gives the address of a mapped graphics resource, in 32 bits.
    #[call(id = 0x0e12, unsupported, since = "3.0")]
    fn cuGraphicsResourceGetMappedPointer(
        #[out] pDevPtr: *mut CUdeviceptr_v1,
        #[out] pSize: *mut u32,
        resource: CUgraphicsResource,
    ) -> CUresult;

    /// Gives the address of a mapped graphics resource.
    #[call(id = 0x0e13, unsupported, since = "3.2")]
    fn cuGraphicsResourceGetMappedPointer_v2(
        #[out] pDevPtr: *mut CUdeviceptr,
        #[out] pSize: *mut usize,
        resource: CUgraphicsResource,
    ) -> CUresult;

    /// Says how a graphics resource will be used: before CUDA 6.5.
    #[call(id = 0x0e14, unsupported, since = "3.0")]
    fn cuGraphicsResourceSetMapFlags(resource: CUgraphicsResource, flags: u32) -> CUresult;

    /// Says how a graphics resource will be used.
    #[call(id = 0x0e15, unsupported, since = "6.5")]
    fn cuGraphicsResourceSetMapFlags_v2(resource: CUgraphicsResource, flags: u32) -> CUresult;

    /// Maps graphics resources.
    #[call(
        id = 0x0e16,
        unsupported,
        since = "3.0",
        per_thread = "cuGraphicsMapResources_ptsz@7.0"
    )]
    fn cuGraphicsMapResources(
        count: u32,
        #[input(len = count)] resources: *mut CUgraphicsResource,
        hStream: CUstream,
    ) -> CUresult;

    /// Unmaps graphics resources.
    #[call(
        id = 0x0e17,
        unsupported,
        since = "3.0",
        per_thread = "cuGraphicsUnmapResources_ptsz@7.0"
    )]
    fn cuGraphicsUnmapResources(
        count: u32,
        #[input(len = count)] resources: *mut CUgraphicsResource,
        hStream: CUstream,
    ) -> CUresult;

    /// Registers an OpenGL buffer.
    #[call(id = 0x0e18, unsupported, since = "3.0")]
    fn cuGraphicsGLRegisterBuffer(
        #[out] pCudaResource: *mut CUgraphicsResource,
        buffer: GLuint,
        Flags: u32,
    ) -> CUresult;

    /// Registers an OpenGL image.
    #[call(id = 0x0e19, unsupported, since = "3.0")]
    fn cuGraphicsGLRegisterImage(
        #[out] pCudaResource: *mut CUgraphicsResource,
        image: GLuint,
        target: GLenum,
        Flags: u32,
    ) -> CUresult;

    /// Lists the devices of an OpenGL context: before CUDA 6.5.
    #[call(id = 0x0e1a, unsupported, since = "4.1")]
    fn cuGLGetDevices(
        #[out] pCudaDeviceCount: *mut u32,
        #[out(len = cudaDeviceCount)] pCudaDevices: *mut CUdevice,
        cudaDeviceCount: u32,
        deviceList: CUGLDeviceList,
    ) -> CUresult;

    /// Lists the devices of an OpenGL context.
    #[call(id = 0x0e1b, unsupported, since = "6.5")]
    fn cuGLGetDevices_v2(
        #[out] pCudaDeviceCount: *mut u32,
        #[out(len = cudaDeviceCount)] pCudaDevices: *mut CUdevice,
        cudaDeviceCount: u32,
        deviceList: CUGLDeviceList,
    ) -> CUresult;

    /// Makes a context that shares with OpenGL, in CUDA 2's form.
    #[call(id = 0x0e1c, unsupported, since = "2.0")]
    fn cuGLCtxCreate(#[out] pCtx: *mut CUcontext, Flags: u32, device: CUdevice) -> CUresult;

    /// Makes a context that shares with OpenGL.
    #[call(id = 0x0e1d, unsupported, since = "3.2")]
    fn cuGLCtxCreate_v2(#[out] pCtx: *mut CUcontext, Flags: u32, device: CUdevice) -> CUresult;

    /// Starts sharing with OpenGL.
    #[call(id = 0x0e1e, unsupported, since = "2.0")]
    fn cuGLInit() -> CUresult;

    /// Registers an OpenGL buffer, the old way.
    #[call(id = 0x0e1f, unsupported, since = "2.0")]
    fn cuGLRegisterBufferObject(buffer: GLuint) -> CUresult;

    /// Maps an OpenGL buffer, in 32 bits.
    #[call(id = 0x0e20, unsupported, since = "2.0")]
    fn cuGLMapBufferObject(
        #[out] dptr: *mut CUdeviceptr_v1,
        #[out] size: *mut u32,
        buffer: GLuint,
    ) -> CUresult;

    /// Maps an OpenGL buffer.
    #[call(
        id = 0x0e21,
        unsupported,
        since = "3.2",
        per_thread = "cuGLMapBufferObject_v2_ptds@7.0"
    )]
    fn cuGLMapBufferObject_v2(
        #[out] dptr: *mut CUdeviceptr,
        #[out] size: *mut usize,
        buffer: GLuint,
    ) -> CUresult;

    /// Unmaps an OpenGL buffer.
    #[call(id = 0x0e22, unsupported, since = "2.0")]
    fn cuGLUnmapBufferObject(buffer: GLuint) -> CUresult;

    /// Lets go of an OpenGL buffer.
    #[call(id = 0x0e23, unsupported, since = "2.0")]
    fn cuGLUnregisterBufferObject(buffer: GLuint) -> CUresult;

    /// Says how an OpenGL buffer will be used.
    #[call(id = 0x0e24, unsupported, since = "2.3")]
    fn cuGLSetBufferObjectMapFlags(buffer: GLuint, Flags: u32) -> CUresult;

    /// Maps an OpenGL buffer in stream order, in 32 bits.
    #[call(id = 0x0e25, unsupported, since = "2.3")]
    fn cuGLMapBufferObjectAsync(
        #[out] dptr: *mut CUdeviceptr_v1,
        #[out] size: *mut u32,
        buffer: GLuint,
        hStream: CUstream,
    ) -> CUresult;

    /// Maps an OpenGL buffer in stream order.
    #[call(
        id = 0x0e26,
        unsupported,
        since = "3.2",
        per_thread = "cuGLMapBufferObjectAsync_v2_ptsz@7.0"
    )]
    fn cuGLMapBufferObjectAsync_v2(
        #[out] dptr: *mut CUdeviceptr,
        #[out] size: *mut usize,
        buffer: GLuint,
        hStream: CUstream,
    ) -> CUresult;

    /// Unmaps an OpenGL buffer in stream order.
    #[call(id = 0x0e27, unsupported, since = "2.3")]
    fn cuGLUnmapBufferObjectAsync(buffer: GLuint, hStream: CUstream) -> CUresult;

    /// Registers an EGL image.
    #[call(id = 0x0e28, unsupported, since = "7.0")]
    fn cuGraphicsEGLRegisterImage(
        #[out] pCudaResource: *mut CUgraphicsResource,
        #[local] image: *mut c_void,
        flags: u32,
    ) -> CUresult;

    /// Joins an EGL stream as its consumer.
    #[call(id = 0x0e29, unsupported, since = "7.0")]
    fn cuEGLStreamConsumerConnect(
        #[inout] conn: *mut CUeglStreamConnection,
        #[local] stream: *mut c_void,
    ) -> CUresult;

    /// Joins an EGL stream as its consumer, with flags.
    #[call(id = 0x0e2a, unsupported, since = "8.0")]
    fn cuEGLStreamConsumerConnectWithFlags(
        #[inout] conn: *mut CUeglStreamConnection,
        #[local] stream: *mut c_void,
        flags: u32,
    ) -> CUresult;

    /// Leaves an EGL stream as its consumer.
    #[call(id = 0x0e2b, unsupported, since = "7.0")]
    fn cuEGLStreamConsumerDisconnect(#[inout] conn: *mut CUeglStreamConnection) -> CUresult;

    /// Takes a frame from an EGL stream.
    #[call(id = 0x0e2c, unsupported, since = "7.0")]
    fn cuEGLStreamConsumerAcquireFrame(
        #[inout] conn: *mut CUeglStreamConnection,
        #[out] pCudaResource: *mut CUgraphicsResource,
        #[inout] pStream: *mut CUstream,
        timeout: u32,
    ) -> CUresult;

    /// Gives a frame back to an EGL stream.
    #[call(id = 0x0e2d, unsupported, since = "7.0")]
    fn cuEGLStreamConsumerReleaseFrame(
        #[inout] conn: *mut CUeglStreamConnection,
        pCudaResource: CUgraphicsResource,
        #[inout] pStream: *mut CUstream,
    ) -> CUresult;

    /// Joins an EGL stream as its producer.
    #[call(id = 0x0e2e, unsupported, since = "7.0")]
    fn cuEGLStreamProducerConnect(
        #[inout] conn: *mut CUeglStreamConnection,
        #[local] stream: *mut c_void,
        width: EGLint,
        height: EGLint,
    ) -> CUresult;

    /// Leaves an EGL stream as its producer.
    #[call(id = 0x0e2f, unsupported, since = "7.0")]
    fn cuEGLStreamProducerDisconnect(#[inout] conn: *mut CUeglStreamConnection) -> CUresult;

    /// Puts a frame into an EGL stream.
    #[call(id = 0x0e30, unsupported, since = "7.0")]
    fn cuEGLStreamProducerPresentFrame(
        #[inout] conn: *mut CUeglStreamConnection,
        eglframe: CUeglFrame,
        #[inout] pStream: *mut CUstream,
    ) -> CUresult;

    /// Takes a frame back from an EGL stream.
    #[call(id = 0x0e31, unsupported, since = "7.0")]
    fn cuEGLStreamProducerReturnFrame(
        #[inout] conn: *mut CUeglStreamConnection,
        #[out] eglframe: *mut CUeglFrame,
        #[inout] pStream: *mut CUstream,
    ) -> CUresult;

    /// Gives the frame behind a mapped graphics resource.
    #[call(id = 0x0e32, unsupported, since = "7.0")]
    fn cuGraphicsResourceGetMappedEglFrame(
        #[out] eglFrame: *mut CUeglFrame,
        resource: CUgraphicsResource,
        index: u32,
        mipLevel: u32,
    ) -> CUresult;

    /// Creates an event from an EGL sync object.
    #[call(id = 0x0e33, unsupported, since = "9.0")]
    fn cuEventCreateFromEGLSync(
        #[out] phEvent: *mut CUevent,
        #[local] eglSync: *mut c_void,
        flags: u32,
    ) -> CUresult;

    /// Tells the device of a VDPAU device.
    #[call(id = 0x0e34, unsupported, since = "3.1")]
    fn cuVDPAUGetDevice(
        #[out] pDevice: *mut CUdevice,
        vdpDevice: VdpDevice,
        #[local] vdpGetProcAddress: *mut c_void,
    ) -> CUresult;

    /// Makes a context that shares with VDPAU, in CUDA 3.1's form.
    #[call(id = 0x0e35, unsupported, since = "3.1")]
    fn cuVDPAUCtxCreate(
        #[out] pCtx: *mut CUcontext,
        flags: u32,
        device: CUdevice,
        vdpDevice: VdpDevice,
        #[local] vdpGetProcAddress: *mut c_void,
    ) -> CUresult;

    /// Makes a context that shares with VDPAU.
    #[call(id = 0x0e36, unsupported, since = "3.2")]
    fn cuVDPAUCtxCreate_v2(
        #[out] pCtx: *mut CUcontext,
        flags: u32,
        device: CUdevice,
        vdpDevice: VdpDevice,
        #[local] vdpGetProcAddress: *mut c_void,
    ) -> CUresult;

    /// Registers a VDPAU video surface.
    #[call(id = 0x0e37, unsupported, since = "3.1")]
    fn cuGraphicsVDPAURegisterVideoSurface(
        #[out] pCudaResource: *mut CUgraphicsResource,
        vdpSurface: VdpVideoSurface,
        flags: u32,
    ) -> CUresult;

    /// Registers a VDPAU output surface.
    #[call(id = 0x0e38, unsupported, since = "3.1")]
    fn cuGraphicsVDPAURegisterOutputSurface(
        #[out] pCudaResource: *mut CUgraphicsResource,
        vdpSurface: VdpOutputSurface,
        flags: u32,
    ) -> CUresult;
}
