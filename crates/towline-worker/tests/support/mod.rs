//! A client's end of a session that says what the test likes, beside an engine on the host-memory device.

use std::io::IoSlice;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use towline_backend::opencl as wire;
use towline_backend::opencl::{NullOpenCl, Request};
use towline_session::Outbox;
use towline_transport::memory::MemoryTransport;
use towline_transport::{Address, ConnectOptions, Connection, Transport};
use towline_wire::error::CloseCode;
use towline_wire::frame::{ChunkHeader, FrameReader};
use towline_wire::push::Push;
use towline_worker::{Counters, Limits, OpenClEngine, RunError, SideLane};

/// Nothing here takes longer, on a busy machine either.
const PATIENCE: Duration = Duration::from_secs(20);

/// How far a client came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reached {
    /// The worker answered: the session goes on.
    Answer,
    /// The worker closed the session.
    Closed(CloseCode),
    /// The session ended without a word.
    Left,
}

/// What the worker pushed.
#[derive(Default)]
struct Inbox {
    replies: Vec<(u64, i32)>,
    failures: Vec<i32>,
    unread: Vec<(u64, i32)>,
    grants: Vec<(u64, u64, u64)>,
    closed: Option<u16>,
    ended: bool,
}

/// See the module's text.
pub(crate) struct Client {
    null: Arc<NullOpenCl>,
    command: Arc<dyn Connection>,
    pub(crate) counters: Arc<Counters>,
    lanes: Vec<Arc<dyn Connection>>,
    outbox: Outbox,
    inbox: Arc<(Mutex<Inbox>, Condvar)>,
    reader: JoinHandle<()>,
    ended: Receiver<Result<(), RunError>>,
}

impl Client {
    /// A session with two payload lanes.
    pub(crate) fn new() -> Self {
        Self::with_lanes(2)
    }

    /// A session with so many payload lanes.
    pub(crate) fn with_lanes(count: usize) -> Self {
        Self::with(NullOpenCl::new(1), count, None)
    }

    /// A session on a device of the test's choice.
    pub(crate) fn on(null: NullOpenCl) -> Self {
        Self::with(null, 2, None)
    }

    /// A session with a peer lane, number 1.
    pub(crate) fn with_peer(null: NullOpenCl, peer: Arc<dyn Connection>) -> Self {
        Self::with(null, 2, Some(peer))
    }

    fn with(null: NullOpenCl, count: usize, peer: Option<Arc<dyn Connection>>) -> Self {
        let null = Arc::new(null);
        let engine = OpenClEngine::open(Arc::clone(&null) as _, &|_, _| true)
            .expect("the host-memory device is always there");
        let transport = MemoryTransport::new();
        let address: Address = "memory://hostile".parse().expect("it is well formed");
        let listener = transport
            .listen(&address)
            .expect("the name is free on a network of our own");
        let mut pairs: Vec<_> = (0..=count)
            .map(|_| {
                let ours = transport
                    .connect(&address, &ConnectOptions::default())
                    .expect("the listener is there");
                (ours, listener.accept().expect("somebody has connected"))
            })
            .collect();
        let (command, lane) = pairs.remove(0);
        let (lanes, theirs): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        let mut theirs = theirs
            .into_iter()
            .map(SideLane::Payload)
            .chain(peer.map(|peer| SideLane::Peer(1, peer)));
        let (sender, ended) = channel();
        let limits = Limits {
            chunk_bytes: 64 << 10,
        };
        let counters = Arc::new(Counters::default());
        let counted = Arc::clone(&counters);
        std::thread::spawn(move || {
            let counters = counted;
            // The test may have given up.
            let _ = sender.send(engine.run(lane, move || theirs.next(), limits, counters));
        });
        let inbox: Arc<(Mutex<Inbox>, Condvar)> = Arc::default();
        let reader = {
            let (inbox, command) = (Arc::clone(&inbox), Arc::clone(&command));
            std::thread::spawn(move || {
                read(&*command, &inbox);
                lock(&inbox.0).ended = true;
                inbox.1.notify_all();
            })
        };
        // Data of reads is of no interest, but a lane that nobody reads stops.
        for lane in lanes.iter().take(2).map(Arc::clone) {
            std::thread::spawn(move || {
                let mut buffer = vec![0; 64 << 10];
                while matches!(lane.recv(&mut buffer), Ok(1..)) {}
            });
        }
        Self {
            null,
            command,
            counters,
            lanes,
            outbox: Outbox::new(),
            inbox,
            reader,
            ended,
        }
    }

