//! TCP sockets of Linux and macOS.

use std::io::IoSlice;
use std::net::SocketAddr;
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, SocketType, sockopt,
};

#[cfg(target_os = "linux")]
use super::linux as system;
#[cfg(target_os = "macos")]
use super::macos as system;
use super::wait_for;
pub(super) use system::SEND;
pub(crate) use system::{accept, limit_unacknowledged, stop_listening};

/// A connected socket.
pub(crate) type Socket = OwnedFd;

/// A call waits unless told otherwise.
pub(crate) const NON_BLOCKING: bool = false;

/// Bytes that are there, without a wait.
pub(super) const RECV_NOW: RecvFlags = RecvFlags::DONTWAIT;

/// Bytes that fit, without a wait.
pub(super) const SEND_NOW: SendFlags = SEND.union(SendFlags::DONTWAIT);

/// Connections that wait to be accepted; a client opens several at once, and a cluster's job starts many clients.
const BACKLOG: i32 = 1024;

/// Whether the connection is over, as opposed to broken.
pub(super) fn is_end(errno: Errno) -> bool {
    matches!(
        errno,
        // Over vsock, a socket whose peer has reset it is not connected any more.
        Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN | Errno::SHUTDOWN
    )
}

/// Sends as many bytes of `parts` as the system takes at once.
pub(super) fn send_parts(socket: &Socket, parts: &[IoSlice<'_>]) -> Result<usize, Errno> {
    rustix::net::sendmsg(socket, parts, &mut SendAncillaryBuffer::default(), SEND)
}

pub(super) fn shut_down(socket: &Socket) {
    // Fails only where the connection is already gone, which is what was asked for.
    let _ = rustix::net::shutdown(socket, Shutdown::Both);
}

/// Waits for one of `events`; `false` when `timeout` passed first.
pub(super) fn wait(
    socket: &Socket,
    events: PollFlags,
    timeout: Option<Duration>,
) -> Result<bool, Errno> {
    wait_for(socket, events, timeout)
}

/// Sets the times of the probes of an idle connection.
pub(crate) fn probe_idle(
    socket: &OwnedFd,
    idle: Duration,
    interval: Duration,
    count: u32,
) -> Result<(), Errno> {
    sockopt::set_tcp_keepidle(socket, idle)?;
    sockopt::set_tcp_keepintvl(socket, interval)?;
    sockopt::set_tcp_keepcnt(socket, count)
}

/// Connects to `candidate`. The socket is non-blocking.
pub(crate) fn connect(
    candidate: &SocketAddr,
    timeout: Duration,
    buffer_bytes: Option<usize>,
) -> Result<OwnedFd, Errno> {
    let socket = open(candidate)?;
    // Before connecting: the window scale is settled in the handshake.
    if let Some(bytes) = buffer_bytes {
        sockopt::set_socket_send_buffer_size(&socket, bytes)?;
        sockopt::set_socket_recv_buffer_size(&socket, bytes)?;
    }
    rustix::io::ioctl_fionbio(&socket, true)?;
    match rustix::net::connect(&socket, candidate) {
        Ok(()) => {}
        Err(Errno::INPROGRESS | Errno::INTR) => {
            if !wait_for(&socket, PollFlags::OUT, Some(timeout))? {
                return Err(Errno::TIMEDOUT);
            }
            sockopt::socket_error(&socket)??;
        }
        Err(errno) => return Err(errno),
    }
    Ok(socket)
}

/// A socket that listens at `candidate`.
pub(crate) fn listen(candidate: &SocketAddr) -> Result<OwnedFd, Errno> {
    let socket = open(candidate)?;
    // Else a restarted server cannot have its port back while old connections are in TIME_WAIT.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    rustix::net::bind(&socket, candidate)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

fn open(candidate: &SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if candidate.is_ipv6() {
        AddressFamily::INET6
    } else {
        AddressFamily::INET
    };
    system::open(family, SocketType::STREAM)
}
