//! `towline run --trace`: a file that Perfetto reads, of what a program did and when its kernels ran.

use serde_json::Value;

use crate::support::{Client, Finished, Server, opencl_program};

/// Runs a program and reads its trace, as JSON that lacks its last bracket.
fn traced(server: &Server, program: &str, arguments: &[&str]) -> (Finished, Vec<Value>) {
    let folder = tempfile::tempdir().expect("room for a file");
    let file = folder.path().join("trace.json");
    let path = file.to_str().expect("plain letters");
    let options = ["--server", server.address(), "--trace", path];
    let client = Client::with_options(&options, opencl_program(program)).args(arguments);
    let mut client = client.start();
    client.go_on();
    let finished = client.finish();
    let text = std::fs::read_to_string(&file).expect("it was written");
    let whole = format!("{}]", text.trim_end().trim_end_matches(','));
    let events: Vec<Value> = serde_json::from_str(&whole).expect("it is JSON");
    (finished, events)
}

/// A tenth of a second, in us.
const SLACK: f64 = 1e5;

type Slice<'a> = (&'a str, f64, f64, Option<u64>);

/// Name, begin, end and thread of the slices of a kind.
fn slices<'a>(events: &'a [Value], category: &str) -> Vec<Slice<'a>> {
    let of_kind = events.iter().filter(|event| event["cat"] == category);
    let slices = of_kind.map(|event| {
        let number = |key: &str| event[key].as_f64().expect("a number");
        let (begin, length) = (number("ts"), number("dur"));
        let name = event["name"].as_str().expect("a name");
        (name, begin, begin + length, event["tid"].as_u64())
    });
    slices.collect()
}

/// Waits of threads that call lie in calls, and all kernels within the time of the calls; gives the names of calls, and of what ran on
/// devices.
fn check(events: &[Value]) -> (Vec<&str>, Vec<&str>) {
    let [calls, waits, kernels] = ["call", "wait", "device"].map(|kind| slices(events, kind));
    // Rounded to nanoseconds, and read as binary fractions.
    let lies_in = |wait: &Slice<'_>, call: &Slice<'_>| {
        call.3 == wait.3 && call.1 <= wait.1 + 0.01 && wait.2 <= call.2 + 0.01
    };
    let is_stray = |wait: &&Slice<'_>| {
        calls.iter().any(|call| call.3 == wait.3) && !calls.iter().any(|call| lies_in(wait, call))
    };
    let stray: Vec<_> = waits.iter().filter(is_stray).collect();
    assert!(stray.is_empty(), "{stray:?}");
    let begin = calls.iter().map(|call| call.1).fold(f64::MAX, f64::min);
    let end = calls.iter().map(|call| call.2).fold(0.0, f64::max);
    // The clock of a device is known as well as a busy machine lets messages be timed.
    let is_between = |kernel: &Slice<'_>| begin - SLACK <= kernel.1 && kernel.2 <= end + SLACK;
    assert!(kernels.iter().all(is_between), "{begin} {end} {kernels:?}");
    let count = |event: &&Value| event["ph"] == "C" && event["args"]["sent"].as_u64() > Some(1000);
    assert!(events.iter().any(|event| count(&event)));
    (
        calls.into_iter().map(|slice| slice.0).collect(),
        kernels.into_iter().map(|slice| slice.0).collect(),
    )
}

#[test]
fn trace_of_opencl_shows_calls_waits_and_kernels() {
    let (finished, events) = traced(&Server::start(), "steady", &[]);
    let rounds = finished.lines_of_success();
    let rounds: usize = rounds[1]
        .trim_start_matches("rounds ")
        .parse()
        .expect("a number");
    let (calls, kernels) = check(&events);
    let launches = calls
        .iter()
        .filter(|name| **name == "clEnqueueNDRangeKernel");
    assert_eq!(launches.count(), rounds);
    assert_eq!(kernels, vec!["add_one"; rounds]);
}

#[test]
fn trace_of_cuda_shows_calls_waits_and_kernels() {
    let server = Server::start_with(&["--backend", "null", "--cuda", "soft"], &[]);
    let (finished, events) = traced(&server, "cuda_waits", &[]);
    finished.lines_of_success();
    let (calls, kernels) = check(&events);
    let launches = calls
        .iter()
        .filter(|name| **name == "cuLaunchKernel")
        .count();
    // The last one strays, and costs the session and what had not been asked by then.
    assert!(
        launches > 1000 && kernels.len() > launches / 2,
        "{}",
        kernels.len()
    );
    assert!(kernels.iter().all(|name| ["tells", "says"].contains(name)));
}

#[test]
fn trace_that_cannot_be_written_is_told() {
    let server = Server::start_null();
    let folder = tempfile::tempdir().expect("room for a folder");
    let path = folder.path().join("missing/trace.json");
    let options = [
        "--server",
        server.address(),
        "--trace",
        path.to_str().expect("plain letters"),
    ];
    let finished = Client::with_options(&options, opencl_program("list")).run();
    assert_eq!(finished.status.code(), Some(125));
    assert!(
        finished.errors.contains("could not write the trace"),
        "{}",
        finished.errors
    );
    let client = Client::new(&[&server], opencl_program("list")).env("TOWLINE_TIMELINE", &path);
    let finished = client.run();
    assert!(
        finished.errors.contains("no trace: cannot write"),
        "{}",
        finished.errors
    );
    assert_eq!(finished.lines_of_success(), ["status 0, 1 devices"]);
}
