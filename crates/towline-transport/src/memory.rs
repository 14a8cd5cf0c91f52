//! In-process connections by name, `memory://name`, over a link with the properties a test asks for.
//!
//! Each [`MemoryTransport`] is a network of its own: names in one are unknown in another. The one in the
//! [`Registry`](crate::Registry) has a perfect link. A test that needs delay, little bandwidth or a failure makes
//! its own by [`MemoryTransport::with_link`], hands it to the code under test, and watches from outside through
//! [`MemoryTransport::monitors`].
//!
//! Delay is real: every byte has an instant at which it arrives, and the receiver sleeps until then.

use std::collections::{HashMap, VecDeque};
use std::io::IoSlice;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::{
    Address, Capabilities, ConnectOptions, Connection, Listener, Transport, TransportError,
};

/// The granularity of arrival on a link of limited bandwidth: large enough to be cheap, small enough that a large
/// send streams.
const SEGMENT_BYTES: usize = 16 << 10;

/// Properties of a simulated link. The default is perfect: no delay, no limit, 1 MiB of buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// One way.
    pub latency: Duration,
    /// Each way; `None` is unlimited.
    pub bandwidth_bytes_per_s: Option<u64>,
    /// Bytes each way that are sent and not yet read, in flight included. A sender beyond it waits.
    pub buffer_bytes: usize,
    /// Break each connection, as by [`LinkMonitor::cut`] but with the bytes before still delivered, when this many
    /// bytes were sent on it, both ways together.
    pub cut_after_bytes: Option<u64>,
}

impl Default for Link {
    fn default() -> Self {
        Self {
            latency: Duration::ZERO,
            bandwidth_bytes_per_s: None,
            buffer_bytes: 1 << 20,
            cut_after_bytes: None,
        }
    }
}

/// What went over one connection, seen from outside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Sent by the end that connected.
    pub client_to_server_bytes: u64,
    /// Sent by the end that accepted.
    pub server_to_client_bytes: u64,
    /// How often the sending end changed. A request and its reply are two turns however many sends each takes, so
    /// `turns / 2` bounds the round trips that a strictly alternating protocol made; the first send counts.
    pub turns: u64,
}

/// The transport for `memory://`. Clones are the same network.
#[derive(Clone, Default)]
pub struct MemoryTransport {
    network: Arc<Network>,
}

#[derive(Default)]
struct Network {
    link: Link,
    listeners: Mutex<HashMap<String, Arc<Backlog>>>,
    monitors: Mutex<Vec<LinkMonitor>>,
}

impl MemoryTransport {
    /// A network with a perfect link.
    pub fn new() -> Self {
        Self::default()
    }

    /// A network whose every connection runs over a link like this one.
    pub fn with_link(link: Link) -> Self {
        let link = Link {
            buffer_bytes: link.buffer_bytes.max(1),
            ..link
        };
        Self {
            network: Arc::new(Network {
                link,
                ..Network::default()
            }),
        }
    }

    /// One monitor per connection ever made here, in the order in which they were made.
    pub fn monitors(&self) -> Vec<LinkMonitor> {
        lock(&self.network.monitors).clone()
    }
}

impl Transport for MemoryTransport {
    fn scheme(&self) -> &'static str {
        "memory"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            passes_descriptors: false,
            crosses_hosts: false,
        }
    }

    fn connect(
        &self,
        address: &Address,
        _options: &ConnectOptions,
    ) -> Result<Arc<dyn Connection>, TransportError> {
        let name = name(address)?;
        let refused = || TransportError::ConnectionRefused {
            address: address.to_string(),
        };
        let backlog = lock(&self.network.listeners)
            .get(name)
            .cloned()
            .ok_or_else(refused)?;
        let wire = Arc::new(Wire::new(self.network.link));
        let number = {
            let mut monitors = lock(&self.network.monitors);
            monitors.push(LinkMonitor { wire: wire.clone() });
            monitors.len()
        };
        let server = MemoryConnection {
            wire: wire.clone(),
            end: End::Server,
            peer: format!("{address} (connection {number})"),
        };
        let client = MemoryConnection {
            wire,
            end: End::Client,
            peer: address.to_string(),
        };
        if !backlog.push(server) {
            return Err(refused());
        }
        Ok(Arc::new(client))
    }

    fn listen(&self, address: &Address) -> Result<Box<dyn Listener>, TransportError> {
        let name = name(address)?;
        let mut listeners = lock(&self.network.listeners);
        if listeners.contains_key(name) {
            return Err(TransportError::AddressInUse {
                address: address.to_string(),
            });
        }
        let backlog = Arc::new(Backlog::default());
        listeners.insert(name.to_owned(), backlog.clone());
        Ok(Box::new(MemoryListener {
            network: self.network.clone(),
            address: address.clone(),
            backlog,
        }))
    }

    fn adopt(&self, _descriptor: OwnedFd) -> Result<Arc<dyn Connection>, TransportError> {
        Err(TransportError::Unsupported {
            scheme: "memory".into(),
            operation: "adopt a descriptor",
        })
    }
}

