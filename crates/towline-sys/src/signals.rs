//! Signals as a blocking call, so that no code runs in signal handlers.

#![allow(unsafe_code)]

use std::mem::MaybeUninit;

use crate::{Context, SysError};

/// Signals that are blocked in this thread and every thread it starts later, and can be waited for.
///
/// Make it first thing in `main`: a thread that exists already would still be hit. Programs started with
/// `std::process::Command` have them unblocked.
#[derive(Debug)]
pub struct BlockedSignals {
    set: libc::sigset_t,
}

impl BlockedSignals {
    /// The signals that ask a server to end or to read its configuration again. SIGHUP stays ignored where `nohup` had it ignored, unless it
    /// `reloads`.
    pub fn of_server(reloads: bool) -> Result<Self, SysError> {
        match reloads || !is_ignored(libc::SIGHUP) {
            true => Self::block(&[libc::SIGTERM, libc::SIGINT, libc::SIGHUP]),
            false => Self::block(&[libc::SIGTERM, libc::SIGINT]),
        }
    }

    /// The signals that a program which runs another one passes on, and SIGCHLD.
    pub fn of_parent() -> Result<Self, SysError> {
        use libc::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
        Self::block(&[SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD])
    }

    /// Waits for one of the signals and gives its number.
    pub fn wait(&self) -> Result<i32, SysError> {
        let mut signal = 0;
        // SAFETY: `set` is initialised (`block`) and `signal` is writable.
        match unsafe { libc::sigwait(&self.set, &mut signal) } {
            0 => Ok(signal),
            errno => {
                Err(std::io::Error::from_raw_os_error(errno)).while_trying_to("wait for a signal")
            }
        }
    }

    fn block(signals: &[i32]) -> Result<Self, SysError> {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: `set` is writable; sigemptyset initialises all of it.
        unsafe { libc::sigemptyset(set.as_mut_ptr()) };
        // SAFETY: initialised by sigemptyset, which cannot fail for a valid pointer.
        let mut set = unsafe { set.assume_init() };
        for signal in signals {
            // SAFETY: `set` is an initialised signal set.
            unsafe { libc::sigaddset(&mut set, *signal) };
        }
        // SAFETY: `set` is an initialised signal set; the old mask is not asked for.
        match unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) } {
            0 => Ok(Self { set }),
            errno => Err(std::io::Error::from_raw_os_error(errno)).while_trying_to("block signals"),
        }
    }
}

/// Whether a signal says that the terminal has gone, or asks a server with a file to read it again.
pub fn is_hangup(signal: i32) -> bool {
    signal == libc::SIGHUP
}

/// Whether this process ignores a signal. One that is blocked would be waited for all the same.
fn is_ignored(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: `action` is writable, and no other action is given.
    let failed = unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) } != 0;
    // SAFETY: all of it is zero or written by sigaction.
    let action = unsafe { action.assume_init() };
    !failed && action.sa_sigaction == libc::SIG_IGN
}

/// The name of a signal, as in `SIGSEGV`.
pub fn signal_name(signal: i32) -> String {
    let name = match signal {
        libc::SIGABRT => "SIGABRT",
        libc::SIGALRM => "SIGALRM",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGHUP => "SIGHUP",
        libc::SIGILL => "SIGILL",
        libc::SIGINT => "SIGINT",
        libc::SIGKILL => "SIGKILL",
        libc::SIGPIPE => "SIGPIPE",
        libc::SIGQUIT => "SIGQUIT",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGSYS => "SIGSYS",
        libc::SIGTERM => "SIGTERM",
        libc::SIGTRAP => "SIGTRAP",
        libc::SIGXCPU => "SIGXCPU",
        libc::SIGXFSZ => "SIGXFSZ",
        other => return format!("signal {other}"),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocked_signal_is_delivered_to_the_waiter() {
        let signal = std::thread::spawn(|| {
            let signals = BlockedSignals::of_parent().unwrap();
            // SAFETY: sends a blocked signal to this very thread.
            unsafe { libc::raise(libc::SIGUSR1) };
            signals.wait().unwrap()
        });
        assert_eq!(signal.join().unwrap(), libc::SIGUSR1);
    }
}
