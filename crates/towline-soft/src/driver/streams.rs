//! Streams: a thread each, that carries out commands in order, and events between them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use towline_backend::cuda::*;

use super::{Context, lock};

/// What a command does; a failure is its context's.
pub(super) type Work = Box<dyn FnOnce() -> CUresult + Send>;

/// Commands of a stream that may wait before its caller has to.
const DEPTH: u64 = 1024;

/// One stream.
pub(super) struct Queue {
    context: Arc<Context>,
    blocking: bool,
    default: bool,
    commands: Mutex<Commands>,
}

#[derive(Default)]
struct Commands {
    waiting: VecDeque<(Vec<Place>, Work)>,
    enqueued: u64,
    done: u64,
    ended: bool,
}

/// A stream, and how many of its commands must be done. One that is gone has done all of them.
#[derive(Clone)]
pub struct Place(Weak<Queue>, u64);

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Place").field(&self.1).finish()
    }
}

impl Place {
    pub(super) fn is_reached(&self) -> bool {
        let queue = self.0.upgrade();
        queue.is_none_or(|queue| lock(&queue.commands).done >= self.1)
    }

    pub(super) fn is_of(&self, queue: &Arc<Queue>) -> bool {
        std::ptr::eq(self.0.as_ptr(), Arc::as_ptr(queue))
    }
}

/// An event: what it was last recorded behind.
pub struct Event {
    timed: bool,
    recorded: Mutex<Option<Recorded>>,
}

#[derive(Clone)]
struct Recorded {
    place: Place,
    context: Arc<Context>,
    at: Arc<Mutex<Option<Instant>>>,
}

/// All streams of a driver.
#[derive(Default)]
pub(super) struct Streams {
    /// Those that live. Its lock goes with `changed`.
    all: Mutex<Vec<Weak<Queue>>>,
    /// Some command was enqueued or done, or some stream ends.
    changed: Condvar,
    /// Commands that are being carried out.
    busy: AtomicUsize,
}

impl Queue {
    pub(super) fn start(
        streams: &Arc<Streams>,
        context: &Arc<Context>,
        blocking: bool,
        default: bool,
    ) -> Arc<Self> {
        let queue = Arc::new(Self {
            context: Arc::clone(context),
            blocking,
            default,
            commands: Mutex::default(),
        });
        lock(&streams.all).push(Arc::downgrade(&queue));
        let (streams, running) = (Arc::clone(streams), Arc::clone(&queue));
        let thread = std::thread::Builder::new().name("towline-stream".into());
        let started = thread.spawn(move || streams.carry_out(&running));
        if let Err(error) = started {
            log::error!("could not start a thread for a stream: {error}");
            context.fail(CUDA_ERROR_OPERATING_SYSTEM);
        }
        queue
    }

    pub(super) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    pub(super) fn is_blocking(&self) -> bool {
        self.blocking
    }

    /// Behind everything that is enqueued now.
    fn here(self: &Arc<Self>) -> Place {
        Place(Arc::downgrade(self), lock(&self.commands).enqueued)
    }
}

impl Event {
    pub(super) fn new(flags: u32) -> Self {
        Self {
            timed: flags & CU_EVENT_DISABLE_TIMING == 0,
            recorded: Mutex::new(None),
        }
    }

    fn recorded(&self) -> Option<Recorded> {
        lock(&self.recorded).clone()
    }

    /// The place behind which it was last recorded.
    pub(super) fn place(&self) -> Option<Place> {
        self.recorded().map(|recorded| recorded.place)
    }
}

impl Streams {
    /// Carries out a stream's commands until it ends.
    fn carry_out(&self, queue: &Queue) {
        loop {
            let mut all = lock(&self.all);
            let next = loop {
                let mut commands = lock(&queue.commands);
                if let Some(next) = commands.waiting.pop_front() {
                    break Some(next);
                }
                if commands.ended {
                    break None;
                }
                drop(commands);
                all = self.wait_for_change(all);
            };
            let Some((after, work)) = next else {
                return;
            };
            while !after.iter().all(Place::is_reached) {
                all = self.wait_for_change(all);
            }
            drop(all);
            // What follows a failure is not carried out.
            if queue.context.status().is_ok() {
                // Before it looks for memory: whoever takes that away sees either.
                self.busy.fetch_add(1, Ordering::SeqCst);
                let status = work();
                self.busy.fetch_sub(1, Ordering::SeqCst);
                if status != CUDA_SUCCESS {
                    queue.context.fail(status);
                }
            }
            let all = lock(&self.all);
            lock(&queue.commands).done += 1;
            drop(all);
            self.changed.notify_all();
        }
    }

