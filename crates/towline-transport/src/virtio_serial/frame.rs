//! What goes over a port: frames of the connections that share it.
//!
//! A frame is a header of 12 bytes (kind, three zeros, channel, length; little-endian) and, of some kinds, a payload. Zeros
//! between frames are skipped. The client begins with as many zeros as the largest frame has: if a process before it was cut off
//! in the middle of a frame, they complete that frame. Then comes Hello with 16 random bytes, which the other end repeats behind
//! a mark; whatever reached the client before that was meant for another process.

use super::ProtocolError;

/// Bytes of a header.
pub(super) const HEADER_BYTES: usize = 12;
/// The most that one frame carries: a write to a port takes this much at once (`port_fops_write` of Linux).
pub(super) const MAX_PAYLOAD_BYTES: usize = 32 << 10;
/// What the client sends before its Hello.
pub(super) const PREAMBLE_BYTES: usize = HEADER_BYTES + MAX_PAYLOAD_BYTES;
/// The version of all this.
pub(super) const VERSION: u32 = 1;
/// Bytes of a Hello's number.
pub(super) const NONCE_BYTES: usize = 16;

const ANSWER_MARK: &[u8; 12] = b"towline-port";
const ANSWER_BYTES: usize = ANSWER_MARK.len() + NONCE_BYTES + size_of::<u32>();

/// One frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame<'a> {
    /// A client begins; what was before is void.
    Hello {
        version: u32,
        nonce: [u8; NONCE_BYTES],
    },
    /// The client wants a connection.
    Open { channel: u32 },
    /// It has one.
    Accept { channel: u32 },
    /// It has none.
    Refuse { channel: u32 },
    /// Bytes of a connection.
    Data { channel: u32, bytes: &'a [u8] },
    /// So many bytes more may be sent on a connection.
    Credit { channel: u32, bytes: u32 },
    /// The sender's end of a connection is closed, both ways.
    End { channel: u32 },
    /// The sender is there.
    Ping,
}

const HELLO: u8 = 1;
const OPEN: u8 = 2;
const ACCEPT: u8 = 3;
const REFUSE: u8 = 4;
const DATA: u8 = 5;
const CREDIT: u8 = 6;
const END: u8 = 7;
const PING: u8 = 8;

impl Frame<'_> {
    /// Appends the frame.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let (kind, channel, length, payload): (u8, u32, u32, &[u8]) = match self {
            Self::Hello { version, nonce } => (HELLO, *version, NONCE_BYTES as u32, nonce),
            Self::Open { channel } => (OPEN, *channel, 0, &[]),
            Self::Accept { channel } => (ACCEPT, *channel, 0, &[]),
            Self::Refuse { channel } => (REFUSE, *channel, 0, &[]),
            Self::Data { channel, bytes } => (DATA, *channel, bytes.len() as u32, bytes),
            Self::Credit { channel, bytes } => (CREDIT, *channel, *bytes, &[]),
            Self::End { channel } => (END, *channel, 0, &[]),
            Self::Ping => (PING, 0, 0, &[]),
        };
        out.extend_from_slice(&[kind, 0, 0, 0]);
        out.extend_from_slice(&channel.to_le_bytes());
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(payload);
    }
}

/// Appends the answer to a Hello.
pub(super) fn write_answer(nonce: &[u8; NONCE_BYTES], out: &mut Vec<u8>) {
    out.extend_from_slice(ANSWER_MARK);
    out.extend_from_slice(nonce);
    out.extend_from_slice(&VERSION.to_le_bytes());
}

/// Bytes from a port, until they are whole frames.
#[derive(Debug, Default)]
pub(super) struct Reader {
    bytes: Vec<u8>,
    /// What is before is done with.
    start: usize,
}

impl Reader {
    /// Adds what came.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        if self.start == self.bytes.len() {
            self.bytes.clear();
            self.start = 0;
        } else if self.start > PREAMBLE_BYTES {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    fn rest(&self) -> &[u8] {
        self.bytes.get(self.start..).unwrap_or_default()
    }

    /// Looks for the answer to a Hello, and says the version in it; what is before is thrown away.
    pub(super) fn answer(&mut self, nonce: &[u8; NONCE_BYTES]) -> Option<u32> {
        let rest = self.rest();
        let found = rest.windows(ANSWER_BYTES).position(|window| {
            window
                .strip_prefix(ANSWER_MARK)
                .is_some_and(|tail| tail.starts_with(nonce))
        });
        match found {
            Some(at) => {
                let end = at + ANSWER_BYTES;
                let version = rest.get(end - size_of::<u32>()..end).and_then(number);
                self.start += end;
                version
            }
            None => {
                // Its beginning may have come already.
                self.start += rest.len().saturating_sub(ANSWER_BYTES - 1);
                None
            }
        }
    }

    /// The next frame that is whole.
    pub(super) fn frame(&mut self) -> Result<Option<Frame<'_>>, ProtocolError> {
        self.start += self.rest().iter().take_while(|&&byte| byte == 0).count();
        let rest = self.bytes.get(self.start..).unwrap_or_default();
        let Some((header, tail)) = rest.split_at_checked(HEADER_BYTES) else {
            return Ok(None);
        };
        let (Some(&kind), Some(channel), Some(length)) = (
            header.first(),
            header.get(4..8).and_then(number),
            header.get(8..12).and_then(number),
        ) else {
            return Err(ProtocolError("a frame without a header"));
        };
        if header.get(1..4) != Some(&[0; 3]) {
            return Err(ProtocolError("a header that is none"));
        }
        let payload = match kind {
            HELLO | DATA => length as usize,
            _ => 0,
        };
        if payload > MAX_PAYLOAD_BYTES {
            return Err(ProtocolError("a frame that is too long"));
        }
        let Some(bytes) = tail.get(..payload) else {
            return Ok(None);
        };
        self.start += HEADER_BYTES + payload;
        Ok(Some(match kind {
            HELLO => match bytes.try_into() {
                Ok(nonce) => Frame::Hello {
                    version: channel,
                    nonce,
                },
                // One that was cut off, and completed by the zeros of the next client.
                Err(_) => Frame::Ping,
            },
            OPEN => Frame::Open { channel },
            ACCEPT => Frame::Accept { channel },
            REFUSE => Frame::Refuse { channel },
            DATA => Frame::Data { channel, bytes },
            CREDIT => Frame::Credit {
                channel,
                bytes: length,
            },
            END => Frame::End { channel },
            PING => Frame::Ping,
            _ => return Err(ProtocolError("a frame of an unknown kind")),
        }))
    }
}

