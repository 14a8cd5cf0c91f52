//! Unchanged programs compute on remote devices what they compute on local ones.

use crate::support::{Client, Server, opencl_program, workload};

/// The four workloads, at sizes that take a moment.
const WORKLOADS: [(&str, &str); 4] = [
    ("sgemm", "193"),
    ("nbody", "1000"),
    ("transpose", "517"),
    ("smith_waterman", "300"),
];

#[test]
fn every_workload_is_right_on_the_devices_of_two_servers() {
    let servers = Server::start_several(2, &[]);
    for (name, size) in WORKLOADS {
        for devices in ["1", "all"] {
            let client = Client::new(&[&servers[0], &servers[1]], workload(name));
            let arguments = [
                "--platform",
                "Towline",
                "--devices",
                devices,
                "--size",
                size,
                "--iterations",
                "2",
                "--json",
            ];
            let finished = client.args(&arguments).run();
            assert!(
                finished.status.success(),
                "{name} on {devices}: {:?} {}",
                finished.lines,
                finished.errors
            );
            assert!(
                finished
                    .lines
                    .iter()
                    .any(|line| line.contains(r#""check":"pass""#)),
                "{:?}",
                finished.lines
            );
        }
    }
}

#[test]
fn one_buffer_goes_around_the_devices_of_two_servers() {
    let servers = Server::start_several(2, &[]);
    let client = Client::new(&[&servers[0], &servers[1]], workload("span"));
    let arguments = [
        "--platform",
        "Towline",
        "--devices",
        "all",
        "--size",
        "1M",
        "--rounds",
        "5",
        "--json",
    ];
    let lines = client.args(&arguments).run().lines_of_success();
    assert!(
        lines[0].contains(r#""devices":2"#) && lines[0].contains(r#""check":"pass""#),
        "{lines:?}"
    );
}

#[test]
fn what_a_kernel_prints_comes_between_the_programs_own_lines() {
    let server = Server::start();
    let lines = Client::new(&[&server], opencl_program("prints"))
        .run()
        .lines_of_success();
    let round = |number| {
        [
            format!("before {number}"),
            format!("kernel {number} of the device"),
            format!("after {number}"),
        ]
    };
    assert_eq!(lines, (1..=20).flat_map(round).collect::<Vec<_>>());
}

#[test]
fn kernel_includes_files_of_the_clients_machine() {
    let folder = tempfile::tempdir().expect("a folder");
    let deeper = folder.path().join("deeper");
    std::fs::create_dir(&deeper).expect("a folder in it");
    for (file, text) in [
        (
            "value.h",
            "#include \"deeper/base.h\"\n#define VALUE (BASE + 2)\n",
        ),
        ("deeper/base.h", "#define BASE 40\n"),
        (
            "deeper/other.h",
            "#include \"../third.h\"\n#define OTHER THIRD\n",
        ),
        ("third.h", "#define THIRD 7\n"),
    ] {
        std::fs::write(folder.path().join(file), text).expect("a file in it");
    }
    let server = Server::start();
    let lines = Client::new(&[&server], opencl_program("includes"))
        .args(&[folder.path().to_str().expect("a name in UTF-8")])
        .run()
        .lines_of_success();
    assert_eq!(lines, ["options are the program's own", "42 7"]);
}

#[test]
fn queue_that_waits_for_a_user_event_holds_up_no_other_queue() {
    let server = Server::start();
    let lines = Client::new(&[&server], opencl_program("trap"))
        .run()
        .lines_of_success();
    assert_eq!(lines, ["copied 42", "counted 2000"]);
}

#[test]
fn queue_that_waits_for_a_user_event_holds_up_no_queue_of_another_server() {
    let servers = Server::start_several(2, &[]);
    let lines = Client::new(&[&servers[0], &servers[1]], opencl_program("trap"))
        .run()
        .lines_of_success();
    assert_eq!(lines, ["copied 42", "counted 2000"]);
}

#[test]
fn threads_with_queues_of_their_own_compute_side_by_side() {
    let servers = Server::start_several(2, &[]);
    let one = Client::new(&[&servers[0]], opencl_program("threads")).run();
    assert_eq!(one.lines_of_success(), ["right"]);
    let two = Client::new(&[&servers[0], &servers[1]], opencl_program("threads")).run();
    assert_eq!(two.lines_of_success(), ["right"]);
}
