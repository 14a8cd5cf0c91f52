//! Peer lanes: payload that goes to, or comes from, the worker of another server, without the client.
//!
//! The supervisors make the connection; the client says on both command lanes what goes over it. The receiver decides, as on payload
//! lanes: bytes are sent only where memory is ready for them, straight out of one mapping into another. What goes wrong on a lane ends
//! that lane and the transfers on it, never the session: the client sends such data itself.
//!
//! Memory that a transfer has lent is given back by [`Piece`]'s drop, when neither the lane's threads nor the tables hold it any more.
//! A piece must not be dropped with the lane's state locked: what it does then may come back here.

use std::collections::{HashMap, VecDeque};
use std::io::IoSlice;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use towline_backend::opencl::{CL_DEVICE_NOT_AVAILABLE, CL_INVALID_VALUE};
use towline_session::Landing;
use towline_transport::{Connection, TransportError, recv_exact};
use towline_wire::error::{CloseCode, DecodeError, ProtocolError};
use towline_wire::frame::CHUNK_LIMIT;
use towline_wire::peer::{PEER_FRAME, PeerFrame};

use super::shared::Raw;
use crate::lane::PeerLanes;

/// Status of a transfer whose lane is gone.
const LOST: i32 = CL_DEVICE_NOT_AVAILABLE;

/// Most peer lanes of a session. Each takes two threads.
const LANE_LIMIT: usize = 64;
/// Most payloads and grants that a lane knows at once: bounds what the other worker can pile up here.
const RECORD_LIMIT: usize = 4096;

/// Told the status of a transfer, once its memory is used no more.
type Done = Box<dyn FnOnce(i32) + Send>;

/// All peer lanes of a session.
#[derive(Default)]
pub(crate) struct Peers {
    table: Mutex<Table>,
    arrived: Condvar,
}

#[derive(Default)]
struct Table {
    lanes: HashMap<u64, Arc<PeerLane>>,
    threads: Vec<JoinHandle<()>>,
    stopped: bool,
}

/// One peer lane.
pub(crate) struct PeerLane {
    connection: Arc<dyn Connection>,
    step: u64,
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Default)]
struct State {
    over: bool,
    /// Everything but chunks goes first: the other side waits for it.
    frames: VecDeque<PeerFrame>,
    chunks: VecDeque<Chunk>,
    sends: HashMap<u64, Outgoing>,
    receives: HashMap<u64, Incoming>,
}

/// A payload that goes to the other worker.
#[derive(Default)]
struct Outgoing {
    /// What the client says; `None` while only the other worker has spoken of it.
    size: Option<u64>,
    /// What the other worker says.
    wanted: Option<u64>,
    /// Bytes granted so far.
    granted: u64,
    /// Granted, but the memory is not ready.
    waiting: Vec<(u64, u64)>,
    memory: Option<Arc<Piece>>,
    /// It will not be sent.
    failed: Option<i32>,
    /// We have said so, and the other worker has not answered.
    answer_due: bool,
    /// The client's request has been dealt with.
    settled: bool,
}

/// A payload that comes from the other worker.
enum Incoming {
    /// The client has asked for it; memory is not ready.
    Asked,
    /// It was said not to come before memory was ready, or before it was asked for.
    Failed(i32),
    Open(Arc<Window>),
    /// We want none of it, and the other worker has not answered.
    Refused,
}

/// Memory that a transfer has lent to a lane.
struct Piece {
    memory: Raw,
    /// Bytes that have neither been sent nor come.
    left: AtomicU64,
    /// What its drop tells while some are left.
    failure: AtomicI32,
    done: Mutex<Option<Done>>,
}

impl Piece {
    fn new(memory: Raw, size: u64, done: Done) -> Self {
        Self {
            memory,
            left: AtomicU64::new(size),
            failure: AtomicI32::new(LOST),
            done: Mutex::new(Some(done)),
        }
    }

