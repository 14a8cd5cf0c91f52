//! A small deterministic mutator: flips, splices, lengths that lie, and words of the protocol.

use towline_wire::opencl::CALL_IDS;

/// Longest mutant: far more than any message's fixed part needs.
const LENGTH_LIMIT: usize = 8192;

/// Numbers where length checks go wrong.
const EDGES: &[u64] = &[
    0,
    1,
    2,
    3,
    7,
    8,
    16,
    0x7f,
    0x80,
    0xff,
    0x100,
    0x7fff,
    0xffff,
    0x1_0000,
    64 << 20,
    (64 << 20) + 1,
    256 << 20,
    (256 << 20) + 1,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x1_0000_0000,
    i64::MAX as u64,
    1 << 63,
    u64::MAX - 7,
    u64::MAX,
];

/// Xorshift with a seed: the same mutants on every machine.
pub struct Mutator {
    state: u64,
}

impl Mutator {
    /// A mutator whose mutants `seed` decides.
    pub fn new(seed: u64) -> Self {
        Self {
            state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
        }
    }

    /// The next random number.
    pub fn random(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A random number below `bound`; 0 when that is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        match bound {
            0 => 0,
            bound => (self.random() % bound as u64) as usize,
        }
    }

    /// A mutant of `seed`, possibly with parts of `other`.
    pub fn mutate(&mut self, seed: &[u8], other: &[u8]) -> Vec<u8> {
        let mut bytes = seed.to_vec();
        for _ in 0..1 + self.below(4) {
            self.step(&mut bytes, other);
        }
        bytes.truncate(LENGTH_LIMIT);
        bytes
    }

    fn step(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        let at = self.below(bytes.len());
        match self.below(10) {
            0 => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << self.below(8);
                }
            }
            1 => {
                let random = self.random() as u8;
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = random;
                }
            }
            2 => self.overwrite(bytes, at),
            3 => self.adjust(bytes, at),
            4 => bytes.truncate(at),
            5 => {
                let end = at + self.below(bytes.len() - at);
                bytes.drain(at..end);
            }
            6 => {
                let count = self.below(64);
                let fill = self.random() as u8;
                bytes.splice(at..at, std::iter::repeat_n(fill, count));
            }
            7 => {
                let end = at + self.below((bytes.len() - at).min(64));
                let copy = bytes[at..end].to_vec();
                bytes.splice(at..at, copy);
            }
            8 => {
                let from = self.below(other.len());
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
            _ => {
                let call = CALL_IDS[self.below(CALL_IDS.len())];
                let push = 0xf001 + self.below(16) as u16;
                let word = if self.below(2) == 0 { call } else { push };
                put(bytes, at.min(2), &word.to_le_bytes());
            }
        }
    }

    /// Puts a number from the edges of some width over what is there.
    fn overwrite(&mut self, bytes: &mut [u8], at: usize) {
        let edge = EDGES[self.below(EDGES.len())].to_le_bytes();
        let width = 1 << self.below(4);
        put(bytes, at, &edge[..width]);
    }

    /// Makes a 32-bit number a little larger or smaller: a length that almost fits.
    fn adjust(&mut self, bytes: &mut [u8], at: usize) {
        let Some(field) = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>()) else {
            return;
        };
        let delta = self.below(17) as u32;
        let lied = u32::from_le_bytes(*field)
            .wrapping_add(delta)
            .wrapping_sub(8);
        put(bytes, at, &lied.to_le_bytes());
    }
}

fn put(bytes: &mut [u8], at: usize, word: &[u8]) {
    for (target, byte) in bytes.iter_mut().skip(at).zip(word) {
        *target = *byte;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_mutants_and_most_differ() {
        let seed = [7; 100];
        let mutants = |number| {
            let mut mutator = Mutator::new(number);
            (0..100)
                .map(|_| mutator.mutate(&seed, b"other"))
                .collect::<Vec<_>>()
        };
        assert_eq!(mutants(1), mutants(1));
        assert_ne!(mutants(1), mutants(2));
        let unchanged = mutants(3).iter().filter(|mutant| **mutant == seed).count();
        assert!(unchanged < 20, "{unchanged} of 100 mutants are no mutants");
    }
}
