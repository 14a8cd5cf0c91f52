//! Payload lanes: bulk data beside the command lane.
//!
//! The receiver decides: a client sends payload only into windows that were granted, so a lane never carries bytes that have no
//! place to go, whatever waits for whatever on the device. Chunks of one payload travel on all lanes at once.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::io::IoSlice;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use towline_session::{Claim, Landing};
use towline_transport::{Connection, TransportError, recv_exact};
use towline_wire::error::{CloseCode, ProtocolError};
use towline_wire::frame::{CHUNK_HEADER, ChunkHeader};

use crate::link::{Link, Raw};

type Done = Box<dyn FnOnce(bool) + Send>;

/// A granted part of a payload: memory that is ready to take it.
struct Window {
    offset: u64,
    length: u64,
    memory: Raw,
    landing: Mutex<Landing>,
    done: Mutex<Option<Done>>,
}

/// A payload on its way to the client.
struct Outgoing {
    payload: u64,
    offset: u64,
    length: u64,
    next: u64,
    step: u64,
    memory: Raw,
    flight: Arc<Flight>,
}

/// Bytes of an outgoing window that no lane has taken, and what comes after the last.
struct Flight {
    left: AtomicU64,
    /// A lane did not take its chunk.
    failed: AtomicBool,
    done: Mutex<Option<Done>>,
}

/// All payload of a session.
pub(crate) struct Payloads {
    chunk_bytes: u64,
    windows: Mutex<HashMap<u64, Vec<Arc<Window>>>>,
    outgoing: Mutex<VecDeque<Outgoing>>,
    work: Condvar,
    lanes: Mutex<Lanes>,
}

#[derive(Default)]
struct Lanes {
    connections: Vec<Arc<dyn Connection>>,
    threads: Vec<std::thread::JoinHandle<()>>,
    stopped: bool,
}

/// Most payload lanes: the protocol's limit. Each takes two threads.
const LANE_LIMIT: usize = towline_wire::control::limits::LANES as usize;
/// Most payloads with open windows at once: bounds what grants a session can pile up.
const WINDOW_LIMIT: usize = 1 << 16;

/// Smallest share of a payload that is worth a lane of its own: small payload is spread over the lanes, so that their copies run
/// side by side.
const SHARE: u64 = 128 << 10;
/// The lanes of a session that its client ends, or that lose it, end within this time of each other.
const TOGETHER: Duration = Duration::from_millis(250);

impl Payloads {
    pub(crate) fn new(chunk_bytes: u64) -> Self {
        Self {
            chunk_bytes: chunk_bytes.max(1),
            windows: Mutex::default(),
            outgoing: Mutex::default(),
            work: Condvar::new(),
            lanes: Mutex::default(),
        }
    }

    /// Opens `memory` for bytes `offset..offset + length` of `payload`; `done` runs once, when all have come or the session ends.
    pub(crate) fn open(
        &self,
        payload: u64,
        offset: u64,
        length: u64,
        memory: Raw,
        done: Done,
    ) -> Result<(), ProtocolError> {
        let mut windows = lock(&self.windows);
        let stopped = lock(&self.lanes).stopped;
        if stopped {
            drop(windows);
            done(false);
            return Ok(());
        }
        if windows.len() >= WINDOW_LIMIT {
            drop(windows);
            done(false);
            return Err(ProtocolError::new(
                CloseCode::LimitExceeded,
                format!("more than {WINDOW_LIMIT} payloads wait for their data"),
            ));
        }
        let list = windows.entry(payload).or_default();
        if list
            .iter()
            .any(|window| window.offset < offset + length && offset < window.offset + window.length)
        {
            drop(windows);
            done(false);
            return Err(ProtocolError::new(
                CloseCode::DuplicateHandle,
                format!("payload {payload} is in use"),
            ));
        }
        let landing = Mutex::new(Landing::new(length));
        list.push(Arc::new(Window {
            offset,
            length,
            memory,
            landing,
            done: Mutex::new(Some(done)),
        }));
        Ok(())
    }

