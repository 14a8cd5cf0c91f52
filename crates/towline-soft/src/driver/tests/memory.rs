//! Pools and memory in stream order; addresses and physical memory apart.

use super::*;
use crate::memory::mapped::GRANULARITY;

const CHUNK: usize = GRANULARITY as usize;

fn allocate_async(cuda: &SoftCuda, bytes: usize, stream: CUstream) -> Result<u64, CUresult> {
    let mut address = 0;
    // SAFETY: one place for the address.
    match unsafe { cuda.cuMemAllocAsync(&raw mut address, bytes, stream) } {
        CUDA_SUCCESS => Ok(address),
        status => Err(status),
    }
}

fn free_async(cuda: &SoftCuda, address: u64, stream: CUstream) -> CUresult {
    // SAFETY: the driver judges the address.
    unsafe { cuda.cuMemFreeAsync(address, stream) }
}

fn pool_word(cuda: &SoftCuda, pool: CUmemoryPool, which: CUmemPool_attribute) -> u64 {
    cuda.pool_attribute(pool.addr(), which).expect("a value")
}

fn default_pool(cuda: &SoftCuda) -> CUmemoryPool {
    let mut pool = null_mut();
    // SAFETY: one place for the pool.
    check(unsafe { cuda.cuDeviceGetDefaultMemPool(&raw mut pool, 0) });
    pool
}

#[test]
fn a_stream_gets_what_it_gave_back_though_it_has_not_come_there() {
    let cuda = devices(SoftOptions::default());
    let program = module(&cuda, PROGRAM).expect("a module");
    let wait = function(&cuda, program, c"wait");
    let (busy, other) = (stream(&cuda), stream(&cuda));
    let flag = allocate(&cuda, 4);
    let first = allocate_async(&cuda, 40 << 20, busy).expect("room");
    check(launch(&cuda, wait, (1, 1), busy, &mut [flag]));
    check(free_async(&cuda, first, busy));
    assert_eq!(free_async(&cuda, first, busy), CUDA_ERROR_INVALID_VALUE);
    // There is no room beside it, and its stream stands still.
    let second = allocate_async(&cuda, 30 << 20, busy).expect("what was given back");
    assert_eq!(second, first);
    let more = allocate_async(&cuda, 40 << 20, other);
    assert_eq!(more, Err(CUDA_ERROR_OUT_OF_MEMORY));
    // SAFETY: the driver checks addresses.
    check(unsafe { cuda.cuMemsetD32Async(second, 7, 8, busy) });
    check(free_async(&cuda, second, busy));
    // Another stream stands behind the one that gives back.
    let third = allocate_async(&cuda, 30 << 20, other).expect("what was given back");
    assert_eq!(third, first);
    // SAFETY: as above.
    check(unsafe { cuda.cuMemsetD32Async(third, 9, 8, other) });
    // SAFETY: the stream is live.
    let now = unsafe { cuda.cuStreamQuery(other) };
    assert_eq!(now, CUDA_ERROR_NOT_READY);
    let helper = stream(&cuda);
    upload(&cuda, flag, &[1], helper);
    check(synchronize(&cuda, busy));
    assert_eq!(download(&cuda, third, 8, other), [9; 8]);
    let behind = cuda.check_range(third, 31 << 20);
    assert_eq!(behind, Err(CUDA_ERROR_INVALID_VALUE));
    check(free_async(&cuda, third, other));
    check(synchronize(&cuda, other));
    assert_eq!(cuda.free_bytes(0), (64 << 20) - 1024, "flag and module");
}

#[test]
fn variables_of_modules_have_no_more_memory_than_the_device() {
    let cuda = devices(SoftOptions::default());
    let text = c".version 7.0
.target sm_75
.address_size 64
.visible .global .align 4 .b8 room[41943040];
";
    module(&cuda, text).expect("room for one");
    assert_eq!(module(&cuda, text), Err(CUDA_ERROR_OUT_OF_MEMORY));
    assert_eq!(cuda.free_bytes(0), 24 << 20);
}

