//! A [`Connection`] whose bytes travel in TLS records.

use std::io::IoSlice;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use rustix::fd::BorrowedFd;
use rustls::client::ClientConnectionData;
use rustls::kernel::KernelConnection;
use rustls::server::ServerConnectionData;
use rustls::{ConnectionTrafficSecrets, ExtractedSecrets};

use super::exporter::{Exporter, Listener};
use super::handshake::Left;
use super::identity::Fingerprint;
use super::record::{self, ALERT, CONTENT_LIMIT, DATA, Direction, HANDSHAKE, HEADER, RecordError};
use crate::{Connection, TransportError, recv_exact_within};

const CUT_SHORT: &str = "the rest of a record did not come: bytes were lost or changed on the way";
/// Content that is sealed before it is sent: stays in the second-level cache, and is few system calls.
const SEND_BATCH: usize = 8 * CONTENT_LIMIT;
/// Most bytes that one receive takes off the stream.
const RECEIVE_BATCH: usize = 256 << 10;
/// Bytes taken off the stream where the caller's buffer is short. With a buffer of twice [`record::RECORD_LIMIT`] and more, nothing that
/// is whole stays behind a receive.
const RECEIVE_LEAST: usize = CONTENT_LIMIT - 64;
/// Records under one key: AES-GCM is good for 2^24.5 (RFC 8446, section 5.5).
const RECORDS_PER_KEY: u64 = 1 << 22;
/// How long the rest of a record may keep a reader waiting. A peer sends records whole, so the rest is on its way, or never comes: then
/// the length, which only the whole record proves, was changed.
const RECORD_PATIENCE: Duration = Duration::from_secs(20);
/// How long a thread waits for the stream before it looks at what others have taken off it: a receive into a short buffer may leave records
/// here, and then the stream may have nothing more to say.
const LOOK_PERIOD: Duration = Duration::from_millis(50);
const CLOSE_NOTIFY: [u8; 2] = [1, 0];
/// A message of kind 24, 1 byte long, that asks for nothing.
const KEY_UPDATE: [u8; 5] = [24, 0, 0, 1, 0];

/// A TLS connection, its handshake done.
pub struct TlsConnection {
    stream: Arc<dyn Connection>,
    sending: Mutex<Sending>,
    receiving: Mutex<Receiving>,
    /// Gives the next keys of either direction.
    keys: Mutex<Keys>,
    /// The peer wants other keys of us.
    update_wanted: AtomicBool,
    /// This side has ended the connection.
    closing: AtomicBool,
    exporter: Exporter,
    peer: Option<Fingerprint>,
    /// A process that was forked off has a copy of the keys. It must not send with them, not even the end.
    process: u32,
    /// [`RECORD_PATIENCE`].
    patience: Duration,
}

/// The state that rustls keeps of the handshake.
pub(super) enum Keys {
    Client(KernelConnection<ClientConnectionData>),
    Server(KernelConnection<ServerConnectionData>),
}

impl Keys {
    fn next_to_send(&mut self) -> Result<(u64, ConnectionTrafficSecrets), rustls::Error> {
        match self {
            Self::Client(keys) => keys.update_tx_secret(),
            Self::Server(keys) => keys.update_tx_secret(),
        }
    }

    fn next_to_receive(&mut self) -> Result<(u64, ConnectionTrafficSecrets), rustls::Error> {
        match self {
            Self::Client(keys) => keys.update_rx_secret(),
            Self::Server(keys) => keys.update_rx_secret(),
        }
    }
}

struct Sending {
    direction: Direction,
    records_per_key: u64,
    /// Sealed records.
    sealed: Vec<u8>,
    /// How many of those bytes are gone.
    gone: usize,
    /// Content of `sealed` that no call has reported as sent, because the stream was full. The next calls bring it again.
    unreported: Vec<u8>,
    /// Nothing can follow: the end was sent, or a record was cut short.
    ended: bool,
}

struct Receiving {
    direction: Direction,
    buffer: Vec<u8>,
    /// Content that is opened and not taken yet.
    content: Range<usize>,
    /// What is still sealed, behind the content.
    sealed: Range<usize>,
    /// Bytes that the stream has brought.
    received: u64,
    /// Nothing more comes.
    end: Option<End>,
}

enum End {
    /// The peer said so.
    Orderly,
    /// Why; told once.
    Failed(Option<TransportError>),
}

