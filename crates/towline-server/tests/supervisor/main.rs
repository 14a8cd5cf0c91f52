//! The supervisor against honest and hostile clients, with real worker processes.
//!
//! This program is its own worker: started with the argument `worker` it serves a trivial engine that echoes, and does
//! what its orders say ("crash", "exit", ...). Hence a `main` of its own.

mod monitor;
mod peers;

use std::io::IoSlice;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Failed, Trial};
use towline_server::supervisor::{JailConfig, Supervisor, SupervisorConfig, SupervisorError};
use towline_server::worker::cuda::{self, CudaOptions};
use towline_server::worker::nvml::{self, NvmlOptions};
use towline_server::worker::process::{self, Engine, EngineError, LaneKind, Session};
use towline_sys::process::WorkerProgram;
use towline_transport::{
    Address, ConnectOptions, Connection, Registry, TransportError, recv_exact,
};
use towline_wire::control::{
    AttachPreamble, ClientHandshake, ClientProgress, HandshakeError, Hello, Message, MessageBuffer,
    NvmlQuestions, PEER_CHALLENGE_BYTES, PEER_HELLO_BYTES, PeerConnect, PeerConnector, PeerOffer,
    Purpose, Question, Reject, RejectCode, ServerIdentity, SessionLimits, Status, TICKET_BYTES,
    Ticket, Token, VersionRange, Welcome, limits,
};
use towline_wire::nvml::{
    DeviceGetPowerUsage, DeviceGetPowerUsageReply, DeviceHandle, Message as _,
    NVML_ERROR_INVALID_ARGUMENT, Processes, ProcessesReply, Request,
};

