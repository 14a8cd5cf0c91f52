//! Events that several sessions of a server record and wait for.
//!
//! The driver's own way of sharing an event leads through files of one user's in `/dev/shm`, which workers in their jails have each for
//! themselves. So a shared event is a page of memory instead, which every session that knows it maps and registers with its driver. A
//! recording takes a slot of it and a value (`page.rs`), and tells both in the page's first word, when it is posted; once the stream has
//! come there, the device writes the value into the slot. Who waits has the device wait for that. When a session dies, the supervisor
//! releases what it had recorded, on every page that it had made or taken.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use towline_backend::cuda::*;

use super::broker::Lease;
use super::context::Context;
use super::page::{BYTES, OWNER, Page, Recording};
use super::shared::{Shared, lock};
use super::streams::Target;

/// Pages of events that have ended are given back so many at a time: it makes the driver wait for the device.
const RETIRED: usize = 32;
/// How long a thread that waits for a page sleeps before it looks again: at first, and at most.
const PAUSE: (Duration, Duration) = (Duration::from_micros(5), Duration::from_millis(1));

/// See the module's text.
pub(crate) struct Beacon {
    page: Page,
    /// That the page is taken, where it is another session's.
    lease: Option<Lease>,
    /// Where the device has it, once it is registered.
    address: OnceLock<Result<u64, CUresult>>,
    /// The context that it was registered in.
    home: Weak<Context>,
    /// The latest recording of this session by stream. One stream's are in order, so they may share a slot.
    own: Mutex<HashMap<u64, Recording>>,
    /// Contexts whose devices may be at it.
    users: Mutex<Vec<Weak<Context>>>,
    /// Others' recordings that streams of this session were made to wait for.
    held: Mutex<Vec<Recording>>,
}

/// What this session is to make of a shared event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Latest {
    /// It was recorded here last, so the driver's own event tells.
    Ours,
    /// It was never recorded, or has passed.
    Passed,
    /// It was recorded elsewhere, and has not passed.
    Theirs(Recording),
}

/// A recording that is to be told of. It counts as passed if that does not come about: nobody is kept waiting.
pub(crate) struct Claim {
    beacon: Arc<Beacon>,
    recording: Recording,
    told: bool,
}

/// The session's shared events, by the client's numbers.
#[derive(Default)]
pub(crate) struct Beacons {
    /// There was one, ever.
    any: AtomicBool,
    known: Mutex<HashMap<u64, Arc<Beacon>>>,
    retired: Mutex<Retired>,
}

/// Pages of events that have ended, which streams may still be at.
#[derive(Default)]
struct Retired {
    pages: Vec<Arc<Beacon>>,
    /// A thread gives them back.
    running: bool,
}

impl Beacon {
    /// A new page.
    pub(crate) fn create(home: &Arc<Context>) -> Result<Self, CUresult> {
        let page = Page::create().map_err(refused)?;
        Ok(Self::over(page, None, home))
    }

    /// The page of another session.
    pub(crate) fn open(file: OwnedFd, lease: Lease, home: &Arc<Context>) -> Result<Self, CUresult> {
        let page = Page::open(file).map_err(refused)?;
        Ok(Self::over(page, Some(lease), home))
    }

    fn over(page: Page, lease: Option<Lease>, home: &Arc<Context>) -> Self {
        Self {
            page,
            lease,
            address: OnceLock::new(),
            home: Arc::downgrade(home),
            own: Mutex::default(),
            users: Mutex::default(),
            held: Mutex::default(),
        }
    }

    /// A descriptor of the page.
    pub(crate) fn file(&self) -> Option<OwnedFd> {
        self.page.file().try_clone_to_owned().ok()
    }

    /// The number of this session on the page.
    fn number(&self) -> u32 {
        self.lease.as_ref().map_or(OWNER, Lease::number)
    }

    pub(crate) fn is_of(&self, context: u64) -> bool {
        let home = self.home.upgrade();
        home.is_none_or(|home| home.id == context)
    }

