//! Completions: from the vendor's event callbacks to pushes.

use std::collections::{HashMap, VecDeque};
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use smallvec::SmallVec;
use towline_backend::opencl::*;
use towline_wire::push::Push;

use crate::shared::{Raw, Shared, event_status};

/// What is to be done with an event's final status.
type Then = Box<dyn FnOnce(i32) + Send>;
/// The same, until somebody does it.
type Due = Mutex<Option<Then>>;

/// Calls `then` with the event's final status, on whatever thread the vendor calls back, or on this one. `then` must not wait.
///
/// Gives the status back when the vendor refuses the callback; `then` has not run then.
pub(crate) fn when_complete(
    api: &dyn OpenClApi,
    event: cl_event,
    then: impl FnOnce(i32) + Send + 'static,
) -> Result<(), cl_int> {
    call_back(api, event, &Arc::new(Mutex::new(Some(Box::new(then)))))
}

/// Has the vendor do what is due when the event is complete.
fn call_back(api: &dyn OpenClApi, event: cl_event, due: &Arc<Due>) -> Result<(), cl_int> {
    let data = Arc::into_raw(Arc::clone(due));
    // What is due may release the event, on another thread, before its status is asked for below.
    // SAFETY: the event is live.
    unsafe { api.clRetainEvent(event) };
    // SAFETY: the event is live; the callback takes `data` at most once, when the event is complete.
    let status = unsafe {
        api.clSetEventCallback(event, CL_COMPLETE, Some(completed), data.cast_mut().cast())
    };
    if status != CL_SUCCESS {
        // SAFETY: a refused registration never calls back, so the reference is still ours.
        drop(unsafe { Arc::from_raw(data) });
        // SAFETY: the reference is the one taken above.
        unsafe { api.clReleaseEvent(event) };
        return Err(status);
    }
    // Oclgrind (21.10) forgets a callback that comes after the event's end. The reference it holds is lost with it.
    let status = event_status(api, event);
    // SAFETY: the reference is the one taken above.
    unsafe { api.clReleaseEvent(event) };
    if status <= CL_COMPLETE {
        carry_out(due, status);
    }
    Ok(())
}

unsafe extern "C" fn completed(_event: cl_event, status: cl_int, data: *mut c_void) {
    // SAFETY: `data` is the reference that `when_complete` registered, and the vendor calls back at most once.
    let due = unsafe { Arc::from_raw(data.cast::<Due>()) };
    carry_out(&due, status);
}

/// Does what is due, unless that has happened.
fn carry_out(due: &Due, status: i32) {
    let then = due.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(then) = then else {
        return;
    };
    if std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| then(status))).is_err() {
        log::error!("a completion panicked");
        std::process::abort();
    }
}

/// Most requests that are answered without a thread of their own: beyond it they take threads, and of those that queue there is a limit.
const OWED_LIMIT: usize = 256;
/// Most completions of a watched queue that wait for each other to be sent.
const TOLD_AT_ONCE: usize = 64;

/// A queue whose events a thread waits for, one after another.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Watched {
    /// The native queue.
    pub(crate) queue: usize,
    /// Its events come in the order of its commands. Else one may overtake another, and the vendor may be the first to tell.
    pub(crate) in_order: bool,
}

/// Completions of one queue, in the order of its commands.
#[derive(Default)]
pub(crate) struct Watch {
    jobs: VecDeque<(Raw, Then)>,
    running: bool,
}

/// An event whose end the client has not been told.
pub(crate) struct Outstanding {
    native: Raw,
    /// What the client asked, and is answered when this event has ended, among others.
    waits: SmallVec<[Arc<Awaited>; 1]>,
}

impl Outstanding {
    pub(crate) fn new(native: cl_event) -> Self {
        Self {
            native: Raw(native.cast()),
            waits: SmallVec::new(),
        }
    }
}

/// A request that is answered when all of its events have ended.
struct Awaited {
    request: u64,
    began: Instant,
    open: AtomicUsize,
    failed: AtomicBool,
    _owed: Owed,
}

/// The place of such a request among those that a session may have.
pub(crate) struct Owed(Arc<AtomicUsize>);

