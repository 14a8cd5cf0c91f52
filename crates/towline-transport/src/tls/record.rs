//! Records of TLS 1.3 (RFC 8446, section 5): one direction of one connection each.

use ring::aead::{AES_128_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use rustls::ConnectionTrafficSecrets;

/// Bytes in front of every record.
pub(super) const HEADER: usize = 5;
/// Most bytes of content in a record.
pub(super) const CONTENT_LIMIT: usize = 1 << 14;
/// Most bytes of a record on the wire (section 5.2).
pub(super) const RECORD_LIMIT: usize = HEADER + CONTENT_LIMIT + 256;
/// What our own records are longer than their content: header, kind and tag.
const OVERHEAD: usize = HEADER + 1 + TAG;
const TAG: usize = 16;

/// Kinds of content.
pub(super) const ALERT: u8 = 21;
pub(super) const HANDSHAKE: u8 = 22;
pub(super) const DATA: u8 = 23;

/// Why a record is none. All end the connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(super) enum RecordError {
    #[error("the peer gave the connection up: {}", meaning(*.0))]
    Alert(u8),
    #[error("a record failed its check: bytes were changed on the way")]
    Forged,
    #[error("a record is no record of TLS 1.3")]
    Malformed,
    #[error("TLS agreed on a cipher that was not offered")]
    Cipher,
}

/// What an alert means (RFC 8446, section 6) that a user can do something about.
fn meaning(alert: u8) -> String {
    match alert {
        42..=46 | 48 | 51 => "it does not accept the certificate".into(),
        116 => "it asks for a certificate; give one with its key".into(),
        other => format!("TLS alert {other}"),
    }
}

/// A key with the number of the next record.
pub(super) struct Direction {
    key: LessSafeKey,
    iv: [u8; 12],
    sequence: u64,
}

impl Direction {
    pub(super) fn new(
        (sequence, secrets): (u64, ConnectionTrafficSecrets),
    ) -> Result<Self, RecordError> {
        let (algorithm, key, iv) = match secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (&AES_128_GCM, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (&CHACHA20_POLY1305, key, iv),
            _ => return Err(RecordError::Cipher),
        };
        let key = UnboundKey::new(algorithm, key.as_ref()).map_err(|_| RecordError::Cipher)?;
        Ok(Self {
            key: LessSafeKey::new(key),
            iv: iv.as_ref().try_into().map_err(|_| RecordError::Cipher)?,
            sequence,
        })
    }

    /// Records sealed or opened with this key.
    pub(super) fn records(&self) -> u64 {
        self.sequence
    }

    /// The nonce of the next record. A nonce never comes twice: keys are changed long before the number could wrap.
    fn nonce(&mut self) -> Nonce {
        let mut nonce = self.iv;
        for (byte, number) in nonce[4..].iter_mut().zip(self.sequence.to_be_bytes()) {
            *byte ^= number;
        }
        self.sequence += 1;
        Nonce::assume_unique_for_key(nonce)
    }

    /// Appends a record to `out` whose content `fill` appends: at most [`CONTENT_LIMIT`] bytes.
    pub(super) fn seal(
        &mut self,
        kind: u8,
        out: &mut Vec<u8>,
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), RecordError> {
        let start = out.len();
        out.extend_from_slice(&[DATA, 3, 3, 0, 0]);
        fill(out);
        out.push(kind);
        let nonce = self.nonce();
        let (header, content) = out[start..].split_at_mut(HEADER);
        let sealed = u16::try_from(content.len() + TAG).expect("a record's content is limited");
        header[3..].copy_from_slice(&sealed.to_be_bytes());
        let tag = self
            .key
            .seal_in_place_separate_tag(nonce, Aad::from(&header[..]), content)
            .map_err(|_| RecordError::Malformed)?;
        out.extend_from_slice(tag.as_ref());
        Ok(())
    }

    /// Opens a whole record where it lies: its kind, and the length of its content, which starts behind the header.
    pub(super) fn open(&mut self, record: &mut [u8]) -> Result<(u8, usize), RecordError> {
        let nonce = self.nonce();
        let (header, sealed) = record
            .split_at_mut_checked(HEADER)
            .ok_or(RecordError::Malformed)?;
        let opened = self
            .key
            .open_in_place(nonce, Aad::from(&header[..]), sealed)
            .map_err(|_| RecordError::Forged)?;
        let kind = opened.iter().rposition(|byte| *byte != 0);
        let kind = kind.ok_or(RecordError::Malformed)?;
        match opened.get(kind) {
            Some(byte) if kind <= CONTENT_LIMIT => Ok((*byte, kind)),
            _ => Err(RecordError::Malformed),
        }
    }
}

/// The whole length of the record at the start of `bytes`; `None` while that does not show.
pub(super) fn length(bytes: &[u8]) -> Result<Option<usize>, RecordError> {
    let Some([kind, _, _, high, low]) = bytes.first_chunk::<HEADER>() else {
        return Ok(None);
    };
    let whole = HEADER + usize::from(u16::from_be_bytes([*high, *low]));
    // Behind the handshake every record claims to be data; what it is, is sealed.
    match *kind == DATA && (OVERHEAD..=RECORD_LIMIT).contains(&whole) {
        true => Ok(Some(whole)),
        false => Err(RecordError::Malformed),
    }
}
