//! One session's command lane at the client: posting, waiting, and reading what the server pushes.
//!
//! **Posting** appends to the outbox. Over shared memory the caller then sends: it is a copy, and a thread that did it instead would have
//! to look for work all the time, on a processor that may be the caller's own second half. Over sockets a sender thread takes what has
//! gathered, so a burst of launches goes out in few segments; while that sleeps, the caller sends for itself, and a request that comes
//! alone does not wake it. Over either, what the lane does not take at once is the sender's.
//! **Waiting** threads send for themselves, and the first of them reads the lane for all ("whoever waits, reads"): a round trip needs no
//! thread switch at the client. A background thread reads only while something is outstanding that no caller waits for: data of
//! non-blocking reads, granted writes, callbacks.
//!
//! Lock order: `inbound`, then `state`. A thread that holds `state` may only *try* `inbound`.

use std::io::IoSlice;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, TryLockError};
use std::time::{Duration, Instant};

use smallvec::SmallVec;
use towline_backend::opencl::{CL_DEVICE_NOT_AVAILABLE, CL_OUT_OF_RESOURCES, Request};
use towline_session::{HANDLE_BASE, Outbox};
use towline_transport::{Connection, TransportError};
use towline_wire::error::{CloseCode, ProtocolError};
use towline_wire::frame::FrameReader;
use towline_wire::push::Push;

use crate::meter::Meter;
use crate::payload::Payload;
use crate::state::{Callback, HeldWhat, Reply, Slot, State};
use crate::tuning::{OUTBOX_LIMIT, tuning};

/// What every OpenCL call on a lost session answers: the device is not available any more.
pub(crate) const LOST: i32 = CL_DEVICE_NOT_AVAILABLE;

/// What differs between the APIs that a session can speak.
pub(crate) struct Vocabulary {
    /// What every call on a lost session answers.
    pub(crate) lost: i32,
    /// What a call answers that could not be posted.
    pub(crate) unposted: i32,
    pub(crate) call_name: fn(u16) -> Option<&'static str>,
    pub(crate) status_name: fn(i32) -> Option<&'static str>,
}

/// OpenCL's.
pub(crate) const OPENCL: &Vocabulary = &Vocabulary {
    lost: LOST,
    unposted: CL_OUT_OF_RESOURCES,
    call_name: towline_wire::opencl::call_name,
    status_name: towline_wire::opencl::status_name,
};

/// Requests further apart than this come alone: a program that computes between them has time to send each.
const ALONE: Duration = Duration::from_micros(10);
/// How long a broken lane leaves the server to say why the session ends.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// See the module's text.
pub(crate) struct Link {
    name: String,
    vocabulary: &'static Vocabulary,
    /// `None` once a session that moved has left it.
    lane: RwLock<Option<Arc<dyn Connection>>>,
    outbox: Outbox,
    pending: AtomicBool,
    /// The lane is memory that the server shares, so that sending costs less than to have another thread send.
    sends_itself: bool,
    /// A wait has just ended, and nothing was posted since: the server has nothing to do.
    lull: AtomicBool,
    /// When a caller last sent for the sleeping sender, in nanoseconds of the session.
    sent_last: AtomicU64,
    began: Instant,
    inbound: Mutex<FrameReader>,
    received: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
    interest: AtomicUsize,
    interested: (Mutex<()>, Condvar),
    sender: OnceLock<std::thread::Thread>,
    sender_parked: AtomicBool,
    /// The sender is parked, or has been woken and does not run yet, which takes as long as a dozen launches.
    sender_asleep: AtomicBool,
    /// Who posts sends meanwhile; not where cores are few, so that the sender mostly sleeps.
    sends_for_sleeper: bool,
    next_handle: AtomicU64,
    lost: OnceLock<String>,
    /// An execution fault that every later call answers with; 0 while there is none.
    fault: AtomicI32,
    /// Somebody listens on the control connection, and will say why the session ends.
    explained: AtomicBool,
    ending: (Mutex<()>, Condvar),
    pub(crate) payload: Payload,
    pub(crate) meter: Meter,
}

