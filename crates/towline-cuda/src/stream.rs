//! Streams: what they are known to have finished, and functions of the application in their order.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};

use towline_backend::cuda as wire;
use towline_backend::cuda::*;
use towline_client::cuda::Session;
use towline_client::raw::{Out, Vouched};

use crate::context::Context;
use crate::driver::{Acting, Driver, StreamCalls, actor, lock, read, room_beside, status, write};
use crate::graph::{Captured, Content, Meeting};
use crate::thread::{self, OwnStream};

/// A stream of the application.
pub(crate) struct Stream {
    pub(crate) context: u64,
    flags: u32,
    priority: AtomicI32,
    id: u64,
}

impl Stream {
    /// Whether it keeps order with its context's default stream.
    pub(crate) fn is_blocking(&self) -> bool {
        self.flags & CU_STREAM_NON_BLOCKING == 0
    }

    pub(crate) fn priority(&self) -> i32 {
        self.priority.load(Ordering::Relaxed)
    }

    pub(crate) fn set_priority(&self, priority: i32) {
        self.priority.store(priority, Ordering::Relaxed);
    }
}

/// What a stream may still have to do.
#[derive(Default)]
pub(crate) struct Work {
    /// How much was posted to it.
    posted: u64,
    /// How much of that is known to be done.
    done: u64,
    /// Everything posted behind this is a copy to the device whose bytes were taken before its call returned.
    worked: u64,
    mark: Option<Mark>,
    /// The event whose recordings are the marks where the application records none.
    probe: Option<u64>,
}

/// The last recording of an event on a stream.
#[derive(Clone, Copy)]
struct Mark {
    /// The server tells under this number when the stream has done so much.
    number: u64,
    position: u64,
    /// It is the stream's probe's: nobody else asks for it.
    of_probe: bool,
}

/// In the place of all streams of a context that have ended before what they were given.
const ENDED: u64 = u64::MAX;

impl Work {
    fn is_idle(&self) -> bool {
        self.done == self.posted
    }

    /// Whether nothing but such copies may be left.
    fn only_writes(&self) -> bool {
        self.done >= self.worked
    }

    fn finish(&mut self, done: u64) {
        self.done = self.done.max(done);
    }

    /// Another mark takes the place of the one that was.
    fn set_mark(&mut self, session: &Session, mark: Option<Mark>) {
        let before = std::mem::replace(&mut self.mark, mark);
        if let Some(before) = before.filter(|before| before.of_probe) {
            session.forget(before.number);
        }
    }
}

impl Context {
    /// Whether a stream, or any, may have something to do.
    pub(crate) fn is_busy(&self, stream: Option<u64>) -> bool {
        let all = lock(&self.work);
        match stream {
            Some(stream) => {
                let work = all.get(&stream).or_else(|| all.get(&ENDED));
                work.is_some_and(|work| !work.is_idle())
            }
            None => !all.values().all(Work::is_idle),
        }
    }

    /// Forgets a stream that ends, but for work that a wait for the context still waits for; tells its probe.
    fn end_stream(&self, session: &Session, stream: u64) -> Option<u64> {
        let mut all = lock(&self.work);
        let mut work = all.remove(&stream)?;
        work.set_mark(session, None);
        if !work.is_idle() {
            let ended = all.entry(ENDED).or_default();
            ended.posted += 1;
            ended.worked = ended.posted;
        }
        work.probe
    }

    /// Whether so much of what was posted to a stream is known to be done.
    pub(crate) fn has_done(&self, stream: u64, posted: u64) -> bool {
        let all = lock(&self.work);
        all.get(&stream).is_some_and(|work| work.done >= posted)
    }
}

/// A thread that calls functions, one after the other; it starts with the first.
#[derive(Clone, Default)]
pub(crate) struct HostCalls(Arc<Mutex<Option<Sender<Job>>>>);

pub(crate) type Job = Box<dyn FnOnce() + Send>;

impl HostCalls {
    /// Has the thread do a job after those it has.
    pub(crate) fn run(&self, job: Job) {
        if let Some(sender) = self.sender() {
            // The thread listens as long as the process lives.
            let _ = sender.send(job);
        }
    }

    fn sender(&self) -> Option<Sender<Job>> {
        let mut held = lock(&self.0);
        if held.is_none() {
            let (sender, jobs) = channel::<Job>();
            towline_client::threads::named("towline-host")
                .spawn(move || jobs.iter().for_each(attempt))
                .ok()?;
            *held = Some(sender);
        }
        held.clone()
    }
}

