//! What holds every generated message of every API: what is encoded decodes to the same bytes again, and no cut or flipped byte makes
//! a decoder panic.

use crate::codec::{List, Scalar};
use crate::error::DecodeError;

/// Deterministic values from a seed.
pub(crate) struct Source {
    state: u64,
    arena: &'static [u8],
}

impl Source {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            state: seed,
            arena: &ARENA,
        }
    }

    fn next(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
    }

    pub(crate) fn scalar<T: Scalar>(&mut self) -> T {
        let bytes: Vec<u8> = std::iter::repeat_with(|| (self.next() >> 24) as u8)
            .take(T::WIDTH)
            .collect();
        T::take(&bytes)
    }

    pub(crate) fn flag(&mut self) -> bool {
        self.next() & 1 == 1
    }

    pub(crate) fn blob(&mut self) -> &'static [u8] {
        let len = (self.next() % 40) as usize;
        &self.arena[..len]
    }

    pub(crate) fn list<T: Scalar>(&mut self) -> List<'static, T> {
        let count = (self.next() % 5) as usize;
        List::Encoded(&self.arena[..count * T::WIDTH])
    }
}

/// `counted`: a count stands beside a list, so a random message is refused unless the two happen to agree.
pub(crate) fn check<T>(
    name: &str,
    counted: bool,
    message: T,
    encode: impl Fn(&mut Vec<u8>, &T),
    recode: impl Fn(&[u8]) -> Result<Vec<u8>, DecodeError>,
) {
    let mut bytes = Vec::new();
    encode(&mut bytes, &message);
    match recode(&bytes) {
        Ok(again) => assert_eq!(again, bytes, "{name} changed on its way"),
        Err(DecodeError::LengthMismatch { .. }) if counted => {}
        Err(error) => panic!("{name} does not decode: {error}"),
    }
    for cut in places(bytes.len()) {
        assert!(
            recode(&bytes[..cut]).is_err(),
            "{name} decodes with {cut} of {} bytes",
            bytes.len()
        );
    }
    for at in places(bytes.len()) {
        bytes[at] ^= 0x81;
        let _ = recode(&bytes);
        bytes[at] ^= 0x81;
    }
}

/// Every place in so many bytes, or some: the longest messages are structures with arrays of thousands. Miri takes an hour for as many.
fn places(len: usize) -> impl Iterator<Item = usize> {
    const ALL: usize = 1024;
    const SOME: usize = 64;
    let (all, some) = match cfg!(miri) {
        true => (ALL / 16, SOME / 16),
        false => (ALL, SOME),
    };
    // Odd, so that each byte of an array's elements has its turn.
    let step = match len <= all {
        true => 1,
        false => len.div_ceil(some) | 1,
    };
    (0..len).step_by(step)
}

static ARENA: [u8; 256] = {
    let mut bytes = [0; 256];
    let mut at = 0;
    while at < bytes.len() {
        bytes[at] = at as u8 ^ 0x5a;
        at += 1;
    }
    bytes
};
