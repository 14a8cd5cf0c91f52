//! A folder of one user alone. All is done relative to its descriptor: nobody who can rename what is above it leads a write elsewhere.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, CWD, Dir, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::CheckpointError;

const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);
/// Begins a file's name while it is written. The rest tells writers apart.
const DRAFT: &str = "draft-";

/// See the module's text.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    itself: File,
}

impl Folder {
    /// Opens a folder, which has to belong to the process's user and to be closed to all others.
    pub fn open(path: &Path) -> Result<Self, CheckpointError> {
        let refuse = |why| CheckpointError::Folder {
            folder: path.to_owned(),
            why,
        };
        let opened = rustix::fs::openat(CWD, path, flags_of_folders(), Mode::empty());
        let itself = opened.map_err(|errno| match errno {
            Errno::NOENT => refuse("it is not there; make it with `mkdir -m 700`"),
            Errno::NOTDIR | Errno::LOOP => refuse("it is no folder"),
            errno => system(path, "open the folder", errno.into()),
        })?;
        let found = rustix::fs::fstat(&itself);
        let found = found.map_err(|errno| system(path, "open the folder", errno.into()))?;
        if found.st_uid != rustix::process::geteuid().as_raw() {
            return Err(refuse("it belongs to another user"));
        }
        if Mode::from_raw_mode(found.st_mode).intersects(Mode::RWXG | Mode::RWXO) {
            return Err(refuse(
                "others than its owner may use it; close it with `chmod 700`",
            ));
        }
        Ok(Self {
            path: path.to_owned(),
            itself: itself.into(),
        })
    }

    /// As [`Self::open`], of a folder that is made where it is missing.
    pub fn make(path: &Path) -> Result<Self, CheckpointError> {
        match rustix::fs::mkdirat(CWD, path, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => Self::open(path),
            Err(errno) => Err(system(path, "make the folder", errno.into())),
        }
    }

    /// A folder in this one, made where it is missing.
    pub(crate) fn inner(&self, name: &str) -> Result<Self, CheckpointError> {
        match rustix::fs::mkdirat(&self.itself, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(self.failed("make a folder", errno.into())),
        }
        let opened = rustix::fs::openat(&self.itself, name, flags_of_folders(), Mode::empty());
        let itself = opened.map_err(|errno| self.failed("open a folder", errno.into()))?;
        Ok(Self {
            path: self.path.join(name),
            itself: itself.into(),
        })
    }

    /// The path by which it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Takes the folder for one process alone, until this value is dropped; false where another has it.
    pub fn lock(&self) -> Result<bool, CheckpointError> {
        match rustix::fs::flock(&self.itself, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(true),
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(errno) => Err(self.failed("lock the folder", errno.into())),
        }
    }

    /// Ends [`Self::lock`].
    pub(crate) fn unlock(&self) -> Result<(), CheckpointError> {
        let unlocked = rustix::fs::flock(&self.itself, FlockOperation::Unlock);
        unlocked.map_err(|errno| self.failed("unlock the folder", errno.into()))
    }

