//! The order of streams where the driver cannot keep it alone: requests that are parked, and what they stand behind.
//!
//! Streams are known by the client's numbers; a context's default stream by the context's. A parked request has a place: its stream's
//! number and how many were parked there before it. It runs when all of its stream's before it have run, and those places that it names
//! have been passed: an event's recording on another stream; the default stream's, which every blocking stream of its context stands
//! behind and which stands behind them all.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use smallvec::SmallVec;
use towline_backend::cuda::*;
use towline_session::Numbers;

use super::context::Context;
use super::shared::Shared;
use crate::link::Raw;
use crate::turns::Admission;

/// What a parked request does once it is its turn.
pub(crate) type Op = Box<dyn FnOnce(&Arc<Shared>) + Send>;
/// A stream, and how many of its parked requests must have run.
pub(crate) type Place = (u64, u64);
pub(crate) type Places = SmallVec<[Place; 4]>;

/// Commands between two marks on a stream. A mark is an event, which the device records.
const MARK_EVERY: u32 = 450;
/// Most commands before marks that have not passed: the driver lets about a thousand commands of a stream wait (1,020 launches on an
/// H200, driver 580.159), then it makes the caller wait.
const MOST_MARKED: u32 = 2 * MARK_EVERY;
/// A mark takes a place of the driver's queue, too.
const MARK_ITSELF: u32 = 1;
/// A stream that carries out more commands between two looks of the watchdog is marked as one that nobody watches: that costs nothing.
const MANY: u64 = 256;
/// Commands between two marks have the limit for each of them, but never more than for so many. So does one that others may hold up.
const MOST_COUNTED: u32 = 16;

/// A stream with what a request on it needs.
#[derive(Clone)]
pub(crate) struct Target {
    /// How the session knows it.
    pub(crate) key: u64,
    /// The client's number, for failures.
    pub(crate) id: u64,
    pub(crate) native: Raw,
    pub(crate) context: Arc<Context>,
    pub(crate) depth: Arc<Depth>,
    /// It keeps order with its context's default stream.
    pub(crate) blocking: bool,
}

/// How much the driver has of a stream, as far as every request looks at it: without a lock.
#[derive(Debug, Default)]
pub(crate) struct Depth {
    /// Commands since the last mark.
    unmarked: AtomicU32,
    /// Commands before marks that may not have passed.
    marked: AtomicU32,
    /// Each command gets a mark: the [watchdog](crate::watchdog) looks for the one that takes too long.
    dense: AtomicBool,
    /// Launches since the last mark, and those before marks that have passed, where [turns](crate::turns) count them.
    launched: AtomicU32,
    launches_ended: AtomicU64,
    /// A request has named the stream, or something was enqueued on it, since it was last seen to have nothing to do.
    used: AtomicBool,
    /// Windows of transfers whose copies the driver has, or whose bytes are on their way to the client.
    windows: AtomicUsize,
    /// Small blocks of pinned memory that copies use.
    pub(crate) small_blocks: AtomicUsize,
}

impl Depth {
    /// Windows that are under way.
    pub(crate) fn windows(&self) -> usize {
        self.windows.load(Ordering::Acquire)
    }

    /// Whether the driver is known to have nothing of the stream to do.
    fn is_empty(&self) -> bool {
        let counts = [&self.unmarked, &self.marked];
        counts
            .iter()
            .all(|count| count.load(Ordering::Acquire) == 0)
    }

