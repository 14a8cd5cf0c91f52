//! Managed memory, and pinned memory that kernels reach: what host and device write, the other sees where CUDA says so.
#![allow(
    clippy::multiple_unsafe_ops_per_block,
    reason = "calls of the C interface stand side by side"
)]

mod support;

use std::ptr::null_mut;
use std::sync::Mutex;

use support::{Machine, OPEN, Program};
use towline_backend::cuda::*;

impl Program {
    fn managed(&self, size: usize) -> *mut u32 {
        let mut address = 0;
        let flags = CU_MEM_ATTACH_GLOBAL;
        // SAFETY: the address is a local.
        let made = unsafe {
            self.machine
                .driver
                .cuMemAllocManaged(&raw mut address, size, flags)
        };
        assert_eq!(made, CUDA_SUCCESS);
        std::ptr::with_exposed_provenance_mut(address as usize)
    }
}

fn at(memory: *mut u32) -> CUdeviceptr {
    memory.expose_provenance() as u64
}

fn get(memory: *mut u32, index: usize) -> u32 {
    // SAFETY: the memory is there, and long enough.
    unsafe { memory.add(index).read_volatile() }
}

fn set(memory: *mut u32, index: usize, value: u32) {
    // SAFETY: as above.
    unsafe { memory.add(index).write_volatile(value) };
}

#[test]
fn both_sides_see_what_the_other_wrote() {
    let program = Program::new();
    let count = 1 << 20;
    let memory = program.managed(count * 4);
    for index in (0..count).step_by(1000) {
        assert_eq!(get(memory, index), 0);
        set(memory, index, index as u32);
    }
    for round in 1..4 {
        program.add(at(memory), count, null_mut());
        program.machine.synchronise();
        for index in (0..count).step_by(1000) {
            assert_eq!(get(memory, index), index as u32 + round);
        }
        assert_eq!(get(memory, 1), round);
    }
    // A write to what was read before goes back too.
    set(memory, 5000, 7);
    program.add(at(memory), count, null_mut());
    program.machine.synchronise();
    assert_eq!(get(memory, 5000), 8);
    assert_eq!(program.free(at(memory)), CUDA_SUCCESS);
    assert_eq!(program.free(at(memory)), CUDA_ERROR_INVALID_VALUE);
    program.machine.leave();
}

#[test]
fn launches_wait_for_nothing_and_only_what_is_touched_comes_back() {
    let program = Program::new();
    let memory = program.managed(64 << 20);
    set(memory, 0, 1);
    let ((), waits) = program.machine.costs(|_| {
        for _ in 0..10 {
            program.add(at(memory), 4, null_mut());
        }
    });
    assert_eq!(waits, 0, "a block that the host has written goes along");
    program.machine.synchronise();
    let (value, waits) = program.machine.costs(|_| [get(memory, 0), get(memory, 1)]);
    assert_eq!((value, waits), ([11, 10], 1));
    let (value, waits) = program.machine.costs(|_| get(memory, 12 << 20));
    assert_eq!((value, waits), (0, 1));
    assert_eq!(program.free(at(memory)), CUDA_SUCCESS);
    program.machine.leave();
}

#[test]
fn memory_touched_after_each_wait_comes_with_it() {
    let program = Program::new();
    let memory = program.managed(1 << 20);
    for round in 1..=4 {
        program.add(at(memory), 4, null_mut());
        program.machine.synchronise();
        assert_eq!(get(memory, 0), round);
        set(memory, 1, 100 * round);
    }
    program.add(at(memory), 4, null_mut());
    program.machine.synchronise();
    let (found, waits) = program.machine.costs(|_| {
        set(memory, 2, 7);
        [0, 1, 2, 3].map(|index| get(memory, index))
    });
    assert_eq!((found, waits), ([5, 401, 7, 5], 0));
    program.add(at(memory), 4, null_mut());
    program.machine.synchronise();
    assert_eq!([0, 1, 2, 3].map(|index| get(memory, index)), [6, 402, 8, 6]);
    assert_eq!(program.free(at(memory)), CUDA_SUCCESS);
    program.machine.leave();
}

#[test]
fn fills_and_copies_of_managed_memory_are_done_at_once() {
    let program = Program::new();
    let (one, two) = (program.managed(8 << 20), program.managed(8 << 20));
    let driver = &program.machine.driver;
    let (count, last) = (2 << 20, (2 << 20) - 1);
    for round in 1..30 {
        // SAFETY: no pointers of the host's.
        let filled = unsafe { driver.cuMemsetD32_v2(at(one), round, count) };
        assert_eq!((filled, get(one, last)), (CUDA_SUCCESS, round));
        // SAFETY: as above.
        let copied = unsafe { driver.cuMemcpyDtoD_v2(at(two), at(one), 4 * count) };
        assert_eq!((copied, get(two, last)), (CUDA_SUCCESS, round));
        set(one, last, 7 * round);
        // SAFETY: both are device memory.
        let copied = unsafe { driver.cuMemcpy(at(two), at(one), 4 * count) };
        assert_eq!((copied, get(two, last)), (CUDA_SUCCESS, 7 * round));
    }
    assert_eq!(program.free(at(one)), CUDA_SUCCESS);
    assert_eq!(program.free(at(two)), CUDA_SUCCESS);
    program.machine.leave();
}