fn name(address: &Address) -> Result<&str, TransportError> {
    match address.scheme() {
        "memory" => Ok(address.rest()),
        _ => Err(TransportError::InvalidAddress {
            text: address.to_string(),
            advice: "the memory transport takes memory://NAME".into(),
        }),
    }
}

/// Connections that wait to be accepted; `None` once the listener is closed.
struct Backlog {
    waiting: Mutex<Option<VecDeque<MemoryConnection>>>,
    arrived: Condvar,
}

impl Default for Backlog {
    fn default() -> Self {
        Self {
            waiting: Mutex::new(Some(VecDeque::new())),
            arrived: Condvar::new(),
        }
    }
}

impl Backlog {
    fn push(&self, connection: MemoryConnection) -> bool {
        let mut waiting = lock(&self.waiting);
        let Some(queue) = waiting.as_mut() else {
            return false;
        };
        queue.push_back(connection);
        self.arrived.notify_one();
        true
    }
}

struct MemoryListener {
    network: Arc<Network>,
    address: Address,
    backlog: Arc<Backlog>,
}

impl Listener for MemoryListener {
    fn accept(&self) -> Result<Arc<dyn Connection>, TransportError> {
        let mut waiting = lock(&self.backlog.waiting);
        loop {
            match waiting.as_mut().map(VecDeque::pop_front) {
                Some(Some(connection)) => return Ok(Arc::new(connection)),
                Some(None) => waiting = wait(&self.backlog.arrived, waiting),
                None => {
                    return Err(TransportError::ListenerClosed {
                        address: self.address.to_string(),
                    });
                }
            }
        }
    }

    fn local_address(&self) -> Address {
        self.address.clone()
    }

    fn close(&self) {
        let unaccepted = lock(&self.backlog.waiting).take();
        if unaccepted.is_some() {
            lock(&self.network.listeners).remove(self.address.rest());
            self.backlog.arrived.notify_all();
        }
    }
}

impl Drop for MemoryListener {
    fn drop(&mut self) {
        self.close();
    }
}

/// Watches one connection of a [`MemoryTransport`] from outside, and can break it.
#[derive(Clone)]
pub struct LinkMonitor {
    wire: Arc<Wire>,
}

impl LinkMonitor {
    pub fn traffic(&self) -> Traffic {
        self.wire.state().traffic
    }

