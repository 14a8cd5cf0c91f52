//! One session's command lane at the client: posting, waiting, and reading what the server pushes.
//!
//! **Posting** appends to the outbox. Over shared memory the caller then sends: it is a copy, and a thread that did it instead would have
//! to look for work all the time, on a processor that may be the caller's own second half. Over sockets a sender thread takes what has
//! gathered: while requests come it naps for some microseconds between two looks, so that neither waking it nor sending takes the
//! program's time; while it sleeps, callers send for themselves, and a few in a row wake it. Over either, what the lane does not take at
//! once is the sender's.
//! **Waiting** threads send for themselves, and the first of them reads the lane for all ("whoever waits, reads"): a round trip needs no
//! thread switch at the client. A background thread reads only while something is outstanding that no caller waits for: data of
//! non-blocking reads, granted writes, callbacks.
//!
//! Lock order: `inbound`, then `state`. A thread that holds `state` may only *try* `inbound`.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use rustix::fd::BorrowedFd;
use towline_backend::opencl::{CL_DEVICE_NOT_AVAILABLE, CL_OUT_OF_RESOURCES};
use towline_session::{HANDLE_BASE, Outbox};
use towline_transport::{Connection, TransportError};
use towline_wire::control::{SHOWN_TEXT, printable};
use towline_wire::frame::FrameReader;

use crate::farewell;
use crate::meter::Meter;
use crate::payload::Payload;
use crate::state::{Callback, State};
use crate::tuning::tuning;

mod output;
mod send;
#[cfg(test)]
mod tests;
mod wait;

/// What every OpenCL call on a lost session answers: the device is not available any more.
pub(crate) const LOST: i32 = CL_DEVICE_NOT_AVAILABLE;

/// What differs between the APIs that a session can speak.
pub(crate) struct Vocabulary {
    /// Whether a status says that something failed.
    pub(crate) is_failure: fn(i32) -> bool,
    /// What every call on a lost session answers.
    pub(crate) lost: i32,
    /// What a call answers that could not be posted.
    pub(crate) unposted: i32,
    pub(crate) call_name: fn(u16) -> Option<&'static str>,
    pub(crate) status_name: fn(i32) -> Option<&'static str>,
    /// Takes the server's name, a context, and a message about it that is fit to be shown.
    pub(crate) notice: fn(&str, u64, &str),
}

