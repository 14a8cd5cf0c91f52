//! The handshake with someone in between who changes one message.

use towline_wire::control::{
    Channel, ClientHandshake, ClientProgress, HandshakeError, Hello, NONCE_BYTES, Purpose, ServerHandshake,
    ServerIdentity, ServerProgress, SessionGrant, SessionLimits, Ticket, Token,
};

use crate::Seed;

/// Which sides have a token: nobody, both the same, both different, only the server, only the client.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tokens {
    Nobody,
    Same,
    Different,
    OnlyServer,
    OnlyClient,
}

/// How far it came.
#[derive(Debug, Default, PartialEq, Eq)]
struct Reached {
    authenticated: bool,
    done: bool,
}

/// The one in between: changes the message of one number.
struct Between<'a> {
    which: u8,
    how: u8,
    bytes: &'a [u8],
    changed: bool,
}

impl Between<'_> {
    fn pass(&mut self, number: u8, frame: Vec<u8>) -> Vec<u8> {
        if number != self.which {
            return frame;
        }
        let mut other = frame.clone();
        match self.how % 4 {
            0 => other = self.bytes.to_vec(),
            1 => other.extend_from_slice(self.bytes),
            2 => other.truncate(self.bytes.first().map_or(0, |at| usize::from(*at) % frame.len())),
            _ => {
                for pair in self.bytes.as_chunks::<2>().0.iter() {
                    let at = usize::from(pair[0]) % other.len();
                    other[at] ^= pair[1];
                }
            }
        }
        self.changed |= other != frame;
        other
    }
}

/// With a token on both sides nothing that was changed is believed; without change it succeeds exactly when the tokens agree.
/// Input: who has tokens, which message to change, how, with what.
pub fn target(bytes: &[u8]) {
    let Some((&[who, which, how], rest)) = bytes.split_first_chunk() else {
        return;
    };
    let tokens = [
        Tokens::Nobody,
        Tokens::Same,
        Tokens::Different,
        Tokens::OnlyServer,
        Tokens::OnlyClient,
    ][usize::from(who) % 5];
    let mut between = Between {
        which: which % 5,
        how,
        bytes: rest,
        changed: false,
    };
    let reached = shake(tokens, &mut between).unwrap_or_else(|(reached, _)| reached);
    let agree = matches!(tokens, Tokens::Nobody | Tokens::Same);
    if !between.changed {
        assert_eq!(reached.done, agree, "{reached:?}");
    } else if tokens != Tokens::Nobody {
        assert!(!reached.done, "the client believed a message that was changed");
        // The last message is the server's: it has decided by then.
        assert!(tokens != Tokens::Same || !reached.authenticated || between.which == 3);
    }
    if matches!(tokens, Tokens::Different | Tokens::OnlyServer) {
        assert!(!reached.authenticated, "the server believed a wrong token");
    }
}

const CHANNEL: Channel = Channel::Encrypted([3; 32]);

fn shake(tokens: Tokens, between: &mut Between<'_>) -> Result<Reached, (Reached, HandshakeError)> {
    let token = |text: &[u8]| Token::from_bytes(text).expect("it is long enough");
    let (ours, theirs) = (token(b"the token of the fuzzer"), token(b"another token of it"));
    let client_token = match tokens {
        Tokens::Same | Tokens::OnlyClient => Some(ours.clone()),
        Tokens::Different => Some(theirs),
        Tokens::Nobody | Tokens::OnlyServer => None,
    };
    let server_token = match tokens {
        Tokens::Nobody | Tokens::OnlyClient => None,
        _ => Some(ours),
    };
    let identity = ServerIdentity {
        name: "server".into(),
        software: "towline 1".into(),
        key_lasts: false,
        collectives: false,
    };
    let mut reached = Reached::default();
    let mut server = ServerHandshake::new(
        identity,
        std::sync::Arc::new(server_token),
        [1; NONCE_BYTES],
        CHANNEL,
    );
    let hello = Hello::new(Purpose::Session, "program", 1, "host", [2; NONCE_BYTES]);
    let (mut client, mut frame) = ClientHandshake::start(hello, client_token, CHANNEL);
    let mut number = 0;
    loop {
        let received = between.pass(number, frame);
        let welcome = match server.receive(&received) {
            Ok(ServerProgress::Send(challenge)) => challenge,
            Ok(ServerProgress::Authenticated(_)) => {
                reached.authenticated = true;
                number = 2;
                server.welcome(Some(grant()), b"snapshot".to_vec())
            }
            Err(error) => {
                assert_eq!(server.receive(&received), Err(error.clone()));
                assert!(!error.to_reject().text.is_empty());
                return Err((reached, error));
            }
        };
        number += 1;
        let received = between.pass(number, welcome);
        frame = match client.receive(&received) {
            Ok(ClientProgress::Send(proof)) => proof,
            Ok(ClientProgress::Wait) => return Ok(reached),
            Ok(ClientProgress::Done(_)) => {
                reached.done = true;
                return Ok(reached);
            }
            Err(error) => {
                assert_eq!(client.receive(&received), Err(error.clone()));
                return Err((reached, error));
            }
        };
        number += 1;
    }
}

fn grant() -> SessionGrant {
    SessionGrant {
        session_id: 1,
        ticket: Ticket::from_random([4; 32]),
        limits: SessionLimits {
            max_lanes: 8,
            payload_lanes: 2,
            chunk_bytes: 1 << 20,
            chunk_count: 16,
        },
        grace_ms: 60_000,
        collectives: true,
        peers: vec!["tcp://gpu2:7140".into()],
    }
}

/// Every pair of tokens untouched, and each message changed in each way.
pub fn seeds() -> Vec<Seed> {
    let untouched = (0..5).map(|who| Seed::new(format!("untouched-{who}"), [who, 4, 0]));
    let changed = (0..4).flat_map(|which| {
        (0..4).map(move |how| {
            Seed::new(format!("changed-{which}-{how}"), [1, which, how, 20, 1])
        })
    });
    untouched.chain(changed).collect()
}
