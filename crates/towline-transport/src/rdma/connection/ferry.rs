//! The way of an accepted connection to another process: queue pairs cannot follow a descriptor, so a thread of this one carries its bytes
//! between the adapter and rings that both processes map.
//!
//! The peer may write the one ring and read the other by itself. Then this thread only tells of it: the ring's counts are its to publish, and
//! it checks what both of them say. What comes by messages it copies.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown};

use super::{GRANT, PROBE_PERIOD, Received, State, Stream};
use crate::rdma::endpoint::HEADER_BYTES;
use crate::rdma::rings::{Grant, LEAST_BYTES, Remote};
use crate::rdma::verbs::{ACCESS_LOCAL_WRITE, ACCESS_REMOTE_READ, ACCESS_REMOTE_WRITE};
use crate::shm::ring::{Broken, Memory};
use crate::shm::{Ferried, ShmConnection, View};
use crate::{Connection, TransportError};

/// Of each ring.
const RING_BYTES: usize = 1 << 20;
/// Looks for more before it sleeps, where there are cores for that.
const GLANCE: Duration = Duration::from_micros(20);
const GLANCING_CORES: usize = 4;
/// Reads of the bell at once.
const RINGS_HEARD: u32 = 16;
/// A peer may fetch for so long after the other process has closed its end.
const LEFT_PERIOD: Duration = Duration::from_secs(60);

/// The thread's own. The other process has the other end of `rings`.
pub(super) struct Ferry {
    stream: Arc<Stream>,
    rings: Ferried,
    /// The peer fetches large stretches by itself.
    reads: bool,
    /// Bytes of the stream from the peer before the first one of the ring, and of the stream to it.
    base: u64,
    down_base: u64,
    /// End, in the stream to the peer, of what it was told to fetch.
    placed_to: u64,
    /// The first byte that has come did not fit.
    blocked: bool,
    /// The time at which the other process has closed its end.
    gone: Option<Instant>,
}

/// There is no more to carry.
struct Ended(String);

impl From<Broken> for Ended {
    fn from(broken: Broken) -> Self {
        Self(broken.to_string())
    }
}

impl From<TransportError> for Ended {
    fn from(error: TransportError) -> Self {
        Self(error.to_string())
    }
}

impl Ferry {
    /// Starts the thread, and gives what the other process takes its end over by ([`HandedOver::adopt`]).
    pub(super) fn start(stream: &Arc<Stream>, reads: bool) -> io::Result<OwnedFd> {
        let (rings, passport) = ShmConnection::ferried(stream.peer(), RING_BYTES)?;
        rustix::io::ioctl_fionbio(&rings.socket, true)?;
        let (up, down) = (rings.producer.memory(), rings.consumer.memory());
        let up = lend(stream, up, ACCESS_LOCAL_WRITE | ACCESS_REMOTE_WRITE)?;
        let down = lend(stream, down, ACCESS_REMOTE_READ)?;
        let mut state = stream.lock();
        stream.progress(&mut state);
        state.told_at = u64::from(up.capacity) / 4;
        // Bytes that have come and were not read go into the ring.
        let (base, down_base) = (state.taken, state.sent);
        let grant = Grant { base, up, down }.encode();
        if !stream.post_control(&mut state, GRANT, &grant) {
            return Err(io::Error::other("its rings cannot be granted"));
        }
        drop(state);
        let ferry = Self {
            stream: Arc::clone(stream),
            rings,
            reads,
            base,
            down_base,
            placed_to: 0,
            blocked: false,
            gone: None,
        };
        thread::Builder::new()
            .name("rdma-ferry".into())
            .spawn(move || ferry.run())?;
        Ok(passport)
    }

    fn run(mut self) {
        let Ended(reason) = match self.carry() {
            Err(ended) => ended,
            Ok(()) => self.leave(),
        };
        log::debug!("{}: handed over and ended: {reason}", self.stream.peer());
        // It fails only where the other process is gone.
        let _ = rustix::net::shutdown(&self.rings.socket, Shutdown::Both);
        self.stream.shutdown();
    }

