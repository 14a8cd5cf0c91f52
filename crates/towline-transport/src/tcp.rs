//! TCP, the default transport: `tcp://host:port`.
//!
//! One send is one system call and no allocation; small sends leave at once (TCP_NODELAY), since the layer above
//! already coalesces.
//!
//! # Peers that vanish
//!
//! A host that loses power or its cable sends no end of stream. Two timers of the kernel find out within 30 s:
//!
//! - **Keepalive** probes an idle connection after 10 s, then every 5 s, and gives up after 3 without an answer: 25 s.
//!   The peer's kernel answers, so a process that is busy, or waits for a long kernel, passes.
//! - **TCP_USER_TIMEOUT** bounds how long sent bytes may stay unacknowledged; keepalive does not run meanwhile. But
//!   Linux applies it also to a peer that answers every probe while its receive window is closed (observed on 6.18),
//!   which is what back-pressure behind a long kernel looks like. So it is on only where the peer always reads:
//!   connections made with [`ConnectOptions::control`], and accepted ones until they are adopted as a lane.
//!
//! Other systems than Linux have no second timer here: they give unacknowledged bytes up by their own rules, which may take minutes.
//!
//! A lane with bytes in flight is therefore not timed by itself: **whoever holds the session's control connection
//! must shut the lanes down when that one is lost.**

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::sockopt;

use crate::socket::{SocketConnection, io_error, system};
use crate::{
    Address, Capabilities, ConnectOptions, Connection, Listener, Listening, Transport,
    TransportError,
};

/// How long a peer may stay silent, idle or not, before a control connection is given up.
pub const SILENCE_LIMIT: Duration = Duration::from_secs(25);

const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_COUNT: u32 = 3;

/// The transport for `tcp://`.
#[derive(Debug, Default)]
pub struct TcpTransport;

impl TcpTransport {
    /// The transport; the registry has one already.
    pub fn new() -> Self {
        Self
    }
}

impl Transport for TcpTransport {
    fn scheme(&self) -> &'static str {
        "tcp"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            passes_descriptors: true,
            crosses_hosts: true,
            over_network: true,
        }
    }

    fn connect(
        &self,
        address: &Address,
        options: &ConnectOptions,
    ) -> Result<Arc<dyn Connection>, TransportError> {
        let candidates = resolve(address)?;
        let deadline = Instant::now() + options.timeout;
        let mut failure = None;
        for (tried, candidate) in candidates.iter().enumerate() {
            // Each candidate gets its share of what is left, so that a silent first one (IPv6 without a route
            // back, say) leaves time for the others.
            let share = deadline.saturating_duration_since(Instant::now())
                / (candidates.len() - tried) as u32;
            match connect_one(candidate, share, options) {
                Ok(socket) => {
                    return Ok(Arc::new(SocketConnection::new(socket, address.to_string())));
                }
                Err(errno) => failure = Some(errno),
            }
        }
        let errno = failure.expect("resolve gives at least one candidate");
        Err(connect_error(address, errno, options.timeout))
    }

    fn listen(&self, address: &Address) -> Result<Box<dyn Listener>, TransportError> {
        let mut failure = None;
        for candidate in resolve(address)? {
            match listen_one(&candidate) {
                Ok((socket, local)) => {
                    return Ok(Box::new(TcpListener::new(socket, local)));
                }
                Err(errno) => failure = Some(errno),
            }
        }
        Err(
            match failure.expect("resolve gives at least one candidate") {
                Errno::ADDRINUSE => TransportError::AddressInUse {
                    address: address.to_string(),
                },
                errno => io_error(format!("listen on {address}"), errno),
            },
        )
    }

    fn listen_on(&self, socket: OwnedFd) -> Result<Listening, TransportError> {
        let Ok(Ok(local)) = rustix::net::getsockname(&socket).map(SocketAddr::try_from) else {
            return Ok(Listening::NotOurs(socket));
        };
        let listener = TcpListener::new(socket, address_of(local));
        Ok(Listening::Here(Box::new(listener)))
    }

    fn adopt(&self, descriptor: OwnedFd) -> Result<Arc<dyn Connection>, TransportError> {
        let peer = peer_name(&descriptor)
            .map_err(|errno| io_error("adopt a descriptor as a tcp connection".into(), errno))?;
        prepare(&descriptor, true, None)
            .and_then(|()| rustix::io::ioctl_fionbio(&descriptor, system::NON_BLOCKING))
            .map_err(|errno| io_error(format!("adopt the connection to {peer}"), errno))?;
        Ok(Arc::new(SocketConnection::new(descriptor, peer)))
    }
}

fn resolve(address: &Address) -> Result<Vec<SocketAddr>, TransportError> {
    let (host, port) = address
        .host_port()
        .filter(|_| address.scheme() == "tcp")
        .ok_or_else(|| TransportError::InvalidAddress {
            text: address.to_string(),
            advice: "the tcp transport takes tcp://HOST:PORT".into(),
        })?;
    let unresolvable = |source| TransportError::Unresolvable {
        host: host.to_owned(),
        source,
    };
    let candidates: Vec<_> = (host, port)
        .to_socket_addrs()
        .map_err(unresolvable)?
        .collect();
    if candidates.is_empty() {
        return Err(unresolvable(io::Error::from(io::ErrorKind::NotFound)));
    }
    Ok(candidates)
}

