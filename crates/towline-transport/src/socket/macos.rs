//! TCP sockets: macOS in place of what only Linux has.

use std::time::Duration;

use rustix::fd::OwnedFd;
use rustix::io::{Errno, FdFlags};
use rustix::net::{AddressFamily, SendFlags, SocketType, sockopt};

pub(crate) use super::wake::stop_listening;

/// A broken connection is an error, not a signal: [`prepare`] says so.
pub(super) const SEND: SendFlags = SendFlags::empty();

pub(super) fn open(family: AddressFamily, kind: SocketType) -> Result<OwnedFd, Errno> {
    prepare(rustix::net::socket(family, kind, None)?)
}

/// Waits for a connection.
pub(crate) fn accept(listener: &OwnedFd) -> Result<OwnedFd, Errno> {
    prepare(rustix::net::accept(listener)?)
}

/// Sent bytes stay unacknowledged for as long as the system puts up with it: rustix knows no option for less.
pub(crate) fn limit_unacknowledged(
    _socket: &OwnedFd,
    _limit: Option<Duration>,
) -> Result<(), Errno> {
    Ok(())
}

/// Neither children nor signals: macOS has no flags for either.
fn prepare(socket: OwnedFd) -> Result<OwnedFd, Errno> {
    rustix::io::fcntl_setfd(&socket, FdFlags::CLOEXEC)?;
    sockopt::set_socket_nosigpipe(&socket, true)?;
    Ok(socket)
}
