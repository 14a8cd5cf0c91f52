//! Takes the connections that the supervisor passes, and gives the engine those that prove to be lanes of its session.
//!
//! A ticket only leads a connection here. On an encrypted session TLS and the proofs of both ends follow, each connection on a thread of
//! its own and for seconds at most, so that a stranger who has seen the ticket neither takes a lane away nor holds one up.

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use towline_sys::channel::Channel;
use towline_transport::resume::Resumable;
use towline_transport::tls::{ClientTls, Identity, ServerTls};
use towline_transport::{Connection, Registry, TransportError};
use towline_wire::control::{LaneEnd, LaneKey, labels};

use super::process::{Lane, LaneKind};
use super::protocol::FromWorker;

/// How long a lane may take for its handshake, and again for its proof.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(5);
/// Connections that try to become one lane at once. A further one makes the oldest give up: an honest client is through in milliseconds.
const ATTEMPTS: usize = 4;

/// Where connections become lanes.
pub(super) struct Door {
    /// The key that a lane of the client must prove to know; `None` where lanes are not encrypted.
    key: Option<LaneKey>,
    /// Made for this session. Proofs tell who is there, not this key.
    tls: OnceLock<ServerTls>,
    /// Lanes of the client outlive cuts.
    resumes: bool,
    channel: Arc<Channel>,
    state: Mutex<State>,
}

struct State {
    /// Gone when the session has ended.
    engine: Option<Sender<Lane>>,
    lanes: Vec<Arc<dyn Connection>>,
    /// Lanes of the client that outlive cuts, by their index.
    resumable: HashMap<u16, Arc<Resumable>>,
    /// Lanes of the client that have proven themselves, one bit each.
    opened: u64,
    /// How many there will be, as the first has proven.
    count: Option<u16>,
    /// Connections whose handshake goes on, oldest first.
    attempts: VecDeque<(LaneKind, Arc<dyn Connection>)>,
}

impl Door {
    pub(super) fn new(
        key: Option<LaneKey>,
        resumes: bool,
        engine: Sender<Lane>,
        channel: Arc<Channel>,
    ) -> Self {
        Self {
            key,
            tls: OnceLock::new(),
            resumes,
            channel,
            state: Mutex::new(State {
                engine: Some(engine),
                lanes: Vec::new(),
                resumable: HashMap::new(),
                opened: 0,
                count: None,
                attempts: VecDeque::new(),
            }),
        }
    }

    /// A connection of the client, which takes the place of one that was cut if it comes `again`.
    pub(super) fn take_lane(
        self: &Arc<Self>,
        index: u16,
        count: u16,
        again: bool,
        scheme: &str,
        descriptor: OwnedFd,
    ) {
        let kind = LaneKind::Client { index, count };
        let end = LaneEnd::Worker { index, count };
        self.take(kind, end, self.key.clone(), again, scheme, descriptor);
    }

    /// A connection to a worker of another server, encrypted where there is a key.
    pub(super) fn take_peer(
        self: &Arc<Self>,
        number: u64,
        end: LaneEnd,
        key: Option<LaneKey>,
        scheme: &str,
        descriptor: OwnedFd,
    ) {
        self.take(
            LaneKind::Peer { number },
            end,
            key,
            false,
            scheme,
            descriptor,
        );
    }

    fn take(
        self: &Arc<Self>,
        kind: LaneKind,
        end: LaneEnd,
        key: Option<LaneKey>,
        again: bool,
        scheme: &str,
        descriptor: OwnedFd,
    ) {
        let adopted = Registry::global()
            .get(scheme)
            .and_then(|transport| transport.adopt(descriptor));
        let stream = match adopted {
            Ok(stream) => stream,
            Err(error) => return log::warn!("{kind:?}: {error}"),
        };
        if key.is_none() && !again {
            return self.admit(kind, again, stream);
        }
        self.begin(kind, &stream);
        let begun = Arc::clone(&stream);
        let door = Arc::clone(self);
        let work = move || {
            let proven = match &key {
                Some(key) => door.prove(key, end, &stream),
                None => Ok(Arc::clone(&stream)),
            };
            match proven {
                Ok(lane) => door.admit(kind, again, lane),
                Err(error) => log::warn!("{kind:?} is refused: {error}"),
            }
            door.state()
                .attempts
                .retain(|(_, other)| !Arc::ptr_eq(other, &stream));
        };
        if let Err(error) = std::thread::Builder::new()
            .name("lane-handshake".into())
            .spawn(work)
        {
            log::warn!("{kind:?}: cannot start a thread: {error}");
            begun.shutdown();
            self.state()
                .attempts
                .retain(|(_, other)| !Arc::ptr_eq(other, &begun));
        }
    }

