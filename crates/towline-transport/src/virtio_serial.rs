//! Ports between a virtual machine and its host: `virtio-serial:PATH`.
//!
//! In the machine PATH is a port, `/dev/virtio-ports/org.towline.0`, or what several ports have in common, `.../org.towline`, of
//! which each process takes a free one. On the host PATH is a Unix socket that the server listens at and QEMU connects to, with
//! any number of ports of any number of machines. It takes no network, no kernel module on the host and no shared memory.
//!
//! A port is one stream of bytes and one process has it at a time, so it carries all connections of that process: `mux` says how,
//! `frame` with which bytes. A port also does not tell when a process has gone. Ends that say nothing for 25 s are given up, a
//! process that takes the port anew ends what the one before had, and one whose host has no server reads the end at once.
//!
//! Whoever may connect to the socket reaches the server, and a machine is a stranger: listeners are as open as those of tcp.

mod frame;
mod mux;

use std::collections::{HashMap, VecDeque};
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, Shutdown, SocketType, sockopt};

use self::mux::{Mux, Requests, Role};
use crate::socket::{SocketConnection, io_error};
use crate::{
    Address, Capabilities, ConnectOptions, Connection, Listener, Transport, TransportError,
};

/// Connections that wait to be accepted; see tcp.
const BACKLOG: usize = 1024;
/// Ports of one listener.
const MAX_PORTS: usize = 1024;
/// How often a port that another process has is tried again.
const RETRY: Duration = Duration::from_millis(20);

/// Bytes that are no frames: the port is closed.
#[derive(Debug)]
struct ProtocolError(&'static str);

impl std::fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

/// The transport for `virtio-serial:`.
#[derive(Default)]
pub struct VirtioSerialTransport {
    /// The ports that this process has, by address; with the process, since a child of it has none.
    ports: Mutex<HashMap<String, (u32, Arc<Requests>)>>,
}

impl VirtioSerialTransport {
    /// The transport; the registry has one already.
    pub fn new() -> Self {
        Self::default()
    }

    /// The port of this process for an address, if it still carries connections.
    fn known(&self, address: &str) -> Option<Arc<Requests>> {
        let (process, requests) = lock(&self.ports).get(address).cloned()?;
        (process == std::process::id() && !requests.is_over()).then_some(requests)
    }

    /// Opens a port, asks for a connection over it, and has a thread carry it.
    fn begin(
        &self,
        address: &Address,
        deadline: Instant,
    ) -> Result<(Arc<Requests>, Opened), TransportError> {
        let port = open_port(address, deadline)?;
        let failed = |source| TransportError::Io {
            action: format!("connect to {address}"),
            source,
        };
        let mut nonce = [0; frame::NONCE_BYTES];
        getrandom::fill(&mut nonce)
            .map_err(|error| failed(std::io::Error::other(error.to_string())))?;
        let requests = Arc::new(Requests::new().map_err(|errno| failed(errno.into()))?);
        let opened = requests
            .open()
            .map_err(|errno| failed(errno.into()))?
            .expect("its thread has not begun");
        let mux = Mux::client(port, Arc::clone(&requests), nonce);
        let text = address.to_string();
        thread::Builder::new()
            .name("towline-port".into())
            .spawn(move || {
                let ended = mux.run();
                log::debug!("{text}: {ended}");
            })
            .map_err(failed)?;
        let entry = (std::process::id(), Arc::clone(&requests));
        lock(&self.ports).insert(address.rest().to_owned(), entry);
        Ok((requests, opened))
    }
}

/// The user's end of a connection that was asked for, and where the answer will come.
type Opened = (OwnedFd, std::sync::mpsc::Receiver<bool>);

impl Transport for VirtioSerialTransport {
    fn scheme(&self) -> &'static str {
        "virtio-serial"
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
        path(address)?;
        let deadline = Instant::now() + options.timeout;
        // The port that this process has may be about to close, or its server; then another look is worth it, but not where the
        // port cannot be had twice.
        if let Some(requests) = self.known(address.rest()) {
            let opened = requests
                .open()
                .map_err(|errno| io_error(format!("connect to {address}"), errno))?;
            if let Some(opened) = opened {
                match answer(address, &requests, opened, options, deadline) {
                    Err(TransportError::ConnectionRefused { .. })
                        if requests.is_over() || is_socket(address) => {}
                    answered => return answered,
                }
            }
        }
        let (requests, opened) = self.begin(address, deadline)?;
        answer(address, &requests, opened, options, deadline)
    }

    fn listen(&self, address: &Address) -> Result<Box<dyn Listener>, TransportError> {
        let path = path(address)?.to_owned();
        let failed = |source| TransportError::Io {
            action: format!("listen on {address}"),
            source,
        };
        let socket = bind(&path).map_err(|error| match error.kind() {
            std::io::ErrorKind::AddrInUse => TransportError::AddressInUse {
                address: address.to_string(),
            },
            _ => failed(error),
        })?;
        let closed = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| failed(errno.into()))?;
        let listener = PortListener {
            socket: Arc::new(socket),
            closed: Arc::new(closed),
            backlog: Arc::default(),
            path,
            local: address.clone(),
        };
        listener.serve().map_err(failed)?;
        Ok(Box::new(listener))
    }

    fn adopt(&self, descriptor: OwnedFd) -> Result<Arc<dyn Connection>, TransportError> {
        let check = || {
            let is_ours = sockopt::socket_domain(&descriptor)? == AddressFamily::UNIX
                && sockopt::socket_type(&descriptor)? == SocketType::STREAM;
            if !is_ours {
                return Err(Errno::PROTOTYPE);
            }
            rustix::io::ioctl_fionbio(&descriptor, false)
        };
        check().map_err(|errno| {
            io_error(
                "adopt a descriptor as a virtio-serial connection".into(),
                errno,
            )
        })?;
        Ok(Arc::new(SocketConnection {
            socket: descriptor,
            peer: "virtio-serial:".to_owned(),
        }))
    }
}

