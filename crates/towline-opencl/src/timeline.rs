//! Kernels on the timeline of `towline run --trace`: when each ran, by the times that its device notes.
//!
//! Queues keep times then, and each launch has an event. A device's clock is set against this host's by a marker that is waited for.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use towline_backend::opencl::*;
use towline_client::timeline;

use crate::arena::Ref;
use crate::callback::Worker;
use crate::event::{Event, RawEvent, when_over};
use crate::kernel::Kernel;
use crate::queue::Queue;
use crate::raw::{Shared, create, provider};
use crate::system;

/// Asks for times.
static TIMES: Worker = Worker::new("towline-timeline");
/// Kernels that have not been noted yet.
static OPEN: AtomicUsize = AtomicUsize::new(0);
/// Most of them; what is beyond is not noted.
const MOST_OPEN: usize = 1 << 16;
/// Longest time for the end of a program to note the last.
const PATIENCE: Duration = Duration::from_secs(2);
/// Markers by which a clock is set: the one that took least counts.
const MARKERS: usize = 5;

/// By device: the difference from its clock to this host's; none where it tells no times.
static CLOCKS: Mutex<Option<HashMap<usize, Option<i64>>>> = Mutex::new(None);

/// Begins, if the environment asks for it.
pub(crate) fn start() {
    if timeline::start() && !system::at_exit(finish) {
        log::warn!("the trace lacks its end: no more functions are taken for the exit");
    }
}

extern "C" fn finish() {
    if crate::callback::forked() {
        return;
    }
    let deadline = Instant::now() + PATIENCE;
    while OPEN.load(Ordering::Acquire) > 0 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
    timeline::flush();
}

/// The properties of the provider's queue, where the application wants these.
pub(crate) fn of_queue(properties: cl_command_queue_properties) -> cl_command_queue_properties {
    match timeline::active() {
        true => properties | CL_QUEUE_PROFILING_ENABLE,
        false => properties,
    }
}

/// Whether a command needs an event to be noted.
#[inline]
pub(crate) fn notes(command: cl_command_type) -> bool {
    timeline::active() && [CL_COMMAND_NDRANGE_KERNEL, CL_COMMAND_TASK].contains(&command)
}

/// Notes a kernel once it has run.
pub(crate) fn launched(queue: &Ref<Queue>, kernel: &Kernel, event: &Ref<Event>) {
    if OPEN.fetch_add(1, Ordering::AcqRel) >= MOST_OPEN {
        OPEN.fetch_sub(1, Ordering::AcqRel);
        return;
    }
    let (queue, event) = (queue.clone(), event.clone());
    let name = kernel.name().to_string_lossy().into_owned();
    let held = event.clone();
    let watched = when_over(&held, move |status| {
        TIMES.run(move || {
            timeline::hide_thread();
            if status == CL_COMPLETE {
                note(&queue, &name, &event);
            }
            OPEN.fetch_sub(1, Ordering::AcqRel);
        });
    });
    if watched.is_err() {
        OPEN.fetch_sub(1, Ordering::AcqRel);
    }
}

fn note(queue: &Queue, name: &str, event: &Event) {
    let Some(raw) = event.at_home(queue.part) else {
        return;
    };
    let times =
        [CL_PROFILING_COMMAND_START, CL_PROFILING_COMMAND_END].map(|what| time(queue, raw, what));
    let ([Some(began), Some(ended)], Some(offset)) = (times, offset(queue)) else {
        return;
    };
    let track = format!(
        "{}: queue {:x}",
        queue.part().provider.name,
        queue.raw.0.addr() & 0xffff_ffff
    );
    let here = |time: u64| time.saturating_add_signed(offset);
    timeline::on_device(&track, name, here(began), here(ended));
}

fn time(queue: &Queue, raw: RawEvent, what: cl_profiling_info) -> Option<u64> {
    let mut time = 0_u64;
    let status = provider!(
        queue.part().provider.api,
        clGetEventProfilingInfo(
            raw.0,
            what,
            size_of::<u64>(),
            (&raw mut time).cast(),
            std::ptr::null_mut()
        )
    );
    (status == CL_SUCCESS && time > 0).then_some(time)
}

/// The difference from the clock of a queue's device to this host's.
fn offset(queue: &Queue) -> Option<i64> {
    let device = queue.device.raw.0.addr();
    let known = |clocks: &mut Option<HashMap<usize, Option<i64>>>| {
        clocks.get_or_insert_default().get(&device).copied()
    };
    let mut clocks = CLOCKS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = known(&mut clocks) {
        return known;
    }
    let set = set_clock(queue);
    clocks.get_or_insert_default().insert(device, set);
    set
}

fn set_clock(queue: &Queue) -> Option<i64> {
    let owner = queue.part();
    let api = &owner.provider.api;
    let bits = CL_QUEUE_PROFILING_ENABLE;
    let own = create!(
        api,
        clCreateCommandQueue(owner.raw.0, queue.device.raw.0, bits)
    )
    .ok()?;
    let mut best: Option<(u64, i64)> = None;
    for _ in 0..MARKERS {
        let mut event = std::ptr::null_mut();
        let began = timeline::now();
        let enqueued = provider!(
            api,
            clEnqueueMarkerWithWaitList(own, 0, std::ptr::null(), &raw mut event)
        );
        if enqueued != CL_SUCCESS {
            break;
        }
        let waited = provider!(api, clWaitForEvents(1, &raw const event));
        let took = timeline::now() - began;
        let ended = time(queue, Shared(event), CL_PROFILING_COMMAND_END);
        provider!(api, clReleaseEvent(event));
        if let (CL_SUCCESS, Some(ended)) = (waited, ended)
            && best.is_none_or(|(least, _)| took < least)
        {
            best = Some((took, (began + took / 2) as i64 - ended as i64));
        }
    }
    provider!(api, clReleaseCommandQueue(own));
    best.map(|(_, offset)| offset)
}
