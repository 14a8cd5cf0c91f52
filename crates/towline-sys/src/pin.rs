//! Connections that stay connections to one peer, whatever the process that holds them does.
//!
//! A process that may call `connect` can dissolve a TCP connection that it was given (`AF_UNSPEC`) and connect the socket anew: in the
//! network namespace where it was made, not in the process's own. A filter that cannot be taken off drops all that such a socket would
//! receive from elsewhere, so that it never gets an answer.

#![allow(unsafe_code)]

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use libc::{BPF_ABS, BPF_H, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, sock_filter};
use rustix::io::Errno;
use rustix::net::AddressFamily;

use crate::{Context, SysError};

/// Offsets of the source in an IP header, and of the source port in a TCP header.
const IPV4_SOURCE: u32 = 12;
const IPV6_SOURCE: u32 = 8;
const SOURCE_PORT: u32 = 0;

/// Has a TCP connection receive from its present peer only, for good. Connections that cannot be dissolved, as local ones, are left alone.
pub fn pin_to_peer(socket: BorrowedFd<'_>) -> Result<(), SysError> {
    let action = "keep a connection with its peer";
    let family = match rustix::net::getsockname(socket) {
        Ok(name) => name.address_family(),
        // No socket at all.
        Err(Errno::NOTSOCK) => return Ok(()),
        Err(error) => return Err(SysError::new(action, error)),
    };
    if ![AddressFamily::INET, AddressFamily::INET6].contains(&family) {
        return Ok(());
    }
    let peer = rustix::net::getpeername(socket).while_trying_to(action)?;
    let peer = peer.ok_or(Errno::NOTCONN).while_trying_to(action)?;
    let peer = SocketAddr::try_from(peer).while_trying_to(action)?;
    let mut filter = filter(peer);
    let program = libc::sock_fprog {
        len: filter.len() as libc::c_ushort,
        filter: filter.as_mut_ptr(),
    };
    set(socket, libc::SO_ATTACH_FILTER, &program).while_trying_to(action)?;
    let locked: libc::c_int = 1;
    set(socket, libc::SO_LOCK_FILTER, &locked).while_trying_to(action)
}

/// Whether this process may do so, found out with a connection to itself: some kernels let only an administrator of the network.
pub fn can_pin() -> Result<(), SysError> {
    let action = "try to keep a connection with its peer";
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).while_trying_to(action)?;
    let place = listener.local_addr().while_trying_to(action)?;
    let stream = TcpStream::connect(place).while_trying_to(action)?;
    pin_to_peer(stream.as_fd())
}

