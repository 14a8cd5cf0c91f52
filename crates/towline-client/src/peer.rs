//! Peer lanes: connections between two servers of this process, over which their workers pass data without it.
//!
//! Both servers must list each other. The client brokers: a ticket from the one, for the other to connect with. It only names
//! entries of the servers' own lists, so a wrong guess here costs a refusal and no more. One lane serves both directions; it is made
//! at the first move, on a thread of its own, and when it breaks it is not made again: data then goes through this process.

use std::collections::HashMap;
use std::io::IoSlice;
use std::net::ToSocketAddrs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use towline_transport::{Address, Connection, TransportError};
use towline_wire::control::{
    CheckpointSession, Message, MigrateSession, PeerConnect, PeerOffer, SHOWN_NAME,
    SessionCheckpointed, SessionMigrated, printable,
};

use crate::opencl::Remote;

/// How long a supervisor may take to answer: it connects to another server meanwhile.
const ANSWER_LIMIT: Duration = Duration::from_secs(15);

/// Told the lane between two servers, or that there is none.
type Then = Box<dyn FnOnce(Option<Arc<PeerLane>>) + Send>;

/// A server's wish that a session leaves it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wish {
    /// For a folder of this machine.
    Checkpoint(String),
    /// For the server at an address.
    Move(String),
}

/// Takes a session away, as the server that it leaves wishes; it tells that server by [`Control::leave`]. In the error, why it stays.
type Mover = Arc<dyn Fn(Wish, &Control) -> Result<(), String> + Send + Sync>;

/// Longest time for the server that a session leaves to say that it has heard so.
const LEAVE_LIMIT: Duration = Duration::from_secs(5);

/// Longest time for a session that has just begun to be set up as far as it takes to move.
const SETUP_LIMIT: Duration = Duration::from_secs(5);

/// State of a session that may move.
#[derive(Default)]
struct Moving {
    /// None where it cannot move.
    mover: Option<Mover>,
    /// The server's number of the session, and its wish, while it moves.
    session: Option<(u64, Wish)>,
    /// The connection that the wish came on, or came again on.
    link: u64,
    /// The reason why it stays, for a server that asks again: its wish came on a connection before.
    untold: Option<((u64, Wish), String)>,
    /// It is with another server.
    has_left: bool,
}

/// The control connection of a session, for what is asked on it.
pub(crate) struct Control {
    /// Told apart from every other session of this process.
    id: u64,
    /// The server, as this process calls it.
    server: Address,
    /// The servers that it lists, as it calls them.
    peers: Vec<Address>,
    answers: Mutex<Answers>,
    moving: Mutex<Moving>,
    /// The session can move now.
    movable: Condvar,
}

struct Answers {
    /// The connection to ask on; sending happens under the same lock. `None` once the session is over: not even a descriptor is left.
    connection: Option<Arc<dyn Connection>>,
    /// Counts connections.
    link: u64,
    /// By lane.
    waiting: HashMap<u64, Sender<Message>>,
    ended: bool,
}

impl Answers {
    fn send(&self, message: &[u8]) -> Result<(), TransportError> {
        let connection = self.connection.as_ref();
        let connection = connection.ok_or_else(|| TransportError::Closed {
            peer: "the server".into(),
        })?;
        connection.send(&[IoSlice::new(message)])
    }
}

/// A connection between the workers of two sessions.
#[derive(Debug)]
pub struct PeerLane {
    pub(crate) number: u64,
    next: AtomicU64,
    broken: AtomicBool,
}

impl PeerLane {
    /// A lane that both workers know by this number.
    pub fn new(number: u64) -> Self {
        Self {
            number,
            next: AtomicU64::new(1),
            broken: AtomicBool::new(false),
        }
    }

