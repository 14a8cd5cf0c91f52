//! The receiving half of a command lane: waiting, reading, and acting on what the server pushes.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use towline_backend::opencl::Request;
use towline_wire::control::{SHOWN_TEXT, printable};
use towline_wire::error::{CloseCode, ProtocolError};
use towline_wire::frame::FrameReader;
use towline_wire::push::Push;

use super::Link;
use super::output::{print_error, print_output};
use crate::state::{Callback, Covered, Event, HeldWhat, Progress, Reply, Slot, State};
use crate::tuning::tuning;

/// The event that is a fault of the device: no handle, nor a number that [`Link::mint`] gives.
const FAULT: u64 = 0;
/// Most queues with an unreported failure.
const FAILURE_LIMIT: usize = 4096;

impl Link {
    /// Sends a request and waits for its answer; `call` is the API call that waits.
    pub(crate) fn ask<'a, R: Request<'a>>(
        &self,
        call: &'static str,
        request: &R,
    ) -> Result<Reply, i32> {
        self.ask_behind(call, request, |_| Covered::new())
    }

    /// As [`Self::ask`]; a success counts only when the reads that `covered` names have ended.
    pub(crate) fn ask_behind<'a, R: Request<'a>>(
        &self,
        call: &'static str,
        request: &R,
        covered: impl FnOnce(&State) -> Covered,
    ) -> Result<Reply, i32> {
        let started = Instant::now();
        let number = self.ask_only_behind(request, covered)?;
        self.meter.requested();
        let reply = self.wait_reply(number, tuning().spin_for_answer);
        self.meter.waited(call, started.elapsed());
        reply
    }

    /// As [`Self::ask`], but no wait of the application's: it does not count.
    pub(crate) fn measure<'a, R: Request<'a>>(&self, request: &R) -> Result<Reply, i32> {
        let number = self.ask_only(request)?;
        self.wait_reply(number, tuning().spin_for_answer)
    }

    /// Waits for the answer to the request of this number: looks for it as long as `patience` lasts, then sleeps.
    pub(crate) fn wait_reply(&self, number: u64, patience: Duration) -> Result<Reply, i32> {
        loop {
            let mut state = self.state();
            match state.replies.get(&number) {
                Some(Slot::Ready(_)) => {
                    if let Some(Slot::Ready(reply)) = state.replies.remove(&number) {
                        self.lull.store(true, Ordering::Relaxed);
                        return Ok(reply);
                    }
                }
                Some(Slot::Held) => {
                    drop(state);
                    self.wait_for(|state| match state.replies.get(&number) {
                        Some(Slot::Held) => None,
                        _ => Some(()),
                    })?;
                    continue;
                }
                Some(Slot::Asked(_)) if self.lost.get().is_none() => {}
                _ => {
                    state.replies.remove(&number);
                    return Err(self.lost_status());
                }
            }
            // A failure is found at the next turn.
            self.read_or_follow(state, patience);
        }
    }

    /// Waits for something that other threads of this process bring about (payload landing or leaving), while the background thread
    /// reads the lane.
    pub(crate) fn wait_for<T>(
        &self,
        mut ready: impl FnMut(&mut State) -> Option<T>,
    ) -> Result<T, i32> {
        let _interest = self.interest();
        let mut state = self.state();
        loop {
            if let Some(value) = ready(&mut state) {
                return Ok(value);
            }
            if self.lost.get().is_some() {
                return Err(self.lost_status());
            }
            state = self.follow(state);
        }
    }

