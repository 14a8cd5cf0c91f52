//! Sessions that move to another server while their programs run: `towline migrate`, `towline drain`, and a server that ends.

use std::process::{Command, Output};
use std::time::Duration;

use rustix::process::{Signal, kill_process};
use serde_json::Value;

use crate::support::{
    Client, Proxy, Random, Running, Server, free_addresses, holds_within, opencl_program, towline,
    workload,
};

/// The workloads, at sizes that take a second or two with all that is checked.
/// Workloads that take long enough to be met at work, with their sizes.
pub(crate) const WORKLOADS: [(&str, &str); 4] = [
    ("sgemm", "193"),
    ("nbody", "1000"),
    ("transpose", "517"),
    ("smith_waterman", "300"),
];
/// Longer than a move takes on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

pub(crate) fn ask(arguments: &[&str]) -> Output {
    let output = Command::new(towline()).args(arguments).output();
    output.expect("towline is a program")
}

pub(crate) fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Numbers of the sessions of a server whose clients are not cut off.
pub(crate) fn sessions(server: &Server) -> Vec<u64> {
    let output = ask(&["status", "--json", "--server", server.address()]);
    let status: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    let sessions = status[0]["sessions"].as_array().expect("a list");
    let is_here = |session: &&Value| session["away_ms"] == 0;
    let numbers = sessions.iter().filter(is_here);
    let numbers = numbers.map(|session| session["id"].as_u64());
    numbers.map(|number| number.expect("a number")).collect()
}

pub(crate) fn has_sessions(server: &Server, count: usize) -> bool {
    holds_within(LIMIT, || sessions(server).len() == count)
}

/// The only session of a server.
pub(crate) fn only(server: &Server) -> u64 {
    let mut found = None;
    holds_within(LIMIT, || {
        found = <[u64; 1]>::try_from(sessions(server)).ok();
        found.is_some()
    });
    let [session] = found.unwrap_or_else(|| panic!("not one session: {}", server.log()));
    session
}

fn migrate(from: &Server, session: u64, to: &str) -> Output {
    let session = session.to_string();
    ask(&["migrate", &session, "--to", to, "--server", from.address()])
}

pub(crate) fn moves(from: &Server, to: &Server) {
    let output = migrate(from, only(from), to.address());
    assert!(output.status.success(), "{}", errors(&output));
    assert_eq!(sessions(from).len(), 0);
    assert!(has_sessions(to, 1));
}

/// A move that is refused for this reason, after which the program goes on where it was.
fn stays(from: &Server, to: &str, reason: &str) {
    let output = migrate(from, only(from), to);
    let said = errors(&output);
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(
        said.contains("stays where it is") && said.contains(reason),
        "{said}"
    );
    assert!(has_sessions(from, 1));
}

/// A program that computes until it is told to stop, and checks what it computes.
pub(crate) fn steady(server: &Server) -> Running {
    let mut client = Client::new(&[server], opencl_program("steady")).start();
    client.wait_for("computing");
    client
}

pub(crate) fn ends_well(mut client: Running) {
    client.go_on();
    client.finish().lines_of_success();
}

#[test]
fn busy_program_moves_back_and_forth() {
    let servers = [Server::start(), Server::start()];
    let client = steady(&servers[0]);
    for turn in 0..4 {
        moves(&servers[turn % 2], &servers[(turn + 1) % 2]);
    }
    ends_well(client);
}

/// Moves a program that holds so many MiB, and back.
fn moves_contents(servers: &[Server; 2], megabytes: &str) {
    let program = Client::new(&[&servers[0]], opencl_program("holds"));
    let mut client = program.args(&[megabytes]).start();
    client.wait_for("holds");
    moves(&servers[0], &servers[1]);
    client.go_on();
    client.wait_for("holds");
    moves(&servers[1], &servers[0]);
    client.go_on();
    client.finish().lines_of_success();
}

#[test]
fn contents_move_through_the_client_or_past_it() {
    let servers = [(); 2].map(|()| Server::start());
    // A piece and less, and several.
    for megabytes in ["1", "50"] {
        moves_contents(&servers, megabytes);
    }
    let at = free_addresses();
    let peers = [0, 1].map(|index| Server::start_at(&at[index], &["--peer", &at[1 - index]]));
    moves_contents(&peers, "50");
    assert!(peers[0].log().contains("peer lane"), "{}", peers[0].log());
}

