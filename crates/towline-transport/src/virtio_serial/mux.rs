//! One thread per port, which carries all of its connections.
//!
//! A connection is one end of a pair of Unix sockets; the thread has the other end, and moves bytes between it and the port. So
//! back-pressure, waking and passing on to another process are the kernel's, as for every socket. Between the two ends of a port
//! each connection has a window of its own: whoever does not read holds up only itself.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, Shutdown, SocketFlags, SocketType};

use super::ProtocolError;
use super::frame::{
    Frame, MAX_PAYLOAD_BYTES, NONCE_BYTES, PREAMBLE_BYTES, Reader, VERSION, write_answer,
};

/// Bytes of a connection that may be on their way or wait to be read.
const WINDOW_BYTES: u32 = 256 << 10;
/// Credit is given back in pieces of this size: one frame for eight of payload.
const CREDIT_BYTES: u32 = WINDOW_BYTES / 4;
/// Connections of one port: a session has a handful. What a hostile machine can make the host keep is bounded by this and the
/// window.
const MAX_CHANNELS: usize = 256;
/// No more is read from connections while this much waits for the port.
const MAX_OUT_BYTES: usize = 128 << 10;
/// Nothing is read of the port while this much waits for it: a hostile machine asks for answers and takes none.
const MAX_ANSWER_BYTES: usize = 1 << 20;
/// What is read of the port at once.
const READ_BYTES: usize = 64 << 10;
/// An end that has nothing to say says so this often.
const PING_INTERVAL: Duration = Duration::from_secs(5);
/// An end that is not heard of for this long is gone: a port does not tell.
const SILENCE_LIMIT: Duration = crate::tcp::SILENCE_LIMIT;

/// Why a port's thread ended, in the log.
pub(super) enum Ended {
    /// The other end closed it, or the thread was told to
    Closed,
    /// The port failed
    Failed(Errno),
    /// The other end broke the rules
    Protocol(ProtocolError),
    /// The other end has not been heard of
    Silent,
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Closed => f.write_str("closed"),
            Self::Failed(errno) => write!(f, "{errno}"),
            Self::Protocol(error) => write!(f, "{error}"),
            Self::Silent => write!(f, "silent for {} s", SILENCE_LIMIT.as_secs()),
        }
    }
}

/// A pair of connected stream sockets: ours, which does not block, and the user's.
fn pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    let (ours, user) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    rustix::io::ioctl_fionbio(&ours, true)?;
    Ok((ours, user))
}

/// The thread's end of a connection.
struct Channel {
    socket: OwnedFd,
    /// What came for the user and did not fit into the socket.
    incoming: VecDeque<u8>,
    /// What may be sent.
    credit: u32,
    /// What may come.
    window: u32,
    /// What the user took and the other end does not know of.
    taken: u32,
    /// Nothing more comes.
    has_ended: bool,
    /// The user reads no more.
    is_deaf: bool,
}

impl Channel {
    fn new(socket: OwnedFd) -> Self {
        Self {
            socket,
            incoming: VecDeque::new(),
            credit: WINDOW_BYTES,
            window: WINDOW_BYTES,
            taken: 0,
            has_ended: false,
            is_deaf: false,
        }
    }

    /// Gives the user bytes that came, and keeps what does not fit.
    fn deliver(&mut self, bytes: &[u8]) {
        let taken = match self.incoming.is_empty() {
            true => self.give(bytes),
            false => 0,
        };
        self.incoming
            .extend(bytes.get(taken..).unwrap_or_default().iter().copied());
    }

    /// Gives the user what was kept.
    fn flush(&mut self) {
        while !self.incoming.is_empty() {
            let (front, _) = self.incoming.as_slices();
            // Copied out, since both are of `self`; at most one frame's worth.
            let front: Vec<u8> = front.iter().take(MAX_PAYLOAD_BYTES).copied().collect();
            match self.give(&front) {
                0 => break,
                taken => drop(self.incoming.drain(..taken)),
            }
        }
    }