    /// Breaks the link at once. Bytes in flight are lost, blocked calls of both ends wake, and every call fails with
    /// [`TransportError::Lost`].
    pub fn cut(&self) {
        let mut state = self.wire.state();
        state.cut = true;
        for pipe in &mut state.pipes {
            pipe.bytes.clear();
            pipe.arrivals.clear();
        }
        self.wire.changed_all();
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Client = 0,
    Server = 1,
}

impl End {
    fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// Both directions of one connection. One lock for both keeps the count of turns exact.
struct Wire {
    link: Link,
    state: Mutex<WireState>,
    /// By direction, named by its sender: something changed for who reads it, or writes it.
    readable: [Condvar; 2],
    writable: [Condvar; 2],
}

#[derive(Default)]
struct WireState {
    /// By sender.
    pipes: [Pipe; 2],
    traffic: Traffic,
    last_sender: Option<End>,
    cut: bool,
}

#[derive(Default)]
struct Pipe {
    bytes: VecDeque<u8>,
    /// How many of `bytes`, in order, arrive when. Empty on a link without delay.
    arrivals: VecDeque<(usize, Instant)>,
    /// When the last byte sent has left, at the link's bandwidth.
    line_free_at: Option<Instant>,
    /// The sender sends no more.
    ended: bool,
    /// The receiver reads no more.
    abandoned: bool,
}

/// What a receiver finds.
enum Arrival {
    Bytes(usize),
    End,
    Nothing { until: Option<Instant> },
}

impl Wire {
    fn new(link: Link) -> Self {
        Self {
            link,
            state: Mutex::default(),
            readable: Default::default(),
            writable: Default::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, WireState> {
        lock(&self.state)
    }

    fn changed_all(&self) {
        self.readable
            .iter()
            .chain(&self.writable)
            .for_each(Condvar::notify_all);
    }

    /// Puts what fits of `bytes` on the line and says how much that was.
    fn put(&self, state: &mut WireState, sender: End, bytes: &[u8]) -> usize {
        let sent_before =
            state.traffic.client_to_server_bytes + state.traffic.server_to_client_bytes;
        let allowed = self.link.cut_after_bytes.map_or(usize::MAX, |limit| {
            usize::try_from(limit.saturating_sub(sent_before)).unwrap_or(usize::MAX)
        });
        let pipe = &mut state.pipes[sender as usize];
        let room = self.link.buffer_bytes.saturating_sub(pipe.bytes.len());
        let taken = bytes.len().min(room).min(allowed);
        if taken > 0 {
            pipe.put(&self.link, &bytes[..taken]);
            let counter = match sender {
                End::Client => &mut state.traffic.client_to_server_bytes,
                End::Server => &mut state.traffic.server_to_client_bytes,
            };
            *counter += taken as u64;
            if state.last_sender.replace(sender) != Some(sender) {
                state.traffic.turns += 1;
            }
            self.readable[sender as usize].notify_all();
        }
        if taken == allowed && !state.cut {
            state.cut = true;
            self.changed_all();
        }
        taken
    }
}

impl Pipe {
    fn put(&mut self, link: &Link, bytes: &[u8]) {
        self.bytes.extend(bytes);
        if link.latency.is_zero() && link.bandwidth_bytes_per_s.is_none() {
            return;
        }
        let now = Instant::now();
        for segment in bytes.chunks(SEGMENT_BYTES) {
            let starts = self.line_free_at.map_or(now, |free| free.max(now));
            let leaves = starts
                + link.bandwidth_bytes_per_s.map_or(Duration::ZERO, |rate| {
                    Duration::from_secs_f64(segment.len() as f64 / rate.max(1) as f64)
                });
            self.line_free_at = Some(leaves);
            self.arrivals
                .push_back((segment.len(), leaves + link.latency));
        }
    }

    fn arrived(&self) -> Arrival {
        if self.bytes.is_empty() {
            return if self.ended {
                Arrival::End
            } else {
                Arrival::Nothing { until: None }
            };
        }
        let Some(&(_, first)) = self.arrivals.front() else {
            return Arrival::Bytes(self.bytes.len());
        };
        let now = Instant::now();
        if first > now {
            return Arrival::Nothing { until: Some(first) };
        }
        Arrival::Bytes(
            self.arrivals
                .iter()
                .take_while(|(_, at)| *at <= now)
                .map(|(bytes, _)| bytes)
                .sum(),
        )
    }

    fn take(&mut self, arrived: usize, buffer: &mut [u8]) -> usize {
        let taken = arrived.min(buffer.len());
        let (front, back) = self.bytes.as_slices();
        let from_front = taken.min(front.len());
        buffer[..from_front].copy_from_slice(&front[..from_front]);
        buffer[from_front..taken].copy_from_slice(&back[..taken - from_front]);
        self.bytes.drain(..taken);
        let mut counted = taken;
        while let Some((bytes, _)) = self.arrivals.front_mut() {
            let part = counted.min(*bytes);
            *bytes -= part;
            counted -= part;
            if *bytes > 0 {
                break;
            }
            self.arrivals.pop_front();
        }
        taken
    }
}

struct MemoryConnection {
    wire: Arc<Wire>,
    end: End,
    peer: String,
}

impl MemoryConnection {
    fn closed(&self) -> TransportError {
        TransportError::Closed {
            peer: self.peer.clone(),
        }
    }

    fn lost(&self) -> TransportError {
        TransportError::Lost {
            peer: self.peer.clone(),
            reason: "the simulated link was cut".into(),
        }
    }

    fn check_sendable(&self, state: &WireState) -> Result<(), TransportError> {
        let pipe = &state.pipes[self.end as usize];
        match () {
            () if state.cut => Err(self.lost()),
            () if pipe.ended || pipe.abandoned => Err(self.closed()),
            () => Ok(()),
        }
    }

    fn arrived(&self, state: &WireState) -> Result<Arrival, TransportError> {
        let pipe = &state.pipes[self.end.other() as usize];
        if pipe.abandoned {
            return Ok(Arrival::End);
        }
        match pipe.arrived() {
            // Bytes that were in flight when `cut_after_bytes` struck still arrive.
            Arrival::End | Arrival::Nothing { until: None } if state.cut => Err(self.lost()),
            arrival => Ok(arrival),
        }
    }

    fn take(&self, state: &mut WireState, arrived: usize, buffer: &mut [u8]) -> usize {
        let sender = self.end.other() as usize;
        let taken = state.pipes[sender].take(arrived, buffer);
        self.wire.writable[sender].notify_all();
        taken
    }

    /// Waits for something to read until `deadline`; gives the state back with what was found.
    fn wait_arrival(
        &self,
        deadline: Option<Instant>,
    ) -> Result<(MutexGuard<'_, WireState>, Arrival), TransportError> {
        let readable = &self.wire.readable[self.end.other() as usize];
        let mut state = self.wire.state();
        loop {
            let arrival = self.arrived(&state)?;
            let Arrival::Nothing { until } = arrival else {
                return Ok((state, arrival));
            };
            let now = Instant::now();
            if deadline.is_some_and(|deadline| deadline <= now) {
                return Ok((state, arrival));
            }
            state = match until.into_iter().chain(deadline).min() {
                Some(next) => {
                    let waited = readable.wait_timeout(state, next.saturating_duration_since(now));
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => wait(readable, state),
            };
        }
    }
}

impl Connection for MemoryConnection {
    fn send(&self, parts: &[IoSlice<'_>]) -> Result<(), TransportError> {
        let mut state = self.wire.state();
        self.check_sendable(&state)?;
        for part in parts {
            let mut rest = &part[..];
            while !rest.is_empty() {
                let sent = self.wire.put(&mut state, self.end, rest);
                rest = &rest[sent..];
                if sent == 0 && !state.cut {
                    state = wait(&self.wire.writable[self.end as usize], state);
                }
                if !rest.is_empty() {
                    self.check_sendable(&state)?;
                }
            }
        }
        Ok(())
    }

    fn try_send(&self, bytes: &[u8]) -> Result<usize, TransportError> {
        let mut state = self.wire.state();
        self.check_sendable(&state)?;
        Ok(self.wire.put(&mut state, self.end, bytes))
    }

    fn recv(&self, buffer: &mut [u8]) -> Result<usize, TransportError> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let (mut state, arrival) = self.wait_arrival(None)?;
        match arrival {
            Arrival::Bytes(arrived) => Ok(self.take(&mut state, arrived, buffer)),
            Arrival::End | Arrival::Nothing { .. } => Ok(0),
        }
    }

    fn try_recv(&self, buffer: &mut [u8]) -> Result<Option<usize>, TransportError> {
        if buffer.is_empty() {
            return Ok(Some(0));
        }
        let mut state = self.wire.state();
        Ok(match self.arrived(&state)? {
            Arrival::Bytes(arrived) => Some(self.take(&mut state, arrived, buffer)),
            Arrival::End => Some(0),
            Arrival::Nothing { .. } => None,
        })
    }

    fn wait_readable(&self, timeout: Option<Duration>) -> Result<bool, TransportError> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        match self.wait_arrival(deadline) {
            Ok((_, arrival)) => Ok(!matches!(arrival, Arrival::Nothing { .. })),
            // A failure is something for `recv` to report.
            Err(_) => Ok(true),
        }
    }

    fn shutdown(&self) {
        let mut state = self.wire.state();
        state.pipes[self.end as usize].ended = true;
        let unread = &mut state.pipes[self.end.other() as usize];
        unread.abandoned = true;
        // Monitors keep the wire long after its ends are gone; its buffers need not stay.
        unread.bytes = VecDeque::new();
        unread.arrivals = VecDeque::new();
        self.wire.changed_all();
    }

    fn peer(&self) -> String {
        self.peer.clone()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl Drop for MemoryConnection {
    fn drop(&mut self) {
        self.shutdown();
    }
}

// A thread that panics in a test must not turn every other thread's failure into a poisoned lock; the states here
// are valid between any two statements that can panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condvar.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recv_exact;

    fn pair(link: Link) -> (Arc<dyn Connection>, Arc<dyn Connection>, LinkMonitor) {
        let transport = MemoryTransport::with_link(link);
        let address = "memory://pair".parse().unwrap();
        let listener = transport.listen(&address).unwrap();
        let client = transport
            .connect(&address, &ConnectOptions::default())
            .unwrap();
        let server = listener.accept().unwrap();
        (client, server, transport.monitors().remove(0))
    }

    fn send(connection: &Arc<dyn Connection>, bytes: &[u8]) -> Result<(), TransportError> {
        connection.send(&[IoSlice::new(bytes)])
    }

    #[test]
    fn networks_do_not_know_each_others_names() {
        let _listener = MemoryTransport::new()
            .listen(&"memory://here".parse().unwrap())
            .unwrap();
        let error = MemoryTransport::new().connect(
            &"memory://here".parse().unwrap(),
            &ConnectOptions::default(),
        );
        assert!(matches!(
            error,
            Err(TransportError::ConnectionRefused { .. })
        ));
    }

    #[test]
    fn name_is_free_again_when_its_listener_is_gone() {
        let transport = MemoryTransport::new();
        let address = "memory://name".parse().unwrap();
        let first = transport.listen(&address).unwrap();
        assert!(matches!(
            transport.listen(&address),
            Err(TransportError::AddressInUse { .. })
        ));
        drop(first);
        assert!(transport.listen(&address).is_ok());
    }

    #[test]
    fn bytes_arrive_no_earlier_than_latency_and_bandwidth_allow() {
        let link = Link {
            latency: Duration::from_millis(20),
            bandwidth_bytes_per_s: Some(1_000_000),
            ..Link::default()
        };
        let (client, server, _) = pair(link);
        let start = Instant::now();
        send(&client, &[7; 40_000]).unwrap();
        assert_eq!(server.try_recv(&mut [0; 1]).unwrap(), None);
        recv_exact(&*server, &mut [0; 40_000]).unwrap();
        // 40 ms on the line and 20 ms of flight; a loaded machine may take longer.
        assert!(start.elapsed() >= Duration::from_millis(60));
    }

    #[test]
    fn requests_and_replies_count_as_turns_however_many_sends_they_take() {
        let (client, server, monitor) = pair(Link::default());
        for _ in 0..3 {
            send(&client, b"re").unwrap();
            send(&client, b"quest").unwrap();
            recv_exact(&*server, &mut [0; 7]).unwrap();
            send(&server, b"reply").unwrap();
            recv_exact(&*client, &mut [0; 5]).unwrap();
        }
        let expected = Traffic {
            client_to_server_bytes: 21,
            server_to_client_bytes: 15,
            turns: 6,
        };
        assert_eq!(monitor.traffic(), expected);
    }

    #[test]
    fn cut_loses_what_is_in_flight_and_wakes_a_blocked_reader() {
        let (client, server, monitor) = pair(Link {
            latency: Duration::from_secs(3600),
            ..Link::default()
        });
        send(&client, b"lost").unwrap();
        let blocked = std::thread::spawn(move || server.recv(&mut [0; 4]));
        monitor.cut();
        assert!(matches!(
            blocked.join().unwrap(),
            Err(TransportError::Lost { .. })
        ));
        assert!(matches!(
            send(&client, b"x"),
            Err(TransportError::Lost { .. })
        ));
    }

    #[test]
    fn link_cut_after_n_bytes_delivers_exactly_those() {
        let (client, server, monitor) = pair(Link {
            cut_after_bytes: Some(10),
            ..Link::default()
        });
        send(&server, b"123").unwrap();
        assert!(matches!(
            send(&client, b"0123456789"),
            Err(TransportError::Lost { .. })
        ));
        let mut received = [0; 7];
        recv_exact(&*server, &mut received).unwrap();
        assert_eq!(&received, b"0123456");
        assert!(matches!(
            server.recv(&mut received),
            Err(TransportError::Lost { .. })
        ));
        assert_eq!(monitor.traffic().client_to_server_bytes, 7);
    }

    #[test]
    fn traffic_of_a_closed_connection_can_still_be_read() {
        let (client, server, monitor) = pair(Link::default());
        send(&client, b"unread").unwrap();
        drop((client, server));
        assert_eq!(monitor.traffic().client_to_server_bytes, 6);
        assert_eq!(monitor.wire.state().pipes[0].bytes.capacity(), 0);
    }

    #[test]
    fn descriptors_are_neither_given_nor_taken() {
        let (client, _server, _) = pair(Link::default());
        assert!(client.descriptor().is_none());
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(matches!(
            MemoryTransport::new().adopt(file.into()),
            Err(TransportError::Unsupported { .. })
        ));
    }
}
