//! A connection that outlives its links: bytes stay complete, once and in order across a cut.
//!
//! A [`Resumable`] carries one stream over one link after another. It keeps what it has sent until the peer has acknowledged it. When a
//! link breaks, callers wait; when an owner hands over another link to the same peer ([`Resumable::reattach`]), both ends say how far they
//! have received, and each sends again from there. Nobody above notices more than a pause.
//!
//! On the wire the stream is cut into records, in both directions:
//!
//! | bytes | field |
//! |---|---|
//! | 4 | length of the data that follows, `u32`, at most 4 MiB |
//! | 4 | flags, `u32`: 1 marks the end of the stream |
//! | 8 | acknowledged, `u64`: bytes of the other direction that have been received, headers included |
//! | length | data |
//!
//! Positions count the bytes of one direction from its first record, headers included, over all links. On each link after the first both
//! ends send their position of receipt, a `u64`, before anything else.
//!
//! A link that ends without the record that marks the end was cut. Waiting ends when the owner gives up ([`Resumable::fail`]) or either end
//! closes: this type knows no time limits.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::time::{Duration, Instant};

use rustix::fd::BorrowedFd;

use crate::{Connection, TransportError, recv_exact_within};

/// Bytes before the data of a record.
const HEADER: usize = 16;
/// Most data of one record.
const RECORD_LIMIT: usize = 4 << 20;
/// So much is kept and handed to the link at once: it is in the processor's cache then.
const STEP: usize = 128 << 10;
/// The flag of the last record.
const END: u32 = 1;
/// Received bytes are acknowledged at the latest after so many.
const ACKNOWLEDGE_EVERY: u64 = 512 << 10;
/// Most bytes that are kept until they are acknowledged. A link holds some MiB in its buffers; beyond the limit the oldest are dropped, and
/// a cut before the peer has said that it has them ends the connection.
const KEPT_LIMIT: usize = 16 << 20;
/// With so many bytes kept, a sender looks for acknowledgements by itself.
const KEPT_MUCH: usize = 1 << 20;
/// A place of this length takes headers too, with the data between them.
const ROOM: usize = 64;
/// The reason why nothing goes over a stream that has had no link yet.
const NO_LINK: &str = "it has no link yet";
/// The peer's time to say how far it has received.
const EXCHANGE_LIMIT: Duration = Duration::from_secs(5);

/// Called once for each cut, by the thread that noticed, which it must not hold up.
type OnCut = Box<dyn Fn(&Arc<Resumable>, &str) + Send + Sync>;

/// See the module's text.
pub struct Resumable {
    links: Mutex<Links>,
    changed: Condvar,
    inbound: Mutex<Inbound>,
    outbound: Mutex<Outbound>,
    /// Position up to which the peer has our stream.
    acknowledged: AtomicU64,
    /// The end of our stream so far.
    end: AtomicU64,
    /// Position up to which we have the peer's stream.
    received: AtomicU64,
    /// The latest of it that the peer has been told.
    told: AtomicU64,
    on_cut: OnCut,
    this: Weak<Self>,
}

struct Links {
    /// `None` while it is cut.
    link: Option<Arc<dyn Connection>>,
    /// One that is taking over.
    joining: Option<Arc<dyn Connection>>,
    /// Counts links.
    generation: u64,
    /// The latest link's.
    peer: String,
    over: Option<Over>,
}

impl Links {
    /// Whether this is the link that is taking over.
    fn are_joined_by(&self, link: &Arc<dyn Connection>) -> bool {
        let joining = self.joining.as_ref();
        joining.is_some_and(|joining| Arc::ptr_eq(joining, link))
    }
}

/// The end of a connection.
enum Over {
    /// This end was shut down.
    Closed,
    /// It was given up, for this reason.
    Failed(String),
}

/// Nothing is read ahead: what a caller leaves on the link wakes others that wait for it.
struct Inbound {
    /// `None` before the first one.
    link: Option<Arc<dyn Connection>>,
    generation: u64,
    /// The next record's, as far as it has come.
    header: [u8; HEADER],
    /// Bytes of it that have come.
    filled: usize,
    /// Data of the present record that has not come.
    left: usize,
    ended: bool,
}

