//! The trace of `towline run --trace`: calls, waits and bytes of this process, and when its kernels ran, in Chrome's trace event format
//! (<https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU>), which Perfetto and chrome://tracing read.
//!
//! Times are microseconds of this host's monotonic clock. Each line is one event of a JSON array whose closing bracket is left out, as the
//! format allows: so several libraries and processes append to one file, and one that is killed leaves what it has written.

use std::cell::Cell;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use crate::access::is_trusted;
use crate::private;

/// Names the file.
pub const VARIABLE: &str = "TOWLINE_TIMELINE";
/// The beginning of the file.
pub const HEAD: &str = "[\n";

/// Text that is written at once.
const FULL: usize = 256 << 10;
/// Text waits no longer than this while events come, in ns.
const WRITE_PERIOD: u64 = 1_000_000_000;
/// Time between two counts of bytes, in ns.
const COUNT_PERIOD: u64 = 1_000_000;
/// Tracks of devices are numbered from here, above every thread's number.
const FIRST_TRACK: u64 = 1 << 22;

static ACTIVE: AtomicBool = AtomicBool::new(false);
static TIMELINE: OnceLock<Timeline> = OnceLock::new();

thread_local! {
    /// Number of this thread; 0 before it is asked.
    static THREAD: Cell<u64> = const { Cell::new(0) };
    /// It works for the timeline itself, which is not shown.
    static HIDDEN: Cell<bool> = const { Cell::new(false) };
}

struct Timeline {
    file: File,
    /// A child after fork has its parent's text in memory, and nothing to add.
    process: u32,
    sent: AtomicU64,
    received: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    text: String,
    /// Time of the last write.
    written: u64,
    /// Time of the last count of bytes, and the counts.
    counted: (u64, u64, u64),
    tracks: HashMap<String, u64>,
}

/// Begins, where the environment names a file; whether there is something to [`flush`] at exit.
pub fn start() -> bool {
    // A set-user-id program writes no files of its caller's choice.
    let Some(path) = std::env::var_os(VARIABLE).filter(|_| is_trusted()) else {
        return false;
    };
    let opened = private::options().append(true).create(true).open(&path);
    let file = match opened {
        Ok(file) => file,
        Err(error) => {
            log::warn!("no trace: cannot write {}: {error}", path.display());
            return false;
        }
    };
    if file.metadata().is_ok_and(|known| known.len() == 0) {
        let _ = (&file).write_all(HEAD.as_bytes());
    }
    let timeline = Timeline {
        file,
        process: std::process::id(),
        sent: AtomicU64::new(0),
        received: AtomicU64::new(0),
        state: Mutex::default(),
    };
    let program = std::env::current_exe().ok();
    let name = program.as_deref().and_then(|path| path.file_name());
    let name = name.map(|name| name.to_string_lossy().into_owned());
    let name = quoted(&name.unwrap_or_else(|| "?".into()));
    let process = timeline.process;
    let _ = writeln!(
        timeline.state().text,
        r#"{{"name":"process_name","ph":"M","pid":{process},"args":{{"name":{name}}}}},"#
    );
    let first = TIMELINE.set(timeline).is_ok();
    ACTIVE.store(true, Ordering::Relaxed);
    first
}

/// Whether there is a timeline.
#[inline]
pub fn active() -> bool {
    ACTIVE.load(Ordering::Relaxed)
}

fn timeline() -> Option<&'static Timeline> {
    let own = |timeline: &&Timeline| timeline.process == std::process::id();
    TIMELINE
        .get()
        .filter(own)
        .filter(|_| active() && !HIDDEN.get())
}

/// Now, in ns.
#[cfg(unix)]
pub fn now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Now, in ns, of the only clock that the processes of this host have in common.
#[cfg(not(unix))]
pub fn now() -> u64 {
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed();
    now.map_or(0, |now| now.as_nanos() as u64)
}

/// The system's number of this thread.
#[cfg(target_os = "linux")]
fn own_thread() -> u64 {
    rustix::thread::gettid().as_raw_nonzero().get() as u64
}

/// A number of this thread.
#[cfg(not(target_os = "linux"))]
fn own_thread() -> u64 {
    static THREADS: AtomicU64 = AtomicU64::new(1);
    THREADS.fetch_add(1, Ordering::Relaxed)
}

/// Hides all that this thread does from now on.
pub fn hide_thread() {
    HIDDEN.set(true);
}

/// A call of the application, until it is dropped.
pub struct Call {
    name: &'static str,
    began: u64,
}

/// Notes a call of the application.
#[inline]
pub fn call(name: &'static str) -> Option<Call> {
    active().then(|| Call { name, began: now() })
}

impl Drop for Call {
    fn drop(&mut self) {
        if let Some(timeline) = timeline() {
            timeline.on_thread(self.name, "call", self.began, now());
        }
    }
}

