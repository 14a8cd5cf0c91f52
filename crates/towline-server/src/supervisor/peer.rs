//! Peer lanes: connections between a worker here and one of another server.
//!
//! Both servers must list each other. The client asks the one for a ticket and gives it to the other, whose supervisor connects,
//! proves itself, and passes the connection to its worker, as the accepting one does. A supervisor connects only to addresses of its
//! own list, whatever a client says, and reads nothing of what the workers then say to each other.

use std::collections::BTreeMap;
use std::io::IoSlice;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use towline_transport::{
    Address, ConnectOptions, Connection, Registry, TransportError, recv_exact,
};
use towline_wire::control::{
    ConnectionKind, LaneKey, Message, NONCE_BYTES, PEER_ACCEPTED, PEER_CHALLENGE_BYTES,
    PEER_HELLO_BYTES, PROOF_BYTES, PeerAcceptor, PeerConnect, PeerConnected, PeerConnector,
    PeerOffer, PeerTicket, SHOWN_NAME, TICKET_BYTES, Ticket, TicketName, printable,
};

use super::control::may_be_clear;
use super::session::Session;
use super::{HANDSHAKE_LIMIT, Shared, lock, random};

/// How long a ticket is good for.
const TICKET_LIFE: Duration = Duration::from_secs(10);
/// Tickets of a session that wait to be used.
const TICKET_LIMIT: usize = 8;
/// Connections to other servers that a session may be making at once.
const CONNECTING_LIMIT: u32 = 8;
/// Peer lanes that a session may ever have had: programs use a handful of servers, and a broken lane is not replaced.
const LANE_LIMIT: u32 = 64;
/// How long another server may take to accept a connection. The first move between two servers waits for it.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);

/// A session's dealings with other servers.
#[derive(Default)]
pub(super) struct Peering {
    connecting: AtomicU32,
    /// Begun, whatever became of them.
    lanes: AtomicU32,
    /// Passed to the worker.
    passed: AtomicU16,
}

impl Peering {
    /// How many lanes there have been.
    pub(super) fn passed(&self) -> u16 {
        self.passed.load(Ordering::Relaxed)
    }

    /// Counts a lane; in the error, why there is no place for it.
    fn add_lane(&self) -> Result<(), String> {
        if self.lanes.fetch_add(1, Ordering::AcqRel) < LANE_LIMIT {
            return Ok(());
        }
        self.lanes.fetch_sub(1, Ordering::AcqRel);
        Err(format!("the session has had {LANE_LIMIT} peer lanes"))
    }
}

/// A place among the connections that a session is making.
struct Connecting(Arc<Session>);

impl Connecting {
    fn take(session: &Arc<Session>) -> Result<Self, String> {
        let before = session.peering.connecting.fetch_add(1, Ordering::AcqRel);
        let place = Self(Arc::clone(session));
        // Dropping the place gives it back if there was none.
        match before < CONNECTING_LIMIT {
            true => Ok(place),
            false => Err("too many connections to other servers are being made".into()),
        }
    }
}

impl Drop for Connecting {
    fn drop(&mut self) {
        self.0.peering.connecting.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Tickets for peer lanes that have been given out.
#[derive(Default)]
pub(super) struct PeerTickets {
    issued: Mutex<BTreeMap<TicketName, Issued>>,
}

/// What a ticket is good for.
#[derive(Clone)]
struct Issued {
    ticket: Ticket,
    session: u64,
    lane: u64,
    /// The server that may use it.
    address: Address,
    until: Instant,
}

impl PeerTickets {
    fn issue(&self, issued: Issued, now: Instant) -> Result<(), String> {
        let mut tickets = lock(&self.issued);
        tickets.retain(|_, other| other.until > now);
        let own = tickets
            .values()
            .filter(|other| other.session == issued.session);
        if own.count() >= TICKET_LIMIT {
            return Err(format!(
                "{TICKET_LIMIT} tickets of the session wait to be used"
            ));
        }
        tickets.insert(TicketName::of(&issued.ticket), issued);
        Ok(())
    }

    /// Takes a ticket out: whatever comes of it, it is not good any more.
    fn redeem(&self, name: &TicketName, now: Instant) -> Option<Issued> {
        lock(&self.issued)
            .remove(name)
            .filter(|issued| issued.until > now)
    }
}

/// The address of the list that a client means; in the error, why there is none.
fn listed<'a>(text: &str, shared: &'a Shared) -> Result<&'a Address, String> {
    let mut peers = shared.config.peers.iter();
    peers
        .find(|address| address.to_string() == text)
        .ok_or_else(|| {
            let shown = printable(text, SHOWN_NAME);
            format!("this server does not list {shown} as its peer")
        })
}

