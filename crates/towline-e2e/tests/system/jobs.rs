//! Programs that ask for collectives: which job their sessions belong to.

use std::path::Path;

use serde_json::Value;

use crate::support::{Client, Server, opencl_program};

/// A server of the device in host memory, and the file of its audit log.
fn server(folder: &Path, options: &[&str]) -> Server {
    let log = folder.join("audit");
    let log = log.to_str().expect("temporary files have plain names");
    let arguments = ["--backend", "off", "--cuda", "null", "--audit-log", log];
    Server::start_with(
        &[&arguments[..], options].concat(),
        &[("NCCL_DEBUG", "WARN")],
    )
}

/// Runs a program to its end, with these variables.
fn run(server: &Server, variables: &[(&str, &str)]) {
    let client = Client::new(&[server], opencl_program("cuda_add"));
    let client = variables
        .iter()
        .fold(client, |client, (name, value)| client.env(name, value));
    client.run().lines_of_success();
}

/// The jobs of all sessions so far, in the order of the sessions.
fn jobs(folder: &Path) -> Vec<Option<String>> {
    let text = std::fs::read_to_string(folder.join("audit")).expect("the server writes it");
    let events = text.lines().map(|line| {
        let event: Value = serde_json::from_str(line).expect("a line is JSON");
        event
    });
    let begun = events.filter(|event| event["event"] == "session_started");
    begun
        .map(|event| event["job"].as_str().map(str::to_owned))
        .collect()
}

#[test]
fn sessions_belong_to_the_job_they_name() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path(), &["--collectives"]);
    let asks = ("TOWLINE_COLLECTIVES", "1");
    run(&server, &[asks, ("TOWLINE_JOB", "train")]);
    run(
        &server,
        &[asks, ("SLURM_JOB_ID", "7"), ("SLURM_STEP_ID", "0")],
    );
    run(&server, &[("TOWLINE_JOB", "train")]);
    let expected = [Some("train"), Some("slurm-7-0"), None];
    assert_eq!(
        jobs(folder.path()),
        expected.map(|job| job.map(str::to_owned))
    );
}

#[test]
fn server_without_collectives_ignores_jobs() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path(), &[]);
    run(
        &server,
        &[("TOWLINE_COLLECTIVES", "1"), ("TOWLINE_JOB", "train")],
    );
    assert_eq!(jobs(folder.path()), [None]);
}
