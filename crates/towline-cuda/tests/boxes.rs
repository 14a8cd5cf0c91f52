//! Copies of rectangles and boxes, and fills: every byte against a model in host memory.

mod support;

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use proptest::prelude::*;
use support::{Machine, blank, pattern};
use towline_backend::cuda::*;

/// One side of a copy: where the box begins, and the pitches of what it lies in.
#[derive(Debug, Clone, Copy)]
struct Side {
    start: [usize; 3],
    pitch: usize,
    height: usize,
}

impl Side {
    fn at(&self, [x, y, z]: [usize; 3]) -> usize {
        let [first, row, slice] = self.start;
        ((slice + z) * self.height + row + y) * self.pitch + first + x
    }
}

/// What a copy does to memory.
fn copied(to: &mut [u8], at: Side, from: &[u8], of: Side, [width, height, depth]: [usize; 3]) {
    for (z, y) in (0..depth).flat_map(|z| (0..height).map(move |y| (z, y))) {
        let (target, source) = (at.at([0, y, z]), of.at([0, y, z]));
        to[target..target + width].copy_from_slice(&from[source..source + width]);
    }
}

fn described(from: Side, to: Side, size: [usize; 3]) -> CUDA_MEMCPY3D {
    let mut copy = blank();
    [copy.srcXInBytes, copy.srcY, copy.srcZ] = from.start;
    (copy.srcPitch, copy.srcHeight) = (from.pitch, from.height);
    [copy.dstXInBytes, copy.dstY, copy.dstZ] = to.start;
    (copy.dstPitch, copy.dstHeight) = (to.pitch, to.height);
    [copy.WidthInBytes, copy.Height, copy.Depth] = size;
    copy
}

fn side(start: [usize; 3], pitch: usize, height: usize) -> Side {
    Side {
        start,
        pitch,
        height,
    }
}

/// Copies host memory to the device, there to other memory, and back, and compares with the model after each step.
fn there_and_back(machine: &Machine, host: Side, near: Side, far: Side, size: [usize; 3]) {
    let room = |side: Side| {
        let [_, height, depth] = size;
        side.at([size[0], height - 1, depth - 1])
    };
    let source = pattern(room(host), 1);
    let (first, second) = (pattern(room(near), 2), pattern(room(far), 3));
    let (near_memory, far_memory) = (machine.filled(&first), machine.filled(&second));
    let mut copy = described(host, near, size);
    (copy.srcMemoryType, copy.srcHost) = (CU_MEMORYTYPE_HOST, source.as_ptr().cast());
    (copy.dstMemoryType, copy.dstDevice) = (CU_MEMORYTYPE_DEVICE, near_memory);
    // SAFETY: host memory holds the box.
    let there = unsafe { machine.driver.cuMemcpy3D_v2(&raw const copy) };
    let mut near_model = first;
    copied(&mut near_model, near, &source, host, size);
    assert_eq!(there, CUDA_SUCCESS);
    assert!(
        machine.bytes(near_memory, near_model.len()) == near_model,
        "written otherwise"
    );

    let mut copy = described(near, far, size);
    (copy.srcMemoryType, copy.srcDevice) = (CU_MEMORYTYPE_DEVICE, near_memory);
    (copy.dstMemoryType, copy.dstDevice) = (CU_MEMORYTYPE_DEVICE, far_memory);
    // SAFETY: no host memory.
    let across = unsafe { machine.driver.cuMemcpy3D_v2(&raw const copy) };
    let mut far_model = second;
    copied(&mut far_model, far, &near_model, near, size);
    assert_eq!(across, CUDA_SUCCESS);
    assert!(
        machine.bytes(far_memory, far_model.len()) == far_model,
        "copied otherwise"
    );

    let mut back = pattern(room(host), 4);
    let mut back_model = back.clone();
    let mut copy = described(far, host, size);
    (copy.srcMemoryType, copy.srcDevice) = (CU_MEMORYTYPE_DEVICE, far_memory);
    (copy.dstMemoryType, copy.dstHost) = (CU_MEMORYTYPE_HOST, back.as_mut_ptr().cast());
    // SAFETY: host memory holds the box.
    let returned = unsafe { machine.driver.cuMemcpy3D_v2(&raw const copy) };
    copied(&mut back_model, host, &far_model, far, size);
    assert_eq!(returned, CUDA_SUCCESS);
    assert!(back == back_model, "read otherwise");
    for memory in [near_memory, far_memory] {
        // SAFETY: the memory was allocated.
        assert_eq!(unsafe { machine.driver.cuMemFree_v2(memory) }, CUDA_SUCCESS);
    }
}

