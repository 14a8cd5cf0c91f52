//! Types of the CUDA runtime, as of CUDA 13.5 and 12.9. What the driver has under another name is the driver's type.
//!
//! Where a structure has grown from 12 to 13 the longer one stands here; the library never touches what a program of 12 does not have.

// Handles, which are the driver's.
type cudaStream_t = CUstream;
type cudaEvent_t = CUevent;
type cudaGraph_t = CUgraph;
type cudaGraphNode_t = CUgraphNode;
type cudaGraphExec_t = CUgraphExec;
type cudaGraphConditionalHandle = CUgraphConditionalHandle;
type cudaMemPool_t = CUmemoryPool;
type cudaUserObject_t = CUuserObject;
type cudaArray_t = CUarray;
type cudaArray_const_t = CUarray;
type cudaMipmappedArray_t = CUmipmappedArray;
type cudaMipmappedArray_const_t = CUmipmappedArray;
type cudaFunction_t = CUfunction;
type cudaKernel_t = CUkernel;
type cudaLibrary_t = CUlibrary;
type cudaTextureObject_t = CUtexObject;
type cudaSurfaceObject_t = CUsurfObject;
type cudaExternalMemory_t = CUexternalMemory;
type cudaExternalSemaphore_t = CUexternalSemaphore;
type cudaGraphicsResource_t = CUgraphicsResource;
type cudaAsyncCallbackHandle_t = CUasyncCallbackHandle;
type cudaLogsCallbackHandle = CUlogsCallbackHandle;
type cudaLogIterator = CUlogIterator;
type cudaExecutionContext_t = *mut c_void;
type cudaDevResourceDesc_t = *mut c_void;

// Enumerations.
type cudaError_t = i32;
type cudaMemcpyKind = u32;
type cudaChannelFormatKind = u32;
type cudaDeviceAttr = u32;
type cudaDeviceP2PAttr = u32;
type cudaAtomicOperation = u32;
type cudaDevResourceType = u32;
type cudaDriverEntryPointQueryResult = u32;
type cudaFlushGPUDirectRDMAWritesScope = u32;
type cudaFlushGPUDirectRDMAWritesTarget = u32;
type cudaFuncAttribute = u32;
type cudaFuncCache = u32;
type cudaGraphMemAttributeType = u32;
type cudaGraphNodeType = u32;
type cudaJitOption = u32;
type cudaLaunchAttributeID = u32;
type cudaLibraryOption = u32;
type cudaLimit = u32;
type cudaMemAccessFlags = u32;
type cudaMemAllocationHandleType = u32;
type cudaMemAllocationType = u32;
type cudaMemPoolAttr = u32;
type cudaMemRangeAttribute = u32;
type cudaMemoryAdvise = u32;
type cudaMemoryType = u32;
type cudaResourceType = u32;
type cudaSharedMemConfig = u32;
type cudaStreamCaptureMode = u32;
type cudaStreamCaptureStatus = u32;

// Functions of the application.
type cudaHostFn_t = CUhostFn;
type cudaStreamCallback_t = CUstreamCallback;
type cudaAsyncCallback = CUasyncCallback;
type cudaLogsCallback_t = CUlogsCallback;

// Structures that are the driver's.
type cudaUUID_t = CUuuid;
type cudaIpcEventHandle_t = CUipcEventHandle;
type cudaIpcMemHandle_t = CUipcMemHandle;
type cudaArrayMemoryRequirements = CUDA_ARRAY_MEMORY_REQUIREMENTS;
type cudaArraySparseProperties = CUDA_ARRAY_SPARSE_PROPERTIES;
type cudaExternalSemaphoreSignalParams = CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS;
type cudaExternalSemaphoreWaitParams = CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS;
type cudaExternalSemaphoreSignalNodeParams = CUDA_EXT_SEM_SIGNAL_NODE_PARAMS;
type cudaExternalSemaphoreWaitNodeParams = CUDA_EXT_SEM_WAIT_NODE_PARAMS;
type cudaGraphEdgeData = CUgraphEdgeData;
type cudaGraphExecUpdateResultInfo = CUgraphExecUpdateResultInfo;
type cudaGraphInstantiateParams = CUDA_GRAPH_INSTANTIATE_PARAMS;
type cudaHostNodeParams = CUDA_HOST_NODE_PARAMS;
type cudaLaunchAttribute = CUlaunchAttribute;
type cudaLaunchAttributeValue = CUlaunchAttributeValue;
type cudaMemAccessDesc = CUmemAccessDesc;
type cudaMemAllocNodeParams = CUDA_MEM_ALLOC_NODE_PARAMS;
type cudaMemLocation = CUmemLocation;
type cudaMemPoolProps = CUmemPoolProps;
type cudaMemPoolPtrExportData = CUmemPoolPtrExportData;
type cudaMemcpyAttributes = CUmemcpyAttributes;
type cudaMemcpy3DBatchOp = CUDA_MEMCPY3D_BATCH_OP;

