//! Requests of the CUDA driver API, as a worker takes them from its client.

use towline_wire::cuda::{CALL_IDS, call_name, describe, recode_request};

use super::request::{one_encoding, one_of_each};
use crate::Seed;

/// As for OpenCL's requests. Input: the id, then the body.
pub fn target(bytes: &[u8]) {
    one_encoding(bytes, recode_request, describe, call_name);
}

/// One of each call.
pub fn seeds() -> Vec<Seed> {
    one_of_each(CALL_IDS, recode_request, call_name)
}
