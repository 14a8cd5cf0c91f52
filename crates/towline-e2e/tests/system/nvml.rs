//! NVML of the device in host memory, beside CUDA's view of the same device; and servers that offer CUDA devices only.

use std::os::unix::fs::symlink;
use std::process::{Command, Output};

use crate::support::{Client, Server, opencl_program, towline};

/// A server without OpenCL devices.
fn cuda_only() -> Server {
    Server::start_with(&["--backend", "off", "--cuda", "null"], &[])
}

/// `towline` with these arguments.
fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(towline());
    command
        .args(arguments)
        .env("XDG_CONFIG_HOME", "/nonexistent");
    command.output().expect("towline is a program")
}

fn json(arguments: &[&str]) -> serde_json::Value {
    let output = run(arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    serde_json::from_slice(&output.stdout).expect("it is JSON")
}

#[test]
fn nvml_tells_the_devices_of_all_servers_as_cuda_does_and_takes_no_session() {
    let servers = [cuda_only(), cuda_only()];
    let mut program = Client::new(&[&servers[0], &servers[1]], opencl_program("nvml")).start();
    let device = |index: u32| {
        format!(
            "{index}: Towline null device, {index:08X}:00:00.0, 1, 8192 MiB, 42 W, 31 C, 2 clocks"
        )
    };
    for line in [
        device(0),
        device(1),
        "no table".into(),
        device(0),
        "child 0".into(),
    ] {
        program.wait_for(&line);
    }
    program.wait_for("asked");
    let status = json(&["status", "--json", "--server", servers[0].address()]);
    assert_eq!(
        status[0]["sessions"].as_array().map(Vec::len),
        Some(0),
        "{status}"
    );
    program.go_on();
    let lines = program.finish().lines_of_success();
    let same = "same uuid, same place, same memory, 1 process, this, 1024 KiB";
    assert_eq!(lines, [format!("0: {same}"), format!("1: {same}")]);
}

#[test]
fn cuda_devices_and_sessions_are_shown_beside_the_others() {
    let both = Server::start_with(&["--backend", "null", "--cuda", "null"], &[]);
    let alone = cuda_only();
    let list = format!("{},{}", both.address(), alone.address());
    let devices = json(&["devices", "--json", "--server", &list]);
    let shown: Vec<(&str, &str)> = devices
        .as_array()
        .expect("a list")
        .iter()
        .map(|device| {
            let text = |name: &str| device[name].as_str().unwrap_or_default();
            (text("api"), text("name"))
        })
        .collect();
    let null = "Towline null device";
    let expected = [
        ("opencl", "Towline null device 0"),
        ("cuda", null),
        ("cuda", null),
    ];
    assert_eq!(shown, expected);
    let options = ["--server", alone.address(), "--report"];
    let mut program = Client::with_options(&options, opencl_program("nvml")).start();
    program.wait_for("asked");
    program.go_on();
    let finished = program.finish();
    let report = finished.errors.clone();
    finished.lines_of_success();
    for part in [alone.address(), "requests", "cuMemGetInfo"] {
        assert!(report.contains(part), "no {part} in {report}");
    }
    let status = json(&["status", "--json", "--server", alone.address()]);
    assert_eq!(status[0]["sessions_started"], 1, "{status}");
}

#[test]
fn a_library_of_towlines_own_is_not_taken_for_a_vendors() {
    let folder = tempfile::tempdir().expect("room for a folder");
    let cuda = folder.path().join("libcuda.so.1");
    symlink(towline().with_file_name("libtowline_cuda.so"), &cuda).expect("room for a link");
    // Needs the driver library beside it, and servers follow links before they load.
    let nvml = folder.path().join("libnvidia-ml.so.1");
    let library = towline().with_file_name("libtowline_nvml.so");
    std::fs::copy(library, &nvml).expect("room for a file");
    for (option, library) in [("--cuda", cuda), ("--nvml", nvml)] {
        let library = library.display().to_string();
        let mut arguments = vec!["--backend", "null", "--no-jail", option, &library];
        if option == "--nvml" {
            arguments.extend(["--cuda", "null"]);
        }
        let server = Server::start_with(&arguments, &[]);
        let said = Client::new(&[&server], opencl_program("nvml")).run();
        assert!(!said.status.success());
        let said = match option {
            "--nvml" => said.errors,
            _ => {
                Client::new(&[&server], opencl_program("cuda_add"))
                    .run()
                    .errors
            }
        };
        assert!(said.contains("Towline's own library"), "{option}: {said}");
    }
}

#[test]
fn server_with_nothing_to_offer_says_so() {
    let output = run(&["serve", "--backend", "off", "--cuda", "off"]);
    assert_eq!(output.status.code(), Some(125));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("no device to offer"), "{errors}");
}
