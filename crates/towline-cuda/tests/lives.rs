//! Ends of things: memory that was freed, pools, streams of contexts that have ended.
#![allow(
    clippy::multiple_unsafe_ops_per_block,
    reason = "calls of the C interface stand side by side"
)]

mod support;

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::mpsc::channel;

use support::{Machine, pattern};
use towline_backend::cuda::*;

#[test]
fn freed_memory_is_refused_while_it_is_kept() {
    let machine = Machine::new();
    let (driver, mut bytes) = (&machine.driver, [7_u8; 64]);
    let (from, to) = (bytes.as_ptr().cast(), bytes.as_mut_ptr().cast::<c_void>());
    let (freed, live) = (machine.allocate(1 << 20), machine.allocate(64));
    // SAFETY: no pointers.
    assert_eq!(unsafe { driver.cuMemFree_v2(freed) }, CUDA_SUCCESS);
    for address in [freed, freed + 4096] {
        // SAFETY: the bytes are there.
        let refused = unsafe {
            [
                driver.cuMemcpyHtoD_v2(address, from, 64),
                driver.cuMemcpyDtoH_v2(to, address, 64),
                driver.cuMemcpyDtoD_v2(live, address, 64),
                driver.cuMemsetD8_v2(address, 1, 64),
                driver.cuMemFree_v2(address),
            ]
        };
        assert_eq!(refused, [CUDA_ERROR_INVALID_VALUE; 5]);
    }
    // Memory that is given again is memory again.
    let again = machine.filled(&pattern(1 << 20, 1));
    assert_eq!(again, freed);
    assert!(machine.bytes(again, 1 << 20) == pattern(1 << 20, 1));
    // SAFETY: no pointers.
    let ended = unsafe { [again, live].map(|address| driver.cuMemFree_v2(address)) };
    assert_eq!(ended, [CUDA_SUCCESS; 2]);
    machine.leave();
}

#[test]
fn fills_beyond_their_memory_are_refused() {
    let machine = Machine::new();
    let memory = machine.allocate(4096);
    // SAFETY: no host memory.
    let fills = unsafe {
        let driver = &machine.driver;
        [
            driver.cuMemsetD8_v2(memory, 1, 4096),
            driver.cuMemsetD8_v2(memory, 1, 64 << 20),
            driver.cuMemsetD2D32Async(memory, 4 << 20, 1, 4, 9, null_mut()),
            driver.cuMemFree_v2(memory),
        ]
    };
    let refused = CUDA_ERROR_INVALID_VALUE;
    assert_eq!(fills, [CUDA_SUCCESS, refused, refused, CUDA_SUCCESS]);
    machine.leave();
}

#[test]
fn blocks_that_other_contexts_may_use_go_back() {
    let machine = Machine::with(&[2]);
    let (driver, bytes) = (&machine.driver, pattern(1 << 20, 1));
    let source = machine.filled(&bytes);
    machine.enter(1);
    let target = machine.allocate(bytes.len());
    let (here, there) = (machine.contexts[1], machine.contexts[0]);
    let stream = machine.stream();
    // SAFETY: no host memory.
    let ended = unsafe {
        let copied = driver.cuMemcpyPeerAsync(target, here, source, there, bytes.len(), stream);
        [copied, driver.cuMemFree_v2(source)]
    };
    assert_eq!(ended, [CUDA_SUCCESS; 2]);
    machine.synchronise();
    assert!(machine.bytes(target, bytes.len()) == bytes);
    // SAFETY: no pointers.
    assert_eq!(unsafe { driver.cuMemFree_v2(target) }, CUDA_SUCCESS);
    assert_eq!(machine.nulls[0].allocated_bytes(), bytes.len());
    machine.leave();
}

