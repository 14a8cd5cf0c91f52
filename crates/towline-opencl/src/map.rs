//! Mapping memory objects into the host's address space.
//!
//! A context of one provider in this process maps where the memory lies. Elsewhere a map reads the region into memory of this
//! process, always to the same address, and unmapping a region that was mapped for writing sends exactly that region back. With
//! `CL_MEM_USE_HOST_PTR` that memory is the application's own.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use towline_backend::opencl::*;

use crate::arena::Ref;
use crate::coherence::Access;
use crate::command::{Meets, WaitList, enqueue, enqueue_transfer, placeholder};
use crate::event::watch;
use crate::image::Shape;
use crate::memory::Mem;
use crate::queue::Queue;
use crate::raw::{Out, Shared, provider};
use crate::system;

/// Memory of this process that backs maps and transfers: zero pages until it is used.
pub(crate) struct Shadow {
    base: Shared<c_void>,
    size: usize,
}

impl Shadow {
    pub(crate) fn new(size: usize) -> Result<Arc<Self>, cl_int> {
        let size = size.max(1);
        let base = system::map_zeros(size).ok_or(CL_OUT_OF_HOST_MEMORY)?;
        Ok(Arc::new(Self {
            base: Shared(base.as_ptr()),
            size,
        }))
    }

    /// The address of a place in it.
    pub(crate) fn at(&self, offset: usize) -> *mut c_void {
        self.base.0.wrapping_byte_add(offset)
    }
}

impl Drop for Shadow {
    fn drop(&mut self) {
        if let Some(base) = NonNull::new(self.base.0) {
            // SAFETY: `new` mapped exactly this, and nobody uses a shadow that nobody holds.
            unsafe { system::unmap(base, self.size) };
        }
    }
}

/// What of an object is mapped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Buffer {
        offset: usize,
        size: usize,
    },
    Image {
        origin: [usize; 3],
        region: [usize; 3],
        row_pitch: usize,
        slice_pitch: usize,
    },
}

impl Place {
    fn overlaps(&self, other: &Self) -> bool {
        let near = |a: usize, a_len: usize, b: usize, b_len: usize| a < b + b_len && b < a + a_len;
        match (self, other) {
            (
                Self::Buffer { offset, size },
                Self::Buffer {
                    offset: other,
                    size: other_size,
                },
            ) => near(*offset, *size, *other, *other_size),
            (
                Self::Image { origin, region, .. },
                Self::Image {
                    origin: other,
                    region: other_region,
                    ..
                },
            ) => {
                (0..3).all(|axis| near(origin[axis], region[axis], other[axis], other_region[axis]))
            }
            _ => false,
        }
    }
}

/// One mapped region.
pub(crate) struct Mapping {
    pointer: Shared<c_void>,
    place: Place,
    writes: bool,
}

/// How a region shall be mapped.
#[derive(Clone, Copy)]
pub(crate) struct Request {
    blocking: cl_bool,
    flags: cl_map_flags,
}

impl Request {
    pub(crate) fn new(blocking: cl_bool, flags: cl_map_flags) -> Result<Self, cl_int> {
        let known = CL_MAP_READ | CL_MAP_WRITE | CL_MAP_WRITE_INVALIDATE_REGION;
        if flags & !known != 0
            || (flags & CL_MAP_WRITE_INVALIDATE_REGION != 0
                && flags & (CL_MAP_READ | CL_MAP_WRITE) != 0)
        {
            return Err(CL_INVALID_VALUE);
        }
        Ok(Self { blocking, flags })
    }

    fn writes(self) -> bool {
        self.flags & (CL_MAP_WRITE | CL_MAP_WRITE_INVALIDATE_REGION) != 0
    }

    fn invalidates(self) -> bool {
        self.flags & CL_MAP_WRITE_INVALIDATE_REGION != 0
    }

    fn check_access(self, mem: &Mem) -> Result<(), cl_int> {
        if self.flags & CL_MAP_READ != 0 {
            mem.expect_host_access(false)?;
        }
        if self.writes() {
            mem.expect_host_access(true)?;
        }
        Ok(())
    }
}

