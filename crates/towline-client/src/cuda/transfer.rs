//! Data between the application's memory and device memory.

use std::time::Duration;

use towline_backend::cuda as wire;
use towline_session::Landing;

use super::{Actor, PAYLOAD_TAG, Posting, Session};
use crate::memory::HostBox;
use crate::raw::HostPtr;
use crate::state::{Covered, Read, ToldBy};
use crate::tuning::{INLINE_BYTES, INLINE_CREDIT, tuning};

/// Reads up to this size come on the command lane; the worker has the same number.
const INLINE_READ: usize = 128 << 10;
/// Over a network a larger write waits for the server's grant: three of 128 KiB, a kernel and its result took 471 us so and 223 us with
/// their requests (H200, loopback); beyond that, many at once are quicker on payload lanes.
const INLINE_OVER_NETWORK: usize = 128 << 10;

/// Reads beyond this size, of pageable memory, come through blocks of shared memory where there are some.
const STAGED_READ: usize = 16 << 10;
/// Up to this size all of it is waited for at once, and then copied.
const SHORT_READ: usize = 512 << 10;

/// Asynchronous reads up to this size wait for what comes next before they are posted.
const HELD_BYTES: usize = 4 << 10;

/// A read that has not been posted.
pub(super) struct HeldRead {
    actor: Actor,
    call: &'static str,
    stream: u64,
    address: u64,
    target: HostBox,
}

/// A box on the device: of an array, or of memory with pitches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceBox {
    /// The array's number; 0 for memory.
    pub array: u64,
    /// Where memory begins.
    pub address: u64,
    /// Where in it the box begins: x in bytes, y, z.
    pub start: [usize; 3],
    /// Bytes from a row of memory to the next.
    pub pitch: usize,
    /// Rows from a slice of memory to the next.
    pub height: usize,
}

/// Rows of the application's memory, and slices of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostRows {
    /// Where its first row begins.
    pub start: HostPtr,
    /// Bytes from a row to the next.
    pub pitch: usize,
    /// Bytes from a slice to the next.
    pub slice_pitch: usize,
}

impl DeviceBox {
    /// `size` bytes of memory in a row.
    pub fn bytes(address: u64, size: usize) -> Self {
        Self {
            array: 0,
            address,
            start: [0; 3],
            pitch: size,
            height: 1,
        }
    }

    /// Where a box of this size begins, if its rows lie end to end in memory.
    pub fn linear(&self, [width, height, depth]: [usize; 3]) -> Option<u64> {
        let [x, y, z] = self.start;
        let rows_touch = height == 1 || self.pitch == width;
        let slices_touch = depth == 1 || (self.pitch == width && self.height == height);
        let first = (z * self.height + y) * self.pitch + x;
        let touch = self.array == 0 && rows_touch && slices_touch;
        touch.then(|| self.address.wrapping_add(first as u64))
    }

    /// x, y, z, width, height, depth, pitch, height of a slice.
    fn place(&self, [width, height, depth]: [usize; 3]) -> [u64; 8] {
        let [x, y, z] = self.start;
        [x, y, z, width, height, depth, self.pitch, self.height].map(|word| word as u64)
    }
}

impl HostRows {
    fn of(&self, [width, height, depth]: [usize; 3]) -> HostBox {
        let (pitch, slice_pitch) = (self.pitch, self.slice_pitch);
        HostBox::pitched(self.start.start(), width, height, depth, pitch, slice_pitch)
    }
}

/// The state of host memory that is written to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// It may change as soon as the call returns, so that its bytes are taken before.
    Fleeting,
    /// It stays as it is until the stream has reached the copy.
    Still,
    /// A function of the host that the stream waits for may still write it: its bytes are taken when the stream has reached the copy.
    Awaited,
}

