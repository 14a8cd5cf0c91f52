//! The process around a session: what a worker does before, beside and after running its engine.
//!
//! Order: take the supervisor's channel, enter the jail, open the device runtime inside it and warm it, seal the jail,
//! say so, wait for a session. One worker serves one session and exits. The engine knows nothing of all this; it gets a
//! [`Session`].
//!
//! ```no_run
//! use towline_server::worker::process::{self, Engine, EngineError, Session};
//!
//! struct Echo;
//!
//! impl Engine for Echo {
//!     fn snapshot(&self) -> Vec<u8> {
//!         Vec::new()
//!     }
//!
//!     fn run(self: Box<Self>, session: Session) -> Result<(), EngineError> {
//!         while let Some(lane) = session.lanes.next() {
//!             let mut bytes = [0; 1024];
//!             let count = lane.connection.recv(&mut bytes)?;
//!             lane.connection.send(&[std::io::IoSlice::new(&bytes[..count])])?;
//!         }
//!         Ok(())
//!     }
//! }
//!
//! // In `main`, before any other thread exists:
//! process::main(|| {}, || Ok(Box::new(Echo)));
//! ```

use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use towline_sys::channel::{Channel, Received};
use towline_sys::crash;
use towline_sys::jail::{self, JailRequest};
use towline_sys::process::{exit_now, limit_descriptors, take_channel};
use towline_transport::{Connection, Registry};
use towline_wire::control::{LaneEnd, LaneKey, Message, NvmlAnswers, NvmlQuestions};
use towline_worker::{
    Bond, Broker, Fellows, Reserved, RunError, Scheduler, SwapRequest, Swapper, Turn,
};

use super::broker::ChannelBroker;
use super::door::Door;
use super::protocol::{self, ErrorKind, FromWorker, ToWorker};
pub use super::protocol::{CollectivesGrant, SessionParameters, Statistics};
pub use towline_worker::Counters;

/// Exit code of a worker whose engine returned an error, in order.
pub(crate) const ENGINE_ERROR_CODE: i32 = 1;

/// Processes and threads of a job's sessions on this server are counted together: as many as so many sessions may have.
const JOB_SESSIONS: u64 = 16;

/// Whatever ended an engine. Its text reaches the client.
pub type EngineError = Box<dyn Error + Send + Sync>;

/// The part of a worker that knows the device: opened before a client has come, run once for one session.
pub trait Engine: Send {
    /// The devices, in the API layer's encoding, for clients of this and the next sessions.
    fn snapshot(&self) -> Vec<u8>;

    /// Called when clients may come: for what shortens their wait, and nobody should wait for.
    fn prepare(&mut self) {}

    /// Serves one session; returns when its lanes are closed. An error is told to the client.
    fn run(self: Box<Self>, session: Session) -> Result<(), EngineError>;
}

/// The other kind of worker: answers questions about devices, of whoever asks, and has no session.
pub trait Monitor {
    /// What never changes, in its encoding.
    fn snapshot(&self) -> Vec<u8>;

    /// Answers questions.
    fn answer(&mut self, questions: &NvmlQuestions) -> NvmlAnswers;
}

/// What an engine gets.
pub struct Session {
    /// Whose session it is and what it may use.
    pub parameters: SessionParameters,
    /// The client's connections, and those to other servers' workers.
    pub lanes: LaneSource,
    /// Where the engine counts what `towline status` shows.
    pub counters: Arc<Counters>,
    /// Where the session offers and takes what sessions of this server share.
    pub broker: Arc<dyn Broker>,
}

/// One connection of the session.
pub struct Lane {
    /// What it is for.
    pub kind: LaneKind,
    /// The connection, with everything behind the preamble or handshake unread.
    pub connection: Arc<dyn Connection>,
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LaneKind {
    /// One of the client's.
    Client {
        /// 0 is the command lane.
        index: u16,
        /// How many lanes the client will open. The same on all lanes of a session.
        count: u16,
    },
    /// It leads to the worker of another server.
    Peer {
        /// The client's number for it.
        number: u64,
    },
}

/// Gives out the lanes as they are opened.
pub struct LaneSource {
    arriving: Receiver<Lane>,
    ended: Arc<AtomicBool>,
}

impl LaneSource {
    /// Waits for the next lane; `None` when the session is over. The lanes given out before are shut down then, so
    /// whoever reads or writes them wakes up too.
    pub fn next(&self) -> Option<Lane> {
        self.arriving.recv().ok()
    }

