//! What the system says about processes.

use std::time::Duration;

use rustix::process::Pid;

/// Whether a process has ended. One that nobody has reaped yet has.
pub(crate) fn is_gone(pid: Pid) -> bool {
    stat(pid).is_none_or(|fields| fields.first().is_some_and(|state| state == "Z"))
}

/// The fields of `/proc/PID/stat` behind the name: state, parent, ...
fn stat(pid: Pid) -> Option<Vec<String>> {
    let text = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    let (_, fields) = text.rsplit_once(')')?;
    Some(fields.split_whitespace().map(str::to_owned).collect())
}

/// The parent of a process.
pub(crate) fn parent(pid: Pid) -> Option<u32> {
    stat(pid)?.get(1)?.parse().ok()
}

/// All processes.
pub(crate) fn all() -> Vec<Pid> {
    let entries = std::fs::read_dir("/proc")
        .expect("/proc is mounted")
        .flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter_map(Pid::from_raw).collect()
}

/// A process and all that descend from it.
pub(crate) fn family(of: Pid) -> Vec<Pid> {
    let parents: Vec<_> = all().into_iter().map(|pid| (pid, parent(pid))).collect();
    let mut family = vec![of];
    let mut next = 0;
    while let Some(of) = family
        .get(next)
        .map(|pid| pid.as_raw_nonzero().get() as u32)
    {
        let children = parents.iter().filter(|(_, parent)| *parent == Some(of));
        family.extend(children.map(|(pid, _)| *pid));
        next += 1;
    }
    family
}

/// What a process has used so far, and holds now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    /// Processor time.
    pub(crate) time: Duration,
    /// Resident memory in bytes.
    pub(crate) resident: u64,
    pub(crate) threads: usize,
    pub(crate) descriptors: usize,
}

impl Usage {
    /// Of a process that is alive.
    pub(crate) fn of(pid: Pid) -> Self {
        let fields = stat(pid).expect("the process is alive");
        // utime and stime: fields 14 and 15, counted from the pid.
        let ticks: u64 = [11, 12]
            .map(|index| fields[index].parse::<u64>().expect("a number"))
            .iter()
            .sum();
        let status = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero()));
        let status = status.expect("the process is alive");
        let resident = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .expect("processes have memory");
        let kibibytes: u64 = resident
            .trim()
            .trim_end_matches(" kB")
            .parse()
            .expect("a number");
        Self {
            time: Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second()),
            resident: kibibytes * 1024,
            threads: entries(pid, "task"),
            descriptors: entries(pid, "fd"),
        }
    }
}

/// How many entries a folder of a process has in `/proc`.
fn entries(pid: Pid, folder: &str) -> usize {
    std::fs::read_dir(format!("/proc/{}/{folder}", pid.as_raw_nonzero()))
        .expect("the process is alive, and ours to look at")
        .count()
}
