//! The file system that a worker sees: everything read-only, but for temporary folders of its own that vanish with it.

use std::ffi::CStr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags};

use super::{JailRequest, UnprivilegedUser};
use crate::{Context, SysError};

/// Folders that programs write to without asking. Each is replaced by an empty one that vanishes with the worker.
const TEMPORARY_FOLDERS: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];

/// Size of each temporary folder: caches of compiled kernels, and room for a linker. They live in memory, so it is also
/// how much memory a hostile client can take there.
const TEMPORARY_OPTIONS: &CStr = c"size=1g,nr_inodes=65536,mode=1777";

/// Folders of people and of services that take orders. A supervisor that is not root shares its user with its workers,
/// and then permissions protect nothing of these.
const PRIVATE_FOLDERS: [&str; 4] = ["/home", "/root", "/run/dbus", "/run/user"];

/// Options of what covers them: room for no more than the mount points of kept paths.
const COVER_OPTIONS: &CStr = c"size=64k,nr_inodes=4096,mode=0755";

/// Replaces this mount namespace's view. `home` is made, below /tmp, for the user. What could not be done, though the
/// rest was, comes back as text; an error means that the view is as it was.
pub(super) fn confine(
    home: &Path,
    request: &JailRequest,
    user: Option<&UnprivilegedUser>,
) -> Result<Vec<String>, SysError> {
    let mut missing = Vec::new();
    // Nothing that we mount may show outside, and nothing that is mounted outside later may show here.
    rustix::mount::mount_change(
        "/",
        MountPropagationFlags::PRIVATE | MountPropagationFlags::REC,
    )
    .while_trying_to("make the mount namespace private")?;
    // Held open by descriptor, since the ways to them are about to be covered.
    let kept: Vec<Kept> = request
        .keep_readable
        .iter()
        .filter_map(|path| note(Kept::open(path), &mut missing))
        .collect();
    let [tmp, other_temporary @ ..] = TEMPORARY_FOLDERS;
    cover(Path::new(tmp), TEMPORARY_OPTIONS)?;
    note(make_home(home, user), &mut missing);
    let mut covered: Vec<PathBuf> = TEMPORARY_FOLDERS.iter().map(PathBuf::from).collect();
    for folder in other_temporary {
        note(cover(Path::new(folder), TEMPORARY_OPTIONS), &mut missing);
    }
    for path in PRIVATE_FOLDERS
        .iter()
        .map(Path::new)
        .chain(request.hide.iter().map(PathBuf::as_path))
    {
        // Hidden already, with what it lies in.
        if covered.iter().any(|folder| path.starts_with(folder)) {
            continue;
        }
        note(hide(path), &mut missing);
        covered.push(path.to_owned());
    }
    for kept in &kept {
        note(kept.show(&covered, user), &mut missing);
    }
    match set_read_only(Path::new("/"), true, libc::AT_RECURSIVE) {
        Ok(()) => {
            // Programs name their threads by writing to /proc/self; what is not theirs there, permissions protect.
            for folder in TEMPORARY_FOLDERS.into_iter().chain(["/proc"]) {
                note(
                    set_read_only(Path::new(folder), false, 0)
                        .while_trying_to(format!("keep {folder} writable")),
                    &mut missing,
                );
            }
        }
        // Before Linux 5.12. Permissions still hold: the worker owns nothing outside its folders.
        Err(error) => missing.push(format!("a read-only file system: {error}")),
    }
    // The working directory may be one that was covered.
    note(
        std::env::set_current_dir("/").while_trying_to("change to /"),
        &mut missing,
    );
    Ok(missing)
}

/// Keeps an error as text.
fn note<T>(result: Result<T, SysError>, missing: &mut Vec<String>) -> Option<T> {
    result
        .map_err(|error| missing.push(format!("{error}: {}", error.source)))
        .ok()
}

/// Mounts an empty folder over `folder`.
fn cover(folder: &Path, options: &CStr) -> Result<(), SysError> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    match rustix::mount::mount("tmpfs", folder, "tmpfs", flags, options) {
        Err(Errno::NOENT) => Ok(()),
        other => other.while_trying_to(format!("mount an empty {}", folder.display())),
    }
}

