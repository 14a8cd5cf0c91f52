//! Requests, as a worker takes them from its client.

use towline_wire::opencl::{CALL_IDS, DecodeError, call_name, describe, recode_request};

use super::frame::{id_and_body, join};
use crate::Seed;
use crate::memory::{bounded, proportional};

/// Reads a message of a call and writes it again.
pub(super) type Recode = fn(u16, &[u8]) -> Option<Result<Vec<u8>, DecodeError>>;
/// Tells a message of a call in words.
type Describe = fn(u16, &[u8]) -> Result<String, DecodeError>;
/// Names a call.
pub(super) type Name = fn(u16) -> Option<&'static str>;

/// A request has one encoding, and its description agrees with the decoder. Input: the id, then the body.
pub fn target(bytes: &[u8]) {
    one_encoding(bytes, recode_request, describe, call_name);
}

/// One of each call.
pub fn seeds() -> Vec<Seed> {
    one_of_each(CALL_IDS, recode_request, call_name)
}

/// The target, for the requests of any API.
pub(super) fn one_encoding(bytes: &[u8], recode: Recode, describe: Describe, call_name: Name) {
    let (id, body) = id_and_body(bytes);
    let recoded = bounded(proportional(body), || recode(id, body));
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

/// One message of each call that has one.
pub(super) fn one_of_each(ids: &[u16], recode: Recode, call_name: Name) -> Vec<Seed> {
    ids.iter()
        .filter(|id| recode(**id, &[]).is_some())
        .map(|id| {
            let body = smallest(|body| recode(*id, body));
            let name = call_name(*id).expect("every call has a name");
            Seed::new(name, join(*id, &body))
        })
        .collect()
}

/// What may stand where an element is missing: bytes of the count, and of an element. A blob counts in 64 bits.
const COUNTED: [(usize, usize); 5] = [(4, 8), (4, 1), (8, 1), (4, 4), (4, 2)];

/// The shortest body of zeros and necessary counts that `decode` takes.
fn smallest(
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
                COUNTED.into_iter().find_map(|(count, width)| {
                    let first = at + count;
                    if first > body.len() {
                        return None;
                    }
                    let mut longer = body.clone();
                    let elements = said as usize * width;
                    longer.splice(first..first, std::iter::repeat_n(0, elements));
                    longer[at..first].copy_from_slice(&said.to_le_bytes()[..count]);
                    solve(decode, longer, depth - 1)
                })
            })
        }
        Err(_) => None,
    }
}
