//! Accesses of the application to pages that are protected. Its thread stands still until the page may be used; a thread of ours sees to
//! that, because a signal handler may do next to nothing. Faults that are none of ours go to whoever handled them before.

use std::cell::UnsafeCell;
use std::io::{PipeReader, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::IntoRawFd as _;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use libc::{c_int, c_void, siginfo_t};

use super::Mirror;

/// Where mirrors lie, for the handler: replaced as a whole, and never freed, since a handler may be reading it.
static PLACES: AtomicPtr<Vec<(usize, usize)>> = AtomicPtr::new(std::ptr::null_mut());
/// The mirrors, for the thread.
static MIRRORS: Mutex<Vec<(usize, usize, Weak<Mirror>)>> = Mutex::new(Vec::new());
/// Where the handler writes requests; -1 before there is a thread.
static REQUESTS: AtomicI32 = AtomicI32::new(-1);
/// The process whose thread that is: a child after fork has none.
static OWNER: AtomicI32 = AtomicI32::new(0);
/// What handled the signal before.
static BEFORE: OnceLock<Before> = OnceLock::new();

struct Before(UnsafeCell<libc::sigaction>);
// SAFETY: it is written under the lock of `MIRRORS`, and read by handlers, which see it whole: it is written before ours is installed.
unsafe impl Sync for Before {}
// SAFETY: it is plain data.
unsafe impl Send for Before {}

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

fn publish(mirrors: &[(usize, usize, Weak<Mirror>)]) {
    let places = mirrors.iter().map(|(start, end, _)| (*start, *end));
    let places = Box::into_raw(Box::new(places.collect()));
    PLACES.store(places, Ordering::Release);
}

/// Has faults in a mirror served from now on; whether they can be.
pub(super) fn add(mirror: &Arc<Mirror>) -> bool {
    let (start, size) = mirror.place();
    let mut mirrors = lock();
    if !is_running() && !start_thread() {
        return false;
    }
    mirrors.retain(|(_, _, mirror)| mirror.strong_count() > 0);
    mirrors.push((start, start + size, Arc::downgrade(mirror)));
    publish(&mirrors);
    install();
    true
}

/// A mirror is about to end.
pub(super) fn remove(start: usize) {
    let mut mirrors = lock();
    mirrors.retain(|(at, ..)| *at != start);
    publish(&mirrors);
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
    let before = BEFORE.get_or_init(|| Before(UnsafeCell::new(now)));
    // SAFETY: see `Before`: what other threads may read meanwhile is the handler that was there, or the one that is.
    unsafe { before.0.get().write(now) };
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
    let places = PLACES.load(Ordering::Acquire);
    // SAFETY: what is published is never freed.
    let places = unsafe { places.as_ref() };
    let mut places = places.into_iter().flatten();
    is_running() && places.any(|(start, end)| (*start..*end).contains(&address))
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

/// Does with a fault what would have been done without us.
fn pass_on(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    type Long = extern "C" fn(c_int, *mut siginfo_t, *mut c_void);
    type Short = extern "C" fn(c_int);
    // SAFETY: see `Before`.
    let before = BEFORE.get().map(|before| unsafe { before.0.get().read() });
    match before {
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
