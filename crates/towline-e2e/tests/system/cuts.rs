//! Whole programs over connections that break at random bytes, and with workers that die at random times: right bytes, or, where sessions do
//! not outlive cuts, an error.

use std::os::unix::fs::PermissionsExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::process::{Signal, kill_process};

use crate::support::{
    Break, Client, Cut, Finished, Proxy, Random, Server, Towards, holds_within, is_gone,
    opencl_program, towline,
};

/// Programs at the same time.
const AT_ONCE: usize = 3;
/// What a program ends with that could not begin, and says why on standard error.
const COULD_NOT_BEGIN: i32 = 3;

/// The cost of a cut.
#[derive(Clone, Copy, PartialEq)]
enum Cost {
    /// No more than time, once the session has begun.
    Time,
    /// The session, perhaps.
    Session,
}

/// What is wrong with how a program ended.
fn complaint(finished: &Finished, cost: Cost) -> Option<String> {
    let last = finished
        .lines
        .last()
        .map(String::as_str)
        .unwrap_or_default();
    let accounted = match finished.status.code() {
        Some(0) => {
            let failed = |line: &String| line.starts_with("failed: ");
            last == "right" || (cost == Cost::Session && finished.lines.iter().any(failed))
        }
        Some(COULD_NOT_BEGIN) => !finished.errors.is_empty(),
        _ => false,
    };
    (!accounted).then(|| {
        format!(
            "{}: {:?}, {}",
            finished.status, finished.lines, finished.errors
        )
    })
}

/// Ways to cut a connection, some more often than others.
const CUTS: [Break; 4] = [
    Break::Reset,
    Break::Reset,
    Break::ResetAll,
    Break::HalfClose,
];

/// Runs a program over so many connections that break at random bytes.
fn cut_at_random(server: &Server, program: &str, count: usize, cost: Cost) {
    break_at_random(server, &[], program, count, &CUTS, cost);
}

/// The same, with further options of the program, and of these kinds.
fn break_at_random(
    server: &Server,
    more: &[&str],
    program: &str,
    count: usize,
    kinds: &[Break],
    cost: Cost,
) {
    let sound = Proxy::to(server.address(), None);
    let run = |proxy: &Proxy| {
        let address = proxy.address();
        let options = [&["--server", &address], more].concat();
        Client::with_options(&options, opencl_program(program)).run()
    };
    let lines = run(&sound).lines_of_success();
    assert_eq!(lines.last().map(String::as_str), Some("right"));
    let traffic = sound.traffic();
    let mut random = Random::new();
    let cuts: Vec<Cut> = (0..count)
        .map(|_| {
            let connection = random.below(traffic.len() as u64) as usize;
            let towards = [Towards::Client, Towards::Server][random.below(2) as usize];
            Cut {
                connection,
                towards,
                at_bytes: random.below(traffic[connection][towards as usize]),
                kind: kinds[random.below(kinds.len() as u64) as usize],
            }
        })
        .collect();
    let (next, struck) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let found = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(cut) = cuts.get(next.fetch_add(1, Ordering::SeqCst)) {
                    let proxy = Proxy::to(server.address(), Some(*cut));
                    let complaint = complaint(&run(&proxy), cost);
                    struck.fetch_add(usize::from(proxy.struck()), Ordering::SeqCst);
                    if let Some(complaint) = complaint {
                        let mut found = found.lock().expect("no thread panics with it");
                        found.push(format!("{cut:?}: {complaint}"));
                    }
                }
            });
        }
    });
    let found = found.into_inner().expect("no thread panics with it");
    assert!(found.is_empty(), "{program}:\n{}", found.join("\n"));
    // How much goes over which connection differs from run to run.
    let struck = struck.into_inner();
    assert!(struck * 2 > count, "only {struck} of {count} cuts struck");
}

