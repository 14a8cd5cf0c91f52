//! Device code that programs have brought, kept by its digest for those that bring the same.
//!
//! The supervisor has one for all sessions. It reads no image but to see that it is what its digest says; what it gives out can be
//! changed by nobody. Who does not know an image does not know its digest, and so learns nothing of whether it is there.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use rustix::fs::{MemfdFlags, SealFlags};
use sha2::{Digest as _, Sha256};

/// Bytes of a digest: SHA-256.
pub const DIGEST_BYTES: usize = 32;
/// Bytes that are read at once.
const PIECE: usize = 1 << 20;
/// A part of the memory that one image may have.
const SHARE: u64 = 2;
/// Most images in memory, where nothing less is said: each holds a descriptor, and a page at least.
const MOST_IMAGES: usize = 4096;
/// Most images in the folder: room is made by looking at all of them.
const MOST_FILES: usize = 65_536;

/// What an image is known by.
pub type ImageDigest = [u8; DIGEST_BYTES];

/// The digest of an image.
pub(crate) fn digest(image: &[u8]) -> ImageDigest {
    Sha256::digest(image).into()
}

/// A file without a name that holds these bytes for good.
pub fn sealed(bytes: &[u8]) -> io::Result<OwnedFd> {
    let mut file = unsealed()?;
    file.write_all(bytes)?;
    seal(file)
}

fn unsealed() -> io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = match rustix::fs::memfd_create("towline-image", flags | MemfdFlags::NOEXEC_SEAL) {
        // Linux before 6.3.
        Err(rustix::io::Errno::INVAL) => rustix::fs::memfd_create("towline-image", flags)?,
        outcome => outcome?,
    };
    Ok(file.into())
}

fn seals() -> SealFlags {
    SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW
}

fn seal(file: File) -> io::Result<OwnedFd> {
    rustix::fs::fcntl_add_seals(&file, seals() | SealFlags::SEAL)?;
    Ok(file.into())
}