    /// A number for a payload, unlike every other on this lane.
    pub fn payload(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// The lane does not carry data any more: there is none between these servers from now on.
    pub fn give_up(&self) {
        if !self.broken.swap(true, Ordering::AcqRel) {
            log::warn!(
                "a connection between servers broke: their data goes through the client now"
            );
        }
    }
}

impl Control {
    pub(crate) fn new(
        connection: Arc<dyn Connection>,
        server: &Address,
        peers: &[String],
    ) -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Arc::new(Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            server: server.clone(),
            // What does not parse can be the address of no server of ours.
            peers: peers.iter().filter_map(|peer| peer.parse().ok()).collect(),
            answers: Mutex::new(Answers {
                connection: Some(connection),
                link: 0,
                waiting: HashMap::new(),
                ended: false,
            }),
            moving: Mutex::default(),
            movable: Condvar::new(),
        })
    }

    /// The session goes on over another connection. What was asked on the one before is not answered any more.
    pub(crate) fn goes_on(&self, connection: Arc<dyn Connection>) {
        let mut answers = lock(&self.answers);
        answers.connection = Some(connection);
        answers.link += 1;
        answers.waiting.clear();
    }

    /// A message that is no end of the session: the answer to a question, or nothing.
    pub(crate) fn heard(self: &Arc<Self>, message: Message) {
        let lane = match &message {
            Message::PeerTicket(answer) => answer.lane,
            Message::PeerConnected(answer) => answer.lane,
            Message::MigrateSession(MigrateSession { session_id, to }) => {
                return self.begin_move(*session_id, Wish::Move(printable(to, SHOWN_NAME)));
            }
            Message::CheckpointSession(CheckpointSession { session_id, folder }) => {
                return self.begin_move(*session_id, Wish::Checkpoint(folder.clone()));
            }
            _ => return,
        };
        if let Some(waiting) = lock(&self.answers).waiting.remove(&lane) {
            // Whoever asked may have given up.
            let _ = waiting.send(message);
        }
    }

    /// Has the session move when its server wishes.
    pub(crate) fn let_move(
        &self,
        mover: impl Fn(Wish, &Control) -> Result<(), String> + Send + Sync + 'static,
    ) {
        lock(&self.moving).mover = Some(Arc::new(mover));
        self.movable.notify_all();
    }

    /// Moves the session on a thread of its own, unless it does so already.
    fn begin_move(self: &Arc<Self>, session_id: u64, wish: Wish) {
        {
            let mut moving = lock(&self.moving);
            if moving.has_left {
                // It has not heard so.
                drop(moving);
                return self.answer_move(session_id, &wish, Ok(()));
            }
            moving.link = lock(&self.answers).link;
            if moving.session.is_some() {
                return;
            }
            let untold = moving.untold.take();
            if let Some((_, reason)) =
                untold.filter(|(asked, _)| *asked == (session_id, wish.clone()))
            {
                drop(moving);
                return self.answer_move(session_id, &wish, Err(reason));
            }
            moving.session = Some((session_id, wish.clone()));
        }
        let control = Arc::clone(self);
        let work = move || {
            let mover = control.mover();
            let mover = mover.ok_or("its program takes no part in moves".to_owned());
            let outcome = mover.and_then(|mover| mover(wish, &control));
            if let Err(reason) = outcome {
                log::info!("the session stays with {}: {reason}", control.server);
                control.stay(reason);
            }
        };
        let thread = crate::threads::named("towline-move");
        if let Err(error) = thread.spawn(work) {
            self.stay(format!("a thread could not be started: {error}"));
        }
    }

    fn mover(&self) -> Option<Mover> {
        let moving = lock(&self.moving);
        let waited = self
            .movable
            .wait_timeout_while(moving, SETUP_LIMIT, |moving| moving.mover.is_none());
        let (moving, _) = waited.unwrap_or_else(PoisonError::into_inner);
        moving.mover.clone()
    }

    fn stay(&self, reason: String) {
        let mut moving = lock(&self.moving);
        let Some((session_id, wish)) = moving.session.take() else {
            return;
        };
        let outcome = Err(reason.clone());
        // A server whose client is back asks again before it listens, and takes one answer.
        if !self.answer_on(Some(moving.link), session_id, &wish, outcome) {
            moving.untold = Some(((session_id, wish), reason));
        }
    }

    /// Tells the server that the session is with another one, or nowhere; whether it has heard so, and ended what was left.
    pub(crate) fn leave(&self) -> bool {
        let asked = {
            let mut moving = lock(&self.moving);
            moving.has_left = true;
            moving.session.clone()
        };
        let Some((session_id, wish)) = asked else {
            return false;
        };
        self.answer_move(session_id, &wish, Ok(()));
        let deadline = Instant::now() + LEAVE_LIMIT;
        while !lock(&self.answers).ended {
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        true
    }

    /// Whether the session has left its server.
    pub(crate) fn has_left(&self) -> bool {
        lock(&self.moving).has_left
    }

    fn answer_move(&self, session_id: u64, wish: &Wish, outcome: Result<(), String>) {
        self.answer_on(None, session_id, wish, outcome);
    }

    /// As [`Self::answer_move`], unless the connection is another one than `link`.
    fn answer_on(
        &self,
        link: Option<u64>,
        session_id: u64,
        wish: &Wish,
        outcome: Result<(), String>,
    ) -> bool {
        let message = match wish {
            Wish::Checkpoint(_) => Message::SessionCheckpointed(SessionCheckpointed {
                session_id,
                outcome,
            }),
            Wish::Move(_) => Message::SessionMigrated(SessionMigrated {
                session_id,
                outcome,
            }),
        };
        let message = message.encode();
        // A server that does not hear it asks again when the connection is back.
        let answers = lock(&self.answers);
        if link.is_some_and(|link| link != answers.link) {
            return false;
        }
        if let Err(error) = answers.send(&message) {
            log::debug!("{}: {error}", self.server);
        }
        true
    }

    /// Asks whether the server is there; any message of it is the answer.
    pub(crate) fn ping(&self) -> Result<(), TransportError> {
        lock(&self.answers).send(&Message::Ping.encode())
    }

    /// Nothing more will be heard.
    pub(crate) fn ended(&self) {
        let mut answers = lock(&self.answers);
        answers.ended = true;
        answers.waiting.clear();
        if let Some(connection) = answers.connection.take() {
            connection.shutdown();
        }
    }

    fn ask(&self, lane: u64, question: &Message) -> Result<Message, String> {
        let (sender, answer) = channel();
        {
            let mut answers = lock(&self.answers);
            if answers.ended {
                return Err("the session is over".into());
            }
            answers.waiting.insert(lane, sender);
            answers
                .send(&question.encode())
                .map_err(|error| error.to_string())?;
        }
        let answer = answer.recv_timeout(ANSWER_LIMIT);
        lock(&self.answers).waiting.remove(&lane);
        answer.map_err(|error| match error {
            RecvTimeoutError::Timeout => format!("{} does not answer", self.server),
            RecvTimeoutError::Disconnected => "the session is over".into(),
        })
    }

    /// What this session's server calls the other one, if it lists it.
    fn name_of(&self, other: &Self) -> Option<&Address> {
        let same = self.peers.iter().find(|peer| **peer == other.server);
        same.or_else(|| self.peers.iter().find(|peer| are_one(peer, &other.server)))
    }
}