/// Does a job; those behind it are done whatever becomes of it.
fn attempt(job: Job) {
    if std::panic::catch_unwind(std::panic::AssertUnwindSafe(job)).is_err() {
        log::error!("a function of a stream failed inside Towline; please report it");
    }
}

/// A pointer of the application's that another thread gives back to it.
struct Passed(*mut c_void);
// SAFETY: it is never used here; what it may be used for in another thread is the application's business.
unsafe impl Send for Passed {}

impl Acting<'_> {
    /// Notes that a stream has something to do; how much was posted to it.
    pub(crate) fn touch(&self, stream: wire::StreamHandle) -> u64 {
        let mut all = lock(&self.context.work);
        let work = all.entry(stream.0).or_default();
        work.posted += 1;
        work.worked = work.posted;
        work.posted
    }

    /// As [`Self::touch`], for a copy to the device whose bytes have been taken.
    pub(crate) fn touch_written(&self, stream: wire::StreamHandle) -> u64 {
        let mut all = lock(&self.context.work);
        let work = all.entry(stream.0).or_default();
        work.posted += 1;
        work.posted
    }

    /// Whether all that a stream may have left are such copies: as far as the application can see, they are done. An event that was recorded
    /// there would tell.
    fn has_only_writes(&self, stream: wire::StreamHandle) -> bool {
        let all = lock(&self.context.work);
        let own = all.get(&stream.0);
        // A default stream stands behind the context's others, and these behind it.
        let ordered = |at: u64| at != stream.0 && (at <= 2 || stream.0 <= 2);
        let is_quiet = |work: &Work| work.is_idle() && work.mark.is_none();
        own.is_some_and(|work| !work.is_idle() && work.only_writes() && work.mark.is_none())
            && all.iter().all(|(at, work)| !ordered(*at) || is_quiet(work))
    }

    /// Notes that the server will tell under `mark` when a stream has done what was posted to it; how much that is.
    pub(crate) fn note_mark(&self, stream: wire::StreamHandle, mark: u64) -> u64 {
        let mut all = lock(&self.context.work);
        let work = all.entry(stream.0).or_default();
        let mark = Mark {
            number: mark,
            position: work.posted,
            of_probe: false,
        };
        work.set_mark(self.session, Some(mark));
        work.posted
    }

    /// Has the server tell when the stream gets here.
    fn mark_behind(&self, work: &mut Work, stream: wire::StreamHandle) -> Result<u64, CUresult> {
        let probe = match work.probe {
            Some(probe) => wire::EventHandle(probe),
            None => {
                let probe = wire::EventHandle(self.mint(wire::EventHandle::TAG));
                self.post(&wire::EventCreate {
                    phEvent: probe,
                    Flags: CU_EVENT_DISABLE_TIMING,
                })?;
                work.probe = Some(probe.0);
                probe
            }
        };
        let mark = self.session.mark_behind(self.actor, stream.0)?;
        self.post(&wire::EventRecord {
            event: probe,
            stream,
            flags: 0,
            record: mark,
        })?;
        Ok(mark)
    }

    /// A number under which the server tells when the stream gets here, and how much was posted to it.
    pub(crate) fn mark_here(&self, stream: wire::StreamHandle) -> Result<(u64, u64), CUresult> {
        let mut all = lock(&self.context.work);
        let work = all.entry(stream.0).or_default();
        let mark = self.mark_behind(work, stream)?;
        Ok((mark, work.posted))
    }

    /// Notes that a stream has done so much.
    pub(crate) fn note_done(&self, stream: u64, done: u64) {
        let mut all = lock(&self.context.work);
        if let Some(work) = all.get_mut(&stream) {
            work.finish(done);
        }
    }

    /// How much was posted to a stream.
    pub(crate) fn posted(&self, stream: wire::StreamHandle) -> u64 {
        let all = lock(&self.context.work);
        all.get(&stream.0).map_or(0, |work| work.posted)
    }

    /// Whether a stream has nothing to do, and the server has told of the event that was recorded behind it.
    fn is_over(&self, work: &Work) -> bool {
        let mark = work.mark.filter(|mark| mark.position == work.posted);
        work.is_idle() && mark.is_none_or(|mark| self.session.ended(mark.number).is_some())
    }

    /// Waits until a stream is idle; not where the server has told so already.
    pub(crate) fn synchronise(&self, stream: wire::StreamHandle) -> Result<(), CUresult> {
        let (idle, posted) = {
            let all = lock(&self.context.work);
            // A default stream stands behind the context's others.
            let idle = match stream.0 {
                0..=2 => all.values().all(|work| self.is_over(work)),
                number => all.get(&number).is_none_or(|work| self.is_over(work)),
            };
            (idle, all.get(&stream.0).map_or(0, |work| work.posted))
        };
        if !idle {
            self.show_kernels()?;
            // Data of the last small read is the answer, where that is what the stream is left with.
            match self.session.finish_held(Some(stream.0)) {
                Some(read) => read?,
                None => {
                    let request = wire::SynchronizeStream { stream };
                    self.synchronise_for("cuStreamSynchronize", &request, Some(stream.0))?;
                }
            }
            self.note_done(stream.0, posted);
        }
        self.show_twins()?;
        self.healthy(stream)
    }

    /// As [`Self::synchronise_all`], and leaves what has failed to be told by later calls.
    pub(crate) fn wait_for_all(&self) -> Result<(), CUresult> {
        let posted: Vec<(u64, u64)> = {
            let all = lock(&self.context.work);
            let busy = all.iter().filter(|(_, work)| !self.is_over(work));
            busy.map(|(stream, work)| (*stream, work.posted)).collect()
        };
        if !posted.is_empty() {
            self.show_kernels()?;
            let context = wire::ContextHandle(self.context.number);
            let request = wire::SynchronizeContext { context };
            self.synchronise_for("cuCtxSynchronize", &request, None)?;
            for (stream, posted) in posted {
                self.note_done(stream, posted);
            }
        }
        self.show_twins()
    }

    /// Waits until the context is idle; not where the server has told so already.
    pub(crate) fn synchronise_all(&self) -> Result<(), CUresult> {
        self.wait_for_all()?;
        match self.session.take_failure(None) {
            Some(failure) => Err(failure),
            None => self.session.broken().map_or(Ok(()), Err),
        }
    }

    /// Whether a stream has nothing to do, as far as the server has told. Nothing is waited for: the first question about new work that
    /// no event was recorded behind asks the server to tell when it is done.
    fn query(&self, stream: wire::StreamHandle) -> Result<(), CUresult> {
        self.show_kernels()?;
        let mut all = lock(&self.context.work);
        let Some(work) = all.get_mut(&stream.0) else {
            return self.healthy(stream);
        };
        if let Some(Mark {
            number, position, ..
        }) = work.mark
        {
            match self.session.ended(number) {
                // More may have been posted since; its turn comes when this has been reached.
                None if work.done < position => return Err(CUDA_ERROR_NOT_READY),
                None => {}
                Some(CUDA_SUCCESS) => {
                    work.finish(position);
                    work.set_mark(self.session, None);
                }
                Some(failed) => return Err(failed),
            }
        }
        if work.is_idle() {
            drop(all);
            self.show_twins()?;
            return self.healthy(stream);
        }
        let mark = Mark {
            number: self.mark_behind(work, stream)?,
            position: work.posted,
            of_probe: true,
        };
        work.set_mark(self.session, Some(mark));
        Err(CUDA_ERROR_NOT_READY)
    }

    /// The failure of a stream, or one elsewhere in the session, which may have been waited for by way of this stream.
    pub(crate) fn healthy(&self, stream: wire::StreamHandle) -> Result<(), CUresult> {
        match self.session.failure_behind(stream.0) {
            Some(failure) => Err(failure),
            None => self.session.broken().map_or(Ok(()), Err),
        }
    }
}

