//! Commands that move contents: between host and device, and between memory objects.

use std::ffi::c_void;

use towline_backend::opencl::*;

use crate::arena::{Ref, get};
use crate::boxes::{BoxAt, boxes_overlap};
use crate::coherence::Access;
use crate::command::{Meets, WaitList, check_events, check_waits, enqueue, enqueue_transfer};
use crate::map;
use crate::memory::{Mem, buffer, image};
use crate::platform::{Platform, TransferCalls};
use crate::queue::{Queue, host_queue};
use crate::raw::{Out, provider};

/// The queue of a command and an object of its context that it uses. Queue, object, context and wait list are checked in this order,
/// before what else the command names.
#[inline]
pub(crate) fn usable(
    queue: cl_command_queue,
    mem: impl FnOnce() -> Result<Ref<Mem>, cl_int>,
    waits: WaitList<'_>,
) -> Result<(Ref<Queue>, Ref<Mem>), cl_int> {
    let queue = host_queue(queue)?;
    let mem = mem()?;
    mem.expect_usable(&queue)?;
    check_events(&queue, waits)?;
    Ok((queue, mem))
}

/// For commands whose values are checked before their wait list, which [`enqueue`] looks at last.
const NO_WAITS: WaitList<'static> = (0, None);

/// The queue of a copy between buffers: the length of its wait list comes before its objects, the events come last.
#[inline]
fn waiting(queue: cl_command_queue, waits: WaitList<'_>) -> Result<Ref<Queue>, cl_int> {
    let queue = host_queue(queue)?;
    check_waits(waits)?;
    Ok(queue)
}

/// As [`usable`], of an image that the host reads or writes. Memory that is NULL is refused before, and the events of the wait list after, as
/// PoCL does.
fn for_host(
    queue: cl_command_queue,
    image: cl_mem,
    is_null: bool,
    waits: WaitList<'_>,
) -> Result<(Ref<Queue>, Ref<Mem>), cl_int> {
    let queue = host_queue(queue)?;
    let mem = get::<Mem>(image)?;
    if is_null {
        return Err(CL_INVALID_VALUE);
    }
    let mem = in_context(&queue, mem)?;
    mem.shape()?;
    check_events(&queue, waits)?;
    Ok((queue, mem))
}

#[inline]
fn in_context(queue: &Queue, mem: Ref<Mem>) -> Result<Ref<Mem>, cl_int> {
    mem.expect_usable(queue)?;
    Ok(mem)
}

fn whole(mem: &Mem, offset: usize, size: usize) -> Access {
    if offset == 0 && size == mem.size {
        Access::Replace
    } else {
        Access::Modify
    }
}

/// Whether both are made of the same memory.
fn same_root(a: &Ref<Mem>, b: &Ref<Mem>) -> bool {
    a.root().unwrap_or(a).is(b.root().unwrap_or(b))
}

/// How a command that reads `from` accesses `to`, which it would access as `alone` if both were memory of their own.
fn beside(from: &Ref<Mem>, to: &Ref<Mem>, alone: Access) -> Access {
    if same_root(from, to) {
        Access::Modify
    } else {
        alone
    }
}

/// [`enqueue`] for a command on memory objects: `run` gets its provider, and the objects as that has them.
#[inline]
fn on_memory<const N: usize>(
    queue: &Ref<Queue>,
    waits: WaitList<'_>,
    event: &Out<cl_event>,
    command: cl_command_type,
    uses: [(&Ref<Mem>, Access); N],
    run: impl FnOnce(&dyn OpenClApi, [cl_mem; N], cl_uint, *const cl_event, *mut cl_event) -> cl_int,
) -> Result<(), cl_int> {
    transfer(queue, Meets::Later, waits, event, command, uses, run)
}

