//! The workers' folders on disk: homes for workers that cannot have a private /tmp, gone when the worker is; and which user numbers
//! are in use, for all servers of this host.
//!
//! They lie in a folder of this user alone, in whose way nobody else can put anything: /run/towline for root, XDG_RUNTIME_DIR for
//! others, and where there is neither a folder below the temporary one, in which everybody may have put something before us.

use std::ffi::{CStr, CString};
use std::fs::{DirBuilder, File, TryLockError};
use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, Dir, DirEntry, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use rustix::process::geteuid;
use towline_sys::jail::UnprivilegedUser;

use super::SupervisorError;

/// Where folders of services belong.
const RUN: &str = "/run";
const OWN: &str = "towline";
const PREFIX: &str = "serve-";
const LOCK: &str = "lock";
/// A file for each user number that was given, locked while a worker has it.
const USERS: &str = "users";
/// Where systemd has its files of the kind, for numbers of the same range.
const SYSTEMD_USERS: &str = "/run/systemd/dynamic-uid";
/// How many folders to make until one is not removed by another supervisor before it is locked: that takes microseconds.
const ATTEMPTS: usize = 64;
/// How old a folder without a lock is before it counts as left behind by who was killed while making or removing it.
const HALF_MADE: Duration = Duration::from_secs(60);

/// The folder of one supervisor. Held by a file lock, so that the next supervisor can tell whether it was left behind.
pub(super) struct RuntimeFolder {
    path: PathBuf,
    users: PathBuf,
    _lock: File,
}

/// The folder of one worker, and its user number if that is its own, or its job's. Gone, and free, when dropped: when the worker is reaped.
pub(super) struct WorkerHome {
    path: PathBuf,
    /// Let go after the folder is gone.
    _lease: Option<Arc<UserLease>>,
}

/// A user number that no other worker of this host has.
pub(super) struct UserLease {
    _locks: Vec<File>,
}

impl WorkerHome {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for WorkerHome {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

impl RuntimeFolder {
    /// Makes the folder, and removes those of supervisors that were killed.
    pub(super) fn make() -> std::result::Result<Self, SupervisorError> {
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let runtime = runtime.filter(|folder| folder.is_absolute());
        let run = Some(PathBuf::from(RUN));
        let (standing, mode) = match geteuid().is_root() {
            true => (run, 0o755),
            false => (runtime, 0o700),
        };
        Self::make_below(standing.as_deref(), &std::env::temp_dir(), mode)
    }

    /// In a folder of ours in `standing`, or else in `temporary`.
    fn make_below(
        standing: Option<&Path>,
        temporary: &Path,
        mode: u32,
    ) -> std::result::Result<Self, SupervisorError> {
        let parent =
            own_folder(standing, temporary, mode).map_err(|source| SupervisorError::Folder {
                folder: temporary.to_owned(),
                source,
            })?;
        Self::make_in(&parent)
    }

    fn make_in(parent: &Path) -> std::result::Result<Self, SupervisorError> {
        sweep(parent);
        let failed = |source| SupervisorError::Folder {
            folder: parent.to_owned(),
            source,
        };
        let users = make_own(parent, USERS, 0o700).map_err(failed)?;
        for _ in 0..ATTEMPTS {
            let name = format!(
                "{PREFIX}{}-{:016x}",
                std::process::id(),
                u64::from_le_bytes(super::random()?)
            );
            let path = parent.join(name);
            match make_locked(&path) {
                Ok(lock) => {
                    return Ok(Self {
                        path,
                        users,
                        _lock: lock,
                    });
                }
                // A supervisor that starts just now found it before it was locked, and removed it.
                Err(error) if error.kind() == ErrorKind::NotFound && parent.is_dir() => {}
                Err(source) => return Err(failed(source)),
            }
        }
        Err(failed(Error::other(format!(
            "{ATTEMPTS} were removed by others at once"
        ))))
    }

    /// A user number that no other worker has, of this server or another on this host. Tries them from `first` on.
    pub(super) fn lease_user(&self, first: u64) -> Result<(UnprivilegedUser, UserLease)> {
        let numbers = 0..UnprivilegedUser::dynamic_count();
        for number in numbers.map(|offset| first.wrapping_add(offset)) {
            let user = UnprivilegedUser::dynamic(number);
            let name = user.uid.to_string();
            let Some(ours) = lock_user(&self.users.join(&name))? else {
                continue;
            };
            let mut locks = vec![ours];
            // An error means that systemd does not run, or that this process may not ask it.
            match lock_user(&Path::new(SYSTEMD_USERS).join(&name)) {
                Ok(None) => continue,
                Ok(Some(theirs)) => locks.push(theirs),
                Err(_) => {}
            }
            return Ok((user, UserLease { _locks: locks }));
        }
        Err(Error::other("all user numbers for workers are in use"))
    }