/// Runs a program whose worker is killed at a random time.
fn killed_at_random(server: &Server, address: &str, program: &str, count: usize) {
    let mut random = Random::new();
    for _ in 0..count {
        let options = ["--server", address];
        let mut client = Client::with_options(&options, opencl_program(program)).start();
        client.wait_for("start");
        let worker = server.worker_of(client.pid());
        std::thread::sleep(Duration::from_micros(random.below(40_000)));
        // The program, and its worker, may have ended.
        let _ = kill_process(worker, Signal::KILL);
        let finished = client.finish();
        let complaint = complaint(&finished, Cost::Session);
        assert_eq!(complaint, None, "{program}");
    }
}

fn null_server(grace: &str) -> Server {
    let options = ["--backend", "null", "--cuda", "null", "--grace", grace];
    Server::start_with(&options, &[])
}

/// Of sessions that end with their connections, and of others.
const NONE: &str = "0";
const LONG: &str = "60";

#[test]
fn opencl_program_over_connections_cut_at_random_is_right_or_told() {
    cut_at_random(&null_server(NONE), "transfers", 75, Cost::Session);
}

#[test]
fn opencl_program_over_connections_cut_at_random_goes_on() {
    cut_at_random(&null_server(LONG), "transfers", 75, Cost::Time);
}

#[test]
fn pocl_program_over_cut_connections_goes_on() {
    cut_at_random(&Server::start(), "transfers", 40, Cost::Time);
}

#[test]
fn cuda_program_over_connections_cut_at_random_is_right_or_told() {
    cut_at_random(&null_server(NONE), "cuda_transfers", 75, Cost::Session);
}

#[test]
fn cuda_program_over_connections_cut_at_random_goes_on() {
    cut_at_random(&null_server(LONG), "cuda_transfers", 75, Cost::Time);
}

/// Has a program compute, and check after each step, while its connections are cut again and again.
fn cut_while_computing(count: usize) {
    let server = Server::start();
    let proxy = Proxy::to(server.address(), None);
    let address = proxy.address();
    let mut client =
        Client::with_options(&["--server", &address], opencl_program("steady")).start();
    client.wait_for("computing");
    let mut random = Random::new();
    for _ in 0..count {
        std::thread::sleep(Duration::from_millis(random.below(60)));
        proxy.reset_all();
    }
    client.go_on();
    client.finish().lines_of_success();
}

#[test]
fn computing_goes_on_through_fifty_cuts() {
    cut_while_computing(50);
}

#[test]
#[ignore = "takes minutes"]
fn computing_goes_on_through_a_thousand_cuts() {
    cut_while_computing(1000);
}

#[test]
fn program_whose_link_is_away_waits_and_says_so() {
    let server = Server::start();
    let proxy = Proxy::to(server.address(), None);
    let address = proxy.address();
    let mut client =
        Client::with_options(&["--server", &address], opencl_program("steady")).start();
    client.wait_for("computing");
    proxy.set_away(true);
    let status = || {
        let asked = std::process::Command::new(towline())
            .args(["status", "--json", "--server", server.address()])
            .output();
        let told = asked.expect("towline is there").stdout;
        String::from_utf8(told).expect("it writes text")
    };
    let is_away = || !status().contains("\"away_ms\": 0,");
    assert!(holds_within(LIMIT, is_away), "{}", status());
    proxy.set_away(false);
    assert!(holds_within(LIMIT, || !is_away()), "{}", status());
    client.go_on();
    let finished = client.finish();
    assert!(
        finished.errors.contains("waiting up to 60 s") && finished.errors.contains("goes on after"),
        "{}",
        finished.errors
    );
    finished.lines_of_success();
}

/// Longer than anything takes that is waited for.
const LIMIT: Duration = Duration::from_secs(30);