/// [`on_memory`] for a command that may block.
#[inline]
fn transfer<const N: usize>(
    queue: &Ref<Queue>,
    meets: Meets,
    waits: WaitList<'_>,
    event: &Out<cl_event>,
    command: cl_command_type,
    uses: [(&Ref<Mem>, Access); N],
    run: impl FnOnce(&dyn OpenClApi, [cl_mem; N], cl_uint, *const cl_event, *mut cl_event) -> cl_int,
) -> Result<(), cl_int> {
    let run = |count, list, event| {
        let mut raws = [std::ptr::null_mut(); N];
        for (raw, (mem, _)) in raws.iter_mut().zip(&uses) {
            match mem.raw_on(queue.part) {
                Ok(found) => *raw = found,
                Err(status) => return status,
            }
        }
        run(&*queue.part().provider.api, raws, count, list, event)
    };
    enqueue_transfer(queue, meets, waits, event, command, &uses, run)
}

fn three(list: Option<&[usize]>) -> Result<&[usize], cl_int> {
    list.filter(|list| list.len() == 3).ok_or(CL_INVALID_VALUE)
}

impl TransferCalls for Platform {
    unsafe fn clEnqueueReadBuffer(
        &self,
        command_queue: cl_command_queue,
        buffer: cl_mem,
        blocking_read: cl_bool,
        offset: usize,
        size: usize,
        ptr: *mut c_void,
        num_events_in_wait_list: cl_uint,
        event_wait_list: Option<&[cl_event]>,
        event: Out<cl_event>,
    ) -> Result<(), cl_int> {
        let (queue, mem) = usable(command_queue, || self::buffer(buffer), NO_WAITS)?;
        mem.expect_host_access(false)?;
        if ptr.is_null() {
            return Err(CL_INVALID_VALUE);
        }
        mem.expect_range(offset, size)?;
        transfer(
            &queue,
            Meets::reads(blocking_read),
            (num_events_in_wait_list, event_wait_list),
            &event,
            CL_COMMAND_READ_BUFFER,
            [(&mem, Access::Read)],
            |api, [raw], count, list, event| {
                provider!(
                    api,
                    clEnqueueReadBuffer(
                        queue.raw.0,
                        raw,
                        blocking_read,
                        offset,
                        size,
                        ptr,
                        count,
                        list,
                        event
                    )
                )
            },
        )
    }

    unsafe fn clEnqueueReadBufferRect(
        &self,
        command_queue: cl_command_queue,
        buffer: cl_mem,
        blocking_read: cl_bool,
        buffer_origin: Option<&[usize]>,
        host_origin: Option<&[usize]>,
        region: Option<&[usize]>,
        buffer_row_pitch: usize,
        buffer_slice_pitch: usize,
        host_row_pitch: usize,
        host_slice_pitch: usize,
        ptr: *mut c_void,
        num_events_in_wait_list: cl_uint,
        event_wait_list: Option<&[cl_event]>,
        event: Out<cl_event>,
    ) -> Result<(), cl_int> {
        let (queue, mem) = usable(
            command_queue,
            || self::buffer(buffer),
            (num_events_in_wait_list, event_wait_list),
        )?;
        mem.expect_host_access(false)?;
        let (from, to, region) = (three(buffer_origin)?, three(host_origin)?, three(region)?);
        let there = BoxAt::new(from, region, buffer_row_pitch, buffer_slice_pitch)?;
        BoxAt::new(to, region, host_row_pitch, host_slice_pitch)?;
        if there.end > mem.size || ptr.is_null() {
            return Err(CL_INVALID_VALUE);
        }
        transfer(
            &queue,
            Meets::reads(blocking_read),
            (num_events_in_wait_list, event_wait_list),
            &event,
            CL_COMMAND_READ_BUFFER_RECT,
            [(&mem, Access::Read)],
            |api, [raw], count, list, event| {
                provider!(
                    api,
                    clEnqueueReadBufferRect(
                        queue.raw.0,
                        raw,
                        blocking_read,
                        from.as_ptr(),
                        to.as_ptr(),
                        region.as_ptr(),
                        buffer_row_pitch,
                        buffer_slice_pitch,
                        host_row_pitch,
                        host_slice_pitch,
                        ptr,
                        count,
                        list,
                        event
                    )
                )
            },
        )
    }

