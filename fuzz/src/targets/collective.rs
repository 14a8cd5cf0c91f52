//! Communicators and collectives, as a worker reads them from a client's words.

use towline_wire::cuda::collective::{
    Factor, ID_BYTES, Kind, Member, Operation, Origin, decode_members, decode_operations,
    encode_members, encode_operations,
};

use crate::Seed;
use crate::memory::{bounded, proportional};

/// Words that were read are read again from their own encoding. Input: 64-bit words.
pub fn target(bytes: &[u8]) {
    let words = bytes.as_chunks::<8>().0.iter();
    let words: Vec<u64> = words.map(|word| u64::from_le_bytes(*word)).collect();
    if let Ok(members) = bounded(proportional(bytes), || decode_members(&words)) {
        assert_eq!(decode_members(&encode_members(&members)), Ok(members));
    }
    if let Ok(operations) = bounded(proportional(bytes), || decode_operations(&words)) {
        let again = decode_operations(&encode_operations(&operations));
        assert_eq!(again, Ok(operations));
    }
}

/// Communicators of each origin, and two operations.
pub fn seeds() -> Vec<Seed> {
    let origins = [
        Origin::Join {
            ranks: 2,
            rank: 1,
            ids: vec![[7; ID_BYTES]],
        },
        Origin::Split {
            parent: 16,
            color: 1,
            key: -1,
        },
        Origin::Shrink {
            parent: 16,
            excluded: vec![0],
            flags: 0,
        },
    ];
    let members: Vec<_> = origins
        .into_iter()
        .map(|origin| Member {
            number: 32,
            context: 1,
            origin,
            config: vec![24, 0, 1],
        })
        .collect();
    let operation = |kind| Operation {
        kind,
        communicator: 16,
        stream: 0,
        send: 0x1000,
        receive: 0x2000,
        count: 4,
        datatype: 7,
        reduction: 0,
        root: 0,
        factor: Some(Factor::Bits(2)),
    };
    let operations = [Kind::AllReduce, Kind::Send].map(operation);
    let bytes =
        |words: Vec<u64>| -> Vec<u8> { words.into_iter().flat_map(u64::to_le_bytes).collect() };
    vec![
        Seed::new("members", bytes(encode_members(&members))),
        Seed::new("operations", bytes(encode_operations(&operations))),
    ]
}
