//! Encrypted sessions: who may do without, who is in the middle, and what a ticket alone is worth.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::channel;

use super::*;

const SECRET: &str = "sixteen bytes or more";

fn closed() -> SupervisorConfig {
    SupervisorConfig {
        tenants: Arc::new(TenantTable::single(token(SECRET))),
        ..config("echo")
    }
}

fn hello() -> Hello {
    Hello::new(Purpose::Session, "test", 1, "here", [7; 32])
}

fn session(server: &Server) -> Client {
    Client::join(&server.address, Purpose::Session, token(SECRET)).expect("the server lets us in")
}

pub(super) fn session_is_encrypted_from_end_to_end() -> Result<(), Failed> {
    let server = serve(closed());
    let mut client = session(&server);
    let (command, payload) = (client.lane(0, 2), client.lane(1, 2));
    assert!(command.echoes() && payload.echoes());
    assert!(client.tls.is_some());
    wait_until("the account of lanes", Duration::from_secs(5), || {
        client.status().sessions[0].lanes == 2
    });
    // Each lane is there once.
    let again = Lane::open(&server.address, client.preamble(0, 2));
    assert!(again.is_refused());
    assert!(command.echoes());
    Ok(())
}

pub(super) fn clear_client_is_refused_unless_both_sides_agreed() -> Result<(), Failed> {
    let server = serve(closed());
    let join = |server: &Server, wire, token| {
        Client::join_over(wire, &server.address, hello(), token).map(drop)
    };
    assert_eq!(
        join(&server, Wire::Clear, token(SECRET)),
        Err(HandshakeError::EncryptionRequired)
    );
    let agreed = serve(SupervisorConfig {
        no_encryption: true,
        ..closed()
    });
    assert_eq!(join(&agreed, Wire::Clear, token(SECRET)), Ok(()));
    assert_eq!(join(&agreed, Wire::Tls, token(SECRET)), Ok(()));
    let client = Client::join_over(Wire::Clear, &agreed.address, hello(), token(SECRET))?;
    assert!(client.lane(0, 1).echoes());
    Ok(())
}

pub(super) fn loopback_without_a_token_stays_clear() -> Result<(), Failed> {
    let mut everywhere = SupervisorConfig {
        listen: vec!["tcp://0.0.0.0:0".parse()?],
        insecure: true,
        ..config("echo")
    };
    everywhere.jail.shared_user = true;
    let server = serve(everywhere);
    let port = server.address.host_port().expect("tcp").1;
    let address: Address = format!("127.0.0.1:{port}").parse()?;
    assert!(Client::session(&address).lane(0, 1).echoes());
    let encrypted = Client::join_over(Wire::Tls, &address, hello(), None)?;
    assert!(encrypted.lane(0, 1).echoes());
    Ok(())
}

/// Who has neither the token nor the server's key, but the client's way to the server.
pub(super) fn middle_with_tls_ends_of_its_own_is_refused() -> Result<(), Failed> {
    let server = serve(closed());
    let listener = Registry::global().listen(&"tcp://127.0.0.1:0".parse()?)?;
    let here = listener.local_address();
    let there = server.address.clone();
    let middle = std::thread::spawn(move || {
        let limit = Duration::from_secs(20);
        let identity = Identity::generate().unwrap().0;
        let authority = None;
        let own = ServerTls {
            identity,
            authority,
        };
        let client = own.accept(listener.accept().unwrap(), &[], limit).unwrap();
        let stream = Registry::global()
            .connect(&there, &ConnectOptions::default())
            .unwrap();
        let server = ClientTls::default().connect(stream, limit).unwrap();
        let to_server = Arc::clone(&server);
        let to_client = Arc::clone(&client);
        std::thread::scope(|scope| {
            scope.spawn(|| carry(&client, &to_server));
            carry(&server, &to_client);
        });
    });
    let joined = Client::join(&here, Purpose::Session, token(SECRET)).map(drop);
    assert_eq!(joined, Err(HandshakeError::TokenWrong));
    middle.join().map_err(|_| "the middle panicked")?;
    assert!(session(&server).lane(0, 1).echoes());
    Ok(())
}

fn carry(from: &TlsConnection, to: &TlsConnection) {
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = from.recv(&mut bytes) {
        if to.send(&[IoSlice::new(&bytes[..count])]).is_err() {
            break;
        }
    }
    to.shutdown();
    from.shutdown();
}

