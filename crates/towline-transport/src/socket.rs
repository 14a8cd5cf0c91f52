//! A connected stream socket as a [`Connection`]: what tcp, vsock and virtio-serial are, and shm where it needs no memory.
//!
//! One send is one system call and no allocation.

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown};

use crate::{Connection, TransportError};

/// Slices that one `sendmsg` takes (UIO_MAXIOV of Linux).
pub(crate) const MAX_SLICES: usize = 1024;

/// A connected stream socket, and who is at its other end.
pub(crate) struct SocketConnection {
    pub(crate) socket: OwnedFd,
    pub(crate) peer: String,
}

impl SocketConnection {
    #[cold]
    fn failed(&self, errno: Errno) -> TransportError {
        let reason = match errno {
            // Over vsock, a socket whose peer has reset it is not connected any more.
            Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN | Errno::SHUTDOWN => {
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
                rustix::net::send(&self.socket, &first[gone..], SendFlags::NOSIGNAL)
            } else {
                let batch = &rest[..rest.len().min(MAX_SLICES)];
                rustix::net::sendmsg(
                    &self.socket,
                    batch,
                    &mut SendAncillaryBuffer::default(),
                    SendFlags::NOSIGNAL,
                )
            };
            match sent {
                Ok(sent) => gone += sent,
                Err(Errno::INTR) => {}
                // Another owner of the descriptor made it non-blocking.
                Err(Errno::AGAIN) => {
                    wait_for(&self.socket, PollFlags::OUT, None)
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
            match rustix::net::send(
                &self.socket,
                bytes,
                SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
            ) {
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
            // Another owner of the descriptor made it non-blocking.
            self.wait_readable(None)?;
        }
    }

    fn try_recv(&self, buffer: &mut [u8]) -> Result<Option<usize>, TransportError> {
        self.recv_with(buffer, RecvFlags::DONTWAIT)
    }

    fn wait_readable(&self, timeout: Option<Duration>) -> Result<bool, TransportError> {
        wait_for(&self.socket, PollFlags::IN, timeout).map_err(|errno| self.failed(errno))
    }

    fn shutdown(&self) {
        // Fails only where the connection is already gone, which is what was asked for.
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
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
    socket: &OwnedFd,
    events: PollFlags,
    timeout: Option<Duration>,
) -> Result<bool, Errno> {
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let left = left.map(|left| Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: left.subsec_nanos().into(),
        });
        match poll(&mut [PollFd::new(socket, events)], left.as_ref()) {
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
