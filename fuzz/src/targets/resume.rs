//! The records of a connection that outlives its links, against a model of them.

use std::io::IoSlice;
use std::sync::Arc;

use towline_transport::memory::MemoryTransport;
use towline_transport::resume::Resumable;
use towline_transport::{ConnectOptions, Connection, Transport};

use crate::Seed;

/// Longest data of a record.
const LIMIT: usize = 4 << 20;

/// The data is that of the whole records and of the last one as far as it goes, up to the end of the stream or the first record that breaks
/// the rules; a stream that begins with no record is cut. Nothing has been sent, so nothing may be acknowledged. Input: how much is read at
/// once, then the stream.
pub fn target(bytes: &[u8]) {
    let Some((step, stream)) = bytes.split_first() else {
        return;
    };
    let [near, far] = pair();
    let connection = Resumable::new(near, |_, _| ());
    // The link takes more than any input has.
    far.send(&[IoSlice::new(stream)]).expect("the other end is there");
    let mut received = Vec::new();
    let mut buffer = vec![0; usize::from(*step) * usize::from(*step) + 1];
    let outcome = loop {
        match connection.try_recv(&mut buffer) {
            Ok(Some(0)) => break Some(true),
            Ok(Some(count)) => received.extend_from_slice(&buffer[..count]),
            Ok(None) => break None,
            Err(_) => break Some(false),
        }
    };
    let (data, expected) = model(stream);
    assert_eq!(outcome, expected);
    match expected {
        // The call that finds it may have had more.
        Some(false) => assert!(data.starts_with(&received)),
        _ => assert!(received == data, "{} bytes instead of {}", received.len(), data.len()),
    }
}

/// The data of a stream, and whether it ends in order; `None` where more may come.
fn model(mut stream: &[u8]) -> (Vec<u8>, Option<bool>) {
    let mut data = Vec::new();
    let whole = stream.len();
    while let Some((header, rest)) = stream.split_first_chunk::<16>() {
        let word = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let (length, flags) = (word(0) as usize, word(4));
        if length > LIMIT && stream.len() == whole {
            return (data, None);
        }
        if length > LIMIT || flags > 1 || header[8..] != [0; 8] {
            return (data, Some(false));
        }
        let (now, later) = rest.split_at(length.min(rest.len()));
        data.extend_from_slice(now);
        if flags == 1 && now.len() == length {
            return (data, Some(true));
        }
        if now.len() < length {
            return (data, None);
        }
        stream = later;
    }
    (data, None)
}

fn pair() -> [Arc<dyn Connection>; 2] {
    let network = MemoryTransport::new();
    let address = "memory://fuzz".parse().expect("it is well formed");
    let listener = network.listen(&address).expect("the name is free");
    let client = network.connect(&address, &ConnectOptions::default());
    [client.expect("it listens"), listener.accept().expect("a connection")]
}

/// Streams as the encoder writes them.
pub fn seeds() -> Vec<Seed> {
    let written = |parts: &[usize], ends: bool| {
        let [near, far] = pair();
        let connection = Resumable::new(near, |_, _| ());
        for part in parts {
            let data = vec![*part as u8; *part];
            connection.send(&[IoSlice::new(&data)]).expect("the other end is there");
        }
        if ends {
            connection.shutdown();
        }
        let mut stream = vec![0; 4096];
        let count = far.recv(&mut stream).expect("it was sent");
        stream.truncate(count);
        [vec![7], stream].concat()
    };
    vec![
        Seed::new("parts", written(&[1, 20, 300], false)),
        Seed::new("ended", written(&[5], true)),
        Seed::new("empty", written(&[], true)),
    ]
}
