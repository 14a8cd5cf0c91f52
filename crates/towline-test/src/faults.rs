//! A program of transfers, run once over a sound link and then with a fault wherever a connection sent something.
//!
//! Where links come back, every call has to succeed. The program tells a [`Run`] what each call claims. Whatever fails: a call that claims success has exactly the right bytes in its
//! targets, a session that was lost stays lost, memory that a failed call gave back to the application is left alone, and nothing hangs.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use towline_transport::Transport;
use towline_transport::memory::{End, Fault, FaultKind, Link, MemoryTransport, Time};

use crate::healing::Healing;

/// No run takes so long, on a busy machine either.
const PATIENCE: Duration = Duration::from_secs(30);
/// Runs at the same time: most of one is waiting for threads to wake.
const AT_ONCE: usize = 6;
/// How long a stalled program goes on by itself before the stall is resolved.
const STALL: Duration = Duration::from_millis(5);
/// Stalls of a campaign: each costs real time.
const STALLS: usize = 8;
/// What memory is filled with that no call is to write to any more.
const GIVEN_UP: u8 = 0xee;
/// A buffer that a chunk does not fit in, so that senders and receivers take turns.
const BUFFER_BYTES: usize = 64 << 10;

/// A program of transfers.
type Program = Arc<dyn Fn(&Arc<Run>) + Send + Sync>;

/// One run of a program.
pub struct Run {
    /// The network of its connections, which [`Run::transport`] makes.
    pub network: MemoryTransport,
    /// Each connection that breaks gets another link.
    heals: bool,
    /// Real sessions have a control connection, on which the server may say why a lane broke: the client waits for that.
    pub has_control: bool,
    faults: Vec<Fault>,
    /// The call that failed first.
    lost: Mutex<Option<String>>,
    wrong: Mutex<Vec<String>>,
    given_up: Mutex<Vec<Arc<Target>>>,
}

/// Memory of the application that a session writes to.
pub struct Target {
    start: *mut u8,
    size: usize,
    right: Vec<u8>,
}

// SAFETY: whatever is done through the pointer, its callers answer for; the memory lives as long as the target.
unsafe impl Send for Target {}
// SAFETY: as above.
unsafe impl Sync for Target {}

impl Target {
    /// Memory that is to hold these bytes.
    pub fn for_bytes(right: &[u8]) -> Arc<Self> {
        Self::from(vec![0; right.len()], right)
    }

    /// Memory with these contents, which is to hold those.
    pub fn from(before: Vec<u8>, right: &[u8]) -> Arc<Self> {
        assert_eq!(before.len(), right.len());
        let memory: &mut [u8] = Box::leak(before.into_boxed_slice());
        Arc::new(Self {
            start: memory.as_mut_ptr(),
            size: memory.len(),
            right: right.to_vec(),
        })
    }

    /// Where it begins.
    pub fn start(&self) -> *mut u8 {
        self.start
    }

    /// Its bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the memory is the target's. It is looked at when the session claims to be done with it; one that still writes to it
        // is what the test is to find.
        unsafe { std::slice::from_raw_parts(self.start, self.size) }
    }

    /// Where the first wrong byte is.
    fn wrong_at(&self) -> Option<usize> {
        let mut pairs = self.bytes().iter().zip(&self.right);
        pairs.position(|(is, right)| is != right)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let memory = std::ptr::slice_from_raw_parts_mut(self.start, self.size);
        // SAFETY: it was leaked in `from`, and the session that had its address has ended.
        drop(unsafe { Box::from_raw(memory) });
    }
}

impl Run {
    fn new(faults: Vec<Fault>, has_control: bool, heals: bool) -> Self {
        let link = Link {
            buffer_bytes: BUFFER_BYTES,
            ..Link::default()
        };
        Self {
            network: MemoryTransport::simulated(link, Time::Real),
            heals,
            has_control,
            faults,
            lost: Mutex::default(),
            wrong: Mutex::default(),
            given_up: Mutex::default(),
        }
    }

    /// Makes its connections.
    pub fn transport(&self) -> Box<dyn Transport> {
        match self.heals {
            true => Box::new(Healing::over(self.network.clone())),
            false => Box::new(self.network.clone()),
        }
    }