    pub(crate) fn window_begins(&self) {
        self.windows.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn window_ends(&self) {
        self.windows.fetch_sub(1, Ordering::AcqRel);
    }

    /// The stream has done all that it had; nothing comes to it meanwhile.
    pub(crate) fn emptied(&self) {
        self.unmarked.store(0, Ordering::Relaxed);
        self.used.store(false, Ordering::Relaxed);
    }

    /// The stream has something to do, or is about to.
    pub(crate) fn comes_into_use(&self) {
        self.used.store(true, Ordering::Relaxed);
    }

    /// Whether it may have something to do.
    pub(crate) fn is_used(&self) -> bool {
        self.used.load(Ordering::Relaxed) || self.windows() > 0
    }
}

impl Target {
    /// A context's default stream, by the number that the client has for it.
    pub(crate) fn default_of(context: Arc<Context>, id: u64) -> Self {
        Self {
            key: context.id,
            id,
            native: Raw(std::ptr::without_provenance_mut(id as usize)),
            depth: Arc::clone(&context.depth),
            context,
            blocking: true,
        }
    }

    pub(crate) fn is_default(&self) -> bool {
        self.id <= CU_STREAM_LEGACY
    }

    pub(crate) fn stream(&self) -> CUstream {
        self.native.0.cast()
    }
}

/// A stream as the [watchdog](crate::watchdog) sees it.
struct Watched {
    /// The session's end of a context looks whether others use it: this does not count.
    context: Weak<Context>,
    device: CUdevice,
    depth: Arc<Depth>,
    native: Raw,
    /// Commands before marks that have passed, and how many they were at the last look.
    passed: u64,
    seen: u64,
    /// Since when the oldest commands have been seen at work.
    since: Option<Instant>,
}

impl Watched {
    fn new(target: &Target) -> Self {
        Self {
            context: Arc::downgrade(&target.context),
            device: target.context.device,
            depth: Arc::clone(&target.depth),
            native: target.native,
            passed: 0,
            seen: 0,
            since: None,
        }
    }
}

struct Parked {
    after: Places,
    target: Target,
    op: Op,
}

struct Stream {
    /// The context's number.
    context: u64,
    /// It keeps order with its context's default stream.
    blocking: bool,
    parked: u64,
    run: u64,
    queue: VecDeque<Parked>,
    running: bool,
    /// Marks that may not have passed.
    marks: VecDeque<Mark>,
    watched: Watched,
}

/// An event of ours behind commands of a stream.
struct Mark {
    event: Raw,
    /// Commands since the mark before.
    commands: u32,
    /// Those of them that are counted launches.
    launches: u32,
    /// They wait for something other than this stream's own commands.
    waits: bool,
}

impl Stream {
    /// Marks commands. The context must be current.
    fn mark(
        &mut self,
        api: &dyn CudaApi,
        depth: &Depth,
        context: &Context,
        native: Raw,
        commands: u32,
        waits: bool,
    ) {
        let Ok(event) = context.take_event(api) else {
            return;
        };
        // SAFETY: the event is ours, the stream is live.
        unsafe { api.cuEventRecord(event.0.cast(), native.0.cast()) };
        self.marks.push_back(Mark {
            event,
            commands,
            launches: depth.launched.swap(0, Ordering::AcqRel),
            waits,
        });
        depth
            .marked
            .fetch_add(commands + MARK_ITSELF, Ordering::AcqRel);
    }

    /// Takes the oldest mark away if it has passed.
    fn pass_mark(&mut self, api: &dyn CudaApi, depth: &Depth, context: &Context) -> bool {
        let Some(oldest) = self.marks.front() else {
            return false;
        };
        // SAFETY: the mark is an event of ours.
        if unsafe { api.cuEventQuery(oldest.event.0.cast()) } == CUDA_ERROR_NOT_READY {
            return false;
        }
        let Some(mark) = self.marks.pop_front() else {
            return false;
        };
        depth
            .marked
            .fetch_sub(mark.commands + MARK_ITSELF, Ordering::AcqRel);
        let launches = u64::from(mark.launches);
        depth.launches_ended.fetch_add(launches, Ordering::AcqRel);
        context.give_event(mark.event);
        self.watched.passed += u64::from(mark.commands);
        true
    }
}

#[derive(Default)]
struct State {
    streams: Numbers<Stream>,
    runners: usize,
    /// Threads that wait for a change: without any, nobody need be woken, which costs a system call.
    sleepers: usize,
    /// Counted launches of streams that are no more, by device.
    launches_gone: SmallVec<[(CUdevice, u64); 2]>,
    ended: bool,
}

/// See the module's text.
pub(crate) struct Streams {
    state: Mutex<State>,
    changed: Condvar,
    /// Streams with parked requests.
    waiting: AtomicUsize,
    /// Somebody measures how long commands take.
    watched: AtomicBool,
    /// Most commands between two marks.
    mark_every: AtomicU32,
}

impl Default for Streams {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            waiting: AtomicUsize::new(0),
            watched: AtomicBool::new(false),
            mark_every: AtomicU32::new(MARK_EVERY),
        }
    }
}