#[test]
fn rounds_add_up_whoever_touches_memory_when() {
    let program = Program::new();
    let memory = program.managed(1 << 20);
    let other = program.managed(64);
    let (mut expected, mut of_other) = (0, 0);
    for round in 0..400 {
        program.add(at(memory), 1, null_mut());
        program.add(at(other), 1, null_mut());
        program.machine.synchronise();
        (expected, of_other) = (expected + 1, of_other + 1);
        // For long it is touched each time, then never, then now and then.
        if round % 200 < 90 || round % 7 == 0 {
            assert_eq!(get(memory, 0), expected, "round {round}");
        }
        if round % 100 < 40 {
            expected += 10;
            set(memory, 0, expected);
        }
        if round % 50 < 20 {
            of_other *= 2;
            set(other, 0, of_other);
            of_other %= 1000;
            set(other, 0, of_other);
        }
    }
    assert_eq!([get(memory, 0), get(other, 0)], [expected, of_other]);
    assert_eq!(program.free(at(memory)), CUDA_SUCCESS);
    assert_eq!(program.free(at(other)), CUDA_SUCCESS);
    program.machine.leave();
}

#[test]
fn memory_that_kernels_still_use_is_not_fetched_ahead() {
    let program = Program::new();
    let memory = program.managed(1 << 20);
    let stream = program.machine.stream();
    for round in 1..=5 {
        program.add(at(memory), 1, stream);
        program.machine.synchronise();
        assert_eq!(get(memory, 0), round);
    }
    let held = program.held();
    program.add(at(memory), 1, held.stream);
    // Behind this wait the kernel still is to come.
    // SAFETY: the stream is live.
    let waited = unsafe { program.machine.driver.cuStreamSynchronize(stream) };
    assert_eq!(waited, CUDA_SUCCESS);
    assert_eq!(get(memory, 0), 5);
    held.let_go(&program);
    assert_eq!(get(memory, 0), 6);
    assert_eq!(program.free(at(memory)), CUDA_SUCCESS);
    program.machine.leave();
}

#[test]
fn work_of_other_streams_is_behind_what_the_host_wrote() {
    let program = Program::new();
    let memory = program.managed(8 << 20);
    let streams: Vec<_> = (0..4).map(|_| program.machine.stream()).collect();
    for round in 0..20 {
        (0..4).for_each(|index| set(memory, index * 400_000, round));
        for (index, stream) in streams.iter().enumerate() {
            program.add(at(memory) + index as u64 * 1_600_000, 1, *stream);
        }
        program.machine.synchronise();
        let found: Vec<_> = (0..4).map(|index| get(memory, index * 400_000)).collect();
        assert_eq!(found, [round + 1; 4]);
    }
    assert_eq!(program.free(at(memory)), CUDA_SUCCESS);
    program.machine.leave();
}

#[test]
fn copies_and_fills_take_managed_memory_on_either_side() {
    let program = Program::new();
    let (driver, memory) = (&program.machine.driver, program.managed(1 << 20));
    let device = program.machine.filled(&[9; 64]);
    (0..32).for_each(|index| set(memory, index, 5));
    let mut out = [0_u32; 16];
    // SAFETY: the memory is long enough on both sides.
    let copied = unsafe {
        [
            // From the host's side, then from the device's, to plain host memory.
            driver.cuMemcpyHtoD_v2(device, memory.cast(), 32),
            driver.cuMemcpyDtoH_v2(memory.add(16).cast(), device, 64),
            driver.cuMemsetD32_v2(at(memory), 3, 8),
            driver.cuMemcpy(out.as_mut_ptr().expose_provenance() as u64, at(memory), 64),
        ]
    };
    assert_eq!(copied, [CUDA_SUCCESS; 4]);
    assert_eq!(out, [3, 3, 3, 3, 3, 3, 3, 3, 5, 5, 5, 5, 5, 5, 5, 5]);
    assert_eq!([get(memory, 16), get(memory, 23)], [5; 2]);
    assert_eq!([get(memory, 24), get(memory, 31)], [0x0909_0909; 2]);
    assert_eq!(get(memory, 32), 0);
    assert_eq!(program.free(device), CUDA_SUCCESS);
    assert_eq!(program.free(at(memory)), CUDA_SUCCESS);
    program.machine.leave();
}

