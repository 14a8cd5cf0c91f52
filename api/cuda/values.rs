//! Constants of the CUDA driver API, as of CUDA 13.5, by the type that they are of. `cargo xtask api check --header` compares their
//! values with an installed `cuda.h`. The documentation of an error is what `cuGetErrorString` says.

// CUipcMem_flags
pub const CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS: CUipcMem_flags = 1;

// CUmemAttach_flags
pub const CU_MEM_ATTACH_GLOBAL: CUmemAttach_flags = 1;
pub const CU_MEM_ATTACH_HOST: CUmemAttach_flags = 2;
pub const CU_MEM_ATTACH_SINGLE: CUmemAttach_flags = 4;

// CUctx_flags
pub const CU_CTX_SCHED_AUTO: CUctx_flags = 0;
pub const CU_CTX_SCHED_SPIN: CUctx_flags = 1;
pub const CU_CTX_SCHED_YIELD: CUctx_flags = 2;
pub const CU_CTX_SCHED_BLOCKING_SYNC: CUctx_flags = 4;
pub const CU_CTX_BLOCKING_SYNC: CUctx_flags = 4;
pub const CU_CTX_SCHED_MASK: CUctx_flags = 7;
pub const CU_CTX_MAP_HOST: CUctx_flags = 8;
pub const CU_CTX_LMEM_RESIZE_TO_MAX: CUctx_flags = 16;
pub const CU_CTX_COREDUMP_ENABLE: CUctx_flags = 32;
pub const CU_CTX_USER_COREDUMP_ENABLE: CUctx_flags = 64;
pub const CU_CTX_SYNC_MEMOPS: CUctx_flags = 128;
pub const CU_CTX_FLAGS_MASK: CUctx_flags = 255;

// CUevent_sched_flags
pub const CU_EVENT_SCHED_AUTO: CUevent_sched_flags = 0;
pub const CU_EVENT_SCHED_SPIN: CUevent_sched_flags = 1;
pub const CU_EVENT_SCHED_YIELD: CUevent_sched_flags = 2;
pub const CU_EVENT_SCHED_BLOCKING_SYNC: CUevent_sched_flags = 4;

// cl_event_flags
pub const NVCL_EVENT_SCHED_AUTO: cl_event_flags = 0;
pub const NVCL_EVENT_SCHED_SPIN: cl_event_flags = 1;
pub const NVCL_EVENT_SCHED_YIELD: cl_event_flags = 2;
pub const NVCL_EVENT_SCHED_BLOCKING_SYNC: cl_event_flags = 4;

// cl_context_flags
pub const NVCL_CTX_SCHED_AUTO: cl_context_flags = 0;
pub const NVCL_CTX_SCHED_SPIN: cl_context_flags = 1;
pub const NVCL_CTX_SCHED_YIELD: cl_context_flags = 2;
pub const NVCL_CTX_SCHED_BLOCKING_SYNC: cl_context_flags = 4;

// CUhostTaskSyncMode
pub const CU_HOST_TASK_BLOCKING: CUhostTaskSyncMode = 0;
pub const CU_HOST_TASK_SPINWAIT: CUhostTaskSyncMode = 1;

// CUstream_flags
pub const CU_STREAM_DEFAULT: CUstream_flags = 0;
pub const CU_STREAM_NON_BLOCKING: CUstream_flags = 1;

// CUevent_flags
pub const CU_EVENT_DEFAULT: CUevent_flags = 0;
pub const CU_EVENT_BLOCKING_SYNC: CUevent_flags = 1;
pub const CU_EVENT_DISABLE_TIMING: CUevent_flags = 2;
pub const CU_EVENT_INTERPROCESS: CUevent_flags = 4;

// CUevent_record_flags
pub const CU_EVENT_RECORD_DEFAULT: CUevent_record_flags = 0;
pub const CU_EVENT_RECORD_EXTERNAL: CUevent_record_flags = 1;

// CUevent_wait_flags
pub const CU_EVENT_WAIT_DEFAULT: CUevent_wait_flags = 0;
pub const CU_EVENT_WAIT_EXTERNAL: CUevent_wait_flags = 1;

// CUatomicOperation
pub const CU_ATOMIC_OPERATION_INTEGER_ADD: CUatomicOperation = 0;
pub const CU_ATOMIC_OPERATION_INTEGER_MIN: CUatomicOperation = 1;
pub const CU_ATOMIC_OPERATION_INTEGER_MAX: CUatomicOperation = 2;
pub const CU_ATOMIC_OPERATION_INTEGER_INCREMENT: CUatomicOperation = 3;
pub const CU_ATOMIC_OPERATION_INTEGER_DECREMENT: CUatomicOperation = 4;
pub const CU_ATOMIC_OPERATION_AND: CUatomicOperation = 5;
pub const CU_ATOMIC_OPERATION_OR: CUatomicOperation = 6;
pub const CU_ATOMIC_OPERATION_XOR: CUatomicOperation = 7;
pub const CU_ATOMIC_OPERATION_EXCHANGE: CUatomicOperation = 8;
pub const CU_ATOMIC_OPERATION_CAS: CUatomicOperation = 9;
pub const CU_ATOMIC_OPERATION_FLOAT_ADD: CUatomicOperation = 10;
pub const CU_ATOMIC_OPERATION_FLOAT_MIN: CUatomicOperation = 11;
pub const CU_ATOMIC_OPERATION_FLOAT_MAX: CUatomicOperation = 12;
pub const CU_ATOMIC_OPERATION_MAX: CUatomicOperation = 13;

// CUatomicOperationCapability
pub const CU_ATOMIC_CAPABILITY_SIGNED: CUatomicOperationCapability = 1;
pub const CU_ATOMIC_CAPABILITY_UNSIGNED: CUatomicOperationCapability = 2;
pub const CU_ATOMIC_CAPABILITY_REDUCTION: CUatomicOperationCapability = 4;
pub const CU_ATOMIC_CAPABILITY_SCALAR_32: CUatomicOperationCapability = 8;
pub const CU_ATOMIC_CAPABILITY_SCALAR_64: CUatomicOperationCapability = 16;
pub const CU_ATOMIC_CAPABILITY_SCALAR_128: CUatomicOperationCapability = 32;
pub const CU_ATOMIC_CAPABILITY_VECTOR_32x4: CUatomicOperationCapability = 64;

// CUstreamWaitValue_flags
pub const CU_STREAM_WAIT_VALUE_GEQ: CUstreamWaitValue_flags = 0;
pub const CU_STREAM_WAIT_VALUE_EQ: CUstreamWaitValue_flags = 1;
pub const CU_STREAM_WAIT_VALUE_AND: CUstreamWaitValue_flags = 2;
pub const CU_STREAM_WAIT_VALUE_NOR: CUstreamWaitValue_flags = 3;
pub const CU_STREAM_WAIT_VALUE_FLUSH: CUstreamWaitValue_flags = 1073741824;

// CUstreamWriteValue_flags
pub const CU_STREAM_WRITE_VALUE_DEFAULT: CUstreamWriteValue_flags = 0;
pub const CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER: CUstreamWriteValue_flags = 1;

// CUstreamBatchMemOpType
pub const CU_STREAM_MEM_OP_WAIT_VALUE_32: CUstreamBatchMemOpType = 1;
pub const CU_STREAM_MEM_OP_WRITE_VALUE_32: CUstreamBatchMemOpType = 2;
pub const CU_STREAM_MEM_OP_WAIT_VALUE_64: CUstreamBatchMemOpType = 4;
pub const CU_STREAM_MEM_OP_WRITE_VALUE_64: CUstreamBatchMemOpType = 5;
pub const CU_STREAM_MEM_OP_BARRIER: CUstreamBatchMemOpType = 6;
pub const CU_STREAM_MEM_OP_ATOMIC_REDUCTION: CUstreamBatchMemOpType = 8;
pub const CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES: CUstreamBatchMemOpType = 3;

// CUstreamMemoryBarrier_flags
pub const CU_STREAM_MEMORY_BARRIER_TYPE_SYS: CUstreamMemoryBarrier_flags = 0;
pub const CU_STREAM_MEMORY_BARRIER_TYPE_GPU: CUstreamMemoryBarrier_flags = 1;

// CUstreamAtomicReductionOpType
pub const CU_STREAM_ATOMIC_REDUCTION_OP_OR: CUstreamAtomicReductionOpType = 6;
pub const CU_STREAM_ATOMIC_REDUCTION_OP_AND: CUstreamAtomicReductionOpType = 5;
pub const CU_STREAM_ATOMIC_REDUCTION_OP_ADD: CUstreamAtomicReductionOpType = 0;

// CUstreamAtomicReductionDataType
pub const CU_STREAM_ATOMIC_REDUCTION_UNSIGNED_32: CUstreamAtomicReductionDataType = 14;
pub const CU_STREAM_ATOMIC_REDUCTION_UNSIGNED_64: CUstreamAtomicReductionDataType = 22;

// CUoccupancy_flags
pub const CU_OCCUPANCY_DEFAULT: CUoccupancy_flags = 0;
pub const CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE: CUoccupancy_flags = 1;

// CUstreamUpdateCaptureDependencies_flags
pub const CU_STREAM_ADD_CAPTURE_DEPENDENCIES: CUstreamUpdateCaptureDependencies_flags = 0;
pub const CU_STREAM_SET_CAPTURE_DEPENDENCIES: CUstreamUpdateCaptureDependencies_flags = 1;

// CUasyncNotificationType
pub const CU_ASYNC_NOTIFICATION_TYPE_OVER_BUDGET: CUasyncNotificationType = 1;

// CUarray_format
pub const CU_AD_FORMAT_UNSIGNED_INT8: CUarray_format = 1;
pub const CU_AD_FORMAT_UNSIGNED_INT16: CUarray_format = 2;
pub const CU_AD_FORMAT_UNSIGNED_INT32: CUarray_format = 3;
pub const CU_AD_FORMAT_SIGNED_INT8: CUarray_format = 8;
pub const CU_AD_FORMAT_SIGNED_INT16: CUarray_format = 9;
pub const CU_AD_FORMAT_SIGNED_INT32: CUarray_format = 10;
pub const CU_AD_FORMAT_HALF: CUarray_format = 16;
pub const CU_AD_FORMAT_FLOAT: CUarray_format = 32;
pub const CU_AD_FORMAT_NV12: CUarray_format = 176;
pub const CU_AD_FORMAT_UNORM_INT8X1: CUarray_format = 192;
pub const CU_AD_FORMAT_UNORM_INT8X2: CUarray_format = 193;
pub const CU_AD_FORMAT_UNORM_INT8X4: CUarray_format = 194;
pub const CU_AD_FORMAT_UNORM_INT16X1: CUarray_format = 195;
pub const CU_AD_FORMAT_UNORM_INT16X2: CUarray_format = 196;
pub const CU_AD_FORMAT_UNORM_INT16X4: CUarray_format = 197;
pub const CU_AD_FORMAT_SNORM_INT8X1: CUarray_format = 198;
pub const CU_AD_FORMAT_SNORM_INT8X2: CUarray_format = 199;
pub const CU_AD_FORMAT_SNORM_INT8X4: CUarray_format = 200;
pub const CU_AD_FORMAT_SNORM_INT16X1: CUarray_format = 201;
pub const CU_AD_FORMAT_SNORM_INT16X2: CUarray_format = 202;
pub const CU_AD_FORMAT_SNORM_INT16X4: CUarray_format = 203;
pub const CU_AD_FORMAT_BC1_UNORM: CUarray_format = 145;
pub const CU_AD_FORMAT_BC1_UNORM_SRGB: CUarray_format = 146;
pub const CU_AD_FORMAT_BC2_UNORM: CUarray_format = 147;
pub const CU_AD_FORMAT_BC2_UNORM_SRGB: CUarray_format = 148;
pub const CU_AD_FORMAT_BC3_UNORM: CUarray_format = 149;
pub const CU_AD_FORMAT_BC3_UNORM_SRGB: CUarray_format = 150;
pub const CU_AD_FORMAT_BC4_UNORM: CUarray_format = 151;
pub const CU_AD_FORMAT_BC4_SNORM: CUarray_format = 152;
pub const CU_AD_FORMAT_BC5_UNORM: CUarray_format = 153;
pub const CU_AD_FORMAT_BC5_SNORM: CUarray_format = 154;
pub const CU_AD_FORMAT_BC6H_UF16: CUarray_format = 155;
pub const CU_AD_FORMAT_BC6H_SF16: CUarray_format = 156;
pub const CU_AD_FORMAT_BC7_UNORM: CUarray_format = 157;
pub const CU_AD_FORMAT_BC7_UNORM_SRGB: CUarray_format = 158;
pub const CU_AD_FORMAT_P010: CUarray_format = 159;
pub const CU_AD_FORMAT_P016: CUarray_format = 161;
pub const CU_AD_FORMAT_NV16: CUarray_format = 162;
pub const CU_AD_FORMAT_P210: CUarray_format = 163;
pub const CU_AD_FORMAT_P216: CUarray_format = 164;
pub const CU_AD_FORMAT_YUY2: CUarray_format = 165;
pub const CU_AD_FORMAT_Y210: CUarray_format = 166;
pub const CU_AD_FORMAT_Y216: CUarray_format = 167;
pub const CU_AD_FORMAT_AYUV: CUarray_format = 168;
pub const CU_AD_FORMAT_Y410: CUarray_format = 169;
pub const CU_AD_FORMAT_Y416: CUarray_format = 177;
pub const CU_AD_FORMAT_Y444_PLANAR8: CUarray_format = 178;
pub const CU_AD_FORMAT_Y444_PLANAR10: CUarray_format = 179;
pub const CU_AD_FORMAT_YUV444_8bit_SemiPlanar: CUarray_format = 180;
pub const CU_AD_FORMAT_YUV444_16bit_SemiPlanar: CUarray_format = 181;
pub const CU_AD_FORMAT_UNORM_INT_101010_2: CUarray_format = 80;
pub const CU_AD_FORMAT_UINT8_PACKED_422: CUarray_format = 81;
pub const CU_AD_FORMAT_UINT8_PACKED_444: CUarray_format = 82;
pub const CU_AD_FORMAT_UINT8_SEMIPLANAR_420: CUarray_format = 83;
pub const CU_AD_FORMAT_UINT16_SEMIPLANAR_420: CUarray_format = 84;
pub const CU_AD_FORMAT_UINT8_SEMIPLANAR_422: CUarray_format = 85;
pub const CU_AD_FORMAT_UINT16_SEMIPLANAR_422: CUarray_format = 86;
pub const CU_AD_FORMAT_UINT8_SEMIPLANAR_444: CUarray_format = 87;
pub const CU_AD_FORMAT_UINT16_SEMIPLANAR_444: CUarray_format = 88;
pub const CU_AD_FORMAT_UINT8_PLANAR_420: CUarray_format = 89;
pub const CU_AD_FORMAT_UINT16_PLANAR_420: CUarray_format = 90;
pub const CU_AD_FORMAT_UINT8_PLANAR_422: CUarray_format = 91;
pub const CU_AD_FORMAT_UINT16_PLANAR_422: CUarray_format = 92;
pub const CU_AD_FORMAT_UINT8_PLANAR_444: CUarray_format = 93;
pub const CU_AD_FORMAT_UINT16_PLANAR_444: CUarray_format = 94;
pub const CU_AD_FORMAT_MAX: CUarray_format = 2147483647;

