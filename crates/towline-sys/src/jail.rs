//! The jail: what a worker gives up before it takes the first byte from a client.
//!
//! Two steps, because a vendor runtime needs more to start than to run:
//!
//! 1. [`enter`], while this process has one thread and has not opened a device: its own mount, network and IPC
//!    namespaces (a file system that is read-only but for a private /tmp, a /dev of what the backend needs, no network), an
//!    unprivileged user, no way to new privileges, limits. Vendor libraries are then loaded *inside*, so that what they cannot
//!    reach shows at start and not in the middle of a session.
//! 2. [`seal`], when the runtime is warm: the seccomp filter, on all threads at once.
//!
//! The PID namespace is older than the process: [`process::WorkerProcess::start`] makes it. So are those that the workers of a job share
//! ([`process::JobNamespaces`]), who talk to each other: their network is not their own, and their filter lets them make sockets.
//!
//! Without root the same is tried in a user namespace. What the system does not permit is left out and reported in
//! [`Confinement::missing`]; the caller logs it.
//!
//! Not limited on purpose: RLIMIT_AS, which breaks the address reservations of CUDA and of sanitizers. Use cgroups.

#![allow(unsafe_code)]

mod mounts;
mod policy;
mod seccomp;
mod user;

use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, FdFlags};
use rustix::process::{Resource, Rlimit};
use rustix::thread::UnshareFlags;
use serde::{Deserialize, Serialize};

pub(crate) use mounts::inodes_of;
pub use seccomp::seal;
pub use user::{UnprivilegedUser, device_groups};

use crate::{Context, SysError, process};

/// Where a jailed worker finds a directory of its own when it has a private /tmp.
const PRIVATE_HOME: &str = "/tmp/home";

/// In a worker's home: a link to the folder where device runtimes keep compiled kernels.
const KERNELS: &str = "kernels";

/// That folder, until another takes its place.
const OWN_KERNELS: &str = ".kernels";

/// How deep the folders lie at most that runtimes make when they are loaded.
const COPIED_DEPTH: u32 = 8;

/// Open files that a worker may have: lanes, device nodes, and what a compiler opens.
const DESCRIPTORS: u64 = 4096;

/// The job of a worker, which decides what it needs.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub enum WorkerKind {
    /// OpenCL of any vendor. Some run programs to compile.
    #[default]
    OpenCl,
    /// NVIDIA's CUDA driver.
    Cuda,
    /// CUDA devices that are none: in software, or for tests.
    SoftCuda,
    /// NVIDIA's NVML, for all clients.
    Nvml,
}

impl WorkerKind {
    /// Whether a worker has a PID namespace of its own. `shared_user`: other workers have its user number.
    ///
    /// NVML names processes by their numbers in the asker's namespace, so there it is the host's. CUDA's memory handles for other
    /// processes name the process that made them, and in namespaces of their own all workers have one number: NVIDIA's workers have
    /// one only where nothing else would keep them apart. Neither starts processes, so none can stay behind.
    pub fn has_own_pids(self, shared_user: bool) -> bool {
        match self {
            Self::OpenCl | Self::SoftCuda => true,
            Self::Cuda => shared_user,
            Self::Nvml => false,
        }
    }

    /// Whether it starts other programs, or processes at all.
    pub(crate) fn starts_programs(self) -> bool {
        self == Self::OpenCl
    }

    /// Device nodes and folders of them, by the start of their names in /dev.
    fn devices(self) -> &'static [&'static str] {
        match self {
            Self::OpenCl => &["nvidia", "dri", "kfd", "accel", "mali", "dxg"],
            Self::Cuda | Self::Nvml => &["nvidia", "nvhost", "nvmap", "nvgpu", "dri", "dxg"],
            Self::SoftCuda => &[],
        }
    }
}

/// The network that a worker reaches.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub enum Network {
    /// One of its own, in which it may not even make a socket.
    #[default]
    Own,
    /// That of its job, in which it was started.
    Job,
    /// That of the server.
    Host,
}

impl Network {
    /// Whether a worker talks to others in it.
    pub(crate) fn is_shared(self) -> bool {
        self != Self::Own
    }

    /// Further device nodes and folders, by the start of their names in /dev.
    fn devices(self) -> &'static [&'static str] {
        match self {
            Self::Own | Self::Job => &[],
            Self::Host => &["infiniband"],
        }
    }
}

