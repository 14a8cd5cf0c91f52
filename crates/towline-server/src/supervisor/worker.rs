//! One worker process, from start to reaping.
//!
//! A thread per worker reads what it says until the channel ends, then kills what is left, reaps it and reports how it
//! ended. A worker that does not end in time is killed by the thread that waits for it: what a worker says may hold its own
//! reading thread up.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{FileType, fstat};
use towline_sys::SysError;
use towline_sys::channel::{Channel, Received};
use towline_sys::pin::pin_to_peer;
use towline_sys::process::{Exit, Killer, WorkerProcess};
use towline_transport::shm::{is_memory, put_away};
use towline_wire::control::limits::{SERVER_MESSAGE_BYTES, SNAPSHOT_BYTES};
use towline_wire::control::{AttachPreamble, LaneKey};
use towline_wire::control::{SHOWN_TEXT, printable};

use super::ending::{Cause, Ending};
use super::folder::WorkerHome;
use super::job::{Bonds, Fellow};
use super::output::Label;
use super::session::{LaneAccount, Place};
use super::swap::SwapSeat;
use super::tenant::{MemoryShare, Seat, Tenant};
use super::turns::TurnSeat;
use super::{WORKER_END_LIMIT, lock, random};
use towline_worker::{Bond, Images, Offer, Offers, Reserved, SwapRequest, Token, Turn};

use crate::worker::process::{ENGINE_ERROR_CODE, SessionParameters, Statistics};
use crate::worker::protocol::{self, ErrorKind, FromWorker, Secret, ToWorker};

/// The signal of the kernel's killer where memory has run out.
const KILL: i32 = rustix::process::Signal::KILL.as_raw();

/// What becomes of a worker.
pub(super) trait WorkerEvents: Send + Sync {
    /// It can take a session. Its jail lacks what `jail_missing` says.
    fn ready(&self, worker: &Arc<Worker>, jail_missing: &[String]);
    /// It is gone. `ending` says why, unless it was asked to end or had done its work.
    fn ended(&self, worker: &Arc<Worker>, ending: Option<Ending>);
}

/// Has a session give way whose client is cut off, one of the same tenant or any: whether one did. May wait.
pub(super) type RoomMaker = Arc<dyn Fn(u64, bool) -> bool + Send + Sync>;

/// Most requests of a worker for room at once.
const ROOMS: u32 = 4;
/// The error of a worker that says nothing to a request to give way.
pub(super) const NO_ANSWER: &str = "its worker does not answer";

/// A worker process.
pub(super) struct Worker {
    number: u64,
    pid: u32,
    killer: Killer,
    /// Its user and group, where the server has given it some.
    user: Option<(u32, u32)>,
    /// Its name in the log.
    label: Arc<Label>,
    channel: Channel,
    offers: Arc<Offers>,
    images: Arc<Images>,
    /// Connections that it is passed lead nowhere else.
    pins_lanes: bool,
    /// Those of its job's sessions.
    bonds: Option<Arc<Bonds>>,
    snapshot: OnceLock<Vec<u8>>,
    started: Instant,
    /// Whether the kernel counts its processes apart from others'.
    counts_processes: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// We asked it to end.
    ending: bool,
    /// It did not, and was killed: nothing more is heard of it.
    killed: bool,
    reaped: bool,
    statistics: Statistics,
    statistics_asked: u64,
    statistics_answered: u64,
    questions_asked: u64,
    /// Answers that have come, by request.
    answers: HashMap<u64, Vec<u8>>,
    /// Where it accounts for the encrypted lanes of its session.
    lanes: Option<Arc<LaneAccount>>,
    /// The tenant of its session, whose use it counts.
    tenant: Option<Arc<Tenant>>,
    /// Its session's account of the tenant's memory.
    memory: Option<MemoryShare>,
    /// Its session's place among those of the tenant, and of the server, once it alone holds them.
    kept: Option<(Seat, Place)>,
    /// Its session's turns on devices.
    turns: Option<Arc<TurnSeat>>,
    /// Has another session give way.
    rooms: Option<RoomMaker>,
    /// For so many requests at the moment.
    rooms_asked: u32,
    /// Its session's place among those that give way.
    swap: Option<Arc<SwapSeat>>,
    moves_asked: u64,
    /// Answers to requests to give way.
    moves: HashMap<u64, Result<u64, String>>,
    /// What the worker said about its end.
    last_words: Option<(String, ErrorKind)>,
}

