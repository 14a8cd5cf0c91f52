//! What the platform and its devices say of themselves.

use super::super::contract::{Bytes, text};
use super::super::*;
use super::{kernels, memory};

const VERSION: cl_version = 3 << 22;
const FULL_NAME: &str = "OpenCL 3.0 Towline null";
const PROFILE: &str = "EMBEDDED_PROFILE";
const VENDOR: &str = "Towline";
const EXTENSIONS: &str = "cl_khr_icd";

/// Most work-items of a work-group.
pub(super) const GROUP_LIMIT: usize = 1024;

/// A `cl_name_version`.
fn named(name: &str, version: cl_version) -> Vec<u8> {
    let mut bytes = version.bytes();
    bytes.extend_from_slice(name.as_bytes());
    bytes.resize(4 + 64, 0);
    bytes
}

/// What `clGetPlatformInfo` says.
pub(super) fn platform(query: cl_platform_info) -> Result<Vec<u8>, cl_int> {
    Ok(match query {
        CL_PLATFORM_PROFILE => text(PROFILE),
        CL_PLATFORM_VERSION => text(FULL_NAME),
        CL_PLATFORM_NAME => text("Towline null"),
        CL_PLATFORM_VENDOR => text(VENDOR),
        CL_PLATFORM_EXTENSIONS => text(EXTENSIONS),
        CL_PLATFORM_EXTENSIONS_WITH_VERSION => named(EXTENSIONS, 1 << 22),
        CL_PLATFORM_ICD_SUFFIX_KHR => text("TOWLINENULL"),
        CL_PLATFORM_NUMERIC_VERSION => VERSION.bytes(),
        CL_PLATFORM_HOST_TIMER_RESOLUTION => 1_u64.bytes(),
        _ => return Err(CL_INVALID_VALUE),
    })
}

