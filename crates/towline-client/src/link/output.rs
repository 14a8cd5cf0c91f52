//! The text that kernels print, where the program's own output goes: one message at a time, so that those of several sessions do not mix.
//! Text that the output refuses is lost, as the program's own would be. What the program printed before by C's `stdout`, and what still lies
//! in its buffer, goes first, as it does natively, where the driver prints by that buffer.

use std::sync::{Mutex, PoisonError};

/// Prints to the standard output.
pub(super) fn print_output(bytes: &[u8]) {
    #[cfg(target_os = "linux")]
    flush_own();
    #[cfg(unix)]
    print(rustix::stdio::stdout(), bytes);
    #[cfg(not(unix))]
    print(std::io::stdout(), bytes);
}

/// Prints to the standard error.
pub(super) fn print_error(bytes: &[u8]) {
    #[cfg(unix)]
    print(rustix::stdio::stderr(), bytes);
    #[cfg(not(unix))]
    print(std::io::stderr(), bytes);
}

/// Tries to have the lock of the program's `stdout`, one every millisecond: a thread may hold it (`flockfile`) while it waits for a device.
#[cfg(target_os = "linux")]
const FLUSH_TRIES: u32 = 20;

/// Writes out what the program printed by C's `stdout`.
#[cfg(target_os = "linux")]
fn flush_own() {
    unsafe extern "C" {
        static stdout: *mut libc::FILE;
        fn ftrylockfile(file: *mut libc::FILE) -> libc::c_int;
        fn funlockfile(file: *mut libc::FILE);
    }
    // SAFETY: a variable of the C library, which the program may set, as it may natively.
    let file = unsafe { stdout };
    for _ in 0..FLUSH_TRIES {
        // SAFETY: the stream stays open until the program ends, or is its own fault.
        if unsafe { ftrylockfile(file) } == 0 {
            // SAFETY: as above.
            unsafe { libc::fflush(file) };
            // SAFETY: this thread locked it.
            unsafe { funlockfile(file) };
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

static PRINTING: Mutex<()> = Mutex::new(());

#[cfg(unix)]
fn print(output: rustix::fd::BorrowedFd<'_>, bytes: &[u8]) {
    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::io::Errno;

    let _one = PRINTING.lock().unwrap_or_else(PoisonError::into_inner);
    let mut rest = bytes;
    while !rest.is_empty() {
        match rustix::io::write(output, rest) {
            Ok(count) => rest = rest.get(count..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            // It does not block, and is full.
            Err(Errno::AGAIN) => drop(poll(&mut [PollFd::new(&output, PollFlags::OUT)], None)),
            Err(_) => return,
        }
    }
}

#[cfg(not(unix))]
fn print(mut output: impl std::io::Write, bytes: &[u8]) {
    let _one = PRINTING.lock().unwrap_or_else(PoisonError::into_inner);
    let _ = output.write_all(bytes).and_then(|()| output.flush());
}

#[cfg(all(test, unix))]
mod tests {
    use std::io::Read as _;
    use std::os::fd::AsFd;
    use std::sync::Arc;

    use super::*;

    /// The bytes from a pipe that is printed to by one thread for each text, and takes nothing while it is full.
    fn printed(texts: [Vec<u8>; 2]) -> Vec<u8> {
        let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
        let flags = rustix::fs::fcntl_getfl(&writer).expect("it is open");
        let flags = flags | rustix::fs::OFlags::NONBLOCK;
        rustix::fs::fcntl_setfl(&writer, flags).expect("it is open");
        let writer = Arc::new(writer);
        for text in texts {
            let writer = Arc::clone(&writer);
            std::thread::spawn(move || print(writer.as_fd(), &text));
        }
        drop(writer);
        let mut found = Vec::new();
        let mut reader = std::fs::File::from(reader);
        reader.read_to_end(&mut found).expect("it is a pipe");
        found
    }

    #[test]
    fn text_comes_whole_through_an_output_that_is_full() {
        let text: Vec<u8> = (0..1_u32 << 20).map(|at| (at % 251) as u8).collect();
        assert_eq!(printed([text.clone(), Vec::new()]), text);
    }

    #[test]
    fn texts_of_two_sessions_do_not_mix() {
        let texts = b"ab".map(|byte| vec![byte; 1 << 20]);
        let mut found = printed(texts);
        assert_eq!(found.len(), 2 << 20);
        found.dedup();
        assert_eq!(found.len(), 2);
    }
}
