use std::sync::Arc;

use proptest::prelude::*;

use super::*;

const CLIENT_NONCE: Nonce = [0xc1; NONCE_BYTES];
const SERVER_NONCE: Nonce = [0x5e; NONCE_BYTES];

const CHANNEL: Channel = Channel::Encrypted([0xe0; 32]);

fn server(token: Option<Token>, nonce: Nonce) -> ServerHandshake {
    server_over(CHANNEL, token, nonce)
}

fn server_over(channel: Channel, token: Option<Token>, nonce: Nonce) -> ServerHandshake {
    ServerHandshake::new(identity(), Arc::new(token), nonce, channel)
}

fn token(text: &str) -> Token {
    Token::from_bytes(text.as_bytes()).expect("long enough")
}

fn identity() -> ServerIdentity {
    ServerIdentity {
        name: "gpu-1".into(),
        software: "towline 0.1.0".into(),
        key_lasts: true,
        collectives: false,
    }
}

fn hello() -> Hello {
    Hello::new(Purpose::Session, "nbody", 4711, "laptop", CLIENT_NONCE)
}

fn grant() -> SessionGrant {
    SessionGrant {
        session_id: 7,
        ticket: Ticket::from_random([9; TICKET_BYTES]),
        limits: SessionLimits {
            max_lanes: 9,
            payload_lanes: 4,
            chunk_bytes: 1 << 20,
            chunk_count: 16,
        },
        grace_ms: 60_000,
        collectives: true,
        peers: vec!["tcp://gpu2:7140".into()],
    }
}

fn sent(progress: ServerProgress) -> Vec<u8> {
    match progress {
        ServerProgress::Send(frame) => frame,
        other => panic!("expected a frame to send, got {other:?}"),
    }
}

fn answered(progress: ClientProgress) -> Vec<u8> {
    match progress {
        ClientProgress::Send(frame) => frame,
        other => panic!("expected a frame to send, got {other:?}"),
    }
}

#[test]
fn without_a_token_the_handshake_takes_one_round_trip() {
    let (mut client, first) = ClientHandshake::start(hello(), None, CHANNEL);
    let mut server = server(None, SERVER_NONCE);
    assert_eq!(
        server.receive(&first),
        Ok(ServerProgress::Authenticated(hello()))
    );
    let welcome = server.welcome(Some(grant()), vec![1, 2, 3]);
    let Ok(ClientProgress::Done(welcome)) = client.receive(&welcome) else {
        panic!("not welcome")
    };
    assert_eq!(welcome.session, Some(grant()));
    assert_eq!(welcome.snapshot, [1, 2, 3]);
    assert_eq!(welcome.server, identity());
}

#[test]
fn with_the_same_token_both_sides_prove_themselves_in_two_round_trips() {
    let (mut client, first) =
        ClientHandshake::start(hello(), Some(token("0123456789abcdef")), CHANNEL);
    let mut server = server(Some(token("0123456789abcdef\n")), SERVER_NONCE);
    let challenge = sent(server.receive(&first).unwrap());
    let proof = answered(client.receive(&challenge).unwrap());
    assert_eq!(
        server.receive(&proof),
        Ok(ServerProgress::Authenticated(hello()))
    );
    let welcome = server.welcome(Some(grant()), Vec::new());
    assert!(matches!(
        client.receive(&welcome),
        Ok(ClientProgress::Done(_))
    ));
}

#[test]
fn a_client_with_another_token_is_refused_and_told_so() {
    let (mut client, first) =
        ClientHandshake::start(hello(), Some(token("another token, as long")), CHANNEL);
    let mut server = server(Some(token("0123456789abcdef")), SERVER_NONCE);
    let challenge = sent(server.receive(&first).unwrap());
    let proof = answered(client.receive(&challenge).unwrap());
    let error = server.receive(&proof).unwrap_err();
    assert_eq!(error, HandshakeError::TokenWrong);
    let reject = Message::Reject(error.to_reject()).encode();
    assert_eq!(client.receive(&reject), Err(HandshakeError::TokenWrong));
    assert_eq!(
        server.receive(&proof),
        Err(HandshakeError::TokenWrong),
        "a failed handshake stays failed"
    );
}

