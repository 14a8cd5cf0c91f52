//! Standard output and error of workers, on their way to the server's log.
//!
//! A worker may be in a client's hands, and its words may be anything. So it writes into a pipe; one thread of this process reads
//! those of all workers and writes whole lines: each says whose it is, holds no control characters, and has a bounded length. What a
//! worker writes beyond a bounded rate is counted and dropped, and it is read so slowly then that it waits rather than this process.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};
use towline_sys::SysError;

use super::{lock, spawn};

/// Longest line, before its control characters are escaped. The rest is left out.
const LINE_BYTES: usize = 1024;
/// The time that a worker's lines are counted in.
const WINDOW: Duration = Duration::from_secs(10);
/// How much is read at once, and how long a worker that has used up its lines is not read then.
const READ_BYTES: usize = 16 << 10;
const PAUSE: Duration = Duration::from_millis(50);

/// The worker that wrote it.
#[derive(Debug)]
pub(super) struct Label {
    pid: u32,
    /// 0 without a session.
    session: AtomicU64,
    /// Whether all of it is in the log.
    is_written: Mutex<bool>,
    written: Condvar,
}

impl Label {
    pub(super) fn new(pid: u32) -> Arc<Self> {
        Arc::new(Self {
            pid,
            session: AtomicU64::new(0),
            is_written: Mutex::new(false),
            written: Condvar::new(),
        })
    }

    /// Waits until all that a worker has written before its end is in the log: what is said of the end comes after it.
    pub(super) fn wait_written(&self, limit: Duration) {
        let written = lock(&self.is_written);
        let waited = self
            .written
            .wait_timeout_while(written, limit, |written| !*written);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    fn set_written(&self) {
        *lock(&self.is_written) = true;
        self.written.notify_all();
    }

    pub(super) fn set_session(&self, id: u64) {
        self.session.store(id, Ordering::Relaxed);
    }
}

/// Writes what comes through `pipe` to the log until its end, so many lines in a [`WINDOW`] at most.
pub(super) fn follow(pipe: OwnedFd, label: Arc<Label>, lines: u32) -> Result<(), SysError> {
    static RELAY: OnceLock<Arc<Relay>> = OnceLock::new();
    static STARTING: Mutex<()> = Mutex::new(());
    let _starting = lock(&STARTING);
    let relay = match RELAY.get() {
        Some(relay) => Arc::clone(relay),
        None => {
            let relay = Relay::start()?;
            Arc::clone(RELAY.get_or_init(|| relay))
        }
    };
    relay.add(pipe, label, lines)
}

/// The pipes, and the thread that reads them.
struct Relay {
    epoll: OwnedFd,
    streams: Mutex<Streams>,
}

#[derive(Default)]
struct Streams {
    last: u64,
    open: HashMap<u64, Stream>,
}

impl Relay {
    fn start() -> Result<Arc<Self>, SysError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|error| SysError {
            action: "wait for workers' output".into(),
            source: error.into(),
        })?;
        let relay = Arc::new(Self {
            epoll,
            streams: Mutex::default(),
        });
        let body = Arc::clone(&relay);
        spawn("output", move || body.run())?;
        Ok(relay)
    }

    fn add(&self, pipe: OwnedFd, label: Arc<Label>, most: u32) -> Result<(), SysError> {
        let mut streams = lock(&self.streams);
        streams.last += 1;
        let number = streams.last;
        let data = epoll::EventData::new_u64(number);
        epoll::add(&self.epoll, &pipe, data, epoll::EventFlags::IN).map_err(|error| SysError {
            action: "wait for a worker's output".into(),
            source: error.into(),
        })?;
        let stream = Stream::new(pipe, label, most, Instant::now());
        streams.open.insert(number, stream);
        Ok(())
    }

    fn run(&self) {
        let mut events = Vec::with_capacity(64);
        let mut timeout = None;
        loop {
            events.clear();
            let space = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(&self.epoll, space, timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    log::error!("workers' output cannot be read any more: {error}");
                    return;
                }
            }
            let numbers = events.iter().map(|event| event.data.u64());
            let (text, ended, wait) = self.step(numbers, Instant::now());
            timeout = wait.map(|wait| Timespec {
                tv_sec: wait.as_secs().try_into().unwrap_or(i64::MAX),
                tv_nsec: wait.subsec_nanos().into(),
            });
            // Without the lock: whoever reads the log may be slow. A log that is gone has nobody to tell.
            let _ = std::io::stderr().write_all(text.as_bytes());
            ended.iter().for_each(|label| label.set_written());
        }
    }

    /// Reads the streams that have something. Gives the lines, whose streams have ended, and when to come again though none has more.
    fn step(
        &self,
        ready: impl Iterator<Item = u64>,
        now: Instant,
    ) -> (String, Vec<Arc<Label>>, Option<Duration>) {
        let (mut text, mut ended) = (String::new(), Vec::new());
        let mut streams = lock(&self.streams);
        for number in ready {
            if let Some(stream) = streams.open.get_mut(&number)
                && !stream.read(now, &mut text)
            {
                ended.extend(streams.open.remove(&number).map(|stream| stream.label));
            }
        }
        let mut wait: Option<Duration> = None;
        for (number, stream) in &mut streams.open {
            stream.tell_dropped(now, &mut text);
            let paused = stream.resume_at.is_some_and(|at| at > now);
            if paused != stream.is_paused {
                stream.is_paused = paused;
                let flags = match paused {
                    true => epoll::EventFlags::empty(),
                    false => epoll::EventFlags::IN,
                };
                let data = epoll::EventData::new_u64(*number);
                if let Err(error) = epoll::modify(&self.epoll, &stream.pipe, data, flags) {
                    log::error!("cannot wait for a worker's output: {error}");
                }
            }
            let next = stream.next_event(now);
            wait = [wait, next].into_iter().flatten().min();
        }
        (text, ended, wait)
    }
}