    /// As [`Self::wait_for`], for no longer than `patience`; `None` when that is over.
    pub(crate) fn wait_at_most<T>(
        &self,
        patience: Duration,
        mut ready: impl FnMut(&mut State) -> Option<T>,
    ) -> Result<Option<T>, i32> {
        let _interest = self.interest();
        let deadline = Instant::now() + patience;
        let mut state = self.state();
        loop {
            if let Some(value) = ready(&mut state) {
                return Ok(Some(value));
            }
            if self.lost.get().is_some() {
                return Err(self.lost_status());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            state = self.follow_at_most(state, left);
        }
    }

    /// Waits until a read is over. Succeeds only with all of its data in place; after a failure no lane can write to its target any more.
    pub(crate) fn wait_read(&self, payload: u64) -> Result<(), i32> {
        let _interest = self.interest();
        let mut state = self.state();
        loop {
            if let Progress::Ended(outcome) = state.take_outcome(payload, self.lost_status()) {
                return outcome;
            }
            state = self.follow(state);
        }
    }

    /// Waits until the last byte of a write has left, or no lane can read from its source any more. As long as grants are to come
    /// this thread reads for itself: a payload lane that has nothing granted stands still.
    pub(crate) fn wait_write(&self, payload: u64) {
        let _interest = self.interest();
        loop {
            let state = self.state();
            match state.writes.get(&payload) {
                None => return,
                Some(write) if write.ungranted == 0 => drop(self.follow(state)),
                Some(_) => {
                    // A failure ends all writes.
                    self.read_or_follow(state, tuning().spin_for_answer);
                }
            }
        }
    }

    /// As [`Self::wait_read`], for small data, which comes on the command lane: this thread reads for itself.
    pub(crate) fn wait_data(&self, payload: u64, patience: Duration) -> Result<(), i32> {
        loop {
            let mut state = self.state();
            match state.take_outcome(payload, self.lost_status()) {
                Progress::Ended(outcome) => {
                    self.lull.store(true, Ordering::Relaxed);
                    return outcome;
                }
                // They come on other lanes.
                Progress::Behind => {
                    drop(state);
                    return self.wait_read(payload);
                }
                Progress::Coming => {}
            }
            // Where nobody can read any more the session has ended, and so has the read.
            self.read_or_follow(state, patience);
        }
    }

    /// As [`Self::wait_for`], for what is told on the command lane: this thread reads for itself. What was told and is held back comes with
    /// the end of a read, on another lane: then this thread must not sleep on the command lane.
    pub(crate) fn wait_told<T>(
        &self,
        mut ready: impl FnMut(&mut State) -> Option<T>,
    ) -> Result<T, i32> {
        let mut interest = None;
        loop {
            let mut state = self.state();
            if let Some(value) = ready(&mut state) {
                return Ok(value);
            }
            if self.lost.get().is_some() {
                return Err(self.lost_status());
            }
            if state.held.is_empty() {
                self.read_or_follow(state, tuning().spin_for_answer);
            } else if interest.is_some() {
                drop(self.follow(state));
            } else {
                drop(state);
                interest = Some(self.interest());
            }
        }
    }

    /// Sleeps until another thread has changed the state.
    fn follow<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        state.followers += 1;
        let mut state = self
            .changed
            .wait(state)
            .unwrap_or_else(PoisonError::into_inner);
        state.followers -= 1;
        state
    }

