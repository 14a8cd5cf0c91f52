//! Hours of bad company in minutes: thousands of sessions, killed clients and workers, refused connections and limits that are hit.
//! The supervisor must be as large at the end as it was after the first of it.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rustix::process::{Signal, kill_process};
use towline_wire::control::{Channel, ClientHandshake, ClientProgress, Hello, Purpose};

use crate::support::{Client, PATIENCE, Server, Usage, holds_within, opencl_program};

/// Sessions of one round.
const SESSIONS: usize = 250;
/// Rounds of one kind: there are four kinds, so 10,000 sessions in all.
const ROUNDS: usize = 10;
/// Clients that are killed in a round where clients are: 1,000 in twenty rounds.
const KILLED_CLIENTS: usize = 50;
/// Workers that are killed in a round where workers are: 1,000 in twenty rounds.
const KILLED_WORKERS: usize = 50;
/// Refused connections of a round: 100,000 in forty rounds.
const REFUSED: usize = 2500;
/// Limits that are hit ten times and more in each round, of a server of their own: 100 times in all.
const TIGHT: [&str; 28] = [
    "--cuda",
    "null",
    "--session-memory",
    "64M",
    "--session-processes",
    "128",
    "--session-temporary-storage",
    "16M",
    "--session-host-memory",
    "256M",
    "--session-descriptors",
    "128",
    "--session-cpus",
    "1",
    "--session-code",
    "1M",
    "--session-offers",
    "64",
    "--session-log-lines",
    "100",
    "--image-cache-count",
    "16",
    "--kernel-time-limit",
    "5",
    "--lane-timeout",
    "10",
    "--query-timeout",
    "10",
];
/// Programs and connections of one kind in a round, where each hits its limit once.
const HITS: usize = 10;
/// Things that a kernel exhausts, and how often each is refused: a hundred times, or where the kernel of the host ends the session, once.
const EXHAUSTED: [(&str, &[&str]); 7] = [
    ("processes", &["with -11, refused 100 times"]),
    ("threads", &["with -11, refused 100 times"]),
    ("files", &["with -28, refused 100 times"]),
    ("memory", &["with -12, refused 100 times", "with status -"]),
    ("descriptors", &["with -24, refused 100 times"]),
    ("log", &["with 0, refused 0 times"]),
    ("processors", &["with status -"]),
];
/// Growth of the supervisor that is noise: of its allocator, and of the log of what has ended.
const RESIDENT_NOISE: u64 = 16 << 20;
const THREAD_NOISE: usize = 4;
const DESCRIPTOR_NOISE: usize = 8;

/// First bytes of connections that get no session.
const STRANGERS: [&[u8]; 4] = [
    b"",
    b"GET / HTTP/1.1\r\nHost: towline\r\n\r\n",
    // A record of TLS that holds no ClientHello.
    b"\x16\x03\x01\x00\x05hello",
    // A frame's length, and nothing of the frame.
    b"\xff\xff\xff\x7f",
];

struct Mix {
    server: Server,
    address: SocketAddr,
    /// One with small limits.
    tight: Server,
}

impl Mix {
    fn start() -> Self {
        let sessions = SESSIONS.to_string();
        let server = Server::start_with(
            &[
                "--backend",
                "off",
                "--cuda",
                "soft",
                "--soft-memory",
                "1G",
                "--session-memory",
                "64M",
                "--max-sessions",
                &sessions,
            ],
            &[],
        );
        let address = address_of(&server);
        let tight = Server::start_with(&TIGHT, &[]);
        Self {
            server,
            address,
            tight,
        }
    }

    fn burst(&self, count: usize, killed: usize) -> Client {
        let arguments = [count.to_string(), killed.to_string()];
        Client::new(&[&self.server], opencl_program("cuda_burst"))
            .args(&[&arguments[0], &arguments[1]])
    }