    unsafe fn clEnqueueWriteBuffer(
        &self,
        command_queue: cl_command_queue,
        buffer: cl_mem,
        blocking_write: cl_bool,
        offset: usize,
        size: usize,
        ptr: *const c_void,
        num_events_in_wait_list: cl_uint,
        event_wait_list: Option<&[cl_event]>,
        event: Out<cl_event>,
    ) -> Result<(), cl_int> {
        let (queue, mem) = usable(command_queue, || self::buffer(buffer), NO_WAITS)?;
        mem.expect_host_access(true)?;
        if ptr.is_null() {
            return Err(CL_INVALID_VALUE);
        }
        mem.expect_range(offset, size)?;
        transfer(
            &queue,
            Meets::writes(blocking_write),
            (num_events_in_wait_list, event_wait_list),
            &event,
            CL_COMMAND_WRITE_BUFFER,
            [(&mem, whole(&mem, offset, size))],
            |api, [raw], count, list, event| {
                provider!(
                    api,
                    clEnqueueWriteBuffer(
                        queue.raw.0,
                        raw,
                        blocking_write,
                        offset,
                        size,
                        ptr,
                        count,
                        list,
                        event
                    )
                )
            },
        )
    }

    unsafe fn clEnqueueWriteBufferRect(
        &self,
        command_queue: cl_command_queue,
        buffer: cl_mem,
        blocking_write: cl_bool,
        buffer_origin: Option<&[usize]>,
        host_origin: Option<&[usize]>,
        region: Option<&[usize]>,
        buffer_row_pitch: usize,
        buffer_slice_pitch: usize,
        host_row_pitch: usize,
        host_slice_pitch: usize,
        ptr: *const c_void,
        num_events_in_wait_list: cl_uint,
        event_wait_list: Option<&[cl_event]>,
        event: Out<cl_event>,
    ) -> Result<(), cl_int> {
        let (queue, mem) = usable(
            command_queue,
            || self::buffer(buffer),
            (num_events_in_wait_list, event_wait_list),
        )?;
        mem.expect_host_access(true)?;
        let (to, from, region) = (three(buffer_origin)?, three(host_origin)?, three(region)?);
        let there = BoxAt::new(to, region, buffer_row_pitch, buffer_slice_pitch)?;
        BoxAt::new(from, region, host_row_pitch, host_slice_pitch)?;
        if there.end > mem.size || ptr.is_null() {
            return Err(CL_INVALID_VALUE);
        }
        transfer(
            &queue,
            Meets::writes(blocking_write),
            (num_events_in_wait_list, event_wait_list),
            &event,
            CL_COMMAND_WRITE_BUFFER_RECT,
            [(&mem, Access::Modify)],
            |api, [raw], count, list, event| {
                provider!(
                    api,
                    clEnqueueWriteBufferRect(
                        queue.raw.0,
                        raw,
                        blocking_write,
                        to.as_ptr(),
                        from.as_ptr(),
                        region.as_ptr(),
                        buffer_row_pitch,
                        buffer_slice_pitch,
                        host_row_pitch,
                        host_slice_pitch,
                        ptr,
                        count,
                        list,
                        event
                    )
                )
            },
        )
    }

