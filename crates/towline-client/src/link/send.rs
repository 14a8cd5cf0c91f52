//! The sending half of a command lane.

use std::io::IoSlice;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use towline_backend::opencl::Request;
use towline_transport::TransportError;

use super::Link;
use crate::memory::HostBox;
use crate::state::{Covered, Slot, State, Write};
use crate::tuning::{OUTBOX_LIMIT, tuning};

/// Requests further apart than this come alone: nothing follows that a sender could take along.
const ALONE: Duration = Duration::from_micros(60);
/// Requests that come one after another before the sender is woken: fewer mostly lie between two waits.
const ROW: u32 = 4;
/// How long the sender naps between two looks while requests come: a request waits for about as long at most, and one that somebody
/// waits for does not at all. Calling a thread, and sending, cost the program's thread more than the rest of a launch.
const NAP: Duration = Duration::from_micros(30);
/// How long the sender lets requests gather between two sends while they come one after another, where cores are not few. The worker's
/// thread receives each send, and launches nothing meanwhile: without, and with naps instead, it launched 3 to 10 % less on an H200.
const GATHERING: Duration = Duration::from_micros(20);
/// Naps in a row that found nothing before the sender sleeps until it is woken: with the looks between them that is before 100 us have
/// passed since the last request, when a session at rest takes no processor time any more.
const NAPS: u32 = 2;

/// Keeps the processor for so long, or until something has happened.
fn look_on(limit: Duration, happened: impl Fn() -> bool) {
    let until = Instant::now() + limit;
    while !happened() && Instant::now() < until {
        std::hint::spin_loop();
    }
}

/// Most requests that wait for their answers: a server that has so many to answer at once ends the session.
const ASK_LIMIT: usize = 4000;

impl Link {
    /// Waits for room for a write, and has the server ask for its payload. Fails where no room can come.
    pub(crate) fn expect_grants(&self, payload: u64, source: HostBox) -> Result<(), i32> {
        loop {
            {
                let mut state = self.state();
                match state.room_for_write() {
                    None => {}
                    Some(Err(())) => return Err(self.vocabulary.unposted),
                    Some(Ok(())) => {
                        let size = source.size() as u64;
                        let write = Write {
                            source,
                            ungranted: size,
                            left: size,
                        };
                        state.writes.insert(payload, write);
                        drop(state);
                        self.raise_interest();
                        return Ok(());
                    }
                }
            }
            self.flush();
            self.wait_for(|state| state.room_for_write().map(drop))?;
        }
    }

    /// Posts a request, one way. One that is longer than the server takes fails, and is not sent.
    #[inline]
    pub(crate) fn post<'a, R: Request<'a>>(&self, request: &R) -> Result<u64, i32> {
        self.numbered(self.post_batch(|batch| batch.post(R::ID, |out| request.encode(out)))?)
    }

    /// The number of a request that was posted; 0 is that of one that was too long.
    #[inline]
    pub(crate) fn numbered(&self, number: u64) -> Result<u64, i32> {
        match number {
            0 => Err(self.vocabulary.unposted),
            number => Ok(number),
        }
    }

