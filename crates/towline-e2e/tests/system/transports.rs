//! Whole sessions over other transports than TCP: shared memory, and such as are no part of Towline.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::support::{Client, Server, opencl_program, workload};

/// The example of `towline-transport`: sockets of this host, in one file of C.
fn compile_example(object: &Path) {
    let transport = Path::new(env!("CARGO_MANIFEST_DIR")).join("../towline-transport");
    let status = Command::new("cc")
        .args(["-shared", "-fPIC", "-O2", "-fvisibility=hidden", "-I"])
        .arg(transport.join("include"))
        .arg("-o")
        .arg(object)
        .arg(transport.join("examples/unix_socket.c"))
        .status()
        .expect("a C compiler is installed");
    assert!(status.success(), "the example does not compile");
}

#[test]
fn program_runs_over_a_transport_from_a_shared_object() {
    let folder = tempfile::tempdir().expect("room for temporary files");
    let object = folder.path().join("libtowline_unix.so");
    compile_example(&object);
    let object = object.to_str().expect("plain letters");
    let address = format!("unix://{}/socket", folder.path().display());
    let plugins = ("TOWLINE_TRANSPORTS", object);
    let _server = Server::start_with(&["--listen", &address], &[plugins]);
    let finished = Client::with_options(&["--server", &address], workload("vector_add"))
        .args(&["--platform", "Towline"])
        .env(plugins.0, plugins.1)
        .run();
    assert!(
        finished.status.success(),
        "{:?} {}",
        finished.lines,
        finished.errors
    );
}

/// A server on a socket of its own, and its address.
fn neighbour(folder: &Path, arguments: &[&str]) -> (Server, String) {
    let address = format!("shm://{}/socket", folder.display());
    let arguments = [&["--listen", &address], arguments].concat();
    (Server::start_with(&arguments, &[]), address)
}