/// Takes bytes from the front of several slices.
struct Parts<'a> {
    parts: &'a [IoSlice<'a>],
    taken: usize,
}

impl Parts<'_> {
    /// Gives at most `limit` bytes to `take`, in pieces.
    fn take(&mut self, mut limit: usize, mut take: impl FnMut(&[u8])) {
        while limit > 0
            && let Some((first, rest)) = self.parts.split_first()
        {
            let piece = &first[self.taken..];
            if piece.len() > limit {
                take(&piece[..limit]);
                self.taken += limit;
                return;
            }
            take(piece);
            limit -= piece.len();
            (self.parts, self.taken) = (rest, 0);
        }
    }

    fn is_empty(&self) -> bool {
        let taken = self.taken;
        let mut rest = self.parts.iter().map(|part| part.len());
        rest.next().is_none_or(|first| first == taken) && rest.all(|len| len == 0)
    }
}

impl TlsConnection {
    pub(super) fn new(
        stream: Arc<dyn Connection>,
        secrets: ExtractedSecrets,
        keys: Keys,
        left: Left,
        listener: &Listener,
        peer: Option<Fingerprint>,
    ) -> Result<Arc<Self>, TransportError> {
        let tls = |reason: String| TransportError::Tls {
            peer: stream.peer(),
            reason,
        };
        let exporter = listener
            .take()
            .ok_or_else(|| tls("the handshake left no exporter".into()))?;
        let sending = Sending {
            direction: Direction::new(secrets.tx).map_err(|error| tls(error.to_string()))?,
            records_per_key: RECORDS_PER_KEY,
            sealed: Vec::new(),
            gone: 0,
            unreported: Vec::new(),
            ended: false,
        };
        let content = 0..left.content.len();
        let mut buffer = left.content;
        buffer.extend_from_slice(&left.sealed);
        let receiving = Receiving {
            direction: Direction::new(secrets.rx).map_err(|error| tls(error.to_string()))?,
            sealed: content.end..buffer.len(),
            content,
            buffer,
            received: 0,
            end: left.ended.then_some(End::Orderly),
        };
        Ok(Arc::new(Self {
            stream,
            sending: Mutex::new(sending),
            receiving: Mutex::new(receiving),
            keys: Mutex::new(keys),
            update_wanted: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            exporter,
            peer,
            process: std::process::id(),
            patience: RECORD_PATIENCE,
        }))
    }

    /// 32 bytes that only the two ends of this connection know, for each label and context others (RFC 8446, section 7.5).
    pub fn exporter(&self, label: &str, context: &[u8]) -> [u8; 32] {
        self.exporter.export(label.as_bytes(), context)
    }

    /// The key that the peer has shown, if it has shown any.
    pub fn peer_fingerprint(&self) -> Option<Fingerprint> {
        self.peer
    }

    /// Shows the peer a proof and checks its own: the side that connected shows first, and the other one only when that was right.
    pub fn exchange_proofs(
        &self,
        connects: bool,
        own: &[u8; 32],
        check: impl FnOnce(&[u8; 32]) -> bool,
        limit: Duration,
    ) -> Result<(), TransportError> {
        if connects {
            self.send(&[IoSlice::new(own)])?;
        }
        let mut proof = [0; 32];
        recv_exact_within(self, &mut proof, limit)?;
        if !check(&proof) {
            return Err(TransportError::Tls {
                peer: self.stream.peer(),
                reason: "the other end does not prove that it belongs to this session".into(),
            });
        }
        match connects {
            true => Ok(()),
            false => self.send(&[IoSlice::new(own)]),
        }
    }

    /// Waits for the rest of a record less long than usual, for a test.
    #[cfg(test)]
    pub(super) fn set_patience(this: &mut Arc<Self>, patience: Duration) {
        Arc::get_mut(this).expect("nobody else has it").patience = patience;
    }

    /// Changes keys after fewer records than usual, for a test.
    #[cfg(test)]
    pub(super) fn set_records_per_key(&self, records: u64) {
        lock(&self.sending).records_per_key = records;
    }

    #[cold]
    fn lost(&self, reason: impl ToString) -> TransportError {
        TransportError::Lost {
            peer: self.stream.peer(),
            reason: reason.to_string(),
        }
    }

    fn closed(&self) -> TransportError {
        TransportError::Closed {
            peer: self.stream.peer(),
        }
    }