fn main() {
    env_logger::Builder::from_env(env_logger::Env::new().filter("TOWLINE_LOG")).init();
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some("worker") {
        let kind = arguments.next().unwrap_or_default();
        if kind.starts_with("monitor") {
            let options = NvmlOptions {
                null: true,
                ..NvmlOptions::default()
            };
            process::monitor(|| {}, move || nvml::open(&options));
        }
        process::main(|| {}, move || open_engine(&kind));
    }
    type Test = fn() -> Result<(), Failed>;
    let tests: Vec<(&str, Test)> = vec![
        (
            "session_echoes_through_its_worker",
            session_echoes_through_its_worker,
        ),
        (
            "cuda_session_gets_a_worker_of_its_own_kind",
            cuda_session_gets_a_worker_of_its_own_kind,
        ),
        (
            "cuda_session_without_a_driver_is_told_and_others_go_on",
            cuda_session_without_a_driver_is_told_and_others_go_on,
        ),
        (
            "server_with_cuda_only_serves_and_says_what_it_lacks",
            server_with_cuda_only_serves_and_says_what_it_lacks,
        ),
        (
            "server_without_any_device_says_why_for_each_api",
            server_without_any_device_says_why_for_each_api,
        ),
        (
            "cuda_devices_are_told_without_a_session_and_nobody_stays",
            cuda_devices_are_told_without_a_session_and_nobody_stays,
        ),
        (
            "one_monitor_answers_all_who_ask_nvml",
            monitor::one_monitor_answers_all_who_ask_nvml,
        ),
        (
            "monitor_that_died_is_followed_by_another",
            monitor::monitor_that_died_is_followed_by_another,
        ),
        (
            "client_sees_the_processes_of_its_own_machine",
            monitor::client_sees_the_processes_of_its_own_machine,
        ),
        (
            "server_without_nvml_says_so",
            monitor::server_without_nvml_says_so,
        ),
        (
            "token_matrix_lets_in_only_equal_tokens",
            token_matrix_lets_in_only_equal_tokens,
        ),
        (
            "other_version_is_told_what_the_server_speaks",
            other_version_is_told_what_the_server_speaks,
        ),
        (
            "routable_address_needs_a_token",
            routable_address_needs_a_token,
        ),
        (
            "closing_control_frees_the_worker_within_a_second",
            closing_control_frees_the_worker_within_a_second,
        ),
        (
            "worker_that_ignores_the_end_is_killed_within_a_second",
            worker_that_ignores_the_end_is_killed_within_a_second,
        ),
        (
            "crash_is_told_to_its_client_and_spares_the_others",
            crash_is_told_to_its_client_and_spares_the_others,
        ),
        (
            "engine_error_reaches_the_client",
            engine_error_reaches_the_client,
        ),
        (
            "sessions_are_limited_and_places_come_back",
            sessions_are_limited_and_places_come_back,
        ),
        (
            "status_counts_what_the_engine_counts",
            status_counts_what_the_engine_counts,
        ),
        (
            "devices_are_the_workers_snapshot",
            devices_are_the_workers_snapshot,
        ),
        ("wrong_ticket_is_refused", wrong_ticket_is_refused),
        ("ticket_cannot_be_replayed", ticket_cannot_be_replayed),
        ("ticket_dies_with_its_session", ticket_dies_with_its_session),
        ("lane_flood_is_refused", lane_flood_is_refused),
        (
            "garbage_is_refused_and_serves_on",
            garbage_is_refused_and_serves_on,
        ),
        ("slow_client_is_cut_off", slow_client_is_cut_off),
        (
            "flood_of_silent_connections_does_not_shut_others_out",
            flood_of_silent_connections_does_not_shut_others_out,
        ),
        (
            "client_that_never_reads_is_cut_off",
            client_that_never_reads_is_cut_off,
        ),
        (
            "failing_worker_says_why_at_start",
            failing_worker_says_why_at_start,
        ),
        (
            "hostile_worker_cannot_harm_the_supervisor",
            hostile_worker_cannot_harm_the_supervisor,
        ),
        ("start_can_be_interrupted", start_can_be_interrupted),
        ("stop_leaves_nothing_behind", stop_leaves_nothing_behind),
        ("jailed_worker_is_confined", jailed_worker_is_confined),
        (
            "lanes_and_bytes_sent_early_arrive",
            lanes_and_bytes_sent_early_arrive,
        ),
        (
            "servers_that_list_each_other_connect_their_workers",
            peers::servers_that_list_each_other_connect_their_workers,
        ),
        (
            "server_that_is_not_listed_is_refused_by_both_sides",
            peers::server_that_is_not_listed_is_refused_by_both_sides,
        ),
        (
            "peer_ticket_is_good_once_and_for_nothing_else",
            peers::peer_ticket_is_good_once_and_for_nothing_else,
        ),
        (
            "peer_ticket_dies_with_its_session",
            peers::peer_ticket_dies_with_its_session,
        ),
        (
            "peer_that_does_not_know_the_token_is_refused",
            peers::peer_that_does_not_know_the_token_is_refused,
        ),
        (
            "peer_from_another_address_is_refused_without_a_token",
            peers::peer_from_another_address_is_refused_without_a_token,
        ),
        (
            "peer_beyond_this_machine_needs_a_token",
            peers::peer_beyond_this_machine_needs_a_token,
        ),
        (
            "garbage_of_peers_is_refused_and_serves_on",
            peers::garbage_of_peers_is_refused_and_serves_on,
        ),
    ];
    let trials = tests
        .into_iter()
        .map(|(name, test)| Trial::test(name, test))
        .collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

// --- The worker -------------------------------------------------------------------------------------------------

struct EchoEngine;

fn open_engine(kind: &str) -> Result<Box<dyn Engine>, EngineError> {
    match kind {
        "cuda" | "cuda-look" => cuda::open(&CudaOptions {
            driver: cuda::CudaDriver::Null,
            ..CudaOptions::default()
        }),
        "broken" => Err("no OpenCL platform was found".into()),
        "slow" => {
            std::thread::sleep(Duration::from_secs(100));
            Ok(Box::new(EchoEngine))
        }
        // Writes rubbish into the channel to the supervisor, as an engine that was taken over could.
        "hostile" => {
            let channel = std::fs::read_dir("/proc/self/fd")?
                .flatten()
                .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
                .find(|number| *number == 3);
            let number = channel.ok_or("no channel")?;
            let socket = rustix::process::pidfd_open(
                rustix::process::getpid(),
                rustix::process::PidfdFlags::empty(),
            )
            .and_then(|this| {
                rustix::process::pidfd_getfd(
                    this,
                    number,
                    rustix::process::PidfdGetfdFlags::empty(),
                )
            })?;
            rustix::net::send(&socket, b"{\"Ready\":", rustix::net::SendFlags::empty())?;
            std::thread::sleep(Duration::from_secs(100));
            Ok(Box::new(EchoEngine))
        }
        _ => Ok(Box::new(EchoEngine)),
    }
}

impl Engine for EchoEngine {
    fn snapshot(&self) -> Vec<u8> {
        // Longer than one message of the channel.
        (0..100_000u32).map(|n| n as u8).collect()
    }

    /// Each lane carries orders of 8 bytes.
    fn run(self: Box<Self>, session: Session) -> Result<(), EngineError> {
        use std::sync::atomic::Ordering::Relaxed;
        let (failed, failure) = std::sync::mpsc::channel();
        let peers: Arc<Mutex<Vec<Arc<dyn Connection>>>> = Arc::default();
        let pongs = Arc::new(AtomicU64::new(0));
        while let Some(lane) = session.lanes.next() {
            let (counters, failed) = (Arc::clone(&session.counters), failed.clone());
            if let LaneKind::Peer { .. } = lane.kind {
                let mut peers = peers.lock().expect("no thread panics");
                peers.push(Arc::clone(&lane.connection));
            }
            let (peers, pongs) = (Arc::clone(&peers), Arc::clone(&pongs));
            std::thread::spawn(move || {
                let mut order = [0; 8];
                while recv_exact(&*lane.connection, &mut order).is_ok() {
                    counters.calls.fetch_add(1, Relaxed);
                    counters.received_bytes.fetch_add(8, Relaxed);
                    match &order {
                        b"crash---" => std::process::abort(),
                        b"hang----" => loop {
                            std::thread::sleep(Duration::from_secs(100));
                        },
                        b"fail----" => {
                            let _ = failed.send(());
                        }
                        // Over the peer lane, and back.
                        b"peer----" => {
                            for peer in peers.lock().expect("no thread panics").iter() {
                                let _ = peer.send(&[IoSlice::new(b"ping----")]);
                            }
                        }
                        b"ping----" => {
                            let _ = lane.connection.send(&[IoSlice::new(b"pong----")]);
                        }
                        b"pong----" => {
                            pongs.fetch_add(1, Relaxed);
                        }
                        b"pongs---" => {
                            let count = pongs.load(Relaxed).to_le_bytes();
                            let _ = lane.connection.send(&[IoSlice::new(&count)]);
                        }
                        b"alloc---" => counters.device_memory_bytes.store(4096, Relaxed),
                        b"jail----" => {
                            let report = jail_report();
                            let _ = lane.connection.send(&[IoSlice::new(report.as_bytes())]);
                        }
                        _ => {
                            let _ = lane.connection.send(&[IoSlice::new(&order)]);
                        }
                    }
                }
            });
            if failure.recv_timeout(Duration::from_millis(50)).is_ok() {
                return Err("the device is lost".into());
            }
        }
        Ok(())
    }
}

/// What a jailed process can do, one `name=value` per line, padded to a fixed length.
fn jail_report() -> String {
    let home = std::env::var("HOME").unwrap_or_default();
    let writable = |path: &str| match std::fs::write(path, "x") {
        Ok(()) => "yes".to_owned(),
        Err(error) => format!("{:?}", error.kind()),
    };
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        status
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .unwrap_or("?")
            .split_whitespace()
            .next()
            .unwrap_or("?")
            .to_owned()
    };
    let interfaces = std::fs::read_to_string("/proc/self/net/dev")
        .unwrap_or_default()
        .lines()
        .count()
        .saturating_sub(2);
    let linked = std::process::Command::new("/bin/true")
        .status()
        .is_ok_and(|status| status.success());
    let socket = std::net::TcpListener::bind("127.0.0.1:0")
        .map_or_else(|error| format!("{:?}", error.kind()), |_| "yes".into());
    let probes: Vec<String> = std::env::var("TEST_PROBES")
        .unwrap_or_default()
        .split(':')
        .map(|path| {
            std::fs::read_to_string(path).unwrap_or_else(|error| format!("{:?}", error.kind()))
        })
        .collect();
    let report = format!(
        "probes={}\nhome_entries={}\nuid={}\nno_new_privs={}\nseccomp={}\ncapabilities={}\nhome={}\nhome_writable={}\netc_writable={}\ntmp_entries={}\ninterfaces={interfaces}\nruns_programs={linked}\ntcp_socket={socket}\n",
        probes.join(","),
        std::fs::read_dir("/home").map_or(-1, |entries| entries.count() as i64),
        field("Uid:"),
        field("NoNewPrivs:"),
        field("Seccomp:"),
        field("CapEff:"),
        home,
        writable(&format!("{home}/probe")),
        writable("/etc/towline-probe"),
        std::fs::read_dir("/tmp").map_or(-1, |entries| entries.count() as i64),
    );
    format!("{report:<1024}")
}

