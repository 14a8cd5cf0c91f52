//! Programs that exceed the limits of their sessions: each gets the driver's own error, and nobody else notices.

use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Pid;
use serde_json::Value;

use crate::support::{
    Client, Finished, PATIENCE, Running, Server, family, holds_within, is_gone, opencl_program,
    towline,
};

/// How long a session that computes may take for its next answer beside a hostile one, on two busy cores.
const ANSWER: Duration = Duration::from_secs(20);

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

fn status_of(server: &Server) -> Value {
    let output = Command::new(towline())
        .args(["status", "--json", "--server", server.address()])
        .output();
    let output = output.expect("towline is a program").stdout;
    serde_json::from_slice(&output).expect("it is JSON")
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

/// A server with small limits of what native code takes of the host, a session on it that computes, and one that exhausts something.
struct Exhausted {
    server: Server,
    bystander: Option<Running>,
    hostile: Running,
    /// The hostile session's processes at the worst.
    processes: Vec<Pid>,
}

impl Exhausted {
    fn start(what: &str, limits: &[&str]) -> Self {
        let server = Server::start_with(limits, &[]);
        let mut bystander = Client::new(&[&server], opencl_program("steady")).start();
        bystander.wait_for("computing");
        let hostile = Client::new(&[&server], opencl_program("exhausts"));
        let mut hostile = hostile.args(&[what]).start();
        hostile.wait_for("launched");
        Self {
            server,
            bystander: Some(bystander),
            hostile,
            processes: Vec::new(),
        }
    }

    /// The kernel's fate.
    fn outcome(&mut self) -> String {
        let outcome = self.hostile.wait_for_word("exhausted");
        self.processes = family(self.server.worker_of(self.hostile.pid()));
        outcome
    }

    /// The bystander's results are right, and it ends in time.
    fn bystander_answers(&mut self) {
        let asked = Instant::now();
        let mut bystander = self.bystander.take().expect("it is asked once");
        bystander.go_on();
        bystander.finish().lines_of_success();
        assert!(asked.elapsed() < ANSWER, "{:?}", asked.elapsed());
    }

    /// The server gets all back, and goes on.
    fn leaves_nothing(self) -> Finished {
        let finished = self.hostile.finish();
        let gone = holds_within(PATIENCE, || self.processes.iter().all(|pid| is_gone(*pid)));
        // Its files lie in a file system that ends with these.
        assert!(gone, "some of {:?} are left", self.processes);
        let tidy = holds_within(PATIENCE, || self.server.worker_folders().len() <= 2);
        assert!(tidy, "{:?}", self.server.worker_folders());
        let next = Client::new(&[&self.server], opencl_program("steady")).run();
        next.lines_of_success();
        finished
    }
}

#[test]
fn kernel_that_forks_without_end_is_refused_processes() {
    let mut exhausted = Exhausted::start("processes", &["--session-processes", "64"]);
    assert_eq!(exhausted.outcome(), "with -11, refused 100 times");
    let count = exhausted.processes.len();
    assert!((2..=64).contains(&count), "{count} processes");
    exhausted.bystander_answers();
    exhausted.leaves_nothing();
}

#[test]
fn kernel_that_starts_threads_without_end_is_refused_some() {
    let mut exhausted = Exhausted::start("threads", &["--session-processes", "64"]);
    assert_eq!(exhausted.outcome(), "with -11, refused 100 times");
    exhausted.bystander_answers();
    exhausted.leaves_nothing();
}

#[test]
fn kernel_that_fills_temporary_storage_is_refused_space() {
    let mut exhausted = Exhausted::start("files", &["--session-temporary-storage", "16M"]);
    assert_eq!(exhausted.outcome(), "with -28, refused 100 times");
    exhausted.bystander_answers();
    exhausted.leaves_nothing();
}

#[test]
fn kernel_that_fills_host_memory_harms_its_session_alone() {
    let mut exhausted = Exhausted::start("memory", &["--session-host-memory", "256M"]);
    let outcome = exhausted.outcome();
    // Of a control group's memory the kernel refuses none: it ends the session.
    assert!(
        outcome == "with -12, refused 100 times" || outcome.starts_with("with status -"),
        "{outcome}"
    );
    exhausted.bystander_answers();
    exhausted.leaves_nothing();
}

#[test]
fn kernel_that_burns_all_processors_leaves_others_their_share() {
    let limits = ["--session-processes", "64", "--kernel-time-limit", "8"];
    let mut exhausted = Exhausted::start("processors", &limits);
    // Its threads start meanwhile.
    std::thread::sleep(Duration::from_secs(2));
    exhausted.bystander_answers();
    // Where it has taken all threads, none is left to tell the first: the session's end does.
    let outcome = exhausted.outcome();
    let ends = ["with status -5", "with status -2"];
    assert!(ends.contains(&&*outcome), "{outcome}");
    let errors = exhausted.leaves_nothing().errors;
    assert!(errors.contains("--kernel-time-limit"), "{errors}");
}

#[test]
fn kernel_that_opens_files_without_end_is_refused_some() {
    let mut exhausted = Exhausted::start("descriptors", &["--session-descriptors", "128"]);
    assert_eq!(exhausted.outcome(), "with -24, refused 100 times");
    exhausted.bystander_answers();
    exhausted.leaves_nothing();
}

#[test]
fn kernel_that_floods_the_log_is_cut_short() {
    let mut exhausted = Exhausted::start("log", &[]);
    assert_eq!(exhausted.outcome(), "with 0, refused 0 times");
    let cut = || exhausted.server.log().contains("lines were dropped");
    assert!(holds_within(PATIENCE, cut), "{}", exhausted.server.log());
    assert!(exhausted.server.log().len() < 256 << 10);
    exhausted.bystander_answers();
    exhausted.leaves_nothing();
}

#[test]
fn device_memory_is_limited_to_what_devices_have_by_default() {
    let options = ["--backend", "off", "--cuda", "soft", "--soft-memory", "64M"];
    let server = Server::start_with(&options, &[]);
    let session = Client::new(&[&server], opencl_program("cuda_takes"));
    let mut session = session.args(&["64"]).start();
    session.wait_for_word("has");
    let status = status_of(&server);
    let limit = &status[0]["sessions"][0]["limits"]["device_memory_bytes"];
    assert_eq!(limit["value"], 64 << 20);
    assert_eq!(limit["enforced_by"], "worker");
}

#[test]
fn status_tells_limits_and_what_enforces_them() {
    let server = cuda_server(&["--session-memory", "1G", "--session-code", "64M"]);
    let mut bystander = bystander(&server);
    let status = status_of(&server);
    let limits = &status[0]["sessions"][0]["limits"];
    assert_eq!(limits["device_memory_bytes"]["value"], 1 << 30);
    assert_eq!(limits["device_memory_bytes"]["enforced_by"], "worker");
    assert!(limits["device_memory_bytes"]["used"].as_u64() > Some(0));
    assert_eq!(limits["code_bytes"]["value"], 64 << 20);
    assert!(limits["code_bytes"]["used"].as_u64() > Some(0));
    assert_eq!(limits["kernel_time_ms"]["enforced_by"], "none");
    assert_eq!(limits["offers"]["enforced_by"], "server");
    assert_eq!(limits["log_lines"]["value"], 200);
    let server_limits = &status[0]["limits"];
    assert_eq!(server_limits["sessions"]["used"], 1);
    assert_eq!(server_limits["lanes_ms"]["value"], 20_000);
    let processes = limits["processes"]["enforced_by"].as_str();
    assert!(
        matches!(processes, Some("rlimit" | "cgroup" | "none")),
        "{limits}"
    );
    bystander.kill();
}
