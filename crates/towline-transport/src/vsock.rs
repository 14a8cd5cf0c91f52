//! Sockets between a virtual machine and its host: `vsock:CID:PORT`.
//!
//! A machine has a number, its CID; 2 (`host`) is the host of a machine, 1 (`local`) the machine itself, and a listener may take
//! `any`. There is no network in between: no addresses to give out, no routes, nothing that others could listen in to. But every
//! machine of a host reaches a listener of the host, so listeners are as open to strangers as those of tcp.
//!
//! The host needs `vhost_vsock`, the machine a vsock device (`towline vm` gives it one). A machine that goes away is told by the
//! kernel at once, on idle connections too, so nothing is probed here. The kernel has one size of buffers for these sockets, and
//! [`ConnectOptions::buffer_bytes`] is not looked at.

#[allow(unsafe_code, reason = "passes addresses that rustix does not know")]
mod address;

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use self::address::VsockAddress;
use crate::socket::{SocketConnection, io_error, wait_for};
use crate::{
    Address, Capabilities, ConnectOptions, Connection, Listener, Transport, TransportError,
};

/// Connections that wait to be accepted; see tcp.
const BACKLOG: i32 = 1024;

/// The transport for `vsock:`.
#[derive(Debug, Default)]
pub struct VsockTransport;

impl VsockTransport {
    /// The transport; the registry has one already.
    pub fn new() -> Self {
        Self
    }
}

impl Transport for VsockTransport {
    fn scheme(&self) -> &'static str {
        "vsock"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            passes_descriptors: true,
            // A guest is a stranger.
            crosses_hosts: true,
            over_network: false,
        }
    }

    fn connect(
        &self,
        address: &Address,
        options: &ConnectOptions,
    ) -> Result<Arc<dyn Connection>, TransportError> {
        let (cid, port) = parse(address)?;
        let socket = connect_one(VsockAddress::new(cid, port), options.timeout)
            .map_err(|errno| connect_error(address, errno, options.timeout))?;
        Ok(Arc::new(SocketConnection {
            socket,
            peer: address.to_string(),
        }))
    }

    fn listen(&self, address: &Address) -> Result<Box<dyn Listener>, TransportError> {
        let (cid, port) = parse(address)?;
        let port = match port {
            0 => VsockAddress::ANY_PORT,
            port => port,
        };
        let listening = listen_one(VsockAddress::new(cid, port)).and_then(|(socket, local)| {
            let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            Ok((socket, local, wake))
        });
        let (socket, local, wake) = listening.map_err(|errno| match errno {
            Errno::ADDRINUSE => TransportError::AddressInUse {
                address: address.to_string(),
            },
            errno => io_error(listen_action(address, errno), errno),
        })?;
        // What was asked for, with the real port: `any` stays `any`.
        let text = address.rest().split(':').next().unwrap_or_default();
        let local = Address::parse(&format!("vsock://{text}:{}", local.port))?;
        Ok(Box::new(VsockListener {
            socket: Mutex::new(Some(Arc::new(socket))),
            wake,
            local,
        }))
    }

    fn adopt(&self, descriptor: OwnedFd) -> Result<Arc<dyn Connection>, TransportError> {
        let peer = peer_name(&descriptor)
            .and_then(|peer| rustix::io::ioctl_fionbio(&descriptor, false).map(|()| peer))
            .map_err(|errno| io_error("adopt a descriptor as a vsock connection".into(), errno))?;
        Ok(Arc::new(SocketConnection {
            socket: descriptor,
            peer,
        }))
    }
}

/// CID and port.
fn parse(address: &Address) -> Result<(u32, u32), TransportError> {
    let invalid = |advice: String| TransportError::InvalidAddress {
        text: address.to_string(),
        advice,
    };
    if address.scheme() != "vsock" {
        return Err(invalid("the vsock transport takes vsock:CID:PORT".into()));
    }
    let Some((cid, port)) = address.rest().split_once(':') else {
        return Err(invalid(
            "write vsock:CID:PORT, for example vsock:host:7000 in a virtual machine, or vsock:any:7000 to listen".into(),
        ));
    };
    // `u32::from_str` takes a leading plus sign; an address does not.
    let number = |text: &str| {
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u32>().ok().filter(|_| is_number)
    };
    let cid = match cid {
        "any" => VsockAddress::ANY_CID,
        "host" => VsockAddress::HOST_CID,
        "local" => VsockAddress::LOCAL_CID,
        other => number(other)
            .filter(|&cid| cid != VsockAddress::ANY_CID)
            .ok_or_else(|| {
                invalid(format!(
                    "`{other}` is no CID: write a machine's number, `host`, `local` or `any`"
                ))
            })?,
    };
    let port = number(port).filter(|&port| port != VsockAddress::ANY_PORT);
    let port = port.ok_or_else(|| {
        invalid("the port has to be a number from 0 to 4294967294 behind the last colon".into())
    })?;
    Ok((cid, port))
}

fn open() -> Result<OwnedFd, Errno> {
    rustix::net::socket_with(
        AddressFamily::VSOCK,
        SocketType::STREAM,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )
}

fn connect_one(address: VsockAddress, timeout: Duration) -> Result<OwnedFd, Errno> {
    let socket = open()?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) => {}
        Err(Errno::INPROGRESS | Errno::INTR) => {
            if !wait_for(&socket, PollFlags::OUT, Some(timeout))? {
                return Err(Errno::TIMEDOUT);
            }
            sockopt::socket_error(&socket)??;
        }
        Err(errno) => return Err(errno),
    }
    rustix::io::ioctl_fionbio(&socket, false)?;
    Ok(socket)
}

