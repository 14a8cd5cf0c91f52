//! TCP sockets: the part that only Linux has.

use std::sync::Arc;
use std::time::Duration;

use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, Shutdown, SocketFlags, SocketType, sockopt};

/// A broken connection is an error, not a signal.
pub(super) const SEND: SendFlags = SendFlags::NOSIGNAL;

pub(super) fn open(family: AddressFamily, kind: SocketType) -> Result<OwnedFd, Errno> {
    rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)
}

/// Waits for a connection.
pub(crate) fn accept(listener: &OwnedFd) -> Result<OwnedFd, Errno> {
    rustix::net::accept_with(listener, SocketFlags::CLOEXEC)
}

/// Bounds how long sent bytes may stay unacknowledged.
pub(crate) fn limit_unacknowledged(socket: &OwnedFd, limit: Option<Duration>) -> Result<(), Errno> {
    let timeout_ms = limit.map_or(0, |limit| {
        u32::try_from(limit.as_millis()).unwrap_or(u32::MAX)
    });
    sockopt::set_tcp_user_timeout(socket, timeout_ms)
}

/// Ends the listening state and wakes [`accept`].
pub(crate) fn stop_listening(listener: Arc<OwnedFd>) {
    // It fails only where that is already so.
    let _ = rustix::net::shutdown(&listener, Shutdown::Both);
}
