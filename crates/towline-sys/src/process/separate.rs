//! Whether this system lets workers be kept apart, found out before there are any.

use std::ffi::CStr;
use std::io;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags};
use rustix::process::{DumpableBehavior, Pid, WaitOptions};
use rustix::thread::{CapabilitySet, UnshareFlags};

use super::start::Namespaces;
use crate::spawn::AllSignalsBlocked;

/// Whether this process can give workers user numbers of their own.
pub fn can_change_user() -> bool {
    let needed = CapabilitySet::SETUID | CapabilitySet::SETGID | CapabilitySet::CHOWN;
    rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(needed))
        && crate::jail::UnprivilegedUser::dynamic_exist()
}

/// Tries in a child what keeps workers apart that share a user: whether a worker may have PIDs, files and IPC of its own. In the
/// error, what it may not.
pub fn can_separate() -> Result<(), String> {
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    let maps = [uid.as_raw(), gid.as_raw()].map(|number| format!("{number} {number} 1"));
    let namespaces = Namespaces::own();
    let outcome = in_child(namespaces.flags(), || {
        if namespaces == Namespaces::UserAndPids {
            let [users, groups] = &maps;
            settle_user_namespace(users, groups)?;
        }
        mount_own_files()
    });
    outcome.map_err(|error| format!("namespaces for PIDs, files and IPC: {error}"))
}

/// Runs in the child: system calls only.
pub(crate) fn settle_user_namespace(users: &str, groups: &str) -> io::Result<()> {
    // The files below are root's for a process that nobody may inspect, as its parent is. The copy of the parent's memory can be read
    // by other processes of this user until it ends in a moment; they can read where the secrets in it come from at any time.
    rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable)?;
    write_file(c"/proc/self/setgroups", b"deny")?;
    write_file(c"/proc/self/uid_map", users.as_bytes())?;
    write_file(c"/proc/self/gid_map", groups.as_bytes())
}

/// Runs in the child: system calls only.
fn mount_own_files() -> io::Result<()> {
    let flags = UnshareFlags::NEWNS | UnshareFlags::NEWIPC;
    // SAFETY: none of the flags touches descriptors.
    unsafe { rustix::thread::unshare_unsafe(flags) }?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change(c"/", private)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount(c"tmpfs", c"/tmp", c"tmpfs", flags, c"mode=0700")?;
    rustix::mount::mount(c"proc", c"/proc", c"proc", flags, None)?;
    Ok(())
}

fn write_file(path: &CStr, bytes: &[u8]) -> io::Result<()> {
    let file = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    match rustix::io::write(&file, bytes)? {
        written if written == bytes.len() => Ok(()),
        _ => Err(Errno::IO.into()),
    }
}

/// Runs `attempt`, which makes only system calls, in a child with these namespaces of its own.
pub(crate) fn in_child(
    namespaces: libc::c_int,
    attempt: impl Fn() -> io::Result<()>,
) -> io::Result<()> {
    let pid = fork(namespaces, attempt)?;
    match rustix::process::waitpid(Some(pid), WaitOptions::empty())? {
        Some((_, status)) => match status.exit_status() {
            Some(0) => Ok(()),
            Some(code) => Err(io::Error::from_raw_os_error(code)),
            None => Err(Errno::INTR.into()),
        },
        None => Err(Errno::CHILD.into()),
    }
}

/// Starts a child with these namespaces of its own that runs `body`, which makes only system calls, and ends with the number of its error.
pub(super) fn fork(namespaces: libc::c_int, body: impl Fn() -> io::Result<()>) -> io::Result<Pid> {
    let flags = libc::c_long::from(namespaces | libc::SIGCHLD);
    let none: libc::c_long = 0;
    // A handler that ran in the child could wait for locks of threads that it does not have.
    let blocked = AllSignalsBlocked::new();
    // SAFETY: without CLONE_VM this is a fork, after which the child makes only system calls.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, none, none, none, none) };
    if pid == 0 {
        match body() {
            Ok(()) => super::exit_now(0),
            Err(error) => super::exit_now(error.raw_os_error().unwrap_or(libc::EIO)),
        }
    }
    let failed = io::Error::last_os_error();
    drop(blocked);
    let pid = i32::try_from(pid).ok().filter(|pid| *pid > 0);
    pid.and_then(Pid::from_raw).ok_or(failed)
}
