//! Buffers: blocks of host memory, and the arithmetic of the regions that commands name.

use std::alloc::Layout;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::super::handles::{Alive, Destructors};
use super::super::*;
use super::registry::Context;

/// Largest single buffer.
pub(super) const ALLOC_LIMIT: usize = 64 << 20;
/// All buffers together.
pub(super) const MEMORY_SIZE: usize = 256 << 20;
/// Buffers and sub-buffers begin at multiples of this.
pub(super) const BASE_ALIGN: usize = 128;

/// An address of the application's or of a buffer's memory that commands may use from the queue's thread.
///
/// OpenCL leaves it to the application that no two commands race on the same bytes.
#[derive(Clone, Copy)]
pub(super) struct Place(*mut u8);

// SAFETY: the pointer is only a value here; who reads or writes through it upholds the API's contract, on any thread.
unsafe impl Send for Place {}
// SAFETY: as above.
unsafe impl Sync for Place {}

impl Place {
    pub(super) fn new(at: *const c_void) -> Self {
        Self(at.cast_mut().cast())
    }

    pub(super) fn pointer(self) -> *mut u8 {
        self.0
    }

    /// `bytes` further.
    pub(super) fn at(self, bytes: usize) -> Self {
        Self(self.0.wrapping_add(bytes))
    }

    /// Copies `len` bytes, which may overlap, from `source`.
    ///
    /// # Safety
    /// Both places are good for `len` bytes and nobody else uses them meanwhile.
    pub(super) unsafe fn copy_from(self, source: Self, len: usize) {
        // SAFETY: the caller's contract.
        unsafe { std::ptr::copy(source.0, self.0, len) }
    }
}

/// Memory of a buffer that brought none.
struct Block {
    place: Place,
    layout: Layout,
    allocated: Arc<AtomicUsize>,
}

impl Block {
    fn new(size: usize, allocated: &Arc<AtomicUsize>) -> Result<Self, cl_int> {
        let before = allocated.fetch_add(size, Ordering::Relaxed);
        let give_up = || {
            allocated.fetch_sub(size, Ordering::Relaxed);
            CL_MEM_OBJECT_ALLOCATION_FAILURE
        };
        if before.saturating_add(size) > MEMORY_SIZE {
            return Err(give_up());
        }
        let layout = Layout::from_size_align(size, BASE_ALIGN).map_err(|_| give_up())?;
        // SAFETY: the size is not zero: buffers of no bytes were refused.
        let memory = unsafe { std::alloc::alloc_zeroed(layout) };
        if memory.is_null() {
            return Err(give_up());
        }
        Ok(Self {
            place: Place(memory),
            layout,
            allocated: allocated.clone(),
        })
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout, and this is its only end.
        unsafe { std::alloc::dealloc(self.place.0, self.layout) };
        self.allocated
            .fetch_sub(self.layout.size(), Ordering::Relaxed);
    }
}

/// A buffer or sub-buffer.
pub(super) struct Memory {
    pub(super) handle: usize,
    pub(super) context: Arc<Context>,
    pub(super) flags: cl_mem_flags,
    pub(super) size: usize,
    pub(super) host_ptr: usize,
    pub(super) parent: Option<(Arc<Memory>, usize)>,
    pub(super) properties: Vec<cl_mem_properties>,
    pub(super) place: Place,
    /// Addresses of live mappings, once per mapping.
    maps: Mutex<Vec<usize>>,
    // Fields end in order: the application hears of the end before the memory is gone.
    pub(super) destructors: Destructors,
    _block: Option<Block>,
    _alive: Alive,
}

const ACCESS: cl_mem_flags = CL_MEM_READ_WRITE | CL_MEM_WRITE_ONLY | CL_MEM_READ_ONLY;
const HOST_ACCESS: cl_mem_flags =
    CL_MEM_HOST_WRITE_ONLY | CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_NO_ACCESS;
const HOST_POINTER: cl_mem_flags =
    CL_MEM_USE_HOST_PTR | CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR;

