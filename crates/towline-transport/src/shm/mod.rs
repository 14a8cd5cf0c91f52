//! Shared memory, for peers on one host, in containers too: `shm:///run/towline/local.sock`, or `local`.
//!
//! A connection begins at a Unix socket. A control connection stays there. A lane has memory that both sides map, made and sealed by who
//! connects, with a ring each way ([`ring`]); the socket then only wakes a side that sleeps, passes descriptors, and tells that the peer
//! is gone, which the kernel notices at once. Nothing of it has a name but the socket, so nothing is left behind.
//!
//! The first bytes of a lane travel beside its memory. So a supervisor that reads a preamble and passes the lane on maps nothing of
//! what a stranger sent.
//!
//! # Who may connect
//!
//! Whoever may write to the socket's file: see [`Access`](place::Access). A socket that is its owner's alone refuses also those whom
//! file permissions do not hold, other than root.

mod connection;
mod credentials;
mod door;
mod foreign;
mod hello;
mod place;
pub mod ring;
mod view;

use std::ffi::OsStr;
use std::fs::Metadata;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::{AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::geteuid;

pub use self::foreign::{is_memory, put_away};

pub(crate) use self::connection::{Ferried, ShmConnection};
pub(crate) use self::view::View;

use self::credentials::Credentials;
use self::place::Place;
use crate::socket::io_error;
use crate::{
    Address, Capabilities, ConnectOptions, Connection, Listener, Listening, Transport,
    TransportError,
};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;

/// The transport for `shm://`.
#[derive(Debug, Default)]
pub struct ShmTransport;

impl ShmTransport {
    /// The transport; the registry has one already.
    pub fn new() -> Self {
        Self
    }
}

impl Transport for ShmTransport {
    fn scheme(&self) -> &'static str {
        "shm"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            passes_descriptors: true,
            crosses_hosts: false,
            over_network: false,
        }
    }

    fn connect(
        &self,
        address: &Address,
        options: &ConnectOptions,
    ) -> Result<Arc<dyn Connection>, TransportError> {
        let place = Place::of(address)?;
        let mut failure = Errno::NOENT;
        for path in place.to_connect() {
            let socket = match connect_one(&path) {
                Ok(socket) => socket,
                Err(errno) => {
                    // Of several places the one where something is has more to say.
                    if errno != Errno::NOENT {
                        failure = errno;
                    }
                    continue;
                }
            };
            let peer = format!("shm://{}", path.display());
            let action = || format!("begin the connection to {peer}");
            // A control connection carries little, and its peer is a supervisor, which maps nothing.
            let connection = match options.unacknowledged_timeout {
                Some(_) => ShmConnection::plain(socket, peer.clone())
                    .map_err(|errno| io_error(action(), errno))?,
                None => ShmConnection::with_rings(socket, peer.clone(), options.buffer_bytes)
                    .map_err(|source| TransportError::Io {
                        action: action(),
                        source,
                    })?,
            };
            return Ok(Arc::new(connection));
        }
        Err(connect_error(address, failure))
    }

    fn listen(&self, address: &Address) -> Result<Box<dyn Listener>, TransportError> {
        listen(address, false)
    }

    fn listen_on(&self, socket: OwnedFd) -> Result<Listening, TransportError> {
        let local = rustix::net::getsockname(&socket).map(SocketAddrUnix::try_from);
        let path = match &local {
            Ok(Ok(local)) => local.path_bytes().map(OsStr::from_bytes),
            _ => None,
        };
        let Some(path) = path.map(PathBuf::from) else {
            return Ok(Listening::NotOurs(socket));
        };
        let action = || format!("listen on the socket {}", path.display());
        let file = path
            .symlink_metadata()
            .map_err(|source| TransportError::Io {
                action: action(),
                source,
            })?;
        let mode = Mode::from_raw_mode(file.mode() & 0o777);
        Ok(Listening::Here(Box::new(ShmListener {
            socket,
            local: Address::parse(&format!(
                "shm://{}?mode={:o}",
                path.display(),
                file.mode() & 0o666
            ))?,
            // The file stays its maker's.
            made: None,
            path,
            only_owner: !mode.intersects(Mode::RWXG | Mode::RWXO),
            plain: false,
            closed: AtomicBool::new(false),
        })))
    }

    fn adopt(&self, descriptor: OwnedFd) -> Result<Arc<dyn Connection>, TransportError> {
        match ShmConnection::from_passport(&descriptor) {
            Ok(connection) => Ok(Arc::new(connection)),
            Err(source) => Err(TransportError::Io {
                action: "adopt a descriptor as an shm connection".into(),
                source,
            }),
        }
    }
}

