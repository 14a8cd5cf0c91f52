//! The workers' folders on disk: homes for workers that cannot have a private /tmp, gone when the worker is.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use towline_sys::jail::UnprivilegedUser;

use super::SupervisorError;

const PREFIX: &str = "towline-serve-";
const LOCK: &str = "lock";
/// How many folders to make until one is not removed by another supervisor before it is locked: that takes microseconds.
const ATTEMPTS: usize = 64;
/// How old a folder without a lock is before it counts as left behind by who was killed while making or removing it.
const HALF_MADE: Duration = Duration::from_secs(60);

/// The folder of one supervisor. Held by a file lock, so that the next supervisor can tell whether it was left behind.
pub(super) struct RuntimeFolder {
    path: PathBuf,
    _lock: File,
}

impl RuntimeFolder {
    /// Makes the folder, and removes those of supervisors that were killed.
    pub(super) fn make() -> Result<Self, SupervisorError> {
        Self::make_in(&std::env::temp_dir())
    }

    fn make_in(parent: &Path) -> Result<Self, SupervisorError> {
        sweep(parent);
        for _ in 0..ATTEMPTS {
            let name = format!(
                "{PREFIX}{}-{:016x}",
                std::process::id(),
                u64::from_le_bytes(super::random()?)
            );
            let path = parent.join(name);
            match make_locked(&path) {
                Ok(lock) => return Ok(Self { path, _lock: lock }),
                // A supervisor that starts just now found it before it was locked, and removed it.
                Err(error) if error.kind() == ErrorKind::NotFound && parent.is_dir() => {}
                Err(source) => {
                    return Err(SupervisorError::Folder {
                        folder: parent.to_owned(),
                        source,
                    });
                }
            }
        }
        Err(SupervisorError::Folder {
            folder: parent.to_owned(),
            source: std::io::Error::other(format!("{ATTEMPTS} were removed by others at once")),
        })
    }

    /// A folder for one worker, which only `user` (or we) can enter.
    ///
    /// `user` is taken back when this system has no such user: the root of a container may have no other number to give.
    pub(super) fn make_home(
        &self,
        number: u64,
        user: &mut Option<UnprivilegedUser>,
    ) -> std::io::Result<PathBuf> {
        let home = self.path.join(format!("worker-{number}"));
        DirBuilder::new().mode(0o700).create(&home)?;
        if let Some(wanted) = user {
            match chown(&home, Some(wanted.uid), Some(wanted.gid)) {
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

/// Makes a folder and locks it. Not found, when it was removed meanwhile.
fn make_locked(path: &Path) -> std::io::Result<File> {
    // Created for us alone, then opened to pass through: workers of other users must reach their own folder.
    DirBuilder::new().mode(0o700).create(path)?;
    let name = path.join(LOCK);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let lock = options.open(&name)?;
    lock.lock()?;
    // Who held it before us has removed it with its folder. From here on nobody does.
    name.metadata()?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o711))?;
    Ok(lock)
}

/// Removes a folder that a worker may have filled with anything. Does not follow links out of it.
pub(super) fn remove(folder: &Path) {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            log::warn!("cannot remove {}: {error}", folder.display());
        }
        _ => {}
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
        let lock = match File::open(entry.path().join(LOCK)) {
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
                        folder.make_home(1, &mut None).unwrap();
                    }
                });
            }
        });
        assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0);
    }

    #[test]
    fn dropped_folder_is_gone_with_its_homes() {
        let parent = tempfile::tempdir().unwrap();
        let folder = RuntimeFolder::make_in(parent.path()).unwrap();
        let home = folder.make_home(1, &mut None).unwrap();
        std::fs::write(home.join("kernel.so"), "").unwrap();
        assert_eq!(home.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        drop(folder);
        assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0);
    }
}