    /// How many of these bytes the user took. A user who reads no more takes everything: else the other end would wait for ever.
    fn give(&mut self, bytes: &[u8]) -> usize {
        let mut given = 0;
        while given < bytes.len() && !self.is_deaf {
            let rest = bytes.get(given..).unwrap_or_default();
            match rustix::net::send(
                &self.socket,
                rest,
                SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
            ) {
                Ok(sent) => given += sent,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => self.is_deaf = true,
            }
        }
        if self.is_deaf {
            given = bytes.len();
        }
        // At most what the window let in.
        self.taken += u32::try_from(given).unwrap_or(u32::MAX);
        given
    }

    /// What this connection waits for.
    fn interest(&self, has_room: bool) -> PollFlags {
        let mut flags = PollFlags::empty();
        if self.credit > 0 && has_room && !self.has_ended {
            flags |= PollFlags::IN;
        }
        if !self.incoming.is_empty() {
            flags |= PollFlags::OUT;
        }
        flags
    }
}

/// Which end of a port this is.
pub(super) enum Role {
    /// Makes connections
    Client(Arc<Requests>),
    /// Takes them, and gives the user's end to this; `false` refuses. Readable `closed`: no more are taken.
    Server {
        accept: Box<dyn FnMut(u32, OwnedFd) -> bool + Send>,
        closed: Arc<OwnedFd>,
    },
}

/// What connecting threads ask of the client's thread.
pub(super) struct Requests {
    waiting: Mutex<Waiting>,
    wake: OwnedFd,
}

#[derive(Default)]
struct Waiting {
    opens: Vec<(OwnedFd, SyncSender<bool>)>,
    /// The thread has ended, or will without another look.
    is_over: bool,
    /// Why, where the other end did not just close.
    reason: Option<String>,
}

