//! The frames of a command lane, cut anywhere.

use std::convert::Infallible;
use std::hash::{DefaultHasher, Hash, Hasher};

use towline_session::Outbox;
use towline_wire::error::CloseCode;
use towline_wire::frame::{FrameReader, MESSAGE_LIMIT};

use crate::Seed;
use crate::memory::{bounded, proportional};
use crate::mutate::Mutator;

/// What the reader holds before anything came, and as much again for the copy that growing makes.
const BUFFER: usize = 512 << 10;

/// Splits an input into a message id and a body.
pub(super) fn id_and_body(bytes: &[u8]) -> (u16, &[u8]) {
    match bytes.split_first_chunk() {
        Some((id, body)) => (u16::from_le_bytes(*id), body),
        None => (0, bytes),
    }
}

/// The input of which [`id_and_body`] gives the parts.
pub(super) fn join(id: u16, body: &[u8]) -> Vec<u8> {
    [id.to_le_bytes().as_slice(), body].concat()
}

/// The messages do not depend on how the bytes are cut, and a reader that failed stays failed. Input: how to cut, then the bytes.
pub fn target(bytes: &[u8]) {
    let Some((cut, stream)) = bytes.split_first() else {
        return;
    };
    let whole = read(stream, || stream.len());
    let mut random = Mutator::new((*cut).into());
    let longest = 1 + usize::from(*cut);
    let cuts = read(stream, || 1 + random.below(longest));
    assert_eq!(whole, cuts);
}

/// How a lane ended: messages read, a digest of them, the last acknowledgement, the failure.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    received: u64,
    acknowledged: u64,
    digest: u64,
    failure: Option<CloseCode>,
}

fn read(mut stream: &[u8], mut next_cut: impl FnMut() -> usize) -> Outcome {
    bounded(BUFFER + proportional(stream), || {
        let mut reader = FrameReader::new();
        let mut digest = DefaultHasher::new();
        let mut failure = None;
        while !stream.is_empty() && failure.is_none() {
            let space = reader.space();
            let count = next_cut().clamp(1, stream.len()).min(space.len());
            space[..count].copy_from_slice(&stream[..count]);
            reader.filled(count);
            stream = &stream[count..];
            failure = drain(&mut reader, &mut digest);
        }
        if failure.is_some() {
            assert!(reader.next().is_err(), "a reader that failed went on");
        }
        Outcome {
            received: reader.received(),
            acknowledged: reader.acknowledged(),
            digest: digest.finish(),
            failure,
        }
    })
}

fn drain(reader: &mut FrameReader, digest: &mut DefaultHasher) -> Option<CloseCode> {
    loop {
        match reader.next() {
            Ok(Some(message)) => {
                assert!(message.body.len() <= MESSAGE_LIMIT);
                (message.number, message.id, message.body).hash(digest);
            }
            Ok(None) => return None,
            Err(error) => return Some(error.code),
        }
    }
}

/// Frames of one message, of many, of none.
pub fn seeds() -> Vec<Seed> {
    let stream = |cut: u8, frames: &[&[&[u8]]]| {
        let outbox = Outbox::new();
        let mut bytes = vec![cut];
        for messages in frames {
            for (index, body) in messages.iter().enumerate() {
                outbox.post(0x0f01 + index as u16, |out| out.extend_from_slice(body));
            }
            let _ = outbox.flush(
                || 5,
                |frame| {
                    bytes.extend_from_slice(frame);
                    Ok::<(), Infallible>(())
                },
            );
        }
        bytes
    };
    vec![
        Seed::new("one", stream(0, &[&[b"body"]])),
        Seed::new("many", stream(7, &[&[b"a", b"", b"longer body"], &[b"x"], &[b"", b""]])),
        Seed::new("long", stream(255, &[&[&[9; 700], b"tail"]])),
    ]
}