struct Outbound {
    /// `None` before the first one.
    link: Option<Arc<dyn Connection>>,
    generation: u64,
    /// Our stream from `base` on.
    kept: VecDeque<u8>,
    base: u64,
    /// Position up to which the present link has taken it.
    handed: u64,
    /// Data that the last header promises and that has not come yet.
    promised: usize,
}

/// The wait for bytes of a link.
#[derive(Clone, Copy)]
enum Wait {
    No,
    Soon(Duration),
}

/// The contents of a readable link.
enum Found {
    /// Data, or the end.
    Data,
    /// No more than an acknowledgement.
    Nothing,
    /// It is cut, for this reason.
    Cut(String),
}

/// The reason why nothing was read.
enum Unread {
    /// The peer broke the rules, in this way.
    Broken(String),
    /// The link of this generation is cut.
    Cut(u64, String),
    /// There is nothing now.
    Empty,
}

impl Inbound {
    /// Begins the record of `self.header`.
    fn begin(&mut self, connection: &Resumable) -> Result<(), Unread> {
        let header = std::mem::replace(&mut self.header, [0; HEADER]);
        self.filled = 0;
        let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| header[at + byte]));
        let (length, flags) = (word(0) as usize, word(4));
        let acknowledged = u64::from(word(8)) | u64::from(word(12)) << 32;
        let is_first = connection.received.load(Ordering::Acquire) == HEADER as u64;
        // No record: words of a server that turned the link away before it knew that it is a stream's.
        if is_first && length > RECORD_LIMIT {
            connection.received.store(0, Ordering::Release);
            let reason = "it begins with no record".into();
            return Err(Unread::Cut(self.generation, reason));
        }
        if length > RECORD_LIMIT || flags > END {
            let how = format!("a record of {length} bytes with flags {flags:#x}");
            return Err(Unread::Broken(how));
        }
        if acknowledged > connection.end.load(Ordering::Acquire) {
            let how = "it acknowledges bytes that were never sent".into();
            return Err(Unread::Broken(how));
        }
        connection
            .acknowledged
            .fetch_max(acknowledged, Ordering::AcqRel);
        self.left = length;
        self.ended = flags & END != 0;
        Ok(())
    }

    /// Whether the stream has ended, and all of it has been given out.
    fn is_through(&self) -> bool {
        self.ended && self.left == 0
    }

    /// Reads from the link: so many bytes of data are at the start of `buffer` then; 0 at the end of the stream.
    fn read(
        &mut self,
        connection: &Resumable,
        buffer: &mut [u8],
        wait: Wait,
    ) -> Result<usize, Unread> {
        while !self.is_through() {
            if self.left > 0 {
                let length = self.left.min(buffer.len());
                let place = buffer.get_mut(..length).unwrap_or_default();
                let count = self.take(connection, place, wait)?;
                self.left -= count;
                return Ok(count);
            }
            // Small records come many at once. The first is looked at by itself.
            let is_first = || connection.received.load(Ordering::Acquire) == 0;
            if buffer.len() >= ROOM && self.filled == 0 && !is_first() {
                let count = self.take(connection, buffer, wait)?;
                match self.unpack(connection, buffer, count)? {
                    0 => {}
                    count => return Ok(count),
                }
            } else {
                self.read_header(connection, wait)?;
            }
        }
        Ok(0)
    }

    /// Reads from the link what is missing of a header, and begins its record when that is all.
    fn read_header(&mut self, connection: &Resumable, wait: Wait) -> Result<(), Unread> {
        let mut header = self.header;
        let rest = header.get_mut(self.filled..).unwrap_or_default();
        let count = self.take(connection, rest, wait)?;
        self.header = header;
        self.filled += count;
        match self.filled < HEADER {
            true => Ok(()),
            false => self.begin(connection),
        }
    }

    /// Moves the data among the first `count` bytes to the start, and says how much that is.
    fn unpack(
        &mut self,
        connection: &Resumable,
        buffer: &mut [u8],
        count: usize,
    ) -> Result<usize, Unread> {
        let (mut at, mut data) = (0, 0);
        while at < count && !self.is_through() {
            if self.left > 0 {
                let length = self.left.min(count - at);
                buffer.copy_within(at..at + length, data);
                (at, data) = (at + length, data + length);
                self.left -= length;
                continue;
            }
            let length = HEADER.min(count - at);
            if let (Some(place), Some(bytes)) =
                (self.header.get_mut(..length), buffer.get(at..at + length))
            {
                place.copy_from_slice(bytes);
            }
            at += length;
            self.filled = length;
            if length == HEADER {
                self.begin(connection)?;
            }
        }
        Ok(data)
    }

    /// Takes bytes off the link, at least one.
    fn take(&self, connection: &Resumable, place: &mut [u8], wait: Wait) -> Result<usize, Unread> {
        let Some(link) = &self.link else {
            return Err(Unread::Cut(self.generation, NO_LINK.into()));
        };
        let read = match wait {
            Wait::No => link.try_recv(place),
            Wait::Soon(patience) => link.recv_soon(place, patience).map(Some),
        };
        let reason = match read {
            Ok(None) => return Err(Unread::Empty),
            Ok(Some(0)) => "the connection ended without a word".into(),
            Ok(Some(count)) => {
                let received = &connection.received;
                received.fetch_add(count as u64, Ordering::AcqRel);
                return Ok(count);
            }
            Err(error) => error.to_string(),
        };
        Err(Unread::Cut(self.generation, reason))
    }
}

