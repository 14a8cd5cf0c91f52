//! The OpenCL contract over one session: [`Remote`].

#![allow(
    clippy::unnecessary_cast,
    reason = "generated code is the same for every width of scalar"
)]

mod device;
mod event;

mod image;
mod include;
mod kernel;
mod manual;
mod moving;
mod pages;
mod peer;
mod program;
mod rebuild;
mod recipe;
mod svm;
mod transfer;

use std::collections::HashMap;
use std::ffi::{c_char, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use towline_backend::opencl as wire;
use towline_backend::opencl::*;
use towline_transport::Address;
use towline_wire::control::{Purpose, Token};
use towline_wire::facts::Facts;
use towline_wire::snapshot::Snapshot;

use crate::access::Access;
use crate::calls::{Call, Calls};
use crate::dial::{DialError, dial};
use crate::link::Link;
use crate::links::Links;
use crate::meter::Meter;
use crate::state::{Covered, Event};

pub use crate::moved::RebuildError;

include!(concat!(env!("OUT_DIR"), "/opencl_remote.rs"));

/// Initial contents up to this size travel with the creation of a buffer; more of them take a write.
pub const CONTENTS_LIMIT: usize = 32 << 20;

/// High bits of the platforms of a session.
const PLATFORM_BASE: u64 = 0x7c4e << 48;

/// One server's devices through one session.
///
/// Handles are numbers dressed as pointers. Creation, release and enqueueing go one way; what they answer is what can be known here,
/// and a failure that only the server sees comes with the event or the next wait. Each object is released exactly once: reference
/// counts, validation and cached answers are the platform layer's.
///
/// The session may move to another server ([`Remote::rebuild`], or [`Remote::let_move`] for when its server wishes); what it is made of
/// keeps its numbers.
pub struct Remote {
    links: Links,
    calls: Calls,
    /// The link was taken over by another session: ending it is not this one's business any more.
    given_up: AtomicBool,
    snapshot: Snapshot,
    recipes: recipe::Recipes,
    /// Times of events that ended on a server which the session has left.
    times: Mutex<HashMap<u64, Vec<(cl_profiling_info, u64)>>>,
    /// The first part's event of each transfer in several parts, by the event that ends it: for the times when it began.
    first_parts: Mutex<HashMap<u64, u64>>,
    programs: RwLock<HashMap<u64, Arc<Program>>>,
    kernels: RwLock<HashMap<u64, Arc<Mutex<kernel::Kernel>>>>,
    images: Mutex<HashMap<u64, image::Image>>,
    svm: Mutex<svm::Regions>,
    answers: Mutex<HashMap<(u64, u32), Vec<u8>>>,
}

/// What is known of a program.
#[derive(Debug)]
struct Program {
    facts: Mutex<Option<Arc<Facts>>>,
    making: Mutex<recipe::Making>,
    /// Sizes of its binaries that the application has been told since the last build: the smallest, if a server says different ones.
    told_sizes: Mutex<Option<Vec<u64>>>,
}

impl Remote {
    /// Begins a session with the server at `address`.
    pub fn connect(address: &Address, token: Option<Token>) -> Result<Self, DialError> {
        Self::connect_as(address, &Access::from_environment(address, token)?)
    }

    /// As [`Self::connect`], with these credentials.
    pub fn connect_as(address: &Address, access: &Access) -> Result<Self, DialError> {
        let dialled = dial(address, access, Purpose::Session, crate::link::OPENCL)?;
        let snapshot = decode_snapshot(dialled.link.name(), &dialled.snapshot)?;
        let links = Links::new(dialled.link, Some(dialled.control));
        Ok(Self::over(links, snapshot))
    }

    fn over(links: Links, snapshot: Snapshot) -> Self {
        Self {
            links,
            calls: Calls::default(),
            given_up: AtomicBool::new(false),
            snapshot,
            recipes: recipe::Recipes::default(),
            times: Mutex::default(),
            first_parts: Mutex::default(),
            programs: RwLock::default(),
            kernels: RwLock::default(),
            images: Mutex::default(),
            svm: Mutex::default(),
            answers: Mutex::default(),
        }
    }

    /// A session over lanes that are already open; for tests and tools that have no supervisor.
    pub fn over_lanes(
        name: &str,
        command: Arc<dyn towline_transport::Connection>,
        payload: Vec<Arc<dyn towline_transport::Connection>>,
        snapshot: &[u8],
        chunk_bytes: u64,
    ) -> Result<Self, DialError> {
        let snapshot = decode_snapshot(name, snapshot)?;
        let link = Link::start(name, command, payload, chunk_bytes, crate::link::OPENCL)
            .map_err(DialError::Threads)?;
        Ok(Self::over(Links::new(link, None), snapshot))
    }

    /// As with a control connection: when a lane breaks, the server has a moment to say why on another way. For tests of sessions
    /// without one.
    pub fn expect_explanation(&self) {
        self.link().expect_explanation();
    }

    /// The platforms of the server's vendors, with the devices of each.
    pub fn platforms(&self) -> Vec<(cl_platform_id, Vec<cl_device_id>)> {
        (0..self.snapshot.platforms.len() as u32)
            .map(|index| {
                let platform = wire::PlatformHandle(PLATFORM_BASE | u64::from(index + 1)).to_raw();
                let devices = self
                    .snapshot
                    .devices
                    .iter()
                    .filter(|device| device.platform == index);
                (
                    platform,
                    devices
                        .map(|device| wire::DeviceHandle(device.handle).to_raw())
                        .collect(),
                )
            })
            .collect()
    }

    /// What the session has done so far.
    pub fn meter(&self) -> &Meter {
        &self.link().meter
    }

    /// How long the server's lane has worked, and how long its device was waited for, in this session.
    pub fn usage(&self) -> Result<(std::time::Duration, std::time::Duration), cl_int> {
        let _call = self.enter();
        let reply = self.link().measure(&wire::Usage { token: 0 })?;
        let reply = wire::UsageReply::decode(&reply.body).map_err(|_| self.malformed())?;
        let time = |ns: Option<u64>| std::time::Duration::from_nanos(ns.unwrap_or_default());
        Ok((time(reply.lane_ns), time(reply.device_ns)))
    }

    /// The server.
    pub fn server(&self) -> &str {
        self.link().name()
    }

    /// How long a message takes to the server and back now; `None` when the session is over.
    pub fn round_trip(&self) -> Option<std::time::Duration> {
        let _call = self.enter();
        // The first warms both sides up.
        let ping = || {
            let started = std::time::Instant::now();
            let answered = self.link().measure(&wire::Ping { token: 0 });
            answered.ok().map(|_| started.elapsed())
        };
        let (first, second) = (ping()?, ping()?);
        Some(first.min(second))
    }

    /// Why the session is over, when it is.
    pub fn lost(&self) -> Option<&str> {
        self.link().lost()
    }

    /// Says goodbye at the process's end, see [`crate::farewell`]; what is still called may find the session lost.
    pub fn leave(&self) {
        self.link().leave(&wire::Goodbye { reason: 0 });
    }

    /// Ends the session in good order; later calls find it lost.
    pub fn close(&self) {
        if self.link().lost().is_none() {
            let _ = self.link().post(&wire::Goodbye { reason: 0 });
            self.link().flush();
        }
        self.link().end("the client closed the session".into());
    }

    /// The lanes that the session has now.
    #[inline]
    fn link(&self) -> &Arc<Link> {
        &self.links.last().link
    }

    /// Held by a call from its first line to its last, so that the session does not move meanwhile.
    #[inline]
    fn enter(&self) -> Call<'_> {
        self.calls.enter()
    }

    fn mint(&self, tag: u8) -> u64 {
        self.link().mint(tag)
    }

    /// A new event of a command on the queue `origin`, or of the application in the context `origin`.
    fn mint_event(&self, origin: u64) -> wire::EventHandle {
        let link = self.link();
        let event = link.mint(wire::EventHandle::TAG);
        let known = Event {
            origin,
            covered: self.reads_before(origin),
            ..Event::default()
        };
        link.state().events.insert(event, known);
        wire::EventHandle(event)
    }

    /// Reads before what is enqueued on a queue now, if it keeps their order.
    fn reads_before(&self, queue: u64) -> Covered {
        let open = self.link().state().reads_of(queue, (0, 0));
        if open.is_empty() {
            return open;
        }
        let properties = self.recipes.with(queue, rebuild::queue_properties);
        let out_of_order = CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE;
        match properties.is_some_and(|properties| properties & out_of_order == 0) {
            true => open,
            false => Covered::new(),
        }
    }

    /// Notes how an object was made.
    fn made<'a, R: Request<'a>>(&self, id: u64, request: &R) {
        self.recipes.made(id, recipe::Recipe::new(request));
    }

    /// An object has ended: what it takes to make it is forgotten.
    fn ended(&self, id: u64) {
        if recipe::tag(id) == wire::ContextHandle::TAG {
            self.link().state().listeners.remove(&id);
        }
        self.recipes.ended(id);
    }

    #[inline]
    fn post<'a, R: Request<'a>>(&self, request: &R) -> Result<(), cl_int> {
        self.link().post(request).map(|_| ())
    }

    /// Waits for an answer; `Err` is the API's status.
    fn call<'a, R: Request<'a>>(&self, request: &R) -> Result<Vec<u8>, cl_int> {
        self.call_for(R::NAME, request)
    }

    fn call_for<'a, R: Request<'a>>(
        &self,
        call: &'static str,
        request: &R,
    ) -> Result<Vec<u8>, cl_int> {
        let reply = self.link().ask(call, request)?;
        if reply.status < 0 {
            Err(reply.status)
        } else {
            Ok(reply.body)
        }
    }

    /// A reply that does not decode ends the session.
    fn malformed(&self) -> cl_int {
        self.link()
            .fail("the server sent a reply that does not decode".into());
        self.link().lost_status()
    }

    fn program(&self, program: cl_program) -> Option<Arc<Program>> {
        self.programs
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&(program.addr() as u64))
            .cloned()
    }

    fn new_program(&self, id: u64, facts: Option<Arc<Facts>>, origin: recipe::Origin) {
        let program = Arc::new(Program {
            facts: Mutex::new(facts),
            making: Mutex::new(recipe::Making::new(origin)),
            told_sizes: Mutex::default(),
        });
        self.programs
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(id, program);
    }
}

