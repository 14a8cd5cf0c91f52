//! One connection: how it begins, what is handed to another process, and the waiting around the rings.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, Shutdown, SocketFlags,
    SocketType,
};

use super::door::{self, Door};
use super::foreign::{self, MOST_AT_ONCE, put_away};
use super::hello::{Hello, Passport};
use super::ring::{Broken, Consumer, Producer};
use super::view::{self, Sizes, View};
use crate::shared_memory::SharedMemory;
use crate::socket::{SocketConnection, wait_for};
use crate::{Connection, TransportError};

/// Size of a ring where nothing else is asked for: large enough for a burst of launches, small enough for a core's own cache.
const RING_BYTES: usize = 1 << 20;
/// How long a thread that has nothing to take, or no room, looks on before it sleeps.
const GLANCE: Duration = Duration::from_micros(10);
/// Looks between two looks at the clock.
const LOOKS: u32 = 32;

/// Which side this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Connector,
    Acceptor,
}

/// See the module's text.
pub(crate) struct ShmConnection {
    /// The socket itself, and the whole connection where there is no memory.
    socket: SocketConnection,
    role: Role,
    closed: AtomicBool,
    /// This side has not sent its first bytes, and they are to go as the lead.
    lead_due: AtomicBool,
    door: Door,
    beginning: Mutex<Beginning>,
    kind: OnceLock<Kind>,
    passport: OnceLock<OwnedFd>,
}

/// What is known of a connection before it is known what it is.
#[derive(Default)]
struct Beginning {
    /// What has come of the greeting.
    heard: Vec<u8>,
    memory: Option<OwnedFd>,
}

/// What a connection is.
enum Kind {
    /// Bytes travel on the socket.
    Socket,
    /// Bytes travel in rings.
    Rings(Box<Rings>),
}

struct Rings {
    sizes: Sizes,
    /// The memory, until it is needed.
    file: Mutex<Option<OwnedFd>>,
    mapped: OnceLock<Mapped>,
}

/// One end of rings, without a connection around it.
pub(crate) struct Ferried {
    /// The bell: a byte rings it, and its end is the other side's.
    pub(crate) socket: OwnedFd,
    pub(crate) producer: Producer<View>,
    pub(crate) consumer: Consumer<View>,
}

struct Mapped {
    memory: Arc<SharedMemory>,
    producer: Mutex<Producer<View>>,
    consumer: Mutex<Consumer<View>>,
}

/// Why something on a connection did not work.
enum Fault {
    System(Errno),
    Memory(std::io::Error),
    Rules(String),
}

impl From<Errno> for Fault {
    fn from(errno: Errno) -> Self {
        Self::System(errno)
    }
}

impl From<Broken> for Fault {
    fn from(broken: Broken) -> Self {
        Self::Rules(broken.to_string())
    }
}

impl Mapped {
    fn new(memory: SharedMemory, sizes: Sizes, role: Role) -> Self {
        let memory = Arc::new(memory);
        let (to_acceptor, to_connector) = View::pair(Arc::clone(&memory), sizes);
        let (out, back) = match role {
            Role::Connector => (to_acceptor, to_connector),
            Role::Acceptor => (to_connector, to_acceptor),
        };
        Self {
            memory,
            producer: Mutex::new(Producer::new(out)),
            consumer: Mutex::new(Consumer::new(back)),
        }
    }
}

impl ShmConnection {
    fn new(socket: OwnedFd, peer: String, role: Role) -> Self {
        Self {
            socket: SocketConnection { socket, peer },
            role,
            closed: AtomicBool::new(false),
            lead_due: AtomicBool::new(false),
            door: Door::default(),
            beginning: Mutex::default(),
            kind: OnceLock::new(),
            passport: OnceLock::new(),
        }
    }

    /// One that was accepted; its peer says what it is to be.
    pub(super) fn accepted(socket: OwnedFd, peer: String) -> Self {
        Self::new(socket, peer, Role::Acceptor)
    }