impl Memory {
    /// A buffer of its own.
    pub(super) fn new(
        handle: usize,
        context: Arc<Context>,
        flags: cl_mem_flags,
        size: usize,
        host_ptr: *mut c_void,
        properties: Vec<cl_mem_properties>,
        (allocated, alive): (&Arc<AtomicUsize>, Alive),
    ) -> Result<Self, cl_int> {
        let has_both = flags & CL_MEM_USE_HOST_PTR != 0
            && flags & (CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR) != 0;
        if flags & !(ACCESS | HOST_ACCESS | HOST_POINTER) != 0
            || (flags & ACCESS).count_ones() > 1
            || (flags & HOST_ACCESS).count_ones() > 1
            || has_both
        {
            return Err(CL_INVALID_VALUE);
        }
        if size == 0 || size > ALLOC_LIMIT {
            return Err(CL_INVALID_BUFFER_SIZE);
        }
        let wants_host = flags & (CL_MEM_USE_HOST_PTR | CL_MEM_COPY_HOST_PTR) != 0;
        if wants_host == host_ptr.is_null() {
            return Err(CL_INVALID_HOST_PTR);
        }
        let is_hosts = flags & CL_MEM_USE_HOST_PTR != 0;
        let block = match is_hosts {
            true => None,
            false => Some(Block::new(size, allocated)?),
        };
        let place = block
            .as_ref()
            .map_or(Place::new(host_ptr), |block| block.place);
        if flags & CL_MEM_COPY_HOST_PTR != 0 {
            // SAFETY: the caller's contract of clCreateBuffer: `host_ptr` is readable for `size`; the block is new.
            unsafe { place.copy_from(Place::new(host_ptr), size) };
        }
        Ok(Self {
            handle,
            context,
            flags: with_access(flags, CL_MEM_READ_WRITE),
            size,
            host_ptr: if is_hosts { host_ptr.addr() } else { 0 },
            parent: None,
            properties,
            place,
            maps: Mutex::default(),
            destructors: Destructors::default(),
            _block: block,
            _alive: alive,
        })
    }

    /// A part of `parent`.
    pub(super) fn part(
        handle: usize,
        parent: Arc<Memory>,
        flags: cl_mem_flags,
        region: cl_buffer_region,
        alive: Alive,
    ) -> Result<Self, cl_int> {
        let narrows = |all: cl_mem_flags, only: cl_mem_flags| {
            let (theirs, ours) = (parent.flags & all, flags & all);
            ours == 0 || theirs & only == 0 || ours & only == theirs & only && ours == theirs
        };
        if parent.parent.is_some() {
            return Err(CL_INVALID_MEM_OBJECT);
        }
        if flags & !(ACCESS | HOST_ACCESS) != 0
            || (flags & ACCESS).count_ones() > 1
            || (flags & HOST_ACCESS).count_ones() > 1
            || !narrows(ACCESS, CL_MEM_READ_ONLY | CL_MEM_WRITE_ONLY)
            || !narrows(HOST_ACCESS, HOST_ACCESS)
        {
            return Err(CL_INVALID_VALUE);
        }
        if region.size == 0 {
            return Err(CL_INVALID_BUFFER_SIZE);
        }
        parent.range(region.origin, region.size)?;
        if !region.origin.is_multiple_of(BASE_ALIGN) {
            return Err(CL_MISALIGNED_SUB_BUFFER_OFFSET);
        }
        let inherited = parent.flags
            & (HOST_POINTER
                | if flags & HOST_ACCESS == 0 {
                    HOST_ACCESS
                } else {
                    0
                });
        Ok(Self {
            handle,
            context: parent.context.clone(),
            flags: with_access(flags, parent.flags & ACCESS) | inherited,
            size: region.size,
            host_ptr: match parent.host_ptr {
                0 => 0,
                start => start.wrapping_add(region.origin),
            },
            properties: Vec::new(),
            place: parent.place.at(region.origin),
            parent: Some((parent, region.origin)),
            maps: Mutex::default(),
            destructors: Destructors::default(),
            _block: None,
            _alive: alive,
        })
    }

    /// Refuses a range that is not inside the buffer.
    pub(super) fn range(&self, offset: usize, size: usize) -> Result<(), cl_int> {
        match offset.checked_add(size) {
            Some(end) if end <= self.size => Ok(()),
            _ => Err(CL_INVALID_VALUE),
        }
    }

    /// Refuses what the buffer's flags keep the host from doing.
    pub(super) fn host_may(&self, read: bool, write: bool) -> Result<(), cl_int> {
        let forbidden = CL_MEM_HOST_NO_ACCESS
            | if read { CL_MEM_HOST_WRITE_ONLY } else { 0 }
            | if write { CL_MEM_HOST_READ_ONLY } else { 0 };
        match self.flags & forbidden {
            0 => Ok(()),
            _ => Err(CL_INVALID_OPERATION),
        }
    }

    /// The buffer that owns the bytes, and where in it these begin.
    pub(super) fn root(&self) -> (usize, usize) {
        self.parent
            .as_ref()
            .map_or((self.handle, 0), |(parent, origin)| {
                (parent.handle, *origin)
            })
    }

    pub(super) fn map(&self, offset: usize) -> Place {
        let place = self.place.at(offset);
        self.maps().push(place.pointer().addr());
        place
    }

    pub(super) fn is_mapped_at(&self, address: usize) -> bool {
        self.maps().contains(&address)
    }

