//! Pageable memory with a server on this host: copied once, into blocks that the worker shares, from which the device copies by itself,
//! or the other way round.
//!
//! There are few blocks, for all threads. A transfer waits for blocks of its own only, which come back when its stream comes to them; one
//! that can have none goes over the payload lanes. So a transfer whose stream stands still keeps no other from going on.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use towline_backend::cuda as wire;

use super::shared::SharedHost;
use super::{Actor, Session};
use crate::tuning::tuning;

/// Bytes of a block.
const BLOCK: usize = 4 << 20;
/// Most blocks of a session.
const BLOCKS: usize = 16;
/// Most that one transfer has at once: one being filled, one on the bus, and two to spare.
const WINDOWS: usize = 4;

/// Bytes that are read at once, at least and at most: so that the processor copies some while the device brings more, which are in its
/// caches still.
const PIECES: Range<usize> = 256 << 10..1 << 20;
/// How many of them a short read is.
const PIECES_OF_SMALL: usize = 4;
/// Short reads that go without.
const SHORT_READS: u64 = 8;
/// Bytes that are worth a thread of their own.
const SHARE: usize = 4 << 20;

/// A part of a block that the device fills.
struct Piece {
    /// Where in the block it begins.
    at: usize,
    length: usize,
    /// What tells that the device has filled it.
    done: u64,
    /// Nothing of the block comes behind it.
    last: bool,
}

/// Where data goes to, on whatever thread.
#[derive(Clone, Copy)]
struct Target(*mut u8);

// SAFETY: the memory is the caller's who waits for the threads, and each has a part of it.
unsafe impl Send for Target {}
// SAFETY: as above.
unsafe impl Sync for Target {}

impl Target {
    fn at(self, offset: usize) -> *mut u8 {
        self.0.wrapping_add(offset)
    }
}

/// A session's blocks.
#[derive(Default)]
pub(super) struct Staging(Mutex<State>);

#[derive(Default)]
struct State {
    free: Vec<SharedHost>,
    made: usize,
    /// Reads that were asked for and need no block.
    short_reads: u64,
    /// The server has no more to give.
    exhausted: bool,
}

impl Staging {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has another session's blocks from now on; its own are of no use any more.
    pub(super) fn take_over(&self, other: &Self) {
        let theirs = std::mem::take(&mut *other.lock());
        *self.lock() = theirs;
    }

