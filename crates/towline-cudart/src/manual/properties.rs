//! `cudaGetDeviceProperties`, whose structure is another in CUDA 11, 12 and 13.
//!
//! Behind what is no attribute (name, UUID, LUID, memory) every field is one attribute of the device, as a 32-bit number or a size. So a
//! structure is a list of attributes, written one after the other at C's alignment.

use std::ffi::c_void;

use towline_backend::cuda::*;

use crate::call;
use crate::runtime::{Outcome, Runtime};
use crate::types::*;

use self::Kind::{Number, Size};
use self::Versions::{Both, Only12, Only13};

/// What a field is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// 32 bits.
    Number,
    /// 64 bits, on a boundary of 64 bits.
    Size,
}

/// Which structures have a field.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Versions {
    Both,
    Only12,
    Only13,
}

/// The attributes, in the order of their fields.
#[rustfmt::skip]
const FIELDS: &[(Kind, Versions, CUdevice_attribute)] = &[
    (Size, Both, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK),
    (Number, Both, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK),
    (Number, Both, CU_DEVICE_ATTRIBUTE_WARP_SIZE),
    (Size, Both, CU_DEVICE_ATTRIBUTE_MAX_PITCH),
    (Number, Both, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
    (Number, Both, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X),
    (Number, Both, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y),
    (Number, Both, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z),
    (Number, Both, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X),
    (Number, Both, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y),
    (Number, Both, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z),
    (Number, Only12, CU_DEVICE_ATTRIBUTE_CLOCK_RATE),
    (Size, Both, CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY),
    (Number, Both, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
    (Number, Both, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
    (Size, Both, CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT),
    (Size, Both, CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT),
    (Number, Only12, CU_DEVICE_ATTRIBUTE_GPU_OVERLAP),
    (Number, Both, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
    (Number, Only12, CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT),
    (Number, Both, CU_DEVICE_ATTRIBUTE_INTEGRATED),
    (Number, Both, CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY),
    (Number, Only12, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE),
    (Number, Both, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH),
    (Number, Both, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH),
    (Number, Only12, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH),
    (Number, Both, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH),
    (Number, Both, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT),
    (Number, Both, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH),
    (Number, Both, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT),
    (Number, Both, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH),
    (Number, Both, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT),
    (Number, Both, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_PITCH),
    (Number, Both, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_WIDTH),
    (Number, Both, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_HEIGHT),
    (Number, Both, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH),
    (Number, Both, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT),
    (Number, Both, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH),
    (Number, Both, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE),
    (Number, Both, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE),
    (Number, Both, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE),
    (Number, Both, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_WIDTH),
    (Number, Both, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_WIDTH),
    (Number, Both, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_LAYERS),
    (Number, Both, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_WIDTH),
    (Number, Both, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_HEIGHT),
    (Number, Both, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_LAYERS),
    (Number, Both, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH),
    (Number, Both, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS),
    (Number, Both, CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_WIDTH),
    (Number, Both, CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_WIDTH),
    (Number, Both, CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_HEIGHT),
    (Number, Both, CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_WIDTH),
    (Number, Both, CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_HEIGHT),
    (Number, Both, CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_DEPTH),
    (Number, Both, CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_WIDTH),
    (Number, Both, CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_LAYERS),
    (Number, Both, CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_WIDTH),
    (Number, Both, CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_HEIGHT),
    (Number, Both, CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_LAYERS),
    (Number, Both, CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_WIDTH),
    (Number, Both, CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH),
    (Number, Both, CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS),
    (Size, Both, CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT),
    (Number, Both, CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS),
    (Number, Both, CU_DEVICE_ATTRIBUTE_ECC_ENABLED),
    (Number, Both, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID),
    (Number, Both, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID),
    (Number, Both, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID),
    (Number, Both, CU_DEVICE_ATTRIBUTE_TCC_DRIVER),
    (Number, Both, CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT),
    (Number, Both, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING),
    (Number, Only12, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE),
    (Number, Both, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH),
    (Number, Both, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE),
    (Number, Both, CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE),
    (Number, Both, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR),
    (Number, Both, CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED),
    (Number, Both, CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED),
    (Number, Both, CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED),
    (Size, Both, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR),
    (Number, Both, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR),
    (Number, Both, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY),
    (Number, Both, CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD),
    (Number, Both, CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD_GROUP_ID),
    (Number, Both, CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED),
    (Number, Only12, CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO),
    (Number, Both, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS),
    (Number, Both, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS),
    (Number, Both, CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED),
    (Number, Both, CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM),
    (Number, Both, CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH),
    (Number, Only12, CU_DEVICE_ATTRIBUTE_COOPERATIVE_MULTI_DEVICE_LAUNCH),
    (Size, Both, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
    (Number, Both, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES),
    (Number, Both, CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST),
    (Number, Both, CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR),
    (Number, Both, CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE),
    (Size, Both, CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK),
    (Number, Both, CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED),
    (Number, Both, CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED),
    (Number, Both, CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED),
    (Number, Both, CU_DEVICE_ATTRIBUTE_TIMELINE_SEMAPHORE_INTEROP_SUPPORTED),
    (Number, Both, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED),
    (Number, Both, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED),
    (Number, Both, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS),
    (Number, Both, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING),
    (Number, Both, CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES),
    (Number, Both, CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED),
    (Number, Both, CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED),
    (Number, Both, CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH),
    (Number, Both, CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS),
    (Number, Only13, CU_DEVICE_ATTRIBUTE_NUMA_CONFIG),
    (Number, Only13, CU_DEVICE_ATTRIBUTE_NUMA_ID),
    (Number, Only13, CU_DEVICE_ATTRIBUTE_MPS_ENABLED),
    (Number, Only13, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID),
    (Number, Only13, CU_DEVICE_ATTRIBUTE_GPU_PCI_DEVICE_ID),
    (Number, Only13, CU_DEVICE_ATTRIBUTE_GPU_PCI_SUBSYSTEM_ID),
    (Number, Only13, CU_DEVICE_ATTRIBUTE_HOST_NUMA_MULTINODE_IPC_SUPPORTED),
];

/// Bytes of each structure. What is behind the last field is reserved, and cleared.
const LEN_12: usize = 1032;
const LEN_13: usize = 1008;
/// The structure of CUDA 11, which ends behind this field.
const LEN_11: usize = 728;

const NAME_LEN: usize = 256;
const UUID_LEN: usize = 16;
const LUID_LEN: usize = 8;

/// A structure while it is written.
struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn align(&mut self, to: usize) {
        let len = self.bytes.len().next_multiple_of(to);
        self.bytes.resize(len, 0);
    }

    fn number(&mut self, value: i32) {
        self.align(4);
        self.put(&value.to_ne_bytes());
    }

    fn size(&mut self, value: u64) {
        self.align(8);
        self.put(&value.to_ne_bytes());
    }
}

/// The attributes of a version's structure.
fn fields(major: u32) -> impl Iterator<Item = (Kind, CUdevice_attribute)> {
    let has = move |versions: Versions| match versions {
        Both => true,
        Only12 => major == 12,
        Only13 => major != 12,
    };
    let fields = FIELDS.iter().filter(move |(_, versions, _)| has(*versions));
    fields.map(|(kind, _, attribute)| (*kind, *attribute))
}

/// What stands before the attributes.
struct Head {
    name: [u8; NAME_LEN],
    uuid: [u8; UUID_LEN],
    luid: [u8; LUID_LEN],
    luid_mask: i32,
    memory: u64,
}

/// A version's structure, of an attribute's value.
fn structure(major: u32, head: &Head, mut value: impl FnMut(CUdevice_attribute) -> i32) -> Vec<u8> {
    let mut writer = Writer { bytes: Vec::new() };
    writer.put(&head.name);
    writer.put(&head.uuid);
    writer.put(&head.luid);
    writer.number(head.luid_mask);
    writer.size(head.memory);
    for (kind, attribute) in fields(major) {
        let value = value(attribute);
        match kind {
            Number => writer.number(value),
            Size => writer.size(u64::from(value.max(0).unsigned_abs())),
        }
    }
    let len = if major == 12 { LEN_12 } else { LEN_13 };
    writer.bytes.resize(len, 0);
    writer.bytes
}

/// Where the attributes of compute capability stand in a structure, and what it says there.
pub(super) fn capability(major: u32, prop: *const c_void) -> (i32, i32) {
    let head = Head {
        name: [0; NAME_LEN],
        uuid: [0; UUID_LEN],
        luid: [0; LUID_LEN],
        luid_mask: 0,
        memory: 0,
    };
    let read = |wanted| {
        let bytes = structure(major, &head, |attribute| i32::from(attribute == wanted));
        let at = bytes.iter().position(|byte| *byte != 0).unwrap_or(0);
        // The lowest byte comes last on a machine with the other order; numbers lie on boundaries of four bytes on both.
        let place = prop.wrapping_byte_add(at / 4 * 4).cast::<i32>();
        // SAFETY: `at` lies in the structure, which the application's contract says is readable.
        unsafe { place.read_unaligned() }
    };
    (
        read(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
        read(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
    )
}

impl Runtime {
    fn properties(&self, ordinal: i32) -> Outcome<Vec<u8>> {
        let device = self.device(ordinal)?;
        let driver = self.start()?;
        let mut name = [0; NAME_LEN];
        let len = i32::try_from(NAME_LEN).map_err(|_| cudaErrorUnknown)?;
        call!(driver.cuDeviceGetName(name.as_mut_ptr().cast(), len, device));
        let mut uuid = CUuuid {
            bytes: [0; UUID_LEN],
        };
        call!(driver.cuDeviceGetUuid_v2(&raw mut uuid, device));
        let (mut luid, mut luid_mask) = ([0; LUID_LEN], 0);
        // Only Windows has such numbers.
        // SAFETY: places to write to.
        let told =
            unsafe { driver.cuDeviceGetLuid(luid.as_mut_ptr().cast(), &raw mut luid_mask, device) };
        if told != CUDA_SUCCESS {
            (luid, luid_mask) = ([0; LUID_LEN], 0);
        }
        let mut memory = 0;
        call!(driver.cuDeviceTotalMem_v2(&raw mut memory, device));
        let head = Head {
            name,
            uuid: uuid.bytes.map(|byte| byte as u8),
            luid,
            luid_mask: luid_mask.cast_signed(),
            memory: memory as u64,
        };
        // What an older driver does not know is 0.
        let value = |attribute| self.attribute(ordinal, attribute).unwrap_or(0);
        Ok(structure(self.major(), &head, value))
    }

    /// Writes a device's properties in the structure of this library's version.
    pub(crate) fn tell_properties(&self, prop: *mut c_void, ordinal: i32) -> Outcome {
        let len = if self.major() == 12 { LEN_12 } else { LEN_13 };
        self.tell_beginning(prop, ordinal, len)
    }

    /// As [`Runtime::tell_properties`], in the structure of CUDA 11.
    pub(crate) fn tell_properties_11(&self, prop: *mut c_void, ordinal: i32) -> Outcome {
        self.tell_beginning(prop, ordinal, LEN_11)
    }

    fn tell_beginning(&self, prop: *mut c_void, ordinal: i32, len: usize) -> Outcome {
        if prop.is_null() {
            return Err(cudaErrorInvalidValue);
        }
        let found = self.properties(ordinal)?;
        let found = found.get(..len).ok_or(cudaErrorUnknown)?;
        // SAFETY: the application's contract: its structure is as long as its version's.
        unsafe { std::ptr::copy_nonoverlapping(found.as_ptr(), prop.cast(), len) };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> Head {
        Head {
            name: [1; NAME_LEN],
            uuid: [2; UUID_LEN],
            luid: [3; LUID_LEN],
            luid_mask: 4,
            memory: 5,
        }
    }

    fn word(bytes: &[u8], at: usize) -> i32 {
        i32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
    }

    /// Places as a C compiler lays the documented structures out.
    #[test]
    fn fields_stand_where_c_has_them() {
        let told = |major| structure(major, &head(), |attribute| attribute.cast_signed());
        let (twelve, thirteen) = (told(12), told(13));
        assert_eq!((twelve.len(), thirteen.len()), (LEN_12, LEN_13));
        for (attribute, at_12, at_13) in [
            (CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 296, 296),
            (CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 304, 304),
            (CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 360, 360),
            (CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 388, 384),
            (CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_WIDTH, 512, 496),
            (CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT, 568, 552),
            (
                CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR,
                640,
                624,
            ),
            (CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 688, 668),
            (
                CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK,
                720,
                696,
            ),
            (CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 728, 704),
            (CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS, 776, 752),
        ] {
            assert_eq!(
                word(&twelve, at_12),
                attribute.cast_signed(),
                "12 at {at_12}"
            );
            assert_eq!(
                word(&thirteen, at_13),
                attribute.cast_signed(),
                "13 at {at_13}"
            );
        }
        // What is reserved is clear.
        assert!(
            twelve[780..]
                .iter()
                .chain(&thirteen[784..])
                .all(|byte| *byte == 0)
        );
        assert_eq!((twelve[288], thirteen[288], twelve[280]), (5, 5, 4));
    }

    #[test]
    fn a_wished_capability_is_read_from_its_place() {
        for major in [12, 13] {
            let wish = structure(major, &head(), |attribute| match attribute {
                CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR => 8,
                CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR => 6,
                _ => 0,
            });
            assert_eq!(capability(major, wish.as_ptr().cast()), (8, 6));
        }
    }
}
