//! Copies and fills.

use std::sync::Arc;

use towline_backend::cuda::*;

use super::SoftCuda;
use super::streams::Queue;
use crate::memory::{Arena, Purpose};

/// Bytes that are moved at once.
const PIECE: u64 = 64 << 10;
/// Largest row that is filled from one pattern.
const PATTERN: usize = 4096;

/// One side of a copy of a box: where its first byte is, and how far rows and slices are apart.
#[derive(Debug, Clone, Copy)]
pub(super) struct Side {
    pub(super) start: u64,
    pub(super) pitch: u64,
    pub(super) slice: u64,
}

/// The box that a copy moves.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extent {
    pub(super) width: u64,
    pub(super) height: u64,
    pub(super) depth: u64,
}

impl Side {
    /// Where a row starts.
    fn row(&self, y: u64, z: u64) -> Option<u64> {
        let slices = self.slice.checked_mul(z)?;
        let rows = self.pitch.checked_mul(y)?;
        self.start.checked_add(slices)?.checked_add(rows)
    }

    /// Bytes from the first to the last of a box.
    fn reach(&self, extent: Extent) -> Option<u64> {
        let last = self.row(extent.height.checked_sub(1)?, extent.depth.checked_sub(1)?)?;
        (last - self.start).checked_add(extent.width)
    }
}

/// Rows of a fill.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rows {
    pub(super) pitch: usize,
    /// Elements of a row.
    pub(super) width: usize,
    pub(super) height: usize,
}

impl SoftCuda {
    /// Memory of the host that devices see.
    pub(super) fn allocate_pinned(&self, bytes: usize) -> Result<u64, CUresult> {
        self.context()?;
        if bytes == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let found = self.arena.allocate(bytes as u64, u32::MAX, Purpose::Pinned);
        found.ok_or(CUDA_ERROR_OUT_OF_MEMORY)
    }

