//! The files that ranks of a traced MPI program leave behind. The first byte says which.

use towline_trace::{RawFile, check_raw};

use crate::Seed;
use crate::memory::{bounded, proportional};

const KINDS: [RawFile; 3] = [RawFile::Counts, RawFile::Communicators, RawFile::Events];

/// Any bytes are read or refused with a reason, with no more entries than there are bytes.
pub fn target(bytes: &[u8]) {
    let Some((first, rest)) = bytes.split_first() else {
        return;
    };
    let kind = KINDS[usize::from(*first) % KINDS.len()];
    match bounded(proportional(rest), || check_raw(kind, rest)) {
        Ok(entries) => assert!(entries <= rest.len()),
        Err(reason) => assert!(!reason.is_empty(), "an error that says nothing"),
    }
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// One file of each kind.
pub fn seeds() -> Vec<Seed> {
    // Rank 0 of 1, finished, with room for one collective.
    let mut counts = b"\0TWLCOUNT".to_vec();
    counts.extend(words(&[1, 0, 1, 2, 0, 1]));
    counts.resize(1 + 4096 + 64, 0);
    counts.extend(words(&[1, 0, 3, u32::MAX, 7, 0, 56, 0]));
    // MPI_COMM_WORLD of three ranks, and one of two groups.
    let mut communicators = vec![1];
    communicators.extend(words(&[9, 0, 0, 0, 3, 0, 0, 1, 2, 9, 5, 0, 1, 1, 2, 0, 1, 2]));
    // A send, a receive, an isend and its wait, an alltoallv of two, a neighbourhood.
    let events = [
        &[2][..],
        &[1, 0xe8, 7, 0, 2, 5, 0x80, 1],
        &[2, 0, 0, 2, 5, 8],
        &[3, 0, 1, 0, 2, 5, 8],
        &[5, 0, 1, 0, 0],
        &[6, 9, 11, 0, 0, 3, 2, 1, 2, 2, 3, 4],
        &[6, 0, 19, 0, 0, 8, 1, 2, 8, 1, 0, 8],
    ]
    .concat();
    [("counts", counts), ("communicators", communicators), ("events", events)]
        .into_iter()
        .map(|(name, bytes)| Seed::new(name, bytes))
        .collect()
}