impl Streams {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for changes as long as `condition` holds.
    fn sleep_while<'a>(
        &self,
        mut state: MutexGuard<'a, State>,
        condition: impl FnMut(&mut State) -> bool,
    ) -> MutexGuard<'a, State> {
        state.sleepers += 1;
        let waited = self.changed.wait_while(state, condition);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        state.sleepers -= 1;
        state
    }

    /// Has those look who wait for a change.
    fn tell(&self, state: MutexGuard<'_, State>) {
        let anybody = state.sleepers > 0;
        drop(state);
        if anybody {
            self.changed.notify_all();
        }
    }

    /// A stream has been created.
    pub(crate) fn add(&self, target: &Target) {
        let stream = Stream {
            context: target.context.id,
            blocking: target.blocking,
            parked: 0,
            run: 0,
            queue: VecDeque::new(),
            running: false,
            marks: VecDeque::new(),
            watched: Watched::new(target),
        };
        let dense = self.are_watched();
        target.depth.dense.store(dense, Ordering::Relaxed);
        self.lock().streams.insert(target.key, stream);
    }

    /// Whether parked requests have run.
    pub(crate) fn have_passed(&self, places: &[Place]) -> bool {
        places.is_empty() || self.lock().passed(places)
    }

    fn are_watched(&self) -> bool {
        self.watched.load(Ordering::Relaxed)
    }

    /// A stream is no more; nothing of it is parked.
    pub(crate) fn remove(&self, target: &Target) {
        let mut state = self.lock();
        let stream = state.streams.remove(&target.key);
        state.let_go(stream.as_ref());
        drop(state);
        // The request that removes it may be a parked one itself.
        if stream
            .as_ref()
            .is_some_and(|stream| stream.run < stream.parked)
        {
            self.waiting.fetch_sub(1, Ordering::AcqRel);
        }
        for mark in stream.into_iter().flat_map(|stream| stream.marks) {
            target.context.give_event(mark.event);
        }
    }

    /// Where a stream stands: all that is parked at it, and what that stands behind.
    pub(crate) fn place(&self, key: u64) -> Places {
        if self.waiting.load(Ordering::Acquire) == 0 {
            return Places::new();
        }
        self.lock().before(key)
    }

    /// Where all streams of a context stand; of every context without one.
    pub(crate) fn all(&self, context: Option<u64>) -> Places {
        if self.waiting.load(Ordering::Acquire) == 0 {
            return Places::new();
        }
        let state = self.lock();
        let of = |stream: &Stream| context.is_none_or(|context| stream.context == context);
        let waiting = state
            .streams
            .iter()
            .filter(|(_, stream)| of(stream) && stream.run < stream.parked);
        waiting.map(|(key, stream)| (*key, stream.parked)).collect()
    }

    /// Waits until places have been passed, or the session is over.
    pub(crate) fn wait(&self, places: &[Place]) {
        if places.is_empty() {
            return;
        }
        let still = |state: &mut State| !state.passed(places) && !state.ended;
        drop(self.sleep_while(self.lock(), still));
    }

    /// Runs waiting threads' conditions again: something that they wait for has changed.
    pub(crate) fn wake(&self) {
        self.tell(self.lock());
    }

    /// Waits until `ready` says so; `false` when the session is over first.
    pub(crate) fn wait_until(&self, mut ready: impl FnMut() -> bool) -> bool {
        let still = |state: &mut State| !ready() && !state.ended;
        !self.sleep_while(self.lock(), still).ended
    }

    /// The session is over: nobody waits any more, and what is parked is dropped.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        state.ended = true;
        let queues: Vec<_> = state
            .streams
            .values_mut()
            .map(|stream| std::mem::take(&mut stream.queue))
            .collect();
        self.tell(state);
        drop(queues);
    }

    /// Waits for the streams' threads; `false` when they are still at work after `patience`.
    pub(crate) fn join(&self, patience: std::time::Duration) -> bool {
        let mut state = self.lock();
        state.sleepers += 1;
        let (mut state, _) = self
            .changed
            .wait_timeout_while(state, patience, |state| state.runners > 0)
            .unwrap_or_else(PoisonError::into_inner);
        state.sleepers -= 1;
        state.runners == 0
    }

    /// Whether no thread works for the session, and nothing is parked.
    pub(crate) fn are_at_rest(&self) -> bool {
        self.lock().runners == 0
    }

    /// The session's contexts.
    pub(crate) fn contexts(&self) -> Vec<Arc<Context>> {
        let state = self.lock();
        let all = state.streams.values().map(|stream| &stream.watched.context);
        let mut contexts: Vec<_> = all.filter_map(Weak::upgrade).collect();
        contexts.sort_by_key(|context| context.id);
        contexts.dedup_by_key(|context| context.id);
        contexts
    }

    /// A thread works for the session until [`Self::job_over`].
    pub(crate) fn job(&self) {
        self.lock().runners += 1;
    }

    pub(crate) fn job_over(&self) {
        let mut state = self.lock();
        state.runners -= 1;
        self.tell(state);
    }

    /// Gives the marks of a context's streams back, when nothing runs any more.
    pub(crate) fn forget(&self, context: &Context) {
        let mut state = self.lock();
        let streams = state.streams.values_mut();
        for stream in streams.filter(|stream| stream.context == context.id) {
            for mark in stream.marks.drain(..) {
                context.give_event(mark.event);
            }
        }
        let State { streams, .. } = &mut *state;
        let gone: Vec<_> = streams
            .extract_if(|_, stream| stream.context == context.id)
            .collect();
        gone.iter()
            .for_each(|(_, stream)| state.let_go(Some(stream)));
    }
}

