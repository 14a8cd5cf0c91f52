//! Writes and reads the chunks of a checkpoint.

use std::collections::HashSet;
use std::io;
use std::path::Path;

use crate::key::SEAL_BYTES;
use crate::manifest::{CHUNK_BYTES, Digest, MANIFEST_BYTES, Manifest, Part, Place};
use crate::{CheckpointError, Folder, Key};

/// The manifest's file.
const MANIFEST: &str = "manifest.toml";
/// The folder of chunks.
const CHUNKS: &str = "chunks";
/// Ends the name of a chunk's file, which begins with the digest.
const ENDING: &str = ".chunk";

fn file_of(digest: Digest) -> String {
    format!("{digest}{ENDING}")
}

/// Whether all bytes of a chunk are zero.
fn is_zero(chunk: &[u8]) -> bool {
    const ZEROS: [u8; 4096] = [0; 4096];
    let mut pages = chunk.chunks(ZEROS.len());
    pages.all(|page| ZEROS.get(..page.len()) == Some(page))
}

/// Removes chunks that a manifest does not name, and drafts of writers that died.
fn sweep(chunks: &Folder, named: &Manifest) -> Result<(), CheckpointError> {
    let named: HashSet<Digest> = named.kept().map(|(digest, _)| digest).collect();
    for name in chunks.names()? {
        let digest = name.strip_suffix(ENDING).and_then(Digest::parse);
        if digest.is_some_and(|digest| !named.contains(&digest)) || Folder::is_draft(&name) {
            chunks.remove(&name)?;
        }
    }
    Ok(())
}

/// Reads a file of at most `limit` bytes, as [`write()`] wrote it; `None` where it is missing.
fn read(
    folder: &Folder,
    key: Option<&Key>,
    name: &str,
    limit: usize,
) -> Result<Option<Vec<u8>>, CheckpointError> {
    let Some(key) = key else {
        return folder.read(name, limit);
    };
    let Some(sealed) = folder.read(name, limit + SEAL_BYTES)? else {
        return Ok(None);
    };
    let opened = key.open(&sealed);
    let damaged = || folder.damaged(format!("{name} was changed, or has another key"));
    opened.map(Some).ok_or_else(damaged)
}

/// Writes a file, encrypted where there is a key.
fn write(
    folder: &Folder,
    key: Option<&Key>,
    name: &str,
    bytes: &[u8],
) -> Result<(), CheckpointError> {
    let Some(key) = key else {
        return folder.write(name, bytes);
    };
    let sealed = key.seal(bytes).ok_or_else(|| CheckpointError::System {
        folder: folder.path().to_owned(),
        action: "encrypt a file",
        cause: io::Error::other("there are no random numbers"),
    })?;
    folder.write(name, &sealed)
}

fn digest_of(key: Option<&Key>, chunk: &[u8]) -> Digest {
    key.map_or_else(|| Digest::of(chunk), |key| key.digest(chunk))
}

/// The manifest that a folder holds, with its digest.
fn manifest_in(
    folder: &Folder,
    key: Option<&Key>,
) -> Result<Option<(Manifest, Digest)>, CheckpointError> {
    let Some(bytes) = read(folder, key, MANIFEST, MANIFEST_BYTES)? else {
        return Ok(None);
    };
    let manifest = Manifest::decode(&bytes).map_err(|what| folder.damaged(what))?;
    Ok(Some((manifest, Digest::of(&bytes))))
}

/// Writes a checkpoint. Until [`Self::finish`] the folder holds the one before, if any, which is all there is where the writer is dropped.
#[derive(Debug)]
pub struct Writer<'a> {
    folder: Folder,
    chunks: Folder,
    key: Option<&'a Key>,
    /// The one before; `None` where it cannot be read, and may be another release's.
    before: Option<Manifest>,
    manifest: Manifest,
    written_bytes: u64,
    is_finished: bool,
}

impl<'a> Writer<'a> {
    /// Begins a checkpoint whose manifest has no contents yet; with a key all that it writes is encrypted.
    pub fn begin(
        folder: Folder,
        manifest: Manifest,
        key: Option<&'a Key>,
    ) -> Result<Self, CheckpointError> {
        let chunks = folder.inner(CHUNKS)?;
        let before = manifest_in(&folder, key).ok();
        let before = before.map(|before| before.map(|(before, _)| before).unwrap_or_default());
        Ok(Self {
            before,
            folder,
            chunks,
            key,
            manifest,
            written_bytes: 0,
            is_finished: false,
        })
    }