/// Where an object's bytes are found when it is mapped.
fn base(mem: &Mem) -> Result<*mut c_void, cl_int> {
    if !mem.host_ptr.0.is_null() {
        return Ok(mem.host_ptr.0);
    }
    // Parts of a buffer map into the buffer's own memory: its parts may be mapped side by side and as a whole.
    match &mem.parent {
        Some(parent) if mem.is_buffer() => {
            base(parent).map(|base| base.wrapping_byte_add(mem.offset))
        }
        _ => mem
            .shadow
            .get_or_init(|| Shadow::new(mem.size))
            .as_ref()
            .map(|shadow| shadow.at(0))
            .map_err(|status| *status),
    }
}

/// Notes a new mapping, unless a region would be mapped for writing twice.
fn note(mem: &Mem, mapping: Mapping) -> Result<(), cl_int> {
    let mut maps = mem.maps();
    if maps.iter().any(|other| {
        (other.writes || mapping.writes)
            && other.writes == mapping.writes
            && other.place.overlaps(&mapping.place)
    }) {
        return Err(CL_INVALID_OPERATION);
    }
    maps.push(mapping);
    Ok(())
}

/// Forgets the newest mapping at an address again.
fn forget(mem: &Mem, pointer: *mut c_void) -> Option<Mapping> {
    let mut maps = mem.maps();
    let index = maps
        .iter()
        .rposition(|mapping| mapping.pointer.0 == pointer)?;
    Some(maps.remove(index))
}

/// Forgets one of the mappings at an address that ends, and says what of the object may have been written there. Nobody says which one of
/// several ends: the last is the one for writing, and until then the others send its region.
fn forget_ended(mem: &Mem, pointer: *mut c_void) -> Option<(Mapping, Option<Place>)> {
    let mut maps = mem.maps();
    let at = |mapping: &Mapping| mapping.pointer.0 == pointer;
    let written = maps
        .iter()
        .find(|mapping| at(mapping) && mapping.writes)
        .map(|mapping| mapping.place);
    let reader = maps
        .iter()
        .rposition(|mapping| at(mapping) && !mapping.writes);
    let index = reader.or_else(|| maps.iter().rposition(at))?;
    Some((maps.remove(index), written))
}

/// Has `run` enqueue a command that uses the object's memory in this process, which stays until the command is complete. One that blocks is
/// so when it returns.
fn with_memory(
    queue: &Queue,
    mem: &Ref<Mem>,
    blocking: cl_bool,
    event: *mut cl_event,
    run: impl FnOnce(*mut cl_event) -> cl_int,
) -> cl_int {
    if blocking != CL_FALSE {
        return run(event);
    }
    let api = queue.part().api();
    let mut own = std::ptr::null_mut();
    let place = if event.is_null() { &raw mut own } else { event };
    let status = run(place);
    if status != CL_SUCCESS {
        return status;
    }
    // SAFETY: a place of ours, or of `enqueue`'s, that the provider has just written.
    let made = unsafe { place.read() };
    let keeper = mem.clone();
    if watch(api, Shared(made), move |_| drop(keeper)).is_err() {
        provider!(api, clFinish(queue.raw.0));
    }
    if event.is_null() {
        provider!(api, clReleaseEvent(made));
    }
    status
}

