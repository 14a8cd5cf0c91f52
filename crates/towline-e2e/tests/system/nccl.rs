//! Towline's NCCL library: who finds it, and how it finds the driver library.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use towline_api::emit::nccl as emit;

use crate::support::{Client, Running, Server, forget_surroundings, opencl_program, towline};

/// Asks for collectives, as 1.
const COLLECTIVES: &str = "TOWLINE_COLLECTIVES";

fn server(options: &[&str]) -> Server {
    Server::start_with(
        &[&["--backend", "off", "--cuda", "soft:1"], options].concat(),
        &[],
    )
}

/// The first line of `nccl_finds` under `towline run`, started by a shell.
fn found_by(server: &Server, option: &[&str], collectives: &str, script: &str) -> String {
    let options = [option, &["--server", server.address()]].concat();
    let program = opencl_program("nccl_finds");
    let client = Client::with_options(&options, "sh").args(&["-c", script]);
    let client = client.env(COLLECTIVES, collectives);
    let finished = client.env("PROGRAM", program).run();
    assert_eq!(finished.errors, "");
    let lines = finished.lines_of_success();
    lines.first().cloned().unwrap_or_default()
}

const START: &str = r#"exec "$PROGRAM""#;

#[test]
fn every_declared_function_is_found_beside_the_driver() {
    let declared = towline_api::runtime::load(&towline_api::root(), "nccl").expect("it is valid");
    let names = emit::symbols(&declared).into_iter().map(|(name, _)| name);
    let folder = tempfile::tempdir().expect("room for a folder");
    for (name, library) in [
        ("libnccl.so.2", "libtowline_nccl.so"),
        ("libcuda.so.1", "libtowline_cuda.so"),
    ] {
        let library = towline().with_file_name(library);
        symlink(library, folder.path().join(name)).expect("room for a link");
    }
    let mut command = Command::new(opencl_program("nccl_finds"));
    forget_surroundings(&mut command);
    let output = command
        .args(names)
        .env("LD_LIBRARY_PATH", folder.path())
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.starts_with("Towline's\nversion "), "{said}");
    assert_eq!(said.lines().count(), 2, "{said}");
}

#[test]
fn library_is_preloaded_where_it_is_asked_for() {
    let server = server(&["--collectives"]);
    let found = |option: &[&str], collectives| found_by(&server, option, collectives, START);
    assert_eq!(found(&[], "1"), "Towline's");
    assert_ne!(found(&["--no-collectives"], "1"), "Towline's");
    assert_ne!(found(&[], "0"), "Towline's");
}

#[test]
fn library_is_preloaded_where_servers_offer_collectives() {
    let found = |server: &Server| {
        let mut run = Command::new(towline());
        forget_surroundings(&mut run);
        let run = run.args(["run", "--no-encryption", "--server", server.address(), "--"]);
        let output = run
            .arg(opencl_program("nccl_finds"))
            .output()
            .expect("it runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(found(&server(&["--collectives"])).starts_with("Towline's\n"));
    assert!(!found(&server(&[])).starts_with("Towline's\n"));
}

#[test]
fn children_find_it_whatever_their_search_path() {
    let server = server(&["--collectives"]);
    let script = r#"LD_LIBRARY_PATH=/nonexistent sh -c "sh -c '$PROGRAM'""#;
    assert_eq!(found_by(&server, &[], "1", script), "Towline's");
}

#[test]
fn program_keeps_what_it_preloads_itself() {
    let server = server(&["--collectives"]);
    let options = ["--server", server.address()];
    let client = Client::with_options(&options, "sh").args(&["-c", "echo $LD_PRELOAD"]);
    let lines = client
        .env(COLLECTIVES, "1")
        .env("LD_PRELOAD", "libdl.so.2")
        .run()
        .lines_of_success();
    let (ours, others) = lines[0].split_once(':').expect("two libraries");
    assert!(ours.ends_with("/libnccl.so.2"), "{ours}");
    assert_eq!(others, "libdl.so.2");
}

/// Devices in software whose server lets ranks reach each other in this way.
fn pool(collectives: &str) -> Server {
    let options = [
        "--backend",
        "off",
        "--cuda",
        "soft:2",
        "--collectives",
        collectives,
    ];
    Server::start_with(&options, &[])
}

/// A rank of a job.
fn rank(server: &Server, job: &str, numbers: [usize; 2], id: &Path, mode: &str) -> Client {
    let [rank, count] = numbers.map(|number| number.to_string());
    let id = id.to_str().expect("temporary files have plain names");
    let client = Client::new(&[server], opencl_program("nccl_ranks"));
    let client = client.args(&[id, &rank, &count, mode]);
    client.env(COLLECTIVES, "1").env("TOWLINE_JOB", job)
}

/// Starts the ranks of a job, on these servers in turn.
fn ranks(servers: &[&Server], count: usize, id: &Path, mode: &str) -> Vec<Running> {
    let on = |number: usize| servers[number % servers.len()];
    (0..count)
        .map(|number| rank(on(number), "ring", [number, count], id, mode).start())
        .collect()
}

/// All ranks get what the others sent.
fn expect_results(ranks: Vec<Running>) {
    let count = ranks.len();
    let total: usize = (1..=count).sum();
    for (rank, running) in ranks.into_iter().enumerate() {
        let before = (rank + count - 1) % count + 1;
        let expected = [
            format!("from the rank before: {before}"),
            format!("sum: {total}"),
        ];
        assert_eq!(running.finish().lines_of_success(), expected);
    }
}

#[test]
fn ranks_of_one_server_work_together() {
    let folder = tempfile::tempdir().expect("room for a folder");
    for (turn, count) in [1, 2, 3].into_iter().enumerate() {
        let server = pool("local");
        let id = folder.path().join(turn.to_string());
        expect_results(ranks(&[&server], count, &id, "once"));
    }
}

#[test]
fn ranks_of_several_servers_work_together() {
    let folder = tempfile::tempdir().expect("room for a folder");
    let servers: Vec<_> = (0..4).map(|_| pool("network")).collect();
    let all: Vec<_> = servers.iter().collect();
    expect_results(ranks(&all[..2], 4, &folder.path().join("two"), "once"));
    expect_results(ranks(&all, 4, &folder.path().join("four"), "once"));
}

#[test]
fn a_killed_rank_fails_the_others() {
    const REMOTE_ERROR: &str = "copied 911, state 6";
    let folder = tempfile::tempdir().expect("room for a folder");
    let server = pool("local");
    let mut running = ranks(&[&server], 3, &folder.path().join("id"), "forever");
    running.iter_mut().for_each(|rank| rank.wait_for("sum: 6"));
    running[1].kill();
    for (rank, running) in running.into_iter().enumerate() {
        let finished = running.finish();
        if rank != 1 {
            let lines = finished.lines_of_success();
            assert_eq!(lines.last().map(String::as_str), Some(REMOTE_ERROR));
        }
    }
}

#[test]
fn a_rank_of_another_job_joins_nothing() {
    let folder = tempfile::tempdir().expect("room for a folder");
    let (server, id) = (pool("local"), folder.path().join("id"));
    let first = rank(&server, "ring", [0, 2], &id, "once").start();
    // It knows the id, which leads nowhere in the network of its own job.
    let stranger = rank(&server, "other", [1, 2], &id, "once").run();
    assert_eq!(stranger.lines, ["join: 6"]);
    let second = rank(&server, "ring", [1, 2], &id, "once").start();
    expect_results(vec![first, second]);
}
