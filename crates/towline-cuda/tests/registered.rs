//! Memory that the application has registered, and kernels reach: what either side changes the other sees where CUDA says so, and what
//! lies beside it is left alone.
#![allow(
    clippy::multiple_unsafe_ops_per_block,
    reason = "calls of the C interface stand side by side"
)]

mod support;

use std::ffi::c_void;
use std::io::{Read, Write};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};

use support::{ADD_ONE, Machine, Program};
use towline_backend::cuda::*;

impl Program {
    /// Registers `words`, and gives where kernels find them.
    fn register(&self, words: &[AtomicU32]) -> CUdeviceptr {
        let (start, size) = (begin(words), size_of_val(words));
        // SAFETY: the words are there until they are unregistered.
        let registered = unsafe {
            let driver = &self.machine.driver;
            driver.cuMemHostRegister_v2(start, size, CU_MEMHOSTREGISTER_DEVICEMAP)
        };
        assert_eq!(registered, CUDA_SUCCESS);
        self.device_pointer(start)
    }

    fn device_pointer(&self, start: *mut c_void) -> CUdeviceptr {
        let mut device = 0;
        // SAFETY: the place is a local.
        let told = unsafe {
            let driver = &self.machine.driver;
            driver.cuMemHostGetDevicePointer_v2(&raw mut device, start, 0)
        };
        assert_eq!(told, CUDA_SUCCESS);
        device
    }

    fn unregister(&self, words: &[AtomicU32]) {
        // SAFETY: they were registered.
        let ended = unsafe { self.machine.driver.cuMemHostUnregister(begin(words)) };
        assert_eq!(ended, CUDA_SUCCESS);
    }
}

/// Words that both sides change: the device behind the compiler's back.
fn words(count: usize) -> Vec<AtomicU32> {
    (0..count).map(|_| AtomicU32::new(0)).collect()
}

fn begin(words: &[AtomicU32]) -> *mut c_void {
    let start: *mut c_void = words.as_ptr().cast_mut().cast();
    start.expose_provenance();
    start
}

fn get(word: &AtomicU32) -> u32 {
    word.load(Ordering::Relaxed)
}

fn set(word: &AtomicU32, value: u32) {
    word.store(value, Ordering::Relaxed);
}

/// Within one page, over the edge of two, and pages with parts of others before and behind.
const RANGES: [std::ops::Range<usize>; 4] = [3..4, 1000..1100, 100..3000, 100..100_003];

#[test]
fn both_sides_see_what_the_other_changed_and_neighbours_stay() {
    for on_this_host in [false, true] {
        let program = Program::on(match on_this_host {
            true => Machine::on_this_host(&[1]),
            false => Machine::new(),
        });
        for range in RANGES {
            let all = words(range.end + 2000);
            let mine = &all[range.clone()];
            (0..all.len()).for_each(|at| set(&all[at], at as u32));
            let device = program.register(mine);
            for round in 1..4 {
                program.add(device, mine.len(), null_mut());
                // Beside it the host goes on meanwhile.
                set(&all[range.start - 1], round);
                set(&all[range.end], round);
                program.machine.synchronise();
                for (at, word) in mine.iter().enumerate() {
                    assert_eq!(get(word), (range.start + at) as u32 + round, "{range:?}");
                }
                assert_eq!(
                    [get(&all[range.start - 1]), get(&all[range.end])],
                    [round; 2]
                );
            }
            // What the host changes is changed for the device, at both ends and within.
            for at in [0, mine.len() / 2, mine.len() - 1] {
                set(&mine[at], 7);
                program.add(device, mine.len(), null_mut());
                program.machine.synchronise();
                assert_eq!(get(&mine[at]), 8, "{range:?}, {at}");
            }
            program.add(device, mine.len(), null_mut());
            let before = get(&all[range.end + 1]);
            program.unregister(mine);
            assert_eq!(get(&mine[mine.len() - 1]), 9, "what ends it waits");
            assert_eq!(get(&all[range.end + 1]), before);
            all.iter().for_each(|word| set(word, 0));
            let freed = [device, device + 1].map(|address| {
                // SAFETY: no pointers.
                unsafe { program.machine.driver.cuMemFree_v2(address) }
            });
            assert_eq!(freed, [CUDA_ERROR_INVALID_VALUE; 2]);
        }
        program.machine.leave();
    }
}

