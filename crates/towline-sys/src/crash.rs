//! What a process says when it crashes. A device's driver runs inside a worker, and a fault there, or one of ours that shows there
//! first, is hard to find without the place.
//!
//! The log gets the signal, the thread and its frames, as module and offset: `addr2line` or the vendor finds the rest.

#![allow(unsafe_code, reason = "a signal handler")]

use libc::{c_int, c_void};

/// The signals of a crash, with their names.
const CRASHES: [(c_int, &str); 5] = [
    (libc::SIGABRT, "SIGABRT"),
    (libc::SIGBUS, "SIGBUS"),
    (libc::SIGFPE, "SIGFPE"),
    (libc::SIGILL, "SIGILL"),
    (libc::SIGSEGV, "SIGSEGV"),
];
/// Most frames that are told.
const FRAMES: usize = 64;

#[cfg(target_env = "gnu")]
unsafe extern "C" {
    /// Of the C library, like the next.
    fn backtrace(buffer: *mut *mut c_void, size: c_int) -> c_int;
    fn backtrace_symbols_fd(buffer: *const *mut c_void, size: c_int, fd: c_int);
}

/// From now on a crash of this process is told on standard error, and then ends it as it would have. To be called before the process
/// is jailed, since what walks the stack is loaded by that.
pub fn tell() {
    #[cfg(target_env = "gnu")]
    {
        let mut frame = std::ptr::null_mut();
        // SAFETY: one place for one frame.
        unsafe { backtrace(&raw mut frame, 1) };
    }
    for (signal, _) in CRASHES {
        // SAFETY: all zeroes is a valid value of this structure.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = crashed as *const () as libc::sighandler_t;
        // Once: the second time is the default action's.
        action.sa_flags = libc::SA_RESETHAND | libc::SA_ONSTACK;
        // SAFETY: the action is whole, and its handler calls only what a handler may.
        unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
    }
}

extern "C" fn crashed(signal: c_int) {
    let name = CRASHES.iter().find(|(number, _)| *number == signal);
    let mut thread = [0_u8; 16];
    // SAFETY: the kernel writes at most 16 bytes.
    unsafe { libc::prctl(libc::PR_GET_NAME, thread.as_mut_ptr()) };
    let end = thread.iter().position(|byte| *byte == 0);
    write(b"towline: crash: ");
    write(name.map_or("a signal", |(_, name)| name).as_bytes());
    write(b" in thread ");
    write(&thread[..end.unwrap_or(thread.len())]);
    write(b"\n");
    #[cfg(target_env = "gnu")]
    {
        let mut frames = [std::ptr::null_mut(); FRAMES];
        // SAFETY: places for so many frames.
        let count = unsafe { backtrace(frames.as_mut_ptr(), FRAMES as c_int) };
        // SAFETY: so many frames are there; this one allocates nothing.
        unsafe { backtrace_symbols_fd(frames.as_ptr(), count, libc::STDERR_FILENO) };
    }
    if rustix::process::getpid().is_init() {
        // The kernel ignores what the first process of a PID namespace sends itself.
        crate::process::exit_now(crate::process::SIGNAL_CODE + signal);
    }
    // A fault would come again by itself; a signal that was sent would not.
    // SAFETY: no pointers.
    unsafe { libc::raise(signal) };
}

fn write(text: &[u8]) {
    // SAFETY: the text is readable; what cannot be written is lost.
    unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use super::*;

    #[test]
    #[ignore = "crashes: the test below runs it in a process of its own"]
    fn crash() {
        tell();
        // SAFETY: none; a signal is what this is for.
        unsafe { libc::raise(libc::SIGSEGV) };
    }

    #[test]
    fn a_crash_is_told_with_its_frames_and_still_ends_the_process() {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crash::tests::crash", "--ignored", "--nocapture"])
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&child.stderr);
        assert!(
            told.contains("towline: crash: SIGSEGV in thread "),
            "{told}"
        );
        #[cfg(target_env = "gnu")]
        assert!(told.contains("towline_sys"), "{told}");
        assert_eq!(child.status.signal(), Some(libc::SIGSEGV));
    }
}
