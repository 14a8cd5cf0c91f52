//! Lanes whose bytes are changed on their way, message by message: what a peer that lies looks like from the other side.
//!
//! The messages of a command lane are numbered anew, so that one can be dropped, doubled or put elsewhere without its lane ending at once.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use towline_transport::memory::MemoryTransport;
use towline_transport::{
    Address, Capabilities, ConnectOptions, Connection, Listener, Transport, TransportError,
};
use towline_wire::frame::{
    CHUNK_HEADER, ChunkHeader, FrameHeader, FrameReader, begin_message, end_message,
};
use towline_wire::peer::{PEER_FRAME, PeerFrame};

/// A message of a command lane: its kind and its body.
pub type Message = (u16, Vec<u8>);

/// What happens to messages and chunks that one side receives.
pub trait Tamper: Send {
    /// What a message becomes; by default itself.
    fn message(&mut self, message: Message, out: &mut Vec<Message>) {
        out.push(message);
    }

    /// What the header of a chunk becomes; by default itself. Its bytes follow as they are.
    fn chunk(&mut self, header: [u8; CHUNK_HEADER]) -> [u8; CHUNK_HEADER] {
        header
    }

    /// The form that a frame of a peer lane takes; by default itself. A chunk's bytes follow as they are.
    fn frame(&mut self, frame: [u8; PEER_FRAME], out: &mut Vec<[u8; PEER_FRAME]>) {
        out.push(frame);
    }
}

/// Changes nothing.
pub struct Honest;

impl Tamper for Honest {}

/// Which side receives what has been changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Victim {
    /// What the server sends is changed.
    Client,
    /// What the client sends is changed.
    Server,
    /// Two workers, with a peer lane between them on which both directions are changed.
    Peers,
}

type Shared = Arc<Mutex<dyn Tamper>>;

/// A network within this process, over which one side receives other bytes than were sent. The first connection is the command lane.
pub struct TamperedTransport {
    inner: Box<dyn Transport>,
    victim: Victim,
    tamper: Shared,
    traffic: Arc<Traffic>,
    made: AtomicUsize,
    connections: Mutex<Vec<Arc<dyn Connection>>>,
}

/// What the client has sent, by lane.
#[derive(Default)]
pub struct Traffic(Mutex<Vec<Vec<u8>>>);

impl Traffic {
    /// Whether these bytes have been sent, on any lane.
    pub fn holds(&self, bytes: &[u8]) -> bool {
        let mut lanes = lock(&self.0).clone().into_iter();
        lanes.any(|lane| lane.windows(bytes.len()).any(|window| window == bytes))
    }

    fn note(&self, lane: usize, bytes: &[u8]) {
        let mut lanes = lock(&self.0);
        if lanes.len() <= lane {
            lanes.resize(lane + 1, Vec::new());
        }
        lanes[lane].extend_from_slice(bytes);
    }
}

impl TamperedTransport {
    /// A network of its own.
    pub fn new(victim: Victim, tamper: impl Tamper + 'static) -> Self {
        Self::over(Box::new(MemoryTransport::new()), victim, tamper)
    }

    /// The connections of another transport. What peers share beside them passes as it is.
    pub fn over(inner: Box<dyn Transport>, victim: Victim, tamper: impl Tamper + 'static) -> Self {
        Self {
            inner,
            victim,
            tamper: Arc::new(Mutex::new(tamper)),
            traffic: Arc::default(),
            made: AtomicUsize::new(0),
            connections: Mutex::default(),
        }
    }

    /// What the client sends.
    pub fn traffic(&self) -> Arc<Traffic> {
        Arc::clone(&self.traffic)
    }
}

impl Transport for TamperedTransport {
    fn scheme(&self) -> &'static str {
        self.inner.scheme()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn connect(
        &self,
        address: &Address,
        options: &ConnectOptions,
    ) -> Result<Arc<dyn Connection>, TransportError> {
        let inner = self.inner.connect(address, options)?;
        lock(&self.connections).push(Arc::clone(&inner));
        let lane = self.made.fetch_add(1, Ordering::Relaxed);
        let tamper = (self.victim != Victim::Server).then(|| Arc::clone(&self.tamper));
        let traffic = Some(Arc::clone(&self.traffic));
        let kind = self.victim.lane(lane);
        Ok(Arc::new(Tampered::new(inner, kind, lane, tamper, traffic)))
    }