    unsafe fn clEnqueueFillBuffer(
        &self,
        command_queue: cl_command_queue,
        buffer: cl_mem,
        pattern: *const c_void,
        pattern_size: usize,
        offset: usize,
        size: usize,
        num_events_in_wait_list: cl_uint,
        event_wait_list: Option<&[cl_event]>,
        event: Out<cl_event>,
    ) -> Result<(), cl_int> {
        let queue = host_queue(command_queue)?;
        check_events(&queue, (num_events_in_wait_list, event_wait_list))?;
        let mem = in_context(&queue, self::buffer(buffer)?)?;
        mem.expect_range(offset, size)?;
        if pattern.is_null()
            || !pattern_size.is_power_of_two()
            || pattern_size > 128
            || !offset.is_multiple_of(pattern_size)
            || !size.is_multiple_of(pattern_size)
        {
            return Err(CL_INVALID_VALUE);
        }
        on_memory(
            &queue,
            (num_events_in_wait_list, event_wait_list),
            &event,
            CL_COMMAND_FILL_BUFFER,
            [(&mem, whole(&mem, offset, size))],
            |api, [raw], count, list, event| {
                provider!(
                    api,
                    clEnqueueFillBuffer(
                        queue.raw.0,
                        raw,
                        pattern,
                        pattern_size,
                        offset,
                        size,
                        count,
                        list,
                        event
                    )
                )
            },
        )
    }

    unsafe fn clEnqueueCopyBuffer(
        &self,
        command_queue: cl_command_queue,
        src_buffer: cl_mem,
        dst_buffer: cl_mem,
        src_offset: usize,
        dst_offset: usize,
        size: usize,
        num_events_in_wait_list: cl_uint,
        event_wait_list: Option<&[cl_event]>,
        event: Out<cl_event>,
    ) -> Result<(), cl_int> {
        let queue = waiting(command_queue, (num_events_in_wait_list, event_wait_list))?;
        let (from, to) = (buffer(src_buffer)?, buffer(dst_buffer)?);
        from.expect_usable(&queue)?;
        to.expect_usable(&queue)?;
        if src_offset >= from.size || dst_offset >= to.size {
            return Err(CL_INVALID_VALUE);
        }
        if size == 0 {
            return Err(CL_INVALID_VALUE);
        }
        from.expect_range(src_offset, size)?;
        to.expect_range(dst_offset, size)?;
        // Sub-buffers of one buffer overlap by where they lie in it.
        if same_root(&from, &to) {
            let (a, b) = (from.offset + src_offset, to.offset + dst_offset);
            if a < b + size && b < a + size {
                return Err(CL_MEM_COPY_OVERLAP);
            }
        }
        on_memory(
            &queue,
            (num_events_in_wait_list, event_wait_list),
            &event,
            CL_COMMAND_COPY_BUFFER,
            [
                (&from, Access::Read),
                (&to, beside(&from, &to, whole(&to, dst_offset, size))),
            ],
            |api, [from, to], count, list, event| {
                provider!(
                    api,
                    clEnqueueCopyBuffer(
                        queue.raw.0,
                        from,
                        to,
                        src_offset,
                        dst_offset,
                        size,
                        count,
                        list,
                        event
                    )
                )
            },
        )
    }

    unsafe fn clEnqueueCopyBufferRect(
        &self,
        command_queue: cl_command_queue,
        src_buffer: cl_mem,
        dst_buffer: cl_mem,
        src_origin: Option<&[usize]>,
        dst_origin: Option<&[usize]>,
        region: Option<&[usize]>,
        src_row_pitch: usize,
        src_slice_pitch: usize,
        dst_row_pitch: usize,
        dst_slice_pitch: usize,
        num_events_in_wait_list: cl_uint,
        event_wait_list: Option<&[cl_event]>,
        event: Out<cl_event>,
    ) -> Result<(), cl_int> {
        let queue = waiting(command_queue, (num_events_in_wait_list, event_wait_list))?;
        let (from, to) = (buffer(src_buffer)?, buffer(dst_buffer)?);
        from.expect_usable(&queue)?;
        to.expect_usable(&queue)?;
        let (src, dst, region) = (three(src_origin)?, three(dst_origin)?, three(region)?);
        let here = BoxAt::new(src, region, src_row_pitch, src_slice_pitch)?;
        let there = BoxAt::new(dst, region, dst_row_pitch, dst_slice_pitch)?;
        if here.end > from.size || there.end > to.size {
            return Err(CL_INVALID_VALUE);
        }
        let is_alike = here.row_pitch == there.row_pitch && here.slice_pitch == there.slice_pitch;
        if from.is(&to) && !is_alike {
            return Err(CL_INVALID_VALUE);
        }
        if same_root(&from, &to)
            && is_alike
            && boxes_overlap((&here, from.offset), (&there, to.offset), region)
        {
            return Err(CL_MEM_COPY_OVERLAP);
        }
        on_memory(
            &queue,
            (num_events_in_wait_list, event_wait_list),
            &event,
            CL_COMMAND_COPY_BUFFER_RECT,
            [(&from, Access::Read), (&to, Access::Modify)],
            |api, [from, to], count, list, event| {
                provider!(
                    api,
                    clEnqueueCopyBufferRect(
                        queue.raw.0,
                        from,
                        to,
                        src.as_ptr(),
                        dst.as_ptr(),
                        region.as_ptr(),
                        src_row_pitch,
                        src_slice_pitch,
                        dst_row_pitch,
                        dst_slice_pitch,
                        count,
                        list,
                        event
                    )
                )
            },
        )
    }

