//! A stream of bytes over messages: credits keep a sender from sending what its peer has no slot for.
//!
//! Each message begins with a header: credits that it returns, and whether it is the end. Data takes a credit; messages of control take
//! none, since so few can be under way that slots are kept for them. A slot that was read is posted again, and its credit goes back with
//! the next message or, once a quarter of the window is owed, by itself.
//!
//! One thread at a time sleeps on the adapter's descriptors. Other threads that wait sleep until that one has looked.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

use super::bridge::Bridge;
use super::endpoint::{CONTROL_SLOTS, Endpoint, HEADER_BYTES, Window, work};
use super::verbs::{WC_RETRY_EXC_ERR, WC_SUCCESS, WC_WR_FLUSH_ERR, WorkCompletion, event};
use crate::{Connection, TransportError};

/// Header bit: the sender has ended the connection.
const END: u32 = 1;
/// Completions taken at once.
const BATCH: usize = 16;
/// A connection that is idle for so long asks the peer's adapter for a sign of life. Adapters give up after 4 to 17 s.
const PROBE_PERIOD: Duration = Duration::from_secs(10);
/// A caller that never waits looks so often whether the peer has gone.
const LOOK_PERIOD: Duration = Duration::from_millis(50);
/// Dropping a connection waits for so long until its bytes have arrived.
const LINGER: Duration = Duration::from_secs(2);

/// A connection that ends when it is dropped, unless its descriptor was taken.
pub(super) struct RdmaConnection {
    stream: Arc<Stream>,
    bridge: OnceLock<Option<Bridge>>,
}

/// The connection itself, which its bridge has too.
pub(super) struct Stream {
    endpoint: Endpoint,
    verbs: &'static super::verbs::Verbs,
    peer: String,
    /// Messages that the peer takes.
    theirs: Window,
    probes: bool,
    state: Mutex<State>,
    changed: Condvar,
    /// Held while a message is filled and posted.
    sending: Mutex<()>,
    /// Wakes the thread that sleeps.
    wake: OwnedFd,
}

struct State {
    /// Messages of data and of control: posted, and known to be completed.
    data: (u64, u64),
    control: (u64, u64),
    /// Messages of data that the peer has slots for.
    credits: u32,
    /// Slots that were posted again and not told of.
    owed: u32,
    /// Bytes that have come.
    received: VecDeque<Received>,
    /// The peer has said that this is the end.
    ended: bool,
    /// This side has.
    shut: bool,
    /// The reason that no more will come.
    failed: Option<String>,
    /// A thread sleeps on the descriptors.
    watched: bool,
    looked: Instant,
    /// The adapter has last had something, or was asked for a sign of life.
    heard: Instant,
}

/// A slot with bytes that have not been read.
#[derive(Clone, Copy)]
struct Received {
    slot: u32,
    from: usize,
    len: usize,
}

impl RdmaConnection {
    pub(super) fn new(
        endpoint: Endpoint,
        verbs: &'static super::verbs::Verbs,
        theirs: Window,
        peer: String,
        probes: bool,
    ) -> io::Result<Self> {
        let state = State {
            data: (0, 0),
            control: (0, 0),
            credits: theirs.slots,
            owed: 0,
            received: VecDeque::with_capacity(endpoint.window().slots as usize),
            ended: false,
            shut: false,
            failed: None,
            watched: false,
            looked: Instant::now(),
            heard: Instant::now(),
        };
        let stream = Stream {
            endpoint,
            verbs,
            peer,
            theirs,
            probes,
            state: Mutex::new(state),
            changed: Condvar::new(),
            sending: Mutex::new(()),
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        };
        Ok(Self {
            stream: Arc::new(stream),
            bridge: OnceLock::new(),
        })
    }
}

