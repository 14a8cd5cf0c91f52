//! Memory and semaphores of other interfaces: the structures of 12 are the beginnings of the driver's.

use std::ffi::c_void;

use towline_backend::cuda::*;

use crate::runtime::{Runtime, status};
use crate::types::*;
use crate::{call, get};

impl Runtime {
    pub unsafe fn cudaImportExternalMemory(
        &self,
        extMem_out: *mut cudaExternalMemory_t,
        memHandleDesc: *const cudaExternalMemoryHandleDesc,
    ) -> cudaError_t {
        status(|| {
            let driver = self.enter()?;
            let given = get!(memHandleDesc);
            let [handle, name] = given.handle.map(|word| word as usize);
            let desc = CUDA_EXTERNAL_MEMORY_HANDLE_DESC {
                r#type: given.kind,
                handle: CUDA_EXTERNAL_MEMORY_HANDLE_DESC_handle {
                    win32: CUDA_EXTERNAL_MEMORY_HANDLE_DESC_handle_win32 {
                        handle: std::ptr::with_exposed_provenance_mut(handle),
                        name: std::ptr::with_exposed_provenance(name),
                    },
                },
                size: given.size,
                flags: given.flags,
                reserved: [0; 16],
            };
            call!(driver.cuImportExternalMemory(extMem_out, &raw const desc));
            Ok(())
        })
    }

    pub unsafe fn cudaExternalMemoryGetMappedBuffer(
        &self,
        devPtr: *mut *mut c_void,
        extMem: cudaExternalMemory_t,
        bufferDesc: *const cudaExternalMemoryBufferDesc,
    ) -> cudaError_t {
        status(|| {
            let driver = self.enter()?;
            let given = get!(bufferDesc);
            let desc = CUDA_EXTERNAL_MEMORY_BUFFER_DESC {
                offset: given.offset,
                size: given.size,
                flags: given.flags,
                reserved: [0; 16],
            };
            call!(driver.cuExternalMemoryGetMappedBuffer(devPtr.cast(), extMem, &raw const desc));
            Ok(())
        })
    }

    pub unsafe fn cudaExternalMemoryGetMappedMipmappedArray(
        &self,
        mipmap: *mut cudaMipmappedArray_t,
        extMem: cudaExternalMemory_t,
        mipmapDesc: *const cudaExternalMemoryMipmappedArrayDesc,
    ) -> cudaError_t {
        status(|| {
            let driver = self.enter()?;
            let given = get!(mipmapDesc);
            let desc = CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC {
                offset: given.offset,
                arrayDesc: super::array::described(&given.formatDesc, given.extent, given.flags)?,
                numLevels: given.numLevels,
                reserved: [0; 16],
            };
            call!(driver.cuExternalMemoryGetMappedMipmappedArray(mipmap, extMem, &raw const desc));
            Ok(())
        })
    }

    pub unsafe fn cudaImportExternalSemaphore(
        &self,
        extSem_out: *mut cudaExternalSemaphore_t,
        semHandleDesc: *const cudaExternalSemaphoreHandleDesc,
    ) -> cudaError_t {
        status(|| {
            let driver = self.enter()?;
            let given = get!(semHandleDesc);
            let [handle, name] = given.handle.map(|word| word as usize);
            let desc = CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC {
                r#type: given.kind,
                handle: CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC_handle {
                    win32: CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC_handle_win32 {
                        handle: std::ptr::with_exposed_provenance_mut(handle),
                        name: std::ptr::with_exposed_provenance(name),
                    },
                },
                flags: given.flags,
                reserved: [0; 16],
            };
            call!(driver.cuImportExternalSemaphore(extSem_out, &raw const desc));
            Ok(())
        })
    }
}
