//! InfiniBand, RoCE and iWARP, by verbs: `rdma://HOST:PORT`.
//!
//! HOST is an IP address or a name of one that an RDMA device has; the connection manager (librdmacm) finds device and route by it. The
//! libraries are loaded when the scheme is first used ([`verbs`]), and a machine without them says so.
//!
//! A connection is a reliable queue pair with registered slots for messages on each side ([`endpoint`]); `connection` makes a stream of
//! them. On an adapter neither sending nor receiving takes a system call, unless a thread sleeps.
//!
//! A connection is handed to another process by rings in memory that both processes map. Whoever connected writes large payload straight
//! into the one and reads it out of the other ([`rings`]), with no processor of this process between (`connection::ferry`). The side that
//! connects gives nobody rights to its memory: it issues every read and write. A connection that this process has begun is handed over
//! through a socket ([`bridge`]).
//!
//! An idle connection asks the peer's adapter for a sign of life every 10 s while a thread waits on it, so that a host that vanishes is
//! noticed within 30 s; the adapter answers by itself, however busy the process is.

mod bridge;
mod connection;
mod endpoint;
mod rings;
mod verbs;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::ptr::{self, NonNull};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use rustix::net::addr::SocketAddrArg;
use rustix::net::{AddressFamily, SocketAddrAny, SocketType, sockopt};

use self::connection::{HandedOver, RdmaConnection, Side};
use self::endpoint::{Endpoint, Event, Events, HEADER_BYTES, Window, done};
use self::verbs::{CmId, ConnectionParameters, MOST_READS, SocketAddress, Verbs, event};
use crate::socket::{SocketConnection, io_error};
use crate::{
    Address, Capabilities, ConnectOptions, Connection, Listener, Transport, TransportError,
};

/// Connections that wait to be accepted. Each has its memory registered already.
const BACKLOG: usize = 128;
/// Of a lane, and the most that a peer is given.
const LANE: Window = Window {
    slots: 32,
    slot_bytes: 16 << 10,
};
/// Of a control connection.
const CONTROL: Window = Window {
    slots: 8,
    slot_bytes: 4 << 10,
};
const LEAST: Window = Window {
    slots: 4,
    slot_bytes: 256,
};
/// Bytes of a lane that reads of a peer's ring go to.
const STAGE_BYTES: usize = 256 << 10;
/// Bytes that two ends say of themselves within the connection manager's messages: a mark, the window, and whether this end reads rings.
const HELLO_BYTES: usize = 20;
const MARK: [u8; 8] = *b"towline2";
/// Of every version.
const FAMILY: &[u8] = b"towline";
/// Reason of a rejection by the manager of a host where nothing listens: IB_CM_REJ_INVALID_SERVICE_ID.
const NO_LISTENER: i32 = 8;
/// Of one by the listener: IB_CM_REJ_CONSUMER_DEFINED.
const BY_LISTENER: i32 = 28;

/// The transport for `rdma://`.
#[derive(Debug, Default)]
pub struct RdmaTransport;

impl RdmaTransport {
    /// The transport; the registry has one already.
    pub fn new() -> Self {
        Self
    }
}

impl Transport for RdmaTransport {
    fn scheme(&self) -> &'static str {
        "rdma"
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
        let verbs = load()?;
        let deadline = Instant::now() + options.timeout;
        let mut failure = None;
        for (tried, candidate) in candidates.iter().enumerate() {
            let share = deadline.saturating_duration_since(Instant::now())
                / (candidates.len() - tried) as u32;
            match Attempt::new(verbs, address, candidate, options, share).run() {
                Ok(connection) => return Ok(Arc::new(connection)),
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.expect("resolve gives at least one candidate"))
    }

