//! One connection: two pipes, and what both ends see of them.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use rustix::fd::BorrowedFd;

use super::fault::{Fault, FaultKind, plan};
use super::{End, Link, Network, Traffic, lock, wait};
use crate::{Connection, TransportError};

/// The granularity of arrival on a link of limited bandwidth: large enough to be cheap, small enough that a large
/// send streams.
const SEGMENT_BYTES: usize = 16 << 10;

/// Both directions of one connection. One lock for both keeps the count of turns exact.
pub(super) struct Wire {
    link: Link,
    /// Its clock, and the other connections; the network holds this wire, not the other way round.
    network: Weak<Network>,
    state: Mutex<WireState>,
    /// By direction, named by its sender: something changed for who reads it, or writes it.
    readable: [Condvar; 2],
    writable: [Condvar; 2],
}

#[derive(Default)]
pub(super) struct WireState {
    /// By sender.
    pub(super) pipes: [Pipe; 2],
    pub(super) traffic: Traffic,
    last_sender: Option<End>,
    cut: bool,
    struck: bool,
}

#[derive(Default)]
pub(super) struct Pipe {
    pub(super) bytes: VecDeque<u8>,
    /// How many of `bytes`, in order, arrive when. Empty on a link without delay.
    arrivals: VecDeque<(usize, Instant)>,
    /// When the last byte sent has left, at the link's bandwidth.
    line_free_at: Option<Instant>,
    /// The sender sends no more.
    ended: bool,
    /// The receiver reads no more.
    abandoned: bool,
    /// A fault ended this direction: the receiver finds the end, and what is sent vanishes.
    severed: bool,
    /// How many bytes still arrive, while it stalls.
    stalled: Option<usize>,
    /// Bytes sent since the plan was armed, the vanished included.
    sent: u64,
    faults: VecDeque<Fault>,
    /// What each part of each send covered, where the network records.
    records: Option<Vec<Range<u64>>>,
}

/// The outcome of a look at a receiver's end.
enum Arrival {
    Bytes(usize),
    End,
    Nothing { until: Option<Instant> },
}

impl Wire {
    pub(super) fn new(network: &Arc<Network>) -> Self {
        let pipe = || Pipe {
            records: network.records.then(Vec::new),
            ..Pipe::default()
        };
        let state = WireState {
            pipes: [pipe(), pipe()],
            ..WireState::default()
        };
        Self {
            link: network.link,
            network: Arc::downgrade(network),
            state: Mutex::new(state),
            readable: Default::default(),
            writable: Default::default(),
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, WireState> {
        lock(&self.state)
    }

    /// Wakes all blocked calls of both ends.
    pub(super) fn changed_all(&self) {
        self.readable
            .iter()
            .chain(&self.writable)
            .for_each(Condvar::notify_all);
    }

    /// Has the connection, of this number on its network, fail as planned from here on.
    pub(super) fn arm(&self, number: usize, faults: &[Fault]) {
        let mut state = self.state();
        for sender in [End::Client, End::Server] {
            let pipe = &mut state.pipes[sender as usize];
            pipe.sent = 0;
            pipe.faults = plan(faults, number, sender);
            pipe.records.iter_mut().for_each(Vec::clear);
        }
    }

    pub(super) fn traffic(&self) -> Traffic {
        self.state().traffic
    }

    pub(super) fn struck(&self) -> bool {
        self.state().struck
    }

    pub(super) fn sends(&self, sender: End) -> Vec<Range<u64>> {
        let state = self.state();
        state.pipes[sender as usize]
            .records
            .clone()
            .unwrap_or_default()
    }

    pub(super) fn cut(&self) {
        self.apply(&mut self.state(), End::Client, FaultKind::Cut);
    }

    pub(super) fn resume(&self) {
        for pipe in &mut self.state().pipes {
            pipe.stalled = None;
        }
        self.changed_all();
    }

    /// Has a direction fail; a loss concerns both.
    pub(super) fn apply(&self, state: &mut WireState, sender: End, kind: FaultKind) {
        match kind {
            FaultKind::Cut => {
                state.cut = true;
                for pipe in &mut state.pipes {
                    pipe.bytes.clear();
                    pipe.arrivals.clear();
                    pipe.stalled = None;
                }
            }
            FaultKind::Reset => state.cut = true,
            FaultKind::HalfClose => state.pipes[sender as usize].severed = true,
            FaultKind::Stall => {
                let pipe = &mut state.pipes[sender as usize];
                pipe.stalled.get_or_insert(pipe.bytes.len());
            }
        }
        self.changed_all();
    }

    fn now(&self) -> Instant {
        self.network
            .upgrade()
            .map_or_else(Instant::now, |network| network.clock.now())
    }

    /// Moves the network's clock on, where it can.
    fn skip_to(&self, instant: Instant) -> bool {
        self.network
            .upgrade()
            .is_some_and(|network| network.clock.skip_to(instant))
    }

    /// Lets the fault strike that is due at the next byte of this direction, if there is one. The state is given up meanwhile.
    fn strike<'a>(
        &'a self,
        mut state: MutexGuard<'a, WireState>,
        sender: End,
    ) -> MutexGuard<'a, WireState> {
        let pipe = &mut state.pipes[sender as usize];
        let is_due = |fault: &Fault| fault.at_bytes <= pipe.sent;
        if !pipe.faults.front().is_some_and(is_due) {
            return state;
        }
        let Some(fault) = pipe.faults.pop_front() else {
            return state;
        };
        state.struck = true;
        self.apply(&mut state, sender, fault.kind);
        let Some(network) = self.network.upgrade() else {
            return state;
        };
        // The other connections have locks of the same kind: never two at once.
        drop(state);
        network.struck(fault);
        self.state()
    }