#[test]
fn opencl_workloads_are_right_over_shared_memory() {
    let folder = tempfile::tempdir().expect("room for temporary files");
    let (_server, address) = neighbour(folder.path(), &[]);
    for (name, size) in [
        ("sgemm", "193"),
        ("transpose", "517"),
        ("smith_waterman", "300"),
    ] {
        let arguments = [
            "--platform",
            "Towline",
            "--size",
            size,
            "--iterations",
            "2",
            "--json",
        ];
        let lines = Client::with_options(&["--server", &address], workload(name))
            .args(&arguments)
            .run()
            .lines_of_success();
        let passed = |line: &String| line.contains(r#""check":"pass""#);
        assert!(lines.iter().any(passed), "{name}: {lines:?}");
    }
}

#[test]
fn cuda_program_computes_over_shared_memory() {
    let folder = tempfile::tempdir().expect("room for temporary files");
    let (_server, address) = neighbour(folder.path(), &["--backend", "null", "--cuda", "null"]);
    let lines = Client::with_options(&["--server", &address], opencl_program("cuda_add"))
        .run()
        .lines_of_success();
    let mut expected = vec!["1 device".to_owned()];
    expected.extend((0..4).map(|power| format!("{} numbers, 0 wrong", 64_u32.pow(power))));
    expected.push("fault 700, then 700".into());
    assert_eq!(lines, expected);
}

#[test]
fn reads_of_every_length_bring_every_byte_on_one_thread_and_on_some() {
    let folder = tempfile::tempdir().expect("room for temporary files");
    let (_server, address) = neighbour(folder.path(), &["--backend", "null", "--cuda", "null"]);
    for threads in ["1", "3"] {
        let lines = Client::with_options(&["--server", &address], opencl_program("cuda_reads"))
            .env("TOWLINE_COPY_THREADS", threads)
            .run()
            .lines_of_success();
        assert_eq!(lines, ["93 reads, 0 wrong"], "{threads} threads");
    }
}

#[test]
fn cuda_program_on_a_device_in_software_computes_over_shared_memory() {
    let folder = tempfile::tempdir().expect("room for temporary files");
    let (_server, address) = neighbour(folder.path(), &["--backend", "null", "--cuda", "soft"]);
    let ptx = concat!(env!("CARGO_MANIFEST_DIR"), "/programs/ptx");
    let lines = Client::with_options(&["--server", &address], opencl_program("cuda_ptx"))
        .args(&[ptx])
        .run()
        .lines_of_success();
    assert_eq!(
        lines[1..3],
        ["65536 sums, 0 wrong", "65536 results, 0 wrong"]
    );
}

#[test]
fn host_and_running_kernels_use_pinned_memory_at_once_over_shared_memory() {
    let folder = tempfile::tempdir().expect("room for temporary files");
    let (_server, address) = neighbour(folder.path(), &["--backend", "null", "--cuda", "soft"]);
    let lines = Client::with_options(&["--server", &address], opencl_program("cuda_meets"))
        .run()
        .lines_of_success();
    let expected = [
        "flags 0: met 100 times, one address",
        "flags 2: met 100 times, one address",
        "by a pointer in memory: 7",
        "in turn: 1 2 3 4, then 5 6 7",
        "by the system: 8, 111, abcd",
        "many: 0 wrong",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn host_and_kernels_use_managed_variables_in_turn() {
    let options = [
        "--backend",
        "null",
        "--cuda",
        "soft",
        "--soft-memory",
        "64M",
    ];
    let server = Server::start_with(&options, &[]);
    let lines = Client::new(&[&server], opencl_program("cuda_managed"))
        .run()
        .lines_of_success();
    let expected = [
        "raised once: 0 wrong",
        "neighbours: 11 31, 0 wrong",
        "raised again: 102 33, 0 wrong",
        "plain: 43",
        "copied: 8 7",
        "the other: 33",
        "alone: 36",
        "before reset 0: 50",
        "before reset 1: 51",
        "before reset 2: 52",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn pinned_memory_is_freed_while_copies_are_at_it_over_shared_memory() {
    let folder = tempfile::tempdir().expect("room for temporary files");
    let (_server, address) = neighbour(folder.path(), &["--backend", "null", "--cuda", "null"]);
    let lines = Client::with_options(&["--server", &address], opencl_program("cuda_registered"))
        .run()
        .lines_of_success();
    let ends = ["flags", "range", "pinned", "freed"].map(|what| format!("{what}: 0 wrong"));
    assert!(lines.ends_with(&ends), "{lines:?}");
}

#[test]
fn local_is_found_by_itself_beside_tcp_and_leaves_no_socket() {
    let runtime = tempfile::tempdir().expect("room for temporary files");
    let private = std::fs::Permissions::from_mode(0o700);
    std::fs::set_permissions(runtime.path(), private).expect("it is ours");
    // A server of root is the whole host's, which this test must not get in the way of.
    let local = match rustix::process::geteuid().is_root() {
        true => format!("shm://{}/towline/local.sock", runtime.path().display()),
        false => "local".to_owned(),
    };
    let own = runtime.path().join("towline");
    std::fs::create_dir(&own).expect("it is ours");
    std::fs::set_permissions(&own, std::fs::Permissions::from_mode(0o700)).expect("it is ours");
    let variable = (
        "XDG_RUNTIME_DIR",
        runtime.path().to_str().expect("plain letters"),
    );
    let mut server = Server::start_with(&["--backend", "null", "--listen", &local], &[variable]);
    assert!(own.join("local.sock").exists());
    let tcp = server
        .address()
        .lines()
        .next()
        .expect("it says where it listens");
    let over_tcp = Client::with_options(&["--server", tcp], opencl_program("list")).run();
    let over_shm = Client::with_options(&["--server", "local"], opencl_program("list"))
        .env(variable.0, variable.1)
        .run();
    assert!(over_shm.status.success(), "{}", over_shm.errors);
    assert_eq!(over_shm.lines, over_tcp.lines);
    assert!(server.terminate());
    assert!(!own.join("local.sock").exists());
    let nobody = Client::with_options(&["--server", "local"], opencl_program("list"))
        .env(variable.0, variable.1)
        .run();
    assert!(
        nobody.errors.contains("towline serve --listen local"),
        "{}",
        nobody.errors
    );
}