    /// Seals records until the batch is full or nothing is left.
    fn seal(&self, sending: &mut Sending, parts: &mut Parts<'_>) -> Result<(), TransportError> {
        sending.sealed.clear();
        sending.gone = 0;
        let mut room = SEND_BATCH;
        while room > 0 && !parts.is_empty() {
            self.seal_record(sending, DATA, |out| {
                parts.take(CONTENT_LIMIT, |piece| out.extend_from_slice(piece));
            })?;
            room -= CONTENT_LIMIT;
        }
        Ok(())
    }

    fn seal_record(
        &self,
        sending: &mut Sending,
        kind: u8,
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), TransportError> {
        if sending.direction.records() >= sending.records_per_key
            || self.update_wanted.load(Ordering::Relaxed)
        {
            self.update_wanted.store(false, Ordering::Relaxed);
            let update = |out: &mut Vec<u8>| out.extend_from_slice(&KEY_UPDATE);
            let Sending {
                direction, sealed, ..
            } = sending;
            let next = lock(&self.keys).next_to_send();
            let next = next.map_err(|error| self.lost(error))?;
            direction
                .seal(HANDSHAKE, sealed, update)
                .map_err(|error| self.lost(error))?;
            *direction = Direction::new(next).map_err(|error| self.lost(error))?;
        }
        sending
            .direction
            .seal(kind, &mut sending.sealed, fill)
            .map_err(|error| self.lost(error))
    }