#[test]
fn default_pools_are_told_and_last() {
    let machine = Machine::on_soft();
    let driver = &machine.driver;
    let (mut own, mut made) = (null_mut(), null_mut());
    let location = CUmemLocation {
        r#type: CU_MEM_LOCATION_TYPE_DEVICE,
        either: CUmemLocation_either { id: 0 },
    };
    // SAFETY: the structure consists of numbers and pointers, for all of which 0 is a value.
    let mut props: CUmemPoolProps = unsafe { std::mem::zeroed() };
    (props.allocType, props.location) = (CU_MEM_ALLOCATION_TYPE_PINNED, location);
    let pool_of = |address| {
        let mut pool = 7_usize;
        let attribute = CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE;
        // SAFETY: the place has the attribute's width.
        let told =
            unsafe { driver.cuPointerGetAttribute((&raw mut pool).cast(), attribute, address) };
        assert_eq!(told, CUDA_SUCCESS);
        pool
    };
    let (mut of_own, mut of_made) = (0, 0);
    // SAFETY: all places are locals.
    let made_all = unsafe {
        [
            driver.cuDeviceGetDefaultMemPool(&raw mut own, 0),
            driver.cuMemPoolCreate(&raw mut made, &raw const props),
            driver.cuMemAllocAsync(&raw mut of_own, 64, null_mut()),
            driver.cuMemAllocFromPoolAsync(&raw mut of_made, 64, made, null_mut()),
            driver.cuMemPoolDestroy(own),
        ]
    };
    assert_eq!(made_all[..4], [CUDA_SUCCESS; 4]);
    assert_eq!(made_all[4], CUDA_ERROR_INVALID_VALUE);
    assert_eq!(
        [pool_of(of_own), pool_of(of_made)],
        [own.addr(), made.addr()]
    );
    let plain = machine.allocate(64);
    assert_eq!(pool_of(plain), 0);
    // SAFETY: no pointers.
    let ended = unsafe {
        [
            driver.cuMemFreeAsync(of_own, null_mut()),
            driver.cuMemFreeAsync(of_made, null_mut()),
            driver.cuMemPoolDestroy(made),
            driver.cuMemFree_v2(plain),
        ]
    };
    assert_eq!(ended, [CUDA_SUCCESS; 4]);
    machine.end();
}

#[test]
fn own_default_streams_end_with_their_context() {
    let machine = Machine::new();
    let (driver, own) = (&machine.driver, std::ptr::without_provenance_mut(2));
    let context = machine.contexts[0].expose_provenance();
    let memory = machine.allocate(64);
    let (to_other, other) = channel::<CUdeviceptr>();
    let (told, answers) = channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // SAFETY: the context was made.
            let set =
                unsafe { driver.cuCtxSetCurrent(std::ptr::with_exposed_provenance_mut(context)) };
            assert_eq!(set, CUDA_SUCCESS);
            let own = std::ptr::without_provenance_mut(2);
            for memory in other {
                // SAFETY: no host memory.
                let done = unsafe {
                    [
                        driver.cuMemsetD8Async(memory, 7, 64, own),
                        driver.cuStreamSynchronize(own),
                    ]
                };
                told.send(done).unwrap();
            }
        });
        to_other.send(memory).unwrap();
        assert_eq!(answers.recv().unwrap(), [CUDA_SUCCESS; 2]);
        let mut context = null_mut();
        // SAFETY: the context is a local.
        let again = unsafe {
            [
                driver.cuMemsetD8Async(memory, 7, 64, own),
                driver.cuDevicePrimaryCtxRelease_v2(0),
                driver.cuDevicePrimaryCtxRetain(&raw mut context, 0),
            ]
        };
        assert_eq!(again, [CUDA_SUCCESS; 3]);
        let memory = machine.filled(&[0; 64]);
        to_other.send(memory).unwrap();
        assert_eq!(answers.recv().unwrap(), [CUDA_SUCCESS; 2]);
        assert_eq!(machine.bytes(memory, 64), [7; 64]);
        drop(to_other);
    });
    machine.end();
}

#[test]
fn flags_of_primary_contexts_are_known_ones() {
    let machine = Machine::new();
    let set = |flags| {
        // SAFETY: no pointers.
        unsafe { machine.driver.cuDevicePrimaryCtxSetFlags_v2(0, flags) }
    };
    assert_eq!(set(CU_CTX_SCHED_YIELD), CUDA_SUCCESS);
    for flags in [1 << 12, CU_CTX_SCHED_SPIN | CU_CTX_SCHED_YIELD] {
        assert_eq!(set(flags), CUDA_ERROR_INVALID_VALUE);
    }
    machine.end();
}