fn connect_one(
    candidate: &SocketAddr,
    timeout: Duration,
    options: &ConnectOptions,
) -> Result<OwnedFd, Errno> {
    let socket = system::connect(candidate, timeout, options.buffer_bytes)?;
    // A free port of this host in the ephemeral range can be drawn as our own end: TCP then connects to itself.
    if rustix::net::getpeername(&socket)? == Some(rustix::net::getsockname(&socket)?) {
        return Err(Errno::CONNREFUSED);
    }
    rustix::io::ioctl_fionbio(&socket, system::NON_BLOCKING)?;
    prepare(&socket, options.keepalive, options.unacknowledged_timeout)?;
    Ok(socket)
}

fn listen_one(candidate: &SocketAddr) -> Result<(OwnedFd, Address), Errno> {
    let socket = system::listen(candidate)?;
    let local = SocketAddr::try_from(rustix::net::getsockname(&socket)?)?;
    Ok((socket, address_of(local)))
}

fn address_of(socket: SocketAddr) -> Address {
    Address::parse(&format!("tcp://{socket}")).expect("a socket address is an address")
}

/// Sets what every connection has; see the module's text for the timers.
fn prepare(
    socket: &OwnedFd,
    keepalive: bool,
    unacknowledged: Option<Duration>,
) -> Result<(), Errno> {
    sockopt::set_tcp_nodelay(socket, true)?;
    sockopt::set_socket_keepalive(socket, keepalive)?;
    if keepalive {
        system::probe_idle(socket, KEEPALIVE_IDLE, KEEPALIVE_INTERVAL, KEEPALIVE_COUNT)?;
    }
    system::limit_unacknowledged(socket, unacknowledged)
}

fn peer_name(socket: &OwnedFd) -> Result<String, Errno> {
    let peer = rustix::net::getpeername(socket)?.ok_or(Errno::NOTCONN)?;
    Ok(format!("tcp://{}", SocketAddr::try_from(peer)?))
}

struct TcpListener {
    /// Until it is closed.
    socket: Mutex<Option<Arc<OwnedFd>>>,
    local: Address,
}

impl TcpListener {
    fn new(socket: OwnedFd, local: Address) -> Self {
        Self {
            socket: Mutex::new(Some(Arc::new(socket))),
            local,
        }
    }

    fn socket(&self) -> MutexGuard<'_, Option<Arc<OwnedFd>>> {
        self.socket.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open_socket(&self) -> Result<Arc<OwnedFd>, TransportError> {
        let socket = self.socket().clone();
        socket.ok_or_else(|| TransportError::ListenerClosed {
            address: self.local.to_string(),
        })
    }
}

impl Listener for TcpListener {
    fn accept(&self) -> Result<Arc<dyn Connection>, TransportError> {
        loop {
            let listening = self.open_socket()?;
            let accepted = system::accept(&listening);
            // Closed meanwhile.
            self.open_socket()?;
            match accepted {
                Ok(socket) => match peer_name(&socket).and_then(|peer| {
                    prepare(&socket, true, Some(SILENCE_LIMIT))?;
                    Ok(peer)
                }) {
                    Ok(peer) => return Ok(Arc::new(SocketConnection::new(socket, peer))),
                    // Gone between its arrival and now: as if it had never come.
                    Err(errno) => {
                        log::debug!("{}: dropped a connection on arrival: {errno}", self.local)
                    }
                },
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(errno) => {
                    return Err(io_error(
                        format!("accept a connection on {}", self.local),
                        errno,
                    ));
                }
            }
        }
    }

    fn local_address(&self) -> Address {
        self.local.clone()
    }

    fn close(&self) {
        let socket = self.socket().take();
        if let Some(socket) = socket {
            system::stop_listening(socket);
        }
    }
}