impl Drop for Owed {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Awaited {
    /// One of the events has ended; whether it was the last.
    fn count_down(&self, status: i32) -> bool {
        if status < 0 {
            self.failed.store(true, Ordering::Relaxed);
        }
        self.open.fetch_sub(1, Ordering::AcqRel) == 1
    }

    fn status(&self) -> i32 {
        match self.failed.load(Ordering::Acquire) {
            true => CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST,
            false => CL_SUCCESS,
        }
    }
}

impl Shared {
    /// Calls `then` with the final status of `event` (0, or negative), then gives the reference to the event back. What `then` posts
    /// is sent after it.
    ///
    /// `watch` names a queue whose events are waited for on a thread, in the order of its commands: NVIDIA's callbacks come up to
    /// 20 ms late (driver 580.159).
    pub(crate) fn when_done(
        self: &Arc<Self>,
        watch: Option<Watched>,
        event: Raw,
        then: impl FnOnce(i32) + Send + 'static,
    ) {
        let shared = Arc::clone(self);
        let Some(Watched { queue, in_order }) = watch else {
            let told = when_complete(&*self.api, event.0.cast(), move |status| {
                let event = event;
                // Nothing of this status is in the future any more.
                then(status.min(CL_COMPLETE));
                shared.flush();
                shared.release_event(event);
            });
            if let Err(status) = told {
                let name = status_name(status).unwrap_or("?");
                log::error!("the vendor refuses an event callback: {name}");
                self.end();
            }
            return;
        };
        let then: Then = if in_order {
            Box::new(then)
        } else {
            let told = Arc::clone(&shared);
            let due: Arc<Due> = Arc::new(Mutex::new(Some(Box::new(move |status| {
                then(status.min(CL_COMPLETE));
                // The vendor's thread has nobody who does it later.
                told.flush();
            }))));
            // Without a callback the thread below tells.
            let _ = call_back(&*self.api, event.0.cast(), &due);
            Box::new(move |status| carry_out(&due, status))
        };
        let mut watches = self.watches();
        let watch = watches.entry(queue).or_default();
        watch.jobs.push_back((event, then));
        if std::mem::replace(&mut watch.running, true) {
            return;
        }
        drop(watches);
        self.waiters.run(move || shared.watch(queue));
    }

    /// Waits for the events of a queue until none is left.
    fn watch(&self, queue: usize) {
        // Thousands of short kernels may end before their events are gone through: those are told in few segments.
        let mut untold = 0;
        while let Some((event, then)) = self.next_watched(queue, &mut untold) {
            let mut status = event_status(&*self.api, event.0.cast());
            if status > CL_COMPLETE || untold >= TOLD_AT_ONCE {
                self.flush();
                untold = 0;
            }
            if status > CL_COMPLETE {
                // SAFETY: the reference is this job's.
                unsafe { self.api.clWaitForEvents(1, (&raw const event.0).cast()) };
                status = event_status(&*self.api, event.0.cast());
            }
            then(status.min(CL_COMPLETE));
            untold += 1;
            self.release_event(event);
        }
    }

    /// The next event of a queue to wait for; with none left what is untold is sent, and the queue's thread is through.
    fn next_watched(&self, queue: usize, untold: &mut usize) -> Option<(Raw, Then)> {
        let mut watches = self.watches();
        let next = watches.get_mut(&queue)?.jobs.pop_front();
        if next.is_some() {
            return next;
        }
        if std::mem::take(untold) > 0 {
            drop(watches);
            self.flush();
            // More may have come meanwhile.
            return self.next_watched(queue, untold);
        }
        watches.remove(&queue);
        None
    }

    fn watches(&self) -> MutexGuard<'_, HashMap<usize, Watch>> {
        self.watches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the client when `native` is complete; `id` is its number there.
    pub(crate) fn report_event(
        self: &Arc<Self>,
        id: u64,
        native: cl_event,
        watch: Option<Watched>,
    ) {
        // SAFETY: the event is live; this reference lasts until its end has been told.
        unsafe { self.api.clRetainEvent(native) };
        self.outstanding().insert(id, Outstanding::new(native));
        // SAFETY: as above; this reference is the completion's.
        unsafe { self.api.clRetainEvent(native) };
        let shared = Arc::clone(self);
        self.when_done(watch, Raw(native.cast()), move |status| {
            shared.event_done(id, status);
        });
    }