impl Session {
    /// Writes `size` bytes at `source` to device memory.
    pub fn write(
        &self,
        actor: Actor,
        call: &'static str,
        stream: u64,
        address: u64,
        source: HostPtr,
        size: usize,
        state: Source,
    ) -> Result<(), i32> {
        self.settle_reads(source.addr(), size)?;
        let stream = wire::StreamHandle(stream);
        if state != Source::Awaited && self.travels_inline(size) {
            return self.post(
                actor,
                &wire::WriteInline {
                    stream,
                    address,
                    size: size as u64,
                    // SAFETY: the contract of `HostPtr`.
                    data: unsafe { std::slice::from_raw_parts(source.start(), size) },
                },
            );
        }
        let (mut address, mut source, mut size) = (address, source, size);
        if state == Source::Fleeting && self.stages() {
            self.healthy()?;
            let from = source.start();
            // SAFETY: the contract of `HostPtr`.
            let taken = unsafe { self.write_staged(actor, call, stream.0, address, from, size) }?;
            if taken == size {
                return Ok(());
            }
            address = address.wrapping_add(taken as u64);
            source = source.offset(taken);
            size -= taken;
        }
        let payload = self.mint(PAYLOAD_TAG);
        self.healthy()?;
        let whole = HostBox::linear(source.start(), size);
        self.link().expect_grants(payload, whole)?;
        let posted = self.post(
            actor,
            &wire::WriteBulk {
                stream,
                address,
                size: size as u64,
                payload,
            },
        );
        self.captured(call, payload, posted, state == Source::Fleeting)
    }

    /// Whether copies from and to pageable memory go through blocks that the worker shares.
    fn stages(&self) -> bool {
        tuning().staging && self.shares_memory()
    }

    /// Reads `size` bytes of device memory into `target`. With `wait` they are there when this returns, otherwise when a later
    /// synchronisation or event covers the copy.
    pub fn read(
        &self,
        actor: Actor,
        call: &'static str,
        stream: u64,
        address: u64,
        target: HostPtr,
        size: usize,
        wait: bool,
    ) -> Result<(), i32> {
        self.healthy()?;
        if wait && size > STAGED_READ && self.stages() {
            self.settle_reads(target.addr(), size)?;
            if size <= SHORT_READ {
                let to = target.start();
                // SAFETY: the contract of `HostPtr`.
                let read = unsafe { self.read_short(actor, call, stream, address, to, size) };
                if let Some(read) = read {
                    return read.and_then(|()| self.healthy());
                }
            }
        }
        if wait && size > INLINE_READ && self.stages() {
            let started = std::time::Instant::now();
            let to = target.start();
            // SAFETY: the contract of `HostPtr`.
            let left = unsafe { self.read_staged(actor, call, stream, address, to, size) };
            self.link().meter.waited(call, started.elapsed());
            for (start, length) in left? {
                let (address, target) = (address.wrapping_add(start as u64), target.offset(start));
                self.read_sent(actor, call, stream, address, target, length, wait)?;
            }
            return self.healthy();
        }
        self.read_sent(actor, call, stream, address, target, size, wait)
    }

    /// As [`Self::read`], over the lanes.
    fn read_sent(
        &self,
        actor: Actor,
        call: &'static str,
        stream: u64,
        address: u64,
        target: HostPtr,
        size: usize,
        wait: bool,
    ) -> Result<(), i32> {
        // Chunks of two reads into one place would land in any order.
        self.settle_reads(target.addr(), size)?;
        let read = HeldRead {
            actor,
            call,
            stream,
            address,
            target: HostBox::linear(target.start(), size),
        };
        let mut posting = self.posting();
        self.post_held(&mut posting)?;
        if !wait && size <= HELD_BYTES {
            posting.held = Some(read);
            return Ok(());
        }
        let (payload, posted) = self.post_read(&mut posting, &read, wait);
        drop(posting);
        self.arrived(call, payload, size, posted, wait.then(|| actor.patience()))
    }

    fn post_read(
        &self,
        posting: &mut Posting,
        read: &HeldRead,
        wait: bool,
    ) -> (u64, Result<(), i32>) {
        let payload = self.expect_data(read.target, read.stream, read.actor, wait);
        let request = wire::Read {
            stream: wire::StreamHandle(read.stream),
            address: read.address,
            size: read.target.size() as u64,
            payload,
            urgent: u32::from(wait),
        };
        (payload, self.post_as(posting, read.actor, &request))
    }

    /// Posts the read that was held back, if there is one.
    #[inline]
    pub(super) fn post_held(&self, posting: &mut Posting) -> Result<(), i32> {
        match posting.held.take() {
            None => Ok(()),
            Some(read) => {
                let (payload, posted) = self.post_read(posting, &read, false);
                self.arrived(read.call, payload, read.target.size(), posted, None)
            }
        }
    }

