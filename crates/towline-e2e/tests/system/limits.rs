//! Programs that exceed the limits of their sessions: each gets the driver's own error, and nobody else notices.

use std::process::Command;

use crate::support::{Client, Finished, Running, Server, is_gone, opencl_program, towline};

/// CUDA on the device in host memory, with a limit.
fn cuda_server(limit: &[&str]) -> Server {
    let arguments = [&["--backend", "off", "--cuda", "null"], limit].concat();
    Server::start_with(&arguments, &[])
}

/// A program that computes without end beside the one that exceeds a limit.
fn bystander(server: &Server) -> Running {
    let mut bystander = Client::new(&[server], opencl_program("cuda_busy"))
        .args(&["launches"])
        .start();
    bystander.wait_for("busy");
    bystander
}

fn goes_on(server: &Server, bystander: &Running) {
    let worker = server.worker_of(bystander.pid());
    assert!(!is_gone(worker), "another session went with it");
}

fn run(server: &Server, program: &str, arguments: &[&str]) -> Finished {
    Client::new(&[server], opencl_program(program))
        .args(arguments)
        .run()
}

#[test]
fn cuda_kernel_over_its_time_ends_its_session_alone() {
    let server = cuda_server(&["--kernel-time-limit", "1"]);
    let mut bystander = bystander(&server);
    let finished = run(&server, "cuda_busy", &["waits"]);
    assert!(
        finished.errors.contains("--kernel-time-limit"),
        "{}",
        finished.errors
    );
    assert_eq!(
        finished.lines_of_success(),
        ["busy", "failed 702, then 702 702 702"]
    );
    goes_on(&server, &bystander);
    bystander.kill();
}

#[test]
fn opencl_kernel_over_its_time_ends_its_session_alone() {
    let server = Server::start_with(&["--kernel-time-limit", "1"], &[]);
    let mut bystander = Client::new(&[&server], opencl_program("steady")).start();
    bystander.wait_for("computing");
    let finished = run(&server, "endless", &[]);
    assert!(
        finished.errors.contains("--kernel-time-limit"),
        "{}",
        finished.errors
    );
    assert_eq!(
        finished.lines_of_success(),
        ["launched", "clFinish -5", "clEnqueueReadBuffer -5", "end"]
    );
    bystander.go_on();
    bystander.finish().lines_of_success();
}

#[test]
fn memory_of_graphs_counts_at_the_next_allocation() {
    let arguments = [
        "--backend",
        "off",
        "--cuda",
        "soft",
        "--session-memory",
        "64M",
    ];
    let server = Server::start_with(&arguments, &[]);
    assert_eq!(
        run(&server, "cuda_graph_hoards", &[]).lines_of_success(),
        ["free 32 of 64", "besides 32, then 2"]
    );
}

#[test]
fn code_beyond_its_limit_is_refused_and_the_program_goes_on() {
    let server = cuda_server(&["--session-code", "1M"]);
    let mut bystander = bystander(&server);
    assert_eq!(
        run(&server, "cuda_loads", &[]).lines_of_success(),
        ["refused with 2", "launch 0, synchronize 0", "then 0"]
    );
    goes_on(&server, &bystander);
    bystander.kill();
}

#[test]
fn host_memory_beyond_its_limit_harms_its_session_alone() {
    let server = Server::start_with(&["--session-host-memory", "256M"], &[]);
    let mut bystander = Client::new(&[&server], opencl_program("steady")).start();
    bystander.wait_for("computing");
    let lines = run(&server, "hoards", &[]).lines_of_success();
    // By the vendor where it is asked, and the kernel ends a worker whose control group has no more.
    let refusals = [
        "refused with -4",
        "refused with -5",
        "refused with -6",
        "refused with -2",
    ];
    assert!(
        lines.len() == 1 && refusals.contains(&&*lines[0]),
        "{lines:?}"
    );
    bystander.go_on();
    bystander.finish().lines_of_success();
}

#[test]
fn status_tells_limits_and_what_enforces_them() {
    let server = cuda_server(&["--session-memory", "1G", "--session-code", "64M"]);
    let mut bystander = bystander(&server);
    let output = Command::new(towline())
        .args(["status", "--json", "--server", server.address()])
        .output();
    let output = output.expect("towline is a program").stdout;
    let status: serde_json::Value = serde_json::from_slice(&output).expect("it is JSON");
    let limits = &status[0]["sessions"][0]["limits"];
    assert_eq!(limits["device_memory_bytes"]["value"], 1 << 30);
    assert_eq!(limits["device_memory_bytes"]["enforced_by"], "worker");
    assert!(limits["device_memory_bytes"]["used"].as_u64() > Some(0));
    assert_eq!(limits["code_bytes"]["value"], 64 << 20);
    assert!(limits["code_bytes"]["used"].as_u64() > Some(0));
    assert_eq!(limits["kernel_time_ms"]["enforced_by"], "none");
    let processes = limits["processes"]["enforced_by"].as_str();
    assert!(
        matches!(processes, Some("rlimit" | "cgroup" | "none")),
        "{limits}"
    );
    bystander.kill();
}