// CUaddress_mode
pub const CU_TR_ADDRESS_MODE_WRAP: CUaddress_mode = 0;
pub const CU_TR_ADDRESS_MODE_CLAMP: CUaddress_mode = 1;
pub const CU_TR_ADDRESS_MODE_MIRROR: CUaddress_mode = 2;
pub const CU_TR_ADDRESS_MODE_BORDER: CUaddress_mode = 3;

// CUfilter_mode
pub const CU_TR_FILTER_MODE_POINT: CUfilter_mode = 0;
pub const CU_TR_FILTER_MODE_LINEAR: CUfilter_mode = 1;

// CUdevice_attribute
pub const CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: CUdevice_attribute = 1;
pub const CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X: CUdevice_attribute = 2;
pub const CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y: CUdevice_attribute = 3;
pub const CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z: CUdevice_attribute = 4;
pub const CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X: CUdevice_attribute = 5;
pub const CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y: CUdevice_attribute = 6;
pub const CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z: CUdevice_attribute = 7;
pub const CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: CUdevice_attribute = 8;
pub const CU_DEVICE_ATTRIBUTE_SHARED_MEMORY_PER_BLOCK: CUdevice_attribute = 8;
pub const CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY: CUdevice_attribute = 9;
pub const CU_DEVICE_ATTRIBUTE_WARP_SIZE: CUdevice_attribute = 10;
pub const CU_DEVICE_ATTRIBUTE_MAX_PITCH: CUdevice_attribute = 11;
pub const CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK: CUdevice_attribute = 12;
pub const CU_DEVICE_ATTRIBUTE_REGISTERS_PER_BLOCK: CUdevice_attribute = 12;
pub const CU_DEVICE_ATTRIBUTE_CLOCK_RATE: CUdevice_attribute = 13;
pub const CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT: CUdevice_attribute = 14;
pub const CU_DEVICE_ATTRIBUTE_GPU_OVERLAP: CUdevice_attribute = 15;
pub const CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: CUdevice_attribute = 16;
pub const CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT: CUdevice_attribute = 17;
pub const CU_DEVICE_ATTRIBUTE_INTEGRATED: CUdevice_attribute = 18;
pub const CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY: CUdevice_attribute = 19;
pub const CU_DEVICE_ATTRIBUTE_COMPUTE_MODE: CUdevice_attribute = 20;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH: CUdevice_attribute = 21;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH: CUdevice_attribute = 22;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT: CUdevice_attribute = 23;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH: CUdevice_attribute = 24;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT: CUdevice_attribute = 25;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH: CUdevice_attribute = 26;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_WIDTH: CUdevice_attribute = 27;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_HEIGHT: CUdevice_attribute = 28;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_LAYERS: CUdevice_attribute = 29;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_ARRAY_WIDTH: CUdevice_attribute = 27;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_ARRAY_HEIGHT: CUdevice_attribute = 28;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_ARRAY_NUMSLICES: CUdevice_attribute = 29;
pub const CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT: CUdevice_attribute = 30;
pub const CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS: CUdevice_attribute = 31;
pub const CU_DEVICE_ATTRIBUTE_ECC_ENABLED: CUdevice_attribute = 32;
pub const CU_DEVICE_ATTRIBUTE_PCI_BUS_ID: CUdevice_attribute = 33;
pub const CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID: CUdevice_attribute = 34;
pub const CU_DEVICE_ATTRIBUTE_TCC_DRIVER: CUdevice_attribute = 35;
pub const CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE: CUdevice_attribute = 36;
pub const CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH: CUdevice_attribute = 37;
pub const CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: CUdevice_attribute = 38;
pub const CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: CUdevice_attribute = 39;
pub const CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT: CUdevice_attribute = 40;
pub const CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING: CUdevice_attribute = 41;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_WIDTH: CUdevice_attribute = 42;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_LAYERS: CUdevice_attribute = 43;
pub const CU_DEVICE_ATTRIBUTE_CAN_TEX2D_GATHER: CUdevice_attribute = 44;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_WIDTH: CUdevice_attribute = 45;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_HEIGHT: CUdevice_attribute = 46;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE: CUdevice_attribute = 47;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE: CUdevice_attribute = 48;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE: CUdevice_attribute = 49;
pub const CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID: CUdevice_attribute = 50;
pub const CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT: CUdevice_attribute = 51;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_WIDTH: CUdevice_attribute = 52;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH: CUdevice_attribute = 53;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS: CUdevice_attribute = 54;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_WIDTH: CUdevice_attribute = 55;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_WIDTH: CUdevice_attribute = 56;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_HEIGHT: CUdevice_attribute = 57;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_WIDTH: CUdevice_attribute = 58;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_HEIGHT: CUdevice_attribute = 59;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_DEPTH: CUdevice_attribute = 60;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_WIDTH: CUdevice_attribute = 61;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_LAYERS: CUdevice_attribute = 62;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_WIDTH: CUdevice_attribute = 63;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_HEIGHT: CUdevice_attribute = 64;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_LAYERS: CUdevice_attribute = 65;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_WIDTH: CUdevice_attribute = 66;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH: CUdevice_attribute = 67;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS: CUdevice_attribute = 68;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH: CUdevice_attribute = 69;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH: CUdevice_attribute = 70;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT: CUdevice_attribute = 71;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_PITCH: CUdevice_attribute = 72;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH: CUdevice_attribute = 73;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT: CUdevice_attribute = 74;
pub const CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: CUdevice_attribute = 75;
pub const CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: CUdevice_attribute = 76;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH: CUdevice_attribute = 77;
pub const CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED: CUdevice_attribute = 78;
pub const CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED: CUdevice_attribute = 79;
pub const CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED: CUdevice_attribute = 80;
pub const CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: CUdevice_attribute = 81;
pub const CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR: CUdevice_attribute = 82;
pub const CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY: CUdevice_attribute = 83;
pub const CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD: CUdevice_attribute = 84;
pub const CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD_GROUP_ID: CUdevice_attribute = 85;
pub const CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED: CUdevice_attribute = 86;
pub const CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO: CUdevice_attribute = 87;
pub const CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS: CUdevice_attribute = 88;
pub const CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS: CUdevice_attribute = 89;
pub const CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED: CUdevice_attribute = 90;
pub const CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM: CUdevice_attribute = 91;
pub const CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1: CUdevice_attribute = 92;
pub const CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1: CUdevice_attribute = 93;
pub const CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR_V1: CUdevice_attribute = 94;
pub const CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH: CUdevice_attribute = 95;
pub const CU_DEVICE_ATTRIBUTE_COOPERATIVE_MULTI_DEVICE_LAUNCH: CUdevice_attribute = 96;
pub const CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: CUdevice_attribute = 97;
pub const CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES: CUdevice_attribute = 98;
pub const CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED: CUdevice_attribute = 99;
pub const CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES: CUdevice_attribute =
    100;
pub const CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST: CUdevice_attribute = 101;
pub const CU_DEVICE_ATTRIBUTE_VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED: CUdevice_attribute = 102;
pub const CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED: CUdevice_attribute = 102;
pub const CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED: CUdevice_attribute = 103;
pub const CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_WIN32_HANDLE_SUPPORTED: CUdevice_attribute = 104;
pub const CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_WIN32_KMT_HANDLE_SUPPORTED: CUdevice_attribute = 105;
pub const CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR: CUdevice_attribute = 106;
pub const CU_DEVICE_ATTRIBUTE_GENERIC_COMPRESSION_SUPPORTED: CUdevice_attribute = 107;
pub const CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE: CUdevice_attribute = 108;
pub const CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE: CUdevice_attribute = 109;
pub const CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED: CUdevice_attribute = 110;
pub const CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK: CUdevice_attribute = 111;
pub const CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED: CUdevice_attribute = 112;
pub const CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED: CUdevice_attribute = 113;
pub const CU_DEVICE_ATTRIBUTE_TIMELINE_SEMAPHORE_INTEROP_SUPPORTED: CUdevice_attribute = 114;
pub const CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED: CUdevice_attribute = 115;
pub const CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED: CUdevice_attribute = 116;
pub const CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS: CUdevice_attribute = 117;
pub const CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING: CUdevice_attribute = 118;
pub const CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES: CUdevice_attribute = 119;
pub const CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH: CUdevice_attribute = 120;
pub const CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED: CUdevice_attribute = 121;
pub const CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS: CUdevice_attribute = 122;
pub const CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR: CUdevice_attribute = 123;
pub const CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED: CUdevice_attribute = 124;
pub const CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED: CUdevice_attribute = 125;
pub const CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT: CUdevice_attribute = 126;
pub const CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED: CUdevice_attribute = 127;
pub const CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED: CUdevice_attribute = 128;
pub const CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS: CUdevice_attribute = 129;
pub const CU_DEVICE_ATTRIBUTE_NUMA_CONFIG: CUdevice_attribute = 130;
pub const CU_DEVICE_ATTRIBUTE_NUMA_ID: CUdevice_attribute = 131;
pub const CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED: CUdevice_attribute = 132;
pub const CU_DEVICE_ATTRIBUTE_MPS_ENABLED: CUdevice_attribute = 133;
pub const CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID: CUdevice_attribute = 134;
pub const CU_DEVICE_ATTRIBUTE_D3D12_CIG_SUPPORTED: CUdevice_attribute = 135;
pub const CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK: CUdevice_attribute = 136;
pub const CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_MAXIMUM_LENGTH: CUdevice_attribute = 137;
pub const CU_DEVICE_ATTRIBUTE_VULKAN_CIG_SUPPORTED: CUdevice_attribute = 138;
pub const CU_DEVICE_ATTRIBUTE_GPU_PCI_DEVICE_ID: CUdevice_attribute = 139;
pub const CU_DEVICE_ATTRIBUTE_GPU_PCI_SUBSYSTEM_ID: CUdevice_attribute = 140;
pub const CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED: CUdevice_attribute =
    141;