/// Gives a ticket for a connection from a listed server.
pub(super) fn offer(session: &Session, offer: &PeerOffer, shared: &Shared) -> PeerTicket {
    let ticket = listed(&offer.address, shared).and_then(|address| {
        let bytes = random::<TICKET_BYTES>().map_err(|error| error.to_string())?;
        let ticket = Ticket::from_random(bytes);
        let now = Instant::now();
        let issued = Issued {
            ticket: ticket.clone(),
            session: session.id,
            lane: offer.lane,
            address: address.clone(),
            until: now + TICKET_LIFE,
        };
        shared.peer_tickets.issue(issued, now)?;
        Ok(ticket)
    });
    if let Err(reason) = &ticket
        && session.tenant.requests().admit()
    {
        log::info!("session {}: no ticket for a peer: {reason}", session.id);
    }
    PeerTicket {
        lane: offer.lane,
        ticket,
    }
}

/// Connects the session's worker to that of a listed server, on a thread of its own, which answers the client.
pub(super) fn connect(
    session: &Arc<Session>,
    request: PeerConnect,
    shared: &Arc<Shared>,
) -> Result<(), TransportError> {
    let lane = request.lane;
    let tell = move |session: &Session, outcome: Result<(), String>| {
        match &outcome {
            Ok(()) => log::info!("session {}: peer lane {lane} is there", session.id),
            Err(reason) if session.tenant.requests().admit() => {
                log::info!("session {}: no peer lane: {reason}", session.id);
            }
            Err(_) => {}
        }
        let answer = Message::PeerConnected(PeerConnected { lane, outcome });
        session.control.send(&answer.encode())
    };
    let place = match Connecting::take(session) {
        Ok(place) => place,
        Err(reason) => return tell(session, Err(reason)),
    };
    let shared = Arc::clone(shared);
    let work = move || {
        let session = &place.0;
        let outcome = reach(session, &request, &shared);
        // A client that is gone needs no answer.
        let _ = tell(session, outcome);
    };
    match super::spawn("peer", work) {
        Ok(_) => Ok(()),
        Err(error) => tell(session, Err(error.to_string())),
    }
}

fn reach(session: &Session, request: &PeerConnect, shared: &Shared) -> Result<(), String> {
    let address = listed(&request.address, shared)?;
    session.peering.add_lane()?;
    let nonce = random::<NONCE_BYTES>().map_err(|error| error.to_string())?;
    let options = ConnectOptions {
        timeout: CONNECT_LIMIT,
        ..ConnectOptions::default()
    };
    let connection = Registry::global()
        .connect(address, &options)
        .map_err(|error| error.to_string())?;
    let deadline = shared
        .deadlines
        .set(&connection, HANDSHAKE_LIMIT, Vec::new());
    let token = shared.config.peer_token.as_ref();
    let scheme = address.scheme();
    let encrypted = !may_be_clear(&*connection, scheme, token.is_some(), &shared.config)
        .map_err(|error| error.to_string())?;
    let (connector, hello) = PeerConnector::start(&request.ticket, token, nonce, encrypted);
    let key = introduce(&*connection, &connector, &hello)
        .map_err(|error| format!("{address}: {error}"))?;
    // The deadline would end the lane for the worker too.
    drop(deadline);
    let end = PeerEnd {
        lane: request.lane,
        connects: true,
        key: encrypted.then_some(key),
    };
    pass(session, &end, scheme, &*connection)
}

