//! Copies to the device whose calls have returned as if the data were there: for whatever the application does next, on any stream, it is.
//!
//! On its way the data is in the order of the stream that it was copied on. Streams that keep no order with that one, as all of other
//! contexts, wait for it on the device; no thread does. Only other programs cannot be told to wait: who shares memory with some waits in
//! the call.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use smallvec::SmallVec;
use towline_backend::cuda as wire;
use towline_backend::cuda::*;

use crate::context::Context;
use crate::driver::{Acting, Driver, lock, read};

/// What may be on its way to a context's memory.
#[derive(Default)]
pub(crate) struct Written {
    /// Something is, as far as is known: to be asked without a lock.
    any: AtomicBool,
    /// Some streams keep no order: one that keeps none with the default stream, copies on threads' own, those of other contexts.
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
    /// The recordings that other streams stand behind, by context and stream.
    waited: HashMap<(u64, u64), u64>,
}

/// The owner of a stream that is to stand behind copies.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    Application,
    /// One of ours, which keeps order with none and is used once.
    Ours,
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
            last.waited.retain(|(_, waiting), _| *waiting != stream);
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

    /// Waits for a stream that ends and has nothing left but such copies: no stream could stand behind them any more.
    pub(crate) fn finish_written(&self, stream: wire::StreamHandle) -> Result<(), CUresult> {
        let last = lock(&self.context.written.on)
            .get(&stream.0)
            .map(|last| last.posted);
        let is_last = |last: &u64| self.posted(stream) == *last;
        match last.filter(is_last) {
            Some(_) => self.synchronise(stream),
            None => Ok(()),
        }
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
        if !written.apart.load(Ordering::Acquire) {
            return Ok(());
        }
        if self.several_live.load(Ordering::Acquire) {
            return self.behind_all_written(acting, stream, Whose::Application);
        }
        match written.any.load(Ordering::Acquire) {
            true => self.behind_written_in(acting, stream, &acting.context, Whose::Application),
            false => Ok(()),
        }
    }

    /// As [`Self::behind_written`], for a stream of ours that keeps order with none.
    pub(crate) fn behind_written_once(
        &self,
        acting: &Acting<'_>,
        stream: wire::StreamHandle,
    ) -> Result<(), CUresult> {
        self.behind_all_written(acting, stream, Whose::Ours)
    }

    /// The contexts of a server that copies may be under way in.
    fn written_contexts(&self, session: u8) -> SmallVec<[Arc<Context>; 8]> {
        let contexts = read(&self.contexts);
        let of_server = contexts.values().filter(|one| one.session == session);
        let written = of_server.filter(|one| one.written.any.load(Ordering::Acquire));
        written.cloned().collect()
    }

    fn behind_all_written(
        &self,
        acting: &Acting<'_>,
        stream: wire::StreamHandle,
        whose: Whose,
    ) -> Result<(), CUresult> {
        self.written_contexts(acting.context.session)
            .iter()
            .try_for_each(|context| self.behind_written_in(acting, stream, context, whose))
    }

    fn behind_written_in(
        &self,
        acting: &Acting<'_>,
        stream: wire::StreamHandle,
        context: &Arc<Context>,
        whose: Whose,
    ) -> Result<(), CUresult> {
        let own = stream.0;
        // A default stream keeps order with others of its context.
        let may_keep_order = whose == Whose::Application && context.number == acting.context.number;
        let keeps_order = |stream: u64| {
            let streams = read(&self.streams);
            streams.get(&stream).is_none_or(|known| known.is_blocking())
        };
        let there = self.acting_in(Arc::clone(context))?;
        let all = &mut *lock(&context.written.on);
        let mut pending = false;
        for (&on, last) in all.iter_mut() {
            if context.has_done(on, last.posted) {
                continue;
            }
            pending = true;
            let through_default = is_default(on) || is_default(own);
            if may_keep_order
                && (on == own || through_default && keeps_order(on) && keeps_order(own))
            {
                continue;
            }
            if !last.recorded {
                // What came behind it since might be waiting for what this stream is about to do.
                if there.posted(wire::StreamHandle(on)) != last.posted {
                    continue;
                }
                there.record_behind(on, last)?;
            }
            if whose == Whose::Application {
                let waiting = (acting.context.number, own);
                if last.waited.insert(waiting, last.count) == Some(last.count) {
                    continue;
                }
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

    /// A context begins to live. Its streams keep no order with those of others: from the second on, copies are recorded in all of them.
    pub(crate) fn note_live(&self) {
        let live: SmallVec<[Arc<Context>; 8]> = {
            let contexts = read(&self.contexts);
            let live = contexts.values().filter(|context| context.is_live());
            live.cloned().collect()
        };
        if live.len() < 2 {
            return;
        }
        self.several_live.store(true, Ordering::Release);
        for context in live {
            context.written.note_apart();
            let Ok(acting) = self.acting_in(Arc::clone(&context)) else {
                continue;
            };
            for (on, last) in &mut *lock(&context.written.on) {
                if !last.recorded && !context.has_done(*on, last.posted) {
                    // A session that is lost has no memory that could be used.
                    let _ = acting.record_behind(*on, last);
                }
            }
        }
    }

    /// Waits for such copies in the contexts of a server of whose memory other programs are about to be told.
    pub(crate) fn settle_all_written(&self, session: u8) -> Result<(), CUresult> {
        self.written_contexts(session)
            .into_iter()
            .try_for_each(|context| self.settle_written(&self.acting_in(context)?))
    }

    /// Waits for such copies in the contexts of a server that is about to take memory away: the driver waits for nothing then, and takes
    /// the copies for done.
    pub(crate) fn await_all_written(&self, session: u8) -> Result<(), CUresult> {
        self.written_contexts(session)
            .into_iter()
            .try_for_each(|context| self.await_written(&self.acting_in(context)?))
    }

    fn await_written(&self, acting: &Acting<'_>) -> Result<(), CUresult> {
        let context = &acting.context;
        let under_way: Vec<(u64, u64, Option<u64>)> = {
            let all = lock(&context.written.on);
            let pending = all
                .iter()
                .filter(|(on, last)| !context.has_done(**on, last.posted));
            pending
                .map(|(on, last)| (*on, last.posted, last.recorded.then_some(last.event)))
                .collect()
        };
        for (on, posted, event) in under_way {
            let Some(event) = event else {
                acting.synchronise(wire::StreamHandle(on))?;
                continue;
            };
            // Commands behind the copy may take as long as they like.
            let event = wire::EventHandle(event);
            acting.call_for("cuMemUnmap", &wire::SynchronizeEvent { event })?;
            acting.note_done(on, posted);
        }
        Ok(())
    }

    /// From now on memory may be taken away that copies are under way to: each of them is recorded.
    pub(crate) fn note_mapped(&self, session: u8) {
        let contexts = read(&self.contexts);
        let of_server = contexts.values().filter(|one| one.session == session);
        of_server.for_each(|context| context.written.note_apart());
    }

    fn settle_written(&self, acting: &Acting<'_>) -> Result<(), CUresult> {
        let context = &acting.context;
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