#[test]
fn rectangles_on_registered_memory_are_there_on_return() {
    let program = Program::new();
    let (driver, all) = (&program.machine.driver, words(64));
    let device = program.register(&all);
    let kinds = [CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_DEVICE];
    for (kind, value) in kinds.into_iter().zip([7_u8, 9]) {
        let source = program.machine.filled(&[value; 256]);
        let copy = CUDA_MEMCPY2D {
            srcXInBytes: 0,
            srcY: 0,
            srcMemoryType: CU_MEMORYTYPE_DEVICE,
            srcHost: std::ptr::null(),
            srcDevice: source,
            srcArray: null_mut(),
            srcPitch: 64,
            dstXInBytes: 0,
            dstY: 0,
            dstMemoryType: kind,
            dstHost: begin(&all),
            dstDevice: device,
            dstArray: null_mut(),
            dstPitch: 64,
            WidthInBytes: 32,
            Height: 4,
        };
        // SAFETY: the words hold the rectangle.
        let copied = unsafe { driver.cuMemcpy2D_v2(&raw const copy) };
        assert_eq!(copied, CUDA_SUCCESS);
        let expected = u32::from_ne_bytes([value; 4]);
        assert_eq!(
            [get(&all[0]), get(&all[55]), get(&all[8])],
            [expected, expected, 0]
        );
        assert_eq!(program.free(source), CUDA_SUCCESS);
    }
    program.unregister(&all);
    program.machine.leave();
}