/// What a client does over one channel, a server over another.
fn shake(
    channels: [Channel; 2],
    tenants: Arc<dyn Tenants>,
    hello: Hello,
) -> [Result<(), HandshakeError>; 2] {
    let (mut client, first) =
        ClientHandshake::start(hello, Some(token("0123456789abcdef")), channels[0]);
    let mut server = ServerHandshake::new(identity(), tenants, SERVER_NONCE, channels[1]);
    let challenge = match server.receive(&first) {
        Ok(progress) => sent(progress),
        Err(error) => {
            let reject = Message::Reject(error.to_reject()).encode();
            return [client.receive(&reject).map(drop), Err(error)];
        }
    };
    let proof = answered(client.receive(&challenge).unwrap());
    match server.receive(&proof) {
        Ok(_) => {
            let welcome = server.welcome(Some(grant()), Vec::new());
            [client.receive(&welcome).map(drop), Ok(())]
        }
        Err(error) => {
            let reject = Message::Reject(error.to_reject()).encode();
            [client.receive(&reject).map(drop), Err(error)]
        }
    }
}

fn single() -> Arc<dyn Tenants> {
    Arc::new(Some(token("0123456789abcdef")))
}

#[test]
fn proofs_do_not_pass_from_one_channel_to_another() {
    let other = Channel::Encrypted([0xe1; 32]);
    for channels in [
        [CHANNEL, other],
        [CHANNEL, Channel::Clear],
        [Channel::Clear, CHANNEL],
    ] {
        let wrong = Err(HandshakeError::TokenWrong);
        assert_eq!(shake(channels, single(), hello()), [wrong.clone(), wrong]);
    }
    assert_eq!(
        shake([CHANNEL, CHANNEL], single(), hello()),
        [Ok(()), Ok(())]
    );
    let clear = [Channel::Clear, Channel::Clear];
    assert_eq!(shake(clear, single(), hello()), [Ok(()), Ok(())]);
}

#[test]
fn welcome_of_another_channel_is_not_authentic() {
    let secret = token("0123456789abcdef");
    let (mut client, first) = ClientHandshake::start(hello(), Some(secret.clone()), CHANNEL);
    let mut server = server(Some(secret), SERVER_NONCE);
    let challenge = sent(server.receive(&first).unwrap());
    let proof = answered(client.receive(&challenge).unwrap());
    server.receive(&proof).unwrap();
    let mut elsewhere = client;
    elsewhere.set_channel(Channel::Encrypted([0xe1; 32]));
    assert_eq!(
        elsewhere.receive(&server.welcome(None, Vec::new())),
        Err(HandshakeError::ServerNotAuthentic)
    );
}

#[test]
fn clear_connection_where_encryption_is_wanted_is_told_so() {
    let refused = Err(HandshakeError::EncryptionRequired);
    let channels = [Channel::Clear, Channel::Refused];
    assert_eq!(
        shake(channels, single(), hello()),
        [refused.clone(), refused.clone()]
    );
    // Without a token it is that which is missing.
    let (mut client, first) = ClientHandshake::start(hello(), None, Channel::Clear);
    let mut server = server_over(
        Channel::Refused,
        Some(token("0123456789abcdef")),
        SERVER_NONCE,
    );
    let error = server.receive(&first).unwrap_err();
    let reject = Message::Reject(error.to_reject()).encode();
    assert_eq!(client.receive(&reject), Err(HandshakeError::TokenRequired));
}

#[derive(Debug)]
struct TwoTenants;

impl Tenants for TwoTenants {
    fn are_asked(&self) -> bool {
        true
    }

    fn token(&self, name: &str) -> Option<Token> {
        match name {
            "anna" => Some(token("0123456789abcdef")),
            "bert" => Some(token("fedcba9876543210")),
            _ => None,
        }
    }
}

#[test]
fn tenant_is_known_by_its_own_token() {
    let tenants: Arc<dyn Tenants> = Arc::new(TwoTenants);
    let shake = |name| {
        shake(
            [CHANNEL, CHANNEL],
            Arc::clone(&tenants),
            hello().of_tenant(name),
        )
    };
    assert_eq!(shake("anna"), [Ok(()), Ok(())]);
    let wrong = Err(HandshakeError::TokenWrong);
    // A wrong token, and tenants that are not there.
    for name in ["bert", "carl", ""] {
        assert_eq!(shake(name), [wrong.clone(), wrong.clone()], "{name}");
    }
}

