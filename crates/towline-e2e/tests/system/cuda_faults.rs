//! CUDA programs, workers and servers that die while there is much to do, and children after fork.

use std::time::Duration;

use rustix::process::{Signal, kill_process};

use crate::support::{
    A_SECOND_AND_SLACK, Client, PATIENCE, Server, holds_within, is_gone, opencl_program,
};

/// What the program can be busy with.
const MODES: [&str; 5] = ["launches", "copies", "captures", "records", "waits"];
/// What it says once its session is lost: CUDA_ERROR_DEVICE_UNAVAILABLE, from every call.
const LOST: [&str; 1] = ["failed 46, then 46 46 46"];

fn server() -> Server {
    Server::start_with(&["--backend", "null", "--cuda", "null"], &[])
}

fn computes(server: &Server) {
    let lines = Client::new(&[server], opencl_program("cuda_forks")).run();
    assert!(lines.lines_of_success().contains(&"parent: 2 2".to_owned()));
}

#[test]
fn cuda_client_killed_in_a_launch_storm_a_copy_or_a_capture_frees_its_worker() {
    let server = server();
    for mode in MODES {
        for milliseconds in [0, 7, 40] {
            let mut client = Client::new(&[&server], opencl_program("cuda_busy"))
                .args(&[mode])
                .start();
            client.wait_for("busy");
            let worker = server.worker_of(client.pid());
            std::thread::sleep(Duration::from_millis(milliseconds));
            client.kill();
            assert!(
                holds_within(A_SECOND_AND_SLACK, || is_gone(worker)),
                "{mode}: the worker goes on without its client"
            );
        }
    }
    // One for each API is kept ready.
    assert!(
        holds_within(PATIENCE, || server.workers().len() <= 2),
        "workers {:?}",
        server.workers()
    );
    computes(&server);
}

#[test]
fn cuda_worker_killed_in_a_launch_storm_a_copy_or_a_capture_fails_every_call_of_its_client_alone() {
    let server = server();
    let mut bystander = Client::new(&[&server], opencl_program("cuda_busy"))
        .args(&["launches"])
        .start();
    bystander.wait_for("busy");
    for mode in MODES {
        let mut client = Client::new(&[&server], opencl_program("cuda_busy"))
            .args(&[mode])
            .start();
        client.wait_for("busy");
        let worker = server.worker_of(client.pid());
        kill_process(worker, Signal::KILL).expect("it is alive");
        let finished = client.finish();
        assert!(
            finished.errors.contains("SIGKILL"),
            "{mode}: {}",
            finished.errors
        );
        assert_eq!(finished.lines_of_success(), LOST, "{mode}");
    }
    let worker = server.worker_of(bystander.pid());
    assert!(!is_gone(worker), "another session went with them");
    bystander.kill();
    computes(&server);
}

#[test]
fn cuda_server_that_disappears_fails_every_call_and_hangs_none() {
    // Most of each is waiting.
    std::thread::scope(|scope| {
        for mode in MODES {
            scope.spawn(move || loses_its_server(mode));
        }
    });
}

fn loses_its_server(mode: &str) {
    let mut server = server();
    let mut client = Client::new(&[&server], opencl_program("cuda_busy"))
        .args(&[mode])
        .start();
    client.wait_for("busy");
    server.kill();
    let finished = client.finish();
    assert!(
        finished.errors.contains(server.address()),
        "{mode}: {}",
        finished.errors
    );
    assert_eq!(finished.lines_of_success(), LOST, "{mode}");
}

#[test]
fn version_alone_does_not_initialise_cuda() {
    let server = Server::start_with(&["--backend", "null", "--cuda", "soft:2"], &[]);
    let lines = Client::new(&[&server], opencl_program("cuda_forks"))
        .args(&["version"])
        .run()
        .lines_of_success();
    let expected = [
        "child: 1 devices",
        "child's status 0",
        "parent: 2 devices of a known version: 1",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn child_after_fork_is_not_initialised_for_cuda_and_the_parent_goes_on() {
    let server = server();
    let finished = Client::new(&[&server], opencl_program("cuda_forks")).run();
    assert!(
        finished.errors.contains("used before fork"),
        "{}",
        finished.errors
    );
    let expected = [
        "child: allocate 3, launch 3, copy 3, synchronise 3, stream 3, init 3",
        "child: CUDA_ERROR_NOT_INITIALIZED is told: 1",
        "child's status 0",
        "parent: 2 2",
    ];
    assert_eq!(finished.lines_of_success(), expected);
}
