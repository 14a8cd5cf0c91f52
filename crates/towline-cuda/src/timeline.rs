//! Kernels and graphs on the timeline of `towline run --trace`: when each ran, by an event before it and one behind.
//!
//! An event tells no time of day, only how far it is from another. So each context has an event whose recording was waited for, which has
//! a place on this host's clock; all others are placed by their distance from it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use towline_backend::cuda as wire;
use towline_backend::cuda::{CU_STREAM_NON_BLOCKING, CUresult, Message as _};
use towline_client::cuda::{Actor, Answer, Session};
use towline_client::timeline;

use crate::driver::{Acting, lock};

/// Kernels whose times have not been asked for; what is launched beyond that is not noted.
const MOST_OPEN: usize = 1 << 14;
/// Kernels that are asked about at once.
const AT_ONCE: usize = 256;
/// Longest time for the end of a program to note the last.
const PATIENCE: Duration = Duration::from_secs(2);
/// Distances are floats in ms: up to this one they are exact to half a microsecond.
const FAR_MS: f32 = 4000.0;
/// Recordings by which a context's clock is set: the first that takes little more than the fastest before counts.
const RECORDINGS: usize = 8;

/// A place on this host's clock, in ns.
#[derive(Clone, Copy)]
struct Anchor {
    event: wire::EventHandle,
    at: f64,
}

/// Something that is being timed.
pub(crate) struct Begun {
    collector: &'static Collector,
    event: wire::EventHandle,
}

/// Something that was timed.
struct Timed {
    session: Arc<Session>,
    actor: Actor,
    /// First and last event.
    events: [wire::EventHandle; 2],
    name: String,
    track: String,
}

struct Collector {
    timed: Sender<Timed>,
    open: AtomicUsize,
    /// By context.
    anchors: Mutex<HashMap<u64, Anchor>>,
    /// Events that are free again, by context.
    spare: Mutex<HashMap<u64, Vec<wire::EventHandle>>>,
}

static COLLECTOR: OnceLock<Option<Collector>> = OnceLock::new();

/// Begins, if the environment asks for it.
pub(crate) fn start() {
    if timeline::start() {
        // SAFETY: the function takes nothing and the library stays mapped until the process ends.
        if unsafe { libc::atexit(finish) } != 0 {
            log::warn!(
                "the trace lacks its end: the C library takes no more functions for the exit"
            );
        }
    }
}

