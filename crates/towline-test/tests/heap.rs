//! What a session takes of the heap, client and worker together: this binary counts every allocation.
//!
//! Both ends are in one process here, so the two bounds (32 MiB in the client, 64 MiB in the worker beside its pool) are held to by the
//! smaller one for their sum. The device's memory, and the application's, are taken off.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use towline_backend::opencl::*;
use towline_test::pair::Pair;

/// What both ends may hold together.
const BOUND: usize = 32 << 20;
const BUFFERS: usize = 1_000;
const KERNELS: usize = 1_000;
const LAUNCHES: usize = 100_000;
/// Launches between two waits: what a device has not begun is its driver's memory, which this bound is not about.
const BURST: usize = 1_000;
/// One transfer, and how many make up 256 MiB each way: the device allocates no more at once.
const TRANSFER: usize = 64 << 20;
const TRANSFERS: usize = 4;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

struct Counting;

fn grown(bytes: usize) {
    let now = NOW.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK.fetch_max(now, Ordering::Relaxed);
}

// SAFETY: every call is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grown(layout.size());
        // SAFETY: the caller's contract, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        grown(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        grown(size);
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[global_allocator]
static HEAP: Counting = Counting;

/// The most that was held during `work` beyond what is held before it.
fn peak_of<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = NOW.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let result = work();
    (result, PEAK.load(Ordering::Relaxed) - before)
}

macro_rules! ok {
    ($cl:expr, $call:ident ( $($argument:expr),* $(,)? )) => {{
        // SAFETY: tests pass live handles and pointers to their own data.
        let status = unsafe { $cl.$call($($argument),*) };
        assert_eq!(status, CL_SUCCESS, "{}", stringify!($call));
    }};
}

macro_rules! make {
    ($cl:expr, $call:ident ( $($argument:expr),* $(,)? )) => {{
        let mut status = 1;
        // SAFETY: tests pass live handles and pointers to their own data.
        let made = unsafe { $cl.$call($($argument,)* &raw mut status) };
        assert_eq!(status, CL_SUCCESS, "{}", stringify!($call));
        made
    }};
}

/// The most that a session holds at any time, without what the device holds, in words.
fn session_on(null_device: NullOpenCl) -> (usize, String) {
    let device_memory = Arc::new(null_device);
    let pair = Pair::new(Arc::clone(&device_memory) as Arc<dyn OpenClApi>);
    let cl = &*pair.remote;
    let device = cl.platforms()[0].1[0];
    let context = make!(
        cl,
        clCreateContext(null(), 1, &raw const device, None, null_mut())
    );
    let queue = make!(cl, clCreateCommandQueue(context, device, 0));
    let program = make!(
        cl,
        clCreateProgramWithBuiltInKernels(context, 1, &raw const device, c"add_one;scale".as_ptr())
    );
    let flags = CL_MEM_READ_WRITE;

    let (objects, many) = peak_of(|| {
        let buffers: Vec<cl_mem> = (0..BUFFERS)
            .map(|_| make!(cl, clCreateBuffer(context, flags, 64, null_mut())))
            .collect();
        let kernels: Vec<cl_kernel> = (0..KERNELS)
            .map(|_| make!(cl, clCreateKernel(program, c"add_one".as_ptr())))
            .collect();
        for (buffer, kernel) in buffers.iter().zip(&kernels) {
            ok!(
                cl,
                clSetKernelArg(*kernel, 0, 8, (&raw const *buffer).cast())
            );
        }
        ok!(cl, clFinish(queue));
        (buffers, kernels)
    });

    let ((), launching) = peak_of(|| {
        let items = 4_usize;
        for launch in 0..LAUNCHES {
            let mut event = null_mut();
            let kernel = objects.1[launch % KERNELS];
            ok!(
                cl,
                clEnqueueNDRangeKernel(
                    queue,
                    kernel,
                    1,
                    null(),
                    &raw const items,
                    null(),
                    0,
                    null(),
                    &raw mut event
                )
            );
            ok!(cl, clReleaseEvent(event));
            if launch % BURST == 0 {
                ok!(cl, clFinish(queue));
            }
        }
        ok!(cl, clFinish(queue));
    });

    let data: Vec<u8> = (0..TRANSFER).map(|at| (at >> 12) as u8).collect();
    let mut back = vec![0_u8; TRANSFER];
    let big = make!(cl, clCreateBuffer(context, flags, TRANSFER, null_mut()));
    ok!(cl, clFinish(queue));
    let pinned = device_memory.allocated_bytes();
    let ((), moving) = peak_of(|| {
        for blocking in [CL_TRUE, CL_FALSE].repeat(TRANSFERS) {
            let (source, target) = (data.as_ptr().cast(), back.as_mut_ptr().cast());
            let none = null_mut();
            ok!(
                cl,
                clEnqueueWriteBuffer(queue, big, blocking, 0, TRANSFER, source, 0, null(), none)
            );
            ok!(
                cl,
                clEnqueueReadBuffer(queue, big, blocking, 0, TRANSFER, target, 0, null(), none)
            );
            ok!(cl, clFinish(queue));
        }
    });
    assert!(back == data);
    let most = PEAK.load(Ordering::Relaxed);
    assert!(most > 2 * TRANSFER, "{most} bytes: what is counted?");
    // Slots that the worker pins are the pool beside the bound.
    let moving = moving.saturating_sub(device_memory.allocated_bytes().saturating_sub(pinned));

    let text = format!(
        "KiB at most: {} for {BUFFERS} buffers and {KERNELS} kernels, {} more for {LAUNCHES} launches, \
         {} more for {} MiB both ways",
        many >> 10,
        launching >> 10,
        moving >> 10,
        (TRANSFER * TRANSFERS) >> 20
    );
    pair.finish().expect("the session ends well");
    (many + launching.max(moving), text)
}

#[test]
fn a_session_takes_at_most_32_mib_of_heap_on_both_sides_together() {
    for device in [NullOpenCl::new(1), NullOpenCl::discrete(1)] {
        let (bytes, figures) = session_on(device);
        println!("{figures}");
        assert!(bytes <= BOUND, "{figures}");
    }
}
