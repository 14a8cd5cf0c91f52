//! The files of a host: everything that is read of `/sys`, `/proc`, `/dev` and `/etc` is read through a [`Root`], so that a
//! recorded tree can stand in for them.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The largest file that is read: `/proc/interrupts` of a machine with hundreds of processors has a few megabytes.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// A folder that stands for `/`. Paths given to it are absolute, as the host has them.
///
/// What cannot be read is as if it were not there; [`Root::denied`] tells where that was for want of rights.
#[derive(Debug)]
pub struct Root {
    base: PathBuf,
    denied: RefCell<BTreeSet<String>>,
}

impl Root {
    /// The tree below `base`; `/` is this host.
    #[must_use]
    pub fn new(base: impl Into<PathBuf>) -> Self {
        Self {
            base: base.into(),
            denied: RefCell::default(),
        }
    }

    /// Where a path of the host lies.
    #[must_use]
    pub fn path(&self, path: &str) -> PathBuf {
        self.base.join(path.trim_start_matches('/'))
    }

    /// Whether this is the host that runs us.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.base == Path::new("/")
    }

    /// What this user was not allowed to read so far.
    #[must_use]
    pub fn denied(&self) -> Vec<String> {
        self.denied.borrow().iter().cloned().collect()
    }

    pub(crate) fn exists(&self, path: &str) -> bool {
        // Not following: links of /proc/PID/fd lead out of a recorded tree.
        fs::symlink_metadata(self.path(path)).is_ok()
    }

    /// A file's contents, without what surrounds them.
    pub(crate) fn text(&self, path: &str) -> Option<String> {
        let bytes = self.bytes(path)?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// A file's contents parsed, if they parse.
    pub(crate) fn value<T: std::str::FromStr>(&self, path: &str) -> Option<T> {
        self.text(path)?.parse().ok()
    }

    /// A number that sysfs writes in hexadecimal with `0x` before it.
    pub(crate) fn hexadecimal(&self, path: &str) -> Option<u32> {
        u32::from_str_radix(self.text(path)?.strip_prefix("0x")?, 16).ok()
    }

    pub(crate) fn bytes(&self, path: &str) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let read = File::open(self.path(path))
            .and_then(|file| file.take(MAX_FILE_BYTES).read_to_end(&mut bytes));
        self.note(path, read)?;
        Some(bytes)
    }

    /// The names in a folder, in order.
    pub(crate) fn entries(&self, path: &str) -> Vec<String> {
        let listed = fs::read_dir(self.path(path));
        let Some(entries) = self.note(path, listed) else {
            return Vec::new();
        };
        let mut names: Vec<String> = entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        names.sort_by_key(|name| natural(name));
        names
    }

    /// Where a link points, as it is written.
    pub(crate) fn link(&self, path: &str) -> Option<String> {
        let link = self.note(path, fs::read_link(self.path(path)))?;
        link.into_os_string().into_string().ok()
    }

    /// The last name of where a link points: `nvidia` of `driver -> ../../../bus/pci/drivers/nvidia`.
    pub(crate) fn link_name(&self, path: &str) -> Option<String> {
        let link = self.link(path)?;
        Some(Path::new(&link).file_name()?.to_str()?.to_owned())
    }

    fn note<T>(&self, path: &str, result: io::Result<T>) -> Option<T> {
        if let Err(error) = &result
            && error.kind() == io::ErrorKind::PermissionDenied
        {
            self.denied.borrow_mut().insert(of_any_process(path));
        }
        result.ok()
    }
}

/// `/proc/PID/fd` for `/proc/4242/fd`: one line for all processes of others.
fn of_any_process(path: &str) -> String {
    let process = path.strip_prefix("/proc/").unwrap_or_default();
    let digits = process.len()
        - process
            .trim_start_matches(|c: char| c.is_ascii_digit())
            .len();
    match (digits, process.split('/').nth(1)) {
        (1.., Some(file)) => format!("/proc/PID/{file}"),
        _ => path.to_owned(),
    }
}

/// Orders `eth2` before `eth10`.
fn natural(name: &str) -> (String, u64, String) {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let number = name
        .get(stem.len()..)
        .and_then(|digits| digits.parse().ok());
    (stem.to_owned(), number.unwrap_or(0), name.to_owned())
}

/// The numbers of a list like `0-3,8`, as the kernel writes lists of processors and nodes; what does not parse is left out.
#[must_use]
pub(crate) fn numbers(list: &str) -> Vec<u32> {
    /// No kernel has more processors; a list that says otherwise is not a list.
    const MAX_NUMBERS: u32 = 8192;
    let mut numbers = BTreeSet::new();
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.trim().parse::<u32>(), last.trim().parse::<u32>())
            && last < MAX_NUMBERS
        {
            numbers.extend(first..=last);
        }
    }
    numbers.into_iter().collect()
}

/// The same list again: `0-3,8`.
#[must_use]
pub(crate) fn list(numbers: &[u32]) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for &number in numbers {
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(number) => *last = number,
            _ => runs.push((number, number)),
        }
    }
    let runs: Vec<String> = runs
        .into_iter()
        .map(|(first, last)| match first == last {
            true => first.to_string(),
            false => format!("{first}-{last}"),
        })
        .collect();
    runs.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_read_and_print() {
        assert_eq!(numbers("0-3,8\n"), [0, 1, 2, 3, 8]);
        assert_eq!(list(&[0, 1, 2, 3, 8]), "0-3,8");
        assert_eq!(numbers(""), [0_u32; 0]);
        assert_eq!(list(&[]), "");
    }

    #[test]
    fn a_list_that_is_none_gives_no_numbers() {
        assert_eq!(numbers("x,3-1,0-4294967295"), [0_u32; 0]);
    }

    #[test]
    fn names_are_in_the_order_of_their_numbers() {
        let mut names = ["eth10", "eth2", "lo"];
        names.sort_by_key(|name| natural(name));
        assert_eq!(names, ["eth2", "eth10", "lo"]);
    }

    #[test]
    fn what_was_denied_of_processes_is_told_once() {
        assert_eq!(of_any_process("/proc/4242/fd/3"), "/proc/PID/fd");
        assert_eq!(of_any_process("/proc/net/route"), "/proc/net/route");
        assert_eq!(of_any_process("/sys/firmware"), "/sys/firmware");
    }

    #[test]
    fn what_is_not_there_is_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        assert_eq!(root.text("/sys/nothing"), None);
        assert!(root.entries("/sys/nothing").is_empty() && root.denied().is_empty());
    }
}