// Structures of calls that are refused: nothing looks inside.
type cudaDevResource = c_void;
type cudaDevSmResourceGroupParams = c_void;
type cudaExternalSemaphoreSignalParams_v1 = c_void;
type cudaExternalSemaphoreWaitParams_v1 = c_void;
type cudaGraphRecaptureCallbackData = c_void;
type cudaLaunchParams = c_void;

// A device's properties are laid out differently in 12 and 13 (`manual/properties.rs`).
type cudaDeviceProp = c_void;

/// Extent of a grid or block.
pub struct dim3 {
    pub x: u32,
    pub y: u32,
    pub z: u32,
}

/// What the elements of an array are like.
pub struct cudaChannelFormatDesc {
    pub x: i32,
    pub y: i32,
    pub z: i32,
    pub w: i32,
    pub f: cudaChannelFormatKind,
}

/// Memory in rows.
pub struct cudaPitchedPtr {
    pub ptr: *mut c_void,
    pub pitch: usize,
    pub xsize: usize,
    pub ysize: usize,
}

/// Extent of a box.
pub struct cudaExtent {
    pub width: usize,
    pub height: usize,
    pub depth: usize,
}

/// Corner of a box.
pub struct cudaPos {
    pub x: usize,
    pub y: usize,
    pub z: usize,
}

/// Copy of a box.
pub struct cudaMemcpy3DParms {
    pub srcArray: cudaArray_t,
    pub srcPos: cudaPos,
    pub srcPtr: cudaPitchedPtr,
    pub dstArray: cudaArray_t,
    pub dstPos: cudaPos,
    pub dstPtr: cudaPitchedPtr,
    pub extent: cudaExtent,
    pub kind: cudaMemcpyKind,
}

/// Copy of a box between devices.
pub struct cudaMemcpy3DPeerParms {
    pub srcArray: cudaArray_t,
    pub srcPos: cudaPos,
    pub srcPtr: cudaPitchedPtr,
    pub srcDevice: i32,
    pub dstArray: cudaArray_t,
    pub dstPos: cudaPos,
    pub dstPtr: cudaPitchedPtr,
    pub dstDevice: i32,
    pub extent: cudaExtent,
}

/// Fill of rows, in a graph.
pub struct cudaMemsetParams {
    pub dst: *mut c_void,
    pub pitch: usize,
    pub value: u32,
    pub elementSize: u32,
    pub width: usize,
    pub height: usize,
}

/// Launch of a kernel, in a graph.
pub struct cudaKernelNodeParams {
    pub func: *mut c_void,
    pub gridDim: dim3,
    pub blockDim: dim3,
    pub sharedMemBytes: u32,
    pub kernelParams: *mut *mut c_void,
    pub extra: *mut *mut c_void,
}

/// Copy of a box, in a node of any kind.
pub struct cudaMemcpyNodeParams {
    pub flags: i32,
    pub reserved: [i32; 3],
    pub copyParams: cudaMemcpy3DParms,
}

/// Node of any kind. Its parameters lie in `params`.
pub struct cudaGraphNodeParams {
    pub kind: cudaGraphNodeType,
    pub reserved0: [i32; 3],
    pub params: cudaGraphNodeParams_params,
    pub reserved2: i64,
}

/// Parameters of a node, by its kind.
pub union cudaGraphNodeParams_params {
    pub reserved1: [i64; 29],
    pub kernel: cudaKernelNodeParams,
    pub memcpy: cudaMemcpyNodeParams,
    pub memset: cudaMemsetParams,
}