// --- The client -------------------------------------------------------------------------------------------------

struct Client {
    connection: Arc<dyn Connection>,
    buffer: MessageBuffer,
    address: Address,
    welcome: Option<Welcome>,
}

impl Client {
    fn dial(address: &Address) -> Self {
        let connection = Registry::global()
            .connect(address, &ConnectOptions::control())
            .expect("the server listens");
        let buffer = MessageBuffer::new(limits::SERVER_MESSAGE_BYTES);
        Self {
            connection,
            buffer,
            address: address.clone(),
            welcome: None,
        }
    }

    fn join(
        address: &Address,
        purpose: Purpose,
        token: Option<Token>,
    ) -> Result<Self, HandshakeError> {
        Self::join_from("here", address, purpose, token)
    }

    fn join_from(
        host: &str,
        address: &Address,
        purpose: Purpose,
        token: Option<Token>,
    ) -> Result<Self, HandshakeError> {
        let mut client = Self::dial(address);
        let hello = Hello::new(purpose, "test", std::process::id(), host, [7; 32]);
        let (mut handshake, first) = ClientHandshake::start(hello, token);
        client.send(&first);
        loop {
            let frame = client.frame().expect("an answer before the end");
            match handshake.receive(&frame)? {
                ClientProgress::Send(answer) => client.send(&answer),
                ClientProgress::Done(welcome) => {
                    client.welcome = Some(*welcome);
                    return Ok(client);
                }
            }
        }
    }

    fn session(address: &Address) -> Self {
        Self::join(address, Purpose::Session, None).expect("the server lets us in")
    }

    fn query(address: &Address) -> Self {
        Self::join(address, Purpose::Query, None).expect("the server lets us in")
    }

    fn send(&self, bytes: &[u8]) {
        self.connection
            .send(&[IoSlice::new(bytes)])
            .expect("the server reads");
    }

    /// The next frame, or `None` when the server has closed.
    fn frame(&mut self) -> Option<Vec<u8>> {
        let mut bytes = [0; 4096];
        loop {
            if let Some(frame) = self
                .buffer
                .next_frame()
                .expect("the server speaks the protocol")
            {
                return Some(frame);
            }
            assert!(
                self.connection
                    .wait_readable(Some(Duration::from_secs(20)))
                    .unwrap_or(true),
                "no answer"
            );
            match self.connection.recv(&mut bytes) {
                Ok(0) | Err(_) => return None,
                Ok(count) => self.buffer.push(&bytes[..count]),
            }
        }
    }

    fn message(&mut self) -> Option<Message> {
        self.frame()
            .map(|frame| Message::decode(&frame).expect("the server speaks the protocol"))
    }

    fn status(&mut self) -> Status {
        self.send(&Message::StatusRequest.encode());
        match self.message() {
            Some(Message::Status(status)) => status,
            other => panic!("not a status: {other:?}"),
        }
    }

    /// Asks for a peer lane from the server of this address.
    fn offer(&mut self, address: &str) -> Result<Ticket, String> {
        let offer = PeerOffer {
            lane: 5,
            address: address.into(),
        };
        self.send(&Message::PeerOffer(offer).encode());
        match self.message() {
            Some(Message::PeerTicket(answer)) if answer.lane == 5 => answer.ticket,
            other => panic!("not a ticket: {other:?}"),
        }
    }