fn number(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONCE: [u8; NONCE_BYTES] = *b"0123456789abcdef";

    fn all() -> [Frame<'static>; 8] {
        [
            Frame::Hello {
                version: VERSION,
                nonce: NONCE,
            },
            Frame::Open { channel: 1 },
            Frame::Accept { channel: 1 },
            Frame::Refuse { channel: u32::MAX },
            Frame::Data {
                channel: 1,
                bytes: b"payload",
            },
            Frame::Credit {
                channel: 1,
                bytes: u32::MAX,
            },
            Frame::End { channel: 1 },
            Frame::Ping,
        ]
    }

    fn bytes() -> Vec<u8> {
        let mut bytes = Vec::new();
        for frame in all() {
            frame.write(&mut bytes);
            bytes.push(0);
        }
        bytes
    }

    #[test]
    fn frames_arrive_however_the_stream_is_cut() {
        for len in 1..40 {
            let mut reader = Reader::default();
            let mut expected = all().into_iter();
            for part in bytes().chunks(len) {
                reader.push(part);
                while let Some(frame) = reader.frame().unwrap() {
                    assert_eq!(Some(frame), expected.next());
                }
            }
            assert_eq!(expected.next(), None, "cut into pieces of {len}");
        }
    }

    #[test]
    fn a_new_client_is_understood_wherever_the_one_before_was_cut_off() {
        let mut old = Vec::new();
        Frame::Data {
            channel: 7,
            bytes: &[0xaa; MAX_PAYLOAD_BYTES],
        }
        .write(&mut old);
        let mut old_hello = Vec::new();
        Frame::Hello {
            version: VERSION,
            nonce: [7; NONCE_BYTES],
        }
        .write(&mut old_hello);
        let hello = Frame::Hello {
            version: VERSION,
            nonce: NONCE,
        };
        let cuts = [0, 1, 4, 9, 10, 11, 12, 13, 5000, old.len() - 1, old.len()]
            .map(|cut| &old[..cut])
            .into_iter()
            .chain((1..old_hello.len()).map(|cut| &old_hello[..cut]));
        for cut in cuts {
            let mut reader = Reader::default();
            reader.push(cut);
            let mut new = vec![0; PREAMBLE_BYTES];
            hello.write(&mut new);
            reader.push(&new);
            let mut seen = 0;
            while let Some(frame) = reader.frame().unwrap() {
                seen += usize::from(frame == hello);
            }
            assert_eq!(seen, 1, "cut off after {} bytes", cut.len());
        }
    }

    #[test]
    fn the_answer_is_found_behind_what_was_meant_for_another() {
        let mut bytes = bytes();
        write_answer(b"another client's", &mut bytes);
        write_answer(&NONCE, &mut bytes);
        Frame::Ping.write(&mut bytes);
        for len in [1, 7, 31, 32, 33, 1000] {
            let mut reader = Reader::default();
            let mut version = None;
            for part in bytes.chunks(len) {
                reader.push(part);
                if version.is_none() {
                    version = reader.answer(&NONCE);
                }
            }
            assert_eq!(version, Some(VERSION));
            assert_eq!(reader.frame().unwrap(), Some(Frame::Ping));
        }
    }

    #[test]
    fn no_cut_and_no_byte_makes_it_panic() {
        let bytes = bytes();
        for at in 0..bytes.len() {
            for value in [0, 1, 5, 8, 9, 0x7f, 0xff] {
                let mut bytes = bytes.clone();
                bytes[at] = value;
                let mut reader = Reader::default();
                reader.push(&bytes);
                while let Ok(Some(_)) = reader.frame() {}
            }
        }
    }

    #[test]
    fn a_length_beyond_the_limit_is_refused_before_anything_is_kept_for_it() {
        let mut bytes = vec![DATA, 0, 0, 0, 1, 0, 0, 0];
        bytes.extend_from_slice(&u32::MAX.to_le_bytes());
        let mut reader = Reader::default();
        reader.push(&bytes);
        assert!(reader.frame().is_err());
    }
}