/// Whether two addresses lead to one place, seen from here.
fn are_one(first: &Address, second: &Address) -> bool {
    let places = |address: &Address| -> Vec<std::net::SocketAddr> {
        let found = address
            .host_port()
            .and_then(|place| place.to_socket_addrs().ok());
        found.into_iter().flatten().collect()
    };
    let second = places(second);
    places(first).iter().any(|place| second.contains(place))
}

/// What is known of the lane between two sessions.
enum Pair {
    Connecting(Vec<Then>),
    There(Arc<PeerLane>),
    Never,
}

static PAIRS: Mutex<Option<HashMap<(u64, u64), Pair>>> = Mutex::new(None);

/// Whether two sessions might have a lane between them; asks nobody.
pub fn may_connect(first: &Remote, second: &Remote) -> bool {
    match (first.control(), second.control()) {
        (Some(one), Some(other)) => {
            one.id != other.id && !one.peers.is_empty() && !other.peers.is_empty()
        }
        _ => false,
    }
}

/// Gives `then` the lane between two sessions: at once where that is known, else from a thread that makes it.
pub fn with_lane(
    first: &Arc<Remote>,
    second: &Arc<Remote>,
    then: impl FnOnce(Option<Arc<PeerLane>>) + Send + 'static,
) {
    let (Some(one), Some(other)) = (first.control(), second.control()) else {
        return then(None);
    };
    let key = (one.id.min(other.id), one.id.max(other.id));
    let known = {
        let mut held = lock(&PAIRS);
        let pairs = held.get_or_insert_default();
        match pairs.get_mut(&key) {
            Some(Pair::There(lane)) => {
                Some(Arc::clone(lane)).filter(|lane| !lane.broken.load(Ordering::Acquire))
            }
            Some(Pair::Never) => None,
            Some(Pair::Connecting(waiting)) => return waiting.push(Box::new(then)),
            None => {
                pairs.insert(key, Pair::Connecting(vec![Box::new(then)]));
                // Where no thread can be had, the pair is settled at once.
                drop(held);
                return start(key, first, second);
            }
        }
    };
    then(known);
}

/// A lane of their own between two sessions; `None` where their servers have none.
pub(crate) fn lane_between(first: &Remote, second: &Remote) -> Option<Arc<PeerLane>> {
    may_connect(first, second).then_some(())?;
    let lane = connect(first, second).or_else(|_| connect(second, first));
    let told = lane.inspect_err(|reason| {
        log::info!(
            "data between {} and {} goes through this process: {reason}",
            first.server(),
            second.server()
        );
    });
    told.ok()
}

