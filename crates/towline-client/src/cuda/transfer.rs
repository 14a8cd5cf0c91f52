//! Data between the application's memory and device memory.

use towline_backend::cuda as wire;
use towline_session::Landing;

use super::{Actor, PAYLOAD_TAG, Session};
use crate::memory::HostBox;
use crate::state::Read;
use crate::tuning::{INLINE_CREDIT, SLAB_BYTES, tuning};

/// Reads up to this size come on the command lane; the worker has the same number.
const INLINE_READ: usize = 128 << 10;

/// Rows of device memory, from an address on.
#[derive(Debug, Clone, Copy)]
pub struct Rows {
    /// Where the first begins.
    pub address: u64,
    /// Bytes from one to the next.
    pub pitch: usize,
}

/// The application's rows.
#[derive(Debug, Clone, Copy)]
pub struct HostRows {
    /// Where the first begins.
    pub start: *mut u8,
    /// Bytes from one to the next.
    pub pitch: usize,
}

impl Session {
    /// Writes `size` bytes at `source` to device memory. With `captured` the source may be changed as soon as this returns.
    ///
    /// # Safety
    /// `source` is readable for `size` bytes: until this returns, or without `captured` until the stream has reached the copy.
    pub unsafe fn write(
        &self,
        actor: Actor,
        call: &'static str,
        stream: u64,
        address: u64,
        source: *const u8,
        size: usize,
        captured: bool,
    ) -> Result<(), i32> {
        self.settle_reads(source.addr(), size)?;
        let stream = wire::StreamHandle(stream);
        if self.travels_inline(size) {
            return self.post(
                actor,
                &wire::WriteInline {
                    stream,
                    address,
                    size: size as u64,
                    // SAFETY: the caller's contract.
                    data: unsafe { std::slice::from_raw_parts(source, size) },
                },
            );
        }
        let payload = self.mint(PAYLOAD_TAG);
        self.healthy()?;
        self.expect_grants(payload, HostBox::linear(source, size), size);
        let posted = self.post(
            actor,
            &wire::WriteBulk {
                stream,
                address,
                size: size as u64,
                payload,
            },
        );
        self.captured(call, payload, posted, captured)
    }

    /// Reads `size` bytes of device memory into `target`. With `wait` they are there when this returns, otherwise when a later
    /// synchronisation or event covers the copy.
    ///
    /// # Safety
    /// `target` is writable for `size` bytes, and left alone, until the data is there.
    pub unsafe fn read(
        &self,
        actor: Actor,
        call: &'static str,
        stream: u64,
        address: u64,
        target: *mut u8,
        size: usize,
        wait: bool,
    ) -> Result<(), i32> {
        self.healthy()?;
        let payload = self.expect_data(HostBox::linear(target, size), wait);
        let posted = self.post(
            actor,
            &wire::Read {
                stream: wire::StreamHandle(stream),
                address,
                size: size as u64,
                payload,
                urgent: u32::from(wait),
            },
        );
        self.arrived(call, payload, size, posted, wait)
    }

    /// As [`Self::write`], row by row.
    ///
    /// # Safety
    /// As for [`Self::write`], for each row.
    pub unsafe fn write_rows(
        &self,
        actor: Actor,
        call: &'static str,
        stream: u64,
        rows: Rows,
        source: HostRows,
        (width, height): (usize, usize),
        captured: bool,
    ) -> Result<(), i32> {
        for (rows, source, height) in slabs(rows, source, width, height) {
            let area = HostBox::pitched(source.start, width, height, 1, source.pitch, 0);
            let size = width * height;
            self.settle_reads(source.start.addr(), source.pitch * height)?;
            let place = place(rows, width, height);
            let mut request = wire::WriteBox {
                stream: wire::StreamHandle(stream),
                array: wire::ArrayHandle(0),
                address: rows.address,
                place: wire::List::Values(&place),
                payload: 0,
                size: size as u64,
                data: None,
            };
            if self.travels_inline(size) {
                let mut packed = Vec::with_capacity(size);
                // SAFETY: the caller's contract.
                unsafe { area.gather(0, size, &mut packed) };
                request.data = Some(&packed);
                self.post(actor, &request)?;
            } else {
                let payload = self.mint(PAYLOAD_TAG);
                self.healthy()?;
                self.expect_grants(payload, area, size);
                request.payload = payload;
                let posted = self.post(actor, &request);
                self.captured(call, payload, posted, captured)?;
            }
        }
        Ok(())
    }

