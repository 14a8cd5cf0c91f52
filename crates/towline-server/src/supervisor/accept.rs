//! Listeners, and the bounded set of connections that have not proven themselves yet.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use towline_transport::{Connection, Listener, TransportError};
use towline_wire::control::{Message, RejectCode};

use super::{MAX_UNPROVEN, Shared, control, lock};

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
    connections: Arc<Mutex<VecDeque<Arc<dyn Connection>>>>,
}

/// Membership in [`Unproven`]; dropping it ends it.
pub(super) struct UnprovenGuard {
    set: Unproven,
    connection: Arc<dyn Connection>,
}

impl Unproven {
    /// Adds a connection; closes the oldest when there are too many.
    fn add(&self, connection: &Arc<dyn Connection>) -> UnprovenGuard {
        let mut connections = lock(&self.connections);
        connections.push_back(Arc::clone(connection));
        let oldest = (connections.len() > MAX_UNPROVEN)
            .then(|| connections.pop_front())
            .flatten();
        drop(connections);
        if let Some(oldest) = oldest {
            log::debug!(
                "too many connections in progress: {} makes place",
                oldest.peer()
            );
            turn_away(&*oldest, RejectCode::Busy);
        }
        UnprovenGuard {
            set: self.clone(),
            connection: Arc::clone(connection),
        }
    }

    pub(super) fn close_all(&self) {
        for connection in lock(&self.connections).drain(..) {
            turn_away(&*connection, RejectCode::ShuttingDown);
        }
    }
}

impl Drop for UnprovenGuard {
    fn drop(&mut self) {
        lock(&self.set.connections).retain(|other| !Arc::ptr_eq(other, &self.connection));
    }
}

/// Says why, if that needs no waiting, and closes.
fn turn_away(connection: &dyn Connection, code: RejectCode) {
    let _ = connection.try_send(&Message::Reject(code.plain()).encode());
    connection.shutdown();
}
