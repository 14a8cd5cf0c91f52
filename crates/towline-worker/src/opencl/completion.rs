//! Completions: from the vendor's event callbacks to pushes.

use std::collections::{HashMap, VecDeque};
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use smallvec::SmallVec;
use towline_backend::opencl::*;
use towline_wire::push::Push;

use super::shared::{Raw, Shared, event_status};

/// What is to be done with an event's final status.
type Then = Box<dyn FnOnce(i32) + Send>;
/// The same, until somebody does it.
pub(crate) type Due = Mutex<Option<Then>>;

/// What is to be done once, by whoever comes first.
pub(crate) fn due(then: impl FnOnce(i32) + Send + 'static) -> Arc<Due> {
    Arc::new(Mutex::new(Some(Box::new(then))))
}

/// Calls `then` with the event's final status, on whatever thread the vendor calls back, or on this one. `then` must not wait.
///
/// Gives the status back when the vendor refuses the callback; `then` has not run then.
pub(crate) fn when_complete(
    api: &dyn OpenClApi,
    event: cl_event,
    then: impl FnOnce(i32) + Send + 'static,
) -> Result<(), cl_int> {
    call_back(api, event, &due(then))
}

/// Has the vendor do what is due when the event is complete.
pub(crate) fn call_back(
    api: &dyn OpenClApi,
    event: cl_event,
    due: &Arc<Due>,
) -> Result<(), cl_int> {
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
pub(crate) fn carry_out(due: &Due, status: i32) {
    let then = due.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(then) = then else {
        return;
    };
    if std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| then(status))).is_err() {
        log::error!("a completion panicked");
        std::process::abort();
    }
}

/// How long an answer may be owed while the lane is busy.
const OVERDUE: Duration = Duration::from_millis(1);
/// Most completions of a watched queue that wait for each other to be sent.
const TOLD_AT_ONCE: usize = 64;
/// From so many commands on, those that have ended are looked for among the watched ones without waiting for the watchdog.
const CLEAR_AT: usize = 1024;

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
    /// The times at which its command ran are told with its end.
    timed: bool,
    /// What the client asked, and is answered when this event has ended, among others.
    waits: SmallVec<[Arc<Awaited>; 1]>,
}

impl Outstanding {
    pub(crate) fn new(native: cl_event, timed: bool) -> Self {
        Self {
            native: Raw(native.cast()),
            timed,
            waits: SmallVec::new(),
        }
    }
}

/// A request that is answered when all of its events have ended.
struct Awaited {
    open: AtomicUsize,
    failed: AtomicBool,
    due: Arc<Due>,
}

impl Awaited {
    /// One of the events has ended. With the last the request is answered.
    fn count_down(&self, status: i32) {
        if status < 0 {
            self.failed.store(true, Ordering::Relaxed);
        }
        if self.open.fetch_sub(1, Ordering::AcqRel) == 1 {
            carry_out(&self.due, list_status(self.failed.load(Ordering::Acquire)));
        }
    }
}

/// What a wait for events ends with.
pub(crate) fn list_status(failed: bool) -> i32 {
    match failed {
        true => CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST,
        false => CL_SUCCESS,
    }
}

/// An answer that the vendor's threads owe. They tell nothing where a command fails (PoCL 3.1), or late: what they have not told soon is
/// [left](Self::wait_for_it) to a thread that waits.
pub(crate) struct Owed {
    /// With a reference each.
    events: SmallVec<[Raw; 2]>,
    due: Arc<Due>,
    since: Instant,
}

impl Owed {
    pub(crate) fn new(events: SmallVec<[Raw; 2]>, due: Arc<Due>) -> Self {
        Self {
            events,
            due,
            since: Instant::now(),
        }
    }

    fn is_paid(&self) -> bool {
        let due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        due.is_none()
    }

    fn release(self, shared: &Shared) {
        for event in self.events {
            shared.release_event(event);
        }
    }