    /// What the event is waiting for, as this session sees it.
    pub(crate) fn state(&self) -> Latest {
        let Some(recording) = self.page.latest() else {
            return Latest::Passed;
        };
        if lock(&self.own).values().any(|own| *own == recording) {
            return Latest::Ours;
        }
        match self.has_passed(recording) {
            true => Latest::Passed,
            false => Latest::Theirs(recording),
        }
    }

    pub(crate) fn has_passed(&self, recording: Recording) -> bool {
        self.page.has_passed(recording)
    }

    /// Makes a recording on a stream the latest one; `None` where as many streams as there are slots have some that have not passed.
    fn record(&self, stream: u64) -> Option<Recording> {
        let (page, number) = (&self.page, self.number());
        let mut own = lock(&self.own);
        let last = own.get(&stream).copied();
        let again = last.and_then(|last| page.take_again(number, last));
        let recording = again.or_else(|| page.take_free(number))?;
        own.retain(|_, last| last.slot != recording.slot);
        own.insert(stream, recording);
        page.publish(recording);
        Some(recording)
    }

    /// Gives the driver the page, in its home, which must be current. Once.
    pub(crate) fn register(&self, api: &dyn CudaApi) -> Result<(), CUresult> {
        let place = self.page.start().as_ptr().cast();
        let flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
        // SAFETY: the page is mapped, and stays so until it is given back.
        let mut status = unsafe { api.cuMemHostRegister_v2(place, BYTES, flags) };
        let mut address: CUdeviceptr = 0;
        if status == CUDA_SUCCESS {
            // SAFETY: one place for the address; the page is registered.
            status = unsafe { api.cuMemHostGetDevicePointer_v2(&raw mut address, place, 0) };
            if status != CUDA_SUCCESS {
                // SAFETY: it was registered just now, and nothing uses it.
                unsafe { api.cuMemHostUnregister(place) };
            }
        }
        let outcome = match status {
            CUDA_SUCCESS => Ok(address),
            status => Err(status),
        };
        // Nobody else registers it.
        let _ = self.address.set(outcome);
        outcome.map(|_| ())
    }

    /// The page will not be registered.
    pub(crate) fn give_up(&self, status: CUresult) {
        let _ = self.address.set(Err(status));
    }

    /// Where the device has the page. Another thread may be registering it, which takes the driver a moment.
    pub(crate) fn address(&self) -> Result<u64, CUresult> {
        *self.address.wait()
    }

    /// Has the stream, whose context is current, carry out an operation on a slot.
    fn operate(
        &self,
        shared: &Shared,
        target: &Target,
        operation: (u32, u32),
        recording: Recording,
    ) -> CUresult {
        let address = match self.address() {
            Ok(address) => address,
            Err(status) => return status,
        };
        let at = Page::offset(recording);
        let (kind, flags) = operation;
        let mut words = [
            u64::from(kind),
            address + at as u64,
            u64::from(recording.value),
            u64::from(flags),
            0,
            0,
        ];
        self.used_in(&target.context);
        let list = words.as_mut_ptr().cast();
        shared.wait_comes(target);
        // SAFETY: one operation, on the page, which stays registered until its contexts have nothing left to do; the stream is live.
        let status = unsafe {
            shared
                .api
                .cuStreamBatchMemOp_v2(target.stream(), 1, list, 0)
        };
        shared.wait_enqueued(target);
        status
    }

    fn used_in(&self, context: &Arc<Context>) {
        let mut users = lock(&self.users);
        let known = |user: &Weak<Context>| std::ptr::eq(user.as_ptr(), Arc::as_ptr(context));
        if !users.iter().any(known) {
            users.push(Arc::downgrade(context));
        }
    }

    /// Has the stream wait for a recording.
    pub(crate) fn hold(&self, shared: &Shared, target: &Target, recording: Recording) -> CUresult {
        if self.has_passed(recording) {
            return CUDA_SUCCESS;
        }
        let operation = (CU_STREAM_MEM_OP_WAIT_VALUE_32, CU_STREAM_WAIT_VALUE_GEQ);
        let mut held = lock(&self.held);
        held.retain(|earlier| !self.has_passed(*earlier));
        held.push(recording);
        drop(held);
        self.operate(shared, target, operation, recording)
    }

