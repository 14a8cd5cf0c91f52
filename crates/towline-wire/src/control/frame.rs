//! Cutting control messages out of a byte stream.
//!
//! Frame: magic `u32`, kind `u16`, reserved `u16` (zero), body length `u32`, body. The header is the same in every
//! protocol version, so that a peer of another version can still be told so.

use super::codec::{ControlError, Reader, Writer};

/// First bytes of every control message: "TWLC".
pub(super) const CONTROL_MAGIC: [u8; 4] = *b"TWLC";
pub(super) const HEADER_BYTES: usize = 12;

/// Kind and body of one frame.
pub(super) fn split(frame: &[u8]) -> Result<(u16, &[u8]), ControlError> {
    let (kind, len) = parse_header(frame)?;
    let body = frame.get(HEADER_BYTES..).ok_or(ControlError::Truncated {
        field: "message header",
    })?;
    match body.len().checked_sub(len) {
        None => Err(ControlError::Truncated {
            field: "message body",
        }),
        Some(0) => Ok((kind, body)),
        Some(count) => Err(ControlError::Trailing { count }),
    }
}

pub(super) fn join(kind: u16, body: &[u8]) -> Vec<u8> {
    let mut frame = Writer::default();
    frame.raw(&CONTROL_MAGIC);
    frame.u16(kind);
    frame.u16(0);
    frame.u32(u32::try_from(body.len()).expect("message limits fit 32 bits"));
    frame.raw(body);
    frame.into_bytes()
}

fn parse_header(bytes: &[u8]) -> Result<(u16, usize), ControlError> {
    let mut reader = Reader::new(bytes);
    if reader.array::<4>("message magic")? != CONTROL_MAGIC {
        return Err(ControlError::BadMagic);
    }
    let kind = reader.u16("message kind")?;
    match reader.u16("reserved header field")? {
        0 => {}
        value => {
            return Err(ControlError::InvalidValue {
                field: "reserved header field",
                value: value.into(),
            });
        }
    }
    let len = reader.u32("message length")?;
    let too_long = ControlError::TooLong {
        field: "message",
        len: len.into(),
        limit: usize::MAX as u64,
    };
    Ok((kind, usize::try_from(len).map_err(|_| too_long)?))
}

/// Collects bytes as they arrive and gives out whole frames.
///
/// It holds at most one frame of `limit` bytes plus what came behind it in the same `push`: memory grows with what the
/// peer has really sent, never with what it announces. A buffer that failed stays failed.
#[derive(Debug)]
pub struct MessageBuffer {
    bytes: Vec<u8>,
    limit: usize,
    failed: Option<ControlError>,
}

impl MessageBuffer {
    /// A buffer for messages whose body is at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            bytes: Vec::new(),
            limit,
            failed: None,
        }
    }

    /// Adds bytes from the connection.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.failed.is_none() {
            self.bytes.extend_from_slice(bytes);
        }
    }

    /// How many bytes can still be missing from the frame at the front: what to ask the connection for next.
    pub fn missing_bytes(&self) -> usize {
        match parse_header(&self.bytes) {
            Ok((_, len)) => (HEADER_BYTES + len.min(self.limit)).saturating_sub(self.bytes.len()),
            Err(_) => HEADER_BYTES.saturating_sub(self.bytes.len()),
        }
    }

    /// The next whole frame (header included, as [`super::Message::decode`] and the handshakes take it), if it is there.
    pub fn next_frame(&mut self) -> Result<Option<Vec<u8>>, ControlError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        match self.frame_bytes() {
            Ok(None) => Ok(None),
            Ok(Some(len)) => {
                let rest = self.bytes.split_off(len);
                Ok(Some(std::mem::replace(&mut self.bytes, rest)))
            }
            Err(error) => {
                self.bytes = Vec::new();
                self.failed = Some(error.clone());
                Err(error)
            }
        }
    }

    fn frame_bytes(&self) -> Result<Option<usize>, ControlError> {
        // Wrong magic is reported as soon as it can be seen: a peer that speaks something else may never send a header.
        let magic = &self.bytes[..self.bytes.len().min(CONTROL_MAGIC.len())];
        if !CONTROL_MAGIC.starts_with(magic) {
            return Err(ControlError::BadMagic);
        }
        if self.bytes.len() < HEADER_BYTES {
            return Ok(None);
        }
        let (_, len) = parse_header(&self.bytes)?;
        if len > self.limit {
            return Err(ControlError::TooLong {
                field: "message",
                len: len as u64,
                limit: self.limit as u64,
            });
        }
        let whole = HEADER_BYTES + len;
        Ok((self.bytes.len() >= whole).then_some(whole))
    }
}
