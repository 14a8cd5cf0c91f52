//! Turns: time slices of a device that sessions of several leases share.
//!
//! The supervisor schedules the turns, and this is a session's side of them. During its turn a session launches no further ahead of the
//! device than [`AHEAD`], so that it can hand the turn over; other launches wait here, never on the lane's thread. A session without
//! competitors has no bit set, and its launches look at that bit alone.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::lane::looks_on;
use crate::link::Link;

/// Work that a session gives a device ahead, as far as its length is known from launches before: what the next session waits for.
const AHEAD: Duration = Duration::from_millis(1);
/// Most launches ahead. A driver lets about a thousand of a stream wait.
const MOST_AHEAD: u64 = 512;
/// Factor of [`AHEAD`] where nobody waits.
const UNCONTENDED: u32 = 2;
/// Assumed of a launch before any has been measured.
const FIRST_GUESS: Duration = Duration::from_micros(125);
/// Time between two looks at the device.
const TICK: Duration = Duration::from_micros(50);
/// A session keeps its turn so long without work, if it was last without work for less than that: the time of a round trip.
const GRACE: Duration = Duration::from_micros(500);
/// And so long in any case: launches may be on their way.
const LEAST_GRACE: Duration = Duration::from_micros(150);
/// A launch on a stream at rest waits for other streams no longer than this: their kernels may wait for it.
const STALL: Duration = Duration::from_millis(20);

/// A session's rights on a device.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Turn {
    /// All: no other lease uses the device.
    Free,
    /// No launches, until it has asked for a turn and got it.
    Wait,
    /// Its turn; nobody waits for the next one.
    Hold,
    /// Its turn, to be handed over once it has no work.
    Yield,
    /// Its turn is over: no launches, and the turn is handed over once those before are done.
    Stop,
    /// Launches at once; it asks for a turn with the first.
    Ahead,
}

impl Turn {
    const ALL: [Self; 6] = [
        Self::Free,
        Self::Wait,
        Self::Hold,
        Self::Yield,
        Self::Stop,
        Self::Ahead,
    ];

    /// By its number on the channel; [`Turn::Free`] for numbers that mean nothing.
    pub fn from_number(number: u8) -> Self {
        let known = Self::ALL.get(usize::from(number));
        known.copied().unwrap_or(Self::Free)
    }
}

/// Gives turns.
pub trait Scheduler: fmt::Debug + Send + Sync {
    /// The session has launches for its device of this number.
    fn want(&self, device: u32);

    /// The session hands a turn over.
    fn over(&self, device: u32, number: u64);
}

/// Whether a launch may go to the device now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Admission {
    /// Yes, and nothing counts it.
    Free,
    /// Yes; the [look](Turns::serve) will say when it is done.
    Counted,
    /// No.
    Held,
}

/// Tells how many counted launches of a device have ended since the last call. A mark is to be put behind so many launches at least.
type Look = Box<dyn FnMut(u32, u64) -> u64 + Send>;
/// Lets a waiting launch go.
type Gate = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    devices: Vec<Device>,
    ended: bool,
}

/// Turns of one device.
struct Device {
    told: Turn,
    /// Of the turn.
    number: u64,
    /// The scheduler knows that the session uses the device.
    announced: bool,
    /// The session has asked for a turn that it has not got.
    asked: bool,
    /// Threads whose launches wait.
    held: usize,
    /// Other launches that wait, oldest first.
    gates: VecDeque<Gate>,
    /// Counted launches, and those of them that have ended.
    admitted: u64,
    ended: u64,
    /// Expected of a launch.
    cost: Duration,
    /// Since when launches are measured.
    since: Instant,
    idle_since: Option<Instant>,
    /// For how long there was no work, the last time.
    gap: Duration,
    /// A thread tends it.
    tended: bool,
}

impl Device {
    fn new() -> Self {
        Self {
            told: Turn::Free,
            number: 0,
            announced: false,
            asked: false,
            held: 0,
            gates: VecDeque::new(),
            admitted: 0,
            ended: 0,
            cost: FIRST_GUESS,
            since: Instant::now(),
            idle_since: None,
            gap: Duration::ZERO,
            tended: false,
        }
    }

    fn outstanding(&self) -> u64 {
        self.admitted - self.ended
    }

