//! A file system in memory that several workers share, each as its owner: what compilers of one tenant keep.
//!
//! Whoever makes one gets a descriptor of its root, which is mounted nowhere that others see: it is gone with the last descriptor, also
//! when this process is killed. The kernel holds it to its size. A worker is given a descriptor that leads no further than its root.
//!
//! Compilers make files for their own user alone. Where each worker has a user number of its own, each gets a mount that shows the files
//! as this worker's (an ID-mapped mount, for these file systems since Linux 6.3). Other servers need Linux 5.2, and without root also
//! a user namespace.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::mpsc::{self, Sender};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags,
    OpenTreeFlags, UnmountFlags,
};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use rustix::thread::UnshareFlags;

use crate::channel::Channel;
use crate::process::{in_child, settle_user_namespace};
use crate::spawn::AllSignalsBlocked;
use crate::{Context, SysError};

/// The owner, within the file system, of the files of workers that have a user number each.
const OWNER_OF_MANY: u32 = 65534;

/// Bytes of the stack of the child that a user namespace is made with: it makes one system call.
const STACK_BYTES: usize = 16 << 10;

/// Who shares a file system.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Sharers {
    /// Workers of this user and group.
    OneUser(u32, u32),
    /// Workers that have a user number each. Only root has such.
    OwnUsers,
}

/// A file system in memory.
#[derive(Debug)]
pub struct SharedFiles {
    root: OwnedFd,
    sharers: Sharers,
    /// Where it is mounted, unless nobody needs it to be.
    mounted: Option<Mounted>,
}

impl SharedFiles {
    /// Makes one of `bytes` and `inodes` at most; 0 limits nothing.
    pub fn make(bytes: u64, inodes: u64, sharers: Sharers) -> Result<Self, SysError> {
        let action = "make a file system in memory for several workers";
        let (uid, gid) = match sharers {
            Sharers::OneUser(uid, gid) => (uid, gid),
            Sharers::OwnUsers => (OWNER_OF_MANY, OWNER_OF_MANY),
        };
        let option = |name, value: String| (name, CString::new(value).expect("digits have no NUL"));
        let options = [
            option(c"size", bytes.to_string()),
            option(c"nr_inodes", inodes.to_string()),
            option(c"mode", "0700".to_owned()),
            option(c"uid", uid.to_string()),
            option(c"gid", gid.to_string()),
        ];
        let root = match rustix::process::geteuid().is_root() {
            true => make(&options),
            false => make_without_root(&options),
        };
        let root = root.while_trying_to(action)?;
        let mounted = match sharers {
            Sharers::OneUser(..) => None,
            Sharers::OwnUsers => Some(Mounted::of(&root).while_trying_to(action)?),
        };
        Ok(Self {
            root,
            sharers,
            mounted,
        })
    }

    /// Its root, for this process.
    pub fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// User and group that files have here, as this process sees them.
    pub fn owner(&self) -> (u32, u32) {
        match self.sharers {
            Sharers::OneUser(uid, gid) => (uid, gid),
            Sharers::OwnUsers => (OWNER_OF_MANY, OWNER_OF_MANY),
        }
    }

    /// Its root for a worker of a user and group, who owns all files there.
    pub fn for_worker(&self, uid: u32, gid: u32) -> Result<OwnedFd, SysError> {
        let action = || format!("show files of several workers to user {uid}");
        match &self.mounted {
            None => self.root.try_clone().while_trying_to(action()),
            Some(mounted) => mounted.mapped(uid, gid).while_trying_to(action()),
        }
    }
}

/// System calls only: also runs in a child that shares nothing with the threads of this process.
fn make(options: &[(&CStr, CString)]) -> io::Result<OwnedFd> {
    let context = rustix::mount::fsopen(c"tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (name, value) in options {
        rustix::mount::fsconfig_set_string(&context, *name, value.as_c_str())?;
    }
    rustix::mount::fsconfig_create(&context)?;
    // Every use of a file counts, for what was used longest ago goes first.
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_STRICTATIME;
    let root = rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    Ok(root)
}

/// The same in the namespaces of a child, which is where others than root may.
fn make_without_root(options: &[(&CStr, CString)]) -> io::Result<OwnedFd> {
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    let [users, groups] = [uid.as_raw(), gid.as_raw()].map(|number| format!("{number} {number} 1"));
    let (ours, theirs) = Channel::pair().map_err(|error| error.source)?;
    in_child(libc::CLONE_NEWUSER | libc::CLONE_NEWNS, || {
        settle_user_namespace(&users, &groups)?;
        let root = make(options)?;
        let sent = theirs.send(b"root", Some(root.as_fd()));
        sent.map_err(|error| error.source)
    })?;
    let received = ours.recv().map_err(|error| error.source)?;
    let root = received.and_then(|received| received.descriptor);
    root.ok_or_else(|| Errno::NODATA.into())
}