    /// As [`Self::follow`], for no longer than `patience`.
    pub(super) fn follow_at_most<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        patience: Duration,
    ) -> MutexGuard<'a, State> {
        state.followers += 1;
        let (mut state, _) = self
            .changed
            .wait_timeout(state, patience)
            .unwrap_or_else(PoisonError::into_inner);
        state.followers -= 1;
        state
    }

    /// Reads what comes, or waits until whoever does so already has read something; `false` where nobody can any more.
    fn read_or_follow(&self, state: MutexGuard<'_, State>, patience: Duration) -> bool {
        match self.inbound.try_lock() {
            Ok(mut inbound) => {
                drop(state);
                self.pump(&mut inbound, Some(patience));
                drop(inbound);
                self.hand_over();
            }
            Err(TryLockError::WouldBlock) => {
                drop(self.follow(state));
            }
            Err(TryLockError::Poisoned(_)) => {
                drop(state);
                self.fail("a thread died while it read from the server".into());
                return false;
            }
        }
        true
    }

    /// Reads what has come, without waiting; for callers that poll.
    pub(crate) fn poll(&self) {
        if let Ok(mut inbound) = self.inbound.try_lock() {
            self.pump(&mut inbound, None);
            drop(inbound);
            self.hand_over();
        }
    }

    /// After reading: somebody who waits may have to read next.
    fn hand_over(&self) {
        self.notify();
    }

    pub(super) fn read_loop(&self) {
        loop {
            {
                let mut held = self
                    .interested
                    .0
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                while self.interest.load(Ordering::SeqCst) == 0 && self.lost.get().is_none() {
                    held = self
                        .interested
                        .1
                        .wait(held)
                        .unwrap_or_else(PoisonError::into_inner);
                }
            }
            if self.lost.get().is_some() {
                return;
            }
            match self.lane().and_then(|lane| lane.wait_readable(None)) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(error) => return self.command_lane_failed(error.to_string()),
            }
            if self.interest.load(Ordering::SeqCst) == 0 {
                continue;
            }
            let mut inbound = self.inbound.lock().unwrap_or_else(PoisonError::into_inner);
            self.pump(&mut inbound, None);
            drop(inbound);
            self.hand_over();
        }
    }

    /// Takes bytes off the lane and acts on every whole message. With `patience` bytes are waited for: looked for that long first.
    fn pump(&self, reader: &mut FrameReader, patience: Option<Duration>) {
        let got = match patience {
            Some(patience) => self
                .lane()
                .and_then(|lane| lane.recv_soon(reader.space(), patience).map(Some)),
            None => self.lane().and_then(|lane| lane.try_recv(reader.space())),
        };
        let count = match got {
            Ok(None) => return,
            Ok(Some(0)) => {
                return self.command_lane_failed("the server closed the connection".into());
            }
            Ok(Some(count)) => count,
            Err(error) => return self.command_lane_failed(error.to_string()),
        };
        reader.filled(count);
        self.meter.received(count);
        let mut due: Vec<(Callback, i32)> = Vec::new();
        loop {
            let outcome = match reader.next() {
                Ok(None) => break,
                Ok(Some(message)) => Push::decode(message.id, message.body)
                    .map_err(ProtocolError::from)
                    .and_then(|push| self.act(push, &mut due)),
                Err(error) => Err(error),
            };
            if let Err(error) = outcome {
                self.fail(format!("the server broke the protocol: {error}"));
                break;
            }
        }
        self.received.store(reader.received(), Ordering::Release);
        for (callback, status) in due {
            callback(status);
        }
    }

    fn act(&self, push: Push<'_>, due: &mut Vec<(Callback, i32)>) -> Result<(), ProtocolError> {
        log::trace!("{}: {push:?}", self.name);
        match push {
            Push::Reply {
                to,
                status,
                after,
                body,
            } => {
                self.believe(status)?;
                let reply = Reply {
                    status,
                    body: body.to_vec(),
                };
                self.state()
                    .complete(after.iter(), HeldWhat::Reply(to, reply), due);
            }
            Push::Event {
                event,
                status,
                after,
                times,
            } => {
                self.believe(status)?;
                let mut state = self.state();
                if let (Some(_), Some(known)) = (times, state.events.get_mut(&event)) {
                    known.times = times;
                }
                state.complete(after.iter(), HeldWhat::Event(event, status), due);
            }
            Push::Failed {
                number,
                call,
                queue,
                status,
            } => {
                log::debug!(
                    "{}: request {number} ({}) failed: {}",
                    self.name,
                    (self.vocabulary.call_name)(call).unwrap_or("?"),
                    (self.vocabulary.status_name)(status).unwrap_or("?")
                );
                let mut state = self.state();
                if number == 0 {
                    // No request's fault: whatever ran on the device.
                    self.faulted(&mut state, status, due);
                    return Ok(());
                }
                // One entry per queue that this client made, however many failures a server reports.
                if state.failures.len() < FAILURE_LIMIT {
                    state.failures.entry(queue).or_insert(status);
                }
            }
            Push::Grant {
                payload,
                offset,
                length,
            } => self.granted(payload, offset, length)?,
            Push::Data { payload, bytes } => {
                let mut state = self.state();
                let Some(read) = state.reads.get_mut(&payload) else {
                    return Ok(());
                };
                let unexpected =
                    |detail: String| ProtocolError::new(CloseCode::UnexpectedPayload, detail);
                let claim = read.landing.claim(0, bytes.len() as u64);
                let claim = claim.map_err(|error| unexpected(error.to_string()))?;
                // SAFETY: the read's target belongs to the session until the read is over, which needs this lock.
                unsafe { read.target.scatter(0, bytes) };
                let whole = read.landing.arrived(claim).ok_or_else(|| {
                    unexpected(format!(
                        "{} bytes for a read of {}",
                        bytes.len(),
                        read.target.size()
                    ))
                })?;
                state.landed(payload, whole, due);
            }
            Push::NoData { payload, status } => {
                if !(self.vocabulary.is_failure)(status) {
                    return Err(ProtocolError::new(
                        CloseCode::UnexpectedPayload,
                        format!("no data for payload {payload}, and status {status} is no failure"),
                    ));
                }
                let mut state = self.state();
                let Some(read) = state.reads.get_mut(&payload) else {
                    state.ungranted(payload);
                    return Ok(());
                };
                read.failed = Some(status);
                // A lane that is writing right now ends the read when it is through.
                if read.active == 0 {
                    state.read_failed(payload, status, due);
                }
            }
            Push::Sent { payload } => {
                let mut state = self.state();
                if state.reads.contains_key(&payload) && !state.in_flight.contains(&payload) {
                    state.in_flight.push(payload);
                }
            }
            Push::Retired { bytes } => {
                let mut state = self.state();
                state.inline_retired = bytes.min(state.inline_posted);
            }
            Push::Text { bytes } => print_output(bytes),
            Push::ErrorText { bytes } => print_error(bytes),
            Push::Notice { context, text } => {
                let text = printable(&String::from_utf8_lossy(text), SHOWN_TEXT);
                // Under the lock: a context that has ended hears nothing more.
                let state = self.state();
                let listener = state.listeners.get(&context);
                let told = listener.map(|listener| listener(&text)).is_some();
                drop(state);
                if !told {
                    (self.vocabulary.notice)(&self.name, context, &text);
                }
            }
            Push::Close { code, text } => {
                let what = CloseCode::from_number(code)
                    .map_or_else(|| format!("code {code}"), |code| code.to_string());
                self.fail(format!(
                    "the server ended the session: {what} ({})",
                    String::from_utf8_lossy(text)
                ));
            }
            Push::Ack => {}
        }
        Ok(())
    }

    /// Refuses a status that the API does not have.
    fn believe(&self, status: i32) -> Result<(), ProtocolError> {
        match status == 0 || (self.vocabulary.is_failure)(status) {
            true => Ok(()),
            false => Err(ProtocolError::new(
                CloseCode::Malformed,
                format!("{status} is no status"),
            )),
        }
    }

    /// Every call answers with the fault once the reads that are under way have ended.
    fn faulted(&self, state: &mut State, status: i32, due: &mut Vec<(Callback, i32)>) {
        if state.events.contains_key(&FAULT) {
            return;
        }
        let fault = Arc::clone(&self.fault);
        let fell = move |status| {
            let _ = fault.compare_exchange(0, status, Ordering::Relaxed, Ordering::Relaxed);
        };
        let event = Event {
            callbacks: vec![Box::new(fell)],
            covered: state.reads.keys().copied().collect(),
            ..Event::default()
        };
        state.events.insert(FAULT, event);
        self.raise_interest();
        state.complete(std::iter::empty(), HeldWhat::Event(FAULT, status), due);
    }

    fn granted(&self, payload: u64, offset: u64, length: u64) -> Result<(), ProtocolError> {
        let unexpected = |what: &str| {
            ProtocolError::new(
                CloseCode::UnexpectedPayload,
                format!("grant for payload {payload}: {what}"),
            )
        };
        let source = {
            let mut state = self.state();
            let Some(write) = state.writes.get_mut(&payload) else {
                return Err(unexpected("there is no such write"));
            };
            let size = write.source.size() as u64;
            if length == 0
                || offset.checked_add(length).is_none_or(|end| end > size)
                || length > write.ungranted
            {
                return Err(unexpected("it lies outside the write"));
            }
            write.ungranted -= length;
            write.source
        };
        self.payload.send(payload, source, offset, length);
        Ok(())
    }
}
