//! Types of the CUDA driver API, as of CUDA 13.5; what CUDA 12 has is the same, or named by its version.
//! Their constants are in `values.rs`.
//!
//! Handles carry the tag that names their kind on the wire; a tag is never reused. `cargo xtask api check --header` compares sizes,
//! offsets, signatures and values with an installed `cuda.h`. A field that C leaves unnamed is marked `#[unnamed]` and called `either`.

// Numbers.
type cuuint32_t = u32;
type cuuint64_t = u64;
type CUdevice = i32;
type CUdeviceptr = u64;
type CUtexObject = u64;
type CUsurfObject = u64;
type CUmemGenericAllocationHandle = u64;
type CUgraphConditionalHandle = cuuint64_t;
type CUlogicalEndpointId = cuuint32_t;
type CUlogIterator = u32;
type CUdeviceptr_v1 = u32;

// Types of other interfaces, for the calls that share with them.
type GLuint = u32;
type GLenum = u32;
type EGLint = i32;
type VdpDevice = u32;
type VdpVideoSurface = u32;
type VdpOutputSurface = u32;
type CUGLDeviceList = u32;
type CUoutput_mode = u32;

// Enumerations. A status is signed, like every status that a session carries.
type CUipcMem_flags = u32;
type CUmemAttach_flags = u32;
type CUctx_flags = u32;
type CUevent_sched_flags = u32;
type cl_event_flags = u32;
type cl_context_flags = u32;
type CUhostTaskSyncMode = u32;
type CUstream_flags = u32;
type CUevent_flags = u32;
type CUevent_record_flags = u32;
type CUevent_wait_flags = u32;
type CUatomicOperation = u32;
type CUatomicOperationCapability = u32;
type CUstreamWaitValue_flags = u32;
type CUstreamWriteValue_flags = u32;
type CUstreamBatchMemOpType = u32;
type CUstreamMemoryBarrier_flags = u32;
type CUstreamAtomicReductionOpType = u32;
type CUstreamAtomicReductionDataType = u32;
type CUoccupancy_flags = u32;
type CUstreamUpdateCaptureDependencies_flags = u32;
type CUasyncNotificationType = u32;
type CUarray_format = u32;
type CUaddress_mode = u32;
type CUfilter_mode = u32;
type CUdevice_attribute = u32;
type CUpointer_attribute = u32;
type CUfunction_attribute = u32;
type CUfunc_cache = u32;
type CUsharedconfig = u32;
type CUshared_carveout = i32;
type CUmemorytype = u32;
type CUcomputemode = u32;
type CUmem_advise = u32;
type CUmem_range_attribute = u32;
type CUjit_option = u32;
type CUjit_target = u32;
type CUjit_fallback = u32;
type CUjit_cacheMode = u32;
type CUjitInputType = u32;
type CUgraphicsRegisterFlags = u32;
type CUgraphicsMapResourceFlags = u32;
type CUarray_cubemap_face = u32;
type CUlimit = u32;
type CUresourcetype = u32;
type CUaccessProperty = u32;
type CUgraphConditionalNodeType = u32;
type CUgraphNodeType = u32;
type CUgraphDependencyType = u32;
type CUgraphInstantiateResult = u32;
type CUsynchronizationPolicy = u32;
type CUclusterSchedulingPolicy = u32;
type CUlaunchMemSyncDomain = u32;
type CUlaunchAttributePortableClusterMode = u32;
type CUsharedMemoryMode = u32;
type CUlaunchAttributeID = u32;
type CUstreamCaptureStatus = u32;
type CUstreamCaptureMode = u32;
type CUdriverProcAddress_flags = u32;
type CUdriverProcAddressQueryResult = u32;
type CUexecAffinityType = u32;
type CUcigDataType = u32;
type CUstreamCigDataType = u32;
type CUlibraryOption = u32;
type CUresult = i32;
type CUdevice_P2PAttribute = u32;
type CUresourceViewFormat = u32;
type CUtensorMapDataType = u32;
type CUtensorMapInterleave = u32;
type CUtensorMapSwizzle = u32;
type CUtensorMapL2promotion = u32;
type CUtensorMapFloatOOBfill = u32;
type CUtensorMapIm2ColWideMode = u32;
type CUtensorMapAllocClass = u32;
type CUDA_POINTER_ATTRIBUTE_ACCESS_FLAGS = u32;
type CUexternalMemoryHandleType = u32;
type CUexternalSemaphoreHandleType = u32;
type CUmemAllocationHandleType = u32;
type CUmemAccess_flags = u32;
type CUmemLocationType = u32;
type CUmemAllocationType = u32;
type CUmemAllocationGranularity_flags = u32;
type CUmemRangeHandleType = u32;
type CUmemRangeFlags = u32;
type CUarraySparseSubresourceType = u32;
type CUmemOperationType = u32;
type CUmemHandleType = u32;
type CUmemAllocationCompType = u32;
type CUmulticastGranularity_flags = u32;
type CUgraphExecUpdateResult = u32;
type CUmemPool_attribute = u32;
type CUmemcpyFlags = u32;
type CUmemcpySrcAccessOrder = u32;
type CUmemcpy3DOperandType = u32;
type CUgraphMem_attribute = u32;
type CUgraphChildGraphNodeOwnership = i32;
type CUflushGPUDirectRDMAWritesOptions = u32;
type CUGPUDirectRDMAWritesOrdering = u32;
type CUflushGPUDirectRDMAWritesScope = u32;
type CUflushGPUDirectRDMAWritesTarget = u32;
type CUgraphDebugDot_flags = u32;
type CUuserObject_flags = u32;
type CUuserObjectRetain_flags = u32;
type CUgraphInstantiate_flags = u32;
type CUdeviceNumaConfig = u32;
type CUprocessState = u32;
type CUmoduleLoadingMode = u32;
type CUmemDecompressAlgorithm = u32;
type CUcliqueType = u32;
type CUlogicalEndpointIpcHandleType = u32;
type CUlogicalEndpointType = u32;
type CUlogicalEndpointFlag = u32;
type CUfabricCpyOperandType = u32;
type CUgraphRecaptureStatus = u32;
type CUfunctionLoadingState = u32;
type CUcoredumpSettings = u32;
type CUCoredumpGenerationFlags = u32;
type CUgreenCtxCreate_flags = u32;
type CUdevSmResourceGroup_flags = u32;
type CUdevSmResourceSplitByCount_flags = u32;
type CUdevResourceType = u32;
type CUdevWorkqueueConfigScope = u32;
type CUlogLevel = u32;
type CUkernelNodeAttrID = CUlaunchAttributeID;
type CUstreamAttrID = CUlaunchAttributeID;