/// A place in the mount namespace of the thread that mounts. Mounts can be copied only where they are mounted.
#[derive(Debug)]
struct Mounted {
    name: String,
}

impl Mounted {
    fn of(root: &OwnedFd) -> io::Result<Self> {
        let root = root.try_clone()?;
        on_mounting_thread(move |places| {
            places.count += 1;
            let name = places.count.to_string();
            rustix::fs::mkdirat(&places.folder, name.as_str(), Mode::RWXU)?;
            let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
            rustix::mount::move_mount(&root, c"", &places.folder, name.as_str(), flags)?;
            Ok(Self { name })
        })
    }

    fn mapped(&self, uid: u32, gid: u32) -> io::Result<OwnedFd> {
        let map = |id: u32| format!("{OWNER_OF_MANY} {id} 1");
        let namespace = user_namespace(&map(uid), &map(gid))?;
        let name = self.name.clone();
        let copy = on_mounting_thread(move |places| {
            let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
            let copy = rustix::mount::open_tree(&places.folder, name.as_str(), flags)?;
            Ok(copy)
        })?;
        map_owner(&copy, &namespace)?;
        Ok(copy)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let name = std::mem::take(&mut self.name);
        let unmounted = on_mounting_thread(move |places| {
            let folder = places.folder.as_raw_fd();
            let place = format!("/proc/self/fd/{folder}/{name}");
            rustix::mount::unmount(place, UnmountFlags::DETACH)?;
            rustix::fs::unlinkat(&places.folder, name.as_str(), AtFlags::REMOVEDIR)?;
            Ok(())
        });
        if let Err(error) = unmounted {
            log::warn!("a file system of workers stays mounted: {error}");
        }
    }
}

/// Shows the files of a mount as those of the user that `namespace` maps their owner to.
fn map_owner(mount: &OwnedFd, namespace: &OwnedFd) -> io::Result<()> {
    let attributes = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_IDMAP,
        attr_clr: 0,
        propagation: 0,
        userns_fd: u64::from(namespace.as_raw_fd().unsigned_abs()),
    };
    // SAFETY: the kernel reads an empty path and `size_of_val` bytes of `attributes`; both outlive the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const attributes,
            size_of_val(&attributes),
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A user namespace with these maps. Only root can make it so.
fn user_namespace(users: &str, groups: &str) -> io::Result<OwnedFd> {
    let mut stack: Vec<MaybeUninit<u8>> = Vec::with_capacity(STACK_BYTES);
    let top = stack.as_mut_ptr().wrapping_add(STACK_BYTES);
    let top = top.wrapping_sub(top.addr() % 16);
    let mut descriptor: c_int = -1;
    // Not a copy of this process, whose tables may be large.
    let flags = libc::CLONE_NEWUSER | libc::CLONE_VM | libc::CLONE_PIDFD | libc::SIGCHLD;
    let blocked = AllSignalsBlocked::new();
    // SAFETY: the child only waits to be killed, on a stack that is nobody else's and outlives it (below); `descriptor` is where
    // CLONE_PIDFD has the kernel write.
    let pid = unsafe {
        libc::clone(
            wait_to_be_killed,
            top.cast(),
            flags,
            std::ptr::null_mut(),
            &raw mut descriptor,
        )
    };
    let failed = io::Error::last_os_error();
    drop(blocked);
    let Some(pid) = Pid::from_raw(pid.max(0)) else {
        return Err(failed);
    };
    // SAFETY: the kernel made it for this call, so that nobody else owns it.
    let child = unsafe { OwnedFd::from_raw_fd(descriptor) };
    let number = pid.as_raw_nonzero();
    let opened = std::fs::write(format!("/proc/{number}/uid_map"), users)
        .and_then(|()| std::fs::write(format!("/proc/{number}/gid_map"), groups))
        .and_then(|()| {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            Ok(rustix::fs::open(
                format!("/proc/{number}/ns/user"),
                flags,
                Mode::empty(),
            )?)
        });
    let killed = rustix::process::pidfd_send_signal(&child, Signal::KILL);
    let ended = killed.and_then(|()| {
        rustix::process::waitid(WaitId::PidFd(child.as_fd()), WaitIdOptions::EXITED)
    });
    if let Err(error) = ended {
        // It may run still, on that stack.
        std::mem::forget(stack);
        return Err(error.into());
    }
    opened
}

extern "C" fn wait_to_be_killed(_: *mut c_void) -> c_int {
    loop {
        // SAFETY: no preconditions. All signals that can be are blocked.
        unsafe { libc::pause() };
    }
}