    /// Waits for the read that was held back on `stream`, or on any; `None` where there is none. Then all that was posted to its stream
    /// before has been done.
    pub fn finish_held(&self, stream: Option<u64>) -> Option<Result<(), i32>> {
        let mut posting = self.posting();
        let held = posting.held.as_ref()?;
        if stream.is_some_and(|stream| stream != held.stream) {
            return None;
        }
        let read = posting.held.take()?;
        let (payload, posted) = self.post_read(&mut posting, &read, true);
        drop(posting);
        let patience = Some(read.actor.patience());
        Some(self.arrived(read.call, payload, read.target.size(), posted, patience))
    }

    /// Waits until no data is on its way into a range of host memory, or out of it.
    pub fn settle(&self, start: usize, size: usize) -> Result<(), i32> {
        self.settle_reads(start, size)?;
        let leaves = |state: &crate::state::State| {
            let mut sources = state.writes.values().map(|write| write.source.range());
            sources.any(|source| overlap(&source, start, size))
        };
        self.settled(leaves)
    }

    /// As [`Self::write`], for a box of so many bytes, rows and slices.
    pub fn write_box(
        &self,
        actor: Actor,
        call: &'static str,
        stream: u64,
        to: DeviceBox,
        from: HostRows,
        size: [usize; 3],
        state: Source,
    ) -> Result<(), i32> {
        let area = from.of(size);
        let (range, bytes) = (area.range(), area.size());
        self.settle_reads(range.start, range.len())?;
        let stream = wire::StreamHandle(stream);
        let array = wire::ArrayHandle(to.array);
        let (place, linear) = (to.place(size), to.linear(size));
        let place = wire::List::Values(&place);
        let length = bytes as u64;
        if state != Source::Awaited && self.travels_inline(bytes) {
            let mut packed = Vec::with_capacity(bytes);
            // SAFETY: the contract of `HostPtr`.
            unsafe { area.gather(0, bytes, &mut packed) };
            return match linear {
                Some(address) => self.post(
                    actor,
                    &wire::WriteInline {
                        stream,
                        address,
                        size: length,
                        data: &packed,
                    },
                ),
                None => self.post(
                    actor,
                    &wire::WriteBox {
                        stream,
                        array,
                        address: to.address,
                        place,
                        payload: 0,
                        size: length,
                        data: Some(&packed),
                    },
                ),
            };
        }
        let payload = self.mint(PAYLOAD_TAG);
        self.healthy()?;
        self.link().expect_grants(payload, area)?;
        let posted = match linear {
            Some(address) => self.post(
                actor,
                &wire::WriteBulk {
                    stream,
                    address,
                    size: length,
                    payload,
                },
            ),
            None => self.post(
                actor,
                &wire::WriteBox {
                    stream,
                    array,
                    address: to.address,
                    place,
                    payload,
                    size: length,
                    data: None,
                },
            ),
        };
        self.captured(call, payload, posted, state == Source::Fleeting)
    }

    /// As [`Self::read`], for a box of so many bytes, rows and slices.
    pub fn read_box(
        &self,
        actor: Actor,
        call: &'static str,
        stream: u64,
        from: DeviceBox,
        to: HostRows,
        size: [usize; 3],
        wait: bool,
    ) -> Result<(), i32> {
        self.healthy()?;
        let area = to.of(size);
        let (range, bytes) = (area.range(), area.size());
        self.settle_reads(range.start, range.len())?;
        let payload = self.expect_data(area, stream, actor, wait);
        let stream = wire::StreamHandle(stream);
        let place = from.place(size);
        let urgent = u32::from(wait);
        let posted = match from.linear(size) {
            Some(address) => self.post(
                actor,
                &wire::Read {
                    stream,
                    address,
                    size: bytes as u64,
                    payload,
                    urgent,
                },
            ),
            None => self.post(
                actor,
                &wire::ReadBox {
                    stream,
                    array: wire::ArrayHandle(from.array),
                    address: from.address,
                    place: wire::List::Values(&place),
                    size: bytes as u64,
                    payload,
                    urgent,
                },
            ),
        };
        self.arrived(call, payload, bytes, posted, wait.then(|| actor.patience()))
    }