impl Driver {
    /// Where a stream has nothing left but copies of bytes that have been taken: whatever comes next finds these there, as behind copies that
    /// block, so a wait for the stream is over. `false` for every other stream.
    fn settle_writes(
        &self,
        acting: &Acting<'_>,
        stream: wire::StreamHandle,
    ) -> Result<bool, CUresult> {
        if !acting.has_only_writes(stream) || acting.session.broken().is_some() {
            return Ok(false);
        }
        self.note_written(acting, stream)?;
        acting.show_twins()?;
        acting.healthy(stream).map(|()| true)
    }

    /// A device's priority nearest to a wanted one, as the driver takes what lies outside. Greater priorities are smaller numbers.
    pub(crate) fn nearest_priority(&self, device: CUdevice, wanted: i32) -> Result<i32, CUresult> {
        let (least, greatest) = self.device(device)?.facts.priorities;
        Ok(wanted.clamp(greatest.min(least), least.max(greatest)))
    }

    fn create_stream(&self, flags: u32, priority: Option<i32>) -> Result<CUstream, CUresult> {
        if flags & !CU_STREAM_NON_BLOCKING != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        room_beside(read(&self.streams).len())?;
        let acting = self.session_for(0)?;
        let handle = wire::StreamHandle(acting.mint(wire::StreamHandle::TAG));
        let priority = match priority {
            None => {
                acting.post(&wire::StreamCreate {
                    phStream: handle,
                    Flags: flags,
                })?;
                0
            }
            Some(wanted) => {
                let priority = self.nearest_priority(acting.context.device, wanted)?;
                acting.post(&wire::StreamCreateWithPriority {
                    phStream: handle,
                    flags,
                    priority,
                })?;
                priority
            }
        };
        if flags & CU_STREAM_NON_BLOCKING != 0 {
            acting.context.written.note_apart();
            acting.session.note_apart(handle.0);
        }
        let stream = Stream {
            context: acting.context.number,
            flags,
            priority: AtomicI32::new(priority),
            id: self.new_id(),
        };
        write(&self.streams).insert(handle.0, Arc::new(stream));
        Ok(handle.to_raw())
    }

