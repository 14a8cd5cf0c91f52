//! Counts of what a session did: requests, waits by API call, bytes. Tests assert them; `--report` prints them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::timeline;

/// The waits of one API call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Waits {
    /// How many.
    pub count: u64,
    /// How long, together.
    pub time: Duration,
}

/// The meter of a session.
#[derive(Debug, Default)]
pub struct Meter {
    waits: Mutex<BTreeMap<&'static str, Waits>>,
    requests: AtomicU64,
    sent_bytes: AtomicU64,
    received_bytes: AtomicU64,
    peer_bytes: AtomicU64,
}

impl Meter {
    /// A network wait by `call`.
    pub(crate) fn waited(&self, call: &'static str, time: Duration) {
        let mut waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = waits.entry(call).or_default();
        entry.count += 1;
        entry.time += time;
        drop(waits);
        timeline::waited(time);
    }

    pub(crate) fn requested(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn sent(&self, bytes: usize) {
        self.sent_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        timeline::moved(bytes, 0);
    }

    pub(crate) fn received(&self, bytes: usize) {
        self.received_bytes
            .fetch_add(bytes as u64, Ordering::Relaxed);
        timeline::moved(0, bytes);
    }

    /// Adds what another session's meter has counted, for a session that goes on in this one.
    pub(crate) fn add(&self, other: &Self) {
        let theirs = other.waits();
        let mut waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        for (call, more) in theirs {
            let entry = waits.entry(call).or_default();
            entry.count += more.count;
            entry.time += more.time;
        }
        self.requests.fetch_add(other.requests(), Ordering::Relaxed);
        let (sent, received) = other.bytes();
        self.sent_bytes.fetch_add(sent, Ordering::Relaxed);
        self.received_bytes.fetch_add(received, Ordering::Relaxed);
        self.peer_bytes
            .fetch_add(other.peer_bytes(), Ordering::Relaxed);
    }

    pub(crate) fn sent_to_peer(&self, bytes: usize) {
        self.peer_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Bytes that the server has sent to other servers directly.
    pub fn peer_bytes(&self) -> u64 {
        self.peer_bytes.load(Ordering::Relaxed)
    }

    /// Waits by API call.
    pub fn waits(&self) -> BTreeMap<&'static str, Waits> {
        self.waits
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// All waits: the round trips of the session.
    pub fn round_trips(&self) -> u64 {
        self.waits().values().map(|waits| waits.count).sum()
    }

    /// Requests posted.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Bytes sent and received, payload included.
    pub fn bytes(&self) -> (u64, u64) {
        (
            self.sent_bytes.load(Ordering::Relaxed),
            self.received_bytes.load(Ordering::Relaxed),
        )
    }
}