    /// Launches ahead that are worth [`AHEAD`].
    fn most_ahead(&self) -> u64 {
        let ahead = match self.told {
            Turn::Hold => AHEAD * UNCONTENDED,
            _ => AHEAD,
        };
        let cost = self.cost.as_nanos().max(1);
        ((ahead.as_nanos() / cost) as u64).clamp(1, MOST_AHEAD)
    }

    fn has_turn(&self) -> bool {
        matches!(self.told, Turn::Hold | Turn::Yield | Turn::Ahead)
    }

    fn is_waited_for(&self) -> bool {
        self.held > 0 || !self.gates.is_empty()
    }

    fn is_full(&self) -> bool {
        self.has_turn() && self.outstanding() >= self.most_ahead()
    }

    /// Counts a launch if it may go.
    fn takes(&mut self) -> bool {
        if !self.has_turn() || self.is_full() {
            return false;
        }
        self.count();
        true
    }

    fn count(&mut self) {
        if self.outstanding() == 0 {
            self.since = Instant::now();
        }
        if let Some(since) = self.idle_since.take() {
            self.gap = since.elapsed();
        }
        self.admitted += 1;
    }

    /// So many launches have ended.
    fn learn(&mut self, ended: u64) {
        let ended = ended.min(self.outstanding());
        self.ended += ended;
        let (now, left) = (Instant::now(), self.outstanding());
        let spent = now.saturating_duration_since(self.since);
        let ended = u32::try_from(ended).unwrap_or(u32::MAX);
        if ended > 0 {
            self.cost = (self.cost * 3 + spent / ended) / 4;
            self.since = now;
        } else if left > 0 {
            self.cost = self.cost.max(spent / left as u32);
        }
        if left == 0 && self.is_waited_for() {
            // The device has run dry: launches are shorter than expected.
            self.cost /= 2;
        }
    }

    /// Whether the turn is to be handed over.
    fn is_done(&mut self) -> bool {
        if self.outstanding() > 0 {
            return false;
        }
        match self.told {
            Turn::Stop => true,
            Turn::Yield if !self.is_waited_for() => {
                let idle = *self.idle_since.get_or_insert_with(Instant::now);
                let grace = match self.gap > GRACE {
                    true => LEAST_GRACE,
                    false => GRACE,
                };
                idle.elapsed() > grace
            }
            _ => false,
        }
    }

    fn wants_tending(&self) -> bool {
        match self.told {
            Turn::Yield | Turn::Stop => true,
            Turn::Hold | Turn::Ahead => self.is_waited_for(),
            Turn::Free | Turn::Wait => false,
        }
    }
}

/// See the module's text.
#[derive(Default)]
pub struct Turns {
    /// One bit for each device whose launches must ask.
    asks: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
    scheduler: OnceLock<Box<dyn Scheduler>>,
    look: Mutex<Option<Look>>,
    /// Has a thread tend a device.
    start: OnceLock<Box<dyn Fn(u32) + Send + Sync>>,
}

impl fmt::Debug for Turns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Turns(..)")
    }
}

impl Turns {
    /// Has the session ask for turns on so many devices. Before it begins.
    pub fn schedule(&self, devices: usize, scheduler: Box<dyn Scheduler>) {
        let mut state = self.lock();
        state.devices = (0..devices).map(|_| Device::new()).collect();
        if self.scheduler.set(scheduler).is_ok() {
            let bits = 1_u64.checked_shl(devices as u32).unwrap_or(0);
            self.asks.store(bits.wrapping_sub(1), Ordering::Release);
        }
    }

    /// The scheduler says what the session may do with a device.
    pub fn hear(&self, device: u32, turn: Turn, number: u64) {
        let mut state = self.lock();
        let Some(at) = state.devices.get_mut(device as usize) else {
            return;
        };
        let is_this = number == at.number;
        let has_it = matches!(at.told, Turn::Hold | Turn::Yield);
        match turn {
            Turn::Hold | Turn::Yield if !is_this => {
                at.number = number;
                at.asked = false;
            }
            // It was handed over meanwhile.
            Turn::Hold | Turn::Yield | Turn::Stop if !is_this || !has_it => return,
            Turn::Free => at.asked = false,
            _ => {}
        }
        at.told = turn;
        // A device that was free for a moment has forgotten who waits.
        if matches!(turn, Turn::Wait | Turn::Ahead) && at.is_waited_for() {
            self.ask(device, at);
        }
        let bit = bit(device);
        match turn {
            Turn::Free => self.asks.fetch_and(!bit, Ordering::AcqRel),
            _ => self.asks.fetch_or(bit, Ordering::AcqRel),
        };
        self.tend_if_wanted(device, at, turn == Turn::Free);
        drop(state);
        self.changed.notify_all();
    }

