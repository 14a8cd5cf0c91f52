//! Requests, as a worker takes them from its client.

use towline_wire::opencl::{CALL_IDS, DecodeError, call_name, describe, recode_request};

use super::frame::{id_and_body, join};
use crate::Seed;
use crate::memory::{bounded, proportional};

/// A request has one encoding, and its description agrees with the decoder. Input: the id, then the body.
pub fn target(bytes: &[u8]) {
    let (id, body) = id_and_body(bytes);
    let recoded = bounded(proportional(body), || recode_request(id, body));
    let Some(recoded) = recoded else {
        assert_eq!(call_name(id), None);
        return;
    };
    match (&recoded, describe(id, body)) {
        (Ok(again), Ok(_)) => assert_eq!(again, body),
        (Err(error), Err(other)) => assert_eq!(*error, other),
        (recoded, described) => panic!("{recoded:?} but {described:?}"),
    }
}

/// One of each call.
pub fn seeds() -> Vec<Seed> {
    CALL_IDS
        .iter()
        .map(|id| {
            let body = smallest(|body| recode_request(*id, body));
            let name = call_name(*id).expect("every call has a name");
            Seed::new(name, join(*id, &body))
        })
        .collect()
}

/// The shortest body of zeros and necessary counts that `decode` takes.
pub(super) fn smallest(
    decode: impl Fn(&[u8]) -> Option<Result<Vec<u8>, DecodeError>>,
) -> Vec<u8> {
    (0..512)
        .find_map(|length| solve(&decode, vec![0; length], 3))
        .expect("every message has an encoding")
}

/// Where a count says more elements than an empty list has, puts that count before the list and the elements into it.
fn solve(
    decode: &impl Fn(&[u8]) -> Option<Result<Vec<u8>, DecodeError>>,
    body: Vec<u8>,
    depth: usize,
) -> Option<Vec<u8>> {
    match decode(&body)? {
        Ok(_) => Some(body),
        Err(DecodeError::LengthMismatch { said, found: 0, .. }) if depth > 0 && said > 0 => {
            (0..body.len().saturating_sub(3)).find_map(|at| {
                [8, 1].into_iter().find_map(|width| {
                    let mut longer = body.clone();
                    let elements = said as usize * width;
                    longer.splice(at + 4..at + 4, std::iter::repeat_n(0, elements));
                    longer[at..at + 4].copy_from_slice(&(said as u32).to_le_bytes());
                    solve(decode, longer, depth - 1)
                })
            })
        }
        Err(_) => None,
    }
}