    unsafe fn clEnqueueReadImage(
        &self,
        command_queue: cl_command_queue,
        image: cl_mem,
        blocking_read: cl_bool,
        origin: Option<&[usize]>,
        region: Option<&[usize]>,
        row_pitch: usize,
        slice_pitch: usize,
        ptr: *mut c_void,
        num_events_in_wait_list: cl_uint,
        event_wait_list: Option<&[cl_event]>,
        event: Out<cl_event>,
    ) -> Result<(), cl_int> {
        let waits = (num_events_in_wait_list, event_wait_list);
        let (queue, mem) = for_host(command_queue, image, ptr.is_null(), waits)?;
        mem.expect_host_access(false)?;
        let (origin, region) = (three(origin)?, three(region)?);
        mem.shape()?.expect_region(origin, region)?;
        mem.shape()?
            .expect_host_pitches(region, row_pitch, slice_pitch)?;
        transfer(
            &queue,
            Meets::reads(blocking_read),
            (num_events_in_wait_list, event_wait_list),
            &event,
            CL_COMMAND_READ_IMAGE,
            [(&mem, Access::Read)],
            |api, [raw], count, list, event| {
                provider!(
                    api,
                    clEnqueueReadImage(
                        queue.raw.0,
                        raw,
                        blocking_read,
                        origin.as_ptr(),
                        region.as_ptr(),
                        row_pitch,
                        slice_pitch,
                        ptr,
                        count,
                        list,
                        event
                    )
                )
            },
        )
    }

    unsafe fn clEnqueueWriteImage(
        &self,
        command_queue: cl_command_queue,
        image: cl_mem,
        blocking_write: cl_bool,
        origin: Option<&[usize]>,
        region: Option<&[usize]>,
        input_row_pitch: usize,
        input_slice_pitch: usize,
        ptr: *const c_void,
        num_events_in_wait_list: cl_uint,
        event_wait_list: Option<&[cl_event]>,
        event: Out<cl_event>,
    ) -> Result<(), cl_int> {
        let waits = (num_events_in_wait_list, event_wait_list);
        let (queue, mem) = for_host(command_queue, image, ptr.is_null(), waits)?;
        mem.expect_host_access(true)?;
        let (origin, region) = (three(origin)?, three(region)?);
        mem.shape()?.expect_region(origin, region)?;
        mem.shape()?
            .expect_host_pitches(region, input_row_pitch, input_slice_pitch)?;
        transfer(
            &queue,
            Meets::writes(blocking_write),
            (num_events_in_wait_list, event_wait_list),
            &event,
            CL_COMMAND_WRITE_IMAGE,
            [(&mem, mem.shape()?.access_to(region))],
            |api, [raw], count, list, event| {
                provider!(
                    api,
                    clEnqueueWriteImage(
                        queue.raw.0,
                        raw,
                        blocking_write,
                        origin.as_ptr(),
                        region.as_ptr(),
                        input_row_pitch,
                        input_slice_pitch,
                        ptr,
                        count,
                        list,
                        event
                    )
                )
            },
        )
    }

