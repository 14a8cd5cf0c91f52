//! Rules of the CUDA driver that a program may lean on: memory, pools, virtual memory, streams, events, attributes, limits, links. What
//! they check is what the driver's documentation says of arguments.

use towline_backend::cuda::{CudaApi, NullCuda};

use super::*;

/// Each rule is a test on the device in software, and of the first ones on that in host memory, which leaves the others to the client.
macro_rules! rules {
    (both: $($both:ident)* ; soft: $($soft:ident)*) => {
        mod null {
            use super::*;
            $(#[test]
            fn $both() {
                let cuda = NullCuda::new(1);
                enter(&cuda);
                super::$both(&cuda);
            })*
        }
        mod soft {
            use super::*;
            $(#[test]
            fn $both() {
                super::$both(&devices(SoftOptions::default()));
            })*
            $(#[test]
            fn $soft() {
                super::$soft(&devices(SoftOptions::default()));
            })*
        }
    };
}

rules! {
    both:
        addresses_are_reserved_in_whole_granules
        an_event_that_was_never_recorded_holds_up_nobody
        images_that_are_none_are_refused
        a_link_that_is_unknown_is_refused
        memory_is_freed_once_and_only_by_its_beginning
        physical_memory_is_released_once
        what_is_allocated_counts_as_used_until_it_is_freed
    ; soft:
        a_pool_tells_what_it_was_set_to
        a_stream_that_is_unknown_is_refused
        a_stream_without_work_is_ready
        attributes_that_are_none_are_refused
        devices_that_are_none_are_refused
        fills_and_copies_stay_within_what_is_allocated
        limits_that_are_none_are_refused
        memory_in_stream_order_is_refused_like_other_memory
        memory_without_bytes_is_refused_and_null_is_freed
        time_between_events_needs_both_and_their_clocks
}

fn enter(cuda: &dyn CudaApi) {
    let mut context = null_mut();
    // SAFETY: one place for the context.
    check(unsafe { cuda.cuDevicePrimaryCtxRetain(&raw mut context, 0) });
    // SAFETY: the context is live.
    check(unsafe { cuda.cuCtxSetCurrent(context) });
}

/// An address or a handle that nobody was given.
const NOBODYS: usize = 0x7777_0000_0040;

fn give(cuda: &dyn CudaApi, bytes: usize) -> Result<u64, CUresult> {
    let mut address = 0;
    // SAFETY: one place for the address.
    match unsafe { cuda.cuMemAlloc_v2(&raw mut address, bytes) } {
        CUDA_SUCCESS => Ok(address),
        status => Err(status),
    }
}

fn take(cuda: &dyn CudaApi, address: u64) -> CUresult {
    // SAFETY: the driver judges the address.
    unsafe { cuda.cuMemFree_v2(address) }
}

fn fill(cuda: &dyn CudaApi, address: u64, words: usize) -> CUresult {
    // SAFETY: the driver judges the range.
    unsafe { cuda.cuMemsetD32Async(address, 5, words, null_mut()) }
}

fn wait(cuda: &dyn CudaApi) -> CUresult {
    // SAFETY: no pointers.
    unsafe { cuda.cuCtxSynchronize() }
}

fn new_event(cuda: &dyn CudaApi, flags: u32) -> CUevent {
    let mut event = null_mut();
    // SAFETY: one place for the event.
    check(unsafe { cuda.cuEventCreate(&raw mut event, flags) });
    event
}

fn free_now(cuda: &dyn CudaApi) -> usize {
    let (mut free, mut total) = (0, 0);
    // SAFETY: a place for each.
    check(unsafe { cuda.cuMemGetInfo_v2(&raw mut free, &raw mut total) });
    assert!(free <= total);
    free
}

fn memory_without_bytes_is_refused_and_null_is_freed(cuda: &dyn CudaApi) {
    assert_eq!(give(cuda, 0), Err(CUDA_ERROR_INVALID_VALUE));
    assert_eq!(give(cuda, usize::MAX), Err(CUDA_ERROR_OUT_OF_MEMORY));
    check(take(cuda, 0));
}

fn memory_is_freed_once_and_only_by_its_beginning(cuda: &dyn CudaApi) {
    let address = give(cuda, 1000).expect("room");
    assert_eq!(address % 16, 0, "aligned for any type");
    assert_eq!(take(cuda, address + 256), CUDA_ERROR_INVALID_VALUE);
    check(take(cuda, address));
    assert_eq!(take(cuda, address), CUDA_ERROR_INVALID_VALUE);
}

fn fills_and_copies_stay_within_what_is_allocated(cuda: &dyn CudaApi) {
    let address = give(cuda, 4096).expect("room");
    check(fill(cuda, address, 1024));
    let far = fill(cuda, NOBODYS as u64, 4);
    assert_eq!(far, CUDA_ERROR_INVALID_VALUE);
    let mut word = [0_u32; 2];
    let place = word.as_mut_ptr().cast();
    // SAFETY: room for a word until the context is done.
    check(unsafe { cuda.cuMemcpyDtoHAsync_v2(place, address + 4092, 4, null_mut()) });
    check(wait(cuda));
    assert_eq!(word, [5, 0]);
    // SAFETY: the driver judges the range, and the place has room for it.
    let far = unsafe { cuda.cuMemcpyDtoHAsync_v2(place, NOBODYS as u64, 8, null_mut()) };
    assert_eq!(far, CUDA_ERROR_INVALID_VALUE);
    check(take(cuda, address));
}

