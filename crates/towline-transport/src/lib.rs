//! How bytes travel between a client and a server: one trait, chosen by URL scheme.
//!
//! A [`Transport`] makes [`Connection`]s, full-duplex byte streams, from an [`Address`] such as
//! `tcp://gpu1:7000`. Everything above works on `dyn Transport` and `dyn Connection`; the choice is made once,
//! when a connection is made, by looking the scheme up in the [`Registry`].
//!
//! | Scheme | Module | For |
//! |---|---|---|
//! | `tcp` | [`tcp`] | the default, between hosts |
//! | `shm` | [`shm`] | one host: rings in shared memory |
//! | `rdma` | [`rdma`] | InfiniBand, RoCE and iWARP |
//! | `memory` | [`memory`] | tests: in-process pairs, optionally over a simulated link |
//! | `vsock` | [`vsock`] | between a virtual machine and its host |
//! | `virtio-serial` | [`virtio_serial`] | the same, over ports that look like files |
//! | any other | [`plugin`] | shared objects loaded at run time, over a versioned C ABI |
//!
//! Systems other than Linux have `tcp` and `memory` alone, and macOS plugins.
//!
//! [`tls`] encrypts a connection of any transport, [`resume`] lets one outlive its links.
//!
//! Framing, authentication and sessions live above this crate; it knows nothing of them. What a transport must
//! uphold is written in [`Connection`] and held by the suite in `conformance` (a feature of that name).

#![deny(unsafe_code)]
#![warn(missing_docs)]

mod address;
#[cfg(feature = "conformance")]
pub mod conformance;
mod error;
pub mod memory;
pub mod pinned;
#[cfg(unix)]
#[allow(unsafe_code, reason = "calls into foreign code across a C ABI")]
pub mod plugin;
#[cfg(target_os = "linux")]
#[allow(
    unsafe_code,
    reason = "calls libraries of C that write to memory by themselves"
)]
pub mod rdma;
mod registry;
pub mod resume;
mod secret;
#[cfg(target_os = "linux")]
#[allow(unsafe_code, reason = "maps memory that a peer maps too")]
pub mod shared_memory;
#[cfg(not(target_os = "linux"))]
#[path = "no_shared_memory.rs"]
pub mod shared_memory;
#[cfg(target_os = "linux")]
#[allow(unsafe_code, reason = "reads and writes memory that a peer writes too")]
pub mod shm;
mod socket;
pub mod tcp;
pub mod tls;
#[cfg(target_os = "linux")]
pub mod virtio_serial;
#[cfg(target_os = "linux")]
pub mod vsock;

use std::io::IoSlice;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fd::{BorrowedFd, OwnedFd};

pub use address::{Address, DEFAULT_PORT};
pub use error::TransportError;
pub use registry::{PLUGINS_VARIABLE, Registry};
pub use secret::{is_trusted, read_secret};

/// One way to carry bytes; a factory of connections.
pub trait Transport: Send + Sync {
    /// The URL scheme that chooses this transport, in lower case.
    fn scheme(&self) -> &'static str;

    /// What this transport can do beyond carrying bytes. Must match what is wired.
    fn capabilities(&self) -> Capabilities;

    /// Connects to a listener. Blocks at most about `options.timeout`.
    fn connect(
        &self,
        address: &Address,
        options: &ConnectOptions,
    ) -> Result<Arc<dyn Connection>, TransportError>;

    /// Starts to accept connections at `address`.
    fn listen(&self, address: &Address) -> Result<Box<dyn Listener>, TransportError>;

    /// Takes over a socket that listens already, as systemd passes them.
    fn listen_on(&self, socket: OwnedFd) -> Result<Listening, TransportError> {
        Ok(Listening::NotOurs(socket))
    }

    /// Takes over an already connected descriptor: in a worker, one that the supervisor accepted and passed on.
    ///
    /// Transports without [`Capabilities::passes_descriptors`] answer [`TransportError::Unsupported`].
    fn adopt(&self, descriptor: OwnedFd) -> Result<Arc<dyn Connection>, TransportError>;
}

