//! Files that hold what proves who somebody is.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::path::Path;

/// Reads a file that only its owner can read, who is this process's user or root; Windows' file access is not checked. Of a longer one,
/// one byte more than `most`.
pub fn read_secret(path: &Path, most: usize) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    check_access(path, &metadata)?;
    let mut bytes = Vec::new();
    file.take(most as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(unix)]
fn check_access(path: &Path, metadata: &Metadata) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt;

    let (mode, owner) = (metadata.mode() & 0o777, metadata.uid());
    if mode & 0o077 != 0 {
        return Err(io::Error::other(format!(
            "others than its owner can use it (mode {mode:03o}); protect it with: chmod 600 {}",
            path.display()
        )));
    }
    let user = rustix::process::geteuid().as_raw();
    if owner != user && owner != 0 {
        return Err(io::Error::other(format!(
            "it belongs to user {owner}, who can change it, and this runs as user {user}; run it as that user (as root: `setpriv \
             --reuid {owner} --clear-groups`, or `runuser -u NAME`), or have the file belong to user {user} or to root"
        )));
    }
    Ok(())
}

/// Whether this program has the rights of its user and no more. Otherwise the user would choose which files it reads and writes, and
/// which code it loads.
#[cfg(unix)]
pub fn is_trusted() -> bool {
    use rustix::process::{getegid, geteuid, getgid, getuid};

    getuid() == geteuid() && getgid() == getegid()
}

/// Whether this program has the rights of its user and no more.
#[cfg(not(unix))]
pub fn is_trusted() -> bool {
    true
}

/// A user's folder is closed to other users, and access to one file is more than the standard library can tell.
#[cfg(not(unix))]
fn check_access(_path: &Path, _metadata: &Metadata) -> io::Result<()> {
    Ok(())
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_others_can_read_or_write_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "secret").unwrap();
        let read_with = |mode| {
            std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(mode)).unwrap();
            read_secret(file.path(), 4)
        };
        for mode in [0o644, 0o640, 0o604, 0o620, 0o602, 0o610] {
            let error = read_with(mode).unwrap_err().to_string();
            assert!(error.contains("chmod 600"), "{error}");
        }
        for mode in [0o600, 0o400] {
            assert_eq!(read_with(mode).unwrap(), b"secre");
        }
    }

    #[test]
    fn what_is_no_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        assert!(read_secret(folder.path(), 4).is_err());
        assert!(read_secret(&folder.path().join("missing"), 4).is_err());
    }
}
