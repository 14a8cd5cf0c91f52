//! Swapping: a session gives its device memory up for another that lacks some, and keeps the contents in host memory until it goes on.
//!
//! The supervisor says whose turn it is to give way, and this is a session's side of it. The lane's thread passes a gate with every frame.
//! While the gate is shut the session is swapped out, as a whole: its client waits, and loses nothing. The next frame swaps it in again.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

/// A session that has sent nothing for so long has nothing to do.
const IDLE: Duration = Duration::from_millis(200);
/// A session that has given way leaves the others so much time to take its memory before it asks for room itself.
const HEAD_START: Duration = Duration::from_millis(200);
/// How long a session that is asked to give way waits for the request that its lane is at.
const LANE_PATIENCE: Duration = Duration::from_secs(5);

/// Hears that a session is swapped in again.
pub trait Swapper: fmt::Debug + Send + Sync {
    /// Its memory is on the device, and it goes on.
    fn is_in(&self);
}

/// How a session is asked to give way.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SwapRequest {
    /// Bytes of host memory that its contents may take.
    pub most: u64,
    /// Only if it has nothing to do.
    pub idle: bool,
}

/// Moves contents between device and host.
pub(crate) trait Mover: Send + Sync {
    /// Waits until the session is at rest, and moves all that can be moved to host memory, and gives the bytes; in the error, why
    /// nothing was moved.
    fn out(&self, request: SwapRequest) -> Result<u64, String>;

    /// Moves all of it back. Waits for room on the device; `false` where the session ends first.
    fn back(&self) -> bool;
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Phase {
    /// The session's memory is on the device.
    #[default]
    In,
    /// It is on its way to the host.
    Leaving,
    Out,
    /// It is on its way back, by the lane's thread.
    Coming,
    Ended,
}

#[derive(Debug, Default)]
struct State {
    phase: Phase,
    /// The thread that carries out the lane's requests.
    lane: Option<ThreadId>,
    /// When it was last through with them.
    through: Option<Instant>,
    /// When it was swapped out.
    out_since: Option<Instant>,
    /// It ends.
    ending: bool,
}

impl State {
    fn is_idle(&self) -> bool {
        self.lane.is_none() && self.through.is_none_or(|through| through.elapsed() >= IDLE)
    }
}

/// See the module's text. Without a swapper nothing is ever swapped, and the gate costs a look at one word.
#[derive(Default)]
pub struct Swap {
    on: AtomicBool,
    stopping: AtomicBool,
    /// The memory did not come back.
    lost: AtomicBool,
    swapper: OnceLock<Box<dyn Swapper>>,
    mover: OnceLock<Box<dyn Mover>>,
    state: Mutex<State>,
    changed: Condvar,
}

impl fmt::Debug for Swap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Swap")
            .field("on", &self.on)
            .finish_non_exhaustive()
    }
}

impl Swap {
    /// Lets the session be swapped. Before it begins.
    pub fn enable(&self, swapper: Box<dyn Swapper>) {
        if self.swapper.set(swapper).is_ok() {
            self.on.store(true, Ordering::Release);
        }
    }

    /// Has contents moved by `mover`.
    pub(crate) fn serve(&self, mover: Box<dyn Mover>) {
        // Of two the first counts; there is one.
        let _ = self.mover.set(mover);
    }

