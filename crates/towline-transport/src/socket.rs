//! A connected stream socket as a [`Connection`]: what tcp, vsock and virtio-serial are, and shm where it needs no memory.
//!
//! One send is one system call and no allocation.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "macos")]
mod macos;
#[cfg(unix)]
pub(crate) mod unix;
#[cfg(not(target_os = "linux"))]
mod wake;
#[cfg(windows)]
pub(crate) mod windows;

use std::io::IoSlice;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use rustix::net::RecvFlags;

use crate::{Connection, TransportError};

#[cfg(unix)]
pub(crate) use unix as system;
#[cfg(windows)]
pub(crate) use windows as system;

/// Slices that one `sendmsg` takes (UIO_MAXIOV of Linux).
pub(crate) const MAX_SLICES: usize = 1024;

/// A connected stream socket, and who is at its other end.
pub(crate) struct SocketConnection {
    pub(crate) socket: system::Socket,
    pub(crate) peer: String,
}

impl SocketConnection {
    pub(crate) fn new(socket: impl Into<system::Socket>, peer: String) -> Self {
        let socket = socket.into();
        Self { socket, peer }
    }

    #[cold]
    fn failed(&self, errno: Errno) -> TransportError {
        let reason = match errno {
            errno if system::is_end(errno) => {
                return TransportError::Closed {
                    peer: self.peer.clone(),
                };
            }
            Errno::TIMEDOUT => "its host stopped answering".to_owned(),
            errno => errno.to_string(),
        };
        TransportError::Lost {
            peer: self.peer.clone(),
            reason,
        }
    }

    fn recv_with(
        &self,
        buffer: &mut [u8],
        flags: RecvFlags,
    ) -> Result<Option<usize>, TransportError> {
        // An empty read would wait for bytes that it then leaves where they are.
        if buffer.is_empty() {
            return Ok(Some(0));
        }
        loop {
            match rustix::net::recv(&self.socket, &mut *buffer, flags) {
                Ok((received, _)) => return Ok(Some(received)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(None),
                Err(errno) => return Err(self.failed(errno)),
            }
        }
    }
}

impl Connection for SocketConnection {
    fn send(&self, parts: &[IoSlice<'_>]) -> Result<(), TransportError> {
        let mut rest = parts;
        // Bytes of `rest[0]` that are gone already. The kernel takes all in one call unless a signal cuts it short,
        // so the slices need not be copied to be advanced.
        let mut gone = 0;
        while let Some(first) = rest.first() {
            if gone == first.len() {
                rest = &rest[1..];
                gone = 0;
                continue;
            }
            let sent = if gone > 0 {
                rustix::net::send(&self.socket, &first[gone..], system::SEND)
            } else {
                system::send_parts(&self.socket, &rest[..rest.len().min(MAX_SLICES)])
            };
            match sent {
                Ok(sent) => gone += sent,
                Err(Errno::INTR) => {}
                // Another owner of the descriptor made it non-blocking, or the system has no other.
                Err(Errno::AGAIN) => {
                    system::wait(&self.socket, PollFlags::OUT, None)
                        .map_err(|errno| self.failed(errno))?;
                }
                Err(errno) => return Err(self.failed(errno)),
            }
            while let Some(first) = rest.first().filter(|first| gone >= first.len()) {
                gone -= first.len();
                rest = &rest[1..];
            }
        }
        Ok(())
    }

    fn try_send(&self, bytes: &[u8]) -> Result<usize, TransportError> {
        loop {
            match rustix::net::send(&self.socket, bytes, system::SEND_NOW) {
                Ok(sent) => return Ok(sent),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(0),
                Err(errno) => return Err(self.failed(errno)),
            }
        }
    }

    fn recv(&self, buffer: &mut [u8]) -> Result<usize, TransportError> {
        loop {
            if let Some(received) = self.recv_with(buffer, RecvFlags::empty())? {
                return Ok(received);
            }
            // Another owner of the descriptor made it non-blocking, or the system has no other.
            self.wait_readable(None)?;
        }
    }

    fn try_recv(&self, buffer: &mut [u8]) -> Result<Option<usize>, TransportError> {
        self.recv_with(buffer, system::RECV_NOW)
    }

    fn wait_readable(&self, timeout: Option<Duration>) -> Result<bool, TransportError> {
        system::wait(&self.socket, PollFlags::IN, timeout).map_err(|errno| self.failed(errno))
    }

    fn shutdown(&self) {
        system::shut_down(&self.socket);
    }

    fn peer(&self) -> String {
        self.peer.clone()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }
}

/// Waits until one of `events`, an error or a hang-up is there; `false` when `timeout` passed first.
pub(crate) fn wait_for(
    socket: impl AsFd,
    events: PollFlags,
    timeout: Option<Duration>,
) -> Result<bool, Errno> {
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut [PollFd::new(&socket, events)], left.as_ref()) {
            Ok(ready) => return Ok(ready > 0),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// What the system refused, with what was tried.
pub(crate) fn io_error(action: String, errno: Errno) -> TransportError {
    TransportError::Io {
        action,
        source: errno.into(),
    }
}
