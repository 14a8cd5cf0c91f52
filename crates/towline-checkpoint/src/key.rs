//! Encryption of what a folder holds. Only the process that wrote a checkpoint can use it, so the key is in that process's memory alone.

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hmac::{self, HMAC_SHA256};
use ring::rand::{SecureRandom, SystemRandom};

use crate::Digest;

/// Bytes that a file has beyond what it holds: the nonce before it, the tag behind it.
pub(crate) const SEAL_BYTES: usize = NONCE_LEN + 16;

/// A key of one process: AES-256-GCM for files, and HMAC-SHA-256 for the names of chunks, which tell nothing of contents then.
pub struct Key {
    files: LessSafeKey,
    names: hmac::Key,
    random: SystemRandom,
}

impl std::fmt::Debug for Key {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str("Key")
    }
}

impl Key {
    /// A new one; `None` where the system gives no random numbers.
    pub fn new() -> Option<Self> {
        let random = SystemRandom::new();
        let mut secret = [0; 32];
        random.fill(&mut secret).ok()?;
        Some(Self {
            files: LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &secret).ok()?),
            names: hmac::Key::generate(HMAC_SHA256, &random).ok()?,
            random,
        })
    }

    /// The name of a chunk.
    pub(crate) fn digest(&self, chunk: &[u8]) -> Digest {
        Digest::from_bytes(hmac::sign(&self.names, chunk).as_ref())
    }

    /// The bytes of a file that holds `contents`; `None` where the system gives no random numbers.
    pub(crate) fn seal(&self, contents: &[u8]) -> Option<Vec<u8>> {
        // At most 2^32 files are sealed with a key: nonces of 96 random bits meet with a chance of 2^-33 then (NIST SP 800-38D, 8.3).
        let mut nonce = [0; NONCE_LEN];
        self.random.fill(&mut nonce).ok()?;
        let mut sealed = Vec::with_capacity(contents.len() + SEAL_BYTES);
        sealed.extend(nonce);
        sealed.extend(contents);
        let (_, text) = sealed.split_at_mut(NONCE_LEN);
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = self
            .files
            .seal_in_place_separate_tag(nonce, Aad::empty(), text);
        sealed.extend(tag.ok()?.as_ref());
        Some(sealed)
    }

    /// The contents of a file; `None` where it was not written with this key, or has been changed.
    pub(crate) fn open(&self, sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, text) = sealed.split_first_chunk::<NONCE_LEN>()?;
        let (nonce, mut text) = (Nonce::assume_unique_for_key(*nonce), text.to_vec());
        let opened = self.files.open_in_place(nonce, Aad::empty(), &mut text);
        let size = opened.ok()?.len();
        text.truncate(size);
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_own_files_are_opened_and_unchanged() {
        let (key, other) = (Key::new().unwrap(), Key::new().unwrap());
        let sealed = key.seal(b"contents").unwrap();
        assert_eq!(sealed.len(), 8 + SEAL_BYTES);
        assert_eq!(key.open(&sealed).as_deref(), Some(&b"contents"[..]));
        assert_eq!(other.open(&sealed), None);
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert_eq!(key.open(&changed), None);
        }
        assert_eq!(key.open(&sealed[..sealed.len() - 1]), None);
        assert_eq!(key.open(&[]), None);
        assert_ne!(key.seal(b"contents"), key.seal(b"contents"));
        assert_ne!(key.digest(b"contents"), other.digest(b"contents"));
    }
}