/// What `clGetDeviceInfo` says of device number `index`.
pub(super) fn device(
    query: cl_device_info,
    index: usize,
    platform: usize,
    unified: bool,
) -> Result<Vec<u8>, cl_int> {
    Ok(match query {
        CL_DEVICE_TYPE => CL_DEVICE_TYPE_ACCELERATOR.bytes(),
        CL_DEVICE_NAME => text(&format!("Towline null device {index}")),
        CL_DEVICE_VENDOR => text(VENDOR),
        CL_DEVICE_PROFILE => text(PROFILE),
        CL_DEVICE_VERSION => text(FULL_NAME),
        CL_DRIVER_VERSION => text(env!("CARGO_PKG_VERSION")),
        CL_DEVICE_OPENCL_C_VERSION => text("OpenCL C 1.2 Towline null"),
        CL_DEVICE_EXTENSIONS | CL_DEVICE_IL_VERSION => text(""),
        CL_DEVICE_LATEST_CONFORMANCE_VERSION_PASSED => text(""),
        CL_DEVICE_BUILT_IN_KERNELS => text(kernels::NAMES),
        CL_DEVICE_BUILT_IN_KERNELS_WITH_VERSION => kernels::NAMES
            .split(';')
            .flat_map(|name| named(name, 1 << 22))
            .collect(),
        CL_DEVICE_OPENCL_C_ALL_VERSIONS
        | CL_DEVICE_OPENCL_C_FEATURES
        | CL_DEVICE_EXTENSIONS_WITH_VERSION
        | CL_DEVICE_ILS_WITH_VERSION
        | CL_DEVICE_PARTITION_TYPE => Vec::new(),
        CL_DEVICE_NUMERIC_VERSION => VERSION.bytes(),
        CL_DEVICE_PLATFORM => platform.bytes(),
        CL_DEVICE_PARENT_DEVICE => 0_usize.bytes(),
        CL_DEVICE_PARTITION_PROPERTIES => 0_i64.bytes(),
        CL_DEVICE_MAX_WORK_ITEM_SIZES => [GROUP_LIMIT; 3].bytes(),
        CL_DEVICE_MAX_WORK_GROUP_SIZE
        | CL_DEVICE_PREFERRED_WORK_GROUP_SIZE_MULTIPLE
        | CL_DEVICE_MAX_PARAMETER_SIZE => GROUP_LIMIT.bytes(),
        CL_DEVICE_PROFILING_TIMER_RESOLUTION => 1_usize.bytes(),
        CL_DEVICE_PRINTF_BUFFER_SIZE => 1024_usize.bytes(),
        CL_DEVICE_IMAGE2D_MAX_WIDTH
        | CL_DEVICE_IMAGE2D_MAX_HEIGHT
        | CL_DEVICE_IMAGE3D_MAX_WIDTH
        | CL_DEVICE_IMAGE3D_MAX_HEIGHT
        | CL_DEVICE_IMAGE3D_MAX_DEPTH
        | CL_DEVICE_IMAGE_MAX_BUFFER_SIZE
        | CL_DEVICE_IMAGE_MAX_ARRAY_SIZE
        | CL_DEVICE_MAX_GLOBAL_VARIABLE_SIZE
        | CL_DEVICE_GLOBAL_VARIABLE_PREFERRED_TOTAL_SIZE => 0_usize.bytes(),
        CL_DEVICE_GLOBAL_MEM_SIZE => (memory::MEMORY_SIZE as cl_ulong).bytes(),
        CL_DEVICE_MAX_MEM_ALLOC_SIZE => (memory::ALLOC_LIMIT as cl_ulong).bytes(),
        CL_DEVICE_MAX_CONSTANT_BUFFER_SIZE => (64_u64 << 10).bytes(),
        CL_DEVICE_LOCAL_MEM_SIZE => (32_u64 << 10).bytes(),
        CL_DEVICE_GLOBAL_MEM_CACHE_SIZE
        | CL_DEVICE_SVM_CAPABILITIES
        | CL_DEVICE_DOUBLE_FP_CONFIG
        | CL_DEVICE_HALF_FP_CONFIG
        | CL_DEVICE_QUEUE_ON_DEVICE_PROPERTIES
        | CL_DEVICE_PARTITION_AFFINITY_DOMAIN
        | CL_DEVICE_DEVICE_ENQUEUE_CAPABILITIES => 0_u64.bytes(),
        CL_DEVICE_SINGLE_FP_CONFIG => (CL_FP_ROUND_TO_NEAREST | CL_FP_INF_NAN).bytes(),
        CL_DEVICE_EXECUTION_CAPABILITIES => CL_EXEC_KERNEL.bytes(),
        CL_DEVICE_QUEUE_ON_HOST_PROPERTIES => {
            (CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE | CL_QUEUE_PROFILING_ENABLE).bytes()
        }
        CL_DEVICE_ATOMIC_MEMORY_CAPABILITIES => {
            (CL_DEVICE_ATOMIC_ORDER_RELAXED | CL_DEVICE_ATOMIC_SCOPE_WORK_GROUP).bytes()
        }
        CL_DEVICE_ATOMIC_FENCE_CAPABILITIES => (CL_DEVICE_ATOMIC_ORDER_RELAXED
            | CL_DEVICE_ATOMIC_ORDER_ACQ_REL
            | CL_DEVICE_ATOMIC_SCOPE_WORK_GROUP)
            .bytes(),
        CL_DEVICE_GLOBAL_MEM_CACHE_TYPE => CL_NONE.bytes(),
        CL_DEVICE_LOCAL_MEM_TYPE => CL_GLOBAL.bytes(),
        CL_DEVICE_VENDOR_ID
        | CL_DEVICE_GLOBAL_MEM_CACHELINE_SIZE
        | CL_DEVICE_PARTITION_MAX_SUB_DEVICES
        | CL_DEVICE_IMAGE_SUPPORT
        | CL_DEVICE_MAX_READ_IMAGE_ARGS
        | CL_DEVICE_MAX_WRITE_IMAGE_ARGS
        | CL_DEVICE_MAX_READ_WRITE_IMAGE_ARGS
        | CL_DEVICE_MAX_SAMPLERS
        | CL_DEVICE_IMAGE_PITCH_ALIGNMENT
        | CL_DEVICE_IMAGE_BASE_ADDRESS_ALIGNMENT
        | CL_DEVICE_ERROR_CORRECTION_SUPPORT
        | CL_DEVICE_COMPILER_AVAILABLE
        | CL_DEVICE_LINKER_AVAILABLE
        | CL_DEVICE_PREFERRED_VECTOR_WIDTH_DOUBLE
        | CL_DEVICE_PREFERRED_VECTOR_WIDTH_HALF
        | CL_DEVICE_NATIVE_VECTOR_WIDTH_DOUBLE
        | CL_DEVICE_NATIVE_VECTOR_WIDTH_HALF
        | CL_DEVICE_QUEUE_ON_DEVICE_PREFERRED_SIZE
        | CL_DEVICE_QUEUE_ON_DEVICE_MAX_SIZE
        | CL_DEVICE_MAX_ON_DEVICE_QUEUES
        | CL_DEVICE_MAX_ON_DEVICE_EVENTS
        | CL_DEVICE_MAX_PIPE_ARGS
        | CL_DEVICE_PIPE_MAX_ACTIVE_RESERVATIONS
        | CL_DEVICE_PIPE_MAX_PACKET_SIZE
        | CL_DEVICE_PREFERRED_PLATFORM_ATOMIC_ALIGNMENT
        | CL_DEVICE_PREFERRED_GLOBAL_ATOMIC_ALIGNMENT
        | CL_DEVICE_PREFERRED_LOCAL_ATOMIC_ALIGNMENT
        | CL_DEVICE_MAX_NUM_SUB_GROUPS
        | CL_DEVICE_SUB_GROUP_INDEPENDENT_FORWARD_PROGRESS
        | CL_DEVICE_NON_UNIFORM_WORK_GROUP_SUPPORT
        | CL_DEVICE_WORK_GROUP_COLLECTIVE_FUNCTIONS_SUPPORT
        | CL_DEVICE_GENERIC_ADDRESS_SPACE_SUPPORT
        | CL_DEVICE_PIPE_SUPPORT => 0_u32.bytes(),
        CL_DEVICE_MAX_COMPUTE_UNITS
        | CL_DEVICE_MAX_CLOCK_FREQUENCY
        | CL_DEVICE_PREFERRED_VECTOR_WIDTH_CHAR
        | CL_DEVICE_PREFERRED_VECTOR_WIDTH_SHORT
        | CL_DEVICE_PREFERRED_VECTOR_WIDTH_INT
        | CL_DEVICE_PREFERRED_VECTOR_WIDTH_LONG
        | CL_DEVICE_PREFERRED_VECTOR_WIDTH_FLOAT
        | CL_DEVICE_NATIVE_VECTOR_WIDTH_CHAR
        | CL_DEVICE_NATIVE_VECTOR_WIDTH_SHORT
        | CL_DEVICE_NATIVE_VECTOR_WIDTH_INT
        | CL_DEVICE_NATIVE_VECTOR_WIDTH_LONG
        | CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT
        | CL_DEVICE_AVAILABLE
        | CL_DEVICE_PREFERRED_INTEROP_USER_SYNC
        | CL_DEVICE_REFERENCE_COUNT => 1_u32.bytes(),
        CL_DEVICE_HOST_UNIFIED_MEMORY => u32::from(unified).bytes(),
        CL_DEVICE_ENDIAN_LITTLE => u32::from(cfg!(target_endian = "little")).bytes(),
        CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS => 3_u32.bytes(),
        CL_DEVICE_MAX_CONSTANT_ARGS => 4_u32.bytes(),
        CL_DEVICE_ADDRESS_BITS => usize::BITS.bytes(),
        CL_DEVICE_MEM_BASE_ADDR_ALIGN => (memory::BASE_ALIGN as u32 * 8).bytes(),
        CL_DEVICE_MIN_DATA_TYPE_ALIGN_SIZE => (memory::BASE_ALIGN as u32).bytes(),
        _ => return Err(CL_INVALID_VALUE),
    })
}