pub const CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED: CUdevice_attribute = 142;
pub const CU_DEVICE_ATTRIBUTE_HOST_NUMA_MULTINODE_IPC_SUPPORTED: CUdevice_attribute = 143;
pub const CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED: CUdevice_attribute = 144;
pub const CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED: CUdevice_attribute = 145;
pub const CU_DEVICE_ATTRIBUTE_HOST_ALLOC_DMA_BUF_SUPPORTED: CUdevice_attribute = 146;
pub const CU_DEVICE_ATTRIBUTE_ONLY_PARTIAL_HOST_NATIVE_ATOMIC_SUPPORTED: CUdevice_attribute = 147;
pub const CU_DEVICE_ATTRIBUTE_ATOMIC_REDUCTION_SUPPORTED: CUdevice_attribute = 148;
pub const CU_DEVICE_ATTRIBUTE_LOCALITY_DOMAIN_COUNT: CUdevice_attribute = 149;
pub const CU_DEVICE_ATTRIBUTE_MAX_OVERSIZED_SHARED_MEMORY_PER_BLOCK: CUdevice_attribute = 150;
pub const CU_DEVICE_ATTRIBUTE_D3D12_CIG_STREAMS_SUPPORTED: CUdevice_attribute = 151;
pub const CU_DEVICE_ATTRIBUTE_DMA_BUF_MMAP_SUPPORTED: CUdevice_attribute = 152;
pub const CU_DEVICE_ATTRIBUTE_LOGICAL_ENDPOINT_UNICAST_SUPPORTED: CUdevice_attribute = 153;
pub const CU_DEVICE_ATTRIBUTE_LOGICAL_ENDPOINT_MULTICAST_SUPPORTED: CUdevice_attribute = 154;
pub const CU_DEVICE_ATTRIBUTE_LOGICAL_ENDPOINT_COUNTED_OPS_SUPPORTED: CUdevice_attribute = 155;
pub const CU_DEVICE_ATTRIBUTE_LOGICAL_ENDPOINT_UNICAST_ACCESS_ON_OWNER_DEVICE_SUPPORTED:
    CUdevice_attribute = 156;
pub const CU_DEVICE_ATTRIBUTE_LOCALITY_DOMAIN_MULTIPROCESSOR_COUNT: CUdevice_attribute = 157;
pub const CU_DEVICE_ATTRIBUTE_LOGICAL_ENDPOINT_SUPPORTED_HANDLE_TYPES: CUdevice_attribute = 158;
pub const CU_DEVICE_ATTRIBUTE_VULKAN_CIG_STREAMS_SUPPORTED: CUdevice_attribute = 159;
pub const CU_DEVICE_ATTRIBUTE_TENSOR_MAP_LARGE_TENSOR_MIN_SIZE: CUdevice_attribute = 160;
pub const CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_LOCALIZED_MEMORY_SUPPORTED: CUdevice_attribute =
    161;
pub const CU_DEVICE_ATTRIBUTE_MAX: CUdevice_attribute = 162;

// CUpointer_attribute
pub const CU_POINTER_ATTRIBUTE_CONTEXT: CUpointer_attribute = 1;
pub const CU_POINTER_ATTRIBUTE_MEMORY_TYPE: CUpointer_attribute = 2;
pub const CU_POINTER_ATTRIBUTE_DEVICE_POINTER: CUpointer_attribute = 3;
pub const CU_POINTER_ATTRIBUTE_HOST_POINTER: CUpointer_attribute = 4;
pub const CU_POINTER_ATTRIBUTE_P2P_TOKENS: CUpointer_attribute = 5;
pub const CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: CUpointer_attribute = 6;
pub const CU_POINTER_ATTRIBUTE_BUFFER_ID: CUpointer_attribute = 7;
pub const CU_POINTER_ATTRIBUTE_IS_MANAGED: CUpointer_attribute = 8;
pub const CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: CUpointer_attribute = 9;
pub const CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: CUpointer_attribute = 10;
pub const CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: CUpointer_attribute = 11;
pub const CU_POINTER_ATTRIBUTE_RANGE_SIZE: CUpointer_attribute = 12;
pub const CU_POINTER_ATTRIBUTE_MAPPED: CUpointer_attribute = 13;
pub const CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES: CUpointer_attribute = 14;
pub const CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE: CUpointer_attribute = 15;
pub const CU_POINTER_ATTRIBUTE_ACCESS_FLAGS: CUpointer_attribute = 16;
pub const CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: CUpointer_attribute = 17;
pub const CU_POINTER_ATTRIBUTE_MAPPING_SIZE: CUpointer_attribute = 18;
pub const CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR: CUpointer_attribute = 19;
pub const CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID: CUpointer_attribute = 20;
pub const CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE: CUpointer_attribute = 21;
pub const CU_POINTER_ATTRIBUTE_LOCALITY_DOMAIN_ORDINAL: CUpointer_attribute = 22;

// CUfunction_attribute
pub const CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: CUfunction_attribute = 0;
pub const CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: CUfunction_attribute = 1;
pub const CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES: CUfunction_attribute = 2;
pub const CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: CUfunction_attribute = 3;
pub const CU_FUNC_ATTRIBUTE_NUM_REGS: CUfunction_attribute = 4;
pub const CU_FUNC_ATTRIBUTE_PTX_VERSION: CUfunction_attribute = 5;
pub const CU_FUNC_ATTRIBUTE_BINARY_VERSION: CUfunction_attribute = 6;
pub const CU_FUNC_ATTRIBUTE_CACHE_MODE_CA: CUfunction_attribute = 7;
pub const CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: CUfunction_attribute = 8;
pub const CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT: CUfunction_attribute = 9;
pub const CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET: CUfunction_attribute = 10;
pub const CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH: CUfunction_attribute = 11;
pub const CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT: CUfunction_attribute = 12;
pub const CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH: CUfunction_attribute = 13;
pub const CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED: CUfunction_attribute = 14;
pub const CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE: CUfunction_attribute = 15;
pub const CU_FUNC_ATTRIBUTE_DEVICE_NODE_UPDATE_SUPPORTED: CUfunction_attribute = 16;
pub const CU_FUNC_ATTRIBUTE_SHARED_MEMORY_MODE: CUfunction_attribute = 17;
pub const CU_FUNC_ATTRIBUTE_MAX: CUfunction_attribute = 18;

// CUfunc_cache
pub const CU_FUNC_CACHE_PREFER_NONE: CUfunc_cache = 0;
pub const CU_FUNC_CACHE_PREFER_SHARED: CUfunc_cache = 1;
pub const CU_FUNC_CACHE_PREFER_L1: CUfunc_cache = 2;
pub const CU_FUNC_CACHE_PREFER_EQUAL: CUfunc_cache = 3;

// CUsharedconfig
pub const CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE: CUsharedconfig = 0;
pub const CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE: CUsharedconfig = 1;
pub const CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE: CUsharedconfig = 2;

// CUshared_carveout
pub const CU_SHAREDMEM_CARVEOUT_DEFAULT: CUshared_carveout = -1;
pub const CU_SHAREDMEM_CARVEOUT_MAX_SHARED: CUshared_carveout = 100;
pub const CU_SHAREDMEM_CARVEOUT_MAX_L1: CUshared_carveout = 0;

// CUmemorytype
pub const CU_MEMORYTYPE_HOST: CUmemorytype = 1;
pub const CU_MEMORYTYPE_DEVICE: CUmemorytype = 2;
pub const CU_MEMORYTYPE_ARRAY: CUmemorytype = 3;
pub const CU_MEMORYTYPE_UNIFIED: CUmemorytype = 4;

// CUcomputemode
pub const CU_COMPUTEMODE_DEFAULT: CUcomputemode = 0;
pub const CU_COMPUTEMODE_PROHIBITED: CUcomputemode = 2;
pub const CU_COMPUTEMODE_EXCLUSIVE_PROCESS: CUcomputemode = 3;

// CUmem_advise
pub const CU_MEM_ADVISE_SET_READ_MOSTLY: CUmem_advise = 1;
pub const CU_MEM_ADVISE_UNSET_READ_MOSTLY: CUmem_advise = 2;
pub const CU_MEM_ADVISE_SET_PREFERRED_LOCATION: CUmem_advise = 3;
pub const CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION: CUmem_advise = 4;
pub const CU_MEM_ADVISE_SET_ACCESSED_BY: CUmem_advise = 5;
pub const CU_MEM_ADVISE_UNSET_ACCESSED_BY: CUmem_advise = 6;

// CUmem_range_attribute
pub const CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY: CUmem_range_attribute = 1;
pub const CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION: CUmem_range_attribute = 2;
pub const CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY: CUmem_range_attribute = 3;
pub const CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION: CUmem_range_attribute = 4;
pub const CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE: CUmem_range_attribute = 5;
pub const CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID: CUmem_range_attribute = 6;
pub const CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE: CUmem_range_attribute = 7;
pub const CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID: CUmem_range_attribute = 8;

// CUjit_option
pub const CU_JIT_MAX_REGISTERS: CUjit_option = 0;
pub const CU_JIT_THREADS_PER_BLOCK: CUjit_option = 1;
pub const CU_JIT_WALL_TIME: CUjit_option = 2;
pub const CU_JIT_INFO_LOG_BUFFER: CUjit_option = 3;
pub const CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES: CUjit_option = 4;
pub const CU_JIT_ERROR_LOG_BUFFER: CUjit_option = 5;
pub const CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES: CUjit_option = 6;
pub const CU_JIT_OPTIMIZATION_LEVEL: CUjit_option = 7;
pub const CU_JIT_TARGET_FROM_CUCONTEXT: CUjit_option = 8;
pub const CU_JIT_TARGET: CUjit_option = 9;
pub const CU_JIT_FALLBACK_STRATEGY: CUjit_option = 10;
pub const CU_JIT_GENERATE_DEBUG_INFO: CUjit_option = 11;
pub const CU_JIT_LOG_VERBOSE: CUjit_option = 12;
pub const CU_JIT_GENERATE_LINE_INFO: CUjit_option = 13;
pub const CU_JIT_CACHE_MODE: CUjit_option = 14;
pub const CU_JIT_NEW_SM3X_OPT: CUjit_option = 15;
pub const CU_JIT_FAST_COMPILE: CUjit_option = 16;
pub const CU_JIT_GLOBAL_SYMBOL_NAMES: CUjit_option = 17;
pub const CU_JIT_GLOBAL_SYMBOL_ADDRESSES: CUjit_option = 18;
pub const CU_JIT_GLOBAL_SYMBOL_COUNT: CUjit_option = 19;
pub const CU_JIT_LTO: CUjit_option = 20;
pub const CU_JIT_FTZ: CUjit_option = 21;
pub const CU_JIT_PREC_DIV: CUjit_option = 22;
pub const CU_JIT_PREC_SQRT: CUjit_option = 23;
pub const CU_JIT_FMA: CUjit_option = 24;
pub const CU_JIT_REFERENCED_KERNEL_NAMES: CUjit_option = 25;
pub const CU_JIT_REFERENCED_KERNEL_COUNT: CUjit_option = 26;
pub const CU_JIT_REFERENCED_VARIABLE_NAMES: CUjit_option = 27;
pub const CU_JIT_REFERENCED_VARIABLE_COUNT: CUjit_option = 28;
pub const CU_JIT_OPTIMIZE_UNUSED_DEVICE_VARIABLES: CUjit_option = 29;
pub const CU_JIT_POSITION_INDEPENDENT_CODE: CUjit_option = 30;
pub const CU_JIT_MIN_CTA_PER_SM: CUjit_option = 31;
pub const CU_JIT_MAX_THREADS_PER_BLOCK: CUjit_option = 32;
pub const CU_JIT_OVERRIDE_DIRECTIVE_VALUES: CUjit_option = 33;
pub const CU_JIT_SPLIT_COMPILE: CUjit_option = 34;
pub const CU_JIT_BINARY_LOADER_THREAD_COUNT: CUjit_option = 35;
pub const CU_JIT_NUM_OPTIONS: CUjit_option = 36;

// CUjit_target
pub const CU_TARGET_COMPUTE_30: CUjit_target = 30;
pub const CU_TARGET_COMPUTE_32: CUjit_target = 32;
pub const CU_TARGET_COMPUTE_35: CUjit_target = 35;
pub const CU_TARGET_COMPUTE_37: CUjit_target = 37;
pub const CU_TARGET_COMPUTE_50: CUjit_target = 50;
pub const CU_TARGET_COMPUTE_52: CUjit_target = 52;
pub const CU_TARGET_COMPUTE_53: CUjit_target = 53;
pub const CU_TARGET_COMPUTE_60: CUjit_target = 60;
pub const CU_TARGET_COMPUTE_61: CUjit_target = 61;
pub const CU_TARGET_COMPUTE_62: CUjit_target = 62;
pub const CU_TARGET_COMPUTE_70: CUjit_target = 70;
pub const CU_TARGET_COMPUTE_72: CUjit_target = 72;
pub const CU_TARGET_COMPUTE_75: CUjit_target = 75;
pub const CU_TARGET_COMPUTE_80: CUjit_target = 80;
pub const CU_TARGET_COMPUTE_86: CUjit_target = 86;
pub const CU_TARGET_COMPUTE_87: CUjit_target = 87;
pub const CU_TARGET_COMPUTE_89: CUjit_target = 89;
pub const CU_TARGET_COMPUTE_90: CUjit_target = 90;
pub const CU_TARGET_COMPUTE_100: CUjit_target = 100;
pub const CU_TARGET_COMPUTE_110: CUjit_target = 110;
pub const CU_TARGET_COMPUTE_101: CUjit_target = 101;
pub const CU_TARGET_COMPUTE_103: CUjit_target = 103;
pub const CU_TARGET_COMPUTE_107: CUjit_target = 107;
pub const CU_TARGET_COMPUTE_120: CUjit_target = 120;
pub const CU_TARGET_COMPUTE_121: CUjit_target = 121;
pub const CU_TARGET_COMPUTE_90A: CUjit_target = 65626;
pub const CU_TARGET_COMPUTE_100A: CUjit_target = 65636;
pub const CU_TARGET_COMPUTE_110A: CUjit_target = 65646;
pub const CU_TARGET_COMPUTE_101A: CUjit_target = 65637;
pub const CU_TARGET_COMPUTE_103A: CUjit_target = 65639;
pub const CU_TARGET_COMPUTE_107A: CUjit_target = 65643;
pub const CU_TARGET_COMPUTE_120A: CUjit_target = 65656;
pub const CU_TARGET_COMPUTE_121A: CUjit_target = 65657;
pub const CU_TARGET_COMPUTE_100F: CUjit_target = 131172;
pub const CU_TARGET_COMPUTE_110F: CUjit_target = 131182;
pub const CU_TARGET_COMPUTE_101F: CUjit_target = 131173;
pub const CU_TARGET_COMPUTE_103F: CUjit_target = 131175;
pub const CU_TARGET_COMPUTE_107F: CUjit_target = 131179;
pub const CU_TARGET_COMPUTE_120F: CUjit_target = 131192;
pub const CU_TARGET_COMPUTE_121F: CUjit_target = 131193;