    /// A folder for one worker, which only `user` (or we) can enter.
    ///
    /// `user` is taken back when this system has no such user: the root of a container may have no other number to give.
    pub(super) fn make_home(
        &self,
        number: u64,
        user: &mut Option<UnprivilegedUser>,
        lease: Option<Arc<UserLease>>,
    ) -> Result<WorkerHome> {
        let path = self.path.join(format!("worker-{number}"));
        DirBuilder::new().mode(0o700).create(&path)?;
        let home = WorkerHome {
            path,
            _lease: lease,
        };
        if let Some(wanted) = user {
            match chown(home.path(), Some(wanted.uid), Some(wanted.gid)) {
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::InvalidInput | ErrorKind::PermissionDenied
                    ) =>
                {
                    *user = None
                }
                other => other?,
            }
        }
        Ok(home)
    }
}

impl Drop for RuntimeFolder {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// A folder that is this user's alone: at a place that others know if it can be, so that servers find each other's traces.
fn own_folder(standing: Option<&Path>, temporary: &Path, mode: u32) -> Result<PathBuf> {
    if let Some(standing) = standing {
        match make_own(standing, OWN, mode) {
            Ok(folder) => return Ok(folder),
            Err(error) => log::debug!("{}: {error}", standing.display()),
        }
    }
    let name = format!("{OWN}-{}", geteuid().as_raw());
    let mode = if geteuid().is_root() { 0o711 } else { mode };
    match make_own(temporary, &name, mode) {
        Ok(folder) => Ok(folder),
        Err(error) => {
            // Everybody can take that name. Nobody can guess the next.
            log::warn!(
                "{} is not used: {error}; remove it",
                temporary.join(&name).display()
            );
            let random: [u8; 8] = super::random().map_err(Error::other)?;
            let name = format!("{name}-{:016x}", u64::from_le_bytes(random));
            make_own(temporary, &name, mode)
        }
    }
}

/// Makes the folder `name`, or takes one that is there if it is ours and nobody else can write to it. Follows no link.
fn make_own(parent: &Path, name: &str, mode: u32) -> Result<PathBuf> {
    let folder = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let above = rustix::fs::open(parent, folder, Mode::empty())?;
    let others_may_swap = |data: &std::fs::Metadata| {
        let sticky = data.mode() & 0o1000 != 0;
        let foreign = data.uid() != 0 && data.uid() != geteuid().as_raw();
        foreign || (data.mode() & 0o022 != 0 && !sticky)
    };
    if others_may_swap(&File::from(above.try_clone()?).metadata()?) {
        return Err(Error::other("others can replace what lies in its folder"));
    }
    match rustix::fs::mkdirat(&above, name, Mode::from_raw_mode(mode)) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    let own = rustix::fs::openat(&above, name, folder | OFlags::NOFOLLOW, Mode::empty())?;
    let own = File::from(own);
    let data = own.metadata()?;
    if data.uid() != geteuid().as_raw() {
        return Err(Error::other(format!("it belongs to user {}", data.uid())));
    }
    // Whatever the mask of this process is, or who made it.
    own.set_permissions(std::fs::Permissions::from_mode(mode))?;
    Ok(parent.join(name))
}

/// Opens a lock without waiting and without following a link; an error if it is not a file of ours.
fn open_lock(folder: impl AsFd, path: &Path, create: OFlags) -> Result<File> {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let mode = Mode::from_raw_mode(0o600);
    let file: OwnedFd = rustix::fs::openat(folder, path, flags | OFlags::CLOEXEC | create, mode)?;
    let file = File::from(file);
    let data = file.metadata()?;
    match data.is_file() && data.uid() == geteuid().as_raw() {
        true => Ok(file),
        false => Err(Error::other(format!(
            "{} is not a file of ours",
            path.display()
        ))),
    }
}

/// Locks a user number; `None` while somebody has it.
fn lock_user(path: &Path) -> Result<Option<File>> {
    let file = open_lock(CWD, path, OFlags::CREATE)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Makes a folder and locks it. Not found, when it was removed meanwhile.
fn make_locked(path: &Path) -> Result<File> {
    // Created for us alone, then opened to pass through: workers of other users must reach their own folder.
    DirBuilder::new().mode(0o700).create(path)?;
    let name = path.join(LOCK);
    let lock = open_lock(CWD, &name, OFlags::CREATE | OFlags::EXCL)?;
    lock.lock()?;
    // Who held it before us has removed it with its folder. From here on nobody does.
    name.metadata()?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o711))?;
    Ok(lock)
}

/// Removes a folder that a worker may have filled with anything. Does not follow links out of it.
fn remove(folder: &Path) {
    match remove_tree(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            log::warn!("cannot remove {}: {error}", folder.display());
        }
        _ => {}
    }
}

