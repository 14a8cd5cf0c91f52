//! Queues and events for devices that bring none: one thread per queue, so that commands really run beside the application.
//!
//! [`super::null`] and [`super::serial`] schedule with it. A command is a closure; it runs on its queue's thread once all that it
//! waits for has ended. Everything that waits (a host thread, a queue's thread) waits for [`Progress`] and looks again; no lock is
//! held while a command or a callback of the application runs. `C` is what an implementation knows a context by.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::contract::Bytes;
use super::handles::Alive;
use super::*;

/// What ends a command: nothing, or the negative status that its event takes.
pub(super) type Outcome = Result<(), cl_int>;

/// What a command does, on its queue's thread.
pub(super) type Work = Box<dyn FnOnce() -> Outcome + Send>;

/// A callback for an event: the status that calls it, and the call.
type StatusCallback = (cl_int, Box<dyn FnOnce(cl_int) + Send>);

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A count of everything that may have let a waiter go on.
#[derive(Default)]
struct Progress {
    count: Mutex<u64>,
    moved: Condvar,
}

impl Progress {
    fn seen(&self) -> u64 {
        *locked(&self.count)
    }

    fn bump(&self) {
        *locked(&self.count) += 1;
        self.moved.notify_all();
    }

    fn wait_past(&self, seen: u64) {
        let count = locked(&self.count);
        let waited = self.moved.wait_while(count, |count| *count == seen);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

/// What all queues and events of one platform share.
pub(super) struct Scheduler {
    /// How many objects live.
    pub(super) live: Arc<AtomicU64>,
    progress: Progress,
    closed: AtomicBool,
    start: Instant,
}

impl Scheduler {
    pub(super) fn new() -> Self {
        Self {
            live: Arc::default(),
            progress: Progress::default(),
            closed: AtomicBool::new(false),
            start: Instant::now(),
        }
    }

    /// The platform is gone: queues stop where they are.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.progress.bump();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// The clock of devices and host: nanoseconds since the platform was made, never zero.
    pub(super) fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64 + 1
    }

    /// Waits until the event has ended; its status, zero or negative.
    pub(super) fn wait_for<C>(&self, event: &Event<C>) -> cl_int {
        loop {
            let seen = self.progress.seen();
            let status = event.status();
            if status <= CL_COMPLETE {
                return status;
            }
            self.progress.wait_past(seen);
        }
    }

    /// Waits until all of the events have ended.
    pub(super) fn wait_for_all<C>(&self, events: &[Arc<Event<C>>]) -> Outcome {
        let ended: Vec<cl_int> = events.iter().map(|event| self.wait_for(event)).collect();
        if ended.iter().any(|status| *status < 0) {
            return Err(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
        }
        Ok(())
    }

    /// Moves an event on and calls what was to be called at that status.
    pub(super) fn advance<C>(&self, event: &Event<C>, status: cl_int) {
        let due = {
            let mut state = locked(&event.state);
            match status {
                CL_SUBMITTED => state.times[1] = self.now(),
                CL_RUNNING => state.times[2] = self.now(),
                _ => state.times[3] = self.now(),
            }
            event.status.store(status, Ordering::Release);
            let (due, later) = std::mem::take(&mut state.callbacks)
                .into_iter()
                .partition(|(at, _)| *at >= status);
            state.callbacks = later;
            due
        };
        self.progress.bump();
        Self::call(event, due);
    }

    fn call<C>(event: &Event<C>, mut due: Vec<StatusCallback>) {
        // A command passes SUBMITTED and RUNNING on its way to COMPLETE, whatever order the callbacks were set in.
        due.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
        for (at, callback) in due {
            let status = event.status();
            callback(if status < 0 { status } else { at });
        }
    }

    /// Has `callback` called once the event's status is `at` or an error.
    pub(super) fn on_status<C>(
        &self,
        event: &Event<C>,
        at: cl_int,
        callback: Box<dyn FnOnce(cl_int) + Send>,
    ) {
        let mut state = locked(&event.state);
        if event.status() > at {
            state.callbacks.push((at, callback));
            return;
        }
        drop(state);
        Self::call(event, vec![(at, callback)]);
    }
}

struct EventState {
    /// When the command was queued, submitted, started and ended.
    times: [u64; 4],
    callbacks: Vec<StatusCallback>,
}

/// The completion of one command, or a user event.
pub(super) struct Event<C> {
    pub(super) context: C,
    pub(super) queue: Option<Arc<Queue<C>>>,
    pub(super) command: cl_command_type,
    status: AtomicI32,
    state: Mutex<EventState>,
    _alive: Alive,
}

impl<C> Event<C> {
    pub(super) fn new(
        scheduler: &Scheduler,
        context: C,
        queue: Option<Arc<Queue<C>>>,
        command: cl_command_type,
    ) -> Self {
        let status = if queue.is_some() {
            CL_QUEUED
        } else {
            CL_SUBMITTED
        };
        Self {
            context,
            queue,
            command,
            status: AtomicI32::new(status),
            state: Mutex::new(EventState {
                times: [scheduler.now(), 0, 0, 0],
                callbacks: Vec::new(),
            }),
            _alive: Alive::new(&scheduler.live),
        }
    }

    pub(super) fn status(&self) -> cl_int {
        self.status.load(Ordering::Acquire)
    }

    fn has_ended(&self) -> bool {
        self.status() <= CL_COMPLETE
    }

    /// What `clGetEventInfo` says, of an event of this context with so many references.
    pub(super) fn describe(
        &self,
        name: cl_event_info,
        context: usize,
        references: u32,
    ) -> Result<Vec<u8>, cl_int> {
        Ok(match name {
            CL_EVENT_COMMAND_QUEUE => {
                let queue = self.queue.as_ref();
                queue.map_or(0, |queue| queue.handle).bytes()
            }
            CL_EVENT_CONTEXT => context.bytes(),
            CL_EVENT_COMMAND_TYPE => self.command.bytes(),
            CL_EVENT_COMMAND_EXECUTION_STATUS => self.status().bytes(),
            CL_EVENT_REFERENCE_COUNT => references.bytes(),
            _ => return Err(CL_INVALID_VALUE),
        })
    }

    /// What `clGetEventProfilingInfo` says.
    pub(super) fn time(&self, name: cl_profiling_info) -> Result<u64, cl_int> {
        let profiles = self
            .queue
            .as_ref()
            .is_some_and(|queue| queue.properties & CL_QUEUE_PROFILING_ENABLE != 0);
        let is_complete = self.status() == CL_COMPLETE;
        if !profiles || !is_complete {
            return Err(CL_PROFILING_INFO_NOT_AVAILABLE);
        }
        let [queued, submitted, started, ended] = locked(&self.state).times;
        match name {
            CL_PROFILING_COMMAND_QUEUED => Ok(queued),
            CL_PROFILING_COMMAND_SUBMIT => Ok(submitted),
            CL_PROFILING_COMMAND_START => Ok(started),
            CL_PROFILING_COMMAND_END | CL_PROFILING_COMMAND_COMPLETE => Ok(ended),
            _ => Err(CL_INVALID_VALUE),
        }
    }

    /// Ends a user event; only the first time counts.
    pub(super) fn end(&self, scheduler: &Scheduler, status: cl_int) -> Outcome {
        {
            let _state = locked(&self.state);
            if self.has_ended() {
                return Err(CL_INVALID_OPERATION);
            }
            self.status.store(status, Ordering::Release);
        }
        scheduler.advance(self, status);
        Ok(())
    }
}

struct Command<C> {
    event: Arc<Event<C>>,
    /// The wait list: a failure there is a failure of the command.
    waits: Vec<Arc<Event<C>>>,
    /// Commands that must have ended, well or not.
    after: Vec<Arc<Event<C>>>,
    work: Work,
}

impl<C> Command<C> {
    fn is_ready(&self) -> bool {
        self.waits
            .iter()
            .chain(&self.after)
            .all(|event| event.has_ended())
    }

    fn run(self, scheduler: &Scheduler) {
        scheduler.advance(&self.event, CL_SUBMITTED);
        let outcome = if self.waits.iter().any(|event| event.status() < 0) {
            Err(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST)
        } else {
            scheduler.advance(&self.event, CL_RUNNING);
            (self.work)()
        };
        scheduler.advance(&self.event, outcome.err().unwrap_or(CL_COMPLETE));
    }
}

struct QueueState<C> {
    pending: VecDeque<Command<C>>,
    /// Events of commands that had not ended when last looked.
    unfinished: Vec<Arc<Event<C>>>,
    /// Length of `unfinished` at which it is worth looking again.
    look_at: usize,
    barrier: Option<Arc<Event<C>>>,
    is_released: bool,
}

impl<C> Default for QueueState<C> {
    fn default() -> Self {
        Self {
            pending: VecDeque::new(),
            unfinished: Vec::new(),
            look_at: 0,
            barrier: None,
            is_released: false,
        }
    }
}

impl<C> QueueState<C> {
    fn unfinished(&mut self) -> Vec<Arc<Event<C>>> {
        self.unfinished.retain(|event| !event.has_ended());
        self.unfinished.clone()
    }

    fn note(&mut self, event: &Arc<Event<C>>) {
        if self.unfinished.len() >= self.look_at {
            self.unfinished.retain(|event| !event.has_ended());
            self.look_at = 64.max(2 * self.unfinished.len());
        }
        self.unfinished.push(event.clone());
    }
}

/// How a command orders the others of an out-of-order queue.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// Only by its wait list.
    Free,
    /// After its wait list or, without one, after all commands so far.
    Marker,
    /// A marker that later commands wait for.
    Barrier,
}

/// A command queue.
pub(super) struct Queue<C> {
    pub(super) handle: usize,
    pub(super) context: C,
    pub(super) device: usize,
    pub(super) properties: cl_command_queue_properties,
    pub(super) property_list: Vec<cl_queue_properties>,
    /// Commands run in the order they came in, whatever the application asked for.
    keeps_order: bool,
    _alive: Alive,
    state: Mutex<QueueState<C>>,
}

impl<C: Clone + Send + Sync + 'static> Queue<C> {
    pub(super) fn new(
        handle: usize,
        context: C,
        device: usize,
        properties: cl_command_queue_properties,
        property_list: Vec<cl_queue_properties>,
        keeps_order: bool,
        alive: Alive,
    ) -> Self {
        Self {
            handle,
            context,
            device,
            properties,
            property_list,
            keeps_order,
            _alive: alive,
            state: Mutex::default(),
        }
    }