    /// Whether so much data goes with its request: it is small, and the server has room.
    fn travels_inline(&self, size: usize) -> bool {
        let most = tuning().inline_bytes.unwrap_or(match self.shares_memory() {
            true => INLINE_BYTES,
            false => INLINE_OVER_NETWORK,
        });
        let small = size <= most || !self.link().payload.exists();
        small
            && self
                .link()
                .state()
                .take_inline(size as u64, INLINE_CREDIT.max(size as u64))
    }

    /// Waits until what the application may change when the call returns has left.
    fn captured(
        &self,
        call: &'static str,
        payload: u64,
        posted: Result<(), i32>,
        wait: bool,
    ) -> Result<(), i32> {
        if let Err(status) = posted {
            self.link().state().ungranted(payload);
            self.link().notify();
            return Err(status);
        }
        if !wait {
            return Ok(());
        }
        let started = std::time::Instant::now();
        self.link().flush();
        self.link().wait_write(payload);
        self.link().meter.waited(call, started.elapsed());
        match self.link().lost() {
            Some(_) => Err(self.link().lost_status()),
            None => self.healthy(),
        }
    }

    /// A failure of data that no call waits for is told by the next wait for `stream`.
    pub(super) fn expect_data(
        &self,
        target: HostBox,
        stream: u64,
        actor: Actor,
        wait: bool,
    ) -> u64 {
        let payload = self.mint(PAYLOAD_TAG);
        let mut state = self.link().state();
        let read = Read {
            target,
            landing: Landing::new(target.size() as u64),
            active: 0,
            failed: None,
            event: None,
            told_by: match wait {
                true => ToldBy::Call,
                false => ToldBy::Queue(stream),
            },
            place: actor.place(stream),
            covered: match wait {
                true => self.reads_of(&state, actor, stream),
                false => Covered::new(),
            },
        };
        state.reads.insert(payload, read);
        drop(state);
        if !wait {
            self.link().raise_interest();
        }
        payload
    }

    /// Gives what became of posting a read, and with `patience` waits for its data: looks for it that long first.
    fn arrived(
        &self,
        call: &'static str,
        payload: u64,
        size: usize,
        posted: Result<(), i32>,
        patience: Option<Duration>,
    ) -> Result<(), i32> {
        if let Err(status) = posted {
            self.link().state().withdraw(payload);
            self.link().notify();
            return Err(status);
        }
        let Some(patience) = patience else {
            return Ok(());
        };
        let started = std::time::Instant::now();
        self.link().flush();
        let outcome = match size <= INLINE_READ {
            true => self.link().wait_data(payload, patience),
            false => self.link().wait_read(payload),
        };
        self.link().meter.waited(call, started.elapsed());
        outcome.and_then(|()| self.healthy())
    }

    /// Data on its way into a range that is about to be read must be there first: on the device the copies would run in order.
    pub(super) fn settle_reads(&self, start: usize, size: usize) -> Result<(), i32> {
        self.post_held(&mut self.posting())?;
        let lands = |state: &crate::state::State| {
            let mut targets = state.reads.values().map(|read| read.target.range());
            targets.any(|target| overlap(&target, start, size))
        };
        self.settled(lands)
    }

    /// Waits until something that is under way is so no more.
    fn settled(&self, is_moving: impl Fn(&crate::state::State) -> bool) -> Result<(), i32> {
        if !is_moving(&self.link().state()) {
            return Ok(());
        }
        self.link().flush();
        self.link()
            .wait_for(|state| (!is_moving(state)).then_some(()))
    }
}

/// Whether a range has any of so many bytes from `start` on.
fn overlap(range: &std::ops::Range<usize>, start: usize, size: usize) -> bool {
    range.start < start.saturating_add(size) && start < range.end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_box_is_linear_where_its_rows_and_slices_touch() {
        let memory = DeviceBox {
            array: 0,
            address: 0x1000,
            start: [0, 1, 2],
            pitch: 16,
            height: 4,
        };
        let first = 0x1000 + (2 * 4 + 1) * 16;
        assert_eq!(memory.linear([16, 3, 1]), Some(first));
        assert_eq!(memory.linear([16, 4, 5]), Some(first));
        assert_eq!(memory.linear([8, 1, 1]), Some(first));
        assert_eq!(memory.linear([8, 2, 1]), None);
        assert_eq!(memory.linear([16, 3, 2]), None);
        assert_eq!(memory.linear([8, 1, 2]), None);
        let array = DeviceBox { array: 9, ..memory };
        assert_eq!(array.linear([16, 1, 1]), None);
    }
}