/// Has two folders open at a time, however deep they lie: what lies in a folder of `folder` is moved up into `folder`.
fn remove_tree(folder: &Path) -> Result<()> {
    let open = |parent, name: &CStr| {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(parent, name, flags, Mode::empty())
    };
    let path = CString::new(folder.as_os_str().as_bytes())?;
    let root = open(CWD, &path)?;
    let mut moved = 0;
    loop {
        let mut seen = 0;
        for entry in entries_of(&root)? {
            let entry = entry?;
            seen += 1;
            if remove_entry(&root, entry.file_name())? {
                continue;
            }
            let inner = open(root.as_fd(), entry.file_name())?;
            for entry in entries_of(&inner)? {
                let entry = entry?;
                if !remove_entry(&inner, entry.file_name())? {
                    move_up(&inner, entry.file_name(), &root, &mut moved)?;
                }
            }
            // A folder that did not tell all entries while others went is found again by the next look at `root`.
            remove_entry(&root, entry.file_name())?;
        }
        if seen == 0 {
            return Ok(rustix::fs::unlinkat(CWD, &path, AtFlags::REMOVEDIR)?);
        }
    }
}

fn entries_of(folder: &OwnedFd) -> Result<impl Iterator<Item = rustix::io::Result<DirEntry>>> {
    let is_other = |entry: &rustix::io::Result<DirEntry>| {
        let name = entry.as_ref().map(|entry| entry.file_name().to_bytes());
        !matches!(name, Ok(b"." | b".."))
    };
    Ok(Dir::read_from(folder)?.filter(is_other))
}