impl Stream {
    pub(super) fn peer(&self) -> &str {
        &self.peer
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn closed(&self) -> TransportError {
        TransportError::Closed {
            peer: self.peer.clone(),
        }
    }

    #[cold]
    fn lost(&self, state: &State) -> TransportError {
        let reason = state.failed.clone();
        TransportError::Lost {
            peer: self.peer.clone(),
            reason: reason.unwrap_or_else(|| "the adapter says no more".into()),
        }
    }

    /// Takes what the adapter has done; whether that was anything.
    fn progress(&self, state: &mut State) -> bool {
        let mut places = [WorkCompletion::default(); BATCH];
        let mut any = false;
        loop {
            let completions = match self.endpoint.poll(&mut places) {
                Ok(completions) => completions,
                Err(error) => {
                    state.fail(error.to_string());
                    return true;
                }
            };
            let count = completions.len();
            for completion in completions {
                self.complete(state, completion);
            }
            any |= count > 0;
            if count < BATCH {
                break;
            }
        }
        if any {
            state.heard = Instant::now();
            self.return_credits(state);
            self.changed.notify_all();
        }
        any
    }

    fn complete(&self, state: &mut State, completion: &WorkCompletion) {
        match completion.status {
            WC_SUCCESS => {}
            // Follows the failure itself, or the end of the connection.
            WC_WR_FLUSH_ERR => return state.fail("the connection is down".into()),
            WC_RETRY_EXC_ERR => return state.fail("its host stopped answering".into()),
            status => {
                return state.fail(format!(
                    "the adapter reports: {}",
                    self.verbs.status(status)
                ));
            }
        }
        let number = completion.wr_id & work::NUMBER;
        if completion.wr_id & work::RECEIVE != 0 {
            if let Err(reason) = self.receive(state, number as u32, completion.byte_len as usize) {
                state.fail(reason);
            }
        } else if completion.wr_id & work::CONTROL != 0 {
            state.control.1 = number + 1;
        } else {
            state.data.1 = number + 1;
        }
    }

    /// Takes a message that has come.
    fn receive(&self, state: &mut State, slot: u32, len: usize) -> Result<(), String> {
        let broken = |what: &str| Err(format!("the peer breaks the protocol: {what}"));
        let mut header = [0; HEADER_BYTES];
        let Some(payload) = len.checked_sub(HEADER_BYTES) else {
            return broken("a message without a header");
        };
        self.endpoint
            .read(self.endpoint.receive_at(slot), &mut header);
        let [a, b, c, d, flags @ ..] = header;
        let credits = u32::from_le_bytes([a, b, c, d]);
        state.credits = match state.credits.checked_add(credits) {
            Some(credits) if credits <= self.theirs.slots => credits,
            _ => return broken("more credits than it has slots"),
        };
        state.ended |= u32::from_le_bytes(flags) & END != 0;
        match payload {
            0 => self.post_receive(slot),
            len if state.received.len() < self.endpoint.window().slots as usize => {
                let from = 0;
                state.received.push_back(Received { slot, from, len });
                Ok(())
            }
            _ => broken("more messages than it has credits"),
        }
    }

    fn post_receive(&self, slot: u32) -> Result<(), String> {
        let posted = self.endpoint.post_receive(slot);
        posted.map_err(|error| format!("the adapter takes no more slots: {error}"))
    }

    /// Tells the peer of slots that are free again, if there are enough.
    fn return_credits(&self, state: &mut State) {
        if state.owed >= self.endpoint.window().slots / 4 && !state.ended && !state.shut {
            self.post_control(state, 0);
        }
    }

    /// Posts a message without data, if there is room for one.
    fn post_control(&self, state: &mut State, flags: u32) {
        let (posted, completed) = state.control;
        // One slot is kept for the end.
        let most = CONTROL_SLOTS - u32::from(flags & END == 0);
        if state.failed.is_some() || posted - completed >= u64::from(most) {
            return;
        }
        let at = self.endpoint.control_at(posted);
        self.write_header(state, at, flags);
        match self
            .endpoint
            .post_send(work::CONTROL | posted, at, HEADER_BYTES, true)
        {
            Ok(()) => state.control.0 += 1,
            Err(error) => state.fail(format!("the adapter takes no more messages: {error}")),
        }
    }

    fn write_header(&self, state: &mut State, at: usize, flags: u32) {
        let mut header = [0; HEADER_BYTES];
        header[..4].copy_from_slice(&state.owed.to_le_bytes());
        header[4..].copy_from_slice(&flags.to_le_bytes());
        state.owed = 0;
        self.endpoint.write(at, &header);
    }

    /// Asks the peer's adapter for a sign of life; it comes as the completion, and a failure otherwise.
    fn probe(&self, state: &mut State) {
        if !self.probes || state.control.0 != state.control.1 || state.is_over() {
            return;
        }
        match self.endpoint.post_probe(work::CONTROL | state.control.0) {
            Ok(()) => state.control.0 += 1,
            Err(error) => state.fail(format!("the adapter takes no more requests: {error}")),
        }
    }

    /// Hears what the connection manager tells.
    fn hear(&self, state: &mut State) {
        state.looked = Instant::now();
        while let Ok(Some(told)) = self.endpoint.events().next() {
            match told.kind {
                event::DISCONNECTED => {
                    // Earlier messages are in the queue.
                    self.progress(state);
                    state.fail("its process ended, or its host closed the connection".into());
                }
                event::DEVICE_REMOVAL => state.fail("the adapter was removed".into()),
                _ => {}
            }
        }
    }

    /// For callers that never sleep: looks at times what a sleeping one would be told.
    fn look(&self, state: &mut State) {
        if state.looked.elapsed() >= LOOK_PERIOD {
            self.hear(state);
        }
    }

    /// Waits until `ready` gives something; `None` when `deadline` passed first.
    fn wait<T>(
        &self,
        deadline: Option<Instant>,
        mut ready: impl FnMut(&mut State) -> Option<T>,
    ) -> Option<T> {
        let mut state = self.lock();
        loop {
            self.progress(&mut state);
            if let Some(value) = ready(&mut state) {
                return Some(value);
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return None;
            }
            let left = left.unwrap_or(Duration::MAX).min(PROBE_PERIOD);
            if state.watched {
                let waited = self.changed.wait_timeout(state, left);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            state.watched = true;
            state = self.sleep(state, left);
            state.watched = false;
            self.changed.notify_all();
        }
    }

    /// Sleeps until the adapter or another thread has something, for at most `left`.
    fn sleep<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        left: Duration,
    ) -> MutexGuard<'a, State> {
        if let Err(error) = self.endpoint.arm() {
            state.fail(format!("the adapter gives no notice: {error}"));
            return state;
        }
        // A completion before that gives no notice.
        if self.progress(&mut state) {
            return state;
        }
        let is_shut = state.shut;
        drop(state);
        let events = self.endpoint.events();
        let mut watched = [
            PollFd::from_borrowed_fd(events.descriptor(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.endpoint.completions(), PollFlags::IN),
            PollFd::new(&self.wake, PollFlags::IN),
        ];
        // It stays readable once this side has ended, when what is left to wait for comes from the adapter.
        let count = watched.len() - usize::from(is_shut);
        let timeout = Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: left.subsec_nanos().into(),
        };
        let ready = poll(&mut watched[..count], Some(&timeout));
        let told = !watched[0].revents().is_empty();
        self.endpoint.disarm();
        let mut state = self.lock();
        match ready {
            Ok(0) if state.heard.elapsed() >= PROBE_PERIOD => {
                state.heard = Instant::now();
                self.probe(&mut state);
            }
            Ok(_) if told => self.hear(&mut state),
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => state.fail(errno.to_string()),
        }
        state
    }

