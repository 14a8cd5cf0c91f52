//! Pools, as far as sharing them goes: memory of a pool is memory like any other, and goes when it is freed.

use std::ffi::c_int;

pub(super) use files::{number_of, numbered_file};

use super::*;

/// A pool.
#[derive(Clone, Copy)]
pub(super) struct Pool {
    /// The one that it is, here or in the session that created it.
    origin: usize,
    exportable: bool,
    imported: bool,
}

/// What is known of an allocation of a pool.
pub(super) type Pooled = HashMap<u64, usize>;

impl NullCuda {
    pub(super) fn create_pool(&self, exportable: bool) -> usize {
        let handle = self.fresh();
        let pool = Pool {
            origin: handle,
            exportable,
            imported: false,
        };
        self.lock().pools.insert(handle, pool);
        handle
    }

    pub(super) fn export_pool(&self, pool: usize) -> Result<c_int, CUresult> {
        let known = self.lock().pools.get(&pool).copied();
        match known {
            Some(pool) if pool.exportable && !pool.imported => {
                numbered_file(pool.origin as u64, self.fresh())
            }
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    pub(super) fn import_pool(&self, origin: u64) -> Result<usize, CUresult> {
        let handle = self.fresh();
        let mut state = self.lock();
        let known = state.pools.get(&(origin as usize)).copied();
        let pool = known.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let imported = Pool {
            imported: true,
            ..pool
        };
        state.pools.insert(handle, imported);
        Ok(handle)
    }

    pub(super) fn allocate_from(&self, size: usize, pool: usize) -> Result<u64, CUresult> {
        let known = self.lock().pools.get(&pool).copied();
        let known = known.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if known.imported || size == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let memory = Allocation::new(size);
        let address = memory.address();
        let mut state = self.lock();
        state.memory.insert(address, memory);
        state.pooled.insert(address, known.origin);
        Ok(address)
    }

    pub(super) fn tell_pointer(&self, address: u64) -> Result<[u64; 8], CUresult> {
        let state = self.lock();
        let origin = state.pooled.get(&address).copied();
        let origin = origin.filter(|_| state.memory.contains_key(&address));
        let origin = origin.and_then(|origin| state.pools.get(&origin));
        match origin {
            Some(pool) if pool.exportable => Ok([address, pool.origin as u64, 0, 0, 0, 0, 0, 0]),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    pub(super) fn open_pointer(&self, pool: usize, told: [u64; 8]) -> Result<u64, CUresult> {
        let [base, origin, ..] = told;
        let known = self.lock().pools.get(&pool).copied();
        match known {
            Some(pool) if pool.imported && pool.origin as u64 == origin => {
                self.open_at_another_address(base)
            }
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }
}

macro_rules! pool_calls {
    () => {
        unsafe fn cuMemPoolCreate(
            &self,
            pool: *mut CUmemoryPool,
            props: *const CUmemPoolProps,
        ) -> CUresult {
            // SAFETY: the contract of the call.
            let Some(props) = (unsafe { props.as_ref() }) else {
                return CUDA_ERROR_INVALID_VALUE;
            };
            hand_out(pool, Ok(self.create_pool(props.handleTypes != 0)))
        }
        unsafe fn cuMemPoolDestroy(&self, pool: CUmemoryPool) -> CUresult {
            match self.lock().pools.remove(&pool.addr()) {
                Some(_) => CUDA_SUCCESS,
                None => CUDA_ERROR_INVALID_VALUE,
            }
        }
        unsafe fn cuMemAllocFromPoolAsync(
            &self,
            address: *mut CUdeviceptr,
            size: usize,
            pool: CUmemoryPool,
            _stream: CUstream,
        ) -> CUresult {
            tell(address, self.allocate_from(size, pool.addr()))
        }
        unsafe fn cuMemPoolExportToShareableHandle(
            &self,
            file: *mut c_void,
            pool: CUmemoryPool,
            _type: CUmemAllocationHandleType,
            _flags: u64,
        ) -> CUresult {
            tell(file.cast(), self.export_pool(pool.addr()))
        }
        unsafe fn cuMemPoolImportFromShareableHandle(
            &self,
            pool: *mut CUmemoryPool,
            file: *mut c_void,
            _type: CUmemAllocationHandleType,
            _flags: u64,
        ) -> CUresult {
            // SAFETY: the contract of the call: an open descriptor.
            let origin = unsafe { pools::number_of(file) }.ok_or(CUDA_ERROR_INVALID_VALUE);
            hand_out(pool, origin.and_then(|origin| self.import_pool(origin)))
        }
        unsafe fn cuMemPoolExportPointer(
            &self,
            told: *mut CUmemPoolPtrExportData,
            address: CUdeviceptr,
        ) -> CUresult {
            tell(told.cast(), self.tell_pointer(address))
        }
        unsafe fn cuMemPoolImportPointer(
            &self,
            address: *mut CUdeviceptr,
            pool: CUmemoryPool,
            told: *mut CUmemPoolPtrExportData,
        ) -> CUresult {
            // SAFETY: the contract of the call: one of them, wherever it lies.
            let told = unsafe { told.cast::<[u64; 8]>().read_unaligned() };
            tell(address, self.open_pointer(pool.addr(), told))
        }
    };
}
pub(super) use pool_calls;

#[cfg(unix)]
mod files {
    use std::fs::File;
    use std::io::Write;
    use std::os::fd::{FromRawFd, IntoRawFd, RawFd};
    use std::os::unix::fs::FileExt;

    use super::*;

    /// A file that holds a number, and lives as long as somebody has it open.
    pub(in super::super) fn numbered_file(number: u64, fresh: usize) -> Result<RawFd, CUresult> {
        let name = format!("towline-null-{}-{number}-{fresh}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let written = File::options()
            .create_new(true)
            .read(true)
            .write(true)
            .open(&path)
            .and_then(|mut file| file.write_all(&number.to_ne_bytes()).map(|()| file));
        let _ = std::fs::remove_file(&path);
        let file = written.map_err(|_| CUDA_ERROR_OPERATING_SYSTEM)?;
        Ok(file.into_raw_fd())
    }

    /// The number in such a file.
    ///
    /// # Safety
    ///
    /// `file` is an open descriptor, which stays the caller's.
    pub(in super::super) unsafe fn number_of(file: *mut c_void) -> Option<u64> {
        // SAFETY: the caller's contract; it is given back below.
        let file = unsafe { File::from_raw_fd(file.addr() as RawFd) };
        let mut number = [0; 8];
        let read = file.read_exact_at(&mut number, 0);
        let _ = file.into_raw_fd();
        read.ok().map(|()| u64::from_ne_bytes(number))
    }
}

/// Descriptors are for Unix.
#[cfg(not(unix))]
mod files {
    use super::*;

    pub(in super::super) fn numbered_file(_number: u64, _fresh: usize) -> Result<c_int, CUresult> {
        Err(CUDA_ERROR_NOT_SUPPORTED)
    }

    pub(in super::super) unsafe fn number_of(_file: *mut c_void) -> Option<u64> {
        None
    }
}