#[test]
fn many_threads_touch_pages_at_once() {
    let program = Program::new();
    let count = 4 << 20;
    let memory = program.managed(count * 4);
    program.add(at(memory), count, null_mut());
    program.machine.synchronise();
    let start = memory.expose_provenance();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                let memory = std::ptr::with_exposed_provenance_mut::<u32>(start);
                for index in (0..count).step_by(4096) {
                    assert_eq!(get(memory, index + 8 + thread), 1);
                    set(memory, index + thread, 10 + thread as u32);
                }
            });
        }
    });
    program.add(at(memory), count, null_mut());
    program.machine.synchronise();
    for index in (0..count).step_by(4096) {
        let found = [0, 1, 2, 3, 4].map(|offset| get(memory, index + offset));
        assert_eq!(found, [11, 12, 13, 14, 2]);
    }
    assert_eq!(program.free(at(memory)), CUDA_SUCCESS);
    program.machine.leave();
}

#[test]
fn memory_of_the_host_or_of_another_stream_is_left_alone_by_launches() {
    let program = Program::new();
    let (driver, stream) = (&program.machine.driver, program.machine.stream());
    let (memory, other) = (program.managed(1 << 20), program.machine.filled(&[0; 4]));
    let attach = |stream, flags| {
        // SAFETY: no pointers.
        unsafe { driver.cuStreamAttachMemAsync(stream, at(memory), 0, flags) }
    };
    assert_eq!(attach(stream, CU_MEM_ATTACH_HOST), CUDA_SUCCESS);
    set(memory, 0, 4);
    let (_, waits) = program.machine.costs(|_| {
        program.add(other, 1, stream);
        set(memory, 0, 5);
    });
    assert_eq!(waits, 0);
    assert_eq!(attach(stream, CU_MEM_ATTACH_SINGLE), CUDA_SUCCESS);
    program.add(other, 1, null_mut());
    set(memory, 0, 6);
    program.add(at(memory), 1, stream);
    program.machine.synchronise();
    assert_eq!(get(memory, 0), 7);
    assert_eq!(
        attach(null_mut(), CU_MEM_ATTACH_SINGLE),
        CUDA_ERROR_INVALID_VALUE
    );
    assert_eq!(attach(stream, 3), CUDA_ERROR_INVALID_VALUE);
    // SAFETY: no pointers.
    let none = unsafe { driver.cuStreamAttachMemAsync(stream, other, 0, 1) };
    assert_eq!(none, CUDA_ERROR_INVALID_VALUE);
    assert_eq!(program.free(other), CUDA_SUCCESS);
    assert_eq!(program.free(at(memory)), CUDA_SUCCESS);
    program.machine.leave();
}

#[test]
fn managed_memory_is_told_from_other_memory() {
    let program = Program::new();
    let (driver, memory) = (&program.machine.driver, program.managed(10_000));
    let (mut managed, mut kind, mut host, mut base, mut size) = (0_u32, 0_u32, 0_u64, 0, 0);
    // SAFETY: every answer has its room.
    let told = unsafe {
        let managed = (&raw mut managed).cast();
        let attribute = CU_POINTER_ATTRIBUTE_IS_MANAGED;
        [
            driver.cuPointerGetAttribute(managed, attribute, at(memory) + 8),
            driver.cuPointerGetAttribute(
                (&raw mut kind).cast(),
                CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                at(memory),
            ),
            driver.cuPointerGetAttribute(
                (&raw mut host).cast(),
                CU_POINTER_ATTRIBUTE_HOST_POINTER,
                at(memory) + 4,
            ),
            driver.cuMemGetAddressRange_v2(&raw mut base, &raw mut size, at(memory) + 100),
        ]
    };
    assert_eq!(told, [CUDA_SUCCESS; 4]);
    assert_eq!((managed & 0xff, kind), (1, CU_MEMORYTYPE_DEVICE));
    assert_eq!((host, base, size), (at(memory) + 4, at(memory), 10_000));
    assert_eq!(program.free(at(memory)), CUDA_SUCCESS);
    program.machine.leave();
}

fn at_device(id: CUdevice) -> CUmemLocation {
    CUmemLocation {
        r#type: CU_MEM_LOCATION_TYPE_DEVICE,
        either: CUmemLocation_either { id },
    }
}

fn at_host(kind: CUmemLocationType) -> CUmemLocation {
    CUmemLocation {
        r#type: kind,
        either: CUmemLocation_either { id: 0 },
    }
}