    /// Posts a request and gives its number.
    pub(crate) fn post<'a, R: Request<'a>>(&self, request: &R) -> u64 {
        let (number, waiting) = self.outbox.post(R::ID, |out| request.encode(out));
        if waiting > 256 << 10 {
            self.flush();
        }
        number
    }

    /// Posts what need not be a request.
    pub(crate) fn post_raw(&self, id: u16, body: &[u8]) -> u64 {
        self.outbox.post(id, |out| out.extend_from_slice(body)).0
    }

    /// Number of the next request.
    pub(crate) fn next_number(&self) -> u64 {
        self.outbox.next_number()
    }

    /// Sends what was posted; a worker that has closed the session does not take it.
    pub(crate) fn flush(&self) {
        let _ = self
            .outbox
            .flush(|| 0, |bytes| self.command.send(&[IoSlice::new(bytes)]));
    }

    /// Sends bytes on the command lane that need not be a frame.
    pub(crate) fn send_raw(&self, bytes: &[u8]) {
        let _ = self.command.send(&[IoSlice::new(bytes)]);
    }

    /// Sends a chunk on a payload lane.
    pub(crate) fn send_chunk(&self, lane: usize, payload: u64, offset: u64, bytes: &[u8]) {
        let header = ChunkHeader {
            payload,
            offset,
            length: bytes.len() as u32,
        };
        self.send_on_lane(lane, &[&header.to_bytes(), bytes].concat());
    }

    /// Sends bytes on a payload lane.
    pub(crate) fn send_on_lane(&self, lane: usize, bytes: &[u8]) {
        let _ = self.lanes[lane].send(&[IoSlice::new(bytes)]);
    }

    /// Asks for a sign of life and waits for it or for the end.
    pub(crate) fn ping(&self) -> Reached {
        let number = self.post(&wire::Ping { token: 1 });
        self.flush();
        let answered = |inbox: &Inbox| inbox.replies.iter().any(|(to, _)| *to == number);
        let inbox = self.wait("an answer", |inbox| answered(inbox) || inbox.ended);
        if answered(&inbox) {
            Reached::Answer
        } else {
            closed(&inbox)
        }
    }

    /// Waits for the end of the session.
    pub(crate) fn end(&self) -> Reached {
        self.flush();
        closed(&self.wait("the end", |inbox| inbox.ended))
    }

    /// The status that answers a request.
    pub(crate) fn status_of(&self, number: u64) -> i32 {
        self.flush();
        let status = |inbox: &Inbox| {
            let mut replies = inbox.replies.iter();
            replies
                .find(|(to, _)| *to == number)
                .map(|(_, status)| *status)
        };
        let inbox = self.wait("an answer", |inbox| status(inbox).is_some());
        status(&inbox).expect("it was waited for")
    }

    /// Statuses of the posted requests that failed so far.
    pub(crate) fn failures(&self) -> Vec<i32> {
        lock(&self.inbox.0).failures.clone()
    }

    /// Payloads of reads that failed so far, with their statuses.
    pub(crate) fn unread(&self) -> Vec<(u64, i32)> {
        lock(&self.inbox.0).unread.clone()
    }

    /// Waits until a payload is granted: offset and length.
    pub(crate) fn grant(&self, payload: u64) -> (u64, u64) {
        self.flush();
        let granted = |inbox: &Inbox| inbox.grants.iter().position(|grant| grant.0 == payload);
        let mut inbox = self.wait("a grant", |inbox| granted(inbox).is_some());
        let at = granted(&inbox).expect("it was waited for");
        let (_, offset, length) = inbox.grants.swap_remove(at);
        (offset, length)
    }