/// What a worker is told of a peer lane.
struct PeerEnd {
    lane: u64,
    connects: bool,
    /// `None` where it is not encrypted.
    key: Option<LaneKey>,
}

/// The connecting side of the handshake, byte for byte: what follows is the workers'.
fn introduce(
    connection: &dyn Connection,
    connector: &PeerConnector,
    hello: &[u8],
) -> Result<LaneKey, String> {
    let lost = |error: TransportError| error.to_string();
    connection.send(&[IoSlice::new(hello)]).map_err(lost)?;
    let mut challenge = [0; PEER_CHALLENGE_BYTES];
    recv_exact(connection, &mut challenge)
        .map_err(|error| format!("it does not take the ticket: {error}"))?;
    let (proof, key) = connector
        .answer(&challenge)
        .map_err(|error| error.to_string())?;
    connection.send(&[IoSlice::new(&proof)]).map_err(lost)?;
    let mut accepted = [0; PEER_ACCEPTED.len()];
    recv_exact(connection, &mut accepted)
        .map_err(|error| format!("it does not take our proof: {error}"))?;
    match accepted == PEER_ACCEPTED {
        true => Ok(key),
        false => Err("it does not speak the protocol".into()),
    }
}

/// What another server's connection may do.
pub(super) struct Accepted {
    session: Arc<Session>,
    end: PeerEnd,
}

/// The accepting side of the handshake; `first` has been read. In the error, why the connection is refused.
pub(super) fn accept(
    connection: &dyn Connection,
    first: &[u8; ConnectionKind::BYTES],
    scheme: &str,
    shared: &Shared,
) -> Result<Accepted, String> {
    let mut hello = [0; PEER_HELLO_BYTES];
    let (head, rest) = hello.split_at_mut(first.len());
    head.copy_from_slice(first);
    recv_exact(connection, rest).map_err(|error| error.to_string())?;
    let (name, encrypted) = TicketName::in_hello(&hello).map_err(|error| error.to_string())?;
    let issued = shared
        .peer_tickets
        .redeem(&name, Instant::now())
        .ok_or("no such ticket, or it was used before, or it is too old")?;
    let session = shared
        .sessions
        .get(issued.session)
        .ok_or("the ticket's session is over")?;
    let token = shared.config.peer_token.as_ref();
    if token.is_none() {
        comes_from(connection, scheme, &issued.address)?;
    }
    let may_be_clear = may_be_clear(connection, scheme, token.is_some(), &shared.config);
    if !encrypted && !may_be_clear.map_err(|error| error.to_string())? {
        return Err(
            "it does not encrypt; start it without --no-encryption, or this server with it".into(),
        );
    }
    let nonce = random::<NONCE_BYTES>().map_err(|error| error.to_string())?;
    let (acceptor, challenge) = PeerAcceptor::challenge(&hello, &issued.ticket, token, nonce);
    connection
        .send(&[IoSlice::new(&challenge)])
        .map_err(|error| error.to_string())?;
    let mut proof = [0; PROOF_BYTES];
    recv_exact(connection, &mut proof).map_err(|error| error.to_string())?;
    let key = acceptor.check(&proof).map_err(|error| error.to_string())?;
    session.peering.add_lane()?;
    let end = PeerEnd {
        lane: issued.lane,
        connects: false,
        key: encrypted.then_some(key),
    };
    Ok(Accepted { session, end })
}

/// Says that the connection is accepted and gives it to the session's worker. No deadline may hang over it any more.
pub(super) fn hand_over(
    connection: &dyn Connection,
    accepted: Result<Accepted, String>,
    scheme: &str,
    shared: &Shared,
) {
    let peer = connection.peer();
    let passed = accepted.and_then(|Accepted { session, end }| {
        // One byte into an empty buffer. The worker may speak as soon as it has the connection, so this goes first.
        match connection.try_send(&PEER_ACCEPTED) {
            Ok(1) => {}
            Ok(_) => return Err("it does not read".into()),
            Err(error) => return Err(error.to_string()),
        }
        pass(&session, &end, scheme, connection)?;
        Ok((session.id, end.lane))
    });
    match passed {
        Ok((id, lane)) => log::info!("session {id}: {peer} is peer lane {lane}"),
        Err(reason) => {
            shared
                .refusals
                .note(&peer, None, "Peer", &format_args!("peer refused: {reason}"));
        }
    }
}