    /// Has a thread wait for the events, and do then what is still due.
    fn wait_for_it(self, shared: &Arc<Shared>) {
        let waiting = Arc::clone(shared);
        shared.waiters.run(move || {
            let list = self.events.as_ptr().cast();
            // SAFETY: the references are ours; `Raw` is a transparent view of the pointers' bits.
            let status = unsafe {
                waiting
                    .api
                    .clWaitForEvents(self.events.len() as cl_uint, list)
            };
            carry_out(&self.due, status.min(CL_SUCCESS));
            waiting.flush();
            self.release(&waiting);
        });
    }
}

/// The answers that a session's vendor owes.
#[derive(Default)]
pub(crate) struct Debts(Vec<Owed>);

impl Debts {
    /// Most: beyond it waits take threads at once, and of those that queue there is a limit.
    const LIMIT: usize = 256;

    pub(crate) fn has_room(&self) -> bool {
        self.0.len() < Self::LIMIT
    }

    pub(crate) fn add(&mut self, owed: Owed) {
        self.0.push(owed);
    }

    /// Whether something is owed still.
    pub(crate) fn are_open(&mut self, shared: &Shared) -> bool {
        let paid = self.0.extract_if(.., |owed| owed.is_paid());
        paid.for_each(|owed| owed.release(shared));
        !self.0.is_empty()
    }

    /// Whether something has been owed for so long that a thread has to wait for it, whatever else there is to do.
    pub(crate) fn are_overdue(&self) -> bool {
        let oldest = self.0.first();
        oldest.is_some_and(|owed| owed.since.elapsed() > OVERDUE)
    }

    /// Has threads wait for what is owed.
    pub(crate) fn collect(&mut self, shared: &Arc<Shared>) {
        for owed in self.0.drain(..) {
            owed.wait_for_it(shared);
        }
    }