    /// A grant that has come: payload, offset and length.
    pub(crate) fn some_grant(&self) -> Option<(u64, u64, u64)> {
        lock(&self.inbox.0).grants.pop()
    }

    /// How many payload lanes the worker has kept.
    pub(crate) fn open_lanes(&self) -> usize {
        let closed = |lane: &Arc<dyn Connection>| {
            let mut byte = [0];
            lane.try_recv(&mut byte)
                .is_ok_and(|received| received.is_none())
        };
        // The last of them has been turned away once the worker has taken all.
        let end = Instant::now() + PATIENCE;
        let last = self.lanes.last().expect("there are lanes");
        while closed(last) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        // The first two are read by threads of ours.
        2 + self
            .lanes
            .iter()
            .skip(2)
            .filter(|lane| closed(lane))
            .count()
    }

    /// Closes all connections, waits for the worker and sees that nothing is left.
    pub(crate) fn leave(self) {
        self.command.shutdown();
        for lane in &self.lanes {
            lane.shutdown();
        }
        let ended = self.ended.recv_timeout(PATIENCE);
        // Which of two rules that were broken at once it names is chance.
        let _ = ended.expect("the worker neither hangs nor panics");
        self.reader.join().expect("every push decodes");
        let end = Instant::now() + PATIENCE;
        while self.null.live_objects() > 0 && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(self.null.live_objects(), 0, "objects are left behind");
        assert_eq!(self.null.live_handles(), 0, "handles are left behind");
        assert_eq!(self.null.allocated_bytes(), 0, "memory is left behind");
    }

    fn wait(&self, what: &str, ready: impl Fn(&Inbox) -> bool) -> MutexGuard<'_, Inbox> {
        let (inbox, timeout) = self
            .inbox
            .1
            .wait_timeout_while(lock(&self.inbox.0), PATIENCE, |inbox| !ready(inbox))
            .unwrap_or_else(PoisonError::into_inner);
        assert!(!timeout.timed_out(), "{what} did not come");
        inbox
    }
}

fn closed(inbox: &Inbox) -> Reached {
    match inbox.closed {
        Some(code) => {
            Reached::Closed(CloseCode::from_number(code).expect("the protocol has this code"))
        }
        None => Reached::Left,
    }
}

fn read(command: &dyn Connection, inbox: &(Mutex<Inbox>, Condvar)) {
    let mut reader = FrameReader::new();
    while let Ok(count @ 1..) = command.recv(reader.space()) {
        reader.filled(count);
        while let Some(message) = reader.next().expect("the worker frames well") {
            let push = Push::decode(message.id, message.body).expect("the worker encodes well");
            let mut inbox = lock(&inbox.0);
            match push {
                Push::Reply { to, status, .. } => inbox.replies.push((to, status)),
                Push::Failed { status, .. } => inbox.failures.push(status),
                Push::NoData { payload, status } => inbox.unread.push((payload, status)),
                Push::Grant {
                    payload,
                    offset,
                    length,
                } => inbox.grants.push((payload, offset, length)),
                Push::Close { code, .. } => inbox.closed = Some(code),
                _ => {}
            }
        }
        inbox.1.notify_all();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Xorshift: the same numbers on every machine.
pub(crate) struct Random(u64);

impl Random {
    /// Numbers that `seed` decides.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `bound`; 0 when that is 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// A number where checks go wrong.
    pub(crate) fn edge(&mut self) -> u64 {
        const EDGES: [u64; 12] = [
            0,
            1,
            127,
            1 << 20,
            (1 << 20) + 1,
            u32::MAX as u64,
            1 << 32,
            1 << 47,
            i64::MAX as u64,
            1 << 63,
            u64::MAX - 1,
            u64::MAX,
        ];
        EDGES[self.below(EDGES.len() as u64) as usize]
    }
}
