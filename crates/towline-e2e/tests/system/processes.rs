//! Programs as processes: status, signals, fork, exit, and what is left of them.

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;

use crate::support::{Client, PATIENCE, Server, holds_within, opencl_program};

#[test]
fn exit_status_and_signals_are_the_programs_own() {
    let server = Server::start_null();
    let run = |script: &str| {
        Client::new(&[&server], "sh")
            .args(&["-c", script])
            .run()
            .status
    };
    assert_eq!(run("exit 42").code(), Some(42));
    assert_eq!(run("kill -TERM $$").signal(), Some(15));
}

#[test]
fn signal_reaches_the_program_under_towline_run() {
    let server = Server::start_null();
    let script = "trap 'echo caught; exit 9' USR1; echo ready; while :; do sleep 0.05; done";
    let mut client = Client::new(&[&server], "sh").args(&["-c", script]).start();
    client.wait_for("ready");
    rustix::process::kill_process(client.pid(), rustix::process::Signal::USR1)
        .expect("it is alive");
    let finished = client.finish();
    assert_eq!(
        (finished.status.code(), finished.lines.as_slice()),
        (Some(9), &["caught".to_owned()][..])
    );
}

#[test]
fn child_after_fork_gets_errors_and_the_parent_goes_on() {
    let server = Server::start();
    let finished = Client::new(&[&server], opencl_program("forks")).run();
    assert!(
        finished.errors.contains("used before fork"),
        "{}",
        finished.errors
    );
    let lines = finished.lines_of_success();
    assert_eq!(lines[1..], ["child's status 0", "parent: 2 2"], "{lines:?}");
}

/// Whose thread holds the loader's lock: UCX's part for CUDA calls cuInit in its constructor.
#[test]
fn constructor_of_a_library_that_is_being_loaded_can_use_devices() {
    let start = || Server::start_with(&["--backend", "null", "--cuda", "null"], &[]);
    let (first, second) = (start(), start());
    let library = opencl_program("starts.so");
    let library = library.to_str().expect("paths of the build are text");
    let said = |servers: &[&Server], what: &str| {
        let client = Client::new(servers, opencl_program("loads")).args(&[library, what]);
        client.run().lines_of_success()
    };
    for (what, with_one, with_two) in [
        ("cuda", "cuda: a device, 7", "cuda: a device, 7"),
        ("nvml", "nvml: 0", "nvml: 0"),
        ("opencl", "opencl: 1 devices", "opencl: 2 devices"),
    ] {
        assert_eq!(said(&[&first], what), [with_one, "loaded"]);
        assert_eq!(said(&[&first, &second], what), [with_two, "loaded"]);
    }
}

#[test]
fn program_leaves_with_work_under_way() {
    let server = Server::start();
    let finished = Client::new(&[&server], opencl_program("leaves"))
        .args(&["at-once"])
        .run();
    assert_eq!(finished.status.code(), Some(5), "{}", finished.errors);
}

#[test]
fn program_leaves_although_its_server_is_gone() {
    let mut server = Server::start();
    let mut client = Client::new(&[&server], opencl_program("leaves")).start();
    client.wait_for("ready");
    server.kill();
    client.go_on();
    assert_eq!(client.finish().status.code(), Some(5));
}

#[test]
fn nothing_is_left_behind_by_programs_and_servers() {
    let mut server = Server::start();
    let finished = Client::new(&[&server], opencl_program("trap")).run();
    assert!(finished.status.success(), "{}", finished.errors);
    assert_eq!(finished.left_behind, Vec::<PathBuf>::new());
    // The next session's worker may be starting; the last one's is gone.
    assert!(
        holds_within(PATIENCE, || server.workers().len() == 1
            && server.worker_folders().len() == 1),
        "workers {:?}, folders {:?}",
        server.workers(),
        server.worker_folders()
    );
    assert!(server.terminate(), "{}", server.log());
    assert_eq!(server.runtime_folders(), Vec::<PathBuf>::new());
}