// CUjit_fallback
pub const CU_PREFER_PTX: CUjit_fallback = 0;
pub const CU_PREFER_BINARY: CUjit_fallback = 1;

// CUjit_cacheMode
pub const CU_JIT_CACHE_OPTION_NONE: CUjit_cacheMode = 0;
pub const CU_JIT_CACHE_OPTION_CG: CUjit_cacheMode = 1;
pub const CU_JIT_CACHE_OPTION_CA: CUjit_cacheMode = 2;

// CUjitInputType
pub const CU_JIT_INPUT_CUBIN: CUjitInputType = 0;
pub const CU_JIT_INPUT_PTX: CUjitInputType = 1;
pub const CU_JIT_INPUT_FATBINARY: CUjitInputType = 2;
pub const CU_JIT_INPUT_OBJECT: CUjitInputType = 3;
pub const CU_JIT_INPUT_LIBRARY: CUjitInputType = 4;
pub const CU_JIT_INPUT_NVVM: CUjitInputType = 5;
pub const CU_JIT_NUM_INPUT_TYPES: CUjitInputType = 6;

// CUgraphicsRegisterFlags
pub const CU_GRAPHICS_REGISTER_FLAGS_NONE: CUgraphicsRegisterFlags = 0;
pub const CU_GRAPHICS_REGISTER_FLAGS_READ_ONLY: CUgraphicsRegisterFlags = 1;
pub const CU_GRAPHICS_REGISTER_FLAGS_WRITE_DISCARD: CUgraphicsRegisterFlags = 2;
pub const CU_GRAPHICS_REGISTER_FLAGS_SURFACE_LDST: CUgraphicsRegisterFlags = 4;
pub const CU_GRAPHICS_REGISTER_FLAGS_TEXTURE_GATHER: CUgraphicsRegisterFlags = 8;

// CUgraphicsMapResourceFlags
pub const CU_GRAPHICS_MAP_RESOURCE_FLAGS_NONE: CUgraphicsMapResourceFlags = 0;
pub const CU_GRAPHICS_MAP_RESOURCE_FLAGS_READ_ONLY: CUgraphicsMapResourceFlags = 1;
pub const CU_GRAPHICS_MAP_RESOURCE_FLAGS_WRITE_DISCARD: CUgraphicsMapResourceFlags = 2;

// CUarray_cubemap_face
pub const CU_CUBEMAP_FACE_POSITIVE_X: CUarray_cubemap_face = 0;
pub const CU_CUBEMAP_FACE_NEGATIVE_X: CUarray_cubemap_face = 1;
pub const CU_CUBEMAP_FACE_POSITIVE_Y: CUarray_cubemap_face = 2;
pub const CU_CUBEMAP_FACE_NEGATIVE_Y: CUarray_cubemap_face = 3;
pub const CU_CUBEMAP_FACE_POSITIVE_Z: CUarray_cubemap_face = 4;
pub const CU_CUBEMAP_FACE_NEGATIVE_Z: CUarray_cubemap_face = 5;

// CUlimit
pub const CU_LIMIT_STACK_SIZE: CUlimit = 0;
pub const CU_LIMIT_PRINTF_FIFO_SIZE: CUlimit = 1;
pub const CU_LIMIT_MALLOC_HEAP_SIZE: CUlimit = 2;
pub const CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH: CUlimit = 3;
pub const CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT: CUlimit = 4;
pub const CU_LIMIT_MAX_L2_FETCH_GRANULARITY: CUlimit = 5;
pub const CU_LIMIT_PERSISTING_L2_CACHE_SIZE: CUlimit = 6;
pub const CU_LIMIT_SHMEM_SIZE: CUlimit = 7;
pub const CU_LIMIT_CIG_ENABLED: CUlimit = 8;
pub const CU_LIMIT_CIG_SHMEM_FALLBACK_ENABLED: CUlimit = 9;
pub const CU_LIMIT_PER_BLOCK_MEMORY_SIZE: CUlimit = 10;
pub const CU_LIMIT_MAX: CUlimit = 11;

// CUresourcetype
pub const CU_RESOURCE_TYPE_ARRAY: CUresourcetype = 0;
pub const CU_RESOURCE_TYPE_MIPMAPPED_ARRAY: CUresourcetype = 1;
pub const CU_RESOURCE_TYPE_LINEAR: CUresourcetype = 2;
pub const CU_RESOURCE_TYPE_PITCH2D: CUresourcetype = 3;

// CUaccessProperty
pub const CU_ACCESS_PROPERTY_NORMAL: CUaccessProperty = 0;
pub const CU_ACCESS_PROPERTY_STREAMING: CUaccessProperty = 1;
pub const CU_ACCESS_PROPERTY_PERSISTING: CUaccessProperty = 2;

// CUgraphConditionalNodeType
pub const CU_GRAPH_COND_TYPE_IF: CUgraphConditionalNodeType = 0;
pub const CU_GRAPH_COND_TYPE_WHILE: CUgraphConditionalNodeType = 1;
pub const CU_GRAPH_COND_TYPE_SWITCH: CUgraphConditionalNodeType = 2;

// CUgraphNodeType
pub const CU_GRAPH_NODE_TYPE_KERNEL: CUgraphNodeType = 0;
pub const CU_GRAPH_NODE_TYPE_MEMCPY: CUgraphNodeType = 1;
pub const CU_GRAPH_NODE_TYPE_MEMSET: CUgraphNodeType = 2;
pub const CU_GRAPH_NODE_TYPE_HOST: CUgraphNodeType = 3;
pub const CU_GRAPH_NODE_TYPE_GRAPH: CUgraphNodeType = 4;
pub const CU_GRAPH_NODE_TYPE_EMPTY: CUgraphNodeType = 5;
pub const CU_GRAPH_NODE_TYPE_WAIT_EVENT: CUgraphNodeType = 6;
pub const CU_GRAPH_NODE_TYPE_EVENT_RECORD: CUgraphNodeType = 7;
pub const CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL: CUgraphNodeType = 8;
pub const CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT: CUgraphNodeType = 9;
pub const CU_GRAPH_NODE_TYPE_MEM_ALLOC: CUgraphNodeType = 10;
pub const CU_GRAPH_NODE_TYPE_MEM_FREE: CUgraphNodeType = 11;
pub const CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: CUgraphNodeType = 12;
pub const CU_GRAPH_NODE_TYPE_CONDITIONAL: CUgraphNodeType = 13;
pub const CU_GRAPH_NODE_TYPE_MEMCPY_BATCH: CUgraphNodeType = 14;
pub const CU_GRAPH_NODE_TYPE_RESERVED_16: CUgraphNodeType = 16;
pub const CU_GRAPH_NODE_TYPE_EXTERNAL_ENGINE: CUgraphNodeType = 17;
pub const CU_GRAPH_NODE_TYPE_FABRIC_CPY_BATCH: CUgraphNodeType = 18;

// CUgraphDependencyType
pub const CU_GRAPH_DEPENDENCY_TYPE_DEFAULT: CUgraphDependencyType = 0;
pub const CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC: CUgraphDependencyType = 1;

// CUgraphInstantiateResult
pub const CUDA_GRAPH_INSTANTIATE_SUCCESS: CUgraphInstantiateResult = 0;
pub const CUDA_GRAPH_INSTANTIATE_ERROR: CUgraphInstantiateResult = 1;
pub const CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE: CUgraphInstantiateResult = 2;
pub const CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED: CUgraphInstantiateResult = 3;
pub const CUDA_GRAPH_INSTANTIATE_MULTIPLE_CTXS_NOT_SUPPORTED: CUgraphInstantiateResult = 4;
pub const CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED: CUgraphInstantiateResult = 5;

// CUsynchronizationPolicy
pub const CU_SYNC_POLICY_AUTO: CUsynchronizationPolicy = 1;
pub const CU_SYNC_POLICY_SPIN: CUsynchronizationPolicy = 2;
pub const CU_SYNC_POLICY_YIELD: CUsynchronizationPolicy = 3;
pub const CU_SYNC_POLICY_BLOCKING_SYNC: CUsynchronizationPolicy = 4;

// CUclusterSchedulingPolicy
pub const CU_CLUSTER_SCHEDULING_POLICY_DEFAULT: CUclusterSchedulingPolicy = 0;
pub const CU_CLUSTER_SCHEDULING_POLICY_SPREAD: CUclusterSchedulingPolicy = 1;
pub const CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING: CUclusterSchedulingPolicy = 2;
pub const CU_CLUSTER_SCHEDULING_POLICY_RUBIN_DSMEM_LOCALITY: CUclusterSchedulingPolicy = 3;

// CUlaunchMemSyncDomain
pub const CU_LAUNCH_MEM_SYNC_DOMAIN_DEFAULT: CUlaunchMemSyncDomain = 0;
pub const CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE: CUlaunchMemSyncDomain = 1;

// CUlaunchAttributePortableClusterMode
pub const CU_LAUNCH_PORTABLE_CLUSTER_MODE_DEFAULT: CUlaunchAttributePortableClusterMode = 0;
pub const CU_LAUNCH_PORTABLE_CLUSTER_MODE_REQUIRE_PORTABLE: CUlaunchAttributePortableClusterMode =
    1;
pub const CU_LAUNCH_PORTABLE_CLUSTER_MODE_ALLOW_NON_PORTABLE: CUlaunchAttributePortableClusterMode =
    2;

// CUsharedMemoryMode
pub const CU_SHARED_MEMORY_MODE_DEFAULT: CUsharedMemoryMode = 0;
pub const CU_SHARED_MEMORY_MODE_REQUIRE_PORTABLE: CUsharedMemoryMode = 1;
pub const CU_SHARED_MEMORY_MODE_ALLOW_NON_PORTABLE: CUsharedMemoryMode = 2;
pub const CU_SHARED_MEMORY_MODE_ALLOW_OVERSIZED_SHARED_MEMORY: CUsharedMemoryMode = 3;
pub const CU_SHARED_MEMORY_MODE_PREFER_OVERSIZED_SHARED_MEMORY: CUsharedMemoryMode = 4;

// CUlaunchAttributeID
pub const CU_LAUNCH_ATTRIBUTE_IGNORE: CUlaunchAttributeID = 0;
pub const CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW: CUlaunchAttributeID = 1;
pub const CU_LAUNCH_ATTRIBUTE_COOPERATIVE: CUlaunchAttributeID = 2;
pub const CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY: CUlaunchAttributeID = 3;
pub const CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION: CUlaunchAttributeID = 4;
pub const CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE: CUlaunchAttributeID = 5;
pub const CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION: CUlaunchAttributeID = 6;
pub const CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT: CUlaunchAttributeID = 7;
pub const CU_LAUNCH_ATTRIBUTE_PRIORITY: CUlaunchAttributeID = 8;
pub const CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP: CUlaunchAttributeID = 9;
pub const CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN: CUlaunchAttributeID = 10;
pub const CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION: CUlaunchAttributeID = 11;
pub const CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT: CUlaunchAttributeID = 12;
pub const CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE: CUlaunchAttributeID = 13;
pub const CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT: CUlaunchAttributeID = 14;
pub const CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING: CUlaunchAttributeID = 16;
pub const CU_LAUNCH_ATTRIBUTE_PORTABLE_CLUSTER_SIZE_MODE: CUlaunchAttributeID = 17;
pub const CU_LAUNCH_ATTRIBUTE_SHARED_MEMORY_MODE: CUlaunchAttributeID = 18;
pub const CU_LAUNCH_ATTRIBUTE_MAX: CUlaunchAttributeID = 19;

// CUstreamCaptureStatus
pub const CU_STREAM_CAPTURE_STATUS_NONE: CUstreamCaptureStatus = 0;
pub const CU_STREAM_CAPTURE_STATUS_ACTIVE: CUstreamCaptureStatus = 1;
pub const CU_STREAM_CAPTURE_STATUS_INVALIDATED: CUstreamCaptureStatus = 2;

// CUstreamCaptureMode
pub const CU_STREAM_CAPTURE_MODE_GLOBAL: CUstreamCaptureMode = 0;
pub const CU_STREAM_CAPTURE_MODE_THREAD_LOCAL: CUstreamCaptureMode = 1;
pub const CU_STREAM_CAPTURE_MODE_RELAXED: CUstreamCaptureMode = 2;

