//! A stream of bytes over messages: credits keep a sender from sending what its peer has no slot for.
//!
//! Each message begins with a header: credits that it returns, what it is, and how many bytes of the stream its sender has taken. Data
//! takes a credit; messages of control take none, since so few can be under way that slots are kept for them. A slot that was read is
//! posted again, and its credit goes back with the next message or, once a quarter of the window is owed, by itself.
//!
//! Once the accepting side has granted its rings, a stretch of the stream may go through them: a message then says how many bytes of it
//! were placed in the ring rather than having them. Whoever connected has placed them there by writes, or fetches them by reads into a
//! stage.
//!
//! One thread at a time sleeps on the adapter's descriptors. Other threads that wait sleep until that one has looked.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

use self::ferry::Ferry;
pub(super) use self::ferry::HandedOver;
use super::bridge::Bridge;
use super::endpoint::{CONTROL_SLOTS, Endpoint, HEADER_BYTES, READS, Registered, Window, work};
use super::rings::{Grant, LEAST_BYTES, Reach};
use super::verbs::{Piece, WC_RETRY_EXC_ERR, WC_SUCCESS, WC_WR_FLUSH_ERR, WorkCompletion, event};
use crate::{Connection, TransportError};

mod ferry;

/// Header bits: the sender has ended the connection; it grants rings; bytes were placed in a ring, and their number follows.
const END: u32 = 1;
const GRANT: u32 = 2;
const PLACED: u32 = 4;
/// Bytes that are placed before a message tells of them.
const TOLD_BYTES: usize = 128 << 10;
/// Bytes that one read fetches at most.
const READ_BYTES: usize = 64 << 10;
/// Bytes of registered memory that one request names at most.
const STRAIGHT_BYTES: usize = 128 << 10;
/// Adapters have given every request up by then.
const FLUSH_PERIOD: Duration = Duration::from_secs(20);
/// Requests that are under way when this side ends the connection have so long.
const SHUT_PERIOD: Duration = Duration::from_secs(1);
/// Bytes that are fetched before anybody has asked for so many.
const AHEAD_BYTES: usize = 4 << 10;
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
    passage: OnceLock<Option<Passage>>,
}

/// The end to hand over, of who connected or of who accepted. Without copies elsewhere the connection ends with it.
enum Passage {
    Bridge(Bridge),
    Ferry(OwnedFd),
}

/// The side that this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Connecting,
    /// The other one reads rings, or takes all bytes by messages.
    Accepting {
        reads: bool,
    },
}