// Functions of the application.
type CUasyncCallback = Option<
    unsafe extern "C" fn(
        info: *mut CUasyncNotificationInfo,
        userData: *mut c_void,
        callback: CUasyncCallbackHandle,
    ),
>;
type CUhostFn = Option<unsafe extern "C" fn(userData: *mut c_void)>;
type CUstreamCallback =
    Option<unsafe extern "C" fn(hStream: CUstream, status: CUresult, userData: *mut c_void)>;
type CUoccupancyB2DSize = Option<unsafe extern "C" fn(blockSize: i32) -> usize>;
type CUgraphRecaptureCallback = Option<
    unsafe extern "C" fn(
        data: *mut c_void,
        node: CUgraphNode,
        originalParams: *const CUgraphNodeParams,
        recaptureParams: *const CUgraphNodeParams,
        status: CUgraphRecaptureStatus,
    ) -> CUresult,
>;
type CUcoredumpStatusCallback =
    Option<unsafe extern "C" fn(userData: *mut c_void, pid: i32, dev: CUdevice)>;
type CUlogsCallback = Option<
    unsafe extern "C" fn(
        data: *mut c_void,
        logLevel: CUlogLevel,
        message: *mut c_char,
        length: usize,
    ),
>;

// Handles.
extern "C" {
    #[handle(tag = 1)]
    type CUcontext;
    #[handle(tag = 2)]
    type CUmodule;
    #[handle(tag = 3)]
    type CUfunction;
    #[handle(tag = 4)]
    type CUlibrary;
    #[handle(tag = 5)]
    type CUkernel;
    #[handle(tag = 6)]
    type CUarray;
    #[handle(tag = 7)]
    type CUmipmappedArray;
    #[handle(tag = 8)]
    type CUtexref;
    #[handle(tag = 9)]
    type CUsurfref;
    #[handle(tag = 10)]
    type CUevent;
    #[handle(tag = 11)]
    type CUstream;
    #[handle(tag = 12)]
    type CUgraphicsResource;
    #[handle(tag = 13)]
    type CUexternalMemory;
    #[handle(tag = 14)]
    type CUexternalSemaphore;
    #[handle(tag = 15)]
    type CUgraph;
    #[handle(tag = 16)]
    type CUgraphNode;
    #[handle(tag = 17)]
    type CUgraphExec;
    #[handle(tag = 18)]
    type CUmemoryPool;
    #[handle(tag = 19)]
    type CUuserObject;
    #[handle(tag = 20)]
    type CUgraphDeviceNode;
    #[handle(tag = 21)]
    type CUasyncCallbackHandle;
    #[handle(tag = 22)]
    type CUgreenCtx;
    #[handle(tag = 23)]
    type CUlinkState;
    #[handle(tag = 24)]
    type CUcheckpointOperationHandle;
    #[handle(tag = 25)]
    type CUcoredumpCallbackHandle;
    #[handle(tag = 26)]
    type CUdevResourceDesc;
    #[handle(tag = 27)]
    type CUlogsCallbackHandle;
    #[handle(tag = 28)]
    type CUeglStreamConnection;
}

pub struct CUuuid {
    pub bytes: [c_char; 16],
}

pub struct CUmemFabricHandle {
    pub data: [u8; 64],
}

pub struct CUipcEventHandle {
    pub reserved: [c_char; 64],
}

pub struct CUipcMemHandle {
    pub reserved: [c_char; 64],
}

pub union CUstreamBatchMemOpParams_waitValue_either {
    pub value: cuuint32_t,
    pub value64: cuuint64_t,
}

pub struct CUstreamBatchMemOpParams_waitValue {
    pub operation: CUstreamBatchMemOpType,
    pub address: CUdeviceptr,
    #[unnamed]
    pub either: CUstreamBatchMemOpParams_waitValue_either,
    pub flags: u32,
    pub alias: CUdeviceptr,
}

pub union CUstreamBatchMemOpParams_writeValue_either {
    pub value: cuuint32_t,
    pub value64: cuuint64_t,
}

pub struct CUstreamBatchMemOpParams_writeValue {
    pub operation: CUstreamBatchMemOpType,
    pub address: CUdeviceptr,
    #[unnamed]
    pub either: CUstreamBatchMemOpParams_writeValue_either,
    pub flags: u32,
    pub alias: CUdeviceptr,
}

pub struct CUstreamBatchMemOpParams_flushRemoteWrites {
    pub operation: CUstreamBatchMemOpType,
    pub flags: u32,
}

pub struct CUstreamBatchMemOpParams_memoryBarrier {
    pub operation: CUstreamBatchMemOpType,
    pub flags: u32,
}

pub struct CUstreamBatchMemOpParams_atomicReduction {
    pub operation: CUstreamBatchMemOpType,
    pub flags: u32,
    pub reductionOp: CUstreamAtomicReductionOpType,
    pub dataType: CUstreamAtomicReductionDataType,
    pub address: CUdeviceptr,
    pub value: cuuint64_t,
    pub alias: CUdeviceptr,
}

pub union CUstreamBatchMemOpParams {
    pub operation: CUstreamBatchMemOpType,
    pub waitValue: CUstreamBatchMemOpParams_waitValue,
    pub writeValue: CUstreamBatchMemOpParams_writeValue,
    pub flushRemoteWrites: CUstreamBatchMemOpParams_flushRemoteWrites,
    pub memoryBarrier: CUstreamBatchMemOpParams_memoryBarrier,
    pub atomicReduction: CUstreamBatchMemOpParams_atomicReduction,
    pub pad: [cuuint64_t; 6],
}