// CUdriverProcAddress_flags
pub const CU_GET_PROC_ADDRESS_DEFAULT: CUdriverProcAddress_flags = 0;
pub const CU_GET_PROC_ADDRESS_LEGACY_STREAM: CUdriverProcAddress_flags = 1;
pub const CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM: CUdriverProcAddress_flags = 2;

// CUdriverProcAddressQueryResult
pub const CU_GET_PROC_ADDRESS_SUCCESS: CUdriverProcAddressQueryResult = 0;
pub const CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND: CUdriverProcAddressQueryResult = 1;
pub const CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT: CUdriverProcAddressQueryResult = 2;

// CUexecAffinityType
pub const CU_EXEC_AFFINITY_TYPE_SM_COUNT: CUexecAffinityType = 0;
pub const CU_EXEC_AFFINITY_TYPE_MAX: CUexecAffinityType = 1;

// CUcigDataType
pub const CIG_DATA_TYPE_D3D12_COMMAND_QUEUE: CUcigDataType = 1;
pub const CIG_DATA_TYPE_NV_BLOB: CUcigDataType = 2;

// CUstreamCigDataType
pub const STREAM_CIG_DATA_TYPE_D3D12_COMMAND_LIST: CUstreamCigDataType = 1;
pub const STREAM_CIG_DATA_TYPE_VULKAN_COMMAND_BUFFER_HANDLE_NV: CUstreamCigDataType = 2;

// CUlibraryOption
pub const CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE: CUlibraryOption = 0;
pub const CU_LIBRARY_BINARY_IS_PRESERVED: CUlibraryOption = 1;
pub const CU_LIBRARY_NUM_OPTIONS: CUlibraryOption = 2;

// CUresult
/// no error
pub const CUDA_SUCCESS: CUresult = 0;
/// invalid argument
pub const CUDA_ERROR_INVALID_VALUE: CUresult = 1;
/// out of memory
pub const CUDA_ERROR_OUT_OF_MEMORY: CUresult = 2;
/// initialization error
pub const CUDA_ERROR_NOT_INITIALIZED: CUresult = 3;
/// driver shutting down
pub const CUDA_ERROR_DEINITIALIZED: CUresult = 4;
/// profiler disabled while using external profiling tool
pub const CUDA_ERROR_PROFILER_DISABLED: CUresult = 5;
/// profiler not initialized: call cudaProfilerInitialize()
pub const CUDA_ERROR_PROFILER_NOT_INITIALIZED: CUresult = 6;
/// profiler already started
pub const CUDA_ERROR_PROFILER_ALREADY_STARTED: CUresult = 7;
/// profiler already stopped
pub const CUDA_ERROR_PROFILER_ALREADY_STOPPED: CUresult = 8;
/// CUDA driver is a stub library
pub const CUDA_ERROR_STUB_LIBRARY: CUresult = 34;
/// API call is not supported in the installed CUDA driver
pub const CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER: CUresult = 36;
/// CUDA-capable device(s) is/are busy or unavailable
pub const CUDA_ERROR_DEVICE_UNAVAILABLE: CUresult = 46;
/// multicast resources are exhausted
pub const CUDA_ERROR_MULTICAST_RESOURCE_FULL: CUresult = 47;
/// no CUDA-capable device is detected
pub const CUDA_ERROR_NO_DEVICE: CUresult = 100;
/// invalid device ordinal
pub const CUDA_ERROR_INVALID_DEVICE: CUresult = 101;
/// device doesn't have valid Grid license
pub const CUDA_ERROR_DEVICE_NOT_LICENSED: CUresult = 102;
/// device kernel image is invalid
pub const CUDA_ERROR_INVALID_IMAGE: CUresult = 200;
/// invalid device context
pub const CUDA_ERROR_INVALID_CONTEXT: CUresult = 201;
/// context already current
pub const CUDA_ERROR_CONTEXT_ALREADY_CURRENT: CUresult = 202;
/// mapping of buffer object failed
pub const CUDA_ERROR_MAP_FAILED: CUresult = 205;
/// unmapping of buffer object failed
pub const CUDA_ERROR_UNMAP_FAILED: CUresult = 206;
/// array is mapped
pub const CUDA_ERROR_ARRAY_IS_MAPPED: CUresult = 207;
/// resource already mapped
pub const CUDA_ERROR_ALREADY_MAPPED: CUresult = 208;
/// no kernel image is available for execution on the device
pub const CUDA_ERROR_NO_BINARY_FOR_GPU: CUresult = 209;
/// resource already acquired
pub const CUDA_ERROR_ALREADY_ACQUIRED: CUresult = 210;
/// resource not mapped
pub const CUDA_ERROR_NOT_MAPPED: CUresult = 211;
/// resource not mapped as array
pub const CUDA_ERROR_NOT_MAPPED_AS_ARRAY: CUresult = 212;
/// resource not mapped as pointer
pub const CUDA_ERROR_NOT_MAPPED_AS_POINTER: CUresult = 213;
/// uncorrectable ECC error encountered
pub const CUDA_ERROR_ECC_UNCORRECTABLE: CUresult = 214;
/// limit is not supported on this architecture
pub const CUDA_ERROR_UNSUPPORTED_LIMIT: CUresult = 215;
/// exclusive-thread device already in use by a different thread
pub const CUDA_ERROR_CONTEXT_ALREADY_IN_USE: CUresult = 216;
/// peer access is not supported between these two devices
pub const CUDA_ERROR_PEER_ACCESS_UNSUPPORTED: CUresult = 217;
/// a PTX JIT compilation failed
pub const CUDA_ERROR_INVALID_PTX: CUresult = 218;
/// invalid OpenGL or DirectX context
pub const CUDA_ERROR_INVALID_GRAPHICS_CONTEXT: CUresult = 219;
/// uncorrectable NVLink error detected during the execution
pub const CUDA_ERROR_NVLINK_UNCORRECTABLE: CUresult = 220;
/// PTX JIT compiler library not found
pub const CUDA_ERROR_JIT_COMPILER_NOT_FOUND: CUresult = 221;
/// the provided PTX was compiled with an unsupported toolchain.
pub const CUDA_ERROR_UNSUPPORTED_PTX_VERSION: CUresult = 222;
/// PTX JIT compilation was disabled
pub const CUDA_ERROR_JIT_COMPILATION_DISABLED: CUresult = 223;
/// the provided execution affinity is not supported
pub const CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY: CUresult = 224;
/// the provided PTX contains unsupported call to cudaDeviceSynchronize
pub const CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC: CUresult = 225;
/// Invalid access of peer GPU memory over nvlink or a hardware error
pub const CUDA_ERROR_CONTAINED: CUresult = 226;
/// insufficient loader version
pub const CUDA_ERROR_INSUFFICIENT_LOADER_VERSION: CUresult = 227;
/// device kernel image is invalid
pub const CUDA_ERROR_INVALID_SOURCE: CUresult = 300;
/// file not found
pub const CUDA_ERROR_FILE_NOT_FOUND: CUresult = 301;
/// shared object symbol not found
pub const CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND: CUresult = 302;
/// shared object initialization failed
pub const CUDA_ERROR_SHARED_OBJECT_INIT_FAILED: CUresult = 303;
/// OS call failed or operation not supported on this OS
pub const CUDA_ERROR_OPERATING_SYSTEM: CUresult = 304;
/// invalid resource handle
pub const CUDA_ERROR_INVALID_HANDLE: CUresult = 400;
/// the operation cannot be performed in the present state
pub const CUDA_ERROR_ILLEGAL_STATE: CUresult = 401;
/// attempted introspection would be semantically lossy
pub const CUDA_ERROR_LOSSY_QUERY: CUresult = 402;
/// named symbol not found
pub const CUDA_ERROR_NOT_FOUND: CUresult = 500;
/// device not ready
pub const CUDA_ERROR_NOT_READY: CUresult = 600;
/// an illegal memory access was encountered
pub const CUDA_ERROR_ILLEGAL_ADDRESS: CUresult = 700;
/// too many resources requested for launch
pub const CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES: CUresult = 701;
/// the launch timed out and was terminated
pub const CUDA_ERROR_LAUNCH_TIMEOUT: CUresult = 702;
/// launch uses incompatible texturing mode
pub const CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING: CUresult = 703;
/// peer access is already enabled
pub const CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED: CUresult = 704;
/// peer access has not been enabled
pub const CUDA_ERROR_PEER_ACCESS_NOT_ENABLED: CUresult = 705;
/// cannot set while device is active in this process
pub const CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE: CUresult = 708;
/// context is destroyed
pub const CUDA_ERROR_CONTEXT_IS_DESTROYED: CUresult = 709;
/// device-side assert triggered
pub const CUDA_ERROR_ASSERT: CUresult = 710;
/// peer mapping resources exhausted
pub const CUDA_ERROR_TOO_MANY_PEERS: CUresult = 711;
/// part or all of the requested memory range is already mapped
pub const CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED: CUresult = 712;
/// pointer does not correspond to a registered memory region
pub const CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED: CUresult = 713;
/// hardware stack error
pub const CUDA_ERROR_HARDWARE_STACK_ERROR: CUresult = 714;
/// an illegal instruction was encountered
pub const CUDA_ERROR_ILLEGAL_INSTRUCTION: CUresult = 715;
/// misaligned address
pub const CUDA_ERROR_MISALIGNED_ADDRESS: CUresult = 716;
/// operation not supported on global/shared address space
pub const CUDA_ERROR_INVALID_ADDRESS_SPACE: CUresult = 717;
/// invalid program counter
pub const CUDA_ERROR_INVALID_PC: CUresult = 718;
/// unspecified launch failure
pub const CUDA_ERROR_LAUNCH_FAILED: CUresult = 719;
/// too many blocks in cooperative launch
pub const CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE: CUresult = 720;
/// tensor memory not completely freed
pub const CUDA_ERROR_TENSOR_MEMORY_LEAK: CUresult = 721;
/// operation not permitted
pub const CUDA_ERROR_NOT_PERMITTED: CUresult = 800;
/// operation not supported
pub const CUDA_ERROR_NOT_SUPPORTED: CUresult = 801;
/// system not yet initialized
pub const CUDA_ERROR_SYSTEM_NOT_READY: CUresult = 802;
/// system has unsupported display driver / cuda driver combination
pub const CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: CUresult = 803;
/// forward compatibility was attempted on non supported HW
pub const CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE: CUresult = 804;
/// MPS client failed to connect to the MPS control daemon or the MPS server
pub const CUDA_ERROR_MPS_CONNECTION_FAILED: CUresult = 805;
/// the remote procedural call between the MPS server and the MPS client failed
pub const CUDA_ERROR_MPS_RPC_FAILURE: CUresult = 806;
/// MPS server is not ready to accept new MPS client requests
pub const CUDA_ERROR_MPS_SERVER_NOT_READY: CUresult = 807;
/// the hardware resources required to create MPS client have been exhausted
pub const CUDA_ERROR_MPS_MAX_CLIENTS_REACHED: CUresult = 808;
/// the hardware resources required to support device connections have been exhausted
pub const CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED: CUresult = 809;
/// the MPS client has been terminated by the server
pub const CUDA_ERROR_MPS_CLIENT_TERMINATED: CUresult = 810;
/// is using CUDA Dynamic Parallelism, but the current configuration, like MPS, does not support it
pub const CUDA_ERROR_CDP_NOT_SUPPORTED: CUresult = 811;
/// unsupported interaction between different versions of CUDA Dynamic Parallelism
pub const CUDA_ERROR_CDP_VERSION_MISMATCH: CUresult = 812;
/// operation not permitted when stream is capturing
pub const CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED: CUresult = 900;
/// operation failed due to a previous error during capture
pub const CUDA_ERROR_STREAM_CAPTURE_INVALIDATED: CUresult = 901;
/// operation would result in a merge of separate capture sequences
pub const CUDA_ERROR_STREAM_CAPTURE_MERGE: CUresult = 902;
/// capture was not ended in the same stream as it began
pub const CUDA_ERROR_STREAM_CAPTURE_UNMATCHED: CUresult = 903;
/// capturing stream has unjoined work
pub const CUDA_ERROR_STREAM_CAPTURE_UNJOINED: CUresult = 904;
/// dependency created on uncaptured work in another stream
pub const CUDA_ERROR_STREAM_CAPTURE_ISOLATION: CUresult = 905;
/// operation would make the legacy stream depend on a capturing blocking stream
pub const CUDA_ERROR_STREAM_CAPTURE_IMPLICIT: CUresult = 906;
/// operation not permitted on an event last recorded in a capturing stream
pub const CUDA_ERROR_CAPTURED_EVENT: CUresult = 907;
/// attempt to terminate a thread-local capture sequence from another thread
pub const CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD: CUresult = 908;
/// wait operation timed out
pub const CUDA_ERROR_TIMEOUT: CUresult = 909;
/// the graph update was not performed because it included changes which violated constraints specific to instantiated graph update
pub const CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE: CUresult = 910;
/// an async error has occured in external entity outside of CUDA
pub const CUDA_ERROR_EXTERNAL_DEVICE: CUresult = 911;
/// a kernel launch error has occurred due to cluster misconfiguration
pub const CUDA_ERROR_INVALID_CLUSTER_SIZE: CUresult = 912;
/// the function handle is not loaded when calling an API that requires a loaded function
pub const CUDA_ERROR_FUNCTION_NOT_LOADED: CUresult = 913;
/// one or more resources passed in are not valid resource types for the operation
pub const CUDA_ERROR_INVALID_RESOURCE_TYPE: CUresult = 914;
/// one or more resources are insufficient or non-applicable for the operation
pub const CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION: CUresult = 915;
/// an error happened during the key rotation sequence
pub const CUDA_ERROR_KEY_ROTATION: CUresult = 916;
/// the requested operation is not permitted because the stream is in a detached state
pub const CUDA_ERROR_STREAM_DETACHED: CUresult = 917;
/// graph recapture failed
pub const CUDA_ERROR_GRAPH_RECAPTURE_FAILURE: CUresult = 918;
/// fabric is not ready
pub const CUDA_ERROR_FABRIC_NOT_READY: CUresult = 919;
/// unknown error
pub const CUDA_ERROR_UNKNOWN: CUresult = 999;