fn path(address: &Address) -> Result<&Path, TransportError> {
    let advice = match address.scheme() {
        "virtio-serial" if address.rest().starts_with('/') => {
            return Ok(Path::new(address.rest()));
        }
        "virtio-serial" => {
            "write a whole path: virtio-serial:/dev/virtio-ports/org.towline in a machine, virtio-serial:/run/towline.sock to listen"
        }
        _ => "the virtio-serial transport takes virtio-serial:PATH",
    };
    Err(TransportError::InvalidAddress {
        text: address.to_string(),
        advice: advice.into(),
    })
}

fn is_socket(address: &Address) -> bool {
    fs::metadata(address.rest()).is_ok_and(|found| found.file_type().is_socket())
}

/// Waits for the answer to a connection that was asked for.
fn answer(
    address: &Address,
    requests: &Requests,
    (socket, answered): Opened,
    options: &ConnectOptions,
    deadline: Instant,
) -> Result<Arc<dyn Connection>, TransportError> {
    let left = deadline.saturating_duration_since(Instant::now());
    let refused = || TransportError::ConnectionRefused {
        address: address.to_string(),
    };
    match answered.recv_timeout(left) {
        Ok(true) => Ok(Arc::new(SocketConnection {
            socket,
            peer: address.to_string(),
        })),
        Ok(false) => Err(refused()),
        Err(RecvTimeoutError::Timeout) => Err(TransportError::TimedOut {
            address: address.to_string(),
            timeout: options.timeout,
        }),
        Err(RecvTimeoutError::Disconnected) => match requests.reason() {
            Some(reason) => Err(TransportError::Lost {
                peer: address.to_string(),
                reason,
            }),
            None => Err(refused()),
        },
    }
}

