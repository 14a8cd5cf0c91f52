//! Commands on buffers.

use std::ptr;

use super::super::super::contract::*;
use super::super::super::scheduler::{Order, Work};
use super::super::super::*;
use super::super::memory::{self, Place, Rect, copy_rect};
use super::super::registry::Queue;

const COPY_HOST: (bool, bool) = (true, false);
const WRITE_HOST: (bool, bool) = (false, true);

#[allow(non_snake_case, clippy::too_many_arguments)]
impl NullOpenCl {
    /// A rectangular copy between a buffer and host memory, in the direction that `access` says.
    ///
    /// # Safety
    /// The contract of `clEnqueueReadBufferRect` and its twin: lists hold three sizes, `host` is good for the region.
    unsafe fn host_rect(
        &self,
        queue: &Queue,
        buffer: cl_mem,
        (origin, host_origin, region): (*const usize, *const usize, *const usize),
        (pitches, host_pitches): ((usize, usize), (usize, usize)),
        host: *const c_void,
        access: (bool, bool),
    ) -> Result<Work, cl_int> {
        let buffer = self.buffer(queue, buffer)?;
        // SAFETY: the caller's contract.
        let region = unsafe { triple(region) }?;
        // SAFETY: as above.
        let origin = unsafe { triple(origin) }?;
        // SAFETY: as above.
        let host_origin = unsafe { triple(host_origin) }?;
        let rect = Rect::new(origin, pitches.0, pitches.1, region)?;
        let host_rect = Rect::new(host_origin, host_pitches.0, host_pitches.1, region)?;
        buffer.range(0, rect.end(region).ok_or(CL_INVALID_VALUE)?)?;
        require(!host.is_null(), CL_INVALID_VALUE)?;
        buffer.host_may(access.0, access.1)?;
        let host = (Place::new(host), host_rect);
        Ok(Box::new(move || {
            let device = (buffer.place, rect);
            let (to, from) = if access == COPY_HOST {
                (host, device)
            } else {
                (device, host)
            };
            // SAFETY: the region was checked against the buffer; the caller's contract covers the host's side until the command ends.
            unsafe { copy_rect(to, from, region) };
            Ok(())
        }))
    }

    pub(super) unsafe fn clEnqueueReadBuffer(
        &self,
        queue: &Queue,
        buffer: cl_mem,
        offset: usize,
        size: usize,
        ptr: *mut c_void,
    ) -> Result<Work, cl_int> {
        let buffer = self.buffer(queue, buffer)?;
        buffer.range(offset, size)?;
        require(!ptr.is_null(), CL_INVALID_VALUE)?;
        buffer.host_may(true, false)?;
        let host = Place::new(ptr);
        Ok(Box::new(move || {
            // SAFETY: the range was checked; the caller's contract: `ptr` is writable for `size` until the command ends.
            unsafe { host.copy_from(buffer.place.at(offset), size) };
            Ok(())
        }))
    }

    pub(super) unsafe fn clEnqueueWriteBuffer(
        &self,
        queue: &Queue,
        buffer: cl_mem,
        offset: usize,
        size: usize,
        ptr: *const c_void,
    ) -> Result<Work, cl_int> {
        let buffer = self.buffer(queue, buffer)?;
        buffer.range(offset, size)?;
        require(!ptr.is_null(), CL_INVALID_VALUE)?;
        buffer.host_may(false, true)?;
        let host = Place::new(ptr);
        Ok(Box::new(move || {
            // SAFETY: the range was checked; the caller's contract: `ptr` is readable for `size` until the command ends.
            unsafe { buffer.place.at(offset).copy_from(host, size) };
            Ok(())
        }))
    }

    pub(super) unsafe fn clEnqueueReadBufferRect(
        &self,
        queue: &Queue,
        buffer: cl_mem,
        buffer_origin: *const usize,
        host_origin: *const usize,
        region: *const usize,
        buffer_row_pitch: usize,
        buffer_slice_pitch: usize,
        host_row_pitch: usize,
        host_slice_pitch: usize,
        ptr: *mut c_void,
    ) -> Result<Work, cl_int> {
        let sizes = (buffer_origin, host_origin, region);
        let pitches = (
            (buffer_row_pitch, buffer_slice_pitch),
            (host_row_pitch, host_slice_pitch),
        );
        // SAFETY: the caller's contract.
        unsafe { self.host_rect(queue, buffer, sizes, pitches, ptr, COPY_HOST) }
    }