    /// Like [`next`](Self::next) with a limit.
    pub fn next_timeout(&self, timeout: Duration) -> Result<Option<Lane>, TimedOut> {
        match self.arriving.recv_timeout(timeout) {
            Ok(lane) => Ok(Some(lane)),
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => Err(TimedOut),
        }
    }

    /// Whether the supervisor ended the session: the client has gone or the server shuts down.
    pub fn ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }
}

/// No lane came in time.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("no lane was opened in time")]
pub struct TimedOut;

fn read(counters: &Counters) -> Statistics {
    Statistics {
        device_memory_bytes: counters.device_memory_bytes.load(Ordering::Relaxed),
        device_memory_peak: counters.device_memory_peak.load(Ordering::Relaxed),
        received_bytes: counters.received_bytes.load(Ordering::Relaxed),
        sent_bytes: counters.sent_bytes.load(Ordering::Relaxed),
        calls: counters.calls.load(Ordering::Relaxed),
        launches: counters.launches.load(Ordering::Relaxed),
        code_bytes: counters.code_bytes.load(Ordering::Relaxed),
        device_time_us: counters.device_time_us.load(Ordering::Relaxed),
    }
}

/// Runs this process as a worker, and ends it.
///
/// `prepare` runs before the jail, for what needs privileges (making device nodes). `open` runs inside: it loads the
/// device runtime, makes it do something, so that it has started its threads and opened its files, and gives the engine.
///
/// Call it first thing in `main`: the jail needs a process with one thread.
pub fn main(
    prepare: impl FnOnce(),
    open: impl FnOnce() -> Result<Box<dyn Engine>, EngineError>,
) -> ! {
    let channel = Arc::new(channel());
    let code = match start(&channel, prepare, open, |engine| engine.snapshot()) {
        Ok((mut engine, place)) => {
            engine.prepare();
            serve(&channel, engine, &place)
        }
        Err(error) => refuse(&channel, &*error),
    };
    exit_now(code)
}

/// As [`main`], for a worker that only answers questions.
pub fn monitor(
    prepare: impl FnOnce(),
    open: impl FnOnce() -> Result<Box<dyn Monitor>, EngineError>,
) -> ! {
    let channel = channel();
    let code = match start(&channel, prepare, open, |monitor| monitor.snapshot()) {
        Ok((monitor, _)) => answer(&channel, monitor),
        Err(error) => refuse(&channel, &*error),
    };
    exit_now(code)
}

fn channel() -> Channel {
    crash::tell();
    match take_channel() {
        Ok(channel) => channel,
        Err(error) => {
            eprintln!("towline: {error}: {}", error.source);
            exit_now(2);
        }
    }
}