    fn listen(&self, address: &Address) -> Result<Box<dyn Listener>, TransportError> {
        Ok(Box::new(TamperedListener {
            inner: self.inner.listen(address)?,
            victim: self.victim,
            tamper: (self.victim != Victim::Client).then(|| Arc::clone(&self.tamper)),
            // Of clients and servers, what the client sends is enough.
            traffic: (self.victim == Victim::Peers).then(|| Arc::clone(&self.traffic)),
            made: AtomicUsize::new(0),
        }))
    }

    fn adopt(&self, descriptor: OwnedFd) -> Result<Arc<dyn Connection>, TransportError> {
        self.inner.adopt(descriptor)
    }
}

impl Victim {
    /// The kind of the connection of this number.
    fn lane(self, number: usize) -> Lane {
        match (self, number) {
            (Self::Peers, _) => Lane::Peer,
            (_, 0) => Lane::Command,
            _ => Lane::Payload,
        }
    }
}

#[derive(Clone, Copy)]
enum Lane {
    Command,
    Payload,
    Peer,
}

struct TamperedListener {
    inner: Box<dyn Listener>,
    victim: Victim,
    tamper: Option<Shared>,
    traffic: Option<Arc<Traffic>>,
    made: AtomicUsize,
}

impl Listener for TamperedListener {
    fn accept(&self) -> Result<Arc<dyn Connection>, TransportError> {
        let inner = self.inner.accept()?;
        let lane = self.made.fetch_add(1, Ordering::Relaxed);
        let (tamper, traffic) = (self.tamper.clone(), self.traffic.clone());
        let kind = self.victim.lane(lane);
        // Apart from what the other end sends.
        let lane = LISTENERS + lane;
        Ok(Arc::new(Tampered::new(inner, kind, lane, tamper, traffic)))
    }

    fn local_address(&self) -> Address {
        self.inner.local_address()
    }

    fn close(&self) {
        self.inner.close();
    }
}

/// Where the numbers of accepted connections begin.
const LISTENERS: usize = 16;

struct Tampered {
    inner: Arc<dyn Connection>,
    kind: Lane,
    lane: usize,
    tamper: Option<Shared>,
    traffic: Option<Arc<Traffic>>,
    incoming: Mutex<Incoming>,
}

/// What has come and is not changed yet, and what is changed and not taken yet.
#[derive(Default)]
struct Incoming {
    frames: FrameReader,
    chunks: Vec<u8>,
    /// Bytes of the chunk that pass as they are.
    passing: usize,
    next_number: u64,
    ready: VecDeque<u8>,
}

impl Tampered {
    fn new(
        inner: Arc<dyn Connection>,
        kind: Lane,
        lane: usize,
        tamper: Option<Shared>,
        traffic: Option<Arc<Traffic>>,
    ) -> Self {
        let incoming = Mutex::new(Incoming {
            next_number: 1,
            ..Incoming::default()
        });
        Self {
            inner,
            kind,
            lane,
            tamper,
            traffic,
            incoming,
        }
    }

    /// Takes what has come through `receive` until some of it is ready; `None` when `receive` has nothing.
    fn take(
        &self,
        tamper: &Shared,
        buffer: &mut [u8],
        receive: impl Fn(&mut [u8]) -> Result<Option<usize>, TransportError>,
    ) -> Result<Option<usize>, TransportError> {
        let mut piece = vec![0; 64 << 10];
        loop {
            {
                let mut incoming = lock(&self.incoming);
                if !incoming.ready.is_empty() || buffer.is_empty() {
                    let count = buffer.len().min(incoming.ready.len());
                    for (place, byte) in buffer.iter_mut().zip(incoming.ready.drain(..count)) {
                        *place = byte;
                    }
                    return Ok(Some(count));
                }
            }
            match receive(&mut piece)? {
                None => return Ok(None),
                Some(0) => return Ok(Some(0)),
                Some(count) => {
                    let mut incoming = lock(&self.incoming);
                    let (bytes, tamper) = (&piece[..count], &mut *lock(tamper));
                    match self.kind {
                        Lane::Command => incoming.command(bytes, tamper),
                        Lane::Payload => incoming.payload(bytes, tamper),
                        Lane::Peer => incoming.peer(bytes, tamper),
                    }
                }
            }
        }
    }
}

