//! The driver: sessions, the devices that they bring, and whose a call is.

use std::collections::HashMap;
use std::ffi::{c_char, c_void};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

use towline_backend::cuda as wire;
use towline_backend::cuda::*;
use towline_client::cuda::{Actor, Answer, Session};
use towline_client::environment;
use towline_client::raw::Out;

use crate::addresses::Addresses;
use crate::array::Arrays;

use crate::context::Context;

use crate::device::Device;

use crate::event::Recorded;
use crate::graph::Graphs;
use crate::image::Functions;
use crate::ipc::Sharing;
use crate::link::Links;

use crate::kept::Kept;
use crate::memory::Ranges;
use crate::mirror::Mirrors;
use crate::nccl::Communicators;
use crate::old_launch::OldLaunches;
use crate::peer::Peers;
use crate::pinned::Pins;
use crate::pool::Pools;

use crate::stream::{HostCalls, Stream};
use crate::stream_attributes::StreamAttributes;
use crate::tensor::Tensors;
use crate::texture::Textures;
use crate::thread::OwnStream;
use crate::virtual_memory::VirtualMemory;

include!(concat!(env!("OUT_DIR"), "/cuda_driver.rs"));

/// The devices of every server that the environment names, and all that lives on them.
#[derive(Default)]
pub struct Driver {
    started: OnceLock<Result<Started, CUresult>>,
    initialised: AtomicBool,
    pub(crate) contexts: RwLock<HashMap<u64, Arc<Context>>>,
    pub(crate) streams: RwLock<HashMap<u64, Arc<Stream>>>,
    pub(crate) stream_attributes: StreamAttributes,
    pub(crate) events: RwLock<HashMap<u64, Arc<Recorded>>>,
    pub(crate) functions: RwLock<Functions>,
    pub(crate) links: Links,
    pub(crate) old_launches: OldLaunches,
    pub(crate) sharing: Sharing,
    pub(crate) addresses: Addresses,
    pub(crate) memory: RwLock<Ranges>,
    pub(crate) kept_memory: Mutex<Kept>,
    /// Host memory of ours that a server shares.
    pub(crate) pins: Pins,
    pub(crate) mirrors: Mirrors,
    pub(crate) virtual_memory: Mutex<VirtualMemory>,
    pub(crate) pools: Mutex<Pools>,
    pub(crate) arrays: RwLock<Arrays>,
    pub(crate) textures: RwLock<Textures>,
    pub(crate) tensors: Tensors,
    pub(crate) peers: Peers,
    pub(crate) host_calls: HostCalls,
    /// For jobs of ours at a stream's turn: the application's functions may wait for what these let go on.
    pub(crate) own_calls: HostCalls,
    /// Functions of the host that streams and graphs are to come to, or that run.
    pub(crate) functions_due: Arc<AtomicUsize>,
    pub(crate) communicators: Communicators,
    pub(crate) graphs: Mutex<Graphs>,
    /// Captures that are under way.
    pub(crate) capturing: AtomicUsize,
    /// Values that libraries keep with a context, by context and key, with what ends each.
    pub(crate) kept: Mutex<HashMap<(u64, usize), usize>>,
    /// The context that a thread made current last.
    pub(crate) latest: AtomicU64,
    /// More than one context has lived at once.
    pub(crate) several_live: AtomicBool,
    /// Ids of contexts, streams, allocations: unlike handles, never used again.
    next_id: AtomicU64,
}

/// What there is once the servers have answered.
pub(crate) struct Started {
    pub(crate) sessions: Vec<Arc<Session>>,
    /// Each session's server's place among those that are named.
    places: Vec<u16>,
    /// The devices that the program sees, chosen when it initialises the driver.
    devices: OnceLock<Vec<Device>>,
    /// The lowest of the servers'.
    pub(crate) version: i32,
    /// Every device is served by NVIDIA's own driver.
    pub(crate) genuine: bool,
}

/// A driver that is stored there was leaked.
static PROCESS: AtomicPtr<Driver> = AtomicPtr::new(std::ptr::null_mut());

fn existing() -> Option<&'static Driver> {
    // SAFETY: it lives as long as the process.
    unsafe { PROCESS.load(Ordering::Acquire).as_ref() }
}

/// Makes a driver the process's, unless there is one.
fn enter(driver: Box<Driver>) -> Result<&'static Driver, Box<Driver>> {
    let place = Box::into_raw(driver);
    let none = std::ptr::null_mut();
    match PROCESS.compare_exchange(none, place, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: it lives as long as the process.
        Ok(_) => Ok(unsafe { &*place }),
        // SAFETY: nobody else has seen it.
        Err(_) => Err(unsafe { Box::from_raw(place) }),
    }
}