#[test]
fn boxes_of_every_size_and_pitch_come_back_as_they_went() {
    let machine = Machine::new();
    for (host, near, far, size) in [
        // Small, with gaps everywhere.
        (
            side([3, 1, 2], 40, 6),
            side([5, 2, 1], 64, 7),
            side([0, 0, 0], 17, 4),
            [17, 4, 3],
        ),
        // Rows that touch on one side only.
        (
            side([0, 0, 0], 100, 10),
            side([0, 3, 0], 100, 16),
            side([4, 0, 0], 128, 10),
            [100, 10, 2],
        ),
        // No gap at all: one run of bytes.
        (
            side([0, 0, 0], 256, 16),
            side([0, 0, 1], 256, 16),
            side([0, 0, 0], 256, 16),
            [256, 16, 20],
        ),
        // Beyond what travels inline, and beyond a window, which ends within a slice.
        (
            side([1, 0, 0], 1000, 300),
            side([8, 1, 0], 1024, 310),
            side([0, 0, 0], 990, 300),
            [990, 300, 20],
        ),
        // A row that is longer than a window.
        (
            side([0, 0, 0], 5 << 20, 2),
            side([7, 0, 0], (5 << 20) + 64, 2),
            side([0, 1, 0], 5 << 20, 3),
            [(5 << 20) - 3, 2, 1],
        ),
        // One byte.
        (
            side([1, 1, 1], 2, 2),
            side([1, 0, 1], 2, 1),
            side([0, 1, 1], 1, 2),
            [1, 1, 1],
        ),
    ] {
        there_and_back(&machine, host, near, far, size);
    }
    machine.leave();
}

fn sides() -> impl Strategy<Value = (Side, Side, Side, [usize; 3])> {
    let start = || [0..9_usize, 0..4_usize, 0..3_usize];
    let size = [1..60_usize, 1..8_usize, 1..5_usize];
    let gaps = || (0..20_usize, 0..3_usize);
    (size, start(), start(), start(), gaps(), gaps(), gaps()).prop_map(
        |(size, one, two, three, first, second, third)| {
            let side = |start: [usize; 3], (wide, high): (usize, usize)| Side {
                start,
                pitch: start[0] + size[0] + wide,
                height: start[1] + size[1] + high,
            };
            (
                side(one, first),
                side(two, second),
                side(three, third),
                size,
            )
        },
    )
}