impl Incoming {
    fn command(&mut self, mut bytes: &[u8], tamper: &mut dyn Tamper) {
        while !bytes.is_empty() {
            let space = self.frames.space();
            let (now, later) = bytes.split_at(space.len().min(bytes.len()));
            space[..now.len()].copy_from_slice(now);
            self.frames.filled(now.len());
            bytes = later;
            let mut messages = Vec::new();
            while let Some(message) = self.frames.next().expect("both sides frame well") {
                tamper.message((message.id, message.body.to_vec()), &mut messages);
            }
            let mut body = Vec::new();
            for (id, bytes) in &messages {
                let at = begin_message(&mut body, *id);
                body.extend_from_slice(bytes);
                end_message(&mut body, at);
            }
            let header = FrameHeader {
                length: body.len() as u32,
                sequence: self.next_number,
                acknowledged: self.frames.acknowledged(),
            };
            self.next_number += messages.len() as u64;
            self.ready.extend(header.to_bytes());
            self.ready.extend(body);
        }
    }

    fn payload(&mut self, bytes: &[u8], tamper: &mut dyn Tamper) {
        self.headers(bytes, |ready, header: [u8; CHUNK_HEADER]| {
            let honest = ChunkHeader::from_bytes(&header).expect("both sides frame well");
            ready.extend(tamper.chunk(header));
            honest.length
        });
    }

    fn peer(&mut self, bytes: &[u8], tamper: &mut dyn Tamper) {
        self.headers(bytes, |ready, header: [u8; PEER_FRAME]| {
            let honest = PeerFrame::from_bytes(&header).expect("both sides frame well");
            let mut frames = Vec::new();
            tamper.frame(header, &mut frames);
            ready.extend(frames.as_flattened());
            match honest {
                PeerFrame::Chunk { length, .. } => length,
                _ => 0,
            }
        });
    }

    /// Finds headers among bytes that pass as they are; `change` says how many come behind a header.
    fn headers<const SIZE: usize>(
        &mut self,
        mut bytes: &[u8],
        mut change: impl FnMut(&mut VecDeque<u8>, [u8; SIZE]) -> u32,
    ) {
        while !bytes.is_empty() {
            let wanted = match self.passing {
                0 => SIZE - self.chunks.len(),
                passing => passing,
            };
            let (now, later) = bytes.split_at(wanted.min(bytes.len()));
            bytes = later;
            if self.passing > 0 {
                self.passing -= now.len();
                self.ready.extend(now);
                continue;
            }
            self.chunks.extend_from_slice(now);
            if let Some(header) = self.chunks.first_chunk::<SIZE>() {
                self.passing = change(&mut self.ready, *header) as usize;
                self.chunks.clear();
            }
        }
    }
}

impl Connection for Tampered {
    fn send(&self, parts: &[IoSlice<'_>]) -> Result<(), TransportError> {
        if let Some(traffic) = &self.traffic {
            parts.iter().for_each(|part| traffic.note(self.lane, part));
        }
        self.inner.send(parts)
    }

    fn try_send(&self, bytes: &[u8]) -> Result<usize, TransportError> {
        let sent = self.inner.try_send(bytes)?;
        if let Some(traffic) = &self.traffic {
            traffic.note(self.lane, &bytes[..sent]);
        }
        Ok(sent)
    }

    fn recv(&self, buffer: &mut [u8]) -> Result<usize, TransportError> {
        let Some(tamper) = &self.tamper else {
            return self.inner.recv(buffer);
        };
        let taken = self.take(tamper, buffer, |piece| self.inner.recv(piece).map(Some))?;
        Ok(taken.unwrap_or(0))
    }

    fn try_recv(&self, buffer: &mut [u8]) -> Result<Option<usize>, TransportError> {
        let Some(tamper) = &self.tamper else {
            return self.inner.try_recv(buffer);
        };
        self.take(tamper, buffer, |piece| self.inner.try_recv(piece))
    }

    fn wait_readable(&self, timeout: Option<Duration>) -> Result<bool, TransportError> {
        if !lock(&self.incoming).ready.is_empty() {
            return Ok(true);
        }
        self.inner.wait_readable(timeout)
    }

    fn shutdown(&self) {
        self.inner.shutdown();
    }

    fn peer(&self) -> String {
        self.inner.peer()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inner.descriptor()
    }

    fn shares_memory(&self) -> bool {
        self.inner.shares_memory()
    }

    fn send_descriptor(&self, descriptor: BorrowedFd<'_>) -> Result<(), TransportError> {
        self.inner.send_descriptor(descriptor)
    }

    fn take_descriptor(&self) -> Result<Option<OwnedFd>, TransportError> {
        self.inner.take_descriptor()
    }
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Numbers that follow from a seed.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The numbers of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound.max(1)
    }