/// Opens the port of an address, or the first free one of several.
fn open_port(address: &Address, deadline: Instant) -> Result<OwnedFd, TransportError> {
    let path = path(address)?;
    let failed = |action: String, source| TransportError::Io { action, source };
    loop {
        let candidates = candidates(path);
        if candidates.is_empty() {
            // A socket that is not there any more is a server that is not there any more.
            return Err(match path.starts_with("/dev") {
                false => TransportError::ConnectionRefused {
                    address: address.to_string(),
                },
                true => failed(
                    format!(
                        "connect to {address}: this machine has no such port; give it one (`towline vm` does), or see what it has in \
                         /dev/virtio-ports"
                    ),
                    std::io::ErrorKind::NotFound.into(),
                ),
            });
        }
        for candidate in candidates {
            match open_one(&candidate) {
                Ok(port) => return Ok(port),
                Err(error) => match Errno::from_io_error(&error) {
                    Some(Errno::BUSY) => {}
                    Some(Errno::CONNREFUSED | Errno::NOENT) => {
                        return Err(TransportError::ConnectionRefused {
                            address: address.to_string(),
                        });
                    }
                    _ => return Err(failed(format!("open {}", candidate.display()), error)),
                },
            }
        }
        if Instant::now() >= deadline {
            return Err(failed(
                format!(
                    "connect to {address}: other processes have all of its ports; give the machine more (`towline vm` gives it 4)"
                ),
                Errno::BUSY.into(),
            ));
        }
        thread::sleep(RETRY);
    }
}

fn open_one(path: &Path) -> std::io::Result<OwnedFd> {
    let kind = fs::metadata(path)?.file_type();
    let port = match kind.is_socket() {
        true => UnixStream::connect(path)?.into(),
        // A turn of a connection writes, which a file would keep.
        false if !kind.is_char_device() => {
            let what = "it is no port of a machine, and no socket";
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, what));
        }
        false => {
            let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
            rustix::fs::open(path, flags, Mode::empty())?
        }
    };
    rustix::io::ioctl_fionbio(&port, true)?;
    Ok(port)
}

/// The path itself, or those that begin with it and end with a dot and a number.
fn candidates(path: &Path) -> Vec<PathBuf> {
    if path.exists() {
        return vec![path.to_owned()];
    }
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Vec::new();
    };
    let prefix = format!("{}.", name.to_string_lossy());
    let entries = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(Result::ok);
    let mut found: Vec<(u32, PathBuf)> = entries
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let number = name.strip_prefix(&prefix)?.parse().ok()?;
            Some((number, entry.path()))
        })
        .collect();
    found.sort();
    found.into_iter().map(|(_, path)| path).collect()
}

/// Takes the place of a socket that a server left behind, and of nothing else.
fn bind(path: &Path) -> std::io::Result<UnixListener> {
    let listener = UnixListener::bind(path).or_else(|error| {
        let is_left = error.kind() == std::io::ErrorKind::AddrInUse
            && fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket())
            && UnixStream::connect(path)
                .is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused);
        if !is_left {
            return Err(error);
        }
        fs::remove_file(path)?;
        UnixListener::bind(path)
    })?;
    // QEMU runs as a user of its own. Whoever comes has to prove who they are; the folder can keep others away.
    fs::set_permissions(path, fs::Permissions::from_mode(0o666))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Connections that wait to be accepted; `None` once the listener is closed.
struct Backlog {
    waiting: Mutex<Option<VecDeque<SocketConnection>>>,
    arrived: Condvar,
    ports: AtomicUsize,
}

impl Default for Backlog {
    fn default() -> Self {
        Self {
            waiting: Mutex::new(Some(VecDeque::new())),
            arrived: Condvar::new(),
            ports: AtomicUsize::new(0),
        }
    }
}

