//! Every generated message: what is encoded decodes to the same bytes again, and no cut or flipped byte makes a decoder panic.

use proptest::prelude::*;

use super::{DecodeError, List, Scalar};

/// Deterministic values from a seed.
pub(super) struct Source {
    state: u64,
    arena: &'static [u8],
}

impl Source {
    fn next(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
    }

    pub(super) fn scalar<T: Scalar>(&mut self) -> T {
        let bytes: Vec<u8> = std::iter::repeat_with(|| (self.next() >> 24) as u8)
            .take(T::WIDTH)
            .collect();
        T::take(&bytes)
    }

    pub(super) fn flag(&mut self) -> bool {
        self.next() & 1 == 1
    }

    pub(super) fn blob(&mut self) -> &'static [u8] {
        let len = (self.next() % 40) as usize;
        &self.arena[..len]
    }

    pub(super) fn list<T: Scalar>(&mut self) -> List<'static, T> {
        let count = (self.next() % 5) as usize;
        List::Encoded(&self.arena[..count * T::WIDTH])
    }
}

/// `counted`: a count stands beside a list, so a random message is refused unless the two happen to agree.
pub(super) fn check<T>(
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
    for cut in 0..bytes.len() {
        assert!(
            recode(&bytes[..cut]).is_err(),
            "{name} decodes with {cut} of {} bytes",
            bytes.len()
        );
    }
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 0x81;
        let _ = recode(&flipped);
    }
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

proptest! {
    #[test]
    fn every_message_survives_the_wire(seed in 1..u64::MAX) {
        super::round_trips(&mut Source { state: seed, arena: &ARENA });
    }

    #[test]
    fn no_input_makes_a_decoder_panic(id in proptest::sample::select(super::CALL_IDS), body in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = super::describe(id, &body);
    }
}
