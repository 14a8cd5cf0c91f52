//! Replies of the CUDA driver API, as a client takes them from its server.

use towline_wire::cuda::{CALL_IDS, call_name, recode_reply};

use super::reply::one_encoding;
use super::request::one_of_each;
use crate::Seed;

/// As for OpenCL's replies. Input: the call's id, then the body.
pub fn target(bytes: &[u8]) {
    one_encoding(bytes, recode_reply);
}

/// One for each call that is answered.
pub fn seeds() -> Vec<Seed> {
    one_of_each(CALL_IDS, recode_reply, call_name)
}
