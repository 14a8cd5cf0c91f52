//! A tenant's kernels on disk: a flat folder with a file for each of theirs, named by the digest of its path. The server alone makes and
//! reads them; a digest at the start tells one that was damaged.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read, Result, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};

use super::{FILES, hex, tree};

/// Start of every file, with the version of its form.
const MAGIC: &[u8; 8] = b"towkern1";
const DIGEST_BYTES: usize = 32;
/// Magic, digest, mode and length of the path.
const HEAD_BYTES: usize = MAGIC.len() + DIGEST_BYTES + 4 + 4;
/// Ends the names of files that are not whole yet.
const DRAFT: &str = "new";
/// How old one of these is before its writer counts as killed.
const HALF_WRITTEN: Duration = Duration::from_secs(3600);

/// A file of a tenant.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Kept {
    pub(super) path: PathBuf,
    pub(super) mode: u32,
    pub(super) bytes: Vec<u8>,
}

/// The folder of a tenant.
#[derive(Debug)]
pub(super) struct Disk {
    folder: PathBuf,
    /// Most bytes.
    limit: u64,
}

impl Disk {
    pub(super) fn new(folder: PathBuf, limit: u64) -> Self {
        Self { folder, limit }
    }

    fn place(&self, path: &Path) -> PathBuf {
        self.folder
            .join(hex(&Sha256::digest(path.as_os_str().as_bytes())))
    }

    /// Keeps a file in the place of what had its path.
    pub(super) fn keep(&self, kept: &Kept, used: SystemTime) -> Result<()> {
        static DRAFTS: AtomicU64 = AtomicU64::new(0);
        let mut folder = DirBuilder::new();
        folder.recursive(true).mode(0o700).create(&self.folder)?;
        let place = self.place(&kept.path);
        // Of no other server that has this folder.
        let number = DRAFTS.fetch_add(1, Ordering::Relaxed);
        let process = std::process::id();
        let draft = place.with_extension(format!("{process}-{number}.{DRAFT}"));
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let written = options.open(&draft).and_then(|mut file| {
            file.write_all(&encode(kept))?;
            file.set_modified(used)?;
            std::fs::rename(&draft, &place)
        });
        if written.is_err() {
            let _ = std::fs::remove_file(&draft);
        }
        written
    }

    /// Notes when a file was used last.
    pub(super) fn touch(&self, path: &Path, used: SystemTime) {
        if let Ok(file) = File::options().write(true).open(self.place(path)) {
            let _ = file.set_modified(used);
        }
    }

    /// Names, bytes and last use of what lies here, that used last first.
    fn list(&self) -> Vec<(PathBuf, u64, SystemTime)> {
        let entries = std::fs::read_dir(&self.folder);
        let entries = entries.into_iter().flatten().flatten();
        let mut files: Vec<_> = entries
            .filter_map(|entry| {
                let data = entry.metadata().ok().filter(|data| data.is_file())?;
                Some((entry.path(), data.len(), data.modified().ok()?))
            })
            .collect();
        files.sort_by_key(|(_, _, used)| std::cmp::Reverse(*used));
        files
    }

    /// Gives what is kept, used last first, to `take`. What is damaged is removed.
    pub(super) fn load(&self, mut take: impl FnMut(Kept, SystemTime)) {
        let mut left = self.limit;
        for (place, bytes, used) in self.list() {
            if is_draft(&place) {
                continue;
            }
            let Some(less) = left.checked_sub(bytes) else {
                return;
            };
            left = less;
            match read(&place, bytes) {
                Ok(Some(kept)) if self.place(&kept.path) == place => take(kept, used),
                Ok(_) => {
                    log::warn!("{} is damaged: removing it", place.display());
                    let _ = std::fs::remove_file(place);
                }
                Err(error) => log::debug!("{}: {error}", place.display()),
            }
        }
    }

    /// Removes what was used longest ago beyond the limit, and what a server that was killed has left half written. Gives the bytes
    /// that are kept.
    pub(super) fn trim(&self) -> u64 {
        let (mut total, mut count) = (0u64, 0);
        for (place, bytes, used) in self.list() {
            let age = used.elapsed().unwrap_or_default();
            let whole = !is_draft(&place) || age < HALF_WRITTEN;
            if whole && total.saturating_add(bytes) <= self.limit && count < FILES {
                total += bytes;
                count += 1;
                continue;
            }
            if let Err(error) = std::fs::remove_file(&place)
                && error.kind() != ErrorKind::NotFound
            {
                log::warn!("cannot remove {}: {error}", place.display());
            }
        }
        total
    }
}

fn is_draft(place: &Path) -> bool {
    place.extension() == Some(OsStr::new(DRAFT))
}