impl Program {
    /// The application learns what room its binaries take.
    fn tell_sizes(&self, sizes: impl Iterator<Item = u64>) {
        let mut told = lock(&self.told_sizes);
        *told = Some(match told.take() {
            None => sizes.collect(),
            Some(before) => before
                .into_iter()
                .zip(sizes)
                .map(|(one, other)| one.min(other))
                .collect(),
        });
    }

    /// A build changes them.
    fn forget_sizes(&self) {
        *lock(&self.told_sizes) = None;
    }

    /// Whether binaries take no more room than the application was told.
    fn fit(&self, binaries: &[Vec<u8>]) -> bool {
        let told = lock(&self.told_sizes);
        let told = told.as_deref().unwrap_or_default();
        binaries.len() <= told.len()
            && binaries
                .iter()
                .zip(told)
                .all(|(binary, size)| binary.len() as u64 <= *size)
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        if !self.given_up.load(Ordering::Relaxed) {
            self.close();
        }
    }
}

fn decode_snapshot(server: &str, bytes: &[u8]) -> Result<Snapshot, DialError> {
    Snapshot::decode(bytes).map_err(|source| DialError::Snapshot {
        server: server.into(),
        source,
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes a status where a creating call wants it.
///
/// # Safety
/// `target` is NULL or writable.
unsafe fn tell(target: *mut cl_int, status: cl_int) {
    // SAFETY: the caller's contract.
    unsafe { crate::raw::fill(target, 1, [status].into_iter()) };
}

/// Answers an info query from bytes: size rules as the API has them.
///
/// # Safety
/// `value` is NULL or writable for `size` bytes, `actual` is NULL or writable.
unsafe fn answer(bytes: &[u8], size: usize, value: *mut c_void, actual: *mut usize) -> cl_int {
    if !value.is_null() && size < bytes.len() {
        return CL_INVALID_VALUE;
    }
    // SAFETY: the caller's contract; the answer fits.
    unsafe { crate::raw::fill(value.cast::<u8>(), bytes.len(), bytes.iter().copied()) };
    // SAFETY: the caller's contract.
    unsafe { crate::raw::fill(actual, 1, [bytes.len()].into_iter()) };
    CL_SUCCESS
}
