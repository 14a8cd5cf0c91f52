//! The session's communicators, and collectives in the order of streams.
//!
//! The first operation of a kind may have the library wait until other ranks come to it, and one of a library that does the work itself always
//! waits. It is [parked](super::streams) at its stream then, and so is what comes behind it on that stream or communicator; others are enqueued
//! on the lane. So no lane ever waits for another rank.

mod ending;
mod lost;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, TryLockError, Weak};
use std::time::{Duration, Instant};

use smallvec::SmallVec;
use towline_backend::cuda as wire;
use towline_backend::cuda::*;
use towline_backend::nccl::{self, Collectives as Library, End, Made, result};
use towline_wire::cuda::collective::{Kind, Member, Operation, Origin};
use towline_wire::error::ProtocolError;

use self::ending::Endings;
use self::lost::{Latest, Making};
use super::context::{self, Context};
use super::session::{Session, unknown};
use super::shared::{Shared, lock};
use super::streams::{Place, Places, Target};
use crate::bonds::{Bond, Bonds};
use crate::link::Raw;
use crate::turns::Admission;

/// Opens the library, or says why it cannot be.
pub type OpenLibrary = Box<dyn Fn() -> Result<Arc<dyn Library>, String> + Send + Sync>;

/// Most communicators of a session.
const LIMIT: usize = 4096;

/// The time that a call of the library takes which waits for nobody, and a pause between looks whether it is over.
const CALL: Duration = Duration::from_millis(100);
const PAUSE: Duration = Duration::from_millis(1);
/// A program waits so long for an abort: what is left of it then waits for the program itself, or for ranks that are gone.
const ABORT: Duration = Duration::from_secs(5);

/// The failure of a collective, as a wait for its stream tells it: data from outside of the device is not valid.
const FAILED: CUresult = CUDA_ERROR_EXTERNAL_DEVICE;

/// A posted request: its number, and its call.
pub(crate) type Posted = (u64, u16);

/// The library, once the session has asked for it, and what it has made.
pub(crate) struct Collectives {
    open: Option<OpenLibrary>,
    library: OnceLock<Option<Arc<dyn Library>>>,
    known: Mutex<HashMap<u64, Known>>,
    endings: Arc<Endings>,
    /// A thread looks whether ranks are gone, and waits so long then.
    attended: AtomicBool,
    patience: Duration,
}

/// A communicator by its number.
enum Known {
    Making(Making),
    /// It is being made, and nobody wants it any more.
    GivenUp,
    There(Arc<Communicator>),
}

/// A communicator of the session.
pub(crate) struct Communicator {
    /// The client's number.
    number: u64,
    made: Made,
    context: Arc<Context>,
    /// With its ranks in other sessions.
    bond: Option<Bond>,
    /// Communicators that were made of it.
    children: AtomicU32,
    /// Others are made of it just now, by all of its ranks.
    parting: AtomicU32,
    /// The session of another rank is gone.
    bereaved: Arc<AtomicBool>,
    /// It was ended for that.
    lost: AtomicBool,
    latest: Mutex<Latest>,
    /// Calls of the library for it come one at a time.
    busy: Mutex<()>,
    /// The first failure of an operation, as NCCL's result.
    failed: AtomicI32,
    ended: AtomicBool,
    /// Taken while the library is asked about it, which its end waits for.
    asks: RwLock<()>,
    /// The place of its latest parked operation.
    last: Mutex<Option<Place>>,
    /// Memory that the library knows, by the client's number for it: the library's handle, and whether it is a window.
    registered: Mutex<HashMap<u64, (u64, bool)>>,
    registrations: AtomicU64,
    /// Operations that it has done, so that the library need not make connections for it any more.
    met: Mutex<HashSet<Way>>,
}

/// A kind of operation with its root or other rank, and its size.
type Way = (Kind, i32, (u32, i32));

/// An operation with all that it needs.
struct Ready {
    communicator: Arc<Communicator>,
    target: Target,
    operation: Operation,
}

/// An operation of a graph.
pub(crate) struct Captured {
    communicator: Arc<Communicator>,
    operation: Operation,
}

impl Captured {
    pub(crate) fn communicator(&self) -> Weak<Communicator> {
        Arc::downgrade(&self.communicator)
    }
}

