//! Commands: what the host enqueues.
//!
//! [`enqueue`] is the one way from a command of the application to a command of a provider: it resolves the wait list, has the
//! contents of memory objects brought where they are needed, and makes the event.

use std::ffi::c_void;
use std::sync::Arc;

use smallvec::SmallVec;
use towline_backend::opencl::*;

use crate::arena::{Ref, get, lend};
use crate::batch;
use crate::coherence::{self, Access, Use};
use crate::event::{self, Event, RawEvent};
use crate::kernel;
use crate::memory::Mem;
use crate::platform::{EnqueueCalls, Platform};
use crate::queue::{Queue, host_queue};
use crate::raw::{Out, check, provider};
use crate::timeline;

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

/// Checks that a wait list has as many events as it says; whether they are events, [`enqueue`] sees.
#[inline]
pub(crate) fn check_waits((count, list): WaitList<'_>) -> Result<(), cl_int> {
    if list.is_some() == (count > 0) {
        Ok(())
    } else {
        Err(CL_INVALID_EVENT_WAIT_LIST)
    }
}

/// Checks a whole wait list ahead of what [`enqueue`] would refuse later.
pub(crate) fn check_events(queue: &Queue, (count, list): WaitList<'_>) -> Result<(), cl_int> {
    check_waits((count, list))?;
    for &event in list.unwrap_or(&[]) {
        let event = get::<Event>(event).map_err(|_| CL_INVALID_EVENT_WAIT_LIST)?;
        if !event.context.is(&queue.context) {
            return Err(CL_INVALID_CONTEXT);
        }
    }
    Ok(())
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

/// The point until which a transfer holds up the host.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meets {
    /// None: it does not block.
    Later,
    /// The data of a read has come.
    Reads,
    /// The write is complete.
    Writes,
}

impl Meets {
    pub(crate) fn reads(blocking: cl_bool) -> Self {
        if blocking == CL_FALSE {
            Self::Later
        } else {
            Self::Reads
        }
    }

    pub(crate) fn writes(blocking: cl_bool) -> Self {
        if blocking == CL_FALSE {
            Self::Later
        } else {
            Self::Writes
        }
    }
}

/// [`enqueue`] of a command that moves contents. A session's blocking write returns once its memory may be changed, and its blocking read
/// once the data has come: where the application can tell that from a command that is complete, this waits for that.
pub(crate) fn enqueue_transfer(
    queue: &Ref<Queue>,
    meets: Meets,
    waits: WaitList<'_>,
    event: &Out<cl_event>,
    command: cl_command_type,
    uses: Uses<'_>,
    run: impl FnOnce(cl_uint, *const cl_event, *mut cl_event) -> cl_int,
) -> Result<(), cl_int> {
    let part = queue.part();
    if meets == Meets::Later || part.provider.session.is_none() {
        return enqueue(queue, waits, event, command, uses, run);
    }
    let writes = meets == Meets::Writes;
    let failed = |status| {
        let list = waits.1.unwrap_or_default().iter();
        let mut events = list.filter_map(|&event| get::<Event>(event).ok());
        match events.any(|event| event.status() < 0) {
            true => CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST,
            false => status,
        }
    };
    // Commands enqueued before this one may wait for a user event, which the application then sets knowing that the data was written.
    let shows =
        || waits.0 > 0 || !queue.in_order() || queue.context.awaits_user() || queue.shows_open();
    let is_seen = event.wanted() || (writes && shows());
    if !is_seen {
        enqueue(queue, waits, event, command, uses, run).map_err(failed)?;
        if writes {
            part.wrote(queue);
        }
        return Ok(());
    }
    let mut own = std::ptr::null_mut();
    // SAFETY: the place is a local that outlives the call.
    let place = unsafe { Out::new(&raw mut own) };
    let resolved = Waits::resolve(queue, waits, false)?;
    let made = submit(queue, resolved, &place, command, uses, run).map_err(failed)?;
    let made = made.ok_or(CL_OUT_OF_HOST_MEMORY)?;
    if let Some(raw) = made.at_home(queue.part) {
        provider!(part.provider.api, clWaitForEvents(1, &raw const raw.0));
    }
    let status = made.status();
    if status < CL_COMPLETE || !event.wanted() {
        made.release()?;
    }
    if status < CL_COMPLETE {
        return Err(failed(status));
    }
    event.set(own);
    Ok(())
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
    // A marker without a list is behind everything before it, and one with a list behind that alone.
    if !matches!(command, CL_COMMAND_MARKER | CL_COMMAND_BARRIER) {
        queue.part().add_fences(queue, &mut waits);
    }
    let batches = spans && queue.in_order();
    let waits_outside = waits.count() > 0;
    if batches && waits_outside {
        batch::end(queue)?;
    }
    let wanted = event.wanted() || timeline::notes(command);
    let batched = batches && !waits_outside && !wanted;
    let wants_event = wanted || (spans && !batched && !uses.is_empty());
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
        let handle = made.clone().publish();
        queue.note_given(handle);
        event.set(handle);
    }
    Ok(made)
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
    // A marker without a list would wait for every command of this out-of-order queue, one with a list waits for barriers and that.
    let api = part.api();
    submit(queue, waits, event, command, &[], |count, list, event| {
        if count > 0 {
            let raw = queue.raw.0;
            return provider!(api, clEnqueueMarkerWithWaitList(raw, count, list, event));
        }
        let complete = match crate::raw::create!(api, clCreateUserEvent(part.raw.0)) {
            Ok(complete) => complete,
            Err(status) => return status,
        };
        provider!(api, clSetUserEventStatus(complete, CL_COMPLETE));
        let status = provider!(
            api,
            clEnqueueMarkerWithWaitList(queue.raw.0, 1, &raw const complete, event)
        );
        provider!(api, clReleaseEvent(complete));
        status
    })
}

impl EnqueueCalls for Platform {
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
        // SAFETY: the application's contract: no object ends while a call uses it. So for the next.
        let queue = unsafe { lend::<Queue>(command_queue) }?;
        queue.expect_host()?;
        // SAFETY: as above.
        let kernel = unsafe { lend::<kernel::Kernel>(kernel) }?;
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