    /// Whether the session may be swapped.
    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::Acquire)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_while<'a>(
        &self,
        state: MutexGuard<'a, State>,
        still: impl FnMut(&mut State) -> bool,
    ) -> MutexGuard<'a, State> {
        let waited = self.changed.wait_while(state, still);
        waited.unwrap_or_else(PoisonError::into_inner)
    }

    /// The session is to end, wherever its memory is.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    /// Whether the session's memory did not come back: nothing of it can go on.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// The lane's thread carries out requests from now on. If the session is swapped out, it comes back first; `false` where that fails, and the
    /// session must end.
    pub(crate) fn enter(&self) -> bool {
        if !self.is_on() {
            return true;
        }
        let mut state = self.wait_while(self.lock(), |state| state.phase == Phase::Leaving);
        if state.phase == Phase::Out {
            state.phase = Phase::Coming;
            let since = state.out_since;
            drop(state);
            let out_for = since.map_or(HEAD_START, |since| since.elapsed());
            std::thread::sleep(HEAD_START.saturating_sub(out_for));
            let is_back = self.mover.get().is_none_or(|mover| mover.back());
            state = self.lock();
            if !is_back {
                state.phase = Phase::Out;
                self.lost.store(true, Ordering::Release);
                return false;
            }
            state.phase = Phase::In;
            if let Some(swapper) = self.swapper.get() {
                swapper.is_in();
            }
        }
        state.lane = Some(std::thread::current().id());
        true
    }

    /// The lane's thread is through with its requests.
    pub(crate) fn leave(&self) {
        if self.is_on() {
            let mut state = self.lock();
            state.lane = None;
            state.through = Some(Instant::now());
            drop(state);
            self.changed.notify_all();
        }
    }

    /// Runs `wait`, during which the session may be swapped out: a request of its own waits for memory. Whether there is any; not where the session
    /// must end.
    pub(crate) fn outside(&self, wait: impl FnOnce() -> bool) -> bool {
        let is_lane = self.is_on() && self.lock().lane == Some(std::thread::current().id());
        if !is_lane {
            return wait();
        }
        self.leave();
        let result = wait();
        self.enter() && result
    }

    /// Gives way, and tells the bytes of device memory that are free now; in the error, why not. It is told before the session can come back.
    pub fn give_way(&self, request: SwapRequest, tell: impl FnOnce(Result<u64, String>)) {
        match self.leave_device(request) {
            Ok(freed) => {
                tell(Ok(freed));
                let mut state = self.lock();
                state.phase = Phase::Out;
                state.out_since = Some(Instant::now());
            }
            Err((why, is_leaving)) => {
                tell(Err(why));
                if is_leaving {
                    self.lock().phase = Phase::In;
                }
            }
        }
        self.changed.notify_all();
    }

    /// In the error, why not, and whether it had begun to leave.
    fn leave_device(&self, request: SwapRequest) -> Result<u64, (String, bool)> {
        let stays = |why: &str| (why.to_owned(), false);
        let mover = self.mover.get().ok_or_else(|| stays("it has not begun"))?;
        let mut state = self.lock();
        match state.phase {
            Phase::In if request.idle && !state.is_idle() => return Err(stays("it is busy")),
            Phase::In => state.phase = Phase::Leaving,
            Phase::Ended => return Err(stays("it ends")),
            Phase::Leaving | Phase::Out | Phase::Coming => {
                return Err(stays("it is swapped already"));
            }
        }
        let is_at_work = |state: &mut State| state.lane.is_some();
        let waited = self
            .changed
            .wait_timeout_while(state, LANE_PATIENCE, is_at_work);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let (at_work, ends) = (state.lane.is_some(), state.ending);
        drop(state);
        let moved = match (at_work, ends) {
            (false, false) => mover.out(request),
            (true, _) => Err("a call of its program takes long".to_owned()),
            (_, true) => Err("it ends".to_owned()),
        };
        moved.map_err(|why| (why, true))
    }

    /// The session is over, and nothing is swapped any more.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        (state.lane, state.ending) = (None, true);
        self.changed.notify_all();
        let mut state = self.wait_while(state, |state| state.phase == Phase::Leaving);
        state.phase = Phase::Ended;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;
    use std::sync::mpsc::channel;

    use super::*;

    const GIB: u64 = 1 << 30;
    const ANY: SwapRequest = SwapRequest {
        most: u64::MAX,
        idle: false,
    };

    /// Counts what it is asked for.
    #[derive(Clone, Debug, Default)]
    struct Counted(Arc<[AtomicU32; 3]>);

    impl Counted {
        fn seen(&self) -> [u32; 3] {
            std::array::from_fn(|place| self.0[place].load(Ordering::Relaxed))
        }

        fn count(&self, place: usize) {
            self.0[place].fetch_add(1, Ordering::Relaxed);
        }
    }

    impl Mover for Counted {
        fn out(&self, request: SwapRequest) -> Result<u64, String> {
            self.count(0);
            match request.most {
                0 => Err("no host memory is left".to_owned()),
                _ => Ok(GIB),
            }
        }

        fn back(&self) -> bool {
            self.count(1);
            true
        }
    }

    impl Swapper for Counted {
        fn is_in(&self) {
            self.count(2);
        }
    }

    fn give(swap: &Swap, request: SwapRequest) -> Result<u64, String> {
        let mut given = None;
        swap.give_way(request, |told| given = Some(told));
        given.expect("it is told")
    }

    fn swap() -> (Arc<Swap>, Counted) {
        let (swap, counted) = (Arc::new(Swap::default()), Counted::default());
        swap.enable(Box::new(counted.clone()));
        swap.serve(Box::new(counted.clone()));
        (swap, counted)
    }

    #[test]
    fn next_frame_brings_a_session_back() {
        let (swap, counted) = swap();
        assert!(swap.enter());
        swap.leave();
        assert_eq!(give(&swap, ANY), Ok(GIB));
        assert!(give(&swap, ANY).is_err(), "it has given way already");
        assert_eq!(counted.seen(), [1, 0, 0]);
        assert!(swap.enter());
        assert_eq!(counted.seen(), [1, 1, 1]);
        swap.leave();
        give(&swap, ANY).expect("it is in again");
    }

    #[test]
    fn refused_session_goes_on_where_it_is() {
        let (swap, counted) = swap();
        give(&swap, SwapRequest { most: 0, ..ANY }).unwrap_err();
        assert!(swap.enter());
        assert_eq!(counted.seen(), [1, 0, 0]);
    }

    #[test]
    fn busy_lane_is_waited_for_unless_idleness_is_asked_for() {
        let (swap, counted) = swap();
        assert!(swap.enter());
        give(&swap, SwapRequest { idle: true, ..ANY }).unwrap_err();
        let (asking, (told, heard)) = (Arc::clone(&swap), channel());
        let asked = std::thread::spawn(move || {
            told.send(()).unwrap();
            give(&asking, ANY)
        });
        heard.recv().unwrap();
        assert_eq!(counted.seen(), [0, 0, 0]);
        swap.leave();
        asked.join().unwrap().expect("the lane is through");
        assert_eq!(counted.seen(), [1, 0, 0]);
    }

    #[test]
    fn session_that_waits_for_memory_can_give_way() {
        let (swap, counted) = swap();
        assert!(swap.enter());
        assert!(swap.outside(|| give(&swap, ANY).is_ok()));
        assert_eq!(counted.seen(), [1, 1, 1], "it came back before it went on");
    }

    #[test]
    fn ended_session_gives_nothing() {
        let (swap, counted) = swap();
        swap.end();
        give(&swap, ANY).unwrap_err();
        assert_eq!(counted.seen(), [0, 0, 0]);
    }

    #[test]
    fn nothing_is_swapped_where_nobody_asks_for_it() {
        let (swap, counted) = (Swap::default(), Counted::default());
        swap.serve(Box::new(counted.clone()));
        assert!(swap.enter() && swap.outside(|| true));
        swap.leave();
        assert_eq!(counted.seen(), [0, 0, 0]);
    }
}