/// Puts nothing in the place of `path`, if it exists: an empty folder or an empty file.
fn hide(path: &Path) -> Result<(), SysError> {
    match path.symlink_metadata() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Ok(metadata) if !metadata.is_dir() => rustix::mount::mount_bind("/dev/null", path)
            .while_trying_to(format!("hide {}", path.display())),
        _ => cover(path, COVER_OPTIONS),
    }
}

fn make_home(home: &Path, user: Option<&UnprivilegedUser>) -> Result<(), SysError> {
    let action = || format!("make {}", home.display());
    std::fs::DirBuilder::new()
        .mode(0o700)
        .create(home)
        .while_trying_to(action())?;
    match user {
        Some(user) => {
            std::os::unix::fs::chown(home, Some(user.uid), Some(user.gid)).while_trying_to(action())
        }
        None => Ok(()),
    }
}

/// Something that stays readable, held by its own mount, detached from any place.
struct Kept {
    path: PathBuf,
    tree: std::os::fd::OwnedFd,
    is_folder: bool,
    /// The outermost folder on the way that others cannot enter.
    closed: Option<PathBuf>,
}

impl Kept {
    fn open(path: &Path) -> Result<Self, SysError> {
        let action = || format!("keep {} readable", path.display());
        let path = path.canonicalize().while_trying_to(action())?;
        let is_folder = path.metadata().while_trying_to(action())?.is_dir();
        let flags = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_RECURSIVE;
        let tree = rustix::mount::open_tree(CWD, &path, flags).while_trying_to(action())?;
        let closed = closed_ancestor(&path).while_trying_to(action())?;
        Ok(Self {
            path,
            tree,
            is_folder,
            closed,
        })
    }

    /// Puts it back where it was, if it can no longer be reached there.
    fn show(&self, covered: &[PathBuf], user: Option<&UnprivilegedUser>) -> Result<(), SysError> {
        let action = || format!("show {}", self.path.display());
        if !covered.iter().any(|folder| self.path.starts_with(folder)) {
            // Without a change of user, what we could enter before we can enter still.
            let Some(closed) = self.closed.as_ref().filter(|_| user.is_some()) else {
                return Ok(());
            };
            // Another kept path may have covered it already.
            if closed_ancestor(closed).while_trying_to(action())?.is_some() {
                cover(closed, COVER_OPTIONS)?;
            }
        }
        let folder = if self.is_folder {
            Some(self.path.as_path())
        } else {
            self.path.parent()
        };
        if let Some(folder) = folder {
            std::fs::DirBuilder::new()
                .recursive(true)
                .mode(0o755)
                .create(folder)
                .while_trying_to(action())?;
        }
        if !self.is_folder && !self.path.exists() {
            rustix::fs::open(&self.path, OFlags::CREATE | OFlags::CLOEXEC, Mode::RUSR)
                .while_trying_to(action())?;
        }
        rustix::mount::move_mount(
            &self.tree,
            "",
            CWD,
            &self.path,
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH,
        )
        .while_trying_to(action())
    }
}

/// The outermost of `path` and its ancestors that is a folder which others than its owner cannot enter.
fn closed_ancestor(path: &Path) -> std::io::Result<Option<PathBuf>> {
    let mut ancestors: Vec<&Path> = path.ancestors().collect();
    ancestors.reverse();
    for ancestor in ancestors {
        let metadata = ancestor.metadata()?;
        if metadata.is_dir() && metadata.mode() & 0o001 == 0 {
            return Ok(Some(ancestor.to_owned()));
        }
    }
    Ok(None)
}

/// Sets or clears the read-only flag of the mount at `path` (and, with AT_RECURSIVE, of all below).
fn set_read_only(path: &Path, read_only: bool, flags: libc::c_int) -> std::io::Result<()> {
    let path = std::ffi::CString::new(path.as_os_str().as_encoded_bytes())?;
    let (set, clear) = if read_only {
        (libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID, 0)
    } else {
        (0, libc::MOUNT_ATTR_RDONLY)
    };
    let attributes = libc::mount_attr {
        attr_set: set,
        attr_clr: clear,
        propagation: 0,
        userns_fd: 0,
    };
    let size = std::mem::size_of::<libc::mount_attr>();
    // SAFETY: the kernel reads a NUL-terminated path and `size` bytes of `attributes`; both outlive the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            flags,
            &raw const attributes,
            size,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}