/// The process's driver.
#[inline]
pub(crate) fn process() -> &'static Driver {
    existing().unwrap_or_else(make)
}

#[cold]
fn make() -> &'static Driver {
    enter(Box::default()).unwrap_or_else(|_| process())
}

/// The process's sessions, if it has asked for any.
pub(crate) fn sessions() -> Vec<Arc<Session>> {
    let started = existing().and_then(|driver| driver.started.get());
    let started = started.and_then(|started| started.as_ref().ok());
    started.map_or(Vec::new(), |started| started.sessions.clone())
}

/// In a child after fork: whether its parent used the driver, which the child then cannot. Where the parent had only asked for the
/// version, the child begins anew. Does nothing that a child after fork must not.
pub(crate) fn forked() -> bool {
    let used = existing().is_some_and(|driver| driver.initialised.load(Ordering::Relaxed));
    if !used {
        PROCESS.store(std::ptr::null_mut(), Ordering::Release);
    }
    used
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn read<T>(lock: &RwLock<T>) -> std::sync::RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn write<T>(lock: &RwLock<T>) -> std::sync::RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

/// The status of an outcome.
pub(crate) fn status(outcome: Result<(), CUresult>) -> CUresult {
    outcome.err().unwrap_or(CUDA_SUCCESS)
}

/// Most objects of a kind. The server's table has room for all kinds together, and ends the session when it is full.
const OBJECT_LIMIT: usize = 1 << 20;

/// Refuses another object where there are so many of its kind.
pub(crate) fn room_beside(objects: usize) -> Result<(), CUresult> {
    match objects < OBJECT_LIMIT {
        true => Ok(()),
        false => Err(CUDA_ERROR_OUT_OF_MEMORY),
    }
}

/// Writes an outcome to where the caller wants it.
pub(crate) fn tell<T>(target: Out<T>, outcome: Result<T, CUresult>) -> CUresult {
    if !target.wanted() {
        return CUDA_ERROR_INVALID_VALUE;
    }
    status(outcome.map(|value| target.set(value)))
}

impl Driver {
    /// A driver over these sessions, of whose devices `visible` shows some, as `CUDA_VISIBLE_DEVICES` would.
    pub fn over(sessions: Vec<Arc<Session>>, visible: Option<&str>) -> Self {
        let driver = Self {
            addresses: Addresses::shared(),
            ..Self::default()
        };
        let started = start((0..).zip(sessions).collect()).inspect(|started| {
            let _ = started.devices.set(started.choose(visible, false));
        });
        let _ = driver.started.set(started);
        driver
    }

    /// Makes this the driver behind the exported functions, and hands it back where there is one already. For tests without a server of
    /// their own.
    pub fn into_process(self) -> Result<&'static Self, Box<Self>> {
        enter(Box::new(self))
    }

    /// The sessions, connected now if they have not been.
    pub(crate) fn started(&self) -> Result<&Started, CUresult> {
        self.started
            .get_or_init(from_environment)
            .as_ref()
            .map_err(|status| *status)
    }

    /// As [`Self::started`], once the application has initialised the driver.
    pub(crate) fn ready(&self) -> Result<&Started, CUresult> {
        if !self.initialised.load(Ordering::Relaxed) {
            return Err(CUDA_ERROR_NOT_INITIALIZED);
        }
        self.started()
    }

    pub(crate) fn initialise(&self) -> Result<(), CUresult> {
        if self.started()?.devices().is_empty() {
            return Err(CUDA_ERROR_NO_DEVICE);
        }
        self.initialised.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// An id that nothing has had in this process.
    pub(crate) fn new_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn context(&self, number: u64) -> Result<Arc<Context>, CUresult> {
        let found = read(&self.contexts).get(&number).cloned();
        found.ok_or(CUDA_ERROR_INVALID_CONTEXT)
    }

    /// The calling thread's context.
    pub(crate) fn current(&self) -> Result<Arc<Context>, CUresult> {
        self.ready()?;
        match crate::thread::current() {
            0 => Err(CUDA_ERROR_INVALID_CONTEXT),
            number => self
                .context(number)
                .map_err(|_| CUDA_ERROR_CONTEXT_IS_DESTROYED),
        }
    }

    /// For what belongs to no context, and needs a server nevertheless: the thread's context, the one that is in use, or the first
    /// device's. That the thread's has ended does not matter either (seen with driver 580.159).
    pub(crate) fn session_for_any(&self) -> Result<Acting<'_>, CUresult> {
        let context = match self.current() {
            Err(CUDA_ERROR_INVALID_CONTEXT | CUDA_ERROR_CONTEXT_IS_DESTROYED) => {
                self.context_in_use(None)?
            }
            current => current?,
        };
        self.acting_in(context)
    }

    /// The context that a thread made current last, or the first device's: of one server, or of any.
    pub(crate) fn context_in_use(&self, session: Option<u8>) -> Result<Arc<Context>, CUresult> {
        let fits = |index: u8| session.is_none_or(|session| session == index);
        let latest = self.context(self.latest.load(Ordering::Relaxed));
        if let Some(context) = latest.ok().filter(|context| fits(context.session)) {
            return Ok(context);
        }
        let devices = self.ready()?.devices();
        let device = devices.iter().position(|device| fits(device.session));
        self.primary(device.ok_or(CUDA_ERROR_INVALID_HANDLE)? as CUdevice)
    }

    /// The session of the calling thread's context, or of the session that minted `handle` where that is another.
    ///
    /// What a handle names has a context of its own: calls with one need none on the thread.
    pub(crate) fn session_for(&self, handle: u64) -> Result<Acting<'_>, CUresult> {
        let context = match self.current() {
            Err(CUDA_ERROR_INVALID_CONTEXT) if handle > 2 => {
                self.context_in_use(Some(Session::index_of(handle)))?
            }
            current => current?,
        };
        let index = Session::index_of(handle);
        // 0 to 2 are the default streams, which belong to the context.
        if handle > 2 && index != context.session {
            let sessions = &self.started()?.sessions;
            let session = sessions
                .get(usize::from(index))
                .ok_or(CUDA_ERROR_INVALID_HANDLE)?;
            return Ok(Acting {
                session,
                actor: actor(0),
                context,
            });
        }
        self.acting_in(context)
    }

    /// A call in a context.
    pub(crate) fn acting_in(&self, context: Arc<Context>) -> Result<Acting<'_>, CUresult> {
        let sessions = &self.started()?.sessions;
        let session = sessions
            .get(usize::from(context.session))
            .ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
        if context.ensure(session)? {
            self.note_live();
        }
        Ok(Acting {
            session,
            actor: Actor {
                sleeps: context.sleeps(),
                ..actor(context.number)
            },
            context,
        })
    }
}