    /// Tells the client that an event reached its last state, unless it knows.
    pub(crate) fn event_done(&self, id: u64, status: i32) {
        // Held until it is told: whoever finds the event gone may answer a wait that covers it.
        let mut outstanding = self.outstanding();
        let Some(Outstanding { native, waits }) = outstanding.remove(&id) else {
            return;
        };
        self.tell_printed();
        let after = self.completed_reads();
        self.post(&Push::Event {
            event: id,
            status,
            after: List::Values(&after),
            times: None,
        });
        drop(outstanding);
        self.release_event(native);
        for wait in waits {
            if wait.count_down(status) {
                self.usage.waited(wait.began.elapsed());
                self.answer_wait(wait.request, wait.status());
            }
        }
    }

    /// Room for one more request that is answered without a thread of its own.
    pub(crate) fn owe(&self) -> Option<Owed> {
        let before = self.owed.fetch_add(1, Ordering::Relaxed);
        let owed = Owed(Arc::clone(&self.owed));
        (before < OWED_LIMIT).then_some(owed)
    }

    /// Has a request answered by whoever tells the end of the last of these events, by their numbers and the vendor's; `false` where one of
    /// them is of a kind that nobody tells of, or too many wait so.
    pub(crate) fn answer_behind(&self, request: u64, events: &[(u64, cl_event)]) -> bool {
        let mut outstanding = self.outstanding();
        let (mut open, mut failed) = (0, false);
        for (id, native) in events {
            if outstanding.contains_key(id) {
                open += 1;
                continue;
            }
            match event_status(&*self.api, *native) {
                status if status > CL_COMPLETE => return false,
                status => failed |= status < 0,
            }
        }
        let Some(owed) = self.owe() else { return false };
        let wait = Arc::new(Awaited {
            request,
            began: Instant::now(),
            open: AtomicUsize::new(open),
            failed: AtomicBool::new(failed),
            _owed: owed,
        });
        for (id, _) in events {
            if let Some(known) = outstanding.get_mut(id) {
                known.waits.push(Arc::clone(&wait));
            }
        }
        drop(outstanding);
        if open == 0 {
            self.answer_wait(request, wait.status());
        }
        true
    }

    /// Answers a wait that is over; what is posted so is sent with what else there is.
    pub(crate) fn answer_wait(&self, request: u64, status: i32) {
        self.settle_before_answer();
        self.answer(request, status, &[]);
    }

    /// Tells what kernels have printed. With the outstanding events locked: text that another thread has taken is told by then.
    fn tell_printed(&self) {
        let text = self.printing.take();
        if !text.is_empty() {
            self.post(&Push::Text { bytes: &text });
        }
    }

    /// Tells the client that the command of an event was never enqueued.
    pub(crate) fn event_failed(&self, id: u64, status: i32) {
        self.post(&Push::Event {
            event: id,
            status,
            after: List::Values(&[]),
            times: None,
        });
    }

    /// Tells of every event that is complete by now. Vendors call back when they get round to it; a client whose wait is over must not
    /// find an event of before unfinished.
    fn tell_completed(&self) {
        let mut done: Vec<(u64, i32)> = self
            .outstanding()
            .iter()
            .map(|(id, known)| (*id, event_status(&*self.api, known.native.0.cast())))
            .filter(|(_, status)| *status <= CL_COMPLETE)
            .collect();
        done.sort_unstable();
        for (id, status) in done {
            self.event_done(id, status);
        }
    }

    /// What the client must see before a wait of its own ends: what kernels printed, and events that ended with it.
    pub(crate) fn settle_before_answer(&self) {
        let outstanding = self.outstanding();
        self.tell_printed();
        drop(outstanding);
        self.tell_completed();
    }

    /// Gives back events of which nobody needs to hear any more.
    pub(crate) fn forget_events(&self) {
        let events = std::mem::take(&mut *self.outstanding());
        for event in events.into_values() {
            self.release_event(event.native);
        }
    }

    fn outstanding(&self) -> MutexGuard<'_, HashMap<u64, Outstanding>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops a reference to a native event.
    pub(crate) fn release_event(&self, event: Raw) {
        // SAFETY: whoever calls this owns the reference.
        unsafe { self.api.clReleaseEvent(event.0.cast()) };
    }
}