#[test]
fn unknown_tenant_costs_what_a_wrong_token_costs() {
    let tenants: Arc<dyn Tenants> = Arc::new(TwoTenants);
    let refused = |name: &str| {
        let hello = hello().of_tenant(name);
        let (mut client, first) =
            ClientHandshake::start(hello, Some(token("0123456789abcdef")), CHANNEL);
        let before = super::token::macs();
        let mut server =
            ServerHandshake::new(identity(), Arc::clone(&tenants), SERVER_NONCE, CHANNEL);
        let challenge = sent(server.receive(&first).unwrap());
        let at_challenge = super::token::macs();
        let proof = answered(client.receive(&challenge).unwrap());
        let by_client = super::token::macs();
        let error = server.receive(&proof).unwrap_err();
        let macs = [at_challenge - before, super::token::macs() - by_client];
        let reject = Message::Reject(error.to_reject()).encode();
        (challenge, reject, macs)
    };
    let wrong = refused("bert");
    assert_eq!(wrong.2, [0, 1]);
    for unknown in ["carl", "", "bertha", "ber"] {
        assert_eq!(refused(unknown), wrong, "{unknown}");
    }
}

#[test]
fn job_names_arrive_cut_to_their_limit() {
    let asked = |name: &str| {
        let (_, first) = ClientHandshake::start(hello().of_job(name), None, CHANNEL);
        let mut server = server(None, SERVER_NONCE);
        match server.receive(&first) {
            Ok(ServerProgress::Authenticated(hello)) => hello.job,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(asked("slurm-17-0"), "slurm-17-0");
    assert_eq!(asked(&"j".repeat(65)), "j".repeat(limits::JOB_BYTES));
}

#[test]
fn unproven_tenant_is_no_tenant() {
    let (_, first) = ClientHandshake::start(hello().of_tenant("anna"), None, CHANNEL);
    let mut server = server(None, SERVER_NONCE);
    assert_eq!(
        server.receive(&first),
        Ok(ServerProgress::Authenticated(hello()))
    );
}

#[test]
fn a_client_without_the_token_that_is_needed_says_what_to_do() {
    let (mut client, first) = ClientHandshake::start(hello(), None, CHANNEL);
    let mut server = server(Some(token("0123456789abcdef")), SERVER_NONCE);
    let challenge = sent(server.receive(&first).unwrap());
    let error = client.receive(&challenge).unwrap_err();
    assert_eq!(error, HandshakeError::TokenRequired);
    assert!(error.to_string().contains("--token-file"), "{error}");
}

#[test]
fn a_client_with_a_token_refuses_a_server_that_does_not_ask_for_it() {
    let (mut client, first) =
        ClientHandshake::start(hello(), Some(token("0123456789abcdef")), CHANNEL);
    let mut impostor = server(None, SERVER_NONCE);
    impostor.receive(&first).unwrap();
    let welcome = impostor.welcome(Some(grant()), Vec::new());
    assert_eq!(
        client.receive(&welcome),
        Err(HandshakeError::ServerWithoutToken)
    );
}

#[test]
fn a_welcome_changed_on_its_way_is_not_authentic() {
    let secret = token("0123456789abcdef");
    let (mut client, first) = ClientHandshake::start(hello(), Some(secret.clone()), CHANNEL);
    let mut server = server(Some(secret), SERVER_NONCE);
    let challenge = sent(server.receive(&first).unwrap());
    let proof = answered(client.receive(&challenge).unwrap());
    server.receive(&proof).unwrap();
    let mut welcome = server.welcome(Some(grant()), vec![1, 2, 3]);
    *welcome.last_mut().unwrap() ^= 1;
    assert_eq!(
        client.receive(&welcome),
        Err(HandshakeError::ServerNotAuthentic)
    );
}

#[test]
fn a_clients_proof_is_not_a_servers_proof() {
    let secret = token("0123456789abcdef");
    let (mut client, first) = ClientHandshake::start(hello(), Some(secret.clone()), CHANNEL);
    let mut server = server(Some(secret), SERVER_NONCE);
    let challenge = sent(server.receive(&first).unwrap());
    let Ok(Message::Proof(proof)) = Message::decode(&answered(client.receive(&challenge).unwrap()))
    else {
        panic!("no proof")
    };
    let welcome = Welcome {
        proof: proof.proof,
        version: 2,
        server: identity(),
        session: Some(grant()),
        snapshot: Vec::new(),
    };
    let reflected = Message::Welcome(Box::new(welcome)).encode();
    assert_eq!(
        client.receive(&reflected),
        Err(HandshakeError::ServerNotAuthentic)
    );
}

#[test]
fn a_proof_is_worthless_in_another_handshake() {
    let secret = token("0123456789abcdef");
    let (mut client, first) = ClientHandshake::start(hello(), Some(secret.clone()), CHANNEL);
    let mut server = server(Some(secret.clone()), SERVER_NONCE);
    let challenge = sent(server.receive(&first).unwrap());
    let recorded = answered(client.receive(&challenge).unwrap());
    let mut later = self::server(Some(secret), [0x77; NONCE_BYTES]);
    later.receive(&first).unwrap();
    assert_eq!(later.receive(&recorded), Err(HandshakeError::TokenWrong));
}

#[test]
fn a_client_from_the_future_is_told_both_version_ranges() {
    let versions = VersionRange { min: 40, max: 41 };
    let (mut client, mut first) = ClientHandshake::start(
        Hello {
            versions,
            ..hello()
        },
        None,
        CHANNEL,
    );
    // Its Hello also has a layout that we cannot know.
    first.truncate(frame::HEADER_BYTES + 6);
    first[8] = 6;
    let mut server = server(None, SERVER_NONCE);
    let expected = HandshakeError::VersionMismatch {
        client: versions,
        server: SUPPORTED_VERSIONS,
    };
    let error = server.receive(&first).unwrap_err();
    assert_eq!(error, expected);
    assert_eq!(
        client.receive(&Message::Reject(error.to_reject()).encode()),
        Err(expected)
    );
}

#[test]
#[should_panic(expected = "before the client is authenticated")]
fn nothing_is_granted_before_the_proof() {
    let (_, first) = ClientHandshake::start(hello(), None, CHANNEL);
    let mut server = server(Some(token("0123456789abcdef")), SERVER_NONCE);
    server.receive(&first).unwrap();
    server.welcome(Some(grant()), Vec::new());
}

#[test]
fn an_announced_length_above_the_limit_is_refused_from_the_header_alone() {
    let mut buffer = MessageBuffer::new(limits::CLIENT_MESSAGE_BYTES);
    buffer.push(b"TWLC\x01\0\0\0\xff\xff\xff\xff");
    let error = buffer.next_frame().unwrap_err();
    assert!(
        matches!(
            error,
            ControlError::TooLong {
                field: "message",
                ..
            }
        ),
        "{error}"
    );
    buffer.push(&Message::StatusRequest.encode());
    assert_eq!(
        buffer.next_frame(),
        Err(error),
        "a decoder that failed stays failed"
    );
}

#[test]
fn a_foreign_protocol_is_seen_at_its_first_byte() {
    let mut buffer = MessageBuffer::new(limits::CLIENT_MESSAGE_BYTES);
    buffer.push(b"G");
    assert_eq!(buffer.next_frame(), Err(ControlError::BadMagic));
}

#[test]
fn a_snapshot_length_beyond_the_message_allocates_nothing() {
    let mut frame = Message::Devices(Devices {
        snapshot: Vec::new(),
    })
    .encode();
    let len = frame.len();
    frame[len - 4..].copy_from_slice(&(limits::SNAPSHOT_BYTES as u32).to_le_bytes());
    assert_eq!(
        Message::decode(&frame),
        Err(ControlError::Truncated {
            field: "device snapshot"
        })
    );
}

#[test]
fn a_preamble_has_its_fixed_size_and_comes_back() {
    let preamble = AttachPreamble {
        ticket: Ticket::from_random([3; TICKET_BYTES]),
        lane_index: 2,
        lane_count: 5,
        again: false,
    };
    for again in [false, true] {
        let preamble = AttachPreamble {
            again,
            ..preamble.clone()
        };
        assert_eq!(AttachPreamble::decode(&preamble.encode()), Ok(preamble));
    }
    assert_eq!(AttachPreamble::BYTES, 42);
}

#[test]
fn a_lane_outside_its_session_is_refused() {
    let preamble = AttachPreamble {
        ticket: Ticket::from_random([3; TICKET_BYTES]),
        lane_index: 5,
        lane_count: 5,
        again: false,
    };
    let error = AttachPreamble::decode(&preamble.encode()).unwrap_err();
    assert_eq!(
        error,
        ControlError::InvalidValue {
            field: "lane index",
            value: 5
        }
    );
}

#[test]
fn more_lanes_than_the_limit_are_refused() {
    let lane_count = limits::LANES + 1;
    let preamble = AttachPreamble {
        ticket: Ticket::from_random([3; TICKET_BYTES]),
        lane_index: 0,
        lane_count,
        again: false,
    };
    let error = AttachPreamble::decode(&preamble.encode()).unwrap_err();
    assert_eq!(
        error,
        ControlError::InvalidValue {
            field: "lane count",
            value: lane_count.into()
        }
    );
}

#[test]
fn connections_are_told_apart_by_their_first_bytes() {
    let control = Message::StatusRequest.encode();
    let lane = AttachPreamble {
        ticket: Ticket::from_random([0; TICKET_BYTES]),
        lane_index: 0,
        lane_count: 1,
        again: false,
    }
    .encode();
    assert_eq!(
        ConnectionKind::of(control.first_chunk().unwrap()),
        Ok(ConnectionKind::Control)
    );
    assert_eq!(
        ConnectionKind::of(lane.first_chunk().unwrap()),
        Ok(ConnectionKind::Lane)
    );
    assert_eq!(ConnectionKind::of(b"GET "), Err(ControlError::BadMagic));
}

#[test]
fn secrets_do_not_show_in_debug_output() {
    let ticket = Ticket::from_random([0xab; TICKET_BYTES]);
    assert_eq!(
        format!("{ticket:?} {:?}", token("0123456789abcdef")),
        "Ticket(..) Token(..)"
    );
}

#[test]
fn short_tokens_are_refused() {
    assert_eq!(
        Token::from_bytes(b"  secret \n"),
        Err(TokenError::TooShort { len_bytes: 6 })
    );
}

#[test]
fn every_reject_code_has_its_own_number_and_comes_back() {
    let numbers: std::collections::BTreeSet<u16> =
        RejectCode::ALL.iter().map(|code| code.number()).collect();
    assert_eq!(numbers.len(), RejectCode::ALL.len());
    let back: Vec<RejectCode> = RejectCode::ALL
        .iter()
        .map(|code| RejectCode::from(code.number()))
        .collect();
    assert_eq!(back, RejectCode::ALL);
    assert_eq!(RejectCode::from(999), RejectCode::Unknown(999));
}

fn name() -> impl Strategy<Value = String> {
    "\\PC{0,40}"
}

/// At most 64 bytes.
fn tenant_name() -> impl Strategy<Value = String> {
    "\\PC{0,16}"
}

fn nonce() -> impl Strategy<Value = Nonce> {
    proptest::array::uniform32(any::<u8>())
}

fn session_status() -> impl Strategy<Value = SessionStatus> {
    (
        (
            any::<u64>(),
            purpose(),
            name(),
            name(),
            any::<u32>(),
            name(),
            any::<u32>(),
        ),
        any::<[u64; 11]>(),
        any::<[u16; 2]>(),
        tenant_name(),
        [(); LIMITS.len()].map(|()| limit_status()),
    )
        .prop_map(
            |(
                (session_id, purpose, program, hostname, client_pid, peer, worker_pid),
                numbers,
                lanes,
                tenant,
                limits,
            )| {
                let [
                    age_ms,
                    away_ms,
                    device_memory_bytes,
                    swapped_bytes,
                    device_memory_peak,
                    device_memory_limit,
                    received_bytes,
                    sent_bytes,
                    calls,
                    launches,
                    device_time_us,
                ] = numbers;
                let [lanes, peer_lanes] = lanes;
                SessionStatus {
                    session_id,
                    purpose,
                    program,
                    hostname,
                    client_pid,
                    peer,
                    worker_pid,
                    age_ms,
                    away_ms,
                    lanes,
                    peer_lanes,
                    device_memory_bytes,
                    swapped_bytes,
                    device_memory_peak,
                    device_memory_limit,
                    received_bytes,
                    sent_bytes,
                    calls,
                    launches,
                    device_time_us,
                    tenant,
                    limits,
                }
            },
        )
}

fn tenant_status() -> impl Strategy<Value = TenantStatus> {
    let numbers = (any::<[u32; 2]>(), any::<[u64; 8]>());
    let flags = (any::<bool>(), any::<bool>());
    let parts = (tenant_name(), flags, device_names(), numbers, time_share());
    parts.prop_map(|(name, (admin, is_lease), devices, numbers, time)| {
        let ([sessions, max], numbers) = numbers;
        let [
            held,
            limit,
            sessions_started,
            sessions_crashed,
            rejected,
            device_time_us,
            until_s,
            wait_us,
        ] = numbers;
        TenantStatus {
            name,
            admin,
            sessions,
            max_sessions: max,
            device_memory_bytes: held,
            device_memory_limit: limit,
            sessions_started,
            sessions_crashed,
            rejected,
            device_time_us,
            until_s,
            is_lease,
            devices,
            time,
            wait_us,
        }
    })
}

fn time_share() -> impl Strategy<Value = TimeShare> {
    let percent = proptest::option::of(1..=WHOLE_SHARE);
    let priority = proptest::sample::select(&Priority::ALL[..]);
    (percent, priority).prop_map(|(percent, priority)| TimeShare { percent, priority })
}

fn device_names() -> impl Strategy<Value = Vec<String>> {
    proptest::collection::vec("[ -~]{0,40}", 0..4)
}

fn lease_message() -> impl Strategy<Value = Message> {
    let part = prop_oneof![
        any::<u32>().prop_map(LeasedPart::Whole),
        any::<u64>().prop_map(LeasedPart::Memory),
    ];
    let asked = (
        tenant_name(),
        any::<Nonce>(),
        (part, device_names()),
        any::<u64>(),
        (any::<u32>(), time_share()),
    );
    let given = (device_names(), any::<u64>());
    let given = given.prop_map(|(devices, until_s)| Lease { devices, until_s });
    prop_oneof![
        asked.prop_map(|(name, nonce, (part, on), seconds, (sessions, time))| {
            Message::GiveLease(GiveLease {
                name,
                nonce,
                part,
                on,
                seconds,
                sessions,
                time,
            })
        }),
        prop_oneof![given.prop_map(Ok), name().prop_map(Err)]
            .prop_map(|outcome| Message::LeaseGiven(LeaseGiven { outcome })),
        (tenant_name(), any::<u64>())
            .prop_map(|(name, seconds)| Message::RenewLease(RenewLease { name, seconds })),
        tenant_name().prop_map(|name| Message::EndLease(EndLease { name })),
        outcome().prop_map(|outcome| Message::LeaseChanged(LeaseChanged { outcome })),
    ]
}

fn limit_status() -> impl Strategy<Value = LimitStatus> {
    let enforcement = prop_oneof![
        Just(Enforcement::None),
        Just(Enforcement::Worker),
        Just(Enforcement::Rlimit),
        Just(Enforcement::Cgroup),
        Just(Enforcement::Mount),
        Just(Enforcement::Server),
    ];
    (any::<u64>(), any::<Option<u64>>(), enforcement).prop_map(|(value, used, enforcement)| {
        LimitStatus {
            value,
            used,
            enforcement,
        }
    })
}

fn server_limit() -> impl Strategy<Value = ServerLimit> {
    (name(), any::<u64>(), any::<Option<u64>>()).prop_map(|(name, value, used)| ServerLimit {
        name,
        value,
        used,
    })
}

fn session_grant() -> impl Strategy<Value = SessionGrant> {
    let numbers = (
        any::<u64>(),
        any::<u16>(),
        any::<u16>(),
        any::<u64>(),
        any::<u32>(),
        any::<u64>(),
        any::<bool>(),
    );
    (numbers, nonce(), prop::collection::vec(name(), 0..3)).prop_map(
        |(
            (session_id, max_lanes, payload_lanes, chunk_bytes, chunk_count, grace_ms, collectives),
            ticket,
            peers,
        )| {
            SessionGrant {
                session_id,
                ticket: Ticket::from_random(ticket),
                limits: SessionLimits {
                    max_lanes,
                    payload_lanes,
                    chunk_bytes,
                    chunk_count,
                },
                grace_ms,
                collectives,
                peers,
            }
        },
    )
}

fn purpose() -> impl Strategy<Value = Purpose> {
    prop_oneof![
        Just(Purpose::Query),
        Just(Purpose::Session),
        Just(Purpose::CudaSession),
        Just(Purpose::Resume),
        Just(Purpose::Nvml),
    ]
}

fn device_message() -> impl Strategy<Value = Message> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..100);
    let question = (any::<u16>(), bytes()).prop_map(|(call, body)| Question { call, body });
    let answer = (any::<i32>(), bytes()).prop_map(|(status, body)| Answer { status, body });
    prop_oneof![
        prop::collection::vec(question, 0..8)
            .prop_map(|questions| Message::NvmlQuestions(NvmlQuestions { questions })),
        prop::collection::vec(answer, 0..8)
            .prop_map(|answers| Message::NvmlAnswers(NvmlAnswers { answers })),
        Just(Message::CudaDevicesRequest),
        Just(Message::Ping),
        Just(Message::Alive),
        prop_oneof![bytes().prop_map(Ok), name().prop_map(Err)]
            .prop_map(|snapshot| Message::CudaDevices(CudaDevices { snapshot })),
    ]
}