    pub(super) unsafe fn clEnqueueWriteBufferRect(
        &self,
        queue: &Queue,
        buffer: cl_mem,
        buffer_origin: *const usize,
        host_origin: *const usize,
        region: *const usize,
        buffer_row_pitch: usize,
        buffer_slice_pitch: usize,
        host_row_pitch: usize,
        host_slice_pitch: usize,
        ptr: *const c_void,
    ) -> Result<Work, cl_int> {
        let sizes = (buffer_origin, host_origin, region);
        let pitches = (
            (buffer_row_pitch, buffer_slice_pitch),
            (host_row_pitch, host_slice_pitch),
        );
        // SAFETY: the caller's contract.
        unsafe { self.host_rect(queue, buffer, sizes, pitches, ptr, WRITE_HOST) }
    }

    pub(super) unsafe fn clEnqueueFillBuffer(
        &self,
        queue: &Queue,
        buffer: cl_mem,
        pattern: *const c_void,
        pattern_size: usize,
        offset: usize,
        size: usize,
    ) -> Result<Work, cl_int> {
        let buffer = self.buffer(queue, buffer)?;
        buffer.range(offset, size)?;
        let is_size = pattern_size.is_power_of_two() && pattern_size <= 128;
        require(is_size && !pattern.is_null(), CL_INVALID_VALUE)?;
        let divides = offset.is_multiple_of(pattern_size) && size.is_multiple_of(pattern_size);
        require(divides, CL_INVALID_VALUE)?;
        // SAFETY: the caller's contract.
        let pattern = unsafe { list(pattern.cast::<u8>(), pattern_size, CL_INVALID_VALUE) }?;
        Ok(Box::new(move || {
            let source = Place::new(pattern.as_ptr().cast());
            for at in (offset..offset + size).step_by(pattern.len()) {
                // SAFETY: the range was checked, and the pattern divides it.
                unsafe { buffer.place.at(at).copy_from(source, pattern.len()) };
            }
            Ok(())
        }))
    }

    pub(super) unsafe fn clEnqueueCopyBuffer(
        &self,
        queue: &Queue,
        src_buffer: cl_mem,
        dst_buffer: cl_mem,
        src_offset: usize,
        dst_offset: usize,
        size: usize,
    ) -> Result<Work, cl_int> {
        let source = self.buffer(queue, src_buffer)?;
        let destination = self.buffer(queue, dst_buffer)?;
        source.range(src_offset, size)?;
        destination.range(dst_offset, size)?;
        let (source_root, source_start) = source.root();
        let (destination_root, destination_start) = destination.root();
        let (from, to) = (source_start + src_offset, destination_start + dst_offset);
        let overlaps = source_root == destination_root && from.abs_diff(to) < size;
        require(!overlaps, CL_MEM_COPY_OVERLAP)?;
        Ok(Box::new(move || {
            let (to, from) = (
                destination.place.at(dst_offset),
                source.place.at(src_offset),
            );
            // SAFETY: both ranges were checked.
            unsafe { to.copy_from(from, size) };
            Ok(())
        }))
    }

    pub(super) unsafe fn clEnqueueCopyBufferRect(
        &self,
        queue: &Queue,
        src_buffer: cl_mem,
        dst_buffer: cl_mem,
        src_origin: *const usize,
        dst_origin: *const usize,
        region: *const usize,
        src_row_pitch: usize,
        src_slice_pitch: usize,
        dst_row_pitch: usize,
        dst_slice_pitch: usize,
    ) -> Result<Work, cl_int> {
        let source = self.buffer(queue, src_buffer)?;
        let destination = self.buffer(queue, dst_buffer)?;
        // SAFETY: the caller's contract.
        let region = unsafe { triple(region) }?;
        // SAFETY: as above.
        let from = Rect::new(
            unsafe { triple(src_origin) }?,
            src_row_pitch,
            src_slice_pitch,
            region,
        )?;
        // SAFETY: as above.
        let to = Rect::new(
            unsafe { triple(dst_origin) }?,
            dst_row_pitch,
            dst_slice_pitch,
            region,
        )?;
        source.range(0, from.end(region).ok_or(CL_INVALID_VALUE)?)?;
        destination.range(0, to.end(region).ok_or(CL_INVALID_VALUE)?)?;
        if source.handle == destination.handle {
            let same_pitches = (from.row_pitch, from.slice_pitch) == (to.row_pitch, to.slice_pitch);
            require(same_pitches, CL_INVALID_VALUE)?;
        }
        require(
            !memory::overlaps((&source, from), (&destination, to), region),
            CL_MEM_COPY_OVERLAP,
        )?;
        Ok(Box::new(move || {
            // SAFETY: both regions were checked, and that they do not overlap.
            unsafe { copy_rect((destination.place, to), (source.place, from), region) };
            Ok(())
        }))
    }