pub struct CUDA_BATCH_MEM_OP_NODE_PARAMS {
    pub ctx: CUcontext,
    pub count: u32,
    pub paramArray: *mut CUstreamBatchMemOpParams,
    pub flags: u32,
}

pub struct CUDA_BATCH_MEM_OP_NODE_PARAMS_v2 {
    pub ctx: CUcontext,
    pub count: u32,
    pub paramArray: *mut CUstreamBatchMemOpParams,
    pub flags: u32,
}

pub struct CUasyncNotificationInfo_info_overBudget {
    pub bytesOverBudget: u64,
}

pub union CUasyncNotificationInfo_info {
    pub overBudget: CUasyncNotificationInfo_info_overBudget,
}

pub struct CUasyncNotificationInfo {
    pub r#type: CUasyncNotificationType,
    pub info: CUasyncNotificationInfo_info,
}

pub struct CUdevprop {
    pub maxThreadsPerBlock: i32,
    pub maxThreadsDim: [i32; 3],
    pub maxGridSize: [i32; 3],
    pub sharedMemPerBlock: i32,
    pub totalConstantMemory: i32,
    pub SIMDWidth: i32,
    pub memPitch: i32,
    pub regsPerBlock: i32,
    pub clockRate: i32,
    pub textureAlign: i32,
}

pub struct CUaccessPolicyWindow {
    pub base_ptr: *mut c_void,
    pub num_bytes: usize,
    pub hitRatio: f32,
    pub hitProp: CUaccessProperty,
    pub missProp: CUaccessProperty,
}

pub struct CUDA_KERNEL_NODE_PARAMS_v1 {
    pub func: CUfunction,
    pub gridDimX: u32,
    pub gridDimY: u32,
    pub gridDimZ: u32,
    pub blockDimX: u32,
    pub blockDimY: u32,
    pub blockDimZ: u32,
    pub sharedMemBytes: u32,
    pub kernelParams: *mut *mut c_void,
    pub extra: *mut *mut c_void,
}

pub struct CUDA_KERNEL_NODE_PARAMS {
    pub func: CUfunction,
    pub gridDimX: u32,
    pub gridDimY: u32,
    pub gridDimZ: u32,
    pub blockDimX: u32,
    pub blockDimY: u32,
    pub blockDimZ: u32,
    pub sharedMemBytes: u32,
    pub kernelParams: *mut *mut c_void,
    pub extra: *mut *mut c_void,
    pub kern: CUkernel,
    pub ctx: CUcontext,
}

pub struct CUDA_KERNEL_NODE_PARAMS_v3 {
    pub func: CUfunction,
    pub gridDimX: u32,
    pub gridDimY: u32,
    pub gridDimZ: u32,
    pub blockDimX: u32,
    pub blockDimY: u32,
    pub blockDimZ: u32,
    pub sharedMemBytes: u32,
    pub kernelParams: *mut *mut c_void,
    pub extra: *mut *mut c_void,
    pub kern: CUkernel,
    pub ctx: CUcontext,
}

pub struct CUDA_MEMSET_NODE_PARAMS {
    pub dst: CUdeviceptr,
    pub pitch: usize,
    pub value: u32,
    pub elementSize: u32,
    pub width: usize,
    pub height: usize,
}

pub struct CUDA_MEMSET_NODE_PARAMS_v2 {
    pub dst: CUdeviceptr,
    pub pitch: usize,
    pub value: u32,
    pub elementSize: u32,
    pub width: usize,
    pub height: usize,
    pub ctx: CUcontext,
}

pub struct CUDA_HOST_NODE_PARAMS {
    pub r#fn: CUhostFn,
    pub userData: *mut c_void,
}

pub union CUDA_HOST_NODE_PARAMS_v2_either {
    pub ctx: CUcontext,
    pub gCtx: CUgreenCtx,
}

pub struct CUDA_HOST_NODE_PARAMS_v2 {
    pub r#fn: CUhostFn,
    pub userData: *mut c_void,
    pub syncMode: u32,
    #[unnamed]
    pub either: CUDA_HOST_NODE_PARAMS_v2_either,
}

pub struct CUDA_CONDITIONAL_NODE_PARAMS {
    pub handle: CUgraphConditionalHandle,
    pub r#type: CUgraphConditionalNodeType,
    pub size: u32,
    pub phGraph_out: *mut CUgraph,
    pub ctx: CUcontext,
}

pub struct CUgraphEdgeData {
    pub from_port: u8,
    pub to_port: u8,
    pub r#type: u8,
    pub reserved: [u8; 5],
}

pub struct CUDA_GRAPH_INSTANTIATE_PARAMS {
    pub flags: cuuint64_t,
    pub hUploadStream: CUstream,
    pub hErrNode_out: CUgraphNode,
    pub result_out: CUgraphInstantiateResult,
}

pub struct CUlaunchMemSyncDomainMap {
    pub default_: u8,
    pub remote: u8,
}

pub struct CUlaunchAttributeValue_clusterDim {
    pub x: u32,
    pub y: u32,
    pub z: u32,
}

pub struct CUlaunchAttributeValue_programmaticEvent {
    pub event: CUevent,
    pub flags: i32,
    pub triggerAtBlockStart: i32,
}

pub struct CUlaunchAttributeValue_launchCompletionEvent {
    pub event: CUevent,
    pub flags: i32,
}

pub struct CUlaunchAttributeValue_preferredClusterDim {
    pub x: u32,
    pub y: u32,
    pub z: u32,
}

pub struct CUlaunchAttributeValue_deviceUpdatableKernelNode {
    pub deviceUpdatable: i32,
    pub devNode: CUgraphDeviceNode,
}

