//! What kernels print. Vendors write to the process's standard output; in a worker that is a pipe of our own. A thread empties it, so
//! that printing never stops the device, and each completion takes what has come, so that text appears at the client before the wait
//! that covers it returns.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::pipe::{PipeFlags, pipe_with};

/// Most text kept for a client that waits for nothing; what a kernel prints beyond it is dropped.
const LIMIT: usize = 16 << 20;

/// The reading end of standard output, once a worker process has taken it over.
#[derive(Default)]
pub(crate) struct Printing {
    capture: Option<Arc<Capture>>,
    /// Programs of the session that may print. Looking costs several system calls at each completion.
    expected: AtomicUsize,
}

/// Whether kernels of this source, or of these build options, may print.
pub(crate) fn may_print(text: &[u8]) -> bool {
    // A line that goes on in the next may be cut in the middle of a name.
    let mut whole = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, behind)) = rest.split_first() {
        rest = match rest {
            [b'\\', b'\n', behind @ ..] | [b'\\', b'\r', b'\n', behind @ ..] => behind,
            _ => {
                whole.push(*first);
                behind
            }
        };
    }
    // Joined names, and text from files of the server, may hide the name.
    ["printf", "##", "%:%:", "include", "-I"]
        .iter()
        .any(|sign| {
            whole
                .windows(sign.len())
                .any(|part| part == sign.as_bytes())
        })
}

struct Capture {
    reader: OwnedFd,
    text: Mutex<Vec<u8>>,
}

static CAPTURED: OnceLock<Arc<Capture>> = OnceLock::new();

/// Puts a pipe in the place of standard output, for the life of this process.
pub(crate) fn capture() -> std::io::Result<()> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
    let flags = fcntl_getfl(&reader)?;
    fcntl_setfl(&reader, flags | OFlags::NONBLOCK)?;
    rustix::stdio::dup2_stdout(&writer)?;
    let capture = Arc::new(Capture {
        reader,
        text: Mutex::new(Vec::new()),
    });
    let _ = CAPTURED.set(Arc::clone(&capture));
    std::thread::Builder::new()
        .name("towline-print".into())
        .spawn(move || {
            loop {
                let ready = poll(&mut [PollFd::new(&capture.reader, PollFlags::IN)], None);
                if ready.is_err_and(|error| error != rustix::io::Errno::INTR) {
                    return;
                }
                capture.drain(&mut capture.text.lock().unwrap_or_else(PoisonError::into_inner));
            }
        })?;
    Ok(())
}

impl Capture {
    fn drain(&self, text: &mut Vec<u8>) {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = rustix::io::read(&self.reader, &mut buffer) {
            if text.len() < LIMIT {
                text.extend_from_slice(buffer.get(..count).unwrap_or_default());
            }
        }
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

    /// What was printed since the last call.
    pub(crate) fn take(&self) -> Vec<u8> {
        let Some(capture) = &self.capture else {
            return Vec::new();
        };
        if !self.expected() {
            return Vec::new();
        }
        flush_stdio();
        let mut text = capture.text.lock().unwrap_or_else(PoisonError::into_inner);
        capture.drain(&mut text);
        std::mem::take(&mut *text)
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
    use super::*;

    #[test]
    fn sources_and_options_that_may_print_are_told_from_those_that_cannot() {
        let printing: [&[u8]; 7] = [
            b"kernel void k() { printf(\"%d\", 1); }",
            b"#define SAY pri ## ntf",
            b"#define SAY pri %:%: ntf",
            b"kernel void k() { pri\\\nntf(\"%d\", 1); }",
            b"kernel void k() { pri\\\r\nntf(\"%d\", 1); }",
            b"#include <say.h>",
            b"-I/usr/share/kernels",
        ];
        for text in printing {
            assert!(may_print(text), "{}", String::from_utf8_lossy(text));
        }
        assert!(!may_print(b"kernel void k(global int *a) { a[0] = 1; }"));
        assert!(!may_print(b"-DN=4 -cl-fast-relaxed-math"));
    }
}
