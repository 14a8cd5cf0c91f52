//! Device time of sessions, in the audit log and in `towline status`.

use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{Client, PATIENCE, Server, holds_within, opencl_program, towline};

/// Error of the time that one busy stretch counts, in milliseconds: a look each 10 ms, on a machine with more to do.
const TOLERANCE: u64 = 60;

/// A server that tells of its sessions.
struct Audited {
    server: Server,
    folder: TempDir,
}

impl Audited {
    fn start(arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("room for temporary files");
        let file = folder.path().join("audit");
        let file = ["--audit-log", file.to_str().expect("plain letters")];
        let server = Server::start_with(&[arguments, &file].concat(), &[]);
        Self { server, folder }
    }

    /// Milliseconds of the only session, as `towline status` tells them.
    fn told(&self) -> u64 {
        let output = Command::new(towline())
            .args(["status", "--json", "--server", self.server.address()])
            .output();
        let output = output.expect("towline is a program").stdout;
        let status: Value = serde_json::from_slice(&output).expect("it is JSON");
        let session = &status[0]["sessions"][0];
        session["device_time_ms"].as_u64().expect("a number")
    }

    /// Milliseconds of the only session, as the audit log tells them once it has ended.
    fn audited(&self) -> u64 {
        let mut found = None;
        holds_within(PATIENCE, || {
            let text = std::fs::read_to_string(self.folder.path().join("audit"));
            let text = text.unwrap_or_default();
            let lines = text.lines().map(serde_json::from_str::<Value>);
            let lines = lines.map(|line| line.expect("JSON"));
            found = lines
                .filter(|line| line["event"] == "session_ended")
                .find_map(|line| line["device_seconds"].as_f64());
            found.is_some()
        });
        (found.expect("the session has ended") * 1000.0) as u64
    }
}

/// Kernels that run side by side for a time.
fn takes_time(arguments: &[&str], options: &[&str]) {
    let audited = Audited::start(options);
    let program = Client::new(&[&audited.server], opencl_program("takes_time"));
    let mut program = program.args(arguments).start();
    let took: u64 = program.wait_for_word("took").parse().expect("a number");
    let wanted = 600 - TOLERANCE..=took + TOLERANCE;
    std::thread::sleep(Duration::from_millis(200));
    let told = audited.told();
    assert!(wanted.contains(&told), "{told} ms of {took}");
    // At rest nothing comes besides.
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(audited.told(), told);
    program.go_on();
    program.finish().lines_of_success();
    assert_eq!(audited.audited(), told);
}

#[test]
fn opencl_kernels_side_by_side_count_once() {
    takes_time(&["3", "600", "built-in"], &["--backend", "null"]);
}

#[test]
fn opencl_kernel_counts_for_as_long_as_it_runs() {
    takes_time(&["1", "600"], &[]);
}

#[test]
fn session_that_computes_nothing_has_no_device_time() {
    let audited = Audited::start(&["--backend", "null"]);
    let program = Client::new(&[&audited.server], opencl_program("list"));
    program.run().lines_of_success();
    assert_eq!(audited.audited(), 0);
}

#[test]
fn cuda_kernel_that_ends_its_session_is_counted() {
    let options = ["--backend", "off", "--cuda", "null"];
    let audited = Audited::start(&[&options[..], &["--kernel-time-limit", "1"]].concat());
    let program = Client::new(&[&audited.server], opencl_program("cuda_busy"));
    program.args(&["waits"]).run().lines_of_success();
    let counted = audited.audited();
    // The watchdog looks eight times in the limit.
    let wanted = 1000 - TOLERANCE..=1250 + 4 * TOLERANCE;
    assert!(wanted.contains(&counted), "{counted} ms");
}
