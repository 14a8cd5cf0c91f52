//! Memory in stream order.

use towline_backend::cuda as wire;
use towline_backend::cuda::*;

use crate::driver::{Driver, PoolCalls, status, tell, write};
use crate::memory::Range;

impl PoolCalls for Driver {
    unsafe fn cuMemAllocAsync(
        &self,
        dptr: *mut CUdeviceptr,
        bytesize: usize,
        hStream: CUstream,
    ) -> CUresult {
        if dptr.is_null() || bytesize == 0 {
            return CUDA_ERROR_INVALID_VALUE;
        }
        let allocated = self.on(hStream).and_then(|(acting, stream)| {
            let request = wire::PoolAlloc {
                stream,
                pool: wire::MemoryPoolHandle(0),
                size: bytesize as u64,
            };
            let body = acting.call_for("cuMemAllocAsync", &request)?;
            let reply = wire::PoolAllocReply::decode(&body).map_err(|_| acting.malformed())?;
            let address = reply.address.ok_or(CUDA_ERROR_UNKNOWN)?;
            let range = Range::device(&acting.context, bytesize, self.new_id());
            write(&self.memory).insert(address, range);
            acting.touch(stream);
            Ok(address)
        });
        // SAFETY: the caller's contract.
        unsafe { tell(dptr, allocated) }
    }

    unsafe fn cuMemFreeAsync(&self, dptr: CUdeviceptr, hStream: CUstream) -> CUresult {
        status(self.on(hStream).and_then(|(acting, stream)| {
            if !write(&self.memory).remove_device(dptr) {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            acting.post(&wire::PoolFree {
                stream,
                address: dptr,
            })?;
            acting.touch(stream);
            Ok(())
        }))
    }
}