    /// Posts several requests that nothing may come between.
    #[inline]
    pub(crate) fn post_batch<T>(
        &self,
        fill: impl FnOnce(&mut towline_session::Batch<'_>) -> T,
    ) -> Result<T, i32> {
        if self.lost.get().is_some() {
            return Err(self.lost_status());
        }
        let mut result = None;
        let waiting = self.outbox.post_all(|batch| result = Some(fill(batch)));
        self.meter.requested();
        let lull = self.lull.load(Ordering::Relaxed) && self.lull.swap(false, Ordering::Relaxed);
        if self.sends_itself && self.try_flush() {
            return result.ok_or(self.vocabulary.unposted);
        }
        self.pending.store(true, Ordering::SeqCst);
        if self.sender_asleep.load(Ordering::SeqCst) {
            let in_a_row = self.comes_in_a_row(lull);
            if in_a_row {
                self.wake_sender();
            }
            // One that naps looks for what comes after this.
            if !in_a_row || self.sender_naps {
                self.flush();
            }
        } else if waiting > OUTBOX_LIMIT {
            self.flush();
        } else {
            self.wake_sender();
        }
        result.ok_or(self.vocabulary.unposted)
    }

    /// Whether this request is one of several that callers have sent one after another; with `lull` it is the first after a wait.
    fn comes_in_a_row(&self, lull: bool) -> bool {
        let now = self.began.elapsed().as_nanos() as u64;
        let pause = now.saturating_sub(self.sent_last.swap(now, Ordering::Relaxed));
        if lull || pause > ALONE.as_nanos() as u64 {
            self.row.store(1, Ordering::Relaxed);
            return false;
        }
        self.row.fetch_add(1, Ordering::Relaxed) + 1 >= ROW
    }

    fn wake_sender(&self) {
        if self.sender_parked.load(Ordering::SeqCst)
            && self.sender_parked.swap(false, Ordering::SeqCst)
        {
            self.sender.get().inspect(|sender| sender.unpark());
        }
    }

    /// Sends a request whose answer somebody will wait for with [`Self::wait_reply`]; gives its number.
    pub(crate) fn ask_only<'a, R: Request<'a>>(&self, request: &R) -> Result<u64, i32> {
        self.ask_only_behind(request, |_| Covered::new())
    }

    /// As [`Self::ask_only`]; a success counts only when the reads that `covered` names have ended.
    pub(crate) fn ask_only_behind<'a, R: Request<'a>>(
        &self,
        request: &R,
        covered: impl FnOnce(&State) -> Covered,
    ) -> Result<u64, i32> {
        self.ask_for(R::ID, |out| request.encode(out), covered)
    }

    /// As [`Self::ask_only`], of what `encode` writes.
    pub(crate) fn ask_encoded(
        &self,
        id: u16,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> Result<u64, i32> {
        self.ask_for(id, encode, |_| Covered::new())
    }

    fn ask_for(
        &self,
        id: u16,
        encode: impl FnOnce(&mut Vec<u8>),
        covered: impl FnOnce(&State) -> Covered,
    ) -> Result<u64, i32> {
        if self.lost.get().is_some() {
            return Err(self.lost_status());
        }
        // The slot exists before the answer can come: the number is known under the state's lock.
        let number = {
            let mut state = self.state();
            if state.replies.len() >= ASK_LIMIT {
                return Err(self.vocabulary.unposted);
            }
            let (number, _) = self.outbox.post(id, encode);
            let number = self.numbered(number)?;
            let covered = covered(&state);
            state.replies.insert(number, Slot::Asked(covered));
            number
        };
        self.flush();
        Ok(number)
    }

    /// Sends everything posted so far.
    pub(crate) fn flush(&self) {
        self.pending.store(false, Ordering::SeqCst);
        let sent = self.outbox.flush(
            || self.received.load(Ordering::Acquire),
            |bytes| {
                self.meter.sent(bytes.len());
                let lane = self.lane()?;
                let done = lane.try_send(bytes)?;
                if let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
                    // The server may be unable to read because nobody here does: somebody must while this thread is stuck.
                    let _interest = self.interest();
                    lane.send(&[IoSlice::new(rest)])?;
                }
                Ok::<(), TransportError>(())
            },
        );
        if let Err(error) = sent {
            self.lane_failed(error.to_string());
        }
    }

    /// Sends what was posted so far as far as that takes no waiting; `false` when the sender has to go on.
    fn try_flush(&self) -> bool {
        let sent = self.outbox.try_flush(
            || self.received.load(Ordering::Acquire),
            |bytes| {
                let taken = self.lane()?.try_send(bytes)?;
                self.meter.sent(taken);
                Ok::<usize, TransportError>(taken)
            },
        );
        sent.unwrap_or_else(|error| {
            self.lane_failed(error.to_string());
            true
        })
    }

    pub(super) fn send_loop(&self) {
        let spin = match self.sender_naps {
            true => tuning().spin_for_request,
            // Over shared memory it has work only when the ring is full: that is no hint of more.
            false => Duration::ZERO,
        };
        if self.sender_naps {
            // Otherwise a nap takes two to three times as long. It does in a process that may not say so.
            #[cfg(target_os = "linux")]
            let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        }
        let mut naps = 0;
        loop {
            if self.lost.get().is_some() {
                return;
            }
            if self.pending.load(Ordering::SeqCst) {
                self.flush();
                naps = 0;
                if !spin.is_zero() {
                    look_on(GATHERING, || false);
                }
            }
            if !spin.is_zero() {
                look_on(spin, || self.pending.load(Ordering::Relaxed));
            }
            if self.pending.load(Ordering::SeqCst) {
                continue;
            }
            if self.sender_naps && naps < NAPS {
                naps += 1;
                std::thread::park_timeout(NAP);
                continue;
            }
            self.sender_parked.store(true, Ordering::SeqCst);
            self.sender_asleep.store(true, Ordering::SeqCst);
            if !self.pending.load(Ordering::SeqCst) && self.lost.get().is_none() {
                std::thread::park();
            }
            self.sender_asleep.store(false, Ordering::SeqCst);
            self.sender_parked.store(false, Ordering::SeqCst);
            naps = 0;
        }
    }

    /// Part of a write has left; the last part ends it.
    pub(crate) fn sent(&self, payload: u64, length: u64) {
        let mut state = self.state();
        let Some(write) = state.writes.get_mut(&payload) else {
            return;
        };
        write.left = write.left.saturating_sub(length);
        if write.left > 0 {
            return;
        }
        state.writes.remove(&payload);
        self.lower_interest();
        if state.followers > 0 {
            self.changed.notify_all();
        }
    }
}