impl State {
    /// A stream is no more; its launches have ended as far as anybody counts them.
    fn let_go(&mut self, stream: Option<&Stream>) {
        let Some(stream) = stream else { return };
        let Watched { depth, device, .. } = &stream.watched;
        let marked: u32 = stream.marks.iter().map(|mark| mark.launches).sum();
        let launched = depth.launched.swap(0, Ordering::AcqRel);
        let ended = depth.launches_ended.swap(0, Ordering::AcqRel);
        let launches = ended + u64::from(marked) + u64::from(launched);
        if launches > 0 {
            self.launches_gone.push((*device, launches));
        }
    }

    fn passed(&self, places: &[Place]) -> bool {
        places.iter().all(|(key, count)| {
            let stream = self.streams.get(key);
            stream.is_none_or(|stream| stream.run >= *count)
        })
    }

    /// What a request on `key` stands behind.
    fn before(&self, key: u64) -> Places {
        let mut places = Places::new();
        let Some(stream) = self.streams.get(&key) else {
            return places;
        };
        let mut behind = |key: u64, stream: &Stream| {
            if stream.run < stream.parked {
                places.push((key, stream.parked));
            }
        };
        behind(key, stream);
        if stream.context == key {
            for (other, stream) in &self.streams {
                if *other != key && stream.context == key && stream.blocking {
                    behind(*other, stream);
                }
            }
        } else if stream.blocking
            && let Some(default) = self.streams.get(&stream.context)
        {
            behind(stream.context, default);
        }
        places
    }
}