    /// Has `look` tell of ended launches, and `start` start a thread that calls [`Self::tend`].
    pub(crate) fn serve(
        &self,
        look: impl FnMut(u32, u64) -> u64 + Send + 'static,
        start: impl Fn(u32) + Send + Sync + 'static,
    ) {
        *self.look.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(look));
        let _ = self.start.set(Box::new(start));
    }

    /// Whether a launch on the device must be [admitted](Self::admit).
    #[inline]
    pub(crate) fn asks(&self, device: u32) -> bool {
        self.asks.load(Ordering::Relaxed) & bit(device) != 0
    }

    /// Whether any launch must be.
    #[inline]
    pub(crate) fn are_asked(&self) -> bool {
        self.asks.load(Ordering::Relaxed) != 0
    }

    /// Whether the session may have work on the device.
    pub(crate) fn may_work(&self, device: u32) -> bool {
        !self.asks(device)
            || self
                .lock()
                .devices
                .get(device as usize)
                .is_none_or(|at| at.told != Turn::Wait)
    }

    /// Admits a launch. One that is held is to [wait](Self::wait), or to be put behind a [gate](Self::hold).
    #[cold]
    pub(crate) fn admit(&self, device: u32) -> Admission {
        let mut state = self.lock();
        let is_full = state
            .devices
            .get(device as usize)
            .is_some_and(|at| at.is_full() && at.since.elapsed() > TICK);
        if is_full {
            drop(state);
            let (ended, _) = self.look(device);
            state = self.lock();
            if let Some(at) = state.devices.get_mut(device as usize) {
                at.learn(ended);
            }
        }
        if state.ended {
            return Admission::Free;
        }
        let Some(at) = state.devices.get_mut(device as usize) else {
            return Admission::Free;
        };
        match at.told {
            Turn::Free => {
                self.announce(device, at);
                Admission::Free
            }
            _ if at.is_waited_for() => Admission::Held,
            told => {
                if told == Turn::Ahead {
                    self.ask(device, at);
                }
                match at.takes() {
                    true => Admission::Counted,
                    false => Admission::Held,
                }
            }
        }
    }

    fn announce(&self, device: u32, at: &mut Device) {
        if !std::mem::replace(&mut at.announced, true) {
            self.tell(|scheduler| scheduler.want(device));
        }
        self.asks.fetch_and(!bit(device), Ordering::AcqRel);
    }

    /// Waits until a launch may go; whether it counts. `is_at_rest` says whether its stream has nothing else to do.
    pub(crate) fn wait(&self, device: u32, is_at_rest: impl Fn() -> bool) -> bool {
        let begun = Instant::now();
        let mut state = self.lock();
        let Some(at) = state.devices.get_mut(device as usize) else {
            return false;
        };
        at.held += 1;
        loop {
            let has_ended = state.ended;
            let Some(at) = state.devices.get_mut(device as usize) else {
                return false;
            };
            if has_ended || at.told == Turn::Free {
                at.held -= 1;
                return false;
            }
            if at.told != Turn::Hold && at.told != Turn::Yield {
                self.ask(device, at);
            }
            let stalls = at.has_turn() && begun.elapsed() > STALL && is_at_rest();
            if stalls {
                at.count();
            }
            if stalls || at.takes() {
                at.held -= 1;
                return true;
            }
            self.tend_if_wanted(device, at, false);
            let waited = self.changed.wait_timeout(state, STALL);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Opens a gate once a launch may go, which counts then.
    pub(crate) fn hold(&self, device: u32, gate: impl FnOnce() + Send + 'static) {
        let mut state = self.lock();
        let has_ended = state.ended;
        match state.devices.get_mut(device as usize) {
            Some(at) if !has_ended => {
                at.gates.push_back(Box::new(gate));
                if at.told != Turn::Hold && at.told != Turn::Yield {
                    self.ask(device, at);
                }
                self.tend_if_wanted(device, at, at.told == Turn::Free);
            }
            _ => {
                drop(state);
                gate();
            }
        }
    }

    /// The session is over: nothing waits any more.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        state.ended = true;
        let gates = state.devices.iter_mut();
        let gates: Vec<_> = gates.flat_map(|at| std::mem::take(&mut at.gates)).collect();
        drop(state);
        self.changed.notify_all();
        gates.into_iter().for_each(|gate| gate());
    }

    /// Looks at a device until nobody waits for what comes of it.
    pub(crate) fn tend(&self, device: u32) {
        loop {
            let (ended, was_free) = self.look(device);
            let mut state = self.lock();
            let has_ended = state.ended;
            let Some(at) = state.devices.get_mut(device as usize) else {
                return;
            };
            at.learn(ended);
            let mut open = Vec::new();
            while !at.gates.is_empty() && (at.told == Turn::Free || at.takes()) {
                open.extend(at.gates.pop_front());
            }
            if at.is_done() {
                at.told = Turn::Wait;
                let number = at.number;
                self.tell(|scheduler| scheduler.over(device, number));
                if at.is_waited_for() {
                    self.ask(device, at);
                }
            }
            let hurries = at.told == Turn::Stop;
            let goes_on = at.wants_tending() || (at.told == Turn::Free && !was_free);
            at.tended = goes_on && !has_ended;
            let (goes_on, anybody) = (at.tended, at.held > 0);
            drop(state);
            if anybody {
                self.changed.notify_all();
            }
            open.into_iter().for_each(|gate| gate());
            match goes_on {
                false => return,
                true if hurries && looks_on() => std::thread::yield_now(),
                true => std::thread::sleep(TICK),
            }
        }
    }

    /// Launches that have ended, and whether the device was the session's alone.
    fn look(&self, device: u32) -> (u64, bool) {
        let state = self.lock();
        let at = state.devices.get(device as usize);
        let at = at.filter(|at| at.told != Turn::Free);
        let every = at.map_or(u64::MAX, |at| at.most_ahead().div_ceil(4));
        drop(state);
        let mut look = self.look.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = look.as_mut().map_or(0, |look| look(device, every));
        (ended, every == u64::MAX)
    }

    fn ask(&self, device: u32, at: &mut Device) {
        if !std::mem::replace(&mut at.asked, true) {
            self.tell(|scheduler| scheduler.want(device));
        }
    }

    fn tell(&self, tell: impl FnOnce(&dyn Scheduler)) {
        if let Some(scheduler) = self.scheduler.get() {
            tell(&**scheduler);
        }
    }

    fn tend_if_wanted(&self, device: u32, at: &mut Device, once: bool) {
        if (at.wants_tending() || once)
            && !at.tended
            && let Some(start) = self.start.get()
        {
            at.tended = true;
            start(device);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Link {
    /// Has `look` tell of ended launches, and threads of the session's tend its devices.
    pub(crate) fn serve_turns(
        self: &Arc<Self>,
        look: impl FnMut(u32, u64) -> u64 + Send + 'static,
    ) {
        let link = Arc::downgrade(self);
        self.counters.turns.serve(look, move |device| {
            if let Some(link) = link.upgrade() {
                let tending = Arc::clone(&link);
                link.waiters
                    .run(move || tending.counters.turns.tend(device));
            }
        });
    }
}

/// None for devices beyond the 64th, which have no turns.
fn bit(device: u32) -> u64 {
    1_u64.checked_shl(device).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    /// Messages to the scheduler: the turn that is over, or 0 for a wish.
    #[derive(Clone, Debug, Default)]
    struct Heard(Arc<Mutex<Vec<u64>>>);

    impl Heard {
        fn take(&self) -> Vec<u64> {
            std::mem::take(&mut self.0.lock().unwrap())
        }
    }

    impl Scheduler for Heard {
        fn want(&self, _device: u32) {
            self.0.lock().unwrap().push(0);
        }

        fn over(&self, _device: u32, number: u64) {
            self.0.lock().unwrap().push(number);
        }
    }

    /// Turns on one device, which does launches once `done` says so.
    fn turns(done: &Arc<AtomicBool>) -> (Turns, Heard) {
        let (turns, heard, done) = (Turns::default(), Heard::default(), Arc::clone(done));
        turns.schedule(1, Box::new(heard.clone()));
        let ended = move |_, _| if done.load(Ordering::Acquire) { 1 } else { 0 };
        turns.serve(ended, |_| ());
        (turns, heard)
    }

    fn busy() -> (Turns, Heard) {
        turns(&Arc::default())
    }

    #[test]
    fn launch_of_lone_session_only_announces_it() {
        let (turns, heard) = busy();
        assert_eq!(turns.admit(0), Admission::Free);
        assert!(!turns.asks(0) && !turns.are_asked());
        assert_eq!(heard.take(), [0]);
        assert_eq!(turns.admit(1), Admission::Free, "no such device");
    }

    #[test]
    fn moment_of_freedom_forgets_no_gate() {
        let (turns, heard) = busy();
        turns.hear(0, Turn::Wait, 0);
        turns.hold(0, || ());
        turns.hear(0, Turn::Wait, 0);
        assert_eq!(heard.take(), [0]);
        turns.hear(0, Turn::Free, 0);
        turns.hear(0, Turn::Wait, 0);
        assert_eq!(heard.take(), [0]);
    }

    #[test]
    fn launches_ahead_are_bounded_by_their_length() {
        let (turns, heard) = busy();
        turns.hear(0, Turn::Wait, 0);
        assert_eq!(turns.admit(0), Admission::Held);
        turns.hear(0, Turn::Hold, 7);
        let admitted = (0..100).filter(|_| turns.admit(0) == Admission::Counted);
        assert!((1..=16).contains(&admitted.count()));
        assert_eq!(heard.take(), []);
    }

    #[test]
    fn stopped_turn_is_handed_over_once_done() {
        let done = Arc::default();
        let (turns, heard) = turns(&done);
        turns.hear(0, Turn::Wait, 0);
        turns.hear(0, Turn::Hold, 7);
        assert_eq!(turns.admit(0), Admission::Counted);
        turns.hear(0, Turn::Stop, 7);
        assert_eq!(turns.admit(0), Admission::Held);
        std::thread::scope(|scope| {
            scope.spawn(|| turns.tend(0));
            std::thread::sleep(Duration::from_millis(5));
            assert_eq!(heard.take(), []);
            done.store(true, Ordering::Release);
        });
        assert_eq!(heard.take(), [7]);
        assert!(!turns.may_work(0));
    }

    #[test]
    fn idle_turn_that_others_wait_for_is_handed_over() {
        let (turns, heard) = busy();
        turns.hear(0, Turn::Wait, 0);
        turns.hear(0, Turn::Yield, 7);
        turns.tend(0);
        assert_eq!(heard.take(), [7]);
        // They crossed it on their way.
        turns.hear(0, Turn::Stop, 7);
        turns.hear(0, Turn::Yield, 7);
        assert_eq!(turns.admit(0), Admission::Held);
    }

    #[test]
    fn gates_open_in_turn_and_at_the_end() {
        let (turns, heard) = busy();
        let opened = Arc::new(AtomicU64::new(0));
        let gate = || {
            let opened = Arc::clone(&opened);
            move || {
                opened.fetch_add(1, Ordering::AcqRel);
            }
        };
        turns.hear(0, Turn::Wait, 0);
        turns.hold(0, gate());
        assert_eq!(heard.take(), [0]);
        turns.hear(0, Turn::Hold, 7);
        turns.tend(0);
        assert_eq!(opened.load(Ordering::Acquire), 1);
        turns.hear(0, Turn::Stop, 7);
        turns.hold(0, gate());
        turns.end();
        assert_eq!(opened.load(Ordering::Acquire), 2);
        assert!(!turns.wait(0, || false));
    }

    #[test]
    fn waiting_launch_goes_when_its_turn_comes() {
        let (turns, _) = busy();
        turns.hear(0, Turn::Wait, 0);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| turns.wait(0, || true));
            std::thread::sleep(Duration::from_millis(5));
            assert!(!waiting.is_finished());
            turns.hear(0, Turn::Hold, 7);
            assert!(waiting.join().unwrap());
        });
    }

    #[test]
    fn latency_critical_launch_goes_and_asks() {
        let (turns, heard) = busy();
        turns.hear(0, Turn::Ahead, 0);
        assert_eq!(turns.admit(0), Admission::Counted);
        assert_eq!(heard.take(), [0]);
    }

    #[test]
    fn numbers_mean_turns() {
        for turn in Turn::ALL {
            assert_eq!(Turn::from_number(turn as u8), turn);
        }
        assert_eq!(Turn::from_number(99), Turn::Free);
    }
}