    unsafe fn clEnqueueFillImage(
        &self,
        command_queue: cl_command_queue,
        image: cl_mem,
        fill_color: *const c_void,
        origin: Option<&[usize]>,
        region: Option<&[usize]>,
        num_events_in_wait_list: cl_uint,
        event_wait_list: Option<&[cl_event]>,
        event: Out<cl_event>,
    ) -> Result<(), cl_int> {
        let queue = host_queue(command_queue)?;
        check_events(&queue, (num_events_in_wait_list, event_wait_list))?;
        let mem = get::<Mem>(image)?;
        let (origin, region) = (three(origin)?, three(region)?);
        if fill_color.is_null() {
            return Err(CL_INVALID_VALUE);
        }
        mem.expect_usable(&queue)?;
        mem.shape()?.expect_region(origin, region)?;
        on_memory(
            &queue,
            (num_events_in_wait_list, event_wait_list),
            &event,
            CL_COMMAND_FILL_IMAGE,
            [(&mem, mem.shape()?.access_to(region))],
            |api, [raw], count, list, event| {
                provider!(
                    api,
                    clEnqueueFillImage(
                        queue.raw.0,
                        raw,
                        fill_color,
                        origin.as_ptr(),
                        region.as_ptr(),
                        count,
                        list,
                        event
                    )
                )
            },
        )
    }

    unsafe fn clEnqueueCopyImage(
        &self,
        command_queue: cl_command_queue,
        src_image: cl_mem,
        dst_image: cl_mem,
        src_origin: Option<&[usize]>,
        dst_origin: Option<&[usize]>,
        region: Option<&[usize]>,
        num_events_in_wait_list: cl_uint,
        event_wait_list: Option<&[cl_event]>,
        event: Out<cl_event>,
    ) -> Result<(), cl_int> {
        let queue = host_queue(command_queue)?;
        let (from, to) = (get::<Mem>(src_image)?, get::<Mem>(dst_image)?);
        check_waits((num_events_in_wait_list, event_wait_list))?;
        from.expect_usable(&queue)?;
        to.expect_usable(&queue)?;
        let (here, there) = (from.shape()?, to.shape()?);
        let (src, dst, region) = (three(src_origin)?, three(dst_origin)?, three(region)?);
        if here.format.image_channel_order != there.format.image_channel_order
            || here.format.image_channel_data_type != there.format.image_channel_data_type
        {
            return Err(CL_IMAGE_FORMAT_MISMATCH);
        }
        here.expect_region(src, region)?;
        there.expect_region(dst, region)?;
        let near = |axis: usize| src[axis].abs_diff(dst[axis]) < region[axis];
        if from.is(&to) && near(0) && near(1) && near(2) {
            return Err(CL_MEM_COPY_OVERLAP);
        }
        on_memory(
            &queue,
            (num_events_in_wait_list, event_wait_list),
            &event,
            CL_COMMAND_COPY_IMAGE,
            [
                (&from, Access::Read),
                (&to, beside(&from, &to, there.access_to(region))),
            ],
            |api, [from, to], count, list, event| {
                provider!(
                    api,
                    clEnqueueCopyImage(
                        queue.raw.0,
                        from,
                        to,
                        src.as_ptr(),
                        dst.as_ptr(),
                        region.as_ptr(),
                        count,
                        list,
                        event
                    )
                )
            },
        )
    }

