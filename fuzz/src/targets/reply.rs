//! Replies, as a client takes them from its server.

use towline_wire::opencl::{CALL_IDS, call_name, recode_reply};

use super::frame::{id_and_body, join};
use super::request::smallest;
use crate::Seed;
use crate::memory::{bounded, proportional};

/// A reply has one encoding. Input: the call's id, then the body.
pub fn target(bytes: &[u8]) {
    let (id, body) = id_and_body(bytes);
    if let Some(Ok(again)) = bounded(proportional(body), || recode_reply(id, body)) {
        assert_eq!(again, body);
    }
}

/// One for each call that is answered.
pub fn seeds() -> Vec<Seed> {
    CALL_IDS
        .iter()
        .filter(|id| recode_reply(**id, &[]).is_some())
        .map(|id| {
            let body = smallest(|body| recode_reply(*id, body));
            let name = call_name(*id).expect("every call has a name");
            Seed::new(name, join(*id, &body))
        })
        .collect()
}