impl Backlog {
    fn push(&self, connection: SocketConnection) -> bool {
        let mut waiting = lock(&self.waiting);
        let Some(queue) = waiting.as_mut().filter(|queue| queue.len() < BACKLOG) else {
            return false;
        };
        queue.push_back(connection);
        self.arrived.notify_one();
        true
    }
}

struct PortListener {
    socket: Arc<UnixListener>,
    /// Readable once it is closed.
    closed: Arc<OwnedFd>,
    backlog: Arc<Backlog>,
    path: PathBuf,
    local: Address,
}

impl PortListener {
    /// Has threads take ports, and connections over them.
    fn serve(&self) -> std::io::Result<()> {
        let socket = Arc::clone(&self.socket);
        let closed = Arc::clone(&self.closed);
        let backlog = Arc::clone(&self.backlog);
        let local = self.local.to_string();
        thread::Builder::new()
            .name("towline-ports".into())
            .spawn(move || {
                loop {
                    let mut waited = [
                        PollFd::new(&*socket, PollFlags::IN),
                        PollFd::new(&*closed, PollFlags::IN),
                    ];
                    match poll(&mut waited, None) {
                        Ok(_) | Err(Errno::INTR) => {}
                        Err(errno) => return log::error!("{local}: {errno}"),
                    }
                    if lock(&backlog.waiting).is_none() {
                        return;
                    }
                    match socket.accept() {
                        Ok((port, _)) => take_port(port, &local, &closed, &backlog),
                        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                        Err(error) => {
                            log::warn!("{local}: cannot accept a port: {error}");
                            thread::sleep(RETRY);
                        }
                    }
                }
            })
            .map(drop)
    }
}

/// Has a thread carry the connections of a port that QEMU has connected.
fn take_port(port: UnixStream, local: &str, closed: &Arc<OwnedFd>, backlog: &Arc<Backlog>) {
    if backlog.ports.fetch_add(1, Ordering::AcqRel) >= MAX_PORTS {
        backlog.ports.fetch_sub(1, Ordering::AcqRel);
        return log::warn!("{local}: more than {MAX_PORTS} ports: refused another");
    }
    let (here, ports) = (local.to_owned(), Arc::clone(backlog));
    let accept = {
        let (here, backlog) = (local.to_owned(), Arc::clone(backlog));
        move |channel: u32, socket| {
            backlog.push(SocketConnection {
                socket,
                peer: format!("{here} (connection {channel})"),
            })
        }
    };
    let role = Role::Server {
        accept: Box::new(accept),
        closed: Arc::clone(closed),
    };
    let started = port.set_nonblocking(true).and_then(|()| {
        let mux = Mux::server(port.into(), role);
        thread::Builder::new()
            .name("towline-port".into())
            .spawn(move || {
                match mux.run() {
                    mux::Ended::Protocol(error) => log::warn!("{here}: a port is closed: {error}"),
                    ended => log::debug!("{here}: a port is gone: {ended}"),
                }
                ports.ports.fetch_sub(1, Ordering::AcqRel);
            })
            .map(drop)
    });
    if let Err(error) = started {
        backlog.ports.fetch_sub(1, Ordering::AcqRel);
        log::warn!("{local}: cannot take a port: {error}");
    }
}

