//! CPU time: of one process, of a server with its workers, of the whole machine.
//!
//! A live process has a clock of nanoseconds that others may read. What ended workers used is in their server's account of
//! children, and what the machine used in `/proc/stat`, both in ticks of 10 ms.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// CPU seconds of one measurement, over all its repetitions.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct CpuSeconds {
    /// Wall-clock time in which the others were used.
    pub wall_s: f64,
    /// The client process: the program and the library in it.
    pub client_s: f64,
    /// Server and workers; missing where they run on another machine, or where the leg has none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub server_s: Option<f64>,
    /// This whole machine, everything that runs on it.
    pub system_s: f64,
}

impl CpuSeconds {
    /// Adds what another repetition used.
    pub fn add(&mut self, other: &Self) {
        self.wall_s += other.wall_s;
        self.client_s += other.client_s;
        self.server_s = match (self.server_s, other.server_s) {
            (Some(left), Some(right)) => Some(left + right),
            (left, right) => left.or(right),
        };
        self.system_s += other.system_s;
    }
}

/// CPU seconds that a live process has used, its threads together; `None` if there is no such process.
pub(crate) fn of_process(pid: u32) -> Option<f64> {
    let pid = libc::pid_t::try_from(pid).ok()?;
    let mut clock = 0;
    // SAFETY: the clock id is written to a local.
    if unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) } != 0 {
        return None;
    }
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the time is written to a local.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return None;
    }
    Some(time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9)
}

/// CPU seconds of this process.
pub(crate) fn of_self() -> f64 {
    of_process(std::process::id()).unwrap_or(0.0)
}

/// CPU seconds of processes and all their descendants, ended ones included as far as they were waited for.
pub(crate) fn of_trees(roots: &[u32]) -> f64 {
    let parents = processes();
    let mut total = 0.0;
    let mut open: Vec<u32> = roots.to_vec();
    while let Some(pid) = open.pop() {
        total += of_process(pid).unwrap_or(0.0);
        total += parents.get(&pid).map_or(0.0, |process| process.ended_s);
        open.extend(
            parents
                .iter()
                .filter(|(_, process)| process.parent == pid)
                .map(|(child, _)| *child),
        );
    }
    total
}

/// CPU seconds that the machine has spent on anything but waiting.
pub(crate) fn of_machine() -> f64 {
    std::fs::read_to_string("/proc/stat")
        .ok()
        .and_then(|text| machine_ticks(&text))
        .map_or(0.0, |ticks| ticks as f64 / ticks_per_second())
}

/// CPU seconds of this process's children that ended and were waited for.
pub(crate) fn of_ended_children() -> f64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the result is written to a local of its type.
    if unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr()) } != 0 {
        return 0.0;
    }
    // SAFETY: zeros are a valid value, and the call has filled it.
    let usage = unsafe { usage.assume_init() };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 * 1e-6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

struct Process {
    parent: u32,
    /// What its ended and waited-for children used.
    ended_s: f64,
}

fn processes() -> BTreeMap<u32, Process> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
            let text = std::fs::read_to_string(entry.path().join("stat")).ok()?;
            let (parent, ticks) = parse_stat(&text)?;
            let ended_s = ticks as f64 / ticks_per_second();
            Some((pid, Process { parent, ended_s }))
        })
        .collect()
}

/// Parent and ticks of waited-for children out of `/proc/PID/stat`.
fn parse_stat(text: &str) -> Option<(u32, u64)> {
    // The name in parentheses may hold anything, parentheses too.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some((
        u32::try_from(number(1)?).ok()?,
        number(13)?.checked_add(number(14)?)?,
    ))
}

/// Ticks of the first line of `/proc/stat`, without idle and waiting for disks.
fn machine_ticks(text: &str) -> Option<u64> {
    let mut fields = text
        .lines()
        .next()?
        .strip_prefix("cpu ")?
        .split_whitespace();
    let mut next = || fields.next()?.parse::<u64>().ok();
    let busy = next()? + next()? + next()?;
    let _idle = next()?;
    let _disk = next()?;
    // Interrupts, soft interrupts; what a hypervisor took is not ours.
    Some(busy + next()? + next()?)
}

fn ticks_per_second() -> f64 {
    rustix::param::clock_ticks_per_second() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_line_survives_a_hostile_name() {
        let line = "42 (a) b) 7) S 17 42 42 0 -1 4194304 1 2 3 4 5 6 70 30 20 0 1 0 9 9 9";
        assert_eq!(parse_stat(line), Some((17, 100)));
    }

    #[test]
    fn idle_time_is_not_counted() {
        assert_eq!(
            machine_ticks("cpu  1 2 4 1000 2000 8 16 5000 0 0\ncpu0 1"),
            Some(31)
        );
    }

    #[test]
    fn work_shows_up_in_the_clock_of_the_process() {
        let before = of_self();
        let mut number = 1_u64;
        while of_self() - before < 0.02 {
            number = std::hint::black_box(number.wrapping_mul(3));
        }
        assert!(of_process(std::process::id()).is_some());
        assert!(of_trees(&[std::process::id()]) >= before + 0.02);
    }

    #[test]
    fn seconds_of_repetitions_add_up() {
        let mut sum = CpuSeconds::default();
        let one = CpuSeconds {
            wall_s: 1.0,
            client_s: 0.5,
            server_s: Some(0.25),
            system_s: 0.9,
        };
        sum.add(&one);
        sum.add(&one);
        assert_eq!((sum.wall_s, sum.server_s), (2.0, Some(0.5)));
    }
}