    fn end_stream(&self, acting: &Acting<'_>, handle: wire::StreamHandle) -> Result<(), CUresult> {
        self.leave_capture(handle.0)?;
        let told = acting.finish_written(handle);
        // First, so that nothing more is posted in its order.
        write(&self.streams).remove(&handle.0);
        acting.session.forget_stream(handle.0);
        acting.post(&wire::StreamDestroyV2 { hStream: handle })?;
        self.forget_stream_attributes(|_, stream| stream == handle.0);
        self.mirrors.forget_stream(handle.0);
        let probe = acting.context.end_stream(acting.session, handle.0);
        let events = [probe, acting.context.written.forget(handle.0)];
        events.into_iter().flatten().try_for_each(|event| {
            acting.post(&wire::EventDestroyV2 {
                hEvent: wire::EventHandle(event),
            })
        })?;
        told
    }

    /// Ends the default streams of a thread that ends, by context.
    pub(crate) fn end_own_streams(&self, streams: HashMap<u64, OwnStream>) {
        for (id, own) in streams {
            let context = self.ready().and_then(|_| self.context(own.context));
            // A context or session that has ended has taken its streams along.
            let Ok(context) = context else { continue };
            if context.id == id {
                let acting = self.acting_in(context);
                let _ = acting
                    .and_then(|acting| self.end_stream(&acting, wire::StreamHandle(own.stream)));
            }
        }
    }

    /// As [`Self::describe`]; a stream that is captured is refused, which invalidates the capture.
    fn describe_uncaptured(&self, stream: CUstream) -> Result<Arc<Stream>, CUresult> {
        if self.is_capturing() {
            self.on_uncaptured(stream)?;
        }
        self.describe(stream)
    }

    /// As [`Self::describe`]; only a stream whose capture is invalid is refused.
    fn describe_valid(&self, stream: CUstream) -> Result<Arc<Stream>, CUresult> {
        if self.is_capturing() {
            self.enqueue_on(stream)?;
        }
        self.describe(stream)
    }

    /// What is known of a stream; a default stream is the current context's.
    pub(crate) fn describe(&self, stream: CUstream) -> Result<Arc<Stream>, CUresult> {
        let number = stream.addr() as u64;
        if number <= 2 {
            let context = self.current()?;
            return Ok(Arc::new(Stream {
                context: context.number,
                flags: 0,
                priority: AtomicI32::new(0),
                // Both names of the default stream (seen with driver 580.159).
                id: number.max(CU_STREAM_LEGACY),
            }));
        }
        let found = read(&self.streams).get(&number).cloned();
        found.ok_or(CUDA_ERROR_INVALID_HANDLE)
    }

    /// The session and context in which a stream's call acts: its own where it is not the thread's.
    pub(crate) fn on(
        &self,
        stream: CUstream,
    ) -> Result<(Acting<'_>, wire::StreamHandle), CUresult> {
        let mut acting = self.session_for(stream.addr() as u64)?;
        let handle = acting.stream(stream);
        if stream.addr() > 2 {
            let known = self.describe(stream)?;
            if known.context != acting.context.number {
                acting = self.acting_in(self.context(known.context)?)?;
            }
        }
        Ok((acting, handle))
    }