#[test]
fn session_that_is_away_for_too_long_ends_with_an_error() {
    let server = Server::start_with(&["--grace", "1"], &[]);
    let proxy = Proxy::to(server.address(), None);
    let address = proxy.address();
    let mut client =
        Client::with_options(&["--server", &address], opencl_program("steady")).start();
    client.wait_for("computing");
    let worker = server.worker_of(client.pid());
    proxy.set_away(true);
    // A program that is told to end at once may not need its session any more.
    assert!(holds_within(LIMIT, || is_gone(worker)));
    let finished = client.finish();
    assert_ne!(finished.status.code(), Some(0), "{}", finished.errors);
    assert!(
        finished.errors.contains("lost the session"),
        "{}",
        finished.errors
    );
}

/// A program of another host, as its server sees it.
fn elsewhere(server: &Server, program: &std::path::Path) -> Client {
    let alone: &[&str] = match rustix::process::geteuid().is_root() {
        true => &["--uts"],
        false => &["--user", "--map-root-user", "--uts"],
    };
    let program = program.to_str().expect("paths of the build are text");
    let client = Client::new(&[server], "unshare").args(alone);
    client.args(&["sh", "-c", "hostname elsewhere && exec \"$0\"", program])
}

#[test]
fn program_that_ends_elsewhere_is_not_waited_for() {
    for program in ["list", "cuda_add"] {
        let server = Server::start_with(&["--backend", "null", "--cuda", "null"], &[]);
        elsewhere(&server, &opencl_program(program))
            .run()
            .lines_of_success();
        let has_ended = || server.log().contains("session 1: ended");
        // Sooner than the time of grace.
        assert!(holds_within(LIMIT, has_ended), "{}", server.log());
    }
}

/// A server with a token, and what its clients are told.
fn encrypting_server(grace: &str) -> (Server, tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("room for temporary files");
    let path = folder.path().join("token");
    std::fs::write(&path, "a token of the server and its clients").expect("room for a file");
    let mine = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(&path, mine).expect("the file is ours");
    let token = path.to_str().expect("plain letters").to_owned();
    let options = ["--backend", "null", "--cuda", "null", "--grace", grace];
    let options = [&options[..], &["--token-file", &token]].concat();
    (Server::start_with(&options, &[]), folder, token)
}

#[test]
fn programs_over_cut_or_changed_encryption_are_right_or_told() {
    let (server, _folder, token) = encrypting_server(NONE);
    let token = ["--token-file", &token];
    for (program, kinds) in ENCRYPTED {
        break_at_random(&server, &token, program, 20, kinds, Cost::Session);
    }
}

#[test]
fn programs_over_cut_or_changed_encryption_go_on() {
    let (server, _folder, token) = encrypting_server(LONG);
    let token = ["--token-file", &token];
    for (program, kinds) in ENCRYPTED {
        break_at_random(&server, &token, program, 20, kinds, Cost::Time);
    }
}

/// Programs, and how their connections break.
const ENCRYPTED: [(&str, &[Break]); 4] = [
    ("transfers", &CUTS),
    ("transfers", &[Break::Flip]),
    ("cuda_transfers", &CUTS),
    ("cuda_transfers", &[Break::Flip]),
];

#[test]
fn program_whose_worker_is_killed_is_right_or_told() {
    let folder = tempfile::tempdir().expect("room for temporary files");
    let address = format!("shm://{}/socket", folder.path().display());
    let arguments = ["--listen", &address, "--backend", "null", "--cuda", "null"];
    let server = Server::start_with(&arguments, &[]);
    for program in ["transfers", "cuda_transfers"] {
        killed_at_random(&server, &address, program, 10);
    }
}

#[test]
#[ignore = "takes minutes"]
fn programs_over_500_connections_cut_at_random_are_right_or_told() {
    for (grace, cost) in [(NONE, Cost::Session), (LONG, Cost::Time)] {
        let server = null_server(grace);
        cut_at_random(&server, "transfers", 250, cost);
        cut_at_random(&server, "cuda_transfers", 250, cost);
    }
}