#[test]
fn any_box_comes_back_as_it_went() {
    let machine = Machine::new();
    let config = ProptestConfig {
        cases: 60,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    runner
        .run(&sides(), |(host, near, far, size)| {
            there_and_back(&machine, host, near, far, size);
            Ok(())
        })
        .unwrap();
    machine.leave();
}

fn rectangle(
    (from, from_pitch): (*const u8, usize),
    (to, to_pitch): (CUdeviceptr, usize),
    width: usize,
    height: usize,
) -> CUDA_MEMCPY2D {
    CUDA_MEMCPY2D {
        srcXInBytes: 0,
        srcY: 0,
        srcMemoryType: CU_MEMORYTYPE_HOST,
        srcHost: from.cast(),
        srcDevice: 0,
        srcArray: null_mut(),
        srcPitch: from_pitch,
        dstXInBytes: 0,
        dstY: 0,
        dstMemoryType: CU_MEMORYTYPE_DEVICE,
        dstHost: null_mut(),
        dstDevice: to,
        dstArray: null_mut(),
        dstPitch: to_pitch,
        WidthInBytes: width,
        Height: height,
    }
}

#[test]
fn a_small_rectangle_is_written_without_a_round_trip_and_read_with_one() {
    let machine = Machine::new();
    let source = pattern(40 * 6, 1);
    let memory = machine.filled(&[0; 64 * 6]);
    let there = rectangle((source.as_ptr(), 40), (memory, 64), 30, 6);
    // SAFETY: the source holds the rectangle.
    let written = machine.costs(|driver| unsafe { driver.cuMemcpy2D_v2(&raw const there) });
    assert_eq!(written, (CUDA_SUCCESS, 0));
    let mut target = vec![0_u8; 40 * 6];
    let back = CUDA_MEMCPY2D {
        srcMemoryType: CU_MEMORYTYPE_DEVICE,
        srcDevice: memory,
        srcPitch: 64,
        dstMemoryType: CU_MEMORYTYPE_HOST,
        dstHost: target.as_mut_ptr().cast(),
        dstPitch: 40,
        ..there
    };
    // SAFETY: the target holds the rectangle.
    let read = machine.costs(|driver| unsafe { driver.cuMemcpy2D_v2(&raw const back) });
    assert_eq!(read, (CUDA_SUCCESS, 1));
    for row in 0..6 {
        assert_eq!(target[row * 40..][..30], source[row * 40..][..30]);
        assert_eq!(target[row * 40 + 30..][..10], [0; 10]);
    }
    machine.leave();
}

#[test]
fn pageable_rows_may_change_as_soon_as_the_call_returns() {
    let machine = Machine::new();
    let stream = machine.stream();
    // Larger than what travels with the request.
    let (width, height) = (1 << 10, 400);
    let mut source = pattern(2 * width * height, 1);
    let wanted: Vec<u8> = source
        .chunks(2 * width)
        .flat_map(|row| row[..width].to_vec())
        .collect();
    let memory = machine.allocate(3 * width * height);
    let copy = rectangle(
        (source.as_ptr(), 2 * width),
        (memory, 3 * width),
        width,
        height,
    );
    // SAFETY: the source holds the rectangle.
    let issued = unsafe { machine.driver.cuMemcpy2DAsync_v2(&raw const copy, stream) };
    assert_eq!(issued, CUDA_SUCCESS);
    source.fill(0xee);
    // SAFETY: the stream lives.
    let waited = unsafe { machine.driver.cuStreamSynchronize(stream) };
    assert_eq!(waited, CUDA_SUCCESS);
    let there = machine.bytes(memory, 3 * width * height);
    let rows: Vec<u8> = there
        .chunks(3 * width)
        .flat_map(|row| row[..width].to_vec())
        .collect();
    assert!(rows == wanted);
    machine.leave();
}

#[test]
fn rows_read_into_pinned_memory_are_there_after_a_synchronisation() {
    let machine = Machine::new();
    let stream = machine.stream();
    let (width, height) = (3000, 100);
    let content = pattern(4096 * height, 1);
    let memory = machine.filled(&content);
    let mut pinned: *mut c_void = null_mut();
    // SAFETY: the pointer is a local.
    let made = unsafe {
        machine
            .driver
            .cuMemHostAlloc(&raw mut pinned, 3500 * height, 0)
    };
    assert_eq!(made, CUDA_SUCCESS);
    let copy = CUDA_MEMCPY2D {
        srcMemoryType: CU_MEMORYTYPE_DEVICE,
        srcDevice: memory,
        srcPitch: 4096,
        dstMemoryType: CU_MEMORYTYPE_HOST,
        dstHost: pinned,
        dstPitch: 3500,
        ..rectangle((null(), 0), (0, 0), width, height)
    };
    let issue = machine.costs(|driver| {
        // SAFETY: the pinned memory holds the rectangle.
        unsafe { driver.cuMemcpy2DAsync_v2(&raw const copy, stream) }
    });
    assert_eq!(issue, (CUDA_SUCCESS, 0));
    // SAFETY: the stream lives.
    let waited = unsafe { machine.driver.cuStreamSynchronize(stream) };
    assert_eq!(waited, CUDA_SUCCESS);
    // SAFETY: the memory was allocated with this size, and nothing writes to it any more.
    let rows = unsafe { std::slice::from_raw_parts(pinned.cast::<u8>(), 3500 * height) };
    for row in 0..height {
        assert!(rows[row * 3500..][..width] == content[row * 4096..][..width]);
        assert!(
            rows[row * 3500 + width..][..500]
                .iter()
                .all(|byte| *byte == 0)
        );
    }
    // SAFETY: nothing uses it any more.
    let freed = unsafe { machine.driver.cuMemFreeHost(pinned) };
    assert_eq!(freed, CUDA_SUCCESS);
    machine.leave();
}

#[test]
fn boxes_that_cannot_be_are_refused_at_the_call() {
    let machine = Machine::new();
    let source = [0_u8; 256];
    let memory = machine.filled(&[0; 256]);
    let good = rectangle((source.as_ptr(), 16), (memory, 16), 16, 4);
    let refused = [
        CUDA_MEMCPY2D {
            srcPitch: 15,
            ..good
        },
        CUDA_MEMCPY2D {
            dstXInBytes: 1,
            ..good
        },
        CUDA_MEMCPY2D {
            srcHost: null(),
            ..good
        },
        CUDA_MEMCPY2D {
            dstDevice: 0,
            ..good
        },
        CUDA_MEMCPY2D {
            srcMemoryType: 9,
            ..good
        },
        CUDA_MEMCPY2D {
            srcY: usize::MAX,
            ..good
        },
        CUDA_MEMCPY2D {
            Height: usize::MAX,
            ..good
        },
        CUDA_MEMCPY2D {
            WidthInBytes: usize::MAX,
            srcPitch: 0,
            dstPitch: 0,
            ..good
        },
    ];
    for copy in refused {
        // SAFETY: refused before anything is read.
        let cost = machine.costs(|driver| unsafe { driver.cuMemcpy2D_v2(&raw const copy) });
        assert_eq!(cost, (CUDA_ERROR_INVALID_VALUE, 0), "{copy:?}");
    }
    let array = CUDA_MEMCPY2D {
        dstMemoryType: CU_MEMORYTYPE_ARRAY,
        ..good
    };
    // SAFETY: as above.
    let nowhere = unsafe { machine.driver.cuMemcpy2D_v2(&raw const array) };
    assert_eq!(nowhere, CUDA_ERROR_INVALID_VALUE);
    // SAFETY: as above.
    let nothing = unsafe { machine.driver.cuMemcpy3D_v2(null()) };
    assert_eq!(nothing, CUDA_ERROR_INVALID_VALUE);
    let mut level = blank();
    level.srcLOD = 1;
    // SAFETY: as above.
    let level = unsafe { machine.driver.cuMemcpy3D_v2(&raw const level) };
    assert_eq!(level, CUDA_ERROR_INVALID_VALUE);
    let empty = CUDA_MEMCPY2D { Height: 0, ..good };
    // SAFETY: nothing is copied.
    let empty = machine.costs(|driver| unsafe { driver.cuMemcpy2D_v2(&raw const empty) });
    assert_eq!(empty, (CUDA_SUCCESS, 0));
    machine.synchronise();
    machine.leave();
}

#[test]
fn rectangles_are_filled_with_elements_of_every_width() {
    let machine = Machine::new();
    let memory = machine.filled(&[1; 64 * 12]);
    // SAFETY: no host memory, for this and the others.
    let bytes = unsafe { machine.driver.cuMemsetD2D8_v2(memory, 64, 0xaa, 5, 3) };
    let at = memory + 3 * 64;
    // SAFETY: as above.
    let halves = unsafe { machine.driver.cuMemsetD2D16_v2(at, 64, 0xbbcc, 5, 3) };
    let at = memory + 6 * 64;
    // SAFETY: as above.
    let words = unsafe { machine.driver.cuMemsetD2D32_v2(at, 64, 0x1122_3344, 5, 3) };
    let at = memory + 9 * 64;
    // SAFETY: as above.
    let row = unsafe { machine.driver.cuMemsetD32_v2(at, 7, 16) };
    assert_eq!([bytes, halves, words, row], [CUDA_SUCCESS; 4]);
    // SAFETY: as above.
    let odd = unsafe { machine.driver.cuMemsetD16_v2(memory + 1, 1, 1) };
    assert_eq!(odd, CUDA_ERROR_INVALID_VALUE);
    let mut model = vec![1_u8; 64 * 12];
    for row in 0..3 {
        model[row * 64..][..5].fill(0xaa);
        for element in 0..5 {
            model[(3 + row) * 64 + 2 * element..][..2].copy_from_slice(&[0xcc, 0xbb]);
            let word = &mut model[(6 + row) * 64 + 4 * element..][..4];
            word.copy_from_slice(&[0x44, 0x33, 0x22, 0x11]);
        }
    }
    for element in 0..16 {
        model[9 * 64 + 4 * element..][..4].copy_from_slice(&[7, 0, 0, 0]);
    }
    assert_eq!(machine.bytes(memory, 64 * 12), model);
    machine.leave();
}

fn attributes(order: CUmemcpySrcAccessOrder) -> CUmemcpyAttributes {
    let nowhere = CUmemLocation {
        r#type: 0,
        either: CUmemLocation_either { id: 0 },
    };
    CUmemcpyAttributes {
        srcAccessOrder: order,
        srcLocHint: nowhere,
        dstLocHint: nowhere,
        flags: 0,
    }
}

#[test]
fn a_batch_copies_all_its_ranges_and_tells_which_one_is_wrong() {
    let machine = Machine::new();
    let stream = machine.stream();
    let host = pattern(500, 1);
    let (one, two) = (machine.filled(&pattern(300, 2)), machine.allocate(1000));
    let mut back = vec![0_u8; 300];
    let address = |pointer: *const u8| pointer.expose_provenance() as u64;
    let mut targets = [two, two + 500, address(back.as_mut_ptr())];
    let mut sources = [address(host.as_ptr()), one, one];
    let mut sizes = [500, 300, 300];
    let mut kinds = [attributes(2), attributes(1)];
    let mut from = [0, 1];
    let mut failed = 77;
    let mut batch = |sources: &mut [u64; 3], stream| {
        let (targets, sources) = (targets.as_mut_ptr(), sources.as_mut_ptr());
        let (sizes, kinds) = (sizes.as_mut_ptr(), kinds.as_mut_ptr());
        let from = from.as_mut_ptr();
        // SAFETY: the lists are as long as they say, and the ranges are valid.
        let done = unsafe {
            machine.driver.cuMemcpyBatchAsync(
                targets,
                sources,
                sizes,
                3,
                kinds,
                from,
                2,
                &raw mut failed,
                stream,
            )
        };
        (done, failed)
    };
    assert_eq!(batch(&mut sources, stream), (CUDA_SUCCESS, usize::MAX));
    let default = batch(&mut sources, null_mut());
    assert_eq!(default, (CUDA_ERROR_INVALID_VALUE, usize::MAX));
    sources[1] = 0;
    assert_eq!(batch(&mut sources, stream), (CUDA_ERROR_INVALID_VALUE, 1));
    // SAFETY: the stream lives.
    let waited = unsafe { machine.driver.cuStreamSynchronize(stream) };
    assert_eq!(waited, CUDA_SUCCESS);
    assert_eq!(back, pattern(300, 2));
    let there = machine.bytes(two, 800);
    assert_eq!(there[..500], host);
    assert_eq!(there[500..], pattern(300, 2));
    machine.leave();
}
