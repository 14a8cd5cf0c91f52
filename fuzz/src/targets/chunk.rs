//! Headers of payload chunks.

use towline_wire::frame::{CHUNK_HEADER, CHUNK_LIMIT, ChunkHeader};

use crate::Seed;
use crate::memory::bounded;

/// A header is refused, or within the limit and has one encoding.
pub fn target(bytes: &[u8]) {
    for window in bytes.windows(CHUNK_HEADER) {
        let header: &[u8; CHUNK_HEADER] = window.try_into().expect("windows have that length");
        if let Ok(chunk) = bounded(0, || ChunkHeader::from_bytes(header)) {
            assert!(chunk.length as usize <= CHUNK_LIMIT);
            assert_eq!(&chunk.to_bytes(), header);
        }
    }
}

/// The smallest, a usual one, the largest.
pub fn seeds() -> Vec<Seed> {
    let header = |payload, offset, length| ChunkHeader {
        payload,
        offset,
        length,
    };
    [
        ("empty", header(0, 0, 0)),
        ("usual", header(7, 1 << 20, 1 << 20)),
        ("largest", header(u64::MAX, u64::MAX, CHUNK_LIMIT as u32)),
    ]
    .map(|(name, chunk)| Seed::new(name, chunk.to_bytes()))
    .into()
}