/// Whether other sessions may be given a descriptor: a file, a device's node or something anonymous. By a socket, a session would reach
/// networks that it is kept from.
fn may_be_shared(descriptor: &OwnedFd) -> bool {
    let kind = fstat(descriptor).map(|stat| FileType::from_raw_mode(stat.st_mode));
    let file = [FileType::RegularFile, FileType::CharacterDevice];
    // Anonymous files have no type.
    kind.is_ok_and(|kind| kind == FileType::Unknown || file.contains(&kind))
}

/// The descriptor that came with a message, where it takes one. Another is closed where nobody waits for that.
fn fitting(
    message: &FromWorker,
    descriptor: Option<OwnedFd>,
) -> Result<Option<OwnedFd>, &'static str> {
    let fits = |descriptor: &OwnedFd| match message {
        FromWorker::Offer { .. } => may_be_shared(descriptor),
        FromWorker::KeepImage { .. } => is_memory(descriptor),
        _ => false,
    };
    match descriptor {
        Some(descriptor) if !fits(&descriptor) => {
            put_away(descriptor);
            Err("it offers something that is no memory")
        }
        fitting => Ok(fitting),
    }
}

impl Fellow for Worker {
    fn lose(&self, bond: Bond) {
        self.answer(&ToWorker::Lost { bond }, None);
    }
}