    /// Sends `memory` as bytes `offset..offset + length` of `payload`; `done` runs once, when the last byte is with the transport or
    /// the session ends.
    pub(crate) fn send(&self, payload: u64, offset: u64, length: u64, memory: Raw, done: Done) {
        let mut outgoing = lock(&self.outgoing);
        if lock(&self.lanes).stopped {
            drop(outgoing);
            return done(false);
        }
        let flight = Arc::new(Flight {
            left: AtomicU64::new(length),
            failed: AtomicBool::new(false),
            done: Mutex::new(Some(done)),
        });
        let share = length.div_ceil(lock(&self.lanes).connections.len().max(1) as u64);
        let step = share
            .next_multiple_of(4096)
            .clamp(SHARE, self.chunk_bytes.max(SHARE));
        outgoing.push_back(Outgoing {
            payload,
            offset,
            length,
            next: 0,
            step,
            memory,
            flight,
        });
        drop(outgoing);
        self.work.notify_all();
    }

    /// Wakes all lane threads and has them end; [`Self::join`] ends what is under way.
    pub(crate) fn shutdown(&self) {
        let connections = {
            let mut lanes = lock(&self.lanes);
            lanes.stopped = true;
            std::mem::take(&mut lanes.connections)
        };
        for connection in connections {
            connection.shutdown();
        }
        // Whoever looks at the flag does so with this lock held: nobody goes to sleep between our setting it and this.
        drop(lock(&self.outgoing));
        self.work.notify_all();
    }

    /// Waits for the lane threads, then gives up what never came or went: its memory is not given back before, because a lane may
    /// still be at a part of it. Nothing touches payload memory afterwards.
    pub(crate) fn join(&self) {
        self.shutdown();
        let threads = std::mem::take(&mut lock(&self.lanes).threads);
        for thread in threads {
            // A lane thread that panicked has logged it; there is nothing to add.
            let _ = thread.join();
        }
        let outgoing = std::mem::take(&mut *lock(&self.outgoing));
        for job in outgoing {
            if let Some(done) = lock(&job.flight.done).take() {
                done(false);
            }
        }
        let windows = std::mem::take(&mut *lock(&self.windows));
        for window in windows.into_values().flatten() {
            if let Some(done) = lock(&window.done).take() {
                done(false);
            }
        }
    }

    /// Starts the two threads of a payload lane.
    pub(crate) fn attach(link: &Arc<Link>, connection: Arc<dyn Connection>) -> std::io::Result<()> {
        let mut lanes = lock(&link.payloads.lanes);
        if lanes.stopped || lanes.connections.len() >= LANE_LIMIT {
            connection.shutdown();
            return Ok(());
        }
        lanes.connections.push(Arc::clone(&connection));
        let (receiving, sending) = (Arc::clone(link), Arc::clone(link));
        let incoming = Arc::clone(&connection);
        let receiver = std::thread::Builder::new()
            .name("towline-payload-in".into())
            .spawn(
                move || match receiving.payloads.receive(&receiving, &*incoming) {
                    Ok(never) => match never {},
                    Err(LaneError::Transport(error)) => {
                        if !receiving.payloads.ends_soon() {
                            let detail = format!("a payload connection: {error}");
                            receiving.close(&ProtocolError::new(CloseCode::LaneLost, detail));
                        }
                    }
                    Err(LaneError::Protocol(error)) => receiving.close(&error),
                },
            )?;
        lanes.threads.push(receiver);
        let sender = std::thread::Builder::new()
            .name("towline-payload-out".into())
            .spawn(move || {
                while let Some(chunk) = sending.payloads.next_chunk() {
                    sending.payloads.send_chunk(&sending, &*connection, chunk);
                }
            })?;
        lanes.threads.push(sender);
        Ok(())
    }

    /// Whether the session ends by itself: the lanes of a client that leaves end together. Otherwise the client must be told that one is
    /// gone, since its own end may look sound: it would send on into nothing, and wait for ever.
    fn ends_soon(&self) -> bool {
        let goes_on = |_: &mut VecDeque<Outgoing>| !lock(&self.lanes).stopped;
        let outgoing = lock(&self.outgoing);
        let waited = self.work.wait_timeout_while(outgoing, TOGETHER, goes_on);
        let (_outgoing, time) = waited.unwrap_or_else(PoisonError::into_inner);
        !time.timed_out()
    }