fn peer_message() -> impl Strategy<Value = Message> {
    let ticket = || nonce().prop_map(Ticket::from_random);
    prop_oneof![
        (any::<u64>(), name())
            .prop_map(|(lane, address)| Message::PeerOffer(PeerOffer { lane, address })),
        (
            any::<u64>(),
            prop_oneof![ticket().prop_map(Ok), name().prop_map(Err)]
        )
            .prop_map(|(lane, ticket)| Message::PeerTicket(PeerTicket { lane, ticket })),
        (any::<u64>(), name(), ticket()).prop_map(|(lane, address, ticket)| {
            Message::PeerConnect(PeerConnect {
                lane,
                address,
                ticket,
            })
        }),
        (
            any::<u64>(),
            prop_oneof![Just(Ok(())), name().prop_map(Err)]
        )
            .prop_map(|(lane, outcome)| Message::PeerConnected(PeerConnected { lane, outcome })),
    ]
}

fn message() -> impl Strategy<Value = Message> {
    let versions = || (any::<u16>(), any::<u16>()).prop_map(|(min, max)| VersionRange { min, max });
    let snapshot = || prop::collection::vec(any::<u8>(), 0..2000);
    let hello = (
        versions(),
        purpose(),
        name(),
        any::<u32>(),
        name(),
        ("[a-z0-9.-]{0,64}", "[a-z0-9.-]{0,64}"),
        nonce(),
    )
        .prop_map(
            |(versions, purpose, program, pid, hostname, (tenant, job), nonce)| {
                Message::Hello(Hello {
                    versions,
                    purpose,
                    program,
                    pid,
                    hostname,
                    tenant,
                    job,
                    nonce,
                })
            },
        );
    let challenge = (any::<u16>(), nonce())
        .prop_map(|(version, nonce)| Message::Challenge(Challenge { version, nonce }));
    let proof = nonce().prop_map(|proof| Message::Proof(Proof { proof }));
    let welcome = (
        nonce(),
        any::<u16>(),
        (name(), name(), any::<bool>(), any::<bool>()),
        prop::option::of(session_grant()),
        snapshot(),
    )
        .prop_map(
            |(proof, version, (name, software, key_lasts, collectives), session, snapshot)| {
                let server = ServerIdentity {
                    name,
                    software,
                    key_lasts,
                    collectives,
                };
                Message::Welcome(Box::new(Welcome {
                    proof,
                    version,
                    server,
                    session,
                    snapshot,
                }))
            },
        );
    let reject = (any::<u16>(), name(), versions()).prop_map(|(code, text, versions)| {
        Message::Reject(Reject {
            code: code.into(),
            text,
            versions,
        })
    });
    let numbers = (any::<[u64; 4]>(), any::<u32>(), any::<bool>());
    let lists = (
        prop::collection::vec(session_status(), 0..5),
        prop::collection::vec(tenant_status(), 0..5),
        prop::collection::vec(server_limit(), 0..5),
    );
    let status =
        (numbers, lists).prop_map(|((counts, max, draining), (sessions, tenants, limits))| {
            let [uptime_ms, sessions_started, sessions_crashed, rejected] = counts;
            let max_sessions = max;
            Message::Status(Status {
                uptime_ms,
                max_sessions,
                draining,
                sessions_started,
                sessions_crashed,
                rejected,
                sessions,
                tenants,
                limits,
            })
        });
    prop_oneof![
        hello,
        challenge,
        proof,
        welcome,
        reject,
        Just(Message::StatusRequest),
        status,
        Just(Message::DevicesRequest),
        snapshot().prop_map(|snapshot| Message::Devices(Devices { snapshot })),
        name().prop_map(|reason| Message::SessionEnded(SessionEnded { reason })),
        any::<u64>().prop_map(|session_id| Message::KillSession(KillSession { session_id })),
        prop_oneof![Just(Ok(())), name().prop_map(Err)]
            .prop_map(|outcome| Message::SessionKilled(SessionKilled { outcome })),
        (any::<u64>(), any::<[u8; TICKET_BYTES]>()).prop_map(|(session_id, ticket)| {
            let ticket = Ticket::from_random(ticket);
            Message::ResumeSession(ResumeSession { session_id, ticket })
        }),
        prop_oneof![Just(Ok(())), name().prop_map(Err)]
            .prop_map(|outcome| Message::SessionResumed(SessionResumed { outcome })),
        migration_message(),
        device_message(),
        peer_message(),
    ]
}