/// Makes a lane on a thread of its own.
fn start(key: (u64, u64), first: &Arc<Remote>, second: &Arc<Remote>) {
    let (one, other) = (Arc::clone(first), Arc::clone(second));
    let started = crate::threads::named("towline-peer").spawn(move || {
        let lane = connect(&one, &other).or_else(|reason| {
            log::debug!("{} to {}: {reason}", one.server(), other.server());
            // Perhaps only one side can reach the other.
            connect(&other, &one)
        });
        settle(key, &one, &other, lane);
    });
    if let Err(error) = started {
        settle(key, first, second, Err(error.to_string()));
    }
}

fn settle(key: (u64, u64), one: &Remote, other: &Remote, lane: Result<Arc<PeerLane>, String>) {
    let (one, other) = (one.server(), other.server());
    match &lane {
        Ok(_) => log::info!("{one} and {other} pass data directly"),
        Err(reason) => {
            log::info!("data between {one} and {other} goes through this process: {reason}");
        }
    }
    let lane = lane.ok();
    let now = lane.clone().map_or(Pair::Never, Pair::There);
    let before = lock(&PAIRS).get_or_insert_default().insert(key, now);
    if let Some(Pair::Connecting(waiting)) = before {
        for then in waiting {
            then(lane.clone());
        }
    }
}

