//! Frames: what travels on the lanes of a session.
//!
//! The **command lane** carries frames in both directions. A frame is a header and a run of messages; messages are numbered from 1
//! in each direction, the header holds the number of its first one and acknowledges, cumulatively, what its sender has received. A
//! frame holds what was ready when the sender got round to writing: one message or hundreds.
//!
//! **Payload lanes** carry chunks: a header that names the payload, the place in it and the length, then the bytes.

use crate::codec::{Decoder, Scalar};
use crate::error::{CloseCode, DecodeError, ProtocolError};

/// Bytes of a frame header.
pub const FRAME_HEADER: usize = 24;
/// Bytes of a message header.
pub const MESSAGE_HEADER: usize = 8;
/// Bytes of a chunk header.
pub const CHUNK_HEADER: usize = 24;
/// Largest frame body: what one side must be ready to number as a unit. Senders flush long before it.
pub const FRAME_LIMIT: usize = 256 << 20;
/// Largest message body. Program sources and binaries travel as one message; payload has its own lanes.
pub const MESSAGE_LIMIT: usize = 64 << 20;
/// Largest chunk on a payload lane.
pub const CHUNK_LIMIT: usize = 64 << 20;

/// Header of a frame: `length u32, reserved u32, sequence u64, acknowledged u64`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    /// Bytes of messages that follow.
    pub length: u32,
    /// Number of the first message in it; the next number to come when it holds none.
    pub sequence: u64,
    /// Messages received from the peer so far.
    pub acknowledged: u64,
}

impl FrameHeader {
    /// The header's bytes.
    pub fn to_bytes(self) -> [u8; FRAME_HEADER] {
        let mut out = [0; FRAME_HEADER];
        out[..4].copy_from_slice(&self.length.to_le_bytes());
        out[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        out[16..].copy_from_slice(&self.acknowledged.to_le_bytes());
        out
    }

    /// Reads a header and checks its length.
    pub fn from_bytes(bytes: &[u8; FRAME_HEADER]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(bytes);
        let length = decoder.scalar::<u32>()?;
        let reserved = decoder.scalar::<u32>()?;
        if length as usize > FRAME_LIMIT {
            return Err(DecodeError::TooLong {
                what: "frame",
                len: length.into(),
                limit: FRAME_LIMIT as u64,
            });
        }
        if reserved != 0 {
            return Err(DecodeError::BadValue {
                what: "reserved word of a frame",
                value: reserved.into(),
            });
        }
        Ok(Self {
            length,
            sequence: decoder.scalar()?,
            acknowledged: decoder.scalar()?,
        })
    }
}

/// Appends a message header for `id`, whose body comes next; [`end_message`] completes it.
#[inline]
pub fn begin_message(out: &mut Vec<u8>, id: u16) -> usize {
    let at = out.len();
    0_u32.put(out);
    id.put(out);
    0_u16.put(out);
    at
}

/// Fills in the length of the message that began at `at`.
#[inline]
pub fn end_message(out: &mut [u8], at: usize) {
    let length = (out.len() - at - MESSAGE_HEADER) as u32;
    if let Some(field) = out.get_mut(at..at + 4) {
        field.copy_from_slice(&length.to_le_bytes());
    }
}

/// One message as received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Incoming<'a> {
    /// Its number.
    pub number: u64,
    /// Call id, or push kind.
    pub id: u16,
    /// Its body.
    pub body: &'a [u8],
}

/// Cuts the bytes of a command lane into messages and checks the numbering. Sans-I/O: bytes go in through [`FrameReader::space`]
/// and [`FrameReader::filled`], messages come out of [`FrameReader::next`].
#[derive(Debug)]
pub struct FrameReader {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    left_in_frame: usize,
    next_number: u64,
    acknowledged: u64,
    failed: bool,
}

/// What a fresh buffer holds; grows only as far as one message that really arrives needs.
const READ_BUFFER: usize = 256 << 10;

impl Default for FrameReader {
    fn default() -> Self {
        Self::new()
    }
}

impl FrameReader {
    /// A reader that expects message 1.
    pub fn new() -> Self {
        Self {
            buffer: vec![0; READ_BUFFER],
            start: 0,
            end: 0,
            left_in_frame: 0,
            next_number: 1,
            acknowledged: 0,
            failed: false,
        }
    }

    /// Where the next received bytes go; never empty.
    pub fn space(&mut self) -> &mut [u8] {
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
            if self.buffer.len() > READ_BUFFER {
                self.buffer.truncate(READ_BUFFER);
                self.buffer.shrink_to_fit();
            }
        }
        if self.buffer.len() - self.end < READ_BUFFER / 8 && self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == self.buffer.len() {
            // One message fills it: double, so the allocation follows what has arrived, not what a length field claims.
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
        &mut self.buffer[self.end..]
    }

