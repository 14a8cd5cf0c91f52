//! Accesses of the application to pages that are protected. Its thread stands still until the page may be used; a thread of ours sees to
//! that, because a signal handler may do next to nothing. Faults that are none of ours go to whoever handled them before.

use std::cell::UnsafeCell;
use std::io::{PipeReader, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::IntoRawFd as _;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use libc::{c_int, c_void, siginfo_t};

use super::Mirror;

/// Places of mirrors, for the handler.
static PLACES: Chunk = Chunk::new();
/// The mirrors, for the thread, in the order of their places. The weak references of those that are free lead nowhere.
static MIRRORS: Mutex<Vec<(usize, usize, Weak<Mirror>)>> = Mutex::new(Vec::new());
/// Where the handler writes requests; -1 before there is a thread.
static REQUESTS: AtomicI32 = AtomicI32::new(-1);
/// The process whose thread that is: a child after fork has none.
static OWNER: AtomicI32 = AtomicI32::new(0);
/// What handled the signal before.
static BEFORE: OnceLock<Before> = OnceLock::new();
/// Faults that handlers before ours are called for.
static PASSED: [Passed; 16] = [const { Passed::new() }; 16];

/// Places of one mirror each. Never freed, since a handler may be reading them, but used again.
struct Chunk {
    places: [Place; CHUNK],
    next: AtomicPtr<Chunk>,
}

const CHUNK: usize = 256;

/// Begins and ends at the same address where there is none. The handler may see a beginning and an end of two mirrors, which it then asks
/// for in vain; of a mirror that the application knows it sees both.
struct Place {
    start: AtomicUsize,
    end: AtomicUsize,
}

impl Place {
    const fn new() -> Self {
        Self {
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
        }
    }
}

impl Chunk {
    const fn new() -> Self {
        Self {
            places: [const { Place::new() }; CHUNK],
            next: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    fn next(&self) -> Option<&'static Self> {
        // SAFETY: chunks are never freed.
        unsafe { self.next.load(Ordering::Acquire).as_ref() }
    }
}

fn chunks() -> impl Iterator<Item = &'static Chunk> {
    std::iter::successors(Some(&PLACES), |chunk| chunk.next())
}

struct Before {
    /// Before ours was installed at all.
    first: libc::sigaction,
    /// Before ours was installed last.
    latest: UnsafeCell<libc::sigaction>,
}
// SAFETY: it is written under the lock of `MIRRORS`, and read by handlers, which see it whole: it is written before ours is installed.
unsafe impl Sync for Before {}
// SAFETY: it is plain data.
unsafe impl Send for Before {}

/// A fault that a handler before ours is called for: the place of its registers, and that of our handler's frame; zeros where there is none.
struct Passed {
    registers: AtomicUsize,
    frame: AtomicUsize,
}

impl Passed {
    const fn new() -> Self {
        Self {
            registers: AtomicUsize::new(0),
            frame: AtomicUsize::new(0),
        }
    }

    /// Whether it is this fault's, from now on. One that its handler has jumped away from is given to the next with the same place.
    fn take(&self, registers: usize) -> bool {
        let (own, order) = (Ordering::AcqRel, Ordering::Acquire);
        let taken = self.registers.compare_exchange(0, registers, own, order);
        taken.is_ok() || taken == Err(registers)
    }

    fn end(&self) {
        self.frame.store(0, Ordering::Relaxed);
        self.registers.store(0, Ordering::Release);
    }
}

/// A page that somebody waits for; it lies on the stack of the thread that waits.
struct Request {
    address: usize,
    /// The access is known to be a write.
    writes: bool,
    /// 0 while it waits, then 1, or 2 where the page cannot be had.
    outcome: AtomicU32,
}

const WAITING: u32 = 0;
const SERVED: u32 = 1;
const FAILED: u32 = 2;

fn lock() -> std::sync::MutexGuard<'static, Vec<(usize, usize, Weak<Mirror>)>> {
    MIRRORS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says where the mirror with a number lies; the list of mirrors is locked.
fn publish(number: usize, start: usize, end: usize) {
    let mut chunk = &PLACES;
    for _ in 0..number / CHUNK {
        chunk = chunk.next().unwrap_or_else(|| {
            let next = Box::into_raw(Box::new(Chunk::new()));
            chunk.next.store(next, Ordering::Release);
            // SAFETY: it is never freed.
            unsafe { &*next }
        });
    }
    let place = &chunk.places[number % CHUNK];
    place.end.store(0, Ordering::Release);
    place.start.store(start, Ordering::Release);
    place.end.store(end, Ordering::Release);
}

/// Has faults in a mirror served from now on; whether they can be.
pub(super) fn add(mirror: &Arc<Mirror>) -> bool {
    let (start, size) = mirror.place();
    let mut mirrors = lock();
    if !is_running() && !start_thread() {
        return false;
    }
    let free = mirrors
        .iter()
        .position(|(_, _, known)| known.strong_count() == 0);
    let number = free.unwrap_or(mirrors.len());
    let known = (start, start + size, Arc::downgrade(mirror));
    match mirrors.get_mut(number) {
        Some(free) => *free = known,
        None => mirrors.push(known),
    }
    publish(number, start, start + size);
    install();
    true
}

/// A mirror is about to end.
pub(super) fn remove(mirror: &Mirror) {
    let mut mirrors = lock();
    let is_it = |(_, _, known): &(usize, usize, Weak<Mirror>)| std::ptr::eq(known.as_ptr(), mirror);
    if let Some(number) = mirrors.iter().position(is_it) {
        mirrors[number] = (0, 0, Weak::new());
        publish(number, 0, 0);
    }
}

fn is_running() -> bool {
    OWNER.load(Ordering::Acquire) == std::process::id() as i32
}

fn start_thread() -> bool {
    let Ok((reading, writing)) = std::io::pipe() else {
        return false;
    };
    let thread = towline_client::threads::named("towline-mirror");
    if thread.spawn(move || serve(reading)).is_err() {
        return false;
    }
    REQUESTS.store(writing.into_raw_fd(), Ordering::Release);
    OWNER.store(std::process::id() as i32, Ordering::Release);
    true
}

/// Makes our handler the first, also after the application has put its own before it.
pub(super) fn install() {
    let mut now = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: one place for what is installed.
    let asked = unsafe { libc::sigaction(libc::SIGSEGV, std::ptr::null(), now.as_mut_ptr()) };
    // SAFETY: zeros are a value of it, whatever the call has written.
    let now = unsafe { now.assume_init() };
    let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = handle;
    let ours = handler as *const () as usize;
    if asked != 0 || now.sa_sigaction == ours {
        return;
    }
    let before = BEFORE.get_or_init(|| Before {
        first: now,
        latest: UnsafeCell::new(now),
    });
    // SAFETY: see `Before`: what other threads may read meanwhile is the handler that was there, or the one that is.
    unsafe { before.latest.get().write(now) };
    let mut action = now;
    action.sa_sigaction = ours;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    // SAFETY: the set is a local.
    unsafe { libc::sigemptyset(&raw mut action.sa_mask) };
    // SAFETY: the handler keeps to what signal handlers may do.
    unsafe { libc::sigaction(libc::SIGSEGV, &raw const action, std::ptr::null_mut()) };
}

/// The handler. It takes no lock, allocates nothing, and leaves `errno` as it was.
extern "C" fn handle(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel gives the handler what happened.
    let happened = unsafe { info.read() };
    // SAFETY: a fault has an address.
    let address = unsafe { happened.si_addr() }.addr();
    if is_ours(address) && wait_for(address, is_write(context)) {
        return;
    }
    pass_on(signal, info, context);
}

/// Whether an access that faults is a write, where the processor tells.
#[cfg(target_arch = "x86_64")]
fn is_write(context: *mut c_void) -> bool {
    /// Bit of a page fault's error code.
    const WRITE: libc::greg_t = 2;
    let context: *const libc::ucontext_t = context.cast_const().cast();
    // SAFETY: the kernel gives handlers with SA_SIGINFO a context of this kind.
    let registers = unsafe { &raw const (*context).uc_mcontext.gregs };
    // SAFETY: as above.
    let registers = unsafe { registers.read() };
    registers[libc::REG_ERR as usize] & WRITE != 0
}

/// Whether an access that faults is a write, where the processor tells.
#[cfg(not(target_arch = "x86_64"))]
fn is_write(_context: *mut c_void) -> bool {
    false
}

fn is_ours(address: usize) -> bool {
    is_running() && is_in_mirror(address)
}

fn is_in_mirror(address: usize) -> bool {
    let mut places = chunks().flat_map(|chunk| &chunk.places);
    places.any(|place| {
        let start = place.start.load(Ordering::Acquire);
        (start..place.end.load(Ordering::Acquire)).contains(&address)
    })
}

/// Waits until the page may be used; `false` where it cannot be had.
fn wait_for(address: usize, writes: bool) -> bool {
    let request = Request {
        address,
        writes,
        outcome: AtomicU32::new(WAITING),
    };
    let place = (&raw const request).expose_provenance().to_ne_bytes();
    // SAFETY: every thread has its own.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let saved = unsafe { errno.read() };
    let requests = REQUESTS.load(Ordering::Acquire);
    // SAFETY: the bytes are a local.
    let written = unsafe { libc::write(requests, place.as_ptr().cast(), place.len()) };
    let asked = written == place.len() as isize;
    while asked && request.outcome.load(Ordering::Acquire) == WAITING {
        let word: *const AtomicU32 = &raw const request.outcome;
        let forever: *const libc::timespec = std::ptr::null();
        // SAFETY: the word is a local, which outlives the call.
        unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAIT, WAITING, forever) };
    }
    // SAFETY: as above.
    unsafe { errno.write(saved) };
    asked && request.outcome.load(Ordering::Acquire) == SERVED
}