    /// Takes in contents.
    pub fn put(
        &mut self,
        context: u64,
        place: Place,
        contents: &[u8],
    ) -> Result<(), CheckpointError> {
        let mut digests = Vec::with_capacity(contents.len().div_ceil(CHUNK_BYTES));
        for chunk in contents.chunks(CHUNK_BYTES) {
            digests.push(match is_zero(chunk) {
                true => None,
                false => Some(self.keep(chunk)?),
            });
        }
        self.manifest.parts.push(Part {
            context,
            place,
            size: contents.len() as u64,
            chunks: digests,
        });
        Ok(())
    }

    fn keep(&mut self, chunk: &[u8]) -> Result<Digest, CheckpointError> {
        let digest = digest_of(self.key, chunk);
        let name = file_of(digest);
        // One that is there may be damaged.
        let there = read(&self.chunks, self.key, &name, CHUNK_BYTES).ok();
        if there.flatten().is_none_or(|there| there != chunk) {
            write(&self.chunks, self.key, &name, chunk)?;
            self.written_bytes += chunk.len() as u64;
        }
        Ok(digest)
    }

    /// Bytes that were written so far: chunks that were there already are not.
    pub fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// The key that it encrypts with.
    pub fn key(&self) -> Option<&'a Key> {
        self.key
    }

    /// The manifest so far.
    pub fn manifest_mut(&mut self) -> &mut Manifest {
        &mut self.manifest
    }

    /// Has the folder hold this checkpoint in place of the one before: the manifest's digest, by which a [`Reader`] knows it.
    pub fn finish(mut self) -> Result<Digest, CheckpointError> {
        self.chunks.sync()?;
        let text = self.manifest.encode();
        let readable = match text.len() <= MANIFEST_BYTES {
            true => Manifest::decode(text.as_bytes()).map(drop),
            false => Err(format!("the manifest has more than {MANIFEST_BYTES} bytes")),
        };
        readable.map_err(|what| CheckpointError::System {
            folder: self.folder.path().to_owned(),
            action: "write a manifest that can be read",
            cause: io::Error::new(io::ErrorKind::InvalidData, what),
        })?;
        write(&self.folder, self.key, MANIFEST, text.as_bytes())?;
        self.is_finished = true;
        self.folder.sync()?;
        // Chunks too many do no harm.
        let _ = sweep(&self.chunks, &self.manifest);
        Ok(Digest::of(text.as_bytes()))
    }
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        if let (false, Some(before)) = (self.is_finished, &self.before) {
            let _ = sweep(&self.chunks, before);
        }
    }
}

/// Reads a checkpoint.
#[derive(Debug)]
pub struct Reader<'a> {
    folder: Folder,
    chunks: Folder,
    key: Option<&'a Key>,
    manifest: Manifest,
}

