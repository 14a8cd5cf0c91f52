//! The driver's log: messages of devices, kept for `cuLogsDumpToMemory` and told to functions of the application. Those of devices in
//! software are all there are: no GPU's driver writes what it logs into another process.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::{CString, c_void};
use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use towline_backend::cuda::*;
use towline_client::raw::OutList;

use crate::driver::{self, lock};

/// Messages that are kept.
const KEPT: usize = 100;
/// Most bytes of a dump, as the driver has it.
const DUMP_LIMIT: usize = 25_600;
/// Stands first in a dump that lacks older messages.
const LOST: &str = "older messages are left out\n";
/// The level of all messages.
const ERROR: CUlogLevel = 0;

/// The log of the process.
static LOG: Mutex<Log> = Mutex::new(Log {
    lines: VecDeque::new(),
    next: 0,
    listeners: BTreeMap::new(),
    registered: 0,
});

struct Log {
    lines: VecDeque<String>,
    /// The number of the next message.
    next: CUlogIterator,
    listeners: BTreeMap<usize, Listener>,
    registered: usize,
}

#[derive(Clone, Copy)]
struct Listener {
    function: unsafe extern "C" fn(*mut c_void, CUlogLevel, *mut c_char, usize),
    data: usize,
}

impl Log {
    fn add(&mut self, now: Duration, text: &str) {
        let of_day = now.as_secs() % 86_400;
        let (hours, minutes, seconds) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
        let (milliseconds, process) = (now.subsec_millis(), std::process::id());
        self.lines.push_back(format!(
            "[{hours:02}:{minutes:02}:{seconds:02}.{milliseconds:03}][{process}][CUDA][E] {text}\n"
        ));
        if self.lines.len() > KEPT {
            self.lines.pop_front();
        }
        self.next = self.next.wrapping_add(1);
    }

    /// The messages from a number on, or all, in no more than so many bytes: the newest.
    fn dump(&self, from: Option<CUlogIterator>, most: usize) -> String {
        let behind = |from: CUlogIterator| self.next.wrapping_sub(from) as usize;
        let wanted = from.map_or(self.lines.len(), behind);
        let mut room = most.saturating_sub(LOST.len());
        let fits = |line: &&String| {
            let left = room.checked_sub(line.len());
            room = left.unwrap_or(0);
            left.is_some()
        };
        let newest = self.lines.iter().rev().take(wanted).take_while(fits);
        let count = newest.count();
        let lines = self.lines.iter().skip(self.lines.len() - count);
        let head = if count < wanted && most >= LOST.len() {
            LOST
        } else {
            ""
        };
        lines.fold(head.to_owned(), |text, line| text + line)
    }
}

/// Keeps a message, and tells it to the functions of the application, in the thread that calls those.
pub(crate) fn hear(text: &str) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let mut log = lock(&LOG);
    log.add(now.unwrap_or_default(), text);
    let listeners: Vec<usize> = log.listeners.keys().copied().collect();
    drop(log);
    for number in listeners {
        let Ok(message) = CString::new(text) else {
            return;
        };
        driver::process().host_calls.run(Box::new(move || {
            // It may have been taken back meanwhile.
            let Some(Listener { function, data }) = lock(&LOG).listeners.get(&number).copied()
            else {
                return;
            };
            let (data, len) = (
                std::ptr::with_exposed_provenance_mut(data),
                message.count_bytes(),
            );
            let text = message.as_ptr().cast_mut();
            // A call that waited would wait for this thread.
            crate::thread::in_host_function(|| {
                // SAFETY: the application's contract: the function takes its data and a message until it is taken back.
                unsafe { function(data, ERROR, text, len) };
            });
        }));
    }
}

pub(crate) fn register(
    function: CUlogsCallback,
    data: *mut c_void,
) -> Result<CUlogsCallbackHandle, CUresult> {
    let function = function.ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let mut log = lock(&LOG);
    log.registered += 1;
    let number = log.registered;
    let data = data.expose_provenance();
    log.listeners.insert(number, Listener { function, data });
    Ok(std::ptr::without_provenance_mut(number))
}

pub(crate) fn unregister(handle: CUlogsCallbackHandle) -> Result<(), CUresult> {
    let removed = lock(&LOG).listeners.remove(&handle.addr());
    removed.map(|_| ()).ok_or(CUDA_ERROR_INVALID_VALUE)
}

/// The number of the next message.
pub(crate) fn current(flags: u32) -> Result<CUlogIterator, CUresult> {
    match flags {
        0 => Ok(lock(&LOG).next),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

/// The messages from where the iterator stands, which moves behind them.
fn take(iterator: Option<&mut CUlogIterator>, most: usize, flags: u32) -> Result<String, CUresult> {
    if flags != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let log = lock(&LOG);
    let from = iterator.map(|iterator| std::mem::replace(iterator, log.next));
    Ok(log.dump(from, most))
}

pub(crate) fn dump_to_file(
    iterator: Option<&mut CUlogIterator>,
    path: &[u8],
    flags: u32,
) -> Result<(), CUresult> {
    let path = std::str::from_utf8(path).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
    let text = take(iterator, usize::MAX, flags)?;
    std::fs::write(path, text).map_err(|error| {
        log::error!("could not write the driver's log to {path}: {error}");
        CUDA_ERROR_INVALID_VALUE
    })
}

pub(crate) fn dump_to_memory(
    iterator: Option<&mut CUlogIterator>,
    buffer: &OutList<u8>,
    size: &mut usize,
    flags: u32,
) -> Result<(), CUresult> {
    let most = buffer.room().min(DUMP_LIMIT).checked_sub(1);
    let text = take(iterator, most.ok_or(CUDA_ERROR_INVALID_VALUE)?, flags)?;
    buffer.fill(text.bytes().chain([0]));
    *size = text.len();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(count: u64) -> Log {
        let mut log = Log {
            lines: VecDeque::new(),
            next: 0,
            listeners: BTreeMap::new(),
            registered: 0,
        };
        let noon = Duration::from_millis(12 * 3_600_000 + 61_005);
        (0..count).for_each(|number| log.add(noon, &format!("message {number}")));
        log
    }

    #[test]
    fn messages_stand_in_the_log_as_the_driver_writes_them() {
        let expected = format!(
            "[12:01:01.005][{}][CUDA][E] message 0\n",
            std::process::id()
        );
        assert_eq!(log(1).dump(None, 1000), expected);
    }

    #[test]
    fn a_dump_begins_where_its_iterator_stands() {
        let log = log(5);
        let tail = |from| log.dump(Some(from), 1000).lines().count();
        assert_eq!((tail(0), tail(3), tail(5)), (5, 2, 0));
        assert!(log.dump(Some(4), 1000).ends_with("message 4\n"));
    }

    #[test]
    fn the_newest_messages_are_kept_and_fit_the_buffer() {
        let log = log(KEPT as u64 + 50);
        let all = log.dump(Some(0), usize::MAX);
        assert!(
            all.starts_with(LOST) && all.contains("message 50\n") && !all.contains("message 49\n")
        );
        let some = log.dump(None, 200);
        assert!(some.starts_with(LOST) && some.len() <= 200 && some.ends_with("message 149\n"));
        assert_eq!(log.dump(None, 0), "");
    }
}