/// Maps part of a buffer.
pub(crate) fn buffer(
    queue: &Ref<Queue>,
    mem: &Ref<Mem>,
    request: Request,
    (offset, size): (usize, usize),
    waits: WaitList<'_>,
    event: &Out<cl_event>,
) -> Result<*mut c_void, cl_int> {
    if size == 0 {
        return Err(CL_INVALID_VALUE);
    }
    mem.expect_range(offset, size)?;
    request.check_access(mem)?;
    let place = Place::Buffer { offset, size };
    let api = &queue.part().provider.api;
    if queue.context.maps_natively() {
        let raw = mem.raw_on(queue.part)?;
        let mut pointer = std::ptr::null_mut();
        enqueue(
            queue,
            waits,
            event,
            CL_COMMAND_MAP_BUFFER,
            &[],
            |count, list, event| {
                let mut status = CL_SUCCESS;
                pointer = provider!(
                    api,
                    clEnqueueMapBuffer(
                        queue.raw.0,
                        raw,
                        request.blocking,
                        request.flags,
                        offset,
                        size,
                        count,
                        list,
                        event,
                        &raw mut status
                    )
                );
                status
            },
        )?;
        mem.maps().push(Mapping {
            pointer: Shared(pointer),
            place,
            writes: request.writes(),
        });
        return Ok(pointer);
    }
    let pointer = base(mem)?.wrapping_byte_add(offset);
    note(
        mem,
        Mapping {
            pointer: Shared(pointer),
            place,
            writes: request.writes(),
        },
    )?;
    // A region whose contents do not matter is not fetched, but the map still has its place in the order of commands: one byte.
    let fetched = if request.invalidates() { 1 } else { size };
    let enqueued = enqueue_transfer(
        queue,
        Meets::reads(request.blocking),
        waits,
        event,
        CL_COMMAND_MAP_BUFFER,
        &[(mem, Access::Read)],
        |count, list, event| {
            with_memory(queue, mem, request.blocking, event, |event| {
                mem.with_raw(queue.part, |raw| {
                    provider!(
                        api,
                        clEnqueueReadBuffer(
                            queue.raw.0,
                            raw,
                            request.blocking,
                            offset,
                            fetched,
                            pointer,
                            count,
                            list,
                            event
                        )
                    )
                })
            })
        },
    );
    if let Err(status) = enqueued {
        forget(mem, pointer);
        return Err(status);
    }
    Ok(pointer)
}

/// A mapped region of an image.
pub(crate) struct Mapped {
    pub(crate) pointer: *mut c_void,
    pub(crate) row_pitch: usize,
    pub(crate) slice_pitch: usize,
}

/// Maps part of an image.
pub(crate) fn image(
    queue: &Ref<Queue>,
    mem: &Ref<Mem>,
    request: Request,
    (origin, region): (&[usize], &[usize]),
    has_slice_pitch: bool,
    waits: WaitList<'_>,
    event: &Out<cl_event>,
) -> Result<Mapped, cl_int> {
    let shape: &Shape = mem.shape()?;
    shape.expect_region(origin, region)?;
    if shape.has_slices() && !has_slice_pitch {
        return Err(CL_INVALID_VALUE);
    }
    request.check_access(mem)?;
    let (origin, region) = (
        [origin[0], origin[1], origin[2]],
        [region[0], region[1], region[2]],
    );
    let api = &queue.part().provider.api;
    if queue.context.maps_natively() {
        let raw = mem.raw_on(queue.part)?;
        let mut mapped = Mapped {
            pointer: std::ptr::null_mut(),
            row_pitch: 0,
            slice_pitch: 0,
        };
        enqueue(
            queue,
            waits,
            event,
            CL_COMMAND_MAP_IMAGE,
            &[],
            |count, list, event| {
                let mut status = CL_SUCCESS;
                mapped.pointer = provider!(
                    api,
                    clEnqueueMapImage(
                        queue.raw.0,
                        raw,
                        request.blocking,
                        request.flags,
                        origin.as_ptr(),
                        region.as_ptr(),
                        &raw mut mapped.row_pitch,
                        &raw mut mapped.slice_pitch,
                        count,
                        list,
                        event,
                        &raw mut status
                    )
                );
                status
            },
        )?;
        if !shape.has_slices() {
            mapped.slice_pitch = 0;
        }
        mem.maps().push(Mapping {
            pointer: Shared(mapped.pointer),
            place: Place::Image {
                origin,
                region,
                row_pitch: mapped.row_pitch,
                slice_pitch: mapped.slice_pitch,
            },
            writes: request.writes(),
        });
        return Ok(mapped);
    }
    let (row_pitch, slice_pitch) = if mem.host_ptr.0.is_null() {
        shape.packed_pitches()
    } else {
        (shape.row_pitch, shape.slice_pitch)
    };
    let pointer = base(mem)?.wrapping_byte_add(shape.place_of(&origin, row_pitch, slice_pitch));
    note(
        mem,
        Mapping {
            pointer: Shared(pointer),
            place: Place::Image {
                origin,
                region,
                row_pitch,
                slice_pitch,
            },
            writes: request.writes(),
        },
    )?;
    let fetched = if request.invalidates() {
        [1; 3]
    } else {
        region
    };
    let enqueued = enqueue_transfer(
        queue,
        Meets::reads(request.blocking),
        waits,
        event,
        CL_COMMAND_MAP_IMAGE,
        &[(mem, Access::Read)],
        |count, list, event| {
            with_memory(queue, mem, request.blocking, event, |event| {
                mem.with_raw(queue.part, |raw| {
                    provider!(
                        api,
                        clEnqueueReadImage(
                            queue.raw.0,
                            raw,
                            request.blocking,
                            origin.as_ptr(),
                            fetched.as_ptr(),
                            row_pitch,
                            shape.slice_argument(slice_pitch),
                            pointer,
                            count,
                            list,
                            event
                        )
                    )
                })
            })
        },
    );
    if let Err(status) = enqueued {
        forget(mem, pointer);
        return Err(status);
    }
    Ok(Mapped {
        pointer,
        row_pitch,
        slice_pitch: if shape.has_slices() { slice_pitch } else { 0 },
    })
}

