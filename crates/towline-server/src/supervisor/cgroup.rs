//! A control group of its own for each session, where this server may make some: control groups of version 2, below the group that systemd
//! delegates to this server, or as root below the root of the hierarchy.
//!
//! A worker enters its group when its session is granted: what it took before, to load a driver, is not counted. Groups are removed with
//! their sessions, and those of a server that was killed by the next one.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::quota::Quota;

/// Where groups of sessions lie, below the one that this server may divide.
const FOLDER: &str = "towline";
/// Where this server itself goes: a group with processes gives no controllers to those below it.
const OWN: &str = "server";
/// How the names of sessions' groups begin.
const PREFIX: &str = "session-";
/// The span of time that processors' time is measured out in.
const PERIOD_US: u64 = 100_000;

/// Limits of a group.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Controller {
    Memory,
    Pids,
    Cpu,
}

impl Controller {
    const ALL: [Self; 3] = [Self::Memory, Self::Pids, Self::Cpu];

    fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Pids => "pids",
            Self::Cpu => "cpu",
        }
    }
}

/// The folder for groups of sessions.
pub(super) struct Groups {
    folder: PathBuf,
    controllers: Vec<Controller>,
}

impl Groups {
    /// The folder in this system's hierarchy; in the error, why there is none.
    pub(super) fn open() -> Result<Self, String> {
        let mounts =
            fs::read_to_string("/proc/self/mountinfo").map_err(|error| error.to_string())?;
        let root =
            mount_point(&mounts).ok_or("this system mounts no control groups of version 2")?;
        let groups = fs::read_to_string("/proc/self/cgroup").map_err(|error| error.to_string())?;
        let own = own_group(&groups).ok_or("this process is in no control group of version 2")?;
        Self::below(&root, own, std::process::id())
    }

    /// As [`Self::open`], in a hierarchy at `root`, for a process in the group `own`.
    fn below(root: &Path, own: &str, pid: u32) -> Result<Self, String> {
        let own = root.join(own.trim_start_matches('/'));
        let delegated = Self::in_own(&own, pid).and_then(|()| Self::divide(&own));
        match delegated {
            Ok(groups) => Ok(groups),
            Err(error) => Self::divide(root).map_err(|other| {
                format!("{}: {error}; {}: {other}", own.display(), root.display())
            }),
        }
    }

    /// Makes way in a group that is this server's alone.
    fn in_own(own: &Path, pid: u32) -> io::Result<()> {
        let processes = fs::read_to_string(own.join("cgroup.procs"))?;
        if processes
            .split_whitespace()
            .any(|other| other != pid.to_string())
        {
            return Err(io::Error::other("other processes are in it"));
        }
        let leaf = own.join(OWN);
        make(&leaf)?;
        fs::write(leaf.join("cgroup.procs"), pid.to_string())
    }

    fn divide(parent: &Path) -> io::Result<Self> {
        let folder = parent.join(FOLDER);
        give_controllers(parent);
        make(&folder)?;
        give_controllers(&folder);
        let given = fs::read_to_string(folder.join("cgroup.subtree_control"))?;
        let given: Vec<&str> = given.split_whitespace().collect();
        let mut controllers = Controller::ALL.to_vec();
        controllers.retain(|controller| given.contains(&controller.name()));
        if controllers.is_empty() {
            return Err(io::Error::other("it has no controllers to give"));
        }
        // Of servers that were killed: their workers have died with them. Those with processes stay.
        for entry in fs::read_dir(&folder)?.flatten() {
            if entry.file_name().to_string_lossy().starts_with(PREFIX) {
                let _ = fs::remove_dir(entry.path());
            }
        }
        Ok(Self {
            folder,
            controllers,
        })
    }