    /// A number under which the server calls when a stream or graph comes to a function, which then runs in the thread of `calls`.
    pub(crate) fn host_number(
        &self,
        calls: &HostCalls,
        acting: &Acting<'_>,
        stream: wire::StreamHandle,
        run: impl FnOnce(CUresult) + Send + 'static,
    ) -> Result<u64, CUresult> {
        let sender = calls.sender().ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        let due = Due::of(&self.functions_due);
        let session = Arc::downgrade(acting.session);
        let context = Arc::clone(&acting.context);
        let number = Arc::new(std::sync::OnceLock::<u64>::new());
        let told = Arc::clone(&number);
        let mark = acting
            .session
            .mark_behind_with(acting.actor, stream.0, move |ended| {
                let job: Job = Box::new(move || {
                    // Copies that are posted behind this may take the bytes that the function has written.
                    let _due = due;
                    let session: Option<Arc<Session>> = session.upgrade();
                    // It may have ended since. Who was told so may have given up what its functions would use.
                    let live = session.filter(|session| session.lost().is_none());
                    let mut ended = match live {
                        None if ended == CUDA_SUCCESS => CUDA_ERROR_DEVICE_UNAVAILABLE,
                        _ => ended,
                    };
                    let acting = live.as_ref().map(|session| Acting {
                        session,
                        actor: actor(context.number),
                        context: Arc::clone(&context),
                    });
                    if let (Some(acting), CUDA_SUCCESS) = (&acting, ended) {
                        // The function may look at what work before it has changed.
                        ended = status(acting.show_twins());
                    }
                    thread::in_host_function(|| run(ended));
                    if let (Some(acting), CUDA_SUCCESS) = (acting, ended) {
                        // Work behind it may look at what it has changed.
                        let given = acting.give_mirrors();
                        let _ = given.inspect_err(|failed| {
                            acting.session.note_failure(stream.0, *failed);
                        });
                    }
                    if let (Some(session), Some(function), CUDA_SUCCESS) = (live, told.get(), ended)
                    {
                        let _ = session.post_plain(&wire::HostDone {
                            function: *function,
                        });
                    }
                });
                let _ = sender.send(job);
            })?;
        let _ = number.set(mark);
        Ok(mark)
    }

    /// Has a stream stand still when it comes here. `wait` is called then, which must not wait itself, with what lets the stream go on
    /// with a status.
    pub(crate) fn stand_still(
        &self,
        acting: &Acting<'_>,
        stream: wire::StreamHandle,
        wait: impl FnOnce(Box<dyn FnOnce(CUresult) + Send>) + Send + 'static,
    ) -> Result<(), CUresult> {
        let sender = self.own_calls.sender().ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        let session = Arc::downgrade(acting.session);
        let number = Arc::new(std::sync::OnceLock::<u64>::new());
        let told = Arc::clone(&number);
        let mark = acting.session.mark_with(move |reached| {
            if reached != CUDA_SUCCESS {
                return;
            }
            wait(Box::new(move |ended| {
                let job: Job = Box::new(move || {
                    let (Some(session), Some(function)) = (session.upgrade(), told.get()) else {
                        return;
                    };
                    if ended != CUDA_SUCCESS {
                        session.note_failure(stream.0, ended);
                    }
                    // A session that is over has no streams.
                    let _ = session.post_plain(&wire::HostDone {
                        function: *function,
                    });
                });
                // The thread listens as long as the process lives.
                let _ = sender.send(job);
            }));
        });
        let _ = number.set(mark);
        acting.post(&wire::HostFunction {
            stream,
            function: mark,
            sync_mode: 0,
        })?;
        acting.touch(stream);
        Ok(())
    }

    /// Has `run` called when a stream comes to it; the stream stands still until it has returned.
    pub(crate) fn host_function_on(
        &self,
        calls: &HostCalls,
        acting: &Acting<'_>,
        handle: wire::StreamHandle,
        run: impl FnOnce(CUresult) + Send + 'static,
    ) -> Result<(), CUresult> {
        let mark = self.host_number(calls, acting, handle, run)?;
        acting.post(&wire::HostFunction {
            stream: handle,
            function: mark,
            sync_mode: 0,
        })?;
        acting.touch(handle);
        Ok(())
    }

    pub(crate) fn launch_host_function(
        &self,
        stream: CUstream,
        function: CUhostFn,
        user_data: *mut c_void,
    ) -> Result<(), CUresult> {
        // Unlike others, this parameter comes before the stream's capture (seen with driver 580.159).
        let function = function.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let (acting, handle, captured) = self.enqueue_on(stream)?;
        if let Some(captured) = captured {
            let data = user_data.expose_provenance();
            return captured.add(Content::Host(Some(function), data));
        }
        let passed = Passed(user_data);
        self.host_function_on(&self.host_calls, &acting, handle, move |ended| {
            let passed = passed;
            if ended == CUDA_SUCCESS {
                // SAFETY: the application's contract of cuLaunchHostFunc: the function may be called once, with this.
                unsafe { function(passed.0) };
            }
        })
    }
}

/// A function that counts as due while this lives.
struct Due(Arc<AtomicUsize>);

impl Due {
    fn of(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(count))
    }
}