pub union CUlaunchAttributeValue {
    pub pad: [c_char; 64],
    pub accessPolicyWindow: CUaccessPolicyWindow,
    pub cooperative: i32,
    pub syncPolicy: CUsynchronizationPolicy,
    pub clusterDim: CUlaunchAttributeValue_clusterDim,
    pub clusterSchedulingPolicyPreference: CUclusterSchedulingPolicy,
    pub programmaticStreamSerializationAllowed: i32,
    pub programmaticEvent: CUlaunchAttributeValue_programmaticEvent,
    pub launchCompletionEvent: CUlaunchAttributeValue_launchCompletionEvent,
    pub priority: i32,
    pub memSyncDomainMap: CUlaunchMemSyncDomainMap,
    pub memSyncDomain: CUlaunchMemSyncDomain,
    pub preferredClusterDim: CUlaunchAttributeValue_preferredClusterDim,
    pub deviceUpdatableKernelNode: CUlaunchAttributeValue_deviceUpdatableKernelNode,
    pub sharedMemCarveout: u32,
    pub nvlinkUtilCentricScheduling: u32,
    pub portableClusterSizeMode: CUlaunchAttributePortableClusterMode,
    pub sharedMemoryMode: CUsharedMemoryMode,
}

pub struct CUlaunchAttribute {
    pub id: CUlaunchAttributeID,
    pub pad: [c_char; 4],
    pub value: CUlaunchAttributeValue,
}

pub struct CUlaunchConfig {
    pub gridDimX: u32,
    pub gridDimY: u32,
    pub gridDimZ: u32,
    pub blockDimX: u32,
    pub blockDimY: u32,
    pub blockDimZ: u32,
    pub sharedMemBytes: u32,
    pub hStream: CUstream,
    pub attrs: *mut CUlaunchAttribute,
    pub numAttrs: u32,
}

pub struct CUexecAffinitySmCount {
    pub val: u32,
}

pub union CUexecAffinityParam_param {
    pub smCount: CUexecAffinitySmCount,
}

pub struct CUexecAffinityParam {
    pub r#type: CUexecAffinityType,
    pub param: CUexecAffinityParam_param,
}

pub struct CUctxCigParam {
    pub sharedDataType: CUcigDataType,
    pub sharedData: *mut c_void,
}

pub struct CUctxCreateParams {
    pub execAffinityParams: *mut CUexecAffinityParam,
    pub numExecAffinityParams: i32,
    pub cigParams: *mut CUctxCigParam,
}

pub struct CUstreamCigParam {
    pub streamSharedDataType: CUstreamCigDataType,
    pub streamSharedData: *mut c_void,
}

pub struct CUstreamCigCaptureParams {
    pub streamCigParams: *mut CUstreamCigParam,
}

pub struct CUlibraryHostUniversalFunctionAndDataTable {
    pub functionTable: *mut c_void,
    pub functionWindowSize: usize,
    pub dataTable: *mut c_void,
    pub dataWindowSize: usize,
}

pub struct CUDA_MEMCPY2D {
    pub srcXInBytes: usize,
    pub srcY: usize,
    pub srcMemoryType: CUmemorytype,
    pub srcHost: *const c_void,
    pub srcDevice: CUdeviceptr,
    pub srcArray: CUarray,
    pub srcPitch: usize,
    pub dstXInBytes: usize,
    pub dstY: usize,
    pub dstMemoryType: CUmemorytype,
    pub dstHost: *mut c_void,
    pub dstDevice: CUdeviceptr,
    pub dstArray: CUarray,
    pub dstPitch: usize,
    pub WidthInBytes: usize,
    pub Height: usize,
}

pub struct CUDA_MEMCPY3D {
    pub srcXInBytes: usize,
    pub srcY: usize,
    pub srcZ: usize,
    pub srcLOD: usize,
    pub srcMemoryType: CUmemorytype,
    pub srcHost: *const c_void,
    pub srcDevice: CUdeviceptr,
    pub srcArray: CUarray,
    pub reserved0: *mut c_void,
    pub srcPitch: usize,
    pub srcHeight: usize,
    pub dstXInBytes: usize,
    pub dstY: usize,
    pub dstZ: usize,
    pub dstLOD: usize,
    pub dstMemoryType: CUmemorytype,
    pub dstHost: *mut c_void,
    pub dstDevice: CUdeviceptr,
    pub dstArray: CUarray,
    pub reserved1: *mut c_void,
    pub dstPitch: usize,
    pub dstHeight: usize,
    pub WidthInBytes: usize,
    pub Height: usize,
    pub Depth: usize,
}

pub struct CUDA_MEMCPY3D_PEER {
    pub srcXInBytes: usize,
    pub srcY: usize,
    pub srcZ: usize,
    pub srcLOD: usize,
    pub srcMemoryType: CUmemorytype,
    pub srcHost: *const c_void,
    pub srcDevice: CUdeviceptr,
    pub srcArray: CUarray,
    pub srcContext: CUcontext,
    pub srcPitch: usize,
    pub srcHeight: usize,
    pub dstXInBytes: usize,
    pub dstY: usize,
    pub dstZ: usize,
    pub dstLOD: usize,
    pub dstMemoryType: CUmemorytype,
    pub dstHost: *mut c_void,
    pub dstDevice: CUdeviceptr,
    pub dstArray: CUarray,
    pub dstContext: CUcontext,
    pub dstPitch: usize,
    pub dstHeight: usize,
    pub WidthInBytes: usize,
    pub Height: usize,
    pub Depth: usize,
}

pub struct CUDA_MEMCPY_NODE_PARAMS {
    pub flags: i32,
    pub reserved: i32,
    pub copyCtx: CUcontext,
    pub copyParams: CUDA_MEMCPY3D,
}

pub struct CUDA_ARRAY_DESCRIPTOR {
    pub Width: usize,
    pub Height: usize,
    pub Format: CUarray_format,
    pub NumChannels: u32,
}

pub struct CUDA_ARRAY3D_DESCRIPTOR {
    pub Width: usize,
    pub Height: usize,
    pub Depth: usize,
    pub Format: CUarray_format,
    pub NumChannels: u32,
    pub Flags: u32,
}

