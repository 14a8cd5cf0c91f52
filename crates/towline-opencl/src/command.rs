//! Commands: what the host enqueues.
//!
//! [`enqueue`] is the one way from a command of the application to a command of a provider: it resolves the wait list, has the
//! contents of memory objects brought where they are needed, and makes the event.

use std::ffi::c_void;
use std::sync::Arc;

use smallvec::SmallVec;
use towline_backend::opencl::*;

use crate::arena::{Ref, get};
use crate::batch;
use crate::coherence::{self, Access, Use};
use crate::event::{self, Event, RawEvent};
use crate::memory::{Mem, buffer, image};
use crate::platform::{EnqueueCalls, Platform};
use crate::queue::{Queue, host_queue};
use crate::raw::{Out, check, provider};
use crate::{kernel, map};

/// A wait list as the application gives it.
pub(crate) type WaitList<'a> = (cl_uint, Option<&'a [cl_event]>);

/// A wait list as a provider takes it.
#[derive(Default)]
pub(crate) struct Waits {
    raws: SmallVec<[cl_event; 8]>,
    held: SmallVec<[Ref<Event>; 8]>,
    own: SmallVec<[Arc<dyn Send + Sync>; 2]>,
}

impl Waits {
    /// Resolves a wait list for commands on the queue; with `always`, events that are complete already stay in the list.
    #[inline]
    pub(crate) fn resolve(
        queue: &Queue,
        (count, list): WaitList<'_>,
        always: bool,
    ) -> Result<Self, cl_int> {
        let mut waits = Self::default();
        let list = match list {
            None if count == 0 => return Ok(waits),
            Some(list) if count > 0 => list,
            _ => return Err(CL_INVALID_EVENT_WAIT_LIST),
        };
        for &event in list {
            let event = get::<Event>(event).map_err(|_| CL_INVALID_EVENT_WAIT_LIST)?;
            if !event.context.is(&queue.context) {
                return Err(CL_INVALID_CONTEXT);
            }
            if let Some(raw) = event::on(&event, queue.part, always)? {
                waits.raws.push(raw.0);
                waits.held.push(event);
            }
        }
        Ok(waits)
    }

    /// Adds an event of the provider's that `keeper` keeps alive.
    pub(crate) fn add_own(&mut self, raw: RawEvent, keeper: Arc<dyn Send + Sync>) {
        self.raws.push(raw.0);
        self.own.push(keeper);
    }

    /// The list's length, for the provider.
    pub(crate) fn count(&self) -> cl_uint {
        self.raws.len() as cl_uint
    }

    /// The list, for the provider: NULL when it is empty.
    pub(crate) fn list(&self) -> *const cl_event {
        if self.raws.is_empty() {
            std::ptr::null()
        } else {
            self.raws.as_ptr()
        }
    }
}