#[test]
fn devices_are_found_by_any_spelling_of_their_place() {
    let machine = Machine::new();
    let driver = &machine.driver;
    let mut place = [0; 16];
    // SAFETY: places are locals.
    let told =
        unsafe { [4, 16].map(|room| driver.cuDeviceGetPCIBusId(place.as_mut_ptr(), room, 0)) };
    assert_eq!(told, [CUDA_ERROR_INVALID_VALUE, CUDA_SUCCESS]);
    let place: String = place
        .iter()
        .take_while(|byte| **byte != 0)
        .map(|byte| *byte as u8 as char)
        .collect();
    let find = |text: &str| {
        let (mut device, text) = (-1, std::ffi::CString::new(text).expect("no NUL"));
        // SAFETY: the place is a local, and the text ends.
        let found = unsafe { driver.cuDeviceGetByPCIBusId(&raw mut device, text.as_ptr()) };
        (found, device)
    };
    let short = place.strip_suffix(".0").expect("a function");
    for text in [
        &place,
        short,
        &format!("0000{place}"),
        &place.to_lowercase(),
        &format!(" 0x{place} and more"),
    ] {
        assert_eq!(find(text), (CUDA_SUCCESS, 0), "{text}");
    }
    assert_eq!(find("0000:7e:1f.0").0, CUDA_ERROR_INVALID_DEVICE);
    // A function belongs to what names no domain (seen with driver 580.159).
    for text in ["", "not a bus id", "0000:", "17", "17:0"] {
        assert_eq!(find(text).0, CUDA_ERROR_INVALID_VALUE, "{text:?}");
    }
    machine.end();
}

#[test]
fn host_memory_has_a_granularity_though_there_is_none() {
    let machine = Machine::new();
    let asked = |kind| {
        // SAFETY: all fields are plain data.
        let mut properties: CUmemAllocationProp = unsafe { std::mem::zeroed() };
        properties.r#type = CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location.r#type = kind;
        let (mut size, option) = (0, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
        // SAFETY: places are locals.
        let told = unsafe {
            let driver = &machine.driver;
            driver.cuMemGetAllocationGranularity(&raw mut size, &raw const properties, option)
        };
        (told, size)
    };
    for kind in [
        CU_MEM_LOCATION_TYPE_INVALID,
        CU_MEM_LOCATION_TYPE_HOST,
        CU_MEM_LOCATION_TYPE_HOST_NUMA,
    ] {
        assert_eq!(asked(kind), (CUDA_SUCCESS, 2 << 20));
    }
    machine.end();
}

#[test]
fn copies_to_nowhere_fail_in_the_call() {
    let machine = Machine::on_soft();
    // SAFETY: the bytes are there.
    let refused = unsafe {
        let bytes = [7_u8; 64];
        machine
            .driver
            .cuMemcpyHtoD_v2(0x7777_0000_0000, bytes.as_ptr().cast(), 64)
    };
    assert_ne!(refused, CUDA_SUCCESS);
    machine.end();
}

/// The statuses are a GPU's, with driver 580.159.
#[test]
fn reset_context_is_held_by_nobody() {
    let machine = Machine::on_soft();
    let (driver, mut context) = (&machine.driver, null_mut());
    // SAFETY: the place is a local.
    let answers = unsafe {
        [
            driver.cuDevicePrimaryCtxRetain(&raw mut context, 0),
            driver.cuDevicePrimaryCtxReset_v2(0),
            driver.cuDevicePrimaryCtxRelease_v2(0),
            driver.cuDevicePrimaryCtxRetain(&raw mut context, 0),
        ]
    };
    let [retained, reset, released, again] = answers;
    assert_eq!([retained, reset, again], [CUDA_SUCCESS; 3]);
    assert_eq!(released, CUDA_ERROR_INVALID_CONTEXT);
    machine.leave();
}