    /// Notes a handshake, and ends the oldest of too many.
    fn begin(&self, kind: LaneKind, stream: &Arc<dyn Connection>) {
        let mut state = self.state();
        let same = |(other, _): &(LaneKind, Arc<dyn Connection>)| is_same(*other, kind);
        if state
            .attempts
            .iter()
            .filter(|attempt| same(attempt))
            .count()
            >= ATTEMPTS
            && let Some(oldest) = state.attempts.iter().position(same)
            && let Some((_, stream)) = state.attempts.remove(oldest)
        {
            stream.shutdown();
        }
        state.attempts.push_back((kind, Arc::clone(stream)));
    }

    /// TLS, and the proofs inside it.
    fn prove(
        &self,
        key: &LaneKey,
        end: LaneEnd,
        stream: &Arc<dyn Connection>,
    ) -> Result<Arc<dyn Connection>, TransportError> {
        let stream = Arc::clone(stream);
        let lane = match end.connects() {
            true => ClientTls::default().connect(stream, HANDSHAKE_LIMIT)?,
            false => self.tls()?.accept(stream, &[], HANDSHAKE_LIMIT)?,
        };
        let binding = lane.exporter(labels::LANE, b"");
        let own = key.prove(end, &binding);
        let check = |proof: &_| key.verify(end.other(), &binding, proof);
        lane.exchange_proofs(end.connects(), &own, check, HANDSHAKE_LIMIT)?;
        Ok(lane)
    }

    fn tls(&self) -> Result<&ServerTls, TransportError> {
        if let Some(tls) = self.tls.get() {
            return Ok(tls);
        }
        let (identity, _) = Identity::generate()?;
        let authority = None;
        Ok(self.tls.get_or_init(|| ServerTls {
            identity,
            authority,
        }))
    }

    /// Gives a lane to the engine, unless there is one in its place. A connection that comes `again` lets the lane go on, or is its first
    /// that got so far.
    fn admit(&self, kind: LaneKind, again: bool, link: Arc<dyn Connection>) {
        let mut state = self.state();
        // The session may be over.
        let Some(engine) = state.engine.clone() else {
            return link.shutdown();
        };
        let mut lane = Arc::clone(&link);
        let mut resumed = None;
        if let LaneKind::Client { index, count } = kind {
            let bit = 1u64.checked_shl(index.into()).unwrap_or_default();
            let agreed = *state.count.get_or_insert(count);
            if again && let Some(known) = state.resumable.get(&index).cloned() {
                drop(state);
                return go_on(kind, &known, link);
            }
            if agreed != count || bit == 0 || state.opened & bit != 0 || (again && !self.resumes) {
                log::warn!(
                    "{kind:?} is refused: it is there already, or others said another count"
                );
                return link.shutdown();
            }
            state.opened |= bit;
            // The supervisor keeps account of lanes in the clear by their tickets, of others by what is said here.
            if self.key.is_some() {
                super::process::tell(&self.channel, &FromWorker::LaneOpened { index, count });
            }
            if self.resumes {
                let on_cut = move |_: &Arc<Resumable>, reason: &str| {
                    log::debug!("{kind:?} is cut: {reason}");
                };
                let resumable = match again {
                    false => Resumable::new(Arc::clone(&link), on_cut),
                    true => Resumable::without_link(link.peer(), on_cut),
                };
                state.resumable.insert(index, Arc::clone(&resumable));
                resumed = again.then(|| Arc::clone(&resumable));
                lane = resumable;
            }
        }
        state.lanes.push(Arc::clone(&lane));
        // The engine may have returned already; then the process is about to end.
        let _ = engine.send(Lane {
            kind,
            connection: lane,
        });
        drop(state);
        if let Some(resumed) = resumed {
            go_on(kind, &resumed, link);
        }
    }

    /// The session is over: wakes the engine wherever it waits.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.engine = None;
        state.lanes.iter().for_each(|lane| lane.shutdown());
        state
            .attempts
            .iter()
            .for_each(|(_, stream)| stream.shutdown());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lets a lane go on over another connection.
fn go_on(kind: LaneKind, lane: &Resumable, link: Arc<dyn Connection>) {
    match lane.reattach(link) {
        Ok(()) => log::debug!("{kind:?} goes on over another connection"),
        Err(error) => log::debug!("{kind:?} does not go on: {error}"),
    }
}

/// Whether two connections want one place.
fn is_same(one: LaneKind, other: LaneKind) -> bool {
    match (one, other) {
        (LaneKind::Client { index, .. }, LaneKind::Client { index: other, .. }) => index == other,
        (LaneKind::Peer { number }, LaneKind::Peer { number: other }) => number == other,
        _ => false,
    }
}
