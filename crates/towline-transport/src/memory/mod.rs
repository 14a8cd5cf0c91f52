//! In-process connections by name, `memory://name`, over a link with the properties a test asks for.
//!
//! Each [`MemoryTransport`] is a network of its own: names in one are unknown in another. The one in the
//! [`Registry`](crate::Registry) has a perfect link. A test that needs delay, little bandwidth or a failure makes
//! its own by [`MemoryTransport::with_link`] or [`MemoryTransport::simulated`], hands it to the code under test, and
//! watches from outside through [`MemoryTransport::monitors`].
//!
//! Every byte has an instant at which it arrives, and the receiver waits until then: in real time it sleeps, in
//! [`Time::Virtual`] it moves the network's clock on.
//!
//! A fault plan ([`MemoryTransport::arm`]) says at which byte of which direction a connection fails, and how. A first run
//! without faults tells where sends begin and end ([`LinkMonitor::sends`]), and so where faults are worth placing.

mod clock;
mod fault;
mod wire;

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::fd::OwnedFd;

pub use clock::Time;
pub use fault::{End, Fault, FaultKind};

use clock::Clock;
use wire::{MemoryConnection, Wire};

use crate::{
    Address, Capabilities, ConnectOptions, Connection, Listener, Transport, TransportError,
};

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

/// Traffic of one connection, seen from outside.
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
    clock: Clock,
    /// Sends are recorded: not where a process may run for days.
    records: bool,
    listeners: Mutex<HashMap<String, Arc<Backlog>>>,
    monitors: Mutex<Vec<LinkMonitor>>,
    strikes: (Mutex<usize>, Condvar),
}

impl Network {
    /// A fault has struck one connection: what it does to the others, and what waits for it.
    fn struck(&self, fault: Fault) {
        if fault.to_all {
            for monitor in lock(&self.monitors).iter() {
                monitor
                    .wire
                    .apply(&mut monitor.wire.state(), fault.sender, fault.kind);
            }
        }
        *lock(&self.strikes.0) += 1;
        self.strikes.1.notify_all();
    }
}

impl MemoryTransport {
    /// A network with a perfect link.
    pub fn new() -> Self {
        Self::default()
    }

    /// A network whose every connection runs over a link like this one.
    pub fn with_link(link: Link) -> Self {
        Self::over(Network {
            link,
            ..Network::default()
        })
    }

    /// As [`Self::with_link`], in real or virtual time; its sends are recorded.
    pub fn simulated(link: Link, time: Time) -> Self {
        Self::over(Network {
            link,
            clock: Clock::new(time),
            records: true,
            ..Network::default()
        })
    }

    fn over(mut network: Network) -> Self {
        network.link.buffer_bytes = network.link.buffer_bytes.max(1);
        Self {
            network: Arc::new(network),
        }
    }

    /// One monitor per connection ever made here, in the order in which they were made.
    pub fn monitors(&self) -> Vec<LinkMonitor> {
        lock(&self.network.monitors).clone()
    }

    /// Has the connections made so far fail as planned. Offsets and records begin anew: they count from this call on.
    pub fn arm(&self, faults: &[Fault]) {
        for (number, monitor) in self.monitors().into_iter().enumerate() {
            monitor.wire.arm(number, faults);
        }
    }

    /// Waits until a fault of the plan has struck; `false` when `timeout`, in real time, passed first.
    pub fn wait_struck(&self, timeout: Duration) -> bool {
        let (strikes, struck) = &self.network.strikes;
        let waited = struck.wait_timeout_while(lock(strikes), timeout, |strikes| *strikes == 0);
        *waited.unwrap_or_else(PoisonError::into_inner).0 > 0
    }

    /// Moves the network's clock on by so much: what was to arrive by then arrives, and waits with a limit end.
    pub fn advance(&self, by: Duration) {
        self.network.clock.advance(by);
        for monitor in self.monitors() {
            // With the lock, or a receiver between its look at the clock and its wait would miss it.
            let _state = monitor.wire.state();
            monitor.wire.changed_all();
        }
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
            over_network: false,
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
        let (wire, number) = {
            let mut monitors = lock(&self.network.monitors);
            let wire = Arc::new(Wire::new(&self.network));
            monitors.push(LinkMonitor { wire: wire.clone() });
            (wire, monitors.len())
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
    /// Bytes sent on it.
    pub fn traffic(&self) -> Traffic {
        self.wire.traffic()
    }

    /// Breaks the link at once. Bytes in flight are lost, blocked calls of both ends wake, and every call fails with
    /// [`TransportError::Lost`].
    pub fn cut(&self) {
        self.wire.cut();
    }

    /// Ends the stall of either direction.
    pub fn resume(&self) {
        self.wire.resume();
    }

    /// Whether a fault of the plan has struck this connection first.
    pub fn struck(&self) -> bool {
        self.wire.struck()
    }

    /// Which bytes of a direction each part of each send covered, in order, on a network of [`MemoryTransport::simulated`].
    pub fn sends(&self, sender: End) -> Vec<Range<u64>> {
        self.wire.sends(sender)
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
mod tests;
