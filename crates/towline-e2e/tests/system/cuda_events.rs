//! Events that CUDA programs of one server share, and programs that die with work before them.

use rustix::process::{Signal, kill_process};

use crate::support::{Client, PATIENCE, Running, Server, holds_within, opencl_program};

fn server() -> Server {
    Server::start_with(&["--backend", "null", "--cuda", "null"], &[])
}

/// A program that shares an event: its own, or the one of this handle.
fn program(server: &Server, arguments: &[&str]) -> Running {
    Client::new(&[server], opencl_program("cuda_shares"))
        .args(arguments)
        .start()
}

/// How the program that has recorded ends.
type End = fn(&Server, &mut Running);

const ENDS: [(&str, End); 3] = [
    ("its client is killed", |_, program| program.kill()),
    ("its worker is killed", |server, program| {
        let worker = server.worker_of(program.pid());
        kill_process(worker, Signal::KILL).expect("it is alive");
    }),
    ("it leaves", |_, program| program.go_on()),
];

#[test]
fn nobody_waits_for_an_event_that_a_program_recorded_which_has_ended_since() {
    let server = server();
    for (how, end) in ENDS {
        let mut owner = program(&server, &["waits"]);
        let handle = owner.wait_for_word("handle");
        let mut recorder = program(&server, &["records", &handle]);
        let mut other = program(&server, &["waits", &handle]);
        recorder.wait_for("recorded");
        other.wait_for("opened");
        for waiting in [&mut owner, &mut other] {
            waiting.go_on();
            waiting.wait_for("state 600");
            waiting.wait_for("waits");
        }
        end(&server, &mut recorder);
        for waiting in [owner, other] {
            assert_eq!(waiting.finish().lines_of_success(), ["passed"], "{how}");
        }
    }
}

#[test]
fn the_end_of_an_events_owner_leaves_what_others_have_recorded() {
    let server = server();
    let mut owner = program(&server, &["waits"]);
    let handle = owner.wait_for_word("handle");
    let mut recorder = program(&server, &["records", &handle]);
    let mut other = program(&server, &["waits", &handle]);
    recorder.wait_for("recorded");
    other.wait_for("opened");
    owner.kill();
    let ended = || server.log().contains(": ended after");
    assert!(holds_within(PATIENCE, ended), "{}", server.log());
    other.go_on();
    other.wait_for("state 600");
    other.wait_for("waits");
    recorder.kill();
    assert_eq!(other.finish().lines_of_success(), ["passed"]);
}