    /// Whether a message of data can go; in the error, why none ever can.
    fn room(&self, state: &mut State) -> Result<bool, TransportError> {
        if state.shut || state.ended {
            return Err(self.closed());
        }
        if state.failed.is_some() {
            return Err(self.lost(state));
        }
        let (posted, completed) = state.data;
        let slots = u64::from(self.endpoint.window().slots);
        Ok(state.credits > 0 && posted - completed < slots)
    }

    /// Fills the next slot by `fill`, which says how many bytes it placed, and posts it. There is room, and `sending` is held.
    fn post_data(&self, fill: impl FnOnce(usize, usize) -> usize) -> Result<usize, TransportError> {
        let number = self.lock().data.0;
        let at = self.endpoint.send_at(number);
        let most = self
            .endpoint
            .window()
            .slot_bytes
            .min(self.theirs.slot_bytes) as usize;
        let len = fill(at + HEADER_BYTES, most - HEADER_BYTES);
        let mut state = self.lock();
        // It may have ended meanwhile.
        self.room(&mut state)?;
        self.write_header(&mut state, at, 0);
        let tells = (number + 1).is_multiple_of(u64::from(self.endpoint.window().slots / 4));
        if let Err(error) = self
            .endpoint
            .post_send(number, at, HEADER_BYTES + len, tells)
        {
            state.fail(format!("the adapter takes no more messages: {error}"));
            return Err(self.lost(&state));
        }
        state.data.0 += 1;
        state.credits -= 1;
        Ok(len)
    }