    /// Whether a stream of this session waits for another's recording.
    fn holds(&self) -> bool {
        let mut held = lock(&self.held).clone().into_iter();
        held.any(|recording| !self.has_passed(recording))
    }

    /// Waits on this thread until a recording has passed, as long as `still` says so.
    pub(crate) fn wait(&self, recording: Recording, mut still: impl FnMut() -> bool) {
        let (mut pause, longest) = PAUSE;
        while !self.has_passed(recording) && still() {
            std::thread::sleep(pause);
            pause = (pause * 2).min(longest);
        }
    }

    /// Gives the page back, once nothing that was enqueued is at it. Waits for the device.
    fn release(&self, api: &dyn CudaApi) {
        let users = std::mem::take(&mut *lock(&self.users));
        for context in users.iter().filter_map(Weak::upgrade) {
            if context.enter(api) == CUDA_SUCCESS {
                // SAFETY: the context is current.
                unsafe { api.cuCtxSynchronize() };
            }
        }
        // What has not passed by now does not any more: its context has failed or ended.
        for recording in lock(&self.own).values() {
            if !self.has_passed(*recording) {
                self.page.give_up(*recording);
            }
        }
        // A context that has ended has let go of it.
        let Some(home) = self.home.upgrade() else {
            return;
        };
        let registered = matches!(self.address.get(), Some(Ok(_)));
        if registered && home.enter(api) == CUDA_SUCCESS {
            // SAFETY: the page was registered, and nothing is at it any more.
            unsafe { api.cuMemHostUnregister(self.page.start().as_ptr().cast()) };
        }
    }
}

impl Drop for Beacon {
    fn drop(&mut self) {
        // Streams that may be at it end with the process, and the supervisor learns of that.
        let used = !lock(&self.users).is_empty();
        if let Some(lease) = self.lease.take().filter(|_| used) {
            lease.keep();
        }
    }
}

impl Claim {
    /// Makes a recording on a stream the event's latest one.
    pub(crate) fn on(beacon: Arc<Beacon>, stream: u64) -> Result<Self, CUresult> {
        let recording = beacon.record(stream).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        Ok(Self {
            beacon,
            recording,
            told: false,
        })
    }

    /// Has the device tell, once the stream comes there, that it has passed.
    pub(crate) fn tell(mut self, shared: &Shared, target: &Target) -> CUresult {
        let operation = (
            CU_STREAM_MEM_OP_WRITE_VALUE_32,
            CU_STREAM_WRITE_VALUE_DEFAULT,
        );
        let beacon = Arc::clone(&self.beacon);
        let status = beacon.operate(shared, target, operation, self.recording);
        self.told = status == CUDA_SUCCESS;
        status
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.told {
            self.beacon.page.give_up(self.recording);
        }
    }
}

impl Beacons {
    /// The page of an event, if it is shared.
    #[inline]
    pub(crate) fn of(&self, event: u64) -> Option<Arc<Beacon>> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        lock(&self.known).get(&event).cloned()
    }

    pub(crate) fn insert(&self, event: u64, beacon: Arc<Beacon>) {
        lock(&self.known).insert(event, beacon);
        self.any.store(true, Ordering::Release);
    }

    /// Forgets a page that could not be registered.
    pub(crate) fn forget(&self, event: u64) {
        lock(&self.known).remove(&event);
    }
}

impl Shared {
    /// A shared event has ended. What was enqueued of it goes on.
    pub(crate) fn retire_beacon(self: &Arc<Self>, event: u64) {
        if !self.beacons.any.load(Ordering::Acquire) {
            return;
        }
        let page = lock(&self.beacons.known).remove(&event);
        let Some(page) = page else {
            return;
        };
        let mut retired = lock(&self.beacons.retired);
        retired.pages.push(page);
        if retired.pages.len() < RETIRED || std::mem::replace(&mut retired.running, true) {
            return;
        }
        drop(retired);
        // One thread for all of them: it waits for the device.
        self.start(|shared| shared.release_retired());
    }