/// Ends a mapping.
pub(crate) fn unmap(
    queue: &Ref<Queue>,
    mem: &Ref<Mem>,
    pointer: *mut c_void,
    waits: WaitList<'_>,
    event: &Out<cl_event>,
) -> Result<(), cl_int> {
    let Some((mapping, written)) = forget_ended(mem, pointer) else {
        return Err(CL_INVALID_VALUE);
    };
    let enqueued = end(queue, mem, (pointer, written), waits, event);
    if enqueued.is_err() {
        // Nothing was enqueued: the region is still mapped.
        mem.maps().push(mapping);
    }
    enqueued
}

fn end(
    queue: &Ref<Queue>,
    mem: &Ref<Mem>,
    (pointer, written): (*mut c_void, Option<Place>),
    waits: WaitList<'_>,
    event: &Out<cl_event>,
) -> Result<(), cl_int> {
    let api = &queue.part().provider.api;
    if queue.context.maps_natively() {
        let raw = mem.raw_on(queue.part)?;
        return enqueue(
            queue,
            waits,
            event,
            CL_COMMAND_UNMAP_MEM_OBJECT,
            &[],
            |count, list, event| {
                provider!(
                    api,
                    clEnqueueUnmapMemObject(queue.raw.0, raw, pointer, count, list, event)
                )
            },
        );
    }
    let Some(place) = written else {
        return placeholder(queue, waits, event, CL_COMMAND_UNMAP_MEM_OBJECT).map(|_| ());
    };
    let access = match place {
        Place::Buffer { offset: 0, size } if size == mem.size => Access::Replace,
        _ => Access::Modify,
    };
    enqueue(
        queue,
        waits,
        event,
        CL_COMMAND_UNMAP_MEM_OBJECT,
        &[(mem, access)],
        |count, list, event| {
            with_memory(queue, mem, CL_FALSE, event, |event| {
                mem.with_raw(queue.part, |raw| match place {
                    Place::Buffer { offset, size } => provider!(
                        api,
                        clEnqueueWriteBuffer(
                            queue.raw.0,
                            raw,
                            CL_FALSE,
                            offset,
                            size,
                            pointer,
                            count,
                            list,
                            event
                        )
                    ),
                    Place::Image {
                        origin,
                        region,
                        row_pitch,
                        slice_pitch,
                    } => provider!(
                        api,
                        clEnqueueWriteImage(
                            queue.raw.0,
                            raw,
                            CL_FALSE,
                            origin.as_ptr(),
                            region.as_ptr(),
                            row_pitch,
                            mem.shape()
                                .map_or(0, |shape| shape.slice_argument(slice_pitch)),
                            pointer,
                            count,
                            list,
                            event
                        )
                    ),
                })
            })
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalidating_excludes_reading() {
        assert!(Request::new(CL_TRUE, CL_MAP_WRITE_INVALIDATE_REGION | CL_MAP_READ).is_err());
        assert!(Request::new(CL_TRUE, 1 << 7).is_err());
        assert!(Request::new(CL_TRUE, CL_MAP_READ | CL_MAP_WRITE).is_ok());
    }

    #[test]
    fn a_shadow_is_as_long_as_it_says_and_begins_with_zeros() {
        let shadow = Shadow::new(3 << 20).expect("there is memory");
        // SAFETY: the last byte of the shadow.
        let last = unsafe { shadow.at((3 << 20) - 1).cast::<u8>().read() };
        assert_eq!(last, 0);
    }
}