    /// What a failed send leaves: a record that is cut short, perhaps.
    fn sent(
        &self,
        sending: &mut Sending,
        sent: Result<usize, TransportError>,
    ) -> Result<(), TransportError> {
        match sent {
            Ok(count) => sending.gone += count,
            Err(error) => {
                sending.ended = true;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Sends what is sealed; `false` when the stream took only a part.
    fn drain(&self, sending: &mut Sending, wait: bool) -> Result<bool, TransportError> {
        let Some(rest) = sending
            .sealed
            .get(sending.gone..)
            .filter(|rest| !rest.is_empty())
        else {
            return Ok(true);
        };
        let sent = match wait {
            true => {
                let count = rest.len();
                self.stream.send(&[IoSlice::new(rest)]).map(|()| count)
            }
            false => self.stream.try_send(rest),
        };
        self.sent(sending, sent)?;
        Ok(sending.gone == sending.sealed.len())
    }

    /// Takes from `parts` what an earlier call has sealed already.
    fn skip_unreported(
        &self,
        sending: &mut Sending,
        parts: &mut Parts<'_>,
    ) -> Result<usize, TransportError> {
        let mut skipped = 0;
        let mut same = true;
        let unreported = &sending.unreported;
        parts.take(unreported.len(), |piece| {
            let expected = unreported.get(skipped..skipped + piece.len());
            same &= expected == Some(piece);
            skipped += piece.len();
        });
        if !same {
            sending.ended = true;
            self.stream.shutdown();
            return Err(self.lost("bytes that were sent in part were replaced by others"));
        }
        sending.unreported.drain(..skipped);
        Ok(skipped)
    }

    fn usable<'a>(
        &self,
        sending: MutexGuard<'a, Sending>,
    ) -> Result<MutexGuard<'a, Sending>, TransportError> {
        match sending.ended || self.closing.load(Ordering::Acquire) {
            true => Err(self.closed()),
            false => Ok(sending),
        }
    }

    /// Opens records until there is content or the end: `false` when more must come first.
    fn open(&self, receiving: &mut Receiving) -> bool {
        while receiving.content.is_empty() && receiving.end.is_none() {
            match self.open_record(receiving) {
                Ok(true) => {}
                Ok(false) => return false,
                Err(reason) => self.give_up(receiving, reason),
            }
        }
        true
    }

    /// `false` when no whole record is there.
    fn open_record(&self, receiving: &mut Receiving) -> Result<bool, RecordError> {
        let Receiving {
            direction,
            buffer,
            content,
            sealed,
            end,
            ..
        } = receiving;
        let waiting = buffer.get_mut(sealed.clone()).unwrap_or_default();
        let Some(record) = record::length(waiting)?.and_then(|whole| waiting.get_mut(..whole))
        else {
            return Ok(false);
        };
        let (kind, len) = direction.open(record)?;
        let found = &record[HEADER..HEADER + len];
        match (kind, found) {
            (DATA, _) => {
                let start = sealed.start + HEADER;
                *content = start..start + len;
            }
            (ALERT, [1, 0]) => *end = Some(End::Orderly),
            (ALERT, [_, alert]) => return Err(RecordError::Alert(*alert)),
            (HANDSHAKE, [24, 0, 0, 1, request @ 0..=1]) => {
                let next = lock(&self.keys).next_to_receive();
                *direction = Direction::new(next.map_err(|_| RecordError::Cipher)?)?;
                if *request == 1 {
                    self.update_wanted.store(true, Ordering::Relaxed);
                }
            }
            _ => return Err(RecordError::Malformed),
        }
        sealed.start += record.len();
        Ok(true)
    }

    /// Nothing that comes now can be trusted.
    #[cold]
    fn give_up(&self, receiving: &mut Receiving, reason: impl ToString) {
        receiving.end = Some(End::Failed(Some(self.lost(reason))));
        self.stream.shutdown();
    }

    /// Takes opened content, and opens what else has come whole. `None` when more must come first.
    fn take(
        &self,
        receiving: &mut Receiving,
        out: &mut [u8],
    ) -> Result<Option<usize>, TransportError> {
        let mut taken = 0;
        while taken < out.len() && self.open(receiving) && !receiving.content.is_empty() {
            let Receiving {
                buffer, content, ..
            } = receiving;
            let count = content.len().min(out.len() - taken);
            out[taken..taken + count].copy_from_slice(&buffer[content.start..][..count]);
            content.start += count;
            taken += count;
        }
        match &mut receiving.end {
            // What was taken is whole; the next call tells of the end.
            _ if taken > 0 => Ok(Some(taken)),
            None => Ok(None),
            Some(End::Orderly) => Ok(Some(0)),
            Some(End::Failed(_)) if self.closing.load(Ordering::Acquire) => Ok(Some(0)),
            Some(End::Failed(reason)) => Err(reason.take().unwrap_or_else(|| self.closed())),
        }
    }

    /// Takes bytes, or the end, off the stream; `false` when neither is there and it must not wait.
    fn fetch(&self, receiving: &mut Receiving, wanted: usize, wait: bool) -> bool {
        let Receiving {
            buffer,
            content,
            sealed,
            ..
        } = receiving;
        let partial = sealed.len();
        let count = wanted
            .saturating_sub(partial)
            .clamp(RECEIVE_LEAST, RECEIVE_BATCH);
        // No content is left here, so the partial record may move to the front.
        if partial == 0 || buffer.len() < sealed.end + count {
            buffer.copy_within(sealed.clone(), 0);
            *sealed = 0..partial;
            *content = 0..0;
            if buffer.len() < partial + count {
                buffer.resize(partial + count, 0);
            }
        }
        let room = &mut buffer[sealed.end..][..count];
        let received = match wait {
            true if partial > 0 => match self.stream.wait_readable(Some(self.patience)) {
                Ok(true) => self.stream.recv(room).map(Some),
                Ok(false) => Err(self.lost(CUT_SHORT)),
                Err(error) => Err(error),
            },
            true => self.stream.recv(room).map(Some),
            false => self.stream.try_recv(room),
        };
        match received {
            Ok(None) => return false,
            Ok(Some(0)) if self.closing.load(Ordering::Acquire) => {
                receiving.end = Some(End::Orderly)
            }
            Ok(Some(0)) => self.give_up(
                receiving,
                "it ended without saying so: the connection was cut, or the peer died",
            ),
            Ok(Some(count)) => {
                sealed.end += count;
                receiving.received += count as u64;
            }
            Err(error) => {
                self.stream.shutdown();
                receiving.end = Some(End::Failed(Some(error)));
            }
        }
        true
    }

    fn end(&self) {
        if self.closing.swap(true, Ordering::AcqRel) || self.process != std::process::id() {
            return;
        }
        // A thread that is sending has begun a record that nothing may interrupt; its peer sees a cut, which it is.
        if let Some(mut sending) = try_lock(&self.sending)
            && !sending.ended
            && sending.gone == sending.sealed.len()
        {
            sending.ended = true;
            sending.sealed.clear();
            sending.gone = 0;
            let close = |out: &mut Vec<u8>| out.extend_from_slice(&CLOSE_NOTIFY);
            if self.seal_record(&mut sending, ALERT, close).is_ok() {
                let _ = self.stream.try_send(&sending.sealed);
            }
        }
        self.stream.shutdown();
    }
}

impl Connection for TlsConnection {
    fn send(&self, parts: &[IoSlice<'_>]) -> Result<(), TransportError> {
        let mut sending = self.usable(lock(&self.sending))?;
        let mut parts = Parts { parts, taken: 0 };
        self.drain(&mut sending, true)?;
        self.skip_unreported(&mut sending, &mut parts)?;
        while !parts.is_empty() {
            self.seal(&mut sending, &mut parts)?;
            self.drain(&mut sending, true)?;
        }
        Ok(())
    }

    /// As the contract says; in addition, bytes that follow a call which took only a part must begin with the rest of that call's bytes,
    /// as on any stream of messages: a record that the stream took a part of cannot be taken back.
    fn try_send(&self, bytes: &[u8]) -> Result<usize, TransportError> {
        let Some(sending) = try_lock(&self.sending) else {
            return Ok(0);
        };
        let mut sending = self.usable(sending)?;
        if !self.drain(&mut sending, false)? {
            return Ok(0);
        }
        let slice = [IoSlice::new(bytes)];
        let mut parts = Parts {
            parts: &slice,
            taken: 0,
        };
        let mut reported = self.skip_unreported(&mut sending, &mut parts)?;
        // One record at a time, so that little is sealed that the stream does not take.
        while let Some(rest) = bytes.get(reported..).filter(|rest| !rest.is_empty()) {
            let record = &rest[..rest.len().min(CONTENT_LIMIT)];
            sending.sealed.clear();
            sending.gone = 0;
            let sealed = self.seal_record(&mut sending, DATA, |out| out.extend_from_slice(record));
            match sealed.and_then(|()| self.drain(&mut sending, false)) {
                Ok(true) => reported += record.len(),
                Ok(false) => {
                    sending.unreported.extend_from_slice(record);
                    break;
                }
                // The next call fails; what has gone is told first.
                Err(_) if reported > 0 => {
                    sending.ended = true;
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(reported)
    }

    fn recv(&self, buffer: &mut [u8]) -> Result<usize, TransportError> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let mut receiving = lock(&self.receiving);
        loop {
            if let Some(taken) = self.take(&mut receiving, buffer)? {
                return Ok(taken);
            }
            self.fetch(&mut receiving, buffer.len(), true);
        }
    }

    fn try_recv(&self, buffer: &mut [u8]) -> Result<Option<usize>, TransportError> {
        if buffer.is_empty() {
            return Ok(Some(0));
        }
        // Another thread receives, and waits.
        let Some(mut receiving) = try_lock(&self.receiving) else {
            return Ok(None);
        };
        loop {
            if let Some(taken) = self.take(&mut receiving, buffer)? {
                return Ok(Some(taken));
            }
            if !self.fetch(&mut receiving, buffer.len(), false) {
                return Ok(None);
            }
        }
    }

    fn wait_readable(&self, timeout: Option<Duration>) -> Result<bool, TransportError> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        // A record of which a part is there: how much had come by when.
        let mut partial: Option<(u64, Instant)> = None;
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let mut period = LOOK_PERIOD;
            // Where another thread receives, it takes what comes.
            if let Some(mut receiving) = try_lock(&self.receiving) {
                loop {
                    // A failure is there for the next receive, which then tells of it.
                    if self.open(&mut receiving) {
                        return Ok(true);
                    }
                    if !self.fetch(&mut receiving, 0, false) {
                        break;
                    }
                }
                let received = receiving.received;
                partial = match partial {
                    _ if receiving.sealed.is_empty() => None,
                    Some((before, since)) if before == received => Some((before, since)),
                    _ => Some((received, Instant::now())),
                };
                if let Some((_, since)) = partial {
                    period = period.min(self.patience.saturating_sub(since.elapsed()));
                    if period.is_zero() {
                        self.give_up(&mut receiving, CUT_SHORT);
                        return Ok(true);
                    }
                }
            }
            let is_last = left.is_some_and(|left| left <= period);
            let period = left.map_or(period, |left| left.min(period));
            if !self.stream.wait_readable(Some(period))? && is_last {
                return Ok(false);
            }
        }
    }

    fn shutdown(&self) {
        self.end();
    }

    fn peer(&self) -> String {
        self.stream.peer()
    }

    /// None: the keys could not follow it.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl Drop for TlsConnection {
    fn drop(&mut self) {
        self.end();
    }
}

/// Locks state that is changed only after what could fail.
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