    /// Locks a file, made where it is missing, until the result is dropped; `None` where another has it.
    pub(crate) fn lock_file(&self, name: &str) -> Result<Option<File>, CheckpointError> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.itself, name, flags, FILE_MODE);
        let file = file.map_err(|errno| self.failed("open a file", errno.into()))?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(file.into())),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(self.failed("lock a file", errno.into())),
        }
    }

    /// The bytes of a file of at most `limit` bytes; `None` where it is missing.
    pub fn read(&self, name: &str, limit: usize) -> Result<Option<Vec<u8>>, CheckpointError> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(&self.itself, name, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(self.failed("open a file", errno.into())),
        };
        let mut bytes = Vec::new();
        let read = file.take(limit as u64 + 1).read_to_end(&mut bytes);
        read.map_err(|error| self.failed("read a file", error))?;
        if bytes.len() > limit {
            let what = format!("{name} has more than {limit} bytes");
            return Err(self.damaged(what));
        }
        Ok(Some(bytes))
    }

    /// Writes a file, which appears under its name as a whole, or not.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<(), CheckpointError> {
        let failed = |error| self.failed("write a file", error);
        let (mut file, draft) = self.draft().map_err(|errno| failed(errno.into()))?;
        let written = file.write_all(bytes).and_then(|()| file.sync_data());
        let written = written.and_then(|()| {
            let renamed = rustix::fs::renameat(&self.itself, &draft, &self.itself, name);
            renamed.map_err(io::Error::from)
        });
        if written.is_err() {
            let _ = self.remove(&draft);
        }
        written.map_err(failed)
    }

    /// A new file, and its name.
    fn draft(&self) -> Result<(File, String), Errno> {
        static DRAFTS: AtomicU64 = AtomicU64::new(0);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        loop {
            let number = DRAFTS.fetch_add(1, Ordering::Relaxed);
            let name = format!("{DRAFT}{}-{number}", std::process::id());
            match rustix::fs::openat(&self.itself, &name, flags, FILE_MODE) {
                Ok(file) => return Ok((file.into(), name)),
                // A writer that died may have left it, or one in another container has it.
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Whether a file's name is one of a file that is being written, or never was to its end.
    pub(crate) fn is_draft(name: &str) -> bool {
        name.starts_with(DRAFT)
    }

    /// Removes a file; whether it was there.
    pub fn remove(&self, name: &str) -> Result<bool, CheckpointError> {
        match rustix::fs::unlinkat(&self.itself, name, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(self.failed("remove a file", errno.into())),
        }
    }

    /// Renames a file, in place of any that has the new name; false where it is missing.
    pub fn rename(&self, from: &str, to: &str) -> Result<bool, CheckpointError> {
        match rustix::fs::renameat(&self.itself, from, &self.itself, to) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(self.failed("rename a file", errno.into())),
        }
    }

    /// Whether a file is there.
    pub fn has(&self, name: &str) -> bool {
        rustix::fs::statat(&self.itself, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// Names of all that it holds.
    pub(crate) fn names(&self) -> Result<Vec<String>, CheckpointError> {
        let failed = |errno: Errno| self.failed("list the folder", errno.into());
        let entries = Dir::read_from(&self.itself).map_err(failed)?;
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(failed)?;
            names.extend(entry.file_name().to_str().map(str::to_owned));
        }
        Ok(names)
    }

    /// Has names of files on the disk, as their bytes are.
    pub(crate) fn sync(&self) -> Result<(), CheckpointError> {
        let synced = self.itself.sync_all();
        synced.map_err(|error| self.failed("sync the folder", error))
    }

    pub(crate) fn damaged(&self, what: String) -> CheckpointError {
        CheckpointError::Damaged {
            folder: self.path.clone(),
            what,
        }
    }

    fn failed(&self, action: &'static str, cause: io::Error) -> CheckpointError {
        system(&self.path, action, cause)
    }
}

fn flags_of_folders() -> OFlags {
    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC
}

fn system(folder: &Path, action: &'static str, cause: io::Error) -> CheckpointError {
    CheckpointError::System {
        folder: folder.to_owned(),
        action,
        cause,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn folders_that_others_may_use_are_refused() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("held");
        let why = |path: &Path| Folder::open(path).unwrap_err().to_string();
        assert!(why(&path).contains("not there"));
        std::fs::write(&path, "").unwrap();
        assert!(why(&path).contains("no folder"));
        std::fs::remove_file(&path).unwrap();
        Folder::make(&path).unwrap();
        assert!(Folder::open(&path).is_ok());
        let link = place.path().join("link");
        symlink(&path, &link).unwrap();
        assert!(why(&link).contains("no folder"));
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o710)).unwrap();
        assert!(why(&path).contains("chmod 700"));
    }

    #[test]
    fn links_in_the_folder_are_not_followed() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::make(&place.path().join("held")).unwrap();
        let outside = place.path().join("outside");
        std::fs::write(&outside, "secret").unwrap();
        symlink(&outside, folder.path().join("answer")).unwrap();
        assert!(folder.read("answer", 100).is_err());
        folder.write("answer", b"public").unwrap();
        assert_eq!(std::fs::read(&outside).unwrap(), b"secret");
        assert_eq!(folder.read("answer", 100).unwrap().unwrap(), b"public");
    }

    #[test]
    fn drafts_of_others_are_left_alone() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::make(&place.path().join("held")).unwrap();
        let (_, theirs) = folder.draft().unwrap();
        folder.write("answer", b"public").unwrap();
        assert_eq!(folder.read("answer", 100).unwrap().unwrap(), b"public");
        assert!(folder.has(&theirs) && Folder::is_draft(&theirs));
        assert_eq!(folder.names().unwrap().len(), 4, "with . and ..");
    }

    #[test]
    fn one_process_alone_has_the_folder() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("held");
        let (first, second) = (Folder::make(&path).unwrap(), Folder::open(&path).unwrap());
        assert!(first.lock().unwrap() && !second.lock().unwrap());
        drop(first);
        assert!(second.lock().unwrap());
    }
}