    /// As [`Self::read`], row by row.
    ///
    /// # Safety
    /// As for [`Self::read`], for each row.
    pub unsafe fn read_rows(
        &self,
        actor: Actor,
        call: &'static str,
        stream: u64,
        rows: Rows,
        target: HostRows,
        (width, height): (usize, usize),
        wait: bool,
    ) -> Result<(), i32> {
        for (rows, target, height) in slabs(rows, target, width, height) {
            self.healthy()?;
            let area = HostBox::pitched(target.start, width, height, 1, target.pitch, 0);
            let payload = self.expect_data(area, wait);
            let place = place(rows, width, height);
            let posted = self.post(
                actor,
                &wire::ReadBox {
                    stream: wire::StreamHandle(stream),
                    array: wire::ArrayHandle(0),
                    address: rows.address,
                    place: wire::List::Values(&place),
                    size: (width * height) as u64,
                    payload,
                    urgent: u32::from(wait),
                },
            );
            self.arrived(call, payload, width * height, posted, wait)?;
        }
        Ok(())
    }

    /// Whether so much data goes with its request: it is small, and the server has room.
    fn travels_inline(&self, size: usize) -> bool {
        let small = size <= tuning().inline_bytes || !self.link.payload.exists();
        small
            && self
                .link
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
            self.link.state().ungranted(payload);
            self.link.notify();
            return Err(status);
        }
        if !wait {
            return Ok(());
        }
        let started = std::time::Instant::now();
        self.link.flush();
        self.link.wait_write(payload);
        self.link.meter.waited(call, started.elapsed());
        match self.link.lost() {
            Some(_) => Err(super::CUDA.lost),
            None => self.healthy(),
        }
    }

    fn expect_data(&self, target: HostBox, wait: bool) -> u64 {
        let payload = self.mint(PAYLOAD_TAG);
        let read = Read {
            target,
            landing: Landing::new(target.size() as u64),
            active: 0,
            failed: None,
            background: !wait,
        };
        self.link.state().reads.insert(payload, read);
        if !wait {
            self.link.raise_interest();
        }
        payload
    }

    fn arrived(
        &self,
        call: &'static str,
        payload: u64,
        size: usize,
        posted: Result<(), i32>,
        wait: bool,
    ) -> Result<(), i32> {
        if let Err(status) = posted {
            // Nothing was sent, so nothing will come.
            self.link.state().landed(payload, &mut Vec::new());
            self.link.state().failures.remove(&payload);
            self.link.notify();
            return Err(status);
        }
        if !wait {
            return Ok(());
        }
        let started = std::time::Instant::now();
        self.link.flush();
        if size <= INLINE_READ {
            self.link.wait_data(payload);
        } else {
            self.link.wait_read(payload);
        }
        self.link.meter.waited(call, started.elapsed());
        if self.link.lost().is_some() {
            return Err(super::CUDA.lost);
        }
        match self.link.state().failures.remove(&payload) {
            Some(status) => Err(status),
            None => self.healthy(),
        }
    }

    /// Data on its way into a range that is about to be read must be there first: on the device the copies would run in order.
    fn settle_reads(&self, start: usize, size: usize) -> Result<(), i32> {
        let overlaps = |state: &crate::state::State| {
            let mut targets = state.reads.values().map(|read| read.target.range());
            targets.any(|target| target.start < start.saturating_add(size) && start < target.end)
        };
        if !overlaps(&self.link.state()) {
            return Ok(());
        }
        self.link.flush();
        self.link.wait_for(|state| (!overlaps(state)).then_some(()))
    }
}

/// x, y, z, width, height, depth, pitch, height of a slice.
fn place(rows: Rows, width: usize, height: usize) -> [u64; 8] {
    let word = |value: usize| value as u64;
    [
        0,
        0,
        0,
        word(width),
        word(height),
        1,
        word(rows.pitch),
        word(height),
    ]
}

/// Cuts rows into pieces that a worker can stage: of whole rows, where a row fits.
fn slabs(
    rows: Rows,
    host: HostRows,
    width: usize,
    height: usize,
) -> impl Iterator<Item = (Rows, HostRows, usize)> {
    let step = (SLAB_BYTES / width.max(1)).max(1);
    (0..height).step_by(step).map(move |row| {
        let device = Rows {
            address: rows.address + (row * rows.pitch) as u64,
            ..rows
        };
        let host = HostRows {
            start: host.start.wrapping_add(row * host.pitch),
            ..host
        };
        (device, host, step.min(height - row))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_cut_into_slabs_without_a_gap() {
        let rows = Rows {
            address: 0x1000,
            pitch: 1 << 20,
        };
        let host = HostRows {
            start: std::ptr::null_mut(),
            pitch: 1 << 19,
        };
        let cut: Vec<_> = slabs(rows, host, 1 << 19, 70).collect();
        assert_eq!(cut.iter().map(|(_, _, height)| height).sum::<usize>(), 70);
        let (second, host, _) = cut[1];
        assert_eq!(second.address, 0x1000 + (32 << 20));
        assert_eq!(host.start.addr(), 16 << 20);
        assert!(slabs(rows, host, 0, 0).next().is_none());
    }
}
