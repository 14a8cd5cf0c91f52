//! The engine: opens a backend, describes its devices, then serves one session.

use std::sync::Arc;
use std::sync::atomic::Ordering;

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

    /// Serves a session: `command` is its command lane; `lanes` is called on a thread of its own and gives each payload lane as it is
    /// opened, then `None`.
    pub fn run(
        self,
        command: Arc<dyn Connection>,
        mut lanes: impl FnMut() -> Option<Arc<dyn Connection>> + Send + 'static,
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
                    if let Err(error) = Payloads::attach(&attaching, lane) {
                        log::error!("cannot start the threads of a payload lane: {error}");
                        attaching.end();
                    }
                }
            });
        if let Err(error) = acceptor {
            log::error!("cannot start the thread that takes payload lanes: {error}");
        }
        let mut session = Session::new(Arc::clone(&shared), &self.devices);
        let result = serve(&mut session, &shared, &*command);
        if let Err(RunError::Protocol(error)) = &result {
            shared.close(error);
        }
        shared.end();
        shared.payloads.join();
        session.release_all();
        result
    }
}

/// Takes requests off the command lane until the client leaves.
fn serve(
    session: &mut Session,
    shared: &Arc<Shared>,
    command: &dyn Connection,
) -> Result<(), RunError> {
    let mut reader = FrameReader::new();
    let mut told = 0;
    loop {
        let count = command.recv(reader.space())?;
        if count == 0 {
            return Ok(());
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
            return Ok(());
        }
        if shared.outbox.is_empty() && received - told >= ACKNOWLEDGE_EVERY {
            shared.post(&Push::Ack);
        }
        if !shared.outbox.is_empty() {
            told = received;
            shared.flush();
        }
    }
}