    fn release_retired(self: &Arc<Self>) {
        loop {
            let pages = {
                let mut retired = lock(&self.beacons.retired);
                retired.running = !retired.pages.is_empty();
                std::mem::take(&mut retired.pages)
            };
            if pages.is_empty() {
                return;
            }
            let alone = || pages.iter().all(|page| Arc::strong_count(page) == 1);
            if !self.streams.wait_until(alone) {
                lock(&self.beacons.retired).pages.extend(pages);
                return;
            }
            for page in pages {
                page.release(&*self.api);
            }
        }
    }

    /// Gives the page of one event back, which no stream is at.
    pub(crate) fn release_beacon(&self, event: u64) {
        let page = lock(&self.beacons.known).remove(&event);
        if let Some(page) = page {
            page.release(&*self.api);
        }
    }

    /// Gives the pages of a context back that ends; of all at the session's end. A page that a stream waits at for another session goes
    /// with the process.
    pub(crate) fn release_beacons(&self, context: Option<u64>) {
        let concerns = |page: &Beacon| context.is_none_or(|context| page.is_of(context));
        let mut pages = Vec::new();
        lock(&self.beacons.known).retain(|_, page| {
            let stays = !concerns(page);
            if !stays {
                pages.push(Arc::clone(page));
            }
            stays
        });
        let mut retired = lock(&self.beacons.retired);
        pages.extend(retired.pages.extract_if(.., |page| concerns(page)));
        drop(retired);
        for page in pages.into_iter().filter(|page| !page.holds()) {
            page.release(&*self.api);
        }
    }
}