/// Listens on the socket of an `shm` address for programs that know nothing of this transport: their bytes come as they are.
pub fn listen_plainly(address: &Address) -> Result<Box<dyn Listener>, TransportError> {
    listen(address, true)
}

fn listen(address: &Address, plain: bool) -> Result<Box<dyn Listener>, TransportError> {
    let place = Place::of(address)?;
    let path = place.to_listen()?;
    let mode = place.access.mode();
    let failed = |errno: Errno| match errno {
        Errno::ADDRINUSE => TransportError::AddressInUse {
            address: address.to_string(),
        },
        errno => io_error(format!("listen on {address}"), errno),
    };
    let socket = match bind(&path) {
        Err(Errno::ADDRINUSE) if is_abandoned(&path) => {
            // A server that was killed leaves its socket behind.
            rustix::fs::unlink(&path).map_err(failed)?;
            bind(&path)
        }
        outcome => outcome,
    }
    .map_err(failed)?;
    let made = path.symlink_metadata();
    let listener = ShmListener {
        socket,
        local: Address::parse(&format!("shm://{}", path.display()))?,
        made: made.ok(),
        path,
        only_owner: !mode.intersects(Mode::RWXG | Mode::RWXO),
        plain,
        closed: AtomicBool::new(false),
    };
    if let Some(group) = place.access.group() {
        rustix::fs::chown(&listener.path, None, Some(group)).map_err(failed)?;
    }
    rustix::fs::chmod(&listener.path, mode).map_err(failed)?;
    // Only now can anybody connect.
    rustix::net::listen(&listener.socket, BACKLOG).map_err(failed)?;
    Ok(Box::new(listener))
}

fn open() -> Result<OwnedFd, Errno> {
    rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
}

fn connect_one(path: &Path) -> Result<OwnedFd, Errno> {
    let socket = open()?;
    // Waits only while more connections wait to be accepted than fit.
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

fn bind(path: &Path) -> Result<OwnedFd, Errno> {
    let socket = open()?;
    // The file gets this mode from its first moment.
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// Whether a socket lies there that nobody listens on.
fn is_abandoned(path: &Path) -> bool {
    place::is_socket(path) && matches!(connect_one(path), Err(Errno::CONNREFUSED))
}

fn connect_error(address: &Address, errno: Errno) -> TransportError {
    match errno {
        Errno::NOENT | Errno::CONNREFUSED | Errno::NOTDIR => TransportError::ConnectionRefused {
            address: address.to_string(),
        },
        errno => io_error(format!("connect to {address}"), errno),
    }
}

struct ShmListener {
    socket: OwnedFd,
    local: Address,
    path: PathBuf,
    /// The file that we made: another server may have put its own in that place since.
    made: Option<Metadata>,
    only_owner: bool,
    /// Connections have no hello.
    plain: bool,
    closed: AtomicBool,
}

impl ShmListener {
    /// Who has come; in the error, why it must go.
    fn admit(&self, socket: &OwnedFd) -> Result<String, String> {
        let peer = Credentials::of_peer(socket).map_err(|errno| errno.to_string())?;
        let Credentials { process, user } = peer;
        if self.only_owner && user != 0 && user != geteuid().as_raw() {
            return Err(format!("user {user} is not this server's"));
        }
        Ok(format!("{} (process {process} of user {user})", self.local))
    }
}

impl Listener for ShmListener {
    fn accept(&self) -> Result<Arc<dyn Connection>, TransportError> {
        loop {
            match rustix::net::accept_with(&self.socket, SocketFlags::CLOEXEC) {
                Ok(socket) => match self.admit(&socket) {
                    Ok(peer) if self.plain => {
                        return Ok(Arc::new(ShmConnection::accepted_plain(socket, peer)));
                    }
                    Ok(peer) => return Ok(Arc::new(ShmConnection::accepted(socket, peer))),
                    Err(reason) => log::warn!("{}: turned a client away: {reason}", self.local),
                },
                Err(_) if self.closed.load(Ordering::Acquire) => {
                    return Err(TransportError::ListenerClosed {
                        address: self.local.to_string(),
                    });
                }
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
        if self.closed.swap(true, Ordering::AcqRel) {
            return;
        }
        // Ends the listening state and wakes `accept`. It fails only where that is already so.
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
        let same =
            |now: &Metadata, made: &Metadata| (now.dev(), now.ino()) == (made.dev(), made.ino());
        let now = self.path.symlink_metadata().ok();
        if now
            .zip(self.made.as_ref())
            .is_some_and(|(now, made)| same(&now, made))
        {
            let _ = rustix::fs::unlink(&self.path);
        }
    }
}

impl Drop for ShmListener {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests;
