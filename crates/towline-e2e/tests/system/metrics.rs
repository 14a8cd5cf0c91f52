//! Metrics of a server while programs of tenants come and go.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use crate::support::{Client, PATIENCE, Server, holds_within, opencl_program};
use crate::tenants::Tenants;

/// A page; `None` where the server does not give it.
fn scrape(mut stream: impl Read + Write, fields: &str) -> Option<String> {
    let request = format!("GET /metrics HTTP/1.1\r\nHost: here\r\n{fields}\r\n");
    stream.write_all(request.as_bytes()).expect("it listens");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("it answers");
    let (head, body) = text.split_once("\r\n\r\n")?;
    head.starts_with("HTTP/1.1 200 ").then(|| body.to_owned())
}

/// The value of a series, written as on the page.
fn value(page: &str, series: &str) -> Option<f64> {
    let mut lines = page.lines().filter_map(|line| line.rsplit_once(' '));
    let found = lines.find(|(name, _)| *name == series);
    found.map(|(_, value)| value.parse().expect("a number"))
}

/// The port at which a server says that its metrics are.
fn metrics_port(server: &Server) -> u16 {
    let log = server.log();
    let (_, rest) = log
        .split_once("metrics are at http://127.0.0.1:")
        .expect("it says where");
    let (port, _) = rest.split_once('/').expect("a path");
    port.parse().expect("a number")
}

#[test]
fn counters_stay_when_sessions_end() {
    let tenants = Tenants::new();
    tenants.add("anna", &["--memory", "512M"]);
    tenants.add("bert", &[]);
    let folder = tempfile::tempdir().expect("room for temporary files");
    let socket = folder.path().join("metrics.sock");
    let listen = format!("unix:{}", socket.display());
    let server = tenants.serve(&["--metrics-listen", &listen]);
    let page = || {
        let stream = UnixStream::connect(&socket).expect("it listens");
        scrape(stream, "").expect("it tells metrics")
    };
    let within = |series: &str, wanted: fn(f64) -> bool| {
        let mut last = String::new();
        let came = holds_within(PATIENCE, || {
            last = page();
            value(&last, series).is_some_and(wanted)
        });
        assert!(came, "{series}:\n{last}");
        last
    };
    let mut idle = tenants.idle(&server, ["anna", "anna"]);
    let held = within("towline_device_memory_bytes{tenant=\"anna\"}", |bytes| {
        bytes > 0.0
    });
    let anna = "towline_sessions{tenant=\"anna\",api=\"cuda\"}";
    assert_eq!(value(&held, anna), Some(1.0));
    let limit = "towline_tenant_device_memory_limit_bytes{tenant=\"anna\"}";
    assert_eq!(value(&held, limit), Some(f64::from(512 << 20)));
    let devices = "towline_devices{api=\"cuda\"}";
    assert_eq!(value(&held, devices), Some(1.0));
    let counters = [
        "towline_requests_total{tenant=\"anna\"}",
        "towline_received_bytes_total{tenant=\"anna\"}",
        "towline_sent_bytes_total{tenant=\"anna\"}",
    ];
    let before = counters.map(|name| value(&held, name).expect("it is there"));
    assert!(before.iter().all(|value| *value > 0.0), "{before:?}");
    idle.kill();
    // It said no goodbye.
    let ended = "towline_sessions_ended_total{tenant=\"anna\",reason=\"lost\"}";
    within(ended, |count| count == 1.0);
    let after = within(anna, |count| count == 0.0);
    let still = counters.map(|name| value(&after, name).expect("it is there"));
    assert!(
        still.iter().zip(&before).all(|(now, before)| now >= before),
        "{still:?} after {before:?}"
    );
    assert_eq!(
        value(&after, "towline_requests_total{tenant=\"bert\"}"),
        Some(0.0)
    );
}

#[test]
fn metrics_count_launches_and_kernels_that_take_too_long() {
    let server = Server::start_with(
        &[
            "--backend",
            "null",
            "--kernel-time-limit",
            "1",
            "--metrics-listen",
            "127.0.0.1:0",
        ],
        &[],
    );
    let port = metrics_port(&server);
    let program = Client::new(&[&server], opencl_program("takes_time"));
    let mut program = program.args(&["1", "100", "built-in"]).start();
    program.wait_for_word("took");
    program.go_on();
    program.finish().lines_of_success();
    let launches = "towline_launches_total{tenant=\"default\"}";
    let busy = "towline_device_time_seconds_total{tenant=\"default\"}";
    let mut last = String::new();
    let came = holds_within(PATIENCE, || {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
        last = scrape(stream, "").expect("it tells metrics");
        value(&last, launches).is_some_and(|count| count > 0.0)
            && value(&last, busy).is_some_and(|seconds| seconds > 0.05)
    });
    assert!(came, "{last}");
    let endless = Client::new(&[&server], opencl_program("takes_time"));
    let endless = endless.args(&["1", "4000", "built-in"]).run();
    assert!(!endless.status.success());
    let too_long = "towline_sessions_ended_total{tenant=\"default\",reason=\"kernel_time\"}";
    let came = holds_within(PATIENCE, || {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
        last = scrape(stream, "").expect("it tells metrics");
        value(&last, too_long) == Some(1.0)
    });
    assert!(came, "{last}");
}