    unsafe fn clEnqueueCopyImageToBuffer(
        &self,
        command_queue: cl_command_queue,
        src_image: cl_mem,
        dst_buffer: cl_mem,
        src_origin: Option<&[usize]>,
        region: Option<&[usize]>,
        dst_offset: usize,
        num_events_in_wait_list: cl_uint,
        event_wait_list: Option<&[cl_event]>,
        event: Out<cl_event>,
    ) -> Result<(), cl_int> {
        let queue = host_queue(command_queue)?;
        let (from, to) = (image(src_image)?, buffer(dst_buffer)?);
        check_waits((num_events_in_wait_list, event_wait_list))?;
        from.expect_usable(&queue)?;
        to.expect_usable(&queue)?;
        let (origin, region) = (three(src_origin)?, three(region)?);
        let shape = from.shape()?;
        shape.expect_region(origin, region)?;
        let size = shape.packed_size(region).ok_or(CL_INVALID_VALUE)?;
        to.expect_range(dst_offset, size)?;
        on_memory(
            &queue,
            (num_events_in_wait_list, event_wait_list),
            &event,
            CL_COMMAND_COPY_IMAGE_TO_BUFFER,
            [
                (&from, Access::Read),
                (&to, beside(&from, &to, whole(&to, dst_offset, size))),
            ],
            |api, [from, to], count, list, event| {
                provider!(
                    api,
                    clEnqueueCopyImageToBuffer(
                        queue.raw.0,
                        from,
                        to,
                        origin.as_ptr(),
                        region.as_ptr(),
                        dst_offset,
                        count,
                        list,
                        event
                    )
                )
            },
        )
    }

    unsafe fn clEnqueueCopyBufferToImage(
        &self,
        command_queue: cl_command_queue,
        src_buffer: cl_mem,
        dst_image: cl_mem,
        src_offset: usize,
        dst_origin: Option<&[usize]>,
        region: Option<&[usize]>,
        num_events_in_wait_list: cl_uint,
        event_wait_list: Option<&[cl_event]>,
        event: Out<cl_event>,
    ) -> Result<(), cl_int> {
        let queue = host_queue(command_queue)?;
        let (from, to) = (buffer(src_buffer)?, image(dst_image)?);
        check_waits((num_events_in_wait_list, event_wait_list))?;
        from.expect_usable(&queue)?;
        to.expect_usable(&queue)?;
        let (origin, region) = (three(dst_origin)?, three(region)?);
        let shape = to.shape()?;
        shape.expect_region(origin, region)?;
        let size = shape.packed_size(region).ok_or(CL_INVALID_VALUE)?;
        from.expect_range(src_offset, size)?;
        on_memory(
            &queue,
            (num_events_in_wait_list, event_wait_list),
            &event,
            CL_COMMAND_COPY_BUFFER_TO_IMAGE,
            [
                (&from, Access::Read),
                (&to, beside(&from, &to, shape.access_to(region))),
            ],
            |api, [from, to], count, list, event| {
                provider!(
                    api,
                    clEnqueueCopyBufferToImage(
                        queue.raw.0,
                        from,
                        to,
                        src_offset,
                        origin.as_ptr(),
                        region.as_ptr(),
                        count,
                        list,
                        event
                    )
                )
            },
        )
    }

    unsafe fn clEnqueueMapBuffer(
        &self,
        command_queue: cl_command_queue,
        buffer: cl_mem,
        blocking_map: cl_bool,
        map_flags: cl_map_flags,
        offset: usize,
        size: usize,
        num_events_in_wait_list: cl_uint,
        event_wait_list: Option<&[cl_event]>,
        event: Out<cl_event>,
    ) -> Result<*mut c_void, cl_int> {
        let queue = host_queue(command_queue)?;
        let mem = self::buffer(buffer)?;
        if size == 0 {
            return Err(CL_INVALID_VALUE);
        }
        mem.expect_usable(&queue)?;
        check_events(&queue, (num_events_in_wait_list, event_wait_list))?;
        map::buffer(
            &queue,
            &mem,
            map::Request::new(blocking_map, map_flags)?,
            (offset, size),
            (num_events_in_wait_list, event_wait_list),
            &event,
        )
    }

