//! Listeners, and the bounded set of connections that have not proven themselves yet.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use towline_transport::{Connection, Listener, TransportError};
use towline_wire::control::{Message, RejectCode};

use super::{MAX_UNPROVEN, Shared, UNPROVEN_GRACE, control, lock};

/// How long to wait when accepting fails: out of descriptors, most likely.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// Body of a listener's thread: one short-lived thread per connection, until the listener is closed.
pub(super) fn accept_loop(listener: &dyn Listener, shared: &Arc<Shared>) {
    let scheme = listener.local_address().scheme().to_owned();
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
        let unproven = shared.unproven.add(&connection);
        let (shared, scheme) = (Arc::clone(shared), scheme.clone());
        let serve = move || control::serve(connection, unproven, &scheme, &shared);
        if let Err(error) = super::spawn("connection", serve) {
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
    connections: VecDeque<(Instant, Arc<dyn Connection>)>,
}

/// Membership in [`Unproven`]; dropping it ends it.
pub(super) struct UnprovenGuard {
    set: Arc<UnprovenSet>,
    connection: Arc<dyn Connection>,
}

impl Unproven {
    /// Adds a connection. When there are too many, waits until one leaves, or the oldest has had its time: then that is
    /// closed.
    fn add(&self, connection: &Arc<dyn Connection>) -> UnprovenGuard {
        let mut state = lock(&self.set.state);
        while !state.closed && state.connections.len() >= MAX_UNPROVEN {
            let age = state
                .connections
                .front()
                .map_or(UNPROVEN_GRACE, |(since, _)| since.elapsed());
            let left = UNPROVEN_GRACE.saturating_sub(age);
            if !left.is_zero() {
                state = self
                    .set
                    .left
                    .wait_timeout(state, left)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0;
            } else if let Some((_, oldest)) = state.connections.pop_front() {
                log::debug!(
                    "too many connections in progress: {} makes place",
                    oldest.peer()
                );
                turn_away(&*oldest, RejectCode::Busy);
            }
        }
        match state.closed {
            true => turn_away(&**connection, RejectCode::ShuttingDown),
            false => state
                .connections
                .push_back((Instant::now(), Arc::clone(connection))),
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
        for (_, connection) in state.connections.drain(..) {
            turn_away(&*connection, RejectCode::ShuttingDown);
        }
        drop(state);
        self.set.left.notify_all();
    }
}

impl Drop for UnprovenGuard {
    fn drop(&mut self) {
        lock(&self.set.state)
            .connections
            .retain(|(_, other)| !Arc::ptr_eq(other, &self.connection));
        self.set.left.notify_all();
    }
}

/// Says why, if that needs no waiting, and closes.
fn turn_away(connection: &dyn Connection, code: RejectCode) {
    let _ = connection.try_send(&Message::Reject(code.plain()).encode());
    connection.shutdown();
}
