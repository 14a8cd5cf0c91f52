//! Who is at the other end of a socket, as the kernel says.

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::Errno;

/// A process of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Credentials {
    /// 0 where it cannot be seen from here: outside of this container.
    pub(super) process: i32,
    pub(super) user: u32,
}

impl Credentials {
    /// Of who connected, or of who listened.
    pub(super) fn of_peer(socket: &OwnedFd) -> Result<Self, Errno> {
        // Not rustix's, which takes the number of an invisible process, 0, for one that cannot be.
        let mut told = libc::ucred {
            pid: 0,
            uid: 0,
            gid: 0,
        };
        let mut len = size_of::<libc::ucred>() as libc::socklen_t;
        // SAFETY: the socket is open, and the two places are valid for the structure and its size, which this option fills.
        let failed = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut told).cast(),
                &raw mut len,
            )
        };
        match failed {
            0 => Ok(Self {
                process: told.pid,
                user: told.uid,
            }),
            _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
        }
    }
}