    /// All sessions that there may be, and ten more that are refused while they last.
    fn full_house(&self, killed: usize) {
        let mut clients = self.burst(SESSIONS, killed).start();
        clients.wait_for("all told");
        if killed == 0 {
            let refused = self.burst(10, 0).run();
            assert_eq!(refused.lines[0].split(':').next(), Some("0 right of 10"));
            assert!(refused.errors.contains("sessions"), "{}", refused.errors);
        }
        clients.go_on();
        let finished = clients.finish();
        let killed = SESSIONS.checked_div(killed).unwrap_or(0);
        let ended = format!("{} ended well", SESSIONS - killed);
        assert_eq!(finished.lines.last(), Some(&ended), "{}", finished.errors);
    }

    /// Sessions whose workers are killed: while they start, or when all have their results.
    fn killed_workers(&self, when_all_have_told: bool) {
        let mut clients = self.burst(SESSIONS, 0).start();
        if when_all_have_told {
            clients.wait_for("all told");
        }
        let mut left = KILLED_WORKERS;
        let came = holds_within(PATIENCE, || {
            for worker in self.server.workers().into_iter().take(left) {
                // It may have ended by itself.
                left -= usize::from(kill_process(worker, Signal::KILL).is_ok());
            }
            left == 0
        });
        assert!(came, "{left} workers were never there");
        // How many sessions had results first is chance. The others end with an error, and no process by a signal.
        let finished = clients.finish();
        let signals = &finished.lines[finished.lines.len().saturating_sub(2)];
        assert_eq!(signals, "0 ended by a signal", "{}", finished.errors);
    }

    /// Connections that are told no, or nothing.
    fn refused(&self) {
        std::thread::scope(|scope| {
            for part in 0..4 {
                scope.spawn(move || {
                    for stranger in STRANGERS.iter().cycle().skip(part).take(REFUSED / 4) {
                        let mut stream = TcpStream::connect(self.address).expect("it listens");
                        // The server may have made place for another already.
                        let _ = stream.write_all(stranger);
                        if stranger.len() > 5 {
                            stream
                                .set_read_timeout(Some(Duration::from_secs(30)))
                                .expect("not zero");
                            let _ = stream.read_to_end(&mut Vec::new());
                        }
                    }
                });
            }
        });
    }

    /// More silent connections, and more queries, than there may be.
    fn crowd(&self) {
        let silent: Vec<_> = (0..300)
            .map(|_| TcpStream::connect(self.address).expect("it listens"))
            .collect();
        let queries: Vec<_> = (0..300)
            .map(|_| join(self.address, Purpose::Query))
            .collect();
        drop((silent, queries));
    }

    /// Programs that take all device memory that they may have, and all are told so three times.
    fn hoards(&self) {
        let hoards =
            [(); 4].map(|()| Client::new(&[&self.server], opencl_program("cuda_hoards")).start());
        for client in hoards {
            let lines = client.finish().lines_of_success();
            assert_eq!(
                lines.last().map(String::as_str),
                Some("free 64"),
                "{lines:?}"
            );
        }
    }

    /// Clients of the server with small limits that exceed each, beside a session whose results stay right.
    fn limits(&self) {
        let server = &self.tight;
        let mut bystander = Client::new(&[server], opencl_program("steady")).start();
        bystander.wait_for("computing");
        let address = address_of(server);
        let silent = [Purpose::CudaSession, Purpose::Query].map(|purpose| {
            (0..HITS)
                .map(|_| join(address, purpose))
                .collect::<Vec<_>>()
        });
        let several = |program, argument| {
            let client = || Client::new(&[server], opencl_program(program)).args(argument);
            let running: Vec<_> = (0..HITS).map(|_| client().start()).collect();
            let finished = running
                .into_iter()
                .map(|one| one.finish().lines_of_success());
            finished.collect::<Vec<_>>()
        };
        for lines in several("cuda_busy", &["waits"]) {
            assert_eq!(
                lines.last().map(String::as_str),
                Some("failed 702, then 702 702 702")
            );
        }
        for lines in several("cuda_loads", &[]) {
            assert_eq!(lines.first().map(String::as_str), Some("refused with 2"));
        }
        for lines in several("cuda_images", &["20"]) {
            assert_eq!(lines, ["computed 20"]);
        }
        let offers = Client::new(&[server], opencl_program("cuda_offers")).run();
        let told = "offered 64, refused 100 times with 2";
        assert_eq!(offers.lines_of_success(), [told]);
        for (what, outcomes) in EXHAUSTED {
            let program = Client::new(&[server], opencl_program("exhausts"));
            let mut program = program.args(&[what]).start();
            let outcome = program.wait_for_word("exhausted");
            let known = outcomes.iter().any(|known| outcome.starts_with(known));
            assert!(known, "{what}: {outcome}");
            program.finish();
        }
        // They have been silent for too long by then, or soon.
        for mut stream in silent.into_iter().flatten().flatten() {
            let limit = Some(Duration::from_secs(30));
            stream.set_read_timeout(limit).expect("not zero");
            let ended = stream.read_to_end(&mut Vec::new());
            assert!(!matches!(&ended, Err(error) if error.kind() == ErrorKind::WouldBlock));
        }
        bystander.go_on();
        bystander.finish().lines_of_success();
    }

