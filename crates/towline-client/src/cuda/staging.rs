//! Pageable memory with a server on this host: copied once, into blocks that the worker shares, from which the device copies by itself,
//! or the other way round.
//!
//! There are few blocks, for all threads. A transfer waits for blocks of its own only, which come back when its stream comes to them; one
//! that can have none goes over the payload lanes. So a transfer whose stream stands still keeps no other from going on.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use towline_backend::cuda as wire;

use super::shared::SharedHost;
use super::{Actor, Session};

/// Bytes of a block.
const BLOCK: usize = 4 << 20;
/// Most blocks of a session.
const BLOCKS: usize = 16;
/// Most that one transfer has at once: one being filled, one on the bus, and two to spare.
const WINDOWS: usize = 4;

/// A session's blocks.
#[derive(Default)]
pub(super) struct Staging(Mutex<State>);

#[derive(Default)]
struct State {
    free: Vec<SharedHost>,
    made: usize,
    /// The server has no more to give.
    exhausted: bool,
}

impl Staging {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn give(&self, block: SharedHost) {
        self.lock().free.push(block);
    }
}

impl Session {
    /// A block, if there is one.
    fn block(&self, actor: Actor, call: &'static str) -> Option<SharedHost> {
        {
            let mut state = self.staging.lock();
            if let Some(block) = state.free.pop() {
                return Some(block);
            }
            if state.made == BLOCKS || state.exhausted {
                return None;
            }
            state.made += 1;
        }
        match self.share(actor, call, BLOCK) {
            Ok(block) => Some(block),
            Err(status) => {
                log::debug!("{}: no block to stage copies in: {status}", self.server());
                let mut state = self.staging.lock();
                state.made -= 1;
                state.exhausted = true;
                None
            }
        }
    }

    /// Writes what lies at `source` to the device, through blocks. How much of it was taken, less than all only where there is no
    /// block.
    ///
    /// # Safety
    /// `source` is readable for `size` bytes until this returns.
    pub(super) unsafe fn write_staged(
        &self,
        actor: Actor,
        call: &'static str,
        stream: u64,
        address: u64,
        source: *const u8,
        size: usize,
    ) -> Result<usize, i32> {
        let under_way = Arc::new(AtomicUsize::new(0));
        let mut next = 0;
        while next < size {
            let busy = under_way.load(Ordering::Acquire);
            let block = match busy < WINDOWS {
                true => self.block(actor, call),
                false => None,
            };
            let Some(block) = block else {
                if busy == 0 {
                    return Ok(next);
                }
                self.link.flush();
                self.link
                    .wait_for(|_| (under_way.load(Ordering::Acquire) < busy).then_some(()))?;
                continue;
            };
            let length = (size - next).min(BLOCK);
            // SAFETY: the caller's contract; the block has so many bytes, and is nobody else's.
            unsafe {
                block
                    .start()
                    .copy_from_nonoverlapping(source.wrapping_add(next), length)
            };
            let request = wire::WriteShared {
                stream: wire::StreamHandle(stream),
                address: address.wrapping_add(next as u64),
                area: block.number(),
                offset: 0,
                size: length as u64,
                done: 0,
            };
            under_way.fetch_add(1, Ordering::AcqRel);
            let (staging, counted) = (Arc::clone(&self.staging), Arc::clone(&under_way));
            let done = self.mark_with(move |_| {
                staging.give(block);
                counted.fetch_sub(1, Ordering::AcqRel);
            });
            if let Err(status) = self.post(actor, &wire::WriteShared { done, ..request }) {
                // Nothing was posted, so nothing will be told.
                if self.link.state().events.remove(&done).is_some() {
                    self.link.lower_interest();
                }
                return Err(status);
            }
            next += length;
        }
        Ok(size)
    }

    /// Reads from the device to where `target` is, through blocks. How much of it was brought, less than all only where there is no
    /// block.
    ///
    /// # Safety
    /// `target` is writable for `size` bytes until this returns.
    pub(super) unsafe fn read_staged(
        &self,
        actor: Actor,
        call: &'static str,
        stream: u64,
        address: u64,
        target: *mut u8,
        size: usize,
    ) -> Result<usize, i32> {
        let mut windows: VecDeque<(SharedHost, u64, usize, usize)> = VecDeque::new();
        let (mut next, mut complete, mut failed) = (0, 0, Ok(()));
        loop {
            while next < size && windows.len() < WINDOWS && failed.is_ok() {
                let Some(block) = self.block(actor, call) else {
                    break;
                };
                let length = (size - next).min(BLOCK);
                let done = self.mark();
                let request = wire::ReadShared {
                    stream: wire::StreamHandle(stream),
                    address: address.wrapping_add(next as u64),
                    area: block.number(),
                    offset: 0,
                    size: length as u64,
                    done,
                };
                if let Err(status) = self.post(actor, &request) {
                    self.forget(done);
                    self.staging.give(block);
                    failed = Err(status);
                    break;
                }
                windows.push_back((block, done, next, length));
                next += length;
            }
            let Some((block, done, offset, length)) = windows.pop_front() else {
                break;
            };
            self.link.flush();
            let ended = self.link.wait_for(|state| {
                let event = state.events.get(&done);
                event.map_or(Some(0), |event| event.status)
            });
            self.forget(done);
            match ended {
                Ok(0) if failed.is_ok() => {
                    // SAFETY: the caller's contract; the device is done with the block.
                    unsafe {
                        target
                            .wrapping_add(offset)
                            .copy_from_nonoverlapping(block.start(), length)
                    };
                    complete += length;
                    self.staging.give(block);
                }
                Ok(status) => {
                    failed = failed.and(Err(status));
                    self.staging.give(block);
                }
                // The session is over, and its blocks with it.
                Err(lost) => failed = failed.and(Err(lost)),
            }
        }
        failed.map(|()| complete)
    }
}