/// Launch with attributes.
pub struct cudaLaunchConfig_t {
    pub gridDim: dim3,
    pub blockDim: dim3,
    pub dynamicSmemBytes: usize,
    pub stream: cudaStream_t,
    pub attrs: *mut cudaLaunchAttribute,
    pub numAttrs: u32,
}

/// What a kernel needs.
pub struct cudaFuncAttributes {
    pub sharedSizeBytes: usize,
    pub constSizeBytes: usize,
    pub localSizeBytes: usize,
    pub maxThreadsPerBlock: i32,
    pub numRegs: i32,
    pub ptxVersion: i32,
    pub binaryVersion: i32,
    pub cacheModeCA: i32,
    pub maxDynamicSharedSizeBytes: i32,
    pub preferredShmemCarveout: i32,
    pub clusterDimMustBeSet: i32,
    pub requiredClusterWidth: i32,
    pub requiredClusterHeight: i32,
    pub requiredClusterDepth: i32,
    pub clusterSchedulingPolicyPreference: i32,
    pub nonPortableClusterSizeAllowed: i32,
    pub reserved: [i32; 16],
}

/// What an address belongs to. Version 13 has more room behind it, which is cleared there.
pub struct cudaPointerAttributes {
    pub kind: cudaMemoryType,
    pub device: i32,
    pub devicePointer: *mut c_void,
    pub hostPointer: *mut c_void,
}

/// Linear memory of a texture.
pub struct cudaResourceDesc_linear {
    pub devPtr: *mut c_void,
    pub desc: cudaChannelFormatDesc,
    pub sizeInBytes: usize,
}

/// Rows of memory of a texture.
pub struct cudaResourceDesc_pitch2D {
    pub devPtr: *mut c_void,
    pub desc: cudaChannelFormatDesc,
    pub width: usize,
    pub height: usize,
    pub pitchInBytes: usize,
}

/// Memory of a texture, by its kind.
pub union cudaResourceDesc_res {
    pub array: cudaArray_t,
    pub mipmap: cudaMipmappedArray_t,
    pub linear: cudaResourceDesc_linear,
    pub pitch2D: cudaResourceDesc_pitch2D,
}

/// Memory of a texture or surface. Version 13 has more room behind it, and flags that must be 0.
pub struct cudaResourceDesc {
    pub resType: cudaResourceType,
    pub res: cudaResourceDesc_res,
}

/// How a texture reads.
pub struct cudaTextureDesc {
    pub addressMode: [u32; 3],
    pub filterMode: u32,
    pub readMode: u32,
    pub sRGB: i32,
    pub borderColor: [f32; 4],
    pub normalizedCoords: i32,
    pub maxAnisotropy: u32,
    pub mipmapFilterMode: u32,
    pub mipmapLevelBias: f32,
    pub minMipmapLevelClamp: f32,
    pub maxMipmapLevelClamp: f32,
    pub disableTrilinearOptimization: i32,
    pub seamlessCubemap: i32,
}

/// Part of its memory that a texture reads. Version 13 has more room behind it.
pub struct cudaResourceViewDesc {
    pub format: u32,
    pub width: usize,
    pub height: usize,
    pub depth: usize,
    pub firstMipmapLevel: u32,
    pub lastMipmapLevel: u32,
    pub firstLayer: u32,
    pub lastLayer: u32,
}

/// Memory of another interface. Version 13 has more room behind it.
pub struct cudaExternalMemoryHandleDesc {
    pub kind: u32,
    pub handle: [u64; 2],
    pub size: u64,
    pub flags: u32,
}

/// Range of foreign memory. Version 13 has more room behind it.
pub struct cudaExternalMemoryBufferDesc {
    pub offset: u64,
    pub size: u64,
    pub flags: u32,
}

/// Mipmapped array in foreign memory. Version 13 has more room behind it.
pub struct cudaExternalMemoryMipmappedArrayDesc {
    pub offset: u64,
    pub formatDesc: cudaChannelFormatDesc,
    pub extent: cudaExtent,
    pub flags: u32,
    pub numLevels: u32,
}

/// Semaphore of another interface. Version 13 has more room behind it.
pub struct cudaExternalSemaphoreHandleDesc {
    pub kind: u32,
    pub handle: [u64; 2],
    pub flags: u32,
}