    /// Whether a short read may have a block: a program that makes few does not need one for them.
    fn wants_short_read(&self) -> bool {
        let mut state = self.lock();
        state.short_reads += 1;
        state.short_reads > SHORT_READS
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
        match self.share(actor, call, BLOCK, 0) {
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
                self.link().flush();
                self.link()
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
                if self.link().state().events.remove(&done).is_some() {
                    self.link().lower_interest();
                }
                return Err(status);
            }
            next += length;
        }
        Ok(size)
    }

    /// Reads from the device to where `target` is, through blocks, on some threads at once where it is long. What was not brought, for
    /// want of blocks: parts by where they begin, and their bytes.
    ///
    /// # Safety
    /// `target` is writable for `size` bytes.
    pub(super) unsafe fn read_staged(
        &self,
        actor: Actor,
        call: &'static str,
        stream: u64,
        address: u64,
        target: *mut u8,
        size: usize,
    ) -> Result<Vec<(usize, usize)>, i32> {
        let threads = (size / SHARE).clamp(1, tuning().copy_threads);
        let share = size.div_ceil(threads).next_multiple_of(PIECES.start);
        let target = Target(target);
        let part = |start: usize| {
            let length = share.min(size - start);
            let (address, target) = (address.wrapping_add(start as u64), target.at(start));
            // SAFETY: the caller's contract; the parts are apart.
            let brought = unsafe { self.read_part(actor, call, stream, address, target, length) };
            brought.map(|brought| (start + brought, length - brought))
        };
        let parts: Vec<_> = std::thread::scope(|scope| {
            let others = (share..size).step_by(share);
            let others: Vec<_> = others
                .map(|start| {
                    let name = crate::threads::named("towline-copy");
                    (start, name.spawn_scoped(scope, move || part(start)))
                })
                .collect();
            let own = part(0);
            let others = others.into_iter().map(|(start, thread)| match thread {
                Ok(thread) => thread.join().unwrap_or(Err(wire::CUDA_ERROR_UNKNOWN)),
                // The system has no thread for it.
                Err(_) => part(start),
            });
            std::iter::once(own).chain(others).collect()
        });
        let mut left = Vec::new();
        for part in parts {
            left.push(part?);
        }
        left.retain(|(_, length)| *length > 0);
        Ok(left)
    }

    /// As [`Self::read_staged`], of what one block holds and the device brings before a thread could wake up: one wait, for the stream.
    /// `None` where there is no block.
    ///
    /// # Safety
    /// As for [`Self::read_staged`].
    pub(super) unsafe fn read_short(
        &self,
        actor: Actor,
        call: &'static str,
        stream: u64,
        address: u64,
        target: *mut u8,
        size: usize,
    ) -> Option<Result<(), i32>> {
        if !self.staging.wants_short_read() {
            return None;
        }
        let block = self.block(actor, call)?;
        let stream = wire::StreamHandle(stream);
        let request = wire::ReadShared {
            stream,
            address,
            area: block.number(),
            offset: 0,
            size: size as u64,
            done: 0,
        };
        let posted = self.post(actor, &request);
        let waited = posted.and_then(|()| {
            self.synchronise(
                actor,
                call,
                &wire::SynchronizeStream { stream },
                Some(stream.0),
            )?;
            self.take_failure(Some(stream.0)).map_or(Ok(()), Err)
        });
        if waited.is_ok() {
            // SAFETY: the caller's contract; the device is done with the block.
            unsafe { target.copy_from_nonoverlapping(block.start(), size) };
        }
        if self.lost().is_none() {
            self.staging.give(block);
        }
        Some(waited)
    }

    /// How much of a part was brought, less than all only where there is no block. Copied piece by piece as the device comes with it.
    ///
    /// # Safety
    /// As for [`Self::read_staged`].
    unsafe fn read_part(
        &self,
        actor: Actor,
        call: &'static str,
        stream: u64,
        address: u64,
        target: *mut u8,
        size: usize,
    ) -> Result<usize, i32> {
        let step = (size / PIECES_OF_SMALL)
            .next_multiple_of(PIECES.start)
            .clamp(PIECES.start, PIECES.end);
        let mut blocks: VecDeque<SharedHost> = VecDeque::new();
        let mut pieces: VecDeque<Piece> = VecDeque::new();
        // Bytes of the last block that are in use.
        let mut filled = BLOCK;
        let (mut next, mut complete, mut failed) = (0, 0, Ok(()));
        loop {
            while next < size && failed.is_ok() {
                if filled == BLOCK {
                    if blocks.len() == WINDOWS {
                        break;
                    }
                    let Some(block) = self.block(actor, call) else {
                        break;
                    };
                    blocks.push_back(block);
                    filled = 0;
                }
                let Some(block) = blocks.back() else { break };
                let length = (size - next).min(step).min(BLOCK - filled);
                let done = self.mark();
                let request = wire::ReadShared {
                    stream: wire::StreamHandle(stream),
                    address: address.wrapping_add(next as u64),
                    area: block.number(),
                    offset: filled as u64,
                    size: length as u64,
                    done,
                };
                if let Err(status) = self.post(actor, &request) {
                    self.forget(done);
                    failed = Err(status);
                    break;
                }
                let at = filled;
                next += length;
                filled += length;
                let last = filled == BLOCK || next == size;
                pieces.push_back(Piece {
                    at,
                    length,
                    done,
                    last,
                });
            }
            let (Some(piece), Some(block)) = (pieces.pop_front(), blocks.front()) else {
                break;
            };
            self.link().flush();
            let done = piece.done;
            let ended = self.link().wait_told(|state| {
                let event = state.events.get(&done);
                event.map_or(Some(0), |event| event.status)
            });
            self.forget(done);
            match ended {
                Ok(0) if failed.is_ok() => {
                    let (from, to) = (
                        block.start().wrapping_add(piece.at),
                        target.wrapping_add(complete),
                    );
                    // SAFETY: the caller's contract; the device is done with this part of the block.
                    unsafe { to.copy_from_nonoverlapping(from, piece.length) };
                    complete += piece.length;
                }
                Ok(status) => failed = failed.and(Err(status)),
                // The session is over, and its blocks with it.
                Err(lost) => {
                    failed = failed.and(Err(lost));
                    blocks.clear();
                    break;
                }
            }
            if piece.last
                && let Some(block) = blocks.pop_front()
            {
                self.staging.give(block);
            }
        }
        // One that was not filled, of a part that failed.
        for block in blocks {
            self.staging.give(block);
        }
        failed.map(|()| complete)
    }
}
