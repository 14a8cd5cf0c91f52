//! What kernels print. Vendors write to the process's standard output; in a worker that is a pipe of our own. A thread empties it, so
//! that printing never stops the device, and each completion takes what has come, so that text appears at the client before the wait
//! that covers it returns.
//!
//! Of failed assertions NVIDIA's driver writes lines to C's standard error, in a thread of its own. Standard error is the worker's log, so
//! only C's `stderr` is replaced: our own messages, and the last words of a library that aborts, go to the descriptor as before.

use std::ffi::{c_char, c_int, c_void};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::pipe::{PipeFlags, pipe_with};
use towline_wire::push::{Push, TEXT_LIMIT};

/// Most text kept for a client that waits for nothing; what a kernel prints beyond it is dropped, and the client told how much that was.
const LIMIT: usize = 16 << 20;

/// The reading end of standard output, once a worker process has taken it over.
#[derive(Default)]
pub(crate) struct Printing {
    capture: Option<Arc<Capture>>,
    /// Programs of the session that may print. Looking costs several system calls at each completion.
    expected: AtomicUsize,
}

struct Capture {
    reader: OwnedFd,
    printed: Mutex<Printed>,
}

/// Text that has come and is not told yet.
#[derive(Default)]
struct Printed {
    text: Vec<u8>,
    /// Bytes beyond the limit.
    dropped: usize,
}

static CAPTURED: OnceLock<Arc<Capture>> = OnceLock::new();

/// Lines of failed assertions that the client has not been told, where a worker process has taken over C's `stderr`.
static ASSERTIONS: OnceLock<Mutex<Vec<u8>>> = OnceLock::new();
/// Stands in every such line.
const ASSERTION: &[u8] = b"Assertion `";
/// The first of the lines may come so long after the status that tells of it, and others so long after each other.
const ASSERTION_WAITS: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(5)];

/// Puts a pipe in the place of standard output, for the life of this process.
pub(crate) fn capture() -> std::io::Result<()> {
    let (capture, writer) = Capture::new()?;
    rustix::stdio::dup2_stdout(&writer)?;
    let capture = Arc::new(capture);
    let _ = CAPTURED.set(Arc::clone(&capture));
    std::thread::Builder::new()
        .name("towline-print".into())
        .spawn(move || {
            loop {
                let ready = poll(&mut [PollFd::new(&capture.reader, PollFlags::IN)], None);
                if ready.is_err_and(|error| error != rustix::io::Errno::INTR) {
                    return;
                }
                capture.drain(&mut capture.printed());
            }
        })?;
    Ok(())
}

/// Puts a pipe in the place of C's `stderr`, for the life of this process. Lines that are of no assertion go on to the log.
pub(crate) fn capture_assertions() -> std::io::Result<()> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
    replace_stderr(writer)?;
    let lines = ASSERTIONS.get_or_init(Mutex::default);
    std::thread::Builder::new()
        .name("towline-assert".into())
        .spawn(move || sort_errors(BufReader::new(File::from(reader)), lines))?;
    Ok(())
}

/// Keeps lines of assertions, up to the limit, and writes the others to the log.
fn sort_errors(mut errors: impl BufRead, assertions: &Mutex<Vec<u8>>) {
    let mut line = Vec::new();
    while errors
        .read_until(b'\n', &mut line)
        .is_ok_and(|count| count > 0)
    {
        if line.windows(ASSERTION.len()).any(|part| part == ASSERTION) {
            let mut kept = assertions.lock().unwrap_or_else(PoisonError::into_inner);
            if kept.len() + line.len() <= LIMIT {
                kept.extend_from_slice(&line);
            }
        } else {
            let _ = std::io::stderr().write_all(&line);
        }
        line.clear();
    }
}

