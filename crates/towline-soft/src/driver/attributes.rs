//! What a software device says of itself.

use towline_backend::cuda::*;

use super::SoftCuda;

/// Memory that textures read in rows begins, and its rows, at multiples of these.
pub(super) const TEXTURE_ALIGNMENT: u64 = 512;
pub(super) const PITCH_ALIGNMENT: u64 = 32;
/// Most elements of a texture over memory, and of each side of one over rows of memory, and most bytes from row to row.
pub(super) const LINEAR_ELEMENTS: u64 = 1 << 28;
pub(super) const PITCHED_SIDES: [u64; 2] = [131_072, 65_000];
pub(super) const PITCH_BYTES: u64 = 2_097_120;

/// Threads that a block may have.
pub(super) const BLOCK_THREADS: u32 = 1024;
pub(super) const BLOCK_SIDES: [u32; 3] = [1024, 1024, 64];
pub(super) const GRID_SIDES: [u32; 3] = [i32::MAX as u32, 65535, 65535];
/// Shared memory that a block may have without asking for more.
pub(super) const SHARED_BYTES: i32 = 48 << 10;
/// Threads and blocks that a multiprocessor is said to hold.
const THREADS_AT_ONCE: u32 = 1024;
const BLOCKS_AT_ONCE: u32 = 16;

impl SoftCuda {
    /// Shared memory that a block may have at most: what devices of that compute capability have.
    pub(super) fn most_shared(&self) -> i32 {
        match self.options.capability {
            (..=7, _) => 64 << 10,
            (8, 0 | 7) => 163 << 10,
            (8, _) => 99 << 10,
            _ => 227 << 10,
        }
    }

    /// Blocks of so many threads and so much shared memory that a multiprocessor is said to hold.
    pub(super) fn blocks_at_once(&self, threads: u32, shared_bytes: u32) -> u32 {
        let by_threads = THREADS_AT_ONCE / threads.next_multiple_of(32).max(32);
        let shared = self.most_shared() as u32;
        let by_shared = shared.checked_div(shared_bytes).unwrap_or(u32::MAX);
        by_threads.min(by_shared).min(BLOCKS_AT_ONCE)
    }

    pub(super) fn device_name(&self) -> &'static str {
        "Towline software device"
    }

    /// An identity that stays the same on this host.
    pub(super) fn uuid(&self, device: u32) -> [u8; 16] {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let host = ["/etc/machine-id", "/proc/sys/kernel/random/boot_id"]
            .iter()
            .find_map(|path| std::fs::read_to_string(path).ok())
            .unwrap_or_default();
        let half = |part: u8| {
            let mut hasher = DefaultHasher::new();
            (&host, "towline software device", device, part).hash(&mut hasher);
            hasher.finish().to_le_bytes()
        };
        let mut uuid = [0; 16];
        uuid[..8].copy_from_slice(&half(0));
        uuid[8..].copy_from_slice(&half(1));
        // Version 8 (RFC 9562): made as one likes.
        uuid[6] = uuid[6] & 0x0f | 0x80;
        uuid[8] = uuid[8] & 0x3f | 0x80;
        uuid
    }

    pub(super) fn device_attribute(
        &self,
        device: CUdevice,
        which: CUdevice_attribute,
    ) -> Result<i32, CUresult> {
        let number = self.check_device(device)?;
        let (major, minor) = self.options.capability;
        if let Some(most) = arrays::limit(which) {
            return Ok(most);
        }
        Ok(match which {
            CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK => BLOCK_THREADS as i32,
            CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X => BLOCK_SIDES[0] as i32,
            CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y => BLOCK_SIDES[1] as i32,
            CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z => BLOCK_SIDES[2] as i32,
            CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X => GRID_SIDES[0] as i32,
            CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y => GRID_SIDES[1] as i32,
            CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z => GRID_SIDES[2] as i32,
            CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK => SHARED_BYTES,
            CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
            | CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR => self.most_shared(),
            CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY => 64 << 10,
            CU_DEVICE_ATTRIBUTE_WARP_SIZE => 32,
            CU_DEVICE_ATTRIBUTE_MAX_PITCH => i32::MAX,
            CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK
            | CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR => 65536,
            // In kHz: what programs divide by must not be zero.
            CU_DEVICE_ATTRIBUTE_CLOCK_RATE | CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE => 1_000_000,
            CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH => 64,
            CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE => 1 << 20,
            CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT | CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT => {
                TEXTURE_ALIGNMENT as i32
            }
            CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT => PITCH_ALIGNMENT as i32,
            CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH => LINEAR_ELEMENTS as i32,
            CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH => PITCHED_SIDES[0] as i32,
            CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT => PITCHED_SIDES[1] as i32,
            CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_PITCH => PITCH_BYTES as i32,
            CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT => self.host_threads as i32,
            CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR => THREADS_AT_ONCE as i32,
            CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR => BLOCKS_AT_ONCE as i32,
            CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO => 1,
            CU_DEVICE_ATTRIBUTE_GPU_OVERLAP
            | CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS
            | CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT
            | CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING
            | CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED
            | CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED
            | CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED
            | CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH
            | CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED
            | CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
            | CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED
            | CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY
            | CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS
            | CU_DEVICE_ATTRIBUTE_CAN_TEX2D_GATHER
            | CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR
            | CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY => 1,
            CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT => i32::from(self.time_limit().is_some()),
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR => major as i32,
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR => minor as i32,
            CU_DEVICE_ATTRIBUTE_PCI_BUS_ID => number as i32 + 1,
            CU_DEVICE_ATTRIBUTE_NUMA_ID | CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID => -1,
            which if (1..CU_DEVICE_ATTRIBUTE_MAX).contains(&which) => 0,
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        })
    }
}