#[test]
fn pools_count_what_they_gave_out() {
    let cuda = devices(SoftOptions::default());
    let default = default_pool(&cuda);
    let stream = stream(&cuda);
    let used = CU_MEMPOOL_ATTR_USED_MEM_CURRENT;
    let high = CU_MEMPOOL_ATTR_USED_MEM_HIGH;
    let one = allocate_async(&cuda, 1000, stream).expect("room");
    let two = allocate_async(&cuda, 3000, stream).expect("room");
    check(free_async(&cuda, one, stream));
    check(synchronize(&cuda, stream));
    let marks = [used, high].map(|which| pool_word(&cuda, default, which));
    assert_eq!(marks, [3000, 4000]);
    assert_eq!(cuda.set_pool_attribute(default.addr(), high, 0), Ok(()));
    assert_eq!(pool_word(&cuda, default, high), 3000);
    let refused = cuda.set_pool_attribute(default.addr(), high, 1);
    assert_eq!(refused, Err(CUDA_ERROR_INVALID_VALUE));
    // What came from a pool can be given back at once too.
    // SAFETY: the address is the program's.
    check(unsafe { cuda.cuMemFree_v2(two) });
    assert_eq!(pool_word(&cuda, default, used), 0);

    let props = CUmemPoolProps {
        allocType: CU_MEM_ALLOCATION_TYPE_PINNED,
        location: CUmemLocation {
            r#type: CU_MEM_LOCATION_TYPE_DEVICE,
            either: CUmemLocation_either { id: 0 },
        },
        maxSize: 4096,
        // SAFETY: numbers and pointers may all be zero.
        ..unsafe { std::mem::zeroed() }
    };
    let mut pool = null_mut();
    // SAFETY: one place for the pool.
    check(unsafe { cuda.cuMemPoolCreate(&raw mut pool, &raw const props) });
    // SAFETY: the pool is live.
    check(unsafe { cuda.cuDeviceSetMemPool(0, pool) });
    let small = allocate_async(&cuda, 4000, stream).expect("room");
    let large = allocate_async(&cuda, 100, stream);
    assert_eq!(
        large,
        Err(CUDA_ERROR_OUT_OF_MEMORY),
        "more than the pool may give"
    );
    assert_eq!(pool_word(&cuda, pool, used), 4000);
    // SAFETY: no pointers that are followed.
    check(unsafe { cuda.cuMemPoolDestroy(pool) });
    // SAFETY: as above.
    let again = unsafe { cuda.cuMemPoolDestroy(default) };
    assert_eq!(again, CUDA_ERROR_INVALID_VALUE);
    check(free_async(&cuda, small, stream));
    allocate_async(&cuda, 8192, stream).expect("the default pool is the device's again");
}

fn device_prop() -> CUmemAllocationProp {
    CUmemAllocationProp {
        r#type: CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        location: CUmemLocation {
            r#type: CU_MEM_LOCATION_TYPE_DEVICE,
            either: CUmemLocation_either { id: 0 },
        },
        // SAFETY: numbers and pointers may all be zero.
        ..unsafe { std::mem::zeroed() }
    }
}

fn physical(cuda: &SoftCuda, bytes: usize) -> Result<u64, CUresult> {
    cuda.create_physical(bytes as u64, &device_prop(), 0)
}

fn grant(cuda: &SoftCuda, address: u64, bytes: usize, flags: CUmemAccess_flags) -> CUresult {
    let access = CUmemAccessDesc {
        location: device_prop().location,
        flags,
    };
    // SAFETY: one description.
    unsafe { cuda.cuMemSetAccess(address, bytes, &raw const access, 1) }
}

fn map(cuda: &SoftCuda, address: u64, bytes: usize, memory: u64) -> CUresult {
    // SAFETY: the driver judges all of it.
    unsafe { cuda.cuMemMap(address, bytes, 0, memory, 0) }
}

const BOTH: CUmemAccess_flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;