    /// One round of everything.
    fn round(&self) {
        self.full_house(0);
        self.refused();
        self.full_house(SESSIONS / KILLED_CLIENTS);
        self.refused();
        self.killed_workers(false);
        self.refused();
        self.killed_workers(true);
        self.refused();
        self.crowd();
        self.hoards();
        self.limits();
    }

    /// The supervisors, once all that they had to do with sessions is done.
    fn at_rest(&self) -> [Usage; 2] {
        let servers = [&self.server, &self.tight];
        for server in servers {
            let rests = holds_within(PATIENCE, || server.worker_folders().len() <= 4);
            assert!(rests, "folders are left: {:?}", server.worker_folders());
        }
        // Threads of connections that have just ended.
        std::thread::sleep(Duration::from_secs(2));
        servers.map(|server| Usage::of(server.pid()))
    }
}

fn address_of(server: &Server) -> SocketAddr {
    let address = server.address().trim_start_matches("tcp://");
    address.parse().expect("a socket's address")
}

/// A connection that is let in for this, and then says nothing. The server may have closed it by now.
fn join(address: SocketAddr, purpose: Purpose) -> Option<TcpStream> {
    let mut stream = TcpStream::connect(address).ok()?;
    let hello = Hello::new(purpose, "mix", std::process::id(), "here", [7; 32]);
    let (mut handshake, first) = ClientHandshake::start(hello, None, Channel::Clear);
    stream.write_all(&first).ok()?;
    loop {
        match handshake.receive(&frame(&mut stream)?).ok()? {
            ClientProgress::Send(answer) => stream.write_all(&answer).ok()?,
            ClientProgress::Wait => {}
            ClientProgress::Done(_) => return Some(stream),
        }
    }
}

/// The next frame of a control connection.
fn frame(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut buffer = towline_wire::control::MessageBuffer::new(1 << 22);
    let mut byte = [0];
    loop {
        if let Some(frame) = buffer.next_frame().ok()? {
            return Some(frame);
        }
        stream.read_exact(&mut byte).ok()?;
        buffer.push(&byte);
    }
}

#[test]
fn each_small_limit_is_hit_and_harms_no_session_beside() {
    let mix = Mix::start();
    mix.limits();
    mix.at_rest();
}

#[test]
#[ignore = "ten thousand sessions: ten minutes of two cores"]
fn supervisor_stays_as_it_was_through_ten_thousand_sessions() {
    let mix = Mix::start();
    mix.round();
    let first = mix.at_rest();
    for round in 1..ROUNDS {
        mix.round();
        let now = mix.at_rest();
        println!("round {round}: {now:?}");
    }
    for (first, last) in first.iter().zip(mix.at_rest()) {
        assert!(
            last.resident <= first.resident + RESIDENT_NOISE
                && last.threads <= first.threads + THREAD_NOISE
                && last.descriptors <= first.descriptors + DESCRIPTOR_NOISE,
            "{first:?} became {last:?}"
        );
    }
    // It serves on.
    mix.full_house(0);
}