/// The outcome for a socket that [`Transport::listen_on`] was given.
pub enum Listening {
    /// It accepts connections.
    Here(Box<dyn Listener>),
    /// It belongs to another transport.
    NotOurs(OwnedFd),
}

/// What a transport can do beyond carrying bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// [`Connection::descriptor`] gives a descriptor that another process can [`Transport::adopt`].
    pub passes_descriptors: bool,
    /// Peers may be on another host, so a listener may be reachable by strangers.
    pub crosses_hosts: bool,
    /// Bytes travel where strangers may read and change them, so they are to be encrypted ([`tls`]). Between a virtual machine and its
    /// host they do not.
    pub over_network: bool,
}

/// How to connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectOptions {
    /// Upper bound for the whole attempt, over all addresses the name resolves to. Name resolution itself is the
    /// system resolver's and has the system's own limit.
    pub timeout: Duration,
    /// Size of the send and of the receive buffer. `None` leaves it to the transport, for tcp to the kernel, which
    /// tunes it by the observed round-trip time.
    pub buffer_bytes: Option<usize>,
    /// Find out by probes that an idle peer is gone; see [`tcp`] for the times.
    pub keepalive: bool,
    /// Give the connection up when bytes it sent stay unacknowledged for this long.
    ///
    /// Set it only where the peer always reads at once, as on a control connection ([`ConnectOptions::control`]):
    /// Linux counts a peer whose receive window stays closed as one that does not acknowledge, so on a lane under
    /// back-pressure a long kernel would pass for a dead server.
    pub unacknowledged_timeout: Option<Duration>,
}

impl Default for ConnectOptions {
    /// What a lane wants.
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(10),
            buffer_bytes: None,
            keepalive: true,
            unacknowledged_timeout: None,
        }
    }
}

impl ConnectOptions {
    /// What a control connection wants: its peer reads at once, so silence, also after sending, means it is gone.
    pub fn control() -> Self {
        Self {
            unacknowledged_timeout: Some(tcp::SILENCE_LIMIT),
            ..Self::default()
        }
    }
}

/// Accepts connections at one address.
pub trait Listener: Send + Sync {
    /// Waits for the next connection. Errors other than [`TransportError::ListenerClosed`] may be transient
    /// (out of descriptors, for instance): log them, wait a moment and call again.
    fn accept(&self) -> Result<Arc<dyn Connection>, TransportError>;

    /// Where it listens, with the real port where port 0 was asked for.
    fn local_address(&self) -> Address;

    /// Stops listening. A blocked [`accept`](Listener::accept), in any thread, and every later one returns
    /// [`TransportError::ListenerClosed`]. Connections already accepted stay open.
    fn close(&self);
}