    /// One that was accepted, with bytes on the socket and no greeting.
    pub(super) fn accepted_plain(socket: OwnedFd, peer: String) -> Self {
        let connection = Self::new(socket, peer, Role::Acceptor);
        connection.become_kind(Kind::Socket);
        connection
    }

    /// One that was connected, with bytes on the socket.
    pub(super) fn plain(socket: OwnedFd, peer: String) -> Result<Self, Errno> {
        door::send_with(&socket, &Hello::PLAIN.encode(), &[])?;
        let connection = Self::new(socket, peer, Role::Connector);
        connection.become_kind(Kind::Socket);
        Ok(connection)
    }

    /// One that was connected, with rings.
    pub(super) fn with_rings(
        socket: OwnedFd,
        peer: String,
        bytes: Option<usize>,
    ) -> std::io::Result<Self> {
        let sizes = Sizes::both(bytes.unwrap_or(RING_BYTES));
        let memory = view::make(sizes)?;
        let hello = Hello { sizes: Some(sizes) };
        door::send_with(&socket, &hello.encode(), &[memory.descriptor()])?;
        let connection = Self::new(socket, peer, Role::Connector);
        connection.lead_due.store(true, Ordering::Relaxed);
        connection.become_kind(Kind::Rings(Box::new(Rings::made(sizes, memory))));
        Ok(connection)
    }

