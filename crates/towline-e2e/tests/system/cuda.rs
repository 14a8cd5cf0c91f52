//! Programs of the CUDA driver API, on the device in host memory and on devices in software.

use crate::support::{Client, PATIENCE, Server, holds_within, opencl_program, towline};

/// PTX of `workloads/cuda`.
const PTX: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/programs/ptx");

#[test]
fn program_of_the_driver_api_computes_on_a_server() {
    let server = Server::start_with(&["--backend", "null", "--cuda", "null"], &[]);
    let lines = Client::new(&[&server], opencl_program("cuda_add"))
        .run()
        .lines_of_success();
    let mut expected = vec!["1 device".to_owned()];
    expected.extend((0..4).map(|power| format!("{} numbers, 0 wrong", 64_u32.pow(power))));
    expected.push("fault 700, then 700".into());
    assert_eq!(lines, expected);
}

#[test]
fn server_without_a_driver_has_no_cuda_devices_and_says_so() {
    let server = Server::start_with(&["--backend", "null", "--cuda", "off"], &[]);
    let said = Client::new(&[&server], opencl_program("cuda_add")).run();
    assert!(said.errors.contains("no CUDA devices"), "{}", said.errors);
}

#[test]
fn measurements_run_on_the_null_device_and_have_the_documented_shape() {
    let folder = tempfile::tempdir().expect("room for a folder");
    let file = folder.path().join("cuda.json");
    let sections = "start,launch,small,memory,bandwidth,clients";
    let output = std::process::Command::new(towline())
        .args([
            "bench", "cuda", "--cuda", "null", "--quick", "--only", sections,
        ])
        .arg("--json")
        .arg(&file)
        .output()
        .expect("towline starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let text = std::fs::read_to_string(&file).expect("the report was written");
    let report: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    assert_eq!(
        (&report["kind"], &report["schema"]),
        (&"cuda".into(), &1.into())
    );
    assert_eq!(report["devices"]["remote"]["platform"], "CUDA");
    let figures = report["figures"].as_array().expect("figures are a list");
    let ids: Vec<&str> = figures
        .iter()
        .filter_map(|figure| figure["id"].as_str())
        .collect();
    for id in [
        "start.cold",
        "start.warm",
        "launch.burst.issue",
        "launch.sustained",
        "launch.sync",
        "small.write",
        "small.read",
        "memory.allocate_free",
        "bandwidth.write.pinned.64KiB",
        "bandwidth.read.pageable.4MiB",
        "clients.2.launches",
        "clients.2.spread",
    ] {
        assert!(ids.contains(&id), "{id} is missing of {ids:?}; {errors}");
    }
    // Both legs, their ratio and all CPU times are there; the null device promises nothing.
    for figure in figures {
        for leg in ["native", "remote"] {
            assert!(
                figure["legs"][leg]["median"].is_number(),
                "{figure}; {errors}"
            );
            assert!(
                figure["legs"][leg]["cpu"]["client_s"].is_number(),
                "{figure}"
            );
            assert!(
                figure["legs"][leg]["cpu"]["system_s"].is_number(),
                "{figure}"
            );
        }
        assert!(
            figure["legs"]["remote"]["cpu"]["server_s"].is_number(),
            "{figure}"
        );
        assert!(figure["bars"].is_null(), "{figure}");
    }
}

#[test]
fn device_memory_lies_nowhere_where_the_host_has_memory() {
    for device in ["null", "soft"] {
        let server = Server::start_with(&["--backend", "null", "--cuda", device], &[]);
        let lines = Client::new(&[&server], opencl_program("cuda_addresses"))
            .run()
            .lines_of_success();
        let expected = [
            "what is allocated cannot be mapped by the host",
            "allocations: 0 at addresses of the host, 0 pages free for it",
            "0 bytes wrong",
            "pools: 0 at addresses of the host, 0 pages free for it",
            "reservations: 0 at addresses of the host, 0 pages free for it",
            "what was given back can be mapped by the host",
        ];
        assert_eq!(lines, expected, "{device}");
    }
}

#[test]
fn program_with_ptx_computes_on_a_device_in_software() {
    let server = Server::start_with(&["--backend", "null", "--cuda", "soft"], &[]);
    let lines = Client::new(&[&server], opencl_program("cuda_ptx"))
        .args(&[PTX])
        .run()
        .lines_of_success();
    let expected = [
        "1 of 7.5 with 4096 MiB",
        "65536 sums, 0 wrong",
        "65536 results, 0 wrong",
        "says 0 0.0",
        "says 1 1.5",
        "fault 700, then 700",
    ];
    assert_eq!(lines, expected);
    // What a worker says takes its way through the server.
    let told = || server.log().contains("kernel `strays`");
    assert!(holds_within(PATIENCE, told), "{}", server.log());
    let log = server.log();
    let line = log.lines().find(|line| line.contains("kernel `strays`"));
    let line = line.expect("the log tells of the fault");
    assert!(line.contains(STRAYS), "{line}");
}

/// The message about the kernel `strays` of `programs/cuda_ptx.c`.
const STRAYS: &str = "kernel `strays`: invalid write of 4 bytes at global address 0x1010, where nothing is allocated: block (0, 0, 0), \
    thread (0, 0, 0), PTX line 15, column 1: `st.global.u32 [%d0+16], 7;`; pass memory of the device that has not been freed";

#[test]
fn program_on_a_software_device_is_told_of_faults_on_stderr() {
    let server = Server::start_with(&["--backend", "null", "--cuda", "soft"], &[]);
    let run = |log: &str| {
        Client::new(&[&server], opencl_program("cuda_ptx"))
            .args(&[PTX])
            .env("TOWLINE_LOG", log)
            .run()
            .errors
    };
    let told = run("warn");
    assert_eq!(told.matches(STRAYS).count(), 1, "{told}");
    let silent = run("warn,device=off");
    assert!(!silent.contains("strays"), "{silent}");
}

#[test]
fn blocking_launches_tell_their_own_failures() {
    let server = Server::start_with(&["--backend", "null", "--cuda", "soft"], &[]);
    let finished = Client::new(&[&server], opencl_program("cuda_ptx"))
        .args(&[PTX])
        .env("CUDA_LAUNCH_BLOCKING", "1")
        .run();
    let (lines, errors) = (&finished.lines, &finished.errors);
    assert!(errors.contains("cuLaunchKernel: 700"), "{errors}");
    assert_eq!(lines[2], "65536 results, 0 wrong");
}

#[test]
fn devices_in_software_are_as_many_and_as_large_as_asked() {
    let arguments = [
        "--backend",
        "null",
        "--cuda",
        "soft:3",
        "--soft-memory",
        "256M",
        "--soft-capability",
        "8.6",
    ];
    let server = Server::start_with(&arguments, &[]);
    let lines = Client::new(&[&server], opencl_program("cuda_ptx"))
        .args(&[PTX])
        .run()
        .lines_of_success();
    assert_eq!(lines[..2], ["3 of 8.6 with 256 MiB", "65536 sums, 0 wrong"]);
}

/// C with PTX, by what nvcc's host code calls: in the layouts and by the symbols of both versions of the library.
#[test]
fn program_of_the_runtime_runs_on_a_software_device_where_it_is_asked_for() {
    let server = Server::start_with(&["--backend", "null", "--cuda", "soft"], &[]);
    // Libraries of 12 tell impossible configurations apart from other values.
    for (major, impossible) in [("12", 9), ("13", 1)] {
        let options = ["--cudart", "--server", server.address()];
        let lines = Client::with_options(&options, opencl_program("cudart_saxpy"))
            .args(&[major])
            .run()
            .lines_of_success();
        let first =
            format!("runtime {major}, 1 device, Towline software device, capability 7, all told");
        let errors = format!("errors 98, 98 98 0, {impossible} {impossible} 1 13 101");
        let expected = [
            first.as_str(),
            "launched: 65536 numbers, 0 wrong",
            "variable of 4 bytes is 2",
            errors.as_str(),
            "after main: 0 0",
        ];
        assert_eq!(lines, expected);
    }
}

#[test]
fn program_of_the_runtime_gets_none_of_ours_unasked() {
    let server = Server::start_with(&["--backend", "null", "--cuda", "soft"], &[]);
    let said = Client::new(&[&server], opencl_program("cudart_saxpy")).run();
    // A machine with NVIDIA's own library finds that one, which stops at the device.
    assert!(!said.status.success(), "{}", said.errors);
}

/// Bytes that a program has sent, as `--report` tells them.
fn sent(report: &str) -> f64 {
    let line = report.lines().find(|line| line.contains(" requests, "));
    let line = line.unwrap_or_else(|| panic!("no report: {report}"));
    let amount = line.split(" requests, ").nth(1);
    let words: Vec<&str> = amount.unwrap_or_default().split(' ').take(2).collect();
    let unit = match words[1] {
        "B" | "bytes" => 1.0,
        "KiB" => 1024.0,
        "MiB" => 1024.0 * 1024.0,
        other => panic!("{other} is no unit of this test: {line}"),
    };
    words[0].parse::<f64>().expect("it is a number") * unit
}

#[test]
fn device_code_that_one_program_brought_another_does_not_send_and_a_folder_keeps_it() {
    let folder = tempfile::tempdir().expect("room for a folder");
    let images = folder.path().join("images");
    let images = images.to_str().expect("paths of tests are text");
    let run = |server: &Server| {
        let options = ["--report", "--server", server.address()];
        let finished = Client::with_options(&options, opencl_program("cuda_image")).run();
        assert_eq!(finished.lines, ["42"], "{}", finished.errors);
        sent(&finished.errors)
    };
    let first = [
        "--backend",
        "null",
        "--cuda",
        "null",
        "--image-cache",
        images,
    ];
    let server = Server::start_with(&first, &[]);
    let brought = run(&server);
    assert!(brought > 400_000.0, "{brought}");
    // The server keeps it when the program has its answer.
    let named = (0..100).map(|_| run(&server)).find(|sent| *sent < 20_000.0);
    assert!(named.is_some(), "it is sent every time");
    drop(server);
    let server = Server::start_with(&first, &[]);
    let named = run(&server);
    assert!(named < 20_000.0, "{named}");
    let nothing = [
        "--backend",
        "null",
        "--cuda",
        "null",
        "--image-cache-memory",
        "0",
    ];
    let server = Server::start_with(&nothing, &[]);
    for sent in [run(&server), run(&server)] {
        assert!(sent > 400_000.0, "{sent}");
    }
}

#[test]
fn each_wait_ends_when_the_kernel_has_whether_the_worker_looks_on_or_not() {
    for (spin, memory) in [("0", "pinned"), ("100", "pinned"), ("0", "registered")] {
        let variable = ("TOWLINE_SPIN_US", spin);
        let server = Server::start_with(&["--backend", "null", "--cuda", "soft"], &[variable]);
        let lines = Client::new(&[&server], opencl_program("cuda_waits"))
            .args(&[memory])
            .env(variable.0, variable.1)
            .run()
            .lines_of_success();
        let expected = [
            "default stream: 200 waits, 0 wrong",
            "beside one that is not behind it: 200 waits, 0 wrong",
            "before others: 200 waits, 0 wrong",
            "created streams: 200 waits, 0 wrong",
            "many streams: 200 waits, 0 wrong",
            "says it",
            "then this",
            "fault 700",
        ];
        assert_eq!(lines, expected, "looking for {spin} us, {memory} memory");
    }
}

#[test]
fn kernels_use_memory_that_is_registered_and_copies_outlive_what_is_freed() {
    let server = Server::start_with(&["--backend", "null", "--cuda", "null"], &[]);
    let lines = Client::new(&[&server], opencl_program("cuda_registered"))
        .run()
        .lines_of_success();
    let beside = (1..=5).map(|round| format!("beside a flag: {round}"));
    let mut expected: Vec<String> = beside.collect();
    expected.extend(["flags", "range", "pinned", "freed"].map(|what| format!("{what}: 0 wrong")));
    assert_eq!(lines, expected);
}
