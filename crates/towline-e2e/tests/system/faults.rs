//! Clients, workers and servers that die.

use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{
    A_SECOND_AND_SLACK, Client, PATIENCE, Server, Usage, holds_within, is_gone, opencl_program,
    towline,
};

/// What calls answer once the session is lost: CL_DEVICE_NOT_AVAILABLE.
const LOST: [&str; 3] = ["clFinish -2", "clEnqueueReadBuffer -2", "end"];

/// Waits until a worker computes: its kernel never ends.
fn wait_until_busy(worker: Pid) {
    let before = Usage::of(worker).time;
    let busy = || Usage::of(worker).time > before + Duration::from_millis(100);
    assert!(holds_within(PATIENCE, busy), "the kernel does not run");
}

/// How many sessions `towline status` shows.
fn sessions(server: &Server) -> Option<usize> {
    let output = Command::new(towline())
        .args(["status", "--json", "--server", server.address()])
        .output();
    let status: serde_json::Value = serde_json::from_slice(&output.ok()?.stdout).ok()?;
    status[0]["sessions"].as_array().map(Vec::len)
}

/// Nothing is left of a session: no worker, no folder, no entry; and the next client is served.
fn assert_as_new(server: &Server) {
    assert!(
        holds_within(PATIENCE, || server.workers().len() == 1
            && server.worker_folders().len() == 1),
        "workers {:?}, folders {:?}",
        server.workers(),
        server.worker_folders()
    );
    let is_free = || sessions(server) == Some(0);
    assert!(
        holds_within(A_SECOND_AND_SLACK, is_free),
        "its place is taken"
    );
    Client::new(&[server], opencl_program("steady"))
        .run()
        .lines_of_success();
}

#[test]
fn client_killed_during_an_endless_kernel_frees_its_worker() {
    let server = Server::start();
    let mut client = Client::new(&[&server], opencl_program("endless")).start();
    client.wait_for("launched");
    let worker = server.worker_of(client.pid());
    wait_until_busy(worker);
    client.kill();
    assert!(
        holds_within(A_SECOND_AND_SLACK, || is_gone(worker)),
        "the worker goes on without its client"
    );
    assert_as_new(&server);
}

#[test]
fn client_killed_in_the_middle_of_a_write_frees_its_worker() {
    let server = Server::start();
    for milliseconds in [3, 20, 50] {
        let mut client = Client::new(&[&server], opencl_program("big_write")).start();
        client.wait_for("writing");
        let worker = server.worker_of(client.pid());
        std::thread::sleep(Duration::from_millis(milliseconds));
        client.kill();
        assert!(
            holds_within(A_SECOND_AND_SLACK, || is_gone(worker)),
            "the worker goes on without its client"
        );
    }
    assert_as_new(&server);
}

#[test]
fn server_killed_during_an_endless_kernel_ends_the_wait_with_an_error() {
    let mut server = Server::start();
    let mut client = Client::new(&[&server], opencl_program("endless")).start();
    client.wait_for("launched");
    let worker = server.worker_of(client.pid());
    wait_until_busy(worker);
    server.kill();
    assert!(
        holds_within(A_SECOND_AND_SLACK, || is_gone(worker)),
        "the worker goes on without its server"
    );
    let finished = client.finish();
    assert!(
        finished.errors.contains(server.address()),
        "{}",
        finished.errors
    );
    assert_eq!(finished.lines_of_success(), LOST);
}

#[test]
fn server_shut_down_during_an_endless_kernel_says_so_to_the_client() {
    let mut server = Server::start();
    let mut client = Client::new(&[&server], opencl_program("endless")).start();
    client.wait_for("launched");
    wait_until_busy(server.worker_of(client.pid()));
    assert!(server.terminate(), "{}", server.log());
    let finished = client.finish();
    assert!(
        finished.errors.contains("shutting down"),
        "{}",
        finished.errors
    );
    assert_eq!(finished.lines_of_success(), LOST);
}

#[test]
fn killed_worker_ends_its_own_session_only() {
    let server = Server::start();
    let mut bystander = Client::new(&[&server], opencl_program("steady")).start();
    bystander.wait_for("computing");
    let mut client = Client::new(&[&server], opencl_program("endless")).start();
    client.wait_for("launched");
    let worker = server.worker_of(client.pid());
    wait_until_busy(worker);
    kill_process(worker, Signal::KILL).expect("it is alive");
    let finished = client.finish();
    assert!(finished.errors.contains("SIGKILL"), "{}", finished.errors);
    assert_eq!(finished.lines_of_success(), LOST);
    bystander.go_on();
    bystander.finish().lines_of_success();
    assert_as_new(&server);
}

#[test]
fn vendor_that_aborts_ends_its_own_session_only_and_is_named() {
    let server = Server::start_null();
    let mut bystander = Client::new(&[&server], opencl_program("steady"))
        .args(&["built-in"])
        .start();
    bystander.wait_for("computing");
    let finished = Client::new(&[&server], opencl_program("crash")).run();
    assert!(finished.errors.contains("SIGABRT"), "{}", finished.errors);
    assert_eq!(finished.lines_of_success(), ["clFinish -2"]);
    bystander.go_on();
    bystander.finish().lines_of_success();
    let log = server.log();
    assert!(log.contains("towline: crash: SIGABRT in thread "), "{log}");
}

#[test]
fn server_lost_in_one_of_two_sessions_leaves_the_other() {
    let mut lost = Server::start_null();
    let kept = Server::start();
    let mut client = Client::new(&[&lost, &kept], opencl_program("half")).start();
    client.wait_for("ready");
    lost.kill();
    client.go_on();
    let lines = client.finish().lines_of_success();
    assert_eq!(lines, ["lost -2", "kept 0 7"]);
}

#[test]
fn waits_for_commands_that_fail_meanwhile_end() {
    let server = Server::start();
    let lines = Client::new(&[&server], opencl_program("fails"))
        .run()
        .lines_of_success();
    let alone = ["finish: over", "wait: over", "read: over"];
    assert_eq!(lines, [alone, alone].concat());
}