    fn fail(&self, status: i32) {
        self.failure.store(status, Ordering::Release);
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        let status = match self.left.load(Ordering::Acquire) {
            0 => 0,
            _ => self.failure.load(Ordering::Acquire),
        };
        if let Some(done) = lock(&self.done).take() {
            done(status);
        }
    }
}

/// Memory that is ready to take a payload.
struct Window {
    piece: Piece,
    landing: Mutex<Landing>,
}

/// Bytes to send.
struct Chunk {
    payload: u64,
    offset: u64,
    length: u32,
    piece: Arc<Piece>,
}

/// Why a lane ended.
#[derive(Debug, thiserror::Error)]
enum LaneError {
    #[error("the other worker broke the protocol: {0}")]
    Broken(String),
    #[error("the other worker broke the protocol: {0}")]
    Decode(#[from] DecodeError),
    #[error(transparent)]
    Transport(#[from] TransportError),
}

impl Peers {
    /// The lane of this number.
    pub(crate) fn lane(&self, number: u64) -> Option<Arc<PeerLane>> {
        self.table().lanes.get(&number).cloned()
    }

    /// Waits for a lane; whether it came in time.
    pub(crate) fn wait(&self, number: u64, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        let mut table = self.table();
        loop {
            if table.lanes.contains_key(&number) {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if table.stopped || left.is_zero() {
                return false;
            }
            table = self
                .arrived
                .wait_timeout(table, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PeerLanes for Peers {
    fn attach(
        &self,
        number: u64,
        connection: Arc<dyn Connection>,
        chunk_bytes: u64,
    ) -> std::io::Result<()> {
        let mut table = self.table();
        if table.stopped || table.lanes.len() >= LANE_LIMIT || table.lanes.contains_key(&number) {
            log::warn!("peer lane {number} has no place");
            connection.shutdown();
            return Ok(());
        }
        let lane = Arc::new(PeerLane {
            connection,
            step: chunk_bytes.clamp(1, CHUNK_LIMIT as u64),
            state: Mutex::default(),
            work: Condvar::new(),
        });
        let (receiving, sending) = (Arc::clone(&lane), Arc::clone(&lane));
        let receiver = std::thread::Builder::new()
            .name("towline-peer-in".into())
            .spawn(move || {
                if let Err(error) = receiving.receive() {
                    log::debug!("peer lane {number}: {error}");
                }
                receiving.end();
            })?;
        table.threads.push(receiver);
        let sender = std::thread::Builder::new()
            .name("towline-peer-out".into())
            .spawn(move || {
                if let Err(error) = sending.transmit() {
                    log::debug!("peer lane {number}: {error}");
                }
                sending.end();
            })
            .inspect_err(|_| lane.connection.shutdown())?;
        table.threads.push(sender);
        table.lanes.insert(number, lane);
        drop(table);
        self.arrived.notify_all();
        Ok(())
    }

    fn shutdown(&self) {
        let mut table = self.table();
        table.stopped = true;
        for lane in table.lanes.values() {
            lane.connection.shutdown();
        }
        drop(table);
        self.arrived.notify_all();
    }

    fn join(&self) {
        self.shutdown();
        let threads = std::mem::take(&mut self.table().threads);
        for thread in threads {
            // A thread that panicked has logged it; there is nothing to add.
            let _ = thread.join();
        }
        let lanes = std::mem::take(&mut self.table().lanes);
        lanes.into_values().for_each(|lane| lane.end());
    }
}

impl PeerLane {
    /// The client wants `size` bytes sent as `payload`. To be followed by [`Self::send`] or [`Self::fail`].
    pub(crate) fn begin_send(&self, payload: u64, size: u64) -> Result<(), ProtocolError> {
        let mut state = self.state();
        if state.over {
            return Ok(());
        }
        let send = state.sends.entry(payload).or_default();
        if send.size.replace(size).is_some() {
            return Err(in_use(payload));
        }
        Ok(())
    }

    /// The memory of a payload is ready to be sent. `done` runs once, when it is used no more.
    pub(crate) fn send(&self, payload: u64, size: u64, memory: Raw, done: Done) {
        let piece = Arc::new(Piece::new(memory, size, done));
        let mut state = self.state();
        let Some(send) = state.sends.get_mut(&payload) else {
            // The lane has ended meanwhile.
            drop(state);
            return;
        };
        send.settled = true;
        match send.failed {
            Some(status) => piece.fail(status),
            None => send.memory = Some(Arc::clone(&piece)),
        }
        let unused = state.proceed(payload, self.step);
        drop(state);
        self.work.notify_one();
        drop((unused, piece));
    }

    /// A payload will not be sent.
    pub(crate) fn fail(&self, payload: u64, status: i32) {
        let mut state = self.state();
        if state.over {
            return;
        }
        let send = state.sends.entry(payload).or_default();
        send.settled = true;
        let unused = state.give_up(payload, status);
        drop(state);
        self.work.notify_one();
        drop(unused);
    }

    /// The client wants to receive `payload`. To be followed by [`Self::open`] or [`Self::refuse`].
    pub(crate) fn begin_receive(&self, payload: u64) -> Result<(), ProtocolError> {
        let mut state = self.state();
        if state.over {
            return Ok(());
        }
        match state.receives.get(&payload) {
            None => {
                state.receives.insert(payload, Incoming::Asked);
                Ok(())
            }
            Some(Incoming::Failed(_)) => Ok(()),
            Some(_) => Err(in_use(payload)),
        }
    }

    /// Lets a payload land in `memory`. `done` runs once, when it has, or will not.
    pub(crate) fn open(&self, payload: u64, size: u64, memory: Raw, done: Done) {
        let window = Arc::new(Window {
            piece: Piece::new(memory, size, done),
            landing: Mutex::new(Landing::new(size)),
        });
        let mut state = self.state();
        match state.receives.get_mut(&payload) {
            Some(Incoming::Failed(status)) => {
                window.piece.fail(*status);
                state.receives.remove(&payload);
            }
            Some(incoming) => {
                *incoming = Incoming::Open(Arc::clone(&window));
                state.frames.push_back(PeerFrame::Grant {
                    payload,
                    offset: 0,
                    length: size,
                    size,
                });
            }
            // The lane has ended meanwhile.
            None => {}
        }
        drop(state);
        self.work.notify_one();
    }

    /// A payload that was asked for is not wanted any more.
    pub(crate) fn refuse(&self, payload: u64, status: i32) {
        let mut state = self.state();
        if state.over {
            return;
        }
        match state.receives.get_mut(&payload) {
            Some(Incoming::Failed(_)) => {
                state.receives.remove(&payload);
            }
            _ => {
                state.receives.insert(payload, Incoming::Refused);
                state
                    .frames
                    .push_back(PeerFrame::Refuse { payload, status });
            }
        }
        drop(state);
        self.work.notify_one();
    }

    /// Ends the lane and every transfer on it.
    fn end(&self) {
        let mut state = self.state();
        state.over = true;
        let left = (
            std::mem::take(&mut state.sends),
            std::mem::take(&mut state.receives),
            std::mem::take(&mut state.chunks),
        );
        drop(state);
        self.connection.shutdown();
        self.work.notify_all();
        drop(left);
    }

    fn receive(&self) -> Result<(), LaneError> {
        loop {
            let mut header = [0; PEER_FRAME];
            recv_exact(&*self.connection, &mut header)?;
            match PeerFrame::from_bytes(&header)? {
                PeerFrame::Chunk {
                    payload,
                    offset,
                    length,
                } => self.land(payload, offset, length)?,
                PeerFrame::Grant {
                    payload,
                    offset,
                    length,
                    size,
                } => self.granted(payload, (offset, length), size)?,
                PeerFrame::NoData { payload, status } => self.no_data(payload, status)?,
                PeerFrame::Refuse { payload, status } => self.refused(payload, status)?,
                PeerFrame::Over { payload } => self.answered(payload)?,
            }
        }
    }

    /// Takes a chunk off the lane.
    fn land(&self, payload: u64, offset: u64, length: u32) -> Result<(), LaneError> {
        let window = match self.state().receives.get(&payload) {
            Some(Incoming::Open(window)) => Arc::clone(window),
            _ => {
                return Err(LaneError::Broken(format!(
                    "payload {payload} was not granted"
                )));
            }
        };
        let claim = lock(&window.landing)
            .claim(offset, length.into())
            .map_err(|error| LaneError::Broken(error.to_string()))?;
        let place = window.piece.memory.0.wrapping_byte_add(offset as usize);
        // SAFETY: the memory is valid until the piece is dropped, which this window holds; the claim gave these bytes to this thread,
        // the only one that receives.
        let bytes = unsafe { std::slice::from_raw_parts_mut(place.cast::<u8>(), length as usize) };
        recv_exact(&*self.connection, bytes)?;
        let whole = lock(&window.landing).arrived(claim);
        if whole.is_some() {
            window.piece.left.store(0, Ordering::Release);
            // The table's reference must go outside the lock, and before this one.
            let whole = self.state().receives.remove(&payload);
            drop(whole);
        }
        Ok(())
    }

    fn granted(&self, payload: u64, bytes: (u64, u64), size: u64) -> Result<(), LaneError> {
        let mut state = self.state();
        let records = state.sends.len();
        let send = match state.sends.get_mut(&payload) {
            Some(send) => send,
            None if records < RECORD_LIMIT => state.sends.entry(payload).or_default(),
            None => return Err(LaneError::Broken("too many payloads".into())),
        };
        send.granted = send.granted.saturating_add(bytes.1);
        if *send.wanted.get_or_insert(size) != size || send.granted > size {
            return Err(LaneError::Broken(format!(
                "more than payload {payload} is granted"
            )));
        }
        if send.waiting.len() >= RECORD_LIMIT {
            return Err(LaneError::Broken("too many grants".into()));
        }
        send.waiting.push(bytes);
        let unused = state.proceed(payload, self.step);
        drop(state);
        self.work.notify_one();
        drop(unused);
        Ok(())
    }

    fn no_data(&self, payload: u64, status: i32) -> Result<(), LaneError> {
        let mut state = self.state();
        if state.frames.len() >= RECORD_LIMIT || state.receives.len() >= RECORD_LIMIT {
            return Err(LaneError::Broken("too many payloads".into()));
        }
        state.frames.push_back(PeerFrame::Over { payload });
        let before = match state.receives.remove(&payload) {
            Some(Incoming::Open(window)) => {
                window.piece.fail(status);
                Some(window)
            }
            Some(Incoming::Refused) => None,
            Some(Incoming::Asked | Incoming::Failed(_)) | None => {
                state.receives.insert(payload, Incoming::Failed(status));
                None
            }
        };
        drop(state);
        self.work.notify_one();
        drop(before);
        Ok(())
    }

    fn refused(&self, payload: u64, status: i32) -> Result<(), LaneError> {
        let mut state = self.state();
        if state.sends.len() >= RECORD_LIMIT || state.frames.len() >= RECORD_LIMIT {
            return Err(LaneError::Broken("too many payloads".into()));
        }
        state.sends.entry(payload).or_default();
        let unused = state.give_up(payload, status);
        drop(state);
        self.work.notify_one();
        drop(unused);
        Ok(())
    }

    fn answered(&self, payload: u64) -> Result<(), LaneError> {
        let mut state = self.state();
        match state.sends.get_mut(&payload) {
            Some(send) if send.answer_due => send.answer_due = false,
            _ => {
                return Err(LaneError::Broken(format!(
                    "payload {payload} was not given up"
                )));
            }
        }
        state.forget(payload);
        Ok(())
    }

    fn transmit(&self) -> Result<(), LaneError> {
        while let Some(next) = self.next() {
            match next {
                Next::Frame(frame) => self.connection.send(&[IoSlice::new(&frame.to_bytes())])?,
                Next::Chunk(chunk) => {
                    let frame = PeerFrame::Chunk {
                        payload: chunk.payload,
                        offset: chunk.offset,
                        length: chunk.length,
                    };
                    let place = chunk
                        .piece
                        .memory
                        .0
                        .wrapping_byte_add(chunk.offset as usize);
                    // SAFETY: the memory is valid until the piece is dropped, which this chunk holds; the grant lies inside it.
                    let bytes = unsafe {
                        std::slice::from_raw_parts(place.cast::<u8>(), chunk.length as usize)
                    };
                    self.connection
                        .send(&[IoSlice::new(&frame.to_bytes()), IoSlice::new(bytes)])?;
                    chunk
                        .piece
                        .left
                        .fetch_sub(chunk.length.into(), Ordering::AcqRel);
                }
            }
        }
        Ok(())
    }

    /// What to send next; `None` when the lane is over.
    fn next(&self) -> Option<Next> {
        let mut state = self.state();
        loop {
            if state.over {
                return None;
            }
            if let Some(frame) = state.frames.pop_front() {
                return Some(Next::Frame(frame));
            }
            if let Some(chunk) = state.chunks.pop_front() {
                return Some(Next::Chunk(chunk));
            }
            state = self
                .work
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// What a lane sends next.
enum Next {
    Frame(PeerFrame),
    Chunk(Chunk),
}

/// Pieces to be dropped once the state is unlocked.
type Unused = Vec<Arc<Piece>>;

impl State {
    /// Queues what is granted and ready of a payload.
    #[must_use]
    fn proceed(&mut self, payload: u64, step: u64) -> Unused {
        let Some(send) = self.sends.get_mut(&payload) else {
            return Unused::new();
        };
        if send.failed.is_some() {
            send.waiting.clear();
            self.forget(payload);
            return Unused::new();
        }
        if let (Some(size), Some(wanted)) = (send.size, send.wanted)
            && size != wanted
        {
            return self.give_up(payload, CL_INVALID_VALUE);
        }
        let Some(piece) = &send.memory else {
            return Unused::new();
        };
        for (start, length) in send.waiting.drain(..) {
            for offset in (0..length).step_by(usize::try_from(step).unwrap_or(1)) {
                self.chunks.push_back(Chunk {
                    payload,
                    offset: start + offset,
                    length: (length - offset).min(step) as u32,
                    piece: Arc::clone(piece),
                });
            }
        }
        if send.wanted == Some(send.granted) {
            // The chunks hold the memory from now on.
            let send = self.sends.remove(&payload);
            return send.and_then(|send| send.memory).into_iter().collect();
        }
        Unused::new()
    }

    /// Ends a payload that goes out, and tells the other worker.
    #[must_use]
    fn give_up(&mut self, payload: u64, status: i32) -> Unused {
        let Some(send) = self.sends.get_mut(&payload) else {
            return Unused::new();
        };
        let mut unused = Unused::new();
        if send.failed.is_none() {
            send.failed = Some(status);
            send.answer_due = true;
            send.waiting.clear();
            self.frames.push_back(PeerFrame::NoData { payload, status });
            unused.extend(send.memory.take());
            let (ours, others): (VecDeque<Chunk>, VecDeque<Chunk>) =
                std::mem::take(&mut self.chunks)
                    .into_iter()
                    .partition(|chunk| chunk.payload == payload);
            self.chunks = others;
            unused.extend(ours.into_iter().map(|chunk| chunk.piece));
            unused.iter().for_each(|piece| piece.fail(status));
        }
        self.forget(payload);
        unused
    }

    /// Forgets a payload that has failed, once the client's request and the other worker's answer have come.
    fn forget(&mut self, payload: u64) {
        let through = |send: &Outgoing| send.failed.is_some() && send.settled && !send.answer_due;
        if self.sends.get(&payload).is_some_and(through) {
            self.sends.remove(&payload);
        }
    }
}

fn in_use(payload: u64) -> ProtocolError {
    ProtocolError::new(
        CloseCode::DuplicateHandle,
        format!("payload {payload} of a peer lane is in use"),
    )
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