// CUdevice_P2PAttribute
pub const CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK: CUdevice_P2PAttribute = 1;
pub const CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED: CUdevice_P2PAttribute = 2;
pub const CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED: CUdevice_P2PAttribute = 3;
pub const CU_DEVICE_P2P_ATTRIBUTE_ACCESS_ACCESS_SUPPORTED: CUdevice_P2PAttribute = 4;
pub const CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED: CUdevice_P2PAttribute = 4;
pub const CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED: CUdevice_P2PAttribute = 5;

// CUresourceViewFormat
pub const CU_RES_VIEW_FORMAT_NONE: CUresourceViewFormat = 0;
pub const CU_RES_VIEW_FORMAT_UINT_1X8: CUresourceViewFormat = 1;
pub const CU_RES_VIEW_FORMAT_UINT_2X8: CUresourceViewFormat = 2;
pub const CU_RES_VIEW_FORMAT_UINT_4X8: CUresourceViewFormat = 3;
pub const CU_RES_VIEW_FORMAT_SINT_1X8: CUresourceViewFormat = 4;
pub const CU_RES_VIEW_FORMAT_SINT_2X8: CUresourceViewFormat = 5;
pub const CU_RES_VIEW_FORMAT_SINT_4X8: CUresourceViewFormat = 6;
pub const CU_RES_VIEW_FORMAT_UINT_1X16: CUresourceViewFormat = 7;
pub const CU_RES_VIEW_FORMAT_UINT_2X16: CUresourceViewFormat = 8;
pub const CU_RES_VIEW_FORMAT_UINT_4X16: CUresourceViewFormat = 9;
pub const CU_RES_VIEW_FORMAT_SINT_1X16: CUresourceViewFormat = 10;
pub const CU_RES_VIEW_FORMAT_SINT_2X16: CUresourceViewFormat = 11;
pub const CU_RES_VIEW_FORMAT_SINT_4X16: CUresourceViewFormat = 12;
pub const CU_RES_VIEW_FORMAT_UINT_1X32: CUresourceViewFormat = 13;
pub const CU_RES_VIEW_FORMAT_UINT_2X32: CUresourceViewFormat = 14;
pub const CU_RES_VIEW_FORMAT_UINT_4X32: CUresourceViewFormat = 15;
pub const CU_RES_VIEW_FORMAT_SINT_1X32: CUresourceViewFormat = 16;
pub const CU_RES_VIEW_FORMAT_SINT_2X32: CUresourceViewFormat = 17;
pub const CU_RES_VIEW_FORMAT_SINT_4X32: CUresourceViewFormat = 18;
pub const CU_RES_VIEW_FORMAT_FLOAT_1X16: CUresourceViewFormat = 19;
pub const CU_RES_VIEW_FORMAT_FLOAT_2X16: CUresourceViewFormat = 20;
pub const CU_RES_VIEW_FORMAT_FLOAT_4X16: CUresourceViewFormat = 21;
pub const CU_RES_VIEW_FORMAT_FLOAT_1X32: CUresourceViewFormat = 22;
pub const CU_RES_VIEW_FORMAT_FLOAT_2X32: CUresourceViewFormat = 23;
pub const CU_RES_VIEW_FORMAT_FLOAT_4X32: CUresourceViewFormat = 24;
pub const CU_RES_VIEW_FORMAT_UNSIGNED_BC1: CUresourceViewFormat = 25;
pub const CU_RES_VIEW_FORMAT_UNSIGNED_BC2: CUresourceViewFormat = 26;
pub const CU_RES_VIEW_FORMAT_UNSIGNED_BC3: CUresourceViewFormat = 27;
pub const CU_RES_VIEW_FORMAT_UNSIGNED_BC4: CUresourceViewFormat = 28;
pub const CU_RES_VIEW_FORMAT_SIGNED_BC4: CUresourceViewFormat = 29;
pub const CU_RES_VIEW_FORMAT_UNSIGNED_BC5: CUresourceViewFormat = 30;
pub const CU_RES_VIEW_FORMAT_SIGNED_BC5: CUresourceViewFormat = 31;
pub const CU_RES_VIEW_FORMAT_UNSIGNED_BC6H: CUresourceViewFormat = 32;
pub const CU_RES_VIEW_FORMAT_SIGNED_BC6H: CUresourceViewFormat = 33;
pub const CU_RES_VIEW_FORMAT_UNSIGNED_BC7: CUresourceViewFormat = 34;

// CUtensorMapDataType
pub const CU_TENSOR_MAP_DATA_TYPE_UINT8: CUtensorMapDataType = 0;
pub const CU_TENSOR_MAP_DATA_TYPE_UINT16: CUtensorMapDataType = 1;
pub const CU_TENSOR_MAP_DATA_TYPE_UINT32: CUtensorMapDataType = 2;
pub const CU_TENSOR_MAP_DATA_TYPE_INT32: CUtensorMapDataType = 3;
pub const CU_TENSOR_MAP_DATA_TYPE_UINT64: CUtensorMapDataType = 4;
pub const CU_TENSOR_MAP_DATA_TYPE_INT64: CUtensorMapDataType = 5;
pub const CU_TENSOR_MAP_DATA_TYPE_FLOAT16: CUtensorMapDataType = 6;
pub const CU_TENSOR_MAP_DATA_TYPE_FLOAT32: CUtensorMapDataType = 7;
pub const CU_TENSOR_MAP_DATA_TYPE_FLOAT64: CUtensorMapDataType = 8;
pub const CU_TENSOR_MAP_DATA_TYPE_BFLOAT16: CUtensorMapDataType = 9;
pub const CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ: CUtensorMapDataType = 10;
pub const CU_TENSOR_MAP_DATA_TYPE_TFLOAT32: CUtensorMapDataType = 11;
pub const CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ: CUtensorMapDataType = 12;
pub const CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B: CUtensorMapDataType = 13;
pub const CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN16B: CUtensorMapDataType = 14;
pub const CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B: CUtensorMapDataType = 15;

// CUtensorMapInterleave
pub const CU_TENSOR_MAP_INTERLEAVE_NONE: CUtensorMapInterleave = 0;
pub const CU_TENSOR_MAP_INTERLEAVE_16B: CUtensorMapInterleave = 1;
pub const CU_TENSOR_MAP_INTERLEAVE_32B: CUtensorMapInterleave = 2;

// CUtensorMapSwizzle
pub const CU_TENSOR_MAP_SWIZZLE_NONE: CUtensorMapSwizzle = 0;
pub const CU_TENSOR_MAP_SWIZZLE_32B: CUtensorMapSwizzle = 1;
pub const CU_TENSOR_MAP_SWIZZLE_64B: CUtensorMapSwizzle = 2;
pub const CU_TENSOR_MAP_SWIZZLE_128B: CUtensorMapSwizzle = 3;
pub const CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B: CUtensorMapSwizzle = 4;
pub const CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B_FLIP_8B: CUtensorMapSwizzle = 5;
pub const CU_TENSOR_MAP_SWIZZLE_128B_ATOM_64B: CUtensorMapSwizzle = 6;

// CUtensorMapL2promotion
pub const CU_TENSOR_MAP_L2_PROMOTION_NONE: CUtensorMapL2promotion = 0;
pub const CU_TENSOR_MAP_L2_PROMOTION_L2_64B: CUtensorMapL2promotion = 1;
pub const CU_TENSOR_MAP_L2_PROMOTION_L2_128B: CUtensorMapL2promotion = 2;
pub const CU_TENSOR_MAP_L2_PROMOTION_L2_256B: CUtensorMapL2promotion = 3;

// CUtensorMapFloatOOBfill
pub const CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE: CUtensorMapFloatOOBfill = 0;
pub const CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA: CUtensorMapFloatOOBfill = 1;

// CUtensorMapIm2ColWideMode
pub const CU_TENSOR_MAP_IM2COL_WIDE_MODE_W: CUtensorMapIm2ColWideMode = 0;
pub const CU_TENSOR_MAP_IM2COL_WIDE_MODE_W128: CUtensorMapIm2ColWideMode = 1;

// CUtensorMapAllocClass
pub const CU_TENSOR_MAP_ALLOC_CLASS_AUTO: CUtensorMapAllocClass = 0;
pub const CU_TENSOR_MAP_ALLOC_CLASS_SMALL: CUtensorMapAllocClass = 1;
pub const CU_TENSOR_MAP_ALLOC_CLASS_LARGE: CUtensorMapAllocClass = 2;

// CUDA_POINTER_ATTRIBUTE_ACCESS_FLAGS
pub const CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE: CUDA_POINTER_ATTRIBUTE_ACCESS_FLAGS = 0;
pub const CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READ: CUDA_POINTER_ATTRIBUTE_ACCESS_FLAGS = 1;
pub const CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE: CUDA_POINTER_ATTRIBUTE_ACCESS_FLAGS = 3;

// CUexternalMemoryHandleType
pub const CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD: CUexternalMemoryHandleType = 1;
pub const CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_WIN32: CUexternalMemoryHandleType = 2;
pub const CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_WIN32_KMT: CUexternalMemoryHandleType = 3;
pub const CU_EXTERNAL_MEMORY_HANDLE_TYPE_D3D12_HEAP: CUexternalMemoryHandleType = 4;
pub const CU_EXTERNAL_MEMORY_HANDLE_TYPE_D3D12_RESOURCE: CUexternalMemoryHandleType = 5;
pub const CU_EXTERNAL_MEMORY_HANDLE_TYPE_D3D11_RESOURCE: CUexternalMemoryHandleType = 6;
pub const CU_EXTERNAL_MEMORY_HANDLE_TYPE_D3D11_RESOURCE_KMT: CUexternalMemoryHandleType = 7;
pub const CU_EXTERNAL_MEMORY_HANDLE_TYPE_NVSCIBUF: CUexternalMemoryHandleType = 8;
pub const CU_EXTERNAL_MEMORY_HANDLE_TYPE_DMABUF_FD: CUexternalMemoryHandleType = 9;

// CUexternalSemaphoreHandleType
pub const CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD: CUexternalSemaphoreHandleType = 1;
pub const CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_WIN32: CUexternalSemaphoreHandleType = 2;
pub const CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_WIN32_KMT: CUexternalSemaphoreHandleType = 3;
pub const CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_D3D12_FENCE: CUexternalSemaphoreHandleType = 4;
pub const CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_D3D11_FENCE: CUexternalSemaphoreHandleType = 5;
pub const CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_NVSCISYNC: CUexternalSemaphoreHandleType = 6;
pub const CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_D3D11_KEYED_MUTEX: CUexternalSemaphoreHandleType = 7;
pub const CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_D3D11_KEYED_MUTEX_KMT: CUexternalSemaphoreHandleType =
    8;
pub const CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD: CUexternalSemaphoreHandleType =
    9;
pub const CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_WIN32:
    CUexternalSemaphoreHandleType = 10;

// CUmemAllocationHandleType
pub const CU_MEM_HANDLE_TYPE_NONE: CUmemAllocationHandleType = 0;
pub const CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR: CUmemAllocationHandleType = 1;
pub const CU_MEM_HANDLE_TYPE_WIN32: CUmemAllocationHandleType = 2;
pub const CU_MEM_HANDLE_TYPE_WIN32_KMT: CUmemAllocationHandleType = 4;
pub const CU_MEM_HANDLE_TYPE_FABRIC: CUmemAllocationHandleType = 8;
pub const CU_MEM_HANDLE_TYPE_MAX: CUmemAllocationHandleType = 2147483647;

// CUmemAccess_flags
pub const CU_MEM_ACCESS_FLAGS_PROT_NONE: CUmemAccess_flags = 0;
pub const CU_MEM_ACCESS_FLAGS_PROT_READ: CUmemAccess_flags = 1;
pub const CU_MEM_ACCESS_FLAGS_PROT_READWRITE: CUmemAccess_flags = 3;
pub const CU_MEM_ACCESS_FLAGS_PROT_MAX: CUmemAccess_flags = 2147483647;