#[test]
fn hints_about_hosts_and_devices_are_kept() {
    let program = Program::new();
    let (driver, memory) = (&program.machine.driver, program.managed(10_000));
    let advise = |advice, device| {
        // SAFETY: no pointers.
        unsafe { driver.cuMemAdvise(at(memory), 10_000, advice, device) }
    };
    let tell = |attribute| {
        let mut value = 77_i32;
        let place = (&raw mut value).cast();
        // SAFETY: the value is a local.
        let told =
            unsafe { driver.cuMemRangeGetAttribute(place, 4, attribute, at(memory), 10_000) };
        assert_eq!(told, CUDA_SUCCESS);
        value
    };
    let preferred = CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION;
    assert_eq!(tell(preferred), CU_DEVICE_INVALID);
    assert_eq!(advise(CU_MEM_ADVISE_SET_READ_MOSTLY, 0), CUDA_SUCCESS);
    let set = CU_MEM_ADVISE_SET_PREFERRED_LOCATION;
    assert_eq!(advise(set, CU_DEVICE_CPU), CUDA_SUCCESS);
    assert_eq!(tell(preferred), CU_DEVICE_CPU);
    assert_eq!(advise(set, 0), CUDA_SUCCESS);
    assert_eq!(advise(CU_MEM_ADVISE_SET_ACCESSED_BY, 0), CUDA_SUCCESS);
    assert_eq!(tell(preferred), 0);
    assert_eq!(tell(CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY), 0);
    assert_eq!(tell(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY), 1);
    let stream = program.machine.stream();
    let (size, prefetched) = (10_000, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION);
    for place in [CU_DEVICE_CPU, 0] {
        // SAFETY: no pointers.
        let done = unsafe { driver.cuMemPrefetchAsync(at(memory), size, place, stream) };
        assert_eq!((done, tell(prefetched)), (CUDA_SUCCESS, place));
    }
    assert_eq!(program.free(at(memory)), CUDA_SUCCESS);
    program.machine.leave();
}

#[test]
fn hints_about_anything_else_are_refused() {
    let program = Program::new();
    let (driver, memory) = (&program.machine.driver, program.managed(10_000));
    let (stream, other) = (program.machine.stream(), program.machine.filled(&[0; 4]));
    let advise = |address, advice, location| {
        // SAFETY: no pointers.
        unsafe { driver.cuMemAdvise_v2(address, 4, advice, location) }
    };
    let prefetch = |address, size, location| {
        // SAFETY: no pointers.
        unsafe { driver.cuMemPrefetchAsync_v2(address, size, location, 0, stream) }
    };
    let preferred = CU_MEM_ADVISE_SET_PREFERRED_LOCATION;
    let accessed = CU_MEM_ADVISE_SET_ACCESSED_BY;
    let numa = at_host(CU_MEM_LOCATION_TYPE_HOST_NUMA);
    let advised = [
        advise(other, preferred, at_device(0)),
        advise(at(memory), preferred, at_device(7)),
        advise(at(memory), accessed, numa),
        advise(at(memory), 99, at_device(0)),
        advise(at(memory), preferred, numa),
    ];
    let refused = CUDA_ERROR_INVALID_VALUE;
    let expected = [
        refused,
        CUDA_ERROR_INVALID_DEVICE,
        refused,
        refused,
        CUDA_SUCCESS,
    ];
    assert_eq!(advised, expected);
    let prefetched = [
        prefetch(other, 4, at_device(0)),
        prefetch(at(memory), 10_001, at_device(0)),
        prefetch(at(memory), 0, at_device(0)),
        prefetch(at(memory), 4, at_device(7)),
        prefetch(at(memory), 4, at_host(0)),
    ];
    let expected = [
        refused,
        refused,
        refused,
        CUDA_ERROR_INVALID_DEVICE,
        refused,
    ];
    assert_eq!(prefetched, expected);
    assert_eq!(program.free(other), CUDA_SUCCESS);
    assert_eq!(program.free(at(memory)), CUDA_SUCCESS);
    program.machine.leave();
}

