//! The command lane: takes requests off it and hands them to the session, on a thread that changes whenever one has to wait.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use towline_transport::{Connection, TransportError};
use towline_wire::error::{CloseCode, DecodeError, ProtocolError};
use towline_wire::frame::FrameReader;
use towline_wire::push::Push;

use crate::link::Link;
use crate::payload::Payloads;
use crate::waiters::Job;
use crate::watchdog::Watchdog;

/// What a session may use.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of one chunk on a payload lane.
    pub chunk_bytes: u64,
}

/// A connection of a session besides its command lane.
pub enum SideLane {
    /// A payload lane of the client.
    Payload(Arc<dyn Connection>),
    /// One to the worker of another server, with the number that the client gave it.
    Peer(u64, Arc<dyn Connection>),
}

/// Takes lanes to workers of other servers.
pub(crate) trait PeerLanes: Send + Sync {
    /// Starts the threads of a lane that the supervisor has passed on.
    fn attach(
        &self,
        number: u64,
        lane: Arc<dyn Connection>,
        chunk_bytes: u64,
    ) -> std::io::Result<()>;

    /// Ends every lane; [`Self::join`] waits for their threads.
    fn shutdown(&self);

    /// Waits for the lanes' threads. Nothing touches the memory of transfers afterwards.
    fn join(&self);
}

impl From<Arc<dyn Connection>> for SideLane {
    fn from(connection: Arc<dyn Connection>) -> Self {
        Self::Payload(connection)
    }
}

/// Why a session ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// A kernel does not end.
    #[error("a kernel or graph ran longer than the server's limit of {0:?} (--kernel-time-limit)")]
    Overrun(Duration),
    /// The client broke the rules; it has been told.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// The link failed.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// Nothing would limit how long kernels run.
    #[error("cannot start the thread that limits kernels' time")]
    Watchdog(#[source] std::io::Error),
}

/// A request is acknowledged at the latest when so many have come since.
const ACKNOWLEDGE_EVERY: u64 = 4096;
/// Most waits without a thread: each stands for a thread of the client's that is blocked, or a stream's work that something stands before.
const BACKLOG_LIMIT: usize = 4096;
/// How long more waits than that keep the lane from reading on before they end the session: some may need what comes next.
const BACKLOG_PATIENCE: Duration = Duration::from_secs(5);

/// A thread may look for work without rest where there are so many cores.
const ENOUGH_CORES: usize = 4;

/// How long the vendor's threads have to give an answer by themselves: those that wake no other thread are short, and a session at rest is
/// to take no processor time after 100 us.
const GRACE: Duration = Duration::from_micros(80);

/// Longest that may be set.
const SPIN_LIMIT_US: u64 = 1000;

/// The session of one API, as the lane sees it.
pub(crate) trait Serve: Send + 'static {
    /// Requests that launch a kernel or a graph.
    const LAUNCHES: &'static [u16];

    /// Carries out one request.
    fn dispatch(&mut self, number: u64, id: u16, body: &[u8]) -> Result<(), ProtocolError>;

    /// A frame has come; nothing had for so long. `false` when the session cannot go on.
    fn begin_of_frame(&mut self, _rested: Duration) -> bool {
        true
    }

    /// What a request says, for a trace.
    fn describe(id: u16, body: &[u8]) -> Result<String, DecodeError>;

    /// What the latest request waits for.
    fn take_wait(&mut self) -> Option<Job>;

    /// Looks whether what the latest request waits for has come. If it has, the client is told, and there is nothing to take;
    /// `None` when that cannot be seen without waiting.
    fn glance(&mut self) -> Option<bool> {
        None
    }

    /// Whether the vendor's threads owe answers, which they give if all goes well.
    fn is_owed(&mut self) -> bool {
        false
    }

    /// Whether they have owed one for long, though the lane was never at rest.
    fn is_overdue(&self) -> bool {
        false
    }

    /// What they owe still has not come soon: threads are to wait for it.
    fn collect(&mut self) {}

    /// All requests of a frame have been carried out; `false` when the client said goodbye.
    fn end_of_frame(&mut self) -> bool;

    /// Gives all objects back: the session is over.
    fn release_all(&mut self);

    /// The status for a kernel that runs longer than `limit`, and the function that looks for one.
    fn watch(&self, limit: Duration) -> (i32, Box<dyn FnMut() -> bool + Send>);
}