pub(super) fn unknown_tenant_gets_the_answer_of_a_wrong_token() -> Result<(), Failed> {
    let server = serve(closed());
    let join = |hello, token| Client::join_over(Wire::Tls, &server.address, hello, token).map(drop);
    let wrong = join(hello(), token("sixteen bytes or less"));
    assert_eq!(wrong, Err(HandshakeError::TokenWrong));
    assert_eq!(join(hello().of_tenant("nobody"), token(SECRET)), wrong);
    Ok(())
}

pub(super) fn stranger_with_the_ticket_takes_no_lane_away() -> Result<(), Failed> {
    let server = serve(closed());
    let client = session(&server);
    // In the clear; with garbage; with another key; with another number of lanes.
    let clear = Lane::open(&server.address, client.preamble(0, 2));
    assert!(!clear.echoes() && clear.is_refused());
    let other = LaneKey::from_bytes([9; 32]);
    let stranger = Lane::open(&server.address, client.preamble(0, 2));
    assert!(stranger.encrypt(&other, 0, 2).is_err());
    let key = client.lane_key().expect("it is encrypted");
    let elsewhere = Lane::open(&server.address, client.preamble(0, 1));
    assert!(elsewhere.encrypt(&key, 0, 2).is_err());
    let _three = Lane::open(&server.address, client.preamble(2, 3));
    assert!(client.lane(0, 2).echoes() && client.lane(1, 2).echoes());
    Ok(())
}

pub(super) fn silent_strangers_hold_no_lane_up() -> Result<(), Failed> {
    let server = serve(closed());
    let client = session(&server);
    let strangers: Vec<_> = (0..20)
        .map(|_| Lane::open(&server.address, client.preamble(0, 2)))
        .collect();
    // The door has room for four; who comes later than the client's own lane would take its place.
    let deadline = Instant::now() + STEP;
    let refused = || strangers.iter().filter(|lane| lane.has_ended()).count();
    while refused() < 16 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(refused(), 16);
    assert!(client.lane(0, 2).echoes() && client.lane(1, 2).echoes());
    Ok(())
}

pub(super) fn lane_of_another_session_is_refused() -> Result<(), Failed> {
    let server = serve(closed());
    let (one, other) = (session(&server), session(&server));
    let key = other.lane_key().expect("it is encrypted");
    let astray = Lane::open(&server.address, one.preamble(0, 1));
    assert!(astray.encrypt(&key, 0, 1).is_err());
    assert!(one.lane(0, 1).echoes() && other.lane(0, 1).echoes());
    Ok(())
}

/// Sessions in which a bit is changed, unless `TOWLINE_FLIPS` says how many.
const FLIPS: u64 = 300;
/// Sessions at once.
const FLIPPING: u64 = 8;
/// More than a step of a session takes.
const STEP: Duration = Duration::from_secs(10);

/// A bit that is to be changed: which connection of a session, which way, and where.
#[derive(Clone, Copy, Debug)]
struct Flip {
    connection: usize,
    to_client: bool,
    byte: u64,
    bit: u8,
}

impl Flip {
    /// Another for each number; many within handshakes.
    fn random(number: u64) -> Self {
        let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) % below
        };
        let reach = [64, 2_000, 110_000][next(3) as usize];
        Self {
            connection: next(3) as usize,
            to_client: next(2) == 1,
            byte: next(reach),
            bit: next(8) as u8,
        }
    }
}

/// Carries the connections of one session, and changes one bit. Ends with its listener's thread when the session is over.
fn flip_between(to: SocketAddr, flip: Flip) -> (Address, Arc<AtomicBool>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound").to_string();
    let changed = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&changed);
    std::thread::spawn(move || {
        for (number, client) in listener.incoming().take(3).flatten().enumerate() {
            let Ok(server) = TcpStream::connect(to) else {
                return;
            };
            for (from, into, to_client) in [(&client, &server, false), (&server, &client, true)] {
                let flips = number == flip.connection && to_client == flip.to_client;
                let flip = flips.then(|| (flip, Arc::clone(&seen)));
                let copy = |stream: &TcpStream| stream.try_clone().expect("a descriptor");
                let (from, into) = (copy(from), copy(into));
                std::thread::spawn(move || carry_flipping(from, into, flip));
            }
        }
    });
    (address.parse().expect("an address"), changed)
}

fn carry_flipping(mut from: TcpStream, mut into: TcpStream, flip: Option<(Flip, Arc<AtomicBool>)>) {
    let mut bytes = [0; 4096];
    let mut gone = 0;
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if let Some((flip, changed)) = &flip
            && let Some(byte) = flip.byte.checked_sub(gone)
            && byte < count as u64
        {
            bytes[byte as usize] ^= 1 << flip.bit;
            changed.store(true, Ordering::Release);
        }
        gone += count as u64;
        if into.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = into.shutdown(Shutdown::Write);
}

