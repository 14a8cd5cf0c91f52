//! Which devices have commands of an OpenCL session at work, for [`device_time`](crate::device_time).
//!
//! A queue cannot be asked. So a look puts a marker behind the commands that came since the last one, and the queue is at work while that
//! is not complete. Transfers from and to the client are no such commands: theirs may wait for the network.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use smallvec::SmallVec;
use towline_backend::opencl::*;

use super::session::Queue;
use super::shared::{Raw, Shared, event_status};

/// How long a vendor may take to complete the marker of a queue at rest.
const MARKER_TIME: Duration = Duration::from_micros(50);

/// The queues of a session, by native queue.
#[derive(Default)]
pub(crate) struct QueuesAtWork(Mutex<HashMap<usize, Known>>);

/// A queue, with a reference to it.
struct Known {
    queue: Raw,
    device: Raw,
    place: u32,
    /// Commands have come since the last marker.
    commanded: Arc<AtomicBool>,
    /// The last marker, unless it was seen to be complete.
    marker: Option<Raw>,
}

impl QueuesAtWork {
    fn lock(&self) -> MutexGuard<'_, HashMap<usize, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// Puts a marker behind new commands, unless there is one before them that is not complete; whether it did.
    fn mark(&mut self, shared: &Shared) -> bool {
        if self.is_at_work(shared) || !self.commanded.swap(false, Ordering::AcqRel) {
            return false;
        }
        let (queue, mut marker) = (self.queue.0.cast(), std::ptr::null_mut());
        let none = std::ptr::null();
        let api = &shared.api;
        // SAFETY: there is a reference to the queue.
        unsafe { api.clEnqueueMarkerWithWaitList(queue, 0, none, &raw mut marker) };
        // SAFETY: as above. A marker that nobody flushes is never complete.
        unsafe { api.clFlush(queue) };
        self.marker = (!marker.is_null()).then_some(Raw(marker.cast()));
        true
    }

    fn is_at_work(&mut self, shared: &Shared) -> bool {
        let at_work = |marker: &mut Raw| event_status(&*shared.api, marker.0.cast()) > CL_COMPLETE;
        if let Some(complete) = self.marker.take_if(|marker| !at_work(marker)) {
            shared.release_event(complete);
        }
        self.marker.is_some()
    }

    fn release(self, shared: &Shared) {
        if let Some(marker) = self.marker {
            shared.release_event(marker);
        }
        // SAFETY: the reference is ours.
        unsafe { shared.api.clReleaseCommandQueue(self.queue.0.cast()) };
    }
}

impl Shared {
    /// A queue has come. The result is to be set for each command of it.
    pub(crate) fn watch_queue(&self, queue: &Queue) -> Arc<AtomicBool> {
        let commanded = Arc::new(AtomicBool::new(false));
        let known = Known {
            queue: queue.native,
            device: queue.device,
            place: queue.place,
            commanded: Arc::clone(&commanded),
            marker: None,
        };
        // SAFETY: the queue is live.
        unsafe { self.api.clRetainCommandQueue(queue.native.0.cast()) };
        let mut queues = self.queues_at_work.lock();
        if let Some(before) = queues.insert(queue.native.0.addr(), known) {
            before.release(self);
        }
        commanded
    }

    /// The session has let go of a queue.
    pub(crate) fn unwatch_queue(&self, queue: Raw) {
        let known = self.queues_at_work.lock().remove(&queue.0.addr());
        known.into_iter().for_each(|known| known.release(self));
    }

    pub(crate) fn unwatch_queues(&self) {
        let queues = std::mem::take(&mut *self.queues_at_work.lock());
        queues.into_values().for_each(|known| known.release(self));
    }

    /// Devices of which a queue has something to do.
    pub(crate) fn devices_at_work(&self) -> u64 {
        let mut queues = self.queues_at_work.lock();
        let marked = queues
            .values_mut()
            .filter_map(|queue| queue.mark(self).then_some(()));
        let until = Instant::now()
            + if marked.count() > 0 {
                MARKER_TIME
            } else {
                Duration::ZERO
            };
        loop {
            let mut devices = SmallVec::<[Raw; 8]>::new();
            for queue in queues.values_mut() {
                // A queue whose session waits for its turn has nothing at work.
                let has_turn = self.counters.turns.may_work(queue.place);
                if !devices.contains(&queue.device) && queue.is_at_work(self) && has_turn {
                    devices.push(queue.device);
                }
            }
            if devices.is_empty() || Instant::now() >= until {
                return devices.len() as u64;
            }
            std::thread::yield_now();
        }
    }
}