/// Where file systems are mounted.
struct Places {
    /// A folder in a mount namespace that is one thread's alone.
    folder: OwnedFd,
    /// How many there have been.
    count: u64,
}

impl Places {
    /// For the calling thread, which leaves the mount namespace of this process.
    fn make() -> io::Result<Self> {
        // SAFETY: none of the flags is CLONE_FILES, the only one that could pull a descriptor from under its owner.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }?;
        // Mounts that end outside end here too; mounts made here show nowhere else.
        let below = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
        rustix::mount::mount_change(c"/", below)?;
        let options = [(c"mode", c"0700".to_owned())];
        let folder = make(&options)?;
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        rustix::mount::move_mount(&folder, c"", CWD, c"/", flags)?;
        Ok(Self { folder, count: 0 })
    }
}

type Job = Box<dyn FnOnce(&mut Places) + Send>;

/// Runs `job` on the thread that has a mount namespace of its own, for as long as this process lives.
fn on_mounting_thread<T: Send + 'static>(
    job: impl FnOnce(&mut Places) -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    static MOUNTER: Mutex<Option<Sender<Job>>> = Mutex::new(None);
    let gone = || io::Error::other("the thread that mounts is gone");
    let mut mounter = MOUNTER.lock().unwrap_or_else(PoisonError::into_inner);
    let sender = match &*mounter {
        Some(sender) => sender.clone(),
        None => mounter.insert(start_mounting_thread()?).clone(),
    };
    drop(mounter);
    let (answer, answered) = mpsc::channel();
    let job: Job = Box::new(move |places| {
        // The caller waits.
        let _ = answer.send(job(places));
    });
    sender.send(job).map_err(|_| gone())?;
    answered.recv().map_err(|_| gone())?
}

fn start_mounting_thread() -> io::Result<Sender<Job>> {
    let (sender, jobs) = mpsc::channel::<Job>();
    let (answer, answered) = mpsc::channel();
    std::thread::Builder::new()
        .name("mounter".into())
        .spawn(move || match Places::make() {
            Ok(mut places) => {
                let _ = answer.send(Ok(()));
                jobs.into_iter().for_each(|job| job(&mut places));
            }
            Err(error) => {
                let _ = answer.send(Err(error));
            }
        })?;
    match answered.recv() {
        Ok(made) => made.map(|()| sender),
        Err(_) => Err(io::Error::other("the thread that mounts panicked")),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::MetadataExt;

    use super::*;

    fn open(root: &impl AsFd, name: &str, flags: OFlags) -> io::Result<File> {
        Ok(rustix::fs::openat(root, name, flags | OFlags::CLOEXEC, Mode::RWXU)?.into())
    }

    fn of_this_user() -> Sharers {
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        Sharers::OneUser(uid.as_raw(), gid.as_raw())
    }

    #[test]
    fn size_and_number_of_files_are_limited() {
        let files = SharedFiles::make(1 << 20, 16, of_this_user()).unwrap();
        let mut file = open(&files.root(), "big", OFlags::CREATE | OFlags::WRONLY).unwrap();
        let error = std::io::Write::write_all(&mut file, &vec![1; 2 << 20]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
        let error = (0..17).find_map(|number| {
            let flags = OFlags::CREATE | OFlags::WRONLY;
            open(&files.root(), &number.to_string(), flags).err()
        });
        assert_eq!(error.unwrap().raw_os_error(), Some(libc::ENOSPC));
    }

    #[test]
    fn root_of_the_files_is_no_way_out() {
        let files = SharedFiles::make(1 << 20, 16, of_this_user()).unwrap();
        let given = files.for_worker(0, 0).unwrap();
        let inode = |name: &str| {
            let folder = open(&given, name, OFlags::DIRECTORY).unwrap();
            let data = folder.metadata().unwrap();
            (data.dev(), data.ino())
        };
        assert_eq!(inode(".."), inode("."));
        assert_eq!(inode("../../.."), inode("."));
    }

    #[test]
    fn each_user_owns_the_files_of_all() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let files = SharedFiles::make(1 << 20, 16, Sharers::OwnUsers).unwrap();
        let [one, other] = [61184, 61185].map(|id| files.for_worker(id, id).unwrap());
        let made = open(&files.root(), "file", OFlags::CREATE | OFlags::WRONLY).unwrap();
        let (uid, gid) = files.owner();
        std::os::unix::fs::fchown(&made, Some(uid), Some(gid)).unwrap();
        let owner = |root| {
            let data = open(root, "file", OFlags::RDONLY).unwrap().metadata();
            data.map(|data| (data.uid(), data.gid())).unwrap()
        };
        assert_eq!(owner(&one), (61184, 61184));
        assert_eq!(owner(&other), (61185, 61185));
        drop(files);
        assert_eq!(owner(&one), (61184, 61184), "a session keeps its files");
    }
}
