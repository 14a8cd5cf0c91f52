//! Closes connections whose peers are too slow: everything that waits for a client waits in a blocking call, which this
//! wakes by shutting the connection down. And tells clients that wait for a worker that the server is alive. One thread for all of them,
//! asleep while there are none.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use towline_sys::SysError;
use towline_transport::Connection;

use super::{lock, spawn};

/// All deadlines.
pub(super) struct Deadlines {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    next: u64,
    stopping: bool,
    /// By when they are due, and their numbers.
    entries: BTreeMap<(Instant, u64), Entry>,
    /// When each is due.
    due: HashMap<u64, Instant>,
}

struct Entry {
    connection: Arc<dyn Connection>,
    /// Sent if it can be sent without waiting.
    message: Vec<u8>,
    /// It is sent again after each such time; without, the connection is closed.
    every: Option<Duration>,
}

/// One deadline; dropping it lifts it.
pub(super) struct Deadline {
    deadlines: Arc<Deadlines>,
    number: u64,
}

impl Deadlines {
    pub(super) fn start() -> Result<Arc<Self>, SysError> {
        let deadlines = Arc::new(Self {
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let watched = Arc::clone(&deadlines);
        spawn("deadlines", move || watched.watch())?;
        Ok(deadlines)
    }

    /// Shuts `connection` down after `limit`, unless the result is dropped before.
    pub(super) fn set(
        self: &Arc<Self>,
        connection: &Arc<dyn Connection>,
        limit: Duration,
        farewell: Vec<u8>,
    ) -> Deadline {
        self.add(connection, limit, farewell, None)
    }

    /// Sends `message` on `connection` after each `period` until the result is dropped. Nobody else sends there meanwhile.
    pub(super) fn repeat(
        self: &Arc<Self>,
        connection: &Arc<dyn Connection>,
        period: Duration,
        message: Vec<u8>,
    ) -> Deadline {
        self.add(connection, period, message, Some(period))
    }

    fn add(
        self: &Arc<Self>,
        connection: &Arc<dyn Connection>,
        limit: Duration,
        message: Vec<u8>,
        every: Option<Duration>,
    ) -> Deadline {
        let mut state = lock(&self.state);
        let (at, number) = (Instant::now() + limit, state.next);
        state.next += 1;
        let entry = Entry {
            connection: Arc::clone(connection),
            message,
            every,
        };
        state.entries.insert((at, number), entry);
        state.due.insert(number, at);
        let first = state.entries.first_key_value();
        let is_first = first.is_some_and(|((_, first), _)| *first == number);
        drop(state);
        if is_first {
            self.changed.notify_one();
        }
        Deadline {
            deadlines: Arc::clone(self),
            number,
        }
    }

    pub(super) fn stop(&self) {
        lock(&self.state).stopping = true;
        self.changed.notify_one();
    }

    fn watch(&self) {
        let mut state = lock(&self.state);
        while !state.stopping {
            let now = Instant::now();
            while let Some(first) = state.entries.first_entry()
                && first.key().0 <= now
            {
                let (_, number) = *first.key();
                let entry = first.remove();
                // A connection that is being closed need not hear why.
                let sent = entry.connection.try_send(&entry.message);
                match entry.every {
                    // A client that has no room for a few bytes does not read.
                    Some(period) if sent.is_ok_and(|count| count == entry.message.len()) => {
                        state.due.insert(number, now + period);
                        state.entries.insert((now + period, number), entry);
                    }
                    _ => {
                        state.due.remove(&number);
                        entry.connection.shutdown();
                    }
                }
            }
            let next = state.entries.first_key_value().map(|((at, _), _)| *at);
            state = match next {
                None => self
                    .changed
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner),
                Some(at) => {
                    let left = at.saturating_duration_since(now);
                    self.changed
                        .wait_timeout(state, left)
                        .unwrap_or_else(PoisonError::into_inner)
                        .0
                }
            };
        }
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        let mut state = lock(&self.deadlines.state);
        if let Some(at) = state.due.remove(&self.number) {
            state.entries.remove(&(at, self.number));
        }
    }
}