impl Worker {
    /// A worker that was just started. [`watch`](Self::watch) it.
    /// Its session shares with others by offers, images that all of them bring, and the bonds of its job.
    pub(super) fn new(
        number: u64,
        process: &WorkerProcess,
        user: Option<(u32, u32)>,
        channel: Channel,
        (offers, images, bonds): (Arc<Offers>, Arc<Images>, Option<Arc<Bonds>>),
        pins_lanes: bool,
    ) -> Arc<Self> {
        Arc::new(Self {
            number,
            pid: process.id(),
            killer: process.killer(),
            user,
            label: Label::new(process.id()),
            channel,
            offers,
            images,
            pins_lanes,
            bonds,
            snapshot: OnceLock::new(),
            started: Instant::now(),
            counts_processes: AtomicBool::new(false),
            state: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// Tells it how to start, and has a thread follow it from now on to its end. `events` hears what becomes of it.
    pub(super) fn watch(
        self: &Arc<Self>,
        process: WorkerProcess,
        start: &ToWorker,
        home: WorkerHome,
        events: Arc<dyn WorkerEvents>,
    ) -> Result<(), SysError> {
        // If it died at once, the thread finds out.
        let _ = self.channel.send_now(&protocol::encode(start), None);
        let worker = Arc::clone(self);
        super::spawn("worker", move || {
            let broken = worker.read(&*events);
            worker.finish(process, broken, home, &*events);
        })?;
        Ok(())
    }

    /// Its number among all workers of this supervisor. Never used twice, unlike its process id.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// Time since it was started.
    pub(super) fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// Its user and group, where the server has given it some.
    pub(super) fn user(&self) -> Option<(u32, u32)> {
        self.user
    }

    /// Its name in the log.
    pub(super) fn label(&self) -> Arc<Label> {
        Arc::clone(&self.label)
    }

    /// The devices it found. Empty before it is ready.
    pub(super) fn snapshot(&self) -> &[u8] {
        self.snapshot.get().map_or(&[], Vec::as_slice)
    }

    /// The offers of its session to others.
    pub(super) fn offered(&self) -> u64 {
        self.offers.count_of(self.number) as u64
    }

    /// Whether the kernel counts its processes apart from others'.
    pub(super) fn counts_processes(&self) -> bool {
        self.counts_processes.load(Ordering::Relaxed)
    }

    /// Gives it a session of a tenant, whose lanes it has to account for where they are encrypted, and the folder of the tenant's
    /// compiled kernels.
    pub(super) fn assign(
        &self,
        parameters: SessionParameters,
        encrypted: Option<(&LaneKey, Arc<LaneAccount>)>,
        tenant: &Arc<Tenant>,
        kernels: Option<OwnedFd>,
        (rooms, turns, swap): (RoomMaker, Option<TurnSeat>, Option<Arc<SwapSeat>>),
    ) -> Result<(), SysError> {
        self.label.set_session(parameters.session_id);
        self.offers.join(self.number, tenant.number());
        let memory = tenant.share_memory(parameters.quota.device_memory_bytes);
        let reserves_memory = memory.is_some();
        let mut state = lock(&self.state);
        state.memory = memory;
        state.rooms = Some(rooms);
        let scheduled_devices = turns.as_ref().map_or(0, TurnSeat::devices);
        state.turns = turns.map(Arc::new);
        let swaps = swap.is_some();
        state.swap = swap;
        state.tenant = Some(Arc::clone(tenant));
        drop(state);
        let lane_key = encrypted.map(|(key, lanes)| {
            lock(&self.state).lanes = Some(lanes);
            Secret::from(key)
        });
        let message = ToWorker::Assign {
            parameters,
            lane_key,
            reserves_memory,
            scheduled_devices,
            swaps,
        };
        let kernels = kernels.as_ref().map(AsFd::as_fd);
        self.channel.send_now(&protocol::encode(&message), kernels)
    }

    /// Answers a worker that lacks memory, once another session has given way, if one does. A few requests at a time are looked after: of its
    /// lane, and of threads that allocate from pools.
    fn make_room(self: &Arc<Self>, request: u64, lacking: u64, of_tenant: bool) {
        let refuse = || {
            let made = false;
            self.answer(&ToWorker::RoomMade { request, made }, None);
        };
        let mut state = lock(&self.state);
        let rooms = state.rooms.clone().filter(|_| state.rooms_asked < ROOMS);
        state.rooms_asked += u32::from(rooms.is_some());
        drop(state);
        let Some(rooms) = rooms else {
            return refuse();
        };
        let worker = Arc::clone(self);
        let started = super::spawn("room", move || {
            let made = rooms(lacking, of_tenant);
            lock(&worker.state).rooms_asked -= 1;
            worker.answer(&ToWorker::RoomMade { request, made }, None);
        });
        if let Err(error) = started {
            log::warn!("no room is made: {error}");
            lock(&self.state).rooms_asked -= 1;
            refuse();
        }
    }

    /// Has its session give its device memory up, and gives the bytes; in the error, why it does not.
    pub(super) fn give_way(
        &self,
        SwapRequest { most, idle }: SwapRequest,
        limit: Duration,
    ) -> Result<u64, String> {
        let mut state = lock(&self.state);
        state.moves_asked += 1;
        let request = state.moves_asked;
        drop(state);
        let message = ToWorker::GiveWay {
            request,
            most,
            idle,
        };
        self.channel
            .send_now(&protocol::encode(&message), None)
            .map_err(|error| format!("{error}: {}", error.source))?;
        let state = lock(&self.state);
        let waited = self.changed.wait_timeout_while(state, limit, |state| {
            !state.moves.contains_key(&request) && !state.reaped
        });
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let given = state.moves.remove(&request);
        // It is asked by one session at a time: what comes later than this has nobody to take it.
        state.moves.clear();
        given.unwrap_or_else(|| Err(NO_ANSWER.to_owned()))
    }

    /// Bytes of device memory that its session has given up for others.
    pub(super) fn swapped_bytes(&self) -> u64 {
        let swap = lock(&self.state).swap.clone();
        swap.map_or(0, |swap| swap.out())
    }

    /// Has a connection of this host's network lead nowhere else, where workers may connect to others in networks of jobs. It may reach such
    /// a worker from any other of its tenant, over a local socket.
    fn keep_apart(&self, descriptor: BorrowedFd<'_>) -> Result<(), SysError> {
        match self.pins_lanes {
            true => pin_to_peer(descriptor),
            false => Ok(()),
        }
    }

    pub(super) fn pass_lane(
        &self,
        preamble: &AttachPreamble,
        scheme: &str,
        descriptor: BorrowedFd<'_>,
    ) -> Result<(), SysError> {
        self.keep_apart(descriptor)?;
        let message = ToWorker::Lane {
            index: preamble.lane_index,
            count: preamble.lane_count,
            again: preamble.again,
            scheme: scheme.to_owned(),
        };
        self.channel
            .send_now(&protocol::encode(&message), Some(descriptor))
    }

    pub(super) fn pass_peer(
        &self,
        lane: u64,
        connects: bool,
        key: Option<&LaneKey>,
        scheme: &str,
        descriptor: BorrowedFd<'_>,
    ) -> Result<(), SysError> {
        self.keep_apart(descriptor)?;
        let message = ToWorker::Peer {
            lane,
            connects,
            key: key.map(Secret::from),
            scheme: scheme.to_owned(),
        };
        self.channel
            .send_now(&protocol::encode(&message), Some(descriptor))
    }

    /// Asks for figures; [`statistics`](Self::statistics) waits for them.
    pub(super) fn ask_statistics(&self) {
        let mut state = lock(&self.state);
        state.statistics_asked += 1;
        let request = state.statistics_asked;
        drop(state);
        // A worker that does not listen keeps its last figures.
        let _ = self.channel.send_now(
            &protocol::encode(&ToWorker::ReportStatistics { request }),
            None,
        );
    }

    /// The newest figures: those asked for, or the last known when they do not come before `deadline`.
    pub(super) fn statistics(&self, deadline: Instant) -> Statistics {
        let state = lock(&self.state);
        let asked = state.statistics_asked;
        let left = deadline.saturating_duration_since(Instant::now());
        let waited = self.changed.wait_timeout_while(state, left, |state| {
            state.statistics_answered < asked && !state.reaped
        });
        waited.unwrap_or_else(PoisonError::into_inner).0.statistics
    }

    /// Has a monitor answer a frame of questions, and gives the frame of answers; in the error, why there is none.
    pub(super) fn ask(&self, questions: &[u8], limit: Duration) -> Result<Vec<u8>, String> {
        let mut state = lock(&self.state);
        state.questions_asked += 1;
        let request = state.questions_asked;
        drop(state);
        let message = ToWorker::Ask {
            request,
            questions: questions.to_vec(),
        };
        self.channel
            .send_now(&protocol::encode(&message), None)
            .map_err(|error| format!("{error}: {}", error.source))?;
        let state = lock(&self.state);
        let waited = self.changed.wait_timeout_while(state, limit, |state| {
            !state.answers.contains_key(&request) && !state.reaped
        });
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        // What comes later than this has nobody to take it; the worker answers in order.
        let answer = state.answers.remove(&request);
        state.answers.retain(|late, _| *late > request);
        answer.ok_or_else(|| "the monitor did not answer in time".into())
    }

    /// Asks it to end. [`wait_reaped`](Self::wait_reaped) makes sure.
    pub(super) fn ask_to_end(&self) {
        lock(&self.state).ending = true;
        if self
            .channel
            .send_now(&protocol::encode(&ToWorker::End), None)
            .is_err()
        {
            self.channel.shutdown();
        }
    }

    /// Waits for the end that [`ask_to_end`](Self::ask_to_end) asked for, kills when it does not come, and returns when
    /// the process is reaped. False when it is not: it hangs in the kernel, and is reaped when it can be.
    pub(super) fn wait_reaped(&self, limit: Duration) -> bool {
        if self.wait_until_reaped(limit) {
            return true;
        }
        lock(&self.state).killed = true;
        self.killer.kill();
        // Wakes the reading thread.
        self.channel.shutdown();
        self.wait_until_reaped(Duration::from_secs(5))
    }

    /// Keeps the places of a session that is over until the process is reaped: what hangs in the kernel holds its devices.
    pub(super) fn keep(&self, seat: Seat, place: Place) {
        let mut state = lock(&self.state);
        if !state.reaped {
            state.kept = Some((seat, place));
        }
    }

    /// Kills it for what `reason` says, unless it has been killed. Does not wait.
    pub(super) fn give_up(&self, reason: &str) {
        let mut state = lock(&self.state);
        if std::mem::replace(&mut state.killed, true) {
            return;
        }
        state.last_words = Some((reason.to_owned(), ErrorKind::Other));
        drop(state);
        self.killer.kill();
        self.channel.shutdown();
    }

    /// Whether it is gone. One that hangs in the kernel may outlive its session.
    pub(super) fn is_reaped(&self) -> bool {
        lock(&self.state).reaped
    }

    fn wait_until_reaped(&self, limit: Duration) -> bool {
        let state = lock(&self.state);
        let waited = self
            .changed
            .wait_timeout_while(state, limit, |state| !state.reaped);
        waited.unwrap_or_else(PoisonError::into_inner).0.reaped
    }

    /// Reads what the worker says until it stops. Says what was wrong if it broke the protocol.
    fn read(self: &Arc<Self>, events: &dyn WorkerEvents) -> Option<String> {
        loop {
            let Received { bytes, descriptor } = match self.channel.recv() {
                Ok(Some(received)) => received,
                Ok(None) => return None,
                Err(error) => return Some(format!("{error}: {}", error.source)),
            };
            // The channel gives all that was said before the kill.
            if lock(&self.state).killed {
                return None;
            }
            let step = match protocol::decode(&bytes) {
                Ok(message) => self.hear(message, descriptor, events),
                // It has the worker's own words in it.
                Err(error) => Err(printable(&error.to_string(), SHOWN_TEXT)),
            };
            if let Err(wrong) = step {
                return Some(wrong);
            }
        }
    }

    fn hear(
        self: &Arc<Self>,
        message: FromWorker,
        descriptor: Option<OwnedFd>,
        events: &dyn WorkerEvents,
    ) -> Result<(), String> {
        let descriptor = fitting(&message, descriptor)?;
        match message {
            FromWorker::Offer {
                request,
                kind,
                bytes,
            } => {
                let offer = Offer {
                    kind,
                    bytes,
                    descriptor,
                };
                let token = random()
                    .ok()
                    .filter(|token| self.offers.offer(self.number, Token(*token), offer));
                self.answer(&ToWorker::Offered { request, token }, None);
            }
            FromWorker::Take { request, token } => {
                let taken = self.offers.take(self.number, Token(token));
                let (taken, descriptor) = ToWorker::taken(request, taken);
                let descriptor = descriptor.as_ref().map(|descriptor| descriptor.as_fd());
                self.answer(&taken, descriptor);
            }
            FromWorker::GiveBack { token, number } => {
                self.offers.give_back(self.number, Token(token), number);
            }
            FromWorker::Withdraw { token } => self.offers.withdraw(self.number, Token(token)),
            FromWorker::ReserveMemory {
                request,
                wanted,
                least,
            } => {
                let mut state = lock(&self.state);
                let memory = state.memory.as_mut();
                let reserved = memory.map(|memory| memory.reserve(wanted, least));
                drop(state);
                let Reserved { granted, left } = reserved.unwrap_or_default();
                let answer = ToWorker::MemoryReserved {
                    request,
                    granted,
                    left,
                };
                self.answer(&answer, None);
            }
            FromWorker::WantTurn { device } => {
                let turns = lock(&self.state).turns.clone();
                if !turns.is_some_and(|turns| turns.want(device)) {
                    return Err("it wants a turn on a device that it has not".into());
                }
            }
            FromWorker::TurnOver { device, number } => {
                let turns = lock(&self.state).turns.clone();
                if !turns.is_some_and(|turns| turns.over(device, number)) {
                    return Err("it hands over a turn on a device that it has not".into());
                }
            }
            FromWorker::Bind { bond } => {
                let bonds = self.bonds.as_ref();
                bonds.ok_or("it has no job, and is bound to nobody")?.bind(
                    self.number,
                    self,
                    bond,
                )?;
            }
            FromWorker::Part { bond } => {
                if let Some(bonds) = &self.bonds {
                    bonds.part(self.number, &bond);
                }
            }
            FromWorker::MakeRoom {
                request,
                lacking,
                of_tenant,
            } => self.make_room(request, lacking, of_tenant),
            FromWorker::GaveWay {
                request,
                freed,
                refusal,
            } => {
                let mut given = match refusal {
                    Some(why) => Err(printable(&why, SHOWN_TEXT)),
                    None => Ok(freed),
                };
                let swap = lock(&self.state).swap.clone();
                // At once, for it may come back next; and late answers count too.
                if let (Ok(freed), Some(swap)) = (&mut given, swap) {
                    *freed = swap.gave(*freed).ok_or("it gives way unasked")?;
                }
                let mut state = lock(&self.state);
                if request == state.moves_asked {
                    state.moves.insert(request, given);
                }
                drop(state);
                self.changed.notify_all();
            }
            FromWorker::SwappedIn => {
                let swap = lock(&self.state).swap.clone();
                swap.ok_or("it is back, and never gave way")?.is_back();
            }
            FromWorker::ReturnMemory { bytes } => {
                let mut state = lock(&self.state);
                let memory = state.memory.as_mut();
                if !memory.is_some_and(|memory| memory.give_back(bytes)) {
                    return Err("it gave back memory that it had not reserved".into());
                }
            }
            FromWorker::FindImage { request, digest } => {
                let image = self.images.find(&digest);
                let image = image.as_ref().map(|image| image.as_fd());
                self.answer(&ToWorker::Image { request }, image);
            }
            FromWorker::KeepImage { digest } => {
                let image = descriptor.ok_or("it keeps an image without one")?;
                if !self.images.keep(&digest, image) {
                    log::debug!("worker {}: an image is not kept", self.pid);
                }
            }
            FromWorker::Ready {
                snapshot_bytes,
                jail_missing,
                counts_processes,
            } => {
                self.counts_processes
                    .store(counts_processes, Ordering::Relaxed);
                let snapshot = self.receive("device snapshot", snapshot_bytes, SNAPSHOT_BYTES)?;
                self.snapshot
                    .set(snapshot)
                    .map_err(|_| "it said twice that it is ready")?;
                let missing = jail_missing.iter();
                let missing: Vec<_> = missing.map(|text| printable(text, SHOWN_TEXT)).collect();
                events.ready(self, &missing);
            }
            FromWorker::Failed { reason } => {
                let words = printable(&reason, SHOWN_TEXT);
                lock(&self.state).last_words = Some((words, ErrorKind::Other));
            }
            FromWorker::Finished {
                error: Some(error),
                kind,
            } => {
                let words = printable(&error, SHOWN_TEXT);
                lock(&self.state).last_words = Some((words, kind));
            }
            FromWorker::Finished { error: None, .. } => {
                log::debug!("worker {}: the engine has finished", self.pid);
            }
            FromWorker::LaneOpened { index, count } => {
                let lanes = lock(&self.state).lanes.clone();
                let lanes = lanes.ok_or("it opened a lane that nobody asked it to account for")?;
                lanes.open(index, count)?;
            }
            FromWorker::Statistics {
                request,
                statistics,
            } => {
                let mut state = lock(&self.state);
                let before = std::mem::replace(&mut state.statistics, statistics);
                if let Some(tenant) = &state.tenant {
                    tenant.count_use(&before, &statistics);
                }
                state.statistics_answered = state.statistics_answered.max(request);
                drop(state);
                self.changed.notify_all();
            }
            FromWorker::Answers {
                request,
                frame_bytes,
            } => {
                let frame = self.receive("answer", frame_bytes, SERVER_MESSAGE_BYTES)?;
                let mut state = lock(&self.state);
                if request > state.questions_asked {
                    return Err("it answered what nobody asked".into());
                }
                state.answers.insert(request, frame);
                drop(state);
                self.changed.notify_all();
            }
        }
        Ok(())
    }

    /// Tells it what its session may do with a device.
    pub(super) fn tell_turn(&self, device: u32, turn: Turn, number: u64) {
        let turn = turn as u8;
        let message = ToWorker::Turn {
            device,
            turn,
            number,
        };
        self.answer(&message, None);
    }

    /// Answers a worker that waits. One that does not read is not waited for.
    fn answer(&self, message: &ToWorker, descriptor: Option<BorrowedFd<'_>>) {
        let sent = self
            .channel
            .send_now(&protocol::encode(message), descriptor);
        if let Err(error) = sent {
            log::debug!("worker {}: {error}: {}", self.pid, error.source);
        }
    }

    /// Receives what was announced.
    fn receive(&self, what: &str, len: usize, limit: usize) -> Result<Vec<u8>, String> {
        if len > limit {
            return Err(format!("its {what} has {len} bytes, more than {limit}"));
        }
        let mut bytes = Vec::with_capacity(len);
        while bytes.len() < len {
            match self.channel.recv() {
                Ok(Some(piece)) => bytes.extend_from_slice(&piece.bytes),
                Ok(None) => return Err(format!("it ended within its {what}")),
                Err(error) => return Err(format!("{error}: {}", error.source)),
            }
        }
        match bytes.len() == len {
            true => Ok(bytes),
            false => Err(format!("its {what} is longer than announced")),
        }
    }

    /// Kills, reaps, cleans up, reports.
    fn finish(
        self: &Arc<Self>,
        process: WorkerProcess,
        broken: Option<String>,
        home: WorkerHome,
        events: &dyn WorkerEvents,
    ) {
        let mut ended = false;
        if let Some(wrong) = &broken {
            log::error!("worker {} broke the protocol: {wrong}", self.pid);
        } else if !lock(&self.state).ending {
            // The channel closes a moment before the process is gone: give it time to leave its own exit status.
            ended = process.wait_ended(WORKER_END_LIMIT);
        }
        let exit = process.kill_and_reap();
        // Descriptors that it sent and nobody has read are closed here, not by the last who knows it.
        self.channel.shutdown();
        while let Ok(Some(unread)) = self.channel.recv() {
            unread.descriptor.into_iter().for_each(put_away);
        }
        drop(home);
        self.label.wait_written(WORKER_END_LIMIT);
        self.offers.end(self.number);
        if let Some(bonds) = &self.bonds {
            bonds.end(self.number);
        }
        let mut state = lock(&self.state);
        // The driver has freed what the process held.
        state.memory = None;
        state.rooms = None;
        let held = (state.turns.take(), state.kept.take(), state.swap.take());
        let crash = |reason: String| {
            Some(Ending {
                reason,
                cause: Cause::Crash,
            })
        };
        let ending = match (state.ending, broken, state.last_words.take()) {
            (true, _, _) => None,
            (false, Some(wrong), _) => crash(format!(
                "the worker was stopped because it broke the protocol: {wrong}"
            )),
            (false, None, Some((reason, kind))) => Some(Ending {
                reason,
                cause: match exit == Exit::Code(ENGINE_ERROR_CODE) {
                    true => kind.into(),
                    false => Cause::Crash,
                },
            }),
            (false, None, None) if exit == Exit::Code(0) => None,
            // Not by us, for it had ended before.
            (false, None, None) if ended && exit == Exit::Signal(KILL) => crash(
                "the worker process was killed (SIGKILL): most likely this machine, or the server's control group, has run \
                 out of memory; the kernel's log says more"
                    .to_owned(),
            ),
            (false, None, None) => crash(format!(
                "the worker process died ({exit}), most likely a fault of the device's driver; the server's log may say \
                 more"
            )),
        };
        state.reaped = true;
        drop(state);
        drop(held);
        self.changed.notify_all();
        log::debug!("worker {} has ended ({exit})", self.pid);
        events.ended(self, ending);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::net::UdpSocket;
    use std::os::unix::net::UnixStream;

    use rustix::event::{EventfdFlags, eventfd};
    use rustix::fs::{MemfdFlags, memfd_create};

    use super::*;

    #[test]
    fn descriptors_fit_their_messages_or_end_the_worker() {
        let memory = || Some(memfd_create("memory", MemfdFlags::ALLOW_SEALING).unwrap());
        let keep = FromWorker::KeepImage { digest: [0; 32] };
        let room = FromWorker::ReturnMemory { bytes: 1 };
        assert!(fitting(&keep, memory()).is_ok_and(|image| image.is_some()));
        assert!(fitting(&room, None).is_ok());
        let file: OwnedFd = File::open("/dev/null").unwrap().into();
        assert!(fitting(&keep, Some(file)).is_err());
        assert!(fitting(&room, memory()).is_err());
    }

    #[test]
    fn sockets_pipes_and_folders_are_not_shared() {
        let shared: [OwnedFd; 3] = [
            memfd_create("memory", MemfdFlags::empty()).unwrap(),
            File::open("/dev/null").unwrap().into(),
            eventfd(0, EventfdFlags::empty()).unwrap(),
        ];
        assert!(shared.iter().all(may_be_shared));
        let refused: [OwnedFd; 4] = [
            UdpSocket::bind("127.0.0.1:0").unwrap().into(),
            UnixStream::pair().unwrap().0.into(),
            std::io::pipe().unwrap().0.into(),
            File::open("/").unwrap().into(),
        ];
        assert!(!refused.iter().any(may_be_shared));
    }
}