#[test]
fn batches_of_hints_are_taken_whole_or_not() {
    let program = Program::new();
    let (driver, stream) = (&program.machine.driver, program.machine.stream());
    let (one, two) = (program.managed(4096), program.managed(4096));
    let prefetch = |mut ranges: [u64; 3], mut from: [usize; 2], stream| {
        let mut sizes = [4096_usize; 3];
        let mut places = [at_device(0), at_host(CU_MEM_LOCATION_TYPE_HOST)];
        let (ranges, sizes) = (ranges.as_mut_ptr(), sizes.as_mut_ptr());
        let (places, from) = (places.as_mut_ptr(), from.as_mut_ptr());
        // SAFETY: the lists are as long as said.
        unsafe { driver.cuMemPrefetchBatchAsync(ranges, sizes, 3, places, from, 2, 0, stream) }
    };
    let last = |memory: *mut u32| {
        let (mut value, attribute) = (77_i32, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION);
        let place = (&raw mut value).cast();
        // SAFETY: the value is a local.
        let told = unsafe { driver.cuMemRangeGetAttribute(place, 4, attribute, at(memory), 4096) };
        (told, value)
    };
    let ranges = [at(one), at(one), at(two)];
    let refused = [
        prefetch([at(one), at(one), 16], [0, 2], stream),
        prefetch(ranges, [1, 2], stream),
        prefetch(ranges, [0, 3], stream),
        prefetch(ranges, [0, 2], null_mut()),
    ];
    assert_eq!(refused, [CUDA_ERROR_INVALID_VALUE; 4]);
    assert_eq!(last(one), (CUDA_SUCCESS, CU_DEVICE_INVALID));
    assert_eq!(prefetch(ranges, [0, 2], stream), CUDA_SUCCESS);
    assert_eq!([last(one).1, last(two).1], [0, CU_DEVICE_CPU]);
    let (mut list, mut size) = (at(one), 4096);
    // SAFETY: the lists are as long as said.
    let discarded =
        unsafe { driver.cuMemDiscardBatchAsync(&raw mut list, &raw mut size, 1, 0, stream) };
    assert_eq!(discarded, CUDA_SUCCESS);
    assert_eq!(
        [one, two].map(|memory| program.free(at(memory))),
        [CUDA_SUCCESS; 2]
    );
    program.machine.leave();
}

#[test]
fn host_that_looked_too_early_sees_kernel_writes() {
    let program = Program::new();
    let memory = program.managed(1 << 20);
    let held = program.held();
    program.add(at(memory), 4, held.stream);
    assert_eq!(get(memory, 0), 0, "the kernel has not run");
    held.let_go(&program);
    assert_eq!([get(memory, 0), get(memory, 3), get(memory, 4)], [1, 1, 0]);
    assert_eq!(program.free(at(memory)), CUDA_SUCCESS);
    program.machine.leave();
}

#[test]
fn host_writes_beside_running_kernel_keep_both() {
    let program = Program::new();
    let memory = program.managed(1 << 20);
    set(memory, 9, 3);
    let other = program.machine.filled(&[0; 4]);
    let held = program.held();
    program.add(at(memory), 4, held.stream);
    set(memory, 5, 7);
    // Work that has nothing to do with it takes the host's writes along.
    program.add(other, 1, program.machine.stream());
    set(memory, 6, 8);
    held.let_go(&program);
    let found = [0, 3, 4, 5, 6, 9].map(|index| get(memory, index));
    assert_eq!(found, [1, 1, 0, 7, 8, 3]);
    program.add(at(memory), 7, null_mut());
    program.machine.synchronise();
    assert_eq!([0, 5, 6, 9].map(|index| get(memory, index)), [2, 8, 9, 3]);
    assert_eq!(program.free(other), CUDA_SUCCESS);
    assert_eq!(program.free(at(memory)), CUDA_SUCCESS);
    program.machine.leave();
}

#[test]
fn host_and_kernel_that_write_the_same_bytes_fail_the_wait() {
    let program = Program::new();
    let memory = program.managed(1 << 20);
    let held = program.held();
    program.add(at(memory), 4, held.stream);
    set(memory, 0, 7);
    held.open();
    let driver = &program.machine.driver;
    // SAFETY: no pointers.
    let waits = [(); 2].map(|()| unsafe { driver.cuCtxSynchronize() });
    assert_eq!(waits, [CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_SUCCESS]);
    assert_eq!([get(memory, 0), get(memory, 1)], [7, 1]);
    assert_eq!(program.free(at(memory)), CUDA_SUCCESS);
    program.machine.leave();
}

#[test]
fn kernel_waiting_for_pinned_memory_sees_the_hosts_write() {
    let program = Program::new();
    let (driver, memory) = (
        &program.machine.driver,
        pinned(&program.machine, 1 << 20, 0),
    );
    let (stream, mut event) = (program.machine.stream(), null_mut());
    // SAFETY: the event is a local.
    let made = unsafe { driver.cuEventCreate(&raw mut event, 0) };
    assert_eq!(made, CUDA_SUCCESS);
    let asked = |query: &dyn Fn() -> CUresult| {
        std::iter::repeat_with(query).find(|told| *told != CUDA_ERROR_NOT_READY)
    };
    // SAFETY: the stream and the event live.
    let waits: [&dyn Fn() -> CUresult; 5] = unsafe {
        [
            &|| driver.cuStreamSynchronize(stream),
            &|| driver.cuCtxSynchronize(),
            &|| driver.cuEventSynchronize(event),
            &|| asked(&|| driver.cuStreamQuery(stream)).unwrap(),
            &|| asked(&|| driver.cuEventQuery(event)).unwrap(),
        ]
    };
    for wait in waits {
        set(memory, 0, 0);
        program.spin(at(memory), stream);
        // SAFETY: both live.
        let recorded = unsafe { driver.cuEventRecord(event, stream) };
        set(memory, 0, OPEN);
        assert_eq!([recorded, wait()], [CUDA_SUCCESS; 2]);
        assert_eq!(get(memory, 0), OPEN);
    }
    // SAFETY: it was made above.
    unsafe { driver.cuEventDestroy_v2(event) };
    free_pinned(&program.machine, memory);
    program.machine.leave();
}