    /// Puts what fits of `bytes` on the line and says how much that was.
    fn put(&self, state: &mut WireState, sender: End, bytes: &[u8]) -> usize {
        if state.cut {
            return 0;
        }
        let sent_before =
            state.traffic.client_to_server_bytes + state.traffic.server_to_client_bytes;
        let limit = |end: Option<u64>, at: u64| {
            end.map_or(usize::MAX, |end| {
                usize::try_from(end.saturating_sub(at)).unwrap_or(usize::MAX)
            })
        };
        let allowed = limit(self.link.cut_after_bytes, sent_before);
        let pipe = &mut state.pipes[sender as usize];
        let whole = limit(pipe.faults.front().map(|fault| fault.at_bytes), pipe.sent);
        let room = match pipe.severed {
            true => usize::MAX,
            false => self.link.buffer_bytes.saturating_sub(pipe.bytes.len()),
        };
        let taken = bytes.len().min(room).min(allowed).min(whole);
        if taken > 0 {
            if !pipe.severed {
                pipe.put(&self.link, || self.now(), &bytes[..taken]);
            }
            pipe.sent += taken as u64;
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
            self.apply(state, sender, FaultKind::Reset);
        }
        taken
    }

    /// Notes what one part of a send, which began at `start`, has covered so far.
    fn record(&self, state: &mut WireState, sender: End, start: u64) {
        let pipe = &mut state.pipes[sender as usize];
        let sent = start..pipe.sent;
        if let Some(records) = pipe.records.as_mut().filter(|_| !sent.is_empty()) {
            records.push(sent);
        }
    }
}

impl Pipe {
    fn put(&mut self, link: &Link, now: impl Fn() -> Instant, bytes: &[u8]) {
        self.bytes.extend(bytes);
        if link.latency.is_zero() && link.bandwidth_bytes_per_s.is_none() {
            return;
        }
        let now = now();
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

    fn arrived(&self, now: impl Fn() -> Instant) -> Arrival {
        let deliverable = self.stalled.unwrap_or(self.bytes.len());
        if deliverable == 0 {
            // An end stalls as bytes do.
            let ends = self.stalled.is_none() && (self.ended || self.severed);
            return match ends {
                true => Arrival::End,
                false => Arrival::Nothing { until: None },
            };
        }
        let Some(&(_, first)) = self.arrivals.front() else {
            return Arrival::Bytes(deliverable);
        };
        let now = now();
        if first > now {
            return Arrival::Nothing { until: Some(first) };
        }
        let arrived = self.arrivals.iter().take_while(|(_, at)| *at <= now);
        let arrived: usize = arrived.map(|(bytes, _)| bytes).sum();
        Arrival::Bytes(arrived.min(deliverable))
    }

    fn take(&mut self, arrived: usize, buffer: &mut [u8]) -> usize {
        let taken = arrived.min(buffer.len());
        let (front, back) = self.bytes.as_slices();
        let from_front = taken.min(front.len());
        buffer[..from_front].copy_from_slice(&front[..from_front]);
        buffer[from_front..taken].copy_from_slice(&back[..taken - from_front]);
        self.bytes.drain(..taken);
        if let Some(left) = &mut self.stalled {
            *left -= taken;
        }
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

pub(super) struct MemoryConnection {
    pub(super) wire: Arc<Wire>,
    pub(super) end: End,
    pub(super) peer: String,
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
        match pipe.arrived(|| self.wire.now()) {
            // Bytes that were in flight when the link was reset still arrive.
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
            let now = self.wire.now();
            if deadline.is_some_and(|deadline| deadline <= now) {
                return Ok((state, arrival));
            }
            let next = until.into_iter().chain(deadline).min();
            if until.is_some() && next.is_some_and(|next| self.wire.skip_to(next)) {
                continue;
            }
            state = match next {
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
            let start = state.pipes[self.end as usize].sent;
            while !rest.is_empty() {
                state = self.wire.strike(state, self.end);
                self.check_sendable(&state)?;
                let sent = self.wire.put(&mut state, self.end, rest);
                rest = &rest[sent..];
                if sent == 0 && !state.cut {
                    state = wait(&self.wire.writable[self.end as usize], state);
                }
            }
            self.wire.record(&mut state, self.end, start);
        }
        Ok(())
    }

    fn try_send(&self, bytes: &[u8]) -> Result<usize, TransportError> {
        let mut state = self.wire.state();
        if !bytes.is_empty() {
            state = self.wire.strike(state, self.end);
        }
        self.check_sendable(&state)?;
        let start = state.pipes[self.end as usize].sent;
        let sent = self.wire.put(&mut state, self.end, bytes);
        self.wire.record(&mut state, self.end, start);
        Ok(sent)
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
        let deadline = timeout.and_then(|timeout| self.wire.now().checked_add(timeout));
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