impl<'a> Reader<'a> {
    /// Opens the checkpoint that was written with this digest and key.
    pub fn open(
        folder: Folder,
        digest: Digest,
        key: Option<&'a Key>,
    ) -> Result<Self, CheckpointError> {
        let found = manifest_in(&folder, key)?;
        let (manifest, found) = found.ok_or_else(|| folder.damaged("it has no manifest".into()))?;
        if found != digest {
            return Err(folder.damaged("the manifest is not the one that the program wrote".into()));
        }
        Ok(Self {
            chunks: folder.inner(CHUNKS)?,
            folder,
            key,
            manifest,
        })
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Reads all chunks: afterwards each was there, and as it was written.
    pub fn verify(&self) -> Result<(), CheckpointError> {
        let mut seen = HashSet::new();
        for (digest, size) in self.manifest.kept() {
            if seen.insert(digest) {
                self.chunk(digest, size)?;
            }
        }
        Ok(())
    }

    /// Reads the contents of a part into `contents`.
    pub fn read(&self, part: &Part, contents: &mut Vec<u8>) -> Result<(), CheckpointError> {
        contents.clear();
        for (digest, size) in part.chunk_sizes() {
            match digest {
                Some(digest) => contents.extend(self.chunk(digest, size)?),
                None => contents.resize(contents.len() + size, 0),
            }
        }
        Ok(())
    }

    fn chunk(&self, digest: Digest, size: usize) -> Result<Vec<u8>, CheckpointError> {
        let damaged = |fault: &str| {
            self.folder
                .damaged(format!("{CHUNKS}/{} {fault}", file_of(digest)))
        };
        let chunk = read(&self.chunks, self.key, &file_of(digest), CHUNK_BYTES)?;
        let chunk = chunk.ok_or_else(|| damaged("is missing"))?;
        if chunk.len() != size {
            return Err(damaged(&format!(
                "has {} bytes in place of {size}",
                chunk.len()
            )));
        }
        match digest_of(self.key, &chunk) == digest {
            true => Ok(chunk),
            false => Err(damaged("has other contents than its name says")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use tempfile::TempDir;

    use super::*;

    fn place() -> (TempDir, PathBuf) {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("held");
        Folder::make(&path).unwrap();
        (place, path)
    }

    /// Writes a checkpoint with these parts: its digest, and the bytes that were written.
    fn write(path: &Path, parts: &[Vec<u8>]) -> (Digest, u64) {
        let manifest = Manifest::new("train".into(), "gpu1".into(), Vec::new());
        let mut writer = Writer::begin(Folder::open(path).unwrap(), manifest, None).unwrap();
        for (address, part) in (0..).zip(parts) {
            writer.put(1, Place::Memory { address }, part).unwrap();
        }
        let written = writer.written_bytes();
        (writer.finish().unwrap(), written)
    }

    fn open(path: &Path, digest: Digest) -> Reader<'static> {
        Reader::open(Folder::open(path).unwrap(), digest, None).unwrap()
    }

    fn contents(path: &Path, digest: Digest) -> Vec<Vec<u8>> {
        let reader = open(path, digest);
        reader.verify().unwrap();
        let parts = reader.manifest().parts.iter();
        let read = |part| {
            let mut contents = vec![1; 3];
            reader.read(part, &mut contents).unwrap();
            contents
        };
        parts.map(read).collect()
    }

    /// Files of chunks.
    fn files(path: &Path) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(path.join(CHUNKS)).unwrap();
        let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files
    }

    /// Contents without equal chunks.
    fn counted(size: usize, seed: u32) -> Vec<u8> {
        let word = |at: usize| (at as u32 ^ seed).wrapping_mul(2_654_435_761).to_le_bytes();
        (0..size / 4).flat_map(word).collect()
    }

    #[test]
    fn contents_come_back() {
        let (_place, path) = place();
        let parts = [
            counted(CHUNK_BYTES + 4096, 1),
            vec![7],
            counted(2 * CHUNK_BYTES, 2),
        ];
        let (digest, _) = write(&path, &parts);
        assert_eq!(contents(&path, digest), parts);
    }

    #[test]
    fn zeros_are_not_kept() {
        let (_place, path) = place();
        let mixed = [vec![0; CHUNK_BYTES], counted(4096, 1)].concat();
        let (digest, written) = write(&path, &[vec![0; 9 << 20], mixed.clone()]);
        assert_eq!((files(&path).len(), written), (1, 4096));
        assert_eq!(contents(&path, digest), [vec![0; 9 << 20], mixed]);
    }

    #[test]
    fn later_checkpoint_writes_only_changes() {
        let (_place, path) = place();
        let mut parts = [counted(2 * CHUNK_BYTES, 1), counted(CHUNK_BYTES, 2)];
        let (first, written) = write(&path, &parts);
        assert_eq!((written, files(&path).len()), (3 * CHUNK_BYTES as u64, 3));
        parts[0][CHUNK_BYTES] ^= 1;
        let (second, written) = write(&path, &parts);
        // The chunk that was replaced is gone.
        assert_eq!((written, files(&path).len()), (CHUNK_BYTES as u64, 3));
        assert_eq!(contents(&path, second), parts);
        let old = Reader::open(Folder::open(&path).unwrap(), first, None);
        assert!(old.unwrap_err().to_string().contains("not the one"));
    }

    #[test]
    fn unfinished_checkpoint_leaves_the_last_one() {
        let (_place, path) = place();
        let parts = [counted(CHUNK_BYTES, 1)];
        let (digest, _) = write(&path, &parts);
        let manifest = Manifest::new("train".into(), "gpu1".into(), Vec::new());
        let mut writer = Writer::begin(Folder::open(&path).unwrap(), manifest, None).unwrap();
        let place = Place::Memory { address: 0 };
        writer.put(1, place, &counted(4096, 9)).unwrap();
        drop(writer);
        assert_eq!(files(&path).len(), 1);
        assert_eq!(contents(&path, digest), parts);
    }

    #[test]
    fn checkpoint_that_could_not_be_read_is_refused() {
        let (_place, path) = place();
        let parts = [counted(4096, 1)];
        let (digest, _) = write(&path, &parts);
        let manifest = Manifest::new("train".into(), "gpu1".into(), Vec::new());
        let mut writer = Writer::begin(Folder::open(&path).unwrap(), manifest, None).unwrap();
        let place = Place::Memory { address: u64::MAX };
        writer.put(1, place, &counted(4096, 2)).unwrap();
        let refused = writer.finish().unwrap_err().to_string();
        assert!(refused.contains("a manifest that can be read"), "{refused}");
        assert_eq!(contents(&path, digest), parts);
    }

    #[test]
    fn damaged_chunks_are_refused_by_name() {
        let (_place, path) = place();
        let (digest, _) = write(&path, &[counted(4096, 1)]);
        let file = files(&path).remove(0);
        let whole = std::fs::read(&file).unwrap();
        let mut flipped = whole.clone();
        flipped[100] ^= 4;
        let longer = [&whole[..], &[0]].concat();
        for (damaged, fault) in [
            (&flipped[..], "other contents"),
            (&whole[..4095], "4095 bytes in place of 4096"),
            (&longer, "4097 bytes"),
        ] {
            std::fs::write(&file, damaged).unwrap();
            let refused = open(&path, digest).verify().unwrap_err().to_string();
            assert!(refused.contains(fault), "{refused}");
        }
        std::fs::remove_file(&file).unwrap();
        let refused = open(&path, digest).verify().unwrap_err().to_string();
        assert!(refused.contains("is missing"), "{refused}");
        // The next checkpoint mends it.
        write(&path, &[counted(4096, 1)]);
        open(&path, digest).verify().unwrap();
    }

    #[test]
    fn changed_manifest_is_refused() {
        let (_place, path) = place();
        let (digest, _) = write(&path, &[counted(4096, 1)]);
        let file = path.join(MANIFEST);
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, text.replace("train", "other")).unwrap();
        let refused = Reader::open(Folder::open(&path).unwrap(), digest, None);
        assert!(refused.unwrap_err().to_string().contains("not the one"));
        std::fs::remove_file(&file).unwrap();
        let refused = Reader::open(Folder::open(&path).unwrap(), digest, None);
        assert!(refused.unwrap_err().to_string().contains("no manifest"));
    }

    #[test]
    fn encrypted_contents_come_back_and_show_nothing() {
        let (_place, path) = place();
        let part = b"secret of the user".repeat(1000);
        // Contents in the clear are removed.
        write(&path, std::slice::from_ref(&part));
        let key = Key::new().unwrap();
        let again = || {
            let manifest = Manifest::new("train".into(), "gpu1".into(), Vec::new());
            let folder = Folder::open(&path).unwrap();
            let mut writer = Writer::begin(folder, manifest, Some(&key)).unwrap();
            let place = Place::Memory { address: 7 };
            writer.put(1, place, &part).unwrap();
            (writer.written_bytes(), writer.finish().unwrap())
        };
        assert_eq!(again().0, part.len() as u64);
        let (written, digest) = again();
        assert_eq!(written, 0);
        let mut files = vec![path.join(MANIFEST)];
        let chunks = std::fs::read_dir(path.join(CHUNKS)).unwrap();
        files.extend(chunks.map(|chunk| chunk.unwrap().path()));
        assert_eq!(files.len(), 2);
        for file in &files {
            let bytes = std::fs::read(file).unwrap();
            let shows = |word: &[u8]| bytes.windows(word.len()).any(|window| window == word);
            assert!(!shows(b"secret") && !shows(b"train"));
        }
        let open = |key| Reader::open(Folder::open(&path).unwrap(), digest, key);
        let other = Key::new().unwrap();
        assert!(open(None).is_err() && open(Some(&other)).is_err());
        let reader = open(Some(&key)).unwrap();
        reader.verify().unwrap();
        let mut found = Vec::new();
        reader
            .read(&reader.manifest().parts[0], &mut found)
            .unwrap();
        assert_eq!(found, part);
        let mut bytes = std::fs::read(&files[1]).unwrap();
        bytes[20] ^= 1;
        std::fs::write(&files[1], bytes).unwrap();
        assert!(reader.verify().is_err());
    }
}
