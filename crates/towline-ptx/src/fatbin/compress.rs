//! Decompression of payloads: LZ4 blocks and Zstandard frames (RFC 8878).

use std::io::Read;

use crate::Error;

/// Longest payload after decompression. The largest machine code in vendors' libraries has a fifth of it.
pub const RAW_LIMIT: u64 = 1 << 30;
/// Most that a Zstandard frame may ask a decoder to remember, unless its content is larger: what RFC 8878, section 3.1.1.1.2, asks
/// every decoder to support.
pub const WINDOW_LIMIT: u64 = 8 << 20;

/// How a payload is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Codec {
    /// An LZ4 block.
    Lz4,
    /// A Zstandard frame.
    Zstd,
}

/// Decompresses into exactly `raw_len` bytes.
pub(super) fn decompress(codec: Codec, bytes: &[u8], raw_len: u64) -> Result<Vec<u8>, Error> {
    if raw_len > RAW_LIMIT {
        return Err(Error::TooLong {
            what: "decompressed payload",
            len: raw_len,
            limit: RAW_LIMIT,
        });
    }
    let raw = match codec {
        Codec::Lz4 => lz4(bytes, raw_len)?,
        Codec::Zstd => zstd(bytes, raw_len)?,
    };
    if raw.len() as u64 != raw_len {
        return Err(Error::LengthMismatch {
            said: raw_len,
            found: raw.len() as u64,
        });
    }
    Ok(raw)
}

/// A byte of an LZ4 block stands for at most 255 bytes, so that a payload cannot claim more memory than is due to its length.
const LZ4_RATIO: u64 = 255;

fn lz4(bytes: &[u8], raw_len: u64) -> Result<Vec<u8>, Error> {
    if raw_len > LZ4_RATIO.saturating_mul(bytes.len() as u64) {
        return Err(Error::LengthMismatch {
            said: raw_len,
            found: bytes.len() as u64,
        });
    }
    lz4_flex::block::decompress(bytes, raw_len as usize).map_err(|error| Error::Compression {
        codec: "LZ4",
        reason: error.to_string(),
    })
}

fn zstd(bytes: &[u8], raw_len: u64) -> Result<Vec<u8>, Error> {
    let fail = |reason: String| Error::Compression {
        codec: "Zstandard",
        reason,
    };
    let window = window(bytes).ok_or_else(|| fail("no frame header".into()))?;
    if window > WINDOW_LIMIT.max(raw_len) {
        return Err(Error::TooLong {
            what: "window of a Zstandard frame",
            len: window,
            limit: WINDOW_LIMIT,
        });
    }
    let mut rest = bytes;
    let decoder = ruzstd::decoding::StreamingDecoder::new(&mut rest)
        .map_err(|error| fail(error.to_string()))?;
    // One byte more than stated tells a payload that is too long.
    let mut raw = Vec::new();
    decoder
        .take(raw_len + 1)
        .read_to_end(&mut raw)
        .map_err(|error| fail(error.to_string()))?;
    Ok(raw)
}

/// How many bytes a frame asks its decoder to keep: RFC 8878, section 3.1.1.1.
fn window(frame: &[u8]) -> Option<u64> {
    let header = frame.strip_prefix(&[0x28, 0xb5, 0x2f, 0xfd])?;
    let (&descriptor, header) = header.split_first()?;
    let single_segment = descriptor & 0x20 != 0;
    if !single_segment {
        let byte = u64::from(*header.first()?);
        let base = 1_u64 << (10 + (byte >> 3));
        return Some(base + base / 8 * (byte & 7));
    }
    let dictionary_len = [0, 1, 2, 4][usize::from(descriptor & 3)];
    let size_len = [1, 2, 4, 8][usize::from(descriptor >> 6)];
    let field = header.get(dictionary_len..dictionary_len + size_len)?;
    let mut size = [0; 8];
    size[..size_len].copy_from_slice(field);
    let size = u64::from_le_bytes(size);
    Some(if size_len == 2 { size + 256 } else { size })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// "aaaaaaaaaaaaaaaaaaaa", single segment.
    const ZSTD: &[u8] = b"\x28\xb5\x2f\xfd\x20\x14\xa3\x00\x00a";
    const TEXT: &[u8] = b"aaaaaaaaaaaaaaaaaaaa";

    #[test]
    fn a_frame_gives_what_went_in() {
        assert_eq!(decompress(Codec::Zstd, ZSTD, 20).expect("a frame"), TEXT);
    }

    #[test]
    fn a_block_gives_what_went_in() {
        let block = b"\x1fa\x01\x00\x00\x50aaaaa";
        let raw = decompress(Codec::Lz4, block, 25).expect("a block");
        assert_eq!(raw, [b'a'; 25]);
    }

    #[test]
    fn a_wrong_length_is_refused() {
        for said in [0, 19, 21, RAW_LIMIT] {
            assert!(decompress(Codec::Zstd, ZSTD, said).is_err(), "{said}");
        }
        let over = decompress(Codec::Zstd, ZSTD, RAW_LIMIT + 1);
        assert!(matches!(over, Err(Error::TooLong { .. })));
        let over = decompress(Codec::Lz4, b"\x10a", RAW_LIMIT);
        assert!(matches!(over, Err(Error::LengthMismatch { .. })));
    }

    #[test]
    fn a_window_is_read_from_either_form_of_header() {
        assert_eq!(window(ZSTD), Some(20));
        // Two bytes of size count from 256.
        assert_eq!(window(b"\x28\xb5\x2f\xfd\x60\x63\x01"), Some(0x263));
        // Exponent 13 (8 MiB), mantissa 4.
        assert_eq!(window(b"\x28\xb5\x2f\xfd\x00\x6c"), Some((8 << 20) * 3 / 2));
        assert_eq!(window(b"\x28\xb5\x2f\xfd\x20"), None);
    }

    #[test]
    fn a_frame_that_asks_for_memory_is_refused() {
        let greedy = decompress(Codec::Zstd, b"\x28\xb5\x2f\xfd\x00\xff\x01\x00\x00", 20);
        assert!(matches!(greedy, Err(Error::TooLong { .. })), "{greedy:?}");
    }
}