    fn number(&mut self) -> u64 {
        (self.below(1 << 32) as u64) << 32 | self.below(1 << 32) as u64
    }
}

/// Puts other numbers where numbers stand, and messages where they do not belong: most sessions go well for a while, then seldom.
pub struct Mutator {
    random: Random,
    /// Messages and chunks that pass before the first is changed.
    spared: usize,
    held: Option<Message>,
}

impl Mutator {
    /// What the seed says.
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let spared = random.below(120);
        Self {
            random,
            spared,
            held: None,
        }
    }

    /// Whether the next thing passes as it is.
    fn spares(&mut self) -> bool {
        match self.spared {
            0 => self.random.below(4) > 0,
            _ => {
                self.spared -= 1;
                true
            }
        }
    }

    /// Puts another number somewhere.
    pub fn renumber(&mut self, bytes: &mut [u8]) {
        let random = &mut self.random;
        let width = [1, 2, 4, 4, 8, 8][random.below(6)].min(bytes.len());
        if width == 0 {
            return;
        }
        // Fields lie at their ends as often as anywhere: counts begin a message, lengths its last blob.
        let last = bytes.len() - width;
        let at = match random.below(4) {
            0 => random.below(last.min(16) + 1),
            _ => random.below(last + 1),
        };
        let place = &mut bytes[at..at + width];
        let mut word = [0; 8];
        word[..width].copy_from_slice(place);
        let old = u64::from_le_bytes(word);
        let new = match random.below(12) {
            0 => 0,
            1 => 1,
            2 => u64::MAX,
            3 => old.wrapping_add(1),
            4 => old.wrapping_sub(1),
            5 => 1 << (8 * width - 1),
            6 => (1 << (8 * width - 1)) - 1,
            7 => old.wrapping_add(4096),
            8 => old.wrapping_mul(2),
            9 => random.number(),
            _ => old ^ 1 << random.below(8 * width),
        };
        place.copy_from_slice(&new.to_le_bytes()[..width]);
    }
}

impl Tamper for Mutator {
    fn message(&mut self, (mut id, mut body): Message, out: &mut Vec<Message>) {
        if self.spares() {
            out.push((id, body));
        } else {
            match self.random.below(16) {
                0 => {}
                1 => {
                    out.push((id, body.clone()));
                    out.push((id, body));
                }
                2 => {
                    if let Some(held) = self.held.replace((id, body)) {
                        out.push(held);
                    }
                    return;
                }
                3 => {
                    body.truncate(self.random.below(body.len() + 1));
                    out.push((id, body));
                }
                4 => {
                    body.extend(vec![self.random.below(256) as u8; self.random.below(40)]);
                    out.push((id, body));
                }
                5 => {
                    id ^= 1 << self.random.below(5);
                    out.push((id, body));
                }
                more => {
                    for _ in 0..1 + more % 3 {
                        self.renumber(&mut body);
                    }
                    out.push((id, body));
                }
            }
        }
        // A message that was held comes behind its successor.
        out.extend(self.held.take());
    }

    fn chunk(&mut self, mut header: [u8; CHUNK_HEADER]) -> [u8; CHUNK_HEADER] {
        if !self.spares() {
            self.renumber(&mut header);
        }
        header
    }

    fn frame(&mut self, mut frame: [u8; PEER_FRAME], out: &mut Vec<[u8; PEER_FRAME]>) {
        if self.spares() {
            return out.push(frame);
        }
        match self.random.below(8) {
            0 => {}
            1 => out.extend([frame, frame]),
            2 => {
                self.renumber(&mut frame);
                out.push(frame);
            }
            // A grant of more than was agreed on, which is sound by itself.
            3 => {
                let more = [1, 4096, 1 << 18][self.random.below(3)];
                for word in frame[24..].as_chunks_mut::<8>().0 {
                    *word = u64::from_le_bytes(*word).wrapping_add(more).to_le_bytes();
                }
                out.push(frame);
            }
            // A field that some kind of frame has: most others end the lane at once.
            _ => {
                let field = 8 * (1 + self.random.below(4));
                self.renumber(&mut frame[field..field + 8]);
                out.push(frame);
            }
        }
    }
}

impl TamperedTransport {
    /// Ends every connection that was made through here: what still waits then has nothing to wait for.
    pub fn cut(&self) {
        for connection in lock(&self.connections).iter() {
            connection.shutdown();
        }
    }
}