    pub(super) fn unmap(&self, address: usize) {
        let mut maps = self.maps();
        if let Some(at) = maps.iter().position(|mapped| *mapped == address) {
            maps.swap_remove(at);
        }
    }

    pub(super) fn map_count(&self) -> usize {
        self.maps().len()
    }

    fn maps(&self) -> std::sync::MutexGuard<'_, Vec<usize>> {
        self.maps.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn with_access(flags: cl_mem_flags, default: cl_mem_flags) -> cl_mem_flags {
    match flags & ACCESS {
        0 => flags | default,
        _ => flags,
    }
}

/// One side of a rectangular copy, its pitches filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rect {
    pub(super) origin: [usize; 3],
    pub(super) row_pitch: usize,
    pub(super) slice_pitch: usize,
}

impl Rect {
    /// Checks pitches against the region that is copied.
    pub(super) fn new(
        origin: [usize; 3],
        row_pitch: usize,
        slice_pitch: usize,
        region: [usize; 3],
    ) -> Result<Self, cl_int> {
        if region.contains(&0) {
            return Err(CL_INVALID_VALUE);
        }
        let row_pitch = if row_pitch == 0 { region[0] } else { row_pitch };
        let slice_least = region[1].checked_mul(row_pitch).ok_or(CL_INVALID_VALUE)?;
        let slice_pitch = if slice_pitch == 0 {
            slice_least
        } else {
            slice_pitch
        };
        if row_pitch < region[0]
            || slice_pitch < slice_least
            || !slice_pitch.is_multiple_of(row_pitch)
        {
            return Err(CL_INVALID_VALUE);
        }
        let rect = Self {
            origin,
            row_pitch,
            slice_pitch,
        };
        rect.end(region).ok_or(CL_INVALID_VALUE)?;
        Ok(rect)
    }

    /// Where row `y` of slice `z` begins; the end was checked, so this cannot overflow.
    pub(super) fn row(&self, y: usize, z: usize) -> usize {
        (self.origin[2] + z) * self.slice_pitch
            + (self.origin[1] + y) * self.row_pitch
            + self.origin[0]
    }

    /// The first byte behind the region.
    pub(super) fn end(&self, region: [usize; 3]) -> Option<usize> {
        let slices = self.origin[2].checked_add(region[2] - 1)?;
        let rows = self.origin[1].checked_add(region[1] - 1)?;
        slices
            .checked_mul(self.slice_pitch)?
            .checked_add(rows.checked_mul(self.row_pitch)?)?
            .checked_add(self.origin[0])?
            .checked_add(region[0])
    }
}

/// Whether a rectangular copy would read bytes that it writes.
///
/// Rows are compared one by one, so parts of one buffer with pitches of their own are told apart exactly.
pub(super) fn overlaps(
    (source, from): (&Memory, Rect),
    (destination, to): (&Memory, Rect),
    region: [usize; 3],
) -> bool {
    let (source_root, source_start) = source.root();
    let (destination_root, destination_start) = destination.root();
    if source_root != destination_root {
        return false;
    }
    let rows = |start: usize, rect: Rect| {
        (0..region[2]).flat_map(move |z| (0..region[1]).map(move |y| start + rect.row(y, z)))
    };
    // Both sides ascend: rows of a region do not overlap each other, so one walk over the two finds any pair that does.
    let mut written = rows(destination_start, to).peekable();
    rows(source_start, from).any(|read| {
        while written
            .next_if(|row| row.saturating_add(region[0]) <= read)
            .is_some()
        {}
        written.peek().is_some_and(|row| *row < read + region[0])
    })
}

/// Copies a region row by row.
///
/// # Safety
/// Both places are good for all of the region, which does not overlap itself on the other side, and nobody else uses them meanwhile.
pub(super) unsafe fn copy_rect(
    (to, to_rect): (Place, Rect),
    (from, from_rect): (Place, Rect),
    region: [usize; 3],
) {
    for z in 0..region[2] {
        for y in 0..region[1] {
            let (to, from) = (to.at(to_rect.row(y, z)), from.at(from_rect.row(y, z)));
            // SAFETY: the caller's contract: this row is part of the region on both sides.
            unsafe { to.copy_from(from, region[0]) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pitches_of_zero_are_those_of_the_region() {
        let rect = Rect::new([0; 3], 0, 0, [4, 3, 2]).expect("valid");
        assert_eq!((rect.row_pitch, rect.slice_pitch), (4, 12));
        assert_eq!(rect.end([4, 3, 2]), Some(24));
    }

    #[test]
    fn a_region_whose_end_overflows_is_refused() {
        assert_eq!(
            Rect::new([usize::MAX, 0, 0], 0, 0, [4, 1, 1]),
            Err(CL_INVALID_VALUE)
        );
    }
}
