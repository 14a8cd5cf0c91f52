//! What ends with a context: its modules and memory; with the last of a device, what its pools gave out.

use std::time::{Duration, Instant};

use super::*;

/// Makes another context of device 0, and makes it current.
fn context(cuda: &SoftCuda) -> CUcontext {
    let mut context = null_mut();
    // SAFETY: one place for the context.
    check(unsafe { cuda.cuCtxCreate_v2(&raw mut context, 0, 0) });
    context
}

fn destroy(cuda: &SoftCuda, context: CUcontext) {
    // SAFETY: the context is live.
    check(unsafe { cuda.cuCtxDestroy_v2(context) });
}

fn current(cuda: &SoftCuda, context: CUcontext) {
    // SAFETY: the driver judges the context.
    check(unsafe { cuda.cuCtxSetCurrent(context) });
}

fn release_primary(cuda: &SoftCuda) {
    // SAFETY: it is retained.
    check(unsafe { cuda.cuDevicePrimaryCtxRelease_v2(0) });
}

fn retain_primary(cuda: &SoftCuda) -> CUcontext {
    let mut context = null_mut();
    // SAFETY: one place for the context.
    check(unsafe { cuda.cuDevicePrimaryCtxRetain(&raw mut context, 0) });
    current(cuda, context);
    context
}

fn from_pool(cuda: &SoftCuda, stream: CUstream) -> u64 {
    let mut address = 0;
    // SAFETY: one place for the address.
    check(unsafe { cuda.cuMemAllocAsync(&raw mut address, 1 << 20, stream) });
    address
}

#[test]
fn modules_end_with_the_context_that_they_were_loaded_in_and_others_stay() {
    let cuda = devices(SoftOptions::default());
    let primary = retain_primary(&cuda);
    let stays = module(&cuda, PROGRAM).expect("a module");
    let other = context(&cuda);
    let goes = module(&cuda, PROGRAM).expect("a module");
    let kernel = function(&cuda, goes, c"scale");
    assert_eq!(cuda.live_allocations(), 2, "a variable each");
    destroy(&cuda, other);
    assert_eq!(cuda.live_allocations(), 1);
    current(&cuda, primary);
    // SAFETY: the driver judges the handle.
    let unloaded = unsafe { cuda.cuModuleUnload(goes) };
    assert_eq!(unloaded, CUDA_ERROR_INVALID_HANDLE);
    let launched = launch(&cuda, kernel, (1, 1), null_mut(), &mut [0, 0]);
    assert_eq!(launched, CUDA_ERROR_INVALID_HANDLE);
    let kernel = function(&cuda, stays, c"scale");
    let data = allocate(&cuda, 4);
    upload(&cuda, data, &[5], null_mut());
    check(launch(&cuda, kernel, (1, 1), null_mut(), &mut [data, 1]));
    assert_eq!(download(&cuda, data, 1, null_mut()), [15]);
}

#[test]
fn memory_of_pools_ends_with_the_last_context_of_its_device() {
    let cuda = devices(SoftOptions::default());
    let other = context(&cuda);
    let address = from_pool(&cuda, null_mut());
    destroy(&cuda, other);
    let primary = retain_primary(&cuda);
    // It is the device's: the context through which it was asked for does not matter.
    check(fill(&cuda, address));
    check(synchronize(&cuda, null_mut()));
    assert_eq!(cuda.live_allocations(), 1);
    let free = cuda.free_bytes(0);
    release_primary(&cuda);
    assert_eq!(cuda.live_allocations(), 1, "it is retained once more");
    release_primary(&cuda);
    assert_eq!(cuda.live_allocations(), 0);
    assert_eq!(cuda.free_bytes(0), free + (1 << 20));
    assert_ne!(retain_primary(&cuda), primary);
    let fresh = from_pool(&cuda, null_mut());
    check(fill(&cuda, fresh));
}

fn fill(cuda: &SoftCuda, address: u64) -> CUresult {
    // SAFETY: the driver checks addresses.
    unsafe { cuda.cuMemsetD32Async(address, 7, 8, null_mut()) }
}

#[test]
fn memory_that_a_stream_gives_back_while_its_context_ends_is_freed_once() {
    let cuda = devices(SoftOptions::default());
    let program = module(&cuda, PROGRAM).expect("a module");
    let wait = function(&cuda, program, c"wait");
    let busy = stream(&cuda);
    let flag = allocate(&cuda, 4);
    let address = from_pool(&cuda, busy);
    check(launch(&cuda, wait, (1, 1), busy, &mut [flag]));
    // SAFETY: the driver judges the address.
    check(unsafe { cuda.cuMemFreeAsync(address, busy) });
    release_primary(&cuda);
    retain_primary(&cuda);
    // The kernel keeps its module until it has stopped.
    let patience = Instant::now() + Duration::from_secs(60);
    while cuda.live_allocations() > 0 && Instant::now() < patience {
        std::thread::yield_now();
    }
    assert_eq!(cuda.live_allocations(), 0);
    // Nothing is left to be given back under its new owner.
    let fresh = from_pool(&cuda, null_mut());
    check(synchronize(&cuda, null_mut()));
    check(fill(&cuda, fresh));
    check(synchronize(&cuda, null_mut()));
    assert_eq!(cuda.live_allocations(), 1);
}

#[test]
fn a_library_outlives_contexts_and_begins_anew_on_its_device() {
    let cuda = devices(SoftOptions::default());
    let mut library = null_mut();
    let image = PROGRAM.as_ptr().cast();
    // SAFETY: an image that ends with a NUL, and no options.
    check(unsafe {
        cuda.cuLibraryLoadData(
            &raw mut library,
            image,
            null_mut(),
            null_mut(),
            0,
            null_mut(),
            null_mut(),
            0,
        )
    });
    let factor = |cuda: &SoftCuda| {
        let (mut address, mut bytes) = (0, 0);
        let name = c"factor".as_ptr();
        // SAFETY: places for both, and a name that ends with a NUL.
        check(unsafe { cuda.cuLibraryGetGlobal(&raw mut address, &raw mut bytes, library, name) });
        address
    };
    upload(&cuda, factor(&cuda), &[9], null_mut());
    assert_eq!(download(&cuda, factor(&cuda), 1, null_mut()), [9]);
    release_primary(&cuda);
    assert_eq!(cuda.live_allocations(), 0);
    retain_primary(&cuda);
    assert_eq!(download(&cuda, factor(&cuda), 1, null_mut()), [3]);
}