/// Has the server of `from` connect to that of `to`.
fn connect(from: &Remote, to: &Remote) -> Result<Arc<PeerLane>, String> {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let (Some(source), Some(target)) = (from.control(), to.control()) else {
        return Err("a session has no control connection".into());
    };
    let unlisted = |by: &Control, other: &Control| {
        format!("{} does not list {} as its peer", by.server, other.server)
    };
    let source_there = target
        .name_of(source)
        .ok_or_else(|| unlisted(target, source))?;
    let target_there = source
        .name_of(target)
        .ok_or_else(|| unlisted(source, target))?;
    let lane = NEXT.fetch_add(1, Ordering::Relaxed);
    let offer = Message::PeerOffer(PeerOffer {
        lane,
        address: source_there.to_string(),
    });
    let ticket = match target.ask(lane, &offer)? {
        Message::PeerTicket(answer) => answer.ticket?,
        other => return Err(format!("the server answers with {}", other.name())),
    };
    let request = Message::PeerConnect(PeerConnect {
        lane,
        address: target_there.to_string(),
        ticket,
    });
    match source.ask(lane, &request)? {
        Message::PeerConnected(answer) => answer.outcome?,
        other => return Err(format!("the server answers with {}", other.name())),
    }
    // The supervisors have passed it on; the workers may not have taken it up.
    for end in [from, to] {
        end.open_peer(lane)
            .map_err(|status| format!("{} has no use of it ({status})", end.server()))?;
    }
    Ok(Arc::new(PeerLane::new(lane)))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use towline_transport::memory::MemoryTransport;
    use towline_transport::{ConnectOptions, Transport};
    use towline_wire::control::PeerTicket;

    use super::*;

    fn control(server: &str, peers: &[&str]) -> (Arc<Control>, Arc<dyn Connection>) {
        let transport = MemoryTransport::new();
        let address: Address = "memory://control".parse().unwrap();
        let listener = transport.listen(&address).unwrap();
        let connection = transport
            .connect(&address, &ConnectOptions::default())
            .unwrap();
        let peers: Vec<String> = peers.iter().map(|peer| (*peer).to_owned()).collect();
        let control = Control::new(connection, &server.parse().unwrap(), &peers);
        (control, listener.accept().unwrap())
    }

    #[test]
    fn a_server_is_found_in_a_list_under_its_name_or_its_address() {
        let (other, _end) = control("127.0.0.1:7140", &[]);
        let named = |peers: &[&str]| {
            let (control, _end) = control("127.0.0.1:7141", peers);
            control.name_of(&other).map(Address::to_string)
        };
        assert_eq!(
            named(&["gpu9.invalid:7140", "tcp://127.0.0.1:7140"]),
            Some("tcp://127.0.0.1:7140".into())
        );
        assert_eq!(
            named(&["[::ffff:127.0.0.1]:1", "127.0.0.1:7141"]),
            None::<String>
        );
        assert_eq!(named(&["not an address"]), None);
    }

    /// The next message on a control connection.
    fn said(connection: &dyn Connection) -> Message {
        let mut buffer = towline_wire::control::MessageBuffer::new(4096);
        loop {
            if let Some(frame) = buffer.next_frame().unwrap() {
                return Message::decode(&frame).unwrap();
            }
            let mut byte = [0];
            assert_eq!(connection.recv(&mut byte).unwrap(), 1);
            buffer.push(&byte);
        }
    }

    fn wish(to: &str) -> Message {
        Message::MigrateSession(MigrateSession {
            session_id: 3,
            to: to.into(),
        })
    }

    fn answer(outcome: Result<(), String>) -> Message {
        Message::SessionMigrated(SessionMigrated {
            session_id: 3,
            outcome,
        })
    }

    #[test]
    fn session_that_cannot_move_says_so() {
        let (control, server) = control("gpu1:7140", &[]);
        control.heard(wish("gpu2:7140"));
        let reason = "its program takes no part in moves";
        assert_eq!(said(&*server), answer(Err(reason.into())));
        control.let_move(|_, _| Err("not now".into()));
        for _ in 0..2 {
            control.heard(wish("gpu2:7140"));
            assert_eq!(said(&*server), answer(Err("not now".into())));
        }
    }

    #[test]
    fn session_is_asked_to_move_while_it_begins() {
        let (control, server) = control("gpu1:7140", &[]);
        control.heard(wish("gpu2:7140"));
        control.let_move(|_, _| Err("not now".into()));
        assert_eq!(said(&*server), answer(Err("not now".into())));
    }

    #[test]
    fn wish_repeated_after_a_cut_gets_one_answer() {
        let (control, _cut) = control("gpu1:7140", &[]);
        let (go, wait) = channel();
        let wait = Mutex::new(wait);
        control.let_move(move |_, _| {
            lock(&wait).recv().unwrap();
            Err("not now".into())
        });
        control.heard(wish("gpu2:7140"));
        let transport = MemoryTransport::new();
        let address: Address = "memory://again".parse().unwrap();
        let listener = transport.listen(&address).unwrap();
        let options = ConnectOptions::default();
        control.goes_on(transport.connect(&address, &options).unwrap());
        let server = listener.accept().unwrap();
        go.send(()).unwrap();
        while lock(&control.moving).session.is_some() {
            std::thread::yield_now();
        }
        control.heard(wish("gpu2:7140"));
        assert_eq!(said(&*server), answer(Err("not now".into())));
        assert_eq!(server.try_recv(&mut [0]).unwrap(), None);
        assert!(lock(&control.moving).session.is_none());
        // The next one is a wish of its own.
        go.send(()).unwrap();
        control.heard(wish("gpu2:7140"));
        assert_eq!(said(&*server), answer(Err("not now".into())));
    }

    #[test]
    fn wish_for_a_checkpoint_is_answered_as_one() {
        let (control, server) = control("gpu1:7140", &[]);
        control.let_move(|wish, _| match wish {
            Wish::Checkpoint(folder) => Err(format!("{folder} is not mine")),
            Wish::Move(_) => Ok(()),
        });
        control.heard(Message::CheckpointSession(CheckpointSession {
            session_id: 3,
            folder: "/held".into(),
        }));
        let refused = SessionCheckpointed {
            session_id: 3,
            outcome: Err("/held is not mine".into()),
        };
        assert_eq!(said(&*server), Message::SessionCheckpointed(refused));
    }

    #[test]
    fn server_that_did_not_hear_of_the_move_is_told_again() {
        let (control, server) = control("gpu1:7140", &[]);
        control.let_move(|_, left| match left.leave() {
            true => Ok(()),
            false => Err("the server is deaf".into()),
        });
        control.heard(wish("gpu2:7140"));
        assert_eq!(said(&*server), answer(Ok(())));
        control.heard(wish("gpu2:7140"));
        assert_eq!(said(&*server), answer(Ok(())));
        control.ended();
    }

    #[test]
    fn an_answer_reaches_who_asked_and_the_end_reaches_all() {
        let (control, _end) = control("gpu1:7140", &[]);
        let heard = Arc::clone(&control);
        let offer = |lane| {
            Message::PeerOffer(PeerOffer {
                lane,
                address: "gpu2:7140".into(),
            })
        };
        let refused = Message::PeerTicket(PeerTicket {
            lane: 7,
            ticket: Err("no".into()),
        });
        let answer = refused.clone();
        let asking = std::thread::spawn(move || control.ask(7, &offer(7)));
        while lock(&heard.answers).waiting.is_empty() {
            std::thread::yield_now();
        }
        heard.heard(Message::StatusRequest);
        heard.heard(answer);
        assert_eq!(asking.join().unwrap(), Ok(refused));
        let waiting = Arc::clone(&heard);
        let asking = std::thread::spawn(move || waiting.ask(8, &offer(8)));
        while lock(&heard.answers).waiting.is_empty() {
            std::thread::yield_now();
        }
        heard.ended();
        assert!(asking.join().unwrap().is_err());
        assert!(heard.ask(9, &offer(9)).is_err());
    }
}