/// Serves a session, as its API's engine says.
pub(crate) fn run<S: Serve, L: Into<SideLane>>(
    link: Arc<Link>,
    session: S,
    command: Arc<dyn Connection>,
    mut lanes: impl FnMut() -> Option<L> + Send + 'static,
    limits: Limits,
) -> Result<(), RunError> {
    let attaching = Arc::clone(&link);
    let acceptor = std::thread::Builder::new()
        .name("towline-lanes".into())
        .spawn(move || {
            while let Some(lane) = lanes() {
                match lane.into() {
                    SideLane::Payload(lane) => {
                        if let Err(error) = Payloads::attach(&attaching, lane) {
                            log::error!("cannot start the threads of a payload lane: {error}");
                            attaching.end();
                        }
                    }
                    SideLane::Peer(number, lane) => {
                        let Some(peers) = &attaching.peers else {
                            log::warn!("peer lane {number} is for an API that has none");
                            lane.shutdown();
                            continue;
                        };
                        if let Err(error) = peers.attach(number, lane, limits.chunk_bytes) {
                            // The client hears of it when it asks for the lane.
                            log::error!("cannot start the threads of a peer lane: {error}");
                        }
                    }
                }
            }
        });
    if let Err(error) = acceptor {
        log::error!("cannot start the thread that takes payload lanes: {error}");
    }
    let watchdog = match link.counters.kernel_time_ms.load(Ordering::Relaxed) {
        0 => None,
        ms => {
            let limit = Duration::from_millis(ms);
            let (status, overruns) = session.watch(limit);
            Some(Watchdog::start(&link, limit, status, overruns).map_err(RunError::Watchdog)?)
        }
    };
    let (done, ended) = channel();
    let lane = Lane {
        session,
        link: Arc::clone(&link),
        command,
        reader: FrameReader::new(),
        arrived: None,
        told: 0,
        through: Instant::now(),
        done,
    };
    // Not on this thread: a wait that it took up might end only with the session.
    link.waiters.run(move || lane.lead());
    let (mut session, result) = ended
        .recv()
        .expect("the lane's thread tells how the session ended");
    if let Err(RunError::Protocol(error)) = &result {
        link.close(error);
    }
    link.end();
    link.device_time.end(&link.counters.device_time_us);
    drop(watchdog);
    if let Some(limit) = link.overrun_limit() {
        // Objects in use by a running kernel cannot be given back; they end with the process.
        std::mem::forget(session);
        return Err(RunError::Overrun(limit));
    }
    link.payloads.join();
    if let Some(peers) = &link.peers {
        peers.join();
    }
    session.release_all();
    result
}

/// How long the lane's thread looks for the next request before it sleeps (`TOWLINE_SPIN_US`); not at all where cores are few.
fn patience() -> Duration {
    static PATIENCE: OnceLock<Duration> = OnceLock::new();
    *PATIENCE.get_or_init(|| {
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        let set = std::env::var("TOWLINE_SPIN_US").ok();
        let set = set.and_then(|value| value.trim().parse::<u64>().ok());
        let usual = if cores >= ENOUGH_CORES { 50 } else { 0 };
        Duration::from_micros(set.unwrap_or(usual).min(SPIN_LIMIT_US))
    })
}

/// Whether more comes on the lane before the time is over that vendors' threads have to give an answer; bytes that came go to `arrived`.
fn comes_soon(
    command: &dyn Connection,
    reader: &mut FrameReader,
    arrived: &mut Option<usize>,
) -> Result<bool, TransportError> {
    if !looks_on() {
        return command.wait_readable(Some(GRACE));
    }
    let until = Instant::now() + patience();
    while Instant::now() < until {
        *arrived = command.try_recv(reader.space())?;
        if arrived.is_some() {
            return Ok(true);
        }
        std::thread::yield_now();
    }
    Ok(false)
}

/// Whether the lane's thread looks at all.
pub(crate) fn looks_on() -> bool {
    !patience().is_zero()
}

/// The command lane with all that its thread needs. The thread changes: one that has to wait for the device hands the lane to
/// another first, which wakes up while this one waits already, and so nobody waits for a thread to wake.
struct Lane<S> {
    session: S,
    link: Arc<Link>,
    command: Arc<dyn Connection>,
    reader: FrameReader,
    /// Bytes that have been received and not been looked at.
    arrived: Option<usize>,
    /// Requests of which the client knows that they arrived.
    told: u64,
    /// When the last frame had been carried out.
    through: Instant,
    done: Sender<(S, Result<(), RunError>)>,
}

