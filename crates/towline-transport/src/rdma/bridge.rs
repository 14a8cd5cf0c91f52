//! The way of a connection to another process: queue pairs cannot follow a descriptor, so threads of this one carry its bytes to a
//! socket, whose other end is handed over.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread;

use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType};

use super::connection::Stream;
use crate::Connection as _;
use crate::socket::SocketConnection;

/// Bytes carried at once.
const PIECE_BYTES: usize = 256 << 10;

/// The end to hand over. Without copies elsewhere the connection ends with it.
pub(super) struct Bridge {
    theirs: OwnedFd,
}

impl Bridge {
    pub(super) fn start(stream: &Arc<Stream>) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        let ours = Arc::new(SocketConnection {
            socket: ours,
            peer: stream.peer().to_owned(),
        });
        let (to, from) = (Arc::clone(stream), Arc::clone(&ours));
        spawn("rdma-out", move || carry_out(&from, &to))?;
        let (from, to) = (Arc::clone(stream), Arc::clone(&ours));
        // The first thread ends with its socket.
        spawn("rdma-in", move || carry_in(&from, &to)).inspect_err(|_| ours.shutdown())?;
        Ok(Self { theirs })
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.theirs.as_fd()
    }
}

/// Carries the other process's bytes, until it closes its end.
fn carry_out(from: &SocketConnection, to: &Stream) {
    let mut bytes = vec![0; PIECE_BYTES];
    while let Ok(len @ 1..) = from.recv(&mut bytes) {
        if to.send(&[IoSlice::new(&bytes[..len])]).is_err() {
            break;
        }
    }
    to.shutdown();
}

/// Carries the peer's bytes, until its end.
fn carry_in(from: &Stream, to: &SocketConnection) {
    let mut bytes = vec![0; PIECE_BYTES];
    while let Ok(len @ 1..) = from.recv(&mut bytes) {
        if to.send(&[IoSlice::new(&bytes[..len])]).is_err() {
            break;
        }
    }
    // The other thread reads the end too, unless bytes of the other process are on their way.
    let _ = rustix::net::shutdown(&to.socket, Shutdown::Both);
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new()
        .name(name.into())
        .spawn(work)
        .map(drop)
}
