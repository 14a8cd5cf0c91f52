//! A look at files that sessions of a tenant have made, and may be changing: no link is followed, nothing but regular files is opened, and
//! every count is bounded.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, ResolveFlags, Stat, Timespec, Timestamps,
};
use rustix::io::Errno;

/// Folders within each other, and bytes of a path: compilers use five and a hundred.
const DEPTH: usize = 16;
const PATH_BYTES: usize = 1024;
/// Entries of folders in one look. The file system has no room for more at once.
const ENTRIES: usize = 2 * super::INODES as usize;

/// A regular file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Found {
    pub(super) path: PathBuf,
    pub(super) stamp: Stamp,
    /// When it was last read or written.
    pub(super) used: SystemTime,
}

/// Size and times of a file, which change with its contents.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Stamp {
    pub(super) bytes: u64,
    pub(super) modified: SystemTime,
}

/// Whether a path can be one of a file here.
pub(super) fn is_plain(path: &Path) -> bool {
    let mut parts = path.components();
    parts.all(|part| matches!(part, Component::Normal(_)))
        && (1..=DEPTH).contains(&path.components().count())
        && path.as_os_str().len() <= PATH_BYTES
}

/// The regular files below `root` that have one name each.
pub(super) fn walk(root: BorrowedFd<'_>) -> Vec<Found> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::new()];
    let mut left = ENTRIES;
    while let Some(folder) = folders.pop() {
        // One that is gone, or closed to this process, has nothing to keep.
        let Ok(opened) = open_folder(root, &folder) else {
            continue;
        };
        let Ok(entries) = Dir::read_from(&opened) else {
            continue;
        };
        for entry in entries.flatten() {
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            let Some(fewer) = left.checked_sub(1) else {
                return found;
            };
            left = fewer;
            let name = OsStr::from_bytes(name);
            let Ok(stat) = rustix::fs::statat(&opened, name, AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            let path = folder.join(name);
            if !is_plain(&path) {
                continue;
            }
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => folders.push(path),
                FileType::RegularFile if stat.st_nlink == 1 => found.push(seen(path, &stat)),
                _ => {}
            }
        }
    }
    found
}

fn seen(path: PathBuf, stat: &Stat) -> Found {
    let stamp = stamp_of(stat);
    let read = time(stat.st_atime, stat.st_atime_nsec);
    Found {
        path,
        stamp,
        used: read.max(stamp.modified),
    }
}

fn stamp_of(stat: &Stat) -> Stamp {
    Stamp {
        bytes: u64::try_from(stat.st_size).unwrap_or(u64::MAX),
        modified: time(stat.st_mtime, stat.st_mtime_nsec),
    }
}

/// A time of a file, which its owner can have set to anything.
fn time(seconds: i64, nanoseconds: u64) -> SystemTime {
    let seconds = u64::try_from(seconds).unwrap_or(0);
    let since = Duration::from_secs(seconds).saturating_add(Duration::from_nanos(nanoseconds));
    UNIX_EPOCH.checked_add(since).unwrap_or(UNIX_EPOCH)
}

fn open_below(root: BorrowedFd<'_>, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let path = match path.as_os_str().is_empty() {
        true => Path::new("."),
        false => path,
    };
    let resolve = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV;
    rustix::fs::openat2(root, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve)
}

fn open_folder(root: BorrowedFd<'_>, path: &Path) -> rustix::io::Result<OwnedFd> {
    open_below(root, path, OFlags::RDONLY | OFlags::DIRECTORY)
}

/// Mode and contents of a file; an error if it is another than `stamp` says, or becomes that meanwhile.
pub(super) fn read(root: BorrowedFd<'_>, path: &Path, stamp: Stamp) -> Result<(u32, Vec<u8>)> {
    // What is no file any more is not waited for, and this is no use of the file.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::from(open_below(root, path, flags | OFlags::NOATIME)?);
    let is_same = |file: &File| {
        let stat = rustix::fs::fstat(file)?;
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        match is_file && stamp_of(&stat) == stamp {
            true => Ok(stat.st_mode),
            false => Err(Error::new(ErrorKind::InvalidData, "it has changed")),
        }
    };
    is_same(&file)?;
    let mut bytes = Vec::with_capacity(usize::try_from(stamp.bytes).unwrap_or(0));
    (&file).take(stamp.bytes).read_to_end(&mut bytes)?;
    let mode = is_same(&file)?;
    Ok((mode & 0o777, bytes))
}

/// Makes a file, whole from the start, of an owner, as it was used at `used`; gives its stamp. An error where there is one.
pub(super) fn write(
    root: BorrowedFd<'_>,
    path: &Path,
    (mode, bytes): (u32, &[u8]),
    owner: (u32, u32),
    used: SystemTime,
) -> Result<Stamp> {
    let name = path.file_name().ok_or(ErrorKind::InvalidInput)?;
    let folder = make_folders(root, path.parent().unwrap_or(Path::new("")), owner)?;
    let mut draft = OsStr::from_bytes(b".towline-").to_owned();
    draft.push(name);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
    let file = rustix::fs::openat(&folder, &draft, flags | OFlags::CLOEXEC, Mode::RUSR)?;
    let mut file = File::from(file);
    let finish = |file: &mut File| {
        file.write_all(bytes)?;
        // The owner's rights, whatever else there was: nobody else can reach it.
        rustix::fs::fchmod(&*file, Mode::from_raw_mode(mode & 0o700))?;
        fchown(&*file, Some(owner.0), Some(owner.1))?;
        let since = used.duration_since(UNIX_EPOCH).unwrap_or_default();
        let at = Timespec {
            tv_sec: since.as_secs().try_into().unwrap_or(0),
            tv_nsec: since.subsec_nanos().into(),
        };
        let times = Timestamps {
            last_access: at,
            last_modification: at,
        };
        rustix::fs::futimens(&*file, &times)?;
        rustix::fs::renameat_with(&folder, &draft, &folder, name, RenameFlags::NOREPLACE)?;
        Ok(stamp_of(&rustix::fs::fstat(&*file)?))
    };
    let finished = finish(&mut file);
    if finished.is_err() {
        let _ = rustix::fs::unlinkat(&folder, &draft, AtFlags::empty());
    }
    finished
}