impl Outbound {
    fn end(&self) -> u64 {
        self.base + self.kept.len() as u64
    }

    /// The part that the present link has not taken.
    fn pending(&self) -> (&[u8], &[u8]) {
        let from = (self.handed - self.base) as usize;
        let (first, second) = self.kept.as_slices();
        match first.get(from..) {
            Some(rest) => (rest, second),
            None => (&[], second.get(from - first.len()..).unwrap_or_default()),
        }
    }

    fn is_pending(&self) -> bool {
        self.handed < self.end()
    }

    /// Forgets what the peer has, and what is too much to be kept.
    fn trim(&mut self, connection: &Resumable) {
        let acknowledged = connection.acknowledged.load(Ordering::Acquire);
        let excess = self.end().saturating_sub(KEPT_LIMIT as u64);
        let until = acknowledged.max(excess).min(self.handed);
        let count = until.saturating_sub(self.base) as usize;
        self.kept.drain(..count);
        self.base += count as u64;
        // One long wait must not pin its memory for the connection's life.
        if self.kept.capacity() > 4 * KEPT_MUCH && self.kept.is_empty() {
            self.kept.shrink_to(KEPT_MUCH);
        }
    }

    /// Begins a record of so much data.
    fn begin(&mut self, connection: &Resumable, length: usize, flags: u32) {
        let received = connection.received.load(Ordering::Acquire);
        connection.told.fetch_max(received, Ordering::AcqRel);
        self.append(connection, &(length as u32).to_le_bytes());
        self.append(connection, &flags.to_le_bytes());
        self.append(connection, &received.to_le_bytes());
        self.promised = length;
    }

    fn append(&mut self, connection: &Resumable, bytes: &[u8]) {
        self.kept.extend(bytes);
        connection.end.store(self.end(), Ordering::Release);
    }

    fn link(&self) -> Result<&dyn Connection, TransportError> {
        let none = || TransportError::Lost {
            peer: String::new(),
            reason: NO_LINK.into(),
        };
        self.link.as_deref().ok_or_else(none)
    }

    /// Has the link take all that is pending.
    fn hand_over(&mut self) -> Result<(), TransportError> {
        let link = self.link()?;
        let (first, second) = self.pending();
        let parts = [IoSlice::new(first), IoSlice::new(second)];
        match (first.is_empty(), second.is_empty()) {
            (true, true) => return Ok(()),
            (true, false) => link.send(&parts[1..])?,
            (false, true) => link.send(&parts[..1])?,
            (false, false) => link.send(&parts)?,
        }
        self.handed = self.end();
        Ok(())
    }