fn outcome() -> impl Strategy<Value = Result<(), String>> {
    prop_oneof![Just(Ok(())), name().prop_map(Err)]
}

fn migration_message() -> impl Strategy<Value = Message> {
    prop_oneof![
        (any::<u64>(), name()).prop_map(|(session_id, to)| {
            Message::MigrateSession(MigrateSession { session_id, to })
        }),
        (any::<u64>(), outcome()).prop_map(|(session_id, outcome)| {
            Message::SessionMigrated(SessionMigrated {
                session_id,
                outcome,
            })
        }),
        (any::<u64>(), name()).prop_map(|(session_id, folder)| {
            Message::CheckpointSession(CheckpointSession { session_id, folder })
        }),
        (any::<u64>(), outcome()).prop_map(|(session_id, outcome)| {
            Message::SessionCheckpointed(SessionCheckpointed {
                session_id,
                outcome,
            })
        }),
        Just(Message::DrainServer),
        outcome().prop_map(|outcome| Message::ServerDrains(ServerDrains { outcome })),
        lease_message(),
    ]
}

proptest! {
    #[test]
    fn every_message_comes_back(message in message()) {
        prop_assert_eq!(Message::decode(&message.encode()), Ok(message));
    }

    #[test]
    fn a_message_cut_anywhere_is_an_error(message in message(), cut in any::<prop::sample::Index>()) {
        let frame = message.encode();
        prop_assert!(Message::decode(&frame[..cut.index(frame.len())]).is_err());
    }

    #[test]
    fn frames_survive_any_fragmentation(messages in prop::collection::vec(message(), 1..4), piece in 1usize..200) {
        let stream: Vec<u8> = messages.iter().flat_map(Message::encode).collect();
        let mut buffer = MessageBuffer::new(limits::SERVER_MESSAGE_BYTES);
        let mut received = Vec::new();
        for bytes in stream.chunks(piece) {
            buffer.push(bytes);
            while let Some(frame) = buffer.next_frame().unwrap() {
                received.push(Message::decode(&frame).unwrap());
            }
        }
        prop_assert_eq!(received, messages);
    }

    #[test]
    fn decoders_survive_a_changed_byte(message in message(), at in any::<prop::sample::Index>(), with in any::<u8>()) {
        let mut frame = message.encode();
        let at = at.index(frame.len());
        frame[at] = with;
        fuzz(&frame);
    }

    #[test]
    fn decoders_survive_garbage(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        fuzz(&bytes);
    }
}

#[test]
fn token_of_a_lease_depends_on_all_it_is_of() {
    let admin = Token::from_bytes(b"the token of an admin").unwrap();
    let token = admin.of_lease("job-1", &[7; 32]);
    assert_eq!(token, admin.of_lease("job-1", &[7; 32]));
    assert_eq!(
        Token::from_bytes(token.to_text().as_bytes()).as_ref(),
        Ok(&token)
    );
    assert_eq!(token.to_text().len(), 64);
    let other = Token::from_bytes(b"the token of another admin").unwrap();
    for differing in [
        admin.of_lease("job-2", &[7; 32]),
        admin.of_lease("job-1", &[8; 32]),
        other.of_lease("job-1", &[7; 32]),
    ] {
        assert_ne!(differing, token);
    }
}
