//! A way to a server over TCP that breaks at a chosen byte.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Most connections of one client, with those that it makes again.
const CONNECTIONS: usize = 16 << 10;

/// A direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Towards {
    Client = 0,
    Server = 1,
}

/// How the way breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Break {
    /// Both ends get a reset; what is on its way is lost.
    Reset,
    /// As [`Break::Reset`], of all connections.
    ResetAll,
    /// One bit is changed on its way, and all goes on.
    Flip,
    /// The receiver finds the end of this direction, and what follows is dropped; the opposite direction goes on.
    HalfClose,
}

/// Where and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    /// The connection, in the order in which they were made.
    pub(crate) connection: usize,
    pub(crate) towards: Towards,
    pub(crate) at_bytes: u64,
    pub(crate) kind: Break,
}

/// One connection: both sockets, and the bytes that went either way.
struct Way {
    sockets: [TcpStream; 2],
    bytes: [AtomicU64; 2],
}

impl Way {
    fn reset(&self) {
        for socket in &self.sockets {
            // A connection that is gone already needs no reset.
            let _ = rustix::net::sockopt::set_socket_linger(socket, Some(Duration::ZERO));
            let _ = rustix::net::connect_unspec(socket);
        }
    }
}

struct Shared {
    server: SocketAddr,
    cut: Option<Cut>,
    ways: Mutex<Vec<Arc<Way>>>,
    ended: AtomicBool,
    struck: AtomicBool,
    /// Nothing gets through.
    away: AtomicBool,
}

/// Listens on this machine, and passes what clients send on to a server.
pub(crate) struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

impl Proxy {
    /// A way to the server at `server` that breaks so, or not at all.
    pub(crate) fn to(server: &str, cut: Option<Cut>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let server = server.strip_prefix("tcp://").unwrap_or(server);
        let shared = Arc::new(Shared {
            server: server.parse().expect("an address of this machine"),
            cut,
            ways: Mutex::default(),
            ended: AtomicBool::new(false),
            struck: AtomicBool::new(false),
            away: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&shared);
        let acceptor = std::thread::spawn(move || {
            for client in listener.incoming().take(CONNECTIONS) {
                if accepting.ended.load(Ordering::SeqCst) {
                    return;
                }
                // A client that is gone is its own matter.
                let Ok(client) = client else { continue };
                if accepting.away.load(Ordering::SeqCst) {
                    continue;
                }
                let Ok(server) = TcpStream::connect(accepting.server) else {
                    return;
                };
                accepting.pass(client, server);
            }
        });
        Self {
            address,
            shared,
            acceptor: Some(acceptor),
        }
    }

    /// Where clients find it.
    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    /// Bytes of each connection so far, to the client and to the server.
    pub(crate) fn traffic(&self) -> Vec<[u64; 2]> {
        let ways = lock(&self.shared.ways);
        let bytes = |way: &Arc<Way>| {
            [Towards::Client, Towards::Server]
                .map(|at| way.bytes[at as usize].load(Ordering::SeqCst))
        };
        ways.iter().map(bytes).collect()
    }

    /// Breaks every connection.
    pub(crate) fn reset_all(&self) {
        lock(&self.shared.ways)
            .drain(..)
            .for_each(|way| way.reset());
    }

    /// Breaks every connection and lets none through from now on, or lets them through again.
    pub(crate) fn set_away(&self, away: bool) {
        self.shared.away.store(away, Ordering::SeqCst);
        if away {
            self.reset_all();
        }
    }

    /// Whether it has broken as planned.
    pub(crate) fn struck(&self) -> bool {
        self.shared.struck.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        // It accepts once more, and sees that it is over.
        let _ = TcpStream::connect(self.address);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
        for way in lock(&self.shared.ways).iter() {
            way.sockets.iter().for_each(|socket| {
                let _ = socket.shutdown(Shutdown::Both);
            });
        }
    }
}

impl Shared {
    fn pass(self: &Arc<Self>, client: TcpStream, server: TcpStream) {
        for socket in [&client, &server] {
            // Slower without, not wrong.
            let _ = socket.set_nodelay(true);
        }
        let way = Arc::new(Way {
            sockets: [client, server],
            bytes: Default::default(),
        });
        let number = {
            let mut ways = lock(&self.ways);
            ways.push(Arc::clone(&way));
            ways.len() - 1
        };
        for towards in [Towards::Client, Towards::Server] {
            let (shared, way) = (Arc::clone(self), Arc::clone(&way));
            std::thread::spawn(move || shared.pump(&way, number, towards));
        }
    }

    /// Passes one direction on until it ends.
    fn pump(&self, way: &Way, number: usize, towards: Towards) {
        let [from, to] = match towards {
            Towards::Client => [&way.sockets[1], &way.sockets[0]],
            Towards::Server => [&way.sockets[0], &way.sockets[1]],
        };
        let (mut from, mut to) = (from, to);
        let cut = self
            .cut
            .filter(|cut| (cut.connection, cut.towards) == (number, towards));
        let (mut buffer, mut passed) = ([0; 16 << 10], 0);
        let mut severed = false;
        loop {
            let count = match from.read(&mut buffer) {
                Ok(count) if count > 0 => count,
                _ => break,
            };
            if let Some(cut) = cut.filter(|cut| cut.kind == Break::Flip)
                && let Some(byte) = usize::try_from(cut.at_bytes.wrapping_sub(passed))
                    .ok()
                    .and_then(|at| buffer[..count].get_mut(at))
            {
                *byte ^= 1 << (cut.at_bytes % 8);
                self.struck.store(true, Ordering::SeqCst);
            }
            let cut = cut.filter(|cut| cut.kind != Break::Flip);
            let left = cut.map_or(u64::MAX, |cut| cut.at_bytes.saturating_sub(passed));
            let sound = usize::try_from(left).map_or(count, |left| left.min(count));
            if !severed && to.write_all(&buffer[..sound]).is_err() {
                break;
            }
            passed += sound as u64;
            way.bytes[towards as usize].store(passed, Ordering::SeqCst);
            if let Some(cut) = cut.filter(|_| sound < count && !severed) {
                self.struck.store(true, Ordering::SeqCst);
                match cut.kind {
                    Break::Reset => way.reset(),
                    Break::ResetAll => lock(&self.ways).iter().for_each(|way| way.reset()),
                    // Not of those that sever.
                    Break::Flip => {}
                    Break::HalfClose => {
                        let _ = to.shutdown(Shutdown::Write);
                    }
                }
                severed = true;
            }
        }
        // The end of this direction is the receiver's to know.
        let _ = to.shutdown(Shutdown::Write);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
