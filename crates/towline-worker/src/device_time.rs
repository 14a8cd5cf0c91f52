//! How long a session keeps its devices busy.
//!
//! A thread looks at a bounded rate while there is work, and none does at rest. A device that a look finds at work counts as busy since the
//! look before. When looks are made does not depend on the work, so that work which is shorter than the time between two of them counts
//! in full on average. Commands do nothing for it, besides one that comes at rest.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::link::Link;

/// Time between two looks.
const PERIOD: Duration = Duration::from_millis(10);
/// Looks take at most this part of a processor's time.
const SHARE: u32 = 100;

/// Counts the devices at work.
type Look = Box<dyn FnMut() -> u64 + Send>;

/// See the module's text.
pub(crate) struct DeviceTime {
    begun: Instant,
    /// A thread looks.
    measures: AtomicBool,
    /// `None` before the session has begun, and once it is over.
    look: Mutex<Option<Look>>,
}

impl DeviceTime {
    pub(crate) fn new() -> Self {
        Self {
            begun: Instant::now(),
            measures: AtomicBool::new(false),
            look: Mutex::default(),
        }
    }

    /// Has devices looked at so, which may go on until [`Self::end`].
    pub(crate) fn look_by(&self, look: impl FnMut() -> u64 + Send + 'static) {
        *self.look.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(look));
    }

    /// No look is under way any more, and none comes.
    pub(crate) fn end(&self) {
        let look = self.look.lock();
        drop(look.unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Devices at work; `None` when the session is over.
    fn count(&self) -> Option<u64> {
        let mut look = self.look.lock().unwrap_or_else(PoisonError::into_inner);
        look.as_mut().map(|look| look())
    }

    /// The time of the look that would have been the last one before `now`.
    fn look_before(&self, now: Instant) -> Instant {
        let age = now.saturating_duration_since(self.begun).as_nanos();
        let since = age % PERIOD.as_nanos();
        now.checked_sub(Duration::from_nanos(since as u64))
            .unwrap_or(now)
    }

    /// Looks until nothing is at work any more.
    fn measure(&self, link: &Link) {
        let mut last = self.look_before(Instant::now());
        let (mut pause, mut requests) = (PERIOD, None);
        loop {
            std::thread::sleep((last + pause).saturating_duration_since(Instant::now()));
            let now = Instant::now();
            let Some(busy) = self.count() else { return };
            let time = now.saturating_duration_since(last).as_micros() as u64;
            let counted = &link.counters.device_time_us;
            counted.fetch_add(busy * time, Ordering::Relaxed);
            last = now;
            pause = PERIOD.max(now.elapsed() * SHARE);
            let known = requests.replace(link.received.load(Ordering::Relaxed));
            if busy > 0 || known != requests {
                continue;
            }
            self.measures.store(false, Ordering::SeqCst);
            // A command may have come that has still seen a thread at work.
            let rests = self.count().is_none_or(|busy| busy == 0);
            if rests || self.measures.swap(true, Ordering::SeqCst) {
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
            self.waiters.run(move || link.device_time.measure(&link));
        }
    }
}