impl Drop for Due {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Tells a new stream. Without a context, or before cuInit, the driver writes -1 (seen with driver 580.159).
fn tell_stream(
    place: &Out<CUstream>,
    make: impl FnOnce() -> Result<CUstream, CUresult>,
) -> Result<(), CUresult> {
    if !place.wanted() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let made = make();
    match made {
        Ok(stream) => place.set(stream),
        Err(
            CUDA_ERROR_INVALID_CONTEXT
            | CUDA_ERROR_CONTEXT_IS_DESTROYED
            | CUDA_ERROR_NOT_INITIALIZED,
        ) => {
            place.set(std::ptr::without_provenance_mut(usize::MAX));
        }
        Err(_) => {}
    }
    made.map(|_| ())
}

impl StreamCalls for Driver {
    fn cuStreamCreate(&self, phStream: Out<CUstream>, Flags: u32) -> Result<(), CUresult> {
        tell_stream(&phStream, || self.create_stream(Flags, None))
    }

    fn cuStreamCreateWithPriority(
        &self,
        phStream: Out<CUstream>,
        flags: u32,
        priority: i32,
    ) -> Result<(), CUresult> {
        tell_stream(&phStream, || self.create_stream(flags, Some(priority)))
    }

    fn cuStreamDestroy_v2(&self, hStream: CUstream) -> Result<(), CUresult> {
        if hStream.addr() <= 2 {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        }
        let (acting, handle) = self.on(hStream)?;
        self.end_stream(&acting, handle)
    }

    fn cuStreamQuery(&self, hStream: CUstream) -> Result<(), CUresult> {
        self.on_uncaptured(hStream).and_then(|(acting, handle)| {
            self.safe_in_captures()?;
            match self.settle_writes(&acting, handle)? {
                true => Ok(()),
                false => acting.query(handle),
            }
        })
    }

    fn cuStreamSynchronize(&self, hStream: CUstream) -> Result<(), CUresult> {
        self.on_uncaptured(hStream).and_then(|(acting, handle)| {
            self.safe_in_captures()?;
            match self.settle_writes(&acting, handle)? {
                true => Ok(()),
                false => acting.synchronise(handle),
            }
        })
    }

    fn cuStreamWaitEvent(
        &self,
        hStream: CUstream,
        hEvent: CUevent,
        Flags: u32,
    ) -> Result<(), CUresult> {
        self.enqueue_on(hStream)
            .and_then(|(acting, handle, captured)| {
                if Flags > CU_EVENT_WAIT_EXTERNAL {
                    return Err(CUDA_ERROR_INVALID_VALUE);
                }
                let event = wire::EventHandle::from_raw(hEvent);
                let captured = captured.as_ref();
                let known = self.event(hEvent).inspect_err(|_| {
                    // Unlike other mistakes this one costs the capture (seen with driver 580.159).
                    captured.into_iter().for_each(Captured::invalidate);
                })?;
                let is_external = Flags & CU_EVENT_WAIT_EXTERNAL != 0;
                if captured.is_none() && is_external {
                    return match self.expect_uncaptured(&known, hEvent, false) {
                        // Of a capture that is over or invalid (seen with driver 580.159).
                        Err(CUDA_ERROR_INVALID_VALUE) => Err(CUDA_ERROR_INVALID_VALUE),
                        _ => Err(CUDA_ERROR_ILLEGAL_STATE),
                    };
                }
                if captured.is_some() && !is_external && !known.is_recorded() {
                    // There is nothing to wait for, in the capture or outside.
                    return Ok(());
                }
                if known.meets_captures() || captured.is_some() {
                    match self.meet(&acting, handle, captured, event.0, Flags)? {
                        Meeting::Done => return Ok(()),
                        Meeting::Outside => {}
                    }
                }
                if Session::index_of(event.0) != acting.context.session {
                    return self.await_elsewhere(&acting, handle, &known, event);
                }
                acting.post(&wire::StreamWaitEvent {
                    hStream: handle,
                    hEvent: event,
                    Flags,
                })?;
                acting.touch(handle);
                // The stream is not to wait for a later recording elsewhere.
                self.settle_shared(&acting, &known, hEvent)
            })
    }

    unsafe fn cuStreamAddCallback(
        &self,
        hStream: CUstream,
        callback: CUstreamCallback,
        userData: *mut c_void,
        flags: u32,
    ) -> Result<(), CUresult> {
        let Some(callback) = callback.filter(|_| flags == 0) else {
            return Err(CUDA_ERROR_INVALID_VALUE);
        };
        let (stream, data) = (Passed(hStream.cast()), Passed(userData));
        self.on_uncaptured(hStream).and_then(|(acting, handle)| {
            self.host_function_on(&self.host_calls, &acting, handle, move |ended| {
                let (stream, data) = (stream, data);
                // SAFETY: the application's contract of cuStreamAddCallback.
                unsafe { callback(stream.0.cast(), ended, data.0) };
            })
        })
    }

