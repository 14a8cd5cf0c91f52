//! Commands of an in-order queue that share an event, which is made when somebody has to wait for one of them.
//!
//! In a context over several providers whoever moves contents waits for the commands that use them. Mostly nobody does: programs
//! order their commands by queues, and move little. An event for each command would cost the provider an event, the server a message
//! at its end, and this process its release.
//!
//! A batch's event stands for all commands of its queue up to where it was made, so it must not come behind a command that waits for
//! something from outside the queue: a program may have what it waits for wait for the batch. [`end`] is called before
//! such a command. It should not come late either, and so an event that the application wants ends the batch too.

use std::sync::{Arc, MutexGuard, OnceLock, PoisonError};

use towline_backend::opencl::*;

use crate::arena::Ref;
use crate::event::Event;
use crate::queue::Queue;
use crate::raw::{check, provider};

/// Commands that share an event.
#[derive(Default)]
pub(crate) struct Batch(OnceLock<Ref<Event>>);

impl Batch {
    /// Its event, if it has one by now.
    pub(crate) fn event(&self) -> Option<&Ref<Event>> {
        self.0.get()
    }
}

/// The batch of a command that has been enqueued just now, with no event of its own.
pub(crate) fn of_latest(queue: &Ref<Queue>) -> Arc<Batch> {
    Arc::clone(&present(queue))
}

/// The event of a batch; one that is still open ends with a marker.
pub(crate) fn event_of(queue: &Ref<Queue>, batch: &Batch) -> Result<Ref<Event>, cl_int> {
    let mut present = present(queue);
    if let Some(event) = batch.event() {
        return Ok(event.clone());
    }
    // Every batch but the present one has its event.
    let event = mark(queue)?;
    let _ = batch.0.set(event.clone());
    *present = Arc::default();
    drop(present);
    provider!(queue.part().provider.api, clFlush(queue.raw.0));
    Ok(event)
}

/// Ends the present batch, if anybody knows of it, before a command that waits for something.
pub(crate) fn end(queue: &Ref<Queue>) -> Result<(), cl_int> {
    let mut present = present(queue);
    if Arc::strong_count(&present) == 1 {
        return Ok(());
    }
    let _ = present.0.set(mark(queue)?);
    *present = Arc::default();
    Ok(())
}

/// Ends the present batch with the event of a command behind it, which waits for nothing but its queue.
pub(crate) fn end_with(queue: &Ref<Queue>, event: &Ref<Event>) {
    let mut present = present(queue);
    if Arc::strong_count(&present) > 1 {
        let _ = present.0.set(event.clone());
        *present = Arc::default();
    }
}

fn present(queue: &Queue) -> MutexGuard<'_, Arc<Batch>> {
    queue.batch.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An event behind all commands of the queue.
fn mark(queue: &Ref<Queue>) -> Result<Ref<Event>, cl_int> {
    let (api, none) = (&queue.part().provider.api, std::ptr::null());
    let mut raw = std::ptr::null_mut();
    check(provider!(
        api,
        clEnqueueMarkerWithWaitList(queue.raw.0, 0, none, &raw mut raw)
    ))?;
    Event::of_command(queue, raw, CL_COMMAND_MARKER).inspect_err(|_| {
        provider!(api, clReleaseEvent(raw));
    })
}