/// A memory object that a command uses.
pub(crate) type Uses<'a> = &'a [(&'a Ref<Mem>, Access)];

/// Enqueues a command: `run` gets the wait list and the place for the event as the provider takes them.
#[inline]
pub(crate) fn enqueue(
    queue: &Ref<Queue>,
    waits: WaitList<'_>,
    event: &Out<cl_event>,
    command: cl_command_type,
    uses: Uses<'_>,
    run: impl FnOnce(cl_uint, *const cl_event, *mut cl_event) -> cl_int,
) -> Result<(), cl_int> {
    let waits = Waits::resolve(queue, waits, false)?;
    submit(queue, waits, event, command, uses, run).map(|_| ())
}

/// [`enqueue`] with a resolved wait list. Answers the event, where there is one.
#[inline]
pub(crate) fn submit(
    queue: &Ref<Queue>,
    mut waits: Waits,
    event: &Out<cl_event>,
    command: cl_command_type,
    uses: Uses<'_>,
    run: impl FnOnce(cl_uint, *const cl_event, *mut cl_event) -> cl_int,
) -> Result<Option<Ref<Event>>, cl_int> {
    let spans = !queue.context.single();
    if queue.context.tends_contents() {
        for (mem, access) in uses {
            coherence::prepare(mem, queue.part, *access, &mut waits)?;
        }
    }
    let batches = spans && queue.in_order();
    let waits_outside = waits.count() > 0;
    if batches && waits_outside {
        batch::end(queue)?;
    }
    let batched = batches && !waits_outside && !event.wanted();
    let wants_event = event.wanted() || (spans && !batched && !uses.is_empty());
    let mut raw = std::ptr::null_mut();
    check(run(
        waits.count(),
        waits.list(),
        if wants_event {
            &raw mut raw
        } else {
            std::ptr::null_mut()
        },
    ))?;
    if wants_event {
        let made = finish(queue, raw, event, command, uses)?;
        if batches && !waits_outside {
            batch::end_with(queue, &made);
        }
        return Ok(Some(made));
    }
    if batched && !uses.is_empty() {
        let latest = batch::of_latest(queue);
        for (mem, access) in uses {
            let used = Use::Batch(queue.clone(), Arc::clone(&latest));
            coherence::record(mem, queue.part, *access, &used);
        }
    }
    Ok(None)
}

/// Makes the event of a command that was enqueued.
fn finish(
    queue: &Ref<Queue>,
    raw: cl_event,
    event: &Out<cl_event>,
    command: cl_command_type,
    uses: Uses<'_>,
) -> Result<Ref<Event>, cl_int> {
    let made = match Event::of_command(queue, raw, command) {
        Ok(made) => made,
        Err(status) => {
            provider!(queue.part().provider.api, clReleaseEvent(raw));
            return Err(status);
        }
    };
    if !queue.context.single() {
        let used = Use::Command(made.clone());
        for (mem, access) in uses {
            coherence::record(mem, queue.part, *access, &used);
        }
    }
    if event.wanted() {
        event.set(made.clone().publish());
    }
    Ok(made)
}

/// The queue of a command and an object of its context that it uses.
#[inline]
pub(crate) fn usable(
    queue: cl_command_queue,
    mem: Ref<Mem>,
) -> Result<(Ref<Queue>, Ref<Mem>), cl_int> {
    let queue = host_queue(queue)?;
    mem.expect_usable(&queue)?;
    Ok((queue, mem))
}

/// A box in a buffer or in host memory: where it begins and how far it reaches, checked for overflow.
pub(crate) struct BoxAt {
    pub(crate) first: usize,
    pub(crate) end: usize,
    pub(crate) row_pitch: usize,
    pub(crate) slice_pitch: usize,
}

impl BoxAt {
    /// Checks pitches against the region, as `clEnqueueReadBufferRect` has it; a pitch of zero means no gaps.
    pub(crate) fn new(
        origin: &[usize],
        region: &[usize],
        row_pitch: usize,
        slice_pitch: usize,
    ) -> Result<Self, cl_int> {
        if region.contains(&0) {
            return Err(CL_INVALID_VALUE);
        }
        let row = if row_pitch == 0 { region[0] } else { row_pitch };
        let rows = region[1].checked_mul(row).ok_or(CL_INVALID_VALUE)?;
        let slice = if slice_pitch == 0 { rows } else { slice_pitch };
        if row < region[0] || slice < rows || !slice.is_multiple_of(row) {
            return Err(CL_INVALID_VALUE);
        }
        let place = |x: usize, y: usize, z: usize| {
            z.checked_mul(slice)?
                .checked_add(y.checked_mul(row)?)?
                .checked_add(x)
        };
        let first = place(origin[0], origin[1], origin[2]).ok_or(CL_INVALID_VALUE)?;
        let last = place(region[0], region[1] - 1, region[2] - 1).ok_or(CL_INVALID_VALUE)?;
        Ok(Self {
            first,
            end: first.checked_add(last).ok_or(CL_INVALID_VALUE)?,
            row_pitch: row,
            slice_pitch: slice,
        })
    }
}

/// Whether two boxes of one buffer overlap: `CL_MEM_COPY_OVERLAP` of `clEnqueueCopyBufferRect`.
fn boxes_overlap(from: &BoxAt, to: &BoxAt, region: &[usize]) -> bool {
    if from.row_pitch != to.row_pitch || from.slice_pitch != to.slice_pitch {
        return from.first < to.end && to.first < from.end;
    }
    // With equal pitches the boxes are where their distance, taken apart into slices, rows and bytes, is inside the region.
    let (low, high) = if from.first < to.first {
        (from.first, to.first)
    } else {
        (to.first, from.first)
    };
    let distance = high - low;
    let x = low % from.row_pitch;
    let y = (low % from.slice_pitch) / from.row_pitch;
    let z = low / from.slice_pitch;
    let other = (
        (low + distance) % from.row_pitch,
        ((low + distance) % from.slice_pitch) / from.row_pitch,
        (low + distance) / from.slice_pitch,
    );
    let near = |a: usize, b: usize, len: usize| a.abs_diff(b) < len;
    near(x, other.0, region[0]) && near(y, other.1, region[1]) && near(z, other.2, region[2])
}

fn three(list: Option<&[usize]>) -> Result<&[usize], cl_int> {
    list.filter(|list| list.len() == 3).ok_or(CL_INVALID_VALUE)
}

fn whole(mem: &Mem, offset: usize, size: usize) -> Access {
    if offset == 0 && size == mem.size {
        Access::Replace
    } else {
        Access::Modify
    }
}

fn marker(
    queue: &Ref<Queue>,
    waits: WaitList<'_>,
    event: &Out<cl_event>,
    command: cl_command_type,
) -> Result<(), cl_int> {
    let api = &queue.part().provider.api;
    // An empty list means "everything so far": events that are complete must not make it empty.
    let waits = Waits::resolve(queue, waits, true)?;
    submit(queue, waits, event, command, &[], |count, list, event| {
        if command == CL_COMMAND_BARRIER {
            provider!(
                api,
                clEnqueueBarrierWithWaitList(queue.raw.0, count, list, event)
            )
        } else {
            provider!(
                api,
                clEnqueueMarkerWithWaitList(queue.raw.0, count, list, event)
            )
        }
    })
    .map(|_| ())
}

/// A command that does nothing but complete after its wait list, under another command's name.
pub(crate) fn placeholder(
    queue: &Ref<Queue>,
    waits: WaitList<'_>,
    event: &Out<cl_event>,
    command: cl_command_type,
) -> Result<Option<Ref<Event>>, cl_int> {
    let part = queue.part();
    let waits = Waits::resolve(queue, waits, true)?;
    if waits.count() > 0 || queue.in_order() {
        return submit(queue, waits, event, command, &[], |count, list, event| {
            provider!(
                part.provider.api,
                clEnqueueMarkerWithWaitList(queue.raw.0, count, list, event)
            )
        });
    }
    // A marker without a list would wait for every command of this out-of-order queue.
    submit(queue, waits, event, command, &[], |_, _, event| {
        let made = crate::raw::create!(part.provider.api, clCreateUserEvent(part.raw.0));
        match made {
            Ok(made) => {
                let status = provider!(part.provider.api, clSetUserEventStatus(made, CL_COMPLETE));
                if event.is_null() {
                    provider!(part.provider.api, clReleaseEvent(made));
                } else {
                    // SAFETY: `submit` gives a place of its own.
                    unsafe { event.write(made) };
                }
                status
            }
            Err(status) => status,
        }
    })
}

impl EnqueueCalls for Platform {
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
        let (queue, mem) = usable(command_queue, self::buffer(buffer)?)?;
        if ptr.is_null() {
            return Err(CL_INVALID_VALUE);
        }
        mem.expect_range(offset, size)?;
        mem.expect_host_access(false)?;
        enqueue(
            &queue,
            (num_events_in_wait_list, event_wait_list),
            &event,
            CL_COMMAND_READ_BUFFER,
            &[(&mem, Access::Read)],
            |count, list, event| match mem.raw_on(queue.part) {
                Ok(raw) => provider!(
                    queue.part().provider.api,
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
                ),
                Err(status) => status,
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
        let (queue, mem) = usable(command_queue, self::buffer(buffer)?)?;
        let (from, to, region) = (three(buffer_origin)?, three(host_origin)?, three(region)?);
        let there = BoxAt::new(from, region, buffer_row_pitch, buffer_slice_pitch)?;
        BoxAt::new(to, region, host_row_pitch, host_slice_pitch)?;
        if there.end > mem.size || ptr.is_null() {
            return Err(CL_INVALID_VALUE);
        }
        mem.expect_host_access(false)?;
        enqueue(
            &queue,
            (num_events_in_wait_list, event_wait_list),
            &event,
            CL_COMMAND_READ_BUFFER_RECT,
            &[(&mem, Access::Read)],
            |count, list, event| match mem.raw_on(queue.part) {
                Ok(raw) => provider!(
                    queue.part().provider.api,
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
                ),
                Err(status) => status,
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
        let (queue, mem) = usable(command_queue, self::buffer(buffer)?)?;
        if ptr.is_null() {
            return Err(CL_INVALID_VALUE);
        }
        mem.expect_range(offset, size)?;
        mem.expect_host_access(true)?;
        enqueue(
            &queue,
            (num_events_in_wait_list, event_wait_list),
            &event,
            CL_COMMAND_WRITE_BUFFER,
            &[(&mem, whole(&mem, offset, size))],
            |count, list, event| match mem.raw_on(queue.part) {
                Ok(raw) => provider!(
                    queue.part().provider.api,
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
                ),
                Err(status) => status,
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
        let (queue, mem) = usable(command_queue, self::buffer(buffer)?)?;
        let (to, from, region) = (three(buffer_origin)?, three(host_origin)?, three(region)?);
        let there = BoxAt::new(to, region, buffer_row_pitch, buffer_slice_pitch)?;
        BoxAt::new(from, region, host_row_pitch, host_slice_pitch)?;
        if there.end > mem.size || ptr.is_null() {
            return Err(CL_INVALID_VALUE);
        }
        mem.expect_host_access(true)?;
        enqueue(
            &queue,
            (num_events_in_wait_list, event_wait_list),
            &event,
            CL_COMMAND_WRITE_BUFFER_RECT,
            &[(&mem, Access::Modify)],
            |count, list, event| match mem.raw_on(queue.part) {
                Ok(raw) => provider!(
                    queue.part().provider.api,
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
                ),
                Err(status) => status,
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
        let (queue, mem) = usable(command_queue, self::buffer(buffer)?)?;
        mem.expect_range(offset, size)?;
        if pattern.is_null()
            || !pattern_size.is_power_of_two()
            || pattern_size > 128
            || !offset.is_multiple_of(pattern_size)
            || !size.is_multiple_of(pattern_size)
        {
            return Err(CL_INVALID_VALUE);
        }
        enqueue(
            &queue,
            (num_events_in_wait_list, event_wait_list),
            &event,
            CL_COMMAND_FILL_BUFFER,
            &[(&mem, whole(&mem, offset, size))],
            |count, list, event| match mem.raw_on(queue.part) {
                Ok(raw) => provider!(
                    queue.part().provider.api,
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
                ),
                Err(status) => status,
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
        let (queue, from) = usable(command_queue, buffer(src_buffer)?)?;
        let to = buffer(dst_buffer)?;
        to.expect_usable(&queue)?;
        from.expect_range(src_offset, size)?;
        to.expect_range(dst_offset, size)?;
        // Sub-buffers of one buffer overlap by where they lie in it.
        if same_root(&from, &to) {
            let (a, b) = (from.offset + src_offset, to.offset + dst_offset);
            if a < b + size && b < a + size {
                return Err(CL_MEM_COPY_OVERLAP);
            }
        }
        enqueue(
            &queue,
            (num_events_in_wait_list, event_wait_list),
            &event,
            CL_COMMAND_COPY_BUFFER,
            &[
                (&from, Access::Read),
                (
                    &to,
                    if same_root(&from, &to) {
                        Access::Modify
                    } else {
                        whole(&to, dst_offset, size)
                    },
                ),
            ],
            |count, list, event| match (from.raw_on(queue.part), to.raw_on(queue.part)) {
                (Ok(from), Ok(to)) => provider!(
                    queue.part().provider.api,
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
                ),
                (Err(status), _) | (_, Err(status)) => status,
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
        let (queue, from) = usable(command_queue, buffer(src_buffer)?)?;
        let to = buffer(dst_buffer)?;
        to.expect_usable(&queue)?;
        let (src, dst, region) = (three(src_origin)?, three(dst_origin)?, three(region)?);
        let here = BoxAt::new(src, region, src_row_pitch, src_slice_pitch)?;
        let there = BoxAt::new(dst, region, dst_row_pitch, dst_slice_pitch)?;
        if here.end > from.size || there.end > to.size {
            return Err(CL_INVALID_VALUE);
        }
        if from.is(&to) {
            if here.row_pitch != there.row_pitch || here.slice_pitch != there.slice_pitch {
                return Err(CL_INVALID_VALUE);
            }
            if boxes_overlap(&here, &there, region) {
                return Err(CL_MEM_COPY_OVERLAP);
            }
        }
        enqueue(
            &queue,
            (num_events_in_wait_list, event_wait_list),
            &event,
            CL_COMMAND_COPY_BUFFER_RECT,
            &[(&from, Access::Read), (&to, Access::Modify)],
            |count, list, event| match (from.raw_on(queue.part), to.raw_on(queue.part)) {
                (Ok(from), Ok(to)) => provider!(
                    queue.part().provider.api,
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
                ),
                (Err(status), _) | (_, Err(status)) => status,
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
        let (queue, mem) = usable(command_queue, self::image(image)?)?;
        let (origin, region) = (three(origin)?, three(region)?);
        mem.shape()?.expect_region(origin, region)?;
        mem.shape()?
            .expect_host_pitches(region, row_pitch, slice_pitch)?;
        if ptr.is_null() {
            return Err(CL_INVALID_VALUE);
        }
        mem.expect_host_access(false)?;
        enqueue(
            &queue,
            (num_events_in_wait_list, event_wait_list),
            &event,
            CL_COMMAND_READ_IMAGE,
            &[(&mem, Access::Read)],
            |count, list, event| match mem.raw_on(queue.part) {
                Ok(raw) => provider!(
                    queue.part().provider.api,
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
                ),
                Err(status) => status,
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
        let (queue, mem) = usable(command_queue, self::image(image)?)?;
        let (origin, region) = (three(origin)?, three(region)?);
        mem.shape()?.expect_region(origin, region)?;
        mem.shape()?
            .expect_host_pitches(region, input_row_pitch, input_slice_pitch)?;
        if ptr.is_null() {
            return Err(CL_INVALID_VALUE);
        }
        mem.expect_host_access(true)?;
        enqueue(
            &queue,
            (num_events_in_wait_list, event_wait_list),
            &event,
            CL_COMMAND_WRITE_IMAGE,
            &[(&mem, mem.shape()?.access_to(region))],
            |count, list, event| match mem.raw_on(queue.part) {
                Ok(raw) => provider!(
                    queue.part().provider.api,
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
                ),
                Err(status) => status,
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
        let (queue, mem) = usable(command_queue, self::image(image)?)?;
        let (origin, region) = (three(origin)?, three(region)?);
        if fill_color.is_null() {
            return Err(CL_INVALID_VALUE);
        }
        mem.shape()?.expect_region(origin, region)?;
        enqueue(
            &queue,
            (num_events_in_wait_list, event_wait_list),
            &event,
            CL_COMMAND_FILL_IMAGE,
            &[(&mem, mem.shape()?.access_to(region))],
            |count, list, event| match mem.raw_on(queue.part) {
                Ok(raw) => provider!(
                    queue.part().provider.api,
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
                ),
                Err(status) => status,
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
        let (queue, from) = usable(command_queue, image(src_image)?)?;
        let to = image(dst_image)?;
        to.expect_usable(&queue)?;
        let (src, dst, region) = (three(src_origin)?, three(dst_origin)?, three(region)?);
        let (here, there) = (from.shape()?, to.shape()?);
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
        enqueue(
            &queue,
            (num_events_in_wait_list, event_wait_list),
            &event,
            CL_COMMAND_COPY_IMAGE,
            &[
                (&from, Access::Read),
                (
                    &to,
                    if same_root(&from, &to) {
                        Access::Modify
                    } else {
                        there.access_to(region)
                    },
                ),
            ],
            |count, list, event| match (from.raw_on(queue.part), to.raw_on(queue.part)) {
                (Ok(from), Ok(to)) => provider!(
                    queue.part().provider.api,
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
                ),
                (Err(status), _) | (_, Err(status)) => status,
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
        let (queue, from) = usable(command_queue, image(src_image)?)?;
        let to = buffer(dst_buffer)?;
        to.expect_usable(&queue)?;
        let (origin, region) = (three(src_origin)?, three(region)?);
        let shape = from.shape()?;
        shape.expect_region(origin, region)?;
        let size = shape.packed_size(region).ok_or(CL_INVALID_VALUE)?;
        to.expect_range(dst_offset, size)?;
        enqueue(
            &queue,
            (num_events_in_wait_list, event_wait_list),
            &event,
            CL_COMMAND_COPY_IMAGE_TO_BUFFER,
            &[
                (&from, Access::Read),
                (
                    &to,
                    if same_root(&from, &to) {
                        Access::Modify
                    } else {
                        whole(&to, dst_offset, size)
                    },
                ),
            ],
            |count, list, event| match (from.raw_on(queue.part), to.raw_on(queue.part)) {
                (Ok(from), Ok(to)) => provider!(
                    queue.part().provider.api,
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
                ),
                (Err(status), _) | (_, Err(status)) => status,
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
        let (queue, from) = usable(command_queue, buffer(src_buffer)?)?;
        let to = image(dst_image)?;
        to.expect_usable(&queue)?;
        let (origin, region) = (three(dst_origin)?, three(region)?);
        let shape = to.shape()?;
        shape.expect_region(origin, region)?;
        let size = shape.packed_size(region).ok_or(CL_INVALID_VALUE)?;
        from.expect_range(src_offset, size)?;
        enqueue(
            &queue,
            (num_events_in_wait_list, event_wait_list),
            &event,
            CL_COMMAND_COPY_BUFFER_TO_IMAGE,
            &[
                (&from, Access::Read),
                (
                    &to,
                    if same_root(&from, &to) {
                        Access::Modify
                    } else {
                        shape.access_to(region)
                    },
                ),
            ],
            |count, list, event| match (from.raw_on(queue.part), to.raw_on(queue.part)) {
                (Ok(from), Ok(to)) => provider!(
                    queue.part().provider.api,
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
                ),
                (Err(status), _) | (_, Err(status)) => status,
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
        let (queue, mem) = usable(command_queue, self::buffer(buffer)?)?;
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
        let (queue, mem) = usable(command_queue, self::image(image)?)?;
        let (origin, region) = (three(origin)?, three(region)?);
        if !image_row_pitch.wanted() {
            return Err(CL_INVALID_VALUE);
        }
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
        let (queue, mem) = usable(command_queue, get::<Mem>(memobj)?)?;
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

    unsafe fn clEnqueueNDRangeKernel(
        &self,
        command_queue: cl_command_queue,
        kernel: cl_kernel,
        work_dim: cl_uint,
        global_work_offset: Option<&[usize]>,
        global_work_size: Option<&[usize]>,
        local_work_size: Option<&[usize]>,
        num_events_in_wait_list: cl_uint,
        event_wait_list: Option<&[cl_event]>,
        event: Out<cl_event>,
    ) -> Result<(), cl_int> {
        let queue = host_queue(command_queue)?;
        let kernel = get::<kernel::Kernel>(kernel)?;
        kernel::launch(
            &queue,
            &kernel,
            &kernel::Range::new(
                &queue,
                work_dim,
                global_work_offset,
                global_work_size,
                local_work_size,
            )?,
            CL_COMMAND_NDRANGE_KERNEL,
            (num_events_in_wait_list, event_wait_list),
            &event,
        )
    }

    unsafe fn clEnqueueTask(
        &self,
        command_queue: cl_command_queue,
        kernel: cl_kernel,
        num_events_in_wait_list: cl_uint,
        event_wait_list: Option<&[cl_event]>,
        event: Out<cl_event>,
    ) -> Result<(), cl_int> {
        let queue = host_queue(command_queue)?;
        let kernel = get::<kernel::Kernel>(kernel)?;
        kernel::launch(
            &queue,
            &kernel,
            &kernel::Range::new(&queue, 1, None, Some(&[1]), Some(&[1]))?,
            CL_COMMAND_TASK,
            (num_events_in_wait_list, event_wait_list),
            &event,
        )
    }

    unsafe fn clEnqueueNativeKernel(
        &self,
        command_queue: cl_command_queue,
        _user_func: Option<unsafe extern "C" fn(*mut c_void)>,
        _args: *mut c_void,
        _cb_args: usize,
        _num_mem_objects: cl_uint,
        _mem_list: Option<&[cl_mem]>,
        _args_mem_loc: *mut *const c_void,
        _num_events_in_wait_list: cl_uint,
        _event_wait_list: Option<&[cl_event]>,
        _event: Out<cl_event>,
    ) -> Result<(), cl_int> {
        // No device here has CL_EXEC_NATIVE_KERNEL, which is this error.
        host_queue(command_queue)?;
        Err(CL_INVALID_OPERATION)
    }

    unsafe fn clEnqueueMarkerWithWaitList(
        &self,
        command_queue: cl_command_queue,
        num_events_in_wait_list: cl_uint,
        event_wait_list: Option<&[cl_event]>,
        event: Out<cl_event>,
    ) -> Result<(), cl_int> {
        marker(
            &host_queue(command_queue)?,
            (num_events_in_wait_list, event_wait_list),
            &event,
            CL_COMMAND_MARKER,
        )
    }

    unsafe fn clEnqueueBarrierWithWaitList(
        &self,
        command_queue: cl_command_queue,
        num_events_in_wait_list: cl_uint,
        event_wait_list: Option<&[cl_event]>,
        event: Out<cl_event>,
    ) -> Result<(), cl_int> {
        marker(
            &host_queue(command_queue)?,
            (num_events_in_wait_list, event_wait_list),
            &event,
            CL_COMMAND_BARRIER,
        )
    }

    unsafe fn clEnqueueMarker(
        &self,
        command_queue: cl_command_queue,
        event: Out<cl_event>,
    ) -> Result<(), cl_int> {
        let queue = host_queue(command_queue)?;
        if !event.wanted() {
            return Err(CL_INVALID_VALUE);
        }
        marker(&queue, (0, None), &event, CL_COMMAND_MARKER)
    }

    unsafe fn clEnqueueWaitForEvents(
        &self,
        command_queue: cl_command_queue,
        num_events: cl_uint,
        event_list: Option<&[cl_event]>,
    ) -> Result<(), cl_int> {
        let queue = host_queue(command_queue)?;
        if num_events == 0 || event_list.is_none() {
            return Err(CL_INVALID_VALUE);
        }
        marker(
            &queue,
            (num_events, event_list),
            &Out::none(),
            CL_COMMAND_BARRIER,
        )
        .map_err(|status| match status {
            CL_INVALID_EVENT_WAIT_LIST => CL_INVALID_EVENT,
            other => other,
        })
    }

    unsafe fn clEnqueueBarrier(&self, command_queue: cl_command_queue) -> Result<(), cl_int> {
        marker(
            &host_queue(command_queue)?,
            (0, None),
            &Out::none(),
            CL_COMMAND_BARRIER,
        )
    }
}

/// Whether both are made of the same memory.
fn same_root(a: &Ref<Mem>, b: &Ref<Mem>) -> bool {
    a.root().unwrap_or(a).is(b.root().unwrap_or(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_box_without_pitches_has_no_gaps() {
        let at = BoxAt::new(&[1, 2, 3], &[4, 5, 6], 0, 0).expect("valid");
        assert_eq!((at.row_pitch, at.slice_pitch), (4, 20));
        assert_eq!(at.first, 3 * 20 + 2 * 4 + 1);
        assert_eq!(at.end, at.first + 5 * 20 + 4 * 4 + 4);
    }

    #[test]
    fn pitches_smaller_than_the_region_are_invalid() {
        assert!(BoxAt::new(&[0; 3], &[8, 1, 1], 4, 0).is_err());
        assert!(BoxAt::new(&[0; 3], &[8, 4, 1], 8, 16).is_err());
        assert!(BoxAt::new(&[0; 3], &[8, 1, 1], 8, 12).is_err());
        assert!(BoxAt::new(&[0; 3], &[0, 1, 1], 0, 0).is_err());
        assert!(BoxAt::new(&[usize::MAX; 3], &[8, 1, 1], 0, 0).is_err());
    }

    #[test]
    fn boxes_side_by_side_do_not_overlap() {
        let region = [4, 4, 1];
        let at = |x| BoxAt::new(&[x, 0, 0], &region, 16, 0).expect("valid");
        assert!(!boxes_overlap(&at(0), &at(4), &region));
        assert!(boxes_overlap(&at(0), &at(3), &region));
    }
}