    /// Says that `count` bytes were put into [`Self::space`].
    pub fn filled(&mut self, count: usize) {
        self.end = (self.end + count).min(self.buffer.len());
    }

    /// Messages received whole so far: what the next frame sent should acknowledge.
    pub fn received(&self) -> u64 {
        self.next_number - 1
    }

    /// The highest number that the peer has acknowledged.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// The next whole message, or `None` until more bytes come. After an error it stays failed.
    #[inline]
    #[allow(
        clippy::should_implement_trait,
        reason = "lends from the buffer, so it cannot be an Iterator"
    )]
    pub fn next(&mut self) -> Result<Option<Incoming<'_>>, ProtocolError> {
        if self.failed {
            return Err(ProtocolError::new(
                CloseCode::Malformed,
                "the lane failed before",
            ));
        }
        match self.step() {
            Ok(Some((number, id, range))) => Ok(Some(Incoming {
                number,
                id,
                body: &self.buffer[range],
            })),
            Ok(None) => Ok(None),
            Err(error) => {
                self.failed = true;
                Err(error)
            }
        }
    }

    /// Takes the headers of the next frame that holds messages; `false` where more bytes have to come.
    fn open_frame(&mut self) -> Result<bool, ProtocolError> {
        while self.left_in_frame == 0 {
            let Some(header) = self.buffer[self.start..self.end].first_chunk::<FRAME_HEADER>()
            else {
                return Ok(false);
            };
            let header = FrameHeader::from_bytes(header)?;
            if header.sequence != self.next_number {
                return Err(ProtocolError::new(
                    CloseCode::OutOfSequence,
                    format!(
                        "frame starts at message {}, expected {}",
                        header.sequence, self.next_number
                    ),
                ));
            }
            if header.acknowledged < self.acknowledged {
                return Err(ProtocolError::new(
                    CloseCode::OutOfSequence,
                    "the peer took back an acknowledgement",
                ));
            }
            self.acknowledged = header.acknowledged;
            self.start += FRAME_HEADER;
            self.left_in_frame = header.length as usize;
        }
        Ok(true)
    }

    #[inline]
    fn step(&mut self) -> Result<Option<(u64, u16, std::ops::Range<usize>)>, ProtocolError> {
        if self.left_in_frame == 0 && !self.open_frame()? {
            return Ok(None);
        }
        let Some(header) = self.buffer[self.start..self.end].first_chunk::<MESSAGE_HEADER>() else {
            return Ok(None);
        };
        let length = u32::take(&header[..4]) as usize;
        let id = u16::take(&header[4..6]);
        if length > MESSAGE_LIMIT {
            return Err(DecodeError::TooLong {
                what: "message",
                len: length as u64,
                limit: MESSAGE_LIMIT as u64,
            }
            .into());
        }
        if u16::take(&header[6..]) != 0 {
            return Err(ProtocolError::new(
                CloseCode::Malformed,
                "reserved bits of a message header are set",
            ));
        }
        let whole = MESSAGE_HEADER + length;
        if whole > self.left_in_frame {
            return Err(ProtocolError::new(
                CloseCode::Malformed,
                format!("message {id:#06x} of {length} bytes leaves its frame"),
            ));
        }
        if self.end - self.start < whole {
            return Ok(None);
        }
        let body = self.start + MESSAGE_HEADER..self.start + whole;
        self.start += whole;
        self.left_in_frame -= whole;
        let number = self.next_number;
        self.next_number += 1;
        Ok(Some((number, id, body)))
    }
}

/// Header of a payload chunk: `payload u64, offset u64, length u32, reserved u32`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkHeader {
    /// Which payload: the number that its command gave it.
    pub payload: u64,
    /// Where in the payload the bytes belong.
    pub offset: u64,
    /// How many follow.
    pub length: u32,
}

impl ChunkHeader {
    /// The header's bytes.
    pub fn to_bytes(self) -> [u8; CHUNK_HEADER] {
        let mut out = [0; CHUNK_HEADER];
        out[..8].copy_from_slice(&self.payload.to_le_bytes());
        out[8..16].copy_from_slice(&self.offset.to_le_bytes());
        out[16..20].copy_from_slice(&self.length.to_le_bytes());
        out
    }

