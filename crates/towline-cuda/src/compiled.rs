//! The compilers' cache: what NVRTC compiled, kept in files of this user for later programs and later compilations of this one.
//!
//! NVIDIA's driver keeps it for NVRTC, which compiles anew each time where there is none. As there, `CUDA_CACHE_DISABLE`,
//! `CUDA_CACHE_PATH` and `CUDA_CACHE_MAXSIZE` rule it. An entry is found by a digest of all that went into it, and begins with a digest of
//! what it holds, so that a damaged file is a missing one.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use sha2::{Digest as _, Sha256};

/// The driver's default and its bound.
const LIMIT: u64 = 1 << 30;
const MOST: u64 = 4 << 30;
const DIGEST: usize = 32;

/// An entry that a compiler asks for, by what goes into it.
pub(crate) struct Key([u8; DIGEST]);

impl Key {
    /// A digest of the parts, each with its length, so that no two lists of parts are one.
    pub(crate) fn of(parts: &[&[u8]]) -> Self {
        let mut digest = Sha256::new();
        for part in parts {
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part);
        }
        Self(digest.finalize().into())
    }

    fn name(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

pub(crate) struct Cache {
    folder: PathBuf,
    limit: u64,
}

impl Cache {
    /// The cache that the environment asks for. `None` where it asks for none or names no place.
    pub(crate) fn of_environment(variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        if set("CUDA_CACHE_DISABLE").is_some_and(|value| value != "0") {
            return None;
        }
        let folder = match (set("CUDA_CACHE_PATH"), set("XDG_CACHE_HOME"), set("HOME")) {
            (Some(path), _, _) => PathBuf::from(path).join("towline"),
            (None, Some(path), _) => PathBuf::from(path).join("towline/compiled"),
            (None, None, Some(home)) => PathBuf::from(home).join(".cache/towline/compiled"),
            (None, None, None) => return None,
        };
        let limit = set("CUDA_CACHE_MAXSIZE").and_then(|value| value.parse().ok());
        let limit = limit.unwrap_or(LIMIT).min(MOST);
        (folder.is_absolute() && limit > 0).then_some(Self { folder, limit })
    }

    fn path(&self, key: &Key) -> PathBuf {
        let name = key.name();
        self.folder.join(&name[..2]).join(&name[2..])
    }

    pub(crate) fn find(&self, key: &Key) -> Option<Vec<u8>> {
        let path = self.path(key);
        let mut file = fs::read(&path).ok()?;
        let whole = file
            .split_at_checked(DIGEST)
            .is_some_and(|(digest, content)| Sha256::digest(content)[..] == *digest);
        if !whole {
            log::debug!("{} is damaged", path.display());
            let _ = fs::remove_file(&path);
            return None;
        }
        // The oldest go first where there are too many.
        let _ = File::open(&path).and_then(|file| file.set_modified(SystemTime::now()));
        file.drain(..DIGEST);
        Some(file)
    }

    /// Keeps `content`, unless that fails: then it is compiled again another time.
    pub(crate) fn store(&self, key: &Key, content: &[u8]) {
        let path = self.path(key);
        if let Err(error) = self.write(&path, content) {
            log::debug!("{} is not written: {error}", path.display());
        }
        static STORED: AtomicU64 = AtomicU64::new(0);
        // A look at all files takes its time.
        if STORED.fetch_add(1, Ordering::Relaxed).is_multiple_of(64) {
            self.shrink();
        }
    }

    fn write(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        static WRITTEN: AtomicU64 = AtomicU64::new(0);
        let folder = path.parent().unwrap_or(&self.folder);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)?;
        // SAFETY: asks for a number.
        if fs::metadata(&self.folder)?.uid() != unsafe { libc::geteuid() } {
            return Err(io::Error::other("the folder belongs to another user"));
        }
        // Another program may write the same: each has a file of its own until it is whole.
        let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
        let own = path.with_extension(format!("{}-{number}", std::process::id()));
        let _ = fs::remove_file(&own);
        let written = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&own)
            .and_then(|mut file| {
                file.write_all(&Sha256::digest(content))?;
                file.write_all(content)
            })
            .and_then(|()| fs::rename(&own, path));
        if written.is_err() {
            let _ = fs::remove_file(&own);
        }
        written
    }

    /// Removes the entries that were not used for longest, until a tenth of the limit is free.
    fn shrink(&self) {
        let folders = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let files = folders.flat_map(|folder| fs::read_dir(folder.path()).into_iter().flatten());
        let mut entries: Vec<_> = files
            .flatten()
            .filter_map(|file| {
                let known = file.metadata().ok()?;
                Some((known.modified().ok()?, known.len(), file.path()))
            })
            .collect();
        let mut size: u64 = entries.iter().map(|entry| entry.1).sum();
        if size <= self.limit {
            return;
        }
        entries.sort();
        for (_, length, path) in entries {
            if size <= self.limit / 10 * 9 {
                return;
            }
            if fs::remove_file(path).is_ok() {
                size -= length;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    use super::*;

    fn cache(folder: &Path) -> Cache {
        Cache {
            folder: folder.join("towline"),
            limit: LIMIT,
        }
    }

    #[test]
    fn what_is_stored_is_found_by_its_parts() {
        let folder = tempfile::tempdir().unwrap();
        let cache = cache(folder.path());
        let key = Key::of(&[b"source", b"-arch=sm_90"]);
        assert_eq!(cache.find(&key), None);
        cache.store(&key, b"code");
        assert_eq!(cache.find(&key).as_deref(), Some(&b"code"[..]));
        for other in [Key::of(&[b"source-", b"arch=sm_90"]), Key::of(&[b"source"])] {
            assert_eq!(cache.find(&other), None);
        }
        let mode = fs::metadata(cache.path(&key)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn damaged_entry_is_missing_and_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let cache = cache(folder.path());
        let key = Key::of(&[b"source"]);
        for damage in [&b""[..], b"short", &[7; 40]] {
            cache.store(&key, b"code");
            fs::write(cache.path(&key), damage).unwrap();
            assert_eq!(cache.find(&key), None);
        }
        cache.store(&key, b"code");
        assert_eq!(cache.find(&key).as_deref(), Some(&b"code"[..]));
    }

    #[test]
    fn least_recently_used_entries_go_first() {
        let folder = tempfile::tempdir().unwrap();
        let mut cache = cache(folder.path());
        let keys: Vec<_> = (0..10u8).map(|n| Key::of(&[&[n]])).collect();
        let day = Duration::from_secs(86_400);
        for (age, key) in keys.iter().rev().enumerate() {
            cache.store(key, &[0; 968]);
            let file = File::open(cache.path(key)).unwrap();
            file.set_modified(SystemTime::now() - day * (1 + age as u32))
                .unwrap();
        }
        // A look at the oldest makes it the youngest.
        assert!(cache.find(&keys[0]).is_some());
        cache.limit = 5_000;
        cache.shrink();
        let left: Vec<_> = keys.iter().map(|key| cache.find(key).is_some()).collect();
        let expected = [
            true, false, false, false, false, false, false, true, true, true,
        ];
        assert_eq!(left, expected);
    }

    #[test]
    fn environment_says_where_and_whether() {
        let of = |pairs: &[(&str, &str)]| {
            let found = Cache::of_environment(|name| {
                let pair = pairs.iter().find(|pair| pair.0 == name);
                pair.map(|pair| pair.1.to_owned())
            });
            found.map(|cache| (cache.folder.display().to_string(), cache.limit))
        };
        let at = |path: &str, limit| Some((path.to_owned(), limit));
        assert_eq!(
            of(&[("HOME", "/h")]),
            at("/h/.cache/towline/compiled", LIMIT)
        );
        let both = [("HOME", "/h"), ("XDG_CACHE_HOME", "/x")];
        assert_eq!(of(&both), at("/x/towline/compiled", LIMIT));
        let path = [
            ("HOME", "/h"),
            ("CUDA_CACHE_PATH", "/c"),
            ("CUDA_CACHE_MAXSIZE", "4096"),
        ];
        assert_eq!(of(&path), at("/c/towline", 4096));
        assert_eq!(
            of(&[("HOME", "/h"), ("CUDA_CACHE_MAXSIZE", "9999999999999")]),
            at("/h/.cache/towline/compiled", MOST)
        );
        let none: [&[(&str, &str)]; 4] = [
            &[],
            &[("HOME", "h")],
            &[("HOME", "/h"), ("CUDA_CACHE_DISABLE", "1")],
            &[("HOME", "/h"), ("CUDA_CACHE_MAXSIZE", "0")],
        ];
        assert_eq!(none.map(of), [None, None, None, None]);
        assert!(of(&[("HOME", "/h"), ("CUDA_CACHE_DISABLE", "0")]).is_some());
    }
}