    /// The session is set up, and at rest: from here on the link fails as planned.
    pub fn arm(&self) {
        self.network.arm(&self.faults);
    }

    /// What a call that promises nothing about data yet answered; a failure here can only be the link's.
    pub fn post(&self, call: &str, status: i32) {
        if status != 0 {
            let mut lost = lock(&self.lost);
            lost.get_or_insert_with(|| format!("{call} answered {status}"));
        }
    }

    /// What a call answered that, where it succeeds, claims that everything before it is done and that the targets hold their bytes.
    pub fn claim(&self, call: &str, status: i32, targets: &[&Arc<Target>]) {
        self.post(call, status);
        if status != 0 {
            for target in targets {
                // SAFETY: the call failed, so the memory is the application's again.
                unsafe { std::ptr::write_bytes(target.start, GIVEN_UP, target.size) };
                lock(&self.given_up).push(Arc::clone(target));
            }
            return;
        }
        if let Some(lost) = &*lock(&self.lost) {
            self.complain(format!("{call} succeeds although {lost} before"));
        }
        for target in targets {
            if let Some(at) = target.wrong_at() {
                let size = target.size;
                self.complain(format!("{call} succeeds, and byte {at} of {size} is wrong"));
            }
        }
    }

    /// As [`Self::claim`], of something that ends by itself: what was lost meanwhile does not make it wrong to have ended before.
    pub fn ended(&self, what: &str, ok: bool, targets: &[&Arc<Target>]) {
        for target in targets.iter().filter(|_| ok) {
            if let Some(at) = target.wrong_at() {
                let size = target.size;
                self.complain(format!(
                    "{what} is told as done, and byte {at} of {size} is wrong"
                ));
            }
        }
    }

    /// Notes what must not be.
    pub fn complain(&self, what: String) {
        lock(&self.wrong).push(what);
    }

    /// The session has ended: whether memory that was given up is as it was left.
    fn judge(&self) -> Vec<String> {
        let mut wrong = std::mem::take(&mut *lock(&self.wrong));
        let lost = lock(&self.lost);
        wrong.extend(
            lost.iter()
                .filter(|_| self.heals)
                .map(|lost| format!("{lost} although the link is back")),
        );
        drop(lost);
        for target in lock(&self.given_up).iter() {
            if target.bytes().iter().any(|byte| *byte != GIVEN_UP) {
                wrong.push("memory was written to after the call that lent it had failed".into());
            }
        }
        wrong
    }
}

/// How a stall ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Resolution {
    Resume,
    Cut,
}

#[derive(Clone, Debug)]
struct Case {
    fault: Fault,
    has_control: bool,
    resolution: Resolution,
}

/// Runs a program with every fault of its plan, or with so many of them that lie evenly in it. The program makes its connections by the
/// run's transport, and ends its session before it returns.
pub fn check(program: impl Fn(&Arc<Run>) + Send + Sync + 'static, limit: usize) {
    check_links(Arc::new(program), limit, false);
}

/// As [`check`], where each connection that breaks gets another link: every call has to succeed.
pub fn check_healed(program: impl Fn(&Arc<Run>) + Send + Sync + 'static, limit: usize) {
    check_links(Arc::new(program), limit, true);
}

fn check_links(program: Program, limit: usize, heals: bool) {
    let (sound, wrong) = attempt(&program, Run::new(Vec::new(), false, heals), None);
    assert_eq!(wrong, [""; 0], "over a sound link");
    assert_eq!(*lock(&sound.lost), None, "over a sound link");
    let cases = spread(plan(&sound.network), limit);
    assert!(!cases.is_empty(), "nothing was sent");
    let (next, struck, found) = (
        AtomicUsize::new(0),
        AtomicUsize::new(0),
        Mutex::new(Vec::new()),
    );
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::SeqCst)) {
                    let run = Run::new(vec![case.fault], case.has_control && !heals, heals);
                    let (run, wrong) = attempt(&program, run, Some(case));
                    let strikes = run.network.wait_struck(Duration::ZERO);
                    struck.fetch_add(usize::from(strikes), Ordering::SeqCst);
                    if !wrong.is_empty() {
                        lock(&found).push(format!("{case:?}: {}", wrong.join("; ")));
                    }
                }
            });
        }
    });
    let found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    assert!(
        found.is_empty(),
        "{} of {} cases are wrong:\n{}",
        found.len(),
        cases.len(),
        found
            .iter()
            .take(20)
            .cloned()
            .collect::<Vec<_>>()
            .join("\n")
    );
    // Which lane takes which chunk differs from run to run, so some offsets are never reached.
    let struck = struck.into_inner();
    assert!(
        struck * 2 > cases.len(),
        "only {struck} of {} faults struck",
        cases.len()
    );
}