/// What to do to this process.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct JailRequest {
    /// What this process does.
    pub kind: WorkerKind,
    /// The user to become; only root can. `None` stays who we are.
    pub user: Option<UnprivilegedUser>,
    /// The numbers of user and group that this process was started with. It cannot know them in a user namespace.
    pub numbers: (u32, u32),
    /// Whether workers have that user too that are not of the same job.
    pub shared_user: bool,
    /// The network that it reaches.
    pub network: Network,
    /// Whether /dev/shm is its job's, as this process was started, and stays so.
    pub shares_memory: bool,
    /// Bytes of all its temporary files, which lie in memory; 0 limits nothing.
    pub temporary_bytes: u64,
    /// What the system did not permit already when this process was started.
    pub missing: Vec<String>,
    /// A folder that only this worker's user can enter: its home where it cannot have a private /tmp.
    pub home: PathBuf,
    /// Folders and files that must stay readable although they lie below /tmp or below a folder that the user cannot
    /// enter: vendor libraries in a private checkout.
    pub keep_readable: Vec<PathBuf>,
    /// Folders and files to put nothing in the place of: the supervisor's secrets, which are its user's and so may be
    /// ours. Homes are hidden anyway.
    pub hide: Vec<PathBuf>,
}

/// What the jail came to.
#[derive(Debug)]
pub struct Confinement {
    /// The worker's own, writable directory.
    pub home: PathBuf,
    /// What this system did not permit, each with its reason.
    pub missing: Vec<String>,
    /// Whether the kernel counts this worker's processes, or those of its job, apart from others': it counts by user, within a user namespace
    /// for itself.
    pub counts_processes: bool,
}

/// First step; see the module. Needs a process with one thread.
///
/// Only the parts without which a worker would keep the rights of root are errors.
pub fn enter(request: &JailRequest) -> Result<Confinement, SysError> {
    require_one_thread()?;
    let mut missing = request.missing.clone();
    let privileged = rustix::process::geteuid().is_root();
    let private_files = match unshare(privileged, request, &mut missing) {
        true => match mounts::confine(
            Path::new(PRIVATE_HOME),
            request,
            request.user.as_ref().filter(|_| privileged),
        ) {
            Ok(partly) => {
                missing.extend(partly);
                true
            }
            Err(error) => {
                missing.push(describe("a private file system", &error));
                false
            }
        },
        false => false,
    };
    limits(&mut missing);
    let counts_processes = match privileged {
        true => request.user.is_some() && !request.shared_user,
        false => !user::in_first_namespace(),
    };
    match &request.user {
        Some(user) if privileged => user::become_user(user)?,
        _ => {
            if privileged {
                missing.push(
                    "an unprivileged user: the worker keeps number 0, without capabilities".into(),
                );
            }
            user::drop_capabilities()?;
        }
    }
    rustix::thread::set_no_new_privs(true).while_trying_to("give up new privileges")?;
    // Both were cleared by the change of user.
    process::die_with_parent().while_trying_to("tie this process to its supervisor")?;
    process::forbid_inspection()?;
    let home = if private_files {
        Path::new(PRIVATE_HOME)
    } else {
        &request.home
    };
    adopt_home(home)?;
    Ok(Confinement {
        home: home.to_owned(),
        missing,
        counts_processes,
    })
}

/// Changes how many bytes the temporary files of a jailed process may have, from outside its jail; 0 limits nothing. Only root can, and
/// to no less than there are.
pub fn resize_temporary(pid: u32, bytes: u64) -> Result<(), SysError> {
    let action = "change the size of a worker's temporary files";
    let folder = format!("/proc/{pid}/root/tmp");
    let picked = rustix::mount::fspick(
        rustix::fs::CWD,
        folder,
        rustix::mount::FsPickFlags::FSPICK_CLOEXEC,
    );
    let files = picked.while_trying_to(action)?;
    rustix::mount::fsconfig_set_string(&files, "size", bytes.to_string())
        .while_trying_to(action)?;
    rustix::mount::fsconfig_reconfigure(&files).while_trying_to(action)
}

/// Limits the processes and threads of this process's user from now on; for a worker whose [`Confinement::counts_processes`].
pub fn limit_processes(most: u64) -> Result<(), SysError> {
    limit(Resource::Nproc, most).while_trying_to("limit the processes of the worker")
}

/// Limits how much private memory this process maps for writing, beside what it has now: its heap, and what libraries keep there.
/// Addresses that are only reserved do not count.
pub fn limit_memory(more: u64) -> Result<(), SysError> {
    let action = "limit the memory of the worker";
    let status = std::fs::read_to_string("/proc/self/status").while_trying_to(action)?;
    let mut lines = status.lines();
    let now = lines.find_map(|line| {
        line.strip_prefix("VmData:")?
            .split_whitespace()
            .next()?
            .parse()
            .ok()
    });
    let now: u64 = now.unwrap_or(0);
    limit(Resource::Data, (now << 10).saturating_add(more)).while_trying_to(action)
}