fn set<T>(socket: BorrowedFd<'_>, option: libc::c_int, value: &T) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    let value: *const T = value;
    // SAFETY: the kernel reads `len` bytes of a value that outlives the call, and for a filter the instructions that it counts, which
    // outlive it too.
    let outcome = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            value.cast(),
            len,
        )
    };
    match outcome {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Takes whole packets of `peer`, and drops all others.
fn filter(peer: SocketAddr) -> Vec<sock_filter> {
    let network = |offset: u32| (libc::SKF_NET_OFF as u32).wrapping_add(offset);
    let protocol = (libc::SKF_AD_OFF + libc::SKF_AD_PROTOCOL) as u32;
    let (kind, source, words) = match peer.ip().to_canonical() {
        std::net::IpAddr::V4(ip) => (libc::ETH_P_IP, IPV4_SOURCE, vec![u32::from(ip)]),
        std::net::IpAddr::V6(ip) => {
            let bits = u128::from(ip);
            let words = [96, 64, 32, 0].map(|shift| (bits >> shift) as u32);
            (libc::ETH_P_IPV6, IPV6_SOURCE, words.to_vec())
        }
    };
    let mut wanted = vec![(BPF_W, protocol, kind as u32)];
    for (offset, word) in (0..).step_by(4).zip(words) {
        wanted.push((BPF_W, network(source + offset), word));
    }
    wanted.push((BPF_H, SOURCE_PORT, u32::from(peer.port())));
    let mut program = Vec::new();
    for (index, (size, place, value)) in wanted.iter().enumerate() {
        program.push(instruction(BPF_LD | size | BPF_ABS, 0, *place));
        // Over the rest of the comparisons, two instructions each, and the answer that takes the packet.
        let past = 2 * (wanted.len() - 1 - index) + 1;
        let past = u8::try_from(past).expect("six comparisons at most");
        program.push(instruction(BPF_JMP | BPF_JEQ | BPF_K, past, *value));
    }
    program.push(instruction(BPF_RET | BPF_K, 0, u32::MAX));
    program.push(instruction(BPF_RET | BPF_K, 0, 0));
    program
}

/// `otherwise` is how many instructions a comparison that fails leaves out.
fn instruction(code: u32, otherwise: u8, value: u32) -> sock_filter {
    sock_filter {
        code: code as u16,
        jt: 0,
        jf: otherwise,
        k: value,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::time::Duration;

    use super::*;

    fn pair(at: &str) -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind(at).unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (one, listener.accept().unwrap().0)
    }

    /// Dissolves a connection, and connects its socket to `target` within half a second.
    fn reconnect(socket: &TcpStream, target: SocketAddr) -> rustix::io::Result<()> {
        rustix::net::connect_unspec(socket)?;
        socket.set_nonblocking(true).unwrap();
        match rustix::net::connect(socket, &target) {
            Err(Errno::INPROGRESS) => {}
            other => return other,
        }
        let mut wait = [rustix::event::PollFd::new(
            socket,
            rustix::event::PollFlags::OUT,
        )];
        let limit = rustix::event::Timespec::try_from(Duration::from_millis(500)).unwrap();
        match rustix::event::poll(&mut wait, Some(&limit))? {
            0 => Err(Errno::TIMEDOUT),
            _ => rustix::net::sockopt::socket_error(socket)?,
        }
    }

    #[test]
    fn pinned_connection_carries_data() {
        for at in ["127.0.0.1:0", "[::1]:0"] {
            let (mut one, mut other) = pair(at);
            pin_to_peer(one.as_fd()).unwrap();
            other.write_all(&[7; 100_000]).unwrap();
            let mut bytes = vec![0; 100_000];
            one.read_exact(&mut bytes).unwrap();
            assert_eq!(bytes, [7; 100_000]);
            one.write_all(b"back").unwrap();
            other.read_exact(&mut bytes[..4]).unwrap();
        }
    }

    #[test]
    fn pinned_socket_connects_to_nobody_else() {
        for at in ["127.0.0.1:0", "[::1]:0"] {
            let elsewhere = TcpListener::bind(at).unwrap();
            let target = elsewhere.local_addr().unwrap();
            let (free, _other) = pair(at);
            assert_eq!(reconnect(&free, target), Ok(()));
            let (pinned, _other) = pair(at);
            pin_to_peer(pinned.as_fd()).unwrap();
            assert_eq!(reconnect(&pinned, target), Err(Errno::TIMEDOUT));
        }
    }

    #[test]
    fn pin_cannot_be_taken_off() {
        let (pinned, _other) = pair("127.0.0.1:0");
        pin_to_peer(pinned.as_fd()).unwrap();
        for option in [
            libc::SO_DETACH_FILTER,
            libc::SO_LOCK_FILTER,
            libc::SO_ATTACH_FILTER,
        ] {
            let none: [u8; 16] = [0; 16];
            let error = set(pinned.as_fd(), option, &none).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{option}");
        }
    }

    #[test]
    fn local_sockets_are_left_alone() {
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        pin_to_peer(one.as_fd()).unwrap();
        pin_to_peer(std::fs::File::open("/dev/null").unwrap().as_fd()).unwrap();
    }
}
