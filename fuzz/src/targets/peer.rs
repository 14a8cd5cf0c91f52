//! Frames of peer lanes, and the handshake before them with someone in between.

use towline_wire::control::{
    NONCE_BYTES, PEER_CHALLENGE_BYTES, PEER_HELLO_BYTES, PROOF_BYTES, PeerAcceptor, PeerConnector,
    Ticket, TicketName, Token,
};
use towline_wire::peer::{PEER_FRAME, PeerFrame};

use crate::Seed;
use crate::memory::bounded;

/// A frame is refused or has one encoding; nothing that was changed in a handshake is believed.
pub fn target(bytes: &[u8]) {
    for window in bytes.windows(PEER_FRAME) {
        let frame: &[u8; PEER_FRAME] = window.try_into().expect("windows have that length");
        if let Ok(decoded) = bounded(0, || PeerFrame::from_bytes(frame)) {
            assert_eq!(&decoded.to_bytes(), frame);
        }
    }
    let token = Token::from_bytes(b"the token of the fuzzer").expect("it is long enough");
    let ticket = Ticket::from_random([3; 32]);
    let (connector, hello) = PeerConnector::start(&ticket, Some(&token), [1; NONCE_BYTES], true);
    let mut seen = hello;
    change(&mut seen, bytes, 0);
    let named = TicketName::in_hello(&seen);
    assert_eq!(named == Ok((TicketName::of(&ticket), true)), seen[..40] == hello[..40]);
    let (acceptor, challenge) =
        PeerAcceptor::challenge(&seen, &ticket, Some(&token), [2; NONCE_BYTES]);
    let mut answered = challenge;
    change(&mut answered, bytes, PEER_HELLO_BYTES);
    let Ok((proof, key)) = connector.answer(&answered) else {
        assert!(seen != hello || answered != challenge, "an honest server was not believed");
        return;
    };
    assert!(seen == hello && answered == challenge, "a changed message was believed");
    let mut shown = proof;
    change(&mut shown, bytes, PEER_HELLO_BYTES + PEER_CHALLENGE_BYTES);
    assert_eq!(acceptor.check(&shown) == Ok(key), shown == proof);
}

/// Changes a message by what the input has at its place.
fn change(message: &mut [u8], bytes: &[u8], at: usize) {
    for (byte, with) in message.iter_mut().zip(bytes.iter().skip(at)) {
        *byte ^= with;
    }
}

/// Every kind of frame, and a handshake that nobody changes or somebody does, part by part.
pub fn seeds() -> Vec<Seed> {
    let frames = [
        PeerFrame::Chunk { payload: 7, offset: 1 << 20, length: 1 << 20 },
        PeerFrame::Grant { payload: 7, offset: 0, length: 1 << 30, size: 1 << 30 },
        PeerFrame::NoData { payload: 7, status: -5 },
        PeerFrame::Refuse { payload: 7, status: -5 },
        PeerFrame::Over { payload: u64::MAX },
    ];
    let names = ["chunk", "grant", "no-data", "refuse", "over"];
    let frames = names
        .into_iter()
        .zip(frames)
        .map(|(name, frame)| Seed::new(name, frame.to_bytes()));
    let whole = PEER_HELLO_BYTES + PEER_CHALLENGE_BYTES + PROOF_BYTES;
    let places = [
        ("untouched", whole),
        ("hello", PEER_HELLO_BYTES - 1),
        ("challenge", PEER_HELLO_BYTES + 20),
        ("proof", whole - 1),
    ];
    let shaken = places.map(|(name, at)| {
        let mut bytes = vec![0; whole + 1];
        bytes[at] = 1;
        Seed::new(name, bytes)
    });
    frames.chain(shaken).collect()
}
