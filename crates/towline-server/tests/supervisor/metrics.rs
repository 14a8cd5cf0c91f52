//! Metrics, and clients that are not what they should be.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use super::*;

const GET: &str = "GET /metrics HTTP/1.1\r\nHost: here\r\n";

fn with_metrics(kind: &str) -> SupervisorConfig {
    SupervisorConfig {
        metrics: Some(MetricsConfig {
            listen: "127.0.0.1:0".parse().unwrap(),
            token: None,
        }),
        ..config(kind)
    }
}

fn connect(server: &Server) -> TcpStream {
    let address = server.supervisor.metrics_address().expect("it has metrics");
    let (host, port) = address.host_port().expect("it is one of tcp");
    let stream = TcpStream::connect((host, port)).expect("it listens");
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    stream
}

/// Head and body of the answer to a request.
fn answer(mut stream: impl Read + Write, request: &str) -> (String, String) {
    // It may be refused before it is read.
    let _ = stream.write_all(request.as_bytes());
    let mut text = String::new();
    let _ = stream.read_to_string(&mut text);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_default();
    (head.to_owned(), body.to_owned())
}

fn status(server: &Server, request: &str) -> String {
    let (head, _) = answer(connect(server), request);
    let status = head.split(' ').nth(1);
    status.unwrap_or_default().to_owned()
}

fn page(server: &Server) -> String {
    let (head, body) = answer(connect(server), &format!("{GET}\r\n"));
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    body
}

/// The value of a series, written as on the page; 0 where it is not there.
fn value(page: &str, series: &str) -> f64 {
    let mut lines = page.lines().filter_map(|line| line.rsplit_once(' '));
    lines
        .find(|(name, _)| *name == series)
        .map_or(0.0, |(_, value)| value.parse().expect("a number"))
}

/// Waits for a page, which a server makes anew each second, with this value.
fn page_with(server: &Server, series: &str, expected: f64) -> String {
    let mut last = String::new();
    wait_until(series, Duration::from_secs(20), || {
        last = page(server);
        value(&last, series) == expected
    });
    last
}

pub(super) fn metrics_follow_sessions_and_counters_stay() -> Result<(), Failed> {
    let server = serve(with_metrics("echo"));
    let running = "towline_sessions{tenant=\"default\",api=\"opencl\"}";
    let requests = "towline_requests_total{tenant=\"default\"}";
    let received = "towline_received_bytes_total{tenant=\"default\"}";
    let client = Client::session(&server.address);
    let lane = client.lane(0, 1);
    assert!((0..10).all(|_| lane.echoes()));
    let before = page_with(&server, requests, 10.0);
    assert_eq!(
        (value(&before, running), value(&before, received)),
        (1.0, 80.0)
    );
    assert!(lane.echoes());
    drop((lane, client));
    let ended = "towline_sessions_ended_total{tenant=\"default\",reason=\"client\"}";
    page_with(&server, ended, 1.0);
    let after = page_with(&server, running, 0.0);
    assert_eq!(value(&after, requests), 11.0);
    let started = "towline_sessions_started_total{tenant=\"default\",api=\"opencl\"}";
    assert_eq!(value(&after, started), 1.0);
    let waits = "towline_worker_wait_seconds_count{api=\"opencl\"}";
    let starts = "towline_worker_start_seconds_count{api=\"opencl\"}";
    assert_eq!(value(&after, waits), 1.0);
    assert!(value(&after, starts) >= 1.0, "{after}");
    // The next session adds to it.
    let client = Client::session(&server.address);
    assert!(client.lane(0, 1).echoes());
    page_with(&server, requests, 12.0);
    Ok(())
}

pub(super) fn metrics_count_crashes_and_refusals_by_reason() -> Result<(), Failed> {
    let server = serve(with_metrics("echo"));
    let client = Client::session(&server.address);
    client.lane(0, 1).order(b"crash---");
    let crashes = "towline_sessions_ended_total{tenant=\"default\",reason=\"crash\"}";
    page_with(&server, crashes, 1.0);
    let stranger = Client::dial(&server.address);
    stranger.send(b"GET / HTTP/1.1\r\n\r\n");
    let malformed = "towline_refused_connections_total{reason=\"malformed\"}";
    page_with(&server, malformed, 1.0);
    Ok(())
}

pub(super) fn metrics_beyond_this_host_need_their_token() -> Result<(), Failed> {
    let mut config = with_metrics("echo");
    let metrics = config.metrics.as_mut().expect("just given");
    metrics.listen = "0.0.0.0:0".parse()?;
    let error = Supervisor::start(config.clone()).err().expect("no token");
    assert!(
        error.to_string().contains("--metrics-token-file"),
        "{error}"
    );
    let metrics = config.metrics.as_mut().expect("just given");
    metrics.token = token("the token of the metrics");
    let server = serve(config);
    let with = |field: &str| status(&server, &format!("{GET}{field}\r\n"));
    assert_eq!(
        with("Authorization: Bearer the token of the metrics\r\n"),
        "200"
    );
    for wrong in [
        "",
        "Authorization: Bearer the token of the metric\r\n",
        "Authorization: Bearer the token of the metrics!\r\n",
        "Authorization: Basic the token of the metrics\r\n",
    ] {
        assert_eq!(with(wrong), "401", "{wrong}");
    }
    // Strangers do not learn what there is.
    assert_eq!(status(&server, "GET /other HTTP/1.1\r\n\r\n"), "401");
    Ok(())
}