/// Says why this worker cannot work. Gives the exit code.
fn refuse(channel: &Channel, error: &(dyn Error + 'static)) -> i32 {
    let reason = protocol::shorten(&describe(error));
    // The supervisor logs it.
    log::debug!("the worker cannot start: {reason}");
    tell(channel, &FromWorker::Failed { reason });
    1
}

/// Facts of its place that a worker knows when it is ready.
struct Place {
    /// Its own folder.
    home: PathBuf,
    /// Whether its processes are counted apart from others'.
    counts_processes: bool,
}

/// Jail, device, jail again; then tells the supervisor.
fn start<T>(
    channel: &Channel,
    prepare: impl FnOnce(),
    open: impl FnOnce() -> Result<T, EngineError>,
    describe: impl FnOnce(&T) -> Vec<u8>,
) -> Result<(T, Place), EngineError> {
    let Some(Received { bytes, .. }) = channel.recv()? else {
        return Err("the supervisor closed the channel before saying how to start".into());
    };
    let (jail, home) = match protocol::decode(&bytes)? {
        ToWorker::Start { jail, home } => (jail, home),
        // The server was stopped just after it started us.
        ToWorker::End => exit_now(0),
        _ => return Err("the supervisor must say how to start first".into()),
    };
    prepare();
    // The jail may hide the shared objects that hold further transports.
    Registry::global();
    let (jail_missing, place) = enter_jail(jail.as_ref(), home)?;
    let opened = open()?;
    if let Some(jail) = &jail {
        jail::seal(jail.kind, jail.network)?;
    }
    let snapshot = describe(&opened);
    let jail_missing = jail_missing
        .iter()
        .map(|missing| protocol::shorten(missing))
        .take(8)
        .collect();
    channel.send(
        &protocol::encode(&FromWorker::Ready {
            snapshot_bytes: snapshot.len(),
            jail_missing,
            counts_processes: place.counts_processes,
        }),
        None,
    )?;
    protocol::send_pieces(channel, &snapshot)?;
    Ok((opened, place))
}

fn enter_jail(
    request: Option<&JailRequest>,
    home: PathBuf,
) -> Result<(Vec<String>, Place), EngineError> {
    match request {
        Some(request) => {
            let confinement = jail::enter(request)?;
            let place = Place {
                home: confinement.home,
                counts_processes: confinement.counts_processes,
            };
            Ok((confinement.missing, place))
        }
        None => {
            jail::adopt_home(&home)?;
            let place = Place {
                home,
                counts_processes: false,
            };
            Ok((Vec::new(), place))
        }
    }
}

/// Answers questions until the supervisor wants no more. Gives the exit code.
fn answer(channel: &Channel, mut monitor: Box<dyn Monitor>) -> i32 {
    loop {
        let received = match channel.recv() {
            Ok(Some(received)) => received,
            Ok(None) => return 0,
            Err(error) => {
                log::error!("{error}: {}", error.source);
                return 1;
            }
        };
        match protocol::decode(&received.bytes) {
            Ok(ToWorker::Ask { request, questions }) => {
                let asked = match Message::decode(&questions) {
                    Ok(Message::NvmlQuestions(asked)) => asked,
                    _ => NvmlQuestions::default(),
                };
                let frame = Message::NvmlAnswers(monitor.answer(&asked)).encode();
                tell(
                    channel,
                    &FromWorker::Answers {
                        request,
                        frame_bytes: frame.len(),
                    },
                );
                if let Err(error) = protocol::send_pieces(channel, &frame) {
                    log::debug!("{error}: {}", error.source);
                }
            }
            Ok(ToWorker::End) => return 0,
            Ok(other) => log::warn!("a monitor has no session for {other:?}"),
            Err(error) => {
                log::error!("the supervisor sent nonsense: {error}");
                return 1;
            }
        }
    }
}

/// Waits for a session, runs it, and answers the supervisor meanwhile. Gives the exit code.
fn serve(channel: &Arc<Channel>, engine: Box<dyn Engine>, place: &Place) -> i32 {
    let mut engine = Some(engine);
    let counters = Arc::new(Counters::default());
    let ended = Arc::new(AtomicBool::new(false));
    let mut door: Option<Arc<Door>> = None;
    let broker = Arc::new(ChannelBroker::new(Arc::clone(channel)));
    loop {
        let received = match channel.recv() {
            Ok(Some(received)) => received,
            // The supervisor is gone, and with it whoever could end this session: free the device.
            Ok(None) => return 0,
            Err(error) => {
                log::error!("{error}: {}", error.source);
                return 1;
            }
        };
        let message = match protocol::decode(&received.bytes) {
            Ok(message) => message,
            Err(error) => {
                log::error!("the supervisor sent nonsense: {error}");
                return 1;
            }
        };
        match (message, received.descriptor) {
            (
                ToWorker::Assign {
                    parameters,
                    lane_key,
                    reserves_memory,
                    scheduled_devices,
                    swaps,
                },
                kernels,
            ) => {
                let Some(engine) = engine.take() else {
                    log::error!("a worker serves one session, and was given a second");
                    return 1;
                };
                counters
                    .device_memory_limit
                    .store(parameters.quota.device_memory_bytes, Ordering::Relaxed);
                counters
                    .limit_is_whole
                    .store(parameters.whole_devices, Ordering::Relaxed);
                counters
                    .code_limit
                    .store(parameters.quota.code_bytes, Ordering::Relaxed);
                counters
                    .kernel_time_ms
                    .store(parameters.quota.kernel_time_ms, Ordering::Relaxed);
                // Without it, the session compiles for itself.
                if let Some(Err(error)) =
                    kernels.map(|folder| jail::share_kernels(&place.home, folder))
                {
                    log::warn!("{error}: {}", error.source);
                }
                let processes = match parameters.collectives {
                    Some(_) => parameters.quota.processes.saturating_mul(JOB_SESSIONS),
                    None => parameters.quota.processes,
                };
                if place.counts_processes
                    && processes > 0
                    && let Err(error) = jail::limit_processes(processes)
                {
                    log::warn!("{error}: {}", error.source);
                }
                if parameters.quota.descriptors > 0
                    && let Err(error) = limit_descriptors(parameters.quota.descriptors)
                {
                    log::warn!("{error}: {}", error.source);
                }
                if reserves_memory {
                    counters.share(Arc::clone(&broker) as _);
                }
                if scheduled_devices > 0 {
                    let channel = Arc::clone(channel);
                    counters
                        .turns
                        .schedule(scheduled_devices, Box::new(ChannelScheduler(channel)));
                }
                if swaps {
                    counters
                        .swap
                        .enable(Box::new(ChannelSwapper(Arc::clone(channel))));
                }
                if parameters.collectives.is_some() {
                    let channel = Arc::clone(channel);
                    counters.bonds.keep(Box::new(ChannelFellows(channel)));
                }
                let host_memory = parameters.quota.host_memory_bytes;
                if parameters.limits_own_memory
                    && host_memory > 0
                    && let Err(error) = jail::limit_memory(host_memory)
                {
                    log::warn!("{error}: {}", error.source);
                }
                let (sender, arriving) = mpsc::channel();
                let key = lane_key.map(LaneKey::from);
                let resumes = parameters.resumes;
                door = Some(Arc::new(Door::new(
                    key,
                    resumes,
                    sender,
                    Arc::clone(channel),
                )));
                let lanes = LaneSource {
                    arriving,
                    ended: Arc::clone(&ended),
                };
                let session = Session {
                    parameters,
                    lanes,
                    counters: Arc::clone(&counters),
                    broker: Arc::clone(&broker) as _,
                };
                run_engine(engine, session, Arc::clone(channel));
            }
            (
                ToWorker::Lane {
                    index,
                    count,
                    again,
                    scheme,
                },
                Some(descriptor),
            ) => match &door {
                Some(door) => door.take_lane(index, count, again, &scheme, descriptor),
                // A client that ends at once may not have opened all of its lanes yet.
                None => log::debug!("lane {index} came behind the session's end"),
            },
            (
                ToWorker::Peer {
                    lane,
                    connects,
                    key,
                    scheme,
                },
                Some(descriptor),
            ) => {
                let end = match connects {
                    true => LaneEnd::PeerConnects,
                    false => LaneEnd::PeerAccepts,
                };
                let key = key.map(LaneKey::from);
                match &door {
                    Some(door) => door.take_peer(lane, end, key, &scheme, descriptor),
                    None => log::debug!("peer lane {lane} came behind the session's end"),
                }
            }
            (ToWorker::ReportStatistics { request }, _) => {
                tell(
                    channel,
                    &FromWorker::Statistics {
                        request,
                        statistics: read(&counters),
                    },
                );
            }
            (ToWorker::Offered { request, token }, _) => broker.offered(request, token),
            (
                ToWorker::Taken {
                    request,
                    offer,
                    number,
                },
                descriptor,
            ) => broker.taken(request, offer, number, descriptor),
            (
                ToWorker::MemoryReserved {
                    request,
                    granted,
                    left,
                },
                _,
            ) => broker.reserved(request, Reserved { granted, left }),
            (ToWorker::Image { request }, image) => broker.found(request, image),
            (
                ToWorker::Turn {
                    device,
                    turn,
                    number,
                },
                _,
            ) => counters.turns.hear(device, Turn::from_number(turn), number),
            (ToWorker::RoomMade { request, made }, _) => broker.room_made(request, made),
            (
                ToWorker::GiveWay {
                    request,
                    most,
                    idle,
                },
                _,
            ) => give_way(channel, &counters, request, SwapRequest { most, idle }),
            (ToWorker::Lost { bond }, _) => counters.bonds.lose(&bond),
            (ToWorker::End, _) if engine.is_some() => return 0,
            (ToWorker::End, _) => {
                // Wakes the engine wherever it waits; it returns, and its thread ends the process. If it cannot (it
                // waits for a kernel), the supervisor kills it.
                ended.store(true, Ordering::Release);
                counters.swap.stop();
                door.take().inspect(|door| door.close());
            }
            (ToWorker::Lane { index, .. }, None) => {
                log::warn!("lane {index} came without its descriptor")
            }
            (ToWorker::Peer { lane, .. }, None) => {
                log::warn!("peer lane {lane} came without its descriptor")
            }
            (ToWorker::Start { .. }, _) => log::warn!("the worker was told twice to start"),
            (ToWorker::Ask { .. }, _) => log::warn!("only a monitor answers questions"),
        }
    }
}

/// The supervisor as the one that gives turns on devices.
#[derive(Debug)]
struct ChannelScheduler(Arc<Channel>);

impl Scheduler for ChannelScheduler {
    fn want(&self, device: u32) {
        tell(&self.0, &FromWorker::WantTurn { device });
    }

    fn over(&self, device: u32, number: u64) {
        tell(&self.0, &FromWorker::TurnOver { device, number });
    }
}

/// The supervisor as the one that hears who is back.
#[derive(Debug)]
struct ChannelSwapper(Arc<Channel>);

impl Swapper for ChannelSwapper {
    fn is_in(&self) {
        tell(&self.0, &FromWorker::SwappedIn);
    }
}

/// Has the session give way, on a thread of its own, and answers.
fn give_way(channel: &Arc<Channel>, counters: &Arc<Counters>, request: u64, wanted: SwapRequest) {
    let answer = move |channel: &Channel, given: Result<u64, String>| {
        let refusal = given.as_ref().err().map(|why| protocol::shorten(why));
        let freed = given.unwrap_or(0);
        let message = FromWorker::GaveWay {
            request,
            freed,
            refusal,
        };
        tell(channel, &message);
    };
    let (answering, counters) = (Arc::clone(channel), Arc::clone(counters));
    let give = move || {
        counters
            .swap
            .give_way(wanted, |given| answer(&answering, given));
    };
    let started = std::thread::Builder::new().name("swap".into()).spawn(give);
    if let Err(error) = started {
        answer(channel, Err(format!("it has no thread for that: {error}")));
    }
}

/// The supervisor as the one that keeps bonds.
#[derive(Debug)]
struct ChannelFellows(Arc<Channel>);

impl Fellows for ChannelFellows {
    fn bind(&self, bond: Bond) {
        tell(&self.0, &FromWorker::Bind { bond });
    }

    fn part(&self, bond: Bond) {
        tell(&self.0, &FromWorker::Part { bond });
    }
}

/// Runs the engine on a thread of its own, which ends the process when it returns.
fn run_engine(engine: Box<dyn Engine>, session: Session, channel: Arc<Channel>) {
    let counters = Arc::clone(&session.counters);
    let run = move || {
        let result = catch_unwind(AssertUnwindSafe(|| engine.run(session)));
        let kind = match &result {
            Ok(Err(error)) => kind_of(&**error),
            _ => ErrorKind::Other,
        };
        let (error, code) = match result {
            Ok(Ok(())) => (None, 0),
            Ok(Err(error)) => (Some(describe(&*error)), ENGINE_ERROR_CODE),
            Err(_) => (
                Some("the worker panicked; the server's log says where".to_owned()),
                101,
            ),
        };
        // Nobody can ask once the process has ended.
        let last = FromWorker::Statistics {
            request: 0,
            statistics: read(&counters),
        };
        tell(&channel, &last);
        tell(
            &channel,
            &FromWorker::Finished {
                error: error.as_deref().map(protocol::shorten),
                kind,
            },
        );
        exit_now(code);
    };
    if let Err(error) = std::thread::Builder::new().name("engine".into()).spawn(run) {
        log::error!("cannot start the engine's thread: {error}");
        exit_now(1);
    }
}

fn kind_of(error: &(dyn Error + 'static)) -> ErrorKind {
    match error.downcast_ref() {
        Some(RunError::Overrun(_)) => ErrorKind::KernelTime,
        Some(RunError::Protocol(_)) => ErrorKind::Protocol,
        _ => ErrorKind::Other,
    }
}

/// The supervisor may be gone; the loop that reads from it then ends this process.
pub(super) fn tell(channel: &Channel, message: &FromWorker) {
    // Two threads speak, and messages do not mix: each is one datagram.
    if let Err(error) = channel.send(&protocol::encode(message), None) {
        log::debug!("{error}: {}", error.source);
    }
}

/// An error and its causes in one line.
pub(crate) fn describe(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