    fn cuStreamGetCtx_v2(
        &self,
        hStream: CUstream,
        pGreenCtx: Out<CUgreenCtx>,
    ) -> Result<CUcontext, CUresult> {
        let context = StreamCalls::cuStreamGetCtx(self, hStream)?;
        // No stream is of a green context.
        pGreenCtx.set(std::ptr::null_mut());
        Ok(context)
    }

    fn cuStreamCopyAttributes(&self, dst: CUstream, src: CUstream) -> Result<(), CUresult> {
        self.copy_stream_attributes(dst, src)
    }

    fn cuStreamGetAttribute(
        &self,
        hStream: CUstream,
        attr: CUstreamAttrID,
    ) -> Result<CUlaunchAttributeValue, CUresult> {
        self.stream_attribute(hStream, attr)
    }

    fn cuStreamSetAttribute(
        &self,
        hStream: CUstream,
        attr: CUstreamAttrID,
        value: Vouched<'_, CUlaunchAttributeValue>,
    ) -> Result<(), CUresult> {
        self.set_stream_attribute(hStream, attr, &value)
    }

    fn cuStreamAttachMemAsync(
        &self,
        hStream: CUstream,
        dptr: CUdeviceptr,
        length: usize,
        flags: u32,
    ) -> Result<(), CUresult> {
        self.attach(hStream, dptr, length, flags)
    }

    fn cuStreamWaitValue32_v2(
        &self,
        stream: CUstream,
        addr: CUdeviceptr,
        value: cuuint32_t,
        flags: u32,
    ) -> Result<(), CUresult> {
        let kind = CU_STREAM_MEM_OP_WAIT_VALUE_32;
        self.operate_on(stream, kind, addr, u64::from(value), flags)
    }

    fn cuStreamWaitValue64_v2(
        &self,
        stream: CUstream,
        addr: CUdeviceptr,
        value: cuuint64_t,
        flags: u32,
    ) -> Result<(), CUresult> {
        self.operate_on(stream, CU_STREAM_MEM_OP_WAIT_VALUE_64, addr, value, flags)
    }

    fn cuStreamWriteValue32_v2(
        &self,
        stream: CUstream,
        addr: CUdeviceptr,
        value: cuuint32_t,
        flags: u32,
    ) -> Result<(), CUresult> {
        let kind = CU_STREAM_MEM_OP_WRITE_VALUE_32;
        self.operate_on(stream, kind, addr, u64::from(value), flags)
    }

    fn cuStreamWriteValue64_v2(
        &self,
        stream: CUstream,
        addr: CUdeviceptr,
        value: cuuint64_t,
        flags: u32,
    ) -> Result<(), CUresult> {
        self.operate_on(stream, CU_STREAM_MEM_OP_WRITE_VALUE_64, addr, value, flags)
    }

    fn cuStreamBatchMemOp_v2(
        &self,
        stream: CUstream,
        paramArray: &[CUstreamBatchMemOpParams],
        flags: u32,
    ) -> Result<(), CUresult> {
        self.enqueue_on(stream)?;
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        self.operate(stream, &crate::operations::words(paramArray)?)
    }

    fn cuStreamGetPriority(&self, hStream: CUstream) -> Result<i32, CUresult> {
        self.describe_valid(hStream).map(|stream| stream.priority())
    }

    fn cuStreamGetFlags(&self, hStream: CUstream) -> Result<u32, CUresult> {
        self.describe_uncaptured(hStream).map(|stream| stream.flags)
    }

    fn cuStreamGetId(&self, hStream: CUstream) -> Result<u64, CUresult> {
        self.describe_uncaptured(hStream).map(|stream| stream.id)
    }

    fn cuStreamGetCtx(&self, hStream: CUstream) -> Result<CUcontext, CUresult> {
        let of = self.describe_valid(hStream);
        of.map(|stream| wire::ContextHandle(stream.context).to_raw())
    }

    fn cuStreamGetDevice(&self, hStream: CUstream) -> Result<CUdevice, CUresult> {
        let context = self.context(self.describe_uncaptured(hStream)?.context)?;
        Ok(context.device)
    }

    fn cuStreamIsCapturing(&self, hStream: CUstream) -> Result<CUstreamCaptureStatus, CUresult> {
        self.capture_state(hStream).map(|state| state.status)
    }

    fn cuStreamBeginCapture(&self, hStream: CUstream) -> Result<(), CUresult> {
        self.begin_capture(hStream, CU_STREAM_CAPTURE_MODE_GLOBAL, None)
    }