/// Who acts: the calling thread, in a context.
pub(crate) fn actor(context: u64) -> Actor {
    crate::thread::with(|thread| Actor {
        thread: thread.number,
        context,
        capture_mode: thread.capture_mode.get(),
        sleeps: false,
    })
}

/// A call on its way: its session, and in whose name it acts.
pub(crate) struct Acting<'a> {
    pub(crate) session: &'a Arc<Session>,
    pub(crate) actor: Actor,
    pub(crate) context: Arc<Context>,
}

impl Acting<'_> {
    pub(crate) fn mint(&self, tag: u8) -> u64 {
        self.session.mint(tag)
    }

    #[inline]
    pub(crate) fn post<'a, R: Request<'a>>(&self, request: &R) -> Result<(), CUresult> {
        self.session.post(self.actor, request)
    }

    pub(crate) fn call<'a, R: Request<'a>>(&self, request: &R) -> Result<Vec<u8>, CUresult> {
        self.call_for(R::NAME, request)
    }

    pub(crate) fn call_for<'a, R: Request<'a>>(
        &self,
        call: &'static str,
        request: &R,
    ) -> Result<Vec<u8>, CUresult> {
        self.session.call(self.actor, call, request)
    }

    /// Waits for a stream of the context, or for all.
    pub(crate) fn synchronise_for<'a, R: Request<'a>>(
        &self,
        call: &'static str,
        request: &R,
        stream: Option<u64>,
    ) -> Result<(), CUresult> {
        self.session.synchronise(self.actor, call, request, stream)
    }

    pub(crate) fn ask<'a, R: Request<'a>>(
        &self,
        call: &'static str,
        request: &R,
    ) -> Result<Answer, CUresult> {
        self.session.ask(self.actor, call, request)
    }

    pub(crate) fn malformed(&self) -> CUresult {
        self.session.malformed()
    }

    /// The number of a stream on the server: one of both names of the default stream. The thread's own is made when it is first used.
    pub(crate) fn stream(&self, stream: CUstream) -> wire::StreamHandle {
        match stream.addr() as u64 {
            0 | 1 => wire::StreamHandle(0),
            2 => wire::StreamHandle(self.own_stream()),
            number => wire::StreamHandle(number),
        }
    }

    fn own_stream(&self) -> u64 {
        let (context, id) = (self.context.number, self.context.id);
        let known = crate::thread::with(|thread| thread.own_streams.borrow().get(&id).copied());
        if let Some(own) = known {
            return own.stream;
        }
        let number = self.mint(wire::StreamHandle::TAG);
        let request = wire::StreamCreate {
            phStream: wire::StreamHandle(number),
            Flags: 0,
        };
        // What stands in the way of posting it stands in the way of what is posted to it too.
        let _ = self.post(&request);
        let own = OwnStream {
            context,
            stream: number,
        };
        crate::thread::with(|thread| thread.own_streams.borrow_mut().insert(id, own));
        number
    }
}