impl Link {
    /// Takes over a command lane and its payload lanes.
    pub(crate) fn start(
        name: &str,
        lane: Arc<dyn Connection>,
        payload: Vec<Arc<dyn Connection>>,
        chunk_bytes: u64,
        vocabulary: &'static Vocabulary,
    ) -> std::io::Result<Arc<Self>> {
        let link = Arc::new(Self {
            name: name.into(),
            vocabulary,
            sends_itself: lane.shares_memory(),
            lull: AtomicBool::new(false),
            sent_last: AtomicU64::new(0),
            began: Instant::now(),
            lane: RwLock::new(Some(lane)),
            outbox: Outbox::new(),
            pending: AtomicBool::new(false),
            inbound: Mutex::new(FrameReader::new()),
            received: AtomicU64::new(0),
            state: Mutex::default(),
            changed: Condvar::new(),
            interest: AtomicUsize::new(0),
            interested: (Mutex::new(()), Condvar::new()),
            sender: OnceLock::new(),
            sender_parked: AtomicBool::new(false),
            sender_asleep: AtomicBool::new(false),
            sends_for_sleeper: !tuning().spin.is_zero(),
            next_handle: AtomicU64::new(Self::FIRST_NUMBER),
            lost: OnceLock::new(),
            fault: AtomicI32::new(0),
            explained: AtomicBool::new(false),
            ending: (Mutex::new(()), Condvar::new()),
            payload: Payload::new(payload, chunk_bytes),
            meter: Meter::default(),
        });
        let sending = Arc::clone(&link);
        let thread = std::thread::Builder::new()
            .name("towline-send".into())
            .spawn(move || sending.send_loop())?;
        let _ = link.sender.set(thread.thread().clone());
        let reading = Arc::clone(&link);
        std::thread::Builder::new()
            .name("towline-read".into())
            .spawn(move || reading.read_loop())?;
        Payload::start(&link)?;
        Ok(link)
    }

    /// The server, for messages.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// A new handle of a kind. Its bits tell the kind, so an argument's value can be told from plain data.
    pub(crate) fn mint(&self, tag: u8) -> u64 {
        HANDLE_BASE | (u64::from(tag) << 40) | self.next_handle.fetch_add(1, Ordering::Relaxed)
    }

    /// The first of `count` handles of a kind in a row.
    pub(crate) fn mint_many(&self, tag: u8, count: u64) -> u64 {
        let first = self.next_handle.fetch_add(count, Ordering::Relaxed);
        HANDLE_BASE | (u64::from(tag) << 40) | first
    }

    /// The first number that [`Self::mint`] takes.
    pub(crate) const FIRST_NUMBER: u64 = 1;

    /// The number that [`Self::mint`] takes next.
    pub(crate) fn minted(&self) -> u64 {
        self.next_handle.load(Ordering::Relaxed)
    }

    /// Has [`Self::mint`] take `number` next: handles of another session live on in this one.
    pub(crate) fn count_from(&self, number: u64) {
        self.next_handle.store(number, Ordering::Relaxed);
    }

    /// The command lane.
    fn lane(&self) -> Result<Arc<dyn Connection>, TransportError> {
        let lane = self.lane.read().unwrap_or_else(PoisonError::into_inner);
        lane.clone().ok_or_else(|| TransportError::Closed {
            peer: self.name.clone(),
        })
    }

    /// Whether the server is on this host, and takes descriptors.
    pub(crate) fn shares_memory(&self) -> bool {
        self.lane().is_ok_and(|lane| lane.shares_memory())
    }

    /// Sends a descriptor that the next request to be posted speaks of.
    pub(crate) fn send_descriptor(&self, descriptor: BorrowedFd<'_>) -> Result<(), i32> {
        let sent = self
            .lane()
            .and_then(|lane| lane.send_descriptor(descriptor));
        sent.map_err(|error| {
            self.lane_failed(error.to_string());
            self.vocabulary.lost
        })
    }

    /// After the end: gives connections and buffers back, although the link may be held for long.
    pub(crate) fn clear(&self) {
        *self.lane.write().unwrap_or_else(PoisonError::into_inner) = None;
        *self.inbound.lock().unwrap_or_else(PoisonError::into_inner) = FrameReader::new();
        self.payload.clear();
        self.outbox.clear();
    }

    /// Why the session is over, when it is.
    pub(crate) fn lost(&self) -> Option<&str> {
        self.lost.get().map(String::as_str)
    }

    /// The fault that ended the device's work for this session, or 0.
    pub(crate) fn fault(&self) -> i32 {
        self.fault.load(Ordering::Relaxed)
    }