/// The connection itself, which its bridge has too.
pub(super) struct Stream {
    endpoint: Endpoint,
    verbs: &'static super::verbs::Verbs,
    side: Side,
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
    /// Bytes of the stream to the peer: sent, and known to be taken there.
    sent: u64,
    peer_taken: u64,
    /// Bytes of the stream from the peer: come, taken, and told to be.
    arrived: u64,
    taken: u64,
    told: u64,
    /// Bytes taken that the peer hears of at once; as many as a quarter of a ring.
    told_at: u64,
    /// The peer's rings.
    reach: Option<Reach>,
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

/// Bytes that have not been read.
#[derive(Clone, Copy)]
enum Received {
    /// In a slot.
    Slot { slot: u32, from: usize, len: usize },
    /// So many more, in the ring.
    Ring { len: usize },
}

/// The next step of a sender.
enum Step {
    /// A message.
    Message,
    /// So many bytes into the peer's ring, at an address by a key.
    Place { to: (u64, u32), len: usize },
    /// The message that tells of them.
    Tell,
}

impl RdmaConnection {
    pub(super) fn new(
        endpoint: Endpoint,
        verbs: &'static super::verbs::Verbs,
        side: Side,
        theirs: Window,
        peer: String,
        probes: bool,
    ) -> io::Result<Self> {
        let state = State {
            data: (0, 0),
            control: (0, 0),
            credits: theirs.slots,
            owed: 0,
            sent: 0,
            peer_taken: 0,
            arrived: 0,
            taken: 0,
            told: 0,
            told_at: u64::MAX,
            reach: None,
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
            side,
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
            passage: OnceLock::new(),
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
        let reason = state.failed.clone().filter(|reason| !reason.is_empty());
        TransportError::Lost {
            peer: self.peer.clone(),
            reason: reason.unwrap_or_else(|| "it ended before all was fetched".into()),
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
                    let is_news = state.failed.is_none();
                    state.fail(error.to_string());
                    return is_news;
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
        let number = completion.wr_id & work::NUMBER;
        let is_read = completion.wr_id & work::READ != 0;
        // One that has failed, or was flushed, is done too.
        if is_read && let Some(reach) = &mut state.reach {
            reach.under_way -= 1;
        } else if completion.wr_id & work::CONTROL != 0 {
            state.control.1 = number + 1;
        } else if completion.wr_id & (work::RECEIVE | work::READ) == 0 {
            state.data.1 = number + 1;
        }
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
        if completion.wr_id & work::RECEIVE != 0 {
            if let Err(reason) = self.receive(state, number as u32, completion.byte_len as usize) {
                state.fail(reason);
            }
        } else if is_read && let Some(reach) = &mut state.reach {
            reach.read = number;
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
        let (words, taken) = header.split_at(8);
        let word = |at: usize| {
            words[at..]
                .first_chunk()
                .map_or(0, |word| u32::from_le_bytes(*word))
        };
        let (credits, flags) = (word(0), word(4));
        let taken = taken
            .first_chunk()
            .map_or(0, |taken| u64::from_le_bytes(*taken));
        state.credits = match state.credits.checked_add(credits) {
            Some(credits) if credits <= self.theirs.slots => credits,
            _ => return broken("more credits than it has slots"),
        };
        if taken < state.peer_taken || taken > state.sent {
            return broken("it has taken what was not sent");
        }
        state.peer_taken = taken;
        state.ended |= flags & END != 0;
        let received = match (flags & (GRANT | PLACED), payload) {
            (GRANT, Grant::BYTES) => {
                let mut grant = [0; Grant::BYTES];
                self.endpoint
                    .read(self.endpoint.receive_at(slot) + HEADER_BYTES, &mut grant);
                return match self.take_grant(state, &grant) {
                    Some(()) => self.post_receive(slot),
                    None => broken("rings that cannot be"),
                };
            }
            (PLACED, 4) => {
                let mut len = [0; 4];
                self.endpoint
                    .read(self.endpoint.receive_at(slot) + HEADER_BYTES, &mut len);
                let len = u32::from_le_bytes(len) as usize;
                if len == 0 || len as u64 > self.ring_room(state) {
                    return broken("more bytes in the ring than fit");
                }
                self.post_receive(slot)?;
                Received::Ring { len }
            }
            (0, 0) => return self.post_receive(slot),
            (0, len) => Received::Slot { slot, from: 0, len },
            _ => return broken("a message of no kind"),
        };
        if state.received.len() >= self.endpoint.window().slots as usize {
            return broken("more messages than it has credits");
        }
        state.arrived += received.len() as u64;
        state.received.push_back(received);
        Ok(())
    }

    fn take_grant(&self, state: &mut State, grant: &[u8; Grant::BYTES]) -> Option<()> {
        let is_asked = self.side == Side::Connecting && state.reach.is_none();
        let grant = Grant::decode(grant).filter(|_| is_asked)?;
        let reach = Reach::new(grant, state.sent, state.arrived)?;
        state.told_at = reach.down_capacity() / 4;
        state.reach = Some(reach);
        Some(())
    }

    /// Bytes that the peer may have placed beside those that have come.
    fn ring_room(&self, state: &State) -> u64 {
        match (&state.reach, self.endpoint.stage().1) {
            (Some(_), 0) => 0,
            (Some(reach), _) => reach.down_room(state.arrived, state.taken),
            // Of the rings of this side; who ferries looks at the ring itself.
            (None, _) if state.told_at < u64::MAX => u64::from(u32::MAX),
            (None, _) => 0,
        }
    }

    fn post_receive(&self, slot: u32) -> Result<(), String> {
        let posted = self.endpoint.post_receive(slot);
        posted.map_err(|error| format!("the adapter takes no more slots: {error}"))
    }

    /// Tells the peer of slots that are free again, and of bytes that were taken, if there are enough.
    fn return_credits(&self, state: &mut State) {
        // A peer that has ended waits until what it has placed is fetched.
        let last = state.ended && state.reach.is_some();
        let most = if last { 1 } else { state.told_at };
        let is_due =
            state.owed >= self.endpoint.window().slots / 4 || state.taken - state.told >= most;
        if is_due && !state.shut && (!state.ended || last) {
            self.post_control(state, 0, &[]);
        }
    }

    /// Posts a message without data, if there is room for one; whether there was.
    fn post_control(&self, state: &mut State, flags: u32, body: &[u8]) -> bool {
        let (posted, completed) = state.control;
        // One slot is kept for the end.
        let most = CONTROL_SLOTS - u32::from(flags & END == 0);
        if state.failed.is_some() || posted - completed >= u64::from(most) {
            return false;
        }
        let at = self.endpoint.control_at(posted);
        self.write_header(state, at, flags);
        self.endpoint.write(at + HEADER_BYTES, body);
        let len = HEADER_BYTES + body.len();
        match self
            .endpoint
            .post_send(work::CONTROL | posted, at, len, true)
        {
            Ok(()) => state.control.0 += 1,
            Err(error) => state.fail(format!("the adapter takes no more messages: {error}")),
        }
        state.failed.is_none()
    }

    fn write_header(&self, state: &mut State, at: usize, flags: u32) {
        let mut header = [0; HEADER_BYTES];
        header[..4].copy_from_slice(&state.owed.to_le_bytes());
        header[4..8].copy_from_slice(&flags.to_le_bytes());
        header[8..].copy_from_slice(&state.taken.to_le_bytes());
        state.owed = 0;
        state.told = state.taken;
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
            state = self.sleep(state, left, None);
            state.watched = false;
            self.changed.notify_all();
        }
    }

    /// Sleeps until the adapter, another thread, or `bell` has something, for at most `left`.
    fn sleep<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        left: Duration,
        bell: Option<BorrowedFd<'_>>,
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
        let mut watched = vec![
            PollFd::from_borrowed_fd(events.descriptor(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.endpoint.completions(), PollFlags::IN),
        ];
        watched.extend(bell.map(|bell| PollFd::from_borrowed_fd(bell, PollFlags::IN)));
        // It stays readable once this side has ended, when what is left to wait for comes from the adapter.
        if !is_shut {
            watched.push(PollFd::new(&self.wake, PollFlags::IN));
        }
        let timeout = Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: left.subsec_nanos().into(),
        };
        let ready = poll(&mut watched, Some(&timeout));
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

    /// In the error, why no more can be sent.
    fn check_open(&self, state: &State) -> Result<(), TransportError> {
        if state.shut || state.ended {
            return Err(self.closed());
        }
        match state.failed {
            Some(_) => Err(self.lost(state)),
            None => Ok(()),
        }
    }

    fn has_slot(&self, state: &State) -> bool {
        let (posted, completed) = state.data;
        posted - completed < u64::from(self.endpoint.window().slots)
    }

    /// Whether a message of data can go; in the error, why none ever can.
    fn room(&self, state: &State) -> Result<bool, TransportError> {
        self.check_open(state)?;
        Ok(state.credits > 0 && self.has_slot(state))
    }

    /// The next step of a sender that has `left` bytes, can place `wanted` of them at once, and has placed `placed` that the
    /// peer has not been told of.
    fn step(
        &self,
        state: &State,
        left: usize,
        wanted: usize,
        placed: usize,
    ) -> Result<Option<Step>, TransportError> {
        self.check_open(state)?;
        let reach = match &state.reach {
            _ if !self.has_slot(state) => return Ok(None),
            Some(reach) if placed > 0 || left >= LEAST_BYTES => reach,
            _ => return Ok((state.credits > 0).then_some(Step::Message)),
        };
        let (to, len) = reach.place(state.sent, state.peer_taken, wanted);
        if placed < TOLD_BYTES && len > 0 {
            return Ok(Some(Step::Place { to, len }));
        }
        Ok((placed > 0 && state.credits > 0).then_some(Step::Tell))
    }

    /// Whether the request of the next slot is to tell when it is done.
    fn tells(&self, number: u64) -> bool {
        (number + 1).is_multiple_of(u64::from(self.endpoint.window().slots / 4))
    }

    /// Posts a message with what is in the next slot behind its header: `len` bytes, of which `data` are the stream's. There is room, and
    /// `sending` is held.
    fn post_message(
        &self,
        flags: u32,
        len: usize,
        data: usize,
        tells: bool,
    ) -> Result<(), TransportError> {
        let mut state = self.lock();
        // It may have ended meanwhile.
        self.room(&state)?;
        let number = state.data.0;
        let at = self.endpoint.send_at(number);
        self.write_header(&mut state, at, flags);
        let len = HEADER_BYTES + len;
        let tells = tells || self.tells(number);
        let posted = self.endpoint.post_send(number, at, len, tells);
        self.posted(&mut state, posted)?;
        state.credits -= 1;
        state.sent += data as u64;
        Ok(())
    }

    /// Notes that the next slot was posted.
    fn posted(&self, state: &mut State, posted: io::Result<()>) -> Result<(), TransportError> {
        if let Err(error) = posted {
            state.fail(format!("the adapter takes no more messages: {error}"));
            return Err(self.lost(state));
        }
        state.data.0 += 1;
        Ok(())
    }

    /// Fills the next slot by `fill`, which is given where and how many bytes it may place and says how many it has, and posts it.
    fn post_data(&self, fill: impl FnOnce(usize, usize) -> usize) -> Result<usize, TransportError> {
        let number = self.lock().data.0;
        let at = self.endpoint.send_at(number);
        let most = self
            .endpoint
            .window()
            .slot_bytes
            .min(self.theirs.slot_bytes) as usize;
        let len = fill(at + HEADER_BYTES, most - HEADER_BYTES);
        self.post_message(0, len, len, false)?;
        Ok(len)
    }

    /// Posts the message that `len` bytes were placed in a ring; of these, `data` have not been counted. It tells when it is done, if it must.
    fn post_placed(&self, len: usize, data: usize, tells: bool) -> Result<(), TransportError> {
        let number = self.lock().data.0;
        let bytes = (len as u32).to_le_bytes();
        let at = self.endpoint.send_at(number) + HEADER_BYTES;
        self.endpoint.write(at, &bytes);
        self.post_message(PLACED, bytes.len(), data, tells)
    }

    /// As [`Self::post_data`], into the peer's ring.
    fn place(
        &self,
        to: (u64, u32),
        fill: impl FnOnce(usize) -> usize,
    ) -> Result<usize, TransportError> {
        let at = self.endpoint.send_at(self.lock().data.0);
        let len = fill(at);
        self.place_from(self.endpoint.own(at, len), to)?;
        Ok(len)
    }

    /// Posts bytes of any registered memory into the peer's ring. It takes the next slot's turn.
    fn place_from(&self, bytes: Piece, to: (u64, u32)) -> Result<(), TransportError> {
        let mut state = self.lock();
        self.check_open(&state)?;
        let (number, len) = (state.data.0, bytes.length);
        let posted = self
            .endpoint
            .post_write(number, bytes, self.tells(number), to);
        self.posted(&mut state, posted)?;
        state.sent += u64::from(len);
        Ok(())
    }

    /// The registration of these bytes, where they are many enough, of memory that stays, and there are rings.
    fn registered(&self, bytes: &[u8]) -> Option<Arc<Registered>> {
        if bytes.len() < LEAST_BYTES || self.lock().reach.is_none() {
            return None;
        }
        self.endpoint.registered(bytes.as_ptr(), bytes.len())
    }

    pub(super) fn send(&self, parts: &[IoSlice<'_>]) -> Result<(), TransportError> {
        let _turn = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
        let registered: Vec<_> = parts.iter().map(|part| self.registered(part)).collect();
        let mut last = 0;
        let sent = self.send_parts(parts, &registered, &mut last);
        if last > 0 {
            // The program's memory is its own again.
            self.wait_for_adapter(sent.is_err(), |state| state.data.1 >= last);
            self.check_open(&self.lock())?;
        }
        sent
    }

    /// Sends all of `parts`, those straight from memory that is registered; `last` becomes the number of requests up to the last such.
    fn send_parts(
        &self,
        parts: &[IoSlice<'_>],
        registered: &[Option<Arc<Registered>>],
        last: &mut u64,
    ) -> Result<(), TransportError> {
        let mut left = Left {
            parts,
            part: 0,
            gone: 0,
            bytes: parts.iter().map(|part| part.len()).sum(),
        };
        let slot_bytes = self.endpoint.window().slot_bytes as usize;
        let (mut placed, mut is_straight) = (0, false);
        while left.bytes > 0 || placed > 0 {
            let rest = left.rest();
            let straight = registered
                .get(left.part)
                .and_then(Option::as_deref)
                .filter(|_| rest.len() >= LEAST_BYTES);
            let wanted = match straight {
                Some(_) => rest.len().min(STRAIGHT_BYTES),
                None => left.bytes.min(slot_bytes),
            };
            let step = |state: &mut State| self.step(state, left.bytes, wanted, placed).transpose();
            match (self.wait(None, step), straight) {
                (None, _) => {}
                (Some(Err(error)), _) => return Err(error),
                (Some(Ok(Step::Message)), _) => {
                    self.post_data(|at, most| left.copy(&self.endpoint, at, most))?;
                }
                (Some(Ok(Step::Place { to, len })), None) => {
                    placed += self.place(to, |at| left.copy(&self.endpoint, at, len))?;
                }
                (Some(Ok(Step::Place { to, len })), Some(registered)) => {
                    self.place_from(registered.piece(rest.as_ptr(), len), to)?;
                    *last = self.lock().data.0;
                    left.skip(len);
                    placed += len;
                    is_straight = true;
                }
                (Some(Ok(Step::Tell)), _) => {
                    // One that tells is behind every straight request.
                    self.post_placed(placed, 0, is_straight)?;
                    (placed, is_straight) = (0, false);
                }
            }
        }
        Ok(())
    }

    /// Waits until the adapter reads and writes no memory of the program any more, which `done` tells. Where the connection is over, or
    /// nothing of it is wanted any more, the adapter is made to give up its requests.
    fn wait_for_adapter(&self, unwanted: bool, done: impl Fn(&State) -> bool) {
        let mut given_up: Option<Instant> = None;
        let mut must_give_up = unwanted;
        loop {
            if must_give_up && given_up.is_none() {
                self.endpoint.disconnect();
                given_up = Some(Instant::now());
            }
            let limit = match given_up {
                Some(since) => since + FLUSH_PERIOD,
                None => Instant::now() + SHUT_PERIOD,
            };
            let waited = self.wait(Some(limit), |state| {
                let is_done = done(state);
                let is_lost = given_up.is_none() && state.failed.is_some();
                (is_done || is_lost).then_some(is_done)
            });
            match waited {
                Some(true) => return,
                Some(false) => must_give_up = true,
                None if given_up.is_none() => must_give_up = self.lock().shut,
                None => {
                    return log::error!("{}: the adapter does not give up", self.peer);
                }
            }
        }
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
            match self.room(&state) {
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

    /// Asks for what comes next of a peer's ring, for a reader that wants `wanted` bytes.
    fn fetch(&self, state: &mut State, wanted: usize) {
        let (Some(Received::Ring { len }), Some(reach)) =
            (state.received.front(), &mut state.reach)
        else {
            return;
        };
        let (stage, stage_bytes) = self.endpoint.stage();
        let taken = state.taken;
        // Bytes before this stretch came by messages.
        reach.asked = reach.asked.max(taken);
        reach.read = reach.read.max(taken);
        let end = taken + wanted.max(AHEAD_BYTES).min(*len).min(stage_bytes) as u64;
        while reach.asked < end && reach.under_way < READS && state.failed.is_none() {
            let to = reach.asked as usize & (stage_bytes - 1);
            let wanted = ((end - reach.asked) as usize)
                .min(READ_BYTES)
                .min(stage_bytes - to);
            let (from, len) = reach.source(reach.asked, wanted);
            let into = self.endpoint.own(stage + to, len);
            let number = work::READ | (reach.asked + len as u64);
            if let Err(error) = self.endpoint.post_read(number, into, from) {
                state.failed.get_or_insert(no_reads(&error));
                break;
            }
            reach.asked += len as u64;
            reach.under_way += 1;
        }
    }

    /// Reads what comes next of a peer's ring straight into memory that is registered; `None` where that is not what comes next. Returns when
    /// the adapter writes there no more.
    fn read_straight(
        &self,
        registered: &Registered,
        buffer: &mut [u8],
    ) -> Result<Option<usize>, TransportError> {
        let asked = {
            let state = &mut *self.lock();
            let taken = state.taken;
            let (Some(&Received::Ring { len }), Some(reach)) =
                (state.received.front(), &mut state.reach)
            else {
                return Ok(None);
            };
            if reach.asked > taken || reach.under_way > 0 {
                return Ok(None);
            }
            let wanted = len.min(buffer.len());
            let mut asked = 0;
            while asked < wanted && reach.under_way < READS {
                let most = (wanted - asked).min(STRAIGHT_BYTES);
                let (from, len) = reach.source(taken + asked as u64, most);
                let into = registered.piece(buffer[asked..].as_ptr(), len);
                let number = work::READ | (taken + (asked + len) as u64);
                if let Err(error) = self.endpoint.post_read(number, into, from) {
                    state.failed.get_or_insert(no_reads(&error));
                    break;
                }
                asked += len;
                reach.under_way += 1;
            }
            asked
        };
        self.wait_for_adapter(false, |state| {
            state
                .reach
                .as_ref()
                .is_none_or(|reach| reach.under_way == 0)
        });
        let mut state = self.lock();
        let read = state.reach.as_ref().map_or(0, |reach| reach.read);
        let read = asked.min(read.saturating_sub(state.taken) as usize);
        if read == 0 {
            return Err(self.lost(&state));
        }
        state.taken += read as u64;
        let taken = state.taken;
        if let Some(reach) = &mut state.reach {
            reach.asked = taken;
        }
        self.consume(&mut state, read);
        self.return_credits(&mut state);
        Ok(Some(read))
    }

    /// Bytes of a ring that are in the stage, and where: all those that lie there side by side.
    fn staged(&self, state: &State) -> Option<(usize, usize)> {
        let (stage, stage_bytes) = self.endpoint.stage();
        let reach = state.reach.as_ref()?;
        let at = state.taken as usize & (stage_bytes - 1);
        let len = reach.read.saturating_sub(state.taken) as usize;
        (len > 0).then_some((stage + at, len.min(stage_bytes - at)))
    }

    /// Whether a `recv` of so many bytes would not wait.
    fn is_readable(&self, state: &mut State, wanted: usize) -> Option<()> {
        let is_there = match state.received.front() {
            None => false,
            Some(Received::Slot { .. }) => true,
            Some(Received::Ring { .. }) => {
                self.fetch(state, wanted);
                self.staged(state).is_some()
            }
        };
        let is_over = state.shut || state.failed.is_some();
        (is_there || is_over || (state.ended && state.received.is_empty())).then_some(())
    }

    /// Takes bytes that are there; with `ahead` asks for more of a peer's ring. `Some(0)` is the end.
    fn take(&self, buffer: &mut [u8], ahead: bool) -> Result<Option<usize>, TransportError> {
        let mut filled = 0;
        let mut state = self.lock();
        while filled < buffer.len()
            && let Some(received) = state.received.front().copied()
        {
            let wanted = buffer.len() - filled;
            let (at, now) = match received {
                Received::Slot { slot, from, len } => {
                    let at = self.endpoint.receive_at(slot) + HEADER_BYTES + from;
                    (at, (len - from).min(wanted))
                }
                Received::Ring { .. } => {
                    if ahead {
                        self.fetch(&mut state, wanted);
                    }
                    match self.staged(&state) {
                        Some((at, len)) => (at, len.min(wanted)),
                        None => break,
                    }
                }
            };
            // One thread at a time receives.
            drop(state);
            self.endpoint.read(at, &mut buffer[filled..filled + now]);
            filled += now;
            state = self.lock();
            state.taken += now as u64;
            self.consume(&mut state, now);
            self.return_credits(&mut state);
        }
        match filled {
            0 if state.shut || (state.ended && state.received.is_empty()) => Ok(Some(0)),
            0 if state.failed.is_some() => Err(self.lost(&state)),
            0 => Ok(None),
            filled => Ok(Some(filled)),
        }
    }

    /// Notes that so many bytes of the first stretch that has come are not needed any more.
    fn consume(&self, state: &mut State, now: usize) {
        let Some(received) = state.received.pop_front() else {
            return;
        };
        let slot = match received {
            Received::Slot { slot, from, len } if from + now < len => {
                let from = from + now;
                return state
                    .received
                    .push_front(Received::Slot { slot, from, len });
            }
            Received::Ring { len } if now < len => {
                let len = len - now;
                return state.received.push_front(Received::Ring { len });
            }
            Received::Slot { slot, .. } => Some(slot),
            Received::Ring { .. } => None,
        };
        state.owed += 1;
        if let Some(Err(reason)) = slot.map(|slot| self.post_receive(slot)) {
            state.fail(reason);
        }
    }

    pub(super) fn recv(&self, buffer: &mut [u8]) -> Result<usize, TransportError> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let registered = match self.endpoint.stage().1 {
            // Nothing is read.
            0 => None,
            _ => self.registered(buffer),
        };
        loop {
            if let Some(registered) = &registered
                && let Some(received) = self.read_straight(registered, buffer)?
            {
                return Ok(received);
            }
            let is_straight = registered.is_some();
            let wanted = if is_straight { 0 } else { buffer.len() };
            self.wait(None, |state| self.is_readable(state, wanted));
            if let Some(received) = self.take(buffer, !is_straight)? {
                return Ok(received);
            }
        }
    }

    fn try_recv(&self, buffer: &mut [u8]) -> Result<Option<usize>, TransportError> {
        if buffer.is_empty() {
            return Ok(Some(0));
        }
        let mut state = self.lock();
        if !matches!(state.received.front(), Some(Received::Slot { .. })) {
            self.progress(&mut state);
            self.look(&mut state);
        }
        drop(state);
        self.take(buffer, true)
    }

    pub(super) fn shutdown(&self) {
        let mut state = self.lock();
        if !state.shut {
            state.shut = true;
            state.received.clear();
            self.progress(&mut state);
            if !state.ended {
                self.post_control(&mut state, END, &[]);
            }
        }
        drop(state);
        self.changed.notify_all();
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}

/// The bytes that a sender still has to send.
struct Left<'a> {
    parts: &'a [IoSlice<'a>],
    /// The first part of which some is left, and what of it has gone.
    part: usize,
    gone: usize,
    bytes: usize,
}

impl<'a> Left<'a> {
    /// The rest of the first part.
    fn rest(&mut self) -> &'a [u8] {
        while let Some(part) = self.parts.get(self.part) {
            if self.gone < part.len() {
                return &part[self.gone..];
            }
            (self.part, self.gone) = (self.part + 1, 0);
        }
        &[]
    }

    fn skip(&mut self, len: usize) {
        self.gone += len;
        self.bytes -= len;
    }

    /// Copies up to `most` bytes to a slot, and says how many.
    fn copy(&mut self, endpoint: &Endpoint, at: usize, most: usize) -> usize {
        let mut filled = 0;
        while filled < most && self.bytes > 0 {
            let rest = self.rest();
            let now = rest.len().min(most - filled);
            endpoint.write(at + filled, &rest[..now]);
            filled += now;
            self.skip(now);
        }
        filled
    }
}

fn no_reads(error: &io::Error) -> String {
    format!("the adapter takes no more reads: {error}")
}

impl Received {
    /// Bytes of the stream that it still has.
    fn len(&self) -> usize {
        match self {
            Self::Slot { from, len, .. } => len - from,
            Self::Ring { len } => *len,
        }
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
            .wait(deadline, |state| self.stream.is_readable(state, 0));
        Ok(readable.is_some())
    }

    fn shutdown(&self) {
        self.stream.shutdown();
    }

    fn peer(&self) -> String {
        self.stream.peer.clone()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        let start = || match self.stream.side {
            Side::Connecting => Bridge::start(&self.stream).map(Passage::Bridge),
            Side::Accepting { reads } => Ferry::start(&self.stream, reads).map(Passage::Ferry),
        };
        let start = || {
            start()
                .inspect_err(|error| log::warn!("{}: {error}", self.stream.peer))
                .ok()
        };
        match self.passage.get_or_init(start).as_ref()? {
            Passage::Bridge(bridge) => Some(bridge.descriptor()),
            Passage::Ferry(passport) => Some(passport.as_fd()),
        }
    }
}