    fn listen(&self, address: &Address) -> Result<Box<dyn Listener>, TransportError> {
        let candidates = resolve(address)?;
        let verbs = load()?;
        let mut failure = None;
        for candidate in candidates {
            match RdmaListener::start(verbs, &candidate) {
                Ok(listener) => return Ok(Box::new(listener)),
                Err(error) => failure = Some(error),
            }
        }
        let error = failure.expect("resolve gives at least one candidate");
        let address = address.to_string();
        Err(match Errno::from_io_error(&error) {
            Some(Errno::ADDRINUSE) => TransportError::AddressInUse { address },
            Some(Errno::NODEV | Errno::ADDRNOTAVAIL) => io_error(
                format!(
                    "listen on {address}: no RDMA device of this host has that address (`rdma link` lists them)"
                ),
                Errno::NODEV,
            ),
            _ => TransportError::Io {
                action: format!("listen on {address}"),
                source: error,
            },
        })
    }

    fn adopt(&self, descriptor: OwnedFd) -> Result<Arc<dyn Connection>, TransportError> {
        let domain = sockopt::socket_domain(&descriptor);
        let kind = sockopt::socket_type(&descriptor);
        match (domain, kind) {
            (Ok(AddressFamily::UNIX), Ok(SocketType::SEQPACKET)) => {
                let connection = HandedOver::adopt(&descriptor);
                let connection = connection.map_err(|source| TransportError::Io {
                    action: "adopt a descriptor as an rdma connection".into(),
                    source,
                })?;
                Ok(Arc::new(connection))
            }
            (Ok(AddressFamily::UNIX), Ok(SocketType::STREAM)) => Ok(Arc::new(SocketConnection {
                socket: descriptor,
                peer: "rdma://handed-over".into(),
            })),
            (Err(errno), _) | (_, Err(errno)) => Err(io_error(
                "adopt a descriptor as an rdma connection".into(),
                errno,
            )),
            _ => Err(io_error(
                "adopt a descriptor as an rdma connection".into(),
                Errno::NOTSOCK,
            )),
        }
    }
}

fn load() -> Result<&'static Verbs, TransportError> {
    Verbs::get().map_err(|reason| TransportError::NoRdma { reason })
}

fn resolve(address: &Address) -> Result<Vec<SocketAddr>, TransportError> {
    let invalid = || TransportError::InvalidAddress {
        text: address.to_string(),
        advice: "the rdma transport takes rdma://HOST:PORT".into(),
    };
    let (host, port) = match address.scheme() {
        "rdma" => address.host_port().ok_or_else(invalid)?,
        _ => return Err(invalid()),
    };
    let unresolvable = |source| TransportError::Unresolvable {
        host: host.to_owned(),
        source,
    };
    let candidates: Vec<_> = (host, port)
        .to_socket_addrs()
        .map_err(unresolvable)?
        .collect();
    match candidates.is_empty() {
        true => Err(unresolvable(io::ErrorKind::NotFound.into())),
        false => Ok(candidates),
    }
}

/// Calls a function of the connection manager with a socket address.
fn with_address(
    candidate: &SocketAddr,
    call: impl FnOnce(*mut libc::sockaddr) -> i32,
) -> io::Result<()> {
    // SAFETY: the functions read the address, by its family, within the call.
    done(unsafe { candidate.with_sockaddr(|pointer, _| call(pointer.cast_mut().cast())) })
}

/// An address that the connection manager holds, as this transport's.
fn address_of(storage: &SocketAddress) -> Option<SocketAddr> {
    let len = size_of::<SocketAddress>() as u32;
    // SAFETY: all of a storage is initialised; its family says what of it counts.
    let any = unsafe { SocketAddrAny::read(ptr::from_ref(storage).cast(), len) };
    SocketAddr::try_from(any).ok()
}

impl Window {
    fn wanted(options: &ConnectOptions) -> Self {
        match options.buffer_bytes {
            Some(bytes) => Self {
                slots: CONTROL.slots,
                slot_bytes: u32::try_from(bytes / CONTROL.slots as usize).unwrap_or(u32::MAX),
            }
            .bounded(),
            None if options.unacknowledged_timeout.is_some() => CONTROL,
            None => LANE,
        }
    }