impl Requests {
    pub(super) fn new() -> Result<Self, Errno> {
        Ok(Self {
            waiting: Mutex::default(),
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    /// Asks for a connection: the user's end, and where the answer will come; an answer that never comes ends the channel. `None`
    /// once the thread takes no more.
    pub(super) fn open(&self) -> Result<Option<(OwnedFd, Receiver<bool>)>, Errno> {
        let (ours, user) = pair()?;
        let (sender, receiver) = sync_channel(1);
        {
            let mut waiting = self.lock();
            if waiting.is_over {
                return Ok(None);
            }
            waiting.opens.push((ours, sender));
        }
        wake(&self.wake);
        Ok(Some((user, receiver)))
    }

    /// Whether its thread takes no more.
    pub(super) fn is_over(&self) -> bool {
        self.lock().is_over
    }

    /// Why its thread ended, where the other end did not just close.
    pub(super) fn reason(&self) -> Option<String> {
        self.lock().reason.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // Each change is one push, take or assignment.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes an event readable. It is full only after 2^64 - 2 calls.
pub(super) fn wake(event: &OwnedFd) {
    let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
}

/// The state of a port's thread.
pub(super) struct Mux {
    port: OwnedFd,
    /// Else a character device.
    is_socket: bool,
    role: Role,
    reader: Reader,
    /// Client: the number of the Hello that is not answered yet.
    unanswered: Option<[u8; NONCE_BYTES]>,
    /// Client: asked for, not answered. Server: empty.
    opening: BTreeMap<u32, (OwnedFd, SyncSender<bool>)>,
    channels: BTreeMap<u32, Channel>,
    /// Client: the number of the next connection.
    next: u32,
    /// What waits for the port, and how much of it is gone.
    out: Vec<u8>,
    out_start: usize,
    heard: Instant,
    said: Instant,
    is_closing: bool,
}

impl Mux {
    /// The server's end of a port.
    pub(super) fn server(port: OwnedFd, role: Role) -> Self {
        let now = Instant::now();
        let is_socket = rustix::net::sockopt::socket_type(&port).is_ok();
        Self {
            port,
            is_socket,
            role,
            reader: Reader::default(),
            unanswered: None,
            opening: BTreeMap::new(),
            channels: BTreeMap::new(),
            next: 0,
            out: Vec::new(),
            out_start: 0,
            heard: now,
            said: now,
            is_closing: false,
        }
    }

    /// The client's end of a port, with a number that no client has had before.
    pub(super) fn client(port: OwnedFd, requests: Arc<Requests>, nonce: [u8; NONCE_BYTES]) -> Self {
        let mut mux = Self::server(port, Role::Client(requests));
        mux.out.resize(PREAMBLE_BYTES, 0);
        let version = VERSION;
        Frame::Hello { version, nonce }.write(&mut mux.out);
        mux.unanswered = Some(nonce);
        mux
    }

    /// Carries bytes until the port or the last reason to have it is gone. The port does not block.
    pub(super) fn run(mut self) -> Ended {
        let ended = loop {
            if let Err(ended) = self.turn() {
                break ended;
            }
        };
        if let Role::Client(requests) = &self.role {
            let mut waiting = requests.lock();
            waiting.is_over = true;
            waiting.reason = match &ended {
                Ended::Closed => None,
                ended => Some(ended.to_string()),
            };
            waiting.opens.clear();
        }
        ended
    }

    /// Waits, and does what can be done then.
    fn turn(&mut self) -> Result<(), Ended> {
        self.take_requests()?;
        let waiting = self.out.len() - self.out_start;
        let has_room = waiting < MAX_OUT_BYTES && self.unanswered.is_none();
        let mut flags = PollFlags::empty();
        if waiting < MAX_ANSWER_BYTES {
            flags |= PollFlags::IN;
        }
        if waiting > 0 {
            flags |= PollFlags::OUT;
        }
        let timeout = self.patience();
        let event = match &self.role {
            Role::Client(requests) => Some(&requests.wake),
            Role::Server { closed, .. } => (!self.is_closing).then_some(&**closed),
        };
        let mut numbers: Vec<u32> = Vec::new();
        let mut waited = vec![PollFd::new(&self.port, flags)];
        for (&number, channel) in &self.channels {
            let interest = channel.interest(has_room);
            // A socket whose user is gone is always ready: only one that something can be done with is looked at.
            if !interest.is_empty() {
                numbers.push(number);
                waited.push(PollFd::new(&channel.socket, interest));
            }
        }
        waited.extend(event.map(|event| PollFd::from_borrowed_fd(event.as_fd(), PollFlags::IN)));
        match poll(&mut waited, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(Ended::Failed(errno)),
        }
        let ready: Vec<PollFlags> = waited.iter().map(PollFd::revents).collect();
        drop(waited);
        let is_woken = ready.len() > numbers.len() + 1 && ready.last() != Some(&PollFlags::empty());
        if is_woken {
            self.woken();
        }
        for (number, ready) in numbers.into_iter().zip(ready.iter().skip(1)) {
            if !ready.is_empty() {
                self.serve(number, *ready);
            }
        }
        if ready.first().is_some_and(|ready| !ready.is_empty()) {
            self.receive()?;
        }
        self.speak()?;
        self.send()
    }

    fn woken(&mut self) {
        match &self.role {
            Role::Client(requests) => {
                let _ = rustix::io::read(&requests.wake, &mut [0; 8]);
            }
            // Stays readable: it tells all ports of the listener.
            Role::Server { .. } => self.is_closing = true,
        }
    }

    /// Until when there is nothing to do by itself.
    fn patience(&self) -> Option<Timespec> {
        let is_needed = !self.channels.is_empty() || !self.opening.is_empty();
        is_needed.then_some(Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        })
    }

    /// Client: begins connections that were asked for. Ends the thread when nobody needs the port any more.
    fn take_requests(&mut self) -> Result<(), Ended> {
        match &self.role {
            Role::Client(requests) => {
                let mut waiting = requests.lock();
                if waiting.opens.is_empty() && self.channels.is_empty() && self.opening.is_empty() {
                    // What is still to be said, the ends of connections, is said first.
                    if self.out_start == self.out.len() {
                        waiting.is_over = true;
                        return Err(Ended::Closed);
                    }
                }
                for (socket, sender) in std::mem::take(&mut waiting.opens) {
                    let channel = self.next;
                    // After 2^32 connections the port is made anew: numbers are never used again.
                    let Some(next) = channel.checked_add(1) else {
                        waiting.is_over = true;
                        return Err(Ended::Closed);
                    };
                    self.next = next;
                    if self.opening.len() + self.channels.len() >= MAX_CHANNELS {
                        let _ = sender.send(false);
                        continue;
                    }
                    Frame::Open { channel }.write(&mut self.out);
                    self.opening.insert(channel, (socket, sender));
                }
            }
            Role::Server { .. } => {
                if self.is_closing && self.channels.is_empty() && self.out_start == self.out.len() {
                    return Err(Ended::Closed);
                }
            }
        }
        Ok(())
    }

    /// Moves bytes between a connection and the port, where they wait for it.
    fn serve(&mut self, number: u32, ready: PollFlags) {
        let Some(channel) = self.channels.get_mut(&number) else {
            return;
        };
        if !channel.incoming.is_empty() {
            channel.flush();
            self.settle(number);
        }
        let Some(channel) = self.channels.get_mut(&number) else {
            return;
        };
        let is_readable = ready.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR);
        if !is_readable || channel.credit == 0 || channel.has_ended {
            return;
        }
        let most = MAX_PAYLOAD_BYTES.min(channel.credit as usize);
        let mut bytes = [0; MAX_PAYLOAD_BYTES];
        let buffer = bytes.get_mut(..most).unwrap_or_default();
        match rustix::io::read(&channel.socket, buffer) {
            Ok(0) => self.end(number),
            Ok(received) => {
                channel.credit -= u32::try_from(received).unwrap_or(u32::MAX);
                let bytes = bytes.get(..received).unwrap_or_default();
                let channel = number;
                Frame::Data { channel, bytes }.write(&mut self.out);
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            // Closed with unread bytes.
            Err(_) => self.end(number),
        }
    }

    /// The user has closed a connection.
    fn end(&mut self, number: u32) {
        let channel = number;
        Frame::End { channel }.write(&mut self.out);
        self.channels.remove(&number);
    }

    /// After bytes were given to the user: gives credit back, and ends what has ended.
    fn settle(&mut self, number: u32) {
        let Some(channel) = self.channels.get_mut(&number) else {
            return;
        };
        if channel.has_ended {
            if channel.incoming.is_empty() {
                // The user reads what is in the socket, then the end.
                let _ = rustix::net::shutdown(&channel.socket, Shutdown::Both);
                self.channels.remove(&number);
            }
        } else if channel.taken >= CREDIT_BYTES {
            let bytes = std::mem::take(&mut channel.taken);
            channel.window += bytes;
            let channel = number;
            Frame::Credit { channel, bytes }.write(&mut self.out);
        }
    }

    /// Reads the port and does what came.
    fn receive(&mut self) -> Result<(), Ended> {
        let mut bytes = [0; READ_BYTES];
        let received = match rustix::io::read(&self.port, &mut bytes) {
            Ok(0) => return Err(Ended::Closed),
            Ok(received) => received,
            // A socket tells once that its peer has closed it with unread bytes; what the peer had sent can be read after that.
            Err(Errno::INTR | Errno::AGAIN | Errno::CONNRESET) => return Ok(()),
            Err(errno) => return Err(Ended::Failed(errno)),
        };
        self.heard = Instant::now();
        self.reader.push(bytes.get(..received).unwrap_or_default());
        if let Some(nonce) = &self.unanswered {
            match self.reader.answer(nonce) {
                None => return Ok(()),
                Some(VERSION) => self.unanswered = None,
                Some(_) => {
                    return Err(Ended::Protocol(ProtocolError(
                        "the server speaks another version over ports: use the same release on both sides",
                    )));
                }
            }
        }
        // Taken out while frames borrow from it.
        let mut reader = std::mem::take(&mut self.reader);
        let mut outcome = Ok(());
        while outcome.is_ok() {
            outcome = match reader.frame() {
                Ok(Some(frame)) => self.obey(frame),
                Ok(None) => break,
                Err(error) => Err(error),
            };
        }
        self.reader = reader;
        outcome.map_err(Ended::Protocol)
    }

    fn obey(&mut self, frame: Frame<'_>) -> Result<(), ProtocolError> {
        let is_server = matches!(self.role, Role::Server { .. });
        match frame {
            Frame::Hello { nonce, .. } if is_server => {
                // Whoever was there before is gone.
                self.channels.clear();
                self.next = 0;
                self.out.clear();
                self.out_start = 0;
                write_answer(&nonce, &mut self.out);
            }
            Frame::Open { channel } if is_server => self.open(channel)?,
            Frame::Accept { channel } if !is_server => {
                let (socket, sender) = self
                    .opening
                    .remove(&channel)
                    .ok_or(ProtocolError("an answer that nobody asked for"))?;
                // Whoever gave up has dropped the other end, which ends the channel.
                let _ = sender.send(true);
                self.channels.insert(channel, Channel::new(socket));
            }
            Frame::Refuse { channel } if !is_server => {
                let (_, sender) = self
                    .opening
                    .remove(&channel)
                    .ok_or(ProtocolError("an answer that nobody asked for"))?;
                let _ = sender.send(false);
            }
            // What comes for a connection that this end has closed was sent before its end was heard of.
            Frame::Data { channel, bytes } => {
                let Some(known) = self.channels.get_mut(&channel) else {
                    return Ok(());
                };
                let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                known.window = known
                    .window
                    .checked_sub(len)
                    .filter(|_| !known.has_ended)
                    .ok_or(ProtocolError("more than the window lets in"))?;
                known.deliver(bytes);
                self.settle(channel);
            }
            Frame::Credit { channel, bytes } => {
                if let Some(known) = self.channels.get_mut(&channel) {
                    known.credit = known
                        .credit
                        .checked_add(bytes)
                        .filter(|&credit| credit <= WINDOW_BYTES)
                        .ok_or(ProtocolError("more credit than there is window"))?;
                }
            }
            Frame::End { channel } => {
                if let Some(known) = self.channels.get_mut(&channel) {
                    known.has_ended = true;
                    // Wakes a user who sends; what came before can still be read.
                    let _ = rustix::net::shutdown(&known.socket, Shutdown::Read);
                    self.settle(channel);
                }
            }
            Frame::Ping => {}
            _ => return Err(ProtocolError("a frame that the other end has to send")),
        }
        Ok(())
    }

    /// Server: a connection is asked for.
    fn open(&mut self, channel: u32) -> Result<(), ProtocolError> {
        if channel < self.next {
            return Err(ProtocolError("a connection's number twice"));
        }
        self.next = channel.saturating_add(1);
        let has_room = self.channels.len() < MAX_CHANNELS && !self.is_closing;
        let made = pair().ok().filter(|_| has_room);
        let is_taken = match (made, &mut self.role) {
            (Some((ours, user)), Role::Server { accept, .. }) => {
                let is_taken = accept(channel, user);
                if is_taken {
                    self.channels.insert(channel, Channel::new(ours));
                }
                is_taken
            }
            _ => false,
        };
        match is_taken {
            true => Frame::Accept { channel },
            false => Frame::Refuse { channel },
        }
        .write(&mut self.out);
        Ok(())
    }

    /// Says something when there was nothing to say, and gives up an end that says nothing.
    fn speak(&mut self) -> Result<(), Ended> {
        if self.channels.is_empty() && self.opening.is_empty() {
            // Nobody is missed, and a port that nobody has open takes nothing.
            self.heard = Instant::now();
            return Ok(());
        }
        if self.heard.elapsed() > SILENCE_LIMIT {
            if let Role::Client(_) = self.role {
                return Err(Ended::Silent);
            }
            // The client has gone without a word. Another one may come.
            log::info!(
                "nothing was heard over a port for {} s: its connections are ended",
                SILENCE_LIMIT.as_secs()
            );
            self.channels.clear();
            return Ok(());
        }
        if self.said.elapsed() > PING_INTERVAL && self.out_start == self.out.len() {
            Frame::Ping.write(&mut self.out);
        }
        Ok(())
    }

    /// Writes what waits, as far as the port takes it.
    fn send(&mut self) -> Result<(), Ended> {
        while self.out_start < self.out.len() {
            let rest = self.out.get(self.out_start..).unwrap_or_default();
            let sent = match self.is_socket {
                true => rustix::net::send(&self.port, rest, SendFlags::NOSIGNAL),
                false => rustix::io::write(&self.port, rest),
            };
            match sent {
                Ok(sent) => {
                    self.out_start += sent;
                    self.said = Instant::now();
                    if self.out_start > MAX_OUT_BYTES {
                        self.out.drain(..self.out_start);
                        self.out_start = 0;
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(()),
                // Nobody hears it. What the peer had sent may not have been read.
                Err(Errno::CONNRESET | Errno::PIPE) => break,
                Err(errno) => return Err(Ended::Failed(errno)),
            }
        }
        self.out.clear();
        self.out_start = 0;
        Ok(())
    }
}
