//! Threads of the libraries in a program: its signals are for its own threads, as with vendors' libraries.

use std::io;
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};

/// A thread that is to be started.
#[derive(Debug)]
pub struct Named(Builder);

/// A thread of this name.
pub fn named(name: &str) -> Named {
    Named(Builder::new().name(name.into()))
}

impl Named {
    /// As `std::thread::Builder::spawn`; no signal comes to the thread but those that it causes itself.
    pub fn spawn<T: Send + 'static>(
        self,
        run: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<JoinHandle<T>> {
        let _blocked = Blocked::begin();
        self.0.spawn(run)
    }

    /// As [`Self::spawn`], in a scope.
    pub fn spawn_scoped<'scope, T: Send + 'scope>(
        self,
        scope: &'scope Scope<'scope, '_>,
        run: impl FnOnce() -> T + Send + 'scope,
    ) -> io::Result<ScopedJoinHandle<'scope, T>> {
        let _blocked = Blocked::begin();
        self.0.spawn_scoped(scope, run)
    }
}

/// Keeps signals from this thread, and from those that it starts.
#[cfg(unix)]
struct Blocked(Option<libc::sigset_t>);

#[cfg(unix)]
impl Blocked {
    fn begin() -> Self {
        /// Signals that a thread causes itself must come: programs and our own mirrors of memory handle it.
        const OWN: [libc::c_int; 7] = [
            libc::SIGABRT,
            libc::SIGBUS,
            libc::SIGFPE,
            libc::SIGILL,
            libc::SIGSEGV,
            libc::SIGSYS,
            libc::SIGTRAP,
        ];
        let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        let mut before = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: the set is written.
        unsafe { libc::sigfillset(all.as_mut_ptr()) };
        for signal in OWN {
            // SAFETY: the set was filled just now.
            unsafe { libc::sigdelset(all.as_mut_ptr(), signal) };
        }
        // SAFETY: one set is read, the other written.
        let blocked =
            unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr()) };
        // SAFETY: the call has written it where it succeeded.
        Self((blocked == 0).then(|| unsafe { before.assume_init() }))
    }
}

#[cfg(unix)]
impl Drop for Blocked {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // SAFETY: the set is this thread's from before.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, std::ptr::null_mut()) };
        }
    }
}

#[cfg(not(unix))]
struct Blocked;

#[cfg(not(unix))]
impl Blocked {
    fn begin() -> Self {
        Self
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// The signals that the calling thread takes none of, a bit each.
    fn blocked() -> u64 {
        let status = std::fs::read_to_string("/proc/thread-self/status").expect("it is there");
        let line = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
        u64::from_str_radix(line.expect("it is told").trim(), 16).expect("it is a number")
    }

    #[test]
    fn signals_stay_with_the_programs_threads() {
        let before = blocked();
        let there = named("test").spawn(blocked).and_then(|thread| {
            let joined = thread.join();
            joined.map_err(|_| io::Error::other("it panicked"))
        });
        let bit = |signal: libc::c_int| 1_u64 << (signal - 1);
        let there = there.expect("it ran");
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGUSR1, libc::SIGCHLD] {
            assert_ne!(there & bit(signal), 0, "signal {signal}");
        }
        assert_eq!(there & bit(libc::SIGSEGV), 0);
        assert_eq!(blocked(), before);
    }
}