/// A full-duplex byte stream. Dropping it closes it.
///
/// Every method takes `&self` and may be called from several threads. By convention **one thread sends and one
/// receives at a time**: two concurrent senders corrupt nothing in the transport, but their bytes may interleave.
/// Bytes arrive complete, once and in order, or the connection fails; there are no message boundaries. A broken link
/// is told once, as [`TransportError::Lost`], to the first caller that finds out; later ones may find the connection
/// closed.
///
/// ```
/// use std::io::IoSlice;
/// use towline_transport::{Address, ConnectOptions, Registry, recv_exact};
///
/// let registry = Registry::global();
/// let listener = registry.listen(&"tcp://127.0.0.1:0".parse()?)?;
/// let client = registry.connect(&listener.local_address(), &ConnectOptions::default())?;
/// let server = listener.accept()?;
/// client.send(&[IoSlice::new(b"header "), IoSlice::new(b"payload")])?;
/// let mut received = [0; 14];
/// recv_exact(&*server, &mut received)?;
/// assert_eq!(&received, b"header payload");
/// # Ok::<(), towline_transport::TransportError>(())
/// ```
pub trait Connection: Send + Sync {
    /// Sends all of `parts`, one behind the other. Blocks while the peer does not read.
    fn send(&self, parts: &[IoSlice<'_>]) -> Result<(), TransportError>;

    /// Sends as much of `bytes` as fits right now and says how much that was; 0 means full. Never blocks.
    fn try_send(&self, bytes: &[u8]) -> Result<usize, TransportError>;

    /// Waits for at least one byte and says how many it placed at the start of `buffer`; 0 means that the peer
    /// closed in order, or that `buffer` is empty.
    fn recv(&self, buffer: &mut [u8]) -> Result<usize, TransportError>;

    /// Like [`recv`](Connection::recv), but `None` where it would wait. `Some(0)` means closed.
    fn try_recv(&self, buffer: &mut [u8]) -> Result<Option<usize>, TransportError>;

    /// Like [`recv`](Connection::recv), for bytes that are likely to come within `patience`: so long this thread looks for them before it
    /// sleeps, since waking it costs several microseconds. It gives way to other threads meanwhile.
    fn recv_soon(&self, buffer: &mut [u8], patience: Duration) -> Result<usize, TransportError> {
        if !patience.is_zero() {
            let until = Instant::now() + patience;
            loop {
                if let Some(received) = self.try_recv(buffer)? {
                    return Ok(received);
                }
                if Instant::now() >= until {
                    break;
                }
                std::thread::yield_now();
            }
        }
        self.recv(buffer)
    }

    /// Waits until [`recv`](Connection::recv) would not: until bytes, the end or a failure are there. `false` when
    /// `timeout` passed first; `None` waits for ever.
    fn wait_readable(&self, timeout: Option<Duration>) -> Result<bool, TransportError>;

    /// Ends both directions and wakes blocked calls of any thread: here, `recv` then returns 0 or
    /// [`TransportError::Closed`], and `send` fails. The peer reads what was sent before, then the end.
    fn shutdown(&self);

    /// The other end, for logs and errors.
    fn peer(&self) -> String;

    /// The descriptor to hand to another process; `None` where there is none.
    ///
    /// Whoever hands it over drops the connection without [`shutdown`](Connection::shutdown), which would end it
    /// for the other process too, and must not have received more than it means to keep.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// Whether the peer is on this host and takes descriptors: of memory to share, for instance.
    fn shares_memory(&self) -> bool {
        false
    }

    /// Sends a descriptor beside the stream. It is there for [`take_descriptor`](Connection::take_descriptor) before any byte that is
    /// sent after it. A peer takes only some at once: send bytes that have it take each.
    fn send_descriptor(&self, _descriptor: BorrowedFd<'_>) -> Result<(), TransportError> {
        Err(TransportError::Unsupported {
            scheme: scheme_of(&self.peer()),
            operation: "pass a descriptor to its peer",
        })
    }

    /// The next descriptor that the peer has sent; `None` when there is none.
    fn take_descriptor(&self) -> Result<Option<OwnedFd>, TransportError> {
        Err(TransportError::Unsupported {
            scheme: scheme_of(&self.peer()),
            operation: "take a descriptor of its peer",
        })
    }
}

fn scheme_of(peer: &str) -> String {
    peer.split(':').next().unwrap_or_default().to_owned()
}

/// As [`recv_exact`], for at most `limit` altogether.
pub fn recv_exact_within(
    connection: &dyn Connection,
    buffer: &mut [u8],
    limit: Duration,
) -> Result<(), TransportError> {
    let deadline = Instant::now() + limit;
    let mut filled = 0;
    while filled < buffer.len() {
        let left = deadline.saturating_duration_since(Instant::now());
        if !connection.wait_readable(Some(left))? {
            return Err(TransportError::TimedOut {
                address: connection.peer(),
                timeout: limit,
            });
        }
        match connection.recv(&mut buffer[filled..])? {
            0 => {
                return Err(TransportError::Closed {
                    peer: connection.peer(),
                });
            }
            received => filled += received,
        }
    }
    Ok(())
}

/// Fills `buffer`. A connection that ends before it is full is [`TransportError::Closed`].
pub fn recv_exact(connection: &dyn Connection, buffer: &mut [u8]) -> Result<(), TransportError> {
    let mut filled = 0;
    while filled < buffer.len() {
        match connection.recv(&mut buffer[filled..])? {
            0 => {
                return Err(TransportError::Closed {
                    peer: connection.peer(),
                });
            }
            received => filled += received,
        }
    }
    Ok(())
}
