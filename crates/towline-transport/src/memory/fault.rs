//! Faults of a simulated link, as data.

use std::collections::VecDeque;

/// An end of a connection. A direction is named by the end that sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// The end that connected.
    Client = 0,
    /// The end that accepted.
    Server = 1,
}

impl End {
    /// The opposite end.
    pub fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// How a link fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// Both directions are lost at once, with the bytes in flight.
    Cut,
    /// Both directions are lost, but the bytes in flight still arrive.
    Reset,
    /// This direction ends in order, as if its sender had closed it; the sender does not learn of it, and what it sends is dropped. The
    /// opposite direction lives.
    HalfClose,
    /// This direction delivers nothing more, while sends succeed until the buffer is full. [`LinkMonitor::resume`](super::LinkMonitor::resume)
    /// ends the stall; no byte is lost.
    Stall,
}

/// One fault of a plan: where it strikes, and what it does.
///
/// It strikes when the byte at `at_bytes` is about to be sent; the bytes before have been sent, and may have arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fault {
    /// The connection, counted from 0 in the order in which they were made.
    pub connection: usize,
    /// The direction.
    pub sender: End,
    /// Bytes of this direction before the fault, from the arming of the plan on.
    pub at_bytes: u64,
    /// Its effect.
    pub kind: FaultKind,
    /// It does the same to every other connection of the network.
    pub to_all: bool,
}

/// The faults of one direction of one connection, in order of their offsets.
pub(super) fn plan(faults: &[Fault], connection: usize, sender: End) -> VecDeque<Fault> {
    let ours = |fault: &&Fault| (fault.connection, fault.sender) == (connection, sender);
    let mut plan: Vec<Fault> = faults.iter().filter(ours).copied().collect();
    plan.sort_by_key(|fault| fault.at_bytes);
    plan.into()
}
