//! Streams: a thread each, that carries out commands in order.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use super::{CUDA_ERROR_OPERATING_SYSTEM, CUDA_SUCCESS, CUresult};

type Work = Box<dyn FnOnce() + Send>;

/// Commands of a stream that may wait before its caller has to.
const DEPTH: usize = 1020;

/// One stream.
pub(super) struct Queue {
    context: usize,
    blocking: bool,
    default: bool,
    state: Mutex<Commands>,
    attributes: Mutex<HashMap<u32, [u8; 64]>>,
}

#[derive(Default)]
struct Commands {
    waiting: VecDeque<(Vec<Place>, Work)>,
    enqueued: u64,
    done: u64,
    ended: bool,
}

/// A stream, and how many of its commands must be done.
type Place = (Weak<Queue>, u64);

/// A command that another may stand behind.
pub struct Mark(Place);

/// What an event was recorded behind.
#[derive(Default)]
pub struct Event(Mutex<Recorded>);

#[derive(Default)]
struct Recorded {
    place: Option<Place>,
    at: Option<Arc<Mutex<Option<Instant>>>>,
}

/// All streams: one of them going on may let others go on.
#[derive(Default)]
pub(super) struct Streams {
    /// All that live, for the order with default streams; the lock that goes with `changed`, too.
    all: Mutex<Vec<Weak<Queue>>>,
    changed: Condvar,
    /// The first fault.
    failed: Mutex<CUresult>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_done((queue, count): &Place) -> bool {
    queue
        .upgrade()
        .is_none_or(|queue| lock(&queue.state).done >= *count)
}

impl Queue {
    pub(super) fn is_blocking(&self) -> bool {
        self.blocking
    }

    pub(super) fn set(&self, attribute: u32, value: [u8; 64]) {
        lock(&self.attributes).insert(attribute, value);
    }

    pub(super) fn attributes(&self) -> Vec<(u32, [u8; 64])> {
        lock(&self.attributes).clone().into_iter().collect()
    }

    pub(super) fn start(
        streams: &Arc<Streams>,
        context: usize,
        blocking: bool,
        default: bool,
    ) -> Result<Arc<Self>, CUresult> {
        let queue = Arc::new(Self {
            context,
            blocking,
            default,
            state: Mutex::default(),
            attributes: Mutex::default(),
        });
        lock(&streams.all).push(Arc::downgrade(&queue));
        let (streams, running) = (Arc::clone(streams), Arc::clone(&queue));
        let started = std::thread::Builder::new().spawn(move || streams.run(&running));
        started.map_err(|_| CUDA_ERROR_OPERATING_SYSTEM)?;
        Ok(queue)
    }

    fn here(self: &Arc<Self>) -> Place {
        (Arc::downgrade(self), lock(&self.state).enqueued)
    }
}

impl Streams {
    /// Carries out a queue's commands until it ends.
    fn run(&self, queue: &Queue) {
        loop {
            let next = {
                let all = lock(&self.all);
                let all = self
                    .changed
                    .wait_while(all, |_| {
                        let state = lock(&queue.state);
                        state.waiting.is_empty() && !state.ended
                    })
                    .unwrap_or_else(PoisonError::into_inner);
                drop(all);
                lock(&queue.state).waiting.pop_front()
            };
            let Some((after, work)) = next else {
                return;
            };
            let all = lock(&self.all);
            drop(self.changed.wait_while(all, |_| !after.iter().all(is_done)));
            work();
            let all = lock(&self.all);
            lock(&queue.state).done += 1;
            drop(all);
            self.changed.notify_all();
        }
    }

    /// Enqueues a command.
    pub(super) fn push(&self, queue: &Arc<Queue>, work: Work) {
        self.push_after(queue, Vec::new(), work);
    }