    fn cuStreamBeginCapture_v2(
        &self,
        hStream: CUstream,
        mode: CUstreamCaptureMode,
    ) -> Result<(), CUresult> {
        self.begin_capture(hStream, mode, None)
    }

    fn cuStreamBeginCaptureToGraph(
        &self,
        hStream: CUstream,
        hGraph: CUgraph,
        dependencies: &[CUgraphNode],
        dependencyData: Option<&[CUgraphEdgeData]>,
        mode: CUstreamCaptureMode,
    ) -> Result<(), CUresult> {
        if hGraph.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let deps = crate::graph::dependencies(dependencies, dependencyData);
        self.begin_capture(hStream, mode, Some((hGraph.addr() as u64, deps)))
    }

    fn cuStreamEndCapture(&self, hStream: CUstream, phGraph: Out<CUgraph>) -> Result<(), CUresult> {
        if !phGraph.wanted() {
            // The driver takes it. Who captured into a graph has it already; another graph nobody can name.
            let into = self.captures_into(hStream)?;
            let graph = self.end_capture(hStream)?;
            return match into {
                true => Ok(()),
                false => self.destroy_graph(graph),
            };
        }
        // A capture that went wrong gives no graph.
        phGraph.set(std::ptr::null_mut());
        phGraph.set(wire::GraphHandle(self.end_capture(hStream)?).to_raw());
        Ok(())
    }

    fn cuStreamUpdateCaptureDependencies(
        &self,
        hStream: CUstream,
        dependencies: Option<&[CUgraphNode]>,
        count: usize,
        flags: u32,
    ) -> Result<(), CUresult> {
        StreamCalls::cuStreamUpdateCaptureDependencies_v2(
            self,
            hStream,
            dependencies,
            None,
            count,
            flags,
        )
    }

    fn cuStreamUpdateCaptureDependencies_v2(
        &self,
        hStream: CUstream,
        dependencies: Option<&[CUgraphNode]>,
        dependencyData: Option<&[CUgraphEdgeData]>,
        _count: usize,
        flags: u32,
    ) -> Result<(), CUresult> {
        let deps = dependencies.map(|nodes| crate::graph::dependencies(nodes, dependencyData));
        self.update_dependencies(hStream, deps.as_deref(), flags)
    }

    fn cuThreadExchangeStreamCaptureMode(
        &self,
        mode: &mut CUstreamCaptureMode,
    ) -> Result<(), CUresult> {
        self.ready()?;
        // Of any number (seen with driver 580.159).
        *mode = thread::with(|thread| thread.capture_mode.replace(*mode));
        Ok(())
    }

    fn cuStreamGetCaptureInfo(
        &self,
        hStream: CUstream,
        id_out: Out<cuuint64_t>,
    ) -> Result<CUstreamCaptureStatus, CUresult> {
        let state = self.capture_state(hStream)?;
        if state.status == CU_STREAM_CAPTURE_STATUS_ACTIVE {
            id_out.set(state.id);
        }
        Ok(state.status)
    }

    fn cuStreamGetCaptureInfo_v2(
        &self,
        hStream: CUstream,
        id_out: Out<cuuint64_t>,
        graph_out: Out<CUgraph>,
        dependencies_out: Out<*const CUgraphNode>,
        numDependencies_out: Out<usize>,
    ) -> Result<CUstreamCaptureStatus, CUresult> {
        StreamCalls::cuStreamGetCaptureInfo_v3(
            self,
            hStream,
            id_out,
            graph_out,
            dependencies_out,
            Out::none(),
            numDependencies_out,
        )
    }

    fn cuStreamGetCaptureInfo_v3(
        &self,
        hStream: CUstream,
        id_out: Out<cuuint64_t>,
        graph_out: Out<CUgraph>,
        dependencies_out: Out<*const CUgraphNode>,
        edgeData_out: Out<*const CUgraphEdgeData>,
        numDependencies_out: Out<usize>,
    ) -> Result<CUstreamCaptureStatus, CUresult> {
        let state = self.capture_state(hStream)?;
        if state.status == CU_STREAM_CAPTURE_STATUS_ACTIVE {
            if !edgeData_out.wanted() && dependencies_out.wanted() && !state.plain {
                return Err(CUDA_ERROR_LOSSY_QUERY);
            }
            graph_out.set(wire::GraphHandle(state.graph).to_raw());
            dependencies_out.set(std::ptr::with_exposed_provenance(state.nodes));
            edgeData_out.set(std::ptr::with_exposed_provenance(state.edges));
            numDependencies_out.set(state.count);
            id_out.set(state.id);
        }
        Ok(state.status)
    }
}
