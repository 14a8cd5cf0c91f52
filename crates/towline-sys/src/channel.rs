//! A message socket between two processes of one host: a `SOCK_SEQPACKET` pair, which keeps message boundaries, says
//! when the other end is gone, and carries descriptors.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, SocketFlags, SocketType,
};

use crate::{Context, SysError};

/// Longest message. Well below the kernel's default socket buffer, so that a send to an idle peer never fails.
pub const MESSAGE_BYTES: usize = 32 * 1024;

/// One end of the socket.
#[derive(Debug)]
pub struct Channel {
    socket: OwnedFd,
}

/// A message, and the descriptor that came with it.
#[derive(Debug)]
pub struct Received {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The descriptor.
    pub descriptor: Option<OwnedFd>,
}

impl Channel {
    /// Two connected ends, both closed on exec.
    pub fn pair() -> Result<(Self, Self), SysError> {
        let (a, b) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .while_trying_to("make a socket pair")?;
        Ok((Self { socket: a }, Self { socket: b }))
    }

    /// The end that `socket` is.
    pub fn from_descriptor(socket: OwnedFd) -> Self {
        Self { socket }
    }

    /// Sends one message, with a descriptor if there is one. Blocks while the peer does not read.
    pub fn send(&self, bytes: &[u8], descriptor: Option<BorrowedFd<'_>>) -> Result<(), SysError> {
        self.send_with(bytes, descriptor, SendFlags::NOSIGNAL)
    }

    /// Like [`send`](Self::send), but fails at once where it would block: for peers that may not be reading.
    pub fn send_now(
        &self,
        bytes: &[u8],
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<(), SysError> {
        self.send_with(bytes, descriptor, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
    }

    /// The next message; `None` when the peer closed. A message above [`MESSAGE_BYTES`] is an error.
    pub fn recv(&self) -> Result<Option<Received>, SysError> {
        let mut bytes = vec![0; MESSAGE_BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let message = loop {
            let mut parts = [IoSliceMut::new(&mut bytes)];
            match rustix::net::recvmsg(
                &self.socket,
                &mut parts,
                &mut control,
                RecvFlags::CMSG_CLOEXEC,
            ) {
                // The peer died with unread messages of ours. That is told once, before what it sent itself, and its end.
                Err(Errno::INTR | Errno::CONNRESET) => {}
                other => break other.while_trying_to("receive a message")?,
            }
        };
        let descriptor = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        });
        if message.flags.contains(ReturnFlags::TRUNC) {
            return Err(SysError::new("receive a message", Errno::MSGSIZE));
        }
        if message.bytes == 0 {
            return Ok(None);
        }
        bytes.truncate(message.bytes);
        Ok(Some(Received { bytes, descriptor }))
    }

    /// Waits until [`recv`](Self::recv) would not block; `false` when `timeout` passed first.
    pub fn wait_readable(&self, timeout: Duration) -> Result<bool, SysError> {
        wait_readable(self.socket.as_fd(), timeout).while_trying_to("wait for a message")
    }

    /// Ends both directions: the peer and blocked calls of other threads see the end.
    pub fn shutdown(&self) {
        // It only fails when the socket is disconnected already.
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
    }

    /// The socket, to give to another process.
    pub fn into_descriptor(self) -> OwnedFd {
        self.socket
    }

    fn send_with(
        &self,
        bytes: &[u8],
        descriptor: Option<BorrowedFd<'_>>,
        flags: SendFlags,
    ) -> Result<(), SysError> {
        // An empty message could not be told from the end.
        assert!(
            (1..=MESSAGE_BYTES).contains(&bytes.len()),
            "a message has 1 to {MESSAGE_BYTES} bytes"
        );
        let descriptors = descriptor.as_slice();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            let fits = control.push(SendAncillaryMessage::ScmRights(descriptors));
            assert!(fits, "the space is for one descriptor");
        }
        loop {
            match rustix::net::sendmsg(&self.socket, &[IoSlice::new(bytes)], &mut control, flags) {
                Err(Errno::INTR) => {}
                other => return other.map(drop).while_trying_to("send a message"),
            }
        }
    }
}

/// Waits until `descriptor` is readable or closed; `false` when `timeout` passed first.
pub(crate) fn wait_readable(descriptor: BorrowedFd<'_>, timeout: Duration) -> Result<bool, Errno> {
    let deadline = std::time::Instant::now() + timeout;
    loop {
        let left = deadline.saturating_duration_since(std::time::Instant::now());
        let left = Timespec {
            tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        match poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&left)) {
            Err(Errno::INTR) => {}
            other => return other.map(|ready| ready > 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek, Write};

    use super::*;

    #[test]
    fn message_and_descriptor_arrive_together() {
        let (a, b) = Channel::pair().unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"payload").unwrap();
        a.send(b"first", None).unwrap();
        a.send(b"second", Some(file.as_fd())).unwrap();
        let first = b.recv().unwrap().unwrap();
        assert_eq!(
            (first.bytes.as_slice(), first.descriptor.is_some()),
            (&b"first"[..], false)
        );
        let second = b.recv().unwrap().unwrap();
        assert_eq!(second.bytes, b"second");
        let mut passed = std::fs::File::from(second.descriptor.unwrap());
        passed.rewind().unwrap();
        let mut text = String::new();
        passed.read_to_string(&mut text).unwrap();
        assert_eq!(text, "payload");
    }

    #[test]
    fn closed_peer_is_the_end() {
        let (a, b) = Channel::pair().unwrap();
        drop(a);
        assert!(b.recv().unwrap().is_none());
        assert!(b.send(b"x", None).is_err());
    }

    #[test]
    fn last_words_of_a_peer_that_did_not_listen_are_heard() {
        let (a, b) = Channel::pair().unwrap();
        a.send(b"last words", None).unwrap();
        b.send(b"unread", None).unwrap();
        drop(a);
        assert_eq!(b.recv().unwrap().unwrap().bytes, b"last words");
        assert!(b.recv().unwrap().is_none());
    }

    #[test]
    fn peer_that_does_not_read_does_not_block_send_now() {
        let (a, _b) = Channel::pair().unwrap();
        let message = vec![1; MESSAGE_BYTES];
        let error = (0..10_000)
            .find_map(|_| a.send_now(&message, None).err())
            .expect("the buffer fills");
        assert_eq!(error.source.kind(), std::io::ErrorKind::WouldBlock);
    }

    #[test]
    fn oversized_message_is_refused() {
        let (a, b) = Channel::pair().unwrap();
        let raw = a.into_descriptor();
        rustix::net::send(&raw, &[0; MESSAGE_BYTES + 1], SendFlags::empty()).unwrap();
        assert!(b.recv().is_err());
    }
}