fn from_environment() -> Result<Started, CUresult> {
    let mut sessions = Vec::new();
    let mut failures = Vec::new();
    for (place, session) in (0..).zip(environment::cuda_sessions()) {
        match session {
            Ok(session) => sessions.push((place, session)),
            Err(unreachable) => {
                let mut text = unreachable.to_string();
                let mut source = std::error::Error::source(&unreachable);
                while let Some(cause) = source.and_then(std::error::Error::source) {
                    text = format!("{text}: {cause}");
                    source = Some(cause);
                }
                failures.push(text);
            }
        }
    }
    match (sessions.is_empty(), failures.is_empty()) {
        (true, true) => log::error!(
            "no CUDA device: no server is named; run the program with `towline run --server HOST`, or set {}",
            environment::SERVERS
        ),
        (true, false) => log::error!("no CUDA device: {}", failures.join("; ")),
        (false, _) => failures.iter().for_each(|text| log::warn!("{text}")),
    }
    let started = start(sessions)?;
    crate::report::watch(&started.sessions);
    crate::moving::let_sessions_move(process(), &started.sessions);
    towline_client::cuda::listen(crate::messages::hear);
    Ok(started)
}

/// Begins with these sessions, each with its server's place among those that are named.
fn start(sessions: Vec<(u16, Arc<Session>)>) -> Result<Started, CUresult> {
    for (index, (_, session)) in sessions.iter().enumerate() {
        session.number_as(u8::try_from(index).map_err(|_| CUDA_ERROR_INVALID_DEVICE)?);
    }
    if sessions.is_empty() {
        return Err(CUDA_ERROR_NO_DEVICE);
    }
    let (places, sessions): (_, Vec<Arc<Session>>) = sessions.into_iter().unzip();
    let snapshots = || sessions.iter().map(|session| session.snapshot());
    Ok(Started {
        version: snapshots()
            .map(|snapshot| snapshot.driver_version)
            .min()
            .unwrap_or(0),
        genuine: snapshots().all(|snapshot| snapshot.genuine),
        devices: OnceLock::new(),
        places,
        sessions,
    })
}

impl Started {
    /// The devices that the program sees; as natively, variables of its environment count as they are when it initialises the driver.
    pub(crate) fn devices(&self) -> &[Device] {
        self.devices.get_or_init(|| {
            let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
            let order = std::env::var("CUDA_DEVICE_ORDER");
            let by_bus = order.is_ok_and(|order| order.eq_ignore_ascii_case("PCI_BUS_ID"));
            self.choose(visible.as_deref(), by_bus)
        })
    }

    /// The devices that `CUDA_VISIBLE_DEVICES` shows, of all in their servers' order, or by their place on the bus of each.
    fn choose(&self, visible: Option<&str>, by_bus: bool) -> Vec<Device> {
        let mut all = Vec::new();
        for ((index, session), place) in (0..).zip(&self.sessions).zip(&self.places) {
            let first = all.len();
            for (ordinal, facts) in (0..).zip(&session.snapshot().devices) {
                all.push(Device::new(index, *place, ordinal, facts, session));
            }
            if by_bus {
                all[first..].sort_by_key(Device::place);
            }
        }
        let uuids: Vec<[u8; 16]> = all.iter().map(|device| device.facts.uuid).collect();
        let Some(list) = visible else {
            return all;
        };
        let mut all: Vec<Option<Device>> = all.into_iter().map(Some).collect();
        let chosen = crate::device::visible(list, &uuids).into_iter();
        chosen
            .filter_map(|index| all.get_mut(index)?.take())
            .collect()
    }
}