    /// The state, locked.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Posts a request, one way.
    #[inline]
    pub(crate) fn post<'a, R: Request<'a>>(&self, request: &R) -> Result<u64, i32> {
        self.post_batch(|batch| batch.post(R::ID, |out| request.encode(out)))
    }

    /// Posts several requests that nothing may come between.
    #[inline]
    pub(crate) fn post_batch<T>(
        &self,
        fill: impl FnOnce(&mut towline_session::Batch<'_>) -> T,
    ) -> Result<T, i32> {
        if self.lost.get().is_some() {
            return Err(self.vocabulary.lost);
        }
        let mut result = None;
        let waiting = self.outbox.post_all(|batch| result = Some(fill(batch)));
        self.meter.requested();
        let lull = self.lull.load(Ordering::Relaxed) && self.lull.swap(false, Ordering::Relaxed);
        if self.sends_itself && self.try_flush() {
            return result.ok_or(self.vocabulary.unposted);
        }
        self.pending.store(true, Ordering::SeqCst);
        let asleep = !self.sends_itself
            && self.sends_for_sleeper
            && self.sender_asleep.load(Ordering::SeqCst);
        if asleep {
            let began = self.began.elapsed().as_nanos() as u64;
            let pause = began.saturating_sub(self.sent_last.load(Ordering::Relaxed));
            // A single request is no reason to wake anybody.
            if !lull && pause < ALONE.as_nanos() as u64 {
                self.wake_sender();
            }
            self.flush();
            let ended = self.began.elapsed().as_nanos() as u64;
            self.sent_last.store(ended, Ordering::Relaxed);
        } else if waiting > OUTBOX_LIMIT {
            self.flush();
        } else {
            self.wake_sender();
        }
        result.ok_or(self.vocabulary.unposted)
    }

    fn wake_sender(&self) {
        if self.sender_parked.load(Ordering::SeqCst)
            && self.sender_parked.swap(false, Ordering::SeqCst)
        {
            self.sender.get().inspect(|sender| sender.unpark());
        }
    }

    /// Sends a request and waits for its answer; `call` is the API call that waits.
    pub(crate) fn ask<'a, R: Request<'a>>(
        &self,
        call: &'static str,
        request: &R,
    ) -> Result<Reply, i32> {
        let started = Instant::now();
        let number = self.ask_only(request)?;
        self.meter.requested();
        let reply = self.wait_reply(number, tuning().spin_for_answer);
        self.meter.waited(call, started.elapsed());
        reply
    }

    /// Sends a request whose answer somebody will wait for with [`Self::wait_reply`]; gives its number.
    pub(crate) fn ask_only<'a, R: Request<'a>>(&self, request: &R) -> Result<u64, i32> {
        if self.lost.get().is_some() {
            return Err(self.vocabulary.lost);
        }
        // The slot exists before the answer can come: the number is known under the state's lock.
        let number = {
            let mut state = self.state();
            let (number, _) = self.outbox.post(R::ID, |out| request.encode(out));
            state.replies.insert(number, Slot::Asked);
            number
        };
        self.flush();
        Ok(number)
    }

    /// As [`Self::ask`], but no wait of the application's: it does not count.
    pub(crate) fn measure<'a, R: Request<'a>>(&self, request: &R) -> Result<Reply, i32> {
        let number = self.ask_only(request)?;
        self.wait_reply(number, tuning().spin_for_answer)
    }

    /// Waits for the answer to the request of this number: looks for it as long as `patience` lasts, then sleeps.
    pub(crate) fn wait_reply(&self, number: u64, patience: Duration) -> Result<Reply, i32> {
        loop {
            let mut state = self.state();
            match state.replies.get(&number) {
                Some(Slot::Ready(_)) => {
                    if let Some(Slot::Ready(reply)) = state.replies.remove(&number) {
                        self.lull.store(true, Ordering::Relaxed);
                        return Ok(reply);
                    }
                }
                Some(Slot::Held) => {
                    drop(state);
                    self.wait_for(|state| match state.replies.get(&number) {
                        Some(Slot::Held) => None,
                        _ => Some(()),
                    })?;
                    continue;
                }
                Some(Slot::Asked) if self.lost.get().is_none() => {}
                _ => {
                    state.replies.remove(&number);
                    return Err(self.vocabulary.lost);
                }
            }
            // A failure is found at the next turn.
            self.read_or_follow(state, patience);
        }
    }

    /// Waits for something that other threads of this process bring about (payload landing or leaving), while the background thread
    /// reads the lane.
    pub(crate) fn wait_for<T>(
        &self,
        mut ready: impl FnMut(&mut State) -> Option<T>,
    ) -> Result<T, i32> {
        let _interest = self.interest();
        let mut state = self.state();
        loop {
            if let Some(value) = ready(&mut state) {
                return Ok(value);
            }
            if self.lost.get().is_some() {
                return Err(self.vocabulary.lost);
            }
            state.followers += 1;
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
            state.followers -= 1;
        }
    }

    /// As [`Self::wait_for`], for no longer than `patience`; `None` when that is over.
    pub(crate) fn wait_at_most<T>(
        &self,
        patience: Duration,
        mut ready: impl FnMut(&mut State) -> Option<T>,
    ) -> Result<Option<T>, i32> {
        let _interest = self.interest();
        let deadline = Instant::now() + patience;
        let mut state = self.state();
        loop {
            if let Some(value) = ready(&mut state) {
                return Ok(Some(value));
            }
            if self.lost.get().is_some() {
                return Err(self.vocabulary.lost);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            state.followers += 1;
            state = self
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
            state.followers -= 1;
        }
    }

    /// Waits until a read is over: its data landed, or no lane can write to its target any more.
    pub(crate) fn wait_read(&self, payload: u64) {
        let _interest = self.interest();
        let mut state = self.state();
        while state.reads.contains_key(&payload) {
            state.followers += 1;
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
            state.followers -= 1;
        }
    }

    /// Waits until the last byte of a write has left, or no lane can read from its source any more.
    pub(crate) fn wait_write(&self, payload: u64) {
        let _interest = self.interest();
        let mut state = self.state();
        while state.writes.contains_key(&payload) {
            state.followers += 1;
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
            state.followers -= 1;
        }
    }

    /// Waits for small data, which comes on the command lane: this thread reads for itself.
    pub(crate) fn wait_data(&self, payload: u64, patience: Duration) {
        loop {
            let state = self.state();
            if !state.reads.contains_key(&payload) {
                self.lull.store(true, Ordering::Relaxed);
                return;
            }
            if !self.read_or_follow(state, patience) {
                return;
            }
        }
    }

    /// As [`Self::wait_for`], for what is told on the command lane: this thread reads for itself.
    pub(crate) fn wait_told<T>(
        &self,
        mut ready: impl FnMut(&mut State) -> Option<T>,
    ) -> Result<T, i32> {
        loop {
            let mut state = self.state();
            if let Some(value) = ready(&mut state) {
                return Ok(value);
            }
            if self.lost.get().is_some() {
                return Err(self.vocabulary.lost);
            }
            self.read_or_follow(state, tuning().spin_for_answer);
        }
    }

    /// Reads what comes, or waits until whoever does so already has read something; `false` where nobody can any more.
    fn read_or_follow(&self, mut state: MutexGuard<'_, State>, patience: Duration) -> bool {
        match self.inbound.try_lock() {
            Ok(mut inbound) => {
                drop(state);
                self.pump(&mut inbound, Some(patience));
                drop(inbound);
                self.hand_over();
            }
            Err(TryLockError::WouldBlock) => {
                state.followers += 1;
                state = self
                    .changed
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
                state.followers -= 1;
            }
            Err(TryLockError::Poisoned(_)) => {
                drop(state);
                self.fail("a thread died while it read from the server".into());
                return false;
            }
        }
        true
    }

    /// Reads what has come, without waiting; for callers that poll.
    pub(crate) fn poll(&self) {
        if let Ok(mut inbound) = self.inbound.try_lock() {
            self.pump(&mut inbound, None);
            drop(inbound);
            self.hand_over();
        }
    }

    /// Lets the background thread read until the guard goes.
    pub(crate) fn interest(&self) -> Interest<'_> {
        self.raise_interest();
        Interest(self)
    }

    /// As [`Self::interest`], ended by [`Self::lower_interest`].
    pub(crate) fn raise_interest(&self) {
        if self.interest.fetch_add(1, Ordering::SeqCst) == 0 {
            let _held = self
                .interested
                .0
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            self.interested.1.notify_one();
        }
    }

    pub(crate) fn lower_interest(&self) {
        self.interest.fetch_sub(1, Ordering::SeqCst);
    }

    /// Wakes whoever waits for a change of the state.
    pub(crate) fn notify(&self) {
        let mut state = self.state();
        let settled = std::mem::take(&mut state.settled);
        if settled > 0 {
            self.interest.fetch_sub(settled, Ordering::SeqCst);
        }
        if state.followers > 0 {
            self.changed.notify_all();
        }
    }

    /// After reading: somebody who waits may have to read next.
    fn hand_over(&self) {
        self.notify();
    }

    /// Sends everything posted so far.
    pub(crate) fn flush(&self) {
        self.pending.store(false, Ordering::SeqCst);
        let sent = self.outbox.flush(
            || self.received.load(Ordering::Acquire),
            |bytes| {
                self.meter.sent(bytes.len());
                let lane = self.lane()?;
                let done = lane.try_send(bytes)?;
                if let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
                    // The server may be unable to read because nobody here does: somebody must while this thread is stuck.
                    let _interest = self.interest();
                    lane.send(&[IoSlice::new(rest)])?;
                }
                Ok::<(), TransportError>(())
            },
        );
        if let Err(error) = sent {
            self.lane_failed(error.to_string());
        }
    }

