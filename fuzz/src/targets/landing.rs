//! The accounting of payload chunks, against what it promises.

use std::ops::Range;

use towline_session::{Claim, Landing};

use crate::Seed;

/// Every byte is accepted once and only inside the payload; the payload is whole exactly when all of its bytes have arrived. Input: the
/// size, then triples of operation, offset and length.
pub fn target(bytes: &[u8]) {
    let Some((size, steps)) = bytes.split_first() else {
        return;
    };
    let mut landing = Landing::new((*size).into());
    let mut arriving: Vec<(Claim, Range<usize>)> = Vec::new();
    let mut claimed = [false; 256];
    let mut missing = usize::from(*size);
    for step in steps.as_chunks::<3>().0.iter() {
        // The highest values stand for the end of the number range.
        let wide = |byte: u8| match byte {
            250.. => u64::MAX - u64::from(255 - byte),
            byte => byte.into(),
        };
        let (offset, length) = (wide(step[1]), wide(step[2]));
        if step[0] % 2 == 0 {
            if let Ok(claim) = landing.claim(offset, length) {
                let end = offset.checked_add(length).expect("it was accepted");
                assert!(end <= u64::from(*size), "a chunk outside the payload");
                assert!(offset < end, "a chunk without bytes");
                let range = offset as usize..end as usize;
                let fresh = claimed[range.clone()].iter_mut().all(|byte| !std::mem::replace(byte, true));
                assert!(fresh, "bytes were accepted twice");
                arriving.push((claim, range));
            }
        } else if let Some(index) = arriving.len().checked_sub(1 + usize::from(step[1])) {
            let (claim, range) = arriving.remove(index);
            missing -= range.len();
            assert_eq!(landing.arrived(claim).is_some(), missing == 0);
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