fn what_is_allocated_counts_as_used_until_it_is_freed(cuda: &dyn CudaApi) {
    let before = free_now(cuda);
    let address = give(cuda, 1 << 20).expect("room");
    assert!(free_now(cuda) <= before - (1 << 20));
    check(take(cuda, address));
    assert_eq!(free_now(cuda), before);
}

fn memory_in_stream_order_is_refused_like_other_memory(cuda: &dyn CudaApi) {
    let mut address = 0;
    // SAFETY: one place for the address.
    let none = unsafe { cuda.cuMemAllocAsync(&raw mut address, 0, null_mut()) };
    assert_eq!(none, CUDA_ERROR_INVALID_VALUE);
    // SAFETY: the driver judges the address.
    let unknown = unsafe { cuda.cuMemFreeAsync(NOBODYS as u64, null_mut()) };
    assert_eq!(unknown, CUDA_ERROR_INVALID_VALUE);
    // SAFETY: one place for the address.
    check(unsafe { cuda.cuMemAllocAsync(&raw mut address, 4096, null_mut()) });
    check(fill(cuda, address, 1024));
    // SAFETY: the address is the program's.
    check(unsafe { cuda.cuMemFreeAsync(address, null_mut()) });
    check(wait(cuda));
}

fn a_pool_tells_what_it_was_set_to(cuda: &dyn CudaApi) {
    let mut pool = null_mut();
    // SAFETY: one place for the pool.
    check(unsafe { cuda.cuDeviceGetDefaultMemPool(&raw mut pool, 0) });
    let mut value = 1_u64 << 20;
    let (which, place) = (CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, (&raw mut value).cast());
    // SAFETY: the attribute has 64 bits.
    check(unsafe { cuda.cuMemPoolSetAttribute(pool, which, place) });
    value = 0;
    // SAFETY: as above.
    check(unsafe { cuda.cuMemPoolGetAttribute(pool, which, (&raw mut value).cast()) });
    assert_eq!(value, 1 << 20);
    // SAFETY: the driver does not write for what is no attribute.
    let none = unsafe { cuda.cuMemPoolGetAttribute(pool, 9999, (&raw mut value).cast()) };
    assert_eq!(none, CUDA_ERROR_INVALID_VALUE);
}

fn addresses_are_reserved_in_whole_granules(cuda: &dyn CudaApi) {
    let mut address = 0;
    for (bytes, expected) in [
        (0, CUDA_ERROR_INVALID_VALUE),
        (1000, CUDA_ERROR_INVALID_VALUE),
        (1 << 21, CUDA_SUCCESS),
    ] {
        // SAFETY: one place for the address.
        let status = unsafe { cuda.cuMemAddressReserve(&raw mut address, bytes, 0, 0, 0) };
        assert_eq!(status, expected, "{bytes}");
    }
    // SAFETY: nothing is mapped there.
    check(unsafe { cuda.cuMemAddressFree(address, 1 << 21) });
    // SAFETY: the driver judges the range.
    let twice = unsafe { cuda.cuMemAddressFree(address, 1 << 21) };
    assert_eq!(twice, CUDA_ERROR_INVALID_VALUE);
}

fn physical_memory_is_released_once(cuda: &dyn CudaApi) {
    // SAFETY: the driver judges the handle.
    let unknown = unsafe { cuda.cuMemRelease(NOBODYS as u64) };
    assert_eq!(unknown, CUDA_ERROR_INVALID_VALUE);
}

fn a_stream_that_is_unknown_is_refused(cuda: &dyn CudaApi) {
    let unknown = std::ptr::without_provenance_mut(NOBODYS);
    // SAFETY: the driver judges the handle.
    let query = unsafe { cuda.cuStreamQuery(unknown) };
    assert_eq!(query, CUDA_ERROR_INVALID_HANDLE);
    // SAFETY: as above.
    let destroy = unsafe { cuda.cuStreamDestroy_v2(unknown) };
    assert_eq!(destroy, CUDA_ERROR_INVALID_HANDLE);
}

fn a_stream_without_work_is_ready(cuda: &dyn CudaApi) {
    let mut stream = null_mut();
    // SAFETY: one place for the stream.
    check(unsafe { cuda.cuStreamCreate(&raw mut stream, CU_STREAM_NON_BLOCKING) });
    // SAFETY: the stream is live.
    check(unsafe { cuda.cuStreamQuery(stream) });
    // SAFETY: as above.
    check(unsafe { cuda.cuStreamSynchronize(stream) });
    // SAFETY: as above.
    check(unsafe { cuda.cuStreamDestroy_v2(stream) });
    // SAFETY: the driver judges the handle.
    let twice = unsafe { cuda.cuStreamDestroy_v2(stream) };
    assert_eq!(twice, CUDA_ERROR_INVALID_HANDLE);
}