impl Shared {
    /// Whether a request on the stream can run now, on the lane. Called by the lane alone, so nothing comes between this and the
    /// request.
    pub(crate) fn is_clear(&self, target: &Target, after: &[Place]) -> bool {
        let streams = &self.streams;
        if streams.waiting.load(Ordering::Acquire) > 0 {
            let state = streams.lock();
            if !state.before(target.key).is_empty() || !state.passed(after) {
                return false;
            }
        }
        self.has_room(target)
    }

    /// Whether the driver takes another command of the stream without waiting.
    fn has_room(&self, target: &Target) -> bool {
        let depth = &target.depth;
        let has_room = || {
            let unmarked = depth.unmarked.load(Ordering::Relaxed);
            depth.marked.load(Ordering::Acquire) + unmarked < MOST_MARKED
        };
        if has_room() {
            return true;
        }
        let mut state = self.streams.lock();
        let Some(stream) = state.streams.get_mut(&target.key) else {
            return true;
        };
        while !has_room() {
            if !stream.pass_mark(&*self.api, depth, &target.context) {
                return stream.marks.is_empty();
            }
        }
        true
    }

    /// Parks a request at its stream, behind `after` too. What must not be done twice is in `op` alone.
    pub(crate) fn park(self: &Arc<Self>, target: &Target, after: Places, op: Op) {
        let mut state = self.streams.lock();
        let mut places = state.before(target.key);
        places.retain(|(key, _)| *key != target.key);
        places.extend(after);
        let Some(stream) = state.streams.get_mut(&target.key) else {
            return;
        };
        if stream.run == stream.parked {
            self.streams.waiting.fetch_add(1, Ordering::AcqRel);
        }
        stream.parked += 1;
        stream.queue.push_back(Parked {
            after: places,
            target: target.clone(),
            op,
        });
        if std::mem::replace(&mut stream.running, true) {
            return;
        }
        state.runners += 1;
        drop(state);
        let (shared, key) = (Arc::clone(self), target.key);
        self.waiters.run(move || shared.run_parked(key));
    }

    /// Runs what is parked at a stream until nothing is left.
    fn run_parked(self: &Arc<Self>, key: u64) {
        let mut state = self.streams.lock();
        loop {
            let next = state
                .streams
                .get_mut(&key)
                .and_then(|stream| stream.queue.pop_front());
            let Some(parked) = next.filter(|_| !state.ended) else {
                break;
            };
            let still = |state: &mut State| !state.passed(&parked.after) && !state.ended;
            state = self.streams.sleep_while(state, still);
            if state.ended {
                break;
            }
            drop(state);
            self.wait_for_room(&parked.target);
            parked.target.context.enter(&*self.api);
            (parked.op)(self);
            self.flush();
            state = self.streams.lock();
            if let Some(stream) = state.streams.get_mut(&key) {
                stream.run += 1;
                if stream.run == stream.parked {
                    self.streams.waiting.fetch_sub(1, Ordering::AcqRel);
                }
            }
            if state.sleepers > 0 {
                self.streams.changed.notify_all();
            }
        }
        if let Some(stream) = state.streams.get_mut(&key) {
            stream.running = false;
        }
        state.runners -= 1;
        self.streams.tell(state);
    }

    fn wait_for_room(&self, target: &Target) {
        while !self.has_room(target) {
            let oldest = {
                let state = self.streams.lock();
                let stream = state.streams.get(&target.key);
                stream.and_then(|stream| stream.marks.front().map(|mark| mark.event))
            };
            if target.context.enter(&*self.api) != CUDA_SUCCESS {
                return;
            }
            if let Some(oldest) = oldest {
                // SAFETY: the mark is an event of ours; this stream's thread alone takes marks away while something is parked.
                unsafe { self.api.cuEventSynchronize(oldest.0.cast()) };
            }
        }
    }