/// Does with a fault what would have been done without us. A handler that was put in after ours may call ours in turn, which then calls the
/// one that was there first.
fn pass_on(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let (registers, mark) = (context.addr(), 0_u8);
    let frame = (&raw const mark).addr();
    let Some(before) = BEFORE.get() else {
        return call(None, signal, info, context);
    };
    let of = |passed: &&Passed| passed.registers.load(Ordering::Acquire) == registers;
    let known = PASSED.iter().find(of);
    // Stacks grow downwards.
    if known.is_some_and(|known| known.frame.load(Ordering::Relaxed) > frame) {
        return call(Some(before.first), signal, info, context);
    }
    let mut places = known.into_iter().chain(&PASSED);
    let place = places.find(|place| place.take(registers));
    if let Some(place) = place {
        place.frame.store(frame, Ordering::Relaxed);
    }
    // SAFETY: see `Before`.
    let latest = unsafe { before.latest.get().read() };
    call(Some(latest), signal, info, context);
    place.into_iter().for_each(Passed::end);
}

/// Calls a handler for a fault.
fn call(
    handler: Option<libc::sigaction>,
    signal: c_int,
    info: *mut siginfo_t,
    context: *mut c_void,
) {
    type Long = extern "C" fn(c_int, *mut siginfo_t, *mut c_void);
    type Short = extern "C" fn(c_int);
    match handler {
        Some(before) if !matches!(before.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN) => {
            if before.sa_flags & libc::SA_SIGINFO != 0 {
                // SAFETY: the application has installed a handler of this kind.
                let handler: Long = unsafe { std::mem::transmute(before.sa_sigaction) };
                handler(signal, info, context);
            } else {
                // SAFETY: as above.
                let handler: Short = unsafe { std::mem::transmute(before.sa_sigaction) };
                handler(signal);
            }
        }
        _ => {
            // The instruction faults again, and the process ends as it would have.
            // SAFETY: the default is restored.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
    }
}

/// Serves requests as long as the process lives.
fn serve(mut reading: PipeReader) {
    let mut place = [0; size_of::<usize>()];
    while reading.read_exact(&mut place).is_ok() {
        let place = std::ptr::with_exposed_provenance::<Request>(usize::from_ne_bytes(place));
        // SAFETY: whoever waits has written it, and its request is there until it has been answered.
        let request = unsafe { &*place };
        let (address, writes) = (request.address, request.writes);
        let mirror = {
            let mirrors = lock();
            let of =
                |(start, end, _): &&(usize, usize, Weak<Mirror>)| (*start..*end).contains(&address);
            mirrors
                .iter()
                .find(of)
                .and_then(|(.., mirror)| mirror.upgrade())
        };
        let served = mirror.is_some_and(|mirror| {
            // The session does not move meanwhile.
            let _under_way = crate::moving::CALLS.enter();
            mirror.serve(address, writes)
        });
        let outcome = if served { SERVED } else { FAILED };
        request.outcome.store(outcome, Ordering::Release);
        let word: *const AtomicU32 = &raw const request.outcome;
        // SAFETY: only the address is used: the request may be gone already.
        unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE, 1) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static CALLED: AtomicUsize = AtomicUsize::new(0);

    extern "C" fn first(_: c_int, _: *mut siginfo_t, _: *mut c_void) {
        CALLED.fetch_add(1, Ordering::Relaxed);
    }

    extern "C" fn chaining(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
        CALLED.fetch_add(100, Ordering::Relaxed);
        // Those that it replaced.
        handle(signal, info, context);
    }

    #[test]
    fn handlers_that_call_ours_reach_the_first() {
        let put = |handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void)| {
            // SAFETY: zeros are a value of it.
            let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
            action.sa_sigaction = handler as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            // SAFETY: nothing of this process faults meanwhile.
            unsafe { libc::sigaction(libc::SIGSEGV, &raw const action, std::ptr::null_mut()) };
            install();
        };
        put(first);
        put(chaining);
        // SAFETY: zeros are a value of it.
        let mut info: siginfo_t = unsafe { std::mem::zeroed() };
        let mut registers = 0_u8;
        for round in 1..4 {
            handle(
                libc::SIGSEGV,
                &raw mut info,
                (&raw mut registers).cast::<c_void>(),
            );
            assert_eq!(CALLED.load(Ordering::Relaxed), round * 101);
        }
        assert!(
            PASSED
                .iter()
                .all(|one| one.registers.load(Ordering::Relaxed) == 0)
        );
    }

    #[test]
    fn places_of_mirrors_come_and_go() {
        let of = |number: usize| 0x10_0000 * (number + 1);
        let numbers = CHUNK - 1..2 * CHUNK + 2;
        let are_there = || {
            let mut numbers = numbers.clone();
            numbers.all(|number| is_in_mirror(of(number) + 7) && !is_in_mirror(of(number) + 8))
        };
        let known = lock();
        let publish_all =
            |bytes| (numbers.clone()).for_each(|at| publish(at, of(at), of(at) + bytes));
        publish_all(8);
        assert!(are_there());
        let chunks_before = chunks().count();
        publish_all(0);
        assert!(!numbers.clone().any(|number| is_in_mirror(of(number))));
        publish_all(8);
        assert!(are_there());
        publish_all(0);
        assert_eq!((chunks_before, chunks().count()), (3, 3));
        drop(known);
    }
}