/// The output of one worker.
struct Stream {
    pipe: OwnedFd,
    label: Arc<Label>,
    line: Vec<u8>,
    is_cut: bool,
    window: Instant,
    /// Most lines in a [`WINDOW`].
    most: u32,
    lines: u32,
    dropped: u64,
    resume_at: Option<Instant>,
    is_paused: bool,
}

impl Stream {
    fn new(pipe: OwnedFd, label: Arc<Label>, most: u32, now: Instant) -> Self {
        Self {
            pipe,
            label,
            line: Vec::new(),
            is_cut: false,
            window: now,
            most,
            lines: 0,
            dropped: 0,
            resume_at: None,
            is_paused: false,
        }
    }

    /// Reads once; `false` at the end.
    fn read(&mut self, now: Instant, text: &mut String) -> bool {
        let mut bytes = [0; READ_BYTES];
        match rustix::io::read(&self.pipe, &mut bytes) {
            Err(rustix::io::Errno::INTR) => true,
            Ok(count @ 1..) => {
                self.push(bytes.get(..count).unwrap_or_default(), now, text);
                self.resume_at = (self.lines >= self.most).then(|| now + PAUSE);
                true
            }
            Ok(_) | Err(_) => {
                if !self.line.is_empty() {
                    self.end_line(now, text);
                }
                self.window = now.checked_sub(WINDOW).unwrap_or(now);
                self.tell_dropped(now, text);
                false
            }
        }
    }

    fn push(&mut self, bytes: &[u8], now: Instant, text: &mut String) {
        for byte in bytes {
            match byte {
                b'\n' => self.end_line(now, text),
                _ if self.line.len() < LINE_BYTES => self.line.push(*byte),
                _ => self.is_cut = true,
            }
        }
    }

    fn end_line(&mut self, now: Instant, text: &mut String) {
        self.tell_dropped(now, text);
        let line = std::mem::take(&mut self.line);
        let is_cut = std::mem::take(&mut self.is_cut);
        if self.lines >= self.most {
            self.dropped += 1;
            return;
        }
        self.lines += 1;
        self.prefix(text);
        escape(&String::from_utf8_lossy(&line), text);
        text.push_str(if is_cut { " ... (cut)\n" } else { "\n" });
    }

    /// Begins a new window when it is time, and says what was dropped in the last.
    fn tell_dropped(&mut self, now: Instant, text: &mut String) {
        if now.saturating_duration_since(self.window) < WINDOW {
            return;
        }
        (self.window, self.lines) = (now, 0);
        let dropped = std::mem::take(&mut self.dropped);
        if dropped > 0 {
            self.prefix(text);
            let (most, seconds) = (self.most, WINDOW.as_secs());
            let _ = writeln!(
                text,
                "{dropped} lines were dropped: it wrote more than {most} in {seconds} s (--session-log-lines)"
            );
        }
    }

