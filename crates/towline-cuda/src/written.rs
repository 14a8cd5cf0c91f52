//! Copies to the device whose calls have returned as if the data were there: for whatever the application does next, on any stream, it is.
//!
//! On its way the data is in the order of the stream that it was copied on. Streams that keep no order with that one wait for it on the
//! device; no thread does. Only other programs cannot be told to wait: who shares memory with some waits in the call.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use towline_backend::cuda as wire;
use towline_backend::cuda::*;

use crate::driver::{Acting, Driver, lock, read};

/// What may be on its way to a context's memory.
#[derive(Default)]
pub(crate) struct Written {
    /// Something is, as far as is known: to be asked without a lock.
    any: AtomicBool,
    /// The context has streams that keep no order: one that keeps none with the default stream, or copies on threads' own.
    apart: AtomicBool,
    /// By the stream that it was copied on.
    on: Mutex<HashMap<u64, Last>>,
}

/// The last copy on a stream.
struct Last {
    /// Its place in the stream.
    posted: u64,
    event: u64,
    /// The event was recorded behind this copy, and which recording that was.
    recorded: bool,
    count: u64,
    /// The recordings that other streams stand behind.
    waited: HashMap<u64, u64>,
}

impl Written {
    /// A stream was made that keeps no order with the default stream.
    pub(crate) fn note_apart(&self) {
        self.apart.store(true, Ordering::Release);
    }

    /// Forgets a stream; the event that was recorded on it.
    pub(crate) fn forget(&self, stream: u64) -> Option<u64> {
        let mut all = lock(&self.on);
        for last in all.values_mut() {
            last.waited.remove(&stream);
        }
        let event = all.remove(&stream)?.event;
        (event != 0).then_some(event)
    }
}

/// The default stream, by either of its names: it stands behind all streams of its context that keep order with it, and before them.
fn is_default(stream: u64) -> bool {
    stream <= 1
}

impl Acting<'_> {
    /// Has the event of a stream's last copy tell when the stream gets here.
    fn record_behind(&self, stream: u64, last: &mut Last) -> Result<(), CUresult> {
        if last.event == 0 {
            last.event = self.mint(wire::EventHandle::TAG);
            self.post(&wire::EventCreate {
                phEvent: wire::EventHandle(last.event),
                Flags: CU_EVENT_DISABLE_TIMING,
            })?;
        }
        let mark = self.session.mark();
        self.session.forget(mark);
        self.post(&wire::EventRecord {
            event: wire::EventHandle(last.event),
            stream: wire::StreamHandle(stream),
            flags: 0,
            record: mark,
        })?;
        last.recorded = true;
        last.count += 1;
        Ok(())
    }
}

impl Driver {
    /// Notes a copy to the device, posted on a stream just now, as work of that and as one whose call returns.
    pub(crate) fn note_written(
        &self,
        acting: &Acting<'_>,
        stream: wire::StreamHandle,
    ) -> Result<(), CUresult> {
        if self.sharing.has_memory() {
            acting.touch(stream);
            return acting.synchronise(stream);
        }
        let written = &acting.context.written;
        let posted = acting.touch_written(stream);
        let mut all = lock(&written.on);
        let last = all.entry(stream.0).or_insert_with(|| Last {
            posted: 0,
            event: 0,
            recorded: false,
            count: 0,
            waited: HashMap::new(),
        });
        last.posted = posted;
        last.recorded = false;
        written.any.store(true, Ordering::Release);
        if !is_default(stream.0) {
            written.note_apart();
        }
        // Most programs have only streams that keep order with the default stream: they need no event.
        if written.apart.load(Ordering::Acquire) {
            acting.record_behind(stream.0, last)?;
        }
        Ok(())
    }

    /// Has a stream that is given work stand behind such copies.
    #[inline]
    pub(crate) fn behind_written(
        &self,
        acting: &Acting<'_>,
        stream: wire::StreamHandle,
    ) -> Result<(), CUresult> {
        let written = &acting.context.written;
        if !written.any.load(Ordering::Acquire) || !written.apart.load(Ordering::Acquire) {
            return Ok(());
        }
        self.stand_behind_written(acting, stream)
    }

    fn stand_behind_written(
        &self,
        acting: &Acting<'_>,
        stream: wire::StreamHandle,
    ) -> Result<(), CUresult> {
        let (context, own) = (&acting.context, stream.0);
        let keeps_order = |stream: u64| {
            let streams = read(&self.streams);
            streams.get(&stream).is_none_or(|known| known.is_blocking())
        };
        let all = &mut *lock(&context.written.on);
        let mut pending = false;
        for (&on, last) in all.iter_mut() {
            if context.has_done(on, last.posted) {
                continue;
            }
            pending = true;
            let through_default = is_default(on) || is_default(own);
            if on == own || through_default && keeps_order(on) && keeps_order(own) {
                continue;
            }
            if !last.recorded {
                // What came behind it since might be waiting for what this stream is about to do.
                if acting.posted(wire::StreamHandle(on)) != last.posted {
                    continue;
                }
                acting.record_behind(on, last)?;
            }
            if last.waited.insert(own, last.count) == Some(last.count) {
                continue;
            }
            acting.post(&wire::StreamWaitEvent {
                hStream: stream,
                hEvent: wire::EventHandle(last.event),
                Flags: 0,
            })?;
        }
        if !pending {
            context.written.any.store(false, Ordering::Release);
        }
        Ok(())
    }

    /// Waits for such copies in a context whose memory other programs are about to be told of.
    pub(crate) fn settle_written(&self, acting: &Acting<'_>) -> Result<(), CUresult> {
        let context = &acting.context;
        if !context.written.any.load(Ordering::Acquire) {
            return Ok(());
        }
        let under_way: Vec<u64> = {
            let all = lock(&context.written.on);
            let pending = all.iter().filter(|(on, last)| {
                let stream = wire::StreamHandle(**on);
                !context.has_done(**on, last.posted) && acting.posted(stream) == last.posted
            });
            pending.map(|(on, _)| *on).collect()
        };
        under_way
            .into_iter()
            .try_for_each(|on| acting.synchronise(wire::StreamHandle(on)))
    }
}
