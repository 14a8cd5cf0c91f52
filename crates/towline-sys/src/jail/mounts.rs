//! The file system that a worker sees: everything read-only, but for temporary folders of its own that vanish with it.

use std::ffi::CStr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags};

use super::{JailRequest, UnprivilegedUser};
use crate::{Context, SysError};

/// Folders that programs write to without asking, each with its name in the one file system that takes their place.
const TEMPORARY_FOLDERS: [(&str, &str); 3] =
    [("/var/tmp", "var"), (SHARED_MEMORY, "shm"), ("/tmp", "tmp")];

/// The one of them that the workers of a job share.
const SHARED_MEMORY: &str = "/dev/shm";

/// Folders of people and of services that take orders: sockets that everybody may connect to lie in /run. A supervisor that is not
/// root shares its user with its workers, and then permissions protect nothing of these.
const PRIVATE_FOLDERS: [&str; 6] = ["/home", "/media", "/mnt", "/root", "/run", "/srv"];

/// Device nodes that every worker has.
const DEVICES: [&str; 5] = ["full", "null", "random", "urandom", "zero"];

/// Links that programs expect in /dev.
const DEVICE_LINKS: [(&str, &str); 4] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
];

/// Options of what covers folders: room for no more than the mount points of kept paths.
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
    let mut devices = devices(request);
    if request.shares_memory {
        devices.push(SHARED_MEMORY.into());
    }
    let kept: Vec<Kept> = devices
        .iter()
        .chain(&request.keep_readable)
        .filter_map(|path| note(Kept::open(path), &mut missing))
        .collect();
    make_temporary(request.temporary_bytes)?;
    note(make_home(home, user), &mut missing);
    let mut covered: Vec<PathBuf> = TEMPORARY_FOLDERS
        .iter()
        .map(|(folder, _)| folder.into())
        .chain(["/dev".into()])
        .collect();
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
    note(make_devices(), &mut missing);
    for (folder, name) in TEMPORARY_FOLDERS {
        if !(request.shares_memory && folder == SHARED_MEMORY) {
            note(put_temporary(name, Path::new(folder)), &mut missing);
        }
    }
    for kept in &kept {
        note(kept.show(&covered, user), &mut missing);
    }
    note(mount_proc(user.is_some()), &mut missing);
    match set_read_only(Path::new("/"), true, libc::AT_RECURSIVE) {
        Ok(()) => {
            // Programs name their threads by writing to /proc/self; what is not theirs there, permissions protect.
            let folders = TEMPORARY_FOLDERS.map(|(folder, _)| folder);
            for folder in folders.into_iter().chain(["/proc"]) {
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

/// The device nodes and folders of a worker that there are.
fn devices(request: &JailRequest) -> Vec<PathBuf> {
    let kind = request.kind.devices().iter();
    let prefixes = kind.chain(request.network.devices());
    let wanted = |name: &str| {
        DEVICES.contains(&name) || prefixes.clone().any(|prefix| name.starts_with(prefix))
    };
    let entries = std::fs::read_dir("/dev").into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_name().to_str().is_some_and(wanted))
        .map(|entry| entry.path())
        .collect()
}

/// Most files and folders in so many bytes, a page for each: what the kernel takes for them counts towards nothing.
pub(crate) fn inodes_of(bytes: u64) -> u64 {
    match bytes {
        0 => 65536,
        bytes => (bytes / 4096).clamp(1024, 65536),
    }
}

/// One file system for all temporary files, at /tmp until the last folder is put in its place.
fn make_temporary(bytes: u64) -> Result<(), SysError> {
    let action = "make room for temporary files";
    let options = format!("size={bytes},nr_inodes={},mode=0755", inodes_of(bytes));
    let options = std::ffi::CString::new(options).while_trying_to(action)?;
    cover(Path::new("/tmp"), &options)?;
    for (_, name) in TEMPORARY_FOLDERS {
        let folder = Path::new("/tmp").join(name);
        std::fs::create_dir(&folder).while_trying_to(action)?;
        // Whatever the mask of this process is.
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o1777))
            .while_trying_to(action)?;
    }
    Ok(())
}

/// Puts a part of that file system in the place of `folder`.
fn put_temporary(name: &str, folder: &Path) -> Result<(), SysError> {
    match rustix::mount::mount_bind(Path::new("/tmp").join(name), folder) {
        Err(Errno::NOENT) => Ok(()),
        other => other.while_trying_to(format!("mount an empty {}", folder.display())),
    }
}

/// A /dev without devices: those of the worker are shown in it later.
fn make_devices() -> Result<(), SysError> {
    cover(Path::new("/dev"), COVER_OPTIONS)?;
    let action = "make /dev";
    std::fs::create_dir("/dev/shm").while_trying_to(action)?;
    for (name, target) in DEVICE_LINKS {
        std::os::unix::fs::symlink(target, Path::new("/dev").join(name)).while_trying_to(action)?;
    }
    Ok(())
}

/// A /proc of this PID namespace, if that is the worker's own; otherwise one that shows processes of its user alone.
fn mount_proc(own_user: bool) -> Result<(), SysError> {
    let own_pids = rustix::process::getpid().is_init();
    let options = match (own_pids, own_user) {
        (true, _) => None,
        (false, true) => Some(c"hidepid=invisible"),
        (false, false) => return Ok(()),
    };
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount("proc", "/proc", "proc", flags, options)
        .while_trying_to("mount a /proc of the worker's own")
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

/// Makes a home in the part of the file system that becomes /tmp.
fn make_home(home: &Path, user: Option<&UnprivilegedUser>) -> Result<(), SysError> {
    let action = || format!("make {}", home.display());
    let name = home.strip_prefix("/tmp").unwrap_or(home);
    let place = Path::new("/tmp/tmp").join(name);
    std::fs::DirBuilder::new()
        .mode(0o700)
        .create(&place)
        .while_trying_to(action())?;
    match user {
        Some(user) => std::os::unix::fs::chown(&place, Some(user.uid), Some(user.gid))
            .while_trying_to(action()),
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
