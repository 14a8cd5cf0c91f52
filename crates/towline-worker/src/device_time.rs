//! How long a session keeps its devices busy.
//!
//! A thread looks at a bounded rate while there is work, and none does at rest. A device that a look finds at work counts as busy since the
//! look before. When looks are made does not depend on the work, so that work which is shorter than the time between two of them counts
//! in full on average. Commands do nothing for it, besides one that comes at rest.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::link::Link;

/// Time between two looks.
const PERIOD: Duration = Duration::from_millis(10);
/// Longest time between two looks, where they are slow.
const LONGEST_PERIOD: Duration = Duration::from_millis(50);
/// Looks take at most this part of a processor's time, if they may be so rare.
const SHARE: u32 = 100;

/// How devices are looked at, and since when the time is not counted.
struct Looks {
    /// Counts the devices at work.
    look: Box<dyn FnMut() -> u64 + Send>,
    /// `None` while no thread looks.
    since: Option<Instant>,
}

impl Looks {
    /// Devices at work, whose time since the last look counts.
    fn count(&mut self, counted: &AtomicU64) -> u64 {
        let now = Instant::now();
        let busy = (self.look)();
        if let Some(since) = self.since.replace(now) {
            let time = now.saturating_duration_since(since).as_micros() as u64;
            counted.fetch_add(busy * time, Ordering::Relaxed);
        }
        busy
    }
}

/// See the module's text.
pub(crate) struct DeviceTime {
    begun: Instant,
    /// A thread looks.
    measures: AtomicBool,
    /// `None` before the session has begun, and once it is over.
    looks: Mutex<Option<Looks>>,
}

impl DeviceTime {
    pub(crate) fn new() -> Self {
        Self {
            begun: Instant::now(),
            measures: AtomicBool::new(false),
            looks: Mutex::default(),
        }
    }

    fn looks(&self) -> MutexGuard<'_, Option<Looks>> {
        self.looks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has devices looked at so, which may go on until [`Self::end`].
    pub(crate) fn look_by(&self, look: impl FnMut() -> u64 + Send + 'static) {
        let (look, since) = (Box::new(look), None);
        *self.looks() = Some(Looks { look, since });
    }

    /// Looks a last time where a thread looks. No look is under way any more, and none comes.
    pub(crate) fn end(&self, counted: &AtomicU64) {
        let mut looks = self.looks();
        if let Some(looks) = looks.as_mut().filter(|looks| looks.since.is_some()) {
            looks.count(counted);
        }
        drop(looks.take());
    }

    /// The time of the look that would have been the last one before `now`.
    fn look_before(&self, now: Instant) -> Instant {
        let age = now.saturating_duration_since(self.begun).as_nanos();
        let since = age % PERIOD.as_nanos();
        now.checked_sub(Duration::from_nanos(since as u64))
            .unwrap_or(now)
    }

    /// Looks until nothing is at work any more, or the session is over. The time counts since `last`.
    fn measure(&self, mut last: Instant, counted: &AtomicU64, received: &AtomicU64) {
        if let Some(looks) = self.looks().as_mut() {
            looks.since = Some(last);
        }
        let (mut pause, mut requests) = (PERIOD, None);
        loop {
            std::thread::sleep((last + pause).saturating_duration_since(Instant::now()));
            last = Instant::now();
            let mut locked = self.looks();
            let Some(looks) = locked.as_mut() else { return };
            let busy = looks.count(counted);
            pause = (last.elapsed() * SHARE).clamp(PERIOD, LONGEST_PERIOD);
            let known = requests.replace(received.load(Ordering::Relaxed));
            if busy > 0 || known != requests {
                continue;
            }
            self.measures.store(false, Ordering::SeqCst);
            // A command may have come that has still seen a thread at work.
            let rests = (looks.look)() == 0;
            if rests || self.measures.swap(true, Ordering::SeqCst) {
                looks.since = None;
                return;
            }
        }
    }
}

impl Link {
    /// A device has been given work.
    #[inline]
    pub(crate) fn work_comes(self: &Arc<Self>) {
        if !self.device_time.measures.load(Ordering::Relaxed) {
            self.measure_device_time();
        }
    }

    #[cold]
    fn measure_device_time(self: &Arc<Self>) {
        if !self.device_time.measures.swap(true, Ordering::SeqCst) {
            let link = Arc::clone(self);
            let since = self.device_time.look_before(Instant::now());
            self.waiters.run(move || {
                let counted = &link.counters.device_time_us;
                link.device_time.measure(since, counted, &link.received);
            });
        }
    }
}