/// One run, with what is wrong about it.
fn attempt(program: &Program, run: Run, case: Option<&Case>) -> (Arc<Run>, Vec<String>) {
    let run = Arc::new(run);
    let (sender, ended) = channel::<()>();
    let (running, program) = (Arc::clone(&run), Arc::clone(program));
    let thread = std::thread::spawn(move || {
        // Dropped, also by a panic, when the program has ended.
        let _sender = sender;
        program(&running);
    });
    if let Some(case) = case.filter(|case| case.fault.kind == FaultKind::Stall) {
        resolve(&run.network, case.resolution, &ended);
    }
    if ended.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
        // The thread is left behind: nothing ends it.
        return (run, vec![format!("the program hangs after {PATIENCE:?}")]);
    }
    let crashed = thread.join().is_err();
    let mut wrong = run.judge();
    if crashed {
        wrong.push("the program panicked".into());
    }
    (run, wrong)
}

/// Ends a stall some time after it began, unless the program never gets so far.
fn resolve(
    network: &MemoryTransport,
    resolution: Resolution,
    ended: &std::sync::mpsc::Receiver<()>,
) {
    while !network.wait_struck(STALL) {
        if ended.try_recv() == Err(std::sync::mpsc::TryRecvError::Disconnected) {
            return;
        }
    }
    std::thread::sleep(STALL);
    for monitor in network.monitors() {
        match resolution {
            Resolution::Resume => monitor.resume(),
            Resolution::Cut => monitor.cut(),
        }
    }
}

/// Before each part of each send and in its middle, in both directions of each connection: every kind of fault, of this connection alone
/// and of all of them.
fn plan(sound: &MemoryTransport) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut stalls = Vec::new();
    for (connection, monitor) in sound.monitors().iter().enumerate() {
        for sender in [End::Client, End::Server] {
            for sent in monitor.sends(sender) {
                let middle = sent.start.midpoint(sent.end);
                let mut offsets = vec![sent.start, middle];
                offsets.dedup();
                for at_bytes in offsets {
                    for kind in [
                        FaultKind::Cut,
                        FaultKind::Reset,
                        FaultKind::HalfClose,
                        FaultKind::Stall,
                    ] {
                        for to_all in [false, true] {
                            let fault = Fault {
                                connection,
                                sender,
                                at_bytes,
                                kind,
                                to_all,
                            };
                            let into = match kind {
                                FaultKind::Stall => &mut stalls,
                                _ => &mut cases,
                            };
                            into.push(Case {
                                fault,
                                has_control: false,
                                resolution: Resolution::Resume,
                            });
                        }
                    }
                }
            }
        }
    }
    // A client that waits for the server's word does so for a second, asleep.
    for (index, case) in cases.iter_mut().enumerate() {
        case.has_control = index % 7 == 0;
    }
    let mut stalls = spread(stalls, STALLS);
    for case in stalls.iter_mut().skip(1).step_by(2) {
        case.resolution = Resolution::Cut;
    }
    cases.extend(stalls);
    cases
}

/// At most `limit` of them, evenly spaced.
fn spread(cases: Vec<Case>, limit: usize) -> Vec<Case> {
    let count = cases.len();
    if count <= limit {
        return cases;
    }
    let picked = (0..limit).map(|index| index * count / limit);
    picked
        .filter_map(|index| cases.get(index).cloned())
        .collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