/// Tells the lines of failed assertions, of which a status has told; waits for them a little.
pub(crate) fn tell_assertions(post: impl Fn(&Push<'_>)) {
    let Some(lines) = ASSERTIONS.get() else {
        return;
    };
    let (mut text, [mut patience, between]) = (Vec::new(), ASSERTION_WAITS);
    let mut since = Instant::now();
    while since.elapsed() < patience {
        let mut more = lines.lock().unwrap_or_else(PoisonError::into_inner);
        match more.is_empty() {
            true => drop(more),
            false => {
                text.append(&mut more);
                (since, patience) = (Instant::now(), between);
                continue;
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    for bytes in text.chunks(TEXT_LIMIT) {
        post(&Push::ErrorText { bytes });
    }
}

/// Has C's `stderr` write to a descriptor, without a buffer.
fn replace_stderr(writer: OwnedFd) -> std::io::Result<()> {
    unsafe extern "C" {
        static mut stderr: *mut c_void;
        fn fdopen(fd: c_int, mode: *const c_char) -> *mut c_void;
        fn setvbuf(stream: *mut c_void, buffer: *mut c_char, mode: c_int, size: usize) -> c_int;
    }
    /// `_IONBF`.
    const UNBUFFERED: c_int = 2;
    // SAFETY: the descriptor is open, and the stream's from here on.
    let stream = unsafe { fdopen(writer.into_raw_fd(), c"w".as_ptr()) };
    if stream.is_null() {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: nothing was written to the stream yet, and it needs no buffer of ours.
    unsafe { setvbuf(stream, std::ptr::null_mut(), UNBUFFERED, 0) };
    // SAFETY: C lets programs assign it; who reads it meanwhile finds one stream or the other, and both stay open.
    unsafe { stderr = stream };
    Ok(())
}

impl Capture {
    /// With the end that is printed to.
    fn new() -> std::io::Result<(Self, OwnedFd)> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
        let flags = fcntl_getfl(&reader)?;
        fcntl_setfl(&reader, flags | OFlags::NONBLOCK)?;
        let capture = Self {
            reader,
            printed: Mutex::default(),
        };
        Ok((capture, writer))
    }

    fn printed(&self) -> MutexGuard<'_, Printed> {
        self.printed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn drain(&self, printed: &mut Printed) {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = rustix::io::read(&self.reader, &mut buffer) {
            let room = LIMIT - printed.text.len();
            let (kept, dropped) = buffer[..count].split_at(count.min(room));
            printed.text.extend_from_slice(kept);
            printed.dropped += dropped.len();
        }
    }

    /// Everything that was printed since the last call.
    fn take(&self) -> Printed {
        let mut printed = self.printed();
        self.drain(&mut printed);
        std::mem::take(&mut *printed)
    }
}

impl Printing {
    /// This process's capture; none outside a worker process.
    pub(crate) fn global() -> Self {
        Self {
            capture: CAPTURED.get().cloned(),
            expected: AtomicUsize::new(0),
        }
    }

    /// A program that may print is there from now on.
    pub(crate) fn expect(&self) {
        self.expected.fetch_add(1, Ordering::AcqRel);
    }

    /// A program of which [`Self::expect`] was told cannot print after all.
    pub(crate) fn cannot(&self) {
        self.expected.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether kernels may print.
    pub(crate) fn expected(&self) -> bool {
        self.expected.load(Ordering::Acquire) > 0
    }

    /// Tells what was printed since the last call, and how much of it is lost.
    pub(crate) fn tell(&self, post: impl Fn(&Push<'_>)) {
        let Some(capture) = self.capture.as_ref().filter(|_| self.expected()) else {
            return;
        };
        flush_stdio();
        let Printed { text, dropped } = capture.take();
        for bytes in text.chunks(TEXT_LIMIT) {
            post(&Push::Text { bytes });
        }
        if dropped > 0 {
            let kept = LIMIT >> 20;
            let text = format!(
                "{dropped} bytes that kernels printed are lost: a server keeps {kept} MiB between two completions"
            );
            post(&Push::Notice {
                context: 0,
                text: text.as_bytes(),
            });
        }
    }
}

/// Vendors print through C's buffered output.
fn flush_stdio() {
    unsafe extern "C" {
        fn fflush(stream: *mut std::ffi::c_void) -> std::ffi::c_int;
    }
    // SAFETY: NULL flushes every open stream, which is allowed from any thread.
    unsafe { fflush(std::ptr::null_mut()) };
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// The pushes that a session gets for so much text.
    fn told(size: usize) -> (Vec<usize>, Vec<u8>, String) {
        let (capture, writer) = Capture::new().expect("a pipe");
        let capture = Arc::new(capture);
        let text: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
        let printing = Printing {
            capture: Some(Arc::clone(&capture)),
            expected: AtomicUsize::new(1),
        };
        for piece in text.chunks(32 << 10) {
            assert_eq!(rustix::io::write(&writer, piece), Ok(piece.len()));
            capture.drain(&mut capture.printed());
        }
        let (sizes, told) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()));
        let notice = RefCell::new(String::new());
        printing.tell(|push| match push {
            Push::Text { bytes } => {
                sizes.borrow_mut().push(bytes.len());
                told.borrow_mut().extend_from_slice(bytes);
            }
            Push::Notice { context: 0, text } => {
                *notice.borrow_mut() = String::from_utf8_lossy(text).into_owned();
            }
            other => panic!("{other:?}"),
        });
        let told = told.into_inner();
        assert!(text.starts_with(&told));
        (sizes.into_inner(), told, notice.into_inner())
    }

    #[test]
    fn printed_text_is_told_whole_in_messages_of_the_limit() {
        let (sizes, told, notice) = told(TEXT_LIMIT + 5);
        assert_eq!((sizes, told.len()), (vec![TEXT_LIMIT, 5], TEXT_LIMIT + 5));
        assert_eq!(notice, "");
    }

    #[test]
    fn lines_of_assertions_are_kept_for_the_client() {
        let errors = b"a warning\na.cu:3: void k(int): block: [0,0,0], thread: [3,0,0] Assertion `n < 3` failed.\n";
        let kept = Mutex::default();
        sort_errors(&errors[..], &kept);
        let kept = kept.into_inner().unwrap();
        assert_eq!(kept, errors[b"a warning\n".len()..]);
    }

    #[test]
    fn what_a_library_writes_of_an_assertion_is_told() {
        unsafe extern "C" {
            static mut stderr: *mut c_void;
            fn fputs(text: *const c_char, stream: *mut c_void) -> c_int;
        }
        capture_assertions().expect("a pipe");
        // SAFETY: it was set above, and nothing sets it again.
        let stream = unsafe { stderr };
        let line = c"a.cu:3: Assertion `n < 3` failed.\n";
        for _ in 0..2 {
            // SAFETY: the stream is open, and the line a string.
            unsafe { fputs(line.as_ptr(), stream) };
        }
        let told = RefCell::new(Vec::new());
        tell_assertions(|push| match push {
            Push::ErrorText { bytes } => told.borrow_mut().extend_from_slice(bytes),
            other => panic!("{other:?}"),
        });
        assert_eq!(told.into_inner(), line.to_bytes().repeat(2));
    }

    #[test]
    fn text_beyond_what_is_kept_is_told_as_lost() {
        let (_, told, notice) = told(LIMIT + 1000);
        assert_eq!(told.len(), LIMIT);
        assert!(notice.starts_with("1000 bytes"), "{notice}");
    }
}