#[test]
fn memory_is_used_where_it_is_mapped_and_granted_and_nowhere_else() {
    let cuda = devices(SoftOptions::default());
    let hint = 0x4200_0000_0000;
    let area = cuda.reserve(4 << 21, 0, hint, 0).expect("addresses");
    assert_eq!(area, hint);
    let elsewhere = cuda.reserve(2 << 21, 0, hint, 0).expect("addresses");
    assert_ne!(elsewhere, hint);
    let (one, two) = (physical(&cuda, CHUNK), physical(&cuda, 2 * CHUNK));
    let (one, two) = (one.expect("room"), two.expect("room"));
    assert_eq!(cuda.free_bytes(0), (64 << 20) - (3 << 21));
    check(map(&cuda, area, CHUNK, one));
    check(map(&cuda, area + (1 << 21), 2 * CHUNK, two));
    let taken = map(&cuda, area + (2 << 21), CHUNK, one);
    assert_eq!(taken, CUDA_ERROR_INVALID_VALUE);
    let outside = map(&cuda, area + (4 << 21), CHUNK, one);
    assert_eq!(outside, CUDA_ERROR_INVALID_VALUE);
    // SAFETY: the driver checks addresses.
    let early = unsafe { cuda.cuMemsetD8Async(area, 1, 16, null_mut()) };
    assert_eq!(early, CUDA_ERROR_INVALID_VALUE);
    check(grant(&cuda, area, 3 * CHUNK, BOTH));
    // One allocation to copies and kernels.
    // SAFETY: as above.
    check(unsafe { cuda.cuMemsetD32Async(area, 5, 3 * CHUNK / 4, null_mut()) });
    let program = module(&cuda, PROGRAM).expect("a module");
    let scale = function(&cuda, program, c"scale");
    let border = area + (1 << 21) - 64;
    check(launch(&cuda, scale, (1, 32), null_mut(), &mut [border, 32]));
    let expected: Vec<u32> = [[15; 16], [15; 16]].concat();
    assert_eq!(download(&cuda, border, 32, null_mut()), expected);
    // The same memory at other addresses.
    check(map(&cuda, elsewhere, CHUNK, one));
    check(grant(&cuda, elsewhere, CHUNK, BOTH));
    let alias = elsewhere + (1 << 21) - 64;
    assert_eq!(download(&cuda, alias, 16, null_mut()), [15; 16]);
    // Half of a mapping cannot go; what is released stays while it is mapped.
    assert_eq!(
        cuda.unmap(area + (1 << 21), 1 << 21),
        Err(CUDA_ERROR_INVALID_VALUE)
    );
    assert_eq!(
        cuda.free_addresses(area, 4 << 21),
        Err(CUDA_ERROR_INVALID_VALUE)
    );
    assert_eq!(cuda.release_physical(two), Ok(()));
    assert_eq!(cuda.unmap(area, 3 << 21), Ok(()));
    assert_eq!(cuda.free_bytes(0) >> 20, 61, "the larger one is gone");
    // SAFETY: as above.
    let late = unsafe { cuda.cuMemsetD8Async(area, 1, 16, null_mut()) };
    assert_eq!(late, CUDA_ERROR_INVALID_VALUE);
    assert_eq!(download(&cuda, alias, 16, null_mut()), [15; 16]);
    check(launch(&cuda, scale, (1, 32), null_mut(), &mut [area, 32]));
    assert_eq!(synchronize(&cuda, null_mut()), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_eq!(cuda.free_addresses(area, 4 << 21), Ok(()));
}

#[test]
fn memory_goes_to_another_process_by_a_descriptor() {
    let (cuda, other) = (
        devices(SoftOptions::default()),
        devices(SoftOptions::default()),
    );
    let memory = physical(&cuda, CHUNK).expect("room");
    let kind = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    let file = cuda.export_physical(memory, kind, 0).expect("a descriptor");
    use std::os::fd::AsFd;
    let imported = other.import_physical(file.as_fd(), kind).expect("memory");
    let mut context = null_mut();
    for (cuda, memory, value) in [(&cuda, memory, Some(77)), (&other, imported, None)] {
        // SAFETY: one place for the context.
        check(unsafe { cuda.cuDevicePrimaryCtxRetain(&raw mut context, 0) });
        // SAFETY: the context is live.
        check(unsafe { cuda.cuCtxSetCurrent(context) });
        let area = cuda.reserve(1 << 21, 0, 0, 0).expect("addresses");
        check(map(cuda, area, CHUNK, memory));
        check(grant(cuda, area, CHUNK, BOTH));
        if let Some(value) = value {
            // SAFETY: the driver checks addresses.
            check(unsafe { cuda.cuMemsetD32Async(area, value, 4, null_mut()) });
        }
        assert_eq!(download(cuda, area, 4, null_mut()), [77; 4]);
    }
    // What the one gives up, the other keeps; and its size is not the other's to change.
    assert_eq!(cuda.release_physical(memory), Ok(()));
    assert!(rustix::fs::ftruncate(&file, 0).is_err());
    // A file that can shrink under whoever reads it is no memory.
    let flags = rustix::fs::MemfdFlags::CLOEXEC | rustix::fs::MemfdFlags::ALLOW_SEALING;
    let loose = rustix::fs::memfd_create("loose", flags).expect("a file");
    rustix::fs::ftruncate(&loose, GRANULARITY).expect("a size");
    let refused = other.import_physical(loose.as_fd(), kind);
    assert_eq!(refused, Err(CUDA_ERROR_INVALID_VALUE));
}

#[test]
fn physical_memory_is_what_the_device_has_left() {
    let cuda = devices(SoftOptions::default());
    let half = allocate(&cuda, 32 << 20);
    assert_eq!(
        physical(&cuda, 33 << 20),
        Err(CUDA_ERROR_INVALID_VALUE),
        "not whole"
    );
    assert_eq!(physical(&cuda, 34 << 20), Err(CUDA_ERROR_OUT_OF_MEMORY));
    let memory = physical(&cuda, 32 << 20).expect("room");
    let mut address = 0;
    // SAFETY: one place for the address.
    let refused = unsafe { cuda.cuMemAlloc_v2(&raw mut address, 1) };
    assert_eq!(refused, CUDA_ERROR_OUT_OF_MEMORY);
    assert_eq!(cuda.release_physical(memory), Ok(()));
    assert_eq!(cuda.release_physical(memory), Err(CUDA_ERROR_INVALID_VALUE));
    // SAFETY: the address is the program's.
    check(unsafe { cuda.cuMemFree_v2(half) });
    assert_eq!(cuda.free_bytes(0), 64 << 20);
}

#[test]
fn addresses_that_were_given_back_while_a_kernel_ran_go_when_it_is_done() {
    let cuda = devices(SoftOptions::default());
    let program = module(&cuda, PROGRAM).expect("a module");
    let wait = function(&cuda, program, c"wait");
    let (busy, other) = (stream(&cuda), stream(&cuda));
    let flag = allocate(&cuda, 4);
    check(launch(&cuda, wait, (1, 1), busy, &mut [flag]));
    while cuda.streams.is_quiet() {
        std::thread::yield_now();
    }
    let hint = 0x4280_0000_0000;
    assert_eq!(cuda.reserve(1 << 21, 0, hint, 0), Ok(hint));
    assert_eq!(cuda.free_addresses(hint, 1 << 21), Ok(()));
    // Still mapped, so that nobody else gets it.
    let next = cuda.reserve(1 << 21, 0, hint, 0).expect("addresses");
    assert_ne!(next, hint);
    upload(&cuda, flag, &[1], other);
    check(synchronize(&cuda, busy));
    check(synchronize(&cuda, other));
    while !cuda.streams.is_quiet() {
        std::thread::yield_now();
    }
    assert_eq!(cuda.reserve(1 << 21, 0, hint, 0), Ok(hint));
}