fn listen_one(address: VsockAddress) -> Result<(OwnedFd, VsockAddress), Errno> {
    let socket = open()?;
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    let local = VsockAddress::read(&rustix::net::getsockname(&socket)?)?;
    Ok((socket, local))
}

fn listen_action(address: &Address, errno: Errno) -> String {
    match errno {
        Errno::AFNOSUPPORT => format!(
            "listen on {address}: this kernel has no vsock (on the host of virtual machines: modprobe vhost_vsock)"
        ),
        Errno::ADDRNOTAVAIL => format!(
            "listen on {address}: this machine has no such CID; `any` takes each that it has (for `local`: modprobe vsock_loopback)"
        ),
        _ => format!("listen on {address}"),
    }
}

fn connect_error(address: &Address, errno: Errno, timeout: Duration) -> TransportError {
    let text = address.to_string();
    match errno {
        // A machine without a listener there answers with a reset.
        Errno::CONNREFUSED | Errno::CONNRESET => {
            TransportError::ConnectionRefused { address: text }
        }
        Errno::TIMEDOUT => TransportError::TimedOut {
            address: text,
            timeout,
        },
        Errno::AFNOSUPPORT | Errno::NODEV | Errno::ADDRNOTAVAIL => io_error(
            format!(
                "connect to {address}: this machine has no vsock device (in a virtual machine: give it one, as `towline vm` does; \
                 between processes of one machine: modprobe vsock_loopback)"
            ),
            errno,
        ),
        Errno::HOSTUNREACH | Errno::NETUNREACH => TransportError::Unreachable {
            address: text,
            source: errno.into(),
        },
        errno => io_error(format!("connect to {address}"), errno),
    }
}

fn peer_name(socket: &OwnedFd) -> Result<String, Errno> {
    let peer = rustix::net::getpeername(socket)?.ok_or(Errno::NOTCONN)?;
    let peer = VsockAddress::read(&peer)?;
    Ok(format!("vsock://{}:{}", peer.cid, peer.port))
}

struct VsockListener {
    /// `None` once it is closed. Ending the listening state by `shutdown` is not in the kernel for this family: the descriptor
    /// itself has to go.
    socket: Mutex<Option<Arc<OwnedFd>>>,
    /// Readable once it is closed.
    wake: OwnedFd,
    local: Address,
}

impl VsockListener {
    fn socket(&self) -> Result<Arc<OwnedFd>, TransportError> {
        self.socket
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
            .ok_or_else(|| TransportError::ListenerClosed {
                address: self.local.to_string(),
            })
    }
}

impl Listener for VsockListener {
    fn accept(&self) -> Result<Arc<dyn Connection>, TransportError> {
        let failed = |errno| io_error(format!("accept a connection on {}", self.local), errno);
        loop {
            let socket = self.socket()?;
            match rustix::net::accept_with(&*socket, SocketFlags::CLOEXEC) {
                Ok(accepted) => match peer_name(&accepted) {
                    Ok(peer) => {
                        return Ok(Arc::new(SocketConnection {
                            socket: accepted,
                            peer,
                        }));
                    }
                    // Gone between its arrival and now: as if it had never come.
                    Err(errno) => {
                        log::debug!("{}: dropped a connection on arrival: {errno}", self.local)
                    }
                },
                Err(Errno::AGAIN) => {
                    let mut waited = [
                        PollFd::new(&*socket, PollFlags::IN),
                        PollFd::new(&self.wake, PollFlags::IN),
                    ];
                    match poll(&mut waited, None) {
                        Ok(_) | Err(Errno::INTR) => {}
                        Err(errno) => return Err(failed(errno)),
                    }
                }
                Err(Errno::INTR | Errno::CONNABORTED | Errno::CONNRESET) => {}
                Err(errno) => return Err(failed(errno)),
            }
        }
    }

    fn local_address(&self) -> Address {
        self.local.clone()
    }

    fn close(&self) {
        self.socket
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        // Full only after 2^64 - 2 calls.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<(u32, u32), String> {
        parse(&text.parse().expect("an address")).map_err(|error| error.to_string())
    }

    #[test]
    fn contexts_have_names_and_numbers() {
        assert_eq!(parsed("vsock:host:7000"), Ok((2, 7000)));
        assert_eq!(parsed("vsock:any:0"), Ok((u32::MAX, 0)));
        assert_eq!(parsed("vsock://local:1"), Ok((1, 1)));
        assert_eq!(parsed("vsock:42:4294967294"), Ok((42, u32::MAX - 1)));
    }

    #[test]
    fn what_is_no_address_says_what_to_write() {
        for (text, part) in [
            ("vsock://7000", "vsock:host:7000"),
            ("vsock:gpu1:7000", "`gpu1` is no CID"),
            ("vsock:+2:7000", "`+2` is no CID"),
            ("vsock:4294967295:7000", "is no CID"),
            ("vsock:2:", "the port has to be"),
            ("vsock:2:4294967295", "the port has to be"),
            ("vsock:2:7:8", "the port has to be"),
        ] {
            let error = parsed(text).expect_err("no such address");
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn adopting_what_is_no_vsock_connection_fails() {
        let (socket, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(matches!(
            VsockTransport.adopt(socket.into()),
            Err(TransportError::Io { .. })
        ));
    }
}