    /// A command has been enqueued on the stream.
    #[inline]
    pub(crate) fn enqueued(&self, target: &Target) {
        self.link.work_comes();
        let depth = &target.depth;
        // Launches find their stream without naming it again.
        depth.comes_into_use();
        // Not in one step, which would take longer: where two threads meet, a command is not counted.
        let unmarked = depth.unmarked.load(Ordering::Relaxed) + 1;
        let every = self.streams.mark_every.load(Ordering::Relaxed);
        if unmarked < every && !depth.dense.load(Ordering::Relaxed) {
            depth.unmarked.store(unmarked, Ordering::Relaxed);
            return;
        }
        self.mark_commands(target, unmarked, false);
    }

    /// Whether a launch may go to the device now. Nothing is parked at its stream.
    #[inline]
    pub(crate) fn admit(&self, target: &Target) -> Admission {
        let (turns, device) = (&self.link.counters.turns, target.context.place);
        match turns.asks(device) {
            true => turns.admit(device),
            false => Admission::Free,
        }
    }

    /// As [`Self::admit`] for a parked launch, which waits here; whether it counts.
    pub(crate) fn wait_for_turn(&self, target: &Target) -> bool {
        let (turns, device) = (&self.link.counters.turns, target.context.place);
        turns.asks(device) && turns.wait(device, || target.depth.is_empty())
    }

    /// As [`Self::enqueued`], for a launch.
    #[inline]
    pub(crate) fn launched(&self, target: &Target, counts: bool) {
        if counts {
            target.depth.launched.fetch_add(1, Ordering::AcqRel);
        }
        self.enqueued(target);
    }

    /// Counted launches of a device that have ended since the last call. From now on a mark is put behind so many commands.
    pub(crate) fn launches_ended(&self, device: CUdevice, mark_every: u64) -> u64 {
        let every = u32::try_from(mark_every).unwrap_or(MARK_EVERY);
        let streams = &self.streams;
        streams
            .mark_every
            .store(every.min(MARK_EVERY), Ordering::Relaxed);
        let mut ended = 0;
        // Locked throughout: nobody else sees that a context is held, and no stream ends meanwhile.
        let mut state = streams.lock();
        state.launches_gone.retain(|(of, launches)| {
            let is_here = *of == device;
            ended += if is_here { *launches } else { 0 };
            !is_here
        });
        for stream in state.streams.values_mut() {
            let Some(context) = stream.watched.context.upgrade() else {
                continue;
            };
            let depth = Arc::clone(&stream.watched.depth);
            let has_more = depth.launched.load(Ordering::Acquire) > 0;
            if context.device != device || (stream.marks.is_empty() && !has_more) {
                ended += match context.device == device {
                    true => depth.launches_ended.swap(0, Ordering::AcqRel),
                    false => 0,
                };
                continue;
            }
            if context.enter(&*self.api) != CUDA_SUCCESS {
                continue;
            }
            while stream.pass_mark(&*self.api, &depth, &context) {}
            // A mark takes the device's time between two kernels: one before the end is enough.
            if has_more && stream.marks.is_empty() {
                let commands = depth.unmarked.swap(0, Ordering::Relaxed);
                let native = stream.watched.native;
                stream.mark(&*self.api, &depth, &context, native, commands, false);
            }
            ended += depth.launches_ended.swap(0, Ordering::AcqRel);
        }
        ended
    }

    /// A command comes that waits for something other than the stream's own: it gets a mark of its own, where somebody measures times.
    pub(crate) fn wait_comes(&self, target: &Target) {
        let unmarked = target.depth.unmarked.load(Ordering::Relaxed);
        if unmarked > 0 && self.streams.are_watched() {
            self.mark_commands(target, unmarked, false);
        }
    }

    /// As [`Self::enqueued`], for that command.
    pub(crate) fn wait_enqueued(&self, target: &Target) {
        match self.streams.are_watched() {
            true => self.mark_commands(target, 1, true),
            false => self.enqueued(target),
        }
    }