fn refused(error: std::io::Error) -> CUresult {
    log::warn!("the page of a shared event is of no use: {error}");
    CUDA_ERROR_OPERATING_SYSTEM
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::broker::{Broker, Offer, TOKEN_BYTES, Taken, Token};
    use crate::cuda::page::{SLOTS, release};

    /// Numbers that were given back.
    #[derive(Default)]
    struct Returns(Mutex<Vec<u32>>);

    impl Broker for Returns {
        fn offer(&self, _: Offer) -> Option<Token> {
            None
        }

        fn take(&self, _: Token) -> Option<Taken> {
            None
        }

        fn give_back(&self, _: Token, number: u32) {
            lock(&self.0).push(number);
        }

        fn withdraw(&self, _: Token) {}
    }

    fn context() -> Arc<Context> {
        Arc::new(Context::new(
            1,
            std::ptr::null_mut(),
            (0, 0),
            true,
            0,
            &Arc::default(),
        ))
    }

    /// What a session makes of a page that it opens.
    fn opened(page: &Beacon, number: u32, broker: &Arc<Returns>) -> Beacon {
        let broker: Arc<dyn Broker> = Arc::<Returns>::clone(broker);
        let lease = Lease::new(&broker, Token([1; TOKEN_BYTES]), number);
        Beacon::open(page.file().unwrap(), lease, &context()).unwrap()
    }

    /// Two sessions' views of one page.
    fn pair() -> (Beacon, Beacon) {
        let ours = Beacon::create(&context()).unwrap();
        let theirs = opened(&ours, 1, &Arc::default());
        (ours, theirs)
    }

    #[test]
    fn a_page_that_was_never_recorded_keeps_nobody_waiting() {
        let (ours, theirs) = pair();
        assert_eq!([ours.state(), theirs.state()], [Latest::Passed; 2]);
    }

    #[test]
    fn both_sessions_see_the_latest_recording_and_its_passing() {
        let (ours, theirs) = pair();
        let first = ours.record(5).unwrap();
        assert_eq!(theirs.state(), Latest::Theirs(first));
        let second = theirs.record(5).unwrap();
        assert_ne!(second.slot, first.slot, "the first has not passed");
        assert_eq!(ours.state(), Latest::Theirs(second));
        assert_eq!(theirs.state(), Latest::Ours);
        theirs.page.give_up(second);
        assert_eq!(ours.state(), Latest::Passed);
        assert!(!ours.has_passed(first), "each is told for itself");
    }

    #[test]
    fn a_later_recording_that_passes_first_is_not_undone_by_an_earlier_one() {
        let (ours, theirs) = pair();
        let (slow, fast) = (ours.record(1).unwrap(), ours.record(2).unwrap());
        ours.page.give_up(fast);
        ours.page.give_up(slow);
        assert_eq!(theirs.state(), Latest::Passed);
    }

    #[test]
    fn a_streams_recordings_share_a_slot_and_slots_that_have_passed_serve_others() {
        let (ours, _theirs) = pair();
        let first = ours.record(1).unwrap();
        let second = ours.record(1).unwrap();
        assert_eq!((second.slot, second.value), (first.slot, first.value + 1));
        ours.page.give_up(second);
        assert!(ours.has_passed(first), "a stream's are in order");
        assert_eq!(ours.record(2).unwrap().slot, first.slot);
    }

    #[test]
    fn streams_without_a_slot_are_refused_until_one_passes() {
        let (ours, _theirs) = pair();
        let all: Vec<_> = (0..u64::from(SLOTS))
            .map(|stream| ours.record(stream).unwrap())
            .collect();
        assert_eq!(ours.record(9999), None);
        ours.page.give_up(all[7]);
        assert_eq!(ours.record(9999).unwrap().slot, all[7].slot);
    }

    #[test]
    fn values_that_wrap_keep_their_order() {
        let (ours, _theirs) = pair();
        ours.page.taken(0).store(u32::MAX.into(), Ordering::Relaxed);
        ours.page.passed(0).store(u32::MAX, Ordering::Relaxed);
        let wrapped = ours.record(1).unwrap();
        assert_eq!(wrapped, Recording { slot: 0, value: 0 });
        assert!(!ours.has_passed(wrapped));
        ours.page.give_up(wrapped);
        assert!(ours.has_passed(wrapped));
    }

    #[test]
    fn nobody_waits_for_a_session_that_has_died_and_others_go_on() {
        let ours = Beacon::create(&context()).unwrap();
        let [theirs, third] = [1, 2].map(|number| opened(&ours, number, &Arc::default()));
        for (dead, number) in [(&ours, OWNER), (&theirs, 1)] {
            let own = third.record(1).unwrap();
            let never = dead.record(1).unwrap();
            assert_eq!(third.state(), Latest::Theirs(never));
            release(ours.page.file(), number);
            assert!(third.has_passed(never));
            assert_eq!(third.state(), Latest::Passed);
            assert!(!third.has_passed(own), "its own is outstanding");
            let later = third.record(2).unwrap();
            assert_eq!(third.state(), Latest::Ours);
            third.page.give_up(own);
            third.page.give_up(later);
        }
    }

    #[test]
    fn a_page_is_given_back_once_no_stream_is_at_it() {
        let broker = Arc::default();
        let ours = Beacon::create(&context()).unwrap();
        drop(opened(&ours, 1, &broker));
        assert_eq!(*lock(&broker.0), [1], "none was ever");

        let theirs = opened(&ours, 2, &broker);
        theirs.used_in(&context());
        theirs.release(&NullCuda::new(1));
        drop(theirs);
        assert_eq!(*lock(&broker.0), [1, 2]);

        let theirs = opened(&ours, 3, &broker);
        theirs.used_in(&context());
        drop(theirs);
        assert_eq!(*lock(&broker.0), [1, 2], "one is until the session's end");
    }

    #[test]
    fn what_has_not_passed_when_a_page_is_released_keeps_nobody_waiting() {
        let (ours, theirs) = pair();
        let broken = theirs.record(1).unwrap();
        theirs.release(&NullCuda::new(1));
        assert!(ours.has_passed(broken));
    }

    #[test]
    fn a_recording_that_does_not_come_about_keeps_nobody_waiting() {
        let (ours, theirs) = pair();
        let claim = Claim::on(Arc::new(ours), 1).ok();
        assert!(matches!(theirs.state(), Latest::Theirs(_)));
        drop(claim);
        assert_eq!(theirs.state(), Latest::Passed);
    }
}