    /// Has the link take what is pending as far as that takes no waiting.
    fn push(&mut self) -> Result<(), TransportError> {
        while self.is_pending() {
            let (first, second) = self.pending();
            let part = if first.is_empty() { second } else { first };
            let taken = self.link()?.try_send(part)?;
            if taken == 0 {
                break;
            }
            self.handed += taken as u64;
        }
        Ok(())
    }
}

impl Resumable {
    /// A stream over its first link. `on_cut` is told of each cut, and why.
    pub fn new(
        link: Arc<dyn Connection>,
        on_cut: impl Fn(&Arc<Self>, &str) + Send + Sync + 'static,
    ) -> Arc<Self> {
        let connection = Self::without_link(link.peer(), on_cut);
        lock(&connection.inbound).link = Some(Arc::clone(&link));
        lock(&connection.outbound).link = Some(Arc::clone(&link));
        lock(&connection.links).link = Some(link);
        connection
    }

    /// A stream from `peer` whose first link broke before it came here; [`Self::reattach`] is to follow. Callers wait until then.
    pub fn without_link(
        peer: String,
        on_cut: impl Fn(&Arc<Self>, &str) + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            links: Mutex::new(Links {
                peer,
                link: None,
                joining: None,
                generation: 0,
                over: None,
            }),
            changed: Condvar::new(),
            inbound: Mutex::new(Inbound {
                link: None,
                generation: 0,
                header: [0; HEADER],
                filled: 0,
                left: 0,
                ended: false,
            }),
            outbound: Mutex::new(Outbound {
                link: None,
                generation: 0,
                kept: VecDeque::new(),
                base: 0,
                handed: 0,
                promised: 0,
            }),
            acknowledged: AtomicU64::new(0),
            end: AtomicU64::new(0),
            received: AtomicU64::new(0),
            told: AtomicU64::new(0),
            on_cut: Box::new(on_cut),
            this: this.clone(),
        })
    }

    /// Goes on over another link to the same peer, which does the same. Takes the place of a link that has not been found broken yet.
    pub fn reattach(&self, link: Arc<dyn Connection>) -> Result<(), TransportError> {
        let before = {
            let mut links = lock(&self.links);
            if links.over.is_some() {
                drop(links);
                link.shutdown();
                return Err(self.ended());
            }
            [links.joining.replace(Arc::clone(&link)), links.link.take()]
        };
        // Wakes whoever reads, sends or joins.
        before.iter().flatten().for_each(|link| link.shutdown());
        let joined = self.join(&link);
        let mut links = lock(&self.links);
        if links.are_joined_by(&link) {
            links.joining = None;
        }
        drop(links);
        if joined.is_err() {
            link.shutdown();
        }
        joined
    }

    fn join(&self, link: &Arc<dyn Connection>) -> Result<(), TransportError> {
        let mut inbound = lock(&self.inbound);
        let mut outbound = lock(&self.outbound);
        // A later link has come meanwhile.
        let is_late = || TransportError::Closed { peer: link.peer() };
        if !lock(&self.links).are_joined_by(link) {
            return Err(is_late());
        }
        let received = self.received.load(Ordering::Acquire);
        link.send(&[IoSlice::new(&received.to_le_bytes())])?;
        let mut position = [0; 8];
        recv_exact_within(&**link, &mut position, EXCHANGE_LIMIT)?;
        let position = u64::from_le_bytes(position);
        // The peer has had more: it has given this link up since, and comes by another.
        if position < self.acknowledged.load(Ordering::Acquire) {
            return Err(is_late());
        }
        if position < outbound.base {
            let lacks = outbound.base - position;
            self.fail(format!(
                "the peer lacks {lacks} bytes that are not kept any more: more than {} MiB were under way",
                KEPT_LIMIT >> 20
            ));
            return Err(self.ended());
        }
        // No position: words of a server that turned the link away before it knew that it goes on with a stream.
        if position > outbound.end() {
            return Err(TransportError::Lost {
                peer: link.peer(),
                reason: "the peer has more than was sent".into(),
            });
        }
        self.acknowledged.fetch_max(position, Ordering::AcqRel);
        self.told.fetch_max(received, Ordering::AcqRel);
        let mut links = lock(&self.links);
        if links.over.is_some() {
            drop(links);
            return Err(self.ended());
        }
        if !links.are_joined_by(link) {
            return Err(is_late());
        }
        links.generation += 1;
        links.link = Some(Arc::clone(link));
        links.peer = link.peer();
        let generation = links.generation;
        drop(links);
        outbound.handed = position;
        (outbound.link, outbound.generation) = (Some(Arc::clone(link)), generation);
        (inbound.link, inbound.generation) = (Some(Arc::clone(link)), generation);
        drop(inbound);
        self.changed.notify_all();
        // The next sender waits for this.
        if let Err(error) = outbound.hand_over() {
            drop(outbound);
            self.cut_off(generation, &error.to_string());
        }
        Ok(())
    }

    /// Breaks the link: it is known to be of no use though it has not failed.
    pub fn cut(&self, reason: &str) {
        let generation = lock(&self.links).generation;
        self.cut_off(generation, reason);
    }

    /// Ends the connection for good; every call fails for this reason.
    pub fn fail(&self, reason: String) {
        self.finish(Over::Failed(reason));
    }

    /// Whether there is no link now, though the connection is not over.
    pub fn is_cut(&self) -> bool {
        let links = lock(&self.links);
        links.link.is_none() && links.over.is_none()
    }

    /// Whether the connection is over.
    pub fn is_over(&self) -> bool {
        lock(&self.links).over.is_some()
    }

    fn finish(&self, over: Over) {
        let mut links = lock(&self.links);
        if links.over.is_none() {
            links.over = Some(over);
        }
        let ends = [links.link.take(), links.joining.take()];
        drop(links);
        ends.iter().flatten().for_each(|link| link.shutdown());
        self.changed.notify_all();
    }

    /// Notes that the link of a generation is broken.
    fn cut_off(&self, generation: u64, reason: &str) {
        let mut links = lock(&self.links);
        if links.generation != generation || links.over.is_some() {
            return;
        }
        let Some(link) = links.link.take() else {
            return;
        };
        drop(links);
        link.shutdown();
        if let Some(this) = self.this.upgrade() {
            (self.on_cut)(&this, reason);
        }
    }

    /// Waits for a link after that of `generation`; `false` when `until` passed first.
    fn wait_link(&self, generation: u64, until: Option<Instant>) -> Result<bool, TransportError> {
        let mut links = lock(&self.links);
        loop {
            if links.over.is_some() {
                drop(links);
                return Err(self.ended());
            }
            if links.link.is_some() && links.generation != generation {
                return Ok(true);
            }
            links = match until {
                None => self
                    .changed
                    .wait(links)
                    .unwrap_or_else(PoisonError::into_inner),
                Some(until) => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Ok(false);
                    }
                    let waited = self.changed.wait_timeout(links, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// The error of a connection that is over.
    fn ended(&self) -> TransportError {
        let links = lock(&self.links);
        let peer = links.peer.clone();
        match &links.over {
            Some(Over::Failed(reason)) => TransportError::Lost {
                peer,
                reason: reason.clone(),
            },
            _ => TransportError::Closed { peer },
        }
    }

    /// Ends the connection, because the peer broke the rules.
    fn broken(&self, how: &str) -> TransportError {
        self.fail(format!("the peer broke the protocol: {how}"));
        self.ended()
    }

    fn receive(
        &self,
        buffer: &mut [u8],
        wait: Option<Duration>,
    ) -> Result<Option<usize>, TransportError> {
        if buffer.is_empty() {
            return Ok(Some(0));
        }
        loop {
            let mut inbound = match wait {
                Some(_) => lock(&self.inbound),
                None => match try_lock(&self.inbound) {
                    Some(inbound) => inbound,
                    None => return Ok(None),
                },
            };
            let generation = inbound.generation;
            let read = inbound.read(self, buffer, wait.map_or(Wait::No, Wait::Soon));
            drop(inbound);
            match read {
                Ok(count) => {
                    self.acknowledge();
                    return Ok(Some(count));
                }
                Err(Unread::Broken(how)) => return Err(self.broken(&how)),
                Err(Unread::Cut(generation, reason)) => self.cut_off(generation, &reason),
                Err(Unread::Empty) => return Ok(None),
            }
            if wait.is_none() {
                return match self.is_over() {
                    true => Err(self.ended()),
                    false => Ok(None),
                };
            }
            self.wait_link(generation, None)?;
        }
    }

    /// Tells the peer what has come, once that is much. A thread that sends meanwhile tells it by itself, now or with what it sends next.
    fn acknowledge(&self) {
        let received = self.received.load(Ordering::Acquire);
        // A thread that sends may have told more by now.
        if received.saturating_sub(self.told.load(Ordering::Acquire)) < ACKNOWLEDGE_EVERY {
            return;
        }
        let Some(mut outbound) = try_lock(&self.outbound) else {
            return;
        };
        if outbound.promised > 0 {
            return;
        }
        outbound.trim(self);
        outbound.begin(self, 0, 0);
        // A link that is cut is noticed by who reads it.
        let _ = outbound.push();
    }

    /// Takes acknowledgements off the link, as far as they come before data: whoever reads may not be there.
    fn look_for_acknowledgements(&self) -> Result<(), TransportError> {
        let Some(mut inbound) = try_lock(&self.inbound) else {
            return Ok(());
        };
        while inbound.left == 0 && !inbound.ended {
            match inbound.read_header(self, Wait::No) {
                Ok(()) => {}
                Err(Unread::Broken(how)) => return Err(self.broken(&how)),
                // The sender notices a broken link.
                Err(Unread::Cut(..) | Unread::Empty) => break,
            }
        }
        Ok(())
    }

    /// Looks at a link that is readable.
    fn finds_data(&self) -> Result<Found, TransportError> {
        let Some(mut inbound) = try_lock(&self.inbound) else {
            // Somebody reads already.
            return Ok(Found::Data);
        };
        if inbound.left > 0 || inbound.ended {
            return Ok(Found::Data);
        }
        match inbound.read_header(self, Wait::No) {
            // The data of a record comes with its header.
            Ok(()) if inbound.left > 0 || inbound.is_through() => Ok(Found::Data),
            Ok(()) | Err(Unread::Empty) => Ok(Found::Nothing),
            Err(Unread::Broken(how)) => Err(self.broken(&how)),
            Err(Unread::Cut(_, reason)) => Ok(Found::Cut(reason)),
        }
    }

    /// Has links take all that is pending.
    fn drain<'a>(
        &'a self,
        mut outbound: MutexGuard<'a, Outbound>,
    ) -> Result<MutexGuard<'a, Outbound>, TransportError> {
        while let Err(error) = outbound.hand_over() {
            let generation = outbound.generation;
            drop(outbound);
            self.cut_off(generation, &error.to_string());
            self.wait_link(generation, None)?;
            outbound = lock(&self.outbound);
        }
        Ok(outbound)
    }
}