    /// As much of it as a peer is given.
    fn bounded(self) -> Self {
        Self {
            slots: self.slots.clamp(LEAST.slots, LANE.slots),
            slot_bytes: self.slot_bytes.clamp(LEAST.slot_bytes, LANE.slot_bytes) / 64 * 64,
        }
    }

    fn hello(self, reads: bool) -> [u8; HELLO_BYTES] {
        let mut hello = [0; HELLO_BYTES];
        hello[..8].copy_from_slice(&MARK);
        let words = [self.slots, self.slot_bytes, reads.into()];
        for (word, place) in words.iter().zip(hello[8..].chunks_mut(4)) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        hello
    }

    /// Of a peer's first words, which the manager may have padded: its window, and whether it reads rings.
    fn heard(private: &[u8]) -> io::Result<(Self, bool)> {
        let words = private.strip_prefix(&MARK).and_then(|words| {
            let (words, _) = words.as_chunks::<4>();
            let [slots, slot_bytes, reads, ..] = *words else {
                return None;
            };
            Some([slots, slot_bytes, reads].map(u32::from_le_bytes))
        });
        match words {
            Some([slots, slot_bytes, reads]) if slots > 0 && slot_bytes as usize > HEADER_BYTES => {
                Ok((Self { slots, slot_bytes }, reads == 1))
            }
            None if private.starts_with(FAMILY) => Err(io::Error::other(
                "it speaks another version of rdma: are both sides of the same release?",
            )),
            _ => Err(io::Error::other("it is not Towline")),
        }
    }
}

/// The parameters of a request to connect, or of its acceptance. `hello` must live as long. Whoever connects reads, and the other lets it.
fn parameters(hello: &[u8; HELLO_BYTES], connects: bool) -> ConnectionParameters {
    let when = |condition| if condition { MOST_READS } else { 0 };
    ConnectionParameters {
        private_data: hello.as_ptr(),
        private_data_len: HELLO_BYTES as u8,
        responder_resources: when(!connects),
        initiator_depth: when(connects),
        flow_control: 1,
        retry_count: 7,
        rnr_retry_count: 7,
        srq: 0,
        qp_num: 0,
    }
}

/// One try to connect.
struct Attempt<'a> {
    verbs: &'static Verbs,
    address: &'a Address,
    candidate: &'a SocketAddr,
    options: &'a ConnectOptions,
    deadline: Instant,
}

impl<'a> Attempt<'a> {
    fn new(
        verbs: &'static Verbs,
        address: &'a Address,
        candidate: &'a SocketAddr,
        options: &'a ConnectOptions,
        share: Duration,
    ) -> Self {
        let deadline = Instant::now() + share;
        Self {
            verbs,
            address,
            candidate,
            options,
            deadline,
        }
    }

    fn run(&self) -> Result<RdmaConnection, TransportError> {
        let mut endpoint = Endpoint::open(self.verbs).map_err(|error| self.failed(error))?;
        let patience_ms = i32::try_from(self.left().as_millis())
            .unwrap_or(i32::MAX)
            .max(1);
        let (verbs, id) = (self.verbs, endpoint.id());
        // SAFETY: the identifier is alive; the address is one.
        let resolved = with_address(self.candidate, |address| unsafe {
            (verbs.rdma_resolve_addr)(id, ptr::null_mut(), address, patience_ms)
        });
        resolved.map_err(|error| self.failed(error))?;
        self.expect(&endpoint, event::ADDR_RESOLVED)?;
        // SAFETY: the identifier is alive and its address resolved.
        done(unsafe { (verbs.rdma_resolve_route)(id, patience_ms) })
            .map_err(|error| self.failed(error))?;
        self.expect(&endpoint, event::ROUTE_RESOLVED)?;
        let wanted = Window::wanted(self.options);
        // A control connection stays with the process that has it, so that nothing of it comes by a ring.
        let is_lane = self.options.unacknowledged_timeout.is_none();
        let reads = is_lane && endpoint.reads_safely();
        endpoint
            .prepare(
                wanted,
                Side::Connecting,
                if reads { STAGE_BYTES } else { 0 },
            )
            .map_err(|error| self.failed(error))?;
        let hello = wanted.hello(reads);
        // SAFETY: the identifier is alive and has its queue pair; the parameters are read within the call.
        done(unsafe { (verbs.rdma_connect)(id, &mut parameters(&hello, true)) })
            .map_err(|error| self.failed(error))?;
        let established = self.expect(&endpoint, event::ESTABLISHED)?;
        let (theirs, _) =
            Window::heard(&established.private).map_err(|error| self.failed(error))?;
        let peer = self.address.to_string();
        let side = Side::Connecting;
        RdmaConnection::new(endpoint, verbs, side, theirs, peer, self.options.keepalive)
            .map_err(|error| self.failed(error))
    }

    fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Waits for an event of this kind.
    fn expect(&self, endpoint: &Endpoint, kind: i32) -> Result<Event, TransportError> {
        loop {
            let left = self.left();
            if left.is_zero() {
                return Err(self.failed(Errno::TIMEDOUT.into()));
            }
            let told = endpoint
                .wait_event(left)
                .map_err(|error| self.failed(error))?;
            let Some(told) = told else { continue };
            if told.kind == kind {
                return Ok(told);
            }
            return Err(self.failed(match (told.kind, told.status) {
                (event::REJECTED, NO_LISTENER) => Errno::CONNREFUSED.into(),
                (event::REJECTED, BY_LISTENER) if told.private.starts_with(&MARK) => {
                    io::Error::other(
                        "the server has too many connections under way: try again later",
                    )
                }
                (event::ADDR_ERROR | event::ROUTE_ERROR, _) => Errno::HOSTUNREACH.into(),
                // InfiniBand gives its own reasons, iWARP negative error numbers.
                (event::UNREACHABLE, status) if status >= 0 => Errno::HOSTUNREACH.into(),
                (_, status) if status < 0 => io::Error::from_raw_os_error(status.saturating_neg()),
                (kind, status) => io::Error::other(format!(
                    "the connection manager reports event {kind}, status {status}"
                )),
            }));
        }
    }

    fn failed(&self, error: io::Error) -> TransportError {
        let address = self.address.to_string();
        match Errno::from_io_error(&error) {
            Some(Errno::CONNREFUSED) => TransportError::ConnectionRefused { address },
            Some(Errno::TIMEDOUT) => TransportError::TimedOut {
                address,
                timeout: self.options.timeout,
            },
            Some(Errno::HOSTUNREACH | Errno::NETUNREACH) => TransportError::Unreachable {
                address,
                source: error,
            },
            Some(Errno::NODEV | Errno::ADDRNOTAVAIL) => io_error(
                format!(
                    "connect to {address}: no RDMA device of this host leads there (`rdma link` lists them)"
                ),
                Errno::NODEV,
            ),
            _ => TransportError::Io {
                action: format!("connect to {address}"),
                source: error,
            },
        }
    }
}