    /// Sends what was posted so far as far as that takes no waiting; `false` when the sender has to go on.
    fn try_flush(&self) -> bool {
        let sent = self.outbox.try_flush(
            || self.received.load(Ordering::Acquire),
            |bytes| {
                let taken = self.lane()?.try_send(bytes)?;
                self.meter.sent(taken);
                Ok::<usize, TransportError>(taken)
            },
        );
        sent.unwrap_or_else(|error| {
            self.lane_failed(error.to_string());
            true
        })
    }

    fn send_loop(&self) {
        // Over shared memory it has work only when the ring is full: that is no hint of more.
        let spin = match self.sends_itself {
            true => Duration::ZERO,
            false => tuning().spin_for_request,
        };
        loop {
            if self.lost.get().is_some() {
                return;
            }
            if self.pending.load(Ordering::SeqCst) {
                self.flush();
            }
            if !spin.is_zero() {
                let until = Instant::now() + spin;
                while !self.pending.load(Ordering::Relaxed) && Instant::now() < until {
                    std::hint::spin_loop();
                }
            }
            if self.pending.load(Ordering::SeqCst) {
                continue;
            }
            self.sender_parked.store(true, Ordering::SeqCst);
            self.sender_asleep.store(true, Ordering::SeqCst);
            if !self.pending.load(Ordering::SeqCst) && self.lost.get().is_none() {
                std::thread::park();
            }
            self.sender_asleep.store(false, Ordering::SeqCst);
            self.sender_parked.store(false, Ordering::SeqCst);
        }
    }