/// OpenCL's.
pub(crate) const OPENCL: &Vocabulary = &Vocabulary {
    is_failure: |status| status < 0,
    lost: LOST,
    unposted: CL_OUT_OF_RESOURCES,
    call_name: towline_wire::opencl::call_name,
    status_name: towline_wire::opencl::status_name,
    notice: |server, context, text| match context {
        0 => log::warn!("{server}: {text}"),
        _ => log::warn!("{server}: context {context:#x}: {text}"),
    },
};

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
    /// How often callers did so one after another.
    row: AtomicU32,
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
    /// The sender naps while requests come, and callers send while it sleeps; not over shared memory, and not where cores are few,
    /// so that each request wakes it.
    sender_naps: bool,
    next_handle: AtomicU64,
    lost: OnceLock<String>,
    /// An execution fault that every later call answers with; 0 while there is none.
    fault: Arc<AtomicI32>,
    /// Somebody listens on the control connection, and will say why the session ends.
    explained: AtomicBool,
    /// Nothing more comes on the command lane.
    drained: AtomicBool,
    /// Whether the end has begun; the condition is that `lost` is told.
    ending: (Mutex<bool>, Condvar),
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
        let sends_itself = lane.shares_memory();
        let sender_naps = !sends_itself && !tuning().spin.is_zero();
        let link = Arc::new(Self {
            name: name.into(),
            vocabulary,
            sends_itself,
            lull: AtomicBool::new(false),
            sent_last: AtomicU64::new(0),
            row: AtomicU32::new(0),
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
            sender_naps,
            next_handle: AtomicU64::new(Self::FIRST_NUMBER),
            lost: OnceLock::new(),
            fault: Arc::default(),
            explained: AtomicBool::new(false),
            drained: AtomicBool::new(false),
            ending: (Mutex::new(false), Condvar::new()),
            payload: Payload::new(payload, chunk_bytes),
            meter: Meter::default(),
        });
        let sending = Arc::clone(&link);
        let thread = crate::threads::named("towline-send").spawn(move || sending.send_loop())?;
        let _ = link.sender.set(thread.thread().clone());
        let reading = Arc::clone(&link);
        crate::threads::named("towline-read").spawn(move || reading.read_loop())?;
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
            self.lost_status()
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

    /// Status of every call on a lost session: the device's fault, if the session ended with one.
    pub(crate) fn lost_status(&self) -> i32 {
        match self.fault() {
            0 => self.vocabulary.lost,
            fault => fault,
        }
    }

    /// The fault that ended the device's work for this session, or 0.
    pub(crate) fn fault(&self) -> i32 {
        self.fault.load(Ordering::Relaxed)
    }

    /// The state, locked.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
            drop(ended.wait_timeout_while(guard, LAST_WORDS, |_| self.lost.get().is_none()));
        }
        self.fail(seen);
    }

    /// As [`Self::lane_failed`], of the command lane.
    pub(crate) fn command_lane_failed(&self, seen: String) {
        let (lock, told) = &self.ending;
        let guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.drained.store(true, Ordering::Release);
        drop(guard);
        told.notify_all();
        self.lane_failed(seen);
    }

    /// Ends the session for the reason that the server gave on the control connection. What it said before on the command lane is read
    /// first, since that may be the fault which the reason is about.
    pub(crate) fn explained(&self, reason: String) {
        {
            let _reading = self.interest();
            let (lock, told) = &self.ending;
            let guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
            let goes_on =
                |_: &mut bool| !self.drained.load(Ordering::Acquire) && self.lost.get().is_none();
            drop(told.wait_timeout_while(guard, LAST_WORDS, goes_on));
        }
        self.fail(reason);
    }

    /// Ends the session for good: every wait returns, every event fails.
    pub(crate) fn fail(&self, reason: String) {
        // The session ends with the process, which is no loss.
        let level = match farewell::is_leaving() {
            true => log::Level::Debug,
            false => log::Level::Error,
        };
        self.end_with(reason, level);
    }

    /// Posts a goodbye at the process's end.
    pub(crate) fn leave<'a>(&self, goodbye: &impl towline_backend::opencl::Request<'a>) {
        if self.lost().is_none() {
            let _ = self.post(goodbye);
            self.flush();
        }
    }

    /// As [`Self::fail`], where nothing has gone wrong.
    pub(crate) fn end(&self, reason: String) {
        self.end_with(reason, log::Level::Debug);
    }

    fn end_with(&self, reason: String, level: log::Level) {
        let (lock, told) = &self.ending;
        let mut begun = lock.lock().unwrap_or_else(PoisonError::into_inner);
        if *begun {
            let waited = told.wait_while(begun, |_| self.lost.get().is_none());
            return drop(waited);
        }
        *begun = true;
        // It may hold words of the server.
        let reason = printable(&reason, SHOWN_TEXT);
        // Said before anyone can see it: a program may end itself at the first error.
        log::log!(level, "lost the session with {}: {reason}", self.name);
        drop(begun);
        drop(self.lane().map(|lane| lane.shutdown()));
        self.payload.shutdown();
        self.payload.quiesce();
        let due: Vec<(Callback, i32)> = {
            let mut state = self.state();
            // The application may free its memory as soon as any call tells it of the failure: `lost`, which they all go by, is set when
            // no lane uses that memory any more. The connections are shut down, so that takes no time worth naming.
            while state.reads.values().any(|read| read.active > 0) {
                state = self.follow_at_most(state, Duration::from_millis(10));
            }
            let _ = self.lost.set(reason);
            state.end(self.lost_status())
        };
        // With the lock, or a thread between its look and its wait would miss it.
        drop(lock.lock().unwrap_or_else(PoisonError::into_inner));
        told.notify_all();
        self.sender.get().inspect(|sender| sender.unpark());
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

/// Keeps the background thread reading.
pub(crate) struct Interest<'a>(&'a Link);

impl Drop for Interest<'_> {
    fn drop(&mut self) {
        self.0.lower_interest();
    }
}