/// Connections that are established, and a thread that establishes them.
struct RdmaListener {
    queue: Arc<Queue>,
    local: Address,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Queue {
    state: Mutex<QueueState>,
    changed: Condvar,
    wake: OwnedFd,
}

#[derive(Default)]
struct QueueState {
    established: VecDeque<RdmaConnection>,
    closed: bool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RdmaListener {
    fn start(verbs: &'static Verbs, candidate: &SocketAddr) -> io::Result<Self> {
        let listening = Endpoint::open(verbs)?;
        let id = listening.id();
        // SAFETY: the identifier is alive; the address is one.
        with_address(candidate, |address| unsafe {
            (verbs.rdma_bind_addr)(id, address)
        })?;
        // SAFETY: the identifier is alive and bound.
        done(unsafe { (verbs.rdma_listen)(id, BACKLOG as i32) })?;
        // SAFETY: the identifier is alive; the library writes its address while it is bound only.
        let source = unsafe { &(*id).source };
        let port = address_of(source).ok_or(Errno::AFNOSUPPORT)?.port();
        let local = address_text(SocketAddr::new(candidate.ip(), port));
        let queue = Arc::new(Queue {
            state: Mutex::default(),
            changed: Condvar::new(),
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        });
        let reception = Reception {
            verbs,
            queue: Arc::clone(&queue),
            begun: HashMap::new(),
            listening,
        };
        let thread = thread::Builder::new()
            .name("rdma-listener".into())
            .spawn(move || reception.run())?;
        Ok(Self {
            queue,
            local,
            thread: Mutex::new(Some(thread)),
        })
    }
}

fn address_text(socket: SocketAddr) -> Address {
    Address::parse(&format!("rdma://{socket}")).expect("a socket address is an address")
}

impl Listener for RdmaListener {
    fn accept(&self) -> Result<Arc<dyn Connection>, TransportError> {
        let mut state = self.queue.lock();
        loop {
            if state.closed {
                return Err(TransportError::ListenerClosed {
                    address: self.local.to_string(),
                });
            }
            if let Some(connection) = state.established.pop_front() {
                return Ok(Arc::new(connection));
            }
            let waited = self.queue.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn local_address(&self) -> Address {
        self.local.clone()
    }

    fn close(&self) {
        self.queue.lock().closed = true;
        self.queue.changed.notify_all();
        let _ = rustix::io::write(&self.queue.wake, &1u64.to_ne_bytes());
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        // The address is free when the thread has ended. It has logged what it panicked of.
        let _ = thread.map(JoinHandle::join);
        let left = std::mem::take(&mut self.queue.lock().established);
        drop(left);
    }
}

impl Drop for RdmaListener {
    fn drop(&mut self) {
        self.close();
    }
}

/// Body of a listener's thread. Fields are dropped in this order: identifiers before their channel.
struct Reception {
    verbs: &'static Verbs,
    queue: Arc<Queue>,
    /// Accepted and not established yet.
    begun: HashMap<*mut CmId, (Endpoint, Window, Side)>,
    listening: Endpoint,
}

// SAFETY: identifiers are keys only, and their functions may be called from any thread.
unsafe impl Send for Reception {}

impl Reception {
    fn run(mut self) {
        let events = Arc::clone(self.listening.events());
        loop {
            let mut watched = [
                PollFd::from_borrowed_fd(events.descriptor(), PollFlags::IN),
                PollFd::new(&self.queue.wake, PollFlags::IN),
            ];
            match poll(&mut watched, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return log::error!("an rdma listener stops: {errno}"),
            }
            if self.queue.lock().closed {
                return;
            }
            match events.next() {
                Ok(Some(told)) => self.take(&told, &events),
                Ok(None) => {}
                Err(error) => log::warn!("an rdma listener: {error}"),
            }
        }
    }

    fn take(&mut self, told: &Event, events: &Arc<Events>) {
        match told.kind {
            event::CONNECT_REQUEST => {
                let Some(id) = NonNull::new(told.id) else {
                    return;
                };
                let endpoint = Endpoint::of(self.verbs, id, Arc::clone(events));
                if let Err(error) = self.begin(endpoint, &told.private) {
                    log::warn!("an rdma connection is refused: {error}");
                }
            }
            event::ESTABLISHED => {
                if let Some((endpoint, theirs, side)) = self.begun.remove(&told.id)
                    && let Err(error) = self.establish(endpoint, theirs, side)
                {
                    log::warn!("an rdma connection is dropped on arrival: {error}");
                }
            }
            _ => {
                // Gone before it was established.
                self.begun.remove(&told.id);
            }
        }
    }

    /// Accepts a request. It is refused where that fails.
    fn begin(&mut self, mut endpoint: Endpoint, private: &[u8]) -> io::Result<()> {
        let id = endpoint.id();
        let accepted = self.accept(&mut endpoint, private);
        match accepted {
            Ok((theirs, side)) => {
                self.begun.insert(id, (endpoint, theirs, side));
                Ok(())
            }
            Err(error) => {
                // SAFETY: the identifier is alive; the reason is read within the call.
                unsafe { (self.verbs.rdma_reject)(id, MARK.as_ptr().cast(), MARK.len() as u8) };
                Err(error)
            }
        }
    }

    fn accept(&self, endpoint: &mut Endpoint, private: &[u8]) -> io::Result<(Window, Side)> {
        let (theirs, reads) = Window::heard(private)?;
        if self.begun.len() + self.queue.lock().established.len() >= BACKLOG {
            return Err(io::Error::other("too many are waiting"));
        }
        let ours = theirs.bounded();
        let side = Side::Accepting { reads };
        endpoint.prepare(ours, side, 0)?;
        let hello = ours.hello(false);
        // SAFETY: the identifier is alive and has its queue pair; the parameters are read within the call.
        done(unsafe { (self.verbs.rdma_accept)(endpoint.id(), &mut parameters(&hello, false)) })?;
        Ok((theirs, side))
    }

    fn establish(&self, mut endpoint: Endpoint, theirs: Window, side: Side) -> io::Result<()> {
        endpoint.take_events()?;
        // SAFETY: the identifier is alive, and its addresses do not change any more.
        let destination = unsafe { &(*endpoint.id()).destination };
        let peer = address_text(address_of(destination).ok_or(Errno::AFNOSUPPORT)?).to_string();
        let connection = RdmaConnection::new(endpoint, self.verbs, side, theirs, peer, true)?;
        self.queue.lock().established.push_back(connection);
        self.queue.changed.notify_one();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_of_peers_are_bounded() {
        let greedy = Window {
            slots: u32::MAX,
            slot_bytes: u32::MAX,
        };
        assert_eq!(greedy.bounded(), LANE);
        let tiny = Window {
            slots: 1,
            slot_bytes: 9,
        };
        assert_eq!(tiny.bounded(), LEAST);
    }

    #[test]
    fn hello_survives_padding() {
        for reads in [false, true] {
            let mut private = CONTROL.hello(reads).to_vec();
            private.resize(56, 0);
            assert_eq!(Window::heard(&private).unwrap(), (CONTROL, reads));
        }
    }

    #[test]
    fn hello_of_another_version_is_told_apart() {
        let error = Window::heard(b"towline1\x20\0\0\0\0\x40\0\0\0\0\0\0").unwrap_err();
        assert!(error.to_string().contains("the same release"), "{error}");
    }

    #[test]
    fn hello_of_strangers_is_refused() {
        let short = &LANE.hello(true)[..HELLO_BYTES - 1];
        let without_payload = Window {
            slots: 4,
            slot_bytes: HEADER_BYTES as u32,
        };
        for private in [
            b"".as_slice(),
            b"somebody else's words",
            short,
            &without_payload.hello(true),
        ] {
            assert!(Window::heard(private).is_err());
        }
    }

    #[test]
    fn adopting_what_is_no_socket_fails() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let error = RdmaTransport.adopt(file.into()).err().unwrap();
        assert!(matches!(error, TransportError::Io { .. }), "{error}");
    }

    #[test]
    fn host_without_devices_is_told() {
        if std::fs::read_dir("/sys/class/infiniband")
            .is_ok_and(|mut devices| devices.next().is_some())
        {
            eprintln!("SKIPPED: this host has an RDMA device");
            return;
        }
        let address = "rdma://127.0.0.1:7140".parse().unwrap();
        for error in [
            RdmaTransport.listen(&address).err(),
            RdmaTransport
                .connect(&address, &ConnectOptions::default())
                .err(),
        ] {
            let text = error.expect("there is no device").to_string();
            assert!(text.starts_with("cannot use RDMA: "), "{text}");
        }
    }
}