    /// Reads a header and checks its length.
    pub fn from_bytes(bytes: &[u8; CHUNK_HEADER]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(bytes);
        let header = Self {
            payload: decoder.scalar()?,
            offset: decoder.scalar()?,
            length: decoder.scalar()?,
        };
        if header.length as usize > CHUNK_LIMIT {
            return Err(DecodeError::TooLong {
                what: "chunk",
                len: header.length.into(),
                limit: CHUNK_LIMIT as u64,
            });
        }
        match decoder.scalar::<u32>()? {
            0 => Ok(header),
            other => Err(DecodeError::BadValue {
                what: "reserved word of a chunk",
                value: other.into(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(sequence: u64, acknowledged: u64, messages: &[(u16, &[u8])]) -> Vec<u8> {
        let mut body = Vec::new();
        for (id, bytes) in messages {
            let at = begin_message(&mut body, *id);
            body.extend_from_slice(bytes);
            end_message(&mut body, at);
        }
        let mut out = FrameHeader {
            length: body.len() as u32,
            sequence,
            acknowledged,
        }
        .to_bytes()
        .to_vec();
        out.extend_from_slice(&body);
        out
    }

    fn feed(reader: &mut FrameReader, bytes: &[u8]) {
        let space = reader.space();
        space[..bytes.len()].copy_from_slice(bytes);
        reader.filled(bytes.len());
    }

    #[test]
    fn messages_come_out_numbered_whatever_the_cuts() {
        let mut stream = frame(1, 0, &[(7, b"ab"), (8, b"")]);
        stream.extend(frame(3, 5, &[]));
        stream.extend(frame(3, 6, &[(9, b"xyz")]));
        for cut in 1..stream.len() {
            let mut reader = FrameReader::new();
            let mut seen = Vec::new();
            for piece in stream.chunks(cut) {
                feed(&mut reader, piece);
                while let Some(message) = reader.next().expect("well formed") {
                    seen.push((message.number, message.id, message.body.to_vec()));
                }
            }
            assert_eq!(
                seen,
                [
                    (1, 7, b"ab".to_vec()),
                    (2, 8, vec![]),
                    (3, 9, b"xyz".to_vec())
                ]
            );
            assert_eq!(reader.acknowledged(), 6);
            assert_eq!(reader.received(), 3);
        }
    }

    #[test]
    fn a_gap_in_the_numbers_ends_the_lane_for_good() {
        let mut reader = FrameReader::new();
        feed(&mut reader, &frame(2, 0, &[(7, b"")]));
        assert_eq!(
            reader.next().map(|_| ()).unwrap_err().code,
            CloseCode::OutOfSequence
        );
        feed(&mut reader, &frame(1, 0, &[(7, b"")]));
        assert!(reader.next().is_err());
    }

    #[test]
    fn a_message_must_stay_inside_its_frame() {
        let mut bytes = frame(1, 0, &[(7, b"abcd")]);
        bytes[FRAME_HEADER..FRAME_HEADER + 4].copy_from_slice(&100_u32.to_le_bytes());
        let mut reader = FrameReader::new();
        feed(&mut reader, &bytes);
        assert_eq!(
            reader.next().map(|_| ()).unwrap_err().code,
            CloseCode::Malformed
        );
    }

    #[test]
    fn lengths_over_the_limits_are_refused() {
        let mut reader = FrameReader::new();
        feed(
            &mut reader,
            &FrameHeader {
                length: u32::MAX,
                sequence: 1,
                acknowledged: 0,
            }
            .to_bytes(),
        );
        assert_eq!(
            reader.next().map(|_| ()).unwrap_err().code,
            CloseCode::LimitExceeded
        );
        let chunk = ChunkHeader {
            payload: 1,
            offset: 2,
            length: u32::MAX,
        }
        .to_bytes();
        assert!(matches!(
            ChunkHeader::from_bytes(&chunk),
            Err(DecodeError::TooLong { .. })
        ));
    }

    #[test]
    fn a_message_larger_than_the_buffer_still_comes_whole() {
        let big = vec![5; 3 * READ_BUFFER];
        let stream = frame(1, 0, &[(7, &big), (8, b"tail")]);
        let mut reader = FrameReader::new();
        let mut sent = 0;
        let mut seen = Vec::new();
        while sent < stream.len() {
            let space = reader.space();
            let count = space.len().min(stream.len() - sent);
            space[..count].copy_from_slice(&stream[sent..sent + count]);
            reader.filled(count);
            sent += count;
            while let Some(message) = reader.next().expect("well formed") {
                seen.push((message.id, message.body.len()));
            }
        }
        assert_eq!(seen, [(7, big.len()), (8, 4)]);
    }
}