    /// Asks for a peer lane to the server of this address.
    fn connect(&mut self, address: &str, ticket: &Ticket) -> Result<(), String> {
        let connect = PeerConnect {
            lane: 5,
            address: address.into(),
            ticket: ticket.clone(),
        };
        self.send(&Message::PeerConnect(connect).encode());
        match self.message() {
            Some(Message::PeerConnected(answer)) if answer.lane == 5 => answer.outcome,
            other => panic!("not an outcome: {other:?}"),
        }
    }

    fn ticket(&self) -> Ticket {
        self.welcome
            .as_ref()
            .and_then(|welcome| welcome.session.as_ref())
            .expect("a session")
            .ticket
            .clone()
    }

    fn lane(&self, index: u16, count: u16) -> Lane {
        Lane::open(
            &self.address,
            AttachPreamble {
                ticket: self.ticket(),
                lane_index: index,
                lane_count: count,
            },
        )
    }
}

struct Lane(Arc<dyn Connection>);

impl Lane {
    fn open(address: &Address, preamble: AttachPreamble) -> Self {
        let connection = Registry::global()
            .connect(address, &ConnectOptions::default())
            .expect("the server listens");
        connection
            .send(&[IoSlice::new(&preamble.encode())])
            .expect("the server reads");
        Self(connection)
    }

    fn order(&self, order: &[u8; 8]) {
        self.0
            .send(&[IoSlice::new(order)])
            .expect("the worker reads");
    }

    fn echoes(&self) -> bool {
        let mut back = [0; 8];
        self.0.send(&[IoSlice::new(b"abcdefgh")]).is_ok()
            && recv_exact(&*self.0, &mut back).is_ok()
            && &back == b"abcdefgh"
    }

    /// Whether the server closes it, within the time that refusing takes.
    fn is_refused(&self) -> bool {
        let readable = self
            .0
            .wait_readable(Some(Duration::from_secs(10)))
            .unwrap_or(true);
        readable && matches!(self.0.recv(&mut [0; 8]), Ok(0) | Err(_))
    }
}

// --- The server -------------------------------------------------------------------------------------------------

fn config(kind: &str) -> SupervisorConfig {
    SupervisorConfig {
        listen: vec!["tcp://127.0.0.1:0".parse().unwrap()],
        token: None,
        insecure: false,
        peers: Vec::new(),
        max_sessions: 8,
        limits: SessionLimits {
            max_lanes: 4,
            payload_lanes: 2,
            chunk_bytes: 1 << 20,
            chunk_count: 4,
        },
        worker: Some(worker(kind)),
        cuda_worker: None,
        nvml_worker: None,
        jail: JailConfig {
            disabled: true,
            ..JailConfig::default()
        },
        identity: ServerIdentity {
            name: "here".into(),
            software: "test".into(),
        },
    }
}

fn worker(kind: &str) -> WorkerProgram {
    WorkerProgram {
        path: WorkerProgram::this_program(),
        arguments: vec!["worker".into(), kind.into()],
        environment: std::env::vars_os()
            .filter(|(name, _)| name == "TOWLINE_LOG" || name == "PATH")
            .collect(),
    }
}

struct Server {
    supervisor: Supervisor,
    address: Address,
}

fn serve(config: SupervisorConfig) -> Server {
    let supervisor = Supervisor::start(config).unwrap_or_else(|error| panic!("{error}"));
    let address = supervisor.addresses().remove(0);
    Server {
        supervisor,
        address,
    }
}

fn token(text: &str) -> Option<Token> {
    Some(Token::from_bytes(text.as_bytes()).unwrap())
}