    /// Carries bytes until the other process has closed its end and all of its bytes are sent.
    fn carry(&mut self) -> Result<(), Ended> {
        let glance = match thread::available_parallelism() {
            Ok(cores) if cores.get() >= GLANCING_CORES => GLANCE,
            _ => Duration::ZERO,
        };
        let mut idle = Instant::now();
        loop {
            let gone = self.gone;
            if self.step()? {
                idle = Instant::now();
            } else if gone.is_some() && self.rings.consumer.look(self.unread())?.1 == 0 {
                return Ok(());
            } else if gone.is_some_and(|gone| gone.elapsed() >= LEFT_PERIOD) {
                return Err(Ended("its peer takes nothing any more".into()));
            } else if idle.elapsed() >= glance {
                self.sleep()?;
                idle = Instant::now();
            } else {
                std::hint::spin_loop();
            }
        }
    }

    /// The other process has closed its end. The peer may still fetch what it has left.
    fn leave(&mut self) -> Ended {
        self.stream.shutdown();
        let fetched = |state: &mut State| {
            let is_over = state.ended || state.failed.is_some();
            (is_over || state.peer_taken >= self.placed_to).then_some(())
        };
        let deadline = self.gone.unwrap_or_else(Instant::now) + LEFT_PERIOD;
        while self.stream.wait(Some(deadline), fetched).is_none() && Instant::now() < deadline {}
        Ended("the other process has closed it".into())
    }

    /// Carries what there is; whether that was anything.
    fn step(&mut self) -> Result<bool, Ended> {
        let came = self.take_in()?;
        Ok(self.send_out()? || came)
    }

    /// Carries bytes of the peer into the ring.
    fn take_in(&mut self) -> Result<bool, Ended> {
        let stream = Arc::clone(&self.stream);
        let mut state = stream.lock();
        let mut any = stream.progress(&mut state);
        stream.look(&mut state);
        self.blocked = false;
        let mut put_any = false;
        while let Some(received) = state.received.front().copied() {
            let put = match received {
                // Nobody reads it, and a peer that sends has to come to the end.
                _ if self.gone.is_some() => received.len(),
                Received::Slot { slot, from, len } => {
                    let at = stream.endpoint.receive_at(slot) + HEADER_BYTES + from;
                    let producer = &mut self.rings.producer;
                    stream
                        .endpoint
                        .look(at, len - from, |bytes| producer.put(bytes))?
                }
                Received::Ring { len } => {
                    self.rings.producer.placed(len)?;
                    len
                }
            };
            if put == 0 {
                self.blocked = true;
                break;
            }
            put_any = true;
            stream.consume(&mut state, put);
        }
        if put_any && self.rings.producer.must_ring() {
            self.ring();
        }
        self.rings.producer.room()?;
        let (put, taken) = self.rings.producer.counts();
        if taken > put {
            return Err(Ended("the other process took what was not put".into()));
        }
        any |= put_any || self.base + taken > state.taken;
        state.taken = match self.gone {
            Some(_) => state.arrived,
            None => state.taken.max(self.base + taken),
        };
        stream.return_credits(&mut state);
        if state.is_over() && state.received.is_empty() && !any {
            return Err(Ended(match &state.failed {
                Some(reason) if !state.ended => reason.clone(),
                _ => "the peer has closed it".into(),
            }));
        }
        Ok(any)
    }

    /// Bytes in the ring that were sent, or that the peer was told of, and that it may still need.
    fn unread(&self) -> u64 {
        let state = self.stream.lock();
        state.sent - state.peer_taken.max(self.down_base)
    }

    /// Carries bytes of the other process to the peer.
    fn send_out(&mut self) -> Result<bool, Ended> {
        let mut any = false;
        let mut state = self.stream.lock();
        if state.is_over() {
            // Nobody fetches it, and who puts it may not read before there is room.
            let waiting = self.rings.consumer.waiting()? as u64;
            self.rings.consumer.skip(waiting);
            if waiting > 0 && self.rings.consumer.must_ring() {
                self.ring();
            }
            return Ok(waiting > 0);
        }
        // Bytes that it has taken make room.
        let head = self.rings.consumer.head();
        let read = (state.peer_taken.max(self.down_base) - self.down_base) - head;
        if read > 0 {
            self.rings.consumer.skip(read);
            any = true;
        }
        loop {
            let ahead = state.sent - self.down_base - self.rings.consumer.head();
            let (at, len) = self.rings.consumer.look(ahead)?;
            if len == 0 || !self.stream.room(&state)? {
                break;
            }
            drop(state);
            if self.reads && len >= LEAST_BYTES {
                let len = len.min(RING_BYTES / 4);
                self.stream.post_placed(len, len, false)?;
                self.placed_to = self.stream.lock().sent;
            } else {
                let rings = &self.rings;
                self.stream.post_data(|slot, most| {
                    let len = len.min(most);
                    let fill = |bytes: &mut [u8]| rings.consumer.peek(at, bytes);
                    self.stream.endpoint.fill(slot, len, fill);
                    len
                })?;
            }
            any = true;
            state = self.stream.lock();
        }
        drop(state);
        if any && self.rings.consumer.must_ring() {
            self.ring();
        }
        Ok(any)
    }