/// The power of two that a number of elements has reached, and their type.
fn class_of((count, datatype): (u64, i32)) -> (u32, i32) {
    (count.checked_ilog2().unwrap_or(0), datatype)
}

impl Ready {
    /// Tells what needs connections of its own: another rank, or a size for which the library has another way.
    fn way(&self) -> Way {
        let Operation {
            kind,
            root,
            count,
            datatype,
            ..
        } = self.operation;
        let size = (count, datatype);
        match kind {
            Kind::Send | Kind::Recv => (kind, root, (0, 0)),
            // Messages between the root and the others.
            Kind::Gather | Kind::Scatter => (kind, root, class_of(size)),
            _ => (kind, 0, class_of(size)),
        }
    }
}

impl Collectives {
    pub(crate) fn new(open: Option<OpenLibrary>, patience: Option<Duration>) -> Self {
        Self {
            open,
            library: OnceLock::new(),
            known: Mutex::default(),
            endings: Arc::default(),
            attended: AtomicBool::new(false),
            patience: patience.unwrap_or(lost::PATIENCE),
        }
    }

    /// The library; none where the session may not use any, or the server's cannot be used, which the log says.
    fn library(&self) -> Option<&Arc<dyn Library>> {
        let open = || match self.open.as_ref()?() {
            Ok(library) => Some(library),
            Err(why) => {
                log::error!("no collectives: {why}");
                None
            }
        };
        self.library.get_or_init(open).as_ref()
    }

    /// Whether the session has communicators, or makes any.
    pub(crate) fn are_used(&self) -> bool {
        !lock(&self.known).is_empty()
    }

    pub(crate) fn find(&self, number: u64) -> Option<Arc<Communicator>> {
        match lock(&self.known).get(&number) {
            Some(Known::There(communicator)) => Some(Arc::clone(communicator)),
            _ => None,
        }
    }

    /// Whether a communicator is being made, which comes to nothing now.
    fn give_up(&self, number: u64) -> bool {
        match lock(&self.known).get_mut(&number) {
            Some(known @ Known::Making(_)) => {
                *known = Known::GivenUp;
                true
            }
            _ => false,
        }
    }

    /// Begins to end all of a context, or all at the session's end. Whoever waits for other ranks in one does so no longer.
    pub(crate) fn release(
        &self,
        api: &Arc<dyn CudaApi>,
        bonds: &Bonds,
        context: Option<u64>,
    ) -> Vec<Arc<Communicator>> {
        let is_of = |of: u64| context.is_none_or(|context| context == of);
        let mut live = Vec::new();
        lock(&self.known).retain(|_, known| match known {
            Known::Making(making) if is_of(making.context) => {
                *known = Known::GivenUp;
                true
            }
            Known::There(communicator) if is_of(communicator.context.id) => {
                live.push(Arc::clone(communicator));
                false
            }
            _ => true,
        });
        let library = self.library.get().and_then(Option::as_ref);
        for communicator in &live {
            if let (false, Some(library)) = (communicator.end(), library) {
                self.endings.abort(communicator, api, library);
            }
            // At the session's end the others hear of that.
            if let (Some(bond), Some(_)) = (&communicator.bond, context) {
                bonds.part(bond, communicator.number);
            }
        }
        let mut ending = self.endings.all();
        ending.retain(|communicator| is_of(communicator.context.id));
        ending.extend(live);
        once_each(ending.iter()).into_iter().cloned().collect()
    }

    /// Waits for the ends of communicators, but no longer than that.
    pub(crate) fn join(&self, ending: &[Arc<Communicator>], patience: Duration) {
        self.endings.join(ending, patience);
    }
}