    pub(crate) fn forget(&mut self, shared: &Shared) {
        self.0.drain(..).for_each(|owed| owed.release(shared));
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
            let due = due(move |status| {
                then(status.min(CL_COMPLETE));
                // The vendor's thread has nobody who does it later.
                told.flush();
            });
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

    /// Tells the client when `native` is complete, and with `timed` when its command ran; `id` is its number there.
    pub(crate) fn report_event(
        self: &Arc<Self>,
        id: u64,
        native: cl_event,
        watch: Option<Watched>,
        timed: bool,
    ) {
        // SAFETY: the event is live; this reference lasts until its end has been told.
        unsafe { self.api.clRetainEvent(native) };
        let outstanding = Outstanding::new(native, timed);
        self.outstanding().insert(id, outstanding);
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
        let Some(ended) = outstanding.remove(&id) else {
            return;
        };
        let Outstanding { native, waits, .. } = ended;
        let timed = ended.timed && status == CL_COMPLETE;
        self.tell_printed();
        let after = self.completed_reads();
        self.post(&Push::Event {
            event: id,
            status,
            after: List::Values(&after),
            times: timed.then(|| times_of(&*self.api, native.0.cast())),
        });
        drop(outstanding);
        self.release_event(native);
        for wait in waits {
            wait.count_down(status);
        }
    }

    /// Does what is due once the last of these events, by their numbers and the vendor's, has been told to the client; `false` where one of
    /// them is of a kind that nobody tells of.
    pub(crate) fn when_told(&self, events: &[(u64, cl_event)], due: &Arc<Due>) -> bool {
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
        if open == 0 {
            drop(outstanding);
            carry_out(due, list_status(failed));
            return true;
        }
        let wait = Arc::new(Awaited {
            open: AtomicUsize::new(open),
            failed: AtomicBool::new(failed),
            due: Arc::clone(due),
        });
        for (id, _) in events {
            if let Some(known) = outstanding.get_mut(id) {
                known.waits.push(Arc::clone(&wait));
            }
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
        self.printing.tell(|push| self.post(push));
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
        let at_work = std::mem::take(&mut *self.at_work());
        at_work
            .into_iter()
            .for_each(|event| self.release_event(event));
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

/// The times at which a command that is complete was queued, submitted, started, ended and complete; 0 for what the vendor does not tell.
fn times_of(api: &dyn OpenClApi, event: cl_event) -> [u64; 5] {
    [
        CL_PROFILING_COMMAND_QUEUED,
        CL_PROFILING_COMMAND_SUBMIT,
        CL_PROFILING_COMMAND_START,
        CL_PROFILING_COMMAND_END,
        CL_PROFILING_COMMAND_COMPLETE,
    ]
    .map(|name| {
        let mut time: cl_ulong = 0;
        let target = (&raw mut time).cast();
        // SAFETY: the caller has a reference to the event; the answer is one `cl_ulong`.
        let status = unsafe {
            api.clGetEventProfilingInfo(
                event,
                name,
                size_of::<cl_ulong>(),
                target,
                std::ptr::null_mut(),
            )
        };
        if status == CL_SUCCESS { time } else { 0 }
    })
}

/// Finds kernels that run longer than they may. What waits in a queue does not run.
pub(crate) struct Overruns {
    limit: Duration,
    /// Kernels that were seen running, and since when.
    running: HashMap<usize, Instant>,
}

impl Overruns {
    pub(crate) fn watch(shared: &Shared, limit: Duration) -> Self {
        shared.watched.store(true, Ordering::Relaxed);
        Self {
            limit,
            running: HashMap::new(),
        }
    }

    /// Whether one runs for too long.
    pub(crate) fn look(&mut self, shared: &Shared) -> bool {
        let now = Instant::now();
        let commands = std::mem::take(&mut *shared.at_work());
        let mut at_work = Vec::with_capacity(commands.len());
        let mut longest = Duration::ZERO;
        for event in commands {
            match event_status(&*shared.api, event.0.cast()) {
                status if status <= CL_COMPLETE => {
                    self.running.remove(&event.0.addr());
                    shared.release_event(event);
                    continue;
                }
                CL_RUNNING => {
                    let since = *self.running.entry(event.0.addr()).or_insert(now);
                    longest = longest.max(now.saturating_duration_since(since));
                }
                _ => {}
            }
            at_work.push(event);
        }
        shared.at_work().extend(at_work);
        longest > self.limit
    }
}

/// Whether a command is a kernel, of the program or of the vendor.
fn is_kernel(api: &dyn OpenClApi, event: cl_event) -> bool {
    let mut kind: cl_command_type = 0;
    // SAFETY: the caller has a reference to the event; the answer is one `cl_command_type`.
    unsafe {
        api.clGetEventInfo(
            event,
            CL_EVENT_COMMAND_TYPE,
            size_of::<cl_command_type>(),
            (&raw mut kind).cast(),
            std::ptr::null_mut(),
        )
    };
    matches!(
        kind,
        CL_COMMAND_NDRANGE_KERNEL | CL_COMMAND_TASK | CL_COMMAND_NATIVE_KERNEL
    )
}

impl Shared {
    /// Whether somebody measures how long commands take.
    pub(crate) fn are_commands_watched(&self) -> bool {
        self.watched.load(Ordering::Relaxed)
    }

    /// Has a kernel's time measured.
    pub(crate) fn watch_command(&self, event: cl_event) {
        if !is_kernel(&*self.api, event) {
            return;
        }
        // SAFETY: the event is live; this reference lasts until its command has ended.
        unsafe { self.api.clRetainEvent(event) };
        let mut at_work = self.at_work();
        at_work.push(Raw(event.cast()));
        if at_work.len() >= CLEAR_AT && at_work.len().is_power_of_two() {
            at_work.retain(|event| {
                let goes_on = event_status(&*self.api, event.0.cast()) > CL_COMPLETE;
                if !goes_on {
                    self.release_event(*event);
                }
                goes_on
            });
        }
    }

    fn at_work(&self) -> MutexGuard<'_, Vec<Raw>> {
        self.at_work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