// CUmemLocationType
pub const CU_MEM_LOCATION_TYPE_INVALID: CUmemLocationType = 0;
pub const CU_MEM_LOCATION_TYPE_NONE: CUmemLocationType = 0;
pub const CU_MEM_LOCATION_TYPE_DEVICE: CUmemLocationType = 1;
pub const CU_MEM_LOCATION_TYPE_HOST: CUmemLocationType = 2;
pub const CU_MEM_LOCATION_TYPE_HOST_NUMA: CUmemLocationType = 3;
pub const CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT: CUmemLocationType = 4;
pub const CU_MEM_LOCATION_TYPE_INVISIBLE: CUmemLocationType = 5;
pub const CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN: CUmemLocationType = 6;
pub const CU_MEM_LOCATION_TYPE_MAX: CUmemLocationType = 2147483647;

// CUmemAllocationType
pub const CU_MEM_ALLOCATION_TYPE_INVALID: CUmemAllocationType = 0;
pub const CU_MEM_ALLOCATION_TYPE_PINNED: CUmemAllocationType = 1;
pub const CU_MEM_ALLOCATION_TYPE_MANAGED: CUmemAllocationType = 2;
pub const CU_MEM_ALLOCATION_TYPE_MAX: CUmemAllocationType = 2147483647;

// CUmemAllocationGranularity_flags
pub const CU_MEM_ALLOC_GRANULARITY_MINIMUM: CUmemAllocationGranularity_flags = 0;
pub const CU_MEM_ALLOC_GRANULARITY_RECOMMENDED: CUmemAllocationGranularity_flags = 1;

// CUmemRangeHandleType
pub const CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD: CUmemRangeHandleType = 1;
pub const CU_MEM_RANGE_HANDLE_TYPE_MAX: CUmemRangeHandleType = 2147483647;

// CUmemRangeFlags
pub const CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE: CUmemRangeFlags = 1;

// CUarraySparseSubresourceType
pub const CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL: CUarraySparseSubresourceType = 0;
pub const CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL: CUarraySparseSubresourceType = 1;

// CUmemOperationType
pub const CU_MEM_OPERATION_TYPE_MAP: CUmemOperationType = 1;
pub const CU_MEM_OPERATION_TYPE_UNMAP: CUmemOperationType = 2;

// CUmemHandleType
pub const CU_MEM_HANDLE_TYPE_GENERIC: CUmemHandleType = 0;

// CUmemAllocationCompType
pub const CU_MEM_ALLOCATION_COMP_NONE: CUmemAllocationCompType = 0;
pub const CU_MEM_ALLOCATION_COMP_GENERIC: CUmemAllocationCompType = 1;

// CUmulticastGranularity_flags
pub const CU_MULTICAST_GRANULARITY_MINIMUM: CUmulticastGranularity_flags = 0;
pub const CU_MULTICAST_GRANULARITY_RECOMMENDED: CUmulticastGranularity_flags = 1;

// CUgraphExecUpdateResult
pub const CU_GRAPH_EXEC_UPDATE_SUCCESS: CUgraphExecUpdateResult = 0;
pub const CU_GRAPH_EXEC_UPDATE_ERROR: CUgraphExecUpdateResult = 1;
pub const CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED: CUgraphExecUpdateResult = 2;
pub const CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED: CUgraphExecUpdateResult = 3;
pub const CU_GRAPH_EXEC_UPDATE_ERROR_FUNCTION_CHANGED: CUgraphExecUpdateResult = 4;
pub const CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED: CUgraphExecUpdateResult = 5;
pub const CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED: CUgraphExecUpdateResult = 6;
pub const CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE: CUgraphExecUpdateResult = 7;
pub const CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED: CUgraphExecUpdateResult = 8;

// CUmemPool_attribute
pub const CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES: CUmemPool_attribute = 1;
pub const CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC: CUmemPool_attribute = 2;
pub const CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES: CUmemPool_attribute = 3;
pub const CU_MEMPOOL_ATTR_RELEASE_THRESHOLD: CUmemPool_attribute = 4;
pub const CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT: CUmemPool_attribute = 5;
pub const CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH: CUmemPool_attribute = 6;
pub const CU_MEMPOOL_ATTR_USED_MEM_CURRENT: CUmemPool_attribute = 7;
pub const CU_MEMPOOL_ATTR_USED_MEM_HIGH: CUmemPool_attribute = 8;
pub const CU_MEMPOOL_ATTR_ALLOCATION_TYPE: CUmemPool_attribute = 9;
pub const CU_MEMPOOL_ATTR_EXPORT_HANDLE_TYPES: CUmemPool_attribute = 10;
pub const CU_MEMPOOL_ATTR_LOCATION_ID: CUmemPool_attribute = 11;
pub const CU_MEMPOOL_ATTR_LOCATION_TYPE: CUmemPool_attribute = 12;
pub const CU_MEMPOOL_ATTR_MAX_POOL_SIZE: CUmemPool_attribute = 13;
pub const CU_MEMPOOL_ATTR_HW_DECOMPRESS_ENABLED: CUmemPool_attribute = 14;
pub const CU_MEMPOOL_ATTR_LOCALITY_DOMAIN_ID: CUmemPool_attribute = 15;

// CUmemcpyFlags
pub const CU_MEMCPY_FLAG_DEFAULT: CUmemcpyFlags = 0;
pub const CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE: CUmemcpyFlags = 1;

// CUmemcpySrcAccessOrder
pub const CU_MEMCPY_SRC_ACCESS_ORDER_INVALID: CUmemcpySrcAccessOrder = 0;
pub const CU_MEMCPY_SRC_ACCESS_ORDER_STREAM: CUmemcpySrcAccessOrder = 1;
pub const CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL: CUmemcpySrcAccessOrder = 2;
pub const CU_MEMCPY_SRC_ACCESS_ORDER_ANY: CUmemcpySrcAccessOrder = 3;
pub const CU_MEMCPY_SRC_ACCESS_ORDER_MAX: CUmemcpySrcAccessOrder = 2147483647;

// CUmemcpy3DOperandType
pub const CU_MEMCPY_OPERAND_TYPE_POINTER: CUmemcpy3DOperandType = 1;
pub const CU_MEMCPY_OPERAND_TYPE_ARRAY: CUmemcpy3DOperandType = 2;
pub const CU_MEMCPY_OPERAND_TYPE_MAX: CUmemcpy3DOperandType = 2147483647;

// CUgraphMem_attribute
pub const CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT: CUgraphMem_attribute = 0;
pub const CU_GRAPH_MEM_ATTR_USED_MEM_HIGH: CUgraphMem_attribute = 1;
pub const CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT: CUgraphMem_attribute = 2;
pub const CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH: CUgraphMem_attribute = 3;

// CUgraphChildGraphNodeOwnership
pub const CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE: CUgraphChildGraphNodeOwnership = 0;
pub const CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE: CUgraphChildGraphNodeOwnership = 1;
pub const CU_GRAPH_CHILD_GRAPH_OWNERSHIP_INVALID: CUgraphChildGraphNodeOwnership = -1;

// CUflushGPUDirectRDMAWritesOptions
pub const CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST: CUflushGPUDirectRDMAWritesOptions = 1;
pub const CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_MEMOPS: CUflushGPUDirectRDMAWritesOptions = 2;

// CUGPUDirectRDMAWritesOrdering
pub const CU_GPU_DIRECT_RDMA_WRITES_ORDERING_NONE: CUGPUDirectRDMAWritesOrdering = 0;
pub const CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER: CUGPUDirectRDMAWritesOrdering = 100;
pub const CU_GPU_DIRECT_RDMA_WRITES_ORDERING_ALL_DEVICES: CUGPUDirectRDMAWritesOrdering = 200;

// CUflushGPUDirectRDMAWritesScope
pub const CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER: CUflushGPUDirectRDMAWritesScope = 100;
pub const CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_ALL_DEVICES: CUflushGPUDirectRDMAWritesScope = 200;

// CUflushGPUDirectRDMAWritesTarget
pub const CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX: CUflushGPUDirectRDMAWritesTarget = 0;

// CUgraphDebugDot_flags
pub const CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE: CUgraphDebugDot_flags = 1;
pub const CU_GRAPH_DEBUG_DOT_FLAGS_RUNTIME_TYPES: CUgraphDebugDot_flags = 2;
pub const CU_GRAPH_DEBUG_DOT_FLAGS_KERNEL_NODE_PARAMS: CUgraphDebugDot_flags = 4;
pub const CU_GRAPH_DEBUG_DOT_FLAGS_MEMCPY_NODE_PARAMS: CUgraphDebugDot_flags = 8;
pub const CU_GRAPH_DEBUG_DOT_FLAGS_MEMSET_NODE_PARAMS: CUgraphDebugDot_flags = 16;
pub const CU_GRAPH_DEBUG_DOT_FLAGS_HOST_NODE_PARAMS: CUgraphDebugDot_flags = 32;
pub const CU_GRAPH_DEBUG_DOT_FLAGS_EVENT_NODE_PARAMS: CUgraphDebugDot_flags = 64;
pub const CU_GRAPH_DEBUG_DOT_FLAGS_EXT_SEMAS_SIGNAL_NODE_PARAMS: CUgraphDebugDot_flags = 128;
pub const CU_GRAPH_DEBUG_DOT_FLAGS_EXT_SEMAS_WAIT_NODE_PARAMS: CUgraphDebugDot_flags = 256;
pub const CU_GRAPH_DEBUG_DOT_FLAGS_KERNEL_NODE_ATTRIBUTES: CUgraphDebugDot_flags = 512;
pub const CU_GRAPH_DEBUG_DOT_FLAGS_HANDLES: CUgraphDebugDot_flags = 1024;
pub const CU_GRAPH_DEBUG_DOT_FLAGS_MEM_ALLOC_NODE_PARAMS: CUgraphDebugDot_flags = 2048;
pub const CU_GRAPH_DEBUG_DOT_FLAGS_MEM_FREE_NODE_PARAMS: CUgraphDebugDot_flags = 4096;
pub const CU_GRAPH_DEBUG_DOT_FLAGS_BATCH_MEM_OP_NODE_PARAMS: CUgraphDebugDot_flags = 8192;
pub const CU_GRAPH_DEBUG_DOT_FLAGS_EXTRA_TOPO_INFO: CUgraphDebugDot_flags = 16384;
pub const CU_GRAPH_DEBUG_DOT_FLAGS_CONDITIONAL_NODE_PARAMS: CUgraphDebugDot_flags = 32768;
pub const CU_GRAPH_DEBUG_DOT_FLAGS_MEMCPY_BATCH_NODE_PARAMS: CUgraphDebugDot_flags = 65536;
pub const CU_GRAPH_DEBUG_DOT_FLAGS_FABRIC_CPY_BATCH_NODE_PARAMS: CUgraphDebugDot_flags = 131072;

// CUuserObject_flags
pub const CU_USER_OBJECT_NO_DESTRUCTOR_SYNC: CUuserObject_flags = 1;

// CUuserObjectRetain_flags
pub const CU_GRAPH_USER_OBJECT_MOVE: CUuserObjectRetain_flags = 1;

// CUgraphInstantiate_flags
pub const CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH: CUgraphInstantiate_flags = 1;
pub const CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD: CUgraphInstantiate_flags = 2;
pub const CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH: CUgraphInstantiate_flags = 4;
pub const CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY: CUgraphInstantiate_flags = 8;

// CUdeviceNumaConfig
pub const CU_DEVICE_NUMA_CONFIG_NONE: CUdeviceNumaConfig = 0;
pub const CU_DEVICE_NUMA_CONFIG_NUMA_NODE: CUdeviceNumaConfig = 1;

// CUprocessState
pub const CU_PROCESS_STATE_RUNNING: CUprocessState = 0;
pub const CU_PROCESS_STATE_LOCKED: CUprocessState = 1;
pub const CU_PROCESS_STATE_CHECKPOINTED: CUprocessState = 2;
pub const CU_PROCESS_STATE_FAILED: CUprocessState = 3;
pub const CU_PROCESS_STATE_CHECKPOINTING: CUprocessState = 4;
pub const CU_PROCESS_STATE_RESTORING: CUprocessState = 5;

// CUmoduleLoadingMode
pub const CU_MODULE_EAGER_LOADING: CUmoduleLoadingMode = 1;
pub const CU_MODULE_LAZY_LOADING: CUmoduleLoadingMode = 2;

// CUmemDecompressAlgorithm
pub const CU_MEM_DECOMPRESS_UNSUPPORTED: CUmemDecompressAlgorithm = 0;
pub const CU_MEM_DECOMPRESS_ALGORITHM_DEFLATE: CUmemDecompressAlgorithm = 1;
pub const CU_MEM_DECOMPRESS_ALGORITHM_SNAPPY: CUmemDecompressAlgorithm = 2;
pub const CU_MEM_DECOMPRESS_ALGORITHM_LZ4: CUmemDecompressAlgorithm = 4;

// CUcliqueType
pub const CU_CLIQUE_TYPE_UNICAST_POINTER: CUcliqueType = 0;
pub const CU_CLIQUE_TYPE_MULTICAST_POINTER: CUcliqueType = 1;
pub const CU_CLIQUE_TYPE_UNICAST_LOGICAL_ENDPOINT: CUcliqueType = 2;
pub const CU_CLIQUE_TYPE_MULTICAST_LOGICAL_ENDPOINT: CUcliqueType = 3;

