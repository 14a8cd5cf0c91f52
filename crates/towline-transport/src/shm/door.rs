//! Sleeping until the peer rings: a byte on the connection's socket, which also tells that the peer is gone, and brings descriptors.
//!
//! The first bytes that who connected sends come here too, as the *lead*, so that they can be read without mapping its memory.
//!
//! A socket is level-triggered and shared by the threads that sleep here, for bytes, for room, or for a descriptor. So one of them at a
//! time watches it; it empties the socket and wakes the others, who then look at what they wait for, and one of them watches next.

use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};

use super::foreign::{MOST_AT_ONCE, put_away};
use crate::socket::wait_for;

/// Descriptors that a peer may have sent and this side has not asked for. Each belongs to a message that is about to be read.
const DESCRIPTORS: usize = 64;
/// Most bytes of the lead, its head included.
pub(super) const LEAD: usize = LEAD_HEAD + 4096;
/// Its first byte, which a ring of the bell is not, and its length as `u16`.
const LEAD_HEAD: usize = 3;
const LEAD_MARK: u8 = 1;
const BELL: u8 = 0;

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Door {
    state: Mutex<State>,
    opened: Condvar,
    /// The peer has closed its end.
    gone: AtomicBool,
    /// Some of the lead has not been read, or not come.
    leading: AtomicBool,
    /// All of the lead has come.
    led: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    watched: bool,
    /// How often the socket has been emptied.
    emptied: u64,
    descriptors: VecDeque<OwnedFd>,
    flooded: bool,
    /// The lead as far as it has come, with its head until that is all.
    lead: Vec<u8>,
}

impl Drop for State {
    fn drop(&mut self) {
        self.descriptors.drain(..).for_each(put_away);
    }
}

impl Door {
    /// The peer sends a lead: `heard` is what has come of it, or what has not been read when `led` says that it is all here.
    pub(super) fn expect_lead(&self, led: bool, heard: Vec<u8>) {
        let mut state = self.lock();
        self.leading
            .store(!led || !heard.is_empty(), Ordering::Release);
        self.led.store(led, Ordering::Release);
        state.lead = heard;
    }

    /// What [`Self::expect_lead`] takes, for another process.
    pub(super) fn lead(&self) -> (bool, Vec<u8>) {
        let state = self.lock();
        (self.led.load(Ordering::Acquire), state.lead.clone())
    }

    /// Whether bytes come from the lead first.
    #[inline]
    pub(super) fn leads(&self) -> bool {
        self.leading.load(Ordering::Acquire)
    }

    /// Whether all of the lead is there.
    pub(super) fn has_led(&self) -> bool {
        self.led.load(Ordering::Acquire)
    }

    /// Bytes of the lead, if all of it is there.
    pub(super) fn take_lead(&self, buffer: &mut [u8]) -> usize {
        let mut state = self.lock();
        if !self.has_led() {
            return 0;
        }
        let count = state.lead.len().min(buffer.len());
        let taken = state.lead.drain(..count);
        taken.zip(buffer).for_each(|(byte, place)| *place = byte);
        self.leading
            .store(!state.lead.is_empty(), Ordering::Release);
        count
    }

    /// Takes off the socket what is there, unless a thread that sleeps is about to.
    pub(super) fn collect(&self, socket: &OwnedFd) -> Result<(), Errno> {
        let mut state = self.lock();
        if !state.watched {
            self.empty(socket, &mut state)?;
            // Rings of the bell may have been among it.
            state.emptied += 1;
            self.opened.notify_all();
        }
        Ok(())
    }

    /// Whether the peer is known to have closed its end. What it sent before may still be there.
    pub(super) fn gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Looks whether the peer has closed its end, without waiting.
    pub(super) fn look(&self, socket: &OwnedFd) -> Result<bool, Errno> {
        if !self.gone() && wait_for(socket, PollFlags::RDHUP, Some(std::time::Duration::ZERO))? {
            self.gone.store(true, Ordering::Release);
        }
        Ok(self.gone())
    }