    /// Starts the queue's thread, under this name.
    pub(super) fn start(
        self: &Arc<Self>,
        scheduler: &Arc<Scheduler>,
        name: &str,
    ) -> std::io::Result<()> {
        let (queue, scheduler) = (self.clone(), scheduler.clone());
        std::thread::Builder::new()
            .name(name.into())
            .spawn(move || queue.serve(&scheduler))
            .map(drop)
    }

    /// The last reference is gone: the thread ends when it has nothing left to do.
    pub(super) fn released(&self, scheduler: &Scheduler) {
        locked(&self.state).is_released = true;
        scheduler.progress.bump();
    }

    /// Adds a command and gives its event.
    pub(super) fn enqueue(
        self: &Arc<Self>,
        scheduler: &Scheduler,
        command: cl_command_type,
        waits: Vec<Arc<Event<C>>>,
        order: Order,
        work: Work,
    ) -> Arc<Event<C>> {
        let event = Arc::new(Event::new(
            scheduler,
            self.context.clone(),
            Some(self.clone()),
            command,
        ));
        {
            let mut state = locked(&self.state);
            let mut after: Vec<_> = state.barrier.iter().cloned().collect();
            if order != Order::Free && waits.is_empty() {
                after.extend(state.unfinished());
            }
            if order == Order::Barrier {
                state.barrier = Some(event.clone());
            }
            state.note(&event);
            state.pending.push_back(Command {
                event: event.clone(),
                waits,
                after,
                work,
            });
        }
        scheduler.progress.bump();
        event
    }

    /// Waits for every command so far.
    pub(super) fn finish(&self, scheduler: &Scheduler) {
        let unfinished = locked(&self.state).unfinished();
        for event in unfinished {
            scheduler.wait_for(&event);
        }
    }

    fn is_in_order(&self) -> bool {
        self.keeps_order || self.properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE == 0
    }

    fn serve(&self, scheduler: &Scheduler) {
        loop {
            let seen = scheduler.progress.seen();
            if scheduler.is_closed() {
                // Pending commands and what they hold end with the state, outside the lock.
                let state = std::mem::take(&mut *locked(&self.state));
                return drop(state);
            }
            let next = {
                let mut state = locked(&self.state);
                let candidates = if self.is_in_order() {
                    1
                } else {
                    state.pending.len()
                };
                let ready = state
                    .pending
                    .iter()
                    .take(candidates)
                    .position(Command::is_ready);
                if ready.is_none() && state.pending.is_empty() && state.is_released {
                    let state = std::mem::take(&mut *state);
                    return drop(state);
                }
                ready.and_then(|at| state.pending.remove(at))
            };
            match next {
                Some(command) => command.run(scheduler),
                None => scheduler.progress.wait_past(seen),
            }
        }
    }
}