impl Communicator {
    fn fail(&self, status: i32) {
        let first = (result::SUCCESS, status);
        let _ = self
            .failed
            .compare_exchange(first.0, first.1, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Whether it is in this context; under its number there may have been another.
    pub(crate) fn is_in(&self, context: &Arc<Context>) -> bool {
        Arc::ptr_eq(&self.context, context)
    }

    /// Has nobody use it any more; whether somebody did before.
    fn end(&self) -> bool {
        self.ended.swap(true, Ordering::AcqRel)
    }

    /// Waits for questions to the library about it, which has ended.
    fn settle_asks(&self) {
        drop(self.asks.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// Aborts it, which has ended. A call that is under way comes to its end first, unless it waits for other ranks.
    fn abort(&self, library: &dyn Library) {
        self.settle_asks();
        let deadline = Instant::now() + CALL;
        let mut taken = None;
        while taken.is_none() && Instant::now() < deadline {
            taken = try_all(&[self]);
            if taken.is_none() {
                std::thread::sleep(PAUSE);
            }
        }
        let of = self.made.communicator;
        if taken.is_none() && library.end(of, End::Revoke).is_ok() {
            // Nothing waits for other ranks any more, unless for those of another communicator in the same call.
            taken = Some(SmallVec::from_iter([lock(&self.busy)]));
        }
        // Nobody begins another: it has ended. The library may wait for graphs here, and so must nobody else.
        drop(taken);
        let _ = library.end(of, End::Abort);
    }

    /// Asks the library about it, unless it has ended.
    fn ask<T>(&self, question: impl FnOnce(nccl::Communicator) -> T) -> Option<T> {
        let _asks = self.asks.read().unwrap_or_else(PoisonError::into_inner);
        (!self.has_ended()).then(|| question(self.made.communicator))
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// The place of its parked operations.
    pub(crate) fn places(&self) -> Places {
        lock(&self.last).iter().copied().collect()
    }

    /// Keeps a handle of the library's; the client's number for it. NULL is none: there was nothing to keep.
    fn keep_registration(&self, handle: u64, window: bool) -> u64 {
        if handle == 0 {
            return 0;
        }
        let number = self.registrations.fetch_add(1, Ordering::Relaxed) + 1;
        lock(&self.registered).insert(number, (handle, window));
        number
    }

    /// The handle of a number, which ends with that.
    fn take_registration(&self, number: u64, window: bool) -> Result<u64, i32> {
        let mut registered = lock(&self.registered);
        match registered.get(&number) {
            Some((handle, of)) if *of == window => {
                let handle = *handle;
                registered.remove(&number);
                Ok(handle)
            }
            None if number == 0 => Ok(0),
            _ => Err(result::INVALID_ARGUMENT),
        }
    }
}

/// The communicators of operations, each once.
fn communicators(ready: &[Ready]) -> SmallVec<[&Arc<Communicator>; 4]> {
    once_each(ready.iter().map(|ready| &ready.communicator))
}

/// Communicators, each once, in the order of their addresses, in which they are locked.
fn once_each<'a>(
    all: impl Iterator<Item = &'a Arc<Communicator>>,
) -> SmallVec<[&'a Arc<Communicator>; 4]> {
    let mut all: SmallVec<[_; 4]> = all.collect();
    all.sort_by_key(|communicator| Arc::as_ptr(communicator));
    all.dedup_by(|one, other| Arc::ptr_eq(one, other));
    all
}

/// Takes all of them, or none if somebody else has one.
fn try_all<'a>(all: &[&'a Communicator]) -> Option<SmallVec<[MutexGuard<'a, ()>; 4]>> {
    let taken = all
        .iter()
        .map(|communicator| match communicator.busy.try_lock() {
            Ok(taken) => Some(taken),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        });
    taken.collect()
}

fn done(status: CUresult) -> Result<(), CUresult> {
    match status {
        CUDA_SUCCESS => Ok(()),
        status => Err(status),
    }
}

/// Enqueues operations of communicators that have been taken; each is told of a failure.
fn enqueue(library: &dyn Library, ready: &[Ready]) -> Result<(), i32> {
    let mut all = ready.iter().map(|ready| &ready.communicator);
    if let Some(ended) = all.find(|communicator| communicator.has_ended()) {
        return Err(ended.gone());
    }
    let operations: SmallVec<[nccl::Operation; 4]> = ready
        .iter()
        .map(|ready| nccl::Operation {
            kind: ready.operation.kind,
            communicator: ready.communicator.made.communicator,
            stream: ready.target.stream().addr(),
            send: ready.operation.send,
            receive: ready.operation.receive,
            count: ready.operation.count,
            datatype: ready.operation.datatype,
            reduction: ready.operation.reduction,
            root: ready.operation.root,
            factor: ready.operation.factor,
        })
        .collect();
    // SAFETY: streams and communicators are the session's and live; memory that is not is a fault of the session's own process.
    let outcome = unsafe { library.run(&operations) };
    context::look_again();
    outcome.inspect_err(|status| {
        log::warn!("a collective failed: {}", library.text());
        for ready in ready {
            ready.communicator.fail(*status);
        }
    })
}

impl Shared {
    /// Has the next operations of communicators stand behind what is parked at a stream.
    pub(crate) fn put_behind(&self, all: &[Arc<Communicator>], key: u64) -> Option<Place> {
        let places = self.streams.place(key);
        let last = places.into_iter().find(|(of, _)| *of == key);
        for communicator in all {
            *lock(&communicator.last) = last;
        }
        last
    }

    /// Runs operations whose turn has come, on a thread that may wait.
    fn run_collectives(&self, request: Posted, ready: &[Ready], counts: bool) {
        let Some(library) = self.collectives.library() else {
            self.tell_failure(request, ready);
            return self.count_launches(request, ready, counts);
        };
        let taken: Vec<_> = communicators(ready)
            .into_iter()
            .map(|communicator| lock(&communicator.busy))
            .collect();
        self.collectives_come(ready);
        let enqueued = enqueue(&**library, ready);
        drop(taken);
        if enqueued.is_err() {
            self.tell_failure(request, ready);
        }
        self.count_launches(request, ready, counts);
    }

    /// Has the next wait for a stream of failed operations fail: their call has returned, and their data is not there. A program that has
    /// ended the communicator itself knows.
    fn tell_failure(&self, (number, call): Posted, ready: &[Ready]) {
        let knows = |of: &Communicator| of.has_ended() && !of.is_lost();
        for ready in ready.iter().filter(|ready| !knows(&ready.communicator)) {
            self.settle(number, call, ready.target.id, FAILED);
        }
    }

    /// Operations come that may wait for other ranks, which is no fault of a kernel's.
    fn collectives_come(&self, ready: &[Ready]) {
        let waiting = ready
            .iter()
            .filter(|ready| ready.communicator.made.ranks > 1);
        for ready in waiting {
            if ready.target.context.enter(&*self.api) == CUDA_SUCCESS {
                self.wait_comes(&ready.target);
            }
        }
    }

    /// Notes that the streams have operations; `counts` says whether the first one's turn counts them as a launch.
    fn count_launches(&self, request: Posted, ready: &[Ready], counts: bool) {
        for (number, ready) in ready.iter().enumerate() {
            if ready.target.context.enter(&*self.api) != CUDA_SUCCESS {
                continue;
            }
            if number == 0 && counts {
                self.launched(&ready.target, true);
            }
            if ready.communicator.made.ranks > 1 {
                self.wait_enqueued(&ready.target);
                ready.communicator.note(&*self.api, &ready.target, request);
            } else if number > 0 || !counts {
                self.enqueued(&ready.target);
            }
        }
    }

    /// Makes communicators; two facts for each.
    fn make_communicators(
        self: &Arc<Self>,
        members: &[Member],
        contexts: &[Arc<Context>],
        parents: &[Option<Arc<Communicator>>],
        bonds: &[Option<Bond>],
    ) -> Result<Vec<i32>, i32> {
        let Some(library) = self.collectives.library() else {
            self.forget_unmade(members, bonds);
            return Err(result::INVALID_USAGE);
        };
        let parent = |number: usize| {
            let parent = parents[number].as_ref();
            parent.map_or(nccl::Communicator(0), |parent| parent.made.communicator)
        };
        let described: Vec<nccl::Member<'_>> = members
            .iter()
            .enumerate()
            .map(|(number, member)| nccl::Member {
                config: &member.config,
                origin: match &member.origin {
                    Origin::Join { ranks, rank, ids } => nccl::Origin::Join {
                        ranks: *ranks,
                        rank: *rank,
                        ids,
                    },
                    Origin::Split { color, key, .. } => nccl::Origin::Split {
                        parent: parent(number),
                        color: *color,
                        key: *key,
                    },
                    Origin::Shrink {
                        excluded, flags, ..
                    } => nccl::Origin::Shrink {
                        parent: parent(number),
                        excluded,
                        flags: *flags,
                    },
                },
            })
            .collect();
        let enter = |number: usize| contexts[number].enter(&*self.api) == CUDA_SUCCESS;
        let taken: Vec<_> = once_each(parents.iter().flatten())
            .into_iter()
            .map(|parent| lock(&parent.busy))
            .collect();
        let parting = lost::Parting::of(members, parents);
        let ended = parents.iter().flatten().find(|parent| parent.has_ended());
        let made = match ended {
            Some(parent) => Err(parent.gone()),
            None => library.make(&described, &enter),
        };
        drop((parting, taken));
        context::look_again();
        if made.is_err() {
            log::warn!("no communicator: {}", library.text());
        }
        let made = made.inspect_err(|_| self.forget_unmade(members, bonds))?;
        let mut facts = Vec::new();
        let all = members.iter().zip(contexts).zip(bonds);
        for (((member, context), bond), made) in all.zip(made) {
            let mut known = lock(&self.collectives.known);
            let making = match known.remove(&member.number) {
                Some(Known::Making(making)) => Some(making),
                _ => None,
            };
            facts.extend(made.map_or([-1, -1], |made| [made.rank, made.ranks]));
            let (Some(made), Some(making)) = (made, making) else {
                drop(known);
                if let Some(made) = made {
                    let _ = library.end(made.communicator, End::Abort);
                }
                self.part(member.number, *bond);
                continue;
            };
            if made.ranks < 2 {
                self.part(member.number, *bond);
            }
            let communicator = Arc::new(Communicator {
                number: member.number,
                made,
                context: Arc::clone(context),
                bond: *bond,
                children: AtomicU32::new(0),
                parting: AtomicU32::new(0),
                bereaved: making.bereaved,
                lost: AtomicBool::new(false),
                latest: Mutex::default(),
                busy: Mutex::default(),
                failed: AtomicI32::new(result::SUCCESS),
                ended: AtomicBool::new(false),
                asks: RwLock::default(),
                last: Mutex::default(),
                registered: Mutex::default(),
                registrations: AtomicU64::new(0),
                met: Mutex::default(),
            });
            known.insert(member.number, Known::There(communicator));
        }
        Ok(facts)
    }

    /// Calls the library for a communicator, behind what is parked for it; `Err` with NCCL's result.
    fn with_communicator<T>(
        &self,
        communicator: &Communicator,
        call: impl FnOnce(&dyn Library, nccl::Communicator) -> Result<T, i32>,
    ) -> Result<T, i32> {
        let library = self.collectives.library();
        let library = library.ok_or(result::INVALID_USAGE)?;
        self.streams.wait(&communicator.places());
        let _taken = lock(&communicator.busy);
        if communicator.has_ended() {
            return Err(communicator.gone());
        }
        if communicator.context.enter(&*self.api) != CUDA_SUCCESS {
            return Err(result::CUDA_ERROR);
        }
        let outcome = call(&**library, communicator.made.communicator);
        context::look_again();
        outcome
    }

    /// Ends a communicator.
    fn end_communicator(&self, communicator: &Arc<Communicator>, how: End) -> Result<(), i32> {
        let library = self.collectives.library();
        let library = library.ok_or(result::INVALID_USAGE)?;
        match how {
            End::Finalize | End::Suspend | End::Resume => {
                if how == End::Finalize {
                    self.wait_for_last(communicator);
                }
                self.with_communicator(communicator, |library, of| {
                    lock(&communicator.met).clear();
                    library.end(of, how)
                })
            }
            // At once, as the end: what the library waits for may never come.
            End::Revoke => {
                done(communicator.context.enter(&*self.api)).map_err(|_| result::CUDA_ERROR)?;
                let outcome = communicator.ask(|of| library.end(of, how));
                context::look_again();
                outcome.unwrap_or_else(|| Err(communicator.gone()))
            }
            End::Destroy | End::Abort if communicator.is_lost() => {
                self.forget(communicator);
                Ok(())
            }
            End::Destroy => {
                self.wait_for_last(communicator);
                let outcome =
                    self.with_communicator(communicator, |library, of| match communicator.end() {
                        true => Err(communicator.gone()),
                        false => self.collectives.endings.during(communicator, || {
                            communicator.settle_asks();
                            library.end(of, how)
                        }),
                    });
                self.forget(communicator);
                match communicator.is_lost() {
                    true => Ok(()),
                    false => outcome,
                }
            }
            End::Abort => {
                // At once: what the library waits for may never come.
                if communicator.end() {
                    return Err(result::INVALID_ARGUMENT);
                }
                let collectives = &self.collectives;
                collectives.endings.abort(communicator, &self.api, library);
                self.forget(communicator);
                collectives.join(std::slice::from_ref(communicator), ABORT);
                Ok(())
            }
        }
    }

    /// A graph of operations alone, as the library has them captured.
    pub(crate) fn capture_collectives(&self, captured: &[Captured]) -> Result<Raw, CUresult> {
        let library = self.collectives.library();
        let library = library.filter(|library| !library.waits());
        let library = library.ok_or(CUDA_ERROR_NOT_SUPPORTED)?;
        let first = captured.first().ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let context = &first.communicator.context;
        let (api, mut stream): (_, CUstream) = (&*self.api, std::ptr::null_mut());
        done(context.enter(api))?;
        // SAFETY: one place for the stream.
        done(unsafe { api.cuStreamCreate(&raw mut stream, CU_STREAM_NON_BLOCKING) })?;
        let outcome = self.capture_on(stream, &**library, captured);
        context::look_again();
        // SAFETY: the stream is ours, and ends once.
        unsafe { api.cuStreamDestroy_v2(stream) };
        outcome
    }

    fn capture_on(
        &self,
        stream: CUstream,
        library: &dyn Library,
        captured: &[Captured],
    ) -> Result<Raw, CUresult> {
        let api = &*self.api;
        // SAFETY: the stream is ours.
        done(unsafe { api.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED) })?;
        let on = Target::default_of(Arc::clone(&captured[0].communicator.context), 0);
        let on = Target {
            native: Raw(stream.cast()),
            ..on
        };
        let ready: Vec<Ready> = captured
            .iter()
            .map(|captured| Ready {
                communicator: Arc::clone(&captured.communicator),
                target: on.clone(),
                operation: captured.operation,
            })
            .collect();
        for communicator in communicators(&ready) {
            self.streams.wait(&communicator.places());
        }
        let taken: Vec<_> = communicators(&ready)
            .into_iter()
            .map(|communicator| lock(&communicator.busy))
            .collect();
        let enqueued = enqueue(library, &ready);
        drop(taken);
        let mut graph: CUgraph = std::ptr::null_mut();
        // SAFETY: the stream is ours; one place for the graph.
        done(unsafe { api.cuStreamEndCapture(stream, &raw mut graph) })?;
        let graph = Raw(graph.cast());
        if enqueued.is_err() || graph.0.is_null() {
            // SAFETY: the graph is ours, or none.
            unsafe { api.cuGraphDestroy(graph.0.cast()) };
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        Ok(graph)
    }

    /// Asks for the library's version.
    pub(crate) fn collective_version(&self) -> Result<i32, CUresult> {
        let library = self.collectives.library();
        let library = library.ok_or(CUDA_ERROR_NOT_SUPPORTED)?;
        library.version().map_err(|_| CUDA_ERROR_UNKNOWN)
    }

    /// Asks for an id.
    pub(crate) fn collective_id(&self) -> Result<[u8; nccl::ID_BYTES], i32> {
        let library = self.collectives.library();
        library.ok_or(result::INVALID_USAGE)?.id()
    }

    /// Tells in words what went wrong last.
    pub(crate) fn collective_text(&self) -> String {
        let library = self.collectives.library();
        library.map_or_else(String::new, |library| library.text())
    }

    /// Tells whether a communicator works.
    pub(crate) fn collective_state(&self, communicator: &Communicator) -> i32 {
        match communicator.failed.load(Ordering::Acquire) {
            result::SUCCESS => {}
            failed => return failed,
        }
        match self.collectives.library() {
            None => result::INVALID_USAGE,
            Some(library) => {
                let state = communicator.ask(|of| library.state(of));
                state.unwrap_or(result::INVALID_ARGUMENT)
            }
        }
    }
}

/// The request that a thread carries out for a communicator.
pub(crate) enum Request {
    /// Ends it.
    End(End),
    /// Makes memory known: address, bytes, flags of a window.
    Register(u64, u64, Option<i32>),
    /// Has memory forgotten: its number, and whether it is a window.
    Deregister(u64, bool),
}

impl Session {
    /// Carries out a request for a communicator on a thread of its own; `tell` gets NCCL's result, or what came of the request.
    pub(crate) fn for_communicator(
        &mut self,
        number: u64,
        request: Request,
        tell: impl FnOnce(&Arc<Shared>, Result<u64, i32>) + Send + 'static,
    ) {
        let (collectives, ends) = (&self.shared.collectives, matches!(request, Request::End(_)));
        let given_up = ends && collectives.give_up(number);
        let found = collectives.find(number);
        self.wait(move |shared| {
            let Some(communicator) = found else {
                return tell(
                    shared,
                    if given_up {
                        Ok(0)
                    } else {
                        Err(result::INVALID_ARGUMENT)
                    },
                );
            };
            let outcome = match request {
                Request::End(how) => shared.end_communicator(&communicator, how).map(|()| 0),
                Request::Register(address, size, window) => {
                    shared.with_communicator(&communicator, |library, of| {
                        if window.is_some() {
                            lock(&communicator.met).clear();
                        }
                        let handle = library.register(of, address, size, window)?;
                        Ok(communicator.keep_registration(handle, window.is_some()))
                    })
                }
                Request::Deregister(known, window) => {
                    shared.with_communicator(&communicator, |library, of| {
                        let handle = communicator.take_registration(known, window)?;
                        library.deregister(of, handle, window).map(|()| 0)
                    })
                }
            };
            tell(shared, outcome);
        });
    }

    /// Operations of a graph with their communicators; none if one has ended.
    pub(crate) fn captured(&self, operations: Vec<Operation>) -> Option<Vec<Captured>> {
        let captured = operations.into_iter().map(|operation| {
            let communicator = self.shared.collectives.find(operation.communicator)?;
            Some(Captured {
                communicator,
                operation,
            })
        });
        captured.collect()
    }

    /// Makes communicators on a thread of its own; `tell` gets two facts for each.
    pub(crate) fn make_communicators(
        &mut self,
        members: Vec<Member>,
        tell: impl FnOnce(&Arc<Shared>, Result<Vec<i32>, i32>) + Send + 'static,
    ) -> Result<(), ProtocolError> {
        let mut contexts = Vec::new();
        let mut parents = Vec::new();
        let mut bonds = Vec::new();
        let mut orphaned = false;
        for member in &members {
            let context = self.contexts.get(&member.context);
            let context = context.ok_or_else(|| unknown("context", member.context))?;
            contexts.push(Arc::clone(context));
            let parent = match member.origin {
                Origin::Join { .. } => None,
                Origin::Split { parent, .. } | Origin::Shrink { parent, .. } => Some(parent),
            };
            let found = parent.and_then(|parent| self.shared.collectives.find(parent));
            orphaned |= parent.is_some() && found.is_none();
            // Here, and whatever comes of it: all ranks count what comes of a communicator in the same order.
            bonds.push(lost::bond_of(&member.origin, found.as_deref()));
            parents.push(found);
        }
        let mut known = lock(&self.shared.collectives.known);
        let refused = match () {
            () if orphaned => Some(result::INVALID_ARGUMENT),
            () if known.len() + members.len() > LIMIT => Some(result::SYSTEM_ERROR),
            () => None,
        };
        let tell: lost::Tell = Arc::new(Mutex::new(Some(Box::new(tell))));
        let mut makings = Vec::new();
        let members_made = members.iter().enumerate().filter(|_| refused.is_none());
        for (at, member) in members_made {
            let making = Making::new(member.context, &tell);
            let is_alone = matches!(member.origin, Origin::Join { ranks: ..2, .. });
            if !is_alone {
                makings.push((member.number, bonds[at], Arc::clone(&making.bereaved)));
            }
            if known.insert(member.number, Known::Making(making)).is_some() {
                return Err(unknown("free number of a communicator", member.number));
            }
        }
        drop(known);
        for (number, bond, bereaved) in makings {
            self.shared.attend(number, bond, bereaved);
        }
        self.wait(move |shared| {
            let outcome = match refused {
                Some(refused) => Err(refused),
                None => {
                    for parent in parents.iter().flatten() {
                        shared.streams.wait(&parent.places());
                    }
                    shared.make_communicators(&members, &contexts, &parents, &bonds)
                }
            };
            lost::tell_once(shared, &tell, outcome);
        });
        Ok(())
    }

    /// Enqueues operations, or parks them.
    pub(crate) fn run_collectives(
        &mut self,
        number: u64,
        call: u16,
        operations: Vec<Operation>,
    ) -> Result<(), ProtocolError> {
        let mut ready = Vec::with_capacity(operations.len());
        for operation in operations {
            // It was ended by another thread meanwhile.
            let Some(communicator) = self.shared.collectives.find(operation.communicator) else {
                self.shared.settle(number, call, operation.stream, FAILED);
                continue;
            };
            let target = match operation.stream {
                stream if stream <= CU_STREAM_LEGACY => {
                    Target::default_of(Arc::clone(&communicator.context), stream)
                }
                stream => match self.target(wire::StreamHandle(stream))? {
                    Ok(target) => target,
                    Err(status) => {
                        self.shared.settle(number, call, stream, status);
                        communicator.fail(result::INVALID_ARGUMENT);
                        continue;
                    }
                },
            };
            ready.push(Ready {
                communicator,
                target,
                operation,
            });
        }
        if ready.is_empty() {
            return Ok(());
        }
        let request = (number, call);
        if !self.run_now(request, &ready) {
            self.park_collectives(request, ready);
        }
        Ok(())
    }

    /// Enqueues operations now if the library waits for nobody; whether it did.
    fn run_now(&self, request: Posted, ready: &[Ready]) -> bool {
        let shared = &self.shared;
        let Some(library) = shared.collectives.library() else {
            shared.tell_failure(request, ready);
            return true;
        };
        if library.waits() {
            return false;
        }
        let all = communicators(ready);
        let has_met = ready
            .iter()
            .all(|ready| lock(&ready.communicator.met).contains(&ready.way()));
        let is_clear = |ready: &Ready| shared.is_clear(&ready.target, &ready.communicator.places());
        if !has_met || !ready.iter().all(is_clear) {
            return false;
        }
        let all: SmallVec<[&Communicator; 4]> = all.iter().map(|one| &***one).collect();
        let Some(taken) = try_all(&all) else {
            return false;
        };
        let counts = match shared.admit(&ready[0].target) {
            Admission::Held => return false,
            admission => admission == Admission::Counted,
        };
        let enters = ready[0].target.context.enter(&*self.api) == CUDA_SUCCESS;
        shared.collectives_come(ready);
        let enqueued = enters && enqueue(&**library, ready).is_ok();
        drop(taken);
        if !enqueued {
            shared.tell_failure(request, ready);
        }
        shared.count_launches(request, ready, counts);
        true
    }

    /// Parks operations at the first one's stream, and has the others' streams stand behind that.
    fn park_collectives(&self, request: Posted, ready: Vec<Ready>) {
        let shared = &self.shared;
        let first = ready[0].target.clone();
        let mut others: Vec<Target> = Vec::new();
        let mut after = Places::new();
        for ready in &ready {
            lock(&ready.communicator.met).insert(ready.way());
            after.extend(ready.communicator.places());
            let key = ready.target.key;
            if key != first.key && others.iter().all(|other| other.key != key) {
                after.extend(shared.streams.place(key));
                others.push(ready.target.clone());
            }
        }
        let all: Vec<_> = communicators(&ready).into_iter().cloned().collect();
        let on = first.clone();
        let run = move |shared: &Arc<Shared>| {
            let counts = shared.wait_for_turn(&on);
            shared.run_collectives(request, &ready, counts);
        };
        // A place of its own stream is its order anyway.
        after.retain(|(key, _)| *key != first.key);
        shared.park(&first, after, Box::new(run));
        let own = shared.put_behind(&all, first.key);
        for other in others {
            let behind: Places = own.into_iter().collect();
            shared.park(&other, behind, Box::new(|_| {}));
        }
    }
}