pub(super) fn metrics_are_told_on_a_unix_socket() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("metrics.sock");
    let mut config = with_metrics("echo");
    let metrics = config.metrics.as_mut().expect("just given");
    metrics.listen = format!("shm://{}?mode=600", path.display()).parse()?;
    let server = serve(config);
    assert_eq!(path.metadata()?.permissions().mode() & 0o777, 0o600);
    let (head, body) = answer(UnixStream::connect(&path)?, &format!("{GET}\r\n"));
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert_eq!(value(&body, "towline_sessions_limit"), 8.0);
    server.supervisor.stop();
    assert!(!path.exists());
    Ok(())
}

pub(super) fn hostile_scrapes_do_not_keep_others_out() -> Result<(), Failed> {
    let server = serve(with_metrics("echo"));
    // More than may be there at once, of which each has half a request.
    let silent: Vec<TcpStream> = (0..100)
        .map(|_| {
            let mut stream = connect(&server);
            let _ = stream.write_all(GET.as_bytes());
            stream
        })
        .collect();
    wait_until("an answer", Duration::from_secs(20), || {
        status(&server, &format!("{GET}\r\n")) == "200"
    });
    let mut last = &silent[silent.len() - 1];
    let mut text = String::new();
    let _ = last.read_to_string(&mut text);
    assert!(
        text.is_empty() || text.contains(" 408 ") || text.contains(" 503 "),
        "{text}"
    );
    // A head without end.
    let endless = format!("{GET}Endless: {}", "x".repeat(1 << 20));
    assert_eq!(status(&server, &endless), "431");
    assert_eq!(status(&server, "\u{16}\u{3}\u{1}\r\n\r\n"), "400");
    assert_eq!(status(&server, "POST /metrics HTTP/1.1\r\n\r\n"), "405");
    assert_eq!(status(&server, "GET / HTTP/1.1\r\n\r\n"), "404");
    assert!(Client::session(&server.address).lane(0, 1).echoes());
    Ok(())
}

pub(super) fn metrics_tell_what_nvml_says_of_devices() -> Result<(), Failed> {
    let server = serve(SupervisorConfig {
        cuda_worker: Some(worker("echo")),
        nvml_worker: Some(worker("monitor-metrics")),
        ..with_metrics("echo")
    });
    let named = |name: &str, page: &str| {
        let mut lines = page.lines().filter_map(|line| line.rsplit_once(' '));
        let own = |(series, _): &(&str, &str)| {
            series.starts_with(&format!("{name}{{gpu=\"0\",UUID=\"GPU-"))
                && series.ends_with("modelName=\"Towline null device\"}")
        };
        lines
            .find(own)
            .map(|(_, value)| value.parse::<f64>().expect("a number"))
    };
    let mut last = String::new();
    wait_until("figures of a device", Duration::from_secs(20), || {
        last = page(&server);
        named("DCGM_FI_DEV_POWER_USAGE", &last).is_some()
    });
    assert_eq!(named("DCGM_FI_DEV_POWER_USAGE", &last), Some(42.0));
    let celsius = named("DCGM_FI_DEV_GPU_TEMP", &last).expect("it has one");
    assert!((31.0..33.0).contains(&celsius), "{celsius}");
    for name in [
        "DCGM_FI_DEV_GPU_UTIL",
        "DCGM_FI_DEV_FB_USED",
        "DCGM_FI_DEV_FB_FREE",
    ] {
        assert!(named(name, &last).is_some(), "{name}: {last}");
    }
    Ok(())
}

/// The names of metrics in a text. Series of a histogram have its name with something behind.
fn names(text: &str) -> BTreeSet<&str> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    let names = words.filter(|word| word.starts_with("towline_") || word.starts_with("DCGM_"));
    names.map(|name| name.trim_end_matches("_bucket")).collect()
}

/// The names of metrics that a page has.
fn told(page: &str) -> BTreeSet<String> {
    let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let names = types.filter_map(|line| line.split(' ').next());
    names.map(str::to_owned).collect()
}

pub(super) fn metrics_have_the_names_of_docs_alerts_and_dashboard() -> Result<(), Failed> {
    // A metric is on the page once there is something to tell: here of devices and strangers, there of limits.
    let here = serve(SupervisorConfig {
        cuda_worker: Some(worker("cuda")),
        nvml_worker: Some(worker("monitor-names")),
        ..with_metrics("echo")
    });
    Client::dial(&here.address).send(b"GET / HTTP/1.1\r\n\r\n");
    let _session = Client::join(&here.address, Purpose::CudaSession, None)?;
    let limits = TenantLimits {
        sessions: Some(1),
        memory: Some(1 << 20),
        time: towline_wire::control::TimeShare {
            percent: Some(50),
            ..Default::default()
        },
        ..TenantLimits::default()
    };
    let entry = TenantEntry {
        limits,
        ..TenantEntry::new("1", secret_of("anna"))
    };
    let bounds = ServerLimits {
        swap_bytes: 1 << 30,
        ..ServerLimits::default()
    };
    let there = serve(SupervisorConfig {
        tenants: Arc::new(TenantTable::listed([("anna".into(), entry)].into())),
        bounds,
        ..with_metrics("echo")
    });
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |path: &str| std::fs::read_to_string(root.join(path));
    let documented = read("docs/metrics.md")?;
    let documented: BTreeSet<String> = names(&documented).into_iter().map(str::to_owned).collect();
    let mut all = told(&page(&there));
    wait_until("every metric", Duration::from_secs(20), || {
        all.extend(told(&page(&here)));
        all.is_superset(&documented)
    });
    assert_eq!(documented, all);
    for file in [
        "packaging/metrics/alerts.yml",
        "packaging/metrics/dashboard.json",
    ] {
        let text = read(file)?;
        let named = names(&text);
        let unknown: Vec<_> = named.iter().filter(|name| !all.contains(**name)).collect();
        assert!(
            !named.is_empty() && unknown.is_empty(),
            "{file}: {unknown:?}"
        );
    }
    Ok(())
}
