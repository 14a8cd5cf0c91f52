//! Answers of calls while streams are captured, and the fate of the captures: as driver 580.159 does on an H100.

#![expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "calls are asked in a row, all with the same contract"
)]

use std::ffi::c_void;
use std::ptr::null_mut;

use towline_backend::cuda::*;

use super::NON_BLOCKING;
use super::support::{Bench, ok};

const UNSUPPORTED: CUresult = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
const INVALIDATED: CUresult = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
const IMPLICIT: CUresult = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;

unsafe extern "C" fn called_back(_: CUstream, _: CUresult, _: *mut c_void) {}

/// Begins a relaxed capture and has a wait for the context invalidate it.
fn invalid_capture(bench: &Bench) -> CUstream {
    let stream = bench.stream(NON_BLOCKING);
    ok(bench.begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    // SAFETY: has no pointers.
    assert_eq!(unsafe { bench.driver.cuCtxSynchronize() }, UNSUPPORTED);
    stream
}

/// Calls that no capture takes.
fn refused(bench: &Bench, stream: CUstream) -> [CUresult; 6] {
    let (driver, none) = (&bench.driver, null_mut());
    let (mut flags, mut id) = (0, 0);
    // SAFETY: all pointers are to locals; the function does nothing.
    unsafe {
        [
            driver.cuStreamSynchronize(stream),
            driver.cuStreamQuery(stream),
            driver.cuStreamAddCallback(stream, Some(called_back), none, 0),
            driver.cuGraphLaunch(null_mut(), stream),
            driver.cuStreamGetFlags(stream, &raw mut flags),
            driver.cuStreamGetId(stream, &raw mut id),
        ]
    }
}

pub(super) fn calls_without_nodes_are_refused_in_any_capture(bench: &Bench) {
    let stream = invalid_capture(bench);
    assert_eq!(refused(bench, stream), [UNSUPPORTED; 6]);
    assert_eq!(bench.end(stream).0, INVALIDATED);
    for at in 0..6 {
        ok(bench.begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
        assert_eq!(refused(bench, stream)[at], UNSUPPORTED);
        assert_eq!(bench.end(stream).0, INVALIDATED);
    }
}

/// Calls that work is enqueued with, without what the work needs.
fn mistaken(bench: &Bench, stream: CUstream) -> [CUresult; 5] {
    let (driver, none) = (&bench.driver, null_mut());
    // SAFETY: NULL is refused before anything is read or written.
    unsafe {
        [
            driver.cuLaunchKernel(null_mut(), 1, 1, 1, 1, 1, 1, 0, stream, none, none.cast()),
            driver.cuMemcpyAsync(0, 0, 16, stream),
            driver.cuMemsetD16Async(0x1001, 0, 16, stream),
            driver.cuStreamWriteValue32_v2(stream, 0, 0, 99),
            driver.cuMemFreeAsync(0x1000, stream),
        ]
    }
}

pub(super) fn capture_is_checked_before_other_parameters(bench: &Bench) {
    let stream = bench.stream(NON_BLOCKING);
    ok(bench.begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    let statuses = mistaken(bench, stream);
    assert!(!statuses.contains(&CUDA_SUCCESS), "{statuses:?}");
    assert_eq!(bench.state(stream), (CUDA_SUCCESS, 1), "mistakes spare it");
    ok(bench.end(stream).0);
    assert_eq!(mistaken(bench, invalid_capture(bench)), [INVALIDATED; 5]);
}

pub(super) fn default_stream_is_refused_beside_blocking_capture(bench: &Bench) {
    let blocking = bench.stream(0);
    let attempts: [&dyn Fn() -> CUresult; 5] = [
        // SAFETY: nothing is copied.
        &|| unsafe { bench.driver.cuMemcpyHtoD_v2(0, null_mut(), 0) },
        // SAFETY: NULL is refused.
        &|| unsafe { bench.driver.cuMemcpy(0, 0, 16) },
        // SAFETY: has no pointers.
        &|| unsafe { bench.driver.cuMemsetD2D16_v2(0, 0, 9, 4, 2) },
        &|| bench.begin(null_mut(), CU_STREAM_CAPTURE_MODE_RELAXED),
        &|| bench.synchronise(null_mut()),
    ];
    for attempt in attempts {
        // The mode does not matter.
        ok(bench.begin(blocking, CU_STREAM_CAPTURE_MODE_GLOBAL));
        assert_eq!(attempt(), IMPLICIT);
        assert_eq!(bench.end(blocking).0, INVALIDATED);
    }
}

pub(super) fn only_relaxed_captures_bear_waits_for_other_streams(bench: &Bench) {
    let (one, two) = (bench.stream(NON_BLOCKING), bench.stream(NON_BLOCKING));
    let attempts: [&dyn Fn() -> CUresult; 3] = [
        &|| bench.synchronise(two),
        // SAFETY: has no pointers.
        &|| unsafe { bench.driver.cuStreamQuery(two) },
        &|| {
            let mut address = 0;
            // SAFETY: the address is a local.
            unsafe { bench.driver.cuMemAllocAsync(&raw mut address, 64, two) }
        },
    ];
    for attempt in attempts {
        for mode in [
            CU_STREAM_CAPTURE_MODE_GLOBAL,
            CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
        ] {
            ok(bench.begin(one, mode));
            assert_eq!(attempt(), UNSUPPORTED);
            assert_eq!(bench.end(one).0, INVALIDATED);
        }
        ok(bench.begin(one, CU_STREAM_CAPTURE_MODE_RELAXED));
        ok(attempt());
        ok(bench.end(one).0);
    }
}

pub(super) fn questions_are_answered_until_a_capture_is_invalid(bench: &Bench) {
    let ask = |stream| {
        let (mut priority, mut context) = (0, null_mut());
        // SAFETY: all pointers are to locals.
        unsafe {
            [
                bench.driver.cuStreamGetPriority(stream, &raw mut priority),
                bench.driver.cuStreamGetCtx(stream, &raw mut context),
            ]
        }
    };
    let stream = bench.stream(NON_BLOCKING);
    ok(bench.begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    assert_eq!(ask(stream), [CUDA_SUCCESS; 2]);
    ok(bench.end(stream).0);
    assert_eq!(ask(invalid_capture(bench)), [INVALIDATED; 2]);
}

pub(super) fn captures_wait_for_events_of_their_own_only(bench: &Bench) {
    let stream = bench.stream(NON_BLOCKING);
    let (never, before) = (bench.event(), bench.event());
    ok(bench.record(before, stream));
    for (event, answer, ended) in [
        (never, CUDA_SUCCESS, CUDA_SUCCESS),
        (before, CUDA_ERROR_STREAM_CAPTURE_ISOLATION, INVALIDATED),
        (null_mut(), CUDA_ERROR_INVALID_HANDLE, INVALIDATED),
    ] {
        ok(bench.begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
        assert_eq!(bench.wait_event(stream, event), answer);
        assert_eq!(bench.end(stream).0, ended);
    }
    let invalid = invalid_capture(bench);
    assert_eq!(bench.wait_event(invalid, null_mut()), INVALIDATED);
}

pub(super) fn external_events_need_a_capture(bench: &Bench) {
    let (stream, event) = (bench.stream(NON_BLOCKING), bench.event());
    let external = |captured| {
        let record = CU_EVENT_RECORD_EXTERNAL;
        // SAFETY: has no pointers.
        let recorded = unsafe { bench.driver.cuEventRecordWithFlags(event, stream, record) };
        let wait = CU_EVENT_WAIT_EXTERNAL;
        // SAFETY: has no pointers.
        let waited = unsafe { bench.driver.cuStreamWaitEvent(stream, event, wait) };
        assert_eq!([recorded, waited], [captured; 2]);
    };
    external(CUDA_ERROR_ILLEGAL_STATE);
    let graph = bench.captured(stream, || external(CUDA_SUCCESS));
    assert_eq!(bench.nodes(graph).len(), 2);
}

pub(super) fn copy_between_contexts_ends_the_capture(bench: &Bench) {
    let (stream, address) = (bench.stream(NON_BLOCKING), bench.allocate(16));
    let context = bench.context;
    ok(bench.begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    // SAFETY: the memory is allocated.
    let status = unsafe {
        bench
            .driver
            .cuMemcpyPeerAsync(address + 4, context, address, context, 4, stream)
    };
    assert_eq!(status, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_eq!(bench.end(stream).0, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}