#[test]
fn programs_move_at_any_moment() {
    let servers = [Server::start(), Server::start()];
    let mut random = Random::new();
    for (name, size) in WORKLOADS {
        let client = working(&servers[0], name, size, &mut random);
        // It may have ended before it moves, or while it does.
        for (from, to) in [(0, 1), (1, 0)] {
            if let [session] = sessions(&servers[from])[..] {
                migrate(&servers[from], session, servers[to].address());
            }
        }
        finds_right(client);
    }
}

/// A workload, at some moment of it.
pub(crate) fn working(server: &Server, name: &str, size: &str, random: &mut Random) -> Running {
    let measured = ["--size", size, "--iterations", "40", "--json"];
    let client = Client::new(&[server], workload(name)).args(&["--platform", "Towline"]);
    let client = client.args(&measured).start();
    std::thread::sleep(Duration::from_micros(random.below(300_000)));
    client
}

/// A workload ends with the right results.
pub(crate) fn finds_right(client: Running) {
    let lines = client.finish().lines_of_success();
    let is_right = |line: &String| line.contains(r#""check":"pass""#);
    assert!(lines.iter().any(is_right), "{lines:?}");
}

/// A server with a device in software.
pub(crate) fn soft() -> Server {
    Server::start_with(&["--backend", "null", "--cuda", "soft"], &[])
}

/// A CUDA program that computes until it is told to stop, and checks what it computes.
pub(crate) fn steady_cuda(server: &Server, arguments: &[&str]) -> Running {
    let program = Client::new(&[server], opencl_program("cuda_steady"));
    let mut client = program.args(arguments).start();
    client.wait_for("computing");
    client
}

type Api = (fn() -> Server, fn(&Server) -> Running);

/// Functions that start a server, and on it a program that computes until it is told to stop: of OpenCL, and of CUDA.
const APIS: [Api; 2] = [
    (Server::start, steady),
    (soft, |server| steady_cuda(server, &[])),
];

#[test]
fn busy_cuda_program_moves_back_and_forth() {
    let servers = [soft(), soft()];
    let client = steady_cuda(&servers[0], &["40"]);
    for turn in 0..4 {
        moves(&servers[turn % 2], &servers[(turn + 1) % 2]);
    }
    ends_well(client);
}

#[test]
fn cuda_programs_move_at_any_moment() {
    let servers = [soft(), soft()];
    let mut random = Random::new();
    for mode in ["asks", "none"].iter().cycle().take(8) {
        let program = Client::new(&[&servers[0]], opencl_program("cuda_steady"));
        let mut client = program.args(&["4", mode]).start();
        std::thread::sleep(Duration::from_micros(random.below(400_000)));
        for (from, to) in [(0, 1), (1, 0), (0, 1)] {
            if let [session] = sessions(&servers[from])[..] {
                let output = migrate(&servers[from], session, servers[to].address());
                assert!(output.status.success(), "{}", errors(&output));
            }
        }
        client.go_on();
        client.finish().lines_of_success();
    }
}

#[test]
fn variables_move_with_what_the_program_was_told() {
    let servers = [soft(), soft()];
    let client = steady_cuda(&servers[0], &["0", "asks"]);
    for turn in 0..3 {
        moves(&servers[turn % 2], &servers[(turn + 1) % 2]);
    }
    ends_well(client);
}

#[test]
fn cuda_program_that_cannot_move_stays() {
    let (server, other) = (soft(), soft());
    let null = Server::start_with(&["--backend", "null", "--cuda", "null"], &[]);
    let client = steady_cuda(&server, &["0", "stores"]);
    stays(&server, other.address(), "the address of a variable");
    stays(&server, null.address(), "has no device to stand for");
    assert!(has_sessions(&other, 0) && has_sessions(&null, 0));
    ends_well(client);
}

#[test]
fn session_stays_where_the_other_server_cannot_take_it() {
    let (server, other) = (Server::start(), Server::start_null());
    let client = steady(&server);
    stays(&server, other.address(), "has no device to stand for");
    stays(&server, "127.0.0.1:1", "127.0.0.1:1");
    assert!(has_sessions(&other, 0));
    ends_well(client);
}

#[test]
fn unknown_sessions_and_wrong_addresses_are_told() {
    let server = Server::start_null();
    let output = ask(&["migrate", "7", "--to", "gpu2", "--server", server.address()]);
    let said = errors(&output);
    assert!(
        said.contains("there is no session 7 that you may move"),
        "{said}"
    );
    let output = ask(&[
        "migrate",
        "7",
        "--to",
        "no/address",
        "--server",
        server.address(),
    ]);
    assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
}

#[test]
fn drained_server_ends_when_its_sessions_have_moved() {
    let (mut server, other) = (Server::start(), Server::start());
    let clients = [steady(&server), steady(&server)];
    let output = ask(&[
        "drain",
        "--json",
        "--to",
        other.address(),
        "--server",
        server.address(),
    ]);
    assert!(output.status.success(), "{}", errors(&output));
    let drained: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(
        (&drained["left"], &drained["sessions"][1]["error"]),
        (&0.into(), &().into())
    );
    assert!(server.ends_well(), "{}", server.log());
    assert!(has_sessions(&other, 2));
    clients.into_iter().for_each(ends_well);
}

#[test]
fn drained_server_waits_for_what_stays() {
    let (mut server, other) = (Server::start(), Server::start_null());
    let client = steady(&server);
    let output = ask(&[
        "drain",
        "--to",
        other.address(),
        "--server",
        server.address(),
    ]);
    assert_eq!(output.status.code(), Some(125), "{}", errors(&output));
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(told.contains("(steady): stays:"), "{told}");
    let refused = Client::new(&[&server], opencl_program("list")).run();
    assert!(
        refused.errors.contains("shutting down"),
        "{}",
        refused.errors
    );
    ends_well(client);
    assert!(server.ends_well(), "{}", server.log());
}

#[test]
fn server_that_ends_has_its_sessions_move() {
    let other = Server::start();
    let mut server = Server::start_with(&["--drain-to", other.address()], &[]);
    let clients = [steady(&server), steady(&server)];
    kill_process(server.pid(), Signal::TERM).expect("it is alive");
    assert!(server.ends_well(), "{}", server.log());
    assert!(has_sessions(&other, 2));
    clients.into_iter().for_each(ends_well);
}

#[test]
fn target_that_dies_leaves_the_session_where_it_is() {
    let mut random = Random::new();
    for (start, steady) in APIS.into_iter().cycle().take(6) {
        let (server, mut other) = (start(), start());
        let client = steady(&server);
        let moved = std::thread::scope(|scope| {
            let (address, session) = (other.address().to_owned(), only(&server));
            let server = &server;
            let moving = scope.spawn(move || migrate(server, session, &address));
            std::thread::sleep(Duration::from_micros(random.below(80_000)));
            other.kill();
            moving.join().expect("no panic")
        });
        match moved.status.success() {
            // It had moved by then, and has ended with the other server.
            true => drop(client.finish()),
            false => ends_well(client),
        }
        assert!(has_sessions(&server, 0));
    }
}

#[test]
fn client_that_dies_in_a_move_leaves_nothing() {
    let mut random = Random::new();
    for (start, steady) in APIS.into_iter().cycle().take(6) {
        let servers = [start(), start()];
        let mut client = steady(&servers[0]);
        let session = only(&servers[0]);
        std::thread::scope(|scope| {
            scope.spawn(|| migrate(&servers[0], session, servers[1].address()));
            std::thread::sleep(Duration::from_micros(random.below(80_000)));
            client.kill();
        });
        let is_empty = || servers.iter().all(|server| sessions(server).is_empty());
        assert!(holds_within(LIMIT, is_empty));
    }
}

#[test]
fn connections_may_be_cut_while_a_session_moves() {
    connections_are_cut(&[Server::start(), Server::start()], "steady");
    connections_are_cut(&[soft(), soft()], "cuda_steady");
}

fn connections_are_cut(servers: &[Server; 2], program: &str) {
    let proxies = [0, 1].map(|at| Proxy::to(servers[at].address(), None));
    let client = Client::with_options(
        &["--server", &proxies[0].address()],
        opencl_program(program),
    );
    let mut client = client.start();
    client.wait_for("computing");
    let mut random = Random::new();
    let mut at = 0;
    for _ in 0..4 {
        let (session, to) = (only(&servers[at]), proxies[1 - at].address());
        let moved = std::thread::scope(|scope| {
            let moving = scope.spawn(|| migrate(&servers[at], session, &to));
            std::thread::sleep(Duration::from_micros(random.below(60_000)));
            proxies.iter().for_each(Proxy::reset_all);
            moving.join().expect("no panic")
        });
        // A connection that is cut in its first handshake refuses the move.
        match moved.status.success() {
            true => at = 1 - at,
            false => assert!(
                errors(&moved).contains("stays where it is"),
                "{}",
                errors(&moved)
            ),
        }
    }
    ends_well(client);
}