/// Notes a network wait that has just ended.
#[inline]
pub(crate) fn waited(time: Duration) {
    if active()
        && let Some(timeline) = timeline()
    {
        let end = now();
        let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        timeline.on_thread("wait", "wait", end.saturating_sub(time), end);
    }
}

/// Counts bytes of a session.
#[inline]
pub(crate) fn moved(sent: usize, received: usize) {
    if active()
        && let Some(timeline) = timeline()
    {
        timeline.sent.fetch_add(sent as u64, Ordering::Relaxed);
        timeline
            .received
            .fetch_add(received as u64, Ordering::Relaxed);
    }
}

/// Notes that a device was busy with something from `began` to `ended`, as [`now`] counts. Each `track` is a line of its own.
pub fn on_device(track: &str, name: &str, began: u64, ended: u64) {
    let own = |timeline: &&Timeline| timeline.process == std::process::id();
    if let Some(timeline) = TIMELINE.get().filter(own) {
        timeline.on_track(track, name, began, ended);
    }
}

/// Writes what waits to be written.
pub fn flush() {
    let own = |timeline: &&Timeline| timeline.process == std::process::id();
    if let Some(timeline) = TIMELINE.get().filter(own) {
        let mut state = timeline.state();
        timeline.count(&mut state, now(), true);
        timeline.write(&mut state);
    }
}

impl Timeline {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn on_thread(&self, name: &str, category: &str, began: u64, ended: u64) {
        let mut state = self.state();
        let mut thread = THREAD.get();
        if thread == 0 {
            thread = own_thread();
            THREAD.set(thread);
            if let Some(name) = std::thread::current().name() {
                self.line(&mut state.text, thread, name);
            }
        }
        self.slice(&mut state.text, thread, (name, category), began, ended);
        self.settle(&mut state, ended);
    }

    fn on_track(&self, track: &str, name: &str, began: u64, ended: u64) {
        let mut state = self.state();
        let next = FIRST_TRACK + state.tracks.len() as u64;
        let number = match state.tracks.get(track) {
            Some(known) => *known,
            None => {
                state.tracks.insert(track.to_owned(), next);
                self.line(&mut state.text, next, track);
                next
            }
        };
        self.slice(
            &mut state.text,
            number,
            (&quoted_inside(name), "device"),
            began,
            ended,
        );
        self.settle(&mut state, ended);
    }

    /// Names a line.
    fn line(&self, text: &mut String, line: u64, name: &str) {
        let (process, name) = (self.process, quoted(name));
        let _ = writeln!(
            text,
            r#"{{"name":"thread_name","ph":"M","pid":{process},"tid":{line},"args":{{"name":{name}}}}},"#
        );
    }

    fn slice(
        &self,
        text: &mut String,
        line: u64,
        (name, category): (&str, &str),
        began: u64,
        ended: u64,
    ) {
        let (start, length) = (Micros(began), Micros(ended.saturating_sub(began)));
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            r#"{{"name":"{name}","cat":"{category}","ph":"X","pid":{},"tid":{line},"ts":{start},"dur":{length}}},"#,
            self.process
        );
    }

    /// Counts bytes and writes, if it is time to.
    fn settle(&self, state: &mut State, now: u64) {
        self.count(state, now, false);
        if state.text.len() >= FULL || now.saturating_sub(state.written) >= WRITE_PERIOD {
            state.written = now;
            self.write(state);
        }
    }

    fn count(&self, state: &mut State, now: u64, at_once: bool) {
        let (sent, received) = (
            self.sent.load(Ordering::Relaxed),
            self.received.load(Ordering::Relaxed),
        );
        let (at, sent_then, received_then) = state.counted;
        let is_due = at_once || now.saturating_sub(at) >= COUNT_PERIOD;
        if is_due && (sent, received) != (sent_then, received_then) {
            state.counted = (now, sent, received);
            let _ = writeln!(
                state.text,
                r#"{{"name":"bytes","ph":"C","pid":{},"ts":{},"args":{{"sent":{sent},"received":{received}}}}},"#,
                self.process,
                Micros(now)
            );
        }
    }

    fn write(&self, state: &mut State) {
        // A disk that is full costs the trace, not the program.
        if (&self.file).write_all(state.text.as_bytes()).is_err() {
            ACTIVE.store(false, Ordering::Relaxed);
        }
        state.text.clear();
    }
}

/// Nanoseconds, shown as microseconds.
struct Micros(u64);

impl std::fmt::Display for Micros {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", quoted_inside(text))
}

/// A text as it stands between the quotes of JSON.
fn quoted_inside(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            control if control < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(control));
            }
            plain => out.push(plain),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_as_json_has_it() {
        assert_eq!(quoted("a\"b\\c\n"), r#""a\"b\\c\u000a""#);
    }

    #[test]
    fn times_are_microseconds_with_three_digits() {
        assert_eq!(Micros(1_234_007).to_string(), "1234.007");
    }
}
