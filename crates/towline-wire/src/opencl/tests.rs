//! Every generated message of the API.

use proptest::prelude::*;

use crate::sample::Source;

proptest! {
    #[test]
    fn every_message_survives_the_wire(seed in 1..u64::MAX) {
        super::round_trips(&mut Source::new(seed));
    }

    #[test]
    fn no_input_makes_a_decoder_panic(id in proptest::sample::select(super::CALL_IDS), body in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = super::describe(id, &body);
        let _ = super::recode_request(id, &body);
        let _ = super::recode_reply(id, &body);
    }
}