/// Lets a kernel go on once what the host has written is on its way, which nobody waits for.
fn open_soon(open: impl FnOnce() + Send + 'static) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(200));
        open();
    })
}

#[test]
fn pinned_bytes_that_host_and_then_kernel_wrote_are_the_kernels() {
    let program = Program::new();
    let memory = pinned(&program.machine, 1 << 20, 0);
    let driver = &program.machine.driver;
    let held = program.held();
    program.add(at(memory), 2, held.stream);
    set(memory, 0, 7);
    // SAFETY: the stream lives.
    let asked = unsafe { driver.cuStreamQuery(held.stream) };
    assert_eq!(asked, CUDA_ERROR_NOT_READY);
    let opened = open_soon(held.opener());
    program.machine.synchronise();
    opened.join().unwrap();
    assert_eq!([get(memory, 0), get(memory, 1)], [8, 1]);
    free_pinned(&program.machine, memory);
    program.machine.leave();
}

#[test]
fn host_sees_copies_that_running_kernels_hold_up() {
    let program = Program::new();
    let (driver, memory, own) = (
        &program.machine.driver,
        program.managed(1 << 20),
        program.machine.stream(),
    );
    let (seven, eight) = ([7_u32; 4], [8_u32; 4]);
    let opened = open_soon(program.held_on(null_mut()).opener());
    // SAFETY: the numbers are readable.
    let copied = unsafe { driver.cuMemcpyHtoD_v2(at(memory), seven.as_ptr().cast(), 16) };
    assert_eq!((copied, get(memory, 0)), (CUDA_SUCCESS, 7));
    opened.join().unwrap();
    program.machine.synchronise();
    let other = program.held();
    let mut event = null_mut();
    // SAFETY: the event is a local, the streams live, and the numbers are readable.
    let posted = unsafe {
        [
            driver.cuEventCreate(&raw mut event, CU_EVENT_DISABLE_TIMING),
            driver.cuEventRecord(event, other.stream),
            driver.cuStreamWaitEvent(own, event, 0),
            driver.cuStreamSynchronize(program.machine.stream()),
            driver.cuMemcpyHtoDAsync_v2(at(memory), eight.as_ptr().cast(), 16, own),
        ]
    };
    let opened = open_soon(other.opener());
    // SAFETY: the stream lives.
    let waited = unsafe { driver.cuStreamSynchronize(own) };
    assert_eq!((posted, waited), ([CUDA_SUCCESS; 5], CUDA_SUCCESS));
    assert_eq!(get(memory, 0), 8);
    opened.join().unwrap();
    // SAFETY: it was made above.
    unsafe { driver.cuEventDestroy_v2(event) };
    assert_eq!(program.free(at(memory)), CUDA_SUCCESS);
    program.machine.leave();
}

#[test]
fn free_whose_wait_fails_frees() {
    let program = Program::new();
    let bytes = || program.machine.nulls[0].allocated_bytes();
    let other = program.machine.filled(&[0; 4]);
    let held = program.held();
    let before = bytes();
    let memory = program.managed(1 << 20);
    program.add(at(memory), 4, held.stream);
    set(memory, 0, 7);
    let opened = open_soon(held.opener());
    assert_eq!(program.free(at(memory)), CUDA_ERROR_ILLEGAL_ADDRESS);
    opened.join().unwrap();
    // Answered behind all that was posted.
    assert_eq!(program.machine.bytes(other, 4), [0; 4]);
    assert_eq!(bytes(), before);
    program.machine.leave();
}

#[test]
fn memory_freed_at_once_waits_for_its_zeros() {
    let program = Program::new();
    program.managed(1 << 20);
    let memory = program.managed(1 << 20);
    let free = |driver: &towline_cuda::Driver| {
        // SAFETY: it was allocated, and nobody uses it.
        unsafe { driver.cuMemFree_v2(at(memory)) }
    };
    let (freed, waits) = program.machine.costs(free);
    // For the zeros, which are written on a stream of the driver's own, and for the end of the mapping.
    assert_eq!((freed, waits), (CUDA_SUCCESS, 2));
    program.machine.leave();
}

