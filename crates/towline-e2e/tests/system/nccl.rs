//! Towline's NCCL library: who finds it, and how it finds the driver library.

use std::os::unix::fs::symlink;
use std::process::Command;

use towline_api::emit::nccl as emit;

use crate::support::{Client, Server, forget_surroundings, opencl_program, towline};

fn server() -> Server {
    Server::start_with(&["--backend", "off", "--cuda", "null"], &[])
}

/// The first line of `nccl_finds` under `towline run`, started by a shell.
fn found_by(server: &Server, option: &[&str], collectives: &str, script: &str) -> String {
    let options = [option, &["--server", server.address()]].concat();
    let program = opencl_program("nccl_finds");
    let client = Client::with_options(&options, "sh").args(&["-c", script]);
    let client = client.env("TOWLINE_COLLECTIVES", collectives);
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
fn library_is_preloaded_where_servers_carry_collectives() {
    let server = server();
    let found = |option: &[&str], collectives| found_by(&server, option, collectives, START);
    assert_eq!(found(&[], "1"), "Towline's");
    assert_ne!(found(&[], "0"), "Towline's");
    assert_ne!(found(&["--no-nccl"], "1"), "Towline's");
}

#[test]
fn children_find_it_whatever_their_search_path() {
    let server = server();
    let script = r#"LD_LIBRARY_PATH=/nonexistent sh -c "sh -c '$PROGRAM'""#;
    assert_eq!(found_by(&server, &[], "1", script), "Towline's");
}

#[test]
fn program_keeps_what_it_preloads_itself() {
    let server = server();
    let options = ["--server", server.address()];
    let client = Client::with_options(&options, "sh").args(&["-c", "echo $LD_PRELOAD"]);
    let client = client.env("TOWLINE_COLLECTIVES", "1");
    let lines = client
        .env("LD_PRELOAD", "libdl.so.2")
        .run()
        .lines_of_success();
    let (ours, others) = lines[0].split_once(':').expect("two libraries");
    assert!(ours.ends_with("/libnccl.so.2"), "{ours}");
    assert_eq!(others, "libdl.so.2");
}
