//! Namespaces that the workers of one job share: a network with nothing but loopback, and a /dev/shm.
//!
//! A child makes them and is gone again before [`JobNamespaces::make`] returns: descriptors hold them, and so they end with the last
//! worker and this process, however it ends. Workers join them between clone and exec.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags};
use rustix::pipe::PipeFlags;
use rustix::process::{DumpableBehavior, Pid, Signal, WaitOptions};

use super::separate::{fork, in_child, settle_user_namespace};
use crate::jail::inodes_of;
use crate::{Context, SysError};

/// The folder of files in memory that programs share by name.
const SHARED_MEMORY: &CStr = c"/dev/shm";

/// The namespaces of a job. Gone when this is dropped and the last process in them has ended.
#[derive(Debug)]
pub struct JobNamespaces {
    /// The owner of the others, without root.
    user: Option<OwnedFd>,
    /// `None` where the job stays in this process's network.
    network: Option<OwnedFd>,
    mounts: OwnedFd,
}

impl JobNamespaces {
    /// Makes them, the network namespace if `own_network`. The files in /dev/shm have at most `bytes`; 0 limits them to what the system
    /// does.
    pub fn make(own_network: bool, bytes: u64) -> Result<Self, SysError> {
        let action = "make namespaces for a job";
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        let numbers = (!uid.is_root())
            .then(|| [uid.as_raw(), gid.as_raw()].map(|number| format!("{number} {number} 1")));
        let options = format!("size={bytes},nr_inodes={},mode=1777", inodes_of(bytes));
        let options = CString::new(options).while_trying_to(action)?;
        let mut flags = libc::CLONE_NEWNS;
        if own_network {
            flags |= libc::CLONE_NEWNET;
        }
        if numbers.is_some() {
            flags |= libc::CLONE_NEWUSER;
        }
        let (ready, tell) =
            rustix::pipe::pipe_with(PipeFlags::CLOEXEC).while_trying_to("make a pipe")?;
        let prepare = || {
            super::die_with_parent()?;
            match &numbers {
                Some([users, groups]) => settle_user_namespace(users, groups)?,
                // The files of its namespaces are for its parent to open.
                None => {
                    rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable)?;
                }
            }
            share_memory(&options)?;
            if own_network {
                raise_loopback()?;
            }
            rustix::io::write(&tell, &[0])?;
            loop {
                // SAFETY: it only waits for a signal; SIGKILL ends this process.
                unsafe { libc::pause() };
            }
        };
        let child = Child(fork(flags, prepare).while_trying_to(action)?);
        drop(tell);
        let mut byte = [0];
        match rustix::io::retry_on_intr(|| rustix::io::read(&ready, &mut byte)) {
            Ok(1) => {}
            _ => return Err(SysError::new(action, child.failure())),
        }
        let open = |name| child.namespace(name).while_trying_to(action);
        Ok(Self {
            user: numbers.is_some().then(|| open("user")).transpose()?,
            network: own_network.then(|| open("net")).transpose()?,
            mounts: open("mnt")?,
        })
    }

    /// Whether processes in them have a network of their own.
    pub fn has_network(&self) -> bool {
        self.network.is_some()
    }

    /// Moves the calling process into them: system calls only. Needs a process with one thread and a working directory of its own.
    pub(super) fn join(&self) -> io::Result<()> {
        // The first gives the right to join the others.
        let namespaces = [
            self.user.as_ref(),
            self.network.as_ref(),
            Some(&self.mounts),
        ];
        let mut namespaces = namespaces.into_iter().flatten();
        namespaces.try_for_each(|namespace| join(namespace.as_fd()))
    }
}

/// Tries in a child whether a process of this user may have a network namespace at all.
pub fn can_have_network() -> io::Result<()> {
    let flags = match rustix::process::geteuid().is_root() {
        true => libc::CLONE_NEWNET,
        false => libc::CLONE_NEWNET | libc::CLONE_NEWUSER,
    };
    in_child(flags, || Ok(()))
}

fn join(namespace: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: a plain system call on an open descriptor; a namespace of any type may be joined.
    match unsafe { libc::setns(namespace.as_raw_fd(), 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Runs in the child: system calls only.
fn share_memory(options: &CStr) -> io::Result<()> {
    // Nothing shows outside; what is mounted outside later shows here.
    let follows = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    rustix::mount::mount_change(c"/", follows)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount(c"tmpfs", SHARED_MEMORY, c"tmpfs", flags, options)?;
    Ok(())
}

/// Runs in the child: system calls only. The kernel gives the interface its addresses.
fn raise_loopback() -> io::Result<()> {
    let socket = rustix::net::socket_with(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::DGRAM,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )?;
    // SAFETY: integers, for which zero is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(c"lo".to_bytes()) {
        *to = from.cast_signed() as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
    // SAFETY: the kernel reads an `ifreq` for this request, which outlives the call.
    match unsafe {
        libc::ioctl(
            socket.as_raw_fd(),
            libc::SIOCSIFFLAGS as _,
            &raw const request,
        )
    } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The process that makes namespaces. Dropping it kills and reaps it.
struct Child(Pid);

impl Child {
    fn namespace(&self, name: &str) -> io::Result<OwnedFd> {
        let path = format!("/proc/{}/ns/{name}", self.0.as_raw_nonzero());
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        Ok(rustix::fs::open(path, flags, Mode::empty())?)
    }

    /// The cause of its end.
    fn failure(self) -> io::Error {
        let status = rustix::process::waitpid(Some(self.0), WaitOptions::empty());
        std::mem::forget(self);
        let code = match status {
            Ok(Some((_, status))) => status.exit_status(),
            _ => None,
        };
        code.map_or(Errno::CHILD.into(), io::Error::from_raw_os_error)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Its number stays its own until it is reaped.
        let _ = rustix::process::kill_process(self.0, Signal::KILL);
        let _ = rustix::process::waitpid(Some(self.0), WaitOptions::empty());
    }
}