pub struct CUDA_ARRAY_SPARSE_PROPERTIES_tileExtent {
    pub width: u32,
    pub height: u32,
    pub depth: u32,
}

pub struct CUDA_ARRAY_SPARSE_PROPERTIES {
    pub tileExtent: CUDA_ARRAY_SPARSE_PROPERTIES_tileExtent,
    pub miptailFirstLevel: u32,
    pub miptailSize: u64,
    pub flags: u32,
    pub reserved: [u32; 4],
}

pub struct CUDA_ARRAY_MEMORY_REQUIREMENTS {
    pub size: usize,
    pub alignment: usize,
    pub reserved: [u32; 4],
}

pub struct CUDA_RESOURCE_DESC_res_array {
    pub hArray: CUarray,
}

pub struct CUDA_RESOURCE_DESC_res_mipmap {
    pub hMipmappedArray: CUmipmappedArray,
}

pub struct CUDA_RESOURCE_DESC_res_linear {
    pub devPtr: CUdeviceptr,
    pub format: CUarray_format,
    pub numChannels: u32,
    pub sizeInBytes: usize,
}

pub struct CUDA_RESOURCE_DESC_res_pitch2D {
    pub devPtr: CUdeviceptr,
    pub format: CUarray_format,
    pub numChannels: u32,
    pub width: usize,
    pub height: usize,
    pub pitchInBytes: usize,
}

pub struct CUDA_RESOURCE_DESC_res_reserved {
    pub reserved: [i32; 32],
}

pub union CUDA_RESOURCE_DESC_res {
    pub array: CUDA_RESOURCE_DESC_res_array,
    pub mipmap: CUDA_RESOURCE_DESC_res_mipmap,
    pub linear: CUDA_RESOURCE_DESC_res_linear,
    pub pitch2D: CUDA_RESOURCE_DESC_res_pitch2D,
    pub reserved: CUDA_RESOURCE_DESC_res_reserved,
}

pub struct CUDA_RESOURCE_DESC {
    pub resType: CUresourcetype,
    pub res: CUDA_RESOURCE_DESC_res,
    pub flags: u32,
}

pub struct CUDA_TEXTURE_DESC {
    pub addressMode: [CUaddress_mode; 3],
    pub filterMode: CUfilter_mode,
    pub flags: u32,
    pub maxAnisotropy: u32,
    pub mipmapFilterMode: CUfilter_mode,
    pub mipmapLevelBias: f32,
    pub minMipmapLevelClamp: f32,
    pub maxMipmapLevelClamp: f32,
    pub borderColor: [f32; 4],
    pub reserved: [i32; 12],
}

pub struct CUDA_RESOURCE_VIEW_DESC {
    pub format: CUresourceViewFormat,
    pub width: usize,
    pub height: usize,
    pub depth: usize,
    pub firstMipmapLevel: u32,
    pub lastMipmapLevel: u32,
    pub firstLayer: u32,
    pub lastLayer: u32,
    pub reserved: [u32; 16],
}

#[align(64)]
pub struct CUtensorMap {
    pub opaque: [cuuint64_t; 16],
}

pub struct CUDA_POINTER_ATTRIBUTE_P2P_TOKENS {
    pub p2pToken: u64,
    pub vaSpaceToken: u32,
}

pub struct CUDA_LAUNCH_PARAMS {
    pub function: CUfunction,
    pub gridDimX: u32,
    pub gridDimY: u32,
    pub gridDimZ: u32,
    pub blockDimX: u32,
    pub blockDimY: u32,
    pub blockDimZ: u32,
    pub sharedMemBytes: u32,
    pub hStream: CUstream,
    pub kernelParams: *mut *mut c_void,
}

pub struct CUDA_EXTERNAL_MEMORY_HANDLE_DESC_handle_win32 {
    pub handle: *mut c_void,
    pub name: *const c_void,
}

pub union CUDA_EXTERNAL_MEMORY_HANDLE_DESC_handle {
    pub fd: i32,
    pub win32: CUDA_EXTERNAL_MEMORY_HANDLE_DESC_handle_win32,
    pub nvSciBufObject: *const c_void,
}

pub struct CUDA_EXTERNAL_MEMORY_HANDLE_DESC {
    pub r#type: CUexternalMemoryHandleType,
    pub handle: CUDA_EXTERNAL_MEMORY_HANDLE_DESC_handle,
    pub size: u64,
    pub flags: u32,
    pub reserved: [u32; 16],
}

pub struct CUDA_EXTERNAL_MEMORY_BUFFER_DESC {
    pub offset: u64,
    pub size: u64,
    pub flags: u32,
    pub reserved: [u32; 16],
}

pub struct CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC {
    pub offset: u64,
    pub arrayDesc: CUDA_ARRAY3D_DESCRIPTOR,
    pub numLevels: u32,
    pub reserved: [u32; 16],
}

pub struct CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC_handle_win32 {
    pub handle: *mut c_void,
    pub name: *const c_void,
}

pub union CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC_handle {
    pub fd: i32,
    pub win32: CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC_handle_win32,
    pub nvSciSyncObj: *const c_void,
}

pub struct CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC {
    pub r#type: CUexternalSemaphoreHandleType,
    pub handle: CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC_handle,
    pub flags: u32,
    pub reserved: [u32; 16],
}

pub struct CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS_params_fence {
    pub value: u64,
}

pub union CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS_params_nvSciSync {
    pub fence: *mut c_void,
    pub reserved: u64,
}

pub struct CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS_params_keyedMutex {
    pub key: u64,
}

pub struct CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS_params {
    pub fence: CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS_params_fence,
    pub nvSciSync: CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS_params_nvSciSync,
    pub keyedMutex: CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS_params_keyedMutex,
    pub reserved: [u32; 12],
}

pub struct CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS {
    pub params: CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS_params,
    pub flags: u32,
    pub reserved: [u32; 16],
}

pub struct CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS_params_fence {
    pub value: u64,
}

pub union CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS_params_nvSciSync {
    pub fence: *mut c_void,
    pub reserved: u64,
}

