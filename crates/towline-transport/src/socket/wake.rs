//! The end of a listener where the system does not wake the threads that wait for connections.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fd::OwnedFd;

/// Time for a connection to this host.
const LIMIT: Duration = Duration::from_secs(1);
/// Time for the threads to leave.
const PATIENCE: Duration = Duration::from_secs(5);

/// Wakes the threads that wait for a connection, with connections of its own, until nobody else uses the listener; then it is gone.
pub(crate) fn stop_listening(listener: Arc<OwnedFd>) {
    let Ok(Ok(mut local)) = rustix::net::getsockname(&listener).map(SocketAddr::try_from) else {
        return;
    };
    if local.ip().is_unspecified() {
        local.set_ip(match local {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    let began = Instant::now();
    while Arc::strong_count(&listener) > 1 && began.elapsed() < PATIENCE {
        if let Err(error) = TcpStream::connect_timeout(&local, LIMIT) {
            log::debug!("cannot wake the listener at {local}: {error}");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