fn limit(resource: Resource, most: u64) -> rustix::io::Result<()> {
    let hard = rustix::process::getrlimit(resource).maximum;
    let value = Some(hard.map_or(most, |hard| hard.min(most)));
    let limit = Rlimit {
        current: value,
        maximum: value,
    };
    rustix::process::setrlimit(resource, limit)
}

/// Makes `home` this process's HOME and temporary folder, and a folder in it the one where device runtimes keep compiled kernels, until
/// [`share_kernels`] replaces that. Needs a process with one thread.
pub fn adopt_home(home: &Path) -> Result<(), SysError> {
    require_one_thread()?;
    let action = || format!("make a folder for kernels in {}", home.display());
    std::fs::create_dir(home.join(OWN_KERNELS)).while_trying_to(action())?;
    let kernels = home.join(KERNELS);
    std::os::unix::fs::symlink(OWN_KERNELS, &kernels).while_trying_to(action())?;
    let nvidia = kernels.join("nvidia");
    for (name, folder) in [
        ("HOME", home),
        ("TMPDIR", home),
        ("XDG_CACHE_HOME", &kernels),
        ("CUDA_CACHE_PATH", &nvidia),
    ] {
        // SAFETY: this process has one thread (above), so no other reads the environment meanwhile.
        unsafe { std::env::set_var(name, folder) };
    }
    Ok(())
}

/// Has device runtimes keep compiled kernels in `folder` from now on: the root of files that several workers share. `home` is the one of
/// [`adopt_home`]. The folder stays open, here and in the programs that this process starts.
pub fn share_kernels(home: &Path, folder: OwnedFd) -> Result<(), SysError> {
    let action = "use kernels of other workers";
    // Runtimes have made their folders when they were loaded.
    copy_folders(&home.join(OWN_KERNELS), folder.as_fd(), COPIED_DEPTH).while_trying_to(action)?;
    rustix::io::fcntl_setfd(&folder, FdFlags::empty()).while_trying_to(action)?;
    let draft = home.join(".kernels-next");
    let target = format!("/proc/self/fd/{}", folder.into_raw_fd());
    std::os::unix::fs::symlink(target, &draft).while_trying_to(action)?;
    std::fs::rename(draft, home.join(KERNELS)).while_trying_to(action)
}

/// Makes the folders below `from` in `to` as well.
fn copy_folders(from: &Path, to: BorrowedFd<'_>, depth: u32) -> std::io::Result<()> {
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        if depth == 0 || !entry.file_type()?.is_dir() {
            continue;
        }
        match rustix::fs::mkdirat(to, entry.file_name(), Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let next = rustix::fs::openat(to, entry.file_name(), flags, Mode::empty())?;
        copy_folders(&entry.path(), next.as_fd(), depth - 1)?;
    }
    Ok(())
}

fn require_one_thread() -> Result<(), SysError> {
    let action = "set up the worker";
    let threads = std::fs::read_dir("/proc/self/task")
        .while_trying_to(action)?
        .count();
    match threads {
        1 => Ok(()),
        _ => Err(SysError::new(
            action,
            std::io::Error::other(format!("{threads} threads exist already")),
        )),
    }
}

/// Moves into namespaces of our own. Whether there is a mount namespace now.
fn unshare(privileged: bool, request: &JailRequest, missing: &mut Vec<String>) -> bool {
    let numbers = request.numbers;
    // Without root, a first process was started in a user namespace.
    let settled = match (privileged, rustix::process::getpid().is_init()) {
        (true, _) => Ok(()),
        (false, true) => user::keep_numbers(numbers.0, numbers.1),
        (false, false) => user::enter_user_namespace(),
    };
    if let Err(error) = settled {
        missing.push(describe("namespaces without root", &error));
        return false;
    }
    let mut try_one = |flag, what: &str| {
        // SAFETY: none of the flags is CLONE_FILES, the only one that could pull a descriptor from under its owner.
        let result = unsafe { rustix::thread::unshare_unsafe(flag) };
        if let Err(error) = &result {
            missing.push(format!("{what}: {error}"));
        }
        result.is_ok()
    };
    if !request.network.is_shared() {
        try_one(UnshareFlags::NEWNET, "a network namespace");
    }
    try_one(UnshareFlags::NEWIPC, "an IPC namespace");
    try_one(UnshareFlags::NEWNS, "a mount namespace")
}

fn limits(missing: &mut Vec<String>) {
    // A core of a worker holds a tenant's data.
    if let Err(error) = limit(Resource::Core, 0) {
        missing.push(format!("no core dumps: {error}"));
    }
    if let Err(error) = process::limit_descriptors(DESCRIPTORS) {
        missing.push(describe("a limit of open files", &error));
    }
}

fn describe(what: &str, error: &SysError) -> String {
    format!("{what}: {error}: {}", error.source)
}
