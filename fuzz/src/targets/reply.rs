//! Replies, as a client takes them from its server.

use towline_wire::opencl::{CALL_IDS, call_name, recode_reply};

use super::frame::id_and_body;
use super::request::{Recode, one_of_each};
use crate::Seed;
use crate::memory::{bounded, proportional};

/// A reply has one encoding. Input: the call's id, then the body.
pub fn target(bytes: &[u8]) {
    one_encoding(bytes, recode_reply);
}

/// One for each call that is answered.
pub fn seeds() -> Vec<Seed> {
    one_of_each(CALL_IDS, recode_reply, call_name)
}

/// The target, for the replies of any API.
pub(super) fn one_encoding(bytes: &[u8], recode: Recode) {
    let (id, body) = id_and_body(bytes);
    if let Some(Ok(again)) = bounded(proportional(body), || recode(id, body)) {
        assert_eq!(again, body);
    }
}
