//! The engine: opens a backend, describes its devices, then serves one session.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};

use towline_backend::opencl::OpenClApi;
use towline_transport::{Connection, TransportError};
use towline_wire::error::{CloseCode, ProtocolError};
use towline_wire::frame::FrameReader;
use towline_wire::push::Push;

use crate::payload::Payloads;
use crate::session::Session;
use crate::shared::{Counters, Raw, Shared};
use crate::snapshot::{self, SnapshotError};

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

impl From<Arc<dyn Connection>> for SideLane {
    fn from(connection: Arc<dyn Connection>) -> Self {
        Self::Payload(connection)
    }
}

/// Why a session ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The client broke the rules; it has been told.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// The link failed.
    #[error(transparent)]
    Transport(#[from] TransportError),
}

/// A backend with its devices, ready for one session.
pub struct Engine {
    api: Arc<dyn OpenClApi>,
    snapshot: Vec<u8>,
    devices: Vec<(u64, Raw)>,
}

/// A request is acknowledged at the latest when so many have come since.
const ACKNOWLEDGE_EVERY: u64 = 4096;
/// Most waits without a thread: each stands for a thread of the client's that is blocked.
const BACKLOG_LIMIT: usize = 4096;

impl Engine {
    /// Takes the devices of `api` for which `select` says yes; its arguments are the number among all devices and the name.
    pub fn open(
        api: Arc<dyn OpenClApi>,
        select: &dyn Fn(usize, &str) -> bool,
    ) -> Result<Self, SnapshotError> {
        let (snapshot, devices) = snapshot::take(&*api, select)?;
        Ok(Self {
            api,
            snapshot: snapshot.encode(),
            devices,
        })
    }

    /// The devices in their encoding.
    pub fn snapshot(&self) -> &[u8] {
        &self.snapshot
    }

    /// Takes over this process's standard output, so that what kernels print goes to the client. For worker processes only.
    pub fn capture_output(&self) -> std::io::Result<()> {
        crate::print::capture()
    }

    /// Serves a session: `command` is its command lane; `lanes` is called on a thread of its own and gives each payload lane and
    /// peer lane as it is opened, then `None`.
    pub fn run<L: Into<SideLane>>(
        self,
        command: Arc<dyn Connection>,
        mut lanes: impl FnMut() -> Option<L> + Send + 'static,
        limits: Limits,
        counters: Arc<Counters>,
    ) -> Result<(), RunError> {
        let payloads = Payloads::new(limits.chunk_bytes);
        let shared = Arc::new(Shared::new(
            Arc::clone(&self.api),
            Arc::clone(&command),
            counters,
            payloads,
        ));
        let attaching = Arc::clone(&shared);
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
                            let peers = &attaching.peers;
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
        let (done, ended) = channel();
        let lane = Lane {
            session: Session::new(Arc::clone(&shared), &self.devices),
            shared: Arc::clone(&shared),
            command,
            reader: FrameReader::new(),
            told: 0,
            done,
        };
        // Not on this thread: a wait that it took up might end only with the session.
        shared.waiters.run(move || lane.lead());
        let (mut session, result) = ended
            .recv()
            .expect("the lane's thread tells how the session ended");
        if let Err(RunError::Protocol(error)) = &result {
            shared.close(error);
        }
        shared.end();
        shared.payloads.join();
        shared.peers.join();
        session.release_all();
        result
    }
}

/// The command lane with all that its thread needs. The thread changes: one that has to wait for the device hands the lane to
/// another first, which wakes up while this one waits already, and so nobody waits for a thread to wake.
struct Lane {
    session: Session,
    shared: Arc<Shared>,
    command: Arc<dyn Connection>,
    reader: FrameReader,
    /// Requests of which the client knows that they arrived.
    told: u64,
    done: Sender<(Session, Result<(), RunError>)>,
}

impl Lane {
    /// Takes requests off the lane until the client leaves, or until this thread waits for the device.
    fn lead(mut self) {
        let result = loop {
            match self.serve_frame() {
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(error) => break Err(error),
            }
            let Some(wait) = self.session.waiting.take() else {
                continue;
            };
            match self.shared.waiters.seat() {
                Some(seat) => {
                    seat.run(move || self.lead());
                    return wait();
                }
                None => self.shared.waiters.run(wait),
            }
        };
        // What it holds is given back when the wait is over.
        if let Some(wait) = self.session.waiting.take() {
            self.shared.waiters.run(wait);
        }
        // The receiver is there until it has been told.
        let _ = self.done.send((self.session, result));
    }

    /// Carries out what has come; `false` when the client has left.
    fn serve_frame(&mut self) -> Result<bool, RunError> {
        let Self {
            session,
            shared,
            reader,
            ..
        } = self;
        let count = self.command.recv(reader.space())?;
        if count == 0 {
            return Ok(false);
        }
        reader.filled(count);
        shared
            .counters
            .received_bytes
            .fetch_add(count as u64, Ordering::Relaxed);
        let started = std::time::Instant::now();
        while let Some(message) = reader.next()? {
            if log::log_enabled!(log::Level::Trace) {
                let what = towline_wire::opencl::describe(message.id, message.body);
                log::trace!(
                    "request {}: {}",
                    message.number,
                    what.unwrap_or_else(|error| error.to_string())
                );
            }
            session.dispatch(message.number, message.id, message.body)?;
        }
        if shared.waiters.backlog() > BACKLOG_LIMIT {
            let detail = format!("more than {BACKLOG_LIMIT} waits are queued");
            return Err(ProtocolError::new(CloseCode::LimitExceeded, detail).into());
        }
        let lane_ns = started.elapsed().as_nanos() as u64;
        shared.usage.lane_ns.fetch_add(lane_ns, Ordering::Relaxed);
        let received = reader.received();
        shared.received.store(received, Ordering::Release);
        shared.counters.calls.store(received, Ordering::Relaxed);
        session.retire();
        if session.goodbye {
            shared.flush();
            return Ok(false);
        }
        if shared.outbox.is_empty() && received - self.told >= ACKNOWLEDGE_EVERY {
            shared.post(&Push::Ack);
        }
        if !shared.outbox.is_empty() {
            self.told = received;
            shared.flush();
        }
        Ok(true)
    }
}