fn connect_error(address: &Address, errno: Errno, timeout: Duration) -> TransportError {
    let address = address.to_string();
    match errno {
        Errno::CONNREFUSED => TransportError::ConnectionRefused { address },
        Errno::TIMEDOUT => TransportError::TimedOut { address, timeout },
        Errno::HOSTUNREACH
        | Errno::NETUNREACH
        | Errno::NETDOWN
        | Errno::HOSTDOWN
        | Errno::ADDRNOTAVAIL => TransportError::Unreachable {
            address,
            source: errno.into(),
        },
        errno => io_error(format!("connect to {address}"), errno),
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use super::*;
    use crate::socket::MAX_SLICES;

    fn listener(address: &str) -> Box<dyn Listener> {
        TcpTransport.listen(&address.parse().unwrap()).unwrap()
    }

    fn pair(options: &ConnectOptions) -> (Arc<dyn Connection>, Arc<dyn Connection>) {
        let listener = listener("127.0.0.1:0");
        let client = TcpTransport
            .connect(&listener.local_address(), options)
            .unwrap();
        (client, listener.accept().unwrap())
    }

    #[cfg(target_os = "linux")]
    fn user_timeout_ms(connection: &Arc<dyn Connection>) -> u32 {
        sockopt::tcp_user_timeout(connection.descriptor().unwrap()).unwrap()
    }

    #[test]
    fn listener_of_another_process_accepts() {
        let candidate = "127.0.0.1:0".parse().unwrap();
        let (socket, address) = listen_one(&candidate).unwrap();
        let Ok(Listening::Here(listener)) = TcpTransport.listen_on(socket) else {
            panic!("it is a TCP socket");
        };
        assert_eq!(listener.local_address(), address);
        let client = TcpTransport.connect(&address, &ConnectOptions::default());
        assert!(client.is_ok() && listener.accept().is_ok());
    }

    #[cfg(unix)]
    #[test]
    fn idle_connection_is_probed_so_that_silence_ends_within_30_s() {
        let (client, server) = pair(&ConnectOptions::default());
        for connection in [client, server] {
            let socket = connection.descriptor().unwrap();
            assert!(sockopt::socket_keepalive(socket).unwrap());
            assert!(sockopt::tcp_nodelay(socket).unwrap());
            let probes =
                sockopt::tcp_keepintvl(socket).unwrap() * sockopt::tcp_keepcnt(socket).unwrap();
            assert!(sockopt::tcp_keepidle(socket).unwrap() + probes < Duration::from_secs(30));
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn unread_bytes_are_timed_on_control_connections_only() {
        let (control, accepted) = pair(&ConnectOptions::control());
        assert_eq!(
            (user_timeout_ms(&control), user_timeout_ms(&accepted)),
            (25_000, 25_000)
        );
        let (lane, accepted) = pair(&ConnectOptions::default());
        let passed = accepted.descriptor().unwrap().try_clone_to_owned().unwrap();
        let adopted = TcpTransport.adopt(passed).unwrap();
        assert_eq!((user_timeout_ms(&lane), user_timeout_ms(&adopted)), (0, 0));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn buffer_size_is_asked_of_the_kernel() {
        let (client, _server) = pair(&ConnectOptions {
            buffer_bytes: Some(32 << 10),
            ..Default::default()
        });
        // Linux doubles the value for its own bookkeeping.
        assert_eq!(
            sockopt::socket_send_buffer_size(client.descriptor().unwrap()).unwrap(),
            64 << 10
        );
    }

    #[test]
    fn more_parts_than_one_system_call_takes_arrive_in_order() {
        let (client, server) = pair(&ConnectOptions::default());
        let bytes: Vec<u8> = (0..3 * MAX_SLICES).map(|n| n as u8).collect();
        let parts: Vec<_> = bytes
            .chunks(1)
            .flat_map(|part| [IoSlice::new(part), IoSlice::new(&[])])
            .collect();
        client.send(&parts).unwrap();
        let mut received = vec![0; bytes.len()];
        crate::recv_exact(&*server, &mut received).unwrap();
        assert_eq!(received, bytes);
    }

    #[test]
    fn sends_that_the_kernel_takes_in_pieces_arrive_whole() {
        let (client, server) = pair(&ConnectOptions::default());
        // Makes every system call take what fits, as a signal would.
        rustix::io::ioctl_fionbio(client.descriptor().unwrap(), true).unwrap();
        let bytes: Vec<u8> = (0..2_000_000u32).flat_map(u32::to_le_bytes).collect();
        let parts: Vec<_> = bytes.chunks(70_001).map(IoSlice::new).collect();
        let mut received = vec![0; bytes.len()];
        std::thread::scope(|scope| {
            scope.spawn(|| client.send(&parts).unwrap());
            crate::recv_exact(&*server, &mut received).unwrap();
        });
        assert!(received == bytes);
    }

    #[test]
    fn name_with_addresses_of_both_families_reaches_a_listener_on_one() {
        let port = listener("127.0.0.1:0")
            .local_address()
            .host_port()
            .unwrap()
            .1;
        let _listener = listener(&format!("127.0.0.1:{port}"));
        let address = format!("localhost:{port}").parse().unwrap();
        assert!(
            TcpTransport
                .connect(&address, &ConnectOptions::default())
                .is_ok()
        );
    }

    #[test]
    fn address_in_use_says_so() {
        let first = listener("127.0.0.1:0");
        let error = TcpTransport
            .listen(&first.local_address())
            .err()
            .expect("the port is taken");
        assert!(
            matches!(error, TransportError::AddressInUse { .. }),
            "{error}"
        );
    }

    #[test]
    fn unresolvable_host_is_named() {
        // RFC 6761 keeps `.invalid` free of names.
        let error = TcpTransport.connect(
            &"no-such-host.invalid:1".parse().unwrap(),
            &ConnectOptions::default(),
        );
        let error = error.err().expect("the name does not exist");
        assert!(
            error
                .to_string()
                .starts_with("cannot find host `no-such-host.invalid`"),
            "{error}"
        );
    }

    #[cfg(unix)]
    #[test]
    fn adopting_what_is_no_connection_fails() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(matches!(
            TcpTransport.adopt(file.into()),
            Err(TransportError::Io { .. })
        ));
    }
}