    /// Sleeps until `ready` says that there is no need to, or the peer is gone; `false` when `deadline` passed first. `ready` is called
    /// before each sleep, and must have told the peer to ring.
    pub(super) fn sleep<E: From<Errno>>(
        &self,
        socket: &OwnedFd,
        deadline: Option<Instant>,
        mut ready: impl FnMut() -> Result<bool, E>,
    ) -> Result<bool, E> {
        let mut state = self.lock();
        loop {
            if ready()? || self.gone() {
                return Ok(true);
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(false);
            }
            if state.watched {
                let before = state.emptied;
                while state.watched && state.emptied == before {
                    state = match deadline {
                        None => self
                            .opened
                            .wait(state)
                            .unwrap_or_else(PoisonError::into_inner),
                        Some(deadline) => {
                            let left = deadline.saturating_duration_since(Instant::now());
                            let waited = self.opened.wait_timeout(state, left);
                            let (state, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                            if timeout.timed_out() {
                                // Looked at once more, then given up.
                                drop(state);
                                return Ok(ready()? || self.gone());
                            }
                            state
                        }
                    };
                }
                continue;
            }
            state.watched = true;
            drop(state);
            let woken = wait_for(socket, PollFlags::IN | PollFlags::RDHUP, left);
            state = self.lock();
            state.watched = false;
            let emptied = woken.and_then(|woken| match woken {
                true => self.empty(socket, &mut state),
                false => Ok(()),
            });
            state.emptied += 1;
            self.opened.notify_all();
            emptied?;
        }
    }

    /// The next descriptor that the peer sent; `None` when it has sent none. One that was sent before bytes which this side has read is
    /// there.
    pub(super) fn take_descriptor(&self, socket: &OwnedFd) -> Result<Option<OwnedFd>, Errno> {
        if self.lock().descriptors.is_empty() {
            self.collect(socket)?;
        }
        let mut state = self.lock();
        // Whoever watches wakes up for it, but may not have come to it.
        while state.descriptors.is_empty()
            && state.watched
            && wait_for(socket, PollFlags::IN, Some(std::time::Duration::ZERO))?
        {
            state = self
                .opened
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        match state.flooded {
            true => Err(Errno::TOOMANYREFS),
            false => Ok(state.descriptors.pop_front()),
        }
    }

    /// Takes off the socket whatever is there.
    fn empty(&self, socket: &OwnedFd, state: &mut State) -> Result<(), Errno> {
        let mut bytes = [0; 512];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_AT_ONCE))];
        // A peer that rings without end must not keep this thread here.
        for _ in 0..DESCRIPTORS {
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
            let mut parts = [IoSliceMut::new(&mut bytes)];
            let message = match rustix::net::recvmsg(socket, &mut parts, &mut control, flags) {
                Ok(message) => message,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => continue,
                Err(Errno::CONNRESET) => {
                    self.gone.store(true, Ordering::Release);
                    return Ok(());
                }
                Err(errno) => return Err(errno),
            };
            for message in control.drain() {
                let RecvAncillaryMessage::ScmRights(descriptors) = message else {
                    continue;
                };
                for descriptor in descriptors {
                    if state.descriptors.len() < DESCRIPTORS {
                        state.descriptors.push_back(descriptor);
                    } else {
                        put_away(descriptor);
                        state.flooded = true;
                    }
                }
            }
            state.flooded |= message.flags.contains(ReturnFlags::CTRUNC);
            if message.bytes == 0 {
                self.gone.store(true, Ordering::Release);
                return Ok(());
            }
            if self.leads() && !self.has_led() {
                self.hear(&bytes[..message.bytes], state)?;
            }
        }
        Ok(())
    }

    /// Finds the lead among rings of the bell.
    fn hear(&self, bytes: &[u8], state: &mut State) -> Result<(), Errno> {
        for byte in bytes {
            if self.has_led() {
                return Ok(());
            }
            match (*byte, state.lead.is_empty()) {
                (BELL, true) => continue,
                (byte, true) if byte != LEAD_MARK => return Err(Errno::PROTO),
                _ => state.lead.push(*byte),
            }
            if let Some(&[_, low, high]) = state.lead.first_chunk::<LEAD_HEAD>() {
                let len = usize::from(u16::from_le_bytes([low, high]));
                if len == 0 || len > LEAD - LEAD_HEAD {
                    return Err(Errno::PROTO);
                }
                if state.lead.len() == LEAD_HEAD + len {
                    state.lead.drain(..LEAD_HEAD);
                    self.led.store(true, Ordering::Release);
                }
            }
        }
        Ok(())
    }

    /// Wakes the peer.
    #[cold]
    pub(super) fn ring(&self, socket: &OwnedFd) {
        loop {
            match rustix::net::send(socket, &[BELL], SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                // Full: the peer has not heard the earlier ones yet.
                Ok(_) | Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => {}
                Err(_) => return self.gone.store(true, Ordering::Release),
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends the beginning of `parts` as the lead, and says how many bytes that were: none only where there are none.
pub(super) fn send_lead(socket: &OwnedFd, parts: &[&[u8]]) -> Result<usize, Errno> {
    let mut message = vec![LEAD_MARK, 0, 0];
    for part in parts {
        message.extend_from_slice(&part[..part.len().min(LEAD - message.len())]);
    }
    let len = message.len() - LEAD_HEAD;
    if len > 0 {
        message[1..LEAD_HEAD].copy_from_slice(&(len as u16).to_le_bytes());
        send_with(socket, &message, &[])?;
    }
    Ok(len)
}

/// Sends a descriptor, for [`Door::take_descriptor`].
pub(super) fn send_descriptor(socket: &OwnedFd, descriptor: BorrowedFd<'_>) -> Result<(), Errno> {
    send_with(socket, &[BELL], &[descriptor])
}

/// Sends bytes, with descriptors beside the first of them.
pub(super) fn send_with(
    socket: &OwnedFd,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::INVAL);
    }
    let mut sent = 0;
    while sent < bytes.len() {
        let part = [std::io::IoSlice::new(&bytes[sent..])];
        match rustix::net::sendmsg(socket, &part, &mut control, SendFlags::NOSIGNAL) {
            Ok(count) => {
                sent += count;
                control.clear();
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
