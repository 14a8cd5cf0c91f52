//! Listeners, and the bounded set of connections that have not proven themselves yet.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use towline_transport::{Connection, Listener, TransportError};
use towline_wire::control::{Message, RejectCode};

use super::origin::{Origin, heaviest};
use super::{MAX_UNPROVEN, SILENT_GRACE, Shared, UNPROVEN_GRACE, control, lock};

/// How long to wait when accepting fails: out of descriptors, most likely.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// Body of a listener's thread.
pub(super) fn accept_loop(listener: &dyn Listener, shared: &Arc<Shared>) {
    let scheme = listener.local_address().scheme().to_owned();
    accept_each(listener, "connection", |connection| {
        let unproven = shared.unproven.add(&connection);
        let (shared, scheme) = (Arc::clone(shared), scheme.clone());
        Some(move || control::serve(connection, unproven, &scheme, &shared))
    });
}

/// Runs what `serve` gives for each connection on a short-lived thread of its own, until the listener is closed.
pub(super) fn accept_each<F: FnOnce() + Send + 'static>(
    listener: &dyn Listener,
    name: &str,
    serve: impl Fn(Arc<dyn Connection>) -> Option<F>,
) {
    loop {
        let connection = match listener.accept() {
            Ok(connection) => connection,
            Err(TransportError::ListenerClosed { .. }) => return,
            Err(error) => {
                log::warn!("{error}");
                std::thread::sleep(RETRY_PAUSE);
                continue;
            }
        };
        let Some(serve) = serve(connection) else {
            continue;
        };
        if let Err(error) = super::spawn(name, serve) {
            log::warn!("{error}: {}", error.source);
        }
    }
}

/// Connections that have not proven themselves, oldest first.
#[derive(Clone, Default)]
pub(super) struct Unproven {
    set: Arc<UnprovenSet>,
}

#[derive(Default)]
struct UnprovenSet {
    state: Mutex<UnprovenState>,
    left: Condvar,
}

#[derive(Default)]
struct UnprovenState {
    closed: bool,
    connections: VecDeque<Entry>,
}

struct Entry {
    since: Instant,
    origin: Origin,
    /// Whether it has said something.
    spoke: bool,
    connection: Arc<dyn Connection>,
}

impl Entry {
    /// How long it is safe yet.
    fn safe_for(&self) -> Duration {
        let grace = if self.spoke {
            UNPROVEN_GRACE
        } else {
            SILENT_GRACE
        };
        grace.saturating_sub(self.since.elapsed())
    }
}

impl UnprovenState {
    /// Which connection of the address that has most makes place first, and in how long: silent ones are given less time.
    fn first_to_go(&self) -> Option<(usize, Duration)> {
        let heaviest = heaviest(self.connections.iter().map(|entry| &entry.origin))?;
        let own = self.connections.iter().enumerate();
        own.filter(|(_, entry)| entry.origin == heaviest)
            .map(|(index, entry)| (index, entry.safe_for()))
            .min_by_key(|(_, left)| *left)
    }
}

/// Membership in [`Unproven`]; dropping it ends it.
pub(super) struct UnprovenGuard {
    set: Arc<UnprovenSet>,
    connection: Arc<dyn Connection>,
}

impl Unproven {
    /// Adds a connection. When there are too many, waits until one leaves, or one has had its time: then that is closed.
    fn add(&self, connection: &Arc<dyn Connection>) -> UnprovenGuard {
        let origin = Origin::of(&connection.peer());
        let mut state = lock(&self.set.state);
        while !state.closed && state.connections.len() >= MAX_UNPROVEN {
            let Some((index, left)) = state.first_to_go() else {
                break;
            };
            if !left.is_zero() {
                state = self
                    .set
                    .left
                    .wait_timeout(state, left)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0;
            } else if let Some(entry) = state.connections.remove(index) {
                log::debug!(
                    "too many connections in progress: {} makes place",
                    entry.connection.peer()
                );
                turn_away(&*entry.connection, RejectCode::Busy);
            }
        }
        match state.closed {
            true => turn_away(&**connection, RejectCode::ShuttingDown),
            false => state.connections.push_back(Entry {
                since: Instant::now(),
                origin,
                spoke: false,
                connection: Arc::clone(connection),
            }),
        }
        UnprovenGuard {
            set: Arc::clone(&self.set),
            connection: Arc::clone(connection),
        }
    }

    /// Closes all, and every later one.
    pub(super) fn close_all(&self) {
        let mut state = lock(&self.set.state);
        state.closed = true;
        for entry in state.connections.drain(..) {
            turn_away(&*entry.connection, RejectCode::ShuttingDown);
        }
        drop(state);
        self.set.left.notify_all();
    }
}

impl UnprovenGuard {
    /// The connection has said something that makes sense so far.
    pub(super) fn spoke(&self) {
        let mut state = lock(&self.set.state);
        let own = |entry: &&mut Entry| Arc::ptr_eq(&entry.connection, &self.connection);
        if let Some(entry) = state.connections.iter_mut().find(own) {
            entry.spoke = true;
        }
    }

    /// The connection is encrypted from now on: what is to be said to it goes through `secure`.
    pub(super) fn secure(&mut self, secure: Arc<dyn Connection>) {
        let mut state = lock(&self.set.state);
        let clear = std::mem::replace(&mut self.connection, secure);
        let own = |entry: &&mut Entry| Arc::ptr_eq(&entry.connection, &clear);
        match state.connections.iter_mut().find(own) {
            Some(entry) => entry.connection = Arc::clone(&self.connection),
            // It has made place, and is shut down.
            None => self.connection.shutdown(),
        }
    }
}

impl Drop for UnprovenGuard {
    fn drop(&mut self) {
        lock(&self.set.state)
            .connections
            .retain(|entry| !Arc::ptr_eq(&entry.connection, &self.connection));
        self.set.left.notify_all();
    }
}

/// Says why, if that needs no waiting, and closes.
fn turn_away(connection: &dyn Connection, code: RejectCode) {
    let _ = connection.try_send(&Message::Reject(code.plain()).encode());
    connection.shutdown();
}
