//! Memory of `ncclMemAlloc`: physical memory of its own that other ranks' processes may map, as windows of communicators need.

use towline_backend::cuda::*;

use crate::driver::{Driver, lock};
use crate::mirror::location;
use crate::virtual_memory::GRANULARITY;

impl Driver {
    /// Allocates on the device of the calling thread's context.
    pub(super) fn allocate_for_collectives(&self, size: usize) -> Result<u64, CUresult> {
        let context = self.collective_context()?;
        let size = size.checked_next_multiple_of(GRANULARITY);
        let size = size.ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        let rdma = CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED;
        let rdma = u8::from(self.device(context.device)?.attribute(rdma) != 0);
        let memory = self.create_on(context.device, size, true, rdma)?;
        let mapped = self.map_for_collectives(context.device, memory, size);
        // Mapped memory stays until it is unmapped.
        let released = self.let_go(memory);
        let address = mapped?;
        released?;
        lock(&self.communicators.memory).insert(address, size);
        Ok(address)
    }

    fn map_for_collectives(
        &self,
        device: CUdevice,
        memory: u64,
        size: usize,
    ) -> Result<u64, CUresult> {
        let address = self.reserve(size, 0, 0)?;
        let mapped = self.map(address, size, 0, memory).and_then(|()| {
            let open = |device| {
                let access = CUmemAccessDesc {
                    location: location(device),
                    flags: CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
                };
                self.set_access(address, size, &[access])
            };
            let devices = self.ready()?.devices();
            for (other, _) in (0..).zip(devices).filter(|(other, _)| *other != device) {
                // Not every device can reach every other.
                let _ = open(other);
            }
            open(device).inspect_err(|_| _ = self.unmap(address, size))
        });
        mapped
            .map(|()| address)
            .inspect_err(|_| _ = self.unreserve(address, size))
    }

    /// Frees what [`Self::allocate_for_collectives`] gave; anything else as `cuMemFree` does.
    pub(super) fn free_for_collectives(&self, address: u64) -> Result<(), CUresult> {
        let Some(size) = lock(&self.communicators.memory).remove(&address) else {
            return self.free(address);
        };
        self.unmap(address, size)?;
        self.unreserve(address, size)
    }
}
