//! The two tiers of devices in software against each other, on programs made from random bytes: a few, or as long as
//! `TOWLINE_FUZZ_SECONDS` says. `TOWLINE_FUZZ_SEED` chooses others.
#![cfg(feature = "soft")]

use std::time::{Duration, Instant};

use towline_soft::differ::compare;

/// Programs of a run that has no time given.
const PROGRAMS: u64 = 100;
/// Bytes that a program is made from.
const BYTES: usize = 2000;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn both_tiers_carry_out_random_programs_alike() {
    let seconds = number("TOWLINE_FUZZ_SECONDS");
    let seed = number("TOWLINE_FUZZ_SEED").unwrap_or(1);
    let end = Instant::now() + Duration::from_secs(seconds.unwrap_or(u32::MAX.into()));
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for count in 0.. {
        let over = match seconds {
            Some(_) => Instant::now() >= end,
            None => count >= PROGRAMS,
        };
        if over {
            println!("soft: {count} programs of seed {seed}");
            break;
        }
        let bytes: Vec<u8> = (0..BYTES)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 24) as u8
            })
            .collect();
        if let Err(why) = compare(&bytes) {
            panic!("program {count} of seed {seed}: {why}");
        }
    }
}