    /// Sleeps until the adapter or the other process has something.
    fn sleep(&mut self) -> Result<(), Ended> {
        self.rings.consumer.park();
        if self.lacks_room() {
            self.rings.producer.park();
        }
        // Either may have looked before it was told to ring.
        if self.step()? {
            return Ok(());
        }
        let (bell, longest) = match self.gone {
            None => (Some(self.rings.socket.as_fd()), PROBE_PERIOD),
            Some(gone) => (None, LEFT_PERIOD.saturating_sub(gone.elapsed())),
        };
        let longest = longest.min(PROBE_PERIOD);
        drop(self.stream.sleep(self.stream.lock(), longest, bell));
        self.hear()
    }

    /// Whether the peer waits for room in the ring, or will soon.
    fn lacks_room(&self) -> bool {
        let (put, _) = self.rings.producer.counts();
        let told = self.stream.lock().told.max(self.base) - self.base;
        self.blocked || put - told > RING_BYTES as u64 / 2
    }

    /// Takes the bell's bytes.
    fn hear(&mut self) -> Result<(), Ended> {
        let mut bytes = [0; 512];
        // A process that rings without end does not keep this thread here.
        for _ in 0..RINGS_HEARD {
            if self.gone.is_some() {
                break;
            }
            match rustix::net::recv(&self.rings.socket, &mut bytes, RecvFlags::DONTWAIT) {
                Ok((0, _)) | Err(Errno::CONNRESET) => self.gone = Some(Instant::now()),
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(errno) => return Err(Ended(errno.to_string())),
            }
        }
        Ok(())
    }

    fn ring(&self) {
        // A full bell has yet to be heard; a closed one is found by `hear`.
        let _ = rustix::net::send(
            &self.rings.socket,
            &[0],
            SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
        );
    }
}

/// Gives the peer rights to a ring.
fn lend(stream: &Stream, ring: &View, access: i32) -> io::Result<Remote> {
    let (memory, bytes) = ring.bytes();
    let key = stream.endpoint.lend(memory, bytes, access)?;
    Ok(Remote {
        address: bytes.as_ptr().cast::<u8>().expose_provenance() as u64,
        key,
        capacity: ring.capacity() as u32,
    })
}

/// An accepted connection in the process that it was handed to. Its peer is on another host, and shares no memory.
pub(crate) struct HandedOver(ShmConnection);

impl HandedOver {
    /// Takes over what [`Ferry::start`] gave.
    pub(crate) fn adopt(passport: &OwnedFd) -> io::Result<Self> {
        ShmConnection::from_passport(passport).map(Self)
    }
}

impl Connection for HandedOver {
    fn send(&self, parts: &[IoSlice<'_>]) -> Result<(), TransportError> {
        self.0.send(parts)
    }

    fn try_send(&self, bytes: &[u8]) -> Result<usize, TransportError> {
        self.0.try_send(bytes)
    }

    fn recv(&self, buffer: &mut [u8]) -> Result<usize, TransportError> {
        self.0.recv(buffer)
    }

    fn try_recv(&self, buffer: &mut [u8]) -> Result<Option<usize>, TransportError> {
        self.0.try_recv(buffer)
    }

    fn recv_soon(&self, buffer: &mut [u8], patience: Duration) -> Result<usize, TransportError> {
        self.0.recv_soon(buffer, patience)
    }

    fn wait_readable(&self, timeout: Option<Duration>) -> Result<bool, TransportError> {
        self.0.wait_readable(timeout)
    }

    fn shutdown(&self) {
        self.0.shutdown();
    }

    fn peer(&self) -> String {
        self.0.peer()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.0.descriptor()
    }
}