pub struct CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS_params_keyedMutex {
    pub key: u64,
    pub timeoutMs: u32,
}

pub struct CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS_params {
    pub fence: CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS_params_fence,
    pub nvSciSync: CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS_params_nvSciSync,
    pub keyedMutex: CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS_params_keyedMutex,
    pub reserved: [u32; 10],
}

pub struct CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS {
    pub params: CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS_params,
    pub flags: u32,
    pub reserved: [u32; 16],
}

pub struct CUDA_EXT_SEM_SIGNAL_NODE_PARAMS {
    pub extSemArray: *mut CUexternalSemaphore,
    pub paramsArray: *const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS,
    pub numExtSems: u32,
}

pub union CUDA_EXT_SEM_SIGNAL_NODE_PARAMS_v2_either {
    pub ctx: CUcontext,
    pub gCtx: CUgreenCtx,
}

pub struct CUDA_EXT_SEM_SIGNAL_NODE_PARAMS_v2 {
    pub extSemArray: *mut CUexternalSemaphore,
    pub paramsArray: *const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS,
    pub numExtSems: u32,
    #[unnamed]
    pub either: CUDA_EXT_SEM_SIGNAL_NODE_PARAMS_v2_either,
}

pub struct CUDA_EXT_SEM_WAIT_NODE_PARAMS {
    pub extSemArray: *mut CUexternalSemaphore,
    pub paramsArray: *const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS,
    pub numExtSems: u32,
}

pub union CUDA_EXT_SEM_WAIT_NODE_PARAMS_v2_either {
    pub ctx: CUcontext,
    pub gCtx: CUgreenCtx,
}

pub struct CUDA_EXT_SEM_WAIT_NODE_PARAMS_v2 {
    pub extSemArray: *mut CUexternalSemaphore,
    pub paramsArray: *const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS,
    pub numExtSems: u32,
    #[unnamed]
    pub either: CUDA_EXT_SEM_WAIT_NODE_PARAMS_v2_either,
}

pub union CUarrayMapInfo_resource {
    pub mipmap: CUmipmappedArray,
    pub array: CUarray,
}

pub struct CUarrayMapInfo_subresource_sparseLevel {
    pub level: u32,
    pub layer: u32,
    pub offsetX: u32,
    pub offsetY: u32,
    pub offsetZ: u32,
    pub extentWidth: u32,
    pub extentHeight: u32,
    pub extentDepth: u32,
}

pub struct CUarrayMapInfo_subresource_miptail {
    pub layer: u32,
    pub offset: u64,
    pub size: u64,
}

pub union CUarrayMapInfo_subresource {
    pub sparseLevel: CUarrayMapInfo_subresource_sparseLevel,
    pub miptail: CUarrayMapInfo_subresource_miptail,
}

pub union CUarrayMapInfo_memHandle {
    pub memHandle: CUmemGenericAllocationHandle,
}

pub struct CUarrayMapInfo {
    pub resourceType: CUresourcetype,
    pub resource: CUarrayMapInfo_resource,
    pub subresourceType: CUarraySparseSubresourceType,
    pub subresource: CUarrayMapInfo_subresource,
    pub memOperationType: CUmemOperationType,
    pub memHandleType: CUmemHandleType,
    pub memHandle: CUarrayMapInfo_memHandle,
    pub offset: u64,
    pub deviceBitMask: u32,
    pub flags: u32,
    pub reserved: [u32; 2],
}

pub struct CUmemLocation_either_localized {
    pub deviceId: u8,
    pub localityDomainId: u8,
}

pub union CUmemLocation_either {
    pub id: i32,
    pub localized: CUmemLocation_either_localized,
}

pub struct CUmemLocation {
    pub r#type: CUmemLocationType,
    #[unnamed]
    pub either: CUmemLocation_either,
}

pub struct CUmemAllocationProp_allocFlags {
    pub compressionType: u8,
    pub gpuDirectRDMACapable: u8,
    pub usage: u16,
    pub reserved: [u8; 4],
}

pub struct CUmemAllocationProp {
    pub r#type: CUmemAllocationType,
    pub requestedHandleTypes: CUmemAllocationHandleType,
    pub location: CUmemLocation,
    pub win32HandleMetaData: *mut c_void,
    pub allocFlags: CUmemAllocationProp_allocFlags,
}

pub struct CUmulticastObjectProp {
    pub numDevices: u32,
    pub size: usize,
    pub handleTypes: u64,
    pub flags: u64,
}

pub struct CUmemAccessDesc {
    pub location: CUmemLocation,
    pub flags: CUmemAccess_flags,
}

pub struct CUgraphExecUpdateResultInfo {
    pub result: CUgraphExecUpdateResult,
    pub errorNode: CUgraphNode,
    pub errorFromNode: CUgraphNode,
}

pub struct CUmemPoolProps {
    pub allocType: CUmemAllocationType,
    pub handleTypes: CUmemAllocationHandleType,
    pub location: CUmemLocation,
    pub win32SecurityAttributes: *mut c_void,
    pub maxSize: usize,
    pub usage: u16,
    pub gpuDirectRDMACapable: u8,
    pub reserved: [u8; 53],
}

pub struct CUmemPoolPtrExportData {
    pub reserved: [u8; 64],
}

pub struct CUmemcpyAttributes {
    pub srcAccessOrder: CUmemcpySrcAccessOrder,
    pub srcLocHint: CUmemLocation,
    pub dstLocHint: CUmemLocation,
    pub flags: u32,
}

pub struct CUoffset3D {
    pub x: usize,
    pub y: usize,
    pub z: usize,
}

pub struct CUextent3D {
    pub width: usize,
    pub height: usize,
    pub depth: usize,
}

pub struct CUmemcpy3DOperand_op_ptr {
    pub ptr: CUdeviceptr,
    pub rowLength: usize,
    pub layerHeight: usize,
    pub locHint: CUmemLocation,
}

pub struct CUmemcpy3DOperand_op_array {
    pub array: CUarray,
    pub offset: CUoffset3D,
}