    pub(super) fn free_pinned(&self, address: u64) -> Result<(), CUresult> {
        self.streams.wait_all(None);
        match self.arena.free(address, Purpose::Pinned) {
            Some(_) => Ok(()),
            None => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// Whether all of this is device memory, as copies want it.
    pub(super) fn check_range(&self, address: CUdeviceptr, bytes: u64) -> Result<(), CUresult> {
        match bytes == 0 || self.arena.range(address, bytes).is_some() {
            true => Ok(()),
            false => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// Whether this is memory of the host's that stays as it is until the copy, unless the program changes it.
    pub(super) fn is_pinned(&self, address: u64, bytes: u64) -> bool {
        let known = self.arena.find(address);
        known.is_some_and(|one| {
            one.purpose == Purpose::Pinned && self.arena.range(address, bytes).is_some()
        })
    }

    /// Has host memory count as pinned. Kernels do not see it.
    pub(super) fn register(&self, start: u64, bytes: u64) -> Result<(), CUresult> {
        self.context()?;
        let end = start.checked_add(bytes).filter(|_| start > 0 && bytes > 0);
        let end = end.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let registered = &mut self.lock().registered;
        let before = registered.range(..end).next_back();
        if before.is_some_and(|(at, len)| at + len > start) {
            return Err(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
        }
        registered.insert(start, bytes);
        Ok(())
    }

    pub(super) fn unregister(&self, start: u64) -> Result<(), CUresult> {
        self.streams.wait_all(None);
        match self.lock().registered.remove(&start) {
            Some(_) => Ok(()),
            None => Err(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED),
        }
    }

    pub(super) fn is_registered(&self, address: u64, bytes: u64) -> bool {
        let state = self.lock();
        let range = state.registered.range(..=address).next_back();
        range.is_some_and(|(at, len)| address.saturating_add(bytes) <= at + len)
    }

    /// Copies bytes that were taken when the call was made.
    pub(super) fn write(
        &self,
        queue: &Arc<Queue>,
        to: CUdeviceptr,
        bytes: Vec<u8>,
    ) -> Result<(), CUresult> {
        self.check_range(to, bytes.len() as u64)?;
        let arena = Arc::clone(&self.arena);
        let work = move || match arena.range(to, bytes.len() as u64) {
            Some(span) if span.write(to, &bytes) => CUDA_SUCCESS,
            _ if bytes.is_empty() => CUDA_SUCCESS,
            _ => CUDA_ERROR_ILLEGAL_ADDRESS,
        };
        self.streams.push(queue, Box::new(work));
        Ok(())
    }

    /// Copies between ranges of memory that devices see.
    pub(super) fn copy(
        &self,
        queue: &Arc<Queue>,
        to: CUdeviceptr,
        from: CUdeviceptr,
        bytes: usize,
    ) -> Result<(), CUresult> {
        let bytes = bytes as u64;
        self.check_range(to, bytes)?;
        self.check_range(from, bytes)?;
        let arena = Arc::clone(&self.arena);
        let work = move || match copy(&arena, to, from, bytes) {
            Some(()) => CUDA_SUCCESS,
            None => CUDA_ERROR_ILLEGAL_ADDRESS,
        };
        self.streams.push(queue, Box::new(work));
        Ok(())
    }

    /// Copies a box between memory that devices see.
    pub(super) fn copy_box(
        &self,
        queue: &Arc<Queue>,
        to: Side,
        from: Side,
        extent: Extent,
    ) -> Result<(), CUresult> {
        if extent.width == 0 || extent.height == 0 || extent.depth == 0 {
            return Ok(());
        }
        for side in [to, from] {
            let rows_fit = extent.height == 1 || side.pitch >= extent.width;
            let reach = side.reach(extent).filter(|_| rows_fit);
            self.check_range(side.start, reach.ok_or(CUDA_ERROR_INVALID_VALUE)?)?;
        }
        let arena = Arc::clone(&self.arena);
        let work = move || {
            for z in 0..extent.depth {
                for y in 0..extent.height {
                    let rows = to.row(y, z).zip(from.row(y, z));
                    let copied = rows.and_then(|(to, from)| copy(&arena, to, from, extent.width));
                    if copied.is_none() {
                        return CUDA_ERROR_ILLEGAL_ADDRESS;
                    }
                }
            }
            CUDA_SUCCESS
        };
        self.streams.push(queue, Box::new(work));
        Ok(())
    }

    pub(super) fn fill(
        &self,
        queue: &Arc<Queue>,
        to: CUdeviceptr,
        element: &[u8],
        rows: Rows,
    ) -> Result<(), CUresult> {
        let row = (rows.width as u64).checked_mul(element.len() as u64);
        let last = (rows.pitch as u64).checked_mul((rows.height as u64).saturating_sub(1));
        let (Some(row), Some(last)) = (row, last) else {
            return Err(CUDA_ERROR_INVALID_VALUE);
        };
        if row == 0 || rows.height == 0 {
            return Ok(());
        }
        if !to.is_multiple_of(element.len() as u64) || rows.height > 1 && (rows.pitch as u64) < row
        {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        self.check_range(to, last.checked_add(row).ok_or(CUDA_ERROR_INVALID_VALUE)?)?;
        let pattern = element.repeat(PATTERN / element.len());
        let arena = Arc::clone(&self.arena);
        let work = move || {
            for line in 0..rows.height as u64 {
                let start = to + line * rows.pitch as u64;
                if fill_row(&arena, start, row, &pattern).is_none() {
                    return CUDA_ERROR_ILLEGAL_ADDRESS;
                }
            }
            CUDA_SUCCESS
        };
        self.streams.push(queue, Box::new(work));
        Ok(())
    }

    /// Gives memory back when the stream comes to it.
    pub(super) fn free_later(
        &self,
        queue: &Arc<Queue>,
        address: CUdeviceptr,
    ) -> Result<(), CUresult> {
        let known = self.arena.find(address);
        if known.is_none_or(|one| one.base != address || one.purpose != Purpose::Device) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let arena = Arc::clone(&self.arena);
        let work = move || match arena.free(address, Purpose::Device) {
            Some(_) => CUDA_SUCCESS,
            None => CUDA_ERROR_ILLEGAL_ADDRESS,
        };
        self.streams.push(queue, Box::new(work));
        Ok(())
    }
}

fn fill_row(arena: &Arena, start: u64, len: u64, pattern: &[u8]) -> Option<()> {
    let span = arena.range(start, len)?;
    let mut done = 0;
    while done < len {
        let part = (len - done).min(pattern.len() as u64);
        span.write(start + done, pattern.get(..part as usize)?);
        done += part;
    }
    Some(())
}

/// Copies in pieces; what overlaps is undefined, as on a GPU.
fn copy(arena: &Arena, to: u64, from: u64, bytes: u64) -> Option<()> {
    if bytes == 0 {
        return Some(());
    }
    let (target, source) = (arena.range(to, bytes)?, arena.range(from, bytes)?);
    let mut piece = vec![0; bytes.min(PIECE) as usize];
    let mut done = 0;
    while done < bytes {
        let part = (bytes - done).min(PIECE) as usize;
        let piece = piece.get_mut(..part)?;
        source.read(from + done, piece);
        target.write(to + done, piece);
        done += part as u64;
    }
    Some(())
}

/// Reads a range for a copy to memory of the host's.
pub(super) fn read_into(arena: &Arena, from: u64, to: &mut [u8]) -> CUresult {
    match arena.range(from, to.len() as u64) {
        _ if to.is_empty() => CUDA_SUCCESS,
        Some(span) if span.read(from, to) => CUDA_SUCCESS,
        _ => CUDA_ERROR_ILLEGAL_ADDRESS,
    }
}
