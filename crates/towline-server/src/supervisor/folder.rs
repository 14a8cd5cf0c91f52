//! The workers' folders on disk: homes for workers that cannot have a private /tmp, gone when the worker is.

use std::fs::{DirBuilder, File, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use towline_sys::jail::UnprivilegedUser;

use super::SupervisorError;

const PREFIX: &str = "towline-serve-";
const LOCK: &str = "lock";

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
        let name = format!(
            "{PREFIX}{}-{:016x}",
            std::process::id(),
            u64::from_le_bytes(super::random()?)
        );
        let path = parent.join(name);
        let attempt = || {
            // Created for us alone, then opened to pass through: workers of other users must reach their own folder.
            DirBuilder::new().mode(0o700).create(&path)?;
            let lock = File::create_new(path.join(LOCK))?;
            lock.lock()?;
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o711))?;
            Ok(lock)
        };
        let lock = attempt().map_err(|source| SupervisorError::Folder {
            folder: parent.to_owned(),
            source,
        })?;
        Ok(Self { path, _lock: lock })
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

/// Removes a folder that a worker may have filled with anything. Does not follow links out of it.
pub(super) fn remove(folder: &Path) {
    if let Err(error) = std::fs::remove_dir_all(folder) {
        log::warn!("cannot remove {}: {error}", folder.display());
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
        // Not ours, or half made: leave it.
        let Ok(lock) = File::open(entry.path().join(LOCK)) else {
            continue;
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
    use super::*;

    #[test]
    fn folder_left_behind_is_removed_and_a_live_one_is_not() {
        let parent = tempfile::tempdir().unwrap();
        let live = RuntimeFolder::make_in(parent.path()).unwrap();
        let left = parent.path().join(format!("{PREFIX}1-dead"));
        std::fs::create_dir_all(left.join("worker-1/cache")).unwrap();
        std::fs::write(left.join(LOCK), "").unwrap();
        let next = RuntimeFolder::make_in(parent.path()).unwrap();
        assert_eq!(
            (live.path.exists(), left.exists(), next.path.exists()),
            (true, false, true)
        );
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