pub union CUmemcpy3DOperand_op {
    pub ptr: CUmemcpy3DOperand_op_ptr,
    pub array: CUmemcpy3DOperand_op_array,
}

pub struct CUmemcpy3DOperand {
    pub r#type: CUmemcpy3DOperandType,
    pub op: CUmemcpy3DOperand_op,
}

pub struct CUDA_MEMCPY3D_BATCH_OP {
    pub src: CUmemcpy3DOperand,
    pub dst: CUmemcpy3DOperand,
    pub extent: CUextent3D,
    pub srcAccessOrder: CUmemcpySrcAccessOrder,
    pub flags: u32,
}

pub struct CUDA_MEM_ALLOC_NODE_PARAMS {
    pub poolProps: CUmemPoolProps,
    pub accessDescs: *const CUmemAccessDesc,
    pub accessDescCount: usize,
    pub bytesize: usize,
    pub dptr: CUdeviceptr,
}

pub struct CUDA_MEM_ALLOC_NODE_PARAMS_v2 {
    pub poolProps: CUmemPoolProps,
    pub accessDescs: *const CUmemAccessDesc,
    pub accessDescCount: usize,
    pub bytesize: usize,
    pub dptr: CUdeviceptr,
}

pub struct CUDA_MEM_FREE_NODE_PARAMS {
    pub dptr: CUdeviceptr,
}

pub struct CUDA_CHILD_GRAPH_NODE_PARAMS {
    pub graph: CUgraph,
    pub ownership: CUgraphChildGraphNodeOwnership,
}

pub union CUDA_EVENT_RECORD_NODE_PARAMS_either {
    pub ctx: CUcontext,
    pub gCtx: CUgreenCtx,
}

pub struct CUDA_EVENT_RECORD_NODE_PARAMS {
    pub event: CUevent,
    #[unnamed]
    pub either: CUDA_EVENT_RECORD_NODE_PARAMS_either,
}

pub struct CUDA_EVENT_WAIT_NODE_PARAMS {
    pub event: CUevent,
}

pub union CUDA_MEMCPY_BATCH_NODE_PARAMS_either {
    pub ctx: CUcontext,
    pub gCtx: CUgreenCtx,
}

pub struct CUDA_MEMCPY_BATCH_NODE_PARAMS {
    pub count: usize,
    pub dsts: *mut CUdeviceptr,
    pub srcs: *mut CUdeviceptr,
    pub sizes: *mut usize,
    pub attrs: *mut CUmemcpyAttributes,
    pub attrsIdxs: *mut usize,
    pub numAttrs: usize,
    #[unnamed]
    pub either: CUDA_MEMCPY_BATCH_NODE_PARAMS_either,
}

pub union CUDA_FABRIC_CPY_BATCH_NODE_PARAMS_either {
    pub ctx: CUcontext,
    pub gCtx: CUgreenCtx,
}

pub struct CUDA_FABRIC_CPY_BATCH_NODE_PARAMS {
    pub numOps: usize,
    pub opList: *mut CUDA_FABRIC_COPY_BATCH_OP,
    pub flags: u64,
    #[unnamed]
    pub either: CUDA_FABRIC_CPY_BATCH_NODE_PARAMS_either,
}

pub union CUgraphNodeParams_either {
    pub reserved1: [i64; 29],
    pub kernel: CUDA_KERNEL_NODE_PARAMS_v3,
    pub memcpy: CUDA_MEMCPY_NODE_PARAMS,
    pub memset: CUDA_MEMSET_NODE_PARAMS_v2,
    pub host: CUDA_HOST_NODE_PARAMS_v2,
    pub graph: CUDA_CHILD_GRAPH_NODE_PARAMS,
    pub eventWait: CUDA_EVENT_WAIT_NODE_PARAMS,
    pub eventRecord: CUDA_EVENT_RECORD_NODE_PARAMS,
    pub extSemSignal: CUDA_EXT_SEM_SIGNAL_NODE_PARAMS_v2,
    pub extSemWait: CUDA_EXT_SEM_WAIT_NODE_PARAMS_v2,
    pub alloc: CUDA_MEM_ALLOC_NODE_PARAMS_v2,
    pub free: CUDA_MEM_FREE_NODE_PARAMS,
    pub memOp: CUDA_BATCH_MEM_OP_NODE_PARAMS_v2,
    pub conditional: CUDA_CONDITIONAL_NODE_PARAMS,
    pub memcpyBatch: CUDA_MEMCPY_BATCH_NODE_PARAMS,
    pub fabricCpyBatch: CUDA_FABRIC_CPY_BATCH_NODE_PARAMS,
    pub asBytes: [c_char; 232],
}

pub struct CUgraphNodeParams {
    pub r#type: CUgraphNodeType,
    pub reserved0: [i32; 3],
    #[unnamed]
    pub either: CUgraphNodeParams_either,
    pub reserved2: i64,
}

pub struct CUcheckpointCustomStoragePerDeviceData {
    pub devPtr: CUdeviceptr,
    pub size: usize,
    pub stream: CUstream,
}

pub struct CUcheckpointCustomStorageInfo {
    pub handle: CUcheckpointOperationHandle,
    pub perDeviceData: *mut CUcheckpointCustomStoragePerDeviceData,
    pub deviceCount: u32,
}

pub struct CUcheckpointLockArgs {
    pub timeoutMs: u32,
    pub reserved0: u32,
    pub reserved1: [cuuint64_t; 7],
}

pub struct CUcheckpointCheckpointArgs {
    pub customStorageInfo_out: *mut *mut CUcheckpointCustomStorageInfo,
    pub reserved: [c_char; 56],
}

pub struct CUcheckpointGpuPair {
    pub oldUuid: CUuuid,
    pub newUuid: CUuuid,
}

pub struct CUcheckpointRestoreArgs {
    pub gpuPairs: *mut CUcheckpointGpuPair,
    pub gpuPairsCount: u32,
    pub padding0: u32,
    pub customStorageInfo_out: *mut *mut CUcheckpointCustomStorageInfo,
    pub reserved: [c_char; 40],
}