extern "C" fn finish() {
    // Kernels that are open in the parent of a fork do not end here.
    if crate::export::has_forked() {
        return;
    }
    let deadline = Instant::now() + PATIENCE;
    if let Some(Some(collector)) = COLLECTOR.get() {
        while collector.open.load(Ordering::Acquire) > 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    timeline::flush();
}

/// Begins to time what is posted to a stream next. Whatever fails costs no more than that it is not noted.
#[inline]
pub(crate) fn begin(acting: &Acting<'_>, stream: wire::StreamHandle) -> Option<Begun> {
    match timeline::active() {
        true => Collector::get()?.begin(acting, stream),
        false => None,
    }
}

/// Ends it behind what was posted last.
#[inline]
pub(crate) fn end(
    begun: Option<Begun>,
    acting: &Acting<'_>,
    stream: wire::StreamHandle,
    name: impl FnOnce() -> String,
) {
    if let Some(Begun { collector, event }) = begun {
        collector.end(event, acting, stream, name());
    }
}

impl Collector {
    fn get() -> Option<&'static Self> {
        let made = COLLECTOR.get_or_init(|| {
            let (timed, receiver) = channel();
            let thread = towline_client::threads::named("towline-timeline");
            let started = thread.spawn(move || collect(&receiver));
            started.ok().map(|_| Self {
                timed,
                open: AtomicUsize::new(0),
                anchors: Mutex::default(),
                spare: Mutex::default(),
            })
        });
        made.as_ref()
    }

    fn begin(&'static self, acting: &Acting<'_>, stream: wire::StreamHandle) -> Option<Begun> {
        if self.open.load(Ordering::Acquire) >= MOST_OPEN {
            return None;
        }
        self.set_clock(acting)?;
        let event = self.event(acting).ok()?;
        let session = acting.session;
        let mark = session.mark_behind(acting.actor, stream.0).ok()?;
        let posted = acting.post(&recording(event, stream, mark));
        session.forget(mark);
        posted.ok().map(|()| Begun {
            collector: self,
            event,
        })
    }

    fn end(
        &'static self,
        first: wire::EventHandle,
        acting: &Acting<'_>,
        stream: wire::StreamHandle,
        name: String,
    ) {
        let Ok(last) = self.event(acting) else {
            return;
        };
        let number = stream.0 & u64::from(u32::MAX);
        let track = match number {
            0..=2 => format!("{}: default stream", acting.session.server()),
            _ => format!("{}: stream {number:x}", acting.session.server()),
        };
        let timed = Timed {
            session: Arc::clone(acting.session),
            actor: acting.actor,
            events: [first, last],
            name,
            track,
        };
        self.open.fetch_add(1, Ordering::AcqRel);
        let due = move |status| {
            let is_sent = status == 0 && self.timed.send(timed).is_ok();
            if !is_sent {
                self.open.fetch_sub(1, Ordering::AcqRel);
            }
        };
        let session = acting.session;
        let Ok(mark) = session.mark_behind_with(acting.actor, stream.0, due) else {
            return;
        };
        if acting.post(&recording(last, stream, mark)).is_err() {
            session.forget(mark);
        }
    }

    fn event(&self, acting: &Acting<'_>) -> Result<wire::EventHandle, CUresult> {
        let context = acting.context.number;
        let spare = lock(&self.spare).get_mut(&context).and_then(Vec::pop);
        if let Some(event) = spare {
            return Ok(event);
        }
        let event = wire::EventHandle(acting.mint(wire::EventHandle::TAG));
        acting.post(&wire::EventCreate {
            phEvent: event,
            Flags: 0,
        })?;
        Ok(event)
    }

    /// Gives a context its anchor, the first time.
    fn set_clock(&self, acting: &Acting<'_>) -> Option<()> {
        let context = acting.context.number;
        if lock(&self.anchors).contains_key(&context) {
            return Some(());
        }
        let stream = wire::StreamHandle(acting.mint(wire::StreamHandle::TAG));
        let made = wire::StreamCreate {
            phStream: stream,
            Flags: CU_STREAM_NON_BLOCKING,
        };
        acting.post(&made).ok()?;
        let event = self.event(acting).ok()?;
        let mut least = u64::MAX;
        let mut at = 0.0;
        for turn in 1..=RECORDINGS {
            let mark = acting.session.mark_behind(acting.actor, stream.0).ok()?;
            let began = timeline::now();
            acting.post(&recording(event, stream, mark)).ok()?;
            let waited = acting.call_for("timeline", &wire::SynchronizeEvent { event });
            let took = timeline::now() - began;
            acting.session.forget(mark);
            waited.ok()?;
            at = (began + took / 2) as f64;
            if turn > 2 && took <= least.saturating_add(least / 4) {
                break;
            }
            least = least.min(took);
        }
        let _ = acting.post(&wire::StreamDestroyV2 { hStream: stream });
        lock(&self.anchors).insert(context, Anchor { event, at });
        Some(())
    }

    /// Asks when what ran in one context did so, and notes it. What cannot be told any more is left out.
    fn note(&self, timed: &[Timed]) {
        let Some(Timed { session, actor, .. }) = timed.first() else {
            return;
        };
        let context = actor.context;
        let Some(mut anchor) = lock(&self.anchors).get(&context).copied() else {
            return;
        };
        let distance = |from, to| wire::EventElapsedTimeV2 {
            hStart: from,
            hEnd: to,
        };
        let questions: Vec<_> = timed
            .iter()
            .flat_map(|Timed { events, .. }| {
                let [first, last] = *events;
                [distance(anchor.event, first), distance(first, last)]
            })
            .collect();
        let told = |answer: &Result<Answer, CUresult>| {
            let answer = answer.as_ref().ok().filter(|answer| answer.status == 0)?;
            let reply = wire::EventElapsedTimeV2Reply::decode(&answer.body).ok()?;
            reply.pMilliseconds
        };
        let answers = session.measure(*actor, &questions);
        let origin = anchor;
        let mut free = Vec::new();
        for (timed, answers) in timed.iter().zip(answers.as_chunks::<2>().0) {
            let [first, last] = timed.events;
            free.extend([first, last]);
            let [Some(before), Some(length)] = [told(&answers[0]), told(&answers[1])] else {
                continue;
            };
            let ns = |ms: f32| f64::from(ms) * 1e6;
            let at = origin.at + ns(before);
            let end = at + ns(length);
            timeline::on_device(&timed.track, &timed.name, at as u64, end as u64);
            if before > FAR_MS {
                anchor = Anchor { event: first, at };
            }
        }
        if anchor.event != origin.event {
            free.retain(|event| *event != anchor.event);
            free.push(origin.event);
            lock(&self.anchors).insert(context, anchor);
        }
        lock(&self.spare).entry(context).or_default().extend(free);
    }
}

fn recording(
    event: wire::EventHandle,
    stream: wire::StreamHandle,
    record: u64,
) -> wire::EventRecord {
    wire::EventRecord {
        event,
        stream,
        flags: 0,
        record,
    }
}

fn collect(timed: &Receiver<Timed>) {
    timeline::hide_thread();
    while let Ok(first) = timed.recv() {
        let Some(Some(collector)) = COLLECTOR.get() else {
            return;
        };
        let mut all = vec![first];
        all.extend(timed.try_iter().take(AT_ONCE - 1));
        let count = all.len();
        while let Some(Timed { actor, .. }) = all.first() {
            let context = actor.context;
            let (now, later): (Vec<_>, Vec<_>) = all
                .into_iter()
                .partition(|timed| timed.actor.context == context);
            collector.note(&now);
            all = later;
        }
        collector.open.fetch_sub(count, Ordering::AcqRel);
    }
}
