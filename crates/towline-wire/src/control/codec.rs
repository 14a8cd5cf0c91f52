//! Little-endian reading and writing of control message bodies.
//!
//! The reader borrows, never trusts a length, and never panics: each length is compared with a named limit and with what
//! is left before anything is copied.

use std::fmt;

/// Why bytes are not a control message. The peer broke the protocol; the connection cannot go on.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// The first bytes belong to no Towline message: most likely the port of some other service.
    #[error("the peer does not speak the Towline protocol")]
    BadMagic,
    /// A field holds a value that has no meaning.
    #[error("{field} has the invalid value {value}")]
    InvalidValue {
        /// Which field.
        field: &'static str,
        /// What it held.
        value: u64,
    },
    /// A text is not UTF-8.
    #[error("{field} is not valid UTF-8")]
    NotUtf8 {
        /// Which field.
        field: &'static str,
    },
    /// A length is above its limit.
    #[error("{field} is {len} long, more than the limit of {limit}")]
    TooLong {
        /// Which field.
        field: &'static str,
        /// The claimed length.
        len: u64,
        /// The limit it broke.
        limit: u64,
    },
    /// The message goes on after its last field.
    #[error("{count} bytes are left over after the last field")]
    Trailing {
        /// How many.
        count: usize,
    },
    /// The message ends before its last field.
    #[error("the message ends inside {field}")]
    Truncated {
        /// The field that is cut short.
        field: &'static str,
    },
}

pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(super) fn bytes(
        &mut self,
        field: &'static str,
        len: usize,
    ) -> Result<&'a [u8], ControlError> {
        let (head, rest) = self
            .rest
            .split_at_checked(len)
            .ok_or(ControlError::Truncated { field })?;
        self.rest = rest;
        Ok(head)
    }

    pub(super) fn array<const N: usize>(
        &mut self,
        field: &'static str,
    ) -> Result<[u8; N], ControlError> {
        let (head, rest) = self
            .rest
            .split_first_chunk::<N>()
            .ok_or(ControlError::Truncated { field })?;
        self.rest = rest;
        Ok(*head)
    }

    pub(super) fn u8(&mut self, field: &'static str) -> Result<u8, ControlError> {
        Ok(u8::from_le_bytes(self.array(field)?))
    }

    pub(super) fn u16(&mut self, field: &'static str) -> Result<u16, ControlError> {
        Ok(u16::from_le_bytes(self.array(field)?))
    }

    pub(super) fn u32(&mut self, field: &'static str) -> Result<u32, ControlError> {
        Ok(u32::from_le_bytes(self.array(field)?))
    }

    pub(super) fn u64(&mut self, field: &'static str) -> Result<u64, ControlError> {
        Ok(u64::from_le_bytes(self.array(field)?))
    }

    pub(super) fn bool(&mut self, field: &'static str) -> Result<bool, ControlError> {
        match self.u8(field)? {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(ControlError::InvalidValue {
                field,
                value: value.into(),
            }),
        }
    }

    /// A 32-bit length that is at most `limit`.
    pub(super) fn len(&mut self, field: &'static str, limit: usize) -> Result<usize, ControlError> {
        let len = self.u32(field)?;
        match usize::try_from(len) {
            Ok(len) if len <= limit => Ok(len),
            _ => Err(ControlError::TooLong {
                field,
                len: len.into(),
                limit: limit as u64,
            }),
        }
    }

    pub(super) fn blob(
        &mut self,
        field: &'static str,
        limit: usize,
    ) -> Result<Vec<u8>, ControlError> {
        let len = self.len(field, limit)?;
        Ok(self.bytes(field, len)?.to_vec())
    }

    pub(super) fn text(
        &mut self,
        field: &'static str,
        limit: usize,
    ) -> Result<String, ControlError> {
        let len = self.len(field, limit)?;
        let text = std::str::from_utf8(self.bytes(field, len)?)
            .map_err(|_| ControlError::NotUtf8 { field })?;
        Ok(text.to_owned())
    }

    /// A list of texts.
    pub(super) fn texts(
        &mut self,
        field: &'static str,
        most: usize,
        limit: usize,
    ) -> Result<Vec<String>, ControlError> {
        let count = self.len(field, most)?;
        (0..count).map(|_| self.text(field, limit)).collect()
    }

    pub(super) fn finish(self) -> Result<(), ControlError> {
        match self.rest.len() {
            0 => Ok(()),
            count => Err(ControlError::Trailing { count }),
        }
    }
}

/// Appends fields. Texts and blobs above their limit are cut here, so that our own messages always decode.
#[derive(Default)]
pub(super) struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    pub(super) fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub(super) fn u8(&mut self, value: u8) {
        self.raw(&value.to_le_bytes());
    }

    pub(super) fn u16(&mut self, value: u16) {
        self.raw(&value.to_le_bytes());
    }

    pub(super) fn u32(&mut self, value: u32) {
        self.raw(&value.to_le_bytes());
    }

    pub(super) fn u64(&mut self, value: u64) {
        self.raw(&value.to_le_bytes());
    }

    pub(super) fn bool(&mut self, value: bool) {
        self.u8(value.into());
    }

    /// # Panics
    /// When `value` is longer than `limit`: blobs are ours, and whoever makes one must keep to the limit.
    pub(super) fn blob(&mut self, value: &[u8], limit: usize) {
        assert!(
            value.len() <= limit,
            "a blob of {} bytes is above its limit of {limit}",
            value.len()
        );
        self.u32(u32::try_from(value.len()).expect("limits fit 32 bits"));
        self.raw(value);
    }

    /// Cuts `value` at a character boundary when it is above `limit`: a name or explanation is still useful then.
    pub(super) fn text(&mut self, value: &str, limit: usize) {
        let mut end = value.len().min(limit);
        while !value.is_char_boundary(end) {
            end -= 1;
        }
        self.blob(&value.as_bytes()[..end], limit);
    }

    /// Leaves out those after the first `most`.
    pub(super) fn texts(&mut self, values: &[String], most: usize, limit: usize) {
        let values = &values[..values.len().min(most)];
        self.u32(u32::try_from(values.len()).expect("limits fit 32 bits"));
        values.iter().for_each(|value| self.text(value, limit));
    }
}

/// Shows that a secret is there without showing it.
pub(super) fn redacted(f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
    write!(f, "{name}(..)")
}