    fn wait_for_change<'l>(
        &self,
        all: MutexGuard<'l, Vec<Weak<Queue>>>,
    ) -> MutexGuard<'l, Vec<Weak<Queue>>> {
        let woken = self.changed.wait(all);
        woken.unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether no command is being carried out.
    pub(super) fn is_quiet(&self) -> bool {
        self.busy.load(Ordering::SeqCst) == 0
    }

    /// Enqueues a command; gives the place behind it. The caller has to wait while too many are enqueued.
    pub(super) fn push(&self, queue: &Arc<Queue>, work: Work) -> Place {
        self.push_after(queue, Vec::new(), work)
    }

    /// Enqueues a command that waits for places in other streams too.
    pub(super) fn push_after(&self, queue: &Arc<Queue>, after: Vec<Place>, work: Work) -> Place {
        let mut all = lock(&self.all);
        loop {
            let commands = lock(&queue.commands);
            if commands.enqueued - commands.done < DEPTH {
                break;
            }
            drop(commands);
            all = self.wait_for_change(all);
        }
        self.enqueue(all, queue, after, work)
    }

    /// Enqueues a command that belongs to the one before it, however many there are.
    pub(super) fn follow(&self, queue: &Arc<Queue>, after: Vec<Place>, work: Work) -> Place {
        self.enqueue(lock(&self.all), queue, after, work)
    }

    fn enqueue(
        &self,
        mut all: MutexGuard<'_, Vec<Weak<Queue>>>,
        queue: &Arc<Queue>,
        mut after: Vec<Place>,
        work: Work,
    ) -> Place {
        all.retain(|other| other.strong_count() > 0);
        if queue.blocking {
            // The default stream and the others keep order with each other.
            let others = all.iter().filter_map(Weak::upgrade).filter(|other| {
                Arc::ptr_eq(&other.context, &queue.context)
                    && other.blocking
                    && other.default != queue.default
            });
            after.extend(others.map(|other| other.here()));
        }
        let mut commands = lock(&queue.commands);
        commands.enqueued += 1;
        let place = Place(Arc::downgrade(queue), commands.enqueued);
        commands.waiting.push_back((after, work));
        drop(commands);
        drop(all);
        self.changed.notify_all();
        place
    }

    /// Has a stream wait for a place in another.
    pub(super) fn stand_behind(&self, queue: &Arc<Queue>, place: Place) {
        self.push_after(queue, vec![place], Box::new(|| CUDA_SUCCESS));
    }

    /// No more commands come; those that are enqueued are carried out.
    pub(super) fn end(&self, queue: &Queue) {
        let all = lock(&self.all);
        lock(&queue.commands).ended = true;
        drop(all);
        self.changed.notify_all();
    }

    fn until(&self, place: &Place) {
        let mut all = lock(&self.all);
        while !place.is_reached() {
            all = self.wait_for_change(all);
        }
    }

    /// Waits for all that is enqueued.
    pub(super) fn wait(&self, queue: &Arc<Queue>) -> Result<(), CUresult> {
        self.until(&queue.here());
        queue.context.status()
    }

    pub(super) fn is_idle(&self, queue: &Arc<Queue>) -> bool {
        queue.here().is_reached()
    }

    /// Waits for all streams, or for those of a context; those included that are destroyed and have commands left.
    pub(super) fn wait_all(&self, context: Option<&Arc<Context>>) {
        let all: Vec<_> = lock(&self.all).iter().filter_map(Weak::upgrade).collect();
        for queue in all {
            if context.is_none_or(|context| Arc::ptr_eq(context, &queue.context)) {
                self.until(&queue.here());
            }
        }
    }

    pub(super) fn record(&self, queue: &Arc<Queue>, event: &Event) {
        self.record_by(queue, event, |work| self.push(queue, work));
    }

    /// Records an event behind a command that this one belongs to.
    pub(super) fn record_within(&self, queue: &Arc<Queue>, event: &Event) {
        self.record_by(queue, event, |work| self.follow(queue, Vec::new(), work));
    }

    fn record_by(&self, queue: &Arc<Queue>, event: &Event, enqueue: impl FnOnce(Work) -> Place) {
        let at: Arc<Mutex<Option<Instant>>> = Arc::default();
        let now = Arc::clone(&at);
        let place = enqueue(Box::new(move || {
            *lock(&now) = Some(Instant::now());
            CUDA_SUCCESS
        }));
        *lock(&event.recorded) = Some(Recorded {
            place,
            context: Arc::clone(&queue.context),
            at,
        });
    }

    pub(super) fn wait_event(&self, queue: &Arc<Queue>, event: &Event) {
        if let Some(place) = event.place() {
            self.stand_behind(queue, place);
        }
    }

    pub(super) fn query(&self, event: &Event) -> Result<(), CUresult> {
        match event.recorded() {
            None => Ok(()),
            Some(recorded) if recorded.place.is_reached() => recorded.context.status(),
            Some(_) => Err(CUDA_ERROR_NOT_READY),
        }
    }

    pub(super) fn wait_passed(&self, event: &Event) -> Result<(), CUresult> {
        match event.recorded() {
            None => Ok(()),
            Some(recorded) => {
                self.until(&recorded.place);
                recorded.context.status()
            }
        }
    }

    /// Milliseconds between two events.
    pub(super) fn between(&self, start: &Event, end: &Event) -> Result<f32, CUresult> {
        let (Some(from), Some(to)) = (start.recorded(), end.recorded()) else {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        };
        if !start.timed || !end.timed {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        }
        self.query(start)?;
        self.query(end)?;
        // One after the other: both may be the same event's.
        let from = *lock(&from.at);
        let to = *lock(&to.at);
        match (from, to) {
            (Some(from), Some(to)) if to >= from => Ok((to - from).as_secs_f32() * 1000.0),
            (Some(from), Some(to)) => Ok((from - to).as_secs_f32() * -1000.0),
            _ => Err(CUDA_ERROR_NOT_READY),
        }
    }
}