    fn read_loop(&self) {
        loop {
            {
                let mut held = self
                    .interested
                    .0
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                while self.interest.load(Ordering::SeqCst) == 0 && self.lost.get().is_none() {
                    held = self
                        .interested
                        .1
                        .wait(held)
                        .unwrap_or_else(PoisonError::into_inner);
                }
            }
            if self.lost.get().is_some() {
                return;
            }
            match self.lane().and_then(|lane| lane.wait_readable(None)) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(error) => return self.lane_failed(error.to_string()),
            }
            if self.interest.load(Ordering::SeqCst) == 0 {
                continue;
            }
            let mut inbound = self.inbound.lock().unwrap_or_else(PoisonError::into_inner);
            self.pump(&mut inbound, None);
            drop(inbound);
            self.hand_over();
        }
    }

    /// Takes bytes off the lane and acts on every whole message. With `patience` bytes are waited for: looked for that long first.
    fn pump(&self, reader: &mut FrameReader, patience: Option<Duration>) {
        let got = match patience {
            Some(patience) => self
                .lane()
                .and_then(|lane| lane.recv_soon(reader.space(), patience).map(Some)),
            None => self.lane().and_then(|lane| lane.try_recv(reader.space())),
        };
        let count = match got {
            Ok(None) => return,
            Ok(Some(0)) => return self.lane_failed("the server closed the connection".into()),
            Ok(Some(count)) => count,
            Err(error) => return self.lane_failed(error.to_string()),
        };
        reader.filled(count);
        self.meter.received(count);
        let mut due: Vec<(Callback, i32)> = Vec::new();
        loop {
            let outcome = match reader.next() {
                Ok(None) => break,
                Ok(Some(message)) => Push::decode(message.id, message.body)
                    .map_err(ProtocolError::from)
                    .and_then(|push| self.act(push, &mut due)),
                Err(error) => Err(error),
            };
            if let Err(error) = outcome {
                self.fail(format!("the server broke the protocol: {error}"));
                break;
            }
        }
        self.received.store(reader.received(), Ordering::Release);
        for (callback, status) in due {
            callback(status);
        }
    }

    fn act(&self, push: Push<'_>, due: &mut Vec<(Callback, i32)>) -> Result<(), ProtocolError> {
        log::trace!("{}: {push:?}", self.name);
        match push {
            Push::Reply {
                to,
                status,
                after,
                body,
            } => {
                let reply = Reply {
                    status,
                    body: body.to_vec(),
                };
                self.state()
                    .complete(after.iter(), HeldWhat::Reply(to, reply), due);
            }
            Push::Event {
                event,
                status,
                after,
                times: _,
            } => {
                self.state()
                    .complete(after.iter(), HeldWhat::Event(event, status), due);
            }
            Push::Failed {
                number,
                call,
                queue,
                status,
            } => {
                log::debug!(
                    "{}: request {number} ({}) failed: {}",
                    self.name,
                    (self.vocabulary.call_name)(call).unwrap_or("?"),
                    (self.vocabulary.status_name)(status).unwrap_or("?")
                );
                if number == 0 {
                    // No request's fault: whatever ran on the device.
                    let _ = self.fault.compare_exchange(
                        0,
                        status,
                        Ordering::Relaxed,
                        Ordering::Relaxed,
                    );
                    return Ok(());
                }
                let mut state = self.state();
                // One entry per queue that this client made, however many failures a server reports.
                if state.failures.len() < FAILURE_LIMIT {
                    state.failures.entry(queue).or_insert(status);
                }
            }
            Push::Grant {
                payload,
                offset,
                length,
            } => self.granted(payload, offset, length)?,
            Push::Data { payload, bytes } => {
                let mut state = self.state();
                let Some(read) = state.reads.get_mut(&payload) else {
                    return Ok(());
                };
                read.landing.claim(0, bytes.len() as u64).map_err(|error| {
                    ProtocolError::new(CloseCode::UnexpectedPayload, error.to_string())
                })?;
                // SAFETY: the read's target belongs to the session until the read is over, which needs this lock.
                unsafe { read.target.scatter(0, bytes) };
                if read.landing.arrived(0) {
                    state.landed(payload, due);
                }
            }
            Push::NoData { payload, status } => {
                let mut state = self.state();
                let Some(read) = state.reads.get_mut(&payload) else {
                    state.ungranted(payload);
                    return Ok(());
                };
                read.failed = Some(status);
                // A lane that is writing right now ends the read when it is through.
                if read.active == 0 {
                    state.landed(payload, due);
                }
            }
            Push::Sent { payload } => {
                let mut state = self.state();
                if state.reads.contains_key(&payload) && !state.in_flight.contains(&payload) {
                    state.in_flight.push(payload);
                }
            }
            Push::Retired { bytes } => {
                let mut state = self.state();
                state.inline_retired = bytes.min(state.inline_posted);
            }
            Push::Text { bytes } => print(bytes),
            Push::Notice { context, text } => {
                log::warn!(
                    "{}: context {context:#x}: {}",
                    self.name,
                    String::from_utf8_lossy(text)
                );
            }
            Push::Close { code, text } => {
                let what = CloseCode::from_number(code)
                    .map_or_else(|| format!("code {code}"), |code| code.to_string());
                self.fail(format!(
                    "the server ended the session: {what} ({})",
                    String::from_utf8_lossy(text)
                ));
            }
            Push::Ack => {}
        }
        Ok(())
    }

    fn granted(&self, payload: u64, offset: u64, length: u64) -> Result<(), ProtocolError> {
        let unexpected = |what: &str| {
            ProtocolError::new(
                CloseCode::UnexpectedPayload,
                format!("grant for payload {payload}: {what}"),
            )
        };
        let source = {
            let mut state = self.state();
            let Some(write) = state.writes.get_mut(&payload) else {
                return Err(unexpected("there is no such write"));
            };
            let size = write.source.size() as u64;
            if length == 0
                || offset.checked_add(length).is_none_or(|end| end > size)
                || length > write.ungranted
            {
                return Err(unexpected("it lies outside the write"));
            }
            write.ungranted -= length;
            write.source
        };
        self.payload.send(payload, source, offset, length);
        Ok(())
    }

    /// Part of a write has left; the last part ends it.
    pub(crate) fn sent(&self, payload: u64, length: u64) {
        let mut state = self.state();
        let Some(write) = state.writes.get_mut(&payload) else {
            return;
        };
        write.left = write.left.saturating_sub(length);
        if write.left > 0 {
            return;
        }
        state.writes.remove(&payload);
        self.lower_interest();
        if state.followers > 0 {
            self.changed.notify_all();
        }
    }

    /// The control connection is listened to from now on.
    pub(crate) fn expect_explanation(&self) {
        self.explained.store(true, Ordering::Release);
    }

    /// Ends the session because a lane broke. The server knows why (its worker crashed, it shuts down) and says so on the control
    /// connection, which may come a moment later: its word goes before what the lane saw.
    pub(crate) fn lane_failed(&self, seen: String) {
        if self.explained.load(Ordering::Acquire) {
            let (lock, ended) = &self.ending;
            let guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
            // Whether it came in time shows in `fail`, which takes only the first reason.
            drop(ended.wait_timeout_while(guard, LAST_WORDS, |()| self.lost.get().is_none()));
        }
        self.fail(seen);
    }

    /// Ends the session for good: every wait returns, every event fails.
    pub(crate) fn fail(&self, reason: String) {
        self.end_with(reason, log::Level::Error);
    }

    /// As [`Self::fail`], where nothing has gone wrong.
    pub(crate) fn end(&self, reason: String) {
        self.end_with(reason, log::Level::Debug);
    }

    fn end_with(&self, reason: String, level: log::Level) {
        let guard = self.ending.0.lock().unwrap_or_else(PoisonError::into_inner);
        if self.lost.get().is_some() {
            return;
        }
        // Said before anyone can see it: a program may end itself at the first error.
        log::log!(level, "lost the session with {}: {reason}", self.name);
        let _ = self.lost.set(reason);
        drop(guard);
        self.ending.1.notify_all();
        drop(self.lane().map(|lane| lane.shutdown()));
        self.payload.shutdown();
        self.payload.quiesce();
        self.sender.get().inspect(|sender| sender.unpark());
        let due: Vec<(Callback, i32)> = {
            let mut state = self.state();
            // The application may free a target as soon as it learns of the failure: lanes that are writing finish first. Their
            // connections are shut down, so that takes no time worth naming.
            while state.reads.values().any(|read| read.active > 0) {
                let patience = std::time::Duration::from_millis(10);
                state.followers += 1;
                state = self
                    .changed
                    .wait_timeout(state, patience)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0;
                state.followers -= 1;
            }
            state.held.clear();
            state.writes.clear();
            state.reads.clear();
            let events = state
                .events
                .values_mut()
                .filter(|event| event.status.is_none());
            events
                .flat_map(|event| {
                    event.status = Some(self.vocabulary.lost);
                    event
                        .callbacks
                        .drain(..)
                        .collect::<SmallVec<[Callback; 1]>>()
                })
                .map(|callback| (callback, self.vocabulary.lost))
                .collect()
        };
        self.changed.notify_all();
        {
            let _held = self
                .interested
                .0
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            self.interested.1.notify_all();
        }
        for (callback, status) in due {
            callback(status);
        }
    }
}

/// Most queues with an unreported failure.
const FAILURE_LIMIT: usize = 4096;

/// Keeps the background thread reading.
pub(crate) struct Interest<'a>(&'a Link);

impl Drop for Interest<'_> {
    fn drop(&mut self) {
        self.0.lower_interest();
    }
}

/// What kernels printed appears where the program's own output goes.
fn print(bytes: &[u8]) {
    let mut rest = bytes;
    while !rest.is_empty() {
        match rustix::io::write(rustix::stdio::stdout(), rest) {
            Ok(count) => rest = rest.get(count..).unwrap_or_default(),
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
    }
}