fn an_event_that_was_never_recorded_holds_up_nobody(cuda: &dyn CudaApi) {
    let event = new_event(cuda, 0);
    // SAFETY: the event is live.
    check(unsafe { cuda.cuEventQuery(event) });
    // SAFETY: as above.
    check(unsafe { cuda.cuEventSynchronize(event) });
    // SAFETY: as above.
    check(unsafe { cuda.cuStreamWaitEvent(null_mut(), event, 0) });
    check(wait(cuda));
    // SAFETY: as above.
    check(unsafe { cuda.cuEventDestroy_v2(event) });
    // SAFETY: the driver judges the handle.
    let gone = unsafe { cuda.cuEventQuery(event) };
    assert_eq!(gone, CUDA_ERROR_INVALID_HANDLE);
}

fn time_between_events_needs_both_and_their_clocks(cuda: &dyn CudaApi) {
    let (one, other) = (new_event(cuda, 0), new_event(cuda, 0));
    let untimed = new_event(cuda, CU_EVENT_DISABLE_TIMING);
    let mut milliseconds = -1.0;
    let mut between = |from, to| {
        // SAFETY: the events are live; one place for the time.
        unsafe { cuda.cuEventElapsedTime_v2(&raw mut milliseconds, from, to) }
    };
    assert_eq!(between(one, other), CUDA_ERROR_INVALID_HANDLE);
    for event in [one, untimed, other] {
        // SAFETY: the event is live.
        check(unsafe { cuda.cuEventRecord(event, null_mut()) });
    }
    check(wait(cuda));
    assert_eq!(between(one, untimed), CUDA_ERROR_INVALID_HANDLE);
    check(between(one, other));
    assert!(milliseconds >= 0.0);
}

fn attributes_that_are_none_are_refused(cuda: &dyn CudaApi) {
    let mut value = 0;
    // SAFETY: one place for the value.
    check(unsafe { cuda.cuDeviceGetAttribute(&raw mut value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0) });
    assert_eq!(value, 32);
    // SAFETY: as above.
    let none = unsafe { cuda.cuDeviceGetAttribute(&raw mut value, 99_999, 0) };
    assert_eq!(none, CUDA_ERROR_INVALID_VALUE);
}

fn devices_that_are_none_are_refused(cuda: &dyn CudaApi) {
    for device in [1, -1] {
        let (mut value, mut context) = (0, null_mut());
        // SAFETY: one place for the value.
        let told = unsafe {
            cuda.cuDeviceGetAttribute(&raw mut value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, device)
        };
        assert_eq!(told, CUDA_ERROR_INVALID_DEVICE);
        // SAFETY: one place for the context.
        let retained = unsafe { cuda.cuDevicePrimaryCtxRetain(&raw mut context, device) };
        assert_eq!(retained, CUDA_ERROR_INVALID_DEVICE);
    }
}

fn limits_that_are_none_are_refused(cuda: &dyn CudaApi) {
    let mut value = 0;
    // SAFETY: one place for the value.
    check(unsafe { cuda.cuCtxGetLimit(&raw mut value, CU_LIMIT_STACK_SIZE) });
    assert!(value > 0);
    // SAFETY: as above.
    let none = unsafe { cuda.cuCtxGetLimit(&raw mut value, 9999) };
    assert_eq!(none, CUDA_ERROR_UNSUPPORTED_LIMIT);
}

fn images_that_are_none_are_refused(cuda: &dyn CudaApi) {
    let mut module = null_mut();
    let image = c"this is no image".as_ptr().cast();
    // SAFETY: the image ends with a NUL; no options.
    let status =
        unsafe { cuda.cuModuleLoadDataEx(&raw mut module, image, 0, null_mut(), null_mut()) };
    assert!(
        matches!(status, CUDA_ERROR_INVALID_IMAGE | CUDA_ERROR_INVALID_PTX),
        "{status}"
    );
    let unknown = std::ptr::without_provenance_mut(NOBODYS);
    // SAFETY: the driver judges the handle.
    let unloaded = unsafe { cuda.cuModuleUnload(unknown) };
    assert_eq!(unloaded, CUDA_ERROR_INVALID_HANDLE);
}

fn a_link_that_is_unknown_is_refused(cuda: &dyn CudaApi) {
    let unknown = std::ptr::without_provenance_mut(NOBODYS);
    let (mut image, mut len) = (null_mut(), 0);
    // SAFETY: the driver judges the handle; a place for each answer.
    let completed = unsafe { cuda.cuLinkComplete(unknown, &raw mut image, &raw mut len) };
    assert_eq!(completed, CUDA_ERROR_INVALID_HANDLE);
    // SAFETY: the driver judges the handle.
    let destroyed = unsafe { cuda.cuLinkDestroy(unknown) };
    assert_eq!(destroyed, CUDA_ERROR_INVALID_HANDLE);
}