    pub(super) unsafe fn clEnqueueMapBuffer(
        &self,
        command_queue: cl_command_queue,
        buffer: cl_mem,
        blocking_map: cl_bool,
        map_flags: cl_map_flags,
        offset: usize,
        size: usize,
        num_events_in_wait_list: cl_uint,
        event_wait_list: *const cl_event,
        event: *mut cl_event,
        errcode_ret: *mut cl_int,
    ) -> *mut c_void {
        let mapped = (|| {
            // SAFETY: the caller's contract.
            let target =
                unsafe { self.target(command_queue, num_events_in_wait_list, event_wait_list) }?;
            let buffer = self.buffer(&target.0, buffer)?;
            buffer.range(offset, size)?;
            const KNOWN: cl_map_flags = CL_MAP_READ | CL_MAP_WRITE | CL_MAP_WRITE_INVALIDATE_REGION;
            let invalidates = map_flags & CL_MAP_WRITE_INVALIDATE_REGION != 0;
            let is_alone = map_flags == CL_MAP_WRITE_INVALIDATE_REGION;
            let are_known = map_flags & !KNOWN == 0 && (!invalidates || is_alone);
            require(are_known && size > 0, CL_INVALID_VALUE)?;
            let writes = map_flags & (CL_MAP_WRITE | CL_MAP_WRITE_INVALIDATE_REGION) != 0;
            buffer.host_may(map_flags & CL_MAP_READ != 0, writes)?;
            let place = buffer.map(offset);
            let how = (CL_COMMAND_MAP_BUFFER, Order::Free, blocking_map);
            let kept = buffer.clone();
            let work = Box::new(move || {
                drop(kept);
                Ok(())
            });
            // SAFETY: the caller's contract.
            let done = unsafe { self.submit(target, how, event, work) };
            if done.is_err() {
                buffer.unmap(place.pointer().addr());
            }
            done.map(|()| place.pointer())
        })();
        // SAFETY: the caller's contract.
        unsafe { put(errcode_ret, mapped.err().unwrap_or(CL_SUCCESS)) };
        mapped.map_or(ptr::null_mut(), |place| place.cast())
    }

    pub(super) unsafe fn clEnqueueUnmapMemObject(
        &self,
        queue: &Queue,
        memobj: cl_mem,
        mapped_ptr: *mut c_void,
    ) -> Result<Work, cl_int> {
        let buffer = self.buffer(queue, memobj)?;
        let address = mapped_ptr.addr();
        require(buffer.is_mapped_at(address), CL_INVALID_VALUE)?;
        Ok(Box::new(move || {
            buffer.unmap(address);
            Ok(())
        }))
    }

    pub(super) unsafe fn clEnqueueMigrateMemObjects(
        &self,
        queue: &Queue,
        num_mem_objects: cl_uint,
        mem_objects: *const cl_mem,
        flags: cl_mem_migration_flags,
    ) -> Result<Work, cl_int> {
        let known = CL_MIGRATE_MEM_OBJECT_HOST | CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED;
        require(num_mem_objects > 0 && flags & !known == 0, CL_INVALID_VALUE)?;
        // SAFETY: the caller's contract.
        for object in unsafe { list(mem_objects, num_mem_objects as usize, CL_INVALID_VALUE) }? {
            self.buffer(queue, object)?;
        }
        Ok(Box::new(|| Ok(())))
    }
}