/// Reads what was sealed, if it has as many bytes as it is said to have.
pub(crate) fn read_sealed(file: OwnedFd, size: u64) -> io::Result<Vec<u8>> {
    let file = File::from(file);
    if file.metadata()?.len() != size {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; size as usize];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// The digest of a file.
fn digest_of(file: &File, size: u64) -> io::Result<ImageDigest> {
    let (mut hash, mut at) = (Sha256::new(), 0);
    let mut piece = vec![0; PIECE.min(size as usize)];
    while at < size {
        let wanted = piece.len().min((size - at) as usize);
        file.read_exact_at(&mut piece[..wanted], at)?;
        hash.update(&piece[..wanted]);
        at += wanted as u64;
    }
    Ok(hash.finalize().into())
}

struct Image {
    file: OwnedFd,
    bytes: u64,
    used: u64,
}

#[derive(Default)]
struct Held {
    images: HashMap<ImageDigest, Image>,
    bytes: u64,
    /// How often an image was asked for or kept.
    clock: u64,
}

/// See the module's text.
#[derive(Default)]
pub struct Images {
    held: Mutex<Held>,
    /// Most bytes in memory; 0 keeps nothing.
    memory: u64,
    /// Most images in memory.
    most: usize,
    disk: Option<Disk>,
}

/// Where images outlive the server, and how many bytes of them.
struct Disk {
    folder: PathBuf,
    bytes: u64,
    /// Only one looks for what must go.
    making_room: Mutex<()>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Images {
    /// Keeps so many bytes in memory.
    pub fn in_memory(bytes: u64) -> Self {
        Self {
            memory: bytes,
            most: MOST_IMAGES,
            ..Self::default()
        }
    }

    /// Keeps at most so many in memory.
    pub fn with_most(mut self, images: usize) -> Self {
        self.most = images;
        self
    }

    /// Images in memory and their bytes, and the most of either.
    pub fn in_use(&self) -> [(u64, u64); 2] {
        let held = lock(&self.held);
        [
            (held.images.len() as u64, self.most as u64),
            (held.bytes, self.memory),
        ]
    }

    /// Keeps so many in a folder, too, which is made if it is not there. Nobody else may write to it, but what lies there is checked
    /// before it is used.
    pub fn with_folder(mut self, folder: &Path, bytes: u64) -> io::Result<Self> {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)?;
        self.disk = Some(Disk {
            folder: folder.to_owned(),
            bytes,
            making_room: Mutex::default(),
        });
        Ok(self)
    }

    /// The image of a digest, as a file that nobody can change.
    pub fn find(&self, digest: &ImageDigest) -> Option<OwnedFd> {
        {
            let mut held = lock(&self.held);
            held.clock += 1;
            let now = held.clock;
            if let Some(image) = held.images.get_mut(digest) {
                image.used = now;
                return image.file.try_clone().ok();
            }
        }
        let file = self.disk.as_ref()?.find(digest)?;
        let given = file.try_clone().ok()?;
        self.hold(*digest, file);
        Some(given)
    }

    /// Keeps an image, where it is what its digest says and nobody can change it; whether it is kept.
    pub fn keep(&self, digest: &ImageDigest, file: OwnedFd) -> bool {
        if lock(&self.held).images.contains_key(digest) {
            return true;
        }
        let sealed = rustix::fs::fcntl_get_seals(&file).is_ok_and(|has| has.contains(seals()));
        let file = File::from(file);
        let bytes = file.metadata().map_or(0, |metadata| metadata.len());
        if !sealed || bytes == 0 || bytes > self.memory / SHARE {
            return false;
        }
        match digest_of(&file, bytes) {
            Ok(is) if is == *digest => {}
            _ => return false,
        }
        if let Some(disk) = &self.disk {
            disk.keep(digest, &file, bytes);
        }
        self.hold(*digest, file.into());
        true
    }

    /// Bytes that are held in memory.
    pub fn held_bytes(&self) -> u64 {
        lock(&self.held).bytes
    }

    fn hold(&self, digest: ImageDigest, file: OwnedFd) {
        let Ok(stat) = rustix::fs::fstat(&file) else {
            return;
        };
        let bytes = stat.st_size as u64;
        if bytes > self.memory / SHARE || self.most == 0 {
            return;
        }
        let mut held = lock(&self.held);
        if held.images.contains_key(&digest) {
            return;
        }
        while held.bytes + bytes > self.memory || held.images.len() >= self.most {
            let oldest = held.images.iter().min_by_key(|(_, image)| image.used);
            let Some(oldest) = oldest.map(|(digest, _)| *digest) else {
                break;
            };
            if let Some(image) = held.images.remove(&oldest) {
                held.bytes -= image.bytes;
            }
        }
        held.clock += 1;
        let used = held.clock;
        held.bytes += bytes;
        held.images.insert(digest, Image { file, bytes, used });
    }
}

impl Disk {
    fn path(&self, digest: &ImageDigest) -> PathBuf {
        let name: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        self.folder.join(name)
    }

    /// What lies there under a digest, if it is that.
    fn find(&self, digest: &ImageDigest) -> Option<OwnedFd> {
        let path = self.path(digest);
        let file = File::options().read(true).open(&path).ok()?;
        let read = || -> io::Result<Vec<u8>> {
            let size = file.metadata()?.len();
            if size > self.bytes {
                return Err(io::ErrorKind::InvalidData.into());
            }
            let mut bytes = Vec::with_capacity(size as usize);
            (&file).take(size).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        match read() {
            Ok(bytes) if self::digest(&bytes) == *digest => {
                // What was used last goes last.
                let _ = file.set_modified(SystemTime::now());
                sealed(&bytes).ok()
            }
            _ => {
                log::warn!("{} is not what it should be: removing it", path.display());
                let _ = std::fs::remove_file(&path);
                None
            }
        }
    }

    fn keep(&self, digest: &ImageDigest, image: &File, bytes: u64) {
        let path = self.path(digest);
        if path.exists() || !self.make_room(bytes) {
            return;
        }
        if let Err(error) = self.write(&path, image, bytes) {
            log::warn!(
                "an image cannot be kept in {}: {error}",
                self.folder.display()
            );
        }
    }

    /// Writes it under another name first: what has its name is whole.
    fn write(&self, path: &Path, image: &File, bytes: u64) -> io::Result<()> {
        let draft = path.with_extension(format!("{}", std::process::id()));
        let written = (|| {
            let mut file = File::options()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&draft)?;
            let mut at = 0;
            let mut piece = vec![0; PIECE.min(bytes as usize)];
            while at < bytes {
                let wanted = piece.len().min((bytes - at) as usize);
                image.read_exact_at(&mut piece[..wanted], at)?;
                file.write_all(&piece[..wanted])?;
                at += wanted as u64;
            }
            std::fs::rename(&draft, path)
        })();
        if written.is_err() {
            let _ = std::fs::remove_file(&draft);
        }
        written
    }

    /// Removes what was used longest ago until there is room; `false` when there will be none. Files that are no images stay.
    fn make_room(&self, bytes: u64) -> bool {
        if bytes > self.bytes {
            return false;
        }
        let _one = lock(&self.making_room);
        let Ok(entries) = std::fs::read_dir(&self.folder) else {
            return false;
        };
        let named = |path: &Path| {
            let name = path.file_stem().and_then(|name| name.to_str());
            name.is_some_and(|name| {
                name.len() == 2 * DIGEST_BYTES && name.bytes().all(|byte| byte.is_ascii_hexdigit())
            })
        };
        let mut files: Vec<(SystemTime, u64, PathBuf)> = entries
            .filter_map(|entry| {
                let entry = entry.ok()?;
                let metadata = entry
                    .metadata()
                    .ok()
                    .filter(|metadata| metadata.is_file())?;
                let modified = metadata.modified().ok()?;
                Some((modified, metadata.len(), entry.path()))
            })
            .filter(|(_, _, path)| named(path))
            .collect();
        files.sort();
        let mut there: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
        let mut count = files.len();
        for (_, size, path) in files {
            if there + bytes <= self.bytes && count < MOST_FILES {
                break;
            }
            if std::fs::remove_file(&path).is_ok() {
                there -= size;
                count -= 1;
            }
        }
        there + bytes <= self.bytes && count < MOST_FILES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(seed: u8, bytes: usize) -> (ImageDigest, Vec<u8>) {
        let image = vec![seed; bytes];
        (digest(&image), image)
    }

    fn kept(images: &Images, seed: u8, bytes: usize) -> ImageDigest {
        let (digest, image) = image(seed, bytes);
        assert!(images.keep(&digest, sealed(&image).unwrap()));
        digest
    }

    fn bytes(images: &Images, digest: &ImageDigest, size: u64) -> Option<Vec<u8>> {
        images
            .find(digest)
            .map(|file| read_sealed(file, size).unwrap())
    }

    #[test]
    fn an_image_is_found_by_its_digest_and_cannot_be_changed() {
        let images = Images::in_memory(1000);
        let (digest, image) = image(7, 300);
        assert!(images.find(&digest).is_none());
        assert!(images.keep(&digest, sealed(&image).unwrap()));
        let file = images.find(&digest).unwrap();
        assert!(
            File::from(file.try_clone().unwrap())
                .write_at(b"x", 0)
                .is_err()
        );
        assert!(rustix::fs::ftruncate(&file, 1).is_err());
        assert_eq!(read_sealed(file.try_clone().unwrap(), 300).unwrap(), image);
        assert!(read_sealed(file, 301).is_err());
    }

    #[test]
    fn what_is_not_what_its_digest_says_or_can_change_is_not_kept() {
        let images = Images::in_memory(1000);
        let (digest, image) = image(7, 300);
        let (other, _) = self::image(8, 300);
        assert!(!images.keep(&other, sealed(&image).unwrap()));
        let mut open = unsealed().unwrap();
        open.write_all(&image).unwrap();
        assert!(!images.keep(&digest, open.into()));
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&image, 0).unwrap();
        assert!(!images.keep(&digest, file.into()));
        assert_eq!(
            (images.held_bytes(), images.find(&digest).is_none()),
            (0, true)
        );
    }

    #[test]
    fn what_was_used_longest_ago_makes_room() {
        let images = Images::in_memory(1000);
        let [first, second] = [1, 2].map(|seed| kept(&images, seed, 400));
        assert!(images.find(&first).is_some());
        let third = kept(&images, 3, 400);
        assert!(images.find(&second).is_none());
        assert!(images.find(&first).is_some() && images.find(&third).is_some());
        assert_eq!(images.held_bytes(), 800);
    }

    #[test]
    fn small_images_make_room_by_their_number() {
        let images = Images::in_memory(1000).with_most(3);
        let digests: Vec<ImageDigest> = (0..10).map(|seed| kept(&images, seed, 1)).collect();
        let found = digests
            .iter()
            .map(|digest| images.find(digest).is_some())
            .collect::<Vec<_>>();
        assert_eq!(found, [[false; 7].as_slice(), &[true; 3]].concat());
    }

    #[test]
    fn an_image_of_more_than_its_share_and_one_without_bytes_are_not_kept() {
        let images = Images::in_memory(1000);
        for bytes in [0, 501] {
            let (digest, image) = image(1, bytes);
            assert!(!images.keep(&digest, sealed(&image).unwrap()), "{bytes}");
        }
        let (digest, image) = image(1, 10);
        assert!(!Images::default().keep(&digest, sealed(&image).unwrap()));
    }

    #[test]
    fn a_folder_outlives_the_server_and_is_checked() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("images");
        let open = || Images::in_memory(1000).with_folder(&place, 1000).unwrap();
        let digest = kept(&open(), 5, 300);
        assert_eq!(bytes(&open(), &digest, 300), Some(vec![5; 300]));
        let path = std::fs::read_dir(&place)
            .unwrap()
            .next()
            .unwrap()
            .unwrap()
            .path();
        std::fs::write(&path, vec![6; 300]).unwrap();
        assert_eq!(bytes(&open(), &digest, 300), None);
        assert!(!path.exists(), "what is damaged goes");
        assert_eq!(kept(&open(), 5, 300), digest);
        assert_eq!(bytes(&open(), &digest, 300), Some(vec![5; 300]));
    }

    #[test]
    fn a_folder_is_bounded_and_keeps_what_is_not_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let other = folder.path().join("notes");
        std::fs::write(&other, vec![0; 5000]).unwrap();
        let images = Images::in_memory(1000)
            .with_folder(folder.path(), 1000)
            .unwrap();
        for seed in 1..=9 {
            kept(&images, seed, 400);
        }
        let sizes: u64 = std::fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap())
            .filter(|entry| entry.path() != other)
            .map(|entry| entry.metadata().unwrap().len())
            .sum();
        assert_eq!((sizes, other.exists()), (800, true));
    }
}