    /// Devices of which a stream has something to do.
    pub(crate) fn devices_at_work(&self) -> u64 {
        let mut devices = SmallVec::<[CUdevice; 8]>::new();
        // Locked throughout: nobody else sees that a context is held, and no stream ends meanwhile.
        let state = self.streams.lock();
        for stream in state.streams.values() {
            let watched = &stream.watched;
            let Some(context) = watched.context.upgrade() else {
                continue;
            };
            if devices.contains(&context.device) || context.enter(&*self.api) != CUDA_SUCCESS {
                continue;
            }
            // SAFETY: the stream is live: it leaves the list before it is destroyed.
            let status = unsafe { self.api.cuStreamQuery(watched.native.0.cast()) };
            if status == CUDA_ERROR_NOT_READY {
                devices.push(context.device);
            }
        }
        devices.len() as u64
    }

    #[cold]
    fn mark_commands(&self, target: &Target, commands: u32, waits: bool) {
        target.depth.unmarked.store(0, Ordering::Relaxed);
        let mut state = self.streams.lock();
        if let Some(stream) = state.streams.get_mut(&target.key) {
            stream.mark(
                &*self.api,
                &target.depth,
                &target.context,
                target.native,
                commands,
                waits,
            );
        }
    }
}

/// Finds launches that run longer than they may.
///
/// Commands between two marks are judged together. While few come, each has a mark.
pub(crate) struct Overruns {
    limit: Duration,
    /// When any stream of the session was last seen to go on: commands of one may stand behind those of another.
    progress: Instant,
}

impl Overruns {
    pub(crate) fn watch(shared: &Shared, limit: Duration) -> Self {
        shared.streams.watched.store(true, Ordering::Relaxed);
        Self {
            limit,
            progress: Instant::now(),
        }
    }

    /// Whether one runs for too long.
    pub(crate) fn look(&mut self, shared: &Shared) -> bool {
        let now = Instant::now();
        // Locked throughout: nobody else sees that a context is held.
        let mut state = shared.streams.lock();
        let streams = state.streams.values_mut();
        let at_work: SmallVec<[(Duration, u32); 16]> = streams
            .filter_map(|stream| stream.look(&*shared.api, now, &mut self.progress))
            .collect();
        drop(state);
        let rested = now.saturating_duration_since(self.progress) > self.limit;
        let limit = self.limit;
        at_work
            .into_iter()
            .any(|(age, commands)| (age > limit * commands && rested) || age > limit * MOST_COUNTED)
    }
}

impl Stream {
    /// How long the oldest commands have been at work, and how many they count for; `None` where there are none to be judged.
    fn look(
        &mut self,
        api: &dyn CudaApi,
        now: Instant,
        progress: &mut Instant,
    ) -> Option<(Duration, u32)> {
        let context = self.watched.context.upgrade()?;
        if context.enter(api) != CUDA_SUCCESS {
            return None;
        }
        let depth = Arc::clone(&self.watched.depth);
        let unmarked = depth.unmarked.swap(0, Ordering::Relaxed);
        if unmarked > 0 {
            self.mark(api, &depth, &context, self.watched.native, unmarked, false);
        }
        while self.pass_mark(api, &depth, &context) {}
        let Watched {
            passed,
            seen,
            since,
            ..
        } = &mut self.watched;
        let done = *passed - std::mem::replace(seen, *passed);
        if done > 0 {
            *progress = now;
            *since = None;
        }
        depth.dense.store(done <= MANY, Ordering::Relaxed);
        let Some(oldest) = self.marks.front() else {
            *since = None;
            return None;
        };
        let since = *since.get_or_insert(now);
        let commands = oldest.commands.clamp(1, MOST_COUNTED);
        (!oldest.waits).then(|| (now.saturating_duration_since(since), commands))
    }
}