fn alive(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

fn wait_until(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + limit;
    while !condition() {
        assert!(
            Instant::now() < deadline,
            "{what} did not come true within {limit:?}"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn only_worker(address: &Address) -> u32 {
    let sessions = Client::query(address).status().sessions;
    assert_eq!(sessions.len(), 1);
    sessions[0].worker_pid
}

/// Two free ports of this machine, as the addresses of two servers.
fn two_addresses() -> [Address; 2] {
    let listeners = [(); 2].map(|()| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().to_string().parse().unwrap())
}

/// Two servers that list each other, as the lists say.
fn serve_peers(
    tokens: [Option<Token>; 2],
    lists: [&[Address]; 2],
    at: &[Address; 2],
) -> [Server; 2] {
    let server = |index: usize| {
        serve(SupervisorConfig {
            listen: vec![at[index].clone()],
            token: tokens[index].clone(),
            peers: lists[index].to_vec(),
            ..config("echo")
        })
    };
    [server(0), server(1)]
}

// --- The tests --------------------------------------------------------------------------------------------------

fn session_echoes_through_its_worker() -> Result<(), Failed> {
    let server = serve(config("echo"));
    let client = Client::session(&server.address);
    let lanes: Vec<Lane> = (0..3).map(|index| client.lane(index, 3)).collect();
    assert!(lanes.iter().all(Lane::echoes));
    Ok(())
}

fn cuda_session_gets_a_worker_of_its_own_kind() -> Result<(), Failed> {
    let server = serve(SupervisorConfig {
        cuda_worker: Some(worker("cuda")),
        ..config("echo")
    });
    let cuda = Client::join(&server.address, Purpose::CudaSession, None)?;
    let welcome = cuda.welcome.as_ref().expect("it was let in");
    let snapshot = towline_wire::cuda::snapshot::Snapshot::decode(&welcome.snapshot)?;
    assert_eq!(snapshot.devices[0].name, b"Towline null device");
    // Both kinds at once, and a second of this kind.
    let opencl = Client::session(&server.address);
    assert!(opencl.lane(0, 1).echoes());
    let second = Client::join(&server.address, Purpose::CudaSession, None)?;
    assert!(second.welcome.is_some());
    Ok(())
}

fn cuda_session_without_a_driver_is_told_and_others_go_on() -> Result<(), Failed> {
    for cuda_worker in [None, Some(worker("broken"))] {
        let server = serve(SupervisorConfig {
            cuda_worker,
            ..config("echo")
        });
        let refused = Client::join(&server.address, Purpose::CudaSession, None).err();
        match refused {
            Some(HandshakeError::Rejected(Reject {
                code: RejectCode::NoDevice,
                ..
            })) => {}
            other => return Err(format!("refused with {other:?}").into()),
        }
        assert!(Client::session(&server.address).lane(0, 1).echoes());
    }
    Ok(())
}

fn server_with_cuda_only_serves_and_says_what_it_lacks() -> Result<(), Failed> {
    for worker_kind in [None, Some(worker("broken"))] {
        let server = serve(SupervisorConfig {
            worker: worker_kind,
            cuda_worker: Some(worker("cuda")),
            ..config("echo")
        });
        let refused = Client::join(&server.address, Purpose::Session, None).err();
        match refused {
            Some(HandshakeError::Rejected(Reject {
                code: RejectCode::NoDevice,
                text,
                ..
            })) => assert!(text.contains("no OpenCL devices"), "{text}"),
            other => return Err(format!("refused with {other:?}").into()),
        }
        let query = Client::query(&server.address);
        let snapshot = query.welcome.expect("it was let in").snapshot;
        assert_eq!(
            towline_wire::snapshot::Snapshot::decode(&snapshot)?.devices,
            []
        );
        let cuda = Client::join(&server.address, Purpose::CudaSession, None)?;
        assert!(cuda.welcome.is_some());
    }
    Ok(())
}

fn server_without_any_device_says_why_for_each_api() -> Result<(), Failed> {
    let started = Supervisor::start(SupervisorConfig {
        cuda_worker: Some(worker("broken")),
        ..config("broken")
    });
    let said = started
        .err()
        .map(|error| error.to_string())
        .unwrap_or_default();
    assert!(
        said.contains("no OpenCL platform was found; nor for CUDA:"),
        "{said}"
    );
    Ok(())
}

/// The workers of a kind that live. Tests run at once, so each that counts has a kind of its own.
fn workers(kind: &str) -> Vec<u32> {
    let arguments = format!("worker\0{kind}\0");
    let entries = std::fs::read_dir("/proc")
        .expect("/proc is mounted")
        .flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| {
        let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline"));
        line.is_ok_and(|line| line.ends_with(&arguments))
    })
    .collect()
}

fn cuda_devices_are_told_without_a_session_and_nobody_stays() -> Result<(), Failed> {
    let server = serve(SupervisorConfig {
        cuda_worker: Some(worker("cuda-look")),
        ..config("echo")
    });
    let mut client = Client::query(&server.address);
    for _ in 0..2 {
        client.send(&Message::CudaDevicesRequest.encode());
        let Some(Message::CudaDevices(devices)) = client.message() else {
            panic!("no devices")
        };
        let snapshot = devices.snapshot.map_err(Failed::from)?;
        let snapshot = towline_wire::cuda::snapshot::Snapshot::decode(&snapshot)?;
        assert_eq!(snapshot.devices[0].name, b"Towline null device");
    }
    // A driver would hold memory of the device.
    wait_until("no worker", Duration::from_secs(5), || {
        workers("cuda-look").is_empty()
    });
    Ok(())
}

fn lanes_and_bytes_sent_early_arrive() -> Result<(), Failed> {
    let server = serve(config("echo"));
    let client = Client::session(&server.address);
    let connection = Registry::global().connect(&server.address, &ConnectOptions::default())?;
    let preamble = AttachPreamble {
        ticket: client.ticket(),
        lane_index: 0,
        lane_count: 1,
    }
    .encode();
    let mut early = preamble.to_vec();
    early.extend_from_slice(&[b'e'; 80_000]);
    connection.send(&[IoSlice::new(&early)])?;
    let mut back = vec![0; 80_000];
    recv_exact(&*connection, &mut back)?;
    assert!(back.iter().all(|byte| *byte == b'e'));
    Ok(())
}

fn token_matrix_lets_in_only_equal_tokens() -> Result<(), Failed> {
    let open = serve(config("echo"));
    let closed = serve(SupervisorConfig {
        token: token("sixteen bytes or more"),
        ..config("echo")
    });
    let join =
        |server: &Server, token| Client::join(&server.address, Purpose::Session, token).map(drop);
    assert_eq!(join(&open, None), Ok(()));
    assert_eq!(
        join(&open, token("sixteen bytes or more")),
        Err(HandshakeError::ServerWithoutToken)
    );
    assert_eq!(join(&closed, None), Err(HandshakeError::TokenRequired));
    assert_eq!(
        join(&closed, token("sixteen bytes or less")),
        Err(HandshakeError::TokenWrong)
    );
    assert_eq!(join(&closed, token("sixteen bytes or more")), Ok(()));
    let query = Client::join(&closed.address, Purpose::Query, None).map(drop);
    assert_eq!(query, Err(HandshakeError::TokenRequired));
    Ok(())
}

fn other_version_is_told_what_the_server_speaks() -> Result<(), Failed> {
    let server = serve(config("echo"));
    let mut client = Client::dial(&server.address);
    let versions = VersionRange { min: 900, max: 901 };
    let hello = Hello {
        versions,
        ..Hello::new(Purpose::Session, "future", 1, "there", [0; 32])
    };
    client.send(&Message::Hello(hello).encode());
    let Some(Message::Reject(Reject { code, versions, .. })) = client.message() else {
        panic!("not rejected")
    };
    assert_eq!((code, versions.max), (RejectCode::VersionMismatch, 1));
    Ok(())
}

fn routable_address_needs_a_token() -> Result<(), Failed> {
    let everywhere = SupervisorConfig {
        listen: vec!["tcp://0.0.0.0:0".parse().unwrap()],
        ..config("echo")
    };
    let error = Supervisor::start(everywhere.clone())
        .err()
        .expect("refused");
    assert!(matches!(error, SupervisorError::NoToken { .. }), "{error}");
    assert!(
        error.to_string().contains("--token-file") && error.to_string().contains("--insecure"),
        "{error}"
    );
    Supervisor::start(SupervisorConfig {
        token: token("sixteen bytes or more"),
        ..everywhere.clone()
    })?;
    Supervisor::start(SupervisorConfig {
        insecure: true,
        ..everywhere
    })?;
    Ok(())
}

fn closing_control_frees_the_worker_within_a_second() -> Result<(), Failed> {
    let server = serve(config("echo"));
    let client = Client::session(&server.address);
    let lane = client.lane(0, 1);
    assert!(lane.echoes());
    let worker = only_worker(&server.address);
    drop(client);
    wait_until("the worker's end", Duration::from_secs(1), || {
        !alive(worker)
    });
    assert!(lane.is_refused());
    assert_eq!(Client::query(&server.address).status().sessions, []);
    Ok(())
}

fn worker_that_ignores_the_end_is_killed_within_a_second() -> Result<(), Failed> {
    let server = serve(config("echo"));
    let client = Client::session(&server.address);
    let lane = client.lane(0, 1);
    assert!(lane.echoes());
    let worker = only_worker(&server.address);
    lane.order(b"hang----");
    std::thread::sleep(Duration::from_millis(100));
    drop(client);
    wait_until("the worker's end", Duration::from_secs(1), || {
        !alive(worker)
    });
    Ok(())
}

fn crash_is_told_to_its_client_and_spares_the_others() -> Result<(), Failed> {
    let server = serve(config("echo"));
    let mut victim = Client::session(&server.address);
    let other = Client::session(&server.address);
    let (victims_lane, others_lane) = (victim.lane(0, 1), other.lane(0, 1));
    assert!(victims_lane.echoes() && others_lane.echoes());
    victims_lane.order(b"crash---");
    let Some(Message::SessionEnded(ended)) = victim.message() else {
        panic!("not told")
    };
    assert!(ended.reason.contains("SIGABRT"), "{}", ended.reason);
    assert_eq!(victim.message(), None);
    assert!(others_lane.echoes());
    wait_until("counting the crash", Duration::from_secs(5), || {
        let status = Client::query(&server.address).status();
        status.sessions_crashed == 1 && status.sessions.len() == 1
    });
    assert!(Client::session(&server.address).lane(0, 1).echoes());
    Ok(())
}

fn engine_error_reaches_the_client() -> Result<(), Failed> {
    let server = serve(config("echo"));
    let mut client = Client::session(&server.address);
    client.lane(0, 2).order(b"fail----");
    let _second = client.lane(1, 2);
    let Some(Message::SessionEnded(ended)) = client.message() else {
        panic!("not told")
    };
    assert_eq!(ended.reason, "the device is lost");
    assert_eq!(
        Client::query(&server.address).status().sessions_crashed,
        0,
        "the worker ended in order"
    );
    Ok(())
}

fn sessions_are_limited_and_places_come_back() -> Result<(), Failed> {
    let server = serve(SupervisorConfig {
        max_sessions: 2,
        ..config("echo")
    });
    let first = Client::session(&server.address);
    let _second = Client::session(&server.address);
    let third = Client::join(&server.address, Purpose::Session, None);
    let Err(HandshakeError::Rejected(reject)) = third.map(drop) else {
        panic!("a third session")
    };
    assert_eq!(reject.code, RejectCode::TooManySessions);
    assert!(reject.text.contains("--max-sessions"), "{}", reject.text);
    // Asking takes no place.
    assert_eq!(Client::query(&server.address).status().sessions.len(), 2);
    drop(first);
    wait_until("a free place", Duration::from_secs(2), || {
        Client::join(&server.address, Purpose::Session, None).is_ok()
    });
    Ok(())
}

fn status_counts_what_the_engine_counts() -> Result<(), Failed> {
    let server = serve(config("echo"));
    let mut client = Client::session(&server.address);
    let lane = client.lane(0, 1);
    assert!((0..5).all(|_| lane.echoes()));
    let status = client.status();
    let session = &status.sessions[0];
    assert_eq!(
        (session.calls, session.received_bytes, session.lanes),
        (5, 40, 1)
    );
    assert_eq!(
        (session.program.as_str(), session.client_pid),
        ("test", std::process::id())
    );
    assert_eq!(
        (
            status.max_sessions,
            status.sessions_started,
            status.draining
        ),
        (8, 1, false)
    );
    Ok(())
}

fn devices_are_the_workers_snapshot() -> Result<(), Failed> {
    let server = serve(config("echo"));
    let expected = EchoEngine.snapshot();
    let mut client = Client::query(&server.address);
    client.send(&Message::DevicesRequest.encode());
    let Some(Message::Devices(devices)) = client.message() else {
        panic!("no devices")
    };
    assert_eq!(devices.snapshot, expected);
    // Also just after the worker at hand was given away.
    let session = Client::session(&server.address);
    let query = Client::query(&server.address);
    assert_eq!(query.welcome.expect("welcome").snapshot, expected);
    assert_eq!(session.welcome.expect("welcome").snapshot, expected);
    Ok(())
}

fn wrong_ticket_is_refused() -> Result<(), Failed> {
    let server = serve(config("echo"));
    let client = Client::session(&server.address);
    let guess = AttachPreamble {
        ticket: Ticket::from_random([1; TICKET_BYTES]),
        lane_index: 0,
        lane_count: 1,
    };
    assert!(Lane::open(&server.address, guess).is_refused());
    assert!(client.lane(0, 1).echoes());
    Ok(())
}

fn ticket_cannot_be_replayed() -> Result<(), Failed> {
    let server = serve(config("echo"));
    let client = Client::session(&server.address);
    let lane = client.lane(0, 1);
    assert!(lane.echoes());
    assert!(client.lane(0, 1).is_refused());
    assert!(lane.echoes());
    Ok(())
}

fn ticket_dies_with_its_session() -> Result<(), Failed> {
    let server = serve(config("echo"));
    let client = Client::session(&server.address);
    let preamble = AttachPreamble {
        ticket: client.ticket(),
        lane_index: 0,
        lane_count: 1,
    };
    drop(client);
    wait_until("the session's end", Duration::from_secs(2), || {
        Client::query(&server.address).status().sessions.is_empty()
    });
    assert!(Lane::open(&server.address, preamble).is_refused());
    Ok(())
}

fn lane_flood_is_refused() -> Result<(), Failed> {
    let server = serve(config("echo"));
    let client = Client::session(&server.address);
    assert!(
        client.lane(0, 5).is_refused(),
        "the limit of this server is 4"
    );
    let other = Client::session(&server.address);
    let lanes: Vec<Lane> = (0..4).map(|index| other.lane(index, 4)).collect();
    assert!(lanes.iter().all(Lane::echoes));
    assert!((0..200).all(|index| other.lane(index % 4, 4).is_refused()));
    assert!(lanes.iter().all(Lane::echoes));
    Ok(())
}

fn garbage_is_refused_and_serves_on() -> Result<(), Failed> {
    let server = serve(config("echo"));
    let pieces: [&[u8]; 6] = [
        b"GET / HTTP/1.1\r\n\r\n",
        b"TWLC\x01\0\0\0\xff\xff\xff\xff",
        b"TWLC\x63\0\0\0\0\0\0\0",
        b"TWLC\x01\0\0\0\x04\0\0\0\x01\0\x01\0",
        b"TWLA\xff\xff0123456789012345678901234567890123456789",
        &Message::StatusRequest.encode(),
    ];
    for piece in pieces {
        let client = Client::dial(&server.address);
        client.send(piece);
        let mut bytes = [0; 4096];
        let closed = (0..100).any(|_| matches!(client.connection.recv(&mut bytes), Ok(0) | Err(_)));
        assert!(closed, "{piece:?} is not refused");
    }
    // Garbage behind a good handshake ends that session only.
    let mut client = Client::session(&server.address);
    client
        .send(&Message::Hello(Hello::new(Purpose::Session, "again", 1, "here", [0; 32])).encode());
    assert!(matches!(
        client.message(),
        Some(Message::Reject(Reject {
            code: RejectCode::Malformed,
            ..
        }))
    ));
    assert!(Client::session(&server.address).lane(0, 1).echoes());
    assert!(Client::query(&server.address).status().rejected >= 6);
    Ok(())
}

fn slow_client_is_cut_off() -> Result<(), Failed> {
    let server = serve(config("echo"));
    let mut client = Client::dial(&server.address);
    let start = Instant::now();
    let hello = Message::Hello(Hello::new(Purpose::Session, "slow", 1, "here", [0; 32])).encode();
    // One byte at a time keeps it busy, but not for ever.
    for byte in &hello {
        if client
            .connection
            .wait_readable(Some(Duration::from_millis(300)))?
        {
            break;
        }
        let _ = client.connection.send(&[IoSlice::new(&[*byte])]);
    }
    assert!(matches!(
        client.message(),
        Some(Message::Reject(Reject {
            code: RejectCode::HandshakeTimeout,
            ..
        }))
    ));
    assert!(
        (4..8).contains(&start.elapsed().as_secs()),
        "{:?}",
        start.elapsed()
    );
    Ok(())
}

fn flood_of_silent_connections_does_not_shut_others_out() -> Result<(), Failed> {
    let server = serve(config("echo"));
    // More than the supervisor keeps.
    let mut silent: Vec<Client> = (0..300).map(|_| Client::dial(&server.address)).collect();
    let start = Instant::now();
    assert!(Client::session(&server.address).lane(0, 1).echoes());
    assert!(
        start.elapsed() < Duration::from_secs(2),
        "{:?}",
        start.elapsed()
    );
    let rejected = silent[0].message();
    assert!(
        matches!(
            rejected,
            Some(Message::Reject(Reject {
                code: RejectCode::Busy,
                ..
            }))
        ),
        "{rejected:?}"
    );
    Ok(())
}

fn client_that_never_reads_is_cut_off() -> Result<(), Failed> {
    let server = serve(config("echo"));
    let client = Client::query(&server.address);
    let request = Message::DevicesRequest.encode();
    let start = Instant::now();
    // Each answer has 100 kB: they fill the socket buffers, and then the server waits for us in vain.
    let cut = loop {
        match client.connection.try_send(&request) {
            Err(TransportError::Closed { .. } | TransportError::Lost { .. }) => break true,
            Err(_) => break true,
            Ok(_) if start.elapsed() > Duration::from_secs(30) => break false,
            Ok(_) => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    assert!(
        cut,
        "the server still waits for a client that does not read"
    );
    assert!(Client::session(&server.address).lane(0, 1).echoes());
    Ok(())
}

fn failing_worker_says_why_at_start() -> Result<(), Failed> {
    let start = Instant::now();
    let error = Supervisor::start(config("broken"))
        .err()
        .expect("no worker, no server");
    assert_eq!(
        error.to_string(),
        "the worker process cannot start: no OpenCL platform was found"
    );
    assert!(start.elapsed() < Duration::from_secs(5));
    Ok(())
}

fn start_can_be_interrupted() -> Result<(), Failed> {
    let interrupted = AtomicBool::new(false);
    let start = Instant::now();
    let result = std::thread::scope(|scope| {
        let starting =
            scope.spawn(|| Supervisor::start_unless(config("slow"), &interrupted).map(drop));
        std::thread::sleep(Duration::from_millis(200));
        interrupted.store(true, Ordering::Release);
        starting.join().expect("no panic")
    });
    assert!(result.is_err());
    assert!(
        start.elapsed() < Duration::from_secs(3),
        "{:?}",
        start.elapsed()
    );
    Ok(())
}

fn hostile_worker_cannot_harm_the_supervisor() -> Result<(), Failed> {
    let error = Supervisor::start(config("hostile"))
        .err()
        .expect("it never gets ready");
    assert!(error.to_string().contains("broke the protocol"), "{error}");
    Ok(())
}

fn stop_leaves_nothing_behind() -> Result<(), Failed> {
    let server = serve(config("echo"));
    let mut client = Client::session(&server.address);
    let lane = client.lane(0, 1);
    assert!(lane.echoes());
    lane.order(b"hang----");
    let worker = only_worker(&server.address);
    let folders = || -> Vec<std::path::PathBuf> {
        let prefix = format!("towline-serve-{}-", std::process::id());
        let entries = std::fs::read_dir(std::env::temp_dir())
            .expect("readable")
            .flatten();
        let holds_worker =
            |path: &Path| std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some());
        entries
            .filter(|entry| {
                entry.file_name().to_string_lossy().starts_with(&prefix)
                    && holds_worker(&entry.path())
            })
            .map(|entry| entry.path())
            .collect()
    };
    let before = folders();
    let start = Instant::now();
    server.supervisor.stop();
    assert!(
        start.elapsed() < Duration::from_secs(2),
        "{:?}",
        start.elapsed()
    );
    let Some(Message::SessionEnded(ended)) = client.message() else {
        panic!("not told")
    };
    assert_eq!(ended.reason, "the server is shutting down");
    assert!(!alive(worker));
    assert!(folders().len() < before.len(), "its folder stays behind");
    let refused = Registry::global()
        .connect(&server.address, &ConnectOptions::default())
        .err();
    assert!(matches!(
        refused,
        Some(TransportError::ConnectionRefused { .. })
    ));
    Ok(())
}

fn jailed_worker_is_confined() -> Result<(), Failed> {
    let private = tempfile::tempdir_in("/var")?;
    let (open, secret) = (private.path().join("open"), private.path().join("secret"));
    std::fs::set_permissions(private.path(), std::fs::Permissions::from_mode(0o755))?;
    std::fs::write(&open, "readable")?;
    std::fs::write(&secret, "readable")?;
    let mut config = config("echo");
    config.jail = JailConfig {
        hide: vec![secret.clone()],
        ..JailConfig::default()
    };
    config
        .worker
        .as_mut()
        .expect("it has one")
        .environment
        .push((
            "TEST_PROBES".into(),
            format!("{}:{}", open.display(), secret.display()).into(),
        ));
    let server = serve(config);
    let client = Client::session(&server.address);
    let lane = client.lane(0, 1);
    assert!(lane.echoes());
    lane.order(b"jail----");
    let mut report = [0; 1024];
    recv_exact(&*lane.0, &mut report)?;
    let report = String::from_utf8(report.to_vec())?;
    let value = |name: &str| {
        let line = report
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        line.unwrap_or_else(|| panic!("no {name} in {report}"))
            .to_owned()
    };
    assert_ne!(value("uid"), "0");
    assert_eq!(value("no_new_privs"), "1");
    assert_eq!(value("seccomp"), "2");
    assert_eq!(value("capabilities"), "0000000000000000");
    assert_eq!(value("home"), "/tmp/home");
    assert_eq!(value("home_writable"), "yes");
    assert_ne!(value("etc_writable"), "yes");
    assert_eq!(value("tmp_entries"), "1");
    assert_eq!(value("probes"), "readable,", "what is hidden is empty");
    assert_eq!(value("home_entries"), "0");
    assert_eq!(value("interfaces"), "1", "only loopback");
    assert_eq!(value("runs_programs"), "true");
    assert_eq!(value("tcp_socket"), "PermissionDenied");
    Ok(())
}