    /// Takes chunks off a lane until it ends.
    fn receive(&self, link: &Link, connection: &dyn Connection) -> Result<Infallible, LaneError> {
        loop {
            let mut header = [0; CHUNK_HEADER];
            recv_exact(connection, &mut header)?;
            let chunk = ChunkHeader::from_bytes(&header).map_err(ProtocolError::from)?;
            let (window, claim, memory) = self.claim(chunk)?;
            // SAFETY: the window's memory is valid until `done` has run, which waits for this chunk; the claim gave these bytes to
            // this thread alone.
            let bytes = unsafe {
                std::slice::from_raw_parts_mut(memory.0.cast::<u8>(), chunk.length as usize)
            };
            recv_exact(connection, bytes)?;
            link.counters
                .received_bytes
                .fetch_add(u64::from(chunk.length), Ordering::Relaxed);
            let whole = lock(&window.landing).arrived(claim);
            if whole.is_some() {
                let mut windows = lock(&self.windows);
                if let Some(list) = windows.get_mut(&chunk.payload) {
                    list.retain(|other| !Arc::ptr_eq(other, &window));
                    if list.is_empty() {
                        windows.remove(&chunk.payload);
                    }
                }
                drop(windows);
                if let Some(done) = lock(&window.done).take() {
                    done(true);
                }
            }
        }
    }

    /// The window of a chunk, and where in memory its bytes go.
    fn claim(&self, chunk: ChunkHeader) -> Result<(Arc<Window>, Claim, Raw), ProtocolError> {
        let unexpected = |detail: String| ProtocolError::new(CloseCode::UnexpectedPayload, detail);
        let window = {
            let windows = lock(&self.windows);
            let list = windows
                .get(&chunk.payload)
                .map(Vec::as_slice)
                .unwrap_or_default();
            let holds = |window: &&Arc<Window>| {
                window.offset <= chunk.offset && chunk.offset - window.offset < window.length
            };
            list.iter().find(holds).cloned()
        };
        let window = window.ok_or_else(|| {
            unexpected(format!(
                "payload {} was not granted at {}",
                chunk.payload, chunk.offset
            ))
        })?;
        let within = chunk.offset - window.offset;
        let claim = lock(&window.landing)
            .claim(within, chunk.length.into())
            .map_err(|error| unexpected(format!("payload {}: {error}", chunk.payload)))?;
        let memory = Raw(window.memory.0.wrapping_byte_add(within as usize));
        Ok((window, claim, memory))
    }

    /// The next chunk to send; `None` when the session is over.
    fn next_chunk(&self) -> Option<Chunk> {
        let mut outgoing = lock(&self.outgoing);
        loop {
            if lock(&self.lanes).stopped {
                return None;
            }
            if let Some(job) = outgoing.front_mut() {
                let length = (job.length - job.next).min(job.step);
                let chunk = Chunk {
                    header: ChunkHeader {
                        payload: job.payload,
                        offset: job.offset + job.next,
                        length: length as u32,
                    },
                    memory: Raw(job.memory.0.wrapping_byte_add(job.next as usize)),
                    flight: Arc::clone(&job.flight),
                };
                job.next += length;
                if job.next == job.length {
                    outgoing.pop_front();
                }
                return Some(chunk);
            }
            outgoing = self
                .work
                .wait(outgoing)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn send_chunk(&self, link: &Link, connection: &dyn Connection, chunk: Chunk) {
        // SAFETY: the memory is valid until `done` has run, which waits for this chunk.
        let bytes = unsafe {
            std::slice::from_raw_parts(chunk.memory.0.cast::<u8>(), chunk.header.length as usize)
        };
        let sent = connection.send(&[IoSlice::new(&chunk.header.to_bytes()), IoSlice::new(bytes)]);
        link.counters
            .sent_bytes
            .fetch_add(u64::from(chunk.header.length), Ordering::Relaxed);
        let length = u64::from(chunk.header.length);
        if sent.is_err() {
            chunk.flight.failed.store(true, Ordering::Relaxed);
            // Before anything is told of the payload: a lane that is gone is the session's end, not a failure of one read.
            link.end();
        }
        let last = chunk.flight.left.fetch_sub(length, Ordering::AcqRel) == length;
        if last && let Some(done) = lock(&chunk.flight.done).take() {
            done(!chunk.flight.failed.load(Ordering::Relaxed));
        }
    }
}

/// One chunk to send.
struct Chunk {
    header: ChunkHeader,
    memory: Raw,
    flight: Arc<Flight>,
}

/// Why a payload lane ended.
enum LaneError {
    Transport(TransportError),
    Protocol(ProtocolError),
}

impl From<TransportError> for LaneError {
    fn from(error: TransportError) -> Self {
        Self::Transport(error)
    }
}

impl From<ProtocolError> for LaneError {
    fn from(error: ProtocolError) -> Self {
        Self::Protocol(error)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