impl<S: Serve> Lane<S> {
    /// Takes requests off the lane until the client leaves, or until this thread waits for the device.
    fn lead(mut self) {
        let result = loop {
            match self.serve_frame() {
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(error) => break Err(error),
            }
            match self.look_on() {
                Ok(true) => continue,
                Ok(false) => {}
                Err(error) => break Err(error),
            }
            let Some(wait) = self.session.take_wait() else {
                continue;
            };
            match self.link.waiters.seat() {
                Some(seat) => {
                    seat.run(move || self.lead());
                    return wait();
                }
                None => self.link.waiters.run(wait),
            }
        };
        // What it holds is given back when the wait is over.
        if let Some(wait) = self.session.take_wait() {
            self.link.waiters.run(wait);
        }
        // The receiver is there until it has been told.
        let _ = self.done.send((self.session, result));
    }

    /// Looks for a moment whether what the client waits for comes: most waits are short, and handing the lane to another thread wakes
    /// that one. Whether it came; otherwise the lane has more to do, or the wait is no short one.
    fn look_on(&mut self) -> Result<bool, RunError> {
        let Some(mut ended) = self.session.glance() else {
            return Ok(false);
        };
        let until = Instant::now() + patience();
        while !ended {
            self.arrived = self.command.try_recv(self.reader.space())?;
            if self.arrived.is_some() || Instant::now() >= until {
                return Ok(false);
            }
            ended = self.session.glance().unwrap_or(false);
        }
        Ok(true)
    }

    /// Carries out what has come; `false` when the client has left.
    fn serve_frame(&mut self) -> Result<bool, RunError> {
        let Self {
            session,
            link,
            reader,
            ..
        } = self;
        let count = match self.arrived.take() {
            Some(count) => count,
            None => {
                let mut arrived = None;
                if session.is_owed()
                    && (session.is_overdue() || !comes_soon(&*self.command, reader, &mut arrived)?)
                    && session.is_owed()
                {
                    session.collect();
                }
                match arrived {
                    Some(count) => count,
                    None => self.command.recv_soon(reader.space(), patience())?,
                }
            }
        };
        if count == 0 {
            return Ok(false);
        }
        reader.filled(count);
        link.counters
            .received_bytes
            .fetch_add(count as u64, Ordering::Relaxed);
        let started = Instant::now();
        if !session.begin_of_frame(started.saturating_duration_since(self.through)) {
            return Ok(false);
        }
        let mut launches = 0;
        while let Some(message) = reader.next()? {
            launches += u64::from(S::LAUNCHES.contains(&message.id));
            if log::log_enabled!(log::Level::Trace) {
                let what = S::describe(message.id, message.body);
                log::trace!(
                    "request {}: {}",
                    message.number,
                    what.unwrap_or_else(|error| error.to_string())
                );
            }
            session.dispatch(message.number, message.id, message.body)?;
        }
        let late = Instant::now() + BACKLOG_PATIENCE;
        while link.waiters.backlog() > BACKLOG_LIMIT && Instant::now() < late {
            link.flush();
            std::thread::sleep(Duration::from_millis(1));
        }
        if link.waiters.backlog() > BACKLOG_LIMIT {
            let detail = format!("more than {BACKLOG_LIMIT} waits are queued");
            return Err(ProtocolError::new(CloseCode::LimitExceeded, detail).into());
        }
        self.through = Instant::now();
        let lane_ns = self.through.saturating_duration_since(started).as_nanos() as u64;
        link.usage.lane_ns.fetch_add(lane_ns, Ordering::Relaxed);
        let received = reader.received();
        link.received.store(received, Ordering::Release);
        link.counters.calls.store(received, Ordering::Relaxed);
        link.counters
            .launches
            .fetch_add(launches, Ordering::Relaxed);
        if !session.end_of_frame() {
            link.flush();
            return Ok(false);
        }
        if link.outbox.is_empty() && received - self.told >= ACKNOWLEDGE_EVERY {
            link.post(&Push::Ack);
        }
        if !link.outbox.is_empty() {
            self.told = received;
            link.flush();
        }
        Ok(true)
    }
}
