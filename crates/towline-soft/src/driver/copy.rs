//! Copies and fills.

use std::sync::Arc;

use towline_backend::cuda::arrays::Arrays;
use towline_backend::cuda::*;

use super::arrays::ArrayMemory;
use super::streams::Queue;
use super::{SoftCuda, lock};
use crate::memory::{Arena, Purpose};

/// Bytes that are moved at once.
const PIECE: u64 = 64 << 10;
/// Largest row that is filled from one pattern.
const PATTERN: usize = 4096;

/// One side of a copy of a box: where its first byte is, and how far rows and slices are apart.
#[derive(Debug, Clone, Copy)]
struct Side {
    start: u64,
    pitch: u64,
    slice: u64,
}

/// The box that a copy moves.
#[derive(Debug, Clone, Copy)]
struct Extent {
    width: u64,
    height: u64,
    depth: u64,
}

impl Extent {
    fn is_empty(self) -> bool {
        self.width == 0 || self.height == 0 || self.depth == 0
    }
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

    /// Whether all of this is device memory, as copies want it, or will be when a graph that was launched has allocated it.
    pub(super) fn check_range(&self, address: CUdeviceptr, bytes: u64) -> Result<(), CUresult> {
        let arena = &self.arena;
        match bytes == 0 || arena.range(address, bytes).is_some() || arena.knows(address, bytes) {
            true => Ok(()),
            false => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// Whether this is memory of the host's that stays as it is until the copy, unless the program changes it.
    pub(super) fn is_pinned(&self, address: u64, bytes: u64) -> bool {
        let known = self.arena.find(address);
        known.is_some_and(|one| {
            matches!(one.purpose, Purpose::Pinned | Purpose::Registered)
                && self.arena.range(address, bytes).is_some()
        })
    }

    /// Has devices see host memory, where it lies.
    pub(super) fn register(&self, start: u64, bytes: u64) -> Result<(), CUresult> {
        self.context()?;
        let end = start.checked_add(bytes);
        if start == 0 || bytes == 0 || end.is_none() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        match self.arena.register(start, bytes) {
            true => Ok(()),
            false => Err(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED),
        }
    }

    pub(super) fn unregister(&self, start: u64) -> Result<(), CUresult> {
        self.streams.wait_all(None);
        let known = self.arena.unregister(start);
        // What another thread has begun meanwhile may be at it; what begins from now on finds it gone.
        self.streams.wait_all(None);
        match known {
            true => Ok(()),
            false => Err(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED),
        }
    }

    /// Where devices see host memory.
    pub(super) fn device_pointer(&self, address: u64) -> Result<CUdeviceptr, CUresult> {
        match self.is_pinned(address, 1) {
            true => Ok(address),
            false => Err(CUDA_ERROR_INVALID_VALUE),
        }
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
    pub(super) fn copy_box(&self, queue: &Arc<Queue>, copying: Copying) -> Result<(), CUresult> {
        if copying.extent.is_empty() {
            return Ok(());
        }
        for side in [copying.to, copying.from] {
            let reach = copying.reach(side)?;
            self.check_range(side.start, reach)?;
        }
        let arena = Arc::clone(&self.arena);
        self.streams
            .push(queue, Box::new(move || copying.run(&arena)));
        Ok(())
    }

    pub(super) fn fill(
        &self,
        queue: &Arc<Queue>,
        to: CUdeviceptr,
        element: &[u8],
        rows: Rows,
    ) -> Result<(), CUresult> {
        let filling = Filling::of(to, element, rows)?;
        if filling.reach == 0 {
            return Ok(());
        }
        self.check_range(to, filling.reach)?;
        let arena = Arc::clone(&self.arena);
        self.streams
            .push(queue, Box::new(move || filling.run(&arena)));
        Ok(())
    }
}

/// A copy of a box.
#[derive(Debug, Clone, Copy)]
pub struct Copying {
    to: Side,
    from: Side,
    extent: Extent,
}

impl SoftCuda {
    /// Reads a description of a copy. Memory of the host's must be pinned, which a worker's always is.
    pub(super) fn copying(&self, copy: &CUDA_MEMCPY3D) -> Result<Copying, CUresult> {
        if copy.srcLOD != 0 || copy.dstLOD != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let size = [copy.WidthInBytes, copy.Height, copy.Depth];
        let arrays = lock(&self.arrays);
        let from_start = [copy.srcXInBytes, copy.srcY, copy.srcZ];
        let from = match copy.srcMemoryType {
            CU_MEMORYTYPE_ARRAY => within(&arrays, copy.srcArray, from_start, size)?,
            kind => side(
                kind,
                (copy.srcHost.addr() as u64, copy.srcDevice),
                from_start,
                (copy.srcPitch, copy.srcHeight),
            )?,
        };
        let to_start = [copy.dstXInBytes, copy.dstY, copy.dstZ];
        let to = match copy.dstMemoryType {
            CU_MEMORYTYPE_ARRAY => within(&arrays, copy.dstArray, to_start, size)?,
            kind => side(
                kind,
                (copy.dstHost.addr() as u64, copy.dstDevice),
                to_start,
                (copy.dstPitch, copy.dstHeight),
            )?,
        };
        let [width, height, depth] = size.map(|side| side as u64);
        let extent = Extent {
            width,
            height,
            depth,
        };
        Ok(Copying { to, from, extent })
    }
}

/// The side of a copy that is an array.
fn within(
    arrays: &Arrays<ArrayMemory>,
    array: CUarray,
    start: [usize; 3],
    size: [usize; 3],
) -> Result<Side, CUresult> {
    let array = arrays.array(array.addr())?;
    if !array.holds(start, size) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let [x, y, z] = start;
    let pitch = array.row_bytes();
    let offset = (z * array.rows() + y) * pitch + x;
    Ok(Side {
        start: array.memory.address + offset as u64,
        pitch: pitch as u64,
        slice: (pitch * array.rows()) as u64,
    })
}

impl Copying {
    /// Bytes from the first to the last on a side.
    fn reach(&self, side: Side) -> Result<u64, CUresult> {
        let rows_fit = self.extent.height == 1 || side.pitch >= self.extent.width;
        let reach = side.reach(self.extent).filter(|_| rows_fit);
        reach.ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    /// Refuses what is nobody's memory, though it be none that may be used yet.
    pub(super) fn check(&self, arena: &Arena) -> Result<(), CUresult> {
        if self.extent.is_empty() {
            return Ok(());
        }
        for side in [self.to, self.from] {
            if !arena.knows(side.start, self.reach(side)?) {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
        }
        Ok(())
    }

    pub(super) fn run(&self, arena: &Arena) -> CUresult {
        for z in 0..self.extent.depth {
            for y in 0..self.extent.height {
                let rows = self.to.row(y, z).zip(self.from.row(y, z));
                let copied = rows.and_then(|(to, from)| copy(arena, to, from, self.extent.width));
                if copied.is_none() {
                    return CUDA_ERROR_ILLEGAL_ADDRESS;
                }
            }
        }
        CUDA_SUCCESS
    }
}

/// One side of a copy of a box.
fn side(
    kind: CUmemorytype,
    (host, device): (u64, CUdeviceptr),
    [x, y, z]: [usize; 3],
    (pitch, height): (usize, usize),
) -> Result<Side, CUresult> {
    let base = match kind {
        CU_MEMORYTYPE_HOST => host,
        CU_MEMORYTYPE_DEVICE | CU_MEMORYTYPE_UNIFIED => device,
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    };
    let (pitch, height) = (pitch as u64, height as u64);
    let slice = pitch.checked_mul(height);
    let offset = slice.and_then(|slice| {
        let slices = slice.checked_mul(z as u64)?;
        let rows = pitch.checked_mul(y as u64)?;
        slices.checked_add(rows)?.checked_add(x as u64)
    });
    let start = offset.and_then(|offset| base.checked_add(offset));
    match (start, slice) {
        (Some(start), Some(slice)) => Ok(Side {
            start,
            pitch,
            slice,
        }),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

/// A fill of rows.
#[derive(Debug, Clone)]
pub struct Filling {
    to: u64,
    /// Bytes of a row, and from one to the next.
    row: u64,
    pitch: u64,
    height: u64,
    /// Bytes from the first to the last; 0 when there is nothing to fill.
    reach: u64,
    pattern: Arc<[u8]>,
}

impl Filling {
    pub(super) fn of(to: CUdeviceptr, element: &[u8], rows: Rows) -> Result<Self, CUresult> {
        let row = (rows.width as u64).checked_mul(element.len() as u64);
        let last = (rows.pitch as u64).checked_mul((rows.height as u64).saturating_sub(1));
        let (Some(row), Some(last)) = (row, last) else {
            return Err(CUDA_ERROR_INVALID_VALUE);
        };
        let empty = row == 0 || rows.height == 0;
        let apart = rows.height <= 1 || rows.pitch as u64 >= row;
        let fits = apart && to.is_multiple_of(element.len() as u64);
        if !(empty || fits) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let reach = last.checked_add(row).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        Ok(Self {
            to,
            row,
            pitch: rows.pitch as u64,
            height: rows.height as u64,
            reach: if empty { 0 } else { reach },
            pattern: element.repeat(PATTERN / element.len()).into(),
        })
    }

    /// As [`Copying::check`].
    pub(super) fn check(&self, arena: &Arena) -> Result<(), CUresult> {
        match self.reach == 0 || arena.knows(self.to, self.reach) {
            true => Ok(()),
            false => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    pub(super) fn run(&self, arena: &Arena) -> CUresult {
        if self.reach == 0 {
            return CUDA_SUCCESS;
        }
        let mut lines = 0..self.height;
        let filled = lines.try_for_each(|line| {
            let start = self.to + line * self.pitch;
            fill_row(arena, start, self.row, &self.pattern)
        });
        match filled {
            Some(()) => CUDA_SUCCESS,
            None => CUDA_ERROR_ILLEGAL_ADDRESS,
        }
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