impl Connection for Resumable {
    fn send(&self, parts: &[IoSlice<'_>]) -> Result<(), TransportError> {
        let mut left: usize = parts.iter().map(|part| part.len()).sum();
        if left == 0 {
            return Ok(());
        }
        if self.is_over() {
            return Err(self.ended());
        }
        let mut outbound = lock(&self.outbound);
        for part in parts {
            let mut rest: &[u8] = part;
            while !rest.is_empty() {
                if outbound.promised == 0 {
                    outbound.trim(self);
                    outbound.begin(self, left.min(STEP), 0);
                }
                let (now, later) = rest.split_at(outbound.promised.min(rest.len()));
                outbound.append(self, now);
                outbound.promised -= now.len();
                left -= now.len();
                rest = later;
                if outbound.end() - outbound.handed >= STEP as u64 {
                    outbound = self.drain(outbound)?;
                    outbound.trim(self);
                }
            }
        }
        let much = self.drain(outbound)?.kept.len() > KEPT_MUCH;
        match much {
            true => self.look_for_acknowledgements(),
            false => Ok(()),
        }
    }

    fn try_send(&self, bytes: &[u8]) -> Result<usize, TransportError> {
        if self.is_over() {
            return Err(self.ended());
        }
        let Some(mut outbound) = try_lock(&self.outbound) else {
            return Ok(0);
        };
        if bytes.is_empty() || self.is_cut() {
            return Ok(0);
        }
        let mut taken = 0;
        let mut pushed = outbound.push();
        // In steps, since what the link does not take is kept in vain.
        while taken < bytes.len() && pushed.is_ok() && !outbound.is_pending() {
            let rest = bytes.get(taken..).unwrap_or_default();
            if outbound.promised == 0 {
                outbound.trim(self);
                outbound.begin(self, rest.len().min(STEP), 0);
            }
            let part = rest.get(..outbound.promised.min(rest.len()));
            let part = part.unwrap_or_default();
            outbound.append(self, part);
            pushed = outbound.push();
            // The caller comes again with the data that the link did not take.
            let back = (outbound.end() - outbound.handed).min(part.len() as u64) as usize;
            let kept = outbound.kept.len() - back;
            outbound.kept.truncate(kept);
            self.end.store(outbound.end(), Ordering::Release);
            taken += part.len() - back;
            outbound.promised -= part.len() - back;
            if back > 0 {
                break;
            }
        }
        let (generation, much) = (outbound.generation, outbound.kept.len() > KEPT_MUCH);
        drop(outbound);
        match pushed {
            Ok(()) if much => self.look_for_acknowledgements()?,
            Ok(()) => {}
            // The caller waits for another link in `send`.
            Err(error) => self.cut_off(generation, &error.to_string()),
        }
        Ok(taken)
    }

    fn recv(&self, buffer: &mut [u8]) -> Result<usize, TransportError> {
        self.recv_soon(buffer, Duration::ZERO)
    }

    fn try_recv(&self, buffer: &mut [u8]) -> Result<Option<usize>, TransportError> {
        match self.receive(buffer, None)? {
            None if self.is_over() => Err(self.ended()),
            received => Ok(received),
        }
    }

    fn recv_soon(&self, buffer: &mut [u8], patience: Duration) -> Result<usize, TransportError> {
        loop {
            if let Some(received) = self.receive(buffer, Some(patience))? {
                return Ok(received);
            }
        }
    }

    fn wait_readable(&self, timeout: Option<Duration>) -> Result<bool, TransportError> {
        let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            let (link, generation) = {
                let links = lock(&self.links);
                (links.link.clone(), links.generation)
            };
            let cut = match link {
                None => None,
                Some(link) => {
                    let left = until.map(|until| until.saturating_duration_since(Instant::now()));
                    match link.wait_readable(left) {
                        Ok(false) => return Ok(false),
                        Ok(true) => match self.finds_data()? {
                            Found::Data => return Ok(true),
                            Found::Nothing => continue,
                            Found::Cut(reason) => Some(reason),
                        },
                        Err(error) => Some(error.to_string()),
                    }
                }
            };
            if let Some(cut) = cut {
                self.cut_off(generation, &cut);
            }
            match self.wait_link(generation, until) {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(_) => return Ok(true),
            }
        }
    }

    fn shutdown(&self) {
        if let Some(mut outbound) = try_lock(&self.outbound)
            && outbound.promised == 0
            && !self.is_over()
        {
            outbound.begin(self, 0, END);
            // Without it, the peer takes this end for cut off, until it hears otherwise.
            let _ = outbound.push();
        }
        self.finish(Over::Closed);
    }

    fn peer(&self) -> String {
        lock(&self.links).peer.clone()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl Drop for Resumable {
    fn drop(&mut self) {
        self.shutdown();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

#[cfg(test)]
mod tests;