    pub(super) fn send(&self, parts: &[IoSlice<'_>]) -> Result<(), TransportError> {
        let _turn = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
        let mut left: usize = parts.iter().map(|part| part.len()).sum();
        let (mut part, mut gone) = (0, 0);
        while left > 0 {
            let room = |state: &mut State| match self.room(state) {
                Ok(true) => Some(Ok(())),
                Ok(false) => None,
                Err(error) => Some(Err(error)),
            };
            self.wait(None, room).unwrap_or(Ok(()))?;
            left -= self.post_data(|at, most| {
                let mut filled = 0;
                while filled < most && part < parts.len() {
                    let rest = &parts[part][gone..];
                    let now = rest.len().min(most - filled);
                    self.endpoint.write(at + filled, &rest[..now]);
                    filled += now;
                    gone += now;
                    if gone == parts[part].len() {
                        (part, gone) = (part + 1, 0);
                    }
                }
                filled
            })?;
        }
        Ok(())
    }

    fn try_send(&self, bytes: &[u8]) -> Result<usize, TransportError> {
        // Another thread waits for room.
        let Ok(_turn) = self.sending.try_lock() else {
            return Ok(0);
        };
        let mut sent = 0;
        while sent < bytes.len() {
            let mut state = self.lock();
            self.progress(&mut state);
            self.look(&mut state);
            match self.room(&mut state) {
                Ok(true) => drop(state),
                Ok(false) => break,
                // Bytes that were taken are told of first.
                Err(_) if sent > 0 => break,
                Err(error) => return Err(error),
            }
            sent += self.post_data(|at, most| {
                let now = most.min(bytes.len() - sent);
                self.endpoint.write(at, &bytes[sent..sent + now]);
                now
            })?;
        }
        Ok(sent)
    }

    /// Whether `recv` would not wait.
    fn is_readable(&self, state: &mut State) -> Option<()> {
        (!state.received.is_empty() || state.is_over()).then_some(())
    }

    /// Takes bytes that are there; `Some(0)` at the end.
    fn take(&self, buffer: &mut [u8]) -> Result<Option<usize>, TransportError> {
        let mut filled = 0;
        let mut state = self.lock();
        while let Some(received) = state.received.pop_front() {
            drop(state);
            let Received { slot, from, len } = received;
            let now = (len - from).min(buffer.len() - filled);
            let at = self.endpoint.receive_at(slot) + HEADER_BYTES + from;
            self.endpoint.read(at, &mut buffer[filled..filled + now]);
            filled += now;
            state = self.lock();
            if from + now < len {
                let from = from + now;
                state.received.push_front(Received { slot, from, len });
                break;
            }
            state.owed += 1;
            if let Err(reason) = self.post_receive(slot) {
                state.fail(reason);
            }
            self.return_credits(&mut state);
        }
        match filled {
            0 if state.ended || state.shut => Ok(Some(0)),
            0 if state.failed.is_some() => Err(self.lost(&state)),
            0 => Ok(None),
            filled => Ok(Some(filled)),
        }
    }

    pub(super) fn recv(&self, buffer: &mut [u8]) -> Result<usize, TransportError> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            self.wait(None, |state| self.is_readable(state));
            if let Some(received) = self.take(buffer)? {
                return Ok(received);
            }
        }
    }

    fn try_recv(&self, buffer: &mut [u8]) -> Result<Option<usize>, TransportError> {
        if buffer.is_empty() {
            return Ok(Some(0));
        }
        let mut state = self.lock();
        if state.received.is_empty() {
            self.progress(&mut state);
            self.look(&mut state);
        }
        drop(state);
        self.take(buffer)
    }

    pub(super) fn shutdown(&self) {
        let mut state = self.lock();
        if !state.shut {
            state.shut = true;
            state.received.clear();
            self.progress(&mut state);
            if !state.ended {
                self.post_control(&mut state, END);
            }
        }
        drop(state);
        self.changed.notify_all();
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}

impl State {
    /// Notes why no more will come; the first reason counts. An end that the peer has told is none.
    fn fail(&mut self, reason: String) {
        if !self.ended && !self.shut {
            self.failed.get_or_insert(reason);
        } else {
            self.failed.get_or_insert_default();
        }
    }

    fn is_over(&self) -> bool {
        self.ended || self.shut || self.failed.is_some()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.shutdown();
        // The end is behind everything else.
        let all_arrived = |state: &mut State| {
            let arrived = state.control.0 == state.control.1;
            (arrived || state.ended || state.failed.is_some()).then_some(())
        };
        let deadline = Instant::now() + LINGER;
        while self.wait(Some(deadline), all_arrived).is_none() {
            if Instant::now() >= deadline {
                log::debug!("{}: dropped with bytes under way", self.peer);
                break;
            }
        }
        self.endpoint.disconnect();
    }
}

impl Connection for RdmaConnection {
    fn send(&self, parts: &[IoSlice<'_>]) -> Result<(), TransportError> {
        self.stream.send(parts)
    }

    fn try_send(&self, bytes: &[u8]) -> Result<usize, TransportError> {
        self.stream.try_send(bytes)
    }

    fn recv(&self, buffer: &mut [u8]) -> Result<usize, TransportError> {
        self.stream.recv(buffer)
    }

    fn try_recv(&self, buffer: &mut [u8]) -> Result<Option<usize>, TransportError> {
        self.stream.try_recv(buffer)
    }

    fn wait_readable(&self, timeout: Option<Duration>) -> Result<bool, TransportError> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let readable = self
            .stream
            .wait(deadline, |state| self.stream.is_readable(state));
        Ok(readable.is_some())
    }

    fn shutdown(&self) {
        self.stream.shutdown();
    }

    fn peer(&self) -> String {
        self.stream.peer.clone()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        let start = || match Bridge::start(&self.stream) {
            Ok(bridge) => Some(bridge),
            Err(error) => {
                log::warn!("{}: {error}", self.stream.peer);
                None
            }
        };
        Some(self.bridge.get_or_init(start).as_ref()?.descriptor())
    }
}