    unsafe fn clEnqueueMapImage(
        &self,
        command_queue: cl_command_queue,
        image: cl_mem,
        blocking_map: cl_bool,
        map_flags: cl_map_flags,
        origin: Option<&[usize]>,
        region: Option<&[usize]>,
        image_row_pitch: Out<usize>,
        image_slice_pitch: Out<usize>,
        num_events_in_wait_list: cl_uint,
        event_wait_list: Option<&[cl_event]>,
        event: Out<cl_event>,
    ) -> Result<*mut c_void, cl_int> {
        let (queue, mem) = usable(
            command_queue,
            || self::image(image),
            (num_events_in_wait_list, event_wait_list),
        )?;
        let (origin, region) = (three(origin)?, three(region)?);
        if !image_row_pitch.wanted() {
            return Err(CL_INVALID_VALUE);
        }
        check_events(&queue, (num_events_in_wait_list, event_wait_list))?;
        let mapped = map::image(
            &queue,
            &mem,
            map::Request::new(blocking_map, map_flags)?,
            (origin, region),
            image_slice_pitch.wanted(),
            (num_events_in_wait_list, event_wait_list),
            &event,
        )?;
        image_row_pitch.set(mapped.row_pitch);
        image_slice_pitch.set(mapped.slice_pitch);
        Ok(mapped.pointer)
    }

    unsafe fn clEnqueueUnmapMemObject(
        &self,
        command_queue: cl_command_queue,
        memobj: cl_mem,
        mapped_ptr: *mut c_void,
        num_events_in_wait_list: cl_uint,
        event_wait_list: Option<&[cl_event]>,
        event: Out<cl_event>,
    ) -> Result<(), cl_int> {
        let (queue, mem) = usable(
            command_queue,
            || get::<Mem>(memobj),
            (num_events_in_wait_list, event_wait_list),
        )?;
        map::unmap(
            &queue,
            &mem,
            mapped_ptr,
            (num_events_in_wait_list, event_wait_list),
            &event,
        )
    }

    unsafe fn clEnqueueMigrateMemObjects(
        &self,
        command_queue: cl_command_queue,
        num_mem_objects: cl_uint,
        mem_objects: Option<&[cl_mem]>,
        flags: cl_mem_migration_flags,
        num_events_in_wait_list: cl_uint,
        event_wait_list: Option<&[cl_event]>,
        event: Out<cl_event>,
    ) -> Result<(), cl_int> {
        let queue = host_queue(command_queue)?;
        let Some(list) = mem_objects.filter(|_| num_mem_objects > 0) else {
            return Err(CL_INVALID_VALUE);
        };
        if flags & !(CL_MIGRATE_MEM_OBJECT_HOST | CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED) != 0 {
            return Err(CL_INVALID_VALUE);
        }
        check_events(&queue, (num_events_in_wait_list, event_wait_list))?;
        let mems = list
            .iter()
            .map(|&mem| get::<Mem>(mem))
            .collect::<Result<Vec<_>, _>>()?;
        for mem in &mems {
            mem.expect_usable(&queue)?;
        }
        let access = if flags & CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED != 0 {
            Access::Replace
        } else {
            Access::Read
        };
        // Moved to the host, it stays where it is until a device asks for it.
        let uses: Vec<(&Ref<Mem>, Access)> = mems
            .iter()
            .filter(|_| flags & CL_MIGRATE_MEM_OBJECT_HOST == 0)
            .map(|mem| (mem, access))
            .collect();
        enqueue(
            &queue,
            (num_events_in_wait_list, event_wait_list),
            &event,
            CL_COMMAND_MIGRATE_MEM_OBJECTS,
            &uses,
            |count, list, event| {
                let raws = mems
                    .iter()
                    .map(|mem| mem.raw_on(queue.part))
                    .collect::<Result<Vec<_>, _>>();
                match raws {
                    Ok(raws) => provider!(
                        queue.part().provider.api,
                        clEnqueueMigrateMemObjects(
                            queue.raw.0,
                            num_mem_objects,
                            raws.as_ptr(),
                            flags,
                            count,
                            list,
                            event
                        )
                    ),
                    Err(status) => status,
                }
            },
        )
    }
}