    fn next_event(&self, now: Instant) -> Option<Duration> {
        let window = (self.dropped > 0).then(|| self.window + WINDOW);
        let next = [window, self.resume_at.filter(|_| self.is_paused)];
        let next = next.into_iter().flatten().min()?;
        Some(next.saturating_duration_since(now))
    }

    fn prefix(&self, text: &mut String) {
        let _ = match self.label.session.load(Ordering::Relaxed) {
            0 => write!(text, "towline: worker {}: ", self.label.pid),
            session => write!(
                text,
                "towline: worker {} (session {session}): ",
                self.label.pid
            ),
        };
    }
}

/// Appends a text without what a terminal, or a reader of lines, would take for an order.
fn escape(line: &str, text: &mut String) {
    for letter in line.chars() {
        // Marks that turn the direction of text, and separators of lines.
        let turns = matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}');
        match letter {
            '\t' => text.push(' '),
            _ if letter.is_control() || turns => text.extend(letter.escape_default()),
            _ => text.push(letter),
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::pipe::{PipeFlags, pipe_with};

    use super::*;

    const LINES: u32 = 200;

    fn stream(now: Instant) -> (Stream, OwnedFd) {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        (Stream::new(reader, Label::new(7), LINES, now), writer)
    }

    #[test]
    fn lines_carry_their_origin_and_no_control_characters() {
        let now = Instant::now();
        let (mut stream, _writer) = stream(now);
        let mut text = String::new();
        stream.push(b"plain\n\x1b[2J\rforged\x07\xff\n", now, &mut text);
        stream.label.set_session(3);
        stream.push("\u{202e}und \u{e4}\n".as_bytes(), now, &mut text);
        assert_eq!(
            text,
            "towline: worker 7: plain\n\
             towline: worker 7: \\u{1b}[2J\\rforged\\u{7}\u{fffd}\n\
             towline: worker 7 (session 3): \\u{202e}und \u{e4}\n"
        );
    }

    #[test]
    fn long_line_is_cut() {
        let now = Instant::now();
        let (mut stream, _writer) = stream(now);
        let mut text = String::new();
        stream.push(&vec![b'x'; 1 << 20], now, &mut text);
        stream.push(b"\nnext\n", now, &mut text);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].ends_with("x ... (cut)"), "{}", lines[0]);
        assert_eq!(
            lines[0].len(),
            "towline: worker 7:  ... (cut)".len() + LINE_BYTES
        );
        assert_eq!(lines[1], "towline: worker 7: next");
    }

    #[test]
    fn lines_beyond_the_rate_are_counted_and_told_once() {
        let start = Instant::now();
        let (mut stream, _writer) = stream(start);
        let mut text = String::new();
        stream.push(&b"flood\n".repeat(1000), start, &mut text);
        assert_eq!(text.lines().count(), LINES as usize);
        text.clear();
        stream.push(b"later\n", start + WINDOW, &mut text);
        assert_eq!(
            text,
            "towline: worker 7: 800 lines were dropped: it wrote more than 200 in 10 s (--session-log-lines)\n\
             towline: worker 7: later\n"
        );
    }

    #[test]
    fn end_of_a_worker_tells_its_last_words_and_what_was_dropped() {
        let now = Instant::now();
        let (mut stream, writer) = stream(now);
        rustix::io::write(&writer, &b"flood\n".repeat(201)).unwrap();
        drop(writer);
        let mut text = String::new();
        assert!(stream.read(now, &mut text));
        assert!(!stream.read(now, &mut text));
        assert!(
            text.ends_with("worker 7: 1 lines were dropped: it wrote more than 200 in 10 s (--session-log-lines)\n"),
            "{text}"
        );
    }

    #[test]
    fn end_of_the_pipe_is_waited_for() {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let label = Label::new(7);
        follow(reader, Arc::clone(&label), LINES).unwrap();
        label.wait_written(Duration::ZERO);
        assert!(!*lock(&label.is_written));
        drop(writer);
        label.wait_written(Duration::from_secs(60));
        assert!(*lock(&label.is_written));
    }

    #[test]
    fn worker_that_floods_waits() {
        let now = Instant::now();
        let (mut stream, writer) = stream(now);
        rustix::io::write(&writer, &b"\n".repeat(1000)).unwrap();
        let mut text = String::new();
        stream.read(now, &mut text);
        assert_eq!(stream.resume_at, Some(now + PAUSE));
    }
}