#[test]
fn registration_ends_with_its_context() {
    let machine = Machine::new();
    let (driver, all) = (&machine.driver, words(4096));
    let register = || {
        // SAFETY: the words are there as long as the machine.
        unsafe { driver.cuMemHostRegister_v2(begin(&all), size_of_val(&all[..]), 0) }
    };
    for _ in 0..2 {
        assert_eq!(register(), CUDA_SUCCESS);
        assert_eq!(register(), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
        // SAFETY: no pointers.
        let ended = unsafe { driver.cuDevicePrimaryCtxRelease_v2(0) };
        assert_eq!(ended, CUDA_SUCCESS);
        let mut context = null_mut();
        // SAFETY: the context is a local.
        let made = unsafe { driver.cuDevicePrimaryCtxRetain(&raw mut context, 0) };
        assert_eq!(made, CUDA_SUCCESS);
    }
    machine.leave();
}

#[test]
fn ranges_that_cannot_be_registered_are_refused() {
    let program = Program::new();
    let all = words(64);
    let mine = &all[8..16];
    let register = |start: *mut c_void, size, flags| {
        // SAFETY: nothing is done with the memory.
        unsafe {
            program
                .machine
                .driver
                .cuMemHostRegister_v2(start, size, flags)
        }
    };
    assert_eq!(register(begin(mine), 32, 0x10), CUDA_ERROR_INVALID_VALUE);
    let nowhere = std::ptr::without_provenance_mut(0x10_0000);
    assert_eq!(register(nowhere, 4096, 0), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(register(begin(mine), 32, 0), CUDA_SUCCESS);
    for around in [&all[..], &all[..9], &all[15..], mine] {
        let refused = register(begin(around), size_of_val(around), 0);
        assert_eq!(refused, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    }
    assert_eq!(register(begin(&all[16..]), 32, 0), CUDA_SUCCESS);
    program.unregister(mine);
    program.unregister(&all[16..]);
    program.machine.leave();
}

#[test]
fn what_lies_beside_registered_memory_is_the_systems_to_use() {
    let program = Program::new();
    for range in RANGES {
        let all = words(range.end + 2000);
        let mine = &all[range.clone()];
        let device = program.register(mine);
        program.add(device, mine.len(), null_mut());
        program.machine.synchronise();
        program.add(device, mine.len(), null_mut());
        let (mut reading, mut writing) = std::io::pipe().unwrap();
        for beside in [
            &all[range.start - 2..range.start],
            &all[range.end..range.end + 2],
        ] {
            // SAFETY: the words outlive the slice, and nobody changes them meanwhile.
            let bytes = unsafe { std::slice::from_raw_parts(begin(beside).cast::<u8>(), 8) };
            writing
                .write_all(bytes)
                .expect("no page of these is protected");
            let mut back = [1; 8];
            reading.read_exact(&mut back).unwrap();
            assert_eq!(back, [0; 8]);
        }
        program.unregister(mine);
    }
    program.machine.leave();
}

#[test]
fn launches_wait_for_nothing_and_a_wait_behind_them_costs_one_more() {
    let program = Program::new();
    let (all, others) = (words(5000), words(10));
    let (mine, few) = (&all[1..3], &others[2..5]);
    let (device, there) = (program.register(mine), program.register(few));
    let ((), waits) = program.machine.costs(|_| {
        set(&mine[0], 5);
        (0..10).for_each(|_| program.add(device, 2, null_mut()));
    });
    assert_eq!(waits, 0);
    let ((), waits) = program.machine.costs(|_| program.machine.synchronise());
    assert_eq!(
        waits, 2,
        "one for the device, one for all that it may have changed"
    );
    assert_eq!([get(&mine[0]), get(&mine[1])], [15, 10]);
    let ((), waits) = program.machine.costs(|_| {
        program.machine.synchronise();
        set(&mine[1], 1);
        program.machine.synchronise();
    });
    assert_eq!(waits, 0, "nothing has run since");
    program.add(there, 3, null_mut());
    program.machine.synchronise();
    assert_eq!([get(&mine[1]), get(&few[2])], [1, 1]);
    program.unregister(mine);
    program.unregister(few);
    let plain = program.machine.filled(&[0; 4]);
    let ((), waits) = program.machine.costs(|_| {
        program.add(plain, 1, null_mut());
        program.machine.synchronise();
    });
    assert_eq!(waits, 1);
    program.machine.leave();
}

#[test]
fn every_way_to_wait_shows_what_has_changed() {
    let program = Program::new();
    let (driver, stream) = (&program.machine.driver, program.machine.stream());
    let mut event = null_mut();
    // SAFETY: the handle is a local.
    let made = unsafe { driver.cuEventCreate(&raw mut event, 0) };
    assert_eq!(made, CUDA_SUCCESS);
    let all = words(20_000);
    let mine = &all[1..19_000];
    let device = program.register(mine);
    let other = program.machine.filled(&[0; 8]);
    unsafe extern "C" fn look(word: *mut c_void) {
        // SAFETY: the test gives two words: the second tells what the first is seen to be.
        let words = unsafe { std::slice::from_raw_parts(word.cast::<AtomicU32>(), 2) };
        set(&words[1], get(&words[0]) + 100);
    }
    let until = |done: &dyn Fn() -> CUresult| {
        for _ in 0..10_000 {
            match done() {
                CUDA_ERROR_NOT_READY => std::thread::sleep(std::time::Duration::from_millis(1)),
                status => return status,
            }
        }
        CUDA_ERROR_NOT_READY
    };
    let (mut back, mut box_back) = (0_u32, [0_u32; 2]);
    let rows = CUDA_MEMCPY2D {
        srcMemoryType: CU_MEMORYTYPE_DEVICE,
        srcDevice: other,
        ..read_back(null_mut(), &mut box_back)
    };
    // SAFETY: handles are live, and places locals.
    let waits: [&mut dyn FnMut() -> CUresult; 7] = unsafe {
        [
            &mut || driver.cuStreamSynchronize(stream),
            &mut || driver.cuCtxSynchronize(),
            &mut || driver.cuEventSynchronize(event),
            &mut || until(&|| driver.cuStreamQuery(stream)),
            &mut || until(&|| driver.cuEventQuery(event)),
            // Into pageable memory: returns when it is done.
            &mut || driver.cuMemcpyDtoHAsync_v2((&raw mut back).cast(), other, 4, stream),
            &mut || driver.cuMemcpy2DAsync_v2(&raw const rows, stream),
        ]
    };
    for (round, wait) in (1..).zip(waits) {
        program.add(device, mine.len(), stream);
        // SAFETY: the handles are live.
        let recorded = unsafe { driver.cuEventRecord(event, stream) };
        assert_eq!([recorded, wait()], [CUDA_SUCCESS; 2]);
        assert_eq!(
            [get(&mine[0]), get(&mine[10_000]), get(&mine[18_998])],
            [round; 3]
        );
    }
    // A function of the host's in the stream's order looks before the host has waited.
    program.add(device, mine.len(), stream);
    // SAFETY: the words live until the stream has been waited for.
    let waited = unsafe {
        let data = begin(mine);
        let launched = driver.cuLaunchHostFunc(stream, Some(look), data);
        let waited = driver.cuStreamSynchronize(stream);
        [launched, waited]
    };
    assert_eq!(waited, [CUDA_SUCCESS; 2]);
    assert_eq!([get(&mine[0]), get(&mine[1])], [8, 108]);
    program.unregister(mine);
    program.machine.leave();
}

/// One row of the host's memory to some of its own.
fn read_back(from: *mut c_void, back: &mut [u32]) -> CUDA_MEMCPY2D {
    CUDA_MEMCPY2D {
        srcXInBytes: 0,
        srcY: 0,
        srcMemoryType: CU_MEMORYTYPE_HOST,
        srcHost: from,
        srcDevice: 0,
        srcArray: null_mut(),
        srcPitch: 0,
        dstXInBytes: 0,
        dstY: 0,
        dstMemoryType: CU_MEMORYTYPE_HOST,
        dstHost: back.as_mut_ptr().cast(),
        dstDevice: 0,
        dstArray: null_mut(),
        dstPitch: 0,
        WidthInBytes: size_of_val(back),
        Height: 1,
    }
}

#[test]
fn copies_go_to_and_from_what_the_device_has() {
    let program = Program::new();
    let driver = &program.machine.driver;
    for range in RANGES {
        let all = words(range.end + 2000);
        let mine = &all[range.clone()];
        let size = size_of_val(mine);
        let device = program.register(mine);
        let other = program.machine.allocate(size);
        program.add(device, mine.len(), null_mut());
        let (own, plain) = (begin(mine), words(mine.len()));
        let at = |pointer: *mut c_void| pointer.expose_provenance() as u64;
        // SAFETY: every range is long enough.
        let copied = unsafe {
            [
                // Behind the kernel, though nobody has waited.
                driver.cuMemcpyHtoDAsync_v2(other, own, size, null_mut()),
                driver.cuMemcpyDtoH_v2(begin(&plain), other, size),
            ]
        };
        assert_eq!(copied, [CUDA_SUCCESS; 2]);
        assert!(plain.iter().all(|word| get(word) == 1), "{range:?}");
        program.add(other, mine.len(), null_mut());
        // SAFETY: as above.
        let copied = unsafe { driver.cuMemcpyDtoHAsync_v2(own, other, size, null_mut()) };
        assert_eq!(copied, CUDA_SUCCESS);
        program.machine.synchronise();
        assert!(mine.iter().all(|word| get(word) == 2), "{range:?}");
        plain.iter().for_each(|word| set(word, 9));
        // SAFETY: as above.
        let copied = unsafe {
            [
                driver.cuMemcpy(at(own), at(begin(&plain)), size),
                driver.cuMemcpy(at(begin(&plain)), device, size),
                driver.cuMemcpy(other, at(own), size),
            ]
        };
        assert_eq!(copied, [CUDA_SUCCESS; 3]);
        assert!(
            plain.iter().chain(mine).all(|word| get(word) == 9),
            "{range:?}"
        );
        assert_eq!(program.machine.bytes(other, 4), [9, 0, 0, 0]);
        // SAFETY: the memory is there on both sides.
        let beyond = unsafe {
            [
                driver.cuMemcpyHtoD_v2(other, own, size + 4),
                driver.cuMemcpyDtoH_v2(begin(&all[range.start - 1..]), other, 8),
            ]
        };
        assert_eq!(beyond, [CUDA_ERROR_INVALID_VALUE; 2]);
        program.add(device, mine.len(), null_mut());
        let mut back = [0_u32; 1];
        let mut rows = read_back(own, &mut back);
        // SAFETY: as above.
        let copied = unsafe { driver.cuMemcpy2D_v2(&raw const rows) };
        assert_eq!((copied, back), (CUDA_SUCCESS, [10]), "{range:?}");
        rows.WidthInBytes = size + 4;
        // SAFETY: nothing is copied.
        let beyond = unsafe { driver.cuMemcpy2D_v2(&raw const rows) };
        assert_eq!(beyond, CUDA_ERROR_INVALID_VALUE, "{range:?}");
        program.unregister(mine);
    }
    program.machine.leave();
}

#[test]
fn graphs_copy_what_the_device_has_and_the_host_sees_what_they_changed() {
    let program = Program::new();
    let (driver, stream) = (&program.machine.driver, program.machine.stream());
    for range in RANGES {
        let all = words(range.end + 2000);
        let mine = &all[range.clone()];
        let (device, size) = (program.register(mine), size_of_val(mine));
        let other = program.machine.allocate(size);
        let (mut graph, mut exec) = (null_mut(), null_mut());
        // SAFETY: the stream is live; both ranges are long enough whenever the graph runs.
        let begun = unsafe {
            let begun = driver.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
            program.add(device, mine.len(), stream);
            let copied = driver.cuMemcpyHtoDAsync_v2(other, begin(mine), size, stream);
            [begun, copied]
        };
        assert_eq!(begun, [CUDA_SUCCESS; 2]);
        // SAFETY: as above.
        let made = unsafe {
            let ended = driver.cuStreamEndCapture(stream, &raw mut graph);
            [
                ended,
                driver.cuGraphInstantiateWithFlags(&raw mut exec, graph, 0),
            ]
        };
        assert_eq!(made, [CUDA_SUCCESS; 2]);
        for round in 1..4 {
            set(&mine[mine.len() - 1], 10 * round);
            // SAFETY: the handles are live.
            let run = unsafe {
                let launched = driver.cuGraphLaunch(exec, stream);
                [launched, driver.cuStreamSynchronize(stream)]
            };
            assert_eq!(run, [CUDA_SUCCESS; 2]);
            let last = 10 * round + 1;
            assert_eq!(get(&mine[mine.len() - 1]), last, "{range:?}");
            let there = program.machine.bytes(other + size as u64 - 4, 4);
            assert_eq!(there, last.to_le_bytes(), "{range:?}");
        }
        program.unregister(mine);
    }
    program.machine.leave();
}

#[test]
fn pointers_to_either_side_are_told_for_what_they_are() {
    let program = Program::new();
    let driver = &program.machine.driver;
    let all = words(100);
    let mine = &all[10..20];
    let own = begin(mine).addr() as u64;
    let device = program.register(mine);
    assert_ne!(device, own);
    assert_eq!(program.device_pointer(begin(&mine[3..])), device + 12);
    assert_eq!(program.device_pointer(begin(mine)), device, "there is one");
    let tell = |attribute, address| {
        let mut value = 0_u64;
        let place = (&raw mut value).cast();
        // SAFETY: no answer is longer than the place.
        let told = unsafe { driver.cuPointerGetAttribute(place, attribute, address) };
        assert_eq!(told, CUDA_SUCCESS);
        value
    };
    for address in [own + 4, device + 4] {
        assert_eq!(
            tell(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address),
            CU_MEMORYTYPE_HOST.into()
        );
        assert_eq!(tell(CU_POINTER_ATTRIBUTE_HOST_POINTER, address), own + 4);
        let there = CU_POINTER_ATTRIBUTE_DEVICE_POINTER;
        assert_eq!(tell(there, address), device + 4);
    }
    let mut equal = 1;
    // SAFETY: the place is a local.
    let told = unsafe {
        let attribute = CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM;
        driver.cuDeviceGetAttribute(&raw mut equal, attribute, 0)
    };
    assert_eq!((told, equal), (CUDA_SUCCESS, 0));
    program.unregister(mine);
    program.machine.leave();
}

#[test]
fn a_context_that_ends_leaves_the_memory_with_the_application() {
    let program = Program::new();
    let driver = &program.machine.driver;
    let (all, mut context) = (words(50_000), null_mut());
    // SAFETY: the handle is a local.
    let made = unsafe { driver.cuCtxCreate_v2(&raw mut context, 0, 0) };
    assert_eq!(made, CUDA_SUCCESS);
    let (mut module, mut add_one) = (null_mut(), null_mut());
    // SAFETY: as in `Program::on`.
    let loaded = unsafe {
        let loaded = driver.cuModuleLoadData(&raw mut module, ADD_ONE.as_ptr().cast());
        let found = driver.cuModuleGetFunction(&raw mut add_one, module, c"add_one".as_ptr());
        [loaded, found]
    };
    assert_eq!(loaded, [CUDA_SUCCESS; 2]);
    let mine = &all[1..49_000];
    let mut address = program.register(mine);
    let mut count = mine.len() as u32;
    let mut params: [*mut c_void; 2] = [(&raw mut address).cast(), (&raw mut count).cast()];
    let params = params.as_mut_ptr();
    // SAFETY: there is a pointer for each parameter; the context is this thread's.
    let ended = unsafe {
        let stream = null_mut();
        [
            driver.cuLaunchKernel(add_one, 1, 1, 1, 1, 1, 1, 0, stream, params, null_mut()),
            driver.cuCtxDestroy_v2(context),
        ]
    };
    assert_eq!(ended, [CUDA_SUCCESS; 2]);
    assert!(mine.iter().all(|word| get(word) == 1));
    all.iter().for_each(|word| set(word, 3));
    program.unregister(mine);
    program.machine.leave();
}

#[test]
fn what_the_device_cannot_have_is_refused() {
    let program = Program::new();
    let driver = &program.machine.driver;
    let mut device = 0;
    let mut unknown = 0_u32;
    // SAFETY: places are locals.
    let refused = unsafe {
        [
            driver.cuMemHostGetDevicePointer_v2(&raw mut device, (&raw mut unknown).cast(), 0),
            driver.cuMemHostGetDevicePointer_v2(&raw mut device, (&raw mut unknown).cast(), 1),
            driver.cuMemHostUnregister((&raw mut unknown).cast()),
        ]
    };
    assert_eq!(
        refused,
        [
            CUDA_ERROR_INVALID_VALUE,
            CUDA_ERROR_INVALID_VALUE,
            CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED
        ]
    );
    // Memory that other processes may write is seen by none of ours.
    let shared = shared_pages(1 << 20);
    // SAFETY: the mapping lives as long as the process.
    let refused = unsafe {
        [
            driver.cuMemHostRegister_v2(shared, 1 << 20, CU_MEMHOSTREGISTER_DEVICEMAP),
            driver.cuMemHostGetDevicePointer_v2(&raw mut device, shared, 0),
            driver.cuMemHostUnregister(shared),
        ]
    };
    assert_eq!(
        refused,
        [CUDA_SUCCESS, CUDA_ERROR_NOT_SUPPORTED, CUDA_SUCCESS]
    );
    program.machine.leave();
}

fn shared_pages(size: usize) -> *mut c_void {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    // SAFETY: nothing that is mapped is touched.
    let place = unsafe { libc::mmap(null_mut(), size, access, flags, -1, 0) };
    assert_ne!(place, libc::MAP_FAILED);
    place.expose_provenance();
    place
}

#[test]
fn reads_of_many_streams_into_registered_memory_arrive() {
    const STREAMS: usize = 4;
    const WORDS: usize = 1 << 20;
    let program = Program::on(Machine::on_this_host(&[1]));
    let driver = &program.machine.driver;
    let all = words(STREAMS * WORDS);
    let bytes = size_of_val(&all[..]);
    // SAFETY: the words are there until they are unregistered.
    let registered = unsafe { driver.cuMemHostRegister_v2(begin(&all), bytes, 0) };
    assert_eq!(registered, CUDA_SUCCESS);
    let device = program.machine.allocate(bytes);
    // SAFETY: no host memory.
    let cleared = unsafe { driver.cuMemsetD32_v2(device, 0, all.len()) };
    assert_eq!(cleared, CUDA_SUCCESS);
    let streams: Vec<CUstream> = (0..STREAMS).map(|_| program.machine.stream()).collect();
    for _ in 0..2 {
        program.add(device, all.len(), null_mut());
        // SAFETY: as above.
        let read = unsafe { driver.cuMemcpyDtoH_v2(begin(&all), device, bytes) };
        assert_eq!(read, CUDA_SUCCESS);
    }
    for _ in 0..10 {
        for (index, stream) in streams.iter().enumerate() {
            let part = device + (index * WORDS * 4) as u64;
            program.add(part, WORDS, *stream);
        }
        for (index, stream) in streams.iter().enumerate() {
            let part = device + (index * WORDS * 4) as u64;
            let target = begin(&all[index * WORDS..]);
            // SAFETY: as above, and nobody looks before the wait below.
            let posted = unsafe { driver.cuMemcpyDtoHAsync_v2(target, part, WORDS * 4, *stream) };
            assert_eq!(posted, CUDA_SUCCESS);
        }
    }
    program.machine.synchronise();
    assert_eq!(all.iter().position(|word| get(word) != 12), None);
    program.unregister(&all);
    assert_eq!(program.free(device), CUDA_SUCCESS);
    program.machine.leave();
}

#[test]
fn transfers_queued_behind_a_kernel_all_arrive() {
    const COUNT: usize = 300;
    const WORDS: usize = 50_000;
    for on_this_host in [false, true] {
        let program = Program::on(match on_this_host {
            true => Machine::on_this_host(&[1]),
            false => Machine::new(),
        });
        let driver = &program.machine.driver;
        let (from, to) = (words(COUNT * WORDS), words(COUNT * WORDS));
        (0..COUNT).for_each(|index| set(&from[index * WORDS], index as u32));
        let bytes = size_of_val(&from[..]);
        // SAFETY: the words are there until they are unregistered.
        let registered =
            unsafe { [&from, &to].map(|all| driver.cuMemHostRegister_v2(begin(all), bytes, 0)) };
        assert_eq!(registered, [CUDA_SUCCESS; 2]);
        let device = program.machine.allocate(bytes);
        let held = program.held();
        for index in 0..COUNT {
            let part = device + (index * WORDS * 4) as u64;
            let (from, to) = (begin(&from[index * WORDS..]), begin(&to[index * WORDS..]));
            // SAFETY: as above, and nobody looks before the wait below.
            let posted = unsafe {
                [
                    driver.cuMemcpyHtoDAsync_v2(part, from, WORDS * 4, held.stream),
                    driver.cuMemcpyDtoHAsync_v2(to, part, WORDS * 4, held.stream),
                ]
            };
            assert_eq!(posted, [CUDA_SUCCESS; 2]);
        }
        // For a worker that takes whatever blocks it can get, to have taken them.
        std::thread::sleep(std::time::Duration::from_secs(1));
        held.let_go(&program);
        let wrong = (0..COUNT).find(|index| get(&to[index * WORDS]) != *index as u32);
        assert_eq!((wrong, program.machine.sessions[0].lost()), (None, None));
        program.unregister(&from);
        program.unregister(&to);
        assert_eq!(program.free(device), CUDA_SUCCESS);
        program.machine.leave();
    }
}

#[test]
fn kernels_take_registered_memory_by_the_hosts_address() {
    for on_this_host in [false, true] {
        let program = Program::on(match on_this_host {
            true => Machine::on_this_host(&[1]),
            false => Machine::new(),
        });
        let all = words(3000);
        let mine = &all[100..2000];
        program.register(mine);
        let start = begin(mine).addr() as u64;
        program.add(start, mine.len(), null_mut());
        // An address in the middle, too.
        program.add(start + 4000, 10, null_mut());
        program.machine.synchronise();
        let expected = |at: usize| 1 + u32::from((1000..1010).contains(&at));
        for (at, word) in mine.iter().enumerate() {
            assert_eq!(get(word), expected(at), "{at}");
        }
        assert_eq!([get(&all[99]), get(&all[2000])], [0; 2]);
        program.unregister(mine);
        program.machine.leave();
    }
}

#[test]
fn streams_do_not_wait_for_words_of_registered_memory() {
    let program = Program::new();
    let all = words(2000);
    let device = program.register(&all);
    // SAFETY: no pointers.
    let [waits, writes] = unsafe {
        let (driver, stream) = (&program.machine.driver, program.machine.stream());
        [
            driver.cuStreamWaitValue32_v2(stream, device, 1, 0),
            driver.cuStreamWriteValue32_v2(stream, device, 7, 0),
        ]
    };
    assert_eq!([waits, writes], [CUDA_ERROR_NOT_SUPPORTED, CUDA_SUCCESS]);
    program.machine.synchronise();
    assert_eq!(get(&all[0]), 7);
    program.unregister(&all);
    program.machine.leave();
}

#[test]
fn unregistering_what_was_not_registered_is_refused() {
    let program = Program::new();
    let driver = &program.machine.driver;
    let all = words(3000);
    program.register(&all);
    let mut pinned = null_mut();
    // SAFETY: the place is a local.
    let made = unsafe { driver.cuMemHostAlloc(&raw mut pinned, 4096, 0) };
    assert_eq!(made, CUDA_SUCCESS);
    for place in [pinned, begin(&all[1..])] {
        // SAFETY: no pointers that are followed.
        let refused = unsafe { driver.cuMemHostUnregister(place) };
        assert_eq!(refused, CUDA_ERROR_INVALID_VALUE);
    }
    program.unregister(&all);
    // SAFETY: it was allocated above.
    let freed = unsafe { driver.cuMemFreeHost(pinned) };
    assert_eq!(freed, CUDA_SUCCESS);
    program.machine.leave();
}

#[test]
fn kernel_behind_host_function_sees_what_it_changed() {
    unsafe extern "C" fn write(word: *mut c_void) {
        let word: *const AtomicU32 = word.cast_const().cast();
        // SAFETY: the word lives until the function has run.
        unsafe { &*word }.store(7, Ordering::Relaxed);
    }
    let program = Program::new();
    let (driver, all, stream) = (&program.machine.driver, words(4), program.machine.stream());
    let device = program.register(&all);
    program.add(device, 2, stream);
    // SAFETY: the words live until the function has run.
    let posted = unsafe { driver.cuLaunchHostFunc(stream, Some(write), begin(&all)) };
    assert_eq!(posted, CUDA_SUCCESS);
    program.add(device, 2, stream);
    program.machine.synchronise();
    assert_eq!([get(&all[0]), get(&all[1])], [8, 2]);
    program.unregister(&all);
    program.machine.leave();
}

/// The ways to have a small copy out of pinned memory.
#[derive(Clone, Copy, Debug)]
enum Way {
    ToDevice,
    Rows,
    /// Registered memory to registered memory.
    ToHost,
}

#[test]
fn copy_behind_host_function_sees_what_it_changed() {
    /// Comes late, as functions do that compute something.
    unsafe extern "C" fn write(words: *mut c_void) {
        std::thread::sleep(std::time::Duration::from_millis(20));
        let words: *const [AtomicU32; 2] = words.cast_const().cast();
        // SAFETY: the words live until the function has run.
        unsafe { &*words }.iter().for_each(|word| set(word, 7));
    }
    let machines: [fn() -> Machine; 2] = [Machine::new, || Machine::on_this_host(&[1])];
    for machine in machines {
        let program = Program::on(machine());
        let (driver, stream) = (&program.machine.driver, program.machine.stream());
        let pinned = |words: &[AtomicU32]| {
            // SAFETY: the words are there until they are unregistered.
            let registered =
                unsafe { driver.cuMemHostRegister_v2(begin(words), size_of_val(words), 0) };
            assert_eq!(registered, CUDA_SUCCESS);
        };
        for way in [Way::ToDevice, Way::Rows, Way::ToHost] {
            for count in [2, 1000, 16_000, 40_000] {
                let (all, back) = (words(count), words(count));
                pinned(&all);
                pinned(&back);
                let size = size_of_val(&*all);
                let device = program.machine.filled(&vec![0; size]);
                let rows = CUDA_MEMCPY2D {
                    srcMemoryType: CU_MEMORYTYPE_HOST,
                    srcHost: begin(&all),
                    srcPitch: size / 2,
                    dstMemoryType: CU_MEMORYTYPE_DEVICE,
                    dstDevice: device,
                    dstPitch: size / 2,
                    WidthInBytes: size / 2,
                    Height: 2,
                    // SAFETY: a structure of numbers and pointers.
                    ..unsafe { std::mem::zeroed() }
                };
                let addresses = [&all, &back].map(|words| begin(words).expose_provenance() as u64);
                // SAFETY: the memory lives until all is done.
                let posted = unsafe {
                    [
                        driver.cuLaunchHostFunc(stream, Some(write), begin(&all)),
                        match way {
                            Way::ToDevice => {
                                driver.cuMemcpyHtoDAsync_v2(device, begin(&all), size, stream)
                            }
                            Way::Rows => driver.cuMemcpy2DAsync_v2(&raw const rows, stream),
                            Way::ToHost => {
                                driver.cuMemcpyAsync(addresses[1], addresses[0], size, stream)
                            }
                        },
                        driver.cuStreamSynchronize(stream),
                    ]
                };
                assert_eq!(posted, [CUDA_SUCCESS; 3], "{way:?}");
                let seen = match way {
                    Way::ToHost => [get(&back[0]), get(&back[1])],
                    _ => {
                        let bytes = program.machine.bytes(device, 8);
                        let (words, _) = bytes.as_chunks::<4>();
                        [words[0], words[1]].map(u32::from_le_bytes)
                    }
                };
                assert_eq!(seen, [7; 2], "{way:?}, {count} words");
                program.unregister(&all);
                program.unregister(&back);
                assert_eq!(program.free(device), CUDA_SUCCESS);
            }
        }
        program.machine.leave();
    }
}
