//! The jail: what a worker gives up before it takes the first byte from a client.
//!
//! Two steps, because a vendor runtime needs more to start than to run:
//!
//! 1. [`enter`], while this process has one thread and has not opened a device: its own mount, network and IPC
//!    namespaces (a file system that is read-only but for a private /tmp, no network), an unprivileged user, no way to
//!    new privileges, limits. Vendor libraries are then loaded *inside*, so that what they cannot reach shows at start
//!    and not in the middle of a session.
//! 2. [`seal`], when the runtime is warm: the seccomp filter, on all threads at once.
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

use std::path::{Path, PathBuf};

use rustix::process::{Resource, Rlimit};
use rustix::thread::UnshareFlags;
use serde::{Deserialize, Serialize};

pub use seccomp::seal;
pub use user::{UnprivilegedUser, device_groups};

use crate::{Context, SysError, process};

/// Where a jailed worker finds a directory of its own when it has a private /tmp.
const PRIVATE_HOME: &str = "/tmp/home";

/// Open files that a worker may have: lanes, device nodes, and what a compiler opens.
const DESCRIPTORS: u64 = 4096;

/// What to do to this process.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct JailRequest {
    /// The user to become; only root can. `None` stays who we are.
    pub user: Option<UnprivilegedUser>,
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
}

/// First step; see the module. Needs a process with one thread.
///
/// Only the parts without which a worker would keep the rights of root are errors.
pub fn enter(request: &JailRequest) -> Result<Confinement, SysError> {
    require_one_thread()?;
    let mut missing = Vec::new();
    let privileged = rustix::process::geteuid().is_root();
    let private_files = match unshare(privileged, &mut missing) {
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
    })
}

/// Makes `home` this process's HOME, temporary and cache folder, where device runtimes put compiled kernels. Needs a
/// process with one thread.
pub fn adopt_home(home: &Path) -> Result<(), SysError> {
    require_one_thread()?;
    for name in ["HOME", "TMPDIR", "XDG_CACHE_HOME"] {
        // SAFETY: this process has one thread (above), so no other reads the environment meanwhile.
        unsafe { std::env::set_var(name, home) };
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
fn unshare(privileged: bool, missing: &mut Vec<String>) -> bool {
    if !privileged && let Err(error) = user::enter_user_namespace() {
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
    try_one(UnshareFlags::NEWNET, "a network namespace");
    try_one(UnshareFlags::NEWIPC, "an IPC namespace");
    try_one(UnshareFlags::NEWNS, "a mount namespace")
}

fn limits(missing: &mut Vec<String>) {
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    // A core of a worker holds a tenant's data.
    if let Err(error) = rustix::process::setrlimit(Resource::Core, none) {
        missing.push(format!("no core dumps: {error}"));
    }
    if let Err(error) = process::limit_descriptors(DESCRIPTORS) {
        missing.push(describe("a limit of open files", &error));
    }
}

fn describe(what: &str, error: &SysError) -> String {
    format!("{what}: {error}: {}", error.source)
}