/// A whole session: what it echoes is right, or it fails.
fn echo_through(address: &Address) -> Result<(), String> {
    let said = |error: TransportError| error.to_string();
    let connect = || {
        let options = ConnectOptions::default();
        Registry::global().connect(address, &options).map_err(said)
    };
    let tls = ClientTls::default()
        .connect(connect()?, STEP)
        .map_err(said)?;
    let exported = tls.exporter(labels::CONTROL, b"");
    let key = LaneKey::from_bytes(tls.exporter(labels::LANE_KEY, b""));
    let (mut handshake, first) =
        ClientHandshake::start(hello(), token(SECRET), Channel::Encrypted(exported));
    tls.send(&[IoSlice::new(&first)]).map_err(said)?;
    let mut buffer = MessageBuffer::new(limits::SERVER_MESSAGE_BYTES);
    let welcome = loop {
        let Some(frame) = buffer.next_frame().map_err(|error| error.to_string())? else {
            if !tls.wait_readable(Some(STEP)).map_err(said)? {
                return Err("no answer".into());
            }
            let mut bytes = [0; 4096];
            let count = tls.recv(&mut bytes).map_err(said)?;
            if count == 0 {
                return Err("it closed".into());
            }
            buffer.push(&bytes[..count]);
            continue;
        };
        match handshake
            .receive(&frame)
            .map_err(|error| error.to_string())?
        {
            ClientProgress::Send(answer) => tls.send(&[IoSlice::new(&answer)]).map_err(said)?,
            ClientProgress::Done(welcome) => break welcome,
            _ => {}
        }
    };
    assert!(
        welcome
            .snapshot
            .iter()
            .enumerate()
            .all(|(n, byte)| *byte == n as u8)
    );
    let ticket = welcome.session.ok_or("no session")?.ticket;
    let lanes = [0, 1].map(|lane_index| {
        let preamble = AttachPreamble {
            ticket: ticket.clone(),
            lane_index,
            lane_count: 2,
            again: false,
        };
        let stream = connect()?;
        stream
            .send(&[IoSlice::new(&preamble.encode())])
            .map_err(said)?;
        let lane = Lane(stream).encrypt(&key, lane_index, 2).map_err(said)?;
        let bytes: Vec<u8> = (0..4096u32).flat_map(|n| (n * 31).to_le_bytes()).collect();
        let sending = Arc::clone(&lane.0);
        let sent = bytes.clone();
        let sender = std::thread::spawn(move || sending.send(&[IoSlice::new(&sent)]));
        let mut back = vec![0; bytes.len()];
        let received = recv_exact_within(&*lane.0, &mut back, STEP).map_err(said);
        lane.0.shutdown();
        let _ = sender.join();
        received?;
        assert!(back == bytes, "wrong bytes were taken for right");
        Ok(())
    });
    lanes.into_iter().collect()
}

/// H6: without encryption each of these could end in wrong bytes.
pub(super) fn flipped_bits_give_errors_and_never_wrong_bytes() -> Result<(), Failed> {
    let server = serve(SupervisorConfig {
        max_sessions: 4 * FLIPPING as u32,
        ..closed()
    });
    let (host, port) = server.address.host_port().expect("tcp");
    let to: SocketAddr = format!("{host}:{port}").parse()?;
    let flips = std::env::var("TOWLINE_FLIPS").map_or(Ok(FLIPS), |count| count.parse())?;
    let (results, outcomes) = channel();
    for worker in 0..FLIPPING {
        let results = results.clone();
        std::thread::spawn(move || {
            for number in (worker..flips).step_by(FLIPPING as usize) {
                let flip = Flip::random(number);
                let (address, changed) = flip_between(to, flip);
                let outcome = echo_through(&address);
                if results
                    .send((flip, changed.load(Ordering::Acquire), outcome))
                    .is_err()
                {
                    return;
                }
            }
        });
    }
    drop(results);
    let (mut done, mut failed) = (0, 0);
    for (flip, changed, outcome) in outcomes.iter() {
        // Some bits mean nothing: the version of the first record of a handshake, say.
        done += 1;
        if let Err(error) = &outcome {
            assert!(changed, "{flip:?} was not there: {error}");
            failed += 1;
        }
    }
    assert_eq!(done, flips, "a client panicked");
    assert!(
        failed > flips / 4,
        "only {failed} of {flips} sessions noticed a bit"
    );
    let crashed = Client::join(&server.address, Purpose::Query, token(SECRET))?
        .status()
        .sessions_crashed;
    assert_eq!(crashed, 0);
    Ok(())
}
