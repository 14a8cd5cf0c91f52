//! The accounting of payload chunks, against what it promises.

use towline_session::Landing;

use crate::Seed;

/// Chunks are accepted only inside the payload, never twice at once, never more than there is to come; the payload is complete when
/// all of it has arrived. Input: the size, then triples of operation, offset and length.
pub fn target(bytes: &[u8]) {
    let Some((size, steps)) = bytes.split_first() else {
        return;
    };
    let size = u64::from(*size);
    let mut landing = Landing::new(size);
    let mut arriving: Vec<(u64, u64)> = Vec::new();
    let mut claimed = 0;
    for step in steps.as_chunks::<3>().0.iter() {
        // The highest values stand for the end of the number range.
        let wide = |byte: u8| match byte {
            250.. => u64::MAX - u64::from(255 - byte),
            byte => byte.into(),
        };
        let (offset, length) = (wide(step[1]), wide(step[2]));
        if step[0] % 2 == 0 {
            if landing.claim(offset, length).is_ok() {
                let end = offset.checked_add(length).expect("it was accepted");
                assert!(end <= size, "a chunk outside the payload");
                let overlaps = |(start, stop): &(u64, u64)| offset < *stop && *start < end;
                assert!(!arriving.iter().any(overlaps), "a chunk twice at once");
                claimed += length;
                assert!(claimed <= size, "more than the payload");
                assert!(offset < end, "a chunk that no place tells from its neighbour");
                arriving.push((offset, end));
            }
        } else if let Some(index) = arriving.len().checked_sub(1 + usize::from(step[1])) {
            let (offset, _) = arriving.remove(index);
            let complete = claimed == size && arriving.is_empty();
            assert_eq!(landing.arrived(offset), complete);
        }
    }
}

/// Two chunks in order, and overlapping ones.
pub fn seeds() -> Vec<Seed> {
    vec![
        Seed::new("whole", [100, 0, 60, 40, 0, 0, 60, 1, 0, 0, 1, 0, 0]),
        Seed::new("overlap", [100, 0, 0, 50, 0, 40, 20, 1, 0, 0, 0, 50, 51, 0, 255, 2]),
    ]
}