    /// Enqueues a command behind another of whatever stream, and notes where it is.
    pub(super) fn push_behind(&self, queue: &Arc<Queue>, last: &mut Option<Mark>, work: Work) {
        let after = last.take().map(|mark| mark.0).into_iter().collect();
        self.push_after(queue, after, work);
        *last = Some(Mark(queue.here()));
    }

    fn push_after(&self, queue: &Arc<Queue>, mut after: Vec<Place>, work: Work) {
        let all = lock(&self.all);
        let full = |_: &mut Vec<Weak<Queue>>| {
            let state = lock(&queue.state);
            state.enqueued - state.done >= DEPTH as u64
        };
        let mut all = self
            .changed
            .wait_while(all, full)
            .unwrap_or_else(PoisonError::into_inner);
        all.retain(|other| other.strong_count() > 0);
        if queue.blocking {
            let others = all.iter().filter_map(Weak::upgrade);
            let others = others.filter(|other| {
                other.context == queue.context && other.blocking && other.default != queue.default
            });
            after.extend(others.map(|other| other.here()));
        }
        let mut state = lock(&queue.state);
        state.enqueued += 1;
        state.waiting.push_back((after, work));
        drop(state);
        drop(all);
        self.changed.notify_all();
    }

    /// No more commands come.
    pub(super) fn end(&self, queue: &Queue) {
        let all = lock(&self.all);
        lock(&queue.state).ended = true;
        drop(all);
        self.changed.notify_all();
    }

    fn until(&self, place: &Place) {
        let all = lock(&self.all);
        drop(self.changed.wait_while(all, |_| !is_done(place)));
    }

    /// Waits for all that is enqueued.
    pub(super) fn wait(&self, queue: &Arc<Queue>) {
        self.until(&queue.here());
    }

    /// Whether all that is enqueued has been carried out.
    pub(super) fn is_idle(&self, queue: &Arc<Queue>) -> bool {
        is_done(&queue.here())
    }

    /// Waits for all streams, of one context if it is named; those included that are destroyed and have commands left.
    pub(super) fn wait_all(&self, context: Option<usize>) {
        let all: Vec<_> = lock(&self.all).iter().filter_map(Weak::upgrade).collect();
        for queue in all {
            if context.is_none_or(|context| queue.context == context) {
                self.wait(&queue);
            }
        }
    }

    pub(super) fn record(&self, queue: &Arc<Queue>, event: &Event) {
        let at: Arc<Mutex<Option<Instant>>> = Arc::default();
        let now = Arc::clone(&at);
        self.push(queue, Box::new(move || *lock(&now) = Some(Instant::now())));
        *lock(&event.0) = Recorded {
            place: Some(queue.here()),
            at: Some(at),
        };
    }

    fn place(event: &Event) -> Option<Place> {
        lock(&event.0).place.clone()
    }

    pub(super) fn wait_event(&self, queue: &Arc<Queue>, event: &Event) {
        let after = Self::place(event).into_iter().collect();
        self.push_after(queue, after, Box::new(|| {}));
    }

    pub(super) fn has_passed(&self, event: &Event) -> bool {
        Self::place(event).as_ref().is_none_or(is_done)
    }

    pub(super) fn wait_passed(&self, event: &Event) {
        if let Some(place) = Self::place(event) {
            self.until(&place);
        }
    }

    /// Milliseconds between two events that have passed.
    pub(super) fn between(&self, start: &Event, end: &Event) -> f32 {
        let time = |event: &Event| lock(&event.0).at.as_ref().and_then(|at| *lock(at));
        match (time(start), time(end)) {
            (Some(start), Some(end)) => end.saturating_duration_since(start).as_secs_f32() * 1000.0,
            _ => 0.0,
        }
    }

    /// Keeps the first fault.
    pub(super) fn note(&self, status: CUresult) {
        let mut failed = lock(&self.failed);
        if *failed == CUDA_SUCCESS {
            *failed = status;
        }
    }

    pub(super) fn status(&self) -> CUresult {
        *lock(&self.failed)
    }
}