fn encode(kept: &Kept) -> Vec<u8> {
    let path = kept.path.as_os_str().as_bytes();
    let mut bytes = Vec::with_capacity(HEAD_BYTES + path.len() + kept.bytes.len());
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&[0; DIGEST_BYTES]);
    bytes.extend_from_slice(&kept.mode.to_le_bytes());
    let length = u32::try_from(path.len()).expect("paths are bounded");
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(path);
    bytes.extend_from_slice(&kept.bytes);
    let (head, rest) = bytes.split_at_mut(MAGIC.len() + DIGEST_BYTES);
    head[MAGIC.len()..].copy_from_slice(&Sha256::digest(rest));
    bytes
}

fn read(place: &Path, bytes: u64) -> Result<Option<Kept>> {
    let mut options = OpenOptions::new();
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let file = options
        .read(true)
        .custom_flags(flags.bits() as i32)
        .open(place)?;
    let mut whole = Vec::with_capacity(usize::try_from(bytes).unwrap_or(0));
    file.take(bytes).read_to_end(&mut whole)?;
    Ok(decode(&whole))
}

fn decode(bytes: &[u8]) -> Option<Kept> {
    let rest = bytes.strip_prefix(MAGIC)?;
    let (digest, rest) = rest.split_first_chunk::<DIGEST_BYTES>()?;
    if Sha256::digest(rest)[..] != digest[..] {
        return None;
    }
    let (mode, rest) = rest.split_first_chunk()?;
    let (length, rest) = rest.split_first_chunk()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    let (path, bytes) = rest.split_at_checked(length)?;
    let path = PathBuf::from(OsStr::from_bytes(path));
    tree::is_plain(&path).then(|| Kept {
        path,
        mode: u32::from_le_bytes(*mode),
        bytes: bytes.to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    fn kernel(path: &str, bytes: usize) -> Kept {
        Kept {
            path: path.into(),
            mode: 0o700,
            bytes: vec![7; bytes],
        }
    }

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn loaded(disk: &Disk) -> Vec<(String, SystemTime)> {
        let mut loaded = Vec::new();
        disk.load(|kept, used| loaded.push((kept.path.to_str().unwrap().to_owned(), used)));
        loaded
    }

    #[test]
    fn files_come_back_as_they_were_used_last_first() {
        let folder = tempfile::tempdir().unwrap();
        let disk = Disk::new(folder.path().join("tenant"), 1 << 20);
        disk.keep(&kernel("a/old.so", 10), at(1000)).unwrap();
        disk.keep(&kernel("new.so", 10), at(2000)).unwrap();
        let expected = [("new.so".into(), at(2000)), ("a/old.so".into(), at(1000))];
        assert_eq!(loaded(&disk), expected);
        disk.touch(Path::new("a/old.so"), at(3000));
        assert_eq!(loaded(&disk)[0], ("a/old.so".into(), at(3000)));
        let mut contents = Vec::new();
        disk.load(|kept, _| contents.push(kept));
        assert_eq!(contents[0], kernel("a/old.so", 10));
    }

    #[test]
    fn file_used_longest_ago_goes_beyond_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let disk = Disk::new(folder.path().to_owned(), 2500);
        for (used, path) in [(3, "c"), (1, "a"), (2, "b")] {
            disk.keep(&kernel(path, 1000), at(used)).unwrap();
        }
        assert!(disk.trim() <= 2500);
        assert_eq!(loaded(&disk), [("c".into(), at(3)), ("b".into(), at(2))]);
    }

    #[test]
    fn damaged_half_written_and_renamed_files_are_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let disk = Disk::new(folder.path().to_owned(), 1 << 20);
        for path in ["damaged", "renamed", "cut"] {
            disk.keep(&kernel(path, 100), at(1)).unwrap();
        }
        let place = |path: &str| disk.place(Path::new(path));
        let mut bytes = std::fs::read(place("damaged")).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::write(place("damaged"), bytes).unwrap();
        std::fs::rename(place("renamed"), place("other")).unwrap();
        let cut = File::options().write(true).open(place("cut")).unwrap();
        cut.set_len(60).unwrap();
        let draft = folder.path().join("killed.new");
        std::fs::write(&draft, "half").unwrap();
        File::open(&draft).unwrap().set_modified(at(1)).unwrap();
        assert!(loaded(&disk).is_empty());
        disk.trim();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn paths_that_lead_elsewhere_are_refused() {
        for path in ["../up", "/etc/passwd", "a/../../b", "", "./a/.."] {
            assert_eq!(decode(&encode(&kernel(path, 1))), None, "{path}");
        }
    }
}
