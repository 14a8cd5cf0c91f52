//! Starts a program without copying this process first.
//!
//! `fork`, which `std::process::Command` uses as soon as something has to be done before the program runs, copies the tables of all this
//! process has mapped. A supervisor with a thousand sessions has thousands of stacks mapped: a start then took over 20 ms, and every
//! write of every thread a page fault afterwards. Here the child borrows this process's memory until it executes the program, and the
//! calling thread waits that long, as in `posix_spawn`, which cannot do what workers need done.

#![allow(unsafe_code)]

use std::ffi::{CString, OsStr, c_char, c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::ptr;

use rustix::io::Errno;
use rustix::process::{Pid, WaitId, WaitIdOptions};

/// Bytes of the child's stack until it executes the program. It makes a dozen system calls there.
const STACK_BYTES: usize = 256 << 10;

/// A program to start, in the form that the kernel takes it.
pub(crate) struct Program {
    path: CString,
    arguments: Vec<CString>,
    environment: Vec<CString>,
}

impl Program {
    /// `arguments` begin with the name by which the program is to know itself.
    pub(crate) fn new<'a>(
        path: &OsStr,
        arguments: impl IntoIterator<Item = &'a OsStr>,
        environment: impl IntoIterator<Item = (&'a OsStr, &'a OsStr)>,
    ) -> io::Result<Self> {
        let variable = |(name, value): (&OsStr, &OsStr)| {
            Ok(CString::new(
                [name.as_bytes(), b"=", value.as_bytes()].concat(),
            )?)
        };
        Ok(Self {
            path: CString::new(path.as_bytes())?,
            arguments: arguments
                .into_iter()
                .map(|argument| Ok(CString::new(argument.as_bytes())?))
                .collect::<io::Result<_>>()?,
            environment: environment
                .into_iter()
                .map(variable)
                .collect::<io::Result<_>>()?,
        })
    }

    /// Starts it as a child in the new namespaces of `namespaces` (flags of `clone`), with no signal blocked or ignored, in the state that
    /// `prepare` leaves. Gives its number and a descriptor of it.
    ///
    /// # Safety
    ///
    /// `prepare` runs in the child, in this process's memory and beside its other threads: it makes only system calls, by functions that
    /// are safe in a signal handler, and does not panic.
    pub(crate) unsafe fn start(
        &self,
        namespaces: c_int,
        prepare: &mut dyn FnMut() -> io::Result<()>,
    ) -> io::Result<(Pid, OwnedFd)> {
        let arguments = pointers(&self.arguments);
        let environment = pointers(&self.environment);
        let mut child = Child {
            program: self,
            arguments: &arguments,
            environment: &environment,
            prepare,
            failure: 0,
        };
        let mut stack: Vec<MaybeUninit<u8>> = Vec::with_capacity(STACK_BYTES);
        // Stacks grow down on every machine that this is built for, from an address that 16 divides.
        let top = stack.as_mut_ptr().wrapping_add(STACK_BYTES);
        let top = top.wrapping_sub(top.addr() % 16);
        let mut descriptor: c_int = -1;
        let shared = libc::CLONE_VM | libc::CLONE_VFORK;
        let flags = namespaces | shared | libc::CLONE_PIDFD | libc::SIGCHLD;
        // A handler that ran in the child would run in this process's memory.
        let blocked = AllSignalsBlocked::new();
        // SAFETY: `execute` is given a `Child` that outlives the call, for CLONE_VFORK lets this thread go on only when the child has
        // executed or ended; the stack is as long, nobody else's, and large enough for it; `descriptor` is where CLONE_PIDFD has the
        // kernel write.
        let pid = unsafe {
            libc::clone(
                execute,
                top.cast(),
                flags,
                (&raw mut child).cast(),
                &raw mut descriptor,
            )
        };
        let outcome = match pid {
            -1 => Err(io::Error::last_os_error()),
            pid => Ok(pid),
        };
        drop(blocked);
        let failure = child.failure;
        drop(stack);
        let pid = Pid::from_raw(outcome?).ok_or(Errno::SRCH)?;
        // SAFETY: the kernel made it for this call, so that nobody else owns it.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
        match failure {
            0 => Ok((pid, descriptor)),
            errno => {
                // It has ended: this only takes its status, which says less than the number.
                let _ = rustix::process::waitid(
                    WaitId::PidFd(descriptor.as_fd()),
                    WaitIdOptions::EXITED,
                );
                Err(io::Error::from_raw_os_error(errno))
            }
        }
    }
}

/// What the child needs, and where it says why it could not execute the program.
struct Child<'a> {
    program: &'a Program,
    arguments: &'a [*const c_char],
    environment: &'a [*const c_char],
    prepare: &'a mut dyn FnMut() -> io::Result<()>,
    failure: c_int,
}

/// Body of the child.
extern "C" fn execute(child: *mut c_void) -> c_int {
    // SAFETY: `Program::start` passes its own, which it does not touch before this process has executed or ended.
    let child = unsafe { &mut *child.cast::<Child<'_>>() };
    let prepared = restore_signals().and_then(|()| (child.prepare)());
    let error = match prepared {
        Err(error) => error,
        Ok(()) => {
            // SAFETY: a string and two lists of strings, each with its end, that outlive the call.
            unsafe {
                libc::execve(
                    child.program.path.as_ptr(),
                    child.arguments.as_ptr(),
                    child.environment.as_ptr(),
                )
            };
            io::Error::last_os_error()
        }
    };
    child.failure = error.raw_os_error().unwrap_or(libc::EIO);
    // SAFETY: no destructor and no exit handler of this process must run in the child.
    unsafe { libc::_exit(127) }
}

/// Gives up all handlers, then unblocks all signals. Ignored ones that a program would inherit count as handled.
fn restore_signals() -> io::Result<()> {
    // SAFETY: an integer and a set of bits, for which zero is a value: the default action, and no flags.
    let default: libc::sigaction = unsafe { std::mem::zeroed() };
    for signal in 1..=libc::SIGRTMAX() {
        // Refused for the two that have no handler, and those that the C library keeps to itself.
        // SAFETY: `default` is initialised; the old action is not asked for.
        unsafe { libc::sigaction(signal, &raw const default, ptr::null_mut()) };
    }
    let mut none = MaybeUninit::uninit();
    // SAFETY: the place is large enough, and initialised by this call.
    unsafe { libc::sigemptyset(none.as_mut_ptr()) };
    // SAFETY: the set was initialised just now; the old one is not asked for.
    let outcome =
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, none.as_ptr(), ptr::null_mut()) };
    match outcome {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// No signal reaches the thread that made it until it is dropped there.
pub(crate) struct AllSignalsBlocked {
    before: libc::sigset_t,
}

impl AllSignalsBlocked {
    pub(crate) fn new() -> Self {
        let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: the place is large enough, and initialised by this call, which fails for no such place.
        unsafe { libc::sigfillset(all.as_mut_ptr()) };
        // SAFETY: the set was initialised just now, and the old one is written to a place that is large enough. It only fails for an
        // unknown first argument.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        }
        // SAFETY: written by the call.
        let before = unsafe { before.assume_init() };
        Self { before }
    }
}

impl Drop for AllSignalsBlocked {
    fn drop(&mut self) {
        // SAFETY: the set that was this thread's; the present one is not asked for.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, ptr::null_mut())
        };
    }
}

/// A list of strings as C has it.
fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    let pointers = strings.iter().map(|string| string.as_ptr());
    pointers.chain([ptr::null()]).collect()
}