pub struct CUcheckpointUnlockArgs {
    pub reserved: [cuuint64_t; 8],
}

pub struct CUmemDecompressParams {
    pub srcNumBytes: usize,
    pub dstNumBytes: usize,
    pub dstActBytes: *mut cuuint32_t,
    pub src: *const c_void,
    pub dst: *mut c_void,
    pub algo: CUmemDecompressAlgorithm,
    pub padding: [u8; 20],
}

pub struct CUcliqueInfo {
    pub r#type: CUcliqueType,
    pub id: u32,
}

pub struct CUlogicalEndpointFabricHandle {
    pub data: [u8; 64],
}

pub struct CUlogicalEndpointProp_either_unicast {
    pub device: CUdevice,
}

pub struct CUlogicalEndpointProp_either_multicast {
    pub numDevices: u32,
}

pub union CUlogicalEndpointProp_either {
    pub unicast: CUlogicalEndpointProp_either_unicast,
    pub multicast: CUlogicalEndpointProp_either_multicast,
}

pub struct CUlogicalEndpointProp {
    pub r#type: CUlogicalEndpointType,
    #[unnamed]
    pub either: CUlogicalEndpointProp_either,
    pub size: u64,
    pub ipcHandleTypes: u32,
    pub flags: u32,
}

pub struct CUfabricCpyOperand_op_ptr {
    pub ptr: CUdeviceptr,
    pub locHint: CUmemLocation,
}

pub struct CUfabricCpyOperand_op_le {
    pub id: CUlogicalEndpointId,
    pub offset: cuuint64_t,
}

pub union CUfabricCpyOperand_op {
    pub ptr: CUfabricCpyOperand_op_ptr,
    pub le: CUfabricCpyOperand_op_le,
}

pub struct CUfabricCpyOperand {
    pub r#type: CUfabricCpyOperandType,
    pub op: CUfabricCpyOperand_op,
}

pub struct CUDA_FABRIC_COPY_BATCH_OP {
    pub src: CUfabricCpyOperand,
    pub dst: CUfabricCpyOperand,
    pub size: usize,
    pub flags: u32,
}

pub struct CUdevSmResource {
    pub smCount: u32,
    pub minSmPartitionSize: u32,
    pub smCoscheduledAlignment: u32,
    pub flags: u32,
    pub localityDomainId: u32,
}

pub struct CUdevWorkqueueConfigResource {
    pub device: CUdevice,
    pub wqConcurrencyLimit: u32,
    pub sharingScope: CUdevWorkqueueConfigScope,
}

pub struct CUdevWorkqueueResource {
    pub reserved: [u8; 40],
}

pub struct CU_DEV_SM_RESOURCE_GROUP_PARAMS {
    pub smCount: u32,
    pub coscheduledSmCount: u32,
    pub preferredCoscheduledSmCount: u32,
    pub flags: u32,
    pub localityDomainId: u32,
    pub reserved: [u32; 11],
}

pub union CUdevResource_either {
    pub sm: CUdevSmResource,
    pub wqConfig: CUdevWorkqueueConfigResource,
    pub wq: CUdevWorkqueueResource,
    pub _oversize: [u8; 40],
}

pub struct CUdevResource {
    pub r#type: CUdevResourceType,
    pub _internal_padding: [u8; 92],
    #[unnamed]
    pub either: CUdevResource_either,
    pub nextResource: *mut CUdevResource,
}

pub struct CUDA_MEMCPY2D_v1 {
    pub srcXInBytes: u32,
    pub srcY: u32,
    pub srcMemoryType: CUmemorytype,
    pub srcHost: *const c_void,
    pub srcDevice: CUdeviceptr_v1,
    pub srcArray: CUarray,
    pub srcPitch: u32,
    pub dstXInBytes: u32,
    pub dstY: u32,
    pub dstMemoryType: CUmemorytype,
    pub dstHost: *mut c_void,
    pub dstDevice: CUdeviceptr_v1,
    pub dstArray: CUarray,
    pub dstPitch: u32,
    pub WidthInBytes: u32,
    pub Height: u32,
}

pub struct CUDA_MEMCPY3D_v1 {
    pub srcXInBytes: u32,
    pub srcY: u32,
    pub srcZ: u32,
    pub srcLOD: u32,
    pub srcMemoryType: CUmemorytype,
    pub srcHost: *const c_void,
    pub srcDevice: CUdeviceptr_v1,
    pub srcArray: CUarray,
    pub reserved0: *mut c_void,
    pub srcPitch: u32,
    pub srcHeight: u32,
    pub dstXInBytes: u32,
    pub dstY: u32,
    pub dstZ: u32,
    pub dstLOD: u32,
    pub dstMemoryType: CUmemorytype,
    pub dstHost: *mut c_void,
    pub dstDevice: CUdeviceptr_v1,
    pub dstArray: CUarray,
    pub reserved1: *mut c_void,
    pub dstPitch: u32,
    pub dstHeight: u32,
    pub WidthInBytes: u32,
    pub Height: u32,
    pub Depth: u32,
}

pub struct CUDA_ARRAY_DESCRIPTOR_v1 {
    pub Width: u32,
    pub Height: u32,
    pub Format: CUarray_format,
    pub NumChannels: u32,
}

pub struct CUDA_ARRAY3D_DESCRIPTOR_v1 {
    pub Width: u32,
    pub Height: u32,
    pub Depth: u32,
    pub Format: CUarray_format,
    pub NumChannels: u32,
    pub Flags: u32,
}

pub union CUeglFrame_frame {
    pub pArray: [CUarray; 3],
    pub pPitch: [*mut c_void; 3],
}

pub struct CUeglFrame {
    pub frame: CUeglFrame_frame,
    pub width: u32,
    pub height: u32,
    pub depth: u32,
    pub pitch: u32,
    pub planeCount: u32,
    pub numChannels: u32,
    pub frameType: u32,
    pub eglColorFormat: u32,
    pub cuFormat: CUarray_format,
}
