//! What a worker pushes to its client.

use towline_wire::codec::List;
use towline_wire::push::Push;

use super::frame::{id_and_body, join};
use crate::Seed;
use crate::memory::{bounded, proportional};

/// A push has one encoding, under one id. Input: the id, then the body.
pub fn target(bytes: &[u8]) {
    let (id, body) = id_and_body(bytes);
    if let Ok(push) = bounded(proportional(body), || Push::decode(id, body)) {
        let mut again = Vec::new();
        push.encode(&mut again);
        assert_eq!(again, body);
        assert_eq!(push.id(), id);
    }
}

/// One of each kind.
pub fn seeds() -> Vec<Seed> {
    let after = List::Values(&[3, 4]);
    let pushes = [
        Push::Reply {
            to: 1,
            status: 0,
            after,
            body: b"body",
        },
        Push::Event {
            event: 2,
            status: -14,
            after,
            times: Some([1, 2, 3, 4, 5]),
        },
        Push::Failed {
            number: 3,
            call: 0x0b12,
            queue: 4,
            status: -30,
        },
        Push::Grant {
            payload: 1,
            offset: 2,
            length: 3,
        },
        Push::Data {
            payload: 7,
            bytes: b"data",
        },
        Push::NoData {
            payload: 7,
            status: -4,
        },
        Push::Text { bytes: b"hello" },
        Push::ErrorText { bytes: b"failed" },
        Push::Notice {
            context: 1,
            text: b"oops",
        },
        Push::Close {
            code: 1,
            text: b"bad",
        },
        Push::Sent { payload: 7 },
        Push::Retired { bytes: 9 },
        Push::Ack,
    ];
    pushes
        .iter()
        .map(|push| {
            let mut body = Vec::new();
            push.encode(&mut body);
            Seed::new(format!("{:04x}", push.id()), join(push.id(), &body))
        })
        .collect()
}