/// Removes a file or an empty folder; false for a folder that is not.
fn remove_entry(folder: &OwnedFd, name: &CStr) -> rustix::io::Result<bool> {
    let removed = match rustix::fs::unlinkat(folder, name, AtFlags::empty()) {
        Err(Errno::ISDIR) => rustix::fs::unlinkat(folder, name, AtFlags::REMOVEDIR),
        other => other,
    };
    match removed {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::NOTEMPTY) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Moves a folder into `to`, under a name that is free there.
fn move_up(from: &OwnedFd, name: &CStr, to: &OwnedFd, moved: &mut u64) -> rustix::io::Result<()> {
    loop {
        *moved += 1;
        let free = format!("moved-{moved}");
        match rustix::fs::renameat_with(from, name, to, free, RenameFlags::NOREPLACE) {
            Err(Errno::EXIST) => {}
            other => return other,
        }
    }
}

fn sweep(parent: &Path) {
    let Ok(entries) = std::fs::read_dir(parent) else {
        return;
    };
    for entry in entries.flatten() {
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        let lock = match open_lock(CWD, &entry.path().join(LOCK), OFlags::empty()) {
            Ok(lock) => lock,
            Err(error) => {
                let made = entry.metadata().and_then(|data| data.modified()).ok();
                let age = made.and_then(|made| made.elapsed().ok());
                if error.kind() == ErrorKind::NotFound && age.is_some_and(|age| age > HALF_MADE) {
                    remove(&entry.path());
                }
                continue;
            }
        };
        match lock.try_lock() {
            Ok(()) => remove(&entry.path()),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => log::debug!("{}: {error}", entry.path().display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn folder_left_behind_is_removed_and_a_live_one_is_not() {
        let parent = tempfile::tempdir().unwrap();
        let live = RuntimeFolder::make_in(parent.path()).unwrap();
        let left = parent.path().join(format!("{PREFIX}1-dead"));
        std::fs::create_dir_all(left.join("worker-1/cache")).unwrap();
        std::fs::write(left.join(LOCK), "").unwrap();
        let [young, old] = ["2-young", "3-old"].map(|name| {
            let path = parent.path().join(format!("{PREFIX}{name}"));
            std::fs::create_dir(&path).unwrap();
            path
        });
        let an_hour_ago = SystemTime::now() - Duration::from_secs(3600);
        File::open(&old).unwrap().set_modified(an_hour_ago).unwrap();
        let next = RuntimeFolder::make_in(parent.path()).unwrap();
        assert_eq!(
            [&live.path, &left, &young, &old, &next.path].map(|path| path.exists()),
            [true, false, true, false, true]
        );
    }

    #[test]
    fn folders_made_at_once_do_not_sweep_each_other() {
        let parent = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let folder = RuntimeFolder::make_in(parent.path()).unwrap();
                        folder.make_home(1, &mut None, None).unwrap();
                    }
                });
            }
        });
        assert_eq!(entries(parent.path()), ["users"]);
    }

    #[test]
    fn dropped_folder_is_gone_with_its_homes() {
        let parent = tempfile::tempdir().unwrap();
        let folder = RuntimeFolder::make_in(parent.path()).unwrap();
        let home = folder.make_home(1, &mut None, None).unwrap();
        std::fs::write(home.path().join("kernel.so"), "").unwrap();
        assert_eq!(
            home.path().metadata().unwrap().permissions().mode() & 0o777,
            0o700
        );
        drop(home);
        drop(folder);
        assert_eq!(entries(parent.path()), ["users"]);
    }

    fn entries(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    #[test]
    fn folders_of_any_depth_are_removed() {
        // In memory, where folders are made quickly.
        let parent = tempfile::tempdir_in("/dev/shm").unwrap();
        let top = parent.path().join("home");
        std::fs::create_dir(&top).unwrap();
        std::fs::create_dir_all(top.join("moved-1/moved-2/beside")).unwrap();
        std::os::unix::fs::symlink(parent.path(), top.join("moved-1/link")).unwrap();
        let mut folder = OwnedFd::from(File::open(&top).unwrap());
        for _ in 0..20_000 {
            rustix::fs::mkdirat(&folder, "deep", Mode::RWXU).unwrap();
            let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
            folder = rustix::fs::openat(&folder, "deep", flags, Mode::empty()).unwrap();
        }
        rustix::fs::mknodat(&folder, "fifo", rustix::fs::FileType::Fifo, Mode::RWXU, 0).unwrap();
        remove(&top);
        assert!(!top.exists() && parent.path().exists());
    }

    #[test]
    fn user_number_is_given_once_until_it_is_let_go() {
        let parent = tempfile::tempdir().unwrap();
        let pools = [(); 2].map(|()| RuntimeFolder::make_in(parent.path()).unwrap());
        let (first, lease) = pools[0].lease_user(5).unwrap();
        let (second, _other) = pools[1].lease_user(5).unwrap();
        assert_ne!(first.uid, second.uid);
        drop(lease);
        assert_eq!(pools[1].lease_user(5).unwrap().0.uid, first.uid);
    }

    #[test]
    fn what_others_left_at_the_folders_place_stops_no_server() {
        let leave: [fn(&Path); 3] = [
            |place| {
                rustix::fs::mknodat(CWD, place, rustix::fs::FileType::Fifo, Mode::RWXU, 0).unwrap()
            },
            |place| std::os::unix::fs::symlink("/etc", place).unwrap(),
            |place| std::fs::write(place, "").unwrap(),
        ];
        for leave in leave {
            let temporary = tempfile::tempdir().unwrap();
            leave(
                &temporary
                    .path()
                    .join(format!("towline-{}", geteuid().as_raw())),
            );
            let folder = RuntimeFolder::make_below(None, temporary.path(), 0o700).unwrap();
            assert_eq!(folder.path.ancestors().nth(2), Some(temporary.path()));
        }
    }

    #[test]
    fn folder_of_another_user_is_not_used() {
        if !geteuid().is_root() {
            return;
        }
        let temporary = tempfile::tempdir().unwrap();
        let foreign = temporary.path().join("towline-0");
        std::fs::create_dir(&foreign).unwrap();
        chown(&foreign, Some(65534), None).unwrap();
        let folder = RuntimeFolder::make_below(None, temporary.path(), 0o700).unwrap();
        assert!(!folder.path.starts_with(&foreign));
        // Nor one in which others can put another in its place.
        let open = temporary.path().join("open");
        std::fs::create_dir(&open).unwrap();
        std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(RuntimeFolder::make_below(None, &open, 0o700).is_err());
    }

    #[test]
    fn locks_are_neither_waited_for_nor_followed() {
        let parent = tempfile::tempdir().unwrap();
        let folder = |name: &str| {
            let path = parent.path().join(format!("{PREFIX}{name}"));
            std::fs::create_dir(&path).unwrap();
            path.join(LOCK)
        };
        let (fifo, link) = (folder("1-fifo"), folder("2-link"));
        rustix::fs::mknodat(CWD, &fifo, rustix::fs::FileType::Fifo, Mode::RWXU, 0).unwrap();
        let target = tempfile::NamedTempFile::new().unwrap();
        std::os::unix::fs::symlink(target.path(), &link).unwrap();
        let made = RuntimeFolder::make_in(parent.path()).unwrap();
        let user = made
            .users
            .join(UnprivilegedUser::dynamic(9).uid.to_string());
        std::os::unix::fs::symlink(target.path(), user).unwrap();
        assert!(made.lease_user(9).is_err());
        assert!(fifo.symlink_metadata().is_ok() && link.symlink_metadata().is_ok());
    }
}