// CUlogicalEndpointIpcHandleType
pub const CU_LOGICAL_ENDPOINT_IPC_HANDLE_TYPE_NONE: CUlogicalEndpointIpcHandleType = 0;
pub const CU_LOGICAL_ENDPOINT_IPC_HANDLE_TYPE_FABRIC: CUlogicalEndpointIpcHandleType = 1;

// CUlogicalEndpointType
pub const CU_LOGICAL_ENDPOINT_TYPE_INVALID: CUlogicalEndpointType = 0;
pub const CU_LOGICAL_ENDPOINT_TYPE_UNICAST: CUlogicalEndpointType = 1;
pub const CU_LOGICAL_ENDPOINT_TYPE_MULTICAST: CUlogicalEndpointType = 2;

// CUlogicalEndpointFlag
pub const CU_LOGICAL_ENDPOINT_FLAG_NONE: CUlogicalEndpointFlag = 0;
pub const CU_LOGICAL_ENDPOINT_FLAG_COUNTED_OPS: CUlogicalEndpointFlag = 1;

// CUfabricCpyOperandType
pub const CU_FABRIC_COPY_OPERAND_TYPE_POINTER: CUfabricCpyOperandType = 1;
pub const CU_FABRIC_COPY_OPERAND_TYPE_LOGICAL_ENDPOINT: CUfabricCpyOperandType = 2;
pub const CU_FABRIC_COPY_OPERAND_TYPE_MAX: CUfabricCpyOperandType = 2147483647;

// CUgraphRecaptureStatus
pub const CU_GRAPH_RECAPTURE_ELIGIBLE_FOR_UPDATE: CUgraphRecaptureStatus = 0;
pub const CU_GRAPH_RECAPTURE_INELIGIBLE_FOR_UPDATE: CUgraphRecaptureStatus = 1;
pub const CU_GRAPH_RECAPTURE_ERROR: CUgraphRecaptureStatus = 2;

// CUfunctionLoadingState
pub const CU_FUNCTION_LOADING_STATE_UNLOADED: CUfunctionLoadingState = 0;
pub const CU_FUNCTION_LOADING_STATE_LOADED: CUfunctionLoadingState = 1;
pub const CU_FUNCTION_LOADING_STATE_MAX: CUfunctionLoadingState = 2;

// CUcoredumpSettings
pub const CU_COREDUMP_ENABLE_ON_EXCEPTION: CUcoredumpSettings = 1;
pub const CU_COREDUMP_TRIGGER_HOST: CUcoredumpSettings = 2;
pub const CU_COREDUMP_LIGHTWEIGHT: CUcoredumpSettings = 3;
pub const CU_COREDUMP_ENABLE_USER_TRIGGER: CUcoredumpSettings = 4;
pub const CU_COREDUMP_FILE: CUcoredumpSettings = 5;
pub const CU_COREDUMP_PIPE: CUcoredumpSettings = 6;
pub const CU_COREDUMP_GENERATION_FLAGS: CUcoredumpSettings = 7;
pub const CU_COREDUMP_MAX: CUcoredumpSettings = 8;

// CUCoredumpGenerationFlags
pub const CU_COREDUMP_DEFAULT_FLAGS: CUCoredumpGenerationFlags = 0;
pub const CU_COREDUMP_SKIP_NONRELOCATED_ELF_IMAGES: CUCoredumpGenerationFlags = 1;
pub const CU_COREDUMP_SKIP_GLOBAL_MEMORY: CUCoredumpGenerationFlags = 2;
pub const CU_COREDUMP_SKIP_SHARED_MEMORY: CUCoredumpGenerationFlags = 4;
pub const CU_COREDUMP_SKIP_LOCAL_MEMORY: CUCoredumpGenerationFlags = 8;
pub const CU_COREDUMP_SKIP_ABORT: CUCoredumpGenerationFlags = 16;
pub const CU_COREDUMP_SKIP_CONSTBANK_MEMORY: CUCoredumpGenerationFlags = 32;
pub const CU_COREDUMP_GZIP_COMPRESS: CUCoredumpGenerationFlags = 64;
pub const CU_COREDUMP_FAULTED_CONTEXTS_ONLY: CUCoredumpGenerationFlags = 128;
pub const CU_COREDUMP_SKIP_TENSOR_MEMORY: CUCoredumpGenerationFlags = 256;
pub const CU_COREDUMP_NO_ERRBAR_AT_EXIT: CUCoredumpGenerationFlags = 1073741824;
pub const CU_COREDUMP_LOG_ONLY: CUCoredumpGenerationFlags = 2147483648;
pub const CU_COREDUMP_LIGHTWEIGHT_FLAGS: CUCoredumpGenerationFlags = 303;

// CUgreenCtxCreate_flags
pub const CU_GREEN_CTX_NONE: CUgreenCtxCreate_flags = 0;
pub const CU_GREEN_CTX_DEFAULT_STREAM: CUgreenCtxCreate_flags = 1;

// CUdevSmResourceGroup_flags
pub const CU_DEV_SM_RESOURCE_GROUP_DEFAULT: CUdevSmResourceGroup_flags = 0;
pub const CU_DEV_SM_RESOURCE_GROUP_BACKFILL: CUdevSmResourceGroup_flags = 1;
pub const CU_DEV_SM_RESOURCE_GROUP_LOCALITY_DOMAIN_ID: CUdevSmResourceGroup_flags = 2;
pub const CU_DEV_SM_RESOURCE_GROUP_LOCALITY_DOMAIN_SUPPLEMENTAL_SMS: CUdevSmResourceGroup_flags = 4;

// CUdevSmResourceSplitByCount_flags
pub const CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING: CUdevSmResourceSplitByCount_flags = 1;
pub const CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE: CUdevSmResourceSplitByCount_flags =
    2;

// CUdevResourceType
pub const CU_DEV_RESOURCE_TYPE_INVALID: CUdevResourceType = 0;
pub const CU_DEV_RESOURCE_TYPE_SM: CUdevResourceType = 1;
pub const CU_DEV_RESOURCE_TYPE_WORKQUEUE_CONFIG: CUdevResourceType = 1000;
pub const CU_DEV_RESOURCE_TYPE_WORKQUEUE: CUdevResourceType = 10000;

// CUdevWorkqueueConfigScope
pub const CU_WORKQUEUE_SCOPE_DEVICE_CTX: CUdevWorkqueueConfigScope = 0;
pub const CU_WORKQUEUE_SCOPE_GREEN_CTX_BALANCED: CUdevWorkqueueConfigScope = 1;

// CUlogLevel
pub const CU_LOG_LEVEL_ERROR: CUlogLevel = 0;
pub const CU_LOG_LEVEL_WARNING: CUlogLevel = 1;

// Numbers that C defines by the preprocessor.
pub const CU_IPC_HANDLE_SIZE: u32 = 64;
pub const CU_STREAM_LEGACY: u64 = 1;
pub const CU_STREAM_PER_THREAD: u64 = 2;
pub const CU_COMPUTE_ACCELERATED_TARGET_BASE: u32 = 65536;
pub const CU_COMPUTE_FAMILY_TARGET_BASE: u32 = 131072;
pub const CU_GRAPH_COND_ASSIGN_DEFAULT: u32 = 1;
pub const CU_GRAPH_KERNEL_NODE_PORT_DEFAULT: u32 = 0;
pub const CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC: u32 = 1;
pub const CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER: u32 = 2;
pub const CU_KERNEL_NODE_ATTRIBUTE_ACCESS_POLICY_WINDOW: CUlaunchAttributeID =
    CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW;
pub const CU_KERNEL_NODE_ATTRIBUTE_COOPERATIVE: CUlaunchAttributeID =
    CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
pub const CU_KERNEL_NODE_ATTRIBUTE_CLUSTER_DIMENSION: CUlaunchAttributeID =
    CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
pub const CU_KERNEL_NODE_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE: CUlaunchAttributeID =
    CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE;
pub const CU_KERNEL_NODE_ATTRIBUTE_PRIORITY: CUlaunchAttributeID = CU_LAUNCH_ATTRIBUTE_PRIORITY;
pub const CU_KERNEL_NODE_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP: CUlaunchAttributeID =
    CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP;
pub const CU_KERNEL_NODE_ATTRIBUTE_MEM_SYNC_DOMAIN: CUlaunchAttributeID =
    CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN;
pub const CU_KERNEL_NODE_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION: CUlaunchAttributeID =
    CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION;
pub const CU_KERNEL_NODE_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE: CUlaunchAttributeID =
    CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE;
pub const CU_KERNEL_NODE_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT: CUlaunchAttributeID =
    CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
pub const CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW: CUlaunchAttributeID =
    CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW;
pub const CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY: CUlaunchAttributeID =
    CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY;
pub const CU_STREAM_ATTRIBUTE_PRIORITY: CUlaunchAttributeID = CU_LAUNCH_ATTRIBUTE_PRIORITY;
pub const CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP: CUlaunchAttributeID =
    CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP;
pub const CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN: CUlaunchAttributeID =
    CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN;
pub const CU_MEMHOSTALLOC_PORTABLE: u32 = 1;
pub const CU_MEMHOSTALLOC_DEVICEMAP: u32 = 2;
pub const CU_MEMHOSTALLOC_WRITECOMBINED: u32 = 4;
pub const CU_MEMHOSTREGISTER_PORTABLE: u32 = 1;
pub const CU_MEMHOSTREGISTER_DEVICEMAP: u32 = 2;
pub const CU_MEMHOSTREGISTER_IOMEMORY: u32 = 4;
pub const CU_MEMHOSTREGISTER_READ_ONLY: u32 = 8;
pub const CU_ARRAY_SPARSE_PROPERTIES_SINGLE_MIPTAIL: u32 = 1;
pub const CU_TENSOR_MAP_NUM_QWORDS: u32 = 16;
pub const CUDA_EXTERNAL_MEMORY_DEDICATED: u32 = 1;
pub const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_SKIP_NVSCIBUF_MEMSYNC: u32 = 1;
pub const CUDA_EXTERNAL_SEMAPHORE_WAIT_SKIP_NVSCIBUF_MEMSYNC: u32 = 2;
pub const CUDA_NVSCISYNC_ATTR_SIGNAL: u32 = 1;
pub const CUDA_NVSCISYNC_ATTR_WAIT: u32 = 2;
pub const CU_MEM_CREATE_USAGE_TILE_POOL: u32 = 1;
pub const CU_MEM_CREATE_USAGE_HW_DECOMPRESS: u32 = 2;
pub const CU_MEM_CREATE_USAGE_GPU_DIRECT_RDMA_OVER_PCIE: u32 = 4;
pub const CU_MEM_POOL_CREATE_USAGE_HW_DECOMPRESS: u32 = 2;
pub const CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_PRE_LAUNCH_SYNC: u32 = 1;
pub const CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_POST_LAUNCH_SYNC: u32 = 2;
pub const CUDA_ARRAY3D_LAYERED: u32 = 1;
pub const CUDA_ARRAY3D_2DARRAY: u32 = 1;
pub const CUDA_ARRAY3D_SURFACE_LDST: u32 = 2;
pub const CUDA_ARRAY3D_CUBEMAP: u32 = 4;
pub const CUDA_ARRAY3D_TEXTURE_GATHER: u32 = 8;
pub const CUDA_ARRAY3D_DEPTH_TEXTURE: u32 = 16;
pub const CUDA_ARRAY3D_COLOR_ATTACHMENT: u32 = 32;
pub const CUDA_ARRAY3D_SPARSE: u32 = 64;
pub const CUDA_ARRAY3D_DEFERRED_MAPPING: u32 = 128;
pub const CUDA_ARRAY3D_VIDEO_ENCODE_DECODE: u32 = 256;
pub const CU_TRSA_OVERRIDE_FORMAT: u32 = 1;
pub const CU_TRSF_READ_AS_INTEGER: u32 = 1;
pub const CU_TRSF_NORMALIZED_COORDINATES: u32 = 2;
pub const CU_TRSF_SRGB: u32 = 16;
pub const CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION: u32 = 32;
pub const CU_TRSF_SEAMLESS_CUBEMAP: u32 = 64;
pub const CU_LAUNCH_KERNEL_REQUIRED_BLOCK_DIM: u32 = 1;
pub const CU_LAUNCH_PARAM_END_AS_INT: u32 = 0;
pub const CU_LAUNCH_PARAM_END: usize = CU_LAUNCH_PARAM_END_AS_INT as usize;
pub const CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT: u32 = 1;
pub const CU_LAUNCH_PARAM_BUFFER_POINTER: usize = CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT as usize;
pub const CU_LAUNCH_PARAM_BUFFER_SIZE_AS_INT: u32 = 2;
pub const CU_LAUNCH_PARAM_BUFFER_SIZE: usize = CU_LAUNCH_PARAM_BUFFER_SIZE_AS_INT as usize;
pub const CU_PARAM_TR_DEFAULT: i32 = -1;
pub const CU_DEVICE_CPU: CUdevice = -1;
pub const CU_DEVICE_INVALID: CUdevice = -2;