impl Listener for PortListener {
    fn accept(&self) -> Result<Arc<dyn Connection>, TransportError> {
        let mut waiting = lock(&self.backlog.waiting);
        loop {
            let queue = waiting
                .as_mut()
                .ok_or_else(|| TransportError::ListenerClosed {
                    address: self.local.to_string(),
                })?;
            match queue.pop_front() {
                Some(connection) => return Ok(Arc::new(connection)),
                None => {
                    waiting = self
                        .backlog
                        .arrived
                        .wait(waiting)
                        .unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    fn local_address(&self) -> Address {
        self.local.clone()
    }

    fn close(&self) {
        if lock(&self.backlog.waiting).take().is_none() {
            return;
        }
        self.backlog.arrived.notify_all();
        // Refuses from now on, whatever threads still have it.
        let _ = rustix::net::shutdown(&*self.socket, Shutdown::Both);
        let _ = fs::remove_file(&self.path);
        mux::wake(&self.closed);
    }
}

impl Drop for PortListener {
    fn drop(&mut self) {
        self.close();
    }
}

/// Locks for state that no panic leaves half-changed: each change is one call of a collection.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::io::{IoSlice, Read, Write};

    use super::*;

    fn soon() -> ConnectOptions {
        ConnectOptions {
            timeout: Duration::from_secs(5),
            ..ConnectOptions::default()
        }
    }

    /// A folder for sockets, a listener in it, and its address.
    fn listener() -> (tempfile::TempDir, Box<dyn Listener>, Address) {
        let folder = tempfile::tempdir().unwrap();
        let address: Address = format!("virtio-serial:{}/server", folder.path().display())
            .parse()
            .unwrap();
        let listener = VirtioSerialTransport::new().listen(&address).unwrap();
        (folder, listener, address)
    }

    #[test]
    fn a_process_has_one_port_for_all_its_connections() {
        let (_folder, listener, address) = listener();
        let transport = VirtioSerialTransport::new();
        let pairs: Vec<_> = (0..8)
            .map(|_| {
                let client = transport.connect(&address, &soon()).unwrap();
                (client, listener.accept().unwrap())
            })
            .collect();
        assert_eq!(lock(&transport.ports).len(), 1);
        for (number, (client, server)) in (0_u8..).zip(&pairs) {
            client.send(&[IoSlice::new(&[number])]).unwrap();
            let mut received = [0];
            crate::recv_exact(&**server, &mut received).unwrap();
            assert_eq!(received, [number]);
        }
    }

    #[test]
    fn who_does_not_read_holds_up_nobody_else() {
        let (_folder, listener, address) = listener();
        let transport = VirtioSerialTransport::new();
        let [stuck, free] = [(); 2].map(|()| {
            let client = transport.connect(&address, &soon()).unwrap();
            (client, listener.accept().unwrap())
        });
        // Full once it takes nothing for a while; nobody reads the other end.
        let mut refusals = 0;
        while refusals < 20 {
            match stuck.0.try_send(&[0; 4096]).unwrap() {
                0 => {
                    refusals += 1;
                    thread::sleep(Duration::from_millis(1));
                }
                _ => refusals = 0,
            }
        }
        let bytes = vec![7; 1 << 20];
        let mut received = vec![0; bytes.len()];
        thread::scope(|scope| {
            scope.spawn(|| free.0.send(&[IoSlice::new(&bytes)]).unwrap());
            crate::recv_exact(&*free.1, &mut received).unwrap();
        });
        assert!(received == bytes);
    }

    /// A client as bytes: what QEMU passes on from a machine.
    fn raw(address: &Address) -> UnixStream {
        let port = UnixStream::connect(address.rest()).unwrap();
        port.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        port
    }

    fn begin(nonce: [u8; frame::NONCE_BYTES]) -> Vec<u8> {
        let mut bytes = vec![0; frame::PREAMBLE_BYTES];
        let version = frame::VERSION;
        frame::Frame::Hello { version, nonce }.write(&mut bytes);
        frame::Frame::Open { channel: 0 }.write(&mut bytes);
        bytes
    }

    #[test]
    fn who_takes_a_port_anew_ends_what_was_before() {
        let (_folder, listener, address) = listener();
        let mut port = raw(&address);
        port.write_all(&begin([1; 16])).unwrap();
        let before = listener.accept().unwrap();
        let mut data = Vec::new();
        let bytes = &[0xaa; 1000];
        frame::Frame::Data { channel: 0, bytes }.write(&mut data);
        // Killed in the middle of a frame.
        port.write_all(&data[..500]).unwrap();
        port.write_all(&begin([2; 16])).unwrap();
        let after = listener.accept().unwrap();
        let mut left = Vec::new();
        let mut buffer = [0; 4096];
        loop {
            match before.recv(&mut buffer).unwrap() {
                0 => break,
                received => left.extend_from_slice(&buffer[..received]),
            }
        }
        assert!(left.len() <= 1000, "{}", left.len());
        port.write_all(&data).unwrap();
        let mut received = [0; 1000];
        crate::recv_exact(&*after, &mut received).unwrap();
        assert_eq!(received, *bytes);
    }

    /// Writes until the other end closes the port.
    fn is_closed(mut port: UnixStream, bytes: &[u8]) -> bool {
        let written = (0..64).try_for_each(|_| port.write_all(bytes));
        let mut rest = Vec::new();
        // A socket that is closed before all was read of it resets.
        let closed = match port.read_to_end(&mut rest) {
            Ok(_) => true,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        };
        written.is_err() || closed
    }

    #[test]
    fn a_machine_that_breaks_the_rules_loses_its_port_and_no_other() {
        let (_folder, listener, address) = listener();
        let transport = VirtioSerialTransport::new();
        let client = transport.connect(&address, &soon()).unwrap();
        let server = listener.accept().unwrap();
        assert!(is_closed(raw(&address), &[0xff; 64]), "no frame");
        let mut twice = begin([1; 16]);
        frame::Frame::Open { channel: 0 }.write(&mut twice);
        assert!(is_closed(raw(&address), &twice), "a number twice");
        let mut port = raw(&address);
        port.write_all(&begin([1; 16])).unwrap();
        let _unread = (listener.accept().unwrap(), listener.accept().unwrap());
        let mut data = Vec::new();
        let bytes = &[0; frame::MAX_PAYLOAD_BYTES];
        frame::Frame::Data { channel: 0, bytes }.write(&mut data);
        assert!(is_closed(port, &data), "more than the window");
        client.send(&[IoSlice::new(b"still here")]).unwrap();
        let mut received = [0; 10];
        crate::recv_exact(&*server, &mut received).unwrap();
        assert_eq!(&received, b"still here");
    }

    #[test]
    fn a_process_takes_a_free_one_of_several_ports() {
        let folder = tempfile::tempdir().unwrap();
        let ports = folder.path().join("org.towline");
        for name in [
            "org.towline.10",
            "org.towline.2",
            "org.towline.x",
            "org.other.1",
        ] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let names: Vec<_> = candidates(&ports)
            .into_iter()
            .map(|path| path.file_name().unwrap().to_owned())
            .collect();
        assert_eq!(names, ["org.towline.2", "org.towline.10"]);
        assert_eq!(candidates(&folder.path().join("org.towline.2")).len(), 1);
    }

    #[test]
    fn a_socket_that_a_server_left_behind_is_taken_over_and_a_file_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("server");
        drop(UnixListener::bind(&path).unwrap());
        let address: Address = format!("virtio-serial:{}", path.display()).parse().unwrap();
        let transport = VirtioSerialTransport::new();
        drop(transport.listen(&address).unwrap());
        fs::write(&path, "mine").unwrap();
        assert!(transport.listen(&address).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
    }

    #[test]
    fn a_file_is_no_port() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "mine").unwrap();
        let address = format!("virtio-serial:{}", path.display()).parse().unwrap();
        let error = VirtioSerialTransport::new()
            .connect(&address, &soon())
            .err();
        let error = format!("{:?}", error.expect("it is none"));
        assert!(error.contains("no port of a machine"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
    }

    #[test]
    fn a_machine_without_the_port_says_where_to_look() {
        let address = "virtio-serial:/dev/virtio-ports/org.towline.none"
            .parse()
            .unwrap();
        let error = VirtioSerialTransport::new()
            .connect(&address, &soon())
            .err()
            .expect("there is none");
        assert!(error.to_string().contains("has no such port"), "{error}");
    }
}
