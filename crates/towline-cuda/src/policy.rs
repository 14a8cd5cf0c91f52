//! Which attributes of a device hold for a program on another machine. Most reasons hold over `shm` too: they lie in what the worker, a
//! process of its own, does for the client.
//!
//! What the table does not name is masked: an attribute of a later driver may promise what this transport cannot do.

use towline_backend::cuda::*;

/// What becomes of an attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Policy {
    /// The device's own value.
    Pass,
    /// Zero: the feature is not there.
    Mask,
    /// The driver's own: it numbers PCI domains.
    Compute,
}

/// Attributes that say what cannot be had over this transport, with the reason. A test holds each to be masked.
pub(crate) const UNSUPPORTED: &[(CUdevice_attribute, &str)] = &[
    (
        CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED,
        "no bus reaches the client's memory",
    ),
    (
        CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS,
        "the device cannot fault in the client's pages",
    ),
    (
        CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS,
        "managed memory moves between the machines where the device is given work, and where the host looks",
    ),
    (
        CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM,
        "registered memory lies where the application chose, and the device has a twin of it elsewhere",
    ),
    (
        CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES,
        "there is nothing to flush to",
    ),
    (
        CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES,
        "the device cannot see the client's page tables",
    ),
    (
        CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST,
        "no bus reaches the device's memory",
    ),
    (
        CU_DEVICE_ATTRIBUTE_COOPERATIVE_MULTI_DEVICE_LAUNCH,
        "devices of several servers do not start together",
    ),
    (
        CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
        "the client's network adapter does not reach the device",
    ),
    (
        CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED,
        "the client's network adapter does not reach the device",
    ),
    (
        CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS,
        "the client's network adapter does not reach the device",
    ),
    (
        CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING,
        "the client's network adapter does not reach the device",
    ),
    (
        CU_DEVICE_ATTRIBUTE_TIMELINE_SEMAPHORE_INTEROP_SUPPORTED,
        "semaphores do not cross machines",
    ),
    (
        CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED,
        "descriptors do not cross machines",
    ),
    (
        CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED,
        "fabric handles are the server's",
    ),
    (
        CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED,
        "multicast objects are not passed on",
    ),
    (
        CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS,
        "functions of the host are not the device's",
    ),
    (
        CU_DEVICE_ATTRIBUTE_GENERIC_COMPRESSION_SUPPORTED,
        "servers make memory without compression",
    ),
    (
        CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED,
        "memory is mapped at addresses alone, not into arrays",
    ),
    (
        CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED,
        "memory is mapped at addresses alone, not into arrays",
    ),
    (
        CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED,
        "kernels reach registered memory by a twin, which needs pages that can be written",
    ),
    (
        CU_DEVICE_ATTRIBUTE_NUMA_CONFIG,
        "a server's memory is no NUMA node of the client",
    ),
    (
        CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
        "physical memory is the device's alone",
    ),
    (
        CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
        "physical memory is the device's alone",
    ),
    (
        CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED,
        "pools are of the device's memory alone",
    ),
    (
        CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED,
        "pools are of the device's memory alone",
    ),
    (
        CU_DEVICE_ATTRIBUTE_HOST_NUMA_MULTINODE_IPC_SUPPORTED,
        "pools are of the device's memory alone",
    ),
    (
        CU_DEVICE_ATTRIBUTE_HOST_ALLOC_DMA_BUF_SUPPORTED,
        "descriptors do not cross machines",
    ),
    (
        CU_DEVICE_ATTRIBUTE_ONLY_PARTIAL_HOST_NATIVE_ATOMIC_SUPPORTED,
        "no bus reaches the client's memory",
    ),
    (
        CU_DEVICE_ATTRIBUTE_D3D12_CIG_SUPPORTED,
        "graphics are the client's",
    ),
    (
        CU_DEVICE_ATTRIBUTE_VULKAN_CIG_SUPPORTED,
        "graphics are the client's",
    ),
    (
        CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK,
        "the call that decompresses is not passed on",
    ),
    (
        CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_MAXIMUM_LENGTH,
        "the call that decompresses is not passed on",
    ),
];

/// The first attribute that came after CUDA 13.0: it and later ones are masked until somebody has looked into them.
#[cfg(test)]
const LATER: CUdevice_attribute = CU_DEVICE_ATTRIBUTE_ATOMIC_REDUCTION_SUPPORTED;

/// What becomes of an attribute.
pub(crate) fn of(attribute: CUdevice_attribute) -> Policy {
    if UNSUPPORTED.iter().any(|(masked, _)| *masked == attribute) {
        return Policy::Mask;
    }
    match attribute {
        CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID => Policy::Compute,
        // Of the ways that the device knows, a descriptor alone.
        CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES => Policy::Compute,
        // Sizes, limits and capabilities of the device itself, up to what CUDA 12 and 13 have added to them.
        CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK
            ..=CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE
        | CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK
        | CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH
        | CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS
        | CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR
        | CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT
        | CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_MPS_ENABLED
        | CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_GPU_PCI_DEVICE_ID
        | CU_DEVICE_ATTRIBUTE_GPU_PCI_SUBSYSTEM_ID => Policy::Pass,
        // The client's node only where that is the server's host; -1 says that there is none.
        CU_DEVICE_ATTRIBUTE_NUMA_ID | CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID => Policy::Compute,
        _ => Policy::Mask,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_done_over_this_transport_is_not_advertised() {
        let advertised: Vec<_> = UNSUPPORTED
            .iter()
            .filter(|(attribute, _)| of(*attribute) != Policy::Mask)
            .collect();
        assert!(advertised.is_empty(), "{advertised:?}");
    }

    #[test]
    fn every_masked_attribute_has_a_reason() {
        let unexplained: Vec<_> = (1..LATER)
            .filter(|attribute| of(*attribute) == Policy::Mask)
            .filter(|attribute| UNSUPPORTED.iter().all(|(masked, _)| masked != attribute))
            .collect();
        assert!(unexplained.is_empty(), "{unexplained:?}");
    }

    #[test]
    fn an_attribute_that_nobody_knows_is_masked() {
        assert_eq!(of(CU_DEVICE_ATTRIBUTE_MAX), Policy::Mask);
        assert_eq!(of(100_000), Policy::Mask);
    }

    #[test]
    fn what_describes_the_device_passes() {
        assert_eq!(of(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT), Policy::Pass);
        assert_eq!(
            of(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
            Policy::Pass
        );
        assert_eq!(of(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING), Policy::Pass);
    }
}