fn make_folders(root: BorrowedFd<'_>, path: &Path, owner: (u32, u32)) -> Result<OwnedFd> {
    let mut folder = open_folder(root, Path::new(""))?;
    for part in path.components() {
        let part = part.as_os_str();
        let made = rustix::fs::mkdirat(&folder, part, Mode::RWXU);
        let next = open_folder(folder.as_fd(), Path::new(part))?;
        match made {
            Ok(()) => fchown(&next, Some(owner.0), Some(owner.1))?,
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        folder = next;
    }
    Ok(folder)
}

/// Removes a file.
pub(super) fn remove(root: BorrowedFd<'_>, path: &Path) {
    let Some(name) = path.file_name() else { return };
    if let Ok(folder) = open_folder(root, path.parent().unwrap_or(Path::new(""))) {
        // Its session may have done so.
        let _ = rustix::fs::unlinkat(&folder, name, AtFlags::empty());
    }
}

/// How full a file system is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Usage {
    pub(super) bytes: u64,
    pub(super) most_bytes: u64,
    pub(super) inodes: u64,
    pub(super) most_inodes: u64,
}

/// How full the file system is whose root this is. One without a limit is never full.
pub(super) fn in_use(root: BorrowedFd<'_>) -> Usage {
    let Ok(stat) = rustix::fs::fstatvfs(root) else {
        return Usage::default();
    };
    let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
    Usage {
        bytes: bytes(stat.f_blocks.saturating_sub(stat.f_bfree)),
        most_bytes: bytes(stat.f_blocks),
        inodes: stat.f_files.saturating_sub(stat.f_ffree),
        most_inodes: stat.f_files,
    }
}

/// Whether a folder is this user's alone.
pub(super) fn is_private(folder: &Path) -> Result<bool> {
    let data = folder.symlink_metadata()?;
    let own = data.uid() == rustix::process::geteuid().as_raw();
    Ok(data.is_dir() && own && data.mode() & 0o077 == 0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::process::Command;

    use super::*;

    fn own() -> (u32, u32) {
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        (uid.as_raw(), gid.as_raw())
    }

    #[test]
    fn links_and_special_files_are_neither_found_nor_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let secret = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&secret, "a secret").unwrap();
        std::fs::write(path.join("kernel"), "code").unwrap();
        symlink(secret.path(), path.join("link")).unwrap();
        symlink("/", path.join("way-out")).unwrap();
        std::fs::write(path.join("twice"), "code").unwrap();
        std::fs::hard_link(path.join("twice"), path.join("again")).unwrap();
        let fifo = Command::new("mkfifo").arg(path.join("fifo")).status();
        assert!(fifo.unwrap().success());
        let _socket = std::os::unix::net::UnixListener::bind(path.join("socket")).unwrap();
        let root = File::open(path).unwrap();
        let found = walk(root.as_fd());
        let names: Vec<_> = found.iter().map(|file| file.path.to_str()).collect();
        assert_eq!(names, [Some("kernel")]);
        let stamp = found[0].stamp;
        assert_eq!(
            read(root.as_fd(), Path::new("kernel"), stamp).unwrap().1,
            b"code"
        );
        for planted in ["link", "fifo", "socket", "way-out/etc/passwd"] {
            let outcome = read(root.as_fd(), Path::new(planted), stamp);
            assert!(outcome.is_err(), "{planted}");
        }
        let passwd = File::open("/etc/passwd").unwrap();
        let passwd = stamp_of(&rustix::fs::fstat(&passwd).unwrap());
        let outcome = read(root.as_fd(), Path::new("way-out/etc/passwd"), passwd);
        assert!(outcome.is_err());
        let written = write(
            root.as_fd(),
            Path::new("way-out/tmp/planted"),
            (0o700, b"code"),
            own(),
            UNIX_EPOCH,
        );
        assert!(written.is_err());
    }

    #[test]
    fn folders_within_folders_end_the_look() {
        let folder = tempfile::tempdir().unwrap();
        let deep: PathBuf = (0..3 * DEPTH).map(|_| "d").collect();
        std::fs::create_dir_all(folder.path().join(&deep)).unwrap();
        std::fs::write(folder.path().join(&deep).join("kernel"), "code").unwrap();
        let root = File::open(folder.path()).unwrap();
        assert!(walk(root.as_fd()).is_empty());
    }

    #[test]
    fn written_file_is_found_as_it_was_used() {
        let folder = tempfile::tempdir().unwrap();
        let root = File::open(folder.path()).unwrap();
        let used = UNIX_EPOCH + Duration::from_secs(1_000_000);
        let path = Path::new("a/b/kernel.so");
        let stamp = write(root.as_fd(), path, (0o755, b"code"), own(), used).unwrap();
        let found = walk(root.as_fd());
        let expected = Found {
            path: path.to_owned(),
            stamp,
            used,
        };
        assert_eq!(found, [expected]);
        let (mode, bytes) = read(root.as_fd(), path, stamp).unwrap();
        assert_eq!((mode, &bytes[..]), (0o700, &b"code"[..]));
        assert!(write(root.as_fd(), path, (0o700, b"other"), own(), used).is_err());
    }
}