#[test]
fn memory_of_a_stream_that_ended_is_everybodys() {
    let program = Program::new();
    let (driver, stream) = (&program.machine.driver, program.machine.stream());
    let memory = program.managed(1 << 20);
    // SAFETY: no pointers.
    let ended = unsafe {
        [
            driver.cuStreamAttachMemAsync(stream, at(memory), 0, CU_MEM_ATTACH_SINGLE),
            driver.cuStreamDestroy_v2(stream),
        ]
    };
    set(memory, 0, 6);
    program.add(at(memory), 1, null_mut());
    program.machine.synchronise();
    assert_eq!((ended, get(memory, 0)), ([CUDA_SUCCESS; 2], 7));
    assert_eq!(program.free(at(memory)), CUDA_SUCCESS);
    program.machine.leave();
}

#[test]
fn kernel_behind_host_function_sees_its_writes() {
    unsafe extern "C" fn write(memory: *mut std::ffi::c_void) {
        set(memory.cast(), 0, 7);
    }
    let program = Program::new();
    let (driver, memory, stream) = (
        &program.machine.driver,
        program.managed(1 << 20),
        program.machine.stream(),
    );
    program.add(at(memory), 2, stream);
    // SAFETY: the memory lives until the function has run.
    let posted = unsafe { driver.cuLaunchHostFunc(stream, Some(write), memory.cast()) };
    assert_eq!(posted, CUDA_SUCCESS);
    program.add(at(memory), 2, stream);
    program.machine.synchronise();
    assert_eq!([get(memory, 0), get(memory, 1)], [8, 2]);
    assert_eq!(program.free(at(memory)), CUDA_SUCCESS);
    program.machine.leave();
}

/// The next of a queue that threads share.
fn take<T>(queue: &Mutex<impl Iterator<Item = T>>) -> Option<T> {
    queue.lock().unwrap().next()
}

#[test]
fn tasks_of_host_and_device_on_many_threads_are_right() {
    const THREADS: usize = 4;
    const TASKS: usize = 60;
    for on_this_host in [false, true] {
        let program = Program::on(match on_this_host {
            true => Machine::on_this_host(&[1]),
            false => Machine::new(),
        });
        let tasks: Vec<(usize, usize)> = (0..TASKS)
            .map(|task| {
                let (count, memory) = (100 + task * 997 % 40_000, program.managed(40_100 * 4));
                (0..count).for_each(|index| set(memory, index, (task + index) as u32));
                (memory.expose_provenance(), count)
            })
            .collect();
        let streams: Vec<usize> = (0..THREADS)
            .map(|_| program.machine.stream().expose_provenance())
            .collect();
        let (adder, queue) = (program.adder(), Mutex::new(tasks.iter().enumerate()));
        std::thread::scope(|scope| {
            for stream in &streams {
                let (adder, queue) = (&adder, &queue);
                scope.spawn(move || {
                    adder.enter();
                    let stream = std::ptr::with_exposed_provenance_mut(*stream);
                    while let Some((task, (memory, count))) = take(queue) {
                        let memory = std::ptr::with_exposed_provenance_mut::<u32>(*memory);
                        match task % 3 {
                            0 => (0..*count)
                                .for_each(|index| set(memory, index, get(memory, index) + 1)),
                            _ => assert_eq!(adder.add(at(memory), *count, stream), CUDA_SUCCESS),
                        }
                    }
                });
            }
        });
        program.machine.synchronise();
        for (task, (memory, count)) in tasks.iter().enumerate() {
            let memory = std::ptr::with_exposed_provenance_mut::<u32>(*memory);
            let wrong = (0..*count).find(|index| get(memory, *index) != (task + index + 1) as u32);
            assert_eq!(wrong, None, "of {count} in task {task}");
            assert_eq!(program.free(at(memory)), CUDA_SUCCESS);
        }
        program.machine.leave();
    }
}

fn pinned(machine: &Machine, size: usize, flags: u32) -> *mut u32 {
    let mut memory = null_mut();
    // SAFETY: the place is a local.
    let made = unsafe { machine.driver.cuMemHostAlloc(&raw mut memory, size, flags) };
    assert_eq!(made, CUDA_SUCCESS);
    memory.cast()
}

fn free_pinned(machine: &Machine, memory: *mut u32) {
    // SAFETY: the memory was allocated so.
    let freed = unsafe { machine.driver.cuMemFreeHost(memory.cast()) };
    assert_eq!(freed, CUDA_SUCCESS);
}