    /// Rings of another transport, whose bytes this process ferries, and what another process takes its end over by
    /// ([`Self::from_passport`]).
    pub(crate) fn ferried(peer: &str, bytes: usize) -> std::io::Result<(Ferried, OwnedFd)> {
        let sizes = Sizes::both(bytes);
        let memory = Arc::new(view::make(sizes)?);
        let (near, far) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )?;
        let passport = Passport {
            role: Role::Acceptor,
            hello: Some(Hello { sizes: Some(sizes) }),
            peer: peer.to_owned(),
            led: true,
            heard: Vec::new(),
        };
        let bundle = bundle(&passport, &[far.as_fd(), memory.descriptor()])?;
        let (to_acceptor, to_connector) = View::pair(memory, sizes);
        let ferried = Ferried {
            socket: near,
            producer: Producer::new(to_acceptor),
            consumer: Consumer::new(to_connector),
        };
        Ok((ferried, bundle))
    }

    /// One that another process has begun.
    pub(crate) fn from_passport(bundle: &OwnedFd) -> std::io::Result<Self> {
        let (passport, descriptors) = receive_passport(bundle)?;
        let wrong = || std::io::Error::from(std::io::ErrorKind::InvalidData);
        let mut descriptors = descriptors.into_iter();
        let socket = descriptors.next().ok_or_else(wrong)?;
        let memory = descriptors.next();
        let connection = Self::new(socket, passport.peer, passport.role);
        let Some(hello) = passport.hello else {
            *lock(&connection.beginning) = Beginning {
                heard: passport.heard,
                memory,
            };
            return Ok(connection);
        };
        match hello.sizes {
            None => connection.become_kind(Kind::Socket),
            Some(sizes) => {
                match passport.role {
                    Role::Connector => connection.lead_due.store(!passport.led, Ordering::Relaxed),
                    Role::Acceptor => connection.door.expect_lead(passport.led, passport.heard),
                }
                let rings = Rings::over(sizes, memory.ok_or_else(wrong)?);
                connection.become_kind(Kind::Rings(Box::new(rings)));
            }
        }
        Ok(connection)
    }

    fn become_kind(&self, kind: Kind) {
        // Only who holds `beginning`, or the connection alone, comes here.
        let _ = self.kind.set(kind);
    }

    /// What this connection is; `None` when its peer has not said so yet, which is waited for with `wait` only, or is gone.
    fn kind(&self, wait: bool) -> Result<Option<&Kind>, Fault> {
        if let Some(kind) = self.kind.get() {
            return Ok(Some(kind));
        }
        self.be_greeted(wait)
    }

    /// Takes the greeting off the socket.
    fn be_greeted(&self, wait: bool) -> Result<Option<&Kind>, Fault> {
        loop {
            {
                let mut beginning = lock(&self.beginning);
                if self.kind.get().is_some() || self.hear(&mut beginning)? {
                    return Ok(self.kind.get());
                }
            }
            if self.door.gone() || !wait {
                return Ok(None);
            }
            // Not with the lock held: a look in passing must not wait for this one.
            wait_for(&self.socket.socket, PollFlags::IN | PollFlags::RDHUP, None)?;
        }
    }

    /// Hears what there is of the greeting; whether that is all of it.
    fn hear(&self, beginning: &mut Beginning) -> Result<bool, Fault> {
        loop {
            if let Some(bytes) = beginning.heard.first_chunk() {
                let kind = match (Hello::decode(bytes), beginning.memory.take()) {
                    (None, _) => {
                        let what = "it does not speak this version of shm: are both sides of the same release?";
                        return Err(Fault::Rules(what.into()));
                    }
                    (Some(Hello { sizes: None }), _) => Kind::Socket,
                    (Some(Hello { sizes: Some(_) }), None) => {
                        return Err(Fault::Rules("it sent no memory for the rings".into()));
                    }
                    (Some(Hello { sizes: Some(sizes) }), Some(memory)) => {
                        self.door.expect_lead(false, Vec::new());
                        Kind::Rings(Box::new(Rings::over(sizes, memory)))
                    }
                };
                self.become_kind(kind);
                return Ok(true);
            }
            let mut bytes = [0; Hello::BYTES];
            let room = &mut bytes[beginning.heard.len()..];
            let mut descriptors = Vec::new();
            match receive(&self.socket.socket, room, &mut descriptors) {
                Ok(0) | Err(Errno::CONNRESET) => {
                    self.door.look(&self.socket.socket)?;
                    return Ok(false);
                }
                Ok(count) => beginning.heard.extend_from_slice(&room[..count]),
                Err(Errno::AGAIN) => return Ok(false),
                Err(errno) => return Err(errno.into()),
            }
            for descriptor in descriptors {
                match foreign::is_memory(&descriptor) {
                    true => beginning.memory = Some(descriptor),
                    false => put_away(descriptor),
                }
            }
        }
    }

    /// Bytes on the socket, without the descriptors that come along.
    fn recv_plainly(&self, buffer: &mut [u8], wait: bool) -> Result<Option<usize>, Fault> {
        let socket = &self.socket.socket;
        loop {
            let mut descriptors = Vec::new();
            let received = receive(socket, buffer, &mut descriptors);
            descriptors.into_iter().for_each(put_away);
            match received {
                Ok(count) => return Ok(Some(count)),
                Err(Errno::AGAIN) if wait => wait_for(socket, PollFlags::IN, None).map(drop)?,
                Err(Errno::AGAIN) => return Ok(None),
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// The rings, mapped.
    fn mapped<'a>(&self, rings: &'a Rings) -> Result<&'a Mapped, Fault> {
        if let Some(mapped) = rings.mapped.get() {
            return Ok(mapped);
        }
        let mut file = lock(&rings.file);
        if let Some(file) = file.take() {
            let memory = view::open(file, rings.sizes).map_err(Fault::Memory)?;
            let _ = rings
                .mapped
                .set(Mapped::new(memory, rings.sizes, self.role));
        }
        drop(file);
        rings
            .mapped
            .get()
            .ok_or_else(|| Fault::Rules("its memory could not be mapped".into()))
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    #[cold]
    fn closed_error(&self) -> TransportError {
        TransportError::Closed {
            peer: self.socket.peer.clone(),
        }
    }

    #[cold]
    fn failed(&self, fault: Fault) -> TransportError {
        let reason = match fault {
            Fault::System(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => {
                return self.closed_error();
            }
            Fault::System(errno) => errno.to_string(),
            Fault::Memory(error) => error.to_string(),
            Fault::Rules(what) => what,
        };
        // A connection that has failed once does not come to itself again.
        self.shutdown();
        TransportError::Lost {
            peer: self.socket.peer.clone(),
            reason,
        }
    }

    /// Puts as much as there is room for.
    fn put(&self, mapped: &Mapped, bytes: &[u8]) -> Result<usize, Fault> {
        let mut producer = lock(&mapped.producer);
        let mut put = 0;
        loop {
            let count = producer.put(&bytes[put..])?;
            if count == 0 {
                return Ok(put);
            }
            put += count;
            if producer.must_ring() {
                self.door.ring(&self.socket.socket);
            }
            if put == bytes.len() {
                return Ok(put);
            }
        }
    }

    fn take(&self, mapped: &Mapped, buffer: &mut [u8]) -> Result<usize, Fault> {
        let mut consumer = lock(&mapped.consumer);
        let count = consumer.take(buffer)?;
        let must_ring = count > 0 && consumer.must_ring();
        drop(consumer);
        if must_ring {
            self.door.ring(&self.socket.socket);
        }
        Ok(count)
    }

    /// Looks again and again whether `ready`, for no longer than `patience`.
    fn look_out(
        &self,
        patience: Duration,
        mut ready: impl FnMut() -> Result<bool, Fault>,
    ) -> Result<bool, Fault> {
        if patience.is_zero() {
            return Ok(false);
        }
        let until = Instant::now() + patience;
        loop {
            for _ in 0..LOOKS {
                if ready()? || self.is_closed() {
                    return Ok(true);
                }
                std::hint::spin_loop();
            }
            if Instant::now() >= until {
                return Ok(false);
            }
            // The other side may be waiting for this very core.
            std::thread::yield_now();
        }
    }

    /// Waits for the lead; `false` when `deadline` passed first.
    fn wait_lead(&self, deadline: Option<Instant>) -> Result<bool, Fault> {
        self.door.sleep(&self.socket.socket, deadline, || {
            Ok(self.door.has_led() || self.is_closed())
        })
    }

    /// Waits for bytes; `false` when `deadline` passed first.
    fn wait_bytes(&self, mapped: &Mapped, deadline: Option<Instant>) -> Result<bool, Fault> {
        self.door.sleep(&self.socket.socket, deadline, || {
            let consumer = lock(&mapped.consumer);
            consumer.park();
            Ok(consumer.waiting()? > 0 || self.is_closed())
        })
    }

    /// Waits for room for `wanted` bytes, or a good part of the ring.
    fn wait_room(&self, mapped: &Mapped, wanted: usize) -> Result<(), Fault> {
        let glanced = self.look_out(glance(), || Ok(lock(&mapped.producer).has_room(wanted)?))?;
        if !glanced {
            self.door.sleep::<Fault>(&self.socket.socket, None, || {
                let mut producer = lock(&mapped.producer);
                producer.park();
                Ok(producer.has_room(wanted)? || self.is_closed())
            })?;
        }
        Ok(())
    }

    fn try_take(&self, rings: &Rings, buffer: &mut [u8]) -> Result<Option<usize>, Fault> {
        if self.is_closed() {
            return Ok(Some(0));
        }
        if self.door.leads() {
            if !self.door.has_led() {
                self.door.collect(&self.socket.socket)?;
            }
            return Ok(match self.door.take_lead(buffer) {
                0 => self.door.gone().then_some(0),
                count => Some(count),
            });
        }
        let mapped = self.mapped(rings)?;
        match self.take(mapped, buffer)? {
            0 => {}
            count => return Ok(Some(count)),
        }
        if !self.door.look(&self.socket.socket)? {
            return Ok(None);
        }
        // What was put before the end.
        self.take(mapped, buffer).map(Some)
    }

    fn take_or_wait(
        &self,
        rings: &Rings,
        buffer: &mut [u8],
        patience: Duration,
    ) -> Result<usize, Fault> {
        while self.door.leads() {
            match self.door.take_lead(buffer) {
                0 if self.is_closed() => return Ok(0),
                0 if self.door.gone() => {
                    // What was sent before the end may not have been looked at.
                    self.door.collect(&self.socket.socket)?;
                    return Ok(self.door.take_lead(buffer));
                }
                0 => self.wait_lead(None).map(drop)?,
                count => return Ok(count),
            }
        }
        let mapped = self.mapped(rings)?;
        let mut patience = patience;
        loop {
            if self.is_closed() {
                return Ok(0);
            }
            let gone = self.door.gone();
            let count = self.take(mapped, buffer)?;
            if count > 0 || gone {
                return Ok(count);
            }
            let ready = || Ok(lock(&mapped.consumer).waiting()? > 0);
            if !self.look_out(patience, ready)? {
                self.wait_bytes(mapped, None)?;
            }
            patience = Duration::ZERO;
        }
    }

    fn send_parts(&self, parts: &[IoSlice<'_>]) -> Result<(), Fault> {
        let rings = match self.kind(true)? {
            Some(Kind::Rings(rings)) => rings,
            Some(Kind::Socket) => return self.socket.send(parts).map_err(|_| Errno::PIPE.into()),
            None => return Err(Errno::PIPE.into()),
        };
        let mapped = self.mapped(rings)?;
        let mut led = self.lead(parts.iter().map(|part| &**part))?;
        for part in parts {
            let skipped = led.min(part.len());
            led -= skipped;
            let mut rest = &part[skipped..];
            loop {
                if self.is_closed() || self.door.gone() {
                    return Err(Errno::PIPE.into());
                }
                if rest.is_empty() {
                    break;
                }
                let put = self.put(mapped, rest)?;
                rest = &rest[put..];
                if !rest.is_empty() {
                    self.wait_room(mapped, rest.len())?;
                }
            }
        }
        Ok(())
    }

    /// Sends the first bytes of this side as the lead, where that is due, and says how many that were.
    #[inline]
    fn lead<'a>(&self, parts: impl Iterator<Item = &'a [u8]>) -> Result<usize, Fault> {
        if !self.lead_due.load(Ordering::Relaxed) {
            return Ok(0);
        }
        let parts: Vec<&[u8]> = parts.filter(|part| !part.is_empty()).collect();
        if parts.is_empty() || !self.lead_due.swap(false, Ordering::Relaxed) {
            return Ok(0);
        }
        Ok(door::send_lead(&self.socket.socket, &parts)?)
    }

    fn readable(&self, deadline: Option<Instant>) -> Result<bool, Fault> {
        let rings = loop {
            match self.kind(false)? {
                Some(Kind::Rings(rings)) => break rings,
                Some(Kind::Socket) => {
                    let left =
                        deadline.map(|until| until.saturating_duration_since(Instant::now()));
                    return Ok(wait_for(&self.socket.socket, PollFlags::IN, left)?);
                }
                None if self.door.gone() => return Ok(true),
                None => {
                    let left =
                        deadline.map(|until| until.saturating_duration_since(Instant::now()));
                    let events = PollFlags::IN | PollFlags::RDHUP;
                    if !wait_for(&self.socket.socket, events, left)? {
                        return Ok(false);
                    }
                }
            }
        };
        if self.door.leads() {
            return self.wait_lead(deadline);
        }
        self.wait_bytes(self.mapped(rings)?, deadline)
    }

    /// Everything that another process needs to go on with this connection, in the queue of a socket.
    fn make_passport(&self) -> Result<OwnedFd, Fault> {
        let beginning = lock(&self.beginning);
        let mut passport = Passport {
            role: self.role,
            hello: None,
            peer: self.socket.peer.clone(),
            led: !self.lead_due.load(Ordering::Relaxed),
            heard: beginning.heard.clone(),
        };
        let mut memory = beginning.memory.as_ref().map(|file| file.try_clone());
        match self.kind.get() {
            None => {}
            Some(Kind::Socket) => passport.hello = Some(Hello::PLAIN),
            Some(Kind::Rings(rings)) => {
                if self.role == Role::Acceptor {
                    (passport.led, passport.heard) = self.door.lead();
                }
                passport.hello = Some(Hello {
                    sizes: Some(rings.sizes),
                });
                memory = match rings.mapped.get() {
                    Some(mapped) => Some(mapped.memory.descriptor().try_clone_to_owned()),
                    None => lock(&rings.file).as_ref().map(|file| file.try_clone()),
                };
            }
        }
        let memory = memory.transpose().map_err(Fault::Memory)?;
        let mut descriptors = vec![self.socket.socket.as_fd()];
        descriptors.extend(memory.as_ref().map(|file| file.as_fd()));
        Ok(bundle(&passport, &descriptors)?)
    }
}

/// A passport and its descriptors, in the queue of a socket.
fn bundle(passport: &Passport, descriptors: &[BorrowedFd<'_>]) -> Result<OwnedFd, Errno> {
    let (near, far) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    door::send_with(&near, &passport.encode(), descriptors)?;
    Ok(far)
}

impl Rings {
    fn made(sizes: Sizes, memory: SharedMemory) -> Self {
        Self {
            sizes,
            file: Mutex::default(),
            mapped: OnceLock::from(Mapped::new(memory, sizes, Role::Connector)),
        }
    }

    fn over(sizes: Sizes, memory: OwnedFd) -> Self {
        Self {
            sizes,
            file: Mutex::new(Some(memory)),
            mapped: OnceLock::new(),
        }
    }
}

impl Connection for ShmConnection {
    fn send(&self, parts: &[IoSlice<'_>]) -> Result<(), TransportError> {
        match self.kind.get() {
            Some(Kind::Socket) => self.socket.send(parts),
            _ => self.send_parts(parts).map_err(|fault| self.failed(fault)),
        }
    }

    fn try_send(&self, bytes: &[u8]) -> Result<usize, TransportError> {
        let put = || match self.kind(false)? {
            None if self.is_closed() || self.door.gone() => Err(Errno::PIPE.into()),
            // Whoever connected has not said what to send through.
            None => Ok(None),
            Some(Kind::Socket) => Ok(Some(None)),
            Some(Kind::Rings(rings)) => {
                if self.is_closed() || self.door.gone() {
                    return Err(Fault::System(Errno::PIPE));
                }
                let mapped = self.mapped(rings)?;
                let led = self.lead([bytes].into_iter())?;
                Ok(Some(Some(led + self.put(mapped, &bytes[led..])?)))
            }
        };
        match put().map_err(|fault| self.failed(fault))? {
            None => Ok(0),
            Some(Some(count)) => Ok(count),
            Some(None) => self.socket.try_send(bytes),
        }
    }

    fn recv(&self, buffer: &mut [u8]) -> Result<usize, TransportError> {
        self.recv_soon(buffer, glance())
    }

    fn recv_soon(&self, buffer: &mut [u8], patience: Duration) -> Result<usize, TransportError> {
        if buffer.is_empty() {
            return Ok(0);
        }
        match self.kind(true).map_err(|fault| self.failed(fault))? {
            None => Ok(0),
            Some(Kind::Socket) if self.role == Role::Acceptor => {
                let received = self.recv_plainly(buffer, true);
                let received = received.map_err(|fault| self.failed(fault))?;
                Ok(received.unwrap_or_default())
            }
            Some(Kind::Socket) => self.socket.recv(buffer),
            Some(Kind::Rings(rings)) => self
                .take_or_wait(rings, buffer, patience)
                .map_err(|fault| self.failed(fault)),
        }
    }

    fn try_recv(&self, buffer: &mut [u8]) -> Result<Option<usize>, TransportError> {
        if buffer.is_empty() {
            return Ok(Some(0));
        }
        match self.kind(false).map_err(|fault| self.failed(fault))? {
            None if self.door.gone() || self.is_closed() => Ok(Some(0)),
            None => Ok(None),
            Some(Kind::Socket) if self.role == Role::Acceptor => self
                .recv_plainly(buffer, false)
                .map_err(|fault| self.failed(fault)),
            Some(Kind::Socket) => self.socket.try_recv(buffer),
            Some(Kind::Rings(rings)) => self
                .try_take(rings, buffer)
                .map_err(|fault| self.failed(fault)),
        }
    }

    fn wait_readable(&self, timeout: Option<Duration>) -> Result<bool, TransportError> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        self.readable(deadline).map_err(|fault| self.failed(fault))
    }

    fn shutdown(&self) {
        self.closed.store(true, Ordering::Release);
        // Fails only where the connection is already gone, which is what was asked for.
        let _ = rustix::net::shutdown(&self.socket.socket, Shutdown::Both);
    }

    fn peer(&self) -> String {
        self.socket.peer.clone()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        if self.passport.get().is_none() {
            match self.make_passport() {
                Ok(bundle) => drop(self.passport.set(bundle)),
                Err(fault) => {
                    log::warn!("cannot pass on a connection: {}", self.failed(fault));
                }
            }
        }
        self.passport.get().map(AsFd::as_fd)
    }

    fn send_descriptor(&self, descriptor: BorrowedFd<'_>) -> Result<(), TransportError> {
        let send = || match self.kind(true)? {
            Some(Kind::Rings(_)) => Ok(door::send_descriptor(&self.socket.socket, descriptor)?),
            _ => Err(Fault::Rules("it has no rings".into())),
        };
        send().map_err(|fault| self.failed(fault))
    }

    fn take_descriptor(&self) -> Result<Option<OwnedFd>, TransportError> {
        let take = || match self.kind(false)? {
            Some(Kind::Rings(_)) => Ok(self.door.take_descriptor(&self.socket.socket)?),
            _ => Ok(None),
        };
        take().map_err(|fault| self.failed(fault))
    }

    fn shares_memory(&self) -> bool {
        matches!(self.kind(false), Ok(Some(Kind::Rings(_))))
    }
}

impl Drop for ShmConnection {
    fn drop(&mut self) {
        // It may be another process's from now on.
        if self.role == Role::Acceptor && self.passport.get().is_none() {
            // A greeting left unread would make an orderly end a reset for who sent it.
            let _ = self.kind(false);
            self.shutdown();
            // Nothing more comes.
            while !matches!(
                self.recv_plainly(&mut [0; 512], false),
                Ok(None | Some(0)) | Err(_)
            ) {}
        }
    }
}

/// As `recv`, without waiting, with the descriptors that came along.
fn receive(
    socket: &OwnedFd,
    bytes: &mut [u8],
    descriptors: &mut Vec<OwnedFd>,
) -> Result<usize, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_AT_ONCE))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let message = loop {
        let mut parts = [IoSliceMut::new(bytes)];
        match rustix::net::recvmsg(socket, &mut parts, &mut control, flags) {
            Err(Errno::INTR) => {}
            outcome => break outcome?,
        }
    };
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            descriptors.extend(received);
        }
    }
    Ok(message.bytes)
}

fn receive_passport(bundle: &OwnedFd) -> std::io::Result<(Passport, Vec<OwnedFd>)> {
    let mut bytes = vec![0; Passport::MOST];
    let mut descriptors = Vec::new();
    let count = receive(bundle, &mut bytes, &mut descriptors)?;
    let passport = Passport::decode(&bytes[..count]);
    let passport = passport.ok_or(std::io::ErrorKind::InvalidData)?;
    Ok((passport, descriptors))
}

/// How long to look before sleeping; not at all where cores are few.
fn glance() -> Duration {
    static CORES: OnceLock<usize> = OnceLock::new();
    let cores = CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, |n| n.get()));
    match cores {
        0..4 => Duration::ZERO,
        _ => GLANCE,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
