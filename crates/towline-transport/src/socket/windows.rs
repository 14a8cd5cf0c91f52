//! TCP sockets of Windows.
//!
//! They never wait by themselves: there is no flag for a single call, and no signal that would wake a waiting one.

use std::io::{IoSlice, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::windows::io::{AsSocket, BorrowedSocket, OwnedSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, sockopt};

use super::wait_for;
pub(crate) use super::wake::stop_listening;

/// A connected socket: only the standard library's sends several slices at once.
pub(crate) struct Socket {
    stream: TcpStream,
    /// Another thread has shut it down.
    ended: AtomicBool,
}

/// A call never waits.
pub(crate) const NON_BLOCKING: bool = true;

pub(super) const RECV_NOW: RecvFlags = RecvFlags::empty();
pub(super) const SEND_NOW: SendFlags = SendFlags::empty();
pub(super) const SEND: SendFlags = SendFlags::empty();

/// Windows does not promise that a shutdown wakes a thread that polls.
const POLL_SLICE: Duration = Duration::from_millis(100);

impl From<OwnedSocket> for Socket {
    fn from(socket: OwnedSocket) -> Self {
        Self {
            stream: socket.into(),
            ended: AtomicBool::new(false),
        }
    }
}

impl AsSocket for Socket {
    fn as_socket(&self) -> BorrowedSocket<'_> {
        self.stream.as_socket()
    }
}

/// Whether the connection is over, as opposed to broken.
pub(super) fn is_end(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::CONNABORTED | Errno::CONNRESET | Errno::NOTCONN | Errno::SHUTDOWN
    )
}

/// Sends as many bytes of `parts` as the system takes at once.
pub(super) fn send_parts(socket: &Socket, parts: &[IoSlice<'_>]) -> Result<usize, Errno> {
    (&socket.stream).write_vectored(parts).map_err(errno_of)
}

pub(super) fn shut_down(socket: &Socket) {
    socket.ended.store(true, Ordering::Release);
    // Fails only where the connection is already gone, which is what was asked for.
    let _ = socket.stream.shutdown(Shutdown::Both);
}

/// Waits for one of `events` or the end; `false` when `timeout` passed first.
pub(super) fn wait(
    socket: &Socket,
    events: PollFlags,
    timeout: Option<Duration>,
) -> Result<bool, Errno> {
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let slice = left.map_or(POLL_SLICE, |left| left.min(POLL_SLICE));
        if wait_for(socket, events, Some(slice))? || socket.ended.load(Ordering::Acquire) {
            return Ok(true);
        }
        if left.is_some_and(|left| left == slice) {
            return Ok(false);
        }
    }
}

/// Sets the times of the probes of an idle connection, where the system has such options: Windows 10 1709 and later.
pub(crate) fn probe_idle(
    socket: &OwnedSocket,
    idle: Duration,
    interval: Duration,
    count: u32,
) -> Result<(), Errno> {
    let set = sockopt::set_tcp_keepidle(socket, idle)
        .and_then(|()| sockopt::set_tcp_keepintvl(socket, interval))
        .and_then(|()| sockopt::set_tcp_keepcnt(socket, count));
    match set {
        Err(Errno::NOPROTOOPT) => Ok(()),
        set => set,
    }
}

/// Connects to `candidate`.
pub(crate) fn connect(
    candidate: &SocketAddr,
    timeout: Duration,
    buffer_bytes: Option<usize>,
) -> Result<OwnedSocket, Errno> {
    // The standard library also asks for failures, which older systems do not tell those who poll. It takes no time of zero.
    let stream = TcpStream::connect_timeout(candidate, timeout.max(Duration::from_millis(1)))
        .map_err(errno_of)?;
    if let Some(bytes) = buffer_bytes {
        sockopt::set_socket_send_buffer_size(&stream, bytes)?;
        sockopt::set_socket_recv_buffer_size(&stream, bytes)?;
    }
    Ok(stream.into())
}

/// A socket that listens at `candidate`. There is no SO_REUSEADDR: here it would let others take the port.
pub(crate) fn listen(candidate: &SocketAddr) -> Result<OwnedSocket, Errno> {
    Ok(TcpListener::bind(candidate).map_err(errno_of)?.into())
}

/// Waits for a connection.
pub(crate) fn accept(listener: &OwnedSocket) -> Result<OwnedSocket, Errno> {
    let socket = rustix::net::accept(listener)?;
    rustix::io::ioctl_fionbio(&socket, NON_BLOCKING)?;
    Ok(socket)
}

/// Sent bytes stay unacknowledged for as long as the system puts up with it: rustix knows no option for less.
pub(crate) fn limit_unacknowledged(
    _socket: &OwnedSocket,
    _limit: Option<Duration>,
) -> Result<(), Errno> {
    Ok(())
}

fn errno_of(error: std::io::Error) -> Errno {
    match Errno::from_io_error(&error) {
        Some(errno) => errno,
        None if error.kind() == std::io::ErrorKind::TimedOut => Errno::TIMEDOUT,
        None => Errno::INVAL,
    }
}