#[test]
fn kernels_reach_pinned_memory_by_its_device_pointer_or_its_own() {
    let program = Program::new();
    let driver = &program.machine.driver;
    for ask in [true, false] {
        let memory = pinned(&program.machine, 100_000, CU_MEMHOSTALLOC_DEVICEMAP);
        (0..100).for_each(|index| set(memory, index, 3));
        let mut device = at(memory);
        if ask {
            // SAFETY: the pointer is a local.
            let told =
                unsafe { driver.cuMemHostGetDevicePointer_v2(&raw mut device, memory.cast(), 0) };
            assert_eq!((told, device), (CUDA_SUCCESS, at(memory)));
        }
        for round in 1..4 {
            program.add(device, 100, null_mut());
            program.machine.synchronise();
            assert_eq!([get(memory, 0), get(memory, 99)], [3 + round; 2]);
            assert_eq!(get(memory, 100), 0);
        }
        // Copies see what both have written.
        let other = program.machine.filled(&[1; 8]);
        // SAFETY: the memory is long enough.
        let copied = unsafe {
            let to = memory.add(1).cast();
            let stream = null_mut();
            [
                driver.cuMemcpyDtoHAsync_v2(to, other, 8, stream),
                driver.cuMemcpyHtoD_v2(other, memory.cast(), 8),
            ]
        };
        assert_eq!(copied, [CUDA_SUCCESS; 2]);
        assert_eq!(program.machine.bytes(other, 8), [6, 0, 0, 0, 1, 1, 1, 1]);
        assert_eq!(program.free(other), CUDA_SUCCESS);
        free_pinned(&program.machine, memory);
    }
    program.machine.leave();
}

#[test]
fn pinned_memory_named_in_a_copied_table_is_for_kernels() {
    let program = Program::new();
    let driver = &program.machine.driver;
    let memory = pinned(&program.machine, 100_000, 0);
    let table = program.machine.filled(&[0; 32]);
    // The first launch of a kernel waits.
    program.add(table, 1, null_mut());
    let entries = [0, at(memory) + 40, 7];
    // SAFETY: the entries are there.
    let copied = unsafe { driver.cuMemcpyHtoD_v2(table, entries.as_ptr().cast(), 24) };
    assert_eq!(copied, CUDA_SUCCESS);
    let mut device = 0;
    let (told, waits) = program.machine.costs(|driver| {
        // SAFETY: the place is a local.
        unsafe { driver.cuMemHostGetDevicePointer_v2(&raw mut device, memory.cast(), 0) }
    });
    assert_eq!((told, waits), (CUDA_SUCCESS, 0), "it was there");
    program.add(at(memory), 100, null_mut());
    program.machine.synchronise();
    assert_eq!(
        [get(memory, 0), get(memory, 99), get(memory, 100)],
        [1, 1, 0]
    );
    free_pinned(&program.machine, memory);
    program.machine.leave();
}

#[test]
fn pinned_memory_that_no_kernel_uses_stays_as_it_is() {
    let program = Program::new();
    let driver = &program.machine.driver;
    let memory = pinned(&program.machine, 5000, 0);
    let mut device = 0;
    // SAFETY: the place is a local.
    let refused = unsafe { driver.cuMemHostGetDevicePointer_v2(&raw mut device, memory.cast(), 1) };
    assert_eq!(refused, CUDA_ERROR_INVALID_VALUE);
    set(memory, 0, 1);
    let other = program.machine.filled(&[0; 4]);
    let ((), waits) = program.machine.costs(|_| program.add(other, 1, null_mut()));
    assert_eq!(waits, 0);
    assert_eq!(program.free(other), CUDA_SUCCESS);
    free_pinned(&program.machine, memory);
    program.machine.leave();
}

#[test]
fn freeing_no_pinned_memory_does_nothing() {
    let program = Program::new();
    // SAFETY: NULL is no memory.
    let freed = unsafe { program.machine.driver.cuMemFreeHost(null_mut()) };
    assert_eq!(freed, CUDA_SUCCESS);
    program.machine.leave();
}

#[test]
fn what_cannot_be_managed_is_refused() {
    let program = Program::new();
    let driver = &program.machine.driver;
    let mut address = 0;
    // SAFETY: the address is a local.
    let refused = unsafe {
        [
            driver.cuMemAllocManaged(&raw mut address, 0, CU_MEM_ATTACH_GLOBAL),
            driver.cuMemAllocManaged(&raw mut address, 8, CU_MEM_ATTACH_SINGLE),
            driver.cuMemAllocManaged(null_mut(), 8, CU_MEM_ATTACH_GLOBAL),
            driver.cuMemFree_v2(0x1234),
        ]
    };
    assert_eq!(refused, [CUDA_ERROR_INVALID_VALUE; 4]);
    // SAFETY: as above.
    let large =
        unsafe { driver.cuMemAllocManaged(&raw mut address, 100 << 30, CU_MEM_ATTACH_GLOBAL) };
    assert_eq!(large, CUDA_ERROR_OUT_OF_MEMORY);
    program.machine.leave();
}