fn pass(
    session: &Session,
    end: &PeerEnd,
    scheme: &str,
    connection: &dyn Connection,
) -> Result<(), String> {
    let descriptor = connection
        .descriptor()
        .ok_or("its transport cannot pass connections to a worker")?;
    session
        .worker
        .pass_peer(end.lane, end.connects, end.key.as_ref(), scheme, descriptor)
        .map_err(|error| format!("{error}: {}", error.source))?;
    session.peering.passed.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// Without a token, a server is known by where it connects from.
fn comes_from(connection: &dyn Connection, scheme: &str, listed: &Address) -> Result<(), String> {
    let peer = connection.peer();
    let from: Option<IpAddr> = peer
        .parse::<Address>()
        .ok()
        .filter(|address| address.scheme() == scheme)
        .and_then(|address| address.host_port()?.0.parse().ok());
    let (Some(from), Some((host, port))) = (from, listed.host_port()) else {
        return Err(
            "without a token, servers are told apart by their addresses, which this transport has not"
                .into(),
        );
    };
    let known = (host, port)
        .to_socket_addrs()
        .map_err(|error| format!("{listed}: {error}"))?;
    let from = from.to_canonical();
    match known
        .into_iter()
        .any(|known| known.ip().to_canonical() == from)
    {
        true => Ok(()),
        false => Err(format!("it is not {listed}, for which the ticket is")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn issued(byte: u8, session: u64, until: Instant) -> Issued {
        Issued {
            ticket: Ticket::from_random([byte; TICKET_BYTES]),
            session,
            lane: 1,
            address: "gpu2:7140".parse().unwrap(),
            until,
        }
    }

    #[test]
    fn a_ticket_is_good_once() {
        let (tickets, now) = (PeerTickets::default(), Instant::now());
        let ticket = issued(1, 7, now + TICKET_LIFE);
        let name = TicketName::of(&ticket.ticket);
        tickets.issue(ticket, now).unwrap();
        assert_eq!(
            tickets.redeem(&name, now).map(|issued| issued.session),
            Some(7)
        );
        assert!(tickets.redeem(&name, now).is_none());
    }

    #[test]
    fn a_ticket_that_is_too_old_is_not_good() {
        let (tickets, now) = (PeerTickets::default(), Instant::now());
        let ticket = issued(1, 7, now + TICKET_LIFE);
        let name = TicketName::of(&ticket.ticket);
        tickets.issue(ticket, now).unwrap();
        assert!(tickets.redeem(&name, now + TICKET_LIFE).is_none());
    }

    #[test]
    fn tickets_of_a_session_are_limited_and_come_back() {
        let (tickets, now) = (PeerTickets::default(), Instant::now());
        for byte in 0..TICKET_LIMIT as u8 {
            tickets
                .issue(issued(byte, 7, now + TICKET_LIFE), now)
                .unwrap();
        }
        assert!(
            tickets
                .issue(issued(99, 7, now + TICKET_LIFE), now)
                .is_err()
        );
        assert!(tickets.issue(issued(98, 8, now + TICKET_LIFE), now).is_ok());
        let later = now + TICKET_LIFE;
        assert!(
            tickets
                .issue(issued(99, 7, later + TICKET_LIFE), later)
                .is_ok()
        );
    }

    #[test]
    fn lanes_of_a_session_are_limited() {
        let peering = Peering::default();
        for _ in 0..LANE_LIMIT {
            peering.add_lane().unwrap();
        }
        assert!(peering.add_lane().is_err());
    }
}