    /// Makes a group with the limits of a quota, and has the process enter it.
    pub(super) fn enter(&self, session: u64, quota: &Quota, pid: u32) -> io::Result<Group> {
        let name = format!("{PREFIX}{}-{session}", std::process::id());
        let group = Group(self.folder.join(name), self.controllers.clone());
        make(&group.0)?;
        if group.limits(Controller::Memory) && quota.host_memory_bytes > 0 {
            group.set("memory.max", &quota.host_memory_bytes.to_string())?;
            // Neither exists everywhere.
            let _ = group.set("memory.swap.max", "0");
            let _ = group.set("memory.oom.group", "1");
        }
        if group.limits(Controller::Pids) && quota.processes > 0 {
            group.set("pids.max", &quota.processes.to_string())?;
        }
        if group.limits(Controller::Cpu) && quota.cpu_percent > 0 {
            let share = quota.cpu_percent * (PERIOD_US / 100);
            group.set("cpu.max", &format!("{share} {PERIOD_US}"))?;
        }
        group.set("cgroup.procs", &pid.to_string())?;
        Ok(group)
    }
}

/// The group of one session.
pub(super) struct Group(PathBuf, Vec<Controller>);

impl Group {
    fn set(&self, file: &str, value: &str) -> io::Result<()> {
        let path = self.0.join(file);
        fs::write(&path, value)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
    }

    /// Whether it limits this.
    pub(super) fn limits(&self, controller: Controller) -> bool {
        self.1.contains(&controller)
    }

    /// Removes it, once its processes have ended.
    pub(super) fn remove(&self) {
        if let Err(error) = fs::remove_dir(&self.0) {
            log::debug!("{}: {error}", self.0.display());
        }
    }

    /// A figure that the kernel keeps.
    fn figure(&self, file: &str) -> Option<u64> {
        fs::read_to_string(self.0.join(file))
            .ok()?
            .trim()
            .parse()
            .ok()
    }

    /// Bytes of memory that its processes hold.
    pub(super) fn memory_bytes(&self) -> Option<u64> {
        self.figure("memory.current")
    }

    /// Processes and threads in it.
    pub(super) fn processes(&self) -> Option<u64> {
        self.figure("pids.current")
    }

    /// Whether the kernel has killed in it because it ran out of its memory.
    pub(super) fn ran_out_of_memory(&self) -> bool {
        let events = fs::read_to_string(self.0.join("memory.events")).unwrap_or_default();
        let mut lines = events.lines();
        lines.any(|line| {
            line.strip_prefix("oom_kill ")
                .is_some_and(|count| count != "0")
        })
    }
}

fn make(group: &Path) -> io::Result<()> {
    match fs::create_dir(group) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// Has the groups below `parent` limited by all controllers that there are. What is not permitted shows in what they have.
fn give_controllers(parent: &Path) {
    for controller in Controller::ALL {
        let control = parent.join("cgroup.subtree_control");
        let _ = fs::OpenOptions::new()
            .append(true)
            .open(control)
            .and_then(|mut file| {
                io::Write::write_all(&mut file, format!("+{}", controller.name()).as_bytes())
            });
    }
}

/// Where the hierarchy of version 2 is mounted.
fn mount_point(mounts: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let kind = after.split(' ').next()?;
        (kind == "cgroup2").then(|| before.split(' ').nth(4).map(PathBuf::from))?
    })
}

