//! Writes that returned before they were complete.
//!
//! A write that blocks is complete for every later command of its context, on whichever queue (OpenCL 3.0, "Blocking and non-blocking
//! enqueue API calls"). A session returns from it once the application may change its memory again, so that a program with one queue
//! never waits for the network. The order of that queue is enough there. For the commands of other queues the write leaves a fence, an event
//! behind it, which they wait for.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use towline_backend::opencl::*;

use crate::arena::Ref;
use crate::command::Waits;
use crate::context::{Context, Part};
use crate::event::{RawEvent, status_of, watch};
use crate::providers::Provider;
use crate::queue::Queue;
use crate::raw::{Shared, provider};

/// An event behind the writes of one queue.
struct Fence {
    provider: Arc<Provider>,
    queue: Shared<_cl_command_queue>,
    raw: RawEvent,
}

impl Drop for Fence {
    fn drop(&mut self) {
        provider!(self.provider.api, clReleaseEvent(self.raw.0));
    }
}

#[derive(Default)]
struct Known {
    /// The queues that live, and whether one has writes that no fence stands for.
    queues: Vec<(Shared<_cl_command_queue>, bool)>,
    fences: Vec<Arc<Fence>>,
}

/// The fences of one part of a context.
#[derive(Default)]
pub(crate) struct Fences {
    known: Mutex<Known>,
    /// The number of fences: without any, commands look no further.
    count: AtomicUsize,
}

impl Fences {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets all fences, before the context ends that their events belong to.
    pub(crate) fn clear(&self) {
        self.known().fences.clear();
    }
}

impl Part {
    /// Notes a new queue. Its commands come after the writes of the others.
    pub(crate) fn queue_opened(&self, queue: Shared<_cl_command_queue>) {
        let mut known = self.fences.known();
        self.leave_fences(&mut known);
        known.queues.push((queue, false));
    }

    /// Notes the end of a queue, whose writes stay before what comes after.
    pub(crate) fn queue_closed(&self, queue: Shared<_cl_command_queue>) {
        let mut known = self.fences.known();
        if known
            .queues
            .iter()
            .any(|(own, wrote)| *wrote && own.0 == queue.0)
        {
            self.leave_fence(&mut known, queue);
        }
        known.queues.retain(|(own, _)| own.0 != queue.0);
    }

    /// Notes that commands may wait for the application from now on: a fence behind such a command would come too late.
    pub(crate) fn user_event_counted(&self) {
        self.leave_fences(&mut self.fences.known());
    }

    fn leave_fences(&self, known: &mut Known) {
        for at in 0..known.queues.len() {
            let (queue, wrote) = known.queues[at];
            if wrote {
                self.leave_fence(known, queue);
                known.queues[at].1 = false;
            }
        }
    }

    /// Notes a write of an in-order queue that has returned and may not be complete.
    pub(crate) fn wrote(&self, queue: &Queue) {
        let mut known = self.fences.known();
        if known.queues.len() > 1 || queue.context.awaits_user() {
            return self.leave_fence(&mut known, queue.raw);
        }
        for (_, wrote) in &mut known.queues {
            *wrote = true;
        }
    }

    fn leave_fence(&self, known: &mut Known, queue: Shared<_cl_command_queue>) {
        let mut raw = std::ptr::null_mut();
        let marked = provider!(
            self.provider.api,
            clEnqueueMarkerWithWaitList(queue.0, 0, std::ptr::null(), &raw mut raw)
        );
        // Only a session that is over refuses one, and it refuses everything else.
        if marked != CL_SUCCESS {
            return;
        }
        // A fence that nobody flushed would never open.
        provider!(self.provider.api, clFlush(queue.0));
        // The order of the queue makes the new fence stand for the earlier ones.
        known.fences.retain(|fence| fence.queue.0 != queue.0);
        known.fences.push(Arc::new(Fence {
            provider: Arc::clone(&self.provider),
            queue,
            raw: Shared(raw),
        }));
        self.fences
            .count
            .store(known.fences.len(), Ordering::Release);
    }

    /// Keeps something until the commands that the part's queues have so far are complete.
    pub(crate) fn keep_until_quiet<T: Send + Sync + 'static>(
        &self,
        context: &Ref<Context>,
        kept: &Arc<T>,
    ) {
        let known = self.fences.known();
        for (queue, _) in &known.queues {
            let mut raw = std::ptr::null_mut();
            let marked = provider!(
                self.provider.api,
                clEnqueueMarkerWithWaitList(queue.0, 0, std::ptr::null(), &raw mut raw)
            );
            if marked != CL_SUCCESS {
                continue;
            }
            provider!(self.provider.api, clFlush(queue.0));
            let marker = Arc::new(Fence {
                provider: Arc::clone(&self.provider),
                queue: *queue,
                raw: Shared(raw),
            });
            let held = (Arc::clone(kept), Arc::clone(&marker), context.clone());
            // Without a report nobody knows when it ends: it counts as complete.
            let _ = watch(self.api(), marker.raw, move |_| drop(held));
        }
    }

    /// Has a command of the queue wait for the writes of others.
    #[inline]
    pub(crate) fn add_fences(&self, queue: &Queue, waits: &mut Waits) {
        if self.fences.count.load(Ordering::Acquire) > 0 {
            self.add_open_fences(queue, waits);
        }
    }

    fn add_open_fences(&self, queue: &Queue, waits: &mut Waits) {
        let mut known = self.fences.known();
        known.fences.retain(|fence| {
            fence.queue.0 == queue.raw.0 || status_of(self.api(), fence.raw) > CL_COMPLETE
        });
        self.fences
            .count
            .store(known.fences.len(), Ordering::Release);
        for fence in known
            .fences
            .iter()
            .filter(|fence| fence.queue.0 != queue.raw.0)
        {
            waits.add_own(fence.raw, Arc::clone(fence) as Arc<dyn Send + Sync>);
        }
    }
}