/// The process's group there.
fn own_group(groups: &str) -> Option<&str> {
    groups.lines().find_map(|line| line.strip_prefix("0::"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder in place of a hierarchy: the kernel would make the files of a group with it.
    fn hierarchy(processes: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let own = root.path().join("service");
        for folder in [root.path(), &own] {
            make(&folder.join(FOLDER)).unwrap_or_else(|_| {
                fs::create_dir_all(folder.join(FOLDER)).expect("room for a folder");
            });
            for group in [folder.to_owned(), folder.join(FOLDER)] {
                fs::write(group.join("cgroup.subtree_control"), "").unwrap();
            }
        }
        fs::write(own.join("cgroup.procs"), processes).unwrap();
        root
    }

    const QUOTA: Quota = Quota {
        device_memory_bytes: 0,
        host_memory_bytes: 64 << 20,
        temporary_bytes: 0,
        processes: 100,
        kernel_time_ms: 0,
        code_bytes: 0,
        cpu_percent: 150,
        descriptors: 0,
    };

    /// The controllers as the kernel would list them.
    fn settle(group: &Path) {
        fs::write(group.join("cgroup.subtree_control"), "cpu memory pids\n").unwrap();
    }

    #[test]
    fn delegated_group_is_divided_and_left_by_the_server() {
        let root = hierarchy("7\n");
        settle(&root.path().join("service").join(FOLDER));
        let groups = Groups::below(root.path(), "/service", 7).unwrap();
        let service = root.path().join("service");
        assert_eq!(groups.folder, service.join(FOLDER));
        assert_eq!(
            fs::read_to_string(service.join(OWN).join("cgroup.procs")).unwrap(),
            "7"
        );
        let given = fs::read_to_string(service.join("cgroup.subtree_control")).unwrap();
        assert_eq!(given, "+memory+pids+cpu");
    }

    #[test]
    fn shared_group_is_left_alone_and_the_root_divided() {
        let root = hierarchy("7\n8\n");
        settle(&root.path().join(FOLDER));
        let groups = Groups::below(root.path(), "/service", 7).unwrap();
        assert_eq!(groups.folder, root.path().join(FOLDER));
        assert!(!root.path().join("service").join(OWN).exists());
    }

    #[test]
    fn hierarchy_without_controllers_limits_nothing() {
        let root = hierarchy("7\n8\n");
        fs::write(
            root.path().join(FOLDER).join("cgroup.subtree_control"),
            "io",
        )
        .unwrap();
        // Writes to this file are appended: each name needs a separator.
        let error = Groups::below(root.path(), "/service", 7).err().unwrap();
        assert!(error.contains("no controllers"), "{error}");
    }

    #[test]
    fn group_of_a_session_has_its_limits_and_goes_with_it() {
        let root = hierarchy("7\n");
        settle(&root.path().join("service").join(FOLDER));
        let groups = Groups::below(root.path(), "/service", 7).unwrap();
        let group = groups.enter(3, &QUOTA, 42).unwrap();
        let folder = group.0.clone();
        let value = |file: &str| fs::read_to_string(folder.join(file)).unwrap();
        assert_eq!(value("memory.max"), "67108864");
        assert_eq!(value("pids.max"), "100");
        assert_eq!(value("cpu.max"), "150000 100000");
        assert_eq!(value("cgroup.procs"), "42");
        fs::write(folder.join("memory.current"), "4096\n").unwrap();
        assert_eq!(group.memory_bytes(), Some(4096));
        fs::write(folder.join("memory.events"), "oom 1\noom_kill 0\n").unwrap();
        assert!(!group.ran_out_of_memory());
        fs::write(folder.join("memory.events"), "oom 1\noom_kill 1\n").unwrap();
        assert!(group.ran_out_of_memory());
        // As the kernel's files do.
        for entry in fs::read_dir(&folder).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
        group.remove();
        assert!(!folder.exists());
    }

    #[test]
    fn groups_of_a_killed_server_are_removed() {
        let root = hierarchy("7\n");
        let folder = root.path().join("service").join(FOLDER);
        settle(&folder);
        fs::create_dir(folder.join("session-1-1")).unwrap();
        fs::create_dir(folder.join("session-1-2")).unwrap();
        fs::write(folder.join("session-1-2").join("cgroup.procs"), "9").unwrap();
        Groups::below(root.path(), "/service", 7).unwrap();
        assert!(!folder.join("session-1-1").exists());
        assert!(folder.join("session-1-2").exists(), "it has processes");
    }

    #[test]
    fn hierarchy_and_own_group_are_found() {
        let mounts = "24 18 0:21 / /proc rw - proc proc rw\n\
                      30 18 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
        assert_eq!(mount_point(mounts), Some("/sys/fs/cgroup".into()));
        assert_eq!(
            mount_point("24 18 0:21 / /x rw - cgroup cgroup rw,cpu\n"),
            None
        );
        assert_eq!(own_group("4:cpu:/a\n0::/b/c\n"), Some("/b/c"));
    }
}
